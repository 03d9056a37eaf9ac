"""The pictures of docs/appendix/gemm.md, for scripts/fa pictures."""

import re

from fa_tools.figures.drawing import BLUE, GREEN, INK, ORANGE, Picture, constant
from fa_tools.tools import ROOT


def sizes():
    """Tile sizes of bench/gemm/wgmma_tma.cu, from its Config."""
    text = (ROOT / "bench" / "gemm" / "wgmma_tma.cu").read_text(encoding="utf-8")
    found = {name: int(re.search(rf"\b{name} = (\d+)", text)[1]) for name in ("kWarpgroups", "kBlockN", "kBlockK", "kStages")}
    return found["kWarpgroups"] * 64, found["kBlockN"], found["kBlockK"], found["kStages"]


def products():
    """A matrix product's tile and attention's: what passes through shared memory, what stays in registers."""
    block_m, block_n, block_k, stages = sizes()
    keys = constant("13", "kBlockN")
    p = Picture(880, 452, "A tile of a matrix product beside a tile of attention")
    p.heading("Matrix product: C = E(A Bᵀ)", "the sum runs over k; C's tile stays in registers until the end")
    # A slices to the left, B slices above, C at the crossing.
    x, y, high, wide = 150, 190, 100, 180
    for i in range(5):
        soft, strong = BLUE if i < stages else (INK.cell, None)
        p.rect(x - 14 - 22 * (i + 1), y, 20, high, soft, strong)
        p.rect(x, y - 14 - 18 * (i + 1), wide, 16, soft, strong)
    p.box(x, y, wide, high, ["C: accumulators", f"{block_m} x {block_n} a CTA", f"{block_n // 2} registers a thread"], *ORANGE)
    p.text(x - 70, y + high + 20, f"A: slices of {block_k} columns", 12, INK.muted)
    p.text(x + wide + 8, y - 60, "B: likewise,", 12, INK.muted, "start")
    p.text(x + wide + 8, y - 44, f"{stages} slices", 12, INK.muted, "start")
    p.text(x + wide + 8, y - 28, "in the ring", 12, INK.muted, "start")
    p.arrow(x + wide / 2, y + high + 4, x + wide / 2, y + high + 46, INK.green, 2.4)
    p.box(x, y + high + 48, wide, 52, ["epilogue E, once", "bias, GELU, rounding"], *GREEN)
    p.text(x + wide / 2, y + high + 122, f"2 · {block_m} · {block_n} · k FLOPs for each", 12, INK.muted)
    p.line(440, 20, 440, 432, INK.line, 1, "3 4")
    p.text(464, 30, "Attention: O = softmax(Q Kᵀ) V", 16, anchor="start", weight="bold")
    p.text(464, 50, "two products; the sum of the second runs over the keys", 12.5, INK.muted, "start")
    x, y = 500, 190
    p.box(x - 36, y, 52, high, ["Q", "stays"], *BLUE)
    for i in range(4):
        soft, strong = BLUE if i < 2 else (INK.cell, None)
        p.rect(x + 26 + 46 * i, y - 50, 42, 40, soft, strong)
    p.text(x + 26, y - 60, "K: tiles of keys", 12, INK.muted, "start")
    p.box(x + 26, y, 92, high, ["S, then P", f"128 x {keys}", "registers"], *ORANGE)
    p.arrow(x + 120, y + high / 2, x + 196, y + high / 2, INK.green, 2.4)
    p.text(x + 158, y + high / 2 - 26, "softmax,", 12, INK.green)
    p.text(x + 158, y + high / 2 - 11, "each tile", 12, INK.green)
    p.box(x + 198, y, 112, high, ["O += P V", "128 x head_dim", "registers"], *ORANGE)
    for i in range(4):
        soft, strong = BLUE if i < 2 else (INK.cell, None)
        p.rect(x + 318, y + 26 * i - 2, 42, 22, soft, strong)
    p.text(x + 340, y - 14, "V", 12, INK.muted)
    p.arrow(x + 254, y + high + 4, x + 254, y + high + 46, INK.green, 2.4)
    p.box(x + 174, y + high + 48, 160, 52, ["epilogue, once", "1 / row_sum, rounding"], *GREEN)
    p.text(x + 160, y + high + 122, "E of the first product is the prologue of the second", 12, INK.muted)
    return p


def shares():
    """Cycles of an SM: the Tensor Cores' part and what the unit for exponentials has to do beside it."""
    block_m, block_n, block_k, _ = sizes()
    p = Picture(880, 292, "Products and exponentials of a tile, in cycles of an SM")
    p.heading("What an epilogue costs beside its products, in cycles of an SM",
              "4,096 FLOPs and 16 exponentials (or reciprocals) a cycle; each pair of bars scaled to its products")
    gelu = block_m * block_n * 2 // 16
    keys = constant("13", "kBlockN")
    rows = [(f"C = GELU(A Bᵀ + bias), k = {k}", 2 * block_m * block_n * k // 4096, gelu, "once") for k in (8192, 1024)]
    rows.append((f"attention, {keys} keys, head_dim 128", 2 * 2 * 128 * keys * 128 // 4096, 128 * keys // 16, "each tile"))
    full = 430
    for i, (name, tensor, unit, when) in enumerate(rows):
        y = 78 + i * 68
        p.text(290, y + 15, name, 12.5, anchor="end")
        p.text(290, y + 34, when, 12, INK.muted, "end")
        p.rect(304, y, full, 20, *ORANGE, 3)
        p.text(312, y + 15, f"products: {tensor:,}", 12, INK.text, "start")
        width = full * unit / tensor
        p.rect(304, y + 24, width, 20, *GREEN, 3)
        p.text(304 + width + 8, y + 39, f"{unit:,} = {100 * unit / tensor:.0f} %", 12, INK.muted, "start")
    return p


GEMM = {"gemm_products": products, "gemm_shares": shares}
