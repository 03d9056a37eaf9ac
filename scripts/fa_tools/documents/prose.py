"""Reads the book's prose, README and the kernels' comments for habits that make a reader decode instead of read. It only
checks, and changes nothing.

What is flagged: "rows a CTA" for "rows per CTA", a sentence that begins with "Of", some tics, sentences of more than 35
words and paragraphs of more than 90. A chapter also has a budget of words, tables and links to the glossary outside of
what is folded away.

Five figures of each page follow, of its prose outside of folds: the words of a sentence, the sentences of at most ten words,
the numbers per 1,000 words, the sentences with four numbers or more, and "I", "we" and "you" per 1,000 words. What is outside
the aims has a star; read it aloud, for they warn of a bad page and make none good."""

import re
from collections import namedtuple
from pathlib import Path

from fa_tools.documents.links import outside_code
from fa_tools.records import DAGGER
from fa_tools.sources import fact
from fa_tools.tools import ROOT, Parser, busy, markdown_files, named, relative, text_of

EXAMPLE = """examples:
  scripts/fa prose
  scripts/fa prose docs/12_tma.md kernels/12_tma.cu

Exit code: 0 nothing was found, 1 something was."""

UNITS = "CTA|tile|thread|warp|lane|row|column|element|SM|step|stage|head|key|cycle|iteration|instruction|byte|watt|block|pass"
COUNTED = ("rows|columns|bytes|elements|registers|threads|warps|lanes|cycles|instructions|loads|stores|requests|sectors|"
           "wavefronts|tiles|barriers|FLOPs|operations|multiply-adds|products|stages|KB|MB|GB|arrivals|launches|shuffles|"
           "chunks|words|votes|copies|accesses|conflicts|keys|heads|exponentials|Rows|Columns|Bytes|Elements|Registers|Keys")
HABITS = (
    (re.compile(rf"\b(?:{COUNTED}|(?:[Oo]ne|[Aa] single) \w+) an? (?:{UNITS})\b"), 'write "per" where "a" means per'),
    (re.compile(r"\b(?:hardly|likewise|all the same|for ever|in turns|once more|an honest word|comes? to lie|"
                r"half as much again)\b", re.IGNORECASE), "a tic"),
    (re.compile(r"\b(?:makes|has) \d[\d.,]* TFLOP/s"), "a kernel reaches TFLOP/s"),
)
SENTENCE_WORDS, PARAGRAPH_WORDS = 35, 90

CHAPTER = re.compile(r"docs/((?:\d\d_|beyond/)\w+)\.md")
Budget = namedtuple("Budget", "words tables links")
README = Budget(900, 2, 10)

Aim = namedtuple("Aim", "name least most percent")
AIMS = (Aim("words/sentence", 15, 18, False), Aim("short", 0, 28, True), Aim("numbers/1,000", 0, 45, False),
        Aim("crowded", 0, 3, True), Aim("we, you/1,000", 10, 25, False))
SHORT, CROWDED = 10, 4  # words, numbers
NUMBERED = re.compile(r"\b(?:kernel|chapter|step|exercise)s? \d+(?:(?:,| to| and) \d+)*", re.IGNORECASE)  # a name
NUMBER = re.compile(r"(?<![\w.-])\d[\d,.]*")
NO_PROSE = ("Run:", "Next:", "Checkpoint:", "In a hurry?")  # how such a line begins

Block = namedtuple("Block", "line kind text folded")  # kind: text, item, heading, table, alt, comment
END_OF_SENTENCE = re.compile(r"(?<=[.!?])[\"”)*]*\s+(?=[\"“(*]*[A-Z0-9`“])")


def plain(text):
    """A paragraph as it is read: without comments, marks and addresses; a code span and a formula are one word."""
    for marked, words in ((r"<!--.*?-->", ""), (r"!\[[^\]]*\]\([^)]*\)", ""), (r"\[([^\]]*)\]\([^)]*\)", r"\1"), (r"`[^`]*`", "`x`"),
                          (r"(?<![\\$\w])\$[^\s$](?:[^$]*[^\s\\$])?\$(?![\w$])", "`x`"), (r"</?[a-z]+[^>]*>|\*\*", "")):
        text = re.sub(marked, words, text)
    return " ".join(text.split())


def blocks_of_markdown(text):
    """The paragraphs, items, headings, tables and pictures' words of a page; code and generated lists are left out."""
    text = re.sub(r"<!-- (entries|tasks): .*?<!-- /\1 -->", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)
    blocks, lines, folds, start, last, kind = [], [], 0, 0, 0, "text"

    def flush():
        if lines:
            joined = "\n".join(lines)
            blocks.append(Block(start, kind, joined if kind == "table" else plain(joined), folds > 0))
            for words in re.findall(r"!\[([^\]]*)\]\(", joined):
                blocks.append(Block(start, "alt", plain(words), folds > 0))
        lines.clear()

    for number, line in outside_code(text):
        if number > last + 1:  # code or a comment is in between
            flush()
        last = number
        if not lines and line.startswith("    "):
            continue
        if line.lstrip().startswith(("<details>", "</details>")):
            flush()
            folds += -1 if "</" in line else 1
            continue
        item = re.match(r"\s*(?:[-*+]|\d+\.) +(.*)", line)
        heading = re.match(r"#{1,6} +(.*)", line)
        table = line.lstrip().startswith("|")
        if not line.strip() or item or heading or (table and kind != "table"):
            flush()
        if not line.strip():
            continue
        if not lines:
            start = number
            kind = "heading" if heading else "table" if table else "item" if item else "text"
        lines.append(item[1] if item else heading[1] if heading else line)
        if heading:
            flush()
    flush()
    return [block for block in blocks if block.text]


def blocks_of_source(text):
    """Comments that fill lines of their own, joined to paragraphs; the diagrams in them, drawn with spaces, left out."""
    blocks, lines, start = [], [], 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        words = re.match(r"\s*// ?(.*)", line)
        drawing = words and re.search(r"\S {2,}\S|^ {2,}|^\[/?[a-z0-9-]+\]$|^-{4,}|\|.*\|", words[1])
        if words and words[1].strip() and not drawing:
            start = start if lines else number
            lines.append(words[1])
        elif lines:
            blocks.append(Block(start, "comment", plain("\n".join(lines)), False))
            lines = []
    return blocks


def sentences(block):
    # In a comment a sentence may begin with an identifier.
    end = re.compile(r"(?<=[.!?])\s+") if block.kind == "comment" else END_OF_SENTENCE
    return [sentence for sentence in end.split(block.text) if sentence]


def count(text):
    return len(re.findall(r"[^\s–—·=+|-]\S*", text))


def habits_of(blocks):
    """(line, what is wrong) of single sentences and paragraphs."""
    for block in blocks:
        if block.kind == "table":
            continue
        for pattern, cure in HABITS:
            for found in pattern.finditer(block.text):
                yield block.line, f'"{found[0]}": {cure}'
        if block.kind in ("heading", "alt"):
            continue
        for sentence in sentences(block):
            if sentence.startswith("Of "):
                yield block.line, f'"{sentence[:30]} ...": begin with the subject'
            if count(sentence) > SENTENCE_WORDS:
                yield block.line, f'"{sentence[:40]} ...": a sentence of {count(sentence)} words'
        if count(block.text) > PARAGRAPH_WORDS:
            yield block.line, f'"{block.text[:40]} ...": a paragraph of {count(block.text)} words'


def figures_of(text):
    """The five figures of a page, in the order of AIMS; None of a page without prose."""
    text = re.sub(r"\$\$.*?\$\$", "", text.partition("\n## Further reading")[0], flags=re.DOTALL)
    text = re.sub(r"^\*\*\d+\. [^*]*\*\*", "", text, flags=re.MULTILINE)  # an exercise's title
    open_blocks = [block for block in blocks_of_markdown(text) if block.kind in ("text", "item") and not block.folded
                   and not block.text.startswith((DAGGER, *NO_PROSE))]
    all_of_them = [sentence for block in open_blocks for sentence in sentences(block) if re.search(r"\w", sentence)]
    words = [count(sentence) for sentence in all_of_them]
    if not sum(words):
        return None
    numbers = [len(NUMBER.findall(NUMBERED.sub("it", sentence))) for sentence in all_of_them]
    said = len(re.findall(r"\b(?:we|you|I)\b", " ".join(all_of_them), re.IGNORECASE))
    each, per_1000 = 100 / len(words), 1000 / sum(words)
    return (sum(words) / len(words), each * sum(n <= SHORT for n in words), per_1000 * sum(numbers),
            each * sum(n >= CROWDED for n in numbers), per_1000 * said)


def row(name, figures):
    """A line of the table of figures."""
    cells = (f"{figure:.1f}{' %' if aim.percent else ''}{' ' if aim.least <= round(figure, 1) <= aim.most else '*'}"
             for aim, figure in zip(AIMS, figures))
    return f"{name:<30}" + "".join(f"{cell:>14}" for cell in cells)


def budget_of(blocks, text, budget):
    """(line, what is wrong) of a page as a whole."""
    open_blocks = [block for block in blocks if not block.folded]
    # What scripts/fa sync writes about figures that are out of date is no part of a chapter.
    words = sum(count(block.text) for block in open_blocks if block.kind in ("text", "item") and not block.text.startswith(DAGGER))
    tables = sum(block.kind == "table" for block in open_blocks)
    links = text.count("notation.md#")
    for what, got, most in (("words", words, budget.words), ("tables", tables, budget.tables),
                            ("links to the glossary", links, budget.links)):
        if got > most:
            yield 1, f"{got} {what} outside of folds, at most {most}"


def check(name, text):
    """[(line, what is wrong)] of a file of this repository."""
    if name.endswith(".cu"):
        return list(habits_of(blocks_of_source(text)))
    blocks = blocks_of_markdown(text)
    found = list(habits_of(blocks))
    chapter = CHAPTER.fullmatch(name)
    if chapter or name == "README.md":
        budget = Budget(fact(chapter[1], "words"), fact(chapter[1], "tables"), README.links) if chapter else README
        found += budget_of(blocks, text, budget)
    return sorted(found)


def files():
    pages = [path for path in markdown_files() if path.parts[len(ROOT.parts)] in ("docs", "README.md", "CONTRIBUTING.md")]
    return [*pages, *sorted((ROOT / "kernels").rglob("*.cu"))]


@busy("reading the prose")
def main():
    parser = Parser("prose", __doc__, EXAMPLE)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="pages and kernels; all if none is named")
    options = parser.parse_args()
    chosen = options.files or files()
    bad, pages = 0, {}
    for path in chosen:
        name = relative(path.resolve())
        with named(name):
            text = text_of(path)
        for line, problem in check(name, text):
            print(f"{name}:{line}: {problem}")
            bad += 1
        if path.suffix == ".md":
            pages[name] = figures_of(text)
    if any(pages.values()):
        print(f"{'page':<30}" + "".join(f"{aim.name:>13} " for aim in AIMS))
        aims = (f"{aim.least or 'up'} to {aim.most}{' %' if aim.percent else ''}" for aim in AIMS)
        print(f"{'  aim':<30}" + "".join(f"{aim:>13} " for aim in aims))
    for name, figures in pages.items():
        if figures:
            print(row(name, figures))
    return 1 if bad else 0
