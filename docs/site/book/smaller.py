"""Pages that come quickly: pictures say once what many elements have in common, the theme's style sheet says nothing of
what the book has not."""

import re
from collections import Counter
from decimal import Decimal

LOOKS = {"fill", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-weight", "font-family", "font-style",
         "text-anchor", "opacity", "fill-opacity"}
ELEMENT = re.compile(r"<(rect|text|line|path|circle|tspan|polygon|polyline)((?:\s+[\w:-]+=\"[^\"]*\")+)")
OFTEN = 8  # times
RECT = re.compile(r"<rect((?: [\w:-]+=\"[^\"]*\")+)/>")
TEXT = re.compile(r"<text((?: [\w:-]+=\"[^\"]*\")+)>([^<]*)</text>")
CORNERS = re.compile(r"M(?P<x>[\d.]+) (?P<y>[\d.]+)h(?P<width>[\d.]+)v(?P<height>[\d.]+)h-(?P=width)z")
PATH = re.compile(r"<path((?: [\w:-]+=\"[^\"]*\")+)/>")
WIDEST = 0.8  # of a letter, in parts of its font's size


def split(attributes):
    """(where the element is, how it looks)."""
    pairs = re.findall(r"([\w:-]+)=\"([^\"]*)\"", attributes)
    look = tuple(sorted((name, value) for name, value in pairs if name in LOOKS))
    return [(name, value) for name, value in pairs if name not in LOOKS], look


def numbers(attributes, names):
    """The numbers of an element whose place has these names and no others, or None."""
    place = dict(split(attributes)[0])
    if sorted(place) != sorted(names) or not all(re.fullmatch(r"-?[\d.]+", value) for value in place.values()):
        return None
    return [float(place[name]) for name in names]


def box_of(line):
    """(kind, look, box) of a rectangle or text, the box being left, top, right, bottom; None for what else there is."""
    rect, text = RECT.fullmatch(line), TEXT.fullmatch(line)
    attributes = (rect or text or [None, ""])[1]
    place, look = split(attributes)
    if rect and {name for name, _ in look} == {"fill"}:
        place = numbers(attributes, ("x", "y", "width", "height"))
        kind = "rect"
        if place is None:
            place = numbers(attributes, ("x", "y", "width", "height", "rx"))
            kind = tuple(dict(split(attributes)[0]).get(name) for name in ("width", "height", "rx"))
        if place is not None:
            x, y, width, height = place[:4]
            return kind, look, (x, y, x + width, y + height)
    place, style = numbers(attributes, ("x", "y")), dict(look)
    size = re.fullmatch(r"[\d.]+", style.get("font-size", ""))
    if text and place is not None and size and not any("opacity" in name for name in style):
        (x, y), size = place, float(size[0])
        width = WIDEST * size * len(text[2])
        left = x - width * {"middle": 0.5, "end": 1}.get(style.get("text-anchor"), 0)
        return "text", look, (left, y - size, left + width, y + 0.3 * size)
    return None


def apart(a, b):
    """Whether two boxes have no point in common."""
    return a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1]


def together(lines):
    """Rectangles and texts that look the same, side by side: [(kind, look, lines)], kind None for what else there is.
    One is drawn earlier, with those like it, if it lies on nothing that was drawn since."""
    groups, drawn, open_groups = [], [], {}
    for line in lines:
        kind, look, box = box_of(line) or (None, (), None)
        if kind is None:
            path = PATH.fullmatch(line)
            place, look = split(path[1]) if path else ((), ())
            bars = [name for name, _ in (*place, *look)] == ["d", "fill"] and not CORNERS.sub("", place[0][1])
            groups.append(("path" if bars else None, look, [line]))
            drawn, open_groups = [], {}
            continue
        at = open_groups.get((kind, look))
        if at is None or not all(apart(box, other) for other, index in drawn if index > at):
            at = open_groups[kind, look] = len(groups)
            groups.append((kind, look, []))
        groups[at][2].append(line)
        drawn.append((box, at))
    return groups


def written(pairs):
    return "".join(f' {name}="{value}"' for name, value in pairs)


def short_number(number):
    text = f"{number.normalize():f}"
    return re.sub(r"^(-?)0\.", r"\1.", text)


def strokes(fill, places):
    """Rectangles of one colour: for each height a path whose strokes are as wide as they are high."""
    heights = {}
    for place in places:
        heights.setdefault(Decimal(place["height"]), []).append([Decimal(place[name]) for name in ("x", "y", "width")])
    for height, rectangles in heights.items():
        path, pen = [], None
        for x, y, width in rectangles:
            y += height / 2
            moves = [f"M{short_number(x)} {short_number(y)}"]
            if pen:
                moves.append(f"m{short_number(x - pen[0])} {short_number(y - pen[1])}".replace(" -", "-"))
            path.append(f"{min(moves, key=len)}h{short_number(width)}")
            pen = x + width, y
        yield f'<path fill="none" stroke="{fill}" stroke-width="{short_number(height)}" d="{"".join(path)}"/>'


def shorter(groups):
    """Lines of the picture: a path for many rectangles, a <g> that says once how texts look."""
    shapes = {}  # rounded rectangles by their size
    for kind, look, lines in groups:
        places = [dict(split(ELEMENT.match(line)[2])[0]) for line in lines] if kind else []
        if kind == "path":
            yield from strokes(look[0][1], [match.groupdict() for match in CORNERS.finditer(lines[0])])
        elif kind == "rect" and len(lines) > 1:
            yield from strokes(look[0][1], places)
        elif kind is None or len(lines) < 3:
            yield from lines
        else:
            yield f"<g{written(look)}>"
            for line, place in zip(lines, places):
                if kind == "text":
                    yield f"<text{written(place.items())}>{TEXT.fullmatch(line)[2]}</text>"
                elif kind in shapes:
                    x, y = (f"{float(place[name]) - shapes[kind][name]:.2f}".rstrip("0").rstrip(".") for name in "xy")
                    yield f'<use href="#r{list(shapes).index(kind)}" x="{x}" y="{y}"/>'
                else:  # the first one is the model of the others
                    yield f'<rect id="r{len(shapes)}"{written(place.items())}/>'
                    shapes[kind] = {name: float(place[name]) for name in "xy"}
            yield "</g>"


def picture(svg):
    """The SVG with a path for rectangles and a class for the look that many elements have."""
    if "<style" in svg or " class=" in svg:
        return svg
    svg = "\n".join(shorter(together(svg.split("\n"))))
    count = Counter(split(match[2])[1] for match in ELEMENT.finditer(svg))
    often = [look for look, times in count.most_common() if times >= OFTEN and look]
    if not often:
        return svg
    names = {look: f"c{i}" for i, look in enumerate(often)}

    def short(match):
        place, look = split(match[2])
        if look not in names:
            return match[0]
        return f"<{match[1]} class=\"{names[look]}\"" + "".join(f' {name}="{value}"' for name, value in place)

    def css(look):
        # Lengths of SVG's attributes are pixels; a style sheet wants the unit.
        return ";".join(f"{name}:{value}{'px' if name == 'font-size' and re.fullmatch(r'[0-9.]+', value) else ''}"
                        for name, value in look)

    style = "".join(f".{name}{{{css(look)}}}" for look, name in names.items())
    head, end, rest = svg.partition(">")
    return f"{head}{end}<style>{style}</style>{ELEMENT.sub(short, rest)}"


WORD = r"[\w-]+"
# Classes that scripts look for and do not make, and words that they have for something else.
NOT_MADE = re.compile(r"(tabbed|md-tag|md-version|md-source|md-status|md-consent|md-feedback|md-progress|md-tabs)([_-].*)?|"
                      "abstract|bug|danger|example|failure|info|note|question|quote|success|tip|warning|grid|footnote")
COLOURS = r"(data-md-color-\w+)=\"?([\w-]+)\"?"  # which of the theme's many


def words_of(pages, scripts):
    """What may be the name of a class: those of the pages, and the words of the scripts. And the pages' colours."""
    classes = (value for page in pages for value in re.findall(r"class=(\"[^\"]*\"|[\w-]+)", page))
    words = {word for script in scripts for word in re.findall(WORD, script) if not NOT_MADE.fullmatch(word)}
    words.update(name for value in classes for name in re.findall(WORD, value))
    return words.union(chosen for page in pages for chosen in re.findall(COLOURS, page))


def matches(selector, words):
    """Whether it may match: each of its classes is among the words, what :not() and the like have in brackets aside."""
    while "(" in selector:
        selector = re.sub(r"\([^()]*\)", "", selector)
    names = re.findall(r"\.([a-zA-Z_][\w-]*)", selector) + re.findall(rf"\[{COLOURS}\]", selector)
    return "[dir=rtl]" not in selector and all(name in words for name in names)


def style_sheet(css, words):
    """Without the rules that match nothing. Minified CSS: no comments, no braces in strings that are not balanced."""
    result, i = [], 0
    while i < len(css):
        start = css.find("{", i)
        if start < 0:
            result.append(css[i:])
            break
        head = css[i:start]
        if ";" in head:  # @charset and the like come before
            done, _, head = head.rpartition(";")
            result.append(done + ";")
        depth, end = 1, start + 1
        while depth:
            depth += {"{": 1, "}": -1}.get(css[end], 0)
            end += 1
        body = css[start + 1:end - 1]
        if head.startswith(("@media", "@supports", "@layer")):
            body = style_sheet(body, words)
            if body:
                result.append(f"{head}{{{body}}}")
        else:
            selectors = [s for s in re.split(r",(?![^(\[]*[)\]])", head) if head.startswith("@") or matches(s, words)]
            if selectors:
                result.append(f"{','.join(selectors)}{{{body}}}")
        i = end
    return "".join(result)


DECLARED = re.compile(r"(--[\w-]+):(?:[^;{}\"()]|\"[^\"]*\"|\((?:[^()\"]|\"[^\"]*\"|\([^()]*\))*\))*;?(?=[^{]*})")


def without_unused_variables(css, readers):
    """The style sheet without the variables that neither `readers` nor itself ask for: icons are the largest."""
    used = set(re.findall(r"var\(\s*(--[\w-]+)", css + "".join(readers)))
    return DECLARED.sub(lambda match: match[0] if match[1] in used else "", css)


def without_blanks(css):
    """A style sheet of ours without comments and indentation."""
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    return re.sub(r"\s*([{};,])\s*", r"\1", re.sub(r"\s+", " ", css)).strip()
