"""The site's links with the glossary: what is prose, which use is the first, both directions; and that entries say enough."""

import re
import sys
import unittest
from types import SimpleNamespace
from unittest import mock

from support import ROOT, main

sys.path.insert(0, str(ROOT / "docs" / "site"))
from book import glossary

TEXT = """# Glossary

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
FORMS = glossary.read_forms(TEXT)
TIPS = {"bank": 'Four "bytes"'}


def linked(html, number=2, **options):
    """The page with [words](anchor) in place of its links to entries."""
    html, found = glossary.linked(html, FORMS, "g.html", number, TIPS, **options)
    return re.sub(r'<a class="term" href="g\.html#([\w-]+)" title="[^"]*">(.*?)</a>', r"[\2](\1)", html, flags=re.DOTALL), found


class Glossary(unittest.TestCase):
    def test_first_uses(self):
        html, found = linked("<p>Banks here.\nA bank conflict, a bank\nconflict, two bank conflicts, a bank.</p><p>The phase.</p>")
        self.assertEqual(html, "<p>[Banks](bank) here.\nA [bank conflict](bank-conflict), a bank\nconflict, two bank conflicts, "
                               "a bank.</p><p>The [phase](phase).</p>")
        self.assertEqual(found, {"bank", "bank-conflict", "phase"})
        self.assertEqual(linked("<p>A bank\nconflict.</p>")[0], "<p>A [bank\nconflict](bank-conflict).</p>")

    def test_a_link_set_by_hand_is_the_only_one(self):
        html = '<p>A bank, <a href="g.html#bank">the bank</a>, a bank.</p>'
        self.assertEqual(linked(html), (html, {"bank"}))

    def test_refusals(self):
        for change, words in ((("banks -->", "banks, phase -->"), "the form phase belongs to two entries"),
                              (("<!-- forms: bank, banks -->\n", ""), "the entry #bank has no forms")):
            with self.assertRaisesRegex(ValueError, words):
                glossary.read_forms(TEXT.replace(*change))

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


class ThisCheckout(unittest.TestCase):
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
