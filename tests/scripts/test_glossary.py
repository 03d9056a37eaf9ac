"""scripts/glossary.py: what is prose, which use is the first, both directions, and that a second run changes nothing."""

import re

from support import ROOT, SCRIPTS, ScriptTest, main

GLOSSARY = """# Glossary

<!-- entries -->
<!-- /entries -->

#### bank
Four bytes wide.

<!-- used: bank, banks -->
<!-- /used -->

#### bank conflict
Two words of one [bank](#bank).

<!-- used: bank conflict, bank conflicts -->
<!-- /used -->

#### ldmatrix
Loads.

<!-- used: `ldmatrix` -->
<!-- /used -->

#### phase
A round.

<!-- used: phase@02+, round@01 -->
<!-- /used -->
"""
LINK = "[{}](appendix/notation.md#{})"


class Glossary(ScriptTest):
    def setUp(self):
        super().setUp()
        self.root = self.checkout()
        (self.root / "docs" / "appendix").mkdir(parents=True)
        self.entries = self.root / "docs" / "appendix" / "notation.md"
        self.entries.write_text(GLOSSARY)
        self.all = "A bank conflict in a bank of `ldmatrix`, a phase.\n"

    def page(self, text, name="02_x.md"):
        (self.root / "docs" / name).write_text(text)

    def glossary(self, *options):
        return self.run_script(self.root / "scripts" / "glossary.py", *options)

    def linked(self, text):
        """Chapter 02 of this text, linked; chapter 03 uses all terms, so that none is idle."""
        self.page(text)
        self.page(self.all, "03_y.md")
        done = self.glossary()
        self.assertEqual(done.returncode, 0, done.stderr)
        result = (self.root / "docs" / "02_x.md").read_text()
        self.assertEqual(self.glossary().stdout, "", "a second run changes something")
        self.assertEqual(self.glossary("--check").returncode, 0)
        return result

    def test_both_ways(self):
        result = self.linked("Banks here.\nA bank conflict, a bank\nconflict, two bank conflicts.\nThe phase.\n")
        self.assertEqual(result, LINK.format("Banks", "bank") + " here.\nA " + LINK.format("bank conflict", "bank-conflict")
                         + ", a bank\nconflict, two bank conflicts.\nThe " + LINK.format("phase", "phase") + ".\n")
        entries = self.entries.read_text()
        used = re.findall(r"^<!-- used: .+ -->\n(.*)\n<!-- /used -->$", entries, re.MULTILINE)
        both = "In [02](../02_x.md), [03](../03_y.md)"
        self.assertEqual(used, [both, both, "In [03](../03_y.md)", both])
        self.assertIn("<!-- entries -->\n[bank](#bank),\n[bank conflict](#bank-conflict),\n[ldmatrix](#ldmatrix),\n"
                      "[phase](#phase)\n<!-- /entries -->\n", entries)

    def test_over_the_end_of_a_line(self):
        self.assertEqual(self.linked("Of a bank\nconflict.\n"), "Of a " + LINK.format("bank\nconflict", "bank-conflict") + ".\n")

    def test_what_is_no_prose(self):
        for text in ("# A bank\n", "```text\na bank\n```\n", "~~~\na bank\n~~~\n", "    a bank\n", "`bank`, a `b a bank`\n",
                     "| bank | a bank |\n", "[the bank](https://example.com)\n", "[a](bank.md)\n", "![bank](x.svg)\n",
                     "<!-- bank -->\n", "<!-- table: bank -->\n| bank |\nbank\n<!-- /table -->\n", "$$bank$$ and $bank$\n",
                     "<!-- value: bank.json field=x -->bank<!-- /value -->\n", '<picture>\n<img alt="a bank">\n</picture>\n',
                     "<summary>bank</summary>\n", "Text.\n\n## Further reading\n\nThe bank.\n", "banking, kbank, a-bank, bank.h\n",
                     "`ldmatrix.x4` and ldmatrix\n", "a round\n", "1. `ldmatrix` begins a remark.\n"):
            with self.subTest(text):
                self.assertEqual(self.linked(text), text)

    def test_what_is(self):
        for text, expected in (
            ("**A bank.** More.\n", "**A " + LINK.format("bank", "bank") + ".** More.\n"),
            ("- a bank: $x$\n", "- a " + LINK.format("bank", "bank") + ": $x$\n"),
            ("It is `ldmatrix`.\n", "It is " + LINK.format("`ldmatrix`", "ldmatrix") + ".\n"),
            ("<details>\n\nThe bank\n</details>\n", "<details>\n\nThe " + LINK.format("bank", "bank") + "\n</details>\n"),
            ("<!-- value: x.json field=x -->3<!-- /value --> banks\n",
             "<!-- value: x.json field=x -->3<!-- /value --> " + LINK.format("banks", "bank") + "\n"),
        ):
            with self.subTest(text):
                self.assertEqual(self.linked(text), expected)

    def test_an_earlier_use_takes_the_link_over(self):
        linked = self.linked("A bank.\n")
        self.assertEqual(self.linked(f"The bank. {linked}"), "The " + LINK.format("bank", "bank") + ". A bank.\n")
        # Links to other places of the page are nobody's.
        other = "[all](appendix/notation.md#symbols)\n"
        self.assertEqual(self.linked(other), other)

    def test_appendices(self):
        (self.root / "docs" / "appendix" / "layouts.md").write_text("A bank, a phase.\n")
        self.linked("x\n")
        self.assertEqual((self.root / "docs" / "appendix" / "layouts.md").read_text(), "A [bank](notation.md#bank), a phase.\n")
        self.assertIn("In [03](../03_y.md), [layouts](layouts.md)\n", self.entries.read_text())

    def test_entries_lead_to_each_other(self):
        self.entries.write_text(GLOSSARY.replace("A round.", "A round of a bank, a bank conflict, and a phase. *The `ldmatrix`.*")
                                .replace("Two words of one [bank](#bank).", "Two [words](#phase) of a bank."))
        self.linked("x\n")
        entries = self.entries.read_text()
        self.assertIn("A round of a [bank](#bank), a [bank conflict](#bank-conflict), and a phase. *The `ldmatrix`.*\n", entries)
        self.assertIn("Two words of a [bank](#bank).\n", entries)

    def test_check_and_refusals(self):
        self.page(self.all)
        done = self.glossary("--check")
        self.assertEqual(done.returncode, 1)
        self.assertIn("docs/02_x.md: its links with the glossary are out of date", done.stderr)
        self.assertEqual((self.root / "docs" / "02_x.md").read_text(), self.all)
        self.page("A bank.\n")
        self.assert_one_sentence(self.glossary(), "has entries that no page uses: bank conflict, ldmatrix, phase", code=1)
        self.page(self.all)
        for change, words in ((("banks -->", "banks, phase -->"), "has the form phase in two entries, bank and phase"),
                              (("#### bank\n", ""), "before any entry"),
                              (("<!-- /used -->\n\n#### phase", "#### phase"), "is never closed")):
            self.entries.write_text(GLOSSARY.replace(*change))
            self.assert_one_sentence(self.glossary(), words, code=1)


class ThisCheckout(ScriptTest):
    def test_links(self):
        done = self.run_script(SCRIPTS / "glossary.py", "--check")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_every_entry_has_its_source_and_leads_on(self):
        """What a glossary is for: where a word is defined, and where it goes on."""
        entries = (ROOT / "docs" / "appendix" / "notation.md").read_text(encoding="utf-8").split("\n#### ")[1:]
        self.assertGreaterEqual(len(entries), 90)
        for entry in entries:
            with self.subTest(entry.splitlines()[0]):
                text = entry.split("<!-- used: ")[0].strip()
                self.assertRegex(text, r" \*[^*]+\*\Z")
                self.assertLessEqual(len(re.findall(r"[.:;] ", re.sub(r" \*[^*]+\*\Z", "", text))), 4, "one or two sentences")
                self.assertRegex(entry, r"(?m)^In \[")


if __name__ == "__main__":
    main()
