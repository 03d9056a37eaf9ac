"""The checkpoints: the form of their questions and where the right answers are; the tool that asks and grades them."""

import json
import re
import shutil
import subprocess
from collections import Counter

from support import ROOT, ScriptTest, main

from fa_tools import tools
from fa_tools.press import links, quiz

PAGE = ROOT / "docs" / "checkpoints.md"
PAGES = {path.name[:2]: path for path in sorted((ROOT / "docs").glob("[0-9][0-9]_*.md"))}
KNOWN = quiz.chapters(PAGE.read_text(encoding="utf-8"))
QUESTIONS = [question for chapter in KNOWN.values() for question in chapter.questions]


class Page(ScriptTest):
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

    def test_every_answer_is_explained(self):
        for question in QUESTIONS:
            with self.subTest(question.text):
                self.assertEqual({question.right, *question.others}, set(question.choices))
                for why in (question.because, *question.others.values()):
                    self.assertGreaterEqual(len(why.split()), 4, why)

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
        skills = re.findall(r"^\| \[(\d\d)\]\(#[\w-]+\) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
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

    def quiz(self, *arguments):
        return self.run_script(self.root / "scripts" / "fa", "quiz", *arguments)

    def answer(self, typed, *arguments):
        """The quiz with what a reader types."""
        return subprocess.run([str(self.root / "scripts" / "fa"), "quiz", *arguments], input=typed, capture_output=True,
                              text=True, timeout=60, check=False)

    def test_grades_letters(self):
        done = self.quiz("05", "--answers", self.right)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "05: 5 of 5 right.\n", ""))
        done = self.quiz("5", "--answers", self.right.upper())
        self.assertEqual((done.returncode, done.stdout), (0, "05: 5 of 5 right.\n"))
        done = self.quiz("05", "--answers", self.wrong[0] + self.right[1:3] + self.wrong[3:])
        self.assertEqual((done.returncode, done.stdout), (1, "05: 2 of 5 right. Look again at questions 1, 4, 5.\n"))
        self.assertFalse(self.scores.exists(), "grading keeps nothing")

    def test_json(self):
        done = self.quiz("05", "--answers", self.right[:4] + self.wrong[4], "--json")
        result = json.loads(done.stdout)
        self.assertEqual((done.returncode, result["chapter"], result["score"], result["of"]), (1, "05", 4, 5))
        self.assertEqual(result["answers"][4], {"question": 5, "given": self.wrong[4], "right": self.right[4]})
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
        self.assert_one_sentence(self.quiz("17"), "00 to 16", "'17'")
        self.assert_one_sentence(self.quiz("05", "--answers", "abc"), "5 letters", "'abc' has 3")
        self.assert_one_sentence(self.quiz("05", "--answers", "abzca"), "question 3 of chapter 05", "'z'")
        self.assert_one_sentence(self.quiz("05", "--list"), "--list")


if __name__ == "__main__":
    main()
