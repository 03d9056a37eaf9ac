"""Compiles copies with cache hints for several GPUs, without one, and looks at the machine code: every uniform register
that a copy reads is one that the function writes. (ptxas before CUDA 13.4 names others, see common/ptx/cache_hint.h;
a GPU then stops with "illegal instruction".)

Usage: test_hints.py
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tool_test import COMPILING, ROOT, fail, skip

sys.path.insert(0, str(ROOT / "scripts" / "lib"))
import sass  # noqa: E402

SOURCE = """\
#include "common/ptx/cache_hint.h"

struct Smem {
  alignas(16) uint8_t bytes[32][16];
};
enum class How { kWhole, kPart, kPrefetch };

template <int kBytes, How kHow>
__global__ void copy_kernel(const uint8_t* in, uint8_t* out, int source_bytes) {
  __shared__ Smem smem;
  for (int i = 0; i < 16; i++) smem.bytes[threadIdx.x][i] = 0xee;
  const uint32_t to = ptx::shared_address(&smem.bytes[threadIdx.x][16 - kBytes]);
  const uint8_t* const from = in + threadIdx.x * 16;
  if (kHow == How::kWhole) ptx::cp_async<kBytes>(to, from, ptx::evict_last());
  if (kHow == How::kPart) ptx::cp_async_zero_fill<kBytes>(to, from, source_bytes, ptx::evict_first(0.5f));
  if (kHow == How::kPrefetch) ptx::cp_async<kBytes, ptx::Prefetch::k128Bytes>(to, from, ptx::evict_normal());
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  const uint4 copied = *reinterpret_cast<const uint4*>(smem.bytes[threadIdx.x]);
  ptx::store_global(reinterpret_cast<uint4*>(out) + threadIdx.x, copied, ptx::evict_first());
}
"""
KERNELS = [f"template __global__ void copy_kernel<{size}, How::{how}>(const uint8_t*, uint8_t*, int);\n"
           for size in (4, 8, 16) for how in ("kWhole", "kPart", "kPrefetch")]

# The same of TMA, which ptxas has always got right.
TMA = """\
#include "common/ptx/tma.h"

struct Stages {
  alignas(1024) uint8_t boxes[4][4096];
  uint64_t full[4];
};

__global__ void box_kernel(const __grid_constant__ ptx::TensorMap map, int rows) {
  __shared__ Stages smem;
  for (int row = 0; row < rows; row++) {
    ptx::cp_async_bulk_tensor_load(smem.boxes[row % 4], &map, {0, row}, &smem.full[row % 4], ptx::evict_last());
  }
}
"""

try:
    nvcc, version = sass.find_nvcc()
    nvdisasm = sass.find_nvdisasm(nvcc)
except sass.Missing as problem:
    skip(str(problem))

for architecture in ("80", "90a", "100a", "120a"):
    with tempfile.TemporaryDirectory() as folder:
        hopper = int(architecture.rstrip("a")) >= 90
        (Path(folder) / "hints.cu").write_text(SOURCE + (TMA if hopper else "") + "".join(KERNELS))
        for command in ([nvcc, "-std=c++20", "-O3", *sass.build_flags(), f"-arch=sm_{architecture}", "-DFA_WITH_CUDA",
                         f"-I{ROOT}", "-cubin", f"{folder}/hints.cu", "-o", f"{folder}/hints.cubin"],
                        [nvdisasm, "-c", f"{folder}/hints.cubin"]):
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False,
                              timeout=COMPILING)
            if done.returncode:
                fail(f"sm_{architecture}: {(done.stderr + done.stdout).strip()}")
    functions = sass.parse_sass(done.stdout)
    if len(functions) != len(KERNELS) + hopper:
        fail(f"sm_{architecture}: {len(functions)} functions instead of {len(KERNELS) + hopper}")
    for function in functions.values():
        written = set()
        for instruction in function.instructions:
            if match := re.match(r"UR(\d+)\b", instruction.operands):
                written |= {int(match[1]), int(match[1]) + 1}  # it may be a pair
        boxes = "box_kernel" in function.name
        copies = [i for i in function.instructions if i.base == ("UTMALDG" if boxes else "LDGSTS")]
        if not copies or (not boxes and len(copies) != 1):
            fail(f"sm_{architecture}: {function.name} has {len(copies)} copies instead of one")
        if boxes and not all("desc" in copy.operands for copy in copies):
            fail(f"sm_{architecture}: copies of {function.name} have no policy")
        for copy in copies + [i for i in function.instructions if i.base == "STG"]:
            for register in map(int, re.findall(r"\bUR(\d+)\b", copy.operands)):
                if register not in written:
                    fail(f"sm_{architecture}, nvcc {version}: `{copy.text}` reads UR{register}, which nothing writes")
    # evict_last of all addresses, as createpolicy has it.
    if architecture == "80" and "0x14f00000" not in done.stdout:
        fail("sm_80: the copies have no policy")
    print(f"sm_{architecture}: {sum(len(f.instructions) for f in functions.values())} instructions, all registers written")
