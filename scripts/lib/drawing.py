"""What the pictures are drawn with: colours, shapes and texts of an SVG; the formulas and constants of the sources."""

import math
import re
from collections import namedtuple
from html import escape

from tools import ROOT

# soft: fills of shapes that carry text; strong: what the eye should find first.
Theme = namedtuple("Theme", "background text muted line cell blue blue_soft orange orange_soft green green_soft")
LIGHT = Theme("#ffffff", "#1f2328", "#59636e", "#8c959f", "#eef1f4", "#0072b2", "#d6e9f5", "#d55e00", "#fbe3d3",
              "#00805f", "#d5efe6")
DARK = Theme("#0d1117", "#e6edf3", "#9198a1", "#6e7681", "#1c222a", "#58b4e8", "#12384f", "#ff9a5c", "#54301a",
             "#3fc79f", "#113f33")
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
MONO = "Liberation Mono, DejaVu Sans Mono, Consolas, monospace"


def number(value):
    return f"{value:.2f}".rstrip("0").rstrip(".")


class Picture:
    def __init__(self, theme, width, height, title):
        self.theme, self.width, self.height, self.title = theme, width, height, title
        self.parts, self.heads = [], {}

    def rect(self, x, y, width, height, fill="none", stroke=None, radius=0, line=1.2):
        edge = f' stroke="{stroke}" stroke-width="{line}"' if stroke else ""
        corner = f' rx="{radius}"' if radius else ""
        self.parts.append(f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
                          f'{corner} fill="{fill}"{edge}/>')

    def text(self, x, y, text, size=13, color=None, anchor="middle", weight=None, mono=False, italic=False):
        extra = (f' font-weight="{weight}"' if weight else "") + (f' font-family="{MONO}"' if mono else "")
        extra += ' font-style="italic"' if italic else ""
        self.parts.append(f'<text x="{number(x)}" y="{number(y)}" font-size="{number(size)}" text-anchor="{anchor}" '
                          f'fill="{color or self.theme.text}"{extra}>{escape(text)}</text>')

    def line(self, x1, y1, x2, y2, color=None, width=1.4, dash=None):
        extra = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}" '
                          f'stroke="{color or self.theme.line}" stroke-width="{width}"{extra}/>')

    def arrow(self, x1, y1, x2, y2, color=None, width=1.8):
        """A line with a head whose point is at (x2, y2)."""
        color = color or self.theme.line
        length, size = math.hypot(x2 - x1, y2 - y1), 4 + 2 * width
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        bx, by = x2 - ux * size, y2 - uy * size
        self.line(x1, y1, bx + ux, by + uy, color, width)
        points = [(x2, y2), (bx - uy * size / 2, by + ux * size / 2), (bx + uy * size / 2, by - ux * size / 2)]
        self.parts.append('<polygon points="' + " ".join(f"{number(x)},{number(y)}" for x, y in points)
                          + f'" fill="{color}"/>')

    def box(self, x, y, width, height, lines, fill, stroke, size=13):
        """A rounded box with centred lines of text; the first one is bold. None is grey: that is hard to read on a colour."""
        self.rect(x, y, width, height, fill, stroke, 5)
        top = y + height / 2 - (len(lines) - 1) * (size + 4) / 2 + size * 0.35
        for i, line in enumerate(lines):
            self.text(x + width / 2, top + i * (size + 4), line, size if not i else size - 1,
                      weight="bold" if not i else None)

    def svg(self):
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" font-family="{FONT}" role="img">',
            f"<title>{escape(self.title)}</title>",
            f'<rect width="{self.width}" height="{self.height}" rx="6" fill="{self.theme.background}"/>',
            *self.parts, "</svg>", "",
        ])


# --- From the sources ----------------------------------------------------------------------------------------------


Position = namedtuple("Position", "row column")


def formulas(*headers):
    """The one-line constexpr functions of whole numbers in headers of common/layout: the pictures use the kernels' own
    formulas."""
    found = {"Position": Position}
    for header in headers:
        text = (ROOT / "common" / "layout" / header).read_text(encoding="utf-8")
        for name, names, body in re.findall(r"^constexpr \w+ (\w+)\(([\w ,\n]+)\) \{\s*return ([^;?]+);\s*\}$", text, re.M):
            if not re.fullmatch(r"(?:(?:const )?(?:int|uint32_t|uint64_t) \w+(?:,\s*)?)+", names) or "::" in body:
                continue
            body = re.sub(r"^\{(.*)\}$", r"Position(\1)", body, flags=re.S).replace("/", "//")
            body = re.sub(r"static_cast<\w+>", "", body)
            arguments = ", ".join(re.findall(r"\w+(?=,|$)", names))
            found[name] = eval(f"lambda {arguments}: ({body})", found)  # arithmetic of the checkout's own headers
    return found


def register_colors(theme):
    return ((theme.blue_soft, theme.blue), (theme.orange_soft, theme.orange), (theme.green_soft, theme.green),
            (theme.cell, theme.text))


def constant(kernel, name, head_dim=128):
    """A whole number of the kernel's Config, by its own expression."""
    text = next((ROOT / "kernels").glob(f"{kernel}_*.cu")).read_text(encoding="utf-8")
    begin = text.index("struct Config {")
    return constant_of(text[begin : text.index("\n};", begin)], name, head_dim)


def constant_of(config, name, head_dim):
    found = re.search(rf"\b{name} = ([^,;]+)[,;]", config)
    if found is None:
        raise ValueError(f"the Config has no {name}")
    words = found[1].replace("/", "//").replace("&&", " and ").replace("||", " or ")
    words = re.sub(r"(.+?)\?(.+?):(.+)", r"(\2) if (\1) else (\3)", " ".join(words.split()))
    names = set(re.findall(r"\bk\w+", words)) - {"kHeadDim"}
    others = {other: constant_of(config, other, head_dim) for other in names}
    return int(eval(words, {"kHeadDim": head_dim, **others}))  # arithmetic of the checkout's own source
