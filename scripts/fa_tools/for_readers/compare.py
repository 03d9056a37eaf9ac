"""Compares two results files, of two machines or two commits, by kernel and problem: B against A.

GPU: median times and A's over B's, as speed: above 1 B is faster. A difference counts only if

  1. the medians differ by more than --threshold percent (default: 2), and
  2. the ranges of the two measurements have no time in common. A range goes from the fastest to the slowest round
     if the record has at least three rounds, else from the 10th to the 90th percentile of its launches.

Where the first rule does not hold, the verdict is `same`, and where only the second does not, `cannot tell`: the medians are
apart, but so are the rounds of one file. More rounds may tell. The first rule is for what moves from run to run on one
machine, the second for the noise within a run. Two GPUs of one kind may differ
by some percent more. Where both files have the SM clock, a difference of more than 3 % is marked, since it explains a
difference in time.

Emulator: counters are exact and the same on every machine, so that any difference is one of the programs."""

import argparse
import itertools
import json
import textwrap
from collections import Counter

from fa_tools.cards import BOOK
from fa_tools.numbers import milliseconds
from fa_tools.records import SCORES, describe, describe_scores, in_order, load, order, passed, scores_of, shape_of
from fa_tools.tools import Parser, fail, named

EXAMPLE = f"""examples:
  scripts/fa compare bench/results/{BOOK}/bf16_d128.json results/mine.json
  scripts/fa compare before.json after.json 08 10 --threshold 2

Exit code: 0 compared, 2 bad arguments or files, or nothing in common."""

FEWEST_ROUNDS = 3
CLOCK_PERCENT = 3  # a difference of clocks that is marked
# What a reader should know if the two differ in it: fields of the machine and of the protocol.
MACHINE = ("gpu", "driver", "cuda_runtime", "compiler", "power_limit_w", "checked")
PROTOCOL = ("inputs", "seed", "flush_l2", "rotating_inputs", "in_a_row", "rest_ms", "load_seconds", "warmup", "iterations")


# --- Comparing -------------------------------------------------------------------------------------------------


def measured(record):
    """Median and range of a record, in ms, and its clock."""
    rounds, time = record.get("round_ms", []), record["time_ms"]
    if len(rounds) >= FEWEST_ROUNDS:
        low, high = min(rounds), max(rounds)
    else:
        low, high = time["p10"], time["p90"]
    return {"median": time["median"], "low": low, "high": high, "clock_mhz": record.get("clock_mhz")}


def verdict(a, b, threshold):
    if abs(b["median"] / a["median"] - 1) * 100 <= threshold:
        return "same"
    if a["low"] <= b["high"] and b["low"] <= a["high"]:
        return "cannot tell"
    return "faster" if b["median"] < a["median"] else "slower"


def clocks_differ(a, b):
    clocks = a["clock_mhz"], b["clock_mhz"]
    return all(clocks) and abs(clocks[1] / clocks[0] - 1) * 100 > CLOCK_PERCENT


def compare_times(a, b, threshold):
    mine, theirs = measured(a), measured(b)
    return {
        "verdict": verdict(mine, theirs, threshold), "speed": mine["median"] / theirs["median"],
        "a": mine, "b": theirs, "clocks_differ": clocks_differ(mine, theirs),
    }


def compare_counters(a, b):
    """Counters that both have; those of one alone (the fast build counts no memory traffic) say nothing."""
    counts = [r.get("counters", {}) for r in (a, b)]
    both = [name for name in counts[0] if name in counts[1]]
    differing = {name: [counts[0][name], counts[1][name]] for name in both if counts[0][name] != counts[1][name]}
    return {"verdict": "differs" if differing else "same", "counters": len(both), "differing": differing}


def place(key):
    """Sorts by problem, short sequences first, then by kernel."""
    kernel, shape, scores = key
    return (in_order(shape), (scores or ())[::-1], order(kernel))


def fields_of(key):
    kernel, shape, scores = key
    fields = {name: value for name, value in shape._asdict().items() if value is not None}
    return {"kernel": kernel, **fields, **(dict(zip(SCORES, scores)) if scores else {})}


def compare(files, chosen, threshold):
    """Every kernel and problem that both files have, and what only one has."""
    cuda = files[0]["machine"]["backend"] == "cuda"
    records = [{(r["kernel"], shape_of(r), scores_of(r)): r for r in data["records"] if chosen(r["kernel"])} for data in files]
    pairs = []
    for key in sorted(records[0].keys() & records[1].keys(), key=place):
        a, b = (side[key] for side in records)
        pair = fields_of(key)
        if passed(a) and passed(b):
            pair.update(compare_times(a, b, threshold) if cuda else compare_counters(a, b))
        else:
            pair.update(verdict="not compared", reason=not_compared(a, b))
        pairs.append(pair)
    only = [sorted(mine.keys() - other.keys(), key=place)
            for mine, other in (records, records[::-1])]
    return pairs, only


def not_compared(a, b):
    told = (r["status"] + ("" if passed(r) else f" ({r['reason']})") for r in (a, b))
    return "; ".join(f"{letter} {text}" for letter, text in zip("AB", told))


def differences(files):
    """Sentences about how machine and protocol differ."""
    for part, fields in (("machine", MACHINE), ("protocol", PROTOCOL)):
        a, b = ({"in_a_row": 1, **data.get(part, {})} for data in files)
        for field in fields:
            if field in a and field in b and a[field] != b[field]:
                yield f"{part}.{field}: {json.dumps(a[field])[:38]} in A, {json.dumps(b[field])[:38]} in B"


def summary(pairs):
    counts = Counter(pair["verdict"] for pair in pairs)
    return {name: counts[name] for name in ("faster", "slower", "same", "cannot tell", "differs", "not compared") if counts[name]}


# --- Printing --------------------------------------------------------------------------------------------------


def span(time):
    """How far the range goes below and above the median, in percent."""
    return f"-{100 * (1 - time['low'] / time['median']):.1f} +{100 * (time['high'] / time['median'] - 1):.1f}"


def clip(text, width):
    """The text in at most `width` columns."""
    return text if len(text) <= width else text[: width - 3].rstrip() + "..."


def print_times(pairs):
    print(f"{'kernel':<26}{'A ms':>9} {'range %':>12}{'B ms':>10} {'range %':>12}{'speed':>9}  verdict")
    for pair in pairs:
        name = f"{clip(pair['kernel'], 25):<26}"
        if pair["verdict"] == "not compared":
            print(name + clip(f"not compared: {pair['reason']}", 74))
            continue
        a, b = pair["a"], pair["b"]
        clock = ""
        if pair["clocks_differ"]:
            clock = f" (clock {100 * (b['clock_mhz'] / a['clock_mhz'] - 1):+.0f} %)"
        print(f"{name}{milliseconds(a['median']):>9} {span(a):>12}{milliseconds(b['median']):>10} {span(b):>12}"
              f"{pair['speed']:>9.3f}  {pair['verdict']}{clock}")


def print_counters(pairs):
    for pair in pairs:
        name = f"{clip(pair['kernel'], 25):<26}"
        if pair["verdict"] == "not compared":
            print(name + clip(f"not compared: {pair['reason']}", 74))
        elif pair["verdict"] == "same":
            print(f"{name}same ({pair['counters']} counters)")
        else:
            print(f"{name}differs in {len(pair['differing'])} of {pair['counters']} counters")
            for counter, (a, b) in pair["differing"].items():
                change = f"{100 * (b / a - 1):+.1f} %" if a else "from none"
                print(f"  {counter:<26}{a:>18,}{b:>18,}  {change}")


def print_only(letter, keys):
    """`only in B: 16_max_free (6 problems)`, wrapped."""
    counts = Counter(kernel for kernel, *_ in keys)
    words = [f"{kernel} ({count} problem{'s' * (count > 1)})" for kernel, count in counts.items()]
    if words:
        print(textwrap.fill(f"only in {letter}: {', '.join(words)}", 99, subsequent_indent="  ", break_on_hyphens=False))


def name_of(data):
    machine = data["machine"]
    return machine["gpu"] if machine["backend"] == "cuda" else "emulator"


def report(names, files, pairs, only):
    for letter, name, data in zip("AB", names, files):
        print(clip(f"{letter}: {name}, {name_of(data)}, {data.get('created', 'no date')}", 100))
    for sentence in differences(files):
        print(clip("   " + sentence, 100))
    cuda = files[0]["machine"]["backend"] == "cuda"
    for (shape, scores), here in itertools.groupby(pairs, lambda pair: (shape_of(pair), scores_of(pair))):
        print(f"\n{describe(shape)}{describe_scores(scores)}")
        (print_times if cuda else print_counters)(here)
    print()
    for letter, keys in zip("AB", only):
        print_only(letter, keys)
    counts = [f"{n} {'different' if name == 'differs' else name}" for name, n in summary(pairs).items()]
    print("B against A: " * cuda + ", ".join(counts))


# --- The command -----------------------------------------------------------------------------------------------


def percent(text):
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < 1000:
        raise argparse.ArgumentTypeError(f"{text} is no percentage from 0 to 999")
    return value


def main(argv=None):
    parser = Parser("compare", __doc__, EXAMPLE)
    parser.add_argument("a", metavar="A.json", help="results file to compare with")
    parser.add_argument("b", metavar="B.json", help="results file that is judged")
    parser.add_argument("--threshold", type=percent, default=2.0, metavar="PERCENT",
                        help="medians no further apart than this are the same (default: 2)")
    kernels = parser.add_argument("kernels", nargs="*", metavar="NN", help="only these: numbers or names, such as 08 10 peer/fa2")
    kernels.required = False  # argparse of Python 3.11 says otherwise where a file is missing
    parser.earlier("--kernels", "list")
    args = parser.parse_intermixed_args(argv)  # kernels also behind options
    names, files = [args.a, args.b], []
    for name in names:
        with named(name):
            files.append(load(name))
    backends = [data["machine"]["backend"] for data in files]
    if backends[0] != backends[1]:
        whose = " and ".join(f"{name} is of {name_of(data)}" for name, data in zip(names, files))
        fail(f"{whose}: times and counters cannot be compared")
    wanted = args.kernels or (args.list.split(",") if "list" in args else None)

    def chosen(kernel):
        return wanted is None or kernel in wanted or kernel.split("_")[0] in wanted

    pairs, only = compare(files, chosen, args.threshold)
    if not pairs:
        what = "no kernel on the same problem" if wanted is None else f"nothing of {', '.join(wanted)} on the same problem"
        fail(f"{names[0]} and {names[1]} have {what} in common")
    report(names, files, pairs, only)
    return 0
