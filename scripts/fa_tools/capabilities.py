"""Tables for docs/appendix/capabilities.md: an SM's limits, and how many CTAs of each kernel fit."""

from fa_tools import sass
from fa_tools.figures.drawing import constant
from fa_tools.records import mark
from fa_tools.tools import ROOT, Refused, named, read_results
from fa_tools.tuning import choice_of

CAPABILITIES = [capability for capability in sass.LIMITS if capability >= 80]
# A GPU of each that people have.
GPUS = {80: "A100", 86: "RTX 3090", 89: "RTX 4090, L40S", 90: "H100, H200", 100: "B200", 120: "RTX 5090"}


def dotted(capability):
    return f"{capability // 10}.{capability % 10}"


def limits_table():
    """Head and rows: one limit a row, one capability a column."""
    def row(name, figure):
        return [name, *(f"{figure(sass.LIMITS[c]):,}" for c in CAPABILITIES)]

    registers = sass.PARTITIONS * sass.PARTITION_REGISTERS
    rows = [
        ["for example", *(GPUS[c] for c in CAPABILITIES)],
        row("warps an SM", lambda x: x.warps),
        row("threads an SM", lambda x: 32 * x.warps),
        row("CTAs an SM", lambda x: x.ctas),
        row("threads a CTA", lambda _: 1024),
        row("32-bit registers an SM, and a CTA", lambda _: registers),
        row("registers per thread", lambda _: 255),
        row("registers are given to a warp in units of", lambda _: sass.REGISTER_UNIT),
        row("schedulers, with a quarter of the registers each", lambda _: sass.PARTITIONS),
        row("shared memory an SM, KiB", lambda x: x.shared_bytes // sass.KB),
        row("shared memory a CTA, KiB (beyond 48 it must ask)", lambda x: x.cta_shared_bytes // sass.KB),
        row("shared memory taken for each CTA, bytes", lambda x: x.reserved_bytes),
        row("named barriers a CTA", lambda _: 16),
    ]
    return ["", *(dotted(c) for c in CAPABILITIES)], rows


def tuned(kernel):
    """Whether the kernel takes its tile sizes from the table in 10_tuning.h."""
    return '#include "kernels/10_tuning.h"' in (ROOT / "kernels" / f"{kernel}.cu").read_text(encoding="utf-8")


def threads_of(kernel, capability, head_dim):
    number = kernel[:2]
    if number == "01":
        return constant(number, "kTile", head_dim) ** 2
    if tuned(kernel):
        return choice_of(capability, head_dim).threads()
    return constant(number, "kThreads", head_dim)


def records_of(name):
    """The kernels' records of the longest sequence of a GPU's results file."""
    with named(name):
        data = read_results(ROOT / name)
    records = [r for r in data["records"] if "/" not in r["kernel"] and r.get("registers") and r["status"] == "passed"]
    longest = max((r["seq_len"] for r in records), default=0)
    records = [r for r in records if r["seq_len"] == longest]
    if not records:
        raise Refused(f"{name} has no record of a kernel with registers")
    return data, records


def occupancy_table(name):
    """A kernel a row, on the GPU of the results."""
    data, records = records_of(name)
    capability = int(data["machine"]["compute_capability"].replace(".", ""))
    rows = []
    for record in records:
        threads = threads_of(record["kernel"], capability, record["head_dim"])
        fits = sass.occupancy(capability, record["registers"], record["shared_memory_bytes"], threads)
        by = fits["ctas_by_resource"]
        rows.append([f"`{record['kernel']}`", str(threads), mark(str(record["registers"]), record),
                     mark(f"{record['shared_memory_bytes']:,}", record),
                     *(str(by[r]) for r in ("registers", "shared memory", "warps")), f"**{fits['ctas']}**",
                     f"{fits['warps']} of {fits['most_warps']}", " and ".join(fits["limited_by"])])
    head = ["Kernel", "Threads", "Registers", "Shared memory, bytes", "CTAs by registers", "by shared memory", "by warps",
            "CTAs an SM", "Warps", "Limited by"]
    return head, rows


def kernels_table(name):
    """Where a kernel runs: CTAs an SM that its shared memory leaves room for, or why not at all."""
    _, records = records_of(name)
    rows = []
    for record in records:
        least, exactly = sass.needs_of(record["kernel"])
        cells = []
        for capability in CAPABILITIES:
            limits, shared = sass.LIMITS[capability], record["shared_memory_bytes"]
            if tuned(record["kernel"]):
                shared = choice_of(capability, record["head_dim"]).shared_bytes(record["head_dim"])
            if capability < least or exactly and capability != least:
                cells.append("–")
            elif shared > limits.cta_shared_bytes:
                cells.append("too little shared memory")
            else:
                threads = threads_of(record["kernel"], capability, record["head_dim"])
                cells.append(str(sass.occupancy(capability, 32, shared, threads)["ctas"]))
        needs = "any" if least < 80 else f"`sm_{least}a`" if exactly else f"`sm_{least}`"
        rows.append([f"`{record['kernel']}`", needs, *cells])
    return ["Kernel", "Needs", *(dotted(c) for c in CAPABILITIES)], rows
