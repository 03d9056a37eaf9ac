"""No script has the name of a module of Python's: it would hide that module from the libraries that scripts load."""

import sys

from support import SCRIPTS, ScriptTest, main


class Modules(ScriptTest):
    def test_names(self):
        names = {path.stem for path in [*SCRIPTS.glob("*.py"), *SCRIPTS.glob("lib/*")]}
        self.assertIn("tools", names)
        self.assertEqual(names & sys.stdlib_module_names, set())


if __name__ == "__main__":
    main()
