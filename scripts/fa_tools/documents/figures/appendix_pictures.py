"""The pictures of the appendices and of the interactive pages, for scripts/fa pictures."""

import re

from fa_tools.documents.figures.drawing import BLUE, GREEN, GREY, INK, ORANGE, Band, figure
from fa_tools.numbers import percent
from fa_tools.sources import constant
from fa_tools.tools import ROOT, read_json

DATA = ROOT / "build" / "emulator" / "interactive" / "data"
SCOPES = ("thread", "warp", "warpgroup", "CTA", "cluster", "grid")
# What waits, up to which scope, and what it is called there.
BARRIERS = (
    ("cp.async.wait_group", "thread", "its own copies"),
    ("cp.async.bulk.wait_group", "thread", "its own stores"),
    ("__syncwarp, shuffles, votes", "warp", "the lanes of the mask"),
    ("wgmma.wait_group", "warpgroup", "the products of its four warps"),
    ("setmaxnreg", "warpgroup", "registers of the CTA's pool"),
    ("bar.sync, bar.arrive", "CTA", "so many threads, in whole warps"),
    ("__syncthreads", "CTA", "all threads"),
    ("mbarrier", "cluster", "arrivals and bytes; waiting is for the CTA"),
    ("barrier.cluster", "cluster", "all threads of all its CTAs"),
    ("the kernel's end", "grid", "all threads: what the next kernel waits for"),
)


@figure("synchronisation", 618, "Synchronisation: how far each kind reaches, and the two proxies", "How far it reaches", narrow=430,
        bands=[Band(0, title=False), *(Band(top, ((0, 290.7), (290.7, 589.3, "arrow"), (589.3, 880))) for top in (540, 680))])
def synchronisation(p):
    wide = p.width > 600
    left, high, above, top = (230, 30, 0, 66) if wide else (24, 46, 18, 66)  # above: a name is above its bar
    step = (p.width - left - 24) / len(SCOPES)
    for i, scope in enumerate(SCOPES):
        x = left + i * step
        p.text(x + step / 2, 56, scope, 13, INK.muted, weight="bold")
        p.line(x, top, x, top + high * len(BARRIERS), INK.line, 0.8, "3 4")
    for i, (name, scope, whom) in enumerate(BARRIERS):
        y, reach = top + 4 + above + i * high, SCOPES.index(scope) + 1
        inside = reach >= 3 and 6.7 * len(whom) + 16 < reach * step
        p.text(left - 12 if wide else left + 2, y + 15 if wide else y - 5, name, 12.5, anchor="end" if wide else "start")
        p.rect(left, y, reach * step - 4, 22, *(GREY, GREEN, GREEN, BLUE, ORANGE, ORANGE)[reach - 1], 4)
        p.text(left + (8 if inside else reach * step + 4), y + 15, whom, 12, INK.text if inside else INK.muted, "start")
    y = top + high * len(BARRIERS) + 48
    p.heading("Two ways into shared memory", "A barrier of threads orders what threads do. It does not reach the other proxy.", y=y)
    for at, other, done in ((y + 44, ["copy engine: async proxy", "cp.async.bulk, TMA"], ("loaded: mbarrier;", "stored: bulk.wait_group")),
                            (y + 124, ["Tensor Cores: async proxy", "wgmma's operands"], ("read:", "wgmma.wait_group"))):
        p.box(40, at, 250, 68, ["threads: generic proxy", "ld, st, ldmatrix, stmatrix", "cp.async"], *BLUE, 14)
        p.box(590, at, 250, 68, other, *ORANGE, 14)
        p.arrow(292, at + 22, 588, at + 22, INK.blue, 2.4)
        p.arrow(588, at + 44, 292, at + 44, INK.orange, 2.4)
        for foot, color, words in ((at + 15, INK.blue, ("written:", "fence.proxy.async, barrier")), (at + 60, INK.orange, done)):
            p.texts(12, color, "middle", *((440, foot, " ".join(words)),) if wide else ((440, foot + i, word) for i, word in enumerate(words)))


def sizes():
    """Tile sizes of bench/gemm/wgmma_tma.cu, from its Config: rows, columns, depth; stages."""
    text = (ROOT / "bench" / "gemm" / "wgmma_tma.cu").read_text(encoding="utf-8")
    groups, *others = (int(re.search(rf"\b{name} = (\d+)", text)[1]) for name in ("kWarpgroups", "kBlockN", "kBlockK", "kStages"))
    return groups * 64, *others


@figure("gemm_products", 452, "A tile of a matrix product beside a tile of attention", "Matrix product: C = E(A Bᵀ)",
        "the sum runs over k; C's tile stays in registers until the end",
        parts=((0, 438), (442, 880)))
def products(p):
    block_m, block_n, block_k, stages = sizes()
    unused = INK.cell, None
    # A slices to the left, B slices above, C at the crossing.
    x, y, high, wide = 150, 190, 100, 180
    for i in range(5):
        p.rect(x - 14 - 22 * (i + 1), y, 20, high, *(BLUE if i < stages else unused))
        p.rect(x, y - 14 - 18 * (i + 1), wide, 16, *(BLUE if i < stages else unused))
    p.box(x, y, wide, high, ["C: accumulators", f"{block_m} x {block_n} per CTA", f"{block_n // 2} registers per thread"], *ORANGE)
    p.text(x - 70, y + high + 20, f"A: slices of {block_k} columns", 12, INK.muted)
    p.lines(x + wide + 8, y - 60, 16, ("B: likewise,", f"{stages} slices", "in the ring"))
    p.arrow(x + wide / 2, y + high + 4, x + wide / 2, y + high + 46, INK.green, 2.4)
    p.box(x, y + high + 48, wide, 52, ["epilogue E, once", "bias, GELU, rounding"], *GREEN)
    p.text(x + wide / 2, y + high + 122, f"2 · {block_m} · {block_n} · k FLOPs for each", 12, INK.muted)
    p.line(440, 20, 440, 432, INK.line, 1, "3 4")
    p.heading("Attention: O = softmax(Q Kᵀ) V", "two products; the sum of the second runs over the keys", 464)
    x = 500
    p.box(x - 36, y, 52, high, ["Q", "stays"], *BLUE)
    for i in range(4):
        p.rect(x + 26 + 46 * i, y - 50, 42, 40, *(BLUE if i < 2 else unused))
    p.text(x + 26, y - 60, "K: tiles of keys", 12, INK.muted, "start")
    p.box(x + 26, y, 92, high, ["S, then P", f"128 x {constant('13', 'kBlockN')}", "registers"], *ORANGE)
    p.arrow(x + 120, y + high / 2, x + 196, y + high / 2, INK.green, 2.4)
    p.lines(x + 158, y + high / 2 - 26, 15, ("softmax,", "each tile"), 12, INK.green, "middle")
    p.box(x + 198, y, 112, high, ["O += P V", "128 x head_dim", "registers"], *ORANGE)
    p.text(x + 340, y - 14, "V", 12, INK.muted)
    for i in range(4):
        p.rect(x + 318, y + 26 * i - 2, 42, 22, *(BLUE if i < 2 else unused))
    p.arrow(x + 254, y + high + 4, x + 254, y + high + 46, INK.green, 2.4)
    p.box(x + 174, y + high + 48, 160, 52, ["epilogue, once", "1 / row_sum, rounding"], *GREEN)
    p.text(x + 160, y + high + 122, "E of the first product is the prologue of the second", 12, INK.muted)


@figure("gemm_shares", 292, "Products and exponentials of a tile, in cycles of an SM",
        "What an epilogue costs beside its products, in cycles of an SM",
        "4,096 FLOPs and 16 exponentials (or reciprocals) a cycle; each pair of bars scaled to its products",
        narrow=430)
def shares(p):
    block_m, block_n, *_ = sizes()
    keys, wide = constant("13", "kBlockN"), p.width > 600
    left, full, apart = (304, 430, 68) if wide else (24, p.width - 48, 84)
    rows = [(f"C = GELU(A Bᵀ + bias), k = {k}", 2 * block_m * block_n * k // 4096, block_m * block_n * 2 // 16, "once")
            for k in (8192, 1024)]
    rows.append((f"attention, {keys} keys, head_dim 128", 2 * 2 * 128 * keys * 128 // 4096, 128 * keys // 16, "each tile"))
    for i, (name, tensor, unit, when) in enumerate(rows):
        y, width = 78 + i * apart, full * unit / tensor
        p.text(*(left - 14, y + 15) if wide else (24, y - 8), name, 12.5, anchor="end" if wide else "start")
        p.text(*(left - 14, y + 34) if wide else (24 + full, y - 8), when, 12, INK.muted, "end")
        p.rect(left, y, full, 20, *ORANGE, 3)
        p.text(left + 8, y + 15, f"products: {tensor:,}", 12, INK.text, "start")
        p.rect(left, y + 24, width, 20, *GREEN, 3)
        p.text(left + width + 8, y + 39, f"{unit:,} = {percent(unit, tensor, '.0f')}", 12, INK.muted, "start")


# ---- what an interactive page shows when nothing is interactive, from the page's data (scripts/fa docs interactive) ------


def data(name):
    return read_json(DATA / f"{name}.json")


@figure("interactive_softmax", 396, "Online-softmax stepper: increasing scores in blocks of two, as kernels 02, 10 and 16 take them",
        "The online-softmax stepper: sixteen increasing scores, blocks of two",
        bands=[Band(0, ((32, 440), (440, 880)), 32, title=False), Band(85, ((0, 300), (300, 590), (590, 880)))] if DATA.is_dir() else ())
def softmax_stepper(p):
    """Increasing scores in blocks of two, in the three ways."""
    preset = next(one for one in data("softmax")["presets"] if one["id"] == "increasing")
    cell = 51
    for j, score in enumerate(preset["scores"]):
        x = 32 + j * cell
        p.rect(x, 48, cell - 2 - 3 * (j % 2), 24, INK.blue_soft if j // 2 % 2 else INK.green_soft, None, 2)
        p.text(x + cell / 2 - 2, 64.5, f"{score:g}", 12)
    for x, mode, name, reference in ((32, "classic", "02: the maximum", "m"), (316, "lazy", "10: may lag", "m, log2"),
                                     (600, "first", "16: the first scores", "r, log2")):
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
