"""What bounds each kernel: the least time that every resource needs, on a line up to the measured time."""

import math

from fa_tools.press.charts.look import BLUE, GREEN, ORANGE, RED, base, by, kernel_axis, layer, quantity, with_halo, words
from fa_tools.product.limits import RESOURCES, first_limiter
from fa_tools.records import describe, short

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
    x = quantity(None, "time, logarithmic", {"type": "log", "domain": [low, high]}, values=ticks, labelColor=theme.muted,
                 labelExpr="datum.value >= 1 ? datum.value + ' s' : datum.value >= 0.00099 ? "
                           "round(datum.value * 1000) + ' ms' : round(datum.value * 1000000) + ' µs'")
    width = 560

    def by_resource(looks):
        return by("resource", {RESOURCES[r]: looks[r] for r in RESOURCES}, orient="top", title=None, labelColor=theme.text,
                  labelFontSize=12.5, symbolSize=110, columnPadding=18, offset=10, symbolStrokeColor="transparent")

    return {
        **base(theme, f"What bounds it on {gpu}", [
            f"{describe(shape)}; points: the least time that a resource needs, calculated from the emulator's counts",
            "bar: from the largest of them to the measured time"]),
        "width": width, "height": {"step": 34}, "encoding": {"y": kernel_axis(names)},
        "layer": [
            layer("rule", {"x": {**x, "field": "least"}, "x2": {"field": "measured"}}, lines, strokeWidth=9, color=theme.grid),
            layer("tick", {"x": {**x, "field": "measured"}}, lines, thickness=3, size=20, color=theme.text),
            layer("point", {"x": {**x, "field": "seconds"}, "color": by_resource(COLOURS), "shape": by_resource(SHAPES)}, points,
                  filled=True, opacity=1, size=95, stroke=theme.background, strokeWidth=0.8),
            *with_halo(words({"x": {"value": width}}, lines, dx=10, color=theme.text), theme),
        ],
    }
