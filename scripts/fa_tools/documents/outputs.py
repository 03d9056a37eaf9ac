"""Runs the commands whose output the documents show, and compares or rewrites the output in its place.

A fenced block of text whose first line is "$ " and a command shows what this command prints:

    ```text
    $ build/emulator/bin/layouts swizzle
    ...
    ```

bench/main_loops.json has what the instructions of two main loops are, from which a picture is drawn. And the notebook
ends the output of a cell with what bounds 05 and 06, which depends on committed times.

A new block needs its first line only. What differs between machines, or with every line of comment in a source, is
not shown: addresses, numbers of lines (kernels/08_swizzle.cu:…), threads. Neither is the table that the program broken
prints above its message. A block after <!-- needs: ... --> is left alone. Commands whose program is not here are left
out. So are those of scripts that ask nvcc, where it is missing or another version than the block names. Commands of
scripts belong to the preset emulator."""

import difflib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from fa_tools.tools import NOTEBOOK, ROOT, Parser, busy, fail, markdown_files, named, relative, text_of

NVCC = ("scripts/fa inspect", "scripts/fa ptxas")  # these need CUDA's tools
SETUP = 4  # and their exit code if one is missing
SCRIPTS = (*NVCC, "scripts/fa softmax", "scripts/fa intensity", "scripts/fa bounds", "scripts/fa compare", "scripts/fa profile")
SHOWN = re.compile(r"^(?P<head>(?P<ticks>`{3,})text\n\$ (?P<command>[^\n]+)\n)(?P<text>.*?)(?=^(?P=ticks)$)", re.MULTILINE | re.DOTALL)
LOOPS = ROOT / "bench" / "main_loops.json"  # for a picture: the opcodes of main loops
NEEDS = re.compile(r"<!-- needs: [^>]+ -->\s*\Z")
EXAMPLE = """examples:
  scripts/fa outputs docs/08_swizzle.md          run this document's commands, rewrite what differs
  scripts/fa outputs --check --only emulator     compare those of build/emulator; exit code 1 if one differs"""


def compiler(output):
    """What these scripts say of the compiler in their first line: '..., nvcc 13.0.88'."""
    match = re.match(r"\$ .*\n.*, (nvcc [\d.]+)\n", output)
    return match and match[1]


def printed(command):
    """What the command prints, or None if it lacks a tool."""
    done = subprocess.run(shlex.split(command), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          stdin=subprocess.DEVNULL, timeout=120, check=False, env={**os.environ, "FA_BUSY_AFTER": "600"})
    if command.startswith(NVCC) and done.returncode == SETUP:
        return None
    return normal(command, done.stdout, ROOT)


def normal(command, text, root):
    """What a command printed in the checkout `root`, without what differs between machines and between two versions of
    a source whose statements are the same."""
    words = shlex.split(command)
    text = text.replace(f"{root}/", "")
    # ccache with a base directory tells the debugger of sources as seen from the build's folder.
    text = re.sub(r"\bat (?:\.\./)+", "at ", text)
    # Not every machine has two cores; the results are the same.
    text = re.sub(r"\b\d+ threads?$", "2 threads", text, flags=re.MULTILINE)
    # What a debugger says of the machine rather than of the kernel. In layouts and encodings numbers are the point.
    if not any(word.endswith(("bin/layouts", "bin/one_wgmma")) or word == "--control" for word in words):
        text = re.sub(r"0x[0-9a-f]+", "0x...", text)
    text = without_line_numbers(text)
    if "--control" in words:  # the last column is the line of the source
        text = re.sub(r"^(addr .*?|[0-9a-f]{4,} .*?) +(?:line|\d+)$", r"\1", text, flags=re.MULTILINE)
    noise = ("[New Thread", "[Thread", "Using host", "Breakpoint 1 at", "warning: Error disabling address")
    lines = [line.rstrip() for line in text.splitlines() if not line.startswith(noise)]
    while lines and not lines[0]:
        lines.pop(0)
    if words[0].endswith("bin/broken"):  # its table says what the message below says again
        message = next((i for i, line in enumerate(lines) if line.startswith(f"{words[1]}: ")), 0)
        lines[:message] = ["..."] * bool(message)
    return "".join(f"{line}\n" for line in lines)


def without_line_numbers(text):
    """kernels/08_swizzle.cu:123, "line 123", "lines 12 to 34", and the numbers that a debugger puts before a line."""
    for place, shown in ((r"(?<=\w)(\.(?:cu|h|cpp)):\d+", r"\1:…"), (r"\bline \d+", "line …"), (r"\blines \d+ to \d+", "lines … to …"), (r"(?m)^\d+\t", "…\t")):
        text = re.sub(place, shown, text)
    return text


def opcodes(listing):
    """The main loop that scripts/fa inspect NN --loop lists: what each instruction is, in the order of issue."""
    return " ".join(re.sub(r"^@\S+ ", "", line[6:]).split(".")[0].split()[0] for line in listing.splitlines()[1:])


class Runner:
    """Runs each command once, however many documents show its output."""

    def __init__(self, only, scripts):
        self.only, self.scripts, self.known = only, scripts, {}
        self.skipped = set()

    def chosen(self, command, where):
        """Whether the command is one of those that were asked for."""
        words = shlex.split(command)
        programs = [word for word in words if word.startswith("build/")]
        script = " ".join(words[:2]) in SCRIPTS
        if not (programs or script):
            fail(f"{where}: the output's command runs none of {', '.join(SCRIPTS)}, or a program in build/")
        preset = "emulator" if script else Path(programs[0]).parts[1]
        return not (self.only and preset != self.only or self.scripts and not script)

    def output(self, command):
        """What it prints, or None if this machine lacks something that it needs."""
        if command not in self.known:
            program = next((word for word in shlex.split(command) if word.startswith("build/")), None)
            first = shlex.split(command)[0]
            here = program is None or (ROOT / program).exists() and (first == program or shutil.which(first))
            self.known[command] = printed(command) if here else None
        if self.known[command] is None:
            self.skipped.add(command)
        return self.known[command]

    def renewed(self, shown, where):
        """The text that belongs in the place of what the document shows."""
        command, old = shown["command"], shown["text"]
        if not self.chosen(command, where) or (text := self.output(command)) is None:
            return old
        was, now = (compiler(f"$ {command}\n{each}") for each in (old, text))
        if was and now and was != now:
            self.skipped.add(command)
            return old
        return text

    def loops(self, old):
        """The text that belongs into LOOPS."""
        data = json.loads(old)
        for kernel in data["kernels"]:
            command = f"scripts/fa inspect {kernel} --loop"
            if not self.chosen(command, relative(LOOPS)) or (text := self.output(command)) is None:
                continue
            if compiler(f"$ {command}\n{text}") == data["compiler"]:
                data["kernels"][kernel] = opcodes(text)
            else:
                self.skipped.add(command)
        return json.dumps(data, indent=1) + "\n"

    def notebook(self, old):
        """The text that belongs into NOTEBOOK: scripts/run.sh 05 06 ends with what scripts/fa bounds prints of them."""
        data = json.loads(old)
        lines = next(cell for cell in data["cells"] if cell["id"] == "compare")["outputs"][0]["text"]
        begin = next(i for i, line in enumerate(lines) if line.startswith("What bounds it: "))
        shown = {"command": "scripts/fa bounds 05 06", "text": "".join(lines[begin:])}
        lines[begin:] = self.renewed(shown, relative(NOTEBOOK)).splitlines(keepends=True)
        return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


@busy("running the commands whose output is shown")
def main():
    parser = Parser("outputs", __doc__, EXAMPLE)
    parser.add_argument("--check", action="store_true", help="change nothing, show what differs")
    parser.add_argument("--only", metavar="PRESET", help="only commands of build/PRESET")
    parser.add_argument("--scripts", action="store_true", help="only commands of scripts")
    parser.add_argument("files", nargs="*", metavar="FILE", help="Markdown files, or the notebook (default: all of the checkout)")
    args = parser.parse_args()
    runner, bad = Runner(args.only, args.scripts), 0
    of_json = {LOOPS: runner.loops, NOTEBOOK: runner.notebook}
    for path in [Path(name).resolve() for name in args.files] or [*markdown_files(), *filter(Path.exists, of_json)]:
        with named(path):
            old = text_of(path)

        def replaced(shown, old=old, path=path):
            if NEEDS.search(old[max(0, shown.start() - 200) : shown.start()]):
                return shown[0]
            where = f"{relative(path)}:{old.count(chr(10), 0, shown.start()) + 1}"
            return shown["head"] + runner.renewed(shown, where)

        new = of_json[path](old) if path in of_json else SHOWN.sub(replaced, old)
        if new == old:
            continue
        bad += 1
        if args.check:
            sys.stderr.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), relative(path), "now"))
        else:
            path.write_text(new, encoding="utf-8")
            print(f"updated {relative(path)}")
    if runner.skipped:
        print(f"{len(runner.skipped)} left out: their programs, or the compiler that they name, are not here")
    return 1 if bad and args.check else 0
