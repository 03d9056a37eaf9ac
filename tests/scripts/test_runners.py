"""The scripts themselves. What runs the tests: the commands of a document (tests/test_commands.py), a tool that does not end
(tests/tool_test.py), and CTest's skipped tests with their reasons (scripts/lib/run_ctest.py). And every script explains itself,
and says in one sentence what was wrong with how it was called."""

import os
import re
import runpy
import sys

from support import ROOT, SCRIPTS, ScriptTest, main

from test_commands import commands_in, needed, with_linked

DOCUMENT = """# Title
```bash
cmake --preset emulator   # configures
cmake --build --preset emulator \\
  --target broken
# nothing

```
`scripts/run.sh 07` and `scripts/run.sh` and `scripts/run.sh --broken NAME` and `cuobjdump -sass
build/cuda/bin/07`, <!-- needs: hours -->`ctest -L long`, `acc_s[i]`.

<!-- needs: your own files -->
<!-- another -->
```bash
scripts/fa compare a.json b.json
```
```text
$ scripts/fa inspect 08
8 instructions
```
   ```text
   no command
   ```
"""


class Found(ScriptTest):
    def test_commands_and_what_they_need(self):
        found = [(command.line, command.text, command.shown, needed(command)) for command in commands_in(DOCUMENT)]
        self.assertEqual(found, [
            (2, "cmake --preset emulator   # configures", None, None),
            (2, "cmake --build --preset emulator    --target broken", None, None),
            (9, "scripts/run.sh 07", None, None),
            (9, "cuobjdump -sass build/cuda/bin/07", None, "gpu"),
            (10, "ctest -L long", None, "hours"),
            (14, "scripts/fa compare a.json b.json", None, "your own files"),
            (17, "scripts/fa inspect 08", "8 instructions\n", "nvcc"),
        ])

    def test_a_link_to_how_a_program_is_built_stands_for_its_commands(self):
        (self.folder / "bugs.md").write_text("# Bugs\n```bash\ncmake --preset cuda\n```\n## The program `a`\n```bash\n"
                                             "cmake --preset emulator\ncmake --build b --target a\n```\n## More\n`ctest -R a`\n")
        text = with_linked("Text.\n\nOf [`a`](bugs.md#the-program-a), [b](bugs.md#more).\n\n```text\n$ build/emulator/bin/a 1\n```\n", self.folder)
        self.assertEqual([(command.line, command.text) for command in commands_in(text)],
                         [(3, "cmake --preset emulator"), (3, "cmake --build b --target a"), (5, "build/emulator/bin/a 1")])


class Followed(ScriptTest):
    def follow(self, text):
        (self.folder / "bin").mkdir(exist_ok=True)
        document = self.folder / "page.md"
        document.write_text(text)
        return self.run_script(sys.executable, ROOT / "tests" / "test_commands.py", document, self.folder)

    def test_what_fails_is_told(self):
        done = self.follow("""```text
$ scripts/fa links --help | head -n 1
another line
```
```bash
build/emulator/bin/07_cp_async
cmake --build --preset emulator --target 07_cp_async
```
<!-- needs: gpu -->
```bash
scripts/fa bench --protocol quick --no-such-option
scripts/none.sh
scripts/fa compare bench/results/none.json
build/cuda/bin/99_none
```
""")
        self.assertEqual(done.returncode, 1)
        for words in ("the document shows\nanother line\nand it prints\nusage: ", "07_cp_async: No such file or directory",
                      "build/emulator has not been configured", "scripts/fa bench --help does not know --no-such-option",
                      "scripts/none.sh is not a program", "there is no bench/results/none.json",
                      "nothing builds build/cuda/bin/99_none", "7 commands, 3 run, 7 failed"):
            self.assertIn(words, done.stdout)


class Tools(ScriptTest):
    """tests/tool_test.py: what the tests do with a tool that does not answer, or says that it cannot."""

    def test_what_does_not_end_is_ended_with_all_that_it_started(self):
        code = "from tool_test import run; run('sh', '-c', 'echo started; sleep 100 & wait', timeout=1)"
        done = self.run_script(sys.executable, "-c", code, env={"PYTHONPATH": str(ROOT / "tests")}, code=1)
        self.assertRegex(done.stdout, "^sh -c .* did not end within 1 s:\nstarted\n$")

    def test_gdb_that_cannot_write_registers(self):
        self.program("gdb", "echo \"Couldn't write extended state status: Bad address.\"\n")
        done = self.run_script(sys.executable, "-B", ROOT / "tests" / "gdb" / "test_gdb.py", self.folder,
                               env={"PATH": f"{self.folder}/bin:/usr/bin:/bin"})
        self.assertEqual((done.returncode, done.stdout), (77, "skipped: this gdb cannot write the registers of this CPU\n"))


GTEST = "a.cpp:3: Skipped\\nneeds a GPU\\n\\n[  SKIPPED ] Suite.Test (0 ms)"
TESTS = {
    "fine": ("echo right", ""),
    "parts": ("echo 'test_a (T.test_a) ... ok'; echo \"test_b (T.test_b) ... skipped 'no gold here'\"", ""),
    "whole": ("echo 'skipped: no silver here'; exit 77", "SKIP_RETURN_CODE 77"),
    "gpu": (f"printf '{GTEST}'", r'SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]"'),
}


class Skipped(ScriptTest):
    def ctest(self, *names, ci=False):
        lines = []
        for name in names:
            command, properties = TESTS.get(name, ("exit 1", ""))
            self.program(name, command + "\n")
            lines.append(f'add_test({name} "{self.folder}/bin/{name}")\n')
            if properties:
                lines.append(f"set_tests_properties({name} PROPERTIES {properties})\n")
        self.write("CTestTestfile.cmake", "".join(lines))
        return self.run_script(sys.executable, SCRIPTS / "lib" / "run_ctest.py", "ctest", "--test-dir", self.folder,
                               env={"CI": "true" if ci else "false"})

    def test_reasons_come_before_the_summary(self):
        done = self.ctest("fine", "parts", "whole", "gpu")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        before, told, summary = done.stdout.partition("Not tested here:\n")
        self.assertIn("Test #1: fine", before)
        self.assertNotIn("100% tests passed", before)
        for line in ("  1 because no gold here: parts of parts\n", "  1 because no silver here: whole\n",
                     "  1 because needs a GPU: gpu\n"):
            self.assertIn(line, summary)
        self.assertRegex(summary, r"\n100% tests passed(, 0 tests failed)? out of [24]\n(.|\n)*Total Test time")

    def test_in_ci_only_what_no_installation_cures_may_be_skipped(self):
        done = self.ctest("fine", "gpu", ci=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        for name, reason in (("parts", "no gold here"), ("whole", "no silver here")):
            done = self.ctest("fine", name, ci=True)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(f"error: in CI nothing may be skipped because {reason}", done.stdout)

    def test_a_failure_is_a_failure(self):
        done = self.ctest("fine", "bad", ci=True)
        self.assertEqual(done.returncode, 8, done.stdout)
        self.assertIn("50% tests passed", done.stdout)


# ---- what scripts say ---------------------------------------------------------------------------------------------------

ALL = sorted(path for path in SCRIPTS.iterdir() if path.suffix in (".sh", ".py"))
COMMANDS = runpy.run_path(str(SCRIPTS / "fa"), run_name="loaded")["COMMANDS"]


class Help(ScriptTest):
    def test_every_script_has_help_with_an_example(self):
        self.assertEqual([path.name for path in ALL], ["fresh_machine.sh", "run.sh", "test.sh"])
        for script in ALL:
            with self.subTest(script=script.name):
                self.assertTrue(os.access(script, os.X_OK), "not executable")
                done = self.run_script(script, "--help")
                self.assertLessEqual(max(map(len, done.stdout.splitlines())), 80)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stdout.lower(), r"examples?:\n\s+\S*(sudo )?scripts/" + script.stem)
                self.assertRegex(done.stdout.lower(), r"exit\s+code")
                self.assertEqual(done.stderr, "")

    def test_every_command_has_help_with_an_example(self):
        self.assertGreater(len(COMMANDS), 20)
        for name in COMMANDS:
            with self.subTest(command=name):
                done = self.run_script(SCRIPTS / "fa", name, "--help")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                usages = re.findall(r"(?mi)^usage: .*", done.stdout)
                self.assertEqual(len(usages), len(set(usages)), "the help is printed twice")
                asked = {"run": "run.sh", "bug": "run.sh"}.get(name, f"fa {name}")
                self.assertRegex(done.stdout.lower(), r"examples?:\n\s+(\S+=\S+ )*scripts/" + asked)
                self.assertNotRegex(done.stdout, r"(?<!\S)--(to|into|out|gpu|kernels)\b")  # one name: -o, --output, --machine
                self.assertEqual("--output" in done.stdout, bool(re.search(r"-o( \w+)?, --output \w+", done.stdout)))
                self.assertRegex(done.stdout.lower(), r"exit\s+code")

    def test_the_tab_key(self):
        self.write("argcomplete.py", "import os, sys\ndef autocomplete(parser, **_):\n    if parser.prog != 'fa': parser.parse_known_args(['x'])\n"
                   "    found = [each for action in parser._actions for each in (*action.option_strings, *(action.choices or ()))]\n"
                   "    sys.exit(print(os.environ['_ARGCOMPLETE'], *found))\n")

        def asked(line, python_path=f"{self.folder}:{SCRIPTS}"):
            return self.run_script(SCRIPTS / "fa", code=0, env={"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)),
                                                                "PYTHONPATH": python_path}).stdout.split()

        self.assertLessEqual({"1", "--version", *COMMANDS}, {*asked("scripts/fa co")})
        self.assertLessEqual({"2", "--schedule", "random"}, {*asked("scripts/fa emulate --sch")})
        self.assertIn("--hint", asked("scripts/fa try "))
        for line in ("scripts/fa run 0", "scripts/fa xyz "):
            self.assertEqual(asked(line), [])
        self.write("none/argcomplete.py", "raise ImportError")
        self.assertEqual(asked("scripts/fa co", f"{self.folder}/none:{SCRIPTS}"), [])

    def test_options_of_1_0_0_are_still_taken(self):
        for name, earlier, today in (("intensity", ("--gpu", "A100"), ("--machine", "A100")), ("measure", ("--list", "--to", "x"), ("--list", "-o", "x"))):
            old, new = (self.run_script(SCRIPTS / "fa", name, *options) for options in (earlier, today))
            self.assertEqual((old.returncode, old.stdout, old.stderr), (0, new.stdout, ""))
        self.assert_one_sentence(self.run_script(SCRIPTS / "fa", "timeline", self.folder / "none.json", "--out", "x"), "none.json")

    def test_help_is_no_wider_than_100_columns(self):
        done = self.run_script(SCRIPTS / "fa", "emulate", "--help", env={"COLUMNS": "200"})
        self.assertIn(max(map(len, done.stdout.splitlines())), range(90, 101))

    def test_the_overview_is_one_screen(self):
        for arguments in ((), ("--help",), ("-h",), ("--all",), ("--help", "--all")):
            done = self.run_script(SCRIPTS / "fa", *arguments)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            lines = done.stdout.splitlines()
            self.assertLessEqual(len(lines), 48)
            self.assertLessEqual(max(map(len, lines)), 80)
            for name in COMMANDS if "--all" in arguments else ("run", "try", "compare"):
                self.assertRegex(done.stdout, rf"(?m)^  {name} ")
            self.assertEqual(len(re.findall(r"(?m)^  \w+ ", done.stdout)), len(COMMANDS) if "--all" in arguments else 11)
        version = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8").split("project(fast_attention VERSION ")[1].split()[0]
        for script, option in (("fa", "--version"), ("fa", "-V"), ("run.sh", "--version"), ("test.sh", "--version")):
            self.assertEqual(self.run_script(SCRIPTS / script, option).stdout, f"fast-attention {version}\n")

    def test_nothing_else_is_executable(self):
        executable = {path.relative_to(SCRIPTS).as_posix() for path in SCRIPTS.rglob("*")
                      if path.is_file() and os.access(path, os.X_OK) and "__pycache__" not in path.parts}
        self.assertEqual(executable, {"fa", "run.sh", "test.sh", "fresh_machine.sh"})


class Busy(ScriptTest):
    def test_what_takes_long_says_so_once_and_not_in_its_output(self):
        page = self.write("page.md", "```text\n$ scripts/fa softmax\n```\n" + "[a page](page.md)\n" * 2000)
        for says, *words in (("checking links and formulas ...\n", "links", page), ("reading the prose ...\n", "prose", page),
                             ("comparing the documents with their sources ...\n", "sync", "--check", page),
                             ("running the commands whose output is shown ...\n", "outputs", "--check", page)):
            with self.subTest(words):
                soon, late = (self.run_script(SCRIPTS / "fa", *words, env={"FA_BUSY_AFTER": after}) for after in ("0", "600"))
                self.assertEqual((soon.stderr.count(says), late.stderr.count(says), soon.stdout), (1, 0, late.stdout), soon.stderr)


class BadArguments(ScriptTest):
    def test_interrupted_while_a_module_is_loaded(self):
        scripts = self.checkout() / "scripts"
        for module in ("documents/links.py", "tools.py"):
            (scripts / "fa_tools" / module).write_text("import os\nos.kill(os.getpid(), 2)\nimport time\ntime.sleep(9)\n")
            done = self.run_script(scripts / "fa", "links", env={"PYTHONPATH": ""})
            self.assertEqual((done.returncode, done.stderr), (130, "\nstopped\n"))

    def test_one_sentence(self):
        for words, *said in (
                ("fa brench", "'brench'", "did you mean bench?"), ("fa xyz", "'xyz'", "scripts/fa --help --all"), ("run.sh --backend tpu", "--backend", "auto, cuda, emulator", "tpu"),
                ("run.sh --toolkit=mine", "--toolkit", "wheels", "mine"),
                *((f"run.sh {option}", option) for option in ("--backend", "--toolkit", "--json")),
                *((f"run.sh {option}", "--broken needs the name of a bug") for option in ("--broken", "--broken= 99")),
                ("fa interactive --output /dev/null/x", "cannot make the folder /dev/null/x"),
                *((f"{script.name} --nonsense", "--nonsense", "--help") for script in ALL),
                *((f"fa {command} --nonsense", "") for command in COMMANDS),
                *((f"fa bundle --arch {arch}", f"from 75 on, such as '80;90a', not '{arch}'") for arch in ("hopper", "12", "90a;1200")),
                *((f"test.sh {words} 02", "'02' is no option", "-R '02' runs") for words in ("", "--all -R x", "--timeout=5", "-V")),
                ("fa solutions --preset nosuch", "there is no preset nosuch; CMakePresets.json has emulator, "),
                ("fa try --folder README.md", "README.md is a file and no folder"),
                ("fa try 02_softmax --hint --solution", "not allowed with argument --hint"),
                *((f"fa chart --name {name} bench/results/none.json", f"not '{name}'; -o") for name in ("../x", "..", ".")),
                ("fa chart", "scripts/fa chart results/"),
                ("fa sync none.md", "none.md"), ("fa links none.md", "none.md"),
                ("fa prose docs/no.md", "docs/no.md cannot be read (no such file or directory)"),
                ("fresh_machine.sh --user guest", "--user takes", "guest", "sudo, none"),
                ("fresh_machine.sh --suite potato", "--suite takes", "potato", "bookworm, trixie"),
                ("fresh_machine.sh --only x", "--only takes", "x", "run, test")):
            with self.subTest(words):
                script, *arguments = words.split()
                self.assert_one_sentence(self.run_script(SCRIPTS / script, *arguments, cwd=ROOT), *said)

    def test_only_on_linux(self):
        for script in ("run.sh", "test.sh"):
            done = self.run_script(SCRIPTS / script, "--help", env={"OSTYPE": "darwin23"})
            self.assert_one_sentence(done, "needs Linux, and here is darwin23: .devcontainer", code=4)

    def test_an_old_bash_is_told(self):
        common = self.checkout() / "scripts/lib/common.sh"
        common.write_text(common.read_text().replace(">= 404", ">= 9904"))
        self.assert_one_sentence(self.run_script(common.parent.parent / "run.sh", "--help"), "needs bash 4.4 or newer, and here is", code=4)

    def test_fresh_machine_wants_the_readmes_commands(self):
        checkout = self.checkout()
        (checkout / "README.md").write_text("no commands here\n")
        self.assert_one_sentence(self.run_script(checkout / "scripts" / "fresh_machine.sh"), "command:run")


if __name__ == "__main__":
    main()
