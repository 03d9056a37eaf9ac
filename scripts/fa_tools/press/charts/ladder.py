"""The ladder: TFLOP/s of every kernel on one problem, peers as bars, the matrix product's ceiling as a line."""

from fa_tools.press.charts.look import base, kernel_axis, row_text, short, why_not, with_halo
from fa_tools.records import describe, display, kind, passed


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
            row.update(
                tflops=record["tflops"], label=short(record["tflops"]),
                low=work / record["time_ms"]["p90"], high=work / record["time_ms"]["p10"],
            )
        else:
            row.update(tflops=0, label=why_not(record))
        rows.append(row)
    x = {
        "field": "tflops", "type": "quantitative", "title": "TFLOP/s (higher is better)",
        "scale": {"domain": [0, top * 1.08], "nice": False}, "axis": {"tickCount": 6, "labelColor": theme.muted},
    }
    fills = {"kernel": theme.kernel, "peer": theme.peer, "ceiling": theme.ceiling}
    color = {
        "field": "kind", "type": "nominal", "legend": None,
        "scale": {"domain": list(fills), "range": list(fills.values())},
    }
    good = [{"filter": "datum.kind === 'kernel' || datum.kind === 'peer' || datum.kind === 'ceiling'"}]
    bad = [{"filter": "datum.kind === 'wrong' || datum.kind === 'error'"}]
    skipped = [{"filter": "datum.kind === 'skipped'"}]

    spec = base(theme, f"Attention forward on {gpu}", [
        describe(shape), "Median of the timed launches; the thin line spans the 10th to the 90th percentile",
    ])
    spec.update({
        "width": 560, "height": {"step": 27}, "data": {"values": rows},
        "encoding": {"y": kernel_axis(names), "x": x},
        "layer": [
            {"transform": good, "mark": {"type": "bar", "cornerRadiusEnd": 3}, "encoding": {"color": color}},
            {
                "transform": good, "mark": {"type": "rule", "strokeWidth": 1.5, "color": theme.text, "opacity": 0.75},
                "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}},
            },
            *with_halo({
                **row_text(good, theme.text, weight="bold", dx=7),
                "encoding": {"text": {"field": "label"}, "x": {**x, "field": "high"}},
            }, theme),
            row_text(bad, theme.wrong, weight="bold"),
            row_text(skipped, theme.muted, fontStyle="italic"),
        ],
    })
    peers = [row for row in rows if row["kind"] == "peer"]
    if len(peers) > 3:  # more lines than that cannot be told apart
        peers = [max(peers, key=lambda row: row["tflops"])]
    if peers:  # their bars go on as a dashed line past all kernels, under the labels
        spec["layer"].insert(1, {
            "data": {"values": peers},
            "mark": {"type": "rule", "strokeWidth": 1.2, "strokeDash": [5, 4], "color": theme.muted, "opacity": 0.8},
            "encoding": {"x": x, "y": {"value": 0}, "y2": {"value": {"expr": "height"}}},
        })
    for record in ceilings:
        label = f"{display(record)}, matrix product: {short(record['tflops'])}"
        data = {"values": [{"tflops": record["tflops"], "label": label}]}
        spec["layer"] += [
            {
                "data": data, "mark": {"type": "rule", "strokeWidth": 1.6, "color": theme.muted},
                "encoding": {"x": x, "y": {"value": -4}, "y2": {"value": {"expr": "height"}}},
            },
            {
                "data": data,
                "mark": {"type": "text", "align": "right", "baseline": "bottom", "dx": 4, "fontSize": 11.5,
                         "color": theme.muted},
                "encoding": {"x": x, "y": {"value": -6}, "text": {"field": "label"}},
            },
        ]
    return spec
