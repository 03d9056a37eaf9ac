"""The validator: accepts what the programs write, refuses everything else with one sentence. And scripts/fa reproduce without
a GPU: what it prints of committed results, and what it refuses."""

import copy
import datetime
import glob
import json
import os
import subprocess
import unittest
from pathlib import Path
from unittest import mock

from support import ROOT, SCRIPTS, ScriptTest, cuda_results, emulator_results, main, needs_venv, peer_results, statement_results

from fa_tools.cards import BOOK, EMULATOR, card_of, cards, file_named, gpu_of
from fa_tools.measuring import reproduce, validate
from fa_tools.documents import doc_tables
from fa_tools.tools import RESULTS, Refused, lines_of, new_results_file, read_json, read_set, write_set

VALIDATE = SCRIPTS / "fa", "validate"
REPRODUCE = SCRIPTS / "fa", "reproduce"
REPRODUCED = RESULTS / BOOK / "protocols.jsonl"


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


@needs_venv("jsonschema")
class Validator(ScriptTest):
    def test_accepts_good_files(self):
        files = [self.write(f"{i}.json", data) for i, data in enumerate((cuda_results(), emulator_results(), peer_results(), statement_results()))]
        done = self.run_script(VALIDATE, *files)
        self.assertEqual((done.returncode, len(done.stdout.splitlines())), (0, len(files)), done.stderr)
        self.assertIn("valid, 6 records", done.stdout)

    def test_refuses_with_the_place(self):
        cuda, peers, lines = cuda_results(), peer_results(), statement_results()
        cases = [
            # What the schema says: one of each kind.
            (changed(cuda, "host", "box"), "the file: Additional properties are not allowed ('host' was unexpected)"),
            (changed(cuda, "records.0.tflops", None), "records[0]: 'tflops' is a required property"),
            (changed(cuda, "command", ["attention", "--json=/home/me/x.json"]), "command"),
            (changed(peers, "protocol.rounds", None), "'round_ms' does not go with its status or back end"),
            (changed(lines, "records.0.statements.1.file", "kernels/07_cp_async.cu:5"), "records[0].statements[1].file"),
            # What no schema can say.
            (changed(cuda, "records.0.tflops", 4.0), "the median says 2.5"),
            (changed(cuda, "records.0.time_ms.p10", 1e9), "out of order"),
            (changed(cuda, "records.0.error.rel", 0.5), "over its tolerance"),
            (changed(cuda, "records.1", cuda["records"][0]), "repeats 01_naive"),
            (changed(peers, "records.0.round_ms", [1.0, 2.0, 3.0]), "not the median of round_ms"),
            (changed(peers, "records.0.ratio", {"peer/fa2": 2.0}), "ratio of peer/fa2 is 2, the rounds say 0.83"),
            (changed(lines, "records.0.statements.1.wavefronts", 6401), "statements have 6801 wavefronts, but counters.shared"),
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

    def test_what_readers_send(self):
        """bench/results/from_readers has a rule of its own, and a table in docs/your_card.md."""
        data = {**cuda_results(), "notes": ["commit 0123abcd"]}
        good = changed(data, "machine.gpu", "NVIDIA GeForce RTX 4090")
        cases = [("rtx4090.json", good, None), ("rtx4090_2.json", good, None), ("4090.json", good, "should be called rtx4090.json"),
                 ("rtx4090.json", changed(good, "notes", ["commit 0123abcd, changed"]), "names no commit without changes"),
                 ("rtx4090.json", emulator_results(), "is of no GPU"), ("rtx4090.json", changed(good, "machine.host", "box"), "is invalid")]
        for name, file, said in cases:
            path = self.write(name, file)
            with self.subTest(said or name), mock.patch.object(validate, "READERS", self.folder.resolve()):
                (valid, sentence), = validate.sentences(str(path))
                self.assertEqual((valid, said is None or said in sentence), (said is None, True), sentence)
            path.unlink()
        self.write("rtx4090.json", good)
        rows = list(doc_tables.readers(self.folder))
        self.assertRegex(rows[2], r"^\| \[NVIDIA GeForce RTX 4090\]\(.*rtx4090.json\) \| bf16 \| 2 \| `02_online_softmax` \| 2,048 \| 12.0 \| 7 \| `0123abcd` \|$")
        for path in (RESULTS / "from_readers").glob("*.json*"):
            self.assertEqual([sentence for valid, sentence in validate.sentences(str(path)) if not valid], [])

    def test_masks_heads_of_keys_and_lengths(self):
        data = cuda_results()
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
        paged = with_problem(4 * 3 * (40 + 2), batch=2, seq_len=3, kv_len=40, kv_lengths=[40, 2], page_size=16)
        window = with_problem(4 * (1 + 2 + 3 + 2), batch=1, seq_len=4, kv_len=3, window=[1, 1], softcap=30.0, alibi="head", sinks=True)
        left = with_problem(4 * (1 + 2 + 3 * 3 + 3 * 3), batch=2, seq_len=5, kv_len=7, lengths=[5, 3], kv_lengths=[5, 7], mask="causal",
                            window=[2, -1])
        for good in (causal, few, packed, blind, paged, window, left):
            self.run_script(VALIDATE, self.write("good.json", good), code=0)
        for wrong, words in ((changed(causal, "records.0.kernel", "01_naive"), "records[0]: "),
                             (changed(few, "records.0.attended_pairs", None), "'attended_pairs' is a dependency of 'mask'"),
                             (changed(few, "records.0.attended_pairs", 1200), "attended_pairs is 1200, the problem has 1188"),
                             (changed(few, "records.0.kv_heads", 3), "kv_heads does not divide heads"),
                             (changed(packed, "records.0.lengths", None), "'lengths' is a required property"),
                             (changed(paged, "records.0.kv_lengths", None), "'kv_lengths' is a dependency of 'page_size'"),
                             (changed(paged, "records.0.page_size", 24), "24 is not one of [16, 32, 64, 128, 256]"),
                             (changed(paged, "records.0.kv_lengths", [40]), "kv_lengths are not those of batch"),
                             (changed(paged, "records.0.kv_lengths", [40, 3]), "attended_pairs is 504, the problem has 516"),
                             (changed(window, "records.0.window", [1, 2]), "attended_pairs is 32, the problem has 40"),
                             (changed(window, "records.0.window", [1]), "window"),
                             (changed(window, "records.0.softcap", 0), "softcap"),
                             (changed(packed, "records.0.lengths", [5, 6]), "lengths are not those of batch and seq_len"),
                             (changed(packed, "records.0.lengths", [5, -5]), "lengths")):
            with self.subTest(words):
                self.assert_one_sentence(self.run_script(VALIDATE, self.write("wrong.json", wrong)), words, code=1)

    def test_json_that_no_reader_expects(self):
        good = json.dumps(emulator_results())
        cases = {
            "truncated": (good[: len(good) // 2], "cut off"),
            "nan": (good.replace("0.5", "NaN", 1), "holds NaN"),
            "version": (good.replace('"schema_version": 6', '"schema_version": 5'), "schema version 5, but this checkout reads 6"),
            "twice": ('{"schema_version": 6, "schema_version": 6}', "twice"),
            "nested": ("[" * 100_000, "is nested too deeply"),
            "digits": ('{"schema_version": ' + "9" * 5000 + "}", "more than 64 bits"),
            "infinite": (good.replace("0.5", "1e999"), "holds inf, which is no measurement"),
            "escape": (good.replace("g++ 12.2.0", "g++\\u001b[31m"), "the control character U+001B"),
            "list": ("[]", "is not a results file"),
        }
        for name, (content, words) in cases.items():
            file = self.write(f"{name}.json", content)
            for script, code in (("bounds", 2), ("validate", 1)):
                with self.subTest(f"{script} {name}"):
                    self.assert_one_sentence(self.run_script(SCRIPTS / "fa", script, file), words, code=code)

    def test_only_regular_files_are_read(self):
        os.mkfifo(self.folder / "pipe")
        for path in (self.folder / "pipe", "/dev/zero"):  # one never begins, the other never ends
            with self.subTest(path), self.assertRaisesRegex(Refused, "not a regular file"):
                read_json(path)

    def test_standard_output_that_cannot_be_written(self):
        file = self.write("r.json", emulator_results())
        for script, arguments in (("compare", (file, file)), ("bounds", ()), ("validate", (file,)), ("agree", ()), ("bug", ("list",)),
                                  ("--help", ())):
            with self.subTest(script), open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([SCRIPTS / "fa", script, *arguments], stdout=full, stderr=subprocess.PIPE, text=True,
                                      timeout=60, check=False)
                self.assertEqual((done.returncode, done.stderr),
                                 (2, "error: cannot write to standard output (no space left on device)\n"))
        done = self.run_script("sh", "-c", f"{SCRIPTS}/fa softmax >&-")
        self.assert_one_sentence(done, "cannot write to standard output (it is closed)")


@needs_venv("jsonschema")
class Committed(ScriptTest):
    def test_committed_results_are_valid(self):
        files = sorted(glob.glob(str(ROOT / "bench" / "results" / "**" / "*.json*"), recursive=True))
        # Figures of the profiler (scripts/fa profile), rates of instructions, matrix products and experiments
        # (scripts/fa_tools/documents/doc_tables.py), recorded timelines (--trace) and losses (examples/train_gpt.py) have forms of
        # their own.
        own = ("profile", "rates", "gemm", "experiments", "timelines", "training")
        files = [name for name in files if not any(part in Path(name).name for part in own)]
        self.assertTrue(files)
        self.run_script(VALIDATE, *files, code=0, timeout=500)

    def test_one_record_a_line(self):
        """The form in which programs and scripts write what is kept; C++ has written some of these files, Python others."""
        for path in sorted(RESULTS.glob("*/*.json")):
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

        names = counted(read_json(f"{RESULTS}/{EMULATOR}/counts.jsonl#d128_n256"))
        self.assertEqual(len(names), 1)
        for name, data in read_set(RESULTS / EMULATOR / "solutions.jsonl").items():
            with self.subTest(name):
                self.assertLessEqual(counted(data), names)


class Cards(unittest.TestCase):
    def test_folders_follow_from_the_names_of_gpus(self):
        for gpu, card in (("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H100 PCIe", "h100pcie"), ("Tesla T4", "t4"),
                          ("NVIDIA A100-SXM4-80GB", "a100"), ("NVIDIA GeForce RTX 4090", "rtx4090"), ("Tesla V100-SXM2-16GB", "v100"),
                          ("NVIDIA GeForce RTX 3080 Laptop GPU", "rtx3080laptop"), ("NVIDIA L40S", "l40s"), ("h100", "h100")):
            self.assertEqual(card_of(gpu), card)
        self.assertEqual(gpu_of({"recorded": {"gpu": "NVIDIA H200 (sm_90, 132 SMs)"}}), "NVIDIA H200")
        self.assertIsNone(gpu_of(emulator_results()))

    def test_words_that_name_a_file(self):
        self.assertEqual([file_named(word) for word in ("bf16_d128", f"{BOOK}:peers/under_load", f"{EMULATOR}:counts/d64", "machines", "none",
                                                        "counts/d64", "08/07", f"{BOOK}:machines")],
                         [f"bench/results/{BOOK}/bf16_d128.json", f"bench/results/{BOOK}/peers.jsonl#under_load",
                          f"bench/results/{EMULATOR}/counts.jsonl#d64", "bench/machines.json", None, None, None, None])
        self.assertEqual(cards()[0], BOOK)


class NewFiles(ScriptTest):
    def test_runs_within_one_second_have_names_of_their_own(self):
        moment = datetime.datetime(2026, 11, 26, 20, 35, 34)
        with mock.patch("fa_tools.tools.datetime.datetime", now=lambda zone: moment), mock.patch.dict(os.environ, RESULTS_DIR=str(self.folder)):
            for name in ("bench", "bench-run2", "bench-run3"):
                self.assertEqual(new_results_file("bench"), self.folder / f"2026-11-26T20-35-34Z-{name}.json")
        self.assertEqual(len(list(self.folder.iterdir())), 3)

    def test_a_run_without_results_leaves_no_file(self):
        for then, left in (("raise KeyboardInterrupt", 0), ("path.write_text('{}')", 1)):
            self.run_script("python3", "-c", f"from fa_tools.tools import new_results_file\npath = new_results_file('x')\n{then}",
                            env={"RESULTS_DIR": str(self.folder)})
            self.assertEqual(len(list(self.folder.iterdir())), left)


class Reproduce(ScriptTest):

    def test_figures_are_those_of_the_columns(self):
        for name in reproduce.NAMES:
            published = reproduce.read_published(name)
            columns = sum(len(column["seq_len"]) for column in published["columns"])
            for row in published["rows"]:
                self.assertEqual({columns}, {len(row[unit]) for unit in reproduce.UNITS if unit in row}, row["there"])

    def test_committed(self):
        done = self.run_script(REPRODUCE, "leetcuda", "--results", f"{REPRODUCED}#leetcuda")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
        self.assertIn("- Operations for each score: there 4*D + 5, here and below 4*D.", lines)
        self.assertIn("split-q+share-kv+stage1 52.1 142.8 – – –", lines)  # 53.15 as they count, over 37.22 of FlashAttention-2
        measured = {r["kernel"]: r["tflops"] for r in read_json(f"{REPRODUCED}#leetcuda")["records"] if r["seq_len"] == 8192 and "tflops" in r}
        for line, kernel in (("split-q+share-qkv+stage2 53.4 146.2 `10_instruction_tuning`", "10_instruction_tuning"),
                             ("FlashAttention-2 36.5 100.0 FlashAttention-2 (PyTorch 2.11)", "peer/fa2")):
            self.assertTrue([each for each in lines if each.startswith(f"{line} {measured[kernel]:.0f} ")], line)

    def test_refused(self):
        good = read_json(f"{REPRODUCED}#leetcuda")
        for content, words in ((emulator_results(), "no times"), ({**good, "records": []}, "no kernel or library that was timed"),
                               (read_json(f"{REPRODUCED}#fa3-paper"), "was not made by scripts/fa bench --protocol leetcuda")):
            with self.subTest(words):
                self.assert_one_sentence(self.run_script(REPRODUCE, "leetcuda", "--results", self.write("r.json", content)), words)
        for words, text in (((), "PUBLICATION"), (("medium-post",), "'medium-post'"),
                            (("leetcuda", "--json", "x"), "--json is for scripts/fa bench"),
                            (("leetcuda", "10", "--results", "x"), "nothing is measured")):
            self.assert_one_sentence(self.run_script(REPRODUCE, *words), text)


if __name__ == "__main__":
    main()
