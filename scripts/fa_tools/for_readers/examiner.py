"""Examines what became of a task of scripts/fa try: compiles it for the checked build, runs it on ordinary and hard inputs
beside the real code, and compares it with the mistakes that are known."""

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fa_tools.for_readers import emulate
from fa_tools.patches import renamed
from fa_tools.sources import fact, registered
from fa_tools.tools import ROOT, Refused, relative, write_whole

PATTERNS = ("02_online_softmax", "04_wmma")  # whose commands of the build are those of kernels without and with Tensor Cores
HARD = ("large", "increasing_max", "dominant_key", "one_hot_v")
HOT = ("hot_row", "hot_tiles")  # of a kernel whose maximum is not the row's
OTHER = ["--dtype", "fp16", "--head-dim", "64", "--heads", "1", "--no-races", "--seq-len"]
FLAGS = ("-w", "-O1", "-DFA_TWO_OF_FOUR")  # common/launch/registry.h
PATIENCE = 3  # seconds of processor time without progress that end a launch
MOST_SECONDS = 10  # of processor time, for a launch of one kernel
COMPILING = 120  # seconds of processor time for the compiler, which takes 5 to 20
SLOW = 12  # times as long may it take on a machine that has other things to do
NO_END = "the launch did not end"
TOO_MUCH = 1.02  # times the reference's counter
LIKE = 0.03  # relative difference of errors and counters up to which two results are alike


def environment(task):
    """How programs of this task are made (emulate.pattern), and what every result depends on besides its source."""
    how = emulate.pattern(PATTERNS[fact(task.number, "tensor_cores")], of_kernel=True) if task.is_kernel else emulate.pattern(emulate.EXAMPLE)
    return how, emulate.digest_of(how, [Path(__file__), *sorted((ROOT / "kernels").rglob("*.h"))]).hexdigest()


def includes():
    """What the kernels include of common/: what all of them begin with, as far as the compiler's time is concerned."""
    lines = {line for path in (ROOT / "kernels").glob("*.cu") for line in path.read_text(encoding="utf-8").split("\n")}
    return "".join(sorted(f"{line}\n" for line in lines if line.startswith('#include "common/')))


# ---- one program, one launch ----------------------------------------------------------------------------------------------

def limited(command, launches, **more):
    """Runs a program that may hold a loop without end."""
    more["env"] = {**more.get("env", os.environ), "FA_BUSY_AFTER": "600"}  # what it says is about the kernel
    limit = ["bash", "-c", 'ulimit -t "$0" && exec "$@"', str(MOST_SECONDS * launches)]
    try:
        return subprocess.run([*limit, *command], cwd=ROOT, capture_output=True, text=True, errors="replace", check=False,
                              stdin=subprocess.DEVNULL, timeout=SLOW * MOST_SECONDS * launches, **more)
    except subprocess.TimeoutExpired as sleeping:
        return subprocess.CompletedProcess(sleeping.cmd, -signal.SIGKILL, "", "")


def ended_by(code):
    """Why a program without a word has ended."""
    if code >= 0:
        return ""
    if -code in (signal.SIGXCPU, signal.SIGKILL):
        return f"{NO_END} within {MOST_SECONDS} s of processor time, or it sleeps: is there a loop without end?"
    return f"the program was ended by {signal.Signals(-code).name}"


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
        try:
            records = json.loads(results.read_text(encoding="utf-8"))["records"]
        except (ValueError, KeyError, TypeError):  # cut off, or written by the file itself
            return {name: {"verdict": "stops", "reason": "the results that the program wrote cannot be read"} for name in names or [""]}
    if not records:
        reason = "the file has no kernel: is the line with `registration` at its end missing?"
        return {name: {"verdict": "stops", "reason": reason} for name in names or [""]}
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


def counts_of(ran, names):
    """The counters of the kernels with these names, or of all that ran, by what is counted and by kind of instruction."""
    total = Counter()
    for kernel in (kernel for kernel in ran if not names or kernel["kernel"] in names):
        total.update({name: kernel["counters"][name] for name in ("shared_wavefronts", "global_sectors")})
        for line in kernel["lines"]:
            total.update({f"{line['kind']} {column}": line[column] for column in ("requests", "wavefronts", "sectors") if column in line})
    return dict(total)


def run_program(program, task, options):
    """What a program of examples/ says of itself, and the emulator of it."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder, "counts.json")
        done = limited([str(program)], 1, env={**os.environ, "FA_EMULATOR": f"threads=1 {options}", "FA_EMULATOR_JSON": str(counts)})
        ran = json.loads(counts.read_text(encoding="utf-8"))["kernels"] if counts.exists() else []
    result = {"verdict": "right", "counters": counts_of(ran, task.kernels)}
    if done.returncode:
        report = done.stderr.strip().removeprefix("error: ") or ended_by(done.returncode)
        said, tables, _ = done.stdout.partition(", by kind of instruction\n")
        said = (said.rpartition("\n")[0] if tables else said).strip()  # what stands above the first table
        result.update(verdict="stops" if report else "wrong", reason="\n".join(filter(None, [said, report])))
        if report:
            result["counters"] = {}  # those of a part
    elif not any(result["counters"].values()):
        result.update(verdict="wrong", reason=f"the program has not launched {' or '.join(task.kernels or ['a kernel'])}")
    return result


# ---- all that the checks say of a file ------------------------------------------------------------------------------------

def launches_of(task):
    """{key: options} of what is run: problems that are large enough to show mistakes, and no larger."""
    if not task.is_kernel:
        return {"ordinary": "", "other order": "schedule=random seed=2"}
    kernel = registered(task.kernel)
    hopper, trait = kernel.exactly, kernel.trait
    slow, max_free, persistent = trait == "Slow", trait == "MaxFree", trait in ("Persistent", "MaxFree")
    tokens = 128 if slow else 512 if hopper else 256
    problem = task.problem or ["--heads", "1" if hopper and not persistent else "2", "--seq-len", str(tokens)]
    small = task.problem or ["--heads", "1", "--seq-len", str(max(128, tokens // 2))] if fact(task.number, "hard") == "half" else problem
    hard = HARD + (HOT if max_free else ())
    other = "128" if task.source.parent.name == "backward" else "256" if slow else "384"
    in_fp8 = problem[problem.index("--fp8") :][:2] if "--fp8" in problem else []
    return {"ordinary": [*problem, "--no-races"], **{inputs: [*small, "--inputs", inputs, "--no-races"] for inputs in hard},
            "other shape": [*in_fp8, *OTHER, other],
            **({"early copies": [*problem, "--completion", "early", "--no-races"]} if trait not in (None, "Slow") else {}), "races": problem}


class Examiner:
    """Examines sources of one task, each text once. `sparing`: wrong texts that are examined together are run no further than
    it takes to tell each from the others."""

    def __init__(self, task, sparing=False):
        self.task, self.sparing = task, sparing
        self.group = f"{task.start()} {task.wrong}" if sparing else ""  # what the results of wrong texts depend on
        self.how, self.environment = environment(task)
        self.folder = self.how[0] / "try"
        self.sources = self.folder / "sources"
        (self.folder / "cache").mkdir(parents=True, exist_ok=True)
        self.sources.mkdir(exist_ok=True)

    def program(self, path):
        """The program that a source becomes. Raises emulate.CompileError or emulate.cuda_source.Refused."""
        if not self.task.is_kernel:
            return emulate.compile_file(path, seconds=COMPILING)
        digest = hashlib.sha256(path.read_bytes() + f"{self.environment} {path}".encode()).hexdigest()
        program = self.folder / f"{path.stem}-{digest[:16]}"
        if not program.is_file():
            for old in self.folder.glob(f"{path.stem}-*"):  # of an earlier text
                old.unlink()
            with tempfile.TemporaryDirectory(dir=self.folder) as temporary:
                unit = path
                if self.task.kernel != self.task.source:
                    unit = Path(temporary) / "unit.cu"
                    unit.write_text(self.task.unit(path.read_text(encoding="utf-8", errors="replace"), path), encoding="utf-8")
                emulate.make(self.how, unit, program, *FLAGS, seconds=COMPILING)
        return program

    def cached(self, text, where=""):
        """Where the result of a text is kept. Reports name `where`."""
        group = self.group if text != self.task.reference() else ""
        key = f"{self.environment} {where} {launches_of(self.task)} {self.task.kernels} {group} {text}"
        return self.folder / "cache" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"

    def launch(self, program, names, options):
        """{name: what the launch gave}."""
        if self.task.is_kernel:
            return run_kernels(program, names if names != [""] else [], options)
        return {"": run_program(program, self.task, options)}

    def run(self, program, names):
        """{name: {launch: what it gave}}; if ordinary inputs give no numbers, nothing else is run."""
        launches = launches_of(self.task)
        runs = {name: {} for name in names}

        def is_open(name):
            """Whether the text is right so far, or gives the same as another one so far."""
            if not self.sparing or all(ran["verdict"] == "right" for each, ran in runs[name].items() if each != "races"):
                return True
            return any(alike({"runs": runs[name]}, {"runs": runs[other]}, self.task) for other in names if other != name)

        if self.task.is_kernel:  # where the search for races lets a launch end, it gives the ordinary numbers and counters, too
            for name, found in self.launch(program, names, launches["races"]).items():
                reported = found["verdict"] == "stops" and not found["reason"].startswith(NO_END)
                runs[name] = {"races": found} if reported else {"ordinary": found, "races": found}
        for launch, options in launches.items():
            going = [name for name in names if launch not in runs[name] and (
                launch == "ordinary" or runs[name]["ordinary"]["verdict"] != "stops" and is_open(name))]
            for name, found in self.launch(program, going, options).items() if going else ():
                runs[name][launch] = found
        return {name: {launch: found[launch] for launch in launches
                       if launch in found and (launch == "ordinary" or found["ordinary"]["verdict"] != "stops")}
                for name, found in runs.items()}

    def examine(self, path, where="", keep=False):
        """{"compiles", "message", "runs"} of a source."""
        cache = self.cached(path.read_text(encoding="utf-8", errors="replace"), where)
        with contextlib.suppress(OSError, ValueError):
            return json.loads(cache.read_text(encoding="utf-8"))
        try:
            program = self.program(path)
        except (emulate.CompileError, emulate.cuda_source.Refused) as problem:
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
            own = {label: renamed(self.task.unit(text, f"{label}.cu"), label) for label, text in missing.items()}
            with tempfile.TemporaryDirectory(dir=self.folder) as temporary, contextlib.suppress(emulate.CompileError):
                for label, text in own.items():
                    (Path(temporary) / f"{label}.cu").write_text(text, encoding="utf-8")
                unit = Path(temporary) / "unit.cu"
                unit.write_text("".join(f'#include "{label}.cu"\n' for label in own), encoding="utf-8")
                emulate.make(self.how, unit, Path(temporary) / "program", *FLAGS, begin=includes())
                for label, runs in self.run(Path(temporary) / "program", list(own)).items():
                    write_whole(self.cached(texts[label]), json.dumps({"compiles": True, "message": "", "runs": runs}))
        return {label: self.examine(self.sources / f"{label}.cu") if label in missing else
                json.loads(self.cached(text).read_text(encoding="utf-8")) for label, text in texts.items()}

    def reference(self):
        label = f"{self.task.name}_reference"  # other tasks of this source may be examined at the same time
        result = self.examine_texts({label: self.task.reference()})[label]
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


def plain(ran, task):
    """What a run says, without names, places and most numbers. Of a deadlock: which threads wait in which instruction, and
    what the barriers lack. A program's own words stay as they are, because their numbers tell which element is wrong."""
    reason = ran.get("reason", "")
    if not task.is_kernel:
        return reason if ran["verdict"] == "wrong" else re.sub(r"\S+\.cu\b|\bwarm_\w+|\d+", "#", reason)
    first, _, more = reason.partition("\n")
    if first.startswith("deadlock"):
        return re.sub(r" at \S+:\d+", "", more)
    first, missing = (re.sub(r"\S+\.cu\b|\b(\d\d|case|beyond|backward)[/_]\w+|(?<!phase )\b\d+", "#", text)
                      for text in (first, next(iter(re.findall("Missing: .*", more)), "")))
    return first[:80] + missing


def alike(a, b, task):
    """Whether two sources give the same: as far as one can tell, they have the same mistake."""
    for name in a["runs"].keys() & b["runs"].keys():  # what only one of them needed says nothing
        one, other = a["runs"][name], b["runs"][name]
        if one["verdict"] != other["verdict"] or not near(one.get("error") or 0.0, other.get("error") or 0.0):
            return False
        if plain(one, task) != plain(other, task) and (one["verdict"] == "stops" or not task.is_kernel):
            return False
    mine, theirs = (each["runs"]["ordinary"].get("counters", {}) for each in (a, b))
    return all(near(mine.get(name, 0), theirs.get(name, 0)) for name in task.counters)


def check(tasks):
    """Whether each task is solved by the real code, not by what it begins with, and its wrong answers are told apart: yields
    (task, sentences on what is not so, the kinds of its wrong answers)."""

    def examine(task):
        found, kinds = [], []
        try:
            examiner = Examiner(task, sparing=True)
            *mistakes, start, real = examiner.known_mistakes(task.start(), task.reference())
            if not examiner.judge(real)["solved"]:
                found.append("the real code does not solve it")
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
        yield from pool.map(examine, tasks)
