"""Sixteen attention kernels, called from Python: O = softmax(scale Q K^T) V.

    import fa, torch
    q, k, v = torch.randn(3, 2, 8, 1024, 128, dtype=torch.bfloat16, device="cuda")
    o = fa.attention(q, k, v)               # kernel 16
    o = fa.attention(q, k, v, kernel=8)     # any of fa.kernels()

Built for CUDA, the tensors are on a GPU. Built for the emulator, the same call takes tensors of the CPU, and
fa.counters() says what the kernel did. Built for both, each call goes where its tensors are. A wrong argument raises fa.BadInput with one sentence; all errors are fa.Error.
"""

from typing import TYPE_CHECKING, Any

from ._attention import attention
from ._flash import flash_attn_func, flash_attn_varlen_func
from ._library import BadInput, Error, Kernel, LaunchError, Unsupported, backend, counters, kernels, version

if TYPE_CHECKING:
    from ._ring import ring_attention

__all__ = ["BadInput", "Error", "Kernel", "LaunchError", "Unsupported", "attention", "backend", "counters",
           "flash_attn_func", "flash_attn_varlen_func", "kernels", "ring_attention"]

__version__ = version()


def __getattr__(name: str) -> Any:
    if name != "ring_attention":
        raise AttributeError(f"module 'fa' has no attribute '{name}'")
    from ._ring import ring_attention  # needs torch, which nothing else here does

    return ring_attention
