"""The map of the ladder, the pictures of chapter 00, which are what is computed and the GPU that computes it, and the formats of
numbers, of chapter 04."""

from fa_tools.cards import BOOK
from fa_tools.documents import ladder
from fa_tools.documents.doc_tables import matching, read
from fa_tools.documents.figures.drawing import BLUE, GREEN, GREY, INK, ORANGE, figure
from fa_tools.documents.ladder import TOKENS, factor, held_up, kernels, speeds, step_factors
from fa_tools.for_readers.limits import machine_named
from fa_tools.numbers import short
from fa_tools.sources import fact, needs_of

GPU, MACHINE = machine_named(BOOK)

LOOKS = {ladder.MOVED: ORANGE, ladder.BUSY: BLUE, ladder.WAITED: GREEN}  # of a bar: what held its kernel up
NEEDS = {75: "any GPU from a T4 on, 04 to 06 in fp16 there", 80: "A100, RTX 30 and later", 90: "Hopper: H100 and H200"}  # by compute capability


def gains_elsewhere():
    """{kernel: its gain in words}: steps that are not for ordinary scores at 4096 tokens."""
    found = {}
    for before, kernel in zip(kernels(), kernels()[1:]):
        if gain := fact(kernel, "gain"):
            where, file, wish = gain
            speed = {record["kernel"]: record["tflops"] for record in matching(read(file), wish)}
            found[kernel] = f"{where}: {factor(speed[kernel] / speed[before])}"
    return found


@figure("map", None, "The ladder: for each of sixteen steps its idea, its speed, its factor over the step before, and what held its kernel up",
        "The ladder: sixteen steps",
        f"Bars: TFLOP/s of an {BOOK.upper()} (bf16, {TOKENS} tokens, head_dim 128); ×: over the kernel before.", narrow=376)
def ladder_map(p):
    """A row per kernel, in a wide picture of one line, in a narrow one of two with the bar between them."""
    wide = p.width > 600
    found, factors, reasons, elsewhere, peak = speeds(), step_factors(), held_up(), gains_elsewhere(), MACHINE["tflops"]["tensor"]
    (fa3,) = (record["tflops"] for record in matching(read("bf16_d128"), {"seq_len": str(TOKENS), "kernel": "peer/fa3"}))
    edge, high = (24, 19) if wide else (2, 50)
    right = p.width - edge
    # Where a row has its bar, the feet of its first line and of its second, and its columns.
    left, full, bar, thick, first, second = (168, 320, 2, 15, 14, 14) if wide else (edge, right - edge, 21, 9, 14, 43)
    speed, times, reason = (520, 588, 606) if wide else (right - 64, right, edge)
    y, before = 60, None
    for kernel in kernels():
        needs, idea = needs_of(kernel)[0], fact(kernel, "idea")
        if needs != before:
            p.block(edge, y + 2, right - edge, 16, NEEDS[needs], GREY, 11)
            y += 20
        before = needs
        end = left + max(full * found[kernel] / peak, 2)
        p.text(edge, y + first, kernel[:2], 13, anchor="start", weight="bold")
        p.text(edge + 24, y + first, idea, 12.5, anchor="start")
        p.rect(left, y + bar, full, thick, INK.cell)
        p.rect(left, y + bar, end - left, thick, *LOOKS[reasons[kernel][0].kind])
        p.line(left + full * fa3 / peak, y + bar - 2, left + full * fa3 / peak, y + bar + thick + 2, INK.text, 1.2)
        p.text(speed, y + first, short(found[kernel]), 12, INK.text, "end")
        if kernel in factors:
            p.text(times, y + first, factor(factors[kernel]), 12.5, INK.text if factors[kernel] >= 1 else INK.orange, "end", "bold")
        if kernel in elsewhere:
            at, anchor = (left + 8, "start") if wide else (right, "end")
            p.text(at, y + second, elsewhere[kernel], 11, INK.text, anchor)
        p.text(reason, y + second, ladder.said(*reasons[kernel]), 11, INK.muted, "start")
        y += high
    for i, (meaning, look) in enumerate(LOOKS.items()):
        p.key(right - 300 + 108 * i if wide else edge + 124 * i, 19 if wide else y + 12, meaning, look, 11.5, 12, 16, 10)
    p.note(y + 24, f"Stroke: FlashAttention-3, {short(fa3)} TFLOP/s. End of the bar: {MACHINE['sm']['wgmma_flops']:,} FLOPs per cycle and SM at the data sheet's clock.")
    p.height = y + 34


@figure("step", 40, "A step of the ladder: its speed, its factor over the step before, and its bar among those of all steps", width=400)
def step_of_the_ladder(p):
    """What heads a chapter: step.svg#at-05 shows the words and the bar of step 05."""
    found, factors, left, wide, foot, high = speeds(), step_factors(), 246, 9, 36, 31
    steps = kernels()
    p.rules = "g[id]{display:none}g[id]:target{display:inline}svg:has(:target) .all{display:none}"

    def bar(i, *look):
        tall = max(high * found[steps[i]] / max(found.values()), 1)
        p.rect(left + wide * i, foot - tall, wide - 2, tall, *look)

    for i in range(len(steps)):
        bar(i, INK.line)
    with p.group('class="all"'):
        p.text(2, 26, f"{len(steps)} steps to {short(max(found.values()))} TFLOP/s", 14, anchor="start")
    for i, kernel in enumerate(steps):
        with p.group(f'id="at-{kernel[:2]}"'):
            said = f"{kernel[:2]} of {len(steps)}", f"{short(found[kernel])} TFLOP/s", *([factor(factors[kernel])] if kernel in factors else [])
            p.text(2, 26, " \u00b7 ".join(said), 14, anchor="start")
            p.rect(left + wide * i - 2, 3, wide + 2, foot - 3, INK.blue_soft)
            bar(i, INK.blue)


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
