"""The losses of a model that was trained twice, with PyTorch's attention and with ours, and what is between the two."""

import math

from fa_tools.documents.charts.look import ORANGE, base, by, layer, quantity

EVERY = 10  # steps of a mean
WHOSE = {"by_torch": "PyTorch's attention", "by_fa": "ours"}


def mean_differences(steps):
    """[(first step, last step, by how much the mean of our losses is above that of PyTorch's)]"""
    parts = [steps[i:i + EVERY] for i in range(0, len(steps), EVERY)]
    return [(part[0]["step"], part[-1]["step"], sum(each["by_fa"] - each["by_torch"] for each in part) / len(part)) for part in parts]


def losses_chart(data, theme):
    """data: what examples/train_gpt.py writes"""
    steps, means = data["steps"], mean_differences(data["steps"])
    differences = [{"step": each["step"], "difference": each["by_fa"] - each["by_torch"]} for each in steps]
    losses = [each[whose] for each in steps for whose in WHOSE]
    low, high = math.floor(min(losses)), math.ceil(max(losses))
    far = 1.1 * max(abs(row["difference"]) for row in differences) or 1
    tall, flat, width = (180, 120, 274) if theme.phone else (230, 140, 560)
    larger = flat / (2 * far) / (tall / (high - low))
    upright = {"minExtent": 40, "labelColor": theme.muted}
    x = quantity("step", "Step", {"domain": [0, steps[-1]["step"]], "padding": 0}, tickCount=5 if theme.phone else 10, grid=False, labelColor=theme.muted)
    above = quantity("loss", "Loss (nats per byte)", {"domain": [low, high]}, tickCount=4, **upright)
    below = quantity("difference", "Ours less PyTorch's", {"domain": [-far, far]}, tickCount=5, **upright)
    colour = by("kernel", dict(zip(WHOSE.values(), (ORANGE, theme.kernel))), title=None, orient="top", labelColor=theme.text, labelFontSize=12,
                symbolType="stroke", symbolStrokeWidth=4)

    def line(whose, **look):
        rows = [{"kernel": WHOSE[whose], "step": each["step"], "loss": each[whose]} for each in steps]
        return layer("line", {"x": {**x, "title": None}, "y": above, "color": colour}, rows, strokeJoin="round", **look)

    spec = base(theme, f"A GPT trained twice, on {data['gpu']}",
                [f"The same start and the same batches; PyTorch {data['torch'].partition('+')[0]}",
                 f"Below, {larger:.0f} times as tall: the difference; thick: that of the means of {EVERY} steps, "
                 f"at most {max(abs(mean) for *_, mean in means):.4f}"])
    return {**spec, "spacing": 24, "vconcat": [
        # Ours is on PyTorch's, which is so wide that it shows on both sides.
        {"width": width, "height": tall, "layer": [line("by_torch", strokeWidth=6), line("by_fa", strokeWidth=1.8)]},
        {"width": width, "height": flat, "data": {"values": differences}, "layer": [
            layer("rule", {"y": below}, [{"difference": 0}], strokeWidth=1, color=theme.text),
            layer("bar", {"x": x, "y": below}, width=0.6 * width / len(steps), color=theme.muted),
            layer("rule", {"x": {**x, "field": "first"}, "x2": {"field": "last"}, "y": below},
                  [{"first": first - 0.5, "last": last + 0.5, "difference": mean} for first, last, mean in means], strokeWidth=3.5, color=theme.text),
            layer("circle", {"x": x, "y": below}, [{"step": (first + last) / 2, "difference": mean} for first, last, mean in means],
                  size=50, opacity=1, color=theme.text)]}]}
