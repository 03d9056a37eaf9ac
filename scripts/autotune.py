#!/usr/bin/env python3
"""Finds the best tile sizes of kernel 10 for the GPU present: builds the choices of a space, checks and times them.

Choices that cannot work, or cannot be fast, are dropped by rules before anything is built, and counted. What is left
is compiled in parallel and linked into one program a head_dim, whose kernels are the choices. Each is checked on hard
inputs, then timed with few launches; the best are timed again by the full protocol, in rounds whose order moves on.
The best geometric mean over the lengths is the choice; within 0.5 % of it, the one with the fewest registers, then
the least shared memory. Everything is written to bench/results/tuning/, and with --write to kernels/10_tuning.h."""

import argparse
import concurrent.futures
import datetime
import fnmatch
import hashlib
import itertools
import json
import math
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
from sass import LIMITS, Missing, build_flags, find_nvcc, occupancy, parse_resources, round_up  # noqa: E402
from tools import ROOT, Refused, fail, read_json, read_results, relative  # noqa: E402

EXAMPLE = """examples:
  scripts/autotune.sh --list                    the space and what the rules drop; needs no GPU
  scripts/autotune.sh --write                   builds, checks, times, and writes the choice into kernels/10_tuning.h
  scripts/autotune.sh --head-dim 128 --seq-len 4096 --only '4,2,*' --max-minutes 5
  scripts/autotune.sh --resume bench/results/tuning/h200_bf16.json          only what was not reached in time there
  scripts/autotune.sh --from bench/results/tuning/h200_bf16.json            the header from a file, without a GPU
  scripts/autotune.sh --check --from bench/results/tuning/h200_bf16.json    only says whether it differs

Exit code: 0 done, 1 wrong results or the header differs, 2 bad arguments or files, 3 no GPU or it failed, 4 the
build failed."""

KERNEL = "10_instruction_tuning"
HEADER = ROOT / "kernels" / "10_tuning.h"
TUNING_SCHEMA = ROOT / "bench" / "tuning_schema.json"
RESULTS = ROOT / "bench" / "results" / "tuning"
BUILD = ROOT / "build" / "autotune"
SPACE = {
    "warps": (4, 8),
    "row_tiles": (1, 2, 4),
    "block_n": (32, 64, 128),
    "stages": (2, 3, 4),
    "ctas": (1, 2, 3, 4),
    "q_in_registers": (False, True),
    "q_in_v": (False, True),
}
ROW_MULTIPLE = 128  # seq_len is a multiple of it
SM_REGISTERS, MOST_REGISTERS = 65536, 255  # of an SM; a thread
OTHER_REGISTERS = 24  # a thread's fragments of K or V, addresses and indices, at least
SPILL_LIMIT = 256  # bytes a thread, stores and loads together: what spills more is not timed
TIE = 0.005  # of the best geometric mean
FINALISTS = 8
ROUNDS = 3
PATIENCE = 180  # seconds for a run of the program; one takes a few
BATCH = 24  # choices that one run of the program times
QUICK = {"warmup": 8, "iterations": 24, "max_seconds": 2.0}
FULL = {"warmup": 32, "iterations": 128, "max_seconds": 4.0}
HARD_INPUTS = ("increasing_max", "dominant_key")
HEADS = 16


# --- The space -------------------------------------------------------------------------------------------------


class Choice(NamedTuple):
    """struct Tuning of kernels/10_tuning.h."""

    warps: int
    row_tiles: int
    block_n: int
    stages: int
    ctas: int
    q_in_registers: bool
    q_in_v: bool

    def block_m(self):
        return self.warps * self.row_tiles * 16

    def threads(self):
        return self.warps * 32

    def shared_bytes(self, head_dim):
        return (2 * self.stages * self.block_n + (0 if self.q_in_v else self.block_m())) * head_dim * 2

    def cpp(self):
        return ", ".join(str(value).lower() for value in self)

    def text(self):
        return ",".join(str(int(value)) for value in self)

    def name(self):
        """The name of the choice's kernel in the program."""
        where = "_v" if self.q_in_v else "_q" if self.q_in_registers else ""
        return f"10_w{self.warps}_r{self.row_tiles}_n{self.block_n}_s{self.stages}_c{self.ctas}{where}"


def space():
    return [Choice(*values) for values in itertools.product(*SPACE.values())]


def held_registers(choice, head_dim):
    """What a thread holds through the main loop: its part of O and S in float32, and Q's fragments if they stay."""
    q = choice.row_tiles * head_dim // 16 * 4 if choice.q_in_registers else 0
    return choice.row_tiles * (head_dim // 8 * 4 + choice.block_n // 8 * 4) + q


def register_bound(choice):
    """The most registers that __launch_bounds__(threads, ctas) leaves a thread; given out in eights."""
    return min(MOST_REGISTERS, SM_REGISTERS // (choice.ctas * choice.threads()) // 8 * 8)


def copy_fits(choice, head_dim):
    rows = choice.threads() // (head_dim // 8)
    return rows % 8 == 0 and choice.block_n % rows == 0 and choice.block_m() % rows == 0


def shared_fits(choice, head_dim, limits):
    of_a_cta = choice.shared_bytes(head_dim)
    of_all = choice.ctas * round_up(of_a_cta + limits.reserved_bytes, limits.shared_unit)
    return of_a_cta <= limits.cta_shared_bytes and of_all <= limits.shared_bytes


# Name: what it says, and whether a choice keeps it. The first five are the kernel's static_asserts.
RULES = {
    "block_m": ("block_m = 16 warps row_tiles divides 128", lambda c, d, limits: ROW_MULTIPLE % c.block_m() == 0),
    "block_n": ("block_n divides 128", lambda c, d, limits: ROW_MULTIPLE % c.block_n == 0),
    "copy_rows": ("threads copy 8, 16, ... rows a turn, a divisor of both blocks",
                  lambda c, d, limits: copy_fits(c, d)),
    "q_in_v needs q_in_registers": ("q_in_v only with q_in_registers",
                                    lambda c, d, limits: not c.q_in_v or c.q_in_registers),
    "q_in_v fits": ("with q_in_v, block_m is at most stages block_n",
                    lambda c, d, limits: not c.q_in_v or c.block_m() <= c.stages * c.block_n),
    "shared memory": ("ctas CTAs fit into an SM's shared memory, one into a CTA's", shared_fits),
    "registers": (f"registers suffice for O, S, Q if it is held, and {OTHER_REGISTERS} more",
                  lambda c, d, limits: held_registers(c, d) + OTHER_REGISTERS <= register_bound(c)),
}
STATIC_ASSERTS = 5


def broken_rule(choice, head_dim, limits):
    """The first rule that the choice breaks, or None."""
    return next((name for name, (_, keeps) in RULES.items() if not keeps(choice, head_dim, limits)), None)


def prune(choices, head_dim, limits):
    """The choices that keep all rules, and how many each rule dropped."""
    kept, dropped = [], Counter()
    for choice in choices:
        rule = broken_rule(choice, head_dim, limits)
        if rule:
            dropped[rule] += 1
        else:
            kept.append(choice)
    return kept, {name: dropped[name] for name in RULES if dropped[name]}


# --- Progress --------------------------------------------------------------------------------------------------


class Progress:
    """One line that is written over on a terminal; elsewhere a line now and then."""

    def __init__(self):
        self.terminal = sys.stderr.isatty()
        self.shown = 0.0

    def __call__(self, text):
        now = time.monotonic()
        if self.terminal:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
        elif now - self.shown >= 5:
            print(text, file=sys.stderr, flush=True)
            self.shown = now

    def done(self, text):
        print(f"\r\033[K{text}" if self.terminal else text, file=sys.stderr, flush=True)
        self.shown = 0.0


# --- Building --------------------------------------------------------------------------------------------------

SOURCE = """\
// Generated by scripts/autotune.py: one choice of the space as a kernel of its own, for one dtype and head_dim.
#define FA_TUNING {cpp}
#define k10 {space}
#include "common/harness/launch.h"
#include "common/harness/registry.h"

namespace fa::k10 {{
template <typename T, int kHeadDim>
struct Launcher;
template <typename T>
struct NotBuilt {{
  static void run(const Attention<T>&) {{ throw Unsupported("this choice was not built for that problem"); }}
}};
{others}

// In place of fa::Registration: the same, under this choice's name.
template <template <typename T, int kHeadDim> class L>
struct Registration : fa::Registration<L> {{
  Registration(const char*, Needs needs) : fa::Registration<L>("{name}", needs) {{}}
}};
}}  // namespace fa::k10

#include "kernels/10_instruction_tuning.cu"
"""
TYPES = {"fp16": "__half", "bf16": "__nv_bfloat16"}


def source_of(choice, dtype, head_dim):
    others = "\n".join(
        f"template <>\nstruct Launcher<{name}, {d}> : NotBuilt<{name}> {{}};"
        for other, name in TYPES.items() for d in (64, 128) if (other, d) != (dtype, head_dim)
    )
    return SOURCE.format(cpp=choice.cpp(), space=f"k{choice.name()}", others=others, name=choice.name())


def sources_digest(flags, nvcc_version):
    """Of everything that the objects are made from beside the choice."""
    digest = hashlib.sha256(repr((flags, nvcc_version, SOURCE)).encode())
    for path in sorted([ROOT / "kernels" / f"{KERNEL}.cu", HEADER, *(ROOT / "common").rglob("*.h")]):
        text = path.read_text(encoding="utf-8")
        if path == HEADER:  # every object has its own choice instead of the table
            text = re.sub(r"// \[tuned\].*// \[/tuned\]", "", text, flags=re.DOTALL)
        digest.update(text.encode())
    return digest.hexdigest()[:12]


def code_of(obj):
    """A digest of the machine code in an object file of nvcc --no-compress: two choices may give the same."""
    data = obj.read_bytes()
    digest, at, found = hashlib.sha256(), 0, False
    while (at := data.find(b"\x7fELF", at + 1)) >= 0:
        if struct.unpack_from("<H", data, at + 18)[0] != 190:  # e_machine: EM_CUDA
            continue
        sections, (size, count, names) = struct.unpack_from("<Q", data, at + 40)[0], struct.unpack_from(
            "<HHH", data, at + 58)
        # A section header: name at 0, offset at 24, bytes at 32 (System V ABI, "ELF-64 Object File Format").
        names = at + struct.unpack_from("<Q", data, at + sections + names * size + 24)[0]
        for i in range(count):
            header = at + sections + i * size
            offset, length = struct.unpack_from("<QQ", data, header + 24)
            if data.startswith(b".text.", names + struct.unpack_from("<I", data, header)[0]):
                digest.update(data[at + offset : at + offset + length])
                found = True
    return digest.hexdigest() if found else str(obj)


def compile_choice(choice, dtype, head_dim, folder, command):
    """{status, registers, ...} of one choice. What is there already is used again."""
    stem = folder / f"{choice.name()}_{dtype}_d{head_dim}"
    obj, log = stem.with_suffix(".o"), stem.with_suffix(".log")
    if not (obj.exists() and log.exists()):
        stem.with_suffix(".cu").write_text(source_of(choice, dtype, head_dim), encoding="utf-8")
        part = stem.with_suffix(".part.o")
        done = subprocess.run([*command, "-c", relative(stem.with_suffix(".cu")), "-o", str(part)], cwd=ROOT, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
                              stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
            first = next((line for line in lines if "error" in line), lines[-1] if lines else "nvcc said nothing")
            return {"status": "not compiled", "reason": first.replace(f"{ROOT}/", "")}
        log.write_text(done.stdout, encoding="utf-8")
        part.replace(obj)
    figures = list(parse_resources(log.read_text(encoding="utf-8")).values())
    if len(figures) != 1:
        return {"status": "not compiled", "reason": f"ptxas reports {len(figures)} kernel functions instead of one"}
    spills = figures[0]["spill_store_bytes"] + figures[0]["spill_load_bytes"]
    result = {"status": "built", "registers": figures[0]["registers"], "spill_bytes": spills,
              "code": code_of(obj), "object": str(obj)}
    if spills > SPILL_LIMIT:
        result.update(status="spills", reason=f"spills {spills} bytes a thread, more than {SPILL_LIMIT}")
    return result


def nvcc_command(nvcc, architecture):
    return [nvcc, "-std=c++20", "-O3", "-DNDEBUG", *build_flags(), "--no-compress",
            f"--generate-code=arch=compute_{architecture},code=[sm_{architecture}]", "-Xptxas", "-v", "-DFA_WITH_CUDA",
            "-I."]


def build_choices(kept, dtype, architecture, nvcc, version, deadline, say):
    """{head_dim: {choice: what compile_choice says}}."""
    command = nvcc_command(nvcc, architecture)
    folder = BUILD / f"sm_{architecture}-{sources_digest(command[1:], version)}"
    folder.mkdir(parents=True, exist_ok=True)
    jobs = [(head_dim, choice) for head_dim, choices in kept.items() for choice in choices]
    built = {head_dim: {} for head_dim in kept}

    def one(job):
        head_dim, choice = job
        if deadline and time.monotonic() > deadline:
            return job, {"status": "not reached", "reason": "the time was up before it was built"}
        return job, compile_choice(choice, dtype, head_dim, folder, command)

    start, count = time.monotonic(), 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        for future in concurrent.futures.as_completed([pool.submit(one, job) for job in jobs]):
            (head_dim, choice), result = future.result()
            built[head_dim][choice] = result
            count += 1
            say(f"building: {count} of {len(jobs)} choices, {time.monotonic() - start:.0f} s")
    say.done(f"built {len(jobs)} choices in {time.monotonic() - start:.0f} s")
    return built, folder


def mark_doubles(built, head_dim):
    """Of choices that became the same code in the same launch, the one with the most ctas is timed; the others name
    it."""
    first = {}
    for choice in sorted(built, reverse=True):
        result = built[choice]
        if result["status"] != "built":
            continue
        key = (result["code"], choice.threads(), choice.shared_bytes(head_dim), choice.block_m())
        if key in first:
            result.update(status="same code", same_as=first[key].text())
        else:
            first[key] = choice


def harness_parts(folder):
    """The compiled main() and harness in a build tree."""
    parts = [folder / "common" / "CMakeFiles" / "fa_main.dir" / "harness" / "main.cpp.o",
             folder / "common" / "libfa_harness.a"]
    for part in parts:
        if not part.exists():
            fail(f"{folder} has no {part.relative_to(folder)}; --harness takes a build tree of the back end cuda")
    return parts


def build_harness(architecture, nvcc, say):
    folder = BUILD / "harness"
    log = BUILD / "harness.log"
    say("building the harness ...")
    folder.mkdir(parents=True, exist_ok=True)
    steps = (
        ["cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DFA_BACKEND=cuda",
         "-DFA_TESTS=OFF", f"-DCMAKE_CUDA_COMPILER={nvcc}", f"-DCMAKE_CUDA_ARCHITECTURES={architecture}-real"],
        ["cmake", "--build", str(folder), "--target", "fa_main", "fa_harness"],
    )
    with open(log, "w", encoding="utf-8") as file:
        for step in steps:
            try:
                done = subprocess.run(step, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False)
            except FileNotFoundError:
                fail("there is no cmake here; --harness takes a build tree made elsewhere", 4)
            if done.returncode:
                fail(f"the harness could not be built, see {relative(log)}; --harness takes one built elsewhere", 4)
    return harness_parts(folder)


def link(objects, parts, program, nvcc):
    program.parent.mkdir(parents=True, exist_ok=True)
    response = program.with_suffix(".objects")
    response.write_text("\n".join(map(str, objects)) + "\n", encoding="utf-8")
    done = subprocess.run([nvcc, "--options-file", str(response), *map(str, parts), "-cudart", "static", "-ldl",
                           "-lpthread", "-o", str(program)], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        fail(f"linking {relative(program)} failed: {lines[-1] if lines else 'nvcc said nothing'}", 4)


# --- Running ---------------------------------------------------------------------------------------------------


class Program:
    """The program whose kernels are the choices of one head_dim."""

    def __init__(self, path, dtype, head_dim, seed=1):
        self.path, self.dtype, self.head_dim, self.seed = path, dtype, head_dim, seed
        self.machine = None

    def call(self, choices, seq_lens, protocol, *more):
        """{choice: {seq_len: record}}, or None if the program wrote no results; and what it said last."""
        with tempfile.TemporaryDirectory(prefix="autotune-") as folder:
            file = Path(folder) / "results.json"
            command = [self.path, *(choice.name() for choice in choices), "--dtype", self.dtype, "--head-dim",
                       self.head_dim, "--seq-len", ",".join(map(str, seq_lens)), "--seed", self.seed,
                       "--warmup", protocol["warmup"], "--iters", protocol["iterations"],
                       "--max-seconds", protocol["max_seconds"], "--json", file, *more]
            try:
                done = subprocess.run([str(part) for part in command], capture_output=True, text=True, errors="replace",
                                      stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False)
            except subprocess.TimeoutExpired:
                return None, f"the program did not end within {PATIENCE} s"
            said = (done.stderr.strip().splitlines() or [f"the program ended with {done.returncode}"])[-1]
            try:
                data = read_results(file)
            except Refused:
                return None, said.removeprefix("error: ")
        self.machine = data["machine"]
        records = {(record["kernel"], record["seq_len"]): record for record in data["records"]}
        return {c: {n: records[c.name(), n] for n in seq_lens} for c in choices}, said

    def run(self, choices, seq_lens, protocol, *more):
        """{choice: {seq_len: record}}. After an error CUDA may refuse everything, so each then runs alone."""
        result, said = self.call(choices, seq_lens, protocol, *more)
        errors = result is None or any(r["status"] == "error" for of in result.values() for r in of.values())
        if errors and len(choices) > 1:
            return {c: self.run([c], seq_lens, protocol, *more)[c] for c in choices}
        if result is None:
            return {c: {n: {"status": "error", "reason": said} for n in seq_lens} for c in choices}
        return result


def judge(result, records):
    """Notes the first record that did not pass. True if all did."""
    for record in records.values():
        if record["status"] != "passed":
            result.update(status=record["status"], reason=record["reason"])
            return False
    return True


def mean_of(tflops):
    """The geometric mean."""
    return math.exp(statistics.fmean(math.log(value) for value in tflops))


def figures(records):
    return {str(n): {"ms": record["time_ms"]["median"], "tflops": record["tflops"]} for n, record in records.items()}


def speed(result, which):
    return mean_of(entry["tflops"] for entry in result[which].values())


def late(deadline):
    return bool(deadline) and time.monotonic() > deadline


def first_round(program, built, seq_lens, deadline, say):
    """Checks and times every choice that was built."""
    waiting = sorted(choice for choice, result in built.items() if result["status"] == "built")
    start, best = time.monotonic(), 0.0
    for i in range(0, len(waiting), BATCH):
        batch = waiting[i : i + BATCH]
        if late(deadline):
            for choice in waiting[i:]:
                built[choice].update(status="not reached", reason="the time was up before it was timed")
            break
        say(f"head_dim {program.head_dim}: timing {i + 1} to {i + len(batch)} of {len(waiting)} choices, "
            f"{time.monotonic() - start:.0f} s" + (f", best so far {best:.0f} TFLOP/s" if best else ""))
        for inputs in HARD_INPUTS:
            once = {"warmup": 0, "iterations": 1, "max_seconds": 1}
            for choice, records in program.run(batch, [384], once, "--heads", "2", "--batch", "2", "--inputs",
                                               inputs).items():
                judge(built[choice], records)
            batch = [choice for choice in batch if built[choice]["status"] == "built"]
            if not batch:
                break
        if not batch:
            continue
        for choice, records in program.run(batch, seq_lens, QUICK, "--heads", HEADS).items():
            if judge(built[choice], records):
                built[choice].update(status="timed", first=figures(records))
                best = max(best, speed(built[choice], "first"))
    say.done(f"head_dim {program.head_dim}: {len(waiting)} choices timed in {time.monotonic() - start:.0f} s")


def finalists(built):
    """The best choices by the first round; of equals the first in the space, in whichever order they were built."""
    timed = [choice for choice, result in built.items() if result["status"] == "timed"]
    return sorted(timed, key=lambda choice: (-speed(built[choice], "first"), choice))[:FINALISTS]


def final_rounds(program, built, seq_lens, say):
    """Times the best choices again."""
    best = finalists(built)
    taken = {choice: {n: [] for n in seq_lens} for choice in best}
    for r in range(ROUNDS if best else 0):
        say(f"head_dim {program.head_dim}: the best {len(best)} again, round {r + 1} of {ROUNDS}")
        first = r * len(best) // ROUNDS
        for choice, records in program.run(best[first:] + best[:first], seq_lens, FULL, "--heads", HEADS).items():
            if judge(built[choice], records):
                for n, record in records.items():
                    taken[choice][n].append(record["time_ms"]["median"])
    for choice in best:
        if built[choice]["status"] == "timed":
            built[choice]["final"] = {str(n): entry_of(taken[choice][n], n, program.head_dim) for n in seq_lens}


def flops(seq_len, head_dim):
    return 4 * max(1, 16384 // seq_len) * HEADS * seq_len**2 * head_dim


def entry_of(rounds, seq_len, head_dim):
    ms = statistics.median(rounds)
    return {"ms": ms, "tflops": flops(seq_len, head_dim) / ms * 1e-9, "round_ms": rounds}


# --- Choosing --------------------------------------------------------------------------------------------------


def ranked(variants):
    """Timed variants, best first: those of the final by it, then those of the first round alone."""
    timed = [v for v in variants if v["status"] == "timed"]
    return sorted(timed, key=lambda v: ("final" not in v, -speed(v, "final" if "final" in v else "first")))


def choose(variants):
    """The variant of the final with the best mean; within TIE of it the one with the fewest registers, then the
    least shared memory. None if there was no final."""
    final = [v for v in variants if v["status"] == "timed" and "final" in v]
    if not final:
        return None
    best = max(speed(v, "final") for v in final)
    tied = [v for v in final if speed(v, "final") >= best * (1 - TIE)]
    return min(tied, key=lambda v: (v["registers"], v["shared_memory_bytes"], -speed(v, "final")))


# --- Output ----------------------------------------------------------------------------------------------------


def variant(choice, result, head_dim, capability):
    """One choice as it stands in the file."""
    entry = {"choice": dict(zip(choice._fields, choice)), "status": result["status"]}
    for key in ("reason", "same_as", "registers", "spill_bytes"):
        if key in result:
            entry[key] = result[key]
    if "registers" in result:
        entry["shared_memory_bytes"] = choice.shared_bytes(head_dim)
        entry["ctas_per_sm"] = occupancy(capability, result["registers"], choice.shared_bytes(head_dim),
                                         choice.threads())["ctas"]
    for key in ("first", "final"):
        if key in result:
            entry[key] = result[key]
    return entry


def as_choice(entry):
    return Choice(**entry["choice"])


def number(value):
    return float(f"{value:.6g}") if isinstance(value, float) else value


def rounded(data):
    if isinstance(data, dict):
        return {key: rounded(value) for key, value in data.items()}
    if isinstance(data, list):
        return [rounded(value) for value in data]
    return number(data)


def dump(data):
    """JSON with one variant a line."""
    rows = []

    def in_a_line(entry):
        rows.append(json.dumps(entry))
        return f"@{len(rows) - 1}"

    data = rounded(data)
    heads = [{**head, "variants": [in_a_line(v) for v in head["variants"]]} for head in data["head_dims"]]
    text = json.dumps({**data, "head_dims": heads}, indent=1)
    return re.sub(r'"@(\d+)"', lambda match: rows[int(match[1])], text) + "\n"


def write_whole(path, text):
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as problem:
        fail(f"cannot write {relative(path)} ({problem.strerror.lower()})")


def where_q(choice):
    return "V's" if choice.q_in_v else "regs" if choice.q_in_registers else "own"


def table(head, most=None):
    """Lines of at most 100 columns: the timed variants, best first."""
    chosen = head["choice"] and Choice(**head["choice"])
    order = ranked(head["variants"])
    lengths = list(order[0]["first"]) if order else []
    lines = [f"{'':1} {'warps':>5} {'rows':>4} {'block_n':>7} {'stages':>6} {'ctas':>4} {'Q':>4} {'regs':>4} {'spill':>5} "
             f"{'KB':>5} {'CTAs/SM':>7}" + "".join(f" {n:>6}" for n in lengths) + f" {'mean':>6}"]
    for v in order[:most]:
        c, times = as_choice(v), v.get("final", v["first"])
        lines.append(
            f"{'*' if c == chosen else ' '} {c.warps:>5} {16 * c.row_tiles:>4} {c.block_n:>7} {c.stages:>6} {c.ctas:>4} "
            f"{where_q(c):>4} {v['registers']:>4} {v['spill_bytes']:>5} {v['shared_memory_bytes'] / 1024:>5.0f} "
            f"{v['ctas_per_sm']:>7}" + "".join(f" {times[n]['tflops']:>6.1f}" for n in lengths)
            + f" {mean_of(t['tflops'] for t in times.values()):>6.1f}" + ("" if "final" in v else " first"))
    return lines


def report(data, most=20):
    gpu = data["machine"]["gpu"]
    lines = []
    for head in data["head_dims"]:
        counts = Counter(v["status"] for v in head["variants"])
        lines += [f"{gpu}: {data['kernel']}, {data['dtype']}, head_dim {head['head_dim']}; TFLOP/s by seq_len", ""]
        shown = table(head, most)
        lines += shown
        if counts["timed"] > most:
            lines.append(f"  ... and {counts['timed'] - most} more")
        lines += ["", *summary(head["dropped"], counts)]
        if head["choice"]:
            lines.append(f"choice (*): {{{as_choice({'choice': head['choice']}).cpp()}}}")
        lines.append("")
    lines += ["rows: of a warp. Q: in memory of its own, in registers, or there through V's memory. first: timed",
              f"in the first round only. Means within {TIE:.1%} are equal: fewer registers, then less memory, decide."]
    return lines


OUTCOMES = {
    "same code": "became the same code as another", "spills": f"spill more than {SPILL_LIMIT} bytes a thread",
    "not compiled": "were not compiled", "not reached": "were not reached in time", "wrong": "gave wrong results",
    "skipped": "cannot run here", "error": "failed", "timed": "were timed",
}


def summary(dropped, counts):
    """What became of the choices that are not in the table."""
    lines = [f"{count:>5} dropped for not keeping: {RULES[rule][0]}" for rule, count in dropped.items()]
    return lines + [f"{counts[status]:>5} {words}" for status, words in OUTCOMES.items() if counts[status]]


def sentence(head):
    """What became of the space, for the documentation."""
    counts = Counter(v["status"] for v in head["variants"])
    dropped = sum(head["dropped"].values())
    parts = [f"{dropped} were dropped by rules before anything was built"]
    parts += [f"{counts[status]} {words}" for status, words in OUTCOMES.items() if counts[status]]
    return f"Of {dropped + len(head['variants'])} choices {', '.join(parts[:-1])}, and {parts[-1]}."


# --- An earlier file -------------------------------------------------------------------------------------------


class Earlier:
    """A file of this script whose choices that were not reached in time are now timed; the others are taken over."""

    def __init__(self, path, args, form, machine):
        """form: what the file must have in common with this run; machine: the same of its machine."""
        self.path = path
        try:
            self.data = read_tuning(path)
        except Refused as problem:
            self.refuse(problem)
        for where, wanted in ((self.data, form), (self.data["machine"], machine)):
            for key, value in wanted.items():
                if where.get(key) != value:
                    both = f": {where.get(key)}, not {value}" if isinstance(value, str) else ""
                    self.refuse(f"cannot be resumed: its {key.replace('_', ' ')} {'differ' if key == 'rules' else 'differs'} from "
                                f"this run's{both}")
        try:
            self.variants = {head["head_dim"]: {as_choice(v): {k: x for k, x in v.items() if k != "choice"}
                                                for v in head["variants"]} for head in self.data["head_dims"]}
            lengths = {tuple(sorted(map(int, v["first"]))) for of in self.variants.values() for v in of.values()
                       if v["status"] == "timed" and v["registers"] and v["spill_bytes"] >= 0}
        except (KeyError, TypeError, ValueError) as problem:
            self.refuse(f"is invalid: {type(problem).__name__} at {problem}; see bench/tuning_schema.json")
        if lengths - {tuple(sorted(args.seq_len))}:
            words = ",".join(map(str, sorted(lengths)[0]))
            self.refuse(f"cannot be resumed: its times are of --seq-len {words}")

    def refuse(self, sentence):
        fail(f"{relative(self.path)} {sentence}")

    def of(self, head_dim):
        return self.variants.get(head_dim, {})

    def missing(self, head_dim, choices):
        """Those of the choices that are not in the file or were not reached."""
        return [c for c in choices if self.of(head_dim).get(c, {"status": "not reached"})["status"] == "not reached"]

    def check_code(self, head_dim, built):
        """The same source and compiler give the registers that the file has."""
        for choice, result in built.items():
            before = self.of(head_dim).get(choice, {})
            for key in ("registers", "spill_bytes"):
                if key in before and result["status"] != "not reached" and result.get(key) != before[key]:
                    self.refuse(f"cannot be resumed: its kernel was another; head_dim {head_dim}, {choice.text()} has "
                                  f"{before[key]} {key.replace('_', ' ')} there and {result.get(key, 'none')} here")

    def check_machine(self, machine):
        for key in ("gpu", "compute_capability", "compiler"):
            if machine[key] != self.data["machine"][key]:
                self.refuse(f"cannot be resumed: it is of {self.data['machine'][key]}, this run of {machine[key]}")

    def joined(self, head_dim, kept, results):
        """{choice: result}: the new ones, else those of the file."""
        whole = {}
        for choice in kept:
            before, result = self.of(head_dim).get(choice), results.get(choice)
            if before and (not result or (result["status"] == "not reached" and "registers" not in result)):
                result = dict(before)
            whole[choice] = result
        return whole

    def with_heads(self, heads):
        """Its head_dims, those that were searched now in their place or behind."""
        new = {head["head_dim"]: head for head in heads}
        old = [new.pop(head["head_dim"], head) for head in self.data["head_dims"]]
        return old + list(new.values())


# --- The header ------------------------------------------------------------------------------------------------

REGION = re.compile(r"(?P<before>.*^  // \[tuned\]\n)(?P<lines>.*)(?P<after>^  // \[/tuned\]\n.*)", re.DOTALL | re.MULTILINE)
LINE = re.compile(r"  if \(architecture == (\d+) && head_dim == (\d+)\) return \{.*\};")


def with_choices(text, architecture, choices):
    """The header with {head_dim: Choice} for this architecture; other lines stay as they are."""
    region = REGION.fullmatch(text)
    if not region:
        raise Refused("has no lines // [tuned] and // [/tuned]")
    lines = region["lines"].splitlines()
    mine = {}  # head_dim: line
    rest, place = [], None
    for line in lines:
        match = LINE.fullmatch(line)
        if match and int(match[1]) == architecture:
            mine[int(match[2])] = line
            place = len(rest) if place is None else place
        else:
            rest.append(line)
    if place is None:  # before the default, the last line
        place = max(0, len(rest) - 1)
    for head_dim, choice in choices.items():
        mine[head_dim] = f"  if (architecture == {architecture} && head_dim == {head_dim}) return {{{choice.cpp()}}};"
    rest[place:place] = [mine[head_dim] for head_dim in sorted(mine, reverse=True)]
    return region["before"] + "\n".join(rest) + "\n" + region["after"]


def header_from(data, name):
    """(the header's text now, the text that the file's choices give)."""
    if data["dtype"] != "bf16":
        raise Refused(f"is of {data['dtype']}; the header knows no dtype and has the choices of bf16")
    choices = {head["head_dim"]: as_choice({"choice": head["choice"]}) for head in data["head_dims"] if head["choice"]}
    if not choices:
        raise Refused("has no choice: no variant was timed to the end")
    try:
        now = HEADER.read_text(encoding="utf-8")
        return now, with_choices(now, int(data["machine"]["compute_capability"].replace(".", "")), choices)
    except OSError:
        fail(f"there is no {relative(HEADER)}")
    except Refused as problem:
        fail(f"{relative(HEADER)} {problem}")


def read_tuning(path):
    """A file of this script; what is in it is checked by check_tuning()."""
    data = read_json(path)
    if not isinstance(data, dict) or data.get("tuning_version") != 1:
        raise Refused("is not a file of scripts/autotune.sh (no tuning_version 1)")
    check_tuning(data)
    return data


def check_tuning(data):
    """What no schema can say: the choices are those of the rules and of the times."""
    try:
        capability = int(data["machine"]["compute_capability"].replace(".", ""))
        for head in data["head_dims"]:
            head_dim, seen = head["head_dim"], set()
            for v in head["variants"]:
                choice = as_choice(v)
                if choice in seen:
                    raise Refused(f"is invalid: head_dim {head_dim} has {choice.text()} twice")
                seen.add(choice)
                if rule := broken_rule(choice, head_dim, LIMITS[capability]):
                    raise Refused(f"is invalid: head_dim {head_dim} has {choice.text()}, which breaks the rule {rule}")
                if v["status"] == "same code" and v["same_as"] not in {as_choice(o).text() for o in head["variants"]}:
                    raise Refused(f"is invalid: {choice.text()} is the same as {v['same_as']}, which is not there")
                for which in ("first", "final"):
                    for n, entry in v.get(which, {}).items():
                        if not math.isclose(entry["tflops"], flops(int(n), head_dim) / entry["ms"] * 1e-9, rel_tol=1e-3):
                            raise Refused(f"is invalid: {choice.text()}, seq_len {n}: TFLOP/s and time disagree")
                        if "round_ms" in entry and not math.isclose(entry["ms"], statistics.median(entry["round_ms"]),
                                                                    rel_tol=1e-4):
                            raise Refused(f"is invalid: {choice.text()}, seq_len {n}: ms is not the median of round_ms")
            best = choose(head["variants"])
            if (best and best["choice"]) != head["choice"]:
                raise Refused(f"is invalid: the choice of head_dim {head_dim} is not what its times say")
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise Refused(f"is invalid: {type(problem).__name__} at {problem}; see bench/tuning_schema.json") from None


def header_command(args):
    try:
        now, then = header_from(read_tuning(args.source), args.source)
    except Refused as problem:
        fail(f"{relative(args.source)} {problem}")
    if args.check:
        if now != then:
            fail(f"{relative(HEADER)} is not what {relative(args.source)} says; scripts/autotune.sh --from it", 1)
        print(f"{relative(HEADER)} is what {relative(args.source)} says")
    elif now == then:
        print(f"{relative(HEADER)} has these choices already")
    else:
        write_whole(HEADER, then)
        print(f"wrote {relative(HEADER)}")
    return 0


# --- Command line ----------------------------------------------------------------------------------------------


def detect_gpu():
    """(name, compute capability as 90) of the first GPU, or None."""
    for tool in ("nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi"):
        try:
            done = subprocess.run([tool, "--query-gpu=name,compute_cap", "--format=csv,noheader"], capture_output=True,
                                  text=True, timeout=20, check=True)
        except (OSError, subprocess.SubprocessError):
            continue
        if match := re.match(r"(.+), (\d+)\.(\d)", done.stdout):
            return match[1], int(match[2] + match[3])
    return None


def architecture_of(capability):
    """As nvcc names it: Hopper's and Blackwell's own instructions are in sm_90a, sm_100a, sm_120a."""
    return f"{capability}a" if capability == 90 or capability >= 100 else str(capability)


def file_name(gpu, dtype):
    """h200_bf16.json for an NVIDIA H200."""
    words = re.sub(r"[^a-z0-9]+", "_", gpu.lower()).strip("_")
    return f"{words.removeprefix('nvidia_')}_{dtype}.json"


class Parser(argparse.ArgumentParser):
    def error(self, message):
        fail(f"{message} (see --help)")


def numbers(allowed):
    def parse(text):
        parts = text.split(",")
        if not all(re.fullmatch(r"\d{1,7}", part) and allowed(int(part)) for part in parts):
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of such numbers")
        return list(dict.fromkeys(map(int, parts)))

    return parse


def minutes(text):
    if re.fullmatch(r"\d{1,4}(\.\d+)?", text) and float(text) > 0:
        return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")


def capability_of(text):
    match = re.fullmatch(r"(?:sm_)?(\d+)a?", text)
    if match and int(match[1]) >= 80 and int(match[1]) in LIMITS:
        return int(match[1])
    known = ", ".join(str(number) for number in LIMITS if number >= 80)
    raise argparse.ArgumentTypeError(f"{text!r} is not one of {known}")


def parse_arguments():
    parser = Parser(prog="scripts/autotune.sh", description=__doc__, epilog=EXAMPLE,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--list", action="store_true", help="print the choices that the rules keep, without building")
    add("--write", action="store_true", help="write the choice into kernels/10_tuning.h")
    add("--from", dest="source", type=Path, metavar="FILE", help="write the header from such a file instead")
    add("--check", action="store_true", help="with --from: only say whether the header differs (exit code 1)")
    add("--build-only", action="store_true", help="build and show registers and spills; needs no GPU")
    add("--dtype", choices=tuple(TYPES), default="bf16", help="default bf16")
    add("--head-dim", type=numbers(lambda d: d in (64, 128)), default=[128, 64], metavar="LIST", help="default 128,64")
    add("--seq-len", type=numbers(lambda n: n > 0 and n % 128 == 0), default=[1024, 4096, 16384], metavar="LIST",
        help="multiples of 128 (default 1024,4096,16384)")
    add("--only", metavar="PATTERN", help="choices that match, in the order of struct Tuning: '4,2,*'")
    add("--arch", type=capability_of, metavar="ARCH", help="with --list or --build-only, for another GPU: 80, 90, ...")
    add("--max-minutes", type=minutes, metavar="M", help="then nothing new is started; what is known is written")
    add("--harness", type=Path, metavar="DIR", help="a build tree with main() and the harness, instead of building them")
    add("--resume", type=Path, metavar="FILE", help="take over an earlier file of this script and time only the choices "
        "that were not reached in it; the final is run again if one of them comes among the best")
    add("--json", type=Path, metavar="FILE", help="default bench/results/tuning/GPU_DTYPE.json")
    args = parser.parse_args()
    if args.check and not args.source:
        fail("--check needs --from FILE (see --help)")
    if args.arch and not (args.list or args.build_only):
        fail("--arch goes with --list or --build-only; times are of the GPU present (see --help)")
    if args.write and args.dtype != "bf16":
        fail("--write takes bf16: the header knows no dtype (see --help)")
    if args.resume and (args.list or args.source):
        fail("--resume FILE goes with a run or --build-only, not with --list or --from (see --help)")
    if args.json and args.json.is_dir():
        fail(f"cannot write {args.json} (is a directory)")
    if args.only and args.write:
        fail("--write takes the whole space, without --only (see --help)")
    return args


def show_list(kept, dropped, capability):
    for head_dim, choices in kept.items():
        print(f"head_dim {head_dim}, compute capability {capability / 10:.1f}: {len(choices)} of {len(space())} choices")
        for choice in choices:
            print(f"  {choice.text():<20} {choice.shared_bytes(head_dim) // 1024:>4} KB a CTA, at most "
                  f"{register_bound(choice)} registers, {held_registers(choice, head_dim)} of them for O, S"
                  + (" and Q" if choice.q_in_registers else ""))
        print("\n".join(summary(dropped[head_dim], Counter())))
        print()


def show_built(built):
    for head_dim, results in built.items():
        print(f"head_dim {head_dim}")
        for choice, result in sorted(results.items()):
            words = result.get("reason") or result.get("same_as") or ""
            if "registers" in result:
                print(f"  {choice.text():<20} {result['registers']:>3} registers, {result['spill_bytes']:>5} bytes spilled  "
                      f"{result['status']} {words if result['status'] == 'same code' else ''}".rstrip())
            else:
                print(f"  {choice.text():<20} {result['status']}: {words}"[:100])


def main():
    args = parse_arguments()
    if args.source:
        return header_command(args)
    begun = time.monotonic()
    created = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    deadline = begun + 60 * args.max_minutes if args.max_minutes else None
    gpu = detect_gpu()
    dry = args.list or args.build_only
    if not gpu and not dry:
        fail("no NVIDIA GPU answers through nvidia-smi; --list and --build-only need none, nor does --from FILE", 3)
    capability = args.arch or (gpu[1] if gpu else 90)
    if capability not in LIMITS or capability < 80:
        fail(f"kernel 10 needs compute capability 8.0 or later, and one that is known here, not {capability / 10:.1f}", 3)
    pattern = args.only or "*"
    choices = [c for c in space() if fnmatch.fnmatchcase(c.text(), pattern)]
    if not choices:
        fail(f"no choice of the space matches '{pattern}'")
    kept, dropped = {}, {}
    for head_dim in args.head_dim:
        kept[head_dim], dropped[head_dim] = prune(choices, head_dim, LIMITS[capability])
    if args.list:
        show_list(kept, dropped, capability)
        return 0
    try:
        nvcc, version = find_nvcc()
    except Missing as problem:
        fail(str(problem), 4)
    say, architecture = Progress(), architecture_of(capability)
    form = {
        "kernel": KERNEL, "dtype": args.dtype,
        "space": {name: list(values) for name, values in SPACE.items()} | ({"only": pattern} if args.only else {}),
        "rules": {name: words for name, (words, _) in RULES.items()},
        "protocol": {"heads": HEADS, "rows": 16384, "inputs": "normal", "seed": 1, "spill_limit_bytes": SPILL_LIMIT,
                     "first": QUICK, "final": {**FULL, "rounds": ROUNDS, "choices": FINALISTS}, "tie": TIE,
                     "tflops_convention": "4*B*H*N^2*D"},
    }
    earlier, wanted = None, kept
    if args.resume:
        here = {"compute_capability": f"{capability / 10:.1f}", "compiler": f"nvcc {version}"}
        earlier = Earlier(args.resume, args, form, here | ({"gpu": gpu[0]} if gpu and not dry else {}))
        wanted = {head_dim: earlier.missing(head_dim, choices) for head_dim, choices in kept.items()}
        if not any(wanted.values()):
            fail(f"{relative(args.resume)} has no choice that was not reached; nothing is left to be timed")
    if not args.build_only:
        parts = harness_parts(args.harness.resolve()) if args.harness else build_harness(architecture, nvcc, say)
    built, folder = build_choices(wanted, args.dtype, architecture, nvcc, version, deadline, say)
    for head_dim in built:
        mark_doubles(built[head_dim], head_dim)
        if earlier:
            earlier.check_code(head_dim, built[head_dim])
    if args.build_only:
        show_built(built)
        return 0

    machine = None
    for head_dim, results in built.items():
        program = Program(folder / f"tune_{args.dtype}_d{head_dim}", args.dtype, head_dim)
        objects = [result["object"] for _, result in sorted(results.items()) if result["status"] == "built"]
        if objects:
            say(f"head_dim {head_dim}: linking {len(objects)} choices ...")
            link(objects, parts, program.path, nvcc)
            first_round(program, results, args.seq_len, deadline, say)
        if earlier and program.machine:
            earlier.check_machine(program.machine)
        if earlier and earlier.of(head_dim):
            built[head_dim] = earlier.joined(head_dim, kept[head_dim], results)
            best = finalists(built[head_dim])
            if any(choice in results for choice in best):  # then all of them run again, in the same rounds
                for result in built[head_dim].values():
                    result.pop("final", None)
                again, _ = build_choices({head_dim: best}, args.dtype, architecture, nvcc, version, None, say)
                earlier.check_code(head_dim, again[head_dim])
                program.path = folder / f"tune_{args.dtype}_d{head_dim}_final"
                link([result["object"] for _, result in sorted(again[head_dim].items())], parts, program.path, nvcc)
                final_rounds(program, built[head_dim], args.seq_len, say)
        elif objects:
            final_rounds(program, results, args.seq_len, say)
        machine = program.machine or machine
    if not machine:
        reasons = [r["reason"] for results in built.values() for r in results.values() if "reason" in r]
        fail(f"nothing could be timed{': ' + reasons[0] if reasons else ''}", 3)

    resumed = {"resumed": [*earlier.data.get("resumed", []), earlier.data["created"]]} if earlier else {}
    data = {"tuning_version": 1, "created": created, **resumed, "kernel": KERNEL, "dtype": args.dtype,
            "machine": machine, **form, "head_dims": []}
    for head_dim, results in built.items():
        variants = [variant(choice, result, head_dim, capability) for choice, result in sorted(results.items())]
        head = rounded({"head_dim": head_dim, "dropped": dropped[head_dim], "choice": None, "variants": variants})
        best = choose(head["variants"])
        head["choice"] = best and best["choice"]
        data["head_dims"].append(head)
    if earlier:
        data["head_dims"] = earlier.with_heads(data["head_dims"])
    print("\n".join(report(data)))
    statuses = {v["status"] for head in data["head_dims"] for v in head["variants"]}
    if "not reached" in statuses:
        print("The time was up before everything was timed; --resume takes the file up from there.")
    path = args.json or RESULTS / file_name(machine["gpu"], args.dtype)
    if args.json or not args.only:
        write_whole(path, dump(data))
        print(f"wrote {relative(path)} after {(time.monotonic() - begun) / 60:.1f} minutes")
    if args.write:
        args.source = path
        header_command(args)
    return 1 if "wrong" in statuses else 3 if "error" in statuses else 0


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:
        print(file=sys.stderr)
        fail("interrupted; what was built is used again next time", 130)
    except BrokenPipeError:  # `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)
