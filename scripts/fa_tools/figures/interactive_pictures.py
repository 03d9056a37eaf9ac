"""What the interactive pages show when nothing is interactive, drawn from the same data: scripts/fa docs interactive."""

from fa_tools.doc_tables import ring_waits
from fa_tools.figures.drawing import BLUE, GREEN, GREY, INK, ORANGE, REGISTERS, figure
from fa_tools.tools import ROOT, read_json

DATA = ROOT / "build" / "emulator" / "interactive" / "data"


def data(name):
    return read_json(DATA / f"{name}.json")


@figure("interactive_fragments", 508, "Fragment explorer: ldmatrix.x4.trans, lane 5 chosen")
def fragment_explorer(p):
    lane, cell, left, top = 5, 21, 62, 118
    view = next(view for view in data("fragments")["views"] if view["id"] == "ldmatrix_v")
    row_name, column_name, name = view["row_name"], view["column_name"], view["register"]
    p.heading(f"The fragment explorer: {view['name']}",
              f"a number: the lane that gets the element, the colour: in which register; lane {lane} is chosen")

    def at(row, column):
        return left + column * cell + (5 if column >= 8 else 0), top + row * cell + (5 if row >= 8 else 0)

    for n in range(16):
        x, y = at(n, n)
        p.text(x + cell / 2, top - 8, str(n), 10, INK.muted)
        p.text(left - 8, y + 14, str(n), 10, INK.muted, "end")
    p.text(left + 8 * cell, top - 26, f"{column_name}, 16 x 16 in shared memory", 12, INK.muted, italic=True)
    p.text(left - 30, top + 8 * cell, row_name, 12, INK.muted, "end", italic=True)
    mine = []
    for other, flat in enumerate(view["positions"]):
        for i, place in enumerate(zip(flat[::2], flat[1::2])):
            register, half = divmod(i, view["halves"])
            x, y = at(*place)
            chosen = other == lane
            p.rect(x, y, cell - 1.5, cell - 1.5, INK.text if chosen else REGISTERS[register][0], None, 2)
            p.text(x + cell / 2 - 0.8, y + 13.6, f"{name}{register}" if chosen else str(other), 10,
                   INK.background if chosen else INK.text, weight="bold" if chosen else None)
            if chosen:
                mine.append((register, half, *place))
    row, column = view["addresses"][lane]
    x, y = at(row, column)
    p.rect(x - 1.5, y - 1.5, 8 * cell + 1, cell + 1, "none", INK.orange, 2, 2)

    left, y = 486, top + 206
    p.texts(14, None, "start", (left, top - 26, "32 lanes"), (left, y, f"Lane {lane}"), weight="bold")
    for other in range(32):
        x, chosen = left + other % 4 * 92, other == lane
        p.rect(x, top - 12 + other // 4 * 23, 89, 20, INK.blue if chosen else INK.cell, None, 2)
        p.text(x + 44, top + 2 + other // 4 * 23, str(other), 11, INK.background if chosen else INK.text,
               weight="bold" if chosen else None)
    p.text(left, y + 24, f"gives the address of {row_name} {row}, {column_name}s {column} to {column + 7}", 13, INK.orange, "start")
    for register, half, row, column in mine:
        line = y + 50 + 23 * register
        if half == 0:
            p.key(left, line - 12, f"{name}[{register}]", REGISTERS[register], 12.5, gap=24, drop=12, mono=True)
        p.text(left + 78 + 150 * half, line, f"{('low', 'high')[half]}: {row_name} {row}, {column_name} {column}", 12.5, anchor="start")
    p.note(490, "The page shows the same for every operand of mma.sync, ldmatrix and wgmma, from either side: lane or element.",
           size=12)


@figure("interactive_descriptor", 512, "wgmma descriptor builder: K of kernel 11, columns 16 to 31")
def descriptor_builder(p):
    page = data("descriptor")
    preset = next(one for one in page["presets"] if one["id"] == "k128")
    step = preset["steps"][1]
    bits = int(step["descriptor"], 16)
    looks = {"start": BLUE, "stride": ORANGE, "mode": GREEN}
    p.heading(f"The descriptor builder: {preset['name']}, {step['what']}",
              "click a bit, type a number or paste 64 bits: the others follow, and a sentence says what is illegal")
    cell, left, top = 26, 52, 76
    for bit in range(64):
        x, y = left + (63 - bit) % 16 * cell, top + (63 - bit) // 16 * cell
        field = next((f for f in page["fields"] if f["low"] <= bit < f["low"] + f["width"]), None)
        if field:
            fill, stroke = looks.get(field["id"], GREY)
            p.rect(x, y, cell - 2, cell - 2, fill, stroke if field["id"] not in looks else None, 2)
        p.text(x + cell / 2 - 1, y + 16.5, str(bits >> bit & 1), 11.5, INK.text if field else INK.muted, mono=True)
        if bit % 16 == 15:
            p.text(left - 8, y + 16.5, str(bit), 10, INK.muted, "end")
    y = top + 4 * cell + 20
    p.text(left, y, f"= {step['descriptor']}", 14, anchor="start", mono=True, weight="bold")
    for i, field in enumerate(reversed(page["fields"])):
        y = top + 4 * cell + 58 + 30 * i
        value = (bits >> field["low"] & (1 << field["width"]) - 1) * field["unit"]
        p.key(left, y - 12, field["name"], looks.get(field["id"], GREY), 13, gap=24, drop=12, weight="bold")
        p.text(left + 206, y, f"bits {field['low'] + field['width'] - 1} to {field['low']}", 12, INK.muted, "start")
        said = f"0x{value:x}" if field["id"] == "start" else f"{value} {field['of']}"
        if field["id"] == "mode":
            said = f"{value}: {next(mode['span'] for mode in page['modes'] if mode['value'] == value)}-byte swizzle"
        p.text(left + 296, y, said, 12, anchor="start", mono=True)
    y = top + 4 * cell + 220
    p.text(left, y, "Advancing along k", 13, anchor="start", weight="bold")
    for i, one in enumerate(preset["steps"]):
        x, line, color = left + i // 4 * 212, y + 22 + 20 * (i % 4), INK.text if one is step else INK.muted
        p.text(x, line, one["what"], 12, color, "start", "bold" if one is step else None)
        p.text(x + 116, line, f"+ {one['bytes']}", 12, color, "start", mono=True)

    left, cell, high = 556, 38, 21
    p.text(left, top - 2, "What this wgmma reads of the tile", 14, anchor="start", weight="bold")
    p.lines(left, top + 17, 16, ("lines of 128 bytes, 16-byte places; the number: which", "chunk of 8 columns lies there"))
    for line, places in enumerate(page["chunks"]):
        y = top + 48 + line * high + (6 if line >= 8 else 0)
        p.text(left - 8, y + 14, f"row {step['first_row'] + line}", 10, INK.muted, "end")
        for place, chunk in enumerate(places):
            p.chunk(left + place * cell, y, cell - 2, high - 2, chunk, [line, place] in step["reads"], (INK.text, INK.background),
                    (INK.cell, INK.text))


@figure("interactive_banks", 520, "Bank-conflict explorer: ldmatrix.x4 without swizzle and with XOR",
        "The bank-conflict explorer: ldmatrix.x4, rows of 256 bytes",
        "a number: the lane, whose 16 bytes come from the four banks above it, in the wavefront beside it")
def bank_explorer(p):
    cell, tall, top, right = 42, 12, 118, 500
    for left, name, title in ((64, "ldmatrix_q 128 0 none", "no swizzle"), (right, "ldmatrix_q 128 0 xor", "XOR, chapter 08")):
        case = data("banks")["cases"][name]
        count, ideal = case["wavefronts"], case["ideal"]
        p.text(left, 78, f"{title}: {count} wavefronts, {count / ideal:.2f} per ideal one", 14, anchor="start", weight="bold")
        p.texts(10, INK.muted, "middle", *((left + (n + 0.5) * cell, 100, f"{4 * n}\u2013{4 * n + 3}") for n in range(8)))
        p.text(left - 8, 100, "bank", 10, INK.muted, "end")
        p.lines(left - 8, top - 1, tall, [str(row) for row in range(count)], 9, INK.muted, "end")
        for row in range(count):
            for column in range(8):
                p.rect(left + column * cell, top + row * tall - 10, cell - 1.5, tall - 1.5, INK.cell)
        for lane, (address, row) in enumerate(zip(case["addresses"], case["served"])):
            x, y = left + address // 16 % 8 * cell, top + row * tall
            fill, stroke = REGISTERS[lane // 8]
            p.rect(x, y - 10, cell - 1.5, tall - 1.5, fill, stroke if lane >= 24 else None, 0, 0.8)
            p.text(x + cell / 2, y - 1.2, str(lane), 9.5)
    for i in range(4):
        p.key(right, top + 99 + 24 * i, f"lanes {8 * i} to {8 * i + 7}: the rows of matrix {i}", REGISTERS[i], 12.5, gap=22, drop=11)
    p.lines(right, top + 226, 18, ("In the page: any access, row length, padding and", "swizzle of the book; the same lanes in memory;",
                                   "what a lane reads, and where."), 12.5)


@figure("interactive_softmax", 396, "Online-softmax stepper: increasing scores in blocks of two, as kernels 02, 10 and 16 take them",
        "The online-softmax stepper: sixteen increasing scores, blocks of two")
def softmax_stepper(p):
    """Increasing scores in blocks of two, in the three ways."""
    preset = next(one for one in data("softmax")["presets"] if one["id"] == "increasing")
    cell = 51
    for j, score in enumerate(preset["scores"]):
        x = 32 + j * cell
        p.rect(x, 48, cell - 2 - 3 * (j % 2), 24, INK.blue_soft if j // 2 % 2 else INK.green_soft, None, 2)
        p.text(x + cell / 2 - 2, 64.5, f"{score:g}", 12)
    for x, mode, name, reference in ((32, "classic", "02: the maximum", "m"), (316, "lazy", "10: may lag", "m, log2"),
                                     (600, "first", "16: the first score", "r, log2")):
        steps = preset["steps"][f"{mode} 2"]
        rescales = [n > 0 and step["rescaled"] and step["factor"] != 1 for n, step in enumerate(steps)]
        p.text(x, 104, name, 14, anchor="start", weight="bold")
        p.texts(11.5, INK.muted, "end", (x + 76, 128, reference), (x + 150, 128, "factor"), (x + 232, 128, "l"), italic=True)
        for n, (step, rescaled) in enumerate(zip(steps, rescales)):
            y = 150 + 22 * n
            if rescaled:
                p.rect(x + 84, y - 14, 70, 19, INK.orange_soft, None, 2)
            p.text(x + 14, y, str(n + 1), 12, INK.muted, "end")
            p.texts(12.5, INK.text, "end", (x + 76, y, f"{step['m']:.4g}"), (x + 150, y, f"{step['factor']:.3g}" if rescaled else "\u2013"),
                    (x + 232, y, f"{step['l']:.4g}"), mono=True)
        times = sum(rescales)
        p.text(x, 342, f"rescaled {times} times; O[0] = {steps[-1]['o'][0]:.6g}", 13, INK.orange if times else INK.green,
               "start", "bold")
    p.note(378, f"The plain softmax, which sees all scores at once: O[0] = {preset['plain'][0]:.6g}. Any reference gives the "
           "same quotient.")


@figure("interactive_phases", 396, "Phase explorer: kernel 12 while tile 0 is read and tile 1 comes",
        "The phase explorer: kernel 12 after its first seven steps",
        "four roles, of which the reader chooses the next to go on; what their steps do to the barriers of the ring")
def phase_explorer(p):
    """Tile 0 has come and is read by both warpgroups, of tile 1 one box is still to come."""
    ring = data("phases")
    for i, (name, label, waits) in enumerate((("Loading thread", "load tile 2", "waits at empty[0] for parity 0"),
                                              ("TMA", "bring box 1 of tile 1", "can go on"),
                                              ("Warpgroup 0", "release tile 0", "can go on"),
                                              ("Warpgroup 1", "release tile 0", "can go on"))):
        x = 32 + 210 * i
        p.text(x, 82, name, 13, INK.muted, "start")
        p.rect(x, 90, 176, 30, INK.cell, INK.line, 5)
        p.text(x + 88, 109.5, label, 13, INK.muted if waits.startswith("waits") else INK.text)
        p.text(x, 138, waits, 12, INK.muted, "start")
    columns, top = (116, 176, 240, 356), 188
    p.text(32, top - 18, "Barriers and stages now", 14, anchor="start", weight="bold")
    p.texts(12, INK.muted, "start", *zip(columns, [top + 6] * 4, ("phase", "parity", "arrivals due", "bytes due")))
    for stage, (phase, arrivals, lacks, holds) in enumerate(((1, 1, 0, "tile 0, read by warpgroups 0 and 1"),
                                                             (0, 0, ring["box_bytes"], "box 0: tile 1, box 1: nothing"))):
        y = top + 32 + 84 * stage
        p.texts(13, INK.text, "start", (32, y, f"full[{stage}]"), (32, y + 26, f"stage {stage}"), (32, y + 52, f"empty[{stage}]"),
                weight="bold")
        p.texts(13, INK.text, "start", *zip(columns, [y] * 4, (str(phase), str(phase % 2), str(arrivals), f"{lacks:,}")),
                (columns[0], y + 26, holds), *zip(columns, [y + 52] * 3, ("0", "0", str(ring["warps"]))))
    left, wide, high = 500, 84, 25
    p.text(left, top - 18, "Each tile: stage, phase, parities", 14, anchor="start", weight="bold")
    p.texts(12, INK.muted, "middle", *((left + 30 + wide * (i + 0.5), top + 6, name)
                                       for i, name in enumerate(("stage", "phase", "at full", "at empty"))))
    for n, *cells in ring_waits("kernels/12_tma.cu", ring["tiles"]):
        y = top + 16 + high * n
        p.text(left + 18, y + 16, str(n), 12, INK.muted, "end")
        for i, cell in enumerate(cells):
            x = left + 30 + wide * i
            p.rect(x, y, wide - 2, high - 2, (INK.orange_soft, INK.blue_soft)[n] if n < 2 else INK.cell, None, 2)
            p.text(x + wide / 2 - 1, y + 16, str(cell), 12.5)
    p.note(382, "The page also tries all orders: with the kernel as it is, every order ends right.", size=12)


def timeline_events(words):
    """(start, end, kind) of a row, as scripts/fa_tools/figures/timeline_page.py writes it."""
    at = 0
    for word in words.split():
        gap, length, kind, *_ = (int(digits, 36) for digits in word.split("."))
        at += gap + length
        yield at - length, at, kind


@figure("interactive_timeline", 442, "Pipeline timeline: kernel 14 by the emulator's model and on an H200",
        "The pipeline timeline: 14_softmax_overlap, emulated above, recorded below",
        "tall: what a warp does, thin: what it waits for; framed: a wait, with a line to what ended it")
def timeline(p):
    """Kernel 14 by the model and on an H200: some warps, and a wait for the turn with what ended it."""
    page = data("timeline")
    traces = [next(trace for trace in page["traces"] if trace["kernel"] == "14_softmax_overlap" and bool(trace["recorded"]) == recorded)
              for recorded in (False, True)]
    p.dark.update(unit[1:] for unit in page["units"].values())
    left, wide, span, tall = 128, 728, 6000, 16
    wanted = ("warp 0", "warp 3", "warp 4", "warp 7", "warp 8", "of warps 0, 4 ...")
    labels = {"Tensor Cores": "Tensor Core 0", "Products under way": "products", "Copies under way": "copies"}
    y = 74
    for trace, first in zip(traces, (3300, 5300)):
        def x(cycle):
            return left + wide * (min(max(cycle, first), first + span) - first) / span
        places = {}
        for place, (group, name, words) in enumerate(trace["rows"]):
            kind = page["groups"][group]
            if not (name in wanted if kind in ("Warps", "Tensor Cores") else kind in labels and trace["recorded"] and name == "1"):
                continue
            p.text(left - 10, y + 12.5, labels.get(kind, name), 12, INK.text, "end")
            p.rect(left, y, wide, tall, INK.cell)
            shapes = {}
            for index, (start, end, what) in enumerate(timeline_events(words)):
                places[place, index] = start, end, y
                if end <= first or start >= first + span:
                    continue
                waits = trace["kinds"][what][0].startswith("waits:")
                top, high = (y + 6, 4) if waits else (y + 1, 14)
                shapes.setdefault(trace["kinds"][what][1], []).append((x(start), top, max(x(end) - x(start), 0.8), high))
            for unit, alike in shapes.items():
                for shape in alike:
                    p.rect(*shape, page["units"][unit][1])
            y += tall + 4
        for arrow in trace["arrows"].split():
            numbers = [int(one, 36) for one in arrow.split(".")]
            wait, by = places.get(tuple(numbers[:2])), places.get(tuple(numbers[2:]))
            row = trace["rows"][numbers[0]]
            name = trace["kinds"][list(timeline_events(row[2]))[numbers[1]][2]][0]
            if wait and by and name.endswith(("bar.sync", "try_wait")) and wait[1] - wait[0] > 150 and first < wait[0] and wait[1] < first + span:
                p.rect(x(wait[0]), wait[2] + 1, x(wait[1]) - x(wait[0]), tall - 2, "none", INK.text, 0, 1.4)
                p.line(x(by[1]), by[2] + tall / 2, x(wait[1]), wait[2] + tall / 2, INK.text, 1.2)
        for cycle in range(-(-first // 1000) * 1000, first + span + 1, 1000):
            p.line(x(cycle), y, x(cycle), y + 5, INK.line, 1)
            p.text(x(cycle), y + 18, f"{cycle:,}", 11.5, INK.muted)
        p.text(left - 10, y + 18, "cycle", 11.5, INK.muted, "end")
        y += 46
    at = 24
    for name, color, _ in page["units"].values():
        p.rect(at, y - 8, 11, 11, color, None, 2)
        p.text(at + 16, y + 2, name, 12, INK.muted, "start")
        at += 40 + 6.3 * len(name)


# Where an arrow of the ladder's explorer is in this picture: rows of places, columns of tensors; None: not of those.
PLACES = {"global": 0, "shared": 1, "registers": 2, "tensor": 3}
TENSORS = {"Q": 0, "K": 1, "V": 2, "workspace": 3, "Q*K": 3, "exp2": 4, "O": 5, "exp2*V": 5}


def ladder_arrows(flows):
    """(column, from, to) of what moves, each once."""
    found = {}
    for flow in flows:
        names, source = flow["of"].split(), flow["from"]
        if flow["to"] == "tensor":
            for name in names:
                found[TENSORS[name], "registers" if name == "exp2" else source, "tensor"] = True
            found[TENSORS["Q*K" if "K" in names else "O"], "tensor", "registers"] = True
        elif flow["to"] in PLACES and names and names[0] in TENSORS:
            found[TENSORS[names[0]], source, flow["to"]] = True
    return list(found)


@figure("interactive_ladder", 432, "The ladder, tile by tile: kernels 01, 04, 06 and 12",
        "The ladder, tile by tile: what moves where in kernels 01, 04, 06 and 12",
        "arrows as the emulator's traces have them; in the page they move in their order, with bytes and counts beside them")
def ladder(p):
    rungs = {rung["id"]: rung for rung in data("ladder")["kernels"]}
    tops, tall, wide, step = (100, 176, 252, 328), 34, 200, 31
    looks = (BLUE, BLUE, BLUE, ORANGE, ORANGE, GREEN)
    for i, (number, what) in enumerate((("01", "S in global memory"), ("04", "S, P, O in shared memory"), ("06", "P stays in registers"),
                                        ("12", "K and V skip registers"))):
        left, rung = 24 + 214 * i, rungs[number]
        p.text(left, 84, f"{number}: {what}", 12, anchor="start", weight="bold")
        for name, top in zip(("global memory", "shared memory", "registers", "Tensor Cores"), tops):
            last = name == "Tensor Cores" and number == "01"
            p.block(left, top, wide, tall, "CUDA cores" if last else name, GREY, 11, INK.muted, 4)
        for column, source, target in ladder_arrows(rung["flows"]):
            a, b = PLACES[source], PLACES[target]
            x = left + 22 + step * column + (-5 if a > b else 5)
            p.arrow(x, tops[a] + (tall if a < b else 0), x, tops[b] + (0 if a < b else tall), looks[column][1], 1.6)
        for column, name in enumerate(("Q", "K", "V", "S", "P", "O")):
            p.text(left + 22 + step * column, 378, name, 12, looks[column][1], weight="bold")
        block = rung["block"]
        p.lines(left, 396, 16, (f"{block['global_sectors'] / 32:,.0f} KB of global memory,",
                                f"{block['shared_wavefronts']:,.0f} wavefronts"), 11.5)
    p.note(428, "Below: what 128 x 128 scores take.", size=11.5)
