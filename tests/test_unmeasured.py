"""A change need not wait for a GPU: in a copy of this tree all kernels have changed since they were measured, and a 17th, with
what CONTRIBUTING asks for (unmeasured.txt), has never been measured. The tests that need no build still pass there.

Usage: test_unmeasured.py FOLDER      that gets the copy
"""

import re
import shutil
import sys
from pathlib import Path

from tool_test import COMPILING, ROOT, copy_repository, expect, run

OLD, NEW = "16_max_free", "17_next"
TEXTS = re.split(r"(?m)^=== (.+)\n", (ROOT / "tests/unmeasured.txt").read_text(encoding="utf-8"))
TEXTS = dict(zip(TEXTS[1::2], TEXTS[2::2]))
copy = Path(sys.argv[1])


def exercise(number, margin):
    return f"""**{number}. A margin of {margin}** (ten minutes). Which line do you change?

<details>
<summary>Solution</summary>

```diff
@@ 17_margin_{margin}
-  static constexpr float kMargin = kWide ? 58.0f : 0.0f;
+  static constexpr float kMargin = kWide ? {margin}.0f : 0.0f;
```

</details>

"""


def question(number, right):
    choices, others = ("".join(f"- **{letter}** That of {number} {letter}, by two.\n" for letter in letters) for letters in ("abc", "abc".replace(right, "")))
    return (f"\n**{number}. Which exponent of tile {number} does kernel 17 move?**\n\n{choices}\n<details>\n<summary>Answer</summary>\n\n"
            f"**{right}.** The constant says so.\n\n{others}\n</details>\n")

# What scripts/fa adopt and solutions do about the emulator's results, but without building: the 17th has those of the 16th.
COUNTED_AGAIN = f"""
import copy
from fa_tools.records import todays_source, with_solution
from fa_tools.patches import solutions
from fa_tools.tools import RESULTS, ROOT, read_json, read_set, write_json, write_set
for path in (RESULTS / "emulator").iterdir():
    runs = read_set(path)
    if path.name == "solutions.jsonl":
        for name in ["{NEW}", *(each for each in solutions() if each.startswith("17_"))]:
            runs[name] = copy.deepcopy(runs["{OLD}"])
            for record in runs[name]["records"]:
                record["kernel"] = "{NEW}"
    for name, data in runs.items():
        for record in with_solution(f"{{path}}#{{name}}", data)["records"]:
            record["source"] = todays_source(record)
            record.pop("solution", None)
    write_set(path, runs)
facts = ROOT / "tests/broken/facts.json"
rows = read_json(facts)
own = [dict(row, name=row["name"].replace("16_", "17_"), kernel="{NEW}") for row in rows]
write_json(facts, rows + [row for row in own if row["name"] in ("17_no_first_score", "17_references_swapped")])
"""


def edit(name, change):
    path = copy / name
    text = path.read_text(encoding="utf-8")
    expect(change(text) != text, f"nothing changes in {name}")
    path.write_text(change(text), encoding="utf-8")


def insert(name, before, what):
    edit(name, lambda text: text.replace(before, what + before, 1))


shutil.rmtree(copy, ignore_errors=True)
copy_repository(copy)
if (ROOT / ".venv").exists():
    (copy / ".venv").symlink_to(ROOT / ".venv")

# ---- the 17th: step by step as in CONTRIBUTING
shutil.copy(copy / f"kernels/{OLD}.cu", copy / f"kernels/{NEW}.cu")
edit(f"kernels/{NEW}.cu", lambda text: text.replace(OLD, NEW).replace("k16", "k17").replace("kMargin = kWide ? 66.0f", "kMargin = kWide ? 58.0f"))
run(sys.executable, "-B", copy / "tests/test_repository.py", "Kernels.test_length", "Kernels.test_neighbours_differ_by_one_step",
    "Kernels.test_rules", copy)
edit("tests/broken/bugs.toml", lambda text: text + TEXTS["bugs.toml"])
exercises = "".join(exercise(*each) for each in enumerate((66, 40, 50), 1))
(copy / f"docs/{NEW}.md").write_text(TEXTS[f"{NEW}.md"].replace("EXERCISES", exercises), encoding="utf-8")
edit(f"docs/{OLD}.md", lambda text: text.replace("(15_persistent.md). It is the last", f"(15_persistent.md). Next: [17]({NEW}.md). It was the last", 1))
questions = "".join(question(*each) for each in enumerate("abcab", 1))
edit("docs/checkpoints.md", lambda text: f"{text}\n## 17: a smaller margin\n\n[Chapter 17]({NEW}.md)\n{questions}")
insert("docs/in_thirty_minutes.md", "\n## Where to go on\n", "\n" + TEXTS["thirty_minutes.md"])
for page, folder, row in (("README.md", "docs/", "a smaller margin |"), ("docs/README.md", "", "move the exponents of a softmax, and say what it changes | |")):
    edit(page, lambda text, folder=folder, row=row: re.sub(rf"(?m)^\| \[{OLD}\].*\n", lambda at: f"{at[0]}| [{NEW}]({folder}{NEW}.md) | {row}\n", text))

# ---- all have changed since they were measured
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
said = run(sys.executable, "-B", copy / "scripts/fa", "release")
expect(re.search(rf"(?m)^bench/results/\w+ has nothing of (.*, )?{NEW}\b", said), f"scripts/fa release says of {NEW}:\n{said}")

build = copy / "build/emulator"
run("cmake", "--preset", "emulator", cwd=copy, timeout=COMPILING)
print(run("ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error", "-L", "^quick$", "-j", "2", timeout=COMPILING))
