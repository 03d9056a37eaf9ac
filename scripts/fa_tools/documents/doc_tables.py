"""The tables that scripts/fa sync writes into the Markdown, each from the words of its marker: the lines, or Refused."""

import fnmatch
import re
from functools import lru_cache
from pathlib import Path

from fa_tools.cards import BOOK, EMULATOR, cards, file_named, has_file
from fa_tools.measuring import reproduce
from fa_tools.documents.figures import beyond_pictures
from fa_tools.for_readers.limits import machine_of
from fa_tools.for_readers.tasks import BEGIN, END, GROUPS, read_tasks
from fa_tools.numbers import grouped, percent, scientific, short
from fa_tools.records import (DAGGER, REST, SHAPE, bytes_of, is_plain, is_stale, kind, load, mark, neighbours, order, passed, problem_of,
                              waiting, with_solution)
from fa_tools.sources import fact
from fa_tools.tools import ROOT, Refused, named, read_json, read_results, relative, results_files

PRODUCT = ("m", "n", "k", "epilogue")  # of a matrix product, in a file of the program gemm
SELECTABLE = ("kernel", "status", "function", "instruction", "gpu", "score_std", "score_growth", *PRODUCT, *SHAPE, *REST)


# --- Cells and rows --------------------------------------------------------------------------------------------------


def rows_of(heading, rows, words=(0,)):
    """A table whose columns `words` are text and whose others are numbers."""
    yield f"| {' | '.join(heading)} |"
    yield f"|{'|'.join('-' if i in words else '-:' for i in range(len(heading)))}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def options_of(spec, allowed=None):
    """The words of a marker: those that stand alone, and {key: value} of the others."""
    names = [word for word in spec.split() if "=" not in word]
    options = dict(word.split("=", 1) for word in spec.split() if "=" in word)
    if allowed is not None and not set(options) <= set(allowed):
        raise Refused(f"this takes a file and {', '.join(f'{key}=' for key in allowed)}")
    return names, options


def one_file(spec):
    """The data of the one file that a marker names, its name, and the options."""
    names, options = options_of(spec)
    if len(names) != 1:
        raise Refused(f"{' '.join(names) or 'no file'} is not one file; options are of the form key=value")
    return read(names[0]), names[0], options


def source_lines(name):
    path = ROOT / name
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        raise Refused(f"there is no file {name}") from None


# --- Results ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=None)
def read(name):
    """A results file, by its path or as a value's comment names it. The launches of a profile, the instructions that the program rates measured, matrix products,
    experiments and the limits of GPUs are records, too."""
    path = file_named(name) or name
    with named(path):
        data = read_json(ROOT / path)
        kinds = data if isinstance(data, dict) else {}
        if "rates_version" in kinds:
            data["records"] = [{"kernel": each["name"], "instruction": each["name"], **each} for each in data["instructions"]]
        elif "machines" in kinds:
            data["records"] = [{"kernel": gpu, "gpu": gpu, **limits} for gpu, limits in data["machines"].items()]
        elif "experiments_version" in kinds:
            data["records"] = [{**entry, "kernel": entry["name"]} for entry in data["entries"]]
        elif "profile_version" in kinds:
            shape = {field: data[field] for field in SHAPE}
            data["records"] = [{**shape, **launch} for launch in data["launches"]]
        elif "gemm_version" not in kinds:
            data = with_share(with_copy(path, with_solution(path, read_results(ROOT / path))))
        return data


def matching(data, filters):
    for key in filters:
        if key not in SELECTABLE:
            raise Refused(f"'{key}' is no field to select by")
    asked = any("/" in pattern for pattern in filters.get("kernel", "").split(","))
    for record in data["records"]:
        if kind(record["kernel"]) != "kernel" and not asked:  # peers and ceilings are not among the kernels
            continue
        if not is_plain(record) and not set(REST) & set(filters):  # nor is another problem meant, unless it is named
            continue
        if all(any(fnmatch.fnmatchcase(str(record.get(key)), pattern) for pattern in value.split(","))
               for key, value in filters.items()):
            yield record


def with_copy(path, data):
    """Gives each record the GB/s of a copy, read and written: of its own file and problem, else what the same card's file beside the
    libraries has at 4096 tokens."""
    found = {problem_of(record): record["gbytes_per_s"] for record in data["records"] if "gbytes_per_s" in record}
    file = file_named(f"{Path(path).parent.name}:bf16_d128")  # of the card, whose folder it is
    if not found and file and file != path:
        found = {None: record["gbytes_per_s"] for record in matching(read(file), {"kernel": "ceiling/copy", "seq_len": "4096"})}
    for record in data["records"]:
        record["copy"] = found.get(problem_of(record), found.get(None))
    return data


def with_share(data):
    """Gives figures under load the percent of the FLOPs that all SMs could have done in as many cycles, by the sampled clock; where
    the card has wgmma, 4,096 per cycle and SM (bench/machines.json)."""
    for figures in [record["under_load"] for record in data["records"] if "under_load" in record]:
        sm = (machine_of(data["machine"]["gpu"]) or {}).get("sm", {})
        if figures["clock_mhz"] and "wgmma_flops" in sm:
            figures["share"] = 100e6 * figures["tflops"] / (data["machine"]["sm_count"] * sm["wgmma_flops"] * figures["clock_mhz"])
    return data


def copy_percent(record):
    """Of the bandwidth of a copy, what moving each tensor once would be in the record's time."""
    if "time_ms" in record and record.get("copy"):
        return bytes_of(record) / record["copy"] / record["time_ms"]["median"] / 1e4
    return None


def best_library(record):
    """The one that was the fastest beside the kernel, or None."""
    ratio = record.get("ratio", {})
    return min(ratio, key=ratio.get, default=None)


# Fields that no file has.
DERIVED = {
    "best": best_library,
    "flops": lambda record: 4 * record["batch"] * record["heads"] * record["seq_len"] ** 2 * record["head_dim"],
    "ratio.best": lambda record: record.get("ratio", {}).get(best_library(record)),
    "copy_percent": copy_percent,
}


def pick(record, field):
    """A field, or the counter or metric of this name, or what is derived."""
    if field in DERIVED:
        return DERIVED[field](record)
    for prefix in ([], ["counters"], ["metrics"]):
        value = record
        for part in [*prefix, *field.split(".")]:
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            return value
    return None


# --- Results as tables -----------------------------------------------------------------------------------------

# Column: (heading, field, how to print it)
COLUMNS = {
    "kernel": ("Kernel", "kernel", "`{}`".format),
    "status": ("Status", "status", str),
    "median": ("Median ms", "time_ms.median", short),
    "us": ("Median µs", "time_ms.median", lambda ms: short(1000 * ms)),
    "tflops": ("TFLOP/s", "tflops", short),
    "ratio.best": ("Ratio to the best library", "ratio.best", short),
    "best": ("Best library", "best", "`{}`".format),
    "copy_percent": ("Of the copy's bandwidth, %", "copy_percent", "{:.0f}".format),
    "error": ("Relative error", "error.rel", scientific),
    "registers": ("Registers", "registers", str),
    "shared_memory_bytes": ("Shared memory bytes", "shared_memory_bytes", "{:,}".format),
    "workspace_bytes": ("Workspace bytes", "workspace_bytes", "{:,}".format),
    "clock": ("SM clock, MHz", "clock_mhz", "{:.0f}".format),
    "joules": ("Joules per TFLOP", "joules_per_tflop", short),
    "share": ("Of 4,096 FLOPs per cycle and SM, %", "share", "{:.1f}".format),  # with_share()
    "exp2": ("Exponentials", "counters.exp2", "{:,}".format),
    "shared_wavefronts_ideal": ("Wavefronts without conflicts", "counters.shared_wavefronts_ideal", "{:,}".format),
    **{field: (field, field, str) for field in (*SHAPE, *REST, *PRODUCT)},
}
WORDS = ("kernel", "status", "dtype", "mask", "epilogue", "best")


def column(name):
    if name in COLUMNS:
        return COLUMNS[name]
    if name.startswith("ratio."):
        return f"Ratio to `{name[6:]}`", name, short
    if name.startswith("load."):
        title, field, show = column(name[5:])
        return f"{title}, under load", f"under_load.{field}", show
    return name.replace("_", " ").capitalize(), f"counters.{name}", "{:,}".format


def cell(record, name):
    _, field, show = column(name)
    found = pick(record, field)
    if field == "status" and found != "passed":
        return f"{found}: " + record["reason"].replace("|", "\\|")
    is_measured = name not in (*WORDS, *SHAPE, *REST, *PRODUCT) and is_stale(record)
    return "–" if found is None else show(found) + DAGGER * is_measured


def table(spec):
    names, options = options_of(spec)
    columns, records = options.pop("columns", "kernel,status").split(","), []
    for name in names:
        data = read(name)
        if "machine" not in data:
            raise Refused(f"{name} is a profile, which a table cannot show")
        records += matching(data, options)
    if not records:
        raise Refused(f"no record of {' and '.join(names) or 'no file'} matches")
    return rows_of([column(each)[0] for each in columns], ([cell(record, each) for each in columns] for record in records),
                   [i for i, each in enumerate(columns) if each in WORDS])


def lengths(spec):
    """One field of the records that match, over kernel and seq_len; of *:FILE that of each card, and below when it was measured."""
    names, options = options_of(spec)
    if len(names) == 1 and names[0].startswith("*:"):
        return of_cards(names[0][2:], options)
    return rows_of(*lengths_of(*one_file(spec)))


def of_cards(word, options):
    """The tables of each card that has this file as one, in which the cards of a kernel stand together."""
    known = [card for card in cards() if file_named(f"{card}:{word}")]
    if not known:
        raise Refused(f"no card has {word}")
    tables, said = [lengths_of(read(f"{card}:{word}"), f"{card}:{word}", dict(options)) for card in known], []
    headings = {tuple(heading) for heading, _ in tables}
    if len(headings) > 1:
        raise Refused(f"{word} has other lengths on {' than on '.join(known)}")
    (heading,) = headings
    rows = sorted(([name, card.upper(), *cells] for card, (_, rows) in zip(known, tables) for name, *cells in rows),
                  key=lambda row: (order(row[0].strip("`")), known.index(row[1].lower())))
    for card in known:
        data = read(f"{card}:{word}")
        days = sorted({record.get("run", data["created"])[:10] for record in data["records"]})
        said.append(f"{data['machine']['gpu']}: driver {data['machine']['driver']}, {' to '.join(dict.fromkeys([days[0], days[-1]]))}")
    heading, words = [heading[0], "Card", *heading[1:]], (0, 1)
    if len(known) == 1:
        heading, rows, words = heading[:1] + heading[2:], [row[:1] + row[2:] for row in rows], (0,)
    return [*rows_of(heading, rows, words), "", f"({'; '.join(said)}.)"]


def lengths_of(data, name, options):
    """(heading, rows) of such a table of one file; the rest of the problem must be one."""
    field = options.pop("field", "tflops")
    records = list(matching(data, options))
    cells = {(record["kernel"], record["seq_len"]): pick(record, field) for record in records}
    of = {(record["kernel"], record["seq_len"]): record for record in records}
    same = ["dtype", "heads", "head_dim", *REST, "score_std", "score_growth"]
    if not records or len(cells) < len(records) or len({tuple(str(r.get(f)) for f in same) for r in records}) > 1:
        raise Refused(f"{name}: the records that match are not of one problem at several lengths")
    if all(value is None for value in cells.values()):
        raise Refused(f"{name} has no {field} there")
    columns = sorted({column for _, column in cells})

    def shown(*place):
        number = cells.get(place)
        return "–" if number is None else mark(f"{number:,}" if isinstance(number, int) else short(number), of[place])

    kernels = sorted({kernel for kernel, _ in cells}, key=lambda name: (kind(name) != "kernel", name))
    return (["Kernel", *(f"N = {column}" for column in columns)],
            [[f"`{kernel}`", *(shown(kernel, column) for column in columns)] for kernel in kernels])


def solutions(spec):
    """The kernel's committed results and those of solutions: counters of the emulator, TFLOP/s of the book's card if all have
    been there."""
    names, options = options_of(spec)
    columns = [name for name in options.get("columns", "").split(",") if name]
    timed = all(has_file(BOOK, f"solutions_alone.jsonl#{name}") for name in names)

    def row(name):
        record = read(f"{EMULATOR}:solutions/{name}")["records"][0]
        cells = [cell(record, each) for each in columns]
        if timed:
            cells.append(cell(read(f"solutions_alone/{name}")["records"][0], "tflops"))
        return [f"`{name}`", *cells]

    return rows_of(["", *(column(name)[0] for name in columns), *[f"{BOOK.upper()}, TFLOP/s"] * timed], map(row, names))


# --- Tasks -----------------------------------------------------------------------------------------------------

def tasks(spec):
    """all: the tasks of scripts/fa try, a table per group. A kernel's number, or beyond/NAME: those of its chapter, in a sentence."""
    known = [task for task in read_tasks().values() if not task.bug]
    if spec != "all":
        own = [task for task in known if spec in (task.number, f"{task.number}/{Path(task.read.partition('#')[0]).stem}")]
        if not own:
            raise Refused(f"there is no task of kernel {spec}")
        names = [f"`{task.name}` ({task.minutes}{' minutes' * (not i)})" for i, task in enumerate(own)]
        yield (f"**Write it yourself.** `scripts/fa try NAME` begins a [task]({'../' * ('/' in spec)}tasks.md) that the emulator judges: "
               f"{' or '.join(filter(None, (', '.join(names[:-1]), names[-1])))}.")
        return
    for group, title in GROUPS.items():
        members = [task for task in known if task.group == group]
        if members:
            yield from ("", f"**{title}**", "")
            yield from rows_of(["Task", "What you write", "Minutes"], (
                [f"[`{task.name}`]({task.read})", task.title, str(task.minutes)] for task in members), (0, 1))
    yield ""


def schedules(spec):
    """Key tiles of the busiest SM under each rule of the picture causal_schedule, in percent of those without a mask."""
    lengths, rows = [int(word) for word in spec.split(",")], {}
    for tokens in lengths:
        heads, tiles = 16 * 16384 // tokens, tokens // beyond_pictures.TILE
        for rule in beyond_pictures.rules(heads, tiles, beyond_pictures.section_heads(tokens, heads)):
            rows.setdefault(rule.name, []).append(percent(beyond_pictures.busiest(rule), beyond_pictures.unmasked(heads, tiles), ".0f"))
    yield from rows_of(["Rule", *(f"N = {tokens}" for tokens in lengths)], ([name, *cells] for name, cells in rows.items()))


def hole(spec):
    """What the reader finds at the marked place of a task's file."""
    known = read_tasks()
    if spec not in known or known[spec].bug:
        raise Refused(f"there is no task {spec}")
    lines = known[spec].start().split("\n")
    first, last = (next(i for i, line in enumerate(lines) if f"// {mark}" in line) for mark in (BEGIN, END))
    indent = len(lines[first]) - len(lines[first].lstrip())
    return ["```cuda", *(line[indent:] for line in lines[first : last + 1]), "```"]


# --- Profiles --------------------------------------------------------------------------------------------------

# Metric of the profiler that documents show: heading of its row.
METRICS = {
    "cycles": "Cycles",
    "instructions": "Instructions of warps",
    "fma_instructions": "of them, on the FMA pipe",
    "issue_active_percent": "Cycles in which a scheduler issues, %",
    "warps_active_percent": "Warps resident, % of the most possible",
    "global_load_requests": "Global load requests",
    "global_load_sectors": "Global load sectors",
    "l2_sectors": "Sectors asked of L2",
    "dram_bytes": "Bytes from and to DRAM",
    "shared_load_instructions": "Shared load requests",
    "shared_store_instructions": "Shared store requests",
    "shared_load_wavefronts": "Shared load wavefronts",
    "shared_store_wavefronts": "Shared store wavefronts",
    "shared_wavefronts_percent": "L1/shared data pipe busy, %",
    "tensor_active_percent": "Tensor pipe active, %",
    "xu_percent": "XU pipe busy, %",
    "dram_percent": "DRAM busy, %",
}


def metric_heading(metric):
    if metric.startswith("stall_"):
        return f"Stalled: {metric[6:].replace('_', ' ')}"
    if metric not in METRICS:
        raise Refused(f"there is no metric {metric}")
    return METRICS[metric]


def profile(spec):
    data, name, options = one_file(spec)
    if "launches" not in data:
        raise Refused(f"{name} is not a profile")
    metrics, rows = options.pop("metrics", "cycles").split(","), options.pop("rows", "metrics")
    if rows not in ("metrics", "launches"):
        raise Refused(f"rows are metrics or launches, not {rows}")
    launches = list(matching(data, options))
    if not launches:
        raise Refused(f"no launch of {name} matches")
    several = len({launch["kernel"] for launch in launches}) > 1
    heading = [f"`{x['kernel']}`" + ("" if x["function"] == "attention_kernel" else f" `{x['function']}`")
               if several else f"`{x['function']}`" for x in launches]
    titles = [metric_heading(metric) for metric in metrics]
    for launch in launches:
        if missing := [metric for metric in metrics if metric not in launch["metrics"]]:
            raise Refused(f"{name} has no {missing[0]} of {launch['kernel']}")
    figures = [[mark(grouped(launch["metrics"][metric]), launch) for launch in launches] for metric in metrics]
    if rows == "launches":
        return rows_of(["Launch", *titles], ([name, *row] for name, row in zip(heading, zip(*figures))))
    return rows_of(["", *heading], ([title, *row] for title, row in zip(titles, figures)))


def parts_of_agreement(spec, *more):
    """The module that knows their quantities, the committed profiles that match, other options."""
    from fa_tools.measuring import agreement  # needs nothing but this repository; not every call needs it

    _, options = options_of(spec, (*SHAPE, *more))
    others = {key: options.pop(key) for key in more if key in options}
    return agreement, [part for part in agreement.comparison()
                       if all(str(part[field]) == value for field, value in options.items())], others


def runs(numbers):
    """01, 03–05: kernels by their numbers, neighbours together."""
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(run) for run in neighbours(sorted(numbers)))


def agreement_of(spec):
    """Of each quantity the kernels whose counts are equal, those whose are close, and the emulator's count over the
    profiler's in the others; below why."""
    agreement, parts, options = parts_of_agreement(spec, "reasons")
    if len(parts) != 1:
        raise Refused(f"{len(parts)} profiles match instead of one")
    entries, rows = parts[0]["counts"], {}
    for quantity, (title, *_) in agreement.QUANTITIES.items():
        equal, close, others = [], {}, {}
        for entry in entries:
            number, ratio, star = entry["kernel"][:2], agreement.ratio(entry), r" \*" * ("reasons" in entry)
            if entry["quantity"] != quantity:
                continue
            if ratio == "=":
                equal.append(number)
            elif agreement.is_close(entry["emulator"], entry["gpu"]) and not star:
                close[number] = ratio
            else:
                others.setdefault(ratio + star, []).append(number)
        within = f"{runs(close)}: " + " to ".join(sorted({min(close.values()), max(close.values())})) if close else "–"
        cells = runs(equal) or "–", within, ", ".join(f"{runs(numbers)}: {ratio}" for ratio, numbers in others.items()) or "–"
        if cells != ("–", "–", "–"):
            rows.setdefault(cells, []).append(title)
    yield from rows_of(["Counts", "Equal in", "Within 5 % in", "Others"], ([", ".join(titles), *cells] for cells, titles in rows.items()), range(4))
    why = agreement.reasons(entries) if options.get("reasons") != "no" else []
    if why:
        yield ""
    of_reason = {}
    for kernels, quantities, reason in why:
        of_reason.setdefault(reason, []).append(f"**{', '.join(kernel[:2] for kernel in kernels)}**, {', '.join(quantities)}")
    for reason, whose in of_reason.items():
        yield f"- \\* {'; '.join(whose)}: {reason}."
    yield from left_out(parts[0])


def left_out(part):
    for sentence in waiting(part.get("changed", [])):
        yield from ("", f"{sentence}.")


def reproduced(spec):
    """What a write-up publishes beside what was measured, for one head_dim."""
    names, options = options_of(spec, ("head_dim", "means"))
    if len(names) != 1 or names[0] not in reproduce.NAMES or not options.get("head_dim", "").isdecimal():
        raise Refused("published figures take one of " + ", ".join(reproduce.NAMES) + ", and head_dim=")
    name, head_dim, means = names[0], int(options["head_dim"]), options.get("means") != "no"
    file = file_named(f"protocols/{name}")
    with named(file):
        heading, rows = reproduce.table(reproduce.read_published(name), reproduce.measured(ROOT / file, name), head_dim, means)
    # scripts/fa reproduce also prints what corresponds to nothing that was published.
    return rows_of(heading, [row for row in rows if row[0]], reproduce.words_of(heading))


# Field of a file of experiments: heading of its column. tflops_N, mhz_N and us_N are at that length.
EXPERIMENTS = {"cycles": "Cycles", "instructions": "Instructions of warps", "l2_sectors": "Sectors read from L2",
               "spread_median": "Spread between rounds, median, %", "spread_most": "most, %", "busy": "Busy",
               "turns": "Instructions of two iterations"}
AT_LENGTH = {"tflops": "TFLOP/s", "mhz": "MHz", "us": "µs", "ratio": "Times kernel 15's speed"}


def experiment_heading(field):
    name, _, seq_len = field.partition("_")
    return f"{AT_LENGTH[name]}, N = {seq_len}" if seq_len.isdecimal() else EXPERIMENTS[field]


def experiment_figure(field, value):
    """1,103.6 k cycles, 180.2 M instructions, 651.5 TFLOP/s."""
    if field == "cycles" and value >= 10000:
        return f"{value / 1000:,.1f} k".replace(".0 k", " k")
    return f"{value / 1e6:g} M" if field in ("instructions", "l2_sectors") else f"{value:,g}"


def experiments(spec):
    """The figures of variants that were measured and not kept, one group, and how they were measured."""
    name, _, group = spec.partition(" ")
    data = read(name)
    entries = [entry for entry in data["entries"] if entry["group"] == group]
    if not entries:
        raise Refused(f"{name} has no experiments {group}")
    fields = list(dict.fromkeys(field for entry in entries for field in entry if field not in ("name", "what", "group")))
    how = next(each["how"] for each in data["groups"] if each["name"] == group)
    return [*rows_of(["", *map(experiment_heading, fields)],
                     ([entry["what"], *(experiment_figure(f, entry[f]) if f in entry else "–" for f in fields)] for entry in entries)),
            "", f"({data['gpu']}; {how}.)"]


# --- Bugs ------------------------------------------------------------------------------------------------------

CODE = re.compile(r"\b_*\w+\(\)|\b\w+_\w+\b|1/sqrt\(head_dim\)|log2\(e\)|\.trans\b|\bbar\.\w+|\bldmatrix\b")  # in a sentence
BUG_COUNTERS = {"shared_wavefronts": "wavefronts of shared memory", "global_sectors": "sectors of global memory"}


COPIES = "it-depends-on-when-copies-come"
# Section of docs/bugs.md, by its anchor: the kinds of reports that lead there (kind_of() of common/emulator/core/describe.cpp).
SECTIONS = {
    "wrong-on-ordinary-inputs": [],
    "wrong-on-hard-inputs": [],
    "it-hangs": ["deadlock dump", "warps missing in a wgmma", "loop without end"],
    "a-barrier-is-misused": ["one arrival too many", "arrival in a phase that may be over", "a phase that is two ahead",
                             "barrier out of balance", "fewer bytes expected than come", "mbarrier before its initialisation",
                             "mbarrier initialised twice", "mbarrier overwritten"],
    COPIES: ["race with a copy under way", "copies never waited for"],
    "a-race-is-reported": ["race between warps", "race within a warp", "race between CTAs", "race with a running wgmma",
                           "race with a store under way"],
    "a-fence-is-missing": ["missing proxy fence", "missing wgmma_fence", "mbarrier not visible to copies"],
    "registers-of-a-product": ["registers of a running wgmma", "registers that no wait has named", "more registers than a warp owns",
                               "setmaxnreg in the wrong role"],
    "an-address-is-wrong": ["outside shared memory", "outside global memory", "misaligned address", "read of unwritten memory",
                            "memory of a CTA that has ended", "another swizzle than that of the copy"],
    "lanes-part-ways": ["lanes in different instructions", "warps of a warpgroup in different branches", "shuffle with a lane that has left"],
    "right-but-slow": [],
}


def seen_first(bug):
    """(section of the index, kind) of a row of tests/broken/facts.json: by how its launch ends, else by the report, the counter
    or the numbers."""
    normal = bug["numbers"]["normal"]
    kind = bug["stops"] if normal == "stops" else bug.get("report", "")
    if bug["early"] != normal:
        return COPIES, kind
    for section, kinds in SECTIONS.items():
        if kind in kinds:
            return section, kind
    if kind:
        raise Refused(f"{bug['name']} is reported as '{kind}', which is in no section")
    if "counter" in bug:
        return "right-but-slow", bug["counter"]
    return f"wrong-on-{'hard' if normal == 'right' else 'ordinary'}-inputs", ""


def found_by(bug):
    """Of a row of tests/broken/facts.json: the first of these that shows it, in the order in which one looks."""
    if bug["numbers"]["normal"] != "right":
        return bug["numbers"]["normal"]
    if set(bug["numbers"].values()) != {"right"}:
        return "hard"
    return "report" if "report" in bug else "counter"


def behaviour_of(bug):
    """What one sees of it, in words: bugs that behave alike have the same."""
    normal, *hard = bug["numbers"].items()
    good = ", ".join(f"`{inputs}`" for inputs, verdict in hard if verdict == "right")
    bad = ", ".join(f"`{inputs}`" for inputs, verdict in hard if verdict != "right")
    verb = "Stops" if "stops" in bug["numbers"].values() else "Wrong"
    if not bad and normal[1] == "right":
        words = "Right on all inputs"
    elif normal[1] == "right":
        words = f"{verb} on {bad if good else 'all hard inputs'}"
    else:
        words = f"{verb}, but right on {good}" if good else f"{verb} on all inputs"
    if bug["early"] != normal[1]:
        words += f"; {bug['early']} if copies come early"
    if "stops" in bug:
        words += f"; {bug['stops']}"
    if bug.get("report", bug.get("stops")) != bug.get("stops"):
        words += f"; reported: {bug['report']}"
    return words + (f"; more {BUG_COUNTERS[bug['counter']]}" if "counter" in bug else "")


def bugs_in_short(rows):
    right = [bug for bug in rows if bug["numbers"]["normal"] == "right"]
    hard = sum(found_by(bug) == "hard" for bug in right)
    return (f"{len(right)} of {len(rows)} bugs give right numbers on ordinary inputs. Harder inputs expose {hard} of those, and the others "
            "stay invisible until the emulator watches, and counts, every access.")


def bug_summary(rows):
    def count(*what):
        return sum(found_by(bug) in what for bug in rows)

    right = [bug for bug in rows if bug["numbers"]["normal"] == "right"]
    early = sum(bug["early"] == "right" and bug not in right for bug in rows)
    reported = [bug for bug in rows if "report" in bug]
    yield (f"**{len(right)} of {len(rows)} bugs give right numbers on ordinary inputs**, and {early} more do if asynchronous "
           f"copies happen to come early. Hard inputs show {count('hard')} of the {len(right)}, the checked build's report "
           f"shows {count('report')}, and its counters show {count('counter')}. The others give wrong numbers on ordinary inputs "
           f"({count('wrong')}) or stop the launch ({count('stops')}).")
    yield ""
    kinds = [bug["report"] for bug in reported]
    races = sum(kind.startswith("race") for kind in kinds)
    yield (f"The checked build reports {len(reported)} of all, {races} as races, with the two lines and what is missing "
           f"between them; about the other {len(rows) - len(reported)} it must say nothing.")


def chapters_of(kernel):
    """Those that tell of it. Kernels of gradients share one."""
    chapters = ["beyond/backward"] if kernel.startswith("backward/") else fact(kernel, "chapters")
    return [kernel] if chapters is None else chapters


@lru_cache(maxsize=None)
def told(chapter):
    """The words of a chapter's section "Break it", among which are the names of the bugs that it tells."""
    chapter = ROOT / "docs" / f"{chapter}.md"
    text = chapter.read_text(encoding="utf-8") if chapter.is_file() else ""
    return set(re.findall(r"\w+", text.partition("\n## Break it\n")[2].partition("\n## ")[0]))


def linked(bug):
    """A bug's name, which leads to a chapter's section only if that tells it."""
    chapter = next((each for each in chapters_of(bug["kernel"]) if bug["name"] in told(each)), None)
    return f"[`{bug['name']}`]({chapter}.md#break-it)" if chapter else f"`{bug['name']}`"


def bugs(spec):
    name, _, which = spec.partition(" ")
    try:
        found = read_json(ROOT / name / "facts.json")
        if which == "summary":
            return list(bug_summary(found))
        if which == "in-short":
            return [bugs_in_short(found)]
        if which not in SECTIONS:
            raise Refused(f"'{which}' is neither summary, in-short nor a section of the index: {', '.join(SECTIONS)}")
        groups = {}
        for bug in sorted((bug for bug in found if seen_first(bug)[0] == which), key=lambda bug: bug["name"]):
            times = f" **{bug['ratio']:.2f}** times as many." if "counter" in bug else ""
            alike = groups.setdefault(behaviour_of(bug), {})
            alike.setdefault(CODE.sub(r"`\g<0>`", bug["what"]) + times, []).append(linked(bug))
    except Refused as problem:
        raise Refused(f"{name}: {problem}") from None
    except (KeyError, TypeError, AttributeError):
        raise Refused(f"{name} is not what the program meet_checked writes") from None
    # What most bugs do comes first.
    return [line for words, alike in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
            for line in ("", f"**{words}**", "", *(f"- {', '.join(names)}: {what}" for what, names in alike.items()))] + [""]


def readers(folder):
    """A row for each file that readers have sent: its card, what ran, and the fastest kernel at the longest length."""
    rows = []
    for file in results_files("*", ROOT / folder):
        data = load(file, quiet=True)
        good = [record for record in data["records"] if passed(record) and record["head_dim"] == 128 and kind(record["kernel"]) == "kernel"]
        last = [record for record in good if record["seq_len"] == max(r["seq_len"] for r in good)]
        best = max(last, key=lambda record: record["tflops"])
        limits = machine_of(data["machine"]["gpu"])
        share = f"{100 * best['tflops'] / limits['tflops']['tensor']:.0f}" if limits else "-"
        commit = next(note.removeprefix("commit ") for note in data["notes"] if note.startswith("commit "))
        rows.append([f"[{data['machine']['gpu']}](../{relative(file)})", best["dtype"], str(len({r["kernel"] for r in good})),
                     f"`{best['kernel']}`", f"{best['seq_len']:,}", mark(short(best["tflops"]), best), share, f"`{commit}`"])
    if not rows:
        return ["There is none yet: yours would be the first."]
    return rows_of(["Card", "Type", "Kernels that ran", "Fastest", "Tokens", "TFLOP/s", "% of its peak", "Commit"], rows, (0, 1, 3, 7))


TABLES = {"table": table, "lengths": lengths, "profile": profile, "agreement": agreement_of,
          "solutions": solutions, "tasks": tasks, "hole": hole, "reproduced": reproduced, "experiments": experiments,
          "bugs": bugs, "readers": readers, "schedules": schedules}
