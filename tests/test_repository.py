"""What holds for the sources themselves: names, rules of kernel files, small steps between neighbours.

Usage: test_repository.py BUILD_TREE
"""

import ast
import difflib
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tool_test import ROOT

from fa_tools.sources import fact, includes, registered

BUILD = Path(sys.argv.pop())
SCRIPTS = ROOT / "scripts"
MODULES = sorted(SCRIPTS.rglob("*.py"))
KERNELS = sorted((ROOT / "kernels").glob("[0-9][0-9]_*.cu"))
NEXT = sorted((ROOT / "kernels/next").glob("*"))  # what becomes a numbered kernel keeps the rules already

MORE_LINES = 50  # that a kernel may have than the one before, where that is near the limit
MARKER = re.compile(r"\s*// \[/?[\w-]+\]")  # where a chapter's excerpt begins or ends: not for the reader
# A kernel's own table of tile sizes (10_tuning.h) is all that it may have beside its file.
INCLUDES = re.compile(r"kernels/\d\d_tuning\.h|common/(launch|layout|ptx)/\w+\.h")


def code(path):
    """The lines without what follows //."""
    return [line.split("//")[0] for line in path.read_text().splitlines()]


class Kernels(unittest.TestCase):
    def test_every_file_registers_its_own_name_once(self):
        for path in KERNELS + NEXT:
            with self.subTest(path.name):
                self.assertEqual(path.read_text().count(" registration{"), 1)
                self.assertEqual(registered(path).name, path.stem)
                self.assertIn(f"namespace fa::k{path.name[:2]} {{", path.read_text())

    def test_programs_list_what_is_there(self):
        out = subprocess.run([BUILD / "bin/attention", "--list"], capture_output=True, text=True, timeout=60).stdout
        self.assertEqual(out.split(), [path.stem for path in KERNELS])

    def test_rules(self):
        forbidden = {
            r"\basm\b": "raw asm belongs into common/ptx",
            r"<<<": "kernels are started by launch()",
            r"\bextern\b": "shared memory is the kernel's SharedStorage",
            r"__shared__": "shared memory is the kernel's SharedStorage",
            r"^\s*#\s*(if|ifdef|ifndef|define)\b": "one source for all compilers, without macros",
        }
        for path in KERNELS + NEXT:
            for number, line in enumerate(code(path), 1):
                for pattern, reason in forbidden.items():
                    self.assertIsNone(re.search(pattern, line), f"{path.name}:{number}: {reason}")

    def test_includes(self):
        for path in KERNELS + NEXT:
            for name in includes(path, '"<'):
                self.assertRegex(name, f"^({INCLUDES.pattern})$", path.name)

    def test_length(self):
        before = 0
        for path in KERNELS:
            most = max(fact(path.stem, "lines"), before + MORE_LINES)
            before = sum(not MARKER.fullmatch(line) for line in path.read_text().splitlines())
            self.assertLessEqual(before, most, path.name)

    def test_header_tells_how_to_build_it(self):
        for path in KERNELS + NEXT:
            text = path.read_text()
            self.assertTrue(text.startswith(f"// {path.stem}: "), path.name)
            self.assertIn(f"--target {path.stem}", text)
            self.assertIn(f"build/emulator/bin/{path.stem}", text)

    def test_neighbours_differ_by_one_step(self):
        for before, after in zip(KERNELS, KERNELS[1:]):
            if fact(after.stem, "written"):
                continue
            diff = list(difflib.unified_diff(before.read_text().splitlines(), after.read_text().splitlines(), n=0))[2:]
            added = sum(line.startswith("+") for line in diff)
            removed = sum(line.startswith("-") for line in diff)
            self.assertLessEqual(max(added, removed), fact(after.stem, "changed"), f"{before.name} -> {after.name}")


class Folders(unittest.TestCase):
    """What the folders of common include of each other: nothing of those above them."""

    MAY_INCLUDE = {"ptx": "ptx|layout|emulator|trace", "launch": "launch|ptx|layout|emulator|trace",
                   "harness": "harness|launch"}
    BACK_END = "common/harness/device_emulator.cpp"  # alone may include the emulator

    def test_nothing_above(self):
        for folder, others in self.MAY_INCLUDE.items():
            files = sorted((ROOT / "common" / folder).iterdir())
            self.assertGreater(len(files), 5)
            for path in files:
                for name in includes(path):
                    allowed = others + "|emulator" * (path == ROOT / self.BACK_END)
                    self.assertRegex(name, rf"^common/({allowed})/", f"{path.relative_to(ROOT)}")


class Layout(unittest.TestCase):
    def test_is_arithmetic_that_needs_nothing_else(self):
        headers = sorted((ROOT / "common/layout").iterdir())
        self.assertGreaterEqual(len(headers), 3)
        for path in headers:
            with self.subTest(path.name):
                self.assertEqual(path.suffix, ".h")
                for name in includes(path, '"<'):
                    self.assertRegex(name, r"^(common/layout/\w+\.h|\w+)$")
                self.assertNotRegex("\n".join(code(path)), r"\b(emu|fa|ptx)\b|\bcuda\w*")


class Targets(unittest.TestCase):
    def commands(self, target):
        done = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", target], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def setUp(self):
        if not (BUILD / "build.ninja").exists():
            self.skipTest("the build tree is not one of Ninja's")

    def test_a_kernels_target_builds_one_program_and_its_harness(self):
        for path in KERNELS:
            commands = self.commands(path.stem)
            programs = {name for line in commands for name in re.findall(r" -o bin/(\S+)", line)}
            self.assertEqual(programs, {path.stem})
            kernels = {name for line in commands for name in re.findall(r"kernels/(\w+)\.cu(?= |$)", line)}
            self.assertEqual(kernels, {path.stem})
            self.assertFalse([line for line in commands if "/tests/" in line or "/bench/" in line])


class Programs(unittest.TestCase):
    """All that this build tree has by now, but for test programs, probes, those of Google Benchmark, those of CUDA files, which
    have their own main(), and those that an earlier build has left: the harness that they link is newer."""

    def ask(self, path, *arguments):
        return subprocess.run([path, *arguments], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)

    def test_explain_themselves_and_refuse_what_they_do_not_know(self):
        own = {each.stem for folder in ("examples", "tests/examples") for each in (ROOT / folder).glob("*.cu")}
        linked = (BUILD / "common/libfa_harness_alone.a").stat().st_mtime
        paths = [path for path in sorted((BUILD / "bin").iterdir())
                 if not re.search(r"^single_|_(tests|probe|bench)$", path.name) and path.name.removesuffix("_checked") not in own
                 and path.stat().st_mtime >= linked]
        self.assertLess({"attention", KERNELS[0].stem}, {path.name for path in paths})
        for path in paths:
            with self.subTest(path.name):
                done = self.ask(path, "--help")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)
                self.assertRegex(done.stdout, rf"Examples?:\s+\S*{path.name.removesuffix('_checked')}")
                done = self.ask(path, "--nonsense")
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertRegex(done.stderr, r"\Aerror: .*--help.*\n\Z")


class Configuration(unittest.TestCase):
    def command(self, *arguments, **environment):
        """How parser.cpp is compiled in a fresh build tree."""
        environment = {**{name: value for name, value in os.environ.items() if name not in
                          ("CI", "CMAKE_CXX_COMPILER_LAUNCHER")}, **environment}
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["cmake", "-S", ROOT, "--preset", "emulator", "-B", folder, "-DFA_TESTS=OFF", *arguments],
                                  env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=60)
            self.assertEqual(done.returncode, 0, done.stdout)
            commands = subprocess.run(["ninja", "-C", folder, "-t", "commands", "fa_harness_alone"], capture_output=True, text=True,
                                      timeout=60)
        return next(line.split() for line in commands.stdout.splitlines() if line.endswith("cli/parser.cpp"))

    def test_a_warning_stops_the_build_in_ci_alone(self):
        self.assertNotIn("-Werror", self.command())
        self.assertIn("-Werror", self.command(CI="true"))
        self.assertNotIn("-Werror", self.command("-DFA_WERROR=OFF", CI="true"))

    def test_ccache_is_used_where_it_is(self):
        with tempfile.TemporaryDirectory() as folder:
            ccache = Path(folder) / "ccache"
            ccache.write_text("#!/bin/sh\nexec \"$@\"\n")
            ccache.chmod(0o755)
            path = f"{folder}:{os.environ['PATH']}"
            self.assertEqual(self.command(PATH=path)[0], str(ccache))
            self.assertEqual(self.command("-DCMAKE_CXX_COMPILER_LAUNCHER=env", PATH=path)[0], "env")


class Sources(unittest.TestCase):
    def test_programs_headers_are_found_from_the_root(self):
        """Includes with quotes name a file of the repository by its path. A kernel's file is nobody's but the kernels' own; the
        one exception is the unit test of the headers of FP8."""
        for folder in ("kernels", "common", "tests", "bench"):
            for path in (ROOT / folder).rglob("*.*"):
                if path.suffix not in (".h", ".cpp", ".cu"):
                    continue
                for name in includes(path):
                    self.assertTrue((ROOT / name).is_file(), f"{path.relative_to(ROOT)} includes {name}")
                    if folder != "kernels" and path.name != "test_fp8_kernel.cpp":
                        self.assertFalse(name.startswith("kernels/"), f"{path.relative_to(ROOT)} includes {name}, which kernels/facts may")


class Modules(unittest.TestCase):
    """The package behind scripts/fa hides no module of Python's from the libraries that it loads, and needs no path of its own."""

    def test_one_package(self):
        """scripts/ is where Python looks first when scripts/fa runs."""
        importable = {path.stem for path in SCRIPTS.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
        self.assertEqual(importable, {"fa_tools"})
        self.assertFalse(importable & sys.stdlib_module_names)

    def test_no_module_changes_the_path(self):
        self.assertGreater(len(MODULES), 30)
        for path in MODULES:
            with self.subTest(path.relative_to(SCRIPTS).as_posix()):
                self.assertNotRegex(path.read_text(encoding="utf-8"), r"sys\.path\b")

    def test_folders(self):
        """documents imports measuring and for_readers, measuring imports for_readers, all import the root (docs/maintaining.md)."""
        folders = ("documents", "measuring", "for_readers", "")
        for path in (SCRIPTS / "fa_tools").rglob("*.py"):
            parts = path.relative_to(SCRIPTS / "fa_tools").parts[:-1]
            below = folders[folders.index(parts[0] if parts else ""):]
            for line in re.findall(r"^ *from fa_tools\S* import .*", path.read_text(encoding="utf-8"), re.MULTILINE):
                folder = re.search(r"fa_tools(?:\.| import )(\w+)", line)[1]
                self.assertIn(folder if folder in folders else "", below, f"{path.relative_to(SCRIPTS)}: {line}")

    def test_each_module_says_what_it_holds(self):
        for path in MODULES:
            with self.subTest(path.relative_to(SCRIPTS).as_posix()):
                self.assertRegex(path.read_text(encoding="utf-8"), r'\A(#!.*\n)?"""\w')


class Tests(unittest.TestCase):
    def test_none_waits_for_ever(self):
        """Each call that waits for another program says for how long."""
        for path in sorted((ROOT / "tests").rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
                name = ast.unparse(call.func)
                if name in ("subprocess.run", "subprocess.check_output") or name.endswith((".communicate", "process.wait")):
                    if "os.killpg" in ast.unparse(tree) and name.endswith(".communicate"):
                        continue  # the wait behind a kill
                    self.assertIn("timeout", [word.arg for word in call.keywords],
                                  f"{path.relative_to(ROOT)}:{call.lineno}: {name}() may wait for ever")


class Pictures(unittest.TestCase):
    def test_every_picture_is_shown_on_a_page(self):
        pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        found = set(re.findall(r"[\w./-]+\.svg", "\n".join(page.read_text(encoding="utf-8") for page in pages)))
        names = {name.rsplit("/", 1)[-1] for name in found}
        for folder in ("charts", "pictures", "timelines"):
            for path in sorted((ROOT / "docs" / folder).glob("*.svg")):
                shown = path.name.replace("_phone.svg", ".svg")  # the site puts it in the other's place on a phone
                self.assertTrue(shown in names, f"{path.relative_to(ROOT)}: no page shows it")


# ---- the emulator's floors: its core knows no instruction and no check, its units know no check. Held over the sources, so
# that a new file is looked at by being there. And its seam: what is not of the
# emulator includes headers of its core and its units alone.

EMULATOR = "common/emulator"

# What the files of each folder may include of this repository.
ALLOWED = {
    "core": ("common/emulator/core/",),
    "units": ("common/emulator/core/", "common/emulator/units/", "common/layout/", "common/ptx/tensor_map.h"),
    "checks": ("common/emulator/core/", "common/emulator/checks/"),
    "programs/inline_ptx": ("common/emulator/core/", "common/emulator/units/", "common/emulator/programs/inline_ptx/",
                            "common/layout/", "common/ptx/tensor_map.h"),
    # Their end prints counts as the book's programs do, and a tensor map is made by the rules of common/launch.
    "programs": ("common/emulator/core/", "common/emulator/units/", "common/emulator/programs/", "common/layout/",
                 "common/ptx/tensor_map.h", "common/launch/problem.h", "common/launch/tensor_map.h", "common/cli/tables.h",
                 "common/harness/device.h", "common/harness/files.h"),
    "include": ("common/emulator/core/", "common/emulator/units/", "common/emulator/include/", "common/ptx/tensor_map.h"),
}


def sources(root, folder):
    return sorted(path for path in (root / EMULATOR / folder).rglob("*") if path.suffix in (".h", ".cpp"))


def without_quotes(path):
    """Without comments and without what stands in quotes."""
    text = re.sub(r"//.*", "", path.read_text())
    return re.sub(r'"(\\.|[^"\\\n])*"', '""', text)


def wrong_includes(root):
    wrong = []
    for folder, allowed in ALLOWED.items():
        for path in sources(root, folder):
            for name in includes(path):
                if not name.startswith(allowed):
                    wrong.append(f"{path.relative_to(root)} includes {name}")
    return wrong


class Floors(unittest.TestCase):
    def test_every_folder_has_its_rule(self):
        folders = {path.name for path in (ROOT / EMULATOR).iterdir() if path.is_dir()}
        self.assertEqual(folders - {"tests"}, {folder for folder in ALLOWED if "/" not in folder})
        for folder in ALLOWED:
            self.assertTrue(sources(ROOT, folder), folder)

    def test_includes(self):
        self.assertEqual(wrong_includes(ROOT), [])

    def test_nothing_outside_reaches_past_the_seam(self):
        reached = set()
        for folder, seam in (("common", "core|units"), ("kernels", "core|units"), ("bench", "core|units"), ("tests", "core|units|tests")):
            for path in sorted((ROOT / folder).rglob("*.*")):
                if path.suffix in (".h", ".cpp", ".cu") and not path.is_relative_to(ROOT / EMULATOR):
                    found = [name for name in includes(path) if name.startswith(f"{EMULATOR}/")]
                    reached.update(found)
                    for name in found:
                        self.assertRegex(name, f"^{EMULATOR}/({seam})/", path)
        self.assertGreater(len(reached), 20)

    def test_every_unit_with_a_state_registers_itself_in_an_order_of_its_own(self):
        orders = []
        for path in sources(ROOT, "units"):
            text = without_quotes(path)
            units = re.findall(r"(?:class|struct) (\w+)(?: final)? : (?:public )?Unit\b", text)
            registered = dict(re.findall(r"const UnitOf<(\w+)> \w+\{(\d+)\}", text))
            self.assertEqual(units, list(registered), path.name)
            orders += registered.values()
        self.assertGreaterEqual(len(orders), 7)
        self.assertEqual(len(orders), len(set(orders)), "two units would be called in the order of the linker")


if __name__ == "__main__":
    unittest.main()
