"""Compares what the emulator counts with what Nsight Compute counts on a GPU, for every kernel.

Without options the committed profiles are compared with the committed counts of the emulator, and the ratios outside
0.95 to 1.05 are printed for each. Every one of them needs an explanation in bench/agreement.json; without one the exit
code is 1. `scripts/fa measure --only profiles --whole` makes new profiles."""

import textwrap

from fa_tools.laboratory import agreement
from fa_tools.records import SHAPE, Shape, describe, waiting
from fa_tools.tools import Parser, or_fail, run

EXAMPLE = """examples:
  scripts/fa agree                                              committed profiles against committed counts
  scripts/fa agree --from profile.json --counters results/mine.json

Exit code: 0 every difference is explained, 1 one is not, 2 bad arguments or file."""


def show(part):
    """Lines of at most 100 columns: of each quantity the kernels in which the two counts are not close."""
    shape = Shape(*(part[field] for field in SHAPE))
    yield f"Emulator over {part['gpu']}; {describe(shape)}"
    yield part["file"]
    for quantity, (name, *_) in agreement.QUANTITIES.items():
        entries = [entry for entry in part["counts"] if entry["quantity"] == quantity]
        equal = sum(entry["emulator"] == entry["gpu"] for entry in entries)
        others = [f"{entry['kernel'][:2]}\xa0{agreement.ratio(entry)}{'*' if entry['reasons'] else '!'}" for entry in entries
                  if not agreement.is_close(entry["emulator"], entry["gpu"])]
        close = f"{len(entries) - equal - len(others):>2} within 5 %"
        if entries:
            text = ", ".join([f"{name:<25}{equal:>2} equal, {close}", *others])
            yield from (line.replace("\xa0", " ") for line in textwrap.wrap(text, 100, subsequent_indent=" " * 25))
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


def main(argv=None):
    parser = Parser("agree", __doc__, EXAMPLE)
    add = parser.add_argument
    add("--from", dest="sources", nargs="+", metavar="PROFILE",
        help="files of scripts/fa profile (default: the committed)")
    add("--counters", nargs="+", metavar="RESULTS",
        help="results of the emulator's checked build (default: the committed)")
    args = parser.parse_args(argv)
    with or_fail():
        parts = agreement.comparison(args.sources, args.counters)
    for i, part in enumerate(parts):
        print("\n" * (i > 0) + "\n".join([*show(part), *show_limiters(part)]))
    for sentence in waiting(kernel for part in parts for kernel in part.get("changed", [])):
        print("", *textwrap.wrap(f"{sentence}.", 100), sep="\n")
    return 1 if any(agreement.unexplained(part["counts"]) for part in parts) else 0


if __name__ == "__main__":
    run(main)
