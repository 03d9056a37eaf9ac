"""The benchmark program: its filter, its JSON, and that a wrong kernel is not timed.

Usage: test_bench.py ATTENTION_BENCH [BENCH_OF_BROKEN_KERNELS [BENCH_ON_A_FAKE_GPU]]
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tool_test import expect, fail, refused, run


def bench(program, name_filter):
    done = subprocess.run([program, f"--benchmark_filter={name_filter}", "--benchmark_min_time=0.001",
                           "--benchmark_format=json"], capture_output=True, text=True, timeout=60)
    expect(done.returncode == 0, f"{program} ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)["benchmarks"]


program = sys.argv[1]
names = run(program, "--benchmark_list_tests").split()
for name in names:
    expect(re.fullmatch(r"\d\d_\w+/(fp16|bf16)/d(64|128)/N\d+/manual_time", name), f"an unexpected name: {name}")
first = names[0].split("/")[0]
found = bench(program, f"^{first}/bf16/d64/N(128|512)/")
if len(found) != 1 or found[0]["run_name"] != [n for n in names if n.startswith(f"{first}/bf16/d64/N")][0]:
    fail(f"the filter selects {found}")
expect(found[0]["real_time"] > 0 and found[0]["TFLOP/s"] > 0 and found[0]["time_unit"] == "ms", f"no time: {found}")
if subprocess.run([program, "--no-such-option"], capture_output=True, timeout=60).returncode == 0:
    fail("an unknown option is accepted")

if sys.argv[2:] and sys.argv[2]:
    (wrong,) = bench(sys.argv[2], "^02_unwritten_row/bf16/d128/N128/")
    if not wrong.get("error_occurred") or "never written" not in wrong["error_message"]:
        fail(f"a wrong kernel was timed: {wrong}")

refused((program, "--protocol", "nice"), "unknown protocol 'nice', there are: quick")
refused((program, "--json", "r.json"), "--json needs --protocol")
refused((program, "--protocol", "quick", "--json", "none/r.json"), "cannot write none/r.json")
expect("Example: attention_bench --protocol=quick" in run(program, "--help"), "--help shows no example")


def protocol(program, *options):
    """Google Benchmark's entries and our results of a run by the protocol `quick`."""
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = Path(folder, "google.json"), Path(folder, "ours.json")
        done = subprocess.run([program, "--protocol", "quick", f"--benchmark_out={theirs}", "--json", ours,
                               "--benchmark_min_time=0.001", *options], capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            return done, None
        return json.loads(theirs.read_text())["benchmarks"], json.loads(ours.read_text())


theirs, ours = protocol(program, f"--benchmark_filter={first}|08")
if "emulator" in ours["machine"]["backend"]:
    if [r["kernel"][:2] for r in ours["records"]] != [first[:2], "08"] or len(theirs) != 2:
        fail(f"the filter runs {ours['records']}")
    if ours["schema_version"] != 6 or "rounds" in ours["protocol"] or not ours["records"][0]["counters"]:
        fail(f"results of the emulator: {ours}")

if sys.argv[3:]:
    fake = sys.argv[3]
    theirs, ours = protocol(fake, "--benchmark_filter=^0[1-5]")
    # Two problems, three rounds: over all kernels, and each begins with another one.
    order = [entry["name"].split("/") for entry in theirs]
    rounds = [[part[0][:2] for part in order if part[1] == "bf16" and part[5] == f"round:{r}"] for r in (1, 2, 3)]
    if rounds != [["01", "02", "03", "04", "05"], ["02", "03", "04", "05", "01"], ["03", "04", "05", "01", "02"]]:
        fail(f"the rounds are {rounds}")
    warm = next(entry for entry in theirs if entry["name"].startswith("02_warm"))
    if (warm["real_time"], warm["launches"], warm["clock_mhz"], warm["power_w"]) != (2.0, 4, 1700, 500):
        fail(f"a round of 02_warm: {warm}")
    statuses = [record["status"] for record in ours["records"]]
    expect(statuses == 2 * ["passed", "passed", "passed", "wrong", "skipped"], f"the records are {statuses}")
    record = ours["records"][1]
    if record["round_ms"] != [2.0, 2.0, 2.0] or record["round_clock_mhz"] != [1700.0, 1700.0, 1700.0]:
        fail(f"the record of 02_warm: {record}")
    if (ours["protocol"]["name"], ours["protocol"]["rounds"]) != ("quick", 3) or len(ours["notes"]) != 2:
        fail(f"the protocol is {ours['protocol']}, notes {ours.get('notes')}")
    _, ours = protocol(fake, "--benchmark_filter=01.*round:[12]")
    if "name" in ours["protocol"] or ours["protocol"]["rounds"] != 2:
        fail(f"two rounds of three are {ours['protocol']}")
    done, nothing = protocol(fake, "--benchmark_filter=01.*round:1|02")
    if nothing is not None or done.returncode != 2 or "different rounds" not in done.stderr:
        fail(f"one round of 01 and all of 02 gave {nothing}")
print(f"{len(names)} benchmarks")
