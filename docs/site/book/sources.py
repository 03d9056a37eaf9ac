"""Pages of the sources: highlighted, every line with an anchor, includes that lead on; and listings of folders."""

import re
from html import escape

from book import ROOT
from book.highlight import diff_lines, lexer_of_file, lines_of
from book.layout import NOT_SHOWN, book_pages, is_data, relative_url, url_of

INCLUDE = re.compile(r"^\s*#\s*include \"([^\"]+)\"")


def includes(path):
    """The repository's files that a C++ source includes."""
    if not path.endswith((".cu", ".h", ".cpp")):
        return []
    names = (INCLUDE.match(line) for line in (ROOT / path).read_text(encoding="utf-8").split("\n"))
    return [match[1] for match in names if match and (ROOT / match[1]).is_file()]


def closure(paths):
    """The files, what they include, and what folders hold."""
    todo, done = [p for p in paths if p not in book_pages()], set()
    while todo:
        path = todo.pop()
        if path in done:
            continue
        done.add(path)
        if (ROOT / path).is_dir():
            todo += [f"{path}/{name}" for name in listing(path) if not (ROOT / path / name).is_dir()]
        elif not is_data(path):
            todo += includes(path)
    return sorted(done)


def listing(path):
    folder = ROOT / path
    names = [p.name for p in folder.iterdir() if p.name not in NOT_SHOWN and not p.name.startswith(".")]
    return sorted(names, key=lambda name: (not (folder / name).is_dir(), name))


def page(path):
    """(title, HTML) of a source's or a folder's page."""
    url = url_of(path)
    title = f"<h1>{escape(path)}</h1>\n"
    if (ROOT / path).is_dir():
        items = (f'<li><a href="{escape(relative_url(url_of(f"{path}/{name}"), url))}"><code>{escape(name)}</code></a></li>'
                 if not (ROOT / path / name).is_dir() else f"<li><code>{escape(name)}/</code></li>"
                 for name in listing(path))
        return f"{title}<ul>{''.join(items)}</ul>\n"
    text = (ROOT / path).read_text(encoding="utf-8").rstrip("\n")
    lexer = lexer_of_file(ROOT / path)
    lines = diff_lines(text) if lexer is None else lines_of(text, lexer)
    known = set(includes(path))
    rows = []
    for number, line in enumerate(lines, 1):
        for name in known:
            if f'{name}"' in line:
                line = line.replace(name, f'<a href="{escape(relative_url(url_of(name), url))}">{name}</a>', 1)
        rows.append(f'<span id="L{number}">{line}\n</span>')  # the style sheet counts the lines
    chapter = re.fullmatch(r"kernels/(\w+)\.cu", path)
    also = f"docs/{chapter[1]}.md" if chapter else ""
    link = (f'<p>Its chapter: <a href="{escape(relative_url(url_of(also), url))}">{escape(chapter[1])}</a>.</p>\n'
            if also in book_pages() else "")
    return (f'{title}{link}<div class="highlight source"><pre><span></span><code>{"".join(rows)}</code></pre></div>\n')
