"""What a small change costs: a comment in a kernel is one command without a GPU or nvcc."""

import re
import shutil
import time
from pathlib import Path

from support import ROOT, ScriptTest, main

from fa_tools.tools import repository_files

SECONDS = 60


class Copy(ScriptTest):
    def setUp(self):
        super().setUp()
        self.root = self.folder / "copy"
        for path in repository_files():
            if path.is_file():
                target = self.root / path.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
        # No compiler, no GPU's tools, no program of this build: only what every machine has.
        for name in ("python3", "bash", "env", "sh", "dirname"):
            self.program(name, f'exec {shutil.which(name)} "$@"\n')
        self.path = {"PATH": str(self.folder / "bin")}

    def fa(self, *arguments):
        begin = time.monotonic()
        done = self.run_script(self.root / "scripts" / "fa", *arguments, env=self.path | {"PYTHONPATH": str(self.root / "scripts")})
        self.assertLess(time.monotonic() - begin, SECONDS)
        return done

    def changed(self):
        """The files of the copy that are not those of the checkout."""
        return sorted(path.relative_to(self.root).as_posix() for path in repository_files(self.root)
                      if path.read_bytes() != (ROOT / path.relative_to(self.root)).read_bytes())


class Comment(Copy):
    def test_a_comment_near_the_top_of_a_kernel(self):
        kernel = self.root / "kernels/16_max_free.cu"
        text = kernel.read_text(encoding="utf-8")
        new, count = re.subn(r"^struct Config", "// This comment is new.\nstruct Config", text, count=1, flags=re.MULTILINE)
        self.assertEqual(count, 1)
        kernel.write_text(new, encoding="utf-8")
        done = self.fa("sync")
        self.assertEqual(done.returncode, 0, done.stderr)
        documents = [path for path in self.changed() if path != "kernels/16_max_free.cu"]
        self.assertLessEqual(len(documents), 2, documents)
        self.assertTrue(all(Path(path).suffix == ".md" for path in documents), documents)
        # Nothing is left to be brought up to date: neither documents nor what they are made from.
        for check in (("sync", "--check"), ("links",), ("pictures", "--check")):
            done = self.fa(*check)
            self.assertEqual(done.returncode, 0, f"{check}: {done.stdout}{done.stderr}")
        kernel.write_text(text, encoding="utf-8")
        self.assertEqual(self.fa("sync").returncode, 0)
        self.assertEqual(self.changed(), [])


class NoLines(ScriptTest):
    def test_no_line_number_is_kept(self):
        """Of a source, in results, recordings and what documents show: it would be wrong after the next comment."""
        # The first line of a file is where it begins, whatever is in it; others' sources are not ours to name.
        place = re.compile(r"\b(?:(?:kernels|common|bench|tests)/[\w/]+|\d\d_\w+)\.(?:cu|h|cpp):(?!1\b)\d+")
        for path in repository_files():
            name = path.relative_to(ROOT).as_posix()
            if name.startswith(("bench/results/", "docs/", "README")) and path.suffix in (".json", ".jsonl", ".txt", ".md", ".svg"):
                with self.subTest(name):
                    self.assertIsNone(place.search(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
