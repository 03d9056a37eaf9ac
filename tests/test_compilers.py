"""g++ and clang++ must agree: the same outputs, seen in their errors, and the same counters, memory traffic included,
in total and by statement of the source.

Usage: test_compilers.py FOLDER THIS_BUILD'S_CHECKED_PROGRAM. Builds the checked preset with clang++ in FOLDER.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from tool_test import COMPILING, build, fail, need, run

folder, ours = sys.argv[1], sys.argv[2]
clang = need("clang++")
os.environ.pop("CXXFLAGS", None)
theirs = build(folder, "attention", "emulator-checked", f"-DCMAKE_CXX_COMPILER={clang}", "-DFA_TESTS=OFF") / "attention"


def by_statement(results):
    """{(file, statement, kind): its counts}"""
    return {tuple(counts.get(key) for key in ("file", "statement", "kind")): counts
            for counts in results["records"][0]["statements"]}


compared = compared_statements = 0
with tempfile.TemporaryDirectory() as work:
    kernels = run(ours, "--list").split()
    for options in ("--dtype bf16 --head-dim 128 --seq-len 256 --heads 1", "--dtype fp16 --head-dim 64 --seq-len 128 --heads 1",
                    "--dtype bf16 --head-dim 64 --seq-len 128 --heads 1 --inputs large"):
        for kernel in kernels:
            results = []
            for who, program in (("ours", ours), ("theirs", theirs)):
                file = Path(work, f"{who}.json")
                run(program, kernel, *options.split(), "--json", file, timeout=COMPILING)
                results.append(json.loads(file.read_text()))
            a, b = results
            compilers = a["machine"]["compiler"], b["machine"]["compiler"]
            if compilers[0] == compilers[1]:
                fail(f"both programs come from {compilers[0]}")
            errors = [result["records"][0]["error"] for result in results]
            if errors[0] != errors[1]:  # the norm has all elements of O in it, in all digits
                fail(f"{kernel} {options}: {compilers} give different outputs: their errors are {errors}")
            our_statements, their_statements = by_statement(a), by_statement(b)
            for key in our_statements.keys() | their_statements.keys():
                counts = our_statements.get(key), their_statements.get(key)
                if counts[0] != counts[1]:
                    fail(f"{kernel} {options}: {compilers} count {key[2]} of {key[1]} differently: {counts}")
            compared_statements += len(our_statements)
            a, b = a["records"][0]["counters"], b["records"][0]["counters"]
            if "global_sectors" not in a:
                fail("not the checked build")
            for name in a.keys() | b.keys():
                if a.get(name) != b.get(name):
                    fail(f"{kernel} {options}: {name} is {a.get(name)} with {compilers[0]}, {b.get(name)} with {compilers[1]}")
            compared += len(a)
print(f"{compilers[0]} and {compilers[1]}: {compared} counters, {compared_statements} counts by statement and all outputs are equal")
