"""libfa.so through ctypes: the functions of common/api/fa.h, and exceptions in place of their status."""

import ctypes
import importlib.resources
import json
import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple


class Error(RuntimeError):
    """What fa raises. The text is one sentence, or the emulator's report."""


class BadInput(Error, ValueError):
    """An argument is wrong: shape, strides, dtype, device, kernel. Nothing was launched."""


class LaunchError(Error):
    """The kernel or CUDA failed. On the emulator the text is its report: a race, an access outside memory, a deadlock."""


class Unsupported(Error):
    """The GPU or the build lacks what was asked for. Nothing was launched."""


for _each in (Error, BadInput, LaunchError, Unsupported):
    _each.__module__ = "fa"  # where a program finds them


# What else needs 8.0: tiles of head_dim 128 that are more shared memory than GPUs of 7.5 have, and bf16, which their Tensor Cores lack.
MORE = {"03_register_tiling": "head_dim 128", "04_wmma": "bf16 or head_dim 128", "05_mma_split_kv": "bf16", "06_mma_split_q": "bf16"}


class Kernel(NamedTuple):
    """A kernel of the library and what it needs of a GPU. The emulator runs all of them."""

    name: str
    compute_capability: str  # "8.0": at least
    exactly: bool  # whether later GPUs do not run it either

    @property
    def needs(self) -> str:
        """What it needs, in words: "a GPU of compute capability 8.0 or later", and what some shapes need beyond that."""
        words = f"a GPU of compute capability {self.compute_capability}{'' if self.exactly else ' or later'}"
        return f"{words}, with {MORE[self.name]} of 8.0 or later" if self.name in MORE else words


class Plan(NamedTuple):
    """Which kernel a call of fa.attention runs. print() says why."""

    kernel: str
    faster: dict[str, str]  # kernels that are faster where they can run, and why each cannot: "takes mask none, not causal"

    def __str__(self) -> str:
        return "\n".join([self.kernel, *(f"  not {name}, which {why}" for name, why in self.faster.items())])


class _Problem(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("batch", "heads", "seq_len", "head_dim", "dtype")]


class _Kernel(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("compute_capability", ctypes.c_int), ("exactly", ctypes.c_int)]


_WantsEnd = ctypes.CFUNCTYPE(ctypes.c_int)


class _Strides(ctypes.Structure):
    _fields_ = [(name, ctypes.c_longlong) for name in ("block", "head", "row")]


class _Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("mask", ctypes.c_int), ("kv_len", ctypes.c_int), ("kv_heads", ctypes.c_int),
                ("cu_seqlens_q", ctypes.c_void_p), ("cu_seqlens_kv", ctypes.c_void_p), ("q_rows", ctypes.c_int),
                ("kv_rows", ctypes.c_int), ("wants_end", _WantsEnd), ("lse", ctypes.c_void_p), ("page_size", ctypes.c_int),
                ("pages", ctypes.c_int), ("block_table", ctypes.c_void_p), ("kv_lens", ctypes.c_void_p), ("scale", ctypes.c_float),
                *((f"{name}_strides", _Strides) for name in "qkvo"), ("deterministic", ctypes.c_int), ("softcap", ctypes.c_float),
                ("alibi_slopes", ctypes.c_void_p), ("alibi_per_sequence", ctypes.c_int), ("has_window", ctypes.c_int),
                ("window_left", ctypes.c_int), ("window_right", ctypes.c_int), ("sinks", ctypes.c_void_p)]


class _Scales(ctypes.Structure):
    _fields_ = [("scales", ctypes.c_void_p), ("heads", ctypes.c_int), *((name, ctypes.c_longlong) for name in ("block", "head", "tile"))]


class Fp8(ctypes.Structure):
    """Of e4m3 besides the tensors: the scales of each."""

    _fields_ = [("size", ctypes.c_size_t), *((name, _Scales) for name in "qkv"), ("v_transposed", ctypes.c_int)]

    def __init__(self, **scales: tuple[int, ...]):
        """Of q, k and v a pointer, the number of heads that have scales, and their strides of sequences, heads and tiles. None: 1."""
        super().__init__(ctypes.sizeof(Fp8), **{name: _Scales(*each) for name, each in scales.items()})


class Packed(NamedTuple):
    """Packed sequences: the pointers to where each begins in q, and in k and v; how many there are, and the longest."""

    cu_seqlens_q: int
    cu_seqlens_k: int
    sequences: int
    max_seqlen_q: int
    max_seqlen_k: int


class Paged(NamedTuple):
    """K and V in pages: the pointers to the block table and to the sequences' numbers of keys, and the table's pages per
    sequence."""

    block_table: int
    seqused_k: int
    table_pages: int


class Scores(NamedTuple):
    """What else happens to scores, and the pointers to what each head has."""

    window: tuple[int, int] | None = None
    softcap: float = 0.0
    sinks: int = 0
    alibi_slopes: int = 0
    alibi_per_sequence: bool = False


BEST = "best"  # of kernels: the fastest one that takes the problem
DTYPES = {"float16": 0, "bfloat16": 1}
E4M3 = "float8_e4m3fn"  # of q, k and v, where o is of bfloat16
_OF_O = {**DTYPES, E4M3: DTYPES["bfloat16"]}
_ERRORS = {2: BadInput, 3: LaunchError, 4: Unsupported}


# What FA_LIBRARY names, or what was installed: libfa.so, which a package for CUDA has beside the emulator's, and the
# emulator's fast build. Of an editable installation they lie elsewhere than this file.
LIBRARIES = [Path(each).resolve() for each in os.environ.get("FA_LIBRARY", "").split(os.pathsep) if each]
if not LIBRARIES:
    _first, *_others = (Path(str(importlib.resources.files("fa") / f"{name}.so")).resolve() for name in ("libfa", "libfa_emulator", "libfa_fast"))
    LIBRARIES = [_first, *filter(Path.is_file, _others)]


def _load(path: Path) -> ctypes.CDLL:
    if not path.is_file():
        raise ImportError(f"there is no {path}: install the package with pip, or name the library in FA_LIBRARY")
    try:
        library = ctypes.CDLL(str(path))
        library.fa_attention_fp8  # noqa: B018 - whether it has one
    except (OSError, AttributeError) as problem:
        raise ImportError(f"{path} is no library of fa, or of an older one: {problem}") from None
    library.fa_attention_with.argtypes = [ctypes.c_char_p, ctypes.POINTER(_Problem), ctypes.POINTER(_Options),
                                          *[ctypes.c_void_p] * 5]
    library.fa_attention_backward.argtypes = [*library.fa_attention_with.argtypes[:3], *[ctypes.c_void_p] * 9, ctypes.c_size_t, ctypes.c_void_p]
    library.fa_attention_fp8.argtypes = [*library.fa_attention_with.argtypes[:3], ctypes.POINTER(Fp8), *[ctypes.c_void_p] * 5, ctypes.c_size_t,
                                         ctypes.c_void_p]
    library.fa_kernels.argtypes = [ctypes.POINTER(_Kernel), ctypes.c_int]
    library.fa_plan.argtypes = [ctypes.c_char_p, ctypes.POINTER(_Problem), ctypes.POINTER(_Options), ctypes.c_int,
                                ctypes.POINTER(ctypes.c_char_p)]
    library.fa_plan_backward.argtypes = [*library.fa_plan.argtypes, ctypes.POINTER(ctypes.c_size_t)]
    library.fa_plan_fp8.argtypes = [*library.fa_plan.argtypes[:3], ctypes.POINTER(Fp8), *library.fa_plan_backward.argtypes[3:]]
    for function in (library.fa_architectures, library.fa_backend, library.fa_counters, library.fa_error, library.fa_version):
        function.argtypes, function.restype = [], ctypes.c_char_p
    return library


def _text(text: bytes) -> str:
    return text.decode()


def _by_backend(paths: list[Path]) -> dict[str, ctypes.CDLL]:
    """The libraries by what they were built for, "cuda", "emulator-checked" and "emulator", in the order of their names."""
    found: dict[str, ctypes.CDLL] = {}
    for path in paths:
        library = _load(path)
        backend = _text(library.fa_backend())
        if backend in found:
            raise ImportError(f"{path} was built for {backend} as another library is: FA_LIBRARY names one of each kind")
        found[backend] = library
    if len({_text(each.fa_version()) for each in found.values()}) > 1:
        raise ImportError(f"{' and '.join(map(str, paths))} are of different versions: install the package again")
    return found


_libraries = _by_backend(LIBRARIES)
_library = next(iter(_libraries.values()))
DEVICES = tuple(dict.fromkeys("cuda" if each == "cuda" else "cpu" for each in _libraries))
_last = threading.local()  # .library: of this thread's last run on the emulator


def _backend_for(device: str, check: bool) -> str:
    if device == "cuda":
        return "cuda"
    if not check and "emulator" not in _libraries:
        raise Unsupported("check=False needs the emulator without checks, which this fa does not have: pip install . brings it, and from a "
                          f"build of your own name it in FA_LIBRARY, behind {LIBRARIES[-1].name} and a colon")
    return "emulator-checked" if check and "emulator-checked" in _libraries else "emulator"


def backend() -> str:
    """What fa was built for: "cuda", "emulator", or "emulator-checked", which also finds races. Built for CUDA, it may have
    the emulator, too, for tensors of the CPU."""
    return _text(_library.fa_backend())


def version() -> str:
    return _text(_library.fa_version())


def built() -> list[tuple[str, str, Path]]:
    """Of each library what it was built for, its GPUs or the processor that its emulator runs on, and where it is."""
    return [(_text(each.fa_backend()), _text(each.fa_architectures()), path) for each, path in zip(_libraries.values(), LIBRARIES)]


def kernels() -> list[Kernel]:
    """All kernels, in order."""
    count = _library.fa_kernels(None, 0)
    found = (_Kernel * count)()
    _library.fa_kernels(found, count)
    return [Kernel(each.name.decode(), f"{each.compute_capability // 10}.{each.compute_capability % 10}",
                   bool(each.exactly)) for each in found]


def counters() -> dict[str, Any]:
    """What this thread's last fa.attention did on the emulator.

    "kernel", "dtype", "batch", "heads", "seq_len", "head_dim" and, where there are any, "mask", "window", "softcap", "alibi",
    "sinks", "kv_heads", "kv_len", "lengths", "kv_lengths", "page_size" and "scale" say what ran. "counters" has totals by name:
    instructions of warps ("barriers"), of threads ("exp2"), operations ("matrix_flops"), bytes ("global_bytes").
    "statements" has the same by statement of the kernel's source, in the checked build. The names are those of
    bench/schema.json.

    Raises Unsupported where fa has no emulator, since a GPU does not count, and BadInput if nothing ran or it failed.
    """
    library = getattr(_last, "library", None) or (_libraries[_backend_for("cpu", True)] if "cpu" in DEVICES else _library)
    text = library.fa_counters()
    if text is None:
        raise (BadInput if "cpu" in DEVICES else Unsupported)(library.fa_error().decode())
    found: dict[str, Any] = json.loads(text)
    return found


class Call(NamedTuple):
    """What fa_attention_with is told of a kernel and a problem: everything but pointers, a stream, and where lse goes. And
    the library that is told, by what it was built for."""

    backend: str
    kernel: bytes
    problem: _Problem
    options: _Options


def prepare(kernel: str, shape: tuple[int, ...], dtype: str, kv_shape: tuple[int, ...] | None = None, causal: bool = False,
            others: Packed | Paged | None = None, scale: float | None = None, strides: Sequence[tuple[int, ...]] = (),
            device: str = DEVICES[0], check: bool = True, deterministic: bool = False, scores: Scores = Scores()) -> Call:
    """Tensors of this dtype (with E4M3, o of bfloat16), q and o of `shape`, k and v of `kv_shape` (None: the same); `scale` None: 1 / sqrt(head_dim);
    `strides` of q, k, v, o (none: contiguous); `device` "cuda" or "cpu"; `check`: on the emulator, with its checks; `deterministic`: of gradients."""
    kv_shape = kv_shape or shape
    for each in (shape, kv_shape):
        if not 0 < min(each) <= max(each) < 1 << 31:
            raise BadInput(f"the shape {each} has a size " + ("of 2^31 or more" if min(each) > 0 else "below 1"))
    if isinstance(others, Packed):
        (heads, rows, head_dim), (kv_heads, kv_rows, _) = shape, kv_shape
        problem = _Problem(others.sequences, heads, others.max_seqlen_q, head_dim, _OF_O[dtype])
        options = _Options(ctypes.sizeof(_Options), causal, others.max_seqlen_k, kv_heads, others.cu_seqlens_q,
                           others.cu_seqlens_k, rows, kv_rows)
    else:
        problem = _Problem(*shape, _OF_O[dtype])
        options = _Options(ctypes.sizeof(_Options), causal, kv_shape[2], kv_shape[1])
    if isinstance(others, Paged):
        options.pages, _, options.page_size, _ = kv_shape
        options.kv_len = min(others.table_pages * options.page_size, (1 << 31) - 1)
        options.block_table, options.kv_lens = others.block_table, others.seqused_k
    options.scale, options.deterministic = scale or 0.0, deterministic
    options.softcap, options.sinks = scores.softcap, scores.sinks
    options.alibi_slopes, options.alibi_per_sequence = scores.alibi_slopes, scores.alibi_per_sequence
    if scores.window:
        options.has_window, (options.window_left, options.window_right) = 1, scores.window
    for name, each in zip("qkvo", strides):  # of packed sequences there are but two, and one block
        setattr(options, f"{name}_strides", _Strides(*(0,) * (4 - len(each)), *each[:-1]))
    return Call(_backend_for(device, check), kernel.encode(), problem, options)


def plan(call: Call, number: int = 0, lse: bool = False, fp8: Fp8 | None = None) -> Plan:
    """fa_plan or fa_plan_fp8: which kernel runs, on the GPU of this number; whether log-sum-exp is wanted."""
    library, options = _libraries[call.backend], _Options.from_buffer_copy(call.options)
    options.lse = 16 if lse else None  # any address: nothing is read or written there
    text = ctypes.c_char_p()
    if status := (library.fa_plan_fp8(call.kernel, call.problem, options, fp8, number, text, None) if fp8 else
                  library.fa_plan(call.kernel, call.problem, options, number, text)):
        raise _ERRORS[status](library.fa_error().decode(errors="replace"))
    name, *faster = (text.value or b"").decode().split("\n")
    return Plan(name, {kernel: why for kernel, _, why in (line.partition(" ") for line in faster)})


def run(call: Call, pointers: tuple[int, ...], stream: int, lse: int = 0) -> None:
    """fa_attention_with: `pointers` to q, k, v, o; `stream` a cudaStream_t; `lse` a pointer to float32 for each row, or 0."""
    _run("fa_attention_with", call, (*pointers, stream), lse)


def workspace_of_gradients(call: Call, number: int = 0) -> int:
    """fa_plan_backward: how many bytes run_backward needs on the GPU of this number; none on the emulator, which has its own."""
    library, text, size = _libraries[call.backend], ctypes.c_char_p(), ctypes.c_size_t()
    if status := library.fa_plan_backward(call.kernel, call.problem, call.options, number, text, size):
        raise _ERRORS[status](library.fa_error().decode(errors="replace"))
    return size.value if call.backend == "cuda" else 0


def run_backward(call: Call, pointers: tuple[int, ...], workspace: tuple[int, int], stream: int, lse: int) -> None:
    """fa_attention_backward: `pointers` to q, k, v, o and the gradients of o, q, k and v; `workspace` a pointer and its bytes."""
    _run("fa_attention_backward", call, (*pointers, *workspace, stream), lse)


def workspace_of_fp8(call: Call, fp8: Fp8, number: int = 0) -> int:
    """fa_plan_fp8: how many bytes run_fp8 needs on the GPU of this number; none on the emulator."""
    library, text, size = _libraries[call.backend], ctypes.c_char_p(), ctypes.c_size_t()
    if status := library.fa_plan_fp8(call.kernel, call.problem, call.options, fp8, number, text, size):
        raise _ERRORS[status](library.fa_error().decode(errors="replace"))
    return size.value if call.backend == "cuda" else 0


def run_fp8(call: Call, fp8: Fp8, pointers: tuple[int, ...], workspace: tuple[int, int], stream: int) -> None:
    """fa_attention_fp8: `pointers` to q, k, v, o; `workspace` a pointer and its bytes."""
    _run("fa_attention_fp8", call, (fp8, *pointers, *workspace, stream), 0)


def _run(name: str, call: Call, arguments: tuple[Any, ...], lse: int) -> None:
    backend, kernel, problem, options = call
    library = _libraries[backend]
    function = getattr(library, name)
    if lse:  # other threads may have the same call
        options = _Options.from_buffer_copy(options)
        options.lse = lse
    if backend != "cuda":
        _last.library = library
    if backend == "cuda" or threading.current_thread() is not threading.main_thread():
        status = function(kernel, problem, options, *arguments)
    else:
        status = _run_until_signal(function, kernel, problem, options, arguments)
    if status:
        raise _ERRORS[status](library.fa_error().decode(errors="replace"))


def _run_until_signal(function: Callable[..., int], kernel: bytes, problem: _Problem, options: _Options, arguments: tuple[Any, ...]) -> int:
    """Handlers of signals run where Python does, which is where the emulator asks for the end. What they raise, as Ctrl-C's
    does, ends the call."""
    raised: list[BaseException] = []

    def handle(number: int, frame: FrameType | None) -> None:
        try:
            before[number](number, frame)
        except BaseException as problem:
            raised.append(problem)

    before: dict[int, Any] = {each: handler for each in signal.valid_signals() if callable(handler := signal.getsignal(each))}
    options = _Options.from_buffer_copy(options)
    options.wants_end = _WantsEnd(lambda: bool(raised))
    try:
        for number in before:
            signal.signal(number, handle)
        status = function(kernel, problem, options, *arguments)
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is handle:  # else a handler has set another one
                signal.signal(number, handler)
    if raised:
        raise raised[0]
    return status
