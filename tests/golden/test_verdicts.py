#!/usr/bin/env python3
"""Compares the verdicts of a program with those of an H200: test_verdicts.py FILE [--quick] PROGRAM.

Every kernel that FILE knows must pass every problem but those that FILE names, and (without --quick, which tries a few)
must not pass these. A kernel that FILE does not know is named.
"""
import re
import subprocess
import sys
from pathlib import Path

golden, *arguments = sys.argv[1:]
VERDICTS = [Path(__file__).resolve().parent.parent.parent / "scripts" / "fa", "verdicts"]
SUMMARY = re.compile(r"(?P<group>\w+ d\d+ (?P<kernel>\d\d_\w+)) (?P<passed>\d+) of (?P<problems>\d+) passed")


def read(text):
    """({group: (kernel, passed, problems)}, the other verdicts, each with its problem)"""
    lines = [(line, SUMMARY.fullmatch(line)) for line in text.splitlines()]
    groups = {m["group"]: (m["kernel"], int(m["passed"]), int(m["problems"])) for _, m in lines if m}
    return groups, [line for line, m in lines if not m]


run = subprocess.run([*VERDICTS, *arguments], stdout=subprocess.PIPE, text=True, timeout=590, check=False)
if run.returncode:
    sys.exit(f"scripts/fa verdicts ended with {run.returncode}")
actual, failures = read(run.stdout)
with open(golden, encoding="utf-8") as file:
    expected, known_failures = read(file.read())
kernels = {kernel for kernel, _, _ in expected.values()}
for kernel in sorted({kernel for kernel, _, _ in actual.values()} - kernels):
    print(f"{kernel}: an H200's verdicts on it are not known")
wrong = [f"not so on an H200: {line}" for line in failures if line not in known_failures and line.split()[-2] in kernels]
if "--quick" not in arguments:
    wrong += [f"only on an H200: {line}" for line in known_failures if line not in failures]
for group in expected:
    _, passed, problems = actual.get(group, ("", 0, 0))
    others = sum(" ".join([*line.split()[:2], line.split()[-2]]) == group for line in failures)
    if not problems or passed + others != problems:
        wrong.append(f"{group}: {passed + others} verdicts on {problems} problems")
print("\n".join(wrong[:20]))
if wrong or not expected:
    sys.exit(f"{len(wrong)} verdicts are not those of an H200")
print(f"all verdicts on {len(expected)} combinations of dtype, head_dim and kernel are those of an H200")
