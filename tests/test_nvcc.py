"""Compiles one kernel with CUDA's compiler, without a GPU, and prints registers and spills.

Usage: test_nvcc.py KERNEL ARCHITECTURES FLAG...

A wgmma that ptxas cannot leave asynchronous fails the test. A kernel function that spills fails it, unless its source accounts for it with a comment line
`// spills: NAME BYTES reason`, NAME a part of the function's (mangled) name and BYTES the most it may spill.
"""

import re
import sys
import tempfile

from tool_test import COMPILING, ROOT, fail, run, skip

from fa_tools import sass

kernel, architectures, flags = sys.argv[1], sys.argv[2].split(","), sys.argv[3:]

try:
    nvcc, _ = sass.find_nvcc()
except sass.Missing as problem:
    skip(str(problem))

source = ROOT / f"kernels/{kernel}.cu"
text = source.read_text()
least, exactly = sass.needs_of(kernel)  # a kernel for Hopper alone is compiled for nothing else
numbers = {a: int(a.rstrip("a")) for a in architectures}
architectures = [a for a in architectures if (numbers[a] == least if exactly else numbers[a] >= least)] or \
    skip(f"{kernel} runs on none of sm_{', sm_'.join(architectures)}")

functions = []
with tempfile.TemporaryDirectory() as folder:
    for architecture in architectures:
        # Not -arch=sm_90a: nvcc 13 then also makes PTX for compute_90, which has no wgmma.
        target = f"arch=compute_{architecture},code=sm_{architecture}"
        log = run(nvcc, "-std=c++20", "-O3", *flags, "-gencode", target, "-Xptxas", "-v", "-DFA_WITH_CUDA",
                  f"-I{ROOT}", "-c", source, "-o", f"{folder}/{kernel}.o", timeout=COMPILING)
        # C75..: "wgmma.mma_async instructions are serialized", and what leads to it.
        if serialized := re.search(r"\(C75\d\d\)[^\n]*", log):
            fail(f"sm_{architecture}: {serialized[0]}")
        for function, said in sass.parse_resources(log).items():
            spilled = said["spill_store_bytes"] + said["spill_load_bytes"]
            functions.append((function, architecture, spilled))
            print(f"sm_{architecture} {function}: {said['registers']} registers, {spilled} bytes spilled")
if not functions:
    fail(f"ptxas reports no kernel function:\n{log}")

accounted = {name: int(size) for name, size in re.findall(r"^// spills: (\S+) (\d+) \S", text, re.MULTILINE)}
for function, architecture, spilled in functions:
    allowed = max([size for name, size in accounted.items() if name in function], default=0)
    if spilled > allowed:
        fail(f"{function} spills {spilled} bytes on sm_{architecture}; its source accounts for {allowed}")
