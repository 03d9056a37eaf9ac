"""Two results files side by side: what is faster, slower, the same, and what cannot be compared."""

import json
import unittest

from support import CUDA, SCRIPTS, ScriptTest, beyond, cuda_record, cuda_results, emulator_results, main, newest, not_passed, results

from fa_tools.product import compare

COMPARE = SCRIPTS / "fa", "compare"


class Verdicts(unittest.TestCase):
    def test_medians_and_ranges(self):
        a = {"median": 100, "low": 97, "high": 103}
        for median, low, high, expected in (
            (90, 89, 91, "faster"), (110, 109, 111, "slower"),
            (101, 101, 101, "same"),  # in the other's range
            (98.5, 90, 96, "same"),  # outside, but within the threshold
            (110, 102, 120, "same"), (90, 80, 98, "same"),  # far apart, but the ranges overlap
            (104, 103, 105, "same"),  # they touch
            (104, 103.1, 105, "slower"),
        ):
            with self.subTest((median, low, high)):
                self.assertEqual(compare.verdict(a, {"median": median, "low": low, "high": high}, 2), expected)


class Compare(ScriptTest):
    def compare(self, a, b, *arguments):
        return self.run_script(COMPARE, self.write("a.json", a), self.write("b.json", b), *arguments)

    def judged(self, a, b, threshold=2):
        """The pairs by kernel and length, what only A and only B have, and how many pairs have each verdict."""
        pairs, only = compare.compare([a, b], lambda kernel: True, threshold)
        return {(pair["kernel"], pair["seq_len"]): pair for pair in pairs}, only, compare.summary(pairs)

    def test_single_runs(self):
        a = results(CUDA, [cuda_record("01_naive", 100.0), cuda_record("02_online_softmax", 100.0),
                           cuda_record("03_register_tiling", 100.0), cuda_record("04_wmma", 100.0)])
        b = results(CUDA, [cuda_record("01_naive", 104.0), cuda_record("02_online_softmax", 95.0),
                           cuda_record("03_register_tiling", 101.5), cuda_record("05_mma_split_kv", 1.0)])
        pairs, only, summary = self.judged(a, b)
        self.assertEqual([pair["verdict"] for pair in pairs.values()], ["faster", "slower", "same"])
        self.assertAlmostEqual(pairs["01_naive", 1024]["speed"], 1.04)
        self.assertEqual([[kernel for kernel, *_ in side] for side in only], [["04_wmma"], ["05_mma_split_kv"]])
        self.assertEqual(summary, {"faster": 1, "slower": 1, "same": 1})
        self.assertEqual(self.judged(a, b, 6)[2], {"same": 3})
        self.assertIn("\nB against A: 3 same\n", self.compare(a, b, "--threshold", "6").stdout)
        self.assertTrue(self.compare(a, b, "--kernels", "01,peer/fa2").stdout.endswith("\n\nB against A: 1 faster\n"))

    def test_masks_heads_of_keys_and_lengths_are_part_of_the_problem(self):
        full = cuda_record("beyond/causal", 100.0)
        causal, grouped = ({"mask": "causal"}, {"mask": "causal", "kv_heads": 8})
        packed = {"batch": 2, "seq_len": 300, "lengths": [300, 17]}
        a = newest(results(CUDA, [full, beyond(full, 50.0, **causal), beyond(full, 50.0, **grouped), beyond(full, 9.0, **packed)]))
        b = newest(results(CUDA, [beyond(full, 9.0, **packed), beyond(full, 100.0, **causal), full]))
        pairs, only = compare.compare([a, b], lambda kernel: True, 2)
        self.assertEqual([(pair.get("mask"), pair.get("lengths"), pair["verdict"]) for pair in pairs],
                         [(None, (300, 17), "same"), (None, None, "same"), ("causal", None, "faster")])
        self.assertEqual([shape.kv_heads for _, shape, _ in only[0]], [8])
        said = self.compare(a, b).stdout
        for words in ("\nbf16, batch 16, 16 heads, 1024 tokens, head_dim 128\n", ", head_dim 128, causal\n",
                      ", 300 tokens, head_dim 128, packed 300 + 17\n", "only in A: beyond/causal (1 problem)"):
            self.assertIn(words, said)

    def test_what_did_not_pass(self):
        a, b = cuda_results(), cuda_results()
        b["records"][0] = not_passed(b["records"][0], "wrong", "head 1: NaN")
        pairs, _, _ = self.judged(a, b)
        self.assertEqual(pairs["01_naive", 1024]["reason"], "A passed; B wrong (head 1: NaN)")
        self.assertNotIn("speed", pairs["01_naive", 1024])
        shown = self.compare(a, b).stdout
        self.assertIn("not compared: A passed; B wrong (head 1: NaN)", shown)
        self.assertIn("3 not compared", shown)

    def test_emulator(self):
        a, b = emulator_results(), emulator_results()
        b["records"][0]["counters"]["barriers"] += 1
        del b["records"][1]["counters"]["exp2"]
        pairs, _, _ = self.judged(a, b)
        self.assertEqual(pairs["01_naive", 256]["differing"], {"barriers": [64, 65]})
        self.assertEqual((pairs["02_online_softmax", 256]["verdict"], pairs["02_online_softmax", 256]["counters"]),
                         ("same", 5))
        shown = self.compare(a, b).stdout
        self.assertIn("differs in 1 of 6 counters", shown)
        self.assertRegex(shown, r"barriers +64 +65  \+1\.6 %")
        self.assertTrue(shown.endswith("\n1 same, 1 different\n"), shown)

    def test_refused_with_one_sentence(self):
        text = json.dumps(cuda_results())
        other = cuda_results()
        for record in other["records"]:
            record["heads"] = 3
        cases = [(text[: len(text) // 2], "b.json is cut off"), (text.replace("2.5,", "NaN,", 1), "b.json holds NaN"),
                 (text.replace('"schema_version": 1', '"schema_version": 9'), "b.json has schema version 9"),
                 (emulator_results(), "cannot be compared"), (other, "have no kernel on the same problem in common")]
        for content, words in cases:
            with self.subTest(words):
                self.assert_one_sentence(self.compare(cuda_results(), content), words)
        self.assert_one_sentence(self.compare(text, text, "--kernels", "12"), "nothing of 12 on the same problem")
        self.assert_one_sentence(self.compare(text, text, "--threshold", "-1"), "-1 is no percentage")
        self.assert_one_sentence(self.run_script(COMPARE, "a.json"), "required: B.json")


if __name__ == "__main__":
    main()
