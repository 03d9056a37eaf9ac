"""GitHub-flavoured Markdown to HTML as a code host reads it (CommonMark, by markdown-it), for the theme's style sheets."""

import posixpath
import re
import warnings
from html import escape
from urllib.parse import unquote

import pygments
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from book import ROOT
from book.layout import EXPLORERS, address, explorer_of, explorer_sections, is_image, narrow_forms, relative_url, url_of
from fa_tools.documents.links import slug  # slug: the anchors that code hosts make
from fa_tools.documents.sync import with_whole_diffs

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from latex2mathml.converter import convert

COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)  # for the scripts that write between them
CHECKPOINTS = ROOT / "docs" / "checkpoints.md"
CHECKPOINT = re.compile(r"^\*\*Checkpoint:\*\* \[[^\]]+\]\(checkpoints\.md#([\w-]+)\)\.$", re.MULTILINE)  # the last line of a chapter's "Your turn"
# In a table a long name may go on in the next line, after an underscore, but not after those at its start.
CELL, NAME = re.compile(r"<td.*?</td>", re.DOTALL), re.compile(r"(?<=[A-Za-z0-9]{2})_(?=\w)(?![^<]*>)")
PLAIN = re.compile(r'<span class="(?:w|n|p|o|mi|mf|mh)">([^<]*)</span>')  # the text's colour: pages have half the size without
# A picture that has a form for phones, as README has it for a site that adds none.
TWO_FORMS = re.compile(r'<picture><source [^>]*>\s*<img src="([^"]*)" alt="([^"]*)"></picture>')
ELSEWHERE = re.compile(r"<!-- not on the site -->\n.*?<!-- /not on the site -->\n+", re.DOTALL)
ATTRIBUTE = re.compile(r"\b(href|src)\s*=\s*\"([^\"]*)\"")


def lines_of(code, language):
    """Each line of code as HTML, by Pygments; the theme's style sheet has the colours."""
    lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    return PLAIN.sub(r"\1", pygments.highlight(code + "\n", lexer, HtmlFormatter(nowrap=True))).split("\n")[:-1]


def fence(code, language):
    skip = " data-search-exclude" if language in ("diff", "text") else ""
    code = "\n".join(lines_of(code.rstrip("\n"), {"": "text", "gdb": "text"}.get(language, language)))
    return f'<div class="language-{language or "text"} highlight"{skip}><pre><span></span><code>{code}\n</code></pre></div>\n'


def plain_text(inline):
    return "".join(" " if t.type == "softbreak" else t.content for t in inline.children or []
                   if t.type in ("text", "code_inline", "math_inline", "softbreak"))


class Page:
    """One Markdown file: its HTML, title, headings, first sentences, and which files it links to."""

    def __init__(self, path, warn, text=None):
        self.path, self.url = path, url_of(path)
        text = (ROOT / path).read_text(encoding="utf-8") if text is None else text
        self.text = with_whole_diffs(TWO_FORMS.sub(r"![\2](\1)", ELSEWHERE.sub("", text)))
        self.warn = lambda sentence: warn(f"{path}: {sentence}")
        self.title, self.description = path, ""
        self.headings = []  # (level, anchor, HTML)
        self.links = set()  # files of the repository
        self.images = set()
        self.charts = []
        self.html = self.render()

    # --- links ---------------------------------------------------------------------------------------------------

    def target(self, link):
        """The address on the site of what a link of the Markdown names."""
        if re.match(r"[a-zA-Z][\w+.-]*:|//", link):
            return link
        link = unquote(link)
        if link.startswith("#"):
            return link
        name = re.split("[?#]", link)[0]
        file = (ROOT / self.path).parent / name
        file = (ROOT / name[1:] if name.startswith("/") else file).resolve()
        path = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else ""
        if not path or not file.exists() and path not in narrow_forms():
            self.warn(f"the link to {link} leads nowhere")
            return link
        (self.images if is_image(path) else self.links).add(path)
        return relative_url(address(path, re.sub(r"#(L\d+)-L?\d+$", r"#\1", link)), self.url)

    def with_targets(self, html):
        """Raw HTML with the addresses of the site."""
        return ATTRIBUTE.sub(lambda match: f'{match[1]}="{escape(self.target(match[2]))}"', COMMENT.sub("", html))

    def figure(self, link, image):
        """What stands around an SVG: whether it is a chart or an interactive page."""
        chart = re.fullmatch(r"(?:.*/)?charts/([\w.-]+)\.svg", link)
        if chart:
            self.charts.append(chart[1])
        data = f' data-chart="{chart[1]}"' if chart else ""
        if self.path == EXPLORERS:
            data = next((f' data-interactive="{page}"' for _, picture, page in explorer_sections() if picture == link), data)
        return f'<span class="picture"{data}>{image}</span>'

    def image(self, link, alt):
        image, phone = f'<img src="{escape(self.target(link))}" alt="{alt}"{self.size_of(link)} loading="lazy">', self.phone_form(link)
        source = f'<source media="(max-width: 40em)" srcset="{escape(self.target(phone))}"{self.size_of(phone)}>' if phone else ""
        return f"<picture>{source}{image}</picture>" if phone else image

    def phone_form(self, link):
        """NAME_phone.svg beside NAME.svg, if there is one."""
        other = re.sub(r"\.svg$", "_phone.svg", link)
        return other if other != link and self.svg(other) else None

    def svg(self, link):
        file = ((ROOT / self.path).parent / link.partition("#")[0]).resolve()
        return file.read_text(encoding="utf-8") if file.suffix == ".svg" and file.is_file() else (
            narrow_forms().get(file.relative_to(ROOT).as_posix()) if file.is_relative_to(ROOT) else None)

    def size_of(self, link):
        """Width and height, so that the text does not jump when pictures come."""
        head = (self.svg(link) or "")[:1000]
        sizes = [re.search(rf"<svg[^>]*\s{name}=\"([\d.]+)(?:px)?\"", head) for name in ("width", "height")]
        return "".join(f' {name}="{round(float(s[1]))}"' for name, s in zip(("width", "height"), sizes) if s)

    # --- HTML ----------------------------------------------------------------------------------------------------

    def with_questions(self, text):
        """The text with the questions of its checkpoint, folded, behind the link to them. What the book offers as Markdown, and
        what the search finds, has them once, in their own file."""
        def found(link):
            seen = {}
            for section in re.split(r"^## ", CHECKPOINTS.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
                heading, _, questions = section.partition("\n")
                if slug(heading, seen) == link[1]:
                    _, _, questions = questions.strip().partition("\n\n")  # without the link back to the chapter
                    # Not details: MkDocs' search would take the end of the first answer for the end of what it leaves out.
                    return (f"{link[0]}\n\n<details>\n<summary>Answer them here</summary>\n<section data-search-exclude>\n\n"
                            f"{questions}\n\n</section>\n</details>")
            self.warn(f"{CHECKPOINTS.name} has no section #{link[1]}")
            return link[0]

        return CHECKPOINT.sub(found, text)

    def render(self):
        md = MarkdownIt("gfm-like2")
        md.linkify.set({"fuzzy_link": False, "fuzzy_email": False, "fuzzy_ip": False})
        md.use(dollarmath_plugin, allow_space=False, allow_digits=False, double_inline=True,
               renderer=lambda latex, options: self.maths(latex, options["display_mode"]))
        rules = {"fence": self.fence, "html_block": self.raw, "html_inline": self.raw, "image": self.markdown_image,
                 "link_open": self.link_open}
        for name, rule in rules.items():
            md.add_render_rule(name, lambda _, tokens, i, options, env, rule=rule: rule(tokens, i, options, env))
        self.renderer = md.renderer
        tokens = md.parse(self.with_questions(self.text))
        self.name_headings(tokens, md.options)
        self.place_explorers(tokens)
        first = (token for before, token in zip(tokens, tokens[1:])
                 if before.type == "paragraph_open" and before.level == 0 and plain_text(token).strip())
        self.description = re.sub(r"\s+", " ", plain_text(next(first, Token("inline", "", 0)))).strip()
        # The theme has a class of that name for what text flows around.
        html = re.sub(r'(?<=class="math) inline(?=")', "", self.renderer.render(tokens, md.options, {}))
        return CELL.sub(lambda cell: NAME.sub("_<wbr>", cell[0]), html)

    def raw(self, tokens, i, options, env):
        return self.with_targets(tokens[i].content)

    def fence(self, tokens, i, options, env):
        token = tokens[i]
        language = token.info.split()[0] if token.info.strip() else ""
        if language == "math":
            return f'<div class="math block">{self.maths(token.content, True)}</div>\n'
        try:
            return fence(token.content, language)
        except ClassNotFound:
            self.warn(f"no highlighting for `{language}`")
            return fence(token.content, "")

    def maths(self, latex, display):
        """LaTeX to MathML: browsers draw MathML by themselves, with no script and no font of ours."""
        try:
            mathml = convert(latex.strip(), display="block" if display else "inline")
        except Exception as problem:  # the library has many kinds
            self.warn(f"maths that cannot be converted: {latex.strip()} ({type(problem).__name__})")
            return f"<code>{escape(latex)}</code>"
        left = re.search(r"(?:\\|&#x0005C;)([A-Za-z]+)", mathml)  # a command that the library does not know
        if left:
            self.warn(f"maths with a command that the site does not know: {left[1]}")
        return mathml

    def markdown_image(self, tokens, i, options, env):
        link, image = tokens[i].attrGet("src"), self.image(tokens[i].attrGet("src"), escape(tokens[i].content))
        return self.figure(link, image) if link.partition("#")[0].endswith(".svg") else image

    def link_open(self, tokens, i, options, env):
        tokens[i].attrSet("href", self.target(tokens[i].attrGet("href")))
        return self.renderer.renderToken(tokens, i, options, env)

    def name_headings(self, tokens, options):
        """Gives headings the anchors of code hosts, and a link to themselves."""
        seen = {}
        for token, inline in zip(tokens, tokens[1:]):
            if token.type != "heading_open":
                continue
            anchor, level = slug(inline.content, seen), int(token.tag[1])
            token.attrSet("id", anchor)
            words = [child for child in inline.children if not child.type.startswith("link_")]
            self.headings.append((level, anchor, self.renderer.renderInline(words, options, {})))
            if level == 1 and self.title == self.path:
                self.title = plain_text(inline)
            inline.children.append(Token("html_inline", "", 0, content=(
                f'<a class="headerlink" href="#{escape(anchor)}" title="Link to this heading">¶</a>')))

    def place_explorers(self, tokens):
        """A paragraph that is one link to an interactive page holds that page, in the state that the link names. book.js
        loads it when it is nearly in sight."""
        for paragraph, inline, end in zip(tokens, tokens[1:], tokens[2:]):
            kinds = [child.type for child in inline.children or []]
            if paragraph.type != "paragraph_open" or kinds.count("link_open") != 1 or (kinds[0], kinds[-1]) != ("link_open", "link_close"):
                continue
            link = inline.children[0].attrGet("href")
            name, state, anchor = re.fullmatch(r"([^?#]*)\??([^#]*)#?(.*)", link).groups()
            explorer = explorer_of(posixpath.normpath(posixpath.join(posixpath.dirname(self.path), name)), anchor)
            if not explorer:
                continue
            html = lambda content: Token("html_inline", "", 0, content=content)
            frame = f'<div data-interactive="{escape(relative_url(explorer, self.url) + ("#" + state if state else ""))}"></div>'
            paragraph.tag = end.tag = "div"
            paragraph.attrSet("class", "explorer")
            more = f'<p><a href="{escape(f"{name}#{anchor}")}">Three things to find with it</a></p>'
            inline.children = [html("<p>"), *inline.children, html(f"</p>{frame}{more}")]
