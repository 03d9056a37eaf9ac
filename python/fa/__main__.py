"""python -m fa: what this installation is, and what its kernels need."""

from . import _library

where = "CUDA" if _library.backend() == "cuda" else f"the {_library.backend()}"
print(f"fa {_library.version()}, built for {where} on {_library.architectures()}", _library.LIBRARY,
      *(f"  {kernel.name:24} {kernel.needs}" for kernel in _library.kernels()), sep="\n")
