#!/usr/bin/env python3
"""Links the chapters and appendices with the glossary, both ways: a term's first use on a page to its entry in
docs/appendix/notation.md, and each entry to the pages that use it.

An entry is a heading of the fourth level, its text, and a pair of comments that name the forms to look for:

  #### commit group
  All asynchronous copies that a thread started since its last commit.

  <!-- used: commit group, commit groups, `cp.async.commit_group` -->
  In [07](../07_cp_async.md), ...                                      this is written here
  <!-- /used -->

A form without backticks is looked for in prose, one in backticks is a whole code span. form@12+ counts from chapter 12
on, form@16 in that chapter alone, neither in an appendix. Prose is what is no heading, link, code, formula, table, picture or generated
block, up to "Further reading". Where two forms begin at one place, the longer one counts.

An entry's own text is linked with other entries in the same way, except for its source: *what stands at its end, like
this.* All links to entries are made anew each time, so a second run changes nothing. Between <!-- entries --> and
<!-- /entries --> all entries are listed by the alphabet."""

import argparse
import os
import re
import sys
from collections import namedtuple
from functools import lru_cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
from check_links import slug  # noqa: E402
from tools import ROOT, Refused, fail, relative  # noqa: E402

GLOSSARY = ROOT / "docs" / "appendix" / "notation.md"
NOT_LINKED = {"notation.md", "reading.md"}
EXAMPLE = """examples:
  scripts/glossary.py            write the links
  scripts/glossary.py --check    only say which pages are out of date; exit code 1 if any is"""

Term = namedtuple("Term", "title anchor forms")  # forms: {text: the chapters' numbers that it counts in, or None}
ENTRY = re.compile(r"^#### (.+)$|^<!-- used: (.+?) -->$", re.MULTILINE)
USED = re.compile(r"^(<!-- used: .+? -->\n)(.*?)(<!-- /used -->)$", re.MULTILINE | re.DOTALL)
TEXT = re.compile(r"^(#### ([^\n]+)\n+)(.+?)(?=\n+<!-- used: )", re.MULTILINE | re.DOTALL)
SOURCE = re.compile(r" \*[^*]+\*\Z")
LISTED = re.compile(r"^(<!-- entries -->\n)(.*?)(<!-- /entries -->)$", re.MULTILINE | re.DOTALL)
FORM = re.compile(r"^(.+?)(?:@(\d\d)(\+?))?$")
LAST = 99  # a chapter's number at most
GAP = "\0"  # in place of what is no prose: no form matches it


def readers():
    """The pages that are linked: chapters, then appendices."""
    docs = ROOT / "docs"
    appendices = (path for path in docs.glob("appendix/*.md") if path.name not in NOT_LINKED)
    return [*sorted(docs.glob("[0-9][0-9]_*.md")), *sorted(appendices)]


def number_of(path):
    """A chapter's number, or -1."""
    return int(path.name[:2]) if path.name[:2].isdigit() else -1


def way_to(target, page):
    """The relative link from a page of docs or docs/appendix."""
    return os.path.relpath(target, page.parent).replace(os.sep, "/")


def read_terms(text):
    """The glossary's entries in their order, or Refused."""
    terms, title, seen, forms_seen = [], None, {}, {}
    # Anchors are numbered over all headings of the page.
    anchors = {heading: slug(heading, seen) for heading in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE)}
    for match in ENTRY.finditer(text):
        if match[1]:
            title = match[1]
            continue
        if title is None:
            raise Refused(f"says '{match[0]}' before any entry")
        forms = {}
        for word in match[2].split(","):
            form, number, onwards = FORM.match(word.strip()).groups()
            forms[form] = None if number is None else range(int(number), LAST + 1 if onwards else int(number) + 1)
            if forms_seen.setdefault(form, title) != title:
                raise Refused(f"has the form {form} in two entries, {forms_seen[form]} and {title}")
        terms.append(Term(title, anchors[title], forms))
        title = None
    if not terms:
        raise Refused("has no entry")
    return terms


# --- What is prose ---------------------------------------------------------------------------------------------


def blank(text, pattern, flags=0):
    """The text with what matches replaced by as many gaps; ends of lines stay."""
    return re.sub(pattern, lambda match: re.sub(r"[^\n]", GAP, match[0]), text, flags=flags)


def prose(text):
    """The text, of the same length, with gaps for everything in which no term is looked for."""
    ending = re.search(r"^## Further reading$", text, re.MULTILINE)
    if ending:
        text = text[: ending.start()] + re.sub(r"[^\n]", GAP, text[ending.start() :])
    text = blank(text, r"^[ \t]*(`{3,}|~{3,}).*?^[ \t]*\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)
    # Generated blocks, alone on their lines; single values stand inside a line.
    text = blank(text, r"^<!-- (?!value:)(\w+): .+? -->$.*?^<!-- /\1 -->$", re.MULTILINE | re.DOTALL)
    text = blank(text, r"<!-- value: .+? -->.*?<!-- /value -->")
    text = blank(text, r"<!--.*?-->", re.DOTALL)
    text = blank(text, r"<picture>.*?</picture>", re.DOTALL)
    text = blank(text, r"<summary>.*?</summary>")
    text = blank(text, r"</?[a-zA-Z][^>]*>")
    text = blank(text, r"^(?: {4}|\t).*$", re.MULTILINE)  # indented code and formulas
    text = blank(text, r"^ {0,3}(?:#{1,6} |\|).*$", re.MULTILINE)  # headings, tables
    text = blank(text, r"^ *\d+\. `[^`\n]+`", re.MULTILINE)  # remarks on code: the text of the line that they are on
    text = blank(text, r"\$\$.+?\$\$", re.DOTALL)
    text = blank(text, r"(?<![\\$\w`])\$(?=\S)[^$\n]+?(?<=\S)\$(?![\w$`])")
    return blank(text, r"!?\[[^\[\]]*\](?:\([^()\s]*(?:\([^()]*\))?[^()]*\)|\[[^\]]*\])")


START = re.compile(r"(?<![\w`./@-])(?:\w+|[`*])")  # where a form can begin, and its first word


@lru_cache(maxsize=None)
def pattern_of(form):
    """A form may begin a sentence, and may run over the end of a line."""
    if form.startswith("`"):
        return re.compile(re.escape(form))
    words = re.escape(form).split(r"\ ")
    if words[0][0].islower():
        words[0] = f"[{words[0][0]}{words[0][0].upper()}]{words[0][1:]}"
    return re.compile(r"(?:[ ]|\n(?=\S))".join(words) + r"(?![\w`@-]|\.\w)")


def unlinked(text, anchors, way):
    """The text without links to entries: their words stay."""
    def words(match):
        return match[1] if match[2] in anchors else match[0]
    return re.sub(rf"\[([^\[\]]+)\]\({re.escape(way)}#([\w-]+)\)", words, text)


def linked(text, terms, number, way):
    """The page with its links, and the titles of the terms that it uses."""
    text = unlinked(text, {term.anchor for term in terms}, way)
    forms = {form: term for term in terms for form, where in term.forms.items() if where is None or number in where}
    if not forms:
        return text, set()
    by_start = {}
    for form in sorted(forms, key=lambda form: (-len(form), form)):
        by_start.setdefault(START.match(form)[0].lower(), []).append(form)
    readable = prose(text)
    spans = blank(readable, r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
    result, at, used, end = [], 0, set(), 0
    for start in START.finditer(readable):
        if start.start() < end:
            continue
        for form in by_start.get(start[0].lower(), ()):
            match = pattern_of(form).match(readable, start.start())
            if match and (form.startswith("`") or GAP not in spans[match.start() : match.end()]):  # not inside code
                break
        else:
            continue
        end, term = match.end(), forms[form]
        if term.title not in used:
            used.add(term.title)
            result += [text[at : match.start()], f"[{match[0]}]({way}#{term.anchor})"]
            at = match.end()
    return "".join(result) + text[at:], used


def all_pages():
    """[(path, old text, new text)] of all pages and the glossary; Refused if an entry is used nowhere."""
    try:
        old = GLOSSARY.read_text(encoding="utf-8")
    except OSError:
        raise Refused("is not there") from None
    terms, uses, pages = read_terms(old), {}, []
    for path in readers():
        text = path.read_text(encoding="utf-8")
        new, used = linked(text, terms, number_of(path), way_to(GLOSSARY, path))
        pages.append((path, text, new))
        for title in used:
            uses.setdefault(title, []).append(path)
    idle = [term.title for term in terms if term.title not in uses]
    if idle:
        raise Refused(f"has entries that no page uses: {', '.join(idle)}")
    entries = iter(terms)

    def pages_of(match):
        links = ", ".join(f"[{path.stem if number_of(path) < 0 else path.name[:2]}]({way_to(path, GLOSSARY)})"
                          for path in uses[next(entries).title])
        return f"{match[1]}In {links}\n{match[3]}"

    if len(USED.findall(old)) != len(terms):
        raise Refused("has an entry whose comment is never closed by <!-- /used -->")
    def entry(match):
        heading, title, text = match.groups()
        source = SOURCE.search(text)
        words = text[: source.start()] if source else text
        others = [term for term in terms if term.title != title]
        return f"{heading}{linked(words, others, LAST, '')[0]}{source[0] if source else ''}"

    by_name = sorted(terms, key=lambda term: term.title.lower())
    listed = ",\n".join(f"[{term.title}](#{term.anchor})" for term in by_name)
    new = TEXT.sub(entry, USED.sub(pages_of, old))
    new = LISTED.sub(lambda match: f"{match[1]}{listed}\n{match[3]}", new)
    return [*pages, (GLOSSARY, old, new)]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing, say what is out of date")
    args = parser.parse_args()
    try:
        pages = all_pages()
    except Refused as problem:
        fail(f"{relative(GLOSSARY)} {problem}", 1)
    stale = [(path, new) for path, old, new in pages if old != new]
    for path, new in stale:
        if args.check:
            print(f"{relative(path)}: its links with the glossary are out of date; scripts/glossary.py writes them",
                  file=sys.stderr)
        else:
            path.write_text(new, encoding="utf-8")
            print(f"updated {relative(path)}")
    return 1 if stale and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
