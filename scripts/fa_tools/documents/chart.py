"""Draws results files. On a GPU's results, as far as they have what a chart needs:

  ladder        TFLOP/s of every kernel and peer on one problem, the matrix product's ceiling as a line
  speedup       step by step: how many times faster each kernel is than the one before
  seq_len       TFLOP/s over the sequence length
  peer-seq_len  percent of another library's speed over the sequence length, of kernels that were measured in its run
  scores-LEN    TFLOP/s and relative error over how far the scores spread, at each length measured with --score-std
  grid          the same over many lengths: how many times as fast as the fastest library the last kernel is
  roofline      speed against FLOPs a byte at three memory levels; needs --profile
  beside        the share of its own peak that each kernel has, on this card and on another one; needs --beside

On the emulator's results: ladder, counters by kernel; ideal, by kind of instruction how far from it.

Each chart is written as NAME.svg, in the colours of the page around it, light or dark, and as NAME.png. Nothing is fetched
and no browser is needed; the same input gives the same bytes, on machines whose Liberation Sans is the same."""

import hashlib
import json
import os
from collections import Counter, namedtuple
from fnmatch import fnmatch
from pathlib import Path

from fa_tools.cards import BOOK, EMULATOR, card_of, file_named
from fa_tools.documents import beyond_tables, cycles
from fa_tools.documents.charts.emulator import bounds_chart, emulator_ideal, emulator_ladder
from fa_tools.documents.charts.look import DARK, LIGHT, marked
from fa_tools.documents.charts.roofline import load_profile, points_of, roofline_chart, same_problem
from fa_tools.documents.charts.speeds import (beside_chart, cuda_ladder, cycles_chart, grid_chart, grid_rows, length_chart, peer_length_chart, percents,
                                          scores_chart, speedup_chart, spread_chart, ways_of)
from fa_tools.documents.charts.themes import one_svg
from fa_tools.documents.charts.training import losses_chart
from fa_tools.documents.figures.drawing import keep
from fa_tools.for_readers.limits import MACHINES, bound_of, kernels_of, machine_named, machine_of
from fa_tools.records import (REST, Shape, display, headline_shape, is_plain, is_stale, kind, load, order, passed, scores_of, shape_of,
                              tell_apart)
from fa_tools.tools import ROOT, Parser, Refused, busy, fail, make_folder, named, need, read_json, relative, set_up, write_whole

EXAMPLE = f"""examples:
  scripts/fa chart results/2026-11-21T10-00-00Z.json
  scripts/fa chart results/mine.json --profile profile.json     with the roofline (scripts/fa profile writes profiles)
  scripts/fa chart results/mine.json --counters bench/results/{EMULATOR}/counts.jsonl#d128    with what bounds each kernel
  scripts/fa chart bench/results/{BOOK}/ladder.jsonl#fp16_d64 -o charts --dtype fp16 --head-dim 64 --spec
  scripts/fa chart --docs                   draw the documentation's charts again from the committed results
  scripts/fa chart --docs --check           only say which are out of date

Exit code: 0 done, 1 nothing to draw or, with --check, something is out of date, 2 bad arguments or file, 4 set-up failed."""

# The documentation's charts: first part of the name, committed results as a value's comment names them, the profiler's counters or
# None, the emulator's counters at two lengths or None, which charts of these (None: all), which kernels and peers (None: all).
DOCS = ROOT / "docs" / "charts"
Drawing = namedtuple("Drawing", "stem files profile counters only kernels", defaults=(None, None, None))
LADDER = ["bf16_d128"]
TRAINING = ["training"]  # which has losses, and no results of kernels
DOCS_CHARTS = [
    Drawing(BOOK, LADDER, "profile", f"{EMULATOR}:counts/d128",
            only=("ladder", "speedup", "seq_len", "peer-seq_len", "roofline", "bounds")),
    Drawing(BOOK, ["inputs/scores"], None, only=("scores-4096",)),
    Drawing(BOOK, ["inputs/grid", "inputs/scores"], None, only=("grid",)),
    Drawing(BOOK, [], None),  # of files that fa_tools.documents.cycles chooses
    Drawing(BOOK, TRAINING, None),
    Drawing(EMULATOR, [f"{EMULATOR}:counts/d128_n256"], None),
    Drawing(f"{BOOK}-15", LADDER, None, only=("seq_len",), kernels=["14_*", "15_*", "peer/fa3", "peer/cudnn"]),
]


# --- Choosing what is shown ------------------------------------------------------------------------------------


class Group:
    """The records of one machine, merged over files; a later file's record replaces an earlier one's."""

    def __init__(self, machine, stem):
        self.machine, self.stem, self.records = machine, stem, {}

    @property
    def cuda(self):
        return self.machine["backend"] == "cuda"

    def name(self):
        if self.cuda:
            return self.machine["gpu"]
        return "Emulator" if self.machine.get("checked") else "Emulator, fast build"

    def whose(self):
        """What tells its charts from those of another machine: h100, emulator."""
        return card_of(self.machine["gpu"]) if self.cuda else EMULATOR

    def add(self, data, run):
        """`run` tells records of different files apart."""
        for record in data["records"]:
            self.records[record["kernel"], shape_of(record), scores_of(record)] = {**record, "run": run}

    def keep(self, patterns):
        """Drops the records of other kernels."""
        self.records = {key: r for key, r in self.records.items()
                        if patterns is None or any(fnmatch(r["kernel"], pattern) for pattern in patterns)}

    def select(self, wish):
        for record in self.records.values():
            if all(value is None or of_option(record, field) == value for field, value in wish.items()):
                yield record


def of_option(record, field):
    """What an option that chooses this record says of the field."""
    return record.get(field, {"mask": "none", "kv_heads": record["heads"]}.get(field))


def group_files(names):
    """The files' groups. Refused names the file."""
    groups = {}
    for number, name in enumerate(names):
        with named(name):
            data = load(name)
        machine = data["machine"]
        key = (machine["backend"], machine.get("gpu"), machine.get("checked"))
        groups.setdefault(key, Group(machine, Path(name).stem)).add(data, number)
    stems = Counter(group.stem for group in groups.values())
    for group in groups.values():
        tell_apart(list(group.records.values()))
        if stems[group.stem] > 1:
            group.stem += f"-{group.whose()}"
    return list(groups.values())


def lengths_of(records, shape):
    """The records of a line over seq_len: one dtype, head size, mask and so on; the batch may change with the length."""
    same = ("dtype", "heads", "head_dim", *REST)
    line = [r for r in records if all(getattr(shape_of(r), field) == getattr(shape, field) for field in same)]
    if len({r["seq_len"] for r in line}) == len({(r["seq_len"], r["batch"]) for r in line}):
        return line
    tokens = shape.batch * shape.seq_len
    constant = [r for r in line if r["batch"] * r["seq_len"] == tokens]
    fixed = [r for r in line if r["batch"] == shape.batch]
    return max(constant, fixed, key=lambda rs: len({r["seq_len"] for r in rs if passed(r)}))


def choose_peer(records, wanted):
    """The peer that others are compared with: the one wanted, else FlashAttention-2, else the first."""
    names = sorted({r["kernel"] for r in records if kind(r["kernel"]) == "peer" and passed(r)})
    if wanted is not None:
        wanted = wanted if "/" in wanted else f"peer/{wanted}"
        if wanted not in names:
            raise Refused(f"has no peer {wanted}" + (f", only {', '.join(names)}" if names else ""))
        return wanted
    return "peer/fa2" if "peer/fa2" in names else names[0] if names else None


def peer_charts(group, chosen, wanted):
    name = choose_peer(chosen, wanted)
    by_shape = {shape_of(r): r for r in chosen if r["kernel"] == name and passed(r)}
    beside = [r for r in chosen if shape_of(r) in by_shape and passed(r)]
    if beside:
        shape = headline_shape(beside)
        line = lengths_of(chosen, shape)
        peers = {r["seq_len"]: r for r in line if r["kernel"] == name and passed(r)}
        rows = percents(line, peers)
        if len({r["seq_len"] for r in rows if kind(r["kernel"]) == "kernel"}) > 1:
            yield "peer-seq_len", lambda theme: peer_length_chart(group.name(), rows, by_shape[shape], theme)


def roofline_charts(group, chosen, profile):
    """The roofline, or a sentence why there is none, instead of the function."""
    if profile is None:
        yield "roofline", "it needs the profiler's counters (--profile FILE, which scripts/fa profile writes)"
        return
    machine = read_json(MACHINES)["machines"].get(group.name())
    records = same_problem(profile, chosen)
    if profile.gpu != group.name():
        yield "roofline", f"the profile is of {profile.gpu}, the results of {group.name()}"
    elif machine is None:
        yield "roofline", f"{relative(MACHINES)} does not know the limits of {group.name()}"
    elif not points_of(profile, records)[0]:
        problem = f"{profile.dtype}, {profile.heads} heads, {profile.seq_len} tokens, head_dim {profile.head_dim}"
        yield "roofline", f"the results lack the profile's problem ({problem})"
    else:
        yield "roofline", lambda theme: roofline_chart(group.name(), machine, profile, records, theme)


def beside_charts(group, other, wish):
    """The shares of both cards' own peaks, on the longest problem that both have, or a sentence why not."""
    chosen = [{shape_of(r): {} for r in each.select(wish) if passed(r) and is_plain(r) and not scores_of(r)} for each in (group, other)]
    for each, found in zip((group, other), chosen):
        for record in each.select(wish):
            if kind(record["kernel"]) == "kernel" and passed(record) and shape_of(record) in found:
                found[shape_of(record)][record["kernel"]] = record["tflops"]
    common = sorted(chosen[0].keys() & chosen[1].keys(), key=lambda shape: shape.seq_len)
    peaks = [machine_of(each.name()) for each in (group, other)]
    if not common:
        return "both cards have no problem in common"
    if None in peaks:
        return f"{relative(MACHINES)} does not know the limits of {group.name() if peaks[0] is None else other.name()}"
    mine, theirs = (found[common[-1]] for found in chosen)
    shares = {kernel: [found[kernel] / peak["tflops"]["tensor"] if kernel in found else None
                       for found, peak in zip((mine, theirs), peaks)] for kernel in sorted({*mine, *theirs}, key=order)}
    # Of the same card twice the second is the one that this repository measured.
    names = [group.name(), other.name() + (", of this repository" if other.name() == group.name() else "")]
    return lambda theme: beside_chart(names, shares, common[-1], theme)


def bounds_charts(group, ladder, shape, counters):
    """What bounds the kernels of a ladder, or a sentence why not; nothing without the emulator's counters."""
    if counters is None:
        return
    machine, known = read_json(MACHINES)["machines"].get(group.name()), kernels_of([counters], shape.head_dim)
    rows = []
    for record in ladder:
        kernel = known.get((record["kernel"], shape.head_dim))
        bound = machine and kernel and passed(record) and is_plain(record) and bound_of(
            kernel, shape, machine, record["workspace_bytes"])
        if bound:
            rows.append((bound, record))
    if machine is None:
        yield "bounds", f"{relative(MACHINES)} does not know the limits of {group.name()}"
    elif not rows:
        yield "bounds", f"the counters have no kernel of these results, head_dim {shape.head_dim}, at two lengths"
    else:
        yield "bounds", lambda theme: bounds_chart(group.name(), shape, rows, theme)


def not_shown(group, wish):
    """Options for the dtypes, head sizes, masks and heads of keys that the charts leave out."""
    chosen = list(group.select(wish))
    if not chosen:
        return
    fields = ["dtype", "head_dim", *(field for field in ("mask", "kv_heads") if any(field in r for r in chosen))]
    shown = next(r for r in chosen if shape_of(r) == headline_of(chosen))
    for values in sorted({tuple(of_option(r, field) for field in fields) for r in chosen}):
        if values != tuple(of_option(shown, field) for field in fields):
            yield " ".join(f"--{field.replace('_', '-')} {value}" for field, value in zip(fields, values))


def headline_of(chosen):
    own = [r for r in chosen if kind(r["kernel"]) != "ceiling"] or chosen
    return headline_shape([r for r in own if passed(r)] or own)


def scores_charts(group, chosen):
    """One for each length at which scores of at least two deviations were measured."""
    good = [r for r in chosen if scores_of(r) and passed(r) and "tflops" in r and r.get("error", {}).get("rel")]
    if not good:
        return
    first = headline_shape(good)
    for seq_len in sorted({r["seq_len"] for r in good}):
        here = [r for r in good if (r["dtype"], r["head_dim"], r["seq_len"]) == (first.dtype, first.head_dim, seq_len)]
        shape = here and headline_shape(here)
        here = [r for r in here if shape_of(r) == shape]
        if len({r["score_std"] for r in here}) > 1:
            yield f"scores-{seq_len}", lambda theme, here=here: scores_chart(group.name(), here, theme)
    last, rows = grid_rows([r for r in good if (r["dtype"], r["head_dim"], r["heads"]) == (first.dtype, first.head_dim, first.heads)])
    if len({row["length"] for row in rows}) > 3:
        yield "grid", lambda theme: grid_chart(group.name(), last, rows, first, theme)


def specs_of(group, wish, *sources, **more):
    """(name, spec function of a theme, or a sentence why not) of every chart this group's records allow."""
    changed = {name for record in group.records.values() if is_stale(record) for name in (record["kernel"], display(record))}
    for name, spec_of in charts_of(group, wish, *sources, **more):
        yield name, spec_of if isinstance(spec_of, str) else lambda theme, spec_of=spec_of: marked(spec_of(theme), changed, theme)


def charts_of(group, wish, profile=None, peer=None, counters=None):
    """The same, whether kernels have changed since or not."""
    everything = list(group.select(wish))
    if group.cuda:
        yield from scores_charts(group, everything)
    chosen = [record for record in everything if not scores_of(record)]
    if not chosen:
        return
    shape = headline_of(chosen)
    ladder = sorted((r for r in chosen if shape_of(r) == shape), key=lambda r: order(r["kernel"]))
    if not group.cuda:
        if any(r.get("counters") for r in ladder):
            yield "ladder", lambda theme: emulator_ladder(group.name(), ladder, shape, theme)
        if any(r.get("statements") for r in ladder):
            yield "ideal", lambda theme: emulator_ideal(group.name(), ladder, shape, theme)
        return
    yield "ladder", lambda theme: cuda_ladder(group.name(), ladder, shape, theme)
    steps = [r for r in ladder if kind(r["kernel"]) == "kernel"]
    if sum(map(passed, steps)) > 1:
        yield "speedup", lambda theme: speedup_chart(group.name(), steps, shape, theme)
    line = lengths_of(chosen, shape)
    if len({r["seq_len"] for r in line if passed(r) and "tflops" in r}) > 1:
        yield "seq_len", lambda theme: length_chart(group.name(), line, theme)
    yield from peer_charts(group, chosen, peer)
    yield from roofline_charts(group, chosen, profile)
    yield from bounds_charts(group, ladder, shape, counters)


# --- Files -----------------------------------------------------------------------------------------------------


def render(vl, name, spec_of, folder, with_spec):
    write_whole(folder / f"{name}.svg", one_svg(vl, spec_of))
    if with_spec:
        write_whole(folder / f"{name}.vl.json", json.dumps(spec_of(LIGHT), indent=1, ensure_ascii=False).encode() + b"\n")
    write_whole(folder / f"{name}.png", vl.vegalite_to_png(spec_of(LIGHT), vl_version="5.20", scale=2))


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def stamp_of(spec_of, svg):
    """The last line of a committed chart: what it shows and what was drawn. The same spec may be drawn a pixel wider
    elsewhere, where the system's Liberation Sans takes the place of vl-convert's: that alone makes no chart stale."""
    specs = json.dumps([spec_of(LIGHT), spec_of(DARK)], sort_keys=True)
    return f"<!-- spec {digest(specs.encode())}, drawing {digest(svg)} -->\n".encode()


def is_fresh(path, spec_of):
    if not path.exists():
        return False
    svg, line, rest = path.read_bytes().partition(b"<!-- spec ")
    return line + rest == stamp_of(spec_of, svg)


def spread_specs():
    """(name, spec function of a theme) of the chart of drawn problems, if any were measured."""
    drawn = beyond_tables.drawn("our fastest")
    if ways := ways_of(drawn):
        changed = [way for way, here in ways.items() if any(is_stale(each.record) for each in here)]
        yield beyond_tables.CHART, lambda theme: marked(spread_chart(machine_named(BOOK)[0], drawn, theme), changed, theme)


def docs_specs():
    """(name, spec function of a theme) of every chart in docs/charts."""
    yield from spread_specs()
    for stem, files, profile, counters, only, kernels in DOCS_CHARTS:
        if not files:
            yield f"{stem}-cycles", lambda theme: marked(cycles_chart(machine_named(BOOK)[0], cycles.launches(), theme), cycles.changed(), theme)
            continue
        if files == TRAINING:
            losses = read(ROOT / file_named(*files), read_json)
            yield f"{stem}-losses", lambda theme, losses=losses: losses_chart(losses, theme)
            continue
        (group,) = group_files([ROOT / (file_named(name) or name) for name in files])
        group.keep(kernels)
        profile, counters = (word and read(ROOT / file_named(word), how) for word, how in ((profile, load_profile), (counters, load)))
        charts = list(specs_of(group, dict.fromkeys(Shape._fields), profile, counters=counters))
        for name, spec_of in charts:
            if only is not None and name not in only:
                continue
            if isinstance(spec_of, str):
                fail(f"no {name} of {', '.join(files)}: {spec_of}")
            yield f"{stem}-{name}", spec_of


def docs_charts(vl, check):
    """Draws docs/charts (SVG only: that is what the Markdown shows), or names what is out of date there."""
    drawn = {}
    for name, spec_of in docs_specs():
        svg = None if is_fresh(DOCS / f"{name}.svg", spec_of) else one_svg(vl, spec_of)
        drawn[name] = svg and (svg + stamp_of(spec_of, svg)).decode()
    return keep(DOCS, drawn, "scripts/fa chart --docs", check)


def read(path, how):
    with named(path):
        return how(path)


def drawing_tool():
    """The package vl_convert, which is installed into .venv first if it is not there."""
    set_up("ensure_venvs \"$VENV\" || exit \"$EXIT_SETUP\"")
    return need("vl_convert")


@busy("drawing charts")
def main():
    parser = Parser("chart", __doc__, EXAMPLE)
    parser.add_argument("files", nargs="*", metavar="FILE", help="results file (JSON); those of one machine are merged")
    parser.add_argument("-o", "--output", metavar="DIR", help="folder for the charts (default: beside the first file)")
    parser.add_argument("--name", help="first part of the charts' names (default: the results file's)")
    parser.add_argument("--profile", metavar="FILE", help="the profiler's counters on the same GPU, for the roofline")
    parser.add_argument("--counters", metavar="FILE",
                        help="the emulator's, at two lengths, for what bounds each kernel")
    parser.add_argument("--beside", metavar="FILE", help="results of another card, for the chart beside")
    parser.add_argument("--peer", metavar="NAME", help="the library that percents refer to (default: fa2 if there)")
    parser.add_argument("--spec", action="store_true", help="write the Vega-Lite specs too: NAME.vl.json")
    parser.add_argument("--dtype", choices=("fp16", "bf16"), help="show this dtype")
    parser.add_argument("--mask", choices=("none", "causal"), help="show problems with this mask")
    for field in ("head-dim", "seq-len", "batch", "heads", "kv-heads"):
        parser.add_argument(f"--{field}", type=int, metavar="N", help=f"show this {field.replace('-', '_')}")
    parser.add_argument("--docs", action="store_true", help="draw docs/charts instead, from the committed results")
    parser.add_argument("--check", action="store_true", help="with --docs: change nothing, name what is out of date")
    args = parser.parse_args()
    if args.docs == bool(args.files) or args.check and not args.docs:
        fail("name results files, as in scripts/fa chart results/mine.json, or --docs (with --check, if nothing is to be written)")
    if args.name in (".", "..") or "/" in (args.name or ""):
        fail(f"--name takes the first part of files' names, without a folder, not '{args.name}'; -o names the folder")
    if args.docs:
        return docs_charts(drawing_tool(), args.check)

    wish = {field: getattr(args, field, None) for field in Shape._fields}
    groups = group_files(args.files)
    profile = read(args.profile, load_profile) if args.profile else None
    counters = read(args.counters, load) if args.counters else None
    charts = [(group, list(specs_of(group, wish, profile, args.peer, counters))) for group in groups]
    if args.beside:
        (other,) = group_files([args.beside])
        for group, specs in charts:
            specs.append(("beside", beside_charts(group, other, wish)))
    vl = drawing_tool()
    folder = make_folder(args.output or Path(args.files[0]).parent)
    drawn = 0
    for group, specs in charts:
        stem = group.stem
        if args.name is not None:
            stem = args.name if len(groups) == 1 else f"{args.name}-{group.whose()}"
        for chart, spec_of in specs:
            name = f"{stem}-{chart}"
            if isinstance(spec_of, str):
                print(f"No {chart}: {spec_of}.")
                continue
            render(vl, name, spec_of, folder, args.spec)
            also = f"{name}.png" + f", {name}.vl.json" * args.spec
            print(f"Chart:   {os.path.relpath(folder / name)}.svg (also {also})")
            drawn += 1
        others = list(not_shown(group, wish))
        if others:
            print(f"Also in the results, drawn when asked for: {'; '.join(others)}")
    if not drawn:
        fail("there is nothing to draw: no record with times or counters matches", 1)
    return 0
