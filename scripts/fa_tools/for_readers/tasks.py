"""The tasks of scripts/fa try: kernels with a hole, and kernels with a bug. tests/tasks/*.toml say where the hole is, what
belongs into it and which wrong answers are known; the code comes from the sources themselves, so it is never out of date."""

import re
import runpy
import textwrap

from fa_tools.patches import parts, replaced
from fa_tools.tools import ROOT, Refused, named, read_toml

FOLDER = ROOT / "tests" / "tasks"
GROUPS = {"warm_up": "Warm-up: small kernels", "cuda_cores": "CUDA cores, 01 to 03", "tensor_cores": "Tensor Cores, 04 to 10",
          "hopper": "Hopper, 11 to 16", "beyond": "Beyond the ladder", "cases": "Cases: somebody else's bug"}
KEYS = {"title": str, "task": str, "source": str, "read": str, "minutes": int, "holes": list, "hints": list, "wrong": list,
        "counters": list, "kernels": list, "problem": str, "bug": str, "symptom": str, "reveal": str}
COUNTERS = ["shared_wavefronts", "global_sectors"]  # what may not be above the reference's, unless a task says otherwise
MARK = re.compile(r"^ *// \[/?[a-z0-9-]+\]$")
WIDTH = 100
BEGIN, END = "==== your code", "==== end of your code"


def indent_of(lines):
    """The blanks before the first line that is no directive."""
    return re.match(" *", next(line for line in lines if line and line[0] != "#"))[0]


class Task:
    """One entry of the files in tests/tasks."""

    def __init__(self, name, group, entry):
        for key, value in entry.items():
            if key not in KEYS or not isinstance(value, KEYS[key]):
                raise Refused(f"has {key} = {value!r}, which says nothing")
        self.name, self.group, self.bug = name, group, entry.get("bug")
        needed = {"title", "minutes", "hints"} | ({"bug", "symptom", "reveal"} if group == "cases" else {"task", "holes", "wrong", "read"})
        if missing := sorted(needed - set(entry)):
            raise Refused(f"lacks '{missing[0]}'")
        if len(entry["hints"]) != 3:
            raise Refused(f"has {len(entry['hints'])} hints instead of 3")
        self.title, self.minutes, self.hints = entry["title"], entry["minutes"], entry["hints"]
        self.text, self.reveal = entry.get("task") or entry["symptom"], entry.get("reveal", "")
        self.holes, self.wrong = entry.get("holes", []), entry.get("wrong", [])
        self.counters = entry.get("counters", COUNTERS)
        self.problem, self.kernels = entry.get("problem", "").split(), entry.get("kernels")
        number = (self.bug or name)[:2]
        sources = [ROOT / entry["source"]] if "source" in entry else sorted((ROOT / "kernels").glob(f"{number}_*.cu"))
        if len(sources) != 1 or not sources[0].is_file():
            raise Refused("is about a source that is not there")
        self.source = sources[0]
        self.kernel = self.source.with_suffix(".cu")  # that includes the source, if that is a header
        self.number = {"kernels": number, "beyond": "beyond", "backward": "beyond"}.get(self.source.parent.name)  # of the kernel
        self.is_kernel = self.number is not None
        self.read = entry.get("read", f"{self.source.stem}.md")

    def is_of(self, kernel):
        """Whether it is a task of this kernel, which a reader calls 5, 05, causal or beyond/causal; cases belong to none."""
        own = {self.number, *([self.source.stem, f"beyond/{self.source.stem}"] if self.number == "beyond" else [])}
        return self.is_kernel and not self.bug and kernel.zfill(2) in own

    def lines(self):
        return self.source.read_text(encoding="utf-8").removesuffix("\n").split("\n")

    def ranges(self, lines):
        """[first, end) of each hole in the source's lines."""
        found, text = [], "\n".join(lines)
        for hole in self.holes:
            region = hole.get("region")
            begin, end = (f"// [{region}]\n", f"// [/{region}]") if region else (hole["from"], hole["to"])
            before, behind = parts(text, begin, self.source.name)
            inside, there, _ = (behind if region else begin + behind).partition(end)
            if not there:
                raise Refused(f"has a hole to '{end}', which does not come after its beginning")
            first = before.count("\n") + bool(region)
            found.append((first, first + inside.count("\n") + (not region)))
        if found != sorted(found):
            raise Refused("has holes that are not in the order of the source")
        return found

    def filled(self, contents, marked=False):
        """The source with these lines in the holes; without the marks of the chapters' excerpts. `marked`: the reader sees
        where the holes are."""
        lines = self.lines()
        if not self.holes:
            return "\n".join(line for line in contents or lines if not MARK.match(line)) + "\n"
        result, end = [], 0
        for number, ((first, after), content) in enumerate(zip(self.ranges(lines), contents)):
            indent = indent_of(lines[first:after])
            result += lines[end:first]
            if marked:
                result.append(f"{indent}// {BEGIN}{f', part {number + 1}' if len(contents) > 1 else ''} ".ljust(WIDTH, "="))
                if text := self.holes[number].get("task", "" if number else self.text):
                    result += comment(text, indent)
            result += content
            if marked:
                result.append(f"{indent}// {END} ".ljust(WIDTH, "="))
            end = after
        return "\n".join(line for line in result + lines[end:] if not MARK.match(line)) + "\n"

    def unit(self, text, name):
        """What is compiled of a text, which messages call `name`: of a header the kernel around it."""
        if self.kernel == self.source:
            return text
        include, done = f'#include "{self.source.relative_to(ROOT)}"', set()

        def whole(its_name, its_text):
            """With the headers in it that include the source, and the text in the source's place."""
            def inner(found):
                header = ROOT / found[1]
                lines = text if header == self.source else header.read_text(encoding="utf-8")
                if header != self.source and include not in lines:
                    return found[0]
                own = "" if header in done else whole(name if header == self.source else header, lines)
                done.add(header)
                return f'{own}\n#line {its_text.count(chr(10), 0, found.start()) + 2} "{its_name}"'

            return f'#line 1 "{its_name}"\n' + re.sub(r'^#include "(kernels/.*)"$', inner, its_text, flags=re.M)

        return whole(self.kernel, self.kernel.read_text(encoding="utf-8")).replace("#pragma once\n", "\n")

    def answer(self):
        """What stands in the holes of the source."""
        lines = self.lines()
        return [lines[first:after] for first, after in self.ranges(lines)]

    def reference(self):
        return self.filled(self.answer())

    def start(self):
        """What the reader begins with."""
        if self.bug:
            make = runpy.run_path(str(ROOT / "tests" / "broken" / "make.py"))
            bugs = make["read_bugs"]()
            if self.bug not in bugs:
                raise Refused(f"is the bug {self.bug}, which tests/broken/bugs.toml does not have")
            try:
                lines = make["broken"](self.bug, bugs[self.bug]).removesuffix("\n").split("\n")
            except Refused as problem:
                raise Refused(f"is about the bug {problem}") from None
            return self.filled([part for line in lines for part in in_columns(line)])
        lines = self.lines()
        contents = []
        for hole, (first, after) in zip(self.holes, self.ranges(lines)):
            indent = indent_of(lines[first:after])
            given = textwrap.dedent(hole.get("start", "")).strip("\n")
            given = textwrap.indent(given, indent, lambda line: line.strip() and not line.startswith("#"))
            contents.append(given.split("\n") if given else [])
        return self.filled(contents, marked=True)

    def wrong_answer(self, wrong):
        """The reference with one of the known mistakes."""
        answer = "\0".join("\n".join(part) for part in self.answer())
        answer = replaced(answer, wrong["text"], wrong.get("replacement", ""), "the hole")
        return self.filled([part.split("\n") for part in answer.split("\0")])


def in_columns(line):
    """The line of code, or two: bugs keep the number of lines, and a long one would give them away."""
    if len(line) <= WIDTH:
        return [line]
    at = line.rindex(" ", 0, WIDTH)
    return [line[:at], " " * (len(line) - len(line.lstrip()) + 4) + line[at + 1 :]]


def comment(text, indent):
    """Paragraphs as comment lines; lines that begin with two spaces stay as they are."""
    lines = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if lines:
            lines.append(f"{indent}//")
        plain = []
        for line in [*paragraph.split("\n"), None]:
            if line is not None and not line.startswith("  "):
                plain.append(line)
                continue
            if plain:
                lines += textwrap.wrap(" ".join(plain), WIDTH, initial_indent=f"{indent}// ", subsequent_indent=f"{indent}// ",
                                       break_on_hyphens=False)
                plain = []
            if line is not None:
                lines.append(f"{indent}// {line}")
    return lines


def read_tasks():
    """All tasks by name, in the order in which one does them."""
    tasks = {}
    for group in GROUPS:
        path = FOLDER / f"{group}.toml"
        for name, entry in read_toml(path).items() if path.is_file() else ():
            with named(f"tests/tasks/{path.name}: {name}"):
                tasks[name] = Task(name, group, entry)
    return tasks
