"""What the hash of a kernel's statements is of; that every committed record has one; and what becomes of figures, charts and
comparisons when a kernel has changed since it was measured, or a comment in it."""

import json
import re
import shutil
import unittest
from unittest import mock

from support import ROOT, ScriptTest, main

from fa_tools import patches, sources
from fa_tools.cards import BOOK
from fa_tools.documents import chart
from fa_tools.documents.charts.look import LIGHT
from fa_tools.records import Shape, kept_records, with_solution
from fa_tools.tools import read_json, repository_files

KERNELS = ("05_mma_split_kv", "08_swizzle", "16_max_free")


def forget():
    sources.source_of.cache_clear()
    sources.declarations.cache_clear()


class Copy(ScriptTest):
    """A checkout in which kernels can be changed."""

    parts = ("kernels", "common")

    def setUp(self):
        super().setUp()
        for part in self.parts:
            shutil.copytree(ROOT / part, self.folder / part, ignore=shutil.ignore_patterns(*["emulator"] * (part == "common"), "next", "*.cpp", "__pycache__"))

    def change(self, file, *changes):
        path = self.folder / file
        text = path.read_text(encoding="utf-8")
        for old, new in changes:
            self.assertIn(old, text)
            text = text.replace(old, new, 1)
        path.write_text(text, encoding="utf-8")


class Hash(Copy):
    def changed(self):
        """Those of the kernels whose hash is another one in the copy."""
        before = [sources.source_of(name) for name in KERNELS]
        forget()
        with mock.patch.object(sources, "ROOT", self.folder), mock.patch.object(patches, "ROOT", self.folder):
            after = [sources.source_of(name) for name in KERNELS]
        forget()
        return "".join(name[:2] + " " for name, old, new in zip(KERNELS, before, after) if old != new).strip()

    def test_what_it_is_not_of(self):
        self.assertEqual(self.changed(), "")
        self.change("kernels/05_mma_split_kv.cu", ("// query rows per CTA", "// rows"), ("  static constexpr int kWarps = 4;\n",
                    "  // The warps share the keys.\n  static constexpr int\n      kWarps=4;\n"))
        self.change("common/ptx/ldmatrix.h", ("#else", "#else\ninline void only_on_the_emulator() {}"))
        self.change("common/ptx/convert.h", ("namespace ptx {\n", "namespace ptx {\n\ninline int unused() { return 1; }\n"))
        self.change("common/launch/registry.h", ("struct Needs {", "struct More {};\n\nstruct Needs {"))
        self.assertEqual(self.changed(), "")

    def test_what_it_is_of(self):
        for file, old, new, which in (
                ("kernels/05_mma_split_kv.cu", "kPad = 8;", "kPad = 0;", "05"),
                ("kernels/08_swizzle.cu", "#pragma unroll\n", "", "08"),
                ("kernels/16_max_free.cu", "Needs{90, true}", "Needs{100, true}", "16"),
                ("common/ptx/mma.h", "mma.sync.aligned.m16n8k16", "mma.sync.m16n8k16", "05 08"),
                ("common/layout/swizzle.h", "return chunk ^", "return 1 + chunk ^", "08 16"),
                ("common/ptx/wgmma_instructions.h", '"%" digits "0, ', '"%" digits "1, ', "16")):
            with self.subTest(file):
                self.change(file, (old, new))
                self.assertEqual(self.changed(), which)
                shutil.copy(ROOT / file, self.folder / file)

    def test_names(self):
        """A kernel that waits in kernels/next has the hash that it will have in its place; a solution has one of its own."""
        (self.folder / "kernels" / "next").mkdir()
        shutil.copy(ROOT / "kernels" / "05_mma_split_kv.cu", self.folder / "kernels" / "next")
        self.change("kernels/05_mma_split_kv.cu", ("kPad = 8;", "kPad = 0;"))
        names = ("05_mma_split_kv.next", "05_mma_split_kv", "05_no_padding", "beyond/plain", "05_nothing", "16_max_free.next")
        here = [sources.source_of(name) for name in names]
        forget()
        with mock.patch.object(sources, "ROOT", self.folder), mock.patch.object(patches, "ROOT", self.folder):
            there = [sources.source_of(name) for name in names]
        forget()
        self.assertEqual(there, [here[1], here[2], "misfit", here[3], None, None])
        self.assertEqual(here[0], None)


def as_if_measured_today(folder):
    """Gives each record in a copy of bench/results today's hash: a kernel that waits for a GPU is no error here."""
    def renewed(value, name=None):
        if isinstance(value, list):
            return [renewed(each, name) for each in value]
        if not isinstance(value, dict):
            return value
        found = {key: renewed(each, name) for key, each in value.items()}
        return {**found, "source": sources.source_of(name or found["kernel"])} if {"source", "kernel"} <= found.keys() else found

    for file in (folder / "bench" / "results").glob("*/*.json*"):
        if file.suffix == ".json":
            file.write_text(json.dumps(renewed(read_json(file))), encoding="utf-8")
            continue
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        of_solutions = with_solution(f"{file}#x", {"records": [{}]})["records"][0]
        names = [line["name"] if of_solutions else None for line in lines]
        file.write_text("".join(json.dumps(renewed(*each)) + "\n" for each in zip(lines, names)), encoding="utf-8")


class Stale(Copy):
    """Kernel 05 has changed since it was measured."""

    parts = ("kernels", "common", "scripts", "bench")
    TEXT = "It reaches 36.5<!--= bf16_d128 05 @4096 --> TFLOP/s, kernel 04 9.1<!--= bf16_d128 04 @4096 -->.\n"

    def setUp(self):
        super().setUp()
        as_if_measured_today(self.folder)
        (self.folder / "docs").mkdir()
        for path in (ROOT / "docs").glob("[01]*.md"):  # which have the solutions
            text = path.read_text(encoding="utf-8")
            solutions = "".join(match[0] + "\n" for match in patches.SOLUTION.finditer(text))
            (self.folder / "docs" / path.name).write_text(solutions, encoding="utf-8")
        shutil.copytree(ROOT / "docs" / "solutions", self.folder / "docs" / "solutions")
        (self.folder / "docs" / "page.md").write_text(
            self.TEXT + "\n<!-- lengths: bf16_d128 kernel=0[45]_* -->\n<!-- /lengths -->\n\n"
            "<!-- profile: profile kernel=05_* metrics=cycles -->\n<!-- /profile -->\n\n"
            "<!-- table: ladder/bf16_d64 kernel=05_* seq_len=512 columns=kernel,seq_len,registers -->\n<!-- /table -->\n\n"
            "<!-- grid: bf16_d128 -->\n| | N = 512<!--= @512 --> |\n|-|-:|\n| `05`<!--= 05 --> | 0.0 |\n<!-- /grid -->\n\n"
            "<!-- agreement: seq_len=2048 reasons=no -->\n<!-- /agreement -->\n", encoding="utf-8")

    def fa(self, *words, code=(0,)):
        done = self.run_script(self.folder / "scripts" / "fa", *words, env={"PYTHONPATH": ""}, cwd=self.folder)
        self.assertIn(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def page(self):
        return (self.folder / "docs" / "page.md").read_text(encoding="utf-8")

    def set_pad(self, old, new):
        self.change("kernels/05_mma_split_kv.cu", (f"kPad = {old};", f"kPad = {new};"))

    def test_documents(self):
        self.fa("sync")
        fresh = self.page()
        self.assertNotIn("†", fresh)
        self.change("kernels/05_mma_split_kv.cu", ("// query rows per CTA", "// rows"))  # a comment costs nothing
        self.assertEqual(self.fa("sync", "--check"), "")
        self.set_pad(8, 16)
        self.assertIn("should be", self.fa("sync", "--check", code=(1,)))
        self.fa("sync")
        page = self.page()
        self.assertRegex(page, r"reaches [\d.]+†<!--= bf16_d128 05 @4096 --> TFLOP/s, kernel 04 [\d.]+<!--=")
        self.assertRegex(page, r"\| `05_mma_split_kv` (\| [\d.]+† ){6}\|")
        self.assertRegex(page, r"\| `04_wmma` (\| [\d.]+ ){6}\|")
        self.assertRegex(page, r"\| Cycles \| [\d,]+† \|")
        self.assertRegex(page, r"\| `05_mma_split_kv` \| 512 \| \d+† \|")
        self.assertRegex(page, r"\| `05`<!--= 05 --> \| [\d.]+† \|")
        self.assertIn("1 kernel waits for a GPU, changed since it was measured: 05_mma_split_kv.", page)
        self.assertTrue(page.endswith("\n\n† The kernel has changed since this figure was measured.\n"), page)
        self.assertEqual(self.fa("sync", "--check"), "")
        self.set_pad(16, 8)
        self.fa("sync")
        self.assertEqual(self.page(), fresh)

    def test_comparisons(self):
        sentence = "1 kernel waits for a GPU, changed since it was measured: 05_mma_split_kv."
        self.set_pad(8, 16)
        for command in ("agree", "bounds"):
            with self.subTest(command):
                said = self.fa(command, code=(0, 1))  # 1: another kernel waits, and its counts agree no more
                self.assertEqual(said.splitlines()[-1], sentence)
                self.assertFalse([line for line in said.splitlines() if line.startswith("05")], said)

    def test_release(self):
        self.assertNotIn("05_mma_split_kv", self.fa("release", "--check", code=(0, 1)))  # 1: another kernel waits
        self.set_pad(8, 16)
        (self.folder / "kernels" / "next").mkdir()
        (self.folder / "kernels" / "next" / "07_cp_async.cu").write_text("")
        said = self.fa("release", "--check", code=(1,))
        self.assertIn(f"bench/results/{BOOK}/bf16_d128.json has kernels that have changed since: 05_mma_split_kv\n", said)
        self.assertIn(f"bench/results/{BOOK}/profile.json has kernels", said)
        self.assertIn("bench/results/emulator/solutions.jsonl has kernels that have changed since: 05_mma_split_kv, 05_no_padding, 05_plain_loads, "
                      "05_transposed_maximum\n", said)
        self.assertIn("kernels/next/07_cp_async.cu has not replaced", said)
        self.assertNotIn("04_wmma", said)

class Charts(unittest.TestCase):
    def test_pale_kernels(self):
        """Only what the kernel has is marked, and a line below the title says what that means."""
        (group,) = chart.group_files([ROOT / f"bench/results/{BOOK}/bf16_d128.json"] * 2)
        measured = {name: record["source"] for (name, *_), record in group.records.items() if "source" in record}
        with mock.patch("fa_tools.records.source_of", {**measured, "10_instruction_tuning": "0"}.get):
            marked = dict(chart.specs_of(group, dict.fromkeys(Shape._fields)))
            for name, mark in (("ladder", "fillOpacity"), ("speedup", "strokeDash"), ("seq_len", "strokeDash")):
                with self.subTest(name):
                    spec = json.dumps(marked[name](LIGHT))
                    self.assertIn("Pale or dotted: the kernel has changed since it was measured", spec)
                    self.assertIn('"%s": {"condition": ' % mark, spec)
                    self.assertEqual(set(re.findall(r"indexof\((.*?), datum", spec)), {'[\\"10_instruction_tuning\\"]'})
        with mock.patch("fa_tools.records.source_of", measured.get):
            for name, spec_of in chart.specs_of(group, dict.fromkeys(Shape._fields)):
                self.assertNotIn("Pale", json.dumps(spec_of(LIGHT)) if callable(spec_of) else "")


class Committed(unittest.TestCase):
    def test_every_record_knows_its_source(self):
        records = list(kept_records())
        self.assertGreater(len(records), 1000)
        without = {(file.rpartition("/")[2], record["kernel"]) for file, record in records
                   if "source" not in record and sources.source_of(record["kernel"])}
        self.assertEqual(without, set())
        self.assertGreater(len({record["source"] for _, record in records if "source" in record}), 70)

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
