"""What charts and comparisons read of results files: checked records, their problems, kinds and names."""

import re
from collections import Counter, namedtuple

from fa_tools.schema import check
from fa_tools.tools import read_results

Shape = namedtuple("Shape", "dtype batch heads seq_len head_dim")

SCORES = ("score_std", "score_growth")  # of a record whose inputs were scaled, too
GROWTHS = ("flat", "growing")
STATUSES = ("passed", "wrong", "skipped", "error")


def shape_of(record):
    return Shape(*(record[field] for field in Shape._fields))


def scores_of(record):
    """(standard deviation of the scores, flat or growing), or None of inputs as they are."""
    return tuple(record[field] for field in SCORES) if SCORES[0] in record else None


def describe_scores(scores):
    return f", scores of std {scores[0]:g}, {scores[1]}" if scores else ""


def passed(record):
    return record["status"] == "passed"


def kind(name):
    return {"peer": "peer", "ceiling": "ceiling"}.get(name.split("/")[0], "kernel")


def order(name):
    """Kernels by number, then peers, then ceilings."""
    return ({"kernel": 0, "peer": 1, "ceiling": 2}[kind(name)], name)


def describe(shape, with_length=True):
    parts = [shape.dtype, f"batch {shape.batch}", f"{shape.heads} head" + "s" * (shape.heads != 1)]
    if with_length:
        parts.append(f"{shape.seq_len} tokens")
    return ", ".join([*parts, f"head_dim {shape.head_dim}"])


def display(record):
    """What a chart calls a record: the kernel's name, of a peer with its library `FlashAttention-2 (PyTorch 2.11)`."""
    if "shown" in record:
        return record["shown"]
    if "library" not in record:
        return record["kernel"]
    library = record["library"]
    version = re.match(r"[0-9]+(\.[0-9]+)?", library["version"])
    package = library["name"] + (f" {version[0]}" if version else "")
    return package if library["name"] == library["implementation"] else f"{library['implementation']} ({package})"


def tell_apart(records):
    """Gives peers that would be shown alike their own name as well."""
    names = {}
    for record in records:
        names.setdefault(display(record), set()).add(record["kernel"])
    for record in records:
        if len(names[display(record)]) > 1:
            record["shown"] = f"{display(record)}, {record['kernel']}"


def headline_shape(records):
    """The problem most kernels ran; among equals 4096 tokens, else the longest; head_dim 128 and bf16 first."""
    count = Counter(shape_of(record) for record in records)
    return max(count, key=lambda s: (count[s], s.seq_len == 4096, s.seq_len, s.head_dim, s.dtype == "bf16", s.heads,
                                      s.batch))


def load(path):
    """A results file that is what bench/schema.json describes; otherwise Refused. validate_results.py checks more."""
    data = read_results(path)
    check(data)
    return data
