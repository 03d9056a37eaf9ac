"""What scripts and tests call is in the list of packages (scripts/lib/packages.sh), or every Debian has it."""

import ast
import json
import re
import shutil
import subprocess
import unittest

from support import PYTHONS, REQUIREMENTS, ROOT, SCRIPTS, VENV_PYTHON, ScriptTest, given, main, normal, pins

from fa_tools import tools
from test_commands import commands_in, needed

# Programs of packages that Debian calls essential, or that these and apt-get need.
ESSENTIAL = set("""apt-config apt-get awk basename bash cat chmod chown chroot cmp cp cut date diff dirname dpkg dpkg-query du
    env find grep gzip head id ln ls mkdir mkfifo mktemp mount mv nproc od readlink rm sed sh sleep sort stat tail tar tee timeout
    touch tr uname uniq unshare useradd wc xargs""".split())
# What is called only where it is, and why no list has it.
OPTIONAL = {
    **dict.fromkeys("nvcc ncu".split(), "CUDA's tools, far too large to install for a test"),
    "nvidia-smi": "comes with a GPU's driver",
    "ccache": "builds are faster with it",
    "clang-format-14": "another name of clang-format",
    **dict.fromkeys("chromium chromium-browser google-chrome".split(), "ensure_browser installs it: its name differs"),
    **dict.fromkeys("mypy ruff".split(), "ensure_tests_venv installs it"),
    "sudo": "asked for before it is used",
    "mmdebstrap": "scripts/fresh_machine.sh is for those who make releases, and says what it lacks",
    "ip": "scripts/fresh_machine.sh does without",
}
# What scripts/run.sh calls without a GPU, and what only scripts/test.sh --all does. All else belongs to the list `test`.
OF_RUN = re.compile(r"scripts/(run\.|fa$|commands/chart|fa_tools/(press/chart|product/bounds|tools)\.)|scripts/lib/(common|packages|backend|build|broken)\.sh|common/|[^/]*$")
OF_ALL = re.compile(r"tests/(browser/|gdb/|test_arm64|test_package|test_includes|test_notebook|test_compilers|test_cuda|test_nvcc|test_bench_nvcc)|"
                    r"scripts/(fa_tools/(laboratory/solutions|press/outputs)|commands/(format|bundle|docs)|fresh_machine)\.")

# Of --all, though a file of the default tests looks for them.
LATER = {"clang-format", "shellcheck"}

BUILTINS = set(""". : [ alias break builtin cd command compgen continue declare echo eval exec exit export false getopts hash
    help kill let local mapfile popd printf pushd pwd read readonly return set shift shopt source test times trap true
    type ulimit umask unset wait""".split())
BEFORE_A_COMMAND = {"if", "then", "else", "elif", "while", "until", "do", "!", "{", "}", "time", "fi", "done"}
# Words before a command, and how many more words (of no option) are between.
WRAPPERS = {"exec": 0, "command": 0, "env": 0, "have": 0, "as_root": 0, "sudo": 0, "nice": 0, "timeout": 0, "step": 2, "xargs": 0}


class Shell:
    """The commands of a text in bash: `words`, each as typed; a quoted word or one with an expansion is left out. It
    knows as much of the grammar as the scripts here use."""

    def __init__(self, text):
        text = re.sub(r"\\\n", " ", text)
        # What is in a here-document is no command.
        self.text = re.sub(r"(<<-?\s*(['\"]?)(\w+)\2[^\n]*\n)(?:.*?\n)?\3$", r"\1", text, flags=re.DOTALL | re.MULTILINE)
        self.at, self.words, self.functions = 0, [], set()
        while self.at < len(self.text):
            self.commands()

    def skip(self, end):
        """To behind `end`, through quotes and substitutions."""
        while self.at < len(self.text) and not self.text.startswith(end, self.at):
            self.part()
        self.at += len(end)

    def part(self):
        """One character, or all of a quotation or expansion. Whether it is plain."""
        rest, start = self.text[self.at : self.at + 3], self.at
        if rest.startswith("\\"):
            self.at += 2
        elif rest.startswith("'"):
            self.at = self.text.find("'", start + 1) % (len(self.text) + 1) + 1
        elif rest.startswith('"'):
            self.at += 1
            while self.at < len(self.text) and self.text[self.at] != '"':
                if self.text[self.at] in "'#":
                    self.at += 1
                else:
                    self.part()
            self.at += 1
        elif rest.startswith("$(("):
            self.at += 3
            self.skip("))")
        elif rest[:2] in ("$(", "<(", ">("):
            self.at += 2
            self.commands(")")
        elif rest.startswith("${"):
            self.at += 2
            while self.at < len(self.text) and self.text[self.at] != "}":
                if self.text[self.at] in "'#":
                    self.at += 1
                else:
                    self.part()
            self.at += 1
        else:
            self.at += 1
            return rest[0] != "$"
        return False

    def word(self):
        start, plain = self.at, True
        while self.at < len(self.text) and (self.text[self.at] not in " \t\n;&|()<>" or
                                            self.text[self.at : self.at + 2] in ("<(", ">(")):
            plain = self.part() and plain
        return self.text[start : self.at], plain

    def commands(self, end=None):
        expected, between, cases = True, 0, []  # cases: of each `case`, whether a pattern comes next
        while self.at < len(self.text):
            here, two = self.text[self.at], self.text[self.at : self.at + 2]
            if here in " \t":
                self.at += 1
            elif here == "#":
                self.at = self.text.find("\n", self.at) % (len(self.text) + 1)
            elif cases and cases[-1] and here not in "\n;":
                if re.match(r"esac\b", self.text[self.at :]):
                    self.at += 4
                    cases.pop()
                else:
                    self.skip(")")
                    cases[-1], expected, between = False, True, 0
            elif here == end:
                self.at += 1
                return
            elif two == "((":
                self.at += 2
                self.skip("))")
            elif two in ("<(", ">(") or here not in "\n;&|()<>":
                word, plain = self.word()
                if re.match(r"\w+(\[[^=]*\])?\+?=", word):
                    if word.endswith("=") and self.text.startswith("(", self.at):  # an array
                        self.at += 1
                        self.skip(")")
                elif not expected:
                    if word == "in" and cases and cases[-1] is None:
                        cases[-1] = True
                elif word.isdigit() and self.text.startswith((">", "<"), self.at):
                    pass  # a redirection
                elif self.text.startswith("()", self.at):
                    self.functions.add(word)
                    self.at += 2
                elif word == "[[":
                    self.skip("]]")
                elif word in ("for", "select", "case"):
                    expected = False
                    if word == "case":
                        cases.append(None)
                elif word == "esac" and cases:
                    cases.pop()
                elif word in BEFORE_A_COMMAND:
                    pass
                elif between or word.startswith("-") or word.isdigit():
                    between -= bool(between and not word.startswith("-"))
                elif word in WRAPPERS:
                    self.words.append(word)
                    between = WRAPPERS[word]
                else:
                    expected = False
                    if plain:
                        self.words.append(word)
            elif here in "<>":
                self.at += len(re.match(r"[<>]+&?\s*", self.text[self.at :])[0])
                if self.at < len(self.text) and self.text[self.at] not in "\n;|)":
                    self.word()
            else:
                if two in (";;", ";&") and cases:
                    cases[-1] = True
                self.at += 2 if two in (";;", "&&", "||", ";&") else 1
                expected, between = True, 0


def text_of(node):
    """A string of Python's source, with a word in place of what is formatted in; or None."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "$x" for part in node.values)
    return None


def called_by_python(path, text):
    """Programs that a Python file starts or looks for, and its texts for a shell."""
    is_test = path.startswith("tests/")
    for node in ast.walk(ast.parse(text)):
        words = None
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name == "which" or name == "need" and is_test:
                words = node.args[:1]
            elif name in ("run", "run_script", "Popen") and node.args:
                words = getattr(node.args[0], "elts", node.args)
            elif name == "map" and getattr(node.args[0], "attr", "") == "which":
                yield from (text_of(each) for each in node.args[1].elts)
        elif isinstance(node, ast.List) and not path.startswith("tests/scripts/"):  # there they are data
            if any(re.match("--?[a-zA-Z]", text_of(each) or "") for each in node.elts[1:]):
                words = node.elts  # a command that is put together before it is run
        words = [text_of(word) for word in words or ()]
        if words and words[0] and "/" not in words[0]:
            if " " in words[0]:
                yield from Shell(words[0]).words
            elif re.match(r"[a-z]", words[0]):
                yield words[0]
            if words[:2] == ["bash", "-c"] and len(words) > 2 and words[2]:
                shell = Shell(words[2])
                yield from set(shell.words) - shell.functions


def called_by_cmake(text):
    text = re.sub(r"#.*", "", text)
    yield from re.findall(r"find_program\(\s*\w+\s+(?:NAMES\s+)?([\w.+-]+)", text)
    yield from re.findall(r"execute_process\(\s*COMMAND\s+([\w.+-]+)", text)
    yield from re.findall(r"CMAKE_\w+_COMPILER\s+([\w.+-]+)\s*\)", text)
    if "Python3" in text:
        yield "python3"


def called_by_cpp(text):
    for literal in re.findall(r"(?:popen|shell|system)\(\s*\"((?:[^\"\\]|\\.)*)\"|command = \"((?:[^\"\\]|\\.)*)\"", text):
        line = re.sub(r"\$BIN/\S*", "cd", next(filter(None, literal), "")).replace('\\"', '"').replace("\\n", "\n")
        yield from Shell(line).words


def calls(root=ROOT):
    """{program: files that call it}."""
    found, functions = {}, set()

    def add(path, programs):
        for program in programs:
            found.setdefault(program, set()).add(path)

    for file in tools.repository_files(root):
        path = file.relative_to(root).as_posix()
        if not path.startswith(("scripts/", "tests/", "common/", "bench/", "kernels/", "docs/", ".ci/", "README", "CMake")):
            continue
        if file.suffix in (".svg", ".json", ".patch", ".png", ".html"):
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        if file.suffix == ".py" or text.startswith("#!/usr/bin/env python3"):
            add(path, called_by_python(path, text))
        elif file.suffix == ".sh" or text.startswith("#!/"):
            shell = Shell(text)
            functions |= shell.functions
            add(path, shell.words)
        elif file.suffix == ".cmake" or file.name == "CMakeLists.txt":
            add(path, called_by_cmake(text))
        elif file.suffix in (".cpp", ".h", ".cu"):
            add(path, called_by_cpp(text))
        elif file.suffix == ".md":
            for command in commands_in(text):
                if needed(command) is None:
                    add(f"tests/test_commands.py {path}", Shell(command.text).words)
    return {program: files for program, files in found.items()
            if program not in functions | BUILTINS and not program.startswith(("scripts/", "build/", "./", "bin/"))}


def lists():
    """{list: programs that it brings}, the lists before it included."""
    table = re.search(r"^readonly PACKAGES='\n(.*?)'$", (SCRIPTS / "lib" / "packages.sh").read_text(), re.DOTALL | re.MULTILINE)[1]
    found, brought = {}, set()
    for line in table.splitlines():
        name, _, *brings = line.split()
        found[name] = brought = brought | {each for each in brings if "/" not in each}
    return found


def not_in_a_list(found, brought):
    """What nobody would have installed: sentences."""
    for program, files in sorted(found.items()):
        for file in sorted(files):
            which = "run" if OF_RUN.match(file) else "all" if OF_ALL.match(file) or program in LATER else "test"
            if program not in ESSENTIAL | OPTIONAL.keys() | brought[which]:
                yield f"{file} calls {program}, which no package in the list `{which}` of scripts/lib/packages.sh brings"


SAMPLE = """#!/usr/bin/env bash
# comment
one --two "three $(four 'five;six' | seven)" > eight 2> nine && ten
list=(eleven "$(twelve)") fourteen="a b" fifteen <<'END'
sixteen
END
case $(seventeen) in
  eighteen | nineteen) twenty ;;
  -a) if ! [[ $a == $(b1) ]]; then exec b2; fi ;;
esac
for b3 in b4 b5; do timeout -k 5 10 b6 "${b7:-$(b8)}" "it's"; done
b9() { c1 <(c2) | xargs -L 1 c3; ((c4 > 2)) || return; } # c5
step "a b" "$LOG" c6 c7 \\
  c8
"$c9" d1; C=1 d2 &
"""


class Programs(ScriptTest):
    def test_every_program_that_is_called_is_in_a_list(self):
        self.assertEqual(list(not_in_a_list(calls(), lists())), [])

    def test_one_that_is_in_none_is_found(self):
        without = {name: brought - {"git", "ninja"} for name, brought in lists().items()}
        found = "\n".join(not_in_a_list(calls(), without))
        self.assertIn("tests/test_commands.py calls git, ", found)
        self.assertIn("tests/test_repository.py calls ninja, ", found)
        late = {"git": {"scripts/run.sh"}, "patch": {"tests/test_commands.py docs/x.md"}}
        self.assertEqual(len(list(not_in_a_list(late, lists()))), 2, "in a list, but not in the one of this file")

    def test_words_of_the_shell(self):
        shell = Shell(SAMPLE)
        self.assertEqual([word for word in shell.words if word not in BUILTINS | WRAPPERS.keys()],
                         "one four seven ten twelve fifteen seventeen twenty b1 b2 b6 b8 c1 c2 c3 c6 d2".split())
        self.assertEqual(shell.functions, {"b9"})

    def test_calls_of_python_cmake_and_cpp(self):
        python = ("import x\nx.run(['a1', '-b'])\nshutil.which('a2')\nneed('a3')\nrun('a4 b | a5')\ncommand = ['a6', '--c']\n"
                  "subprocess.Popen(['bash', '-c', f'a7 {b}; a8'])\nmap(shutil.which, ('a9', 'b1'))\nx.run([sys.executable])\n")
        self.assertEqual(sorted(set(called_by_python("tests/test_x.py", python))),
                         ["a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", "b1", "bash"])
        cmake = "find_program(X a1)\nexecute_process(COMMAND a2 -b)\n# find_program(X a3)\nset(CMAKE_CXX_COMPILER a4-g++)\n"
        self.assertEqual(list(called_by_cmake(cmake)), ["a1", "a2", "a4-g++"])
        self.assertEqual(list(called_by_cpp('popen("a1 -b | a2", "r"); shell("$BIN/x --y"); std::string command = "a3 \\"b\\"";')),
                         ["a1", "a2", "cd", "a3"])

    def test_a_package_is_here_if_all_that_it_brings_is(self):
        def found(package):
            script = f'. "{SCRIPTS}/lib/common.sh"; . "{SCRIPTS}/lib/packages.sh"; found {package}'
            return self.run_script("/bin/bash", "-c", script, env={"PATH": f"{self.folder}/bin", "CPATH": str(self.folder)})

        self.program("dirname", "exec /usr/bin/dirname \"$@\"\n")
        for name in ("addr2line", "c++filt", "readelf"):
            self.program(name, "")
        self.assertEqual(found("binutils").returncode, 1)
        self.program("strip", "")
        self.assertEqual(found("binutils").returncode, 0)
        self.assertEqual(found("no-such-package").returncode, 4)


class Walk(ScriptTest):
    @unittest.skipUnless(shutil.which("git"), "no git")
    def test_finds_what_git_lists(self):
        ignore = (ROOT / ".gitignore").read_text()
        names = [rule.replace("*", "x") for rule in ignore.splitlines() if rule and not rule.startswith("#")]
        names += ["kept.py", ".hidden/kept", "docs/build.md", "buildx/kept"]
        self.write(".gitignore", ignore)
        for name in names:
            for place in ("", "below/", "build/below/"):
                name = name.lstrip("/")
                self.write(f"{place}{name}file" if name.endswith("/") else f"{place}{name}", "x")
        subprocess.run(["git", "init", "-q"], cwd=self.folder, check=True, timeout=60)
        subprocess.run(["git", "add", "kept.py"], cwd=self.folder, check=True, timeout=60)
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=self.folder, check=True,
                                timeout=60, capture_output=True, text=True).stdout.split()
        walked = [path.relative_to(self.folder).as_posix() for path in tools.repository_files(self.folder)]
        self.assertEqual(sorted(walked), sorted(listed))
        self.assertIn("below/build/file", listed)
        self.assertNotIn("build/file", listed)


class Pins(ScriptTest):
    """What is pinned suits the oldest Python promised."""

    def test_what_is_installed_suits_every_python_promised(self):
        code = ("import sys\nfrom importlib.metadata import distributions\n"
                "from pip._vendor.packaging.specifiers import SpecifierSet\n"
                "for each in distributions():\n"
                "    needs = each.metadata['Requires-Python']\n"
                "    bad = [version for version in sys.argv[1:] if needs and version not in SpecifierSet(needs)]\n"
                "    print(each.metadata['Name'], each.version, *bad)\n")
        looked_at = 0
        for requirements, folder in REQUIREMENTS.items():
            stamp = ROOT / folder / "complete"
            if not stamp.exists() or not stamp.read_text().endswith((ROOT / requirements).read_text()):
                continue  # none, or made from other pins
            done = self.run_script(ROOT / folder / "bin" / "python", "-c", code, *PYTHONS.values())
            self.assertEqual(done.returncode, 0, done.stderr)
            installed = {normal(line.split()[0]): line.split()[1:] for line in done.stdout.splitlines()}
            for name, version in pins(requirements).items():
                self.assertEqual(installed[name], [version], f"{requirements}: {name} does not suit every Python of {PYTHONS}")
                looked_at += 1
        if not looked_at:
            self.skipTest("no Python environment")


UNREACHABLE = ("Retrying (", "Connection", "Temporary failure", "timed out", "ProxyError")


@unittest.skipUnless(VENV_PYTHON.exists(), "no .venv (scripts/test.sh installs it if the network is there)")
class Index(ScriptTest):
    """The Python index has what is pinned, for the oldest Python promised, too."""

    def resolve(self, requirements, python, *options):
        """What pip would install on another Python; a string that says why it could not."""
        report = self.folder / "report.json"
        done = self.run_script(VENV_PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--dry-run",
                               "--ignore-installed", "--only-binary=:all:", "--retries", "1", "--timeout", "20",
                               "--python-version", python, "--target", self.folder / "none", "--report", report, *options,
                               "--requirement", requirements)
        if done.returncode and any(words in done.stderr for words in UNREACHABLE):
            self.skipTest("the Python package index cannot be reached")
        if done.returncode:
            return done.stderr
        found = (each["metadata"] for each in json.loads(report.read_text())["install"])
        return {normal(each["name"]): each["version"] for each in found}

    def test_each_file_can_be_installed(self):
        for requirements in REQUIREMENTS:
            for i, python in enumerate(PYTHONS.values()):
                with self.subTest(requirements=requirements, python=python):
                    # Of the oldest Python with what packages need, which must be pinned, too.
                    found = self.resolve(ROOT / requirements, python, *(["--no-deps"] if i else []))
                    self.assertEqual(found, pins(requirements))

    def test_what_is_not_there_is_seen(self):
        newer = self.write("newer.txt", "pymdown-extensions==13.1\n")  # needs Python 3.11.5
        self.assertIn("requires a different python version", self.resolve(newer, PYTHONS["Debian 12"], "--no-deps").lower()
                      .replace("require a different", "requires a different"))
        none = self.write("none.txt", "jsonschema==4.25.99\n")
        self.assertIn("No matching distribution", self.resolve(none, PYTHONS["Debian 13"], "--no-deps"))


if not given("--index"):
    del Index


if __name__ == "__main__":
    main()
