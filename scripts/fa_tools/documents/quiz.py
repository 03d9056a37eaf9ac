"""Asks the questions of docs/checkpoints.md in the terminal: five per chapter, each answer with its explanation.

Without a chapter it takes the first one in which your best score is not full. Best scores are kept in try/quiz.json.
With --answers it asks nothing and keeps nothing: it grades the letters."""

import json
import re
import shutil
import sys
import textwrap
from collections import namedtuple

from fa_tools.records import DAGGER, NOTE
from fa_tools.tools import (ROOT, Parser, Refused, fail, lines_of, make_folder, named, read_json, relative, text_of,
                            write_whole)

EXAMPLE = """examples:
  scripts/fa quiz 05
  scripts/fa quiz --list
  scripts/fa quiz 05 --answers abcab --json

Exit code: 0 all answers were right, 1 one was not or the quiz was stopped, 2 bad arguments."""

PAGE = ROOT / "docs" / "checkpoints.md"
SCORES = ROOT / "try" / "quiz.json"
MOST_COLUMNS = 100

Chapter = namedtuple("Chapter", "number title questions")
Question = namedtuple("Question", "text choices right because others")  # choices, others (the wrong ones): {letter: text}

SECTION = re.compile(r"^## (\d\d): ([^\n]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
QUESTION = re.compile(r"\*\*(\d+)\. (.+)\*\*\n\n((?:- \*\*[a-d]\*\* .+\n){3,4})\n<details>\n<summary>Answer</summary>\n\n"
                      r"\*\*([a-d])\.\*\* (.+)\n\n((?:- \*\*[a-d]\*\* .+\n)+)\n</details>\n")
CHOICE = re.compile(r"- \*\*([a-d])\*\* (.+)")


def chapters(text):
    """{number: Chapter} of the page's text. Refused says which question is not in the form that all have."""
    found = {}
    for number, title, body in SECTION.findall(text.removesuffix(f"\n{NOTE}\n")):
        questions = []
        for at, block in enumerate(re.split(r"^(?=\*\*\d+\. )", body.lstrip("\n"), flags=re.MULTILINE)[1:], 1):
            match = QUESTION.fullmatch(block.rstrip("\n") + "\n")
            choices, others = (dict(CHOICE.findall(match[part])) if match else {} for part in (3, 6))
            if (not match or int(match[1]) != at or list(choices) != list("abcd"[: match[3].count("\n")])
                    or sorted([match[4], *others]) != list(choices)):
                raise Refused(f"has another form than the others in question {at} of chapter {number}")
            questions.append(Question(match[2], choices, match[4], match[5], others))
        found[number] = Chapter(number, title, questions)
    return found


def plain(markdown):
    """A line of the page as the terminal shows it."""
    text = re.sub(r"<!--.*?-->|\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    return " ".join(re.sub(r"(`[^`]*`)|\*+", lambda found: found[1] or "", text).split())


def wrapped(text, first="", rest=None):
    columns = min(shutil.get_terminal_size().columns, MOST_COLUMNS)
    return textwrap.fill(plain(text), max(columns, 40), initial_indent=first, break_on_hyphens=False,
                         subsequent_indent=" " * len(first) if rest is None else rest)


def best_scores():
    """{chapter: right answers} of what has been kept."""
    if not SCORES.exists():
        return {}
    with named(relative(SCORES)):
        scores = read_json(SCORES)
        if not isinstance(scores, dict) or not all(type(score) is int and score >= 0 for score in scores.values()):
            raise Refused("is not what the quiz keeps; without this file it begins anew")
    return scores


def keep(number, score):
    scores = best_scores()
    if score <= scores.get(number, -1):
        return
    make_folder(SCORES.parent)
    write_whole(SCORES, lines_of(dict(sorted({**scores, number: score}.items()))))


def ask(question, say):
    """The letter that the reader chose; None at the end of the input."""
    letters = "/".join(question.choices)
    while True:
        say(f"Your answer ({letters}): ", end="")
        line = sys.stdin.readline()
        if not line:
            return None
        if not sys.stdin.isatty():
            say("")  # a terminal has shown the end of the reader's line
        letter = line.strip().lower()
        if letter in question.choices:
            return letter
        say(f"Please type one of the letters {letters}. Ctrl-D ends the quiz.")


def dialogue(chapter, say):
    """The letters that the reader chose, or None if the reader stopped before the end."""
    say(wrapped(f"{chapter.number}: {chapter.title}"))
    given = []
    for at, question in enumerate(chapter.questions, 1):
        say("\n" + wrapped(question.text, f"{at}. "))
        for letter, choice in question.choices.items():
            say(wrapped(choice, f"   {letter}  "))
        letter = ask(question, say)
        if letter is None:
            return None
        given.append(letter)
        verdict = "Right." if letter == question.right else f"Not {letter}, but {question.right}."
        say(wrapped(f"{verdict} {question.because}", "   "))
        for other, why in question.others.items():
            say(wrapped(f"{other} {why}", "   - ", "     "))
    if DAGGER in str(chapter):
        say("\n" + wrapped(NOTE))
    return given


def letters_of(text, chapter):
    """The letters of --answers, if each answers its question."""
    if len(text) != len(chapter.questions):
        fail(f"--answers takes {len(chapter.questions)} letters, one per question, and '{text}' has {len(text)}")
    for at, (letter, question) in enumerate(zip(text.lower(), chapter.questions), 1):
        if letter not in question.choices:
            fail(f"question {at} of chapter {chapter.number} has the answers {', '.join(question.choices)}, and not '{letter}'")
    return list(text.lower())


def chosen(named_chapter, known):
    if named_chapter is None:
        best = best_scores()
        return next((each for each in known.values() if best.get(each.number, 0) < len(each.questions)), known[min(known)])
    number = named_chapter.zfill(2)
    if number not in known:
        fail(f"there are questions on the chapters {min(known)} to {max(known)}, and not on '{named_chapter}'")
    return known[number]


def list_chapters(known, as_json):
    best = best_scores()
    rows = [{"chapter": each.number, "title": plain(each.title), "best": best.get(each.number), "of": len(each.questions)}
            for each in known.values()]
    if as_json:
        print(lines_of({"chapters": rows}), end="")
        return
    for row in rows:
        score = "not tried" if row["best"] is None else f"{row['best']} of {row['of']}"
        print(f"{row['chapter']}  {score:<9}  {row['title']}")


def main():
    parser = Parser("quiz", __doc__, EXAMPLE)
    parser.add_argument("chapter", nargs="?", metavar="NN", help="the number of a chapter")
    parser.add_argument("--list", action="store_true", help="show the chapters and your best scores")
    parser.add_argument("--answers", metavar="LETTERS", help="grade these letters, one per question, and ask nothing")
    parser.add_argument("--json", action="store_true", help="print the result as JSON (what is asked goes to standard error)")
    options = parser.parse_args()
    with named(relative(PAGE)):
        known = chapters(text_of(PAGE))
    if options.list:
        if options.chapter or options.answers is not None:
            fail("--list shows all chapters, so it takes neither a chapter nor --answers")
        return list_chapters(known, options.json)
    if options.answers is not None and options.chapter is None:
        fail("--answers needs the number of a chapter")
    chapter = chosen(options.chapter, known)

    def say(text, end="\n"):
        print(text, end=end, flush=True, file=sys.stderr if options.json else sys.stdout)

    if options.answers is not None:
        given = letters_of(options.answers, chapter)
    else:
        best_scores()  # a file that cannot be read is reported before the questions
        try:
            given = dialogue(chapter, say)
        except KeyboardInterrupt:
            given = None
        if given is None:
            say("\nStopped before the last question, so no score is kept.")
            return 1
    rights = [question.right for question in chapter.questions]
    score = sum(letter == right for letter, right in zip(given, rights))
    if options.answers is None:
        keep(chapter.number, score)
    if options.json:
        graded = [{"question": at, "given": letter, "right": right} for at, (letter, right) in enumerate(zip(given, rights), 1)]
        print(json.dumps({"chapter": chapter.number, "score": score, "of": len(rights), "answers": graded}))
    else:
        wrong = [str(at) for at, (letter, right) in enumerate(zip(given, rights), 1) if letter != right]
        again = f" Look again at question{'s' if len(wrong) > 1 else ''} {', '.join(wrong)}." if wrong else ""
        say(("\n" if options.answers is None else "") + f"{chapter.number}: {score} of {len(rights)} right.{again}")
    return 0 if score == len(rights) else 1
