"""Renames a counter of the emulator: in its source, in the results that hold it, in tests, scripts and documents. Without
--write it only lists the files.

A name with an underscore, such as shared_wavefronts, means nothing else and is replaced wherever it is a word. A plain word,
such as ldmatrix, is replaced where it can only be the counter; the other places are listed, for you to look at."""

import re
import sys

from fa_tools.tools import ROOT, Parser, fail, relative, repository_files, write_whole

COUNTERS = ROOT / "common" / "emulator" / "counters.h"
EXAMPLE = """examples:
  scripts/fa rename shared_wavefronts shared_passes            which files, and how often
  scripts/fa rename shared_wavefronts shared_passes --write    do it; then scripts/fa sync and scripts/test.sh

Exit code: 0 done, 2 if there is no such counter or the new name is taken."""

# Where a plain word is the counter: in C++, in JSON and Python, and in the markers of documents.
ONLY = (r"(?<=Counters::){}\b", r"(?<=counters\.){}\b", r"(?<=counters->){}\b", r'(?<="){}(?=", &Counters::)',
        r"(?<=columns=){}\b", r"(?<=uint64_t ){}(?= = 0;)")
TEXT = {".cpp", ".h", ".cu", ".py", ".sh", ".json", ".jsonl", ".md", ".toml", ".txt", ".mjs", ".cmake"}


def counters():
    path = next(ROOT.glob("common/emulator/**/counters.h"), COUNTERS)
    return re.findall(r'{"(\w+)", &Counters::\1}', path.read_text(encoding="utf-8"))


def renamed(text, old, new, is_data):
    """The text with the counter's new name, how often it occurred, and how often the word is left."""
    if "_" in old:
        return *re.subn(rf"\b{old}\b", new, text), 0
    if is_data:  # a key of an object `counters`, which holds numbers only
        found = 0

        def keys(match):
            nonlocal found
            part, count = re.subn(rf'"{old}"(?=:)', f'"{new}"', match[0])
            found += count
            return part
        return re.sub(r'"counters":\s*{[^{}]*}', keys, text), found, 0
    found = 0
    for pattern in ONLY:
        text, count = re.subn(pattern.format(old), new, text)
        found += count
    return text, found, len(re.findall(rf"\b{old}\b", text))


def main():
    parser = Parser("rename", __doc__, EXAMPLE)
    parser.add_argument("old", help="a counter, as results files name it")
    parser.add_argument("new", help="its new name: lower case, digits and underscores")
    parser.add_argument("--write", action="store_true", help="rename it; without this the files are only listed")
    args = parser.parse_args()
    known = counters()
    if args.old not in known:
        fail(f"there is no counter '{args.old}'; there are {', '.join(known)}")
    if args.new in known or not re.fullmatch(r"[a-z][a-z0-9_]*", args.new):
        fail(f"'{args.new}' is {'taken' if args.new in known else 'no name for a counter'}")
    files = total = 0
    look = []
    for path in repository_files():
        if path.suffix not in TEXT or path.name == "CHANGELOG.md":
            continue
        text = path.read_text(encoding="utf-8")
        is_data = relative(path).startswith("bench/results/")
        new, count, left = renamed(text, args.old, args.new, is_data)
        if left:
            look.append(f"{relative(path)} ({left})")
        if not count:
            continue
        files, total = files + 1, total + count
        print(f"{count:6}  {relative(path)}")
        if args.write:
            write_whole(path, new)
    print(f"{total} in {files} files" + (f": {args.old} is {args.new} now" if args.write else ""))
    if look:
        print(f"The word {args.old} is left in: {', '.join(look)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
