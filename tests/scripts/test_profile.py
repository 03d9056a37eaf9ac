"""scripts/fa profile without a GPU: what it asks of ncu, reads of it and shows, and what it refuses."""

import copy
import json
import os
import unittest

from support import ROOT, SCRIPTS, ScriptTest, main

from fa_tools.laboratory import profile as profiler
from fa_tools.tools import results_files

PROFILE, COMMITTED = (SCRIPTS / "fa", "profile"), ROOT / "bench" / "results" / "h200_profile.json"

PROGRAM = """#!/bin/sh
[ "$1" = --list ] && { echo 01_naive; echo 08_swizzle; }
"""

# Answers like ncu: a column for each metric asked for; what it is told to leave out or to say instead is in files.
NCU = """#!/usr/bin/env python3
import csv, pathlib, sys
folder = pathlib.Path(__file__).parent.parent
with open(folder / "ncu.log", "a") as log:
    print(*sys.argv[1:], file=log)
def ask(name):
    file = folder / name
    return file.read_text() if file.exists() else ""
words = sys.argv[1:]
asked = words[words.index("--metrics") + 1].split(",") if "--metrics" in words else ask("asked").split(",")
for metric in asked:
    if metric.split(".")[0] in ask("unknown").split():
        print(f"==ERROR== Failed to find metric {metric}")
        sys.exit(1)
(folder / "asked").write_text(",".join(asked))
if "--json" in words:  # what the program says of itself
    pathlib.Path(words[words.index("--json") + 1]).write_text('{"records": [{"source": "0123456789ab"}]}')
given = [metric for metric in asked if metric.split(".")[0] not in ask("absent").split()]
out = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL)
print("==PROF== Connected to process 7")
out.writerow(["ID", "Kernel Name", *given])
out.writerow(["", "", *["inst"] * len(given)])
for number, name in enumerate(["fill<float>(float *)", "void k::attention_kernel<a, (int)128>(a, b)",
                               "void k::attention_kernel<a, (int)128>(a, b)"]):
    values = ["1,234,567" if "sum" in m else "n/a" if m.split(".")[0] in ask("nothing").split() else "12.3456"
              for m in given]
    out.writerow([number, name, *values])
"""


def launch(**metrics):
    values = {name: 1000 for name in profiler.METRICS}
    return {"kernel": "08_swizzle", "function": "attention_kernel", "metrics": {**values, **metrics}}


class FromFile(ScriptTest):
    def show(self, data, kernel="08", *more):
        return self.run_script(PROFILE, kernel, "--from", self.write("p.json", data), *more)

    def test_refusals(self):
        good = {**json.loads(COMMITTED.read_text()), "launches": [launch()]}
        text = json.dumps(good)

        def broken(change):
            data = copy.deepcopy(good)
            change(data)
            return data

        for data, words in (
            (text[: len(text) // 2], "is cut off"),
            ([], "is not a profile"),
            ({**good, "profile_version": 2}, "profile version 2, but this checkout reads 1"),
            ({**good, "heads": "16"}, "'heads'"),
            (broken(lambda d: d.pop("gpu")), "'gpu'"),
            (broken(lambda d: d["launches"][0].pop("metrics")), "launches[0]"),
            (broken(lambda d: d["launches"][0]["metrics"].pop("cycles")), "lacks cycles"),
            (broken(lambda d: d["launches"][0]["metrics"].update(cycles=-1)), "has -1 for cycles"),
        ):
            with self.subTest(words):
                self.assert_one_sentence(self.show(data), words)
        self.assert_one_sentence(self.show(good, "09"), "no kernel 09", "08_swizzle")

    def test_arguments(self):
        for words, text in (((), "NN"), (("all", "--program", "x"), "all kernels need a file"),
                            (("08", "--program", self.folder / "none"), "not a program"),
                            (("08", "--program", "x", "--seq-len", "100"), "a multiple of 128")):
            with self.subTest(text):
                self.assert_one_sentence(self.run_script(PROFILE, *words), text)


class WithNcu(ScriptTest):
    def setUp(self):
        super().setUp()
        for name, text in (("attention", PROGRAM), ("ncu", NCU),
                           ("nvidia-smi", "#!/bin/sh\necho NVIDIA H200, 580.159.04\n")):
            self.write(f"bin/{name}", text).chmod(0o755)
        self.out = self.folder / "out.json"

    def run_profile(self, *words):
        env = {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        return self.run_script(*words, env=env)

    def one(self, *more):
        program = self.folder / "bin" / "attention"
        return self.run_profile(PROFILE, "08", "--program", program, "--json", self.out, *more)

    def log(self):
        return (self.folder / "ncu.log").read_text().splitlines()

    def test_one_kernel(self):
        done = self.one("--seq-len", "1024", "--dtype", "fp16")
        self.assertEqual(done.returncode, 0, done.stderr)
        (call,) = self.log()
        for metric in (*profiler.METRICS.values(), *profiler.OPTIONAL.values()):
            self.assertIn(metric, call)
        self.assertIn("attention 08_swizzle --warmup 0 --iters 1 --dtype fp16 --batch 1 --heads 16 --seq-len 1024 "
                      "--head-dim 128", call)
        data = profiler.read_profile(self.out)
        self.assertEqual((data["gpu"], data["seq_len"], data["dtype"]), ("NVIDIA H200", 1024, "fp16"))
        self.assertEqual([entry["function"] for entry in data["launches"]], ["fill", "attention_kernel"])
        self.assertEqual({entry["source"] for entry in data["launches"]}, {"0123456789ab"})
        metrics = data["launches"][1]["metrics"]
        self.assertEqual((metrics["instructions"], metrics["tensor_active_percent"]), (1234567, 12.346))
        self.assertEqual(set(metrics), {*profiler.METRICS, *profiler.OPTIONAL})
        self.assertIn("Tensor pipe active", done.stdout)

    def test_metrics_that_ncu_does_not_know(self):
        (self.folder / "unknown").write_text("sm__pipe_tensor_cycles_active smsp__inst_executed_op_ldsm")
        (self.folder / "absent").write_text("lts__t_sector_hit_rate")
        (self.folder / "nothing").write_text("launch__registers_per_thread")
        done = self.one()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.log()), 3)  # ncu names one at a time
        self.assertIn("left out", done.stderr)
        gone = {"tensor_active_percent", "tensor_percent", "ldmatrix_instructions", "l2_hit_percent", "registers"}
        self.assertEqual(set(profiler.read_profile(self.out)["launches"][0]["metrics"]),
                         {*profiler.METRICS, *profiler.OPTIONAL} - gone)

    def test_without_a_gpu(self):
        self.write("bin/nvidia-smi", "#!/bin/sh\nexit 9\n").chmod(0o755)
        self.assert_one_sentence(self.run_profile(PROFILE, "08"), "no NVIDIA GPU", "--from", code=3)
        self.write("bin/nvidia-smi", "#!/bin/sh\n").chmod(0o755)
        done = self.one()
        self.assert_one_sentence(done, "no NVIDIA GPU", "--from", code=3)


class Committed(unittest.TestCase):
    def test_readable(self):
        files = list(results_files("*_profile*"))
        self.assertTrue(files)
        for file in files:
            with self.subTest(file):
                profiler.read_profile(file)


if __name__ == "__main__":
    main()
