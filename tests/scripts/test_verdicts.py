"""scripts/fa verdicts and the test that compares its lines with an H200's, with a stand-in for the program."""

import sys

from support import ROOT, SCRIPTS, ScriptTest, main

GOLDEN = ROOT / "tests" / "golden" / "test_verdicts.py"
PROGRAM = """#!/bin/bash
# The first problems take the longest.
[[ "$*" == *"fp16 --head-dim 64"* ]] && sleep 0.2
second=wrong
[[ "$*" == *"bf16 --head-dim 128"*tiny* ]] && { %s; }
echo "kernel  status"
echo "01_naive  passed"
echo "02_online_softmax  $second"
exit 1
"""
INPUTS = ("normal", "large", "dominant_key", "equal_keys", "increasing_max", "tiny", "one_hot_v", "hot_first_block",
          "hotter_blocks", "hot_row", "hot_tiles", "dominant_first", "dominant_last", "huge_scores")
GROUPS = [f"{dtype} d{d}" for dtype in ("fp16", "bf16") for d in (64, 128)]


class Verdicts(ScriptTest):
    def call(self, special, *command):
        program = self.write("attention", PROGRAM % special)
        program.chmod(0o755)
        return self.run_script(*(command or [SCRIPTS / "fa", "verdicts"]), "--quick", program)

    def lines(self, *left_out):
        failures = [f"{group} N128 B1 H1 {name} seed 1 02_online_softmax wrong" for group in GROUPS for name in INPUTS]
        last = [f"{group} {kernel} {count - (group in left_out) * (count > 0)} of 14 passed" for group in GROUPS
                for kernel, count in (("01_naive", 14), ("02_online_softmax", 0))]
        return [line for line in failures if not any(line.startswith(f"{group} N128 B1 H1 tiny") for group in left_out)] + last

    def test_order(self):
        done = self.call("true")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.splitlines(), self.lines())

    def test_a_crash(self):
        case = "bf16 d128 N128 B1 H1 tiny seed 1"
        for special, words in (("kill -SEGV $$", f"ended with 139 on {case}"), ("exit 3", f"gave no verdict on {case}")):
            with self.subTest(words):
                done = self.call(special)
                self.assert_one_sentence(done, words, "1 of 56 problems", code=3)
                self.assertEqual(done.stdout.splitlines(), self.lines("bf16 d128"))

    def test_comparison(self):
        def compare(special, golden):
            return self.call(special, sys.executable, GOLDEN, self.write("golden.txt", golden))

        golden = "\n".join(self.lines())
        self.assertEqual(compare("true", golden).returncode, 0)
        for special, words in (("echo 01_naive wrong; exit 1", "bf16 d128 02_online_softmax: 13 verdicts on 14 problems"),
                               ("second=nan", "not so on an H200: bf16 d128 N128 B1 H1 tiny seed 1 02_online_softmax nan")):
            done = compare(special, golden)
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stdout)
        done = compare("true", "\n".join(line for line in self.lines() if "02_" not in line))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("02_online_softmax: an H200's verdicts on it are not known", done.stdout)


if __name__ == "__main__":
    main()
