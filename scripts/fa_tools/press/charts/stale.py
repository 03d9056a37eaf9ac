"""Kernels that have changed since they were measured: pale bars with a dashed outline, pale points, dotted lines, and a
sentence below the title."""

import json

NOTE = "Pale or dotted: the kernel has changed since it was measured"


def parts(spec):
    """The spec and all that it is made of."""
    yield spec
    for word in ("layer", "vconcat", "hconcat"):
        for part in spec.get(word, ()):
            yield from parts(part)


def marked(spec, kernels, theme):
    """The spec with the marks of those kernels told apart; it is as it was if it shows none of them."""
    rows = [row for part in parts(spec) for row in part.get("data", {}).get("values", ())]
    kernels = sorted({row.get("kernel") for row in rows} & set(kernels))
    if not kernels:
        return spec

    def where(value, otherwise):
        return {"condition": {"test": f"indexof({json.dumps(kernels)}, datum.kernel) >= 0", "value": value}, "value": otherwise}

    for part in parts(spec):
        if "mark" in part:
            part.setdefault("encoding", {})
        mark, encoding = part.get("mark", {}), part.get("encoding", {})
        if mark.get("type") == "bar":
            encoding.update(fillOpacity=where(0.3, 1), stroke=where(theme.text, None), strokeDash=where([4, 3], [1, 0]))
        elif mark.get("type") == "point":
            encoding["opacity"] = where(0.4, 1)
        elif mark.get("type") == "line" and "strokeDash" in encoding:  # peers have dashes already
            condition = encoding["strokeDash"]["condition"]
            encoding["strokeDash"] = {**encoding["strokeDash"], "condition": [where([1, 4], None)["condition"], condition]}
        elif mark.get("type") == "rule" and mark["strokeWidth"] >= 5:  # a step, or what is between bound and time
            encoding["strokeDash"] = where([2, 2], [1, 0])
    spec["title"]["subtitle"] = [*spec["title"]["subtitle"], NOTE]
    return spec
