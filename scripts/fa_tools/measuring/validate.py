"""Checks results files against bench/schema.json and against what a schema cannot say."""

import math
import re
import statistics
import sys
from pathlib import Path

from fa_tools.cards import BOOK, card_of
from fa_tools.records import attended_pairs, flops_of, load, problem_of
from fa_tools.tools import RESULTS, Parser, Refused, check_writable, fail, need, read_json, read_set, write_json

READERS = RESULTS / "from_readers"

# Totals that are sums over the statements: of which field, and of which kind if not of all.
SUMS = {
    "global_sectors": ("sectors", None), "global_sectors_ideal": ("sectors_ideal", None),
    "shared_wavefronts": ("wavefronts", None), "shared_wavefronts_ideal": ("wavefronts_ideal", None),
    "matrix_flops": ("flops", None), "exp2": ("operations", None), "barrier_waits": ("waits", "barrier"),
}

EXAMPLE = f"""examples:
  scripts/fa validate bench/results/{BOOK}/bf16_d128.json bench/results/{BOOK}/inputs.jsonl
  scripts/fa validate results/mine.json --keep bench/results/{BOOK}/inputs.jsonl#scores

Exit code: 0 all files are valid, 1 at least one is not, 2 bad arguments. One sentence for each file that is not."""


def check_problem(record, where):
    """The fields of a problem that is more than a shape fit each other."""
    lengths = record.get("lengths")
    if lengths and (len(lengths) != record["batch"] or max(lengths) != record["seq_len"]
                    or len(record.get("kv_lengths", lengths)) != len(lengths)):
        raise Refused(f"is invalid: {where}.lengths are not those of batch and seq_len")
    if "page_size" in record and len(record["kv_lengths"]) != record["batch"]:
        raise Refused(f"is invalid: {where}.kv_lengths are not those of batch")
    if record["heads"] % record.get("kv_heads", 1):
        raise Refused(f"is invalid: {where}.kv_heads does not divide heads")
    if record.get("attended_pairs", attended_pairs(record)) != attended_pairs(record):
        raise Refused(f"is invalid: {where}.attended_pairs is {record['attended_pairs']}, the problem has {attended_pairs(record)}")


def check_rounds(data, record, where):
    """The record's time, clock and ratios are what its rounds and those of the peers say."""
    if "round_ms" not in record:
        return
    rounds = record["round_ms"]
    if len(rounds) != data["protocol"]["rounds"]:
        raise Refused(f"is invalid: {where}.round_ms has {len(rounds)} rounds, not protocol.rounds")
    if not math.isclose(record["time_ms"]["median"], statistics.median(rounds), rel_tol=1e-6):
        raise Refused(f"is invalid: {where}.time_ms.median is not the median of round_ms")
    clocks = record.get("round_clock_mhz")
    if clocks is not None:
        if len(clocks) != len(rounds):
            raise Refused(f"is invalid: {where}.round_clock_mhz has {len(clocks)} rounds, not protocol.rounds")
        known = [clock for clock in clocks if clock is not None]
        expected, said = statistics.median(known) if known else None, record.get("clock_mhz")
        if (said is None) != (expected is None) or (known and not math.isclose(said, expected, rel_tol=1e-6)):
            raise Refused(f"is invalid: {where}.clock_mhz is not the median of round_clock_mhz")
    for peer, ratio in record.get("ratio", {}).items():
        beside = [r for r in data["records"] if r["kernel"] == peer and problem_of(r) == problem_of(record)]
        if beside and beside[0].get("run") != record.get("run"):
            continue  # the peer has been measured again since, beside other kernels
        if not beside or len(beside[0].get("round_ms", [])) != len(rounds):
            raise Refused(f"is invalid: {where}.ratio names {peer}, which did not pass on the same problem")
        expected = statistics.median(p / k for p, k in zip(beside[0]["round_ms"], rounds))
        if not math.isclose(ratio, expected, rel_tol=1e-6):
            raise Refused(f"is invalid: {where}.ratio of {peer} is {ratio:g}, the rounds say {expected:g}")


def check_statements(record, where):
    """The counts of the statements sum up to the totals, and none is better than its ideal."""
    if "statements" not in record:
        return
    statements, counters, seen = record["statements"], record.get("counters", {}), set()
    for total, (field, kind) in SUMS.items():
        count = sum(counts.get(field, 0) for counts in statements if kind in (None, counts["kind"]))
        if count != counters.get(total):
            raise Refused(f"is invalid: {where}.statements have {count} {field}, but counters.{total} is {counters.get(total)}")
    for i, counts in enumerate(statements):
        for field in ("wavefronts", "sectors"):
            if counts.get(field, 0) < counts.get(f"{field}_ideal", 0):
                raise Refused(f"is invalid: {where}.statements[{i}] has fewer {field} than ideal ones")
        place = tuple(counts.get(key) for key in ("file", "statement", "kind"))
        if place in seen:
            raise Refused(f"is invalid: {where}.statements repeat {counts['kind']} of the same statement")
        seen.add(place)


def check_sense(data):
    """What no schema can say."""
    seen = set()
    for i, record in enumerate(data["records"]):
        where = f"records[{i}]"
        key = record["kernel"], problem_of(record)
        if key in seen:
            raise Refused(f"is invalid: {where} repeats {record['kernel']} on the same problem")
        seen.add(key)
        check_problem(record, where)
        if "time_ms" in record:
            time = record["time_ms"]
            if not time["min"] <= time["p10"] <= time["median"] <= time["p90"]:
                raise Refused(f"is invalid: {where}.time_ms is out of order (min <= p10 <= median <= p90)")
            if time["launches"] > data["protocol"]["iterations"]:
                raise Refused(f"is invalid: {where}.time_ms.launches is more than protocol.iterations")
            if "flops" in record or not record["kernel"].startswith("ceiling/"):
                flops = record.get("flops", flops_of(record))
                expected = flops / (time["median"] * 1e-3) / 1e12
                if not math.isclose(record["tflops"], expected, rel_tol=0.01):
                    raise Refused(f"is invalid: {where}.tflops is {record['tflops']:g}, the median says {expected:g}")
        check_rounds(data, record, where)
        check_statements(record, where)
        if "score_std" in record and data["protocol"]["inputs"] != "normal":
            raise Refused(f"is invalid: {where} has a score_std, which only the inputs normal have")
        error = record.get("error")
        if error and record["status"] == "passed" and not error["rel"] <= error["tolerance"]:
            raise Refused(f"is invalid: {where} passed with an error over its tolerance")


def check_reader(data, file):
    """What is sent by readers: of one GPU, of a commit without changes, under the card's name."""
    if data["machine"]["backend"] != "cuda":
        raise Refused("is of no GPU")
    card = card_of(data["machine"]["gpu"])
    if not re.fullmatch(rf"{card}(_\d+)?\.json", Path(file).name):
        raise Refused(f"should be called {card}.json, or {card}_2.json if there is one already")
    if not any(re.fullmatch(r"commit [0-9a-f]{7,40}", note) for note in data.get("notes", ())):
        raise Refused("names no commit without changes in its notes, as scripts/fa measure --mine writes it in a checkout")


def sentences(file):
    """One sentence per results file, and whether it is valid; of a set, SET.jsonl, one per file of the set."""
    try:
        names = [f"{file}#{name}" for name in read_set(file)] if file.endswith(".jsonl") else [file]
    except Refused as problem:
        yield False, f"{file} {problem}"
        return
    for name in names:
        try:
            data = load(name, anew=True)
            check_sense(data)
            if Path(file).resolve().parent == READERS:
                check_reader(data, file)
        except Refused as problem:
            yield False, f"{name} {problem}"
        else:
            count = len(data["records"])
            yield True, f"{name}: valid, {count} record{'s' if count != 1 else ''}"


def main():
    parser = Parser("validate", __doc__, EXAMPLE)
    parser.add_argument("files", nargs="+", metavar="FILE", help="results file (JSON), or a set of them (JSONL)")
    parser.add_argument("--keep", metavar="SET.jsonl#NAME", help="put the file, if it is valid, into a set of results under this name")
    args = parser.parse_args()
    need("jsonschema")
    files, bad = args.files, 0
    if args.keep and (len(files) > 1 or not re.search(r"\.jsonl#[\w-]+$", args.keep)):
        fail("--keep takes one file, and SET.jsonl#NAME for its place")
    if args.keep:
        check_writable(args.keep)
    for file in files:
        for valid, sentence in sentences(file):
            bad += not valid
            print(sentence if valid else f"error: {sentence}", file=sys.stdout if valid else sys.stderr)
    if args.keep and not bad:
        write_json(args.keep, read_json(files[0]))
        print(f"kept as {args.keep}")
    return 1 if bad else 0
