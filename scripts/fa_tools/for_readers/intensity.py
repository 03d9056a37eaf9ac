"""Arithmetic intensity of the attention forward pass: FLOPs for each byte moved, by memory level and tile sizes.

A CTA owns block_m queries of one head and goes over all keys in tiles of block_n. With 2 bytes per element it does
4 * block_m * seq_len * head_dim FLOPs (two matrix products; a fused multiply-add is two FLOPs) and moves

  hbm     Q, K, V and O once per head, however many CTAs read K and V: the caches hold them in between
  l2      what each CTA asks of global memory: Q and O of its queries, and all of K and V
  shared  K and V: stored once, read once by each warp, that is for every `warp_rows` queries; Q: stored once, read
          once (--q-once: it stays in registers) or for every tile of keys; O: stored and read (--o-staged) or not

These are the fewest bytes: no bank conflict, no sector fetched in vain, no statistics or scores through memory."""

from collections import namedtuple

from fa_tools.cards import BOOK
from fa_tools.for_readers.limits import attention_flops, machine_named
from fa_tools.tools import Parser, fail

EXAMPLE = """examples:
  scripts/fa intensity --block-m 64 --block-n 64 --head-dim 128 --seq-len 4096
  scripts/fa intensity --block-m 128 --block-n 64 --warp-rows 32 --o-staged --head-dim 128 --seq-len 4096

Exit code: 0 done, 2 bad arguments."""

LEVELS = ("shared", "l2", "hbm")  # from the cores outwards

Work = namedtuple("Work", "flops bytes intensity")


def intensity(level, block_m, block_n, head_dim, seq_len, warp_rows=16, q_once=False, o_staged=False, element_bytes=2, softmax=False):
    """FLOPs, bytes and FLOPs per byte of one head at a memory level (the module says what is counted)."""
    if level not in LEVELS:
        raise ValueError(f"{level} is no memory level")
    if block_m % warp_rows or seq_len % block_m or seq_len % block_n:
        raise ValueError("warp_rows must divide block_m, and block_m and block_n must divide seq_len")
    ctas, tiles, warps = seq_len // block_m, seq_len // block_n, block_m // warp_rows
    all_rows, own_rows = seq_len * head_dim, block_m * head_dim  # elements of a whole tensor, of a CTA's part of Q or O
    if level == "hbm":
        elements = 4 * all_rows
    elif level == "l2":
        elements = ctas * (2 * own_rows + 2 * all_rows)
    else:
        keys = 2 * all_rows * (1 + warps)  # K and V: one store, a read by each warp
        queries = own_rows * (1 + (1 if q_once else tiles)) + 2 * own_rows * bool(o_staged)
        elements = ctas * (keys + queries)
    flops = attention_flops(1, 1, seq_len, head_dim)
    if softmax:  # a multiply-add is one, and a row of a tile takes 5 per key, 1 per element of O and 4
        flops = flops // 2 + ctas * tiles * block_m * (5 * block_n + head_dim + 4)
    moved = elements * element_bytes
    return Work(flops, moved, flops / moved)


def main():
    parser = Parser("intensity", __doc__, EXAMPLE)
    for name, default, text in (
        ("block-m", 64, "query rows per CTA"), ("block-n", 64, "keys per tile"), ("head-dim", 128, "elements of a query"),
        ("seq-len", 4096, "tokens"), ("warp-rows", 16, "query rows for which a warp reads K and V once"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{text} (default: {default})")
    parser.add_argument("--q-once", action="store_true", help="Q is read from shared memory once, not for every tile")
    parser.add_argument("--o-staged", action="store_true", help="O goes through shared memory on its way out")
    parser.add_argument("--softmax", action="store_true",
                        help="count as the series Flash Attention from Scratch does: a multiply-add is one operation, and the "
                             "softmax counts, too")
    parser.add_argument("--machine", default=BOOK, metavar="NAME", help=f"whose roofs, of bench/machines.json (default: {BOOK.upper()})")
    parser.earlier("--gpu", "machine")
    args = parser.parse_args()
    sizes = {name: getattr(args, name) for name in ("block_m", "block_n", "head_dim", "seq_len", "warp_rows")}
    for name, value in sizes.items():
        if value < 1:
            fail(f"--{name.replace('_', '-')} must be at least 1, not {value}")
    gpu, machine = machine_named(args.machine)
    try:
        works = {level: intensity(level, **sizes, q_once=args.q_once, o_staged=args.o_staged, softmax=args.softmax) for level in LEVELS}
    except ValueError as problem:
        fail(str(problem))
    peak = machine["tflops"]["tensor"]
    print(f"One head, {args.seq_len} tokens, head_dim {args.head_dim}; tiles of {args.block_m} queries and "
          f"{args.block_n} keys, {args.warp_rows} queries per warp")
    print(f"\n{'level':<8}{'MFLOP':>14}{'MB moved':>14}{'FLOP/byte':>12}   {'roof of an ' + gpu}")
    for level, work in works.items():
        speed = machine["tb_per_s"].get(level)
        if speed is None:
            print(f"{level:<8}{work.flops / 1e6:>14,.1f}{work.bytes / 1e6:>14,.2f}{work.intensity:>12,.1f}   (its speed is not published)")
            continue
        bound = min(peak, work.intensity * speed)
        limit = "Tensor Cores" if bound == peak else f"{level}, {speed:g} TB/s"
        print(f"{level:<8}{work.flops / 1e6:>14,.1f}{work.bytes / 1e6:>14,.2f}{work.intensity:>12,.1f}"
              f"   {bound:,.0f} TFLOP/s ({limit})")
    return 0
