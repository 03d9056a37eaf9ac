"""The pictures of kernels/beyond: which key tiles a mask leaves, and which SM computes which query tile, by a simulation of
the shares that a kernel may deal out; and into how many pieces the keys of a query tile are cut."""

import heapq
import math
import random
from collections import namedtuple
from functools import lru_cache

from fa_tools.cards import BOOK
from fa_tools.documents.figures.drawing import BLUE, GREEN, GREY, INK, ORANGE, Band, figure
from fa_tools.for_readers.limits import machine_named
from fa_tools.numbers import percent
from fa_tools.patches import parts
from fa_tools.sources import constant
from fa_tools.tools import ROOT, relative

TILE = 128  # rows of a query tile and keys of a key tile


@lru_cache(maxsize=None)
def sms():
    """Of the card whose figures the documents quote."""
    return machine_named(BOOK)[1]["sm"]["count"]


def key_tiles(row, q_len, kv_len):
    """Those of the query tile that begins at this row, as the kernel's producer counts them."""
    return max(0, -(-min(kv_len, row + kv_len - q_len + TILE) // TILE))


def section_heads(tokens, heads):
    """The heads of a section, by the kernel's own limits."""
    return min(heads, constant("causal", f"section_{tokens}"))


# ---- which SM computes which query tile ---------------------------------------------------------------------------------

Piece = namedtuple("Piece", "begin tiles head")


def in_sections(heads, tiles, section, long_first=True):
    """(head, key tiles) of all query tiles in the order in which they are taken."""
    lengths = range(tiles, 0, -1) if long_first else range(1, tiles + 1)
    return [(head, length) for first in range(0, heads, section) for length in lengths
            for head in range(first, min(heads, first + section))]


def dealt(order, sms, counter):
    """The pieces of each SM. counter: the next query tile goes to the SM that is free first; otherwise round after round."""
    pieces, free = [[] for _ in range(sms)], [(0, sm) for sm in range(sms)]
    for number, (head, length) in enumerate(order):
        sm = heapq.heappop(free)[1] if counter else number % sms
        begin = pieces[sm][-1].begin + pieces[sm][-1].tiles if pieces[sm] else 0
        pieces[sm].append(Piece(begin, length, head))
        heapq.heappush(free, (begin + length, sm))
    return pieces


def ends(pieces):
    return [mine[-1].begin + mine[-1].tiles for mine in pieces]


def busiest(rule):
    """The key tiles after which the last of all SMs ends."""
    return max(ends(dealt(rule.order, sms(), rule.counter)))


def unmasked(heads, tiles):
    """The same without a mask."""
    return -(-heads * tiles // sms()) * tiles


def open_heads(pieces):
    """How many heads have begun and not ended at the same time, at most: their K and V are still to be read."""
    spans = {}
    for piece in (piece for mine in pieces for piece in mine):
        begin, end = spans.get(piece.head, (piece.begin, 0))
        spans[piece.head] = min(begin, piece.begin), max(end, piece.begin + piece.tiles)
    return max(sum(begin <= time < end for begin, end in spans.values()) for time in {begin for begin, _ in spans.values()})


Rule = namedtuple("Rule", "name order counter")


def rules(heads, tiles, section):
    return (Rule("the shares of kernel 16", in_sections(heads, tiles, 1, False), False),
            Rule("a counter, in the same order", in_sections(heads, tiles, 1, False), True),
            Rule("a counter, the long ones of all heads first", in_sections(heads, tiles, heads), True),
            Rule("a counter, the long ones of a section first", in_sections(heads, tiles, section), True))


@figure("causal_schedule", 668, "beyond/causal: which SM computes which query tile, by a simulation", narrow=430,
        bands=[Band(0), *(Band(66 + 190 * i, ((24, 540), (540, 880)), 24, title=False) for i in range(4))])
def schedule(p):
    toy_sms, toy_heads, tokens, heads = 4, 4, 1024, 256
    tiles, mib = tokens // TILE, tokens * 128 * 2 * 2 / 2**20
    section = section_heads(tokens, heads)
    full = unmasked(heads, tiles)
    toy = rules(toy_heads, tiles, 2)
    left, wide, right, high = 24, min(470, p.width - 30), 540, 18
    step, aside = (142, 0) if p.width > 600 else (190, 46)  # aside: what the second heading needs above its own first row
    longest = max(ends(dealt(toy[0].order, toy_sms, False)))
    p.heading(f"{toy_sms} SMs, {toy_heads} heads of {tiles} query tiles", "a number: key tiles; a colour: a head; a section: 2 heads")
    p.heading(f"{sms()} SMs, {heads} heads of {tokens} tokens", f"a column: an SM's key tiles; without a mask {full}", right,
              84 if aside else 30)
    colours = (BLUE, ORANGE, GREEN, GREY)
    for number, (small, real) in enumerate(zip(toy, rules(heads, tiles, section))):
        top = 84 + number * step
        p.text(left, top, small.name, 13, anchor="start", weight="bold")
        pieces = dealt(small.order, toy_sms, small.counter)
        for sm, mine in enumerate(pieces):
            for piece in mine:
                x, unit = left + piece.begin * wide / longest, wide / longest
                p.block(x, top + 12 + sm * (high + 3), piece.tiles * unit - 1.5, high, str(piece.tiles), colours[piece.head], 10.5,
                        radius=2)
        mean = sum(ends(pieces)) / toy_sms
        p.line(left + mean * wide / longest, top + 8, left + mean * wide / longest, top + 96, INK.text, 1.4, "4 3")
        p.text(left, top + 112, f"{toy_sms} SMs: the last one ends after {max(ends(pieces))} key tiles, the mean is {mean:g}", 12, INK.muted, "start")
        top += aside if number == 0 else 0
        pieces = dealt(real.order, sms(), real.counter)
        busy, unit = ends(pieces), 300 / sms()
        mean = sum(busy) / sms()
        for sm, end in enumerate(busy):
            p.rect(right + sm * unit, top + 96 - end * 84 / full, unit, end * 84 / full, INK.blue)
        p.line(right, top + 96 - mean * 84 / full, right + 300, top + 96 - mean * 84 / full, INK.text, 1.4, "4 3")
        under_way = open_heads(pieces)
        p.text(right, top, f"{sms()} SMs: {max(busy)} key tiles, {percent(max(busy), full, '.0f')} of {full}", 13, anchor="start", weight="bold")
        p.text(right, top + 112, f"up to {under_way} heads under way: {under_way * mib:g} MiB of K and V", 12, INK.muted, "start")
    p.note(84 + 4 * step + 2, "Dashed: the mean of all SMs. Only key tiles are counted, not what a query tile costs besides.", size=12)


# ---- which key tiles a mask leaves --------------------------------------------------------------------------------------

def matrix(p, x, y, unit, q_len, kv_len, title, what):
    """The tiles of a head's scores, `unit` per 128 rows or keys; numbers: the order in which a query tile takes its key tiles."""
    rows, columns, offset = -(-q_len // TILE), -(-kv_len // TILE), kv_len - q_len

    def at(keys, queries):
        return x + keys * unit / TILE, y + queries * unit / TILE

    p.text(x, y - 30, title, 14, anchor="start", weight="bold")
    p.text(x, y - 12, what, 12, INK.muted, "start")
    for m in range(rows):
        taken = key_tiles(m * TILE, q_len, kv_len)
        line = min(0.66, (q_len - m * TILE) / TILE - 0.1)  # of the numbers: above the end of a ragged tile
        for n in range(columns):
            whole = (n + 1) * TILE <= min(kv_len, m * TILE + 1 + offset)
            look = (INK.cell, None) if n >= taken else (INK.blue_soft, None) if whole else (INK.orange_soft, None)
            p.rect(x + n * unit, y + m * unit, unit - 2, unit - 2, *look)
            if n < taken:
                p.text(x + n * unit + (0.5 if whole else 0.14) * unit, y + (m + line) * unit,
                       str(taken - 1 - n), 12.5, weight=None if whole else "bold")
    end = at(kv_len, q_len)
    corner = at(kv_len, 0)
    p.line(*at(offset, 0), *end, INK.text, 2)
    p.line(corner[0], y, *end, INK.text, 1.6, "5 3")
    p.line(x, end[1], *end, INK.text, 1.6, "5 3")


@figure("causal_tiles", 482, "beyond/causal: the key tiles of each query tile, from the diagonal backwards",
        "The key tiles of each query tile, and the order in which it takes them",
        "a row: a query tile of 128 queries; a column: a key tile of 128 keys", parts=((0, 430), (430, 880)))
def masks(p):
    unit = 58
    matrix(p, 24, 126, unit, 600, 600, "600 queries, 600 keys", "the diagonal and the end are in the first tile")
    matrix(p, 440, 126, unit, 600, 700, "600 queries, 700 keys", "the diagonal crosses two tiles: two with a mask")
    for i, (name, look) in enumerate((("with a mask", (INK.orange_soft, None)), ("without one: the hot path", (INK.blue_soft, None)),
                                      ("not computed", (INK.cell, None)))):
        p.key(24 + i * 220, 436, name, look, 12.5)
    p.note(472, "The solid line is the diagonal: a query sees the keys left of it. Dashed: where queries and keys end.", size=12)


# ---- how many pieces ----------------------------------------------------------------------------------------------------

SPLIT = ROOT / "kernels" / "beyond" / "split_keys.cu"
RULE = "std::clamp<int64_t>(sm_count() / tiles, 1, blocks)"  # of the kernel, which cut() repeats
Cut = namedtuple("Cut", "tiles blocks pieces busiest")  # blocks: of a tile; busiest: the blocks of the SM with most of them


def cut(heads, kv_heads, queries, keys):
    """What split_keys makes of a problem with head_dim 128 on such a GPU, heads counted over the batch."""
    parts(SPLIT.read_text(encoding="utf-8"), RULE, relative(SPLIT))
    rows = heads // kv_heads * queries
    tile_rows = 16 if rows <= 16 else 64
    tiles = kv_heads * -(-rows // tile_rows)
    blocks = -(-keys // constant("split_keys", f"block_of_{tile_rows}"))
    pieces = min(max(sms() // tiles, 1), blocks)
    return Cut(tiles, blocks, pieces, -(-tiles * pieces // sms()) * -(-blocks // pieces))


@figure("split_keys_pieces", 470, "beyond/split_keys: the pieces of a head's keys, and how they become one row", narrow=430,
        bands=[Band(0, title=False), Band(322), Band(355, ((0, 215), (215, 283, "arrow"), (283, 476), (476, 543, "arrow"), (543, 880)))])
def pieces_of_keys(p):
    heads, keys = 16, 16384
    found = cut(heads, heads, 1, keys)
    left, wide, colours = 24, p.width - 48, (BLUE, ORANGE, GREEN, GREY)
    unit = wide / sms()
    p.head(f"{heads} heads with one query each, {keys:,} keys, {sms()} SMs", "a cell: an SM; a colour: a head; white: idle")
    for top, pieces, what in ((86, 1, f"One CTA per head: {heads} SMs read K and V"),
                              (142, found.pieces, f"{found.pieces} CTAs per head: {heads * found.pieces} SMs read K and V")):
        p.text(left, top - 8, what, 13, anchor="start", weight="bold")
        for sm in range(sms()):
            busy = sm < heads * pieces
            p.rect(left + sm * unit, top, unit - 1.2, 22, *(colours[sm // pieces % 4] if busy else ("none", INK.line)), line=0.8)
    top, width = 216, wide / found.pieces
    each = found.blocks // found.pieces
    p.text(left, top - 8, f"The keys of one head: {found.pieces} pieces of {each} blocks", 13, anchor="start", weight="bold")
    for piece in range(found.pieces):
        p.block(left + piece * width, top, width - 3, 26, f"CTA {piece}", BLUE, 12)
    top, width = 290, 0.6 * wide / 8
    p.line(left, 242, left, top, INK.line, 1.2, "4 3")
    p.line(left + wide / found.pieces / each, 242, left + 8 * width, top, INK.line, 1.2, "4 3")
    for warp in range(8):
        p.block(left + warp * width, top, width - 3, 26, f"w{warp}", ORANGE, 12)
    p.text(left, top + 44, "One block of CTA 0: 128 keys, 16 per warp, each warp with a ring of its own", 12, INK.muted, "start")
    top = 366
    boxes = ((24, 190, ["in each warp", "O, maximum, sum", "of its 16 rows"], ORANGE), (284, 190, ["in each CTA", "the parts of 8 warps", "become one part"], BLUE),
             (544, 312, ["in the CTA that comes last", f"the parts of {found.pieces} CTAs become one,", "divided by its sum: a row of O"], GREEN))
    for x, breadth, words, look in boxes:
        p.box(x, top, breadth, 66, words, *look)
    p.arrows(INK.line, 1.8, (218, top + 33, 280, top + 33), (478, top + 33, 540, top + 33))
    p.text(249, top + 22, "shared", 11.5, INK.muted)
    p.text(509, top + 22, "global", 11.5, INK.muted)
    p.note(458, "Every arrow is the same merge: the part with the smaller maximum is multiplied by 2 to the power of the difference.", size=12)


# ---- what may happen to a score -----------------------------------------------------------------------------------------

ROWS = ((4,), (1, 6), (5, 2, 3), (3, 5, 2, 7))  # scores under a causal mask; the last row is the one of the chapter's table
WINDOW, CAP, SINK = 2, 5, 6


@figure("scores", None, "beyond/scores: a window, a sink, a softcap and ALiBi on the scores of four queries", narrow=430, bands=[Band(0, title=False)])
def on_scores(p):
    wide, unit = p.width > 600, 31
    p.head("Four queries and four keys under a causal mask: what becomes of S", "a row: a query; a column: a key; a cell: its score")

    def capped(score):
        return f"{CAP * math.tanh(score / CAP):.1f}"

    panels = (("as it is", "a row's sum has", "a term per cell", lambda i, j, s: (str(s), BLUE)),
              (f"a window of {WINDOW}", "terms are", "left out", lambda i, j, s: (str(s), BLUE) if i - j < WINDOW else ("", GREY)),
              (f"a sink of {SINK}", "there is", "one term more", lambda i, j, s: (str(s), BLUE)),
              (f"a softcap of {CAP}", "each term is another,", f"none above {CAP}", lambda i, j, s: (capped(s), ORANGE)),
              ("ALiBi, slope 1", "a key loses more,", "the further away", lambda i, j, s: (str(s - i + j), ORANGE if i > j else BLUE)))
    for number, (title, one, other, cell) in enumerate(panels):
        column, line = (number, 0) if wide else (number % 2, number // 2)
        x, y = 24 + column * (170 if wide else 204), 96 + line * 212
        p.text(x, y - 10, title, 13, anchor="start", weight="bold")
        for i, row in enumerate(ROWS):
            for j in range(len(ROWS)):
                words, look = cell(i, j, row[j]) if j <= i else ("", GREY)
                p.rect(x + j * unit, y + i * unit, unit - 3, unit - 3, *look, 2)
                if words:
                    p.text(x + j * unit + (unit - 3) / 2, y + i * unit + 18.5, words, 12)
            if "sink" in title:
                p.block(x + len(ROWS) * unit + 5, y + i * unit, unit - 3, unit - 3, str(SINK), GREEN, 12, radius=2)
        p.lines(x, y + len(ROWS) * unit + 14, 16, (one, other), 12)
    p.height = y + len(ROWS) * unit + 74
    p.note(p.height - 16, "A cell is changed by itself, without a look at the others. Grey cells have no weight, and green ones no key.", size=12)


# ---- TMA without wgmma --------------------------------------------------------------------------------------------------

Budget = namedtuple("Budget", "rows keys stages flops wavefronts exponentials")  # the last three: of a tile of keys


def budget():
    head_dim = 128
    warps, rows, keys, stages = (constant("tma_without_wgmma", name) for name in ("kWarps", "kBlockM", "kBlockN", "kStages"))
    # Per 16 columns of Q one ldmatrix and one per 16 keys of K; per 16 keys one per 16 columns of V. Each is four wavefronts.
    reads = head_dim // 16 * (1 + keys // 16) + keys // 16 * (head_dim // 16)
    return Budget(rows, keys, stages, 4 * rows * keys * head_dim, 4 * warps * reads, rows * keys)


@figure("tma_without_wgmma", None, "beyond/tma_without_wgmma: what it has of shared memory, and what a tile costs on two GPUs", narrow=430,
        bands=[Band(0, title=False)])
def without_wgmma(p):
    found, wide = budget(), p.width > 600
    left, full = (214, p.width - 214 - 96) if wide else (24, p.width - 48)
    most, kib = 227, 1024

    def name(y, title, what):
        if wide:
            p.text(left - 14, y + 13, title, 13, anchor="end", weight="bold")
            p.text(left - 14, y + 30, what, 12, INK.muted, "end")
        else:
            p.text(left, y - 8, f"{title} {what}", 12.5, anchor="start", weight="bold")

    p.head("Shared memory of a CTA, to scale", "KB of what a CTA may have there, with head_dim 128")
    step, top = (56, 72) if wide else (72, 92)
    k13 = constant("13", "kBlockN") * 256 // kib
    tile = found.keys * 256 // kib
    for i, (title, what, rows, stage, stages, limit) in enumerate((
            ("kernel 13", "on Hopper", 32, k13, constant("13", "kStages"), most),
            ("this kernel", "on RTX 50 as well", found.rows * 256 // kib, tile, found.stages, constant("tma_without_wgmma", "kMostBytes") // kib))):
        y, x = top + i * step, left
        name(y, title, what)
        for label, size, look in (("Q", rows, GREEN), *((f"K{n}", stage, BLUE) for n in range(stages)),
                                  *((f"V{n}", stage, ORANGE) for n in range(stages)), ("free", 0, GREY)):
            size = size or limit - rows - 2 * stages * stage
            breadth = size * full / most
            p.rect(x, y, breadth - 1.5, 36, *look, 3)
            if breadth > 20:
                p.text(x + breadth / 2, y + 15, label, 12)
                p.text(x + breadth / 2, y + 30, str(size), 11.5, INK.muted)
            x += breadth
    y = top + 2 * step + (26 if wide else 18)
    p.heading(f"One tile of {found.keys} keys, in cycles of an SM", f"{found.rows} query rows; each bar as if nothing else took time", y=y)
    longest = found.flops / machine_named("rtx5090")[1]["sm"]["mma_flops"]
    y += 42 if wide else 56
    for title, card in (("H200", BOOK), ("RTX 5090", "rtx5090")):
        sm = machine_named(card)[1]["sm"]
        name(y, title, "by mma.sync")
        for row, (label, cycles, look) in enumerate((("products", found.flops / sm["mma_flops"], GREEN), ("reads of shared memory", found.wavefronts, BLUE),
                                                     ("exponentials", found.exponentials / sm["exp2"], ORANGE))):
            at, breadth = y + row * 24, cycles * full / longest
            p.rect(left, at, breadth, 20, *look, 3)
            words = f"{label}: {cycles:,.0f}"
            if breadth > 240:
                p.text(left + 8, at + 14.5, words, 12, anchor="start")
            else:
                p.text(left + breadth + 8, at + 14.5, words, 12, INK.muted, "start")
        y += 98 if wide else 112
    p.height = y + 4
    p.note(y - 8, "No kernel can be faster than its longest bar.", size=12)


# ---- what a rotation does -----------------------------------------------------------------------------------------------

COLUMNS, OUTLIER = 128, 41  # of a row; where its large number is


def rotated(row):
    """As common/launch/rotation.h does it, divided by the square root of the columns."""
    row = [-x if column * column * 0x9E3779B1 >> 31 & 1 else x for column, x in enumerate(row)]
    distance = 1
    while distance < COLUMNS:
        row = [row[c - distance] - x if c & distance else x + row[c + distance] for c, x in enumerate(row)]
        distance *= 2
    return [x / math.sqrt(COLUMNS) for x in row]


@figure("fp8_rotation", 316, "beyond/fp8: the products of one score, as they are and rotated",
        "The 128 products of one score, by size", "a bar: one column of the query times that of the key", parts=((0, 430), (430, 880)))
def rotation(p):
    numbers = random.Random(1)
    q, k = ([numbers.gauss(0, 1) for _ in range(COLUMNS)] for _ in range(2))
    q[OUTLIER], k[OUTLIER] = 1.5, 14.0
    unit, bottom, per = 3, 250, 7.5
    for x, title, rows in ((24, "As they are: one stands out", (q, k)), (454, "Rotated: none does", (rotated(q), rotated(k)))):
        products = [a * b for a, b in zip(*rows)]
        p.text(x, 82, title, 13, anchor="start", weight="bold")
        for column, product in enumerate(products):
            look = (ORANGE if abs(product) > 10 else BLUE)[1]
            p.rect(x + column * unit, bottom - per * abs(product), unit - 0.6, per * abs(product), look)
        p.line(x, bottom, x + COLUMNS * unit, bottom, INK.line, 1.2)
        p.text(x, bottom + 20, f"sum {sum(products):.1f}, the largest {max(map(abs, products)):.1f}", 12, INK.muted, "start")
    p.note(302, "Rounding makes each product wrong by a few percent of its own height. The sum, which is the score, is the same.", size=12)


# ---- who owns which gradient --------------------------------------------------------------------------------------------

@figure("backward_owners", 424, "backward: which CTA has which tiles, and where their sums go",
        "384 queries, 384 keys, three CTAs", "a cell: S, P, dP and dS of 64 queries and 128 keys", width=560)
def owners(p):
    left, top, wide, high, rows = 138, 112, 102, 34, 6
    looks, end = (BLUE, ORANGE, GREEN), left + 3 * wide
    for column, look in enumerate(looks):
        x = left + column * wide
        p.lines(x + wide / 2, top - 25, 15, (f"CTA {column}", f"keys {128 * column} to {128 * column + 127}"), 12, INK.text, "middle")
        for row in range(rows):
            p.block(x + 3, top + row * high, wide - 6, high - 5, "S  P  dP  dS", look, 12)
        p.block(x + 12, top + rows * high + 30, wide - 24, 30, "dK, dV", (look[1], look[1]), 12.5, INK.background)
        p.arrow(x + wide / 2, top + rows * high - 2, x + wide / 2, top + rows * high + 27, look[1], 2.4)
    for row in range(rows):
        y = top + row * high + (high - 5) / 2
        p.text(left - 10, y + 4, f"queries {64 * row} to {64 * row + 63}", 12, INK.muted, "end")
        p.arrow(end + 4, y, end + 34, y, INK.line, 1.8)
        p.block(end + 38, y - 13, 56, 26, "dQ", GREY, 12.5)
    p.lines(left - 10, top + rows * high + 42, 15, ("in registers", "of one CTA"), 12, INK.muted, "end")
    p.lines(end + 66, top + rows * high + 42, 15, ("added up in", "global memory"), 12, INK.muted, "middle")
    p.note(404, "Down a column nothing is shared. Along a row three CTAs each have a part of dQ.", size=12)
