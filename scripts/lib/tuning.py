"""Tile sizes of 10_instruction_tuning: a choice, and the table of them in kernels/10_tuning.h."""

import json
import re
from typing import NamedTuple

from tools import ROOT, Refused

HEADER = ROOT / "kernels" / "10_tuning.h"
ROW = re.compile(r"^  (?:if \(architecture == (\d+) && head_dim == (\d+)\) )?return \{(\d.*)\};$", re.MULTILINE)


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

    def text(self):
        return ",".join(str(int(value)) for value in self)


def choice_of(architecture, head_dim):
    """What the header has for it: its row, else the last one."""
    for row in ROW.finditer(HEADER.read_text(encoding="utf-8")):
        if row[1] is None or (int(row[1]), int(row[2])) == (architecture, head_dim):
            return Choice(*map(json.loads, row[3].split(", ")))
    raise Refused("kernels/10_tuning.h has no tile sizes")


REGION = re.compile(r"(.*^  // \[tuned\]\n)(.*)(^  // \[/tuned\]\n.*)", re.DOTALL | re.MULTILINE)


def with_choices(text, architecture, choices):
    """The header with {head_dim: Choice} of this architecture; a new line comes before the last, the default."""
    before, region, after = REGION.fullmatch(text).groups()
    lines = region.splitlines()
    for head_dim, choice in choices.items():
        start = f"  if (architecture == {architecture} && head_dim == {head_dim}) return "
        at = next((i for i, line in enumerate(lines) if line.startswith(start)), None)
        if at is None:
            at = len(lines) - 1
            lines.insert(at, start)
        lines[at] = f"{start}{{{choice.cpp()}}};"
    return before + "\n".join(lines) + "\n" + after
