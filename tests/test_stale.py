"""A change in a kernel need not wait for a GPU: in a copy of this tree all kernels have changed since they were measured, and
the tests that need no build still pass.

Usage: test_stale.py FOLDER      that gets the copy
"""

import re
import shutil
import sys
from pathlib import Path

from tool_test import COMPILING, ROOT, copy_repository, expect, run

# What scripts/fa adopt does about the emulator's counters, but without counting again.
COUNTED_AGAIN = """
from fa_tools.records import todays_source, with_solution
from fa_tools.tools import RESULTS, read_set, write_set
for path in (RESULTS / "emulator").iterdir():
    runs = read_set(path)
    for name, data in runs.items():
        for record in with_solution(f"{path}#{name}", data)["records"]:
            record["source"] = todays_source(record)
            record.pop("solution", None)
    write_set(path, runs)
"""

copy = Path(sys.argv[1])
shutil.rmtree(copy, ignore_errors=True)
copy_repository(copy)
if (ROOT / ".venv").exists():
    (copy / ".venv").symlink_to(ROOT / ".venv")
for path in (copy / "kernels").rglob("*.cu"):
    text = path.read_text(encoding="utf-8")
    if path.stem == "14_softmax_overlap":  # of which another kernel's chapter shows a line, too
        text = re.sub(r"(?<=kMaxP = )[\d.]+f", "512.0f", text)
    path.write_text(text.replace("\nconst Registration<", "\nstatic_assert(true);\n\nconst Registration<"), encoding="utf-8")
run(sys.executable, "-B", "-c", COUNTED_AGAIN, cwd=copy / "scripts")
for command in ("sync", "chart --docs", "pictures"):
    run(sys.executable, "-B", copy / "scripts/fa", *command.split(), timeout=300)
for page in "README.md", "docs/16_max_free.md", "docs/checkpoints.md":
    expect("†<!--=" in (copy / page).read_text(encoding="utf-8"), f"{page} has no figure that is marked as stale")
build = copy / "build/emulator"
run("cmake", "--preset", "emulator", cwd=copy, timeout=COMPILING)
print(run("ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error", "-L", "^quick$", "-j", "2", timeout=COMPILING))
