"""What is written: the linter's habits and budgets, and that no page breaks them; the site's links with the glossary, in both
directions; and that its entries say enough."""

import re
import sys
import unittest
from types import SimpleNamespace
from unittest import mock

from support import ROOT, ScriptTest, main

sys.path.insert(0, str(ROOT / "docs" / "site"))
from book import glossary
from fa_tools.press import prose

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


GLOSSARY = """# Glossary

#### bank
Four bytes wide.

<!-- forms: bank, banks -->

#### bank conflict
Two words of one bank. Or more.

<!-- forms: bank conflict, bank conflicts -->

#### ldmatrix
Loads.

<!-- forms: `ldmatrix` -->

#### phase
A round.

<!-- forms: phase@02+, round@01 -->
"""
FORMS = glossary.read_forms(GLOSSARY)
TIPS = {"bank": 'Four "bytes"'}


def linked(html):
    """The page with [words](anchor) in place of its links to entries."""
    html, found = glossary.linked(html, FORMS, "g.html", 2, TIPS)
    return re.sub(r'<a class="term" href="g\.html#([\w-]+)" title="[^"]*">(.*?)</a>', r"[\2](\1)", html, flags=re.DOTALL), found


class Glossary(unittest.TestCase):
    def test_first_uses(self):
        html, found = linked("<p>Banks here.\nA bank conflict, a bank\nconflict, two bank conflicts, a bank.</p><p>The phase.</p>")
        self.assertEqual(html, "<p>[Banks](bank) here.\nA [bank conflict](bank-conflict), a bank\nconflict, two bank conflicts, "
                               "a bank.</p><p>The [phase](phase).</p>")
        self.assertEqual(found, {"bank", "bank-conflict", "phase"})
        self.assertEqual(linked("<p>A bank\nconflict.</p>")[0], "<p>A [bank\nconflict](bank-conflict).</p>")

    def test_both_ways(self):
        pages = [SimpleNamespace(path=path, url=url, html=html) for path, url, html in (
            ("docs/02_x.md", "02_x.html", "<p>A bank.</p>"),
            ("docs/appendix/layouts.md", "appendix/layouts.html", "<p>A bank, a phase.</p>"),
            ("docs/appendix/reading.md", "appendix/reading.html", "<p>A bank.</p>"),
            (glossary.GLOSSARY, "appendix/notation.html",
             "<h1>G</h1>" + "".join(f'<h4 id="{x}">{x}</h4><p>{text} <em>A bank conflict.</em></p>' for x, text in (
                 ("bank", "Four bank; bytes."), ("bank-conflict", "Two words of one bank."), ("ldmatrix", "Loads."),
                 ("phase", "A round."))))
        )]
        warnings = []
        with mock.patch.object(glossary, "read_forms", lambda _: FORMS):
            glossary.link(pages, warnings.append)
        self.assertEqual([page.html for page in pages[:3]], [
            '<p>A <a class="term" href="appendix/notation.html#bank" title="Four bank; bytes.">bank</a>.</p>',
            '<p>A <a class="term" href="notation.html#bank" title="Four bank; bytes.">bank</a>, a phase.</p>', "<p>A bank.</p>"])
        entries = pages[3].html
        self.assertIn('<p>Four bank; bytes. <em>A bank conflict.</em></p><p>In <a href="../02_x.html">02</a>, '
                      '<a href="layouts.html">layouts</a></p>', entries)
        self.assertIn('Two words of one <a class="term" href="#bank" title="Four bank; bytes.">bank</a>. <em>', entries)
        self.assertEqual(sorted(warning.split()[-1] for warning in warnings), ["#bank-conflict", "#ldmatrix", "#phase"])


class Entries(unittest.TestCase):
    def test_every_entry_has_its_source(self):
        text = (ROOT / glossary.GLOSSARY).read_text(encoding="utf-8")
        entries = text.split("\n#### ")[1:]
        self.assertEqual(len({form.anchor for form in glossary.read_forms(text).values()}), len(entries))
        self.assertGreaterEqual(len(entries), 90)
        for entry in entries:
            with self.subTest(entry.splitlines()[0]):
                text = entry.split("<!-- forms: ")[0].strip()
                self.assertRegex(text, r" \*[^*]+\*\Z")
                self.assertLessEqual(len(re.findall(r"[.:;] ", re.sub(r" \*[^*]+\*\Z", "", text))), 4, "one or two sentences")


if __name__ == "__main__":
    main()
