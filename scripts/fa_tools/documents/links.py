"""Checks the relative links, anchors, images and formulas of every Markdown file, and changes nothing. Web addresses are not fetched.

An image has words for those who do not see it. A formula stands between $ and $ on one line, or between $$ and $$; it must be closed, and convertible to
MathML where the package latex2mathml is here (scripts/test.sh --quick installs it)."""

import re
import site
import sys
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

from fa_tools.tools import ROOT, Parser, busy, markdown_files, named, relative, text_of

EXAMPLE = """examples:
  scripts/fa links
  scripts/fa links README.md docs/01_naive.md

Exit code: 0 all is well, 1 something is not."""

FENCE = re.compile(r"^\s*(```+|~~~+)")
INLINE = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*(<[^>]*>|[^)\s]+)(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)")
# The text of a link may itself be an image, whose target INLINE does not see.
IMAGE = re.compile(r"!\[[^\]]*\]\(\s*(<[^>]*>|[^)\s]+)")
REFERENCE = re.compile(r"^\s{0,3}\[[^\]^]+\]:\s*(<[^>]*>|\S+)")
ATTRIBUTE = re.compile(r"<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)\s*=\s*[\"']([^\"']+)[\"']", re.IGNORECASE)
EXPLICIT_ANCHOR = re.compile(r"<[a-z][^>]*\b(?:id|name)\s*=\s*[\"']([^\"']+)[\"']", re.IGNORECASE)
ALT = re.compile(r"<img\b(?![^>]*\balt\s*=\s*[\"'][^\"']*\w)[^>]*>|!\[\s*\]\(", re.IGNORECASE)
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
# A dollar sign before a space or behind one is none of a formula's.
FORMULA = re.compile(r"(?<![\\$\w])\$(?=[^\s$])([^$]*?)(?<=[^\s\\$])\$(?![\w$])")
HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")


def with_fences(lines):
    """(line number, line, whether it belongs to fenced code)"""
    fence = None
    for number, line in enumerate(lines, 1):
        inside = fence
        if (mark := FENCE.match(line)) and (fence is None or line.strip().startswith(fence)):
            fence = None if fence else mark[1]
        yield number, line, bool(inside or fence)


def outside_code(text):
    """(line number, line) outside fenced code and HTML comments."""
    comment = False
    for number, line, in_code in with_fences(text.splitlines()):
        if in_code:
            continue
        if comment:
            comment = "-->" not in line
            continue
        line = re.sub(r"<!--.*?-->", "", line)
        if "<!--" in line:
            comment, line = True, line.split("<!--")[0]
        yield number, line


def taken_for_html(path):
    """Numbers of lines that begin with a comment and go on with text."""
    for number, line, in_code in with_fences(path.read_text(encoding="utf-8").splitlines()):
        if not in_code and re.match(r"\s*(?:[-*+] +)?<!--.*-->\s*[^\s<]", line):
            yield number


def slug(text, seen):
    """A heading's anchor, as code hosts make it."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"<[^>]+>", "", text)
    text = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
    count = seen.get(text, 0)
    seen[text] = count + 1
    return f"{text}-{count}" if count else text


@lru_cache(maxsize=None)
def anchors(path):
    seen, found = {}, set()
    for _, line in outside_code(path.read_text(encoding="utf-8")):
        heading = HEADING.match(line)
        if heading:
            found.add(slug(heading[2], seen))
        found.update(EXPLICIT_ANCHOR.findall(line))
    return found


@lru_cache(maxsize=None)
def anchors_of_picture(path):
    return set(EXPLICIT_ANCHOR.findall(path.read_text(encoding="utf-8")))


@lru_cache(maxsize=None)
def exact_case(path):
    """Whether the path exists with exactly these letters; some file systems are lenient, code hosts are not."""
    while path.is_relative_to(ROOT) and path != ROOT:
        if path.name not in {sibling.name for sibling in path.parent.iterdir()}:
            return False
        path = path.parent
    return True


def problem_with(path, target):
    """One sentence, or None."""
    target = unquote(target.strip("<>"))
    if re.match(r"^[a-zA-Z][a-zA-Z0-9+.-]*:", target) or target.startswith("//"):
        return None
    name, _, anchor = target.partition("#")
    name = name.partition("?")[0]
    file = path
    if name:
        file = (ROOT / name.lstrip("/") if name.startswith("/") else path.parent / name).resolve()
        if path.is_relative_to(ROOT) and not file.is_relative_to(ROOT):
            return f"the link to {target} leaves the repository"
        if not file.exists() or not exact_case(file):
            return f"the link to {target} leads nowhere"
    if not anchor:
        return None
    if file.suffix == ".md":
        return None if anchor in anchors(file) else f"{relative(file)} has no heading for the anchor #{anchor}"
    if file.suffix == ".diff":
        there = f"\n=== {anchor}\n" in "\n" + file.read_text(encoding="utf-8")
        return None if there else f"{relative(file)} has no line === {anchor}"
    if file.suffix == ".svg":
        return None if anchor in anchors_of_picture(file) else f"{relative(file)} has nothing with the id {anchor}"
    lines = re.fullmatch(r"L(\d+)(?:-L(\d+))?", anchor)
    if lines and file.is_file():
        count = len(file.read_text(encoding="utf-8", errors="replace").splitlines())
        if int(lines[2] or lines[1]) > count:
            return f"{relative(file)} has only {count} lines, the link wants #{anchor}"
    return None


def links(line):
    line = CODE.sub("", line)
    for pattern in (INLINE, IMAGE, REFERENCE):
        yield from (match[1] for match in pattern.finditer(line))
    for match in ATTRIBUTE.finditer(line):
        # srcset may list several, each with a size behind it.
        yield from (part.split()[0] for part in match[1].split(",") if part.split())


# --- Pictures --------------------------------------------------------------------------------------------------


def picture_problems(lines):
    """(line number, sentence) of what is wrong with images; whether they are there is asked of their links."""
    for number, line in lines:
        if ALT.search(CODE.sub("", line)):
            yield number, "an image has no words (alt) for those who do not see it"


# --- Formulas --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=None)
def converter():
    """latex2mathml's convert, of this Python or of an environment of this checkout, or None."""
    for folder in sorted(ROOT.glob(".venv*/lib/python3*/site-packages")):
        site.addsitedir(str(folder))
    try:
        from latex2mathml.converter import convert
    except ImportError:
        return None
    return convert


def formulas(lines, problems):
    """(line number, formula). `problems` gets (line number, sentence) of what is not closed."""
    display = begin = None
    for number, line in lines:
        line = CODE.sub("", line)
        if number > 1 and display is not None and not line.strip():
            problems.append((begin, "a formula is not closed by $$ before the paragraph ends"))
            display = None
        rest = ""
        for i, part in enumerate(line.split("$$")):
            if i:
                if display is None:
                    display, begin = "", number
                else:
                    yield begin, display
                    display = None
            if display is None:
                rest += part
            else:
                display += part + " "
        for match in FORMULA.finditer(rest):
            yield number, match[1]
        left = FORMULA.sub("", rest)
        if re.search(r"(?<!\\)\$(?!\d)", left):
            problems.append((number, "a formula has a $ on one side only (write \\$ for a dollar sign)"))
    if display is not None:
        problems.append((begin, "a formula is not closed by $$"))


def formula_problem(formula):
    """One sentence, or None."""
    depth = 0
    for sign in re.sub(r"\\.", "", formula):
        depth += (sign == "{") - (sign == "}")
        if depth < 0:
            break
    if depth:
        return "has unequal numbers of { and }"
    eaten = re.search(r"\\[^\sa-zA-Z\\]", formula)
    if eaten:
        return f"has {eaten[0]}, of which a code host's Markdown takes the backslash away"
    if not formula.strip():
        return "is empty"
    convert = converter()
    if convert is not None:
        try:
            mathml = convert(formula)
        except Exception as problem:  # whatever a converter raises, the formula is not one
            return f"cannot be converted to MathML ({type(problem).__name__})"
        unknown = re.search(r"(?:\\|&#x0005C;)([a-zA-Z]+)", re.sub(r"<annotation.*?</annotation>", "", mathml, flags=re.DOTALL))
        if unknown:
            return f"has \\{unknown[1]}, which the conversion to MathML does not know"
    return None


@busy("checking links and formulas")
def main():
    parser = Parser("links", __doc__, EXAMPLE)
    parser.add_argument("files", nargs="*", metavar="FILE", help="Markdown files (default: all of the checkout)")
    args = parser.parse_args()
    bad = checked = converted = 0
    for path in [Path(name).resolve() for name in args.files] or markdown_files():
        with named(relative(path)):
            lines = list(outside_code(text_of(path)))
        for number in taken_for_html(path):
            bad += 1
            print(f"{relative(path)}:{number}: begins with a comment: put a word before it", file=sys.stderr)
        for number, line in lines:
            for target in dict.fromkeys(links(line)):
                checked += 1
                sentence = problem_with(path, target)
                if sentence:
                    bad += 1
                    print(f"{relative(path)}:{number}: {sentence}", file=sys.stderr)
        problems = list(picture_problems(lines))
        for number, formula in formulas(lines, problems):
            converted += 1
            sentence = formula_problem(formula)
            if sentence:
                problems.append((number, f"the formula {formula.strip()} {sentence}"))
        for number, sentence in sorted(problems):
            bad += 1
            print(f"{relative(path)}:{number}: {sentence}", file=sys.stderr)
    if not bad:
        print(f"{checked} links lead somewhere, {converted} formulas are closed"
              + (" and convertible" if converter() else " (not converted: latex2mathml is not here)") * bool(converted))
    return 1 if bad else 0
