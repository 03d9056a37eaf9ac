"""scripts/fa agree and lib/agreement.py: the committed comparison, ratios and reasons by hand."""

import copy
import json
import sys
import unittest
from pathlib import Path

from support import ERROR, ROOT, SCRIPTS, ScriptTest, main

from fa_tools import agree
from fa_tools import agreement
from fa_tools import limits
from fa_tools.profile import METRICS
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


def profile_of(metrics, dtype="bf16", seq_len=256, kernel="08_swizzle"):
    one = read_json(f"{RESULTS / 'h200_profile_n256.jsonl'}#bf16_d128")
    launch = next(copy.deepcopy(launch) for launch in one["launches"] if launch["kernel"] == kernel)
    launch["metrics"] = {name: launch["metrics"][name] for name in METRICS} | metrics
    return {**one, "dtype": dtype, "seq_len": seq_len, "launches": [launch]}


class ByHand(unittest.TestCase):
    def kernel(self, lines, name="08_swizzle", **changes):
        found = limits.Kernel(name, 128)
        found.add({"kernel": name, "dtype": "bf16", "batch": 1, "heads": 2, "seq_len": 256, "head_dim": 128,
                   "status": "passed", "error": ERROR, "shared_memory_bytes": 0, "statements": lines, **changes})
        return found

    def counts(self, lines, metrics, name="08_swizzle", **changes):
        zero = {metric: 0 for metric in METRICS if not metric.startswith("stall")}
        profile = profile_of({**zero, "cycles": 1000, **metrics}, kernel=name)
        return {entry["quantity"]: entry for entry in agreement.compare(self.kernel(lines, name, **changes), profile)}

    def test_kinds_meet_their_metrics(self):
        def line(kind, **counts):
            return {"statement": "a();", "kind": kind, **counts}

        lines = [line("global load", requests=1, sectors=16, cache_lines=4, bytes=512), line("cp.async", requests=2, sectors=32,
                                                                                 wavefronts=8, wavefronts_ideal=8, bytes=1024),
                 line("global store", requests=3, sectors=24, cache_lines=24, bytes=384),
                 line("shared load", requests=5, wavefronts=40, wavefronts_ideal=5, bytes=640),
                 line("shared store", requests=7, wavefronts=7, wavefronts_ideal=7, bytes=7 * 128),
                 line("ldmatrix", requests=11, wavefronts=88, wavefronts_ideal=44, bytes=11 * 512),
                 line("wmma load", requests=4, wavefronts=8, wavefronts_ideal=8, bytes=1024),
                 {**line("wmma load", requests=1, wavefronts=4, wavefronts_ideal=4, bytes=512), "statement": "b();"},
                 line("mma.m16n8k16", requests=13, flops=13 * 4096), line("wmma.m16n16k16", requests=1, flops=8192),
                 line("stmatrix", requests=2, wavefronts=8, wavefronts_ideal=8, bytes=1024),
                 line("wgmma", requests=4, flops=1, bytes=4 * 128), line("tma load", requests=1, sectors=2, bytes=64),
                 line("tma store", requests=1, sectors=1, bytes=32), line("shuffle", requests=6)]
        gpu = {"global_load_requests": 3, "global_load_sectors": 48, "global_store_requests": 3, "global_store_sectors": 24,
               "shared_load_instructions": 9, "shared_store_instructions": 7, "ldmatrix_instructions": 11,
               "cp_async_instructions": 2,
               "shared_load_wavefronts": 140, "shared_store_wavefronts": 15, "shared_load_conflicts": 79,
               "shared_store_conflicts": 0, "l1_wavefronts": 193, "tensor_mma_instructions": 19, "tensor_wgmma_instructions": 4,
               "tma_load_bytes": 64, "tma_store_bytes": 32}
        counts = self.counts(lines, gpu)
        # Conflicts of stores are none on both sides: no entry.
        self.assertEqual(set(counts), set(agreement.QUANTITIES) - {"shared_store_conflicts"})
        for quantity, entry in counts.items():
            self.assertEqual(entry["emulator"], entry["gpu"], quantity)
            self.assertNotIn("reasons", entry)

    def test_matrix_instructions_need_both_counts(self):
        self.assertIsNone(agreement.mma_instructions({"tensor_mma_instructions": 5}, 132))
        self.assertEqual(agreement.mma_instructions({"tensor_mma_instructions": 5, "tensor_wgmma_instructions": 2}, 132), 3)

    def test_16_bit_fragments_are_ldmatrix_for_fp16(self):
        lines = [{"statement": "a();", "kind": "wmma load", "requests": 3, "wavefronts": 12, "wavefronts_ideal": 12, "bytes": 3 * 512}]
        self.assertEqual([agreement.ldmatrix(lines, dtype) for dtype in ("fp16", "bf16")], [3, 0])
        self.assertEqual(agreement.shared_loads(lines, "fp16"), 0)

    def test_a_difference_needs_a_reason(self):
        lines = [{"statement": "a();", "kind": "global store", "requests": 106, "sectors": 104,
                  "cache_lines": 9, "bytes": 9}]
        counts = self.counts(lines, {"global_store_requests": 100, "global_store_sectors": 100, "l1_wavefronts": 9})
        self.assertNotIn("reasons", counts["global_store_sectors"])
        self.assertEqual(counts["global_store_requests"]["reasons"], [])
        self.assertEqual(agreement.unexplained(counts.values()), [counts["global_store_requests"]])
        # One that the data file has a reason for.
        counts = self.counts([], {"shared_load_instructions": 480})
        self.assertIn("never happen", counts["shared_load_requests"]["reasons"][0])
        self.assertEqual(agreement.unexplained(counts.values()), [])

    def test_merged_loads_explain_what_they_cure_and_nothing_else(self):
        name = "02_online_softmax"
        (statement, kind), _ = next(iter(limits.merges_of(name, "bf16").items()))
        lines = [{"statement": statement, "kind": kind, "requests": 400, "wavefronts": 400, "wavefronts_ideal": 400, "bytes": 1}]
        counts = self.counts(lines, {"shared_load_instructions": 100, "shared_load_wavefronts": 200, "l1_wavefronts": 300}, name)
        self.assertEqual((counts["shared_load_requests"]["merged"], counts["shared_load_wavefronts"]["merged"]), (100, 200))
        self.assertEqual(len(counts["shared_load_requests"]["reasons"]), 1)
        self.assertEqual(counts["l1_wavefronts"]["reasons"], [])  # 400, merged 200, of 300

    def test_scaled_to_the_profiles_problem(self):
        found = self.kernel([{"statement": "a();", "kind": "exp2", "operations": 2 * 256 * 256}])
        found.add({**found.records[256], "heads": 1, "seq_len": 128,
                   "statements": [{"statement": "a();", "kind": "exp2", "operations": 128 * 128}]})
        shape = agree.Shape("bf16", 3, 5, 512, 128)
        (line,) = agreement.scaled_statements(found, shape)
        self.assertEqual(line["operations"], 15 * 512 * 512)

    def test_the_busiest(self):
        profile = profile_of({"cycles": 1_000_000, "shared_wavefronts_percent": 40, "issue_active_percent": 30,
                              "fma_instructions": 264_000_000, "l2_sectors": 0, "dram_bytes": 0, "xu_percent": 7})
        bound = limits.Bound("08_swizzle", None, {**dict.fromkeys(limits.RESOURCES, 0), "tensor": 1e-4}, 0)
        percents, calculated = agreement.busy(profile, "08_swizzle", bound)
        self.assertEqual(calculated, ["tensor", "fp32", "l2", "hbm"])
        self.assertAlmostEqual(percents["fp32"], 50)  # of 132 SMs x 4 instructions a cycle
        self.assertAlmostEqual(percents["tensor"], 19.8)  # 100 of 505 microseconds
        self.assertEqual((percents["mufu"], percents["l1"], percents["issue"]), (7, 40, 30))
        profile["launches"][0]["metrics"].update(tensor_percent=60.5, fma_percent=3)
        percents, calculated = agreement.busy(profile, "08_swizzle", bound)
        self.assertEqual((percents["tensor"], percents["fp32"], calculated), (60.5, 3, ["l2", "hbm"]))


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
