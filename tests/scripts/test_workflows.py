"""The workflows and the container call scripts, options and files that are there, and may do no more than they need."""

import json
import re
import shlex
import shutil
import unittest

from support import ROOT, ScriptTest, main


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CONTAINER = ROOT / ".devcontainer"


def read(path):
    return path.read_text(encoding="utf-8")


def commands_of(path):
    """The lines that a workflow, the Dockerfile or devcontainer.json gives to a shell."""
    text = read(path)
    if path.suffix == ".yml":
        return re.findall(r"^ +(?:- )?run: (.*)$", text, re.MULTILINE)
    if path.suffix == ".json":
        return [value for name, value in json.loads(text).items() if name.endswith("Command")]
    return re.findall(r"^RUN (.*)$", text.replace("\\\n", " "), re.MULTILINE)


def copied():
    """What the Dockerfile copies out of the checkout: [(files, folder)]."""
    return [(words[:-1], words[-1]) for words in map(str.split, re.findall(r"^COPY (.*)$", read(CONTAINER / "Dockerfile"), re.MULTILINE))]


CALLERS = [*WORKFLOWS, CONTAINER / "Dockerfile", CONTAINER / "devcontainer.json"]


class Commands(ScriptTest):
    def test_scripts_and_their_options_are_there(self):
        for path in CALLERS:
            commands = commands_of(path)
            self.assertTrue(commands, f"{path.name} runs nothing that this test can read")
            for command in commands:
                self.assertFalse(command.startswith(("|", ">")), f"{path.name}: one line per command, please")
                for part in re.split(r"&&|\|\||[;|]", command):
                    words = shlex.split(part)
                    for i, word in enumerate(words):
                        if not re.match(r"(scripts|tests|\.ci)/", word):
                            continue
                        self.assertTrue((ROOT / word).is_file(), f"{path.name} calls {word}, which is not there")
                        command = words[i + 1 : i + 2] if word == "scripts/fa" else []
                        said = self.run_script(ROOT / word, *command, "--help").stdout
                        for option in words[i + 1 + len(command) :]:
                            self.assertRegex(said, rf"(?<!\S){re.escape(option)}\b", f"{path.name} calls {word} with {option}")

    def test_readmes_commands_are_run(self):
        said = commands_of(ROOT / ".github" / "workflows" / "ci.yml")
        for which in ("run", "test"):
            (command,) = re.findall(rf"<!-- command:{which} -->\s*```bash\n(.*)\n```", read(ROOT / "README.md"))
            self.assertEqual(command, f"scripts/{which}.sh")
            self.assertIn(command, said)


class Workflows(unittest.TestCase):
    def test_actions_are_githubs_own_with_a_version(self):
        for path in WORKFLOWS:
            for action in re.findall(r"uses: (.*)", read(path)):
                self.assertRegex(action, r"^actions/[\w-]+@v\d+$", path.name)

    def test_nothing_may_write_that_need_not(self):
        for path in WORKFLOWS:
            text = read(path)
            self.assertIn("\npermissions:\n  contents: read\n\n", text, path.name)
            self.assertEqual(re.findall(r"(\S+): write", text), ["pages", "id-token"] if path.name == "site.yml" else [])


class Container(ScriptTest):
    def test_what_is_copied_is_there_and_enough(self):
        for patterns, folder in copied():
            for pattern in patterns:
                files = list(ROOT.glob(pattern))
                self.assertTrue(files, f"the Dockerfile copies {pattern}, which is not there")
                for file in files:
                    (self.folder / folder).mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, self.folder / folder)
        # The script reads its neighbours before it looks at its arguments.
        self.run_script(self.folder / "scripts/test.sh", "--help", code=0)


class Dependabot(unittest.TestCase):
    def test_looks_where_something_is_pinned(self):
        text = read(ROOT / ".github/dependabot.yml")
        self.assertIn("package-ecosystem: github-actions\n    directory: /\n", text)
        folders = re.search(r"package-ecosystem: pip\n    directories: \[(.*)\]", text)[1].split(", ")
        pinned = {f"/{path.parent.relative_to(ROOT)}" for path in ROOT.glob("*/*requirements.txt")}
        self.assertEqual(set(folders), pinned)


class Version(unittest.TestCase):
    """CMakeLists.txt says it. What a compiler or a reader must be able to read without CMake repeats it."""

    def test_is_one(self):
        cmake = read(ROOT / "CMakeLists.txt")
        version = cmake.split("project(fast_attention VERSION ")[1].split()[0]
        said = re.search(r'^\[tool\.scikit-build\.metadata\.version\]\n.*\ninput = "CMakeLists.txt"\nregex = \'(.*)\'$',
                         read(ROOT / "pyproject.toml"), re.MULTILINE)[1]
        self.assertEqual(re.search(said, cmake, re.MULTILINE)["value"], version)
        for name, pattern in (("common/api/fa.h", r'^#define FA_VERSION "([^"]*)"'), ("CITATION.cff", "^version: (.*)$")):
            self.assertEqual(re.findall(pattern, read(ROOT / name), re.MULTILINE), [version], name)

    def test_its_date_is_the_changelogs(self):
        version, date = re.search(r"^## (\d\S*), (\S+)$", read(ROOT / "CHANGELOG.md"), re.MULTILINE).groups()
        citation = read(ROOT / "CITATION.cff")
        self.assertIn(f"\nversion: {version}\n", citation)
        self.assertIn(f"\ndate-released: {date}\n", citation)


if __name__ == "__main__":
    main()
