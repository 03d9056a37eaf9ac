"""Prints which architectures have an instruction: ptxas is asked to assemble each for each. Needs CUDA's ptxas, but
no GPU. What the ladder's own wrappers execute is in common/ptx."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from fa_tools import sass
from fa_tools.tools import Parser, fail

EXAMPLE = """examples:
  scripts/fa instructions
  scripts/fa instructions --arch 80,90a

Exit code 4: there is no ptxas, or it is older than CUDA 12.8."""

SETUP = sass.SETUP
ARCHITECTURES = ("75", "80", "86", "89", "90", "90a", "100", "100a", "120", "120a")

# What the table calls it: one instruction. r, d, f, h: registers of 32, 64 bits, floats, 16 bits; s: shared memory.
INSTRUCTIONS = {
    "Products": {
        "wmma m16n16k16, bf16": "wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32 "
                                "{f0,f1,f2,f3,f4,f5,f6,f7}, {r0,r1,r2,r3}, {r4,r5,r6,r7}, {f0,f1,f2,f3,f4,f5,f6,f7}",
        "mma m16n8k8, fp16": "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {f0,f1,f2,f3}, {r0,r1}, {r4}, "
                             "{f0,f1,f2,f3}",
        "mma m16n8k16, fp16 and bf16": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {f0,f1,f2,f3}, "
                                       "{r0,r1,r2,r3}, {r4,r5}, {f0,f1,f2,f3}",
        "mma m16n8k32, fp8": "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {f0,f1,f2,f3}, {r0,r1,r2,r3}, "
                             "{r4,r5}, {f0,f1,f2,f3}",
        "wgmma": "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {f0,f1,f2,f3}, d0, d1, q, 1, 1, 0, 0",
        "tcgen05.mma": "tcgen05.mma.cta_group::1.kind::f16 [r0], d0, d1, r1, q",
    },
    "Shared memory and registers": {
        "ldmatrix, .trans": "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {r0,r1,r2,r3}, [s]",
        "stmatrix": "stmatrix.sync.aligned.m8n8.x4.shared.b16 [s], {r0,r1,r2,r3}",
        "setmaxnreg": "setmaxnreg.inc.sync.aligned.u32 240",
    },
    "Copies": {
        "cp.async": "cp.async.cg.shared.global [s], [d0], 16",
        "cp.async.bulk": "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [d0], 16, [s]",
        "cp.async.bulk.tensor (TMA), load": "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                                            "[s], [d0, {r0, r1}], [s]",
        "the same, .multicast::cluster": "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                                         ".multicast::cluster [s], [d0, {r0, r1}], [s], h0",
        "cp.async.bulk.tensor, store": "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [d0, {r0, r1}], [s]",
    },
    "Waiting": {
        "bar.sync, bar.arrive": "bar.arrive 1, 64",
        "mbarrier, test_wait": "mbarrier.test_wait.parity.shared.b64 q, [s], 0",
        "mbarrier.try_wait": "mbarrier.try_wait.parity.shared.b64 q, [s], 0",
        "mbarrier.arrive.expect_tx": "mbarrier.arrive.expect_tx.shared.b64 _, [s], 16",
        "fence.proxy.async": "fence.proxy.async.shared::cta",
        "elect.sync": "elect.sync _|q, 0xffffffff",
        "clusters: barrier.cluster, mapa": "barrier.cluster.arrive",
        "griddepcontrol": "griddepcontrol.wait",
    },
    "Arithmetic": {
        "ex2.approx.ftz.f32": "ex2.approx.ftz.f32 f0, f1",
        "ex2.approx.ftz.bf16x2": "ex2.approx.ftz.bf16x2 r0, r1",
        "cvt.rn.bf16x2.f32": "cvt.rn.bf16x2.f32 r0, f0, f1",
        "max.f32 of three": "max.f32 f0, f1, f2, f3",
        "fma.rn.f32x2": "fma.rn.f32x2 d0, d1, d2, d3",
        "redux.sync.max.u32": "redux.sync.max.u32 r0, r1, 0xffffffff",
    },
}

FRAME = """.version {version}
.target sm_{architecture}
.address_size 64
.visible .entry probe() {{
.reg .b16 h<2>; .reg .b32 r<9>; .reg .b64 d<9>; .reg .f32 f<9>; .reg .pred q; .shared .align 128 .b8 s[1024];
"""
BEFORE = FRAME.count("\n")


def refused(ptxas, version, architecture, instructions):
    """Of the instructions, those that ptxas does not take: what is left is assembled again until nothing is wrong."""
    bad, good = set(), list(instructions)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probe.ptx"
        while True:
            path.write_text(FRAME.format(version=version, architecture=architecture)
                            + "".join(f"{instruction};\n" for instruction in good) + "}\n", encoding="utf-8")
            done = subprocess.run([ptxas, f"-arch=sm_{architecture}", str(path), "-o", "/dev/null"], text=True,
                                  capture_output=True, check=False)
            lines = {int(line) - BEFORE - 1 for line in re.findall(r", line (\d+); error", done.stderr)}
            if done.returncode == 0 and not lines:
                return bad
            if not lines or not lines <= set(range(len(good))):
                raise sass.Missing(f"ptxas says of sm_{architecture}: {done.stderr.strip().splitlines()[0]}")
            bad |= {good[line] for line in lines}
            good = [instruction for i, instruction in enumerate(good) if i not in lines]


def main(argv=None):
    parser = Parser("instructions", __doc__, EXAMPLE)
    parser.add_argument("--arch", default=",".join(ARCHITECTURES), metavar="LIST", help="architectures (default: %(default)s)")
    args = parser.parse_args(argv)
    architectures = args.arch.split(",")
    for architecture in architectures:
        if architecture not in ARCHITECTURES:
            fail(f"'{architecture}' is none of {', '.join(ARCHITECTURES)}")
    try:
        nvcc, version = sass.find_nvcc()
        ptxas = Path(nvcc).parent / "ptxas"
        if not ptxas.exists():
            raise sass.Missing(f"there is no ptxas beside {nvcc}")
        everything = [instruction for group in INSTRUCTIONS.values() for instruction in group.values()]
        isa = "9.0" if version.startswith("13") else "8.7"
        missing = {a: refused(ptxas, isa, a, everything) for a in architectures}
    except sass.Missing as problem:
        fail(str(problem), SETUP)
    print(f"x: ptxas assembles it for sm_..., nvcc {version}\n")
    print(f"  {'':<36}" + "".join(f"{a:>6}" for a in architectures))
    for group, instructions in INSTRUCTIONS.items():
        print(f"  {group}")
        for name, instruction in instructions.items():
            marks = "".join(f"{'.' if instruction in missing[a] else 'x':>6}" for a in architectures)
            print(f"    {name:<34}{marks}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
