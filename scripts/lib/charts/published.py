"""What write-ups publish beside what was measured here: one chart a publication (scripts/reproduce.py)."""

from charts.look import GREEN, ORANGE, base, short, spread_within, with_halo

PINK = "#CC79A7"


def text(theme, **extra):
    return {"type": "text", "fontSize": 12, "color": theme.text, "baseline": "middle", "align": "left", **extra}


# --- Flash Attention from Scratch ------------------------------------------------------------------------------


def from_scratch(publication, measured, theme):
    """Percent of FlashAttention-2 over the series' kernels: two GPUs as lines, our kernels as bars across theirs."""
    d, n = 128, 4096
    entries = publication.of_kind("kernel")
    place = {entry["id"]: i + 1 for i, entry in enumerate(entries)}
    colors = dict(zip(publication.machines, (ORANGE, GREEN)))
    rows = [
        {"x": place[entry["id"]], "machine": machine, "percent": publication.percent(entry["id"], d, n, machine)}
        for machine in publication.machines for entry in entries
    ]
    ours = []
    for pair in publication.data["map"]:
        percent = measured.percent(pair["kernel"], d, n)
        spots = [place[id_] for id_ in pair["published"]]
        if percent:
            name = pair["kernel"] if len(spots) > 3 else pair["kernel"][:2]
            ours.append({"x": min(spots) - 0.42, "x2": max(spots) + 0.42, "percent": percent,
                         "middle": (min(spots) + max(spots)) / 2, "label": f"{name}: {short(percent)}"})
    top = max([row["percent"] for row in [*rows, *ours]]) * 1.1
    width, height = 640, 380
    x = {"field": "x", "type": "quantitative", "title": "Kernel of the series",
         "scale": {"domain": [0.5, len(entries) + 0.5], "nice": False},
         "axis": {"values": list(place.values()), "format": "d", "grid": False, "labelColor": theme.muted}}
    y = {"field": "percent", "type": "quantitative", "title": "% of FlashAttention-2 on the same GPU",
         "scale": {"domain": [0, top], "nice": False}, "axis": {"tickCount": 6, "labelColor": theme.muted}}
    color = {"field": "machine", "type": "nominal", "legend": None,
             "scale": {"domain": list(colors), "range": list(colors.values())}}
    lasts = sorted(((publication.percent(entries[-1]["id"], d, n, machine), machine) for machine in colors))
    placed = spread_within([value / top * height for value, _ in lasts], 17, height)
    labels = [{"at": at / height * top, "label": f"{publication.machines[machine]['short']}: {short(value)}",
               "machine": machine, "end": len(entries), "percent": value}
              for at, (value, machine) in zip(placed, lasts)]
    spec = base(theme, f"{publication.data['title']}, and here on {measured.short}", [
        f"{n} tokens, head_dim {d}; lines: published, bars across the kernels they correspond to: measured here",
        "Kernels do not correspond one to one, and the GPUs differ; dashed: FlashAttention-2",
    ])
    spec.update({
        "width": width, "height": height,
        "layer": [
            {"data": {"values": [{"percent": 100}]},
             "mark": {"type": "rule", "strokeWidth": 1.2, "strokeDash": [5, 4], "color": theme.muted},
             "encoding": {"y": y}},
            {"data": {"values": rows}, "mark": {"type": "line", "strokeWidth": 2.2},
             "encoding": {"x": x, "y": y, "color": color}},
            {"data": {"values": rows}, "mark": {"type": "point", "filled": True, "size": 34, "opacity": 1},
             "encoding": {"x": x, "y": y, "color": color}},
            {"data": {"values": ours},
             "mark": {"type": "rule", "strokeWidth": 6, "strokeCap": "round", "color": theme.kernel},
             "encoding": {"x": x, "x2": {"field": "x2"}, "y": y}},
            *with_halo({"data": {"values": ours}, "mark": text(theme, align="center", dy=-15, fontWeight="bold"),
                        "encoding": {"x": {**x, "field": "middle"}, "y": y, "text": {"field": "label"}}}, theme),
            {"data": {"values": labels}, "mark": {"type": "rule", "strokeWidth": 1.2},
             "encoding": {"x": {**x, "field": "end"}, "x2": {"value": width + 14}, "y": y, "y2": {"field": "at"},
                          "color": color}},
            {"data": {"values": labels}, "mark": text(theme),
             "encoding": {"x": {"value": width + 18}, "y": {**y, "field": "at"}, "text": {"field": "label"}}},
        ],
    })
    return spec


# --- FlashAttention-3 ------------------------------------------------------------------------------------------


def shown_kernels(publication, measured, head_dim):
    """The fastest of our kernels, and those that correspond to something published."""
    names = measured.kernels(head_dim)
    last = measured.lengths(head_dim)[-1]
    timed = [name for name in names if measured.tflops(name, head_dim, last)]
    best = max(timed, key=lambda name: measured.tflops(name, head_dim, last), default=None)
    return [name for name in names if name == best or name in publication.kernel_of.values()]


def fa3(publication, measured, head_dim, theme):
    """TFLOP/s over the length: published dashed, measured in full, the same library in the same colour."""
    lengths = publication.lengths(head_dim)
    colors = {"fa2": ORANGE, "triton": theme.muted, "cudnn": GREEN, "fa3": PINK}
    cudnn = "peer/cudnn" if "peer/cudnn" in measured.names(head_dim) else "peer/cudnn_frontend"
    peers = {"peer/fa2": "fa2", cudnn: "cudnn", "peer/fa3": "fa3"}
    there, rows = publication.data["machines"][0]["short"], []

    def line(name, style, color, values):
        rows.extend({"line": name, "style": style, "color": color, "seq_len": n, "tflops": value}
                    for n, value in zip(lengths, values) if value)

    for entry in publication.of_kind("library"):
        line(f"{entry['name']}, {there}", "published", colors[entry["id"]],
             [publication.tflops(entry["id"], head_dim, n) for n in lengths])
    for peer, id_ in peers.items():
        line(f"{measured.library.get(peer, {}).get('implementation', peer)}, {measured.short}", "measured", colors[id_],
             [measured.tflops(peer, head_dim, n) for n in lengths])
    kernels = shown_kernels(publication, measured, head_dim)
    for name in kernels:
        line(f"{name}, {measured.short}", "kernel", theme.kernel,
             [measured.tflops(name, head_dim, n) for n in lengths])
    top = max(row["tflops"] for row in rows) * 1.05
    width, height = 520, 440
    ends = {}
    for row in rows:
        ends[row["line"]] = row  # the longest length comes last
    order = sorted(ends.values(), key=lambda row: row["tflops"])
    placed = spread_within([row["tflops"] / top * height for row in order], 17, height)
    labels = [{**row, "at": at / height * top, "label": f"{row['line']}: {short(row['tflops'])}"}
              for row, at in zip(order, placed)]
    x = {"field": "seq_len", "type": "quantitative", "title": "Sequence length (tokens)",
         "scale": {"type": "log", "base": 2, "domain": [lengths[0], lengths[-1]], "nice": False},
         "axis": {"values": lengths, "format": "d", "grid": False, "labelColor": theme.muted}}
    y = {"field": "tflops", "type": "quantitative", "title": "TFLOP/s (higher is better)",
         "scale": {"domain": [0, top], "nice": False}, "axis": {"tickCount": 6, "labelColor": theme.muted}}
    color = {"field": "color", "type": "nominal", "scale": None, "legend": None}
    dash = {"condition": {"test": "datum.style === 'published'", "value": [5, 4]}, "value": [1, 0]}
    spec = base(theme, f"FlashAttention-3's paper ({there}), and here on {measured.short}", [
        f"Forward, no mask, head_dim {head_dim}, {2048 // head_dim} heads, batch x tokens = 16384",
        "Dashed: published; full: measured here. A colour is a library; the GPUs differ",
    ])
    spec.update({
        "width": width, "height": height,
        "layer": [
            {"data": {"values": rows}, "mark": {"type": "line", "strokeWidth": 2.2},
             "encoding": {"x": x, "y": y, "color": color, "detail": {"field": "line"}, "strokeDash": dash}},
            {"data": {"values": rows}, "mark": {"type": "point", "filled": True, "size": 26, "opacity": 1},
             "encoding": {"x": x, "y": y, "color": color}},
            {"data": {"values": labels}, "mark": {"type": "rule", "strokeWidth": 1, "opacity": 0.6},
             "encoding": {"x": x, "x2": {"value": width + 18}, "y": y, "y2": {"field": "at"}, "color": color}},
            {"data": {"values": labels}, "mark": text(theme),
             "encoding": {"x": {"value": width + 22}, "y": {**y, "field": "at"}, "text": {"field": "label"}}},
        ],
    })
    return spec


# --- LeetCUDA --------------------------------------------------------------------------------------------------


def leetcuda(publication, measured, theme):
    """Percent of FlashAttention-2, a kernel of theirs and the one of ours that corresponds to it side by side."""
    d, n = 64, 8192
    there = publication.data["machines"][0]["short"]
    names, rows = [], []

    def bar(name, who, percent, label):
        rows.append({"name": name, "who": who, "percent": percent or 0, "label": label})

    for entry in publication.of_kind("kernel"):
        names.append(entry["name"])
        percent = publication.percent(entry["id"], d, n)
        bar(entry["name"], "published", percent, short(percent))
        kernel = publication.kernel_of.get(entry["id"])
        if kernel:
            percent = measured.percent(kernel, d, n)
            bar(entry["name"], "measured", percent, f"{kernel}: {short(percent) if percent else 'not measured'}")
    top = max([100, *(row["percent"] for row in rows)]) * 1.1
    x = {"field": "percent", "type": "quantitative", "title": "% of FlashAttention-2 on the same GPU",
         "scale": {"domain": [0, top], "nice": False}, "axis": {"tickCount": 6, "labelColor": theme.muted}}
    y = {"field": "name", "type": "nominal", "sort": names, "title": None,
         "axis": {"labelLimit": 260, "grid": False, "labelFontSize": 13}, "scale": {"paddingInner": 0.25}}
    offset = {"field": "who", "type": "nominal", "sort": ["published", "measured"]}
    color = {"field": "who", "type": "nominal", "legend": None,
             "scale": {"domain": ["published", "measured"], "range": [theme.peer, theme.kernel]}}
    spec = base(theme, f"LeetCUDA ({there}), and here on {measured.short}", [
        f"{n} tokens, 8 heads, batch 1, head_dim {d}",
        "Grey: published; blue: the kernel here that corresponds, measured; dashed: FlashAttention-2",
        "Theirs add up products in fp16, ours in fp32",
    ])
    spec.update({
        "width": 560, "height": {"step": 20, "for": "offset"}, "data": {"values": rows},
        "encoding": {"x": x, "y": y, "yOffset": offset},
        "layer": [
            {"mark": {"type": "bar", "cornerRadiusEnd": 3}, "encoding": {"color": color}},
            {"data": {"values": [{"percent": 100}]},
             "mark": {"type": "rule", "strokeWidth": 1.2, "strokeDash": [5, 4], "color": theme.muted},
             "encoding": {"x": x, "y": {"value": 0}, "y2": {"value": {"expr": "height"}}, "yOffset": None}},
            *with_halo({"mark": text(theme, dx=6, fontWeight="bold"), "encoding": {"text": {"field": "label"}}}, theme),
        ],
    })
    return spec


def charts_of(publication, measured):
    """(what is added to the chart's name, spec of a theme) of every chart that there are figures for."""
    if publication.name == "from-scratch":
        yield "", lambda theme: from_scratch(publication, measured, theme)
    elif publication.name == "leetcuda":
        yield "", lambda theme: leetcuda(publication, measured, theme)
    else:
        for d in publication.head_dims():
            if measured.names(d):
                yield f"-d{d}", lambda theme, d=d: fa3(publication, measured, d, theme)
