"""Pages of the sources: highlighted, every line with an anchor, includes that lead on; and listings of folders."""

import re
from html import escape

from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound

from book import ROOT
from book.layout import book_pages, relative_url, url_of
from book.markdown import lines_of

INCLUDE = re.compile(r'(?<=class="cpf">")common/[\w./]+(?=")')


def members(folder):
    return sorted(path for path in (ROOT / folder).iterdir() if path.name != "__pycache__" and not path.name.startswith("."))


def closure(paths):
    """The files, the files of folders among them, and those of kernels/ and common/, which sources include."""
    files = {file for path in paths for file in (members(path) if (ROOT / path).is_dir() else [])}
    files |= {file for folder in ("kernels", "common") for file in (ROOT / folder).rglob("*.*")}
    return sorted({*paths, *(file.relative_to(ROOT).as_posix() for file in files if file.is_file())} - set(book_pages()))


def link(path, text, url):
    return f'<a href="{escape(relative_url(url_of(path), url))}">{escape(text)}</a>'


def page(path):
    """The HTML of a source's or a folder's page."""
    url, title = url_of(path), f"<h1>{escape(path)}</h1>\n"
    if (ROOT / path).is_dir():
        items = (f"{file.name}/" if file.is_dir() else link(f"{path}/{file.name}", file.name, url) for file in members(path))
        return f"{title}<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>\n"
    try:
        language = "cuda" if path.endswith(".h") else get_lexer_for_filename(path).aliases[0]
    except ClassNotFound:
        language = "text"
    lines = lines_of((ROOT / path).read_text(encoding="utf-8").rstrip("\n"), language)
    rows = []
    for number, line in enumerate(lines, 1):
        line = INCLUDE.sub(lambda match: link(match[0], match[0], url) if (ROOT / match[0]).is_file() else match[0], line)
        place = re.match(r"(?:<[^>]*>)*=== (\w+)", line)  # a solution in a file of several
        anchor = f'<a id="{place[1]}"></a>' if place and path.endswith(".diff") else ""
        rows.append(f'<span id="L{number}">{anchor}{line}\n</span>')  # the style sheet counts the lines
    return f'{title}<div class="highlight source"><pre><span></span><code>{"".join(rows)}</code></pre></div>\n'
