"""What charts and comparisons read of results files: checked records, their problems, kinds and names."""

import re
import site
import sys
from collections import Counter, namedtuple
from functools import lru_cache
from pathlib import Path

from fa_tools.cards import EMULATOR, cards
from fa_tools.sources import source_of
from fa_tools.tools import RESULTS, ROOT, SCHEMA, Refused, named, read_json, read_results, read_set, relative

SHAPE = ("dtype", "batch", "heads", "seq_len", "head_dim")
REST = ("mask", "window", "softcap", "alibi", "sinks", "gradients", "fp8", "kv_heads", "kv_len", "lengths", "kv_lengths", "page_size")  # of a problem that is more than a shape, else None
Shape = namedtuple("Shape", (*SHAPE, *REST), defaults=(None,) * len(REST))

CONVENTION = "4*B*H*N^2*D"  # of results files: 4*D operations for each pair of a query and a key that it sees, of gradients 10*D
HALVED = "4*B*H*N^2*D/2 if causal"  # of FlashAttention's benchmarks: a causal mask leaves half of the pairs

SCORES = ("score_std", "score_growth")  # of a record whose inputs were scaled, too
GROWTHS = ("flat", "growing")
DAGGER = "†"  # behind a figure in a document: its kernel has changed since it was measured
NOTE = f"{DAGGER} The kernel has changed since this figure was measured."  # ends a document that has such figures


@lru_cache(maxsize=None)
def _jsonschema():
    """The package, or None: readers of results do without it where .venv is not set up. Loaded only here, because most commands
    read no results, and it takes a tenth of a second."""
    for where in (None, *ROOT.glob(".venv/lib/python3*/site-packages")):
        if where:
            site.addsitedir(str(where))
        try:
            import jsonschema
            return jsonschema
        except ImportError:
            pass
    return None


@lru_cache(maxsize=None)
def _validator(path):
    return _jsonschema().Draft202012Validator(read_json(path))


def _cause(problem):
    """Of a choice between forms, what is wrong with the form that the file names."""
    while problem.context:
        others = {each.schema_path[0] for each in problem.context if each.validator == "const"}
        meant = [each for each in problem.context if each.schema_path[0] not in others]
        if not meant:
            break
        problem = meant[0]
    return problem


def check(data, path=SCHEMA):
    """Refused, with one sentence, unless the data are what the schema in this file describes."""
    problems = list(_validator(path).iter_errors(data)) if _jsonschema() else []
    if problems:
        problem = _cause(max(problems, key=_jsonschema().exceptions.relevance))
        place = problem.json_path.removeprefix("$").removeprefix(".") or "the file"
        said = problem.message
        if problem.validator == "not":
            said = f"'{problem.validator_value.get('required', ['something'])[0]}' does not go with its status or back end"
        elif problem.validator in ("anyOf", "oneOf"):
            said = "this is none of what the schema describes"
        raise Refused(f"is invalid: {place}: {said if len(said) < 200 else said[:90] + ' ... ' + said[-90:]}")


def shape_of(record):
    """The whole problem but the scores, as a key: what differs in its mask, heads of keys or lengths is another one."""
    rest = (record.get(field) for field in REST)
    return Shape(*(record[field] for field in SHAPE), *(tuple(v) if isinstance(v, list) else v for v in rest))


def is_plain(record):
    """Whether the problem is a shape alone, as the numbered kernels take it."""
    return not any(field in record for field in REST)


def lengths_of(record):
    """The number of queries of each sequence, and that of keys."""
    queries = record.get("lengths") or [record["seq_len"]] * record["batch"]
    if keys := record.get("kv_lengths") or record.get("lengths"):
        return queries, keys
    return queries, [record.get("kv_len", record["seq_len"])] * record["batch"]


def attended_pairs(record, convention=CONVENTION):
    """Pairs of a query and a key that it sees, over all heads: all, or those in the window, of which a causal mask leaves what is
    not behind the diagonal, which ends at the bottom right."""
    left, right = record.get("window") or (-1, -1)
    if record.get("mask"):
        right = 0

    def of_sequence(q, k):
        def total(first):  # the sum of i + first over all queries i, where that is between 0 and k, and else of 0 or k
            rising, full = min(max(-first, 0), q), min(max(k - first, 0), q)
            return (full - rising) * (rising + full - 1 + 2 * first) // 2 + (q - full) * k

        # FlashAttention takes the mean of the first and the last row, and the first row to see k - q keys.
        if convention == HALVED and record.get("mask") and left < 0:
            return q * (max(0, k - q) + k) / 2
        return (q * k if right < 0 else total(k - q + right + 1)) - (0 if left < 0 else total(k - q - left))

    return record["heads"] * sum(map(of_sequence, *lengths_of(record)))


def flops_of(record, convention=CONVENTION):
    """Operations of both matrix products, of gradients of all five, as a protocol's tflops_convention counts them."""
    return (10 if "gradients" in record else 4) * attended_pairs(record, convention) * record["head_dim"]


def bytes_of(record):
    """Of Q, K, V and O, each once, in elements of two bytes."""
    queries, keys = map(sum, lengths_of(record))
    return 4 * record["head_dim"] * (record["heads"] * queries + record.get("kv_heads", record["heads"]) * keys)


def scores_of(record):
    """(standard deviation of the scores, flat or growing), or None of inputs as they are."""
    return tuple(record[field] for field in SCORES) if SCORES[0] in record else None


def problem_of(record):
    """The whole problem, as a key."""
    return shape_of(record), scores_of(record)


def describe_scores(scores):
    return f", scores of std {scores[0]:g}, {scores[1]}" if scores else ""


def with_solution(path, data):
    """A file's data. Those of solutions of exercises have records with the name of the kernel that was changed: this adds that of
    the solution."""
    file, _, name = str(path).partition("#")
    for record in data["records"] if file.endswith(("emulator/solutions.jsonl", "solutions_alone.jsonl")) else ():
        record["solution"] = name
    return data


def todays_source(record):
    """The source of its kernel today, or of its solution; None of what is not there any more, and of other libraries."""
    return source_of(record.get("solution", record["kernel"]))


def is_stale(record):
    """Whether its kernel has changed since it was measured."""
    return "source" in record and todays_source(record) not in (None, record["source"])


def mark(text, *records):
    """What a document shows of these records: with a mark if one of them is stale."""
    return text + DAGGER * any(map(is_stale, records))


def waiting(kernels):
    """One sentence on kernels whose records are left out because they are stale; none if there are none."""
    if kernels := sorted(set(kernels)):
        one = len(kernels) == 1
        yield (f"{len(kernels)} kernel{'' if one else 's'} wait{'s' if one else ''} for a GPU, changed since "
               f"{'it was' if one else 'they were'} measured: {', '.join(kernels)}")


def kept_records(folder=RESULTS):
    """(file, record) of all that is kept of kernels, of the emulator and of each card: results, profiles, recordings."""
    for path in [path for name in (EMULATOR, *cards(folder)) for path in sorted((folder / name).glob("*.json*"))]:
        with named(relative(path)):
            runs = {f"#{name}": data for name, data in read_set(path).items()} if path.suffix == ".jsonl" else {"": read_json(path)}
        for name, data in runs.items():
            file = f"{path}{name}"
            data = {"records": data.get("launches", []), **data}
            if "recorded" in data:
                data["records"] = [{"kernel": data["kernel"], **data["recorded"]}]
            if "gemm_version" not in data:
                yield from ((file, record) for record in with_solution(file, data)["records"] if kind(record["kernel"]) == "kernel")


def passed(record):
    return record["status"] == "passed"


def is_finding(record):
    """Whether it is of another library in FP8 that is further off than its bits explain, as where its sums are cut: kept, though it
    has no times."""
    return kind(record["kernel"]) == "peer" and "fp8" in record and record["status"] == "wrong"


def kind(name):
    return {"peer": "peer", "ceiling": "ceiling"}.get(name.split("/")[0], "kernel")


def short_name(kernel):
    """As a command line may call it: 16 for 16_max_free, 16.next for 16_max_free.next, causal for beyond/causal."""
    return re.sub(r"^(?:beyond|backward)/|^(\d\d)_\w+", r"\1", kernel)


def neighbours(numbers):
    """[["01"], ["03", "04"]] of 01, 03, 04: numbers of kernels in their order, those that follow one another together."""
    runs = []
    for number in numbers:
        if runs and runs[-1][-1].isdecimal() and number == f"{int(runs[-1][-1]) + 1:02}":
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def order(name):
    """Kernels by number, then peers, then ceilings."""
    return ({"kernel": 0, "peer": 1, "ceiling": 2}[kind(name)], name)


def describe_rest(shape):
    """What of a Shape is not plain: `, causal, 8 key heads`, or nothing."""
    def of(lengths):
        return " + ".join(map(str, lengths)) if len(lengths) <= 4 else f"{min(lengths)} to {max(lengths)}"

    parts = ["gradients" if shape.gradients == "any" else "deterministic gradients"] * bool(shape.gradients) + [shape.mask] * bool(shape.mask)
    if shape.window:
        left, right = ("all" if keys < 0 else keys for keys in shape.window)
        parts.append(f"window of {left} to the left and {right} to the right")
    if shape.softcap:
        parts.append(f"softcap {shape.softcap:g}")
    if shape.alibi:
        parts.append(f"ALiBi per {shape.alibi}")
    if shape.sinks:
        parts.append("sinks")
    if shape.fp8:
        parts.append(f"FP8 {shape.fp8}")
    if shape.kv_heads:
        parts.append(f"{shape.kv_heads} key head" + "s" * (shape.kv_heads != 1))
    if shape.lengths:
        parts.append(f"packed {of(shape.lengths)}" + (f", keys {of(shape.kv_lengths)}" if shape.kv_lengths else ""))
    elif shape.page_size:
        parts.append(f"{of(shape.kv_lengths)} keys in pages of {shape.page_size}")
    elif shape.kv_len is not None:
        parts.append(f"{shape.kv_len} keys")
    return "".join(f", {part}" for part in parts)


def describe(shape):
    one, many = ("token", "tokens") if shape.kv_len is None else ("query", "queries")
    return (f"{shape.dtype}, batch {shape.batch}, {shape.heads} head{'s' * (shape.heads != 1)}, {shape.seq_len} "
            f"{one if shape.seq_len == 1 else many}, head_dim {shape.head_dim}{describe_rest(shape)}")


def in_order(shape):
    """To sort by: short sequences first, and a problem that is more than a shape behind the plain one."""
    rest = tuple((value is not None, value or 0) for value in shape[len(SHAPE):])
    return (shape.dtype, shape.head_dim, shape.heads, shape.seq_len, shape.batch, rest)


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
    """The problem most kernels ran; among equals plain ones, then 4096 tokens, else the longest; head_dim 128 and bf16
    first."""
    count = Counter(shape_of(record) for record in records)
    return max(count, key=lambda s: (count[s], not any(s[len(SHAPE):]), s.seq_len == 4096, s.seq_len, s.head_dim,
                                      s.dtype == "bf16", s.heads, s.batch))


def load(path, anew=False, quiet=False):
    """A results file that is what bench/schema.json describes; otherwise Refused. validate.py checks more. The tests hold
    the committed files to it, so that only validate.py does so `anew`. Says so of a file that is not complete."""
    data = read_results(path)
    if anew or not Path(path).resolve().is_relative_to(RESULTS):
        check(data)
    if not quiet and data.get("complete") is False:
        count = len({shape_of(record) + (scores_of(record),) for record in data["records"]})
        print(f"note: {relative(path)} is of a run that was interrupted after {count} problem{'s' * (count != 1)}; "
              f"scripts/fa bench --resume {relative(path)} goes on", file=sys.stderr)
    return with_solution(path, data)
