"""Builds what belongs to the CUDA back end and is not a kernel, as CMake builds it, without a GPU: harness, programs,
benchmarks, peers, tests and probes; and one kernel's program. The kernels themselves: test_nvcc.py.

Usage: test_cuda_build.py FOLDER      to build in; quick when nothing has changed
"""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

from tool_test import COMPILING, JOBS, ROOT, fail, need, run, skip

from fa_tools import sass

KERNEL = "12_tma"  # with tensor maps, which the harness makes
OF_ALL_KERNELS = {"attention", "attention_bench", "fa_tests"}  # link every kernel, so they are only looked through

folder = Path(sys.argv[1]).resolve()
ninja = need("ninja")
try:
    nvcc, version = sass.find_nvcc()
except sass.Missing as problem:
    skip(str(problem))
# Of one architecture, and without optimisation on the host, which takes less time.
arguments = ["-DCMAKE_CUDA_ARCHITECTURES=90a-real", f"-DCMAKE_CUDA_COMPILER={nvcc}", "-DCMAKE_CUDA_FLAGS_RELEASE=-O0",
             "-DCMAKE_CXX_FLAGS_RELEASE=-O0"]
if ccache := shutil.which("ccache"):
    arguments += [f"-DCMAKE_{language}_COMPILER_LAUNCHER={ccache}" for language in ("CXX", "CUDA")]
run("cmake", "-S", ROOT, "--preset", "cuda", "-B", folder, *arguments, timeout=COMPILING)

text = run(ninja, "-C", folder, "-t", "targets", "all")
programs = set(re.findall(r"^bin/(\S+): (?!phony)", text, re.MULTILINE))
kernels = {path.stem for path in (ROOT / "kernels").glob("[0-9][0-9]_*.cu")}
if missing := ({KERNEL} | OF_ALL_KERNELS) - programs:
    fail(f"CMake makes no {', '.join(sorted(missing))}, of which this test knows")
wanted = sorted(f"bin/{name}" for name in programs - kernels - OF_ALL_KERNELS | {KERNEL})
run(ninja, "-C", folder, "-j", JOBS, *wanted, timeout=COMPILING)

files = [each for each in json.loads((folder / "compile_commands.json").read_text())
         if any(f"/{name}.dir/" in each["command"] for name in (*OF_ALL_KERNELS, "fa_api"))]
for each in files:
    command = [word for word in shlex.split(each["command"]) if word != ccache]
    run(*command, "-fsyntax-only", cwd=each["directory"], timeout=COMPILING)
if len(files) < len(OF_ALL_KERNELS):  # attention has no files of its own, fa_api has one
    fail(f"only {len(files)} files of fa_api, {', '.join(sorted(OF_ALL_KERNELS))} are known")
print(f"{len(wanted)} programs of the CUDA back end, {KERNEL} among them, and {len(files)} files (nvcc {version})")
