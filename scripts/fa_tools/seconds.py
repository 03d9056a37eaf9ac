"""Measures what the checked build costs: processor seconds of one run of every kernel at --heads 1, seq_len 256,
head_dim 128, all threads, inputs and reference included. The least of some runs, since other work on the machine only
adds to it. Writes bench/results/checked_seconds.txt, which docs/emulator.md shows."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from fa_tools.tools import ROOT, Parser, fail, relative

OUTPUT = ROOT / "bench" / "results" / "checked_seconds.txt"
SHAPE = ("--heads", "1", "--seq-len", "256", "--head-dim", "128")
WAYS = {"checked": (), "no races": ("--no-races",)}
EXAMPLE = """examples:
  scripts/fa seconds                                  measure, write bench/results/checked_seconds.txt
  scripts/fa seconds --limit 2                        write nothing; exit code 1 if a kernel takes longer than 2 s"""


def processor():
    try:
        match = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1] if match else platform.processor() or platform.machine()


def seconds(command):
    before = os.times()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    after = os.times()
    if done.returncode:
        fail(f"{' '.join(map(str, command))} ended with exit code {done.returncode}: {done.stderr.strip()}", 3)
    return after.children_user + after.children_system - before.children_user - before.children_system


def main(argv=None):
    parser = Parser("seconds", __doc__, EXAMPLE)
    parser.add_argument("--program", default=ROOT / "build/emulator-checked/bin/attention", metavar="FILE",
                        help="a program of the checked build with all kernels")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="write nothing, hold every kernel to this")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="runs of which the least counts (default 5)")
    args = parser.parse_args(argv)
    if args.repeat < 1:
        fail("--repeat must be at least 1")
    try:
        kernels = subprocess.run([args.program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        fail(f"{relative(args.program)} does not run; cmake --build --preset emulator-checked --target attention builds it", 4)
    if args.limit is not None:
        slow = []
        for kernel in kernels:
            runs = (seconds([args.program, kernel, *SHAPE]) for _ in range(args.repeat))
            least = next((s for s in runs if s <= args.limit), None)
            if least is None:
                slow.append(kernel)
            else:
                print(f"{kernel} {least:.2f} s")
        if slow:
            fail(f"over {args.limit:g} s of processor time: {', '.join(slow)}", 1)
        return 0
    lines = [f"Processor seconds of one run at {' '.join(SHAPE)}, on {processor()}",
             f"{'kernel':28}" + "".join(f"{way:>10}" for way in WAYS)]
    for kernel in kernels:
        print(f"{kernel} ...", file=sys.stderr)
        least = (min(seconds([args.program, kernel, *SHAPE, *options]) for _ in range(args.repeat)) for options in WAYS.values())
        lines.append(f"{kernel:28}" + "".join(f"{value:10.2f}" for value in least))
    OUTPUT.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"wrote {relative(OUTPUT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
