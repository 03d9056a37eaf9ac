"""Compiles the matrix products of bench/gemm by CUDA's compiler, without a GPU.

spills: nothing spills, every wgmma stays asynchronous. sass: a slice of the sum is as many matrix instructions in the machine
code as docs/appendix/gemm.md says; this needs nvdisasm.

Usage: test_gemm_nvcc.py spills|sass FLAG...
"""

import re
import subprocess
import sys
import tempfile

from tool_test import COMPILING, ROOT, fail, run, skip

from fa_tools import sass

# Source: its matrix instruction, how many of it a warp (warpgroup) has for a slice of 64 columns; functions.
PRODUCTS = {"mma_sync": ("HMMA.16816.F32", 128, 4), "wgmma_tma": ("HGMMA.64x256x16.F32", 4, 8)}
# Most instructions of the main loop for each matrix instruction.
MOST = {"mma_sync": 3, "wgmma_tma": 25}



def check_spills(name, log, count):
    # C75..: "wgmma.mma_async instructions are serialized", and what leads to it.
    if serialized := re.search(r"\(C75\d\d\)[^\n]*", log):
        fail(f"{name}: {serialized[0]}")
    spills = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    if len(spills) != count:
        fail(f"{name}: {len(spills)} kernel functions instead of {count}:\n{log}")
    if any(number != "0" for each in spills for number in each):
        fail(f"{name} spills: {spills}")
    print(f"{name}: {count} functions, nothing spilled (nvcc {version})")


def check_sass(name, cubin, opcode, wanted, count):
    listing = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True, check=True,
                             timeout=60).stdout
    functions = [f for f in sass.parse_sass(listing).values() if "gemm_kernel" in f.name]
    if len(functions) != count:
        fail(f"{name}: {len(functions)} kernel functions in the machine code instead of {count}")
    for function in functions:
        # The smallest loop with products is the main one.
        bodies = [[function.instructions[i] for i in sorted(loop)] for loop in sass.find_loops(function)]
        body = next((b for b in bodies if any(i.opcode.startswith(opcode) for i in b)), [])
        found = sum(i.opcode.startswith(opcode) for i in body)
        if found != wanted:
            fail(f"{function.name}: {found} {opcode} in the main loop instead of {wanted}")
        if len(body) > MOST[name] * found:
            fail(f"{function.name}: {len(body)} instructions for {found} {opcode}")
        print(f"{name}: {found} {opcode} of {len(body)} instructions in the main loop (nvcc {version})")


what, flags = sys.argv[1], sys.argv[2:]
try:
    nvcc, version = sass.find_nvcc()
    nvdisasm = sass.find_nvdisasm(nvcc) if what == "sass" else None
except sass.Missing as problem:
    skip(str(problem))
with tempfile.TemporaryDirectory() as folder:
    for name, (opcode, wanted, count) in PRODUCTS.items():
        cubin = f"{folder}/{name}.cubin"
        log = run(nvcc, "-std=c++20", "-O3", *flags, "-gencode", "arch=compute_90a,code=sm_90a", "-Xptxas", "-v",
                  "-DFA_WITH_CUDA", f"-I{ROOT}", "-cubin", ROOT / f"bench/gemm/{name}.cu", "-o", cubin,
                  timeout=COMPILING)
        if what == "sass":
            check_sass(name, cubin, opcode, wanted, count)
        else:
            check_spills(name, log, count)
