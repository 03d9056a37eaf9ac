"""scripts/verdicts.sh: its lines keep their order though the programs run side by side, and a crash is told."""

from support import SCRIPTS, ScriptTest, main

PROGRAM = """#!/bin/bash
# The first problems take the longest.
[[ "$*" == *"fp16 --head-dim 64"* ]] && sleep 0.2
[[ "$*" == *"bf16 --head-dim 128"*tiny* ]] && { %s; }
echo "kernel  status"
echo "01_naive  passed"
echo "02_online_softmax  wrong"
exit 1
"""


class Verdicts(ScriptTest):
    def call(self, special):
        program = self.write("attention", PROGRAM % special)
        program.chmod(0o755)
        return self.run_script(SCRIPTS / "verdicts.sh", "--quick", program)

    def lines(self, *left_out):
        inputs = ("normal", "large", "dominant_key", "equal_keys", "increasing_max", "tiny", "one_hot_v", "hot_first_block",
                  "hotter_blocks", "hot_row", "hot_tiles", "dominant_first", "dominant_last", "huge_scores")
        cases = [f"{dtype} d{d} N128 B1 H1 {name} seed 1" for dtype in ("fp16", "bf16") for d in (64, 128)
                 for name in inputs]
        return [f"{case} {verdict}" for case in cases if case not in left_out
                for verdict in ("01_naive passed", "02_online_softmax wrong")]

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
                self.assertEqual(done.stdout.splitlines(), self.lines(case))


if __name__ == "__main__":
    main()
