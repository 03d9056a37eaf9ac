"""fa.attention and fa.plan for torch tensors: the operator fa::attention, which torch.compile keeps whole."""

import inspect
from typing import Any

import torch
from torch.autograd import forward_ad

from . import _library
from ._attention import Given, View, check, is_of_one_order, packed_of, paged_of, plan_of, prepared, settled


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
         scale: float | None = None, bnhd: bool = False, checked: bool = True) -> tuple[torch.Tensor, torch.Tensor | None]:
    if bnhd and is_of_one_order(kernel):
        q, k, v = (each.transpose(-3, -2).contiguous() for each in (q, k, v))
        o, lse = _run(q, k, v, kernel, causal, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, return_lse, block_table,
                      seqused_k, scale, False, checked)
        return o.transpose(-3, -2).contiguous(), lse
    pointers = q.data_ptr(), k.data_ptr(), v.data_ptr()
    call = None
    dense = cu_seqlens_q is cu_seqlens_k is block_table is seqused_k is None
    if dense and not (pointers[0] | pointers[1] | pointers[2]) & 15:
        key = (kernel, causal, scale, bnhd, return_lse, checked, q.shape, q.stride(), q.dtype, q.device,
               k.shape, k.stride(), k.dtype, k.device, v.shape, v.stride(), v.dtype, v.device)
        call = _calls.get(key)
    if not call:
        lists = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "block_table": block_table, "seqused_k": seqused_k}
        tensors = {"q": q, "k": k, "v": v, **{name: each for name, each in lists.items() if each is not None}}
        given = Given(tensors, kernel, bnhd, causal, max_seqlen_q, max_seqlen_k, return_lse, scale, checked)
        views, others = _views(given)
        out = views["q"]._replace(shape=tuple(q.shape), strides=None)  # contiguous in q's order
        call = settled(given, views, prepared(given, views, others, out))
        if dense:
            if len(_calls) >= 10_000:  # each key that decoding adds makes another layout
                _calls.clear()
            _calls[key] = call
    o, lse = _outputs(q, bnhd, return_lse)
    # What torch.cuda.current_stream(q.device).cuda_stream says, in a tenth of the time.
    stream = torch._C._cuda_getCurrentRawStream(q.get_device()) if q.is_cuda else 0
    _library.run(call, (*pointers, o.data_ptr()), stream, 0 if lse is None else lse.data_ptr())
    return o, lse


def _views(given: Given) -> tuple[dict[str, View], _library.Packed | _library.Paged | None]:
    views = check({name: _view(each) for name, each in given.tensors.items()}, given.kernel, given.bnhd, "{name}.contiguous()")
    longest = {"q": given.max_seqlen_q, "k": given.max_seqlen_k}
    return views, packed_of(views, lambda name: given.tensors[name].tolist(), longest) or paged_of(views)


def _view(tensor: torch.Tensor) -> View:
    return View(tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), str(tensor.dtype)[6:], str(tensor.device))


# Defined by hand, because torch.library.custom_op's wrapper takes as long as all the rest.
_definition = torch.library.Library("fa", "DEF")
_definition.define("attention(Tensor q, Tensor k, Tensor v, str kernel, bool causal=False, Tensor? cu_seqlens_q=None, "
                   "Tensor? cu_seqlens_k=None, int? max_seqlen_q=None, int? max_seqlen_k=None, bool return_lse=False, "
                   "Tensor? block_table=None, Tensor? seqused_k=None, float? scale=None, bool bnhd=False, bool checked=True) -> (Tensor, Tensor)",
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


def _judged(given: Given) -> tuple[Given, bool]:
    """The tensors as a call takes them, and whether they are ordinary ones. Raises BadInput for what must not be left to the
    operator: kinds, and gradients."""
    tensors = given.tensors
    q, k, v = tensors["q"], tensors["k"], tensors["v"]
    ordinary = len(tensors) == 3 and type(q) is type(k) is type(v) is torch.Tensor
    for name, tensor in () if ordinary else tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise _library.BadInput(f"{name} is of type {type(tensor).__name__}, but q of type {type(q).__name__}")
    for name in [name for name, tensor in tensors.items() if tensor.is_meta]:
        raise _library.BadInput(f"{name} is on meta and has no data, which fa needs")
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        raise _library.BadInput("fa has no backward pass: call it under torch.no_grad(), or pass tensors without "
                                "requires_grad")
    if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(each).tangent is not None for each in (q, k, v)):
        raise _library.BadInput("fa has no forward-mode derivatives: pass tensors without tangents")
    kind = q.device.type
    if kind in ("cpu", "cuda") and torch.is_autocast_enabled(kind):  # as PyTorch does for its own attention
        dtype = torch.get_autocast_dtype(kind)
        cast = {name: tensors[name].to(dtype) for name in "qkv"
                if tensors[name].is_floating_point() and tensors[name].dtype not in (dtype, torch.float64)}
        given = given._replace(tensors={**tensors, **cast}) if cast else given
    return given, ordinary


def plan(given: Given) -> _library.Plan:
    given, _ = _judged(given)
    return plan_of(given, *_views(given))


def run(given: Given) -> Any:
    """The operator. Where nobody watches, what it runs: torch takes longer to find that out than all the rest takes."""
    given, ordinary = _judged(given)
    tensors = given.tensors
    q, k, v = tensors["q"], tensors["k"], tensors["v"]
    # A tensor with the negative bit is not what its memory says, until torch has called an operator with it.
    ordinary = ordinary and not (_is_watched() or q.is_neg() or k.is_neg() or v.is_neg())
    call = _run if ordinary else _operator
    o, lse = call(q, k, v, given.kernel, given.causal, tensors.get("cu_seqlens_q"), tensors.get("cu_seqlens_k"), given.max_seqlen_q,
                  given.max_seqlen_k, given.return_lse, tensors.get("block_table"), tensors.get("seqused_k"), given.scale, given.bnhd,
                  given.check)
    return (o, lse) if given.return_lse else o
