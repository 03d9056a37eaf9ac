"""What scripts/fa single writes, compiled.

Usage: test_single.py nvcc KERNEL          by the command in the file's head, without a GPU; no warning, no spilled register
       test_single.py run PROGRAM KERNEL   made for the emulator: right for two shapes, and by inline PTX as many instructions,
                                           wavefronts and sectors as the kernel has by the functions of common/ptx
       test_single.py refuse PROGRAM WRONG bad arguments, and the exit code of a program whose kernel is wrong
"""

import collections
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tool_test import COMPILING, ROOT, fail, run, skip

from fa_tools import records
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


def column(output, name):
    """The sums of this column of the tables, by kind of instruction."""
    sums = collections.Counter()
    for head, lines in re.findall(r"^(kind .*)\n((?:\w.*\d.*\n)+)", output, re.MULTILINE):
        end = head.index(name) + len(name)
        for line in lines.splitlines():
            if len(line) >= end and line[end - 1].isdigit():
                sums[line[:17].strip()] += int(line[17:end].split()[-1].replace(",", ""))
    return sums


def compare_counts(output, kernel):
    """With those of the kernel's own program, which are recorded."""
    requests = column(output, "requests")
    found = {"shared_wavefronts": column(output, "wavefronts").total(), "global_sectors": column(output, "sectors").total(),
             "ldmatrix": requests["ldmatrix"], "stmatrix": requests["stmatrix"],
             "matrix_products": requests["mma.m16n8k16"] + requests["mma.m16n8k8"] + requests["wgmma"] + 2 * requests["wmma.m16n16k16"]}
    record = next(each for each in records.load(f"{records.RESULTS}/emulator_counts.jsonl#d128_n256")["records"] if each["kernel"] == kernel)
    if wrong := {name: (count, record["counters"][name]) for name, count in found.items() if count != record["counters"][name]}:
        fail(f"as one file, and as a kernel of the book: {wrong}")


what, *arguments = sys.argv[1:]
if what == "nvcc":
    compile_by_nvcc(*arguments)
elif what == "run":
    for shape in ([], ["384", "1", "2"]):
        done = ends(arguments[0], shape, 0, r"relative error \S+ \(at most \S+\): passed\n")
        if not re.search(r"^\w+_kernel<__nv_bfloat16, 128.*>, by kind of instruction\nkind ", done.stdout, re.MULTILINE):
            fail(f"the counts of the kernel are missing:\n{done.stdout}")
        print(done.stdout)
    compare_counts(ends(arguments[0], ["256", "2", "1"], 0, "passed").stdout, arguments[1])
else:
    program, wrong = arguments
    for bad in (["100"], ["0"], ["-128"], ["x"], [""], ["128", "0"], ["128", "65536"], ["128", "2", "32768"], ["128"] * 4):
        if ends(program, bad, 2, r"\Aerror: [^\n]*\n\Z").stdout:
            fail("bad arguments, and something on standard output")
    ends(wrong, [], 1, r"relative error \S+ \(at most \S+\): WRONG\n")
