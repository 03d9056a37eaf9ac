"""Code as HTML, by Pygments; the theme's style sheet has the colours."""

import re

import pygments
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

PLAIN = re.compile(r'<span class="(?:w|n|p|o|mi|mf|mh)">([^<]*)</span>')  # the text's colour: pages have half the size without


def lines_of(code, language):
    """Each line as HTML."""
    lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    return PLAIN.sub(r"\1", pygments.highlight(code + "\n", lexer, HtmlFormatter(nowrap=True))).split("\n")[:-1]


def fence(code, language, notes=None):
    """notes: {line index: number of the remark}; the theme turns them into buttons that show list items."""
    lines = lines_of(code.rstrip("\n"), {"": "text", "gdb": "text"}.get(language, language))
    for index, number in (notes or {}).items():
        lines[index] += f'  <span class="c1">// ({number})!</span>'
    kind = " annotate" if notes else ""
    skip = " data-search-exclude" if language in ("diff", "text") else ""
    code = "\n".join(lines)
    return f'<div class="language-{language or "text"} highlight{kind}"{skip}><pre><span></span><code>{code}\n</code></pre></div>\n'
