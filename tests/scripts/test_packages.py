"""What is pinned of Python's packages, and the files that belong to the sources."""

import json
import shutil
import subprocess
import unittest

from support import PYTHONS, REQUIREMENTS, ROOT, VENV_PYTHON, ScriptTest, given, main, normal, pins

from fa_tools import tools


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
