"""The Python index has what is pinned, for the oldest Python promised, too. Needs the network."""

import json
import unittest

from support import PYTHONS, REQUIREMENTS, ROOT, VENV_PYTHON, ScriptTest, main, normal, pins

UNREACHABLE = ("Retrying (", "Connection", "Temporary failure", "timed out", "ProxyError")


@unittest.skipUnless(VENV_PYTHON.exists(), "no .venv (scripts/test.sh installs it if the network is there)")
class Index(ScriptTest):
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


if __name__ == "__main__":
    main()
