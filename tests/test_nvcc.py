"""Compiles one kernel with CUDA's compiler, without a GPU, and records registers and spills.

Usage: test_nvcc.py KERNEL REPORT ARCHITECTURES FLAG...

A wgmma that ptxas cannot leave asynchronous fails the test. A kernel function that spills fails it, unless its source accounts for it with a comment line
`// spills: NAME BYTES reason`, NAME a part of the function's (mangled) name and BYTES the most it may spill.
All results of a build tree are in its nvcc_report.json.
"""

import fcntl
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from tool_test import COMPILING, ROOT, fail, run, skip

kernel, report = sys.argv[1], Path(sys.argv[2])
architectures, flags = sys.argv[3].split(","), sys.argv[4:]

nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc")
if not nvcc:
    bundled = [path for path in (ROOT / ".toolkit/bin/nvcc", Path("/usr/local/cuda/bin/nvcc")) if path.exists()]
    nvcc = bundled[0] if bundled else skip("nvcc is not installed")
release = re.search(r"release (\d+)\.(\d+)", run(nvcc, "--version"))
if tuple(map(int, release.groups())) < (12, 8):
    skip(f"nvcc {release[0]} is older than 12.8")

source = ROOT / f"kernels/{kernel}.cu"
text = source.read_text()
needs = re.search(r"Registration<Launcher> registration\{\"\w+\", (?:Needs)?\{(\d+)(, true)?\}", text)
if needs:  # a kernel for Hopper alone is compiled for nothing else
    exactly, least = bool(needs[2]), int(needs[1])
    fits = [a for a in architectures if (int(a.rstrip("a")) == least if exactly else int(a.rstrip("a")) >= least)]
    architectures = fits or skip(f"{kernel} runs on none of sm_{', sm_'.join(architectures)}")

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
        for part in log.split("Compiling entry function")[1:]:
            figures = {
                "kernel": kernel,
                "architecture": f"sm_{architecture}",
                "function": re.match(r" '([^']+)'", part)[1],
                "registers": int(re.search(r"Used (\d+) registers", part)[1]),
                "stack_bytes": int(re.search(r"(\d+) bytes stack frame", part)[1]),
                "spill_bytes": sum(map(int, re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", part).groups())),
            }
            functions.append(figures)
            print("{architecture} {function}: {registers} registers, {spill_bytes} bytes spilled".format(**figures))
if not functions:
    fail(f"ptxas reports no kernel function:\n{log}")

# One report for all kernels; tests may run at the same time.
report.parent.mkdir(parents=True, exist_ok=True)
with open(report.with_suffix(".lock"), "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    known = json.loads(report.read_text()) if report.exists() else {"functions": []}
    new = {(kernel, f["architecture"]) for f in functions}
    rest = [f for f in known["functions"] if (f["kernel"], f["architecture"]) not in new]
    merged = sorted(rest + functions, key=lambda f: (f["kernel"], f["architecture"], f["function"]))
    part = report.with_suffix(".tmp")
    part.write_text(json.dumps({"nvcc": ".".join(release.groups()), "functions": merged}, indent=1) + "\n")
    part.replace(report)

accounted = {name: int(size) for name, size in re.findall(r"^// spills: (\S+) (\d+) \S", text, re.MULTILINE)}
for f in functions:
    allowed = max([size for name, size in accounted.items() if name in f["function"]], default=0)
    if f["spill_bytes"] > allowed:
        fail(f"{f['function']} spills {f['spill_bytes']} bytes on {f['architecture']}; its source accounts for {allowed}")
