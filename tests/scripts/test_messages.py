"""Every script explains itself, and says in one sentence what was wrong with how it was called."""

import os
import re
import runpy
import unittest

from support import ROOT, SCRIPTS, ScriptTest, main

ALL = sorted(path for path in SCRIPTS.iterdir() if path.suffix in (".sh", ".py"))
COMMANDS = runpy.run_path(str(SCRIPTS / "fa"), run_name="loaded")["COMMANDS"]


class Help(ScriptTest):
    def test_every_script_has_help_with_an_example(self):
        self.assertEqual([path.name for path in ALL], ["fresh_machine.sh", "run.sh", "test.sh"])
        for script in ALL:
            with self.subTest(script=script.name):
                self.assertTrue(os.access(script, os.X_OK), "not executable")
                done = self.run_script(script, "--help")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stdout.lower(), r"examples?:\n\s+\S*(sudo )?scripts/" + script.stem)
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

    def test_the_overview_is_one_screen(self):
        for arguments in ((), ("--help",), ("-h",)):
            done = self.run_script(SCRIPTS / "fa", *arguments)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            lines = done.stdout.splitlines()
            self.assertLessEqual(len(lines), 48)
            self.assertLessEqual(max(map(len, lines)), 80)
            for name in COMMANDS:
                self.assertRegex(done.stdout, rf"(?m)^  {name} ")

    def test_nothing_else_is_executable(self):
        executable = {path.relative_to(SCRIPTS).as_posix() for path in SCRIPTS.rglob("*")
                      if path.is_file() and os.access(path, os.X_OK) and "__pycache__" not in path.parts}
        self.assertEqual(executable, {"fa", "run.sh", "test.sh", "fresh_machine.sh"})


class BadArguments(ScriptTest):
    def test_unknown_command(self):
        self.assert_one_sentence(self.run_script(SCRIPTS / "fa", "brench"), "'brench'", "scripts/fa --help")

    def test_unknown_back_end(self):
        done = self.run_script(SCRIPTS / "run.sh", "--backend", "tpu")
        self.assert_one_sentence(done, "--backend", "auto, cuda, emulator", "tpu")

    def test_unknown_toolkit(self):
        self.assert_one_sentence(self.run_script(SCRIPTS / "run.sh", "--toolkit=mine"), "--toolkit", "wheels", "mine")

    def test_option_without_value(self):
        for option in ("--backend", "--toolkit", "--json"):
            self.assert_one_sentence(self.run_script(SCRIPTS / "run.sh", option), option)

    def test_unknown_arguments(self):
        self.assert_one_sentence(self.run_script(SCRIPTS / "fresh_machine.sh", "--nonsense"), "--nonsense", "--help")
        for command in COMMANDS:
            with self.subTest(command=command):
                self.assert_one_sentence(self.run_script(SCRIPTS / "fa", command, "--nonsense"))

    def test_bad_architecture(self):
        self.assert_one_sentence(self.run_script(SCRIPTS / "fa", "bundle", "--arch", "hopper"), "hopper", "90a")

    def test_chart_without_file(self):
        self.assert_one_sentence(self.run_script(SCRIPTS / "fa", "chart"), "scripts/fa chart results/")

    def test_missing_markdown(self):
        for command in ("sync", "links"):
            self.assert_one_sentence(self.run_script(SCRIPTS / "fa", command, self.folder / "none.md"), "none.md")

    def test_fresh_machine_knows_its_users_and_suites(self):
        for option, value, known in ("--user", "guest", "sudo none"), ("--suite", "potato", "bookworm trixie"), ("--only", "x", "run test"):
            self.assert_one_sentence(self.run_script(SCRIPTS / "fresh_machine.sh", option, value), f"{option} takes", value, known)

    def test_fresh_machine_wants_the_readmes_commands(self):
        checkout = self.checkout()
        (checkout / "README.md").write_text("no commands here\n")
        self.assert_one_sentence(self.run_script(checkout / "scripts" / "fresh_machine.sh"), "command:run")

    def test_unwritable_results_folder(self):
        file = self.write("file", "")
        done = self.run_script(
            "bash", "-c", f'. "{SCRIPTS}/lib/common.sh"; . "{SCRIPTS}/lib/packages.sh"; '
            f'mkdir -p "{file}/results" 2>/dev/null || die "$EXIT_USAGE" "cannot create the results folder"'
        )
        self.assert_one_sentence(done, "results folder")


class ReadmeCommands(ScriptTest):
    @unittest.skipUnless((ROOT / "README.md").exists(), "there is no README.md yet")
    def test_the_two_commands_are_marked(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        for name, command in (("run", "scripts/run.sh"), ("test", "scripts/test.sh")):
            marker = f"<!-- command:{name} -->"
            self.assertEqual(text.count(marker), 1, f"README.md needs {marker} once")
            self.assertRegex(text.split(marker)[1], r"^\s*```\w*\n" + command + r"\n```")


if __name__ == "__main__":
    main()
