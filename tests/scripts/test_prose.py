"""The linter for prose: what it flags, what it leaves alone, and that no page has any of it."""

import unittest

from support import ScriptTest, main

from fa_tools import prose


def found(text, name="docs/appendix/page.md"):
    return [problem for _, problem in prose.check(name, text)]


class Habits(unittest.TestCase):
    def test_flagged(self):
        for text, cure in (("It keeps 32 rows a CTA.", "per"), ("One thread an element reads it.", "per"),
                           ("Nobody waits.", "person"), ("The warp who waits is late.", "person"),
                           ("It waits so that we can see.", "because"), ("Of matrix 0 lane 5 gets two.", "subject"),
                           ("It hardly matters.", "a tic"), ("It waits for\never.", "a tic"),
                           ("Kernel 12 makes 603 TFLOP/s.", "reaches"), ("- A list: rows a warp.", "per"),
                           ("## Nobody here", "person"), ("![Everyone waits for the tile](a.svg)", "person"),
                           ("A " + "very " * 40 + "long one.", "a sentence of 43 words"),
                           ("Short it is. " * 31, "a paragraph of 93 words")):
            with self.subTest(text[:40]):
                self.assertEqual(len(found(text)), 1, found(text))
                self.assertIn(cure, found(text)[0])

    def test_left_alone(self):
        for text in ("```text\nrows a CTA, nobody, so that\n```", "    nobody, in a formula", "`so that`",
                     "<!-- needs: nobody -->", "| rows a CTA | nobody |", "Readers who know CUDA can skip this.",
                     "The copy of a tile is a box.", "It reads a tile.", "<!-- of two lines:\nnobody -->\n\nGood.",
                     "1. One.\n\n   | rows a CTA | nobody |", "<!-- entries: a.md -->\nnobody\n<!-- /entries -->\n\nGood."):
            with self.subTest(text):
                self.assertEqual(found(text), [])

    def test_comments_of_a_kernel(self):
        source = "// Rows a CTA, and\n// keys a tile.\nint a;  // nobody\n//   lane  rows a CTA\n// [region]\n"
        self.assertEqual(found(source, "kernels/01_naive.cu"), [
            '"Rows a CTA": write "per" where "a" means per', '"keys a tile": write "per" where "a" means per'])


class Budgets(unittest.TestCase):
    CHAPTER = "docs/12_tma.md"

    def test_of_a_chapter(self):
        said = "You and we. " * 5 + "\n\n"
        self.assertEqual(found(said, self.CHAPTER), [])
        self.assertEqual(found("Plain.", self.CHAPTER), ['"you" and "we" 0 times, at least 10'])
        many = "\n\n".join(["Eight words are here in every one sentence."] * 260)
        self.assertEqual(found(said + many, self.CHAPTER), ["2095 words outside of folds, at most 2000"])
        self.assertEqual(found(f"{said}<details>\n<summary>More</summary>\n\n{many}\n\n</details>\n", self.CHAPTER), [])
        self.assertEqual(found(said + many, "docs/11_wgmma.md"), [])
        tables = "\n\n".join(["| a |\n|-|\n| b |"] * 5)
        self.assertEqual(found(said + tables, self.CHAPTER), ["5 tables outside of folds, at most 4"])
        links = "[a](appendix/notation.md#a) " * 11
        self.assertEqual(found(said + links, self.CHAPTER), ["11 links to the glossary outside of folds, at most 10"])


class ThisCheckout(ScriptTest):
    def test_every_page_and_kernel(self):
        for path in prose.files():
            with self.subTest(path.name):
                self.assertEqual(prose.check(prose.relative(path), path.read_text(encoding="utf-8")), [])


if __name__ == "__main__":
    main()
