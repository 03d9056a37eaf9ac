"""What the site does between MkDocs' steps. MkDocs brings templates, navigation and search; the pages come from book/."""

import logging
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

from mkdocs.structure.files import File, Files  # noqa: E402
from mkdocs.structure.toc import AnchorLink, TableOfContents  # noqa: E402

from book import ROOT, charts, export, layout, smaller, sources  # noqa: E402
from book.markdown import Page  # noqa: E402

log = logging.getLogger("mkdocs.hooks.book")  # a warning ends a strict build
PAGES = {}  # by the page's name in MkDocs: the Markdown pages
SOURCES = {}  # likewise: pages of sources, (path, HTML)


def source_name(path):
    return layout.url_of(path).removesuffix(".html") + ".md"


def on_config(config):
    config.nav = []
    for title, paths in layout.sections():
        names = [{layout.NAV_TITLES[path]: source_name(path)} if path in layout.NAV_TITLES else source_name(path)
                 for path in paths]
        config.nav += [{title: names}] if title else names
    return config


def on_files(files, config):
    """Replaces what MkDocs found in docs/ by the book's pages, and whatever they lead to."""
    PAGES.clear()
    SOURCES.clear()
    # The theme's own, without search in other languages and what only debuggers read.
    unused = re.compile(r"assets/javascripts/lunr/|.*\.map$")
    result = Files([file for file in files if file.src_dir != config.docs_dir and not unused.match(file.src_uri)])
    for path in layout.book_pages():
        PAGES[source_name(path)] = Page(path, log.warning)
    linked = set().union(*(page.links for page in PAGES.values()))
    kernels = {path.relative_to(ROOT).as_posix() for path in (ROOT / "kernels").glob("*.cu")}
    for path in sources.closure(linked | kernels):
        if layout.is_data(path) or layout.is_interactive(path):
            result.append(File.generated(config, layout.url_of(path), abs_src_path=str(ROOT / path)))
        else:
            SOURCES[source_name(path)] = path
    for name in [*PAGES, *SOURCES]:
        result.append(File.generated(config, name, content=""))
    for path in sorted(set().union(*(page.images for page in PAGES.values()))):
        result.append(File.generated(config, layout.url_of(path), abs_src_path=str(ROOT / path)))
    for path in sorted((ROOT / "docs" / "site" / "assets").iterdir()):
        result.append(File.generated(config, f"assets/{path.name}", abs_src_path=str(path)))
    drawn = {chart for page in PAGES.values() for chart in page.charts}
    for name, content in charts.files(drawn, log.warning):
        result.append(File.generated(config, name, content=content))
    for name, content in export.files(PAGES):
        result.append(File.generated(config, name, content=content))
    return result


def on_page_markdown(markdown, page, config, files):
    name = page.file.src_uri
    if name in PAGES:
        page.meta["title"] = PAGES[name].title
        page.meta["description"] = PAGES[name].description
    else:
        page.meta["title"] = SOURCES[name]
        page.meta["description"] = f"The source {SOURCES[name]}"
        page.meta["search"] = {"exclude": True}
        page.meta["hide"] = ["toc"]
    return ""


def on_page_content(html, page, config, files):
    name = page.file.src_uri
    if name in SOURCES:
        return sources.page(SOURCES[name])
    page.toc = contents(PAGES[name].headings)
    return PAGES[name].html


def on_post_page(output, page, config):
    """Without the templates' indentation, a sixth of a page, and without lines between cells; what stands in <pre> stays."""
    output = output.replace('role="dialog"', 'role="dialog" aria-label="Search"')  # the theme has no name for it
    parts = re.split(r"(<pre\b.*?</pre>)", output, flags=re.DOTALL)
    short = (part if part.startswith("<pre") else re.sub(r"\s*\n\s*", "\n", part) for part in parts)
    return re.sub(r"\n(?=</?(?:t[dhr]|thead|tbody)>|<t[dh] class=)", "", "".join(short))


def on_post_build(config):
    site = Path(config.site_dir)
    pages = [page.read_text(encoding="utf-8") for page in site.rglob("*.html")]
    scripts = [script.read_text(encoding="utf-8") for script in (site / "assets").rglob("*.js")]
    words = smaller.words_of(pages, scripts)
    sheets = {sheet: smaller.style_sheet(sheet.read_text(encoding="utf-8"), words)
              for sheet in (site / "assets" / "stylesheets").glob("*.css")}
    ours = site / "assets" / "book.css"
    ours.write_text(smaller.without_blanks(ours.read_text(encoding="utf-8")), encoding="utf-8")
    readers = [*sheets.values(), ours.read_text(encoding="utf-8"), *scripts]
    for sheet, css in sheets.items():
        sheet.write_text(smaller.without_unused_variables(css, readers), encoding="utf-8")
    # The same as a script: browsers do not let pages read files beside them when there is no server.
    index = site / "search" / "search_index.json"
    index.with_suffix(".js").write_text(f"var __index = {index.read_text(encoding='utf-8')};\n", encoding="utf-8")


def contents(headings):
    """MkDocs' tree of headings."""
    roots, stack = [], []
    for level, anchor, title in headings:
        link = AnchorLink(title, anchor, level)
        while stack and stack[-1].level >= level:
            stack.pop()
        (stack[-1].children if stack else roots).append(link)
        stack.append(link)
    if roots:
        roots[0].active = True
    return TableOfContents(roots)
