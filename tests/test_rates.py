"""Compiles bench/rates/rates.cu, without a GPU, and looks at the machine code: what the program times is the instruction
that it names, as often as it says, and little besides.

Usage: test_rates.py INCLUDE_FOLDERS      separated by semicolons, of the libraries that it uses
"""

import subprocess
import sys
import tempfile
from collections import Counter

from tool_test import COMPILING, ROOT, fail, skip

from fa_tools import sass

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

try:
    nvcc, version = sass.find_nvcc()
    nvdisasm = sass.find_nvdisasm(nvcc)
except sass.Missing as problem:
    skip(str(problem))
with tempfile.TemporaryDirectory() as folder:
    includes = [f"-I{path}" for path in sys.argv[1].split(";") if path]
    for command in ([nvcc, "-std=c++20", "-O3", *sass.build_flags(), "-arch=sm_90a", "-DFA_WITH_CUDA", f"-I{ROOT}",
                     *includes, "-cubin", ROOT / "bench/rates/rates.cu", "-o", f"{folder}/rates.cubin"],
                    [nvdisasm, "-c", f"{folder}/rates.cubin"]):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False,
                              timeout=COMPILING)
        if done.returncode:
            fail((done.stderr + done.stdout).strip())
functions = [f for f in sass.parse_sass(done.stdout).values() if "rates3run" in f.name]
if len(functions) != len(WANTED) * len(CHAINS):
    fail(f"{len(functions)} functions instead of {len(WANTED) * len(CHAINS)}")
for struct, wanted in WANTED.items():
    for chains in CHAINS:
        part = (struct if "{n}" in struct else struct + "ILi{n}E").format(n=chains)
        found = [f for f in functions if part in f.name]
        if len(found) != 1:
            fail(f"{len(found)} functions are run<{part}>")
        clocks = [i for i, x in enumerate(found[0].instructions) if x.base == "CS2R" and "CLOCK" in x.operands]
        if len(clocks) != 2:
            fail(f"{struct}: the clock is read {len(clocks)} times instead of twice")
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
