"""The formulas by which figures are drawn (scripts/fa_tools/documents/figures/layouts.py) give what those of common/layout give,
and the constants of kernels (scripts/fa_tools/constants.json) are what the program `layouts` prints.

Usage: test_layouts.py C++_COMPILER [LAYOUTS]"""

import itertools
import json
import sys
import tempfile
from pathlib import Path

from tool_test import ROOT, fail, run

from fa_tools.documents.figures import layouts
from fa_tools.sources import constants

LANE, HALF, ROWS = range(32), range(2), (64, 128)
# Formula -> the values of its arguments.
CASES = {
    "swizzle": (range(64), range(8)),
    "mma_a": (LANE, range(4), HALF), "mma_b": (LANE, HALF, HALF), "mma_c": (LANE, range(4)),
    "ldmatrix": (LANE, HALF), "ldmatrix_trans": (LANE, HALF),
    "wgmma_d": (range(128), range(64)),
    "start_field": (range(0, 0x40000, 0x990),), "leading_field": (range(0, 0x40000, 0x990),),
    "stride_field": (range(0, 0x40000, 0x990),), "base_offset_field": (range(8),),
    "k_major_offset": ((16, 128), (16, 128), (1024,), range(64), range(64)),
    "mn_major_offset": ((16, 128), (128, 8192), (1024,), range(64), range(64)),
    "slab_bytes": (ROWS,), "slab_offset": (ROWS, range(64), range(128)),
    "k_major_step": (ROWS, range(8)), "mn_major_step": (range(8),),
}
PROGRAM = """#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include "common/layout/fragments.h"
#include "common/layout/wgmma.h"
void layout::not_a_multiple_of_16(uint64_t) {}
void say(layout::Position at) { std::printf("%d %d\\n", at.row, at.column); }
void say(uint64_t value) { std::printf("%llu\\n", static_cast<unsigned long long>(value)); }
int main() {
"""


def calls(name, ranges):
    """Nested loops over the arguments, the last one innermost, as itertools.product has them."""
    letters = "abcde"[: len(ranges)]
    loops = "".join(f"for (unsigned {letter} : {{{', '.join(f'{value}u' for value in values)}}}) "
                    for letter, values in zip(letters, ranges))
    return f"  {loops}say(layout::{name}({', '.join(letters)}));\n"


with tempfile.TemporaryDirectory() as folder:
    source, program = Path(folder, "layouts.cpp"), Path(folder, "layouts")
    source.write_text(PROGRAM + "".join(calls(*case) for case in CASES.items()) + "}\n")
    run(sys.argv[1], "-std=c++20", "-w", "-I", ROOT, source, "-o", program, timeout=300)
    lines = iter(run(program).splitlines())
count = 0
for name, ranges in CASES.items():
    for arguments in itertools.product(*ranges):
        value, count = getattr(layouts, name)(*arguments), count + 1
        ours = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        theirs = next(lines)
        if ours != theirs:
            fail(f"{name}{arguments} is {ours} in scripts/fa_tools/documents/figures/layouts.py, {theirs} in common/layout")
others = {name for name, value in vars(layouts).items() if callable(value)} - CASES.keys()
if others:
    fail(f"formulas that nobody compares: {', '.join(sorted(others))}")
print(f"{count} values of {len(CASES)} formulas are equal")
if sys.argv[2:] and json.loads(run(sys.argv[2], "constants")) != constants():
    fail("scripts/fa_tools/constants.json is not what `layouts constants` prints; scripts/fa adopt --only documents writes it")
