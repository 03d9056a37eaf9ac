"""What the hash of a kernel's statements is of; that every committed record has one."""

import shutil
import unittest
from unittest import mock

from support import ROOT, ScriptTest, main

from fa_tools import single, sources
from fa_tools.records import kept_records

KERNELS = ("05_mma_split_kv", "08_swizzle", "16_max_free")


class Hash(ScriptTest):
    def setUp(self):
        super().setUp()
        for part in ("kernels", "common"):
            shutil.copytree(ROOT / part, self.folder / part, ignore=shutil.ignore_patterns("emulator", "*.cpp"))

    def change(self, file, *changes):
        path = self.folder / file
        text = path.read_text(encoding="utf-8")
        for old, new in changes:
            self.assertIn(old, text)
            text = text.replace(old, new, 1)
        path.write_text(text, encoding="utf-8")

    def changed(self):
        """Those of the kernels whose hash is another one in the copy."""
        before = [sources.source_of(name) for name in KERNELS]
        sources.source_of.cache_clear()
        with mock.patch.object(sources, "ROOT", self.folder), mock.patch.object(single, "ROOT", self.folder):
            after = [sources.source_of(name) for name in KERNELS]
        sources.source_of.cache_clear()
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
                ("kernels/05_mma_split_kv.cu", "kPad = 0;", "kPad = 8;", "05"),
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
        self.change("kernels/05_mma_split_kv.cu", ("kPad = 0;", "kPad = 8;"))
        names = ("05_mma_split_kv.next", "05_mma_split_kv", "05_padding", "beyond/plain", "05_nothing", "16_max_free.next")
        here = [sources.source_of(name) for name in names]
        sources.source_of.cache_clear()
        with mock.patch.object(sources, "ROOT", self.folder), mock.patch.object(single, "ROOT", self.folder):
            there = [sources.source_of(name) for name in names]
        sources.source_of.cache_clear()
        self.assertEqual(there, [here[1], here[2], "misfit", here[3], None, None])
        self.assertEqual(here[0], None)


class Committed(unittest.TestCase):
    def test_every_record_knows_its_source(self):
        records = list(kept_records())
        self.assertGreater(len(records), 1000)
        without = {(file.rpartition("/")[2], name) for file, name, record in records if "source" not in record and sources.source_of(name)}
        self.assertEqual(without, set())
        self.assertGreater(len({record["source"] for _, _, record in records if "source" in record}), 70)


if __name__ == "__main__":
    main()
