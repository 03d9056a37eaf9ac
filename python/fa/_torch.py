"""fa.attention for torch tensors: the operator fa::attention, which torch.compile keeps whole."""

from typing import Any

import torch

from . import _library
from ._attention import View, check


@torch.library.custom_op("fa::attention", mutates_args=())
def _operator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kernel: str) -> torch.Tensor:
    views = {name: View(tensor.data_ptr(), tuple(tensor.shape), tensor.stride(),
                        str(tensor.dtype).removeprefix("torch."), str(tensor.device))
             for name, tensor in (("q", q), ("k", k), ("v", v))}
    check(views, "{name}.contiguous()")
    o = torch.empty_like(q, memory_format=torch.contiguous_format)
    stream = torch.cuda.current_stream(q.device).cuda_stream if q.is_cuda else 0
    pointers = (*(view.pointer for view in views.values()), o.data_ptr())
    _library.run(kernel, views["q"].shape, views["q"].dtype, pointers, stream)
    return o


@_operator.register_fake
def _(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kernel: str) -> torch.Tensor:
    return torch.empty_like(q, memory_format=torch.contiguous_format)


def attention(q: Any, k: Any, v: Any, kernel: str) -> Any:
    """The operator, after what must not be left to it: kinds, and gradients."""
    for name, tensor in (("k", k), ("v", v)):
        if not isinstance(tensor, torch.Tensor):
            raise _library.BadInput(f"{name} is of type {type(tensor).__name__}, but q of type {type(q).__name__}")
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        raise _library.BadInput("fa has no backward pass: call it under torch.no_grad(), or pass tensors without "
                                "requires_grad")
    return _operator(q, k, v, kernel)
