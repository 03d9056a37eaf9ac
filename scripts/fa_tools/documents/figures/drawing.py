"""What the figures are drawn with: colours, shapes and texts of an SVG that shows itself in the reader's theme."""

import contextlib
import itertools
import math
import re
import sys
from collections import namedtuple
from html import escape

from fa_tools.sources import constant
from fa_tools.tools import relative

# soft: fills of shapes that carry text; strong: what the eye should find first.
Theme = namedtuple("Theme", "background text muted line cell blue blue_soft orange orange_soft green green_soft")
LIGHT = Theme("#ffffff", "#1f2328", "#59636e", "#8c959f", "#eef1f4", "#0072b2", "#d6e9f5", "#d55e00", "#fbe3d3",
              "#00805f", "#d5efe6")
DARK = Theme("#0d1117", "#e6edf3", "#9198a1", "#6e7681", "#1c222a", "#58b4e8", "#12384f", "#ff9a5c", "#54301a",
             "#3fc79f", "#113f33")
INK = LIGHT  # Figures are drawn in the light theme's colours; dark_style() adds the dark theme's.
# Fill and edge of a shape.
BLUE, ORANGE, GREEN = (INK.blue_soft, INK.blue), (INK.orange_soft, INK.orange), (INK.green_soft, INK.green)
GREY = (INK.cell, INK.line)
REGISTERS = (BLUE, ORANGE, GREEN, (INK.cell, INK.text))
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
MONO = "Liberation Mono, DejaVu Sans Mono, Consolas, monospace"
WIDEST = 0.8  # of a letter, in parts of its font's size
COLUMNS = 160  # of a file's lines, as far as they can be broken


def dark_style(colors, others=None, before=""):
    """The style sheet that replaces colours where the reader wants dark ones. colors: {(attribute, light): dark}; others:
    {selector: (attribute, dark)}; before: rules for both themes."""
    rules = [f'[{name}="{light}"]{{{name}:{dark}}}' for (name, light), dark in sorted(colors.items()) if light != dark]
    rules += [f"{selector}{{{name}:{dark}}}" for selector, (name, dark) in sorted((others or {}).items())]
    return f"<style>{before}@media(prefers-color-scheme:dark){{{''.join(rules)}}}</style>"


def number(value):
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def step(*hundredths):
    """Coordinates of a path, which are whole hundredths: "-.5 12"."""
    words = (re.sub(r"^(-?)0\.", r"\1.", number(value / 100)) for value in hundredths)
    return " ".join(words).replace(" -", "-")


def hundredths(*values):
    return [round(float(f"{value:.2f}") * 100) for value in values]


def attributes(pairs):
    return "".join(f' {name}="{value}"' for name, value in pairs if value is not None)


def filled(words):
    """Lines of words, each line as full as it may be."""
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > COLUMNS:
            lines.append("")
        lines[-1] += word
    return lines


# kind: path, text or rect; look: attributes that shapes may share; at, what: where it is and what is drawn or written there;
# groups: the attributes of the elements <g> that it is in, from the outermost one.
Shape = namedtuple("Shape", "kind look box at what groups", defaults=((),))


def apart(a, b):
    """Whether two boxes (left, top, right, bottom) touch at most."""
    return a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def alike(shapes):
    """Lists of shapes that look alike. A shape is drawn earlier, with those like it, if it lies on nothing drawn since."""
    groups, latest = [], {}
    for shape in shapes:
        key = shape[:2]
        at = latest.get(key)
        # Of shapes with an edge in one path the edges are drawn last, so they may not lie on each other.
        edged = shape.kind == "path" and shape.look[0][1] not in (None, "none") and shape.look[1][1]
        if at is None or not all(apart(shape.box, other.box) for group in groups[at + (not edged):] for other in group):
            at = latest[key] = len(groups)
            groups.append([])
        groups[at].append(shape)
    return groups


def points(places):
    """The words of a path through these places, in whole hundredths."""
    (x, y), last = places[0], ""
    words = [f"M{step(x, y)}"]
    for x2, y2 in places[1:]:
        letter, move = ("h", step(x2 - x)) if y == y2 else ("v", step(y2 - y)) if x == x2 else ("l", step(x2 - x, y2 - y))
        words.append((letter if letter != last else "" if move[0] == "-" else " ") + move)
        x, y, last = x2, y2, letter
    return words


def strokes(parts):
    """The words of a path of several parts: where each begins, what is drawn from there, and where that ends."""
    words, pen = [], None
    for begin, tail, end in parts:
        moves = ["M" + step(*begin)]
        if pen:
            moves.append("m" + step(begin[0] - pen[0], begin[1] - pen[1]))
        words.append(min(reversed(moves), key=len) + tail)
        pen = end
    return words


def form(shape):
    """The element that draws this shape as if its place were (0, 0)."""
    if shape.kind == "path":
        return f'<path{attributes(shape.look)} d="M0 0{shape.what[1]}"/>'
    return f"<rect{attributes([*shape.look, *zip(('width', 'height', 'rx'), shape.at[2:])])}/>"


def marked(shapes, markers):
    """The words of shapes of one form: a path with a marker at the place of each. The marker is written elsewhere."""
    name = markers.setdefault(form(shapes[0]), f"m{len(markers)}")
    places = [shape.at if shape.kind == "path" else hundredths(*map(float, shape.at[:2])) for shape in shapes]
    return [f'<path fill="none" style="marker:url(#{name})" d="', *points(places), '"/>']


def sides(shape):
    """Width and height of a rectangle without an edge, in hundredths."""
    found = re.fullmatch(r"h([\d.]+)v([\d.]+)h-\1z", shape.what[1]) if shape.kind == "path" and not shape.look[1][1] else None
    return hundredths(*map(float, found.groups())) if found else (0, 0)


def bars(shapes, upright):
    """The words of rectangles of one height (upright: of one width): each is a broad stroke."""
    parts = []
    for shape in shapes:
        (x, y), (width, height) = shape.at, sides(shape)
        if upright:
            parts.append(((x + width // 2, y + height), "v" + step(-height), (x + width // 2, y)))
        else:
            parts.append(((x, y + height // 2), "h" + step(width), (x + width, y + height // 2)))
    look = ("stroke", shapes[0].look[0][1]), ("stroke-width", step(sides(shapes[0])[not upright]))
    return [f'<path{attributes(look)} d="', *strokes(parts), '"/>']


def labels(group, classes):
    """The words of texts that look alike, an element each: not every program can place several texts of one element. classes:
    {look: name}."""
    name = classes.setdefault(group[0].look, f"t{len(classes)}")
    look = f' class="{name}"'
    own = [f'<text{look * (len(group) == 1)} x="{x}" y="{y}">{escape(text, quote=False)}</text>' for (x, y), text in (shape[3:5] for shape in group)]
    return own if len(group) == 1 else [f"<g{look}>", *own, "</g>"]


def each(group):
    """The words that draw these shapes, which look alike, one by one."""
    kind, look = group[0][:2]
    if kind == "path":
        return [f'<path{attributes(look)} d="', *strokes((shape.at, *reversed(shape.what)) for shape in group), '"/>']
    own = [f"<rect{attributes(zip(('x', 'y', 'width', 'height', 'rx'), shape.at))}/>" for shape in group]
    if len(own) == 1:
        return [own[0].replace("<rect", f"<rect{attributes(look)}", 1)]
    return [f"<g{attributes(look)}>", *own, "</g>"]


def letters(words):
    return sum(map(len, words))


def in_parts(shapes, key, draw, others=each, more=lambda value: 0):
    """The words that draw these shapes: those with the same key together, where that is shorter, and the others. more: letters
    that drawing them together costs elsewhere."""
    parts, words, left = {}, [], []
    for shape in shapes:
        parts.setdefault(key(shape), []).append(shape)
    for value, part in parts.items():
        short = draw(part) if value else None
        if short and letters(short) + more(value) < letters(others(part)):
            words += short
        else:
            left += part
    return words + others(left) if left else words


def written(group, markers):
    """The words of an SVG that draw these shapes, which look alike, in as few letters as there are ways to write them.
    markers: {form: name}."""
    def side(shape, upright):
        length = sides(shape)[not upright]
        return 0 if length % 2 else length

    def in_rows(shapes):
        return in_parts(shapes, lambda shape: side(shape, False), lambda part: bars(part, False))

    def in_columns(shapes):
        return in_parts(shapes, lambda shape: side(shape, True), lambda part: bars(part, True))

    kind, (_, (_, edge), *_) = group[0][:2]
    ways = [each, in_rows, in_columns] if kind == "path" and not edge else [each]
    # Rectangles with an edge may lie on each other; then the order of different ones stays.
    if kind == "path" or kind == "rect" and (not edge or len({form(shape) for shape in group}) == 1 or all(
            apart(a.box, b.box) for a, b in itertools.combinations(group, 2))):
        ways += [lambda shapes, way=way: in_parts(shapes, form, lambda part: marked(part, markers), way, lambda form: len(form) + 50)
                 for way in ways]
    return min((way(group) for way in ways), key=letters)


def grouped(shapes, markers, classes, depth=0):
    """The words that draw these shapes, each in the elements <g> that it is in below this depth."""
    for group, part in itertools.groupby(shapes, lambda shape: shape.groups[depth : depth + 1]):
        if group:
            yield f"<g {group[0]}>"
            yield from grouped(list(part), markers, classes, depth + 1)
            yield "</g>"
            continue
        for same in alike(list(part)):
            yield from labels(same, classes) if same[0].kind == "text" else written(same, markers)


class Picture:
    def __init__(self, width, height, title, dark=()):
        """dark: pairs of a light colour and what replaces it in the dark theme, beside those of INK."""
        self.width, self.height, self.title = width, height, title
        self.shapes, self.dark = [], dict([*zip(LIGHT, DARK), *dark])
        self.rules = ""  # of the style sheet, in both themes
        self.attributes = ()  # more of them, of the picture as a whole
        self.heads, self.feet = range(0), []  # which shapes are the heading and the notes

    @contextlib.contextmanager
    def group(self, attribute):
        """What is drawn within is in an element <g> with this attribute, such as id="at-12"."""
        first = len(self.shapes)
        yield
        self.shapes[first:] = [shape._replace(groups=(attribute, *shape.groups)) for shape in self.shapes[first:]]

    def path(self, points, closed, fill, stroke, width=None, dash=None, join=None):
        """Straight lines from point to point."""
        points = [hundredths(*point) for point in points]
        tail = ""
        for (x, y), (x2, y2) in zip(points, points[1:]):
            tail += "v" + step(y2 - y) if x == x2 else "h" + step(x2 - x) if y == y2 else "l" + step(x2 - x, y2 - y)
        xs, ys = zip(*points)
        rim = 50 * (width or 0)
        box = [value / 100 for value in (min(xs) - rim, min(ys) - rim, max(xs) + rim, max(ys) + rim)]
        look = (("fill", fill), ("stroke", stroke), ("stroke-width", width), ("stroke-dasharray", dash), ("stroke-linejoin", join))
        what = (points[0], tail + "z") if closed else (points[-1], tail)
        self.shapes.append(Shape("path", look, box, points[0], what))

    def rect(self, x, y, width, height, fill="none", stroke=None, radius=0, line=1.2):
        # Without an edge, round corners are those of a smaller rectangle with a round pen of the same colour.
        pen = 2 * radius if not stroke else 0
        if pen < min(width, height) and (pen or not radius):
            x, y = float(number(x)) + pen / 2, float(number(y)) + pen / 2
            x2, y2 = x + width - pen, y + height - pen
            self.path([(x, y), (x2, y), (x2, y2), (x, y2)], True, fill, fill if pen else stroke, pen or (line if stroke else None),
                      join="round" if pen else None)
            return
        rim = line / 2 if stroke else 0
        look = (("fill", fill), ("stroke", stroke), ("stroke-width", line if stroke else None))
        self.shapes.append(Shape("rect", look, (x - rim, y - rim, x + width + rim, y + height + rim),
                                 [number(value) for value in (x, y, width, height, radius)], None))

    def text(self, x, y, text, size=13, color=None, anchor="middle", weight=None, mono=False, italic=False):
        look = (("font-size", f"{number(size)}px"), ("text-anchor", anchor if anchor != "start" else None), ("fill", color or INK.text),
                ("font-weight", weight), ("font-family", MONO if mono else None), ("font-style", "italic" if italic else None))
        width = WIDEST * size * len(text)
        left = x - width * {"start": 0, "middle": 0.5, "end": 1}[anchor]
        self.shapes.append(Shape("text", look, (left, y - size, left + width, y + 0.3 * size), (number(x), number(y)), text))

    def texts(self, size, color, anchor, *places, **look):
        """Texts that look alike; places: (x, y, text)."""
        for x, y, text in places:
            self.text(x, y, text, size, color, anchor, **look)

    def lines(self, x, y, step, texts, size=12, color=INK.muted, anchor="start", **look):
        """Texts below each other."""
        self.texts(size, color, anchor, *((x, y + i * step, text) for i, text in enumerate(texts)), **look)

    def heading(self, title, what="", x=24, y=30, size=16):
        self.text(x, y, title, size, anchor="start", weight="bold")
        if what:
            self.text(x, y + 20, what, 12.5 if size > 15 else 12, INK.muted, "start")

    def head(self, title, what="", **look):
        """The heading of the whole picture, which its narrow form repeats in short lines."""
        self.heading(title, what, **look)
        self.heads = range(len(self.shapes))

    def caption(self, x, y, title, what, size=13, below=18, small=12):
        """A bold line, and a grey one below it."""
        self.text(x, y, title, size, weight="bold")
        self.text(x, y + below, what, small, INK.muted)

    def note(self, y, *texts, size=12.5, step=18):
        self.feet += range(len(self.shapes), len(self.shapes) + len(texts))
        self.lines(self.width / 2, y, step, texts, size, INK.muted, "middle")

    def line(self, x1, y1, x2, y2, color=INK.line, width=1.4, dash=None):
        self.path([(x1, y1), (x2, y2)], False, None, color, width, dash)

    def arrow(self, x1, y1, x2, y2, color=INK.line, width=1.8):
        """A line with a head whose point is at (x2, y2)."""
        length, size = math.hypot(x2 - x1, y2 - y1), 4 + 2 * width
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        bx, by = x2 - ux * size, y2 - uy * size
        self.line(x1, y1, bx + ux, by + uy, color, width)
        self.path([(x2, y2), (bx - uy * size / 2, by + ux * size / 2), (bx + uy * size / 2, by - ux * size / 2)], True, color, None)

    def arrows(self, color, width, *ends):
        for end in ends:
            self.arrow(*end, color, width)

    def block(self, x, y, width, height, text, look, size=12, color=None, drop=4, radius=4, **font):
        """A shape with one text in its middle; look: fill and edge; drop: of the text's foot below the middle."""
        self.rect(x, y, width, height, *look, radius)
        self.text(x + width / 2, y + height / 2 + drop, text, size, color, **font)

    def chunk(self, x, y, width, height, text, hit, marked, plain, size=11, drop=4.5):
        """A place of a layout; marked and plain: the colours of shape and text where it is hit and where not."""
        fill, color = marked if hit else plain
        self.block(x, y, width, height, str(text), (fill, None), size, color, drop, 2, weight="bold" if hit else None)

    def key(self, x, y, name, look, size=11.5, side=14, gap=20, drop=11.5, **font):
        """What a colour stands for."""
        self.rect(x, y, side, side, *look)
        self.text(x + gap, y + drop, name, size, anchor="start", **font)

    def box(self, x, y, width, height, lines, fill, stroke, size=13):
        """A rounded box with centred lines of text; the first one is bold. None is grey: that is hard to read on a colour."""
        self.rect(x, y, width, height, fill, stroke, 5)
        top = y + height / 2 - (len(lines) - 1) * (size + 4) / 2 + size * 0.35
        for i, line in enumerate(lines):
            self.text(x + width / 2, top + i * (size + 4), line, size if not i else size - 1,
                      weight="bold" if not i else None)

    def svg(self):
        markers, classes = {}, {}
        background = f'<rect width="{self.width}" height="{self.height}" rx="6" fill="{INK.background}"/>'
        words = [background, *grouped(self.shapes, markers, classes)]
        drawn = "".join(words)
        forms = [f'<marker id="{name}" overflow="visible">{form}</marker>' for form, name in markers.items() if f"#{name})" in drawn]
        words += ["<defs>", *forms, "</defs>"] if forms else []
        used = set(re.findall(r'(fill|stroke)="(#\w+)"', "".join(words)))
        looks = {f".{name}": dict(look) for look, name in classes.items()}
        rules = "".join(f"{name}{{{';'.join(f'{key}:{value}' for key, value in look.items() if value)}}}" for name, look in looks.items())
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" font-family="{FONT}" role="img"{attributes(self.attributes)}>',
            f"<title>{escape(self.title, quote=False)}</title>",
            dark_style({pair: self.dark[pair[1]] for pair in used},
                       {name: ("fill", self.dark[look["fill"]]) for name, look in looks.items()}, self.rules + rules),
            *filled(words), "</svg>", "",
        ])


def keep(folder, drawn, command, check):
    """Writes {name: SVG} into a folder and removes other pictures there, or only names what is out of date; the exit code.
    Instead of an SVG None: the picture cannot be drawn here, and its file stays as it is."""
    there = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.svg")}
    stale = sorted(name for name in drawn.keys() | there.keys()
                   if name not in drawn or drawn[name] not in (None, there.get(name)))
    for name in stale:
        path = folder / f"{name}.svg"
        if check:
            print(f"{relative(path)} is out of date; {command} draws it", file=sys.stderr)
        elif name in drawn:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(drawn[name], encoding="utf-8")
            print(f"drew {relative(path)}")
        else:
            path.unlink()
            print(f"removed {relative(path)}")
    return 1 if stale and check else 0


DRAWN = {}  # NAME of docs/pictures/NAME.svg: what returns its Picture, as wide as it is told
NARROW = {}  # NAME: how wide its narrow form is drawn, and the bands that narrow.py divides

# top: where the band begins; parts: stretches of x that go below each other; beside: where its labels end, which each part has;
# title: whether bold lines at its left edge go above the parts.
Band = namedtuple("Band", "top parts beside title", defaults=(((0, math.inf),), None, True))


def figure(name, height, title, *heading, width=880, parts=None, below=None, bands=(), narrow=None):
    """Makes a function that draws into a Picture one of DRAWN. What follows width is for narrow screens (narrow.py)."""
    def register(draw):
        def drawn(width=width):
            picture = Picture(width, height, title)
            if heading:
                picture.head(*heading)
            draw(picture)
            return picture

        DRAWN[name] = drawn
        if parts:
            NARROW[name] = width, [Band(0, parts, title=False), *([Band(below, title=False)] if below else [])]
        elif bands or narrow:
            NARROW[name] = narrow or width, bands or [Band(0, title=False)]
        return draw

    return register


def runs(values):
    """(value, begin, end) of each stretch of equal values."""
    ends = [i for i in range(1, len(values) + 1) if i == len(values) or values[i] != values[i - 1]]
    return [(values[begin], begin, end) for begin, end in zip([0, *ends], ends)]


# --- From the sources ----------------------------------------------------------------------------------------------


def held(fragment, thread):
    """The (row, column) of each element of a fragment that a lane or thread holds, register by register."""
    return [tuple(place) for place in constant("layouts", fragment)[thread]]


def place_of(row, chunk):
    """Where the swizzle of kernel 08 puts a chunk of a row."""
    return constant("layouts", "swizzle")[row][chunk]


def places(row):
    """In which of the eight places of a line of 128 bytes each chunk of a slab's row lies."""
    offsets = constant("layouts", "slab")[row]
    assert {offset // 128 for offset in offsets} == {row} and len(set(offsets)) == 8
    return [offset % 128 // 16 for offset in offsets]
