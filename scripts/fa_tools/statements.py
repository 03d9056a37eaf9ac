"""Statements of the sources, by whose text kept files name a place: a line number would be wrong after the next comment.
common/harness/statements.cpp is the same in C++."""

from functools import lru_cache

from fa_tools.tools import ROOT


def _code(line):
    return line.split("//")[0].strip()


@lru_cache
def statements(source):
    """Of each line of a source, the text of the statement in which it lies, without comments and line breaks. None of a file that is
    not there."""
    file = ROOT / source
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    result = []
    while len(result) < len(lines):
        text, first = "", len(result)
        for end, line in enumerate(lines[first:], first + 1):
            code = _code(line)
            text += " " * bool(text and code and text[-1] != "(") + code
            if not code or code.startswith("#") or code[-1] in ";{}:":
                break
        result += [text] * (end - first)
    return result


def line_of(source, statement):
    """The number of the first line of the first statement with this text, or None."""
    texts = statements(source)
    return texts.index(statement) + 1 if statement in texts else None
