"""scripts/fa_tools/run_ctest.py: what it says of skipped tests, with real runs of CTest on tests that are made up."""

import sys

from support import SCRIPTS, ScriptTest, main

GTEST = "a.cpp:3: Skipped\\nneeds a GPU\\n\\n[  SKIPPED ] Suite.Test (0 ms)"
TESTS = {
    "fine": ("echo right", ""),
    "parts": ("echo 'test_a (T.test_a) ... ok'; echo \"test_b (T.test_b) ... skipped 'no gold here'\"", ""),
    "whole": ("echo 'skipped: no silver here'; exit 77", "SKIP_RETURN_CODE 77"),
    "gpu": (f"printf '{GTEST}'", r'SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]"'),
}


class Skipped(ScriptTest):
    def ctest(self, *names, ci=False):
        lines = []
        for name in names:
            command, properties = TESTS.get(name, ("exit 1", ""))
            self.program(name, command + "\n")
            lines.append(f'add_test({name} "{self.folder}/bin/{name}")\n')
            if properties:
                lines.append(f"set_tests_properties({name} PROPERTIES {properties})\n")
        self.write("CTestTestfile.cmake", "".join(lines))
        return self.run_script(sys.executable, SCRIPTS / "fa_tools" / "run_ctest.py", "ctest", "--test-dir", self.folder,
                               env={"CI": "true" if ci else "false"})

    def test_reasons_come_before_the_summary(self):
        done = self.ctest("fine", "parts", "whole", "gpu")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        before, told, summary = done.stdout.partition("Not tested here:\n")
        self.assertIn("Test #1: fine", before)
        self.assertNotIn("100% tests passed", before)
        for line in ("  1 because no gold here: parts of parts\n", "  1 because no silver here: whole\n",
                     "  1 because needs a GPU: gpu\n"):
            self.assertIn(line, summary)
        self.assertRegex(summary, r"\n100% tests passed, 0 tests failed out of [24]\n(.|\n)*Total Test time")

    def test_nothing_to_say(self):
        done = self.ctest("fine")
        self.assertEqual(done.returncode, 0)
        self.assertNotIn("Not tested", done.stdout)
        self.assertIn("100% tests passed", done.stdout)

    def test_in_ci_only_what_no_installation_cures_may_be_skipped(self):
        done = self.ctest("fine", "gpu", ci=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        for name, reason in (("parts", "no gold here"), ("whole", "no silver here")):
            done = self.ctest("fine", name, ci=True)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(f"error: in CI nothing may be skipped because {reason}", done.stdout)

    def test_a_failure_is_a_failure(self):
        done = self.ctest("fine", "bad", ci=True)
        self.assertEqual(done.returncode, 8, done.stdout)
        self.assertIn("50% tests passed", done.stdout)


if __name__ == "__main__":
    main()
