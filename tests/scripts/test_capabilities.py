"""The limits of an SM and the arithmetic of occupancy, against CUDA's own header where it is installed; the tables of
docs/appendix/capabilities.md; scripts/fa instructions."""

import sys
import unittest
from pathlib import Path

from support import SCRIPTS, ScriptTest, main

from fa_tools import sass


def header():
    """The folder of cuda_occupancy.h, or None."""
    try:
        nvcc, _ = sass.find_nvcc()
    except sass.Missing:
        return None
    root = Path(nvcc).resolve().parent.parent
    return next((folder for folder in (root / "include", root / "targets/x86_64-linux/include", *root.glob("targets/*/include"))
                 if (folder / "cuda_occupancy.h").exists()), None)


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
