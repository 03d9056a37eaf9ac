"""The counts that scripts/fa bounds scales and scripts/fa agree compares: the committed ones are those of this program,
they grow with seq_len as scripts/fa_tools/for_readers/limits.py says, and they are alike for every head and for both types. Every
difference is listed; scripts/fa adopt writes the counts of a changed kernel.

Usage: test_counts.py ATTENTION      ATTENTION: a program of the emulator's checked build

Example: tests/test_counts.py build/emulator/bin/attention_checked
Exit code: 0 the counts are as they should be, 1 they are not.
"""

import json
import sys
import tempfile
from pathlib import Path

from tool_test import COMPILING, ROOT, run, statements

from fa_tools.for_readers import limits
from fa_tools.tools import read_json, relative

if sys.argv[1:] in ([], ["-h"], ["--help"]):
    print(__doc__)
    sys.exit()
program = sys.argv[1]
problems = []
COMMITTED = ROOT / "bench" / "results" / "emulator" / "counts.jsonl"


def counted(*options):
    """The results file of a run of all kernels."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "counts.json")
        run(program, *options, "--no-races", "--json", file, timeout=COMPILING)
        return json.loads(file.read_text(encoding="utf-8"))


def by_problem(results):
    return {(r["kernel"], r["seq_len"], r["head_dim"]): r for r in results["records"] if r["status"] == "passed"}


def differences(old, new):
    """The counters of a record that are not those of the other, as one line."""
    counters = [f"{name} {old['counters'].get(name)} -> {count}" for name, count in new["counters"].items()
                if count != old["counters"].get(name)]
    return ", ".join(counters) or "other statements"


def kernels_of(records):
    return limits.kernels_of([{"records": list(records.values())}])


def committed_kernels(name):
    return list(dict.fromkeys(record["kernel"][:2] for record in read_json(f"{COMMITTED}#{name}")["records"]))


EARLY, PERSISTENT = map(committed_kernels, ("d64", "d64_persistent"))
# (name in the set, kernels, heads, head_dim, lengths of the committed counts). With head_dim 64 CTAs of kernels 15 and 16 have 192
# query rows, those of 16 only if there are enough of them: three heads. Tiles of K of kernel 15 have 128 keys where 256 divides the length.
LENGTHS = (("d128", [], 1, 128, "256,512"), ("d64", EARLY, 1, 64, "384,768"), ("d64_persistent", PERSISTENT, 3, 64, "768,1536"))


def compared(name, *options):
    """(the committed records, those of a run with these options), which have the same counts."""
    kept = f"{relative(COMMITTED)}#{name}"
    committed, results = by_problem(read_json(ROOT / kept)), counted(*options)
    now = by_problem(results)
    for key, record in committed.items():
        where = f"{key[0]} at seq_len {key[1]}, head_dim {key[2]}"
        if key not in now:
            problems.append(f"{where} did not pass")
        elif any(record.get(part) != now[key].get(part) for part in ("counters", "statements")):
            problems.append(f"{where}: {differences(record, now[key])} (committed in {kept})")
        source = f"kernels/{key[0]}.cu"
        there = set(statements(source))
        for counts in now.get(key, record)["statements"]:
            if counts["statement"] not in there:
                problems.append(f"{source} has no statement {counts['statement']}, which {kept} names")
    return committed, now


committed, now = {}, {}
for name, which, heads, head_dim, lengths in LENGTHS:
    old, new = compared(name, *which, "--heads", heads, "--seq-len", lengths, "--head-dim", head_dim)
    committed.update(old)
    now.update(new)
compared("d64_n256", "--seq-len", 256, "--heads", 2, "--head-dim", 64)
for name in sorted({key[0] for key in now} - {key[0] for key in committed}):
    print(f"{name} is not among the committed counts: scripts/fa bounds does not show it")

def once(kernel):
    """Whether only wavefronts do not fit, by less than a fiftieth: CTAs of a persistent kernel begin and end once, however
    long they run, and 16's write and read a flag then."""
    least, *two = sorted(kernel.records)
    first, second = (kernel.work_of_rows(length, "bf16") for length in two)
    expected, found = limits.scaled(first, two[0], second, two[1], least), kernel.work_of_rows(least, "bf16")
    return expected._replace(wavefronts=0) == found._replace(wavefronts=0) and \
        abs(expected.wavefronts / found.wavefronts - 1) < 0.02


# A third length, to test how the counts grow; several heads and the other type at the smallest that divides.
for group, few, third, small in (EARLY, 1, 128, 128), (PERSISTENT, 3, 2304, 768):
    known = {key: record for key, record in now.items() if key[0][:2] in group}
    known.update(by_problem(counted(*group, "--heads", few, "--head-dim", 64, "--seq-len", third)))
    for kernel in kernels_of(known).values():
        if kernel.misfits("bf16") and not (group is PERSISTENT and once(kernel)):
            problems.append(f"{kernel.name}, head_dim {kernel.head_dim}: {', '.join(kernel.misfits('bf16'))} do not grow "
                            "with a seq_len^2 + b seq_len")
    options = *group, "--seq-len", small, "--head-dim", 64
    heads, fp16 = (by_problem(counted(*which, *options)) for which in
                   (("--batch", 2, "--heads", 2), ("--heads", few, "--dtype", "fp16")))
    for key in heads.keys() & known.keys() & fp16.keys():
        record = heads[key]
        one, each = limits.work_of(known[key], "bf16"), limits.work_of(record, "bf16")
        # A persistent CTA begins and ends once for several heads: up to a twentieth of the wavefronts is saved.
        alike = each._replace(wavefronts=0) == one._replace(wavefronts=0) and \
            0.95 * one.wavefronts <= each.wavefronts <= one.wavefronts
        if each != one and not (group is PERSISTENT and alike):
            problems.append(f"{key[0]}: four heads are not four times one")
        if limits.work_of(fp16[key], "bf16") != limits.work_of(known[key], "bf16"):
            problems.append(f"{key[0]}: other counts for fp16")
if problems:
    print(*problems, sep="\n")
    print("If the kernels have changed on purpose, scripts/fa adopt writes the counts again.")
    sys.exit(1)
print(f"{len(now)} records")
