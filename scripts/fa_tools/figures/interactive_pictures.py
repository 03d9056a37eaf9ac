"""What those interactive pages show, when nothing is interactive, that share no picture with a chapter; drawn from the
pages' data: scripts/fa docs interactive."""

from fa_tools.figures.drawing import BLUE, GREEN, GREY, INK, ORANGE, figure
from fa_tools.tools import ROOT, read_json

DATA = ROOT / "build" / "emulator" / "interactive" / "data"


def data(name):
    return read_json(DATA / f"{name}.json")


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
