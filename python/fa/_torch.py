"""fa.attention and fa.plan for torch tensors: the operator fa::attention, which torch.compile keeps whole, the operator of its
gradients, fa::attention_backward, and fa::attention_fp8 for tensors of e4m3."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

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


Kept = TypeVar("Kept")
# What check() has found right and the library is told, by what of a call's arguments decides it. What is kept has no pointers.
_calls: dict[tuple[object, ...], _library.Call] = {}
# The same by the options of fa.attention, as the program gave them, and whether gradients are wanted; with bnhd for _launch(), and
# what _keep() keeps.
_again: dict[tuple[object, ...], tuple[_library.Call, bool, tuple[Any, ...]]] = {}


def _layouts(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[object, ...]:
    return (q.shape, q.stride(), q.dtype, q.device, k.shape, k.stride(), k.dtype, k.device, v.shape, v.stride(), v.dtype, v.device)


def _remember(kept: dict[tuple[object, ...], Kept], key: tuple[object, ...], value: Kept) -> None:
    if len(kept) >= 10_000:  # each key that decoding adds makes another layout
        kept.clear()
    kept[key] = value


def _run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kernel: str, causal: bool = False,
         cu_seqlens_q: torch.Tensor | None = None, cu_seqlens_k: torch.Tensor | None = None,
         max_seqlen_q: int | None = None, max_seqlen_k: int | None = None, return_lse: bool = False,
         block_table: torch.Tensor | None = None, seqused_k: torch.Tensor | None = None,
         scale: float | None = None, bnhd: bool = False, checked: bool = True,
         deterministic: bool = False,  # which is for the gradients
         window: Sequence[int] | None = None, softcap: float = 0.0, sinks: torch.Tensor | None = None,
         alibi_slopes: torch.Tensor | None = None, options: tuple[object, ...] | None = None) -> tuple[torch.Tensor, torch.Tensor | None]:
    if bnhd and is_of_one_order(kernel):
        q, k, v = (each.transpose(-3, -2).contiguous() for each in (q, k, v))
        o, lse = _run(q, k, v, kernel, causal, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, return_lse, block_table,
                      seqused_k, scale, False, checked, deterministic, window, softcap, sinks, alibi_slopes)
        return o.transpose(-3, -2).contiguous(), lse
    pointers = q.data_ptr(), k.data_ptr(), v.data_ptr()
    call = None
    dense = cu_seqlens_q is cu_seqlens_k is block_table is seqused_k is sinks is alibi_slopes is None
    of_window = None if window is None else (window[0], window[1])
    if dense and not (pointers[0] | pointers[1] | pointers[2]) & 15:
        key = (kernel, causal, scale, of_window, softcap, bnhd, return_lse, checked, _layouts(q, k, v))
        call = _calls.get(key)
    if not call:
        lists = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "block_table": block_table, "seqused_k": seqused_k,
                 "sinks": sinks, "alibi_slopes": alibi_slopes}
        tensors = {"q": q, "k": k, "v": v, **{name: each for name, each in lists.items() if each is not None}}
        given = Given(tensors, kernel, bnhd, causal, max_seqlen_q, max_seqlen_k, return_lse, scale, checked, window=of_window, softcap=softcap)
        views, others = _views(given)
        out = views["q"]._replace(shape=tuple(q.shape), strides=None)  # contiguous in q's order
        call = settled(given, views, prepared(given, views, others, out))
        if dense:
            _remember(_calls, key, call)
    if options:
        _remember(_again, (options, _layouts(q, k, v)), (call, bnhd, (causal, max_seqlen_q, max_seqlen_k, scale, bnhd, checked, deterministic)))
    return _launch(call, q, pointers, bnhd, return_lse)


def _launch(call: _library.Call, q: torch.Tensor, pointers: tuple[int, int, int], bnhd: bool, return_lse: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    o, lse = _outputs(q, bnhd, return_lse)
    _library.run(call, (*pointers, o.data_ptr()), _stream(q), 0 if lse is None else lse.data_ptr())
    return o, lse


def _stream(q: torch.Tensor) -> int:
    # What torch.cuda.current_stream(q.device).cuda_stream says, in a tenth of the time.
    return torch._C._cuda_getCurrentRawStream(q.get_device()) if q.is_cuda else 0


def _views(given: Given) -> tuple[dict[str, View], _library.Packed | _library.Paged | None]:
    views = check({name: _view(each) for name, each in given.tensors.items()}, given.kernel, given.bnhd, "{name}.contiguous()", with_e4m3=True)
    longest = {"q": given.max_seqlen_q, "k": given.max_seqlen_k}
    return views, packed_of(views, lambda name: given.tensors[name].tolist(), longest) or paged_of(views)


def _view(tensor: torch.Tensor) -> View:
    return View(tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), str(tensor.dtype)[6:], str(tensor.device))


# Defined by hand, because torch.library.custom_op's wrapper takes as long as all the rest.
_definition = torch.library.Library("fa", "DEF")
_definition.define("attention(Tensor q, Tensor k, Tensor v, str kernel, bool causal=False, Tensor? cu_seqlens_q=None, "
                   "Tensor? cu_seqlens_k=None, int? max_seqlen_q=None, int? max_seqlen_k=None, bool return_lse=False, "
                   "Tensor? block_table=None, Tensor? seqused_k=None, float? scale=None, bool bnhd=False, bool checked=True, "
                   "bool deterministic=False, int[]? window=None, float softcap=0.0, Tensor? sinks=None, Tensor? alibi_slopes=None) "
                   "-> (Tensor, Tensor)",
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


# ---- gradients ------------------------------------------------------------------------------------------------------------
_NO_GRADIENTS_OF_SCORES = ("scores with a window, a softcap, sinks or alibi_slopes have no gradients in fa: call it under torch.no_grad(), or train with "
                           "torch's own attention")
_NO_GRADIENTS_OF_HEAD_DIM = "a head_dim of 96 or 256 has no gradients in fa: call it under torch.no_grad(), or train with torch's own attention"
_NOT_IN_PAGES = "k and v in pages have no gradients: call fa under torch.no_grad(), or pass k and v in one piece"


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """A gradient's memory: with the tensor's strides, unless elements of the tensor coincide or there are others between them."""
    made = torch.empty_like(tensor)
    return made if made.stride() == tensor.stride() else torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.contiguous_format) if tensor.data_ptr() % 16 else tensor


# As _calls, with the bytes of the workspace.
_calls_backward: dict[tuple[object, ...], tuple[_library.Call, int]] = {}


def _run_backward(d_o: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor,
                  causal: bool, cu_seqlens_q: torch.Tensor | None, cu_seqlens_k: torch.Tensor | None, max_seqlen_q: int | None,
                  max_seqlen_k: int | None, scale: float | None, bnhd: bool, checked: bool, deterministic: bool) -> tuple[torch.Tensor, ...]:
    """What autograd wants of _run: the gradients of q, k and v, from that of o. o and lse are _run's."""
    tensors, gradients = {}, []
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        gradients.append(_like(tensor))  # a kernel writes it in the tensor's own strides
        tensors[name] = tensor if gradients[-1].stride() == tensor.stride() else tensor.contiguous()
    d_o, o, lse = (_aligned(each.contiguous()) for each in (d_o, o, lse))
    if cu_seqlens_q is not None and cu_seqlens_k is not None:
        tensors.update(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    deterministic = deterministic or torch.are_deterministic_algorithms_enabled()
    inputs = tensors["q"].data_ptr(), tensors["k"].data_ptr(), tensors["v"].data_ptr()
    kept = cu_seqlens_q is None and not (inputs[0] | inputs[1] | inputs[2]) & 15
    key = (causal, scale, bnhd, checked, deterministic, _layouts(tensors["q"], tensors["k"], tensors["v"])) if kept else ()
    known = _calls_backward.get(key)
    if not known:
        given = Given(tensors, _library.BEST, bnhd, causal, max_seqlen_q, max_seqlen_k, False, scale, checked, deterministic)
        views, others = _views(given)
        call = prepared(given, views, others, views["q"]._replace(shape=tuple(o.shape), strides=None))
        known = call, _library.workspace_of_gradients(call, q.get_device() if q.is_cuda else 0)
        if kept:
            _remember(_calls_backward, key, known)
    call, size = known
    workspace = q.new_empty(size, dtype=torch.uint8)  # of torch's own memory, which a GPU's may all be
    pointers = (*inputs, *(each.data_ptr() for each in (o, d_o, *gradients)))
    _library.run_backward(call, pointers, (workspace.data_ptr() if size else 0, size), _stream(q), lse.data_ptr())
    return tuple(gradients)


_definition.define("attention_backward(Tensor d_o, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, bool causal, Tensor? cu_seqlens_q, "
                   "Tensor? cu_seqlens_k, int? max_seqlen_q, int? max_seqlen_k, float? scale, bool bnhd, bool checked, "
                   "bool deterministic) -> (Tensor, Tensor, Tensor)",
                   tags=(torch.Tag.pt2_compliant_tag,))
# log-sum-exp as a caller gets it, who might make a loss of it.
_definition.define("lse_of(Tensor lse, Tensor o) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))


@torch.library.impl(_definition, "attention_backward", "CPU")
@torch.library.impl(_definition, "attention_backward", "CUDA")
def _(*given: Any) -> tuple[torch.Tensor, ...]:
    return _run_backward(*given)


@torch.library.register_fake("fa::attention_backward", lib=_definition)
def _(d_o: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any) -> tuple[torch.Tensor, ...]:
    return _like(q), _like(k), _like(v)


@torch.library.impl(_definition, "lse_of", "CompositeExplicitAutograd")
def _(lse: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
    return lse.clone()


_NAMES = tuple(inspect.signature(_run).parameters)


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    of = dict(zip(_NAMES, inputs))
    if of["block_table"] is not None:
        raise _library.BadInput(_NOT_IN_PAGES)
    if of["window"] is not None or of["softcap"] or of["sinks"] is not None or of["alibi_slopes"] is not None:
        raise _library.BadInput(_NO_GRADIENTS_OF_SCORES)
    if of["q"].shape[-1] in (96, 256):
        raise _library.BadInput(_NO_GRADIENTS_OF_HEAD_DIM)
    given = tuple(of[name] for name in ("causal", "max_seqlen_q", "max_seqlen_k", "scale", "bnhd", "checked", "deterministic"))
    _keep(ctx, (of["q"], of["k"], of["v"], *output, of["cu_seqlens_q"], of["cu_seqlens_k"]), given)


def _keep(ctx: Any, tensors: tuple[torch.Tensor | None, ...], given: tuple[Any, ...]) -> None:
    ctx.given = given
    ctx.mark_non_differentiable(tensors[4])  # lse: as a caller gets it, it is lse_of's
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, d_o: torch.Tensor, _: Any) -> tuple[torch.Tensor | None, ...]:
    q, k, v, o, lse, *lists = ctx.saved_tensors
    if lse.dim() != q.dim() - 1:
        raise _library.BadInput("torch.ops.fa.attention needs return_lse=True where gradients are wanted, as fa.attention calls it")
    causal, *others = ctx.given
    # With create_graph the operator has to be there, which refuses second derivatives. Of a gradient that is a batch of them, zeros
    # without memory, sparse or negated, torch makes a tensor for an operator, and the same of what hooks of saved tensors return.
    direct = not (_is_watched() or torch.is_grad_enabled())
    if direct:
        keys = torch._C._dispatch_keys(o)
        direct = all(type(each) is torch.Tensor and torch._C._dispatch_keys(each) == keys for each in (d_o, q, k, v, lse))
    backward = _run_backward if direct else torch.ops.fa.attention_backward.default
    return *backward(d_o, q, k, v, o, lse, causal, *lists, *others), *[None] * 17  # the operator's other arguments


class _Attention(torch.autograd.Function):
    """What the operator does where gradients are wanted, for calls that nobody watches: torch reads its schema anew each time, which
    takes several times as long as all the rest."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                run: Callable[[], tuple[torch.Tensor, torch.Tensor]], given: tuple[Any, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        o, lse = run()
        _keep(ctx, (q, k, v, o, lse, None, None), given)
        return o, lse

    @staticmethod
    def backward(ctx: Any, d_o: torch.Tensor, _: Any) -> tuple[torch.Tensor | None, ...]:
        return _backward(ctx, d_o, _)[:5]


def _refuse(sentence: str) -> Any:
    def backward(*_: Any) -> None:
        raise _library.BadInput(sentence)

    return backward


torch.library.register_autograd("fa::attention", _backward, setup_context=_keep_inputs, lib=_definition)
torch.library.register_autograd("fa::attention_backward", _refuse(
    "fa has no second derivatives: leave create_graph out, or compute this attention with torch's own"), lib=_definition)
torch.library.register_autograd("fa::lse_of", _refuse(
    "log-sum-exp has no gradient in fa, only the output has: take lse.detach()"), lib=_definition)


# ---- e4m3 -----------------------------------------------------------------------------------------------------------------
_NO_GRADIENTS_OF_E4M3 = "float8_e4m3fn has no gradients: call fa under torch.no_grad(), or pass tensors of bfloat16"
# As _calls_backward.
_calls_fp8: dict[tuple[object, ...], tuple[_library.Call, int]] = {}


def _fp8_of(q: torch.Tensor, k: torch.Tensor, bnhd: bool, *descales: torch.Tensor | None) -> _library.Fp8:
    """What the library is told of the scales. Raises BadInput unless these are as fa.attention takes them."""
    heads, rows = (-2, -3) if bnhd else (-3, -2)
    batch, of_q, of_k = q.shape[0], q.shape[heads], k.shape[heads]
    found: dict[str, tuple[int, ...]] = {}
    for name, scales, tensor in zip("qkv", descales, (q, k, k)):
        if scales is None:
            continue
        shapes: list[tuple[int, ...]] = [(batch, of_k), *[(batch, of_q)] * (name == "q" and of_q != of_k)]
        if name != "v":
            shapes += [(*each, -(-tensor.shape[rows] // 128)) for each in shapes]
        if tuple(scales.shape) not in shapes:
            raise _library.BadInput(f"{name}_descale has the shape {tuple(scales.shape)}, but fa takes {' or '.join(map(str, shapes))} here")
        if scales.dtype != torch.float32 or scales.device != q.device:
            raise _library.BadInput(f"{name}_descale is of {str(scales.dtype)[6:]} on {scales.device}, but fa takes float32 on {q.device}")
        strides = [0 if size == 1 else stride for size, stride in zip(scales.shape, scales.stride())]
        found[name] = (scales.data_ptr(), scales.shape[1], *strides)
    return _library.Fp8(**found)


def _run_fp8(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, q_descale: torch.Tensor | None, k_descale: torch.Tensor | None,
             v_descale: torch.Tensor | None, kernel: str, causal: bool = False, scale: float | None = None, bnhd: bool = False,
             checked: bool = True) -> torch.Tensor:
    pointers = q.data_ptr(), k.data_ptr(), v.data_ptr()
    key = (kernel, causal, scale, bnhd, checked, _layouts(q, k, v))
    known = None if (pointers[0] | pointers[1] | pointers[2]) & 15 else _calls_fp8.get(key)
    if not known:
        given = Given({"q": q, "k": k, "v": v}, kernel, bnhd, causal, None, None, False, scale, checked)
        views, _ = _views(given)
        call = prepared(given, views, None, views["q"]._replace(shape=tuple(q.shape), strides=None))
        known = call, _library.workspace_of_fp8(call, _library.Fp8(), q.get_device() if q.is_cuda else 0)
        _remember(_calls_fp8, key, known)
    call, size = known
    fp8 = _fp8_of(q, k, bnhd, q_descale, k_descale, v_descale)
    o, workspace = _output_of_fp8(q), torch.empty(size, dtype=torch.uint8, device=q.device)
    _library.run_fp8(call, fp8, (*pointers, o.data_ptr()), (workspace.data_ptr() if size else 0, size), _stream(q))
    return o


def _output_of_fp8(q: torch.Tensor) -> torch.Tensor:
    return torch.empty(q.shape, dtype=torch.bfloat16, device=q.device)


_definition.define("attention_fp8(Tensor q, Tensor k, Tensor v, Tensor? q_descale, Tensor? k_descale, Tensor? v_descale, str kernel, "
                   "bool causal=False, float? scale=None, bool bnhd=False, bool checked=True) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))


@torch.library.impl(_definition, "attention_fp8", "CPU")
@torch.library.impl(_definition, "attention_fp8", "CUDA")
def _(*given: Any) -> torch.Tensor:
    return _run_fp8(*given)


@torch.library.register_fake("fa::attention_fp8", lib=_definition)
def _(q: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return _output_of_fp8(q)


torch.library.register_autograd("fa::attention_fp8", _refuse(_NO_GRADIENTS_OF_E4M3), lib=_definition)


def _is_of_e4m3(given: Given) -> bool:
    """Whether the call is one on e4m3. Raises BadInput for what does not go with that, and for scales of other tensors."""
    tensors = given.tensors
    if tensors["q"].dtype != torch.float8_e4m3fn:
        if any(each is not None for each in given.descales):
            raise _library.BadInput(f"q_descale, k_descale and v_descale go with tensors of float8_e4m3fn, but q is of {str(tensors['q'].dtype)[6:]}")
        return False
    for name, given_as in (("cu_seqlens_q", "packed sequences"), ("block_table", "pages")):
        if name in tensors:
            raise _library.BadInput(f"q is of float8_e4m3fn, which fa does not take in {given_as} ({name}): pass float16 or bfloat16")
    if not given.plain_scores:
        raise _library.BadInput("q is of float8_e4m3fn, for which fa has no window, softcap, sinks or alibi_slopes: pass float16 or bfloat16")
    if given.return_lse:
        raise _library.BadInput("q is of float8_e4m3fn, for which fa gives no log-sum-exp: pass float16 or bfloat16")
    for name, each in zip(("q_descale", "k_descale", "v_descale"), given.descales):
        if each is not None and not isinstance(each, torch.Tensor):
            raise _library.BadInput(f"{name} is of type {type(each).__name__}, but fa takes a tensor of float32, or None for 1")
    return True


def _is_watched() -> bool:
    """Whether something of torch has to see the operator: a compiler, a trace, a mode, a transform, a profiler."""
    return (torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack() > 0 or
            torch._C._len_torch_function_stack() > 0 or torch._C._functorch.peek_interpreter_stack() is not None or
            torch.autograd.profiler._is_profiler_enabled)  # in any thread, since it may watch all of them


def _judged(given: Given) -> tuple[Given, bool, bool]:
    """The tensors as a call takes them, whether they are ordinary ones, and whether gradients are wanted. Raises BadInput for what
    must not be left to the operator: kinds, and gradients that are not there."""
    tensors = given.tensors
    q, k, v = tensors["q"], tensors["k"], tensors["v"]
    ordinary = len(tensors) == 3 and type(q) is type(k) is type(v) is torch.Tensor
    for name, tensor in () if ordinary else tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise _library.BadInput(f"{name} is of type {type(tensor).__name__}, but q of type {type(q).__name__}")
    for name in [name for name, tensor in tensors.items() if tensor.is_meta]:
        raise _library.BadInput(f"{name} is on meta and has no data, which fa needs")
    of_heads: dict[str, torch.Tensor] = {name: tensors[name] for name in ("sinks", "alibi_slopes") if name in tensors}
    gradients = torch.is_grad_enabled() and any(each.requires_grad for each in (q, k, v, *of_heads.values()))
    if gradients and not given.plain_scores:
        raise _library.BadInput(_NO_GRADIENTS_OF_SCORES)
    if of_heads:
        to_float = {name: each.float().contiguous() if each.dtype in (torch.float16, torch.bfloat16, torch.float32) else each
                    for name, each in of_heads.items()}
        tensors = tensors | to_float
        given = given._replace(tensors=tensors)
    if _is_of_e4m3(given):
        if gradients or torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in given.descales):
            raise _library.BadInput(_NO_GRADIENTS_OF_E4M3)
    elif gradients:
        transform = None if torch.compiler.is_compiling() else torch._C._functorch.peek_interpreter_stack()
        if transform is not None and transform.key() == torch._C._functorch.TransformType.Grad:
            raise _library.BadInput("fa has no gradients for torch.func: take them with backward() or torch.autograd.grad")
        if "block_table" in tensors:
            raise _library.BadInput(_NOT_IN_PAGES)
        if q.shape[-1] in (96, 256):
            raise _library.BadInput(_NO_GRADIENTS_OF_HEAD_DIM)
        if given.kernel[:1].isdigit():
            raise _library.BadInput(f"kernel {given.kernel} gives no log-sum-exp, which gradients need: leave kernel out, or call fa under "
                                    "torch.no_grad()")
    if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(each).tangent is not None for each in (q, k, v)):
        raise _library.BadInput("fa has no forward-mode derivatives: pass tensors without tangents")
    kind = q.device.type
    if kind in ("cpu", "cuda") and torch.is_autocast_enabled(kind):  # as PyTorch does for its own attention
        dtype = torch.get_autocast_dtype(kind)
        cast = {name: tensors[name].to(dtype) for name in "qkv"
                if tensors[name].is_floating_point() and tensors[name].dtype not in (dtype, torch.float64, torch.float8_e4m3fn)}
        given = given._replace(tensors={**tensors, **cast}) if cast else given
    return given, ordinary, gradients


def plan(given: Given) -> _library.Plan:
    given, _, gradients = _judged(given)
    given = given._replace(return_lse=given.return_lse or gradients)
    q, k = given.tensors["q"], given.tensors["k"]
    views, others = _views(given)
    return plan_of(given, views, others, _fp8_of(q, k, given.bnhd, *given.descales) if q.dtype == torch.float8_e4m3fn else None)


def run_again(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: tuple[object, ...], return_lse: bool) -> Any:
    """What run() returns for a call like one before, whose options and layouts are known to be right. None if there was none, or if
    something else than these decides: whoever watches, autocast, where the tensors begin."""
    if not type(q) is type(k) is type(v) is torch.Tensor:
        return None
    if _is_watched() or forward_ad._current_level >= 0 or q.is_neg() or k.is_neg() or v.is_neg():
        return None
    kind = "cuda" if q.is_cuda else "cpu"
    if torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) != q.dtype:
        return None
    gradients = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    pointers = q.data_ptr(), k.data_ptr(), v.data_ptr()
    try:
        found = _again.get(((options, gradients), _layouts(q, k, v)))
    except TypeError:  # an array is no option, and no key
        return None
    if found is None or (pointers[0] | pointers[1] | pointers[2]) & 15:
        return None
    call, bnhd, kept = found
    if gradients:
        o, lse = _Attention.apply(q, k, v, lambda: _launch(call, q, pointers, bnhd, True), kept)
        return (o, torch.ops.fa.lse_of(lse, o)) if return_lse else o
    o, lse = _launch(call, q, pointers, bnhd, return_lse)
    return (o, lse) if return_lse else o


def run(given: Given) -> Any:
    """The operator. Where nobody watches, what it runs: torch takes longer to find that out than all the rest takes."""
    given, ordinary, gradients = _judged(given)  # gradients are made of log-sum-exp, too
    tensors = given.tensors
    q, k, v = tensors["q"], tensors["k"], tensors["v"]
    # A tensor with the negative bit is not what its memory says, until torch has called an operator with it.
    ordinary = ordinary and not (_is_watched() or q.is_neg() or k.is_neg() or v.is_neg())
    if q.dtype == torch.float8_e4m3fn:
        ordinary = ordinary and all(each is None or type(each) is torch.Tensor and not each.is_neg() for each in given.descales)
        return (_run_fp8 if ordinary else torch.ops.fa.attention_fp8.default)(q, k, v, *given.descales, given.kernel, given.causal, given.scale,
                                                                              given.bnhd, given.check)
    arguments = (q, k, v, given.kernel, given.causal, tensors.get("cu_seqlens_q"), tensors.get("cu_seqlens_k"), given.max_seqlen_q,
                 given.max_seqlen_k, given.return_lse or gradients, tensors.get("block_table"), tensors.get("seqused_k"), given.scale,
                 given.bnhd, given.check, given.deterministic, given.window, given.softcap, tensors.get("sinks"), tensors.get("alibi_slopes"))
    if ordinary:
        direct = functools.partial(_run, *arguments, options=given.options and (given.options, gradients))
        kept = given.causal, given.max_seqlen_q, given.max_seqlen_k, given.scale, given.bnhd, given.check, given.deterministic
        o, lse = _Attention.apply(q, k, v, direct, kept) if gradients else direct()
    else:
        o, lse = _operator(*arguments)
    if not given.return_lse:
        return o
    return o, torch.ops.fa.lse_of(lse, o) if gradients else lse
