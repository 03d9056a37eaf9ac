"""What the interactive pages show when nothing is interactive: drawn from the same data, docs/interactive/data."""

from drawing import Picture, register_colors
from tools import ROOT, read_json


def data(name):
    return read_json(ROOT / "docs" / "interactive" / "data" / f"{name}.json")


def fragment_explorer(theme):
    """V on its way into two B operands: lane 5 chosen."""
    lane, cell, left, top = 5, 21, 62, 118
    view = next(view for view in data("fragments")["views"] if view["id"] == "ldmatrix_v")
    colors = register_colors(theme)
    p = Picture(theme, 880, 508, "Fragment explorer: ldmatrix.x4.trans, lane 5 chosen")
    p.text(24, 30, f"The fragment explorer: {view['name']}", 16, anchor="start", weight="bold")
    p.text(24, 50, f"a number: the lane that gets the element, the colour: in which register; lane {lane} is chosen", 12.5,
           theme.muted, "start")

    def at(row, column):
        return left + column * cell + (5 if column >= 8 else 0), top + row * cell + (5 if row >= 8 else 0)

    for n in range(16):
        x, y = at(n, n)
        p.text(x + cell / 2, top - 8, str(n), 10, theme.muted)
        p.text(left - 8, y + 14, str(n), 10, theme.muted, "end")
    p.text(left + 8 * cell, top - 26, f"{view['column_name']}, 16 x 16 in shared memory", 12, theme.muted, italic=True)
    p.text(left - 30, top + 8 * cell, view["row_name"], 12, theme.muted, "end", italic=True)
    mine = []
    for other, flat in enumerate(view["positions"]):
        for i in range(0, len(flat), 2):
            row, column = flat[i : i + 2]
            register = i // 2 // view["halves"]
            x, y = at(row, column)
            chosen = other == lane
            p.rect(x, y, cell - 1.5, cell - 1.5, theme.text if chosen else colors[register][0], None, 2)
            p.text(x + cell / 2 - 0.8, y + 13.6, f"{view['register']}{register}" if chosen else str(other), 10,
                   theme.background if chosen else theme.text, weight="bold" if chosen else None)
            if chosen:
                mine.append((register, i // 2 % view["halves"], row, column))
    row, column = view["addresses"][lane]
    x, y = at(row, column)
    p.rect(x - 1.5, y - 1.5, 8 * cell + 1, cell + 1, "none", theme.orange, 2, 2)

    left = 486
    p.text(left, top - 26, "32 lanes", 14, anchor="start", weight="bold")
    for other in range(32):
        x, y = left + other % 4 * 92, top - 12 + other // 4 * 23
        chosen = other == lane
        p.rect(x, y, 89, 20, theme.blue if chosen else theme.cell, None, 2)
        p.text(x + 44, y + 14, str(other), 11, theme.background if chosen else theme.text, weight="bold" if chosen else None)
    y = top + 206
    p.text(left, y, f"Lane {lane}", 14, anchor="start", weight="bold")
    p.text(left, y + 24, f"gives the address of {view['row_name']} {row}, {view['column_name']}s {column} to {column + 7}", 13,
           theme.orange, "start")
    for register, half, row, column in mine:
        line = y + 50 + 23 * register
        if half == 0:
            p.rect(left, line - 12, 14, 14, colors[register][0], colors[register][1])
            p.text(left + 24, line, f"{view['register']}[{register}]", 12.5, anchor="start", mono=True)
        p.text(left + 78 + 150 * half, line, f"{('low', 'high')[half]}: {view['row_name']} {row}, {view['column_name']} "
               f"{column}", 12.5, anchor="start")
    p.text(440, 490, "The page shows the same for every operand of mma.sync, ldmatrix and wgmma, from either side: lane or element.",
           12, theme.muted)
    return p


def descriptor_builder(theme):
    """The descriptor of K's second step: its bits, its fields, what the wgmma reads."""
    page = data("descriptor")
    preset = next(one for one in page["presets"] if one["id"] == "k128")
    step = preset["steps"][1]
    bits = int(step["descriptor"], 16)
    looks = {"start": (theme.blue_soft, theme.blue), "stride": (theme.orange_soft, theme.orange),
             "mode": (theme.green_soft, theme.green)}
    p = Picture(theme, 880, 512, "wgmma descriptor builder: K of kernel 11, columns 16 to 31")
    p.text(24, 30, f"The descriptor builder: {preset['name']}, {step['what']}", 16, anchor="start", weight="bold")
    p.text(24, 50, "click a bit, type a number or paste 64 bits: the others follow, and a sentence says what is illegal", 12.5,
           theme.muted, "start")
    cell, left, top = 26, 52, 76
    for bit in range(64):
        x, y = left + (63 - bit) % 16 * cell, top + (63 - bit) // 16 * cell
        field = next((f for f in page["fields"] if f["low"] <= bit < f["low"] + f["width"]), None)
        if field:
            fill, stroke = looks.get(field["id"], (theme.cell, theme.line))
            p.rect(x, y, cell - 2, cell - 2, fill, stroke if field["id"] not in looks else None, 2)
        p.text(x + cell / 2 - 1, y + 16.5, str(bits >> bit & 1), 11.5, theme.text if field else theme.muted, mono=True)
        if bit % 16 == 15:
            p.text(left - 8, y + 16.5, str(bit), 10, theme.muted, "end")
    p.text(left, top + 4 * cell + 20, f"= {step['descriptor']}", 14, anchor="start", mono=True, weight="bold")
    for i, field in enumerate(reversed(page["fields"])):
        y = top + 4 * cell + 58 + 30 * i
        value = (bits >> field["low"] & (1 << field["width"]) - 1) * field["unit"]
        fill, stroke = looks.get(field["id"], (theme.cell, theme.line))
        p.rect(left, y - 12, 14, 14, fill, stroke)
        p.text(left + 24, y, field["name"], 13, anchor="start", weight="bold")
        p.text(left + 206, y, f"bits {field['low'] + field['width'] - 1} to {field['low']}", 12, theme.muted, "start")
        if field["id"] == "mode":
            said = f"{value}: {next(mode['span'] for mode in page['modes'] if mode['value'] == value)}-byte swizzle"
        else:
            said = f"0x{value:x}" if field["id"] == "start" else f"{value} {field['of']}"
        p.text(left + 296, y, said, 12, anchor="start", mono=True)
    y = top + 4 * cell + 58 + 30 * 5 + 12
    p.text(left, y, "Advancing along k", 13, anchor="start", weight="bold")
    for i, one in enumerate(preset["steps"]):
        x, line = left + i // 4 * 212, y + 22 + 20 * (i % 4)
        p.text(x, line, one["what"], 12, theme.text if one is step else theme.muted, "start", "bold" if one is step else None)
        p.text(x + 116, line, f"+ {one['bytes']}", 12, theme.text if one is step else theme.muted, "start", mono=True)

    left, cell, high = 556, 38, 21
    p.text(left, top - 2, "What this wgmma reads of the tile", 14, anchor="start", weight="bold")
    p.text(left, top + 17, "lines of 128 bytes, 16-byte places; the number: which", 12, theme.muted, "start")
    p.text(left, top + 33, "chunk of 8 columns lies there", 12, theme.muted, "start")
    read = {tuple(place) for place in step["reads"]}
    for line, places in enumerate(page["chunks"]):
        y = top + 48 + line * high + (6 if line >= 8 else 0)
        p.text(left - 8, y + 14, f"row {step['first_row'] + line}", 10, theme.muted, "end")
        for place, chunk in enumerate(places):
            hit = (line, place) in read
            p.rect(left + place * cell, y, cell - 2, high - 2, theme.text if hit else theme.cell, None, 2)
            p.text(left + place * cell + cell / 2 - 1, y + 14, str(chunk), 11, theme.background if hit else theme.text,
                   weight="bold" if hit else None)
    return p


INTERACTIVE = {"interactive_fragments": fragment_explorer, "interactive_descriptor": descriptor_builder}
