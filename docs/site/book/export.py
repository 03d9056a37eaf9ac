"""The book for language models: llms.txt (what there is) and llms-full.txt (all of it in one Markdown file)."""

import posixpath
import re

from book.layout import sections, url_of
from book.markdown import FENCE, without_comments

TITLE = "Sixteen steps from naive attention to the speed of light"
SUMMARY = ("A book with its sources: one attention forward pass as sixteen CUDA kernels, from one thread an element to "
           "Hopper's asynchronous Tensor Cores, with an emulator that runs and checks them without a GPU.")


def plain(page):
    """A page's Markdown without the scripts' comments, with links from the site's root."""

    def link(match):
        if re.match(r"[a-zA-Z][\w+.-]*:|#|//", match[2]):
            return match[0]
        name, mark, anchor = match[2].partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page.path), name))
        return f"{match[1]}({url_of(path)}{mark}{anchor})"

    text = re.sub(r"^<!-- notes -->\n", "", without_comments(page.text), flags=re.MULTILINE)
    lines, fence = [], None
    for line in text.split("\n"):
        mark = FENCE.match(line)
        if mark and (fence is None or line.strip().startswith(fence)):
            fence = None if fence else mark[1]
        elif fence is None:
            line = re.sub(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)", link, line)
        lines.append(line)
    return "\n".join(lines).strip() + "\n"


def files(pages):
    """(name on the site, content)."""
    by_path = {page.path: page for page in pages.values()}
    index = [f"# {TITLE}", "", f"> {SUMMARY}", "", "All pages as one Markdown file: [llms-full.txt](llms-full.txt)."]
    book = [f"<!-- {TITLE}: all pages as one Markdown file -->\n"]
    for title, paths in sections():
        index += ["", f"## {title or 'Start'}", ""]
        for path in paths:
            page = by_path[path]
            index.append(f"- [{page.title}]({page.url.removesuffix('.html')}.md.txt): {page.description}")
            text = plain(page)
            yield f"{page.url.removesuffix('.html')}.md.txt", text
            book.append(f"<!-- page: {page.url}, source: {path} -->\n\n{text}")
    yield "llms.txt", "\n".join(index) + "\n"
    yield "llms-full.txt", "\n".join(book)
