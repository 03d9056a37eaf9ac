"""The cache of keys and values of fa.flash_attn_with_kvcache, as fa.attention takes it: in pages."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from ._library import BadInput

_PAGE_SIZES = (256, 128, 64, 32, 16)


def in_cache(q: Any, k_cache: Any, v_cache: Any, k: Any, v: Any, seqlens: Any, batch_idx: Any, table: Any) -> dict[str, Any]:
    """Writes k and v into the cache, and returns what fa.attention takes with q: k, v, and of pages where each sequence's are
    and how many keys it has. The arguments are those of flash_attn_with_kvcache."""
    given = {"q": q, "k_cache": k_cache, "v_cache": v_cache, "k": k, "v": v, "cache_batch_idx": batch_idx, "block_table": table}
    for name, tensor in given.items():
        if not isinstance(tensor, torch.Tensor) and (tensor is not None or name in ("q", "k_cache", "v_cache")):
            raise BadInput(f"{name} is of type {type(tensor).__name__}, but fa.flash_attn_with_kvcache takes torch tensors")
    for name, tensor in given.items():
        if tensor is not None and name in ("q", "k_cache", "v_cache", "k", "v") and tensor.dim() != 4:
            of = "(batch, seq_len, heads, head_dim)" if name in "qkv" else "(batch, most keys, kv_heads, head_dim)"
            raise BadInput(f"{name} has the shape {tuple(tensor.shape)}, but fa takes {of}")
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in (q, k_cache, v_cache, k, v)):
        raise BadInput("fa.flash_attn_with_kvcache has no gradients: call it under torch.no_grad(), or train with fa.flash_attn_func")
    if k_cache.shape != v_cache.shape:
        raise BadInput(f"v_cache has the shape {tuple(v_cache.shape)}, but k_cache has {tuple(k_cache.shape)}")
    if (k is None) != (v is None):
        raise BadInput("k and v belong together: pass both or none")
    if table is not None and batch_idx is not None:
        raise BadInput("cache_batch_idx does not go with block_table, which says where each sequence is")
    batch, most = q.shape[0], k_cache.shape[1]
    if table is not None:
        _check_list("block_table", table, q, 2)
        if table.shape[0] != batch:
            raise BadInput(f"block_table has the shape {tuple(table.shape)}, but q has {batch} sequences")
        most *= table.shape[1]
    elif batch_idx is None and k_cache.shape[0] != batch:
        raise BadInput(f"k_cache has {k_cache.shape[0]} sequences, but q has {batch}: pass cache_batch_idx")
    if batch_idx is not None and (batch_idx.shape != (batch,) or batch_idx.is_floating_point()):
        raise BadInput(f"cache_batch_idx has the shape {tuple(batch_idx.shape)}, but fa takes ({batch},), whole numbers")
    new = 0 if k is None else k.shape[1]
    if k is not None:
        _check_new(q, k_cache, k, v)
    seqlens = most - new if seqlens is None else seqlens
    if isinstance(seqlens, torch.Tensor):
        _check_list("cache_seqlens", seqlens, q, 1)
        if seqlens.shape[0] != batch:
            raise BadInput(f"cache_seqlens has the shape {tuple(seqlens.shape)}, but q has {batch} sequences")
    elif isinstance(seqlens, bool) or not isinstance(seqlens, int) or not 0 <= seqlens <= most - new:
        raise BadInput(f"cache_seqlens is {seqlens!r}, but the cache has room for {most} keys, and {new} are new")
    if k_cache.dtype == torch.float8_e4m3fn and (table is not None or batch_idx is not None or isinstance(seqlens, torch.Tensor)):
        raise BadInput("k_cache is of float8_e4m3fn, for which fa takes neither block_table nor cache_batch_idx, and as cache_seqlens a number or "
                       "None")
    if k is not None:
        _write(k_cache, k, seqlens, batch_idx, table)
        _write(v_cache, v, seqlens, batch_idx, table)
    if table is None and batch_idx is None and not isinstance(seqlens, torch.Tensor) and seqlens + new > 0:
        return {"k": k_cache[:, :seqlens + new], "v": v_cache[:, :seqlens + new]}  # all have as many keys: no pages are needed
    used = torch.full((batch,), seqlens, dtype=torch.int32, device=q.device) if not isinstance(seqlens, torch.Tensor) else seqlens
    used = used + new if new else used
    if table is None:
        k_cache, v_cache, table = _paged(k_cache, v_cache, batch_idx)
    return {"k": k_cache, "v": v_cache, "block_table": table, "seqused_k": used}


def _check_list(name: str, tensor: torch.Tensor, q: torch.Tensor, dimensions: int) -> None:
    if tensor.dim() != dimensions or tensor.dtype != torch.int32 or tensor.device != q.device:
        raise BadInput(f"{name} has the shape {tuple(tensor.shape)}, of {str(tensor.dtype)[6:]} on {tensor.device}, but fa takes "
                       f"{dimensions} dimension{'s' * (dimensions > 1)} of int32 on {q.device}")


def _check_new(q: torch.Tensor, cache: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    right = (q.shape[0], k.shape[1], *cache.shape[2:])
    for name, tensor in (("k", k), ("v", v)):
        if tensor.shape != right:
            raise BadInput(f"{name} has the shape {tuple(tensor.shape)}, but with this q and cache fa takes {right}")
        if tensor.dtype != cache.dtype or tensor.device != cache.device:
            raise BadInput(f"{name} is of {str(tensor.dtype)[6:]} on {tensor.device}, but the cache of {str(cache.dtype)[6:]} on {cache.device}")


def _write(cache: torch.Tensor, new: torch.Tensor, seqlens: Any, batch_idx: torch.Tensor | None, table: torch.Tensor | None) -> None:
    """Without a wait: the places are computed where the tensors are."""
    batch, count = new.shape[:2]
    sequences = torch.arange(batch, device=cache.device).unsqueeze(1)
    begin = seqlens.unsqueeze(1) if isinstance(seqlens, torch.Tensor) else seqlens
    places = begin + torch.arange(count, device=cache.device).expand(batch, count)
    if table is None:
        rows = sequences if batch_idx is None else batch_idx.unsqueeze(1)
        cache[rows, places] = new
        return
    size = cache.shape[1]
    cache[table.gather(1, (places // size).long()), places % size] = new


def _paged(k_cache: torch.Tensor, v_cache: torch.Tensor, batch_idx: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The cache as pages, each a part of a sequence's keys, and their table."""
    batch, most = k_cache.shape[:2]
    size = next((size for size in _PAGE_SIZES if most % size == 0), 0)
    # As a view, pages of one sequence follow on those of the one before.
    whole = size and all(each.stride(0) == most * each.stride(1) or batch == 1 for each in (k_cache, v_cache))
    if not whole:
        warnings.warn(f"the cache has {most} keys a sequence: fa copies it, unless that is a multiple of 16 and sequences lie one behind "
                      "the other", UserWarning, stacklevel=5)
        size = size or 16
        short = -most % size
        k_cache, v_cache = (torch.nn.functional.pad(each, (0, 0, 0, 0, 0, short)).contiguous() for each in (k_cache, v_cache))
        most += short
    pages = most // size
    table = torch.arange(batch * pages, dtype=torch.int32, device=k_cache.device).view(batch, pages)
    if batch_idx is not None:
        table = table[batch_idx.long()]
    shape = (batch * pages, size, *k_cache.shape[2:])
    return k_cache.reshape(shape), v_cache.reshape(shape), table
