"""Speeds on a GPU. The ladder: TFLOP/s of every kernel on one problem, peers as bars, the matrix product's ceiling as a line; and step
by step, how many times faster each kernel is than the one before. Lines over the sequence length, each named at its end:
TFLOP/s, or how much of a peer's speed the kernels reach. Speed and error over how far the scores spread, and the last kernel
beside the fastest library as a grid of lengths and spreads. How many of the drawn problems are at most so far ahead."""

import math
import statistics

from fa_tools.documents import cycles
from fa_tools.documents.charts.look import (BLUE, DASHES, GREEN, LIGHT, ORANGE, OTHERS, RED, among, base, begin_of, beside, by, colours_of,
                                        kernel_axis, layer, mix, quantity, row_text, spread_within, why_not, with_halo, words)
from fa_tools.documents.ladder import factor, step_factors
from fa_tools.numbers import short
from fa_tools.records import GROWTHS, describe, describe_rest, display, kind, order, passed, shape_of

# ---- the ladder ----------------------------------------------------------------------------------------------------------

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
    x = quantity("tflops", "TFLOP/s (higher is better)", {"domain": [0, top * (1.2 if theme.phone else 1.08)]},
                 tickCount=4 if theme.phone else 6, labelColor=theme.muted)
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
        name = display(record).split()[0] if theme.phone else display(record)
        label = f"{name}, matrix product: {short(record['tflops'])}"
        data = [{"tflops": record["tflops"], "label": label}]
        layers.insert(1, layer("rule", {"x": x, "y": {"value": -4}, "y2": to_the_end}, data, strokeWidth=1.6, color=theme.muted))
        layers.append(words({"x": x, "y": {"value": -6}}, data, align="right", baseline="bottom", dx=4, fontSize=11.5,
                            color=theme.muted))
    spec = base(theme, f"Attention forward on {gpu}", [
        describe(shape), "Median of the timed launches; the thin line spans the 10th to the 90th percentile",
        *(["Dashed: the fastest library" if len(peers) == 1 else "Dashed: libraries"] if peers else [])])
    return {**spec, "width": 196 if theme.phone else 560, "height": {"step": 27}, "data": {"values": rows},
            "encoding": {"y": kernel_axis(names, theme), "x": x},
            "layer": layers}


def beside_chart(gpus, records, shape, theme):
    """What share of its own card's peak each kernel has, on two cards. gpus: their names, the reader's first. records: {kernel: the
    share of each, or None}."""
    colours = dict(zip(gpus, (theme.kernel, ORANGE)))
    rows = [{"kernel": kernel, "gpu": gpu, "share": 100 * share, "label": f"{short(100 * share)} %"}
            for kernel, shares in records.items() for gpu, share in zip(gpus, shares) if share]
    low, high = min(row["share"] for row in rows), max(row["share"] for row in rows)
    low, high = 10 ** math.floor(math.log10(low / 1.1)), max(100, high)
    x = quantity("share", "Percent of the Tensor Cores' peak, logarithmic", {"type": "log", "domain": [low, high]},
                 values=[10.0**e for e in range(-3, 3) if low <= 10.0**e <= high], format="~g", labelColor=theme.muted)
    width, y, color = 196 if theme.phone else 560, kernel_axis([*records], theme), by("gpu", colours, orient="top", title=None, labelColor=theme.text)
    return {
        **base(theme, f"{gpus[0]} beside {gpus[1]}", [describe(shape), "Each card's share of the peak on its own data sheet"]),
        "width": width, "height": {"step": 27}, "data": {"values": rows}, "encoding": {"y": y},
        "layer": [
            layer("point", {"x": x, "color": color}, filled=True, size=110, opacity=1),
            words({"x": {"value": width + 10}}, where=among("gpu", gpus[0]), field="label", color=theme.text),
        ],
    }


def speedup_chart(gpu, records, shape, theme):
    """A bar from the last measured kernel's speed to this one's, on a logarithmic axis: its length is the factor."""
    good = [r for r in records if passed(r)]
    low, high = min(r["tflops"] for r in good), max(r["tflops"] for r in good)
    low, high = low / 1.8, high * (9 if theme.phone else 1.9)
    names, rows, links, before = [], [], [], None
    factors = step_factors({r["kernel"]: r["tflops"] for r in good})
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
                        "label": factor(factors[record["kernel"]])})
        if passed(record):
            if before is not None:
                links.append({"kernel": display(before), "to": row["kernel"], "tflops": before["tflops"]})
            before = record
        rows.append(row)
    ticks = [m * 10.0**e for e in range(-2, 5) for m in ((1,) if theme.phone else (1, 2, 5))]
    x = quantity("tflops", "TFLOP/s, logarithmic", {"type": "log", "domain": [low, high]},
                 values=[t for t in ticks if low <= t <= high], format="~g", labelColor=theme.muted)
    color = by("step", {"up": theme.kernel, "down": ORANGE, "first": theme.kernel})
    y = kernel_axis(names, theme)
    notes = [describe(shape), "From the speed of the kernel before to this one's: the longer, the greater the factor"]
    if len(good) > 1:
        whole = good[-1]["tflops"] / good[0]["tflops"]
        notes[1] += f"; in all \u00d7 {whole:.{max(0, 2 - int(math.log10(max(whole, 1))))}f}"
    width, column = (162, 36) if theme.phone else (540, 46)
    measured = "datum.step !== 'none'"
    at_the_right = {"x": {"value": width + column}}
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


# ---- over the sequence length --------------------------------------------------------------------------------------------

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
               "at": low + y / height * tall, "label": f"{shown[name].split()[0] if theme.phone else shown[name]}  {short(last(by_name[name])[field])}"}
              for name, y in zip(ends, placed)]
    x = quantity("seq_len", "Sequence length (tokens)", {"type": "log", "base": 2, "domain": [lengths[0], lengths[-1]]},
                 values=lengths[::-1][::2] if theme.phone else lengths, format="d", grid=False, labelColor=theme.muted)
    y = quantity(field, y_title, {"domain": [low, top]}, tickCount=6, labelColor=theme.muted)
    color = by("kernel", {shown[name]: colors[name] for name in names})
    width = 120 if theme.phone else 520
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


def cycles_chart(gpu, launches, theme):
    """A bar for each kernel: all cycles of a launch. launches: fa_tools.documents.cycles.launches()"""
    pink = OTHERS[2]
    looks = {"products": (theme.kernel, theme.background), "slower": (GREEN, LIGHT.text), "empty": (theme.ceiling, theme.text),
             "ends": (ORANGE, LIGHT.text), "within": (pink, LIGHT.text), "both": (mix(ORANGE, pink, 0.5), LIGHT.text)}
    rows = []
    for kernel, launch in launches.items():
        end = 0
        for part, share in launch.parts.items():
            rows.append({"kernel": kernel, "part": cycles.PARTS[part], "from": end, "to": end + 100 * share, "middle": end + 50 * share,
                         "label": f"{100 * share:.0f}", "room": 100 * share})
            end += 100 * share
    x = quantity("from", "Percent of all cycles of all SMs", {"domain": [0, 100]}, tickCount=5, labelColor=theme.muted)
    colour = by("part", {name: looks[part][0] for part, name in cycles.PARTS.items()}, title=None, orient="bottom", direction="vertical",
                columns=1 if theme.phone else 2, columnPadding=30, labelLimit=300, labelColor=theme.text, labelFontSize=12,
                symbolType="square")
    spec = base(theme, f"Where the cycles go on {gpu}",
                [describe(shape_of(next(iter(launches.values())).record)), "Under load: time \u00d7 sampled clock \u00d7 SMs of a launch"])
    return {**spec, "width": 194 if theme.phone else 560, "height": {"step": 27}, "data": {"values": rows},
            "encoding": {"y": kernel_axis([*launches], theme)},
            "layer": [layer("bar", {"x": x, "x2": {"field": "to"}, "color": colour}),
                      *(words({"x": {**x, "field": "middle"}}, where=f"datum.room >= {4 if theme.phone else 2} && datum.part === '{name}'",
                              align="center", fontSize=11.5, color=looks[part][1]) for part, name in cycles.PARTS.items())]}


def peer_length_chart(gpu, rows, peer, theme):
    title = f"Percent of {without_maker(peer)} on {gpu}"
    notes = [problem_of(rows) + "; ratios within rounds" * ("round_ms" in peer), how(rows)]
    return line_chart(rows, theme, "percent", title, f"% of the speed of {display(peer)}", notes, rule=100)


# ---- over the scores' spread ---------------------------------------------------------------------------------------------

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
                columns=2 if theme.phone else 3, labelLimit=260, labelColor=theme.text, labelFontSize=12, symbolType="circle", symbolOpacity=1)

    def panel(field, growth):
        here = [row for row in rows if row["growth"] == growth]
        y = quantity(field, titles[field] if growth == growths[0] and not theme.phone else None, scales[field], **axes[field], minExtent=44,
                     labelColor=theme.muted)
        line = layer("line", {"x": x, "y": y, "color": colour, "detail": {"field": "kernel"}, "strokeDash": DASHES},
                     strokeWidth=2.2)
        point = layer("point", {"x": x, "y": y, "color": colour}, filled=True, size=26, opacity=1)
        head = {"title": {"text": HEADS[growth], "anchor": "start", "color": theme.text, "fontSize": 13}}
        if theme.phone:
            head["title"].update(text=titles[field], subtitle=HEADS[growth], subtitleColor=theme.muted)
        return {"width": WIDTH - 30 * theme.phone, "height": HEIGHT - 60 * theme.phone, "data": {"values": here}, "layer": [line, point],
                **(head if field == "tflops" or theme.phone else {})}

    spec = base(theme, f"Speed and error against the scores' spread on {gpu}",
                [describe(shape_of(records[0])), "Normal Q and K, scaled. Dashed: other libraries."
                 + " The axis of TFLOP/s does not begin at 0." * bool(low)])
    spec.update({"spacing": 28, "vconcat": [beside([panel(field, growth) for growth in growths], theme, spacing=28)
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
        return {"width": (46 if theme.phone else 48) * len({row["std"] for row in here}), "height": 21 * len({row["length"] for row in here}),
                "data": {"values": here}, "layer": [cell, text],
                "title": {"text": HEADS[growth], "anchor": "start", "color": theme.text, "fontSize": 13}}

    told = [f"{sign}: {library}".strip() for library, sign in signs.items() if sign]
    spec = base(theme, f"{last} beside the fastest library: times as fast, on {gpu}",
                [f"{shape.dtype}, {shape.heads} heads, head_dim {shape.head_dim}. A row is a number of tokens.",
                 f"The fastest library is {libraries[0]}{''.join(f'; {each}' for each in told)}."])
    spec.update(beside([panel(growth) for growth in GROWTHS if any(r["growth"] == growth for r in rows)], theme, spacing=28))
    return spec


# ---- over drawn problems -------------------------------------------------------------------------------------------------

FINE = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2)
COARSE = (0.1, 0.14, 0.2, 0.3, 0.5, 0.7, 1, 1.4, 2, 3, 5, 7, 10, 14, 20, 30, 50)


def ways_of(drawn):
    """{what the chart calls it: [Drawn]} of each way of timing, of the problems that a kernel of ours and a library have a time of."""
    ways = {}
    for each in drawn:
        ways.setdefault(each.way, []).append(each)
    compared = {way: [each for each in here if each.ratio] for way, here in ways.items()}
    return {f"{way}: {len(here)} problem{'s' * (len(here) != 1)}" + f", {len(ways[way]) - len(here)} left out" * (len(here) < len(ways[way])): here
            for way, here in compared.items() if here}


def spread_chart(gpu, drawn, theme):
    """A line for each way of timing: how many percent of the problems are at most so many times as fast as the fastest library.
    drawn: fa_tools.documents.beyond_tables.drawn()"""
    ways = ways_of(drawn)
    rows = [{"kernel": way, "kind": "kernel", "times": ratio, "share": 100 * nth / len(here), "nth": nth} for way, here in ways.items()
            for ratios in [sorted(each.ratio for each in here)] for nth, ratio in enumerate([ratios[0], *ratios])]
    low, high = min(0.9, *(row["times"] / 1.03 for row in rows)), max(1.1, *(row["times"] * 1.03 for row in rows))
    width = 276 if theme.phone else 540
    ticks = FINE if 0.1 * width / math.log(high / low) > 30 else COARSE
    x = quantity("times", "Times as fast as the fastest library, logarithmic", {"type": "log", "domain": [low, high]},
                 values=[tick for tick in ticks if low <= tick <= high], format="~g", labelColor=theme.muted)
    y = quantity("share", "Percent of the problems", {"domain": [0, 100]}, tickCount=5, labelColor=theme.muted)
    colour = by("kernel", dict(zip(ways, (theme.kernel, ORANGE))), title=None, orient="bottom", labelLimit=260, labelColor=theme.text,
                labelFontSize=12, symbolType="stroke", direction="vertical" if theme.phone else "horizontal")
    seeds = ", ".join(map(str, sorted({each.seed for each in drawn})))
    spec = base(theme, f"Drawn problems next to the fastest library, on {gpu}",
                [f"Drawn by the seeds {seeds}; on each problem our fastest kernel. Left of 1 a library is ahead."])
    return {**spec, "width": width, "height": 220 if theme.phone else 300, "layer": [
        layer("rule", {"x": x}, [{"times": 1}], strokeWidth=1.4, color=theme.text),
        layer("line", {"x": x, "y": y, "color": colour, "strokeDash": DASHES, "order": {"field": "nth", "type": "quantitative"}}, rows,
              strokeWidth=2.2, interpolate="step-after"),
        layer("point", {"x": x, "y": y, "color": colour}, rows, filled=True, size=20, opacity=1)]}
