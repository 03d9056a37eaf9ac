"""Broken kernels: what bugs.cmake may say, the page about them, and how a reader meets one."""

import json
import os
import shutil

from support import ROOT, SCRIPTS, ScriptTest, main

HERE = ROOT / "tests" / "broken"
KERNEL = """#include "common/harness/registry.h"
namespace fa::k01 {
  wait();
  sum += 1;
  wait();
const Registration<Launcher> registration{"01_kernel"};

}  // namespace fa::k01
"""
BUG = 'broken(01_bug 01_kernel "Nobody waits." "sum += 1;" "sum += 2;"{})\n'
RIGHT = dict.fromkeys(("normal", "large", "equal_keys"), "right")
BUGS = [
    {"name": "01_max", "kernel": "01_kernel", "what": "No maximum.", "numbers": {**RIGHT, "large": "wrong"}, "early": "right"},
    {"name": "01_pad", "kernel": "01_kernel", "what": "No padding.", "numbers": RIGHT, "early": "right",
     "counter": "shared_wavefronts", "ratio": 5.25},
    {"name": "01_race", "kernel": "01_kernel", "what": "No __syncwarp().", "numbers": RIGHT, "early": "right",
     "report": "race within a warp"},
    {"name": "01_stops", "kernel": "01_kernel", "what": "A wrong count.", "numbers": dict.fromkeys(RIGHT, "stops"),
     "stops": "deadlock dump", "early": "stops", "report": "deadlock dump"},
    {"name": "01_wait", "kernel": "01_kernel", "what": "No wait.", "numbers": dict.fromkeys(RIGHT, "wrong"),
     "early": "right", "report": "race with a copy under way"},
]


class Declarations(ScriptTest):
    def setUp(self):
        super().setUp()
        self.broken = self.folder / "tests" / "broken"
        self.broken.mkdir(parents=True)
        shutil.copy(HERE / "make.cmake", self.broken)
        (self.folder / "kernels").mkdir()
        (self.folder / "kernels" / "01_kernel.cu").write_text(KERNEL)

    def make(self, bugs, *options):
        (self.broken / "bugs.cmake").write_text(bugs)
        self.source = self.folder / "out.cu"
        return self.run_script("cmake", "-DNAME=01_bug", f"-DOUTPUT={self.source}", *options, "-P", self.broken / "make.cmake")

    def test_one_replacement_and_the_declaration(self):
        done = self.make(BUG.format(' RIGHT normal tiny RIGHT_EARLY STOPS "dead" FOUND "words" "sum +=" COUNTED sectors FP16'))
        self.assertEqual(done.returncode, 0, done.stderr)
        text = self.source.read_text()
        self.assertIn("  wait();\n  sum += 2;\n  wait();\n", text)
        self.assertIn('#include "tests/broken/bug.h"\nnamespace fa::broken_01_bug {', text)
        self.assertIn('Registration<broken::HeadDim128<Launcher>::Of> registration{"01_bug"};', text)
        self.assertIn('"01_bug", "01_kernel", R"(Nobody waits.)",\n    {"normal", "tiny"}, true, false, R"(dead)",\n'
                      '    {R"(words)", R"(sum +=)", }, "sectors", true}};', text)
        self.assertEqual(text.split("\n").index("  sum += 2;"), KERNEL.split("\n").index("  sum += 1;"), "the line has moved")

    def test_the_kernel_with_nothing_but_the_bug(self):
        done = self.make(BUG.format(""), "-DPLAIN=ON")
        self.assertEqual((done.returncode, self.source.read_text()), (0, KERNEL.replace("+= 1", "+= 2")))
        done = self.make('broken(01_bug 01_kernel "x" "wait();" "" NTH 2 OF 2)\n', "-DPLAIN=ON")
        self.assertEqual(self.source.read_text(), KERNEL.replace("  sum += 1;\n  wait();\n", "  sum += 1;\n"))

    def test_refused(self):
        cases = {
            'broken(01_bug 01_kernel "x" "product" "")': "'product' 1 times in kernels/01_kernel.cu, but it is there 0 times",
            'broken(01_bug 01_kernel "x" "wait();" "")': "1 times in kernels/01_kernel.cu, but it is there 2 times",
            'broken(01_bug 01_kernel "x" "sum += 1;" "sum\\n+= 1;")': "replaces a text by one with another number of lines",
            BUG.format(" RIGHT norml"): "right on 'norml', which are no inputs",
            BUG.format(" WRONG normal"): "has 'WRONG', which says nothing",
            BUG.format(" STOPS"): "has 'STOPS', which says nothing",
        }
        for bugs, sentence in cases.items():
            with self.subTest(bugs):
                done = self.make(bugs)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(sentence, " ".join(done.stderr.split()))

    def test_list(self):
        done = self.make(BUG.format(' RIGHT all STOPS "dead" FOUND "words" "line"'), "-DLIST=ON")
        self.assertEqual(done.stdout.split("\t"), [
            "01_bug", "01_kernel", "Nobody waits.", "normal,large,dominant_key,equal_keys,increasing_max,tiny,one_hot_v",
            "FALSE", "dead", "words", "\n"])

    def test_of_16_all_includes_the_hot_inputs(self):
        done = self.make(BUG.replace("01_", "16_").format(" RIGHT all"), "-DLIST=ON")
        self.assertTrue(done.stdout.split("\t")[3].endswith(",one_hot_v,hot_first_block,hotter_blocks,hot_row,hot_tiles,"
                                                            "dominant_first,dominant_last,huge_scores"), done.stdout)


class Page(ScriptTest):
    def setUp(self):
        super().setUp()
        self.root = self.checkout()

    def page(self, which, rows):
        root = self.root
        (root / "bugs.json").write_text(json.dumps(rows))
        (root / "doc.md").write_text(f"<!-- bugs: bugs.json {which} -->\n<!-- /bugs -->\n")
        done = self.run_script(root / "scripts" / "sync_docs.py")
        return done, (root / "doc.md").read_text().split("\n")[1:-2]

    def test_summary(self):
        lines = self.page("summary", BUGS)[1]
        self.assertEqual(lines[0], "**3 of 5 bugs give right numbers on ordinary inputs**, and 1 more if asynchronous copies "
                         "happen to come early. Hard inputs show 1 of the 3, the checked build's report 1, its counters 1.")
        self.assertEqual([line.split(" | ")[1] for line in lines[4:9]], ["1 |"] * 5)
        self.assertIn("reports 3 of them, 2 as races", lines[10])

    def test_tables(self):
        lines = self.page("all", BUGS)[1]
        link = "| [01](01_kernel.md#pitfalls) | "
        self.assertEqual(lines[2:], [
            link + "`01_max` | No maximum. | right | **wrong**: `large` | – | – |",
            link + "`01_pad` | No padding. | right | right | – | **5.25** times the wavefronts of shared memory |",
            link + "`01_race` | No `__syncwarp()`. | right | right | **race within a warp** | – |",
            link + "`01_stops` | A wrong count. | **stops**: deadlock dump | **stops**: all | **deadlock dump** | – |",
            link + "`01_wait` | No wait. | **wrong**; right if copies come early | **wrong**: all | "
            "**race with a copy under way** | – |"])
        self.assertEqual(self.page("passed", BUGS)[1], lines[:5])

    def test_refused(self):
        self.assertIn("'some' is none of summary, passed and all", self.page("some", BUGS)[0].stderr)
        for rows in ([{}], [1], {"a": 1}):
            self.assertIn("bugs.json is not what the program meet writes", self.page("all", rows)[0].stderr)

    def test_the_page_has_every_bug(self):
        page = (ROOT / "docs" / "bugs.md").read_text(encoding="utf-8")
        for bug in json.loads((HERE / "bugs.json").read_text(encoding="utf-8")):
            self.assertIn(f"| `{bug['name']}` |", page)
            self.assertTrue((ROOT / "docs" / f"{bug['kernel']}.md").exists())


class Meeting(ScriptTest):
    def broken(self, *arguments):
        return self.run_script(SCRIPTS / "run.sh", "--broken", *arguments)

    def test_list(self):
        done = self.broken("list")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)
        names = [line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
        self.assertEqual(sorted(names), [bug["name"] for bug in json.loads((HERE / "bugs.json").read_text())])

    def test_bad_arguments(self):
        self.assert_one_sentence(self.broken("02_rescale"), "no bug '02_rescale'", "02_no_rescale", "--broken list")
        self.assert_one_sentence(self.broken("entirely else"), "no bug 'entirely else'", "--broken list")
        self.assert_one_sentence(self.broken(), "--broken needs the name of a bug")
        self.assert_one_sentence(self.broken("02_no_rescale", "03"), "nothing else, not '03'")

    def test_diff_and_checks(self):
        """Without building: a stand-in for the bug's program."""
        root = self.checkout()
        shutil.copytree(ROOT / "kernels", root / "kernels", dirs_exist_ok=True)
        shutil.copytree(HERE, root / "tests" / "broken", dirs_exist_ok=True)
        program = root / "build" / "emulator-checked" / "bin" / "meet_02_no_rescale"
        program.parent.mkdir(parents=True)
        program.write_text('#!/bin/sh\necho "what each check says"\nexit 1\n')
        os.chmod(program, 0o755)
        libraries = "".join(f'. "{root}/scripts/lib/{name}.sh"; ' for name in ("common", "packages", "build", "broken"))
        done = self.run_script("bash", "-c", libraries + 'ensure_packages() { :; }; configure() { :; }; '
                               'build() { echo "builds $*"; }; meet_broken 02_no_rescale')
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        for text in ("builds emulator-checked meet_02_no_rescale\n", "02_no_rescale: 02_online_softmax with one bug. O is not",
                     "\n--- kernels/02_online_softmax.cu\n+++ 02_no_rescale\n@@", "\n-      for (int c", "\nwhat each check says\n"):
            self.assertIn(text, done.stdout)
        self.assertEqual(done.stdout.count("\n-"), 2, "the header's and one line")
        self.assertNotIn("\033", done.stdout)


if __name__ == "__main__":
    main()
