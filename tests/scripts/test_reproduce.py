"""scripts/fa reproduce and bench/published.json without a GPU: published figures, tables, refusals."""

import copy
import json
import re
import shutil
import statistics
import unittest

from support import CUDA, SCRIPTS, ScriptTest, beyond, cuda_record, emulator_results, main, newest, results

from fa_tools import reproduce

SH = SCRIPTS / "fa", "reproduce"
PUBLISHED = reproduce.read_published()
LIBRARIES = {"peer/fa2": "FlashAttention-2", "peer/cudnn": "cuDNN", "peer/fa3": "FlashAttention-3"}
SPEED = {"01_naive": 2.5, "07_cp_async": 75.0, "08_swizzle": 270.0, "10_instruction_tuning": 400.0, "peer/fa2": 320.0,
         "peer/cudnn": 600.0}


def measured(name, speed=None, dtype=None):
    """Results of a publication's problems: each kernel or peer as fast as said, a tenth slower at 512 tokens."""
    records, dtype = [], dtype or ("bf16" if name == "from-scratch" else "fp16")
    for p in PUBLISHED[name].data["problems"]:
        for kernel, tflops in (speed or SPEED).items():
            tflops *= 0.9 if p["seq_len"] == 512 else 1
            ms = 4 * p["batch"] * p["heads"] * p["seq_len"] ** 2 * p["head_dim"] / tflops / 1e9
            time = {"median": ms, "p10": ms, "p90": ms, "min": ms, "launches": 128}
            record = {**cuda_record(kernel, tflops), **p, "dtype": dtype, "time_ms": time, "round_ms": [ms] * 3}
            if kernel.startswith("peer/"):
                record["library"] = {"name": "PyTorch", "version": "2.11.0",
                                     "implementation": LIBRARIES.get(kernel, "cuDNN")}
            records.append(record)
    data = results(CUDA, records)
    data["protocol"].update(rounds=3, name=name, idle_ms=0)
    return {**data, "schema_version": 3}


class Published(unittest.TestCase):
    def figures(self, name):
        return [(id_, figure) for id_, entry in PUBLISHED[name].entries.items() for figure in entry["figures"]]

    def test_each_has_its_tables(self):
        for name, publication in PUBLISHED.items():
            self.assertIn(name, reproduce.TABLES)
            self.assertTrue(publication.lengths(publication.head_dims()[0]), name)

    def test_ids(self):
        for name, publication in ((name, published.data) for name, published in PUBLISHED.items()):
            ids = [entry["id"] for entry in publication["entries"]]
            self.assertEqual(len(ids), len(set(ids)), name)
            mapped = [id_ for pair in publication["map"] for id_ in pair["published"]]
            self.assertEqual(len(mapped), len(set(mapped)))
            self.assertLessEqual({"fa2", *mapped}, set(ids))
            machines = {machine["id"] for machine in publication["machines"]}
            problems = {(p["head_dim"], p["seq_len"]) for p in publication["problems"]}
            for _, figure in self.figures(name):
                self.assertIn(figure["machine"], machines)
                if figure["seq_len"] != reproduce.HARMONIC and "batch" not in figure:
                    self.assertIn((figure["head_dim"], figure["seq_len"]), problems)

    def test_times_agree_with_tflops_as_they_count(self):
        checked = 0
        for name, publication in ((name, published.data) for name, published in PUBLISHED.items()):
            problems = {(p["head_dim"], p["seq_len"]): p for p in publication["problems"]}
            for id_, f in self.figures(name):
                if "time_ms" not in f:
                    continue
                p = f if "batch" in f else problems[f["head_dim"], f["seq_len"]]
                count = 4 * f["head_dim"] + publication["flops"]["extra_per_score"]
                tflops = count * p["batch"] * p["heads"] * p["seq_len"] ** 2 / f["time_ms"] * 1e-9
                self.assertAlmostEqual(tflops / f["tflops"], 1, delta=1e-3, msg=f"{name} {id_}")
                checked += 1
        self.assertEqual(checked, 11)

    def test_what_is_known_of_the_sources(self):
        scratch, fa3, leetcuda = (PUBLISHED[name] for name in ("from-scratch", "fa3-paper", "leetcuda"))
        self.assertEqual(scratch.percent("16", 128, 4096, "a100"), 99.2)
        self.assertEqual(scratch.tflops("fa2", 128, 4096, "rtx3090"), 67.29)
        self.assertAlmostEqual(scratch.factor(128), 518 / 512)
        self.assertEqual([fa3.tflops("fa3", 128, n) for n in fa3.lengths(128)], [467, 565, 625, 638, 646, 648])
        self.assertEqual(fa3.factor(64), 1)
        self.assertAlmostEqual(leetcuda.percent("split-q+share-qkv+stage2", 64, 8192), 54.42 / 37.22 * 100)
        self.assertAlmostEqual(fa3.mean("fa2", 64), statistics.harmonic_mean([282, 306, 318, 321, 322, 324]))


class Tables(ScriptTest):
    def tables(self, name, data):
        done = self.run_script(SH, name, "--results", self.write("r.json", data))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)
        return done.stdout

    def row(self, text, start):
        (line,) = [line for line in text.splitlines() if line.startswith(start)]
        return re.split(r"  +", line.strip())

    def test_from_scratch(self):
        text = self.tables("from-scratch", measured("from-scratch"))
        self.assertEqual(self.row(text, "08_swizzle  "),
                         ["08_swizzle", "84.4", "84.4", "2 Swizzling", "72.6", "72.4", "98.3", "98.6"])
        self.assertIn("07_cp_async              23.4   23.4   1 Base Implementation", text)
        self.assertIn("–      –   5 Double", text)  # 09 was not measured
        # FlashAttention-2's 186.4 as they count are 184.2 of ours; our 320 are 323.8 of theirs.
        self.assertEqual(self.row(text, "published  "),
                         ["published", "FlashAttention-2, A100", "184.2", "186.4", "172.0", "174.0"])
        mean = statistics.harmonic_mean([288, *[320] * 5])
        self.assertEqual(self.row(text, "measured   FlashAttention-2"),
                         ["measured", "FlashAttention-2 (PyTorch 2.11)", "320.0", "323.8", f"{mean:.1f}",
                          f"{mean * 518 / 512:.1f}", "100.0", "100.0"])
        for words in ("1.17 % more at head_dim 128", "NVIDIA H200 (132 SMs", "Another GPU than A100 or RTX 3090",
                      "6 to 16 ~ 10_instruction_tuning", "github.com/sonnyli", "median of 3 rounds"):
            self.assertIn(words, " ".join(text.split()))

    def test_ratios_of_rounds_come_first(self):
        data = measured("from-scratch")
        for record in data["records"]:
            if record["kernel"] == "08_swizzle":
                record["ratio"] = {"peer/fa2": 0.801}
        self.assertIn("80.1", self.row(self.tables("from-scratch", data), "08_swizzle  ")[1])

    def test_a_mask_is_another_problem(self):
        data = newest(measured("fa3-paper"))
        masked = {**data, "records": data["records"] + [beyond(r, 5.0, mask="causal") for r in data["records"]]}
        self.assertEqual(self.tables("fa3-paper", masked), self.tables("fa3-paper", data))

    def test_part_of_the_lengths(self):
        data = measured("from-scratch")
        gone = {("01_naive", 16384)}
        data["records"] = [r for r in data["records"] if (r["kernel"], r["seq_len"]) not in gone]
        text = self.tables("from-scratch", data)
        self.assertRegex(text, r"01_naive +2\.5 +2\.5 +– +– +0\.8 +–")

    def test_fa3_paper(self):
        speed = {**SPEED, "peer/fa3": 660.0, "13_warp_specialization": 540.0, "14_softmax_overlap": 600.0}
        text = self.tables("fa3-paper", measured("fa3-paper", speed))
        part = text[text.index("TFLOP/s at head_dim 64"):text.index("What two techniques")]
        self.assertRegex(part, r"FlashAttention-3 +333 +392 +460 +476 +496 +497 +433\.0 +139\.0")
        self.assertRegex(part, r"FlashAttention-3 \(PyTorch 2\.11\) +594( +660){5} +648\.0 +206\.3")
        self.assertRegex(part, r"  FlashAttention-3 +178 +168 +143 +139 +133 +133")
        self.assertRegex(text, r"582 +88\.0\n +~ 13_warp_specialization +540 +90\.0\n")
        self.assertIn("~ no kernel here", text)

    def test_leetcuda(self):
        data = measured("leetcuda")
        data["notes"] = ["The clocks of two kernels differed by 4 %."]
        text = self.tables("leetcuda", data)
        self.assertEqual(self.row(text, "split-q+share-qkv+stage2"),
                         ["split-q+share-qkv+stage2", "54.42", "53.38", "146.2", "10_instruction_tuning", "400.0",
                          "407.8", "125.0"])
        self.assertEqual(self.row(text, "split-kv+stage2")[-1], "–")
        self.assertIn("differed by 4 %", text)
        self.assertRegex(text, r"\n +01_naive +2\.5")

    def test_clocks_in_one_sentence(self):
        data = measured("leetcuda")
        note = "of that problem: in a round the SM clock differed by more than 3 % from that of peer/fa2 with {}."
        data["notes"] = [note.format("10_instruction_tuning (1800 against 1965 MHz, -8.4 %), 04_wmma (1980 against 1815 "
                                     "MHz, +9.1 %)"),
                         note.format("05_mma_split_kv (1900 against 1980 MHz, -4.0 %)"), "Another note."]
        text = " ".join(self.tables("leetcuda", data).split())
        self.assertIn("differed between a kernel and a library in 3 cases, by up to 9 %", text)
        self.assertNotIn("1965 MHz", text)
        self.assertIn("Another note.", text)

    def test_without_fa2(self):
        data = measured("leetcuda", {"10_instruction_tuning": 400.0})
        self.assertEqual(self.row(self.tables("leetcuda", data), "split-q+share-qkv+stage2")[-1], "–")


class Refusals(ScriptTest):
    def call(self, name, content):
        return self.run_script(SH, name, "--results", self.write("r.json", content))

    def test_files(self):
        good = measured("leetcuda")
        text = json.dumps(good)

        def changed(**changes):
            data = copy.deepcopy(good)
            data["records"][0].update(changes)
            return data

        for content, words in (
            (text[: len(text) // 2], "is cut off"),
            (text.replace("2.5", "NaN", 1), "holds NaN"),
            ({**good, "schema_version": 99}, "schema version 99"),
            ("[]", "not a results file"),
            (emulator_results(), "no times"),
            (measured("fa3-paper"), "was not made by scripts/fa bench --protocol leetcuda"),
            ({**good, "records": []}, "no kernel or library that was timed"),
            (changed(tflops="fast"), "records[0]"),
            (changed(time_ms=None), "records[0]"),
            (changed(head_dim=None), "records[0]"),
            ({**good, "machine": {"backend": "cuda"}}, "gpu"),
        ):
            with self.subTest(words):
                self.assert_one_sentence(self.call("leetcuda", content), words)
        done = self.run_script(SH, "leetcuda", "--results", self.folder / "none.json")
        self.assert_one_sentence(done, "no such file")

    def test_arguments(self):
        self.assert_one_sentence(self.call("medium-post", measured("leetcuda")), "'medium-post'", "from-scratch")
        for words, text in (((), "PUBLICATION"), (("leetcuda", "--results"), "expected one argument"),
                            (("leetcuda", "--json", "x"), "--json is for scripts/fa bench"),
                            (("leetcuda", "10", "--results", "x"), "nothing is measured")):
            self.assert_one_sentence(self.run_script(SH, *words), text)


class Measuring(ScriptTest):
    def test_runs_the_protocol(self):
        """In a checkout whose bench.sh stands in for the measuring."""
        root = self.checkout()
        for file in (reproduce.PUBLISHED, reproduce.PROTOCOLS):
            shutil.copy(file, root / "bench")
        self.write("measured.json", measured("leetcuda"))
        (root / "scripts" / "commands" / "bench.sh").write_text(
            f'#!/bin/bash\necho "$*" > {self.folder}/asked\n'
            f'[ -e {self.folder}/fails ] && exit 3\ncp {self.folder}/measured.json "$4"; exit 1\n')
        env = {"RESULTS_DIR": str(self.folder / "out")}
        done = self.run_script(root / "scripts" / "fa", "reproduce", "leetcuda", "10", env=env)
        self.assertEqual(done.returncode, 1, done.stderr)  # bench.sh's: a kernel was wrong
        self.assertIn("10_instruction_tuning", done.stdout)
        (kept,) = (self.folder / "out").iterdir()
        self.assertEqual((self.folder / "asked").read_text(), f"--protocol leetcuda --json {kept} 10\n")
        (self.folder / "fails").touch()
        kept.unlink()
        done = self.run_script(root / "scripts" / "fa", "reproduce", "leetcuda", env=env)
        self.assertEqual((done.returncode, done.stdout), (3, ""))


if __name__ == "__main__":
    main()
