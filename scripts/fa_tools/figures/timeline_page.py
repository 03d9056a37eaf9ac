"""The data of the interactive timeline: the first part of each kernel's trace, of the emulator (--trace) and of a GPU
(bench/results/h200_timelines.jsonl), in few characters.

A row's events are words "gap.cycles.kind" or "gap.cycles.kind.times", numbers in base 36: cycles since the end of the
event before, cycles it lasts, its place in the trace's `kinds`, and how many equal ones it stands for, one right behind
the other. `arrows` has "row.event.row.event": a wait, and what ended it."""

import bisect
import json
import re
import subprocess
import tempfile
from collections import defaultdict, namedtuple
from fractions import Fraction
from pathlib import Path

from fa_tools.figures import traces
from fa_tools.statements import line_numbers
from fa_tools.tools import ROOT, Refused, fail, or_fail, read_json, relative, results_files

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


# ---- the ladder: where what goes in one tile, kernel by kernel ---------------------------------------------------------
# What an instruction moves, by its kind alone: from where, to where.
MOVES = {"global load": ("global", "registers"), "global store": ("registers", "global"),
         "cp.async": ("global", "shared"), "cp.async.bulk.tensor (load)": ("global", "shared"),
         "cp.async.bulk.tensor (store)": ("shared", "global"),
         "shared load": ("shared", "registers"), "ldmatrix": ("shared", "registers"), "wmma load": ("shared", "registers"),
         "shared store": ("registers", "shared"), "stmatrix": ("registers", "shared"), "wmma store": ("registers", "shared"),
         "exp2": ("registers", "exponential"), "shuffle": ("registers", "lanes"), "vote": ("registers", "lanes")}
PRODUCTS = ("mma.", "wmma.m", "wgmma.m64")
BARRIERS = ("__syncthreads()", "bar.sync", "bar.arrive", "mbarrier.try_wait", "mbarrier.arrive", "mbarrier.arrive.expect_tx")
# In which rows of a trace it shows how long an instruction's work takes.
UNDER_WAY = {"global load": "Loads under way", "cp.async": "Copies under way", "cp.async.bulk.tensor (load)": "Copies under way",
             "cp.async.bulk.tensor (store)": "Copies under way", "global store": "L2 to SM", "exp2": "Warps", "shuffle": "Warps",
             "vote": "Warps", "mma": "Tensor Cores"}
NUMBERS = ("bytes", "wavefronts", "ideal", "flops")
COUNTED = ("count", *NUMBERS)
BINS = 60  # parts of the time that a tile takes
Slice = namedtuple("Slice", "group row start end name times of numbers")
SALIENT = 0.2  # of a bin: from there on the page shows what goes on in it
SHORTEST, MOST_STEPS = 2, 9  # bins of a step; steps of a tile
ROW = 2 * 128  # bytes of a row of Q, K or V


def run_traced(program, kernel, tokens):
    """The slices [(group, row, start, end, name, times, of, numbers)] of a CTA's trace and the counters of the launch."""
    with tempfile.TemporaryDirectory() as folder:
        trace, results = Path(folder) / "trace.json", Path(folder) / "results.json"
        done = subprocess.run([program, kernel, "--heads", "1", "--seq-len", str(tokens), "--trace", trace, "--json", results],
                              cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            fail(f"{program.name} {kernel} ended with exit code {done.returncode}: {done.stderr.strip()}", 3)
        data, record = read_json(trace), read_json(results)["records"][0]
    rows = {(e["pid"], e["tid"] if e["name"] == "thread_name" else None): e["args"]["name"] for e in data["traceEvents"]
            if e["ph"] == "M" and e["name"] in ("process_name", "thread_name")}
    slices = []
    for e in data["traceEvents"]:
        if e["ph"] == "X":
            name, times = re.fullmatch(r"(.*?)(?:, group \d+)?(?: x(\d+))?", e["name"]).groups()
            slices.append(Slice(rows[e["pid"], None], rows[e["pid"], e["tid"]], e["ts"], e["ts"] + e["dur"], name, int(times or 1),
                                e["args"].get("of", ""), [e["args"].get(key, 0) for key in NUMBERS]))
    return with_warps(slices), record["counters"]


def is_product(name):
    return name.startswith(PRODUCTS)


def with_warps(slices):
    """The same, but a Tensor Core's slices say whose they are: it serves in the order of issue."""
    issued, served = defaultdict(list), defaultdict(list)
    for each in slices:
        if is_product(each.name) and each.group == "Warps":
            issued[warp_of(each.row) % 4].append(each)
        elif each.group == "Tensor Cores":
            served[int(re.search(r"\d+", each.row)[0])].append(each)
    rows = {}
    for scheduler, mine in served.items():
        for one, by in zip(mine, sorted(issued[scheduler], key=lambda each: each.start), strict=True):
            rows[id(one)] = by.row
    return [each._replace(row=rows.get(id(each), each.row)) for each in slices]


def warp_of(row):
    return int(row.split()[1]) if row.startswith("warp ") else None


def roles_of(slices):
    """Warp -> role: warpgroups that multiply by wgmma, and the other warps by what they move; else all warps alike."""
    named, does = {}, defaultdict(set)
    for each in slices:
        if each.group == "Warps":
            does[warp_of(each.row)].add(each.name)
    groups = {warp // 4 for warp, names in does.items() if any(name.startswith("wgmma.m64") for name in names)}
    for warp, names in sorted(does.items()):
        if not groups:
            named[warp] = "All warps"
        elif warp // 4 in groups:
            named[warp] = f"Warpgroup {warp // 4}"
        elif any(name.endswith("(store)") for name in names):
            named[warp] = "Store warps"
        elif any(name.endswith("(load)") for name in names):
            named[warp] = "Producer"
    return named


def move_of(name):
    """(from, to) of an instruction; None: it moves nothing that the page shows."""
    if is_product(name):  # wgmma reads what is in shared memory there
        return "shared" if name.startswith("wgmma") else "registers", "tensor"
    return MOVES.get(name)


def counts_of(slices, roles):
    """Flows (role, instruction, of what) -> [instructions of a warp, bytes, wavefronts, without conflicts, FLOPs]."""
    counts = {}
    for each in slices:
        if each.group == "Warps" and move_of(each.name) and warp_of(each.row) in roles:
            key = roles[warp_of(each.row)], each.name, each.of
            counts[key] = [a + b for a, b in zip(counts.get(key, [0] * 5), [each.times, *each.numbers])]
    return counts


def waits_of(slices):
    """Barrier -> how often a warp executes it."""
    counts = defaultdict(int)
    for each in slices:
        if each.group == "Warps" and each.name in BARRIERS:
            counts[each.name] += each.times
    return counts


def k_runs(slices, roles):
    """Where each tile begins: cycles at which the first warp that uses K begins with it again after V."""
    uses = [each for each in slices if each.group == "Warps" and is_product(each.name)]
    uses = uses or [each for each in slices if each.group == "Warps" and each.name == "shared load"]
    first = min((warp_of(each.row) for each in uses), default=None)
    starts, latest = [], None
    for each in uses:
        tensor = next((name for name in ("K", "V") if name in each.of.split()), None)
        if warp_of(each.row) == first and tensor:
            if tensor == "K" and latest != "K":
                starts.append(each.start)
            latest = tensor
    return starts


def solved(rows, values):
    """x of rows x = values, by Cramer's rule."""
    def det(m):
        if len(m) == 1:
            return m[0][0]
        return sum((-1) ** i * m[0][i] * det([row[:i] + row[i + 1:] for row in m[1:]]) for i in range(len(m)))
    return Fraction(det([[value, *row[1:]] for row, value in zip(rows, values)]), det(rows))


def activity(slices, roles, begin, end):
    """Flow -> share of each of BINS parts of the time in which it goes on."""
    spans = defaultdict(list)
    for each in slices:
        if each.end <= begin or each.start >= end:
            continue
        warp, move = warp_of(each.row), move_of(each.name)
        group = UNDER_WAY.get("mma" if is_product(each.name) else each.name, "Shared memory")
        if move and each.group == group and (warp is None or warp in roles):
            for of in each.of.split() if group == "Copies under way" else [each.of]:
                spans[roles[warp] if warp is not None else None, each.name, of].append((each.start, each.end))
    width = (end - begin) / BINS
    shares = {}
    for flow, times in spans.items():
        bins = [0.0] * BINS
        latest = begin
        for start, stop in sorted(times):
            start, stop = max(start, latest) - begin, min(stop, end) - begin
            latest = max(latest, stop + begin)
            for i in range(int(start / width), min(int(stop / width) + 1, BINS)):
                bins[i] += max(min(stop, (i + 1) * width) - max(start, i * width), 0) / width
        shares[flow] = [min(share, 1) for share in bins]
    return shares


def per_tile(counts, runs, queries):
    """A flow's counts for one tile of K and V, of those of a CTA for several lengths: what grows with its tiles."""
    if len(counts) == 3 and len(set(queries)) == 3:
        rows = [(r, q, 1) for r, q in zip(runs, queries)]
        return [solved(rows, values) for values in zip(*counts)]
    return [Fraction(b - a, runs[-1] - runs[-2]) for a, b in zip(counts[-2], counts[-1])]


def steps_of(flows):
    """[(first bin, flows)]: parts of the tile in which the same goes on."""
    kinds = []
    for n in range(BINS):
        shares = {i: flow["bins"][n] for i, flow in enumerate(flows) if flow["bins"] and flow["bins"][n] > 0}
        least = min(SALIENT, max(shares.values(), default=0))
        kinds.append(frozenset(i for i, share in shares.items() if share >= least))
    parts = [[0, kinds[0], 1]]
    for n in range(1, BINS):
        if kinds[n] == parts[-1][1]:
            parts[-1][2] += 1
        else:
            parts.append([n, kinds[n], 1])
    while len(parts) > 1:  # short ones join the neighbour that is more like them
        short = min(range(len(parts)), key=lambda i: (parts[i][2], i))
        if parts[short][2] >= SHORTEST and len(parts) <= MOST_STEPS:
            break
        near = [i for i in (short - 1, short + 1) if 0 <= i < len(parts)]
        other = min(near, key=lambda i: len(parts[i][1] ^ parts[short][1]) - len(parts[i][1] & parts[short][1]))
        a, b = sorted((short, other))
        larger = max(parts[a], parts[b], key=lambda part: part[2])[1]
        parts[a : b + 1] = [[parts[a][0], larger if parts[a][2] != parts[b][2] else parts[a][1] | parts[b][1], parts[a][2] + parts[b][2]]]
    merged = parts[:1]
    for part in parts[1:]:
        if part[1] == merged[-1][1]:
            merged[-1][2] += part[2]
        else:
            merged.append(part)
    return [[first, sorted(kind)] for first, kind, _ in merged]


class Run:
    """A kernel's trace for so many tokens, of one CTA, and what it counts."""

    def __init__(self, program, kernel, tokens):
        self.tokens = tokens
        self.slices, self.counters = run_traced(program, kernel, tokens)
        self.roles = roles_of(self.slices)
        self.counts, self.waits = counts_of(self.slices, self.roles), waits_of(self.slices)
        self.passes = any(of == "workspace" for _, _, of in self.counts)  # S is in global memory: no tiles
        self.queries = 1 if self.passes else self.loaded("K") // (ROW * tokens)  # tiles of queries that the CTA has

    def loaded(self, tensor):
        """Bytes from global memory."""
        return sum(n[1] for (_, how, of), n in self.counts.items() if of == tensor and move_of(how)[0] == "global")

    def keys(self):
        """Of a tile: as a wgmma says, or of how many tiles there are."""
        wide = (re.match(r"wgmma\.m64n(\d+)", how) for _, how, of in self.counts if "K" in of.split())
        wide = next((int(found[1]) for found in wide if found), None)
        return wide or self.queries * self.tokens // len(k_runs(self.slices, self.roles))

    def window(self):
        """The cycles of the tile that the page shows: the second one; of a persistent CTA the one under which O first leaves."""
        edges, number = [*k_runs(self.slices, self.roles), max(each.end for each in self.slices)], 1
        if self.queries > 1:
            leaves = min(each.start for each in self.slices if each.name.endswith("(store)") and each.group == "Copies under way")
            number = max(i for i, start in enumerate(edges) if start <= leaves)
        return edges[number], edges[number + 1]


def rung(program, kernel):
    """What the page shows of a kernel."""
    text = (ROOT / "kernels" / f"{kernel}.cu").read_text(encoding="utf-8")
    # Two lengths tell what a tile adds; a persistent CTA, whose query tiles grow in number, needs a third.
    runs = [Run(program, kernel, tokens) for tokens in ((256, 512) if "wgmma" in text else (128, 256))]
    shown = runs[-1]
    if shown.queries != runs[0].queries:
        runs.append(Run(program, kernel, 2 * shown.tokens))
    passes = shown.passes
    keys = None if passes else shown.keys()
    tiles = [] if passes else [run.queries * run.tokens // keys for run in runs]
    begin, end = (0, max(each.end for each in shown.slices)) if passes else shown.window()

    def adds(values):
        """What a tile adds to the counts of each run."""
        return values[runs.index(shown)] if passes else per_tile(values, tiles, [run.queries for run in runs])

    busy = activity(shown.slices, shown.roles, begin, end)
    first = {}
    for each in shown.slices:
        if each.group == "Warps":
            first.setdefault((shown.roles.get(warp_of(each.row)), each.name, each.of), each.start)
    names = list(dict.fromkeys(shown.roles.values()))
    flows = []
    for key, total in shown.counts.items():
        role, how, of = key
        numbers = adds([run.counts.get(key, [0] * 5) for run in runs])
        bins = next((busy[found] for found in (key, (None, how, of)) if found in busy), None)
        phase, per, unknown = "tile", "launch" if passes else "tile", ""
        if not any(numbers):  # not for each tile, but once: what is computed and moves then is O
            unknown = "O" if "global" in move_of(how) or "shared" in move_of(how) else ""
            per, numbers = "query tile", [Fraction(n, shown.queries) for n in total]
            phase = "tile" if shown.queries > 1 and bins else "before" if first[key] < begin else "after"
        flow = {"role": names.index(role), "how": how, "of": of or unknown, "phase": phase, "per": per,
                "from": move_of(how)[0], "to": move_of(how)[1], "bins": bins if phase == "tile" else None}
        flows.append(flow | {name: tidy(n) for name, n in zip(COUNTED, numbers)})
    parts = steps_of(flows)
    for flow in flows:
        flow["bins"] = "".join(str(min(1 + int(share * 9), 9) if share > 0.005 else 0) for share in flow["bins"] or ())
    waits = {name: tidy(adds([[run.waits[name]] for run in runs])[0]) for name in shown.waits}
    rows = None if passes else shown.loaded("Q") // ROW // shown.queries
    return {"id": kernel[:2], "kernel": kernel, "tokens": shown.tokens, "passes": passes, "cycles": end - begin,
            "roles": [{"name": name, "warps": list(shown.roles.values()).count(name)} for name in names],
            "rows": rows, "keys": keys, "boundary": shown.queries > 1, "flows": flows, "steps": parts,
            "waits": {name: n for name, n in waits.items() if n},
            "block": launch_block(runs) if passes else tile_block(flows, waits, rows * keys)}


def tidy(n):
    n = round(float(n), 3)
    return int(n) if n == int(n) else n


# What is compared from kernel to kernel, for 128 x 128 scores: the counters' names.
BLOCK = ("global_sectors", "shared_wavefronts", "shared_wavefronts_ideal", "ldmatrix", "matrix_products", "exp2", "shuffles", "votes",
         "barriers")


def launch_block(runs):
    """Of a launch's counters: the part that grows with the square of the tokens."""
    rows = [[run.tokens**2, run.tokens] for run in runs]
    return {name: tidy(solved(rows, [run.counters[name] for run in runs]) * 128 * 128) for name in BLOCK}


def tile_block(flows, waits, scores):
    """The same of what a tile with so many scores adds."""
    sums = dict.fromkeys(BLOCK, 0)
    for flow in flows:
        if flow["per"] != "tile":
            continue
        if "global" in (flow["from"], flow["to"]):
            sums["global_sectors"] += flow["bytes"] / 32
        if flow["ideal"] and "bulk" not in flow["how"]:  # of TMA the counters count none
            sums["shared_wavefronts"] += flow["wavefronts"]
            sums["shared_wavefronts_ideal"] += flow["ideal"]
        name = {"exp2": "exp2", "shuffle": "shuffles", "vote": "votes", "ldmatrix": "ldmatrix"}.get(flow["how"])
        name = "matrix_products" if is_product(flow["how"]) else name
        if name:  # counters count exponentials of threads, and a wmma as two
            sums[name] += flow["count"] * {"exp2": 32}.get(name, 2 if flow["how"].startswith("wmma.m") else 1)
    sums["barriers"] = sum(n for name, n in waits.items() if name in ("__syncthreads()", "bar.sync"))
    return {name: tidy(n * 128 * 128 / scores) for name, n in sums.items()}


def ladder_data(program):
    kernels = sorted(path.stem for path in (ROOT / "kernels").glob("[0-9][0-9]_*.cu"))
    return {"bins": BINS, "kernels": [rung(program, kernel) for kernel in kernels]}
