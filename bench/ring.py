"""Times fa.ring_attention on the GPUs of one machine, beside fa.attention of the whole sequence on one of them.

    cmake --preset cuda -DFA_TESTS=OFF && cmake --build build/cuda --target fa
    export FA_LIBRARY=build/cuda/lib/libfa.so PYTHONPATH=python
    torchrun --standalone --nproc-per-node 4 bench/ring.py

Times are in ms, of the slowest process, medians:
    one GPU   the whole sequence there, by the kernel causal
    ring      fa.ring_attention, each GPU with its part
    computed  the same steps without sending: each of them with the keys that the GPU has
    sent      the same steps without computing
    faster    one GPU / ring
    error     of ring against one GPU, norm over norm, the largest of all parts
"""

import argparse
import os
import statistics

import fa
import torch
import torch.distributed as dist
from fa._ring import _merge


def time_of(call, rounds):
    """Milliseconds of the slowest process."""
    for _ in range(2):
        call()
    times = []
    for _ in range(rounds):
        dist.barrier()
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        slowest = torch.tensor([begin.elapsed_time(end)], device="cuda")
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        times.append(slowest.item())
    return statistics.median(times)


def computed(q, k, v, causal, rank, world):
    output = lse = None
    for step in range(world):
        keys = k.shape[-2] - (causal and (rank - step) % world > rank)
        part, part_lse = fa.attention(q, k[:, :, :keys], v[:, :, :keys], kernel="causal", causal=causal, return_lse=True)
        if step == 0:
            output, lse = part.float(), part_lse
        else:
            lse = _merge(output, lse, part, part_lse)
    return output.to(q.dtype)


def sent(k, v, rank, world):
    here = torch.stack((k, v))
    for _ in range(world - 1):
        arriving = torch.empty_like(here)
        for each in dist.batch_isend_irecv([dist.P2POp(dist.isend, here, (rank + 1) % world),
                                            dist.P2POp(dist.irecv, arriving, (rank - 1) % world)]):
            each.wait()
        here = arriving


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[8192, 16384, 32768, 65536, 131072], metavar="N",
                        help="of the whole sequence (default 8192 16384 ... 131072)")
    parser.add_argument("--heads", type=int, default=32, help="of queries (default 32)")
    parser.add_argument("--kv-heads", type=int, default=8, help="of keys and values (default 8)")
    parser.add_argument("--rounds", type=int, default=10, help="timed calls of each kind (default 10)")
    arguments = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    rank, world = dist.get_rank(), dist.get_world_size()

    def say(line):
        if rank == 0:
            print(line, flush=True)

    say(f"{world} x {torch.cuda.get_device_name()}, bf16, {arguments.heads} heads, {arguments.kv_heads} of keys, head_dim 128\n"
        " tokens mask    one GPU     ring computed     sent faster    error")
    for tokens in arguments.tokens:
        torch.manual_seed(1)  # all processes make the same sequence
        q, k, v = (torch.randn(1, heads, tokens, 128, dtype=torch.bfloat16, device="cuda")
                   for heads in (arguments.heads, arguments.kv_heads, arguments.kv_heads))
        mine = [each[:, :, rank::world].contiguous() for each in (q, k, v)]
        for causal in (False, True):
            one = time_of(lambda: fa.attention(q, k, v, kernel="causal", causal=causal), arguments.rounds)
            ring = time_of(lambda: fa.ring_attention(*mine, causal=causal), arguments.rounds)
            alone = time_of(lambda: computed(*mine, causal, rank, world), arguments.rounds)
            way = time_of(lambda: sent(*mine[1:], rank, world), arguments.rounds)
            right = fa.attention(q, k, v, kernel="causal", causal=causal)[:, :, rank::world].float()
            error = torch.linalg.norm(fa.ring_attention(*mine, causal=causal).float() - right) / torch.linalg.norm(right)
            dist.all_reduce(error, dist.ReduceOp.MAX)
            say(f"{tokens:7} {'causal' if causal else 'none':6} {one:8.2f} {ring:8.2f} {alone:8.2f} {way:8.2f} {one / ring:6.2f} {error.item():8.1e}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
