"""Speed and error over how far the scores spread: panels for TFLOP/s and relative error, flat and growing."""

from fa_tools.press.charts.look import OTHERS, base, mix
from fa_tools.records import GROWTHS, describe, display, kind, order, shape_of

WIDTH, HEIGHT = 300, 220  # of a panel
HEADS = {"flat": "The same for all keys", "growing": "Growing with the key's index"}


def colours_of(names, theme):
    steps = [name for name in names if kind(name) == "kernel"]
    colours = {name: mix(*theme.ramp, i / max(1, len(steps) - 1)) for i, name in enumerate(steps)}
    peers = [name for name in names if name not in colours]
    return {**colours, **{name: OTHERS[i % len(OTHERS)] for i, name in enumerate(peers)}}


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
    low = min(speeds) * 0.95 // 10 * 10 if min(speeds) > 0.6 * max(speeds) else 0
    least, most = min(errors) / 1.2, max(errors) * 1.2
    ticks = [digits * 10.0**power for power in range(-9, 1) for digits in (1, 1.5, 2, 3, 5, 7)]
    scales = {"tflops": {"domain": [low, max(speeds) * 1.04], "nice": False},
              "rel": {"type": "log", "domain": [least, most], "nice": False}}
    axes = {"tflops": {"tickCount": 6}, "rel": {"format": "~e", "values": [t for t in ticks if least <= t <= most]}}
    titles = {"tflops": "TFLOP/s (higher is better)", "rel": "Relative error (lower is better)"}
    x = {
        "field": "std", "type": "quantitative", "title": "Standard deviation of the scores (nats)",
        "scale": {"type": "log", "domain": [deviations[0], deviations[-1]], "nice": False},
        "axis": {"values": deviations, "format": "~g", "grid": False, "labelColor": theme.muted},
    }
    colour = {
        "field": "kernel", "type": "nominal", "scale": {"domain": [shown[n] for n in names],
                                                        "range": [colours[n] for n in names]},
        "legend": {"title": None, "orient": "bottom", "direction": "vertical", "columns": 3, "labelLimit": 260,
                   "labelColor": theme.text, "labelFontSize": 12, "symbolType": "circle", "symbolOpacity": 1},
    }

    def panel(field, growth):
        here = [row for row in rows if row["growth"] == growth]
        y = {"field": field, "type": "quantitative", "title": titles[field] if growth == growths[0] else None,
             "scale": scales[field], "axis": {**axes[field], "minExtent": 44, "labelColor": theme.muted}}
        line = {
            "mark": {"type": "line", "strokeWidth": 2.2},
            "encoding": {"x": x, "y": y, "color": colour, "detail": {"field": "kernel"},
                         "strokeDash": {"condition": {"test": "datum.kind === 'kernel'", "value": [1, 0]}, "value": [5, 4]}},
        }
        point = {"mark": {"type": "point", "filled": True, "size": 26, "opacity": 1},
                 "encoding": {"x": x, "y": y, "color": colour}}
        head = {"title": {"text": HEADS[growth], "anchor": "start", "color": theme.text, "fontSize": 13}}
        return {"width": WIDTH, "height": HEIGHT, "data": {"values": here}, "layer": [line, point],
                **(head if field == "tflops" else {})}

    spec = base(theme, f"Speed and error against the scores' spread on {gpu}",
                [describe(shape_of(records[0])), "Normal Q and K, scaled. Dashed: other libraries."
                 + " The axis of TFLOP/s does not begin at 0." * bool(low)])
    spec.update({"spacing": 28, "vconcat": [{"spacing": 28, "hconcat": [panel(field, growth) for growth in growths]}
                                            for field in titles]})
    return spec
