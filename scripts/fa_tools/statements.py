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


def line_numbers(source, statement):
    """The numbers of the first lines of the statements with this text, which nothing tells apart."""
    texts = statements(source)
    return [i + 1 for i, text in enumerate(texts) if text == statement and texts[i - 1:i] != [text]]
