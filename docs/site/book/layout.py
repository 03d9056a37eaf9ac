"""Which file of the repository becomes which page of the site, in which order."""

import posixpath
import re
from functools import lru_cache

from book import ROOT

DOCS = ROOT / "docs"
LARGEST_SOURCE = 100_000  # bytes of a file that becomes a page

APPENDICES = ["notation", "layouts", "synchronisation", "capabilities", "compiling", "tuning", "notebook",
              "benchmarking", "profiling", "elsewhere", "gemm", "reading"]
INTERACTIVE = ["fragments", "banks", "timeline", "softmax", "descriptor", "phases"]
MORE = ["docs/results.md", "docs/reproduced.md", "docs/bugs.md", "docs/emulator.md", "docs/your_own_kernel.md", "docs/use.md",
        "CONTRIBUTING.md", "docs/maintaining.md", "CHANGELOG.md", "THIRD_PARTY.md"]
NAV_TITLES = {"README.md": "Start", "docs/README.md": "Contents", "docs/results.md": "Results", "docs/reproduced.md": "Reproduced",
              "docs/bugs.md": "Bugs, and what finds them"}


def in_order(folder, known):
    """The Markdown files of a folder: the known ones first, in their order, then what has been added."""
    there = {path.stem: path for path in sorted(folder.glob("*.md")) if path.stem != "README"}
    return [there.pop(name) for name in known if name in there] + list(there.values())


def sections():
    """(title, [paths from the root]): the book in the order in which it is read. Only what is there."""
    chapters = sorted(DOCS.glob("[0-9][0-9]_*.md"))
    groups = [
        ("", [ROOT / "README.md", DOCS / "README.md"]),
        ("Chapters", chapters),
        ("Appendices", in_order(DOCS / "appendix", APPENDICES)),
        ("Interactive", in_order(DOCS / "interactive", INTERACTIVE)),
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
    if stem.startswith("docs/interactive/"):
        return stem.removeprefix("docs/") + "/index"  # interactive/NAME.html is what explorer_of() gives
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


def explorer_of(path):
    """The self-contained page that an interactive page shows; None for any other file."""
    return url_of(path).replace("/index.html", ".html") if re.fullmatch(r"docs/interactive/\w+\.md", path) else None


def relative_url(target, page_url):
    """The address of `target` as seen from a page, both from the site's root."""
    return posixpath.relpath(target, posixpath.dirname(page_url) or ".")
