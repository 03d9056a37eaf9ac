"""tests/test_commands.py itself: which words of a document are commands, and what it says of those that fail."""

import sys

from support import ROOT, ScriptTest, main

sys.path.insert(0, str(ROOT / "tests"))
from test_commands import commands_in, needed

DOCUMENT = """# Title
```bash
cmake --preset emulator   # configures
cmake --build --preset emulator \\
  --target broken
# nothing

```
`scripts/run.sh 07` and `scripts/run.sh` and `scripts/run.sh --broken NAME` and `cuobjdump -sass
build/cuda/bin/07`, <!-- needs: hours -->`ctest -L long`, `acc_s[i]`.

<!-- needs: your own files -->
<!-- another -->
```bash
scripts/fa compare a.json b.json
```
```text
$ scripts/fa inspect 08
8 instructions
```
   ```text
   no command
   ```
"""


class Found(ScriptTest):
    def test_commands_and_what_they_need(self):
        found = [(command.line, command.text, command.shown, needed(command)) for command in commands_in(DOCUMENT)]
        self.assertEqual(found, [
            (2, "cmake --preset emulator   # configures", None, None),
            (2, "cmake --build --preset emulator    --target broken", None, None),
            (9, "scripts/run.sh 07", None, None),
            (9, "cuobjdump -sass build/cuda/bin/07", None, "gpu"),
            (10, "ctest -L long", None, "hours"),
            (14, "scripts/fa compare a.json b.json", None, "your own files"),
            (17, "scripts/fa inspect 08", "8 instructions\n", "nvcc"),
        ])


class Followed(ScriptTest):
    def follow(self, text):
        (self.folder / "bin").mkdir(exist_ok=True)
        document = self.folder / "page.md"
        document.write_text(text)
        return self.run_script(sys.executable, ROOT / "tests" / "test_commands.py", document, self.folder)

    def test_what_fails_is_told(self):
        done = self.follow("""```text
$ scripts/fa links --help | head -n 1
another line
```
```bash
build/emulator/bin/07_cp_async
cmake --build --preset emulator --target 07_cp_async
```
<!-- needs: gpu -->
```bash
scripts/fa bench --protocol quick --no-such-option
scripts/none.sh
scripts/fa compare bench/results/none.json
build/cuda/bin/99_none
```
""")
        self.assertEqual(done.returncode, 1)
        for words in ("the document shows\nanother line\nand it prints\nusage: ", "07_cp_async: No such file or directory",
                      "build/emulator has not been configured", "scripts/fa bench --help does not know --no-such-option",
                      "scripts/none.sh is not a program", "there is no bench/results/none.json",
                      "nothing builds build/cuda/bin/99_none", "7 commands, 3 run, 7 failed"):
            self.assertIn(words, done.stdout)

    def test_a_page_that_holds(self):
        done = self.follow("`python3 scripts/fa links --help`\n<!-- needs: gpu -->`scripts/fa bench --protocol quick`\n")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("2 commands, 1 run, 0 failed", done.stdout)

    def test_none_found(self):
        self.assertIn("no command was found", self.follow("```bash\n# nothing\n```\n").stderr)


class Tools(ScriptTest):
    """tests/tool_test.py: what the tests do with a tool that does not answer, or says that it cannot."""

    def test_what_does_not_end_is_ended_with_all_that_it_started(self):
        code = "from tool_test import run; run('sh', '-c', 'echo started; sleep 100 & wait', timeout=1)"
        done = self.run_script(sys.executable, "-c", code, env={"PYTHONPATH": str(ROOT / "tests")})
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, "^sh -c .* did not end within 1 s:\nstarted\n$")

    def test_gdb_that_cannot_write_registers(self):
        self.program("gdb", "echo \"Couldn't write extended state status: Bad address.\"\n")
        done = self.run_script(sys.executable, "-B", ROOT / "tests" / "gdb" / "test_gdb.py", self.folder,
                               env={"PATH": f"{self.folder}/bin:/usr/bin:/bin"})
        self.assertEqual((done.returncode, done.stdout), (77, "skipped: this gdb cannot write the registers of this CPU\n"))


if __name__ == "__main__":
    main()
