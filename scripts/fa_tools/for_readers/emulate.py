"""Runs a CUDA file of the reader's own on the emulator: translates it, compiles it for the checked build, runs it."""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

from fa_tools.for_readers import verdicts
from fa_tools.tools import ROOT, Parser, busy, check_writable, fail, relative, set_up

# The translator lies with what it translates for, outside of this package.
spec = importlib.util.spec_from_file_location("cuda_source", ROOT / "common/emulator/programs/cuda_source.py")
cuda_source = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cuda_source)

UNSET = ("-Wuninitialized", "-Wmaybe-uninitialized", "-Wreturn-type")  # of g++; clang++ has another name for the second
# Of a * b + c, in functions for which common/emulator/units/warp.h asks for it. g++'s pass is one of its expensive ones.
FUSED = ("-ffp-contract=fast", "-fexpensive-optimizations", "-DFA_FUSED", *(("-mno-fma",) if platform.machine() == "x86_64" else ()))
# C++ lets the compiler leave out a loop that only waits, and run on behind a function that does not return its value.
AS_WRITTEN = ("-fno-finite-loops", "-fsanitize=return")
EXAMPLE = "reduction"  # whose commands of the build are those of every file
DEFINE = re.compile(r"[A-Za-z_]\w*(\([\w, .]*\))?(=.*)?")  # NAME=VALUE of -D
DEFINES = re.compile(r'(?:\\.|"[^"]*"|[^,\\])+')  # each of -D A=1,B=2, which nvcc takes for two
SOURCES = (".cu", ".cpp", ".cc", ".cxx")
MESSAGE = re.compile(r"^(.*?):(\d+):\d+: (?:fatal )?error: (.*)$", re.MULTILINE)
UNKNOWN = re.compile(r"[‘'](?:\w+::)*(\w+)[’'] (?:was not declared|has not been declared|does not name a type|"
                     r"is not a namespace-name)|"
                     r"use of undeclared identifier '(\w+)'|unknown type name '(\w+)'")
NO_MEMBER = re.compile(r"[‘'](\w+)[’'] is not a member of [‘'](cooperative_groups|cg|cuda)[’']|"
                       r"[‘'](\w+)[’'] in namespace [‘'](cooperative_groups|cg|cuda)[’'] does not name|"
                       r"no member named '(\w+)' in namespace '(cooperative_groups|cuda)'")
UNDEFINED = re.compile(r"^(?:(\S[^\n]*?):(\d+): )?[^\n]*?undefined reference to [`'](.*)'$", re.MULTILINE)
TWICE = re.compile(r"multiple definition of [`'](.*?)'")
ASSERTION = re.compile(r"static assertion failed[^:]*: \"?([^\"\n]+)")
WARNING = re.compile(r"^(.*?):(\d+):\d+: (warning: .*(?:uninitialized|return-type)\])$", re.MULTILINE)
ENDED = re.compile(r"[Kk]illed signal terminated program|CPU time limit exceeded|virtual memory exhausted|out of memory allocating")
ASSEMBLER = re.compile(r"^(.*?):(\d+):\d+: error: [^\n]*\b(?:constraint|[‘']asm)\b|Assembler messages:", re.MULTILINE)
CALLER = re.compile(r"^(\S.*?):(\d+):\d+:\s+required from here", re.MULTILINE)


class CompileError(Exception):
    """What the compiler or the linker says."""


def quiet(command, what, **more):
    """Runs a step of the set-up; its output is shown if it fails, which ends the script with code 4."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, **more)
    if done.returncode:
        sys.stderr.write(done.stdout[-4000:] + done.stderr[-4000:])
        fail(f"{what} failed", 4)
    return done.stdout


@lru_cache
def pattern(example, of_kernel=False, fast=False):
    """How a program of the build is made, after which others are: (the build tree, the program's name, how it is compiled,
    how it is linked). It is a program of examples/ or, `of_kernel`, of kernels/."""
    builds = [ROOT / "build" / preset for preset in (["emulator"] if fast else ["emulator-checked", "emulator"])]
    build = next((each for each in builds if (each / "build.ninja").is_file()), builds[0])
    name = example if fast or build.name == "emulator-checked" else f"{example}_checked"
    if not (build / "build.ninja").is_file():  # as scripts/run.sh does it
        set_up("claim \"$SETUP_LOG\"; ensure_packages run emulator; configure \"$1\" ''", build.name)
    with open(build / "emulate.lock", "w", encoding="utf-8") as lock, \
            busy(f"building {name} and the emulator, which may take minutes"):
        fcntl.flock(lock, fcntl.LOCK_EX)  # Ninja does not ask whether another one builds in its folder
        quiet(["cmake", "--build", str(build), "--target", name], "the build of the emulator")
    lines = quiet(["ninja", "-C", str(build), "-t", "commands", name], "ninja").splitlines()
    source = f"kernels/{example}.cu" if of_kernel else f"cuda/{example}.cpp"
    compiled = next(line for line in lines if line.endswith(source) and " -c " in line)
    linked = next(line for line in reversed(lines) if f"-o bin/{name} " in line)
    return build, name, compiled, linked


def digest_of(how, inputs):
    """Of what a program is made of: the commands, the build's libraries and object files, our headers, and the sources."""
    build, _, compiled, linked = how
    digest = hashlib.sha256(compiled.encode() + linked.encode())
    made = [build / word for word in shlex.split(linked) if word.endswith((".a", ".o"))]
    for path in [*inputs, *sorted((ROOT / "common").rglob("*.h")), *filter(Path.is_file, made)]:
        digest.update(f"{path} {path.stat().st_mtime_ns} ".encode())
    return digest


def at_most(seconds):
    """What a command begins with that each of its processes may take so much processor time for, and 8 GiB of memory."""
    return ["bash", "-c", 'ulimit -t "$0" -v 8388608 && exec "$@"', str(seconds)] if seconds else []


def step(command, build, **more):
    """Runs the compiler or the linker. Returns what it says, or raises CompileError with it."""
    done = subprocess.run(command, cwd=build, capture_output=True, text=True, errors="replace", **more)
    if ENDED.search(done.stderr):
        raise CompileError("error: the compiler took too long or too much memory: is there a template or a constant without end?")
    if done.returncode:
        raise CompileError(done.stderr)
    return done.stderr


def precompiled(how, flags, text):
    """A header of this text, which the compiler has read before: of a small program, that takes longer than all the rest."""
    build = how[0]
    header = build / f"begin-{hashlib.sha256(shlex.join([*flags, text]).encode()).hexdigest()[:16]}.h"
    ready, made = Path(f"{header}.gch"), Path(f"{header}.gch.tmp")
    text = f"// {digest_of(how, ()).hexdigest()}\n{text}"
    with open(build / "begin.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.is_file() or header.read_text(encoding="utf-8") != text:
            ready.unlink(missing_ok=True)
            header.write_text(text, encoding="utf-8")
            step([*flags, "-x", "c++-header", "-c", str(header), "-o", str(made)], build)
            made.replace(ready)
    return str(header)


def make(how, source, program, *options, begin="", folders=(), others=(), seconds=None):
    """Compiles `source` and `others` as the pattern was, each after a header with the text of `begin`, and links them; `folders`
    may have headers, too. The compiler gets `seconds` of processor time per file, if they are given. Returns its warnings.
    Raises CompileError."""
    build, name, compiled, linked = how
    words = [word for word in shlex.split(compiled) if word not in ("&&", ":", "-MD") and Path(word).name != "ccache"]
    old = words[words.index("-o") + 1]
    flags = [word for before, word in zip([""] + words, words) if not {before, word} & {"-o", "-MF", "-MT", "-c"}] + [*options]
    if UNSET[0] in options:  # which -w would silence
        flags = [word for word in flags if word in options or not word.startswith(("-w", "-W"))]
    if begin:
        flags += ["-include", precompiled(how, flags, begin)]
    for folder in folders:
        flags += ["-I", str(folder)]
    with tempfile.TemporaryDirectory(dir=program.parent) as temporary:
        made, warnings = [], ""
        for number, each in enumerate([source, *others]):
            made.append(f"{temporary}/{number}.o")
            warnings += step([*at_most(seconds), *flags, "-c", str(each), "-o", made[-1]], build)
        done = f"{temporary}/program"
        step(linked.replace(f" {old} ", f" {shlex.join(made)} ").replace(f"-o bin/{name} ", f"-o {shlex.quote(done)} "), build, shell=True)
        Path(done).replace(program)
    return warnings


def can_fuse():
    """Whether this machine has an instruction for a * b + c with one rounding."""
    if platform.machine() != "x86_64":
        return platform.machine() == "aarch64"
    with contextlib.suppress(OSError):
        return " fma " in Path("/proc/cpuinfo").read_text()
    return False


def compile_file(source, fast=False, others=(), folders=(), defines=(), fused=True, seconds=None):
    """The path of the program that the CUDA file becomes, with `others`, headers in `folders` and macros `defines`; made before
    if nothing has changed. `fused`: device code rounds a * b + c once, as nvcc's does, if this machine can. `seconds` as of make.
    Beside it is a file of warnings about scalars that are not set: here they are folded to 0, on a GPU they are anything.
    Raises cuda_source.Refused or CompileError."""
    how = pattern(EXAMPLE, fast=fast)
    folder = how[0] / "emulate"
    folder.mkdir(parents=True, exist_ok=True)
    # The compiler finds a header beside a source from every folder, so the translator looks there, too.
    folders = list(dict.fromkeys([each.parent for each in (source, *others)] + [*folders]))
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        translated = Path(temporary) / "program.cpp"
        pairs = [(each, Path(temporary) / f"program{number}.cpp") for number, each in enumerate(others)]
        inputs = cuda_source.translate(source, translated, pairs, folders, defines)
        digest = digest_of(how, [*inputs, Path(cuda_source.__file__)])
        options = [*UNSET, *AS_WRITTEN, *(FUSED if fused and can_fuse() else ())]
        digest.update("\n".join([*defines, *options]).encode())
        program = folder / f"{source.stem}-{digest.hexdigest()[:16]}"
        if not program.is_file():
            with busy(f"compiling {relative(source)}"):
                warnings = make(how, translated, program.with_suffix(".made"), *options, begin=cuda_source.BEGIN,
                                folders=folders, others=[made for _, made in pairs], seconds=seconds)
            found = [f"{file}:{line}: {text}\n" for file, line, text in WARNING.findall(warnings) if Path(file) in inputs]
            program.with_suffix(".warnings").write_text("".join(dict.fromkeys(found)))
            program.with_suffix(".made").replace(program)
    return program


HALVES = {name: f"cuda_{kind}.h" for kind, names in
          (("fp16", ("half", "half2", "__half", "__half2")), ("bf16", ("nv_bfloat16", "nv_bfloat162", "__nv_bfloat16", "__nv_bfloat162")))
          for name in names}


def shown(path):
    """The path as seen from here, if it is below."""
    return str(Path(path).relative_to(Path.cwd()) if Path(path).is_relative_to(Path.cwd()) else path)


def of_other_linkage(name, sources):
    """A sentence if one of the sources defines the function, but as one of C++ where one of C is missing, or the converse."""
    function, is_cpp = re.match(r"(?:\w+::)*(\w*)", name)[1], "(" in name
    if not function:
        return ""
    for source in sources:
        text = source.read_text(encoding="utf-8", errors="replace")
        for found in re.finditer(rf"^[^\n#/;=]*\b{function}\s*\((?:[^(){{}};]|\([^(){{}};]*\))*\)\s*(?:noexcept\s*)?{{", text, re.MULTILINE):
            before = text[:found.start()] + found[0][:found[0].index(function)]
            blocks = [before.count("{", at.end()) - before.count("}", at.end()) for at in re.finditer(r'extern\s*"C"\s*{', before)]
            if is_cpp == (bool(re.search(r'extern\s*"C"[^;{}]*\Z', before)) or any(depth >= 0 for depth in blocks)):
                at, line = shown(source), text.count("\n", 0, found.start()) + 1
                return (f'{name} is declared as a function of C++, and {at}:{line} defines it as extern "C": declare it so, too' if is_cpp else
                        f'{name} is declared extern "C", and {at}:{line} defines it as a function of C++: write extern "C" there, too')
    return ""


def explain(messages, sources):
    """What the compiler says; of CUDA's names that the emulator lacks, and of what the linker misses, a sentence instead."""
    names = " ".join(shown(source) for source in sources)
    if missing := UNDEFINED.search(messages):
        file, line, name = missing.groups()
        at = f"{shown(file)}:{line}: " if file and Path(file) in sources else ""
        if name.startswith("omp_"):
            fail(f"{at}{name}() is OpenMP's, which is not there: go on with one thread, or with std::thread")
        if re.match(r"glu?t?[A-Z]", name):
            fail(f"{at}the emulator draws nothing, so {name}() is not there")
        if linkage := of_other_linkage(name, sources):
            fail(f"{at}{linkage}")
        what = "there is no main()" if name == "main" else f"{at}{name} is declared and not defined"
        fail(f"{what} in {names}: name the file that has it, too, as in scripts/fa emulate {names} OTHER.cu")
    if twice := TWICE.search(messages):
        fail(f"{twice[1]} is defined in more than one of {names}: make it static, or inline in a header")
    if asm := ASSEMBLER.search(messages):
        fail((f"{asm[1]}:{asm[2]}: " if asm[1] else f"{names}: ") + cuda_source.PTX)
    for file, line, text in MESSAGE.findall(messages):
        if unknown := UNKNOWN.search(text):
            name = next(filter(None, unknown.groups()))
            if header := HALVES.get(name):
                fail(f"{file}:{line}: {name} is in {header}, which the file does not include")
            if re.fullmatch(r"__(shfl(_up|_down|_xor)?|any|all|ballot)", name):
                fail(f"{file}:{line}: CUDA has no {name}() from compute capability 7.0 on: write {name}_sync(), whose first argument is the "
                     "mask of the lanes, such as 0xffffffff")
            for _, names, sentence in cuda_source.ABSENT:
                if re.fullmatch(names, name):
                    fail(f"{file}:{line}: {sentence.format(name)}")
            space = re.search(rf"[‘']((?:cuda|cg|cooperative_groups|nvcuda)(?:::\w+)*::){name}\b", text)
            like_cuda = re.match(r"__|cuda[A-Z_]|cg$|cooperative|atomic|cu[A-Z]|make_|h2?(abs|add|sub|mul|div|fma|neg|min|max|exp|log|sqrt|"
                                 r"rsqrt|rcp|sin|cos|floor|ceil|rint|trunc|eq|ne|lt|le|gt|ge|is)[a-z0-9_]*$", name)
            if space or like_cuda:
                fail(f"{file}:{line}: the emulator has no {space[1] if space else ''}{name}; docs/emulator/what_is_there.md says what of CUDA is there")
        if member := NO_MEMBER.search(text):
            name, space = (group for group in member.groups() if group)
            fail(f"{file}:{line}: the emulator has no {space}::{name}; docs/emulator/what_is_there.md says what of CUDA is there")
        if assertion := ASSERTION.match(text):  # a sentence of the emulator's own headers, or of the file
            where = CALLER.search(messages)
            at = f"{where[1]}:{where[2]}" if where and "/common/emulator/" in file else f"{file}:{line}"
            fail(f"{at}: {assertion[1]}")
        if missing := re.match(r"([\w/.]+): No such file", text):
            fail(f"{file}:{line}: there is no header {missing[1]}, neither here nor in the emulator; docs/emulator/what_is_there.md "
                 "says what of CUDA is there")
    sys.stderr.write(messages)
    fail("the file does not compile")


def named(files, arguments, folders, defines):
    """The sources that a command line begins with, and -I FOLDER and -D NAME among them; they leave `arguments`, which are the
    program's."""
    while arguments:
        if arguments[0].endswith(SOURCES) and Path(arguments[0]).is_file():
            files.append(arguments.pop(0))
        elif arguments[0] == "-I" and Path(*arguments[1:2]).is_dir() and arguments[1:]:
            folders.append(arguments[1])
            del arguments[:2]
        elif arguments[0].startswith("-I") and Path(arguments[0][2:]).is_dir() and arguments[0][2:]:
            folders.append(arguments.pop(0)[2:])
        elif arguments[0] == "-D" and "".join(arguments[1:2])[:1].isidentifier():
            defines.append(arguments[1])
            del arguments[:2]
        elif arguments[0].startswith("-D") and arguments[0][2:3].isidentifier():
            defines.append(arguments.pop(0)[2:])
        else:
            if arguments[0] == "--":
                arguments.pop(0)
            break
    for file in files:
        if not Path(file).is_file():
            fail(f"there is no file {file}")
        if not file.endswith(SOURCES):
            fail(f"{file} is no CUDA source: name a file that ends in .cu, or one of C++ ({', '.join(SOURCES[1:])})")
    return [Path(os.path.abspath(file)) for file in files]


def main():
    parser = Parser("emulate", "Runs a CUDA file on the emulator, without a GPU: the program's own output, then what each\n"
                    "kernel's instructions did, and a report if threads race or leave their memory.",
                    "The program's folder, arguments and exit code are its own; after a report, or above a limit, the code\n"
                    "is 1. A file that cannot be translated or compiled: 2; no emulator, or another user's checkout: 4.\n"
                    "docs/emulator/what_is_there.md says what of CUDA is there.\n"
                    "Further sources may follow the first; the program's arguments come after them, or after --.\n"
                    "Examples:\n  scripts/fa emulate examples/transpose.cu\n  scripts/fa emulate main.cu kernels.cu -I include\n"
                    "  scripts/fa emulate --json counts.json --at-most sectors=1.1 --github mine.cu")
    parser.add_argument("--fast", action="store_true", help="neither count nor look for races: up to twenty times as fast")
    parser.add_argument("--no-races", action="store_true", help="count, but look for no races")
    parser.add_argument("--keep-going", action="store_true",
                        help="go on after a race or a read of what nothing has written; each place is told once")
    parser.add_argument("--schedule", choices=("fixed", "random"), default="fixed",
                        help="the order in which threads that can run do so (default: fixed)")
    parser.add_argument("--seed", type=int, default=1, help="of the random order (default: 1)")
    parser.add_argument("--threads", type=int, default=0, help="of the operating system (default: one per core)")
    parser.add_argument("--patience", type=float, default=30, metavar="SECONDS",
                        help="of processor time in which a thread must get somewhere; 0: no limit (default: 30)")
    parser.add_argument("--fmad", choices=("true", "false"), default="true",
                        help="one rounding for a * b + c in device code, as with nvcc's option (default: true)")
    parser.add_argument("--json", metavar="FILE", help="write counters, ratios per ideal one, and reports")
    parser.add_argument("--at-most", dest="limits", metavar="[KERNEL:]NAME=MOST", type=verdicts.limit, action="append", default=[],
                        help="fail where a kernel, or the one named, is above it: sectors or wavefronts per ideal one, or a counter of --json; "
                             "may be given several times")
    parser.add_argument("--github", action="store_true", help="reports, and what is above a limit, also as annotations of GitHub Actions")
    parser.add_argument("-I", dest="folders", metavar="FOLDER", action="append", default=[], help="a folder of headers; may be given several times")
    parser.add_argument("-D", dest="defines", metavar="NAME[=VALUE]", action="append", default=[],
                        help="a macro of all sources (1 if no value is given); may be given several times")
    parser.add_argument("file", nargs="?", help="a CUDA source with a main(), or several of which one has it")
    parser.add_argument("arguments", nargs="...", help="of the program")
    options = parser.parse_args()
    if not options.file:
        fail("name a CUDA file; scripts/fa emulate --help shows an example")
    judged = options.json or options.limits or options.github
    if judged and options.fast:
        fail("--fast counts nothing and reports nothing: leave it out, or --json, --at-most and --github")
    if options.json is not None:
        check_writable(options.json)
    if sys.argv[-len(options.arguments) - 1] == "--":  # which argparse takes for the file's end
        options.arguments.insert(0, "--")
    source, *others = sources = named([options.file], options.arguments, options.folders, options.defines)
    defines = [each.replace("\\,", ",") for given in options.defines for each in DEFINES.findall(given)]
    for define in defines:
        if not DEFINE.fullmatch(define):
            fail(f"-D {define} is no macro: write -D NAME or -D NAME=VALUE")
    folders = [Path(os.path.abspath(folder)) for folder in options.folders]
    for folder in folders:
        if not folder.is_dir():
            fail(f"there is no folder {folder}")
    folders = [folder for folder in folders if not (folder / "cuda_runtime.h").is_file()]  # CUDA's own: the emulator has others
    try:
        program = compile_file(source, options.fast, others, folders, defines, options.fmad == "true")
    except cuda_source.Refused as problem:
        fail(problem)
    except CompileError as problem:
        explain(str(problem), sources)
    chosen = [f"schedule={options.schedule}", f"seed={options.seed}", f"threads={options.threads}", f"patience={options.patience}"]
    if options.no_races:
        chosen.append("races=off")
    if options.keep_going:
        chosen.append("reports=all")
    sys.stderr.write(program.with_suffix(".warnings").read_text())
    sys.stderr.flush()
    os.environ["FA_EMULATOR"] = " ".join(chosen)
    sys.stdout.flush()
    if judged:
        return verdicts.judge(shown(source), *verdicts.run(program, options.arguments, str(source)), options)
    os.execv(program, [str(source), *options.arguments])
