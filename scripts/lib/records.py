"""What charts and comparisons read of results files: checked records, their problems, kinds and names."""

import math
import re
from collections import Counter, namedtuple

from tools import Refused, read_results

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


def positive(value):
    return not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value) and value > 0


def _is_count(value):
    return type(value) is int and value >= 0


def _is_line(line):
    """Of an emulator's record: a place in the source, a kind of instruction, and counts."""
    return isinstance(line, dict) and all(isinstance(line.get(name), str) for name in ("at", "kind")) and \
        all(_is_count(value) for name, value in line.items() if name not in ("at", "kind"))


def _check(record, cuda):
    """Says what a record lacks of what is read here, or nothing."""
    if not isinstance(record, dict):
        return "is not an object"
    for field in ("kernel", "status", *Shape._fields):
        if field not in record:
            return f"lacks '{field}'"
    if not isinstance(record["kernel"], str) or record["status"] not in STATUSES:
        return "has a kernel or a status that is not one"
    if not all(isinstance(record[f], int) and positive(record[f]) for f in Shape._fields[1:]):
        return "has a shape that is not one"
    if any(field in record for field in SCORES) and not (
            positive(record.get("score_std")) and record.get("score_growth") in GROWTHS):
        return "has a score_std or a score_growth that is not one"
    if not passed(record):
        return None if isinstance(record.get("reason"), str) else "has no reason why it did not pass"
    if not cuda:
        counters = record.get("counters", {})
        if not isinstance(counters, dict) or not all(map(_is_count, counters.values())):
            return "has counters that are no counts"
        lines = record.get("lines", [])
        return None if isinstance(lines, list) and all(map(_is_line, lines)) else "has lines that are no counts by line"
    time = record.get("time_ms")
    if not isinstance(time, dict) or not all(positive(time.get(f)) for f in ("median", "p10", "p90")):
        return "has no time_ms of positive numbers"
    if record["kernel"] != "ceiling/copy" and not positive(record.get("tflops")):
        return "has no tflops"
    rounds = record.get("round_ms", [])
    if not isinstance(rounds, list) or not all(map(positive, rounds)):
        return "has a round_ms that is no list of times"
    return None


def load(path):
    """A results file whose records have what is read here; otherwise Refused. validate_results.py checks more."""
    data = read_results(path)
    machine, records = data.get("machine"), data.get("records")
    if not isinstance(machine, dict) or machine.get("backend") not in ("cuda", "emulator"):
        raise Refused("is invalid: it does not say on what machine it was made")
    if not isinstance(records, list):
        raise Refused("is invalid: it has no records")
    cuda = machine["backend"] == "cuda"
    if cuda and not isinstance(machine.get("gpu"), str):
        raise Refused("is invalid: machine lacks 'gpu'")
    for i, record in enumerate(records):
        problem = _check(record, cuda)
        if problem:
            raise Refused(f"is invalid: records[{i}] {problem}")
    return data
