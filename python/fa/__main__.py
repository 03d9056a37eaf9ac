"""python -m fa: what this installation is, and what its kernels need."""

import signal

from . import _library

signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # python -m fa | head
for number, (backend, architectures, path) in enumerate(_library.built()):
    where = "CUDA" if backend == "cuda" else f"the {backend}"
    print(f"and for {where}" if number else f"fa {_library.version()}, built for {where}", f"on {architectures}\n{path}")
print(*(f"  {kernel.name:24} {kernel.needs}" for kernel in _library.kernels()), sep="\n")
