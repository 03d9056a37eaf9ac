"""The ladder: TFLOP/s of every kernel on one problem, peers as bars, the matrix product's ceiling as a line; and step by step,
how many times faster each kernel is than the one before."""

import math

from fa_tools.press.charts.look import ORANGE, among, base, by, kernel_axis, layer, quantity, row_text, why_not, with_halo, words
from fa_tools.records import describe, display, kind, passed, short


def cuda_ladder(gpu, records, shape, theme):
    ceilings = [r for r in records if r["kernel"] == "ceiling/matmul" and passed(r)]
    records = [r for r in records if kind(r["kernel"]) != "ceiling"]
    names = [display(record) for record in records]
    top = max((record["tflops"] for record in [*records, *ceilings] if passed(record)), default=1)
    rows = []
    for record in records:
        row = {"kernel": display(record), "kind": kind(record["kernel"]) if passed(record) else record["status"]}
        if passed(record):
            work = record["tflops"] * record["time_ms"]["median"]
            row.update(tflops=record["tflops"], label=short(record["tflops"]),
                       low=work / record["time_ms"]["p90"], high=work / record["time_ms"]["p10"])
        else:
            row.update(tflops=0, label=why_not(record))
        rows.append(row)
    x = quantity("tflops", "TFLOP/s (higher is better)", {"domain": [0, top * 1.08]}, tickCount=6, labelColor=theme.muted)
    fills = {"kernel": theme.kernel, "peer": theme.peer, "ceiling": theme.ceiling}
    good, to_the_end = among("kind", *fills), {"value": {"expr": "height"}}
    layers = [
        layer("bar", {"color": by("kind", fills)}, where=good, cornerRadiusEnd=3),
        layer("rule", {"x": {**x, "field": "low"}, "x2": {"field": "high"}}, where=good, strokeWidth=1.5, color=theme.text,
              opacity=0.75),
        *with_halo({**row_text(good, theme.text, weight="bold", dx=7),
                    "encoding": {"text": {"field": "label"}, "x": {**x, "field": "high"}}}, theme),
        row_text(among("kind", "wrong", "error"), theme.wrong, weight="bold"),
        row_text(among("kind", "skipped"), theme.muted, fontStyle="italic"),
    ]
    peers = [row for row in rows if row["kind"] == "peer"]
    if len(peers) > 3:  # more lines than that cannot be told apart
        peers = [max(peers, key=lambda row: row["tflops"])]
    if peers:  # their bars go on as a dashed line past all kernels, under the labels
        layers.insert(1, layer("rule", {"x": x, "y": {"value": 0}, "y2": to_the_end}, peers, strokeWidth=1.2, strokeDash=[5, 4],
                               color=theme.muted, opacity=0.8))
    for record in ceilings:
        label = f"{display(record)}, matrix product: {short(record['tflops'])}"
        data = [{"tflops": record["tflops"], "label": label}]
        layers.insert(1, layer("rule", {"x": x, "y": {"value": -4}, "y2": to_the_end}, data, strokeWidth=1.6, color=theme.muted))
        layers.append(words({"x": x, "y": {"value": -6}}, data, align="right", baseline="bottom", dx=4, fontSize=11.5,
                            color=theme.muted))
    spec = base(theme, f"Attention forward on {gpu}", [
        describe(shape), "Median of the timed launches; the thin line spans the 10th to the 90th percentile"])
    return {**spec, "width": 560, "height": {"step": 27}, "data": {"values": rows}, "encoding": {"y": kernel_axis(names), "x": x},
            "layer": layers}


def factor(value):
    """x 11.5, x 1.02, x 0.63: enough digits to see a step of a percent."""
    return f"\u00d7 {value:.2f}" if value < 10 else f"\u00d7 {value:.1f}"


def speedup_chart(gpu, records, shape, theme):
    """A bar from the last measured kernel's speed to this one's, on a logarithmic axis: its length is the factor."""
    good = [r for r in records if passed(r)]
    low, high = min(r["tflops"] for r in good), max(r["tflops"] for r in good)
    low, high = low / 1.8, high * 1.9
    names, rows, links, before = [], [], [], None
    for record in records:
        row = {"kernel": display(record), "status": record["status"], "tflops": low, "from": low}
        names.append(row["kernel"])
        if not passed(record):
            row.update(step="none", label=why_not(record))
        elif before is None:
            row.update(step="first", tflops=record["tflops"], label="", speed=short(record["tflops"]))
            row["from"] = record["tflops"]
        else:
            row.update({"step": "up" if record["tflops"] >= before["tflops"] else "down", "from": before["tflops"],
                        "tflops": record["tflops"], "speed": short(record["tflops"]),
                        "label": factor(record["tflops"] / before["tflops"])})
        if passed(record):
            if before is not None:
                links.append({"kernel": display(before), "to": row["kernel"], "tflops": before["tflops"]})
            before = record
        rows.append(row)
    ticks = [m * 10.0**e for e in range(-2, 5) for m in (1, 2, 5)]
    x = quantity("tflops", "TFLOP/s, logarithmic", {"type": "log", "domain": [low, high]},
                 values=[t for t in ticks if low <= t <= high], format="~g", labelColor=theme.muted)
    color = by("step", {"up": theme.kernel, "down": ORANGE, "first": theme.kernel})
    y = kernel_axis(names)
    notes = [describe(shape), "From the speed of the kernel before to this one's: the longer, the greater the factor"]
    if len(good) > 1:
        whole = good[-1]["tflops"] / good[0]["tflops"]
        notes[1] += f"; in all \u00d7 {whole:.{max(0, 2 - int(math.log10(max(whole, 1))))}f}"
    width, measured = 540, "datum.step !== 'none'"
    at_the_right = {"x": {"value": width + 46}}
    return {
        **base(theme, f"Speed-up step by step on {gpu}", notes),
        "width": width, "height": {"step": 29}, "data": {"values": rows}, "encoding": {"y": y, "x": x},
        "layer": [
            layer("rule", {"x": x, "y": {**y, "bandPosition": 0.5}, "y2": {"field": "to", "bandPosition": 0.5}}, links,
                  strokeWidth=1, strokeDash=[2, 3], color=theme.muted),
            layer("rule", {"x": {**x, "field": "from"}, "x2": {"field": "tflops"}, "color": color},
                  where=among("step", "up", "down"), strokeWidth=5),
            layer("point", {"color": color}, where=measured, filled=True, size=120, opacity=1),
            row_text(among("step", "up"), theme.text, weight="bold", dx=11),
            row_text(among("step", "down"), theme.text, weight="bold", dx=-11, align="right"),
            row_text(among("status", "wrong", "error"), theme.wrong, weight="bold"),
            row_text(among("status", "skipped"), theme.muted, fontStyle="italic"),
            words(at_the_right, where=measured, field="speed", align="right", color=theme.muted),
            words({**at_the_right, "y": {"value": -3}}, [{"label": "TFLOP/s"}], align="right", baseline="bottom", fontSize=11.5,
                  color=theme.muted),
        ],
    }
