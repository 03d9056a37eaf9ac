"""scripts/fa reproduce and bench/published.json without a GPU: published figures, tables, refusals."""

import copy
import json
import statistics
import unittest

from support import CUDA, SCRIPTS, ScriptTest, cuda_record, emulator_results, main, results

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


if __name__ == "__main__":
    main()
