"""Broken kernels: what bugs.toml may say, the page about them, and how a reader meets one."""

import json
import os
import re
import shutil

from support import ROOT, SCRIPTS, ScriptTest, main, seeded_bugs

from fa_tools.documents.doc_tables import SECTIONS, chapters_of
from fa_tools.documents.links import anchors
from fa_tools.tools import read_toml

HERE = ROOT / "tests" / "broken"
PAGE = (ROOT / "docs" / "bugs.md").read_text(encoding="utf-8")
INDEX = PAGE[PAGE.index("\n## From symptom to cause") :]
KERNEL = """#include "common/launch/registry.h"
namespace fa::k01 {
  wait();
  sum += 1;
  store(
      sum);
  wait();
  a.contiguous ? run_with<4, false>(a) : run_with<4, true>(a);
const Registration<Launcher> registration{"01_kernel"};

}  // namespace fa::k01
"""
BUG = """["01_bug"]
what = "It does not wait."
text = "sum += 1;"
replacement = "sum += 2;"
shown_by = "counters"
"""
RACE = {"name": "01_race", "kernel": "01_kernel", "what": "No __syncwarp().", "numbers": {"normal": "right"}, "early": "right",
        "report": "race within a warp"}


class Declarations(ScriptTest):
    def setUp(self):
        super().setUp()
        self.broken = self.folder / "tests" / "broken"
        self.broken.mkdir(parents=True)
        shutil.copy(HERE / "make.py", self.broken)
        (self.folder / "kernels").mkdir()
        (self.folder / "kernels" / "01_kernel.cu").write_text(KERNEL)
        self.source = self.folder / "made" / "out.cu"

    def make(self, bugs, *arguments):
        (self.broken / "bugs.toml").write_text(bugs)
        return self.run_script(self.broken / "make.py", *(arguments or ("--source", self.source, "01_bug")))

    def test_one_replacement_and_the_declaration(self):
        done = self.make(BUG + 'dtypes = ["fp16"]\nproblem = "--heads 3"\nsms = 20\n')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.source.read_text(), '#include "01_bug.cu"\n')
        text = (self.source.parent / "01_bug.cu").read_text()
        self.assertIn('#include "tests/broken/bug.h"\nnamespace fa::broken_01_bug {', text)
        self.assertIn("  wait();\n  sum += 2;\n  store(\n      sum);\n  wait();\n", text)
        self.assertIn('Registration<broken::Only<Launcher, __half>::Of> registration{"01_bug"};', text)
        self.assertIn('.name = "01_bug", .kernel = "01_kernel",\n    .what = R"(It does not wait.)", .shown_by = "counters",\n'
                      '    .fp16 = true, .problem = "--heads 3",\n    .sms = 20, .launches = 1}};', text)
        self.assertIn("  run_with<4, false>(a);\n", text)
        self.assertEqual(text.split("\n").index("  sum += 2;"), KERNEL.split("\n").index("  sum += 1;"), "it has moved")

    def test_a_header_of_the_kernel(self):
        """It comes first, its namespace into that of the bug, and a launcher of another name is registered."""
        folder = self.folder / "kernels" / "beyond"
        folder.mkdir()
        (folder / "deep.h").write_text("#pragma once\n\nnamespace fa::deep {\nint depth = 1;\n}  // namespace fa::deep\n")
        (folder / "far.h").write_text('#pragma once\n#include "kernels/beyond/deep.h"\nnamespace fa::far {\nint far = 2;\n}  // namespace fa::far\n')
        source = KERNEL.replace("fa::k01", "fa::far").replace('"01_kernel"', '"beyond/far"').replace("<Launcher>", "<Steps>")
        (folder / "far.cu").write_text('#include "kernels/beyond/far.h"\n' + source)
        bug = BUG.replace("01_bug", "far_bug").replace("text", 'file = "beyond/deep.h"\ntext', 1)
        bug = bug.replace("sum += 1", "depth = 1").replace("sum += 2", "depth = 3")
        done = self.make(bug, "--source", self.source, "far_bug")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = (self.source.parent / "far_bug.cu").read_text()
        self.assertTrue(text.startswith("\n\nnamespace fa::broken_far_bug::deep {\nint depth = 3;\n"), text)
        self.assertEqual(text.count("depth"), 1)
        self.assertLess(text.index("namespace fa::broken_far_bug {\nint far = 2;"), text.index("sum += 1;"))
        self.assertIn('Registration<broken::Only<Steps, __nv_bfloat16>::Of> registration{"far_bug"}', text)
        self.assertLess(text.index("registration"), text.index("broken::Declaration"))
        self.assertEqual(text.count("broken::Declaration"), 1)
        self.assertNotIn("kernels/beyond", text.replace('.kernel = "beyond/far"', ""))
        self.assertIn("--- kernels/beyond/deep.h\n", self.make(bug, "--meet", "far_bug").stdout)
        self.assertIn("expects 'width;' once in kernels/beyond/deep.h, but", self.make(bug.replace("depth = 1", "width"), "--check").stdout)
        self.assert_one_sentence(self.make(bug.replace("deep.h", "deep.cu"), "--list"),
                                 "far_bug is in 'beyond/deep.cu', which is none of beyond/deep.h, beyond/far.h, beyond/far.cu")

    def test_a_choice_in_two_lines(self):
        """It cannot be taken out of the kernel, because every line keeps its number."""
        for line_end in ("\n      ? ", " ? "):
            source = KERNEL.replace(" ? ", line_end).replace(" : ", "\n      : ")
            (self.folder / "kernels" / "01_kernel.cu").write_text(source)
            done = self.make(BUG, "--check")
            self.assertEqual(done.returncode, 1)
            self.assertIn("01_bug needs 'a.contiguous ?' and both calls behind it in one line of kernels/01_kernel.cu", done.stdout)

    def test_the_kernel_with_nothing_but_the_bug(self):
        left_out = '["01_bug"]\nwhat = "x"\ntext = "wait();"\nwhich = [2, 2]\n'
        for bug, changes in ((BUG, ["-  sum += 1;", "+  sum += 2;"]), (left_out, ["-  wait();"])):
            shown = self.make(bug, "--meet", "01_bug").stdout.splitlines()
            self.assertEqual(shown[2:4], ["--- kernels/01_kernel.cu", "+++ 01_bug"])
            self.assertEqual([line for line in shown[4:] if line.startswith(("+", "-"))], changes)
        self.make(left_out)
        self.assertIn('.shown_by = "report",', (self.source.parent / "01_bug.cu").read_text())

    def test_what_is_made_again_unchanged_is_not_written(self):
        self.make(BUG)
        files = (self.source, self.source.parent / "01_bug.cu")
        for file in files:
            os.utime(file, (1, 1))
        self.make(BUG)
        self.assertEqual([file.stat().st_mtime for file in files], [1, 1])

    def test_refused(self):
        def bug(text, replacement):
            return f'["01_bug"]\nwhat = "x"\ntext = "{text}"\nreplacement = "{replacement}"\n'

        cases = {
            bug("sum += 1;", "sum\\n+= 1;"): "replaces a text by one with another number of lines",
            BUG.replace('"counters"', '"reports"'): "shown by 'reports', which is none of ordinary inputs, hard inputs, report",
            BUG + 'wrong = ["normal"]': "has wrong = ['normal'], which says nothing",
            BUG.replace('what = "It does not wait."', ""): "01_bug lacks 'what'",
            BUG + 'dtypes = ["fp8"]': "has the type 'fp8', but there are bf16, fp16",
            BUG.replace("what", "who"): "has who = 'It does not wait.', which says nothing",
            BUG.replace("01_bug", "31_bug"): "there is no kernel for 31_bug",
            BUG + "which": "tests/broken/bugs.toml is no TOML: ",
        }
        for bugs, sentence in cases.items():
            with self.subTest(bugs):
                self.assert_one_sentence(self.make(bugs), sentence)
        self.assert_one_sentence(self.make(BUG, "01_bug"), "the arguments are --list, ")
        self.assertFalse(self.source.exists())

    def test_a_bug_that_does_not_fit_leaves_the_others_alone(self):
        other = BUG.replace("01_bug", "01_more")

        def bug(text):
            return f'["01_bug"]\nwhat = "x"\ntext = "{text}"\n\n'

        cases = {
            bug("sum += 7;"): ":1: 01_bug expects 'sum += 7;' once in kernels/01_kernel.cu, but it is there 0 times; "
                              "the nearest is line 4: 'sum += 1;'\n",
            bug("product"): ":1: 01_bug expects 'product' once in kernels/01_kernel.cu, but it is there 0 times\n",
            bug("wait();"): ":1: 01_bug expects 'wait();' once in kernels/01_kernel.cu, but it is there 2 times\n",
        }
        for bugs, sentence in cases.items():
            with self.subTest(sentence):
                done = self.make(bugs + other, "--source", self.source, "01_bug", "01_more")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                made = {name: (self.source.parent / f"{name}.cu").read_text() for name in ("01_bug", "01_more")}
                self.assertRegex(made["01_bug"], r"^// 01_bug .*\n$")
                self.assertIn("sum += 2;", made["01_more"])
                done = self.make(bugs + other, "--check")
                self.assertEqual(done.returncode, 1)
                self.assertEqual(done.stdout, f"tests/broken/bugs.toml{sentence}1 of 2 bugs fit their kernels\n")
        self.assert_one_sentence(self.make(bug("sum += 7;"), "--meet", "01_bug"), "01_bug expects 'sum += 7;'")
        done = self.make(other, "--check")
        self.assertEqual((done.returncode, done.stdout), (0, "1 of 1 bugs fit their kernels\n"))

    def test_a_report_that_names_a_statement_of_before(self):
        for statement, code in (("store( sum);", 0), ("store( total);", 1)):
            (self.broken / "facts.json").write_text(json.dumps([{"name": "01_bug", "at": ["sum += 2;", statement]}]))
            done = self.make(BUG, "--check")
            self.assertEqual(done.returncode, code)
            self.assertEqual("names 'store( total);', which the kernel does not have" in done.stdout, code == 1)

    def test_every_bug_has_a_row_and_no_others(self):
        """A bug that does not fit its kernel is missing in the programs; it keeps its row until its text is mended."""
        listed = [line.split("\t") for line in self.run_script(HERE / "make.py", "--list").stdout.splitlines()]
        rows = [[bug["name"], bug["kernel"], bug["what"]] for bug in seeded_bugs()]
        self.assertEqual(sorted(listed), sorted(rows), "tests/broken/facts.json is out of date: scripts/fa adopt writes it")


class Page(ScriptTest):
    def setUp(self):
        super().setUp()
        self.root = self.checkout()

    def refused(self, which, rows):
        (self.root / "rows").mkdir(exist_ok=True)
        (self.root / "rows" / "facts.json").write_text(json.dumps(rows))
        (self.root / "doc.md").write_text(f"<!-- bugs: rows {which} -->\n<!-- /bugs -->\n")
        return self.run_script(self.root / "scripts" / "fa", "sync").stderr

    def test_refused(self):
        self.assertIn("'some' is neither summary, in-short nor a section of the index: wrong-on-", self.refused("some", [RACE]))
        self.assertIn("01_race is reported as 'dread', which is in no section", self.refused("it-hangs", [{**RACE, "report": "dread"}]))
        for rows in ([{}], [1], {"a": 1}):
            self.assertIn("rows is not what the program meet_checked writes", self.refused("it-hangs", rows))

    def test_the_page_has_every_bug_once(self):
        listed = [name for line in re.findall(r"^- ([`\[].*?): ", INDEX, re.MULTILINE) for name in re.findall(r"`(\w+)`", line)]
        self.assertEqual(sorted(listed), sorted(bug["name"] for bug in seeded_bugs()))

    def test_a_link_leads_to_a_section_that_names_the_bug(self):
        """On every page, and in the index each bug that its chapter names has such a link."""
        def names(chapter):
            text = chapter.read_text(encoding="utf-8")
            return set(re.findall(r"\w+", text.partition("\n## Break it\n")[2].partition("\n## ")[0]))

        for page in (ROOT / "docs").rglob("*.md"):
            for name, link in re.findall(r"\[`(\w+)`\]\(([\w/.]+)#break-it\)", page.read_text(encoding="utf-8")):
                self.assertIn(name, names(page.parent / link), f"{page.name}: {link} does not name it")
        for bug in seeded_bugs():
            for each in chapters_of(bug["kernel"]):
                named = bug["name"] in names(ROOT / "docs" / f"{each}.md")
                self.assertEqual(INDEX.count(f"[`{bug['name']}`]({each}.md#break-it)"), named, bug["name"])

    def test_messages_name_sections(self):
        """The sections that the emulator names are on the page, and are those in which its kinds of reports are."""
        source = (ROOT / "common" / "emulator" / "core" / "describe.cpp").read_text(encoding="utf-8")
        names = dict(re.findall(r'\*(k\w+) = "([a-z-]+)"', source))
        kinds = {kind: names[name] for kind, name in re.findall(r'"([^"]+)", (k\w+)\}', source)}
        self.assertGreater(len(kinds), 20)
        self.assertEqual(kinds, {kind: section for section, all_of in SECTIONS.items() for kind in all_of})
        for section in SECTIONS:
            self.assertIn(section, anchors(ROOT / "docs" / "bugs.md"))
            self.assertIn(f"<!-- bugs: tests/broken {section} -->", PAGE)


class Cases(ScriptTest):
    """Bugs that are told by their symptoms. scripts/fa try asks for the rest of what an entry must have."""

    @classmethod
    def setUpClass(cls):
        cls.cases = read_toml(ROOT / "tests" / "tasks" / "cases.toml")
        cls.bugs = {bug["name"]: bug for bug in seeded_bugs()}

    def test_every_case_is_a_bug(self):
        self.assertEqual(list(self.cases), [f"case_{i:02}" for i in range(1, 24)])
        found = [case["bug"] for case in self.cases.values()]
        self.assertEqual(len(set(found)), len(found))
        self.assertLessEqual(set(found), set(self.bugs))

    def test_every_text_is_there(self):
        for name, case in self.cases.items():
            with self.subTest(name):
                for key in ("symptom", "reveal"):
                    self.assertTrue(50 <= len(case[key].split()) <= 120, f"{key}: {len(case[key].split())} words")
                self.assertEqual(len(set(filter(str.strip, case["hints"]))), 3)
                commands = re.findall(r"^  scripts/fa try (\w+) -- --\w", case["symptom"], re.MULTILINE)
                self.assertEqual(set(commands), {name})

    def test_nothing_gives_a_case_away(self):
        top = PAGE[: PAGE.index("\n## From symptom to cause")]
        for name, case in self.cases.items():
            with self.subTest(name):
                told = case["title"] + case["symptom"] + "".join(case["hints"])
                self.assertNotIn(case["bug"], told)
                self.assertNotIn(self.bugs[case["bug"]]["what"], told)
                self.assertNotIn(case["bug"], top)

    def test_the_page_lists_them(self):
        for name, case in self.cases.items():
            kernel = self.bugs[case["bug"]]["kernel"]
            self.assertIn(f"\n| [`{name}`]({kernel}.md) | {case['title']} | {case['minutes']} |\n", PAGE)


class Meeting(ScriptTest):
    def broken(self, *arguments):
        return self.run_script(SCRIPTS / "run.sh", "--broken", *arguments)

    def test_list(self):
        done = self.broken("list")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)
        names = [line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
        self.assertEqual(sorted(names), sorted(bug["name"] for bug in seeded_bugs()))

    def test_bad_arguments(self):
        self.assert_one_sentence(self.broken("02_rescale"), "no bug '02_rescale'", "02_no_rescale", "--broken list")
        self.assert_one_sentence(self.broken("entirely else"), "no bug 'entirely else'", "--broken list")
        self.assert_one_sentence(self.broken("02_no_rescale", "03"), "nothing else, not '03'")

    def test_diff_and_checks(self):
        """Without building: stand-ins for CMake and the bug's program."""
        root = self.checkout()
        self.program("cmake", f'[ "$1" != --version ] || exec {shutil.which("cmake")} --version\n')
        shutil.copytree(ROOT / "kernels", root / "kernels", dirs_exist_ok=True)
        shutil.copytree(HERE, root / "tests" / "broken", dirs_exist_ok=True)
        program = root / "build" / "emulator-checked" / "bin" / "meet_02_no_rescale"
        program.parent.mkdir(parents=True)
        program.write_text('#!/bin/sh\necho "what each check says"\nexit 1\n')
        os.chmod(program, 0o755)
        done = self.run_script(root / "scripts" / "run.sh", "--broken", "02_no_rescale", env={"PATH": f"{self.folder}/bin:/usr/bin:/bin"})
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        for text in ("02_no_rescale: 02_online_softmax with one bug. O is not",
                     "\n--- kernels/02_online_softmax.cu\n+++ 02_no_rescale\n@@", "\n-      for (int c", "\nwhat each check says\n"):
            self.assertIn(text, done.stdout)
        self.assertRegex((root / "build/emulator-checked/build.log").read_text(), "--build .* --target meet_02_no_rescale\n")
        self.assertEqual(done.stdout.count("\n-"), 2, "the header's and one line")
        self.assertNotIn("\033", done.stdout)


if __name__ == "__main__":
    main()
