"""scripts/fa inspect without a compiler: reading listings, finding loops, occupancy, and what it refuses."""

import io
import unittest
from collections import Counter
from contextlib import redirect_stderr
from unittest import mock

from support import SCRIPTS, ScriptTest, main

from fa_tools import inspect_kernel
from fa_tools import sass

HEAD = """	.target	sm_90a
//--------------------- .text.kernel --------------------------
	.section	.text.kernel,"ax",@progbits
        .global         kernel
kernel:
.text.kernel:
"""


def listing(*lines):
    """A listing of nvdisasm: labels stay as they are, instructions get their addresses."""
    text, address = HEAD, 0
    for line in lines:
        if line.endswith(":") or line.startswith("//"):
            text += line + "\n"
        else:
            text += f"        /*{address:04x}*/                   {line} ;\n"
            address += 16
    return sass.parse_sass(text)["kernel"]


class Kinds(unittest.TestCase):
    def test_kinds(self):
        expected = {
            "HMMA.16816.F32 R8, R4, R6, R8": "HMMA", "HGMMA.64x64x16.F32 R24, gdesc[UR4], R24": "HMMA",
            "LDSM.16.MT88.4 R4, [R2]": "LDSM/STSM", "LDGSTS.E.BYPASS.128 [R1], desc[UR4][R2.64]": "LDGSTS",
            "LDS.128 R4, [R2]": "LDS/STS", "STS [R2], R4": "LDS/STS", "LDG.E R4, [R2.64]": "LDG/STG",
            "LD.E R4, [R2.64]": "LD/ST", "LDL R4, [R1]": "LDL/STL", "STL.64 [R1+0x8], R4": "LDL/STL",
            "MUFU.EX2 R4, R4": "MUFU", "FFMA.SAT R4, R4, R5, R6": "FFMA/FMUL/FADD", "FMNMX R4, R4, R5, !PT": "FMNMX",
            "F2FP.BF16.F32.PACK_AB R4, R5, R6": "F2FP", "HADD2.F32 R4, -RZ, R5.H0_H0": "F2FP",
            "SHFL.BFLY PT, R4, R5, 0x1, 0x1f": "SHFL", "IADD3 R4, R5, 0x1, RZ": "integer", "UIADD3 UR4, UR4, 0x1, URZ":
            "integer", "IMAD.SHL.U32 R4, R5, 0x4, RZ": "integer", "IMAD.MOV.U32 R4, RZ, RZ, R5": "MOV",
            "HFMA2.MMA R4, -RZ, RZ, 0, 0": "MOV", "HFMA2 R4, R5, R6, R7": "other", "UMOV UR4, 0x400": "MOV",
            "BAR.SYNC.DEFER_BLOCKING 0x0": "BAR/WARPSYNC", "LDGDEPBAR": "BAR/WARPSYNC", "BRA `(.L_x_0)": "branches",
            "@!PT LDS RZ, [RZ]": "other", "NOP": "other",
        }
        function = listing(*expected)
        self.assertEqual({x.text: sass.kind_of(x) for x in function.instructions}, expected)

    def test_mix_counts_everything_once(self):
        code = listing("HMMA.16816.F32 R8, R4, R6, R8", "FFMA R1, R1, R2, R3", "FFMA R1, R1, R2, R3", "FMUL R1, R1, R2")
        self.assertEqual(sass.mix(code.instructions), {
            "HMMA": Counter({"HMMA.16816.F32": 1}), "LDL/STL": Counter(),
            "FFMA/FMUL/FADD": Counter({"FFMA": 2, "FMUL": 1}),
        })

    def test_no_opcode_has_two_kinds(self):
        opcodes = [opcode for _, (_, names) in sass.KINDS.items() for opcode in names.split()]
        self.assertEqual([opcode for opcode, count in Counter(opcodes).items() if count > 1], [])


class Ptx(unittest.TestCase):
    TEXT = """.version 9.0
.visible .entry one(
	.param .u64 one_param_0
)
.maxntid 128, 1, 1
{
	.reg .pred 	%p<3>;
	ld.param.u64 	%rd1, [one_param_0];
$L__BB0_1:
	// begin inline asm
	cp.async.cg.shared.global [%r1], [%rd1], 16;
	cp.async.wait_all;
	// end inline asm
	{ mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1}; }
	@%p1 bra 	$L__BB0_1; // bra
	@!%p2 bra 	$L__BB0_1;
	ret;
}
	// .globl	two
.visible .entry two()
{
	ret;
}
"""

    def test_entries_and_opcodes(self):
        entries = sass.parse_ptx(self.TEXT)
        self.assertEqual(list(entries), ["one", "two"])
        self.assertEqual(sass.ptx_opcodes(entries["two"]), Counter({"ret": 1}))
        self.assertEqual(sass.ptx_opcodes(entries["one"]), Counter({
            "ld.param.u64": 1, "cp.async.cg.shared.global": 1, "cp.async.wait_all": 1, "bra": 2, "ret": 1,
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": 1}))

    def test_families(self):
        for opcode, family in {"cp.async.wait_group": "cp.async", "ldmatrix.sync.aligned.x4.shared.b16": "ldmatrix",
                               "ld.shared.v4.u32": "ld.shared", "fma.rn.f32": "fma", "bar.sync": "bar.sync"}.items():
            self.assertEqual(sass.ptx_family(opcode), family)


class Figures(unittest.TestCase):
    # (capability, registers, shared bytes, threads): CTAs an SM. As cuda_occupancy.h computes them.
    def test_occupancy(self):
        for (capability, registers, shared, threads), ctas in {
            (90, 222, 81920, 128): 2, (90, 128, 40960, 128): 4, (90, 107, 95232, 128): 2, (90, 16, 0, 32): 32,
            (90, 32, 116736, 128): 1, (90, 65, 0, 96): 9, (90, 255, 232448, 256): 1, (90, 168, 0, 512): 0,
            (80, 128, 113000, 128): 1, (86, 40, 48000, 1024): 1, (89, 16, 0, 32): 24, (120, 128, 101376, 128): 1,
            (75, 16, 0, 160): 6, (75, 64, 81920, 128): 0,
        }.items():
            self.assertEqual(sass.occupancy(capability, registers, shared, threads)["ctas"], ctas,
                             (capability, registers, shared, threads))

    def test_what_limits(self):
        fits = sass.occupancy(90, 222, 81920, 128)
        self.assertEqual(fits["limited_by"], ["registers", "shared memory"])
        self.assertEqual((fits["warps"], fits["most_warps"]), (8, 64))

    def test_ptxas(self):
        log = "ptxas info    : Compiling entry function '_Z1kv' for 'sm_90a'\n" \
            "ptxas info    : Function properties for _Z1kv\n" \
            "    24 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n" \
            "ptxas info    : Used 168 registers, used 1 barriers, 24 bytes cumulative stack size, 16 bytes smem\n"
        self.assertEqual(sass.parse_resources(log), {"_Z1kv": {
            "registers": 168, "stack_bytes": 24, "spill_store_bytes": 8, "spill_load_bytes": 12,
            "static_shared_bytes": 16}})

    def test_launches(self):
        line = "bf16\t64\t4096\t64 16 1\t128\t40960\tconst char* function_name() [{}]\n"
        for text in ("with auto kFunction = fa::k08::attention_kernel<__nv_bfloat16, 64>",
                     "kFunction = &fa::k08::attention_kernel<__nv_bfloat16, 64>"):
            launches = sass.parse_launches(2 * line.format(text))
            self.assertEqual(len(launches), 1)
            self.assertEqual(launches[0]["function"], "fa::k08::attention_kernel<__nv_bfloat16, 64>")
            self.assertEqual((launches[0]["grid"], launches[0]["threads"], launches[0]["shared_bytes"]),
                             ([64, 16, 1], 128, 40960))


class Refusals(ScriptTest):
    def inspect(self, *arguments):
        return self.run_script(SCRIPTS / "fa", "inspect", *arguments)

    def test_unknown_kernel(self):
        for name in ("99", "flash", "0", ""):
            self.assert_one_sentence(self.inspect(name), f"'{name}'", "01_naive")

    def test_ambiguous_kernel(self):
        with mock.patch.object(sass, "kernel_names", return_value=["05_mma_split_kv", "06_mma_split_q", "05_mma_x"]):
            with self.assertRaisesRegex(sass.Refused, "05_mma_split_kv, 05_mma_x"):
                sass.find_kernel("05_mma")
            self.assertEqual([sass.find_kernel(name) for name in ("6", "06", "06_mma_split_q", "06_m")],
                             4 * ["06_mma_split_q"])

    def test_unknown_architecture(self):
        for name in ("hopper", "99", "80a", "90f", ""):
            self.assert_one_sentence(self.inspect("08", "--arch", name), "--arch", "90a", f"'{name}'")

    def test_architecture_that_the_kernel_does_not_run_on(self):
        self.assert_one_sentence(self.inspect("08", "--arch", "75"), "08_swizzle", "8.0", "sm_75")

    def test_bad_options(self):
        self.assert_one_sentence(self.inspect("08", "--dtype", "fp8"), "--dtype", "fp8", "--help")
        self.assert_one_sentence(self.inspect("08", "--head-dim", "96"), "--head-dim", "96", "--help")
        self.assert_one_sentence(self.inspect("08", "--nonsense"), "--nonsense", "--help")
        self.assert_one_sentence(self.inspect("08", "--control", "--lines", "some"), "--lines", "--help")
        self.assert_one_sentence(self.inspect(), "kernel", "--help")

    def refused(self, which):
        """What is said when shutil.which() is `which`."""
        said = io.StringIO()
        with mock.patch.object(sass.shutil, "which", which), redirect_stderr(said), self.assertRaises(SystemExit) as ended:
            inspect_kernel.main(["08"])
        self.assertEqual(said.getvalue().count("\n"), 1, said.getvalue())
        return ended.exception.code, said.getvalue()

    def test_without_nvcc(self):
        code, said = self.refused(lambda name: None)
        self.assertEqual((code, said), (4, "error: there is no nvcc here; scripts/fa toolkit brings one\n"))

    def test_old_nvcc(self):
        self.program("nvcc", 'echo "Cuda compilation tools, release 12.4, V12.4.99"\n')
        code, said = self.refused(lambda name: f"{self.folder}/bin/nvcc" if name == "nvcc" else None)
        self.assertEqual(code, 4)
        self.assertIn("nvcc 12.4 is older than 12.8", said)

    def test_without_nvdisasm(self):
        self.program("nvcc", 'echo "Cuda compilation tools, release 13.0, V13.0.88"\n')
        code, said = self.refused(lambda name: f"{self.folder}/bin/nvcc" if name == "nvcc" else None)
        self.assertEqual((code, said), (4, "error: there is no nvdisasm here; scripts/fa toolkit brings one\n"))

    def test_kernel_that_does_not_compile(self):
        self.program("nvcc", 'case "$*" in --version) echo "release 13.0, V13.0.88" ;;\n'
                     '*) echo "kernels/08_swizzle.cu(3): error: no"; exit 1 ;; esac\n')
        self.program("nvdisasm", "exit 9\n")
        real = sass.shutil.which
        ours = {name: f"{self.folder}/bin/{name}" for name in ("nvcc", "nvdisasm")}
        code, said = self.refused(lambda name: ours.get(name) or real(name))
        self.assertEqual(code, 4)
        self.assertEqual(said.split(": ", 1)[1], "nvcc 13.0.88 on kernels/08_swizzle.cu failed: "
                         "kernels/08_swizzle.cu(3): error: no\n")


if __name__ == "__main__":
    main()
