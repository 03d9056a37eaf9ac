"""fa.attention for torch tensors: the operator fa::attention, which torch.compile keeps whole."""

from typing import Any, Optional

import torch

from . import _library
from ._attention import View, check, packed_of


def _like(q: torch.Tensor, return_lse: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs for q; without return_lse the second one is empty."""
    return (torch.empty_like(q, memory_format=torch.contiguous_format),
            q.new_empty(q.shape[:-1] if return_lse else 0, dtype=torch.float32))


@torch.library.custom_op("fa::attention", mutates_args=())
def _operator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kernel: str, causal: bool = False,
              cu_seqlens_q: Optional[torch.Tensor] = None, cu_seqlens_k: Optional[torch.Tensor] = None,
              max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None,
              return_lse: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    given = {"q": q, "k": k, "v": v}
    if cu_seqlens_q is not None and cu_seqlens_k is not None:
        given.update(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    views = {name: View(tensor.data_ptr(), tuple(tensor.shape), tensor.stride(),
                        str(tensor.dtype).removeprefix("torch."), str(tensor.device))
             for name, tensor in given.items()}
    check(views, "{name}.contiguous()")
    packed = packed_of(views, lambda name: given[name].tolist(), {"q": max_seqlen_q, "k": max_seqlen_k})
    o, lse = _like(q, return_lse)
    stream = torch.cuda.current_stream(q.device).cuda_stream if q.is_cuda else 0
    pointers = (*(views[name].pointer for name in "qkv"), o.data_ptr())
    _library.run(kernel, views["q"].shape, views["q"].dtype, pointers, stream, views["k"].shape, causal, packed,
                 lse.data_ptr() if return_lse else 0)
    return o, lse


@_operator.register_fake
def _(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kernel: str, causal: bool = False,
      cu_seqlens_q: Optional[torch.Tensor] = None, cu_seqlens_k: Optional[torch.Tensor] = None,
      max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None,
      return_lse: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    return _like(q, return_lse)


def attention(q: Any, k: Any, v: Any, kernel: str, causal: bool, cu_seqlens_q: Any, cu_seqlens_k: Any,
              max_seqlen_q: Optional[int], max_seqlen_k: Optional[int], return_lse: bool) -> Any:
    """The operator, after what must not be left to it: kinds, and gradients."""
    others = {"k": k, "v": v, **({} if cu_seqlens_q is None else {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k})}
    for name, tensor in others.items():
        if not isinstance(tensor, torch.Tensor):
            raise _library.BadInput(f"{name} is of type {type(tensor).__name__}, but q of type {type(q).__name__}")
    for name, tensor in {"q": q, **others}.items():
        if tensor.is_meta:
            raise _library.BadInput(f"{name} is on meta and has no data, which fa needs")
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        raise _library.BadInput("fa has no backward pass: call it under torch.no_grad(), or pass tensors without "
                                "requires_grad")
    o, lse = _operator(q, k, v, kernel, causal, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, return_lse)
    return (o, lse) if return_lse else o
