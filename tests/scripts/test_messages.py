"""Every script explains itself, and says in one sentence what was wrong with how it was called."""

import os
import re
import unittest

from support import ROOT, SCRIPTS, ScriptTest, main

ALL = sorted(path for path in SCRIPTS.iterdir() if path.suffix in (".sh", ".py"))


class Help(ScriptTest):
    def test_every_script_has_help_with_an_example(self):
        self.assertGreater(len(ALL), 8)
        for script in ALL:
            with self.subTest(script=script.name):
                self.assertTrue(os.access(script, os.X_OK), "not executable")
                done = self.run_script(script, "--help")
                self.assertEqual(done.returncode, 0, done.stderr)
                usage = re.match(r"usage: scripts/(\w+)\.sh", done.stdout)  # a program that a shell script runs
                name = usage[1] if usage else script.stem
                self.assertRegex(done.stdout.lower(), r"examples?:\n\s+\S*(sudo )?scripts/" + name)
                self.assertEqual(done.stderr, "")


class BadArguments(ScriptTest):
    def test_unknown_back_end(self):
        done = self.run_script(SCRIPTS / "run.sh", "--backend", "tpu")
        self.assert_one_sentence(done, "--backend", "auto, cuda, emulator", "tpu")

    def test_unknown_toolkit(self):
        self.assert_one_sentence(self.run_script(SCRIPTS / "run.sh", "--toolkit=mine"), "--toolkit", "wheels", "mine")

    def test_option_without_value(self):
        for option in ("--backend", "--toolkit", "--json"):
            self.assert_one_sentence(self.run_script(SCRIPTS / "run.sh", option), option)

    def test_unknown_arguments(self):
        for script in ("toolkit.sh", "bundle.sh", "fresh_machine.sh", "format.sh"):
            with self.subTest(script=script):
                self.assert_one_sentence(self.run_script(SCRIPTS / script, "--nonsense"), "--nonsense", "--help")

    def test_bad_architecture(self):
        self.assert_one_sentence(self.run_script(SCRIPTS / "bundle.sh", "--arch", "hopper"), "hopper", "90a")

    def test_chart_without_file(self):
        self.assert_one_sentence(self.run_script(SCRIPTS / "chart.sh"), "scripts/chart.sh results/")

    def test_missing_markdown(self):
        for script in ("sync_docs.py", "check_links.py"):
            self.assert_one_sentence(self.run_script(SCRIPTS / script, self.folder / "none.md"), "none.md")

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
