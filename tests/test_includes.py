"""Every source file includes what it uses: clang-tidy's misc-include-cleaner finds no name whose header is missing.

Otherwise a compiler whose standard library includes less of itself refuses what ours takes. Headers are looked at on
their own. What only nvcc compiles, and nvcc's half of a file, is not seen. For that reason the check does not ask
for includes that look unused either. A header hands on the names of what it includes with IWYU pragma: export.

Usage: test_includes.py BUILD
"""

import json
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tool_test import COMPILING, JOBS, ROOT, expect, skip

from fa_tools.sources import includes

# Versions differ in what they find, so one decides: that of tests/requirements.txt.
TIDY = ROOT / ".venv-tests/bin/clang-tidy"
ONLY_NVCC = {"bench/peers/copy.cu", "bench/peers/cudnn_attention.cpp", "bench/peers/cublaslt.cpp", "bench/rates.cu",
             "common/harness/device_cuda.cu", "common/launch/tensor_map_cuda.cu", "common/ptx/wgmma_instructions.h",
             "common/ptx/wgmma_96.h", "common/ptx/wgmma_fp8_instructions.h"}
NOT_BUILT = {"tests/behind_library.cu", "tests/examples/serialised.cu", "common/emulator/tests/test_cuda.cu"}  # all but serialised.cu are translated first
# These libraries have one header for their users, and the names are in others. C's own headers: <cstdio> will do.
LIBRARIES = "CLI/.*;benchmark/.*;bits/.*;boost/.*;gtest/.*;nlohmann/.*;math.h;stdint.h;stdio.h;stdlib.h;string.h;sys/ucontext.h"
CONFIG = json.dumps({"Checks": "-*,misc-include-cleaner", "CheckOptions": {
    "misc-include-cleaner.MissingIncludes": True, "misc-include-cleaner.UnusedIncludes": False,
    "misc-include-cleaner.IgnoreHeaders": LIBRARIES}})

build = Path(sys.argv[1]).resolve()
if not TIDY.exists():
    skip("clang-tidy is not in .venv-tests (scripts/test.sh --all installs it)")

def of_interest(command):
    """Of a compile command, what says where headers are and which code is compiled."""
    words, kept = iter(shlex.split(command)), []
    for word in words:
        if word in ("-I", "-isystem", "-D"):
            kept += [word, next(words)]
        elif re.match(r"-(I|D|isystem|std=|march=)", word):
            kept.append(word)
    return kept

commands = {}
for entry in json.loads((build / "compile_commands.json").read_text()):
    path = Path(entry["file"])
    # A unity file of CMake's holds nothing but the files that are compiled as one.
    together = includes(path) if "/Unity/" in str(path) else [path]
    for path in map(Path, together):
        if path.is_relative_to(ROOT) and not path.is_relative_to(build):
            commands.setdefault(str(path.relative_to(ROOT)), of_interest(entry["command"]))
for_headers = commands["tests/test_broken.cpp"]  # it has the definitions that headers need
for folder in ("kernels", "common", "tests", "bench"):
    for path in (ROOT / folder).rglob("*.*"):
        name = str(path.relative_to(ROOT))
        if path.suffix not in (".h", ".cpp", ".cu") or name in commands or name in ONLY_NVCC | NOT_BUILT:
            continue
        expect(path.suffix == ".h", f"{name} is in no compile command of {build}, and this test does not say why")
        commands[name] = for_headers

def look_at(name):
    done = subprocess.run([TIDY, "--quiet", f"--config={CONFIG}", name, "--", "-x", "c++", *commands[name]], cwd=ROOT,
                          text=True, capture_output=True, timeout=COMPILING)
    found = re.findall(r"^(\S+:\d+):\d+: (?:warning|error): (.*?)(?: \[.*)?$", done.stdout, re.MULTILINE)
    lines = [f"{at.removeprefix(f'{ROOT}/')}: {what}" for at, what in found]
    return lines or ([f"{name}: {done.stderr.strip()}"] if done.returncode else [])

with ThreadPoolExecutor(int(JOBS)) as pool:
    missing = [line for lines in pool.map(look_at, sorted(commands)) for line in lines]
expect(not missing, "\n".join(missing))
print(f"{len(commands)} files include what they use")
