"""Measures on the GPU present what a changed kernel asks for.

bench/measurements.toml says which measurements there are. Without kernels those are measured that have changed since
(stale), each beside its left neighbour in the ladder and the libraries whose ratio is published. The programs are those
of the preset cuda. Checks come first; what was measured is written after every measurement, and one that fails does not
stop the next. The GPU's folder, such as results/measured/h100, then has a file for each of bench/results/h100 that is concerned, a
log, and facts of the machine. Of a GPU that has no results yet everything is to be measured.

--mine asks for no kernel: it measures what your card can run, in minutes, and shows it beside the book's card.

`scripts/fa adopt --from` brings such folders, or a tar of them, into bench/results, without a GPU."""

import contextlib
import fnmatch
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import namedtuple
from functools import lru_cache
from pathlib import Path

from fa_tools.cards import BOOK, card_of, gpu_of, has_file
from fa_tools.measuring import mine
from fa_tools.measuring.validate import check_sense
from fa_tools.records import check, is_finding, is_stale, kept_records, kind, neighbours, problem_of, short_name, todays_source, with_solution
from fa_tools.patches import solutions
from fa_tools.sources import gradient_names, kernel_names
from fa_tools.tools import (RESULTS, ROOT, Parser, Refused, fail, read_json, read_set, read_toml, relative, write_json,
                            write_whole)

EXAMPLE = """examples:
  scripts/fa measure --mine                   your own GPU, whichever it is: builds, measures, compares and draws
  scripts/fa measure --list                   the measurements, and which kernels are stale in each
  scripts/fa measure --dry-run 05 15          the commands for two kernels, in order, each with its seconds
  scripts/fa measure                          on a GPU: what is stale; the files go to results/measured
  scripts/fa measure --dry-run --machine H100  what an H100 still lacks, without one
  scripts/fa measure 16.next --only peers     a kernel of kernels/next beside the one that it may replace
  scripts/fa measure --only ladder --whole    all kernels, as after a change of the machine

Exit code: 0 done, 1 a check found wrong results, 2 bad arguments or files, 3 a measurement
failed, 4 nothing is built, 130 Ctrl-C."""

MANIFEST = ROOT / "bench" / "measurements.toml"
WIDTH = 100
LEAST = 4  # seconds that a measurement takes, however little it measures
FIELDS = {"group", "command", "kernels", "peers", "file", "each", "seconds", "kept"}

Entry = namedtuple("Entry", ("name", *sorted(FIELDS)))
Step = namedtuple("Step", "name entry file kernels commands seconds")


# --- What there is to measure ----------------------------------------------------------------------------------


@lru_cache(maxsize=None)
def known():
    """{number: name} of all kernels. Those of kernels/beyond and of gradients have no number: their key is the name alone, such
    as `causal`."""
    return {short_name(name): name for name in [*kernel_names(), *gradient_names()]}


def replaced(number):
    """The kernel that one of kernels/next may replace, or the kernel itself: 16 for 16.next."""
    return number.removesuffix(".next")


def numbers(text):
    """The numbers of "06 08-10 15-", and the names."""
    parts = [part.partition("-") for part in text.split()]
    return [n for n in known() if n == replaced(n) and any(a <= n <= (b or ("99" if dash else a)) for a, dash, b in parts)]


def manifest(path=MANIFEST):
    """The entries in order. Refused, with one sentence, if one is not whole."""
    entries = []
    for name, said in read_toml(path).items():
        if set(said) - FIELDS or "group" not in said or ("seconds" in said) != ("command" in said) or ("command" in said) == ("kept" in said):
            raise Refused(f"{relative(path)}: {name} lacks something, or has what no measurement has")
        whole = {"command": [], "kernels": "", "peers": [], "file": None, "each": {"": ""}, "seconds": 0, "kept": None} | said
        whole["command"] = [whole["command"]] if isinstance(whole["command"], str) else whole["command"]
        entries.append(Entry(name, **{field: numbers(value) if field == "kernels" else value for field, value in whole.items()}))
    return entries


def has(entry, *names):
    """Whether a command of the entry has one of these in braces."""
    return any(f"{{{name}}}" in command for command in entry.command for name in names)


def is_single(entry):
    """Whether each kernel is a measurement of its own, without neighbours."""
    return has(entry, "kernel", "number")


def files_of(entry):
    """Names within a card's folder of bench/results; some with * in them."""
    if entry.file is None:
        return []
    of = entry.kernels if "{number}" in entry.file else [""]
    return [entry.file.format(each=each, number=number) for each in entry.each for number in of]


@lru_cache(maxsize=None)
def records_by_file():
    """{card/file within bench/results: {number: its records}}"""
    found = {}
    for file, record in kept_records():
        found.setdefault(str(Path(file).relative_to(RESULTS)), {}).setdefault(replaced(short_name(record["kernel"])), []).append(record)
    return found


def records_in(card, file):
    """{number: its records} in this file of the card."""
    found = {}
    for name, by_number in records_by_file().items():
        if fnmatch.fnmatchcase(name, f"{card}/{file}"):
            for number, records in by_number.items():
                found.setdefault(number, []).extend(records)
    return found


def candidates(entry, file):
    """The numbers of the kernels that an entry measures for this file of it."""
    return [n for n in entry.kernels if "{number}" not in entry.file or f"#{n}" in file]


def stale_of(entries, card):
    """{(entry's name, file): numbers whose records of this card are stale, or are not there}. A check has those of all the others."""
    stale = {}
    for entry in entries:
        for file in files_of(entry) if not entry.kept else ():
            found = records_in(card, file)
            stale[entry.name, file] = [n for n in candidates(entry, file) if not found.get(n) or any(map(is_stale, found[n]))]
    union = {n for some in stale.values() for n in some}
    return stale | {(entry.name, file): [n for n in entry.kernels if n in union]
                    for entry in entries for file in files_of(entry) or [None] if (entry.name, file) not in stale}


def new_to(card):
    """The numbers of kernels of which a card has nothing at all."""
    wanted = {number for entry in manifest() if entry.file for number in entry.kernels}
    return sorted(wanted - {number for name, found in records_by_file().items() if name.startswith(f"{card}/") for number in found})


def lacks(entry, card, file, new=()):
    """Whether this file of an entry, or a kernel in it but these, was never measured on the card."""
    if not entry.kernels:
        return not has_file(card, file)
    found = records_in(card, file)
    return any(n not in found for n in candidates(entry, file) if n not in new)


def incomplete(card):
    """The names of measurements that a card's set still lacks, of the kernels that are in it."""
    new = new_to(card)
    return [entry.name for entry in manifest() if not entry.kept and any(lacks(entry, card, file, new) for file in files_of(entry))]


def present():
    """The card of the GPU present, or None."""
    with contextlib.suppress(OSError):
        done = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip():
            return card_of(done.stdout.strip().split("\n")[0])
    return None


# --- Commands --------------------------------------------------------------------------------------------------


def words(template, values):
    """A command of its template: a word that is a list's name alone becomes its words."""
    out = []
    for word in template.split():
        value = values[word[1:-1]] if re.fullmatch(r"\{\w+\}", word) else word.format_map(values)
        out += value if isinstance(value, list) else [value]
    if out[0] == "fa":
        return [str(ROOT / "scripts" / "fa"), *out[1:]]
    if out[0] == "python3":  # with PyTorch, and with fa of this build
        path = os.pathsep.join(filter(None, ["python", os.environ.get("PYTHONPATH")]))
        return ["/usr/bin/env", f"FA_LIBRARY={relative(values['fa'])}", f"PYTHONPATH={path}", os.environ.get("PYTHON", "python3"), *out[1:]]
    return out if "/" in out[0] or out[0] == "compute-sanitizer" else [f"{values['bin']}/{out[0]}", *out[1:]]


def beside(entry, chosen):
    """The chosen numbers of an entry; where times are compared with their left neighbours in the ladder, that of one of
    kernels/next being the kernel that it may replace."""
    left = {f"{int(n) - 1:02}" if n.isdecimal() else replaced(n) for n in chosen if entry.file and has(entry, "kernels")}
    return [n for n in known() if n in chosen or n in left and n in entry.kernels]


def steps_of(entry, chosen_in, folder, build):
    """What is to be run of an entry: for each file that it writes, the numbers that chosen_in(file) names."""
    part = folder / "part"
    values = {"bin": f"{build}/bin", "library": f"{build}/lib/libfa_bench.so", "fa": f"{build}/lib/libfa.so", "timeline": f"{build}-timeline/bin", "part": str(part),
              "json": f"{part}/found.json", "set": f"{part}/found.jsonl", "peers": ",".join(entry.peers)}
    for each, options in entry.each.items() if entry.command else ():
        for number in [n for n in known() if replaced(n) in entry.kernels] if is_single(entry) else [""]:
            asked = entry.file and entry.file.format(each=each, number=replaced(number))
            chosen = [n for n in chosen_in(asked) if replaced(n) in entry.kernels and (not number or n == number)]
            if number.endswith(".next") and entry.group == "solutions" or not chosen and entry.kernels:
                continue
            measured = beside(entry, chosen)
            share = (len(measured) + len(entry.peers)) / max(1, len(entry.kernels) + len(entry.peers))
            share = share if is_single(entry) or has(entry, "kernels", "filter") else 1
            share = 0.4 + 0.6 * share if has(entry, "kernels") and entry.file else share  # inputs and reference are made once
            of_next = [n for n in measured if n.endswith(".next")]
            # The program attention has none of kernels/next, the program next has nothing else.
            parts = [[n for n in measured if n not in of_next], of_next] if has(entry, "attention") else [measured]
            commands = []
            for some in list(filter(None, parts)) or [[]]:
                names = [known()[n] for n in some]
                values |= {"kernels": names, "kernel": known().get(number, ""), "number": number, "each": each,
                           "options": options.split(), "attention": f"{build}/bin/{'next' if some and some[0] in of_next else 'attention'}",
                           "filter": ":".join(f"*/{name.replace('.', '_')}*" for name in names) + ":-*Full*:*Long*",
                           "solutions": [name for name in sorted(solutions()) if number and name[:2] == number]}
                commands.append([words(command, values) for command in entry.command])
            file = entry.file and entry.file.format(each=each, number=number)
            yield Step(" ".join(filter(None, (entry.name, each, number))), entry, file, measured, commands,
                       max(LEAST, round(share * entry.seconds)))


def shown(command):
    return " ".join(relative(word) if word.startswith(str(ROOT)) else word for word in command)


def missing(step, build):
    """One sentence: why this machine cannot measure it, or None."""
    for command in (command for commands in step.commands for command in commands):
        program = command[0]
        if "/" not in program and not shutil.which(program):
            return f"there is no {program}"
        if command[1:2] == ["profile"] and not shutil.which("ncu"):
            return "there is no ncu"
        files = [str(ROOT / word.removeprefix("FA_LIBRARY=")) for word in command]
        if absent := [file for file in files if file.startswith(str(build)) and not Path(file).exists()]:
            return f"{relative(absent[0])} is not built"
    return missing_peer(tuple(step.entry.peers))


@lru_cache(maxsize=None)
def missing_peer(peers):
    """The sentence of bench's PyTorch on the first of these libraries that it lacks, or on PyTorch itself."""
    code = ("import sys\nfrom fa_tools.for_readers import torch_attention as t\nnames = [n for n in sys.argv[1:] if n in t.PEERS]\n"
            "try:\n  torch = (names or 'torch' in sys.argv) and __import__('torch')\n  for n in names: t.PEERS[n][1](t.PEERS[n][0], torch)\n"
            "except ImportError as p: print(f'this Python cannot import {p.name}')\nexcept t.Missing as p: print(p)\n")
    done = subprocess.run([os.environ.get("PYTHON", "python3"), "-c", code, *peers], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "scripts"), os.environ.get("PYTHONPATH")]))})
    return done.stdout.strip() or (done.stderr.strip().split("\n")[-1] if done.returncode else None)


# --- Running ---------------------------------------------------------------------------------------------------


def call(command, seconds, log):
    """Its exit code; what it says goes into the log. Ends its whole group of processes after ten times its seconds."""
    print(f"$ {shown(command)}", file=log, flush=True)
    try:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, start_new_session=True)
    except OSError as problem:
        print(problem, file=log)
        return 127
    try:
        return process.wait(60 + 10 * seconds)
    except BaseException as problem:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if not isinstance(problem, subprocess.TimeoutExpired):
            raise
        print(f"ended after {60 + 10 * seconds} s", file=log)
        return 124


def measure_step(step, folder, log):
    """(the first exit code that is not 0, or 0; sentences on what was not kept)"""
    part, said, worst = folder / "part", [], 0
    file, _, name = (step.file or "").partition("#")
    for commands in step.commands:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        code = next(filter(None, (call(command, step.seconds, log) for command in commands)), 0)
        found = read_set(part / "found.jsonl") if (part / "found.jsonl").exists() else {}
        if (part / "found.json").exists():
            found[name] = read_json(part / "found.json")
        for name_in_set, data in found.items():
            said += put(folder.parent / card_of(gpu_of(data) or folder.name), f"{file}{'#' * bool(name_in_set)}{name_in_set}", data)
        if code:
            said.append(f"ended with {code}, see {relative(log.name)}")
        elif file and not found:
            code = 3
            said.append("wrote nothing")
        worst = worst or code
    shutil.rmtree(part)
    return worst, said


def put(folder, file, data, adopt=False):
    """Merges data into a file of the folder. Returns sentences on what was refused."""
    path = f"{folder}/{file}"
    there = Path(path.partition("#")[0])
    there.parent.mkdir(parents=True, exist_ok=True)
    try:
        old = read_json(path) if there.exists() and (".jsonl#" not in file or file.partition("#")[2] in read_set(there)) else None
        new, refused = merged(old, data, file, adopt)
        if new is not None and new != old:
            write_json(path, new)
        return refused
    except Refused as problem:
        return [f"{file} {problem}"]


def write_machine(folder):
    """Facts of the machine, and none of its names."""
    asked = (("nvidia-smi", "--query-gpu=name,driver_version,power.limit,clocks.max.sm,clocks.sm,temperature.gpu", "--format=csv"),
             ("ncu", "--version"), ("compute-sanitizer", "--version"))
    said = []
    for command in asked:
        with contextlib.suppress(OSError):
            said.append(subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip())
    write_whole(folder / "machine.txt", "\n\n".join(said) + "\n")


def measure(steps, folder, build, limit, log):
    """Runs the steps; returns the exit code."""
    began, failed, skipped, left = time.monotonic(), [], [], []
    for i, step in enumerate(steps):
        spent = time.monotonic() - began
        if limit is not None and spent + step.seconds > limit:
            left = steps[i:]
            break
        if why := missing(step, build):
            skipped.append(f"{step.name}: {why}")
            print(f"[{i + 1}/{len(steps)}] {step.name}: skipped, {why}", flush=True)
            continue
        print(f"[{i + 1}/{len(steps)}] {step.name}: {' '.join(step.kernels)}, about {step.seconds} s; {spent:.0f} s so far ...", flush=True)
        try:
            code, said = measure_step(step, folder, log)
        except Refused as problem:  # of a file that a program left half-written
            code, said = 3, [f"its file {problem}"]
        if said:
            failed.append((code, f"{step.name}: {'; '.join(said)}"))
            print(f"  failed: {failed[-1][1]}", flush=True)
    for title, sentences in (("Skipped", skipped), ("Failed", [text for _, text in failed])):
        if sentences:
            print(f"\n{title}:\n" + "\n".join(f"  {text}" for text in sentences))
    if left:
        print(f"\nLeft, about {sum(step.seconds for step in left)} s: {', '.join(step.name for step in left)}")
    print(f"\n{relative(folder)} has what was measured; in a checkout: scripts/fa adopt --from {relative(folder)}")
    return 1 if any(code == 1 or not code for code, _ in failed) else 3 if failed else 0


# --- Bringing it into bench/results ----------------------------------------------------------------------------


def machine_of(data):
    """What of its machine must be the same in all records of a file: not the last parts of versions, nor the bytes left free."""
    machine = {name: value for name, value in data["machine"].items() if not name.endswith("_bytes")}
    return machine | {"driver": machine["driver"].split(".")[0], "compiler": machine["compiler"].rpartition(".")[0]}


def accepted(data, file, adopt):
    """(records or launches that may be kept, sentences on the others). With adopt those of kernels/next have the name of what
    they became."""
    records = [dict(record) for record in data.get("records", data.get("launches", []))]
    kept, refused = [], {}
    for record in with_solution(f"{RESULTS}/{file}", {"records": records})["records"]:
        name, is_next = record["kernel"], record["kernel"].endswith(".next")
        if adopt and is_next:
            record["kernel"] = name.removesuffix(".next")
        if kind(name) == "kernel" and record.get("source") != todays_source(record):
            why = "is not in its place yet" if adopt and is_next else "is of another source than today's"
            refused.setdefault(why, set()).add(name)
        elif record.get("status", "passed") == "passed" or is_finding(record):
            record.pop("solution", None)
            kept.append(record)
        elif kind(name) == "kernel" and record["status"] != "skipped":
            refused.setdefault(f"is {record['status']}", set()).add(name)
    taken = {record["kernel"] for record in kept}  # what one of kernels/next has replaced is not missed
    return kept, [f"{file}: {', '.join(sorted(names - taken))} {why}" for why, names in refused.items() if names - taken]


def same(old, new, what):
    """Refused if the two differ, with what differs."""
    if odd := [key for key in {**old, **new} if old.get(key) != new.get(key)]:
        raise Refused(f"has another {what} ({odd[0]} {old.get(odd[0])}, now {new.get(odd[0])}): --whole measures all of it again")


def merged(old, new, file, adopt=False):
    """(the file's data with what is new in it, or None if nothing is; sentences on what was refused)"""
    gpu = "machine" if "machine" in new else "recorded" if "recorded" in new else None
    if old and (old[gpu] if gpu else old)["gpu"] != (new[gpu] if gpu else new)["gpu"]:
        raise Refused("is of another GPU")
    if "recorded" in new:
        record = {**new["recorded"], "kernel": new["kernel"].removesuffix(".next") if adopt else new["kernel"]}
        if record.get("source") != todays_source(record):
            return None, [f"{file}: {new['kernel']} is of another source than today's"]
        return {**new, "kernel": record["kernel"]}, []
    if "records" not in new and "launches" not in new or "gemm_version" in new:
        return new, []
    field = "records" if "records" in new else "launches"
    kept, refused = accepted(new, file, adopt)

    def key(record):
        return record["kernel"], problem_of(record) if field == "records" else record["function"]
    mine = {key(record): record for record in kept}
    theirs = {key(record): record for record in (old or {field: []})[field] if record.get("status", "passed") == "passed"}
    for each, record in theirs.items():
        if gone := set(record.get("ratio", ())) - set(mine.get(each, record).get("ratio", ())):
            refused.append(f"{file}: {each[0]} has no ratio to {', '.join(sorted(gone))}")
            mine = {of: mine[of] for of in mine if of[0] != each[0]}
    if not any(kind(name) == "kernel" for name, _ in mine) and any(kind(record["kernel"]) == "kernel" for record in new[field]):
        return None, refused
    if field == "launches":
        for name in {record["kernel"] for record in kept}:  # a kernel may have other functions than before
            theirs = {each: record for each, record in theirs.items() if each[0] != name or each in mine}
    if set(theirs) <= set(mine):
        data = {**new, field: list(mine.values())}
    elif field == "launches":
        same(*({**data, field: None} for data in (old, new)), "problem or driver")
        others = [record for each, record in theirs.items() if each not in mine]
        data = {**old, field: sorted([*others, *mine.values()], key=lambda record: record["kernel"])}
    else:
        same(machine_of(old), machine_of(new), "machine")
        same(old["protocol"], new["protocol"], "protocol")
        for record in mine.values():  # which run it is of, where that is not the file's
            record.setdefault("run", new["created"])
            if record["run"] == old["created"]:
                del record["run"]
        data = {**old, field: [mine.pop(key(record), record) for record in old[field]] + list(mine.values())}
        other = [f"{name} {new['machine'][name]}" for name in ("driver", "compiler") if new["machine"][name] != old["machine"][name]]
        other = [f"run {new['created']}: {', '.join(other)}"] if other else []
        if notes := list(dict.fromkeys([*old.get("notes", []), *new.get("notes", []), *other])):
            data["notes"] = notes
    if field == "records":
        check(data)
        check_sense(data)
    return data, refused


def merge(folder, say=lambda sentence: print(f"not merged: {sentence}", file=sys.stderr)):
    """Brings what was measured, folders of cards or a tar of them, into bench/results: each file to the card of the GPU that it is of,
    whose folder may be new. Returns the files that changed."""
    folder, named = Path(folder), {file.partition("#")[0] for entry in manifest() for file in files_of(entry)}
    with tempfile.TemporaryDirectory() as unpacked:
        if not folder.is_dir():
            try:
                with tarfile.open(folder) as tar:
                    for i, member in enumerate(filter(tarfile.TarInfo.isfile, tar)):  # two cards have files of the same name
                        path = Path(unpacked) / str(i) / Path(member.name).name
                        path.parent.mkdir()
                        path.write_bytes(tar.extractfile(member).read())
            except (OSError, tarfile.TarError) as problem:
                raise Refused(f"{folder} is neither a folder nor a tar ({str(problem).lower()})") from None
            folder = Path(unpacked)
        before = contents(RESULTS)
        for path in sorted(folder.rglob("*.json*")):
            if path.name not in named:
                say(f"{path.name} is the file of no measurement")
                continue
            for name, data in read_set(path).items() if path.suffix == ".jsonl" else [("", read_json(path))]:
                gpu = gpu_of(data)
                if gpu is None:
                    say(f"{path.name}{'#' * bool(name)}{name} is of no GPU")
                    continue
                for sentence in put(RESULTS / card_of(gpu), f"{path.name}{'#' * bool(name)}{name.replace('.next', '')}", data, adopt=True):
                    say(f"{card_of(gpu)}/{sentence}")
    return [relative(path) for path, content in contents(RESULTS).items() if content != before.get(path)]


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.glob("*/*.json*"))}


# --- Command line ----------------------------------------------------------------------------------------------


def ranges(some):
    """06 08-10 of numbers."""
    return " ".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in neighbours(some))


def show_list(entries, stale, card):
    print(f"{'name':<24}{'group':<10}{'kernels':<31}{f'stale on {card.upper()}':<26}{'seconds':>7}")
    for entry in entries:
        line = f"{entry.name:<24}{entry.group:<10}"
        some = ranges(sorted({n for file in files_of(entry) or [None] for n in stale[entry.name, file]}))
        if not entry.kernels and not entry.kept and any(lacks(entry, card, file) for file in files_of(entry)):
            some = "not measured yet"
        line += f"kept: {entry.kept}" if entry.kept else \
            f"{ranges(entry.kernels):<31}{some[:25]:<26}{entry.seconds * len(entry.each):>7}"
        print(line if len(line) <= WIDTH else line[:WIDTH - 4] + " ...")


def chosen_steps(args, entries, card):
    """What is to be run on this card, in order."""
    asked = [n for word in args.kernels for n, name in known().items() if word in (n, name)]
    if len(asked) < len(args.kernels):
        unknown = next(word for word in args.kernels if word not in {*known(), *known().values()})
        fail(f"there is no kernel {unknown}; there are {', '.join(known())}")
    only = args.only.split(",") if args.only else []
    for word in only:
        if word not in {part for entry in entries for part in (entry.name, entry.group)}:
            fail(f"there is no measurement {word}; scripts/fa measure --list shows them")
    stale, steps = {} if asked or args.whole else stale_of(entries, card), []
    for entry in entries:
        named = entry.name in only or entry.group in only
        if entry.kept or only and not named:
            continue
        found = list(steps_of(entry, lambda file: asked or (entry.kernels if args.whole else stale[entry.name, file]), args.output / card,
                              args.build))
        # What is of no kernel is measured where it is named, and once on a GPU that has nothing of it.
        steps += [step for step in found if named or entry.kernels or not asked and lacks(entry, card, step.file)]
    return steps


def main(argv=None):
    parser = Parser("measure", __doc__, EXAMPLE)
    add = parser.add_argument
    add("kernels", nargs="*", metavar="NN", help="kernels (15, 15_persistent, 16.next, causal); without: the stale ones")
    add("--stale", action="store_true", help="those that changed since they were measured (default)")
    add("--whole", action="store_true", help="all kernels")
    add("--mine", action="store_true", help="the ladder on a card of yours (docs/your_card.md)")
    add("--only", metavar="NAME", help="groups or measurements of --list, with commas between them")
    add("--limit", type=float, metavar="SECONDS", help="begin nothing that would not end by then, and say what is left")
    add("--list", action="store_true", help="print the measurements, and measure nothing")
    add("--dry-run", action="store_true", help="print the commands, and run nothing")
    add("--machine", metavar="NAME", help=f"with --list or --dry-run: whose results (default: of the GPU present, else {BOOK.upper()})")
    add("-o", "--output", type=Path, metavar="DIR",
        help="where to write a folder for the GPU (default results/measured), with --mine a file (default results/mine)")
    parser.earlier("--to", "output", type=Path)
    add("--build", type=Path, default=ROOT / "build" / "cuda", metavar="FOLDER", help="of the preset cuda (default build/cuda)")
    args = parser.parse_args(argv)
    if len([which for which in (args.kernels, args.stale, args.whole, args.mine) if which]) > 1:
        fail("name kernels, or give one of --stale, --whole and --mine")
    if args.mine:
        for option in ("only", "limit", "list", "dry_run", "machine"):
            if getattr(args, option):
                fail(f"--mine measures the ladder alone, so it does not go with --{option.replace('_', '-')}")
        return mine.main(args.build.resolve(), args.output.resolve() if args.output else ROOT / "results" / "mine")
    if args.machine and not (args.list or args.dry_run):
        fail("--machine goes with --list or --dry-run: what is measured is the GPU present")
    entries, card = manifest(), card_of(args.machine) if args.machine else present() or BOOK
    if args.list:
        show_list(entries, stale_of(entries, card), card)
        return 0
    args.output, args.build = (args.output or ROOT / "results/measured").resolve(), args.build.resolve()
    steps = chosen_steps(args, entries, card)
    if not steps:
        print("Nothing is to be measured.")
        return 0
    if args.dry_run:
        for step in steps:
            for i, command in enumerate(command for commands in step.commands for command in commands):
                print(f"{f'{step.seconds} s' if i == 0 else '':>7}  {shown(command)}")
        print(f"{sum(step.seconds for step in steps):>5} s in all")
        return 0
    if not (args.build / "bin" / "attention").exists():
        fail(f"{relative(args.build)}/bin/attention is not built: cmake --preset cuda && cmake --build --preset cuda", 4)
    folder = args.output / card
    folder.mkdir(parents=True, exist_ok=True)
    write_machine(folder)
    with (folder / "log.txt").open("a", encoding="utf-8") as log:
        return measure(steps, folder, args.build, args.limit, log)
