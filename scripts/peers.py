#!/usr/bin/env python3
"""Measures kernels beside other libraries ("peers") on the GPU present: the same problem, the same protocol.

In every round each peer and each program runs once, one after another, and the order moves on from round to
round. A kernel's time is the median over the rounds of each round's median; its ratio to a peer (above 1: the
kernel is faster) is formed within each round, so that a GPU that grows warm changes both, and then the median
taken. Peers run in this Python and need torch; a peer that is not here is left out with a sentence."""

import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
from tools import Refused, fail, read_results  # noqa: E402
from torch_attention import SDPA, Missing, Torch  # noqa: E402

EXAMPLE = """examples:
  scripts/peers.py --program build/cuda/bin/attention --kernels 08,10 --seq-len 1024,4096 --json peers.json
  scripts/peers.py --program build/cuda/bin --kernels 08_swizzle --peers fa2,cudnn --dtype fp16 --head-dim 64

Exit code: 0 all passed or were skipped, 1 wrong results, 2 bad arguments, 3 GPU or program failed."""

SHAPE = ("dtype", "batch", "heads", "seq_len", "head_dim")


# --- What runs -------------------------------------------------------------------------------------------------


class Program:
    """A program of this repository with some of its kernels."""

    def __init__(self, path, kernels, alone):
        self.path, self.kernels, self.alone = path, kernels, alone
        self.machine = None

    def name(self):
        return ", ".join(self.kernels)

    def run(self, problem, protocol):
        with tempfile.TemporaryDirectory(prefix="peers-") as folder:
            file = Path(folder) / "results.json"
            command = [self.path, *([] if self.alone else self.kernels), "--json", file]
            for name in SHAPE:
                command += ["--" + name.replace("_", "-"), problem[name]]
            for name, option in (("warmup", "warmup"), ("iterations", "iters"), ("max_seconds", "max-seconds"),
                                 ("seed", "seed")):
                command += ["--" + option, protocol[name]]
            command += ["--flush-l2"] if protocol["flush_l2"] else []
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
            try:
                data = read_results(file)
            except Refused:
                said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
                code = 2 if done.returncode == 2 else 3
                fail(f"{Path(self.path).name}: {said.removeprefix('error: ')}", code)
        if data["machine"]["backend"] != "cuda":
            fail(f"{self.path} runs on the emulator, which has no times; build one with the preset cuda")
        self.machine = data["machine"]
        return data["records"]


class Peer:
    """One library's attention; `backend` is a torch_attention.Torch, or stands in for one."""

    def __init__(self, peer, backend):
        self.peer, self.backend = peer, backend

    def name(self):
        return f"peer/{self.peer}"

    def run(self, problem, protocol):
        return [{"kernel": self.name(), **problem, "library": self.backend.library(self.peer),
                 **self.backend.run(self.peer, problem, protocol)}]


def list_kernels(path):
    try:
        done = subprocess.run([path, "--list"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        fail(f"{path} is not a program of this repository that can be run (build/cuda/bin/attention, or a folder)")
    return done.stdout.split()


def find_programs(paths, wanted):
    """The programs that have the wanted kernels (names or numbers; none: all), each kernel once, in that order."""
    files = []
    for path in paths:
        if os.path.isdir(path):  # of programs with one kernel each
            files += sorted(str(p) for p in Path(path).iterdir() if re.fullmatch(r"\d\d_[a-z0-9_]+", p.name))
        else:
            files.append(path)
    lists = {os.path.abspath(path): list_kernels(os.path.abspath(path)) for path in files}
    known = sorted({name for names in lists.values() for name in names})
    if not known:
        fail(f"there is no program in {', '.join(paths)}")
    chosen = {}  # program: its kernels
    for word in wanted or known:
        name = next((k for k in known if word in (k, k[:2])), None)
        if name is None:
            fail(f"there is no kernel {word}; the programs given have {', '.join(known)}")
        path = next(path for path, names in lists.items() if name in names)
        if name not in chosen.setdefault(path, []):
            chosen[path].append(name)
    return [Program(path, kernels, len(lists[path]) == 1) for path, kernels in chosen.items()]


def find_peers(names, make_backend=Torch):
    """Peers that can run, and a sentence for each that cannot."""
    if not names:
        return [], {}
    try:
        backend = make_backend()
    except Missing as problem:
        return [], {f"peer/{name}": str(problem) for name in names}
    return [Peer(name, backend) for name in names], {}


# --- Rounds ----------------------------------------------------------------------------------------------------


def measure(runners, problem, protocol, say=lambda text: None):
    """{kernel: its records, one a round}. Round r begins with the r-th runner."""
    taken = {}
    for r in range(protocol["rounds"]):
        say(f"seq_len {problem['seq_len']}, round {r + 1} of {protocol['rounds']} ...")
        first = r % len(runners)
        for runner in runners[first:] + runners[:first]:
            for record in runner.run(problem, protocol):
                taken.setdefault(record["kernel"], []).append(record)
    return taken


def merge(records):
    """One record of several rounds. One round that did not pass speaks for all of them."""
    bad = next((record for record in records if record["status"] != "passed"), None)
    if bad:
        return dict(bad)
    times = [record["time_ms"] for record in records]
    merged = {**records[0], "time_ms": {
        **{name: statistics.median(time[name] for time in times) for name in ("median", "p10", "p90")},
        "min": min(time["min"] for time in times), "launches": min(time["launches"] for time in times)}}
    r = merged
    flops = 4 * r["batch"] * r["heads"] * r["seq_len"] ** 2 * r["head_dim"]
    merged["tflops"] = flops / merged["time_ms"]["median"] * 1e-9
    merged["round_ms"] = [time["median"] for time in times]
    return merged


def add_ratios(records):
    """To every kernel that passed its speed over that of every peer that passed: of each round, then the median."""
    peers = [r for r in records if r["kernel"].startswith("peer/") and r["status"] == "passed"]
    for record in records:
        if record["status"] == "passed" and not record["kernel"].startswith("peer/") and peers:
            record["ratio"] = {
                peer["kernel"]: statistics.median(p / k for p, k in zip(peer["round_ms"], record["round_ms"]))
                for peer in peers
            }


def measure_problem(runners, missing, problem, protocol, say=lambda text: None):
    """The records of one problem: kernels, then peers, then what is missing."""
    taken = measure(runners, problem, protocol, say)
    merged = [merge(records) for records in taken.values()]
    merged += [{"kernel": name, **problem, "status": "skipped", "reason": why} for name, why in missing.items()]
    merged.sort(key=lambda record: (record["kernel"].startswith("peer/"), record["kernel"]))
    add_ratios(merged)
    return merged


# --- Output ----------------------------------------------------------------------------------------------------


def table(records):
    """Lines of at most 100 columns: of each seq_len the peers, then the kernels with their ratio to each peer."""
    peers = sorted({r["kernel"] for r in records if r["kernel"].startswith("peer/") and r["status"] == "passed"})
    lines = [f"{'seq_len':>7}  {'kernel':<26} {'median ms':>10} {'TFLOP/s':>9}"
             + "".join(f" {'of ' + peer[5:]:>9}" for peer in peers)]
    for seq_len in dict.fromkeys(record["seq_len"] for record in records):
        here = [record for record in records if record["seq_len"] == seq_len]
        lines.append("")
        for record in sorted(here, key=lambda r: (not r["kernel"].startswith("peer/"), r["kernel"])):
            line = f"{seq_len:>7}  {record['kernel']:<26} "
            if record["status"] == "passed":
                line += f"{record['time_ms']['median']:>10.4f} {record['tflops']:>9.1f}"
                line += "".join(f" {ratio:>9.3f}" if ratio else "" for ratio in map(record.get("ratio", {}).get, peers))
            else:
                line += f"{record['status']}: {record['reason']}"
            lines.append(line if len(line) <= 100 else line[:96] + " ...")
    return lines


def results(created, command, machine, protocol, records):
    words = [word.rsplit("/", 1)[-1] for word in command]  # file names may name this machine's folders
    return {"schema_version": 2, "created": created, "command": ["peers.py", *words], "machine": machine,
            "protocol": protocol, "records": records}


def write(path, data):
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        temporary.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as problem:
        fail(f"cannot write {path} ({problem.strerror.lower()})")


# --- Command line ----------------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    def error(self, message):
        fail(f"{message} (see --help)")


def whole(least, multiple=1):
    """Of an option: a whole number, at least `least`, a multiple of `multiple`."""

    def parse(text):
        number = int(text) if re.fullmatch(r"\d{1,9}", text) else -1
        if number < least or number % multiple:
            what = f"a multiple of {multiple}" if multiple > 1 else f"a whole number from {least} on"
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return number

    return parse


def several(parse):
    return lambda text: [parse(part) for part in text.split(",") if part]


def seconds(text):
    if re.fullmatch(r"\d{1,6}(\.\d+)?", text) and float(text) > 0:
        return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")


def parse_arguments():
    parser = Parser(description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--program", nargs="+", required=True, metavar="PATH",
        help="programs built for the GPU present, or folders of programs with one kernel each")
    add("--kernels", type=several(str), default=[], metavar="LIST",
        help="names or numbers: 08_swizzle,10 (default: all)")
    add("--peers", default="fa2", metavar="LIST", help=f"{','.join(SDPA)}, or none (default: fa2)")
    add("--dtype", choices=("fp16", "bf16"), default="bf16", help="default bf16")
    add("--head-dim", type=int, choices=(64, 128), default=128, help="default 128")
    add("--heads", type=whole(1), default=16, metavar="N", help="default 16")
    add("--seq-len", type=several(whole(128, 128)), default=[4096], metavar="LIST", help="512,1024 (default: 4096)")
    add("--batch", type=whole(1), metavar="N", help="default: 16384/seq_len")
    add("--rounds", type=whole(1), default=3, metavar="N", help="default 3")
    add("--warmup", type=whole(0), default=32, metavar="N", help="untimed launches (default 32)")
    add("--iters", type=whole(1), default=128, metavar="N", help="timed launches (default 128)")
    add("--max-seconds", type=seconds, default=10.0, metavar="S", help="of timing a kernel in a round (default 10)")
    add("--flush-l2", action="store_true", help="empty the L2 cache before every timed launch")
    add("--seed", type=whole(0), default=1, metavar="N", help="of the inputs (default 1)")
    add("--json", type=Path, metavar="FILE", help="write the results to a file (bench/schema.json, version 2)")
    args = parser.parse_args()
    args.peers = [] if args.peers == "none" else list(dict.fromkeys(several(str)(args.peers)))
    for peer in args.peers:
        if peer not in SDPA:
            fail(f"there is no peer {peer}; known are {', '.join(SDPA)}, or none")
    if not args.seq_len:
        fail("--seq-len needs at least one length (see --help)")
    if args.json and not os.access(args.json.parent, os.W_OK):
        fail(f"cannot write into the folder {args.json.parent}")
    return args


def main():
    args = parse_arguments()
    created = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    programs = find_programs(args.program, args.kernels)
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    if args.peers:
        say("loading PyTorch ...")
    peers, missing = find_peers(args.peers)
    for name, why in missing.items():
        say(f"{name} is left out: {why}")
    protocol = {"warmup": args.warmup, "iterations": args.iters, "flush_l2": args.flush_l2, "rotating_inputs": 1,
                "max_seconds": args.max_seconds, "inputs": "normal", "seed": args.seed, "rounds": args.rounds,
                "tflops_convention": "4*B*H*N^2*D"}
    records = []
    for seq_len in dict.fromkeys(args.seq_len):
        problem = {"dtype": args.dtype, "batch": args.batch or max(1, 16384 // seq_len), "heads": args.heads,
                   "seq_len": seq_len, "head_dim": args.head_dim}
        records += measure_problem([*peers, *programs], missing, problem, protocol, say)
    machine = programs[0].machine
    print(f"{machine['gpu']}: {args.dtype}, {args.heads} heads, head_dim {args.head_dim}, batch "
          f"{args.batch or '16384/seq_len'}, {args.rounds} round{'s' * (args.rounds != 1)}")
    for peer in peers:
        library = peer.backend.library(peer.peer)
        print(f"{peer.name()}: {library['implementation']} of {library['name']} {library['version']}")
    print()
    print("\n".join(table(records)))
    if args.json:
        write(args.json, results(created, sys.argv[1:], machine, protocol, records))
    statuses = {record["status"] for record in records}
    return 3 if "error" in statuses else 1 if "wrong" in statuses else 0


if __name__ == "__main__":
    sys.exit(main())
