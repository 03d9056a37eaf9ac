"""What the emulator shows instead of time: counters by kernel, on logarithmic axes."""

import math

from charts.look import amount, base, kernel_axis, why_not
from records import describe, passed

# (counter, title, unit). The first two that exist are drawn.
COUNTERS = [
    ("global_sectors", "Global memory", "32-byte sectors moved"),
    ("shared_wavefronts", "Shared memory", "wavefronts, conflicts included"),
    ("barriers", "Barriers", "of a whole CTA"),
    ("shuffles", "Warp shuffles", "one a warp"),
    ("exp2", "Exponentials", "one a thread"),
]


def power_of_ten(value, up):
    return 10.0 ** (math.ceil if up else math.floor)(math.log10(max(value, 1)))


def emulator_ladder(name, records, shape, theme):
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
    title = f"{name}: {'memory traffic' if traffic else 'events'} of attention forward"
    spec = base(theme, title, notes)
    spec.update({"hconcat": panels, "spacing": 56, "bounds": "flush"})
    return spec
