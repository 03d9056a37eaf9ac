"""Builds what belongs to the CUDA back end, as CMake builds it, without a GPU: harness, peers and one kernel's program, with
--whole tests and probes, too. What other tests compile by nvcc is not compiled again: kernels (test_nvcc.py), matrix products
and rates (test_bench_nvcc.py), examples (test_examples.py). C++ files of other programs are only looked through, and without
--whole five of them.

Usage: test_cuda_build.py FOLDER [--whole]      to build in; quick when nothing has changed
"""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

from tool_test import COMPILING, JOBS, ROOT, fail, find_nvcc, need, run

KERNEL = "12_tma"  # with tensor maps, which the harness makes
ALWAYS, LOOKED_THROUGH = (KERNEL, "peers"), {"fa.cpp", "attention_bench.cpp", "test_kernels.cpp", "test_problems.cpp", "test_gradients.cpp"}
ELSEWHERE = re.compile(rf"kernels/CMakeFiles/(?!{KERNEL}_kernel)|bench/(gemm/)?CMakeFiles/\S+\.cu\.o$|examples/")

folder = Path(sys.argv[1]).resolve()
ninja = need("ninja")
nvcc, version = find_nvcc()
# For one architecture, and without optimisation on the host, which takes less time.
arguments = ["-DCMAKE_CUDA_ARCHITECTURES=90a-real", f"-DCMAKE_CUDA_COMPILER={nvcc}", "-DCMAKE_CUDA_FLAGS_RELEASE=-O0",
             "-DCMAKE_CXX_FLAGS_RELEASE=-O0"]
if ccache := shutil.which("ccache"):
    arguments += [f"-DCMAKE_{language}_COMPILER_LAUNCHER={ccache}" for language in ("CXX", "CUDA")]
run("cmake", "-S", ROOT, "--preset", "cuda", "-B", folder, *arguments, timeout=COMPILING)
# Who names architectures wants the GPU's back end, also where no GPU is, as in an image for other machines.
run("cmake", "-S", ROOT, "-G", "Ninja", "-B", folder / "auto", "-DFA_BACKEND=auto", "-DFA_TESTS=OFF", *arguments[:2], timeout=COMPILING)
if "CUDA_COMPILER__fa" not in (folder / "auto" / "build.ninja").read_text():
    fail("FA_BACKEND=auto with CMAKE_CUDA_ARCHITECTURES is not the back end of CUDA")

linked = re.findall(r"^build (bin/\S+): \w+_EXECUTABLE_LINKER\S* ([^|\n]*)", (folder / "build.ninja").read_text(), re.MULTILINE)
wanted = sorted(program for program, objects in linked if not any(ELSEWHERE.match(each) for each in objects.split()))
if missing := {f"bin/{name}" for name in (*ALWAYS, "fa_ptx_tests", "wgmma_probe")} - set(wanted):
    fail(f"CMake makes no {', '.join(sorted(missing))}, of which this test knows")
if "--whole" not in sys.argv:
    wanted = [f"bin/{name}" for name in ALWAYS]
run(ninja, "-C", folder, "-j", JOBS, *wanted, timeout=COMPILING)

built = set(run(ninja, "-C", folder, "-t", "inputs", *wanted).splitlines())
files = [each for each in json.loads((folder / "compile_commands.json").read_text())
         if each["file"].endswith(".cpp") and re.search(r" -o (\S+)", each["command"])[1] not in built]
if missing := LOOKED_THROUGH - {Path(each["file"]).name for each in files}:
    fail(f"CMake compiles no {', '.join(sorted(missing))}, of which this test knows")
if "--whole" not in sys.argv:
    files = [each for each in files if Path(each["file"]).name in LOOKED_THROUGH]
for each in files:
    command = [word for word in shlex.split(each["command"]) if word != ccache]
    run(*command, "-fsyntax-only", cwd=each["directory"], timeout=COMPILING)
print(f"{len(wanted)} programs of the CUDA back end, {KERNEL} among them, and {len(files)} files (nvcc {version})")
