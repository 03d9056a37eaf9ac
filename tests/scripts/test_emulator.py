"""The emulator's floors: its core knows no instruction and no check, its units know no check. Held over the sources, by what
they include and by what they name, so that a new file is looked at by being there."""

import re
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
EMULATOR = "common/emulator"

# What the files of each folder may include of this repository.
ALLOWED = {
    "core": ("common/emulator/core/",),
    "units": ("common/emulator/core/", "common/emulator/units/", "common/layout/", "common/ptx/tensor_map.h"),
    "checks": ("common/emulator/core/", "common/emulator/checks/"),
    "host": ("common/emulator/core/", "common/emulator/units/", "common/emulator/host/"),
    "include": ("common/emulator/core/", "common/emulator/units/", "common/emulator/include/"),
}


def sources(root, folder):
    return sorted(path for path in (root / EMULATOR / folder).rglob("*") if path.suffix in (".h", ".cpp"))


def code(path):
    """Without comments and without what stands in quotes."""
    text = re.sub(r"//.*", "", path.read_text())
    return re.sub(r'"(\\.|[^"\\\n])*"', '""', text)


def wrong_includes(root):
    wrong = []
    for folder, allowed in ALLOWED.items():
        for path in sources(root, folder):
            for name in re.findall(r'^#include "(.*)"', path.read_text(), re.MULTILINE):
                if not name.startswith(allowed):
                    wrong.append(f"{path.relative_to(root)} includes {name}")
    return wrong


def declared(path):
    """Functions and types that a header declares outside of all types."""
    text, depth = "", 0
    for part in re.split(r"([{}])", re.sub(r"namespace \w+ \{|\}(?=\s*$)", "", code(path))):
        if part in "{}":
            depth += 1 if part == "{" else -1
        elif depth <= 0:
            text += part
    text = re.sub(r"(?m)^#.*$", "", text)
    return set(re.findall(r"\b(?:struct|class) (\w+)", text)) | set(re.findall(r"[\w&*>]\s+([a-z]\w+)\(", text))


def names_above(root):
    """Names that a header of a unit or of the checks declares, found in the core; those of the checks, in the units, too."""
    wrong = []
    for upper, lowers in (("units", ["core"]), ("checks", ["core", "units"])):
        headers = [path for path in sources(root, upper) if path.suffix == ".h"]
        names = set().union(*map(declared, headers)) if headers else set()
        names -= set().union(*(declared(path) for path in sources(root, "core") if path.suffix == ".h"))
        for lower in lowers:
            for path in sources(root, lower):
                found = names & set(re.findall(r"\w+", code(path)))
                wrong += [f"{path.relative_to(root)} names {name} of {upper}" for name in sorted(found)]
    return wrong


class Floors(unittest.TestCase):
    def test_every_folder_has_its_rule(self):
        folders = sorted(path.name for path in (ROOT / EMULATOR).iterdir())
        self.assertEqual(folders, sorted(ALLOWED))
        for folder in ALLOWED:
            self.assertTrue(sources(ROOT, folder), folder)

    def test_includes(self):
        self.assertEqual(wrong_includes(ROOT), [])

    def test_names(self):
        self.assertEqual(names_above(ROOT), [])

    def test_the_names_are_found(self):
        for header, name in (("units/tma.h", "load_box"), ("units/barrier.h", "barrier_sync"), ("units/mbarrier.h", "Mbarrier"),
                             ("checks/races.h", "Races"), ("checks/counting.h", "count_accesses")):
            self.assertIn(name, declared(ROOT / EMULATOR / header))

    def test_every_unit_with_a_state_registers_itself_in_an_order_of_its_own(self):
        orders = []
        for path in sources(ROOT, "units"):
            text = code(path)
            units = re.findall(r"(?:class|struct) (\w+)(?: final)? : (?:public )?Unit\b", text)
            registered = dict(re.findall(r"const UnitOf<(\w+)> \w+\{(\d+)\}", text))
            self.assertEqual(units, list(registered), path.name)
            orders += registered.values()
        self.assertGreaterEqual(len(orders), 7)
        self.assertEqual(len(orders), len(set(orders)), "two units would be called in the order of the linker")

    def test_a_new_file_is_seen(self):
        for file, text, says in (
                ("core/new.cpp", '#include "common/emulator/units/new.h"\n', "includes common/emulator/units/new.h"),
                ("core/new.h", '#include "common/trace/trace.h"\n', "includes common/trace/trace.h"),
                ("units/new.cpp", '#include "common/emulator/checks/new.h"\n', "includes common/emulator/checks/new.h"),
                ("core/new.cpp", "void multiply_all();\nvoid f() { multiply_all(); }\n", "names multiply_all of units"),
                ("units/new.cpp", "struct Suspicion;\n", "names Suspicion of checks")):
            with self.subTest(file + text), tempfile.TemporaryDirectory() as folder:
                root = Path(folder)
                for made, contents in (("units/new.h", "namespace emu {\nvoid multiply_all();\n}\n"),
                                       ("checks/new.h", "namespace emu {\nstruct Suspicion {};\n}\n"), (file, text)):
                    path = root / EMULATOR / made
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(contents)
                self.assertEqual(wrong_includes(root) + names_above(root), [f"{EMULATOR}/{file} {says}"])


if __name__ == "__main__":
    unittest.main()
