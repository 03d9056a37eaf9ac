"""Peers beside kernels: rounds, medians, ratios, the file, the table; programs and libraries only pretend."""

import importlib.util
import json
import sys
import unittest

from support import CUDA, ERROR, SCRIPTS, VENV_PYTHON, ScriptTest, main, needs_venv

sys.path[:0] = [str(SCRIPTS), str(SCRIPTS / "lib")]
import peers  # noqa: E402
import torch_attention  # noqa: E402

PROTOCOL = {"warmup": 4, "iterations": 8, "flush_l2": False, "rotating_inputs": 1, "max_seconds": 10.0,
            "inputs": "normal", "seed": 1, "rounds": 3, "tflops_convention": "4*B*H*N^2*D"}
PROBLEM = {"dtype": "bf16", "batch": 16, "heads": 16, "seq_len": 1024, "head_dim": 128}

# A program with the kernels 02_fast and 03_slow (or the one it is named after) that takes no GPU: its r-th call
# takes r times as long, and the arguments of every call go into a file beside it.
PROGRAM = """#!{python}
import json, pathlib, sys
here = pathlib.Path(sys.argv[0])
names = [here.name] if here.name[0].isdigit() else ["02_fast", "03_slow"]
arguments = sys.argv[1:]
if arguments == ["--list"]:
    sys.exit(print("\\n".join(names)))
log = here.with_name(here.name + ".log")
log.write_text((log.read_text() if log.exists() else "") + " ".join(arguments) + "\\n")
call = len(log.read_text().splitlines())
option = lambda name: arguments[arguments.index("--" + name) + 1]
if option("heads") == "7":
    sys.exit("error: heads must not be 7")
chosen = [a for a in arguments if a in names and a[0].isdigit() and not arguments[arguments.index(a) - 1] == "--json"]
if bool(chosen) != (len(names) > 1):
    sys.exit("error: kernels are named to a program that has several")
shape = {{name: int(option(name.replace("_", "-"))) for name in ("batch", "heads", "seq_len", "head_dim")}}
records = []
for name in chosen or names:
    ms = call * (0.5 if "fast" in name else 2.0)
    flops = 4 * shape["batch"] * shape["heads"] * shape["seq_len"] ** 2 * shape["head_dim"]
    record = {{"kernel": name, "dtype": option("dtype"), **shape, "status": "passed", "error": {error},
              "time_ms": {{"median": ms, "p10": ms * 0.9, "p90": ms * 1.5, "min": ms * 0.8, "launches": 8}},
              "tflops": flops / ms * 1e-9, "registers": 64, "shared_memory_bytes": 0, "spill_bytes": 0,
              "workspace_bytes": 0}}
    if option("seed") == "7" and name == "03_slow":
        gone = ("time_ms", "tflops")
        record = {{k: v for k, v in record.items() if k not in gone}}
        record.update(status="wrong", reason="head 3 is off")
    records.append(record)
machine = {{"backend": "emulator"}} if option("seed") == "8" else {machine}
pathlib.Path(option("json")).write_text(json.dumps({{"schema_version": 1, "machine": machine, "records": records}}))
"""


def passed(ms):
    return {"status": "passed", "error": dict(ERROR),
            "time_ms": {"median": ms, "p10": ms * 0.9, "p90": ms * 1.1, "min": ms * 0.8, "launches": 8}}


class Library:
    """Stands in for torch_attention.Torch: gives what it is told, one answer a run, and notes the runs."""

    def __init__(self, answers, order=None):
        self.answers, self.order = {peer: list(each) for peer, each in answers.items()}, order

    def library(self, peer):
        return {"name": "PyTorch", "version": "2.11.0", "implementation": torch_attention.SDPA[peer][0]}

    def run(self, peer, problem, protocol):
        if self.order is not None:
            self.order.append(peer)
        return self.answers[peer].pop(0)


class Kernels:
    """Stands in for a Program."""

    def __init__(self, order, *answers):
        self.order, self.answers = order, list(answers)

    def run(self, problem, protocol):
        self.order.append("kernels")
        answers = self.answers.pop(0)
        return [{"kernel": name, **problem, "tflops": 1.0, **answer} for name, answer in answers.items()]


def measured(library, *rounds, missing=None):
    """{kernel: record} of three rounds of fa2 and of kernels that take these times (ms)."""
    order = []
    backend = library and Library(library, order)
    found = [peers.Peer(peer, backend) for peer in library or ()]
    kernels = Kernels(order, *({"08_swizzle": passed(ms)} for ms in rounds))
    records = peers.measure_problem([*found, kernels], missing or {}, PROBLEM, PROTOCOL)
    return {record["kernel"]: record for record in records}, order


class Rounds(unittest.TestCase):
    def test_the_order_moves_on(self):
        _, order = measured({"fa2": [passed(1)] * 3, "cudnn": [passed(1)] * 3}, 1, 1, 1)
        self.assertEqual(order, ["fa2", "cudnn", "kernels", "cudnn", "kernels", "fa2", "kernels", "fa2", "cudnn"])

    def test_medians_and_ratio_within_rounds(self):
        # The GPU slows down to a half in round 2; what the kernel's ratio says is not changed by that.
        records, _ = measured({"fa2": [passed(ms) for ms in (1.0, 2.0, 1.1)]}, 1.25, 2.5, 1.1)
        ours, fa2 = records["08_swizzle"], records["peer/fa2"]
        self.assertEqual((fa2["time_ms"]["median"], ours["time_ms"]["median"]), (1.1, 1.25))
        self.assertEqual(ours["round_ms"], [1.25, 2.5, 1.1])
        self.assertAlmostEqual(ours["ratio"]["peer/fa2"], 0.8)  # not 1.1 / 1.25
        self.assertNotIn("ratio", fa2)
        self.assertAlmostEqual(fa2["time_ms"]["min"], 0.8)
        self.assertAlmostEqual(fa2["tflops"], 4 * 16 * 16 * 1024**2 * 128 / 1.1e-3 / 1e12)
        self.assertAlmostEqual(ours["tflops"], fa2["tflops"] * 1.1 / 1.25)

    def test_one_bad_round_speaks_for_all(self):
        wrong = {"status": "wrong", "reason": "an element is off", "error": dict(ERROR)}
        records, _ = measured({"fa2": [passed(1.0), wrong, passed(1.0)]}, 1, 1, 1)
        self.assertEqual((records["peer/fa2"]["status"], records["peer/fa2"]["reason"]), ("wrong", "an element is off"))
        for name in ("time_ms", "tflops", "round_ms"):
            self.assertNotIn(name, records["peer/fa2"])
        self.assertNotIn("ratio", records["08_swizzle"])
        self.assertEqual(records["08_swizzle"]["status"], "passed")

    def test_without_peers(self):
        def none_here():
            raise torch_attention.Missing("this Python cannot import torch")

        found, missing = peers.find_peers(["fa2", "cudnn"], none_here)
        self.assertEqual(found, [])
        records, order = measured(None, 1, 2, 3, missing=missing)
        self.assertEqual(order, ["kernels"] * 3)
        self.assertEqual(records["08_swizzle"]["time_ms"]["median"], 2)
        self.assertEqual(records["peer/cudnn"]["status"], "skipped")
        self.assertEqual(records["peer/fa2"]["reason"], "this Python cannot import torch")

    def test_table(self):
        library = {"fa2": [passed(1.0)] * 3, "cudnn": [{"status": "skipped", "reason": "long " * 40}] * 3}
        records, _ = measured(library, 0.8, 0.8, 0.8)
        records = list(records.values())
        lines = peers.table(records + [{**record, "seq_len": 2048} for record in records])
        self.assertLessEqual(max(map(len, lines)), 100)
        self.assertRegex(lines[0], r"seq_len +kernel +median ms +TFLOP/s +of fa2$")
        self.assertRegex(lines[2], r"^ +1024  peer/cudnn +skipped: long .* \.\.\.$")
        self.assertRegex(lines[3], r"^ +1024  peer/fa2 +1\.0000 +137\.4$")
        self.assertRegex(lines[4], r"^ +1024  08_swizzle +0\.8000 +171\.8 +1\.250$")
        self.assertEqual(len(lines), 1 + 2 * 4)


class Launches(unittest.TestCase):
    """The protocol of the harness, on a clock that stands for the GPU."""

    def time(self, launch_ms, flush=None, **changes):
        self.now, self.events = 0.0, []
        test = self

        class FakeTimer:
            def start(self):
                self.begin = test.now

            def stop(self):
                self.end = test.now

            def milliseconds(self):
                test.events.append("wait")
                return self.end - self.begin

        def launch():
            self.events.append("launch")
            self.now += launch_ms

        return torch_attention.time_launches(launch, FakeTimer, {**PROTOCOL, **changes}, flush)

    def test_warm_up_then_all_launches_without_waiting(self):
        self.assertEqual(self.time(2.0), [2.0] * 8)
        self.assertEqual(self.events, ["launch", "wait"] * 4 + ["launch"] * 8 + ["wait"] * 8)

    def test_slow_launches_are_fewer(self):
        times = self.time(1000.0)  # 10 s: three to warm up, ten could be timed
        self.assertEqual(len(times), 8)
        self.assertEqual(self.events.count("launch"), 3 + 8)
        self.assertEqual(len(self.time(2000.0)), 5)
        self.assertEqual(len(self.time(60_000.0)), 3)
        self.assertEqual(self.events.count("launch"), 1 + 3)

    def test_the_flush_is_outside_of_the_timed_interval(self):
        flushed = []

        def flush():
            flushed.append(self.now)
            self.now += 50.0

        self.assertEqual(self.time(2.0, flush), [2.0] * 8)
        self.assertEqual(len(flushed), 8)

    def test_quantiles_are_those_of_the_harness(self):
        times = torch_attention.summarise([float(ms) for ms in range(11, 0, -1)])
        self.assertEqual(times, {"median": 6.0, "p10": 2.0, "p90": 10.0, "min": 1.0, "launches": 11})
        self.assertEqual(torch_attention.summarise([1.0, 2.0])["median"], 1.5)


@unittest.skipUnless(importlib.util.find_spec("torch"), "this Python has no torch")
class Comparison(unittest.TestCase):
    """The check of a peer's output, on the CPU, where nothing is timed."""

    PROBLEM = {"batch": 2, "heads": 3, "seq_len": 256, "head_dim": 64}

    def run_with(self, change, dtype="bf16"):
        import torch

        library = torch_attention.Torch("cpu")
        real = torch.nn.functional.scaled_dot_product_attention
        torch.nn.functional.scaled_dot_product_attention = lambda q, k, v: change(real(q, k, v))
        try:
            return library.run("fa2", {"dtype": dtype, **self.PROBLEM}, PROTOCOL)
        finally:
            torch.nn.functional.scaled_dot_product_attention = real

    def test_right_outputs_pass(self):
        for dtype, most in (("bf16", 3e-3), ("fp16", 4e-4)):
            record = self.run_with(lambda output: output, dtype)
            self.assertEqual(record["status"], "passed", record)
            self.assertTrue(0 < record["error"]["rel"] < most, record)
            self.assertLess(record["error"]["bound_ratio"], 0.5)
            self.assertEqual(record["error"]["checked_rows"], 2 * 3 * torch_attention.CHECKED_ROWS)

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

    def test_a_back_end_that_refuses(self):
        problem = {"dtype": "bf16", **self.PROBLEM}
        record = torch_attention.Torch("cpu").run("cudnn", problem, PROTOCOL)
        self.assertEqual(record["status"], "skipped")
        self.assertIn("does not run cuDNN (CUDNN_ATTENTION) here", record["reason"])


class Command(ScriptTest):
    def setUp(self):
        super().setUp()
        text = PROGRAM.format(python=sys.executable, error=ERROR, machine=CUDA)
        for name in ("attention", "kernels/04_alone", "kernels/05_other"):
            self.write(name, text).chmod(0o755)
        self.write("kernels/04_alone.txt", "no program")
        self.json = self.folder / "out.json"

    def call(self, *arguments, program="attention"):
        # -S: no site-packages, so that no torch is found even where there is one.
        return self.run_script(sys.executable, "-S", SCRIPTS / "peers.py",
                               "--program", self.folder / program, *arguments)

    def data(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(self.json.read_text())

    def test_kernels_alone(self):
        done = self.call("--seq-len", "512,1024", "--rounds", "3", "--iters", "8", "--warmup", "2", "--json", self.json)
        data = self.data(done)
        self.assertIn("peer/fa2 is left out: this Python cannot import torch", done.stderr)
        self.assertIn("seq_len 1024, round 3 of 3", done.stderr)
        self.assertIn("NVIDIA H200", done.stdout)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)
        self.assertEqual([(r["kernel"], r["seq_len"], r["batch"], r["status"]) for r in data["records"]],
                         [(kernel, n, 16384 // n, "skipped" if "/" in kernel else "passed")
                          for n in (512, 1024) for kernel in ("02_fast", "03_slow", "peer/fa2")])
        self.assertEqual(data["records"][0]["round_ms"], [0.5, 1.0, 1.5])
        self.assertEqual(data["records"][0]["time_ms"]["median"], 1.0)
        self.assertEqual(data["protocol"], {**PROTOCOL, "warmup": 2})
        self.assertEqual(data["machine"], CUDA)
        self.assertEqual(data["command"][:3], ["peers.py", "--program", "attention"])
        calls = (self.folder / "attention.log").read_text().splitlines()
        self.assertEqual(len(calls), 6)
        for words in ("02_fast 03_slow", "--seq-len 512", "--batch 32", "--iters 8", "--warmup 2", "--dtype bf16"):
            self.assertIn(words, calls[0])
        self.assertNotIn("--flush-l2", calls[0])

    @needs_venv("jsonschema")
    def test_the_file_is_valid(self):
        self.data(self.call("--rounds", "2", "--iters", "8", "--json", self.json))
        done = self.run_script(VENV_PYTHON, SCRIPTS / "validate_results.py", self.json)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        # With peers, whose side is made here without a GPU.
        library = {"fa2": [passed(ms) for ms in (1.0, 2.0, 1.1)],
                   "cudnn": [{"status": "wrong", "reason": "off", "error": dict(ERROR)}] * 3}
        records, _ = measured(library, 1.25, 2.5, 1.1)
        of_a_gpu = {"registers": 64, "shared_memory_bytes": 0, "spill_bytes": 0, "workspace_bytes": 0}
        records["08_swizzle"].update(of_a_gpu)
        data = peers.results("2026-11-21T10:00:00Z", ["--json", "/tmp/x.json"], CUDA, PROTOCOL, list(records.values()))
        done = self.run_script(VENV_PYTHON, SCRIPTS / "validate_results.py", self.write("peers.json", data))
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_programs_with_one_kernel_each(self):
        done = self.call("--kernels", "05,04_alone", "--peers", "none", "--rounds", "1", "--flush-l2",
                         "--json", self.json, program="kernels")
        self.assertEqual([r["kernel"] for r in self.data(done)["records"]], ["04_alone", "05_other"])
        self.assertNotIn("left out", done.stderr)
        self.assertIn("--flush-l2", (self.folder / "kernels" / "04_alone.log").read_text())

    def test_a_list_of_programs(self):
        done = self.call(self.folder / "kernels", "--kernels", "02,05", "--peers", "none", "--rounds", "1",
                         "--json", self.json)
        self.assertEqual([r["kernel"] for r in self.data(done)["records"]], ["02_fast", "05_other"])

    def test_wrong_results(self):
        done = self.call("--seed", "7", "--peers", "none", "--rounds", "1")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, r"03_slow +wrong: head 3 is off")

    def test_bad_arguments(self):
        cases = [
            (("--peers", "fa9"), "there is no peer fa9; known are fa2, cudnn, or none"),
            (("--kernels", "17"), "there is no kernel 17; the programs given have 02_fast, 03_slow"),
            (("--seq-len", "1000"), "'1000' is not a multiple of 128"),
            (("--seq-len", ","), "at least one length"),
            (("--rounds", "0"), "'0' is not a whole number from 1 on"),
            (("--max-seconds", "nan"), "'nan' is not a positive number"),
            (("--head-dim", "96"), "96"),
            (("--json", self.folder / "none" / "x.json"), "cannot write into the folder"),
        ]
        for arguments, words in cases:
            with self.subTest(words):
                self.assert_one_sentence(self.call(*arguments), words)
        self.assertFalse((self.folder / "attention.log").exists(), "something ran")

    def test_bad_programs(self):
        self.assert_one_sentence(self.run_script(SCRIPTS / "peers.py"), "--program", "see --help")
        self.assert_one_sentence(self.call(program="none"), "none is not a program", "build/cuda/bin/attention")
        self.assert_one_sentence(self.call(program="kernels/04_alone.txt"), "is not a program")
        (self.folder / "empty").mkdir()
        self.assert_one_sentence(self.call(program="empty"), "there is no program in")

    def test_programs_that_fail(self):
        for arguments, words, code in ((("--heads", "7"), "error: attention: heads must not be 7", 3),
                                       (("--seed", "8"), "runs on the emulator, which has no times", 2)):
            done = self.call(*arguments, "--peers", "none", "--json", self.json)
            self.assertEqual(done.returncode, code)
            self.assertIn(words, done.stderr.splitlines()[-1])
            self.assertFalse(self.json.exists())


if __name__ == "__main__":
    main()
