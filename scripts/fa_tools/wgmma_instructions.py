"""Writes common/ptx/wgmma_instructions.h: the inline PTX of wgmma.mma_async for every N that kernels use.

Inline assembly names each register by itself, so every N needs a text of its own; everything else of the wrapper is
in common/ptx/wgmma.h, by hand."""

import sys

from fa_tools.tools import ROOT, Parser, relative

HEADER = ROOT / "common" / "ptx" / "wgmma_instructions.h"
COLUMNS = (16, 64, 80, 128, 256)  # N: of examples/one_wgmma.cu, the kernels, an exercise of chapter 13, bench/gemm
EXAMPLE = """examples:
  scripts/fa wgmma            write it
  scripts/fa wgmma --check    only say whether it is out of date; exit code 1 if it is"""

HEAD = """// wgmma.mma_async for each N. Written by scripts/fa wgmma; common/ptx/wgmma.h is where to read.
//
// Inline assembly names every register, so each N has a text of its own. They differ in nothing
// but the number of registers. %0 on are the accumulators; then A (a descriptor, or four
// registers), B's descriptor, `accumulate`, which is scale-d; the major dimensions of A and B; and
// the element type's name.
// clang-format off
#pragma once

#include <cstdint>

namespace ptx {

template <int kColumns>
struct WgmmaInstruction;
"""


def listed(items, per_line, indent):
    lines = [", ".join(items[i:i + per_line]) for i in range(0, len(items), per_line)]
    return f",\n{indent}".join(lines)


def text_lines(items):
    """The same as pieces of one string literal."""
    lines = [", ".join(items[i:i + 14]) for i in range(0, len(items), 14)]
    return "\n".join(f'        "{line}{", " if i + 1 < len(lines) else "}, "}"' for i, line in enumerate(lines))


def function(columns, from_registers):
    count = columns // 2
    a_inputs = [f'"r"(a[{i}])' for i in range(4)] if from_registers else ['"l"(a)']
    a_names = [f"%{count + i}" for i in range(len(a_inputs))]
    b = count + len(a_inputs)  # operands after the accumulators and A: B, accumulate, majors, element
    majors = ["kMajorB"] if from_registers else ["kMajorA", "kMajorB"]
    element = b + 2 + len(majors)
    a_text = "{" + ", ".join(a_names) + "}" if from_registers else a_names[0]
    inputs = [*a_inputs, '"l"(b)', '"r"(accumulate)', *(f'"n"({major})' for major in majors), '"C"(Element::kName)']
    templates = ", ".join(["typename Element", *(f"int {major}" for major in majors)])
    a_type = "const uint32_t (&a)[4]" if from_registers else "uint64_t a"
    immediates = ", ".join(f"%{b + 2 + i}" for i in range(len(majors)))
    registers = listed([f'"+f"(d[{i}])' for i in range(count)], 5, " " * 10)
    return f"""  template <{templates}>
  static __device__ __forceinline__ void {"multiply_registers" if from_registers else "multiply_shared"}(
      float (&d)[{count}], {a_type}, uint64_t b, int accumulate) {{
    asm volatile(
        "{{\\n"
        ".reg .pred p;\\n"
        "setp.ne.b32 p, %{b + 1}, 0;\\n"
        "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.%{element}.%{element} {{"
{text_lines([f"%{i}" for i in range(count)])}
        "{a_text}, %{b}, p, 1, 1, {immediates};\\n"
        "}}\\n"
        : {registers}
        : {listed(inputs, 6, " " * 10)});
  }}
"""


def header():
    parts = [HEAD]
    for columns in COLUMNS:
        parts.append(f"\ntemplate <>\nstruct WgmmaInstruction<{columns}> {{\n{function(columns, False)}\n"
                     f"{function(columns, True)}}};\n")
    parts.append("\n}  // namespace ptx\n")
    return "".join(parts)


def main():
    parser = Parser("wgmma", __doc__, EXAMPLE)
    parser.add_argument("--check", action="store_true", help="change nothing, say whether it is out of date")
    args = parser.parse_args()
    text = header()
    if HEADER.is_file() and HEADER.read_text(encoding="utf-8") == text:
        return 0
    if args.check:
        print(f"{relative(HEADER)} is out of date; scripts/fa wgmma writes it", file=sys.stderr)
        return 1
    HEADER.write_text(text, encoding="utf-8")
    print(f"wrote {relative(HEADER)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
