#!/usr/bin/env python3
"""Draws results files: a ladder with one bar a kernel, and TFLOP/s over the sequence length if there are several.

Each chart is written as NAME.svg (light), NAME-dark.svg and NAME.png. Nothing is fetched and no browser is needed;
the same input gives the same bytes."""

import argparse
import math
import os
import re
import sys
from collections import Counter, namedtuple
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
from tools import ROOT, Refused, fail, need, read_results, relative  # noqa: E402

EXAMPLE = """examples:
  scripts/chart.sh results/2026-11-21T10-00-00Z.json
  scripts/chart.sh bench/results/h200_fp16_d64.json -o charts --dtype fp16 --head-dim 64
  scripts/chart.sh --docs                   draw the documentation's charts again from the committed results
  scripts/chart.sh --docs --check           only say which are out of date; exit code 1 if any is"""

# The documentation's charts: first part of the name, committed results.
DOCS = ROOT / "docs" / "charts"
DOCS_CHARTS = {
    "h200": ["bench/results/h200_bf16_d128.json", "bench/results/h200_peers_bf16_d128.json"],
    "emulator": ["bench/results/emulator_n256.json"],
}

# Colours: Okabe and Ito's palette, made for every kind of colour vision. Theme decides only about neutral ones.
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
Theme = namedtuple("Theme", "background text muted grid kernel peer ceiling wrong ramp")
LIGHT = Theme("#ffffff", "#1f2328", "#656d76", "#e4e7eb", BLUE, "#9aa4af", "#cfd5db", RED, ("#b9d9ee", "#003f66"))
DARK = Theme(
    "#0d1117", "#e6edf3", "#9198a1", "#2a313a", "#4aa8e0", "#7d8792", "#444c56", "#ff8a4c", ("#1d5c86", "#c9e8fb")
)

# Liberation Sans comes with vl-convert, so every machine measures and draws the same letters; a browser without it
# takes Arial, which has the same widths.
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"

# What the emulator shows instead of time: (counter, title, unit). The first that exist are drawn.
COUNTERS = [
    ("global_sectors", "Global memory", "32-byte sectors moved"),
    ("shared_wavefronts", "Shared memory", "wavefronts, conflicts included"),
    ("barriers", "Barriers", "of a whole CTA"),
    ("shuffles", "Warp shuffles", "one a warp"),
    ("exp2", "Exponentials", "one a thread"),
]

Shape = namedtuple("Shape", "dtype batch heads seq_len head_dim")


def shape_of(record):
    return Shape(*(record[field] for field in Shape._fields))


def passed(record):
    return record["status"] == "passed"


def kind(name):
    return {"peer": "peer", "ceiling": "ceiling"}.get(name.split("/")[0], "kernel")


def display(record):
    """What a chart calls a record: the kernel's name, of a peer with its library `FlashAttention-2 (PyTorch 2.11)`."""
    if "library" not in record:
        return record["kernel"]
    library = record["library"]
    version = re.match(r"[0-9]+\.[0-9]+", library["version"])[0]
    return f"{library['implementation']} ({library['name']} {version})"


def short(value):
    """652, 92.1, 7.90, 0.45: three significant digits."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def amount(value):
    """8.91 M, 622 k, 64."""
    for limit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{short(value / limit)} {letter}"
    return str(value)


# --- Choosing what is shown ------------------------------------------------------------------------------------


class Group:
    """The records of one machine, merged over files; a later file's record replaces an earlier one's."""

    def __init__(self, machine, stem):
        self.machine, self.stem, self.records = machine, stem, {}

    @property
    def cuda(self):
        return self.machine["backend"] == "cuda"

    def name(self):
        if self.cuda:
            return self.machine["gpu"]
        return "Emulator" if self.machine["checked"] else "Emulator, fast build"

    def add(self, data):
        for record in data["records"]:
            self.records[record["kernel"], shape_of(record)] = record

    def select(self, wish):
        for record in self.records.values():
            if all(value is None or record[field] == value for field, value in wish.items()):
                yield record


def group_files(names):
    groups = {}
    for name in names:
        data = read_results(name)
        machine = data["machine"]
        key = (machine["backend"], machine.get("gpu"), machine.get("checked"))
        groups.setdefault(key, Group(machine, Path(name).stem)).add(data)
    stems = Counter(group.stem for group in groups.values())
    for group in groups.values():
        if stems[group.stem] > 1:
            group.stem += "-" + group.machine["backend"]
    return list(groups.values())


def headline_shape(records):
    """The problem most kernels ran; among equals 4096 tokens, else the longest; head_dim 128 and bf16 first."""
    count = Counter(shape_of(record) for record in records)
    return max(count, key=lambda s: (count[s], s.seq_len == 4096, s.seq_len, s.head_dim, s.dtype, s.heads, s.batch))


def order(name):
    """Kernels by number, then peers, then ceilings."""
    return ({"kernel": 0, "peer": 1, "ceiling": 2}[kind(name)], name)


def describe(shape, with_length=True):
    parts = [shape.dtype, f"batch {shape.batch}", f"{shape.heads} head" + "s" * (shape.heads != 1)]
    if with_length:
        parts.append(f"{shape.seq_len} tokens")
    return ", ".join([*parts, f"head_dim {shape.head_dim}"])


# --- Vega-Lite -------------------------------------------------------------------------------------------------


def base(theme, title, subtitle):
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


def why_not(record):
    """A short reason beside a kernel without a bar."""
    reason = record["reason"]
    text = f"{record['status']}: {reason}"
    return text if len(text) <= 66 else text[:63].rstrip(" ,.:;") + " ..."


def kernel_axis(names, width=None):
    return {
        "field": "kernel", "type": "nominal", "sort": names, "title": None,
        "axis": {"labelLimit": 260, "grid": False, "labelFontSize": 13, **({"minExtent": width} if width else {})},
        "scale": {"paddingInner": 0.28, "paddingOuter": 0.1},
    }


def cuda_ladder(group, records, shape, theme):
    names = [display(record) for record in records]
    top = max((record["tflops"] for record in records if passed(record)), default=1)
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

    def text(transform, fill, size=12.5, weight="normal", dx=6, **extra):
        return {
            "transform": transform,
            "mark": {"type": "text", "align": "left", "baseline": "middle", "dx": dx, "fontSize": size,
                     "fontWeight": weight, "color": fill, "limit": 560, **extra},
            "encoding": {"text": {"field": "label"}},
        }

    spec = base(theme, f"Attention forward on {group.name()}", [
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
            {
                **text(good, theme.text, weight="bold", dx=7),
                "encoding": {"text": {"field": "label"}, "x": {**x, "field": "high"}},
            },
            text(bad, theme.wrong, weight="bold"),
            text(skipped, theme.muted, fontStyle="italic"),
        ],
    })
    peers = [row for row in rows if row["kind"] == "peer"]
    if peers:  # their bars go on as a dashed line past all kernels, under the labels
        spec["layer"].insert(1, {
            "data": {"values": peers},
            "mark": {"type": "rule", "strokeWidth": 1.2, "strokeDash": [5, 4], "color": theme.muted, "opacity": 0.8},
            "encoding": {"x": x, "y": {"value": 0}, "y2": {"value": {"expr": "height"}}},
        })
    return spec


def power_of_ten(value, up):
    return 10.0 ** (math.ceil if up else math.floor)(math.log10(max(value, 1)))


def emulator_ladder(group, records, shape, theme):
    names = [record["kernel"] for record in records]
    present = [c for c in COUNTERS if any(c[0] in record.get("counters", {}) for record in records)][:2]
    width = 250
    panels = []
    for i, (counter, title, unit) in enumerate(present):
        values = [record["counters"][counter] for record in records if counter in record.get("counters", {})]
        positive = [value for value in values if value > 0] or [1]
        low, high = power_of_ten(min(positive) * 0.7, False), power_of_ten(max(positive) * 1.05, True)
        rows = []
        for record in records:
            count = record.get("counters", {}).get(counter)
            row = {"kernel": record["kernel"], "status": record["status"], "value": low, "state": "note"}
            if count:
                row.update(value=count, label=amount(count), state="ok" if passed(record) else "bad")
            elif count == 0:
                row["label"] = "none"
            elif passed(record):
                row["label"] = "not counted"
            else:
                # The reason is long; it is said once, in the first panel, and may run on into the next.
                row["label"] = "" if i else why_not(record)
                row["state"] = "skipped" if record["status"] == "skipped" else "bad-note"
            rows.append(row)
        x = {
            "field": "value", "type": "quantitative", "title": None,
            "scale": {"type": "log", "domain": [low, high], "nice": False},
            "axis": {
                "values": [10.0 ** e for e in range(round(math.log10(low)), round(math.log10(high)) + 1)],
                "format": "~s", "labelColor": theme.muted, "orient": "bottom",
            },
        }

        def text(states, fill, dx, **extra):
            return {
                "transform": [{"filter": {"field": "state", "oneOf": states}}],
                "mark": {
                    "type": "text", "align": "left", "baseline": "middle", "dx": dx, "fontSize": 12.5, "color": fill,
                    **extra,
                },
                "encoding": {"text": {"field": "label"}},
            }

        y = kernel_axis(names)
        if i:
            y["axis"] = None
        # A logarithmic axis has no zero, so a bar would lie about proportions: a dot on a stem does not claim any.
        from_edge = {**{k: v for k, v in x.items() if k != "field"}, "datum": low}
        dots = {"transform": [{"filter": {"field": "state", "oneOf": ["ok", "bad"]}}]}
        color = {"condition": {"test": "datum.state === 'ok'", "value": theme.kernel}, "value": theme.wrong}
        panels.append({
            "width": width, "height": {"step": 34}, "data": {"values": rows},
            "title": {
                "text": title, "subtitle": unit, "anchor": "start", "frame": "group", "fontSize": 13,
                "subtitleFontSize": 11.5, "color": theme.text, "subtitleColor": theme.muted, "offset": 8,
                "subtitlePadding": 3,
            },
            "encoding": {"y": y, "x": x},
            "layer": [
                {
                    **dots, "mark": {"type": "rule", "strokeWidth": 3},
                    "encoding": {"x": from_edge, "x2": {"field": "value"}, "color": color},
                },
                {
                    **dots, "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
                    "encoding": {"color": color},
                },
                text(["ok", "bad"], theme.text, 11, fontWeight="bold"),
                text(["note"], theme.muted, 6, fontStyle="italic"),
                text(["skipped"], theme.muted, 6, fontStyle="italic"),
                text(["bad-note"], theme.wrong, 6, fontWeight="bold"),
            ],
        })
    notes = [f"{describe(shape)}; logarithmic scales, fewer is better"]
    wrong = [record["kernel"] for record in records if record["status"] == "wrong"]
    if wrong:
        notes.append("wrong results: " + ", ".join(wrong))
    traffic = any(counter == "global_sectors" for counter, _, _ in present)
    title = f"{group.name()}: {'memory traffic' if traffic else 'events'} of attention forward"
    spec = base(theme, title, notes)
    spec.update({"hconcat": panels, "spacing": 56, "bounds": "flush"})
    return spec


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


def length_chart(group, records, theme):
    by_name, shown = {}, {}  # kernel: its records, what the chart calls it
    for record in records:
        if passed(record):
            by_name.setdefault(record["kernel"], []).append(record)
            shown[record["kernel"]] = display(record)
    names = sorted(by_name, key=order)
    steps = [name for name in names if kind(name) == "kernel"]
    colors = {name: mix(*theme.ramp, i / max(1, len(steps) - 1)) for i, name in enumerate(steps)}
    others = [ORANGE, GREEN, "#CC79A7", "#56B4E9", "#F0E442"]
    for i, name in enumerate(name for name in names if kind(name) == "peer"):
        colors[name] = others[i % len(others)]
    for name in names:
        colors.setdefault(name, theme.muted)

    rows = [
        {"kernel": shown[name], "kind": kind(name), "seq_len": r["seq_len"], "tflops": r["tflops"]}
        for name in names for r in sorted(by_name[name], key=lambda r: r["seq_len"])
    ]
    lengths = sorted({row["seq_len"] for row in rows})
    top = max(row["tflops"] for row in rows) * 1.04
    height = max(340, 19 * len(names))
    # Each line is named at its end; names that would overlap are moved apart, with a thin leader to the line.
    ends = sorted(names, key=lambda n: last(by_name[n])["tflops"])
    wanted = [last(by_name[n])["tflops"] / top * height for n in ends]
    placed = spread(wanted, 17)
    shift = max(0, placed[-1] - height) if placed else 0
    placed = [max(y - shift, i * 17) for i, y in enumerate(placed)]
    labels = [
        {
            "kernel": shown[name], "seq_len": last(by_name[name])["seq_len"], "tflops": last(by_name[name])["tflops"],
            "at": y / height * top, "label": f"{shown[name]}  {short(last(by_name[name])['tflops'])}",
        }
        for name, y in zip(ends, placed)
    ]
    x = {
        "field": "seq_len", "type": "quantitative", "title": "Sequence length (tokens)",
        "scale": {"type": "log", "base": 2, "domain": [lengths[0], lengths[-1]], "nice": False},
        "axis": {"values": lengths, "format": "d", "grid": False, "labelColor": theme.muted},
    }
    y = {
        "field": "tflops", "type": "quantitative", "title": "TFLOP/s (higher is better)",
        "scale": {"domain": [0, top], "nice": False}, "axis": {"tickCount": 6, "labelColor": theme.muted},
    }
    color = {
        "field": "kernel", "type": "nominal", "legend": None,
        "scale": {"domain": [shown[name] for name in names], "range": [colors[name] for name in names]},
    }
    width = 520
    end_x = {"value": width + 22}
    first = records[0]
    same = {(r["batch"] * r["seq_len"]) for r in records}
    problem = f"{first['dtype']}, {first['heads']} heads, head_dim {first['head_dim']}, "
    problem += f"batch x tokens = {same.pop()}" if len(same) == 1 else f"batch {first['batch']}"
    how = f"{'Lighter' if theme is DARK else 'Darker'} is a later kernel."
    if any(kind(name) != "kernel" for name in names):
        how += " Dashed: other libraries and limits."
    spec = base(theme, f"Attention forward on {group.name()}", [problem, how])
    spec.update({
        "width": width, "height": height,
        "layer": [
            {
                "data": {"values": rows}, "mark": {"type": "line", "strokeWidth": 2.2, "clip": False},
                "encoding": {
                    "x": x, "y": y, "color": color, "detail": {"field": "kernel"},
                    "strokeDash": {"condition": {"test": "datum.kind === 'kernel'", "value": [1, 0]}, "value": [5, 4]},
                },
            },
            {
                "data": {"values": rows}, "mark": {"type": "point", "filled": True, "size": 26, "opacity": 1},
                "encoding": {"x": x, "y": y, "color": color},
            },
            {
                "data": {"values": labels}, "mark": {"type": "rule", "strokeWidth": 1, "opacity": 0.6},
                "encoding": {"x": x, "x2": {"value": width + 18}, "y": y, "y2": {"field": "at"}, "color": color},
            },
            {
                "data": {"values": labels},
                "mark": {"type": "text", "align": "left", "baseline": "middle", "fontSize": 12, "color": theme.text},
                "encoding": {"x": end_x, "y": {**y, "field": "at"}, "text": {"field": "label"}},
            },
        ],
    })
    return spec


def last(records):
    return max(records, key=lambda record: record["seq_len"])


# --- Files -----------------------------------------------------------------------------------------------------


def specs_of(group, wish):
    """(name, spec function of a theme) of every chart this group's records allow."""
    chosen = list(group.select(wish))
    if not chosen:
        return
    shape = headline_shape([r for r in chosen if passed(r)] or chosen)
    ladder = sorted((r for r in chosen if shape_of(r) == shape), key=lambda r: order(r["kernel"]))
    if group.cuda:
        yield "ladder", lambda theme: cuda_ladder(group, ladder, shape, theme)
        # One line chart shows one dtype and head size; the batch may change with the length.
        same = ("dtype", "heads", "head_dim")
        line = [r for r in chosen if all(r[field] == getattr(shape, field) for field in same)]
        tokens = shape.batch * shape.seq_len
        constant = [r for r in line if r["batch"] * r["seq_len"] == tokens]
        fixed = [r for r in line if r["batch"] == shape.batch]
        line = max(constant, fixed, key=lambda rs: len({r["seq_len"] for r in rs if passed(r)}))
        if len({r["seq_len"] for r in line if passed(r)}) > 1:
            yield "seq_len", lambda theme: length_chart(group, line, theme)
    elif any(r.get("counters") for r in ladder):
        yield "ladder", lambda theme: emulator_ladder(group, ladder, shape, theme)


def write(path, data):
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as problem:
        temporary.unlink(missing_ok=True)
        fail(f"cannot write {path} ({problem.strerror.lower()})")


def render(vl, name, spec_of, folder):
    for suffix, theme in (("", LIGHT), ("-dark", DARK)):
        svg = vl.vegalite_to_svg(spec_of(theme), vl_version="5.20")
        write(folder / f"{name}{suffix}.svg", svg.encode() + b"\n")
    write(folder / f"{name}.png", vl.vegalite_to_png(spec_of(LIGHT), vl_version="5.20", scale=2))


def docs_charts(vl, check):
    """Draws docs/charts (SVG only: that is what the Markdown shows), or names what is out of date there."""
    wanted = {}
    for stem, files in DOCS_CHARTS.items():
        try:
            (group,) = group_files([ROOT / name for name in files])
        except Refused as problem:
            fail(f"{', '.join(files)} {problem}")
        for kind_, spec_of in specs_of(group, dict.fromkeys(Shape._fields)):
            for suffix, theme in (("", LIGHT), ("-dark", DARK)):
                svg = vl.vegalite_to_svg(spec_of(theme), vl_version="5.20")
                wanted[f"{stem}-{kind_}{suffix}.svg"] = svg.encode() + b"\n"
    there = {path.name: path.read_bytes() for path in DOCS.glob("*.svg")}
    stale = sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))
    for name in stale:
        if check:
            print(f"{relative(DOCS / name)} is out of date; scripts/chart.sh --docs draws it", file=sys.stderr)
        elif name in wanted:
            DOCS.mkdir(parents=True, exist_ok=True)
            write(DOCS / name, wanted[name])
            print(f"Chart:   {relative(DOCS / name)}")
        else:
            (DOCS / name).unlink()
            print(f"removed {relative(DOCS / name)}")
    return 1 if stale and check else 0


def main():
    parser = argparse.ArgumentParser(
        prog="scripts/chart.sh", description=__doc__, epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="results file (JSON); those of one machine are merged")
    parser.add_argument("-o", "--output", metavar="DIR", help="folder for the charts (default: beside the first file)")
    parser.add_argument("--name", help="first part of the charts' names (default: the results file's)")
    parser.add_argument("--dtype", choices=("fp16", "bf16"), help="show this dtype")
    for field in ("head-dim", "seq-len", "batch", "heads"):
        parser.add_argument(f"--{field}", type=int, metavar="N", help=f"show this {field.replace('-', '_')}")
    parser.add_argument("--docs", action="store_true", help="draw docs/charts instead, from the committed results")
    parser.add_argument("--check", action="store_true", help="with --docs: change nothing, name what is out of date")
    args = parser.parse_args()
    if args.docs == bool(args.files) or args.check and not args.docs:
        fail("name results files, or --docs (with --check, if nothing is to be written)")
    vl = need("vl_convert")
    if args.docs:
        return docs_charts(vl, args.check)

    groups = []
    try:
        for name in args.files:
            read_results(name)
        groups = group_files(args.files)
    except Refused as problem:
        fail(f"{name} {problem}")
    folder = Path(args.output) if args.output else Path(args.files[0]).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        fail(f"cannot create the folder {folder} ({problem.strerror.lower()})")
    wish = {field: getattr(args, field) for field in Shape._fields}
    drawn = 0
    for group in groups:
        stem = group.stem
        if args.name is not None:
            stem = args.name if len(groups) == 1 else f"{args.name}-{group.machine['backend']}"
        for kind_, spec_of in specs_of(group, wish):
            name = f"{stem}-{kind_}"
            render(vl, name, spec_of, folder)
            path = folder / name
            print(f"Chart:   {os.path.relpath(path)}.svg (also {name}-dark.svg, {name}.png)")
            drawn += 1
    if not drawn:
        fail("there is nothing to draw: no record with times or counters matches", 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
