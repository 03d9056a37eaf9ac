"""What scripts/fa single writes, compiled.

Usage: test_single.py nvcc KERNEL          by the command in the file's head, without a GPU; no warning, no spilled register
       test_single.py run PROGRAM          made for the emulator: right for two shapes
       test_single.py refuse PROGRAM WRONG bad arguments, and the exit code of a program whose kernel is wrong
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tool_test import COMPILING, ROOT, fail, run, skip

from fa_tools.product import sass


def compile_by_nvcc(kernel):
    try:
        nvcc, version = sass.find_nvcc()
    except sass.Missing as problem:
        skip(str(problem))
    text = run(sys.executable, "-B", ROOT / "scripts/fa", "single", kernel)
    command = re.search(r"^//   nvcc (.*) (attention\d\d\.cu) -o (\S+) && \./\3$", text, re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / command[2]).write_text(text)
        log = run(nvcc, *command[1].split(), "-Xcompiler=-Wall", "-Werror=all-warnings", "-Xptxas=-v", command[2], "-o", command[3],
                  cwd=folder, timeout=COMPILING)
    if serialised := re.search(r"\(C75\d\d\)[^\n]*", log):
        fail(serialised[0])
    functions = sass.parse_resources(log)
    if not functions:
        fail(f"ptxas reports no kernel function:\n{log}")
    for function, said in functions.items():
        if said["spill_store_bytes"] + said["spill_load_bytes"]:
            fail(f"{function} spills: {said}")
    print(f"{kernel}: {len(text.splitlines())} lines, {len(functions)} kernel functions (nvcc {version})")


def ends(program, arguments, code, said):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != code or not re.search(said, done.stdout + done.stderr):
        fail(f"{Path(program).name} {' '.join(arguments)} ended with {done.returncode} instead of {code}:\n{done.stdout}{done.stderr}")
    return done


what, *arguments = sys.argv[1:]
if what == "nvcc":
    compile_by_nvcc(*arguments)
elif what == "run":
    for shape in ([], ["384", "1", "2"]):
        done = ends(arguments[0], shape, 0, r"relative error \S+ \(at most \S+\): passed\n")
        if not re.search(r"^\w+_kernel<__nv_bfloat16, 128.*>, by kind of instruction\nkind ", done.stdout, re.MULTILINE):
            fail(f"the counts of the kernel are missing:\n{done.stdout}")
        print(done.stdout)
else:
    program, wrong = arguments
    for bad in (["100"], ["0"], ["-128"], ["x"], [""], ["128", "0"], ["128", "65536"], ["128", "2", "32768"], ["128"] * 4):
        if ends(program, bad, 2, r"\Aerror: [^\n]*\n\Z").stdout:
            fail("bad arguments, and something on standard output")
    ends(wrong, [], 1, r"relative error \S+ \(at most \S+\): WRONG\n")
