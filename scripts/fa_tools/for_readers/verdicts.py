"""scripts/fa emulate --json, --at-most and --github: what a program's kernels did, for machines."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from fa_tools.tools import CONTROL, lines_of, write_whole

RATIOS = {"wavefronts": "shared_wavefronts", "sectors": "global_sectors"}  # per ideal one: of which counter
PLACE = re.compile(r"(\S+):(\d+)(?![\w.])")


def limit(text):
    """Of --at-most: (the kernel that it is for, or "" for all; the counter's name; the most)."""
    found = re.fullmatch(r"(?:(.+):)?([a-z]\w*)=(\d{1,18}(?:\.\d{1,9})?)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no limit such as sectors=1.1, barriers=64 or my_kernel:sectors=2")
    return found[1] or "", found[2], float(found[3])


def is_for(kernel, name):
    """Whether a limit of this name is for the kernel; that of a template is for all that become of it."""
    return name in ("", kernel["kernel"], kernel["kernel"].partition("<")[0])


def run(command, arguments, file):
    """Runs the program, whose error output is shown as it comes. Returns its exit code, its kernels and its reports."""
    with tempfile.TemporaryDirectory() as folder:
        counted = Path(folder) / "counts.json"
        said = b""
        with subprocess.Popen([file, *arguments], executable=command, stderr=subprocess.PIPE,
                              env={**os.environ, "FA_EMULATOR_JSON": str(counted)}) as process:
            while chunk := os.read(process.stderr.fileno(), 65536):
                sys.stderr.buffer.write(chunk)
                sys.stderr.flush()
                said = (said + chunk)[-65536:]
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode  # as a shell says it
        if counted.is_file():
            found = json.loads(counted.read_text(encoding="utf-8"))
            return code, found["kernels"], found["reports"]
    # A fault or abort() has ended it before it could write.
    reports = re.findall(r"^error: (.*(?:\n  .*)*)", said.decode(errors="replace"), re.M)
    by_signal = [f"the program was ended by {signal.Signals(-process.returncode).name}"] if process.returncode < 0 else []
    return code, [], reports or by_signal or (["the program has ended without counts"] if code else [])


def place_in(text):
    """{"file", "line"} of the first access that a report names, or of the first place."""
    place = re.search(rf"^  .*? at {PLACE.pattern}", text, re.M) or PLACE.search(text)
    return {"file": place[1], "line": int(place[2])} if place else {}


def with_ratios(kernel):
    """The kernel's record, with wavefronts and sectors per ideal one, in all and of each line."""
    counters = kernel.get("counters", {})
    ratios = {name: counters[total] / counters[f"{total}_ideal"] for name, total in RATIOS.items() if counters.get(f"{total}_ideal")}
    lines = []
    for line in kernel["lines"]:
        file, _, number = line["at"].rpartition(":")
        own = {name: round(line[name] / line[f"{name}_ideal"], 4) for name in RATIOS if line.get(f"{name}_ideal")}
        lines.append({**({"file": file, "line": int(number)} if number.isdigit() else {}),
                      **{key: value for key, value in line.items() if key != "at"}, **({"ratios": own} if own else {})})
    return {"kernel": kernel["kernel"], "counters": counters, "ratios": {name: round(ratio, 4) for name, ratio in ratios.items()},
            "lines": lines}


def exceeded(kernels, limits):
    """What is above a limit, of each kernel; and the names of limits that no kernel counts."""
    found = []
    for of, name, most in limits:
        for kernel in (kernel for kernel in kernels if is_for(kernel, of)):
            value = kernel["ratios"].get(name) if name in RATIOS else kernel["counters"].get(name)
            if value is None or value <= most:
                continue
            worst = max((line for line in kernel["lines"] if line.get(name, 0) > line.get(f"{name}_ideal", 0)),
                        key=lambda line: line[name] - line.get(f"{name}_ideal", 0), default={}) if name in RATIOS else {}
            where = {key: worst[key] for key in ("file", "line") if key in worst}
            what = f"{value:.2f} {name} per ideal one" if name in RATIOS else f"{value:,} {name.replace('_', ' ')}"
            at = f", most of all at {where['file']}:{where['line']}" if where else ""
            found.append({"kernel": kernel["kernel"], "limit": name, "most": most, "value": value, **where,
                          "message": f"{kernel['kernel']} has {what}{at}; the limit is {most:g}"})
    return found


def unknown(kernels, limits):
    """Of the first limit that is of no kernel or counter here: what is wrong with it."""
    names = [*RATIOS, *sorted({name for kernel in kernels for name in kernel["counters"]})]
    for of, name, _ in limits if kernels else ():
        if not any(is_for(kernel, of) for kernel in kernels):
            return f"{of}: no such kernel has run; there are {', '.join(dict.fromkeys(kernel['kernel'] for kernel in kernels))}"
        if name not in names:
            return f"{name}: there is no such counter; there are {', '.join(names)}"
    return None


def annotation(problem):
    """The line by which GitHub Actions shows a problem at its place in the sources."""
    def escaped(text, more=""):
        return re.sub(rf"[%\r\n{more}]", lambda match: f"%{ord(match[0]):02X}", CONTROL.sub("?", str(text)))

    at = ",".join(f"{key}={escaped(problem[key], ':,')}" for key in ("file", "line") if key in problem)
    return f"::error {at}::{escaped(problem['message'])}".replace("::error ::", "::error::")


def judge(file, code, kernels, reports, options):
    """Writes and prints what was asked for. Returns the command's exit code."""
    kernels = [with_ratios(kernel) for kernel in kernels]
    reports = [{"message": text, **place_in(text)} for text in reports]
    above = exceeded(kernels, options.limits)
    sys.stdout.flush()
    for each in above:
        print(f"error: {each['message']}", file=sys.stderr)
    if wrong := unknown(kernels, options.limits):
        print(f"error: --at-most {wrong}", file=sys.stderr)
        code = code or 2
    if options.limits and not kernels and not code:
        print("error: no kernel has run, so none is within a limit", file=sys.stderr)
        code = 1
    if options.github:
        for each in reports + above:
            print(annotation(each), flush=True)
    if options.json:
        write_whole(options.json, lines_of({"file": file, "exit_code": code or int(bool(above)), "kernels": kernels, "reports": reports,
                                            "exceeded": above}))
    return code or int(bool(above))
