#!/usr/bin/env python3
"""Writes into the Markdown what must not be typed by hand: code excerpts, diffs between kernels, measured numbers.

Between a pair of HTML comments, alone on their lines (a value: inside a line):

  <!-- excerpt: kernels/02_online_softmax.cu#main-loop -->      the lines between the comments // [main-loop] and
  <!-- /excerpt -->                                             // [/main-loop] of the source, without indentation
  <!-- diff: kernels/01_naive.cu kernels/02_online_softmax.cu -->
  <!-- /diff -->                                                a unified diff, folded
  <!-- output: 02_no_rescale -->                                a command and its output, from scripts/outputs.py
  <!-- /output -->
  <!-- instructions: 08_instructions 09_instructions -->        main loops side by side, from such outputs of
  <!-- /instructions -->                                        scripts/inspect.sh
  <!-- table: bench/results/h200.json dtype=bf16 head_dim=64,128 kernel=0[1-3]_* -->
  <!-- /table -->                                               the records that match, one a row (instead=FILE: where that
                                                                file has one of the same kernel and problem, its record)
  <!-- lengths: bench/results/h200_bf16_d128.json kernel=1[0-5]_* field=tflops -->
  <!-- /lengths -->                                             one figure, a kernel a row, a sequence length a column
                                                                (by=score_std: a standard deviation of the scores)
  <!-- profile: bench/results/h200_profile.json kernel=02_* metrics=cycles,dram_bytes -->
  <!-- /profile -->                                             the profiler's figures, one launch a column
                                                                (rows=launches: one launch a row)
  <!-- beside: bench/results/h200_profile_n256.json bench/results/emulator_n256.json kernel=02_* -->
  <!-- /beside -->                                              the emulator's counters beside the profiler's
  <!-- agreement: bench/results/h200_agreement.json seq_len=256 head_dim=128 -->
  <!-- /agreement -->                                           the emulator's counts over the profiler's, with reasons
                                                                (or without: reasons=no; of=memory or instructions:
                                                                some of the counts)
  <!-- limiters: bench/results/h200_agreement.json -->          which resource is the busiest, by the emulator's counts
  <!-- /limiters -->                                            and by the profiler
  <!-- solutions: 02_online_softmax 02_no_padding columns=shared_wavefronts -->
  <!-- /solutions -->                                           a kernel and solutions of its exercises
  <!-- tuning: bench/results/tuning/h200_bf16.json head_dim=128 best=8 -->
  <!-- /tuning -->                                              a search for tile sizes: the best, and what was left out
  <!-- rates: bench/results/h200_rates.json -->                 how fast single instructions are, as the program rates
  <!-- /rates -->                                               measured it
  <!-- table: bench/results/h200_gemm.json k=8192 epilogue=none -->
  <!-- /table -->                                               matrix products, as the program gemm measured them
  <!-- experiments: bench/results/h200_experiments_15_16.json boundary -->
  <!-- /experiments -->                                         variants that were measured and not kept: one group
  <!-- seconds: bench/results/checked_seconds.txt -->           what a checked run costs, from
  <!-- /seconds -->                                             scripts/checked_seconds.py
  <!-- capabilities: limits -->                              what an SM has, by compute capability; or, of a results
  <!-- /capabilities -->                                     file: `occupancy FILE`, `kernels FILE` (where they run)
  <!-- bugs: tests/broken/bugs.json summary -->                 what finds the bugs of tests/broken: in short, or
  <!-- /bugs -->                                                `passed`, `all`: a bug a row
  <!-- value: bench/results/h200.json kernel=03_register_tiling seq_len=4096 field=tflops -->34.0<!-- /value -->

  <!-- line: kernels/12_tma.cu#turn -->12_tma.cu:170<!-- /line -->     where a region of a source begins (inside a line)

A value takes a dotted field (time_ms.median, counters.global_sectors, machine.gpu), and optionally over=KERNEL (its
ratio to that kernel's; over=epilogue:none, to that of the record with another epilogue), per=FIELD (divided by another field), percent_of=NUMBER, times=NUMBER, format=.1f; in a
profile it also takes function=, and a field is a metric; in a file of the program rates it takes instruction=; in one
of experiments kernel= is an experiment's name.
percent_of=bench/results/h200_rates.json:mma.m16n8k16 is of that instruction's TFLOP/s. A table takes columns=kernel,median,tflops,... to choose.
Records of peers are taken only where kernel= names them (kernel=0*,peer/fa2); ratio.peer/fa2 is a column and a field.
Comments inside fenced code are left alone."""

import argparse
import difflib
import fnmatch
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
from experiments import read_experiments, records_of, table_of  # noqa: E402
from gemm import read_gemm  # noqa: E402
from rates import read_rates, rows_of_rates  # noqa: E402
from tools import ROOT, Refused, fail, markdown_files, read_json, read_results, read_set, relative  # noqa: E402

EXAMPLE = """examples:
  scripts/sync_docs.py                      rewrite every Markdown file of the checkout
  scripts/sync_docs.py --check README.md    only say what is out of date; exit code 1 if anything is"""

FENCE = re.compile(r"^\s*(```+|~~~+)")
VALUE = re.compile(r"(<!-- (value|line): (.+?) -->)(.*?)(<!-- /\2 -->)")
MARKER = re.compile(r"^\s*(?://|#) \[(/?)([a-z0-9][a-z0-9-]*)\]\s*$")
LANGUAGES = {".cu": "cuda", ".cuh": "cuda", ".h": "cuda", ".cpp": "cpp", ".py": "python", ".sh": "bash",
             ".json": "json", ".cmake": "cmake", ".txt": "cmake", ".patch": "diff", ".gdb": "gdb"}

SHAPE = ("dtype", "batch", "heads", "seq_len", "head_dim")
PRODUCT = ("m", "n", "k", "epilogue")  # of a matrix product, in a file of the program gemm


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
    if not name.endswith(".patch"):  # whose lines are counted
        lines = without_markers(lines)
    while lines and not lines[0].strip():
        lines.pop(0)
    while lines and not lines[-1].strip():
        lines.pop()
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return fenced(LANGUAGES.get(Path(name).suffix, ""), [line[indent:] for line in lines])


def line_of(spec):
    """Of FILE#REGION: the file and the line where the region begins."""
    name, _, region = spec.partition("#")
    found = [i for i, line in enumerate(source_lines(name), 1) if (m := MARKER.match(line)) and m[2] == region and not m[1]]
    if len(found) != 1:
        raise Refused(f"{name} needs exactly one line // [{region}]")
    return f"{Path(name).name}:{found[0] + 1}"


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


def output(spec):
    return fenced("text", source_lines(f"docs/outputs/{spec}.txt"))


def instructions(spec):
    """The main loops' instructions by kind, one output of scripts/inspect.sh a column."""
    kernels, kinds, meaning = [], [], {}
    for name in spec.split():
        lines = source_lines(f"docs/outputs/{name}.txt")
        start = next((i for i, line in enumerate(lines) if re.match(r"  Kind +For +Count +Share", line)), None)
        if start is None or not lines[0].startswith("$ scripts/inspect.sh"):
            raise Refused(f"docs/outputs/{name}.txt is not what scripts/inspect.sh shows of one kernel")
        kernels.append(lines[1].split(",")[0])
        kinds.append({})
        for line in lines[start + 1 :]:
            match = re.match(r"  (\S+) +(.*?) +([\d,]+) +[\d.]+ %", line)
            if not match:
                break
            meaning.setdefault(match[1], match[2])
            kinds[-1][match[1]] = int(match[3].replace(",", ""))
    rows = [[f"`{kind}`" + f", {what}" * bool(what), *(grouped(counts.get(kind, 0)) for counts in kinds)]
            for kind, what in meaning.items()]
    sums = [sum(counts.values()) for counts in kinds]
    rows.append(["**Sum**", *(grouped(total) for total in sums)])
    if all(counts.get("HMMA") for counts in kinds):
        rows.append(["**For each HMMA**", *(f"{total / counts['HMMA']:.1f}" for total, counts in zip(sums, kinds))])
    return list(rows_of(["", *(f"`{kernel}`" for kernel in kernels)], rows))


# --- Results ---------------------------------------------------------------------------------------------------


def parse_options(spec):
    name, *words = spec.split()
    options = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise Refused(f"'{word}' is not of the form key=value")
        options[key] = value
    return read(name, any_profile=True), name, options


def read(name, any_profile=False):
    """A results file; with `any_profile` one of scripts/profile.sh will do too, its launches as records, or one of the
    programs rates, its instructions as records, and gemm, one of experiments, or the limits of GPUs, each a record."""
    try:
        data = read_json(ROOT / name)
        if any_profile and isinstance(data, dict) and "rates_version" in data:
            data = read_rates(ROOT / name)
            data["records"] = [{"kernel": entry["name"], "instruction": entry["name"], **entry}
                               for entry in data["instructions"]]
            return data
        if any_profile and isinstance(data, dict) and "machines" in data:
            data["records"] = [{"kernel": name, "gpu": name, **entry} for name, entry in data["machines"].items()]
            return data
        if any_profile and isinstance(data, dict) and "gemm_version" in data:
            return read_gemm(ROOT / name)
        if any_profile and isinstance(data, dict) and "experiments_version" in data:
            data = read_experiments(ROOT / name)
            data["records"] = records_of(data)
            return data
        if any_profile and isinstance(data, dict) and "profile_version" in data:
            shape = {field: data[field] for field in SHAPE}
            data["records"] = [{**shape, **launch} for launch in data["launches"]]
            return data
        return read_results(ROOT / name)
    except Refused as problem:
        raise Refused(f"{name} {problem}") from None


def matching(data, filters):
    for key in filters:
        if key not in ("kernel", "status", "function", "instruction", "gpu", "score_std", "score_growth", *PRODUCT, *SHAPE):
            raise Refused(f"'{key}' is no field to select by")
    asked = any("/" in pattern for pattern in filters.get("kernel", "").split(","))
    for record in data["records"]:
        if "/" in record["kernel"] and not asked:  # peers and ceilings are not among the kernels
            continue
        if all(
            any(fnmatch.fnmatchcase(str(record.get(key)), pattern) for pattern in value.split(","))
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
    "clock": ("SM clock, MHz", "clock_mhz", lambda value: f"{value:.0f}", True),
    **{field: (field, field, str, field not in ("dtype", "epilogue")) for field in (*SHAPE, *PRODUCT)},
}


def column(name):
    if name in COLUMNS:
        return COLUMNS[name]
    if name.startswith("ratio."):
        return f"Ratio to `{name[6:]}`", name, short, True
    heading = {"exp2": "Exponentials", "shared_wavefronts_ideal": "Wavefronts without conflicts"}.get(
        name, name.replace("_", " ").capitalize()
    )
    return heading, f"counters.{name}", grouped, True


def table(spec):
    data, name, options = parse_options(spec)
    if "machine" not in data:
        raise Refused(f"{name} is a profile, which a table cannot show")
    chosen, instead = options.pop("columns", None), options.pop("instead", None)
    records = list(matching(data, options))
    if not records:
        raise Refused(f"no record of {name} matches")
    if instead:
        def same(record):
            return record["kernel"], *(record.get(field) for field in SHAPE)
        better = {same(record): record for record in matching(read(instead), options)}
        if not any(same(record) in better for record in records):
            raise Refused(f"{instead} has no record of a kernel and problem that match in {name}")
        records = [better.get(same(record), record) for record in records]
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


def lengths(spec):
    """One field of the records that match, over kernel and seq_len, or score_std; the rest of the problem must be one."""
    data, name, options = parse_options(spec)
    field, by = options.pop("field", "tflops"), options.pop("by", "seq_len")
    headings = {"seq_len": "N = {}", "score_std": "std = {:g}"}
    if by not in headings:
        raise Refused(f"a table is by={' or by='.join(headings)}, not by {by}")
    records = [record for record in matching(data, options) if by in record]
    cells = {(record["kernel"], record[by]): pick(record, field) for record in records}
    same = ["dtype", "heads", "head_dim", *({"seq_len", "score_std", "score_growth"} - {by})]
    if not records or len(cells) < len(records) or len({tuple(r.get(f) for f in same) for r in records}) > 1:
        what = "lengths" if by == "seq_len" else "standard deviations"
        raise Refused(f"{name}: the records that match are not of one problem at several {what}")
    if all(value is None for value in cells.values()):
        raise Refused(f"{name} has no {field} there")
    columns = sorted({column for _, column in cells})

    def cell(kernel, column):
        value = cells.get((kernel, column))
        return "–" if value is None else grouped(value) if isinstance(value, int) else short(value)

    return list(rows_of(["Kernel", *(headings[by].format(column) for column in columns)],
                        ([f"`{kernel}`", *(cell(kernel, column) for column in columns)]
                         for kernel in sorted({kernel for kernel, _ in cells}, key=lambda name: ("/" in name, name)))))


def number_of(text):
    """A number, or FILE:INSTRUCTION: the TFLOP/s of an instruction in a file of the program rates."""
    file, colon, instruction = text.partition(":")
    if not colon:
        return float(text)
    found = [record["tflops"] for record in read(file, any_profile=True)["records"]
             if record.get("instruction") == instruction and "tflops" in record]
    if len(found) != 1:
        raise Refused(f"{file} has no TFLOP/s of {instruction}")
    return found[0]


def value(spec):
    data, name, options = parse_options(spec)
    if "field" not in options:
        raise Refused("a value needs field=...")
    field, over, per, percent_of, times, form = (
        options.pop(key, None) for key in ("field", "over", "per", "percent_of", "times", "format")
    )
    if "launches" in data and field not in data:
        field = f"metrics.{field}"
        per = per and f"metrics.{per}"
    if field.split(".")[0] in ("machine", "protocol", "created"):
        result = pick(data, field)
    else:

        def one(filters, field=field):
            found = list(matching(data, filters))
            if len(found) != 1:
                raise Refused(f"{len(found)} records of {name} match instead of one")
            return pick(found[0], field)

        result = one(options)
        if over is not None and result is not None:
            key, colon, other = over.partition(":")
            result = result / (one({**options, **({key: other} if colon else {"kernel": over})}) or float("nan"))
        if per is not None and result is not None:
            result = result / (one(options, per) or float("nan"))
    if result is None:
        raise Refused(f"{name} has no {field} there")
    if percent_of is not None:
        result = 100 * result / number_of(percent_of)
    if times is not None:
        result = result * float(times)
    if isinstance(result, (str, bool)):
        return str(result)
    if form:
        return format(result, form)
    return grouped(result) if isinstance(result, int) else short(result)


# --- Profiles --------------------------------------------------------------------------------------------------

# What scripts/profile.sh records: heading of a row.
METRICS = {
    "cycles": "Cycles",
    "instructions": "Instructions of warps",
    "fma_instructions": "of them, on the FMA pipe",
    "issue_active_percent": "Cycles in which a scheduler issues, %",
    "warps_active_percent": "Warps resident, % of the most possible",
    "global_load_requests": "Global load requests",
    "global_load_sectors": "Global load sectors",
    "global_store_requests": "Global store requests",
    "global_store_sectors": "Global store sectors",
    "l2_sectors": "Sectors asked of L2",
    "dram_bytes": "Bytes from and to DRAM",
    "shared_load_instructions": "Shared load requests",
    "shared_store_instructions": "Shared store requests",
    "shared_load_wavefronts": "Shared load wavefronts",
    "shared_store_wavefronts": "Shared store wavefronts",
    "shared_wavefronts_percent": "L1/shared data pipe busy, %",
}
# Those that older profiles lack: shown where metrics= names them.
MORE_METRICS = {
    "tensor_active_percent": "Tensor pipe active, %",
    "tensor_mma_instructions": "mma and wgmma instructions",
    "tensor_wgmma_instructions": "wgmma instructions",
    "xu_percent": "XU pipe busy, %",
    "ldmatrix_instructions": "ldmatrix instructions",
    "cp_async_instructions": "cp.async instructions",
    "tma_load_instructions": "TMA loads",
    "tma_load_bytes": "Bytes that TMA loads bring",
    "tma_store_instructions": "TMA stores",
    "tma_store_bytes": "Bytes that TMA stores write",
    "shared_load_conflicts": "Bank conflicts of loads",
    "shared_store_conflicts": "Bank conflicts of stores",
    "l1_wavefronts": "Passes through the L1 data path",
    "l1_bank_reads_percent": "L1 banks read, %",
    "l1_bank_writes_percent": "L1 banks written, %",
    "issue_percent": "Issue slots used, %",
    "tensor_percent": "Tensor pipe busy, %",
    "hmma_percent": "Tensor pipe busy with mma, %",
    "hmma_issue_percent": "mma instructions, % of the most",
    "xu_elapsed_percent": "XU pipe busy all the time, %",
    "fma_percent": "FMA pipe busy, %",
    "alu_percent": "ALU pipe busy, %",
    "lsu_percent": "LSU pipe busy, %",
    "l2_percent": "L2 sectors, % of the most",
    "l2_throughput_percent": "L2 busy, %",
    "l2_hit_percent": "L2 hits, %",
    "dram_percent": "DRAM busy, %",
    "warps_possible_percent": "Warps possible, % of the most",
    "registers": "Registers a thread",
    "shared_memory_static_bytes": "Static shared memory, bytes",
    "shared_memory_dynamic_bytes": "Dynamic shared memory, bytes",
}


def metric_heading(metric):
    if metric.startswith("stall_"):
        return f"Stalled: {metric[6:].replace('_', ' ')}"
    if metric not in METRICS and metric not in MORE_METRICS:
        raise Refused(f"there is no metric {metric}")
    return METRICS.get(metric) or MORE_METRICS[metric]


def figure(number):
    return grouped(number) if isinstance(number, int) else f"{number:.1f}" if number >= 1 else f"{number:.2f}"


def rows_of(heading, rows):
    """A table whose first column is text and whose others are numbers."""
    yield "| " + " | ".join(heading) + " |"
    yield "|-|" + "-:|" * (len(heading) - 1)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def profile(spec):
    data, name, options = parse_options(spec)
    if "launches" not in data:
        raise Refused(f"{name} is not a profile")
    metrics = options.pop("metrics", ",".join(METRICS)).split(",")
    rows = options.pop("rows", "metrics")
    if rows not in ("metrics", "launches"):
        raise Refused(f"rows are metrics or launches, not {rows}")
    launches = list(matching(data, options))
    if not launches:
        raise Refused(f"no launch of {name} matches")
    several = len({launch["kernel"] for launch in launches}) > 1
    heading = ["", *(f"`{x['kernel']}`" + ("" if x["function"] == "attention_kernel" else f" `{x['function']}`")
                     if several else f"`{x['function']}`" for x in launches)]
    for metric in metrics:
        metric_heading(metric)  # or refused
        if missing := next((x for x in launches if metric not in x["metrics"]), None):
            raise Refused(f"{name} has no {metric} of {missing['kernel']}")
    if rows == "launches":
        return list(rows_of(["Launch", *map(metric_heading, metrics)],
                            ([name, *(figure(x["metrics"][m]) for m in metrics)] for name, x in zip(heading[1:], launches))))
    return list(rows_of(heading, ([metric_heading(m), *(figure(x["metrics"][m]) for x in launches)] for m in metrics)))


# Counter of the emulator: the metrics whose sum over a kernel's launches is the same count on the GPU.
COUNTED = {
    "global_requests": ("Global requests", ("global_load_requests", "global_store_requests")),
    "global_sectors": ("Global sectors", ("global_load_sectors", "global_store_sectors")),
    "shared_requests": ("Shared requests", ("shared_load_instructions", "shared_store_instructions")),
    "shared_wavefronts": ("Shared wavefronts", ("shared_load_wavefronts", "shared_store_wavefronts")),
}


def beside(spec):
    names, words = [w for w in spec.split() if "=" not in w], [w for w in spec.split() if "=" in w]
    if len(names) != 2:
        raise Refused("beside takes a profile and a results file of the emulator")
    data, _, options = parse_options(" ".join([names[0], *words]))
    if "launches" not in data:
        raise Refused(f"{names[0]} is not a profile")
    emulator = read(names[1])
    rows = []
    for kernel in dict.fromkeys(launch["kernel"] for launch in matching(data, options)):
        launches = [launch for launch in data["records"] if launch["kernel"] == kernel]
        shape = {field: str(data[field]) for field in SHAPE}
        found = list(matching(emulator, {"kernel": kernel, **shape}))
        if len(found) != 1 or "global_sectors" not in found[0].get("counters", {}):
            raise Refused(f"{names[1]} has no counters of {kernel} on the profile's problem")
        for counter, (heading, metrics) in COUNTED.items():
            gpu = sum(launch["metrics"][metric] for launch in launches for metric in metrics)
            ours = found[0]["counters"][counter]
            if gpu or ours:
                same = "equal" if gpu == ours else f"{100 * (ours / gpu - 1):+.1f} %" if gpu else "–"
                rows.append([f"`{kernel}`", heading, grouped(ours), grouped(gpu), same])
    if not rows:
        raise Refused(f"no launch of {names[0]} matches")
    head = ["Kernel", "", "Emulator", data["gpu"], "Difference"]
    return ["| " + " | ".join(head) + " |", "|-|-|-:|-:|-:|", *("| " + " | ".join(row) + " |" for row in rows)]


def parts_of_agreement(spec):
    """The profiles in a file of scripts/agree.py that match, and the module that knows their quantities."""
    import agreement  # needs nothing but this repository; not every call needs it

    name, *words = spec.split()
    options = dict(word.split("=", 1) for word in words if "=" in word)
    if len(options) != len(words) or not set(options) <= set(SHAPE):
        raise Refused("an agreement takes a file, and a problem: dtype=, batch=, heads=, seq_len=, head_dim=")
    try:
        data = agreement.read_agreement(ROOT / name)
    except Refused as problem:
        raise Refused(f"{name} {problem}") from None
    return agreement, [part for part in data["profiles"]
                       if all(str(part[field]) == value for field, value in options.items())]


def agreement_of(spec):
    """The emulator's count over the profiler's, a kernel a row, and below why some are not one."""
    words = spec.split()
    with_reasons, of = "reasons=no" not in words, next((w[3:] for w in words if w.startswith("of=")), "")
    agreement, parts = parts_of_agreement(" ".join(w for w in words if not w.startswith(("reasons=", "of="))))
    if len(parts) != 1:
        raise Refused(f"{len(parts)} profiles match instead of one")
    if of not in ("", "memory", "instructions"):
        raise Refused(f"an agreement is of=memory or of=instructions, not {of}")
    by_kernel = {}
    entries = [e for e in parts[0]["counts"] if not of or (e["quantity"] in agreement.MEMORY) == (of == "memory")]
    for entry in entries:
        text = agreement.ratio(entry)
        text = "equal" if text == "=" else text + " \\*" * ("reasons" in entry)
        by_kernel.setdefault(entry["kernel"], {})[entry["quantity"]] = text
    columns = [q for q in agreement.QUANTITIES if any(entry["quantity"] == q for entry in entries)]
    heading = ["Kernel", *(agreement.QUANTITIES[q][0] for q in columns)]
    lines = list(rows_of(heading, ([f"`{kernel}`", *(cells.get(q, "–") for q in columns)]
                                   for kernel, cells in by_kernel.items())))
    why = agreement.reasons(entries) if with_reasons else []
    if why:
        lines.append("")
    for kernels, quantities, reason in why:
        lines.append(f"- \\* **{', '.join(kernel[:2] for kernel in kernels)}**, {', '.join(quantities)}: {reason}.")
    return lines


def limiters(spec):
    agreement, parts = parts_of_agreement(spec)
    parts = [part for part in parts if "limiters" in part]
    if len(parts) != 1:
        raise Refused(f"{len(parts)} profiles with limiters match instead of one")
    resources = list(agreement.PERCENT)
    rows = []
    for entry in parts[0]["limiters"]:
        cells = [f"{entry['percent'][r]:.0f}" + "~" * (r in entry["calculated"]) for r in resources]
        cells[resources.index(entry["gpu"])] = f"**{cells[resources.index(entry['gpu'])]}**"
        rows.append([f"`{entry['kernel']}`", *(agreement.called(entry[who]) for who in ("emulator", "gpu")), *cells])
    return list(rows_of(["Kernel", "First limiter, emulator", "Busiest, profiler",
                         *(f"{agreement.called(r)}, %" for r in resources)], rows))


def solutions(spec):
    """The kernel's committed results and those of solutions: counters of the emulator, TFLOP/s of the H200 if all have
    been there."""
    names = [word for word in spec.split() if "=" not in word]
    options = dict(word.split("=", 1) for word in spec.split() if "=" in word)
    counters = [name for name in options.get("columns", "").split(",") if name]
    file, rows = "bench/results/solutions.jsonl", []
    known = read_set(ROOT / file)
    timed = all(f"{name}-cuda" in known for name in names)
    for name in names:
        ours = read(f"{file}#{name}")["records"][0]
        cells = [column(c)[2](pick(ours, column(c)[1])) for c in counters]
        if timed:
            cells.append(short(read(f"{file}#{name}-cuda")["records"][0]["tflops"]))
        rows.append([f"`{name}`", *cells])
    return list(rows_of(["", *(column(name)[0] for name in counters), *["H200, TFLOP/s"] * timed], rows))


def tuning(spec):
    """The choices of one head_dim, best first, the one that was taken in bold; only= takes those that match."""
    import autotune  # needs nothing but this repository; not every call needs it

    name, *words = spec.split()
    options = dict(word.split("=", 1) for word in words if "=" in word)
    if len(options) != len(words) or not {"head_dim"} <= set(options) <= {"head_dim", "best", "only"}:
        raise Refused("a tuning takes a file, head_dim=, and if you like best= and only=")
    try:
        data = autotune.read_tuning(ROOT / name)
        best = int(options.get("best", autotune.FINALISTS))
    except Refused as problem:
        raise Refused(f"{name} {problem}") from None
    except ValueError:
        raise Refused(f"best={options['best']} is not a number") from None
    head = next((head for head in data["head_dims"] if str(head["head_dim"]) == options["head_dim"]), None)
    if head is None:
        raise Refused(f"{name} has no head_dim {options['head_dim']}")
    order = [v for v in autotune.ranked(head["variants"])
             if fnmatch.fnmatchcase(autotune.as_choice(v).text(), options.get("only", "*"))][:best]
    if not order:
        raise Refused(f"no choice of {name} matches")
    rows = []
    for v in order:
        choice, times = autotune.as_choice(v), v.get("final", v["first"])
        where = "V's place" if choice.q_in_v else "registers" if choice.q_in_registers else "its own place"
        cells = [where, *map(str, (choice.warps, 16 * choice.row_tiles, choice.block_n, choice.stages, v["ctas_per_sm"],
                                   v["registers"], v["shared_memory_bytes"] // 1024)),
                 *(short(t["tflops"]) for t in times.values()), short(autotune.mean_of(t["tflops"] for t in times.values()))]
        rows.append([f"**{cell}**" for cell in cells] if v["choice"] == head["choice"] else cells)
    heading = ["Q in", "Warps", "Rows a warp", "Keys a tile", "Stages", "CTAs an SM", "Registers", "Shared memory, KiB",
               *(f"N = {n}" for n in order[0]["first"]), "Mean"]
    return [*rows_of(heading, rows), "", autotune.sentence(head)]


def rates(spec):
    try:
        return list(rows_of(*rows_of_rates(read_rates(ROOT / spec))))
    except Refused as problem:
        raise Refused(f"{spec} {problem}") from None


def experiments(spec):
    """The figures of variants that were measured and not kept, one group."""
    name, _, group = spec.partition(" ")
    try:
        head, rows, how = table_of(read_experiments(ROOT / name), group)
    except Refused as problem:
        raise Refused(f"{name} {problem}") from None
    return [*rows_of(head, rows), "", how]


# --- Bugs ------------------------------------------------------------------------------------------------------

CODE = re.compile(r"\b_*\w+\(\)|\b\w+_\w+\b|1/sqrt\(head_dim\)|log2\(e\)|\.trans\b|\bbar\.\w+|\bldmatrix\b")  # in a sentence
BUG_COUNTERS = {"shared_wavefronts": "wavefronts of shared memory", "global_sectors": "sectors of global memory"}


# Of a GPU in bench/machines.json: what a row says, its field, how the figure is printed.
LIMITS = (
    ("SMs", "sm.count", "{}"),
    ("Highest clock of an SM", "sm.clock_mhz", "{} MHz"),
    ("Warps that an SM can hold", "sm.warps", "{}"),
    ("Registers of an SM, 32 bits each", "sm.registers", "{:,}"),
    ("Shared memory of an SM", "sm.shared_kib", "{} KiB"),
    ("L2", "l2_mib", "{} MiB"),
    ("fp32 multiply-adds of an SM in a cycle", "sm.fma", "{}"),
    ("Exponentials of an SM in a cycle", "sm.exp2", "{}"),
    ("Tensor Core FLOPs of an SM in a cycle, `mma.sync`", "sm.mma_flops", "{:,.0f}"),
    ("The same, `wgmma`", "sm.wgmma_flops", "{:,}"),
    ("Bytes of L1 and shared memory, an SM in a cycle", "sm.l1_bytes", "{}"),
    ("Tensor Cores, 16-bit factors", "tflops.tensor", "{} TFLOP/s"),
    ("CUDA cores, fp32", "tflops.fp32", "{} TFLOP/s"),
    ("Shared memory, all SMs", "tb_per_s.shared", "{} TB/s"),
    ("L2", "tb_per_s.l2", "{} TB/s"),
    ("HBM", "tb_per_s.hbm", "{} TB/s"),
)


def machine(spec):
    data, name, options = parse_options(spec)
    if "machines" not in data:
        raise Refused(f"{name} has no limits of GPUs")
    found = list(matching(data, options))
    if len(found) != 1:
        raise Refused(f"{len(found)} GPUs of {name} match instead of one")
    rows = [f"| {found[0]['gpu']} | | Source |", "|-|-:|-|"]
    for what, field, form in LIMITS:
        figure_of = pick(found[0], field)
        source = pick(found[0]["sources"], field) or pick(found[0]["sources"], field.split(".")[-1])
        if figure_of is not None:
            rows.append(f"| {what} | {form.format(figure_of)} | {source.replace('|', chr(92) + '|')} |")
    return rows


def found_by(bug):
    """Of a row of tests/broken/bugs.json: the first of these that shows it, in the order in which one looks."""
    if bug["numbers"]["normal"] != "right":
        return bug["numbers"]["normal"]
    if set(bug["numbers"].values()) != {"right"}:
        return "hard"
    return "report" if "report" in bug else "counter"


def numbers_of(bug):
    """Cells for ordinary and for hard inputs."""
    shown = {"right": "right", "wrong": "**wrong**", "stops": f"**stops**: {bug.get('stops')}"}
    normal, *hard = bug["numbers"].items()
    cell = shown[normal[1]]
    if bug["early"] != normal[1]:
        cell += f"; {bug['early']} if copies come early"
    bad = [inputs for inputs, verdict in hard if verdict != "right"]
    if not bad:
        return cell, "right"
    verb = "**wrong**" if bug["numbers"][bad[0]] == "wrong" else "**stops**"
    names = "all" if len(bad) == len(hard) else ", ".join(f"`{name}`" for name in bad)
    return cell, f"{verb}: {names}"


def bug_summary(rows):
    def count(*what):
        return sum(found_by(bug) in what for bug in rows)

    right = [bug for bug in rows if bug["numbers"]["normal"] == "right"]
    early = sum(bug["early"] == "right" and bug not in right for bug in rows)
    reported = [bug for bug in rows if "report" in bug]
    yield (f"**{len(right)} of {len(rows)} bugs give right numbers on ordinary inputs**, and {early} more if asynchronous "
           f"copies happen to come early. Hard inputs show {count('hard')} of the {len(right)}, the checked build's report "
           f"{count('report')}, its counters {count('counter')}.")
    yield ""
    what = [("Numbers on ordinary inputs are wrong", count("wrong")),
            ("The launch stops on ordinary inputs: deadlock, misuse of a barrier or a product, address outside memory or misaligned", count("stops")),
            ("Only hard inputs show it", count("hard")), ("Only the checked build's report shows it", count("report")),
            ("Only the checked build's counters show it", count("counter"))]
    yield from rows_of(["What shows it first", "Bugs"], [[text, str(number)] for text, number in what])
    yield ""
    kinds = [bug["report"] for bug in reported]
    races = sum(kind.startswith("race") for kind in kinds)
    yield (f"The checked build reports {len(reported)} of them, {races} as races, with the two lines and what is missing "
           f"between them; of the other {len(rows) - len(reported)} it must not say a word.")


def bugs(spec):
    name, _, which = spec.partition(" ")
    try:
        rows = read_json(ROOT / name)
        if which == "summary":
            return list(bug_summary(rows))
        if which == "passed":
            rows = [bug for bug in rows if bug["numbers"]["normal"] == "right"]
        elif which != "all":
            raise Refused(f"'{which}' is none of summary, passed and all")
        table = []
        for bug in rows:
            chapter = f"[{bug['kernel'][:2]}]({bug['kernel']}.md#pitfalls)"
            counter = f"**{bug['ratio']:.2f}** times the {BUG_COUNTERS[bug['counter']]}" if "counter" in bug else "–"
            report = f"**{bug['report']}**" if "report" in bug else "–"
            table.append([chapter, f"`{bug['name']}`", CODE.sub(r"`\g<0>`", bug["what"]), *numbers_of(bug), report, counter])
    except Refused as problem:
        raise Refused(f"{name}: {problem}") from None
    except (KeyError, TypeError, AttributeError):
        raise Refused(f"{name} is not what the program meet writes") from None
    heading = ["Kernel", "Bug", "What is wrong", "Ordinary inputs", "Hard inputs", "Checked build reports", "It counts"]
    lines = list(rows_of(heading, table))
    lines[1] = "|" + "-|" * len(heading)  # words, not numbers
    return lines


def capabilities(spec):
    import capabilities as tables  # they need nothing but this repository; not every call needs them

    what, _, name = spec.partition(" ")
    writers = {"limits": lambda _: tables.limits_table(), "occupancy": tables.occupancy_table,
               "kernels": tables.kernels_table}
    if what not in writers or bool(name) != (what != "limits"):
        raise Refused(f"'{spec}' is none of limits, occupancy FILE and kernels FILE")
    head, line, *rows = rows_of(*writers[what](name))
    return [head, line.removesuffix("-:|") + "-|" if what == "occupancy" else line, *rows]  # it ends in words


def seconds(spec):
    """A sentence on the processor, then a kernel a row."""
    try:
        first, _, *lines = source_lines(spec)
        shape, processor = re.fullmatch(r"Processor seconds of one run at (.*), on (.*)", first).groups()
        rows = [[f"`{kernel}`", checked, quiet] for kernel, checked, quiet in map(str.split, lines)]
    except (ValueError, AttributeError):
        raise Refused(f"{spec} is not what scripts/checked_seconds.py writes") from None
    return [f"One run at `{shape}`, in seconds of processor time (all threads together, inputs and reference included; {processor}):",
            "", *rows_of(["Kernel", "Checked", "`--no-races`"], rows)]


WRITERS = {"excerpt": excerpt, "diff": diff, "output": output, "instructions": instructions, "table": table,
           "lengths": lengths, "profile": profile, "beside": beside, "agreement": agreement_of, "limiters": limiters,
           "solutions": solutions, "tuning": tuning, "rates": rates, "experiments": experiments, "bugs": bugs,
           "seconds": seconds, "capabilities": capabilities, "machine": machine}
BLOCK = re.compile(rf"^<!-- ({'|'.join(WRITERS)}): (.+?) -->\s*$")


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
        if not fence and not mark and re.search("<!-- (value|line):", line):

            def replace(match):
                before, kind, spec, old, after = match.groups()
                try:
                    new = value(spec) if kind == "value" else line_of(spec)
                except (Refused, ValueError) as problem:
                    problems.append((number, str(problem)))
                    return match[0]
                if new != old:
                    problems.append((number, f"{old or f'an empty {kind}'} should be {new} ({spec})"))
                return before + new + after

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
