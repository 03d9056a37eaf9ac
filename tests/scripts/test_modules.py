"""No script hides a module of Python's from the libraries that it loads."""

import sys
import unittest

from support import SCRIPTS, VENV_PYTHON, ScriptTest, main

STANDARD = getattr(sys, "stdlib_module_names", {"profile"})  # Python 3.9 has no list of them
NAMES = {path: path.stem for path in sorted([*SCRIPTS.glob("*.py"), *SCRIPTS.glob("lib/*")])}
# As when a script is run: its folder is the first one in which modules are looked for. Then the rest of its command.
RUN = """import runpy, sys
sys.dont_write_bytecode = True
sys.path[0] = {scripts!r}
script = runpy.run_path({path!r}, run_name="loaded")
"""


class Modules(ScriptTest):
    def load(self, path, then, **options):
        python = VENV_PYTHON if VENV_PYTHON.exists() else sys.executable  # some need packages
        text = RUN.format(scripts=str(SCRIPTS), path=str(path)) + then
        return self.run_script(python, "-c", text, **options)

    def test_names_of_standard_modules(self):
        """scripts/lib comes first when modules are looked for, the scripts last: only they may have such a name."""
        same = {path.relative_to(SCRIPTS).as_posix() for path, name in NAMES.items() if name in STANDARD}
        self.assertEqual(same, {"profile.py"})

    def test_every_script_finds_pythons_own(self):
        wanted = sorted(name for name in NAMES.values() if name in STANDARD)
        for path in sorted(SCRIPTS.glob("*.py")):
            with self.subTest(path.name):
                done = self.load(path, f"for name in {wanted}: print(__import__(name).__file__)")
                self.assertEqual(done.returncode, 0, done.stderr)
                for file in done.stdout.split():
                    self.assertNotIn(str(SCRIPTS), file)

    def test_a_peer_that_needs_profile_loads(self):
        """As a part of torch does, which the package fa3-fwd loads."""
        self.write("fa3_fwd_interface.py", "import cProfile\nimport profile\nflash_attn_func = profile.run\n")
        then = ('import torch_attention\n'
                'print(torch_attention.PEERS["fa3"][1]("FlashAttention-3", None).call.__module__)')
        done = self.load(SCRIPTS / "bench.py", then, env={"PYTHONPATH": str(self.folder)})
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "profile\n", ""))


if __name__ == "__main__":
    main()
