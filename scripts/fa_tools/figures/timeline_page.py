"""The data of the interactive timeline: the first part of each kernel's trace, of the emulator (--trace) and of a GPU
(bench/results/h200_timelines.jsonl), in few characters.

A row's events are words "gap.cycles.kind" or "gap.cycles.kind.times", numbers in base 36: cycles since the end of the
event before, cycles it lasts, its place in the trace's `kinds`, and how many equal ones it stands for, one right behind
the other. `arrows` has "row.event.row.event": a wait, and what ended it."""

import bisect
import json
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

from fa_tools.figures import traces
from fa_tools.statements import line_numbers
from fa_tools.tools import ROOT, Refused, fail, or_fail, relative, results_files

FIRST = "06"  # the kernel with which the page begins: before, warps share no work that a row could show
ROOM = 28_000  # characters of a trace
STEP = 100  # cycles, to which a trace is cut
GROUPS = ("Warps", "Tensor Cores", "Products under way", "Exponentials", "Shared memory", "L2 to SM", "Loads under way",
          "Copies under way")
PACKED = ("Products under way", "Loads under way", "Copies under way")  # into as few rows as overlap
SAME = {"copies": "global", "exchange": "other", "issue": "other"}  # as scripts/fa timeline has them
# What a warp does or waits for, by the units of a trace: its name, its colour on light and on dark.
UNITS = {"tensor": ("products", "#0072b2", "#58b4e8"), "exponential": ("exponentials", "#00805f", "#3fc79f"),
         "shared": ("shared memory", "#d55e00", "#ff9a5c"), "global": ("global memory, copies", "#9a4f96", "#d89bd4"),
         "barrier": ("barriers", "#7a838d", "#8b949e"), "work": ("other instructions", "#c7a53a", "#8f7a35"),
         "other": ("other", "#b4bac1", "#4a525b")}
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def base36(number):
    text = DIGITS[number % 36]
    while number := number // 36:
        text = DIGITS[number % 36] + text
    return text


class Trace:
    def __init__(self, data):
        self.about = data["otherData"]
        names = {}
        for event in data["traceEvents"]:
            if event["ph"] == "M" and event["name"] in ("process_name", "thread_name"):
                thread = event["tid"] if event["name"] == "thread_name" else None
                names[event["pid"], thread] = event["args"]["name"]
        self.rows = []  # (group, name, [(start, end, kind, (pid, tid))])
        rows = defaultdict(list)
        for event in data["traceEvents"]:
            if event["ph"] != "X":
                continue
            where = event["pid"], event["tid"]
            group, row_name = names[event["pid"], None], names[where]
            owner = " ".join(row_name.split()[:2]) if group in PACKED else ""
            # Of products the first warp of each warpgroup; the others' are the same.
            if group == "Products under way" and int(owner.split()[1]) % 4:
                continue
            args = event.get("args", {})
            what = [f"{args[key]:,} {unit}" for key, unit in (("bytes", "bytes"), ("flops", "FLOP"),
                                                              ("wavefronts", "wavefronts")) if key in args]
            unit = SAME.get(event["cat"], event["cat"])
            name = event["name"].replace("wgmma.m64n0k16", "wgmma")  # a record does not say N
            kind = name, unit, self.line(args), ", ".join(what), owner
            row = group if group in PACKED else (group, row_name)
            rows[row].append((event["ts"], event["ts"] + event["dur"], kind, where))
        for group in GROUPS:
            if group in PACKED:
                self.pack(group, sorted(rows.get(group, [])))
            else:
                self.rows += [(*row, sorted(rows[row])) for row in rows if row[0] == group]
        arrows = defaultdict(dict)
        for event in data["traceEvents"]:
            if event["ph"] in "sf":
                arrows[event["id"]][event["ph"]] = (event["pid"], event["tid"]), event["ts"]
        self.arrows = [(pair["f"], pair["s"]) for pair in arrows.values() if len(pair) == 2]

    def line(self, args):
        """The statement's line if it is one of the kernel's own file, or the lines of all with its text; else the file."""
        file = f"kernels/{self.about['kernel']}.cu"
        return args.get("file") or " or ".join(map(str, line_numbers(file, args.get("statement")))) or file

    def pack(self, group, slices):
        rows = []
        for one in slices:
            free = next((row for row in rows if row[-1][1] <= one[0]), None)
            if free is None:
                rows.append(free := [])
            free.append(one)
        self.rows += [(group, str(i + 1) if len(rows) > 1 else "", row) for i, row in enumerate(rows)]

    def cut(self, cycles):
        """The data of the events that begin before."""
        kinds, lines, places = {}, [], {}
        ending = {by for _, by in self.arrows}  # what ends a wait ends its run of equal ones, too
        for number, (group, name, slices) in enumerate(self.rows):
            events, joins = [], False  # start, end, kind, times
            for start, end, kind, where in slices:
                if start >= cycles:
                    break
                last = events[-1] if events else None
                if joins and last[1] == start and last[2] == kind:
                    last[1], last[3] = end, last[3] + 1
                else:
                    events.append([start, end, kind, 1])
                joins = group not in PACKED and not any((where, cycle) in ending for cycle in range(max(start, end - 2), end))
                places.setdefault(where, []).append((start, end, number, len(events) - 1))
            words, at = [], 0
            for start, end, kind, times in events:
                word = [start - at, end - start, kinds.setdefault(kind, len(kinds))] + ([times] if times > 1 else [])
                words.append(".".join(map(base36, word)))
                at = end
            lines.append([GROUPS.index(group), name, " ".join(words)])
        arrows = []
        for waits, ends in self.arrows:
            both = [self.find(places, *where) for where in (waits, ends)]
            if all(both):
                arrows.append(".".join(base36(number) for place in both for number in place))
        about = self.about
        return {"kernel": about["kernel"], "recorded": about.get("recorded", {}).get("gpu", ""),
                "problem": f"{about['dtype']}, {about['seq_len']} tokens, head_dim {about['head_dim']}, CTA {about['cta']}",
                "cycles": about["cycles"], "shown": min(cycles, about["cycles"]), "kinds": [list(kind) for kind in kinds],
                "rows": lines, "arrows": " ".join(sorted(arrows))}

    @staticmethod
    def find(places, where, cycle):
        slices = places.get(where, [])
        at = bisect.bisect_right(slices, (cycle, float("inf"))) - 1
        return slices[at][2:] if at >= 0 and slices[at][0] <= cycle < slices[at][1] else None

    def first_part(self):
        """As much as has room: the data of the first cycles, a multiple of STEP or all of them."""
        steps = range(1, -(-self.about["cycles"] // STEP) + 1)
        fits = bisect.bisect_right(steps, ROOM, key=lambda n: len(json.dumps(self.cut(n * STEP)))) - 1
        return self.cut(steps[max(fits, 0)] * STEP)


def parsed(path):
    try:
        return Trace(traces.load(path))
    except (KeyError, TypeError, ValueError):
        raise Refused(traces.NO_TRACE) from None


def emulated(program, kernel, tokens):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        done = subprocess.run([program, kernel, "--heads", "1", "--seq-len", str(tokens), "--trace", path], cwd=ROOT,
                              capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            fail(f"{program.name} {kernel} ended with exit code {done.returncode}: {done.stderr.strip()}", 3)
        return parsed(path).first_part()


def tokens():
    """The kernels whose traces the page shows, and for how many tokens: two tiles of K and V, which wgmma's make larger."""
    return {path.stem: 512 if "wgmma" in path.read_text(encoding="utf-8") else 256
            for path in sorted((ROOT / "kernels").glob("[0-9][0-9]_*.cu")) if path.stem >= FIRST}


def page_data(program):
    """Each kernel's trace that the program writes, and the recording if there is one."""
    shown = [emulated(program, *each) for each in tokens().items()]
    for path in results_files("*_timelines.jsonl"):
        with or_fail(relative(path)):
            shown.append(parsed(path).first_part())
    shown.sort(key=lambda trace: (trace["kernel"], bool(trace["recorded"])))
    return {"groups": GROUPS, "units": UNITS, "traces": shown}
