"""Draws the chapters' pictures: docs/pictures/NAME.svg. Only Python is needed, and the same script gives the
same bytes."""

import math

from fa_tools.documents.figures import appendix_pictures, beyond_pictures, first_pictures, hopper_pictures  # noqa: F401 - they fill DRAWN
from fa_tools.documents.figures.appendix_pictures import DATA
from fa_tools.documents.figures.drawing import (BLUE, DRAWN, GREEN, GREY, INK, ORANGE, REGISTERS, Band, figure, held, keep, place_of,
                                            places, runs)
from fa_tools.numbers import percent
from fa_tools.sources import constant, constants
from fa_tools.tools import ROOT, Parser, read_json

PICTURES = ROOT / "docs" / "pictures"
EXAMPLE = """examples:
  scripts/fa pictures            write all of them
  scripts/fa pictures --check    only say which are out of date; exit code 1 if any is"""

@figure("01_passes", 330, "Kernel 01: three passes through global memory",
        bands=[Band(0, ((0, 250), (200, 320, "arrow"), (255, 605), (540, 670, "arrow"), (630, 880)))])
def passes(p):
    p.rect(20, 40, 840, 118, INK.cell, None, 8)
    p.text(440, 26, "Seven trips over S", 16, weight="bold")
    p.text(34, 61, "global memory, one head: 4096 tokens, head_dim 128, 16-bit Q, K, V, O and fp32 S", 12, INK.muted, "start")
    p.heads = range(1, len(p.shapes))
    for x, name in ((40, "Q"), (120, "K"), (668, "V"), (762, "O")):
        p.box(x, 86, 66, 54, [name, f"{4096 * 128 * 2 / 2**20:.0f} MiB"], *BLUE)
    p.box(270, 76, 330, 70, ["S, overwritten by P", f"4096 x 4096 x 4 bytes = {4096 * 4096 * 4 / 2**20:.0f} MiB"], *ORANGE, 14)
    y = 236
    for x, name, what in ((40, "scores_kernel", "S = scale * Q Kᵀ"), (335, "softmax_kernel", "P = softmax(S) in place"),
                          (640, "output_kernel", "O = P V")):
        p.box(x, y, 200, 62, [name, what], *GREEN)
    p.arrows(INK.blue, 1.8, (73, 140, 100, y), (153, 140, 140, y), (706, 140, 726, y), (786, y, 795, 142))
    p.arrows(INK.orange, 2.6, (215, y, 300, 148), (405, 146, 405, y), (465, y, 465, 148), (570, 146, 664, y))
    p.texts(12, INK.muted, "start", (283, 198, "write"), (474, 198, "2 writes"))
    p.texts(12, INK.muted, "end", (397, 198, "3 reads"), (606, 198, "read"))
    p.note(320, "Each thread computes one element of S or O; in the softmax, one row.", size=12)


@figure("01_sectors", 372, "Kernel 01: 32-byte sectors that one load of a warp touches",
        parts=((0, 470), (470, 880)))
def sectors(p):
    cell = 38
    for x, title, what, rows, moved, pair, lanes in (
            (62, "Pass 1, load of gK[d]: 16 lanes, 16 keys", "each lane wants 2 bytes of its own row, which is 8 sectors "
             "long", 16, "16 sectors = 512 bytes moved, 32 bytes wanted",
             "gQ[d]: two rows, 2 sectors. 16 + 2 = 18 for the pair of loads",
             ((3, "lane 3: sector 24"), (4, "lane 4: sector 32"))),
            (522, "Pass 3, load of gV[key]: 16 lanes, 16 columns", "neighbouring lanes read neighbouring elements of one row of V",
             1, "1 sector = 32 bytes moved, 32 bytes wanted",
             "gP[key]: two rows, 2 sectors. 1 + 2 = 3 for the pair of loads",
             ((0, "lanes 3, 4: sector 0"),))):
        p.heading(title, what, x - 42, size=15)
        for row in range(16):
            for sector in range(8):
                touched = sector == 0 and row < rows
                p.rect(x + sector * cell, 70 + row * 14, cell - 2, 11, INK.orange if touched else INK.cell)
        p.lines(x - 6, 79.5, 14, [f"key {row}" for row in range(16)], 10, INK.muted, "end")
        for row, lane in lanes:
            p.text(x + cell + 4, 79.5 + row * 14, lane, 10, anchor="start")
        p.line(x + 4 * cell - 1, 70, x + 4 * cell - 1, 305, INK.muted, 1.2)
        p.texts(10.5, INK.muted, "middle", *((x + (4 * line + 2) * cell, 303, "a line, 128 bytes") for line in range(2)))
        p.text(x + 4 * cell, 323, moved, 13, INK.orange, weight="bold")
        p.text(x + 4 * cell, 342, pair, 12, INK.muted)
    p.note(362, "Each load is one instruction of the warp. The two differ only in what neighbouring lanes read.", size=12)


@figure("02_online", 420, "Kernel 02: the running softmax over three tiles of two keys", "One query row, six keys, one column of V; tiles of two keys",
        "Only row_max, row_sum and acc_o survive a tile; S and P exist for one tile at a time.",
        parts=((0, 295), (292, 320, "arrow"), (319, 571), (568, 596, "arrow"), (595, 880)))
def online(p):
    scores, values = [[1, 3], [2, 5], [4, 0]], [[10, 20], [30, 40], [50, 60]]  # one column of V
    row_max, row_sum, acc_o = -math.inf, 0.0, 0.0
    for j, (tile, v) in enumerate(zip(scores, values)):
        x = 44 + j * 276
        new_max = max(row_max, *tile)
        rescale = math.exp(row_max - new_max)
        weights = [math.exp(s - new_max) for s in tile]
        row_max, row_sum = new_max, row_sum * rescale + sum(weights)
        acc_o = acc_o * rescale + sum(w * value for w, value in zip(weights, v))
        p.box(x + 20, 72, 96, 42, [f"K tile {j}", "shared memory"], *BLUE, 12.5)
        p.box(x + 134, 72, 96, 42, [f"V tile {j}", ",  ".join(map(str, v))], *BLUE, 12.5)
        p.box(x + 20, 146, 96, 44, ["scores", ",  ".join(map(str, tile))], *GREEN, 12.5)
        p.box(x, 222, 136, 44, ["P = e^(score-max)", ",  ".join(f"{w:.3f}" for w in weights)], *GREEN, 12.5)
        p.arrows(INK.blue, 1.8, (x + 68, 114, x + 68, 144), (x + 192, 114, x + 192, 300))
        p.arrows(INK.green, 1.8, (x + 68, 190, x + 68, 220), (x + 68, 266, x + 68, 300))
        p.rect(x, 302, 250, 78, *ORANGE, 5)
        p.lines(x + 8, 322, 22, ["row_max", "row_sum", "acc_o"], 11, mono=True)
        how = f" = old * {rescale:.3f} + new" if j else ""
        p.lines(x + 64, 322, 22, [str(row_max), f"{row_sum:.3f}{how}", f"{acc_o:.1f}{' ' * bool(j)}{how}"], 11, INK.text, mono=True)
        if j:
            p.arrow(x - 26, 341, x - 1, 341, INK.orange, 2.6)
    exact = sum(math.exp(s - 5) for tile in scores for s in tile)
    p.note(405, f"After the last tile: O = acc_o / row_sum = {acc_o:.1f} / {row_sum:.3f} = {acc_o / row_sum:.1f}. Three passes over the row "
           f"also find {exact:.3f}.")


def bank_panel(p, x, pad, words, name, what):
    """The banks that `words` words of each of eight rows of 128 elements meet; how often the one that is met most."""
    stride, cell = (128 + pad) // 2, 11.6
    met = [[(row * stride + word) % 32 for word in range(words)] for row in range(8)]
    p.heading(f"kPad = {pad}: {stride} words of 4 bytes per row", what, x, size=15)
    for row in range(8):
        for bank in range(32):
            p.rect(x + bank * cell, 78 + row * 18, cell - 1.5, 15, INK.orange if bank in met[row] else INK.cell)
    p.lines(x - 6, 89.5, 18, [f"{name} {row}" for row in range(8)], 10.5, INK.muted, "end")
    p.texts(10, INK.muted, "middle", *((x + bank * cell + 5, 72, str(bank)) for bank in (0, 8, 16, 24, 31)))
    return max(sum(bank in banks_of for banks_of in met) for bank in range(32))


@figure("02_banks", 292, "Kernel 02: banks that lanes 0 to 7 meet, without and with padding",
        parts=((0, 450), (450, 880)))
def banks(p):
    for x, pad in ((56, 0), (490, 2)):
        worst = 4 * bank_panel(p, x, pad, 1, "lane", "bank of element d = 0 of each row, 32 banks")  # of 32 lanes
        p.text(x, 242, "and so on to lane 31:", 12, INK.muted, "start")
        what = "all in one bank: 32 wavefronts" if worst == 32 else "every bank once: 1 wavefront"
        p.text(x + 138, 242, what, 13, INK.orange, "start", "bold")
    p.note(276, "A bank delivers one word per wavefront. The padding costs 4 bytes per row and removes 31 of 32 wavefronts.", size=12)


@figure("02_owners", 462, "Kernel 02: which warp and which lane own which part of S and O",
        "Which lane computes what: 8 warps, 4 query rows per warp",
        "one tile of 32 queries and 32 keys, head_dim 128; blue: the rows of warp 2; orange: what its lane 5 computes",
        parts=((0, 390), (390, 510, "arrow"), (510, 880)))
def owners_of_tiles(p):
    warps, rows, warp, lane, height, top = constant("02", "kWarps"), constant("02", "kRows"), 2, 5, 256, 134
    band, columns = height / warps, list(range(lane, 128, 32))
    first, last = rows * warp, rows * warp + rows - 1
    for x, wide, many, name, what, mine, ticks, place, amount in (
            (142, 7.6, constant("02", "kBlockN"), "S = Q Kᵀ: lanes divide the keys", "key j of the tile belongs to lane j",
             [lane], (0, lane, 31), f"key {lane}", f"{rows} scores per tile, one key in all four rows"),
            (520, 2.6, 128, "O += P V: lanes divide the columns", "column c of O belongs to lane c mod 32",
             columns, columns, f"columns {', '.join(map(str, columns))}",
             f"{rows * len(columns)} sums, kept in registers from tile to tile")):
        width = many * wide
        p.caption(x + width / 2, 82, name, what, 14)
        p.texts(10.5, INK.muted, "middle", *((x + (tick + 0.5) * wide, top - 8, str(tick)) for tick in ticks))
        for w in range(warps):
            p.rect(x, top + w * band, width, band - 2, *(BLUE if w == warp else GREY))
        for column in mine:
            p.rect(x + column * wide, top, wide, height - 2, INK.green_soft)
            p.rect(x + column * wide - 0.5, top + warp * band, wide + 1, band - 2, INK.orange)
        p.text(x + width / 2, top + height + 20, f"lane {lane} of warp {warp}: rows {first} to {last}, {place}", 12.5)
        p.text(x + width / 2, top + height + 38, amount, 12.5, INK.orange, weight="bold")
    for w in range(warps):
        p.text(132, top + (w + 0.5) * band + 3, f"warp {w}: rows {w * rows}-{w * rows + rows - 1}", 11,
               INK.blue if w == warp else INK.muted, "end")
    p.arrow(396, top + height / 2, 508, top + height / 2, INK.green, 2.4)
    p.lines(451, top + height / 2 - 44, 16, ("P changes hands", "through sP"), 12.5, INK.text, "middle")
    p.lines(451, top + height / 2 + 24, 15, ("a lane has one key,", "and needs all 32"), 12, INK.muted, "middle")
    p.note(450, "A row of S is spread over the 32 lanes of one warp: its maximum and its sum take five shuffles each, and no barrier.")


@figure("03_register_tile", 518, "Kernel 03: what one thread of 128 computes, and how often it uses a value",
        "Thread (ty, tx) = (2, 5), lane 5 of warp 1: its sums, and how often it uses a value",
        "orange: its sums, which the right half shows moved together; blue bands in the left half: its warp's rows",
        parts=((0, 404), (404, 588), (588, 880)))
def register_tile(p):
    ty, tx, rows_of_threads, threads = 2, 5, 8, 16
    rows, keys = range(ty, 64, rows_of_threads), range(tx, 64, threads)
    columns = [64 * v + 4 * tx + i for v in range(2) for i in range(4)]
    # the tile, as threads share it
    x, y, cell = 60, 136, 5
    p.caption(x + 32 * cell, 84, "S = Q K\u1d40, 64 rows x 64 keys", "the grid of 8 x 16 threads, laid over it 8 x 4 times", 14)
    p.rect(x, y, 64 * cell, 64 * cell, INK.cell)
    for row in rows:  # a warp is two rows of the grid
        p.rect(x, y + row * cell, 64 * cell, 2 * cell, INK.blue_soft)
    for i in range(1, 8):
        p.line(x, y + 8 * i * cell, x + 64 * cell, y + 8 * i * cell, INK.line, 0.8)
    for i in range(1, 4):
        p.line(x + 16 * i * cell, y, x + 16 * i * cell, y + 64 * cell, INK.line, 0.8)
    for row in rows:
        for key in keys:
            p.rect(x + key * cell - 1.5, y + row * cell - 1.5, cell + 3, cell + 3, INK.orange)
        p.text(x - 8, y + row * cell + 7, str(row), 11, INK.muted, "end")
    p.texts(11, INK.muted, "middle", *((x + (key + 0.5) * cell, y - 8, str(key)) for key in keys))
    p.texts(11, INK.muted, "end", (x - 8, y - 8, "key"))
    # the sums of the thread: an outer product
    size, top, marked = 27, 172, (2, 2)
    for x, names, left, above, what, said in ((478, keys, "Q", "K", "QK\u1d40, one d", "rows of Q, keys of K"),
                                              (640, columns, "P", "V", "PV, one key", "rows of P, columns of V")):
        many = len(names)
        p.caption(x + many * size / 2 - size / 2, 84, f"{what}: {len(rows)} x {many}", said, 14)
        p.texts(11, INK.muted, "middle", *((x + (i + 0.5) * size - 1, top - size - 10, str(name)) for i, name in enumerate(names)))
        p.texts(11, INK.muted, "end", *((x - size - 8, top + (i + 0.5) * size + 3, str(row)) for i, row in enumerate(rows)))
        for i in range(many):
            p.block(x + i * size, top - size - 4, size - 2, size - 2, above, (INK.green if i == marked[1] else INK.green_soft, INK.green), 12,
                    INK.background if i == marked[1] else None, radius=3)
        for i in range(len(rows)):
            p.block(x - size - 4, top + i * size, size - 2, size - 2, left, (INK.blue if i == marked[0] else INK.blue_soft, INK.blue), 12,
                    INK.background if i == marked[0] else None, radius=3)
            for j in range(many):
                look = ((INK.orange, INK.orange) if (i, j) == marked else BLUE if i == marked[0] else GREEN if j == marked[1]
                        else (INK.orange_soft, None))
                p.rect(x + j * size, top + i * size, size - 2, size - 2, *look, 3)
        middle, y = x + (many * size - size - 4) / 2, top + len(rows) * size + 24
        p.text(middle, y, f"{len(rows)} + {many} = {len(rows) + many} values loaded", 13)
        p.text(middle, y + 20, f"{len(rows)} · {many} = {len(rows) * many} multiply-adds", 13, INK.orange, weight="bold")
        p.text(middle, y + 44, f"the marked {left}: used {many} times", 12, INK.blue)
        p.text(middle, y + 61, f"the marked {above}: used {len(rows)} times", 12, INK.green)
    p.note(506, "The two marked values meet in the cell of full orange. Every cell is a sum in a register of this thread.", size=12)


@figure("04_trips", 388, "Kernel 04: what crosses between fragments and shared memory for one tile of keys",
        "One warp, 16 rows, one tile of 64 keys", "Where an element is in a fragment is a secret, so what needs to know its row goes through shared memory.",
        bands=[Band(0, ((112, 500), (500, 880)), 112)])
def trips(p):
    for y, height, words in ((70, 74, ["fragments"]), (198, 56, ["shared", "memory"]), (306, 56, ["registers"])):
        p.rect(112, y, 752, height, INK.cell, None, 6)
        p.lines(102, y + height / 2 + 5 - (len(words) - 1) * 7.5, 15, words, 12.5, INK.muted, "end")
    p.box(208, 82, 104, 50, ["S = Q Kᵀ", "Tensor Core"], *GREEN)
    p.box(620, 82, 150, 50, ["O += P V", "Tensor Core"], *GREEN)
    for x, name, look in ((126, "Q", BLUE), (186, "K", BLUE), (268, "S", ORANGE), (432, "P", ORANGE), (560, "V", BLUE),
                          (690, "O", ORANGE)):
        p.box(x, 206, 46, 40, [name], *look)
    p.box(300, 314, 130, 40, ["softmax"], *GREEN)
    p.box(650, 314, 126, 40, ["O * rescale"], *GREEN)
    q, k, s, scores, v, o = 149, 209, 291, 455, 583, 713
    p.arrows(INK.blue, 1.8, (q, 206, 226, 134), (k, 206, 246, 134))
    p.arrows(INK.orange, 2.6, (s, 132, s, 204), (s, 246, 330, 312), (400, 314, scores, 248), (scores + 8, 206, 634, 134))
    p.arrow(v, 206, 664, 134, INK.blue)
    p.arrows(INK.orange, 2.6, (o - 14, 206, o - 14, 134), (o + 14, 132, o + 14, 204), (o - 14, 246, o - 14, 312),
             (o + 14, 314, o + 14, 248))
    p.texts(12, INK.text, "start", (s + 10, 172, "store S"), (o + 26, 172, "load O, store O"), (o + 26, 284, "load, store"),
            (446, 290, "store P"))
    p.text(scores - 8, 172, "load P, 8 times", 12)
    p.texts(11, INK.muted, "start", (318, 112, "which lane?"), (319, 220, "sS[3][20]"))
    p.texts(11, INK.muted, "end", (428, 240, "sP[3][20]"), (294, 338, "row 3, key 20: lane 6"))
    p.text(290, 284, "load S", 12, anchor="end")


def owners(of_lane):
    """{position: (lane, register)}; of_lane: the (register, position) of a lane."""
    pairs = [(position, (lane, register)) for lane in range(32) for register, position in of_lane(lane)]
    assert len(pairs) == len(dict(pairs))
    return dict(pairs)


def register_key(p, y):
    for i in range(4):
        p.key(262 + i * 94, y, f"register {i}", REGISTERS[i])


@figure("05_fragments", 452, "Kernel 05: the fragments of mma.sync.m16n8k16", "mma.sync.m16n8k16: which lane holds which element",
        "each square is an element, the number its lane, the colour its register; framed: lane 5",
        parts=((0, 362), (362, 388), (388, 590), (590, 615), (615, 880)), below=420)
def fragments(p):
    lane, cell, y = 5, 18, 128
    for left, columns, of_lane, name, what, row_name, column_name in (
            (60, 16, lambda l: [(i // 2, place) for i, place in enumerate(held("mma_a", l))],
             "A, 16 x 16", "a[0..3], two 16-bit elements each", "row", "k"),
            (416, 8, lambda l: [(i // 2, place) for i, place in enumerate(held("mma_b", l))],
             "B, 16 x 8", "b[0..1], two 16-bit elements each", "k", "column"),
            (664, 8, lambda l: list(enumerate(held("mma_c", l))), "C and D, 16 x 8", "c[0..3], an fp32 each", "row", "column")):
        owner = owners(of_lane)
        assert len(owner) == 16 * columns
        for (row, column), (other, register) in owner.items():
            p.rect(left + column * cell, y + row * cell, cell - 1.5, cell - 1.5, REGISTERS[register][0])
            p.text(left + column * cell + cell / 2 - 0.8, y + row * cell + 11.8, str(other), 9)
        for _, (row, column) in of_lane(lane):
            p.rect(left + column * cell - 0.6, y + row * cell - 0.6, cell - 0.4, cell - 0.4, "none", INK.text, 0, 2)
        middle = left + columns * cell / 2
        p.caption(middle, 82, name, what, 14)
        p.text(middle, 120, column_name, 11.5, INK.muted, italic=True)
        p.text(left - 8, y + 8 * cell + 4, row_name, 11.5, INK.muted, "end", italic=True)
    p.texts(22, INK.muted, "middle", (374, y + 150, "x"), (600, y + 150, "="))
    register_key(p, 428)


@figure("05_ldmatrix", 446, "Kernel 05: ldmatrix.x4 for Q, K and V", "ldmatrix.x4: four 8 x 8 matrices of 16-bit elements",
        "the number: the lane that gives the address of these 8 elements; the colour: the register they go to; framed: what lane 5 "
        "gets",
        parts=((0, 305), (305, 590), (590, 880)), below=400)
def ldmatrix_tiles(p):
    lane, cell, top = 5, 14, 126

    def q_or_v(l):  # as in the kernel: lane -> (row, column) of the 16 x 16 tile in shared memory
        return l % 16, l // 16 * 8

    def k(l):
        return l % 8 + l // 16 * 8, l // 8 % 2 * 8

    for left, name, row_is, column_is, row_name, column_name, address, matrix in (
            (62, "Q: the A fragment", "row: lane % 16", "column: lane / 16 * 8", "query", "d", q_or_v, "ldmatrix"),
            (346, "K: two B fragments", "row: lane % 8 + lane / 16 * 8", "column: lane / 8 % 2 * 8", "key", "d", k, "ldmatrix"),
            (630, "V: two B fragments, .trans", "row: lane % 16", "column: lane / 16 * 8", "key", "column", q_or_v,
             "ldmatrix_trans")):

        def at(row, column):
            return left + column * cell + (5 if column >= 8 else 0), top + row * cell + (5 if row >= 8 else 0)

        met = set()
        for l in range(32):
            row, column = address(l)
            for c in range(column, column + 8):
                met.add((row, c))
                p.rect(*at(row, c), cell - 1.3, cell - 1.3, REGISTERS[l // 8][0])
            x, y = at(row, column)
            p.text(x + 6.5 * cell, y + 10, str(l), 9.5)
        assert len(met) == 256
        for m in range(4):
            for place in held(matrix, lane):
                x, y = at(*(sum(pair) for pair in zip(address(8 * m), place)))
                p.rect(x - 0.6, y - 0.6, cell, cell, REGISTERS[m][0], INK.text, 0, 2)
        middle = left + 8 * cell + 2
        p.text(middle, 84, name, 14, weight="bold")
        p.text(middle, 118, column_name, 11.5, INK.muted, italic=True)
        p.text(left - 8, top + 8 * cell + 4, row_name, 11.5, INK.muted, "end", italic=True)
        p.lines(middle, top + 16 * cell + 26, 16, [row_is, column_is], 11.5, INK.text, "middle", mono=True)
    register_key(p, 408)
    p.note(440, "B of the first (second) eight keys or columns: registers 0 and 1 (2 and 3).", size=12)


SPLIT_PARTS = (0, 322), (322, 534, "arrow"), (534, 880)


def split(p, by_rows, crossing):
    """Both products of a tile, to scale: the factors to the left of the result and above it. A colour is a warp's share, by rows or by
    columns of the results; the factor that is not divided is white. crossing: (words in bold, words below) of the way from S to P."""
    unit, rows, keys, head_dim = 1.45, 64, 64, 128
    top = 78 + 20 + head_dim * unit + 6  # of the results

    def shares(x, y, width, height, divided):
        if not divided:
            p.rect(x, y, width, height, "none", INK.line)
            p.lines(x + width / 2, y + height / 2 - 3, 16, ("every warp", "reads all"), 12, INK.text, "middle")
            return
        step = (height if by_rows else width) / 4
        for w in range(4):
            if by_rows:
                p.block(x, y + w * step, width, step - 2, f"w{w}", REGISTERS[w], 11.5, radius=2)
            else:
                p.block(x + w * step, y, step - 2, height, f"w{w}", REGISTERS[w], 11.5, radius=2)

    for x, left, above, result, inner, many in ((24, "Q", "K\u1d40", "S = Q K\u1d40", head_dim, keys), (552, "P", "V", "O += P V", keys, head_dim)):
        at = x + inner * unit + 6
        shares(x, top, inner * unit, rows * unit, by_rows)
        shares(at, top - 6 - inner * unit, many * unit, inner * unit, not by_rows)
        shares(at, top, many * unit, rows * unit, True)
        p.text(at + many * unit / 2, top - 14 - inner * unit, above, 13.5, weight="bold")
        p.text(x + inner * unit / 2, top - 8, left, 13.5, weight="bold")
        p.text(at + many * unit / 2, top + rows * unit + 18, result, 13.5, weight="bold")
    p.arrow(334, top + rows * unit / 2, 540, top + rows * unit / 2, INK.text, 2.4)
    bold, words = crossing
    p.text(436, top + rows * unit / 2 - 14, bold, 13, weight="bold")
    p.lines(436, top + rows * unit / 2 + 24, 16, words, 12, INK.muted, "middle")


KIB = 64 * 128 * 2 // 1024  # of a tile of Q, K or V


@figure("05_split", 468, "Kernel 05: the warps split the keys", "Kernel 05: each of four warps has 16 keys of S",
        "one tile of 64 queries x 64 keys, head_dim 128, to scale; a colour: a warp", parts=SPLIT_PARTS)
def split_keys(p):
    split(p, False, ("shared memory", ("P goes to sP,", "maxima to sMax,", "sums to sSum")))
    p.note(434, f"A warp reads a quarter of K and of V, {KIB // 4} KiB each, but all of Q and P, {KIB} + {64 * 64 * 2 // 1024} KiB.",
           "A row of S crosses all four colours, so no warp has a whole row.")


@figure("06_split", 468, "Kernel 06: the warps split the queries", "Kernel 06: each of four warps has 16 rows of S",
        "one tile of 64 queries x 64 keys, head_dim 128, to scale; a colour: a warp", parts=SPLIT_PARTS)
def split_queries(p):
    split(p, True, ("registers", ("P is where S was;", "maxima and sums", "cross four lanes")))
    p.note(434, f"A warp reads a quarter of Q, {KIB // 4} KiB, but all of K and V, {KIB} KiB each. P stays in its registers.",
           "A row of S has one colour, so a warp has all of it.")


@figure("05_banks", 292, "Kernel 05: banks of the eight rows of one ldmatrix matrix",
        parts=((0, 450), (450, 880)))
def matrix_banks(p):
    for x, pad in ((56, 0), (490, 8)):
        worst = bank_panel(p, x, pad, 4, "row", "16 bytes of each of eight rows, 32 banks")
        what = "every bank once: 1 wavefront" if worst == 1 else f"{worst} words in each of four banks: {worst} wavefronts"
        p.text(x, 244, what, 13, INK.orange, "start", "bold")
    p.note(276, "A row of 256 bytes is twice around the banks; 16 bytes more move the next row on by four banks.",
           size=12)


@figure("06_c_is_a", 464, "Kernel 06: C of the first product is A of the second one", "What lane 5 holds",
        "each square is an element; the number says which lane has it",
        parts=((0, 345), (345, 508, "arrow"), (508, 880)))
def c_is_a(p):
    lane, cell, c_left, a_left, top = 5, 17, 52, 540, 112
    of_c = owners(lambda l: [(tile, (row, column + 8 * tile)) for tile in range(2) for row, column in held("mma_c", l)])
    of_a = owners(lambda l: [(i // 4, place) for i, place in enumerate(held("mma_a", l))])
    p.texts(13.5, None, "middle", (c_left + 8 * cell + 3, 84, "S: two C fragments of 16 x 8, fp32"),
            (a_left + 8 * cell, 84, "P: one A fragment of 16 x 16, 16-bit"), weight="bold")
    p.text(c_left + 4 * cell, 103, "acc_s[n]", 12, INK.blue, mono=True)
    p.text(c_left + 12 * cell + 6, 103, "acc_s[n + 1]", 12, INK.orange, mono=True)
    p.text(a_left + 8 * cell, 103, "rP[0..3]", 12, mono=True)
    for left, owner, gap in ((c_left, of_c, 6), (a_left, of_a, 0)):
        for (row, column), (other, part) in sorted(owner.items()):
            x, y = left + column * cell + (gap if column >= 8 else 0), top + row * cell
            p.rect(x, y, cell - 1.5, cell - 1.5, *((BLUE, ORANGE)[part] if other == lane else (INK.cell, None)))
            p.text(x + cell / 2 - 0.8, y + 11.2, str(other), 8.5, INK.text if other == lane else INK.muted)
        p.lines(left - 6, top + 11.5, cell, [str(row) for row in range(16)], 9.5, INK.muted, "end")
    p.arrow(c_left + 16 * cell + 26, top + 8 * cell, a_left - 34, top + 8 * cell, INK.green, 2.6)
    p.lines(432, top + 8 * cell - 30, 16, ["e^x, and", "pack two"], anchor="middle")
    p.text(432, top + 8 * cell + 22, "no shuffle", 12, INK.green, weight="bold")
    for i, color in enumerate((INK.blue, INK.blue, INK.orange, INK.orange)):
        what = f"rP[{i}] = acc_s[n{' + 1' if i > 1 else ''}]"
        p.text((c_left, a_left)[i // 2] + 8 * cell, 406 + 17 * (i % 2), f"{what} {2 * (i % 2)}, {2 * (i % 2) + 1}", 11.5, color, mono=True)
    p.note(450, "The two grids are equal, number by number: " + ("in all 32 lanes." if of_c == of_a else "NOT"))


@figure("07_ring", 380, "Kernel 07: a ring of two stages", "kStages = 2: tile n + 1 arrives while tile n is computed on",
        "four tiles; time runs to the right, lengths are not to scale", bands=[Band(0, ((88, 496), (496, 880)), 88)])
def ring(p):
    tiles, left, wide, head = 4, 150, 170, 66
    for y, name in ((98, "compute"), (168, "stage 0"), (228, "stage 1")):
        p.text(left - 74, y + 24, name, 13, anchor="end", weight="bold")
        p.rect(left - 62, y, tiles * wide + head + 40, 40, INK.cell, None, 4)
    # Columns: before the loop, then one a tile.
    edge = [left - 58 + head + n * wide for n in range(tiles + 1)]
    for n in range(tiles):
        stage = (172, 232)[n % 2]
        begin = left - 54 if n == 0 else edge[n - 1] + 22
        p.block(begin, stage, edge[n] - begin - 8, 32, f"copy {n}" if n == 0 else f"copy tile {n}", BLUE, drop=5)
        p.block(edge[n] + 22, 102, wide - 26, 32, f"S, softmax, O of tile {n}", GREEN, drop=5)
        p.block(edge[n] + 22, stage, wide - 26, 32, f"read tile {n}", GREEN, drop=5)
        p.line(edge[n] + 4, 76, edge[n] + 4, 282, INK.orange, 2)
        p.lines(edge[n] + 4, 298, 15, ["wait", "barrier"], 11.5, INK.orange, "middle", weight="bold")
        p.text(edge[n] + 4, 70, f"n = {n}", 11.5, INK.muted)
    p.note(346, "After the wait this thread's copies have arrived. After the barrier all threads' copies have, and no warp reads",
           "the stage that is filled next.")


@figure("08_swizzle", 356, "Kernel 08: chunks of 16 bytes in the banks, without and with swizzle",
        parts=((0, 450), (450, 880)))
def swizzle(p):
    wanted, cell = 2, 46
    for x, title, where in ((56, "Row by row", lambda row, chunk: chunk), (490, "XOR with the row's number", place_of)):
        p.heading(title, f"eight lanes of ldmatrix read chunk {wanted} of rows 0 to 7", x, size=15)
        p.texts(10, INK.muted, "middle", *((x + group * cell + 21, 72, f"{4 * group}-{4 * group + 3}") for group in range(8)))
        for row in range(8):
            for chunk in range(8):
                p.chunk(x + where(row, chunk) * cell, 80 + row * 25, cell - 3, 22, chunk, chunk == wanted,
                        (INK.orange, INK.background), (INK.cell, INK.muted))
        p.lines(x - 8, 95.5, 25, [f"row {row}" for row in range(8)], 10.5, INK.muted, "end")
        met = [where(row, wanted) for row in range(8)]
        worst = max(met.count(group) for group in range(8))
        p.text(x + 4 * cell, 304, f"{worst} wavefronts: all in the same four banks" if worst > 1
               else "1 wavefront: every bank once", 13.5, INK.orange, weight="bold")
    p.note(338, "Top line: banks. A row is 128 bytes long, or a multiple of that, so each row begins in bank 0 again.", size=12)


@figure("08_bits", 596, "Kernel 08: the bits of a chunk's address", "The address of byte b of chunk c of row r",
        "its bits, from 13 down to 0; each example is chunk 2 of row 5",
        narrow=430, bands=[Band(top) for top in (0, 302, 337, 565)])
def swizzled_bits(p):
    left, row, chunk = 196 if p.width > 600 else 90, 5, 2
    wide = (p.width - left - 40) // 14
    for top, size, words in ((122, 128, "Rows of 128 bytes: head_dim 64, and what TMA and wgmma do in hardware"),
                             (384, 256, "Rows of 256 bytes: head_dim 128")):
        def plain(r, c):
            return r * size + c * 16

        def swizzled(r, c):
            return r * size + place_of(r, c) * 16

        # Which bits of the row are copied into which bits of the address: XOR, so one at a time tells all.
        source = [(bit, low) for bit in range(14) for low in range(bit)
                  if bit >= size.bit_length() - 1 and swizzled(1 << (bit - size.bit_length() + 1), 0) >> low & 1]
        if [low for _, low in source] != [4, 5, 6]:
            raise ValueError("the swizzle is no longer an XOR into bits 4 to 6")

        def middle(bit):
            return left + (13 - bit) * wide + (wide - 3) / 2

        def ends(last, first):
            return left + (13 - first) * wide, left + (14 - last) * wide - 3

        p.text(24, top - 32, words, 13, anchor="start", weight="bold")
        p.texts(12.5, INK.muted, "end", (left - 14, top + 23, "made of"), (left - 14, top + 98, "XOR"),
                (left - 14, top + 146, "as it is"), (left - 14, top + 168, "swizzled"))
        before, after = plain(row, chunk), swizzled(row, chunk)
        for bit in range(14):
            at, x = size.bit_length() - 1, left + (13 - bit) * wide
            name = f"b{bit}" if bit < 4 else f"c{bit - 4}" if bit < at else f"r{bit - at}"
            look = ORANGE if bit in [high for high, _ in source] else BLUE if bit in (4, 5, 6) else (INK.cell, None)
            p.rect(x, top, wide - 3, 34, *look, 3)
            p.text(middle(bit), top - 6, str(bit), 10.5, INK.muted)
            p.text(middle(bit), top + 23, name, 13, mono=True)
            for y, value in ((top + 146, before), (top + 168, after)):
                changed = value == after and (before ^ after) >> bit & 1
                p.text(middle(bit), y, str(value >> bit & 1), 13.5, INK.orange if changed else INK.muted, mono=True,
                       weight="bold" if changed else None)
        for high, low in source:
            p.arrow(middle(high), top + 35, middle(low) - 5, top + 80, INK.orange, 2)
            p.arrow(middle(low), top + 35, middle(low), top + 80, INK.blue, 2)
            p.block(left + (13 - low) * wide, top + 81, wide - 3, 24, "^", (INK.background, INK.orange), 15, drop=7, radius=3, mono=True, weight="bold")
        begin, end = ends(2, 6)
        p.line(begin, top + 113, end, top + 113, INK.text, 2)
        p.text((begin + end) / 2, top + 127, "the bank", 12, weight="bold")
        p.text(24, top + 196, f"{row} · {size} + {chunk} · 16 = {before:,}: bank {before // 4 % 32}.  Swizzled: {row} · {size} + "
               f"{place_of(row, chunk)} · 16 = {after:,}: bank {after // 4 % 32}", 12.5, anchor="start")


def read_and_multiply(warps, ahead, read, multiply, apart, steps=24):
    """When each warp's reads and its products begin, and the Tensor Core's share of busy cycles. A read may begin `apart`
    cycles after the scheduler's one before, because shared memory has to serve the other schedulers, too."""
    reads, products, free, served = [[] for _ in range(warps)], [[] for _ in range(warps)], 0.0, 0.0

    def begin(mine, wanted):
        nonlocal served
        mine.append(max(wanted, served))
        served = mine[-1] + apart

    for _ in range(max(ahead, 1)):
        for mine in reads:
            begin(mine, 0.0)
    for step in range(steps):
        for mine, done in zip(reads, products):
            free = max(free, mine[step] + read)  # the Tensor Core; it takes the warps in turn
            done.append(free)
            begin(mine, free if ahead else free + multiply)
            free += multiply
    return reads, products, warps * multiply / ((products[0][-1] - products[0][-9]) / 8)


@figure("09_steps", 448, "Kernel 09: reading fragments ahead", "A read takes 30 cycles, the two MMAs of a step 12",
        "numbers: steps; to scale", bands=[Band(top, ((132, 495), (495, 880)), 132) for top in (60, 140, 238, 318)])
def steps(p):
    """When fragments are read and multiplied, for the chapter's two numbers: reading ahead, and a second warp."""
    read, multiply = 30.0, 2 * 6.0  # cycles: one ldmatrix; the two MMAs that its fragments are for
    apart = 4 * 4.0  # cycles: four schedulers share a shared memory, in which a read takes four wavefronts
    left, shown, scale = 132, 212, 3.42

    def bars(y, height, length, begins, look, lanes=1):
        for step, begin in enumerate(begins):
            if begin < shown:
                at, end, cut = y + step % lanes * 16, min(begin + length, shown), begin + length > shown
                p.rect(left + begin * scale, at, (end - begin) * scale - (0 if cut else 1.5), height, *look, 2, 1)
                if (end - begin) * scale > 12:
                    p.text(left + (begin + end) / 2 * scale, at + height / 2 + 4, f"{step}", 11)

    y = 72
    for title, warps, ahead in (("one warp, each fragment read when it is needed", 1, 0), ("two warps, the same", 2, 0),
                                ("one warp, one step ahead", 1, 1), ("two warps, each one step ahead", 2, 1)):
        reads, products, busy = read_and_multiply(warps, ahead, read, multiply, apart)
        lanes = max(ahead, 1)  # reads of a warp that are under way at the same time
        tall = warps * lanes * 16
        p.text(24, y + 1, title, 13, anchor="start", weight="bold")
        p.text(left + shown * scale, y + 1, f"Tensor Core busy: {percent(busy, form='.0f')}", 13, INK.blue, "end", "bold")
        p.texts(12, INK.muted, "end", (left - 12, y + 16 + tall / 2, "reads"), (left - 12, y + 28 + tall, "Tensor Core"))
        p.rect(left, y + 14 + tall, shown * scale, 20, INK.cell)
        for warp in range(warps):
            bars(y + 12 + warp * 16, 14, read, reads[warp], (ORANGE, GREEN)[warp], lanes)
            bars(y + 14 + tall, 20, multiply, products[warp], (BLUE, GREEN)[warp])
        y += tall + 66
    p.note(436, "Blue and orange: one warp. Green: the scheduler's second one. Four schedulers share a shared memory, so each "
           "gets a read in 16 cycles.", size=12)


@figure("09_address", 470, "Kernel 09: the address of a chunk, bit by bit",
        "The address of a 16-byte chunk in a tile of 64 rows and 128 columns", "r: row, c: chunk (8 columns); small: bits of the address",
        bands=[Band(0, ((196, 517), (517, 880)), 196), Band(190, ((125, 480), (480, 880)), 125)])
def step_bits(p):
    """The bits of a chunk's place in a tile of 128 columns, and what a step does to them."""
    def address(row, chunk):  # of 256 bytes a row
        return row * 256 + place_of(row, chunk) * 16

    left, wide, top = 196, 46, 84
    for bit in range(14):
        # What flips this bit: bits of the row, bits of the chunk. An XOR of bits: one at a time tells all.
        made = [f"r{i}" for i in range(6) if (address(1 << i, 0) ^ address(0, 0)) >> bit & 1]
        made += [f"c{i}" for i in range(4) if (address(0, 1 << i) ^ address(0, 0)) >> bit & 1]
        x = left + (13 - bit) * wide
        # A step goes on by 16 rows (bits 4 and 5 of the row) or by two chunks (bits 1 to 3 of the chunk).
        by_row, by_chunk = bool({"r4", "r5"} & set(made)), bool({"c1", "c2", "c3"} & set(made))
        look = ORANGE if by_chunk and len(made) > 1 else BLUE if by_row or by_chunk else (INK.cell, None)
        p.rect(x, top, wide - 3, 44, *look, 3)
        p.text(x + (wide - 3) / 2, top - 8, str(bit), 10.5, INK.muted)
        p.lines(x + (wide - 3) / 2, top + (27 if len(made) == 1 else 18), 18, [("^ " if i else "") + name for i, name in enumerate(made)],
                12.5, INK.text, "middle", mono=True)
    p.texts(12.5, INK.muted, "end", (left - 14, top + 27, "made of"), (left - 14, top + 70, "a step"))
    for first, last, text, color in ((13, 12, "adds", INK.blue), (11, 8, "the lane's own", INK.muted), (7, 7, "adds", INK.blue),
                                     (6, 5, "XOR", INK.orange), (4, 0, "the lane's own", INK.muted)):
        begin, end = left + (13 - first) * wide, left + (14 - last) * wide - 3
        p.line(begin, top + 54, end, top + 54, color, 2)
        p.text((begin + end) / 2, top + 71, text, 12, color, weight="bold" if color != INK.muted else None)

    lane, top = 13, 232
    row, first = lane % 8 + lane // 16 * 8, lane // 8 % 2  # as load_k addresses K
    own = place_of(row, first)
    p.heading(f"Lane {lane} reads K: its row is {row}, its first chunk is {first}", y=top - 26)
    p.texts(12.5, INK.muted, "middle", (90, top, "step"), (220, top, "chunk"), (370, top, "its place: chunk ^ r"),
            (560, top, "first place ^ k"), (752, top, "first place + k"))
    for i, k in enumerate((0, 2, 4, 6)):
        chunk, y = first + k, top + 37 + i * 44
        place, sum_of = place_of(row, chunk), own + k
        if place != own ^ k:
            raise ValueError("a step is no longer an XOR")
        p.rect(24, y - 23, 816, 36, INK.cell, None, 4)
        p.texts(13, None, "middle", (90, y, f"k = {k}"), (220, y, f"{first} + {k} = {chunk}"))
        p.text(370, y, f"{chunk:03b} ^ {row:03b} = {place:03b}", 13.5, mono=True)
        p.text(560, y, f"{own:03b} ^ {k:03b} = {own ^ k:03b}", 13.5, INK.orange, mono=True, weight="bold")
        p.text(752, y, f"{own:03b} + {k:03b} = {sum_of:03b}" + (" no" if sum_of != place else ""), 13.5, INK.muted, mono=True)
    p.note(446, "A sum gives the same place only while nothing is carried. Here the carry even leaves the group of eight "
           "chunks.", size=12)


@figure("09_order", 424, "Kernels 08 and 09: the main loop, instruction by instruction",
        bands=[Band(top, ((118, 478), (478, 880)), 118) for top in (0, 210)])
def order(p):
    """The main loops of 08 and 09 in the order of issue, from the listings of scripts/fa inspect."""
    p.head("One tile of 64 keys, one warp: instructions from left to right in the order in which they are issued", size=15)
    left, wide, y = 118, 742, 62
    for kernel in ("08", "09"):
        names = read_json(ROOT / "bench" / "main_loops.json")["kernels"][kernel].split()
        scale = wide / len(names)
        products = [i for i, name in enumerate(names) if name == "HMMA"]
        gap, before = max((b - a, a) for a, b in zip(products, products[1:]))
        p.text(24, y, f"Kernel {kernel}: {len(names)} instructions", 14, anchor="start", weight="bold")
        y += 12
        for name, what, color in (("LDGSTS", "copies", INK.green), ("LDSM", "ldmatrix", INK.orange), ("HMMA", "MMA", INK.blue),
                                  ("MUFU", "2^x", INK.text)):
            p.text(left - 12, y + 16, what, 12.5, color, "end")
            p.rect(left, y, wide, 22, INK.cell)
            for other, begin, end in runs(names):
                if other == name:
                    p.rect(left + begin * scale, y + 2, (end - begin) * scale, 18, color)
            y += 26

        def mark(i, color, *look):
            p.line(left + i * scale, y - 104, left + i * scale, y + 2, color, *look)

        mark(names.index("BAR"), INK.muted, 1.5)
        p.text(left + names.index("BAR") * scale - 4, y + 15, "barrier", 12, INK.muted, "end")
        mark(products[0], INK.orange, 1, "3 3")
        p.text(left + products[0] * scale + 8, y + 15, f"{names[:products[0]].count('LDSM')} ldmatrix before the first MMA", 12,
               INK.orange)
        mark(before + 1, INK.blue, 1, "3 3")
        mark(before + gap, INK.blue, 1, "3 3")
        p.text(left + (before + 1 + gap / 2) * scale + 60, y + 15, f"{gap - 1} instructions without an MMA", 12, INK.blue)
        y += 52
    p.note(406, "Not drawn: arithmetic on scores, sums and addresses. The lines show the order in which instructions are "
           "issued, not how long they take.", size=12)


@figure("10_turn", 446, "Kernel 10: an iteration of the main loop begins with the softmax",
        bands=[Band(top, ((132, 480), (480, 880)), 132) for top in (0, 180)])
def turn(p):
    left, right = 132, 864

    def tracks(**names):
        for y, name in names.items():
            p.text(left - 12, int(y[1:]) + 19, name, 12.5, anchor="end")
            p.rect(left, int(y[1:]), right - left, 30, INK.cell, None, 4)

    def block(x, y, width, text, look):
        p.block(x, y + 2, width - 3, 26, text, look)
        return x + width

    def barriers(top, bottom, *places):
        for x in places:
            p.line(x, top, x, bottom, INK.orange, 2)
            p.text(x, bottom + 14, "wait, barrier", 11, INK.orange, weight="bold")

    p.heading("Kernel 09: products, softmax, products")
    products, waited, first = 168, 236, 84  # widths: Q K or P V, 09's softmax, 10's part of it before P V
    groups = 4  # of 16 keys in a tile of 64
    p.text(24, 49, "one warp; time runs to the right, lengths are not to scale", 12.5, INK.muted, "start")
    tracks(y70="Tensor Cores", y108="softmax")
    x = block(left + 20, 70, products, "S = Q Kᵀ, tile n", BLUE)
    p.text(x + waited / 2, 89, "nothing to multiply", 11.5, INK.muted, italic=True)
    x = block(x, 108, waited, "maximum, exponentials, rescale O", ORANGE)
    x = block(x, 70, products, "O += P V, tile n", BLUE) + 10
    block(x + 10, 70, right - x - 12, "Q Kᵀ, n + 1", BLUE)
    barriers(62, 146, left + 10, x)

    p.heading("Kernel 10: softmax first, and most of it between the products", y=204)
    tracks(y224="Tensor Cores", y262="softmax", y300="V's tiles", y338="K's tiles")
    start, each = left + 20, (products + 90) / groups
    x = block(start, 262, first, "max, vote", ORANGE)
    x = block(x, 262, each - 12, "2^x: 0", ORANGE)
    for group in range(groups):
        if group + 1 < groups:
            block(x, 262, each, f"2^x: {group + 1}", ORANGE)
        x = block(x, 224, each, f"P V: {group}", BLUE)
    x = block(x, 224, products, "S = Q Kᵀ, tile n + 1", BLUE) + 10
    block(x + 10, 262, right - x - 12, "max", ORANGE)
    block(start, 300, x - 13 - start, "V of tile n + 1 is copied (needed one iteration later)", GREEN)
    block(start, 338, x - 13 - start, "K of tile n + 2 is copied (needed at the end of the next iteration)", GREEN)
    barriers(216, 374, left + 10, x)
    p.note(416, f"2^x: g is P of the keys 16 g to 16 g + 15, one of {groups} groups of a tile; P V: g multiplies it.",
           "From its first part of P V to the end of the iteration the warp always has products to issue.")


@figure("10_lazy", 404, "Kernel 10: the reference lags behind the running maximum by at most 8", narrow=430)
def lazy(p):
    """A row's largest score tile by tile, and the reference that is subtracted, by the kernel's rule."""
    growth, left, top, tall, high = constant("10", "kMaxGrowthLog2"), 76 if p.width > 600 else 44, 72, 244, 28.0
    wide = (p.width - left) // 21
    tiles = [2.6, 3.4, 2.1, 5.2, 4.4, 6.9, 9.1, 7.0, 13.8, 12.0, 15.4, 14.1, 16.9, 16.0, 20.6, 25.3, 22.8, 24.0, 26.2, 25.1]
    running, reference = [-math.inf], [-math.inf]
    for score in tiles:
        running.append(max(running[-1], score))
        reference.append(running[-1] if score > reference[-1] + growth else reference[-1])
    always, lazily = (sum(now > before for before, now in zip(values, values[1:])) for values in (running, reference))

    def y(value):
        return top + tall * (1 - value / high)

    p.head(f"The maximum grows in {always} of {len(tiles)} tiles, O is rescaled in {lazily}", "one row; scores in units of log2")
    for value in range(0, 29, 4):
        p.line(left, y(value), left + wide * len(tiles), y(value), INK.cell, 1.2)
        p.text(left - 10, y(value) + 4, str(value), 11.5, INK.muted, "end")
    for i, score in enumerate(tiles):
        x = left + i * wide
        p.rect(x, y(running[i + 1]), wide, y(reference[i + 1]) - y(running[i + 1]), INK.orange_soft)
        for values, color in ((running, INK.orange), (reference, INK.blue)):
            before, now = values[i : i + 2]
            p.line(x, y(now), x + wide, y(now), color, 2.6)
            if i and now > before:
                p.line(x, y(before), x, y(now), color, 2.6)
        p.rect(x + wide / 2 - 3, y(score) - 3, 6, 6, INK.text, None, 3)
        if reference[i + 1] > reference[i]:
            p.arrow(x + wide / 2, top + tall + 34, x + wide / 2, top + tall + 8, INK.blue)
            p.text(x + wide / 2, top + tall + 48, "rescale", 11.5, INK.blue, weight="bold")
    p.text(left + 7.5 * wide, y(10.8), "running maximum", 12.5, INK.orange, "end", "bold")
    p.text(left + 20 * wide, y(9.6), "reference that is subtracted", 12.5, INK.blue, "end", "bold")
    p.lines(left + 15.4 * wide, y(19.4), 16, ("a tile's", "largest score"), 12.5, INK.text)
    p.note(392, f"The gap is at most {growth:.0f}: P = 2^(score - reference) is at most 2^{growth:.0f} = {2**growth:.0f}.")


@figure("11_descriptor", 400, "Kernel 11: the fields of a matrix descriptor",
        "A matrix descriptor: where wgmma finds an operand in shared memory",
        "example: a tile of K, 128-byte swizzle, at byte 0x8400 of shared memory; the first 16 columns",
        bands=[Band(0, ((24, 440.7), (440.7, 880)), 24, title=False), Band(190), Band(225, ((24, 440), (440, 880)), 24)])
def descriptor(p):
    of, left, top, wide = constants()["layouts"], 24, 92, 13
    fields = (("mode", of["mode"], 63, 62, GREEN, "1: 128 bytes"),
              ("base offset", of["base_offset"], 51, 49, GREY, "0: atoms are aligned"),
              ("SBO", of["SBO"], 45, 32, ORANGE, f"{of['stride']} bytes / 16"),
              ("LBO", of["LBO"], 29, 16, GREY, "any: not used here"),
              ("start address", of["starts"][0], 13, 0, BLUE, f"0x{of['start']:x} / 16"))
    p.rect(left, top, 64 * wide, 46, "none", INK.line)
    for name, bits, high, low, look, says in fields:
        if bits >> (high + 1) or bits % (1 << low):
            raise ValueError(f"{name} is not where it is drawn")
        digits = high - low + 1
        x, width = left + (63 - high) * wide, digits * wide
        p.rect(x, top, width, 46, *look)
        p.text(x + width / 2, top + 29, f"{bits >> low:0{digits}b}", 12, mono=True)
        at, anchor = (x + width / 2, "middle") if high < 63 else (x, "start")
        p.text(at, top + 66, name, 13, anchor=anchor, weight="bold")
        p.text(at, top + 84, says, 11.5, INK.muted, anchor)
        p.texts(10.5, INK.muted, "middle", (x + 4, top - 6, str(high)), (x + width - 6, top - 6, str(low)))
    p.text(24, top + 116, f"= 0x{sum(field[1] for field in fields):016x}", 14, anchor="start", mono=True, weight="bold")
    p.heading("The next 16 columns: 32 bytes further, so the start grows by 2", y=250, size=15)
    for step in range(4):
        x, at = 24 + step * 212, of["start"] + step * of["k_major_step"]
        p.rect(x, 268, 196, 62, INK.cell, None, 5)
        p.caption(x + 98, 290, f"columns {16 * step} to {16 * step + 15}", f"start 0x{at:x} / 16 = 0x{of['starts'][step]:x}", 13, 22,
                  12.5)
        if step:
            p.text(x - 8, 303, "+2", 12.5, INK.blue, weight="bold")
    p.note(362, "Nothing else changes within a slab of 64 columns. The XOR of the swizzle works on the whole address, so a",
           "start inside the atom's first row is as good as one at the row's beginning.")


@figure("11_core_matrices", 496, "Kernel 11: core matrices of a tile without swizzle",
        "Without swizzle: core matrices of 8 rows of 16 bytes, one after the other",
        "64 x 64 elements; each number is a core matrix's place in memory, in units of 128 bytes; the frame: what the first wgmma reads",
        parts=((0, 440), (440, 880)))
def core_matrices(p):
    cell, top = 38, 118
    for x, name, what, down, right, table, (rows, columns), strides in (  # rows, columns: of what the first wgmma reads
            (96, "K-major", "a core matrix: 8 rows, 8 of the depth", "row", "depth",
             "k_major", (8, 2),
             "Depth + 8: LBO = 128 bytes.  Row + 8: SBO = 1024."),
            (528, "MN-major", "a core matrix: 8 of the depth, 8 rows", "depth", "row",
             "mn_major", (2, 8),
             "Depth + 8: LBO = 1024 bytes.  Row + 8: SBO = 128.")):
        middle = x + 4 * cell
        p.caption(middle, 84, name, what, 15, 20)
        places = {(row, column): at for row, line in enumerate(constant("layouts", table)) for column, at in enumerate(line)}
        assert sorted(places.values()) == list(range(0, 64 * 128, 128))
        for (row, column), at in places.items():
            first = row < rows and column < columns
            p.block(x + column * cell, top + row * cell, cell - 2, cell - 2, str(at // 128),
                    (INK.orange_soft if first else INK.cell, None), 11, None, 4.5, 2)
        p.rect(x - 2, top - 2, columns * cell + 2, rows * cell + 2, "none", INK.text, 3, 2)
        p.text(x - 12, top + 4 * cell, down, 12, INK.muted, "end", italic=True)
        p.text(middle, top + 8 * cell + 18, right + " \u2192", 12, INK.muted, italic=True)
        p.text(middle, 462, strides, 13, INK.orange, weight="bold")
    p.note(484, "For B read column in place of row. Other strides work, too: with these the tile fills 8 KB without a gap.", size=12)


@figure("11_atoms", 560, "Kernel 11: a tile with 128-byte swizzle, K-major and MN-major",
        "With 128-byte swizzle: the same bytes, read as Q and K or as V",
        "the first 16 rows of a 64 x 64 tile, 128 bytes each; each number says which chunk of 8 elements of its row is stored there",
        parts=((0, 450), (450, 880)))
def atoms(p):
    cell, high, top = 40, 20, 116
    row8 = constant("layouts", "slab")[8][0]
    for x, name, what, marked, steps_ in (
            (84, "K-major: the depth runs along a row (Q, K)", "marked: columns 0 to 15 of the rows, the first step", (0, 1),
             (("8 rows on", f"SBO = {row8} bytes"),
              ("16 of depth on", f"start + {constant('layouts', 'k_major_step')} bytes"),
              ("64 of depth on", "start + 128 x the tile's rows"))),
            (512, "MN-major: the depth runs down the rows (V)", "marked: rows 0 to 15 with all their columns, the first step", range(8),
             (("8 of depth on", f"SBO = {row8} bytes"),
              ("16 of depth on", f"start + {constant('layouts', 'mn_major_step')} bytes"),
              ("64 columns on", "LBO = 128 x the tile's rows")))):
        p.caption(x + 4 * cell, 84, name, what, 15, 20)
        for row in range(16):
            y = top + row * high + (6 if row >= 8 else 0)
            for chunk, place in enumerate(places(row)):
                p.chunk(x + place * cell, y, cell - 2, high - 2, chunk, chunk in marked, (INK.orange_soft, INK.orange),
                        (INK.cell, INK.muted), 10.5, 4)
            p.text(x - 8, y + 13, f"row {row}", 10.5, INK.muted, "end")
        for atom in range(2):
            y = top + atom * (8 * high + 6)
            p.rect(x - 3, y - 3, 8 * cell + 4, 8 * high + 4, "none", INK.line, 3, 1.4)
            p.text(x + 8 * cell + 8, y + 4 * high + 4, f"atom {atom}", 11, INK.muted, "start")
        names, strides = zip(*steps_)
        p.lines(x, top + 16 * high + 34, 22, names)
        p.lines(x + 8 * cell, top + 16 * high + 34, 22, strides, 12, INK.orange, "end", weight="bold")
    p.note(546, "An atom is 8 rows of 128 bytes at a multiple of 1024; chunk c of row r is in place c ^ (r mod 8), as in kernel 08.")


@figure("11_accumulators", 500, "Kernel 11: the accumulators of wgmma.m64nN",
        "D of wgmma, 64 x N: 16 rows per warp, and among its lanes the layout of mma.sync",
        "each square is an element, the number its lane, the colour its register modulo 4; framed: thread 37 (warp 1, lane 5)",
        parts=((0, 390), (390, 792), (792, 880)))
def accumulators(p):
    cell, top, thread, x, left = 22, 122, 37, 92, 424
    owner = {place: (t, i) for t in range(128) for i, place in enumerate(held("wgmma_d", t))}
    assert len(owner) == 64 * 16
    # Left: the 64 rows, whose they are.
    for warp in range(4):
        rows = sorted({row for (row, _), (t, _) in owner.items() if t // 32 == warp})
        assert rows == list(range(16 * warp, 16 * warp + 16))
        y = top + warp * 80
        p.rect(x, y, 190, 77, REGISTERS[warp][0], INK.line, 4)
        p.text(x + 95, y + 44, f"warp {warp} of the warpgroup", 13, weight="bold")
        p.texts(11, INK.muted, "end", (x - 8, y + 14, str(rows[0])), (x - 8, y + 74, str(rows[-1])))
    p.texts(14, None, "middle", (x + 95, 84, "64 x N"), (left + 8 * cell, 84, "warp 1, its first 16 columns"), weight="bold")
    p.text(x + 95, 106, "N columns \u2192", 11.5, INK.muted, italic=True)
    p.text(x - 34, top + 160, "row", 11.5, INK.muted, "end", italic=True)
    # Right: rows 16 to 31, columns 0 to 15.
    p.text(left + 8 * cell, 104, "d[0..3] are the first 16 x 8 tile, d[4..7] the next, and so on", 12, INK.muted)

    def at(row, column):
        return left + column * cell + (8 if column >= 8 else 0), top + (row - 16) * (cell - 2)

    for place, (t, i) in owner.items():
        if t // 32 == thread // 32:
            x, y = at(*place)
            p.rect(x, y, cell - 1.5, cell - 3.5, REGISTERS[i % 4][0])
            p.text(x + cell / 2 - 0.8, y + 13, str(t % 32), 10)
    p.texts(11, INK.muted, "end", *((left - 8, at(row, 0)[1] + 13, str(row)) for row in (16, 24, 31)))
    for i in range(4):
        p.key(left + 20 + i * 84, 452, f"d[4n + {i}]", REGISTERS[i])
    for i, (row, column) in enumerate(held("wgmma_d", thread)):
        x, y = at(row, column)
        p.rect(x - 0.6, y - 0.6, cell - 0.4, cell - 2.4, "none", INK.text, 0, 2)
        p.text(left + 374, top + 52 + 22 * i, f"d[{i}]", 10.5, anchor="start", mono=True)
        p.text(left + 408, top + 52 + 22 * i, f"{row}, {column}", 10.5, INK.muted, "start", mono=True)
    p.text(left + 374, top + 26, "row, column", 11, INK.muted, "start", italic=True)
    p.note(490, "A in registers, 64 x 16, has the layout of mma's A for 16 rows per warp: as in kernel 06, two tiles of D are one of A.",
           size=12)


INTERACTIVE = {name for name in DRAWN if name.startswith("interactive_")}


def main():
    parser = Parser("pictures", __doc__, EXAMPLE)
    parser.add_argument("--check", action="store_true", help="change nothing, name what is out of date")
    args = parser.parse_args()
    # The interactive pages' pictures are left as they are where the data are not built.
    left = set() if DATA.is_dir() else INTERACTIVE
    drawn = {name: None if name in left else draw().svg() for name, draw in DRAWN.items()}
    return keep(PICTURES, drawn, "scripts/fa pictures", args.check)
