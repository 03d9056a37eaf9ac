#!/usr/bin/env python3
"""Follows a document to the letter: runs its commands in their order in a checkout of their own, and compares what
they print with what the document shows.

A command is a line of a fence of bash, a line of another fence that begins with "$ " (the lines behind it are what it
prints), or words in backticks that begin with a program or script and have an argument. One that cannot run here, or
takes long, says what it needs in a comment before its fence or its backticks:

    <!-- needs: gpu -->     gpu, nvcc, network, time, hours, or in words what else (your own files)

Such a command is looked at: its script or program, options, presets, targets and files must be there. Presets for a
GPU or a debugger need no comment, and neither does what calls nvcc.

A link to a section that says how a program is built, #the-program-NAME, stands for the commands there: the reader follows
it first.

Programs are those of the build that the test belongs to (tests/commands/cmake); with --real everything is built, and
what needs only time is run as well, and so is what calls nvcc, if it and nvdisasm are here."""

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))  # where the package fa_tools is
from fa_tools.documents.links import slug
from fa_tools.documents.outputs import NVCC, SETUP, compiler, normal
from fa_tools.tools import repository_files

Command = namedtuple("Command", "line text shown needs")

FENCE = re.compile(r"^( *)(```+|~~~+)(\w*)[^\n]*\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
NEEDS = re.compile(r"<!-- needs: ([^>]+) -->\s*(?:<!-- [^>]* -->\s*)?\Z")
SPAN = re.compile(r"(?<![`\\])`([^`]+)`(?!`)")
PROGRAM = re.compile(r"(scripts/|build/\S+/bin/)\S+|python3|cmake|ctest|git|gdb|cuobjdump|nvdisasm|ncu")
PLACEHOLDER = re.compile(r" [A-Z]{2,}\b")  # scripts/run.sh --broken NAME is a pattern, no command
BUILT_THERE = re.compile(r"\[[^\]]+\]\(([\w./]+\.md)#(the-program-[\w-]+)\)")
SEPARATORS = ("&&", "||", ";", "|")


def commands_in(text):
    """The document's commands in their order."""
    found = []

    def add(at, command, shown, before):
        needs = NEEDS.search(before)
        found.append((at, Command(text.count("\n", 0, at) + 1, command, shown, needs and needs[1].strip())))

    for fence in FENCE.finditer(text):
        body, before = fence[4], text[max(0, fence.start() - 200) : fence.start()]
        body = re.sub(rf"^{fence[1]}", "", body, flags=re.MULTILINE)
        if fence[3] == "bash":
            for line in body.replace("\\\n", " ").splitlines():
                if shlex.split(line, comments=True):
                    add(fence.start(), line.strip(), None, before)
        elif body.startswith("$ "):
            command, _, shown = body[2:].partition("\n")
            add(fence.start(), command, shown, before)
    # The same length, so that places stay: inline commands of what is neither fence nor comment.
    prose = FENCE.sub(lambda fence: re.sub(r"[^\n]", " ", fence[0]), text)
    for span in SPAN.finditer(prose):
        words = " ".join(span[1].split())
        # `scripts/fa bench` names a command, as `scripts/run.sh` does; with arguments it is one.
        named = " " not in words.removeprefix("scripts/fa ")
        if "\n\n" not in span[1] and PROGRAM.match(words) and not named and not PLACEHOLDER.search(words):
            add(span.start(), words, None, prose[max(0, span.start() - 200) : span.start()])
    return [command for _, command in sorted(found, key=lambda each: each[0])]


def with_linked(text, folder):
    """The text of a document in this folder, with the commands of a section behind each link that stands for them."""
    def commands(link):
        seen = {}
        for part in re.split(r"^#+ ", (folder / link[1]).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            if slug(part.partition("\n")[0], seen) == link[2]:
                return link[0] + "".join(f" `{command.text}`" for command in commands_in(part))
        return link[0]

    return BUILT_THERE.sub(commands, text)


def words_of(command):
    """The words of each program that a line starts."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    parts = [[]]
    for word in lexer:
        if word in SEPARATORS:
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def needed(command):
    """What it needs beside this machine, or None."""
    if command.needs:
        return command.needs
    for words in words_of(command.text):
        line = " ".join(words)
        if re.search(r"(--preset |build/)cuda", line):
            return "gpu"
        if "emulator-debug" in line:
            return "time"
        if " ".join(words[:2]) in NVCC:
            return "nvcc"
    return None


class Lacking(Exception):
    """What a command needs is not here, as it says itself."""


class Checkout:
    def __init__(self, folder, build, real):
        self.root, self.real = Path(folder).resolve(), real
        for source in repository_files():
            target = self.root / source.relative_to(ROOT)
            if not source.is_file() or target.exists() and target.read_bytes() == source.read_bytes():
                continue
            changed = target.exists()
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
            if changed:  # by a command of the document before: what was built from that is older now
                os.utime(target)
        if shutil.which("git") and not (self.root / ".git").exists():
            # Below another repository git apply would leave these files alone.
            subprocess.run(["git", "init", "-q"], cwd=self.root, check=True, timeout=60)
        self.environment = {**os.environ, "PIP_NO_INDEX": "1", "NO_COLOR": "1", "FA_BUSY_AFTER": "3000", "FA_COMMANDS_BUILD": str(build)}
        stands = self.root / "build" / "stands"  # programs in place of this machine's
        stands.mkdir(parents=True, exist_ok=True)
        no_gpu = stands / "nvidia-smi"  # the commands run on the emulator, whatever the machine has
        no_gpu.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
        no_gpu.chmod(0o755)
        if not real:
            (stands / "cmake").symlink_to(ROOT / "tests" / "commands" / "cmake")
        elif shutil.which("ccache"):  # it takes the paths for the same
            self.environment.update(CMAKE_CXX_COMPILER_LAUNCHER="ccache", CCACHE_BASEDIR=str(self.root), CCACHE_NOHASHDIR="1")
        self.environment["PATH"] = os.pathsep.join([str(stands), self.environment["PATH"]])
        self.link_venv()

    def link_venv(self):
        """The chart tools of this checkout, as if scripts/run.sh had installed them."""
        venv = self.root / ".venv"
        if (ROOT / ".venv" / "bin").exists() and not venv.exists():
            venv.mkdir()
            for part in (ROOT / ".venv").iterdir():
                if part.name != "complete":
                    (venv / part.name).symlink_to(part.resolve())
            self.run(". scripts/lib/common.sh; venv_stamp .venv >.venv/complete", 60)

    def run(self, command, seconds):
        """Exit code and output; a command that does not end is stopped with all that it has started."""
        with subprocess.Popen(["bash", "-c", command], cwd=self.root, env=self.environment, start_new_session=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True) as process:
            try:
                output = process.communicate(timeout=seconds)[0]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return -1, f"did not end within {seconds} s"
            return process.returncode, output

    def problem_when_run(self, command):
        code, output = self.run(command.text, 3000 if self.real else 300)
        nvcc = needed(command) == "nvcc"
        if nvcc and code == SETUP:
            raise Lacking("CUDA's tools")
        if command.shown is not None:
            now = normal(command.text, output, self.root)
            shown_by, now_by = (compiler(f"$ {command.text}\n{text}") for text in (command.shown, now))
            if nvcc and shown_by and now_by and shown_by != now_by:
                raise Lacking(shown_by)
            if now != command.shown:
                return f"the document shows\n{command.shown}and it prints\n{now}"
        elif code:
            return f"exit code {code}\n{output[-2000:]}"
        return None

    # ---- what is looked at instead ---------------------------------------------------------------------
    def help_of(self, words):
        """The text that names the options of a script or program, or None if the program is not here."""
        program = words[0]
        if program == "git" and shutil.which("git"):  # -h of apply; --help is a page to read
            return self.run(f"git {words[1]} -h", 60)[1]
        if program.startswith("scripts/"):
            asked = f"{program} {words[1]}" if program == "scripts/fa" and words[1:] else program
            texts = [self.run(f"{asked} --help", 60)[1]]
            if asked in ("scripts/run.sh", "scripts/fa run"):  # and of the program that it starts
                target = "--preset emulator --target attention"
                texts.append(self.run(f"cmake --preset emulator && cmake --build {target} && "
                                      "build/emulator/bin/attention --help", 600)[1])
            return "\n".join(texts)
        if shutil.which(program) is None:
            return None
        return self.run(f"{program} --help", 60)[1]

    def problem_when_looked_at(self, command):
        presets = re.findall(r'{"name": "([\w-]+)", "configurePreset"', (self.root / "CMakePresets.json").read_text())
        # What the test's own build has, what it has under another name, and the shared library.
        programs = {"meet", "fa", *os.listdir(Path(self.environment["FA_COMMANDS_BUILD"]) / "bin")}
        for words in words_of(command.text):
            program = words[0]
            options = [word.split("=")[0] for word in words[1:] if re.match(r"--?[a-zA-Z]", word)]
            paths = [word for word in words if "/" in word and not word.startswith("-")]
            if program.startswith("scripts/") and not os.access(self.root / program, os.X_OK):
                return f"{program} is not a program"
            if program == "cmake":
                by = "--preset" if "--preset" in words else "--install"  # the latter by its folder, build/PRESET
                preset = words[words.index(by) + 1].removeprefix("build/")
                if preset not in presets:
                    return f"there is no preset {preset}"
                unknown = set(words[words.index("--target") + 1 :] if "--target" in words else ()) - programs
                if unknown:
                    return f"there is no target {min(unknown)}"
                options = []
            if program.startswith("build/"):
                options = []  # of a program that no machine here can run
            if options:
                text = self.help_of(words)
                unknown = [option for option in options if text is not None and
                           not re.search(rf"(?<![\w-])-?{re.escape(option)}\b", text)]
                if unknown:
                    asked = f"{program} {words[1]}" if program == "scripts/fa" else program
                    return f"{asked} --help does not know {unknown[0]}"
            for path in paths:
                parts = path.split("/")
                if parts[0] == "build" and len(parts) > 3:
                    if parts[1] not in presets or parts[2] == "bin" and parts[3] not in programs:
                        return f"nothing builds {path}"
                elif parts[0] not in ("build", "results") and not (self.root / path).exists():
                    return f"there is no {path}"
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("document", type=Path)
    parser.add_argument("build", type=Path, help="a build of the preset emulator")
    parser.add_argument("--real", action="store_true", help="build everything, run what takes time as well")
    args = parser.parse_args()
    document = args.document.resolve()
    text = document.read_text(encoding="utf-8")
    commands = commands_in(with_linked(text, document.parent))
    if not commands and "```bash" in text:
        sys.exit(f"no command was found in {document.name}")
    build = args.build.resolve()
    folder = build / "commands" / "real" if args.real else tempfile.mkdtemp(prefix=f"{document.stem}-", dir=build)
    failures = ran = 0
    try:
        checkout = Checkout(folder, build, args.real)
        for command in commands:
            needs = needed(command)
            run = needs is None or args.real and (needs == "time" or needs == "nvcc" and command.text.startswith(NVCC))
            try:
                problem = checkout.problem_when_run(command) if run else None
            except Lacking as what:
                run, needs = False, what
            if not run:
                problem = checkout.problem_when_looked_at(command)
            ran += run
            looked_at = "" if run else f"   (needs {needs}: looked at)"
            print(f"{document.name}:{command.line}: {command.text}{looked_at}", flush=True)
            if problem:
                failures += 1
                print(f"FAILED: {problem}", flush=True)
    finally:
        if not args.real:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(commands)} commands, {ran} run, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
