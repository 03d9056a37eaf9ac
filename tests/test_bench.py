"""The benchmark program: its filter, its JSON, and that a wrong kernel is not timed.

Usage: test_bench.py ATTENTION_BENCH [BENCH_OF_BROKEN_KERNELS]
"""

import json
import re
import subprocess
import sys

from tool_test import fail, run


def bench(program, name_filter):
    done = subprocess.run([program, f"--benchmark_filter={name_filter}", "--benchmark_min_time=0.001",
                           "--benchmark_format=json"], capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"{program} ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)["benchmarks"]


program = sys.argv[1]
names = run(program, "--benchmark_list_tests").split()
for name in names:
    if not re.fullmatch(r"\d\d_\w+/(fp16|bf16)/d(64|128)/N\d+/manual_time", name):
        fail(f"an unexpected name: {name}")
first = names[0].split("/")[0]
found = bench(program, f"^{first}/bf16/d64/N(128|512)/")
if len(found) != 1 or found[0]["run_name"] != [n for n in names if n.startswith(f"{first}/bf16/d64/N")][0]:
    fail(f"the filter selects {found}")
if not (found[0]["real_time"] > 0 and found[0]["TFLOP/s"] > 0 and found[0]["time_unit"] == "ms"):
    fail(f"no time: {found}")
if subprocess.run([program, "--no-such-option"], capture_output=True).returncode == 0:
    fail("an unknown option is accepted")

if sys.argv[2:] and sys.argv[2]:
    (wrong,) = bench(sys.argv[2], "^02_unwritten_row/bf16/d128/N128/")
    if not wrong.get("error_occurred") or "never written" not in wrong["error_message"]:
        fail(f"a wrong kernel was timed: {wrong}")
print(f"{len(names)} benchmarks")
