"""Where the cycles of a launch go, in shares of all cycles of all SMs: the launch of each kernel from 10 on that was timed under load on the
book's card, its time times the sampled clock. What the records do not tell apart stays together."""

import math
from collections import namedtuple

from fa_tools.cards import BOOK
from fa_tools.documents.doc_tables import matching, read, rows_of
from fa_tools.for_readers.limits import attention_flops, machine_named, resident_ctas
from fa_tools.records import is_stale, mark
from fa_tools.sources import constant
from fa_tools.tools import Refused

KERNELS = "1[0-9]_*"
KEYS = 128  # of a step of the fitted lines
STEADY = 0.04  # a length is fitted if the clock of none of these kernels' rounds was sampled further below the highest one
CLOSE = 0.015  # a fit is good if it misses none of its lengths by more: by two steps of the sampled clock, which are 15 MHz each

# What a part is called, in the order of the bar. Together they are the whole, and a kernel has none of some.
PARTS = {
    "products": "products at 4,096 FLOPs per cycle",
    "slower": "what mma.sync takes beyond that",
    "empty": "no query tile left in the last round",
    "ends": "beginnings and ends of query tiles",
    "within": "the rest of the iterations",
    "both": "ends and iterations, not told apart",
}
# parts: {part: share}. miss: the furthest that the fitted line is from a length, as a share. record: of the launch under load.
Launch = namedtuple("Launch", "parts miss record")


def query_rows(kernel):
    """Of a CTA; of kernel 10 those that its tuning for Hopper says."""
    return constant(kernel[:2], "kBlockM")


def rounds_of(record, sm):
    """(query tiles, how many run at once, rounds), if every tile takes equally long."""
    tiles = record["batch"] * record["heads"] * record["seq_len"] // query_rows(record["kernel"])
    at_once = sm["count"] * resident_ctas(sm, record["shared_memory_bytes"])
    return tiles, at_once, math.ceil(tiles / at_once)


def cycles_of(figures):
    return figures["time_ms"]["median"] * figures["clock_mhz"] * 1e3


def line_through(points):
    """(a, b, furthest miss) of a + b x through (x, y), where misses count as shares of y. Of two points a line says nothing."""
    if len(points) < 3:
        return 0, 0, math.inf
    weights = [(1 / y, x / y) for x, y in points]
    s11, s12, s22 = (sum(u[i] * u[j] for u in weights) for i, j in ((0, 0), (0, 1), (1, 1)))
    r1, r2 = (sum(u[i] for u in weights) for i in (0, 1))
    determinant = s11 * s22 - s12 * s12
    a, b = (r1 * s22 - r2 * s12) / determinant, (r2 * s11 - r1 * s12) / determinant
    return a, b, max(abs((a + b * x) / y - 1) for x, y in points)


def steady_lengths(records, highest):
    """Lengths of which every round was sampled near the highest clock: their bursts end before it falls, or before a sample shows that."""
    lowest = {}
    for record in records:
        lowest[record["seq_len"]] = min([*record["round_clock_mhz"], lowest.get(record["seq_len"], highest)])
    return sorted(length for length, clock in lowest.items() if clock >= (1 - STEADY) * highest)


def launches():
    """{kernel: Launch}, 10 first."""
    sm, rates = machine_named(BOOK)[1]["sm"], {record["kernel"]: record["work"] / record["cycles"] for record in read("rates")["records"]}
    bursts, found = read("bf16_d128"), {}
    records = list(matching(bursts, {"kernel": KERNELS}))
    steady = steady_lengths(records, bursts["machine"]["max_sm_clock_mhz"])
    profiled = matching(read("profile"), {"kernel": KERNELS})
    without_wgmma = {record["kernel"] for record in profiled if not record["metrics"]["tensor_wgmma_instructions"]}
    for record in sorted(matching(read("peers/under_load"), {"kernel": KERNELS}), key=lambda record: record["kernel"]):
        kernel, load = record["kernel"], record["under_load"]
        tiles, at_once, rounds = rounds_of(record, sm)
        per_round, filled = cycles_of(load) / rounds, tiles / (rounds * at_once)
        points = [(each["seq_len"] / KEYS, cycles_of(each) / rounds_of(each, sm)[2])
                  for each in records if (each["kernel"], each["source"]) == (kernel, record["source"]) and each["seq_len"] in steady]
        first, _, miss = line_through([*points, (record["seq_len"] / KEYS, per_round)])
        flops = attention_flops(record["batch"], record["heads"], record["seq_len"], record["head_dim"])
        products = flops / (cycles_of(load) * sm["count"] * sm["wgmma_flops"])
        parts = {"products": products, "empty": 1 - filled}
        if kernel in without_wgmma:
            parts["slower"] = products * (rates["wgmma.n128.shared"] / rates["mma.m16n8k16"] - 1)
        if miss <= CLOSE:
            parts["ends"] = filled * first / per_round
        parts["within" if miss <= CLOSE else "both"] = 1 - sum(parts.values())
        found[kernel] = Launch({part: parts[part] for part in PARTS if part in parts}, miss, record)
    return found


def changed():
    """Kernels of which a record here is stale."""
    return {kernel for kernel, launch in launches().items() if is_stale(launch.record)}


def table(spec):
    """For the Markdown: the parts in percent."""
    if spec != "under_load":
        raise Refused("cycles are told apart of the launches under load")

    def percent(launch, part):
        return mark(f"{100 * launch.parts[part]:.1f}", launch.record) if part in launch.parts else "–"

    return rows_of(["Kernel", *(f"{words[0].upper()}{words[1:]}, %" for words in PARTS.values()), "The line misses a length by, %"],
                   ([f"`{kernel}`", *(percent(launch, part) for part in PARTS), f"{100 * launch.miss:.1f}".replace("inf", "–")] for kernel, launch in launches().items()))
