"""Another compiler and another machine give what this one gives: every kernel's errors, counters and counts by statement.

Usage: test_machines.py clang FOLDER CHECKED_PROGRAM          builds the checked preset with clang++ in FOLDER
       test_machines.py arm64 FOLDER FAST_PROGRAM CHECKED_PROGRAM

The programs are this machine's. For arm64 two are cross-compiled in FOLDER and run under QEMU. Boost.Context is the one
library that is not headers alone: its arm64 package is downloaded and unpacked in FOLDER, so that this machine's packages
stay those of one architecture.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tool_test import COMPILING, build, fail, need, run, skip

PROBLEMS = ("--dtype bf16 --head-dim 128 --seq-len 256 --heads 1", "--dtype fp16 --head-dim 64 --seq-len 128 --heads 1",
            "--dtype bf16 --head-dim 64 --seq-len 128 --heads 1 --inputs large")

machine, folder, ours = sys.argv[1], Path(sys.argv[2]).resolve(), sys.argv[3:]
for name in ("CXX", "CXXFLAGS", "LDFLAGS"):
    os.environ.pop(name, None)


def compare(here, there, checked, **options):
    """The records of two commands on each problem are the same in every field; the norms of errors have all elements of O in
    them, in all digits. `options` are for the second one. Returns how many records there are."""
    compared = 0
    with tempfile.TemporaryDirectory() as work:
        for problem in PROBLEMS:
            results = []
            for command, more in ((here, {}), (there, options)):
                file = Path(work, f"{len(results)}.json")
                run(*command, *problem.split(), "--json", file, timeout=COMPILING, **more)
                results.append(json.loads(file.read_text()))
            if results[0]["machine"].get("checked") != checked or results[0]["protocol"] != results[1]["protocol"]:
                fail(f"{problem}: the programs are not of the same build, or not asked the same")
            if machine == "clang" and results[0]["machine"]["compiler"] == results[1]["machine"]["compiler"]:
                fail(f"both programs come from {results[0]['machine']['compiler']}")
            kernels = [[record["kernel"] for record in each["records"]] for each in results]
            if kernels[0] != kernels[1] or not kernels[0]:
                fail(f"{problem}: {kernels[0]} here, {kernels[1]} by {machine}")
            for a, b in zip(*(each["records"] for each in results)):
                if a["status"] != "passed":
                    fail(f"{problem}: {a['kernel']} is {a['status']}")
                for field in sorted(a.keys() | b.keys()):
                    if a.get(field) != b.get(field):
                        fail(f"{problem}: {a['kernel']} has {field} {a.get(field)} here, {b.get(field)} by {machine}")
                if checked and not a["statements"]:
                    fail(f"{a['kernel']}: the checked build counted nothing")
                compared += 1
    return compared


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


def by_clang():
    compiler = shutil.which("clang++-16") or need("clang++")  # Debian 12 has several, and clang++ is one that is too old
    if (version := int(run(compiler, "-dumpversion").split(".")[0])) < 16:
        skip(f"clang++ here is {version}, and the emulator needs 16")
    program = build(folder, "attention", "emulator-checked", f"-DCMAKE_CXX_COMPILER={compiler}", "-DFA_TESTS=OFF") / "attention"
    return compare(ours, [program], True)


def by_arm64():
    if platform.machine() == "aarch64":
        skip("this is an arm64 machine")
    compiler, qemu, addr2line = map(need, ("aarch64-linux-gnu-g++", "qemu-aarch64", "aarch64-linux-gnu-addr2line"))
    for tool in ("apt-get", "dpkg", "dpkg-query"):
        need(tool)
    library, compared = boost_library(), 0
    arguments = ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", f"-DCMAKE_CXX_COMPILER={compiler}",
                 "-DCMAKE_EXE_LINKER_FLAGS=-static", "-DFA_NATIVE=OFF", "-DFA_STATIC=ON", "-DFA_TESTS=OFF",
                 "-DBoost_NO_BOOST_CMAKE=ON", f"-DBOOST_LIBRARYDIR={library.parent}"]
    for preset, own in zip(("emulator", "emulator-checked"), ours):
        program = build(folder / preset, "attention", preset, *arguments) / "attention"
        # The emulator asks addr2line about /proc/PID/exe. That is QEMU here, so this stand-in names the program instead.
        stand_in = folder / preset / "stand_in" / "addr2line"
        stand_in.parent.mkdir(exist_ok=True)
        stand_in.write_text(f'#!/bin/sh\nshift 4\nexec {addr2line} -a -i -e "{program}" "$@"\n')
        stand_in.chmod(0o755)
        path = f"{stand_in.parent}:{os.environ['PATH']}"
        compared += compare([own], [qemu, program], preset == "emulator-checked", env={**os.environ, "PATH": path})
    return compared


print(f"{by_clang() if machine == 'clang' else by_arm64()} records are the same by {machine}: errors, counters and counts by statement")
