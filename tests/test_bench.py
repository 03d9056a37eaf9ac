"""The benchmark program: its filter, its JSON, which kernels it has, its counters, and that a wrong kernel is not timed.

Usage: test_bench.py ATTENTION_BENCH [BENCH_OF_BROKEN_KERNELS]
"""

import json
import re
import subprocess
import sys

from tool_test import ROOT, expect, fail, run


def bench(program, name_filter):
    done = subprocess.run([program, f"--benchmark_filter={name_filter}", "--benchmark_min_time=0.001",
                           "--benchmark_format=json"], capture_output=True, text=True, timeout=60)
    expect(done.returncode == 0, f"{program} ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)["benchmarks"]


program = sys.argv[1]
names = run(program, "--benchmark_list_tests").split()
for name in names:
    expect(re.fullmatch(r"(\d\d_|beyond/)[\w.]+/(fp16|bf16)/d(64|128)/N\d+(/causal)?(/fp8)?/manual_time", name), f"an unexpected name: {name}")
has = {re.match(r"(beyond/)?[^/]+", name)[0] for name in names}
files = {f"{folder}{path.stem}" for folder in ("", "beyond/") for path in (ROOT / "kernels" / folder).glob("*.cu")}
on_gpu = any("/N16384" in name for name in names)
expect(has <= files | {name for name in has if name.endswith(".next")} and (on_gpu or files <= has), f"it has {sorted(has)}")
expect(on_gpu or {"beyond/causal/bf16/d128/N256/causal/manual_time", "beyond/fp8/bf16/d128/N128/fp8/manual_time"} <= set(names), "a problem is missing")
first = names[0].split("/")[0]
found = bench(program, f"^{first}/bf16/d64/N(128|512)/")
if len(found) != 1 or found[0]["run_name"] != [n for n in names if n.startswith(f"{first}/bf16/d64/N")][0]:
    fail(f"the filter selects {found}")
(found,) = found
expect(found["real_time"] > 0 and found["time_unit"] == "ms", f"no time: {found}")
if on_gpu:
    expect(found["FLOP/s"] > found["bytes/s"] > 0, f"no rates: {found}")
else:  # of one launch of two products, by whatever instructions
    expect(found["exp2"] >= 128 * 128 and "FLOP/s" not in found, f"no counters: {found}")
if subprocess.run([program, "--no-such-option"], capture_output=True, timeout=60).returncode == 0:
    fail("an unknown option is accepted")
expect("Example: attention_bench --benchmark_filter=" in run(program, "--help"), "--help shows no example")

if sys.argv[2:]:
    (wrong,) = bench(sys.argv[2], "^02_unwritten_row/bf16/d128/N128/")
    if not wrong.get("error_occurred") or "never written" not in wrong["error_message"]:
        fail(f"a wrong kernel was timed: {wrong}")

print(f"{len(names)} benchmarks")
