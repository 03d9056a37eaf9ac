"""The pictures of kernels 12 to 16: barriers, copies and schedules. What can be computed is: places by the layout's
formulas, numbers by the kernels' own constants, schedules by following the kernels' waits step by step."""

import math
import re
from collections import namedtuple

from fa_tools.figures import layouts
from fa_tools.figures.drawing import BLUE, GREEN, GREY, INK, ORANGE, Picture, constant
from fa_tools.tools import ROOT


# --- 12 ----------------------------------------------------------------------------------------------------------

Tile = namedtuple("Tile", "number stage phase asked arrives read released")


def follow_ring(stages, tiles, load=1.25, use=1.0, issue=0.22):
    """When each tile is asked for, arrives, is read and released, with one thread that loads and one reader."""
    ring, free, done = [], 0.0, 0.0
    for n in range(tiles):
        released = ring[n - stages].released if n >= stages else 0.0
        asked = max(free, released)
        free = asked + issue
        read = max(done, asked + load)
        done = read + use
        ring.append(Tile(n, n % stages, n // stages, asked, asked + load, read, done))
    return ring


def phases():
    """The phases of full and empty barriers over a ring of stages."""
    stages = constant("12", "kStages")
    tiles = 3 * stages
    ring = follow_ring(stages, tiles)
    high, gap, left, right, top = 28, 26, 150, 862, 76
    block = 3 * high + gap
    p = Picture(880, top + stages * block + 92, "Kernel 12: phases of the full and empty barriers")
    p.heading(f"The barriers of K's {stages} stages: a phase ends, the next one begins, its parity is the other one",
              "time runs to the right; number: the phase; colour: its parity")
    parities = (BLUE, ORANGE)
    for x, name, (fill, stroke) in ((400, "parity 0", parities[0]), (490, "parity 1", parities[1])):
        p.rect(x, 39, 14, 14, fill, stroke)
        p.text(x + 20, 50, name, 12, anchor="start")
    end = ring[2 * stages].released + 0.4
    scale = (right - left) / end

    def x(time):
        return left + min(time, end) * scale

    def band(y, begin, until, phase, what):
        if begin >= end:
            return
        fill, stroke = parities[phase % 2]
        p.rect(x(begin), y + 2, x(until) - x(begin) - 2, high - 6, fill, stroke, 3)
        wide = x(until) - x(begin)
        p.text(x(begin) + wide / 2 - 1, y + high / 2 + 2.5, f"{phase}: {what}" if wide > 200 else str(phase), 11.5)

    for stage in range(stages):
        y = top + stage * block
        p.text(24, y + 1.5 * high + 4, f"stage {stage}", 14, anchor="start", weight="bold")
        for row, name in enumerate(("full", "its tile", "empty")):
            color = INK.muted if row == 1 else INK.text
            p.text(left - 10, y + row * high + high / 2 + 3.5, name, 12.5, color, "end")
        p.rect(left, y + high, right - left, high - 2, INK.cell)
        mine = [tile for tile in ring if tile.stage == stage]
        for before, tile in zip([None, *mine], mine):
            full, empty = (before.arrives, before.released) if before else (0.0, 0.0)
            band(y, full, tile.arrives, tile.phase, "ends as the bytes have come")
            band(y + 2 * high, empty, tile.released, tile.phase, "ends as all warps have arrived")
            for begin, until, what, color in ((tile.asked, tile.arrives, f"{tile.number} comes", INK.muted),
                                              (tile.read, tile.released, f"{tile.number} is read", INK.green)):
                if begin < end:
                    p.rect(x(begin) + 1, y + high + 3, x(until) - x(begin) - 3, high - 8,
                           INK.green_soft if color == INK.green else INK.background, color, 3)
                    if x(until) - x(begin) > 54:
                        p.text((x(begin) + x(until)) / 2, y + 1.5 * high + 3, what, 11)
            if tile.arrives < end:  # who waits for the end of a phase
                p.line(x(tile.arrives), y + 2, x(tile.arrives), y + 2 * high - 5, INK.text, 2)
            if tile.released < end:
                p.line(x(tile.released), y + high + 3, x(tile.released), y + 3 * high - 4, INK.text, 2)
    y = top + stages * block
    p.line(30, y - 12, 30, y + 6, INK.text, 2)
    for at, text in (
            (0, "the end of a phase: of full, who multiplies may read (waits for parity n / kStages % 2); of empty, the next load "
                "into the stage may begin,"),
            (18, "for which its thread waits by parity (n / kStages + 1) % 2: that of the phase before. n: the tile."),
            (44, f"The first {stages} loads ask for parity 1 while phase 0 runs: \"phase -1\" counts as ended, and they begin at "
                 "once."),
            (62, "Nobody can be two phases late: a stage is not filled again before all who read it have arrived at empty.")):
        p.text(42, y + at, text, 12, INK.muted, "start")
    return p


def boxes():
    """A tile of K in global memory as two boxes, and where their chunks come to lie."""
    rows, head_dim = constant("12", "kBlockN"), 128
    slabs = constant("12", "kSlabs", head_dim)
    p = Picture(880, 476, "Kernel 12: the boxes of a tile, and the slabs that they become")
    colors = (BLUE, ORANGE)
    p.heading(f"A tile of K is {slabs} boxes of 64 columns and {rows} rows; TMA writes each as a slab",
              f"head_dim {head_dim}, 16-bit elements")
    # Left: the matrix of all heads' rows.
    x, y, wide, tall = 64, 96, 190, 250
    p.text(x + wide / 2, 84, "global memory: the rows of all heads", 13, weight="bold")
    p.rect(x, y, wide, tall, *GREY)
    for head in range(1, 3):
        p.line(x, y + tall * head / 3, x + wide, y + tall * head / 3, INK.line, 1.2, "4 3")
    for head in range(3):
        p.text(x - 8, y + tall * (head + 0.5) / 3 + 4, f"head {head}", 11.5, INK.muted, "end")
    at, high = y + tall / 3 + 26, 34
    for slab in range(slabs):
        p.rect(x + slab * wide / 2 + 1, at, wide / 2 - 2, high, *colors[slab])
        p.text(x + (slab + 0.5) * wide / 2, at + 21, f"box {slab}", 12)
    p.text(x, y + tall + 16, "0", 11, INK.muted, "start")
    p.text(x + wide / 2, y + tall + 16, "column 64", 11, INK.muted)
    p.text(x + wide, y + tall + 16, str(head_dim), 11, INK.muted, "end")
    p.arrow(x + wide + 62, at, x + wide + 3, at, INK.muted, 1.2)
    p.text(x + wide + 8, at - 20, "row head · seq_len", 11.5, INK.muted, "start")
    p.text(x + wide + 8, at - 6, f"+ n · {rows}", 11.5, INK.muted, "start")
    # Below: what the tensor map says.
    lines = (("tensor map of K:", ""), ("sizes", f"{head_dim}, rows of all heads"),
             ("stride", f"{2 * head_dim} bytes a row"), ("box", f"64 x {rows}"), ("swizzle", "128 bytes"))
    for i, (name, what) in enumerate(lines):
        p.text(44, y + tall + 42 + 17 * i, name, 12, INK.text if not i else INK.muted, "start", "bold" if not i else None)
        p.text(120, y + tall + 42 + 17 * i, what, 12, anchor="start", mono=True)
    # Middle: the slabs.
    sx, sy, sw, sh = 402, 96, 110, 108
    p.text(sx + sw / 2, 84, "shared memory", 13, weight="bold")
    for slab in range(slabs):
        top = sy + slab * (sh + 4)
        p.rect(sx, top, sw, sh, *colors[slab])
        p.text(sx + sw / 2, top + sh / 2 - 4, f"slab {slab}", 13, weight="bold")
        p.text(sx + sw / 2, top + sh / 2 + 14, f"{layouts.slab_bytes(rows):,} bytes", 12, INK.muted)
        p.arrow(x + wide + 70, at + high / 2 + 5, sx - 4, top + sh / 2, colors[slab][1])
    p.text(sx + sw / 2, sy + 2 * sh + 24, "128 bytes a row,", 12, INK.muted)
    p.text(sx + sw / 2, sy + 2 * sh + 40, "128 rows each", 12, INK.muted)
    p.text(sx + sw / 2, sy + 2 * sh + 66, "one mbarrier counts", 12, INK.muted)
    p.text(sx + sw / 2, sy + 2 * sh + 82, f"{slabs} · {layouts.slab_bytes(rows):,} bytes", 12, INK.muted)
    # Right: an atom of a slab.
    ax, ay, cell, line = 586, 116, 34, 22
    p.text(ax + 4 * cell, 84, "the first rows of slab 0", 13, weight="bold")
    p.text(ax + 4 * cell, 104, "number: which chunk of 8 columns lies there", 11.5, INK.muted)
    for row in range(12):
        yy = ay + row * line + (6 if row >= 8 else 0)
        met = set()
        for chunk in range(8):
            offset = layouts.slab_offset(rows, row, 8 * chunk)
            assert offset // 128 == row
            place = offset % 128 // 16
            assert place == layouts.swizzle(row, chunk)
            met.add(place)
            hit = chunk == 2
            p.rect(ax + place * cell, yy, cell - 2, line - 2, INK.orange if hit else INK.blue_soft, None, 2)
            p.text(ax + place * cell + cell / 2 - 1, yy + 14.5, str(chunk), 11, INK.background if hit else INK.text,
                   weight="bold" if hit else None)
        assert len(met) == 8
        p.text(ax - 8, yy + 14.5, str(row), 11, INK.muted, "end")
    p.line(sx + sw + 3, sy + 4, ax - 26, ay, INK.line, 1)
    yy = ay + 12 * line + 32
    p.text(ax + 4 * cell, yy, "chunk c of row r in place c ^ (r mod 8)", 13, INK.orange, weight="bold")
    p.text(ax + 4 * cell, yy + 20, "the XOR of kernel 08, now done by the engine:", 12, INK.muted)
    p.text(ax + 4 * cell, yy + 36, "what threads of 11 computed for each address", 12, INK.muted)
    return p


# --- 13 ----------------------------------------------------------------------------------------------------------


def producer_consumers():
    """Who waits for which barrier, and who ends its phases."""
    stages, warps = constant("13", "kStages"), 4 * constant("13", "kWarpgroups")
    p = Picture(880, 440, "Kernel 13: a producer, two consumers, and the barriers between them")
    p.heading("Who waits for whom: nothing but the stages' barriers",
              f"K's {stages} stages; V's are the same, with barriers of their own")
    left, wide, top, bottom = 318, 230, 78, 358
    high = (bottom - top - 12 * (stages - 1)) / stages
    p.box(24, 138, 150, 160, ["producer", "one thread:", "wait empty", "announce the bytes", "start the copy"], *BLUE)
    for stage in range(stages):
        y = top + stage * (high + 12)
        p.rect(left, y, wide, high, *GREY, 6)
        p.text(left + 12, y + high / 2 + 5, f"stage {stage}", 13.5, anchor="start", weight="bold")
        bar = (high - 18) / 2
        p.box(left + 100, y + 6, 118, bar, ["full"], *BLUE, size=12.5)
        p.box(left + 100, y + 12 + bar, 118, bar, ["empty"], *ORANGE, size=12.5)
    middle = (top + bottom) / 2
    p.arrow(176, middle - 44, left - 4, middle - 44, INK.blue, 2.6)
    p.text(247, middle - 70, "TMA brings tile n:", 12, INK.blue, weight="bold")
    p.text(247, middle - 55, "its bytes end full's phase", 11.5, INK.muted)
    p.arrow(left - 4, middle + 40, 176, middle + 40, INK.orange, 2.6)
    p.text(247, middle + 60, "waits for empty", 12, INK.orange, weight="bold")
    p.text(247, middle + 75, "of tile n - kStages", 11.5, INK.muted)
    for consumer, y in enumerate((top, bottom - 120)):
        p.box(700, y, 156, 120, [f"consumer {consumer}", "4 warps: wait full", "multiply, wgmma_wait", "arrive at empty"], *GREEN)
        p.arrow(left + wide + 4, y + 38, 697, y + 38, INK.blue, 2.6)
        p.arrow(697, y + 76, left + wide + 4, y + 76, INK.orange, 2.6)
        p.text(624, y + 28, "waits for full", 12, INK.blue, weight="bold")
        p.text(624, y + 95, "4 arrivals at empty", 12, INK.orange, weight="bold")
    p.text(440, 396, f"A phase of full: 1 arrival and a tile's bytes. A phase of empty: {warps} arrivals, one of each consumer "
           "warp.", 13)
    p.note(420, f"The producer may be {stages} tiles ahead of the slower consumer. Whoever is too early waits, "
           "and nobody else does.")
    return p


def registers():
    """What setmaxnreg moves, to scale."""
    threads, launch = constant("13", "kThreads"), constant("13", "kLaunchRegisters")
    low, high = constant("13", "kProducerRegisters"), constant("13", "kConsumerRegisters")
    consumers, all_of_them = constant("13", "kWarpgroups"), 65536
    p = Picture(880, 372, "Kernel 13: setmaxnreg, to scale")
    p.heading(f"An SM's {all_of_them:,} registers of 32 bits: {threads} threads begin with {launch} each", "to scale")
    left, scale = 24, 832 / all_of_them

    def row(y, title, parts):
        p.text(left, y - 8, title, 13, anchor="start", weight="bold")
        x = left
        for size, name, (fill, stroke) in parts:
            wide = size * scale
            p.rect(x, y, wide - 2, 44, fill, stroke, 3)
            if wide > 120:
                p.text(x + wide / 2, y + 19, name, 12.5, weight="bold")
                p.text(x + wide / 2, y + 36, f"{size:,}", 12, INK.muted)
            x += wide
        rest = left + 832 - x
        if rest > 2:
            p.rect(x, y, rest, 44, INK.cell)

    group = 128
    before = [(group * launch, f"consumer {i}: {group} · {launch}", GREEN) for i in range(consumers)]
    after = [(group * high, f"consumer {i}: {group} · {high}", GREEN) for i in range(consumers)]
    given, small = group * (launch - low), (group * low, "", BLUE)
    row(86, "at the launch", [*before, (group * launch, f"producer: {group} · {launch}", BLUE)])
    row(180, f"the producer has executed setmaxnreg.dec {low}",
        [*before, (given, f"free: {group} · {launch - low}", GREY), small])
    row(274, f"both consumers have executed setmaxnreg.inc {high}", [*after, small])
    wanted = consumers * group * (high - launch)
    assert wanted <= given
    p.text(440, 344, f"The consumers want {consumers} · {group} · {high - launch} = {wanted:,}; the producer has given back "
           f"{given:,}" + (", exactly as much." if wanted == given else f", {given - wanted:,} more than that."), 13)
    left_over = all_of_them - threads * launch
    p.note(363, f"Blue, right: the producer, {group} · {low} = {group * low:,}. Grey, right: {left_over:,} too few for "
           "another 8 a thread.", 12)
    return p


# --- 14 ----------------------------------------------------------------------------------------------------------

PRODUCT = 512  # cycles: Q K^T or P V of a tile, eight wgmma of 64
SOFTMAX = 760  # assumed: 512 of exponentials alone, and more instructions than these
REST = 60  # assumed: what comes after the second wait
ISSUE = 40  # from the beginning of a turn to its end: sixteen wgmma are started
Turn = namedtuple("Turn", "consumer tile begin qk pv softmax last waits")


def follow_turns(turns, ping_pong, overlap, consumers=2, late=None):
    """The main loop of kernel 14, turn by turn: the Tensor Cores take products in the order in which they were started.
    `late`: (consumer, tile): by how much its softmax is longer."""
    done, free, ended, made = [0.0] * consumers, 0.0, 0.0, []
    for tile in range(1, turns + 1):
        for consumer in sorted(range(consumers), key=lambda c: (done[c], c)) if not ping_pong else range(consumers):
            ready = done[consumer]
            begin = max(ready, ended) if ping_pong else ready
            ended = begin + ISSUE
            qk = max(free, begin)
            pv = qk + PRODUCT
            free = pv + PRODUCT
            softmax = pv if overlap else free
            last = max(softmax + SOFTMAX + (late or {}).get((consumer, tile), 0), free)
            done[consumer] = last + REST
            made.append(Turn(consumer, tile, begin, qk, pv, softmax, last, begin - ready))
    return made


class Lanes:
    """Rows of a schedule, to scale."""

    def __init__(self, picture, left, right, cycles):
        self.p, self.left, self.cycles = picture, left, cycles
        self.scale = (right - left) / cycles
        self.right = right

    def x(self, time):
        return self.left + min(time, self.cycles) * self.scale

    def lane(self, y, name, high=30):
        self.p.text(self.left - 12, y + high / 2 + 4, name, 12.5, anchor="end")
        self.p.rect(self.left, y, self.right - self.left, high, INK.cell, None, 4)

    def block(self, y, begin, end, text, fill, stroke, high=30, size=12):
        if begin >= self.cycles:
            return
        wide = self.x(end) - self.x(begin)
        self.p.rect(self.x(begin), y + 2, wide - 1.5, high - 4, fill, stroke, 3)
        for words in (text, *text.split()[:1]):
            if len(words) * size * 0.54 < wide - 4:
                self.p.text(self.x(begin) + wide / 2, y + high / 2 + 4, words, size)
                break


def colors_of(consumer):
    return (BLUE, ORANGE)[consumer]


def turns():
    """Two consumers taking turns, with the named barriers at their places in the code."""
    p = Picture(880, 504, "Kernel 14: ping-pong, with its named barriers")
    first = 3  # named barrier 3 + g
    delay = 1500
    p.heading("Ping-pong: the order of turns, held by two named barriers",
              f"to scale; QK, PV: {PRODUCT} cycles each; a softmax is assumed to take {SOFTMAX}, one of consumer 1 is {delay:,} "
              "late; kOverlap off")
    lanes = Lanes(p, 132, 862, 6000)
    made = follow_turns(4, ping_pong=True, overlap=False, late={(1, 1): delay})
    rows = {0: 84, 1: 222}
    lanes.lane(151, "Tensor Cores", 34)
    for consumer, y in rows.items():
        lanes.lane(y, f"consumer {consumer}")
    for before, turn in zip(made, made[1:]):  # from an arrival to the wait that it ends
        if turn.begin < lanes.cycles:
            down = before.consumer == 0
            p.arrow(lanes.x(before.begin + ISSUE), rows[before.consumer] + (32 if down else -2), lanes.x(turn.begin),
                    rows[turn.consumer] + (-5 if down else 35), colors_of(before.consumer)[1], 1.6)
    for turn in made:
        fill = colors_of(turn.consumer)
        y = rows[turn.consumer]
        lanes.block(151, turn.qk, turn.pv, f"QK {turn.tile}", *fill, high=34)
        lanes.block(151, turn.pv, turn.pv + PRODUCT, f"PV {turn.tile - 1}", *fill, high=34)
        lanes.block(y, turn.softmax, turn.last + REST, f"softmax {turn.tile}", *fill)
        if turn.waits > ISSUE:
            lanes.block(y, turn.begin - turn.waits, turn.begin, "waits for its turn", INK.background, INK.muted)
    for turn in made:
        if turn.begin < lanes.cycles:
            y, color = rows[turn.consumer], colors_of(turn.consumer)[1]
            p.line(lanes.x(turn.begin), y - 3, lanes.x(turn.begin), y + 33, color, 3)
    y = 296
    p.text(24, y, "In the code, by consumer g (barrier 0 is __syncthreads, 1 and 2 belong to the epilogue):", 13.5,
           anchor="start", weight="bold")
    code = (
        ("begin_turn()", f"barrier_sync({first} + g, 256)", "waits at its own barrier for the other's arrival", "thick line"),
        ("multiply_qk(n), multiply_pv(n - 1)", "wgmma, commit; twice", "started, not waited for: they queue in the Tensor Cores",
         ""),
        ("end_turn()", f"barrier_arrive({first + 1} - g, 256)", "arrives at the other's barrier and goes on", "arrow"),
        ("wgmma_wait, softmax", "", "its own products, then no more than registers", ""))
    for i, (what, how, why, mark) in enumerate(code):
        yy = y + 26 + 24 * i
        p.rect(24, yy - 15, 832, 21, INK.cell, None, 3)
        p.text(32, yy, what, 12, anchor="start", mono=True)
        p.text(292, yy, how, 12, INK.orange if how.startswith("barrier") else INK.muted, "start", mono=True)
        p.text(506, yy, why, 12, INK.muted, "start")
        p.text(850, yy, mark, 12, INK.text, "end", italic=True)
    p.note(424, f"Barrier {first}: consumer 0 waits, consumer 1 arrives. Barrier {first + 1}: the other way round. 128 threads "
           "wait and 128 arrive: 256 complete it.")
    p.note(446,
           "Before the loop consumer 1 arrives once, so that consumer 0 has the first turn. After the loop the last P V is a "
           "turn as well;")
    p.note(464, "consumer 1's has nobody to wait for it, so that its arrival is left out.")
    p.note(488, "A turn ends when its products are started; the other's queue up behind them. A late consumer holds up the other "
           "as well.")
    return p


def two_stages():
    """One consumer alone, without and with the overlap."""
    p = Picture(880, 480, "Kernel 14: a softmax under the product of the tile before")
    p.heading("One consumer: without and with kOverlap",
              f"to scale, if a softmax takes {SOFTMAX} cycles and the rest of a turn {REST}; the other consumer is "
              "left out")
    cycles = 4900
    lanes = Lanes(p, 132, 862, cycles)
    y = 84
    for overlap in (False, True):
        made = follow_turns(4, ping_pong=False, overlap=overlap, consumers=1)
        period = made[2].begin - made[1].begin
        title = "kOverlap: wgmma_wait<1>, the softmax, wgmma_wait<0>" if overlap else "without: wgmma_wait<0>, the softmax"
        p.text(24, y, title, 13.5, anchor="start", weight="bold")
        p.text(862, y, f"a turn: {period:,.0f} cycles", 13, INK.blue, "end", "bold")
        y += 12
        lanes.lane(y, "Tensor Cores", 34)
        lanes.lane(y + 42, "threads", 34)
        for turn in made:
            n = turn.tile
            lanes.block(y, turn.qk, turn.pv, f"S: QK {n}", *BLUE, high=34)
            lanes.block(y, turn.pv, turn.pv + PRODUCT, f"O: PV {n - 1}", *GREEN, high=34)
            lanes.block(y + 42, turn.softmax, turn.softmax + SOFTMAX, f"softmax of {n}", *ORANGE, high=34)
            lanes.block(y + 42, turn.last, turn.last + REST, "", *GREEN, high=34)
            if turn.softmax < cycles:
                p.arrow(lanes.x(turn.softmax), y + 30, lanes.x(turn.softmax), y + 47, INK.text, 1.4)
        y += 124
    p.note(y - 8, "Arrow: the wait after which the softmax begins. It needs S alone, and S was started first: "
           "wgmma_wait<1> is enough.")
    y += 16
    reasons = (
        ("P has two places", "the product under way reads P of tile n - 1; that of tile n goes into other registers"),
        ("O is rescaled late", "acc_o is what it writes; whether it must be rescaled is known before"),
        ("the gap that is left", "a softmax is longer than P V: the other consumer's products fill it"))
    for i, (what, why) in enumerate(reasons):
        p.rect(24, y + 26 * i - 2, 832, 22, INK.cell, None, 3)
        p.text(34, y + 26 * i + 13, what, 12.5, anchor="start", weight="bold")
        p.text(232, y + 26 * i + 13, why, 12.5, INK.muted, "start")
    p.note(y + 96, "Small green block: what needs O, rescaling where it is necessary.")
    return p


# --- 15 ----------------------------------------------------------------------------------------------------------


def boundary():
    """The turn that ends one query tile and begins the next, the one after it that stores O, and the two places of Q."""
    p = Picture(880, 526, "Kernel 15: the boundary between two query tiles")
    p.heading("The turn at the boundary: S of the next query tile, O of this one",
              "one consumer; columns are turns; the framed one stands between two rounds of the inner loop")
    mine, next_, free = BLUE, ORANGE, GREY
    left, wide, top, high = 152, 178, 102, 40
    heads = (("the last turn of tile t", "inner loop, n + 1 == tiles"), ("the boundary", "outer loop"),
             ("the first turn of t + 1", "inner loop, n = 1"), ("the next one", "inner loop, n = 2"))
    p.rect(left + wide, top - 40, wide, 9 * high + 30, "none", INK.text, 6, 1.6)
    for column, (name, what) in enumerate(heads):
        x = left + column * wide + wide / 2
        p.text(x, top - 20, name, 13, weight="bold")
        p.text(x, top - 5, what, 11.5, INK.muted)
    rescale = "rescale if the max grew"
    # Cells of the first `of_t` columns belong to tile t, the others to the next one.
    rows = (("S = QK of", ("t, the last keys", "t + 1, keys 0", "t + 1, keys 1", "t + 1, keys 2"), (0,)),
            ("under it", ("", "", "store_o: O of t", ""), (2,)),
            ("P V of", ("t, the last keys but one", "t, the last keys", "t + 1, keys 0: O = P V", "t + 1, keys 1"), (0, 1)),
            ("softmax of", ("t, the last keys", "t + 1: max = -inf, sum = 0", "t + 1, keys 1", "t + 1, keys 2"), (0,)),
            ("then, with O", (rescale, "O of t is whole, and stays", rescale, rescale), (0, 1)))
    for row, (name, cells, of_t) in enumerate(rows):
        y = top + row * high
        p.text(left - 12, y + 24, name, 13, anchor="end", weight="bold")
        for column, text in enumerate(cells):
            if text:
                p.rect(left + column * wide + 3, y + 4, wide - 6, high - 8, *(mine if column in of_t else next_), 4)
                p.text(left + column * wide + wide / 2, y + 24, text, 12)
    # The two places of Q, and the warps that fill and empty them. Times in turns.
    y = top + 5 * high + 26

    def span(row, begin, end, text, fill, stroke):
        x = left + begin * wide
        p.rect(x + 3, y + row * high + 4, (end - begin) * wide - 6, high - 8, fill, stroke, 4)
        p.text(x + (end - begin) * wide / 2, y + row * high + 24, text, 12)

    stored, out = 2.06, 2.56
    for row, name in enumerate(("sQ[t % 2]", "sQ[(t + 1) % 2]", "store warp")):
        p.text(left - 12, y + row * high + 24, name, 12.5, anchor="end", weight="bold")
    span(0, 0, 1.0, "Q of t", *mine)
    span(0, 1.0, 2.0, "read no more", *free)
    span(0, 2.0, out, "O of t", *mine)
    span(0, out, 4, "Q of t + 2 comes", *free)
    span(1, 0, 1.0, "Q of t + 1 is here", *next_)
    span(1, 1.0, 4, "Q of t + 1 is read", *next_)
    span(2, 0, stored + 0.04, "waits for o_full", *free)
    span(2, stored + 0.04, out, "O out", *mine)
    span(2, out, 4, "Q in, then waits for o_full", *free)
    at = left + stored * wide
    p.arrow(at, top + 2 * high - 4, at, y + 6, INK.blue, 2.2)
    p.text(at + 10, y - 6, "stmatrix, fence, arrive at o_full", 12, INK.blue, "start", "bold")
    at = left + (stored + 0.1) * wide
    p.arrow(at, y + high - 6, at, y + 2 * high + 3, INK.blue, 2.2)
    yy = y + 3 * high + 30
    p.note(yy, "The Tensor Cores see one sequence of turns: no product waits for an epilogue or a prologue, except in the first "
           "and last turn of the")
    p.note(yy + 18,
           "launch. O is packed while Q K of the next turn runs, and leaves while tile t + 1 is computed; Q of t + 2 comes "
           "into the same rows,")
    p.note(yy + 36, "by the same warp.")
    return p


def assignment():
    """Which CTA computes which query tile of which head, round by round."""
    sms, batch, heads, seq_len = 132, 4, 16, 4096
    a_head = seq_len // constant("15", "kBlockM")
    q_tiles = batch * heads * a_head
    rounds = -(-q_tiles // sms)
    p = Picture(880, 538, "Kernel 15: query tiles and CTAs")
    p.heading(f"{q_tiles:,} query tiles on {sms} SMs: CTA i has the tiles i, i + {sms}, i + {2 * sms}, ...",
              f"batch {batch}, {heads} heads, {seq_len} tokens; a cell is a query tile, two colours in turns are heads, {a_head} "
              "tiles each")
    left, top, cell, high = 84, 84, 5.85, 14
    colors = (INK.blue, INK.orange)
    for t in range(rounds):
        y = top + t * high
        runs = []
        for i in range(sms):
            tile = i + t * sms
            color = colors[tile // a_head % 2] if tile < q_tiles else INK.cell
            if runs and runs[-1][2] == color:
                runs[-1][1] = i + 1
            else:
                runs.append([i, i + 1, color])
        for begin, end, color in runs:
            p.rect(left + begin * cell, y, (end - begin) * cell, high - 3, color)
        p.text(left - 8, y + 10, f"t = {t}", 10.5, INK.muted, "end")
    for i in range(1, sms):  # the cells' edges
        p.line(left + i * cell, top, left + i * cell, top + rounds * high - 3, INK.background, 1)
    for i in (0, 32, 64, 96, 131):
        p.text(left + (i + 0.5) * cell, top - 6, str(i) if i else "CTA 0", 10.5, INK.muted)
    y = top + rounds * high + 18
    last = q_tiles - (rounds - 1) * sms
    at_once = max(len({(i + t * sms) // a_head for i in range(sms) if i + t * sms < q_tiles}) for t in range(rounds))
    p.text(left, y, f"the last round: {last} of {sms} SMs", 12.5, INK.text, "start", "bold")
    cells, mib = rounds * sms, 2 * seq_len * 128 * 2 // 2**20
    p.text(left + sms * cell, y, f"{q_tiles:,} of {rounds} · {sms} = {cells:,} cells: {100 * q_tiles / cells:.0f} %", 12.5,
           INK.text, "end", "bold")
    p.text(left, y + 18, f"at most {at_once} heads at a time: their K and V, {at_once} · {mib} MiB, stay in L2", 12.5, INK.muted,
           "start")
    y += 48
    p.text(24, y, "An SM, kernel 14: a CTA for each tile", 13.5, anchor="start", weight="bold")
    p.text(24, y + 58, "Kernel 15: one CTA", 13.5, anchor="start", weight="bold")
    lanes = Lanes(p, 24, 862, 1.0)
    tile, start, end = 0.2, 0.032, 0.026  # not to scale: a tile's turns; before and after them
    x = 0.0
    n = 0
    while x + start + tile + end <= 1.0:
        lanes.block(y + 10, x, x + start, "", *GREY, 26)
        lanes.block(y + 10, x + start, x + start + tile, f"turns of tile {n}", *colors_of(n % 2), 26)
        lanes.block(y + 10, x + start + tile, x + start + tile + end, "", *GREY, 26)
        x, n = x + start + tile + end, n + 1
    x = start
    lanes.block(y + 68, 0, start, "", *GREY, 26)
    for n in range(4):
        lanes.block(y + 68, x, x + tile, f"turns of tile {n}", *colors_of(n % 2), 26)
        x += tile
    lanes.block(y + 68, x, x + end, "", *GREY, 26)
    p.note(y + 116,
           "Grey: barriers, Q and the first K from memory; the last P V, O to memory. Nothing to multiply, in every tile "
           "of 14, once in 15. Not to scale.")
    return p


# --- 16 ----------------------------------------------------------------------------------------------------------


def bounds():
    """kMaxTileSum, kShare and kNear of kernel 16."""
    text = (ROOT / "kernels" / "16_max_free.cu").read_text(encoding="utf-8")
    return [float(re.search(rf"constexpr float {name} = ([\d.]+)f;", text)[1]) for name in ("kMaxTileSum", "kShare", "kNear")]


def exponents():
    """Where P may lie on the line of exponents, in bf16 and fp16, and what is in the way of whom."""
    p = Picture(880, 470, "Kernel 16: what a reference may be")
    p.heading("P = 2^(s - reference) on the line of exponents: the first score is as good as the maximum",
              "to scale, in units of log2; s: scores of a row and a tile of K, scaled")
    left, right, low, high = 172, 862, -165, 165
    most = math.log2(bounds()[0])

    def x(exponent):
        return left + (exponent - low) * (right - left) / (high - low)

    def bar(y, begin, end, fill, stroke=None, tall=24):
        p.rect(x(begin), y, x(end) - x(begin), tall, fill, stroke, 3)

    def formats(y, name, zero, overflow):
        p.text(left - 14, y + 17, name, 13, anchor="end", weight="bold")
        p.rect(left, y, right - left, 24, INK.cell, None, 3)
        bar(y, zero, overflow, *BLUE)
        bar(y, zero, most, *GREEN)
        p.line(x(0), y - 5, x(0), y + 29, INK.text, 2)
        p.text((x(low) + x(zero)) / 2, y + 16, "P is 0", 11.5, INK.muted)
        p.text((x(high) + x(overflow)) / 2, y + 16, "infinite", 11.5, INK.muted)
        p.text(x(zero), y - 8, f"2^{zero}", 11.5, INK.muted)
        if overflow > most + 20:
            p.text(x(overflow), y - 8, f"2^{overflow}", 11.5, INK.muted)
        p.text(x(most) + 2, y - 8, f"kMaxTileSum 2^{most:.0f}", 11.5, INK.green, "start" if overflow < most + 20 else "middle")

    formats(96, "bf16, fp32", -126, 128)
    p.text(x(0), 140, "1 = 2^0", 11.5, INK.text)
    spread = 13.0  # the largest of some hundred scores of N(0, 1) is about 4.5 nats above their mean: 6.5
    stands_out = 70 / math.log(2)
    examples = (
        ("15: row maximum", -spread, 0.0, None, "at most 1; where the reference lags behind, 2^8"),
        ("16: ordinary scores", -spread / 2, spread / 2, None, "the first score, which nobody has looked for: its P is 1"),
        ("100 nats higher", -spread / 2, spread / 2, None, "the same, as the first score is higher, too"),
        ("the first is the lowest", 0.0, spread, None, "P of up to 2^13"),
        ("one key 70 nats higher", -spread / 2, spread / 2, stands_out, "a sum above kMaxTileSum: the maximum"),
    )
    top, step = 164, 34
    p.line(x(most), 122, x(most), top + len(examples) * step - 8, INK.green, 1.2, "4 3")
    for i, (name, begin, end, alone, why) in enumerate(examples):
        y = top + i * step
        p.text(left - 14, y + 15, name, 12.5, anchor="end")
        bar(y, begin, end, INK.green, None, 20)
        if alone:
            bar(y, alone - 1.5, alone + 1.5, INK.orange, None, 20)
        wide = 5.8 * len(why) + 6  # the background, so that no dashed line crosses the words
        at = x(begin) - 5 - wide if alone else x(max(end, most)) + 6
        p.rect(at, y + 2, wide, 16, INK.background)
        p.text(at + wide - 3 if alone else at + 3, y + 15, why, 12, INK.muted, "end" if alone else "start")
    y = top + len(examples) * step + 34
    formats(y, "fp16", -25, 16)
    p.text(x(0), y + 44, "ends at 65504: it is what sets kMaxTileSum, for both types", 12, INK.muted)
    p.note(y + 78,
           "What is tested is a lane's sums of the tile, not each P: a sum is never less than its largest term, and an infinite one fails too.")
    return p


def careful():
    """The two states of a warp, and what a tile does in each."""
    p = Picture(880, 404, "Kernel 16: a warp is fast, or careful")
    p.heading("What a warp does with a tile of S, and when that changes", "each of the eight consumer warps by itself")
    most, share, near = bounds()
    fast, slow = GREEN, ORANGE
    p.box(60, 122, 250, 150, ["fast", "exponentials, with the reference", "as it is: the row's first score,", "or a maximum of before",
                              "look at the sums, vote"], *fast, size=14)
    p.box(570, 122, 250, 150, ["careful", "maximum first: of a first tile,", "later of all so far, P at most 1", "exponentials,",
                               "O rescaled where it has grown"], *slow, size=14)
    p.arrow(314, 164, 566, 164, INK.orange, 2.6)
    p.text(440, 117, f"a lane's sum is more than {share:.0f} times", 12.5, INK.orange, weight="bold")
    p.text(440, 134, f"all before, or more than 2^{math.log2(most):.0f}:", 12.5, INK.orange, weight="bold")
    p.note(151, "this tile once more, carefully", 12)
    p.arrow(566, 232, 314, 232, INK.green, 2.6)
    p.text(440, 252, "a query tile's first tile, with maxima", 12.5, INK.green, weight="bold")
    p.text(440, 269, "near those that the rows before", 12.5, INK.green, weight="bold")
    p.note(286, f"had in the end (by {near:.0f}, log2)", 12)
    for x, color, text in ((185, INK.green, "in range: all tiles, if scores are ordinary"),
                           (695, INK.orange, "all other tiles until then")):
        p.line(x - 46, 122, x - 46, 96, color, 2.6)
        p.line(x - 46, 96, x + 46, 96, color, 2.6)
        p.arrow(x + 46, 96, x + 46, 119, color, 2.6)
        p.text(x, 88, text, 12, INK.muted)
    p.note(326,
           "A tile that fails costs its exponentials twice. To stay careful costs a maximum a tile, as in kernel 13, and no exponential "
           "twice:")
    p.note(344,
           "so scores that grow without end are no worse than that. The way back is asked for once a query tile, where a new row begins.")
    p.note(374,
           "Lanes vote because the four lanes of a row must have the same reference, and the exchange of maxima needs all 32.")
    return p


HOPPER = {"12_phases": phases, "12_boxes": boxes, "13_ring": producer_consumers, "13_registers": registers,
          "14_turns": turns, "14_two_stages": two_stages, "15_boundary": boundary, "15_tiles": assignment,
          "16_exponents": exponents, "16_careful": careful}
