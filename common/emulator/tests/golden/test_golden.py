#!/usr/bin/env python3
"""Runs a program and compares its lines with a committed file: test_golden.py PROGRAM FILE [ARGUMENTS...].

A file that is not there has not been captured yet: exit code 77.
"""
import os
import subprocess
import sys

program, golden, *arguments = sys.argv[1:]
if not os.path.exists(golden):
    print(f"skipped: {os.path.basename(golden)} has not been captured on a GPU; on an H200: "
          f"{' '.join([os.path.basename(program), *arguments])} > {os.path.basename(golden)}")
    sys.exit(77)
run = subprocess.run([program, *arguments], stdout=subprocess.PIPE, text=True, timeout=590)
actual = run.stdout.splitlines()
with open(golden) as file:
    expected = file.read().splitlines()
if run.returncode != 0:
    sys.exit(f"{program} ended with {run.returncode}")
if not expected:
    sys.exit(f"{golden} is empty")
differences = [(e, a) for e, a in zip(expected, actual) if e != a]
for wanted, got in differences[:20]:
    print(f"expected {wanted}\n     got {got}")
if len(actual) != len(expected):
    print(f"expected {len(expected)} lines, got {len(actual)}")
if differences or len(actual) != len(expected):
    sys.exit(f"{len(differences)} of {len(expected)} lines differ from {golden}")
print(f"{len(expected)} lines are equal")
