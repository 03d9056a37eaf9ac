"""Which file of the repository becomes which page of the site, in which order."""

import posixpath
import re
from functools import lru_cache

from book import ROOT
from fa_tools.press.links import slug  # the anchors that code hosts make

DOCS = ROOT / "docs"
LARGEST_SOURCE = 100_000  # bytes of a file that becomes a page

APPENDICES = ["notation", "layouts", "synchronisation", "compiling", "tuning", "benchmarking", "profiling",
              "elsewhere", "gemm", "reading"]
EXPLORERS = "docs/interactive.md"  # each of its sections shows a self-contained page, which is interactive/NAME.html on the site
MORE = ["docs/checkpoints.md", "docs/tasks.md", "docs/course.md", "docs/results.md", "docs/reproduced.md", "docs/bugs.md",
        "docs/emulator.md", "docs/your_own_kernel.md", "docs/use.md", "CONTRIBUTING.md", "docs/maintaining.md", "CHANGELOG.md",
        "THIRD_PARTY.md"]
NAV_TITLES = {"README.md": "Start", "docs/README.md": "Contents", "docs/results.md": "Results", "docs/reproduced.md": "Reproduced",
              "docs/bugs.md": "Bugs, and what finds them", EXPLORERS: "Explorers"}


def in_order(folder, known):
    """The Markdown files of a folder: the known ones first, in their order, then what has been added."""
    there = {path.stem: path for path in sorted(folder.glob("*.md")) if path.stem != "README"}
    return [there.pop(name) for name in known if name in there] + list(there.values())


def sections():
    """(title, [paths from the root]): the book in the order in which it is read. Only what is there."""
    chapters = sorted(DOCS.glob("[0-9][0-9]_*.md"))
    groups = [
        ("", [ROOT / "README.md", DOCS / "README.md", DOCS / "in_thirty_minutes.md"]),
        ("Chapters", chapters),
        ("Beyond the ladder", in_order(DOCS / "beyond", [])),
        ("Appendices", in_order(DOCS / "appendix", APPENDICES)),
        ("Interactive", [ROOT / EXPLORERS]),
        ("More", [ROOT / name for name in MORE if (ROOT / name).exists()]),
    ]
    listed = {path for _, paths in groups for path in paths}
    groups[-1][1].extend(path for path in sorted(DOCS.glob("*.md")) if path not in listed)
    return [(title, [path.relative_to(ROOT).as_posix() for path in paths]) for title, paths in groups if paths]


@lru_cache(maxsize=None)
def book_pages():
    return [path for _, paths in sections() for path in paths]


def page_of(path):
    """The site's page of a Markdown file of the book, without .html: docs/12_tma.md becomes 12_tma."""
    if path == "README.md":
        return "index"
    if path == "docs/README.md":
        return "contents"
    stem = path.removesuffix(".md")
    return stem.removeprefix("docs/") if stem.startswith("docs/") else stem.lower()


def is_image(path):
    return path.startswith("docs/") and path.endswith((".svg", ".png"))


# Data is handed out as it is; everything else that is text becomes a page with highlighted code.
def is_data(path):
    file = ROOT / path
    return path.endswith((".json", ".npy", ".csv", ".ipynb")) or (file.is_file() and file.stat().st_size > LARGEST_SOURCE)


def url_of(path):
    """Where a file or folder of the repository is on the site."""
    if path in book_pages():
        return page_of(path) + ".html"
    if is_image(path):
        return path.removeprefix("docs/")
    if is_data(path):
        return f"source/{path}"
    if (ROOT / path).is_dir():
        return f"source/{path}/index.html"
    return f"source/{path}.html"


@lru_cache(maxsize=None)
def explorer_sections():
    """(anchor, link to its picture, the self-contained page that it shows) of each section of EXPLORERS, whose first lines
    name the pages in this order."""
    start, *sections = re.split(r"^## ", (ROOT / EXPLORERS).read_text(encoding="utf-8"), flags=re.MULTILINE)
    seen, names = {}, re.findall(r"(\w+)\.html`", start)
    return [(slug(section.partition("\n")[0], seen), re.search(r"^!\[.*\]\((.+\.svg)\)$", section, re.MULTILINE)[1],
             f"interactive/{name}.html") for name, section in zip(names, sections, strict=True)]


def explorers():
    """{anchor of a section of EXPLORERS: the self-contained page that it shows}."""
    return {anchor: page for anchor, _, page in explorer_sections()}


def explorer_of(path, anchor):
    """The self-contained page of a section of EXPLORERS; None for any other link."""
    return explorers().get(anchor) if path == EXPLORERS else None


def address(path, link):
    """Where on the site a file is that a link names: name?query#anchor. A query after a section of EXPLORERS is a state, in
    which its self-contained page opens."""
    name, mark, anchor = link.partition("#")
    state = name.partition("?")[2]
    if state and (explorer := explorer_of(path, anchor)):
        return f"{explorer}#{state}"
    return url_of(path) + mark + anchor


def relative_url(target, page_url):
    """The address of `target` as seen from a page, both from the site's root."""
    return posixpath.relpath(target, posixpath.dirname(page_url) or ".")
