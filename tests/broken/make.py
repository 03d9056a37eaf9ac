#!/usr/bin/env python3
"""Makes kernels with one bug each out of the real sources, as bugs.toml says. Tests: tests/scripts/test_broken.py.

Usage: make.py --list                       prints all bugs, a line each, parts divided by tabs: name, kernel, sentence
       make.py --source UNIT NAME...        writes a source of each bug, NAME.cu, beside UNIT, which includes them all
       make.py --meet NAME                  prints the bug's sentence and what it changes in the kernel; of `list`, all names
       make.py --check                      prints every bug that its kernel no longer has room for, and every recorded
                                            report that names a statement of before

A kernel changes, and a bug's text is no longer in it: --source then writes an empty NAME.cu, so that everything else is
built and tested, and --check, which is the test bugs.fit, says what to mend.

Example: tests/broken/make.py --meet 02_no_rescale      as scripts/run.sh --broken does
Exit code: 0 done, 1 --check has found a bug that does not fit, 2 bugs.toml or the arguments say something that is not so."""

import difflib
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent.parent / "scripts"))  # where the package fa_tools is

from fa_tools.patches import parts, replaced
from fa_tools.tools import Refused, fail, named, read_toml, run

KERNELS = HERE.parent.parent / "kernels"
CHECKS = "ordinary inputs, hard inputs, report, counters".split(", ")
TYPES = {"bf16": "__nv_bfloat16", "fp16": "__half"}
KEYS = {"what": str, "file": str, "text": str, "replacement": str, "which": list, "shown_by": str, "dtypes": list, "problem": str,
        "sms": int, "launches": int}
INCLUDE = re.compile(r'^#include "kernels/(.*)"$', re.MULTILINE)  # of a header that belongs to a kernel


def read_bugs():
    """The bugs of bugs.toml by name, each with its kernel."""
    bugs = read_toml(HERE / "bugs.toml")
    for name, bug in bugs.items():
        check(name, bug)
    return bugs


def check(name, bug):
    for key, value in bug.items():
        if key not in KEYS or not isinstance(value, KEYS[key]):
            fail(f"tests/broken/bugs.toml: {name} has {key} = {value!r}, which says nothing")
    for key in ("what", "text"):
        if key not in bug:
            fail(f"tests/broken/bugs.toml: {name} lacks '{key}'")
    kernels = [*KERNELS.glob(f"{name[:2]}_*.cu"),
               *(path for folder in ("beyond", "backward") for path in KERNELS.glob(f"{folder}/*.cu") if name.startswith(f"{path.stem}_"))]
    if not kernels:
        fail(f"tests/broken/bugs.toml: there is no kernel for {name}")
    bug["kernel"] = max(kernels, key=lambda path: len(path.stem)).relative_to(KERNELS).with_suffix("").as_posix()
    bug["files"] = files_of(f"{bug['kernel']}.cu")
    if bug.setdefault("file", bug["files"][-1]) not in bug["files"]:
        fail(f"tests/broken/bugs.toml: {name} is in '{bug['file']}', which is none of {', '.join(bug['files'])}")
    bug.setdefault("replacement", "")
    if bug.setdefault("shown_by", "report") not in CHECKS:
        fail(f"tests/broken/bugs.toml: {name} is shown by '{bug['shown_by']}', which is none of {', '.join(CHECKS)}")
    for each in bug.setdefault("dtypes", ["bf16"]):
        if each not in TYPES:
            fail(f"tests/broken/bugs.toml: {name} has the type '{each}', but there are {', '.join(TYPES)}")
    if bug["text"].count("\n") != bug["replacement"].count("\n"):
        fail(f"tests/broken/bugs.toml: {name} replaces a text by one with another number of lines")


def files_of(file):
    """The headers in kernels/ with a kernel's namespace that a file there includes, each behind those that it includes itself; then
    the file."""
    headers = [header for header in INCLUDE.findall((KERNELS / file).read_text(encoding="utf-8"))
               if "\nnamespace fa::" in (KERNELS / header).read_text(encoding="utf-8")]
    return list(dict.fromkeys([*(each for header in headers for each in files_of(header)), file]))


def broken(name, bug):
    """The file with the bug."""
    source = (KERNELS / bug["file"]).read_text(encoding="utf-8")
    with named(name):
        return replaced(source, bug["text"], bug["replacement"], f"kernels/{bug['file']}", *bug.get("which", [1, 1]))


def declaration(name, bug):
    """What the tests must know of it travels with the bug: see bug.h."""
    return (f"const broken::Declaration bug{{{{.name = \"{name}\", .kernel = \"{bug['kernel']}\",\n"
            f"    .what = R\"({bug['what']})\", .shown_by = \"{bug['shown_by']}\",\n"
            f"    .fp16 = {str(bug['dtypes'][0] == 'fp16').lower()}, .problem = \"{bug.get('problem', '')}\",\n"
            f"    .sms = {bug.get('sms', 0)}, .launches = {bug.get('launches', 1)}}}}};\n")


def rename(name, bug, source, old, new):
    with named(name):
        return new.join(parts(source, old, f"kernels/{bug['kernel']}.cu", max(1, source.count(old))))


def source_of(name, bug):
    """The broken kernel in a namespace of its own, with its headers. A header with the bug comes first, and so every line of it
    keeps its number, as every line of a kernel without headers does."""
    files = sorted(bug["files"], key=lambda each: each != bug["file"] and bug["file"].endswith(".h"))
    source = "".join(broken(name, bug) if each == bug["file"] else (KERNELS / each).read_text(encoding="utf-8") for each in files)
    source = INCLUDE.sub(lambda line: "" if line[1] in files else line[0], source).replace("#pragma once", "")
    gradients = bug["kernel"].startswith("backward/")  # in a list of their own, and named without the folder
    source = rename(name, bug, source, f"common/launch/{'gradients' if gradients else 'registry'}.h", "tests/broken/bug.h")
    types = ", ".join(TYPES[each] for each in bug["dtypes"])
    source = re.sub(r"(?<=Registration<)\w+", rf"broken::Only<\g<0>, {types}>::Of", source)
    source = rename(name, bug, source, f'"{bug["kernel"].removeprefix("backward/")}"', f'"{name}"')
    source = re.sub(r"a\.contiguous \? (run\w*<.*?>\(a\)) : run\w*<.*?>\(a\);", r"\1;", source)  # see Only in bug.h
    if re.search(r"a\.contiguous\s*\?", source):
        raise Refused(f"{name} needs 'a.contiguous ?' and both calls behind it in one line of kernels/{bug['kernel']}.cu")
    ends = re.findall(r"^}  // namespace fa::(\w+)$", source, re.MULTILINE) or ["?"]
    source = rename(name, bug, source, f"namespace fa::{ends[-1]}", f"namespace fa::broken_{name}")
    source = re.sub(rf"\b{ends[-1]}::", f"broken_{name}::", source)
    source = re.sub(rf"namespace fa::(?!broken_{name}\b)", f"namespace fa::broken_{name}::", source)
    before, end, after = source.rpartition(f"}}  // namespace fa::broken_{name}")
    return before + declaration(name, bug) + end + after


def source_or_nothing(name, bug):
    """The source of a bug that fits, otherwise a comment: one bug must not stop the build of all."""
    try:
        return source_of(name, bug)
    except Refused as problem:
        return "".join(f"// {line}\n" for line in str(problem).split("\n"))


def misfits(bugs):
    """A line `tests/broken/bugs.toml:LINE: sentence` for each bug that does not fit its kernel, and one for each whose report of
    facts.json names a statement that is not there: after a renaming, say, which scripts/fa adopt then writes down."""
    facts = HERE / "facts.json"
    facts = {each["name"]: each for each in json.loads(facts.read_text(encoding="utf-8"))} if facts.exists() else {}
    lines = (HERE / "bugs.toml").read_text(encoding="utf-8").split("\n")
    for name, bug in bugs.items():
        try:
            source = " ".join(source_of(name, bug).split())
            for statement in facts.get(name, {}).get("at", []):
                if " ".join(statement.split()) not in source:
                    raise Refused(f"the report of {name} names '{statement}', which the kernel does not have; "
                                  f"meet_checked {name} --write writes it anew")
        except Refused as problem:
            line = next(i for i, line in enumerate(lines, 1) if re.match(rf'\["?{name}"?\]', line))
            yield f"tests/broken/bugs.toml:{line}: {problem}"


def meet(wish, bugs):
    if wish == "list":
        for name, bug in bugs.items():
            print(textwrap.fill(f"{name:<26}  {bug['what']}", 100, subsequent_indent=" " * 28, break_on_hyphens=False))
        return
    if wish not in bugs:
        near = difflib.get_close_matches(wish, bugs, 3, 0.4)
        near += [name for name in bugs if wish in name and name not in near]
        names = f"; the nearest names: {', '.join(near[:3])}" if near else ""
        fail(f"there is no bug '{wish}'{names}; scripts/run.sh --broken list shows all")
    bug = bugs[wish]
    kernel = f"kernels/{bug['file']}"
    try:
        # A line of which nothing is left is no line of the diff.
        source = re.sub(r"\n +\n", "\n", broken(wish, bug))
    except Refused as problem:
        fail(problem)
    print(f"{wish}: {bug['kernel']} with one bug. {bug['what']}\n", flush=True)
    colour = "never" if os.environ.get("NO_COLOR") else "auto"
    subprocess.run(["diff", "-u", f"--color={colour}", "--label", kernel, "--label", wish, KERNELS.parent / kernel, "-"], input=source,
                   text=True, check=False, timeout=60)
    print()


def write(path, text):
    path = Path(path)
    if not path.exists() or path.read_text(encoding="utf-8") != text:  # else nothing need be compiled again
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main(arguments):
    if arguments[:1] in ([], ["-h"], ["--help"]):
        print(__doc__)
        return
    bugs = read_bugs()
    if arguments == ["--list"]:
        # At once, so that a reader such as grep -q may stop before the end.
        sys.stdout.write("".join(f"{name}\t{bug['kernel']}\t{bug['what']}\n" for name, bug in bugs.items()))
        return
    if arguments == ["--check"]:
        found = list(misfits(bugs))
        print(*found, f"{len(bugs) - len(found)} of {len(bugs)} bugs fit their kernels", sep="\n")
        return bool(found)
    if arguments[0] == "--meet" and len(arguments) == 2:
        meet(arguments[1], bugs)
        return
    names = arguments[2:]
    for name in names:
        if name not in bugs:
            fail(f"there is no bug '{name}'; --list shows all")
    if arguments[0] == "--source" and names:
        sources = {name: source_or_nothing(name, bugs[name]) for name in names}
        for name, source in sources.items():
            write(Path(arguments[1]).parent / f"{name}.cu", source)
        write(arguments[1], "".join(f'#include "{name}.cu"\n' for name in names))
    else:
        fail("the arguments are --list, --check, --source UNIT NAME... or --meet NAME; --help shows an example")


if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
