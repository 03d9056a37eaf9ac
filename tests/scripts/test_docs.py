"""What keeps the Markdown true: generated excerpts, diffs, tables and values; links and anchors."""

import json
import re
import unittest
from pathlib import Path
from unittest import mock

from support import (CUDA, ROOT, SCRIPTS, ScriptTest, beyond, cuda_record, cuda_results, emulator_results, main, needs_venv,
                     not_passed, results)

from fa_tools import patches, tools
from fa_tools.cards import BOOK, EMULATOR
from fa_tools.documents import beyond_tables, sync

KERNEL = """#include "x.h"
namespace fa::k01 {
  // [main-loop]
  for (int i = 0; i < n; i++) {
    // [inner]
    sum += i;
    // [/inner]
  }
  // [/main-loop]
}
"""


class SyncDocs(ScriptTest):
    def setUp(self):
        super().setUp()
        self.root = self.checkout()
        (self.root / "kernels" / "01_naive.cu").write_text(KERNEL)
        (self.root / "kernels" / "02_next.cu").write_text(KERNEL.replace("k01", "k02").replace("sum += i", "sum -= i"))
        folder = self.root / "bench" / "results" / BOOK
        folder.mkdir()
        (folder / "gpu.json").write_text(json.dumps(cuda_results()))
        (folder / "emulator.json").write_text(json.dumps(emulator_results()))
        launch = {"kernel": "02_online_softmax", "function": "attention_kernel", "metrics": {"cycles": 1234567}}
        shape = {"dtype": "bf16", "batch": 1, "heads": 2, "seq_len": 256, "head_dim": 128}
        (folder / "profile.json").write_text(json.dumps({"profile_version": 1, "gpu": "NVIDIA H200", **shape, "launches": [launch]}))
        (folder.parent / EMULATOR).mkdir()
        tools.write_set(folder.parent / EMULATOR / "solutions.jsonl", {"02_x": emulator_results()})

    def sync(self, text, *options):
        self.file = self.root / "doc.md"
        self.file.write_text(text)
        return self.run_script(self.root / "scripts" / "fa", "sync", *options)

    def synced(self, text):
        done = self.sync(text)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = self.file.read_text()
        # Once more changes nothing, and --check agrees.
        done = self.run_script(self.root / "scripts" / "fa", "sync")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertEqual(self.file.read_text(), result)
        self.assertEqual(self.run_script(self.root / "scripts" / "fa", "sync", "--check").returncode, 0)
        return result

    def test_other_problems_only_when_asked_for(self):
        full = cuda_record("beyond/causal", 600.0)
        causal, grouped = beyond(full, 500.0, mask="causal"), beyond(full, 400.0, mask="causal", kv_heads=8)
        (self.root / "bench" / "results" / BOOK / "masks.json").write_text(json.dumps(results(CUDA, [full, causal, grouped])))
        self.assertIn("1 and 600<!--= masks beyond/causal @1024 --> and 400<", self.synced(
            "1 and 0<!--= masks beyond/causal @1024 --> and 0<!--= masks causal beyond/causal kv_heads=8 -->\n"))
        self.assertIn("2 records match", self.sync("0<!--= masks beyond/causal causal @1024 -->\n").stderr)
        block = "<!-- lengths: masks mask=* -->\n<!-- /lengths -->\n"
        self.assertIn("not of one problem", self.sync(block).stderr)

    def test_code_is_left_alone(self):
        text = "```\n<!-- excerpt: nowhere#x -->\n1<!--= no x -->\n```\n`1<!--= no x -->`\n"
        self.assertEqual(self.synced(text), text)

    def test_check_names_the_drift(self):
        text = "<!-- excerpt: kernels/01_naive.cu#main-loop -->\nold\n<!-- /excerpt -->\n" \
               "x 9.99<!--= gpu 01 -->\n"
        done = self.sync(text, "--check")
        self.assertEqual(done.returncode, 1)
        self.assertIn("doc.md:1: the excerpt of kernels/01_naive.cu#main-loop is out of date", done.stderr)
        self.assertIn("doc.md:4: 9.99 should be 2.50", done.stderr)
        self.assertEqual(self.file.read_text(), text)
        self.assertEqual(self.synced(text), "<!-- excerpt: kernels/01_naive.cu#main-loop -->\n```cuda\nfor (int i = 0; i < n; i++) {\n  sum += i;\n"
                         "}\n```\n<!-- /excerpt -->\nx 2.50<!--= gpu 01 -->\n")

    def test_one_field_over_another_beside_that_of_another_kernel(self):
        """Kernel 02 has four times the TFLOP/s of kernel 01 in a quarter of the time."""
        self.assertIn("16.0<!--", self.synced("0.0<!--= gpu 02/01 tflops/time_ms.median @1024 -->\n"))

    def test_what_cannot_be_made(self):
        cases = {
            "<!-- excerpt: kernels/01_naive.cu#nope -->\n<!-- /excerpt -->": "exactly one pair",
            "<!-- excerpt: kernels/99.cu -->\n<!-- /excerpt -->": "there is no file kernels/99.cu",
            "<!-- diff: kernels/01_naive.cu -->\n<!-- /diff -->": "two files",
            "<!-- diff: kernels/01_naive.cu kernels/02_next.cu -->\n<!-- /diff -->": "needs one to ten of the lines that change",
            "<!-- diff: kernels/01_naive.cu kernels/02_next.cu -->\n+ sum += i;\n<!-- /diff -->": "no line changes from kernels/01_naive.cu to",
            "<!-- line: kernels/01_naive.cu -->\n<!-- /line -->": "the block needs one line",
            "<!-- line: kernels/01_naive.cu kernels/02_next.cu -->\nsum += i;\n<!-- /line -->": "no line of kernels/02_next.cu that belongs",
            "<!-- line: kernels/01_naive.cu kernels/02_next.cu -->\n-int x;\n+int y;\n<!-- /line -->": "no line of kernels/01_naive.cu that belongs",
            "<!-- line: kernels/01_naive.cu kernels/02_next.cu -->\n-int x;\n<!-- /line -->": "the block needs one line",
            "<!-- grid: gpu -->\n<!-- /grid -->": "a grid needs a table",
            "<!-- grid: gpu @9 -->\n||<!--= tflops -->|\n|-|-|\n|<!--= 01 -->|1|\n<!-- /grid -->": "0 records match instead of one (01 tflops gpu @9)",
            "<!-- table: bench/results/none.json -->\n<!-- /table -->": "cannot be read",
            "<!-- table: gpu kernel=17* -->\n<!-- /table -->": "no record",
            "<!-- table: profile -->\n<!-- /table -->": "a profile",
            "<!-- profile: emulator -->\n<!-- /profile -->": "not a profile",
            "<!-- profile: profile metrics=beauty -->\n<!-- /profile -->": "no metric beauty",
            "<!-- profile: profile metrics=cycles,xu_percent -->\n<!-- /profile -->": "no xu_percent of 02_online_softmax",
            "<!-- solutions: 02_none -->\n<!-- /solutions -->": "has no 02_none",
            "<!-- table: gpu\n": None,
            "<!-- excerpt: kernels/01_naive.cu -->": "never closed",
            "1<!--= gpu 02 -->": "2 records match instead of one (gpu 02)",
            "1<!--= gpu 17 -->": "'17' of 'gpu 17' is neither a record's name nor a field",
            "1<!--= gpu 01 beauty -->": "there is no beauty",
            "1<!--= gpu 01 tflops cycles -->": "'cycles' of 'gpu 01 tflops cycles' is neither a record's name nor a field",
            "1<!--= gpu 01 colour=red -->": "'colour' is no field to select by",
            "1<!--= gpu machine.gpu -->": "machine.gpu is no number",
            "1<!--= gpu 02/01 dtype @1024 -->": "dtype is no number",
            "1<!--= beauty 01 -->": "'beauty 01' names no results file",
            "x<!--= gpu 01 -->": "no number stands before <!--= gpu 01 -->",
        }
        for text, expected in cases.items():
            with self.subTest(text):
                done = self.sync(text + "\n")
                self.assertEqual(done.returncode, 1 if expected else 0)
                self.assertIn(expected or "", done.stderr)

    def test_this_checkout_is_in_sync(self):
        self.run_script(SCRIPTS / "fa", "sync", "--check", code=0)


class OfShapes(ScriptTest):
    """The tables of problems that a seed has drawn, from files of made-up results."""

    def record(self, kernel, seq_len, **ratios):
        """One that passed, with this ratio to each of these peers."""
        return {**beyond(cuda_record(kernel, 100.0, seq_len), mask="causal"), **({"ratio": {f"peer/{peer}": ratio for peer, ratio in ratios.items()}} if ratios else {})}

    def tables(self, **files):
        """Both, without headings."""
        lines = "".join(json.dumps({"name": name.removeprefix("of_"), "results": results(CUDA, records)}) + "\n" for name, records in files.items())
        self.write(f"{BOOK}/shapes.jsonl", lines)
        with mock.patch.object(beyond_tables, "RESULTS", self.folder):
            return [list(beyond_tables.table(f"shapes {which}")) for which in ("spread", "worst")]

    def test_ratios_of_our_fastest_kernel_and_of_what_best_takes(self):
        slower, chosen = self.record("beyond/causal", 128, fa3=0.5, cudnn=0.9), {**self.record("beyond/split_keys", 128, fa3=0.8, cudnn=1.4), "chosen": True}
        first = [slower, chosen, self.record("peer/fa3", 128), {**self.record("beyond/causal", 256, fa3=1.25), "chosen": True}]
        other = [self.record("beyond/causal", 512, cudnn=0.97), {**self.record("beyond/split_keys", 512, cudnn=0.93), "chosen": True}]
        spread, worst = self.tables(of_3_in_a_row=other, of_1=first, of_2=[self.record("beyond/causal", 512, fa3=1.0)])
        self.assertEqual(spread, [
            "|  | one by one, our fastest | one by one, `best` | 20 in a row, our fastest | 20 in a row, `best` |", "|-|-:|-:|-:|-:|",
            "| problems compared | 3 | 2 | 1 | 1 |", "| geometric mean | 1.00 | 1.00 | 0.97 | 0.93 |",
            "| geometric mean of seed 1, 2, 3 | 1.00, 1.00, – | 1.00, –, – | –, –, 0.97 | –, –, 0.93 |",
            "| least | 0.80 | 0.80 | 0.97 | 0.93 |", "| below 1, % | 33.3 | 50.0 | 100.0 | 100.0 |", "| below 0.95, % | 33.3 | 50.0 | 0.0 | 100.0 |",
            "| at most 3 % slower than our fastest, % | – | 66.7 | – | 0.0 |",
            "| left out, because ours has no time | 0 | 1 | 0 | 0 |", "| left out, because no library has one | 0 | 0 | 0 | 0 |"])
        self.assertEqual(worst[2:], [
            "| bf16, batch 128, 16 heads, 128 tokens, head_dim 128, causal | one by one | `split_keys` | `fa3` | 0.80 | 0.80 |",
            "| bf16, batch 32, 16 heads, 512 tokens, head_dim 128, causal | 20 in a row | `causal` | `cudnn` | 0.97 | 0.93 |",
            "| bf16, batch 32, 16 heads, 512 tokens, head_dim 128, causal | one by one | `causal` | `fa3` | 1.00 | – |",
            "| bf16, batch 64, 16 heads, 256 tokens, head_dim 128, causal | one by one | `causal` | `fa3` | 1.25 | 1.25 |"])

    def test_what_has_no_time_is_counted(self):
        """Ours skipped or wrong, what "best" takes alone, and every library."""
        ours, peer = self.record("beyond/causal", 128, fa3=1.5), self.record("peer/fa3", 128)
        of = [[ours, peer], [not_passed(self.record("beyond/causal", 256), "wrong", "head 3"), not_passed(self.record("beyond/split_keys", 256), "skipped", "why"),
                             self.record("peer/fa3", 256)],
              [self.record("beyond/causal", 512, fa3=1.1), not_passed({**self.record("beyond/split_keys", 512), "chosen": True}, "error", "gone")],
              [self.record("beyond/causal", 1024), not_passed(self.record("peer/fa3", 1024), "skipped", "why")]]
        spread, worst = self.tables(of_1=[record for records in of for record in records])
        self.assertEqual(spread[2], "| problems compared | 2 | 0 |")
        self.assertEqual(spread[-3:], ["| at most 3 % slower than our fastest, % | – | 0.0 |", "| left out, because ours has no time | 1 | 4 |",
                                       "| left out, because no library has one | 1 | 0 |"])
        self.assertEqual([row[-12:] for row in worst[2:]], ["| 1.10 | – |", "| 1.50 | – |"])

    def test_a_single_query(self):
        _, worst = self.tables(of_1=[{**self.record("beyond/split_keys", 128, fa3=1.5), "seq_len": 1, "kv_len": 77}])
        self.assertTrue(worst[2].startswith("| bf16, batch 128, 16 heads, 1 query, head_dim 128, causal, 77 keys | one by one |"), worst)

    def test_a_kernel_that_has_changed_since(self):
        spread, worst = self.tables(of_1=[{**self.record("beyond/causal", 128, fa3=1.5), "source": "0" * 16}])
        self.assertIn("| least | 1.50† | – |", spread)
        self.assertTrue(worst[2].endswith("| 1.50† | – |"))


class OfScores(ScriptTest):
    def test_a_row_for_each_kernel_that_took_the_problem(self):
        """In brackets the ratio to the fastest library; FlashAttention-3 is of the package that has it."""
        def record(kernel, tflops, seq_len, **ratios):
            return {**cuda_record(kernel, tflops, seq_len), **({"ratio": ratios} if ratios else {})}

        files = {"window": [record("beyond/causal", 400.0, 8192, a=1.5, b=1.25), record("peer/fa3_window", 320.0, 8192), record("peer/cudnn_frontend", 300.0, 16384)],
                 "softcap": [record("beyond/causal", 500.0, 4096), record("peer/fa3", 480.0, 4096)]}
        with mock.patch.object(beyond_tables, "records", lambda file, name: files.get(name, []) if file == "beyond" else []):
            table = list(beyond_tables.table("beyond_scores speed"))
        self.assertEqual(table, [
            "|  | N = 4096 | N = 8192 | N = 16384 |", "|-|-:|-:|-:|",
            "| `causal`, causal, a window of 1024,0 | – | 400 (1.25) | – |", "| FlashAttention-3, causal, a window of 1024,0 | – | 320 | – |",
            "| cuDNN, causal, a window of 1024,0 | – | – | 300 |",
            "| `causal`, a softcap of 30 | 500 | – | – |", "| FlashAttention-3, a softcap of 30 | 480 | – | – |"])


class NotYet(ScriptTest):
    def test_before_anything_was_measured(self):
        """On a card without results. Those of the book's card are in the documents, which scripts/fa sync holds to it."""
        for group, tables in beyond_tables.TABLES.items():
            for which in tables:
                with mock.patch.object(beyond_tables, "RESULTS", self.folder), mock.patch.object(beyond_tables, "has_file", lambda *_: False):
                    self.assertEqual(list(beyond_tables.table(f"{group} {which}")),
                                     [f"(Not measured yet: on an H200 <!-- needs: gpu -->`scripts/fa measure --only {group}` does it.)"])
        with self.assertRaisesRegex(tools.Refused, "^there is no table fp8 speeds; there are fp8 speed, fp8 inputs, .*, shapes worst$"):
            beyond_tables.table("fp8 speeds")


class Expanded(unittest.TestCase):
    """What the site puts where the Markdown says less."""

    def test_whole_diffs(self):
        text = (ROOT / "docs" / "08_swizzle.md").read_text(encoding="utf-8")
        added = int(re.search(r"^This step adds (\d+) lines", text, re.MULTILINE)[1])
        whole = sync.with_whole_diffs(text)
        diff = whole.split("<summary>The whole diff</summary>\n\n```diff\n")[1].split("```")[0].splitlines()
        self.assertEqual(diff[:2], ["--- kernels/07_cp_async.cu", "+++ kernels/08_swizzle.cu"])
        self.assertEqual(sum(line.startswith("+") for line in diff[2:]), added)
        self.assertEqual(whole.count("<details>"), text.count("<details>") + 1)


class Outputs(ScriptTest):
    """scripts/fa outputs with a stand-in for scripts/fa inspect."""

    def setUp(self):
        super().setUp()
        self.root = self.checkout()
        self.file = self.root / "09_x.md"
        self.show("$ scripts/fa inspect 09")
        self.inspect("echo '09_x, bf16, sm_90a, nvcc 13.0.88'; echo 829 instructions")

    def show(self, text):
        self.file.write_text(f"Before.\n\n```text\n{text}\n```\n\nAfter.\n")

    def shown(self):
        return self.file.read_text().split("```")[1].removeprefix("text\n")

    def inspect(self, text):
        (self.root / "scripts" / "fa_tools" / "for_readers" / "inspect_kernel.py").write_text(
            "import subprocess, sys\n"
            f"sys.exit(subprocess.call(['sh', '-c', {'echo run >>runs' + chr(10) + text!r}, 'inspect', *sys.argv[1:]]))\n")

    def outputs(self, *options):
        return self.run_script(self.root / "scripts" / "fa", "outputs", *options)

    def test_written_and_checked(self):
        self.assertEqual(self.outputs("--check").returncode, 1)
        self.assertEqual(self.outputs().returncode, 0)
        self.assertEqual(self.file.read_text(), "Before.\n\n```text\n$ scripts/fa inspect 09\n"
                         "09_x, bf16, sm_90a, nvcc 13.0.88\n829 instructions\n```\n\nAfter.\n")
        self.assertEqual(self.outputs("--check", "--only", "emulator").returncode, 0)
        self.inspect("echo '09_x, bf16, sm_90a, nvcc 13.0.88'; echo 830 instructions")
        done = self.outputs("--check", "--only", "emulator")
        self.assertEqual(done.returncode, 1)
        self.assertIn("-829 instructions\n+830 instructions\n", done.stderr)
        self.assertIn("--- 09_x.md\n", done.stderr)
        self.assertEqual(self.outputs("--check", "--scripts").returncode, 1)
        self.assertEqual(self.outputs("--check", "--only", "emulator-checked").returncode, 0)
        (self.root / "other.md").write_text("No output.\n")
        self.assertEqual(self.outputs("--check", self.root / "other.md").returncode, 0)
        self.assertEqual(self.outputs("--check", self.file).returncode, 1)

    def test_what_is_not_shown(self):
        """Numbers of lines: one more line of comment in a kernel changes no document."""
        self.inspect("echo 'kernels/08_x.cu:123, at src/a.h:7: lines 10 to 20, line 3, at 0x7f'")
        self.assertEqual(self.outputs().returncode, 0)
        self.assertIn("\nkernels/08_x.cu:…, at src/a.h:…: lines … to …, line …, at 0x...\n", self.shown())
        self.inspect("echo 'kernels/08_x.cu:125, at src/a.h:9: lines 12 to 22, line 5, at 0x70'")
        self.assertEqual(self.outputs("--check").returncode, 0)
        self.show("$ scripts/fa inspect 09 --control")
        self.inspect("echo 'addr stall   instruction      line'; echo '26d0   1     LDSM R156, [R187+0x10]     140'")
        self.outputs()
        self.assertEqual(self.shown(), "$ scripts/fa inspect 09 --control\naddr stall   instruction\n"
                         "26d0   1     LDSM R156, [R187+0x10]\n")

    def test_of_a_bug_only_its_message(self):
        """What the program broken prints above its message, the message says again; a bug without one shows its table."""
        program = self.root / "build" / "emulator" / "bin" / "broken"
        program.parent.mkdir(parents=True)
        table = ("emulator, fast build, 7 threads\nbf16, batch 1\n\nkernel  status  error\n01_x    {}\n")
        for verdict, message, shown in (("wrong   nan", "\n01_x: O[row 0] is not a finite number\n", "...\n01_x: O[row 0] is not a finite number\n"),
                                        ("passed  1e-3", "", table.replace("7", "2").format("passed  1e-3"))):
            with self.subTest(verdict):
                program.write_text(f"#!/bin/sh\ncat <<'END'\n{table.format(verdict)}{message}END\n")
                program.chmod(0o755)
                self.show("$ build/emulator/bin/broken 01_x")
                self.assertEqual(self.outputs().returncode, 0)
                self.assertEqual(self.shown(), f"$ build/emulator/bin/broken 01_x\n{shown}")

    def test_another_compiler_and_none(self):
        self.outputs()
        old = self.file.read_text()
        for text in ("echo '09_x, bf16, sm_90a, nvcc 13.1.2'; echo 800 instructions",
                     "echo 'error: there is no nvcc here' >&2; exit 4"):
            with self.subTest(text):
                self.inspect(text)
                for options in ([], ["--check"]):
                    done = self.outputs(*options)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn("1 left out", done.stdout)
                    self.assertEqual(self.file.read_text(), old)

    def test_what_needs_something_else(self):
        self.show("$ scripts/run.sh 09")
        self.file.write_text(self.file.read_text().replace("```text", "<!-- needs: gpu -->\n```text"))
        self.assertEqual(self.outputs("--check").returncode, 0)

    def test_other_commands_are_refused(self):
        for command in ("scripts/run.sh 09", "python3 -c 1"):
            self.show(f"$ {command}")
            self.assert_one_sentence(self.outputs(), "09_x.md:3: the output's command runs none of")

    def test_opcodes_of_a_loop(self):
        file = self.root / "bench" / "main_loops.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"compiler": "nvcc 13.0.88", "kernels": {"08": ""}}, indent=1) + "\n")
        self.inspect("echo 'attention_kernel, main loop, nvcc 13.0.88'; echo '1f90  IMAD.SHL.U32 R2, R28, 0x3, RZ    146 rK'; "
                     "echo '1fa0  @!P0 BRA `(.L_x_84)    389 if (x) {'; echo '1fb0  LDSM.16 R4    12 x'")
        self.file.write_text("none\n")
        self.assertEqual(self.outputs("--check").returncode, 1)
        self.assertEqual(self.outputs().returncode, 0)
        self.assertEqual(json.loads(file.read_text())["kernels"], {"08": "IMAD BRA LDSM"})
        self.assertEqual(self.outputs("--check").returncode, 0)

    def test_times_in_the_notebook(self):
        """The last part of a cell's output; all other cells and lines stay, as do letters beyond ASCII."""
        def cells(last):
            return {"cells": [{"id": name, "outputs": [{"text": ["05 ███\n", "What bounds it: a\n", last]}]} for name in ("run", "compare")]}

        self.file.write_text("none\n")
        file = self.root / "docs" / "start.ipynb"
        file.parent.mkdir()
        file.write_text(json.dumps(cells("µs 1\n"), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (self.root / "scripts" / "fa_tools" / "for_readers" / "bounds.py").write_text(
            "import sys\ndef main(): print('What bounds it: a\\nµs 2', *sys.argv[1:])\n", encoding="utf-8")
        self.assertEqual(self.outputs("--check").returncode, 1)
        self.assertEqual(self.outputs(file).returncode, 0)
        right = cells("µs 2 05 06\n")
        right["cells"][0] = cells("µs 1\n")["cells"][0]
        self.assertEqual(file.read_text(encoding="utf-8"), json.dumps(right, indent=1, ensure_ascii=False) + "\n")
        self.assertEqual(self.outputs("--check").returncode, 0)


class ThisCheckout(ScriptTest):
    """What the chapters are made from is up to date."""

    def test_pictures(self):
        self.run_script(SCRIPTS / "fa", "pictures", "--check", code=0)

    def test_the_debugger_session_is_the_one_that_is_tested(self):
        page = (ROOT / "docs" / "emulator" / "mistakes.md").read_text(encoding="utf-8")
        session = page.index("<!-- excerpt: tests/gdb/session.gdb -->")
        self.assertGreater(page.index("$ gdb -q -batch -x tests/gdb/session.gdb build/emulator-debug/bin/"), session)

    def test_regions_that_links_name(self):
        """[`ring` in mma_sync.cu](...): the source has lines // [ring] and // [/ring]."""
        found = 0
        for page in sorted((ROOT / "docs").rglob("*.md")):
            for region, name, target in re.findall(r"\[`([a-z-]+)` in ([\w.]+)\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
                lines = [line.strip() for line in (page.parent / target).read_text(encoding="utf-8").splitlines()]
                self.assertEqual((Path(target).name, lines.count(f"// [{region}]"), lines.count(f"// [/{region}]")), (name, 1, 1))
                found += 1
        self.assertGreaterEqual(found, 14)

    def test_solutions_fit_the_kernels(self):
        known, measured = patches.solutions(), tools.read_set(tools.RESULTS / EMULATOR / "solutions.jsonl")
        self.assertGreaterEqual(len(known), 62)
        for name, places in known.items():
            with self.subTest(name):
                (source,) = (ROOT / "kernels").glob(f"{name[:2]}_*.cu")
                text = source.read_text(encoding="utf-8")
                other = patches.changed(text, places)
                self.assertNotEqual(other, text)
                self.assertEqual(patches.changed(other, places, undo=True), text)
                self.assertIn(name, measured)

    def test_solutions_are_applied_and_taken_back(self):
        root = self.checkout()
        (root / "docs").mkdir()
        (root / "docs" / "02_x.md").write_text("```diff\n@@ 02_more\n int f() {\n-  return 1;\n+  return 2;\n }\n@@\n-int last;\n```\n")
        kernel = root / "kernels" / "02_x.cu"
        kernel.write_text("int f() {\n  return 1;\n}\n\nint last;\n")
        before = kernel.read_text()

        def run(*options):
            return self.run_script(root / "scripts" / "fa", "solutions", *options)

        self.assertEqual(run("--apply", "02_more").stdout, "applied 02_more: kernels/02_x.cu\n")
        self.assertEqual(kernel.read_text(), "int f() {\n  return 2;\n}\n\n")
        self.assert_one_sentence(run("--apply", "02_more"), "02_more expects 'int last;' once in the kernel", "there 0 times", code=1)
        kernel.write_text(before)
        self.assert_one_sentence(run("--undo", "02_more"), "was it applied?", code=1)
        self.assert_one_sentence(run("--apply", "02_x"), "02_x is a kernel, not a solution")
        self.assert_one_sentence(run("--undo", "02_less"), "there is no solution 02_less")
        self.assertEqual(kernel.read_text(), before)


class Links(ScriptTest):
    def setUp(self):
        super().setUp()
        self.root = self.checkout()
        (self.root / "docs").mkdir()
        (self.root / "kernels" / "01_naive.cu").write_text(KERNEL)
        (self.root / "docs" / "01.diff").write_text("=== 01_a\n-x\n")
        (self.root / "docs" / "a.md").write_text("# One `thing`, twice!\n## Same\n## Same\n<a id='own'></a>\n")

    def check(self, text):
        (self.root / "README.md").write_text(text)
        return self.run_script(self.root / "scripts" / "fa", "links")

    def test_anchors_and_states_of_an_explorer(self):
        for link, code in (("docs/01.diff#01_a", 0), ("docs/a.md?k128#own", 0), ("docs/a.md?k128#k128", 1), ("docs/none.md?k128", 1)):
            self.assertEqual(self.check(f"[x]({link})\n").returncode, code, link)

    def test_bad_links(self):
        cases = {
            "[x](docs/none.md)": "docs/none.md leads nowhere",
            "<!-- value: x -->5<!-- /value --> ms": "begins with a comment: put a word before it",
            "[x](docs/A.md)": "docs/A.md leads nowhere",
            "[x](docs/a.md#two)": "no heading for the anchor #two",
            "[x](#nope)": "no heading for the anchor #nope",
            "![x](chart.png)": "chart.png leads nowhere",
            '<img alt="a chart" src="chart.svg">': "chart.svg leads nowhere",
            '<source srcset="dark.svg">': "dark.svg leads nowhere",
            "[![x](inner.png)](docs/a.md)": "inner.png leads nowhere",
            "[r]: gone.md": "gone.md leads nowhere",
            "[x](../outside.md)": "leaves the repository",
            "[x](kernels/01_naive.cu#L99)": "has only 10 lines",
            "[x](docs/01.diff#01_b)": "docs/01.diff has no line === 01_b",
        }
        for text, expected in cases.items():
            with self.subTest(text):
                self.assert_bad(text, expected)

    def assert_bad(self, text, expected):
        done = self.check(f"text\n\n{text}\n")
        self.assertEqual(done.returncode, 1, text)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("README.md:3: "), done.stderr)
        self.assertIn(expected, done.stderr)

    def test_pictures(self):
        (self.root / "p.svg").write_text('<svg><g id="at-12"/></svg>')
        self.assertEqual(self.check("`<img>` ![words](p.svg) ![words](p.svg#at-12)\n").returncode, 0)
        for text, expected in (
            ('<img src="p.svg">', "an image has no words"), ('<img alt=" " src="p.svg">', "an image has no words"),
            ("![](p.svg)", "an image has no words"), ("![words](p.svg#at-13)", "p.svg has nothing with the id at-13"),
        ):
            with self.subTest(text):
                self.assert_bad(text, expected)

    def test_formulas(self):
        good = ("$x$ and $a_b = \\frac{1}{2}$, $$y$$ `$z` costs $5 and \\$6\n\n$$\nx = 1\n$$\n\n```\n$ command\n```\n")
        done = self.check(good)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("4 formulas are closed", done.stdout)
        for text, expected in (
            ("a $x and no more", "a formula has a $ on one side only"),
            ("a $x$ and $y", "a formula has a $ on one side only"),
            ("$$x", "a formula is not closed by $$"),
            ("$$x\n\nmore$", "a formula is not closed by $$ before the paragraph ends"),
            ("$\\frac{1}{2$", "the formula \\frac{1}{2 has unequal numbers of { and }"),
            ("$a}{$", "has unequal numbers of { and }"),
            ("$a \\, b$", "has \\,, of which a code host's Markdown takes the backslash away"),
        ):
            with self.subTest(text):
                if text.endswith("more$"):
                    self.assertIn(expected, self.check(f"text\n\n{text}\n").stderr)
                else:
                    self.assert_bad(text, expected)

    @needs_venv("latex2mathml")
    def test_formulas_are_convertible(self):
        (self.root / ".venv").symlink_to(ROOT / ".venv")
        self.assert_bad("$\\frac$", "cannot be converted to MathML")
        self.assert_bad("$\\nonsense{x}$", "has \\nonsense, which the conversion to MathML does not know")
        self.assertRegex(self.run_script(SCRIPTS / "fa", "links").stdout, "formulas are closed and convertible")

    def test_links_of_this_checkout(self):
        self.assertEqual(self.run_script(SCRIPTS / "fa", "links").stderr, "")


if __name__ == "__main__":
    main()
