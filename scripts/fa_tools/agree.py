"""Compares what the emulator counts with what Nsight Compute counts on a GPU, for every kernel.

Without options the committed profiles are compared with the committed counts of the emulator, and a table of ratios is
printed for each. Every ratio outside 0.95 to 1.05 needs an explanation in bench/agreement.json; without one the exit
code is 1. -o writes the comparison into a file. `scripts/fa measure --only profiles --whole` makes new profiles."""

import textwrap

from fa_tools import agreement
from fa_tools.records import SHAPE, Shape, describe, waiting
from fa_tools.tools import Parser, check_writable, or_fail, run, write_json

EXAMPLE = """examples:
  scripts/fa agree                                              committed profiles against committed counts
  scripts/fa agree --from profile.json --counters results/mine.json

Exit code: 0 every difference is explained, 1 one is not, 2 bad arguments or file."""


def cell(entry):
    return agreement.ratio(entry) + ("*" if entry.get("reasons") else "!" if "reasons" in entry else "")


# Two lines of heading, for tables of 100 columns.
SHORT = {
    "global_load_requests": ("global", "loads"), "global_load_sectors": ("", "sect."),
    "global_store_requests": ("", "stores"), "global_store_sectors": ("", "sect."),
    "shared_load_requests": ("shared", "loads"), "shared_load_wavefronts": ("", "waves"),
    "shared_store_requests": ("", "stores"), "shared_store_wavefronts": ("", "waves"),
    "l1_wavefronts": ("L1", "passes"), "ldmatrix": ("ld-", "matrix"), "cp_async": ("cp.", "async"),
    "matrix_products": ("mma", ""), "wgmma": ("wgmma", ""),
    "tma_load_bytes": ("TMA", "loads"), "tma_store_bytes": ("", "stores"),
    "shared_load_conflicts": ("bank", "loads"), "shared_store_conflicts": ("confl.", "stores"),
}


def show(part):
    """Lines of at most 100 columns."""
    shape = Shape(*(part[field] for field in SHAPE))
    yield f"Emulator over {part['gpu']}; {describe(shape)}"
    yield part["file"]
    by_kernel = {}
    for entry in part["counts"]:
        by_kernel.setdefault(entry["kernel"], {})[entry["quantity"]] = entry
    known = [q for q in agreement.QUANTITIES if any(q in entries for entries in by_kernel.values())]
    memory = [q for q in known if q in agreement.MEMORY]
    for quantities in (memory, [q for q in known if q not in memory]):
        rows = {kernel: [cell(entries[q]) if q in entries else "–" for q in quantities]
                for kernel, entries in by_kernel.items() if any(q in entries for q in quantities)}
        for line in (0, 1) if rows else ():
            yield "  " + "".join(SHORT[q][line].rjust(7) for q in quantities)
        for kernel, cells in rows.items():
            yield kernel[:2] + "".join(text.rjust(7) for text in cells)
    for kernels, quantities, reason in agreement.reasons(part["counts"]):
        text = f"* {', '.join(kernel[:2] for kernel in kernels)} ({', '.join(quantities)}): {reason}."
        yield from textwrap.wrap(text, 100, subsequent_indent="  ")
    for entry in agreement.unexplained(part["counts"]):
        yield (f"! {entry['kernel'][:2]}, {agreement.heading(entry)}: {entry['emulator']:,} and {entry['gpu']:,}, "
               "not explained")


def show_limiters(part):
    if "limiters" not in part:
        return
    yield ""
    yield f"{'busiest resource':<23}{'emulator':>10} {'profiler':>10}   percent of its peak, by the profiler"
    for entry in part["limiters"]:
        ours, theirs = agreement.called(entry["emulator"]), agreement.called(entry["gpu"])
        busiest = sorted(entry["percent"], key=entry["percent"].get, reverse=True)[:3]
        text = ", ".join(f"{agreement.called(r)} {entry['percent'][r]:.0f}" + "~" * (r in entry["calculated"])
                         for r in busiest)
        yield f"{entry['kernel']:<23}{ours:>10} {theirs:>10}   {text}"
    same = sum(entry["emulator"] == entry["gpu"] for entry in part["limiters"])
    yield f"The same in {same} of {len(part['limiters'])}. ~ calculated from counts: the profile does not have it."


def parse_arguments(argv):
    parser = Parser("agree", __doc__, EXAMPLE)
    add = parser.add_argument
    add("--from", dest="sources", nargs="+", metavar="PROFILE",
        help="files of scripts/fa profile (default: the committed)")
    add("--counters", nargs="+", metavar="RESULTS",
        help="results of the emulator's checked build (default: the committed)")
    add("-o", "--output", metavar="FILE", help="the JSON file to write")
    args = parser.parse_args(argv)
    if args.output:
        check_writable(args.output)
    return args


def main(argv=None):
    args = parse_arguments(argv)
    with or_fail():
        counters = agreement.read_counters(args.counters)
        result = agreement.comparison(args.sources, counters)
    for i, part in enumerate(result["profiles"]):
        print("\n" * (i > 0) + "\n".join([*show(part), *show_limiters(part)]))
    for sentence in waiting(kernel for part in result["profiles"] for kernel in part.get("changed", [])):
        print("", *textwrap.wrap(f"{sentence}.", 100), sep="\n")
    if args.output:
        write_json(args.output, result)
    return 1 if any(agreement.unexplained(part["counts"]) for part in result["profiles"]) else 0


if __name__ == "__main__":
    run(main)
