"""The pictures of kernels 12 to 16: barriers, copies and schedules. What can be computed is: places by the layout's
formulas, numbers by the kernels' own constants, schedules by following the kernels' waits step by step."""

import math
from collections import namedtuple

from fa_tools.cards import BOOK
from fa_tools.documents.figures.drawing import BLUE, GREEN, GREY, INK, ORANGE, Band, figure, places
from fa_tools.for_readers.limits import machine_named
from fa_tools.numbers import percent
from fa_tools.sources import constant


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


@figure("12_phases", None, "Kernel 12: phases of the full and empty barriers",
        bands=[Band(0), *(Band(top, ((150, 499.7), (499.7, 880)), 150) for top in (70, 180))])
def phases(p):
    stages = constant("12", "kStages")
    ring = follow_ring(stages, 3 * stages)
    high, gap, left, right, top = 28, 26, 150, 862, 76
    block = 3 * high + gap
    p.height = top + stages * block + 24
    p.head(f"The barriers of K's {stages} stages: a phase ends, the next one begins, its parity is the other one",
           "time runs to the right; number: the phase; colour: its parity")
    parities = (BLUE, ORANGE)
    for at, name, look in ((400, "parity 0", BLUE), (490, "parity 1", ORANGE)):
        p.key(at, 39, name, look, 12, drop=11)
    p.line(590, 38, 590, 54, INK.text, 2)
    p.text(600, 50, "the end of a phase", 12, anchor="start")
    end = ring[2 * stages].released + 0.4

    def x(time):
        return left + min(time, end) * (right - left) / end

    def band(y, begin, until, phase, what):
        wide = x(until) - x(begin)
        if begin < end:
            p.block(x(begin), y + 2, wide - 2, high - 6, f"{phase}: {what}" if wide > 200 else str(phase), parities[phase % 2], 11.5,
                    drop=3.5, radius=3)

    for stage in range(stages):
        y = top + stage * block
        p.text(24, y + 1.5 * high + 4, f"stage {stage}", 14, anchor="start", weight="bold")
        for row, name in enumerate(("full", "its tile", "empty")):
            p.text(left - 10, y + row * high + high / 2 + 3.5, name, 12.5, INK.muted if row == 1 else INK.text, "end")
        p.rect(left, y + high, right - left, high - 2, INK.cell)
        full, empty = 0.0, 0.0
        for tile in (tile for tile in ring if tile.stage == stage):
            band(y, full, tile.arrives, tile.phase, "ends when the bytes have come")
            band(y + 2 * high, empty, tile.released, tile.phase, "ends when all warps have arrived")
            full, empty = tile.arrives, tile.released
            for begin, until, what, look in ((tile.asked, tile.arrives, "comes", (INK.background, INK.muted)),
                                             (tile.read, tile.released, "is read", GREEN)):
                if begin < end:
                    p.rect(x(begin) + 1, y + high + 3, x(until) - x(begin) - 3, high - 8, *look, 3)
                    if x(until) - x(begin) > 54:
                        p.text((x(begin) + x(until)) / 2, y + 1.5 * high + 3, f"{tile.number} {what}", 11)
            if tile.arrives < end:  # who waits for the end of a phase
                p.line(x(tile.arrives), y + 2, x(tile.arrives), y + 2 * high - 5, INK.text, 2)
            if tile.released < end:
                p.line(x(tile.released), y + high + 3, x(tile.released), y + 3 * high - 4, INK.text, 2)
    p.note(top + stages * block + 6, "When a phase of full ends, the tile is there. When a phase of empty ends, all warps have released it, and the next may come.",
           size=12)


@figure("12_boxes", 476, "Kernel 12: the boxes of a tile, and the slabs that they become", parts=((0, 530), (530, 880)))
def boxes(p):
    rows, head_dim = constant("12", "kBlockN"), 128
    slabs, colors = constant("12", "kSlabs"), (BLUE, ORANGE)
    bytes_ = f"{constant('12', 'kSlabBytes'):,} bytes"
    p.head(f"A tile of K is {slabs} TMA boxes of 64 columns and {rows} rows; each arrives as a slab",
           f"head_dim {head_dim}, 16-bit elements")
    # Left: the heads of one sequence.
    x, y, wide, tall = 160, 96, 172, 250
    p.text(x + wide / 2, 84, "global memory, one sequence", 13, weight="bold")
    p.rect(x, y, wide, tall, *GREY)
    for head in range(3):
        if head:
            p.line(x, y + tall * head / 3, x + wide, y + tall * head / 3, INK.line, 1.2, "4 3")
        p.text(x + 8, y + tall * head / 3 + 18, f"head {head}", 11.5, INK.muted, "start")
    at, high = y + tall / 3 + 26, 34
    for slab in range(slabs):
        p.rect(x + slab * wide / 2 + 1, at, wide / 2 - 2, high, *colors[slab])
        p.text(x + (slab + 0.5) * wide / 2, at + 21, f"box {slab}", 12)
    p.text(x, y + tall + 16, "0", 11, INK.muted, "start")
    p.text(x + wide / 2, y + tall + 16, "column 64", 11, INK.muted)
    p.text(x + wide, y + tall + 16, str(head_dim), 11, INK.muted, "end")
    p.arrow(x - 22, at, x - 2, at, INK.muted, 1.2)
    p.lines(x - 26, at - 4, 15, ("head 1,", f"row n · {rows}"), 11.5, anchor="end")
    # Below: what the tensor map says.
    p.text(44, y + tall + 42, "tensor map of K:", 12, anchor="start", weight="bold")
    p.lines(44, y + tall + 59, 17, ("sizes", "strides", "box", "swizzle"))
    p.lines(120, y + tall + 59, 17, (f"{head_dim}, seq_len, heads, batch", "of row, head, sequence", f"64 x {rows} x 1 x 1", "128 bytes"),
            12, INK.text, mono=True)
    # Middle: the slabs.
    sx, sy, sw, sh = 384, 96, 110, 108
    p.text(sx + sw / 2, 84, "shared memory", 13, weight="bold")
    for slab in range(slabs):
        top = sy + slab * (sh + 4)
        p.rect(sx, top, sw, sh, *colors[slab])
        p.caption(sx + sw / 2, top + sh / 2 - 4, f"slab {slab}", bytes_)
    p.arrow(x + wide / 4, at, sx - 3, sy + sh / 2, INK.blue)
    p.arrow(x + wide, at + high / 2, sx - 3, sy + 1.5 * sh + 4, INK.orange)
    p.lines(sx + sw / 2, sy + 2 * sh + 24, 16, ("128 bytes per row,", "128 rows each"), anchor="middle")
    p.lines(sx + sw / 2, sy + 2 * sh + 66, 16, ("one mbarrier counts", f"{slabs} · {bytes_}"), anchor="middle")
    # Right: an atom of a slab.
    ax, ay, cell, line = 586, 116, 34, 22
    p.caption(ax + 4 * cell, 84, "the first rows of slab 0", "number: the chunk of 8 columns in this place", 13, 20, 11.5)
    for row in range(12):
        yy = ay + row * line + (6 if row >= 8 else 0)
        for chunk, place in enumerate(places(row)):
            p.chunk(ax + place * cell, yy, cell - 2, line - 2, chunk, chunk == 2, (INK.orange, INK.background),
                    (INK.blue_soft, INK.text))
        p.text(ax - 8, yy + 14.5, str(row), 11, INK.muted, "end")
    p.line(sx + sw + 3, sy + 4, ax - 26, ay, INK.line, 1)
    yy = ay + 12 * line + 32
    p.text(ax + 4 * cell, yy, "chunk c of row r in place c ^ (r mod 8)", 13, INK.orange, weight="bold")
    p.lines(ax + 4 * cell, yy + 20, 16, ("the XOR of kernel 08, now done by the engine:", "what threads of 11 computed for each address"),
            anchor="middle")


# Where the token of a stage is on its ring, clockwise: (name, its fill and the colour of its words, towards x, towards y).
PLACES = {"copy": ((INK.blue, INK.background), 0, -1), "full": ((INK.cell, INK.text), 1, 0), "read": ((INK.green, INK.background), 0, 1),
          "empty": ((INK.background, INK.text), -1, 0)}
Standing = namedtuple("Standing", "producer consumers stages")  # stages: (place, tile or None) of each


def standing(tiles, stages, now, issue):
    """What the roles do at this time and where the stages' tokens are, by the times of follow_ring."""
    def place(tile):
        return "copy" if now < tile.arrives else "full" if now < tile.read else "read"

    asked = [tile for tile in tiles if tile.asked <= now]
    held = [next(((place(tile), tile.number) for tile in asked if tile.stage == stage and now < tile.released), ("empty", None))
            for stage in range(stages)]
    reading = next((number for name, number in held if name == "read"), None)
    awaited = next(tile for tile in tiles if now < tile.read).stage
    return Standing(f"starts copy {asked[-1].number}" if now < asked[-1].asked + issue else f"waits for stage {len(asked) % stages}",
                    f"wait for stage {awaited}" if reading is None else f"read tile {reading}", held)


@figure("13_ring", 482, "Kernel 13: the rings of two stages, step by step", narrow=430)
def stage_rings(p):
    stages, warps = constant("13", "kStages"), 4 * constant("13", "kWarpgroups")
    p.head(f"Each of K's {stages} stages goes round a ring, whose gates are two barriers",
           f"V has {stages} stages more, with barriers of their own; the number: the tile in the stage")
    wide = p.width > 600

    def token(x, y, radius, name, text, size):
        fill, color = PLACES[name][0]
        p.block(x - radius, y - radius, 2 * radius, 2 * radius, text, (fill, INK.line if fill in (INK.cell, INK.background) else fill), size, color,
                4, radius, weight="bold")

    # the ring, with its places and what leads from one to the next
    x, y, radius, corner = (172, 218, 68, 56) if wide else (215, 190, 68, 56)
    p.rect(x - radius, y - radius, 2 * radius, 2 * radius, "none", INK.line, radius, 2)
    for name, (_, right, down) in PLACES.items():
        token(x + right * radius, y + down * radius, 23, name, name, 12)
    for right, down, words in ((1, -1, ("all bytes", "have come")), (1, 1, ("consumers", "wait for full")), (-1, 1, (f"{warps} warps", "arrive")),
                               (-1, -1, ("producer", "waits for empty"))):
        at, on = (x + right * corner, y + down * corner), (x + right * 0.707 * radius, y + down * 0.707 * radius)
        p.arrow(on[0] + 5 * down, on[1] - 5 * right, on[0] - 5 * down, on[1] + 5 * right, INK.line, 2)
        p.lines(at[0] + 8 * right, at[1] + (-12 if down < 0 else 14), 14, words, 11.5, INK.text, "start" if right > 0 else "end")
    p.lines(x, y + radius + 62, 17, ("blue: TMA copies a tile", "green: the consumers read it"), 12, INK.muted, "middle")
    # the steps
    issue = 0.22
    tiles = follow_ring(stages, 6, load=0.6, issue=issue)
    first = (322, 92) if wide else (16, 390)
    for number, now in enumerate((0.1, 0.5, 1.2, 1.7, 2.4, 2.7)):
        column, row = number % (3 if wide else 2), number // (3 if wide else 2)
        x, y, radius = first[0] + column * (184 if wide else 208), first[1] + row * 182, 35
        state = standing(tiles, stages, now, issue)
        p.text(x, y, f"{number + 1}", 14, anchor="start", weight="bold")
        for stage, (name, tile) in enumerate(state.stages):
            middle = x + 46 + 90 * stage
            p.rect(middle - radius, y + 52 - radius, 2 * radius, 2 * radius, "none", INK.line, radius, 1.4)
            p.text(middle, y + 56, f"stage {stage}", 10.5, INK.muted)
            _, right, down = PLACES[name]
            token(middle + right * radius, y + 52 + down * radius, 12, name, "" if tile is None else str(tile), 12.5)
        p.text(x + 91, y + 122, f"producer {state.producer}", 12, INK.blue)
        p.text(x + 91, y + 138, f"consumers {state.consumers}", 12, INK.green)
    p.note(454, f"A phase of full: 1 arrival and a tile's bytes. A phase of empty: {warps} arrivals, one of each consumer warp.",
           f"So the producer is at most {stages} tiles ahead of the slower consumer. The two consumers are drawn as one.", size=12)


@figure("13_registers", 412, "Kernel 13: setmaxnreg, to scale", narrow=430)
def registers(p):
    threads, launch = constant("13", "kThreads"), constant("13", "kLaunchRegisters")
    low, high = constant("13", "kProducerRegisters"), constant("13", "kConsumerRegisters")
    consumers, all_of_them, group, left, full = constant("13", "kWarpgroups"), 65536, 128, 24, p.width - 48
    p.head(f"An SM's {all_of_them:,} registers of 32 bits: {threads} threads begin with {launch} each", "to scale")
    before = [(group * launch, f"consumer {i}: {group} · {launch}", GREEN) for i in range(consumers)]
    after = [(group * high, f"consumer {i}: {group} · {high}", GREEN) for i in range(consumers)]
    given, small = group * (launch - low), (group * low, "", BLUE)
    for y, title, parts in (
            (86, "at the launch", [*before, (group * launch, f"producer: {group} · {launch}", BLUE)]),
            (190, f"the producer has executed setmaxnreg.dec {low}",
             [*before, (given, f"free: {group} · {launch - low}", GREY), small]),
            (294, f"both consumers have executed setmaxnreg.inc {high}", [*after, small])):
        p.text(left, y - 8, title, 13, anchor="start", weight="bold")
        x = left
        for size, name, look in parts:
            wide = size * full / all_of_them
            p.rect(x, y, wide - 2, 58, *look, 3)
            if name:
                whose, product = name.split(": ")
                p.caption(x + wide / 2, y + 18, whose, product, 12.5, 16)
                p.text(x + wide / 2, y + 50, f"{size:,}", 12, INK.muted)
            x += wide
        if left + full - x > 2:
            p.rect(x, y, left + full - x, 58, INK.cell)
    wanted = consumers * group * (high - launch)
    assert wanted <= given
    left_over = all_of_them - threads * launch
    p.note(380, f"The consumers ask for {consumers} · {group} · {high - launch} = {wanted:,}; the producer has given back "
           f"{given:,}" + (", exactly as much." if wanted == given else f", {given - wanted:,} more than that."),
           f"Blue, right: the producer, {group} · {low} = {group * low:,}. Grey, right: {left_over:,}, too few for "
           "another 8 per thread.", size=12)


PRODUCT = 512  # cycles: QK^T or PV of a tile, eight wgmma of 64
SOFTMAX = 1000  # about what an H200's recorded timeline shows: 512 of exponentials alone, and more instructions than these
REST = 60  # assumed: what comes after the second wait
ISSUE = 40  # from the beginning of a turn to its end: sixteen wgmma are started
Turn = namedtuple("Turn", "warpgroup tile begin qk pv softmax last")


def follow_turns(iterations, ping_pong, overlap, warpgroups=2):
    """The main loop of kernel 14, turn by turn: the Tensor Cores take products in the order in which they were started."""
    done, free, ended, made = [0.0] * warpgroups, 0.0, 0.0, []
    for tile in range(1, iterations + 1):
        for warpgroup in range(warpgroups) if ping_pong else sorted(range(warpgroups), key=lambda g: (done[g], g)):
            begin = max(done[warpgroup], ended) if ping_pong else done[warpgroup]
            ended = begin + ISSUE
            qk = max(free, begin)
            pv = qk + PRODUCT
            free = pv + PRODUCT
            softmax = pv if overlap else free
            last = max(softmax + SOFTMAX, free)
            done[warpgroup] = last + REST
            made.append(Turn(warpgroup, tile, begin, qk, pv, softmax, last))
    return made


class Lanes:
    """Rows of a schedule, to scale."""

    def __init__(self, picture, left, right, cycles):
        self.p, self.left, self.right, self.cycles = picture, left, right, cycles

    def x(self, time):
        return self.left + min(max(time, 0), self.cycles) * (self.right - self.left) / self.cycles

    def lane(self, y, name, high=30):
        self.p.text(self.left - 12, y + high / 2 + 4, name, 12.5, anchor="end")
        self.p.rect(self.left, y, self.right - self.left, high, INK.cell, None, 4)

    def block(self, y, begin, end, text, look, high=30, size=12):
        """Returns where it ends, for the next one."""
        if begin < self.cycles and end > 0:
            wide = self.x(end) - self.x(begin)
            self.p.rect(self.x(begin), y + 2, wide - 1.5, high - 4, *look, 3)
            words = next((words for words in (text, *text.split()[:1]) if len(words) * size * 0.54 < wide - 4), "")
            if words:
                self.p.text(self.x(begin) + wide / 2, y + high / 2 + 4, words, size)
        return end


WARPGROUPS = (BLUE, ORANGE)


@figure("14_two_stages", 358, "Kernel 14: a softmax under the PV of the tile before", "One warpgroup: without and with the overlap",
        f"to scale: QK and PV take {PRODUCT} cycles each, a softmax about {SOFTMAX:,}; the other warpgroup is left out",
        bands=[Band(top, ((132, 496), (496, 880)), 132) for top in (60, 190)])
def two_stages(p):
    lanes = Lanes(p, 132, 862, 5100)
    for y, overlap, title in ((84, False, "without: wait for S and O, then the softmax"),
                              (206, True, "with: wait for S, the softmax, then wait for O")):
        made = follow_turns(4, ping_pong=False, overlap=overlap, warpgroups=1)
        p.text(24, y, title, 13.5, anchor="start", weight="bold")
        p.text(862, y, f"an iteration: {made[2].begin - made[1].begin:,.0f} cycles", 13, INK.blue, "end", "bold")
        lanes.lane(y + 12, "Tensor Cores", 34)
        lanes.lane(y + 54, "threads", 34)
        for turn in made:
            lanes.block(y + 12, turn.qk, turn.pv, f"QK {turn.tile}", BLUE, 34)
            lanes.block(y + 12, turn.pv, turn.pv + PRODUCT, f"PV {turn.tile - 1}", GREEN, 34)
            lanes.block(y + 54, turn.softmax, turn.softmax + SOFTMAX, f"softmax {turn.tile}", ORANGE, 34)
            lanes.block(y + 54, turn.last, turn.last + REST, "", GREEN, 34)
            if turn.softmax < lanes.cycles:
                p.arrow(lanes.x(turn.softmax), y + 42, lanes.x(turn.softmax), y + 59, INK.text, 1.4)
    p.note(326, "The arrow is the wait after which a softmax begins. It needs S only, and QK was started before PV.",
           "The small green block is what needs O: rescaling, in the few iterations that call for it.")


def three_steps(p, top, steps):
    """What is done in an order, side by side: each with its number, in code, and why."""
    for i, (what, why) in enumerate(steps):
        x = 24 + 280 * i
        p.rect(x, top, 272, 84, INK.cell, None, 3)
        p.block(x + 7, top + 8, 18, 16, str(i + 1), (INK.text, None), 12, INK.background, 4, 8, weight="bold")
        p.text(x + 31, top + 20, what, 11.5, anchor="start", mono=True)
        p.lines(x + 31, top + 41, 16, why)


@figure("14_schedule", 476, "Kernel 14: the schedule of two warpgroups", "The schedule that ships: two warpgroups, iteration by iteration",
        f"to scale: QK and PV take {PRODUCT} cycles each, a softmax about {SOFTMAX:,}; the prologue (QK 0 and softmax 0) is left out",
        bands=[Band(0, ((132, 519), (519, 880)), 132), Band(305, ((0, 300), (300, 580), (580, 880)))])
def schedule(p):
    lanes, rows, products, whose = Lanes(p, 132, 862, 7000), (98, 208), 153, 254
    made = follow_turns(5, ping_pong=True, overlap=True)
    for y, name in ((rows[0], "warpgroup 0"), (rows[1], "warpgroup 1"), (whose, "whose turn")):
        lanes.lane(y, name)
    lanes.lane(products, "Tensor Cores", 34)
    shown = [turn for turn in made if turn.begin < lanes.cycles]
    for turn in shown:
        look, y = WARPGROUPS[turn.warpgroup], rows[turn.warpgroup]
        lanes.block(products, turn.qk, turn.pv, f"QK {turn.tile}", look, 34)
        lanes.block(products, turn.pv, turn.pv + PRODUCT, f"PV {turn.tile - 1}", look, 34)
        lanes.block(y, turn.softmax, turn.softmax + SOFTMAX, f"softmax {turn.tile}", look)
        lanes.block(y, turn.last, turn.last + REST, "", GREEN)
    ended = 0.0  # a turn lasts from the end of the one before to its own end
    for turn in shown:
        lanes.block(whose, ended, turn.begin + ISSUE, f"{turn.warpgroup}", WARPGROUPS[turn.warpgroup])
        ended = turn.begin + ISSUE
    for turn in shown:
        x, y = lanes.x(turn.begin), rows[turn.warpgroup]
        if turn.begin + PRODUCT < turn.softmax < lanes.cycles:  # there is room for words
            p.text((x + lanes.x(turn.softmax)) / 2, y + 19, "waits for S", 11.5, INK.muted)
        p.line(x, y - 3, x, y + 33, WARPGROUPS[turn.warpgroup][1], 3)
    here = next(turn for turn in made if (turn.warpgroup, turn.tile) == (0, 2))
    for number, time in ((1, here.begin), (2, here.softmax), (3, here.last)):
        p.block(lanes.x(time) - 9, rows[0] - 23, 18, 17, str(number), (INK.text, None), 12, INK.background, 4, 8, weight="bold")
    p.arrow(lanes.x(here.begin), rows[0] + 33, lanes.x(here.qk) + 3, products - 1, INK.text, 1.4)
    p.arrow(lanes.x(here.pv), products - 1, lanes.x(here.softmax), rows[0] + 31, INK.text, 1.4)
    three_steps(p, 310, (
            ("begin_turn, QK 2, PV 1, end_turn", ("starts both products, which queue", "behind warpgroup 1's, and passes", "the turn on")),
            ("wgmma_wait<1>, softmax 2", ("S is complete; its softmax runs", "under its own PV 1, then under", "warpgroup 1's QK 2")),
            ("wgmma_wait<0>, rescale O", ("PV 1 is complete, too, so O may be", "rescaled; then the next turn begins"))))
    p.note(422, "Blue: warpgroup 0; orange: warpgroup 1. At a thick line a warpgroup takes its turn; small green: what needs O.",
           "A turn is the right to start products, not to run them: it is over as soon as both are in the queue.",
           "Drawn like this, the Tensor Cores never wait for a softmax. On an H200 they sometimes do.")


STORE = 400  # by about so much an iteration with store_o is longer than others in an H200's recorded timeline


@figure("15_boundary", 424, "Kernel 15: the boundary between two query tiles",
        "The boundary: S of the next query tile and O of this one share an iteration",
        "warpgroup 0, two query tiles of four K/V tiles each; to scale, as in the schedule of chapter 14",
        bands=[Band(0, ((132, 345), (345, 606), (606, 880)), 132), Band(272, ((0, 300), (300, 580), (580, 880)))])
def boundary(p):
    """Three iterations in the model of follow_turns: the last one of query tile 0, the boundary, and the one that stores O."""
    tiles, lanes, products, threads = 4, Lanes(p, 132, 862, 7000), 124, 192
    made = follow_turns(2 * tiles - 1, ping_pong=True, overlap=True)
    mine = {turn.tile: turn for turn in made if not turn.warpgroup}
    start = mine[tiles - 1].begin

    def look(number):  # of a K or V tile, counted over both query tiles
        return WARPGROUPS[number // tiles]

    lanes.lane(products, "Tensor Cores", 34)
    lanes.lane(threads, "warpgroup 0", 34)
    for turn in made:
        qk, pv, softmax, last = (time - start for time in turn[3:])
        if turn.warpgroup:
            lanes.block(products, qk, pv + PRODUCT, "", GREY, 34)
            continue
        n = turn.tile
        lanes.block(products, qk, pv, f"Q{n // tiles} K{n % tiles}", look(n), 34)
        lanes.block(products, pv, pv + PRODUCT, f"P V{(n - 1) % tiles}", look(n - 1), 34)
        lanes.block(threads, softmax, softmax + SOFTMAX, f"softmax Q{n // tiles} K{n % tiles}", look(n), 34)
        lanes.block(threads, last, last + REST, "", GREEN, 34)
    for number, words in ((tiles - 1, "the last one of Q0"), (tiles, "the boundary"), (tiles + 1, "O0 leaves")):
        begin, end = (lanes.x(mine[i].begin - start) for i in (number, number + 1))
        p.caption((begin + end) / 2, 84, f"iteration {number}", words, 13, 16, 12)
        if number <= tiles:
            p.text((begin + lanes.x(mine[number].softmax - start)) / 2, threads + 21, "waits for S", 11.5, INK.muted)
    here, after = mine[tiles], mine[tiles + 1]
    p.rect(lanes.x(here.begin - start) + 1.5, 66, lanes.x(after.begin - start) - lanes.x(here.begin - start) - 3, 188, "none", INK.text, 6, 1.6)
    stored = after.begin + ISSUE - start
    lanes.block(threads, stored, stored + STORE, "O0", look(0), 34)
    p.arrow(lanes.x(here.pv + PRODUCT - start) - 2, products + 33, lanes.x(stored) + 2, threads + 4, INK.text, 1.8)
    for number, time in ((1, here.qk + PRODUCT - start), (2, here.softmax + SOFTMAX / 2 - start), (3, stored + STORE / 2)):
        p.block(lanes.x(time) - 9, products - 12 if number == 1 else threads + 37, 18, 17, str(number), (INK.text, None), 12, INK.background, 4,
                8, weight="bold")
    three_steps(p, 276, (
            ("start_qk, start_pv", ("one turn for both: Q1 with its first", "keys, and P of query tile 0 with its", "last values")),
            ("end_sums, softmax(even, true)", ("puts the sums of query tile 0 aside", "and begins a new row; meanwhile O0", "becomes complete")),
            ("store_o(0)", ("O0 goes to the rows of sQ[0], which", "nobody reads now, and on by TMA;", "then Q2 is loaded there"))))
    p.note(388, "Blue: query tile 0; orange: query tile 1; grey: the products of warpgroup 1.",
           "Drawn like this, the boundary costs nothing. On an H200 iterations 4 and 5 take longer than the others.")


@figure("15_tiles", 556, "Kernel 15: query tiles and CTAs",
        narrow=450, bands=[Band(0, title=False), Band(318), Band(365, ((24, 456), (456, 880)), 24), Band(423, ((24, 386), (386, 880)), 24)])
def assignment(p):
    sms, batch, heads, seq_len = machine_named(BOOK)[1]["sm"]["count"], 4, 16, 4096
    a_head = seq_len // constant("15", "kBlockM")
    q_tiles = batch * heads * a_head
    rounds = -(-q_tiles // sms)
    p.head(f"{q_tiles:,} query tiles on {sms} SMs: CTA i has the tiles i, i + {sms}, i + {2 * sms}, ...",
           f"batch {batch}, {heads} heads, {seq_len} tokens; a cell is a query tile, a row is a round, a column is a CTA")
    left, top, high, shown = 84, 92, 14, 33
    cell = (p.width - left - 24) / sms
    last = q_tiles - (rounds - 1) * sms
    for t in range(rounds):
        p.rect(left, top + t * high, (last if t == rounds - 1 else sms) * cell, high - 3, INK.blue_soft)
        p.rect(left + shown * cell, top + t * high, cell, high - 3, INK.orange)
        p.text(left - 8, top + t * high + 10, f"t = {t}", 10.5, INK.muted, "end")
    for i in range(1, sms):  # the cells' edges
        p.line(left + i * cell, top, left + i * cell, top + rounds * high - 3, INK.background, 1)
    y = top + (rounds - 1) * high
    p.rect(left - 1, y - 1.5, last * cell + 1, high, "none", INK.blue, 0, 1.6)
    p.path([(left + last * cell, y - 1.5), (left + sms * cell, y - 1.5), (left + sms * cell, y + high - 1.5),
            (left + last * cell, y + high - 1.5)], False, "none", INK.line, 1.2, "4 3")
    p.texts(10.5, INK.muted, "middle", *((left + (i + 0.5) * cell, top - 6, str(i) if i else "CTA 0") for i in (0, 64, 96, sms - 1)))
    p.text(left + (shown + 0.5) * cell, top - 22, f"CTA {shown}: tiles {shown}, {shown + sms}, ..., {shown + (rounds - 1) * sms:,}", 11,
           INK.orange, weight="bold")
    y = top + rounds * high + 18
    at_once = max(len({tile // a_head for tile in range(t * sms, min((t + 1) * sms, q_tiles))}) for t in range(rounds))
    cells, mib = rounds * sms, 2 * seq_len * 128 * 2 // 2**20
    p.text(24, y, f"the last round: {last} of {sms} SMs", 12.5, INK.blue, "start", "bold")
    p.text(left + sms * cell, y, f"{q_tiles:,} of {rounds} · {sms} = {cells:,} cells: {percent(q_tiles, cells, '.0f')}", 12.5,
           INK.text, "end", "bold")
    p.text(24, y + 18, f"a round has tiles of at most {at_once} heads: their K and V, {at_once} · {mib} MiB, stay in L2", 12.5, INK.muted,
           "start")
    p.texts(13.5, None, "start", (24, y + 48, "An SM, kernel 14: one CTA per query tile"), (24, y + 106, "Kernel 15: one CTA"),
            weight="bold")
    lanes = Lanes(p, 24, 862, 1.0)
    tile, start, end = 0.2, 0.032, 0.026  # not to scale: a tile's iterations; before and after them
    x = 0.0
    for n in range(int(1 / (start + tile + end))):
        x = lanes.block(y + 58, x, x + start, "", GREY, 26)
        x = lanes.block(y + 58, x, x + tile, f"iterations of tile {n}", WARPGROUPS[n % 2], 26)
        x = lanes.block(y + 58, x, x + end, "", GREY, 26)
    x = lanes.block(y + 116, 0, start, "", GREY, 26)
    for n in range(4):
        x = lanes.block(y + 116, x, x + tile, f"iterations of tile {n}", WARPGROUPS[n % 2], 26)
    lanes.block(y + 116, x, x + end, "", GREY, 26)
    p.note(y + 172, "Grey: barriers, Q and the first K from memory; the last PV, O to memory. The Tensor Cores have little to do then,",
           "in every tile of 14 but only once in 15. Not to scale.")


# total: log2 of the sum so far; after: the next reference, infinite of a row that is given up
Moment = namedtuple("Moment", "tile scores reference exponents total after")


def follow_row(tiles):
    """What kernel 16 does with the tiles of one row, as if one lane had it: their scores are in units of log2. The sum of the
    first tile fits."""
    margin, most, lost = constant("16", "kMargin"), *(2.0 ** constant("16", name) for name in ("kMaxSumLog2", "kLostLog2"))
    reference, total, made = max(tiles[0][:8]) + margin, 0.0, []
    for tile, scores in enumerate(tiles):
        exponents = [score - reference for score in scores]
        tile_sum = sum(2.0**exponent if exponent < 128 else math.inf for exponent in exponents)
        up = 0.0
        if tile_sum > lost:
            up = math.inf
        elif tile_sum > most:
            up = 2.0 * max(math.ceil(0.5 * (math.log2(tile_sum) + margin)), 0)
        total += tile_sum
        made.append(Moment(tile, scores, reference, exponents, math.log2(total), reference + up))
        reference += up
        total = 0.0 if up == math.inf else total * 2.0**-up
    return made


# The row of the chapter's example.
ROW = (3, 2, 4, 1), (5, 3, 10, 2), (7, 80, 1, 9), (6, 8, 2, 75), (90, 290, 4, 1)


@figure("16_exponents", None, "Kernel 16: one row on the axis of exponents",
        "Where a row's P = 2^(s - reference) lies among the exponents of bf16 and fp32",
        "to scale; a dot: one of four keys, next to its score s in units of log2; thick line: the sum so far",
        narrow=430)
def exponents(p):
    wide = p.width > 600
    left, right, low, high = 196 if wide else 16, p.width - 18, -160, 172
    margin, limits = constant("16", "kMargin"), [constant("16", name) for name in ("kMaxSumLog2", "kLostLog2")]
    key = 13  # the height of a key in a lane
    below = {0.0: 0, math.inf: 18}  # what lies below a lane whose reference rises by so much: nothing, words, an arrow and words

    def x(exponent):
        return left + (exponent - low) * (right - left) / (high - low)

    def strip(y, tall, least=-126, most=128):
        p.rect(left, y, right - left, tall, INK.cell)
        p.rect(x(least), y, x(most) - x(least), tall, INK.green_soft)

    # the axis
    y = 96 if wide else 112
    strip(y, 22)
    p.texts(11.5, INK.muted, "middle", ((left + x(-126)) / 2, y + 15, "P is 0"), ((right + x(128)) / 2, y + 15, "infinite"))
    p.text((x(-126) + x(-margin)) / 2, y + 15, "fits", 11.5)
    for tick in (-126, -96, -64, -32, 0, 32, 64, 96, 127):
        p.line(x(tick), y + 22, x(tick), y + 27, INK.line, 1)
        p.text(x(tick), y + 39, str(tick), 10.5, INK.muted)
    p.text(*(left - 14, y + 39) if wide else (left, y - 23), "exponent of P", 12, INK.muted, "end" if wide else "start")
    marks = (-margin, f"2^-{margin:.0f}", 4, "end"), (limits[0], f"kMaxSum 2^{limits[0]:.0f}", 8, "middle"), (limits[1], f"kLost 2^{limits[1]:.0f}", 18, "end")
    first, top = y, y + 56
    shown = [moment for moment in follow_row(ROW) if moment.tile != 3]
    said = ("the start", "no change", "above kMaxSum", "an infinite P")
    tall, head = 4 * key + 4, 0 if wide else 42
    heights = [head + tall + below.get(moment.after - moment.reference, 34) + 16 for moment in shown]
    end = top + sum(heights) - 10
    tops = [top + sum(heights[:i]) for i in range(len(shown))]
    for y in tops:
        strip(y + head, tall)
    for at, name, beside, anchor in marks:
        p.line(x(at), first - 2, x(at), first + 22, INK.text, 1.2)
        for y in tops:
            p.line(x(at), y + head, x(at), y + head + tall, INK.text, 1, "3 3")
        p.text(x(at) + beside, first - 6, name, 11.5, anchor=anchor)
    for moment, what, y in zip(shown, said, tops):
        title, reference = f"tile {moment.tile}: {what}", f"reference {moment.reference:.0f}"
        if not moment.tile:
            reference += f" = {max(moment.scores)} + {margin:.0f}"
        if wide:
            p.text(left - 14, y + 24, title, 12.5, anchor="end", weight="bold")
            p.text(left - 14, y + 42, reference, 12.5, INK.muted, "end")
        else:
            p.text(left, y + 14, title, 12.5, anchor="start", weight="bold")
            p.text(left, y + 31, reference, 12.5, INK.muted, "start")
        y += head
        over = [exponent for exponent in moment.exponents if exponent >= 128]
        if not over:
            p.line(x(moment.total), y - 5, x(moment.total), y + tall + 3, INK.orange if moment.total > limits[0] else INK.blue, 3)
        for i, (score, exponent) in enumerate(zip(moment.scores, moment.exponents)):
            at, middle = x(exponent), y + 2 + (i + 0.5) * key
            if exponent in over:
                p.text(at + 7, middle + 3.8, str(score), 10.5, INK.text, "start")
            else:
                if exponent > -126:  # no dashed line crosses the number
                    p.rect(at - 12 - 6 * len(str(score)), middle - 6, 6 * len(str(score)) + 4, 12, INK.green_soft)
                p.text(at - 7, middle + 3.8, str(score), 10.5, INK.text, "end")
            p.rect(at - 4, middle - 4, 8, 8, INK.orange if exponent in over else INK.blue, None, 4)
        y += tall
        by = moment.after - moment.reference
        if by == math.inf:
            p.text(right, y + 16, "the row is given up", 12, anchor="end")
        elif by:
            p.arrow(x(moment.total), y + 13, x(moment.total - by), y + 13, INK.orange, 2)
            p.text((x(moment.total) + x(moment.total - by)) / 2, y + 30, f"times 2^-{by:.0f}: the reference rises to {moment.after:.0f}", 12)
    p.height = end + 42
    p.note(end + 20, "Scores that are all higher by the same number move no dot, because the reference is higher, too.")
