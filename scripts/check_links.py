#!/usr/bin/env python3
"""Checks the relative links, anchors and images of every Markdown file. Web addresses are not fetched."""

import argparse
import re
import sys
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
from tools import ROOT, fail, markdown_files, relative  # noqa: E402

EXAMPLE = """examples:
  scripts/check_links.py
  scripts/check_links.py README.md docs/01_naive.md

Exit code: 0 all lead somewhere, 1 at least one does not."""

FENCE = re.compile(r"^\s*(```+|~~~+)")
INLINE = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*(<[^>]*>|[^)\s]+)(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)")
# The text of a link may itself be an image, whose target INLINE does not see.
IMAGE = re.compile(r"!\[[^\]]*\]\(\s*(<[^>]*>|[^)\s]+)")
REFERENCE = re.compile(r"^\s{0,3}\[[^\]^]+\]:\s*(<[^>]*>|\S+)")
ATTRIBUTE = re.compile(r"<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)\s*=\s*[\"']([^\"']+)[\"']", re.IGNORECASE)
EXPLICIT_ANCHOR = re.compile(r"<[a-z][^>]*\b(?:id|name)\s*=\s*[\"']([^\"']+)[\"']", re.IGNORECASE)
HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")


def prose(path):
    """(line number, line) outside fenced code and HTML comments, inline code blanked."""
    fence = None
    comment = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        mark = FENCE.match(line)
        if mark and (fence is None or line.strip().startswith(fence)):
            fence = None if fence else mark[1]
            continue
        if fence:
            continue
        if comment:
            comment = "-->" not in line
            continue
        line = re.sub(r"<!--.*?-->", "", line)
        if "<!--" in line:
            comment, line = True, line.split("<!--")[0]
        yield number, line


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
    for _, line in prose(path):
        heading = HEADING.match(line)
        if heading:
            found.add(slug(heading[2], seen))
        found.update(EXPLICIT_ANCHOR.findall(line))
    return found


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
    lines = re.fullmatch(r"L(\d+)(?:-L(\d+))?", anchor)
    if lines and file.is_file():
        count = len(file.read_text(encoding="utf-8", errors="replace").splitlines())
        if int(lines[2] or lines[1]) > count:
            return f"{relative(file)} has only {count} lines, the link wants #{anchor}"
    return None


def links(line):
    line = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", line)
    for pattern in (INLINE, IMAGE, REFERENCE):
        yield from (match[1] for match in pattern.finditer(line))
    for match in ATTRIBUTE.finditer(line):
        # srcset may list several, each with a size behind it.
        yield from (part.split()[0] for part in match[1].split(",") if part.split())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="Markdown files (default: all of the checkout)")
    args = parser.parse_args()
    bad = checked = 0
    for path in [Path(name).resolve() for name in args.files] or markdown_files():
        try:
            lines = list(prose(path))
        except OSError as problem:
            fail(f"cannot read {relative(path)} ({problem.strerror.lower()})")
        for number, line in lines:
            for target in dict.fromkeys(links(line)):
                checked += 1
                sentence = problem_with(path, target)
                if sentence:
                    bad += 1
                    print(f"{relative(path)}:{number}: {sentence}", file=sys.stderr)
    if not bad:
        print(f"{checked} links lead somewhere")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
