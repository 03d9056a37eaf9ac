"""The figures in both themes, how they are written, and what they are computed from: the kernels' constants, and the
schedules of kernels 12 to 14."""

import itertools
import re
import unittest
from xml.etree import ElementTree

from support import ROOT, main

from fa_tools.figures import pictures, traces
from fa_tools.charts.look import DARK as CHARTS_DARK, LIGHT as CHARTS_LIGHT
from fa_tools.figures.drawing import DARK, INK, LIGHT, Picture, constant, constant_of
from fa_tools.figures.first_pictures import speeds
from fa_tools.figures.hopper_pictures import PRODUCT, REST, SOFTMAX, follow_ring, follow_turns
from fa_tools.tools import Refused

CONFIG = """struct Config {
  static constexpr int kGroups = 2;
  static constexpr int kThreads = (kGroups + 1) * 128;  // threads
  static constexpr int kLaunch = 65536 / kThreads / 8 * 8;
  static constexpr int kLow = 24, kHigh = 240;
  static constexpr int kStages = kHeadDim == 128 && kGroups == 2 ? 3 : kGroups * 2;
"""


class Constants(unittest.TestCase):
    def test_expressions(self):
        for name, head_dim, value in (("kThreads", 128, 384), ("kLaunch", 128, 168), ("kLow", 64, 24), ("kHigh", 64, 240),
                                      ("kStages", 128, 3), ("kStages", 64, 4)):
            self.assertEqual(constant_of(CONFIG, name, head_dim), value, name)
        with self.assertRaisesRegex(ValueError, "no kMissing"):
            constant_of(CONFIG, "kMissing", 128)

    def test_of_a_kernel(self):
        self.assertEqual(constant("13", "kThreads"), 384)
        self.assertEqual([constant("13", "kSlabs", head_dim) for head_dim in (64, 128)], [1, 2])


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


class Figures(unittest.TestCase):
    def test_texts_can_be_read_in_both_themes(self):
        drawn = {}
        for name, draw in pictures.DRAWN.items():
            try:
                drawn[name] = draw()
            except Refused:  # the data of an interactive page are not built
                self.assertIn(name, pictures.INTERACTIVE)
        for name, picture in drawn.items():
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


class Map(unittest.TestCase):
    def test_each_step_can_be_marked(self):
        """map.svg#at-12 shows step 12 as the reader's place."""
        root = ElementTree.parse(ROOT / "docs" / "pictures" / "map.svg").getroot()
        steps = {node.get("id"): node for node in root if node.get("id")}
        self.assertEqual(list(steps), [f"at-{i:02}" for i in range(1, 17)])
        for name, node in steps.items():
            self.assertEqual([inner.get("class") for inner in node].count("here"), 1, name)
        style = root.find("{http://www.w3.org/2000/svg}style").text
        self.assertIn(".here{display:none}:target>.here{display:inline}", style)

    def test_factors_are_those_of_the_results(self):
        found = speeds()
        texts = [shape.what for shape in pictures.DRAWN["map"]().shapes if shape.kind == "text"]
        self.assertIn(f"\u00d7 {found['08_swizzle'] / found['07_cp_async']:.2f}", texts)
        self.assertEqual(sum(text.startswith("\u00d7") for text in texts), 15)


class Written(unittest.TestCase):
    def drawn(self, *shapes):
        """The lines of a picture of (method, arguments ...)."""
        picture = Picture(90, 60, "A < B")
        for method, *arguments in shapes:
            getattr(picture, method)(*arguments)
        lines = picture.svg().split("\n")
        self.style = lines[2]
        self.assertEqual((lines[1], lines[3]), ("<title>A &lt; B</title>", '<rect width="90" height="60" rx="6" fill="#ffffff"/>'))
        return lines[4:-2]

    def test_shapes_that_look_alike_are_one_path(self):
        a, b, over = ("rect", 2, 2, 4, 3, "#eef1f4"), ("rect", 6.5, 2, 4.25, 3, "#eef1f4"), ("rect", 7, 1, 2, 9, "#0072b2")
        self.assertEqual(self.drawn(a, b), ['<path fill="#eef1f4" d="M2 2h4v3h-4zm4.5 0h4.25v3h-4.25z"/>'])
        # What lies below something stays below it.
        self.assertEqual([re.search(r"#\w+", line)[0] for line in self.drawn(a, over, b)], ["#eef1f4", "#0072b2", "#eef1f4"])
        self.assertEqual(len(self.drawn(a, ("rect", 20, 1, 2, 9, "#0072b2"), b)), 2)
        self.assertEqual(len(self.drawn(a, ("text", 8, 4, "x", 3), b)), 3)
        self.assertEqual(len(self.drawn(a, (*b, "#0072b2"))), 2, "with an edge it looks different")
        # An edge is above its own shape, so two that overlap cannot be one path.
        edged = [("rect", x, 2, 8, 8, "#eef1f4", "#0072b2") for x in (2, 6, 20)]
        self.assertEqual(len(self.drawn(*edged)), 2)
        self.assertEqual(self.drawn(("line", 1, 1, 9, 1), ("line", 1, 3, 4, 7.5)),
                         ['<path stroke="#8c959f" stroke-width="1.4" d="M1 1h8M1 3l3 4.5"/>'])

    def test_groups(self):
        picture = Picture(90, 60, "A")
        with picture.group('id="at-01"'):
            with picture.group('class="here"'):
                picture.line(1, 1, 9, 1)
            picture.line(1, 3, 9, 3)
        picture.line(1, 5, 9, 5)
        line = '<path stroke="#8c959f" stroke-width="1.4" d="M1 {}h8"/>'
        self.assertEqual(picture.svg().split("\n")[4:-2], ['<g id="at-01">', '<g class="here">', line.format(1), "</g>",
                                                           line.format(3), "</g>", line.format(5)])

    def test_texts_that_look_alike_share_a_class(self):
        texts = [("text", 30 * i, 9, f"{i}&", 9, "#0072b2", "start") for i in range(2)]
        self.assertEqual(self.drawn(*texts), ['<text class="t0" x="0" y="9">0&amp;</text><text class="t0" x="30" y="9">1&amp;</text>'])
        self.assertTrue(self.style.startswith("<style>.t0{font-size:9px;fill:#0072b2}@media"), self.style)
        self.assertIn(".t0{fill:#58b4e8}}", self.style)
        rounded = [("rect", x, 1, 9, 9, "#eef1f4", "#0072b2", 2) for x in (1, 11.5)]
        self.assertEqual(self.drawn(*rounded), ['<g fill="#eef1f4" stroke="#0072b2" stroke-width="1.2"><rect x="1" y="1" width="9" '
                                                'height="9" rx="2"/><rect x="11.5" y="1" width="9" height="9" rx="2"/></g>'])
        # Without an edge: 5 x 5, and a round pen that is 4 wide.
        self.assertEqual(self.drawn(rounded[0][:6] + (None, 2)), [
            '<path fill="#eef1f4" stroke="#eef1f4" stroke-width="4" stroke-linejoin="round" d="M3 3h5v5h-5z"/>'])

    def test_texts_of_a_row_share_an_element(self):
        def row(*texts):
            (line,) = self.drawn(*(("text", 10 * i, 9, text, 9, "#0072b2") for i, text in enumerate(texts)))
            return re.sub(r'^<text class="t0"|<(?=tspan)|</t\w+>', "", line)

        self.assertEqual(row("a", "<"), ' x="0 10" y="9">a&lt;')
        self.assertEqual(row("a", "b", "10"), ' y="9">tspan x="0">atspan x="10">btspan x="20">10')
        self.assertIn("tspan\n", "\n".join(self.drawn(*(("text", 10 * i, 9, "ten", 2) for i in range(20)))),
                      "a line between two texts would be a space")

    def test_the_shortest_way(self):
        """Shapes of one form are copies of a marker; rectangles of one height or width are broad strokes."""
        form = [(4, 2), (8, 2), (12, 2), (12, 6)] + [(16 + 4 * i, 6) for i in range(30)]
        edged = self.drawn(*(("rect", x, y, 2, 2, "#eef1f4", "#0072b2") for x, y in form))
        self.assertEqual(edged, [
            '<path fill="none" style="marker:url(#m0)" d="M4 2h4 4v4h4' + " 4" * 29 + '"/>',
            '<defs><marker id="m0" overflow="visible"><path fill="#eef1f4" stroke="#0072b2" stroke-width="1.2" d="M0 0h2v2h-2z"/></marker>'
            '</defs>'])
        wide = self.drawn(*(("rect", 2, 10 * y, 5 + y, 4, "#eef1f4") for y in range(5)))
        self.assertEqual(wide, ['<path stroke="#eef1f4" stroke-width="4" d="M2 2h5M2 12h6M2 22h7M2 32h8M2 42h9"/>'])
        tall = self.drawn(*(("rect", 10 * x, 9 - x, 4, 5 + x, "#eef1f4") for x in range(5)))
        self.assertEqual(tall, ['<path stroke="#eef1f4" stroke-width="4" d="M2 14v-5m10 5v-6m10 6v-7m10 7v-8m10 8v-9"/>'])


class Schedules(unittest.TestCase):
    def test_ring(self):
        for stages in (2, 3):
            ring = follow_ring(stages, 3 * stages)
            self.assertTrue(all(tile.asked < tile.arrives <= tile.read < tile.released for tile in ring))
            for tile, later in zip(ring, ring[stages:]):
                self.assertEqual((later.stage, later.phase), (tile.stage, tile.phase + 1))
                self.assertGreaterEqual(later.asked, tile.released)

    def test_turns(self):
        alone = [follow_turns(4, ping_pong=False, overlap=overlap, warpgroups=1) for overlap in (False, True)]
        periods = [turns[2].begin - turns[1].begin for turns in alone]
        self.assertEqual(periods, [2 * PRODUCT + SOFTMAX + REST, PRODUCT + max(PRODUCT, SOFTMAX) + REST])
        for ping_pong, overlap in itertools.product((False, True), repeat=2):
            both = follow_turns(5, ping_pong, overlap)
            self.assertEqual([turn.warpgroup for turn in sorted(both, key=lambda turn: turn.begin)], [0, 1] * 5)
            spans = sorted(at for turn in both for at in (turn.qk, turn.pv))
            gaps = {second - first - PRODUCT for first, second in zip(spans, spans[1:])}
            # With the overlap the Tensor Cores never wait. Without it one iteration takes longer than both warpgroups' products.
            self.assertEqual(gaps, {0} if overlap else {0, SOFTMAX + REST - 2 * PRODUCT})

    def test_a_softmax_is_as_long_as_the_recorded_ones(self):
        """From the wait for S to the wait for O, in the recording of kernel 14 on a GPU."""
        rows = {}
        for event in traces.load(ROOT / "bench" / "results" / "h200_timelines.jsonl#14")["traceEvents"]:
            if event["ph"] == "X" and event["name"].startswith("waits: "):
                rows.setdefault((event["pid"], event["tid"]), []).append(event)
        spans = [after["ts"] - wait["ts"] - wait["dur"] for row in rows.values() for wait, after in itertools.pairwise(row)
                 if "kOverlap ? 1 : 0" in wait["args"]["statement"]]
        self.assertAlmostEqual(SOFTMAX, sum(spans) / len(spans), delta=0.1 * SOFTMAX)


if __name__ == "__main__":
    main()
