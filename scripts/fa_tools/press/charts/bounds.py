"""What bounds each kernel: the least time that every resource needs, on a line up to the measured time."""

import math

from fa_tools.press.charts.look import BLUE, GREEN, ORANGE, RED, base, kernel_axis, short, with_halo
from fa_tools.product.limits import RESOURCES, first_limiter
from fa_tools.records import describe

COLOURS = {"tensor": BLUE, "mufu": "#CC79A7", "fp32": "#A39A00", "l1": ORANGE, "l2": GREEN, "hbm": RED}
SHAPES = {"tensor": "square", "mufu": "triangle-up", "fp32": "triangle-down", "l1": "diamond", "l2": "circle",
          "hbm": "triangle-right"}
LEAST = 3e-3  # resources that need less than this part of the measured time are left out


def time_text(seconds):
    for limit, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= limit:
            return f"{short(seconds / limit)} {unit}"
    return f"{short(seconds * 1e9)} ns"


def bounds_chart(gpu, shape, rows, theme):
    """rows: (Bound, measured record), in the order of the kernels."""
    names, points, lines = [], [], []
    for bound, record in rows:
        time = record["time_ms"]["median"] * 1e-3
        first = first_limiter(bound.seconds)
        names.append(bound.kernel)
        lines.append({"kernel": bound.kernel, "measured": time, "least": bound.seconds[first],
                      "label": f"{time_text(time)}, {100 * bound.seconds[first] / time:.0f} % {RESOURCES[first]}"})
        points += [{"kernel": bound.kernel, "resource": RESOURCES[r], "seconds": seconds}
                   for r, seconds in bound.seconds.items() if seconds >= LEAST * time]
    low = 10 ** (math.floor(math.log10(min(point["seconds"] for point in points)) * 2) / 2)
    high = 10 ** (math.ceil(math.log10(max(line["measured"] for line in lines)) * 2) / 2)
    ticks = [10.0**e for e in range(-9, 4) if low <= 10.0**e <= high]
    x = {"type": "quantitative", "title": "time, logarithmic",
         "scale": {"type": "log", "domain": [low, high], "nice": False},
         "axis": {"values": ticks, "labelColor": theme.muted,
                  "labelExpr": "datum.value >= 1 ? datum.value + ' s' : datum.value >= 0.00099 ? "
                               "round(datum.value * 1000) + ' ms' : round(datum.value * 1000000) + ' µs'"}}
    width = 560
    y = kernel_axis(names)
    of = list(RESOURCES)
    legend = {"orient": "top", "title": None, "labelColor": theme.text, "labelFontSize": 12.5, "symbolSize": 110,
              "columnPadding": 18, "offset": 10, "symbolStrokeColor": "transparent"}
    by_resource = {"field": "resource", "type": "nominal", "legend": legend}
    domain = [RESOURCES[r] for r in of]
    spec = base(theme, f"What bounds it on {gpu}", [
        f"{describe(shape)}; points: the least time that a resource needs, calculated from the emulator's counts",
        "bar: from the largest of them to the measured time"])
    spec.update({
        "width": width, "height": {"step": 34},
        "encoding": {"y": y},
        "layer": [
            {"data": {"values": lines}, "mark": {"type": "rule", "strokeWidth": 9, "color": theme.grid},
             "encoding": {"x": {**x, "field": "least"}, "x2": {"field": "measured"}}},
            {"data": {"values": lines}, "mark": {"type": "tick", "thickness": 3, "size": 20, "color": theme.text},
             "encoding": {"x": {**x, "field": "measured"}}},
            {"data": {"values": points},
             "mark": {"type": "point", "filled": True, "opacity": 1, "size": 95, "stroke": theme.background,
                      "strokeWidth": 0.8},
             "encoding": {"x": {**x, "field": "seconds"},
                          "color": {**by_resource, "scale": {"domain": domain, "range": [COLOURS[r] for r in of]}},
                          "shape": {**by_resource, "scale": {"domain": domain, "range": [SHAPES[r] for r in of]}}}},
            *with_halo({
                "data": {"values": lines},
                "mark": {"type": "text", "align": "left", "baseline": "middle", "dx": 10, "fontSize": 12.5,
                         "color": theme.text},
                "encoding": {"x": {"value": width}, "text": {"field": "label"}}}, theme)],
    })
    return spec
