"""Runs CTest and says, before its closing summary, which tests were skipped and why. With CI=true a skip that an
installation would cure is a failure.

Usage: run_ctest.py ctest ARGUMENTS...
Exit code: CTest's; 1 in CI also for a skip that should not be."""

import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from collections import defaultdict
from pathlib import Path

# What no package of this repository's lists cures: a GPU and CUDA's own tools, tests that belong to another build or
# machine, an index that does not answer.
KNOWN = re.compile(r"nvcc|nvdisasm|cuobjdump|CUDA|cuda_|GPU|torch|runs no libraries|has no speed|needs the checked build"
                   r"|are counted in the checked build|has nothing to record|runs? on none of|does not run on sm_"
                   r"|debugging is not permitted|cannot write the registers|arm64 machine|only root|format differently"
                   r"|does not answer|could not be downloaded")
REASONS = (
    re.compile(r"^skipped: (.*)$", re.MULTILINE),               # exit code 77
    re.compile(r"\.\.\. skipped (['\"])(.*)\1$", re.MULTILINE),  # a part of a Python test
    re.compile(r": Skipped\n(.+)$", re.MULTILINE),              # GoogleTest
)
SUMMARY = re.compile(r"\d+% tests passed")
NAMES = 4  # of each reason


def skipped_in(report):
    """{reason: [tests or parts of tests]} of CTest's JUnit file."""
    found = defaultdict(list)
    for case in xml.parse(report).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        reasons = [match[match.lastindex] for pattern in REASONS for match in pattern.finditer(output)]
        if case.find("skipped") is not None:
            found[reasons[0] if reasons else "it gave no reason"].append(case.get("name"))
        elif case.find("failure") is None:
            for reason in dict.fromkeys(reasons):
                found[reason].append(f"parts of {case.get('name')}")
    return found


def told(found):
    lines = ["Not tested here:"]
    for reason, names in sorted(found.items(), key=lambda item: -len(item[1])):
        shown = ", ".join(names[:NAMES]) + (f" and {len(names) - NAMES} more" if len(names) > NAMES else "")
        lines.append(f"  {len(names)} because {reason}: {shown}")
    return "\n".join(lines) + "\n"


def main(command):
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [*command, "--output-junit", str(report), "--test-output-size-passed", "1000000"]
        held = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace",
                              env={"FA_BUSY_AFTER": "600", **os.environ}) as ctest:
            for line in ctest.stdout:
                if held or SUMMARY.match(line):
                    held.append(line)
                else:
                    print(line, end="", flush=True)
        code = ctest.returncode
        found = skipped_in(report) if report.exists() else {}
    if found:
        print(told(found), flush=True)
    if os.environ.get("CI") == "true":
        for reason, names in found.items():
            if not KNOWN.search(reason):
                print(f"error: in CI nothing may be skipped because {reason}: {', '.join(names[:NAMES])}", flush=True)
                code = code or 1
    print("".join(held), end="", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
