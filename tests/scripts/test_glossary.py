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

    def test_tooltip(self):
        self.assertEqual(glossary.linked("<p>bank</p>", FORMS, "g.html", 2, TIPS)[0],
                         '<p><a class="term" href="g.html#bank" title="Four &quot;bytes&quot;">bank</a></p>')

    def test_what_is_no_prose(self):
        for html in ("<h2>A bank</h2>", "<pre><code>a bank</code></pre>", '<pre class="x"><span></span><code>ldmatrix</code></pre>',
                     "<code>bank</code>", "<table><tr><td>a bank <code>ldmatrix</code></td></tr></table>",
                     '<a href="x.html">the bank</a>', '<img alt="a bank">', "<math><mi>bank</mi></math>",
                     "<summary>bank</summary>", '<h2 id="further-reading">Further reading</h2><p>The bank.</p>',
                     "<p>banking, kbank, a-bank, bank.h</p>", "<p><code>ldmatrix.x4</code> and ldmatrix</p>", "<p>a round</p>"):
            with self.subTest(html):
                self.assertEqual(linked(html), (html, set()))

    def test_what_is(self):
        for html, expected in (("<p><strong>A bank.</strong> More.</p>", "<p><strong>A [bank](bank).</strong> More.</p>"),
                               ("<p>It is <code>ldmatrix</code>.</p>", "<p>It is [<code>ldmatrix</code>](ldmatrix).</p>"),
                               ("<details><summary>bank</summary><p>The bank</p></details>",
                                "<details><summary>bank</summary><p>The [bank](bank)</p></details>"),
                               ("<h2>Bank</h2><p>A bank.</p>", "<h2>Bank</h2><p>A [bank](bank).</p>")):
            with self.subTest(html):
                self.assertEqual(linked(html)[0], expected)

    def test_a_link_set_by_hand_is_the_only_one(self):
        html = '<p>A bank, <a href="g.html#bank">the bank</a>, a bank.</p>'
        self.assertEqual(linked(html), (html, {"bank"}))

    def test_forms_of_some_chapters(self):
        self.assertEqual(linked("<p>phase, round</p>", 1)[0], "<p>phase, [round](phase)</p>")
        self.assertEqual(linked("<p>phase, round</p>", 16)[0], "<p>[phase](phase), round</p>")
        self.assertEqual(linked("<p>phase, round</p>", -1)[0], "<p>phase, round</p>")  # an appendix

    def test_a_form_with_a_comma_in_brackets(self):
        forms = glossary.read_forms("#### N(0, 1)\n\n<!-- forms: N(0, 1), normal, `any(x)` -->\n")
        self.assertEqual(set(forms), {("N(0, 1)", False), ("normal", False), ("any(x)", True)})
        self.assertIn('<a class="term"', glossary.linked("<p>From N(0, 1).</p>", forms, "g.html", 2, TIPS)[0])

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
