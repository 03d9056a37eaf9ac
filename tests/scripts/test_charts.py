"""Charts: the right files, the right words in them, the same bytes every time."""

import unittest

from support import SCRIPTS, ScriptTest, cuda_results, emulator_results, main, needs_venv, peer_results, VENV_PYTHON

CHART = SCRIPTS / "chart.py"


@needs_venv("vl_convert")
class Charts(ScriptTest):
    def draw(self, *arguments):
        done = self.run_script(VENV_PYTHON, CHART, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_gpu_results(self):
        source = self.write("h200.json", cuda_results())
        out = self.folder / "charts"
        said = self.draw(source, "-o", out)
        names = {path.name for path in out.iterdir()}
        ends = (".svg", "-dark.svg", ".png")
        self.assertEqual(names, {f"h200-{chart}{end}" for chart in ("ladder", "seq_len") for end in ends})
        self.assertEqual(said.count("Chart:"), 2)
        ladder = (out / "h200-ladder.svg").read_text(encoding="utf-8")
        for words in ("NVIDIA H200", "bf16", "1024 tokens", "head_dim 128", "01_naive", "peer/fa2", "wrong: head 3",
                      "skipped: needs compute capability 9.0", "TFLOP/s"):
            self.assertIn(words, ladder)
        self.assertTrue((out / "h200-ladder.png").read_bytes().startswith(b"\x89PNG"))
        # Drawn again, into another folder, with another time of day: the same bytes.
        again = self.folder / "again"
        self.draw(source, "-o", again)
        for path in out.iterdir():
            self.assertEqual(path.read_bytes(), (again / path.name).read_bytes(), path.name)

    def test_peers(self):
        out = self.folder / "charts"
        without = peer_results()
        without["records"] = [r for r in without["records"] if r["kernel"] != "peer/fa2"]
        for record in without["records"]:
            record.pop("ratio", None)
        self.draw(self.write("peers.json", peer_results()), "-o", out)
        self.draw(self.write("alone.json", without), "-o", out)
        for chart in ("ladder", "seq_len"):
            with self.subTest(chart):
                peers, alone = ((out / f"{stem}-{chart}.svg").read_text("utf-8") for stem in ("peers", "alone"))
                self.assertIn("FlashAttention-2 (PyTorch 2.11)", peers)
                self.assertIn('stroke-dasharray="5,4"', peers)
                self.assertNotIn("peer/fa2", peers)
                self.assertNotIn("FlashAttention-2", alone)
                self.assertNotIn('stroke-dasharray="5,4"', alone)

    def test_emulator_results_beside_the_file(self):
        source = self.write("emulator.json", emulator_results())
        self.draw(source)
        ladder = (self.folder / "emulator-ladder.svg").read_text(encoding="utf-8")
        for words in ("Emulator", "Global memory", "Shared memory", "8.91 M", "none"):
            self.assertIn(words, ladder)
        self.assertFalse((self.folder / "emulator-seq_len.svg").exists())

    def test_several_machines(self):
        files = [self.write("a.json", cuda_results()), self.write("b.json", emulator_results())]
        self.draw(*files, "-o", self.folder / "charts")
        names = {path.name for path in (self.folder / "charts").glob("*.svg")}
        self.assertLessEqual({"a-ladder.svg", "b-ladder.svg"}, names)

    def test_charts_of_the_documentation_are_up_to_date(self):
        self.draw("--docs", "--check")

    def test_bad_files(self):
        for name, content, words in (("none.json", None, "no such file"), ("cut.json", '{"schema', "cut off"),
                                     ("v9.json", '{"schema_version": 9}', "schema version 9")):
            path = self.folder / name
            if content:
                self.write(name, content)
            done = self.run_script(VENV_PYTHON, CHART, path, "-o", self.folder / "charts")
            self.assert_one_sentence(done, name, words)
            self.assertFalse((self.folder / "charts").exists())

    def test_nothing_to_draw(self):
        source = self.write("h200.json", cuda_results())
        done = self.run_script(VENV_PYTHON, CHART, source, "--dtype", "fp16")
        self.assert_one_sentence(done, "nothing to draw", code=1)


class Labels(unittest.TestCase):
    def test_labels_keep_apart_and_near(self):
        import sys

        sys.path.insert(0, str(SCRIPTS))
        from chart import spread

        for wanted in ([], [5.0], [1, 2, 3], [0, 100, 101, 102, 300], [7, 7, 7, 7], [0, 16, 33, 50]):
            placed = spread(wanted, 17)
            self.assertEqual(len(placed), len(wanted))
            self.assertTrue(all(b - a >= 17 - 1e-9 for a, b in zip(placed, placed[1:])), placed)
        self.assertEqual(spread([0, 100, 300], 17), [0, 100, 300])


if __name__ == "__main__":
    main()
