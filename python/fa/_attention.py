"""fa.attention, and how it sees the tensors of other libraries: torch's, NumPy's, and by DLPack anyone's."""

import ctypes
import sys
from typing import Any, NamedTuple, TypeVar

from . import _library
from ._library import BadInput

Tensor = TypeVar("Tensor")
_LEGACY_STREAM = 1  # CUDA's default stream, as DLPack numbers streams


def attention(q: Tensor, k: Tensor, v: Tensor, kernel: int | str = 16) -> Tensor:
    """softmax(q k^T / sqrt(head_dim)) v, forward, without mask or dropout.

    q, k, v: tensors of one shape, (batch, heads, seq_len, head_dim), contiguous, of float16 or bfloat16: torch tensors,
    NumPy arrays (float16, since NumPy has no bfloat16), or arrays of a library with DLPack and an empty_like, such as
    CuPy. seq_len is a multiple of 128, head_dim 64 or 128, batch * heads at most 65535. They are on one GPU if fa was
    built for CUDA, and on the CPU if it was built for the emulator (fa.backend()).
    kernel: a number or name out of fa.kernels().

    Returns a new tensor of the same kind, shape, dtype and device. Sums and softmax are in float32.

    On a GPU the kernel is launched into torch's current stream, and for other libraries into CUDA's default stream; the
    call does not wait. It may be captured in a CUDA graph and compiled with torch.compile(fullgraph=True). It has no
    backward pass.

    Raises BadInput for a wrong argument, Unsupported where this GPU cannot run the kernel, and LaunchError with CUDA's
    error or the emulator's report. All three are fa.Error.
    """
    torch: Any = sys.modules.get("torch")  # a program that has no tensor of torch need not load it
    if torch is not None and isinstance(q, torch.Tensor):
        from ._torch import attention as of_kind
    else:
        of_kind = _array_attention
    o: Tensor = of_kind(q, k, v, str(kernel))
    return o


class View(NamedTuple):
    """Where a tensor is and how it is laid out."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  # in elements; None: contiguous
    dtype: str
    device: str  # "cpu", "cuda:0"


def check(views: dict[str, View], cure: str) -> None:
    """Raises BadInput unless the three tensors are as the kernels take them, but for the sizes, which the library checks.
    `cure` makes {name} contiguous, for the message."""
    first = views["q"]
    on = "cuda" if _library.backend() == "cuda" else "cpu"
    for name, view in views.items():
        if len(view.shape) != 4:
            raise BadInput(f"{name} has the shape {view.shape}, but fa takes (batch, heads, seq_len, head_dim)")
        if view.dtype not in _library.DTYPES:
            raise BadInput(f"{name} is of {view.dtype}, but fa takes float16 and bfloat16")
        if view.device.partition(":")[0] != on:
            built = "CUDA and takes tensors of a GPU" if on == "cuda" else "the emulator and takes tensors of the CPU"
            raise BadInput(f"{name} is on {view.device}, but this fa was built for {built}")
        for what in ("shape", "dtype", "device"):
            if getattr(view, what) != getattr(first, what):
                raise BadInput(f"{name} has the {what} {getattr(view, what)}, but q has {getattr(first, what)}")
        if not _is_contiguous(view):
            raise BadInput(f"{name} has the strides {view.strides} for the shape {view.shape}, but fa takes contiguous "
                           f"tensors: pass {cure.format(name=name)}")


def _is_contiguous(view: View) -> bool:
    expected = 1
    for size, stride in zip(reversed(view.shape), reversed(view.strides or ())):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


# ---- arrays that are not torch's ---------------------------------------------------------------------------------------
class _DLTensor(ctypes.Structure):
    """The begin of DLPack's DLManagedTensor."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_DL_DEVICES = {1: "cpu", 2: "cuda", 13: "cuda"}  # kDLCPU, kDLCUDA, kDLCUDAManaged
_DL_DTYPES = {(2, 16, 1): "float16", (4, 16, 1): "bfloat16"}  # kDLFloat, kDLBfloat; bits; lanes


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
    interface = getattr(array, "__array_interface__", None)  # NumPy's, also of arrays that must not be written to
    if interface is not None:
        size = array.dtype.itemsize
        strides = interface.get("strides")
        return View(interface["data"][0], tuple(interface["shape"]), strides and tuple(each // size for each in strides),
                    str(array.dtype), "cpu"), array
    if hasattr(array, "__dlpack__"):
        return _view_of_dlpack(array)
    raise BadInput(f"{name} is of type {type(array).__name__}, but fa takes torch tensors, NumPy arrays and what has DLPack")


def _array_attention(q: Any, k: Any, v: Any, kernel: str) -> Any:
    views, held = {}, []
    for name, array in zip("qkv", (q, k, v)):
        if type(array) is not type(q):
            raise BadInput(f"{name} is of type {type(array).__name__}, but q of type {type(q).__name__}")
        views[name], keep = _view(name, array)
        held.append(keep)
    library = type(q).__module__.partition(".")[0]
    check(views, "cupy.ascontiguousarray({name})" if library == "cupy" else "numpy.ascontiguousarray({name})")
    empty_like = getattr(sys.modules[library], "empty_like", None)
    if empty_like is None:
        raise BadInput(f"{library} has no empty_like, of which fa could make the output: pass torch.from_dlpack of each")
    o = empty_like(q)
    out, keep = _view("o", o)
    held.append(keep)
    _library.run(kernel, views["q"].shape, views["q"].dtype, (*(views[name].pointer for name in "qkv"), out.pointer), 0)
    return o
