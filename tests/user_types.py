"""A program of a user of `fa`, for its types: mypy reads it (scripts.mypy), and nothing runs it."""

from typing import Any

import fa
from typing_extensions import assert_type


class Tensor:
    """In place of torch's, which is not installed where this is read."""

    shape: tuple[int, ...]

    def __add__(self, other: float) -> "Tensor":
        return self


def use(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, wanted: bool) -> None:
    o: Tensor = fa.attention(q, k, v)
    assert_type(fa.attention(q, k, v, causal=True, kernel="plain") + 1, Tensor)
    assert_type(fa.attention(q, k, v, cu_seqlens_q=lengths, cu_seqlens_k=lengths, return_lse=True), tuple[Tensor, Tensor])
    assert_type(fa.attention(q, k, v, return_lse=wanted), Tensor | tuple[Tensor, Tensor])
    assert_type(fa.flash_attn_func(q, k, v, 0.0, None, True), Tensor)
    assert_type(fa.flash_attn_func(q, k, v, return_attn_probs=True), tuple[Tensor, Tensor, None])
    assert_type(fa.flash_attn_varlen_func(q, k, v, lengths, lengths, 40, 30, kernel=16), Tensor)
    assert_type(fa.flash_attn_qkvpacked_func(q, causal=True), Tensor)
    assert_type(fa.flash_attn_kvpacked_func(q, k, return_attn_probs=True), tuple[Tensor, Tensor, None])
    assert_type(fa.plan(q, k, v).faster, dict[str, str])
    assert_type(fa.counters(), dict[str, Any])
    fa.attention(q, k, v, kernel=8.0)  # type: ignore[call-overload]
    try:
        fa.attention(o, k, v)
    except fa.BadInput as error:
        assert_type(error, fa.BadInput)
