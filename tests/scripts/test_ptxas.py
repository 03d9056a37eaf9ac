"""scripts/fa ptxas: reading what ptxas says, and what it refuses."""

import re
import unittest

from support import ROOT, SCRIPTS, ScriptTest, main, seeded_bugs

from fa_tools import ptxas
from fa_tools import sass
from fa_tools.solutions import solutions

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
        self.assert_one_sentence(self.run_script(SCRIPTS / "fa", "ptxas", "kernels/01_naive.cu", "--arch", "70"), "--arch", "'70'")

    @unittest.skipUnless(nvcc(), "no nvcc")
    def test_remarks(self):
        """Each example of tests/examples/serialised.cu gets the remark that the appendix explains; the right one none."""
        done = self.run_script(SCRIPTS / "fa", "ptxas", "tests/examples/serialised.cu", "--remarks", cwd=ROOT)
        self.assertEqual(done.returncode, 0, done.stderr)
        parts = {part.split("\n")[0]: part for part in done.stdout.split("\n\n")}
        for name, code in (("of the file", "C7508"), ("no_fence", "C7519"), ("changed_between", "C7517"),
                           ("wait_in_a_branch", "C7514"), ("read_too_early", "C7517")):
            self.assertIn(f"({code})", parts[name])
        self.assertNotIn("right", parts)

    @unittest.skipUnless(nvcc(), "no nvcc")
    def test_examples_compile_without_a_remark(self):
        done = self.run_script(SCRIPTS / "fa", "ptxas", "tests/examples/synchronisation.cu", cwd=ROOT)
        self.assertEqual(done.returncode, 0, done.stderr)
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
