#!/usr/bin/env python3
"""Runs the commands that the chapters show and keeps what they print: docs/outputs/NAME.txt has the command in its
first line, behind "$ ", and its output below. scripts/sync_docs.py copies these files into the Markdown.

Commands whose program is not here are left out. So are those of scripts that ask nvcc, where it is missing or another
version than the one that the file names. Commands of scripts belong to the preset emulator."""

import argparse
import difflib
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
from tools import ROOT, fail, relative  # noqa: E402

OUTPUTS = ROOT / "docs" / "outputs"
NVCC = ("scripts/inspect.sh", "scripts/instructions.py", "scripts/ptxas.py")  # these need CUDA's tools
SETUP = 4  # and their exit code if one is missing
SCRIPTS = (*NVCC, "scripts/bounds.sh", "scripts/reproduce.py", "scripts/compare.sh", "scripts/profile.sh")
PYTHON = ("scripts/", "docs/solutions/")  # python3 and a program there
EXAMPLE = """examples:
  scripts/outputs.py                             run all, rewrite what differs
  scripts/outputs.py --check --only emulator     compare those of build/emulator; exit code 1 if one differs

Another one: echo '$ scripts/inspect.sh 09' > docs/outputs/09_instructions.txt && scripts/outputs.py"""


def compiler(output):
    """What these scripts say of the compiler in their first line: '..., nvcc 13.0.88'."""
    match = re.match(r"\$ .*\n.*, (nvcc [\d.]+)\n", output)
    return match and match[1]


def output_of(command):
    """The command and what it prints, or None if it lacks a tool."""
    done = subprocess.run(shlex.split(command), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          stdin=subprocess.DEVNULL, timeout=120, check=False)
    if command.startswith(NVCC) and done.returncode == SETUP:
        return None
    return f"$ {command}\n{normal(command, done.stdout, ROOT)}"


def normal(command, text, root):
    """What a command printed in the checkout `root`, without what differs between machines."""
    text = text.replace(f"{root}/", "")
    # ccache with a base directory tells the debugger of sources as seen from the build's folder.
    text = re.sub(r"\bat (?:\.\./)+", "at ", text)
    # Not every machine has two cores; the results are the same.
    text = re.sub(r"\b\d+ threads?$", "2 threads", text, flags=re.MULTILINE)
    # What a debugger says of the machine rather than of the kernel. In layouts and encodings numbers are the point.
    if not any(word.endswith("bin/layouts") or word == "--control" for word in shlex.split(command)):
        text = re.sub(r"0x[0-9a-f]+", "0x...", text)
    noise = ("[New Thread", "[Thread", "Using host", "Breakpoint 1 at", "warning: Error disabling address")
    lines = [line.rstrip() for line in text.splitlines() if not line.startswith(noise)]
    while lines and not lines[0]:
        lines.pop(0)
    return "".join(f"{line}\n" for line in lines)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing, show what differs")
    parser.add_argument("--only", metavar="PRESET", help="only commands of build/PRESET")
    parser.add_argument("--scripts", action="store_true", help="only commands of scripts")
    args = parser.parse_args()
    bad = skipped = 0
    for path in sorted(OUTPUTS.glob("*.txt")):
        old = path.read_text(encoding="utf-8")
        command = old.split("\n")[0]
        words = shlex.split(command)[1:]
        programs = [word for word in words if word.startswith("build/")]
        inspects, scripts = bool(words) and words[0] in NVCC, words[:1] and words[0] in SCRIPTS
        scripts = scripts or words[:1] == ["python3"] and words[1:] and words[1].startswith(PYTHON)
        if not command.startswith("$ ") or not (programs or scripts):
            fail(f"{relative(path)} does not begin with '$ ' and a command that runs {', '.join(SCRIPTS)}, python3 with a "
                 f"program in {' or '.join(PYTHON)}, or a program in build/")
        preset = "emulator" if scripts else Path(programs[0]).parts[1]
        if args.only and preset != args.only or args.scripts and not scripts:
            continue
        here = scripts or (ROOT / programs[0]).exists() and (words[0] == programs[0] or shutil.which(words[0]))
        new = output_of(command[2:]) if here else None
        if new is None or inspects and compiler(old) and compiler(new) and compiler(new) != compiler(old):
            skipped += 1
            continue
        if new == old:
            continue
        bad += 1
        if args.check:
            name = relative(path)
            sys.stderr.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), name, "now"))
        else:
            path.write_text(new, encoding="utf-8")
            print(f"updated {relative(path)}")
    if skipped:
        print(f"{skipped} left out: their programs, or the compiler that they name, are not here")
    return 1 if bad and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
