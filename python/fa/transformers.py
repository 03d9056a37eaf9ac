"""The attention implementation "fa" of Hugging Face's transformers, from version 5.17 on.

    import fa.transformers
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16, attn_implementation="fa")

The import registers it. Padded batches are packed for the kernel and padded again; packed ones stay as they are. Windows, caps
of scores and sinks are fa.attention's, without gradients. What a model asks for beyond that (dropout, a mask of its own) raises
fa.BadInput.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import (bidirectional_mask_function, causal_mask_function, sliding_window_bidirectional_overlay,
                                        sliding_window_overlay)

from ._attention import attention
from ._library import BadInput

if tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 17):
    raise ImportError(f"fa.transformers needs transformers 5.17 or later, whose masks are made otherwise, and this is {transformers.__version__}")

_ALL = 1 << 30  # keys on one side: more than there are
_OF_WINDOW, _OF_WINDOW_ON_BOTH_SIDES = sliding_window_overlay(1).__code__, sliding_window_bidirectional_overlay(1).__code__
_OWN_MASK = "this model has a mask of its own, which fa does not have: choose attn_implementation='sdpa'"


def _forward(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: torch.Tensor | None,
             scaling: float | None = None, dropout: float = 0.0, is_causal: bool | None = None, sliding_window: int | None = None,
             softcap: float | None = None, s_aux: torch.Tensor | None = None, position_ids: torch.Tensor | None = None,
             cu_seq_lens_q: torch.Tensor | None = None, cu_seq_lens_k: torch.Tensor | None = None, max_length_q: int | None = None,
             max_length_k: int | None = None, **others: Any) -> tuple[torch.Tensor, None]:
    """What AttentionInterface asks for. query: (batch, heads, seq_len, head_dim). Returns (batch, seq_len, heads, head_dim)."""
    batch, _, q_len, _ = query.shape
    attention_mask, window = _apart(attention_mask)
    kv_len = key.shape[2] if attention_mask is None else attention_mask.shape[-1]
    beyond = {name: others.get(name) for name in ("position_bias", "sinks", "indices", "block_indices")}
    for name, given in {"dropout": dropout, **beyond}.items():
        if given is not None and not (isinstance(given, (int, float)) and given == 0):
            raise BadInput(f"this model calls its attention with {name}, which fa does not have: choose attn_implementation='sdpa'")
    if attention_mask is not None and attention_mask.dim() != 2:
        raise BadInput(f"attention_mask has the shape {tuple(attention_mask.shape)}, but with fa transformers takes (batch, tokens)")
    if (cu_seq_lens_q is None) != (cu_seq_lens_k is None) or attention_mask is not None and cu_seq_lens_q is not None:
        raise BadInput("cu_seq_lens_q and cu_seq_lens_k belong together, and packed texts have no padding: pass both, or attention_mask")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if getattr(module, "compressor", None) is not None:  # DeepSeek V4's: it adds keys, and lengthens the mask
        raise BadInput(_OWN_MASK)
    if window is None and sliding_window is not None and kv_len > sliding_window + (not causal):
        raise BadInput(f"this model calls its attention with a window of {sliding_window} keys, which its mask of {kv_len} keys does not have: choose "
                       "attn_implementation='sdpa'")
    if window is not None and not causal and q_len != kv_len:
        raise BadInput(f"this model has a window and no causal mask on {q_len} queries and {kv_len} keys, but fa takes as many keys as queries there")
    settings: dict[str, Any] = {"scale": scaling, "causal": bool(causal), "layout": "bnhd", "softcap": softcap, "sinks": s_aux,
                                "window": None if window is None else (window - 1, window - 1)}
    q, k, v = (each.transpose(1, 2) for each in (query, key, value))
    if attention_mask is not None:
        return _of_padded(q, k, v, attention_mask.bool(), settings), None
    positions = cu_seq_lens_q is None and settings["causal"] and 1 < q_len == kv_len and not torch.compiler.is_compiling()
    if positions and position_ids is not None and position_ids.dim() == 2:
        follows = position_ids.expand(batch, q_len).diff(dim=1) == 1
        if not follows.all():  # several sequences are packed, one behind the other
            begins = torch.nn.functional.pad(~follows, (1, 0), value=True)
            cu_seq_lens_q = cu_seq_lens_k = torch.nn.functional.pad(begins.flatten().nonzero().flatten(), (0, 1), value=batch * q_len)
    if cu_seq_lens_q is not None and cu_seq_lens_k is not None:
        flat = (each.reshape(-1, *each.shape[2:]) for each in (q, k, v))
        o = attention(*flat, cu_seqlens_q=cu_seq_lens_q.int(), cu_seqlens_k=cu_seq_lens_k.int(), max_seqlen_q=max_length_q,
                      max_seqlen_k=max_length_k, **settings)
        return o.view(q.shape), None
    return attention(q, k, v, **settings), None


def _of_padded(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, settings: dict[str, Any]) -> torch.Tensor:
    """The rows of q, k and v that are tokens, packed. mask: (batch, tokens so far), those of a causal q at its end; k and v may
    have room for more. Without causality and window q may be of other tokens, and all its rows are computed."""
    window = settings["window"] is not None
    if window and ((mask.int().diff(dim=1) == 1).sum(1) + mask[:, 0] > 1).any():
        raise BadInput("attention_mask has padding between the tokens of a text, over which fa cannot count the keys of a window: choose "
                       "attn_implementation='sdpa'")
    of_queries = mask[:, -q.shape[1]:] if settings["causal"] or window else mask.new_ones(q.shape[:2])
    o = torch.zeros_like(q)
    if not of_queries.any():
        return o
    k, v = (each[:, :mask.shape[1]][mask] for each in (k, v))
    begins = [torch.nn.functional.pad(each.sum(1).cumsum(0), (1, 0)).int() for each in (of_queries, mask)]
    o[of_queries] = attention(q[of_queries], k, v, cu_seqlens_q=begins[0], cu_seqlens_k=begins[1], **settings)
    return o


def _mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: int = 0,
          mask_function: Any = causal_mask_function, attention_mask: torch.Tensor | None = None, device: Any = None,
          **_: Any) -> torch.Tensor | None:
    """What AttentionMaskInterface asks for: which of the tokens so far are no padding, (batch, tokens), or None for all. Not every
    model with a window tells its attention so, but each hands it the mask. So a window is a dimension of it, as long as the keys
    that a causal query sees, and tokens without padding are none: (batch, window, 0)."""
    end = int(q_offset) + q_length
    left, right = _judge(mask_function, end)
    tokens = end - kv_offset if right == 0 else kv_length
    attention_mask = _apart(attention_mask)[0]  # it may be what this function has returned
    if attention_mask is None and tokens < kv_length:  # a cache of fixed size has room for more keys
        attention_mask = torch.ones(batch_size, tokens, dtype=torch.bool, device=device)
    elif attention_mask is not None:
        attention_mask = attention_mask[:, :kv_offset + tokens][:, -tokens:]
        if tokens == kv_length and attention_mask.all():
            attention_mask = None
    if tokens <= left + 1:
        return attention_mask
    if right not in (0, left):
        raise BadInput(_OWN_MASK)
    if attention_mask is None:
        attention_mask = torch.ones(batch_size, 0, dtype=torch.bool, device=device)
    return attention_mask[:, None].expand(-1, left + 1, -1)


def _apart(mask: torch.Tensor | None) -> tuple[torch.Tensor | None, int | None]:
    """The tokens and the window of what _mask returns."""
    if mask is None or mask.dim() != 3:
        return mask, None
    return mask[:, 0] if mask.shape[2] else None, mask.shape[1]


def _judge(function: Any, end: int) -> tuple[int, int]:
    """How many keys a mask shows to the left and to the right of a query. Refuses those that fa does not have. `end`: tokens so far.
    transformers makes a model's mask of functions that hold other functions, which are known by their code and by the variables
    that they hold: torch.compile reads those, and no functions' full names."""
    held = dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__ or ())))
    if "mask_functions" in held and function.__code__.co_name == "and_mask":
        sides = [_judge(each, end) for each in held["mask_functions"]]
        return min(left for left, _ in sides), min(right for _, right in sides)
    if "mask_function" in held:  # of packed texts, with each text's own positions
        return _judge(held["mask_function"], end)
    if function.__code__ is _OF_WINDOW:
        return held["sliding_window"] - 1, _ALL
    if function.__code__ is _OF_WINDOW_ON_BOTH_SIDES:
        return held["sliding_window"], held["sliding_window"]
    if "chunk_size" in held and end > held["chunk_size"]:
        raise BadInput(f"this model's tokens see chunks of {held['chunk_size']} keys, and {end} are there: fa has no chunks")
    known = function is causal_mask_function or function is bidirectional_mask_function
    if not known and "chunk_size" not in held and "packed_sequence_mask" not in held:
        raise BadInput(_OWN_MASK)
    return _ALL, 0 if function is causal_mask_function else _ALL


AttentionInterface.register("fa", _forward)
AttentionMaskInterface.register("fa", _mask)
