"""fa.attention for torch tensors: the operator fa::attention, which torch.compile keeps whole."""

from typing import Any, Optional

import torch

from . import _library
from ._attention import View, check, packed_of


@torch.library.custom_op("fa::attention", mutates_args=())
def _operator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kernel: str, causal: bool = False,
              cu_seqlens_q: Optional[torch.Tensor] = None, cu_seqlens_k: Optional[torch.Tensor] = None,
              max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None) -> torch.Tensor:
    given = {"q": q, "k": k, "v": v}
    if cu_seqlens_q is not None and cu_seqlens_k is not None:
        given.update(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    views = {name: View(tensor.data_ptr(), tuple(tensor.shape), tensor.stride(),
                        str(tensor.dtype).removeprefix("torch."), str(tensor.device))
             for name, tensor in given.items()}
    check(views, "{name}.contiguous()")
    packed = packed_of(views, lambda name: given[name].tolist(), {"q": max_seqlen_q, "k": max_seqlen_k})
    o = torch.empty_like(q, memory_format=torch.contiguous_format)
    stream = torch.cuda.current_stream(q.device).cuda_stream if q.is_cuda else 0
    pointers = (*(views[name].pointer for name in "qkv"), o.data_ptr())
    _library.run(kernel, views["q"].shape, views["q"].dtype, pointers, stream, views["k"].shape, causal, packed)
    return o


@_operator.register_fake
def _(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kernel: str, causal: bool = False,
      cu_seqlens_q: Optional[torch.Tensor] = None, cu_seqlens_k: Optional[torch.Tensor] = None,
      max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None) -> torch.Tensor:
    return torch.empty_like(q, memory_format=torch.contiguous_format)


def attention(q: Any, k: Any, v: Any, kernel: str, causal: bool, cu_seqlens_q: Any, cu_seqlens_k: Any,
              max_seqlen_q: Optional[int], max_seqlen_k: Optional[int]) -> Any:
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
    return _operator(q, k, v, kernel, causal, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
