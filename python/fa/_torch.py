"""fa.attention for torch tensors: the operator fa::attention, which torch.compile keeps whole."""

from typing import Any, Optional

import torch

from . import _library
from ._attention import View, check, packed_of, paged_of


def _like(q: torch.Tensor, return_lse: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs for q; without return_lse the second one is empty."""
    return (torch.empty_like(q, memory_format=torch.contiguous_format),
            q.new_empty(q.shape[:-1] if return_lse else 0, dtype=torch.float32))


@torch.library.custom_op("fa::attention", mutates_args=())
def _operator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kernel: str, causal: bool = False,
              cu_seqlens_q: Optional[torch.Tensor] = None, cu_seqlens_k: Optional[torch.Tensor] = None,
              max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None, return_lse: bool = False,
              block_table: Optional[torch.Tensor] = None, seqused_k: Optional[torch.Tensor] = None,
              scale: Optional[float] = None) -> tuple[torch.Tensor, torch.Tensor]:
    lists = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "block_table": block_table, "seqused_k": seqused_k}
    given = {"q": q, "k": k, "v": v, **{name: each for name, each in lists.items() if each is not None}}
    views = {name: View(tensor.data_ptr(), tuple(tensor.shape), tensor.stride(),
                        str(tensor.dtype).removeprefix("torch."), str(tensor.device))
             for name, tensor in given.items()}
    check(views, "{name}.contiguous()")
    packed = packed_of(views, lambda name: given[name].tolist(), {"q": max_seqlen_q, "k": max_seqlen_k})
    o, lse = _like(q, return_lse)
    stream = torch.cuda.current_stream(q.device).cuda_stream if q.is_cuda else 0
    pointers = (*(views[name].pointer for name in "qkv"), o.data_ptr())
    _library.run(kernel, views["q"].shape, views["q"].dtype, pointers, stream, views["k"].shape, causal,
                 packed or paged_of(views), lse.data_ptr() if return_lse else 0, scale)
    return o, lse


@_operator.register_fake
def _(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kernel: str, causal: bool = False,
      cu_seqlens_q: Optional[torch.Tensor] = None, cu_seqlens_k: Optional[torch.Tensor] = None,
      max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None, return_lse: bool = False,
      block_table: Optional[torch.Tensor] = None, seqused_k: Optional[torch.Tensor] = None,
      scale: Optional[float] = None) -> tuple[torch.Tensor, torch.Tensor]:
    return _like(q, return_lse)


def attention(given: dict[str, Any], kernel: str, causal: bool, max_seqlen_q: Optional[int], max_seqlen_k: Optional[int],
              return_lse: bool, scale: Optional[float]) -> Any:
    """The operator, after what must not be left to it: kinds, and gradients."""
    q = given["q"]
    for name, tensor in given.items():
        if not isinstance(tensor, torch.Tensor):
            raise _library.BadInput(f"{name} is of type {type(tensor).__name__}, but q of type {type(q).__name__}")
    for name, tensor in given.items():
        if tensor.is_meta:
            raise _library.BadInput(f"{name} is on meta and has no data, which fa needs")
    if torch.is_grad_enabled() and any(given[name].requires_grad for name in "qkv"):
        raise _library.BadInput("fa has no backward pass: call it under torch.no_grad(), or pass tensors without "
                                "requires_grad")
    o, lse = _operator(**given, kernel=kernel, causal=causal, max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k,
                       return_lse=return_lse, scale=scale)
    return (o, lse) if return_lse else o
