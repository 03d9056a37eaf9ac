"""scripts/fa try: gives the reader a kernel with a hole, or with a bug, and says what the checks find in what became of it."""

import contextlib
import difflib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fa_tools import cuda_source, emulate
from fa_tools.tasks import GROUPS, MARK, WIDTH, read_tasks
from fa_tools.tools import ROOT, Parser, Refused, fail, or_fail, relative, run, write_whole

DESCRIPTION = """Kernels with a hole, or with somebody else's bug, for you to complete. The first call writes the file into
the folder try/ and says what to do. Every further call compiles your file for the emulator and tells you what
the checks find: numbers on ordinary and on hard inputs, races, deadlocks, bank conflicts."""
EXAMPLE = """A number stands for the kernel's first task that you have not solved. Everything behind -- is for the
kernel's own program, which then runs with your file: --inputs, --seq-len, --completion early ...

examples:
  scripts/fa try --list                            all tasks, and which you have solved
  scripts/fa try 02_softmax                        begins the task; again: what the checks find
  scripts/fa try 02_softmax --hint                 a hint; again: the next
  scripts/fa try case_01 -- --heads 1 --inputs one_hot_v

Exit code: 0 solved, or the task was written; 1 not solved yet; 2 bad arguments; 4 the emulator could not be built."""
CACHED = "02_online_softmax"  # whose commands of the build are those of every kernel
HARD = ("large", "increasing_max", "dominant_key", "one_hot_v")
HOT = ("hot_row", "hot_tiles")  # of a kernel whose maximum is not the row's
OTHER = ["--dtype", "fp16", "--head-dim", "64", "--heads", "1", "--no-races", "--seq-len"]
FLAGS = ("-w", "-DFA_TWO_OF_FOUR")  # common/launch/registry.h
PATIENCE = 3  # seconds of processor time without progress that end a launch
MOST_SECONDS = 10  # of processor time, for a launch of one kernel
TOO_MUCH = 1.02  # times the reference's counter
LIKE = 0.03  # relative difference of errors and counters up to which two results are alike
GENERIC = {
    "stops": "The launch does not come to its end. The report says where, and which threads wait for what.",
    "ordinary": "Ordinary inputs are wrong. `scripts/fa try {name} -- --heads 1 --seq-len 128 --inputs one_hot_v` shows which "
                "element is where another should be.",
    "hard": "Ordinary inputs are right and hard ones are not: look at what happens when a later tile has a larger score.",
    "other": "Right in bf16 with head_dim 128, wrong in fp16 with head_dim 64 and another number of keys: is a number "
             "written out that depends on them?",
    "early": "Right if copies come late and wrong if they come early: a copy is started while its place is still read.",
    "races": "The numbers are right, but only by luck: two threads meet in one place with nothing that orders them.",
    "counters": "It is right, but it costs more than it need: see the counters above.",
}


def environment(task):
    """How programs of this task are made (emulate.pattern), and what every result depends on besides its source."""
    how = emulate.pattern(CACHED, of_kernel=True) if task.is_kernel else emulate.pattern(emulate.EXAMPLE)
    headers = [path for folder in ("launch", "ptx", "layout", "emulator/include")
               for path in sorted((ROOT / "common" / folder).rglob("*.h"))]
    return how, emulate.digest_of(how, [*headers, Path(__file__)]).hexdigest()


# ---- one program, one launch ----------------------------------------------------------------------------------------------

def limited(command, launches, **more):
    """Runs a program that may hold a loop without end."""
    limit = ["bash", "-c", 'ulimit -t "$0" && exec "$@"', str(MOST_SECONDS * launches)]
    return subprocess.run([*limit, *command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=600, **more)


def ended_by(code):
    """Why a program without a word has ended."""
    if code >= 0:
        return ""
    return (f"the launch did not end within {MOST_SECONDS} s of processor time: is there a loop without end?"
            if -code in (signal.SIGXCPU, signal.SIGKILL) else f"the program was ended by {signal.Signals(-code).name}")


def run_kernels(program, names, options):
    """What the program says of one launch of each of its kernels: {name: result}. Without names it has but one."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        command = [program, *names, *options, "--counters", "none", "--threads", "1", "--patience", str(PATIENCE), "--json", results]
        done = limited([str(word) for word in command], max(1, len(names)))
        said = done.stderr.strip() or ended_by(done.returncode)
        if not results.is_file():
            if len(names) > 1:  # one of them took the others with it
                return {key: value for name in names for key, value in run_kernels(program, [name], options).items()}
            return {name: {"verdict": "stops", "reason": said.removeprefix("error: ")} for name in names or [""]}
        records = json.loads(results.read_text(encoding="utf-8"))["records"]
    found = {}
    for name, record in zip(names or [""], records):
        verdict = {"passed": "right", "wrong": "wrong"}.get(record["status"], "stops")
        found[name] = {"verdict": verdict, "counters": record.get("counters", {})}
        if "error" in record:
            found[name]["error"] = record["error"]["rel"]
        if verdict != "right":
            reason = record.get("reason") or next((line for line in said.split("\n") if line.startswith(f"{record['kernel']}: ")), said)
            found[name]["reason"] = reason.removeprefix(f"{record['kernel']}: ")
    return found


def counts_of(output, kernels):
    """The counters that the program's tables show, summed over the kernels named, or over all."""
    total = {}
    for table in re.finditer(r"^(\S.*), by kind of instruction\n(.*)\n((?:.+\n)*)", output, re.M):
        if kernels and table[1] not in kernels:
            continue
        ends = {match[0]: match.end() for match in re.finditer(r"requests|wavefronts|sectors", table[2])}
        for line in table[3].splitlines():
            kind = line[:15].strip()
            for column, end in ends.items():
                if number := re.search(r"[\d,]+$", line[:end]):
                    total[f"{kind} {column}"] = total.get(f"{kind} {column}", 0) + int(number[0].replace(",", ""))
    for name, space, column in (("shared_wavefronts", "shared", "wavefronts"), ("global_sectors", "global", "sectors")):
        total[name] = sum(number for key, number in total.items() if key.startswith(space) and key.endswith(column))
    return total


def run_program(program, task, options):
    """What a program of examples/ says of itself, and the emulator of it."""
    done = limited([str(program)], 1, env={**os.environ, "FA_EMULATOR": f"threads=1 {options}"})
    result = {"verdict": "right", "counters": counts_of(done.stdout, task.kernels)}
    if done.returncode:
        report = done.stderr.strip().removeprefix("error: ") or ended_by(done.returncode)
        said = done.stdout.split(", by kind of instruction")[0].strip().rsplit("\n\n", 1)[0]
        result.update(verdict="stops" if report else "wrong", reason=report or said)
    return result


# ---- all that the checks say of a file ------------------------------------------------------------------------------------

def launches_of(task):
    """{key: options} of what is run: problems that are large enough to show mistakes, and no larger."""
    if not task.is_kernel:
        return {"ordinary": "", "other order": "schedule=random seed=2"}
    number = int(task.number)
    tokens = "128" if number < 3 else "256" if number < 11 else "512"
    problem = task.problem or ["--heads", "1" if 11 <= number <= 14 else "2", "--seq-len", tokens]
    small = task.problem or ["--heads", "1", "--seq-len", tokens]
    hard = HARD + (HOT if number >= 16 else ())
    return {"ordinary": [*problem, "--no-races"], **{inputs: [*small, "--inputs", inputs, "--no-races"] for inputs in hard},
            "other shape": [*OTHER, "256" if number < 3 else "384"],
            **({"early copies": [*problem, "--completion", "early", "--no-races"]} if number >= 7 else {}), "races": problem}


class Examiner:
    """Examines sources of one task, each text once."""

    def __init__(self, task):
        self.task = task
        self.how, self.environment = environment(task)
        self.folder = self.how[0] / "try"
        self.sources = self.folder / "sources"
        (self.folder / "cache").mkdir(parents=True, exist_ok=True)
        self.sources.mkdir(exist_ok=True)

    def program(self, path):
        """The program that a source becomes. Raises emulate.CompileError or cuda_source.Refused."""
        if not self.task.is_kernel:
            return emulate.compile_file(path)
        digest = hashlib.sha256(path.read_bytes() + f"{self.environment} {path}".encode()).hexdigest()
        program = self.folder / f"{path.stem}-{digest[:16]}"
        if not program.is_file():
            for old in self.folder.glob(f"{path.stem}-*"):  # of an earlier text
                old.unlink()
            emulate.make(self.how, path, program, *FLAGS)
        return program

    def cached(self, text, where=""):
        """Where the result of a text is kept. Reports name `where`."""
        key = f"{self.environment} {where} {launches_of(self.task)} {self.task.kernels} {text}"
        return self.folder / "cache" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"

    def run(self, program, names):
        """{name: {launch: what it gave}}; if ordinary inputs give no numbers, nothing else is run."""
        runs = {name: {} for name in names}
        for launch, options in launches_of(self.task).items():
            going = [name for name in names if runs[name].get("ordinary", {}).get("verdict") != "stops"]
            if not going:
                break
            if self.task.is_kernel:
                found = run_kernels(program, going if names != [""] else [], options)
            else:
                found = {"": run_program(program, self.task, options)}
            for name in going:
                runs[name][launch] = found[name]
        return runs

    def examine(self, path, where="", keep=False):
        """{"compiles", "message", "runs"} of a source."""
        cache = self.cached(path.read_text(encoding="utf-8", errors="replace"), where)
        with contextlib.suppress(OSError, ValueError):
            return json.loads(cache.read_text(encoding="utf-8"))
        try:
            program = self.program(path)
        except (emulate.CompileError, cuda_source.Refused) as problem:
            result = {"compiles": False, "message": str(problem), "runs": {}}
        else:
            result = {"compiles": True, "message": "", "runs": self.run(program, [""])[""]}
            if not keep and self.task.is_kernel:
                program.unlink(missing_ok=True)
        write_whole(cache, json.dumps(result))
        return result

    def examine_texts(self, texts):
        """The same of texts that are not the reader's, {label: result}. Several kernels are compiled as one program."""
        missing = {label: text for label, text in texts.items() if not self.cached(text).is_file()}
        for label, text in missing.items():
            write_whole(self.sources / f"{label}.cu", text)
        if self.task.is_kernel and len(missing) > 1:
            own = {label: re.sub(r"namespace fa::k\d+", f"namespace fa::{re.sub(r'^(?=[0-9])', 'k', label)}",
                                 text.replace(f'registration{{"{self.task.source.stem}"', f'registration{{"{label}"'))
                   for label, text in missing.items()}
            with tempfile.TemporaryDirectory(dir=self.folder) as temporary, contextlib.suppress(emulate.CompileError):
                for label, text in own.items():
                    (Path(temporary) / f"{label}.cu").write_text(text, encoding="utf-8")
                unit = Path(temporary) / "unit.cu"
                unit.write_text("".join(f'#include "{label}.cu"\n' for label in own), encoding="utf-8")
                emulate.make(self.how, unit, Path(temporary) / "program", *FLAGS)
                for label, runs in self.run(Path(temporary) / "program", list(own)).items():
                    write_whole(self.cached(texts[label]), json.dumps({"compiles": True, "message": "", "runs": runs}))
        return {label: self.examine(self.sources / f"{label}.cu") if label in missing else
                json.loads(self.cached(text).read_text(encoding="utf-8")) for label, text in texts.items()}

    def reference(self):
        result = self.examine_texts({f"{self.task.source.stem}": self.task.reference()})[self.task.source.stem]
        if not result["compiles"] or any(ran["verdict"] != "right" for ran in result["runs"].values()):
            raise Refused(f"the real code of {self.task.name} does not pass its own checks: was {relative(self.task.source)} changed?")
        return result

    def known_mistakes(self, *more):
        """The results of the wrong answers, in their order, and of more texts."""
        texts = [*map(self.task.wrong_answer, self.task.wrong), *more]
        return list(self.examine_texts({f"{self.task.name}_{i}": text for i, text in enumerate(texts, 1)}).values())

    def judge(self, result, recognise=True):
        """Adds to an examined result: "solved", "counters" beside the reference's, "failing": the kind of the first thing that
        is not right, and "mistake": the known one that gives the same."""
        reference = self.reference()
        runs = result["runs"]
        result["failing"], result["counters"] = None, {}
        if not result["compiles"]:
            result["failing"] = "compile"
        else:
            mine, theirs = (each["runs"]["ordinary"].get("counters", {}) for each in (result, reference))
            for name in self.task.counters if mine else []:
                result["counters"][name] = {"yours": mine.get(name, 0), "reference": theirs.get(name, 0)}
            kinds = {"ordinary": "ordinary", "other order": "races", "other shape": "other", "early copies": "early", "races": "races"}
            for name, ran in runs.items():
                if ran["verdict"] != "right":
                    result["failing"] = "stops" if name == "ordinary" and ran["verdict"] == "stops" else kinds.get(name, "hard")
                    break
            else:
                if any(each["yours"] > TOO_MUCH * each["reference"] for each in result["counters"].values()):
                    result["failing"] = "counters"
        result["solved"] = result["failing"] is None
        result["mistake"] = None
        if recognise and not result["solved"] and result["compiles"]:
            result["mistake"] = next((wrong["what"] for wrong, other in zip(self.task.wrong, self.known_mistakes())
                                      if alike(result, other, self.task)), None)
        return result


def near(a, b):
    return a == b or (a != a and b != b) or abs(a - b) <= LIKE * max(abs(a), abs(b))


def plain(reason):
    """A report without what depends on names, places and numbers."""
    return re.sub(r"\S+\.cu\b|\b(\d\d|case)_\w+|\d+", "#", reason.split("\n")[0])[:80]


def alike(a, b, task):
    """Whether two sources give the same: as far as one can tell, they have the same mistake."""
    if set(a["runs"]) != set(b["runs"]):
        return False
    for name, one in a["runs"].items():
        other = b["runs"][name]
        if one["verdict"] != other["verdict"] or not near(one.get("error") or 0.0, other.get("error") or 0.0):
            return False
        if plain(one.get("reason", "")) != plain(other.get("reason", "")) and (one["verdict"] == "stops" or not task.is_kernel):
            return False
    mine, theirs = (each["runs"]["ordinary"].get("counters", {}) for each in (a, b))
    return all(near(mine.get(name, 0), theirs.get(name, 0)) for name in task.counters)


# ---- for the reader ---------------------------------------------------------------------------------------------------

def wrapped(text, indent="  ", more="    "):
    return "\n".join(textwrap.fill(line, WIDTH, initial_indent=indent + line[: len(line) - len(line.lstrip())],
                                   subsequent_indent=indent + (more if indent else ""), break_on_hyphens=False)
                     for line in text.strip("\n").split("\n"))


def shortened(reason, most=12):
    lines = reason.strip().split("\n")
    return "\n".join(lines[:most] + ([f"... and {len(lines) - most} lines like these"] if len(lines) > most else []))


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


def show(task, result, path, before):
    """The verdict, in the order in which one debugs. `before`: what the first attempt cost."""
    if not result["compiles"]:
        print(f"{relative(path)} does not compile:\n")
        errors = [line for line in result["message"].split("\n") if "error:" in line] or result["message"].split("\n")
        print(wrapped("\n".join(re.sub(r"^\S*?(\w+\.cu:)", r"\1", line) for line in errors[:8])))
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
        print(wrapped(GENERIC[result["failing"]].format(name=task.name), ""))


class Folder:
    """The reader's files and what they have done so far."""

    def __init__(self, path):
        self.path = Path(os.path.abspath(path))
        self.file = self.path / "progress.json"
        try:
            self.progress = json.loads(self.file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self.progress = {}
        except (OSError, ValueError):
            fail(f"{relative(self.file)} cannot be read; remove it to begin anew, your files stay")

    def of(self, task):
        return self.progress.setdefault(task.name, {"attempts": 0, "hints": 0})

    def save(self):
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.file, json.dumps(self.progress, indent=1, sort_keys=True) + "\n")

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


def head_of(task, path):
    return (f"// {task.name}: your copy of {relative(task.source)}. "
            f"{'Repair it' if task.bug else 'Fill in the marked place'}, then:\n"
            f"//   scripts/fa try {task.name}{'' if path.parent == ROOT / 'try' else f' --folder {path.parent}'}\n")


def begin(task, folder):
    path = folder.source(task)
    folder.of(task)
    folder.save()
    write_whole(path, head_of(task, path) + task.start())
    print(f"{task.name}: {task.title} (about {task.minutes} minutes)\n")
    if task.bug:
        print(f"{wrapped(task.text, '')}\n")
        print(wrapped(f"The kernel is now {relative(path)}. Find the line, repair it, and run the same command again. "
                      f"Behind -- you can give the kernel options: scripts/fa try {task.name} -- --help", ""))
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
        print(f"\nThat is all. scripts/fa try {task.name} --solution shows the solution.")


def solution(task, folder):
    known = folder.of(task)
    known["revealed"] = not known.get("solved")
    folder.save()
    old, new = ((task.start() if task.bug else "\n".join(line for line in task.start().split("\n") if not line.lstrip().startswith("// ===="))),
                task.reference())
    if task.bug:
        lines = difflib.unified_diff(old.split("\n"), new.split("\n"), relative(folder.source(task)),
                                     relative(task.source), n=3, lineterm="")
        print("\n".join(lines))
        print(f"\n{wrapped(task.reveal, '')}")
        return
    for part in task.answer():
        print("\n".join(line for line in part if not MARK.match(line)))


def attempt(task, folder, as_json):
    """One call with a file of the reader's. Returns the exit code."""
    path = folder.source(task)
    known = folder.of(task)
    known["attempts"] += 1
    if path.read_text(encoding="utf-8", errors="replace") == head_of(task, path) + task.start() and not as_json:
        print(f"{relative(path)} is as it was given to you. Here is what the checks say of it:\n")
    if sys.stderr.isatty():
        print(f"compiling {relative(path)} and running it ...", end="\r", file=sys.stderr)
    examiner = Examiner(task)
    with or_fail(code=4):
        result = examiner.judge(examiner.examine(path, relative(path), keep=True), recognise=False)
        if not result["solved"]:
            if sys.stderr.isatty():
                print("\033[Kcomparing with mistakes that are known ...", end="\r", file=sys.stderr)
            result = examiner.judge(result)
    if sys.stderr.isatty():
        print("\033[K", end="", file=sys.stderr)
    known.setdefault("first", cost_of(task, result))
    known["solved"] = bool(known.get("solved")) or result["solved"]
    folder.save()
    if as_json:
        print(json.dumps({"task": task.name, **known, "solved": result["solved"], "failing": result["failing"], "mistake": result["mistake"],
                          "counters": result["counters"],
                          "runs": {name: {key: value for key, value in ran.items() if key != "counters"} for name, ran in result["runs"].items()}}))
    else:
        print(f"{task.name}: {task.title}, attempt {known['attempts']}\n")
        show(task, result, path, known["first"])
        if not result["solved"]:
            print(f"\nNot solved yet. A hint: scripts/fa try {task.name} --hint")
    return 0 if result["solved"] else 1


def check(tasks):
    """Proves that each task is solved by the real code, not by what it begins with, and that its wrong answers are told apart.
    Returns the sentences on what is not so."""
    problems = []

    def examine(task):
        found, kinds = [], []
        try:
            examiner = Examiner(task)
            if not examiner.judge(examiner.reference())["solved"]:
                found.append("the real code does not solve it")
            *mistakes, start = examiner.known_mistakes(task.start())
            if not start["compiles"]:
                found.append(f"what it begins with does not compile: {start['message'][:300]}")
            elif examiner.judge(start, recognise=False)["solved"]:
                found.append("what it begins with solves it")
            for wrong, result in zip(task.wrong, mistakes):
                judged = examiner.judge(result)
                kinds.append(judged["failing"] or "none")
                if not judged["compiles"]:
                    found.append(f"the wrong answer '{wrong['what']}' does not compile: {judged['message'][:300]}")
                elif judged["solved"]:
                    found.append(f"the wrong answer '{wrong['what']}' passes")
                elif judged["mistake"] != wrong["what"]:
                    found.append(f"'{wrong['what']}' cannot be told from '{judged['mistake']}'")
            if not task.bug and len(task.wrong) < 4:
                found.append(f"it has {len(task.wrong)} wrong answers; four are the least")
        except Refused as problem:
            found.append(str(problem))
        return task, found, kinds

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for task, found, kinds in pool.map(examine, tasks):
            print(f"  {task.name:<22}{'as it should be' if not found else 'NOT AS IT SHOULD BE'}  {' '.join(kinds)}", flush=True)
            for sentence in found:
                print(wrapped(sentence, "      "))
            problems += found
    return problems


def main():
    arguments, own = sys.argv[1:], []
    if "--" in arguments:
        arguments, own = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    parser = Parser("try", DESCRIPTION, EXAMPLE)
    parser.add_argument("names", nargs="*", metavar="TASK", help="a task, or a kernel's number")
    parser.add_argument("--list", action="store_true", help="all tasks, and your progress")
    parser.add_argument("--hint", action="store_true", help="the next of three hints")
    parser.add_argument("--solution", action="store_true", help="the real code of the hole; of a case, what was wrong")
    parser.add_argument("--reset", action="store_true", help="begin anew; your file is kept as NAME.cu.old")
    parser.add_argument("--json", action="store_true", help="the verdict as one line of JSON")
    parser.add_argument("--grade", action="store_true", help="all tasks that the folder has files of, a line each")
    parser.add_argument("--folder", default=ROOT / "try", help="where your files are (default: try/ in the checkout)")
    parser.add_argument("--check", action="store_true", help="hold the tasks to what they promise (for those who write them)")
    options = parser.parse_args(arguments)
    with or_fail():
        tasks = read_tasks()
    for name in options.names:
        if name not in tasks and not any(task.number and task.number == name.zfill(2) for task in tasks.values() if not task.bug):
            near_by = difflib.get_close_matches(name, tasks, 3, 0.4)
            fail(f"there is no task '{name}'{'; the nearest are ' + ', '.join(near_by) if near_by else ''}; "
                 "scripts/fa try --list shows all")
    if options.check:
        chosen = [task for task in tasks.values() if not options.names or task.name in options.names]
        return 1 if check(chosen) else 0
    folder = Folder(options.folder)
    if options.list or not (options.names or options.grade):
        show_list(tasks, folder)
        return 0
    if options.grade:
        codes = []
        for task in tasks.values():
            if folder.source(task).is_file():
                with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(sys.stdout if options.json else nowhere):
                    codes.append(attempt(task, folder, True))
                if not options.json:
                    print(f"  {task.name:<22}{'solved' if codes[-1] == 0 else 'not solved'}", flush=True)
        if not codes:
            fail(f"{relative(folder.path)} holds no file of a task")
        if not options.json:
            print(f"{codes.count(0)} of {len(codes)} solved")
        return max(codes)
    if len(options.names) > 1:
        fail("name one task; only --check takes several")
    name = options.names[0]
    if name in tasks:
        task = tasks[name]
    else:
        own_tasks = [task for task in tasks.values() if task.number == name.zfill(2) and not task.bug]
        task = next((each for each in own_tasks if not folder.progress.get(each.name, {}).get("solved")), own_tasks[-1])
    path = folder.source(task)
    if options.hint:
        hint(task, folder)
        return 0
    if options.solution:
        solution(task, folder)
        return 0
    if options.reset and path.is_file():
        path.replace(path.with_suffix(".cu.old"))
        folder.progress.pop(task.name, None)
    if not path.is_file():
        with or_fail():
            begin(task, folder)
        return 0
    if own:
        if not task.is_kernel:
            fail(f"{task.name} is a program without options; run it with scripts/fa emulate {relative(path)}")
        try:
            program = Examiner(task).program(path)
        except emulate.CompileError as problem:
            sys.stderr.write(str(problem))
            fail(f"{relative(path)} does not compile")
        return subprocess.run([program, *own], check=False).returncode
    return attempt(task, folder, options.json)


if __name__ == "__main__":
    run(main)
