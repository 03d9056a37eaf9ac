"""The figures in both themes, how they are written, and what they are computed from: the kernels' constants, and the
schedules of kernels 12 to 14."""

import re
import unittest
from xml.etree import ElementTree

from support import ROOT, main

from fa_tools.press.charts.look import DARK as CHARTS_DARK, LIGHT as CHARTS_LIGHT
from fa_tools.press.figures import pictures
from fa_tools.press.figures.drawing import DARK, INK, LIGHT, constant, real_constant
from fa_tools.press.figures.first_pictures import speeds
from fa_tools.tools import Refused


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
            except Refused:
                if name not in pictures.INTERACTIVE:  # whose data may not be built
                    raise
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


class Constants(unittest.TestCase):
    def test_a_name_that_is_gone(self):
        with self.assertRaisesRegex(Refused, r"^kernels/16_max_free\.cu has no line: constexpr float kGone = \.\.\.;$"):
            real_constant("16", "kGone")
        with self.assertRaisesRegex(Refused, r"^kernels/13_warp_specialization\.cu has no kGone in its Config$"):
            constant("13", "kGone")


class Map(unittest.TestCase):
    def test_factors_are_those_of_the_results(self):
        found = speeds()
        texts = [shape.what for shape in pictures.DRAWN["map"]().shapes if shape.kind == "text"]
        self.assertIn(f"\u00d7 {found['08_swizzle'] / found['07_cp_async']:.2f}", texts)
        self.assertEqual(sum(text.startswith("\u00d7") for text in texts), 15)


if __name__ == "__main__":
    main()
