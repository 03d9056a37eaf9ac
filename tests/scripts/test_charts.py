"""Charts: the right files, the right words in them, the same bytes every time."""

import contextlib
import copy
import io
import json
import re
import unittest
from unittest import mock
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from support import (ROOT, SCRIPTS, ScriptTest, beyond, cuda_record, cuda_results, emulator_results, statement_results, main,
                     needs_venv, newest, not_passed, peer_results, results, score_results, without_sources, CUDA,
                     VENV_PYTHON)

from fa_tools import chart
from fa_tools.charts.look import DARK, LIGHT, OTHERS, spread
from fa_tools.charts.roofline import load_profile
from fa_tools.charts.themes import both, one_svg, read, shorten
from fa_tools.profile import METRICS
from fa_tools.tools import Refused, read_json

CHART = SCRIPTS / "fa", "chart"
ENDS = (".svg", ".png")


def version3():
    """peer_results() as scripts/fa bench writes it, with both ceilings."""
    data = peer_results()
    data["schema_version"] = 3
    data["protocol"].update(idle_ms=0, name="quick")
    data["notes"] = ["The clocks differed."]
    for seq_len in (1024, 2048):
        of_kernels = ("registers", "shared_memory_bytes", "spill_bytes", "workspace_bytes", "error")
        ceiling = cuda_record("ceiling/matmul", 794.0, seq_len=seq_len)
        ceiling = {k: v for k, v in ceiling.items() if k not in of_kernels}
        ceiling["round_ms"] = [ceiling["time_ms"]["median"]] * 3
        library = {"name": "cuBLAS", "version": "13.0.2", "implementation": "cuBLAS"}
        data["records"].append({**ceiling, "flops": 794e9 * ceiling["time_ms"]["median"], "library": library})
        copy_ = {**ceiling, "kernel": "ceiling/copy", "gbytes_per_s": 4300.0}
        del copy_["tflops"]
        data["records"].append(copy_)
    return data


def profile(**changes):
    """The profiler's counters of the two kernels of peer_results(), as scripts/fa profile writes them."""
    metrics = {**dict.fromkeys(METRICS, 1), "shared_load_wavefronts": 18_885_777, "shared_store_wavefronts": 0, "global_load_sectors": 17_039_360,
               "global_store_sectors": 524_288, "l2_sectors": 12_562_297, "dram_bytes": 26_901_248}
    data = {"profile_version": 1, "gpu": "NVIDIA H200", "driver": "580.159.04",
            "dtype": "bf16", "batch": 1, "heads": 16, "seq_len": 2048, "head_dim": 128,
            "launches": [{"kernel": "08_swizzle", "function": "attention_kernel", "metrics": metrics},
                         {"kernel": "10_instruction_tuning", "function": "attention_kernel", "metrics": dict(metrics)}]}
    data.update(changes)
    return data


def words(spec):
    return json.dumps(spec, ensure_ascii=False)


def layer(spec, mark):
    return next(part for part in spec["layer"] if part["mark"]["type"] == mark)


def points(spec):
    return layer(spec, "point")["data"]["values"]


class SpecTest(ScriptTest):
    def specs(self, *contents, profile=None, peer=None, counters=None, theme=LIGHT, **wish):
        """{chart: its spec, or the sentence why there is none} of results files with these contents, in one group."""
        files = [self.write(f"{i}.json", content) for i, content in enumerate(contents)]
        (group,) = chart.group_files(files)
        profile = profile and load_profile(self.write("profile.json", profile))
        wish = {**dict.fromkeys(chart.Shape._fields), **wish}
        made = chart.specs_of(group, wish, profile, peer, counters)
        return {name: made if isinstance(made, str) else made(theme) for name, made in made}


class Specs(SpecTest):
    def test_percent_of_a_peer_is_formed_within_rounds(self):
        data = peer_results()
        record = next(r for r in data["records"] if r["kernel"] == "08_swizzle" and r["seq_len"] == 2048)
        record["ratio"] = {"peer/fa2": 0.777}  # the quotient of the medians is 1 / 1.2
        rows = {row["kernel"]: row for row in self.specs(data, seq_len=2048)["peer"]["data"]["values"]}
        self.assertEqual(rows["08_swizzle"]["label"], "77.7 %")
        self.assertEqual(rows["10_instruction_tuning"]["label"], "111 %")  # 1 / 0.9
        self.assertEqual(rows["peer/cudnn"]["label"], "skipped: not here")
        self.assertNotIn("FlashAttention-2 (PyTorch 2.11)", rows)
        lines = words(self.specs(data)["peer-seq_len"])
        self.assertIn("ratios within rounds", lines)
        self.assertIn("10_instruction_tuning", lines)

    def test_the_peer_can_be_chosen(self):
        data = peer_results()
        for record in data["records"]:
            if record["kernel"] == "peer/fa2":
                record["kernel"] = "peer/fa3"
            record.pop("ratio", None)
        self.assertIn("1024 tokens", words(self.specs(data, peer="fa3", seq_len=1024)["peer"]))
        self.assertIn("peer", self.specs(data))
        with self.assertRaisesRegex(Refused, "no peer peer/fa4, only peer/fa3"):
            self.specs(data, peer="fa4")

    def test_a_kernel_of_another_run_is_marked(self):
        alone = results(CUDA, [cuda_record("07_cp_async", 50.0, seq_len=2048)])
        made = self.specs(alone, peer_results())
        marked = [row["kernel"] for row in made["peer"]["data"]["values"] if row["label"].endswith(" % *")]
        self.assertEqual(marked, ["07_cp_async"])
        self.assertIn("* measured in another run than FlashAttention-2", words(made["peer"]))
        self.assertNotIn("07_cp_async", words(made["peer-seq_len"]))

    def test_step_by_step(self):
        data = cuda_results()
        data["records"].append(cuda_record("04_wmma", 8.0))
        steps = self.specs(data)["speedup"]
        rows = {row["kernel"]: (row["step"], row["label"]) for row in steps["data"]["values"]}
        self.assertEqual(rows, {
            "01_naive": ("first", ""), "02_online_softmax": ("up", "\u00d7 4.00"), "04_wmma": ("down", "\u00d7 0.80"),
            "03_register_tiling": ("none", "wrong: head 3, row 17: too large"),
            "11_wgmma": ("none", "skipped: needs compute capability 9.0")})
        self.assertIn("in all \u00d7 3.20", words(steps))

    def test_variants_of_a_kernel(self):
        names = ("14_neither", "14_overlap", "14_softmax_overlap")
        data = results(CUDA, [cuda_record(name, 600.0 + 40 * i + seq_len / 100, seq_len=seq_len)
                              for i, name in enumerate(names) for seq_len in (1024, 2048)])
        made = self.specs(data)["seq_len"]
        self.assertIn("Variants of one kernel. The axis does not begin at 0.", words(made))
        line = layer(made, "line")["encoding"]
        self.assertEqual(line["color"]["scale"], {"domain": list(names), "range": [*OTHERS[:2], LIGHT.kernel]})
        self.assertEqual(line["y"]["scale"]["domain"][0], 570)  # 5 % below the slowest, in tens
        self.assertTrue(all(570 < row["at"] < 720 for row in layer(made, "text")["data"]["values"]))
        data["records"].append(cuda_record("13_other", 300.0, seq_len=2048))
        made = self.specs(data)["seq_len"]
        self.assertIn("The more a line stands out, the later its kernel", words(made))
        self.assertEqual(layer(made, "line")["encoding"]["y"]["scale"]["domain"][0], 0)

    def test_ceilings_are_lines_and_a_copy_has_no_tflops(self):
        made = self.specs(version3())
        self.assertEqual({row["kind"] for row in made["ladder"]["data"]["values"]}, {"kernel", "peer", "skipped"})
        for name in ("ladder", "seq_len"):
            self.assertIn("cuBLAS 13.0", words(made[name]))
        for name in ("peer", "peer-seq_len", "speedup"):
            self.assertNotIn("cuBLAS", words(made[name]))
        self.assertNotIn("ceiling/copy", words(made))

    def test_versions_1_to_3_are_drawn(self):
        for version, data, charts in (
            (1, cuda_results(), ["ladder", "speedup", "seq_len", "peer", "roofline"]),
            (2, peer_results(), ["ladder", "speedup", "seq_len", "peer", "peer-seq_len", "roofline"]),
            (3, version3(), ["ladder", "speedup", "seq_len", "peer", "peer-seq_len", "roofline"]),
        ):
            self.assertEqual(data["schema_version"], version)
            self.assertEqual(list(self.specs(data)), charts)

    def test_scores(self):
        data = score_results()
        made = self.specs(data)
        self.assertEqual(list(made), ["scores-1024", "scores-2048"])
        self.assertEqual(list(self.specs(data, seq_len=2048)), ["scores-2048"])
        speed, error = made["scores-2048"]["vconcat"]
        self.assertEqual([panel["title"]["text"] for panel in speed["hconcat"]],
                         ["The same for all keys", "Growing with the key's index"])
        for row, field, values in ((speed, "tflops", [700, 650, 600]), (error, "rel", [0.002, 0.003, 0.004])):
            for panel, growth in zip(row["hconcat"], ("flat", "growing")):
                found = panel["data"]["values"]
                self.assertEqual([each[field] for each in found if each["kernel"] == "16_max_free"], values)
                self.assertEqual({each["growth"] for each in found}, {growth})
                self.assertEqual(len(found), 6)
                x = panel["layer"][0]["encoding"]["x"]
                self.assertEqual((x["scale"]["type"], x["scale"]["domain"], x["axis"]["values"]),
                                 ("log", [1, 100], [1, 10, 100]))
                self.assertEqual(panel["layer"][0]["encoding"]["color"]["scale"]["domain"],
                                 ["16_max_free", "FlashAttention-3 (fa3-fwd 0.0)"])

    def test_scores_beside_ordinary_records(self):
        both = score_results()
        both["records"] = cuda_results()["records"] + both["records"]
        alone, made = self.specs(cuda_results()), self.specs(both)
        self.assertEqual({name: made[name] for name in alone}, alone)  # whose charts do not change
        self.assertEqual(sorted(made.keys() - alone.keys()), ["scores-1024", "scores-2048"])
        types = score_results()
        types["records"] += [{**record, "dtype": "fp16"} for record in types["records"]]
        self.assertEqual(self.specs(types), self.specs(score_results()))  # bf16
        self.assertIn("fp16, batch 16", words(self.specs(types, dtype="fp16")["scores-1024"]))
        flat = score_results()
        flat["records"] = [r for r in flat["records"] if r["score_growth"] == "flat" and r["seq_len"] == 1024]
        (row, _), = (each["vconcat"] for each in self.specs(flat).values())
        self.assertEqual(len(row["hconcat"]), 1)
        flat["records"] = [r for r in flat["records"] if r["score_std"] == 1]
        self.assertEqual(self.specs(flat), {})
        for change in ({"score_std": -1}, {"score_growth": None}):
            broken = score_results()
            broken["records"][3].update(change)
            with self.assertRaisesRegex(Refused, r"is invalid: records\[3\]"):
                self.specs(broken)

    def test_emulator_against_the_ideal(self):
        made = self.specs(statement_results())
        self.assertEqual(list(made), ["ladder", "ideal"])
        shared, global_ = made["ideal"]["hconcat"]

        def cells(panel):
            return {(row["kernel"], row["kind"]): (row["label"], row["count"]) for row in panel["data"]["values"]}
        self.assertEqual(cells(shared), {
            ("07_cp_async", "ldmatrix"): ("8.00", "6.40 k"), ("08_swizzle", "ldmatrix"): ("1.00", "800"),
            ("07_cp_async", "cp.async"): ("1.00", "400"), ("08_swizzle", "cp.async"): ("1.00", "400")})
        self.assertEqual(cells(global_)["08_swizzle", "global store"], ("2.00", "2.05 k"))
        self.assertEqual(global_["encoding"]["x"]["sort"], ["global store", "cp.async"])
        self.assertEqual(list(self.specs(emulator_results())), ["ladder"])  # no statements in older files
        for counts in (5, {"statement": "a();"}, {"statement": "a();", "kind": "ldmatrix", "wavefronts": -1}):
            data = statement_results()
            data["records"][0]["statements"][0] = counts
            with self.assertRaisesRegex(Refused, r"is invalid: records\[0\].statements\[0\]"):
                self.specs(data)

    def test_batches_that_change_with_the_length(self):
        def line(batches):
            data = results(CUDA, [{**cuda_record("01_naive", 100.0, seq_len=n), "batch": b} for n, b in batches])
            made = self.specs(data)["seq_len"]
            return len(layer(made, "line") and made["layer"][0]["data"]["values"]), made["title"]["subtitle"][0]

        start = "bf16, 16 heads, head_dim 128, batch "
        self.assertEqual(line([(1024, 16), (2048, 8)]), (2, start + "x tokens = 16384"))
        self.assertEqual(line([(512, 16), (1024, 16), (8192, 8), (16384, 4)]),
                         (4, start + "16 (8 at 8192, 4 at 16384)"))
        self.assertEqual(line([(512, 16), (1024, 16), (1024, 1), (2048, 16)]), (3, start + "16"))

    def test_other_problems_of_the_files_are_named(self):
        records = [cuda_record("01_naive", 1.0), cuda_record("02_online_softmax", 1.0),
                   {**cuda_record("01_naive", 1.0), "head_dim": 64}, {**cuda_record("01_naive", 1.0), "dtype": "fp16"}]
        (group,) = chart.group_files([self.write("all.json", results(CUDA, records))])
        wish = dict.fromkeys(chart.Shape._fields)
        self.assertEqual(list(chart.not_shown(group, wish)),
                         ["--dtype bf16 --head-dim 64", "--dtype fp16 --head-dim 128"])
        self.assertEqual(list(chart.not_shown(group, {**wish, "dtype": "fp16"})), [])

    def test_a_causal_record_is_never_beside_a_full_one(self):
        data = newest(peer_results())
        full = [r for r in data["records"] if r["kernel"] != "peer/cudnn"]
        masked = [beyond(r, r["tflops"] / 2, mask="causal") for r in full]
        data["records"] = [*full, *masked, *(beyond(r, r["tflops"] / 4, mask="causal", kv_heads=8) for r in full)]
        for wish, rest, factor in (({}, "", 1), ({"mask": "none"}, "", 1), ({"mask": "causal", "kv_heads": 16}, ", causal", 0.5),
                                    ({"kv_heads": 8}, ", causal, 8 key heads", 0.25)):
            made = self.specs(data, **wish)
            lines = layer(made["seq_len"], "line")["data"]["values"]
            self.assertEqual([round(row["tflops"], 6) for row in lines if row["kernel"].endswith("swizzle")],
                             [round(r["tflops"] * factor, 6) for r in full if r["kernel"] == "08_swizzle"])
            self.assertIn(f"head_dim 128{rest}, batch x", made["seq_len"]["title"]["subtitle"][0])
            self.assertEqual(made["ladder"]["title"]["subtitle"][0], f"bf16, batch 8, 16 heads, 2048 tokens, head_dim 128{rest}")
            self.assertEqual(len(made["ladder"]["data"]["values"]), 3)
            self.assertIn(f"head_dim 128{rest}; ratios within", made["peer"]["title"]["subtitle"][0])
        (group,) = chart.group_files([self.write("all.json", data)])
        start = "--dtype bf16 --head-dim 128 --mask "
        self.assertEqual(list(chart.not_shown(group, dict.fromkeys(chart.Shape._fields))),
                         [start + "causal --kv-heads 8", start + "causal --kv-heads 16"])
        only = {**data, "records": masked}
        self.assertRegex(self.specs(only, profile=profile())["roofline"], "^the results lack the profile's problem")
        self.assertIn("head_dim 128, causal", words(self.specs(only)["speedup"]))

    def test_peers_that_would_be_shown_alike(self):
        data = peer_results()
        data["records"].append({**data["records"][2], "kernel": "peer/other"})
        names = [row["kernel"] for row in self.specs(data)["ladder"]["data"]["values"]]
        alike = "FlashAttention-2 (PyTorch 2.11), peer/"
        self.assertEqual([name for name in names if "Flash" in name], [alike + "fa2", alike + "other"])

    def test_bad_files(self):
        half = json.dumps(cuda_results())
        cases = [(half[: len(half) // 2], "cut off"), ('{"schema_version": 9}', "schema version 9"),
                 (half.replace("2.5,", "NaN,", 1), "holds NaN"),
                 (half.replace('"tflops": 2.5,', '"tflops": 1e999,', 1), "holds inf, which is no measurement"),
                 (half.replace('"median": ', '"median": -', 1), r"records\[0\].time_ms.median is -54.9"),
                 ('{"schema_version": 3}', "the file lacks 'created'"),
                 (json.dumps({**cuda_results(), "machine": {"backend": "cuda"}}), "machine lacks 'gpu'"),
                 (json.dumps({**cuda_results(), "machine": {"backend": "emulator"}}), "machine lacks 'checked'"),
                 (json.dumps({**cuda_results(), "machine": {"backend": "abacus"}}), "machine.backend is"),
                 (json.dumps({**cuda_results(), "records": [{}]}), r"records\[0\] lacks 'kernel'")]
        for content, message in cases:
            with self.subTest(message), self.assertRaisesRegex(Refused, f"0.json .*{message}"):
                self.specs(content)


class Roofline(SpecTest):
    def test_points_and_limits(self):
        made = self.specs(version3(), profile=profile())["roofline"]
        for text in ("Roofline of NVIDIA H200", "08_swizzle", "HBM, 4.8 TB/s", "L2, 12 TB/s", "31 TB/s",
                     "Tensor Cores, bf16: 989 TFLOP/s", "cuBLAS 13.0, matrix product: 794"):
            self.assertIn(text, words(made))
        mine = {row["level"]: row for row in points(made) if row["kernel"] == "08_swizzle"}
        flops = 4 * 16 * 2048**2 * 128
        self.assertAlmostEqual(mine["hbm"]["intensity"], flops / 26_901_248)
        self.assertAlmostEqual(mine["l2"]["intensity"], flops / (12_562_297 * 32))
        self.assertAlmostEqual(mine["shared"]["intensity"], flops / (18_885_777 * 128 + (17_039_360 + 524_288) * 32))
        speed = next(r["tflops"] for r in version3()["records"] if (r["kernel"], r["seq_len"]) == ("08_swizzle", 2048))
        self.assertEqual({row["tflops"] for row in mine.values()}, {speed})
        self.assertEqual(len(points(made)), 6)

    def test_launches_of_one_kernel_are_summed(self):
        twice = profile()
        twice["launches"].append(copy.deepcopy(twice["launches"][0]))
        rows = points(self.specs(version3(), profile=twice)["roofline"])
        hbm = {row["kernel"]: row["intensity"] for row in rows if row["level"] == "hbm"}
        self.assertAlmostEqual(hbm["10_instruction_tuning"], 2 * hbm["08_swizzle"])

    def test_what_wgmma_reads_is_not_made_up(self):
        for change in ({"tensor_wgmma_instructions": 5}, {"shared_load_wavefronts": 0, "global_load_sectors": 0}):
            with self.subTest(change):
                some = profile()
                some["launches"][1]["metrics"].update(change)
                made = self.specs(version3(), profile=some)["roofline"]
                self.assertIn("Not shown at shared memory: 10 (", words(made))
                self.assertEqual([row["level"] for row in points(made) if row["kernel"][:2] == "10"], ["l2", "hbm"])

    def test_left_out_with_a_sentence(self):
        other = version3()
        other["machine"]["gpu"] = "NVIDIA Test"
        cases = [(None, None, "it needs the profiler's counters (--profile FILE"),
                 (profile(seq_len=512), None, "the results lack the profile's problem (bf16, 16 heads, 512 tokens"),
                 (profile(gpu="NVIDIA L4"), None, "the profile is of NVIDIA L4, the results of NVIDIA H200"),
                 (profile(gpu="NVIDIA Test"), other, "bench/machines.json does not know the limits of NVIDIA Test")]
        for profile_, data, message in cases:
            with self.subTest(message):
                why = self.specs(data or version3(), profile=profile_)["roofline"]
                self.assertTrue(isinstance(why, str) and why.startswith(message), why)

    def test_bad_profiles(self):
        lacking = profile()
        del lacking["launches"][1]["metrics"]["dram_bytes"]
        text = json.dumps(profile())
        cases = [(text[: len(text) // 2], "cut off"), (text.replace("26901248", "NaN"), "holds NaN"),
                 (profile(profile_version=7), "profile version 7"), (cuda_results(), "is not a profile"),
                 (lacking, r"is not a whole profile: launches\[1\] lacks dram_bytes"), (profile(batch="1"), "is not a whole profile"),
                 (text.replace("26901248", '"much"'), "has \"much\" for dram_bytes"),
                 (text.replace("26901248", "-1"), "has -1 for dram_bytes"), (profile(heads=0), "its shape is none")]
        for content, message in cases:
            with self.subTest(message), self.assertRaisesRegex(Refused, message):
                self.specs(version3(), profile=content)

    def test_sources_of_the_limits_are_named(self):
        machines = json.loads((ROOT / "bench" / "machines.json").read_text("utf-8"))["machines"]
        for name, machine in machines.items():
            with self.subTest(name):
                figures = {**machine["tflops"], **machine["tb_per_s"]}
                self.assertEqual(set(figures), {"tensor", "fp32", "shared", "l2", "hbm"})
                self.assertEqual(set(machine["sources"]) - {"sm", "l2_mib"}, set(figures))  # those: test_bounds.py
                self.assertTrue(all(value > 0 for value in figures.values()))


class Bounds(SpecTest):
    def setUp(self):
        super().setUp()
        self.counters = without_sources(read_json(ROOT / "bench" / "results" / "emulator_counts.jsonl#d128"))
        self.data = results(CUDA, [
            cuda_record("02_online_softmax", 16.0, seq_len=4096), cuda_record("08_swizzle", 250.0, seq_len=4096),
            cuda_record("99_mine", 1.0, seq_len=4096),
            not_passed(cuda_record("10_instruction_tuning", seq_len=4096), "wrong", "too large")])

    def test_points_and_labels(self):
        spec = self.specs(self.data, counters=self.counters)["bounds"]
        self.assertEqual({point["kernel"] for point in points(spec)}, {"02_online_softmax", "08_swizzle"})
        line = next(each for each in layer(spec, "rule")["data"]["values"] if each["kernel"] == "08_swizzle")
        self.assertEqual(line["least"], max(p["seconds"] for p in points(spec) if p["kernel"] == "08_swizzle"))
        self.assertRegex(line["label"], r"^2\.20 ms, 5\d % L1/shared$")
        self.assertIn("02_online_softmax", words(self.specs(self.data, counters=self.counters, theme=DARK)["bounds"]))
        self.assertLess(sum("tensor" == p["resource"] for p in points(spec)), 2)  # 02 has none

    def test_none(self):
        self.assertNotIn("bounds", self.specs(self.data))
        self.data["machine"]["gpu"] = "NVIDIA Test"
        self.assertIn("does not know the limits", self.specs(self.data, counters=self.counters)["bounds"])
        self.data["machine"]["gpu"] = "NVIDIA H200"
        self.counters["records"] = self.counters["records"][:1]
        self.assertIn("no kernel of these results", self.specs(self.data, counters=self.counters)["bounds"])


class Stale(SpecTest):
    def test_what_changed_is_told_and_drawn(self):
        """docs_charts() with a renderer that writes the specs' words, on a folder and results of its own."""
        vl = mock.Mock()
        vl.vegalite_to_svg = lambda spec, vl_version: (
            f"<svg>{escape(re.sub('#[0-9a-fA-F]{6}', '', json.dumps(spec)))}</svg>")
        self.write("mine.json", version3())
        self.write("profile.json", profile())
        drawings = [chart.Drawing("mine", ["mine.json"], "profile.json")]

        def run(check):
            said = io.StringIO()
            with mock.patch.multiple(chart, ROOT=self.folder, DOCS=self.folder / "charts", DOCS_CHARTS=drawings), \
                    contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                code = chart.docs_charts(vl, check)
            return code, [line.split(" is out of date")[0].split("/")[-1] for line in said.getvalue().splitlines()]

        names = [f"mine-{name}.svg" for name in ("ladder", "speedup", "seq_len", "peer", "peer-seq_len", "roofline")]
        self.assertEqual(run(True), (1, sorted(names)))
        self.assertFalse((self.folder / "charts").exists())
        self.assertEqual(run(False), (0, sorted(names)))
        self.assertEqual(run(True), (0, []))
        changed = profile()
        changed["launches"][0]["metrics"]["dram_bytes"] += 1
        self.write("profile.json", changed)
        self.write("charts/old.svg", "")
        self.assertEqual(run(True), (1, ["mine-roofline.svg", "old.svg"]))
        self.assertEqual(run(False)[0], 0)
        self.assertEqual(run(True), (0, []))
        self.assertFalse((self.folder / "charts" / "old.svg").exists())
        # Of some kernels and peers alone.
        drawings[0] = chart.Drawing("mine", ["mine.json"], None, only=("seq_len",), kernels=["0[78]_*", "peer/fa2"])
        self.assertEqual(run(False)[0], 0)
        drawn = (self.folder / "charts" / "mine-seq_len.svg").read_text(encoding="utf-8")
        self.assertIn("08_swizzle", drawn)
        self.assertNotIn("10_instruction_tuning", drawn)


@needs_venv("vl_convert")
class Drawn(ScriptTest):
    def draw(self, *arguments):
        done = self.run_script(VENV_PYTHON, CHART, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_gpu_results(self):
        source = self.write("h200.json", cuda_results())
        out = self.folder / "charts"
        said = self.draw(source, "-o", out)
        charts = ("ladder", "speedup", "seq_len", "peer")
        names = {path.name for path in out.iterdir()}
        self.assertEqual(names, {f"h200-{name}{end}" for name in charts for end in ENDS})
        self.assertEqual(re.findall(r"h200-(\w+)\.svg \(also h200-\w+\.png\)", said), list(charts))
        self.assertEqual(said.count("No roofline: it needs the profiler's counters"), 1)
        ladder = (out / "h200-ladder.svg").read_text(encoding="utf-8")
        for text in ("NVIDIA H200", "bf16", "1024 tokens", "head_dim 128", "01_naive", "peer/fa2", "wrong: head 3",
                     "skipped: needs compute capability 9.0", "TFLOP/s"):
            self.assertIn(text, ladder)
        self.assertTrue((out / "h200-ladder.png").read_bytes().startswith(b"\x89PNG"))
        # Drawn again, into another folder, with another time of day: the same bytes.
        again = self.folder / "again"
        self.draw(source, "-o", again)
        for path in out.iterdir():
            self.assertEqual(path.read_bytes(), (again / path.name).read_bytes(), path.name)

    def test_several_machines_and_specs(self):
        files = [self.write("a.json", results(CUDA, [cuda_record()])), self.write("b.json", emulator_results())]
        said = self.draw(*files, "--spec")
        names = {path.name for path in self.folder.glob("*-*")}
        ends = (*ENDS, ".vl.json")
        self.assertEqual(names, {f"{stem}-ladder{end}" for stem in "ab" for end in ends})
        self.assertEqual(said.count("No roofline"), 1)
        ladder = (self.folder / "b-ladder.svg").read_text(encoding="utf-8")
        for text in ("Emulator", "Global memory", "Shared memory", "8.91 M", "none"):
            self.assertIn(text, ladder)
        (group,) = chart.group_files(files[1:])
        spec = json.loads((self.folder / "b-ladder.vl.json").read_text("utf-8"))
        made = dict(chart.specs_of(group, dict.fromkeys(chart.Shape._fields)))["ladder"](LIGHT)
        self.assertEqual(spec, json.loads(json.dumps(made)))

    def test_charts_of_the_documentation_are_up_to_date(self):
        self.draw("--docs", "--check")

    def test_stale_pictures(self):
        spec, picture = (lambda theme: {"mark": "bar", "color": theme.text}), self.folder / "chart.svg"
        self.assertFalse(chart.is_fresh(picture, spec))
        svg = b"<svg/>\n"
        picture.write_bytes(svg)
        self.assertFalse(chart.is_fresh(picture, spec))
        picture.write_bytes(svg + chart.stamp_of(spec, svg))
        self.assertTrue(chart.is_fresh(picture, spec))
        self.assertFalse(chart.is_fresh(picture, lambda theme: {"mark": "line", "color": theme.text}))
        picture.write_bytes(b"<svg></svg>\n" + chart.stamp_of(spec, svg))  # by hand
        self.assertFalse(chart.is_fresh(picture, spec))

    def test_one_sentence(self):
        self.assert_one_sentence(self.run_script(VENV_PYTHON, CHART, self.folder / "none.json"), "no such file")
        text = json.dumps(cuda_results())
        cut, whole = self.write("cut.json", text[: len(text) // 2]), self.write("h200.json", text)
        done = self.run_script(VENV_PYTHON, CHART, cut, "-o", self.folder / "charts")
        self.assert_one_sentence(done, "cut.json", "cut off")
        self.assertFalse((self.folder / "charts").exists())
        done = self.run_script(VENV_PYTHON, CHART, whole, "--profile", cut)
        self.assert_one_sentence(done, "cut.json", "cut off")
        done = self.run_script(VENV_PYTHON, CHART, whole, "--dtype", "fp16")
        self.assert_one_sentence(done, "nothing to draw", code=1)
        done = self.run_script(VENV_PYTHON, CHART, whole, "--dtype", "fp32")
        self.assert_one_sentence(done, "invalid choice: 'fp32'")


class Themes(unittest.TestCase):
    SVG = '<svg xmlns="http://www.w3.org/2000/svg">{}</svg>'

    def drawing(self, inside):
        return read(self.SVG.format(inside))

    def test_what_differs_becomes_a_style_sheet(self):
        vl = mock.Mock()
        vl.vegalite_to_svg = lambda spec, vl_version: self.SVG.format(
            f'<defs><clipPath id="clip7"><path d="M0,0h9v9z"/></clipPath></defs><g clip-path="url(#clip7)" class="mark">'
            f'<text fill="{spec["color"]}" aria-label="{spec["color"]}">a</text><text fill="{spec["color"]}">b</text>'
            f'<text fill="#1f2328">c</text><path class="background" d="M0,0h9v9z"/></g>')
        made = one_svg(vl, lambda theme: {"title": {"text": "A & B"}, "color": theme.text}).decode()
        self.assertEqual(made.split("\n"), [
            '<svg xmlns="http://www.w3.org/2000/svg" role="img"><title>A &amp; B</title>',
            '<style>@media(prefers-color-scheme:dark){[fill="#1f2328"]{fill:#e6edf3}.fill-1f2328{fill:#1f2328}}</style>',
            '<defs><clipPath id="clip0"><path d="M0,0h9v9z"/></clipPath></defs><g clip-path="url(#clip0)">'
            '<text fill="#1f2328">a</text><text fill="#1f2328">b</text><text fill="#1f2328" class="fill-1f2328">c</text></g></svg>',
            ""])

    def test_only_colours_may_differ(self):
        for light, dark in (("<text>a</text>", "<text>b</text>"), ('<path d="M0,0"/>', '<path d="M0,1"/>')):
            with self.assertRaisesRegex(ValueError, "more than colours"):
                both(self.drawing(light), self.drawing(dark))
        with self.assertRaises(ValueError):
            both(self.drawing("<g/>"), self.drawing("<g/><g/>"))

    def test_a_group_says_what_its_members_share(self):
        root = self.drawing('<g><g transform="translate(0,0)"><text font-size="9px" transform="translate(1.23456,2)" opacity="1">a</text>'
                            '<text font-size="9px" fill="red" transform="translate(1,2) rotate(-90)">b</text></g><g class="x"/></g>')
        shorten(root)
        text = ElementTree.tostring(root, encoding="unicode")
        self.assertEqual(text, self.SVG.format('<g font-size="9px"><text x="1.23" y="2">a</text>'
                                               '<text fill="red" transform="translate(1,2) rotate(-90)">b</text></g>'))


class Labels(unittest.TestCase):
    def test_labels_keep_apart_and_near(self):
        for wanted in ([], [5.0], [1, 2, 3], [0, 100, 101, 102, 300], [7, 7, 7, 7], [0, 16, 33, 50]):
            placed = spread(wanted, 17)
            self.assertEqual(len(placed), len(wanted))
            self.assertTrue(all(b - a >= 17 - 1e-9 for a, b in zip(placed, placed[1:])), placed)
        self.assertEqual(spread([0, 100, 300], 17), [0, 100, 300])


@needs_venv("vl_convert")
class ManyKernels(ScriptTest):
    """Sixteen kernels and six peers, as close together as they may come: no text on another."""

    def test_texts_do_not_overlap(self):
        data = version3()
        model, peer = data["records"][0], data["records"][2]
        data["records"] = [r for r in data["records"] if r["kernel"].startswith("ceiling")]
        for seq_len in (1024, 2048):
            for i in range(22):
                name = f"{i + 1:02}_kernel_of_the_ladder" if i < 16 else f"peer/p{i}"
                ms = [(1 + i % 5 / 100) * seq_len / 1000 * k for k in (1, 1.01, 0.99)]
                record = copy.deepcopy(model if i < 16 else peer)
                record.update(kernel=name, seq_len=seq_len, batch=16384 // seq_len, round_ms=ms)
                if i >= 16:
                    record["library"]["implementation"] = f"Library-{i}"
                record.pop("ratio", None)
                record["time_ms"].update(median=ms[0], p10=ms[0] * 0.99, p90=ms[0] * 1.01)
                record["tflops"] = 4 * 16384 * 16 * seq_len * 128 / ms[0] / 1e9
                data["records"].append(record)
        some = profile()
        some["launches"] = [{**some["launches"][0], "kernel": f"{i + 1:02}_kernel_of_the_ladder"} for i in range(16)]
        files = [self.write("many.json", data), "--profile", self.write("profile.json", some)]
        done = self.run_script(VENV_PYTHON, CHART, *files, "-o", self.folder / "charts")
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("seq_len", "peer-seq_len", "roofline", "ladder", "speedup", "peer"):
            with self.subTest(name):
                self.assertEqual(overlaps((self.folder / "charts" / f"many-{name}.svg").read_text("utf-8")), [])


def overlaps(svg):
    """Pairs of horizontal texts whose boxes meet; a letter is taken as half as wide as high (Arial's mean)."""
    boxes = []

    def walk(node, x, y, look):
        look = {**look, **node.attrib}  # what a group says holds for all that is in it
        move = re.match(r"translate\(([-0-9.]+),([-0-9.]+)\)", node.get("transform", ""))
        if move:
            x, y = x + float(move[1]), y + float(move[2])
        if node.tag.endswith("}text") and node.text and "rotate" not in node.get("transform", ""):
            if look.get("stroke", "none") == "none":  # otherwise it is the rim of the same text
                x, y = x + float(node.get("x", 0)), y + float(node.get("y", 0))
                size = float(look.get("font-size", "12px").rstrip("px"))
                width = 0.5 * size * len(node.text)
                left = x - {"end": width, "middle": width / 2}.get(look.get("text-anchor"), 0)
                boxes.append((left, y - 0.7 * size, left + width, y, node.text))
        for child in node:
            walk(child, x, y, look)

    walk(ElementTree.fromstring(svg), 0, 0, {})
    if len(boxes) < 20:
        return ["hardly any text found"]
    return [(a[4], b[4]) for i, a in enumerate(boxes) for b in boxes[:i]
            if a[4] != b[4] and a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]]


if __name__ == "__main__":
    main()
