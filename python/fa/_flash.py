"""FlashAttention's functions with its arguments, order and layouts, computed by the kernels here."""

from typing import Any

from ._attention import attention
from ._library import BadInput


def flash_attn_func(q: Any, k: Any, v: Any, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                    window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Any = None,
                    deterministic: bool = False, return_attn_probs: bool = False, *, kernel: int | str = "causal") -> Any:
    """What flash_attn.flash_attn_func computes, forward: softmax(softmax_scale q k^T) v.

    q: (batch, seq_len, heads, head_dim). k, v: (batch, kv_len, kv_heads, head_dim), with kv_heads a divisor of heads. Only
    the elements of a row need be neighbours: no tensor is copied.
    causal: aligned at the bottom right, as FlashAttention's is from 2.1 on. The row of a query without keys is zeros.
    dropout_p, window_size, softcap, alibi_slopes: refused, unless they are as by default.
    deterministic: without effect, since it is about the backward pass, which is not here.
    return_attn_probs: a tuple of three, (out, softmax_lse, None). softmax_lse is (batch, heads, seq_len), of float32, in
    natural logarithms; of a row without keys it is -inf, where FlashAttention has inf. The third would be the probabilities
    with their dropout, which FlashAttention does not give without dropout either.
    kernel: any of kernels/beyond, or one from 12 on for what it takes: no mask, a multiple of 128 as seq_len and kv_len, as
    many kv_heads as heads. "causal" and those need a GPU of compute capability 9.0 or the emulator, "plain" runs everywhere.

    Returns a new tensor of q's shape, dtype and device. Streams, graphs and errors are those of fa.attention.
    """
    return _attention(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs, kernel)


def flash_attn_varlen_func(q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
                           dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
                           window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Any = None,
                           deterministic: bool = False, return_attn_probs: bool = False, block_table: Any = None, *,
                           kernel: int | str = "causal") -> Any:
    """The same as flash_attn_func for sequences of different lengths, one behind the other.

    q: (total, heads, head_dim). k, v: (total_k, kv_heads, head_dim).
    cu_seqlens_q, cu_seqlens_k: (sequences + 1,), of int32: the first row of each sequence, and the number of rows.
    max_seqlen_q, max_seqlen_k: at least the longest sequence.
    block_table: refused. Pages are for fa.attention.
    softmax_lse is (heads, total).
    """
    if block_table is not None:
        raise BadInput("block_table goes with fa.attention, where no sequences are packed: here pass None")
    return _attention(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, return_attn_probs, kernel,
                      cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k)


def _attention(q: Any, k: Any, v: Any, dropout_p: float, softmax_scale: float | None, causal: bool, window_size: tuple[int, int],
               softcap: float, alibi_slopes: Any, return_attn_probs: bool, kernel: int | str, **packed: Any) -> Any:
    for name, value, default, what in (("dropout_p", dropout_p, 0.0, "dropout"),
                                       ("window_size", tuple(window_size) if isinstance(window_size, list) else window_size, (-1, -1), "sliding window"),
                                       ("softcap", softcap, 0.0, "cap of scores")):
        if value != default:
            raise BadInput(f"{name} is {value!r}, but fa has no {what}: pass {default!r}")
    if alibi_slopes is not None:
        raise BadInput("alibi_slopes are given, but fa has no bias of scores: pass None")
    result = attention(q, k, v, kernel=kernel, layout="bnhd", scale=softmax_scale, causal=causal, return_lse=return_attn_probs,
                       **packed)
    return (*result, None) if return_attn_probs else result
