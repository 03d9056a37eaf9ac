"""The limits of an SM and the arithmetic of occupancy, against CUDA's own header where it is installed; the tables of
docs/appendix/capabilities.md; scripts/fa instructions."""

import itertools
import json
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from support import ROOT, SCRIPTS, ScriptTest, cuda_record, cuda_results, main

from fa_tools import capabilities
from fa_tools import sass
from fa_tools import tuning

# Reads lines "capability warps shared_bytes cta_shared_bytes reserved_bytes registers shared threads", prints for each
# the CTAs of an SM, the most CTAs of an SM, the units, the partitions, and the shared memory that an SM can have for
# CTAs that ask for all that the line says, and for a byte more (-1: it cannot).
ASKED = r"""
#include <cstdio>
#include <cuda_occupancy.h>
int main() {
  int capability, warps, shared_bytes, cta_shared_bytes, reserved, registers, shared, threads;
  while (std::scanf("%d %d %d %d %d %d %d %d", &capability, &warps, &shared_bytes, &cta_shared_bytes, &reserved, &registers,
                    &shared, &threads) == 8) {
    cudaOccDeviceProp p;
    p.computeMajor = capability / 10;
    p.computeMinor = capability % 10;
    p.maxThreadsPerBlock = 1024;
    p.maxThreadsPerMultiprocessor = 32 * warps;
    p.regsPerBlock = p.regsPerMultiprocessor = 65536;
    p.warpSize = 32;
    p.sharedMemPerBlock = 48 * 1024;
    p.sharedMemPerMultiprocessor = shared_bytes;
    p.sharedMemPerBlockOptin = cta_shared_bytes;
    p.reservedSharedMemPerBlock = reserved;
    p.numSms = 1;
    cudaOccFuncAttributes f;
    f.maxThreadsPerBlock = 1024;
    f.numRegs = registers;
    f.sharedSizeBytes = 0;
    f.maxDynamicSharedSizeBytes = cta_shared_bytes;
    f.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    cudaOccDeviceState state;
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    cudaOccResult r;
    const cudaOccError error = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &f, &state, threads, shared);
    int most, unit, register_unit, partitions, all, more;
    cudaOccMaxBlocksPerMultiprocessor(&most, &p);
    cudaOccSMemAllocationGranularity(&unit, &p);
    cudaOccRegAllocationGranularity(&register_unit, &p);
    cudaOccSubPartitionsPerMultiprocessor(&partitions, &p);
    size_t size = shared_bytes;
    all = cudaOccAlignUpShmemSizeVoltaPlus(&size, &p) == CUDA_OCC_SUCCESS ? int(size) : -1;
    size = shared_bytes + 1;
    more = cudaOccAlignUpShmemSizeVoltaPlus(&size, &p) == CUDA_OCC_SUCCESS ? int(size) : -1;
    std::printf("%d %d %d %d %d %d %d\n", error ? 0 : r.activeBlocksPerMultiprocessor, most, unit, register_unit, partitions,
                all, more);
  }
}
"""


def header():
    """The folder of cuda_occupancy.h, or None."""
    try:
        nvcc, _ = sass.find_nvcc()
    except sass.Missing:
        return None
    root = Path(nvcc).resolve().parent.parent
    return next((folder for folder in (root / "include", root / "targets/x86_64-linux/include", *root.glob("targets/*/include"))
                 if (folder / "cuda_occupancy.h").exists()), None)


class Header(ScriptTest):
    @unittest.skipUnless(header() and shutil.which("g++"), "cuda_occupancy.h is not here")
    def test_limits_and_occupancy(self):
        source, program = self.write("asked.cpp", ASKED), self.folder / "asked"
        subprocess.run(["g++", "-w", "-O0", f"-I{header()}", source, "-o", program], check=True, timeout=60)
        cases = [(c, r, s, t) for c in sass.LIMITS for r, s, t in itertools.product(
            (16, 32, 64, 65, 96, 127, 168, 222, 255), (0, 1000, 28_800, 49_152, 65_536, 81_920, 98_304, 163_840, 197_632),
            (32, 128, 160, 256, 384, 512, 1024)) if s <= sass.LIMITS[c].cta_shared_bytes]
        lines = []
        for capability, registers, shared, threads in cases:
            limits = sass.LIMITS[capability]
            lines.append(f"{capability} {limits.warps} {limits.shared_bytes} {limits.cta_shared_bytes} "
                         f"{limits.reserved_bytes} {registers} {shared} {threads}")
        done = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True, check=True, timeout=60)
        answers = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
        self.assertEqual(len(answers), len(cases))
        for case, (ctas, most, unit, register_unit, partitions, all_of_it, more) in zip(cases, answers):
            capability, registers, shared, threads = case
            limits = sass.LIMITS[capability]
            self.assertEqual(sass.occupancy(capability, registers, shared, threads)["ctas"], ctas, case)
            self.assertEqual((most, unit, register_unit, partitions),
                             (limits.ctas, limits.shared_unit, sass.REGISTER_UNIT, sass.PARTITIONS), case)
            self.assertEqual((all_of_it, more), (limits.shared_bytes, -1), case)


class Tables(ScriptTest):
    def test_kernel_10_has_tile_sizes_of_its_own(self):
        for architecture, block_n in ((90, 64), (80, 32)):
            choice = tuning.choice_of(architecture, 128)
            self.assertEqual((choice.threads(), choice.shared_bytes(128)), (128, (2 * 2 * block_n + 128) * 128 * 2))

    def test_every_kernel_has_threads(self):
        for file in sorted((ROOT / "kernels").glob("[0-9]*.cu")):
            self.assertIn(capabilities.threads_of(file.stem, 90, 128), (128, 256, 384), file.stem)

    def test_through_sync(self):
        root = self.checkout()
        data = cuda_results()
        data["records"].append(cuda_record("16_max_free", registers=168, shared_memory_bytes=197_632))
        (root / "bench/results/gpu.json").write_text(json.dumps(data))
        for file in [*(ROOT / "kernels").glob("*.cu"), ROOT / "kernels" / "10_tuning.h"]:
            shutil.copy(file, root / "kernels")
        page = root / "page.md"
        for spec in ("limits", "occupancy bench/results/gpu.json", "kernels bench/results/gpu.json"):
            page.write_text(f"<!-- capabilities: {spec} -->\n<!-- /capabilities -->\n")
            done = self.run_script(root / "scripts" / "fa", "sync", page)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("| `02_online_softmax` | any |", page.read_text())
        for spec, problem in (("limit", "none of limits"), ("occupancy", "none of limits"),
                              ("kernels bench/results/none.json", "cannot be read")):
            page.write_text(f"<!-- capabilities: {spec} -->\n<!-- /capabilities -->\n")
            done = self.run_script(root / "scripts" / "fa", "sync", "--check", page)
            self.assertEqual(done.returncode, 1)
            self.assertIn(problem, done.stderr)


class Instructions(ScriptTest):
    def test_unknown_architecture(self):
        done = self.run_script(SCRIPTS / "fa", "instructions", "--arch", "80,70")
        self.assert_one_sentence(done, "'70' is none of 75, 80")

    def test_without_nvcc(self):
        done = self.run_script(sys.executable, "-c", "import sys, runpy; sys.argv = ['instructions']; from fa_tools import sass; "
                               "sass.find_nvcc = lambda: (_ for _ in ()).throw(sass.Missing('there is no nvcc')); "
                               "runpy.run_module('fa_tools.instructions', run_name='__main__')")
        self.assert_one_sentence(done, "there is no nvcc", code=4)

    @unittest.skipUnless(header(), "no nvcc")
    def test_what_ptxas_takes(self):
        done = self.run_script(SCRIPTS / "fa", "instructions", "--arch", "80,90,90a")
        self.assertEqual(done.returncode, 0, done.stderr)
        marks = {line[4:38].strip(): line[38:].split() for line in done.stdout.splitlines() if line.startswith("    ")}
        self.assertEqual(marks["mma m16n8k16, fp16 and bf16"], ["x", "x", "x"])
        self.assertEqual(marks["stmatrix"], [".", "x", "x"])
        self.assertEqual(marks["wgmma"], [".", ".", "x"])


if __name__ == "__main__":
    main()
