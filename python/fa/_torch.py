"""fa.attention for torch tensors: the operator fa::attention, which torch.compile keeps whole."""

import inspect
from typing import Any

import torch
from torch.autograd import forward_ad

from . import _library
from ._attention import View, check, is_of_one_order, packed_of, paged_of, strides_of, turned


def _outputs(q: torch.Tensor, bnhd: bool, return_lse: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The outputs for q."""
    o = torch.empty_like(q, memory_format=torch.contiguous_format)
    if not return_lse:
        return o, None
    return o, q.new_empty((q.transpose(-3, -2) if bnhd else q).shape[:-1], dtype=torch.float32)


# What check() has found right and the library is told, by what of a call's arguments decides it.
_calls: dict[tuple[object, ...], _library.Call] = {}


def _run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kernel: str, causal: bool = False,
         cu_seqlens_q: torch.Tensor | None = None, cu_seqlens_k: torch.Tensor | None = None,
         max_seqlen_q: int | None = None, max_seqlen_k: int | None = None, return_lse: bool = False,
         block_table: torch.Tensor | None = None, seqused_k: torch.Tensor | None = None,
         scale: float | None = None, bnhd: bool = False) -> tuple[torch.Tensor, torch.Tensor | None]:
    if bnhd and is_of_one_order(kernel):
        q, k, v = (each.transpose(-3, -2).contiguous() for each in (q, k, v))
        o, lse = _run(q, k, v, kernel, causal, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, return_lse, block_table,
                      seqused_k, scale)
        return o.transpose(-3, -2).contiguous(), lse
    pointers = q.data_ptr(), k.data_ptr(), v.data_ptr()
    call = None
    dense = cu_seqlens_q is cu_seqlens_k is block_table is seqused_k is None
    if dense and not (pointers[0] | pointers[1] | pointers[2]) & 15:
        key = (kernel, causal, scale, bnhd, q.shape, q.stride(), q.dtype, q.device, k.shape, k.stride(), k.dtype, k.device,
               v.shape, v.stride(), v.dtype, v.device)
        call = _calls.get(key)
    if not call:
        lists = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "block_table": block_table, "seqused_k": seqused_k}
        given = {"q": q, "k": k, "v": v, **{name: each for name, each in lists.items() if each is not None}}
        views = check({name: _view(each) for name, each in given.items()}, kernel, bnhd, "{name}.contiguous()")
        others = packed_of(views, lambda name: given[name].tolist(), {"q": max_seqlen_q, "k": max_seqlen_k}) or paged_of(views)
        out = views["q"]._replace(shape=tuple(q.shape), strides=None)  # contiguous in q's order
        strides = strides_of([*(views[name] for name in "qkv"), turned(out) if bnhd else out])
        call = _library.prepare(kernel, views["q"].shape, views["q"].dtype, views["k"].shape, causal, others, scale, strides,
                                q.device.type)
        if dense:
            if len(_calls) >= 10_000:  # each key that decoding adds makes another layout
                _calls.clear()
            _calls[key] = call
    o, lse = _outputs(q, bnhd, return_lse)
    # What torch.cuda.current_stream(q.device).cuda_stream says, in a tenth of the time.
    stream = torch._C._cuda_getCurrentRawStream(q.get_device()) if q.is_cuda else 0
    _library.run(call, (*pointers, o.data_ptr()), stream, 0 if lse is None else lse.data_ptr())
    return o, lse


def _view(tensor: torch.Tensor) -> View:
    return View(tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), str(tensor.dtype)[6:], str(tensor.device))


# Defined by hand, because torch.library.custom_op's wrapper takes as long as all the rest.
_definition = torch.library.Library("fa", "DEF")
_definition.define("attention(Tensor q, Tensor k, Tensor v, str kernel, bool causal=False, Tensor? cu_seqlens_q=None, "
                   "Tensor? cu_seqlens_k=None, int? max_seqlen_q=None, int? max_seqlen_k=None, bool return_lse=False, "
                   "Tensor? block_table=None, Tensor? seqused_k=None, float? scale=None, bool bnhd=False) -> (Tensor, Tensor)",
                   tags=(torch.Tag.pt2_compliant_tag,))
_operator = torch.ops.fa.attention.default


def _both(o: torch.Tensor, lse: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """An operator's outputs are always there: an lse that is not wanted is empty."""
    return o, o.new_empty(0, dtype=torch.float32) if lse is None else lse


@torch.library.impl(_definition, "attention", "CPU")
@torch.library.impl(_definition, "attention", "CUDA")
def _(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return _both(*_run(*given))


@torch.library.register_fake("fa::attention", lib=_definition)
def _(*given: Any, **named: Any) -> tuple[torch.Tensor, torch.Tensor]:
    of = inspect.signature(_run).bind(*given, **named).arguments
    return _both(*_outputs(of["q"], of.get("bnhd", False), of.get("return_lse", False)))


def _is_watched() -> bool:
    """Whether something of torch has to see the operator: a compiler, a trace, a mode, a transform, a profiler."""
    return (torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack() > 0 or
            torch._C._len_torch_function_stack() > 0 or torch._C._functorch.peek_interpreter_stack() is not None or
            torch.autograd.profiler._is_profiler_enabled)  # in any thread, since it may watch all of them


def attention(given: dict[str, Any], kernel: str, bnhd: bool, causal: bool, max_seqlen_q: int | None, max_seqlen_k: int | None,
              return_lse: bool, scale: float | None) -> Any:
    """The operator, after what must not be left to it: kinds, and gradients. Where nobody watches, what it runs: torch takes
    longer to find that out than all the rest takes."""
    q, k, v = given["q"], given["k"], given["v"]
    ordinary = len(given) == 3 and type(q) is type(k) is type(v) is torch.Tensor
    for name, tensor in () if ordinary else given.items():
        if not isinstance(tensor, torch.Tensor):
            raise _library.BadInput(f"{name} is of type {type(tensor).__name__}, but q of type {type(q).__name__}")
    for name in [name for name, tensor in given.items() if tensor.is_meta]:
        raise _library.BadInput(f"{name} is on meta and has no data, which fa needs")
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        raise _library.BadInput("fa has no backward pass: call it under torch.no_grad(), or pass tensors without "
                                "requires_grad")
    if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(each).tangent is not None for each in (q, k, v)):
        raise _library.BadInput("fa has no forward-mode derivatives: pass tensors without tangents")
    # A tensor with the negative bit is not what its memory says, until torch has called an operator with it.
    ordinary = ordinary and not (_is_watched() or q.is_neg() or k.is_neg() or v.is_neg())
    run = _run if ordinary else _operator
    o, lse = run(q, k, v, kernel, causal, given.get("cu_seqlens_q"), given.get("cu_seqlens_k"), max_seqlen_q, max_seqlen_k, return_lse,
                 given.get("block_table"), given.get("seqused_k"), scale, bnhd)
    return (o, lse) if return_lse else o
