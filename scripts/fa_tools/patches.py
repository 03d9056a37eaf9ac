"""What is changed in a source that others keep changing, and is therefore found by its text: seeded bugs (tests/broken), holes
and wrong answers of tasks, solutions of exercises."""

import difflib
import re

from fa_tools.tools import ROOT, Refused

SOLUTION = re.compile(r"^```diff\n@@ (\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PATCH = re.compile(r"^=== (\w+)\n(.*?)(?=^=== |\Z)", re.MULTILINE | re.DOTALL)


def parts(text, wanted, where, times=1):
    """The text around `wanted`, which must be there so many times."""
    found = text.split(wanted)
    if len(found) != times + 1:
        first = next((line.strip("\0 ") for line in wanted.split("\n") if line.strip("\0 ")), "")
        raise Refused(f"expects '{first}' {f'{times} times' if times > 1 else 'once'} in {where}, "
                      f"but it is there {len(found) - 1} times{'' if wanted in text else nearest(first, text)}")
    return found


def replaced(text, old, new, where, which=1, of=1):
    """With `new` in the place of `old`, of which there are so many."""
    around = parts(text, old, where, of)
    return old.join(around[:which]) + new + old.join(around[which:])


def renamed(text, name):
    """A kernel as one of another name, in a namespace of its own, so that a program can have both."""
    text = re.sub(r"\bnamespace fa::\w+", f"namespace fa::{'k' * name[0].isdigit()}{name}", text)
    return re.sub(r'(registration\{\s*)"[^"]+"', rf'\1"{name}"', text)


def nearest(first, text):
    """Says which line has most of a line that is not there."""
    def shared(line):  # the part of it that the line has, in pieces of three characters or more
        blocks = difflib.SequenceMatcher(None, first, line, autojunk=False).get_matching_blocks()
        return sum(block.size for block in blocks if block.size >= 3) / max(len(first), 1)

    number, line = max(enumerate(text.split("\n"), 1), key=lambda numbered: shared(numbered[1]))
    return f"; the nearest is line {number}: '{line.strip(chr(0) + ' ')}'" if shared(line) > 0.5 else ""


# ---- solutions of exercises (scripts/fa solutions) -----------------------------------------------------------------------


def solutions():
    """The solutions that the chapters show, and the long ones of docs/solutions: for each name its places, each a list of
    lines with ' ', '-' or '+' before. Lines "@@ NAME" instead stand for the places of other solutions."""
    places_of = (SOLUTION, "[0-9][0-9]_*.md"), (PATCH, "solutions/*.diff")
    diffs = dict(found for form, files in places_of for file in sorted((ROOT / "docs").glob(files))
                 for found in form.findall(file.read_text(encoding="utf-8")))

    def places(diff):
        others = re.findall(r"^@@ (\w+)$", diff, re.MULTILINE)
        return [place for other in others for place in places(diffs[other])] or [
            place.split("\n") for place in diff.removesuffix("\n").split("\n@@\n")]

    return {name: places(diff) for name, diff in diffs.items()}


def written_in(name):
    """Where a solution is, and from which line on."""
    for file in (*(ROOT / "docs").glob(f"{name[:2]}_*.md"), ROOT / "docs" / "solutions" / f"{name[:2]}.diff"):
        for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), 1):
            if line in (f"@@ {name}", f"=== {name}"):
                return file, number
    raise KeyError(name)


def changed(text, places, undo=False):
    """The source with the places of a solution changed, or changed back. Refused if one is not there exactly once, or if the
    source has them all already; one that it has is left as it is."""
    def whole(lines):  # so that neighbours share no line break
        return "".join(f"\0{line}\n" for line in lines)

    text, there = whole(text.split("\n")), 0
    for place in places:
        old, new = (whole(line[1:] for line in place if line[:1] != left_out) for left_out in ("-+" if undo else "+-"))
        if text.count(old) != 1 and text.count(new) == 1:
            there += 1
        else:
            text = replaced(text, old, new, "the kernel")
    if there == len(places):
        raise Refused("is in the kernel already")
    return text.replace("\0", "").removesuffix("\n")
