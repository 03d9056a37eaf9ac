"""Measures kernels beside other libraries ("peers") on the GPU present: the same problem, the same protocol.

In every round each kernel and each peer is timed once, one after another, each after a rest, so that no one meets the
clock that the one before left behind. Every second round goes backwards and the order moves on; tensors stay where
they are. A time is the median over the rounds of each round's median; a kernel's ratio to
a peer (above 1: the kernel is faster) is formed within each round, so that a GPU that grows warm changes both, and
then the median taken. What gives a wrong result before the first round or after the last one has no time. Programs
of this repository run with --serve; PyTorch's peers run in this Python; what is not here is left out with a
sentence."""

import argparse
import datetime
import os
import re
import signal
import statistics
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

from fa_tools import baselines
from fa_tools.records import GROWTHS, SCORES, describe_scores, scores_of
from fa_tools.serve import Broken, Failed, Server
from fa_tools.tools import ROOT, Parser, Refused, check_writable, fail, lines_of, read_json, relative, run, write_whole
from fa_tools.torch_attention import PEERS, Missing, Torch

EXAMPLE = """examples:
  scripts/fa bench                                        builds, then the protocol quick
  scripts/fa bench --protocol from-scratch --repeat 2     twice, and how far the ratios spread
  scripts/fa bench --program build/cuda/bin/attention 08 10 --seq-len 1024,4096 --json mine.json
  scripts/fa bench --program build/cuda/bin --peers fa2,cudnn,matmul --dtype fp16 --head-dim 64
  scripts/fa bench --program build/cuda/bin/attention --protocol fa3-paper --dtype bf16 10

Exit code: 0 all passed or were skipped, 1 wrong results, 2 bad arguments, 3 GPU or program failed."""

PROTOCOLS = ROOT / "bench" / "protocols.json"
SCHEMA_VERSION = 4
SHAPE = ("dtype", "batch", "heads", "seq_len", "head_dim")
SETTINGS = ("warmup", "iterations", "rounds", "max_seconds", "flush_l2", "rotating_inputs", "idle_ms", "rest_ms")
# Of problems given on the command line, without a protocol.
DEFAULTS = {"warmup": 32, "iterations": 128, "rounds": 3, "max_seconds": 10.0, "flush_l2": False,
            "rotating_inputs": 1, "idle_ms": 0, "rest_ms": 100}
# Which changes leave a protocol what its name says.
HARMLESS = ("rounds", "max_seconds")
CLOCK_TOLERANCE = 0.03
COMPANION = "peers"  # a program in the folder of the others, with the peers and ceilings that need no Python
COMPANIONS = ("peer/cudnn_frontend", "ceiling/matmul", "ceiling/copy")


# --- What runs -------------------------------------------------------------------------------------------------


class Runner:
    """A kernel or peer; `backend`, which holds its tensors, is a serve.Server, a torch_attention.Torch, or stands in
    for one."""

    def __init__(self, backend, name):
        self.backend, self.name = backend, name


def list_kernels(path):
    try:
        done = subprocess.run([path, "--list"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        fail(f"{path} is not a program of this repository that can be run (build/cuda/bin/attention, or a folder)")
    return done.stdout.split()


def find_programs(paths, wanted, serve=Server):
    """Runners of the wanted kernels (names or numbers; none: all), each once, in the order asked for."""
    files = []
    for path in paths:
        if os.path.isdir(path):  # of programs with one kernel each, unless it has them all in one
            one = [Path(path) / "attention"]
            each = sorted(p for p in Path(path).iterdir() if re.fullmatch(r"\d\d_[a-z0-9_]+", p.name))
            files += one if one[0].is_file() else each
        else:
            files.append(path)
    lists = {os.path.abspath(path): list_kernels(os.path.abspath(path)) for path in files}
    known = sorted({name for names in lists.values() for name in names})
    if not known:
        fail(f"there is no program in {', '.join(paths)}")
    servers, runners = {}, []
    for word in wanted or known:
        name = next((k for k in known if word in (k, k[:2])), None)
        if name is None:
            fail(f"there is no kernel {word}; the programs given have {', '.join(known)}")
        path = next(path for path, names in lists.items() if name in names)
        if path not in servers:
            servers[path] = serve(path)
        if name not in [runner.name for runner in runners]:
            runners.append(Runner(servers[path], name))
    return runners


def find_companion(paths, wanted, serve=Server):
    """Runners of the program `peers` beside the given ones, and a sentence for each wanted one that is not there."""
    if not wanted:
        return [], {}
    for path in paths:
        file = Path(path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))) / COMPANION
        if file.is_file() and os.access(file, os.X_OK):
            break
    else:
        return [], {name: f"there is no program {COMPANION} beside the kernels'" for name in wanted}
    server = serve(os.path.abspath(file))
    try:
        has = server.describe()["kernels"]
    except (Failed, Broken) as problem:
        server.close()
        return [], {name: str(problem) for name in wanted}
    missing = {name: f"the program {COMPANION} does not have it" for name in wanted if name not in has}
    return [Runner(server, name) for name in wanted if name in has], missing


def find_peers(names, make_backend):
    """Runners of PyTorch's peers, and a sentence for each that cannot run."""
    if not names:
        return [], {}
    try:
        backend = make_backend()
    except Missing as problem:
        return [], {f"peer/{name}": str(problem) for name in names}
    runners, missing = [], {}
    for name in names:
        try:
            backend.add(name)
            runners.append(Runner(backend, f"peer/{name}"))
        except Missing as problem:
            missing[f"peer/{name}"] = str(problem)
    return runners, missing


# --- Progress --------------------------------------------------------------------------------------------------


def as_tuple(problem):
    return tuple(problem.get(name) for name in (*SHAPE, *SCORES))


def flops_of(problem):
    return 4 * problem["batch"] * problem["heads"] * problem["seq_len"] ** 2 * problem["head_dim"]


class Progress:
    """What is done now, and how long the rest will take by what steps of the same kind took so far."""

    def __init__(self, stream, now=time.monotonic):
        self.stream, self.now, self.live = stream, now, stream.isatty()
        self.left = Counter()  # (kind, who, problem): steps; problems as tuples here
        self.took = {}  # (kind, who): (seconds, FLOPs of the problem) of the last one
        self.cap = 0.0

    def plan(self, runners, problems, protocol):
        """Adds the steps of one run of a protocol."""
        self.cap = 1.3 * protocol["max_seconds"]
        for problem in map(as_tuple, problems):
            for backend in unique(runner.backend for runner in runners):
                self.left["problem", id(backend), problem] += 1
            for runner in runners:
                self.left["verify", runner.name, problem] += 2
                self.left["time", runner.name, problem] += protocol["rounds"]

    def step(self, kind, who, problem, call):
        begin = self.now()
        try:
            return call()
        finally:
            self.took[kind, who] = (self.now() - begin, flops_of(problem))
            self.left[kind, who, as_tuple(problem)] -= 1

    def drop(self, who, problem):
        """`who` takes no more steps with this problem."""
        for kind in ("verify", "time"):
            self.left[kind, who, as_tuple(problem)] = 0

    def seconds_left(self):
        """None while something has not run yet."""
        total = 0.0
        for (kind, who, problem), count in self.left.items():
            if count <= 0:
                continue
            if (kind, who) not in self.took:
                return None
            seconds, then = self.took[kind, who]
            flops = flops_of(dict(zip(SHAPE, problem)))
            scaled = seconds * flops / then
            if kind == "time" and flops > then:  # more launches than the time limit allows are not made
                scaled = max(seconds, min(scaled, self.cap))
            total += count * scaled
        return total

    def say(self, text, passing=False):
        """A line; a passing one is shown on a terminal only, and overwritten by the next."""
        seconds = self.seconds_left() if self.left else None
        text += f", {duration(seconds)} left" if seconds is not None else ""
        if self.live:
            print(f"\r\033[K{text[:100]} ...", end="", file=self.stream, flush=True)
        elif not passing:
            print(f"{text} ...", file=self.stream, flush=True)

    def clear(self):
        if self.live:
            print("\r\033[K", end="", file=self.stream, flush=True)

    def note(self, text):
        self.clear()
        print(text, file=self.stream, flush=True)


def duration(seconds):
    return f"about {max(1, round(seconds))} s" if seconds < 100 else f"about {round(seconds / 60)} min"


def unique(things):
    return list(dict.fromkeys(things))


# --- Rounds ----------------------------------------------------------------------------------------------------


def describe(problem):
    return (f"{problem['dtype']}, batch {problem['batch']}, heads {problem['heads']}, seq_len {problem['seq_len']}, "
            f"head_dim {problem['head_dim']}{describe_scores(scores_of(problem))}")


class Taken:
    """What was taken of one runner on one problem."""

    def __init__(self):
        self.first, self.last, self.rounds, self.failure = None, None, [], None

    def good(self):
        return self.failure is None and all(r is None or r["status"] == "passed" for r in (self.first, self.last))


def in_order(runners, round_, rounds):
    """Two rounds there and back, in which what changes steadily with time meets all alike; the next two begin another
    part of the list further on, so that the rounds' beginnings lie all over it."""
    pair, pairs = round_ // 2, (rounds + 1) // 2
    first = len(runners) * pair // pairs if pairs <= len(runners) else pair % len(runners)
    order = runners[first:] + runners[:first]
    return order[::-1] if round_ % 2 else order


def measure(runners, problem, protocol, progress, rest=time.sleep):
    """{runner: Taken} of one problem; rest(seconds) lets the GPU rest, which no runner uses at that time."""
    taken = {runner: Taken() for runner in runners}

    def attempt(kind, runner, call):
        mine = taken[runner]
        if not mine.good():
            return None
        try:
            return progress.step(kind, runner.name, problem, call)
        except Failed as failure:
            mine.failure = str(failure)
            return None
        finally:
            if not mine.good():
                progress.drop(runner.name, problem)

    label = (f"{problem['dtype']}, head_dim {problem['head_dim']}, seq_len {problem['seq_len']}"
             f"{describe_scores(scores_of(problem))}")
    progress.say(f"{label}: tensors and checks")
    for backend in unique(runner.backend for runner in runners):
        try:
            progress.step("problem", id(backend), problem, lambda: backend.problem(problem, protocol))  # noqa: B023
        except Failed as failure:
            for runner in runners:
                if runner.backend is backend:
                    taken[runner].failure = str(failure)
                    progress.drop(runner.name, problem)
    for runner in runners:
        progress.say(f"{label}: checking {runner.name}", passing=True)
        taken[runner].first = attempt("verify", runner, lambda: runner.backend.verify(runner.name))  # noqa: B023
        if not taken[runner].good():
            progress.drop(runner.name, problem)
    for r in range(protocol["rounds"]):
        progress.say(f"{label}: round {r + 1} of {protocol['rounds']}")
        for runner in in_order(runners, r, protocol["rounds"]):
            progress.say(f"{label}: round {r + 1} of {protocol['rounds']}, {runner.name}", passing=True)
            if taken[runner].good():
                rest(protocol["rest_ms"] / 1000)
            answer = attempt("time", runner, lambda: runner.backend.time(runner.name, protocol))  # noqa: B023
            if answer is not None:
                why = answer.pop("why", None)
                if why and not any(each.get("launched_from") == "stream" for each in taken[runner].rounds):
                    progress.note(f"{label}: {runner.name} is launched from Python, not from a CUDA graph: {why}")
                taken[runner].rounds.append(answer)
    progress.say(f"{label}: checks after timing", passing=True)
    for runner in runners:
        taken[runner].last = attempt("verify", runner, lambda: runner.backend.verify(runner.name))  # noqa: B023
    return taken


# --- Records ---------------------------------------------------------------------------------------------------

OF_TIMES = ("time_ms", "tflops", "round_ms", "ratio", "gbytes_per_s", "clock_mhz", "power_w", "round_clock_mhz",
            "launched_from")


def merge(runner, problem, taken):
    """One record of the check before, the rounds and the check after."""
    record = {"kernel": runner.name, **problem}
    if taken.failure is not None:
        return {**record, "status": "error", "reason": taken.failure}
    bad = next((r for r in (taken.first, taken.last) if r["status"] != "passed"), None)
    record.update({k: v for k, v in (bad or taken.first).items() if k not in (*OF_TIMES, *record)})
    moved = record.pop("bytes", None)  # of a ceiling that moves bytes
    if bad:
        return {k: v for k, v in record.items() if k != "flops"}
    rounds = [answer["time_ms"] for answer in taken.rounds]
    median = statistics.median(each["median"] for each in rounds)
    record["time_ms"] = {
        "median": median, **{name: statistics.median(each[name] for each in rounds) for name in ("p10", "p90")},
        "min": min(each["min"] for each in rounds), "launches": min(each["launches"] for each in rounds)}
    if runner.name == "ceiling/copy":
        if moved:
            record["gbytes_per_s"] = moved / median * 1e-6
        elif all("gbytes_per_s" in answer for answer in taken.rounds):
            record["gbytes_per_s"] = statistics.median(answer["gbytes_per_s"] for answer in taken.rounds)
    elif "flops" in record or not runner.name.startswith("ceiling/"):
        record["tflops"] = record.get("flops", flops_of(problem)) / median * 1e-9
    record["round_ms"] = [each["median"] for each in rounds]
    launched_from = {answer["launched_from"] for answer in taken.rounds if "launched_from" in answer}
    if launched_from:  # the slower way, if there were both
        record["launched_from"] = max(launched_from)
    for name in ("clock_mhz", "power_w"):
        readings = [answer.get(name) for answer in taken.rounds]
        known = [reading for reading in readings if reading is not None]
        record[name] = statistics.median(known) if known else None
        if name == "clock_mhz" and known:
            record["round_clock_mhz"] = readings
    return record


def is_kernel(record):
    return "/" not in record["kernel"]


def is_peer(record):
    return record["kernel"].startswith("peer/")


def passed(records, which=lambda record: True):
    return [record for record in records if record["status"] == "passed" and which(record)]


def add_ratios(records):
    """To every kernel that passed its speed over that of every peer that passed: of each round, then the median."""
    for kernel in passed(records, is_kernel):
        ratio = {peer["kernel"]: statistics.median(p / k for p, k in zip(peer["round_ms"], kernel["round_ms"]))
                 for peer in passed(records, is_peer)}
        if ratio:
            kernel["ratio"] = ratio


def place(record):
    """Kernels by number, then peers, then ceilings."""
    return not is_kernel(record), not is_peer(record), record["kernel"]


def measure_problem(runners, missing, problem, protocol, progress):
    """The records of one problem, those of what is missing too."""
    taken = measure(runners, problem, protocol, progress)
    records = [merge(runner, problem, mine) for runner, mine in taken.items()]
    records += [{"kernel": name, **problem, "status": "skipped", "reason": why} for name, why in missing.items()]
    records.sort(key=place)
    add_ratios(records)
    return records


def by_problem(records):
    groups = {}
    for record in records:
        groups.setdefault(as_tuple(record), []).append(record)
    return groups.values()


def percent(share, form=".2f"):
    return f"{100 * share:{form}} %"


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
                                 f"{percent(worst[0] / worst[1] - 1, '+.1f')})")
            if apart:
                notes.append(f"{describe(peer)}: in a round the SM clock differed by more than "
                             f"{percent(CLOCK_TOLERANCE, '.0f')} from that of {peer['kernel']} with "
                             f"{', '.join(apart)}.")
    return notes


def spread_note(runs):
    """How far the runs of one protocol lie apart: of every ratio and every time the largest over the smallest."""
    ratios, times = {}, {}
    for record in (record for records in runs for record in passed(records)):
        key = (record["kernel"], None, *as_tuple(record))
        times.setdefault(key, []).append(record["time_ms"]["median"])
        for peer, ratio in record.get("ratio", {}).items():
            ratios.setdefault((key[0], peer, *key[2:]), []).append(ratio)

    def widest(values, what):
        apart = {key: max(each) / min(each) - 1 for key, each in values.items() if len(each) == len(runs)}
        if not apart:
            return None
        kernel, peer, *problem = key = max(apart, key=apart.get)
        who = kernel + (f" to {peer}" if peer else "")
        where = {name: value for name, value in zip((*SHAPE, *SCORES), problem) if value is not None}
        return (f"{what} at most {percent(apart[key])} ({who}, {describe(where)}), "
                f"in the median {percent(statistics.median(apart.values()))}")

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
    return statistics.median(share * c / k for c, k in zip(ceiling["round_ms"], record["round_ms"]))


def table(records):
    """Lines of at most 100 columns: of each problem the peers and ceilings, then the kernels with their ratio to
    each peer."""
    peers = sorted({record["kernel"] for record in passed(records, is_peer)})
    titles = [peer[5:][:8] for peer in peers]
    width = max([len(record["kernel"]) for record in records] + [20])
    head = (f"{'kernel':<{width}} {'median ms':>9} {'p10-p90':>7} {'TFLOP/s':>7} {'ceiling':>7} {'MHz':>4}"
            + "".join(f" {title:>{max(5, len(title))}}" for title in titles))
    lines = [head[:WIDTH]]
    for here in by_problem(records):
        lines += ["", describe(here[0])]
        for record in sorted(here, key=lambda r: (is_kernel(r), *place(r))):
            line = f"{record['kernel']:<{width}} "
            if record["status"] != "passed":
                line += f"{record['status']}: {record['reason']}"
                lines.append(line if len(line) <= WIDTH else line[:WIDTH - 4] + " ...")
                continue
            ms, ceiling = record["time_ms"], of_ceiling(record, here)
            speed = f"{record['tflops']:.1f}" if "tflops" in record else ""
            if "gbytes_per_s" in record:
                speed = f"{record['gbytes_per_s']:.0f} GB/s"
            line += f"{ms['median']:>9.4f} {(ms['p90'] - ms['p10']) / ms['median']:>7.1%} {speed:>7} "
            line += f"{'' if ceiling is None else f'{ceiling:.1%}':>7} "
            line += f"{'' if record['clock_mhz'] is None else round(record['clock_mhz']):>4}"
            for peer, title in zip(peers, titles):
                ratio = record.get("ratio", {}).get(peer)
                line += f" {'' if ratio is None else f'{ratio:.3f}':>{max(5, len(title))}}"
            lines.append(line.rstrip()[:WIDTH])
    return lines


def legend(records):
    """What stands for which library, and what the columns mean."""
    libraries = {record["kernel"]: record["library"] for record in passed(records) if "library" in record}
    lines = [f"{name}: {library['implementation']} of {library['name']} {library['version']}"
             for name, library in sorted(libraries.items())]
    if any(of_ceiling(record, here) for here in by_problem(records) for record in passed(here)):
        lines.append("ceiling: share of the TFLOP/s of ceiling/matmul")
    if any("ratio" in record for record in records):
        lines.append("columns of peers: the kernel's speed over the peer's, above 1 the kernel is faster")
    return lines


def plainly(word):
    """A word of the command line without folders of this machine outside of the checkout."""
    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    if value.startswith(("/", "~")):
        path = Path(value)
        value = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    return option + equals + value


def results(created, command, machine, protocol, records, notes):
    return {"schema_version": SCHEMA_VERSION, "created": created, "command": [plainly(word) for word in command],
            "machine": machine, "protocol": protocol, "records": records, "notes": notes}


# --- Command line ----------------------------------------------------------------------------------------------


def whole(least, multiple=1, most=999_999_999):
    """Of an option: a whole number from `least` to `most`, a multiple of `multiple`."""

    def parse(text):
        number = int(text) if re.fullmatch(r"\d{1,9}", text) else -1
        if not least <= number <= most or number % multiple:
            range_ = f"from {least} on" if most == 999_999_999 else f"from {least} to {most}"
            what = f"a multiple of {multiple}" if multiple > 1 else f"a whole number {range_}"
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return number

    return parse


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


def read_protocols(path=PROTOCOLS):
    """{name: protocol} of bench/protocols.json."""
    try:
        protocols = read_json(path)["protocols"]
        for protocol in protocols.values():
            assert all(protocol[name] is not None for name in (*SETTINGS, "description", "tflops_convention"))
            assert protocol["problems"] and all(set(p) == set(SHAPE) for p in protocol["problems"])
    except Refused as problem:
        fail(f"{path.name} {problem}")
    except (AssertionError, AttributeError, KeyError, TypeError):
        fail(f"{path.name} is not what scripts/fa bench reads: a protocol lacks something")
    return protocols


def peer_names():
    """What --peers knows: {short name: kernel of the records}."""
    return {**{name: f"peer/{name}" for name in PEERS}, **{name.split("/")[1]: name for name in COMPANIONS}}


def parse_arguments(argv):
    protocols, known = read_protocols(), peer_names()
    parser = Parser("bench", __doc__, "protocols (bench/protocols.json):\n" + "".join(
        f"  {name:<13} {protocol['description']}\n" for name, protocol in protocols.items()) + "\n" + EXAMPLE)
    add = parser.add_argument
    add("kernels", nargs="*", metavar="KERNEL", help="names or numbers, e.g. 08_swizzle 10 (default: all)")
    add("--program", action="append", required=True, metavar="PATH",
        help="a program built for the GPU present, or a folder of such; may be given several times")
    add("--protocol", choices=tuple(protocols), metavar="NAME",
        help=f"{', '.join(protocols)} (default: quick, unless a problem is given)")
    add("--peers", default=",".join(known), metavar="LIST", help=f"{','.join(known)} (default: all), or none")
    problem = parser.add_argument_group("problems (with --protocol: which of its own; --dtype instead of its own)")
    problem.add_argument("--dtype", choices=("fp16", "bf16"), help="default bf16")
    problem.add_argument("--head-dim", type=int, choices=(64, 128), help="default 128")
    problem.add_argument("--heads", type=whole(1), metavar="N", help="default 16")
    problem.add_argument("--seq-len", type=several(whole(128, 128)), metavar="LIST", help="512,1024 (default 4096)")
    sequences = problem.add_mutually_exclusive_group()
    sequences.add_argument("--batch", type=whole(1), metavar="N", help="default: 16384/seq_len")
    sequences.add_argument("--tokens", type=whole(128), metavar="N",
                           help="instead of --batch: as many sequences as have so many tokens (default 16384)")
    problem.add_argument("--inputs", default="normal", metavar="NAME",
                         help="what to run on, as the programs' --inputs (default normal)")
    problem.add_argument("--score-std", type=several(positive), metavar="LIST",
                         help="scale normal inputs so that scores have this standard deviation, in nats: 1,10,100")
    problem.add_argument("--score-growth", type=several(one_of(GROWTHS)), metavar="LIST",
                         help="the same for all keys, growing with the key's index, or both: flat,growing (default flat)")
    how = parser.add_argument_group("protocol (default: that of --protocol, else as given here)")
    d = DEFAULTS
    how.add_argument("--rounds", type=whole(1), metavar="N", help=f"default {d['rounds']}")
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
    how.add_argument("--idle-ms", type=lambda text: 0 if text == "0" else positive(text), metavar="MS",
                     help="burst: let the GPU idle so long before each timed launch (default 0: sustained)")
    how.add_argument("--rest-ms", type=lambda text: 0 if text == "0" else positive(text), metavar="MS",
                     help=f"let the GPU idle so long before a kernel's warm-up in each round (default {d['rest_ms']})")
    how.add_argument("--seed", type=whole(0), default=1, metavar="N", help="of the inputs (default 1)")
    add("--repeat", type=whole(1), default=1, metavar="N",
        help="run everything N times and say how far the ratios spread (run 2 goes into FILE-2.json)")
    add("--check", action="store_true", help="only check these arguments")
    add("--json", type=Path, metavar="FILE", help=f"write the results (bench/schema.json, version {SCHEMA_VERSION})")
    args = parser.parse_args(argv)
    args.kernels = [word for words in args.kernels for word in words.split(",") if word]
    args.peers = [] if args.peers == "none" else unique(word for word in args.peers.split(",") if word)
    for peer in args.peers:
        if peer not in known:
            fail(f"there is no peer {peer}; known are {', '.join(known)}, or none")
    if args.json:
        check_writable(args.json)
    if args.score_growth and not args.score_std:
        fail("--score-growth belongs to --score-std: say how far scores spread")
    if max(args.score_std or [0]) > 1000:
        fail("--score-std must be above 0 and at most 1000")
    args.problems, args.settings = choose(args, protocols)
    args.written = 0  # runs in files
    return args


def scores_wanted(args):
    """The fields of problems that differ in nothing else."""
    return [dict(zip(SCORES, (std, growth))) for growth in unique(args.score_growth or GROWTHS[:1])
            for std in unique(args.score_std or [])] or [{}]


def choose(args, protocols):
    """The problems, and the results' `protocol`."""
    given = {name: getattr(args, name)
             for name in ("dtype", "head_dim", "heads", "seq_len", "batch", "tokens", "score_std")
             if getattr(args, name) is not None}
    if args.inputs != "normal" and args.score_std:
        fail("--score-std is of normal inputs: it does not go with --inputs")
    if args.protocol is None and not given:
        args.protocol = "quick"
    changed = {name: getattr(args, name) for name in SETTINGS if getattr(args, name) is not None}
    if args.protocol is None:
        heads, dtype, head_dim = given.get("heads", 16), given.get("dtype", "bf16"), given.get("head_dim", 128)
        tokens = given.get("tokens", 16384)
        problems = [{"dtype": dtype, "batch": given.get("batch") or max(1, tokens // seq_len), "heads": heads,
                     "seq_len": seq_len, "head_dim": head_dim, **scores}
                    for seq_len in unique(given.get("seq_len", [4096])) for scores in scores_wanted(args)]
        name, settings = None, {**DEFAULTS, **changed}
    else:
        protocol = protocols[args.protocol]
        for option in ("heads", "batch", "tokens", "score_std"):
            if option in given:
                fail(f"--{option.replace('_', '-')} does not go with --protocol, whose problems have their own")
        problems = [{field: problem[field] for field in SHAPE} for problem in protocol["problems"]
                    if problem["seq_len"] in given.get("seq_len", [problem["seq_len"]])
                    and problem["head_dim"] == given.get("head_dim", problem["head_dim"])]
        if not problems:
            fail(f"the protocol {args.protocol} has no problem with this --seq-len and --head-dim")
        own = {name: protocol[name] for name in SETTINGS}
        settings = {**own, **changed}
        same = all(settings[name] == own[name] for name in SETTINGS if name not in HARMLESS)
        if "dtype" in given:
            same = same and all(problem["dtype"] == given["dtype"] for problem in problems)
            problems = [{**problem, "dtype": given["dtype"]} for problem in problems]
        # What was changed goes without the name that stands for something else.
        name = args.protocol if same and args.inputs == "normal" else None
    return problems, {**({"name": name} if name else {}), **settings, "inputs": args.inputs, "seed": args.seed,
                      "tflops_convention": "4*B*H*N^2*D"}


def one_run(runners, missing, args, progress):
    records = []
    for problem in args.problems:
        records += measure_problem(runners, missing, problem, args.settings, progress)
    return records


def report(machine, args, records):
    name, settings = args.settings.get("name"), args.settings
    rounds = f"{settings['rounds']} round{'s' * (settings['rounds'] > 1)}"
    print(f"{machine['gpu']}: {'protocol ' + name if name else 'no protocol by name'}, {rounds} of "
          f"{settings['iterations']} launches, L2 {'cold' if settings['flush_l2'] else 'warm'}, "
          + (f"each after {settings['idle_ms']:g} ms of rest" if settings["idle_ms"] else "sustained")
          + (f" after {settings['rest_ms']:g} ms of rest" if settings["rest_ms"] and not settings["idle_ms"] else ""))
    print("\n".join([*legend(records), "", *table(records)]))


def say_wrapped(text):
    print("\n" + "\n".join(textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)))


def file_of_run(path, run):
    return path if run == 0 else path.with_name(f"{path.stem}-{run + 1}{path.suffix}")


def bench(args, command, progress, everybody):
    """Runs it all; `everybody` gets every backend as soon as it exists, so that the caller can end them."""
    in_torch = [name for name in args.peers if name in PEERS]
    in_companion = [peer_names()[name] for name in args.peers if name not in PEERS]

    def joined(runners):
        everybody.extend(unique(runner.backend for runner in runners))
        return runners

    kernels = joined(find_programs(args.program, args.kernels))
    in_companion = [name for name in in_companion if name not in {runner.name for runner in kernels}]
    machines = []
    for server in unique(runner.backend for runner in kernels):
        machines.append(server.describe()["machine"])
        if machines[-1]["backend"] != "cuda":
            fail(f"{server.name} runs on the emulator, which has no times; build one with the preset cuda")
    if in_torch:
        progress.say("loading PyTorch and its peers")
    # The first program's tensors for all: the same numbers.
    peers, missing = find_peers(in_torch, lambda: Torch(kernels[0].backend.write_tensors))
    ceilings, also_missing = find_companion(args.program, in_companion)
    runners = joined(peers) + kernels + joined(ceilings)
    missing.update(also_missing)
    for name, why in missing.items():
        progress.note(f"{name} is left out: {why}")

    runs, spread = [], []

    def write_all():
        for run, (created, records, notes) in enumerate(runs if args.json else []):
            data = results(created, command, machines[0], args.settings, records, notes + spread)
            write_whole(file_of_run(args.json, run), lines_of(data))
            args.written = run + 1

    for _ in range(args.repeat):
        progress.plan(runners, args.problems, args.settings)
    for run in range(args.repeat):
        created = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        if args.repeat > 1:
            progress.note(f"run {run + 1} of {args.repeat}")
        records = one_run(runners, missing, args, progress)
        lines, apart = baselines.compare(machines[0], args.settings, records)
        notes = clock_notes(records)
        runs.append((created, records, notes + apart))
        write_all()
        progress.clear()
        report(machines[0], args, records)
        for text in [f"note: {note}" for note in notes] + lines:
            say_wrapped(text)
        if run + 1 < args.repeat:
            print()
    if args.repeat > 1:
        spread.append(spread_note([records for _, records, _ in runs]))
        say_wrapped(spread[0])
        write_all()
    for run in range(args.written):
        print(f"\nresults: {relative(file_of_run(args.json, run))}")
    statuses = {record["status"] for _, records, _ in runs for record in records}
    return 3 if "error" in statuses else 1 if "wrong" in statuses else 0


def interrupted(*_):
    raise KeyboardInterrupt


def main():
    argv = sys.argv[1:]
    command = ["bench.py", *argv]
    if "--typed" in argv:  # scripts/fa bench puts what it adds before this word; what follows was typed
        at = argv.index("--typed")
        command = ["bench.sh", *argv[at + 1:]]
        del argv[at]
    args = parse_arguments(argv)
    if args.check:
        return 0
    signal.signal(signal.SIGTERM, interrupted)
    progress, everybody, patience = Progress(sys.stderr), [], 5
    try:
        return bench(args, command, progress, everybody)
    except (Broken, Failed) as problem:
        progress.clear()
        fail(str(problem), 3)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the programs are still to be ended
        patience = 0.2  # seconds: in the midst of a request
        progress.clear()
        fail(f"interrupted; {f'run {args.written}' if args.written else 'nothing'} was written", 130)
    finally:
        for backend in everybody:
            backend.close(patience)


if __name__ == "__main__":
    run(main)
