"""Draws timelines that programs wrote with --trace, one below the other: some cycles of one CTA, as an SVG. With --docs
the chapters' ones: docs/timelines/NAME.svg; where the book's card has a trace in its timelines.jsonl, NAME-recorded.svg with the
model's above it. The same traces give the same bytes. On phones the site shows the same cycles in two halves, one below the other."""

import re
import subprocess
import sys
import tempfile
import textwrap
from collections import defaultdict, namedtuple
from pathlib import Path

from fa_tools.cards import BOOK
from fa_tools.documents.figures.drawing import INK, Picture, keep, number, runs
from fa_tools.records import is_stale
from fa_tools.sources import fact, kernel_names
from fa_tools.tools import (ROOT, Parser, Refused, busy, fail, named, read_json, relative, results_files, write_json,
                            write_whole)

FOLDER = ROOT / "docs" / "timelines"
PROGRAM = ROOT / "build" / "emulator" / "bin" / "attention_checked"
EXAMPLE = f"""examples:
  scripts/fa timeline 07.json --cycles 12000 -o 07.svg
                                        after build/emulator-checked/bin/07_cp_async --trace 07.json
  scripts/fa timeline model.json gpu.json --from 0,5000
                                        the emulator's and a GPU's (build/cuda-timeline/bin/14_softmax_overlap
                                        --trace gpu.json), from cycles 0 and 5000
  scripts/fa timeline bench/results/{BOOK}/timelines.jsonl#16 --convert 16.json
                                        a kept recording as https://ui.perfetto.dev opens it
  scripts/fa timeline --docs            draw the chapters' timelines again
  scripts/fa timeline --docs --check    only say which are out of date

Exit code: 0 done, 1 with --check something is out of date, 2 bad arguments or file, 3 the program failed, 4 the program is not built."""

# What a warp does or waits for, and in which colour: the units of the trace's slices.
Kind = namedtuple("Kind", "name light dark")
KINDS = {
    "tensor": Kind("products", "#0072b2", "#58b4e8"),
    "exponential": Kind("exponentials", "#00805f", "#3fc79f"),
    "shared": Kind("shared memory", "#d55e00", "#ff9a5c"),
    "global": Kind("global memory, copies", "#9a4f96", "#d89bd4"),
    "barrier": Kind("barrier", "#a8b0b9", "#5b646e"),
    "work": Kind("other instructions", "#c7a53a", "#8f7a35"),
    "other": Kind("other", "#d5dae0", "#30373f"),
}
SAME = {"copies": "global", "exchange": "other", "issue": "other"}
# The rows below the warps: how busy a unit is.
UNITS = {"Tensor Cores": "tensor", "Exponentials": "exponential", "Shared memory": "shared", "L2 to SM": "global"}
UNDER_WAY = {"Loads under way": "loads", "Copies under way": "copies"}
# Programs write timelines of one CTA (--trace) in the Trace Event Format, which https://ui.perfetto.dev opens: one
# event per slice. What is kept in a card's timelines.jsonl says the same in a tenth of the characters:
#
#   kinds    what slices have in common: name, unit, the statement of the source, bytes, FLOPs, wavefronts
#   rows     one per warp or unit; `slices` has three numbers per slice: cycles since the end of the slice before, cycles that
#            it lasts, its place in `kinds`
#   arrows   what ended a wait: its name, then the row and the cycle in which it begins and in which it ends
VERSION = 1
NO_TRACE = "is not a trace that a program of this repository wrote with --trace"


def compact(trace):
    """The kept form of a trace as a program wrote it."""
    groups, rows, kinds, begun, arrows = {}, {}, {}, {}, []
    for event in trace["traceEvents"]:
        where = event["pid"], event["tid"]
        if event["ph"] == "M" and event["name"] == "process_name":
            groups[event["pid"]] = event["args"]["name"]
        elif event["ph"] == "M" and event["name"] == "thread_name":
            rows[where] = {"group": groups[event["pid"]], "name": event["args"]["name"], "slices": [], "end": 0}
        elif event["ph"] == "X":
            row = rows[where]
            kind = tuple({"name": event["name"], "unit": event["cat"], **event["args"]}.items())
            row["slices"] += event["ts"] - row["end"], event["dur"], kinds.setdefault(kind, len(kinds))
            row["end"] = event["ts"] + event["dur"]
        elif event["ph"] == "s":
            begun[event["id"]] = where, event["ts"]
        elif event["ph"] == "f":
            number, (start, since) = list(rows).index, begun[event["id"]]
            arrows.append([event["name"], number(start), since, number(where), event["ts"]])
    return {"timeline_version": VERSION, **trace["otherData"], "kinds": [dict(kind) for kind in kinds],
            "rows": [{key: row[key] for key in ("group", "name", "slices")} for row in rows.values()], "arrows": arrows}


def expand(kept):
    """The trace as a program wrote it, for Perfetto; events of one row follow one another."""
    about = {key: value for key, value in kept.items() if key not in ("timeline_version", "kinds", "rows", "arrows")}
    events, places, slices = [], [], []
    for row in kept["rows"]:
        process, thread = places[-1] if places else (0, 0)
        first = not places or kept["rows"][len(places) - 1]["group"] != row["group"]
        process, thread = (process + 1, 1) if first else (process, thread + 1)
        places.append((process, thread))
        for key, value, what in ((("name", row["group"], "process"),) * first + (("sort_index", process, "process"),) * first +
                                 (("name", row["name"], "thread"), ("sort_index", thread, "thread"))):
            events.append({"ph": "M", "pid": process, "tid": thread, "name": f"{what}_{key}", "args": {key: value}})
        at, numbers = 0, row["slices"]
        for gap, cycles, kind in zip(numbers[::3], numbers[1::3], numbers[2::3]):
            args = dict(kept["kinds"][kind])
            name, unit = args.pop("name"), args.pop("unit")
            slices.append({"ph": "X", "pid": process, "tid": thread, "ts": at + gap, "dur": cycles, "name": name, "cat": unit,
                           "args": args})
            at += gap + cycles
    events += slices
    for i, (name, start, since, end, until) in enumerate(kept["arrows"], 1):
        for phase, row, time in (("s", start, since), ("f", end, until)):
            event = {"ph": phase, "id": i, "pid": places[row][0], "tid": places[row][1], "ts": time, "name": name,
                     "cat": "ends a wait"}
            events.append({**event, "bp": "e"} if phase == "f" else event)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def load(path):
    """A trace in the Trace Event Format, from either form. Raises Refused if the file is neither."""
    data = read_json(path)
    try:
        if "timeline_version" not in data:
            return data
        if data["timeline_version"] != VERSION:
            raise Refused(f"has timeline version {data['timeline_version']}, but this checkout reads {VERSION}")
        return expand(data)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise Refused(NO_TRACE) from None


def color_of(unit):
    return KINDS.get(unit, KINDS["other"]).light


Slice = namedtuple("Slice", "start end name unit statement")


class Trace:
    """The parsed file: rows of slices by group, in the file's order, and what waited for a copy until when."""

    def __init__(self, path):
        data = load(path)
        try:
            events, self.about = data["traceEvents"], data["otherData"]
            self.cycles, self.kernel = self.about["cycles"], self.about["kernel"]
            names = {}
            for event in events:
                if event["ph"] == "M" and event["name"] in ("process_name", "thread_name"):
                    thread = event["tid"] if event["name"] == "thread_name" else None
                    names[event["pid"], thread] = event["args"]["name"]
            self.rows = defaultdict(lambda: defaultdict(list))
            for event in events:
                if event["ph"] == "X":
                    row = self.rows[names[event["pid"], None]][names[event["pid"], event["tid"]]]
                    unit = SAME.get(event["cat"], event["cat"])
                    row.append(Slice(event["ts"], event["ts"] + event["dur"], event["name"], unit, event["args"].get("statement", "")))
            self.recorded = self.about.get("recorded")  # by a GPU
            self.first = 0
            if self.recorded:
                self.name_softmax()
        except (KeyError, TypeError):
            raise Refused(NO_TRACE) from None

    def name_softmax(self):
        """A recording knows what lies between two events as "other instructions" only. The longest such stretch of a warp
        between two waits for S is the softmax."""
        for row in self.rows["Warps"].values():
            ends = [i for i, each in enumerate(row) if each.unit == "tensor" and "(acc_s" in each.statement and "wait" in each.name]
            for begin, end in zip(ends, [*ends[1:], len(row)]):
                longest = max((i for i in range(begin, end) if row[i].unit == "work"), key=lambda i: row[i].end - row[i].start, default=None)
                if longest is not None:
                    row[longest] = row[longest]._replace(unit="exponential")

    def since(self, first):
        """Forgets what was before this cycle, counted from the first one that is left."""
        self.first += first
        for rows in self.rows.values():
            for row in rows.values():
                row[:] = [each._replace(start=max(each.start - first, 0), end=each.end - first)
                          for each in row if each.end > first]


def share_of_kinds(slices, first, last):
    """Cycles of [first, last) that each kind has."""
    shares = defaultdict(int)
    for each in slices:
        shares[each.unit] += min(each.end, last) - max(each.start, first)
    return shares


def columns(slices, cycles, count):
    """For each of `count` columns of the picture: its slices. A column has cycles/count cycles."""
    result = [[] for _ in range(count)]
    for each in slices:
        if each.start >= cycles or each.end <= each.start:
            continue
        for column in range(each.start * count // cycles, min((each.end - 1) * count // cycles + 1, count)):
            result[column].append(each)
    return result


class Panel:
    """One trace's part of the picture, from `top` on."""
    LEFT, WIDE = 128, 728

    def __init__(self, trace, cycles, mean=None):
        self.trace, self.cycles, self.mean = trace, cycles, mean
        self.p = None
        self.warps, self.spans_of = self.some_warps(), [*self.products(), *self.under_way()]
        self.units = [group for group in UNITS if trace.rows.get(group)]
        self.any_product = None if not trace.recorded else [span for _, unit, spans in self.spans_of if unit == "tensor" for span in spans]
        self.warp_tall = 22 if len(self.warps) <= 4 else 14
        bands = len(self.units) + bool(self.any_product)
        self.tall = len(self.warps) * (self.warp_tall + 4) + 14 + bands * 32 + len(self.spans_of) * 18 + 44

    def some_warps(self):
        """The first warp of each warpgroup, and those with copies that the first one has not. The others do what the first one
        does, at nearly the same time. Of at most four warps all."""
        warps, shown = self.trace.rows["Warps"], {}
        for name, slices in warps.items():
            copies = {each.name for each in slices if each.unit == "global"}
            if int(name.split()[1]) % 4 == 0:
                first = copies
            if len(warps) <= 4 or first is copies or copies - first:
                shown[name] = slices
        return shown

    def about(self):
        first, recorded, about = self.trace.first, self.trace.recorded, self.trace.about
        last = min(first + self.cycles, self.trace.cycles)
        text = f"{about['dtype']}, seq_len {about['seq_len']}, head_dim {about['head_dim']}: "
        text += f"cycles {first:,} to {last:,} of {self.trace.cycles:,}" if first else f"the first {last:,} of {self.trace.cycles:,} cycles"
        if not recorded:
            return f"{text} on an SM that runs nothing else. A model of order and overlap, not a measurement."
        text += f", recorded on {recorded['gpu'].split(' (')[0]}"
        if recorded["ms"]:
            text += f": {recorded['ms']:.4g} ms per launch, {recorded['recording_ms']:.4g} ms recording"
        return text + "." + " The kernel has changed since." * is_stale({**recorded, "kernel": self.trace.kernel})

    def draw(self, picture, y):
        self.p = picture
        for name, slices in self.warps.items():
            self.warp(y, name, slices)
            y += self.warp_tall + 4
        y += 14
        if self.any_product:
            self.band(y, "product under way", "tensor", self.any_product)
            y += 32
        for group in self.units:
            self.unit(y, group)
            y += 32
        for name, unit, slices in self.spans_of:
            self.spans(y, name, unit, slices)
            y += 18
        self.axis(y + 6)

    def x(self, cycle):
        return self.LEFT + self.WIDE * cycle / self.cycles

    def label(self, y, text):
        self.p.text(self.LEFT - 10, y, text, 12, INK.text, "end")

    def warp(self, y, name, slices):
        """Each column in the colour of what most of it went to; of means, the shares of a column on top of each other."""
        self.label(y + self.warp_tall / 2 + 4, name)
        self.p.rect(self.LEFT, y, self.WIDE, self.warp_tall, INK.cell)
        if self.mean:
            count = max(self.cycles // self.mean, 1)
            found = [share_of_kinds(slices, column * self.cycles / count, (column + 1) * self.cycles / count)
                     for column, slices in enumerate(columns(slices, self.cycles, count))]
            for i, unit in reversed([*enumerate(KINDS)]):  # what is lower lies on what is higher
                if any(shares.get(unit) for shares in found):
                    below = list(KINDS)[: i + 1]
                    self.heights(y, self.warp_tall, [sum(shares.get(each, 0) for each in below) * count / self.cycles for shares in found], unit)
            return
        start, now = 0, None
        for column, found in enumerate([*columns(slices, self.cycles, self.WIDE), []]):
            first, last = column * self.cycles / self.WIDE, (column + 1) * self.cycles / self.WIDE
            shares = share_of_kinds(found, first, last)
            most = max(shares, key=lambda unit: (shares[unit], unit)) if shares else None
            if most != now or column == self.WIDE:
                if now:
                    self.p.rect(self.LEFT + start, y, column - start, self.warp_tall, color_of(now))
                start, now = column, most

    def unit(self, y, group):
        """How busy, as a height: 24 pixels are all of it."""
        rows, tall = self.trace.rows[group], 24
        self.label(y + 17, group)
        self.p.rect(self.LEFT, y, self.WIDE, tall, INK.cell)
        count = max(self.cycles // self.mean, 1) if self.mean else self.WIDE // 2
        # Of all schedulers, whether they had something to do or not.
        of = 4 if group in ("Tensor Cores", "Exponentials") else 1
        busy = [0.0] * count
        for slices in rows.values():
            for column, found in enumerate(columns(slices, self.cycles, count)):
                first, last = column * self.cycles / count, (column + 1) * self.cycles / count
                busy[column] += sum(share_of_kinds(found, first, last).values()) / (last - first) / of
        self.heights(y, tall, busy, UNITS[group])

    def heights(self, y, tall, shares, unit):
        """Columns of one colour, `tall` pixels high where the share is 1."""
        outline = [(self.LEFT, y + tall)]
        for height, begin, end in runs([round(share * tall) for share in shares]):
            outline += [(self.LEFT + column * self.WIDE / len(shares), y + tall - height) for column in (begin, end)]
        self.p.path([*outline, (self.LEFT + self.WIDE, y + tall)], True, color_of(unit), None)

    def band(self, y, name, unit, spans):
        """When at least one of these is: as high as a unit that is busy."""
        self.label(y + 17, name)
        self.p.rect(self.LEFT, y, self.WIDE, 24, INK.cell)
        ends = 0
        for start, end in sorted(spans):
            begin, ends = max(start, ends), max(min(end, self.cycles), ends)
            if begin < ends:
                self.p.rect(self.x(begin), y, self.x(ends) - self.x(begin), 24, color_of(unit))

    def products(self):
        """Products under way, of the first warp of each warpgroup: (label, unit, slices) of each row."""
        result = []
        for name, slices in self.trace.rows.get("Products under way", {}).items():
            number, is_first = int(name.split()[1]), "(" not in name
            spans = [(each.start, each.end) for each in slices if each.start < self.cycles]
            if number % 4 == 0 and spans:
                result.append((f"products, {name}" if is_first else " ", "tensor", spans))
        return result

    def under_way(self):
        """Loads and copies of all warps together: those of a group (group 3 of every warp is one tile's), bulk copies
        that are issued one right behind the other, loads that overlap. (label, unit, spans) of each row."""
        result = []
        for group, name in UNDER_WAY.items():
            if group not in self.trace.rows:
                continue
            spans, latest, issued = {}, None, 0
            for each in sorted(each for slices in self.trace.rows[group].values() for each in slices):
                if "group" in each.name:
                    span = spans.setdefault(each.name, [each.start, each.end])
                else:
                    near = each.start <= (latest[1] if name == "loads" else issued + 16) if latest else False
                    latest = span = latest if near else spans.setdefault(len(spans), [each.start, each.end])
                    issued = each.start
                span[1] = max(span[1], each.end)
            ordered = sorted(tuple(span) for span in spans.values())
            rows = []  # as many as overlap
            for span in ordered:
                if span[0] >= self.cycles:
                    continue
                free = next((row for row in rows if row[-1][1] <= span[0]), None)
                if free is None:
                    rows.append(free := [])
                free.append(span)
            for i, row in enumerate(rows):
                result.append((f"{name} under way" if not i else " " * i, "global", row))
        return result

    def spans(self, y, name, unit, spans):
        self.label(y + 11, name)
        for start, end in spans:
            x, right = self.x(start), self.x(min(end, self.cycles))
            self.p.rect(x, y + 2, max(right - x, 1.5), 11, color_of(unit), None, 2)

    def axis(self, y):
        step = next(s for s in (100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, sys.maxsize)
                    if self.cycles / s <= min(8, self.WIDE // 60))
        first = self.trace.first
        for cycle in range(-(-first // step) * step - first, self.cycles + 1, step):
            self.p.line(self.x(cycle), y, self.x(cycle), y + 5, INK.line, 1)
            anchor = "end" if self.x(cycle) > self.LEFT + self.WIDE - 10 else "middle"
            if first and self.x(cycle) < self.LEFT + 14:
                anchor = "start"
            self.p.text(self.x(cycle), y + 19, f"{cycle + first:,}", 11.5, INK.muted, anchor)
        self.p.line(self.LEFT, y, self.LEFT + self.WIDE, y, INK.line, 1)
        self.p.text(self.LEFT - 10, y + 19, "cycle", 11.5, INK.muted, "end")


def title_of(trace):
    who = "What the model says"
    if trace.recorded:
        gpu = trace.recorded["gpu"].split(" (")[0].removeprefix("NVIDIA ")
        who = f"What {'an' if gpu[0] in 'AHLR' else 'a'} {gpu} did"
    return f"{who}: {trace.kernel}, CTA {trace.about['cta']}"


def draw(traces, cycles, mean=None):
    """The traces' panels below each other, in one scale; above them what the colours mean, in lines that a phone has room for."""
    cycles = min(cycles, max(trace.cycles - trace.first for trace in traces))
    p = Picture(Panel.LEFT + Panel.WIDE + 24, 0, ", ".join(map(title_of, traces)), [kind[1:] for kind in KINDS.values()])
    drawn = {each.unit for trace in traces for rows in trace.rows.values() for row in rows.values() for each in row}
    y, plots = 30, []
    for trace in traces:
        panel = Panel(trace, cycles, mean)
        p.text(24, y, title_of(trace), 16, anchor="start", weight="bold")
        about = textwrap.wrap(panel.about(), 76)
        p.lines(24, y + 20, 16, about, 12.5)
        y += 25 + 16 * len(about)
        if not plots:
            y = legend(p, y, drawn, mean) + 17
        panel.draw(p, y)
        plots += y - 8, y + panel.tall - 10
        y += panel.tall + 32
    p.height = y - 32
    p.attributes = (("data-plots", " ".join(map(number, plots))),)
    return p.svg()


def legend(p, y, drawn, mean=None):
    """What the colours mean; returns where its last line is."""
    if "work" not in drawn:
        p.text(24, y, "what a warp does or waits for" + f"; everything as a mean over {mean} cycles" * bool(mean), 12, INK.muted, "start")
        y += 18
    x = 24
    for unit, kind in KINDS.items():
        if unit == "other" or unit == "work" and unit not in drawn:
            continue
        name = kind.name + ", softmax" * (unit == "exponential" and "work" in drawn)
        if x + 16 + 6.4 * len(name) > PHONE:
            x, y = 24, y + 18
        p.rect(x, y - 10, 11, 11, color_of(unit), None, 2)
        p.text(x + 16, y, name, 12, INK.muted, "start")
        x += 40 + 6.4 * len(name)
    return y


# How wide the form for phones is; from where on it shows the second half; how far the halves overlap, so that a number is whole.
PHONE, BESIDE, OVERLAP = 530, 124, 18


def phone(svg):
    """The form for phones of what draw() made: windows onto it, which show its titles once, and of each plot the second half, with
    the labels, below the first one."""
    plots = [float(y) for y in re.search(r' data-plots="([\d. ]+)"', svg)[1].split()]
    middle, wide = Panel.LEFT + Panel.WIDE // 2, Panel.LEFT + Panel.WIDE + 24
    windows, below, ends = [], 0, 0
    for top, bottom in zip(plots[::2], plots[1::2]):
        for x, left, right, begin, end in ((0, 0, PHONE, ends, top), (0, 0, middle + OVERLAP, top, bottom), (0, 0, BESIDE, top, bottom),
                                           (BESIDE, middle - OVERLAP, wide, top, bottom)):
            windows.append(f'<svg x="{x}" y="{number(below)}" width="{right - left}" height="{number(end - begin)}" '
                           f'viewBox="{left} {number(begin)} {right - left} {number(end - begin)}"><use href="#whole"/></svg>')
            below += (end - begin + 10 * (begin == top)) * ((left, right) != (0, BESIDE))
        ends = bottom
    root, inner = re.match(r"<svg [^>]*>\n(.*</style>\n)", svg, re.DOTALL), svg.removesuffix("</svg>\n")
    size = f'width="{PHONE}" height="{number(below)}"'
    head = re.sub(r'width=.* viewBox="[^"]*"', f'{size} viewBox="0 0 {PHONE} {number(below)}"', svg[:root.start(1)], count=1)
    return "\n".join([head + root[1] + f'<rect {size} rx="6" fill="{INK.background}"/>',
                      f'<defs><g id="whole">\n{inner[root.end():]}</g></defs>', *windows, "</svg>", ""])


def phones():
    """{NAME of docs/timelines/NAME.svg: its form for phones}, which no file has."""
    return {path.stem: phone(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.svg"))}


def trace_of(kernel, seq_len):
    """Runs the kernel with one head, head_dim 128."""
    with tempfile.TemporaryDirectory() as folder, busy(f"running {kernel}"):
        path = Path(folder) / "trace.json"
        done = subprocess.run([PROGRAM, kernel, "--heads", "1", "--seq-len", str(seq_len), "--trace", path], cwd=ROOT, capture_output=True, text=True,
                              check=False, timeout=300)
        if done.returncode:
            fail(f"{kernel} ended with exit code {done.returncode}: {done.stderr.strip()}", 3)
        return Trace(path)


def draw_docs(check):
    if not PROGRAM.exists():
        fail(f"{relative(PROGRAM)} is not built; this builds it:\ncmake --preset emulator && cmake --build --preset emulator --target "
             f"{PROGRAM.name}", 4)
    drawn = {}
    recorded = {path.partition("#")[2]: path for path in results_files(f"{BOOK}/timelines.jsonl")}
    for kernel in filter(lambda kernel: fact(kernel, "timeline"), kernel_names()):
        name, (seq_len, cycles) = kernel[:2], fact(kernel, "timeline")
        trace = trace_of(kernel, seq_len)
        if name in recorded:  # the model's timeline is shown above it
            on_gpu = Trace(recorded[name])
            on_gpu.since(fact(kernel, "since"))
            name, traces = f"{name}-recorded", [trace, on_gpu]
        else:
            traces = [trace]
        drawn[name] = draw(traces, cycles, fact(kernel, "means"))
    return keep(FOLDER, drawn, "scripts/fa timeline --docs", check)


def convert(path, out):
    with named(path):
        Trace(path)
        data = read_json(path)
        write_json(out, expand(data) if "timeline_version" in data else compact(data))
    print(f"wrote {out}")
    return 0


def main():
    parser = Parser("timeline", __doc__, EXAMPLE)
    parser.add_argument("trace", nargs="*", help="files that programs wrote with --trace")
    parser.add_argument("-o", "--output", metavar="FILE", help="the SVG to write [the first trace's name with .svg]")
    parser.earlier("--out", "output")
    parser.add_argument("--from", dest="first", default="0", metavar="CYCLES",
                        help="the first cycle to draw; of several traces one for each: 0,5000 [0]")
    parser.add_argument("--cycles", type=int, default=10000, help="how many to draw [10000]")
    parser.add_argument("--mean", type=int, metavar="CYCLES", help="draw means over so many cycles, where instructions are too short to be seen")
    parser.add_argument("--convert", metavar="OUT", help="write the trace in its other form and draw nothing: as "
                        f"bench/results/{BOOK}/timelines.jsonl keeps it, or for https://ui.perfetto.dev")
    parser.add_argument("--docs", action="store_true", help="the chapters' timelines, from "
                        "build/emulator/bin/attention_checked")
    parser.add_argument("--check", action="store_true", help="with --docs: change nothing, name what is out of date")
    args = parser.parse_args()
    if args.docs:
        return draw_docs(args.check)
    if not args.trace:
        parser.error("name a trace, or --docs")
    if args.cycles < 1:
        parser.error("--cycles must be at least 1")
    if args.mean is not None and not 1 <= args.mean <= args.cycles:
        parser.error(f"--mean must be from 1 to {args.cycles}")
    if args.convert:
        if len(args.trace) > 1:
            parser.error("--convert takes one trace")
        return convert(args.trace[0], args.convert)
    firsts = args.first.split(",")
    if not all(first.isdecimal() for first in firsts) or len(firsts) not in (1, len(args.trace)):
        parser.error("--from takes a number, or one for each trace: 0,5000")
    traces = []
    for path, first in zip(args.trace, firsts * len(args.trace)):
        with named(path):
            traces.append(Trace(path))
        if int(first) >= traces[-1].cycles:
            fail(f"{path} has only {traces[-1].cycles} cycles: nothing from {first} on")
        traces[-1].since(int(first))
    text = draw(traces, args.cycles, args.mean)
    out = Path(args.output or Path(args.trace[0]).with_suffix(".svg"))
    write_whole(out, text)
    print(f"drew {out}")
    return 0
