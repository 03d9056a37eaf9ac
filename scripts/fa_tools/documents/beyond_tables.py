"""What the book's card gave beyond O in 16 bits, as tables. In FP8: speeds, other inputs, the rounding itself, and how far O is off. Of
gradients: speeds, and how far they are off. Of problems that a seed has drawn: how far ahead we are, also as a chart, and where the least. Of
windows and softcaps: speeds."""

import math
import re
from collections import namedtuple

from fa_tools.cards import BOOK, has_file
from fa_tools.documents.doc_tables import read, rows_of
from fa_tools.numbers import short
from fa_tools.records import describe, describe_scores, is_finding, kind, mark, passed, problem_of, short_name
from fa_tools.tools import RESULTS, Refused, read_set

NOT_YET = f"(Not measured yet: on an {BOOK.upper()} <!-- needs: gpu -->`scripts/fa measure --only {{}}` does it.)"
PEERS = {"peer/fa3_fp8": "FlashAttention-3", "peer/cudnn_fp8": "cuDNN"}
GRADIENT_PEERS = {"peer/fa2_backward": "FlashAttention-2", "peer/cudnn_backward": "cuDNN", "peer/fa3_backward": "FlashAttention-3"}
WAYS = {"": "one by one", "_in_a_row": "20 in a row"}  # by how the names of files end
CHART = f"{BOOK}-shapes"  # NAME of docs/charts/NAME.svg
CLOSE = 1.03  # so many times as slow as our fastest kernel the one that "best" takes may be
# Whose errors stand next to each other: (heading, kernel, fp8 of the problem).
WHOSE = (("Kernel 15 in bf16", "15_persistent", None), ("Ours, scale per head", "beyond/fp8", "head"), ("Per tile", "beyond/fp8", "tile"),
         ("Rotated", "beyond/fp8", "rotated"), *((heading, peer, "head") for peer, heading in PEERS.items()))
INPUTS = {"normal": "`normal`", "outliers": "`outliers`", "student_t": "`student_t`", "loud_channels": "`loud_channels`",
          "v_mean": "`v_mean`", "v_mean_131072": "`v_mean`"}


def records(file, name):
    """The records of a file in a set, or none if it was not measured yet."""
    if not has_file(BOOK, f"{file}.jsonl#{name}"):
        return []
    return [record for record in read(f"{file}/{name}")["records"] if passed(record) or is_finding(record)]


def found(among, kernel, **problem):
    """The one record of a kernel on a problem, or None."""
    return next((record for record in among if record["kernel"] == kernel
                 and all(record.get(field) == value for field, value in problem.items())), None)


def ours(among):
    return list(dict.fromkeys(record["kernel"] for record in among if record["kernel"].startswith("beyond/fp8")))


def best_ratio(record):
    return min(record["ratio"].values()) if record.get("ratio") else None


def speed():
    """TFLOP/s by length, and in brackets how many times as fast as the better library."""
    groups = [(what, records("fp8", name)) for name, what in (("d128", "head_dim 128"), ("causal", "causal"), ("d64", "head_dim 64"), ("d256", "head_dim 256"),
                                                                  ("d256_causal", "head_dim 256, causal"))]
    lengths = sorted({record["seq_len"] for _, among in groups for record in among})

    def cell(record):
        if record is None:
            return "–"
        ratio = best_ratio(record)
        return mark(short(record["tflops"]) + (f" ({ratio:.2f})" if ratio else ""), record)

    return ["", *(f"N = {length}" for length in lengths)], [
        [f"`{kernel}`, {what}", *(cell(found(among, kernel, seq_len=length)) for length in lengths)]
        for what, among in groups for kernel in ours(among)]


def inputs():
    """TFLOP/s at 4096 tokens on inputs that are not normal."""
    normal, spread, outliers = (records("fp8", name) for name in ("d128", "scores", "outliers"))
    rows = [("`normal`", normal, {"seq_len": 4096}), ("scores of 4 nats", spread, {"score_std": 4}),
            ("scores of 20 nats", spread, {"score_std": 20}), ("`outliers`", outliers, {"fp8": "head"}),
            ("`outliers`, rotated", outliers, {"fp8": "rotated"})]
    kernels = ours(normal + spread + outliers)

    def tflops(record):
        return mark(short(record["tflops"]), record) if record and "tflops" in record else "–"

    def ratio(record):
        return mark(f"{best_ratio(record):.2f}", record) if record and best_ratio(record) else "–"

    return ["Inputs", *(f"`{kernel}`" for kernel in kernels), *PEERS.values(), *(f"`{kernel}` to the better one" for kernel in kernels)], [
        [what, *(tflops(found(among, name, **problem)) for name in (*kernels, *PEERS)),
         *(ratio(found(among, name, **problem)) for name in kernels)] for what, among, problem in rows if among]


def rounding():
    """What rounding Q, K and V takes, next to a copy in the same run."""
    rows = []
    for record in records("fp8", "rounding"):
        if kind(record["kernel"]) == "kernel":
            speed_of = record["rounding_bytes"] / record["rounding_ms"] * 1e-6
            cells = (f"{1000 * record['rounding_ms']:.0f}", f"{speed_of:.0f}", *([f"{100 * speed_of / record['copy']:.0f}"] if record["copy"] else ["–"]))
            rows.append([f"`{short_name(record['kernel'])} --fp8 {record['fp8']}`", *(mark(each, record) for each in cells)])
    return ["Kernel and scales", "µs", "GB/s", "Of a copy's, %"], rows


def errors_by(field, show, names):
    """A row for each of these inputs and lengths."""
    rows = []
    for name in names:
        among = records("fp8_accuracy", name)
        for length in sorted({record["seq_len"] for record in among}):
            cells = [found(among, kernel, seq_len=length, fp8=fp8) for _, kernel, fp8 in WHOSE]
            values = [None if record is None else record["error"].get(field) for record in cells]
            rows.append([f"{INPUTS[name]}, {length:,}", *("–" if value is None else mark(show(value), record)
                                                         for value, record in zip(values, cells))])
    return ["Inputs, N", *(heading for heading, *_ in WHOSE)], rows


def speed_by_length(file, groups, libraries):
    """TFLOP/s by length, and of ours in brackets how many times as fast as the fastest library. Of each run of the file in a set what
    it is of."""
    groups = [(what, records(file, name)) for name, what in groups.items()]
    lengths = sorted({record["seq_len"] for _, among in groups for record in among})
    rows = []
    for what, among in groups:
        for kernel in dict.fromkeys(record["kernel"] for record in among):
            cells = [found(among, kernel, seq_len=length) for length in lengths]
            name = libraries.get(kernel) or f"`{short_name(kernel)}`"
            rows.append([f"{name}, {what}", *("–" if cell is None or "tflops" not in cell else mark(short(cell["tflops"]) + (
                f" ({best_ratio(cell):.2f})" if best_ratio(cell) else ""), cell) for cell in cells)])
    return ["", *(f"N = {length}" for length in lengths)], rows


def errors_of_gradients():
    """A row for each type and spread of scores: how far dQ, dK and dV are off at most, in thousandths of their norm."""
    among = [record for kind in ("", "_groups") for dtype in ("bf16", "fp16") for record in records("gradients", f"errors_{dtype}{kind}")]
    kernels = list(dict.fromkeys(record["kernel"] for record in among))

    def spread(record):
        return record["dtype"], record.get("score_std", 1)

    def cell(here):
        most = {name: max((record["error"]["of_gradients"][name] or 0 for record in here), default=0) for name in ("dQ", "dK", "dV")}
        return mark(" / ".join(f"{1000 * value:.2f}" if value else "–" for value in most.values()), here[0]) if here else "–"
    rows = []
    for dtype, nats in dict.fromkeys(map(spread, among)):
        rows.append([f"{dtype}, scores of {nats:g} nat{'s' if nats != 1 else ''}", *(
            cell([record for record in among if spread(record) == (dtype, nats) and record["kernel"] == kernel]) for kernel in kernels)])
    return ["", *(GRADIENT_PEERS.get(kernel) or f"`{short_name(kernel)}`" for kernel in kernels)], rows


# Of a drawn problem: how it was timed and which seed has drawn it, the record of a kernel of ours, or None if it has no time, and how many
# times as fast it is as the fastest library, or None if no library has a time either.
Drawn = namedtuple("Drawn", "way seed record ratio")
CHOICES = {"our fastest": lambda record: True, "`best`": lambda record: "chosen" in record}


def draws():
    """[(way, seed, the records of a problem, also of what did not pass)] of all problems that were drawn and measured."""
    path, found = RESULTS / BOOK / "shapes.jsonl", []
    for name, data in read_set(path).items() if path.exists() else ():
        seed, suffix = re.fullmatch(r"(\d+)(.*)", name).groups()
        by_problem = {}
        for record in data["records"]:
            by_problem.setdefault(problem_of(record), []).append(record)
        found += [(WAYS[suffix], int(seed), records) for records in by_problem.values()]
    return found


def drawn(choice, way=None):
    """[Drawn] of each problem, in this way or both: our kernel that is furthest ahead, or the one that "best" takes."""
    def of(its_way, seed, records):
        ours = [record for record in records if kind(record["kernel"]) == "kernel" and passed(record) and CHOICES[choice](record)]
        first = max(ours, key=lambda record: best_ratio(record) or 0, default=None)
        return Drawn(its_way, seed, first, first and best_ratio(first))

    return [of(*each) for each in draws() if way in (None, each[0])]


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def spread_of_shapes():
    """How far ahead we are, over all problems that were drawn, with our fastest kernel and with the one that "best" takes."""
    ways, seeds = ({getattr(each, field) for each in drawn("our fastest")} for field in ("way", "seed"))

    def column(way, choice):
        here, fastest = drawn(choice, way), drawn("our fastest", way)
        ratios = [each.ratio for each in here if each.ratio]
        of_seeds = [mean([each.ratio for each in here if each.ratio and each.seed == seed]) for seed in sorted(seeds)]
        near = [(each.ratio or 0) * CLOSE >= first.ratio for each, first in zip(here, fastest) if first.ratio]

        def percent(those):
            return f"{100 * sum(those) / len(those):.1f}" if those else "–"

        cells = {
            "problems compared": str(len(ratios)),
            "geometric mean": f"{mean(ratios):.2f}" if ratios else "–",
            f"geometric mean of seed {', '.join(map(str, sorted(seeds)))}": ", ".join(f"{each:.2f}" if each else "–" for each in of_seeds),
            "least": f"{min(ratios):.2f}" if ratios else "–",
            "below 1, %": percent([ratio < 1 for ratio in ratios]),
            "below 0.95, %": percent([ratio < 0.95 for ratio in ratios]),
            "at most 3 % slower than our fastest, %": "–" if choice == "our fastest" else percent(near),
            "left out, because ours has no time": str(sum(each.record is None for each in here)),
            "left out, because no library has one": str(sum(each.record is not None and each.ratio is None for each in here)),
        }
        measured = [each.record for each in here if each.record]
        return {name: mark(cell, *measured) for name, cell in cells.items()}

    columns = {f"{way}, {choice}": column(way, choice) for way in WAYS.values() if way in ways for choice in CHOICES}
    return ["", *columns], [[name, *(cells[name] for cells in columns.values())] for name in next(iter(columns.values()), ())]


def worst_of_shapes():
    """The ten problems on which we are furthest behind, or the least ahead, and what "best" makes of them."""
    rows, pairs = [], zip(drawn("our fastest"), drawn("`best`"))
    for each, chosen in sorted((pair for pair in pairs if pair[0].ratio), key=lambda pair: pair[0].ratio)[:10]:
        library = min(each.record["ratio"], key=each.record["ratio"].get).removeprefix("peer/")
        shape, scores = problem_of(each.record)
        rows.append([describe(shape) + describe_scores(scores), each.way, f"`{short_name(each.record['kernel'])}`", f"`{library}`",
                     mark(f"{each.ratio:.2f}", each.record), mark(f"{chosen.ratio:.2f}", chosen.record) if chosen.ratio else "–"])
    return ["Problem", "launches", "our fastest", "the fastest library", "how many times as fast", "with `best`"], rows


SPEEDS = {
    "gradients": ("gradients", {"d128": "no mask", "causal": "causal", "d64": "head_dim 64", "deterministic": "deterministic",
                                "deterministic_causal": "deterministic, causal"}, GRADIENT_PEERS),
    "beyond_scores": ("beyond", {"window": "causal, a window of 1024,0", "softcap": "a softcap of 30", "softcap_causal": "causal, a softcap of 30"},
                      {"peer/fa2": "FlashAttention-2", "peer/fa3": "FlashAttention-3", "peer/fa3_window": "FlashAttention-3", "peer/cudnn_frontend": "cuDNN"}),
}
TABLES = {
    "fp8": {"speed": speed, "inputs": inputs, "rounding": rounding,
            "errors": lambda: errors_by("rel_unrounded", lambda value: f"{100 * value:#.2g}".rstrip("."), INPUTS),
            "rmse": lambda: errors_by("rmse", lambda value: f"{1000 * value:#.2g}".rstrip("."), ["outliers"])},
    "beyond_scores": {"speed": lambda: speed_by_length(*SPEEDS["beyond_scores"])},
    "gradients": {"speed": lambda: speed_by_length(*SPEEDS["gradients"]), "errors": errors_of_gradients},
    "shapes": {"chart": lambda: ([], []), "spread": spread_of_shapes, "worst": worst_of_shapes},
}


def table(spec):
    """One of these, by its group and name, or a sentence if nothing of the group was measured yet."""
    group, _, name = spec.partition(" ")
    if name not in TABLES.get(group, ()):
        raise Refused(f"there is no table {spec}; there are {', '.join(f'{group} {name}' for group, tables in TABLES.items() for name in tables)}")
    if spec == "shapes chart" and any(each.ratio for each in drawn("our fastest")):
        return [f"![Two lines that rise from 0 to 100 percent: how many of the drawn problems are at most so many times as fast as the fastest "
                f"library](../charts/{CHART}.svg)"]
    heading, rows = TABLES[group][name]()
    return rows_of(heading, rows) if rows else [NOT_YET.format(group)]
