"""Runs docs/start.ipynb from top to bottom, in a copy of the sources, without Jupyter: Python is executed, and a line
that begins with ! is given to bash, as IPython does. Programs are those of the build (tests/commands/cmake).

Usage: test_notebook.py BUILD      a build of the preset emulator
       test_notebook.py --write    builds all for itself, and writes into the notebook what the cells print
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tool_test import COMPILING, ROOT, expect, fail, need, run

KERNEL = ROOT / "kernels/02_online_softmax.cu"  # the one that the reader changes

# What a cell must say, and the highest exit code of its commands.
EXPECTED = {
    "sources": (r"The sources are in the folder ", 0),
    "setup": (r"Everything that we need is here", 0),
    "build": ("", 0),
    "run": (r"02_online_softmax +passed [\s\S]*per ideal", 0),
    "broken": (r"-.*acc_o\[row\]\[c\] \*= rescale;[\s\S]*equal_keys +right", 0),
    "change": (r"02_online_softmax +passed [\s\S]*32\.00 per ideal one\n.*smem\.sK\[lane_idx\]\[d\]", 0),
    "race": (r"data race[\s\S]*Missing: a __syncthreads\(\)", 3),
    "compare": (r"05_mma_split_kv, by[\s\S]*\nldmatrix +8,192 [\s\S]*06_mma_split_q, by[\s\S]*\nldmatrix +9,216 [\s\S]*bounds",
                0),
    "gpu": (r"There is no GPU here|0[1-6]_\w+ +passed", 0),
}

# What another build or another machine may say otherwise.
OWN = re.compile(r"\[\d+/\d+\] |(configuring|building) |Results: |Back end: |emulator, checked build, |The sources are |There is no GPU|$")
SHELL = re.compile(r"^( *)!(.*)$", re.MULTILINE)

need("bash")
need("cmake")
notebook = json.loads((ROOT / "docs/start.ipynb").read_text(encoding="utf-8"))
cells = notebook["cells"]
names = [cell["id"] for cell in cells]
expect(len(set(names)) == len(names), "two cells have the same id")
codes = {cell["id"]: "".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"}
expect(list(codes) == list(EXPECTED), f"the cells are {', '.join(codes)}; this test expects {', '.join(EXPECTED)}")
for cell in cells:
    for link in re.findall(r"\]\(([^)#]+)", "".join(cell["source"])) if cell["cell_type"] == "markdown" else ():
        expect(link.startswith("https://colab.") or (ROOT / "docs" / link).is_file(), f"cell {cell['id']} links to {link}, which is not there")
    if cell["cell_type"] == "code" and sys.argv[1] != "--write":
        printed = "".join(line for output in cell["outputs"] for line in output["text"])
        expect(re.search(EXPECTED[cell["id"]][0], printed), f"the output of cell {cell['id']} is not what it prints: --write runs it")
        expect(not re.search(r"/(tmp|home|root|work)/", printed), f"the output of cell {cell['id']} names a folder of one machine")

ends = set()


def shell(command):
    done = subprocess.run(["bash", "-c", command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          errors="replace", stdin=subprocess.DEVNULL, timeout=COMPILING)
    print(done.stdout, end="")
    ends.add(done.returncode)


temporary = tempfile.TemporaryDirectory()
copy = Path(temporary.name) / "sixteen-steps"
copy.mkdir()
# A tarball has no git to ask which files belong to the sources: here it is all but what .gitignore names.
made = {line.strip("/\n") for line in open(ROOT / ".gitignore", encoding="utf-8")}
for each in sorted(ROOT.iterdir()):
    if each.name not in made | {".git"}:
        run("cp", "--archive", each, copy)
os.environ["FA_BUSY_AFTER"] = "600"  # on a slow machine programs would say that they take long
if sys.argv[1] != "--write":
    (copy / "build/stands").mkdir(parents=True)
    (copy / "build/stands/cmake").symlink_to(ROOT / "tests/commands/cmake")
    os.environ |= {"FA_COMMANDS_BUILD": sys.argv[1], "PATH": f"{copy}/build/stands{os.pathsep}{os.environ['PATH']}"}

before = KERNEL.read_bytes()
os.chdir(copy / "docs")  # Jupyter starts a notebook where it is
space = {"shell": shell}
for name, source in codes.items():
    expect(not re.search(r"^\s*%", source, re.MULTILINE), f"cell {name} has a magic, which this test does not know")
    ends.clear()
    said = io.StringIO()
    start = time.monotonic()
    try:
        with contextlib.redirect_stdout(said):
            exec(compile(SHELL.sub(lambda line: f"{line[1]}shell({line[2]!r})", source), name, "exec"), space)
    except BaseException:
        fail(f"cell {name} stopped:\n{said.getvalue()}{traceback.format_exc()}")
    pattern, end = EXPECTED[name]
    if not re.search(pattern, said.getvalue()) or max(ends, default=0) != end:
        fail(f"cell {name} ended with {max(ends, default=0)}, not {end}, or does not say {pattern}:\n{said.getvalue()}")
    cell = next(cell for cell in cells if cell["id"] == name)
    lines = set(said.getvalue().splitlines())
    for line in "".join(line for output in cell["outputs"] for line in output["text"]).splitlines() if sys.argv[1] != "--write" else ():
        expect(OWN.match(line) or line in lines, f"cell {name} does not print {line!r} any more: --write runs it\n{said.getvalue()}")
    print(f"{name}: as expected, after {time.monotonic() - start:.0f} s", flush=True)
    cell["execution_count"] = list(codes).index(name) + 1
    # As a terminal shows Ninja's progress, whose lines replace each other.
    printed = re.sub(r"(?m)^\[\d+/\d+\] .*\n(?=\[\d+/\d+\] )", "", said.getvalue())
    cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)}] if printed else []
os.chdir(ROOT)
expect((copy / KERNEL.relative_to(ROOT)).read_bytes() == before, "the notebook does not put the kernel back")
if sys.argv[1] == "--write":
    (ROOT / "docs/start.ipynb").write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
