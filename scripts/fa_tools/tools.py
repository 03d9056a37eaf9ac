"""Shared by the Python scripts: where the checkout is, the Python environment, reading results files."""

import argparse
import atexit
import contextlib
import datetime
import fnmatch
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SCHEMA = ROOT / "bench" / "schema.json"
RESULTS = ROOT / "bench" / "results"
NOTEBOOK = ROOT / "docs" / "start.ipynb"
SCHEMA_VERSION = 6


class Refused(Exception):
    """One sentence that says what is wrong with a file. A command that it leaves ends with it, and with this code."""

    code = 2


class Help(argparse.RawDescriptionHelpFormatter):
    """As wide as the terminal, and at most 100 columns. Paragraphs are wrapped; indented lines, such as examples, stay as they are."""

    def __init__(self, prog):
        super().__init__(prog, width=min(shutil.get_terminal_size().columns, 100), max_help_position=32)

    def _fill_text(self, text, width, indent):
        lines = []
        for are_indented, block in itertools.groupby(text.splitlines(), lambda line: line[:1] in ("", " ")):
            block = list(block)
            lines += block if are_indented else textwrap.wrap(" ".join(block), width, break_on_hyphens=False, break_long_words=False)
        return "\n".join(lines)


class Parser(argparse.ArgumentParser):
    """Of a subcommand of scripts/fa: its description, its examples, and one sentence for an argument that is wrong."""

    is_asked = False

    def __init__(self, name, description, epilog):
        super().__init__(prog=f"scripts/fa {name}", description=description, epilog=epilog,
                         formatter_class=Help)

    def earlier(self, name, dest, **options):
        """An option of 1.0.0 that has another name today: it is still taken, and --help is silent about it."""
        self.add_argument(name, dest=dest, default=argparse.SUPPRESS, help=argparse.SUPPRESS, **options)

    def parse_known_args(self, args=None, namespace=None):
        if "_ARGCOMPLETE" in os.environ and not self.is_asked:  # scripts/fa, of which a shell wants to know how a word goes on
            import argcomplete
            self.is_asked = True  # argcomplete parses, too
            argcomplete.autocomplete(self, always_complete_options="long")  # which ends the program
        return super().parse_known_args(args, namespace)

    def error(self, message):
        fail(f"{message}; {self.prog} --help shows what there is")


def whole(least, multiple=1, most=999_999_999):
    """Of an option: a whole number from `least` to `most`, a multiple of `multiple`."""

    def parse(text):
        number = int(text) if re.fullmatch(r"\d{1,9}", text) else -1
        if not least <= number <= most or number % multiple:
            range_ = f"from {least} on" if most == 999_999_999 else f"from {least} to {most}"
            what = f"a multiple of {multiple}" if multiple > 1 else f"a whole number {range_}"
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return number

    return parse


def fail(sentence, code=2):
    print(f"error: {sentence}", file=sys.stderr)
    raise SystemExit(code)


@contextlib.contextmanager
def named(name):
    """A Refused from within names the file that it is about."""
    try:
        yield
    except Refused as problem:
        raise Refused(f"{name} {problem}".lstrip()) from None


@contextlib.contextmanager
def or_fail(name="", *, code):
    """A Refused from within ends the program with its sentence, which the name begins, and this code."""
    try:
        yield
    except Refused as problem:
        fail(f"{name} {problem}".lstrip(), code)


@contextlib.contextmanager
def busy(what):
    """Says on standard error what it is, if the work within takes longer than two seconds (or FA_BUSY_AFTER of them)."""
    late = threading.Timer(float(os.environ.get("FA_BUSY_AFTER") or 2),
                           lambda: print(f"{what} ...\n", end="", file=sys.stderr, flush=True))
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()


def run(main):
    """Ends the script with main's exit code, or with one sentence if something is refused, or standard output cannot be written,
    or another user's checkout."""
    if sys.stdout is None:
        fail("cannot write to standard output (it is closed)")
    try:
        try:
            code = main()
        except SystemExit as end:
            code = end.code
        except Refused as problem:
            print(f"error: {problem}", file=sys.stderr)
            code = problem.code
        except KeyboardInterrupt:
            print("\nstopped", file=sys.stderr)
            code = 130  # as a shell says it
        sys.stdout.flush()
    except OSError as problem:
        if problem.filename is not None:
            if isinstance(problem, PermissionError) and Path(problem.filename).is_relative_to(ROOT):
                set_up('claim "$1"', problem.filename)
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more
        if isinstance(problem, BrokenPipeError):  # the reader, such as head, has seen enough
            sys.exit(0)
        fail(f"cannot write to standard output ({problem.strerror.lower()})")
    sys.exit(code)


def set_up(script, *arguments):
    """Runs text in bash that has the functions of scripts/lib, and the arguments as $1, $2 ...; what it prints is progress. If it
    fails, the program ends with its exit code."""
    done = subprocess.run(["bash", "-c", '. "$0/scripts/lib/common.sh"; ' + script, ROOT, *arguments], stdout=sys.stderr, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


def new_results_file(name):
    """A new file in the folder of results whose name says when, in UTC, and what. It is removed at the end if it is still empty."""
    folder, now = make_folder(os.environ.get("RESULTS_DIR") or ROOT / "results"), datetime.datetime.now(datetime.timezone.utc)
    stem = folder / f"{now:%Y-%m-%dT%H-%M-%SZ}-{name}"
    check_writable(stem)
    for run in itertools.count(1):
        path = Path(f"{stem}.json" if run == 1 else f"{stem}-run{run}.json")
        with contextlib.suppress(FileExistsError):
            path.open("x").close()
            atexit.register(lambda: path.exists() and not path.stat().st_size and path.unlink())
            return path


def check_writable(path):
    """Before work that takes long: fails if the file could not be written."""
    path = Path(path)  # of "", the folder "."
    if path.is_dir():
        fail(f"cannot write {path} (is a directory)")
    if not os.access(path.parent, os.W_OK):
        fail(f"cannot write into the folder {path.parent}")


def lines_of(value):
    """JSON as every program and script prints what is kept (common/harness/files.cpp is the same in C++): one record a
    line. An object that holds a list of objects has a line for each of its keys, and such a list one for each element;
    everything else, and any object within with a "kernel", is on one line."""

    def takes_lines(part):
        if isinstance(part, list):
            return any(isinstance(each, dict) for each in part)
        return isinstance(part, dict) and (part is value or "kernel" not in part) and any(map(takes_lines, part.values()))

    def text(part):
        if not takes_lines(part):
            return json.dumps(part, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        if isinstance(part, list):
            return "[\n" + ",\n".join(map(text, part)) + "\n]"
        return "{\n" + ",\n".join(f"{json.dumps(key, ensure_ascii=False)}: {text(each)}" for key, each in part.items()) + "\n}"

    return text(value) + "\n"


def write_whole(path, content):
    """The file appears whole or not at all."""
    path = Path(path)
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        try:
            temporary.write_bytes(content if isinstance(content, bytes) else content.encode())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as problem:
        fail(f"cannot write {path} ({(problem.strerror or str(problem)).lower()})")


def make_folder(path):
    """The folder, there from now on."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        fail(f"cannot make the folder {relative(path)} ({problem.strerror.lower()})")
    return Path(path)


def relative(path):
    """The path as seen from the checkout, if it lies in it."""
    path = Path(path).resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def repository_files(root=ROOT):
    """The files that git would list, tracked or new, found without git: a downloaded archive has no .git, and git refuses
    a checkout of another user. Of .gitignore's syntax it knows names, * and the slashes at either end."""
    rules = (root / ".gitignore").read_text(encoding="utf-8").split("\n") if (root / ".gitignore").exists() else []
    rules = [rule for rule in rules if rule and not rule.startswith("#")] + [".git"]

    def ignored(name, top, is_folder):
        return any(fnmatch.fnmatchcase(name, rule.strip("/")) and (top or not rule.startswith("/")) and
                   (is_folder or not rule.endswith("/")) for rule in rules)

    for folder, folders, names in os.walk(root):
        top = Path(folder) == Path(root)
        folders[:] = sorted(name for name in folders if not ignored(name, top, True))
        yield from (Path(folder) / name for name in sorted(names) if not ignored(name, top, False))


def markdown_files():
    for path in repository_files():
        folders = path.relative_to(ROOT).parts[:-1]
        if path.suffix == ".md" and not any(name.startswith(".") for name in folders) and folders[:1] != ("shared",):
            yield path


def need(module):
    """Imports `module`, from the checkout's .venv if this Python lacks it (by running the script again there)."""
    try:
        return __import__(module)
    except ImportError:
        pass
    venv = ROOT / ".venv"
    python = venv / "bin" / "python"
    if Path(sys.prefix) != venv and os.access(python, os.X_OK):
        os.execv(python, [str(python), *sys.orig_argv[1:]])
    fail(f"the Python package {module} is missing; scripts/run.sh installs it into .venv", 4)


def _no_constant(name):
    raise Refused(f"holds {name}, which JSON does not allow")


def _no_duplicates(pairs):
    result = dict(pairs)
    if len(result) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise Refused(f"says '{twice}' twice in one object")
    return result


CONTROL = re.compile(r"[^\n\t -~\xa0-\ud7ff\ue000-\U0010ffff]")  # what moves a terminal's cursor, and halves of characters


def _refuse_odd(value, depth=0):
    """Refuses what JSON allows and no file here has: it would stop a reader further on."""
    if isinstance(value, str):
        if odd := CONTROL.search(value):
            raise Refused(f"holds the control character U+{ord(odd[0]):04X}")
    elif isinstance(value, float):
        if value and not 1e-100 < abs(value) < 1e100:  # squares and quotients of these are finite
            raise Refused(f"holds {value:g}, which is no measurement")
    elif isinstance(value, int):
        if abs(value) >= 2**64:
            raise Refused("holds a whole number of more than 64 bits")
    elif value is not None:
        if depth == 60:
            raise Refused("is nested too deeply")
        for part in value:
            _refuse_odd(part, depth + 1)
        for part in value.values() if isinstance(value, dict) else ():
            _refuse_odd(part, depth + 1)


_plain = set()  # texts that hold nothing odd


def text_of(path):
    """The text of a regular file, or Refused."""
    try:
        if Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():
            raise Refused("cannot be read (not a regular file)")  # a device or a pipe, which may have no end
        return Path(path).read_text(encoding="utf-8")
    except OSError as problem:
        raise Refused(f"cannot be read ({(problem.strerror or str(problem)).lower()})") from None
    except UnicodeDecodeError:
        raise Refused("is not UTF-8 text") from None


def code_blocks(page, language):
    """What stands in the fences of a page that name this language."""
    return [block.split("```\n")[0] for block in f"\n{text_of(page)}\n".split(f"\n```{language}\n")[1:]]


def _parsed(text, line=0):
    """The value of JSON text, which begins `line` lines below its file's first."""
    try:
        data = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_duplicates)
    except json.JSONDecodeError as problem:
        where = f"line {line + problem.lineno}, column {problem.colno}"
        if not text.strip():
            raise Refused("is empty") from None
        if problem.pos >= len(text.rstrip()) or problem.msg.startswith("Unterminated"):
            raise Refused(f"is cut off at {where}") from None
        raise Refused(f"is not JSON ({problem.msg.lower()} at {where})") from None
    except RecursionError:
        raise Refused("is nested too deeply") from None
    except ValueError:  # Python's limit of digits
        raise Refused("holds a whole number of more than 64 bits") from None
    if text not in _plain:  # a script reads some files often
        _refuse_odd(data)
        _plain.add(text)
    return data


def read_json(path):
    """The parsed file, or Refused with one sentence. NaN, Infinity and doubled keys are refused, and what could not be
    shown or calculated with. Of a set, SET.jsonl#NAME is one of its files."""
    file, is_of_set, name = str(path).partition(".jsonl#")
    if is_of_set:
        known = read_set(f"{file}.jsonl", only=name)
        if name not in known:
            raise Refused(f"has no {name}")
        return known[name]
    return _parsed(text_of(path))


def read_named(path, how=read_json):
    """What how() reads of a file. A Refused names the file."""
    with named(relative(path)):
        return how(path)


def read_toml(path):
    """What a file of TOML says. A Refused names the file."""
    import tomllib  # of Python 3.11: only tasks, bugs and measurements are written in it

    with named(relative(path)):
        try:
            return tomllib.loads(text_of(path))
        except tomllib.TOMLDecodeError as problem:
            raise Refused(f"is no TOML: {problem}") from None


def read_set(path, only=None):
    """{name: parsed file} of a set of files kept as one, a file a line: {"name": ..., "results": ...}. With `only` the lines
    of files with other names are not parsed."""
    files = {}
    for i, line in enumerate(text_of(path).splitlines()):
        if only and (other := re.match(r'\{"name":"([^"\\]*)",', line)) and other[1] != only:
            continue
        entry = _parsed(line, i)
        if not isinstance(entry, dict) or set(entry) != {"name", "results"} or not isinstance(entry["name"], str):
            raise Refused(f"is not a set of results (line {i + 1})")
        if entry["name"] in files:
            raise Refused(f"has {entry['name']} twice")
        files[entry["name"]] = entry["results"]
    return files


def results_files(pattern, folder=RESULTS):
    """The folder's files of results whose name matches, such as emulator/*, as read_json() takes them: of a set, each of its files."""
    for path in sorted(folder.glob(pattern)):
        if path.suffix == ".jsonl":
            yield from (f"{path}#{name}" for name in read_set(path))
        elif path.suffix == ".json":
            yield str(path)


def write_json(path, data):
    """Writes what read_json() reads: a file, or one of the files of a set, whose others stay."""
    file, is_of_set, name = str(path).partition(".jsonl#")
    if is_of_set:
        there = Path(f"{file}.jsonl")
        write_set(there, {**(read_set(there) if there.exists() else {}), name: data})
    else:
        write_whole(path, lines_of(data))


def write_set(path, files):
    """Writes what read_set() reads, in the order of the names."""
    write_whole(path, "".join(json.dumps({"name": name, "results": files[name]}, separators=(",", ":"), ensure_ascii=False,
                                         allow_nan=False) + "\n" for name in sorted(files)))


def read_results(path):
    """A results file of today's version; what is in it is checked by records.check()."""
    data = read_json(path)
    if not isinstance(data, dict) or "schema_version" not in data:
        raise Refused("is not a results file (no schema_version)")
    version = data["schema_version"]
    if isinstance(version, bool) or version != SCHEMA_VERSION:
        raise Refused(f"has schema version {json.dumps(version)}, but this checkout reads {SCHEMA_VERSION}")
    return data
