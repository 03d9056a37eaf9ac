"""How much of a peer's speed the kernels reach: by kernel on one problem, and over the sequence length."""

import statistics

from fa_tools.charts.lengths import how, line_chart, problem_of
from fa_tools.charts.look import base, kernel_axis, row_text, short, why_not, with_halo
from fa_tools.records import describe, display, kind, order, passed


def speed_over(record, peer):
    """Speed over the peer's on the same problem: the median of the ratios within rounds, where there are any."""
    ratio = record.get("ratio", {}).get(peer["kernel"])
    if ratio is None:
        mine, theirs = record.get("round_ms", []), peer.get("round_ms", [])
        if mine and len(mine) == len(theirs) and record["run"] == peer["run"]:
            ratio = statistics.median(b / a for a, b in zip(mine, theirs))
        else:
            ratio = peer["time_ms"]["median"] / record["time_ms"]["median"]
    return ratio


def without_maker(peer):
    return peer.get("library", {}).get("implementation", peer["kernel"])


def peer_chart(gpu, records, peer, shape, theme):
    """One bar a kernel and other peer; `peer` itself is the line at 100 %."""
    records = [r for r in records if r is not peer and kind(r["kernel"]) != "ceiling"]
    names, rows = [], []
    for record in sorted(records, key=lambda r: order(r["kernel"])):
        row = {"kernel": display(record), "kind": kind(record["kernel"]) if passed(record) else record["status"]}
        names.append(row["kernel"])
        if passed(record):
            percent = 100 * speed_over(record, peer)
            other_run = record["run"] != peer["run"]
            row.update(percent=percent, label=short(percent) + " %" + " *" * other_run, other=other_run)
        else:
            row.update(percent=0, label=why_not(record), other=False)
        rows.append(row)
    top = max([100, *(row["percent"] for row in rows)])
    x = {
        "field": "percent", "type": "quantitative", "title": f"% of the speed of {display(peer)}",
        "scale": {"domain": [0, top * 1.1], "nice": False}, "axis": {"tickCount": 6, "labelColor": theme.muted},
    }
    color = {
        "field": "kind", "type": "nominal", "legend": None,
        "scale": {"domain": ["kernel", "peer"], "range": [theme.kernel, theme.peer]},
    }
    good = [{"filter": "datum.kind === 'kernel' || datum.kind === 'peer'"}]
    notes = [describe(shape) + "; ratios within rounds" * ("round_ms" in peer)]
    if any(row["other"] for row in rows):
        notes.append(f"* measured in another run than {without_maker(peer)}, on a GPU of the same kind")
    spec = base(theme, f"Percent of {without_maker(peer)} on {gpu}", notes)
    line = {"values": [{"percent": 100, "label": f"{without_maker(peer)}: {short(peer['tflops'])} TFLOP/s"}]}
    spec.update({
        "width": 560, "height": {"step": 27}, "data": {"values": rows},
        "encoding": {"y": kernel_axis(names), "x": x},
        "layer": [
            {
                "transform": good, "mark": {"type": "bar", "cornerRadiusEnd": 3},
                "encoding": {
                    "color": color, "opacity": {"condition": {"test": "datum.other", "value": 0.6}, "value": 1},
                },
            },
            {
                "data": line, "mark": {"type": "rule", "strokeWidth": 1.4, "strokeDash": [5, 4], "color": theme.text},
                "encoding": {"x": x, "y": {"value": -4}, "y2": {"value": {"expr": "height"}}},
            },
            {
                "data": line,
                "mark": {"type": "text", "align": "center", "baseline": "bottom", "fontSize": 11.5,
                         "color": theme.muted},
                "encoding": {"x": x, "y": {"value": -6}, "text": {"field": "label"}},
            },
            *with_halo(row_text(good, theme.text, weight="bold", dx=7), theme),
            row_text([{"filter": "datum.kind === 'wrong' || datum.kind === 'error'"}], theme.wrong, weight="bold"),
            row_text([{"filter": "datum.kind === 'skipped'"}], theme.muted, fontStyle="italic"),
        ],
    })
    return spec


def percents(records, peers):
    """Records with `percent` of the peer on the same problem, of the peer's run only; `peers`: seq_len to record."""
    rows = []
    for record in records:
        peer = peers.get(record["seq_len"])
        measured = peer and record is not peer and passed(record) and kind(record["kernel"]) != "ceiling"
        if measured and record["run"] == peer["run"]:
            rows.append({**record, "percent": 100 * speed_over(record, peer)})
    return rows


def peer_length_chart(gpu, rows, peer, theme):
    title = f"Percent of {without_maker(peer)} on {gpu}"
    notes = [problem_of(rows) + "; ratios within rounds" * ("round_ms" in peer), how(rows)]
    return line_chart(rows, theme, "percent", title, f"% of the speed of {display(peer)}", notes, rule=100)
