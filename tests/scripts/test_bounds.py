"""scripts/fa bounds and lib/limits.py: bounds by hand, the committed counts against every committed time of an H200, what
is shown and what is refused."""

import copy
import json
import re
import sys
import unittest
from fractions import Fraction

from support import (EMULATOR, ERROR, ROOT, SCRIPTS, ScriptTest, beyond, cuda_results, emulator_results, statement_results, main,
                     results, without_sources)

from fa_tools import bounds, limits
from fa_tools.records import Shape, shape_of
from fa_tools.tools import read_json, relative, results_files

BOUNDS = SCRIPTS / "fa", "bounds"
RESULTS = ROOT / "bench" / "results"
SHAPE = Shape("bf16", 2, 3, 1024, 64)


def line(kind, **counts):
    return {"statement": "a();", "kind": kind, **counts}


def record(lines, seq_len=128, **changes):
    return {"kernel": "99_test", "dtype": "bf16", "batch": 1, "heads": 1, "seq_len": seq_len, "head_dim": 64,
            "status": "passed", "error": dict(ERROR), "shared_memory_bytes": 100 * 1024, "workspace_bytes": 0,
            "counters": {}, "statements": lines, **changes}


def kernel(*records):
    found = limits.Kernel("99_test", 64)
    for each in records:
        found.add(each)
    return found


def h200():
    return limits.machine_named("H200")


def seconds(lines, shape=SHAPE._replace(seq_len=128), **changes):
    return limits.bound_of(kernel(record(lines, **changes)), shape, h200()[1]).seconds


class ByHand(unittest.TestCase):
    """Of one head each, so that six heads take six times as long."""

    cycles = 132 * 1.98e9

    def check(self, lines, resource, expected, **changes):
        self.assertAlmostEqual(seconds(lines, **changes)[resource] / expected, 1, places=9, msg=resource)

    def test_each_kind_of_instruction(self):
        self.check([line("mma.m16n8k16", requests=1, flops=4096)], "tensor", 6 * 4096 / 2730.7 / self.cycles)
        self.check([line("wgmma", requests=1, flops=4096)], "tensor", 6 / self.cycles)
        self.check([line("wgmma", requests=1, flops=4096, bytes=6 * 128)], "l1", 6 * 6 / self.cycles)
        self.check([line("exp2", operations=16)], "mufu", 6 / self.cycles)
        wavefronts = [line("shared load", requests=1, wavefronts=8, wavefronts_ideal=1),
                      line("ldmatrix", requests=1, wavefronts=4, wavefronts_ideal=4),
                      line("global load", requests=1, sectors=16, bytes=512, cache_lines=4),
                      line("shuffle", requests=1), line("cp.async", requests=9, wavefronts=9, sectors=9, bytes=9),
                      line("barrier", requests=5, waits=2)]
        self.check(wavefronts, "l1", 6 * (8 + 4 + 4 + 1) / self.cycles)

    def test_fp32_has_the_products_that_tensor_cores_have_not(self):
        scores = 6 * 128 * 128
        self.check([], "fp32", (2 * scores * 64 + 2 * scores) / 128 / self.cycles)
        all_products = [line("wmma.m16n16k16", requests=1, flops=4 * 128 * 128 * 64)]
        self.check(all_products, "fp32", 2 * scores / 128 / self.cycles)
        self.check([line("mma.m16n8k16", requests=1, flops=10**12)], "fp32", 2 * scores / 128 / self.cycles)

    def test_l2(self):
        tensor = 6 * 128 * 64 * 2
        self.check([], "l2", 3 * tensor / 12e12)
        self.check([line("global store", requests=1, sectors=4, bytes=128, cache_lines=1)], "l2",
                   (3 * tensor + 6 * 128) / 12e12)
        # Two CTAs of 100 KiB share an SM's 228, and what they read past L1.
        self.check([line("cp.async", requests=1, sectors=1, bytes=10**6)], "l2", 6 * 10**6 / 2 / 12e12)
        self.check([line("cp.async", requests=1, sectors=1, bytes=10**6)], "l2", 6 * 10**6 / 12e12,
                   shared_memory_bytes=120 * 1024)
        # Loads that may hit in L1 are no more than the tensors.
        self.check([line("global load", requests=1, sectors=1, bytes=10**9, cache_lines=0)], "l2", 3 * tensor / 12e12)

    def test_hbm_is_what_l2_cannot_keep(self):
        self.assertEqual(seconds([])["hbm"], 0)
        two = kernel(record([]), record([], 256))
        large = Shape("bf16", 64, 16, 4096, 64)
        bytes_moved = 4 * 64 * 16 * 4096 * 64 * 2 - 60 * 2**20
        self.assertAlmostEqual(limits.bound_of(two, large, h200()[1]).seconds["hbm"], bytes_moved / 4.8e12, places=12)

    def test_a_workspace_is_written_and_read_unless_l2_keeps_it(self):
        n = 8192
        with_s = kernel(record([], workspace_bytes=4 * 128**2), record([], 256, workspace_bytes=4 * 256**2))
        shape = Shape("bf16", 1, 2, n, 64)
        tensors = max(0, 4 * 2 * n * 64 * 2 - 60 * 2**20)
        for piece, beyond in ((None, 2 * (4 * n * n - 60 * 2**20)), (8 * n * n, 8 * n * n - 60 * 2**20), (60 * 2**20, 0)):
            found = limits.bound_of(with_s, shape, h200()[1], piece).seconds["hbm"]
            self.assertAlmostEqual(found, (tensors + 2 * beyond) / 4.8e12, places=12)

    def test_scaling(self):
        def lines(n):
            return [line("shared load", requests=1, wavefronts=3 * n * n + 5 * n, wavefronts_ideal=1)]

        found = kernel(record(lines(128)), record(lines(256), 256, batch=1))
        self.assertEqual(found.work(384, "bf16").wavefronts, 3 * 384**2 + 5 * 384)
        self.assertEqual(found.misfits("bf16"), [])
        found.add(record(lines(384), 384))
        self.assertEqual(found.misfits("bf16"), [])
        found.add(record([line("shared load", requests=1, wavefronts=9, wavefronts_ideal=1)], 512))
        self.assertIn("wavefronts", found.misfits("bf16"))

    def test_query_rows_beyond_the_length(self):
        """A CTA has 192 query rows: two of them have 384 for 256. What is stored, and what there is at 384, has no more."""
        def counted(n):
            rows = -(-n // 192) * 192
            return record([line("wgmma", requests=1, flops=4 * rows * n * 64), line("exp2", operations=rows * n),
                           line("tma store", bytes=n * 128)], n)

        found = kernel(counted(128), counted(256))
        self.assertEqual(found.work(256, "bf16").exp2, 384 * 256)  # as counted
        for n in 384, 8192:
            work = found.work(n, "bf16")
            self.assertEqual((work.wgmma, work.exp2, work.stored), (4 * n * n * 64, n * n, n * 128))
        found.add(counted(384))
        self.assertEqual(found.misfits("bf16"), [])

    def test_heads_are_alike(self):
        one, six = ([line("exp2", operations=count)] for count in (100, 600))
        self.assertEqual(limits.work_of(record(one)), limits.work_of(record(six, batch=2, heads=3)))

    def test_machines(self):
        self.assertEqual(limits.machine_named("a100")[0], "NVIDIA A100-SXM4-80GB")
        self.assertEqual(limits.machine_named("NVIDIA H100 80GB HBM3")[0], "NVIDIA H100 80GB HBM3")
        for wish in ("NVIDIA", "H20", ""):
            with self.assertRaises(limits.Refused):
                limits.machine_named(wish)
        for machine in json.loads((ROOT / "bench" / "machines.json").read_text(encoding="utf-8"))["machines"].values():
            self.assertEqual(set(machine["sources"]["sm"]), set(machine["sm"]))
            self.assertGreater(machine["l2_mib"], 0)


class NeverAboveTheMeasuredTime(unittest.TestCase):
    def test_a_mask_is_another_problem(self):
        """Neither counts nor times of a causal run are taken for those of a full one."""
        counted, timed = ({**data, "records": [beyond(r, mask="causal") for r in data["records"]]}
                          for data in (statement_results(), cuda_results()))
        self.assertEqual((limits.kernels_of([counted]), limits.measured([timed], "NVIDIA H200")), ({}, {}))

    def test_all_committed_results(self):
        """Every kernel, dtype, head_dim and seq_len that was timed on a GPU of bench/machines.json."""
        kernels = limits.kernels_of(map(read_json, bounds.COMMITTED))
        known = json.loads((ROOT / "bench" / "machines.json").read_text(encoding="utf-8"))["machines"]
        checked = 0
        for path in results_files("h200_*"):
            data = read_json(path)
            machine = known.get(data.get("machine", {}).get("gpu"))
            for each in data.get("records", []) if machine else []:
                found = kernels.get((each["kernel"], each.get("head_dim")))  # a matrix product has none
                if "time_ms" not in each or not found:
                    continue
                bound = limits.bound_of(found, shape_of(each), machine, each["workspace_bytes"])
                with self.subTest(f"{relative(path)} {each['kernel']} {shape_of(each)}"):
                    self.assertLess(max(bound.seconds.values()), each["time_ms"]["min"] * 1e-3)
                checked += 1
        self.assertGreater(checked, 100)

    def test_limits_are_not_below_measured_rates(self):
        """What bench/rates.cu measured of an SM, once it is committed, is within the limits (1 % for the measurement)."""
        for path in sorted(RESULTS.glob("*_rates.json")):
            data = json.loads(path.read_text(encoding="utf-8"))
            name, machine = h200()
            sm = machine["sm"] if data["machine"]["gpu"] == name else None
            limit = sm and {"mma.m16n8k16": sm["mma_flops"], "mma.m16n8k8": sm["mma_flops"], "fma": sm["fma"],
                            "ex2": sm["exp2"], "ld.shared": sm["l1_bytes"], "ld.shared.b32": sm["l1_bytes"],
                            "ldmatrix": sm["l1_bytes"], "ld.global.ca": sm["l1_bytes"], "shfl": sm["l1_bytes"] / 4,
                            **{f"wgmma.n{n}.{a}": sm["wgmma_flops"] for n in (64, 128) for a in ("reg", "shared")},
                            "ld.global.cg": machine["tb_per_s"]["l2"] * 1e6 / (sm["count"] * sm["clock_mhz"])}
            for entry in data["instructions"] if limit else []:
                if entry["name"] in limit:
                    with self.subTest(entry["name"]):
                        self.assertLess(entry["work"] / entry["cycles"], 1.01 * limit[entry["name"]])


class Merged(unittest.TestCase):
    def test_statements_are_counted(self):
        """Each merged load is a statement of the committed counts: none is left behind by a kernel that was changed."""
        counted = {(record["kernel"], counts["statement"], counts["kind"])
                   for record in json.loads((RESULTS / "emulator_n256.json").read_text(encoding="utf-8"))["records"]
                   for counts in record["statements"]}
        for entry in json.loads((ROOT / "bench" / "agreement.json").read_text(encoding="utf-8"))["merged"]:
            self.assertIn((entry["kernel"], entry["statement"], entry["kind"]), counted)

    def test_what_nvcc_merges_is_counted_merged(self):
        (statement, kind), entry = next(iter(limits.merges_of("02_online_softmax", "bf16").items()))
        lines = [{"statement": statement, "kind": kind, "requests": 8, "wavefronts": 8, "wavefronts_ideal": 8},
                 {"statement": "another();", "kind": kind, "requests": 8, "wavefronts": 8}]
        each = record(lines, kernel="02_online_softmax")
        self.assertEqual(limits.work_of(each).wavefronts, 8 + Fraction(8, entry["wavefronts"]))


PROGRAM = """#!/usr/bin/env python3
import json, pathlib, sys
words = sys.argv[1:]
folder = pathlib.Path(__file__).parent
(folder / "log").write_text(" ".join(words))
option = lambda name: words[words.index(name) + 1]
length = option("--seq-len")
answer = folder / f"{length}.json"
if answer.exists():
    pathlib.Path(option("--json")).write_text(answer.read_text())
else:
    print(f"error: no {length} here", file=sys.stderr)
    sys.exit(3)
"""


class Script(ScriptTest):
    def results_of(self, *lengths):
        data = without_sources(read_json(f"{RESULTS}/emulator_counts.jsonl#d128"))
        data["records"] = [each for each in data["records"] if each["seq_len"] in lengths]
        return data

    def test_committed(self):
        done = self.run_script(BOUNDS)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        text = done.stdout.splitlines()
        self.assertLessEqual(max(map(len, text)), 100)
        self.assertIn("NVIDIA H200, 132 SMs at 1.98 GHz", text[0])
        self.assertEqual("bf16, batch 4, 16 heads, 4096 tokens, head_dim 128", text[1])
        rows = {row[:2]: row.split() for row in text if re.match(r"\d\d_\w+ ", row)}
        of_today = sorted(name[:2] for name, _ in limits.kernels_of(map(read_json, bounds.COMMITTED), 128))
        self.assertEqual(list(rows), of_today)
        for number, first in (("01", "L1/shared"), ("10", "tensor")):
            if number in rows:
                self.assertEqual(rows[number][7], first)
        for number, row in rows.items():
            if number <= "10" and len(row) > 10:  # its time, too, is of today
                self.assertGreater(float(row[10].rstrip("*")), 1, row)

    def test_other_machines_and_problems(self):
        done = self.run_script(BOUNDS, "--machine", "A100", "--head-dim", "64", "--dtype", "fp16")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("NVIDIA A100-SXM4-80GB, 108 SMs at 1.41 GHz\nfp16", done.stdout)
        self.assertIn("There are no committed times", done.stdout)
        self.assertIn("tile sizes", done.stdout)
        done = self.run_script(BOUNDS, "--head-dim", "64", "--dtype", "fp16")
        if "since" not in done.stdout:  # all kernels are those that were measured
            self.assertIn("2.1", done.stdout)
            self.assertIn("* more than twice the bound (08, 09, ", done.stdout)
        done = self.run_script(BOUNDS, "--seq-len", "1024")
        self.assertIn("batch 16, 16 heads, 1024 tokens", done.stdout)
        done = self.run_script(BOUNDS, "--seq-len", "640", "--heads", "3", "--batch", "5")
        self.assertIn("batch 5, 3 heads, 640 tokens", done.stdout)

    def test_one_length(self):
        file = self.write("one.json", self.results_of(256))
        self.assert_one_sentence(self.run_script(BOUNDS, file), "at one length cannot be scaled to 4096 tokens",
                                 "one.json --program build/emulator-checked/bin/attention", code=1)
        done = self.run_script(BOUNDS, file, "--seq-len", "256")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.write("512.json", self.results_of(512))
        program = self.write("attention", PROGRAM)
        program.chmod(0o755)
        done = self.run_script(BOUNDS, file, "--program", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, self.run_script(BOUNDS, self.write("both.json", self.results_of(256, 512))).stdout)
        self.assertIn(" --batch 1 --heads 1 --seq-len 512 --head-dim 128 --dtype bf16 --no-races",
                      (self.folder / "log").read_text())
        file = self.write("one.json", self.results_of(512))
        self.assert_one_sentence(self.run_script(BOUNDS, file, "--program", program),
                                 "attention at seq_len 256 left no results: error: no 256 here", code=3)

    def test_what_a_machine_lacks(self):
        data = self.results_of(256, 512)
        for each in data["records"]:
            if each["kernel"] == "10_instruction_tuning":
                each["statements"].append(line("wgmma", requests=1, flops=4096))
        done = self.run_script(BOUNDS, self.write("wgmma.json", data), "--machine", "A100")
        self.assertIn("note: 10_instruction_tuning is left out, NVIDIA A100-SXM4-80GB has no wgmma", done.stderr)
        self.assertEqual(done.returncode, 0)
        self.assertNotIn("\n10_", done.stdout)
        self.assertIn("\n09_", done.stdout)

    def test_counts_of_another_form_are_told(self):
        data = self.results_of(256, 512)
        odd = copy.deepcopy(data["records"][-1])
        odd["seq_len"] = 384
        data["records"].append(odd)
        done = self.run_script(BOUNDS, self.write("odd.json", data))
        self.assertIn("do not grow like a seq_len^2 + b seq_len", done.stderr)

    def test_refusals(self):
        d64 = statement_results()
        for each in d64["records"]:
            each["head_dim"] = 64
        for words, text in (((self.folder / "none.json",), "no such file"),
                            ((self.write("gpu.json", cuda_results()),), "no counts by line"),
                            ((self.write("old.json", emulator_results()),), "no counts by line"),
                            (("--machine", "B200"), "no machine B200"), (("--seq-len", "0"), "not a whole number"),
                            (("--head-dim", "32"), "invalid choice"), (("--program", "none"), "not a program"),
                            ((self.write("d64.json", d64), "--head-dim", "128"),
                             "no kernel of the results ran with head_dim 128"),
                            ((self.write("half.json", '{"schema_version": 3'),), "is cut off")):
            with self.subTest(text):
                self.assert_one_sentence(self.run_script(BOUNDS, *words), text)
        self.assertIn("scripts/fa bounds", self.run_script(BOUNDS, "--help").stdout)


if __name__ == "__main__":
    main()
