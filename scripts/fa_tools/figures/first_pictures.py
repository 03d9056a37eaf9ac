"""The pictures of chapter 00: what is computed, the GPU that computes it, the formats of its numbers."""

from fa_tools.figures.drawing import BLUE, GREEN, GREY, INK, ORANGE, Picture
from fa_tools.intensity import MACHINES
from fa_tools.tools import read_json

GPU = "NVIDIA H200"


def attention():
    """Q, K, S, P, V and O with their shapes, and what one CTA has of them at a time."""
    p = Picture(880, 452, "Attention: the matrices of one head, and the part of them that one CTA works on")
    p.heading("One head: S = scale · Q Kᵀ, P = softmax(S) row by row, O = P V",
              "N tokens, D = head_dim. Framed: the tile of queries that a CTA owns, and the tile of keys that it is at.")
    n, d, top, left = 208, 58, 176, 130
    row, rows, key, keys = 66, 34, 92, 34  # a CTA's queries, and the keys of one tile
    q, s, v, o = left, left + 84, left + 416, left + 560

    def matrix(x, y, width, height, name, shape, fill, line, at):
        p.rect(x, y, width, height, fill, line)
        p.text(*at, name, 17, line, weight="bold")
        p.text(at[0], at[1] + 17, shape, 12, INK.muted)

    matrix(q, top, d, n, "Q", "N x D", *BLUE, (q + d / 2, top + 134))
    matrix(s, top - 84, n, d, "Kᵀ", "D x N", *BLUE, (s + 46, top - 60))
    matrix(s, top, n, n, "S, then P", "N x N: in memory in 01 only", *GREEN, (s + 104, top + 140))
    matrix(v, top, d, n, "V", "N x D", *BLUE, (v + d / 2, top + 40))
    matrix(o, top, d, n, "O", "N x D", *ORANGE, (o + d / 2, top + 134))
    p.text(s + n + 46, top + 106, "softmax,", 12.5, INK.muted)
    p.text(s + n + 46, top + 124, "times V", 12.5, INK.muted)
    p.arrow(s + n + 12, top + 86, v - 12, top + 86, INK.green, 2.4)
    p.arrow(v + d + 12, top + 86, o - 12, top + 86, INK.orange, 2.4)
    frame = INK.text
    p.rect(q, top + row, d, rows, "none", frame, 0, 2.4)
    p.rect(o, top + row, d, rows, "none", frame, 0, 2.4)
    p.rect(s + key, top - 84, keys, d, "none", frame, 0, 2.4)
    p.rect(v, top + key, d, keys, "none", frame, 0, 2.4)
    p.rect(s + key, top + row, keys, rows, INK.orange_soft, frame, 0, 2.4)
    p.line(s, top + row, s + n, top + row, frame, 1.2, "4 3")
    p.line(s, top + row + rows, s + n, top + row + rows, frame, 1.2, "4 3")
    p.text(q - 10, top + row + 14, "kBlockM", 11.5, anchor="end", mono=True)
    p.text(q - 10, top + row + 29, "queries", 11.5, INK.muted, "end")
    p.text(s + key + keys / 2, top - 92, "kBlockN keys", 11.5, mono=True)
    p.arrow(s + key + keys + 8, top - 48, s + key + keys + 44, top - 48, frame, 1.6)
    p.text(o + d + 12, top + row + 14, "acc_o, row_max,", 11.5, anchor="start", mono=True)
    p.text(o + d + 12, top + row + 29, "row_sum", 11.5, anchor="start", mono=True)
    p.note(410,
           "A CTA goes over the keys from left to right. Each tile of S is made, turned into P, multiplied with its tile of V, and forgotten.")
    p.note(430, "What stays from tile to tile: acc_o and, for each query, the largest score and the sum of the weights so far.")
    return p


def gpu():
    """From memory to the cores: what there is on each level, and how fast it is; one SM opened."""
    machine = read_json(MACHINES)["machines"][GPU]
    sm, speed, peak = machine["sm"], machine["tb_per_s"], machine["tflops"]
    p = Picture(880, 520, f"A GPU in one picture: {GPU}")
    p.heading(f"From memory to the multipliers: {GPU}", "speeds of all SMs together; sizes of one SM, where it says so")
    p.box(24, 76, 330, 62, ["HBM: global memory", f"{speed['hbm']:g} TB/s"], *BLUE, 15)
    p.arrow(189, 138, 189, 168, INK.blue, 2.6)
    p.box(24, 170, 330, 62, [f"L2, {machine['l2_mib']} MiB, for all SMs", f"{speed['l2']:g} TB/s"], *BLUE, 15)
    p.arrow(189, 232, 189, 262, INK.blue, 2.6)
    columns, cell = 22, 14.2
    for i in range(sm["count"]):
        x, y = 26 + i % columns * (cell + 0.8), 266 + i // columns * (cell + 0.8)
        p.rect(x, y, cell, cell, INK.orange_soft if i == columns - 1 else INK.green_soft,
               INK.orange if i == columns - 1 else INK.green, 2)
    below = 266 + -(-sm["count"] // columns) * (cell + 0.8)
    p.text(189, below + 22, f"{sm['count']} SMs (streaming multiprocessors)", 14, weight="bold")
    p.text(189, below + 42, "A CTA runs on one SM from its first instruction to its last.", 12, INK.muted)
    x, y, width, height = 400, 76, 456, 392
    p.line(26 + (columns - 1) * (cell + 0.8) + cell, 272, x, y + 40, INK.orange, 1.4, "4 3")
    p.rect(x, y, width, height, "none", INK.orange, 8, 2)
    p.text(x + 16, y + 24, f"One SM: up to {sm['warps']} warps of 32 threads", 15, anchor="start", weight="bold")
    for i in range(4):
        left, top = x + 14 + i % 2 * 217, y + 40 + i // 2 * 116
        p.rect(left, top, 210, 108, *GREY, 5)
        p.text(left + 10, top + 18, "scheduler: one warp a cycle", 12, anchor="start")
        p.box(left + 10, top + 26, 190, 24, [f"{sm['registers'] // 4:,} registers of 32 bits"], *GREEN, 11.5)
        p.box(left + 10, top + 55, 92, 44, [f"{sm['fma'] // 4} FMA", f"{sm['exp2'] // 4} exp2 a cycle"], *GREEN, 11.5)
        p.box(left + 108, top + 55, 92, 44, ["Tensor Core", f"{sm['wgmma_flops'] // 4:,} FLOP"], *ORANGE, 11.5)
    p.box(x + 14, y + 274, 428, 54, [f"Shared memory and L1: {sm['shared_kib']} KiB of shared memory at most",
                                     f"32 banks of 4 bytes: {sm['l1_bytes']} bytes a cycle; {speed['shared']:g} TB/s, all SMs"], *BLUE, 13)
    p.box(x + 14, y + 336, 428, 42, ["TMA: copies boxes between global and shared memory (chapter 12)"], *BLUE, 12.5)
    p.note(496,
           f"Tensor Cores {peak['tensor']:,} TFLOP/s, CUDA cores {peak['fp32']} TFLOP/s in fp32. The nearer to the cores, the faster and the smaller: "
           "so tiles.")
    return p


# Format: bits of exponent and of mantissa.
FORMATS = {"fp32": (8, 23), "bf16": (8, 7), "fp16": (5, 10)}
USES = {"fp32": "sums, S, row_max, row_sum, acc_o", "bf16": "Q, K, V, O, and P from 04 on", "fp16": "the same, instead of bf16"}


def largest(exponent, mantissa):
    return (2 - 2.0**-mantissa) * 2.0 ** (2 ** (exponent - 1) - 1)


def formats():
    """The bits of fp32, bf16 and fp16, how far they reach and how finely."""
    p = Picture(880, 330, "Number formats: fp32, bf16, fp16")
    p.heading("Three formats: sign, exponent, mantissa",
              "The exponent says how far a format reaches, the mantissa how finely. bf16 is the upper half of an fp32.")
    for x, name, (fill, line) in ((520, "sign", GREY), (600, "exponent", ORANGE),
                                  (710, "mantissa", BLUE)):
        p.rect(x, 68, 13, 13, fill, line)
        p.text(x + 19, 79, name, 12, anchor="start")
    bit, left = 16.4, 90
    for i, (name, (exponent, mantissa)) in enumerate(FORMATS.items()):
        y = 98 + i * 66
        p.text(left - 14, y + 18, name, 15, anchor="end", weight="bold")
        for n in range(1 + exponent + mantissa):
            fill, line = (GREY if n == 0 else ORANGE if n <= exponent else BLUE)
            p.rect(left + n * bit, y, bit - 2, 26, fill, line)
        p.text(left, y + 44, f"1 + {exponent} + {mantissa} bits; largest {largest(exponent, mantissa):.5g}; rounding is off by at most 2^-{mantissa + 1} "
               f"of the value", 12.5, INK.muted, "start")
        p.text(left + (1 + exponent + mantissa) * bit + 14, y + 18, USES[name], 13, anchor="start")
    p.note(312,
           "Tensor Cores multiply 16-bit factors exactly and add in fp32. Exponentials and everything about the softmax are fp32.")
    return p


FIRST = {"00_attention": attention, "00_gpu": gpu, "00_formats": formats}
