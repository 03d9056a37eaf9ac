"""Kernels beside peers: ratios, clocks, spread, the file, the table; libraries on a GPU that only pretends."""

import contextlib
import ctypes
import importlib
import importlib.metadata
import importlib.util
import io
import json
import math
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import types
import unittest
from pathlib import Path
from unittest import mock

from support import CUDA, ERROR, ROOT, SCRIPTS, VENV_PYTHON, ScriptTest, main, needs_venv, peer_results

from fa_tools.for_readers import bench, gradients, harness, shapes, torch_attention
from fa_tools.measuring.validate import check_problem, check_sense
from fa_tools.records import attended_pairs, check, flops_of, is_finding

PROTOCOL = {"warmup": 4, "iterations": 8, "rounds": 3, "max_seconds": 10.0, "flush_l2": False, "rotating_inputs": 1,
            "rest_ms": 0, "load_seconds": 0, "inputs": "normal", "seed": 1, "tflops_convention": "4*B*H*N^2*D"}
PROBLEM = {"dtype": "bf16", "batch": 16, "heads": 16, "seq_len": 1024, "head_dim": 128}
PACKED = {**PROBLEM, "batch": 3, "seq_len": 300, "lengths": [300, 0, 17], "kv_lengths": [300, 5, 17]}
LIBRARY = {"name": "PyTorch", "version": "2.11.0", "implementation": "FlashAttention-2"}
OF_A_KERNEL = {"registers": 64, "shared_memory_bytes": 0, "spill_bytes": 0, "workspace_bytes": 0}
# The harness with a GPU that is made up (tests/fake_gpu.cpp), and with the emulator.
FAKE, REAL = (max(ROOT.glob(f"build/*/lib/{name}"), key=lambda path: path.stat().st_mtime, default=None)
              for name in ("libfake_library.so", "libfa_bench.so"))


def times(rounds, clock=1980.0, flops=flops_of(PROBLEM)):
    """The figures of a record whose rounds took so many milliseconds."""
    rounds = list(rounds)
    ms = sorted(rounds)[len(rounds) // 2]
    clocks = list(clock) if isinstance(clock, (list, tuple)) else [clock] * len(rounds)
    return {"time_ms": {"median": ms, "p10": ms * 0.9, "p90": ms * 1.1, "min": ms * 0.8, "launches": 8},
            "tflops": flops / ms * 1e-9, "round_ms": rounds, "clock_mhz": clocks[0], "round_clock_mhz": clocks,
            "power_w": 600.0}


def good(name, rounds=(1.0, 1.0, 1.0), clock=1980.0, **more):
    own = OF_A_KERNEL if "/" not in name else {"library": LIBRARY}
    return {"kernel": name, **PROBLEM, "status": "passed", "error": dict(ERROR), **own, **times(rounds, clock), **more}


def under_load(rounds):
    return {"under_load": {**times(rounds), "joules_per_tflop": 1.0}}


WRONG = {"status": "wrong", "reason": "an element is off", "error": dict(ERROR)}


class Ratios(unittest.TestCase):
    def test_within_rounds_in_bursts_and_under_load(self):
        kernel = good("08_swizzle", (1.0, 2.0, 4.0), **under_load((2.0, 2.0)))
        slow = good("01_naive", (8.0, 8.0, 8.0))
        records = [kernel, slow, good("peer/fa2", (1.1, 2.4, 4.4), **under_load((1.0, 3.0))), {**good("peer/fa3"), **WRONG}]
        bench.add_ratios([kernel, records[2], records[3]])
        self.assertEqual({peer: round(ratio, 9) for peer, ratio in kernel["ratio"].items()}, {"peer/fa2": 1.1})
        self.assertEqual(kernel["under_load"]["ratio"], {"peer/fa2": 1.0})
        self.assertNotIn("ratio", records[2])
        bench.add_ratios([slow, records[3]])
        self.assertNotIn("ratio", slow, "nothing to compare with")

    def test_another_mask_is_another_problem(self):
        """Of one run: no ratio, clock, spread or heading of a causal record comes from a full one."""
        causal = {"mask": "causal", "kv_heads": 4, "attended_pairs": 16 * 16 * 1024 * 1025 // 2}
        records = []
        for problem, ms, clock in (({}, 2.0, 1980), (causal, 1.0, 1500)):
            here = [good("beyond/causal", (ms,) * 3, clock, **problem), good("peer/fa3", (ms * 1.5,) * 3, clock, **problem)]
            bench.add_ratios(here)
            records += here
        self.assertEqual([r["ratio"] for r in records[::2]], [{"peer/fa3": 1.5}] * 2)
        self.assertEqual([len(here) for here in bench.by_problem(records)], [2, 2])
        self.assertEqual(bench.clock_notes(records), [])
        note = bench.spread_note([records, [*records[:2], good("beyond/causal", (1.5,) * 3, **causal)]])
        self.assertIn("times by at most 50.00 % (beyond/causal, bf16, batch 16, heads 16, seq_len 1024, head_dim 128, causal, "
                      "4 key heads)", note)
        lines = bench.table(records)
        self.assertIn("bf16, batch 16, heads 16, seq_len 1024, head_dim 128, causal, 4 key heads", lines)
        self.assertIn("TFLOP/s: of the pairs that the mask leaves; FlashAttention's own count is up to -0.10 % off",
                      bench.legend(records))
        self.assertEqual([flops_of({**PROBLEM, **problem}) for problem in ({}, causal)],
                         [4 * 16 * 16 * 1024**2 * 128, 4 * causal["attended_pairs"] * 128])


class Notes(unittest.TestCase):
    def records(self, kernel, peer):
        return [good("08_swizzle", clock=kernel), good("peer/fa2", clock=peer)]

    def test_clocks_in_the_same_round(self):
        # Both moved by 10 %, but together: nothing to say.
        self.assertEqual(bench.clock_notes(self.records((1980, 1780, 1980), (1980, 1750, 1980))), [])
        (note,) = bench.clock_notes(self.records((1980, 1980, 1980), (1980, 1800, 1980)))
        self.assertIn("seq_len 1024", note)
        self.assertIn("more than 3 % from that of peer/fa2 with 08_swizzle (1980 against 1800 MHz, +10.0 %).", note)
        self.assertEqual(len(bench.clock_notes(self.records((1900,) * 3, (1980,) * 3))), 1)
        self.assertEqual(bench.clock_notes(self.records((None, 1980, 1960), (1500, 1980, 1980))), [])

    def test_spread(self):
        def run(ours, fa2, **more):
            records = [good("08_swizzle", (ours,) * 3, **more), good("peer/fa2", (fa2,) * 3, **more)]
            bench.add_ratios(records)
            return records

        note = bench.spread_note([run(1.0, 1.0), run(1.1, 1.122)])  # ratios 1 and 1.02
        self.assertIn("2 runs: ratios spread by at most 2.00 % (08_swizzle to peer/fa2, bf16, batch 16", note)
        self.assertIn("times by at most 12.20 % (peer/fa2, bf16", note)
        self.assertIn("in the median 11.10 %", note)
        self.assertIn("nothing passed in all of them", bench.spread_note([run(1.0, 1.0)[:1], []]))
        scores = {"score_std": 20, "score_growth": "growing"}
        self.assertIn("(08_swizzle to peer/fa2, bf16, batch 16, heads 16, seq_len 1024, head_dim 128, scores of std 20, "
                      "growing)", bench.spread_note([run(1.0, 1.0, **scores), run(1.1, 1.122, **scores)]))


class Output(unittest.TestCase):
    def test_table(self):
        peers = [f"peer/{name}" for name in ("cudnn", "cudnn_frontend", "fa2", "fa3", "fa4")]
        records = [good(name, (0.8,) * 3, **under_load((1.6, 1.6))) for name in ("08_swizzle", "10_instruction_tuning")]
        records += [good(name, **under_load((2.0, 2.0))) for name in peers]
        records.append(good("ceiling/matmul", flops=2e11, tflops=200.0, **under_load((2.0, 2.0))))
        records.append({**good("ceiling/copy", **under_load((1.0, 1.0))), "gbytes_per_s": 4000.0})
        records.append({"kernel": "peer/odd", **PROBLEM, "status": "skipped", "reason": "long " * 40})
        bench.add_ratios(records)
        lines = bench.table([*records, *({**r, "seq_len": 2048} for r in records)], 2)
        self.assertLessEqual(max(map(len, lines)), 100)
        self.assertRegex(lines[0], r"kernel +median ms p10-p90 TFLOP/s ceiling  MHz cudnn cudnn_fr   fa2   fa3   fa4$")
        self.assertEqual(lines[2], "bf16, batch 16, heads 16, seq_len 1024, head_dim 128")
        text = "\n".join(lines)
        self.assertRegex(text, r"peer/odd +skipped: long .* \.\.\.\n")
        self.assertRegex(text, r"peer/fa2 +1\.0000   20\.0%   137\.4   68\.7% 1980\n")
        self.assertRegex(text, r"ceiling/matmul +1\.0000   20\.0%   200\.0 +1980\n")
        self.assertRegex(text, r"ceiling/copy +1\.0000   20\.0% 4000 GB/s")
        self.assertRegex(text, r"08_swizzle +0\.8000   20\.0%   171\.8   85\.9% 1980 1\.250    1\.250( 1\.250){3}\n")
        self.assertIn("After 2 s without a pause:", lines)
        self.assertRegex(text, r"08_swizzle +1\.6000     600    85\.9    1\.00 1980 1\.250    1\.250( 1\.250){3}\n")
        self.assertEqual(len(lines), 1 + 2 * (2 + 10) + 4 + 2 * (2 + 10))
        legend = bench.legend(records)
        self.assertIn("peer/fa2: FlashAttention-2 of PyTorch 2.11.0", legend)
        self.assertLessEqual(max(map(len, legend)), 100)

    def test_what_eight_bits_cost(self):
        self.assertEqual(list(bench.table_of_rounding([good("15_persistent")])), [])
        fp8 = {"fp8": "head", "attended_pairs": attended_pairs(PROBLEM)}
        error = {**ERROR, "rel": 0.027, "rel_unrounded": 0.053, "rmse": 0.0015}
        records = [good("beyond/fp8", **OF_A_KERNEL, **fp8, error=error, rounding_ms=0.1, rounding_bytes=300_000_000),
                   good("peer/fa3_fp8", **fp8, error={**error, "rel_unrounded": 0.051}),
                   {"kernel": "peer/cudnn_fp8", **PROBLEM, **fp8, **WRONG, "error": {**error, "rmse": None}},
                   {**good("ceiling/copy", **fp8), "gbytes_per_s": 4000.0},
                   good("15_persistent", error={**error, "rel_unrounded": 0.002})]
        lines = list(bench.table_of_rounding(records))
        self.assertEqual([line.split() for line in lines if line.startswith(("beyond", "peer", "15"))],
                         [["beyond/fp8", "2.70e-02", "5.30e-02", "1.50e-03", "0.1000", "3000", "75.0%"],
                          ["peer/fa3_fp8", "5.10e-02", "1.50e-03"], ["peer/cudnn_fp8", "5.30e-02"],
                          ["15_persistent", "2.70e-02", "2.00e-03", "1.50e-03"]])
        self.assertEqual(len({line.index("5.") for line in lines[4:6]}), 1, "in one column")
        self.assertLessEqual(max(map(len, lines)), 100)
        self.assertEqual([is_finding(record) for record in records], [False, False, True, False, False])
        self.assertIn("GB/s of rounding: 16 bits in, twice where a scale is per head (V's always is), and e4m3 out",
                      bench.legend(records))

    def test_progress(self):
        clock = [0.0]
        progress = bench.Progress(io.StringIO(), [PROBLEM, {**PROBLEM, "seq_len": 2048}], lambda: clock[0])
        progress.next(PROBLEM)
        progress.say("verifying 02", 0, 4)
        clock[0] = 1.0
        progress.say("timing 02, round 1 of 3", 1, 4)
        progress.say("timing 03, round 1 of 3", 2, 4)  # the same round, and no terminal
        progress.done = 1
        progress.next({**PROBLEM, "seq_len": 2048})
        clock[0] = 2.0
        progress.say("timing 03, round 1 of 3", 2, 4)
        self.assertEqual(progress.stream.getvalue().splitlines(), [
            "bf16, head_dim 128, seq_len 1024: verifying 02 ...",
            "bf16, head_dim 128, seq_len 1024: timing 02, round 1 of 3, about 7 s to 19 s left ...",
            "bf16, head_dim 128, seq_len 2048: timing 03, round 1 of 3, about 1 s left ..."])
        self.assertEqual(bench.duration(240), "4 min")

    def test_words_of_the_command_name_no_folders(self):
        root = bench.ROOT
        self.assertEqual([bench.plainly(word) for word in
                          (str(root / "build/cuda/lib/libfa_bench.so"), "/tmp/x.json", "--json=/tmp/y.json", "~/z", "a/b",
                           "--rounds", "3")],
                         ["build/cuda/lib/libfa_bench.so", "x.json", "--json=y.json", "z", "a/b", "--rounds", "3"])


class Choice(unittest.TestCase):
    """What the command line makes of protocols and problems."""

    def parse(self, *arguments):
        return bench.parse_arguments(["--library", "x", *arguments])

    def test_part_of_a_protocol_keeps_its_name_and_another_one_does_not(self):
        for name, *arguments in (("fa3-paper", "--seq-len", "512,4096", "--head-dim", "64"),
                                 ("fa3-paper", "--rounds", "9", "--max-seconds", "2"), ("fa3-paper", "--dtype", "fp16"),
                                 (None, "--dtype", "bf16"), (None, "--load-seconds", "2"), (None, "--flush-l2"),
                                 (None, "--rotate", "3"), (None, "--iters", "7"), (None, "--rest-ms", "0"),
                                 (None, "--inputs", "large"), ("fa3-paper", "--warm")):
            with self.subTest(arguments):
                args = self.parse("--protocol", "fa3-paper", *arguments)
                self.assertEqual(args.settings.get("name"), name)
        args = self.parse("--protocol", "fa3-paper", "--seq-len", "512", "--head-dim", "64", "--dtype", "bf16")
        self.assertEqual(args.problems,
                         [{"dtype": "bf16", "batch": 32, "heads": 32, "seq_len": 512, "head_dim": 64}])

    def test_what_happens_to_scores(self):
        """Of what leaves them as they are a problem says nothing. The library that has windows is measured with one."""
        for arguments, more in (("--window -1,-1 --softcap 0", {}), ("--window -1,0", {"window": [-1, 0]}), ("--window=9,-1", {"window": [9, -1]}),
                                ("--softcap 30", {"softcap": 30.0}), ("--softcap 0.1", {"softcap": 0.10000000149011612})):
            args = self.parse(*arguments.split(), "--seq-len", "1024")
            self.assertEqual(args.problems, [{**PROBLEM, **more}])
            self.assertEqual("fa3_window" in args.peers, "window" in more)

    def test_which_kernels(self):
        known = ["01_naive", "15_persistent", "beyond/causal", "beyond/plain", "15_persistent.next", "peer/x", "beyond/fp8", "beyond/fp8_rows"]
        plain, causal, fp8 = PROBLEM, {**PROBLEM, "mask": "causal"}, {**PROBLEM, "fp8": "head"}
        for wanted, given, names in (([], [plain], known[:2]), ([], [causal, {**PROBLEM, "seq_len": 1009}], known[2:4]),
                                     ([], [plain, fp8], known[6:]), ([], [plain, causal], known[:4]), ([], [fp8], known[6:]), (["plain", "15", "beyond/causal"], [plain],
                                                                       ["beyond/plain", "15_persistent", "beyond/causal"]),
                                     (["15.next", "15_persistent.next", "15"], [plain], [known[4], known[1]])):
            self.assertEqual(bench.chosen(wanted, known, given), names)


class Libraries(unittest.TestCase):
    """Finding the packages of peers, which are modules made here."""

    def setUp(self):
        # As if none of the packages were installed.
        hidden = dict.fromkeys(("fa3_fwd_interface", "flash_attn_interface", "flash_attn.cute", "flash_attn_3._C", "xformers.flash_attn_3._C"))
        absent = importlib.metadata.PackageNotFoundError
        for patch in (mock.patch.dict(sys.modules, hidden),
                      mock.patch.object(importlib.metadata, "version", side_effect=absent)):
            patch.start()
            self.addCleanup(patch.stop)

    def make(self, peer):
        return torch_attention.PEERS[peer][1](torch_attention.PEERS[peer][0], types.SimpleNamespace(__version__="2"))

    def test_packages_that_are_not_here(self):
        for peer, words in (("fa3", "cannot import fa3_fwd_interface (package fa3-fwd)"),
                            ("fa3_window", "cannot import flash_attn_interface (package xformers 0.0.34)"),
                            ("fa4", "cannot import flash_attn.cute (package flash-attn-4)")):
            with self.assertRaises(torch_attention.Missing) as caught:
                self.make(peer)
            self.assertIn(words, str(caught.exception))

    def test_packages_that_do_not_load(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(sys, "path", [folder, *sys.path]):
            file = Path(folder) / "fa3_fwd_interface.py"
            for text, words in (("import no_such_thing", "cannot import no_such_thing, which fa3_fwd_interface needs"),
                                ("raise OSError('/some/where/_C.so: undefined symbol')",
                                 "fa3_fwd_interface does not load: _C.so: undefined symbol"),
                                ("", "fa3_fwd_interface has no flash_attn_func")):
                file.write_text(text)
                importlib.invalidate_caches()
                sys.modules.pop("fa3_fwd_interface", None)
                with mock.patch.object(sys, "dont_write_bytecode", True), \
                        self.assertRaises(torch_attention.Missing) as caught:
                    self.make("fa3")
                self.assertIn(words, str(caught.exception))
            sys.modules.pop("fa3_fwd_interface", None)

    def test_the_function_gets_views_of_its_own_shape(self):
        class Tensor:
            def __init__(self, axes="BHND"):
                self.axes = axes

            def transpose(self, i, j):
                axes = list(self.axes)
                axes[i], axes[j] = axes[j], axes[i]
                return Tensor("".join(axes))

        for result in (lambda q: q, lambda q: (q, None)):
            module = types.ModuleType("flash_attn_interface")
            module.flash_attn_func = lambda q, k, v: result(q)  # noqa: B023
            sys.modules["flash_attn_interface"] = module
            library = self.make("fa3")
            library.take(PROBLEM)
            self.assertEqual((library.implementation, library.version), ("FlashAttention-3", "0.0"))
            arguments = library.arguments(Tensor(), Tensor(), Tensor())
            self.assertEqual([tensor.axes for tensor in arguments], ["BNHD"] * 3)
            self.assertEqual(library.output(library.launch(*arguments)).axes, "BHND")

    @staticmethod
    def of_operator(**more):
        return {"softmax_scale": 0.125, "is_causal": False, "window_size_left": -1, "window_size_right": -1, "num_splits": 1, **more}

    def test_what_a_launch_is_given(self):
        """Splits, masks, what happens to scores, and where packed sequences begin. PyTorch's is_causal is taken only where its alignment is ours: otherwise
        FlashAttention-2 is called directly, and cuDNN left out."""
        module, without, torch = types.ModuleType("with"), types.ModuleType("without"), Torch([])
        module.flash_attn_func = without.flash_attn_func = lambda q, k, v, **options: options
        module.flash_attn_varlen_func = lambda q, k, v, **options: options
        causal, apart = {**PROBLEM, "mask": "causal"}, {**PROBLEM, "mask": "causal", "kv_len": 2048}
        begins = ([0, 300, 300, 317], "int32", "cuda"), ([0, 300, 305, 322], "int32", "cuda")
        sdpa = [(peer, {**PROBLEM, **problem}, ((1, 2, 3), options)) for peer in ("fa2", "cudnn") for problem, options in (
            ({}, {}), ({"mask": "causal"}, {"is_causal": True}), ({"kv_heads": 4}, {"enable_gqa": True}), ({"kv_len": 2048}, {}))]
        for peer, problem, given in (
                *sdpa, ("fa2", apart, (1, 2, 3, None, None, 1024, 2048, 0.0, True, False)), ("cudnn", apart, "^PyTorch's is_causal is aligned at the top left"),
                ("fa2", PACKED, (1, 2, 3, *begins, 300, 300, 0.0, False, False)), ("cudnn", PACKED, "nested tensors alone"),
                ("fa2", {**causal, "window": [9, -1]}, (1, 2, 3, None, None, 1024, 1024, 0.0, True, False, 9, -1)),
                ("fa2", {**causal, "softcap": 30.0}, "^PyTorch's function has no softcap$"), ("cudnn", {**causal, "softcap": 30.0}, "no softcap$"),
                ("cudnn", {**PROBLEM, "window": [9, 0]}, "^PyTorch's function has no window$"),
                ("fa3", {**causal, "window": [9, 0], "softcap": 30.0}, {"causal": True, "window_size": (9, 0), "softcap": 30.0}),
                ("fa3_window", PROBLEM, self.of_operator()), ("fa3_window", {**causal, "window": [9, -1], "softcap": 2.5},
                                                              self.of_operator(is_causal=True, window_size_left=9, softcap=2.5)),
                ("fa3_window", PACKED, self.of_operator(cu_seqlens_q=begins[0], max_seqlen_q=300, cu_seqlens_k=begins[1], max_seqlen_k=300)),
                ("fa4", causal, {"causal": True}), ("fa4", {**causal, "window": [9, 0]}, "^measured without a window and without a softcap$"),
                ("fa3", PROBLEM, {}), ("fa3", {**causal, "kv_heads": 4}, {"causal": True}), ("fa3_splits", PROBLEM, {"num_splits": 0}),
                ("fa3_splits", causal, {"num_splits": 0, "causal": True}),
                ("fa3", {**PACKED, "mask": "causal"}, {"causal": True, "cu_seqlens_q": begins[0], "max_seqlen_q": 300,
                                                       "cu_seqlens_k": begins[1], "max_seqlen_k": 300}),
                ("fa3", PACKED, "^fa3-fwd 0.0 has no flash_attn_varlen_func$")):
            package = without if "varlen" in str(given) else module
            with self.subTest(peer, given=given), mock.patch.dict(sys.modules, {
                    "flash_attn_interface": package, "flash_attn.cute": package, "torch": torch}):
                library = torch_attention.PEERS[peer][1]("fa3-fwd", torch)
                refused = self.assertRaisesRegex(harness.NotTaken, given) if isinstance(given, str) else contextlib.nullcontext()
                with refused:
                    library.take(problem)
                    self.assertEqual(library.launch(*((types.SimpleNamespace(shape=(7, 64)), 2, 3) if peer == "fa3_window" else (1, 2, 3))), given)


class Tensor:
    """Stands in for a torch tensor."""

    dtype = "bf16"

    def __init__(self, name, strides=()):
        self.name, self.strides = name, strides

    def view(self, dtype):
        return Tensor(f"{self.name} as {dtype}")

    def stride(self):
        return self.strides

    def data_ptr(self):
        return 4096


class Torch:
    float16, bfloat16, int32, __version__ = "fp16", "bf16", "int32", "2"

    def __init__(self, log):
        self.log = log
        sdpa = types.SimpleNamespace(scaled_dot_product_attention=lambda *tensors, **options: (tensors, options))
        self.nn = types.SimpleNamespace(functional=sdpa)
        self.ops = types.SimpleNamespace(aten=types.SimpleNamespace(_flash_attention_forward=lambda *given, window_size_left=None, window_size_right=None: (
            (*given, *(side for side in (window_size_left, window_size_right) if side is not None)), None)),
                                         flash_attn_3=types.SimpleNamespace(fwd=lambda q, k, v, **options: options))
        self.cuda = types.SimpleNamespace(ExternalStream=lambda stream: f"stream {stream}", stream=self.on)

    @contextlib.contextmanager
    def on(self, stream):
        self.log.append(stream)
        yield

    no_grad = contextlib.nullcontext

    def tensor(self, values, dtype, device):
        return values, dtype, device

    def as_tensor(self, memory, device):
        about = memory.__cuda_array_interface__
        return Tensor(f"{about['data'][0]} {about['shape']}")


class Peers(unittest.TestCase):
    """A library of PyTorch's as the harness calls it."""

    def setUp(self):
        self.log, self.problem, self.out = [], None, Tensor("out", (7, 5, 3, 1))

        def launch(*tensors):
            self.log.append("launch " + ", ".join(tensor.name[:3] for tensor in tensors))
            if self.problem:
                raise RuntimeError(self.problem)
            return self.out

        library = types.SimpleNamespace(active=contextlib.nullcontext, arguments=lambda *tensors: tensors, launch=launch,
                                        output=lambda out: out, take=self.take, refusals=("No available kernel",),
                                        refusal=lambda problem: "it does not run here")
        self.peer = torch_attention.TorchPeer(Torch(self.log), library)
        self.peer.take(PROBLEM)

    def test_its_output_stays_where_it_is(self):
        where = harness.Output()
        for task, o in ((harness.LAUNCH, 400), (harness.OUTPUT, ctypes.addressof(where))):
            self.peer(task, 100, 200, 300, o, 7)
        self.assertEqual(self.log, ["stream 7", "launch 100, 200, 300", "stream 7"])
        self.assertEqual((where.data, where.block_stride, where.head_stride, where.row_stride), (4096, 7, 5, 3))
        self.out.strides = (5, 3, 1)  # of packed sequences
        self.peer(harness.OUTPUT, 100, 200, 300, ctypes.addressof(where), 7)
        self.assertEqual((where.block_stride, where.head_stride, where.row_stride), (0, 5, 3))
        self.out.strides = (7, 5, 3, 2)
        with self.assertRaisesRegex(RuntimeError, "not contiguous"):
            self.peer(harness.OUTPUT, 100, 200, 300, ctypes.addressof(where), 7)

    def test_an_output_in_eight_bits_is_widened_by_its_scale(self):
        where, seen = harness.Output(), []
        wide = Tensor("wide", (8, 6, 4, 1))
        wide.data_ptr = lambda: 8192
        self.peer.library.widened = lambda *of: seen.append(of) or wide
        for dtype, address in (("bf16", 4096), ("e4m3", 8192)):
            self.out.dtype = dtype
            self.peer(harness.LAUNCH, 100, 200, 300, 400, 7)
            self.peer(harness.OUTPUT, 100, 200, 300, ctypes.addressof(where), 7)
            self.assertEqual(where.data, address)
        self.assertEqual(seen, [(self.out, "bf16")])
        with mock.patch.object(torch_attention, "import_first", return_value=types.SimpleNamespace(
                __version__="1.32.0", backend_version_string=lambda: "9.13.0")):
            cudnn = torch_attention.CudnnFp8()
        self.assertEqual(cudnn.version, "1.32.0+cudnn9.13.0")
        check({**peer_results(), "records": [good("peer/cudnn_fp8", library={**LIBRARY, "version": cudnn.version})]})
        cudnn.scales = {"descale_v": 0.5}
        numbers = mock.MagicMock()
        numbers.float.return_value.__mul__.side_effect = {0.5: types.SimpleNamespace(to=lambda dtype: f"scaled, {dtype}")}.get
        self.assertEqual(cudnn.widened(numbers, "bf16"), "scaled, bf16")

    def test_what_is_prepared_is_what_a_launch_gets(self):
        self.peer.library.prepare = lambda *tensors: self.log.append("prepare") or [Tensor(f"8 bits of {tensor.name[:3]}")
                                                                                    for tensor in tensors]
        self.peer.library.launch = lambda *tensors: self.log.append([tensor.name for tensor in tensors]) or self.out
        for task in (harness.PREPARE, harness.LAUNCH, harness.LAUNCH):
            self.peer(task, 100, 200, 300, 400, 7)
        rounded = [f"8 bits of {address}" for address in (100, 200, 300)]
        self.assertEqual([entry for entry in self.log if entry != "stream 7"], ["prepare", rounded, rounded])

    def test_what_those_in_fp8_take(self):
        module = types.SimpleNamespace(__name__="fa3", flash_attn_func=None, __version__="1", backend_version_string=lambda: "9")
        module.flash_attn_func = lambda *tensors, **options: (tensors, options)
        with mock.patch.object(torch_attention, "import_first", return_value=module):
            fa3, cudnn = (torch_attention.PEERS[peer][1](peer, None) for peer in ("fa3_fp8", "cudnn_fp8"))
        fp8 = {**PROBLEM, "dtype": "bf16", "fp8": "head"}
        for problem, takers in ((fp8, 2), ({**fp8, "mask": "causal"}, 1), ({**fp8, "fp8": "rotated"}, 0),
                                ({**fp8, "dtype": "fp16"}, 0), ({**fp8, "kv_heads": 4}, 0), ({**fp8, "window": [9, 0]}, 0), ({**fp8, "softcap": 30.0}, 0), ({**PROBLEM, "dtype": "bf16"}, 0)):
            taken = 0
            for library in (fa3, cudnn):
                with contextlib.suppress(harness.NotTaken):
                    library.take(problem)
                    taken += 1
            self.assertEqual(taken, takers, problem)

    def take(self, problem):
        if "kv_lengths" in problem:
            raise harness.NotTaken("not this one")

    def test_tensors_of_other_problems(self):
        for problem, sizes in (({**PROBLEM, "kv_heads": 4, "kv_len": 77}, ["(16, 16, 1024, 128)", "(16, 4, 77, 128)"]),
                               ({**PROBLEM, "kv_heads": 4, "lengths": [5, 2]}, ["(16, 7, 128)", "(4, 7, 128)"])):
            self.peer.take(problem)
            self.peer(harness.LAUNCH, 100, 200, 300, 400, 7)
            self.assertEqual({address: tensor.name.split(" ", 1)[1].removesuffix(" as bf16") for address, tensor in
                              self.peer.known.items()}, {100: sizes[0], 200: sizes[1], 300: sizes[1]})
        self.peer.take(PACKED)
        with self.assertRaisesRegex(harness.NotTaken, "^not this one$"):
            self.peer(harness.LAUNCH, 100, 200, 300, 400, 7)

    def test_refusals_count_in_the_first_launch_only(self):
        self.problem = "No available kernel. Aborting execution."
        with self.assertRaisesRegex(harness.NotTaken, "^it does not run here$"):
            self.peer(harness.LAUNCH, 100, 200, 300, 400, 7)
        self.problem = None
        self.peer(harness.LAUNCH, 100, 200, 300, 400, 7)
        self.problem = "No available kernel"
        with self.assertRaises(RuntimeError):
            self.peer(harness.LAUNCH, 100, 200, 300, 400, 7)


@unittest.skipUnless(FAKE and REAL, "libfake_library.so and libfa_bench.so are not built")
class Library(unittest.TestCase):
    SMALL = {"dtype": "fp16", "batch": 1, "heads": 1, "seq_len": 128, "head_dim": 64}

    def test_a_measurement(self):
        library = harness.Harness(FAKE)
        self.assertEqual(library.describe()["machine"]["gpu"], "Fake GPU")
        said = []
        (record,) = library.measure(["02_warm"], self.SMALL, PROTOCOL, lambda *told: said.append(told))
        self.assertEqual((record["status"], record["round_ms"]), ("passed", [2.0] * 3))
        self.assertEqual(said[1], ("verifying 02_warm", 0, 4))
        for more, words in (({"lengths": [128, 1]}, "'lengths' and 'kv_lengths' must have 'batch' numbers"),
                            ({"lengths": [-1]}, "'length' must be a whole number from 0"), ({"mask": "x"}, "none or causal")):
            with self.assertRaisesRegex(harness.Failed, words):
                library.measure(["02_warm"], {**self.SMALL, **more}, PROTOCOL)
        with self.assertRaisesRegex(harness.Failed, "^unknown kernel '99'"):
            library.measure(["99"], self.SMALL, PROTOCOL)
        with self.assertRaises(KeyboardInterrupt):
            library.measure(["02_warm"], self.SMALL, PROTOCOL, mock.Mock(side_effect=KeyboardInterrupt))

    def test_which_kernel_best_stands_for(self):
        """Whether it passed or not; where no kernel takes the problem, none."""
        library = harness.Harness(FAKE)
        for names, more, chosen in ((["01_right", "19_leaves_one"], {}, [False, True]), (["peer/fake"], {"mask": "causal"}, [False])):
            records = library.measure(names, {**self.SMALL, **more}, PROTOCOL)
            self.assertEqual([record.get("chosen", False) for record in records], chosen)
        self.assertEqual(records[0]["status"], "passed")

    def test_a_peer_in_python(self):
        library = harness.Harness(FAKE)
        own = (ctypes.c_uint16 * (128 * 64))()
        answers, problem = [], None

        def peer(task, q, k, v, o, stream):
            if problem:
                raise problem
            if task == harness.OUTPUT:
                harness.Output.from_address(o).data, harness.Output.from_address(o).row_stride = ctypes.addressof(own), 64
            answers.append(task)

        library.add("peer/own", LIBRARY, peer)
        (record,) = library.measure(["peer/own"], self.SMALL, PROTOCOL)
        self.assertEqual((record["status"], record["library"]), ("wrong", LIBRARY), "zeros")
        self.assertEqual(answers, [harness.LAUNCH, harness.OUTPUT])
        for problem, status in ((harness.NotTaken("not this one"), "skipped"), (RuntimeError("/a/b/c.py failed\nhere"), "error")):
            (record,) = library.measure(["peer/own"], self.SMALL, PROTOCOL)
            self.assertEqual(record["status"], status)
            self.assertIn(record["reason"], ("not this one", "c.py failed"))
        with self.assertRaisesRegex(harness.Failed, "name"):
            library.add("peer/other", {}, peer)

    def test_the_real_one_names_its_kernels(self):
        described = harness.Harness(REAL).describe()
        self.assertEqual([name for name in described["kernels"] if "/" in name],
                         [*sorted(f"beyond/{path.stem}" for path in (ROOT / "kernels/beyond").glob("*.cu")), "ceiling/copy",
                          "ceiling/matmul", "peer/cudnn_frontend"])
        self.assertEqual(described["gradients"], sorted(path.stem for path in (ROOT / "kernels/backward").glob("*.cu")))
        self.assertEqual([name for name in described["kernels"] if "/" not in name],
                         sorted([*(path.stem for path in (ROOT / "kernels").glob("[0-9][0-9]_*.cu")),
                                 *(f"{path.stem}.next" for path in (ROOT / "kernels/next").glob("*.cu"))]))

    def test_it_shows_nothing_but_its_functions(self):
        """What else it showed could take the place of another library's in the same process."""
        done = subprocess.run(["readelf", "--dyn-syms", "--wide", REAL], capture_output=True, text=True, check=True, timeout=60)
        shown = {line.split()[-1] for line in done.stdout.splitlines() if " DEFAULT " in line and " UND " not in line}
        self.assertEqual({name for name in shown if not name.startswith("fa_bench_")}, set())
        self.assertLessEqual({"fa_bench_add", "fa_bench_request"}, shown)


GRADIENTS = {"dtype": "bf16", "batch": 1, "heads": 2, "seq_len": 200, "head_dim": 64, "gradients": "any"}


def of_gradients(name, over=0.5, **more):
    """A record of gradients."""
    own = {"library": LIBRARY} if name.startswith("peer/") else OF_A_KERNEL
    return {"kernel": name, **GRADIENTS, "attended_pairs": attended_pairs(GRADIENTS), "status": "passed", **own,
            "error": {**ERROR, "bound_ratio": over, "of_gradients": {"dQ": 2.5e-3, "dK": 2.4e-3, "dV": 2.3e-3}},
            **times((1.0, 1.0, 1.0), flops=flops_of(GRADIENTS)), **more}


class Shapes(unittest.TestCase):
    def test_drawn(self):
        """The same for a seed in every Python, and what a server has."""
        problems = [problem for seed in range(1, 9) for problem in shapes.drawn(seed)]
        self.assertEqual(shapes.drawn(1)[1], {"dtype": "fp16", "batch": 43, "heads": 24, "seq_len": 72, "head_dim": 64, "mask": "causal", "kv_heads": 8, "kv_len": 73})
        self.assertEqual(len(problems), 8 * shapes.COUNT)
        for problem in problems:
            check_problem(problem | {"status": "skipped"}, "")
            self.assertLessEqual(problem["seq_len"], problem.get("kv_len", problem["seq_len"]))
            self.assertLessEqual(flops_of({**problem, "mask": None}), 2e12)
        self.assertEqual({problem.get("kv_heads", problem["heads"]) for problem in problems}, {1, 2, 4, 8})
        for field, least, most in (("heads", 1, 64), ("batch", 1, 64), ("seq_len", 1, 20_000)):
            found = [problem[field] for problem in problems]
            self.assertTrue(min(found) == least and 0.9 * most < max(found) <= most, field)
        for few, most, which in ((0.3, 0.7, lambda p: "mask" in p), (0.3, 0.7, lambda p: "kv_len" in p), (0.6, 0.95, lambda p: "kv_heads" in p),
                                 (0.1, 0.35, lambda p: "score_std" in p), (0.05, 0.2, lambda p: p.get("score_growth") == "growing"),
                                 (0.2, 0.5, lambda p: p["head_dim"] == 64), (0.1, 0.4, lambda p: p["dtype"] == "fp16"),
                                 (0, 0.1, lambda p: p["seq_len"] % 128 == 0), (0.3, 0.9, lambda p: (p["heads"] & (p["heads"] - 1)) > 0)):
            self.assertTrue(few <= sum(map(which, problems)) / len(problems) <= most)

    def test_long_prompts_are_not_drawn_less_often(self):
        """Queries are even over their logarithm, though what is large gets other heads and sequences."""
        edges = (1, 12, 142, 1682, 20_001)  # each twelve times the one before
        lengths = [problem["seq_len"] for seed in range(1, 21) for problem in shapes.drawn(seed)]
        for low, high in zip(edges, edges[1:]):
            self.assertAlmostEqual(sum(low <= length < high for length in lengths) / len(lengths), 1 / 4, delta=0.04, msg=f"{low} to {high}")


class OfGradients(unittest.TestCase):
    def test_records(self):
        """Five products, and not the problem of O."""
        plain = {name: value for name, value in GRADIENTS.items() if name != "gradients"}
        self.assertEqual(flops_of(GRADIENTS), 2.5 * flops_of(plain))
        self.assertNotEqual(bench.problem_of(GRADIENTS), bench.problem_of(plain))
        records = [of_gradients("backward/backward"), of_gradients("peer/fa2_backward", 0.7)]
        bench.add_ratios(records)
        self.assertEqual(records[0]["ratio"], {"peer/fa2_backward": 1.0})
        data = {"schema_version": 6, "created": "2026-11-30T10:00:00Z", "command": ["bench.py", "--gradients"], "machine": CUDA,
                "protocol": PROTOCOL, "records": records}
        check(data)
        check_sense(data)
        lines = list(bench.table_of_gradients(records))
        self.assertIn("bf16, batch 1, heads 2, seq_len 200, head_dim 64, gradients", lines)
        self.assertEqual(lines[-1].split(), ["peer/fa2_backward", "2.50e-03", "2.40e-03", "2.30e-03", "70%"])
        self.assertEqual(list(bench.table_of_gradients([good("08_swizzle")])), [])

    def test_order_of_rounds(self):
        self.assertEqual([[gradients.place_in_round(i, nth, 4, 3) for i in range(3)] for nth in range(4)],
                         [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]])

    def test_quantiles(self):
        self.assertEqual([gradients.quantile([1.0, 2.0, 4.0], share) for share in (0, 0.25, 0.5, 0.9, 1)], [1, 1.5, 2, 3.6, 4])
        self.assertEqual(gradients.quantile([3.0], 0.9), 3)

    @unittest.skipUnless(REAL, "libfa_bench.so is not built")
    def test_a_launch(self):
        """By addresses: of two equal weights, because K is zero, where each gradient is another one."""
        n, d = 2, 64
        library = harness.Harness(REAL)
        request = {"op": "gradients", "kernel": "backward_plain", "dtype": "fp16", "batch": 1, "heads": 1, "seq_len": n, "head_dim": d}
        size = library.ask(request)["workspace_bytes"]

        def memory(values, form="e"):
            """16-byte aligned: the array, and where it begins."""
            raw = struct.pack(f"{len(values)}{form}", *values)
            buffer = ctypes.create_string_buffer(len(raw) + 16)
            at = -(-ctypes.addressof(buffer) // 16) * 16
            ctypes.memmove(at, raw, len(raw))
            return buffer, at

        ones, zeros, first = [1.0] * d, [0.0] * d, [1.0] + [0.0] * (d - 1)
        q, k, v, d_o, o, lse = [ones] * 2, [zeros] * 2, [first, zeros], [first] * 2, [[value / 2 for value in first]] * 2, [math.log(2)] * 2
        right = {"d_q": [zeros] * 2, "d_k": [[sign / 2 / math.sqrt(d)] * d for sign in (1, -1)], "d_v": [first] * 2}
        given = {"q": q, "k": k, "v": v, "o": o, "d_o": d_o, **dict.fromkeys(right, [[math.nan] * d] * n)}
        kept = {name: memory([value for row in rows for value in row]) for name, rows in given.items()}
        kept |= {"lse": memory(lse, "f"), "workspace": memory([0] * size, "b")}
        pointers = {name: at for name, (_, at) in kept.items()} | {"stream": 0}
        said = library.ask({**request, "workspace_bytes": size, "pointers": pointers})
        self.assertEqual(set(said), {"source", "registers", "shared_memory_bytes", "spill_bytes"})
        self.assertRegex(said["source"], "^[0-9a-f]{12}$")
        for name, rows in right.items():
            found = struct.unpack(f"{n * d}e", ctypes.string_at(pointers[name], 2 * n * d))
            for value, should in zip(found, (each for row in rows for each in row)):
                self.assertAlmostEqual(value, should, delta=0.01, msg=name)
        with self.assertRaisesRegex(harness.Failed, "^unknown kernel of gradients 'x', there are: backward, "):
            library.ask({**request, "kernel": "x"})
        with self.assertRaisesRegex(harness.Failed, "d_q"):
            library.ask({**request, "workspace_bytes": size, "pointers": {name: at for name, at in pointers.items() if name != "d_q"}})
        with self.assertRaisesRegex(harness.Failed, "^dK must begin at a multiple of 16|dK"):
            library.ask({**request, "workspace_bytes": size, "pointers": {**pointers, "d_k": pointers["d_k"] + 2}})
        self.assertIn("refused", library.ask({**request, "fp8": "head"}))
        in_order = {"gradients": "deterministic"}
        self.assertEqual(library.ask({**request, **in_order}), {"workspace_bytes": size})
        self.assertRegex(library.ask({**request, **in_order, "kernel": "backward_mma"})["refused"], "not deterministic ones")


@unittest.skipUnless(REAL and importlib.util.find_spec("torch"), "this Python has no torch, or libfa_bench.so is not built")
class InTorch(unittest.TestCase):
    """Gradients on the emulator, with a GPU's events that are made up."""

    class Autograd(gradients.Library):
        """PyTorch's own, in fp32."""

        groups, library, wrong = True, LIBRARY, None

        def launch(self, _):
            torch = self.torch
            with torch.enable_grad():
                q, k, v = (self.of[name].detach().float().requires_grad_() for name in "qkv")
                o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal, enable_gqa=True)
                found = torch.autograd.grad(o, (q, k, v), self.of["d_o"].float())
            self.found = [each.to(self.of["q"].dtype) for each in found]
            if self.wrong:
                self.wrong(self.found)

    def setUp(self):
        import torch
        self.torch = torch
        self.here = gradients.Gradients(harness.Harness(REAL), torch, "cpu")
        self.own = self.here.peers["peer/own"] = self.Autograd()

    def measure(self, names=("peer/own",), **problem):
        return self.here.measure(list(names), {**GRADIENTS, **problem}, PROTOCOL, lambda *_: None)

    def test_kernels_and_a_library(self):
        for problem in ({}, {"mask": "causal", "kv_heads": 1}, {"dtype": "fp16"}, {"score_std": 20.0, "score_growth": "flat"}):
            records = self.measure(("backward/backward_mma", "peer/own"), **problem)
            self.assertEqual([record["status"] for record in records], ["passed"] * 2, records)
            self.assertLess(max(record["error"]["bound_ratio"] for record in records), 0.8)
            self.assertGreater(min(record["error"]["bound_ratio"] for record in records), 0.2)
        self.assertEqual(records[0]["error"]["checked_rows"], 2 * 3 * 200)

    def test_what_is_wrong(self):
        cases = (
            (lambda found: found[1].mul_(1.01), "wrong", "64 rows are off by 0.01"),
            (lambda found: found[0][0, 1, 7].fill_(math.nan), "wrong", "never written or is not finite"),
            (lambda found: found[2][0, 0, 190].zero_(), "wrong", "64 rows are off by"))
        for self.own.wrong, status, reason in cases:
            (record,) = self.measure()
            self.assertEqual(record["status"], status)
            self.assertIn(reason, record["reason"])
            self.assertIn("error", record)

        def fail(_):
            raise RuntimeError("no luck")

        self.own.wrong = fail
        (record,) = self.measure()
        self.assertEqual((record["status"], record["reason"], "error" in record), ("error", "no luck", False))
        self.assertEqual(self.measure(kv_len=300)[0]["status"], "skipped")

    def test_timed_launches(self):
        """Each has other signs, and each is checked."""
        torch = self.torch
        event = mock.Mock(**{"elapsed_time.return_value": 2.0, "query.side_effect": [False, True] * 99})
        seen, problem = [], {**GRADIENTS, "seq_len": 128}
        sample = {"clock_mhz": 1980.0, "power_w": None}
        ask = self.here.harness.ask
        with contextlib.ExitStack() as all_of_them:
            for name, value in (("Event", lambda **_: event), ("_sleep", mock.Mock()), ("synchronize", mock.Mock())):
                all_of_them.enter_context(mock.patch.object(torch.cuda, name, value))
            self.here.harness.ask = lambda request, *more: sample if request["op"] == "sample" else ask(request, *more)
            self.here.stream = lambda: 0
            self.own.wrong = lambda found: seen.append(found[0][0, 0, 0].clone())

            def timed():
                with torch.no_grad():
                    (record,) = self.here.measure(["peer/own"], problem, PROTOCOL, lambda *_: None)
                    self.here.judge(record, lambda: self.here.add_round(self.own, record | {"rounds": []}, {**PROTOCOL, "iterations": 4}))
                return record

            self.assertEqual(timed()["status"], "passed")
            signs = {tuple(torch.sign(each).tolist()) for each in seen[-4:]}
            self.assertEqual(len(signs), 4)
            calls = len(seen)
            self.own.wrong = lambda found: (seen.append(None), len(seen) == calls + 12 and found[0].zero_())
            record = timed()
            self.assertEqual(record["status"], "wrong")
            self.assertRegex(record["reason"], "^timed launch 3 of 4: 64 rows are off by 1 of their norm")


@unittest.skipUnless(FAKE and REAL, "libfake_library.so and libfa_bench.so are not built")
class Command(ScriptTest):
    SMALL = ("--dtype", "fp16", "--heads", "2", "--batch", "1", "--seq-len", "128", "--head-dim", "64", "--rest-ms", "0", "--iters", "4",
             "--load-seconds", "0")

    def setUp(self):
        super().setUp()
        self.json = self.folder / "out.json"

    def arguments(self, *arguments, library=FAKE):
        # -S: no site-packages, so that no torch is found even where there is one.
        return [sys.executable, "-S", SCRIPTS / "fa", "bench", "--library", library, *arguments]

    def call(self, *arguments, library=FAKE, **options):
        return self.run_script(*self.arguments(*arguments, library=library), **options)

    def data(self, done, code=0):
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)
        return json.loads(self.json.read_text())

    @needs_venv("jsonschema")
    def test_a_run(self):
        done = self.call(*self.SMALL, "--warmup", "2", "--rotate", "2", "--load-seconds", "0.01", "--peers",
                         "fa2,matmul,copy", "--json", self.json, env={"FAKE_GPU_SLOWER": "500"})
        data = self.data(done, 3)
        self.assertIn("peer/fa2 is left out: this Python cannot import torch", done.stderr)
        self.assertIn("fp16, head_dim 64, seq_len 128: timing 01_right, round 1 of 3, about", done.stderr)
        self.assertIn("Fake GPU: no protocol by name, 3 rounds of 4 launches, L2 warm, after 0 ms of rest\n", done.stdout)
        statuses = {record["kernel"]: record["status"] for record in data["records"]}
        self.assertEqual([name for name, status in statuses.items() if status == "passed"],
                         ["01_right", "02_warm", "03_slow", "10_exact_at_nan", "14_noisy", "ceiling/copy", "ceiling/matmul"])
        self.assertEqual([statuses[name] for name in ("04_right_once", "05_unsupported", "06_fatal", "07_first_buffers",
                                                      "08_remembers", "09_skips", "16_repeats_signs", "17_rough_between")],
                         ["wrong", "skipped", "error", *["wrong"] * 5])
        right = data["records"][0]
        self.assertEqual((right["round_ms"], right["under_load"]["round_ms"]), ([500.0] * 3, [500.0] * 2))
        self.assertIn("After 0.01 s without a pause:", done.stdout)
        self.assertEqual(data["protocol"], {**PROTOCOL, "warmup": 2, "iterations": 4, "rotating_inputs": 2, "load_seconds": 0.01})
        self.assertEqual(data["schema_version"], 6)
        self.assertEqual(data["command"][:4], ["bench.py", "--library", FAKE.relative_to(ROOT).as_posix(), "--dtype"])
        done = self.run_script(VENV_PYTHON, SCRIPTS / "fa", "validate", self.json)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    @needs_venv("jsonschema")
    def test_what_happens_to_scores(self):
        """Measured, named, counted and resumed: 0.1 is not a number of fp32, and a problem that was measured is found again."""
        beyond = {"FAKE_GPU_BEYOND": "1"}
        done = self.call("01", "right", *self.SMALL, "--seq-len", "128,256", "--window", "-1,3", "--softcap", "0.1", "--peers", "none",
                         "--json", self.json, env=beyond)
        data = self.data(done)
        self.assertIn("fp16, batch 1, heads 2, seq_len 128, head_dim 64, window of all to the left and 3 to the right,\nsoftcap 0.1\n", done.stdout)
        self.assertEqual([(record["kernel"], record["status"]) for record in data["records"]],
                         [("01_right", "skipped"), ("beyond/right", "passed")] * 2)
        self.assertEqual(data["records"][0]["reason"], "takes --window -1,-1, not -1,3; scores without a softcap (--softcap)")
        record = data["records"][1]
        self.assertEqual((record["window"], record["attended_pairs"]), ([-1, 3], 2 * (sum(range(4, 128)) + 4 * 128)))
        self.assertEqual(self.run_script(VENV_PYTHON, SCRIPTS / "fa", "validate", self.json).stderr, "")
        self.json.write_text(json.dumps({**data, "complete": False, "records": data["records"][:2]}))
        resumed = self.data(self.call("--resume", self.json, env=beyond))
        self.assertEqual([("run" in record, record["seq_len"]) for record in resumed["records"]],
                         [(False, 128)] * 2 + [(True, 256)] * 2)

    def test_repeated(self):
        done = self.call("02", *self.SMALL, "--peers", "none", "--rounds", "2", "--repeat", "2", "--json", self.json)
        first, second = self.data(done), json.loads((self.folder / "out-2.json").read_text())
        self.assertEqual([r["round_ms"] for data in (first, second) for r in data["records"]], [[2.0] * 2] * 2)
        for data in (first, second):
            self.assertIn("2 runs: times by at most 0.00 %", data["notes"][0])
        self.assertIn("2 runs: times by at most 0.00 % (02_warm, fp16, batch 1", done.stdout)

    def test_libraries_that_are_none(self):
        self.assert_one_sentence(self.call(library=REAL), "runs on the emulator, which has no times")
        for path in ("nothing.so", __file__):
            self.assert_one_sentence(self.call(library=path), f"{path} is not the library fa_bench of this repository")

    def interrupted(self, how, problems, *command):
        """What a run says last that this signal ends in the problem after so many."""
        script = subprocess.Popen([str(a) for a in command], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                  env={**os.environ, "PYTHONPATH": str(SCRIPTS)})
        with script:
            for said in script.stderr:  # a line for each problem and round
                if f"scores of std {problems + 1}, " in said:
                    break
            time.sleep(0.05)
            script.send_signal(how)
            _, rest = script.communicate(timeout=30)
        self.assertEqual(script.returncode, 130, said + rest)
        self.assertNotIn("Traceback", rest)
        return rest.strip().splitlines()[-1]

    LONG = ("--dtype", "fp16", "--heads", "1", "--batch", "1", "--seq-len", "128", "--head-dim", "64", "--score-std", "1,2,3",
            "--rounds", "2", "--iters", "1", "--warmup", "0", "--rest-ms", "90", "--peers", "none")

    def test_interrupted_before_anything_was_measured(self):
        for how in (signal.SIGINT, signal.SIGTERM):
            said = self.interrupted(how, 0, *self.arguments("01", *self.LONG, "--json", self.json))
            self.assertEqual(said, "error: interrupted; nothing was written")
            self.assertFalse(self.json.exists())

    @needs_venv("jsonschema")
    def test_interrupted_and_resumed(self):
        fa = SCRIPTS / "fa"
        said = self.interrupted(signal.SIGTERM, 2, fa, "bench", "--library", FAKE, "01,02", *self.LONG, "--json", self.json)
        self.assertEqual(said, f"error: interrupted; {self.json} has 2 of 3 problems, scripts/fa bench --resume {self.json} "
                               "goes on")
        begun = json.loads(self.json.read_text())
        self.assertEqual((begun["complete"], [r["score_std"] for r in begun["records"]]), (False, [1, 1, 2, 2]))
        self.assertEqual(list(self.folder.glob("out.json*")), [self.json])
        for arguments in (("validate", self.json), ("compare", self.json, self.json)):
            done = self.run_script(VENV_PYTHON, fa, *arguments, code=0)
            self.assertIn(f"note: {self.json} is of a run that was interrupted after 2 problems", done.stderr)

        for changes, words in (({"machine": {**begun["machine"], "driver": "1.2"}}, "it is of another machine"),
                               ({"protocol": {**begun["protocol"], "warmup": 9}}, "it is of another protocol"),
                               ({"records": begun["records"][1:]}, "it is of other kernels or libraries"),
                               ({"records": [{**r, "source": "0" * 12} for r in begun["records"]]},
                                "01_right has another source or version now")):
            with self.subTest(words):
                self.json.write_text(json.dumps({**begun, **changes}))
                done = self.call("--resume", self.json)
                self.assertEqual((done.returncode, done.stderr.splitlines()[-1]),
                                 (2, f"error: {self.json} cannot be resumed: {words}"))
        self.json.write_text(json.dumps(begun))
        self.assert_one_sentence(self.call("--resume", self.json, "02"), "--resume takes everything from its file")
        done = self.call("--resume", self.json)
        data = self.data(done)
        self.assertEqual([(r["kernel"], r["score_std"], "run" in r) for r in data["records"]],
                         [(name, std, std == 3) for std in (1, 2, 3) for name in ("01_right", "02_warm")])
        self.assertNotIn("scores of std 2", done.stderr)
        self.assertEqual((data["records"][:4], data["created"], data["command"]),
                         (begun["records"], begun["created"], begun["command"]))
        done = self.run_script(VENV_PYTHON, fa, "validate", self.json)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assert_one_sentence(self.call("--resume", self.json), "is complete: there is nothing to resume")

    def test_bad_arguments(self):
        cases = [
            (("--peers", "fa9"), "there is no peer fa9; known are fa2, cudnn, fa3, fa3_splits, fa3_window, fa3_fp8, cudnn_fp8, fa2_backward,"),
            (("--gradients", "--peers", "fa3"), "the peer fa3 does not go with --gradients"),
            (("--peers", "fa3_backward"), "the peer fa3_backward goes only with --gradients"),
            (("--gradients", "--protocol", "quick"), "--gradients does not go with --protocol"),
            (("--shapes", "1", "--kv-len", "5"), "--kv-len does not go with --shapes"),
            (("--in-a-row", "1"), "'1' is not a whole number from 2 to 1000"),
            (("--deterministic",), "--deterministic goes only with --gradients"),
            (("--gradients", "--fp8", "head"), "--fp8 does not go with --gradients"),
            (("--gradients", "--inputs", "large"), "--inputs does not go with --gradients"),
            (("--gradients", "--rotate", "2"), "--rotate does not go with --gradients"),
            (("--gradients", "--lengths", "3,4"), "--lengths does not go with --gradients"),
            (("--gradients", "--window", "3,4"), "--window does not go with --gradients"),
            (("--gradients", "--softcap", "3"), "--softcap does not go with --gradients"),
            (("--shapes", "1", "--window", "-1,0"), "--window does not go with --shapes"),
            (("--protocol", "quick", "--softcap", "3"), "--softcap does not go with --protocol"),
            *((("--window", text), f"{text!r} is not two whole numbers from -1 to") for text in ("7", "7,", "7,-2", "7,1,1", "a,1", "1.5,1", "-1")),
            *((("--softcap", text), f"{text!r} is not a positive number") for text in ("-1", "nan", "x")),
            (("--softcap", "0." + "0" * 50 + "1"), "is nothing in fp32"),
            (("20",), "there is no kernel 20; there are 01_right, 02_warm"),
            (("--protocol", "slow"), "'slow'"),
            (("--protocol", "quick", "--heads", "2"), "--heads does not go with --protocol"),
            (("--protocol", "quick", "--tokens", "4096"), "--tokens does not go with --protocol"),
            (("--batch", "2", "--tokens", "4096"), "not allowed with"),
            (("--inputs", "large", "--score-std", "3"), "--score-std is of normal inputs"),
            (("--protocol", "quick", "--seq-len", "512"), "the protocol quick has no problem with this --seq-len"),
            (("--protocol", "quick", "--score-std", "2"), "--score-std does not go with --protocol"),
            (("--score-std", "0"), "'0' is not a positive number"),
            (("--score-std", "1,1001"), "--score-std must be above 0 and at most 1000"),
            (("--score-std", "1", "--score-growth", "down"), "'down' is not flat or growing"),
            (("--score-growth", "flat"), "--score-growth belongs to --score-std"),
            (("--seq-len", "0"), "'0' is not a whole number from 1 on"),
            (("--mask", "none,full"), "'full' is not none or causal"),
            (("--kv-heads", "3"), "--kv-heads must divide --heads, which are 16, not be 3"),
            (("--lengths", "3,4", "--kv-lengths", "5"), "--kv-lengths needs as many numbers as --lengths, 2, not 1"),
            (("--lengths", "0,0"), "--lengths must have a sum above 0"),
            (("--lengths", "3,4", "--kv-len", "5"), "--kv-len does not go with --lengths, which has all sequences"),
            (("--protocol", "quick", "--mask", "causal"), "--mask does not go with --protocol"),
            (("--seq-len", ","), "at least one is needed"),
            (("--rounds", "1"), "'1' is not a whole number from 2 on"),
            (("--repeat", "0"), "'0' is not a whole number from 1 on"),
            (("--rotate", "65"), "'65' is not a whole number from 1 to 64"),
            (("--load-seconds", "-1"), "--load-seconds"),
            (("--max-seconds", "nan"), "'nan' is not a positive number"),
            (("--flush-l2", "--warm"), "not allowed with"),
            (("--head-dim", "80"), "80"),
            (("--json", self.folder / "none" / "x.json"), "cannot write into the folder"),
        ]
        for arguments, words in cases:
            with self.subTest(words):
                self.assert_one_sentence(self.call(*arguments), words)


class Shell(ScriptTest):
    def call(self, *arguments):
        self.program("nvidia-smi", "exit 9\n")  # as on a machine whose driver does not answer
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return self.run_script(SCRIPTS / "fa", "bench", *arguments, env={"PATH": path, "PYTHON": sys.executable})

    def test_without_a_gpu(self):
        self.assert_one_sentence(self.call("--protocol", "quick", "08"), "no NVIDIA GPU answers", code=3)

    def test_arguments_are_looked_at_first(self):
        for arguments, words in ((("--protocol", "none"), "'none'"), (("--toolkit", "x"), "--toolkit: invalid choice: 'x'"),
                                 (("--json",), "--json: expected one argument"), (("--library", "x"), "x is not the library fa_bench"),
                                 (("--seq-len", "x"), "'x' is not a whole number from 1 on"), (("08", "99"), "there is no kernel 99; there are 01_naive, ")):
            with self.subTest(words):
                self.assert_one_sentence(self.call(*arguments), words)


if __name__ == "__main__":
    main()
