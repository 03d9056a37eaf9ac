"""scripts/fa try: gives the reader a kernel with a hole, or with a bug, and says what the checks find in what became of it."""

import contextlib
import difflib
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from fa_tools.for_readers import emulate
from fa_tools.for_readers.examiner import TOO_MUCH, Examiner, check, launches_of
from fa_tools.for_readers.tasks import GROUPS, MARK, WIDTH, read_tasks
from fa_tools.tools import ROOT, Parser, Refused, busy, fail, make_folder, or_fail, relative, write_whole

DESCRIPTION = """Kernels with a hole, or with somebody else's bug, for you to complete. The first call writes the file into
the folder try/ and says what to do. Every further call compiles your file for the emulator and tells you what
the checks find: numbers on ordinary and on hard inputs, races, deadlocks, bank conflicts."""
EXAMPLE = """A kernel's number, or a name such as causal or fp8, stands for the kernel's first task that you have not solved. Everything
behind -- is for the kernel's own program, which then runs with your file: --inputs, --seq-len, --completion early ...

examples:
  scripts/fa try --list                            all tasks, and which you have solved
  scripts/fa try 02_softmax                        begins the task; again: what the checks find
  scripts/fa try 02_softmax --hint                 a hint; again: the next
  scripts/fa try 02_softmax --watch                what the checks find whenever you save it
  scripts/fa try case_01 -- --heads 1 --inputs one_hot_v
  scripts/fa try --grade 02_softmax --folder submissions/* --csv class.csv

Exit code: 0 solved, or the task was written; 1 not solved yet; 2 bad arguments or files; 4 the emulator could not be
built; 130 Ctrl-C, which does not count as an attempt. --watch ends with 0 when the task is solved, with 1 by Ctrl-C."""
GENERIC = {
    "waits": "The launch does not come to its end. The report says which threads wait, where, and for what.",
    "crash": "The emulator checks every access to a buffer, but this address is in none: look for a pointer that is null or "
             "was never set.",
    "stops": "The launch stops there, so there are no numbers to compare.",
    "ordinary": "Ordinary inputs are wrong. `{command} -- {options}` shows which "
                "element is where another should be.",
    "ordinary, race": "Ordinary inputs are wrong, and the race above may be the cause, so begin with it. To see the numbers in "
                      "spite of it: `{command} -- {options} --no-races`",
    "late": "Right if copies come early and wrong if they come late: something is read before its copy has arrived. A wait is "
            "missing, or it waits for too little.",
    "heads": "With one head the numbers are right, and with two they are wrong: which offset leaves out the head?",
    "program": "The program runs to its end, but its own check does not pass. The lines above are what it says.",
    "hard": "Ordinary inputs are right and hard ones are not: look at what happens when a later tile has a larger score.",
    "other": "Right in bf16 with head_dim 128, wrong in fp16 with head_dim 64 and another number of keys: is a number "
             "written out that depends on them?",
    "early": "Right if copies come late and wrong if they come early: a copy is started while its place is still read.",
    "races": "The numbers are right, but only by luck: two threads meet in one place with nothing that orders them.",
    "counters": "It is right, but it costs more than it need: see the counters above.",
}


def wrapped(text, indent="  ", more="    "):
    return "\n".join(textwrap.fill(line, WIDTH, initial_indent=indent + line[: len(line) - len(line.lstrip())],
                                   subsequent_indent=indent + (more if indent else ""), break_on_hyphens=False)
                     for line in text.strip("\n").split("\n"))


def shortened(reason, most=12):
    lines = reason.strip().split("\n")
    return "\n".join(lines[:most] + ([f"... and {len(lines) - most} lines like these"] if len(lines) > most else []))


def advice(task, result, command):
    """What to do next, if the mistake is none of those that are known."""
    failing, runs = result["failing"], result["runs"]
    verdicts = {name: ran["verdict"] for name, ran in runs.items()}
    if failing == "stops":
        reason = runs["ordinary"].get("reason", "")
        failing = "waits" if reason.startswith("deadlock") else "crash" if "SIGSEGV" in reason else failing
    elif failing == "ordinary" and not task.is_kernel:
        failing = "program"
    elif failing == "ordinary":
        launches = launches_of(task)
        fewer_heads = launches["ordinary"][:2] != launches["large"][:2]
        if verdicts.get("early copies") == "right":
            failing = "late"
        elif verdicts["races"] == "stops":
            failing = "ordinary, race"
        elif fewer_heads and all(verdicts[name] == "right" for name in verdicts.keys() - {"ordinary", "early copies", "races"}):
            failing = "heads"
    options = [option for option in launches_of(task).get("one_hot_v", []) if option != "--no-races"]
    return GENERIC[failing].format(command=command, options=" ".join(options))


def errors_in(message):
    """The lines of a compiler's or a linker's message that say what is wrong."""
    named = [line for line in message.split("\n")
             if any(words in line for words in ("error:", "multiple definition of", "undefined reference to")) and not line.startswith("collect2")]
    return [re.sub(r"^\S*?(\w+\.cu:)", r"\1", re.sub(r"^\S*/ld: ", "", line)) for line in named] or message.split("\n")


def per_ideal(counters, name):
    """Wavefronts and sectors per ideal one, in words."""
    ideal = counters.get(f"{name}_ideal")
    return f"{counters[name] / ideal:.2f} per ideal one" if ideal else ""


def cost_of(task, result):
    """The first counter of the task, per ideal one if there is such a thing."""
    counters = result["runs"].get("ordinary", {}).get("counters", {}) if result["compiles"] else {}
    name = task.counters[0]
    ideal = counters.get(f"{name}_ideal")
    return (counters[name] / ideal if ideal else counters[name]) if counters.get(name) else None


def show(task, result, path, before, command):
    """The verdict, in the order in which one debugs. `before`: what the first attempt cost."""
    if not result["compiles"]:
        print(f"{relative(path)} does not compile:\n")
        print(wrapped("\n".join(errors_in(result["message"])[:8])))
        return
    runs = result["runs"]
    rows = {"ordinary": "ordinary inputs" if task.is_kernel else "the program's own check", "other shape": "fp16 with head_dim 64",
            "early copies": "copies come early", "other order": "threads in another order"}
    for name, ran in runs.items():
        error = f"   error {ran['error']:.1e}" if ran.get("error") is not None else ""
        if name == "races":
            print(f"  {'races':<28}{'reported' if ran['verdict'] == 'stops' else 'none found'}")
        else:
            print(f"  {rows.get(name, 'inputs: ' + name):<28}{ran['verdict']:<6}{error}".rstrip())
    if len(runs) < len(launches_of(task)):
        print(f"  {'everything else':<28}not run")
    if result["counters"]:
        counters = runs["ordinary"]["counters"]
        for name, each in result["counters"].items():
            yours = f"{each['yours']:,}"
            if told := per_ideal(counters, name):
                yours = f"{told}, {yours} in all"
            print(f"  {name.replace('_', ' '):<28}{yours}; the real kernel's: {each['reference']:,}")
    if result["solved"]:
        error = runs["ordinary"].get("error")
        cost, name = cost_of(task, result), task.counters[0].replace("_", " ")
        ideal = per_ideal(runs["ordinary"]["counters"], task.counters[0])
        counted = "".join(f"{each:.2f}" if ideal else f"{each:,.0f}" for each in [cost] if cost)
        if counted and before and before > TOO_MUCH * cost:
            counted = f"{before:.2f} → {counted}" if ideal else f"{before:,.0f} → {counted}"
        counted = counted and f"{counted} {name}{' per ideal one' if ideal else ''}"
        words = [counted, "no race" if task.is_kernel or "other order" in runs else "", f"error {error:.1e}" if error else ""]
        print(f"\n{', '.join(filter(None, words))}: solved.")
        if task.reveal:
            print(f"\n{wrapped(task.reveal, '')}")
        return
    reason = next((ran["reason"] for ran in reversed(runs.values()) if ran["verdict"] == "stops"), None) or next(
        (ran["reason"] for ran in runs.values() if ran.get("reason")), "")
    if reason:
        print(f"\n{wrapped(shortened(reason))}")
    print()
    if result["mistake"]:
        print(wrapped(f"A mistake that gives exactly this: {result['mistake']}", ""))
    else:
        print(wrapped(advice(task, result, command), ""))


def progress_in(path):
    """What a file progress.json says, {} without one; or Refused."""
    try:
        progress = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        progress = None
    if not isinstance(progress, dict) or not all(isinstance(known, dict) for known in progress.values()):
        raise Refused(f"{relative(path)} cannot be read")
    return progress


class Folder:
    """The reader's files and what they have done so far."""

    def __init__(self, path):
        self.path = Path(os.path.abspath(path))
        if os.path.isfile(self.path):
            fail(f"{relative(self.path)} is a file and no folder; --folder takes the folder of your tasks' files")
        self.file = self.path / "progress.json"
        self.option = "" if self.path == ROOT / "try" else f" --folder {shlex.quote(str(self.path))}"
        with or_fail(code=2):
            try:
                self.progress = progress_in(self.file)
            except Refused as problem:
                raise Refused(f"{problem}; remove it to begin anew, the tasks' files stay") from None

    def of(self, task):
        return self.progress.setdefault(task.name, {"attempts": 0, "hints": 0})

    def save(self):
        make_folder(self.path)
        write_whole(self.file, json.dumps(self.progress, indent=1, sort_keys=True) + "\n")

    def command(self, task):
        return f"scripts/fa try {task.name}{self.option}"

    def put_aside(self, task):
        """Gives the file of a task another name, one that no file has. A file as it was given is removed instead."""
        path = self.source(task)
        if untouched(task, path):
            path.unlink()
            return
        names = [path.with_suffix(f".cu.old{number}") for number in ["", *range(2, 1000)]]
        kept = next(name for name in names if not name.exists())
        path.replace(kept)
        print(f"Your file is now {relative(kept)}.\n")

    def source(self, task):
        return self.path / f"{task.name}.cu"

    def state(self, task):
        known = self.progress.get(task.name, {})
        return ("solved, after seeing the solution" if known.get("revealed") else "solved") if known.get("solved") else (
            "begun" if self.source(task).is_file() else "")


def show_list(tasks, folder):
    for group, title in GROUPS.items():
        members = [task for task in tasks.values() if task.group == group]
        if not members:
            continue
        print(f"{title}")
        for task in members:
            print(f"  {task.name:<22}{task.title:<56}{task.minutes:>3} min  {folder.state(task)}".rstrip())
        print()
    solved = sum(bool(folder.progress.get(name, {}).get("solved")) for name in tasks)
    print(f"{solved} of {len(tasks)} solved. Begin one: scripts/fa try NAME")


def head_of(task, folder):
    return (f"// {task.name}: your copy of {relative(task.source)}. "
            f"{'Repair it' if task.bug else 'Fill in the marked place'}, then:\n//   {folder.command(task)}\n")


def untouched(task, path):
    """Whether a file is as the task was written; its head names the folder that it was written into."""
    text = "\n".join(line.rstrip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines())
    return re.sub(rf"\A// {task.name}: your copy .*\n//.*\n", "", text) == task.start().rstrip("\n")


def begin(task, folder):
    path = folder.source(task)
    folder.of(task)
    folder.save()
    write_whole(path, head_of(task, folder) + task.start())
    print(f"{task.name}: {task.title} (about {task.minutes} minutes)\n")
    if task.bug:
        print(f"{wrapped(task.text, '')}\n")
        print(wrapped(f"The kernel is now {relative(path)}. Find the line, repair it, and run the same command again. "
                      f"Behind -- you can give the kernel options: {folder.command(task)} -- --help. "
                      f"docs/{task.read} says what the code should do.", ""))
    else:
        print(wrapped(f"{relative(path)} has a hole, marked \"your code\", and says there what belongs into it. "
                      f"Fill it in and run the same command again. docs/{task.read} explains the idea.", ""))


def hint(task, folder):
    known = folder.of(task)
    known["hints"] = min(known["hints"] + 1, len(task.hints))
    for number, text in enumerate(task.hints[: known["hints"]], 1):
        print(wrapped(f"{number}. {text}", ""))
    folder.save()
    if known["hints"] == len(task.hints):
        print(f"\nThat is all. {folder.command(task)} --solution shows the solution.")


def solution(task, folder):
    known = folder.of(task)
    known["revealed"] = known.get("revealed", False) or not known.get("solved")
    folder.save()
    if task.bug:
        old, new = (text.split("\n") for text in (task.start(), task.reference()))
        print("\n".join(difflib.unified_diff(old, new, task.bug, relative(task.source), lineterm="")))
        print(f"\n{wrapped(task.reveal, '')}")
    for part in task.answer():
        print("\n".join(line for line in part if not MARK.match(line)))


def verdict_on(task, path, keep=False, busy=busy):
    """What the checks find in a file. `keep`: its program, too."""
    examiner = Examiner(task)
    with or_fail(code=4):
        with busy(f"compiling {relative(path)} and running it"):
            result = examiner.judge(examiner.examine(path, relative(path), keep), recognise=False)
        if not result["solved"]:
            with busy("comparing it with mistakes that are known"):
                result = examiner.judge(result)
    return result


def unjudged(failing):
    """The verdict on a file that nothing need be compiled for."""
    return {"solved": False, "failing": failing, "mistake": None, "counters": {}, "message": "", "runs": {}}


def as_json(task, result, known, student=None):
    """The verdict in one line."""
    return json.dumps({**({"student": student} if student else {}), "task": task.name, "attempts": known.get("attempts", 0), "hints": known.get("hints", 0),
                       "solution_seen": bool(known.get("revealed")),
                       **{key: result[key] for key in ("solved", "failing", "mistake", "counters")},
                       "message": "\n".join(errors_in(result["message"])[:8]),
                       "runs": {name: {key: value for key, value in ran.items() if key != "counters"}
                                for name, ran in result["runs"].items()}})


def attempt(task, folder, in_json):
    """One call with a file of the reader's. Returns the exit code."""
    path, known = folder.source(task), folder.of(task)
    if untouched(task, path):
        print(as_json(task, unjudged("no attempt"), known) if in_json else
              wrapped(f"{relative(path)} is as it was given to you, which is no attempt. "
                      + (f"To see what it does: {folder.command(task)} -- --help" if task.bug else 'Fill in the place marked "your code".'), ""))
        return 1
    result = verdict_on(task, path, keep=True)
    known["attempts"] += 1
    if known.get("first") is None:
        known["first"] = cost_of(task, result)
    known["solved"] = bool(known.get("solved")) or result["solved"]
    folder.save()
    if in_json:
        print(as_json(task, result, known))
        return 0 if result["solved"] else 1
    print(f"{task.name}: {task.title}, attempt {known['attempts']}\n")
    show(task, result, path, known["first"], folder.command(task))
    if not result["solved"]:
        print(f"\nNot solved yet. A hint: {folder.command(task)} --hint")
    return 0 if result["solved"] else 1


def watch(task, folder, in_json):
    """Attempts whenever the file is saved, until it solves its task or Ctrl-C. Returns the exit code."""
    path = folder.source(task)

    def text():
        with contextlib.suppress(OSError):  # an editor may put a new file in the old one's place
            return path.read_bytes()

    try:
        while True:
            seen = text()
            if seen is not None and not attempt(task, folder, in_json):
                return 0
            print(f"\nWaiting for {relative(path)} to be saved; Ctrl-C ends it.\n", file=sys.stderr)
            sys.stdout.flush()
            while (now := text()) is None or now == seen:
                time.sleep(0.3)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 1


def report(tasks):
    """check() for those who write tasks. Returns the exit code."""
    code = 0
    for task, problems, kinds in check(tasks):
        print(f"  {task.name:<22}{'NOT AS IT SHOULD BE' if problems else 'as it should be'}  {' '.join(kinds)}", flush=True)
        for sentence in problems:
            print(wrapped(sentence, "      "))
            code = 1
    return code


def main():
    arguments, own = sys.argv[1:], []
    if "--" in arguments:
        arguments, own = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    parser = Parser("try", DESCRIPTION, EXAMPLE)
    parser.add_argument("names", nargs="*", metavar="TASK",
                        help="a task, or a kernel's number or, of beyond/, its name").completer = lambda **_: read_tasks()
    parser.add_argument("--list", action="store_true", help="all tasks, and your progress")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--hint", action="store_true", help="the next of three hints")
    either.add_argument("--solution", action="store_true", help="the real code of the hole; of a case, what was wrong")
    parser.add_argument("--reset", action="store_true", help="begin anew; your file is kept as NAME.cu.old")
    parser.add_argument("--json", action="store_true", help="the verdict as one line of JSON")
    parser.add_argument("--watch", action="store_true", help="try again whenever the file is saved, until it is solved")
    parser.add_argument("--folder", default=ROOT / "try", help="where your files are (default: try/ in the checkout); with --grade "
                        "several may follow, one per student, a folder or a file each")
    parser.add_argument("--grade", action="store_true", help="the tasks named, or all of which there are files: a line for each, or, "
                        "of several students, for each of them; nothing in the folders changes")
    parser.add_argument("--csv", metavar="FILE", help="with --grade: the same as a table, with points, attempts and hints")
    parser.add_argument("--gradescope", metavar="FILE", help="with --grade: the verdicts on one student as Gradescope's results.json")
    parser.add_argument("--check", action="store_true", help="hold the tasks to what they promise (for those who write them)")
    options = parser.parse_args(arguments)
    tasks = read_tasks()

    def is_path(name):
        """Of --grade --folder class/*: what a shell writes there, after the first."""
        return options.grade and not any(task.is_of(name) for task in tasks.values()) and ("/" in name or os.path.exists(name))

    paths = [options.folder, *filter(is_path, options.names)]
    options.names = [name.lower() for name in options.names if not is_path(name)]
    for name in options.names:
        if name not in tasks and not any(task.is_of(name) for task in tasks.values()):
            begun = [each for each in tasks if name and each.startswith(name)]
            near_by = begun[:3] or difflib.get_close_matches(name, tasks, 3, 0.4)
            fail(f"there is no task '{name}'{'; the nearest are ' + ', '.join(near_by) if near_by else ''}; "
                 "scripts/fa try --list shows all")
    if options.check:
        return report([task for task in tasks.values() if not options.names or task.name in options.names])
    if options.grade:
        if options.watch:
            fail("--grade looks once; leave out --watch")
        if options.gradescope and (len(paths) > 1 or not options.names):
            fail("--gradescope is for one student and the tasks that you name: --grade TASK ... --folder FOLDER --gradescope FILE")
        from fa_tools.for_readers import grading  # which imports this module
        chosen = [task for task in tasks.values() if task.name in options.names or any(map(task.is_of, options.names))]
        return grading.grade(paths, tasks, chosen, options)
    if options.csv or options.gradescope:
        fail(f"{'--csv' if options.csv else '--gradescope'} goes with --grade")
    folder = Folder(options.folder)
    if options.list or not options.names:
        show_list(tasks, folder)
        return 0
    if len(options.names) > 1:
        fail("name one task; only --grade and --check take several")
    name = options.names[0]
    if name in tasks:
        task = tasks[name]
    else:
        own_tasks = [task for task in tasks.values() if task.is_of(name)]
        task = next((each for each in own_tasks if not folder.progress.get(each.name, {}).get("solved")), own_tasks[-1])
    path = folder.source(task)
    if options.hint:
        hint(task, folder)
        return 0
    if options.solution:
        solution(task, folder)
        return 0
    if options.json and not path.is_file():
        fail(f"there is no file {relative(path)}; {folder.command(task)} begins the task")
    if options.reset and path.is_file():
        folder.put_aside(task)
        seen = folder.progress.pop(task.name, {}).get("revealed", False)
        folder.of(task).update({"revealed": True} if seen else {})
    if not path.is_file():
        begin(task, folder)
        return 0
    if own:
        if options.watch:
            fail("what stands behind -- runs once; leave out --watch")
        if not task.is_kernel:
            fail(f"{task.name} is a program without options; run it with scripts/fa emulate {relative(path)}")
        try:
            program = Examiner(task).program(path)
        except emulate.CompileError as problem:
            sys.stderr.write(str(problem))
            fail(f"{relative(path)} does not compile")
        return subprocess.run([program, *own], check=False).returncode
    return (watch if options.watch else attempt)(task, folder, options.json)
