"""The validator: accepts what the programs write, refuses everything else with one sentence."""

import contextlib
import copy
import functools
import glob
import io
import json
import os
import random
import re
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

from support import (ROOT, SCRIPTS, VENV_PYTHON, ScriptTest, cuda_record, cuda_results, emulator_results, statement_results, main,
                     needs_venv, not_passed, peer_results, score_results)

from fa_tools import agree
from fa_tools import bounds
from fa_tools import chart
from fa_tools import compare
from fa_tools import reproduce
from fa_tools import schema
from fa_tools import validate as validate_results
from fa_tools.tools import Refused, lines_of, read_json, read_set, write_set

VALIDATE = SCRIPTS / "fa", "validate"


def changed(data, path, value):
    """A copy with the value at a dotted path replaced (None: removed)."""
    data = copy.deepcopy(data)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    target = data
    for part in parents:
        target = target[part]
    if value is None:
        del target[last]
    else:
        target[last] = value
    return data


def bench_results():
    """Version 3: rounds with clocks, a peer, both ceilings, a note."""
    data = peer_results()
    data["schema_version"] = 3
    data["protocol"].update(name="quick", idle_ms=0)
    data["notes"] = ["The clocks of 08_swizzle and peer/fa2 differed by 4 %."]
    shape = {name: data["records"][0][name] for name in ("dtype", "batch", "heads", "seq_len", "head_dim")}
    time = {"median": 2.0, "p10": 1.9, "p90": 2.1, "min": 1.8, "launches": 128}
    library = {"name": "PyTorch", "version": "2.11.0+cu130", "implementation": "cuBLAS"}
    ceiling = {**shape, "status": "passed", "time_ms": time, "round_ms": [1.9, 2.0, 2.1], "library": library}
    data["records"] += [{"kernel": "ceiling/matmul", **ceiling, "flops": 1e12, "tflops": 500.0},
                        {"kernel": "ceiling/copy", **ceiling, "gbytes_per_s": 4300.0}]
    for record in data["records"]:
        if record["status"] == "passed":
            record.update(clock_mhz=1755.0, power_w=640.5, round_clock_mhz=[1700.0, 1755.0, 1980.0])
    data["records"][1].update(clock_mhz=None, power_w=None, round_clock_mhz=[None, None, None])
    return data


class Validator(ScriptTest):
    def test_accepts_good_files(self):
        files = [self.write("cuda.json", cuda_results()), self.write("emulator.json", emulator_results()),
                 self.write("peers.json", peer_results()), self.write("bench.json", bench_results()),
                 self.write("lines.json", statement_results()), self.write("scores.json", score_results())]
        done = self.run_script(VALIDATE, *files)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("valid, 6 records", done.stdout)
        self.assertIn("valid, 8 records", done.stdout)
        self.assertIn("valid, 10 records", done.stdout)
        self.assertEqual(len(done.stdout.splitlines()), len(files))

    def test_scores_are_part_of_the_problem(self):
        good = score_results()
        rounds = copy.deepcopy(good)
        rounds["protocol"]["rounds"] = 1
        for record in rounds["records"]:
            record["round_ms"] = [record["time_ms"]["median"]]
            if record["kernel"] == "16_max_free":
                record["ratio"] = {"peer/fa3": 1.0}  # to the peer at the same scores
        self.assertEqual(self.run_script(VALIDATE, self.write("rounds.json", rounds)).stderr, "")
        for data, words in (
                (changed(good, "records.0.score_growth", None), "score_growth"),
                (changed(good, "records.0.score_std", None), "score_std"),
                (changed(good, "records.0.score_std", 0), "score_std"),
                (changed(good, "records.0.score_growth", "down"), "is \"down\", not one of flat, growing"),
                (changed(good, "records.2.score_std", 1), "records[2] repeats 16_max_free on the same problem"),
                (changed(rounds, "records.1.score_std", 2), "names peer/fa3, which did not pass on the same problem"),
                (changed(good, "schema_version", 3), "score_std"),
                (changed(good, "protocol.inputs", "large"), "records[0] has a score_std, which only the inputs normal have")):
            with self.subTest(words):
                done = self.run_script(VALIDATE, self.write("bad.json", data))
                self.assert_one_sentence(done, words, code=1)

    def test_versions_3_and_4_without_rounds_are_what_programs_write(self):
        fast = emulator_results()
        fast["machine"]["checked"] = False
        for record in fast["records"]:
            record["counters"] = {"exp2": 5}
        for data, version, extra in ((cuda_results(), 3, {"clock_mhz": 1980, "power_w": None}),
                                     (emulator_results(), 3, {}), (cuda_results(), 4, {}), (fast, 4, {})):
            data["schema_version"] = version
            data["protocol"]["idle_ms"] = 2.5
            data["records"][0].update(extra)
            done = self.run_script(VALIDATE, self.write("program.json", data))
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_version_4_may_say_how_peers_were_launched(self):
        newest = self.newest()
        for rest, launched_from in ((50, "graph"), (0, "stream")):
            newest["protocol"]["rest_ms"] = rest
            newest["records"][2]["launched_from"] = launched_from
            done = self.run_script(VALIDATE, self.write("newest.json", newest))
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_version_6_has_times_under_load(self):
        data = cuda_results()
        data["schema_version"] = 6
        data["protocol"].update(rest_ms=100, load_seconds=2)
        fast = next(record for record in data["records"] if record["status"] == "passed")
        loaded = {"time_ms": fast["time_ms"], "tflops": fast["tflops"], "clock_mhz": 1500.0, "power_w": 700.0,
                  "joules_per_tflop": 1.0, "round_ms": [1.0, 1.0], "round_clock_mhz": [1500.0, None]}
        fast["under_load"] = loaded
        done = self.run_script(VALIDATE, self.write("loaded.json", data))
        self.assertEqual(done.returncode, 0, done.stderr)
        for wrong, words in ((changed(data, "protocol.idle_ms", 0), "protocol has 'idle_ms'"),
                             (changed(data, "schema_version", 5), "'load_seconds'"),
                             (changed(data, f"records.{data['records'].index(fast)}.under_load.power_w", -1), "power_w")):
            self.assert_one_sentence(self.run_script(VALIDATE, self.write("wrong.json", wrong)), words, code=1)

    def test_version_6_has_masks_heads_of_keys_and_lengths(self):
        data = cuda_results()
        data["schema_version"] = 6
        data["protocol"].update(rest_ms=100, load_seconds=2)
        record = next(record for record in data["records"] if record["status"] == "passed")
        data["records"] = [record]

        def with_problem(pairs, **fields):
            tflops = 4 * pairs * record["head_dim"] / record["time_ms"]["median"] / 1e9
            fields = {"heads": 4, "attended_pairs": pairs, "tflops": tflops, **fields}
            return {**data, "records": [{**record, "kernel": "beyond/causal", **fields}]}

        causal = with_problem(4 * 2 * 77 * 78 // 2, batch=2, seq_len=77, mask="causal")
        few = with_problem(4 * (98 + 99 + 100), batch=1, seq_len=3, kv_len=100, kv_heads=2, mask="causal")
        packed = with_problem(4 * (15 + 5 * 2), batch=2, seq_len=5, lengths=[5, 5], kv_lengths=[3, 2])
        blind = with_problem(4 * (1 + 2), batch=1, seq_len=90, kv_len=2, mask="causal")
        for good in (causal, few, packed, blind):
            done = self.run_script(VALIDATE, self.write("good.json", good))
            self.assertEqual(done.returncode, 0, done.stderr)
        for wrong, words in ((changed(causal, "schema_version", 5), "'load_seconds'"),
                             (changed(causal, "records.0.kernel", "01_naive"), "seq_len"),
                             (changed(few, "records.0.attended_pairs", None), "lacks 'attended_pairs'"),
                             (changed(few, "records.0.attended_pairs", 1200), "attended_pairs is 1200, the problem has 1188"),
                             (changed(few, "records.0.mask", None), "attended_pairs is 1188, the problem has 1200"),
                             (changed(few, "records.0.mask", "none"), "not one of causal"),
                             (changed(few, "records.0.kv_heads", 3), "kv_heads does not divide heads"),
                             (changed(few, "records.0.tflops", 3.0), "the median says"),
                             (changed(packed, "records.0.lengths", None), "lacks 'lengths'"),
                             (changed(packed, "records.0.lengths", [5, 6]), "lengths are not those of batch and seq_len"),
                             (changed(packed, "records.0.kv_lengths", [3]), "lengths are not those of batch and seq_len"),
                             (changed(packed, "records.0.lengths", [5, -5]), "lengths")):
            with self.subTest(words):
                self.assert_one_sentence(self.run_script(VALIDATE, self.write("wrong.json", wrong)), words, code=1)

    def newest(self):
        data = bench_results()
        data["schema_version"] = 4
        data["protocol"]["rest_ms"] = 50
        data["records"][2]["launched_from"] = "graph"
        return data

    def test_refuses_what_is_no_results_file(self):
        text = json.dumps(cuda_results())
        cases = {
            "truncated": (text[: len(text) // 2], "cut off"),
            "empty": ("", "is empty"),
            "nan": (text.replace("2.5,", "NaN,", 1), "holds NaN"),
            "infinity": (text.replace("2.5,", "-Infinity,", 1), "Infinity"),
            "version": (text.replace('"schema_version": 1', '"schema_version": 7'),
                        "schema version 7, but this checkout reads 1, 2, 3, 4, 5 and 6"),
            "fraction": (text.replace('"schema_version": 1', '"schema_version": 2.5'), "schema version 2.5"),
            "boolean": (text.replace('"schema_version": 1', '"schema_version": true'), "schema version true"),
            "list": ("[]", "is not a results file"),
            "twice": ('{"schema_version": 1, "schema_version": 1}', "twice"),
            "binary": ("\x00\x01", "is not JSON"),
        }
        for name, (content, expected) in cases.items():
            with self.subTest(name):
                done = self.run_script(VALIDATE, self.write(f"{name}.json", content))
                self.assert_one_sentence(done, expected, code=1)
        self.assert_one_sentence(self.run_script(VALIDATE, self.folder / "none.json"), "no such file", code=1)

    def test_refuses_with_the_place(self):
        cuda, emulator, peers = cuda_results(), emulator_results(), peer_results()
        fast, bench, lines = changed(emulator, "machine.checked", False), bench_results(), statement_results()
        cases = [
            (changed(cuda, "host", "box"), "unknown key 'host'"),
            (changed(cuda, "records.0.kernal", "x"), "records[0] has the unknown key 'kernal'"),
            (changed(cuda, "machine.hostname", "box"), "unknown key 'hostname'"),
            (changed(cuda, "machine.driver", None), "machine lacks 'driver'"),
            (changed(cuda, "machine.backend", "tpu"), "tpu"),
            (changed(cuda, "protocol", None), "lacks 'protocol'"),
            (changed(cuda, "records.0.tflops", None), "records[0] lacks 'tflops'"),
            (changed(cuda, "records.0.error", None), "records[0] lacks 'error'"),
            (changed(cuda, "records.0.registers", None), "records[0] lacks 'registers'"),
            (changed(cuda, "records.0.reason", "why"), "reason"),
            (changed(cuda, "records.3.reason", None), "records[3] lacks 'reason'"),
            (changed(cuda, "records.3.tflops", 3.0), "records[3] has 'tflops'"),
            (changed(cuda, "records.0.counters", {"exp2": 1}), "counters"),
            (changed(cuda, "records.0.status", "ok"), "not one of passed"),
            (changed(cuda, "records.0.dtype", "fp8"), "fp16, bf16"),
            (changed(cuda, "records.0.seq_len", 1000), "seq_len"),
            (changed(cuda, "records.0.registers", 300), "registers"),
            (changed(cuda, "records.0.tflops", 4.0), "the median says 2.5"),
            (changed(cuda, "records.0.time_ms.p10", 1e9), "out of order"),
            (changed(cuda, "records.0.error.rel", 0.5), "over its tolerance"),
            (changed(cuda, "command", ["/usr/bin/attention"]), "command"),
            (changed(cuda, "command", ["attention", "--json=/home/me/x.json"]), "command"),
            (changed(cuda, "created", "yesterday"), "created"),
            (changed(cuda, "records.1", cuda["records"][0]), "repeats 01_naive"),
            (changed(emulator, "records.0.tflops", 3.0), "tflops"),
            (changed(emulator, "records.0.counters", None), "lacks 'counters'"),
            (changed(emulator, "records.0.counters.exp2", 1.5), "exp2"),
            (fast, "global_"),
            # Version 2: rounds, peers.
            (changed(peers, "schema_version", 1), "has 'rounds'"),
            (changed(cuda, "schema_version", 2), "protocol lacks 'rounds'"),
            (changed(cuda, "records.0.ratio", {"peer/fa2": 1.0}), "records[0] has 'ratio'"),
            (changed(peers, "records.0.round_ms", None), "records[0] lacks 'round_ms'"),
            (changed(peers, "records.0.round_ms", [1.0, 2.0]), "records[0].round_ms has 2 rounds"),
            (changed(peers, "records.0.round_ms", [1.0, 2.0, 3.0]), "not the median of round_ms"),
            (changed(peers, "records.0.ratio", {"peer/fa2": 2.0}), "ratio of peer/fa2 is 2, the rounds say 0.83"),
            (changed(peers, "records.0.ratio", {"peer/cudnn": 1.0}), "names peer/cudnn, which did not pass"),
            (changed(peers, "records.0.ratio", {"08_swizzle": 1.0}), "08_swizzle"),
            (changed(peers, "records.2.ratio", {"peer/fa2": 1.0}), "records[2] has 'ratio'"),
            (changed(peers, "records.2.library", None), "records[2] lacks 'library'"),
            (changed(peers, "records.2.library.version", "newest"), "newest"),
            (changed(peers, "records.0.library", peers["records"][2]["library"]), "records[0] has 'library'"),
            (changed(peers, "records.3.round_ms", [1.0, 1.0, 1.0]), "records[3] has 'round_ms'"),
            # Version 5: statements.
            (changed(lines, "schema_version", 4), "records[0] has 'statements'"),
            (changed(lines, "records.0.statements", []), "records[0].statements"),
            (changed(lines, "machine.checked", False), "which does not belong there"),
            (changed(lines, "records.0.statements.1.kind", "ldmatrx"), "not one of global load"),
            (changed(lines, "records.0.statements.1.wavefronts", 0), "records[0].statements[1].wavefronts"),
            (changed(lines, "records.0.statements.1.wavefronts", 6401), "statements have 6801 wavefronts, but counters.shared"),
            (changed(lines, "records.0.statements.1.file", "/usr/include/bit"), "records[0].statements[1].file"),
            (changed(lines, "records.0.statements.1.file", "kernels/07_cp_async.cu:5"), "records[0].statements[1].file"),
            (changed(lines, "records.0.statements.1.statement", ""), "records[0].statements[1].statement"),
            (changed(lines, "records.0.statements.2", lines["records"][0]["statements"][1]), "statements"),
            (changed(lines, "records.0.statements.1.time", 5), "records[0].statements[1] has the unknown key 'time'"),
            (changed(lines, "records.1.statements.1", {**lines["records"][1]["statements"][1], "wavefronts": 799}), "statements"),
            # Version 4: rests, how peers were launched.
            (changed(bench, "protocol.rest_ms", 50), "protocol has 'rest_ms'"),
            (changed(bench, "records.2.launched_from", "graph"), "records[2] has 'launched_from'"),
            (changed(self.newest(), "protocol.rest_ms", -1), "rest_ms"),
            (changed(self.newest(), "records.2.launched_from", "file"), "not one of graph, stream"),
            (changed(self.newest(), "records.0.launched_from", "graph"), "records[0] has 'launched_from'"),
            (changed(self.newest(), "records.3.launched_from", "graph"), "records[3] has 'launched_from'"),
            # Version 3: clocks, ceilings, notes.
            (changed(peers, "protocol.idle_ms", 0), "protocol has 'idle_ms'"),
            (changed(peers, "protocol.name", "quick"), "protocol has 'name'"),
            (changed(peers, "notes", ["warm"]), "the file has 'notes'"),
            (changed(cuda, "records.0.clock_mhz", 1980), "records[0] has 'clock_mhz'"),
            (changed(cuda, "schema_version", 3), "protocol lacks 'idle_ms'"),
            (changed(bench, "notes", "warm"), "notes"),
            (changed(bench, "protocol.rounds", None), "has 'r"),
            (changed(bench, "protocol.idle_ms", -1), "idle_ms"),
            (changed(bench, "records.0.clock_mhz", 0), "clock_mhz"),
            (changed(bench, "records.0.clock_mhz", 1980), "clock_mhz is not the median of round_clock_mhz"),
            (changed(bench, "records.0.clock_mhz", None), "clock_mhz is not the median of round_clock_mhz"),
            (changed(bench, "records.1.clock_mhz", 1980), "clock_mhz is not the median of round_clock_mhz"),
            (changed(bench, "records.0.round_clock_mhz", [1755.0]), "round_clock_mhz has 1 rounds"),
            (changed(bench, "records.3.clock_mhz", 1980), "records[3] has 'clock_mhz'"),
            (changed(bench, "records.8.flops", None), "records[8] lacks 'flops'"),
            (changed(bench, "records.8.flops", 2e12), "the median says 1000"),
            (changed(bench, "records.8.ratio", {"peer/fa2": 1.0}), "records[8] has 'ratio'"),
            (changed(bench, "records.9.gbytes_per_s", None), "records[9] lacks 'gbytes_per_s'"),
            (changed(bench, "records.9.tflops", 1.0), "records[9] has 'tflops'"),
            (changed(bench, "records.0.flops", 1e12), "records[0] has 'flops'"),
            (changed(bench, "records.0.gbytes_per_s", 1.0), "records[0] has 'gbytes_per_s'"),
        ]
        files = [self.write(f"bad{i}.json", data) for i, (data, _) in enumerate(cases)]
        done = self.run_script(VALIDATE, *files)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), len(cases), done.stderr)
        for i, (line, (_, expected)) in enumerate(zip(lines, cases)):
            with self.subTest(expected):
                self.assertTrue(line.startswith("error: "), line)
                self.assertIn(f"bad{i}.json is invalid", line)
                self.assertIn(expected, line)

    def test_one_sentence_a_file(self):
        bad = self.write("bad.json", "{")
        done = self.run_script(VALIDATE, bad, self.write("good.json", emulator_results()), bad)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(done.stderr.splitlines()), 2)
        self.assertIn("good.json: valid", done.stdout)

    def test_nan_output_is_null_and_wrong(self):
        record = not_passed(cuda_record(), "wrong", "an element is NaN")
        record["error"].update(max_abs=None, rel=None, bound_ratio=None)
        data = cuda_results()
        data["records"] = [record]
        self.assertEqual(self.run_script(VALIDATE, self.write("nan.json", data)).returncode, 0)
        record["status"] = "passed"
        self.assertEqual(self.run_script(VALIDATE, self.write("nan.json", data)).returncode, 1)


class Schema(unittest.TestCase):
    def test_every_field_is_documented(self):
        schema = json.loads((ROOT / "bench" / "schema.json").read_text(encoding="utf-8"))

        def walk(node, path):
            # Only definitions: a condition (if, then, allOf ...) says nothing new about a field.
            for name, field in node.get("properties", {}).items():
                if field is False:
                    continue
                self.assertTrue("description" in field or "$ref" in field, f"{path}.{name} has no description")
                walk(field, f"{path}.{name}")

        walk(schema, "")
        for name, definition in schema["$defs"].items():
            self.assertIn("description", definition, name)
            if name not in ("cudaRecord", "emulatorRecord", "uncheckedRecord", "olderRecord", "newerRecord",
                            "singleRunRecord", "roundsRecord"):
                walk(definition, name)

    def test_units_are_in_the_names_or_descriptions(self):
        text = (ROOT / "bench" / "schema.json").read_text(encoding="utf-8")
        for field, unit in re.findall(r'"(\w+_(bytes|mhz|w|ms))"\s*:\s*\{', text):
            description = re.search(rf'"{field}"\s*:\s*\{{\s*"description"\s*:\s*"([^"]+)"', text)[1]
            word = {"bytes": "byte", "mhz": "MHz", "w": "watt", "ms": "millisecond"}[unit]
            self.assertIn(word.lower(), description.lower(), field)


ODD = (None, True, 0, -1, 1, 2.5, 1e-90, 1e90, 10**18, "", "x", "07_cp_async", "2.5", "cuda", [], [[]], [1, "x"], {}, {"x": 1})


def mutations(data):
    """Copies of the data with one place changed: another value, gone, or with a stranger beside it."""
    places = []

    def walk(value, path):
        for key, member in value.items() if isinstance(value, dict) else enumerate(value[:2]):
            places.append((*path, key))
            if isinstance(member, (dict, list)):
                walk(member, (*path, key))

    walk(data, ())
    for *path, last in places:
        for change in (*ODD, "gone", "stranger"):
            copied = copy.deepcopy(data)
            parent = functools.reduce(lambda value, key: value[key], path, copied)
            if change == "gone":
                del parent[last]
            elif change == "stranger" and isinstance(parent, dict):
                parent["stranger"] = 1
            else:
                parent[last] = change
            yield ".".join(map(str, (*path, last))), change, copied


def some_mutations(count):
    """The same at every call. Of records the first of each kind, which is enough."""
    found = []
    for data in (cuda_results(), emulator_results(), statement_results(), score_results(), bench_results()):
        found += mutations(data)
    return random.Random(1).sample(found, count)


# Says of each line of standard input, a JSON value, whether the schema of the first argument allows it.
OPINIONS = """
import json, sys, jsonschema
check = jsonschema.Draft202012Validator(json.load(open(sys.argv[1]))).is_valid
for line in sys.stdin: print(int(check(json.loads(line))))
"""


class Mutations(ScriptTest):
    @needs_venv("jsonschema")
    def test_both_checkers_agree(self):
        cases = some_mutations(1500)
        lines = "".join(json.dumps(data) + "\n" for *_, data in cases)
        done = subprocess.run([VENV_PYTHON, "-c", OPINIONS, ROOT / "bench" / "schema.json"], input=lines, text=True,
                              capture_output=True, timeout=110, check=True)
        allowed = 0
        for (place, change, data), theirs in zip(cases, done.stdout.split(), strict=True):
            try:
                schema.check(data)
                ours = "1"
            except Refused as problem:
                ours = "0"
                self.assertNotIn("\n", str(problem))
            self.assertEqual(ours, theirs, f"{place} = {change!r}")
            allowed += ours == "1"
        self.assertGreater(allowed, 100)

    def call(self, main, *arguments):
        """Exit code and what was said, in this process: hundreds of calls in seconds."""
        out, err = io.StringIO(), io.StringIO()
        with mock.patch.object(sys, "argv", ["x", *map(str, arguments)]), contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err):
            try:
                code = main()
            except SystemExit as end:
                code = end.code
        return code, err.getvalue()

    def test_no_script_breaks(self):
        """Every reader ends with a documented code and at most one sentence, whatever is in a file."""
        committed = bounds.committed_measurements()
        readers = {
            "compare": lambda file: self.call(compare.main, file, file),
            "chart": lambda file: self.call(self.specs, file),
            "bounds": lambda file: self.call(bounds.main, file),
            "agree": lambda file: self.call(agree.main, "--counters", file),
            "validate": lambda file: self.call(validate_results.main, file),
            "reproduce": lambda file: self.call(reproduce.main, "leetcuda", "--results", file),
        }
        cases = some_mutations(1500)
        cases = [case for case in cases if self.is_allowed(case[2])] + cases[:100]
        with mock.patch.object(bounds, "committed_measurements", lambda: committed):
            for place, change, data in cases:
                file = self.write("r.json", data)
                for name, reader in readers.items():
                    with self.subTest(f"{name}, {place} = {change!r}"):
                        code, err = reader(file)
                        self.assertIn(code, (0, 1, 2))
                        said = [line for line in err.splitlines() if not line.startswith("note: ")]
                        self.assertLessEqual(len(said), 1, err)
                        self.assertTrue(code == 0 or said and said[0].startswith("error: "), err)

    def is_allowed(self, data):
        with contextlib.suppress(Refused):
            schema.check(data)
            return True
        return False

    def specs(self):
        """What scripts/fa chart does but for the drawing."""
        try:
            for group in chart.group_files(sys.argv[1:]):
                for _, spec_of in chart.specs_of(group, {}):
                    json.dumps(spec_of if isinstance(spec_of, str) else spec_of(chart.LIGHT), allow_nan=False)
        except Refused as problem:
            chart.fail(str(problem))
        return 0

    def test_json_that_no_reader_expects(self):
        good = json.dumps(emulator_results())
        cases = {
            "nested": ("[" * 100_000, "is nested too deeply"),
            "nested objects": ('{"a":' * 5000 + "1" + "}" * 5000, "is nested too deeply"),
            "digits": ('{"schema_version": ' + "9" * 5000 + "}", "more than 64 bits"),
            "long": (good.replace("131072", "9" * 25), "more than 64 bits"),
            "infinite": (good.replace("0.5", "1e999"), "holds inf, which is no measurement"),
            "tiny": (good.replace("0.5", "5e-324"), "holds 4.94066e-324, which is no measurement"),
            "escape": (good.replace("g++ 12.2.0", "g++\\u001b[31m"), "the control character U+001B"),
            "half": (good.replace("g++ 12.2.0", "\\ud800"), "the control character U+D800"),
            "list": ("[]", "is not a results file"),
            "text": ('"x"', "is not a results file"),
        }
        for name, (content, words) in cases.items():
            file = self.write(f"{name}.json", content)
            for script, code in (("compare", 2), ("bounds", 2), ("validate", 1)):
                with self.subTest(f"{script} {name}"):
                    twice = [file] if script == "compare" else []
                    self.assert_one_sentence(self.run_script(SCRIPTS / "fa", script, file, *twice), words, code=code)

    def test_only_regular_files_are_read(self):
        os.mkfifo(self.folder / "pipe")
        for path in (self.folder / "pipe", "/dev/zero"):  # one never begins, the other never ends
            with self.subTest(path), self.assertRaisesRegex(Refused, "not a regular file"):
                read_json(path)

    def test_standard_output_that_cannot_be_written(self):
        file = self.write("r.json", emulator_results())
        for script, arguments in (("compare", (file, file)), ("bounds", ()), ("validate", (file,)), ("agree", ())):
            with self.subTest(script), open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([SCRIPTS / "fa", script, *arguments], stdout=full, stderr=subprocess.PIPE, text=True,
                                      timeout=60, check=False)
                self.assertEqual((done.returncode, done.stderr),
                                 (2, "error: cannot write to standard output (no space left on device)\n"))


class Committed(ScriptTest):
    def test_committed_results_are_valid(self):
        files = sorted(glob.glob(str(ROOT / "bench" / "results" / "**" / "*.json*"), recursive=True))
        # Figures of the profiler (scripts/fa profile), rates of instructions, matrix products and experiments
        # (scripts/fa_tools/measurements.py), searches (scripts/fa tune) and recorded timelines (--trace) have forms of their own.
        own = ("_profile", "_rates", "_gemm", "_experiments", "_timelines")
        files = [name for name in files if not any(part in Path(name).name for part in own) and Path(name).parent.name != "tuning"]
        if not files:
            self.skipTest("no results are committed yet")
        done = self.run_script(VALIDATE, *files)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_one_record_a_line(self):
        """The form in which programs and scripts write what is kept; C++ has written some of these files, Python others."""
        for path in sorted((ROOT / "bench" / "results").glob("*.json")):
            with self.subTest(path.name):
                self.assertEqual(path.read_text(encoding="utf-8"), lines_of(read_json(path)))

    def test_a_set_is_one_file(self):
        path = self.folder / "set.jsonl"
        write_set(path, {"b": {"x": [1, 2]}, "a": emulator_results()})
        self.assertEqual(read_json(f"{path}#b"), {"x": [1, 2]})
        self.assertEqual([json.loads(line)["name"] for line in path.read_text().splitlines()], ["a", "b"])
        self.assertEqual(self.run_script(VALIDATE, f"{path}#a").stdout, f"{path}#a: valid, 2 records\n")
        self.assert_one_sentence(self.run_script(VALIDATE, f"{path}#c"), "has no c", code=1)
        self.assert_one_sentence(self.run_script(VALIDATE, path), "set.jsonl#b is not a results file", code=1)
        for text, words in (('{"name": "a"}\n', "is not a set of results (line 1)"), ("{}\n[", "line 1"),
                            ('{"name": "a", "results": 1}\n' * 2, "has a twice")):
            path.write_text(text)
            self.assert_one_sentence(self.run_script(VALIDATE, path), words, code=1)

    def test_a_file_is_kept_in_a_set(self):
        path, file = self.folder / "set.jsonl", self.write("mine.json", emulator_results())
        write_set(path, {"a": 1})
        self.assertEqual(self.run_script(VALIDATE, file, "--keep", f"{path}#b").returncode, 0)
        self.assertEqual(read_set(path), {"a": 1, "b": emulator_results()})
        before, bad = path.read_text(), self.write("bad.json", {"schema_version": 5})
        self.assert_one_sentence(self.run_script(VALIDATE, bad, "--keep", f"{path}#a"), "bad.json", code=1)
        for place, files in ((path, [file]), (f"{path}#c", [file, file])):
            self.assert_one_sentence(self.run_script(VALIDATE, *files, "--keep", place), "--keep takes one file")
        self.assertEqual(path.read_text(), before)

    def test_solutions_count_what_kernels_count(self):
        """scripts/fa solutions writes them again when the emulator has learnt to count something."""
        def counted(data):
            return {tuple(record["counters"]) for record in data["records"] if "counters" in record}

        results = ROOT / "bench" / "results"
        names = counted(read_json(results / "emulator_n256.json"))
        self.assertEqual(len(names), 1)
        for name, data in read_set(results / "solutions.jsonl").items():
            with self.subTest(name):
                self.assertLessEqual(counted(data), names)


if __name__ == "__main__":
    main()
