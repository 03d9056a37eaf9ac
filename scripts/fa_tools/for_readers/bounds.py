"""What bounds a kernel: the least time that each resource of a GPU needs for what the emulator counted.

RESULTS are files of the emulator's checked build (default: the committed ones), with every kernel at two lengths, so
that its counts can be scaled to the problem asked for; with --program the second length is run if it is missing. The
problem is the one that the committed results of the machine were measured on, unless options say otherwise. What is
counted, and why no time can be less, is in docs/emulator/counts.md, the limits and their sources in bench/machines.json."""

import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from fa_tools.cards import BOOK, EMULATOR, cards
from fa_tools.for_readers import limits, sass
from fa_tools.numbers import short
from fa_tools.records import SHAPE as FIELDS, Shape, describe, headline_shape, load, order, passed, waiting
from fa_tools.tools import Parser, Refused, busy, fail, read_named, results_files, whole

EXAMPLE = f"""examples:
  scripts/fa bounds                                              all kernels on an {BOOK.upper()}, from committed counts
  scripts/fa bounds 08 16                                        two of them
  scripts/fa bounds results/mine.json --machine A100             your own run, two lengths (--seq-len 256,512)
  scripts/fa bounds --seq-len 1024 --batch 16 --head-dim 64 --dtype fp16

Exit code: 0 done, 1 nothing could be calculated, 2 bad arguments or file, 3 the program failed."""

# Without those at 256 tokens of head_dim 64, from which kernel 15's counts cannot be scaled (measuring/agreement.py).
COMMITTED = [path for path in results_files(f"{EMULATOR}/counts.jsonl") if not path.endswith("_n256")]
ALONE = 2  # measured more than twice the bound: not the resource decides, but overlap and latency
SHAPE = Shape("bf16", 4, 16, 4096, 128)  # without measured results


def committed_measurements():
    """The committed results of each GPU that a kernel's speed is taken from everywhere (docs/results.md)."""
    return [read_named(path, load) for card in cards() for path in results_files(f"{card}/*_d*.json")]


def run_other_length(program, kernels, data):
    """The results of `program` for these Kernels at a second, small length."""
    records = [record for kernel in kernels for record in kernel.records.values()]
    length = 256 if all(record["seq_len"] != 256 for record in records) else 512
    inputs = data["protocol"].get("inputs", "normal")
    with tempfile.TemporaryDirectory(prefix="bounds-") as folder:
        file = Path(folder) / "length.json"
        command = [program, *(kernel.name for kernel in kernels), "--batch", "1", "--heads", "1", "--seq-len", length,
                   "--head-dim", kernels[0].head_dim, "--dtype", records[0]["dtype"], "--no-races", "--inputs", inputs,
                   "--json", file]
        try:
            with busy(f"running {program} at seq_len {length}"):
                done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        except OSError as problem:
            fail(f"{program} cannot be run ({problem.strerror.lower()})", 3)
        if not file.exists():
            said = (done.stderr or done.stdout).strip().splitlines()
            why = said[-1] if said else f"exit code {done.returncode}"
            fail(f"{Path(program).name} at seq_len {length} left no results: {why}", 3)
        return load(file)


def choose_shape(args, head_dim, dtype, measured):
    """The problem: what was asked for; else the one that most kernels were measured on with this dtype and head_dim."""
    same = [record for (_, shape), record in measured.items() if (shape.dtype, shape.head_dim) == (dtype, head_dim)]
    for field in ("batch", "heads", "seq_len"):
        wish = getattr(args, field)
        same = [record for record in same if wish in (None, record[field])]
    default = headline_shape(same) if same else SHAPE
    if not same and args.seq_len and not args.batch:
        default = default._replace(batch=max(1, 16384 // args.seq_len))
    chosen = {field: getattr(args, field) or getattr(default, field) for field in FIELDS}
    return Shape(**{**chosen, "dtype": dtype, "head_dim": head_dim})


def microseconds(seconds):
    value = seconds * 1e6
    return short(value) if value else "–"


def table(name, machine, shape, rows):
    """Lines of at most 100 columns. rows: (Bound, measured record or None)."""
    sm = machine["sm"]
    yield f"What bounds it: least times in µs on {name}, {sm['count']} SMs at {sm['clock_mhz'] / 1000:g} GHz"
    yield describe(shape)
    yield ""
    headings = [*limits.RESOURCES.values()]
    yield (f"{'kernel':<22}" + "".join(f"{text:>{width}}" for text, width in zip(headings, WIDTHS))
           + f"  {'first':<9} {'TFLOP/s':>7} {'measured':>8} {'/bound':>6}")
    for bound, record in rows:
        first = limits.first_limiter(bound.seconds)
        least = bound.seconds[first]
        cells = "".join(f"{microseconds(bound.seconds[r]) if r in bound.seconds else '-':>{width}}" for r, width in zip(limits.RESOURCES, WIDTHS))
        line = (f"{bound.kernel:<22}{cells}  {limits.RESOURCES[first]:<9}"
                f" {short(limits.tflops_of(bound.shape, least)):>7}")
        if record:
            time = record["time_ms"]["median"] * 1e-3
            line += f" {microseconds(time):>8} {time / least:>5.2f}" + ("*" if time > ALONE * least else " ")
        yield line.rstrip()


WIDTHS = (7, 6, 7, 10, 6, 6)


def notes(name, machine, rows):
    beside = [(bound, record) for bound, record in rows if record]
    if not beside:
        yield f"There are no committed times of {name} on this problem."
    else:
        waiting = [bound.kernel[:2] for bound, record in beside
                   if record["time_ms"]["median"] * 1e-3 > ALONE * max(bound.seconds.values())]
        yield "measured: µs, the median of the first committed result that has the kernel; /bound: it would be 1 if nothing ever waited."
        if waiting:
            yield f"* more than twice the bound ({', '.join(waiting)}): there no resource decides, but how much of"
            yield "  the work overlaps and how long warps wait."
    if "wgmma_flops" not in machine["sm"]:
        yield "Counted with the tile sizes of compute capability 9.0 (10_instruction_tuning has others here)."


def parse_arguments(argv):
    parser = Parser("bounds", __doc__, EXAMPLE)
    add = parser.add_argument
    add("results", nargs="*", metavar="KERNEL|RESULTS",
        help="a kernel's number or name (default: all); results of the emulator's checked build (default: the committed)")
    add("--machine", default=BOOK, metavar="NAME", help=f"of bench/machines.json: {BOOK.upper()} (default), A100, RTX4090 and others")
    add("--program", metavar="PATH", help="the program that wrote RESULTS, to run a second length if one is missing")
    add("--dtype", choices=("fp16", "bf16"))
    add("--head-dim", type=int, choices=(64, 128))
    for field in ("batch", "heads"):
        add(f"--{field}", type=whole(1), metavar="N")
    add("--seq-len", type=whole(128, 128, 4194304), metavar="N")
    args = parser.parse_args(argv)
    kernels = [word for word in args.results if re.fullmatch(r"\d+(_\w+)?", word)]
    args.kernels = set(map(sass.find_kernel, kernels))
    args.results = [word for word in args.results if word not in kernels]
    if args.program and not os.access(args.program, os.X_OK):
        fail(f"{args.program} is not a program that can be run")
    return args


def main(argv=None):
    args = parse_arguments(argv)
    name, machine = limits.machine_named(args.machine)
    files = [read_named(file, load) for file in args.results or COMMITTED]
    every = [record for data in files for record in data["records"] if passed(record) and "statements" in record]
    if not every:
        raise Refused("there are no counts by line in the results; scripts/run.sh --backend emulator writes them")
    head_dim = args.head_dim or max(record["head_dim"] for record in every)
    kernels = sorted(limits.kernels_of(files, head_dim).values(), key=lambda kernel: order(kernel.name))
    changed = {name for name, _ in limits.kernels_of(files, head_dim, stale=True)}
    if not kernels:
        raise Refused("; ".join([f"no kernel of the results ran with head_dim {head_dim}", *waiting(changed)]))
    dtype = args.dtype or headline_shape(every).dtype
    counted = {kernel.name for kernel in kernels}  # results also have variants of kernels, and libraries
    committed = committed_measurements()
    measured = {key: record for key, record in limits.measured(committed, name).items() if key[0] in counted}
    shape = choose_shape(args, head_dim, dtype, measured)
    changed |= {each for each, at in limits.measured(committed, name, stale=True) if at == shape and (each, at) not in measured}
    if args.program:
        single = {k.name: k for k in kernels if len(k.records) == 1 and shape.seq_len not in k.records}
        if single:
            for record in run_other_length(args.program, [*single.values()], files[0])["records"]:
                if record["kernel"] in single and passed(record) and "statements" in record:
                    single[record["kernel"]].add(record)
    changed = {each for each in changed if each in (args.kernels or {each})}
    rows, unknown = [], []
    for kernel in kernels:
        if kernel.name not in (args.kernels or {kernel.name}):
            continue
        if not limits.runs_on(kernel, machine):
            print(f"note: {kernel.name} is left out, {name} has no wgmma", file=sys.stderr)
            continue
        record = measured.get((kernel.name, shape))
        bound = limits.bound_of(kernel, shape, machine, record and record["workspace_bytes"])
        if bound:
            rows.append((bound, record))
        else:
            unknown.append(kernel.name)
        if kernel.misfits(dtype):
            print(f"note: counts of {kernel.name} do not grow like a seq_len^2 + b seq_len; its bound is no bound",
                  file=sys.stderr)
    if args.kernels and not rows and not unknown:
        raise Refused("; ".join([f"there is nothing to calculate of {', '.join(sorted(args.kernels))}", *waiting(changed)]))
    if rows:
        print("\n".join([*table(name, machine, shape, rows), *notes(name, machine, rows),
                         *(line for sentence in waiting(changed) for line in textwrap.wrap(f"{sentence}.", 100))]))
    if unknown:
        again = " ".join([*args.results, "--program", "build/emulator-checked/bin/attention"])
        which = ", ".join(unknown) if rows else "every kernel"
        text = (f"counts of {which} at one length cannot be scaled to {shape.seq_len} tokens: run two (--seq-len 256,512), "
                f"or scripts/fa bounds {again} runs the second")
        if not rows:
            fail(text, 1)
        print(f"note: {text}", file=sys.stderr)
    return 0
