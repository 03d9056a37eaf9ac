"""What is written: the linter's habits and budgets, and that no page breaks them; the site's links with the glossary, in both
directions; and that its entries say enough. The checkpoints: the form of their questions and where the right answers are; the
tool that asks and grades them."""

import json
import re
import shutil
import sys
import unittest
from collections import Counter
from types import SimpleNamespace
from unittest import mock

from support import ROOT, ScriptTest, main

sys.path.insert(0, str(ROOT / "docs" / "site"))
from book import glossary
from fa_tools import tools
from fa_tools.documents import links, prose, quiz

def found(text, name="docs/appendix/page.md"):
    return [problem for _, problem in prose.check(name, text)]


class Habits(unittest.TestCase):
    def test_flagged(self):
        for text, cure in (("It keeps 32 rows a CTA.", "per"), ("One thread an element reads it.", "per"),
                           ("Of matrix 0 lane 5 gets two.", "subject"),
                           ("It hardly matters.", "a tic"), ("It waits for\never.", "a tic"),
                           ("Kernel 12 makes 603 TFLOP/s.", "reaches"), ("- A list: rows a warp.", "per"),
                           ("## Rows a warp", "per"), ("![Which bytes a lane loads](a.svg)", "per"),
                           ("A " + "very " * 40 + "long one.", "a sentence of 43 words"),
                           ("Short it is. " * 31, "a paragraph of 93 words")):
            with self.subTest(text[:40]):
                self.assertEqual(len(found(text)), 1, found(text))
                self.assertIn(cure, found(text)[0])

    def test_left_alone(self):
        for text in ("```text\nrows a CTA, hardly\n```", "    rows a CTA, in a formula", "`rows a CTA`",
                     "<!-- needs: rows a CTA -->", "| rows a CTA | hardly |", "Who waits for whom? Nobody, so that all go on.",
                     "The copy of a tile is a box.", "It reads a tile.", "<!-- of two lines:\nrows a CTA -->\n\nGood.",
                     "1. One.\n\n   | rows a CTA | hardly |", "<!-- entries: a.md -->\nrows a CTA\n<!-- /entries -->\n\nGood."):
            with self.subTest(text):
                self.assertEqual(found(text), [])

    def test_comments_of_a_kernel(self):
        source = "// Rows a CTA, and\n// keys a tile.\nint a;  // rows a CTA\n//   lane  rows a CTA\n// [region]\n"
        self.assertEqual(found(source, "kernels/01_naive.cu"), [
            '"Rows a CTA": write "per" where "a" means per', '"keys a tile": write "per" where "a" means per'])


class Budgets(unittest.TestCase):
    CHAPTER = "docs/12_tma.md"

    def test_of_a_chapter(self):
        many = "\n\n".join(["Eight words are here in every one sentence."] * 280)
        self.assertEqual(found(many, self.CHAPTER), ["2240 words outside of folds, at most 2200"])
        self.assertEqual(found(f"<details>\n<summary>More</summary>\n\n{many}\n\n</details>\n", self.CHAPTER), [])
        self.assertEqual(found(many, "docs/11_wgmma.md"), [])
        self.assertEqual(found(many + "\n\n" + many, "docs/beyond/causal.md"), ["4480 words outside of folds, at most 2500"])
        tables = "\n\n".join(["| a |\n|-|\n| b |"] * 5)
        self.assertEqual(found(tables, self.CHAPTER), ["5 tables outside of folds, at most 4"])
        links = "[a](appendix/notation.md#a) " * 11
        self.assertEqual(found(links, self.CHAPTER), ["11 links to the glossary outside of folds, at most 10"])


class Figures(ScriptTest):
    SHORT, LONG = "We see 4 of them. ", "Kernel 12 and kernels 10 and 11 take 1, 2.5, 3 or `4` of the 1,000 slots that are left. "

    def test_of_a_page(self):
        page = self.SHORT + self.LONG
        figures = prose.figures_of(page)
        self.assertEqual(figures, (12.5, 50, 200, 50, 40))
        left_out = ("```text\n1 2 3\n```", "| 1 |\n|-|\n| 2 |", "# 5 words", "$$1 + 2$$", "Run: 7.", "<details>\n\nWe, 8.\n\n</details>",
                    "## Further reading\n\nWe read 9.")
        self.assertEqual(prose.figures_of("\n\n".join((page, *left_out))), figures)
        self.assertEqual(prose.figures_of("**3. You count (5 min).** " + page), figures)
        self.assertIsNone(prose.figures_of("\n\n".join(left_out)))

    def test_stars_are_outside_the_aims_and_fail_nothing(self):
        page = self.write("page.md", self.SHORT * 3)
        done = self.run_script(ROOT / "scripts" / "fa", "prose", page, code=0)
        cells = done.stdout.splitlines()[-1].split()
        self.assertEqual(cells[1:], ["5.0*", "100.0", "%*", "200.0*", "0.0", "%", "200.0*"])


class ThisCheckout(ScriptTest):
    def test_every_page_and_kernel(self):
        for path in prose.files():
            with self.subTest(path.name):
                self.assertEqual(prose.check(prose.relative(path), path.read_text(encoding="utf-8")), [])


GLOSSARY = """# Glossary

#### bank
Four bytes wide.

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

    def link(self, pages):
        warnings = []
        with mock.patch.object(glossary, "read_forms", lambda _: FORMS):
            glossary.link(pages, warnings.append)
        return warnings

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
        warnings = self.link(pages)
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
                text = re.split("<!-- forms: |\n### ", entry)[0].strip()
                self.assertRegex(text, r" \*[^*]+\*\Z")
                self.assertLessEqual(len(re.findall(r"[.:;] ", re.sub(r" \*[^*]+\*\Z", "", text))), 4, "one or two sentences")


PAGE = ROOT / "docs" / "checkpoints.md"
PAGES = {path.name[:2]: path for path in sorted((ROOT / "docs").glob("[0-9][0-9]_*.md"))}
KNOWN = quiz.chapters(PAGE.read_text(encoding="utf-8"))
QUESTIONS = [question for chapter in KNOWN.values() for question in chapter.questions]


class Questions(ScriptTest):
    def test_five_questions_on_each_chapter(self):
        self.assertEqual(list(KNOWN), list(PAGES))
        for number, chapter in KNOWN.items():
            with self.subTest(number):
                heading = PAGES[number].read_text(encoding="utf-8").partition("\n")[0]
                self.assertEqual(f"# {chapter.number}: {chapter.title}", heading)
                self.assertEqual(len(chapter.questions), 5)

    def test_nothing_is_asked_or_offered_twice(self):
        texts = [question.text for question in QUESTIONS]
        self.assertEqual(len(set(texts)), len(texts))
        for question in QUESTIONS:
            with self.subTest(question.text):
                self.assertTrue(question.text.endswith("?"))
                self.assertEqual(len(set(question.choices.values())), len(question.choices))

    def test_the_place_of_the_right_answer_tells_nothing(self):
        places = Counter(question.right for question in QUESTIONS)
        for letter in "abc":
            self.assertGreaterEqual(places[letter], 0.25 * len(QUESTIONS), letter)
        for number, chapter in KNOWN.items():
            rights = [question.right for question in chapter.questions]
            self.assertLessEqual(Counter(rights).most_common(1)[0][1], 2, (number, rights))

    def test_the_length_of_the_right_answer_tells_nothing(self):
        longest = 0
        for question in QUESTIONS:
            lengths = {letter: len(quiz.plain(choice)) for letter, choice in question.choices.items()}
            longest += all(lengths[question.right] > lengths[other] for other in question.others)
        self.assertTrue(0.2 <= longest / len(QUESTIONS) <= 0.4, f"{longest} of {len(QUESTIONS)} are the longest")

    def test_each_chapter_leads_to_its_questions(self):
        for number, path in PAGES.items():
            text = path.read_text(encoding="utf-8")
            own = text[text.rindex("\n## Your turn\n" if number != "00" else "\n## Exercises\n") :].split("\n## ")[1]
            title = KNOWN[number].title
            self.assertIn(f"](checkpoints.md#{links.slug(f'{number}: {title}', {})})", own, path.name)

    def test_one_line_says_what_a_reader_can_do(self):
        contents = (PAGE.parent / "README.md").read_text(encoding="utf-8")
        skills = re.findall(r"^\| \[(\d\d)_\w+\]\(\1_\w+\.md\) \| ([^|]+) \|", contents, re.MULTILINE)
        self.assertEqual([number for number, _ in skills], list(KNOWN))
        for number, skill in skills:
            self.assertTrue(7 <= len(skill.split()) <= 30, number)

    def test_a_question_in_another_form_is_refused(self):
        text = PAGE.read_text(encoding="utf-8")
        at = text.index("## 05: ")
        section = text[at : text.index("## 06: ")]
        right = KNOWN["05"].questions[0].right
        other = next(iter(KNOWN["05"].questions[0].others))
        for old, new in ((f"**{right}.** ", ""), (f"**{right}.** ", f"**{other}.** "), ("- **c** ", "- **d** "), ("**1. ", "**2. ")):
            with self.subTest(old + " becomes " + new):
                broken = section.replace(old, new, 1)
                self.assertNotEqual(broken, section)
                with self.assertRaisesRegex(tools.Refused, "question 1 of chapter 05"):
                    quiz.chapters(text.replace(section, broken))


class Tool(ScriptTest):
    def setUp(self):
        super().setUp()
        self.root = self.checkout()
        (self.root / "docs").mkdir()
        shutil.copy(PAGE, self.root / "docs")
        self.scores = self.root / "try" / "quiz.json"
        self.right = "".join(question.right for question in KNOWN["05"].questions)
        self.wrong = "".join(next(iter(question.others)) for question in KNOWN["05"].questions)

    def quiz(self, *arguments, **options):
        return self.run_script(self.root / "scripts" / "fa", "quiz", *arguments, **options)

    def answer(self, typed, *arguments):
        """The quiz with what a reader types."""
        return self.quiz(*arguments, input=typed)

    def test_grades_letters(self):
        some = self.right[:4] + self.wrong[4]
        done, result = self.quiz("5", "--answers", some.upper()), json.loads(self.quiz("05", "--answers", some, "--json").stdout)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "05: 4 of 5 right. Look again at question 5.\n", ""))
        self.assertEqual((result["chapter"], result["score"], result["of"]), ("05", 4, 5))
        self.assertEqual(result["answers"][4], {"question": 5, "given": self.wrong[4], "right": self.right[4]})
        self.assertFalse(self.scores.exists(), "grading keeps nothing")
        asked = self.answer("\n".join(self.right) + "\n", "05", "--json")
        self.assertEqual((asked.returncode, json.loads(asked.stdout)["score"]), (0, 5))
        self.assertIn("Your answer", asked.stderr)

    def test_asks_explains_and_keeps_the_best_score(self):
        done = self.answer("\n".join(self.wrong[:1] + self.right[1:]) + "\n", "05")
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        shown = " ".join(done.stdout.split())
        for question in KNOWN["05"].questions:
            for text in (question.text, *question.choices.values(), question.because, *question.others.values()):
                self.assertIn(quiz.plain(text), shown.replace("\n", " "))
        self.assertIn(f"Not {self.wrong[0]}, but {self.right[0]}.", shown)
        self.assertEqual(shown.count(" Right. "), 4)
        self.assertNotIn("<!--", shown)
        self.assertEqual(json.loads(self.scores.read_text()), {"05": 4})
        self.answer("\n".join(self.wrong) + "\n", "05")
        self.assertEqual(json.loads(self.scores.read_text()), {"05": 4}, "a worse score replaces no better one")
        self.assertEqual(self.answer("\n".join(self.right) + "\n", "05").returncode, 0)
        self.assertEqual(json.loads(self.scores.read_text()), {"05": 5})

    def test_lists_chapters_with_scores(self):
        self.write(self.scores, json.dumps({"05": 3}))
        done = self.quiz("--list")
        self.assertEqual((done.returncode, len(done.stdout.splitlines())), (0, len(KNOWN)))
        self.assertRegex(done.stdout, r"(?m)^04  not tried  \w.+\n05  3 of 5     \w")
        rows = json.loads(self.quiz("--list", "--json").stdout)["chapters"]
        self.assertEqual([(row["chapter"], row["best"], row["of"]) for row in rows[4:6]], [("04", None, 5), ("05", 3, 5)])

    def test_bad_arguments(self):
        self.assert_one_sentence(self.quiz("99"), f"00 to {max(KNOWN)}", "'99'")
        self.assert_one_sentence(self.quiz("05", "--answers", "abc"), "5 letters", "'abc' has 3")
        self.assert_one_sentence(self.quiz("05", "--answers", "abzca"), "question 3 of chapter 05", "'z'")
        self.assert_one_sentence(self.quiz("05", "--list"), "--list")


if __name__ == "__main__":
    main()
