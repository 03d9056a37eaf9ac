"""An arm64 machine gives what this one gives: every kernel's errors, counters and counts by line, in both builds.

Usage: test_arm64.py FOLDER FAST_PROGRAM CHECKED_PROGRAM (both of this machine's). Cross-compiles the two programs in
FOLDER and runs them under QEMU. Boost.Context is the one library that is not headers alone: its arm64 package is
downloaded and unpacked in FOLDER, so that this machine's packages stay those of one architecture.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from tool_test import build, fail, need, run, skip

PROBLEMS = ("--dtype bf16 --head-dim 128 --seq-len 256 --heads 1", "--dtype fp16 --head-dim 64 --seq-len 128 --heads 1")

folder = Path(sys.argv[1]).resolve()
ours = {"fast": sys.argv[2], "checked": sys.argv[3]}
if platform.machine() == "aarch64":
    skip("this is an arm64 machine")
compiler, qemu = need("aarch64-linux-gnu-g++"), need("qemu-aarch64")
addr2line = need("aarch64-linux-gnu-addr2line")
for tool in ("apt-get", "dpkg", "dpkg-query"):
    need(tool)


def boost_library():
    """The arm64 library: downloaded once, with lists of apt's own so that this machine's stay as they are."""
    unpacked = folder / "boost"
    if not list(unpacked.glob("usr/lib/*/libboost_context.a")):
        owner = subprocess.run(["dpkg-query", "--search", "*/libboost_context.a"], capture_output=True, text=True,
                               timeout=60)
        if owner.returncode != 0:
            skip("libboost_context.a is of no Debian package")
        package = owner.stdout.split(":")[0]
        lists = folder / "apt"
        lists.mkdir(parents=True, exist_ok=True)
        (lists / "status").touch()
        options = ("APT::Architecture=arm64", "APT::Architectures=arm64", "APT::Sandbox::User=", f"Dir::State={lists}",
                   f"Dir::State::status={lists}/status", f"Dir::Cache={lists}", "Acquire::Languages=none",
                   "Acquire::Retries=1", "Acquire::http::Timeout=20", "Acquire::https::Timeout=20")
        apt = ["apt-get", *(word for option in options for word in ("-o", option))]
        try:
            # A source that has nothing for arm64 is no reason to stop: what counts is whether the package comes.
            subprocess.run([*apt, "update"], capture_output=True, timeout=60)
            done = subprocess.run([*apt, "download", package], cwd=lists, capture_output=True, text=True, timeout=60)
        except subprocess.TimeoutExpired:
            skip("the package archive does not answer")
        files = list(lists.glob(f"{package}_*_arm64.deb"))
        if done.returncode != 0 or not files:
            skip(f"{package} for arm64 could not be downloaded ({(done.stderr.strip() or 'no file').splitlines()[0]})")
        run("dpkg", "--extract", files[0], unpacked)
    return next(unpacked.glob("usr/lib/*/libboost_context.a"))


def results(command, problem, json_file, **options):
    run(*command, *problem.split(), "--json", json_file, **options)
    return json.loads(json_file.read_text())


library = boost_library()
arguments = ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", f"-DCMAKE_CXX_COMPILER={compiler}",
             "-DCMAKE_EXE_LINKER_FLAGS=-static", "-DFA_NATIVE=OFF", "-DFA_STATIC=ON", "-DFA_TESTS=OFF",
             "-DBoost_NO_BOOST_CMAKE=ON", f"-DBOOST_LIBRARYDIR={library.parent}"]
for name in ("CXX", "CXXFLAGS", "LDFLAGS"):
    os.environ.pop(name, None)
theirs = {"fast": build(folder / "fast", "attention", "emulator", *arguments) / "attention",
          "checked": build(folder / "checked", "attention", "emulator-checked", *arguments) / "attention"}

compared = 0
with tempfile.TemporaryDirectory() as work:
    # The emulator asks addr2line about /proc/PID/exe. That is QEMU here, so this stand-in names the program instead.
    stand_in = Path(work, "addr2line")
    stand_in.write_text(f'#!/bin/sh\nshift 4\nexec {addr2line} -a -i -e "$ARM64_PROGRAM" "$@"\n')
    stand_in.chmod(0o755)
    for which, program in theirs.items():
        environment = {**os.environ, "PATH": f"{work}:{os.environ['PATH']}", "ARM64_PROGRAM": str(program)}
        for problem in PROBLEMS:
            here = results([ours[which]], problem, Path(work, "here.json"))
            there = results([qemu, program], problem, Path(work, "there.json"), env=environment)
            if here["machine"].get("checked") != (which == "checked") or here["protocol"] != there["protocol"]:
                fail(f"{which}: the programs are not of the same build, or not asked the same")
            kernels = [[record["kernel"] for record in each["records"]] for each in (here, there)]
            if kernels[0] != kernels[1] or not kernels[0]:
                fail(f"{which} {problem}: {kernels[0]} here, {kernels[1]} on arm64")
            for a, b in zip(here["records"], there["records"]):
                if a["status"] != "passed":
                    fail(f"{which} {problem}: {a['kernel']} is {a['status']}")
                for field in sorted(a.keys() | b.keys()):
                    if a.get(field) != b.get(field):
                        fail(f"{which} {problem}: {a['kernel']} has {field} {a.get(field)} here, {b.get(field)} on arm64")
                if which == "checked" and not a["statements"]:
                    fail(f"{a['kernel']}: the checked build counted nothing")
                compared += 1
print(f"{len(kernels[0])} kernels, both builds, {compared} runs: the same errors, counters and counts by statement on arm64")
