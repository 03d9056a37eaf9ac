"""What those interactive pages show, when nothing is interactive, that share no picture with a chapter; drawn from the
pages' data: scripts/fa docs interactive."""

from fa_tools.press.figures.drawing import INK, figure
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
