"""Measures kernels beside other libraries ("peers") on the GPU present: in one process, on the same tensors, by the same
timer (bench/library.h).

All are launched from CUDA graphs, gradients from a queue that the GPU finds full. In every round each kernel and each peer is timed once, one after another, each after
a rest, so that no one meets the clock that the one before left behind; every second round goes backwards. With
--load-seconds two more rounds follow in which each has run so long without a pause: then a GPU at its power limit has
lowered its clock. A time is the median over the rounds of each round's median; a kernel's ratio to a peer (above 1: the
kernel is faster) is formed within each round, and then the median taken. What gives a wrong result before, in or after
the timed launches has no time. What is not here is left out with a sentence. The file is written after every problem.

The kernels are built for the GPU present first, and without --json the results are results/<time>-bench.json; with --library
neither is so."""

import argparse
import datetime
import os
import re
import shutil
import signal
import statistics
import struct
import sys
import textwrap
import time
from pathlib import Path

from fa_tools.for_readers import gradients, shapes, torch_attention
from fa_tools.for_readers.harness import Failed, Harness
from fa_tools.for_readers.torch_attention import PEERS
from fa_tools.numbers import duration, percent
from fa_tools.records import (CONVENTION, GROWTHS, HALVED, SCORES, attended_pairs, describe_rest, describe_scores,
                              flops_of, is_finding, is_plain, is_stale, kind, load, problem_of, scores_of, shape_of, short_name)
from fa_tools.sources import gradient_names, kernel_names
from fa_tools.tools import (ROOT, SCHEMA_VERSION, Parser, Refused, check_writable, fail, named, new_results_file, read_named, relative,
                            set_up, whole, write_json)

EXAMPLE = """examples:
  scripts/fa bench                                        builds, then the protocol quick
  scripts/fa bench --protocol from-scratch --repeat 2     twice, and how far the ratios spread
  scripts/fa bench 08 10 --seq-len 1024,4096 --load-seconds 2 --json mine.json
  scripts/fa bench 16 16.next --seq-len 512,4096          a kernel beside the one of kernels/next that may replace it
  scripts/fa bench plain --mask none,causal --kv-heads 4 --seq-len 4096 --peers fa3,cudnn
  scripts/fa bench causal --mask causal --window 1024,0 --seq-len 16384    what a window saves; --softcap 30 what a softcap costs
  scripts/fa bench --peers fa2,cudnn,matmul --dtype fp16 --head-dim 64
  scripts/fa bench --fp8 head --seq-len 4096              beyond/fp8 beside FlashAttention-3's and cuDNN's FP8
  scripts/fa bench 15 fp8 --fp8 none,rotated --inputs outliers   how far O is off in 16 bits and in eight
  scripts/fa bench --gradients --mask causal --seq-len 1024,4096 gradients next to FlashAttention's and cuDNN's backward
  scripts/fa bench causal split_keys --shapes 1 --in-a-row 20    problems that nobody has chosen, as a decoder's layers run
  scripts/fa bench --library build/cuda/lib/libfa_bench.so --protocol fa3-paper --dtype bf16 10
  scripts/fa bench --resume results/mine.json             the problems that an interrupted run has not measured

Environment: PYTHON (the one with PyTorch; python3), RESULTS_DIR (where results go; results/ of the checkout), CUDAARCHS
(architectures to build for).
Exit code: 0 all passed or were skipped, 1 wrong results (but of other libraries in FP8, which is a finding), 2 bad arguments, 3 the GPU or a library failed, 4 set-up or build
failed, 130 interrupted."""

SETTINGS = ("warmup", "iterations", "rounds", "max_seconds", "flush_l2", "rotating_inputs", "rest_ms",
            "load_seconds", "in_a_row")
# Of problems given on the command line, without a protocol.
DEFAULTS = {"warmup": 32, "iterations": 128, "rounds": 3, "max_seconds": 10.0, "flush_l2": False,
            "rotating_inputs": 1, "rest_ms": 100, "load_seconds": 0}
# Which changes leave a protocol what its name says.
HARMLESS = ("rounds", "max_seconds")
CLOCK_TOLERANCE = 0.03
MASKS = ("none", "causal")
FP8 = ("none", "head", "tile", "rotated")
OF_OTHERS = ("_fp8", "_backward", "_window")  # end the names of peers of other problems than O in 16 bits without a window
IN_LIBRARY = ("peer/cudnn_frontend", "ceiling/matmul", "ceiling/copy")  # peers and ceilings that need no Python


# --- What runs -------------------------------------------------------------------------------------------------


def chosen(wanted, known, problems):
    """The kernels wanted (names or numbers; none: all that may take a problem, those of FP8 for problems in FP8 alone, but for
    those of kernels/next), each once, in the order asked for."""
    ours = [name for name in known if kind(name) == "kernel"]
    for_numbered = [is_plain(problem) and problem["seq_len"] % 128 == 0 for problem in problems]
    in_fp8 = any("fp8" in problem for problem in problems)
    # Of gradients `known` has no others.
    all_ours = ours if any("gradients" in problem for problem in problems) else [name for name in ours if not name.endswith(".next") and name.startswith("beyond/fp8") == in_fp8
                and (any(for_numbered) if name[0].isdigit() else not all(for_numbered))]
    names = []
    for word in wanted or all_ours:
        name = next((k for k in ours if word in (k, short_name(k))), None)
        if name is None:
            fail(f"there is no kernel {word}; there are {', '.join(ours)}")
        names.append(name)
    return unique(names)


# --- Progress --------------------------------------------------------------------------------------------------


class Progress:
    """What is done now, and how long the rest will take if it goes on like this."""

    def __init__(self, stream, problems, now=time.monotonic, stopped=lambda: False):
        self.stopped = stopped  # whether to end here
        self.stream, self.now, self.live = stream, now, stream.isatty()
        self.flops = [flops_of(problem) for problem in problems]
        self.begin, self.done, self.label, self.told = now(), 0, "", None

    def left(self, share):
        """The seconds that the rest takes, or none before anything is done: at least and at most, because rests and checks
        take the same time for each problem, but launches as much as there is to compute."""
        done, size = self.done + share, sum(self.flops[:self.done]) + share * sum(self.flops[self.done:self.done + 1])
        if done == 0 or size == 0:
            return ()
        took = self.now() - self.begin
        return sorted((took * (len(self.flops) / done - 1), took * (sum(self.flops) / size - 1)))

    def next(self, problem):
        self.label = f"{problem['dtype']}, head_dim {problem['head_dim']}, seq_len {problem['seq_len']}{more(problem)}"

    def say(self, what, done=0, steps=1):
        """On a terminal a line that the next one overwrites; else a line for each problem and round. Raises KeyboardInterrupt if that is
        wanted: the handler of a signal cannot, where C would be above it."""
        if self.stopped():
            raise KeyboardInterrupt
        left = unique(map(duration, self.left(done / steps)))
        text = f"{self.label}: {what}" + (f", about {' to '.join(left)} left" if left else "")
        if self.live:
            print(f"\r\033[K{text[:100]} ...", end="", file=self.stream, flush=True)
        elif (part := (self.label, what.rpartition(", ")[2])) != self.told:
            self.told = part
            print(f"{text} ...", file=self.stream, flush=True)

    def clear(self):
        if self.live:
            print("\r\033[K", end="", file=self.stream, flush=True)

    def note(self, text):
        self.clear()
        print(text, file=self.stream, flush=True)


def unique(things):
    return list(dict.fromkeys(things))


# --- Records ---------------------------------------------------------------------------------------------------


def more(problem):
    """What of a problem is more than dtype and shape, in words."""
    return describe_rest(shape_of(problem)) + describe_scores(scores_of(problem))


def describe(problem):
    return (f"{problem['dtype']}, batch {problem['batch']}, heads {problem['heads']}, seq_len {problem['seq_len']}, "
            f"head_dim {problem['head_dim']}{more(problem)}")


def is_kernel(record):
    return kind(record["kernel"]) == "kernel"


def is_peer(record):
    return kind(record["kernel"]) == "peer"


def passed(records, which=lambda record: True):
    return [record for record in records if record["status"] == "passed" and which(record)]


def rounds_of(times):
    return times.get("round_ms") or [times["time_ms"]["median"]]


def add_ratios(records):
    """To every kernel that passed its speed over that of every peer that passed, in bursts and under load: of each
    round, then the median."""
    def ratios(part):
        return {peer["kernel"]: statistics.median(p / k for p, k in zip(rounds_of(part(peer)), rounds_of(part(kernel))))
                for peer in passed(records, is_peer)}
    for kernel in passed(records, is_kernel):
        if found := ratios(lambda record: record):
            kernel["ratio"] = found
            if "under_load" in kernel:
                kernel["under_load"]["ratio"] = ratios(lambda record: record["under_load"])


def place(record):
    """Kernels by number, then peers, then ceilings."""
    return not is_kernel(record), not is_peer(record), record["kernel"]


def measure_problem(harness, runners, missing, problem, protocol, progress):
    """The records of one problem, those of what is missing too. `runners`: names, and the TorchPeer of those that have
    one."""
    for peer in filter(None, runners.values()):
        peer.take(problem)
    progress.next(problem)
    records = harness.measure(list(runners), problem, protocol, progress.say)
    progress.done += 1
    rest = {} if is_plain(problem) else {"attended_pairs": attended_pairs(problem)}
    records += [{"kernel": name, **problem, **rest, "status": "skipped", "reason": why} for name, why in missing.items()]
    records.sort(key=place)
    add_ratios(records)
    return records


def by_problem(records):
    groups = {}
    for record in records:
        groups.setdefault(problem_of(record), []).append(record)
    return groups.values()


def clock_notes(records):
    """A sentence for every problem and peer beside which a kernel ran at another clock in the same round."""
    notes = []
    for here in by_problem(records):
        for peer in passed(here, is_peer):
            apart = []
            for kernel in passed(here, is_kernel):
                pairs = [pair for pair in zip(kernel.get("round_clock_mhz", []), peer.get("round_clock_mhz", []))
                         if None not in pair]
                worst = max(pairs, key=lambda pair: abs(pair[0] / pair[1] - 1), default=None)
                if worst and abs(worst[0] / worst[1] - 1) > CLOCK_TOLERANCE:
                    apart.append(f"{kernel['kernel']} ({worst[0]:.0f} against {worst[1]:.0f} MHz, "
                                 f"{percent(worst[0] / worst[1] - 1, form='+.1f')})")
            if apart:
                notes.append(f"{describe(peer)}: in a round the SM clock differed by more than "
                             f"{percent(CLOCK_TOLERANCE, form='.0f')} from that of {peer['kernel']} with "
                             f"{', '.join(apart)}.")
    return notes


def spread_note(runs):
    """How far the runs of one protocol lie apart: of every ratio and every time the largest over the smallest."""
    ratios, times = {}, {}
    for record in (record for records in runs for record in passed(records)):
        kernel, problem = record["kernel"], describe(record)
        times.setdefault((kernel, None, problem), []).append(record["time_ms"]["median"])
        for peer, ratio in record.get("ratio", {}).items():
            ratios.setdefault((kernel, peer, problem), []).append(ratio)

    def widest(values, what):
        apart = {key: max(each) / min(each) - 1 for key, each in values.items() if len(each) == len(runs)}
        if not apart:
            return None
        kernel, peer, problem = key = max(apart, key=apart.get)
        who = kernel + (f" to {peer}" if peer else "")
        return (f"{what} at most {percent(apart[key], form='.2f')} ({who}, {problem}), "
                f"in the median {percent(statistics.median(apart.values()), form='.2f')}")

    parts = [part for part in (widest(ratios, "ratios spread by"), widest(times, "times by")) if part]
    return f"{len(runs)} runs: {'; '.join(parts) or 'nothing passed in all of them'}."


# --- Output ----------------------------------------------------------------------------------------------------

WIDTH = 100


def of_ceiling(record, records):
    """The record's share of the matrix product's TFLOP/s: of each round, then the median; None without a ceiling."""
    ceiling = next(iter(passed(records, lambda r: r["kernel"] == "ceiling/matmul")), None)
    if ceiling is None or "flops" not in ceiling or record is ceiling or "tflops" not in record:
        return None
    share = flops_of(record) / ceiling["flops"]
    return statistics.median(share * c / k for c, k in zip(rounds_of(ceiling), rounds_of(record)))


def number(value, form):
    return "" if value is None else format(value, form)


def speed_of(part):
    return f"{part['gbytes_per_s']:.0f} GB/s" if "gbytes_per_s" in part else number(part.get("tflops"), ".1f")


def table(records, load_seconds=0):
    """Lines of at most 100 columns: of each problem the peers and ceilings, then the kernels with their ratio to
    each peer; then the same under load."""
    peers = sorted({record["kernel"] for record in passed(records, is_peer)})
    titles = [f"{peer[5:][:8]:>5}" for peer in peers]
    width = max([len(record["kernel"]) for record in records] + [20])

    def rows(here, columns, part_of):
        for record in sorted(here, key=lambda r: (is_kernel(r), *place(r))):
            line = f"{record['kernel']:<{width}} "
            if record["status"] != "passed":
                line += f"{record['status']}: {record['reason']}"
                yield line if len(line) <= WIDTH else line[:WIDTH - 4] + " ..."
                continue
            part = part_of(record)
            ratios = (number(part.get("ratio", {}).get(peer), ".3f") for peer in peers)
            yield " ".join([line.rstrip().ljust(width), *columns(record, part), *(
                f"{ratio:>{len(title)}}" for ratio, title in zip(ratios, titles))]).rstrip()[:WIDTH]

    def burst(record, part):
        ms = part["time_ms"]
        return (f"{ms['median']:>9.4f}", f"{(ms['p90'] - ms['p10']) / ms['median']:>7.1%}", f"{speed_of(part):>7}",
                f"{number(of_ceiling(record, records_of(record)), '.1%'):>7}", f"{number(part['clock_mhz'], '.0f'):>4}")

    def loaded(_, part):
        return (f"{part['time_ms']['median']:>9.4f}", f"{number(part['power_w'], '.0f'):>7}", f"{speed_of(part):>7}",
                f"{number(part.get('joules_per_tflop'), '.2f'):>7}", f"{number(part['clock_mhz'], '.0f'):>4}")

    def records_of(record):
        return next(here for here in by_problem(records) if record in here)

    def head(*names):
        return " ".join([f"{'kernel':<{width}}", *(f"{name:>{size}}" for name, size in zip(names, (9, 7, 7, 7, 4))), *titles])

    lines = [head("median ms", "p10-p90", "TFLOP/s", "ceiling", "MHz")[:WIDTH]]
    for here in by_problem(records):
        lines += ["", *textwrap.wrap(describe(here[0]), WIDTH), *rows(here, burst, lambda record: record)]
    if any("under_load" in record for record in records):
        lines += ["", f"After {load_seconds:g} s without a pause:", "",
                  head("median ms", "W", "TFLOP/s", "J/TFLOP", "MHz")[:WIDTH]]
        for here in by_problem(records):
            lines += ["", *textwrap.wrap(describe(here[0]), WIDTH), *rows(here, loaded, lambda record: record["under_load"])]
    return lines


def table_of_rounding(records):
    """Lines of what eight bits cost: how far O is off, and what rounding takes beside a copy; none without a problem in FP8."""
    if not any("fp8" in record for record in records):
        return
    width = max([len(record["kernel"]) for record in records] + [20])
    titles = ("own error", "with rounding", "RMSE", "rounding ms", "GB/s", "copy")
    yield from ("", " ".join([f"{'in eight bits':<{width}}", *(f"{title:>{len(title) + 2}}" for title in titles)]))
    for here in by_problem(records):
        copy = next((record["gbytes_per_s"] for record in passed(here) if "gbytes_per_s" in record), None)
        rows = []
        for record in here:
            error, ms = record.get("error", {}), record.get("rounding_ms")
            if "rmse" in error:
                speed = ms and record["rounding_bytes"] / ms * 1e-6
                own = None if is_peer(record) else error["rel"]
                cells = (number(own, ".2e"), number(error["rel_unrounded"], ".2e"), number(error["rmse"], ".2e"), number(ms, ".4f"),
                         number(speed, ".0f"), number(speed and copy and speed / copy, ".1%"))
                rows.append(" ".join([f"{record['kernel']:<{width}}", *(
                    f"{text:>{len(title) + 2}}" for text, title in zip(cells, titles))]).rstrip())
        if rows:
            yield from ("", describe(here[0]), *rows)


def table_of_gradients(records):
    """Lines of how far gradients are off; none without one."""
    if not any("of_gradients" in record.get("error", {}) for record in records):
        return
    width = max([len(record["kernel"]) for record in records] + [20])
    titles = (*gradients.NAMES, "of what is allowed")
    yield from ("", " ".join([f"{'norm of the error':<{width}}", *(f"{title:>{max(9, len(title) + 2)}}" for title in titles)]))
    for here in by_problem(records):
        yield from ("", describe(here[0])[:WIDTH])
        for record in here:
            if of := record.get("error", {}).get("of_gradients"):
                cells = (*(number(of[name], ".2e") for name in gradients.NAMES), number(record["error"]["bound_ratio"], ".0%"))
                yield " ".join([f"{record['kernel']:<{width}}", *(
                    f"{text:>{max(9, len(title) + 2)}}" for text, title in zip(cells, titles))]).rstrip()


def legend(records):
    """What stands for which library, and what the columns mean."""
    libraries = {record["kernel"]: record["library"] for record in passed(records) if "library" in record}
    lines = [f"{name}: {library['implementation']} of {library['name']} {library['version']}"
             for name, library in sorted(libraries.items())]
    if any(of_ceiling(record, here) for here in by_problem(records) for record in passed(here)):
        lines.append("ceiling: share of the TFLOP/s of ceiling/matmul")
    if any("ratio" in record for record in records):
        lines.append("columns of peers: the kernel's speed over the peer's, above 1 the kernel is faster")
    more_there = [flops_of(record, HALVED) / flops_of(record) - 1 for record in passed(records)
                  if "mask" in record and flops_of(record)]
    if more_there:
        lines.append("TFLOP/s: of the pairs that the mask leaves; FlashAttention's own count is up to "
                     f"{percent(max(more_there, key=abs), form='+.2f')} off")
    if any("gradients" in record for record in passed(records)):
        lines.append("gradients: TFLOP/s of five products; O and log-sum-exp are there before the clock starts")
    if any("fp8" in record for record in passed(records)):
        lines.append("FP8: without the rounding of Q, K and V, which comes before the clock starts and is timed by itself")
    if any("rounding_ms" in record for record in records):
        lines.append("GB/s of rounding: 16 bits in, twice where a scale is per head (V's always is), and e4m3 out")
    return lines


def plainly(word):
    """A word of the command line without folders of this machine outside of the checkout."""
    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    if value.startswith(("/", "~")):
        path = Path(value)
        value = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    return option + equals + value


def results(created, command, machine, protocol, records, notes, complete=True):
    return {"schema_version": SCHEMA_VERSION, "created": created, "command": [plainly(word) for word in command],
            **({} if complete else {"complete": False}), "machine": machine, "protocol": protocol, "records": records,
            "notes": notes}


# --- What an interrupted run has measured --------------------------------------------------------------------------


def without_files(words):
    """Arguments without those that name files and what builds them."""
    words, kept, left_out = iter(words), [], ("--json", "--library", "--resume", "--toolkit")
    for word in words:
        if word in left_out:
            next(words, None)
        elif word.partition("=")[0] not in left_out:
            kept.append(word)
    return kept


def read_begun(file):
    with named(relative(file)):
        data = load(file, quiet=True)
        if data.get("complete", True):
            raise Refused("is complete: there is nothing to resume")
        return data


def check_begun(data, machine, args, names, missing):
    """Refused if what was measured is not what would be measured now."""
    here = [problem_of(problem) for problem in args.problems]
    of_problem = {}
    for record in data["records"]:
        of_problem.setdefault(problem_of(record), set()).add(record["kernel"])
    differences = {
        "another machine": data["machine"] != machine,
        "another protocol": data["protocol"] != args.settings or not set(of_problem) <= set(here),
        "other kernels or libraries": any(there != names for there in of_problem.values())
                                      or any(record["kernel"] in missing for record in passed(data["records"])),
        "kernels that have changed since": any(map(is_stale, data["records"])),
    }
    for what, differs in differences.items():
        if differs:
            raise Refused(f"cannot be resumed: it is of {what}")


def check_same(before, records):
    """Refused if a kernel or library that passed is not the one of the problems before."""
    known = {record["kernel"]: record for record in passed(before)}
    for record in passed(records):
        there = known.get(record["kernel"], record)
        if any(record.get(field) != there.get(field) for field in ("source", "library")):
            raise Refused(f"cannot be resumed: {record['kernel']} has another source or version now")


# --- Command line ----------------------------------------------------------------------------------------------


def one_of(words):
    def parse(text):
        if text not in words:
            raise argparse.ArgumentTypeError(f"{text!r} is not {' or '.join(words)}")
        return text

    return parse


def several(parse):
    def parse_all(text):
        found = [parse(part) for part in text.split(",") if part]
        if not found:
            raise argparse.ArgumentTypeError("at least one is needed")
        return found

    return parse_all


def positive(text):
    if re.fullmatch(r"\d{1,6}(\.\d+)?", text) and float(text) > 0:
        return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")


def window(text):
    """[left, right], or None of a window that hides nothing."""
    if not re.fullmatch(r"(-1|\d{1,9}),(-1|\d{1,9})", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not two whole numbers from -1 to 999999999 with a comma between them")
    sides = [int(side) for side in text.split(",")]
    return None if sides == [-1, -1] else sides


def softcap(text):
    """In fp32, as kernels get it and records have it, or None."""
    if text == "0":
        return None
    if number := struct.unpack("f", struct.pack("f", positive(text)))[0]:
        return number
    raise argparse.ArgumentTypeError(f"{text!r} is nothing in fp32")


def read_protocols():
    return read_named(ROOT / "bench" / "protocols.json")["protocols"]


def with_signs(argv):
    """The arguments with `--window -1,0` as one word: argparse takes the second word for an option."""
    kept = []
    for word in argv:
        if kept and kept[-1] == "--window" and word.startswith("-1,"):
            word = f"{kept.pop()}={word}"
        kept.append(word)
    return kept


def peer_names():
    """What --peers knows: {short name: kernel of the records}."""
    return {**{name: f"peer/{name}" for name in PEERS}, **{name.split("/")[1]: name for name in IN_LIBRARY}}


def parse_arguments(argv):
    protocols, known = read_protocols(), peer_names()
    parser = Parser("bench", __doc__, "protocols (bench/protocols.json):\n" + "".join(
        f"  {name:<13} {protocol['description']}\n" for name, protocol in protocols.items()) + "\n" + EXAMPLE)
    add = parser.add_argument
    add("kernels", nargs="*", metavar="KERNEL", help="names or numbers, e.g. 08_swizzle 10 (default: all)")
    add("--library", type=Path, metavar="FILE", help="a library fa_bench that was built before: nothing is built")
    add("--toolkit", choices=("auto", "system", "wheels"), default="auto", metavar="NAME",
        help="which nvcc: auto, system (the machine's), or wheels (from NVIDIA's Python wheels, in .toolkit)")
    add("--protocol", choices=tuple(protocols), metavar="NAME",
        help=f"{', '.join(protocols)} (default: quick, unless a problem is given)")
    add("--peers", metavar="LIST", help=f"some of {', '.join(known)}, or none (default: with --fp8 those in FP8, with --gradients those with a backward, else the others)")
    problem = parser.add_argument_group("problems (with --protocol: which of its own; --dtype instead of its own)")
    problem.add_argument("--shapes", type=whole(1), metavar="SEED",
                         help=f"{shapes.COUNT} problems as servers have them, drawn by this seed; no other goes with it")
    problem.add_argument("--dtype", choices=("fp16", "bf16"), help="default bf16")
    problem.add_argument("--head-dim", type=int, choices=(64, 96, 128, 256), help="default 128; few kernels take 96 and 256")
    problem.add_argument("--heads", type=whole(1), metavar="N", help="default 16")
    problem.add_argument("--seq-len", type=several(whole(1)), metavar="LIST", help="512,1024 (default 4096)")
    sequences = problem.add_mutually_exclusive_group()
    sequences.add_argument("--batch", type=whole(1), metavar="N", help="default: 16384/seq_len")
    sequences.add_argument("--tokens", type=whole(128), metavar="N",
                           help="instead of --batch: as many sequences as have so many tokens (default 16384)")
    problem.add_argument("--mask", type=several(one_of(MASKS)), metavar="LIST",
                         help="none, causal (query i sees keys up to i + kv-len - q-len), or both (default none)")
    problem.add_argument("--window", type=window, metavar="L,R",
                         help="query i sees the keys from i + kv-len - q-len - L to i + kv-len - q-len + R; -1: all on that side (default -1,-1)")
    problem.add_argument("--softcap", type=softcap, metavar="C",
                         help="a score s becomes C tanh(s / C), before a mask (default 0, for none)")
    problem.add_argument("--gradients", action="store_const", const="any",
                         help="gradients of Q, K and V from that of O, instead of O; needs PyTorch")
    problem.add_argument("--deterministic", action="store_true", help="of gradients those that have the same bits in each launch")
    problem.add_argument("--fp8", type=several(one_of(FP8)), metavar="LIST",
                         help="kernels and peers in FP8, which round the inputs before the clock starts: head (a scale per head), "
                              "tile (per 128 rows of Q and K), rotated (and those rotated before); several: one after another, among "
                              "them none, for kernels in 16 bits that are named")
    problem.add_argument("--q-len", type=whole(1), metavar="N", help="queries of a sequence (default: --seq-len)")
    problem.add_argument("--kv-len", type=whole(1), metavar="N", help="keys of a sequence (default: --seq-len)")
    problem.add_argument("--kv-heads", type=whole(1), metavar="N", help="heads of K and V (default: --heads)")
    problem.add_argument("--lengths", type=several(whole(0)), metavar="LIST",
                         help="one packed batch of sequences of these lengths: 384,17")
    problem.add_argument("--kv-lengths", type=several(whole(0)), metavar="LIST", help="of their keys (default: --lengths)")
    problem.add_argument("--inputs", default="normal", metavar="NAME",
                         help="what to run on, as the programs' --inputs (default normal)")
    problem.add_argument("--score-std", type=several(positive), metavar="LIST",
                         help="scale normal inputs so that scores have this standard deviation, in nats: 1,10,100")
    problem.add_argument("--score-growth", type=several(one_of(GROWTHS)), metavar="LIST",
                         help="the same for all keys, growing with the key's index, or both: flat,growing (default flat)")
    how = parser.add_argument_group("protocol (default: that of --protocol, else as given here)")
    d = DEFAULTS
    how.add_argument("--rounds", type=whole(2), metavar="N", help=f"of bursts, at least 2 (default {d['rounds']})")
    how.add_argument("--warmup", type=whole(0), metavar="N", help=f"untimed launches (default {d['warmup']})")
    how.add_argument("--iters", type=whole(1), dest="iterations", metavar="N",
                     help=f"timed launches (default {d['iterations']})")
    how.add_argument("--max-seconds", type=positive, metavar="S",
                     help=f"of timing a kernel in a round; slow ones get fewer launches (default {d['max_seconds']:g})")
    cold = how.add_mutually_exclusive_group()
    cold.add_argument("--flush-l2", action="store_true", default=None,
                      help="empty the L2 cache before every timed launch")
    cold.add_argument("--warm", action="store_false", dest="flush_l2", help="do not (default)")
    how.add_argument("--rotate", type=whole(1, most=64), dest="rotating_inputs", metavar="N",
                     help="sets of tensors that take turns (default 1)")
    how.add_argument("--in-a-row", type=whole(2, most=1000), dest="in_a_row", metavar="N",
                     help="time N launches together, as the layers of a model follow each other (default: each by itself)")
    how.add_argument("--rest-ms", type=lambda text: 0 if text == "0" else positive(text), metavar="MS",
                     help=f"let the GPU idle so long before a kernel's warm-up in each round (default {d['rest_ms']})")
    how.add_argument("--load-seconds", type=lambda text: 0 if text == "0" else positive(text), metavar="S",
                     help=f"two more rounds, after so long without a pause (default {d['load_seconds']}: none)")
    how.add_argument("--seed", type=whole(0), default=1, metavar="N", help="of the inputs (default 1)")
    add("--repeat", type=whole(1), default=1, metavar="N",
        help="run everything N times and say how far the ratios spread (run 2 goes into FILE-2.json)")
    add("--json", type=Path, metavar="FILE", help=f"write the results (bench/schema.json, version {SCHEMA_VERSION})")
    add("--resume", type=Path, metavar="FILE",
        help="go on with the run of FILE, which was interrupted; nothing else goes with it but --library and --toolkit")
    args = parser.parse_args(with_signs(argv))
    args.begun = None
    if resume := args.resume:
        if without_files(argv) or args.json:
            fail("--resume takes everything from its file: nothing else goes with it but --library and --toolkit")
        begun = read_begun(resume)
        resumed = parse_arguments(["--json", str(resume), *without_files(begun["command"][1:])])
        resumed.library, resumed.toolkit, resumed.repeat, resumed.begun = args.library, args.toolkit, 1, begun
        return resumed
    args.kernels = [word for words in args.kernels for word in words.split(",") if word]
    if args.peers is None:
        of = "_backward" if args.gradients else "_fp8" if set(args.fp8 or ()) - {"none"} else None
        args.peers = ",".join(peer for peer in known if (peer.endswith(of) if of else not peer.endswith(OF_OTHERS) or args.window and peer.endswith("_window")))
    args.peers = [] if args.peers == "none" else unique(word for word in args.peers.split(",") if word)
    for peer in args.peers:
        if peer not in known:
            fail(f"there is no peer {peer}; known are {', '.join(known)}, or none")
        if peer.endswith("_backward") != bool(args.gradients):
            fail(f"the peer {peer} {'goes only' if peer.endswith('_backward') else 'does not go'} with --gradients")
    if args.json:
        check_writable(args.json)
    if args.score_growth and not args.score_std:
        fail("--score-growth belongs to --score-std: say how far scores spread")
    if max(args.score_std or [0]) > 1000:
        fail("--score-std must be above 0 and at most 1000")
    check_lengths(args)
    if args.deterministic:
        args.gradients = args.gradients and "deterministic" or fail("--deterministic goes only with --gradients")
    args.problems, args.settings = choose(args, protocols)
    if args.gradients:
        check_gradients(args)
    args.written = ""  # what is in the file that was written last
    return args


def scores_wanted(args):
    """The fields of problems that differ in nothing else."""
    return [dict(zip(SCORES, (std, growth))) for growth in unique(args.score_growth or GROWTHS[:1])
            for std in unique(args.score_std or [])] or [{}]


def check_lengths(args):
    """Lengths and heads are said in one way, and fit each other."""
    if args.kv_heads and (args.heads or 16) % args.kv_heads:
        fail(f"--kv-heads must divide --heads, which are {args.heads or 16}, not be {args.kv_heads}")
    if args.kv_lengths and len(args.kv_lengths) != len(args.lengths or []):
        fail(f"--kv-lengths needs as many numbers as --lengths, {len(args.lengths or [])}, not {len(args.kv_lengths)}")
    if args.lengths and not (sum(args.lengths) and sum(args.kv_lengths or args.lengths)):
        fail("--lengths must have a sum above 0")
    for name in ("batch", "tokens", "seq_len", "q_len", "kv_len") if args.lengths else ():
        if getattr(args, name) is not None:
            fail(f"--{name.replace('_', '-')} does not go with --lengths, which has all sequences")


def check_gradients(args):
    """What gradients are not measured with."""
    for option, given in (("--fp8", args.fp8), ("--window", args.window), ("--softcap", args.softcap), ("--lengths", args.lengths), ("--inputs", args.inputs != "normal"),
                          ("--score-growth", args.score_growth), ("--flush-l2", args.settings["flush_l2"]),
                          ("--rotate", args.settings["rotating_inputs"] > 1), ("--load-seconds", args.settings["load_seconds"]),
                          ("--in-a-row", args.in_a_row)):
        if given:
            fail(f"{option} does not go with --gradients")


def lengths_wanted(args):
    """batch, seq_len and, where they are others, the keys of the problems asked for."""
    if args.lengths:
        of_keys = args.kv_lengths or args.lengths
        rest = {"kv_len": max(of_keys)} if max(of_keys) != max(args.lengths) else {}
        rest["lengths"] = args.lengths
        return [{"batch": len(args.lengths), "seq_len": max(args.lengths), **rest,
                 **({"kv_lengths": of_keys} if of_keys != args.lengths else {})}]
    found = []
    for seq_len in unique(args.seq_len or [4096]):
        q_len, kv_len = args.q_len or seq_len, args.kv_len or seq_len
        found.append({"batch": args.batch or max(1, (args.tokens or 16384) // max(q_len, kv_len)), "seq_len": q_len,
                      **({"kv_len": kv_len} if kv_len != q_len else {})})
    return found


def choose(args, protocols):
    """The problems, and the results' `protocol`."""
    of_problems = ("heads", "batch", "tokens", "score_std", "mask", "window", "softcap", "gradients", "fp8", "q_len", "kv_len", "kv_heads", "lengths")
    given = {name: getattr(args, name) for name in ("dtype", "head_dim", "seq_len", *of_problems)
             if getattr(args, name) is not None}
    if args.shapes:
        for option in ("protocol", *of_problems, "dtype", "head_dim", "seq_len"):
            if getattr(args, option):
                fail(f"--{option.replace('_', '-')} does not go with --shapes, which draws all of a problem")
    if args.in_a_row and args.flush_l2:
        fail("--flush-l2 empties the L2 before the first launch of a row alone: it does not go with --in-a-row")
    if args.inputs != "normal" and (args.score_std or args.shapes):
        fail(f"--{'score-std' if args.score_std else 'shapes'} is of normal inputs: it does not go with --inputs")
    if args.protocol is None and not given and not args.shapes:
        args.protocol = "quick"
    changed = {name: getattr(args, name) for name in SETTINGS if getattr(args, name) is not None}
    if args.protocol is None:
        heads, dtype, head_dim = given.get("heads", 16), given.get("dtype", "bf16"), given.get("head_dim", 128)
        kv_heads = {"kv_heads": args.kv_heads} if args.kv_heads not in (None, heads) else {}
        problems = shapes.drawn(args.shapes) if args.shapes else [{"dtype": dtype, "heads": heads, "head_dim": head_dim, **lengths, **kv_heads,
                     **({"mask": mask} if mask != "none" else {}), **({"window": args.window} if args.window else {}),
                     **({"softcap": args.softcap} if args.softcap else {}), **({"gradients": args.gradients} if args.gradients else {}), **({"fp8": fp8} if fp8 != "none" else {}), **scores}
                    for mask in unique(args.mask or MASKS[:1]) for fp8 in unique(args.fp8 or FP8[:1])
                    for lengths in lengths_wanted(args) for scores in scores_wanted(args)]
        name, settings = None, {**DEFAULTS, **changed}
    else:
        protocol = protocols[args.protocol]
        for option in of_problems:
            if option in given:
                fail(f"--{option.replace('_', '-')} does not go with --protocol, whose problems have their own")
        problems = [dict(problem) for problem in protocol["problems"]
                    if problem["seq_len"] in given.get("seq_len", [problem["seq_len"]])
                    and problem["head_dim"] == given.get("head_dim", problem["head_dim"])]
        if not problems:
            fail(f"the protocol {args.protocol} has no problem with this --seq-len and --head-dim")
        own = {name: protocol[name] for name in SETTINGS if name in protocol}
        settings = {**own, **changed}
        same = all(settings.get(name) == own.get(name) for name in SETTINGS if name not in HARMLESS)
        if "dtype" in given:
            same = same and all(problem["dtype"] == given["dtype"] for problem in problems)
            problems = [{**problem, "dtype": given["dtype"]} for problem in problems]
        # What was changed goes without the name that stands for something else.
        name = args.protocol if same and args.inputs == "normal" else None
    return problems, {**({"name": name} if name else {}), **settings, "inputs": args.inputs, "seed": args.seed,
                      "tflops_convention": CONVENTION}


def report(machine, args, records):
    name, settings = args.settings.get("name"), args.settings
    rounds = f"{settings['rounds']} round{'s' * (settings['rounds'] > 1)}"
    in_a_row = f" of {settings['in_a_row']} in a row" if "in_a_row" in settings else ""
    print(f"{machine['gpu']}: {'protocol ' + name if name else 'no protocol by name'}, {rounds} of "
          f"{settings['iterations']} launches{in_a_row}, L2 {'cold' if settings['flush_l2'] else 'warm'}, "
          f"after {settings['rest_ms']:g} ms of rest")
    print("\n".join([*legend(records), "", *table(records, settings["load_seconds"]),
                     *table_of_rounding(records), *table_of_gradients(records)]))


def say_wrapped(text):
    print("\n" + "\n".join(textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)))


def file_of_run(path, run):
    if run == 0:
        return path
    in_set = ".jsonl#" in path.name
    return path.with_name(f"{path.name}-{run + 1}" if in_set else f"{path.stem}-{run + 1}{path.suffix}")


def bench(args, command, stopped):
    if args.gradients or any(name in PEERS for name in args.peers):
        torch_attention.load()
    try:
        harness = Harness(args.library)
    except Failed as problem:
        fail(str(problem))
    here = harness.describe()
    machine = here["machine"]
    if machine["backend"] != "cuda":
        fail(f"{harness.name} runs on the emulator, which has no times; build one with the preset cuda")
    if args.gradients:
        harness = gradients.Gradients(harness, torch_attention.needed())
        here = harness.describe()
    kernels = chosen(args.kernels, here["kernels"], args.problems)
    in_torch, missing = (harness.add(args.peers) if args.gradients else
                         torch_attention.add(harness, [name for name in args.peers if name in PEERS]))
    in_library = [peer_names()[name] for name in args.peers if name not in PEERS]
    runners = {**in_torch, **dict.fromkeys(kernels), **dict.fromkeys(name for name in in_library if name in here["kernels"])}
    missing.update({name: f"{harness.name} does not have it" for name in in_library if name not in here["kernels"]})
    begun = args.begun["records"] if args.begun else []
    with named(relative(args.json) if begun else ""):
        if begun:
            check_begun(args.begun, machine, args, {*runners, *missing}, missing)
    done = set(map(problem_of, begun))
    problems = [problem for problem in args.problems if problem_of(problem) not in done]
    progress = Progress(sys.stderr, problems * args.repeat, stopped=stopped)
    for name, why in missing.items():
        progress.note(f"{name} is left out: {why}")

    runs, notes = [], []

    def write(run, notes, complete=True):
        created, records = runs[run]
        if args.json:
            write_json(file_of_run(args.json, run), results(created, command, machine, args.settings, records, notes, complete))
            there = relative(file_of_run(args.json, run))
            args.written = f"{there} has {len(set(map(problem_of, records)))} of {len(args.problems)} problems" + \
                           ("" if complete else f", scripts/fa bench --resume {there} goes on")

    for nth in range(args.repeat):
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        if args.repeat > 1:
            progress.note(f"run {nth + 1} of {args.repeat}")
        records = [*begun]
        runs.append((args.begun["created"] if begun else now, records))
        for problem in problems:
            measured = measure_problem(harness, runners, missing, problem, args.settings, progress)
            if begun:
                with named(relative(args.json)):
                    check_same(begun, measured)
                measured = [{**record, "run": now} for record in measured]
            records += measured
            write(nth, clock_notes(records), complete=False)
        notes.append(clock_notes(records))
        write(nth, notes[nth])
        progress.clear()
        report(machine, args, records)
        for note in notes[nth]:
            say_wrapped(f"note: {note}")
        if nth + 1 < args.repeat:
            print()
    if args.repeat > 1:
        spread = spread_note([records for _, records in runs])
        say_wrapped(spread)
        for nth in range(args.repeat):
            write(nth, [*notes[nth], spread])
    for nth in range(args.repeat if args.json else 0):
        print(f"\nresults: {relative(file_of_run(args.json, nth))}")
    statuses = {record["status"] for _, records in runs for record in records if not is_finding(record)}
    return 3 if "error" in statuses else 1 if "wrong" in statuses else 0


def build(args):
    """The library for the GPU present, which --library would name, and a file for the results."""
    chosen(args.kernels, gradient_names() if args.gradients else kernel_names(), args.problems)  # before anything is built
    set_up("""
        detect_gpu || die 3 "no NVIDIA GPU answers through nvidia-smi, and nothing else is worth measuring;" \\
          "scripts/run.sh runs the kernels on the emulator"
        choose_backend cuda "$1" 0
        ensure_packages run "$BACKEND"
        configure_cuda
        build cuda fa_bench""", args.toolkit)
    args.library = ROOT / "build" / "cuda" / "lib" / "libfa_bench.so"
    args.json = args.json or new_results_file("bench")


def main():
    if python := os.environ.pop("PYTHON", None):
        path = shutil.which(python) or fail(f"there is no {python}; PYTHON names the one to use", 4)
        os.execv(path, [path, "-B", str(ROOT / "scripts" / "fa"), "bench", *sys.argv[1:]])
    argv = sys.argv[1:]
    command = ["bench.py", *argv]
    args = parse_arguments(argv)
    if not args.library:
        build(args)
    signals = []
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda number, _: signals.append(number))
    try:
        return bench(args, args.begun["command"] if args.begun else command, lambda: bool(signals))
    except (Failed, KeyboardInterrupt) as problem:
        interrupted = isinstance(problem, KeyboardInterrupt)
        print(end="\n" * interrupted, file=sys.stderr)
        fail(f"{'interrupted' if interrupted else problem}; {args.written or 'nothing was written'}", 130 if interrupted else 3)
