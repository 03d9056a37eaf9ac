"""fa.attention, and how it sees the tensors of other libraries: torch's, NumPy's, and by DLPack anyone's."""

import ctypes
import functools
import math
import numbers
import operator
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, overload

from . import _library
from ._library import BEST, BadInput, Call, Packed, Paged, Plan

Tensor = TypeVar("Tensor")
_LEGACY_STREAM = 1  # CUDA's default stream, as DLPack numbers streams


@functools.cache  # an import of what is there takes as long as an output's allocation
def _of_torch() -> Any:
    from . import _torch

    return _torch


@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, kernel: int | str | None = None, layout: str | None = None,
              scale: float | None = None, causal: bool = False, cu_seqlens_q: Tensor | None = None,
              cu_seqlens_k: Tensor | None = None, max_seqlen_q: int | None = None, max_seqlen_k: int | None = None,
              block_table: Tensor | None = None, seqused_k: Tensor | None = None, return_lse: Literal[False] = False,
              q_descale: Tensor | None = None, k_descale: Tensor | None = None, v_descale: Tensor | None = None,
              window: tuple[int, int] | None = None, softcap: float | None = None, sinks: Tensor | None = None,
              alibi_slopes: Tensor | None = None,
              check: bool = True, deterministic: bool = False) -> Tensor: ...


@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, kernel: int | str | None = None, layout: str | None = None,
              scale: float | None = None, causal: bool = False, cu_seqlens_q: Tensor | None = None,
              cu_seqlens_k: Tensor | None = None, max_seqlen_q: int | None = None, max_seqlen_k: int | None = None,
              block_table: Tensor | None = None, seqused_k: Tensor | None = None,
              q_descale: Tensor | None = None, k_descale: Tensor | None = None, v_descale: Tensor | None = None,
              window: tuple[int, int] | None = None, softcap: float | None = None, sinks: Tensor | None = None,
              alibi_slopes: Tensor | None = None,
              return_lse: Literal[True], check: bool = True, deterministic: bool = False) -> tuple[Tensor, Tensor]: ...


@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, kernel: int | str | None = None, layout: str | None = None,
              scale: float | None = None, causal: bool = False, cu_seqlens_q: Tensor | None = None,
              cu_seqlens_k: Tensor | None = None, max_seqlen_q: int | None = None, max_seqlen_k: int | None = None,
              block_table: Tensor | None = None, seqused_k: Tensor | None = None,
              q_descale: Tensor | None = None, k_descale: Tensor | None = None, v_descale: Tensor | None = None,
              window: tuple[int, int] | None = None, softcap: float | None = None, sinks: Tensor | None = None,
              alibi_slopes: Tensor | None = None,
              return_lse: bool, check: bool = True, deterministic: bool = False) -> Tensor | tuple[Tensor, Tensor]: ...


def attention(q: Tensor, k: Tensor, v: Tensor, *, kernel: int | str | None = None, layout: str | None = None,
              scale: float | None = None, causal: bool = False, cu_seqlens_q: Tensor | None = None,
              cu_seqlens_k: Tensor | None = None, max_seqlen_q: int | None = None, max_seqlen_k: int | None = None,
              block_table: Tensor | None = None, seqused_k: Tensor | None = None, return_lse: bool = False,
              q_descale: Tensor | None = None, k_descale: Tensor | None = None, v_descale: Tensor | None = None,
              window: tuple[int, int] | None = None, softcap: float | None = None, sinks: Tensor | None = None,
              alibi_slopes: Tensor | None = None,
              check: bool = True, deterministic: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(scale q k^T) v, without dropout. Of torch tensors it can be differentiated.

    q: (batch, heads, seq_len, head_dim), with any seq_len, head_dim 64 or 128, and batch * heads at most 65535. Kernels
    "causal", "split_keys" and "plain" also take a head_dim of 96 and 256, without gradients.
    k, v: (batch, kv_heads, kv_len, head_dim), with any kv_len, and kv_heads a divisor of heads: each head of k is for
    heads / kv_heads neighbouring heads of q.
    All are of float16 or bfloat16: torch tensors, NumPy arrays (float16, since NumPy has no bfloat16), or arrays of a
    library with DLPack and an empty_like, such as CuPy, without a mask of their own. Inside torch.autocast, torch tensors
    become of its dtype first, as for PyTorch's own attention. The elements of a row are neighbours; the other strides are
    any multiples of 8 elements, such as those of slices of one tensor with q, k and v. The tensors are on one GPU if fa was
    built for CUDA, and on the CPU if it was built for the emulator; `pip install .` with CUDA builds both.
    kernel: None takes the fastest kernel that takes the problem on this GPU; fa.plan says which, and why. A number or name
    out of fa.kernels() takes that one, which refuses what it cannot do: 01 to 16 take as many keys as queries, a multiple
    of 128 of them, as many heads of keys as of queries, and no mask; 01 to 11 take contiguous tensors alone.
    layout: "bhnd" as above, or "bnhd" for tensors of FlashAttention's order, (batch, seq_len, heads, head_dim), of packed
    sequences (rows, heads, head_dim), and of pages (pages, page_size, heads, head_dim). The result has the order of q.
    With kernels 01 to 11, which take one order, the call copies q, k, v and the result, and a UserWarning says so. None is
    "bhnd", and a shape that looks like the other order gets a UserWarning, because most shapes fit both.
    scale: of the scores, from 1e-30 to 1000. None is 1 / sqrt(head_dim).
    causal: query i sees key j if j <= i + kv_len - seq_len, so the last query sees all keys. The row of a query that sees
    none is zeros.
    cu_seqlens_q, cu_seqlens_k: sequences of different lengths, one behind the other in tensors (heads, rows, head_dim).
    Arrays of int32, on q's device: the first row of each sequence, and at the end the number of rows.
    max_seqlen_q, max_seqlen_k: the longest of them. On a GPU the call, and backward() again, waits to find a length that
    is not given, and does not check what is in cu_seqlens where both are.
    block_table, seqused_k: k and v in pages, tensors (pages, heads, page_size, head_dim) with page_size 16, 32, 64, 128 or
    256. Arrays of int32, on q's device, (batch, most pages
    of a sequence) and (batch,): the pages of each sequence in the order of its keys, and its number of keys, also 0. On a
    GPU what is in them is not checked.

    return_lse: a second result, log-sum-exp: of each row the natural logarithm of its sum of e^score over the keys that it
    sees, -inf if there are none. It is of float32 and has q's shape without head_dim. With it the results of several parts
    of the keys are merged: lse = logaddexp(lse1, lse2), o = o1 e^(lse1 - lse) + o2 e^(lse2 - lse).
    q_descale, k_descale, v_descale: q, k and v may be torch tensors of float8_e4m3fn, which stand for their numbers times these,
    as FlashAttention-3 has it. Tensors of float32 on q's device, (batch, kv_heads), so that heads of q that read one head of k
    share one; of q also (batch, heads). A third dimension of q's and k's is of tiles of 128 rows, of which each has its own. None
    is 1. The result is of bfloat16. There are no packed sequences, pages, log-sum-exp and gradients; strides are multiples of 16.
    On a GPU each call transposes v first. Only kernel "fp8" takes them, on GPUs of 9.0, with a head_dim of 256 as well.
    window: (left, right), how many keys query i sees to the left and to the right of its place, which is key i + kv_len - seq_len;
    -1: all that there are. With causal there are none to the right in any case.
    softcap: a scaled score s becomes softcap tanh(s / softcap). None, or 0: it stays.
    alibi_slopes: a score loses its slope times |i + kv_len - seq_len - j|, the distance of key j from the place of query i, after
    the cap. A tensor of float32 on q's device, (heads,) or (batch, heads).
    sinks: one more score for each head, to which no key belongs and which is not scaled: it adds to the sum of each row, and so to
    log-sum-exp. A tensor of float32 on q's device, (heads,); of torch also float16 and bfloat16, as for alibi_slopes. Where parts
    of the keys are merged, only one of them has the sinks. All four are for kernels "causal", "split_keys" and "plain" alone so
    far, on every problem but float8_e4m3fn, and have no gradients.
    check: on the emulator, whether it looks for races and for accesses outside memory and counts by statement, which takes
    one and a half to twenty times as long, most where a kernel has no Tensor Core instructions. A GPU checks nothing. The
    results are the same bits.
    deterministic: gradients have the same bits each time, as they have after torch.use_deterministic_algorithms(True) in any
    case. Otherwise those of q are sums in any order. The results have the same bits each time, whatever is given.

    Returns a new contiguous tensor of q's kind, shape, dtype and device, or with return_lse two tensors. Sums and softmax
    are in float32.

    On a GPU the kernel is launched into torch's current stream, and for other libraries into CUDA's default stream; the
    call does not wait. It may be captured in a CUDA graph and compiled with torch.compile(fullgraph=True).

    Gradients of q, k and v come from the fastest kernel of gradients that takes the problem, and have the tensors' dtype; sums
    are in float32. A call whose result is differentiated keeps log-sum-exp, so it takes no kernel from 01 to 16, which give none.
    Without gradients are k and v in pages, the second result of return_lse, and gradients themselves.

    Raises BadInput for a wrong argument, Unsupported where this GPU cannot run the kernel, and LaunchError with CUDA's
    error or the emulator's report. All three are fa.Error.
    """
    # A call like one before need not be judged again, which takes longer than all the rest. Options are known by their types
    # as well, because 1 and True are the same key, and a window by its text.
    torch: Any = sys.modules.get("torch")  # a program that has no tensor of torch need not load it
    result: Tensor | tuple[Tensor, Tensor] | None
    options = None
    if (torch is not None and type(q) is torch.Tensor and not torch.compiler.is_compiling() and q_descale is k_descale is v_descale is
            cu_seqlens_q is cu_seqlens_k is max_seqlen_q is max_seqlen_k is block_table is seqused_k is sinks is alibi_slopes is None):
        options = (kernel, type(kernel), layout, scale, type(scale), softcap, type(softcap), causal, return_lse, check, deterministic,
                   None if window is None else repr(window))
        result = _of_torch().run_again(q, k, v, options, return_lse)
        if result is not None:
            return result
    module, given = _checked(q, k, v, kernel, layout, scale, causal, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, block_table,
                             seqused_k, return_lse, check, deterministic, window, softcap, sinks, alibi_slopes, q_descale, k_descale, v_descale,
                             options=options)
    result = module.run(given)
    return result


def plan(q: Any, k: Any, v: Any, *, kernel: int | str | None = None, layout: str | None = None, scale: float | None = None,
         causal: bool = False, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, max_seqlen_q: int | None = None,
         max_seqlen_k: int | None = None, block_table: Any = None, seqused_k: Any = None, return_lse: bool = False,
         q_descale: Any = None, k_descale: Any = None, v_descale: Any = None, window: tuple[int, int] | None = None,
         softcap: float | None = None, sinks: Any = None, alibi_slopes: Any = None, check: bool = True, deterministic: bool = False) -> Plan:
    """Which kernel fa.attention runs with these arguments, and why not a faster one. Nothing is launched.

        print(fa.plan(q, k, v, causal=True))
        beyond/causal
          not 16_max_free, which takes mask none, not causal

    Raises what fa.attention would: BadInput for a wrong argument, Unsupported where no kernel takes the problem.
    """
    module, given = _checked(q, k, v, kernel, layout, scale, causal, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, block_table,
                             seqused_k, return_lse, check, deterministic, window, softcap, sinks, alibi_slopes, q_descale, k_descale, v_descale)
    result: Plan = module.plan(given)
    return result


class Given(NamedTuple):
    """The arguments of a call that are right, as far as they can be judged without the tensors' shapes."""

    tensors: dict[str, Any]  # "q", "k", "v", and where they are there the lists of packed sequences or pages, sinks, alibi_slopes
    kernel: str
    bnhd: bool
    causal: bool
    max_seqlen_q: int | None
    max_seqlen_k: int | None
    return_lse: bool
    scale: float | None
    check: bool
    deterministic: bool = False  # of gradients
    descales: tuple[Any, Any, Any] = (None, None, None)  # of q, k and v of e4m3
    window: tuple[int, int] | None = None
    softcap: float = 0.0
    options: tuple[object, ...] | None = None  # as a call had them that need not be judged again on the same layouts

    @property
    def plain_scores(self) -> bool:
        """Whether scores are scaled, and masked if causal, and nothing else happens to them."""
        return self.window is None and self.softcap == 0 and not {"sinks", "alibi_slopes"} & set(self.tensors)


def _checked(q: Any, k: Any, v: Any, kernel: int | str | None, layout: str | None, scale: float | None, causal: bool, cu_seqlens_q: Any,
             cu_seqlens_k: Any, max_seqlen_q: int | None, max_seqlen_k: int | None, block_table: Any, seqused_k: Any,
             return_lse: bool, check: bool, deterministic: bool, window: Any, softcap: float | None, sinks: Any, alibi_slopes: Any,
             *descales: Any, options: tuple[object, ...] | None = None) -> tuple[Any, Given]:
    """What has run() and plan() for tensors of this kind, and what these take."""
    torch: Any = sys.modules.get("torch")
    module: Any = _Arrays
    if torch is not None and isinstance(q, torch.Tensor):
        from . import _torch as module
    if (cu_seqlens_q is None) != (cu_seqlens_k is None):
        raise BadInput("cu_seqlens_q and cu_seqlens_k belong together: pass both or none")
    if cu_seqlens_q is None and (max_seqlen_q is not None or max_seqlen_k is not None):
        raise BadInput("max_seqlen_q and max_seqlen_k belong to cu_seqlens_q and cu_seqlens_k, which are not there")
    if cu_seqlens_q is not None and not (_is_length(max_seqlen_q) and _is_length(max_seqlen_k)):
        name, value = ("max_seqlen_k", max_seqlen_k) if _is_length(max_seqlen_q) else ("max_seqlen_q", max_seqlen_q)
        raise BadInput(f"{name} is {value!r}, but fa takes a number from 1 to 2147483647, or None")
    if (block_table is None) != (seqused_k is None):
        raise BadInput("block_table and seqused_k belong together: pass both or none")
    if block_table is not None and cu_seqlens_q is not None:
        raise BadInput("block_table does not go with cu_seqlens_q: packed sequences are not in pages")
    kernel = BEST if kernel is None else kernel
    if isinstance(kernel, bool) or not isinstance(kernel, (str, int, numbers.Integral)) or not str(kernel).isprintable():
        raise BadInput(f"kernel is {kernel!r}, but fa takes a number or a name out of fa.kernels(), or None for the fastest")
    for name, value in (("causal", causal), ("return_lse", return_lse), ("check", check), ("deterministic", deterministic)):
        if shape := getattr(value, "shape", ()):
            raise BadInput(f"{name} is a mask of the shape {tuple(shape)}, but fa takes True or False")
        if value not in (True, False):  # as a truth value every text is true
            raise BadInput(f"{name} is {value!r}, but fa takes True or False")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, (float, numbers.Real)) or not 1e-30 <= scale <= 1000):
        raise BadInput(f"scale is {scale!r}, but fa takes a number from 1e-30 to 1000, or None for 1 / sqrt(head_dim)")
    if softcap is not None and (isinstance(softcap, bool) or not isinstance(softcap, (float, numbers.Real)) or
                                softcap != 0 and not 1e-30 <= softcap <= 1e30):
        raise BadInput(f"softcap is {softcap!r}, but fa takes a number from 1e-30 to 1e30, or None for no cap")
    if layout not in (None, "bhnd", "bnhd"):
        raise BadInput(f"layout is {layout!r}, but fa takes 'bhnd' or 'bnhd'")
    compiling = torch is not None and torch.compiler.is_compiling()
    if layout is None and cu_seqlens_q is None and block_table is None and not compiling and _is_of_doubtful_order(q, k):
        options = None  # each such call warns
        warnings.warn(f"q has the shape {tuple(q.shape)}: {q.shape[1]} heads of {q.shape[2]} rows? With tokens before heads, as "
                      "FlashAttention has them, pass layout='bnhd', else layout='bhnd'", UserWarning, stacklevel=3)
    if layout == "bnhd" and not compiling and is_of_one_order(str(kernel)):
        options = None
        warnings.warn(f"kernel {kernel} takes (batch, heads, seq_len, head_dim) alone: q, k, v and the result are copied", UserWarning,
                      stacklevel=3)
    if not type(causal) is type(return_lse) is type(check) is type(deterministic) is bool:
        options = None  # a tensor with a truth value is a key, but may change
    given = {"q": q, "k": k, "v": v}
    if cu_seqlens_q is not None and cu_seqlens_k is not None:
        given.update(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    if block_table is not None and seqused_k is not None:
        given.update(block_table=block_table, seqused_k=seqused_k)
    given.update({name: each for name, each in (("sinks", sinks), ("alibi_slopes", alibi_slopes)) if each is not None})
    left, right = _window_of(window)
    if (left, right) == (-1, 0):  # is the causal mask
        causal, right = True, -1
    if window is not None and _hides_nothing(left, right, causal, q, k, layout == "bnhd", block_table is not None):
        left = right = -1
    return module, Given(given, str(kernel), layout == "bnhd", bool(causal), max_seqlen_q, max_seqlen_k, bool(return_lse),
                         None if scale is None else float(scale), bool(check), bool(deterministic), descales,
                         None if left == right == -1 else (left, right), float(softcap or 0), options)


def _window_of(window: Any) -> tuple[int, int]:
    try:
        left, right = (-1, -1) if window is None else map(operator.index, window)
    except (TypeError, ValueError):  # they are no integers, or not two
        left = right = -2
    if not (-1 <= left <= 1 << 30 and -1 <= right <= 1 << 30):
        raise BadInput(f"window is {window!r}, but fa takes (left, right), numbers of keys from 0 to 1073741824, or -1 for all")
    return left, right


def _hides_nothing(left: int, right: int, causal: bool, q: Any, k: Any, bnhd: bool, pages: bool) -> bool:
    """Whether a window is as long as the keys, as those of models are for short texts, so that any kernel will do."""
    try:
        queries, keys = (each.shape[-3 if bnhd else -2] for each in (q, k))
    except (AttributeError, IndexError, TypeError):  # it is refused later
        return False
    if pages:  # their number says nothing of a sequence's length
        return left < 0 and (right < 0 or causal)
    return (left < 0 or left >= keys - 1) and (right < 0 or causal or right >= queries - 1)


def _is_length(most: Any) -> bool:
    try:
        return most is None or 0 < operator.index(most) < 1 << 31
    except TypeError:  # it is no integer
        return False


def _is_of_doubtful_order(q: Any, k: Any) -> bool:
    """Whether this is likely in FlashAttention's order: as many heads of q as of k, and more than either has rows."""
    of_q: Any = getattr(q, "shape", ())
    of_k: Any = getattr(k, "shape", ())
    return len(of_q) == len(of_k) == 4 and bool(of_q[1] == of_k[1] > max(of_q[2], of_k[2]))


class View(NamedTuple):
    """Where a tensor is and how it is laid out."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  # in elements; None: contiguous
    dtype: str
    device: str  # "cpu", "cuda:0"


def is_of_one_order(kernel: str) -> bool:
    """Whether it is one of 01 to 11, which take contiguous tensors (batch, heads, seq_len, head_dim) alone."""
    number = re.match(r"\d+", kernel)
    return number is not None and int(number[0]) < 12


def check(views: dict[str, View], kernel: str, bnhd: bool, cure: str, with_e4m3: bool = False) -> dict[str, View]:
    """Raises BadInput unless the tensors q, k, v, the lists of packed sequences or pages, sinks and slopes are as the kernel takes
    them, but for the sizes of q, k and v, which the library checks. `cure` makes {name} contiguous, for the message. `with_e4m3`: tensors may be e4m3.

    Returns the views with heads before rows, as (batch, heads, seq_len, head_dim)."""
    first, packed, paged = views["q"], "cu_seqlens_q" in views, "block_table" in views
    shapes = {"block_table": "(batch, most pages of a sequence)", "seqused_k": "(batch,)"}
    if paged:
        shapes |= dict.fromkeys("kv", "(pages, page_size, heads, head_dim)" if bnhd else "(pages, heads, page_size, head_dim)")
    for name, view in views.items():
        if name in ("sinks", "alibi_slopes"):
            _check_of_heads(name, views, bnhd, cure)
            continue
        of_lengths = name not in ("q", "k", "v")
        of_tensor = (("(rows, heads, head_dim)" if packed else "(batch, seq_len, heads, head_dim)") if bnhd else
                     "(heads, rows, head_dim)" if packed else "(batch, heads, seq_len, head_dim)")
        shape = shapes.get(name) or ("(sequences + 1,)" if of_lengths else of_tensor)
        if len(view.shape) != shape.count(",") + (not shape.endswith(",)")) or of_lengths and min(view.shape) < 1 + packed:
            raise BadInput(f"{name} has the shape {view.shape}, but fa takes {shape}" + " of packed sequences" * packed)
        if view.dtype not in (("int32",) if of_lengths else (*_library.DTYPES, *[_library.E4M3] * with_e4m3)):
            tensors = "float16, bfloat16 and float8_e4m3fn" if with_e4m3 and "float8" in view.dtype else "float16 and bfloat16"
            raise BadInput(f"{name} is of {view.dtype}, but fa takes {'int32' if of_lengths else tensors}")
        if (device := view.device.partition(":")[0]) not in _library.DEVICES:
            takes = {"cuda": "CUDA and takes tensors of a GPU", "cpu": "the emulator and takes tensors of the CPU"}
            built = " or for ".join(takes[each] for each in _library.DEVICES)
            remedy = "; with libboost-context-dev, FA_BACKEND=cuda pip install . builds both" if device in takes else ""
            raise BadInput(f"{name} is on {view.device}, but this fa was built for {built}{remedy}")
        for what in ("device",) if of_lengths else ("dtype", "device"):
            if getattr(view, what) != getattr(first, what):
                raise BadInput(f"{name} has the {what} {getattr(view, what)}, but q has {getattr(first, what)}")
        # Heads and lengths may be others than those of q, batch and head_dim not.
        other_dim = not of_lengths and view.shape[-1] != first.shape[-1]
        if other_dim or shape.startswith("(batch") and view.shape[0] != first.shape[0]:
            which = "head_dim" if other_dim else "batch"
            raise BadInput(f"{name} has the shape {view.shape}, but q has {first.shape}: {which} must be the same")
        for one, other in (("v", "k"), ("cu_seqlens_k", "cu_seqlens_q")):
            if name == one and view.shape != views[other].shape:
                raise BadInput(f"{name} has the shape {view.shape}, but {other} has {views[other].shape}")
        if not of_lengths and view.pointer % 16:
            raise BadInput(f"{name} begins at an address that is not a multiple of 16 bytes: pass a copy of it")
        contiguous = is_contiguous(view)
        if not contiguous and not of_lengths and view.strides and view.strides[-1] != 1:
            raise BadInput(f"{name} has the strides {view.strides}, but the elements of a row must be neighbours, with the "
                           f"stride 1: pass {cure.format(name=name)}")
        if not contiguous and (of_lengths or is_of_one_order(kernel) and not bnhd):
            which = "fa" if of_lengths else f"kernel {kernel}"
            raise BadInput(f"{name} has the strides {view.strides} for the shape {view.shape}, but {which} takes contiguous "
                           f"tensors: pass {cure.format(name=name)}")
    return {name: turned(view) if bnhd and name in ("q", "k", "v") else view for name, view in views.items()}


def _check_of_heads(name: str, views: dict[str, View], bnhd: bool, cure: str) -> None:
    """The same of what each head has. The shape of q is right."""
    view, q = views[name], views["q"]
    heads = q.shape[-2 if bnhd else -3]
    shapes: list[tuple[int, ...]] = [(heads,)]
    if name == "alibi_slopes":
        shapes.append((views["cu_seqlens_q"].shape[0] - 1 if "cu_seqlens_q" in views else q.shape[0], heads))
    if view.shape not in shapes:
        raise BadInput(f"{name} has the shape {view.shape}, but fa takes {' or '.join(map(str, shapes))} here")
    if (view.dtype, view.device) != ("float32", q.device):
        raise BadInput(f"{name} is of {view.dtype} on {view.device}, but fa takes float32 on {q.device}")
    if not is_contiguous(view):
        raise BadInput(f"{name} has the strides {view.strides} for the shape {view.shape}, but fa takes contiguous tensors: pass "
                       f"{cure.format(name=name)}")


def turned(view: View) -> View:
    """The same with heads and rows exchanged."""
    def exchanged(each: tuple[int, ...]) -> tuple[int, ...]:
        return (*each[:-3], each[-2], each[-3], each[-1])

    return view._replace(shape=exchanged(view.shape), strides=exchanged(view.strides or contiguous_strides(view.shape)))


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1:]) for i in range(len(shape)))


def strides_of(views: Sequence[View]) -> list[tuple[int, ...]]:
    """For _library.prepare: of q, k, v and o, where not all are contiguous."""
    if all(map(is_contiguous, views)):
        return []
    return [view.strides or contiguous_strides(view.shape) for view in views]


def is_contiguous(view: View) -> bool:
    expected = 1
    for size, stride in zip(reversed(view.shape), reversed(view.strides or ())):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def prepared(given: Given, views: dict[str, View], others: Packed | Paged | None, out: View) -> Call:
    """What the library is told of a call whose views are checked; `out`: of O, in q's order. The kernel may be "best"."""
    strides = strides_of([*(views[name] for name in "qkv"), turned(out) if given.bnhd else out])
    sinks, slopes = views.get("sinks"), views.get("alibi_slopes")
    scores = _library.Scores(given.window, given.softcap, sinks.pointer if sinks else 0, slopes.pointer if slopes else 0,
                             slopes is not None and len(slopes.shape) == 2)
    return _library.prepare(given.kernel, views["q"].shape, views["q"].dtype, views["k"].shape, given.causal, others, given.scale, strides,
                            views["q"].device.partition(":")[0], given.check, given.deterministic, scores)


def settled(given: Given, views: dict[str, View], call: Call) -> Call:
    """The call with a kernel's name in place of "best"."""
    if given.kernel != BEST:
        return call
    return call._replace(kernel=_library.plan(call, _number(views), given.return_lse).kernel.encode())


def plan_of(given: Given, views: dict[str, View], others: Packed | Paged | None, fp8: _library.Fp8 | None = None) -> Plan:
    if given.bnhd and is_of_one_order(given.kernel):  # it gets copies
        views, given = {name: view._replace(strides=None) for name, view in views.items()}, given._replace(bnhd=False)
    out = views["q"]._replace(strides=None)
    if given.bnhd:
        out = turned(out)._replace(strides=None)
    return _library.plan(prepared(given, views, others, out), _number(views), given.return_lse, fp8)


def _number(views: dict[str, View]) -> int:
    """Of the GPU."""
    return int(views["q"].device.partition(":")[2] or 0)


def packed_of(views: dict[str, View], values: Callable[[str], Sequence[int]], longest: dict[str, int | None]) -> Packed | None:
    """What the library is told of packed sequences, if there are any. `values`: what is in cu_seqlens_q, or cu_seqlens_k,
    for those whose longest sequence is not given."""
    if "cu_seqlens_q" not in views:
        return None
    most = []
    for name in ("q", "k"):
        if (given := longest[name]) is None or views[name].device == "cpu":
            begins, (other, rows, _) = list(values(f"cu_seqlens_{name}")), views[name].shape
            lengths = [end - begin for begin, end in zip(begins, begins[1:])]
            if begins[-1] == other != rows:
                raise BadInput(f"{name} has the shape {views[name].shape}, but fa takes (heads, rows, head_dim), and cu_seqlens_{name} "
                               f"ends with {other}: pass {name} with its first two dimensions exchanged, and contiguous")
            if begins[0] != 0 or begins[-1] != rows or min(lengths) < 0:
                raise BadInput(f"cu_seqlens_{name} must begin with 0, grow, and end with {rows}, the rows of {name}")
            given = max(lengths) if given is None else given
        most.append(given)
    return Packed(views["cu_seqlens_q"].pointer, views["cu_seqlens_k"].pointer, views["cu_seqlens_q"].shape[0] - 1, *most)


def paged_of(views: dict[str, View]) -> Paged | None:
    if "block_table" not in views:
        return None
    return Paged(views["block_table"].pointer, views["seqused_k"].pointer, views["block_table"].shape[1])


# ---- arrays that are not torch's ---------------------------------------------------------------------------------------
class _DLTensor(ctypes.Structure):
    """The begin of DLPack's DLManagedTensor."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_DL_DEVICES = {1: "cpu", 2: "cuda", 13: "cuda"}  # kDLCPU, kDLCUDA, kDLCUDAManaged
_DL_DTYPES = {(2, 16, 1): "float16", (4, 16, 1): "bfloat16", (2, 32, 1): "float32", (0, 32, 1): "int32"}  # kDLFloat, kDLBfloat, kDLInt; bits; lanes


def _view_of_dlpack(array: Any) -> tuple[View, object]:
    device_type, device_id = array.__dlpack_device__()
    device = _DL_DEVICES.get(int(device_type), f"DLPack's device type {int(device_type)}")
    capsule = array.__dlpack__(**({"stream": _LEGACY_STREAM} if device == "cuda" else {}))
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.argtypes, get_pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    tensor = _DLTensor.from_address(get_pointer(capsule, b"dltensor"))
    kind = (tensor.code, tensor.bits, tensor.lanes)
    return View((tensor.data or 0) + tensor.byte_offset, tuple(tensor.shape[:tensor.ndim]),
                tuple(tensor.strides[:tensor.ndim]) if tensor.strides else None,
                _DL_DTYPES.get(kind, "DLPack's type code {} of {} bits".format(*kind)),
                f"cuda:{device_id}" if device == "cuda" else device), capsule


def _view(name: str, array: Any) -> tuple[View, object]:
    """The view, and what must live as long as it is used."""
    if hasattr(array, "filled") and hasattr(array, "mask"):  # numpy.ma's
        raise BadInput(f"{name} is a masked array, but fa takes no mask of elements: pass {name}.filled(...)")
    interface = getattr(array, "__array_interface__", None)  # NumPy's, also of arrays that must not be written to
    if interface is not None:
        size = array.dtype.itemsize
        strides = interface.get("strides")
        return View(interface["data"][0], tuple(interface["shape"]), strides and tuple(each // size for each in strides),
                    str(array.dtype), "cpu"), array
    if hasattr(array, "__dlpack__"):
        return _view_of_dlpack(array)
    raise BadInput(f"{name} is of type {type(array).__name__}, but fa takes torch tensors, NumPy arrays and what has DLPack")


class _Arrays:
    """fa.attention and fa.plan for arrays that are not torch's."""

    @staticmethod
    def plan(given: Given) -> Plan:
        given = _without_files(given)
        views, _ = _views(given)
        return plan_of(given, views, _others(given, views))

    @staticmethod
    def run(given: Given) -> Any:
        given = _without_files(given)
        views, held = _views(given)
        q = given.tensors["q"]
        if given.bnhd and is_of_one_order(given.kernel):
            if not hasattr(q, "swapaxes"):
                raise BadInput(f"q is of type {type(q).__name__}, which has no swapaxes, but layout='bnhd' needs it for kernel {given.kernel}: "
                               "pass torch.from_dlpack of each")
            copies = {name: given.tensors[name].swapaxes(-3, -2).copy() for name in "qkv"}
            result = _Arrays.run(given._replace(tensors={**given.tensors, **copies}, bnhd=False))
            return (result[0].swapaxes(-3, -2).copy(), result[1]) if given.return_lse else result.swapaxes(-3, -2).copy()
        library = _library_of(q)
        empty_like = getattr(sys.modules[library], "empty_like", None)
        if empty_like is None:
            raise BadInput(f"{library} has no empty_like, of which fa could make the output: pass torch.from_dlpack of each")
        others = _others(given, views)
        o = empty_like(q, **({"order": "C"} if library in ("numpy", "cupy") else {}))
        lse = empty_like(q, dtype="float32", shape=views["q"].shape[:-1]) if given.return_lse else None
        out, keep = _view("o", o)
        second, keep_second = _view("lse", lse) if given.return_lse else (None, None)
        call = settled(given, views, prepared(given, views, others, out))
        _library.run(call, tuple(view.pointer for view in (*(views[name] for name in "qkv"), out)), 0, second.pointer if second else 0)
        del held, keep, keep_second
        return (o, lse) if given.return_lse else o


def _without_files(given: Given) -> Given:
    """A memmap is an array like any other, and what is made like it would map no file."""
    numpy = sys.modules.get("numpy")
    if not numpy:
        return given
    return given._replace(tensors={name: array.view(numpy.ndarray) if isinstance(array, numpy.memmap) else array
                                   for name, array in given.tensors.items()})


def _library_of(array: Any) -> str:
    return type(array).__module__.partition(".")[0]


def _views(given: Given) -> tuple[dict[str, View], list[object]]:
    """The views, checked, and what must live as long as they are used."""
    q = given.tensors["q"]
    if any(each is not None for each in given.descales):
        raise BadInput("q_descale, k_descale and v_descale go with torch tensors of float8_e4m3fn: pass torch.from_dlpack of each")
    for name, array in given.tensors.items():
        if type(array) is not type(q):
            raise BadInput(f"{name} is of type {type(array).__name__}, but q of type {type(q).__name__}")
    held = {name: _view(name, array) for name, array in given.tensors.items()}
    cure = "cupy.ascontiguousarray({name})" if _library_of(q) == "cupy" else "numpy.ascontiguousarray({name})"
    return check({name: view for name, (view, _) in held.items()}, given.kernel, given.bnhd, cure), [keep for _, keep in held.values()]


def _others(given: Given, views: dict[str, View]) -> Packed | Paged | None:
    return packed_of(views, lambda name: [int(each) for each in given.tensors[name]],
                     {"q": given.max_seqlen_q, "k": given.max_seqlen_k}) or paged_of(views)
