#!/usr/bin/env python3
"""Exercise 1 of docs/00_attention.md: where attention leaves the roof of HBM, and which tiles leave that of L2."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "scripts"))
from fa_tools.intensity import attention_flops, intensity, roofs

GPU = "NVIDIA H200"

# [balance]
machine = roofs(GPU)
peak = machine["tflops"]["tensor"]
for level in ("hbm", "l2"):
    print(f"{level}: {peak / machine['tb_per_s'][level]:.0f} FLOPs a byte to reach {peak} TFLOP/s")

# Each tensor moved once: N / 2 FLOPs a byte.
needed = peak / machine["tb_per_s"]["hbm"]
tokens = next(n for n in range(128, 2**20, 128) if intensity("hbm", 64, 64, 128, n).intensity >= needed)
print(f"HBM is no limit from {tokens} tokens on")

# A CTA that reads all of K and V for its block_m queries.
needed = peak / machine["tb_per_s"]["l2"]
rows = next(m for m in (16, 32, 64, 128, 256) if intensity("l2", m, 64, 128, 4096).intensity >= needed)
print(f"L2 is no limit from {rows} queries a CTA on, at 4096 tokens")

# One query, as when a model writes its answer token by token: 4 N D FLOPs, and K and V are 2 N D elements.
n, d = 4096, 128
flops, moved = attention_flops(1, 1, n, d) / n, (2 * n * d + 2 * d) * 2
print(f"one query: {flops / moved:.2f} FLOPs a byte, at most {flops / moved * machine['tb_per_s']['hbm']:.1f} TFLOP/s")
# [/balance]
