"""Compiles one kernel with CUDA's compiler, without a GPU.

Usage: test_nvcc.py KERNEL ARCHITECTURES FOLDER FLAG...   prints registers and spills; FOLDER gets PTX, cubins and ptxas' words
       test_nvcc.py KERNEL recording FOLDER FLAG...       its twin that records (common/trace/record.h), for Hopper. FOLDER
                                                          has the kernel itself.

A wgmma that ptxas cannot leave asynchronous fails the test. A kernel function that spills fails it, unless its source accounts for it with a comment line
`// spills: NAME BYTES reason`, NAME a part of the function's (mangled) name and BYTES the most it may spill. A twin may not spill either, and the kernel
itself has nothing of the recording.
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path

from tool_test import COMPILING, ROOT, check_asynchronous, expect, fail, find_nvcc, run, skip

from fa_tools import sources
from fa_tools.for_readers import sass

RECORDING = ("-DFA_RECORDING", "-include", ROOT / "common/trace/record.h")

kernel, what, folder, flags = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:]
source = ROOT / f"kernels/{kernel}.cu"
text = source.read_text()


def common(nvcc):  # without -O3, which is for the host's half alone
    return nvcc, "-std=c++20", *flags, "-DFA_WITH_CUDA", f"-I{ROOT}", source.relative_to(ROOT)


def check_kernel(architectures):
    nvcc, _ = find_nvcc()
    least, exactly = sass.needs_of(kernel)  # a kernel for Hopper alone is compiled for nothing else
    numbers = {a: int(a.rstrip("a")) for a in architectures}
    architectures = [a for a in architectures if (numbers[a] == least if exactly else numbers[a] >= least)] or \
        skip(f"{kernel} runs on none of sm_{', sm_'.join(architectures)}")

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # Not -arch=sm_90a: nvcc 13 then also makes PTX for compute_90, which has no wgmma. What is kept beside PTX and cubins
    # is large.
    targets = [word for a in architectures for word in ("-gencode", f"arch=compute_{a},code=sm_{a}")]
    with tempfile.TemporaryDirectory(dir=folder.parent) as kept:
        log = run(*common(nvcc), *targets, "-Xptxas", "-v", "--keep", "--keep-dir", kept, "-c", "-o", f"{kept}/kernel.o",
                  cwd=ROOT, timeout=COMPILING)
        for architecture in architectures:
            named = f"{source.stem}.compute_{architecture}" if len(architectures) > 1 else source.stem
            for kind in ("ptx", "cubin"):
                Path(kept, f"{named}.{kind}").rename(folder / f"{architecture}.{kind}")
    (folder / "log").write_text(log)
    check_asynchronous(log, kernel)
    functions = []
    for architecture in architectures:
        for function, said in sass.parse_resources(log, architecture).items():
            spilled = said["spill_store_bytes"] + said["spill_load_bytes"]
            functions.append((function, architecture, spilled))
            print(f"sm_{architecture} {function}: {said['registers']} registers, {spilled} bytes spilled")
    expect(functions, f"ptxas reports no kernel function:\n{log}")

    accounted = {name: int(size) for name, size in re.findall(r"^// spills: (\S+) (\d+) \S", text, re.MULTILINE)}
    for function, architecture, spilled in functions:
        allowed = max([size for name, size in accounted.items() if name in function], default=0)
        if spilled > allowed:
            fail(f"{function} spills {spilled} bytes on sm_{architecture}; its source accounts for {allowed}")


def check_twin():
    if "shared_storage<" not in text:
        skip(f"{kernel} has nothing to record")
    nvcc, _ = find_nvcc()
    ptx = (folder / "90a.ptx").read_text()
    for word in ("%clock", "%globaltimer", "fa_record", "record_target"):
        expect(word not in ptx, f"{kernel}: its PTX has {word}, although it does not record")
    with tempfile.TemporaryDirectory() as kept:
        log = run(*common(nvcc), *RECORDING, "-gencode", "arch=compute_90a,code=sm_90a", "-Xptxas", "-v", "--keep", "--keep-dir",
                  kept, "-cubin", "-o", f"{kept}/kernel.cubin", cwd=ROOT, timeout=COMPILING)
        (ptx,) = Path(kept).glob("*.ptx")
        entries = ptx.read_text().split(".entry ")[1:]
    for entry in entries:
        clocks = len(re.findall(r"%clock\b", entry))
        expect(clocks >= 2, f"{kernel}: a twin reads the clock {clocks} times")
    check_asynchronous(log, f"{kernel}, recording")
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    if len(spills) != len(entries) or not entries:
        fail(f"{kernel}: {len(entries)} kernels, but ptxas tells of {len(spills)}")
    most = max(int(count) for pair in spills for count in pair)
    expect(most <= sources.fact(kernel, "spilled"), f"{kernel}: recording, it spills: {spills}")
    print(f"{kernel}: {len(entries)} twins record, {f'spilling {most} bytes' if most else 'without a spill'}")


if what == "recording":
    check_twin()
else:
    check_kernel(what.split(","))
