"""scripts/fa reproduce without a GPU: what it prints of committed results, and what it refuses. docs/reproduced.md has its tables."""

from support import ROOT, SCRIPTS, ScriptTest, emulator_results, main

from fa_tools.laboratory import reproduce
from fa_tools.tools import read_json

SH = SCRIPTS / "fa", "reproduce"
RESULTS = f"{ROOT}/bench/results/h200_reproduced.jsonl"


class Reproduce(ScriptTest):
    def test_figures_are_those_of_the_columns(self):
        for name in reproduce.NAMES:
            published = reproduce.read_published(name)
            columns = sum(len(column["seq_len"]) for column in published["columns"])
            for row in published["rows"]:
                self.assertEqual({columns}, {len(row[unit]) for unit in reproduce.UNITS if unit in row}, row["there"])

    def test_committed(self):
        done = self.run_script(SH, "leetcuda", "--results", f"{RESULTS}#leetcuda")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
        self.assertIn("- Operations for each score: there 4*D + 5, here and below 4*D.", lines)
        for line in ("split-q+share-kv+stage1 52.1 142.8 – – –",  # 53.15 as they count, over 37.22 of FlashAttention-2
                     "split-q+share-qkv+stage2 53.4 146.2 `10_instruction_tuning` 336 112.5",
                     "FlashAttention-2 36.5 100.0 FlashAttention-2 (PyTorch 2.11) 298 100.0"):
            self.assertIn(line, lines)

    def test_refused(self):
        good = read_json(f"{RESULTS}#leetcuda")
        for content, words in ((emulator_results(), "no times"), ({**good, "records": []}, "no kernel or library that was timed"),
                               (read_json(f"{RESULTS}#fa3-paper"), "was not made by scripts/fa bench --protocol leetcuda")):
            with self.subTest(words):
                self.assert_one_sentence(self.run_script(SH, "leetcuda", "--results", self.write("r.json", content)), words)
        for words, text in (((), "PUBLICATION"), (("medium-post",), "'medium-post'"),
                            (("leetcuda", "--json", "x"), "--json is for scripts/fa bench"),
                            (("leetcuda", "10", "--results", "x"), "nothing is measured")):
            self.assert_one_sentence(self.run_script(SH, *words), text)


if __name__ == "__main__":
    main()
