"""fa.attention for torch tensors: the operator fa::attention, which torch.compile keeps whole."""

from typing import Any, Optional

import torch

from . import _library
from ._attention import View, check, is_numbered, packed_of, paged_of, strides_of, turned


def _like(q: torch.Tensor, bnhd: bool, return_lse: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs for q; without return_lse the second one is empty."""
    rows = q.transpose(-3, -2).shape[:-1] if bnhd else q.shape[:-1]
    return torch.empty_like(q, memory_format=torch.contiguous_format), q.new_empty(rows if return_lse else 0, dtype=torch.float32)


# What check() has found right: the layouts of q, k and v for a kernel, and what the library is told of them. A call with one of
# them need not check again.
_checked: dict[tuple[object, ...], tuple[Any, ...]] = {}


def _run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kernel: str, causal: bool = False,
         cu_seqlens_q: Optional[torch.Tensor] = None, cu_seqlens_k: Optional[torch.Tensor] = None,
         max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None, return_lse: bool = False,
         block_table: Optional[torch.Tensor] = None, seqused_k: Optional[torch.Tensor] = None,
         scale: Optional[float] = None, bnhd: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    if bnhd and is_numbered(kernel):
        q, k, v = (each.transpose(-3, -2).contiguous() for each in (q, k, v))
        o, lse = _run(q, k, v, kernel, causal, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, return_lse, block_table,
                      seqused_k, scale)
        return o.transpose(-3, -2).contiguous(), lse
    others: Any = None
    lists = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "block_table": block_table, "seqused_k": seqused_k}
    dense = all(each is None for each in lists.values())
    pointers = q.data_ptr(), k.data_ptr(), v.data_ptr()
    key = (kernel, bnhd, *((each.shape, each.stride(), each.dtype, each.device) for each in (q, k, v))) if dense else ()
    known = _checked.get(key) if dense and not any(pointer % 16 for pointer in pointers) else None
    if not known:
        given = {"q": q, "k": k, "v": v, **{name: each for name, each in lists.items() if each is not None}}
        views = check({name: _view(each) for name, each in given.items()}, kernel, bnhd, "{name}.contiguous()")
        others = packed_of(views, lambda name: given[name].tolist(), {"q": max_seqlen_q, "k": max_seqlen_k}) or paged_of(views)
        out = views["q"]._replace(shape=tuple(q.shape), strides=None)  # contiguous in q's order
        out = turned(out) if bnhd else out
        known = views["q"].shape, views["k"].shape, views["q"].dtype, strides_of([*(views[name] for name in "qkv"), out])
        if dense and len(_checked) < 10_000:
            _checked[key] = known
    shape, kv_shape, dtype, strides = known
    o, lse = _like(q, bnhd, return_lse)
    # What torch.cuda.current_stream(q.device).cuda_stream says, in a tenth of the time.
    stream = torch._C._cuda_getCurrentRawStream(q.get_device()) if q.is_cuda else 0
    _library.run(kernel, shape, dtype, (*pointers, o.data_ptr()), stream, kv_shape, causal, others,
                 lse.data_ptr() if return_lse else 0, scale, strides)
    return o, lse


def _view(tensor: torch.Tensor) -> View:
    return View(tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), str(tensor.dtype)[6:], str(tensor.device))


# Defined by hand, because torch.library.custom_op's wrapper takes as long as all the rest.
_definition = torch.library.Library("fa", "DEF")
_definition.define(f"attention{torch.library.infer_schema(_run, mutates_args=())}", tags=(torch.Tag.pt2_compliant_tag,))
_definition.impl("attention", _run, "CPU")
_definition.impl("attention", _run, "CUDA")
_operator = torch.ops.fa.attention.default


@torch.library.register_fake("fa::attention", lib=_definition)
def _(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kernel: str, causal: bool = False,
      cu_seqlens_q: Optional[torch.Tensor] = None, cu_seqlens_k: Optional[torch.Tensor] = None,
      max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None, return_lse: bool = False,
      block_table: Optional[torch.Tensor] = None, seqused_k: Optional[torch.Tensor] = None,
      scale: Optional[float] = None, bnhd: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    return _like(q, bnhd, return_lse)


def attention(given: dict[str, Any], kernel: str, bnhd: bool, causal: bool, max_seqlen_q: Optional[int], max_seqlen_k: Optional[int],
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
    o, lse = _operator(**given, kernel=kernel, bnhd=bnhd, causal=causal, max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k,
                       return_lse=return_lse, scale=scale)
    return (o, lse) if return_lse else o
