"""What the site does between MkDocs' steps. MkDocs brings templates, navigation and search; the pages come from book/."""

import logging
import sys
from html import escape
from pathlib import Path

# MkDocs runs this file by itself: here are the package book and, in scripts, fa_tools.
sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2] / "scripts")]
sys.dont_write_bytecode = True

from markdown.extensions.toc import nest_toc_tokens
from mkdocs.structure.files import File, Files
from mkdocs.structure.toc import get_toc
from vl_convert import svg_to_png

from book import INTERACTIVE, ROOT, api, charts, export, glossary, layout, sources
from book.markdown import Page

log = logging.getLogger("mkdocs.hooks.book")  # a warning ends a strict build
CARD = "assets/card.png"  # what a link to a page of the site shows elsewhere: the map of the ladder
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
        PAGES[source_name(path)] = Page(path, log.warning, api.text() if path == api.API else None)
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
    map_of_steps = (ROOT / "docs" / "pictures" / "map.svg").read_text(encoding="utf-8")
    result.append(File.generated(config, CARD, content=svg_to_png(map_of_steps, scale=1200 / 880)))
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
        if PAGES[name].path == api.API:
            page.meta["search"] = {"boost": 3}  # else pages that say "attention" often come before fa.attention
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
    said = {"type": "website", "site_name": config.site_name, "title": page.meta["title"], "description": page.meta["description"]}
    if config.site_url:  # both have to be whole addresses
        said |= {"url": page.canonical_url, "image": f"{config.site_url}{CARD}"}
    tags = "".join(f'<meta property="og:{name}" content="{escape(value)}">\n' for name, value in said.items())
    output = output.replace("</head>", f'{tags}<meta name="twitter:card" content="summary_large_image">\n</head>', 1)
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')  # the theme has no name for it
