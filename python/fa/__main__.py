"""python -m fa: what this installation is, and what its kernels need."""

from . import _library

print(f"{_library.LIBRARY}, built for {'CUDA' if _library.backend() == 'cuda' else 'the ' + _library.backend()}")
for kernel in _library.kernels():
    print(f"  {kernel.name:24} {kernel.needs}")
