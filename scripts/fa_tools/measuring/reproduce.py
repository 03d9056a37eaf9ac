"""Prints what a write-up publishes beside what was measured here: TFLOP/s, or percent of FlashAttention-2 where that is
what it publishes, since this depends less on the GPU.

Without --results it measures first: scripts/fa bench runs the write-up's protocol on the GPU present, for the kernels
that are named. The published figures are in bench/published.json, each with its source. Operations are counted as
everywhere here, 4*B*H*N^2*D; published TFLOP/s of another count are converted."""

import math
import subprocess
import textwrap

from fa_tools.records import display, kind, load, mark, order, passed
from fa_tools.tools import ROOT, Parser, Refused, fail, named, new_results_file, read_named

EXAMPLE = """publications:
  from-scratch   Flash Attention from Scratch: its 16 kernels on A100 and RTX 3090
  fa3-paper      the FlashAttention-3 paper: forward fp16 on H100, head_dim 128 and 64
  leetcuda       LeetCUDA's README: B=1 H=8 N=8192 D=64 on RTX 3080 Laptop

examples:
  scripts/fa reproduce from-scratch                      every kernel: minutes to an hour, as slow as the slowest
  scripts/fa reproduce leetcuda 05 06 07 09 10           five kernels
  scripts/fa reproduce fa3-paper --results mine.json     measured before, or elsewhere: no GPU is needed

Exit code: 0 done, 1 wrong results, 2 bad arguments or file, 3 no GPU, or it failed, 4 set-up or build failed."""

NAMES = ("from-scratch", "fa3-paper", "leetcuda")
FA2 = "peer/fa2"
MEAN = "mean"  # in place of a length: the harmonic mean over the lengths
UNITS = {"tflops": "TFLOP/s", "percent": "% of FA2"}


def read_published(name):
    return read_named(ROOT / "bench" / "published.json")["publications"][name]


def head_dims(published):
    return list(dict.fromkeys(column["head_dim"] for column in published["columns"]))


def harmonic_mean(values):
    return len(values) / math.fsum(1 / value for value in values) if values and all(values) else None


def measured(path, name):
    """The results of that publication's protocol."""
    data = load(path)
    if data["machine"]["backend"] != "cuda":
        raise Refused("was made on the emulator, which has no times")
    if data["protocol"].get("name") != name:
        raise Refused(f"was not made by scripts/fa bench --protocol {name}")
    data["records"] = [record for record in data["records"] if passed(record) and kind(record["kernel"]) != "ceiling"]
    if not data["records"]:
        raise Refused("has no kernel or library that was timed")
    return data


class Times:
    """The times of one head_dim."""

    def __init__(self, data, head_dim):
        self.records = {(record["kernel"], record["seq_len"]): record for record in data["records"] if record["head_dim"] == head_dim}
        self.kernels = sorted({kernel for kernel, _ in self.records}, key=order)
        self.lengths = sorted({seq_len for _, seq_len in self.records})

    def of(self, kernel):
        return [self.records[kernel, n] for n in self.lengths if (kernel, n) in self.records]

    def tflops(self, kernel, seq_len):
        if seq_len == MEAN:
            return harmonic_mean([self.tflops(kernel, n) for n in self.lengths])
        return self.records.get((kernel, seq_len), {}).get("tflops")

    def percent(self, kernel, seq_len):
        """Of FlashAttention-2: the median of the rounds' ratios where there are any."""
        mine, fa2 = self.tflops(kernel, seq_len), self.tflops(FA2, seq_len)
        ratio = self.records.get((kernel, seq_len), {}).get("ratio", {}).get(FA2)
        return 100 * (ratio or mine / fa2) if mine and fa2 else None


def table(published, data, head_dim, means=True):
    """Heading and rows, with means over the lengths or without. Of a kernel that corresponds to several rows the figures are in the first one."""
    show, times = published["show"], Times(data, head_dim)
    every = [(column["machine"], column["head_dim"], n) for column in published["columns"] for n in column["seq_len"]]
    columns = [(i, machine, n) for i, (machine, d, n) in enumerate(every) if d == head_dim and (means or n != MEAN)]
    lengths = list(dict.fromkeys(n for _, _, n in columns))
    count = 4 * head_dim / (4 * head_dim + published["extra_per_score"])  # our operations over theirs
    fa2 = next(row for row in published["rows"] if row.get("here") == FA2)
    several, ratio = len({machine for _, machine, _ in columns}) > 1, show == ["tflops"]

    def heading(n, unit, machine=""):
        words = [machine if several else "", n if n == MEAN else f"N = {n}", UNITS[unit] if len(show) > 1 else ""]
        return ", ".join(filter(None, words))

    def there(row, unit, i):
        if unit == "tflops":
            return row["tflops"][i] * count
        return row["percent"][i] if "percent" in row else 100 * row["tflops"][i] / fa2["tflops"][i]

    def text(value, unit):
        return "–" if value is None else f"{value:.0f}" if unit == "tflops" and value >= 100 else f"{value:.1f}"

    def here(kernel, row=None):
        of = times.of(kernel)
        is_kernel = kernel is not None and kind(kernel) == "kernel"
        name = f"`{kernel}`" if is_kernel else display(of[0]) if of else "–"
        cells = [name, *(mark(text(getattr(times, unit)(kernel, n), unit), *of) for unit in show for n in lengths)]
        if ratio and row:
            ours = harmonic_mean([times.tflops(kernel, n) for n in lengths])
            theirs = harmonic_mean([there(row, "tflops", i) for i, *_ in columns])
            cells.append(text(ours and theirs and 100 * ours / theirs, "percent"))
        return cells + [""] * (ratio and not row)

    if ratio:  # the same columns there and here, so one table below the other
        whose = {row.get("here"): row for row in published["rows"]}
        rows = [[f"{row['there']}, published", *(text(there(row, "tflops", i), "tflops") for i, *_ in columns), ""] for row in published["rows"]]
        return ["", *(heading(n, "tflops") for n in lengths), "Measured / published, %"], rows + [here(kernel, whose.get(kernel)) for kernel in times.kernels]
    rows, shown = [], set()
    for row in published["rows"]:
        kernel = row.get("here")
        cells = [row["there"], *(text(there(row, unit, i), unit) for unit in show for i, *_ in columns)]
        rows.append(cells + ([""] * (1 + len(lengths) * len(show)) if kernel in shown else here(kernel, row)))
        shown |= {kernel} - {None}
    rows += [[""] * (1 + len(columns) * len(show)) + here(kernel) for kernel in times.kernels if kernel not in shown]
    return ["Published", *(heading(n, unit, machine) for unit in show for _, machine, n in columns),
            "Measured", *(heading(n, unit) for unit in show for n in lengths)], rows


def words_of(heading):
    """The columns of a table that are text."""
    return [i for i, cell in enumerate(heading) if cell in ("Published", "Measured", "")]


def aligned(heading, rows):
    widths, words = [max(map(len, column)) for column in zip(heading, *rows)], words_of(heading)
    for row in (heading, *rows):
        yield "  ".join(cell.ljust(width) if i in words else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))).rstrip()


def report(published, data):
    """All that scripts/fa reproduce prints."""
    yield f"{published['title']}, {published['author']}, {published['year']}: published beside measured"
    extra = published["extra_per_score"]
    said = [*(f"{source['url']}, {source['title']} (read {source['read']}): {source['what']}" for source in published["sources"]),
            f"There: {published['machines']}. Here: {data['machine']['gpu']}.",
            f"Launches there: {published['launches']}. Here: the median, and that of {data['protocol'].get('rounds', 1)} rounds.",
            f"Operations for each score: there 4*D{f' + {extra}' if extra else ''}, here and below 4*D.", *published["mind"]]
    for each in said:
        yield from textwrap.wrap(each, 100, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    for head_dim in head_dims(published):
        yield f"\nhead_dim {head_dim}, {' and '.join(UNITS[unit] for unit in published['show'])}"
        yield from aligned(*table(published, data, head_dim))


def measure(name, arguments):
    """(results file, exit code) of scripts/fa bench; without results there is nothing to print, and it has said why."""
    file = new_results_file(name)
    code = subprocess.run([ROOT / "scripts" / "fa", "bench", "--protocol", name, "--json", file, *arguments], check=False).returncode
    if not file.stat().st_size:
        raise SystemExit(code)
    print()
    return file, code


def main(argv=None):
    parser = Parser("reproduce", __doc__, EXAMPLE)
    parser.usage = "scripts/fa reproduce [-h] [--results FILE] PUBLICATION [KERNEL ...]\n                           [options of scripts/fa bench]"
    parser.add_argument("publication", choices=NAMES, metavar="PUBLICATION", help=", ".join(NAMES))
    parser.add_argument("--results", metavar="FILE", help="what was measured (scripts/fa bench --protocol NAME --json FILE)")
    args, rest = parser.parse_known_args(argv)
    if args.results and rest:
        fail(f"with --results nothing is measured: '{' '.join(rest)}' has no meaning")
    if given := {"--json", "--protocol"} & {argument.split("=")[0] for argument in rest}:
        fail(f"{given.pop()} is for scripts/fa bench")
    file, code = (args.results, 0) if args.results else measure(args.publication, rest)
    with named(file):
        data = measured(file, args.publication)
    print("\n".join(report(read_published(args.publication), data)))
    return code
