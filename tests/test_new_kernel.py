"""A 17th kernel is one file: in a copy of this tree, 10_instruction_tuning under another name and number is built, checked,
listed and given its tests, and nothing else of the copy is edited. The copy stays for gdb/test_gdb.py.

Usage: test_new_kernel.py FOLDER      that gets the copy, with its build of the preset emulator-debug
"""

import re
import shutil
import sys
from pathlib import Path

from tool_test import COMPILING, JOBS, copy_repository, expect, fail, run

OLD, NEW = "10_instruction_tuning", "17_copy"

copy = Path(sys.argv[1])
build = copy / "build/emulator-debug"
shutil.rmtree(copy, ignore_errors=True)
copy_repository(copy)
text = (copy / "kernels" / f"{OLD}.cu").read_text(encoding="utf-8")
text = text.replace(OLD, NEW).replace("k10", "k17")
(copy / "kernels" / f"{NEW}.cu").write_text(text, encoding="utf-8")
# Without optimisation, which would take most of the time.
run("cmake", "--preset", "emulator-debug", cwd=copy, timeout=COMPILING)
run("cmake", "--build", build, "-j", JOBS, "--target", NEW, cwd=copy, timeout=COMPILING)
program = build / "bin" / NEW
if (listed := run(program, "--list").split()) != [NEW]:
    fail(f"{NEW} --list says {listed}")
for dtype, head_dim in (("fp16", 64), ("bf16", 128)):
    said = run(program, "--heads", 1, "--seq-len", 256, "--dtype", dtype, "--head-dim", head_dim, "--inputs", "increasing_max")
    expect(re.search(rf"^{NEW} +passed ", said, re.MULTILINE), f"{NEW} does not pass:\n{said}")
known = run(sys.executable, "-B", "-c", "from fa_tools.for_readers import sass; print(sass.find_kernel('17'), *sass.needs_of('17_copy'))",
            cwd=copy / "scripts")
expect(known.split() == [NEW, "80", "False"], f"the scripts know of kernel 17: {known}")
listing = run("ctest", "--test-dir", build, "-N")
tests, models = (set(re.findall(rf"(\S+)\.{name}$", listing, re.MULTILINE)) for name in (NEW, OLD))
if not tests or tests != {test for test in models if not test.startswith("commands")}:  # those are of chapters
    fail(f"{NEW} has the tests {sorted(tests)}, {OLD} has {sorted(models)}")
print(f"{NEW}: {', '.join(sorted(tests))}")
