"""The charts of docs/charts as their Vega-Lite specs, so that a browser can draw them anew with what the mouse points at."""

import json

from fa_tools.documents import chart
from fa_tools.documents.charts.themes import on_phones, one_svg

# What tooltips call the fields of the records; other fields are for the drawing only.
NAMES = {
    "kernel": "kernel", "tflops": "TFLOP/s", "low": "at the 90th percentile", "high": "at the 10th percentile",
    "seq_len": "sequence length", "percent": "% of that speed", "from": "before", "std": "deviation of the scores",
    "growth": "their growth", "rel": "relative error", "measured": "measured, s", "least": "least time, s",
    "seconds": "least time, s", "resource": "of", "first": "FLOPs a byte", "intensity": "FLOPs a byte", "level": "at",
    "times": "times as fast", "share": "% of the problems", "value": "counted", "ratio": "for each ideal one", "count": "counted",
    "difference": "ours less PyTorch's",
}
TIPS = {"bar", "point", "circle", "square", "rect", "tick", "line"}  # marks that stand for one measurement


def specs():
    """{chart: {theme, or theme and "-phone": spec}}"""
    return {name: {f"{theme}{form}": spec(colours) for theme, colours in (("light", chart.LIGHT), ("dark", chart.DARK))
                   for form, spec in (("", spec_of), ("-phone", on_phones(spec_of)))} for name, spec_of in chart.docs_specs()}


def phones():
    """{chart: its form for phones, an SVG}"""
    import vl_convert

    return {name: one_svg(vl_convert, on_phones(spec_of)).decode() for name, spec_of in chart.docs_specs()}


def with_tips(part):
    """Adds tooltips to the marks of a spec and of its layers and panels."""
    if isinstance(part, list):
        return [with_tips(item) for item in part]
    if not isinstance(part, dict):
        return part
    result = {key: with_tips(value) if key in ("layer", "hconcat", "vconcat", "concat", "spec") else value
              for key, value in part.items() if key != "$schema"}
    mark = part.get("mark")
    if mark:
        mark = {"type": mark} if isinstance(mark, str) else mark
        result["mark"] = {**mark, "tooltip": {"content": "data"} if mark["type"] in TIPS else None}
    return result


def files(drawn, warn):
    """(name on the site, content): the specs of the charts that pages show, and the library that draws them."""
    if not drawn:
        return
    known = specs()
    for name in sorted(drawn):
        if name not in known:
            warn(f"no Vega-Lite spec for the chart {name}")
            continue
        themes = {theme: with_tips(spec) for theme, spec in known[name].items()}
        themes["names"] = NAMES
        # A script, not JSON: browsers do not let pages read files beside them when there is no server.
        content = f"bookChart({json.dumps(name)}, {json.dumps(themes, ensure_ascii=False, separators=(',', ':'))});\n"
        yield f"charts/{name}.js", content
    from vl_convert import javascript_bundle

    yield "assets/vega.js", javascript_bundle()
