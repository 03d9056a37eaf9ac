#!/usr/bin/env python3
"""Checks the site that was built: links and anchors, that nothing is fetched from elsewhere, sizes, maths."""

import re
import sys
from functools import lru_cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote

LARGEST_PAGE = 600_000  # bytes of HTML, style sheets, scripts and pictures in one theme's colours, charts apart
FOREIGN = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
RESOURCE = re.compile(r"<(?:img|script|iframe|source|video|audio|embed)\b[^>]*?\s(?:src|srcset|poster)=\"?([^\"\s>]+)"
                      r"|<link\b(?=[^>]*rel=\"?(?:stylesheet|icon|preload|preconnect|manifest))[^>]*?href=\"?([^\"\s>]+)", re.IGNORECASE)
IN_CSS = re.compile(r"(?:url\(|@import)\s*[\"']?([^\"')]+)")
CODE = re.compile(r"<(code|pre|script|style|math|nav)\b.*?</\1>", re.DOTALL)


@lru_cache(maxsize=None)
def read(page):
    return page.read_text(encoding="utf-8")


@lru_cache(maxsize=None)
def ids(page):
    return set(re.findall(r"\bid=\"?([^\"\s>]+)", read(page)))


def resources(page):
    return [unescape(first or second) for first, second in RESOURCE.findall(read(page))]


def pages(site):
    return sorted(path for path in site.rglob("*.html") if path.name != "404.html")


def is_interactive(path):
    """The self-contained pages: what follows the # there is the state to begin with."""
    return path.parent.name == "interactive"


def own(site):
    """The book's pages: neither sources nor the self-contained interactive ones."""
    return [path for path in pages(site) if "source" not in path.relative_to(site).parts and not is_interactive(path)]


def links(site):
    """Links and images that lead nowhere, anchors that are not there."""
    for page in pages(site):
        if is_interactive(page):
            continue
        for link in [*map(unescape, re.findall(r"<a\b[^>]*?\shref=\"([^\"]*)\"", read(page))), *resources(page)]:
            if re.match(r"[a-z][a-z0-9+.-]*:|//", link, re.IGNORECASE):
                continue
            file, _, anchor = unquote(link).partition("#")
            target = (page.parent / file.partition("?")[0]).resolve() if file else page
            target = target / "index.html" if target.is_dir() else target
            if not target.is_relative_to(site) or not target.is_file():
                yield f"{page.relative_to(site)}: {link} leads nowhere"
            elif anchor and target.suffix == ".html" and not is_interactive(target) and anchor not in ids(target) | {"__top"}:
                yield f"{page.relative_to(site)}: {link} has an anchor that is not there"


def foreign(site):
    """Pictures, scripts, style sheets and the like from elsewhere."""
    for file in sorted([*pages(site), *site.rglob("*.css")]):
        style = read(file) if file.suffix == ".css" else "".join(re.findall(r"<style>.*?</style>", read(file), re.DOTALL))
        for resource in [*(resources(file) if file.suffix == ".html" else []), *IN_CSS.findall(style)]:
            if FOREIGN.match(resource):
                yield f"{file.relative_to(site)} fetches {resource}"


def weight(page):
    """Bytes of a page without its charts and without what phones get instead: HTML and what it names."""
    files = {page.parent / name for name in map(unquote, resources(page)) if "charts/" not in name and not name.endswith("_phone.svg")}
    return page.stat().st_size + sum(file.stat().st_size for file in files if file.is_file())


def sizes(site):
    """Pages of the book that are too large."""
    for page in own(site):
        if weight(page) > LARGEST_PAGE:
            yield f"{page.relative_to(site)} weighs {weight(page):,} bytes, more than {LARGEST_PAGE:,}"


def maths(site):
    """Dollars that were meant as maths and are still there."""
    for page in own(site):
        text = re.sub(r"<[^>]+>", "", CODE.sub("", read(page)))
        for left in re.findall(r"\$\$|\$[^$\n]*[\\^_{][^$\n]*\$|\\(?:frac|sum|cdot|mathrm|text|sqrt|max)\b", text):
            yield f"{page.relative_to(site)}: {left} is not converted"


CHECKS = [links, foreign, sizes, maths]


def main():
    site = Path(sys.argv[1]).resolve()
    problems = [problem for check in CHECKS for problem in check(site)]
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        heaviest = max(own(site), key=weight)
        print(f"{len(own(site))} pages of the book, {len(pages(site))} in all; the heaviest, "
              f"{heaviest.relative_to(site)}, weighs {weight(heaviest) / 1000:.0f} kB without charts")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
