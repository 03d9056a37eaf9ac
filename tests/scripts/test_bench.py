"""Kernels beside peers: rounds, medians, ratios, clocks, spread, the file, the table; programs and libraries only
pretend."""

import contextlib
import ctypes
import gc
import importlib.metadata
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
from pathlib import Path
from unittest import mock

from support import CUDA, ERROR, ROOT, SCRIPTS, VENV_PYTHON, ScriptTest, main, needs_venv

from fa_tools import baselines
from fa_tools import bench
from fa_tools import nvml
from fa_tools import serve
from fa_tools import torch_attention

PROTOCOL = {"warmup": 4, "iterations": 8, "rounds": 3, "max_seconds": 10.0, "flush_l2": False, "rotating_inputs": 1,
            "idle_ms": 0, "rest_ms": 0, "inputs": "normal", "seed": 1, "tflops_convention": "4*B*H*N^2*D"}
PROBLEM = {"dtype": "bf16", "batch": 16, "heads": 16, "seq_len": 1024, "head_dim": 128}
LIBRARY = {"name": "PyTorch", "version": "2.11.0", "implementation": "FlashAttention-2"}
OF_A_KERNEL = {"registers": 64, "shared_memory_bytes": 0, "spill_bytes": 0, "workspace_bytes": 0}

# A program with the kernels 02_fast and 03_slow (or the one it is named after; `peers` has peers and ceilings) that
# takes no GPU. The r-th timing of a kernel takes r times as long. Every request goes into the file `log` beside it,
# and the environment's FAKE says what goes wrong.
PROGRAM = """#!{python} -S
import json, os, pathlib, sys, time
here = pathlib.Path(sys.argv[0])
others = {{"peers": ["peer/cudnn_frontend", "ceiling/matmul", "ceiling/copy"], "attention": ["02_fast", "03_slow"]}}
names = others.get(here.name, [here.name])
fake, calls = os.environ.get("FAKE", ""), {{}}
if sys.argv[1:] == ["--list"]:
    sys.exit(print("\\n".join(names)))
if sys.argv[1:] != ["--serve"]:
    sys.exit("error: what?")
def answer(request):
    op, kernel = request["op"], request.get("kernel")
    with open(here.with_name("log"), "a") as log:
        log.write(f"{{here.name}} {{json.dumps(request)}}\\n")
    calls[op, kernel] = calls.get((op, kernel), 0) + 1
    slow = kernel in ("03_slow", "05_other")
    if op == "describe":
        return {{"machine": {{"backend": "emulator"}} if fake == "emulator" else {machine}, "kernels": names}}
    if op == "problem":
        global shape
        shape = {{k: request[k] for k in ("dtype", "batch", "heads", "seq_len", "head_dim")}}
        return {{"error": "too little memory"}} if fake == "memory" else {{"seconds": 0.1}}
    if op == "verify":
        record = {{"kernel": kernel, **shape, "status": "passed", "error": {error}}}
        if "/" not in kernel:
            record.update(registers=64, shared_memory_bytes=0, spill_bytes=0, workspace_bytes=0)
        else:
            record["library"] = {{"name": "cuBLAS", "version": "13.0", "implementation": "cublasLt"}}
            record.update({{"matmul": {{"flops": 2**40}}, "copy": {{"bytes": 2**31}}}}.get(kernel[8:], {{}}))
        if slow and fake == "wrong before" or slow and fake == "wrong after" and calls[op, kernel] % 2 == 0:
            record.update(status="wrong", reason="head 3 is off")
        if slow and fake == "lost in verify":
            record.pop("error")
            record.update(status="error", reason="an illegal address")
        if slow and fake == "skipped":
            record.pop("error")
            record.update(status="skipped", reason="needs compute capability 12.0")
        return {{"record": record}}
    if slow and fake == "dies":
        sys.exit("error: the GPU fell off the bus")
    if slow and fake == "killed":
        os.kill(os.getpid(), 9)
    if slow and fake in ("error", "lost"):
        return {{"error": "launch failed"}}
    if slow and fake == "sleeps":
        time.sleep(60)
    ms = calls[op, kernel] * (2.0 if slow else 0.5)
    times = {{"median": ms, "p10": ms * 0.9, "p90": ms * 1.5, "min": ms * 0.8, "launches": 8}}
    if slow and fake == "nothing":
        times.pop("median")
    if slow and fake == "NaN":
        times["median"] = float("nan")
    clock = 1800 if slow and fake == "clocks" else None if fake == "no clock" else 1980
    return {{"time_ms": times, "clock_mhz": clock, "power_w": 500.5}}
for line in sys.stdin:
    request = json.loads(line)
    if request["op"] == "quit":
        break
    if fake == "babbles" and request["op"] == "time":
        print("hello", flush=True)
    said = answer(request)
    print(json.dumps(said), flush=True)
    if fake == "lost" and "error" in said or said.get("record", {{}}).get("status") == "error":
        time.sleep(0.1)
        sys.exit(3)
"""


def reply(ms, clock=1980.0):
    return {"time_ms": {"median": ms, "p10": ms * 0.9, "p90": ms * 1.1, "min": ms * 0.8, "launches": 8},
            "clock_mhz": clock, "power_w": 600.0}


def good(name):
    more = OF_A_KERNEL if "/" not in name else {"library": LIBRARY}
    return {"kernel": name, **PROBLEM, "status": "passed", "error": dict(ERROR), **more}


WRONG = {"status": "wrong", "reason": "an element is off", "error": dict(ERROR)}


class Backend:
    """Stands in for a Server or a Torch: {name: its answers to time}; every request goes into `log`."""

    def __init__(self, answers, log=None, checks=None):
        self.answers = {name: list(each) for name, each in answers.items()}
        self.checks = {name: list(each) for name, each in (checks or {}).items()}
        self.log = [] if log is None else log
        self.failure = None

    def problem(self, problem, protocol):
        self.log.append("problem")
        if self.failure:
            raise serve.Failed(self.failure)

    def verify(self, name):
        self.log.append(f"verify {name}")
        return {**good(name), **(self.checks[name].pop(0) if self.checks.get(name) else {})}

    def time(self, name, protocol):
        self.log.append(name)
        answer = self.answers[name].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self, patience=0):
        self.log.append("close")


def quiet():
    return bench.Progress(io.StringIO())


def measured(backends, missing=None, progress=None, protocol=PROTOCOL):
    runners = [bench.Runner(backend, name) for backend in backends for name in backend.answers]
    records = bench.measure_problem(runners, missing or {}, PROBLEM, protocol, progress or quiet())
    return {record["kernel"]: record for record in records}


class Rounds(unittest.TestCase):
    def test_kernels_and_peers_take_turns_and_the_order_moves_on(self):
        log = []
        peers = Backend({"peer/fa2": [reply(1)] * 3}, log)
        kernels = Backend({"02_fast": [reply(1)] * 3, "03_slow": [reply(1)] * 3}, log)
        measured([peers, kernels])
        checks = [f"verify {name}" for name in ("peer/fa2", "02_fast", "03_slow")]
        self.assertEqual(log, [
            "problem", "problem", *checks, "peer/fa2", "02_fast", "03_slow", "03_slow", "02_fast", "peer/fa2",
            "02_fast", "03_slow", "peer/fa2", *checks])

    def test_what_drifts_meets_all_alike_in_two_rounds(self):
        # A GPU that slows down steadily: the ratio over two rounds is that of a GPU that does not.
        backend, now = Backend({"peer/fa2": [], "02_fast": [], "03_slow": []}), [0]

        def answer(name, protocol):
            now[0] += 1
            return reply({"peer/fa2": 2.0, "02_fast": 1.0, "03_slow": 4.0}[name] * (1 + 0.01 * now[0]))

        backend.time = answer
        records = measured([backend], protocol={**PROTOCOL, "rounds": 2})
        self.assertAlmostEqual(records["02_fast"]["ratio"]["peer/fa2"], 2.0, delta=2e-3)
        self.assertAlmostEqual(records["03_slow"]["ratio"]["peer/fa2"], 0.5, delta=2e-3)

    def test_the_gpu_rests_before_each_is_timed(self):
        log = []
        backend = Backend({"02_fast": [reply(1), serve.Failed("out of luck")], "peer/fa2": [reply(1)] * 3}, log)
        runners = [bench.Runner(backend, name) for name in backend.answers]
        bench.measure(runners, PROBLEM, {**PROTOCOL, "rest_ms": 30}, quiet(),
                      rest=lambda seconds: log.append(f"rest {seconds:g}"))
        self.assertEqual(log[3:-1], ["rest 0.03", "02_fast", "rest 0.03", "peer/fa2", "rest 0.03", "peer/fa2",
                                     "rest 0.03", "02_fast", "rest 0.03", "peer/fa2"])

    def test_how_peers_were_launched(self):
        graph, stream = {"launched_from": "graph"}, {"launched_from": "stream", "why": "no memory"}
        progress = quiet()
        records = measured([Backend({
            "02_fast": [reply(1)] * 3, "peer/fa2": [{**reply(1), **graph} for _ in range(3)],
            "peer/fa3": [{**reply(1), **each} for each in (graph, stream, stream)]})], progress=progress)
        self.assertEqual([records[name].get("launched_from") for name in ("02_fast", "peer/fa2", "peer/fa3")],
                         [None, "graph", "stream"])
        said = progress.stream.getvalue()
        self.assertEqual(said.count("peer/fa3 is launched from Python, not from a CUDA graph: no memory\n"), 1, said)
        self.assertNotIn("peer/fa2 is launched", said)

    def test_every_round_has_all_of_them(self):
        runners = list("abcdefg")
        for rounds in (1, 2, 3, 5, 20):
            orders = [bench.in_order(runners, r, rounds) for r in range(rounds)]
            self.assertTrue(all(sorted(order) == runners for order in orders))
            self.assertEqual(len({order[0] for order in orders}), min(rounds, 7))

    def test_medians_and_ratio_within_rounds(self):
        # The GPU slows down to a half in round 2; what the kernel's ratio says is not changed by that.
        records = measured([Backend({"peer/fa2": [reply(ms) for ms in (1.0, 2.0, 1.1)],
                                     "08_swizzle": [reply(ms) for ms in (1.25, 2.5, 1.1)]})])
        ours, fa2 = records["08_swizzle"], records["peer/fa2"]
        self.assertEqual((fa2["time_ms"]["median"], ours["time_ms"]["median"]), (1.1, 1.25))
        self.assertEqual(ours["round_ms"], [1.25, 2.5, 1.1])
        self.assertAlmostEqual(ours["ratio"]["peer/fa2"], 0.8)  # not 1.1 / 1.25
        self.assertNotIn("ratio", fa2)
        self.assertAlmostEqual(fa2["time_ms"]["min"], 0.8)
        self.assertAlmostEqual(fa2["time_ms"]["p90"], 1.1 * 1.1)
        self.assertAlmostEqual(fa2["tflops"], 4 * 16 * 16 * 1024**2 * 128 / 1.1e-3 / 1e12)
        self.assertEqual((ours["clock_mhz"], ours["power_w"], ours["round_clock_mhz"]), (1980, 600, [1980] * 3))
        self.assertEqual((fa2["library"], ours["registers"]), (LIBRARY, 64))

    def test_wrong_before_or_after(self):
        for checks, timed in (([WRONG], 0), ([{}, WRONG], 3)):
            log = []
            backend = Backend({"08_swizzle": [reply(1)] * 3, "peer/fa2": [reply(1)] * 3}, log,
                              {"peer/fa2": checks})
            records = measured([backend])
            fa2 = records["peer/fa2"]
            self.assertEqual((fa2["status"], fa2["reason"]), ("wrong", "an element is off"))
            for name in bench.OF_TIMES:
                self.assertNotIn(name, fa2)
            self.assertEqual(log.count("peer/fa2"), timed)
            self.assertEqual(records["08_swizzle"]["status"], "passed")
            self.assertNotIn("ratio", records["08_swizzle"])

    def test_a_failure_in_a_round_is_an_error(self):
        log = []
        backend = Backend({"02_fast": [reply(1), serve.Failed("out of luck")], "03_slow": [reply(1)] * 3}, log)
        records = measured([backend])
        self.assertEqual((records["02_fast"]["status"], records["02_fast"]["reason"]), ("error", "out of luck"))
        self.assertEqual(set(records["02_fast"]), {"kernel", *PROBLEM, "status", "reason"})
        self.assertEqual((log.count("02_fast"), log.count("verify 02_fast")), (2, 1))
        self.assertEqual(records["03_slow"]["status"], "passed")

    def test_tensors_that_cannot_be_made(self):
        bad, fine = Backend({"02_fast": []}), Backend({"03_slow": [reply(1)] * 3})
        bad.failure = "too little memory"
        records = measured([bad, fine])
        self.assertEqual((records["02_fast"]["status"], records["02_fast"]["reason"]), ("error", "too little memory"))
        self.assertEqual(bad.log, ["problem"])
        self.assertEqual(records["03_slow"]["status"], "passed")

    def test_missing_ones_are_named(self):
        records = measured([Backend({"02_fast": [reply(1)] * 3})], {"peer/fa3": "not here"})
        self.assertEqual((records["peer/fa3"]["status"], records["peer/fa3"]["reason"]), ("skipped", "not here"))
        self.assertEqual(list(records), ["02_fast", "peer/fa3"])

    def test_ceilings(self):
        checks = {"ceiling/matmul": [{"flops": 1e12}] * 2, "ceiling/copy": [{"bytes": 2e9}] * 2}
        records = measured([Backend({
            "02_fast": [reply(ms) for ms in (1.0, 2.0, 1.0)],
            "ceiling/copy": [reply(0.5)] * 3, "ceiling/matmul": [reply(ms) for ms in (2.0, 4.0, 3.0)]}, [], checks)])
        matmul, copy = records["ceiling/matmul"], records["ceiling/copy"]
        self.assertAlmostEqual(matmul["tflops"], 1e12 / 3e-3 / 1e12)
        self.assertEqual(matmul["flops"], 1e12)
        self.assertAlmostEqual(copy["gbytes_per_s"], 4000)
        self.assertNotIn("tflops", copy)
        self.assertNotIn("bytes", copy)
        self.assertNotIn("ratio", records["02_fast"])
        # The share of each round: 2, 2 and 3 times 0.137 of the product's speed.
        flops = bench.flops_of(PROBLEM)
        self.assertAlmostEqual(bench.of_ceiling(records["02_fast"], records.values()), 2 * flops / 1e12)
        self.assertIsNone(bench.of_ceiling(matmul, records.values()))


class Notes(unittest.TestCase):
    def records(self, kernel, peer):
        return list(measured([Backend({"08_swizzle": [reply(1, mhz) for mhz in kernel],
                                       "peer/fa2": [reply(1, mhz) for mhz in peer]})]).values())

    def test_clocks_in_the_same_round(self):
        # Both moved by 10 %, but together: nothing to say.
        self.assertEqual(bench.clock_notes(self.records((1980, 1780, 1980), (1980, 1750, 1980))), [])
        (note,) = bench.clock_notes(self.records((1980, 1980, 1980), (1980, 1800, 1980)))
        self.assertIn("seq_len 1024", note)
        self.assertIn("more than 3 % from that of peer/fa2 with 08_swizzle (1980 against 1800 MHz, +10.0 %).", note)
        self.assertEqual(len(bench.clock_notes(self.records((1900,) * 3, (1980,) * 3))), 1)

    def test_without_clocks(self):
        records = self.records((None, 1980, 1960), (1500, 1980, 1980))
        self.assertEqual(bench.clock_notes(records), [])
        self.assertEqual((records[0]["clock_mhz"], records[0]["round_clock_mhz"]), (1970, [None, 1980, 1960]))
        records = self.records((None,) * 3, (1980,) * 3)
        self.assertEqual(bench.clock_notes(records), [])
        self.assertIsNone(records[0]["clock_mhz"])
        self.assertNotIn("round_clock_mhz", records[0])

    def test_spread(self):
        def run(ours, fa2):
            return list(measured([Backend({"08_swizzle": [reply(ours)] * 3, "peer/fa2": [reply(fa2)] * 3})]).values())

        note = bench.spread_note([run(1.0, 1.0), run(1.1, 1.122)])  # ratios 1 and 1.02
        self.assertIn("2 runs: ratios spread by at most 2.00 % (08_swizzle to peer/fa2, bf16, batch 16", note)
        self.assertIn("times by at most 12.20 % (peer/fa2, bf16", note)
        self.assertIn("in the median 11.10 %", note)
        alone = [record for record in run(1.0, 1.0) if record["kernel"] == "08_swizzle"]
        self.assertIn("nothing passed in all of them", bench.spread_note([alone, []]))
        runs = run(1.0, 1.0), run(1.1, 1.122)
        for record in runs[0] + runs[1]:
            record.update(score_std=20, score_growth="growing")
        self.assertIn("(08_swizzle to peer/fa2, bf16, batch 16, heads 16, seq_len 1024, head_dim 128, scores of std 20, "
                      "growing)", bench.spread_note(runs))


class Output(unittest.TestCase):
    def test_table(self):
        peers = [f"peer/{name}" for name in ("cudnn", "cudnn_frontend", "fa2", "fa3", "fa4")]
        kernels = ("08_swizzle", "10_instruction_tuning")
        records = measured(
            [Backend({name: [reply(0.8 if name in kernels else 1.0)] * 3
                      for name in (*kernels, *peers, "ceiling/matmul", "ceiling/copy")}, [],
                     {"ceiling/matmul": [{"flops": 2e11}] * 2, "ceiling/copy": [{"bytes": 4e9}] * 2})],
            {"peer/odd": "long " * 40})
        lines = bench.table([*records.values(), *({**r, "seq_len": 2048} for r in records.values())])
        self.assertLessEqual(max(map(len, lines)), 100)
        self.assertRegex(lines[0], r"kernel +median ms p10-p90 TFLOP/s ceiling  MHz cudnn cudnn_fr   fa2   fa3   fa4$")
        self.assertEqual(lines[2], "bf16, batch 16, heads 16, seq_len 1024, head_dim 128")
        text = "\n".join(lines)
        self.assertRegex(text, r"peer/odd +skipped: long .* \.\.\.\n")
        self.assertRegex(text, r"peer/fa2 +1\.0000   20\.0%   137\.4   68\.7% 1980\n")
        self.assertRegex(text, r"ceiling/matmul +1\.0000   20\.0%   200\.0 +1980\n")
        self.assertRegex(text, r"ceiling/copy +1\.0000   20\.0% 4000 GB/s")
        self.assertRegex(text, r"08_swizzle +0\.8000   20\.0%   171\.8   85\.9% 1980 1\.250    1\.250( 1\.250){3}\n")
        self.assertEqual(len(lines), 1 + 2 * (2 + 10))
        legend = bench.legend(list(records.values()))
        self.assertIn("peer/fa2: FlashAttention-2 of PyTorch 2.11.0", legend)
        self.assertLessEqual(max(map(len, legend)), 100)

    def test_time_left(self):
        clock = [0.0]
        progress = bench.Progress(io.StringIO(), lambda: clock[0])
        runners = [bench.Runner(Backend({}), "02_fast")]
        longer = {**PROBLEM, "seq_len": 2048, "batch": 8}
        progress.plan(runners, [PROBLEM, longer], PROTOCOL)
        self.assertIsNone(progress.seconds_left())

        def step(kind, who, seconds):
            progress.step(kind, who, PROBLEM, lambda: clock.__setitem__(0, clock[0] + seconds))

        step("problem", id(runners[0].backend), 1)
        step("verify", "02_fast", 1)
        step("time", "02_fast", 2)
        # Here two more rounds and a check; then tensors, two checks and three rounds of twice the work.
        self.assertAlmostEqual(progress.seconds_left(), 2 * 2 + 1 + 2 * (1 + 2 * 1 + 3 * 2))
        progress.say("now")
        self.assertEqual(progress.stream.getvalue(), "now, about 23 s left ...\n")
        progress.drop("02_fast", PROBLEM)
        self.assertAlmostEqual(progress.seconds_left(), 2 * (1 + 2 * 1 + 3 * 2))
        step("time", "02_fast", 12)  # near the limit of 10 s: more work does not take longer than 13 s
        self.assertAlmostEqual(progress.seconds_left(), 2 * (1 + 2 * 1) + 3 * 13)
        self.assertEqual(bench.duration(240), "about 4 min")

    def test_words_of_the_command_name_no_folders(self):
        root = bench.ROOT
        self.assertEqual([bench.plainly(word) for word in
                          (str(root / "build/cuda/bin/attention"), "/tmp/x.json", "--json=/tmp/y.json", "~/z", "a/b",
                           "--rounds", "3")],
                         ["build/cuda/bin/attention", "x.json", "--json=y.json", "z", "a/b", "--rounds", "3"])

    def test_no_half_file(self):
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            stack.enter_context(mock.patch.object(Path, "replace", side_effect=KeyboardInterrupt))
            with self.assertRaises(KeyboardInterrupt):
                bench.write_whole(folder / "x.json", "{}")
            self.assertEqual(list(folder.iterdir()), [])


class Baselines(unittest.TestCase):
    WARM = {"flush_l2": False, "idle_ms": 0}

    def record(self, kernel, tflops, **changes):
        return {"kernel": kernel, **PROBLEM, "status": "passed", "tflops": tflops, **changes}

    def test_comparison(self):
        records = [self.record("peer/fa2", 333 * 1.04), self.record("peer/fa2", 342, seq_len=4096, batch=4),
                   self.record("peer/fa3", 637 * 0.9), self.record("08_swizzle", 300),
                   self.record("peer/cudnn", 999, dtype="fp16"), self.record("ceiling/matmul", 794),
                   self.record("peer/fa4", 700)]
        copy = self.record("ceiling/copy", 0, gbytes_per_s=4000.0)
        del copy["tflops"]
        lines, apart = baselines.compare(CUDA, self.WARM, [*records, copy])
        self.assertEqual(lines, [
            "ceiling/copy: not within 5 % of bench/baselines.json; furthest -7.0 % at seq_len 1024 (4000 GB/s, "
            "there 4300).",
            "ceiling/matmul: within 5 % of bench/baselines.json; furthest +0.0 % at seq_len 1024 (794 TFLOP/s, "
            "there 794).",
            "peer/fa2: within 5 % of bench/baselines.json; furthest +4.0 % at seq_len 1024 (346 TFLOP/s, there 333).",
            "peer/fa3: not within 5 % of bench/baselines.json; furthest -10.0 % at seq_len 1024 (573 TFLOP/s, "
            "there 637)."])
        self.assertEqual(apart, [lines[0], lines[3]])

    def test_other_conditions(self):
        fa2 = self.record("peer/fa2", 100.0)
        self.assertEqual(len(baselines.compare(CUDA, self.WARM, [fa2])[1]), 1)
        scaled = {**fa2, "score_std": 20, "score_growth": "flat"}
        self.assertEqual(baselines.compare(CUDA, self.WARM, [scaled]), ([], []), "the baselines are of N(0, 1)")
        for machine, settings, record in ((CUDA, {**self.WARM, "flush_l2": True}, fa2),
                                          (CUDA, {**self.WARM, "idle_ms": 1}, fa2),
                                          ({**CUDA, "gpu": "NVIDIA A100"}, self.WARM, fa2),
                                          (CUDA, self.WARM, {**fa2, "batch": 8}),
                                          (CUDA, self.WARM, {**fa2, "heads": 8}),
                                          (CUDA, self.WARM, {**fa2, "head_dim": 64}),
                                          (CUDA, self.WARM, {**fa2, "status": "wrong"})):
            self.assertEqual(baselines.compare(machine, settings, [record]), ([], []))

    def test_files_that_are_none(self):
        for text, words in (("{", "is cut off"), ("[]", "lacks something"),
                            ('{"tolerance": 0.05, "machines": {"x": [{"kernel": "peer/fa2"}]}}', "lacks something")):
            said = io.StringIO()
            with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(said), \
                    self.assertRaises(SystemExit):
                file = Path(folder) / "baselines.json"
                file.write_text(text)
                baselines.read_baselines(file)
            self.assertIn(words, said.getvalue())


class Choice(unittest.TestCase):
    """What the command line makes of protocols and problems."""

    def parse(self, *arguments):
        return bench.parse_arguments(["--program", "x", *arguments])

    def test_protocols(self):
        args = self.parse("--protocol", "fa3-paper", "08,10")
        self.assertEqual(args.kernels, ["08", "10"])
        self.assertEqual(len(args.problems), 12)
        self.assertEqual(args.settings["name"], "fa3-paper")
        self.assertEqual(self.parse().settings["name"], "quick")
        for protocol in bench.read_protocols().values():
            self.assertEqual(protocol["tflops_convention"], "4*B*H*N^2*D")

    def test_part_of_a_protocol_keeps_its_name_and_another_one_does_not(self):
        for name, *arguments in (("fa3-paper", "--seq-len", "512,4096", "--head-dim", "64"),
                                 ("fa3-paper", "--rounds", "9", "--max-seconds", "2"), ("fa3-paper", "--dtype", "fp16"),
                                 (None, "--dtype", "bf16"), (None, "--idle-ms", "5"), (None, "--flush-l2"),
                                 (None, "--rotate", "3"), (None, "--iters", "7"), (None, "--rest-ms", "0"),
                                 ("fa3-paper", "--warm")):
            with self.subTest(arguments):
                args = self.parse("--protocol", "fa3-paper", *arguments)
                self.assertEqual(args.settings.get("name"), name)
        args = self.parse("--protocol", "fa3-paper", "--seq-len", "512", "--head-dim", "64", "--dtype", "bf16")
        self.assertEqual(args.problems,
                         [{"dtype": "bf16", "batch": 32, "heads": 32, "seq_len": 512, "head_dim": 64}])

    def test_free_problems(self):
        args = self.parse("--seq-len", "512,1024,512", "--dtype", "fp16", "--idle-ms", "2.5", "--rotate", "3")
        self.assertEqual([(p["dtype"], p["batch"], p["seq_len"]) for p in args.problems],
                         [("fp16", 32, 512), ("fp16", 16, 1024)])
        self.assertEqual({k: args.settings[k] for k in ("idle_ms", "rotating_inputs", "warmup", "rounds")},
                         {"idle_ms": 2.5, "rotating_inputs": 3, "warmup": 32, "rounds": 3})
        self.assertEqual(self.parse("--rest-ms", "7.5").settings["rest_ms"], 7.5)
        scores = [{"score_std": std, "score_growth": growth} for growth in ("flat", "growing") for std in (1, 2.5)]
        args = self.parse("--seq-len", "512,1024", "--score-std", "1,2.5,1", "--score-growth", "flat,growing")
        self.assertEqual([p["seq_len"] for p in args.problems], [512] * 4 + [1024] * 4)
        self.assertEqual([{k: p[k] for k in bench.SCORES} for p in args.problems], scores * 2)
        args = self.parse("--score-std", "5")
        self.assertEqual([(p["seq_len"], p["score_std"], p["score_growth"]) for p in args.problems], [(4096, 5, "flat")])
        self.assertNotIn("name", args.settings)


class FakeGpu:
    """Stands in for a torch_attention.Gpu: `time` is the GPU's clock and `cpu` the CPU's, in ms. A GPU that has
    nothing queued waits for the CPU. `no_graph`: what a graph's capture fails with."""

    def __init__(self, launch_ms=1.0, cpu_ms=0.0, flush_ms=0.0, no_graph=None):
        self.time, self.cpu, self.events, self.recorded = 0.0, 0.0, [], None
        self.launch_ms, self.cpu_ms, self.flush_ms, self.no_graph = launch_ms, cpu_ms, flush_ms, no_graph

    def do(self, what):
        """Now, or when the graph that is being captured runs."""
        if self.recorded is None:
            what()
        else:
            self.recorded.append(what)

    def spend(self, milliseconds):
        self.time = (self.time if self.recorded is not None else max(self.time, self.cpu)) + milliseconds

    def launch(self, i):
        self.events.append(f"launch {i}")
        self.cpu += self.cpu_ms
        self.do(lambda: self.spend(self.launch_ms))
        return f"result {i}"

    def timer(self):
        gpu = self

        class FakeTimer:
            def start(self):
                gpu.do(lambda: setattr(self, "begin", max(gpu.time, gpu.cpu)))

            def stop(self):
                gpu.do(lambda: setattr(self, "end", gpu.time))

            def milliseconds(self):
                gpu.events.append("wait")
                gpu.cpu = max(gpu.cpu, self.end)
                return self.end - self.begin

        return FakeTimer()

    def graph(self):
        gpu = self

        class FakeGraph:
            def __init__(self):
                self.timers = []

            @contextlib.contextmanager
            def capture(self):
                gpu.events.append("capture")
                gpu.recorded = []
                try:
                    yield
                    if gpu.no_graph:
                        raise RuntimeError(gpu.no_graph)
                finally:
                    self.launches, gpu.recorded = gpu.recorded, None
                    gpu.events.append("captured")

            def timer(self):
                self.timers.append(gpu.timer())
                return self.timers[-1]

            def replay(self):
                gpu.events.append("replay")
                for launch in self.launches:
                    launch()

        return FakeGraph()

    def now(self):
        return self.cpu

    def set_flush(self, wanted):
        self.events.append(f"set_flush {wanted}")

    def flush(self):
        self.events.append("flush")
        self.do(lambda: self.spend(self.flush_ms))

    def rest(self, milliseconds):
        self.events.append(f"rest {milliseconds}")

    def hold(self, milliseconds):
        self.events.append(f"hold {milliseconds:g}")
        self.do(lambda: self.spend(milliseconds))

    def watch(self, timer):
        self.events.append("watch")
        return [(1980, 500.0)]


class Launches(unittest.TestCase):
    """The protocol of the harness."""

    def time(self, launch_ms, cpu_ms=0.0, flush_ms=0.0, no_graph=None, **changes):
        self.gpu = FakeGpu(launch_ms, cpu_ms, flush_ms, no_graph)
        self.results = []

        @contextlib.contextmanager
        def checked(result):
            self.results.append(result)
            self.gpu.events.append("poison")
            yield
            self.gpu.events.append("check")
            if result == self.wrong:
                raise ValueError("it is wrong")

        self.timing = torch_attention.time_launches(self.gpu.launch, self.gpu, {**PROTOCOL, **changes}, checked)
        self.events = self.gpu.events
        return self.timing.milliseconds

    wrong = None

    def launches(self, events=None):
        return sum(event.startswith("launch") for event in events or self.events)

    def test_warm_up_then_a_graph_of_warm_up_and_all_launches(self):
        self.assertEqual(self.time(2.0, flush_ms=50.0), [2.0] * 8)  # the flush is outside of the timed interval
        warm = [event for i in range(4) for event in (f"launch {i}", "wait")]
        timed = [event for i in range(8) for event in ("flush", f"launch {i}")]
        self.assertEqual(self.events, [*warm, "capture", *(f"launch {i}" for i in range(4)), *timed, "captured",
                                       "poison", "replay", "watch", "check", *["wait"] * 8])
        self.assertEqual((self.timing.readings, self.timing.launched_from, self.timing.why),
                         ([(1980, 500.0)], "graph", None))
        self.assertEqual(self.results, ["result 7"])

    def test_a_graph_has_nothing_of_the_cpu_in_it(self):
        self.assertEqual(self.time(0.125, cpu_ms=5.0), [0.125] * 8)
        self.assertFalse([event for event in self.events if event.startswith("hold")])

    def test_without_a_graph(self):
        times = self.time(2.0, flush_ms=50.0, no_graph="no capture in /a/b/c.py\nand more")
        self.assertEqual(times, [2.0] * 8)
        timed = [event for i in range(8) for event in ("flush", f"launch {i}")]
        self.assertEqual(self.events[self.events.index("captured") + 1:], ["hold 0", *timed, "watch", *["wait"] * 8])
        self.assertEqual((self.timing.readings, self.timing.launched_from, self.timing.why),
                         ([(1980, 500.0)], "stream", "no capture in c.py"))
        self.assertEqual(self.results, [])

    def test_a_graph_that_computes_something_else_is_not_taken(self):
        self.wrong = "result 7"
        self.assertEqual(self.time(2.0), [2.0] * 8)
        self.assertEqual((self.timing.launched_from, self.timing.why), ("stream", "it is wrong"))
        self.assertEqual(self.launches(), 4 + (4 + 8) + 8)

    def test_slow_launches_are_fewer(self):
        times = self.time(1000.0)  # 10 s: three to warm up, ten could be timed
        self.assertEqual(len(times), 8)
        self.assertEqual(self.launches(self.events[:self.events.index("capture")]), 3)
        self.assertEqual(self.launches(), 3 + 3 + 8)
        self.assertEqual(len(self.time(2000.0)), 5)
        self.assertEqual(len(self.time(60_000.0)), 1)
        self.assertEqual(self.launches(), 1 + 1 + 1)
        self.assertEqual(len(self.time(2.0, idle_ms=1998)), 5)  # resting takes time too

    def test_a_slow_queue_is_filled_before_the_gpu_begins(self):
        def holds(launch_ms, cpu_ms):
            times = self.time(launch_ms, cpu_ms, no_graph="none")
            self.assertTrue(all(abs(ms - launch_ms) < 1e-9 for ms in times) or cpu_ms > 100, times)
            return [event for event in self.events if event.startswith("hold")]

        self.assertEqual(holds(2.0, 0.5), ["hold 1"])
        self.assertEqual(holds(2.0, 1.9), ["hold 22.8"])  # 1.5 * 8 launches: Python may be slower than it was
        self.assertEqual(holds(2.0, 2.1), ["hold 25.2"])
        self.assertEqual(holds(2.0, 1000.0), ["hold 200"])

    def test_nothing_is_collected_while_the_queue_fills(self):
        enabled = []
        for before in (True, False):
            (gc.enable if before else gc.disable)()
            self.addCleanup(gc.enable)
            gpu = FakeGpu(no_graph="none")

            def launch(i):
                enabled.append(gc.isenabled())
                return gpu.launch(i)  # noqa: B023

            torch_attention.time_launches(launch, gpu, {**PROTOCOL, "warmup": 1, "iterations": 1})
            self.assertEqual(gc.isenabled(), before)
        # Warm-up, the graph's two, the queue's one.
        self.assertEqual(enabled, [True, True, True, False] + [False] * 4)

    def test_burst(self):
        self.assertEqual(self.time(2.0, cpu_ms=0.5, idle_ms=5, iterations=2), [2.0] * 2)
        one = ["flush", "rest 5", "hold 1"]
        self.assertEqual(self.events[8:], [*one, "launch 0", "watch", *one, "launch 1", "watch", "wait", "wait"])
        self.assertEqual((len(self.timing.readings), self.timing.launched_from), (2, "stream"))

    def test_quantiles_are_those_of_the_harness(self):
        times = torch_attention.summarise([float(ms) for ms in range(11, 0, -1)])
        self.assertEqual(times, {"median": 6.0, "p10": 2.0, "p90": 10.0, "min": 1.0, "launches": 11})
        self.assertEqual(torch_attention.summarise([1.0, 2.0])["median"], 1.5)


class Graphs(unittest.TestCase):
    """What PyTorch is asked for, which is made up here."""

    def test_capture(self):
        log, stream = [], ["own"]

        class Event:
            def __init__(self, **how):
                log.append(sorted(how.items()))

            def record(self):
                log.append(f"record on {stream[0]}")

        @contextlib.contextmanager
        def on(wanted):
            before, stream[0] = stream[0], wanted
            try:
                yield
            finally:
                stream[0] = before

        @contextlib.contextmanager
        def capture(graph):  # as PyTorch 2.11: after a failure its stream stays
            stream[0] = graph
            yield
            stream[0] = "own"

        cuda = types.SimpleNamespace(Event=Event, CUDAGraph=lambda: "graph", stream=on, graph=capture,
                                     current_stream=lambda: stream[0])
        graph = torch_attention.Graph(types.SimpleNamespace(cuda=cuda))
        with graph.capture():
            timer = graph.timer()
            timer.start()
        self.assertEqual(log, [[("enable_timing", True), ("external", True)]] * 2 + ["record on graph"])
        self.assertEqual((graph.timers, stream), ([timer], ["own"]))
        with self.assertRaises(RuntimeError), graph.capture():
            raise RuntimeError("not permitted")
        self.assertEqual(stream, ["own"])


class Sensors(unittest.TestCase):
    class Driver:
        """Stands in for NVML with one GPU called GPU-a."""

        def __init__(self):
            self.asked, self.power = [], 0

        def nvmlDeviceGetHandleByUUID(self, name, handle):
            self.asked.append(name)
            return 0 if name == b"GPU-a" else 6

        def nvmlDeviceGetHandleByIndex_v2(self, index, handle):
            self.asked.append(index.value)
            return 0

        def nvmlDeviceGetClockInfo(self, device, kind, value):
            value._obj.value = 1755 if kind == 1 else 1
            return 0

        def nvmlDeviceGetPowerUsage(self, device, value):
            value._obj.value = 512_300
            return self.power

    def test_reading(self):
        for uuid, asked in (("a", [b"GPU-a"]), ("GPU-a", [b"GPU-a"]), ("b", [b"GPU-b", 0]), (None, [0])):
            driver = self.Driver()
            self.assertEqual(nvml.Sensors(driver, uuid).read(), (1755, 512.3))
            self.assertEqual(driver.asked, asked)
        driver.power = 3  # not supported
        self.assertEqual(nvml.Sensors(driver).read(), (1755, None))
        self.assertEqual(nvml.Sensors(None).read(), (None, None))
        # Where the driver tells the power of the moment, that is taken.
        for kind, error, watts in ((1, 0, 612.5), (1, 3, 512.3), (0, 0, 512.3)):
            driver = self.Driver()

            def fields(device, count, value):
                value._obj.number, value._obj.type, value._obj.error = 612_500, kind, error  # noqa: B023
                return 0 if value._obj.id == 186 and count == 1 else 1

            driver.nvmlDeviceGetFieldValues = fields
            self.assertEqual(nvml.Sensors(driver).read(), (1755, watts))
        self.assertEqual(ctypes.sizeof(nvml.FieldValue), 40)
        with mock.patch.object(ctypes, "CDLL", side_effect=OSError):
            self.assertIsNone(nvml.load())

    def test_medians(self):
        self.assertEqual(nvml.medians([(1, None), (3, None), (8, None)]), (3, None))
        self.assertEqual(nvml.medians([]), (None, None))


class Libraries(unittest.TestCase):
    """Finding the packages of peers, which are modules made here."""

    def setUp(self):
        # As if none of the packages were installed.
        hidden = dict.fromkeys(("fa3_fwd_interface", "flash_attn_interface", "flash_attn.cute"))
        absent = importlib.metadata.PackageNotFoundError
        for patch in (mock.patch.dict(sys.modules, hidden),
                      mock.patch.object(importlib.metadata, "version", side_effect=absent)):
            patch.start()
            self.addCleanup(patch.stop)

    def make(self, peer):
        return torch_attention.PEERS[peer][1](torch_attention.PEERS[peer][0], types.SimpleNamespace(__version__="2"))

    def test_packages_that_are_not_here(self):
        for peer, words in (("fa3", "cannot import fa3_fwd_interface (package fa3-fwd)"),
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
            self.assertEqual((library.implementation, library.version), ("FlashAttention-3", "0.0"))
            arguments = library.arguments(Tensor(), Tensor(), Tensor())
            self.assertEqual([tensor.axes for tensor in arguments], ["BNHD"] * 3)
            self.assertEqual(library.output(library.launch(*arguments)).axes, "BHND")

    def test_found_peers(self):
        class NoTorch:
            def __init__(self):
                raise torch_attention.Missing("this Python cannot import torch")

        self.assertEqual(bench.find_peers(["fa2"], NoTorch), ([], {"peer/fa2": "this Python cannot import torch"}))

        class Some(Backend):
            def add(self, name):
                if name == "fa3":
                    raise torch_attention.Missing("no package")

        runners, missing = bench.find_peers(["fa2", "fa3"], lambda: Some({}))
        self.assertEqual(([runner.name for runner in runners], missing), (["peer/fa2"], {"peer/fa3": "no package"}))


@unittest.skipUnless(importlib.util.find_spec("torch"), "this Python has no torch")
class Comparison(unittest.TestCase):
    """The check of a peer's output, on the CPU, where nothing is timed."""

    SHAPE = {"batch": 2, "heads": 3, "seq_len": 256, "head_dim": 64}

    def backend(self, peer):
        import torch

        def write_tensors(problem, protocol, folder):
            generator, files = torch.Generator().manual_seed(protocol["seed"]), []
            for name in "qkv":
                shape = [problem[each] for each in ("batch", "heads", "seq_len", "head_dim")]
                dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[problem["dtype"]]
                tensor = torch.randn(shape, generator=generator).to(dtype)
                files.append(str(Path(folder) / name))
                Path(files[-1]).write_bytes(bytes(tensor.view(torch.int16).flatten().untyped_storage()))
            return files

        backend = torch_attention.Torch(write_tensors, "cpu")
        backend.add(peer)
        return backend

    def run_with(self, change, dtype="bf16", peer="fa2"):
        import torch

        backend = self.backend(peer)
        backend.problem({"dtype": dtype, **self.SHAPE}, PROTOCOL)
        real = torch.nn.functional.scaled_dot_product_attention
        torch.nn.functional.scaled_dot_product_attention = lambda q, k, v: change(real(q, k, v))
        try:
            return backend.verify(f"peer/{peer}")
        finally:
            torch.nn.functional.scaled_dot_product_attention = real

    def test_right_outputs_pass(self):
        for dtype, most in (("bf16", 3e-3), ("fp16", 4e-4)):
            record = self.run_with(lambda output: output, dtype)
            self.assertEqual(record["status"], "passed", record)
            self.assertTrue(0 < record["error"]["rel"] < most, record)
            self.assertLess(record["error"]["bound_ratio"], 0.5)
            self.assertEqual(record["error"]["checked_rows"], 2 * 3 * min(256, torch_attention.CHECKED_ROWS))

    def test_wrong_outputs_do_not(self):
        def one_element(output):
            output = output.clone()
            output[1, 2, -1, 5] += 0.1
            return output

        for change, reason in ((lambda output: output * 1.01, "a head is off by 0.01"),
                               (lambda output: output * float("nan"), "not a finite number"),
                               (one_element, "an element is off by")):
            record = self.run_with(change)
            self.assertEqual(record["status"], "wrong")
            self.assertIn(reason, record["reason"])

    def test_the_tensors_are_those_of_the_program(self):
        import torch

        backend, asked = self.backend("fa2"), []
        ordinary = backend.write_tensors

        def tenfold(problem, protocol, folder):
            asked.append((problem, protocol["inputs"]))
            files = ordinary(problem, protocol, folder)
            for file in files:
                tensor = torch.from_file(file, shared=True, size=Path(file).stat().st_size // 2, dtype=torch.bfloat16)
                tensor *= 8
            return files

        shape = {"dtype": "bf16", **self.SHAPE}
        backend.problem(shape, PROTOCOL)
        plain = [tensor.clone() for tensor in backend.inputs[0]]
        self.assertEqual(plain[0].shape, (2, 3, 256, 64))
        backend.write_tensors = tenfold
        backend.problem(shape, PROTOCOL)
        self.assertEqual(asked, [], "they are there")
        scaled = {**shape, "score_std": 5.0, "score_growth": "flat"}
        for problem, inputs in ((shape, "large"), (scaled, "normal")):
            backend.problem(problem, {**PROTOCOL, "inputs": inputs})
            self.assertEqual(asked[-1], (problem, inputs))
            for tensor, before in zip(backend.inputs[0], plain):
                self.assertTrue(tensor.equal(before * 8))
        self.assertEqual(backend.verify("peer/fa2")["score_std"], 5.0)

    def test_timing_takes_the_sets_of_tensors_in_turn(self):
        answer, seen, backend, events = self.timed(writes=True)
        self.assertEqual(answer["time_ms"], {"median": 1.0, "p10": 1.0, "p90": 1.0, "min": 1.0, "launches": 4})
        self.assertEqual((answer["clock_mhz"], answer["power_w"]), (1980, 500.0))
        self.assertEqual((answer["launched_from"], answer.get("why")), ("graph", None))
        sets = [each[0].data_ptr() for each in backend.inputs]
        self.assertEqual(seen, [sets[0], sets[0], *sets, sets[0]])  # warm-up, the graph's, the graph's timed ones
        self.assertEqual(len(set(seen)), 3)
        self.assertEqual(events[0], "set_flush True")
        self.assertEqual(events.count("flush"), 4)

    def test_a_graph_that_computes_nothing_is_not_taken(self):
        answer, seen, backend, _ = self.timed(writes=False)
        self.assertEqual(answer["time_ms"]["launches"], 4)
        self.assertEqual(answer["launched_from"], "stream")
        self.assertEqual(answer["why"], "what its CUDA graph computes is wrong: an element of the output is not a "
                                        "finite number")
        self.assertEqual(seen[-4:], [backend.inputs[i][0].data_ptr() for i in (0, 1, 2, 0)])

    def timed(self, writes):
        """A peer's answer, the q of its launches, the backend, what the GPU was asked for; whether its graph's launches
        write their outputs."""
        import torch

        backend, seen = self.backend("fa2"), []
        gpu = backend.gpu = FakeGpu()
        protocol = {**PROTOCOL, "rotating_inputs": 3, "flush_l2": True, "warmup": 1, "iterations": 4}
        backend.problem({"dtype": "bf16", **self.SHAPE}, protocol)

        def launch(q, k, v):
            gpu.launch(0)
            seen.append(q.data_ptr())
            self.assertTrue(torch.equal(q, backend.inputs[0][0]))
            result = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            right = result.clone()
            gpu.do(lambda: writes and result.copy_(right))
            return result

        backend.libraries["peer/fa2"].launch = launch
        with mock.patch.object(torch.cuda, "synchronize"):
            return backend.time("peer/fa2", protocol), seen, backend, gpu.events

    def test_a_library_that_fails(self):
        backend = self.backend("fa2")
        backend.problem({"dtype": "bf16", **self.SHAPE}, PROTOCOL)
        for text, words in (("CUDA error: lost\nand more", "CUDA error: lost"), ("in /a/b/c.cu:3", "in c.cu:3")):
            backend.libraries["peer/fa2"].launch = mock.Mock(side_effect=RuntimeError(text))
            with self.assertRaises(serve.Failed) as caught:
                backend.verify("peer/fa2")
            self.assertEqual(str(caught.exception), words)

    def test_a_back_end_that_refuses(self):
        record = self.run_with(lambda output: output, peer="cudnn")
        self.assertEqual(record["status"], "skipped")
        self.assertIn("does not run cuDNN (CUDNN_ATTENTION) here", record["reason"])


class Programs(ScriptTest):
    """The program's side: requests, and what may happen to them."""

    def setUp(self):
        super().setUp()
        text = PROGRAM.format(python=sys.executable, error=ERROR, machine=CUDA)
        for name in ("attention", "kernels/04_alone", "kernels/05_other"):
            self.write(name, text).chmod(0o755)
        self.write("kernels/04_alone.txt", "no program")
        self.json = self.folder / "out.json"

    def requests(self, folder=""):
        log = self.folder / folder / "log"
        return [(line.split(" ", 1)[0], json.loads(line.split(" ", 1)[1])) for line in log.read_text().splitlines()]


class Requests(Programs):
    def server(self, fake=""):
        with mock.patch.dict(os.environ, FAKE=fake):
            server = serve.Server(self.folder / "attention")
            server.start()
        self.addCleanup(server.close)
        return server

    def test_a_conversation(self):
        server = self.server()
        self.assertEqual(server.describe()["kernels"], ["02_fast", "03_slow"])
        server.problem(PROBLEM, PROTOCOL)
        self.assertEqual(server.verify("02_fast")["registers"], 64)
        self.assertEqual(server.time("02_fast", PROTOCOL)["time_ms"]["median"], 0.5)
        process = server.process
        self.assertNotEqual(os.getsid(process.pid), os.getsid(0))  # Ctrl-C must not reach it before the script
        server.close()
        self.assertEqual(process.returncode, 0)
        requests = [request for _, request in self.requests()]
        self.assertEqual(requests[1], {"op": "problem", **PROBLEM, "inputs": "normal", "seed": 1, "flush_l2": False,
                                       "rotating_inputs": 1})
        self.assertEqual(requests[3], {"op": "time", "kernel": "02_fast", "warmup": 4, "iterations": 8,
                                       "max_seconds": 10.0, "idle_ms": 0})

    def test_a_program_that_ends_is_started_again_with_its_tensors(self):
        for fake, words in (("dies", "attention ended in 'time': the GPU fell off the bus"),
                            ("killed", "attention ended by signal 9 in 'time'"), ("lost", "launch failed")):
            with self.subTest(fake), mock.patch.dict(os.environ, FAKE=fake):
                server = self.server(fake)
                server.problem(PROBLEM, PROTOCOL)
                with self.assertRaises(serve.Failed) as caught:
                    server.time("03_slow", PROTOCOL)
                self.assertEqual(str(caught.exception), words)
                self.assertEqual(server.time("02_fast", PROTOCOL)["time_ms"]["median"], 0.5)
                self.assertEqual([request["op"] for _, request in self.requests()][-2:], ["problem", "time"])

    def test_no_answer(self):
        server = self.server("sleeps")
        server.problem(PROBLEM, PROTOCOL)
        with mock.patch.object(serve, "ANSWER_SECONDS", 0.2), self.assertRaises(serve.Failed) as caught:
            server.time("03_slow", PROTOCOL)
        self.assertIn("did not answer 'time' within 0.2 s", str(caught.exception))
        self.assertIsNone(server.process)

    def test_broken_answers(self):
        for fake, words in (("babbles", "answered 'time' with 'hello', not with one JSON object a line"),
                            ("nothing", "answered 'time' without a usable time_ms.median"),
                            ("NaN", "not with one JSON object a line")):
            with self.subTest(fake):
                server = self.server(fake)
                server.problem(PROBLEM, PROTOCOL)
                with self.assertRaises(serve.Broken) as caught:
                    server.time("03_slow", PROTOCOL)
                self.assertIn(words, str(caught.exception))
        for op, answer in (("describe", {"machine": {}}), ("describe", {"machine": CUDA, "kernels": [1]}),
                           ("verify", {"record": {"status": "fine"}}), ("verify", {"record": {"status": "wrong"}}),
                           ("verify", {}), ("time", {"time_ms": dict.fromkeys(serve.TIMES, 0)}),
                           ("time", {**reply(1.0), "clock_mhz": "fast"})):
            self.assertIsNotNone(serve._lacks(op, answer), answer)
        self.assertIsNone(serve._lacks("time", reply(1.0, None)))


class Command(Programs):
    def arguments(self, *arguments, program="attention"):
        # -S: no site-packages, so that no torch is found even where there is one.
        return [sys.executable, "-S", "-m", "fa_tools.bench", "--program", self.folder / program, *arguments]

    def call(self, *arguments, program="attention", fake=""):
        return self.run_script(*self.arguments(*arguments, program=program), env={"FAKE": fake})

    def data(self, done, code=0):
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)
        return json.loads(self.json.read_text())

    def test_free_problems(self):
        done = self.call("--seq-len", "512,1024", "--rounds", "3", "--iters", "8", "--warmup", "2", "--peers",
                         "fa2,matmul", "--json", self.json)
        data = self.data(done)
        self.assertIn("peer/fa2 is left out: this Python cannot import torch", done.stderr)
        self.assertIn("ceiling/matmul is left out: there is no program peers beside the kernels'", done.stderr)
        self.assertIn("seq_len 1024: round 3 of 3, about 1 s left ...", done.stderr)
        self.assertIn("NVIDIA H200: no protocol by name, 3 rounds of 8 launches, L2 warm, "
                      "sustained after 100 ms of rest\n",
                      done.stdout)
        self.assertEqual([(r["kernel"], r["seq_len"], r["batch"], r["status"]) for r in data["records"]],
                         [(kernel, n, 16384 // n, "skipped" if "/" in kernel else "passed")
                          for n in (512, 1024) for kernel in ("02_fast", "03_slow", "peer/fa2", "ceiling/matmul")])
        self.assertEqual(data["records"][0]["round_ms"], [0.5, 1.0, 1.5])
        self.assertEqual(data["records"][0]["time_ms"]["median"], 1.0)
        self.assertEqual(data["protocol"], {**PROTOCOL, "warmup": 2, "rest_ms": 100})
        self.assertEqual((data["schema_version"], data["machine"], data["notes"]), (4, CUDA, []))
        self.assertEqual(data["command"][:5], ["bench.py", "--program", "attention", "--seq-len", "512,1024"])
        ops = [request["op"] for _, request in self.requests()]
        self.assertEqual(ops[0], "describe")
        self.assertEqual(ops[1:], (["problem"] + ["verify"] * 2 + ["time"] * 6 + ["verify"] * 2) * 2)

    @needs_venv("jsonschema")
    def test_the_file_is_valid(self):
        self.write("peers", (self.folder / "attention").read_text()).chmod(0o755)
        data = self.data(self.call("--protocol", "quick", "--json", self.json))
        self.assertEqual(data["protocol"]["name"], "quick")
        self.assertEqual(len(data["records"]), 2 * 9)
        files = [self.json]
        # With peers in Python and bad records, made here without a GPU.
        records = measured([Backend({"08_swizzle": [reply(ms, None) for ms in (1.25, 2.5, 1.1)],
                                     "09_other": [serve.Failed("no luck")],
                                     "peer/fa2": [reply(ms) for ms in (1.0, 2.0, 1.1)], "peer/cudnn": []},
                                    [], {"peer/cudnn": [WRONG]})], {"peer/fa4": "not here"})
        data = bench.results("2026-11-21T10:00:00Z", ["bench.sh", "--json", "/tmp/x.json"], CUDA,
                             {"name": "quick", **PROTOCOL}, list(records.values()), ["Clocks moved."])
        files.append(self.write("made.json", data))
        done = self.run_script(VENV_PYTHON, SCRIPTS / "fa", "validate", *files)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    @needs_venv("jsonschema")
    def test_scores(self):
        done = self.call("--seq-len", "512", "--score-std", "1,20", "--score-growth", "growing", "--rounds", "2",
                         "--iters", "8", "--peers", "none", "--json", self.json)
        records = self.data(done)["records"]
        self.assertEqual([(r["kernel"], r["score_std"], r["score_growth"]) for r in records],
                         [(kernel, std, "growing") for std in (1, 20) for kernel in ("02_fast", "03_slow")])
        self.assertIn("seq_len 512, head_dim 128, scores of std 20, growing\n", done.stdout)
        problems = [request for _, request in self.requests() if request["op"] == "problem"]
        self.assertEqual([(p["score_std"], p["score_growth"]) for p in problems], [(1, "growing"), (20, "growing")])
        done = self.run_script(VENV_PYTHON, SCRIPTS / "fa", "validate", self.json)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_programs_with_one_kernel_each_and_peers_beside_them(self):
        self.write("kernels/peers", (self.folder / "attention").read_text()).chmod(0o755)
        done = self.call("05,04_alone", "05", "--rounds", "1", "--seq-len", "512", "--flush-l2", "--rotate", "4",
                         "--idle-ms", "1.5", "--json", self.json, program="kernels")
        records = {record["kernel"]: record for record in self.data(done)["records"]}
        self.assertEqual(list(records), ["04_alone", "05_other", *sorted(f"peer/{name}" for name in (
            "cudnn", "cudnn_frontend", "fa2", "fa3", "fa4")), "ceiling/copy", "ceiling/matmul"])
        self.assertAlmostEqual(records["04_alone"]["ratio"]["peer/cudnn_frontend"], 1.0)
        self.assertAlmostEqual(records["05_other"]["ratio"]["peer/cudnn_frontend"], 0.25)
        self.assertAlmostEqual(records["ceiling/matmul"]["tflops"], 2**40 / 0.5e-3 / 1e12)
        self.assertRegex(done.stdout, r"ceiling/copy +0\.5000 +60\.0% 4295 GB/s")
        times = [(who, request) for who, request in self.requests("kernels") if request["op"] == "time"]
        self.assertEqual([who for who, _ in times], ["05_other", "04_alone", "peers", "peers", "peers"])
        self.assertEqual(times[0][1]["idle_ms"], 1.5)
        problem = next(request for _, request in self.requests("kernels") if request["op"] == "problem")
        self.assertEqual((problem["flush_l2"], problem["rotating_inputs"]), (True, 4))

    def test_a_list_of_programs(self):
        done = self.call("--program", self.folder / "kernels", "02", "05", "--peers", "none", "--rounds", "1",
                         "--json", self.json)
        self.assertEqual({r["kernel"] for r in self.data(done)["records"]}, {"02_fast", "05_other"})

    def test_as_called_by_the_shell_script(self):
        done = self.call("--json", self.json, "--typed", "--protocol", "quick", "02", "--peers", "none")
        self.assertEqual(self.data(done)["command"], ["bench.sh", "--protocol", "quick", "02", "--peers", "none"])

    def test_repeated(self):
        done = self.call("02", "--peers", "none", "--rounds", "1", "--repeat", "2", "--seq-len", "512",
                         "--json", self.json)
        first = self.data(done)
        second = json.loads((self.folder / "out-2.json").read_text())
        self.assertEqual([r["round_ms"] for data in (first, second) for r in data["records"]], [[0.5], [1.0]])
        self.assertIn("2 runs: times by at most 100.00 % (02_fast, bf16, batch 32", done.stdout)
        for data in (first, second):
            self.assertEqual(len(data["notes"]), 1)
            self.assertIn("2 runs: times by at most 100.00 %", data["notes"][0])

    def test_results_that_do_not_pass(self):
        for fake, code, words in (("wrong before", 1, "wrong: head 3 is off"),
                                  ("wrong after", 1, "wrong: head 3 is off"),
                                  ("skipped", 0, "skipped: needs compute capability 12.0"),
                                  ("error", 3, "error: launch failed"), ("lost", 3, "error: launch failed"),
                                  ("dies", 3, "error: attention ended in 'time': the GPU fell off the bus"),
                                  ("lost in verify", 3, "error: an illegal address"),
                                  ("memory", 3, "error: too little memory")):
            with self.subTest(fake):
                done = self.call("03", "02", "--peers", "none", "--rounds", "2", "--seq-len", "512", "--json",
                                 self.json, fake=fake)
                fast, slow = self.data(done, code)["records"]
                self.assertIn(f"03_slow{' ' * 14}{words}", done.stdout)
                self.assertNotIn("time_ms", slow)
                self.assertEqual(fast["status"], "error" if fake == "memory" else "passed")

    def test_clocks(self):
        self.write("peers", (self.folder / "attention").read_text()).chmod(0o755)
        done = self.call("--protocol", "leetcuda", "--json", self.json, fake="clocks")
        note, *others = self.data(done)["notes"]
        self.assertEqual([other.split(":")[0] for other in others], ["ceiling/copy"])  # those off their baselines
        self.assertIn("peer/cudnn_frontend with 03_slow (1800 against 1980 MHz, -9.1 %)", note)
        self.assertIn(f"note: {note}", " ".join(done.stdout.split()))

    def test_programs_that_are_none(self):
        self.assert_one_sentence(self.call(fake="emulator"), "runs on the emulator, which has no times")
        for fake, words in (("babbles", "attention answered 'time' with 'hello'"),
                            ("NaN", "not with one JSON object a line"), ("nothing", "without a usable time_ms.median")):
            with self.subTest(fake):
                done = self.call("--peers", "none", "--json", self.json, fake=fake)
                self.assertEqual(done.returncode, 3)
                self.assertIn(words, done.stderr.splitlines()[-1])
                self.assertFalse(self.json.exists())
        self.write("old", "#!/bin/sh\n[ \"$1\" = --list ] && echo 02_fast && exit 0\n"
                          "echo 'error: --serve is unknown' >&2\nexit 2\n").chmod(0o755)
        self.assert_one_sentence(self.call(program="old"), "old ended in 'describe': --serve is unknown", code=3)
        self.assert_one_sentence(self.call(program="nothing"), "is not a program of this repository")
        (self.folder / "empty").mkdir()
        self.assert_one_sentence(self.call(program="empty"), "there is no program in")

    def test_interrupted(self):
        for how in (signal.SIGINT, signal.SIGTERM):
            arguments = self.arguments("--peers", "none", "--json", self.json)
            script = subprocess.Popen([str(a) for a in arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE,
                                      text=True, env={**os.environ, "FAKE": "sleeps", "PYTHONPATH": str(SCRIPTS)})
            until = time.monotonic() + 30
            log = self.folder / "log"
            while not (log.exists() and '"03_slow", "warmup"' in log.read_text()) and time.monotonic() < until:
                time.sleep(0.02)
            script.send_signal(how)
            _, said = script.communicate(timeout=30)
            self.assertEqual(script.returncode, 130)
            self.assertEqual(said.strip().splitlines()[-1], "error: interrupted; nothing was written")
            self.assertNotIn("Traceback", said)
            commands = []
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):  # it ended just now
                    commands.append(file.read_bytes())
            self.assertTrue(commands)
            self.assertFalse([c for c in commands if bytes(self.folder / "attention") in c], "the program still runs")
            self.assertEqual([p.name for p in self.folder.iterdir() if p.name.startswith("out")], [])
            log.unlink()

    def test_other_inputs(self):
        settings = bench.parse_arguments(["--program", "x", "--protocol", "quick", "--inputs", "large"]).settings
        self.assertEqual((settings.get("name"), settings["inputs"]), (None, "large"))

    def test_as_many_sequences_as_have_so_many_tokens(self):
        for tokens, batch in ((("--tokens", "32768"), 32), ((), 16), (("--tokens", "512"), 1)):
            problems = bench.parse_arguments(["--program", "x", "--seq-len", "1024", *tokens]).problems
            self.assertEqual([problem["batch"] for problem in problems], [batch])

    def test_bad_arguments(self):
        cases = [
            (("--peers", "fa9"), "there is no peer fa9; known are fa2, cudnn, fa3, fa4, cudnn_frontend, matmul, copy"),
            (("17",), "there is no kernel 17; the programs given have 02_fast, 03_slow"),
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
            (("--seq-len", "1000"), "'1000' is not a multiple of 128"),
            (("--seq-len", ","), "at least one is needed"),
            (("--rounds", "0"), "'0' is not a whole number from 1 on"),
            (("--repeat", "0"), "'0' is not a whole number from 1 on"),
            (("--rotate", "65"), "'65' is not a whole number from 1 to 64"),
            (("--idle-ms", "-1"), "--idle-ms"),
            (("--max-seconds", "nan"), "'nan' is not a positive number"),
            (("--flush-l2", "--warm"), "not allowed with"),
            (("--head-dim", "96"), "96"),
            (("--json", self.folder / "none" / "x.json"), "cannot write into the folder"),
        ]
        for arguments, words in cases:
            with self.subTest(words):
                self.assert_one_sentence(self.call(*arguments), words)
        self.assertFalse((self.folder / "log").exists(), "something ran")

    def test_protocols_that_are_none(self):
        for text, words in (("{", "protocols.json is cut off"), ("[]", "a protocol lacks something"),
                            ('{"protocols": {"quick": {"warmup": 1}}}', "a protocol lacks something")):
            said = io.StringIO()
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
                bench.read_protocols(self.write("protocols.json", text))
            self.assertIn(words, said.getvalue())


FAKE_GPU = max(ROOT.glob("build/*/bin/fake_attention"), key=lambda path: path.stat().st_mtime, default=None)


@unittest.skipUnless(FAKE_GPU, "fake_attention is not built")
class Harness(ScriptTest):
    """The programs' own --serve, on a GPU that only pretends (tests/fake_kernels.cpp)."""

    def test_a_run(self):
        file = self.folder / "x.json"
        done = self.run_script(
            sys.executable, "-S", "-m", "fa_tools.bench", "--program", FAKE_GPU, "--peers", "matmul", "--batch", "1",
            "--heads", "2", "--seq-len", "128", "--iters", "4", "--warmup", "2", "--json", file)
        self.assertEqual(done.returncode, 3, done.stderr)
        records = {record["kernel"]: record for record in json.loads(file.read_text())["records"]}
        statuses = {name: record["status"] for name, record in records.items()}
        self.assertEqual({statuses[name] for name in ("01_right", "02_warm", "07_first_buffers", "peer/fake",
                                                      "ceiling/copy", "ceiling/matmul")}, {"passed"})
        self.assertEqual([statuses[name] for name in ("04_right_once", "05_unsupported", "06_fatal")],
                         ["wrong", "skipped", "error"])
        self.assertIn("with 02_warm (", " ".join(done.stdout.split()))
        self.assertEqual(records["01_right"]["round_clock_mhz"], [1980] * 3)
        if VENV_PYTHON.exists():
            done = self.run_script(VENV_PYTHON, SCRIPTS / "fa", "validate", file)
            self.assertEqual((done.returncode, done.stderr), (0, ""))


class Shell(ScriptTest):
    def call(self, *arguments):
        self.program("nvidia-smi", "exit 9\n")  # as on a machine whose driver does not answer
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return self.run_script(SCRIPTS / "fa", "bench", *arguments, env={"PATH": path, "PYTHON": sys.executable})

    def test_without_a_gpu(self):
        self.assert_one_sentence(self.call("--protocol", "quick", "08"), "no NVIDIA GPU answers", code=3)

    def test_arguments_are_looked_at_first(self):
        for arguments, words in ((("--protocol", "none"), "'none'"), (("--toolkit", "x"), "--toolkit takes one of"),
                                 (("--json",), "--json needs a file name"), (("--program", "x"), "is not a program of this repository"),
                                 (("--seq-len", "1"), "'1' is not a multiple of 128")):
            with self.subTest(words):
                self.assert_one_sentence(self.call(*arguments), words)
        done = self.call("--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("scripts/fa bench --protocol from-scratch", done.stdout)


if __name__ == "__main__":
    main()
