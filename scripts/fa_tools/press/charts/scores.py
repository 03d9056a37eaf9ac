"""Speed and error over how far the scores spread: panels for TFLOP/s and relative error, flat and growing; and the last
kernel beside the fastest library as a grid of lengths and spreads."""

from fa_tools.press.charts.look import BLUE, DASHES, RED, base, begin_of, by, colours_of, layer, quantity, words
from fa_tools.records import GROWTHS, describe, display, kind, order, shape_of

WIDTH, HEIGHT = 300, 220  # of a panel
HEADS = {"flat": "The same for all keys", "growing": "Growing with the key's index"}


def scores_chart(gpu, records, theme):
    """`records`: of one shape, those with scores that passed and have a speed."""
    names = sorted({r["kernel"] for r in records}, key=order)
    shown = {r["kernel"]: display(r) for r in records}
    colours = colours_of(names, theme)
    growths = [growth for growth in GROWTHS if any(r["score_growth"] == growth for r in records)]
    deviations = sorted({r["score_std"] for r in records})
    rows = [{"kernel": shown[r["kernel"]], "kind": kind(r["kernel"]), "growth": r["score_growth"],
             "std": r["score_std"], "tflops": r["tflops"], "rel": r["error"]["rel"]}
            for r in sorted(records, key=lambda r: (order(r["kernel"]), r["score_std"]))]
    speeds, errors = ([row[field] for row in rows] for field in ("tflops", "rel"))
    low = begin_of(speeds)
    least, most = min(errors) / 1.2, max(errors) * 1.2
    ticks = [digits * 10.0**power for power in range(-9, 1) for digits in (1, 1.5, 2, 3, 5, 7)]
    scales = {"tflops": {"domain": [low, max(speeds) * 1.04]}, "rel": {"type": "log", "domain": [least, most]}}
    axes = {"tflops": {"tickCount": 6}, "rel": {"format": "~e", "values": [t for t in ticks if least <= t <= most]}}
    titles = {"tflops": "TFLOP/s (higher is better)", "rel": "Relative error (lower is better)"}
    x = quantity("std", "Standard deviation of the scores (nats)", {"type": "log", "domain": [deviations[0], deviations[-1]]},
                 values=deviations, format="~g", grid=False, labelColor=theme.muted)
    colour = by("kernel", {shown[name]: colours[name] for name in names}, title=None, orient="bottom", direction="vertical",
                columns=3, labelLimit=260, labelColor=theme.text, labelFontSize=12, symbolType="circle", symbolOpacity=1)

    def panel(field, growth):
        here = [row for row in rows if row["growth"] == growth]
        y = quantity(field, titles[field] if growth == growths[0] else None, scales[field], **axes[field], minExtent=44,
                     labelColor=theme.muted)
        line = layer("line", {"x": x, "y": y, "color": colour, "detail": {"field": "kernel"}, "strokeDash": DASHES},
                     strokeWidth=2.2)
        point = layer("point", {"x": x, "y": y, "color": colour}, filled=True, size=26, opacity=1)
        head = {"title": {"text": HEADS[growth], "anchor": "start", "color": theme.text, "fontSize": 13}}
        return {"width": WIDTH, "height": HEIGHT, "data": {"values": here}, "layer": [line, point],
                **(head if field == "tflops" else {})}

    spec = base(theme, f"Speed and error against the scores' spread on {gpu}",
                [describe(shape_of(records[0])), "Normal Q and K, scaled. Dashed: other libraries."
                 + " The axis of TFLOP/s does not begin at 0." * bool(low)])
    spec.update({"spacing": 28, "vconcat": [{"spacing": 28, "hconcat": [panel(field, growth) for growth in growths]}
                                            for field in titles]})
    return spec


def grid_rows(records):
    """Of the last kernel, at each length and spread: how many times as fast as the fastest library it is, and which that is.
    Only spreads that were measured at every length. `records`: with scores, of one dtype, head size and number of heads."""
    cells = {}
    for record in records:
        cells.setdefault((record["seq_len"], record["score_std"], record["score_growth"]), {})[record["kernel"]] = record
    last = max((r["kernel"] for r in records if kind(r["kernel"]) == "kernel"), key=order, default=None)
    found = {}
    for place, cell in cells.items():
        peers = [r for r in cell.values() if kind(r["kernel"]) == "peer"]
        if last in cell and peers:
            best = max(peers, key=lambda r: r["tflops"])
            found[place] = cell[last]["tflops"] / best["tflops"], best
    lengths = {length for length, *_ in found}
    whole = {(std, growth) for _, std, growth in found if all((length, std, growth) in found for length in lengths)}
    return last, [{"length": str(length), "std": f"{std:g}", "growth": growth, "ratio": ratio, "library": display(best)}
                  for (length, std, growth), (ratio, best) in sorted(found.items(), key=lambda item: item[0]) if (std, growth) in whole]


def grid_chart(gpu, last, rows, shape, theme):
    """A row for each length, a column for each spread; blue where the kernel is ahead, red where it is behind."""
    libraries = sorted({row["library"] for row in rows}, key=lambda name: -sum(row["library"] == name for row in rows))
    signs = dict(zip(libraries, ("", "\u2009*", "\u2009**"), strict=False))
    x = {"field": "std", "type": "nominal", "sort": None, "title": "Standard deviation of the scores (nats)",
         "axis": {"labelAngle": 0, "grid": False}}
    y = {"field": "length", "type": "nominal", "sort": None, "title": None, "axis": {"grid": False}}
    colour = {"field": "ratio", "type": "quantitative", "legend": None,
              "scale": {"domain": [0.8, 1, 1.2], "range": [RED, theme.background, BLUE], "clamp": True, "interpolate": "rgb"}}

    def panel(growth):
        here = [{**row, "label": f"{row['ratio']:.2f}{signs[row['library']]}"} for row in rows if row["growth"] == growth]
        cell = layer("rect", {"x": x, "y": y, "color": colour}, stroke=theme.grid)
        text = words({"x": x, "y": y}, align="center", color=theme.text, fontSize=12)
        return {"width": 48 * len({row["std"] for row in here}), "height": 21 * len({row["length"] for row in here}),
                "data": {"values": here}, "layer": [cell, text],
                "title": {"text": HEADS[growth], "anchor": "start", "color": theme.text, "fontSize": 13}}

    told = [f"{sign}: {library}".strip() for library, sign in signs.items() if sign]
    spec = base(theme, f"{last} beside the fastest library: times as fast, on {gpu}",
                [f"{shape.dtype}, {shape.heads} heads, head_dim {shape.head_dim}. A row is a number of tokens.",
                 f"The fastest library is {libraries[0]}{''.join(f'; {each}' for each in told)}."])
    spec.update({"spacing": 28, "hconcat": [panel(growth) for growth in GROWTHS if any(r["growth"] == growth for r in rows)]})
    return spec
