"""Builds and runs the solutions of the chapters' exercises, and writes what they gave to bench/results/emulator/solutions.jsonl:
one line per solution, from which the chapters take their numbers.

A solution stands in its chapter, as a diff below its name, which begins with the kernel's number:

  ```diff
  @@ 02_more_rows
   struct Config {
  -  static constexpr int kBlockM = 32;  // query rows per CTA
  +  static constexpr int kBlockM = 64;  // query rows per CTA
  ```

Its places have no line numbers: each is found by its lines, which must stand in the kernel exactly once. A line "@@"
stands between two of them. Lines "@@ NAME" in place of a diff are other solutions: they are applied one after the other. The
long diffs of a chapter are in docs/solutions/NN.diff, each below a line "=== NAME", to which the exercise links. Solutions are
built in a copy of the sources: only --apply and --undo change the checkout."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fa_tools.cards import EMULATOR, card_of, gpu_of
from fa_tools.patches import changed, renamed, solutions
from fa_tools.tools import (RESULTS, ROOT, Parser, busy, fail, make_folder, or_fail, read_json, read_set, relative, repository_files,
                            set_up, write_json)

TREE = ROOT / "build" / "solutions"
SOURCES = ("common", "kernels", "bench", "scripts", "CMakeLists.txt", "CMakePresets.json")

EXAMPLE = """examples:
  scripts/fa solutions --apply 02_no_padding && scripts/run.sh 02
                                           changes kernel 02 as this solution says, and runs it
  scripts/fa solutions --undo 02_no_padding
                                           takes that back
  scripts/fa solutions                     all of them on the emulator, counting
  scripts/fa solutions 02_no_padding       one of them; a number stands for all of a chapter
  scripts/fa solutions --check 02          the same, but nothing is written: exit code 1 if a count is another
  scripts/fa solutions --preset cuda       on the GPU present: solutions_alone.jsonl of its folder
  scripts/fa solutions --library build/overlap.so --preset cuda 14_neither 14_overlap -- -DCMAKE_CUDA_ARCHITECTURES=90a
                                           a library of all kernels and of these solutions under their own names:
                                           scripts/fa bench --library FILE measures one beside the other

Exit code: 0 done, 1 a solution does not fit, build or pass, or its count is another, 2 bad arguments, 4 the checkout
belongs to another user."""


def change(source, name, places, undo=False):
    with or_fail(f"{name}{' (was it applied?)' if undo else ''}", code=1):
        text = changed(source.read_text(encoding="utf-8"), places, undo)
    source.write_text(text, encoding="utf-8")


def run(command, what, **options):
    with busy(what):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode:
        sys.stderr.write(done.stdout[-3000:])
        fail(f"{what} failed", 1)
    return done.stdout


def copy_if_changed(source, target):
    """Keeps the time stamp of what is the same, so that only one kernel is built again."""
    if not target.exists() or source.read_bytes() != target.read_bytes():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)


def refresh_tree():
    for path in repository_files():
        name = path.relative_to(ROOT)
        if name.parts[0] in SOURCES and name.parts[:2] != ("bench", "results"):
            copy_if_changed(path, TREE / name)


def results_of(program, name):
    """What the program writes as NAME.json, without the counts by statement: those of the kernel are kept elsewhere."""
    with tempfile.TemporaryDirectory() as folder:
        run([program, "--json", f"{name}.json"], f"running {name}", cwd=folder)
        data = json.loads((Path(folder) / f"{name}.json").read_text(encoding="utf-8"))
    for record in data["records"]:
        record.pop("statements", None)
    return data


def library(file, configure, kernel_of, diffs):
    """Builds the library fa_bench, in which each solution is a kernel of its own beside the one that it changes."""
    added, preset = [], configure[2]
    try:
        for name, kernel in kernel_of.items():
            source = TREE / "kernels" / f"{kernel}.cu"
            text = changed(source.read_text(encoding="utf-8"), diffs[name])
            added.append(source.with_name(f"{name}.cu"))
            added[-1].write_text(renamed(text, name), encoding="utf-8")
        run(configure, "configuring", cwd=TREE)
        run(["cmake", "--build", "--preset", preset, "--target", "fa_bench"], "building", cwd=TREE)
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(TREE / "build" / preset / "lib" / "libfa_bench.so", file)
        print(f"built {file} with {', '.join(kernel_of)}")
        return 0
    finally:
        for target in added:
            target.unlink()


def main():
    parser = Parser("solutions", __doc__, EXAMPLE)
    parser.add_argument("names", nargs="*", metavar="NAME", help="solutions (default: all)")
    parser.add_argument("--apply", metavar="NAME", help="change the kernel in this checkout as the solution says")
    parser.add_argument("--undo", metavar="NAME", help="take that back")
    parser.add_argument("--preset", default="emulator-checked", help="how to build (default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="write nothing, name results that are out of date")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE",
                        help="the set of results (default bench/results/emulator/solutions.jsonl)")
    parser.earlier("--into", "output", type=Path)
    parser.add_argument("--library", metavar="FILE", help="build the library fa_bench with the solutions, and run nothing")
    arguments, cmake = sys.argv[1:], []
    if "--" in arguments:
        cut = arguments.index("--")
        arguments, cmake = arguments[:cut], arguments[cut + 1 :]
    args = parser.parse_args(arguments)

    kernels = {path.name[:2]: path.stem for path in (ROOT / "kernels").glob("[0-9][0-9]_*.cu")}
    diffs = solutions()
    # The kernels themselves are run in the same way, for comparison.
    known = set(diffs) | {kernels[name[:2]] for name in diffs}
    names = args.names
    names = [each for name in names for each in (sorted(k for k in known if k[:2] == name) or [name])] or sorted(known)
    for name in [args.apply or args.undo] if args.apply or args.undo else names:
        if name not in known:
            fail(f"there is no solution {name}; the exercises of the chapters name them all")
    if args.apply or args.undo:
        name = args.apply or args.undo
        if name not in diffs:
            fail(f"{name} is a kernel, not a solution of an exercise")
        source = ROOT / "kernels" / f"{kernels[name[:2]]}.cu"
        change(source, name, diffs[name], undo=not args.apply)
        print(f"{'applied' if args.apply else 'took back'} {name}: {relative(source)}")
        return 0

    presets = [preset["name"] for preset in read_json(ROOT / "CMakePresets.json")["buildPresets"]]
    if args.preset not in presets:
        fail(f"there is no preset {args.preset}; CMakePresets.json has {', '.join(presets)}")
    set_up('claim "$SETUP_LOG"')
    refresh_tree()
    configure = ["cmake", "--preset", args.preset, "-DFA_TESTS=OFF", *cmake]
    if args.library:
        return library(args.library, configure, {name: kernels[name[:2]] for name in names if name in diffs}, diffs)
    run(configure, "configuring", cwd=TREE)
    stale = 0
    for name in names:
        kernel = kernels[name[:2]]
        source = f"kernels/{kernel}.cu"
        if name in diffs:
            change(TREE / source, name, diffs[name])
        os.utime(TREE / source)  # so that it is built again, whatever was built before
        try:
            run(["cmake", "--build", "--preset", args.preset, "--target", kernel], f"building {name}", cwd=TREE)
        finally:
            copy_if_changed(ROOT / source, TREE / source)
        program = TREE / "build" / args.preset / "bin" / kernel
        # The bits must hold on the hard inputs too, before the numbers of the normal ones count. Looking for races takes
        # most of the time of the larger problem: there once is enough, where maxima grow and branches are taken.
        for inputs in ("large", "increasing_max", "one_hot_v"):
            races = [] if inputs == "increasing_max" or args.preset != "emulator-checked" else ["--no-races"]
            for shape in (["--dtype", "fp16", "--head-dim", "64"], ["--seq-len", "640", "--heads", "1", "--batch", "2", *races]):
                run([program, "--inputs", inputs, "--iters", "1", "--warmup", "0", *shape], f"{name} on {inputs}")
        new = results_of(program, name)
        gpu = gpu_of(new)
        output = args.output or RESULTS / (f"{card_of(gpu)}/solutions_alone.jsonl" if gpu else f"{EMULATOR}/solutions.jsonl")
        if not args.check:
            make_folder(output.parent)
            write_json(f"{output}#{name}", new)
            print(f"{name}: passed, {relative(output)}#{name}")
            continue
        kept = read_set(output) if output.exists() else {}
        same = name in kept and new["records"] == kept[name]["records"]
        stale += not same
        print(f"{name}: passed" + ("" if same else f", but {relative(output)}#{name} is out of date"))
    return 1 if stale else 0
