"""What the machine code's commands read: listings, PTX, ptxas's log and remarks, occupancy; and what they refuse
(scripts/fa inspect, ptxas)."""

import io
import re
import unittest
from collections import Counter
from contextlib import redirect_stderr
from unittest import mock

from support import ROOT, SCRIPTS, ScriptTest, main, seeded_bugs

from fa_tools import tools
from fa_tools.for_readers import inspect_kernel, ptxas, sass
from fa_tools.patches import solutions

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

    def test_kernels_beyond_the_ladder(self):
        for name in ("causal", "beyond/causal", "beyond/c"):
            self.assertEqual(sass.find_kernel(name), "beyond/causal")
        for name in ("beyond/08", "beyond/1"):
            with self.assertRaisesRegex(sass.Refused, "there is no kernel"):
                sass.find_kernel(name)
        self.assertEqual([sass.needs_of(f"beyond/{name}") for name in ("causal", "plain", "split_keys")],
                         [(90, True), (75, False), (80, False)])
        self.assertEqual([sass.needs_of("06_mma_split_q", dtype) for dtype in ("fp16", "bf16")], [(75, False), (80, False)])
        said = io.StringIO()
        with mock.patch.object(sass, "find_nvcc", side_effect=sass.Missing("no nvcc")), redirect_stderr(said), self.assertRaises(SystemExit):
            tools.run(lambda: ptxas.main(["causal"]))
        self.assertEqual(said.getvalue(), "error: no nvcc\n")

    def test_unknown_architecture(self):
        for name in ("hopper", "99", "80a", "90f", ""):
            self.assert_one_sentence(self.inspect("08", "--arch", name), "--arch", "90a", f"'{name}'")

    def test_architecture_that_the_kernel_does_not_run_on(self):
        self.assert_one_sentence(self.inspect("08", "--arch", "75"), "08_swizzle", "8.0", "sm_75")
        self.assert_one_sentence(self.inspect("05", "--arch", "75"), "05_mma_split_kv", "8.0 or later for bf16", "sm_75")

    def test_without_nvcc(self):
        said = io.StringIO()
        with mock.patch.object(sass.shutil, "which", lambda name: None), redirect_stderr(said), self.assertRaises(SystemExit) as ended:
            tools.run(lambda: inspect_kernel.main(["08"]))
        self.assertEqual((ended.exception.code, said.getvalue()), (4, "error: there is no nvcc here; scripts/fa toolkit brings one\n"))


LOG = """ptxas info    : (C7517) warpgroup.wait is injected in around line 128 by compiler to allow use of registers in function '_Z1aPf'
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1bPf' for 'sm_90a'
ptxas info    : Function properties for _Z1bPf
    16 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers
ptxas info    : Compile time = 4.767 ms
"""


def nvcc():
    try:
        return sass.find_nvcc()
    except sass.Missing:
        return None


class Ptxas(ScriptTest):
    def test_reading(self):
        said = list(ptxas.said(LOG))
        self.assertEqual([name for name, _ in said], ["_Z1aPf", None, "_Z1bPf", "_Z1bPf"])
        self.assertTrue(said[0][1].startswith("(C7517)"))
        self.assertEqual(said[2][1], "16 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads")
        self.assertEqual(said[3][1], "Used 64 registers, used 1 barriers")

    def test_refusals(self):
        self.assert_one_sentence(self.run_script(SCRIPTS / "fa", "ptxas", "kernels/none.cu"), "no file kernels/none.cu")
        self.assert_one_sentence(self.run_script(SCRIPTS / "fa", "ptxas", "99"), "there is no kernel '99'; there are 01_naive, ")
        self.assert_one_sentence(self.run_script(SCRIPTS / "fa", "ptxas", "kernels/01_naive.cu", "--arch", "70"), "--arch", "'70'")

    @unittest.skipUnless(nvcc(), "no nvcc")
    def test_remarks(self):
        """Each example of tests/examples/serialised.cu gets the remark that the appendix explains; the right one none."""
        done = self.run_script(SCRIPTS / "fa", "ptxas", "tests/examples/serialised.cu", "--remarks", cwd=ROOT, code=0)
        parts = {part.split("\n")[0]: part for part in done.stdout.split("\n\n")}
        for name, code in (("of the file", "C7508"), ("no_fence", "C7519"), ("changed_between", "C7517"),
                           ("wait_in_a_branch", "C7514"), ("read_too_early", "C7517")):
            self.assertIn(f"({code})", parts[name])
        self.assertNotIn("right", parts)

    @unittest.skipUnless(nvcc(), "no nvcc")
    def test_examples_compile_without_a_remark(self):
        done = self.run_script(SCRIPTS / "fa", "ptxas", "tests/examples/synchronisation.cu", cwd=ROOT, code=0)
        self.assertIn("fa::as_it_is::wgmma", done.stdout)
        self.assertNotIn("(C7", done.stdout)


class Names(unittest.TestCase):
    def test_appendices_name_kernels_bugs_and_solutions_that_exist(self):
        known = {path.stem for path in (ROOT / "kernels").iterdir()} | set(solutions())
        known |= {bug["name"] for bug in seeded_bugs()}
        for page in sorted((ROOT / "docs/appendix").glob("*.md")):
            text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
            for name in re.findall(r"`(\d\d_[a-z]\w+)`", text):
                self.assertIn(name, known, page.name)


if __name__ == "__main__":
    main()
