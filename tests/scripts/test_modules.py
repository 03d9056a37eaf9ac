"""The package behind scripts/fa hides no module of Python's from the libraries that it loads, and needs no path of its own."""

import sys

from support import SCRIPTS, ScriptTest, main

FILES = sorted(SCRIPTS.rglob("*.py"))


class Modules(ScriptTest):
    def test_one_package(self):
        """scripts/ is where Python looks first when scripts/fa runs."""
        importable = {path.stem for path in SCRIPTS.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
        self.assertEqual(importable, {"fa_tools"})
        self.assertFalse(importable & sys.stdlib_module_names)

    def test_no_module_changes_the_path(self):
        self.assertGreater(len(FILES), 30)
        for path in FILES:
            with self.subTest(path.relative_to(SCRIPTS).as_posix()):
                self.assertNotRegex(path.read_text(encoding="utf-8"), r"sys\.path\b")

    def test_each_module_says_what_it_holds(self):
        for path in FILES:
            with self.subTest(path.relative_to(SCRIPTS).as_posix()):
                self.assertRegex(path.read_text(encoding="utf-8"), r'\A(#!.*\n)?"""\w')


if __name__ == "__main__":
    main()
