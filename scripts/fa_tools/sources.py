"""What a kernel is: a hash of its statements, which every record of a measurement has. Another hash than today's means that the
kernel has changed since: the record is stale.

Comments, line breaks and the order of declarations do not count, nor does what only the emulator sees. Of a header those
declarations count that the kernel uses, directly or not, so that a new instruction in common/ptx makes no record stale. What
registers and starts kernels does not count (HOST), because it is not in their machine code, and neither do the hooks of a
recorder of timelines, which measured programs do not have.

CMake runs this as a program, which writes the table of common/harness/sources.cpp: a program says what it was built from,
wherever it runs."""

import hashlib
import re
import sys
from functools import lru_cache
from pathlib import Path

from fa_tools.laboratory.solutions import changed, solutions
from fa_tools.product.single import included, parse, reachable, without_comments
from fa_tools.tools import ROOT, Refused, write_whole

HOST = {f"common/launch/{name}.h" for name in ("device", "known_kernels", "launch", "problem", "registry")} | {"common/ptx/hook.h"}


def normalised(code):
    """Code without comments, and with a space only where two words would become one."""
    return re.sub(r"(?<!\w) | (?!\w)", "", " ".join(without_comments(code).split()))


@lru_cache(maxsize=None)
def solution(name):
    """The places that a solution of an exercise changes in its kernel, or None."""
    return solutions().get(name)


@lru_cache(maxsize=None)
def declarations(path):
    """Of a header, or all its text, if that is none that parse() can cut into declarations, such as macros."""
    try:
        return parse(path, {})[1], []
    except Exception:  # whatever it is that stops a reader of well-formed headers
        return [], [(ROOT / path).read_text(encoding="utf-8")]


@lru_cache(maxsize=None)
def source_of(kernel):
    """12 digits, of a kernel or of a solution of an exercise. None if there is neither of this name."""
    name, is_next, _ = kernel.partition(".next")
    path = ROOT / "kernels" / f"{'next/' * bool(is_next)}{name}.cu"
    places = None if path.exists() else solution(name)
    if places:
        path = next(path.parent.glob(f"{name[:2]}_*.cu"), path)
    if not path.exists():
        return None
    code = path.read_text(encoding="utf-8")
    try:
        code = changed(code, places) if places else code
    except Refused:
        return "misfit"  # the kernel is another one than when the solution was measured
    # Traits are for those who test it. A solution in one program with its kernel has other names than these
    # (scripts/fa solutions --library).
    code = re.sub(r'(?m)^#include .*|\bnamespace fa::\w+|(?<=registration\{)"\w+"|(, \{\})?, Traits::\w+', "", code)
    blocks, whole = [], []
    for header in included(path.relative_to(ROOT), set()):
        if header not in HOST:
            more, text = declarations(header)
            blocks += more
            whole += text
    used = reachable(blocks, "\n".join([code, *whole]), {})
    text = "\n".join([normalised(code), *sorted(normalised(text) for text in [*whole, *(block.text for block in used)])])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def main():
    kernels = sorted(path.relative_to(ROOT / "kernels").with_suffix("").as_posix() for path in (ROOT / "kernels").rglob("*.cu"))
    names = [f"{name.removeprefix('next/')}.next" if name.startswith("next/") else name for name in kernels]
    write_whole(Path(sys.argv[1]), "".join(f'{{"{name}", "{source_of(name)}"}},\n' for name in names))


if __name__ == "__main__":
    main()
