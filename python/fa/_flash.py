"""FlashAttention's functions with its arguments, order and layouts, computed by the kernels here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from ._attention import attention
from ._library import BadInput

if TYPE_CHECKING:
    import torch

Tensor = TypeVar("Tensor")
_WHOLE = (-1, -1)  # of window_size: no window


@overload
def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None,
                    causal: bool = False, window_size: tuple[int, int] = _WHOLE, softcap: float = 0.0, alibi_slopes: Any = None,
                    deterministic: bool = False, return_attn_probs: Literal[False] = False, *,
                    q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
                    kernel: int | str | None = None, check: bool = True) -> Tensor: ...


@overload
def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None,
                    causal: bool = False, window_size: tuple[int, int] = _WHOLE, softcap: float = 0.0, alibi_slopes: Any = None,
                    deterministic: bool = False, *, return_attn_probs: Literal[True],
                    q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
                    kernel: int | str | None = None, check: bool = True) -> tuple[Tensor, Tensor, None]: ...


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None,
                    causal: bool = False, window_size: tuple[int, int] = _WHOLE, softcap: float = 0.0, alibi_slopes: Any = None,
                    deterministic: bool = False, return_attn_probs: bool = False, *,
                    q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
                    kernel: int | str | None = None, check: bool = True) -> Any:
    """What flash_attn.flash_attn_func computes, with its gradients: softmax(softmax_scale q k^T) v.

    q: (batch, seq_len, heads, head_dim). k, v: (batch, kv_len, kv_heads, head_dim), with kv_heads a divisor of heads. Only
    the elements of a row need be neighbours: no tensor is copied, but the gradients' kernel gets copies of slices.
    causal: aligned at the bottom right, as FlashAttention's is from 2.1 on. The row of a query without keys is zeros.
    window_size, softcap, alibi_slopes: as fa.attention's window, softcap and alibi_slopes, without gradients.
    dropout_p: refused, unless it is 0.
    deterministic: gradients have the same bits each time. Otherwise those of q are sums in any order.
    return_attn_probs: a tuple of three, (out, softmax_lse, None). softmax_lse is (batch, heads, seq_len), of float32, in
    natural logarithms; of a row without keys it is -inf, where FlashAttention has inf. The third would be the probabilities
    with their dropout, which FlashAttention does not give without dropout either.
    q_descale, k_descale, v_descale: of q, k and v of torch.float8_e4m3fn, as FlashAttention-3's functions take them: (batch,
    kv_heads) of float32, and as fa.attention takes them besides. Then the result is of bfloat16, and log-sum-exp is refused.
    kernel, check: as fa.attention takes them. By default the fastest kernel for the problem, on the emulator with its checks.

    Returns a new tensor of q's shape, dtype and device. Streams, graphs and errors are those of fa.attention.
    """
    return _attention(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs, kernel, check,
                      q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)


@overload
def flash_attn_qkvpacked_func(qkv: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                              window_size: tuple[int, int] = _WHOLE, softcap: float = 0.0, alibi_slopes: Any = None,
                              deterministic: bool = False, return_attn_probs: Literal[False] = False, *,
                              q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
                              kernel: int | str | None = None, check: bool = True) -> Tensor: ...


@overload
def flash_attn_qkvpacked_func(qkv: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                              window_size: tuple[int, int] = _WHOLE, softcap: float = 0.0, alibi_slopes: Any = None,
                              deterministic: bool = False, *, return_attn_probs: Literal[True],
                              q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
                              kernel: int | str | None = None, check: bool = True) -> tuple[Tensor, Tensor, None]: ...


def flash_attn_qkvpacked_func(qkv: Any, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                              window_size: tuple[int, int] = _WHOLE, softcap: float = 0.0, alibi_slopes: Any = None,
                              deterministic: bool = False, return_attn_probs: bool = False, *,
                              q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
                              kernel: int | str | None = None, check: bool = True) -> Any:
    """The same for q, k and v in one tensor, (batch, seq_len, 3, heads, head_dim), as one projection gives them."""
    _check_packed("qkv", qkv, "(batch, seq_len, 3, heads, head_dim)", 3)
    return _attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                      return_attn_probs, kernel, check,
                      q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)


@overload
def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                             window_size: tuple[int, int] = _WHOLE, softcap: float = 0.0, alibi_slopes: Any = None,
                             deterministic: bool = False, return_attn_probs: Literal[False] = False, *,
                             q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
                             kernel: int | str | None = None, check: bool = True) -> Tensor: ...


@overload
def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                             window_size: tuple[int, int] = _WHOLE, softcap: float = 0.0, alibi_slopes: Any = None,
                             deterministic: bool = False, *, return_attn_probs: Literal[True],
                             q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
                             kernel: int | str | None = None, check: bool = True) -> tuple[Tensor, Tensor, None]: ...


def flash_attn_kvpacked_func(q: Any, kv: Any, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                             window_size: tuple[int, int] = _WHOLE, softcap: float = 0.0, alibi_slopes: Any = None,
                             deterministic: bool = False, return_attn_probs: bool = False, *,
                             q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
                             kernel: int | str | None = None, check: bool = True) -> Any:
    """The same for k and v in one tensor, (batch, kv_len, 2, kv_heads, head_dim)."""
    _check_packed("kv", kv, "(batch, kv_len, 2, kv_heads, head_dim)", 2)
    return _attention(q, kv[:, :, 0], kv[:, :, 1], dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                      return_attn_probs, kernel, check,
                      q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)


@overload
def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int,
                           max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                           window_size: tuple[int, int] = _WHOLE, softcap: float = 0.0, alibi_slopes: Any = None,
                           deterministic: bool = False, return_attn_probs: Literal[False] = False, block_table: Any = None, *,
                           q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
                           kernel: int | str | None = None, check: bool = True) -> Tensor: ...


@overload
def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int,
                           max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                           window_size: tuple[int, int] = _WHOLE, softcap: float = 0.0, alibi_slopes: Any = None,
                           deterministic: bool = False, *, return_attn_probs: Literal[True], block_table: Any = None,
                           q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
                           kernel: int | str | None = None, check: bool = True) -> tuple[Tensor, Tensor, None]: ...


def flash_attn_varlen_func(q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
                           dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                           window_size: tuple[int, int] = _WHOLE, softcap: float = 0.0, alibi_slopes: Any = None,
                           deterministic: bool = False, return_attn_probs: bool = False, block_table: Any = None, *,
                           q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
                           kernel: int | str | None = None, check: bool = True) -> Any:
    """The same as flash_attn_func for sequences of different lengths, one behind the other.

    q: (total, heads, head_dim). k, v: (total_k, kv_heads, head_dim).
    cu_seqlens_q, cu_seqlens_k: (sequences + 1,), of int32: the first row of each sequence, and the number of rows.
    max_seqlen_q, max_seqlen_k: at least the longest sequence.
    q_descale, k_descale, v_descale: refused, because packed sequences are not taken in float8_e4m3fn.
    block_table: refused. Pages are for fa.attention and flash_attn_with_kvcache.
    softmax_lse is (heads, total).
    """
    if block_table is not None:
        raise BadInput("block_table goes with fa.attention and fa.flash_attn_with_kvcache, where no sequences are packed: here pass None")
    return _attention(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs, kernel, check,
                      cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k,
                      q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)


@overload
def flash_attn_with_kvcache(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, k: torch.Tensor | None = None,
                            v: torch.Tensor | None = None, rotary_cos: Any = None, rotary_sin: Any = None,
                            cache_seqlens: int | torch.Tensor | None = None, cache_batch_idx: torch.Tensor | None = None,
                            cache_leftpad: Any = None, block_table: torch.Tensor | None = None, softmax_scale: float | None = None,
                            causal: bool = False, window_size: tuple[int, int] = _WHOLE, softcap: float = 0.0,
                            rotary_interleaved: bool = True, alibi_slopes: Any = None, num_splits: int = 0,
                            return_softmax_lse: Literal[False] = False, *,
                            q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
                            kernel: int | str | None = None, check: bool = True) -> torch.Tensor: ...


@overload
def flash_attn_with_kvcache(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, k: torch.Tensor | None = None,
                            v: torch.Tensor | None = None, rotary_cos: Any = None, rotary_sin: Any = None,
                            cache_seqlens: int | torch.Tensor | None = None, cache_batch_idx: torch.Tensor | None = None,
                            cache_leftpad: Any = None, block_table: torch.Tensor | None = None, softmax_scale: float | None = None,
                            causal: bool = False, window_size: tuple[int, int] = _WHOLE, softcap: float = 0.0,
                            rotary_interleaved: bool = True, alibi_slopes: Any = None, num_splits: int = 0, *,
                            return_softmax_lse: Literal[True],
                            q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
                            kernel: int | str | None = None, check: bool = True) -> tuple[torch.Tensor, torch.Tensor]: ...


def flash_attn_with_kvcache(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, k: torch.Tensor | None = None,
                            v: torch.Tensor | None = None, rotary_cos: Any = None, rotary_sin: Any = None,
                            cache_seqlens: int | torch.Tensor | None = None, cache_batch_idx: torch.Tensor | None = None,
                            cache_leftpad: Any = None, block_table: torch.Tensor | None = None, softmax_scale: float | None = None,
                            causal: bool = False, window_size: tuple[int, int] = _WHOLE, softcap: float = 0.0,
                            rotary_interleaved: bool = True, alibi_slopes: Any = None, num_splits: int = 0,
                            return_softmax_lse: bool = False, *,
                            q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
                            kernel: int | str | None = None, check: bool = True) -> Any:
    """One step of decoding: writes new keys and values into the cache, and attends to what is in it.

    q: (batch, seq_len, heads, head_dim), torch tensors as all others here.
    k_cache, v_cache: (batch_of_cache, most keys, kv_heads, head_dim), or with block_table pages (pages, page_size, kv_heads,
    head_dim). page_size is 16, 32, 64, 128 or 256.
    k, v: (batch, new keys, kv_heads, head_dim), written in place behind the keys that a sequence has. None: nothing is new.
    cache_seqlens: how many keys each sequence has before that, (batch,) of int32, or a number for all. None: the cache is
    full. What is in it is not checked on a GPU.
    cache_batch_idx: (batch,), which sequence of the cache is whose. None: in order.
    block_table: (batch, most pages of a sequence) of int32, the pages of each sequence in the order of its keys.
    causal: aligned at the last key of each sequence. With one query it changes nothing.
    q_descale, k_descale, v_descale: of a cache of torch.float8_e4m3fn, as flash_attn_func takes them. Such a cache has no pages, no
    cache_batch_idx and no tensor cache_seqlens.
    num_splits: without effect, since the kernel decides into how many parts it cuts the keys.
    window_size, softcap, alibi_slopes: as flash_attn_func takes them.
    rotary_cos, rotary_sin, cache_leftpad: refused, unless they are None.

    No key is copied, but of a cache without pages whose number of keys is no multiple of 16, with cache_seqlens a tensor:
    then all of it is, and a UserWarning says so.

    Returns a new tensor of q's shape; with return_softmax_lse also (batch, heads, seq_len), as fa.attention's return_lse.
    The call does not wait for the GPU. Other arguments and errors are those of flash_attn_func.
    """
    from ._cache import in_cache  # needs torch, which nothing else here does

    for name, value in (("rotary_cos", rotary_cos), ("rotary_sin", rotary_sin)):
        if value is not None:
            raise BadInput(f"{name} is given, but fa has no rotary embedding: rotate q and k before the call, and pass None")
    if cache_leftpad is not None:
        raise BadInput("cache_leftpad is given, but in fa a sequence begins with the cache's first key: pass None")
    where = in_cache(q, k_cache, v_cache, k, v, cache_seqlens, cache_batch_idx, block_table)
    result = _attention(q, where.pop("k"), where.pop("v"), 0.0, softmax_scale, causal, window_size, softcap, alibi_slopes, False,
                        return_softmax_lse, kernel, check, **where, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
    return result[:2] if return_softmax_lse else result


def _check_packed(name: str, tensor: Any, shape: str, parts: int) -> None:
    found: Any = tuple(getattr(tensor, "shape", ()))
    if len(found) != 5 or found[2] != parts:
        raise BadInput(f"{name} has the shape {found}, but fa takes {shape}")


def _attention(q: Any, k: Any, v: Any, dropout_p: float, softmax_scale: float | None, causal: bool, window_size: tuple[int, int],
               softcap: float, alibi_slopes: Any, deterministic: bool, return_attn_probs: bool, kernel: int | str | None, check: bool,
               **others: Any) -> Any:
    if dropout_p != 0:
        raise BadInput(f"dropout_p is {dropout_p!r}, but fa has no dropout: pass 0.0")
    if window_size is None:
        raise BadInput(f"window_size is None, but fa takes (left, right): pass {_WHOLE} for all keys")
    result = attention(q, k, v, kernel=kernel, layout="bnhd", scale=softmax_scale, causal=causal, return_lse=return_attn_probs,
                       window=window_size, softcap=softcap, alibi_slopes=alibi_slopes, check=check, deterministic=deterministic, **others)
    return (*result, None) if return_attn_probs else result
