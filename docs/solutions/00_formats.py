#!/usr/bin/env python3
"""Exercise 3 of docs/00_attention.md: how far e^x reaches in each format, and how finely P is rounded."""

import math
import struct


# [rounding]
def fp16(x):
    """To fp16 and back: to nearest, ties to even."""
    try:
        return struct.unpack("<e", struct.pack("<e", x))[0]
    except OverflowError:
        return math.inf


def fp32(x):
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.inf


def bf16(x):
    """The upper half of an fp32, to nearest, ties to even."""
    bits = struct.unpack("<I", struct.pack("<f", fp32(x)))[0]
    if fp32(x) == math.inf:
        return math.inf
    bits += 0x7FFF + (bits >> 16 & 1)
    return struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0]
# [/rounding]


for to in (fp32, bf16, fp16):
    low, high = 0.0, 100.0  # e^low is finite, e^high is not
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if to(math.exp(middle)) < math.inf else (low, middle)
    worst = max(abs(to(p) - p) / p for p in (0.5 + (i + i * 0.618 % 1) / 2**17 for i in range(2**16)))
    print(f"{to.__name__}: e^x is finite up to x = {low:.2f}; P is off by up to 2^{math.log2(worst):.2f} of itself")

assert bf16(1 + 2**-8) == 1 and bf16(1 + 3 * 2**-8) == 1 + 2**-6  # ties, to even
assert fp16(65504.0) == 65504 and fp16(65520.0) == math.inf
