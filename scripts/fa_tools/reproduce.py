"""Prints what a write-up publishes beside what was measured here: percent of FlashAttention-2 for each kernel, TFLOP/s,
harmonic means over the lengths; the GPUs, the counting of operations and what corresponds to what in words.

Without --results it measures first: scripts/fa bench runs the write-up's protocol on the GPU present, for the kernels
that are named. The published figures are in bench/published.json, each with its source."""

import datetime
import math
import os
import re
import subprocess
import textwrap
from pathlib import Path

from fa_tools.compare import clip
from fa_tools.records import is_plain, load, passed
from fa_tools.tools import ROOT, Parser, Refused, fail, or_fail, read_json, run

EXAMPLE = """publications:
  from-scratch   Flash Attention from Scratch: its 16 kernels on A100 and RTX 3090
  fa3-paper      the FlashAttention-3 paper: forward fp16 on H100, head_dim 128 and 64, and its ablation
  leetcuda       LeetCUDA's README: B=1 H=8 N=8192 D=64 on RTX 3080 Laptop

examples:
  scripts/fa reproduce from-scratch                      every kernel: minutes to an hour, as slow as the slowest
  scripts/fa reproduce leetcuda 05 06 07 09 10           five kernels
  scripts/fa reproduce fa3-paper --results mine.json     measured before, or elsewhere: no GPU is needed

Exit code: 0 done, 1 wrong results, 2 bad arguments or file, 3 no GPU, or it failed, 4 set-up or build failed."""

PUBLISHED = ROOT / "bench" / "published.json"
PROTOCOLS = ROOT / "bench" / "protocols.json"
HARMONIC = "harmonic mean"
FA2 = "peer/fa2"
COLUMNS = 100
CLOCK_NOTE = "in a round the SM clock differed by more than"  # what scripts/fa bench writes


# --- Published -------------------------------------------------------------------------------------------------


def read_published():
    """{name: Publication}. Its problems are those of the protocol of the same name."""
    with or_fail("bench/published.json"):
        publications = read_json(PUBLISHED)["publications"]
    with or_fail("bench/protocols.json"):
        protocols = read_json(PROTOCOLS)["protocols"]
        return {name: Publication(name, {**publication, "problems": protocols[name]["problems"]})
                for name, publication in publications.items()}


def figures_of(entry, columns):
    """An entry's figures, each with its GPU and its problem. Of a row of a table they are a list: one for each of the columns."""
    if "figures" in entry:
        return entry["figures"]
    measure = next(name for name in ("percent_of_fa2", "tflops") if name in entry)
    return [{**column, measure: value} for column, value in zip(columns, entry[measure], strict=True)]


class Publication:
    def __init__(self, name, data):
        self.name, self.data = name, data
        self.entries = {entry["id"]: {**entry, "figures": figures_of(entry, data.get("columns"))} for entry in data["entries"]}
        self.kernel_of = {id_: pair["kernel"] for pair in data["map"] for id_ in pair["published"]}

    def of_kind(self, kind):
        return [entry for entry in self.entries.values() if entry["kind"] == kind]

    def lengths(self, head_dim):
        return sorted({p["seq_len"] for p in self.data["problems"] if p["head_dim"] == head_dim})

    def head_dims(self):
        return list(dict.fromkeys(p["head_dim"] for p in self.data["problems"]))

    def figure(self, id_, head_dim, seq_len, machine=None):
        for figure in self.entries[id_]["figures"]:
            if (figure["head_dim"], figure["seq_len"]) == (head_dim, seq_len) and machine in (None, figure["machine"]):
                return figure
        return None

    def factor(self, head_dim):
        """Operations as they count them over operations as we do, 4*B*H*N^2*D."""
        return (4 * head_dim + self.data["flops"]["extra_per_score"]) / (4 * head_dim)

    def tflops(self, id_, head_dim, seq_len, machine=None):
        """As they count."""
        figure = self.figure(id_, head_dim, seq_len, machine)
        return figure.get("tflops") if figure else None

    def percent(self, id_, head_dim, seq_len, machine=None):
        """Of FlashAttention-2 on the same GPU."""
        figure = self.figure(id_, head_dim, seq_len, machine)
        if figure and "percent_of_fa2" in figure:
            return figure["percent_of_fa2"]
        fa2 = self.figure("fa2", head_dim, seq_len, machine)
        return 100 * figure["tflops"] / fa2["tflops"] if figure and fa2 else None

    def mean(self, id_, head_dim):
        """Harmonic mean of the TFLOP/s over the lengths, where each is published."""
        return harmonic_mean([self.tflops(id_, head_dim, n) for n in self.lengths(head_dim)])


def harmonic_mean(values):
    # fsum: sum() compensates from Python 3.12 on, and a figure at a tie would then be another.
    return len(values) / math.fsum(1 / v for v in values) if values and all(values) else None


# --- Measured --------------------------------------------------------------------------------------------------


class Measured:
    """What a results file of a publication's protocol holds."""

    def __init__(self, data, publication):
        self.machine, self.protocol = data["machine"], data["protocol"]
        if self.machine["backend"] != "cuda":
            raise Refused("was made on the emulator, which has no times")
        if self.protocol.get("name") != publication.name:
            raise Refused(f"was not made by scripts/fa bench --protocol {publication.name}")
        self.short = re.sub(r"^NVIDIA (GeForce )?", "", self.machine["gpu"])
        timed = [record for record in data["records"]  # what is published here has no mask
                 if passed(record) and is_plain(record) and not record["kernel"].startswith("ceiling/")]
        if not timed:
            raise Refused("has no kernel or library that was timed")
        self.records = {(record["kernel"], record["head_dim"], record["seq_len"]): record for record in timed}
        self.library = {record["kernel"]: record["library"] for record in timed if "library" in record}
        self.notes = data.get("notes", [])

    def names(self, head_dim):
        """FlashAttention-2, other peers, then kernels."""
        names = {kernel for kernel, d, _ in self.records if d == head_dim}
        return sorted(names, key=lambda name: (name != FA2, not name.startswith("peer/"), name))

    def lengths(self, head_dim):
        return sorted({n for _, d, n in self.records if d == head_dim})

    def tflops(self, name, head_dim, seq_len):
        record = self.records.get((name, head_dim, seq_len))
        return record["tflops"] if record else None

    def mean(self, name, head_dim):
        return harmonic_mean([self.tflops(name, head_dim, n) for n in self.lengths(head_dim)])

    def percent(self, name, head_dim, seq_len):
        """Of FlashAttention-2: the median of the rounds' ratios where there are any."""
        record, fa2 = self.records.get((name, head_dim, seq_len)), self.records.get((FA2, head_dim, seq_len))
        if not record or not fa2:
            return None
        ratio = record.get("ratio", {}).get(FA2)
        return 100 * (ratio or record["tflops"] / fa2["tflops"])

    def mean_percent(self, name, head_dim):
        mean, fa2 = self.mean(name, head_dim), self.mean(FA2, head_dim)
        return 100 * mean / fa2 if mean and fa2 else None

    def display(self, name, with_library=True):
        if name not in self.library:
            return name
        library = self.library[name]
        if not with_library:  # short, as long as that tells it from the others
            same = [other for other in self.library.values() if other["implementation"] == library["implementation"]]
            return library["implementation"] if len(same) == 1 else name
        version = re.match(r"[0-9]+\.[0-9]+", library["version"])
        return f"{library['implementation']} ({library['name']}{' ' + version[0] if version else ''})"


# --- Text ------------------------------------------------------------------------------------------------------


def number(value, width=7, digits=1):
    return f"{'–':>{width}}" if value is None else f"{value:>{width}.{digits}f}"


def paragraph(heading, text):
    """A heading in the first 14 columns, text beside it."""
    return textwrap.wrap(text, COLUMNS, initial_indent=f"{heading:<14}", subsequent_indent=" " * 14,
                         break_long_words=False, break_on_hyphens=False)


def head(publication, measured):
    data, machine = publication.data, measured.machine
    limit = f", {machine['power_limit_w']:.0f} W" if machine.get("power_limit_w") else ""
    here = f"{machine['gpu']} ({machine['sm_count']} SMs, up to {machine['max_sm_clock_mhz']} MHz{limit})"
    there = " and ".join(m["gpu"] + (f" ({m['clocks']})" if "clocks" in m else "") for m in data["machines"])
    extra = [f"{100 * (publication.factor(d) - 1):.2f} % more at head_dim {d}" for d in publication.head_dims()]
    count = f"{data['flops']['text']}."
    if data["flops"]["extra_per_score"]:
        count += f" Ours: 4*D, the products only; theirs are {' and '.join(extra)}. Columns say whose count they show."
    protocol = measured.protocol
    launches = f"there {data['launches']}; "
    if "warmup" in protocol and "iterations" in protocol:
        launches += f"here {protocol['warmup']} untimed, {protocol['iterations']} timed; the median"
        if "rounds" in protocol:
            launches += f", and the median of {protocol['rounds']} rounds"
        launches += ", L2 emptied before each." if protocol.get("flush_l2") else "."
    other = " or ".join(m["short"] for m in data["machines"])
    lines = [*textwrap.wrap(f"{data['title']}: published against measured", COLUMNS),
             *textwrap.wrap(f"by {data['author']}, {data['year']}", COLUMNS), ""]
    for source in data["sources"]:
        lines += paragraph("Source", f"{source['what']}: {source['title']}, {source['url']} (read {source['read']})")
    lines += paragraph("Figures", f"{data['reading']}.")
    lines += paragraph("Published", data["measures"])
    lines += paragraph("There", f"{there}; {data['dtype']}.")
    lines += paragraph("Here", f"{here}. Another GPU than {other}: TFLOP/s differ because of that alone, "
                               "percentages say how near a kernel comes to a library on its GPU.")
    lines += paragraph("Launches", launches)
    lines += paragraph("Operations", count)
    for caveat in [*data["caveats"], *shorten(measured.notes)]:
        lines += paragraph("Mind", caveat)
    return lines


def shorten(notes):
    """Notes of the results, those of the clock (one for each problem and peer) in one sentence."""
    clocks = [note for note in notes if CLOCK_NOTE in note]
    shares = [float(share) for note in clocks for share in re.findall(r"([+-][\d.]+) %\)", note)]
    rest = [note for note in notes if CLOCK_NOTE not in note]
    if shares:
        rest.append(f"In a round the SM clock differed between a kernel and a library in {len(shares)} cases, by up to "
                    f"{max(map(abs, shares)):.0f} %: what heats the GPU more runs at a lower clock. The results file names them.")
    return rest


def reasons(publication):
    lines = ["What corresponds to what (never quite):"]
    for pair in publication.data["map"]:
        ids = pair["published"]
        span = ids[0] if len(ids) == 1 else f"{ids[0]} to {ids[-1]}"
        lines += textwrap.wrap(f"{span} ~ {pair['kernel']}: {pair['why']}", COLUMNS, initial_indent="  ",
                               subsequent_indent="    ", break_on_hyphens=False)
    return lines


def from_scratch_tables(publication, measured):
    d, n = 128, 4096
    machines = [m["id"] for m in publication.data["machines"]]
    shorts = [m["short"] for m in publication.data["machines"]]
    lines = [f"Percent of FlashAttention-2, at {n} tokens and as a harmonic mean over the lengths", "",
             f"{'':<22}{clip(measured.short, 14):>14}{'':<36}" + "".join(f"{short:>14}" for short in shorts),
             f"{'here':<22}{n:>7}{'mean':>7}  {'there':<34}" + f"{n:>7}{'mean':>7}" * len(shorts)]
    for pair in publication.data["map"]:
        lines.append("")
        for i, id_ in enumerate(pair["published"]):
            kernel = pair["kernel"] if i == 0 else None
            row = f"{'':<36}"
            if kernel:
                row = f"{kernel:<22}{number(measured.percent(kernel, d, n))}{number(measured.mean_percent(kernel, d))}"
            row += f"  {id_:>2} {clip(publication.entries[id_]['name'], 31):<31}"
            for machine in machines:
                row += number(publication.percent(id_, d, n, machine))
                row += number(publication.percent(id_, d, HARMONIC, machine))
            lines.append(row)
    factor = publication.factor(d)
    lines += ["", "TFLOP/s in both countings, and percent of FlashAttention-2", "",
              f"{'':<46}{f'{n} tokens':>16}{'harmonic mean':>18}{'% of FA2':>18}",
              f"{'':<46}{'ours':>8}{'theirs':>8}{'ours':>10}{'theirs':>8}{n:>10}{'mean':>8}"]
    for i, (machine, short) in enumerate(zip(machines, shorts)):
        at, mean = publication.tflops("fa2", d, n, machine), publication.tflops("fa2", d, HARMONIC, machine)
        lines.append(f"{'published' if i == 0 else '':<11}{'FlashAttention-2, ' + short:<35}"
                     f"{number(at / factor, 8)}{number(at, 8)}{number(mean / factor, 10)}{number(mean, 8)}")
    for i, name in enumerate(measured.names(d)):
        at, mean = measured.tflops(name, d, n), measured.mean(name, d)
        lines.append(f"{'measured' if i == 0 else '':<11}{clip(measured.display(name), 35):<35}"
                     f"{number(at, 8)}{number(at and at * factor, 8)}"
                     f"{number(mean, 10)}{number(mean and mean * factor, 8)}"
                     f"{number(measured.percent(name, d, n), 10)}{number(measured.mean_percent(name, d), 8)}")
    return lines


def fa3_tables(publication, measured):
    lines = []
    for d in publication.head_dims():
        lengths, name = publication.lengths(d), publication.data["machines"][0]["short"]

        def row(label, values, mean, fa2, tail=""):
            percent = 100 * mean / fa2 if mean and fa2 else None
            return f"  {clip(label, 37):<37}" + "".join(number(v, 7, 0) for v in values) + number(mean, 8) + \
                number(percent, 9) + tail

        lines += [f"TFLOP/s at head_dim {d}", "",
                  f"{'':<39}" + "".join(f"{n:>7}" for n in lengths) + f"{'mean':>8}{'% of FA2':>9}",
                  f"published, {name}"]
        for entry in publication.of_kind("library"):
            lines.append(row(entry["name"], [publication.tflops(entry["id"], d, n) for n in lengths],
                             publication.mean(entry["id"], d), publication.mean("fa2", d)))
        lines.append(f"measured, {measured.short}")
        for kernel in measured.names(d):
            lines.append(row(measured.display(kernel), [measured.tflops(kernel, d, n) for n in lengths],
                             measured.mean(kernel, d), measured.mean(FA2, d)))
        lines.append("measured over published, %")
        for entry, peer in [(e, e["peer"]) for e in publication.of_kind("library") if e.get("peer") in measured.names(d)]:
            ours = [measured.tflops(peer, d, n) for n in lengths]
            theirs = [publication.tflops(entry["id"], d, n) for n in lengths]
            mean = measured.mean(peer, d) if all(ours) else None
            lines.append(f"  {entry['name']:<37}"
                         + "".join(number(a and 100 * a / b, 7, 0) for a, b in zip(ours, theirs))
                         + number(mean and 100 * mean / publication.mean(entry["id"], d), 8))
        lines.append("")
    return lines + ablation_table(publication, measured)


def ablation_table(publication, measured):
    """FlashAttention-3 with and without its techniques, beside the kernels here that are without them."""
    d, n = 128, 8192
    lines = [f"What two techniques bring, head_dim {d}: there at 4 * 8448 tokens, here at {n}", "",
             f"{'there':<56}{'TFLOP/s':>8}{'% of full':>10}   {'TFLOP/s':>8}{'% of full':>10}"]
    full = next(entry for entry in publication.of_kind("ablation") if entry["id"] == "full")["figures"][0]["tflops"]
    ours_full = measured.tflops(publication.kernel_of["full"], d, n)
    for entry in publication.of_kind("ablation"):
        kernel = publication.kernel_of.get(entry["id"])
        here = measured.tflops(kernel, d, n) if kernel else None
        tflops = entry["figures"][0]["tflops"]
        lines.append(f"{clip(entry['name'], 55):<56}{tflops:>8.0f}{100 * tflops / full:>10.1f}")
        if kernel:
            lines.append(f"    {'~ ' + kernel:<52}{'':<18}   {number(here, 8, 0)}"
                         f"{number(100 * here / ours_full if here and ours_full else None, 10)}")
        else:
            lines.append("    ~ no kernel here")
    return lines


def leetcuda_tables(publication, measured):
    d, n = 64, 8192
    machine, factor = publication.data["machines"][0], publication.factor(d)

    def there(entry):
        theirs = publication.tflops(entry["id"], d, n)
        return f"{clip(entry['name'], 25):<25}{number(theirs, 7, 2)}{number(theirs / factor, 7, 2)}" + \
            number(publication.percent(entry["id"], d, n), 9)

    def here(name):
        ours = measured.tflops(name, d, n)
        label = clip(measured.display(name, with_library=False), 25)
        theirs, percent = ours and ours * factor, measured.percent(name, d, n)
        return f"  {label:<25}{number(ours, 8)}{number(theirs, 8)}{number(percent, 8)}"

    lines = [f"TFLOP/s in both countings and percent of FlashAttention-2, {n} tokens, head_dim {d}", "",
             f"{'there, ' + machine['short']:<25}{'theirs':>7}{'ours':>7}{'% of FA2':>9}"
             f"  {clip('here, ' + measured.short, 25):<25}{'ours':>8}{'theirs':>8}{'% of FA2':>9}"]
    shown = set()
    for entry in publication.entries.values():
        name = entry.get("peer") or publication.kernel_of.get(entry["id"])
        shown.add(name)
        lines.append(there(entry) + (here(name) if name else "  –"))
    lines += [" " * 48 + here(name) for name in measured.names(d) if name not in shown]
    return lines


TABLES = {"from-scratch": from_scratch_tables, "fa3-paper": fa3_tables, "leetcuda": leetcuda_tables}


# --- Command line ----------------------------------------------------------------------------------------------


def measure(name, arguments):
    """(results file, exit code) of scripts/fa bench; without a file there is nothing to print, and it has said why."""
    folder = Path(os.environ.get("RESULTS_DIR", ROOT / "results"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        fail(f"cannot create the results folder {folder} ({problem.strerror.lower()})")
    file = folder / f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H-%M-%SZ}-{name}.json"
    code = subprocess.run([ROOT / "scripts" / "fa", "bench", "--protocol", name, "--json", file, *arguments], check=False).returncode
    if not file.exists():
        raise SystemExit(code)
    print()
    return file, code


def main(argv=None):
    parser = Parser("reproduce", __doc__, EXAMPLE)
    parser.add_argument("publication", choices=TABLES, metavar="PUBLICATION", help=", ".join(TABLES))
    parser.add_argument("--results", metavar="FILE", help="what was measured (scripts/fa bench --protocol NAME --json FILE)")
    args, rest = parser.parse_known_args(argv)
    if args.results and rest:
        fail(f"with --results nothing is measured: '{' '.join(rest)}' has no meaning")
    if given := {"--json", "--protocol"} & {argument.split("=")[0] for argument in rest}:
        fail(f"{given.pop()} is for scripts/fa bench")
    file, code = (args.results, 0) if args.results else measure(args.publication, rest)
    publication = read_published()[args.publication]
    with or_fail(file):
        measured = Measured(load(file), publication)
    print("\n".join([*head(publication, measured), "", *TABLES[publication.name](publication, measured), "",
                     *reasons(publication)]))
    return code


if __name__ == "__main__":
    run(main)
