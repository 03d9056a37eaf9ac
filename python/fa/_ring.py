"""fa.ring_attention: one sequence over several GPUs, or over several processes on CPUs.

Liu, Zaharia, Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite Context" (2023); the striped order of
a causal mask: Brandon et al., "Striped Attention" (2023)."""

import zlib
from typing import Any

import torch
import torch.distributed as dist

from ._attention import attention
from ._library import BadInput


def ring_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False, kernel: int | str | None = None,
                   group: Any = None) -> torch.Tensor:
    """softmax(q k^T / sqrt(head_dim)) v over a sequence of which each process of `group` has a part.

    q, k, v: this process's part, as fa.attention takes them: (batch, heads, tokens, head_dim), k and v with as many or fewer
    heads. All processes have equally many tokens. With `causal` process r of w has the tokens r, r + w, r + 2 w, ...: then
    each sees about as many keys as every other one. Without it the parts may be any.
    kernel: one that gives log-sum-exp ("causal", "plain", "split_keys"). None: the fastest of them for each part.
    group: of torch.distributed, which the program has initialised: NCCL for tensors of GPUs, gloo for those of CPUs. None:
    the default group. All its processes call, with the same arguments but for the values.

    Returns this process's part of the output, of q's shape, dtype and device. Keys and values go around the ring while the
    process computes with those that it has; the results are merged by log-sum-exp in float32. Beside its own
    part of K and V a process holds two at a time, and a copy of one where the mask leaves a key out.

    Raises what fa.attention raises, and BadInput in all processes where their parts do not fit each other.
    """
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, torch.Tensor):
            raise BadInput(f"{name} is of type {type(tensor).__name__}, but fa.ring_attention takes torch tensors")
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        raise BadInput("fa.ring_attention has no gradients: call it under torch.no_grad(), or train with fa.attention")
    if not (dist.is_available() and dist.is_initialized()):
        raise BadInput("fa.ring_attention needs torch.distributed.init_process_group, which nothing has called")
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise BadInput("this process is not in the group that fa.ring_attention is called with")
    _check_parts(q, k, v, causal, str(kernel), group)
    before, after = (dist.get_global_rank(group, at % world) if group else at % world for at in (rank - 1, rank + 1))

    here = torch.stack((k, v))
    output, lse = torch.empty(0), torch.empty(0)
    for step in range(world):
        owner = (rank - step) % world  # of the keys that are here
        arriving, waiting = here, []
        if step + 1 < world:
            arriving = torch.empty_like(here)
            waiting = dist.batch_isend_irecv([dist.P2POp(dist.isend, here, after, group),
                                              dist.P2POp(dist.irecv, arriving, before, group)])
        try:
            # Query i is token i w + rank of the sequence, and key j is token j w + owner: it is seen if j <= i, or, where the
            # owner comes later, if j < i. The mask is aligned at the last key, so one key less says that.
            keys = k.shape[-2] - (causal and owner > rank)
            if keys > 0 or step == 0:
                part, part_lse = attention(q, *(each[:, :, :keys] for each in here), kernel=kernel, layout="bhnd",
                                           causal=causal, return_lse=True)
                if step == 0:
                    output, lse = part.float(), part_lse
                else:
                    lse = _merge(output, lse, part, part_lse)
        finally:  # also after an error: the neighbours count on it
            for each in waiting:
                each.wait()
        here = arriving
    return output.to(q.dtype)


def _check_parts(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, kernel: str, group: Any) -> None:
    """Raises BadInput in all processes unless they were called with the same shapes, types, mask and kernel."""
    facts = [zlib.crc32(str(each).encode()) for each in (q.dtype, k.dtype, v.dtype, bool(causal), kernel)]
    for tensor in (q, k, v):
        facts += [*tensor.shape, *[0] * 4][:4] if tensor.dim() <= 4 else [-1] * 4
    mine = torch.tensor(facts, device=q.device)
    of_all = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(of_all, mine, group)
    for other, theirs in enumerate(torch.stack(of_all).tolist()):
        for name, at in (("q", 5), ("k", 9), ("v", 13)):
            if theirs[at:at + 4] != facts[at:at + 4]:
                raise BadInput(f"{name} has the shape {tuple(facts[at:at + 4])} in this process and {tuple(theirs[at:at + 4])} in "
                               f"process {other} of the group: all parts must be equally long")
        if theirs[:5] != facts[:5]:
            raise BadInput(f"process {other} of the group has called fa.ring_attention with another dtype, mask or kernel")
    if not q.dim() == k.dim() == v.dim() == 4 or k.shape != v.shape:
        raise BadInput(f"q, k and v have the shapes {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}, but "
                       "fa.ring_attention takes (batch, heads, tokens, head_dim), k and v alike")
    if causal and q.shape[-2] != k.shape[-2]:
        raise BadInput(f"with a causal mask q and k have equally many tokens, not {q.shape[-2]} and {k.shape[-2]}")


def _merge(output: torch.Tensor, lse: torch.Tensor, part: torch.Tensor, part_lse: torch.Tensor) -> torch.Tensor:
    """Adds the result of a second part of the keys to `output`, in place, and returns the lse of both. A row of the second may
    have no keys; then its lse is -inf."""
    both = torch.logaddexp(lse, part_lse)
    output.mul_((lse - both).exp_()[..., None]).addcmul_(part, (part_lse - both).exp_()[..., None])
    return both
