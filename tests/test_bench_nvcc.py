"""Compiles the CUDA programs of bench by CUDA's compiler, without a GPU, and looks at what it made of them.

Usage: test_bench_nvcc.py compile gemm|rates FOLDER FLAG...   cubins into FOLDER; nothing spills, every wgmma stays asynchronous
       test_bench_nvcc.py sass gemm FOLDER     a slice of the sum is as many matrix instructions in the machine code as
                                               docs/appendix/gemm.md says
       test_bench_nvcc.py sass rates FOLDER    bench/rates.cu times the instruction that it names, as often as it says, and
                                               little besides

`sass` needs nvdisasm.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tool_test import COMPILING, ROOT, check_asynchronous, expect, fail, find_nvcc, run, skip

from fa_tools.for_readers import sass

# Source: its matrix instruction, how many of it a warp (warpgroup) has for a slice of 64 columns, of the smallest tile if
# there are several; functions.
PRODUCTS = {"mma_sync": ("HMMA.16816.F32", 128, 4), "mma_sync_tma": ("HMMA.16816.F32", 96, 4), "wgmma_tma": ("HGMMA.64x256x16.F32", 4, 8)}
# Most instructions of the main loop for each matrix instruction.
MOST = {"mma_sync": 3, "mma_sync_tma": 2, "wgmma_tma": 25}

# The struct in rates.cu, as its mangled name begins: its machine instruction.
WANTED = {"Fma": "FFMA", "Max": "FMNMX", "Exp2": "MUFU.EX2", "Pack": "F2FP.BF16", "Shuffle": "SHFL.BFLY",
          "LoadSharedILi{n}ELi1E": "LDS", "LoadSharedILi{n}ELi4E": "LDS.128", "LoadGlobalILi{n}ELb0E": "LDG.E.128",
          "LoadGlobalILi{n}ELb1E": "LDG.E.128", "Ldmatrix": "LDSM.16.M88.4", "MmaILi{n}ELi16E": "HMMA.16816.F32.BF16",
          "MmaILi{n}ELi8E": "HMMA.1688.F32.BF16", "WgmmaILi{n}ELi64ELb0E": "HGMMA.64x64x16.F32.BF16",
          "WgmmaILi{n}ELi64ELb1E": "HGMMA.64x64x16.F32.BF16", "WgmmaILi{n}ELi128ELb0E": "HGMMA.64x128x16.F32.BF16",
          "WgmmaILi{n}ELi128ELb1E": "HGMMA.64x128x16.F32.BF16"}
CHAINS = (1, 8, 16)
TIMED, TIMED_PRODUCTS = 256, 32  # kUnrolled and kUnrolledProducts
# Instructions beside each: sums of what loads bring; NOPs between products; a wgmma's waits.
BESIDE = {"Load": 2, "Ldmatrix": 2, "Mma": 1, "Wgmma": 2}


def check_spills(name, log, count):
    check_asynchronous(log, name)
    spills = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    expect(len(spills) == count, f"{name}: {len(spills)} kernel functions instead of {count}:\n{log}")
    expect(all(number == "0" for each in spills for number in each), f"{name} spills: {spills}")
    print(f"{name}: {count} functions, nothing spilled (nvcc {version})")


def functions_of(cubin, part):
    listing = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True, check=True, timeout=COMPILING).stdout
    return [f for f in sass.parse_sass(listing).values() if part in f.name]


def check_sass(name, cubin, opcode, wanted, count):
    functions = functions_of(cubin, "gemm_kernel")
    expect(len(functions) == count, f"{name}: {len(functions)} kernel functions in the machine code instead of {count}")
    for function in functions:
        # The smallest loop with products is the main one.
        bodies = [[function.instructions[i] for i in sorted(loop)] for loop in sass.find_loops(function)]
        body = next((b for b in bodies if any(i.opcode.startswith(opcode) for i in b)), [])
        found = sum(i.opcode.startswith(opcode) for i in body)
        expect(found == wanted, f"{function.name}: {found} {opcode} in the main loop instead of {wanted}")
        expect(len(body) <= MOST[name] * found, f"{function.name}: {len(body)} instructions for {found} {opcode}")
        said = f"An iteration is {len(body)} instructions for {found} `mma`"
        if name == "mma_sync" and version.startswith("13.0.") and said not in (ROOT / "docs/appendix/gemm.md").read_text(encoding="utf-8"):
            fail(f"docs/appendix/gemm.md should say: {said}")
        print(f"{name}: {found} {opcode} of {len(body)} instructions in the main loop (nvcc {version})")


def check_rates(cubin):
    functions = functions_of(cubin, "rates3run")
    if len(functions) != len(WANTED) * len(CHAINS):
        fail(f"{len(functions)} functions instead of {len(WANTED) * len(CHAINS)}")
    for struct, wanted in WANTED.items():
        for chains in CHAINS:
            part = (struct if "{n}" in struct else struct + "ILi{n}E").format(n=chains)
            found = [f for f in functions if part in f.name]
            expect(len(found) == 1, f"{len(found)} functions are run<{part}>")
            clocks = [i for i, x in enumerate(found[0].instructions) if x.base == "CS2R" and "CLOCK" in x.operands]
            expect(len(clocks) == 2, f"{struct}: the clock is read {len(clocks)} times instead of twice")
            timed = found[0].instructions[clocks[0] : clocks[1]]
            opcodes = Counter(x.opcode for x in timed)
            count = sum(number for opcode, number in opcodes.items() if f"{opcode}.".startswith(f"{wanted}."))
            expected = TIMED_PRODUCTS if wanted.startswith("HGMMA") else TIMED
            if count != expected:
                fail(f"{struct}, {chains} chains: {count} {wanted} instead of {expected} between the clock's readings: "
                     f"{dict(opcodes)}")
            beside = next((number for name, number in BESIDE.items() if struct.startswith(name)), 0)
            if len(timed) - count > beside * count + 32:
                fail(f"{struct}, {chains} chains: {len(timed)} instructions for {count} {wanted}: {dict(opcodes)}")
            print(f"{struct.split('ILi')[0]}, {chains} chains: {count} {wanted} of {len(timed)} instructions (nvcc {version})")


def compile_by_nvcc(source, cubin, *options):
    """What ptxas says."""
    return run(nvcc, "-std=c++20", *flags, "-gencode", "arch=compute_90a,code=sm_90a", "-Xptxas", "-v", "-DFA_WITH_CUDA",
               f"-I{ROOT}", *options, ROOT / "bench" / source, "-o", cubin, timeout=COMPILING)


what, of, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
flags = sys.argv[4:]
nvcc, version = find_nvcc()
try:
    nvdisasm = sass.find_nvdisasm(nvcc) if what == "sass" else None
except sass.Missing as problem:
    skip(str(problem))
sources = {name: (f"gemm/{name}.cu", count) for name, (_, _, count) in PRODUCTS.items()}
if of == "rates":
    sources = {"rates": ("rates.cu", len(WANTED) * len(CHAINS) + 1)}  # and what lays out the addresses
if what == "compile":
    folder.mkdir(parents=True, exist_ok=True)
    for name, (source, count) in sources.items():
        check_spills(name, compile_by_nvcc(source, folder / f"{name}.cubin", "-cubin"), count)
elif of == "rates":
    check_rates(folder / "rates.cubin")
else:
    for name, (opcode, wanted, count) in PRODUCTS.items():
        check_sass(name, folder / f"{name}.cubin", opcode, wanted, count)
