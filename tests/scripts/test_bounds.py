"""What the emulator's counts say of a GPU: bounds below every committed time of a GPU, the bytes of arithmetic intensity, and
the profiler's counts beside them (scripts/fa bounds, intensity, agree). What they print is in the documents, which
scripts/fa outputs holds. And scripts/fa profile without a GPU: what it asks of ncu, reads of it and shows, and what it
refuses."""

import copy
import json
import os
import unittest
from unittest import mock

from support import ERROR, ROOT, SCRIPTS, ScriptTest, beyond, cuda_results, main, statement_results

from fa_tools.cards import BOOK, EMULATOR, cards
from fa_tools.measuring import agreement, profile as profiler
from fa_tools.for_readers import bounds, limits
from fa_tools.for_readers.intensity import intensity
from fa_tools.records import shape_of, with_solution
from fa_tools.sources import constant
from fa_tools.tools import RESULTS, read_json, relative, results_files

BOUNDS = SCRIPTS / "fa", "bounds"


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


class Scaled(unittest.TestCase):
    """What counts of some lengths say of others; the formulas are held by what documents show of scripts/fa bounds."""

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
        for path in [path for card in cards() for path in results_files(f"{card}/*")]:
            data = read_json(path)
            gpu = known.get(data.get("machine", {}).get("gpu"))
            for each in with_solution(path, data)["records"] if gpu and "records" in data else []:
                found = kernels.get((each["kernel"], each.get("head_dim")))  # a matrix product has none
                if "time_ms" not in each or "solution" in each or not found:
                    continue
                bound = limits.bound_of(found, shape_of(each), gpu, each["workspace_bytes"])
                with self.subTest(f"{relative(path)} {each['kernel']} {shape_of(each)}"):
                    self.assertLess(max(bound.seconds.values()), each["time_ms"]["min"] * 1e-3)
                checked += 1
        self.assertGreater(checked, 100)

    def test_limits_of_cards(self):
        """Every figure has its source, and what a data sheet says of a card is what its SMs do at its clock."""
        known = read_json(limits.MACHINES)["machines"]
        for cards_name in ("t4", "v100", "a100", "a10", "l4", "l40s", "rtx3090", "rtx4090", "rtx5090", "h100", "h200"):
            limits.machine_named(cards_name)
        for gpu, machine in known.items():
            with self.subTest(gpu):
                sources, sm = machine["sources"], machine["sm"]
                named = {name for field, value in machine.items() if field not in ("sm", "sources")
                         for name in (value if isinstance(value, dict) else (field,))}
                self.assertEqual((named, {*sm}), ({*sources} - {"sm"}, {*sources["sm"]}))
                cycles = sm["count"] * sm["clock_mhz"] * 1e-6  # of all SMs, 10^12 a second
                for tflops, flops in (("fp32", 2 * sm["fma"]), ("tensor", sm.get("wgmma_flops", sm["mma_flops"]))):
                    # Hopper's data sheet has a lower clock than the chip reaches.
                    self.assertTrue(0.9 < machine["tflops"][tflops] / (flops * cycles) < 1.02, tflops)
                self.assertLess(sm["cta_shared_kib"], sm["shared_kib"] + 1)
        self.assertEqual(limits.machine_of("NVIDIA A100-SXM4-40GB"), known["NVIDIA A100-SXM4-80GB"])
        self.assertIsNone(limits.machine_of("NVIDIA H100 PCIe"))

    def test_limits_are_not_below_measured_rates(self):
        """What bench/rates.cu measured of an SM, once it is committed, is within the limits (1 % for the measurement)."""
        known = read_json(limits.MACHINES)["machines"]
        for path in [path for card in cards() for path in results_files(f"{card}/rates.json")]:
            data = read_json(path)
            gpu = known[data["machine"]["gpu"]]
            sm = gpu["sm"]
            limit = {"mma.m16n8k16": sm["mma_flops"], "mma.m16n8k8": sm["mma_flops"], "fma": sm["fma"],
                            "ex2": sm["exp2"], "ld.shared": sm["l1_bytes"], "ld.shared.b32": sm["l1_bytes"],
                            "ldmatrix": sm["l1_bytes"], "ld.global.ca": sm["l1_bytes"], "shfl": sm["l1_bytes"] / 4,
                            **{f"wgmma.n{n}.{a}": sm["wgmma_flops"] for n in (64, 128) for a in ("reg", "shared")},
                            "ld.global.cg": gpu["tb_per_s"]["l2"] * 1e6 / (sm["count"] * sm["clock_mhz"])}
            for entry in data["instructions"]:
                if entry["name"] in limit:
                    with self.subTest(entry["name"]):
                        self.assertLess(entry["work"] / entry["cycles"], 1.01 * limit[entry["name"]])


class Merged(unittest.TestCase):
    def test_statements_are_counted(self):
        """Each merged load is a statement of the committed counts: none is left behind by a kernel that was changed."""
        counted = {(record["kernel"], counts["statement"], counts["kind"])
                   for record in read_json(f"{RESULTS}/{EMULATOR}/counts.jsonl#d128_n256")["records"]
                   for counts in record["statements"]}
        for entry in json.loads((ROOT / "bench" / "agreement.json").read_text(encoding="utf-8"))["merged"]:
            self.assertIn((entry["kernel"], entry["statement"], entry["kind"]), counted)


class Chosen(ScriptTest):
    def test_where_the_speed_of_l2_is_not_published(self):
        done = self.run_script(SCRIPTS / "fa", "bounds", "--machine", "rtx4090", "08")
        self.assertRegex(done.stdout, r"(?m)^08_swizzle +\d+ +\d+ +[\d.]+ +\d+ +- +\d+  tensor ")
        done = self.run_script(SCRIPTS / "fa", "intensity", "--machine", "rtx4090")
        self.assertIn("(its speed is not published)", done.stdout)

    def test_kernels_by_number_or_name(self):
        every, some, named = (self.run_script(BOUNDS, *words).stdout.splitlines()
                              for words in ((), ("8", "15"), ("08_swizzle", "15")))
        rows = [line for line in every if line.startswith(("08_", "15_"))]
        self.assertEqual([line for line in some if line[:2].isdigit()], rows)
        self.assertEqual((len(rows), some), (2, named))
        for record in read_json(f"{RESULTS}/{BOOK}/bf16_d128.json")["records"]:  # one speed of a kernel, here as in the documents
            if (record["kernel"], record["seq_len"]) in (("08_swizzle", 4096), ("15_persistent", 4096)):
                self.assertRegex(next(row for row in rows if row.startswith(record["kernel"])),
                                 rf" {bounds.microseconds(record['time_ms']['median'] * 1e-3)} +\d\.\d\d$")
        done = self.run_script(BOUNDS, "16", "--machine", "A100")
        self.assertEqual(done.stderr.splitlines()[1:], ["error: there is nothing to calculate of 16_max_free"])
        self.assert_one_sentence(self.run_script(BOUNDS, "99"), "there is no kernel '99'; there are 01_naive, ")


class Refusals(ScriptTest):
    def test_refusals(self):
        for words, text in (((self.folder / "none.json",), "no such file"),
                            ((self.write("gpu.json", cuda_results()),), "no counts by line"),
                            (("--machine", "B200"), "no machine B200"), (("--seq-len", "100"), "'100' is not a multiple of 128"),
                            (("--program", "none"), "not a program")):
            with self.subTest(text):
                self.assert_one_sentence(self.run_script(BOUNDS, *words), text)
        data = read_json(f"{RESULTS}/{EMULATOR}/counts.jsonl#d128")
        one = self.write("one.json", {**data, "records": [each for each in data["records"] if each["seq_len"] == 256]})
        self.assert_one_sentence(self.run_script(BOUNDS, one), "at one length cannot be scaled to 4096 tokens",
                                 "one.json --program build/emulator-checked/bin/attention", code=1)


WAVEFRONT = 128  # bytes: 32 banks of 4


def counted():
    """{kernel: its record} of the committed counters: bf16, batch 1, 2 heads, 256 tokens, head_dim 128."""
    data = read_json(f"{RESULTS}/{EMULATOR}/counts.jsonl#d128_n256")
    return {record["kernel"]: record for record in data["records"]}


def tile(kernel):
    number = kernel[:2]
    return {"block_m": constant(number, "kBlockM"), "block_n": constant(number, "kBlockN")}


TILE_OF_10 = {**tile("10"), "warp_rows": 16 * constant("10", "kRowTiles"), "q_once": constant("10", "kQInRegisters"), "o_staged": True}


class AgainstTheEmulator(unittest.TestCase):
    def check(self, kernel, level, of_kernel, **how):
        record = counted()[kernel]
        work = intensity(level, head_dim=record["head_dim"], seq_len=record["seq_len"], **how)
        self.assertEqual(work.bytes * record["batch"] * record["heads"], of_kernel(record["counters"]), kernel)

    def test_bytes_asked_of_global_memory(self):
        for kernel in ("02_online_softmax", "03_register_tiling", "04_wmma", "06_mma_split_q", "08_swizzle"):
            with self.subTest(kernel):
                how = tile(kernel)
                self.check(kernel, "l2", lambda c: c["global_bytes"], **how, warp_rows=how["block_m"])
        self.check("10_instruction_tuning", "l2", lambda c: c["global_bytes"], **TILE_OF_10)

    def test_bytes_of_shared_memory(self):
        def wavefronts(counters):
            return counters["shared_wavefronts"] * WAVEFRONT

        for kernel, how in (("08_swizzle", {}), ("09_fragment_pipelining", {"q_once": True})):
            with self.subTest(kernel):
                self.check(kernel, "shared", wavefronts, **tile(kernel), **how)
        self.check("10_instruction_tuning", "shared", wavefronts, **TILE_OF_10)


class Agreement(ScriptTest):
    def test_explained(self):
        done = self.run_script(SCRIPTS / "fa", "agree")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)
        self.assertNotIn("!", done.stdout)

    def test_first_limiters(self):
        """At least eight of the first ten kernels have the first limiter that the profiler names."""
        parts = [part for part in agreement.comparison() if "limiters" in part]
        self.assertTrue(parts)
        for part in parts:
            first_ten = [entry for entry in part["limiters"] if entry["kernel"][:2] <= "10"]
            self.assertEqual(len(first_ten) + sum(name[:2] <= "10" for name in part.get("changed", [])), 10)
            self.assertLessEqual(sum(entry["emulator"] != entry["gpu"] for entry in first_ten), 2)

    def test_bounds_are_below_the_profilers_cycles(self):
        """At the highest clock the launches took no less than these cycles."""
        for part in agreement.comparison():
            for entry in part.get("limiters", []):
                launches = [launch["metrics"]["cycles"] for launch in read_json(ROOT / part["file"])["launches"]
                            if launch["kernel"] == entry["kernel"]]
                clock = limits.machine_named(part["gpu"])[1]["sm"]["clock_mhz"]
                self.assertLess(max(entry["bound_us"].values()), sum(launches) / clock, entry["kernel"])

    def test_every_reason_is_needed(self):
        """An entry of bench/agreement.json that nothing needs any more is to be deleted."""
        parts = agreement.comparison()
        used = {reason for part in parts for entry in part["counts"] for reason in entry.get("reasons", [])}
        changed = {kernel for part in parts for kernel in part.get("changed", [])}
        data = read_json(ROOT / "bench" / "agreement.json")
        bf16 = [entry for entry in data["merged"] + data["differences"]
                if "bf16" in entry["dtypes"] and not {*entry.get("kernels", [entry.get("kernel")])} <= changed]
        self.assertEqual({entry["reason"] for entry in bf16} - used, set())

    def test_unexplained(self):
        profile = read_json(f"{RESULTS}/{BOOK}/profile_n256.jsonl#bf16_d128")
        profile["launches"][0]["metrics"]["global_load_sectors"] *= 2
        done = self.run_script(SCRIPTS / "fa", "agree", "--from", self.write("p.json", profile), code=1)
        self.assertIn("! 01, global load sectors: ", done.stdout)


# ---- scripts/fa profile -------------------------------------------------------------------------------------------------

PROFILE, COMMITTED = (SCRIPTS / "fa", "profile"), RESULTS / BOOK / "profile.json"

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
for number, name in enumerate(["fill<float>(float *)", "void fa::harness_rows<(bool)1>(fa::Rows)", "void k::attention_kernel<a, (int)128>(a, b)",
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

    def test_a_library(self):
        """It is called by PyTorch, and only a second launch is profiled; it has no source of ours."""
        self.write("bin/torch-python", "").chmod(0o755)
        with mock.patch.dict("os.environ", {"PYTHON": str(self.folder / "bin" / "torch-python")}):
            done = self.run_profile(PROFILE, "peer/fa3", "--json", self.out, "--heads", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        log = (self.folder / "ncu.log").read_text()
        self.assertIn("--profile-from-start off", log)
        self.assertIn(f"{self.folder}/bin/torch-python -c from fa_tools.for_readers import torch_attention", log)
        self.assertIn("launch_once('fa3', {'dtype': 'bf16', 'batch': 1, 'heads': 2, 'seq_len': 2048, 'head_dim': 128})", log)
        self.assertEqual({(entry["kernel"], entry.get("source")) for entry in profiler.read_profile(self.out)["launches"]}, {("peer/fa3", None)})
        self.assert_one_sentence(self.run_profile(PROFILE, "peer/x"), "there is no kernel peer/x", "peer/fa2")

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
        self.assert_one_sentence(self.run_profile(PROFILE, "99"), "there is no kernel 99 in kernels; it has 01_naive, ")
        self.write("bin/nvidia-smi", "#!/bin/sh\n").chmod(0o755)
        done = self.one()
        self.assert_one_sentence(done, "no NVIDIA GPU", "--from", code=3)


class Committed(unittest.TestCase):
    def test_readable(self):
        files = [path for card in cards() for path in results_files(f"{card}/*profile*")]
        self.assertTrue(files)
        for file in files:
            with self.subTest(file):
                profiler.read_profile(file)


if __name__ == "__main__":
    main()
