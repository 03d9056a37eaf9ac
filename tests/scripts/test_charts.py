"""Charts: the right files, the right words in them, the same bytes every time. Figures in both themes, how they are written,
and what they are computed from. And two results files side by side: what is faster, slower, the same, and what cannot be
compared."""

import itertools
import json
import re
import unittest
from collections import Counter
from unittest import mock
from xml.etree import ElementTree

from support import (CUDA, ROOT, SCRIPTS, VENV_PYTHON, ScriptTest, beyond, cuda_record, cuda_results, emulator_results, main,
                     needs_venv, not_passed, overlaps, peer_results, results)

from fa_tools.cards import BOOK
from fa_tools.measuring.profile import METRICS
from fa_tools.documents import beyond_tables, chart, cycles
from fa_tools.documents.charts.look import DARK as CHARTS_DARK, LIGHT as CHARTS_LIGHT, PHONE
from fa_tools.documents.charts.roofline import load_profile
from fa_tools.documents.figures import beyond_pictures as schedules
from fa_tools.documents.figures import narrow, pictures, timeline
from fa_tools.documents.figures.drawing import DARK, INK, LIGHT, NARROW
from fa_tools.for_readers import compare
from fa_tools.sources import constant
from fa_tools.tools import Refused

CHART = SCRIPTS / "fa", "chart"
ENDS = (".svg", ".png")


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
    def specs(self, *contents, profile=None, peer=None, counters=None, theme=CHARTS_LIGHT, **wish):
        """{chart: its spec, or the sentence why there is none} of results files with these contents, in one group."""
        files = [self.write(f"{i}.json", content) for i, content in enumerate(contents)]
        (group,) = chart.group_files(files)
        profile = profile and load_profile(self.write("profile.json", profile))
        wish = {**dict.fromkeys(chart.Shape._fields), **wish}
        made = chart.specs_of(group, wish, profile, peer, counters)
        return {name: made if isinstance(made, str) else made(theme) for name, made in made}


class Specs(SpecTest):
    def test_which_charts_a_file_has(self):
        self.assertEqual(list(self.specs(cuda_results())), ["ladder", "speedup", "seq_len", "roofline"])
        self.assertEqual(list(self.specs(peer_results())), ["ladder", "speedup", "seq_len", "peer-seq_len", "roofline"])

    def test_charts_of_two_cards_have_names_of_their_own(self):
        other = cuda_results()
        other["machine"]["gpu"] = "NVIDIA H100 80GB HBM3"
        files = [self.write(f"{card}/x.json", data) for card, data in (("a", cuda_results()), ("b", other), ("c", emulator_results()))]
        self.assertEqual([group.stem for group in chart.group_files(files)], ["x-h200", "x-h100", "x-emulator"])

    def test_a_causal_record_is_never_beside_a_full_one(self):
        data = peer_results()
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
            self.assertIn(f"head_dim 128{rest}, batch x", made["peer-seq_len"]["title"]["subtitle"][0])
        (group,) = chart.group_files([self.write("all.json", data)])
        start = "--dtype bf16 --head-dim 128 --mask "
        self.assertEqual(list(chart.not_shown(group, dict.fromkeys(chart.Shape._fields))),
                         [start + "causal --kv-heads 8", start + "causal --kv-heads 16"])
        only = {**data, "records": masked}
        self.assertRegex(self.specs(only, profile=profile())["roofline"], "^the results lack the profile's problem")
        self.assertIn("head_dim 128, causal", words(self.specs(only)["speedup"]))


class Roofline(SpecTest):
    def test_left_out_with_a_sentence(self):
        other = peer_results()
        other["machine"]["gpu"] = "NVIDIA Test"
        cases = [(None, None, "it needs the profiler's counters (--profile FILE"),
                 (profile(seq_len=512), None, "the results lack the profile's problem (bf16, 16 heads, 512 tokens"),
                 (profile(gpu="NVIDIA L4"), None, "the profile is of NVIDIA L4, the results of NVIDIA H200"),
                 (profile(gpu="NVIDIA Test"), other, "bench/machines.json does not know the limits of NVIDIA Test")]
        for profile_, data, message in cases:
            with self.subTest(message):
                why = self.specs(data or peer_results(), profile=profile_)["roofline"]
                self.assertTrue(isinstance(why, str) and why.startswith(message), why)


class Cycles(SpecTest):
    def test_the_parts_are_the_whole(self):
        launches = cycles.launches()
        self.assertEqual([kernel[:2] for kernel in launches], ["10", "11", "12", "13", "14", "15", "16"])
        for kernel, launch in launches.items():
            with self.subTest(kernel):
                self.assertAlmostEqual(sum(launch.parts.values()), 1)
                self.assertGreaterEqual(min(launch.parts.values()), 0)
                self.assertEqual([part for part in cycles.PARTS if part in launch.parts], [*launch.parts])
                self.assertAlmostEqual(100 * launch.parts["products"], launch.record["under_load"]["share"])
                self.assertEqual("slower" in launch.parts, kernel.startswith("10"))
                self.assertEqual(("ends" in launch.parts, "within" in launch.parts, "both" in launch.parts),
                                 (True, True, False) if launch.miss <= cycles.CLOSE else (False, False, True))


class Beside(SpecTest):
    def test_shares_of_each_cards_own_peak(self):
        data = peer_results()
        other = {**data, "machine": {**data["machine"], "gpu": "NVIDIA GeForce RTX 4090"},
                 "records": [r for r in data["records"] if r["kernel"] == "08_swizzle"]}
        unknown = {**other, "machine": {**data["machine"], "gpu": "NVIDIA Test"}}
        mine, ours, test = (chart.group_files([self.write(f"{name}.json", each)])[0]
                            for name, each in (("mine", other), ("ours", data), ("test", unknown)))
        wish = dict.fromkeys(chart.Shape._fields)
        spec = chart.beside_charts(mine, ours, wish)(CHARTS_LIGHT)
        rows = {(row["kernel"], row["gpu"]): row["share"] for row in spec["data"]["values"]}
        speeds = {r["kernel"]: r["tflops"] for r in data["records"] if r["seq_len"] == 2048 and "tflops" in r}
        self.assertEqual({key: round(share, 6) for key, share in rows.items()}, {
            ("08_swizzle", "NVIDIA GeForce RTX 4090"): round(100 * speeds["08_swizzle"] / 165.2, 6),
            ("08_swizzle", "NVIDIA H200"): round(100 * speeds["08_swizzle"] / 989, 6),
            ("10_instruction_tuning", "NVIDIA H200"): round(100 * speeds["10_instruction_tuning"] / 989, 6)})
        self.assertIn("2048 tokens", words(spec))
        self.assertEqual(chart.beside_charts(test, ours, wish), "bench/machines.json does not know the limits of NVIDIA Test")
        self.assertEqual(chart.beside_charts(mine, ours, {**wish, "head_dim": 64}), "both cards have no problem in common")


class Spread(SpecTest):
    """Of drawn problems, from made-up results."""

    def write_shapes(self, stale=False):
        """Four problems one by one, on one of which no library and on one of which no kernel has a time, and one in a row."""
        def of(kernel, seq_len, ratio=None, **more):
            return {**beyond(cuda_record(kernel, 100.0, seq_len), mask="causal"), **({"ratio": {"peer/fa3": ratio}} if ratio else {}), **more}

        one_by_one = [of("beyond/causal", 128, 0.8), of("beyond/split_keys", 128, 1.6), of("beyond/causal", 256, 1.2), of("beyond/causal", 512),
                      not_passed(of("beyond/causal", 1024), "wrong", "head 3")]
        in_a_row = [of("beyond/causal", 128, 0.9, **({"source": "0" * 16} if stale else {}))]
        files = {"2": one_by_one, "7_in_a_row": in_a_row}
        self.write(f"{BOOK}/shapes.jsonl", "".join(json.dumps({"name": name, "results": results(CUDA, records)}) + "\n" for name, records in files.items()))

    def here(self):
        return mock.patch.object(beyond_tables, "RESULTS", self.folder)

    def test_a_step_for_each_problem(self):
        self.write_shapes()
        with self.here():
            ((name, spec_of),) = chart.spread_specs()
        self.assertEqual(name, "h200-shapes")
        for theme in (CHARTS_LIGHT, CHARTS_DARK._replace(phone=True)):
            spec = spec_of(theme)
            rows = [(row["kernel"], row["times"], row["share"]) for row in layer(spec, "line")["data"]["values"]]
            self.assertEqual(rows, [("one by one: 2 problems, 2 left out", *step) for step in ((1.2, 0), (1.2, 50), (1.6, 100))]
                             + [("20 in a row: 1 problem", *step) for step in ((0.9, 0), (0.9, 100))])
            self.assertIn("the seeds 2, 7;", " ".join(spec["title"]["subtitle"]))
            self.assertEqual(layer(spec, "rule")["data"]["values"], [{"times": 1}])
            low, high = layer(spec, "line")["encoding"]["x"]["scale"]["domain"]
            self.assertTrue(low < 0.9 and high > 1.6)
            self.assertNotIn("Pale or dotted", words(spec))

    def test_of_a_kernel_that_has_changed_since(self):
        self.write_shapes(stale=True)
        with self.here():
            ((_, spec_of),) = chart.spread_specs()
        spec = spec_of(CHARTS_LIGHT)
        self.assertIn("Pale or dotted", spec["title"]["subtitle"][-1])
        self.assertIn('["20 in a row: 1 problem"]', layer(spec, "line")["encoding"]["strokeDash"]["condition"][0]["test"])

    @needs_venv("vl_convert")
    def test_a_page_shows_it_once_it_can_be_drawn(self):
        charts = self.folder / "charts"
        code = ("import pathlib, sys, vl_convert; from fa_tools.documents import beyond_tables, chart; from fa_tools.documents.charts.themes import on_phones, one_svg; "
                "here = pathlib.Path(sys.argv[1]); beyond_tables.RESULTS, chart.DOCS, chart.DOCS_CHARTS = here, here / 'charts', []; "
                "print(*beyond_tables.table('shapes chart'), chart.docs_charts(vl_convert, False), chart.docs_charts(vl_convert, True)); "
                "[print(one_svg(vl_convert, on_phones(spec)).decode()) for _, spec in chart.docs_specs()]")

        def page():
            return self.run_script(VENV_PYTHON, "-c", code, self.folder, code=0).stdout

        not_yet = "(Not measured yet: on an H200 <!-- needs: gpu -->`scripts/fa measure --only shapes` does it.) 0 0\n"
        self.assertEqual(page(), not_yet)
        self.write_shapes()
        shown = page()
        self.assertIn("](../charts/h200-shapes.svg) 0 0\n", shown)
        phone = shown[shown.index("<svg"):]
        for svg in ((charts / "h200-shapes.svg").read_text(encoding="utf-8"), phone):
            self.assertEqual(overlaps(svg), [])
            self.assertIn("one by one: 2 problems, 2 left out", svg)
        self.assertLessEqual(float(re.search(r'<svg [^>]*\bwidth="([\d.]+)"', phone)[1]), PHONE)
        (self.folder / BOOK / "shapes.jsonl").unlink()
        self.assertIn("removed ", page())
        self.assertEqual(([*charts.iterdir()], page()), ([], not_yet))


@needs_venv("vl_convert")
class Drawn(ScriptTest):
    def draw(self, *arguments):
        done = self.run_script(VENV_PYTHON, CHART, *arguments, code=0)
        return done.stdout

    def test_gpu_results(self):
        source = self.write("gpu.json", cuda_results())
        out = self.folder / "charts"
        said = self.draw(source, "-o", out)
        charts = ("ladder", "speedup", "seq_len")
        names = {path.name for path in out.iterdir()}
        self.assertEqual(names, {f"gpu-{name}{end}" for name in charts for end in ENDS})
        self.assertEqual(re.findall(r"gpu-(\w+)\.svg \(also gpu-\w+\.png\)", said), list(charts))
        self.assertEqual(said.count("No roofline: it needs the profiler's counters"), 1)
        ladder = (out / "gpu-ladder.svg").read_text(encoding="utf-8")
        for text in ("NVIDIA H200", "bf16", "1024 tokens", "head_dim 128", "01_naive", "peer/fa2", "wrong: head 3",
                     "skipped: needs compute capability 9.0", "TFLOP/s"):
            self.assertIn(text, ladder)
        self.assertTrue((out / "gpu-ladder.png").read_bytes().startswith(b"\x89PNG"))
        # Drawn again, into another folder, with another time of day: the same bytes.
        again = self.folder / "again"
        self.draw(source, "-o", again)
        for path in out.iterdir():
            self.assertEqual(path.read_bytes(), (again / path.name).read_bytes(), path.name)

    def test_charts_of_the_documentation_are_up_to_date(self):
        self.draw("--docs", "--check")

    def test_one_sentence(self):
        self.assert_one_sentence(self.run_script(VENV_PYTHON, CHART, self.folder / "none.json"), "no such file")
        text = json.dumps(cuda_results())
        cut, whole = self.write("cut.json", text[: len(text) // 2]), self.write("whole.json", text)
        done = self.run_script(VENV_PYTHON, CHART, cut, "-o", self.folder / "charts")
        self.assert_one_sentence(done, "cut.json", "cut off")
        self.assertFalse((self.folder / "charts").exists())
        done = self.run_script(VENV_PYTHON, CHART, whole, "--profile", cut)
        self.assert_one_sentence(done, "cut.json", "cut off")
        done = self.run_script(VENV_PYTHON, CHART, whole, "--dtype", "fp16")
        self.assert_one_sentence(done, "nothing to draw", code=1)
        done = self.run_script(VENV_PYTHON, CHART, whole, "--dtype", "fp32")
        self.assert_one_sentence(done, "invalid choice: 'fp32'")


class Committed(ScriptTest):
    def test_texts_do_not_overlap(self):
        for path in sorted((ROOT / "docs" / "charts").glob("*.svg")):
            with self.subTest(path.name):
                self.assertEqual(overlaps(path.read_text(encoding="utf-8")), [])


# ---- scripts/fa compare -------------------------------------------------------------------------------------------------

COMPARE = SCRIPTS / "fa", "compare"


class Verdicts(unittest.TestCase):
    def test_medians_and_ranges(self):
        a = {"median": 100, "low": 97, "high": 103}
        for median, low, high, expected in (
            (90, 89, 91, "faster"), (110, 109, 111, "slower"),
            (101, 101, 101, "same"), (101, 90, 110, "same"),  # in the other's range
            (98.5, 90, 96, "same"),  # outside, but within the threshold
            (110, 102, 120, "cannot tell"), (90, 80, 98, "cannot tell"),  # far apart, but the ranges overlap
            (104, 103, 105, "cannot tell"),  # they touch
            (104, 103.1, 105, "slower"),
        ):
            with self.subTest((median, low, high)):
                self.assertEqual(compare.verdict(a, {"median": median, "low": low, "high": high}, 2), expected)


class Compare(ScriptTest):
    def compare(self, a, b, *arguments):
        return self.run_script(COMPARE, self.write("a.json", a), self.write("b.json", b), *arguments)

    def judged(self, a, b, threshold=2):
        """The pairs by kernel and length, what only A and only B have, and how many pairs have each verdict."""
        pairs, only = compare.compare([a, b], lambda kernel: True, threshold)
        return {(pair["kernel"], pair["seq_len"]): pair for pair in pairs}, only, compare.summary(pairs)

    def test_single_runs(self):
        a = results(CUDA, [cuda_record("01_naive", 100.0), cuda_record("02_online_softmax", 100.0),
                           cuda_record("03_register_tiling", 100.0), cuda_record("04_wmma", 100.0)])
        b = results(CUDA, [cuda_record("01_naive", 104.0), cuda_record("02_online_softmax", 95.0),
                           cuda_record("03_register_tiling", 101.5), cuda_record("05_mma_split_kv", 1.0)])
        pairs, only, summary = self.judged(a, b)
        self.assertEqual([pair["verdict"] for pair in pairs.values()], ["faster", "slower", "same"])
        self.assertAlmostEqual(pairs["01_naive", 1024]["speed"], 1.04)
        self.assertEqual([[kernel for kernel, *_ in side] for side in only], [["04_wmma"], ["05_mma_split_kv"]])
        self.assertEqual(summary, {"faster": 1, "slower": 1, "same": 1})
        self.assertEqual(self.judged(a, b, 6)[2], {"same": 3})
        self.assertIn("\nB against A: 3 same\n", self.compare(a, b, "--threshold", "6").stdout)
        for chosen in (("01", "peer/fa2"), ("--threshold", "2", "01", "peer/fa2"), ("--kernels", "01,peer/fa2")):  # the last as in 1.0.0
            self.assertTrue(self.compare(a, b, *chosen).stdout.endswith("\n\nB against A: 1 faster\n"), chosen)

    def test_what_did_not_pass(self):
        a, b = cuda_results(), cuda_results()
        b["records"][0] = not_passed(b["records"][0], "wrong", "head 1: NaN")
        pairs, _, _ = self.judged(a, b)
        self.assertEqual(pairs["01_naive", 1024]["reason"], "A passed; B wrong (head 1: NaN)")
        self.assertNotIn("speed", pairs["01_naive", 1024])
        shown = self.compare(a, b).stdout
        self.assertIn("not compared: A passed; B wrong (head 1: NaN)", shown)
        self.assertIn("3 not compared", shown)

    def test_emulator(self):
        a, b = emulator_results(), emulator_results()
        b["records"][0]["counters"]["barriers"] += 1
        del b["records"][1]["counters"]["exp2"]
        pairs, _, _ = self.judged(a, b)
        self.assertEqual(pairs["01_naive", 256]["differing"], {"barriers": [64, 65]})
        self.assertEqual((pairs["02_online_softmax", 256]["verdict"], pairs["02_online_softmax", 256]["counters"]),
                         ("same", 5))
        shown = self.compare(a, b).stdout
        self.assertIn("differs in 1 of 6 counters", shown)
        self.assertRegex(shown, r"barriers +64 +65  \+1\.6 %")
        self.assertTrue(shown.endswith("\n1 same, 1 different\n"), shown)

    def test_refused_with_one_sentence(self):
        text = json.dumps(cuda_results())
        other = cuda_results()
        for record in other["records"]:
            record["heads"] = 3
        cases = [(text[: len(text) // 2], "b.json is cut off"), (text.replace("2.5,", "NaN,", 1), "b.json holds NaN"),
                 (text.replace('"schema_version": 6', '"schema_version": 9'), "b.json has schema version 9"),
                 (emulator_results(), "cannot be compared"), (other, "have no kernel on the same problem in common")]
        for content, words in cases:
            with self.subTest(words):
                self.assert_one_sentence(self.compare(cuda_results(), content), words)
        self.assert_one_sentence(self.compare(text, text, "12"), "nothing of 12 on the same problem")
        self.assert_one_sentence(self.compare(text, text, "--threshold", "-1"), "-1 is no percentage")
        self.assert_one_sentence(self.run_script(COMPARE, "a.json"), "required: B.json")


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a, b):
    """As the Web Content Accessibility Guidelines have it."""
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def behind(shapes, x, y):
    """The colour below a point: that of the last shape that covers it."""
    covers = [dict(shape.look).get("fill") for shape in shapes if shape.kind != "text"
              and shape.box[0] <= x <= shape.box[2] and shape.box[1] <= y <= shape.box[3]]
    return ([INK.background] + [color for color in covers if color not in (None, "none")])[-1]


def drawn():
    """Each picture by its name, but those of the interactive pages where their data are not built."""
    for name, draw in pictures.DRAWN.items():
        try:
            yield name, draw()
        except Refused:
            if name not in pictures.INTERACTIVE:
                raise


class Figures(unittest.TestCase):
    def test_small_letters_of_pictures_can_be_read_on_a_phone(self):
        """A phone is 360 pixels wide, 328 without its edges; what has no narrow form is 620 wide there and scrolls."""
        for name, wide in drawn():
            picture = narrow.form(name) if name in NARROW else wide
            scale = (328 if name in NARROW or picture.width < 620 else 620) / picture.width
            size = min(float(dict(shape.look)["font-size"][:-2]) for shape in picture.shapes if shape.kind == "text")
            self.assertGreaterEqual(size * scale, 7, f"{name}: in a picture {picture.width} wide")

    def test_narrow_forms_say_the_same(self):
        def words(picture):
            return Counter(" ".join(shape.what for shape in picture.shapes if shape.kind == "text").split())

        for name, (width, bands) in NARROW.items():
            wide, form = pictures.DRAWN[name](), narrow.form(name)
            self.assertEqual(set(words(form)), set(words(wide)), name)
            if all(band.beside is None for band in bands):  # otherwise the text of a block that is cut may be its first word only
                self.assertLessEqual(sum((words(wide) - words(form)).values()), 5, f"{name}: words of two arrows may become one's")
            drawn = sum(shape.kind != "text" for shape in pictures.DRAWN[name](width).shapes)
            kept = sum(shape.kind != "text" for _, _, stacks in narrow.divided(pictures.DRAWN[name](width), bands)
                       for stack, _ in stacks for shape in stack)
            self.assertGreaterEqual(kept, drawn - 1, f"{name}: one line between the parts may be left out")
            for shape in form.shapes:
                x, y, right, bottom = narrow.extent(shape)
                self.assertTrue(0 <= x and right <= form.width and 0 <= y and bottom <= form.height, (name, shape))
            texts = [(shape.what, narrow.extent(shape)) for shape in form.shapes if shape.kind == "text"]
            for (one, (left, top, right, bottom)), (other, (x, y, end, low)) in itertools.combinations(texts, 2):
                over = min(right, end) - max(left, x), min(bottom, low) - max(top, y)
                self.assertFalse(over[0] > 4 and over[1] > 2, f"{name}: '{one}' is over '{other}'")

    def test_a_phone_shows_all_of_a_timeline(self):
        """In windows onto it: none shows what is outside, and every place is in one, but what is beside the titles."""
        for name, svg in timeline.phones().items():
            picture = ElementTree.fromstring(svg)
            whole = ElementTree.parse(timeline.FOLDER / f"{name}.svg").getroot()
            views = [tuple(map(float, each.get("viewBox").split())) for each in picture.findall("{*}svg")]
            edges = sorted({edge for _, top, _, tall in views for edge in (top, top + tall)})
            self.assertLess(float(whole.get("height")) - edges[-1], 20, name)
            for begin, end in zip(edges, edges[1:]):
                right = 0
                for left, top, wide, tall in sorted(views):
                    if top <= begin and end <= top + tall:
                        self.assertLessEqual(left, right, name)
                        right = max(right, left + wide)
                self.assertIn(right, (timeline.PHONE, float(whole.get("width"))), name)

    def test_texts_can_be_read_in_both_themes(self):
        for name, picture in drawn():
            for i, shape in enumerate(picture.shapes):
                if shape.kind == "text":
                    left, top, right, bottom = shape.box
                    color, below = dict(shape.look)["fill"], behind(picture.shapes[:i], (left + right) / 2, (top + bottom) / 2)
                    said = f"{name}: {shape.what!r}, {color} on {below}"
                    self.assertGreaterEqual(contrast(color, below), 3, said)
                    self.assertGreaterEqual(contrast(picture.dark[color], picture.dark[below]), 3, f"{said}, in the dark theme")
                    self.assertTrue(0 <= top and bottom <= picture.height, f"{said} is outside")

    def test_every_colour_has_one_for_the_dark_theme(self):
        for folder, light, dark in (("pictures", LIGHT, DARK), ("timelines", LIGHT, DARK), ("charts", CHARTS_LIGHT, CHARTS_DARK)):
            files = sorted((ROOT / "docs" / folder).glob("*.svg"))
            self.assertTrue(files)
            for path in files:
                root = ElementTree.parse(path).getroot()
                title, style = (root.find(f"{{http://www.w3.org/2000/svg}}{name}").text for name in ("title", "style"))
                self.assertEqual(root.get("role"), "img", path.name)
                self.assertTrue(title, path.name)
                known = dict(re.findall(r'\[(\w+="#\w+")\]\{\w+:(#\w+)\}', style))
                looks, in_the_dark = (dict(re.findall(r"\.(t\d+)\{[^}]*?fill:(#\w+)", part)) for part in style.split("@media", 1))
                self.assertEqual(looks.keys(), in_the_dark.keys(), path.name)
                self.assertEqual({(color, in_the_dark[name]) for name, color in looks.items()} - set(zip(light, dark)), set(), path.name)
                self.assertEqual(known[f'fill="{light.background}"'], dark.background, path.name)
                used = {f'{name}="{node.get(name)}"' for node in root.iter() for name in ("fill", "stroke")
                        if node.get(name, "none") != "none"}
                self.assertLessEqual(known.keys(), used, f"{path.name} has rules for nothing")
                if folder != "charts":  # some of theirs suit both
                    self.assertEqual(known.keys(), used, path.name)


class Constants(unittest.TestCase):
    def test_a_name_that_is_gone(self):
        with self.assertRaisesRegex(Refused, "has no kGone of kernel 13"):
            constant("13", "kGone")


class Pieces(unittest.TestCase):
    def test_a_rule_that_has_changed(self):
        with mock.patch.object(schedules, "RULE", "a rule that is gone"):
            with self.assertRaisesRegex(Refused, r"^expects 'a rule that is gone' once in kernels/beyond/split_keys\.cu, but"):
                schedules.cut(16, 16, 1, 16384)


if __name__ == "__main__":
    main()
