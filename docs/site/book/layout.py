"""Which file of the repository becomes which page of the site, in which order."""

import posixpath
import re
from functools import lru_cache

from book import ROOT, charts
from book.api import API
from fa_tools.documents.figures import narrow, pictures, timeline  # noqa: F401 - pictures fills what narrow takes apart
from fa_tools.documents.links import slug  # slug: the anchors that code hosts make

LARGEST_SOURCE = 100_000  # bytes of a file that becomes a page

EXPLORERS = "docs/interactive.md"  # each of its sections shows a self-contained page, which is interactive/NAME.html on the site
CONTENTS = "docs/README.md"
NAV_TITLES = {"README.md": "Start", CONTENTS: "Contents", "docs/results.md": "Results", "docs/reproduced.md": "Reproduced",
              "docs/bugs.md": "Bugs, and what finds them", EXPLORERS: "Explorers", API: "Python and C, name by name"}


def sections():
    """(group, part, [paths from the root]): the book in the order of the contents. There a page is what the first cell of
    a table's row links to, below the heading of a group (##) and of a part (###); behind Using the kernels is the page that api.py makes."""
    found = [("", "", ["README.md", CONTENTS])]
    for mark, title, row in re.findall(r"^(?:(##|###) (.+)|\| (\[.+?) \|.*)$", (ROOT / CONTENTS).read_text(encoding="utf-8"), re.MULTILINE):
        if mark:
            found.append((title, "", []) if mark == "##" else (found[-1][0], title, []))
        for link in re.findall(r"\]\(([^#)]+\.md)\)", row):
            found[-1][2].extend([posixpath.normpath(f"docs/{link}"), *([API] if link == "use.md" else [])])
    return [section for section in found if section[2]]


@lru_cache(maxsize=None)
def narrow_forms():
    """{path: SVG} of the pictures that the site shows on phones and no file has."""
    return {f"docs/{folder}/{name}_phone.svg": svg for folder, forms in
            (("charts", charts.phones()), ("pictures", narrow.forms()), ("timelines", timeline.phones())) for name, svg in forms.items()}


@lru_cache(maxsize=None)
def book_pages():
    return [path for *_, paths in sections() for path in paths]


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
