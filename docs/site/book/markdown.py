"""GitHub-flavoured Markdown to HTML as a code host reads it (CommonMark, by markdown-it), for the theme's style sheets."""

import re
from html import escape
from urllib.parse import unquote

from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin

from book import ROOT, highlight
from book.layout import is_image, is_interactive, relative_url, url_of
from book.maths import BadMaths, to_mathml
from check_links import slug  # the anchors that code hosts make

FENCE = re.compile(r"^\s*(?:>\s*)*(```+|~~~+)")
CODE_OR_COMMENT = re.compile(r"((`+)(?!`).*?(?<!`)\2(?!`))|<!--.*?(?:-->|$)")
NOTES = "<!-- notes -->"  # before a list whose items explain lines of the code above
ALERTS = {"NOTE": "note", "TIP": "tip", "IMPORTANT": "info", "WARNING": "warning", "CAUTION": "danger"}
PHONE = 620  # pixels: as wide as a picture may be made there (book.css)
ATTRIBUTE = re.compile(r"\b(href|src)\s*=\s*\"([^\"]*)\"")


def without_comments(text):
    """The Markdown without HTML comments outside code: they are for the scripts that write between them."""
    lines, fence, comment = [], None, False
    for line in text.split("\n"):
        mark = FENCE.match(line)
        if not comment and mark and (fence is None or line.strip().startswith(fence)):
            fence = None if fence else mark[1]
        elif fence is None and line.strip() != NOTES:
            had = line
            if comment:
                _, end, line = line.partition("-->")
                comment, line = not end, line if end else ""
            comment = comment or any(m[1] is None and not m[0].endswith("-->") for m in CODE_OR_COMMENT.finditer(line))
            line = CODE_OR_COMMENT.sub(lambda match: match[1] or "", line)
            if line != had and not line.strip():
                continue
        lines.append(line)
    return "\n".join(lines)


def plain_text(inline):
    return "".join(t.content for t in inline.children or [] if t.type in ("text", "code_inline", "softbreak"))


class Page:
    """One Markdown file: its HTML, title, headings, first sentences, and which files it links to."""

    def __init__(self, path, warn, text=None):
        self.path, self.url = path, url_of(path)
        self.text = (ROOT / path).read_text(encoding="utf-8") if text is None else text
        self.warn = lambda sentence: warn(f"{path}: {sentence}")
        self.title, self.description = path, ""
        self.headings = []  # (level, anchor, HTML)
        self.links = set()  # files of the repository
        self.images = set()
        self.charts = []
        self.in_table = False
        self.framed = False  # whether the interactive page has its place
        self.maths = 0
        self.html = self.render()

    # --- links ---------------------------------------------------------------------------------------------------

    def target(self, link):
        """The address on the site of what a link of the Markdown names."""
        if re.match(r"[a-zA-Z][\w+.-]*:|//", link):
            return link
        name, mark, anchor = unquote(link).partition("#")
        if not name:
            return "#" + anchor
        file = (ROOT / self.path).parent / name.partition("?")[0]
        file = (ROOT / name[1:] if name.startswith("/") else file).resolve()
        if not file.exists() or not file.is_relative_to(ROOT):
            self.warn(f"the link to {link} leads nowhere")
            return link
        path = file.relative_to(ROOT).as_posix()
        (self.images if is_image(path) else self.links).add(path)
        if re.fullmatch(r"L\d+-L?\d+", anchor):
            anchor = anchor.split("-")[0]
        return relative_url(url_of(path), self.url) + mark + anchor

    def with_targets(self, html):
        """Raw HTML with the addresses of the site."""
        return ATTRIBUTE.sub(self.attribute, html)

    def attribute(self, match):
        return f'{match[1]}="{escape(self.target(match[2]))}"'

    def figure(self, link, image):
        """What stands around an SVG: whether it is a chart, an interactive page, too wide for a phone."""
        chart = re.fullmatch(r"(?:.*/)?charts/([\w.-]+)\.svg", link)
        if chart:
            self.charts.append(chart[1])
        data = f' data-chart="{chart[1]}"' if chart else ""
        twin = self.path.removesuffix(".md") + ".html"  # an interactive page is shown in the place of its first picture
        if is_interactive(twin) and (ROOT / twin).exists() and not self.framed:
            self.framed = True
            self.links.add(twin)
            data = f' data-interactive="{relative_url(url_of(twin), self.url)}"'
        width = re.search(r' width="(\d+)"', self.size_of(link))
        wide = " wide" if width and int(width[1]) > PHONE else ""
        return f'<span class="picture{wide}"{data}>{image}</span>'

    def image(self, link, alt):
        return f'<img src="{escape(self.target(link))}" alt="{alt}"{self.size_of(link)} loading="lazy">'

    def size_of(self, link):
        """Width and height, so that the text does not jump when pictures come."""
        file = ((ROOT / self.path).parent / link).resolve()
        if file.suffix != ".svg" or not file.is_file():
            return ""
        head = file.read_text(encoding="utf-8")[:1000]
        sizes = [re.search(rf"<svg[^>]*\s{name}=\"([\d.]+)(?:px)?\"", head) for name in ("width", "height")]
        return "".join(f' {name}="{round(float(s[1]))}"' for name, s in zip(("width", "height"), sizes) if s)

    # --- HTML ----------------------------------------------------------------------------------------------------

    def render(self):
        md = MarkdownIt("commonmark", {"html": True, "linkify": True}).enable(["table", "strikethrough", "linkify"])
        md.linkify.set({"fuzzy_link": False, "fuzzy_email": False, "fuzzy_ip": False})
        md.use(dollarmath_plugin, allow_space=False, allow_digits=False, double_inline=True)
        rules = {
            "fence": self.fence, "code_block": self.code_block, "html_block": self.raw, "html_inline": self.raw,
            "math_inline": self.math_inline, "math_inline_double": self.math_display, "math_block": self.math_display,
            "heading_open": self.heading_open, "heading_close": self.heading_close, "image": self.markdown_image,
            "link_open": self.link_open, "code_inline": self.code_inline, "text": self.words,
            "table_open": self.table_open, "table_close": self.table_close, "th_open": self.cell_open,
            "td_open": self.cell_open,
        }
        for name, rule in rules.items():
            md.add_render_rule(name, lambda _, tokens, i, options, env, rule=rule: rule(tokens, i, options, env))
        self.renderer = md.renderer
        self.seen = {}
        tokens = md.parse(without_comments(self.text))
        self.mark_alerts(tokens)
        self.mark_notes(tokens)
        self.describe(tokens)
        return self.renderer.render(tokens, md.options, {})

    def raw(self, tokens, i, options, env):
        return self.with_targets(tokens[i].content)

    def fence(self, tokens, i, options, env):
        token = tokens[i]
        language = token.info.split()[0] if token.info.strip() else ""
        if language == "math":
            return self.maths_of(token.content, True)
        try:
            return highlight.fence(token.content, language, token.meta.get("notes"))
        except ValueError as problem:
            self.warn(str(problem))
            return highlight.fence(token.content, "")

    def code_block(self, tokens, i, options, env):
        return highlight.fence(tokens[i].content, "")

    def maths_of(self, latex, display):
        self.maths += 1
        try:
            html = to_mathml(latex, display)
        except BadMaths as problem:
            self.warn(str(problem))
            return f"<code>{escape(latex)}</code>"
        return f'<div class="maths">{html}</div>\n' if display else html

    def math_inline(self, tokens, i, options, env):
        return self.maths_of(tokens[i].content, False)

    def math_display(self, tokens, i, options, env):
        return self.maths_of(tokens[i].content, True)

    def heading_open(self, tokens, i, options, env):
        token, inline = tokens[i], tokens[i + 1]
        token.attrSet("id", slug(inline.content, self.seen))
        return self.renderer.renderToken(tokens, i, options, env)

    def heading_close(self, tokens, i, options, env):
        opening, inline = tokens[i - 2], tokens[i - 1]
        anchor, level = opening.attrGet("id"), int(opening.tag[1])
        html = re.sub(r"</?a\b[^>]*>", "", self.renderer.renderInline(inline.children, options, env))
        self.headings.append((level, anchor, html))
        if level == 1 and self.title == self.path:
            self.title = plain_text(inline)
        return (f'<a class="headerlink" href="#{escape(anchor)}" title="Link to this heading">¶</a>'
                f"</{opening.tag}>\n")

    def markdown_image(self, tokens, i, options, env):
        link = tokens[i].attrGet("src")
        image = self.image(link, escape(tokens[i].content))
        return self.figure(link, image) if link.endswith(".svg") else image

    def link_open(self, tokens, i, options, env):
        tokens[i].attrSet("href", self.target(tokens[i].attrGet("href")))
        return self.renderer.renderToken(tokens, i, options, env)

    def words(self, tokens, i, options, env):
        """In a table a long name may go on in the next line, after an underscore, but not after those at its start."""
        html = escape(tokens[i].content)
        return re.sub(r"(?<=[A-Za-z0-9]{2})_(?=\w)", "_<wbr>", html) if self.in_table else html

    def code_inline(self, tokens, i, options, env):
        return f"<code>{self.words(tokens, i, options, env)}</code>"

    def table_open(self, tokens, i, options, env):
        self.in_table = True
        return '<div class="table"><table class="book">\n'

    def cell_open(self, tokens, i, options, env):
        side = re.search(r"text-align:(right|center)", tokens[i].attrGet("style") or "")
        return f"<{tokens[i].tag} class={side[1]}>" if side else f"<{tokens[i].tag}>"

    def table_close(self, tokens, i, options, env):
        self.in_table = False
        return "</table></div>\n"

    # --- what code hosts and readers of plain Markdown see otherwise ----------------------------------------------

    def mark_alerts(self, tokens):
        """> [!NOTE] becomes a box."""
        for i, token in enumerate(tokens):
            if token.type != "blockquote_open" or tokens[i + 1].type != "paragraph_open":
                continue
            inline = tokens[i + 2]
            head = re.match(r"\[!(\w+)\]\n?", inline.content)
            if not head or head[1] not in ALERTS:
                continue
            depth, j = token.level, i + 1
            while not (tokens[j].type == "blockquote_close" and tokens[j].level == depth):
                j += 1
            token.tag = tokens[j].tag = "div"
            token.attrSet("class", f"admonition {ALERTS[head[1]]}")
            while inline.children and inline.children[0].type != "softbreak":
                inline.children.pop(0)
            if inline.children:
                inline.children.pop(0)
            token.meta["alert"] = head[1].capitalize()
        for token in tokens:
            if token.meta.get("alert"):
                token.type = "alert_open"
        self.renderer.rules["alert_open"] = lambda tokens, i, options, env: (
            f'<div class="{tokens[i].attrGet("class")}">\n<p class="admonition-title">{tokens[i].meta["alert"]}</p>\n')

    def mark_notes(self, tokens):
        """A numbered list after NOTES explains lines of the code above: each item begins with text of its line."""
        for i, token in enumerate(tokens):
            if token.type != "html_block" or token.content.strip() != NOTES:
                continue
            token.content = ""
            code = next((t for t in reversed(tokens[:i]) if t.type == "fence"), None)
            if code is None or i + 1 == len(tokens) or tokens[i + 1].type != "ordered_list_open":
                self.warn(f"{NOTES} belongs between code and a numbered list")
                continue
            lines, notes, number = code.content.rstrip("\n").split("\n"), {}, 0
            level = tokens[i + 1].level + 1
            for j in range(i + 1, len(tokens)):
                if tokens[j].type == "ordered_list_close" and tokens[j].level == level - 1:
                    break
                if tokens[j].type != "list_item_open" or tokens[j].level != level:
                    continue
                number += 1
                first = tokens[j + 2].children[0] if tokens[j + 2].children else None
                if first is None or first.type != "code_inline":
                    self.warn(f"remark {number} on the code does not begin with text of its line")
                    continue
                found = [n for n, line in enumerate(lines) if first.content in line]
                if len(found) != 1 or found[0] in notes:
                    self.warn(f"remark {number}: {len(found)} lines of the code above have `{first.content}`")
                    continue
                notes[found[0]] = number
            code.meta["notes"] = notes

    def describe(self, tokens):
        """The first paragraph, in plain text."""
        for before, token in zip(tokens, tokens[1:]):
            if before.type == "paragraph_open" and before.level == 0 and plain_text(token).strip():
                text = re.sub(r"\s+", " ", "".join(" " if t.type == "softbreak" else plain_text_of(t)
                                                   for t in token.children))
                self.description = text.strip()
                return


def plain_text_of(token):
    return token.content if token.type in ("text", "code_inline", "math_inline") else ""
