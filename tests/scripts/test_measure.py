"""bench/measurements.toml names every measurement of a GPU, with a command that measures the same again; scripts/fa measure
runs what a changed kernel asks for, on programs that only seem to measure, and brings it into the results. And scripts/fa adopt:
what it finds and writes of a changed kernel, in a copy of the checkout whose programs are not built, because what they say is
theirs to test; with --whole (label long) as after a real change, programs and all."""

import contextlib
import fnmatch
import io
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from unittest import mock

from support import ROOT, SCRIPTS, ScriptTest, beyond, cuda_record, cuda_results, given, main, not_passed

from tool_test import copy_repository

from fa_tools import patches, tools
from fa_tools.cards import BOOK, card_of, cards, gpu_of, has_file
from fa_tools.measuring import adopt, measure, release
from fa_tools.documents import sync
from fa_tools.for_readers import bench
from fa_tools.records import passed, scores_of, shape_of, todays_source, with_solution
from fa_tools.tools import RESULTS, Refused, read_json, read_set, results_files, write_json, write_set

# Writes the committed records of these kernels as if it had measured them: the real source, other times.
PROGRAM = """#!{python}
import json, sys
sys.path.insert(0, "{root}/scripts")
from fa_tools.records import todays_source
from fa_tools.tools import read_json
dtype, head_dim = (next(word for word in sys.argv if word in words) for words in (("fp16", "bf16"), ("64", "128")))
if dtype == "fp16" and head_dim == "64":
    sys.exit(1)
data = read_json("{root}/bench/results/{card}/ladder.jsonl#" + dtype + "_d" + head_dim)
data["records"] = [dict(r, source=todays_source(r), clock_mhz=1500) for r in data["records"] if r["kernel"] in sys.argv]
for record in data["records"]:
    record.pop("run", None)
data.update(created="2026-12-01T10:00:00Z")
data["machine"]["driver"] = "580.1"
json.dump(data, open(sys.argv[sys.argv.index("--json") + 1], "w"))
"""

# Stands for the Python with PyTorch: it sees the library and the package, and has trained to another last loss than the committed one.
TRAINING = """#!{python}
import json, os, sys
assert os.path.exists(os.environ["FA_LIBRARY"]) and os.path.exists(os.environ["PYTHONPATH"].split(":")[0] + "/fa")
assert os.path.exists(sys.argv[1])
data = json.load(open("{root}/bench/results/{card}/training.json"))
data["steps"][-1]["by_fa"] = 2.5
json.dump(data, open(sys.argv[sys.argv.index("--json") + 1], "w"))
"""


class Manifest(ScriptTest):
    def test_every_result_of_a_gpu_is_in_one_entry(self):
        named = [file for entry in measure.manifest() for file in measure.files_of(entry)]
        for card in cards():
            kept = [Path(file).relative_to(RESULTS / card).as_posix() for file in results_files(f"{card}/*")]
            for file in kept:
                self.assertEqual(len([name for name in named if fnmatch.fnmatchcase(file, name)]), 1, file)
                self.assertEqual(card_of(gpu_of(read_json(f"{RESULTS}/{card}/{file}"))), card, file)
        # What no card has yet is new, and scripts/fa release names it.
        begun = {entry.name for entry in measure.manifest() for file in measure.files_of(entry) for card in cards() if has_file(card, file)}
        self.assertEqual(begun.intersection(measure.incomplete(BOOK)), set())

    def test_commands_measure_the_same_again(self):
        """The settings and problems of a command are those of its file; so are the kernels and libraries."""
        (self.folder / "part").mkdir()
        for card, entry in [(card, entry) for card in cards() for entry in measure.manifest()]:
            there = [number for number in entry.kernels if number not in measure.new_to(card)]
            for step in measure.steps_of(entry, lambda file, there=there: there, self.folder, self.folder / "cuda"):
                command = step.commands[0][-1]
                is_bench = "bench" in command[:2]
                if not is_bench and entry.name != "ladder" or measure.lacks(entry, card, step.file, measure.new_to(card)):
                    continue
                with self.subTest(f"{card} {step.name}"):
                    file = read_json(f"{RESULTS}/{card}/{step.file}")
                    ran = [record for record in file["records"] if passed(record)]
                    if not is_bench:
                        self.assertEqual(adopt.options_of(command), adopt.options_of(file["command"]))
                        continue
                    args = bench.parse_arguments(command[2:])
                    peers = {bench.peer_names()[name] for name in args.peers}
                    self.assertLessEqual({r["kernel"] for r in ran}, {*peers, *args.kernels})
                    if step.entry.group != "solutions":  # of which there are new ones, not measured yet
                        # There are problems that a library does not take, and another card's machine may have lacked a library.
                        taken = peers if step.entry.group not in ("beyond", "fp8") and card == BOOK else ()
                        self.assertLessEqual({*taken, *args.kernels}, {r["kernel"] for r in ran})
                    self.assertEqual({(shape_of(p), scores_of(p)) for p in args.problems}, {(shape_of(r), scores_of(r)) for r in ran})
                    self.assertEqual(args.settings, file["protocol"])


class Measure(ScriptTest):
    def measure(self, *arguments):
        """(exit code, what it prints)"""
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
            try:
                code = measure.main([*arguments])
            except SystemExit as end:
                code = end.code
        return code, out.getvalue()

    def commands(self, *arguments):
        code, text = self.measure("--dry-run", *arguments)
        self.assertEqual(code, 0, text)
        return text

    def test_what_is_run(self):
        waiting = measure.known() | {"16.next": "16_max_free.next"}  # as if it were in kernels/next
        with mock.patch.object(measure, "known", lambda: waiting):
            self.look_at_commands()

    def look_at_commands(self):
        text = self.commands("05", "16.next", "--only", "ladder,peers,tests,profile,timelines_persistent")
        self.assertIn("/attention 04_wmma 05_mma_split_kv 16_max_free --seq-len", text)
        self.assertIn("/next 16_max_free.next --seq-len", text)
        self.assertIn("bench --library build/cuda/lib/libfa_bench.so 16_max_free 16_max_free.next --peers fa2,cudnn,fa3,", text)
        self.assertIn("--gtest_filter=*/05_mma_split_kv*:*/16_max_free_next*:-", text)
        self.assertIn("profile 16_max_free.next --program build/cuda/bin/next", text)
        self.assertIn("build/cuda-timeline/bin/16_max_free.next --batch 1 --heads 66", text)
        self.assertLess(text.index("fa_tests"), text.index("/attention 04_wmma"))
        self.assertIn("gemm --rounds 5", self.commands("--only", "machine"))
        for arguments, said in ((("99",), "no kernel 99"), (("--only", "all"), "no measurement all"), (("05", "--whole"), "name kernels, or")):
            code, text = self.measure(*arguments)
            self.assertEqual((code, said in text), (2, True), text)

    def test_what_is_stale(self):
        ladder = {number: name for number, name in measure.known().items() if number < "17" or not number.isdecimal()}
        with mock.patch.object(measure, "is_stale", lambda record: record["kernel"] == "15_persistent"), \
                mock.patch.object(measure, "known", lambda: ladder):
            text = self.commands()
            self.assertRegex(self.measure("--list")[1], r"\nladder +ladders +01-16 +15 +195\n")
        self.assertIn("/attention 14_softmax_overlap 15_persistent --seq-len", text)
        self.assertNotIn("16_max_free", text)
        self.assertEqual(text.count("--peers fa3 --inputs"), 14)

    def run_fakes(self, *arguments):
        (self.folder / "cuda" / "bin").mkdir(parents=True, exist_ok=True)
        program = self.folder / "cuda" / "bin" / "attention"
        program.write_text(PROGRAM.format(python=sys.executable, root=ROOT, card=BOOK), encoding="utf-8")
        program.chmod(0o755)
        return self.measure("--build", str(self.folder / "cuda"), "--output", str(self.folder / "measured"), "05", *arguments)

    def test_run_and_merge(self):
        code, text = self.run_fakes("--only", "tests,ladders,peers", "--limit", "99999")
        self.assertEqual(code, 1, text)  # fp16 of head_dim 64 fails, and the rest goes on
        self.assertIn("bin/fa_tests is not built", text)
        self.assertIn("ladder fp16_d64: ended with 1", text)
        measured = self.folder / "measured" / BOOK
        self.assertEqual(sorted(path.name for path in measured.iterdir()), ["ladder.jsonl", "log.txt", "machine.txt"])
        self.assertEqual([*read_set(measured / "ladder.jsonl")], ["bf16_d64", "fp16_d128"])
        self.assertIn("Left, about 93 s: ladder bf16_d64, ", self.run_fakes("--only", "ladder", "--limit", "1")[1])

        results = self.folder / "results"
        shutil.copytree(RESULTS, results)
        d64, d128 = "ladder.jsonl#bf16_d64", "ladder.jsonl#fp16_d128"
        other = read_json(f"{measured}/{d64}")
        other["machine"]["driver"] = "999.1"
        other["records"][0]["source"] = "0" * 12
        write_json(f"{measured}/{d64}", other)
        with tarfile.open(self.folder / "measured.tar", "w") as tar:
            tar.add(measured, "measured")
        with mock.patch.object(measure, "RESULTS", results):
            refused = []
            self.assertEqual(len(measure.merge(self.folder / "measured.tar", refused.append)), 1)
            self.assertIn(f"{BOOK}/{d64} has another machine (driver 580, now 999)", " ".join(refused))
        self.assertEqual(read_json(f"{results}/{BOOK}/{d128}")["notes"][-1], "run 2026-12-01T10:00:00Z: driver 580.1")
        before, after = (read_json(f"{folder}/{BOOK}/{d128}")["records"] for folder in (RESULTS, results))
        self.assertEqual([r["kernel"] for r in before], [r["kernel"] for r in after])
        for old, new in zip(before, after):
            again = old["kernel"][:2] in ("04", "05")
            self.assertEqual((new.get("run"), new == old), ("2026-12-01T10:00:00Z", False) if again else (old.get("run"), True))

    def test_a_training(self):
        """In the Python that has PyTorch, with the library that was built; it takes the place of the one before."""
        build, python, results = self.folder / "cuda", self.folder / "python", self.folder / "results"
        for folder in (build / "bin", build / "lib", results / BOOK):
            folder.mkdir(parents=True)
        (build / "bin" / "attention").touch()
        shutil.copy(RESULTS / BOOK / "training.json", results / BOOK)
        python.write_text(TRAINING.format(python=sys.executable, root=ROOT, card=BOOK), encoding="utf-8")
        python.chmod(0o755)
        with mock.patch.dict("os.environ", PYTHON=str(python)), mock.patch.object(measure, "missing_peer", lambda peers: None):
            for library, said in ((None, "lib/libfa.so is not built"), ("libfa.so", f"has what was measured; in a checkout: scripts/fa adopt --from {self.folder}")):
                if library:
                    (build / "lib" / library).touch()
                code, text = self.measure("--build", str(build), "--output", str(self.folder / "measured"), "--only", "training")
                self.assertEqual((code, said in text), (0, True), text)
        with mock.patch.object(measure, "RESULTS", results):
            self.assertEqual(measure.merge(self.folder / "measured", self.fail), [str(results / BOOK / "training.json")])
        brought = read_json(results / BOOK / "training.json")
        self.assertEqual(brought["steps"].pop(), {**read_json(RESULTS / BOOK / "training.json")["steps"].pop(), "by_fa": 2.5})

    def test_kernels_without_a_number(self):
        """One of kernels/beyond is named, found stale, and brought into a file that is not there yet."""
        bench = "fa bench --library {library} {kernels} --peers {peers} {options} --json {json}"
        entries = measure.manifest(self.write("own.toml", (
            f'[own]\ngroup = "beyond"\ncommand = "{bench}"\nkernels = "causal"\npeers = ["fa2"]\nfile = "own.jsonl#{{each}}"\n'
            'each.d128 = "--mask causal --seq-len 1024"\nseconds = 60\n')))
        full = cuda_record("beyond/causal", source=todays_source({"kernel": "beyond/causal"}))
        record, gone = beyond(full, mask="causal"), {"kernel": "beyond/gone", "source": "0"}
        error = {**record["error"], "rel_unrounded": 0.185, "rmse": 0.2}
        library = {"name": "fa3-fwd", "version": "0.0.3", "implementation": "FlashAttention-3 in FP8"}
        cut, off = ({**not_passed(beyond(cuda_record(name), **fp8, library=library, error=error), "wrong", "head 0 is off"), "kernel": name}
                    for name, fp8 in (("peer/fa3_fp8", {"mask": "causal", "fp8": "head"}), ("peer/fa2", {"mask": "causal"})))
        for each in (cut, off):  # which kernels alone have
            for field in ("registers", "shared_memory_bytes", "spill_bytes", "workspace_bytes"):
                del each[field]
        data = {**cuda_results(), "records": [record, cut, off]}
        results = self.folder / "results"
        (self.folder / "measured").mkdir()
        results.mkdir()
        write_set(self.folder / "measured" / "own.jsonl", {"d128": data})
        with mock.patch.object(measure, "manifest", lambda: entries):
            for arguments in ((), ("causal",), ("beyond/causal", "15"), ("--whole",)):
                self.assertIn("libfa_bench.so beyond/causal --peers fa2 --mask causal --seq-len 1024 --json", self.commands(*arguments))
            self.assertIn("Nothing is to be measured", self.commands("split_keys"))
            with mock.patch.object(measure, "RESULTS", results):
                self.assertEqual(measure.merge(self.folder / "measured", self.fail), [str(results / BOOK / "own.jsonl")])
            self.assertEqual(read_set(results / BOOK / "own.jsonl")["d128"]["records"], [record, cut],
                             "what FP8 costs a library is a finding")
            for source, said in ((record["source"], "Nothing"), ("0" * 12, "beyond/causal --peers")):
                there = [(f"{RESULTS}/{BOOK}/own.jsonl#d128", each) for each in ({**record, "source": source}, gone)]
                with mock.patch.object(measure, "kept_records", lambda there=there: there[:1]):
                    measure.records_by_file.cache_clear()
                    self.assertIn(said, self.commands())
            with mock.patch.object(release, "kept_records", lambda: there):
                said = f"bench/results/{BOOK}/own.jsonl has kernels that "
                self.assertEqual([s for s in release.obstacles() if said in s],
                                 [f"{said}are not there any more: beyond/gone", f"{said}have changed since: beyond/causal"])
        measure.records_by_file.cache_clear()

    def test_libraries_that_pythonpath_names(self):
        (self.folder / "torch.py").write_text("")
        (self.folder / "fa3_fwd_interface.py").write_text("def flash_attn_func(q, k, v):\n    return q\n")
        for path, sentence in ((str(self.folder), None), ("", "this Python cannot import torch")):
            with mock.patch.dict("os.environ", {"PYTHONPATH": path, "PYTHON": "/usr/bin/python3"}):
                for peer in ("fa3", "torch"):
                    self.assertEqual(measure.missing_peer.__wrapped__((peer,)), sentence)

    def test_what_is_refused(self):
        name, card = "bf16_d128.json", RESULTS / BOOK
        old, new = read_json(card / name), read_json(card / name)
        new["records"] = [r for r in new["records"] if r["kernel"] in ("15_persistent", "peer/fa3")]
        new["records"][0]["ratio"].pop("peer/cudnn")
        for record in new["records"]:
            record.update({"source": measure.todays_source(record)} if "source" in record else {})
        self.assertIn("15_persistent has no ratio to peer/cudnn", " ".join(measure.merged(old, new, name)[1]))
        for record in new["records"]:
            record.update({"source": "0" * 12} if "source" in record else {})
        self.assertEqual(measure.merged(old, new, name), (None, [f"{name}: 15_persistent is of another source than today's"]))
        profile = read_json(card / "profile.json")
        again = [{**launch, "metrics": {}} for launch in profile["launches"] if launch["kernel"] == "01_naive"]
        again = {**profile, "launches": again}
        launches = measure.merged(profile, again, "profile.json")[0]["launches"]
        self.assertEqual([not launch["metrics"] for launch in launches], [True] * 3 + [False] * (len(launches) - 3))
        name = "ladder.jsonl#bf16_d64"
        ladder = read_json(f"{card}/{name}")
        for record in ladder["records"]:
            record.update({"source": measure.todays_source(record)} if "source" in record else {})
        adopted = {**ladder, "records": [{**r, "kernel": "16_max_free.next"} for r in ladder["records"] if r["kernel"] == "16_max_free"]}
        # What was measured in kernels/next is kept once it is in its place.
        self.assertEqual(measure.merged(ladder, adopted, name, adopt=True)[0]["records"], ladder["records"])
        self.assertIn("16_max_free.next is of another source than", measure.merged(ladder, adopted, name)[1][0])
        timeline = read_set(card / "timelines.jsonl")["15"]
        self.assertEqual(measure.merged(timeline, timeline, "timelines.jsonl#16"), (timeline, []))


# ---- scripts/fa adopt -----------------------------------------------------------------------------------------------------

def changes_of_05_and_15(root):
    """No padding in 05, and another bound in 15: the first changes counters and solutions, the second a line that chapter 16 shows."""
    for name, old, new in (("05_mma_split_kv", r"kPad = \d+;", "kPad = 0;"), ("15_persistent", r"kMaxP = [\d.]+f;", "kMaxP = 640.0f;")):
        path = root / "kernels" / f"{name}.cu"
        text, changed = re.subn(old, new, path.read_text(encoding="utf-8"))
        assert changed == 1, name
        path.write_text(text, encoding="utf-8")


class InACopy(ScriptTest):
    def copy(self):
        root = self.folder / "copy"
        copy_repository(root)
        for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "before"]):
            subprocess.run(["git", "-C", root, *command], check=True, timeout=60)
        return root


class Adopt(InACopy):
    def test_what_has_changed(self):
        root = self.copy()
        self.assertIn("No kernel has changed", self.run_script(root / "scripts" / "fa", "adopt").stdout)
        changes_of_05_and_15(root)
        done = self.run_script("python3", "-c", "from fa_tools.measuring import adopt\nfor k in ('05_mma_split_kv', '06_mma_split_q', "
                               "'15_persistent'): print(adopt.has_changed(k))", env={"PYTHONPATH": str(root / "scripts")})
        self.assertEqual(done.stdout.split(), ["True", "False", "True"], done.stderr)

    def test_lines_that_name_what_is_gone(self):
        root, kernels = self.copy(), {"16_max_free": ("kWide",), "beyond/causal": ("kQueryTiles",), "beyond/split_keys": ("kFan",)}
        for kernel, gone in kernels.items():
            for path in [root / "kernels" / f"{kernel}.cu", *root.glob("kernels/1[7-9]_*.cu")]:  # of no later kernel either
                path.write_text(re.sub("|".join(gone), "ptx::other", path.read_text(encoding="utf-8")), encoding="utf-8")
        done = self.run_script("python3", "-c", "import sys\nfrom fa_tools.measuring import adopt\nwork = adopt.Work('/dev/null')\n"
                               "for kernel in sys.argv[1:]: adopt.names(kernel, work)\nprint(*work.left, sep='\\n')", *kernels,
                               env={"PYTHONPATH": str(root / "scripts")})
        found = re.findall(r"(?m)^(\S+?):\d+: names (\w+), which kernels/(.*)\.cu no longer has$", done.stdout)
        self.assertLessEqual({("docs/16_max_free.md", "kWide", "16_max_free"), ("tests/broken/bugs.toml", "kWide", "16_max_free"),
                              ("tests/broken/bugs.toml", "kQueryTiles", "beyond/causal")}, set(found), done.stderr)
        self.assertEqual({(kernel, name) for _, name, kernel in found}, {(kernel, gone[0]) for kernel, gone in kernels.items()})

    def test_options_of_committed_counters(self):
        for file, data in adopt.committed_counts():
            options = adopt.options_of(data["command"])
            self.assertTrue(options == [] or options[0].startswith("--"), file)
            self.assertNotIn("--json", options)

    def test_a_place_that_the_kernel_has_already(self):
        places = [["-a", "+b"], [" c", "-d", "+e"]]
        self.assertEqual(patches.changed("a\nc\nd", places), "b\nc\ne")
        self.assertEqual(patches.changed("b\nc\nd", places), "b\nc\ne")
        for text, sentence in (("b\nc\ne", "^is in the kernel already$"), ("x\nc\nd", "^expects 'a' once in the kernel, but it is there 0 times$")):
            with self.assertRaisesRegex(Refused, sentence):
                patches.changed(text, places)

    def test_a_line_of_a_diff_that_has_changed(self):
        changed = ["-constexpr float kMaxP = 512.0f;", "+constexpr float kMaxP = 256.0f;", "-int other;"]
        self.assertEqual(sync.nearest("-constexpr float kMaxP = 256.0f;  // most", changed), changed[0])
        self.assertIsNone(sync.nearest("-float rescale;", changed))

    def test_what_is_built(self):
        """What the steps run, with the programs whose output chapters show, and nothing for a step that runs none."""
        names = ["05_mma_split_kv", "beyond/causal"]
        self.assertLessEqual({"05_mma_split_kv", "causal", "broken", "fa_tests", "fa_checked_beyond_tests", "meet_checked"},
                             set(adopt.targets(names, adopt.STEPS)))
        self.assertEqual(adopt.targets(names[:1], ["numbers"]), ["fa_tests", "fa_checked_tests"])
        called = []

        def call(work, command, **options):
            called.append(command[:2])
            return subprocess.CompletedProcess(command, 0, "", "")
        for steps, first in ((["names"], []), (["counters", "tasks"], [["cmake", "--build"]])):
            with mock.patch.object(adopt.Work, "call", call), contextlib.redirect_stdout(io.StringIO()):
                adopt.main([word for step in steps for word in ("--only", step)] + ["05"])
            self.assertEqual([command for command in called if command[0] == "cmake" and command[1] == "--build"], first)

    def test_what_shows_measured_times(self):
        called = []

        def call(work, command, **options):
            called.append(command)
            return subprocess.CompletedProcess(command, 1, "", "")
        with mock.patch.object(adopt.Work, "call", call), mock.patch.object(measure, "merge", return_value=[]), contextlib.redirect_stdout(io.StringIO()):
            adopt.main(["--from", "measured.tar"])
        (of_outputs,) = [command for command in called if command[:2] == ["scripts/fa", "outputs"]]
        self.assertLessEqual({tools.NOTEBOOK, ROOT / "docs" / "emulator" / "counts.md"}, set(of_outputs))

    def test_refused(self):
        self.assert_one_sentence(self.run_script(SCRIPTS / "fa", "adopt", "99"), "there is no kernel 99; they are 01, 02, ", ", 16, ", ", causal, ")


def of_an_h100(path, data):
    """A file of the book's card as if an H100 had measured it today: another name, SMs, driver, and half the bandwidth of a copy."""
    of = with_solution(path, {"records": [{}]})["records"][0]
    def changed(value, kernel=None):
        if isinstance(value, list):
            return [changed(each, kernel) for each in value]
        if not isinstance(value, dict):
            return value
        kernel = value.get("kernel", kernel)
        found = {key: changed(each, kernel) for key, each in value.items()}
        if "source" in found:
            found["source"] = todays_source({"kernel": kernel, **of}) or found["source"]
        if "gbytes_per_s" in found:
            found["gbytes_per_s"] /= 2
        new = {"gpu": "NVIDIA H100 80GB HBM3", "sm_count": 114, "driver": "999.1"}
        return found | {key: each for key, each in new.items() if key in found}

    return changed(data)


class AnotherGpu(InACopy):
    def test_a_set_that_is_brought_in(self):
        """Everything that the book's card has, of an H100 and without one file: it founds a folder, is no figure of the book, and every
        tool takes it."""
        root, card = self.copy(), self.folder / "measured" / "any name"
        card.mkdir(parents=True)
        shutil.rmtree(root / "bench" / "results" / "h100", ignore_errors=True)
        for path in (RESULTS / BOOK).glob("*.json*"):
            if path.name in ("experiments.json", "gemm.json"):
                continue
            if path.suffix == ".jsonl":
                write_set(card / path.name, {name: of_an_h100(f"{path}#{name}", data) for name, data in read_set(path).items()})
            else:
                write_json(card / path.name, of_an_h100(path, read_json(path)))

        def fa(*words, code=(0,)):
            done = self.run_script(root / "scripts" / "fa", *words, cwd=root, timeout=300)
            self.assertIn(done.returncode, code, done.stdout + done.stderr)
            return done.stdout + done.stderr

        page = root / "docs" / "page.md"
        page.write_text("1.00<!--= bf16_d128 01 @4096 --> 0.00<!--= h100:bf16_d128 01 @4096 --> 0<!--= beyond/decode_gqa copy_percent kv_len=4096 "
                        "beyond/split_keys --> 0<!--= h100:beyond/decode_gqa copy_percent kv_len=4096 beyond/split_keys -->\n", encoding="utf-8")
        self.assertIn("(h100:bf16_d128 01 @4096)", fa("sync", "--check", "docs/page.md", code=(1,)))
        merge = f"from fa_tools.measuring import measure; print(*measure.merge({str(card.parent)!r}), sep='\\n')"
        done = self.run_script("python3", "-c", merge, env={"PYTHONPATH": str(root / "scripts")}, code=0)
        brought = sorted(path.name for path in card.iterdir())
        self.assertEqual((done.stdout.split(), done.stderr), ([f"bench/results/h100/{name}" for name in brought], ""))
        lacking = fa("measure", "--dry-run", "--machine", "H100")
        self.assertEqual(("/gemm --rounds 5" in lacking, "/rates --json" in lacking), (True, False))
        self.assertRegex(fa("release"), r"bench/results/h100 lacks (\w+, )*gemm\n")
        fa("sync", "docs/page.md", "docs/results.md")
        ours, theirs, share, twice = map(float, re.findall(r"([\d.]+)†?<!--", page.read_text(encoding="utf-8")))
        self.assertEqual(ours, theirs)
        self.assertAlmostEqual(2 * share, twice, delta=1)
        results = (root / "docs" / "results.md").read_text(encoding="utf-8")
        self.assertEqual(set(re.findall(r"^\| `16_max_free` \| ([A-Z]\w+) \|", results, re.MULTILINE)), {BOOK.upper(), "H100"})
        self.assertIn("NVIDIA H100 80GB HBM3: driver 999.1, 2", results)
        self.assertIn(": valid, ", fa("validate", "bench/results/h100/bf16_d128.json"))
        self.assertIn("NVIDIA H100 80GB HBM3, 2", fa("compare", f"bench/results/{BOOK}/bf16_d128.json", "bench/results/h100/bf16_d128.json"))
        self.assertIn("Emulator over NVIDIA H100 80GB HBM3; ", fa("agree", "--machine", "H100", code=(0, 1)))  # 1: counts of a stale kernel
        self.assertNotIn("no committed times", fa("bounds", "--machine", "h100"))
        self.assertEqual(fa("bounds"), self.run_script(SCRIPTS / "fa", "bounds").stdout)


class RealChange(InACopy):
    def test_it(self):
        """At most these files differ, and what is left for a person is known."""
        root = self.copy()
        changes_of_05_and_15(root)
        done = subprocess.run([root / "scripts" / "fa", "adopt"], capture_output=True, text=True, timeout=3000, check=False)
        left = done.stdout.partition("Left for you")[2].splitlines()[1:]
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual([line.partition(": ")[2] for line in left], ["the solution 05_no_padding is in the kernel already"])
        differs = self.run_script("git", "-C", root, "diff", "--name-only").stdout.split()
        expected = ("kernels/05_mma_split_kv.cu", "kernels/15_persistent.cu", "bench/results/emulator/",
                    "docs/", "README.md")  # which says how many bugs give right numbers
        self.assertEqual([name for name in differs if not name.startswith(expected)], [])
        counts = read_json(f"{root}/bench/results/emulator/counts.jsonl#d128_n256")
        at = {r["kernel"][:2]: r["counters"] for r in counts["records"]}
        self.assertGreater(at["05"]["shared_wavefronts"], at["05"]["shared_wavefronts_ideal"], "without padding rows collide")


if not given("--whole"):
    del RealChange


if __name__ == "__main__":
    main()
