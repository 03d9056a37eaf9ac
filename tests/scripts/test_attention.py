"""Chapter 00, and the online softmax of 02: against three passes, its program, the solutions, and the arithmetic of the text."""

import io
import math
import random
import re
import struct
import sys
import unittest
from contextlib import redirect_stdout

from support import ROOT, SCRIPTS, ScriptTest, main

from fa_tools.press.figures.first_pictures import FORMATS, STEPS, largest
from fa_tools.product.intensity import intensity
from fa_tools.product.limits import attention_flops, machine_named
from fa_tools.product.online_softmax import NOTHING, SCORES, VALUES, add_tile, merge, three_passes, tiles_of

PROGRAM = SCRIPTS / "fa", "softmax"
CHAPTER, ONLINE = ((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("00_attention", "02_online_softmax"))


def rows(count=40):
    """Random rows of every kind: ordinary, rising, falling, equal, and scores at which e^x overflows."""
    generator = random.Random(0)
    for i in range(count):
        length = generator.randrange(1, 20)
        scores = [generator.gauss(0, (1, 30, 900)[i % 3]) for _ in range(length)]
        scores = (scores, sorted(scores), sorted(scores)[::-1], [scores[0]] * length)[i // 3 % 4]
        yield scores, [generator.gauss(0, 1) for _ in range(length)]


class OnlineSoftmax(unittest.TestCase):
    def assert_equal(self, state, exact):
        self.assertEqual(state.m, exact.m)
        for one, other in ((state.l, exact.l), (state.o, exact.o)):
            self.assertTrue(math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-12), (state, exact))

    def test_every_tile_size_gives_what_three_passes_give(self):
        for scores, values in rows():
            for tile in (1, 2, 3, len(scores)):
                state = NOTHING
                for keys in tiles_of(scores, tile):
                    state, rescale, weights = add_tile(state, [scores[j] for j in keys], [values[j] for j in keys])
                    self.assertLessEqual(max(rescale, *weights), 1)
                self.assert_equal(state, three_passes(scores, values))

    def test_merge(self):
        for scores, values in rows():
            parts = [add_tile(NOTHING, [s], [v])[0] for s, v in zip(scores, values)]
            left = right = NOTHING
            for part in parts:
                left = merge(left, part)
            for part in reversed(parts):
                right = merge(part, right)
            self.assert_equal(left, three_passes(scores, values))
            self.assert_equal(right, three_passes(scores, values))
        self.assertEqual(merge(NOTHING, NOTHING), NOTHING)


class Program(ScriptTest):
    def run_program(self, *arguments):
        return self.run_script(sys.executable, "-B", PROGRAM, *arguments)

    def test_table(self):
        done = self.run_program("--scores", "0,0,0,0,100", "--values", "1,2,3,4,9", "--tile", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[4].split()[-3:], ["4.0000", "10.0000", "2.5000"])
        self.assertEqual(lines[5].split()[:4], ["1", "100", "100", "0.0000"])
        self.assertEqual(lines[5].split()[-1], "9.0000")
        self.assertLessEqual(max(map(len, lines)), 100)

    def test_refused(self):
        self.assert_one_sentence(self.run_program("--scores", "1,2"), "there are 2 scores and 6 values")
        self.assert_one_sentence(self.run_program("--scores", "1,x"), "--scores takes numbers")
        self.assert_one_sentence(self.run_program("--values", "1,inf"), "--values takes numbers")
        self.assert_one_sentence(self.run_program("--tile", "5"), "--tile must be between 1 and 4, not 5")


class Chapter(unittest.TestCase):
    def test_each_exercise_has_its_solution(self):
        exercises = re.split(r"^\*\*\d\. ", CHAPTER.split("## Exercises")[1], flags=re.MULTILINE)[1:]
        self.assertEqual(len(exercises), 3)
        for text in exercises:
            self.assertIn("<details>\n<summary>Solution</summary>\n\n", text)

    def test_balance(self):
        """Exercise 1."""
        _, machine = machine_named("H200")
        tokens = math.ceil(2 * machine["tflops"]["tensor"] / machine["tb_per_s"]["hbm"])
        self.assertIn(f"so it needs {tokens} tokens", CHAPTER)
        needed = machine["tflops"]["tensor"] / machine["tb_per_s"]["l2"]
        few, enough = (intensity("l2", m, 64, 128, 4096).intensity for m in (64, 128))
        self.assertLess(few, needed)
        self.assertGreater(enough, needed)
        self.assertIn(f"that is {few:.1f} for 64 queries, which is too little, and {enough:.1f} for 128.", CHAPTER)

    def test_states_of_a_few_keys(self):
        """Exercise 5 of chapter 02."""
        parts = [add_tile(NOTHING, SCORES[keys], VALUES[keys])[0] for keys in (slice(3), slice(3, 6))]
        words = " ".join(ONLINE.split())
        for state in (*parts, merge(*parts)):
            self.assertIn(f"({state.m:g}, {state.l:.4f}, {state.o:.4f})", words)

    def test_rounding(self):
        """Exercise 3: the program prints what the chapter shows, and its bf16 is the type."""
        code, shown = re.search(r"```python\n(import math, struct\n.*?)```\n\n```text\n(.*?)```\n", CHAPTER, re.DOTALL).groups()
        names, printed = {}, io.StringIO()
        with redirect_stdout(printed):
            exec(code, names)
        self.assertEqual(printed.getvalue(), shown)
        self.assertEqual([names["bf16"](x) for x in (1 + 2**-8, 1 + 3 * 2**-8, -2.0)], [1, 1 + 2**-6, -2])
        self.assertEqual(names["fp16"](65504.0), 65504)
        self.assertRaises(OverflowError, struct.pack, "<e", 65520.0)

    def test_intensity_with_the_softmax(self):
        """As Flash Attention from Scratch counts a tile of queries against all keys."""
        tile = 2 * 64 * 32 * 128 + 64 * (5 * 32 + 128 + 4)
        self.assertAlmostEqual(intensity("l2", 64, 32, 128, 4096, softmax=True).intensity,
                               tile * (4096 // 32) / (128 * 2 * (64 + 4096) * 2))

    def test_intensity_of_one_head(self):
        self.assertEqual(f"{attention_flops(1, 1, 4096, 128) / 1e9:.1f}", "8.6")
        hbm, shared = (intensity(level, 64, 64, 128, 4096) for level in ("hbm", "shared"))
        self.assertEqual((f"{hbm.bytes / 1e6:.1f}", hbm.intensity), ("4.2", 2048))
        self.assertIn("= 8.6 GFLOP and moves $8 \\cdot 4096 \\cdot 128$ = 4.2 MB:\n2,048 FLOPs per byte.", CHAPTER)
        self.assertEqual((f"{shared.bytes / 1e6:.0f}", f"{shared.bytes / 64e6:.2f}"), ("739", "11.55"))

    def test_a_step_of_the_map_per_kernel(self):
        self.assertEqual(len(STEPS), len(list((ROOT / "kernels").glob("[0-9][0-9]_*.cu"))))

    def test_cycles_of_a_score(self):
        """What "What is not a product" says of exponentials and products."""
        sm = machine_named("H200")[1]["sm"]
        self.assertEqual(1 / sm["exp2"], 1 / 16)
        self.assertEqual(4 * 128 / sm["wgmma_flops"], 1 / 8)
        self.assertEqual(4 * 64 / sm["wgmma_flops"], 1 / sm["exp2"])
        self.assertIn("At $D = 128$ that is 1/16 of a cycle for the exponential and 1/8 for the products; at $D = 64$ both take\n"
                      "the same time:", CHAPTER)

    def test_attention_beside_the_rest_of_a_layer(self):
        """What "Why attention" says of one layer, per token, and exercise 2."""
        def share(tokens, width):
            attention = attention_flops(1, width // 128, tokens, 128) / tokens
            return attention / (attention + 24 * width**2)
        self.assertEqual([share(tokens, 2048) for tokens in (12288, 4096, 49152)], [0.5, 0.25, 0.8])
        self.assertIn("At\n$N = 6 d$ = 12,288 tokens both are equal. At 4096 tokens attention has a quarter of the FLOPs, and at 49,152 four fifths.",
                      CHAPTER)
        self.assertEqual(share(49152, 8192), 0.5)
        self.assertIn("at $N = 6 d$ = 49,152 tokens.", CHAPTER)

    def test_formats(self):
        self.assertEqual([1 + sum(FORMATS[name]) for name in ("fp32", "bf16", "fp16")], [32, 16, 16])
        self.assertEqual(largest(*FORMATS["fp16"]), 65504)
        self.assertEqual(f"{largest(*FORMATS['fp32']):.9g}", "3.40282347e+38")
        ends = {name: f"{math.log(largest(*FORMATS[name])):.1f}" for name in FORMATS}
        self.assertEqual(ends["fp32"], ends["bf16"])
        self.assertIn(f"$e^x$ overflows an fp32 beyond $x = {ends['fp32']}$", CHAPTER)
        self.assertIn(f"$e^x$ overflows it beyond $x = {ends['fp16']}$", CHAPTER)

    def test_share_of_bugs_that_ordinary_inputs_miss(self):
        bugs = (ROOT / "docs" / "bugs.md").read_text(encoding="utf-8")
        right, of_all = map(int, re.search(r"\*\*(\d+) of (\d+) bugs give right numbers on ordinary inputs", bugs).groups())
        self.assertIn("[Nearly a third of the seeded bugs]", CHAPTER)
        self.assertTrue(0.28 < right / of_all < 0.334, right / of_all)


if __name__ == "__main__":
    main()
