#!/usr/bin/env python3
"""Checks the site that was built: links and anchors, that nothing is fetched from elsewhere, sizes, maths, exports."""

import re
import sys
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

LARGEST_PAGE = 450_000  # bytes of HTML, style sheets, scripts and pictures, charts apart
FOREIGN = re.compile(r"^(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
RESOURCES = {"img": ("src", "srcset"), "script": ("src",), "iframe": ("src",), "source": ("src", "srcset"),
             "video": ("src", "poster"), "audio": ("src",), "object": ("data",), "embed": ("src",), "use": ("href",),
             "image": ("href",)}
FETCHED_LINKS = {"stylesheet", "icon", "preload", "modulepreload", "preconnect", "dns-prefetch", "manifest"}


class Reader(HTMLParser):
    """What one page refers to."""

    def __init__(self):
        super().__init__()
        self.ids, self.links, self.resources = set(), [], []
        self.text, self.css, self.inside = [], [], []
        self.count = {"math": 0, "h1": 0, "article": 0}

    def handle_starttag(self, tag, attributes):
        named = {name: value or "" for name, value in attributes}
        if tag not in ("img", "link", "meta", "input", "br", "hr", "source", "col", "wbr", "embed"):
            self.inside.append(tag)
        if tag in self.count:
            self.count[tag] += 1
        if "id" in named:
            self.ids.add(named["id"])
        if tag == "a" and "href" in named:
            self.links.append(named["href"])
        if tag == "link" and set(named.get("rel", "").split()) & FETCHED_LINKS:
            self.resources.append(named.get("href", ""))
        for name in RESOURCES.get(tag, ()):
            if named.get(name):
                self.resources += [part.split()[0] for part in named[name].split(",") if part.split()
                                   ] if name == "srcset" else [named[name]]
        self.css += re.findall(r"url\(([^)]+)\)|@import", named.get("style", ""))

    def handle_endtag(self, tag):
        while tag in self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data):
        if "style" in self.inside:
            self.css += imports(data)
        elif not {"code", "pre", "script", "math", "svg", "nav"} & set(self.inside):
            self.text.append(data)


def imports(css):
    found = re.findall(r"url\(\s*[\"']?([^\"')]+)|@import\s+[\"']([^\"']+)", css)
    return [first or second for first, second in found]


@lru_cache(maxsize=None)
def read(path):
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


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
        reader = read(page)
        name = page.relative_to(site)
        for link in [*reader.links, *reader.resources]:
            if re.match(r"[a-z][a-z0-9+.-]*:", link, re.IGNORECASE) or FOREIGN.match(link):
                continue
            file, _, anchor = unquote(link).partition("#")
            target = (page.parent / file.partition("?")[0]).resolve() if file else page
            if target.is_dir():
                target /= "index.html"
            if not target.is_relative_to(site) or not target.is_file():
                yield f"{name}: {link} leads nowhere"
            elif anchor and target.suffix == ".html" and not is_interactive(target) and anchor not in read(target).ids | {"__top"}:
                yield f"{name}: {link} has an anchor that is not there"


def foreign(site):
    """Pictures, scripts, style sheets and the like from elsewhere."""
    for page in pages(site):
        reader = read(page)
        for resource in [*reader.resources, *(address for address in reader.css if address)]:
            if FOREIGN.match(resource):
                yield f"{page.relative_to(site)} fetches {resource}"
    for sheet in sorted(site.rglob("*.css")):
        for address in imports(sheet.read_text(encoding="utf-8")):
            if FOREIGN.match(address):
                yield f"{sheet.relative_to(site)} fetches {address}"


def weight(page):
    """Bytes of a page without its charts: HTML and what it names."""
    names = {name.partition("#")[0] for name in read(page).resources if "charts/" not in name}
    files = [file for file in {page.parent / unquote(name) for name in names} if file.is_file()]
    return page.stat().st_size + sum(file.stat().st_size for file in files)


def sizes(site):
    """Pages that are too large."""
    for page in pages(site):
        if weight(page) > LARGEST_PAGE:
            yield f"{page.relative_to(site)} weighs {weight(page):,} bytes, more than {LARGEST_PAGE:,}"


def maths(site):
    """Dollars that were meant as maths and are still there."""
    for page in own(site):
        text = "".join(read(page).text)
        for left in re.findall(r"\$\$|\$[^$\n]*[\\^_{][^$\n]*\$|\\(?:frac|sum|cdot|mathrm|text|sqrt|max)\b", text):
            yield f"{page.relative_to(site)}: {left} is not converted"


def charts(site):
    """The chart library only where there is a chart, and it, the specs and the pictures all there."""
    for page in own(site):
        html = page.read_text(encoding="utf-8")
        if any("assets/vega.js" in resource for resource in read(page).resources):
            yield f"{page.relative_to(site)} brings the chart library before it is needed"
        for name in re.findall(r"data-chart=\"([^\"]+)\"", html):
            for file in (f"charts/{name}.js", f"charts/{name}.svg", "assets/vega.js"):
                if not (site / file).is_file():
                    yield f"{page.relative_to(site)}: the chart {name} lacks {file}"


def exports(site):
    """llms.txt names every page of the book, llms-full.txt holds them."""
    index = (site / "llms.txt").read_text(encoding="utf-8")
    book = (site / "llms-full.txt").read_text(encoding="utf-8")
    for page in own(site):
        name = page.relative_to(site).as_posix()
        file = name.removesuffix(".html") + ".md.txt"
        if f"]({file})" not in index or not (site / file).is_file():
            yield f"llms.txt lacks {name}"
        if f"<!-- page: {name}," not in book:
            yield f"llms-full.txt lacks {name}"
    without_code = re.sub(r"`[^`\n]+`", "", re.sub(r"^(```+).*?^\1", "", book, flags=re.MULTILINE | re.DOTALL))
    for comment in re.findall(r"<!-- (?!page: |Sixteen).*?-->", without_code):
        yield f"llms-full.txt has a marker of the scripts: {comment[:60]}"


CHECKS = [links, foreign, sizes, maths, charts, exports]


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
