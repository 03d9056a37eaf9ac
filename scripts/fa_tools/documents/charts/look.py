"""What all charts share: colours, fonts, the frame, how numbers are written, keeping labels apart."""

import json
import textwrap
from collections import namedtuple

from fa_tools.records import kind

# Colours: Okabe and Ito's palette, made for every kind of colour vision. Theme decides only about neutral ones.
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
OTHERS = [ORANGE, GREEN, "#CC79A7", "#56B4E9", RED, "#A39A00"]
# What the page says of itself: its colours, and whether it is a phone, where each chart is at most PHONE wide.
Theme = namedtuple("Theme", "background text muted grid kernel peer ceiling wrong ramp phone", defaults=(False,))
LIGHT = Theme("#ffffff", "#1f2328", "#656d76", "#e4e7eb", BLUE, "#9aa4af", "#cfd5db", RED, ("#b9d9ee", "#003f66"))
DARK = Theme(
    "#0d1117", "#e6edf3", "#9198a1", "#2a313a", "#4aa8e0", "#7d8792", "#444c56", "#ff8a4c", ("#1d5c86", "#c9e8fb")
)

PHONE = 328  # pixels: what a phone that is 360 wide leaves for text

# Liberation Sans comes with vl-convert, so every machine measures and draws the same letters; a browser without it
# takes Arial, which has the same widths.
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"


def base(theme, title, subtitle):
    if theme.phone:
        return phone_base(theme, title, subtitle)
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": theme.background,
        "padding": {"left": 16, "top": 16, "right": 24, "bottom": 14},
        "title": {
            "text": title, "subtitle": subtitle, "anchor": "start", "frame": "bounds", "offset": 16,
            "color": theme.text, "subtitleColor": theme.muted, "fontSize": 17, "subtitleFontSize": 12.5,
            "subtitlePadding": 5, "subtitleLineHeight": 17,
        },
        "config": {
            "font": FONT,
            "view": {"stroke": None},
            "title": {"fontWeight": "bold"},
            "axis": {
                "labelColor": theme.text, "titleColor": theme.muted, "titleFontWeight": "normal", "labelFontSize": 12,
                "titleFontSize": 12, "gridColor": theme.grid, "domain": False, "ticks": False, "labelPadding": 6,
                "titlePadding": 10, "labelFlush": False,
            },
            "header": {"labelColor": theme.text, "titleColor": theme.muted},
        },
    }


def phone_base(theme, title, subtitle):
    """The same for a phone: lines are short, letters smaller, and an upright axis has its title above it."""
    spec = base(theme._replace(phone=False), textwrap.wrap(title, 38), [line for text in subtitle for line in textwrap.wrap(text, 58)])
    spec["padding"] = {"left": 2, "top": 4, "right": 2, "bottom": 4}
    spec["title"].update(fontSize=15, subtitleFontSize=11, subtitleLineHeight=14)
    spec["config"]["axis"].update(labelFontSize=11, titleFontSize=11, labelPadding=4, titlePadding=6)
    spec["config"]["axisY"] = {"titleAngle": 0, "titleAlign": "left", "titleX": -30, "titleY": -12}
    return spec


def beside(panels, theme, **look):
    """Panels in a row, on a phone in a column."""
    return {"vconcat": panels, "spacing": 20} if theme.phone else {"hconcat": panels, **look}


def why_not(record):
    """A short reason beside a kernel without a bar."""
    reason = record["reason"]
    text = f"{record['status']}: {reason}"
    return text if len(text) <= 66 else text[:63].rstrip(" ,.:;") + " ..."


def kernel_axis(names, theme):
    if theme.phone:  # of a library the name without its version
        return {**kernel_axis(names, theme._replace(phone=False)), "axis": {"labelExpr": "split(datum.label, ' ')[0]", "grid": False}}
    return {
        "field": "kernel", "type": "nominal", "sort": names, "title": None,
        "axis": {"labelLimit": 260, "grid": False, "labelFontSize": 13},
        "scale": {"paddingInner": 0.28, "paddingOuter": 0.1},
    }


def quantity(field, title, scale, **axis):
    """A position that shows a number."""
    return {"field": field, "type": "quantitative", "title": title, "scale": {**scale, "nice": False}, "axis": axis}


def by(field, looks, **legend):
    """A colour or a shape for each value of the field; a legend if one says how."""
    return {"field": field, "type": "nominal", "legend": legend or None,
            "scale": {"domain": list(looks), "range": list(looks.values())}}


def among(field, *values):
    return " || ".join(f"datum.{field} === '{value}'" for value in values)


def layer(mark, encoding, values=None, where=None, **look):
    """Marks of rows of their own (values), or of the chart's rows of which an expression is true (where)."""
    return {**({} if values is None else {"data": {"values": values}}), **({"transform": [{"filter": where}]} if where else {}),
            "mark": {"type": mark, **look}, "encoding": encoding}


def words(encoding, values=None, where=None, field="label", **look):
    """A layer of texts."""
    look = {"align": "left", "baseline": "middle", "fontSize": 12.5, **look}
    return layer("text", {"text": {"field": field}, **encoding}, values, where, **look)


def row_text(where, fill, weight="normal", dx=6, **extra):
    return words({}, None, where, dx=dx, fontWeight=weight, color=fill, limit=560, **extra)


# Kernels have whole lines.
DASHES = {"condition": {"test": among("kind", "kernel"), "value": [1, 0]}, "value": [5, 4]}


def colours_of(names, theme):
    """{name: colour}: the later a kernel, the more it stands out."""
    steps, peers = ([name for name in names if kind(name) == what] for what in ("kernel", "peer"))
    return {**dict.fromkeys(names, theme.muted), **{name: OTHERS[i % len(OTHERS)] for i, name in enumerate(peers)},
            **{name: mix(*theme.ramp, i / max(1, len(steps) - 1)) for i, name in enumerate(steps)}}


def begin_of(speeds):
    """Where an axis of TFLOP/s begins: not at 0, if all would be in its upper part."""
    return min(speeds) * 0.95 // 10 * 10 if min(speeds) > 0.6 * max(speeds) else 0


def with_halo(layer, theme):
    """A text layer on a rim of the background's colour, so that lines below do not run through the letters."""
    rim = {"stroke": theme.background, "strokeWidth": 4, "strokeJoin": "round"}
    return [{**layer, "mark": {**layer["mark"], **rim}}, layer]


def mix(a, b, t):
    parts = ((int(a[i : i + 2], 16), int(b[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(x + (y - x) * t):02x}" for x, y in parts)


def spread(wanted, gap):
    """Positions near the wanted ones, at least `gap` apart, in the same order (labels must not overlap)."""
    blocks = []  # [sum of (wanted - offset), members]: neighbours that touch move as one
    for value in wanted:
        blocks.append([value, 1])
        while len(blocks) > 1:
            (s0, n0), (s1, n1) = blocks[-2:]
            if s1 / n1 - s0 / n0 >= gap * n0:
                break
            blocks[-2:] = [[s0 + s1 - n1 * n0 * gap, n0 + n1]]
    return [total / n + i * gap for total, n in blocks for i in range(n)]


def spread_within(wanted, gap, height):
    """The same, but between 0 and `height` as far as there is room."""
    placed = spread(wanted, gap)
    shift = max(0, placed[-1] - height) if placed else 0
    return [max(y - shift, i * gap) for i, y in enumerate(placed)]


# Of kernels that have changed since they were measured: pale bars with a dashed outline, pale points, dotted lines, and a
# sentence below the title.
STALE = "Pale or dotted: the kernel has changed since it was measured"


def parts(spec):
    """The spec and all that it is made of."""
    yield spec
    for word in ("layer", "vconcat", "hconcat"):
        for part in spec.get(word, ()):
            yield from parts(part)


def marked(spec, kernels, theme):
    """The spec with the marks of those kernels told apart; it is as it was if it shows none of them."""
    rows = [row for part in parts(spec) for row in part.get("data", {}).get("values", ())]
    kernels = sorted({row.get("kernel") for row in rows} & set(kernels))
    if not kernels:
        return spec

    def where(value, otherwise):
        return {"condition": {"test": f"indexof({json.dumps(kernels)}, datum.kernel) >= 0", "value": value}, "value": otherwise}

    for part in parts(spec):
        if "mark" in part:
            part.setdefault("encoding", {})
        mark, encoding = part.get("mark", {}), part.get("encoding", {})
        if mark.get("type") == "bar":
            encoding.update(fillOpacity=where(0.3, 1), stroke=where(theme.text, None), strokeDash=where([4, 3], [1, 0]))
        elif mark.get("type") == "point":
            encoding["opacity"] = where(0.4, 1)
        elif mark.get("type") == "line" and "strokeDash" in encoding:  # peers have dashes already
            condition = encoding["strokeDash"]["condition"]
            encoding["strokeDash"] = {**encoding["strokeDash"], "condition": [where([1, 4], None)["condition"], condition]}
        elif mark.get("type") == "rule" and mark["strokeWidth"] >= 5:  # a step, or what is between bound and time
            encoding["strokeDash"] = where([2, 2], [1, 0])
    spec["title"]["subtitle"] = [*spec["title"]["subtitle"], STALE]
    return spec
