"""What the interactive pages show when nothing is interactive, drawn from the same data: scripts/fa docs interactive."""

from fa_tools.figures.drawing import BLUE, GREEN, GREY, INK, ORANGE, REGISTERS, Picture
from fa_tools.tools import ROOT, read_json

DATA = ROOT / "build" / "emulator" / "interactive" / "data"


def data(name):
    return read_json(DATA / f"{name}.json")


def fragment_explorer():
    """V on its way into two B operands: lane 5 chosen."""
    lane, cell, left, top = 5, 21, 62, 118
    view = next(view for view in data("fragments")["views"] if view["id"] == "ldmatrix_v")
    p = Picture(880, 508, "Fragment explorer: ldmatrix.x4.trans, lane 5 chosen")
    p.heading(f"The fragment explorer: {view['name']}",
              f"a number: the lane that gets the element, the colour: in which register; lane {lane} is chosen")

    def at(row, column):
        return left + column * cell + (5 if column >= 8 else 0), top + row * cell + (5 if row >= 8 else 0)

    for n in range(16):
        x, y = at(n, n)
        p.text(x + cell / 2, top - 8, str(n), 10, INK.muted)
        p.text(left - 8, y + 14, str(n), 10, INK.muted, "end")
    p.text(left + 8 * cell, top - 26, f"{view['column_name']}, 16 x 16 in shared memory", 12, INK.muted, italic=True)
    p.text(left - 30, top + 8 * cell, view["row_name"], 12, INK.muted, "end", italic=True)
    mine = []
    for other, flat in enumerate(view["positions"]):
        for i in range(0, len(flat), 2):
            row, column = flat[i : i + 2]
            register = i // 2 // view["halves"]
            x, y = at(row, column)
            chosen = other == lane
            p.rect(x, y, cell - 1.5, cell - 1.5, INK.text if chosen else REGISTERS[register][0], None, 2)
            p.text(x + cell / 2 - 0.8, y + 13.6, f"{view['register']}{register}" if chosen else str(other), 10,
                   INK.background if chosen else INK.text, weight="bold" if chosen else None)
            if chosen:
                mine.append((register, i // 2 % view["halves"], row, column))
    row, column = view["addresses"][lane]
    x, y = at(row, column)
    p.rect(x - 1.5, y - 1.5, 8 * cell + 1, cell + 1, "none", INK.orange, 2, 2)

    left = 486
    p.text(left, top - 26, "32 lanes", 14, anchor="start", weight="bold")
    for other in range(32):
        x, y = left + other % 4 * 92, top - 12 + other // 4 * 23
        chosen = other == lane
        p.rect(x, y, 89, 20, INK.blue if chosen else INK.cell, None, 2)
        p.text(x + 44, y + 14, str(other), 11, INK.background if chosen else INK.text, weight="bold" if chosen else None)
    y = top + 206
    p.text(left, y, f"Lane {lane}", 14, anchor="start", weight="bold")
    p.text(left, y + 24, f"gives the address of {view['row_name']} {row}, {view['column_name']}s {column} to {column + 7}", 13,
           INK.orange, "start")
    for register, half, row, column in mine:
        line = y + 50 + 23 * register
        if half == 0:
            p.rect(left, line - 12, 14, 14, *REGISTERS[register])
            p.text(left + 24, line, f"{view['register']}[{register}]", 12.5, anchor="start", mono=True)
        p.text(left + 78 + 150 * half, line, f"{('low', 'high')[half]}: {view['row_name']} {row}, {view['column_name']} "
               f"{column}", 12.5, anchor="start")
    p.note(490, "The page shows the same for every operand of mma.sync, ldmatrix and wgmma, from either side: lane or element.",
           12)
    return p


def descriptor_builder():
    """The descriptor of K's second step: its bits, its fields, what the wgmma reads."""
    page = data("descriptor")
    preset = next(one for one in page["presets"] if one["id"] == "k128")
    step = preset["steps"][1]
    bits = int(step["descriptor"], 16)
    looks = {"start": BLUE, "stride": ORANGE, "mode": GREEN}
    p = Picture(880, 512, "wgmma descriptor builder: K of kernel 11, columns 16 to 31")
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
    p.text(left, top + 4 * cell + 20, f"= {step['descriptor']}", 14, anchor="start", mono=True, weight="bold")
    for i, field in enumerate(reversed(page["fields"])):
        y = top + 4 * cell + 58 + 30 * i
        value = (bits >> field["low"] & (1 << field["width"]) - 1) * field["unit"]
        fill, stroke = looks.get(field["id"], GREY)
        p.rect(left, y - 12, 14, 14, fill, stroke)
        p.text(left + 24, y, field["name"], 13, anchor="start", weight="bold")
        p.text(left + 206, y, f"bits {field['low'] + field['width'] - 1} to {field['low']}", 12, INK.muted, "start")
        if field["id"] == "mode":
            said = f"{value}: {next(mode['span'] for mode in page['modes'] if mode['value'] == value)}-byte swizzle"
        else:
            said = f"0x{value:x}" if field["id"] == "start" else f"{value} {field['of']}"
        p.text(left + 296, y, said, 12, anchor="start", mono=True)
    y = top + 4 * cell + 58 + 30 * 5 + 12
    p.text(left, y, "Advancing along k", 13, anchor="start", weight="bold")
    for i, one in enumerate(preset["steps"]):
        x, line = left + i // 4 * 212, y + 22 + 20 * (i % 4)
        p.text(x, line, one["what"], 12, INK.text if one is step else INK.muted, "start", "bold" if one is step else None)
        p.text(x + 116, line, f"+ {one['bytes']}", 12, INK.text if one is step else INK.muted, "start", mono=True)

    left, cell, high = 556, 38, 21
    p.text(left, top - 2, "What this wgmma reads of the tile", 14, anchor="start", weight="bold")
    p.text(left, top + 17, "lines of 128 bytes, 16-byte places; the number: which", 12, INK.muted, "start")
    p.text(left, top + 33, "chunk of 8 columns lies there", 12, INK.muted, "start")
    read = {tuple(place) for place in step["reads"]}
    for line, places in enumerate(page["chunks"]):
        y = top + 48 + line * high + (6 if line >= 8 else 0)
        p.text(left - 8, y + 14, f"row {step['first_row'] + line}", 10, INK.muted, "end")
        for place, chunk in enumerate(places):
            hit = (line, place) in read
            p.rect(left + place * cell, y, cell - 2, high - 2, INK.text if hit else INK.cell, None, 2)
            p.text(left + place * cell + cell / 2 - 1, y + 14, str(chunk), 11, INK.background if hit else INK.text,
                   weight="bold" if hit else None)
    return p


def bank_explorer():
    """The same eight rows without and with XOR: the lanes in banks and wavefronts."""
    cases = data("banks")["cases"]
    p = Picture(880, 520, "Bank-conflict explorer: ldmatrix.x4 without swizzle and with XOR")
    p.heading("The bank-conflict explorer: ldmatrix.x4, rows of 256 bytes",
              "a number: the lane, whose 16 bytes come from the four banks above it, in the wavefront beside it")
    cell, tall, top = 42, 12, 118
    for left, name, title in ((64, "ldmatrix_q 128 0 none", "no swizzle"), (500, "ldmatrix_q 128 0 xor", "XOR, chapter 08")):
        case = cases[name]
        count, ideal = case["wavefronts"], case["ideal"]
        p.text(left, 78, f"{title}: {count} wavefronts, {count / ideal:.2f} per ideal one", 14, anchor="start", weight="bold")
        for column in range(8):
            p.text(left + (column + 0.5) * cell, 100, f"{4 * column}\u2013{4 * column + 3}", 10, INK.muted)
        p.text(left - 8, 100, "bank", 10, INK.muted, "end")
        for row in range(count):
            p.text(left - 8, top + row * tall - 1, str(row), 9, INK.muted, "end")
            for column in range(8):
                p.rect(left + column * cell, top + row * tall - 10, cell - 1.5, tall - 1.5, INK.cell)
        for lane, (address, row) in enumerate(zip(case["addresses"], case["served"])):
            x, y = left + address // 16 % 8 * cell, top + row * tall
            fill, stroke = REGISTERS[lane // 8]
            p.rect(x, y - 10, cell - 1.5, tall - 1.5, fill, stroke if lane >= 24 else None, 0, 0.8)
            p.text(x + cell / 2, y - 1.2, str(lane), 9.5)
    x = 500
    for i in range(4):
        y = top + 110 + 24 * i
        p.rect(x, y - 11, 14, 14, *REGISTERS[i])
        p.text(x + 22, y, f"lanes {8 * i} to {8 * i + 7}: the rows of matrix {i}", 12.5, anchor="start")
    p.text(x, top + 226, "In the page: any access, row length, padding and", 12.5, INK.muted, "start")
    p.text(x, top + 244, "swizzle of the book; the same lanes in memory;", 12.5, INK.muted, "start")
    p.text(x, top + 262, "what a lane reads, and where.", 12.5, INK.muted, "start")
    return p


def softmax_stepper():
    """Increasing scores in blocks of two, in the three ways."""
    preset = next(one for one in data("softmax")["presets"] if one["id"] == "increasing")
    p = Picture(880, 396, "Online-softmax stepper: increasing scores in blocks of two, as kernels 02, 10 and 16 take them")
    p.text(24, 30, "The online-softmax stepper: sixteen increasing scores, blocks of two", 16, anchor="start", weight="bold")
    cell = 51
    for j, score in enumerate(preset["scores"]):
        x = 32 + j * cell
        p.rect(x, 48, cell - 2 - 3 * (j % 2), 24, INK.blue_soft if j // 2 % 2 else INK.green_soft, None, 2)
        p.text(x + cell / 2 - 2, 64.5, f"{score:g}", 12)
    ways = (("classic", "02: the maximum", "m"), ("lazy", "10: may lag", "m, log2"), ("first", "16: the first score", "r, log2"))
    for i, (mode, name, reference) in enumerate(ways):
        x, steps = 32 + i * 284, preset["steps"][f"{mode} 2"]
        p.text(x, 104, name, 14, anchor="start", weight="bold")
        for at, anchor, head in ((14, "end", ""), (76, "end", reference), (150, "end", "factor"), (232, "end", "l")):
            p.text(x + at, 128, head, 11.5, INK.muted, anchor, italic=True)
        for n, step in enumerate(steps):
            y = 150 + 22 * n
            rescales = n > 0 and step["rescaled"] and step["factor"] != 1
            if rescales:
                p.rect(x + 84, y - 14, 70, 19, INK.orange_soft, None, 2)
            p.text(x + 14, y, str(n + 1), 12, INK.muted, "end")
            p.text(x + 76, y, f"{step['m']:.4g}", 12.5, anchor="end", mono=True)
            p.text(x + 150, y, f"{step['factor']:.3g}" if rescales else "\u2013", 12.5, anchor="end", mono=True)
            p.text(x + 232, y, f"{step['l']:.4g}", 12.5, anchor="end", mono=True)
        times = sum(n > 0 and step["rescaled"] and step["factor"] != 1 for n, step in enumerate(steps))
        p.text(x, 342, f"rescaled {times} times; O[0] = {steps[-1]['o'][0]:.6g}", 13, INK.orange if times else INK.green,
               "start", "bold")
    p.note(378, f"The plain softmax, which sees all scores at once: O[0] = {preset['plain'][0]:.6g}. Any reference gives the "
           "same quotient.")
    return p


def timeline_events(words):
    """(start, end, kind) of a row, as scripts/fa_tools/figures/timeline_page.py writes it."""
    at = 0
    for word in words.split():
        gap, length, kind, *_ = (int(digits, 36) for digits in word.split("."))
        at += gap + length
        yield at - length, at, kind


def timeline():
    """Kernel 14 by the model and on an H200: some warps, and a wait for the turn with what ended it."""
    page = data("timeline")
    traces = [next(trace for trace in page["traces"] if trace["kernel"] == "14_softmax_overlap" and bool(trace["recorded"]) == recorded)
              for recorded in (False, True)]
    p = Picture(880, 442, "Pipeline timeline: kernel 14 by the emulator's model and on an H200",
                [unit[1:] for unit in page["units"].values()])
    p.heading("The pipeline timeline: 14_softmax_overlap, emulated above, recorded below",
              "tall: what a warp does, thin: what it waits for; framed: a wait, with a line to what ended it")
    left, wide, span, tall = 128, 728, 6000, 16
    wanted = ("warp 0", "warp 3", "warp 4", "warp 7", "warp 8", "of warps 0, 4 ...")
    y = 74
    for trace, first in zip(traces, (3300, 5300)):
        def x(cycle):
            return left + wide * (min(max(cycle, first), first + span) - first) / span
        places = {}
        for place, (group, name, words) in enumerate(trace["rows"]):
            kind = page["groups"][group]
            if not (kind == "Warps" and name in wanted or kind == "Tensor Cores" and name in wanted
                    or kind in ("Products under way", "Copies under way") and trace["recorded"] and name == "1"):
                continue
            label = {"Tensor Cores": "Tensor Core 0", "Products under way": "products", "Copies under way": "copies"}.get(kind, name)
            p.text(left - 10, y + 12.5, label, 12, INK.text, "end")
            p.rect(left, y, wide, tall, INK.cell)
            shapes = {}
            for index, (start, end, what) in enumerate(timeline_events(words)):
                places[place, index] = start, end, y
                if end <= first or start >= first + span:
                    continue
                waits = trace["kinds"][what][0].startswith("waits:")
                top, high = (y + 6, 4) if waits else (y + 1, 14)
                shapes.setdefault(trace["kinds"][what][1], []).append((x(start), top, max(x(end) - x(start), 0.8), high))
            for unit, places_of in shapes.items():
                for shape in places_of:
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
    for unit, (name, *_) in page["units"].items():
        p.rect(at, y - 8, 11, 11, page["units"][unit][1], None, 2)
        p.text(at + 16, y + 2, name, 12, INK.muted, "start")
        at += 40 + 6.3 * len(name)
    return p


INTERACTIVE = {"interactive_fragments": fragment_explorer, "interactive_descriptor": descriptor_builder,
               "interactive_banks": bank_explorer, "interactive_softmax": softmax_stepper,
               "interactive_timeline": timeline}
