#!/usr/bin/env python3
"""Exercise 2 of docs/00_attention.md: two states of different keys make one."""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "scripts"))
from fa_tools.online_softmax import NOTHING, SCORES, VALUES, State, add_tile, three_passes


# [merge]
def merge(a, b):
    m = max(a.m, b.m)
    if m == -math.inf:  # no key in either: -inf - -inf would be NaN
        return NOTHING
    of_a, of_b = math.exp(a.m - m), math.exp(b.m - m)
    return State(m, a.l * of_a + b.l * of_b, a.o * of_a + b.o * of_b)
# [/merge]


first, _, _ = add_tile(NOTHING, SCORES[:3], VALUES[:3])
second, _, _ = add_tile(NOTHING, SCORES[3:], VALUES[3:])
both, whole = merge(first, second), three_passes(SCORES, VALUES)
for name, state in (("keys 0 to 2", first), ("keys 3 to 5", second), ("merged", both), ("three passes", whole)):
    print(f"{name:<14}m = {state.m:g}, l = {state.l:.4f}, o = {state.o:.4f}, o / l = {state.o / state.l:.4f}")

assert all(math.isclose(x, y, rel_tol=1e-12) for x, y in zip(both, whole))
assert merge(first, second) == merge(second, first)
assert merge(first, NOTHING) == first and merge(NOTHING, NOTHING) == NOTHING
