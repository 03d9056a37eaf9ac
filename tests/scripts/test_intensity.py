"""Arithmetic intensity: the formula against the bytes that the emulator counted, and against hand-made cases."""

import json
import re
import sys
import unittest

from support import ROOT, SCRIPTS, ScriptTest, main

from fa_tools import tuning
from fa_tools.intensity import attention_flops, intensity

PROGRAM = SCRIPTS / "fa", "intensity"
WAVEFRONT = 128  # bytes: 32 banks of 4


def counted():
    """{kernel: its record} of the committed counters: bf16, batch 1, 2 heads, 256 tokens, head_dim 128."""
    data = json.loads((ROOT / "bench" / "results" / "emulator_n256.json").read_text(encoding="utf-8"))
    return {record["kernel"]: record for record in data["records"]}


def tile(kernel):
    """block_m and block_n as the kernel's source says them."""
    source = (ROOT / "kernels" / f"{kernel}.cu").read_text(encoding="utf-8")
    return {f"block_{x.lower()}": int(re.search(rf"kBlock{x} = (\d+);", source)[1]) for x in "MN"}


def tile_of_10():
    """What 10_tuning.h says for sm_90 and head_dim 128."""
    choice = tuning.choice_of(90, 128)
    return {"block_m": choice.block_m(), "block_n": choice.block_n, "warp_rows": choice.row_tiles * 16,
            "q_once": choice.q_in_registers, "o_staged": True}


class AgainstTheEmulator(unittest.TestCase):
    def check(self, kernel, level, of_kernel, **how):
        record = counted()[kernel]
        work = intensity(level, head_dim=record["head_dim"], seq_len=record["seq_len"], **how)
        heads = record["batch"] * record["heads"]
        self.assertEqual(work.bytes * heads, of_kernel(record["counters"]), kernel)
        return work, record

    def test_bytes_asked_of_global_memory(self):
        for kernel in ("02_online_softmax", "03_register_tiling", "04_wmma", "06_mma_split_q", "08_swizzle"):
            with self.subTest(kernel):
                how = tile(kernel)
                self.check(kernel, "l2", lambda c: c["global_bytes"], **how, warp_rows=how["block_m"])
        self.check("10_instruction_tuning", "l2", lambda c: c["global_bytes"], **tile_of_10())

    def test_bytes_of_shared_memory(self):
        def wavefronts(counters):
            return counters["shared_wavefronts"] * WAVEFRONT

        for kernel, how in (("08_swizzle", {}), ("09_fragment_pipelining", {"q_once": True})):
            with self.subTest(kernel):
                self.check(kernel, "shared", wavefronts, **tile(kernel), **how)
        self.check("10_instruction_tuning", "shared", wavefronts, **tile_of_10())

    def test_conflicts_come_on_top(self):
        """07 moves as many bytes as 08; its conflicts only make more wavefronts of them."""
        self.check("07_cp_async", "shared", lambda c: c["shared_wavefronts_ideal"] * WAVEFRONT, **tile("07_cp_async"))

    def test_flops_are_those_of_the_tensor_cores(self):
        """With the factor two of a fused multiply-add."""
        work, record = self.check("08_swizzle", "l2", lambda c: c["global_bytes"], **tile("08_swizzle"))
        self.assertEqual(work.flops * record["batch"] * record["heads"], record["counters"]["matrix_flops"])


class Formula(unittest.TestCase):
    def test_limits(self):
        # One pass over Q, K, V, O: 4 N^2 D FLOPs over 4 N D elements of 2 bytes.
        self.assertEqual(intensity("hbm", 64, 64, 128, 4096).intensity, 4096 / 2)
        # A tile of all queries asks for no more than that; one of 64 queries at most for 64 FLOPs a byte.
        self.assertEqual(intensity("l2", 4096, 64, 128, 4096).intensity, 4096 / 2)
        self.assertAlmostEqual(intensity("l2", 64, 64, 128, 2**20).intensity, 64, places=1)
        self.assertEqual(intensity("l2", 64, 64, 128, 4096).intensity, 64 * 4096 / (64 + 4096))
        # Shared memory: the rows of a warp bound it, whatever the tile.
        self.assertLess(intensity("shared", 4096, 64, 128, 4096, q_once=True).intensity, 16)
        self.assertGreater(intensity("shared", 4096, 64, 128, 4096, warp_rows=32, q_once=True).intensity, 30)
        self.assertEqual(intensity("hbm", 64, 64, 128, 4096, element_bytes=1).intensity, 4096)

    def test_flops(self):
        self.assertEqual(attention_flops(3, 16, 1024, 64), 4 * 3 * 16 * 1024 * 1024 * 64)

    def test_what_cannot_be(self):
        for arguments in (("l1", 64, 64, 128, 4096), ("l2", 48, 64, 128, 4096), ("l2", 64, 96, 128, 4096)):
            with self.subTest(arguments), self.assertRaises(ValueError):
                intensity(*arguments)


class Program(ScriptTest):
    def run_program(self, *arguments):
        return self.run_script(sys.executable, "-B", PROGRAM, *arguments)

    def test_table(self):
        done = self.run_program("--block-m", "64", "--block-n", "64", "--head-dim", "128", "--seq-len", "4096")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {line.split()[0]: line.split() for line in done.stdout.splitlines()[3:]}
        self.assertEqual(rows["l2"][1:7], ["8,589.9", "136.31", "63.0", "756", "TFLOP/s", "(l2,"])
        self.assertEqual(rows["hbm"][3:5], ["2,048.0", "989"])
        self.assertEqual(rows["shared"][3:5], ["11.6", "360"])
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)
        self.assertIn("A100", self.run_program("--gpu", "NVIDIA A100-SXM4-80GB").stdout)

    def test_refused(self):
        self.assert_one_sentence(self.run_program("--block-m", "48"), "warp_rows must divide block_m")
        self.assert_one_sentence(self.run_program("--seq-len", "-1"), "--seq-len must be at least 1")
        self.assert_one_sentence(self.run_program("--gpu", "A1"), "has no GPU A1; it knows NVIDIA H200")
        self.assert_one_sentence(self.run_program("--block-n", "many"), "invalid int value")


if __name__ == "__main__":
    main()
