"""Sixteen attention kernels, called from Python: O = softmax(scale Q K^T) V.

    import fa, torch
    q, k, v = torch.randn(3, 2, 8, 1024, 128, dtype=torch.bfloat16, device="cuda")
    o = fa.attention(q, k, v)               # by the fastest kernel that takes this: fa.plan(q, k, v) says which
    o = fa.attention(q, k, v, kernel=8)     # by any of fa.kernels()

Built for CUDA, the tensors are on a GPU. Built for the emulator, the same call takes tensors of the CPU, and
fa.counters() says what the kernel did. Built for both, each call goes where its tensors are. A wrong argument raises
fa.BadInput with one sentence; all errors are fa.Error.
"""

from typing import TYPE_CHECKING, Any

from ._attention import attention, plan
from ._flash import (flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func, flash_attn_varlen_func,
                     flash_attn_with_kvcache)
from ._library import BadInput, Error, Kernel, LaunchError, Plan, Unsupported, backend, counters, kernels
from ._library import version as _version

if TYPE_CHECKING:
    from ._ring import ring_attention

__all__ = ["BadInput", "Error", "Kernel", "LaunchError", "Plan", "Unsupported", "attention", "backend", "counters",
           "flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
           "flash_attn_with_kvcache", "kernels", "plan", "ring_attention"]

__version__ = _version()


def __getattr__(name: str) -> Any:
    if name != "ring_attention":
        raise AttributeError(f"module 'fa' has no attribute '{name}'")
    from ._ring import ring_attention  # needs torch, which nothing else here does

    return ring_attention
