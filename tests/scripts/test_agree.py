"""scripts/fa agree and lib/agreement.py: the committed comparison, ratios and reasons by hand."""

import json
from pathlib import Path

from support import ROOT, SCRIPTS, ScriptTest, main

from fa_tools import agreement
from fa_tools.tools import read_json

AGREE = SCRIPTS / "fa", "agree"
RESULTS = ROOT / "bench" / "results"


def json_of(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


class Committed(ScriptTest):
    def test_explained(self):
        done = self.run_script(AGREE)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)
        self.assertNotIn("!", done.stdout)

    def test_first_limiters(self):
        """At least eight of the first ten kernels have the first limiter that the profiler names."""
        parts = [part for part in agreement.read_agreement(RESULTS)["profiles"] if "limiters" in part]
        self.assertTrue(parts)
        for part in parts:
            first_ten = [entry for entry in part["limiters"] if entry["kernel"][:2] <= "10"]
            self.assertEqual(len(first_ten) + sum(name[:2] <= "10" for name in part.get("changed", [])), 10)
            self.assertLessEqual(sum(entry["emulator"] != entry["gpu"] for entry in first_ten), 2)

    def test_bounds_are_below_the_profilers_cycles(self):
        """At the highest clock the launches took no less than these cycles."""
        for part in agreement.read_agreement(RESULTS)["profiles"]:
            for entry in part.get("limiters", []):
                launches = [launch["metrics"]["cycles"] for launch in json_of(ROOT / part["file"])["launches"]
                            if launch["kernel"] == entry["kernel"]]
                self.assertLess(max(entry["bound_us"].values()), sum(launches) / 1980, entry["kernel"])

    def test_every_reason_is_needed(self):
        """An entry of bench/agreement.json that nothing needs any more is to be deleted."""
        parts = agreement.read_agreement(RESULTS)["profiles"]
        used = {reason for part in parts for entry in part["counts"] for reason in entry.get("reasons", [])}
        changed = {kernel for part in parts for kernel in part.get("changed", [])}
        data = json_of(ROOT / "bench" / "agreement.json")
        bf16 = [entry for entry in data["merged"] + data["differences"]
                if "bf16" in entry["dtypes"] and not {*entry.get("kernels", [entry.get("kernel")])} <= changed]
        self.assertEqual({entry["reason"] for entry in bf16} - used, set())


class Script(ScriptTest):
    def test_unexplained(self):
        profile = read_json(f"{RESULTS / 'h200_profile_n256.jsonl'}#bf16_d128")
        profile["launches"][0]["metrics"]["global_load_sectors"] *= 2
        done = self.run_script(AGREE, "--from", self.write("p.json", profile))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("! 01, global load sectors: ", done.stdout)

    def test_refusals(self):
        profile = read_json(f"{RESULTS / 'h200_profile_n256.jsonl'}#bf16_d128")
        unknown = {**profile, "launches": [{**profile["launches"][0], "kernel": "99_mine"}]}
        for words, text, code in (
            (("--from", self.folder / "none.json"), "no such file", 2),
            (("--from", self.write("u.json", unknown)), "has 99_mine with head_dim 128", 2),
            (("--from", self.write("g.json", {**profile, "gpu": "NVIDIA Test"})), "no machine NVIDIA Test", 2),
            (("-o", "/none/x.json"), "cannot write into the folder", 2),
        ):
            with self.subTest(text):
                self.assert_one_sentence(self.run_script(AGREE, *words), text, code=code)


if __name__ == "__main__":
    main()
