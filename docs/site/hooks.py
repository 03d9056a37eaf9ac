"""What the site does between MkDocs' steps. MkDocs brings templates, navigation and search; the pages come from book/."""

import logging
import sys
from pathlib import Path

# MkDocs runs this file by itself: here are the package book and, in scripts, fa_tools.
sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2] / "scripts")]
sys.dont_write_bytecode = True

from markdown.extensions.toc import nest_toc_tokens
from mkdocs.structure.files import File, Files
from mkdocs.structure.toc import get_toc

from book import INTERACTIVE, ROOT, charts, export, glossary, layout, sources
from book.markdown import Page

log = logging.getLogger("mkdocs.hooks.book")  # a warning ends a strict build
PAGES = {}  # by the page's name in MkDocs: the Markdown pages
SOURCES = {}  # likewise: the files that are pages of sources


def source_name(path):
    return layout.url_of(path).removesuffix(".html") + ".md"


def on_config(config):
    config.nav = []
    groups = {"": config.nav}
    for group, part, paths in layout.sections():
        names = [{layout.NAV_TITLES[path]: source_name(path)} if path in layout.NAV_TITLES else source_name(path)
                 for path in paths]
        if group not in groups:
            groups[group] = []
            config.nav.append({group: groups[group]})
        groups[group] += [{part: names}] if part else names
    return config


def on_files(files, config):
    """Replaces what MkDocs found in docs/ by the book's pages, and whatever they lead to."""
    PAGES.clear()
    SOURCES.clear()
    result = Files([file for file in files if file.src_dir != config.docs_dir])

    def add(name, path):
        result.append(File.generated(config, name, abs_src_path=str(path)))

    for path in layout.book_pages():
        PAGES[source_name(path)] = Page(path, log.warning)
    glossary.link(PAGES.values(), log.warning)
    linked = set().union(*(page.links for page in PAGES.values()))
    kernels = {path.relative_to(ROOT).as_posix() for path in (ROOT / "kernels").glob("*.cu")}
    for path in sources.closure(linked | kernels):
        if layout.is_data(path):
            add(layout.url_of(path), ROOT / path)
        else:
            SOURCES[source_name(path)] = path
    for name in [*PAGES, *SOURCES]:
        result.append(File.generated(config, name, content=""))
    for path in sorted(set().union(*(page.images for page in PAGES.values()))):
        if path in layout.narrow_forms():
            result.append(File.generated(config, layout.url_of(path), content=layout.narrow_forms()[path]))
        else:
            add(layout.url_of(path), ROOT / path)
    for explorer in layout.explorers().values():
        if not (INTERACTIVE / Path(explorer).name).is_file():
            log.warning(f"{explorer} is not built; scripts/fa docs builds it")
            continue
        add(explorer, INTERACTIVE / Path(explorer).name)
    for path in sorted((ROOT / "docs" / "site" / "assets").iterdir()):
        add(f"assets/{path.name}", path)
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
    headings = [{"level": level, "id": anchor, "name": title} for level, anchor, title in PAGES[name].headings]
    page.toc = get_toc(nest_toc_tokens(headings))
    return PAGES[name].html


def on_post_page(output, page, config):
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')  # the theme has no name for it
