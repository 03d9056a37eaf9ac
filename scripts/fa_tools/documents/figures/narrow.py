"""Pictures for narrow screens: what a picture shows side by side, below each other, and its heading and notes in short lines.

A figure names its parts: parts=((20, 430), (450, 870)) are the stretches of x that go below each other. What leaves its stretch
is left out: a line from part to part. Of (345, 508, "arrow") the words stay, and an arrow goes down; of arrows in two colours, one
goes up. below=420 is the height from which on a picture stays as it is.

bands=(Band(60, parts), Band(200)) divides a picture from top to bottom first, and each band has parts of its own. A band with
labels at its left, as lanes of a schedule have them, is folded instead: with beside=132 each part repeats what is left of 132, and
what crosses from part to part is cut. narrow=430 draws the figure anew, this wide, before it is divided.

Both forms say the same. The site shows the narrow ones on phones, from here: no file of them is kept."""

import math
import re
import textwrap

from fa_tools.documents.figures.drawing import DRAWN, NARROW, Picture, hundredths, number

EDGE, GAP = 14, 16


def width_of(shape):
    """Of a text, as wide as it is in the widest of our fonts, on average."""
    look = dict(shape.look)
    return (0.62 if look["font-family"] or look["font-weight"] else 0.56) * float(look["font-size"][:-2]) * len(shape.what)


def extent(shape):
    """Its box, with a text as wide as it is likely to be."""
    if shape.kind != "text":
        return shape.box
    x, width = float(shape.at[0]), width_of(shape)
    left = x - width * {None: 0, "middle": 0.5, "end": 1}[dict(shape.look)["text-anchor"]]
    return left, shape.box[1], left + width, shape.box[3]


def extents(shapes):
    return [f(side) for f, side in zip((min, min, max, max), zip(*map(extent, shapes)))]


def moved(shape, dx, dy):
    left, top, right, bottom = shape.box
    box = (left + dx, top + dy, right + dx, bottom + dy)
    if shape.kind == "path":
        point, tail = shape.what
        at, point = ([a + b for a, b in zip(place, hundredths(dx, dy))] for place in (shape.at, point))
        return shape._replace(box=box, at=at, what=(point, tail))
    x, y, *rest = shape.at
    return shape._replace(box=box, at=type(shape.at)((number(float(x) + dx), number(float(y) + dy), *rest)))


def within(shape, left, right, *_):
    """Whether a stretch of x holds it: of a text the place, of what is drawn all."""
    if shape.kind == "text":
        return left <= float(shape.at[0]) < right
    return left <= shape.box[0] and shape.box[2] <= right


def corners(shape):
    """The points of a path."""
    x, y = (value / 100 for value in shape.at)
    places = [(x, y)]
    for letter, numbers in re.findall(r"([hvl])([^hvlz]*)", shape.what[1]):
        values = [float(value) for value in re.findall(r"-?\d*\.?\d+", numbers)]
        dx, dy = {"h": [*values, 0], "v": [0, *values], "l": values}[letter]
        x, y = x + dx, y + dy
        places.append((x, y))
    return places


def halved(places, closed, edge, side):
    """What of a path is to the right (side 1) or to the left (side -1) of an upright edge."""
    kept = []
    for i, (x, y) in enumerate(places):
        before = places[i - 1] if i or closed else (x, y)
        if (before[0] - edge) * (x - edge) < 0:
            kept.append((edge, before[1] + (y - before[1]) * (edge - before[0]) / (x - before[0])))
        if side * (x - edge) >= 0:
            kept.append((x, y))
    return kept


def cut(shape, left, right):
    """What of a drawn shape is between these, or None."""
    if within(shape, left, right):
        return shape
    if min(shape.box[2], right) - max(shape.box[0], left) < 3:
        return None
    if shape.kind == "rect":
        x, y, width, height, radius = shape.at
        begin, end = max(float(x), left), min(float(x) + float(width), right)
        return shape._replace(at=[number(begin), y, number(end - begin), height, radius], box=(begin, shape.box[1], end, shape.box[3]))
    closed = shape.what[1].endswith("z")
    places = halved(halved(corners(shape), closed, left, 1), closed, right, -1)
    if len(places) < 2:
        return None
    scratch = Picture(0, 0, "")
    scratch.path(places, closed, *(value for _, value in shape.look))
    return scratch.shapes[0]._replace(groups=shape.groups)


def folded(shapes, left, right):
    """What of these is between left and right: shapes cut at both ends. The text of a block that is cut is in each piece where it
    fits, or goes on from piece to piece; elsewhere what is before its colon."""
    blocks = [shape for shape in shapes if shape.kind != "text" and dict(shape.look)["fill"] not in (None, "none")]

    def part_of(text):
        x, y = float(text.at[0]), float(text.at[1])
        around = [shape for shape in blocks if shape.box[1] < y < shape.box[3] and abs(shape.box[0] + shape.box[2] - 2 * x) < 3]
        block = min(around, key=lambda shape: shape.box[2] - shape.box[0], default=None)
        if block is None or dict(text.look)["text-anchor"] != "middle" or within(block, left, right):
            return inside(text, left, right) if left <= x < right else None
        begin, end, words = max(left, block.box[0]), min(right, block.box[2]), text.what.split()

        def fits(what, wide):
            return width_of(text._replace(what=" ".join(what))) < wide - 4

        if not fits(words, end - begin):
            first = min(left, block.box[2]) - block.box[0] if block.box[0] < left else end - begin
            many = max((n for n in range(len(words)) if fits(words[:n], first)), default=0)
            last = block.box[2] - (max(left, block.box[0]) if block.box[0] < left else right)
            if fits(words, max(left - block.box[0], block.box[2] - right)) or not many or not fits(words[many:], last):
                words = text.what.partition(":")[0].split()
            else:
                words = words[many:] if block.box[0] < left else words[:many]
        return text._replace(at=(number((begin + end) / 2), text.at[1]), what=" ".join(words)) if fits(words, end - begin) else None

    return [part for shape in shapes for part in [part_of(shape) if shape.kind == "text" else cut(shape, left, right)] if part]


def inside(text, left, right):
    """A text that no block holds, moved if it sticks out far."""
    begin, _, end, _ = extent(text)
    return moved(text, max(left - begin, 0) or min(right - end, 0), 0) if max(left - begin, end - right) > 2 * GAP else text


def stacks_of(shapes, band):
    """[(shapes, whether they become arrows)] of a band, from top to bottom, and the lines above them."""
    titles = [shape for shape in shapes if band.title and shape.kind == "text" and dict(shape.look)["text-anchor"] is None
              and shape.at[0] == "24"]
    rows = {shape.at[1] for shape in titles}
    titles += [shape for shape in shapes if shape.kind == "text" and shape.at[1] in rows and shape not in titles]
    rest, stacks = [shape for shape in shapes if shape not in titles], []
    for left, right, *arrow in band.parts:
        if band.beside is None:
            stack = [shape for shape in rest if within(shape, left, right)]
            rest = [shape for shape in rest if shape not in stack]
        elif left <= band.beside:
            stack = folded(rest, 0, right)
        else:
            stack = [*folded(rest, 0, band.beside), *(moved(shape, band.beside - left, 0) for shape in folded(rest, left, right))]
        if stack:
            stacks.append((stack, bool(arrow)))
    return titles, stacks


def breadth(band, stacks):
    """Of all parts, those of a folded band from one edge on."""
    boxes = [extents(stack) for stack, _ in stacks]
    return max([right - (left if band.beside is None else min(box[0] for box in boxes)) for left, _, right, _ in boxes] + [
        2 * GAP * len(said) + sum(max(map(width_of, words), default=0) for words in said)
        for stack, arrow in stacks if arrow for _, _, said in [arrows_of(stack)] if len(said) > 1], default=0)


def arrows_of(stack):
    """What is between two parts: {colour: width of its lines}, the arrow heads, and each colour's words."""
    lines, tips, words = ([shape for shape in stack if kind(shape)] for kind in (
        lambda shape: shape.kind == "path" and shape.look[1][1], lambda shape: shape.kind == "path" and not shape.look[1][1],
        lambda shape: shape.kind == "text"))
    pens = {look["stroke"]: look["stroke-width"] for look in (dict(shape.look) for shape in lines)}
    return pens, tips, [[shape for shape in words if len(pens) == 1 or dict(shape.look)["fill"] == color] for color in pens]


def divided(picture, bands):
    """(band, the lines above its parts, stacks) of each band."""
    rest = [shape for i, shape in enumerate(picture.shapes) if i not in picture.heads and i not in picture.feet]
    tops = [-math.inf, *(band.top for band in bands[1:]), math.inf]
    return [(band, *stacks_of([shape for shape in rest if top <= shape.box[1] < end], band))
            for band, top, end in zip(bands, tops, tops[1:])]


def narrow(picture, bands):
    """The Picture of a figure's parts."""
    head, feet = ([picture.shapes[i] for i in which] for which in (picture.heads, picture.feet))
    rows = divided(picture, bands)
    wide = max(breadth(band, stacks) for band, _, stacks in rows) + 2 * EDGE
    result = Picture(round(wide), 0, picture.title, picture.dark.items())
    result.rules = picture.rules
    y = EDGE

    def write(shapes, anchor):
        nonlocal y
        look = dict(shapes[0].look)
        size = float(look["font-size"][:-2])
        words = " ".join(shape.what for shape in shapes)
        x = EDGE if anchor == "start" else result.width / 2
        for line in textwrap.wrap(words, int((result.width - 2 * EDGE) * len(words) / sum(map(width_of, shapes)))):
            y += 1.25 * size
            result.text(x, y, line, size, look["fill"], anchor, look["font-weight"])
        y += size / 3

    def turn_down(stack):
        """One arrow for all arrows of a colour that go to the right, and one that goes up for those that go to the left."""
        nonlocal y
        pens, tips, said = arrows_of(stack)
        tall = GAP * max(3, max(map(len, said)) + 0.5)
        for i, (color, beside) in enumerate(zip(pens, said)):
            x = result.width * (i + 0.5 if len(pens) == 1 else i + 0.1) / len(pens)
            up = any(tip.at[0] / 100 < (tip.box[0] + tip.box[2]) / 2 for tip in tips if dict(tip.look)["fill"] == color)
            result.arrow(x, y + tall * up, x, y + tall * (not up), color, pens[color])
            if beside:
                result.lines(x + GAP, y + GAP, GAP, dict.fromkeys(shape.what for shape in beside), color=beside[-1].look[2][1])
        y += tall

    for shape in head:
        write([shape], "start")
    for band, titles, stacks in rows:
        y += GAP / 2 if titles else 0
        for shape in titles:
            write([shape], "start")
        for stack, arrow in stacks:
            y += GAP if result.shapes else 0
            if arrow:
                turn_down(stack)
                continue
            left, top, right, bottom = extents(stack)
            begin = min(extents(other)[0] for other, _ in stacks)
            dx, dy = (result.width - left - right) / 2 if band.beside is None else EDGE - begin, y - top
            result.shapes += [moved(shape, dx, dy) for shape in stack]
            y += bottom - top
    if feet:
        y += GAP / 2
        write(feet, "middle")
    result.height = round(y + EDGE)
    return result


def form(name):
    width, bands = NARROW[name]
    return narrow(DRAWN[name](width), bands)


def forms():
    """{NAME of docs/pictures/NAME.svg: the SVG of its narrow form}."""
    return {name: form(name).svg() for name in NARROW}
