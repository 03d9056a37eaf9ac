"""The pictures of chapter 00: the way through the book, what is computed, the GPU that computes it, the formats of its
numbers."""

from fa_tools.figures.drawing import BLUE, GREEN, GREY, INK, ORANGE, figure
from fa_tools.intensity import MACHINES
from fa_tools.tools import read_json

GPU = "NVIDIA H200"

# A step of the ladder each: its idea, and what limits it, which is the reason for the next one.
STEPS = (
    ("one thread per element", "its lanes read memory in the worst order"),
    ("softmax in one pass, tiles in shared memory", "every multiply-add fetches its operands"),
    ("a tile of results in each thread's registers", "the CUDA cores have no more to give"),
    ("Tensor Cores through wmma", "an unknown layout: S, P and O travel through shared memory"),
    ("mma.sync, whose layout is known", "warps that split the keys must merge their results"),
    ("warps split the queries: P stays in registers", "a tile is fetched when it is needed, not before"),
    ("copies in the background", "padding, or else lanes that collide in the banks"),
    ("a swizzle: no padding and no collisions", "products wait for their operands"),
    ("operands read ahead", "too many instructions beside the products"),
    ("fewer instructions", "registers cannot deliver operands any faster"),
    ("wgmma: Tensor Cores read shared memory", "threads still spend instructions on copying"),
    ("TMA: one thread orders a whole tile", "the same warps load and compute"),
    ("warps that only load", "Tensor Cores pause during the softmax"),
    ("the softmax runs under the products", "Tensor Cores pause between two query tiles"),
    ("the next query tile begins early", "exponentials wait for the row's maximum"),
    ("no row maximum", "the Tensor Cores, and the power they draw"),
)


@figure("00_map", 556, "The way through the book: sixteen kernels, each with its idea and what limits it",
        "Sixteen steps, from below: the idea of each kernel, and what limits it",
        "What limits a kernel is what the next one removes.")
def steps(p):
    height, left = 28, 24
    for i, (idea, limit) in enumerate(STEPS):
        x, y = left + 9 * i, 70 + (len(STEPS) - 1 - i) * height
        p.rect(x, y, 856 - x, height - 2, *(GREEN if i < 3 else BLUE if i < 10 else ORANGE), 3)
        p.text(x + 12, y + 18, f"{i + 1:02}", 13, anchor="start", weight="bold")
        p.text(x + 40, y + 18, idea, 13, anchor="start")
        p.text(844, y + 18, limit, 12, INK.muted, "end", italic=True)
    for x, name, look in ((140, "any GPU", GREEN), (300, "an A100 or later", BLUE),
                          (480, "an H100 or H200; the emulator runs all", ORANGE)):
        p.key(x, 528, name, look)


@figure("00_attention", 452, "Attention: the matrices of one head, and the part of them that one CTA works on",
        "One head: S = scale · Q Kᵀ, P = softmax(S) row by row, O = P V",
        "N tokens, D = head_dim. Framed: the tile of queries that a CTA owns, and the tile of keys that it is at.")
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
           "The CTA keeps acc_o from tile to tile and, for each query, the largest score and the sum of the weights so far.", step=20)


@figure("00_gpu", 520, f"A GPU in one picture: {GPU}", f"From memory to the multipliers: {GPU}",
        "Speeds are those of all SMs together, sizes those of one SM.")
def gpu(p):
    machine = read_json(MACHINES)["machines"][GPU]
    sm, speed, peak = machine["sm"], machine["tb_per_s"], machine["tflops"]
    for y, name, what in ((76, "HBM: global memory", speed["hbm"]), (170, f"L2, {machine['l2_mib']} MiB, for all SMs", speed["l2"])):
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
        p.box(left + 10, top + 55, 92, 44, [f"{sm['fma'] // 4} FMA", f"{sm['exp2'] // 4} exp2 per cycle"], *GREEN, 11.5)
        p.box(left + 108, top + 55, 92, 44, ["Tensor Core", f"{sm['wgmma_flops'] // 4:,} FLOP"], *ORANGE, 11.5)
    p.box(x + 14, y + 274, 428, 54, [f"Shared memory and L1: {sm['shared_kib']} KiB of shared memory at most",
                                     f"32 banks of 4 bytes: {sm['l1_bytes']} bytes per cycle; {speed['shared']:g} TB/s, all SMs"], *BLUE, 13)
    p.box(x + 14, y + 336, 428, 42, ["TMA: copies tiles to and from shared memory (chapter 12)"], *BLUE, 12.5)
    p.note(496, f"Tensor Cores {peak['tensor']:,} TFLOP/s, CUDA cores {peak['fp32']} TFLOP/s in fp32. Memory nearer to the cores is "
           "faster and smaller, so kernels work on tiles.")


# Format: bits of exponent and of mantissa.
FORMATS = {"fp32": (8, 23), "bf16": (8, 7), "fp16": (5, 10)}
USES = {"fp32": "sums, S, row_max, row_sum, acc_o", "bf16": "Q, K, V, O, and P from 04 on", "fp16": "the same, instead of bf16"}


def largest(exponent, mantissa):
    return (2 - 2.0**-mantissa) * 2.0 ** (2 ** (exponent - 1) - 1)


@figure("00_formats", 330, "Number formats: fp32, bf16, fp16", "Three formats: sign, exponent, mantissa",
        "The exponent says how far a format reaches, the mantissa how finely it rounds. bf16 is the upper half of an fp32.")
def formats(p):
    for x, name, look in ((520, "sign", GREY), (600, "exponent", ORANGE), (710, "mantissa", BLUE)):
        p.key(x, 68, name, look, 12, 13, 19, 11)
    bit, left = 16.4, 90
    for i, (name, (exponent, mantissa)) in enumerate(FORMATS.items()):
        y = 98 + i * 66
        p.text(left - 14, y + 18, name, 15, anchor="end", weight="bold")
        for n in range(1 + exponent + mantissa):
            p.rect(left + n * bit, y, bit - 2, 26, *(GREY if n == 0 else ORANGE if n <= exponent else BLUE))
        p.text(left, y + 44, f"1 + {exponent} + {mantissa} bits; largest {largest(exponent, mantissa):.5g}; rounding changes a value by at most "
               f"2^-{mantissa + 1} of it", 12.5, INK.muted, "start")
        p.text(left + (1 + exponent + mantissa) * bit + 14, y + 18, USES[name], 13, anchor="start")
    p.note(312, "Tensor Cores multiply 16-bit factors exactly and add in fp32. The exponentials and the rest of the softmax are "
           "fp32, too.")
