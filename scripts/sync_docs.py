#!/usr/bin/env python3
"""Writes into the Markdown what must not be typed by hand: code excerpts, diffs between kernels, measured numbers.

Between a pair of HTML comments, alone on their lines (a value: inside a line):

  <!-- excerpt: kernels/02_online_softmax.cu#main-loop -->      the lines between the comments // [main-loop] and
  <!-- /excerpt -->                                             // [/main-loop] of the source, without indentation
  <!-- diff: kernels/01_naive.cu kernels/02_online_softmax.cu -->
  <!-- /diff -->                                                a unified diff, folded
  <!-- table: bench/results/h200.json dtype=bf16 head_dim=64,128 kernel=0[1-3]_* -->
  <!-- /table -->                                               the records that match, one a row
  <!-- value: bench/results/h200.json kernel=03_register_tiling seq_len=4096 field=tflops -->34.0<!-- /value -->

A value takes a dotted field (time_ms.median, counters.global_sectors, machine.gpu), and optionally over=KERNEL (its
ratio to that kernel's), percent_of=NUMBER and format=.1f; a table takes columns=kernel,median,tflops,... to choose.
Comments inside fenced code are left alone."""

import argparse
import difflib
import fnmatch
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
from tools import ROOT, Refused, fail, markdown_files, read_results, relative  # noqa: E402

EXAMPLE = """examples:
  scripts/sync_docs.py                      rewrite every Markdown file of the checkout
  scripts/sync_docs.py --check README.md    only say what is out of date; exit code 1 if anything is"""

FENCE = re.compile(r"^\s*(```+|~~~+)")
BLOCK = re.compile(r"^<!-- (excerpt|diff|table): (.+?) -->\s*$")
VALUE = re.compile(r"(<!-- value: (.+?) -->)(.*?)(<!-- /value -->)")
MARKER = re.compile(r"^\s*(?://|#) \[(/?)([a-z0-9][a-z0-9-]*)\]\s*$")
LANGUAGES = {".cu": "cuda", ".cuh": "cuda", ".h": "cuda", ".cpp": "cpp", ".py": "python", ".sh": "bash",
             ".json": "json", ".cmake": "cmake", ".txt": "cmake"}

SHAPE = ("dtype", "batch", "heads", "seq_len", "head_dim")


# --- Sources ---------------------------------------------------------------------------------------------------


def source_lines(name):
    path = ROOT / name
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        raise Refused(f"there is no file {name}") from None


def without_markers(lines):
    return [line for line in lines if not MARKER.match(line)]


def fenced(language, lines):
    ticks = max([2, *(len(m[1]) for line in lines if (m := re.match(r"\s*(`{3,})", line)))]) + 1
    return ["`" * ticks + language, *lines, "`" * ticks]


def excerpt(spec):
    name, _, region = spec.partition("#")
    lines = source_lines(name)
    if region:
        marks = [(i, m[1]) for i, line in enumerate(lines) if (m := MARKER.match(line)) and m[2] == region]
        if [slash for _, slash in marks] != ["", "/"]:
            raise Refused(f"{name} needs exactly one pair of lines // [{region}] and // [/{region}]")
        lines = lines[marks[0][0] + 1 : marks[1][0]]
    lines = without_markers(lines)
    while lines and not lines[0].strip():
        lines.pop(0)
    while lines and not lines[-1].strip():
        lines.pop()
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return fenced(LANGUAGES.get(Path(name).suffix, ""), [line[indent:] for line in lines])


def diff(spec):
    names = spec.split()
    if len(names) != 2:
        raise Refused("a diff takes two files")
    old, new = (without_markers(source_lines(name)) for name in names)
    lines = list(difflib.unified_diff(old, new, *names, lineterm=""))
    added = sum(line.startswith("+") for line in lines[2:])
    removed = sum(line.startswith("-") for line in lines[2:])
    stems = [Path(name).stem for name in names]
    summary = f"<summary>Diff from {stems[0]} to {stems[1]}: {added} lines added, {removed} removed</summary>"
    return ["<details>", summary, "", *fenced("diff", lines), "", "</details>"]


# --- Results ---------------------------------------------------------------------------------------------------


def parse_options(spec):
    name, *words = spec.split()
    options = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise Refused(f"'{word}' is not of the form key=value")
        options[key] = value
    try:
        return read_results(ROOT / name), name, options
    except Refused as problem:
        raise Refused(f"{name} {problem}") from None


def matching(data, filters):
    for key in filters:
        if key not in ("kernel", "status", *SHAPE):
            raise Refused(f"'{key}' is no field to select by")
    for record in data["records"]:
        if all(
            any(fnmatch.fnmatchcase(str(record[key]), pattern) for pattern in value.split(","))
            for key, value in filters.items()
        ):
            yield record


def pick(record, field):
    for part in field.split("."):
        record = record.get(part) if isinstance(record, dict) else None
    return record


def short(value):
    """Three significant digits: 652, 92.1, 7.90, 0.0123."""
    return f"{value:#.3g}".rstrip(".") if abs(value) < 1000 else f"{value:.0f}"


def scientific(value):
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def grouped(value):
    return f"{value:,}"


# Column: (heading, field, how to print it, aligned right?)
COLUMNS = {
    "kernel": ("Kernel", "kernel", lambda value: f"`{value}`", False),
    "status": ("Status", "status", str, False),
    "median": ("Median ms", "time_ms.median", short, True),
    "min": ("Fastest ms", "time_ms.min", short, True),
    "p10": ("10th percentile ms", "time_ms.p10", short, True),
    "p90": ("90th percentile ms", "time_ms.p90", short, True),
    "launches": ("Launches", "time_ms.launches", str, True),
    "tflops": ("TFLOP/s", "tflops", short, True),
    "error": ("Relative error", "error.rel", scientific, True),
    "max_abs": ("Largest error", "error.max_abs", scientific, True),
    "tolerance": ("Tolerance", "error.tolerance", scientific, True),
    "registers": ("Registers", "registers", str, True),
    "spill_bytes": ("Spilled bytes", "spill_bytes", grouped, True),
    "shared_memory_bytes": ("Shared memory bytes", "shared_memory_bytes", grouped, True),
    "workspace_bytes": ("Workspace bytes", "workspace_bytes", grouped, True),
    **{field: (field, field, str, field != "dtype") for field in SHAPE},
}


def column(name):
    if name in COLUMNS:
        return COLUMNS[name]
    heading = name.replace("_", " ").capitalize()
    return heading, f"counters.{name}", grouped, True


def table(spec):
    data, name, options = parse_options(spec)
    chosen = options.pop("columns", None)
    records = list(matching(data, options))
    if not records:
        raise Refused(f"no record of {name} matches")
    if chosen:
        columns = chosen.split(",")
    else:
        columns = ["kernel", *(f for f in SHAPE if len({r[f] for r in records}) > 1), "status"]
        if data["machine"]["backend"] == "cuda":
            columns += ["median", "tflops", "error"]
        else:
            counted = {counter for record in records for counter in record.get("counters", {})}
            main = [c for c in ("global_sectors", "shared_wavefronts", "barriers", "shuffles", "exp2") if c in counted]
            columns += ["error", *main]
    parts = [column(name) for name in columns]
    rows = ["| " + " | ".join(heading for heading, *_ in parts) + " |"]
    rows.append("|" + "|".join("-:" if right else "-" for *_, right in parts) + "|")
    for record in records:
        cells = []
        for _, field, show, _ in parts:
            value = pick(record, field)
            cells.append("–" if value is None else show(value))
            if field == "status" and value != "passed":
                cells[-1] += ": " + record["reason"].replace("|", "\\|")
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def value(spec):
    data, name, options = parse_options(spec)
    if "field" not in options:
        raise Refused("a value needs field=...")
    field, over, percent_of, form = (options.pop(key, None) for key in ("field", "over", "percent_of", "format"))
    if field.split(".")[0] in ("machine", "protocol", "created"):
        result = pick(data, field)
    else:

        def one(filters):
            found = list(matching(data, filters))
            if len(found) != 1:
                raise Refused(f"{len(found)} records of {name} match instead of one")
            return pick(found[0], field)

        result = one(options)
        if over is not None and result is not None:
            result = result / (one({**options, "kernel": over}) or float("nan"))
    if result is None:
        raise Refused(f"{name} has no {field} there")
    if percent_of is not None:
        result = 100 * result / float(percent_of)
    if isinstance(result, (str, bool)):
        return str(result)
    if form:
        return format(result, form)
    return grouped(result) if isinstance(result, int) else short(result)


WRITERS = {"excerpt": excerpt, "diff": diff, "table": table}


# --- Markdown --------------------------------------------------------------------------------------------------


def synced(path, problems):
    """The file's text as it should be. `problems` gets (line number, sentence) of what differs or cannot be made."""
    text = path.read_text(encoding="utf-8")
    lines, result, i, fence = text.split("\n"), [], 0, None
    while i < len(lines):
        line, number = lines[i], i + 1
        mark = FENCE.match(line)
        if mark and (fence is None or line.strip().startswith(fence)):
            fence = None if fence else mark[1]
        block = None if fence or mark else BLOCK.match(line)
        if block:
            kind, spec = block.groups()
            closing = f"<!-- /{kind} -->"
            end = next((j for j in range(i + 1, len(lines)) if lines[j].strip() == closing), None)
            if end is None:
                problems.append((number, f"this {kind} is never closed by {closing}"))
            else:
                old = lines[i + 1 : end]
                try:
                    new = WRITERS[kind](spec)
                    if new != old:
                        problems.append((number, f"the {kind} of {spec} is out of date"))
                except Refused as problem:
                    problems.append((number, str(problem)))
                    new = old
                result += [line, *new, lines[end]]
                i = end + 1
                continue
        if not fence and not mark and "<!-- value:" in line:

            def replace(match):
                try:
                    new = value(match[2])
                except (Refused, ValueError) as problem:
                    problems.append((number, str(problem)))
                    return match[0]
                if new != match[3]:
                    problems.append((number, f"{match[3] or 'an empty value'} should be {new} ({match[2]})"))
                return match[1] + new + match[4]

            # Code spans show the comments to a reader instead of using them.
            parts = re.split(r"(`[^`]*`)", line)
            line = "".join(part if part.startswith("`") else VALUE.sub(replace, part) for part in parts)
        result.append(line)
        i += 1
    return text, "\n".join(result)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing, say what is out of date")
    parser.add_argument("files", nargs="*", metavar="FILE", help="Markdown files (default: all of the checkout)")
    args = parser.parse_args()
    bad = 0
    for path in [Path(name) for name in args.files] or markdown_files():
        problems = []
        try:
            old, new = synced(path, problems)
        except OSError as problem:
            fail(f"cannot read {path} ({problem.strerror.lower()})")
        for number, sentence in problems:
            # Without --check, drift is what gets repaired; only what cannot be repaired is worth a word.
            if args.check or " out of date" not in sentence and " should be " not in sentence:
                print(f"{relative(path)}:{number}: {sentence}", file=sys.stderr)
                bad += 1
        if not args.check and new != old:
            path.write_text(new, encoding="utf-8")
            print(f"updated {relative(path)}")
    if bad and args.check:
        print("scripts/sync_docs.py rewrites what is out of date", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
