"""Pictures for narrow screens: what a picture shows side by side, below each other, and its heading and notes in short lines.

A figure names its parts: parts=((20, 430), (450, 870)) are the stretches of x that go below each other. What leaves its stretch
is left out: a line from part to part. Of (345, 508, "arrow") the words stay, and an arrow goes down. below=420 is the height from
which on a picture stays as it is. Nothing is drawn anew, so both forms say the same. The site shows the narrow
ones on phones, from here: no file of them is kept."""

import textwrap

from fa_tools.press.figures.drawing import DRAWN, PARTS, Picture, hundredths, number

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


def narrow(picture, parts, below=None):
    """The Picture of a figure's parts."""
    head, feet = picture.shapes[: picture.heads], [picture.shapes[i] for i in picture.feet]
    rest = [shape for i, shape in enumerate(picture.shapes) if i >= picture.heads and i not in picture.feet]
    last = [shape for shape in rest if below and shape.box[1] >= below]
    stacks = [([shape for shape in rest if shape not in last and within(shape, *part)], "arrow" in part) for part in parts]
    stacks = [(stack, arrow, [f(side) for f, side in zip((min, min, max, max), zip(*map(extent, stack)))])
              for stack, arrow in [*stacks, (last, False)] if stack]
    wide = max(right - left for _, _, (left, _, right, _) in stacks) + 2 * EDGE
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

    for shape in head:
        write([shape], "start")
    for stack, arrow, (left, top, right, bottom) in stacks:
        y += GAP if result.shapes else 0
        if arrow:
            look = next(dict(shape.look) for shape in stack if shape.kind == "path")
            words = [shape for shape in stack if shape.kind == "text"]
            tall = GAP * max(3, len(words) + 0.5)
            result.arrow(result.width / 2, y, result.width / 2, y + tall, look["stroke"], look["stroke-width"])
            if words:
                result.lines(result.width / 2 + GAP, y + GAP, GAP, [shape.what for shape in words], color=words[-1].look[2][1])
            y += tall
            continue
        dx, dy = (result.width - left - right) / 2, y - top
        result.shapes += [moved(shape, dx, dy) for shape in stack]
        y += bottom - top
    if feet:
        y += GAP / 2
        write(feet, "middle")
    result.height = round(y + EDGE)
    return result


def forms():
    """{NAME of docs/pictures/NAME.svg: the SVG of its narrow form}."""
    return {name: narrow(DRAWN[name](), *parts).svg() for name, parts in PARTS.items()}
