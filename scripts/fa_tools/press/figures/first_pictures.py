"""The map of the ladder, the pictures of chapter 00, which are what is computed and the GPU that computes it, and the formats of
numbers, of chapter 04."""

import math
from itertools import groupby

from fa_tools.cards import BOOK, file_named
from fa_tools.press.doc_tables import matching, read
from fa_tools.press.figures.drawing import BLUE, GREEN, GREY, INK, ORANGE, Halves, figure
from fa_tools.press.ladder import TOKENS, factor, speeds, step_factors
from fa_tools.product.limits import machine_named
from fa_tools.tools import ROOT, read_json, results_files

GPU, MACHINE = machine_named(BOOK)

# The idea of each step, 01 first, and what held up the kernel before it: something had to be moved (orange), a unit had
# no cycle left (blue), or one piece of work waited for another (green). A kernel that is not measured yet is not on the map.
MOVED, BUSY, WAITED = ORANGE, BLUE, GREEN
LOOKS = (MOVED, "data to move"), (BUSY, "a busy unit"), (WAITED, "waiting")
SHARED = "shared|memory", MOVED
STEPS = (
    ("naive", None, None), ("online|softmax", "L1|cache", MOVED), ("register|tiles", "shared|memory", MOVED),
    ("Tensor|Cores", "CUDA|cores", BUSY), ("split|keys", *SHARED), ("split|queries", *SHARED), ("async|copies", "waits for|tiles", WAITED),
    ("XOR|swizzle", *SHARED), ("reading|ahead", *SHARED), ("leaner|loop", "issue|slots", BUSY),
    ("wgmma", "MMA|rate", BUSY), ("TMA", "warps that wait|for warps", WAITED),
    ("producer|warps", "warps that wait|for warps", WAITED), ("softmax|overlap", "expo-|nentials", WAITED),
    ("persistent", "ends of|tiles", WAITED), ("no row|maximum", "row|max", WAITED),
)
NEEDS = (("any GPU", 0), ("Tensor Cores: A100 and later", 3), ("Hopper: H100 and H200", 10))  # from which step on


def shares():
    """{kernel or library: FLOPs per cycle and SM, as a share of the data sheet's}, from the profiler's cycles: no clock is in
    it."""
    sm, cycles = MACHINE["sm"], {}
    for profile in map(read_json, (ROOT / file_named("profile"), *results_files(f"{BOOK}/peers_profile.jsonl"))):
        flops = 4 * profile["batch"] * profile["heads"] * profile["seq_len"] ** 2 * profile["head_dim"]
        for launch in profile["launches"]:
            cycles[launch["kernel"]] = cycles.get(launch["kernel"], 0) + launch["metrics"]["cycles"]
    return {kernel: flops / (each * sm["count"] * sm["wgmma_flops"]) for kernel, each in cycles.items()}


def gains_elsewhere():
    """{kernel: (where, factor)}: steps whose gain is not that of ordinary scores at 4096 tokens."""
    def ratio(name, **wish):
        two = matching(read(name), wish)
        found = {record["kernel"][:2]: record["tflops"] for record in two}
        return lambda kernel, before: found[kernel] / found[before]
    short = ratio("bf16_d128", seq_len="512", kernel="1[45]_*")
    spread = ratio("inputs/scores", seq_len="4096", kernel="1[56]_*", score_std="20.0", score_growth="flat")
    return {"15_persistent": ("512 tokens:", short("15", "14")), "16_max_free": ("20 nats:", spread("16", "15"))}


def kernels():
    """Those on the map: of which there are both figures."""
    return sorted(speeds().keys() & shares().keys())


def needs():
    """(what, from which step on, of how many steps)"""
    ends = [*(first for _, first in NEEDS[1:]), len(kernels())]
    return [(what, first, end - first) for (what, first), end in zip(NEEDS, ends)]


def percent(share):
    return f"{100 * share:.{1 if share < 0.1 else 0}f} %"


def rounded(tflops):
    return f"{tflops:.{1 if tflops < 10 else 0}f}"


def gained(kernel):
    """The factor of a step over the one before, and its colour."""
    gain = step_factors()[kernel]
    return factor(gain), INK.text if gain >= 1 else INK.orange


@figure("map", 448, "A map of the ladder: for each of sixteen steps its idea, what held up the kernel before, and the factor gained",
        "The ladder: sixteen steps towards the full speed of the Tensor Cores",
        f"Height (log), %: FLOPs per cycle and SM, of 4,096 on the data sheet ({BOOK.upper()}, bf16, 2048 tokens). ×, foot: TFLOP/s, {TOKENS} tokens.",
        halves=Halves(440, ("held up", "by:"), "Below a step: what held up the one before, and the GPUs that it needs."))
def ladder_map(p):
    left, base, decade, names, limits, below = 16, 280, 58, 318, 354, 416
    found, tflops, elsewhere, before = shares(), speeds(), gains_elsewhere(), None
    steps = list(zip(kernels(), STEPS))
    right = left + 848
    wide = (right - left) / len(steps)
    p.rules = ".here{display:none}:target>.here{display:inline}svg:has(:target) g[id]:not(:target){opacity:.45}"

    def top(share):
        return base - decade * math.log10(share * 2000)

    def words(x, y, text):
        lines = text.split("|")
        p.lines(x, y - 7 * (len(lines) - 1), 14, lines, 11, INK.text, "middle")

    p.line(left, top(1), right, top(1), INK.line, 1, "4 4")
    p.text(left + 4, top(1) - 5, "100 %: as many as the data sheet says", 11, INK.muted, "start")
    p.line(left, base, right, base, INK.line)
    for libraries in ({"fa3": "FlashAttention-3", "cudnn": "cuDNN"}, {"fa2": "FlashAttention-2"}):
        height = top(max(found[f"peer/{peer}"] for peer in libraries))
        shown = ", ".join(f"{name} {percent(found[f'peer/{peer}'])}" for peer, name in libraries.items())
        p.line(left + 12 + 5.4 * len(shown), height, right, height, INK.muted, 1, "2 3")
        p.text(left + 4, height + 4, shown, 11, INK.muted, "start")
    for i, (kernel, (idea, _, look)) in enumerate(steps):
        x, y, middle = left + i * wide, top(found[kernel]), left + (i + 0.5) * wide
        with p.group(f'id="at-{kernel[:2]}"'):
            with p.group('class="here"'):
                p.rect(x - 1, y - 24, wide + 2, limits - y + 20, INK.background, INK.text, 6, 2.6)
                p.path([(middle, y - 28), (middle - 9, y - 42), (middle + 9, y - 42)], True, INK.text, None)
            p.rect(x + 2, y, wide - 4, base - y, *(look or GREY))
            if before:
                times, color = gained(kernel)
                p.rect(x + 4, y - 18, wide - 8, 14, INK.background)  # the dashed line ends at a number
                p.text(middle, y - 7, times, 12, color, weight="bold")
            p.text(middle, y + (14 if before else -7), percent(found[kernel]), 11, INK.text)
            if kernel in elsewhere:
                where, there = elsewhere[kernel]
                p.lines(middle, y + 34, 13, (*where.replace(" ", "|", 1).split("|"), factor(there)), 10.5, INK.muted, "middle")
            p.text(middle, base - 4, rounded(tflops[kernel]), 10.5, INK.muted)
            p.text(middle, base + 19, kernel[:2], 15, weight="bold")
            p.lines(middle, names, 14, idea.split("|"), 11, INK.text, "middle")
        before = found[kernel]
    p.lines(left, limits + 15, 14, ("held up", "by:"), 11)
    x = left + wide
    for (limit, look), alike in groupby([step for _, step in steps[1:]], lambda step: step[1:]):
        width = wide * len(list(alike))
        p.rect(x + 1, limits, width - 2, 38, *look, 4)
        words(x + width / 2, limits + 23, limit)
        x += width
    for what, first, count in needs():
        p.rect(left + wide * first + 1, below, wide * count - 2, 22, *GREY, 4)
        words(left + wide * (first + count / 2), below + 15, what)
    for i, (look, meaning) in enumerate(LOOKS):
        x = left + wide + 112 * i
        p.rect(x + 1, limits + 43, 18, 9, *look, 2)
        p.text(x + 25, limits + 51, meaning, 11, INK.muted, "start")


@figure("map_phone", None, "A map of the ladder for narrow screens: for each of sixteen steps its idea, what held up the kernel before, and the factor gained",
        width=400)
def ladder_map_for_phones(p):
    """The same as a list, with linear bars to the right."""
    p.heading("The ladder: sixteen steps", x=14, y=28)
    p.lines(14, 48, 16, ("Bar, %: FLOPs per cycle and SM, of 4,096 on the", f"data sheet ({BOOK.upper()}, bf16, 2048 tokens). Right, × and",
                         f"below it: TFLOP/s, {TOKENS} tokens. Grey: what held up the step before,",
                         "orange: data to move, blue: a busy unit, green: waiting."))
    found, tflops, elsewhere, before = shares(), speeds(), gains_elsewhere(), None
    left, full, high, y = 152, 200, 40, 108
    steps, from_here = list(zip(kernels(), STEPS)), {first: what for what, first in NEEDS}

    def wide(share):
        return max(full * share, 2)

    at, end = left + wide(found["peer/fa3"]), y + high * len(steps) + 26 * len(NEEDS)
    p.line(at, y, at, end + 4, INK.text, 1, "3 3")
    p.text(at + 4, end + 18, f"FlashAttention-3: {percent(found['peer/fa3'])}", 11.5, INK.text, "end")
    p.height = end + 30
    for i, (kernel, (idea, limit, look)) in enumerate(steps):
        if i in from_here:
            p.rect(8, y + 2, 384, 20, *GREY, 4)
            p.text(200, y + 16, from_here[i], 11.5)
            y += 26
        p.text(14, y + 17, kernel[:2], 14, anchor="start", weight="bold")
        p.text(38, y + 16, idea.replace("|", " "), 12, anchor="start")
        limit = (limit or "").replace("-|", "").split("|")
        p.text(38, y + 31, " ".join(limit if len(limit[0]) < 12 else limit[:1]), 11, INK.muted, "start")
        p.rect(left, y + 4, wide(found[kernel]), high - 8, *(look or GREY))
        p.text(left + 6 if wide(found[kernel]) > 40 else left + wide(found[kernel]) + 5, y + (18 if kernel in elsewhere else 24),
               percent(found[kernel]), 11.5, anchor="start")
        if kernel in elsewhere:
            where, there = elsewhere[kernel]
            p.text(left + 6, y + 32, f"{where.replace('|', ' ')} {factor(there)}", 10.5, INK.muted, "start")
        if before:
            p.text(388, y + 17, gained(kernel)[0], 12.5, gained(kernel)[1], "end", weight="bold")
        p.text(388, y + 31, rounded(tflops[kernel]), 11, INK.muted, "end")
        before, y = found[kernel], y + high


@figure("00_attention", 452, "Attention: the matrices of one head, and the part of them that one CTA works on",
        "One head: S = scale · Q Kᵀ, P = softmax(S) row by row, O = P V",
        "N tokens, D = head_dim. Framed, as from 02 on: the queries of one CTA (thread block), and the tile of keys that it is at.",
        parts=((0, 430), (430, 530, "arrow"), (530, 880)))
def attention(p):
    n, d, top, q, frame = 208, 58, 176, 130, INK.text
    s, v, o = q + 84, q + 416, q + 560
    row, key, tile = top + 66, 92, 34  # a CTA's queries, and the keys of one tile
    for x, y, width, height, name, shape, look, at in (
            (q, top, d, n, "Q", "N x D", BLUE, (q + d / 2, top + 134)),
            (s, top - 84, n, d, "Kᵀ", "D x N", BLUE, (s + 46, top - 60)),
            (s, top, n, n, "S, then P", "N x N: in memory in 01 only", GREEN, (s + 104, top + 140)),
            (v, top, d, n, "V", "N x D", BLUE, (v + d / 2, top + 40)),
            (o, top, d, n, "O", "N x D", ORANGE, (o + d / 2, top + 134))):
        p.rect(x, y, width, height, *look)
        p.text(*at, name, 17, look[1], weight="bold")
        p.text(at[0], at[1] + 17, shape, 12, INK.muted)
    p.lines(s + n + 46, top + 106, 18, ("softmax,", "times V"), 12.5, INK.muted, "middle")
    p.arrow(s + n + 12, top + 86, v - 12, top + 86, INK.green, 2.4)
    p.arrow(v + d + 12, top + 86, o - 12, top + 86, INK.orange, 2.4)
    for x, y, width, height in ((q, row, d, tile), (o, row, d, tile), (s + key, top - 84, tile, d), (v, top + key, d, tile)):
        p.rect(x, y, width, height, "none", frame, 0, 2.4)
    p.rect(s + key, row, tile, tile, INK.orange_soft, frame, 0, 2.4)
    p.line(s, row, s + n, row, frame, 1.2, "4 3")
    p.line(s, row + tile, s + n, row + tile, frame, 1.2, "4 3")
    p.text(q - 10, row + 14, "kBlockM", 11.5, anchor="end", mono=True)
    p.text(q - 10, row + 29, "queries", 11.5, INK.muted, "end")
    p.text(s + key + tile / 2, top - 92, "kBlockN keys", 11.5, mono=True)
    p.arrow(s + key + tile + 8, top - 48, s + key + tile + 44, top - 48, frame, 1.6)
    p.lines(o + d + 12, row + 14, 15, ("acc_o, row_max,", "row_sum"), 11.5, frame, mono=True)
    p.note(410, "A CTA goes over the keys from left to right. Each tile of S is computed, turned into P, multiplied by its tile of V, "
           "and dropped.",
           "From tile to tile the CTA keeps acc_o, and two numbers per query.", step=20)


@figure("00_gpu", 520, f"A GPU in one picture: {GPU}", f"From memory to the multipliers: {GPU}",
        "TB/s are those of all SMs together; all else in the frame belongs to one SM.",
        parts=((0, 380), (398, 880)))
def gpu(p):
    sm, speed = MACHINE["sm"], MACHINE["tb_per_s"]
    for y, name, what in ((76, "HBM: global memory", speed["hbm"]), (170, f"L2, {MACHINE['l2_mib']} MiB, for all SMs", speed["l2"])):
        p.box(24, y, 330, 62, [name, f"{what:g} TB/s"], *BLUE, 15)
        p.arrow(189, y + 62, 189, y + 92, INK.blue, 2.6)
    columns, cell = 22, 14.2
    for i in range(sm["count"]):
        p.rect(26 + i % columns * (cell + 0.8), 266 + i // columns * (cell + 0.8), cell, cell,
               *(ORANGE if i == columns - 1 else GREEN), 2)
    below = 266 + -(-sm["count"] // columns) * (cell + 0.8)
    p.caption(189, below + 22, f"{sm['count']} SMs (streaming multiprocessors)",
              "A CTA runs on one SM from its first instruction to its last.", 14, 20)
    x, y, width, height = 400, 76, 456, 392
    p.line(26 + (columns - 1) * (cell + 0.8) + cell, 272, x, y + 40, INK.orange, 1.4, "4 3")
    p.rect(x, y, width, height, "none", INK.orange, 8, 2)
    p.text(x + 16, y + 24, f"One SM: up to {sm['warps']} warps of 32 threads", 15, anchor="start", weight="bold")
    for i in range(4):
        left, top = x + 14 + i % 2 * 217, y + 40 + i // 2 * 116
        p.rect(left, top, 210, 108, *GREY, 5)
        p.text(left + 10, top + 18, "one instruction per cycle", 12, anchor="start")
        p.box(left + 10, top + 26, 190, 24, [f"{sm['registers'] // 4:,} registers of 32 bits"], *GREEN, 11.5)
        p.box(left + 10, top + 55, 92, 44, [f"{sm['fma'] // 4} CUDA cores", f"{sm['exp2'] // 4} exp2 per cycle"], *GREEN, 11.5)
        p.box(left + 108, top + 55, 92, 44, ["Tensor Core", f"{sm['wgmma_flops'] // 4:,} FLOP/cycle"], *ORANGE, 11.5)
    p.box(x + 14, y + 274, 428, 54, [f"Shared memory, at most {sm['shared_kib']} KiB, and L1",
                                     f"32 banks of 4 bytes: {sm['l1_bytes']} bytes per cycle; {speed['shared']:g} TB/s, all SMs"], *BLUE, 13)
    p.box(x + 14, y + 336, 428, 42, ["TMA: copies tiles to and from shared memory (chapter 12)"], *BLUE, 12.5)
    p.note(496, f"Tensor Cores: {sm['wgmma_flops']:,} FLOPs per cycle and SM; CUDA cores: {2 * sm['fma']} in fp32. Memory nearer to the cores is "
           "faster and smaller, so kernels work on tiles.")


# Format: bits of exponent and of mantissa.
FORMATS = {"fp32": (8, 23), "bf16": (8, 7), "fp16": (5, 10)}
USES = {"fp32": "sums, S, row_max, row_sum, acc_o", "bf16": "Q, K, V, O, and P from 04 on", "fp16": "the same, instead of bf16"}


def largest(exponent, mantissa):
    return (2 - 2.0**-mantissa) * 2.0 ** (2 ** (exponent - 1) - 1)


@figure("04_formats", 330, "Number formats: fp32, bf16, fp16", "Three formats: sign, exponent, mantissa",
        "The exponent says how far a format reaches, the mantissa how finely it rounds. bf16 is the upper half of an fp32.",
        narrow=420)
def formats(p):
    wide = p.width > 600
    bit, left, apart = (16.4, 90, 66) if wide else (10.4, 64, 104)
    for x, name, look in ((430, "sign", GREY), (510, "exponent", ORANGE), (620, "mantissa", BLUE)):
        p.key(left + x if wide else left + x - 430, 68, name, look, 12, 13, 19, 11)
    for i, (name, (exponent, mantissa)) in enumerate(FORMATS.items()):
        y = 98 + i * apart
        p.text(left - 14, y + 18, name, 15, anchor="end", weight="bold")
        for n in range(1 + exponent + mantissa):
            p.rect(left + n * bit, y, bit - 2, 26, *(GREY if n == 0 else ORANGE if n <= exponent else BLUE))
        said = (f"1 + {exponent} + {mantissa} bits; largest {largest(exponent, mantissa):.5g};", f"rounding changes a value by at most 2^-{mantissa + 1} of it")
        p.lines(left, y + 44, 17, [" ".join(said)] if wide else said, 12.5)
        p.text(*(left + (1 + exponent + mantissa) * bit + 14, y + 18) if wide else (left, y + 78), USES[name], 13, anchor="start")
    p.note(312, "Tensor Cores multiply 16-bit factors exactly and add in fp32. The exponentials and the rest of the softmax are "
           "fp32, too.")
