"""scripts/fa try --grade: what the checks find in the files of a class, one student a folder or a file."""

import contextlib
import csv
import io
import os
import sys
import textwrap
from collections import Counter
from pathlib import Path

from fa_tools.for_readers.attempts import as_json, progress_in, show, unjudged, untouched, verdict_on
from fa_tools.for_readers.tasks import WIDTH
from fa_tools.tools import Refused, busy, check_writable, fail, lines_of, relative, write_whole

WORDS = {"compile": "does not compile", "stops": "stops", "ordinary": "wrong", "hard": "wrong on hard inputs", "other": "wrong in fp16",
         "early": "wrong if copies come early", "races": "races", "counters": "right, but costs too much", "no attempt": "no attempt",
         "no file": "no file"}
CSV = ("student", "task", "solved", "failing", "points", "of", "attempts", "hints", "solution_seen", "mistake")


class Submission:
    """What one student has handed in: a folder, or a file."""

    def __init__(self, path, tasks, chosen):
        self.path = Path(os.path.abspath(path))
        self.name, self.files, self.progress, self.problems = self.path.name, {}, {}, []
        try:
            if self.path.is_dir():
                self.read_folder(tasks)
            elif self.path.suffix == ".cu" and self.path.is_file():
                self.read_file(tasks, chosen)
            else:
                self.problems.append(f"{relative(self.path)} is neither a folder nor a .cu file" if self.path.exists() else
                                     f"there is no folder {relative(self.path)}")
        except OSError as problem:
            self.problems.append(f"{relative(self.path)} cannot be read ({problem.strerror.lower()})")

    def read_folder(self, tasks):
        folder = self.path
        if not any(folder.glob("*.cu")) and (folder / "try").is_dir():
            folder /= "try"
        for path in sorted(folder.glob("*.cu")):
            if path.stem in tasks:
                self.files[path.stem] = path
            else:
                print(f"{relative(path)} is not graded: there is no task of this name", file=sys.stderr)
        try:
            self.progress = progress_in(folder / "progress.json")
        except Refused as problem:
            self.problems.append(f"{problem}, so no attempts and no hints are known")

    def read_file(self, tasks, chosen):
        """A file is of the task whose name it ends with, otherwise of the only one chosen."""
        task = next((name for name in tasks if f"_{self.path.stem}".endswith(f"_{name}")), chosen[0].name if len(chosen) == 1 else None)
        if task is None:
            self.problems.append(f"{relative(self.path)} is like no task by its name: name the task")
        else:
            self.name = self.path.parent.name if self.path.stem == task else self.path.stem.removesuffix(f"_{task}")
            self.files[task] = self.path


def judged(task, submission, progress):
    """The verdict on a student's file. Whatever is in it, there is one."""
    path = submission.files.get(task.name)
    if path is None:
        return unjudged("no file")
    try:
        return unjudged("no attempt") if untouched(task, path) else verdict_on(task, path, busy=progress)
    except OSError as problem:
        submission.problems.append(f"{relative(path)} cannot be read ({(problem.strerror or str(problem)).lower()})")
        return unjudged("no file")


def points(task, result, known):
    """(points, the most) by the scheme of docs/course.md."""
    most = 3 if task.bug else 4
    if not result["solved"] and result["failing"] != "counters":
        return 0, most
    return most - (not result["solved"]) - bool(known.get("revealed")), most


def told(task, result, path):
    """The verdict as its author would see it."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        if result["runs"] or result["failing"] == "compile":
            show(task, result, path, None, f"scripts/fa try {task.name}")
        else:
            print(f"There is no file {task.name}.cu." if result["failing"] == "no file" else "The file is as it was given.")
    return said.getvalue().strip("\n")


def for_gradescope(tasks, submission, results):
    tests = []
    for number, (task, result) in enumerate(zip(tasks, results), 1):
        score, most = points(task, result, submission.progress.get(task.name, {}))
        tests.append({"name": f"{task.name}: {task.title}", "number": str(number), "score": score, "max_score": most,
                      "status": "passed" if result["solved"] else "failed", "output": told(task, result, submission.files.get(task.name))})
    return lines_of({"output": "\n".join(submission.problems), "tests": tests})


def as_csv(rows):
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(CSV)
    for submission, task, result in rows:
        known = submission.progress.get(task.name, {})
        table.writerow([submission.name, task.name, int(result["solved"]), result["failing"] or "", *points(task, result, known),
                        known.get("attempts", 0), known.get("hints", 0), int(bool(known.get("revealed"))), result["mistake"] or ""])
    return text.getvalue()


def row_of(submission, tasks, results, width):
    """A student's line of the table, or lines."""
    name = submission.name if len(submission.name) <= width else f"{submission.name[: width - 1]}…"
    solved = sum(result["solved"] for result in results)
    failing = ", ".join(f"{task.name}: {WORDS[result['failing']]}" for task, result in zip(tasks, results) if not result["solved"])
    if submission.problems and not submission.files:
        failing = "nothing to be read"
    head = f"{name:<{width}}  {solved:>2} of {len(tasks):<2}  "
    return textwrap.fill(failing, WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False) or head.rstrip()


def grade(paths, tasks, chosen, options):
    """What students handed in, of which nothing is changed; `chosen`: the tasks that are named. Returns the exit code."""
    for path in filter(None, (options.csv, options.gradescope)):
        check_writable(path)
    submissions = [Submission(path, tasks, chosen) for path in paths]
    several = len(submissions) > 1
    names = Counter(each.name for each in submissions)
    for path, each in zip(paths, submissions):
        each.name = str(path) if names[each.name] > 1 else each.name
    wanted = chosen or [task for task in tasks.values() if any(task.name in each.files for each in submissions)]
    if not options.gradescope and not any(task.name in each.files for task in wanted for each in submissions):
        what = chosen[0].name if len(chosen) == 1 else "a task"
        fail(f"none of the {len(submissions)} holds a file of {what}" if several else
             "; ".join(submissions[0].problems) or f"{relative(submissions[0].path)} holds no file of {what}")
    width = min(24, max(len("student"), *(len(each.name) for each in submissions)))
    if several and not options.json:
        print(f"{'student':<{width}}  solved    not solved", flush=True)
    rows, perfect = [], 0
    for number, each in enumerate(submissions, 1):
        with busy(f"{each.name}, {number} of {len(submissions)}") if several else contextlib.nullcontext():
            results = [judged(task, each, contextlib.nullcontext if several else busy) for task in wanted]
        rows += [(each, task, result) for task, result in zip(wanted, results)]
        perfect += all(result["solved"] for result in results)
        for problem in each.problems:
            print(f"note: {problem}", file=sys.stderr, flush=True)
        if options.json:
            for task, result in zip(wanted, results):
                print(as_json(task, result, each.progress.get(task.name, {}), each.name if several else None), flush=True)
        elif several:
            print(row_of(each, wanted, results, width), flush=True)
        else:
            for task, result in zip(wanted, results):
                print(f"  {task.name:<22}" + ("solved" if result["solved"] else f"not solved: {WORDS[result['failing']]}"), flush=True)
    if not options.json:
        solved = sum(result["solved"] for _, _, result in rows)
        print(f"{perfect} of {len(submissions)} have solved everything" if several else f"{solved} of {len(wanted)} solved")
    if options.csv:
        write_whole(options.csv, as_csv(rows))
    if options.gradescope:
        write_whole(options.gradescope, for_gradescope(wanted, submissions[0], results))
    return 2 if any(each.problems for each in submissions) else 0 if perfect == len(submissions) else 1
