"""What a checked run costs: measuring it, holding kernels to a limit, showing it."""

from support import SCRIPTS, ScriptTest, main

PROGRAM = """case $1 in
  --list) echo 01_quick; echo 02_other ;;
  *) [ "$FAIL" ] && { echo "no memory" >&2; exit 3; }; seq 20000 | sort -R >/dev/null ;;
esac
"""


class Seconds(ScriptTest):
    def setUp(self):
        super().setUp()
        self.root = self.checkout()
        self.program("attention", PROGRAM)
        self.attention = self.folder / "bin" / "attention"

    def run_it(self, *options, **environment):
        return self.run_script(self.root / "scripts" / "fa", "seconds", "--program", self.attention, "--repeat", "1",
                               *options, env=environment)

    def test_limit(self):
        done = self.run_it("--limit", "20")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^01_quick \d\.\d\d s\n02_other \d\.\d\d s\n$")
        self.assert_one_sentence(self.run_it("--limit", "0"), "over 0 s of processor time: 01_quick, 02_other", code=1)

    def test_refused(self):
        self.assert_one_sentence(self.run_it("--limit", "2", FAIL="1"), "exit code 3: no memory", code=3)
        self.assert_one_sentence(self.run_it("--repeat", "0"), "--repeat must be at least 1")
        self.attention.unlink()
        self.assert_one_sentence(self.run_it(), "bin/attention does not run", code=4)

    def test_page(self):
        self.assertEqual(self.run_it().returncode, 0)
        self.write("checkout/doc.md", "<!-- seconds: bench/results/checked_seconds.txt -->\n<!-- /seconds -->\n")
        done = self.run_script(self.root / "scripts" / "fa", "sync")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = (self.root / "doc.md").read_text()
        self.assertIn("One run at `--heads 1 --seq-len 256 --head-dim 128`, in seconds of processor time", text)
        self.assertRegex(text, r"\n\| Kernel \| Checked \| `--no-races` \|\n.*\n\| `01_quick` \| \d\.\d\d \| \d\.\d\d \|\n\| `02_other`")
        self.write("checkout/bench/results/checked_seconds.txt", "nothing of the kind\n")
        done = self.run_script(self.root / "scripts" / "fa", "sync")
        self.assertIn("is not what scripts/fa seconds writes", done.stderr)

    def test_committed_seconds_are_under_two(self):
        lines = (SCRIPTS.parent / "bench" / "results" / "checked_seconds.txt").read_text().splitlines()[2:]
        self.assertGreaterEqual(len(lines), 10)
        for line in lines:
            self.assertLess(float(line.split()[1]), 2, line)


if __name__ == "__main__":
    main()
