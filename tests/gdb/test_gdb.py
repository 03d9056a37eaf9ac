"""The debugger session of docs/emulator/mistakes.md (session.gdb) does what it says: one thread, stepped through a kernel."""

import re
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tool_test import COMPILING, ROOT, fail, need, run, skip

gdb = need("gdb")
folder = Path(sys.argv[1])  # the build of test_new_kernel.py
session = ROOT / "tests/gdb/session.gdb"

# The session searches for a line: it must be the second barrier of the loop.
source = (ROOT / "kernels/02_online_softmax.cu").read_text().splitlines()
line = [number for number, text in enumerate(source, 1) if "__syncthreads();" in text][1]

# Debian 12's gdb cannot write the registers of a CPU with AMX: it says so and then waits for a program that never runs.
UNWRITABLE = "Couldn't write extended state status"
probe = ("-ex", "starti", "-ex", "print $xmm0.uint128 = 0", shutil.which("true"))
if UNWRITABLE in run(gdb, "-nx", "-q", "-batch", *probe, check=False, timeout=20):
    skip("this gdb cannot write the registers of this CPU")

run("cmake", "--build", folder, "--target", "02_online_softmax", timeout=COMPILING)
program = folder / "bin/02_online_softmax"
out = run(gdb, "-nx", "-q", "-batch", "-x", session, program, check=False)
print(out)
if UNWRITABLE in out:
    skip("this gdb cannot write the registers of this CPU")
if "ptrace: Operation not permitted" in out:
    skip("debugging is not permitted here")

thread = "02_online_softmax, CTA (0,0,0): thread 37 (warp 1 lane 5)"
stops = [int(number) for number in re.findall(r"^(\d+)\t", out.partition("hit Breakpoint 1")[2], re.MULTILINE)]
checks = {
    "the breakpoint is hit": "hit Breakpoint 1" in out and "attention_kernel<__nv_bfloat16, 128>" in out,
    "thread 37 before and after the steps": out.count(thread) == 2,
    "it stops at the barrier": stops[:1] == [line],
    "every `next` goes forward": len(stops) == 5 and stops == sorted(set(stops)),
    "a variable": re.search(r"^\$3 = -?\d", out, re.MULTILINE),
    "an array": re.search(r"^\$4 = \{-inf, -inf, -inf, -inf\}", out, re.MULTILINE),
}
for what, ok in checks.items():
    if not ok:
        fail(f"not so: {what}")
