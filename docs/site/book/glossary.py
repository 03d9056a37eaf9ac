"""The glossary on the site: the first use of a word on a page leads to its entry and shows the entry's first sentence as
a tooltip, and each entry names the pages that use it. A chapter has ten such words, those that the fewest pages use.

An entry is a heading of the fourth level in docs/appendix/notation.md and its text. The forms of its word are the heading
and the heading with an s, or what a comment lists:

  <!-- forms: commit group, commit groups, `cp.async.commit_group` -->

A form without backticks is looked for in prose, one in backticks is a whole code span. form@12+ counts from chapter 12
on, form@16 in that chapter alone, neither in an appendix. A link that the Markdown has stays the only one of its page."""

import re
from collections import namedtuple
from html import escape, unescape

from book import ROOT
from book.layout import relative_url
from fa_tools.documents.links import slug

GLOSSARY = "docs/appendix/notation.md"
NOT_LINKED = {GLOSSARY, "docs/appendix/reading.md"}
READERS = re.compile(r"docs/(?:(?:appendix|beyond)/\w+|in_thirty_minutes|(\d\d)_\w+)\.md")
ENTRY = re.compile(r"^#### (.+)$|^<!-- forms: (.+?) -->$", re.MULTILINE)
FORM = re.compile(r"(`?)(.+?)\1(?:@(\d\d)(\+?))?")
NOT_PROSE = re.compile(r"<(/?)(a|pre|code|h[1-6]|table|math|summary|svg|script|style)\b")
LAST = 99  # a chapter's number at most
MOST = 10  # links in a chapter

Form = namedtuple("Form", "anchor chapters")


def read_forms(text):
    """{(form, whether it is code): Form}; ValueError says what is wrong with the glossary."""
    anchor, seen, forms = None, {}, {}
    anchors = {heading: slug(heading, seen) for heading in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE)}
    entries = ENTRY.findall(text)
    for (heading, listed), (next_heading, next_listed) in zip(entries, [*entries[1:], ("", "")]):
        if heading:
            anchor = anchors[heading]
            if next_listed:
                continue
            listed = f"{heading}, {heading}s"
        for word in re.split(r", (?![^(]*\))", listed):  # a comma in brackets belongs to the form: N(0, 1)
            ticks, form, number, onwards = FORM.fullmatch(word).groups()
            chapters = range(int(number or 0), LAST if onwards or not number else int(number) + 1)
            found = forms.setdefault((form, bool(ticks)), Form(anchor, chapters if number else None))
            if found.anchor != anchor:
                raise ValueError(f"the form {form} belongs to two entries")
    return forms


def pattern_of(words):
    """Any of the forms, the longest first, with a capital too at the start of a sentence, and over the end of a line."""
    parts = (re.escape(form).replace(r"\ ", r"\s") for form in sorted(words, key=len, reverse=True))
    return re.compile(rf"(?<![\w./@-])(?:{'|'.join(parts) or '(?!)'})(?![\w@-]|\.\w)")


def linked(html, forms, link, number, tips, used=()):
    """A page's HTML with links to entries, each once, and the anchors of all entries that it uses."""
    words, code = ({form: found.anchor for (form, ticks), found in forms.items()
                    if ticks == which and (found.chapters is None or number in found.chapters)} for which in (False, True))
    words.update({form[0].upper() + form[1:]: anchor for form, anchor in words.items()})
    pattern, inside = pattern_of(words), []
    found = set(re.findall(rf'<a href="{re.escape(link)}#([\w-]+)"', html))  # set by hand
    used = found | set(used)

    def entry(anchor, text):
        found.add(anchor)
        if anchor in used:
            return text
        used.add(anchor)
        return f'<a class="term" href="{escape(link)}#{anchor}" title="{escape(tips.get(anchor, ""))}">{text}</a>'

    parts = re.split(r"(<code>[^<]*</code>|<[^>]*>)", html)
    for i, part in enumerate(parts):
        tag = NOT_PROSE.match(part)
        if 'id="further-reading"' in part:
            break
        if part.startswith("<code>") and part.endswith("</code>"):
            anchor = code.get(unescape(part[6:-7]))
            parts[i] = entry(anchor, part) if anchor and not inside else part
        elif tag and not tag[1]:
            inside.append(tag[2])
        elif tag and tag[2] in inside:
            del inside[len(inside) - 1 - inside[::-1].index(tag[2]) :]
        elif not part.startswith("<") and not inside:
            parts[i] = pattern.sub(lambda match: entry(words[" ".join(match[0].split())], match[0]), part)
    return "".join(parts), found


def link(pages, warn):
    """Links all pages, which have .path, .url and .html, with the glossary, both ways."""
    try:
        forms = read_forms((ROOT / GLOSSARY).read_text(encoding="utf-8"))
    except ValueError as problem:
        warn(f"{GLOSSARY}: {problem}")
        return
    glossary = next(page for page in pages if page.path == GLOSSARY)
    sections = {}
    for section in re.split(r"(?=<h[1-4]\b)", glossary.html):
        sections[re.match(r'(?:<h4 id="([\w-]+)")?', section)[1] or len(sections)] = section
    tips = {}
    for anchor, section in sections.items():
        text = re.search(r"<p>(.*?)</p>", section, re.DOTALL)
        tips[anchor] = re.split(r"(?<=\.) ", unescape(re.sub(r"<[^>]*>", "", text[1] if text else "")), maxsplit=1)[0]
    uses, readers = {}, []
    for page in pages:
        reader = READERS.fullmatch(page.path)
        if not reader or page.path in NOT_LINKED:
            continue
        way = relative_url(glossary.url, page.url)
        found = linked(page.html, forms, way, int(reader[1] or -1), tips)[1]
        readers.append((page, way, reader[1], found))
        for anchor in found:
            name = reader[1] or page.path.split("/")[-1].removesuffix(".md")
            uses.setdefault(anchor, []).append(f'<a href="{escape(relative_url(page.url, glossary.url))}">{name}</a>')
    for page, way, number, found in readers:
        by_hand = set(re.findall(rf'<a href="{re.escape(way)}#([\w-]+)"', page.html))
        rarest = sorted(found - by_hand, key=lambda anchor: (len(uses[anchor]), anchor))
        common = rarest[max(0, MOST - len(by_hand)) :] if number else []
        page.html, _ = linked(page.html, forms, way, int(number or -1), tips, common)
    for anchor in {found.anchor for found in forms.values()}:
        if anchor not in uses:
            warn(f"{GLOSSARY}: no page uses the entry #{anchor}")
        text, source, rest = sections[anchor].rpartition("<em>")
        text, _ = linked(text, forms, "", LAST - 1, tips, used={anchor})
        sections[anchor] = f"{text}{source}{rest}<p>In {', '.join(uses.get(anchor, []))}</p>\n"
    glossary.html = "".join(sections.values())
