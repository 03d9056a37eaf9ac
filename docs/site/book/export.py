"""The book for language models: llms.txt (what there is) and llms-full.txt (all of it in one Markdown file)."""

import posixpath
import re

from book.layout import address, sections

TITLE = "Sixteen steps from naive attention to the speed of light"
SUMMARY = ("A book with its sources: one attention forward pass as sixteen CUDA kernels, from one thread an element to "
           "Hopper's asynchronous Tensor Cores, with an emulator that runs and checks them without a GPU.")


CODE = r"^[ >]*(?P<fence>```+|~~~+).*?^[ >]*(?P=fence)|(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)"
COMMENT = re.compile(CODE + r"|(?P<line>^ *<!--(?:(?!-->).)*--> *\n)|(?P<comment><!--.*?-->)", re.MULTILINE | re.DOTALL)
LINK = re.compile(CODE + r"|(?P<words>!?\[(?:[^\[\]]|\[[^\]]*\])*\])\((?P<link>[^)\s]+)\)", re.MULTILINE | re.DOTALL)


def plain(page):
    """A page's Markdown without the scripts' comments, with links from the site's root."""

    def link(match):
        if not match["link"] or re.match(r"[a-zA-Z][\w+.-]*:|#|//", match["link"]):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page.path), re.split("[?#]", match["link"])[0]))
        return f"{match['words']}({address(path, match['link'])})"

    text = COMMENT.sub(lambda match: "" if match["line"] or match["comment"] else match[0], page.text)
    return LINK.sub(link, text).strip() + "\n"


def files(pages):
    """(name on the site, content)."""
    by_path = {page.path: page for page in pages.values()}
    index = [f"# {TITLE}", "", f"> {SUMMARY}", "", "All pages as one Markdown file: [llms-full.txt](llms-full.txt)."]
    book = [f"<!-- {TITLE}: all pages as one Markdown file -->\n"]
    for group, part, paths in sections():
        index += ["", f"## {part or group or 'Start'}", ""]
        for path in paths:
            page = by_path[path]
            index.append(f"- [{page.title}]({page.url.removesuffix('.html')}.md.txt): {page.description}")
            text = plain(page)
            yield f"{page.url.removesuffix('.html')}.md.txt", text
            book.append(f"<!-- page: {page.url}, source: {path} -->\n\n{text}")
    yield "llms.txt", "\n".join(index) + "\n"
    yield "llms-full.txt", "\n".join(book)
