"""What the emulator shows instead of time: counters by kernel on logarithmic axes, and by kind how far from ideal. And what
bounds each kernel by its counts: the least time that every resource needs, on a line up to the measured time."""

import math

from fa_tools.documents.charts.look import (BLUE, GREEN, LIGHT, ORANGE, RED, base, beside, by, kernel_axis, layer, quantity, why_not, with_halo,
                                        words)
from fa_tools.for_readers.limits import RESOURCES, first_limiter
from fa_tools.numbers import SECONDS, amount, percent
from fa_tools.records import describe, passed

# (counter, title, unit). The first two that exist are drawn.
COUNTERS = [
    ("global_sectors", "Global memory", "32-byte sectors moved"),
    ("shared_wavefronts", "Shared memory", "wavefronts, conflicts included"),
    ("barriers", "Barriers", "of a whole CTA"),
    ("shuffles", "Warp shuffles", "one a warp"),
    ("exp2", "Exponentials", "one a thread"),
]


# They use shared memory, but how often its banks is not documented.
NO_WAVEFRONTS = ("wgmma", "tma load", "tma store")


def power_of_ten(value, up):
    return 10.0 ** (math.ceil if up else math.floor)(math.log10(max(value, 1)))


def panel(title, unit, rows, y, x, layers, theme, **size):
    """One of the charts side by side; only the first has the kernels' names."""
    head = {"text": title, "subtitle": unit, "anchor": "start", "frame": "group", "fontSize": 13, "subtitleFontSize": 11.5,
            "color": theme.text, "subtitleColor": theme.muted, "offset": 8, "subtitlePadding": 3}
    return {**size, "data": {"values": rows}, "title": head, "encoding": {"y": y, "x": x}, "layer": layers}


def emulator_ladder(name, records, shape, theme):
    names = [record["kernel"] for record in records]
    present = [c for c in COUNTERS if any(c[0] in record.get("counters", {}) for record in records)][:2]
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
        axis = quantity("value", None, {"type": "log", "domain": [low, high]}, format="~s", labelColor=theme.muted,
                        orient="bottom", values=[10.0 ** e for e in range(round(math.log10(low)), round(math.log10(high)) + 1)])
        y = kernel_axis(names, theme)
        if i and not theme.phone:
            y["axis"] = None
        # A logarithmic axis has no zero, so a bar would lie about proportions: a dot on a stem does not claim any.
        from_edge = {**{k: v for k, v in axis.items() if k != "field"}, "datum": low}
        color = {"condition": {"test": "datum.state === 'ok'", "value": theme.kernel}, "value": theme.wrong}

        def of(*states):
            return {"field": "state", "oneOf": [*states]}

        panels.append(panel(title, unit, rows, y, axis, [
            layer("rule", {"x": from_edge, "x2": {"field": "value"}, "color": color}, where=of("ok", "bad"), strokeWidth=3),
            layer("point", {"color": color}, where=of("ok", "bad"), filled=True, size=110, opacity=1),
            words({}, where=of("ok", "bad"), color=theme.text, dx=11, fontWeight="bold"),
            words({}, where=of("note"), color=theme.muted, dx=6, fontStyle="italic"),
            words({}, where=of("skipped"), color=theme.muted, dx=6, fontStyle="italic"),
            words({}, where=of("bad-note"), color=theme.wrong, dx=6, fontWeight="bold"),
        ], theme, width=180 if theme.phone else 250, height={"step": 22 if theme.phone else 34}))
    notes = [f"{describe(shape)}; logarithmic scales, fewer is better"]
    if any(line["kind"] in NO_WAVEFRONTS for record in records for line in record.get("statements", [])):
        notes.append("wavefronts without those of wgmma and bulk copies (TMA), which are not known")
    wrong = [record["kernel"] for record in records if record["status"] == "wrong"]
    if wrong:
        notes.append("wrong results: " + ", ".join(wrong))
    traffic = any(counter == "global_sectors" for counter, _, _ in present)
    title = f"{name}: {'memory traffic' if traffic else 'events'} of attention forward"
    return {**base(theme, title, notes), **beside(panels, theme, spacing=56, bounds="flush")}


KIND_ORDER = ["global load", "global store", "shared load", "shared store", "wmma load", "wmma store", "ldmatrix",
              "stmatrix", "cp.async", "tma load", "tma store"]

# What is compared with its ideal: (field, title, unit).
AGAINST_IDEAL = [
    ("wavefronts", "Shared memory", "wavefronts for each ideal one; below, how many"),
    ("sectors", "Global memory", "sectors for each ideal one; below, how many"),
]
CELL, ROW = 82, 40


def ideal_rows(records, field):
    """A cell for each kernel and kind of instruction that has the field, and the kinds in order."""
    rows = []
    for record in records:
        for kind in dict.fromkeys(line["kind"] for line in record.get("statements", [])):
            lines = [line for line in record["statements"] if line["kind"] == kind]
            actual, ideal = (sum(line.get(name, 0) for line in lines) for name in (field, f"{field}_ideal"))
            if not ideal:
                continue
            rows.append({"kernel": record["kernel"], "kind": kind, "ratio": actual / ideal,
                         "label": f"{actual / ideal:.2f}", "count": amount(actual)})
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    return rows, sorted(kinds, key=lambda kind: KIND_ORDER.index(kind) if kind in KIND_ORDER else len(KIND_ORDER))


def emulator_ideal(name, records, shape, theme):
    """A table of cells: which kind of instruction of which kernel pays for bank conflicts or half-used sectors."""
    names = [record["kernel"] for record in records if record.get("statements")]
    panels, cell = [], 43 if theme.phone else CELL
    for field, title, unit in AGAINST_IDEAL:
        rows, kinds = ideal_rows(records, field)
        if not rows:
            continue
        y = kernel_axis(names, theme)
        y["scale"] = {"domain": names, "paddingInner": 0.1, "paddingOuter": 0.1}
        if theme.phone:
            y["axis"]["labelExpr"] = "substring(datum.label, 0, 2)"
        elif panels:
            y["axis"] = None
        x = {"field": "kind", "type": "nominal", "sort": kinds, "title": None, "scale": {"paddingInner": 0.06},
             "axis": {"orient": "top", "labelAngle": -90 * theme.phone, "grid": False, "labelColor": theme.text, "labelLimit": CELL}}
        scale = {"type": "log", "domain": [1, 8], "clamp": True, "interpolate": "rgb",
                 "range": [theme.grid, theme.wrong]}
        color = {"field": "ratio", "type": "quantitative", "legend": None, "scale": scale}

        # Dark letters on a bright cell, in the dark theme, too.
        fill = {"condition": {"test": "datum.ratio > 4", "value": LIGHT.text}, "value": theme.text}
        narrow = len(kinds) * cell < 240 and not theme.phone
        panels.append(panel(title, unit.split("; ") if narrow else unit, rows, y, x, [
            layer("rect", {"color": color}, cornerRadius=4),
            *(layer("text", {"text": {"field": label}, "color": fill}, baseline="middle", dy=dy, fontSize=size, **extra)
              for label, dy, size, extra in (("label", -6, 13 - theme.phone, {"fontWeight": "bold"}), ("count", 9, 10.5 if theme.phone else 11, {}))),
        ], theme, width={"step": cell}, height={"step": ROW - 4 * theme.phone}))
    notes = [f"{describe(shape)}; 1.00: no bank conflict, no sector moved for fewer than its 32 bytes",
             *["a row is a kernel, by its number"] * theme.phone]
    return {**base(theme, f"{name}: wavefronts and sectors beyond the ideal, by kind of instruction", notes),
            **beside(panels, theme, spacing=40, bounds="flush")}


# ---- what bounds a kernel -------------------------------------------------------------------------------------------------

COLOURS = {"tensor": BLUE, "mufu": "#CC79A7", "fp32": "#A39A00", "l1": ORANGE, "l2": GREEN, "hbm": RED}
SHAPES = {"tensor": "square", "mufu": "triangle-up", "fp32": "triangle-down", "l1": "diamond", "l2": "circle",
          "hbm": "triangle-right"}
LEAST = 3e-3  # resources that need less than this part of the measured time are left out


def bounds_chart(gpu, shape, rows, theme):
    """rows: (Bound, measured record), in the order of the kernels."""
    names, points, lines = [], [], []
    for bound, record in rows:
        time = record["time_ms"]["median"] * 1e-3
        first = first_limiter(bound.seconds)
        names.append(bound.kernel)
        lines.append({"kernel": bound.kernel, "measured": time, "least": bound.seconds[first],
                      "label": f"{amount(time, SECONDS)}, {percent(bound.seconds[first], time, '.0f')} {RESOURCES[first]}"})
        points += [{"kernel": bound.kernel, "resource": RESOURCES[r], "seconds": seconds}
                   for r, seconds in bound.seconds.items() if seconds >= LEAST * time]
    low = 10 ** (math.floor(math.log10(min(point["seconds"] for point in points)) * 2) / 2)
    high = 10 ** (math.ceil(math.log10(max(line["measured"] for line in lines)) * 2) / 2)
    ticks = [10.0**e for e in range(-9, 4) if low <= 10.0**e <= high]
    x = quantity(None, "time, logarithmic", {"type": "log", "domain": [low, high]}, values=ticks, labelColor=theme.muted,
                 labelExpr="datum.value >= 1 ? datum.value + ' s' : datum.value >= 0.00099 ? "
                           "round(datum.value * 1000) + ' ms' : round(datum.value * 1000000) + ' µs'")
    width = 300 if theme.phone else 560
    y, place = kernel_axis(names, theme), {"x": {"value": width}}
    if theme.phone:  # the name and what is at the right are above the row
        y["axis"], place = None, {"x": {"value": 0}}
        for line in lines:
            line["label"] = f"{line['kernel']}: {line['label']}"

    def by_resource(looks):
        return by("resource", {RESOURCES[r]: looks[r] for r in RESOURCES}, orient="top", title=None, labelColor=theme.text,
                  labelFontSize=12.5, symbolSize=110, columnPadding=18, symbolStrokeColor="transparent", **({"columns": 4, "offset": 24} if theme.phone else {"offset": 10}))

    return {
        **base(theme, f"What bounds it on {gpu}", [
            f"{describe(shape)}; points: the least time that a resource needs, calculated from the emulator's counts",
            "bar: from the largest of them to the measured time"]),
        "width": width, "height": {"step": 40 if theme.phone else 34}, "encoding": {"y": y},
        "layer": [
            layer("rule", {"x": {**x, "field": "least"}, "x2": {"field": "measured"}}, lines, strokeWidth=9, color=theme.grid),
            layer("tick", {"x": {**x, "field": "measured"}}, lines, thickness=3, size=20, color=theme.text),
            layer("point", {"x": {**x, "field": "seconds"}, "color": by_resource(COLOURS), "shape": by_resource(SHAPES)}, points,
                  filled=True, opacity=1, size=95, stroke=theme.background, strokeWidth=0.8),
            *with_halo(words(place, lines, **({"dy": -17, "fontSize": 11.5} if theme.phone else {"dx": 10}), color=theme.text), theme),
        ],
    }
