"""scripts/fa measure --mine on GPUs of each kind that are made up: what each runs and skips, what is shown and written. The kernels
are the real ones, which the emulator computes; times are 1 ms for each.

Usage: test_mine.py FAKE_LADDER
"""

import contextlib
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent / "scripts"))
from support import ROOT, ScriptTest, main

from fa_tools.cards import card_of
from fa_tools.measuring import measure, mine
from fa_tools.for_readers.limits import MACHINES
from fa_tools.records import check
from fa_tools.tools import read_json

PROGRAM = Path(sys.argv.pop())
KERNELS = sorted(path.stem for path in (ROOT / "kernels").glob("[0-9][0-9]_*.cu"))
SMALL = ("--batch", "1", "--heads", "1", "--iters", "1", "--warmup", "0", "--rounds", "1", "--rest-ms", "0")
HOPPER = [kernel for kernel in KERNELS if kernel >= "11"]
KNOWN = read_json(MACHINES)["machines"]
KINDS = {limits["compute_capability"]: gpu for gpu, limits in KNOWN.items()}


class Mine(ScriptTest):
    def measure(self, gpu, capability=None, shared_kib=99, sms=1, lengths=(128,), code=0):
        """(what it prints, the results) on a GPU of this name."""
        limits = KNOWN.get(gpu)
        if limits:
            capability, shared_kib, sms = limits["compute_capability"].replace(".", ""), limits["sm"]["cta_shared_kib"], limits["sm"]["count"]
        (self.folder / "cuda/bin").mkdir(parents=True, exist_ok=True)
        shutil.copy(PROGRAM, self.folder / "cuda/bin/attention")
        with mock.patch.object(mine, "LENGTHS", lengths), mock.patch.dict("os.environ", FAKE_GPU=f"{gpu},{capability},{shared_kib},{sms}"), \
                mock.patch.object(mine, "HOW", SMALL), \
                mock.patch.object(mine, "draw", lambda *drawn: self.drawn.append(drawn)), \
                contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as progress:
            self.drawn = []
            self.assertEqual(measure.main(["--mine", "--build", str(self.folder / "cuda"), "--output", str(self.folder / "out")]), code)
        data = read_json(self.folder / "out" / f"{card_of(gpu)}.json")
        for record in data["records"]:
            if record.get("registers") == 0:  # of which the emulator knows nothing
                record["registers"] = 1
        check(data)
        self.assertEqual(data["machine"]["gpu"], gpu)
        self.progress = progress.getvalue()
        self.assertLessEqual(max(map(len, out.getvalue().splitlines())), 100, out.getvalue())
        return out.getvalue(), data

    def ran(self, data, head_dim=128):
        return sorted({r["kernel"] for r in data["records"] if r["status"] == "passed" and r["head_dim"] == head_dim})

    def test_each_kind(self):
        """A T4 has too little shared memory for 03 and 04 with a head_dim of 128, and its Tensor Cores know no bf16."""
        self.assertEqual({*KINDS}, {"7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "12.0"})
        for gpu in KINDS.values():
            with self.subTest(gpu):
                text, data = self.measure(gpu)
                number = float(KNOWN[gpu]["compute_capability"])
                dtypes = {r["dtype"] for r in data["records"]}
                self.assertEqual(dtypes, {"bf16" if number >= 8 else "fp16"})
                expected = [] if number < 7.5 else KERNELS[:2] + KERNELS[4:6] if number < 8 else KERNELS if number == 9 else KERNELS[:10]
                self.assertEqual(self.ran(data), expected)
                for kernel in set(HOPPER) - set(expected):
                    self.assertRegex(text, rf"(?m)^  {kernel} +needs a GPU of compute capability 9.0, this one has {number}$")
                self.assertEqual(bool(self.drawn), bool(self.ran(data)))
                if expected:
                    peak = KNOWN[gpu]["tflops"]["tensor"]
                    self.assertIn(f"data sheet says of Tensor Cores, {peak:g} TFLOP/s here", text)
                    self.assertRegex(text, r"(?m)^01_naive +\S+ +[\d.]+ % ")

    def test_what_fits_with_half_the_head(self):
        text, data = self.measure("Tesla T4", lengths=(128, 256))
        self.assertIn("[2/2] 256 tokens, head_dim 128; ", self.progress)
        self.assertIn("[4/4] 256 tokens, head_dim 64; ", self.progress)
        self.assertEqual(self.ran(data), KERNELS[:2] + KERNELS[4:6])
        self.assertEqual(self.ran(data, 64), KERNELS[2:4])
        for kernel in KERNELS[2:4]:
            self.assertRegex(text, rf"(?m)^  {kernel} +with head_dim 128: needs \d+ bytes of shared memory a CTA, this GPU has\s+65536$")
        for kernel in KERNELS[6:10]:
            self.assertRegex(text, rf"(?m)^  {kernel} +needs a GPU of compute capability 8.0 or later, this one has 7.5$")
        self.assertIn("\nfp16, head_dim 64\n", text)

    def test_the_program_on_a_t4(self):
        """With fp16 and a head_dim of 64 the ladder goes as far as 06; with bf16 each kernel on Tensor Cores says what it takes."""
        for dtype, expected in (("fp16", KERNELS[:6]), ("bf16", KERNELS[:3])):
            file = self.folder / f"{dtype}.json"
            done = subprocess.run([PROGRAM, "--dtype", dtype, "--head-dim", "64", "--seq-len", "128", *SMALL, "--json", file], check=False,
                                  env={**os.environ, "FAKE_GPU": "Tesla T4,75,64,1"}, capture_output=True, text=True, timeout=120)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            data = read_json(file)
            self.assertEqual(self.ran(data, 64), expected)
            refused = {r["kernel"]: r["reason"] for r in data["records"] if r["status"] == "skipped"}
            for kernel in KERNELS[len(expected):6]:
                self.assertEqual(refused[kernel], "takes --dtype fp16, not bf16, which needs a GPU of compute capability 8.0 or later, this one has 7.5")
            for kernel in KERNELS[6:]:
                self.assertRegex(refused[kernel], rf"needs a GPU of compute capability {'8.0 or later' if kernel < '11' else '9.0'}, this one has 7.5$")

    def test_a_gpu_that_nobody_knows(self):
        text, data = self.measure("NVIDIA Unheard Of", 89)
        self.assertEqual(self.ran(data), KERNELS[:10])
        self.assertIn("bench/machines.json does not know NVIDIA Unheard Of, so there is no share of its peak.", text)

    def test_none_runs(self):
        text, _ = self.measure("Tesla V100-SXM2-16GB")
        self.assertIn("None of the kernels runs on this GPU.", text)
        self.assertIn("  01_naive                needs a GPU of compute capability 7.5 or later, this one has 7.0", text)

    def test_time_is_up(self):
        with mock.patch.object(mine, "LIMIT", -1):
            _, data = self.measure("Tesla T4", lengths=(128, 256))
        self.assertEqual({r["seq_len"] for r in data["records"]}, {128})
        self.assertIn(" s are over, so 256 tokens of head_dim 128 are left out.", self.progress)

    def test_a_program_that_fails(self):
        """What was measured before is kept and shown."""
        (self.folder / "cuda/bin").mkdir(parents=True)
        program = self.folder / "cuda/bin/attention"
        program.write_text(f'#!/bin/sh\ncase "$*" in *"--seq-len 256"*) echo "error: no" >&2; exit 3;; esac\nexec {PROGRAM} "$@"\n')
        program.chmod(0o755)
        with mock.patch.object(shutil, "copy"):
            text, data = self.measure("Tesla T4", lengths=(128, 256), code=3)
            self.assertIn("error: ", self.progress)
            self.assertIn(" ended with 3 at 256 tokens: no", self.progress)
            self.assertIn("01_naive", self.ran(data))
            with self.assertRaisesRegex(mine.Failed, "^[^(]* ended with 3 at 256 tokens: no"):
                self.measure("Tesla T4", lengths=(256,))

    def test_refused(self):
        for words, sentence in ((("--mine", "15"), "name kernels, or give one of"), (("--mine", "--only", "ladder"), "does not go with --only"),
                                (("--mine", "--build", "/nowhere"), "/nowhere/bin/attention is not built")):
            with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
                measure.main([*words])
            self.assertIn(sentence, said.getvalue())


if __name__ == "__main__":
    main()
