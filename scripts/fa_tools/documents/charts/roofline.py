"""The roofline: every kernel's speed against its FLOPs a byte at three memory levels, under the GPU's limits."""

import math
from collections import namedtuple

from fa_tools.measuring.profile import read_profile
from fa_tools.documents.charts.look import GREEN, ORANGE, base, by, layer, quantity, spread, with_halo, words
from fa_tools.for_readers.intensity import LEVELS
from fa_tools.for_readers.limits import attention_flops
from fa_tools.numbers import short
from fa_tools.records import display, is_plain, kind, order, passed
from fa_tools.tools import Refused

SIZES = ("batch", "heads", "seq_len", "head_dim")

# Bytes at each level from the profiler's counters: {level: (title, {metric: bytes for each})}. A wavefront keeps the
# banks of shared memory busy for 128 bytes' time, also when conflicts make most of it useless. What a kernel asks of
# global memory passes the same L1.
TRAFFIC = {
    "shared": ("shared memory, L1", {"shared_load_wavefronts": 128, "shared_store_wavefronts": 128,
                                     "global_load_sectors": 32, "global_store_sectors": 32}),
    "l2": ("L2", {"l2_sectors": 32}),
    "hbm": ("HBM", {"dram_bytes": 1}),
}
# A warp that reads its operands with load instructions owns 32 query rows at most, which makes 32 FLOPs a byte. More
# means that the operands were read in a way that these counters do not see, by wgmma itself.
MOST_BY_LOADS = 40

# bytes: {kernel: {level: bytes}}, wgmma: kernels whose matrix products read shared memory by themselves
Profile = namedtuple("Profile", "gpu dtype batch heads seq_len head_dim bytes wgmma")


def load_profile(path):
    """A file of scripts/fa profile, its launches summed by kernel; otherwise Refused."""
    data = read_profile(path)
    if min(data[field] for field in SIZES) < 1:
        raise Refused("is not a whole profile: its shape is none")
    total, wgmma = {}, set()
    for launch in data["launches"]:
        levels = total.setdefault(launch["kernel"], dict.fromkeys(LEVELS, 0))
        for level, (_, sizes) in TRAFFIC.items():
            levels[level] += sum(launch["metrics"][metric] * size for metric, size in sizes.items())
        if launch["metrics"].get("tensor_wgmma_instructions", 0):
            wgmma.add(launch["kernel"])
    return Profile(*(data[field] for field in ("gpu", "dtype", *SIZES)), total, wgmma)


def points_of(profile, records):
    """(rows for the chart, kernels without a point at shared memory) of the kernels in both."""
    flops = attention_flops(profile.batch, profile.heads, profile.seq_len, profile.head_dim)
    rows, unseen = [], []
    for record in sorted(records, key=lambda r: order(r["kernel"])):
        moved = profile.bytes.get(record["kernel"])
        if not moved or not passed(record):
            continue
        for level in LEVELS:
            value = flops / moved[level] if moved[level] else math.inf
            if level == "shared" and (value > MOST_BY_LOADS or record["kernel"] in profile.wgmma):
                unseen.append(record["kernel"])
            elif value < math.inf:
                rows.append({"kernel": record["kernel"], "level": level, "intensity": value,
                             "tflops": record["tflops"]})
    return rows, unseen


def same_problem(profile, records):
    """The records on the profile's problem; the batch may be another, which changes FLOPs and bytes alike."""
    fields = ("dtype", "heads", "seq_len", "head_dim")
    found = [r for r in records if kind(r["kernel"]) != "peer" and is_plain(r)
             and all(r[f] == getattr(profile, f) for f in fields)]
    batch = max((r["batch"] for r in found if r["kernel"] in profile.bytes and passed(r)), default=None,
                key=lambda b: (sum(r["batch"] == b for r in found), b))
    return [r for r in found if r["batch"] == batch]


def roofline_chart(gpu, machine, profile, records, theme):
    """`machine`: the GPU's entry in bench/machines.json."""
    rows, unseen = points_of(profile, records)
    speeds = {row["kernel"]: row["tflops"] for row in rows}
    peak, cores, bandwidth = machine["tflops"]["tensor"], machine["tflops"]["fp32"], machine["tb_per_s"]
    width, height = (228, 380) if theme.phone else (660, 430)
    # From 0.1 FLOPs a byte and 1 TFLOP/s or less, so that there is room for the names of the limits.
    x0 = 10 ** min(math.floor(math.log10(min(row["intensity"] for row in rows)) * 2) / 2, -1)
    x1 = 10 ** (math.ceil(math.log10(max(row["intensity"] for row in rows) * 1.15) * 2) / 2)
    y0 = 10 ** min(math.floor(math.log10(min(speeds.values()) / 1.2) * 4) / 4, 0)
    y1 = 10 ** (math.log10(peak) + 0.12)
    across = math.log10(x1 / x0)
    up = math.log10(y1 / y0)

    def pixel_y(tflops):  # from below
        return math.log10(tflops / y0) / up * height

    def tflops_at(pixel):
        return y0 * 10 ** (pixel / height * up)

    ticks = [10.0**e for e in range(-3, 6)]
    x = quantity("intensity", "FLOPs a byte moved (arithmetic intensity), logarithmic", {"type": "log", "domain": [x0, x1]},
                 values=[t for t in ticks if x0 <= t <= x1], format=",~g", labelColor=theme.muted)
    y = quantity("tflops", "TFLOP/s, logarithmic", {"type": "log", "domain": [y0, y1]},
                 values=[t for t in ticks if y0 <= t <= y1], format=",~g", labelColor=theme.muted)
    by_level = by("level", {"shared": ORANGE, "l2": GREEN, "hbm": theme.kernel})
    shape = by("level", {"shared": "square", "l2": "triangle-up", "hbm": "circle"})

    xy = {"x": x, "y": y}
    # The roofs of the memories: lines of slope one up to the Tensor Cores'; each is named along its line.
    roofs, names = [], []
    for level, speed in bandwidth.items():
        start = max(x0, y0 / speed)
        roofs += [{"level": level, "intensity": at, "tflops": at * speed} for at in (start, peak / speed)]
        begin = max(math.log10(start / x0) / across * width, 0)
        names.append({"intensity": x0 * 10 ** ((begin + 20) / width * across), "level": level,
                      "label": f"{TRAFFIC[level][0]}, {speed:g} TB/s"})
        names[-1]["tflops"] = names[-1]["intensity"] * speed
    slope = -math.degrees(math.atan2(height / up, width / across))
    roof_names = [words({**xy, "color": by_level}, names, baseline="bottom", angle=slope, dy=-12, fontSize=12, fontWeight="bold")]
    if theme.phone:  # lines are close together there: their names are a list where no point is
        roof_names = [words({"x": {"value": width - 6}, "y": {"value": height - 80 + 16 * i}, "color": by_level}, [name], align="right",
                            fontSize=12, fontWeight="bold") for i, name in enumerate(names)]
    # Other limits: lines named left of the first roof, where no point can be. (label, on a phone, TFLOP/s, width, dashes)
    flat = [(f"CUDA cores, fp32: {cores:g} TFLOP/s", f"fp32: {cores:g}", cores, 1.4, [6, 4]),
            (f"Tensor Cores, {profile.dtype}: {peak:g} TFLOP/s", f"Tensor Cores: {peak:g}", peak, 2, [1, 0])]
    for record in records:
        if record["kernel"] == "ceiling/matmul" and passed(record):
            name, speed = display(record), short(record["tflops"])
            flat.append((f"{name}, matrix product: {speed}", f"{name.split()[0]}: {speed}", record["tflops"], 1.4, [2, 3]))
    flat = sorted(((phone if theme.phone else wide, *rest) for wide, phone, *rest in flat), key=lambda f: f[1])
    beside = spread([pixel_y(f[1]) for f in flat], 15)

    # Kernels are named at the right; names that would overlap are moved apart.
    ends = sorted(speeds, key=speeds.get)
    placed = spread([pixel_y(speeds[name]) for name in ends], 16)
    labels = [{"kernel": name, "tflops": speeds[name], "at": tflops_at(at), "label": f"{name[:2] if theme.phone else name}  {short(speeds[name])}",
               "first": min(row["intensity"] for row in rows if row["kernel"] == name)}
              for name, at in zip(ends, placed)]

    batch = records[0]["batch"]
    problem = f"{profile.dtype}, {profile.heads} heads, {profile.seq_len} tokens, head_dim {profile.head_dim}"
    note = f"{problem}; speeds measured with batch {batch}, bytes counted by the profiler with batch {profile.batch}"
    notes = [note, "Each kernel is a row of points, one a memory level; the lines are what the GPU can do at most"]
    if unseen:
        numbers = ", ".join(name[:2] for name in unseen)
        notes.append(f"Not shown at shared memory: {numbers} (the counters do not see what wgmma reads there)")
    left = {**x, "field": "from"}
    marks = [{"label": f[0], "from": f[1] / bandwidth["shared"], "at": tflops_at(at)} for f, at in zip(flat, beside)]
    layers = [
        # a kernel's row, from its first point to its name
        layer("rule", {"x": {**x, "field": "first"}, "x2": {"value": width}, "y": y}, labels, strokeWidth=1, color=theme.grid),
        *(layer("rule", {"x": left, "x2": {"value": width}, "y": y}, [{"from": tflops / bandwidth["shared"], "tflops": tflops}],
                strokeWidth=thick, strokeDash=dash, color=theme.muted) for _, tflops, thick, dash in flat),
        *with_halo(words({"x": left, "y": {**y, "field": "at"}}, marks, align="right", dx=-9, fontSize=11.5, color=theme.muted),
                    theme),
        layer("line", {**xy, "color": by_level, "detail": {"field": "level"}}, roofs, strokeWidth=2),
        *roof_names,
        layer("point", {**xy, "color": by_level, "shape": shape,
                        "size": {"condition": {"test": "datum.level === 'l2'", "value": 90}, "value": 62}}, rows,
              filled=True, opacity=1, stroke=theme.background, strokeWidth=0.8),
        layer("rule", {"x": {"value": width}, "x2": {"value": width + 18}, "y": y, "y2": {"field": "at"}}, labels,
              strokeWidth=1, color=theme.muted),
        words({"x": {"value": width + 22}, "y": {**y, "field": "at"}}, labels, fontSize=12, color=theme.text),
    ]
    return {**base(theme, f"Roofline of {gpu}", notes), "width": width, "height": height, "layer": layers}
