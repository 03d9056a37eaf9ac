"""Compiles one kernel's twin that records (common/trace/record.h) for Hopper, without a GPU: it neither spills nor makes
its products wait for each other, as the kernel does not; and the kernel itself has nothing of the recording.

Usage: test_recording.py KERNEL FLAG...
"""

import re
import sys
import tempfile
from pathlib import Path

from tool_test import COMPILING, ROOT, fail, run, skip

from fa_tools import sass

# A twin has one register less. 16 has none to spare with head_dim 128 and tiles of 128 keys: two registers go to local
# memory and back. The kernel itself spills nothing (test_sass.py, nvcc.KERNEL).
MOST_SPILLED_BYTES = {"16_max_free": 12}  # of stores or loads

kernel, flags = sys.argv[1], sys.argv[2:]
source = ROOT / f"kernels/{kernel}.cu"
if "shared_storage<" not in source.read_text():
    skip(f"{kernel} has nothing to record")
try:
    nvcc, _ = sass.find_nvcc()
except sass.Missing as problem:
    skip(str(problem))
RECORDING = ("-DFA_RECORDING", "-include", ROOT / "common/trace/record.h")
common = (nvcc, "-std=c++20", "-O3", *flags, "-DFA_WITH_CUDA", f"-I{ROOT}", source)
with tempfile.TemporaryDirectory() as folder:
    ptx = Path(folder, "kernel.ptx")
    run(*common, "-arch=compute_90a", "-ptx", "-o", ptx, timeout=COMPILING)
    for word in ("%clock", "%globaltimer", "fa_record", "record_target"):
        if word in ptx.read_text():
            fail(f"{kernel}: its PTX has {word}, although it does not record")
    run(*common, *RECORDING, "-arch=compute_90a", "-ptx", "-o", ptx, timeout=COMPILING)
    entries = ptx.read_text().split(".entry ")[1:]
    for entry in entries:
        clocks = len(re.findall(r"%clock\b", entry))
        if clocks < 2:
            fail(f"{kernel}: a twin reads the clock {clocks} times")
    log = run(*common, *RECORDING, "-gencode", "arch=compute_90a,code=sm_90a", "-Xptxas", "-v", "-cubin", "-o",
              f"{folder}/kernel.cubin", timeout=COMPILING)
    if serialized := re.search(r"\(C75\d\d\)[^\n]*", log):
        fail(f"{kernel}, recording: {serialized[0]}")
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    if len(spills) != len(entries) or not entries:
        fail(f"{kernel}: {len(entries)} kernels, but ptxas tells of {len(spills)}")
    most = max(int(count) for pair in spills for count in pair)
    if most > MOST_SPILLED_BYTES.get(kernel, 0):
        fail(f"{kernel}: recording, it spills: {spills}")
print(f"{kernel}: {len(entries)} twins record, {f'spilling {most} bytes' if most else 'without a spill'}")
