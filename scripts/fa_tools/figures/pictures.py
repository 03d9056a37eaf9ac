"""Draws the chapters' pictures: docs/pictures/NAME.svg. Only Python is needed, and the same script gives the
same bytes."""

import math
import sys

from fa_tools.figures import layouts
from fa_tools.figures.appendix_pictures import APPENDIX
from fa_tools.figures.drawing import BLUE, GREEN, GREY, INK, ORANGE, REGISTERS, Picture
from fa_tools.figures.first_pictures import FIRST
from fa_tools.figures.gemm_pictures import GEMM
from fa_tools.figures.hopper_pictures import HOPPER
from fa_tools.figures.interactive_pictures import DATA, INTERACTIVE
from fa_tools.tools import ROOT, Parser, read_json, relative

PICTURES = ROOT / "docs" / "pictures"
EXAMPLE = """examples:
  scripts/fa pictures            write all of them
  scripts/fa pictures --check    only say which are out of date; exit code 1 if any is"""

# --- 01 ----------------------------------------------------------------------------------------------------------


def passes():
    """Three passes and what they move, one head of 4096 tokens."""
    p = Picture(880, 330, "Kernel 01: three passes through global memory")
    mib = 4096 * 4096 * 4 / 2**20
    p.rect(20, 40, 840, 118, INK.cell, None, 8)
    p.text(34, 61, "global memory, one head: 4096 tokens, head_dim 128, 16-bit Q, K, V, O and fp32 S", 12, INK.muted, "start")
    small = 4096 * 128 * 2 / 2**20
    for x, name in ((40, "Q"), (120, "K"), (668, "V"), (762, "O")):
        p.box(x, 86, 66, 54, [name, f"{small:.0f} MiB"], *BLUE)
    p.box(270, 76, 330, 70, ["S, overwritten by P", f"4096 x 4096 x 4 bytes = {mib:.0f} MiB"], *ORANGE, 14)
    y = 236
    for x, name, what in ((40, "scores_kernel", "S = scale * Q Kᵀ"), (335, "softmax_kernel", "P = softmax(S) in place"),
                          (640, "output_kernel", "O = P V")):
        p.box(x, y, 200, 62, [name, what], *GREEN)
    p.arrow(73, 140, 100, y, INK.blue)
    p.arrow(153, 140, 140, y, INK.blue)
    p.arrow(215, y, 300, 148, INK.orange, 2.6)
    p.text(283, 198, "write", 12, INK.muted, "start")
    p.arrow(405, 146, 405, y, INK.orange, 2.6)
    p.arrow(465, y, 465, 148, INK.orange, 2.6)
    p.text(397, 198, "3 reads", 12, INK.muted, "end")
    p.text(474, 198, "2 writes", 12, INK.muted, "start")
    p.arrow(570, 146, 664, y, INK.orange, 2.6)
    p.text(606, 198, "read", 12, INK.muted, "end")
    p.arrow(706, 140, 726, y, INK.blue)
    p.arrow(786, y, 795, 142, INK.blue)
    p.text(440, 26, "Seven trips over S", 16, weight="bold")
    p.note(320, "each thread: one element of S or O (in the softmax: one row)", 12)
    return p


def sectors():
    """What one load instruction of a warp touches in pass 1 (K) and pass 3 (V)."""
    p = Picture(880, 372, "Kernel 01: 32-byte sectors that one load of a warp touches")
    cell, left = 38, 62

    def rows(x, y, count, hit, name):
        for row in range(count):
            for sector in range(8):
                touched = hit(row, sector)
                p.rect(x + sector * cell, y + row * 14, cell - 2, 11, INK.orange if touched else INK.cell)
        for row in range(count):
            p.text(x - 6, y + row * 14 + 9.5, f"{name} {row}", 9.5, INK.muted, "end")

    p.text(left - 42, 30, "Pass 1, load of gK[d]: 16 lanes, 16 keys", 15, anchor="start", weight="bold")
    p.text(left - 42, 50, "a row of K has 256 bytes = 8 sectors; each lane wants 2 bytes of its own row", 12, INK.muted, "start")
    rows(left, 70, 16, lambda row, sector: sector == 0, "key")
    p.text(left + 4 * cell, 318, "16 sectors = 512 bytes moved, 32 bytes wanted", 13, INK.orange, weight="bold")
    p.text(left + 4 * cell, 338, "gQ[d]: two rows, 2 sectors. On average (16 + 2) / 2 = 9 a request.", 12, INK.muted)

    x = 522
    p.text(x - 42, 30, "Pass 3, load of gV[key]: 16 lanes, 16 columns", 15, anchor="start", weight="bold")
    p.text(x - 42, 50, "neighbouring lanes read neighbouring elements of one row of V", 12, INK.muted, "start")
    rows(x, 70, 16, lambda row, sector: row == 0 and sector == 0, "key")
    p.text(x + 4 * cell, 318, "1 sector = 32 bytes moved, 32 bytes wanted", 13, INK.orange, weight="bold")
    p.text(x + 4 * cell, 338, "gP[key]: two rows, 2 sectors. On average (1 + 2) / 2 = 1.5 a request.", 12, INK.muted)
    p.note(362, "Either load is one instruction of the warp. Only which lanes lie side by side is different.", 12)
    return p


# --- 02 ----------------------------------------------------------------------------------------------------------


def online():
    """The state that is carried from tile to tile, with numbers."""
    p = Picture(880, 420, "Kernel 02: the running softmax over three tiles of two keys")
    scores = [[1, 3], [2, 5], [4, 0]]
    p.heading("One query row, six keys, tiles of two",
              "Only row_max, row_sum and acc_o survive a tile; S and P exist for one tile at a time.")
    row_max, row_sum = -math.inf, 0.0
    wide, x0 = 250, 44
    for j, tile in enumerate(scores):
        x = x0 + j * 276
        new_max = max(row_max, *tile)
        rescale = math.exp(row_max - new_max)
        weights = [math.exp(s - new_max) for s in tile]
        p.box(x + 20, 72, 96, 42, [f"K tile {j}", "shared memory"], *BLUE, 12.5)
        p.box(x + 134, 72, 96, 42, [f"V tile {j}", "shared memory"], *BLUE, 12.5)
        p.arrow(x + 68, 114, x + 68, 144, INK.blue)
        p.box(x + 20, 146, 96, 44, ["scores", ",  ".join(map(str, tile))], *GREEN, 12.5)
        p.arrow(x + 68, 190, x + 68, 220, INK.green)
        p.box(x + 4, 222, 128, 44, ["P = e^(score - max)", ",  ".join(f"{w:.3f}" for w in weights)], *GREEN, 12.5)
        row_sum = row_sum * rescale + sum(weights)
        p.arrow(x + 68, 266, x + 68, 300, INK.green)
        p.arrow(x + 192, 114, x + 192, 300, INK.blue)
        p.rect(x, 302, wide, 78, *ORANGE, 5)
        update = "P V" if j == 0 else f"acc_o * {rescale:.3f} + P V"
        for i, (name, what) in enumerate((("row_max", str(new_max)), ("row_sum", f"{row_sum:.3f}"), ("acc_o", update))):
            p.text(x + 12, 322 + 22 * i, name, 12.5, INK.muted, "start", mono=True)
            p.text(x + 78, 322 + 22 * i, what, 12.5, anchor="start", mono=True)
        if j:
            p.arrow(x - 26, 341, x - 1, 341, INK.orange, 2.6)
        row_max = new_max
    exact = sum(math.exp(s - 5) for tile in scores for s in tile)
    p.note(405, f"After the last tile: O = acc_o / row_sum, and row_sum = {row_sum:.3f} is what one pass over the six "
           f"scores gives ({exact:.3f}).")
    return p


def bank_panel(p, x, pad, words, name, what):
    """The banks that `words` words of each of eight rows of 128 elements meet; how often the one that is met most."""
    stride, cell = (128 + pad) // 2, 11.6
    met = [[(row * stride + word) % 32 for word in range(words)] for row in range(8)]
    p.text(x, 30, f"kPad = {pad}: {stride} words of 4 bytes a row", 15, anchor="start", weight="bold")
    p.text(x, 50, what, 12, INK.muted, "start")
    for row in range(8):
        for bank in range(32):
            p.rect(x + bank * cell, 78 + row * 18, cell - 1.5, 15, INK.orange if bank in met[row] else INK.cell)
        p.text(x - 6, 78 + row * 18 + 11.5, f"{name} {row}", 10.5, INK.muted, "end")
    for bank in (0, 8, 16, 24, 31):
        p.text(x + bank * cell + 5, 72, str(bank), 10, INK.muted)
    return max(sum(bank in banks_of for banks_of in met) for bank in range(32))


def banks():
    """Column 0 of sK in the banks of shared memory, without and with padding."""
    p = Picture(880, 292, "Kernel 02: banks that lanes 0 to 7 meet, without and with padding")
    for x, pad in ((56, 0), (490, 2)):
        worst = 4 * bank_panel(p, x, pad, 1, "lane", "bank of element d = 0 of each row, 32 banks")  # of 32 lanes
        p.text(x, 242, "and so on to lane 31:", 12, INK.muted, "start")
        what = "all in one bank: 32 wavefronts" if worst == 32 else "every bank once: 1 wavefront"
        p.text(x + 124, 242, what, 13, INK.orange, "start", "bold")
    p.note(276, "A bank delivers one word a wavefront. The pad costs 4 bytes a row and removes 31 of 32 wavefronts.", 12)
    return p


# --- 03 ----------------------------------------------------------------------------------------------------------


def register_tile():
    """The elements of S and O that one thread owns, and what it reads for them."""
    p = Picture(880, 452, "Kernel 03: what one thread of 128 computes")
    ty, tx = 2, 5
    p.text(24, 30, f"What thread (ty, tx) = ({ty}, {tx}) owns", 16, anchor="start", weight="bold")
    cell, x0, y0 = 4, 112, 118

    def grid(x, y, columns, mine, width):
        p.rect(x - 1, y - 1, columns * width + 2, 64 * cell + 2, *GREY)
        for row in range(ty, 64, 8):
            p.rect(x, y + row * cell, columns * width, cell, INK.blue_soft)
        for column in mine:
            p.rect(x + column * width, y, width, 64 * cell, INK.green_soft)
        for row in range(ty, 64, 8):
            for column in mine:
                p.rect(x + column * width - 0.5, y + row * cell - 0.5, width + 1, cell + 1, INK.orange)

    keys = range(tx, 64, 16)
    p.text(x0 + 128, 62, "S = Q Kᵀ, 64 rows x 64 keys", 13.5, weight="bold")
    grid(x0, y0, 64, keys, cell)
    for key in keys:
        p.rect(x0 + key * cell - 1, 84, cell + 2, 26, INK.green)
    p.text(x0 + 128, 78, "4 rows of K", 11.5, INK.green)
    for row in range(ty, 64, 8):
        p.rect(62, y0 + row * cell - 1, 42, cell + 2, INK.blue)
    p.text(57, y0 + 4 * cell + 118, "8 rows", 11.5, INK.blue, "end")
    p.text(57, y0 + 4 * cell + 133, "of Q", 11.5, INK.blue, "end")
    p.text(x0 + 128, 402, "four columns of Q and K at a time:", 12.5, INK.muted)
    p.text(x0 + 128, 422, "8 + 4 = 12 loads of 16 bytes", 13)
    p.text(x0 + 128, 441, "8 x 4 x 4 = 128 multiply-adds", 13, INK.orange, weight="bold")

    x1, width = 536, 2.3
    columns = [c for v in range(2) for c in range(64 * v + 4 * tx, 64 * v + 4 * tx + 4)]
    p.text(x1 + 147, 62, "O += P V, 64 rows x 128 columns", 13.5, weight="bold")
    grid(x1, y0, 128, columns, width)
    for v in range(2):
        p.rect(x1 + (64 * v + 4 * tx) * width - 1, 84, 4 * width + 2, 26, INK.green)
    p.text(x1 + 147, 78, "2 x 4 columns of V", 11.5, INK.green)
    for row in range(ty, 64, 8):
        p.rect(486, y0 + row * cell - 1, 42, cell + 2, INK.blue)
    p.text(481, y0 + 4 * cell + 118, "8 rows", 11.5, INK.blue, "end")
    p.text(481, y0 + 4 * cell + 133, "of P", 11.5, INK.blue, "end")
    p.text(x1 + 147, 402, "four keys at a time:", 12.5, INK.muted)
    p.text(x1 + 147, 422, "8 + 4 x 2 = 16 loads of 16 bytes", 13)
    p.text(x1 + 147, 441, "8 x 8 x 4 = 256 multiply-adds", 13, INK.orange, weight="bold")
    return p


# --- 04 ----------------------------------------------------------------------------------------------------------


def trips():
    """Where S, P and O are in the course of one tile of keys: fragments and shared memory in turns."""
    p = Picture(880, 388, "Kernel 04: what crosses between fragments and shared memory for one tile of keys")
    p.heading("One warp, 16 rows, one tile of 64 keys", "Everything that looks at single elements has to leave the fragments.")
    for y, height, name in ((70, 74, "fragments"), (198, 56, "shared memory"), (306, 56, "registers")):
        p.rect(112, y, 752, height, INK.cell, None, 6)
        words = name.split()
        for i, word in enumerate(words):
            p.text(102, y + height / 2 + 5 + (i - (len(words) - 1) / 2) * 15, word, 12.5, INK.muted, "end")
    p.box(208, 82, 104, 50, ["S = Q Kᵀ", "Tensor Core"], *GREEN)
    p.box(620, 82, 150, 50, ["O += P V", "Tensor Core"], *GREEN)
    boxes = ((126, "Q", *BLUE), (186, "K", *BLUE),
             (268, "S", *ORANGE), (432, "P", *ORANGE),
             (560, "V", *BLUE), (690, "O", *ORANGE))
    at = {}
    for x, name, fill, stroke in boxes:
        p.box(x, 206, 46, 40, [name], fill, stroke)
        at[name] = x + 23
    p.box(300, 314, 130, 40, ["softmax"], *GREEN)
    p.box(650, 314, 126, 40, ["O * rescale"], *GREEN)
    p.arrow(at["Q"], 206, 226, 134, INK.blue)
    p.arrow(at["K"], 206, 246, 134, INK.blue)
    p.arrow(at["S"], 132, at["S"], 204, INK.orange, 2.6)
    p.arrow(at["S"], 246, 330, 312, INK.orange, 2.6)
    p.arrow(400, 314, at["P"], 248, INK.orange, 2.6)
    p.arrow(at["P"] + 8, 206, 634, 134, INK.orange, 2.6)
    p.arrow(at["V"], 206, 664, 134, INK.blue)
    p.arrow(at["O"] - 14, 206, at["O"] - 14, 134, INK.orange, 2.6)
    p.arrow(at["O"] + 14, 132, at["O"] + 14, 204, INK.orange, 2.6)
    p.arrow(at["O"] - 14, 246, at["O"] - 14, 312, INK.orange, 2.6)
    p.arrow(at["O"] + 14, 314, at["O"] + 14, 248, INK.orange, 2.6)
    p.text(at["S"] + 10, 172, "store S", 12, anchor="start")
    p.text(at["P"] - 8, 172, "load P, 8 times", 12, anchor="middle")
    p.text(at["O"] + 26, 172, "load O, store O", 12, anchor="start")
    p.text(at["O"] + 26, 284, "load, store", 12, anchor="start")
    p.text(290, 284, "load S", 12, anchor="end")
    p.text(446, 290, "store P", 12, anchor="start")
    return p


# --- 05 ----------------------------------------------------------------------------------------------------------


def register_key(p, y):
    for i in range(4):
        p.rect(300 + i * 76, y, 14, 14, *REGISTERS[i])
        p.text(320 + i * 76, y + 11.5, f"register {i}", 11.5, anchor="start")


def fragments():
    """The A, B and C fragments of m16n8k16: which lane holds which element, and in which register."""
    p = Picture(880, 452, "Kernel 05: the fragments of mma.sync.m16n8k16")
    lane, cell, top = 5, 18, 128
    p.heading("mma.sync.m16n8k16: who holds which element",
              f"each square is an element, the number its lane, the colour its register; framed: lane {lane}")

    def grid(left, y, rows, columns, held, name, what, row_name, column_name):
        owner = {}
        for other in range(32):
            for register, position in held(other):
                assert position not in owner
                owner[position] = other, register
        assert len(owner) == rows * columns
        for (row, column), (other, register) in owner.items():
            fill, stroke = REGISTERS[register]
            p.rect(left + column * cell, y + row * cell, cell - 1.5, cell - 1.5, fill)
            p.text(left + column * cell + cell / 2 - 0.8, y + row * cell + 11.8, str(other), 9)
        for (row, column), (other, register) in owner.items():
            if other == lane:
                p.rect(left + column * cell - 0.6, y + row * cell - 0.6, cell - 0.4, cell - 0.4, "none", INK.text, 0, 2)
        p.text(left + columns * cell / 2, 82, name, 14, weight="bold")
        p.text(left + columns * cell / 2, 100, what, 12, INK.muted)
        p.text(left + columns * cell / 2, 120, column_name, 11.5, INK.muted, italic=True)
        p.text(left - 8, y + rows * cell / 2 + 4, row_name, 11.5, INK.muted, "end", italic=True)

    grid(60, top, 16, 16, lambda l: [(i, layouts.mma_a(l, i, h)) for i in range(4) for h in range(2)],
         "A, 16 x 16", "a[0..3], two 16-bit elements each", "row", "k")
    grid(416, top, 16, 8, lambda l: [(i, layouts.mma_b(l, i, h)) for i in range(2) for h in range(2)],
         "B, 16 x 8", "b[0..1], two 16-bit elements each", "k", "column")
    grid(664, top, 16, 8, lambda l: [(i, layouts.mma_c(l, i)) for i in range(4)],
         "C and D, 16 x 8", "c[0..3], an fp32 each", "row", "column")
    p.text(374, top + 150, "x", 22, INK.muted)
    p.text(600, top + 150, "=", 22, INK.muted)
    register_key(p, 428)
    return p


def ldmatrix_tiles():
    """What ldmatrix.x4 brings for Q, K and V: who addresses which row, and where it goes."""
    p = Picture(880, 446, "Kernel 05: ldmatrix.x4 for Q, K and V")
    lane, cell, top = 5, 14, 126
    p.heading("ldmatrix.x4: four 8 x 8 matrices of 16-bit elements",
              f"the number: the lane that gives the address of these 8 elements; the colour: the register they "
              f"go to; framed: what lane {lane} gets")
    # As in the kernel: lane -> (row, column) of the 16 x 16 tile in shared memory.
    panels = ((62, "Q: the A fragment", "row: lane % 16", "column: lane / 16 * 8", "query", "d",
               lambda l: (l % 16, l // 16 * 8), False),
              (346, "K: two B fragments", "row: lane % 8 + lane / 16 * 8", "column: lane / 8 % 2 * 8", "key", "d",
               lambda l: (l % 8 + l // 16 * 8, l // 8 % 2 * 8), False),
              (630, "V: two B fragments, .trans", "row: lane % 16", "column: lane / 16 * 8", "key", "column",
               lambda l: (l % 16, l // 16 * 8), True))
    for left, name, row_is, column_is, row_name, column_name, address, trans in panels:
        mine, met = [], set()
        for l in range(32):
            row, column = address(l)
            fill, stroke = REGISTERS[l // 8]
            for c in range(8):
                met.add((row, column + c))
                p.rect(left + (column + c) * cell + (5 if column else 0), top + row * cell + (5 if row >= 8 else 0),
                       cell - 1.3, cell - 1.3, fill)
            x = left + column * cell + (5 if column else 0)
            p.text(x + 6.5 * cell, top + row * cell + (5 if row >= 8 else 0) + 10, str(l), 9.5)
        assert len(met) == 256
        for m in range(4):
            for h in range(2):
                row, column = (layouts.ldmatrix_trans if trans else layouts.ldmatrix)(lane, h)
                first_row, first_column = address(8 * m)
                mine.append((first_row + row, first_column + column, m, h))
        for row, column, m, h in mine:
            x, y = left + column * cell + (5 if column >= 8 else 0), top + row * cell + (5 if row >= 8 else 0)
            p.rect(x - 0.6, y - 0.6, cell, cell, REGISTERS[m][0], INK.text, 0, 2)
        p.text(left + 8 * cell + 2, 84, name, 14, weight="bold")
        p.text(left + 8 * cell + 2, 118, column_name, 11.5, INK.muted, italic=True)
        p.text(left - 8, top + 8 * cell + 4, row_name, 11.5, INK.muted, "end", italic=True)
        p.text(left + 8 * cell + 2, top + 16 * cell + 26, row_is, 11.5, mono=True)
        p.text(left + 8 * cell + 2, top + 16 * cell + 42, column_is, 11.5, mono=True)
    register_key(p, 408)
    p.note(440, "B of the first (second) eight keys or columns: registers 0 and 1 (2 and 3).", 12)
    return p


def split_keys():
    """Four warps: S divided by keys, O by columns, and what must cross between them."""
    p = Picture(880, 350, "Kernel 05: the warps split the keys")
    colors = REGISTERS
    p.heading("Four warps, one tile of 64 queries x 64 keys",
              "no warp has a whole row of S: maximum, sum and P cross through shared memory")

    def strips(x, y, wide, height, name, what):
        p.text(x + 2 * wide, y - 26, name, 14, weight="bold")
        p.text(x + 2 * wide, y - 9, what, 12, INK.muted)
        for w in range(4):
            p.rect(x + w * wide, y, wide - 3, height, *colors[w], 3)
            p.text(x + w * wide + wide / 2 - 1, y + height / 2 + 5, f"w{w}", 13)

    strips(40, 118, 48, 160, "S", "16 keys a warp")
    p.box(316, 104, 210, 54, ["sMax, sSum", "4 warps x 64 rows, fp32"], *GREY)
    p.box(316, 206, 210, 72, ["sP", "64 x 64, all of it is read", "by all four warps"], *GREY)
    p.arrow(236, 150, 312, 130, INK.line)
    p.arrow(236, 230, 312, 240, INK.line)
    p.arrow(530, 130, 604, 150, INK.line)
    p.arrow(530, 240, 604, 230, INK.line)
    strips(610, 118, 58, 160, "O", "head_dim / 4 columns a warp")
    p.note(308, "Every warp reads all of Q and of P: 4 x (16 + 8) KiB a tile, head_dim 128; and a quarter of K and of V.", 13)
    p.note(332, "In 06 a warp has 16 rows instead: it reads all of K and V, a quarter of Q, and P never leaves its registers.",
           13)
    return p


def matrix_banks():
    """The banks that one 8 x 8 matrix of ldmatrix meets, without and with padding."""
    p = Picture(880, 292, "Kernel 05: banks of the eight rows of one ldmatrix matrix")
    for x, pad in ((56, 0), (490, 8)):
        worst = bank_panel(p, x, pad, 4, "row", "16 bytes of each of eight rows, 32 banks")
        what = "every bank once: 1 wavefront" if worst == 1 else f"{worst} words in each of four banks: {worst} wavefronts"
        p.text(x, 244, what, 13, INK.orange, "start", "bold")
    p.note(276, "A row of 256 bytes is two full turns through the banks; 16 bytes more move the next row on by four banks.", 12)
    return p


# --- 06 ----------------------------------------------------------------------------------------------------------


def c_is_a():
    """The C fragments of two tiles of S are the A fragment of the second product."""
    p = Picture(880, 452, "Kernel 06: C of the first product is A of the second one")
    lane, cell = 5, 17
    colors = (BLUE, ORANGE)
    p.heading(f"What lane {lane} holds", "each square is an element; the number says which lane has it")
    c_left, a_left, top = 52, 540, 112

    def grid(left, lane_of, mine):
        for row in range(16):
            for column in range(16):
                x, y = left + column * cell + (0 if column < 8 else 6 if left == c_left else 0), top + row * cell
                fill, stroke = mine.get((row, column), (INK.cell, None))
                p.rect(x, y, cell - 1.5, cell - 1.5, fill, stroke)
                p.text(x + cell / 2 - 0.8, y + 11.2, str(lane_of[row, column]), 8.5, INK.text if stroke else INK.muted)
            p.text(left - 6, top + row * cell + 11.5, str(row), 9.5, INK.muted, "end")

    owner, mine = {}, {}
    for other in range(32):
        for tile in range(2):
            for i in range(4):
                row, column = layouts.mma_c(other, i)
                owner[row, column + 8 * tile] = other
                if other == lane:
                    mine[row, column + 8 * tile] = colors[tile]
    p.text(c_left + 8 * cell + 3, 84, "S: two C fragments, 16 rows x 8 keys each, fp32", 13.5, weight="bold")
    p.text(c_left + 4 * cell, 103, "acc_s[n]", 12, INK.blue, mono=True)
    p.text(c_left + 12 * cell + 6, 103, "acc_s[n + 1]", 12, INK.orange, mono=True)
    grid(c_left, owner, mine)

    owner, mine = {}, {}
    for other in range(32):
        for i in range(4):
            for half in range(2):
                row, k = layouts.mma_a(other, i, half)
                owner[row, k] = other
                if other == lane:
                    mine[row, k] = colors[i // 2]
    p.text(a_left + 8 * cell, 84, "P: one A fragment, 16 rows x 16 keys, 16-bit", 13.5, weight="bold")
    p.text(a_left + 8 * cell, 103, "rP[0..3]", 12, mono=True)
    grid(a_left, owner, mine)
    p.arrow(c_left + 16 * cell + 26, top + 8 * cell, a_left - 34, top + 8 * cell, INK.green, 2.6)
    p.text(432, top + 8 * cell - 30, "e^x, and", 12, INK.muted)
    p.text(432, top + 8 * cell - 14, "pack two", 12, INK.muted)
    p.text(432, top + 8 * cell + 22, "no shuffle", 12, INK.green, weight="bold")
    for i, color in enumerate((INK.blue, INK.blue, INK.orange, INK.orange)):
        what = f"rP[{i}] = acc_s[n{' + 1' if i > 1 else ''}]"
        p.text(130 + 206 * i, 408, f"{what} {2 * (i % 2)}, {2 * (i % 2) + 1}", 11.5, color, mono=True)
    same = all(layouts.mma_a(other, i, half) == tuple(
        a + b for a, b in zip(layouts.mma_c(other, 2 * (i % 2) + half), (0, 8 * (i // 2))))
        for other in range(32) for i in range(4) for half in range(2))
    p.note(438, "The two grids are equal, number by number: " + ("in all 32 lanes." if same else "NOT"))
    return p


# --- 07 ----------------------------------------------------------------------------------------------------------


def ring():
    """What is copied, waited for and computed, tile by tile, with two stages."""
    p = Picture(880, 362, "Kernel 07: a ring of two stages")
    stages, tiles, left, wide, head = 2, 4, 150, 170, 66
    p.heading("kStages = 2: tile n + 1 arrives while tile n is computed on",
              "four tiles; time runs to the right, lengths are not to scale")
    for y, name in ((98, "compute"), (168, "stage 0"), (228, "stage 1")):
        p.text(left - 74, y + 24, name, 13, anchor="end", weight="bold")
        p.rect(left - 62, y, tiles * wide + head + 40, 40, INK.cell, None, 4)
    stage_y = (168, 228)
    # Columns: before the loop, then one a tile.
    start = left - 58
    edge = [start + head + n * wide for n in range(tiles + 1)]
    for n in range(tiles):
        begin = start + 4 if n == 0 else edge[n - 1] + 22
        p.rect(begin, stage_y[n % stages] + 4, edge[n] - begin - 8, 32, *BLUE, 4)
        p.text((begin + edge[n] - 8) / 2, stage_y[n % stages] + 25, f"copy {n}" if n == 0 else f"copy tile {n}", 12)
        p.rect(edge[n] + 22, 102, wide - 26, 32, *GREEN, 4)
        p.text(edge[n] + 22 + (wide - 26) / 2, 123, f"S, softmax, O of tile {n}", 12)
        p.rect(edge[n] + 22, stage_y[n % stages] + 4, wide - 26, 32, *GREEN, 4)
        p.text(edge[n] + 22 + (wide - 26) / 2, stage_y[n % stages] + 25, f"read tile {n}", 12)
        p.line(edge[n] + 4, 76, edge[n] + 4, 282, INK.orange, 2)
        p.text(edge[n] + 4, 298, "wait", 11.5, INK.orange, weight="bold")
        p.text(edge[n] + 4, 313, "barrier", 11.5, INK.orange, weight="bold")
        p.text(edge[n] + 4, 70, f"n = {n}", 11.5, INK.muted)
    p.note(346, "Each wait: this thread's copies are there. The barrier: everyone's are, and nobody reads the stage that "
           "is filled next.")
    return p


# --- 08 ----------------------------------------------------------------------------------------------------------


def swizzle():
    """Where the chunks of eight rows lie, and which of them one matrix of ldmatrix reads."""
    place = layouts.swizzle
    p = Picture(880, 356, "Kernel 08: chunks of 16 bytes in the banks, without and with swizzle")
    wanted, cell = 2, 46
    for x, title, where in ((56, "Row by row", lambda row, chunk: chunk), (490, "XOR with the row's number", place)):
        p.text(x, 30, title, 15, anchor="start", weight="bold")
        p.text(x, 50, f"eight lanes of ldmatrix read chunk {wanted} of rows 0 to 7", 12, INK.muted, "start")
        for group in range(8):
            p.text(x + group * cell + 21, 72, f"{4 * group}-{4 * group + 3}", 10, INK.muted)
        for row in range(8):
            for chunk in range(8):
                at, hit = where(row, chunk), chunk == wanted
                p.rect(x + at * cell, 80 + row * 25, cell - 3, 22, INK.orange if hit else INK.cell, None, 2)
                p.text(x + at * cell + 21.5, 80 + row * 25 + 15.5, str(chunk), 11,
                       INK.background if hit else INK.muted, weight="bold" if hit else None)
            p.text(x - 8, 80 + row * 25 + 15.5, f"row {row}", 10.5, INK.muted, "end")
        met = [where(row, wanted) for row in range(8)]
        worst = max(met.count(group) for group in range(8))
        p.text(x + 4 * cell, 304, f"{worst} wavefronts: all in the same four banks" if worst > 1
               else "1 wavefront: every bank once", 13.5, INK.orange, weight="bold")
    p.note(338, "Top line: banks. A row has 128 bytes or a multiple of that, so that each row begins in bank 0 again.", 12)
    return p


# --- 09 ----------------------------------------------------------------------------------------------------------


def steps():
    """When fragments are read and multiplied, for the chapter's two numbers: reading ahead, and a second warp."""
    read, multiply = 30.0, 2 * 807 / 128  # cycles: one ldmatrix; the two mma that its fragments are for
    p = Picture(880, 464, "Kernel 09: reading fragments ahead")
    left, shown, scale = 132, 212, 3.42
    p.heading("A read takes 30 cycles, the two mma of a step 12.6", "numbers: steps; to scale")

    def bar(y, height, begin, end, text, fill, stroke):
        end, cut = min(end, shown), end > shown
        if begin >= shown:
            return
        p.rect(left + begin * scale, y, (end - begin) * scale - (0 if cut else 1.5), height, fill, stroke, 2, 1)
        if (end - begin) * scale > 12:
            p.text(left + (begin + end) / 2 * scale, y + height / 2 + 4, text, 11)

    y = 72
    for title, warps, ahead in (("one warp, each fragment read when it is needed", 1, 0), ("one warp, one step ahead", 1, 1),
                                ("one warp, three steps ahead", 1, 3), ("two warps, each one step ahead", 2, 1)):
        reads, products, free = [[] for _ in range(warps)], [[] for _ in range(warps)], 0.0
        for step in range(24):
            for mine, done in zip(reads, products):
                if ahead == 0:  # when the step before is through
                    mine.append(free)
                elif step == 0:
                    mine.extend([0.0] * ahead)
                free = max(free, mine[step] + read)  # the Tensor Core; it takes the warps in turn
                if ahead:
                    mine.append(free)
                done.append(free)
                free += multiply
        busy = warps * multiply / ((products[0][-1] - products[0][-9]) / 8)
        lanes = warps * max(ahead, 1)  # reads that are under way at the same time
        height = 14
        p.text(24, y + 1, title, 13, anchor="start", weight="bold")
        p.text(left + shown * scale, y + 1, f"Tensor Core busy: {100 * busy:.0f} %", 13, INK.blue, "end", "bold")
        y += 12
        p.text(left - 12, y + lanes * (height + 2) / 2 + 4, "reads", 12, INK.muted, "end")
        for warp, mine in enumerate(reads):
            for step, begin in enumerate(mine):
                lane = warp if warps > 1 else step % lanes
                bar(y + lane * (height + 2), height, begin, begin + read, f"{step}", *(ORANGE if warp == 0 else GREEN))
        y += lanes * (height + 2) + 2
        p.text(left - 12, y + 14, "Tensor Core", 12, INK.muted, "end")
        p.rect(left, y, shown * scale, 20, INK.cell)
        for warp, done in enumerate(products):
            for step, begin in enumerate(done):
                bar(y, 20, begin, begin + multiply, f"{step}", *(BLUE if warp == 0 else GREEN))
        y += 52
    p.note(452, "Blue and orange: one warp. Green: the scheduler's second one. A scheduler and a Tensor Core belong "
           "together, four on an SM.", 12)
    return p


def step_bits():
    """The bits of a chunk's place in a tile of 128 columns, and what a step does to them."""
    swizzle_place = layouts.swizzle

    def address(row, chunk):  # of 256 bytes a row
        return row * 256 + swizzle_place(row, chunk) * 16

    p = Picture(880, 470, "Kernel 09: the address of a chunk, bit by bit")
    p.heading("Where a chunk of 16 bytes lies in a tile of 64 rows and 128 columns",
              "r: row, c: chunk (8 columns); small: bits of a byte's place")
    left, wide, top = 196, 46, 84
    for bit in range(14):
        # What flips this bit: bits of the row, bits of the chunk. An XOR of bits: one at a time tells all.
        made = [f"r{i}" for i in range(6) if (address(1 << i, 0) ^ address(0, 0)) >> bit & 1]
        made += [f"c{i}" for i in range(4) if (address(0, 1 << i) ^ address(0, 0)) >> bit & 1]
        x = left + (13 - bit) * wide
        # A step goes on by 16 rows (bits 4 and 5 of the row) or by two chunks (bits 1 to 3 of the chunk).
        by_row, by_chunk = bool({"r4", "r5"} & set(made)), bool({"c1", "c2", "c3"} & set(made))
        xored = by_chunk and len(made) > 1
        fill, stroke = (ORANGE if xored else BLUE if by_row or by_chunk else (INK.cell, None))
        p.rect(x, top, wide - 3, 44, fill, stroke, 3)
        p.text(x + (wide - 3) / 2, top - 8, str(bit), 10.5, INK.muted)
        for i, name in enumerate(made):
            p.text(x + (wide - 3) / 2, top + (27 if len(made) == 1 else 18 + 18 * i), ("^ " if i else "") + name, 12.5, mono=True)
    p.text(left - 14, top + 27, "made of", 12.5, INK.muted, "end")
    y = top + 66
    p.text(left - 14, y + 4, "a step", 12.5, INK.muted, "end")
    for first, last, text, color in ((13, 12, "adds", INK.blue), (11, 8, "the lane's own", INK.muted),
                                     (7, 7, "adds", INK.blue), (6, 5, "XOR", INK.orange),
                                     (4, 0, "the lane's own", INK.muted)):
        begin, end = left + (13 - first) * wide, left + (14 - last) * wide - 3
        p.line(begin, y - 12, end, y - 12, color, 2)
        p.text((begin + end) / 2, y + 5, text, 12, color, weight="bold" if color != INK.muted else None)

    row, first, top = 5, 1, 232
    own = swizzle_place(row, first)
    p.text(24, top - 26, f"A lane with r mod 8 = {row} whose first chunk is {first}", 16, anchor="start", weight="bold")
    columns = ((90, "step"), (220, "chunk"), (370, "its place: chunk ^ r"), (560, "first place ^ k"), (752, "first place + k"))
    for x, text in columns:
        p.text(x, top, text, 12.5, INK.muted)
    for i, k in enumerate((0, 2, 4, 6)):
        chunk, y = first + k, top + 14 + i * 44
        place, sum_of = swizzle_place(row, chunk), own + k
        if place != own ^ k:
            raise ValueError("a step is no longer an XOR")
        p.rect(24, y, 832, 36, INK.cell, None, 4)
        p.text(90, y + 23, f"k = {k}", 13)
        p.text(220, y + 23, f"{first} + {k} = {chunk}", 13)
        p.text(370, y + 23, f"{chunk:03b} ^ {row:03b} = {place:03b}", 13.5, INK.text, mono=True)
        p.text(560, y + 23, f"{own:03b} ^ {k:03b} = {own ^ k:03b}", 13.5, INK.orange, mono=True, weight="bold")
        wrong = sum_of != place
        p.text(752, y + 23, f"{own:03b} + {k:03b} = {sum_of:03b}" + (" no" if wrong else ""), 13.5, INK.muted, mono=True)
    p.note(446, "Addition is the same only as long as nothing is carried. With a carry the place is another one, here "
           "even outside the eight.", 12)
    return p


def order():
    """The main loops of 08 and 09 in the order of issue, from the listings of scripts/fa inspect."""
    p = Picture(880, 424, "Kernels 08 and 09: the main loop, instruction by instruction")
    p.text(24, 30, "One tile of 64 keys, one warp: instructions from left to right in the order in which they are issued", 15,
           anchor="start", weight="bold")
    left, wide = 118, 742
    y = 62
    for kernel in ("08", "09"):
        names = read_json(ROOT / "bench" / "main_loops.json")["kernels"][kernel].split()
        at = {name: [i for i, other in enumerate(names) if other == name] for name in set(names)}
        scale = wide / len(names)
        products = at["HMMA"]
        gap, before = max((b - a, a) for a, b in zip(products, products[1:]))
        ahead = sum(i < products[0] for i in at["LDSM"])
        p.text(24, y, f"Kernel {kernel}: {len(names)} instructions", 14, anchor="start", weight="bold")
        y += 12
        for name, what, color in (("LDGSTS", "copies", INK.green), ("LDSM", "ldmatrix", INK.orange),
                                  ("HMMA", "mma", INK.blue), ("MUFU", "2^x", INK.text)):
            p.text(left - 12, y + 16, what, 12.5, color, "end")
            p.rect(left, y, wide, 22, INK.cell)
            runs = []
            for i in at[name]:
                if runs and runs[-1][1] == i:
                    runs[-1][1] = i + 1
                else:
                    runs.append([i, i + 1])
            for begin, end in runs:
                p.rect(left + begin * scale, y + 2, (end - begin) * scale, 18, color)
            y += 26
        p.line(left + at["BAR"][0] * scale, y - 104, left + at["BAR"][0] * scale, y + 2, INK.muted, 1.5)
        p.text(left + at["BAR"][0] * scale - 4, y + 15, "barrier", 12, INK.muted, "start")
        p.line(left + products[0] * scale, y - 104, left + products[0] * scale, y + 2, INK.orange, 1, "3 3")
        p.text(left + products[0] * scale + 8, y + 15, f"{ahead} ldmatrix before the first mma", 12, INK.orange)
        middle = left + (before + 1 + gap / 2) * scale
        for x in (before + 1, before + gap):
            p.line(left + x * scale, y - 104, left + x * scale, y + 2, INK.blue, 1, "3 3")
        p.text(middle + 60, y + 15, f"{gap - 1} instructions without an mma", 12, INK.blue)
        y += 52
    p.note(406, "Not drawn: arithmetic on scores, sums and addresses. What is issued early is not yet done: the lines say "
           "in which order, not how long.", 12)
    return p


# --- 10 ----------------------------------------------------------------------------------------------------------


def turn():
    """A turn of the main loop of 09 and of 10, one warp: what its Tensor Core products wait for."""
    p = Picture(880, 446, "Kernel 10: a turn of the main loop begins with the softmax")
    left, right = 132, 864

    def track(y, name):
        p.text(left - 12, y + 19, name, 12.5, anchor="end")
        p.rect(left, y, right - left, 30, INK.cell, None, 4)

    def block(x, y, width, text, fill, stroke, size=12):
        p.rect(x, y + 2, width - 3, 26, fill, stroke, 4)
        p.text(x + (width - 3) / 2, y + 19, text, size)

    def barrier(x, top, bottom):
        p.line(x, top, x, bottom, INK.orange, 2)

    products, waited, first = 168, 236, 84  # widths: Q K or P V, 09's softmax, 10's part of it before P V
    groups = 4  # of 16 keys in a tile of 64

    p.text(24, 30, "Kernel 09: products, softmax, products", 16, anchor="start", weight="bold")
    p.text(24, 49, "one warp; time runs to the right, lengths are not to scale", 12.5, INK.muted, "start")
    track(70, "Tensor Cores")
    track(108, "softmax")
    x = left + 20
    block(x, 70, products, "S = Q Kᵀ, tile n", *BLUE)
    x += products
    block(x, 108, waited, "maximum, exponentials, rescale O", *ORANGE)
    p.text(x + waited / 2, 89, "nothing to multiply", 11.5, INK.muted, italic=True)
    x += waited
    block(x, 70, products, "O += P V, tile n", *BLUE)
    x += products + 10
    block(x + 10, 70, right - x - 12, "Q Kᵀ, n + 1", *BLUE)
    for at in (left + 10, x):
        barrier(at, 62, 146)
        p.text(at, 160, "wait, barrier", 11, INK.orange, weight="bold")

    p.text(24, 204, "Kernel 10: softmax first, and most of it between the products", 16, anchor="start", weight="bold")
    track(224, "Tensor Cores")
    track(262, "softmax")
    track(300, "V's tiles")
    track(338, "K's tiles")
    x = start = left + 20
    block(x, 262, first, "max, vote", *ORANGE)
    each = (products + 90) / groups
    x += first
    block(x, 262, each - 12, "2^x: 0", *ORANGE)
    x += each - 12
    for group in range(groups):
        block(x, 224, each, f"P V: {group}", *BLUE)
        if group + 1 < groups:
            block(x, 262, each, f"2^x: {group + 1}", *ORANGE)
        x += each
    block(x, 224, products, "S = Q Kᵀ, tile n + 1", *BLUE)
    x += products + 10
    block(x + 10, 262, right - x - 12, "max", *ORANGE)
    end = x - 13
    block(start, 300, end - start, "V of tile n + 1 is copied (needed one turn later)", *GREEN)
    block(start, 338, end - start, "K of tile n + 2 is copied (needed at the end of the next turn)", *GREEN)
    for at in (left + 10, x):
        barrier(at, 216, 374)
        p.text(at, 388, "wait, barrier", 11, INK.orange, weight="bold")
    p.note(416, f"2^x: g is P of the keys 16 g to 16 g + 15, one of {groups} groups of a tile; P V: g multiplies it.")
    p.note(434, "From its first part of P V to the end of the turn the warp always has products to issue.")
    return p


def lazy():
    """A row's largest score tile by tile, and the reference that is subtracted, by the kernel's rule."""
    growth = 8.0
    tiles = [2.6, 3.4, 2.1, 5.2, 4.4, 6.9, 9.1, 7.0, 13.8, 12.0, 15.4, 14.1, 16.9, 16.0, 20.6, 25.3, 22.8, 24.0, 26.2, 25.1]
    p = Picture(880, 404, "Kernel 10: the reference lags behind the running maximum by at most 8")
    running, reference, at = [], [], (-math.inf, -math.inf)
    for score in tiles:
        largest, held = max(at[0], score), at[1]
        at = (largest, largest if score > held + growth else held)
        running.append(at[0])
        reference.append(at[1])
    always = sum(now > before for now, before in zip(running, [-math.inf, *running]))
    lazily = sum(now > before for now, before in zip(reference, [-math.inf, *reference]))
    left, top, wide, low, high = 76, 72, 38, 0.0, 28.0
    tall = 244

    def y(value):
        return top + tall * (1 - (value - low) / (high - low))

    p.heading(f"The maximum grows in {always} of {len(tiles)} tiles, O is rescaled in {lazily}",
              "one row; scores in units of log2")
    for value in range(0, 29, 4):
        p.line(left, y(value), left + wide * len(tiles), y(value), INK.cell, 1.2)
        p.text(left - 10, y(value) + 4, str(value), 11.5, INK.muted, "end")
    for i, (score, most, held) in enumerate(zip(tiles, running, reference)):
        x = left + i * wide
        p.rect(x, y(most), wide, y(held) - y(most), INK.orange_soft)
        for values, color in ((running, INK.orange), (reference, INK.blue)):
            p.line(x, y(values[i]), x + wide, y(values[i]), color, 2.6)
            if i and values[i] > values[i - 1]:
                p.line(x, y(values[i - 1]), x, y(values[i]), color, 2.6)
        p.rect(x + wide / 2 - 3, y(score) - 3, 6, 6, INK.text, None, 3)
        if not i or held > reference[i - 1]:
            p.arrow(x + wide / 2, top + tall + 34, x + wide / 2, top + tall + 8, INK.blue)
            p.text(x + wide / 2, top + tall + 48, "rescale", 11.5, INK.blue, weight="bold")
    p.text(left + 5.6 * wide, y(10.8), "running maximum", 12.5, INK.orange, "end", "bold")
    p.text(left + 14.2 * wide, y(11.6), "reference that is subtracted", 12.5, INK.blue, "start", "bold")
    p.text(left + 16.6 * wide, y(20.4), "a tile's largest score", 12.5, INK.text, "start")
    p.note(392, f"The gap is at most {growth:.0f}: P = 2^(score - reference) is at most 2^{growth:.0f} = {2**growth:.0f}.")
    return p


# --- 11 ----------------------------------------------------------------------------------------------------------


def descriptor():
    """The 64 bits of a matrix descriptor, of a tile of K."""
    p = Picture(880, 400, "Kernel 11: the fields of a matrix descriptor")
    p.heading("A matrix descriptor: where wgmma finds an operand in shared memory",
              "example: a tile of K, 128-byte swizzle, at byte 0x8400 of shared memory; the first 16 columns")
    start, leading, stride, mode = 0x8400, 16, 1024, 1
    fields = (("mode", mode << 62, 63, 62, *GREEN, "1: 128 bytes"),
              ("base offset", layouts.base_offset_field(0), 51, 49, *GREY, "0: atoms are aligned"),
              ("SBO", layouts.stride_field(stride), 45, 32, *ORANGE, f"{stride} bytes / 16"),
              ("LBO", layouts.leading_field(leading), 29, 16, *GREY, "any: not used here"),
              ("start address", layouts.start_field(start), 13, 0, *BLUE,
               f"0x{start:x} / 16"))
    value = sum(field[1] for field in fields)
    left, top, wide = 24, 92, 13
    p.rect(left, top, 64 * wide, 46, "none", INK.line)
    for name, bits, high, low, fill, stroke, says in fields:
        if bits >> (high + 1) or bits % (1 << low):
            raise ValueError(f"{name} is not where it is drawn")
        x, width = left + (63 - high) * wide, (high - low + 1) * wide
        p.rect(x, top, width, 46, fill, stroke)
        digits = high - low + 1
        p.text(x + width / 2, top + 29, f"{bits >> low:0{digits}b}", 12, mono=True)
        middle = x + width / 2
        p.text(middle if high < 63 else x, top + 66, name, 13, anchor="middle" if high < 63 else "start", weight="bold")
        p.text(middle if high < 63 else x, top + 84, says, 11.5, INK.muted, "middle" if high < 63 else "start")
        p.text(x + 4, top - 6, str(high), 10, INK.muted)
        p.text(x + width - 6, top - 6, str(low), 10, INK.muted)
    p.text(24, top + 116, f"= 0x{value:016x}", 14, anchor="start", mono=True, weight="bold")
    p.text(24, 250, "The next 16 columns: 32 bytes further, so the start grows by 2", 15, anchor="start", weight="bold")
    for step in range(4):
        x, at = 24 + step * 212, start + layouts.k_major_step(128, step)
        p.rect(x, 268, 196, 62, INK.cell, None, 5)
        p.text(x + 98, 290, f"columns {16 * step} to {16 * step + 15}", 13, weight="bold")
        p.text(x + 98, 312, f"start 0x{at:x} / 16 = 0x{layouts.start_field(at):x}", 12.5, INK.muted)
        if step:
            p.text(x - 8, 303, "+2", 12.5, INK.blue, weight="bold")
    p.note(362, "Nothing else changes within a slab of 64 columns. The XOR of the swizzle works on the whole address, so")
    p.note(380, "that a start inside of the atom's first row is as good as its beginning.")
    return p


def tile_panel(p, x, y, cell, fill_of, text_of, frame=None):
    """A 64 x 64 tile as 8 x 8 core matrices."""
    for row in range(8):
        for column in range(8):
            fill = fill_of(row, column)
            p.rect(x + column * cell, y + row * cell, cell - 2, cell - 2, fill, None, 2)
            p.text(x + column * cell + cell / 2 - 1, y + row * cell + cell / 2 + 3.5, text_of(row, column), 11)
    if frame:
        first_row, first_column, rows, columns = frame
        p.rect(x + first_column * cell - 2, y + first_row * cell - 2, columns * cell + 2, rows * cell + 2, "none", INK.text, 3, 2)


def core_matrices():
    """A 64 x 64 tile without swizzle: core matrices in the order in which they lie in memory."""
    p = Picture(880, 496, "Kernel 11: core matrices of a tile without swizzle")
    p.heading("Without swizzle: core matrices of 8 rows of 16 bytes, wherever LBO and SBO say",
              "64 x 64 elements; the number: where the core matrix lies in memory, in units of its 128 bytes; framed: what "
              "the first wgmma reads")
    cell, top = 38, 118
    for x, name, what, down, right, address, frame in (
            (96, "K-major", "a core matrix: 8 rows of 8 k", "row", "k",
             lambda row, column: layouts.k_major_offset(16, 128, 1024, 8 * row, 8 * column), (0, 0, 8, 2)),
            (528, "MN-major", "a core matrix: 8 k of 8 rows", "k", "row",
             lambda row, column: layouts.mn_major_offset(16, 128, 1024, 8 * column, 8 * row), (0, 0, 2, 8))):
        p.text(x + 4 * cell, 84, name, 15, weight="bold")
        p.text(x + 4 * cell, 104, what, 12, INK.muted)

        def lines(row, column, address=address):
            at = address(row, column)
            assert at % 128 == 0
            return at // 128

        assert sorted(lines(r, c) for r in range(8) for c in range(8)) == list(range(64))
        first = lambda row, column, frame=frame: row < frame[2] and column < frame[3]  # noqa: E731
        tile_panel(p, x, top, cell, lambda r, c, first=first: INK.orange_soft if first(r, c) else INK.cell,
                   lambda r, c, lines=lines: str(lines(r, c)), frame)
        p.text(x - 12, top + 4 * cell, down, 12, INK.muted, "end", italic=True)
        p.text(x + 4 * cell, top + 8 * cell + 18, right + " \u2192", 12, INK.muted, italic=True)
    p.text(96 + 4 * cell, 462, "k + 8: LBO = 128 bytes.  Row + 8: SBO = 1024 bytes.", 13, INK.orange, weight="bold")
    p.text(528 + 4 * cell, 462, "k + 8: LBO = 1024 bytes.  Row + 8: SBO = 128 bytes.", 13, INK.orange, weight="bold")
    p.note(484, "row: of A; of B read column. Other strides are as good: these two make the tile one piece of memory.", 12)
    return p


def atoms():
    """The same tile with 128-byte swizzle, K-major and MN-major: one atom, and what one wgmma reads of the tile."""
    p = Picture(880, 560, "Kernel 11: a tile with 128-byte swizzle, K-major and MN-major")
    p.heading("With 128-byte swizzle: the same bytes, read as Q and K or as V",
              "the first 16 lines of 128 bytes of a tile of 64 rows and 64 columns; the number: which chunk of 8 elements of the "
              "row lies there")
    cell, high, top, wanted = 40, 20, 116, 1  # wanted: the step of 16 that is marked
    for x, name, what, hit in (
            (84, "K-major: columns are k (Q, K)", "marked: columns 16 to 31 of the rows, the second step",
             lambda row, chunk: chunk // 2 == wanted),
            (512, "MN-major: rows are k (V)", "marked: rows 0 to 15 with all their columns, the first step",
             lambda row, chunk: True)):
        p.text(x + 4 * cell, 84, name, 15, weight="bold")
        p.text(x + 4 * cell, 104, what, 12, INK.muted)
        for row in range(16):
            y = top + row * high + (6 if row >= 8 else 0)
            met = set()
            for chunk in range(8):
                at = layouts.slab_offset(64, row, 8 * chunk)
                assert at // 128 == row
                place = at % 128 // 16
                met.add(place)
                p.rect(x + place * cell, y, cell - 2, high - 2, INK.orange_soft if hit(row, chunk) else INK.cell, None, 2)
                p.text(x + place * cell + cell / 2 - 1, y + 13, str(chunk), 10.5,
                       INK.orange if hit(row, chunk) else INK.muted, weight="bold" if hit(row, chunk) else None)
            assert len(met) == 8
            p.text(x - 8, y + 13, f"row {row}", 10.5, INK.muted, "end")
        for atom in range(2):
            y = top + atom * (8 * high + 6)
            p.rect(x - 3, y - 3, 8 * cell + 4, 8 * high + 4, "none", INK.line, 3, 1.4)
            p.text(x + 8 * cell + 8, y + 4 * high + 4, f"atom {atom}", 11, INK.muted, "start")
    y = top + 16 * high + 34
    step, row8 = layouts.k_major_step(64, 1), layouts.slab_offset(64, 8, 0)
    lines = (("rows + 8: the next atom", f"SBO = {row8} bytes"),
             ("the next 16 k: further in the same rows", f"start + {step} bytes"),
             ("64 k on: a slab", "start + 128 bytes x rows of the tile"))
    for i, (name, what) in enumerate(lines):
        p.text(84, y + 22 * i, name, 12, INK.muted, "start")
        p.text(84 + 8 * cell, y + 22 * i, what, 12, INK.orange, "end", weight="bold")
    lines = (("k + 8: the next atom", f"SBO = {row8} bytes"),
             ("the next 16 k: two atoms further", f"start + {layouts.mn_major_step(1)} bytes"),
             ("64 columns on: a slab", "LBO = 128 bytes x rows of the tile"))
    for i, (name, what) in enumerate(lines):
        p.text(512, y + 22 * i, name, 12, INK.muted, "start")
        p.text(512 + 8 * cell, y + 22 * i, what, 12, INK.orange, "end", weight="bold")
    p.note(546,
           "An atom is 8 rows of 128 bytes at a multiple of 1024; chunk c of row r lies in place c ^ (r mod 8), as in kernel "
           "08.")
    return p


def accumulators():
    """Which thread of a warpgroup holds which element of D."""
    p = Picture(880, 500, "Kernel 11: the accumulators of wgmma.m64nN")
    cell, top, thread = 22, 122, 37
    p.heading("D of wgmma, 64 x N: 16 rows a warp, and inside of them the layout of mma.sync",
              f"each square is an element, the number its lane, the colour its register modulo 4; framed: thread {thread} "
              f"(warp 1, lane {thread % 32})")
    # Left: the 64 rows, whose they are.
    bands = (INK.blue_soft, INK.orange_soft, INK.green_soft, INK.cell)
    x = 92
    owners = {}
    for t in range(128):
        for i in range(8):
            owners[layouts.wgmma_d(t, i)] = t, i
    assert len(owners) == 64 * 16
    for warp in range(4):
        rows = sorted({row for (row, _), (t, _) in owners.items() if t // 32 == warp})
        assert rows == list(range(16 * warp, 16 * warp + 16))
        y = top + warp * 80
        p.rect(x, y, 190, 77, bands[warp], INK.line, 4)
        p.text(x + 95, y + 44, f"warp {warp} of the warpgroup", 13, weight="bold")
        p.text(x - 8, y + 14, str(rows[0]), 11, INK.muted, "end")
        p.text(x - 8, y + 74, str(rows[-1]), 11, INK.muted, "end")
    p.text(x + 95, 84, "64 x N", 14, weight="bold")
    p.text(x + 95, 106, "N columns \u2192", 11.5, INK.muted, italic=True)
    p.text(x - 34, top + 160, "row", 11.5, INK.muted, "end", italic=True)
    # Right: rows 16 to 31, columns 0 to 15.
    left = 424
    p.text(left + 8 * cell, 84, "warp 1, its first 16 columns", 14, weight="bold")
    p.text(left + 8 * cell, 104, "d[0..3] are the first 16 x 8 tile, d[4..7] the next, and so on", 12, INK.muted)
    for (row, column), (t, i) in owners.items():
        if t // 32 != thread // 32:
            continue
        y, at = top + (row - 16) * (cell - 2), left + column * cell + (8 if column >= 8 else 0)
        p.rect(at, y, cell - 1.5, cell - 3.5, REGISTERS[i % 4][0])
        p.text(at + cell / 2 - 0.8, y + 13, str(t % 32), 10)
    for (row, column), (t, i) in owners.items():
        if t == thread:
            y, at = top + (row - 16) * (cell - 2), left + column * cell + (8 if column >= 8 else 0)
            p.rect(at - 0.6, y - 0.6, cell - 0.4, cell - 2.4, "none", INK.text, 0, 2)
    for row in (16, 24, 31):
        p.text(left - 8, top + (row - 16) * (cell - 2) + 13, str(row), 11, INK.muted, "end")
    for i in range(4):
        at = left + 20 + i * 84
        p.rect(at, 452, 14, 14, *REGISTERS[i])
        p.text(at + 20, 463.5, f"d[4n + {i}]", 11.5, anchor="start")
    for i in range(8):
        row, column = layouts.wgmma_d(thread, i)
        y = top + 52 + 22 * i
        p.text(left + 374, y, f"d[{i}]", 10.5, anchor="start", mono=True)
        p.text(left + 408, y, f"{row}, {column}", 10.5, INK.muted, "start", mono=True)
    p.text(left + 374, top + 26, "row, column", 11, INK.muted, "start", italic=True)
    p.note(490,
           "A in registers, 64 x 16, has the layout of mma's A for 16 rows a warp: as in kernel 06, two tiles of D are one of "
           "A.", 12)
    return p


DRAWN = {**FIRST, "01_passes": passes, "01_sectors": sectors, "02_online": online, "02_banks": banks,
         "03_register_tile": register_tile,
         "04_trips": trips, "05_fragments": fragments, "05_ldmatrix": ldmatrix_tiles, "05_split": split_keys,
         "05_banks": matrix_banks,
         "06_c_is_a": c_is_a, "07_ring": ring, "08_swizzle": swizzle,
         "09_steps": steps, "09_address": step_bits, "09_order": order, "10_turn": turn, "10_lazy": lazy,
         "11_descriptor": descriptor, "11_core_matrices": core_matrices, "11_atoms": atoms,
         "11_accumulators": accumulators, **HOPPER, **INTERACTIVE, **APPENDIX, **GEMM}


def stale_pictures():
    """Names of files that differ from what this script draws, or should not be there. The interactive pages' pictures are
    left as they are where the data are not built."""
    drawn = {name: draw for name, draw in DRAWN.items() if name not in INTERACTIVE or DATA.is_dir()}
    wanted = {f"{name}.svg": draw().svg() for name, draw in drawn.items()}
    there = {path.name: path.read_text(encoding="utf-8") for path in PICTURES.glob("*.svg")}
    left = {f"{name}.svg" for name in DRAWN.keys() - drawn.keys()}
    return wanted, sorted(name for name in wanted.keys() | there.keys() - left if wanted.get(name) != there.get(name))


def main():
    parser = Parser("pictures", __doc__, EXAMPLE)
    parser.add_argument("--check", action="store_true", help="change nothing, name what is out of date")
    args = parser.parse_args()
    wanted, stale = stale_pictures()
    for name in stale:
        if args.check:
            print(f"{relative(PICTURES / name)} is out of date; scripts/fa pictures draws it", file=sys.stderr)
        elif name in wanted:
            PICTURES.mkdir(parents=True, exist_ok=True)
            (PICTURES / name).write_text(wanted[name], encoding="utf-8")
            print(f"drew {relative(PICTURES / name)}")
        else:
            (PICTURES / name).unlink()
            print(f"removed {relative(PICTURES / name)}")
    return 1 if stale and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
