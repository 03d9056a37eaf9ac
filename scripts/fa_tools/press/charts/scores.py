"""Speed and error over how far the scores spread: panels for TFLOP/s and relative error, flat and growing."""

from fa_tools.press.charts.look import DASHES, base, begin_of, by, colours_of, layer, quantity
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
