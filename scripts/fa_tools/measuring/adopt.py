"""Brings everything that depends on a kernel up to date after the kernel has changed; no GPU is needed.

It builds the kernel and checks its numbers and races. Then it writes anew what programs know: the emulator's counters, what
each check says of the seeded bugs, what the solutions of the exercises give, outputs, excerpts, values, tables, charts,
pictures and timelines. It stops at no problem. What is left for you stands at the end, a line each, as FILE:LINE: what.

Without NN it takes every kernel whose committed counters belong to another source. What only a GPU can tell stays as it is,
and is marked as stale; scripts/fa measure --stale measures it again."""

import json
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from functools import lru_cache
from pathlib import Path

from fa_tools.cards import EMULATOR
from fa_tools.measuring import measure
from fa_tools.for_readers.tasks import FOLDER as TASKS, read_tasks
from fa_tools.records import short_name
from fa_tools.patches import changed, solutions, written_in
from fa_tools.sources import CONSTANTS, kernel_names, source_of
from fa_tools.tools import NOTEBOOK, RESULTS, ROOT, Parser, Refused, fail, markdown_files, read_json, read_set, relative, write_json

EXAMPLE = """examples:
  scripts/fa adopt                      after a change: every kernel that has changed
  scripts/fa adopt 05 06 07             these kernels
  scripts/fa adopt --only counters 15   one step: numbers, counters, bugs, tasks, solutions, documents, names or compiler
  scripts/fa adopt --from measured.tar  brings in what scripts/fa measure wrote on a GPU machine, and draws it

Exit code: 0 nothing is left to do, 1 something is, 2 bad arguments, 4 the emulator could not be built, or the checkout
belongs to another user."""
PRESET = "emulator"
BIN = ROOT / "build" / PRESET / "bin"
# What a step runs of the build. Those that build for themselves, or run nothing, are not here.
PROGRAMS = {"counters": ("attention_checked", "attention"), "bugs": ("meet_checked",),
            "documents": ("attention_checked", "attention", "broken", "layouts")}
ELSEWHERE = "*Full*:*Long*"  # the tests that scripts/test.sh leaves out by default
BROKEN = ROOT / "tests" / "broken"
WORD = re.compile(r"\b[A-Za-z_]\w{2,}\b")
REMARK = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


class Work:
    """What is left to do, in the order in which it was found, and the log of what was called."""

    def __init__(self, log):
        self.left, self.log = [], log

    def todo(self, where, what):
        line = f"{where}: {what}"
        if line not in self.left:
            self.left.append(line)

    def call(self, command, **options):
        """The finished process. Its output is in the log, too."""
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(f"\n$ {' '.join(map(str, command))}\n")
            try:
                done = subprocess.run(list(map(str, command)), cwd=ROOT, text=True, capture_output=True, check=False, **options)
            except OSError as problem:
                done = subprocess.CompletedProcess(command, 127, "", f"{command[0]} cannot be started: {problem.strerror}\n")
            log.write(done.stdout + done.stderr)
        return done


def records(data):
    return {tuple(r[key] for key in ("kernel", "dtype", "batch", "heads", "seq_len", "head_dim")): r for r in data["records"]}


def committed_counts():
    """(file of results, its contents) of all counters of the emulator that are kept."""
    path = RESULTS / EMULATOR / "counts.jsonl"
    return [(f"{path}#{name}", data) for name, data in read_set(path).items()]


def has_changed(kernel):
    """Whether the kernel's committed counters belong to another source than today's."""
    return any(record["kernel"] == kernel and record.get("source") != source_of(kernel)
               for _, data in committed_counts() for record in data["records"])


def lines_with(path, text):
    return [i for i, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1) if text in line]


def tests_of(kernel):
    """((program, filter of its tests), ...)"""
    if kernel.startswith("beyond/"):  # where a problem's tests are of all kernels that take it
        return ("fa_problem_tests", "Beyond"), ("fa_checked_beyond_tests", short_name(kernel))
    return ("fa_tests", kernel), ("fa_checked_tests", kernel)


# ---- the steps: each takes a kernel and the work -----------------------------------------------------------------------
def numbers(kernel, work):
    """The tests of this kernel: its numbers on hard inputs and odd shapes, and the search for races."""
    for program, tests in tests_of(kernel):
        done = work.call([BIN / program, f"--gtest_filter=*{tests}*:-{ELSEWHERE}", "--gtest_brief=1"])
        failed = re.findall(r"^\[  FAILED  \] (\S+?),? ", done.stdout, re.MULTILINE)
        for test in dict.fromkeys(failed):
            work.todo(f"kernels/{kernel}.cu", f"{program} fails: {test}")
        if done.returncode and not failed:
            work.todo(f"kernels/{kernel}.cu", f"{program} ends with {done.returncode}: {last_line(done)}")


def last_line(done):
    return next((line for line in reversed((done.stdout + done.stderr).split("\n")) if line.strip()), "no output")


def options_of(command):
    """Of the committed command of a set of counters: its options, without program, kernels and output."""
    first = next(i for i, word in enumerate(command) if word.startswith("--"))
    at = command.index("--json")
    return command[first:at] + command[at + 2 :]


def counters(kernel, work):
    """Counts the kernel again for every set of committed counters that it is in, and puts its records in their place."""
    for file, data in committed_counts():
        old = {key: record for key, record in records(data).items() if key[0] == kernel}
        if not old:
            continue
        program = BIN / ("attention_checked" if data["machine"]["checked"] else "attention")
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "counts.json")
            done = work.call([program, short_name(kernel), *options_of(data["command"]), "--json", out])
            new = records(json.loads(out.read_text(encoding="utf-8"))) if out.exists() else {}
        missing = [key for key in old if new.get(key, {}).get("status") != "passed"]
        if missing:
            work.todo(relative(file), f"{kernel} at {missing[0][4]} tokens did not pass: {last_line(done)}")
            continue
        if all(new[key] == record for key, record in old.items()):
            continue
        data["records"] = [new.get(key, record) for key, record in records(data).items()]
        write_json(file, data)
        print(f"  updated {relative(file)}")


@lru_cache(maxsize=None)
def make_bugs():
    return runpy.run_path(str(BROKEN / "make.py"))


def bugs(kernel, work):
    """Writes what each check says of each bug, and drops the rows of bugs that are gone."""
    known = make_bugs()["read_bugs"]()
    for line in make_bugs()["misfits"]({name: bug for name, bug in known.items() if bug["kernel"] == kernel}):
        work.todo(*line.split(": ", 1))
    path = BROKEN / "facts.json"
    before = path.read_text(encoding="utf-8")
    done = work.call([BIN / "meet_checked", "--write", short_name(kernel)])
    for line in done.stderr.splitlines():
        name = line.split(" ")[0]
        if name.startswith(f"{short_name(kernel)}_"):
            at = lines_with(BROKEN / "bugs.toml", f'["{name}"]')
            work.todo(f"tests/broken/bugs.toml:{at[0] if at else 1}", line)
        elif line.startswith("error:") and "no bug" not in line:
            work.todo(relative(path), line)
    rows = json.loads(path.read_text(encoding="utf-8"))
    kept = [row for row in rows if row["name"] in known]
    if len(kept) < len(rows):
        write_json(path, kept)
    if path.read_text(encoding="utf-8") != before:
        print(f"  updated {relative(path)}")


def tasks(kernel, work):
    """Holds the kernel's tasks and cases to what they promise. One that cannot be made at all is handwork, too."""
    try:
        of_kernel = [task for task in read_tasks().values() if task.source.stem == kernel]
    except Refused as problem:
        work.todo("tests/tasks", problem)
        return
    for task in of_kernel:
        done = work.call(["scripts/fa", "try", "--check", task.name])
        if done.returncode:
            path = TASKS / f"{task.group}.toml"
            where = f"{relative(path)}:{(lines_with(path, f'[{task.name}]') or [1])[0]}"
            for sentence in re.findall(r"^      (\S.*(?:\n        .*)*)", done.stdout, re.MULTILINE) or [last_line(done)]:
                work.todo(where, f"{task.name} {' '.join(sentence.split())}")


def solution_runs(kernel, work):
    """Builds and runs the solutions of the chapter's exercises."""
    source = (ROOT / "kernels" / f"{kernel}.cu").read_text(encoding="utf-8")
    fitting = []
    for name, places in solutions().items():
        if name[:2] != short_name(kernel):
            continue
        try:
            changed(source, places)
            fitting.append(name)
        except Refused as problem:
            file, line = written_in(name)
            work.todo(f"{relative(file)}:{line}", f"the solution {name} {problem}")
    for name in [*([kernel] if fitting else []), *fitting]:
        done = work.call(["scripts/fa", "solutions", name])
        if done.returncode:
            file, line = written_in(name) if name in fitting else (ROOT / "docs" / f"{kernel}.md", 1)
            work.todo(f"{relative(file)}:{line}", f"the solution {name} fails: {last_line(done)}")


def show_updates(done):
    for line in done.stdout.splitlines():
        if line.startswith(("updated", "written")):
            print(f"  {line}")


def written_documents(kernels, work):
    """Constants of kernels for pictures, outputs of commands, excerpts, values, tables, charts, pictures and timelines."""
    found = work.call([BIN / "layouts", "facts"])
    if not found.returncode and json.loads(found.stdout) != read_json(CONSTANTS):
        write_json(CONSTANTS, json.loads(found.stdout))
        print(f"  updated {relative(CONSTANTS)}")
    shown = re.compile(rf"^\$ .*\b({'|'.join(map(short_name, kernels))})(_\w+)?\b", re.MULTILINE)
    chapters = [path for path in markdown_files() if shown.search(path.read_text(encoding="utf-8"))]
    for name in ("sync", "pictures", "outputs", "chart --docs", "timeline --docs", "sync"):
        done = work.call(["scripts/fa", *name.split(), *([*chapters, NOTEBOOK] if name == "outputs" else [])])
        show_updates(done)
        places = re.findall(r"^(\S+:\d+): (.*)", done.stderr, re.MULTILINE)
        for where, what in places:
            work.todo(where, what)
        if done.returncode and not places:
            work.todo(f"scripts/fa {name}", last_line(done))


def words_of(code):
    return set(WORD.findall(REMARK.sub("", code)))


def old_code(kernel):
    """The kernel as it was before its last change, in Git, or None."""
    path = f"kernels/{kernel}.cu"
    now = words_of((ROOT / path).read_text(encoding="utf-8"))

    def git(*arguments):
        return subprocess.run(["git", "-C", str(ROOT), *arguments], text=True, capture_output=True, check=False).stdout

    for commit in git("log", "--format=%H", "-n", "20", "--", path).split():
        code = git("show", f"{commit}:{path}")
        if code and words_of(code) != now:
            return code
    return None


def names(kernel, work):
    """Lines that name what the kernel no longer has, and which no other kernel and no header of theirs has."""
    old = old_code(kernel)
    if old is None:
        return
    sources = [path for folder in ("kernels", "common/layout", "common/ptx", "common/launch") for path in (ROOT / folder).rglob("*")
               if path.suffix in (".cu", ".h", ".cpp") and path.parent.name not in ("next", "beyond", "facts")]
    there = set().union(*(set(WORD.findall(path.read_text(encoding="utf-8"))) for path in sources))
    gone = words_of(old) - there - words_of((ROOT / "kernels" / f"{kernel}.cu").read_text(encoding="utf-8"))
    if not gone:
        return
    naming = re.compile(rf"\b({'|'.join(sorted(gone))})\b")
    # Prose has words that were identifiers: there only code counts.
    code = re.compile(r"`[^`\n]*`")
    others = [path for folder in ("tests", "common", "bench", "scripts/fa_tools", "docs/interactive")
              for path in (ROOT / folder).rglob("*") if path.suffix in (".toml", ".cpp", ".h", ".py", ".mjs")]
    for path in [*markdown_files(), *others]:
        in_code = False
        for i, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            in_code ^= line.startswith("```")
            parts = [line] if in_code or path.suffix != ".md" else code.findall(line)
            for name in dict.fromkeys(naming.findall(" ".join(parts))):
                work.todo(f"{relative(path)}:{i}", f"names {name}, which kernels/{kernel}.cu no longer has")


def compiler(kernel, work):
    """What nvcc says, where it is: that the kernel compiles for its architectures, and the facts of its machine code."""
    if not (shutil.which("nvcc") or (ROOT / ".toolkit").exists()):
        return
    for name in (f"nvcc.{Path(kernel).name}", f"sass.{Path(kernel).name}"):
        if work.call(["ctest", "--test-dir", ROOT / "build" / PRESET, "--output-on-failure", "-R", f"^{name}$"]).returncode:
            work.todo(f"kernels/{kernel}.cu", f"the test {name} fails; build/{PRESET} has it")


STEPS = {"numbers": numbers, "counters": counters, "bugs": bugs, "tasks": tasks, "solutions": solution_runs,
         "documents": None, "names": names, "compiler": compiler}


def targets(kernels, steps):
    """What these steps need built: of the kernels their tests, and their programs, whose output chapters show."""
    of_kernels = {"numbers": [program for kernel in kernels for program, _ in tests_of(kernel)],
                  "documents": [Path(kernel).name for kernel in kernels]}
    return list(dict.fromkeys(target for step in steps for target in (*PROGRAMS.get(step, ()), *of_kernels.get(step, ()))))


def built(wanted, work):
    """The process that built these targets, or that failed before. Without any the build tree is configured."""
    print("building ...", flush=True)
    began, done = time.monotonic(), None
    if not (ROOT / "build" / PRESET / "CMakeCache.txt").exists():
        done = work.call(["cmake", "--preset", PRESET])
        if done.returncode:
            return done
    if wanted:
        done = work.call(["cmake", "--build", "--preset", PRESET, "--target", *wanted])
    print(f"building: {time.monotonic() - began:.0f} s", flush=True)
    return done


def adopt(kernels, only, work):
    for step, function in STEPS.items():
        if only and step not in only:
            continue
        began = time.monotonic()
        print(f"{step} ...", flush=True)
        if step == "documents":
            written_documents(kernels, work)
        else:
            for kernel in kernels:
                function(kernel, work)
        print(f"{step}: {time.monotonic() - began:.0f} s", flush=True)


def main(argv=None):
    parser = Parser("adopt", __doc__, EXAMPLE)
    parser.add_argument("kernels", nargs="*", metavar="NN", help="numbers of kernels, or causal (default: those that have changed)")
    parser.add_argument("--only", action="append", choices=STEPS, metavar="STEP", help=f"only this step: {', '.join(STEPS)}")
    parser.add_argument("--from", dest="measured", metavar="FILE", help="a folder or archive that scripts/fa measure has written")
    args = parser.parse_args(argv)
    known = {short_name(name): name for name in kernel_names() if not name.endswith(".next")}
    for number in args.kernels:
        if number not in known:
            fail(f"there is no kernel {number}; they are {', '.join(known)}")
    log = ROOT / "build" / "adopt.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text("", encoding="utf-8")
    work = Work(log)
    if args.measured:
        files = measure.merge(args.measured, say=lambda sentence: work.todo("not merged", sentence))
        print(*(f"updated {name}" for name in files), sep="\n")
        for card in sorted({Path(name).parent.name for name in files}):
            if lacking := measure.incomplete(card):
                work.todo(f"bench/results/{card}", f"lacks {', '.join(lacking)}; scripts/fa measure --dry-run --machine {card} says how")
        adopt(list(known.values()), ["documents"], work)
    else:
        kernels = [known[number] for number in args.kernels] or [kernel for kernel in known.values() if has_changed(kernel)]
        if not kernels:
            print("No kernel has changed since its counters were written.")
            return 0
        print(f"kernels: {', '.join(kernels)}", flush=True)
        steps = args.only or STEPS
        wanted = targets(kernels, steps)
        done = built(wanted, work) if wanted or "compiler" in steps else None
        if done and done.returncode:
            print(done.stdout[-3000:] + done.stderr[-1000:], file=sys.stderr)
            fail(f"the emulator could not be built; all of its output is in {relative(log)}", 4)
        adopt(kernels, args.only, work)
    if work.left:
        print(f"\nLeft for you ({len(work.left)}); what was called is in {relative(log)}:", *work.left, sep="\n")
        return 1
    print("\nNothing is left to do here." + " On a machine with a GPU: scripts/fa measure --stale" * (not args.measured))
    return 0
