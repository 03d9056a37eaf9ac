"""Tile sizes of 10_instruction_tuning: a choice, and the table of them in kernels/10_tuning.h."""

import json
import re
from typing import NamedTuple

from fa_tools.tools import ROOT, Refused

HEADER = ROOT / "kernels" / "10_tuning.h"
ROW = re.compile(r"^  (?:if \(architecture == (\d+) && head_dim == (\d+)\)\n    )?return \{(\s*\.[^}]*)\};\n", re.MULTILINE)
COLUMNS = 100  # of a line of the header


class Choice(NamedTuple):
    """struct Tuning of kernels/10_tuning.h."""

    warps: int
    row_tiles: int
    block_n: int
    stages: int
    ctas: int
    q_in_registers: bool
    q_in_v: bool

    def block_m(self):
        return self.warps * self.row_tiles * 16

    def threads(self):
        return self.warps * 32

    def shared_bytes(self, head_dim):
        return (2 * self.stages * self.block_n + (0 if self.q_in_v else self.block_m())) * head_dim * 2

    def cpp(self):
        return ", ".join(str(value).lower() for value in self)

    def returned(self, indent):
        """The statement of the header that returns this choice, as clang-format breaks it. What is not said is false."""
        fields = [f".{name} = {str(value).lower()}" for name, value in self._asdict().items() if value is not False]
        flat = ", ".join(fields) + "};"
        if indent + len("return {" + flat) <= COLUMNS:
            return f"{' ' * indent}return {{{flat}\n"
        if indent + 4 + len(flat) <= COLUMNS:
            return f"{' ' * indent}return {{\n{' ' * (indent + 4)}{flat}\n"
        return f"{' ' * indent}return {{{(',' + chr(10) + ' ' * (indent + 8)).join(fields)}}};\n"

    def text(self):
        return ",".join(str(int(value)) for value in self)


def choice_of(architecture, head_dim):
    """What the header has for it: its row, else the last one."""
    for row in ROW.finditer(HEADER.read_text(encoding="utf-8")):
        if row[1] is None or (int(row[1]), int(row[2])) == (architecture, head_dim):
            said = {name: json.loads(value) for name, value in re.findall(r"\.(\w+) = (\w+)", row[3])}
            return Choice(*(said.get(name, False) for name in Choice._fields))
    raise Refused("kernels/10_tuning.h has no tile sizes")


REGION = re.compile(r"(.*^  // \[tuned\]\n)(.*)(^  // \[/tuned\]\n.*)", re.DOTALL | re.MULTILINE)


def with_choices(text, architecture, choices):
    """The header with {head_dim: Choice} of this architecture; a new row comes before the last, the default."""
    before, region, after = REGION.fullmatch(text).groups()
    rows = {(row[1] and int(row[1]), row[2] and int(row[2])): row[0] for row in ROW.finditer(region)}
    default = rows.pop((None, None))
    for head_dim, choice in choices.items():
        rows[architecture, head_dim] = (f"  if (architecture == {architecture} && head_dim == {head_dim})\n"
                                        f"{choice.returned(4)}")
    return before + "".join(rows.values()) + default + after
