"""Charts: the right files, the right words in them, the same bytes every time."""

import contextlib
import copy
import io
import json
import re
from unittest import mock
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from support import (SCRIPTS, ScriptTest, beyond, cuda_record, cuda_results, emulator_results, main, needs_venv, newest,
                     peer_results, results, CUDA, VENV_PYTHON)

from fa_tools import chart
from fa_tools.charts.look import LIGHT
from fa_tools.charts.roofline import load_profile
from fa_tools.profile import METRICS
from fa_tools.tools import Refused

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
    def test_versions_1_to_3_are_drawn(self):
        for version, data, charts in (
            (1, cuda_results(), ["ladder", "speedup", "seq_len", "peer", "roofline"]),
            (2, peer_results(), ["ladder", "speedup", "seq_len", "peer", "peer-seq_len", "roofline"]),
            (3, version3(), ["ladder", "speedup", "seq_len", "peer", "peer-seq_len", "roofline"]),
        ):
            self.assertEqual(data["schema_version"], version)
            self.assertEqual(list(self.specs(data)), charts)

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

    def test_bad_files(self):
        half = json.dumps(cuda_results())
        cases = [(half[: len(half) // 2], "cut off"), ('{"schema_version": 9}', "schema version 9"),
                 (half.replace("2.5,", "NaN,", 1), "holds NaN"),
                 (half.replace('"tflops": 2.5,', '"tflops": 1e999,', 1), "holds inf, which is no measurement"),
                 (half.replace('"median": ', '"median": -', 1), r"records\[0\].time_ms.median: -54.9"),
                 ('{"schema_version": 3}', "the file: 'created' is a required"),
                 (json.dumps({**cuda_results(), "machine": {"backend": "cuda"}}), "machine: 'gpu' is a required"),
                 (json.dumps({**cuda_results(), "machine": {"backend": "emulator"}}), "machine: 'checked' is a required"),
                 (json.dumps({**cuda_results(), "machine": {"backend": "abacus"}}), "machine: this is none of"),
                 (json.dumps({**cuda_results(), "records": [{}]}), r"records\[0\]: '\w+' is a required")]
        for content, message in cases:
            with self.subTest(message), self.assertRaisesRegex(Refused, f"0.json .*{message}"):
                self.specs(content)


class Roofline(SpecTest):
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
