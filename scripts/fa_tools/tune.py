"""Finds the best tile sizes of kernel 10 for the GPU present.

Rules drop the choices that cannot work or cannot be fast. Each choice that is left becomes a program of its own, which
is checked on hard inputs and timed with few launches. The best eight are timed again by the full protocol, in rounds.
The best geometric mean over the lengths wins; within 0.5 % of it, fewer registers and then less shared memory win.
The whole search is written to bench/results/tuning/, and with --write the winners to kernels/10_tuning.h.
Ctrl-C ends the search early and keeps what was timed until then."""

import concurrent.futures
import datetime
import fnmatch
import itertools
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from pathlib import Path

from fa_tools.sass import LIMITS, Missing, build_flags, find_nvcc, occupancy, parse_resources, round_up
from fa_tools.tools import ROOT, Parser, Refused, fail, lines_of, or_fail, read_json, read_results, relative, run, write_whole
from fa_tools.tuning import HEADER, Choice, with_choices

EXAMPLE = """examples:
  scripts/fa tune --list                    the space and what the rules drop; needs no GPU
  scripts/fa tune --write                   searches, and writes the winners into kernels/10_tuning.h
  scripts/fa tune --head-dim 128 --only '4,2,*'         a part of the space
  scripts/fa tune --from bench/results/tuning/h200_bf16.json        the header again, without a GPU

Exit code: 0 done, 1 wrong results, 2 bad arguments or files, 3 no GPU or it failed, 4 the build failed, 130 Ctrl-C."""

KERNEL = "10_instruction_tuning"
DTYPE = "bf16"  # the header's table has no dtype
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
SM_REGISTERS, MOST_REGISTERS = 65536, 255  # per SM; per thread
OTHER_REGISTERS = 24  # a thread's fragments of K or V, addresses and indices, at least
SPILL_LIMIT = 256  # bytes per thread, stores and loads together; a choice that spills more is not timed
TIE = 0.005  # of the best geometric mean
FINALISTS, ROUNDS = 8, 3
HEADS, TOKENS, SEQ_LENS = 16, 16384, (1024, 4096, 16384)
ONCE = {"warmup": 0, "iterations": 1, "max_seconds": 1.0}
QUICK = {"warmup": 8, "iterations": 24, "max_seconds": 2.0}
FULL = {"warmup": 32, "iterations": 128, "max_seconds": 4.0}
HARD_INPUTS = ("increasing_max", "dominant_key")
PATIENCE = 180  # seconds for a run of a program, which takes a few


# --- The space -------------------------------------------------------------------------------------------------


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
    broken = {choice: broken_rule(choice, head_dim, limits) for choice in choices}
    dropped = Counter(filter(None, broken.values()))
    return [c for c in choices if not broken[c]], {name: dropped[name] for name in RULES if dropped[name]}


# --- Compiling -------------------------------------------------------------------------------------------------

SOURCE = """\
// Generated by scripts/fa tune: one choice, for one dtype and head_dim.
#define FA_TUNING {cpp}
#include "common/launch/launch.h"
#include "common/launch/registry.h"

namespace fa::k10 {{
template <typename T, int kHeadDim>
struct Launcher;
template <typename T>
struct NotBuilt {{
  static void run(const Attention<T>&) {{ throw Unsupported("this choice was not built for that problem"); }}
}};
{others}
}}  // namespace fa::k10

#include "kernels/10_instruction_tuning.cu"
"""


def source_of(choice, head_dim):
    others = [("__nv_bfloat16", 192 - head_dim), ("__half", 64), ("__half", 128)]
    return SOURCE.format(cpp=choice.cpp(), others="\n".join(
        f"template <>\nstruct Launcher<{name}, {d}> : NotBuilt<{name}> {{}};" for name, d in others))


def program_of(choice, head_dim):
    return BUILD / f"d{head_dim}" / choice.text().replace(",", "_")


def architecture_of(capability):
    """As nvcc names it: Hopper's and Blackwell's own instructions are in sm_90a, sm_100a, sm_120a."""
    return f"{capability}a" if capability == 90 or capability >= 100 else str(capability)


def nvcc_command(nvcc, capability):
    target = architecture_of(capability)
    return [nvcc, "-std=c++20", "-O3", "-DNDEBUG", *build_flags(), f"--generate-code=arch=compute_{target},code=[sm_{target}]",
            "-Xptxas", "-v", "-DFA_WITH_CUDA", "-I."]


def build_harness(nvcc, capability):
    """Builds main() and the harness; returns what a choice is linked with."""
    folder, log = BUILD / "harness", BUILD / "harness.log"
    folder.mkdir(parents=True, exist_ok=True)
    steps = (["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DFA_BACKEND=cuda", "-DFA_TESTS=OFF",
              f"-DCMAKE_CUDA_COMPILER={nvcc}", f"-DCMAKE_CUDA_ARCHITECTURES={architecture_of(capability)}-real"],
             ["cmake", "--build", folder, "--target", "fa_main", "fa_harness"])
    with open(log, "w", encoding="utf-8") as file:
        for step in steps:
            try:
                subprocess.run(step, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=True)
            except FileNotFoundError:
                fail("there is no cmake here", 4)
            except subprocess.CalledProcessError:
                fail(f"the harness could not be built; {relative(log)} says why", 4)
    parts = [*(folder / "common" / "CMakeFiles" / "fa_main.dir").rglob("*.o"), *(folder / "common").glob("lib*.a")]
    return [*map(str, parts), "-cudart", "static", "-ldl", "-lpthread"]


def compile_variant(variant, head_dim, capability, command, parts):
    """Makes the variant's program, and notes its registers and spills, or why it is out."""
    choice, shared = as_choice(variant), as_choice(variant).shared_bytes(head_dim)
    program = program_of(choice, head_dim)
    program.parent.mkdir(parents=True, exist_ok=True)
    source = program.with_suffix(".cu")
    source.write_text(source_of(choice, head_dim), encoding="utf-8")
    done = subprocess.run([*command, "-o", str(program), str(source), *parts], cwd=ROOT, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False)
    figures = list(parse_resources(done.stdout).values())
    if done.returncode or len(figures) != 1:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        first = next((line for line in lines if "error" in line), lines[-1] if lines else "nvcc said nothing")
        variant.update(status="not compiled", reason=first.replace(f"{ROOT}/", ""))
        return
    registers, spills = figures[0]["registers"], figures[0]["spill_store_bytes"] + figures[0]["spill_load_bytes"]
    variant.update(registers=registers, spill_bytes=spills, shared_memory_bytes=shared,
                   ctas_per_sm=occupancy(capability, registers, shared, choice.threads())["ctas"])
    if spills > SPILL_LIMIT:
        variant.update(status="spills", reason=f"spills {spills} bytes a thread, more than {SPILL_LIMIT}")


# --- Checking and timing ---------------------------------------------------------------------------------------


def measure(variant, data, head_dim, protocol, seq_lens, *more):
    """{seq_len: record} from one run of the variant's program; {} if the variant is out, which is noted."""
    with tempfile.TemporaryDirectory(prefix="autotune-") as folder:
        file = Path(folder) / "results.json"
        command = [program_of(as_choice(variant), head_dim), "--dtype", DTYPE, "--head-dim", head_dim, "--seq-len",
                   ",".join(map(str, seq_lens)), "--warmup", protocol["warmup"], "--iters", protocol["iterations"],
                   "--max-seconds", protocol["max_seconds"], "--seed", 1, "--json", file, *more]
        said = f"the program did not end within {PATIENCE} s"
        try:
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, errors="replace",
                                  stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False)
            said = (done.stderr.strip().splitlines() or [f"the program ended with {done.returncode}"])[-1]
            results = read_results(file)
        except (subprocess.TimeoutExpired, Refused):
            variant.update(status="error", reason=said.removeprefix("error: "))
            return {}
    for record in results["records"]:
        if record["status"] != "passed":
            variant.update(status=record["status"], reason=record["reason"])
            return {}
    data["machine"] = results["machine"]
    return {str(record["seq_len"]): record for record in results["records"]}


def search(data, head, capability, command, parts):
    """Compiles, checks and times the variants of one head_dim; what is known is in `head` at any time."""
    head_dim, variants = head["head_dim"], head["variants"]
    pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2)
    try:
        jobs = [pool.submit(compile_variant, variant, head_dim, capability, command, parts) for variant in variants]
        for number, job in enumerate(concurrent.futures.as_completed(jobs), 1):
            job.result()
            say(f"head_dim {head_dim}: compiled {number} of {len(jobs)} choices", number == len(jobs))
    finally:
        pool.shutdown(cancel_futures=True)

    waiting = [v for v in variants if v["status"] == UNREACHED["status"]]
    for number, v in enumerate(waiting, 1):
        say(f"head_dim {head_dim}: checked and timed {number} of {len(waiting)} choices", number == len(waiting))
        if all(measure(v, data, head_dim, ONCE, [384], "--heads", 2, "--batch", 2, "--inputs", name) for name in HARD_INPUTS):
            if records := measure(v, data, head_dim, QUICK, SEQ_LENS, "--heads", HEADS):
                del v["reason"]
                v.update(status="timed", first={n: {"ms": record["time_ms"]["median"], "tflops": record["tflops"]}
                                                for n, record in records.items()})

    best, rounds = ranked(variants)[:FINALISTS], []
    for number in range(ROUNDS if best else 0):
        say(f"head_dim {head_dim}: the best {len(best)} again, round {number + 1} of {ROUNDS}", number + 1 == ROUNDS)
        start = number * len(best) // ROUNDS  # each round begins with another choice
        rounds.append({id(v): measure(v, data, head_dim, FULL, SEQ_LENS, "--heads", HEADS)
                       for v in best[start:] + best[:start] if v["status"] == "timed"})
    for v in (v for v in best if v["status"] == "timed"):
        v["final"] = {}
        for n in map(str, SEQ_LENS):
            each = [of[id(v)][n]["time_ms"]["median"] for of in rounds]
            ms = statistics.median(each)
            v["final"][n] = {"ms": ms, "tflops": flops(int(n), head_dim) / ms * 1e-9, "round_ms": each}
    head["choice"] = choose(variants)


def flops(seq_len, head_dim):
    return 4 * max(1, TOKENS // seq_len) * HEADS * seq_len**2 * head_dim


def say(text, last):
    """One line on a terminal, written over until the last one; elsewhere the last one alone."""
    if sys.stderr.isatty() or last:
        print(f"\r\033[K{text}" if sys.stderr.isatty() else text, end="\n" * last, file=sys.stderr, flush=True)


# --- The file --------------------------------------------------------------------------------------------------

UNREACHED = {"status": "not reached", "reason": "the search ended before it was timed"}
OUTCOMES = {  # "same code" is in older files: nvcc had made the same of two choices, and one of them was timed
    "same code": "became the same code as another", "spills": f"spill more than {SPILL_LIMIT} bytes a thread",
    "not compiled": "were not compiled", "not reached": "were not reached in time", "wrong": "gave wrong results",
    "skipped": "cannot run here", "error": "failed", "timed": "were timed",
}


def as_choice(variant):
    return Choice(**variant["choice"])


def mean_of(tflops):
    """The geometric mean."""
    return math.exp(statistics.fmean(math.log(value) for value in tflops))


def speed(variant):
    return mean_of(entry["tflops"] for entry in variant.get("final", variant["first"]).values())


def ranked(variants):
    """Timed variants, best first: those of the final, then the others by their first times."""
    return sorted((v for v in variants if v["status"] == "timed"), key=lambda v: ("final" not in v, -speed(v)))


def choose(variants):
    """The winning choice: of those within TIE of the final's best mean, the one with the fewest registers, then the
    least shared memory. None if there was no final."""
    final = [v for v in ranked(variants) if "final" in v]
    tied = [v for v in final if speed(v) >= speed(final[0]) * (1 - TIE)]
    return min(tied, key=lambda v: (v["registers"], v["shared_memory_bytes"], -speed(v)))["choice"] if tied else None


def read_tuning(path):
    """The file of a search; Refused if its winners are not what its times say."""
    data = read_json(path)
    if not isinstance(data, dict) or data.get("tuning_version") != 1:
        raise Refused("is not a file of scripts/fa tune (no tuning_version 1)")
    try:
        for head in data["head_dims"]:
            if head["choice"] != choose(head["variants"]):
                raise Refused(f"is invalid: the choice of head_dim {head['head_dim']} is not what its times say")
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise Refused(f"is invalid: {type(problem).__name__} at {problem}") from None
    return data


def sentence(head):
    """What became of the space."""
    counts = Counter(v["status"] for v in head["variants"])
    dropped = sum(head["dropped"].values())
    parts = [f"{dropped} of {dropped + len(head['variants'])} choices were dropped by rules before anything was built"]
    parts += [f"{counts[status]} {words}" for status, words in OUTCOMES.items() if counts[status]]
    return f"{', '.join(parts[:-1])}, and {parts[-1]}."


def show(head):
    """The best variants, * the winner."""
    print(f"\nhead_dim {head['head_dim']}: choice, registers, bytes spilled, KB, CTAs per SM, mean of TFLOP/s")
    for v in ranked(head["variants"])[:FINALISTS]:
        print(f"{'*' if v['choice'] == head['choice'] else ' '} {as_choice(v).text():<18}{v['registers']:>5}{v['spill_bytes']:>6}"
              f"{v['shared_memory_bytes'] // 1024:>5}{v['ctas_per_sm']:>4}{speed(v):>8.1f}")
    print(textwrap.fill(sentence(head), 100))
    for v in head["variants"]:
        if v["status"] in ("not compiled", "wrong", "error"):
            print(f"  {as_choice(v).text()} {v['status']}: {v['reason']}"[:100])


def write_header(path):
    with or_fail(relative(path)):
        data = read_tuning(path)
    choices = {head["head_dim"]: as_choice(head) for head in data["head_dims"] if head["choice"]}
    architecture = int(data["machine"]["compute_capability"].replace(".", ""))
    write_whole(HEADER, with_choices(HEADER.read_text(encoding="utf-8"), architecture, choices))
    print(f"{relative(HEADER)} has the choices of {relative(path)}")


# --- Command line ----------------------------------------------------------------------------------------------


def detect_gpu():
    """(name, compute capability as 90) of the first GPU, or None."""
    tool = shutil.which("nvidia-smi", path=f"{os.environ['PATH']}:/usr/lib/wsl/lib")
    try:
        done = subprocess.run([tool or "nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"],
                              capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.match(r"(.+), (\d+)\.(\d)", done.stdout)
    return match and (match[1], int(match[2] + match[3]))


def file_name(gpu):
    """h200_bf16.json for an NVIDIA H200."""
    words = re.sub(r"[^a-z0-9]+", "_", gpu.lower()).strip("_")
    return f"{words.removeprefix('nvidia_')}_{DTYPE}.json"


def show_list(capability, head):
    kept, head_dim = head["variants"], head["head_dim"]
    print(f"head_dim {head_dim}, compute capability {capability / 10:.1f}: {len(kept)} of {len(space())} choices")
    for choice in map(as_choice, kept):
        print(f"  {choice.text():<20} {choice.shared_bytes(head_dim) // 1024:>4} KB a CTA, at most {register_bound(choice)} "
              f"registers, {held_registers(choice, head_dim)} of them for O, S" + (" and Q" if choice.q_in_registers else ""))
    for rule, count in head["dropped"].items():
        print(f"{count:>5} dropped for not keeping: {RULES[rule][0]}")
    print()


def search_all(data, gpu, capability, write):
    """Searches, writes the file, and returns the exit code."""
    code, heads = 0, data["head_dims"]
    try:
        nvcc, _ = find_nvcc()
        command, parts = nvcc_command(nvcc, capability), build_harness(nvcc, capability)
        for head in heads:
            search(data, head, capability, command, parts)
    except Missing as problem:
        fail(str(problem), 4)
    except KeyboardInterrupt:
        code = 130
        print("\ninterrupted", file=sys.stderr)
    if not data["machine"]:
        fail(f"nothing was timed: {[v for head in heads for v in head['variants']][0]['reason']}", code or 3)
    for head in heads:
        show(head)
    complete = not code and len(heads) == 2 and "only" not in data["space"]
    path = (RESULTS if complete else BUILD) / file_name(gpu)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lines_of(data))
    print(f"wrote {relative(path)}")
    if write and not code:
        write_header(path)
    statuses = {v["status"] for head in heads for v in head["variants"]}
    return code or (1 if "wrong" in statuses else 3 if "error" in statuses else 0)


def main(argv=None):
    parser = Parser("tune", __doc__, EXAMPLE)
    add = parser.add_argument
    add("--list", action="store_true", help="print the choices that the rules keep, without building")
    add("--write", action="store_true", help="write the winners into kernels/10_tuning.h")
    add("--from", dest="source", type=Path, metavar="FILE", help="write the winners of such a file instead of searching")
    add("--head-dim", type=int, choices=(64, 128), help="default: both")
    add("--only", metavar="PATTERN", default="*", help="choices that match, in the order of struct Tuning: '4,2,*'")
    add("--arch", type=int, choices=[n for n in LIMITS if n >= 80], help="with --list, for another GPU")
    args = parser.parse_args(argv)
    if args.arch and not args.list:
        fail("--arch goes with --list; times are of the GPU present (see --help)")
    if args.write and args.only != "*":
        fail("--write takes the whole space, without --only (see --help)")
    if args.source:
        write_header(args.source)
        return 0
    gpu = detect_gpu()
    if not gpu and not args.list:
        fail("no NVIDIA GPU answers through nvidia-smi; --list needs none, nor does --from FILE", 3)
    capability = args.arch or (gpu[1] if gpu else 90)
    if capability not in LIMITS or capability < 80:
        fail(f"kernel 10 needs compute capability 8.0 or later, and one that is known here, not {capability / 10:.1f}", 3)
    choices = [c for c in space() if fnmatch.fnmatchcase(c.text(), args.only)]
    data = {"tuning_version": 1, "created": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "kernel": KERNEL, "dtype": DTYPE, "machine": None,
            "space": SPACE | ({"only": args.only} if args.only != "*" else {}),
            "rules": {name: words for name, (words, _) in RULES.items()},
            "protocol": {"heads": HEADS, "rows": TOKENS, "inputs": "normal", "seed": 1, "spill_limit_bytes": SPILL_LIMIT,
                         "first": QUICK, "final": {**FULL, "rounds": ROUNDS, "choices": FINALISTS}, "tie": TIE,
                         "tflops_convention": "4*B*H*N^2*D"}, "head_dims": []}
    for head_dim in [args.head_dim] if args.head_dim else [128, 64]:
        kept, dropped = prune(choices, head_dim, LIMITS[capability])
        variants = [{"choice": choice._asdict(), **UNREACHED} for choice in kept]
        data["head_dims"].append({"head_dim": head_dim, "dropped": dropped, "choice": None, "variants": variants})
    if args.list:
        for head in data["head_dims"]:
            show_list(capability, head)
        return 0
    if not any(head["variants"] for head in data["head_dims"]):
        fail(f"no choice of the space that keeps the rules matches '{args.only}'")
    return search_all(data, gpu[0], capability, args.write)


if __name__ == "__main__":
    run(main)
