"""Lines over the sequence length, each named at its end: TFLOP/s, or how much of a peer's speed the kernels reach."""

import statistics

from fa_tools.press.charts.look import DASHES, OTHERS, base, begin_of, by, colours_of, layer, quantity, spread_within, words
from fa_tools.records import describe_rest, display, kind, order, passed, shape_of, short


def last(records):
    return max(records, key=lambda record: record["seq_len"])


def are_variants(names):
    """Whether the kernels among them are variants of one: the chapter's number is the same."""
    steps = [name for name in names if kind(name) == "kernel"]
    return len(steps) > 1 and len({name.split("_")[0] for name in steps}) == 1


def line_chart(records, theme, field, title, y_title, subtitle, rule=None, low=0):
    """Records' `field` over seq_len; `rule`: a value that a horizontal line marks; `low`: where the axis begins."""
    by_name, shown = {}, {}  # kernel: its records, what the chart calls it
    for record in records:
        by_name.setdefault(record["kernel"], []).append(record)
        shown[record["kernel"]] = display(record)
    names = sorted(by_name, key=order)
    steps = [name for name in names if kind(name) == "kernel"]
    colors = colours_of(names, theme)
    if are_variants(names):
        colors = {name: theme.muted for name in names} | dict(zip(steps, [*OTHERS[: len(steps) - 1], theme.kernel]))
    rows = [{"kernel": shown[name], "kind": kind(name), "seq_len": r["seq_len"], field: r[field]}
            for name in names for r in sorted(by_name[name], key=lambda r: r["seq_len"])]
    lengths = sorted({row["seq_len"] for row in rows})
    top = max(row[field] for row in rows) * 1.04
    height = max(340, 19 * len(names))
    # Each line is named at its end; names that would overlap are moved apart, with a thin leader to the line.
    ends = sorted(names, key=lambda n: last(by_name[n])[field])
    tall = top - low
    placed = spread_within([(last(by_name[n])[field] - low) / tall * height for n in ends], 17, height)
    labels = [{"kernel": shown[name], "seq_len": last(by_name[name])["seq_len"], field: last(by_name[name])[field],
               "at": low + y / height * tall, "label": f"{shown[name]}  {short(last(by_name[name])[field])}"}
              for name, y in zip(ends, placed)]
    x = quantity("seq_len", "Sequence length (tokens)", {"type": "log", "base": 2, "domain": [lengths[0], lengths[-1]]},
                 values=lengths, format="d", grid=False, labelColor=theme.muted)
    y = quantity(field, y_title, {"domain": [low, top]}, tickCount=6, labelColor=theme.muted)
    color = by("kernel", {shown[name]: colors[name] for name in names})
    width = 520
    layers = [] if rule is None else [layer("rule", {"y": y}, [{field: rule}], strokeWidth=1.4, color=theme.text)]
    layers += [
        layer("line", {"x": x, "y": y, "color": color, "detail": {"field": "kernel"}, "strokeDash": DASHES}, rows,
              strokeWidth=2.2, clip=False),
        layer("point", {"x": x, "y": y, "color": color}, rows, filled=True, size=26, opacity=1),
        layer("rule", {"x": x, "x2": {"value": width + 18}, "y": y, "y2": {"field": "at"}, "color": color}, labels,
              strokeWidth=1, opacity=0.6),
        words({"x": {"value": width + 22}, "y": {**y, "field": "at"}}, labels, fontSize=12, color=theme.text),
    ]
    return {**base(theme, title, subtitle), "width": width, "height": height, "layer": layers}


def problem_of(records):
    """The problems of a line, in words: what is the same at every length."""
    first = records[0]
    same = {(r["batch"] * r["seq_len"]) for r in records}
    problem = f"{first['dtype']}, {first['heads']} heads, head_dim {first['head_dim']}{describe_rest(shape_of(first))}, "
    if len(same) == 1:
        return problem + f"batch x tokens = {same.pop()}"
    batches = {r["seq_len"]: r["batch"] for r in records}
    most = max(batches.values(), key=list(batches.values()).count)
    others = [f"{batch} at {seq_len}" for seq_len, batch in sorted(batches.items()) if batch != most]
    return problem + f"batch {most}" + f" ({', '.join(others)})" * bool(others)


def how(records):
    if are_variants({r["kernel"] for r in records}):
        text = "Variants of one kernel."
    else:
        text = "The more a line stands out, the later its kernel."
    if any(kind(r["kernel"]) != "kernel" for r in records):
        text += " Dashed: other libraries and limits."
    return text


def length_chart(gpu, records, theme):
    good = [r for r in records if passed(r) and "tflops" in r]
    notes, low = [problem_of(records), how(good)], begin_of([r["tflops"] for r in good])
    if low:
        notes[1] += " The axis does not begin at 0."
    return line_chart(good, theme, "tflops", f"Attention forward on {gpu}", "TFLOP/s (higher is better)", notes, low=low)


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
