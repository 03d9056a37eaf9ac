"""Tests of scripts/fa try: what the tasks say of themselves, the command, and the transcript of docs/tasks.md. That each
task can be solved and tells its wrong answers apart is in the tests tasks (some) and tasks.all, which compile them. With
--whole (label full) also what compiles for long."""

import csv
import json
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from support import ROOT, ScriptTest, given

from tool_test import copy_repository

from fa_tools.documents.links import problem_with
from fa_tools.for_readers import emulate
from fa_tools.for_readers.examiner import PATTERNS, plain
from fa_tools.for_readers.tasks import BEGIN, END, read_tasks

TASKS = read_tasks()
KERNELS = [task for task in TASKS.values() if not task.bug]
DOCUMENT = ROOT / "docs" / "tasks.md"
COURSE = ROOT / "docs" / "course.md"


def built():
    """Whether programs can be made without building the emulator first."""
    return any((ROOT / "build" / preset / "bin" / name).is_file()
               for preset, name in (("emulator-checked", PATTERNS[1]), ("emulator", f"{PATTERNS[1]}_checked")))


class Said(unittest.TestCase):
    def test_there_are_enough(self):
        self.assertGreaterEqual(len(KERNELS), 24)
        self.assertEqual(sum(task.bug is not None for task in TASKS.values()), 23)
        chapters = {task.number for task in KERNELS if task.is_kernel}
        self.assertEqual(chapters, {*(f"{number:02}" for number in range(1, 17)), "beyond"})
        self.assertGreaterEqual(sum(not task.is_kernel for task in KERNELS), 5)

    def test_a_kernel_names_its_tasks(self):
        for kernel, names in (("5", ["05_ldmatrix", "05_row_max"]), ("causal", ["beyond_mask", "beyond_step", "beyond_window", "beyond_cap"]),
                              ("beyond/split_keys", ["beyond_pieces", "beyond_parts"]), ("tma_without_wgmma", ["beyond_addresses"]),
                              ("fp8", ["beyond_key_order"]), ("fp8_plain", ["beyond_rotation"]), ("backward_plain", ["beyond_gradients"]), ("swizzle", []), ("one_wgmma", [])):
            self.assertEqual([task.name for task in TASKS.values() if task.is_of(kernel)], names)

    def test_a_mistake_is_known_by_whatever_name_its_kernel_has(self):
        said = [plain({"verdict": "stops", "reason": f"{name}, CTA ({cta},0,0): data race on byte 7 of shared memory"}, TASKS["beyond_step"])
                for cta, name in enumerate(("05_mma", "beyond/fp8", "beyond_key_order_6", "backward_plain"))]
        self.assertEqual(said, said[:1] * 4)

    def test_each_says_what_it_needs_to(self):
        for task in TASKS.values():
            with self.subTest(task.name):
                self.assertRegex(task.name, r"^(\d\d|beyond|case|warm)_\w+$")
                self.assertLessEqual(len(task.name), 21)
                self.assertLessEqual(len(task.title), 54)
                self.assertTrue(all(len(hint) > 30 for hint in task.hints))
                for wrong in task.wrong:
                    self.assertEqual({*wrong, "replacement"}, {"what", "text", "replacement"})  # without: text is left out
                    self.assertRegex(wrong["what"], r"^\w.*\.\)?$")
                self.assertEqual(len({wrong["what"] for wrong in task.wrong}), len(task.wrong))
                self.assertIsNone(problem_with(DOCUMENT, task.read))

    def test_each_takes_something_out_and_no_mark_is_left(self):
        for task in TASKS.values():
            with self.subTest(task.name):
                start, reference = task.start(), task.reference()
                self.assertNotEqual(start, reference)
                self.assertNotRegex(start + reference, r"(?m)^ *// \[/?[a-z-]+\]$")
                self.assertEqual(start.count(f"// {BEGIN}"), len(task.holes))
                self.assertLessEqual(max(map(len, start.split("\n"))), 100)
                for wrong in task.wrong:
                    self.assertNotEqual(task.wrong_answer(wrong), reference)

    def test_the_course_asks_for_what_there_is_and_what_has_been_read(self):
        text = COURSE.read_text()
        quizzes = set(re.findall(r"^## (\d\d): ", (ROOT / "docs/checkpoints.md").read_text(), re.M))
        for name in re.findall(r"`((?:\d\d|warm|case)_\w+)`", text):
            self.assertTrue(name in TASKS or list((ROOT / "kernels").glob(f"{name}.cu")), f"there is no {name}")
        for number, letters in re.findall(r"scripts/fa quiz (\d\d) --answers (\w+)", text):
            done = subprocess.run([ROOT / "scripts/fa", "quiz", number, "--answers", letters], capture_output=True, text=True,
                                  timeout=60)
            self.assertIn(done.returncode, (0, 1), done.stderr)
        sessions = [[cell.strip() for cell in row.split("|")[1:-1]] for row in re.findall(r"^\| \d+ \| \[.*", text, re.M)]
        self.assertEqual([int(cells[0]) for cells in sessions], list(range(1, 13)))
        read = set()
        for _, chapters, guess, write, find, quiz in sessions:
            here = re.findall(r"\[(\d\d)\]\(\1_\w+\.md\)", chapters)
            read.update(here)
            self.assertTrue(guess)
            self.assertEqual(quiz.split(", "), here)
            self.assertLessEqual(set(here), quizzes)
            names, cases = (re.findall(r"`(\w+)`", cell) for cell in (write, find))
            self.assertTrue(names and all(not TASKS[name].bug for name in names), write)
            self.assertTrue(find == "–" or cases and all(TASKS[name].bug for name in cases), find)
            for task in (TASKS[name] for name in names + cases):
                self.assertTrue(task.number is None or task.number in read, f"{task.name} before its chapter")
            in_class = re.findall(r"`(\w+)`", write.partition("at home")[0]) + cases
            self.assertLessEqual(sum(TASKS[name].minutes for name in in_class), 55, in_class)
        self.assertEqual(read, {f"{number:02}" for number in range(17)})


STEP = re.compile(r"^<!-- fills: (\w+) -->\n```cuda\n(.*?)^```$|^```text\n\$ (scripts/fa try .*?)\n(.*?)^```$", re.M | re.S)


def replayed(text, copy):
    """docs/tasks.md done to the letter in a checkout of its own, whose build is this one's: with what the commands print."""
    copy_repository(copy)
    (copy / "build").symlink_to(ROOT / "build")

    def step(match):
        task, code, command, _ = match.groups()
        if task:
            fill(copy / "try" / f"{task}.cu", code)
            return match[0]
        done = subprocess.run(command.split(), cwd=copy, capture_output=True, text=True, timeout=280)
        return f"```text\n$ {command}\n{done.stdout}```"

    return STEP.sub(step, text)


def fill(path, code):
    """Puts the code where the reader's would be, below the comment."""
    lines = path.read_text().split("\n")
    first = next(i for i, line in enumerate(lines) if f"// {BEGIN}" in line)
    last = next(i for i, line in enumerate(lines) if f"// {END}" in line)
    comments = [line for line in lines[first:last] if line.lstrip().startswith("//")]
    path.write_text("\n".join(lines[:first] + comments + code.rstrip("\n").split("\n") + lines[last:]))


class Patterns(ScriptTest):
    def links(self, *options, suffix=""):
        """Whether each of them is linked with what Tensor Cores and copies need, in a build with these options."""
        subprocess.run(["cmake", "-G", "Ninja", "-S", str(ROOT), "-B", str(self.folder), "-DFA_TESTS=OFF", *options],
                       check=True, capture_output=True, timeout=300)
        return ["libfa_units.a" in self.run_script("ninja", "-C", self.folder, "-t", "commands", f"{name}{suffix}", code=0).stdout.splitlines()[-1]
                for name in PATTERNS]

    def test_in_the_build_of_run(self):
        self.assertEqual(self.links("-DFA_CHECKED=ON"), [False, True])  # a program links no more than its kernel needs

    def test_in_the_build_of_the_tests(self):
        self.assertEqual(self.links(suffix="_checked"), [True, True])


class AttemptsWithoutEnd(ScriptTest):
    def test_what_compiles_for_ever_is_ended(self):
        path = self.write("slow.cpp", "template <int D, int N> struct F { static constexpr long v = F<D - 1, 2 * N>::v + F<D - 1, 2 * N + 1>::v; };\n"
                                      "template <int N> struct F<0, N> { static constexpr long v = N; };\nlong x = F<26, 1>::v;\n")
        with self.assertRaisesRegex(emulate.CompileError, "^error: the compiler took too long or too much memory: is there a template"):
            emulate.step([*emulate.at_most(1), "c++", "-c", str(path), "-o", str(self.folder / "slow.o")], self.folder)


class Compiling(ScriptTest):
    def fa(self, *arguments, code=0):
        done = self.run_script(ROOT / "scripts/fa", "try", "--folder", self.folder, *arguments, code=code, cwd=ROOT, timeout=280)
        return done.stdout + done.stderr


@unittest.skipUnless(built(), "the checked build of the emulator is not here")
class Command(Compiling):
    def test_a_case_is_the_bug_and_its_repair_solves_it(self):
        task = next(task for task in TASKS.values() if task.bug)
        self.assertIn("Find the line", self.fa(task.name))
        (self.folder / f"{task.name}.cu").write_text(task.start())
        verdict = json.loads(self.fa(task.name, "--json", code=1))
        self.assertEqual((verdict["solved"], verdict["failing"], verdict["attempts"]), (False, "no attempt", 0))
        self.assertRegex(self.fa(task.name, "--solution"), r"(?m)^\+[^+]")
        (self.folder / f"{task.name}.cu").write_text(task.reference())
        self.assertIn(": solved.", self.fa(task.name))

    def test_grading_a_folder(self):
        task = TASKS["02_softmax"]
        (self.folder / "02_softmax.cu").write_text(task.reference())
        (self.folder / "01_softmax.cu").write_bytes(b"\xfc is no code, and no UTF-8")
        (self.folder / "2_softmax.cu").write_text("")
        before = {path: path.read_bytes() for path in self.folder.iterdir()}
        said = self.fa("--grade", code=1)
        self.assertIn("  01_softmax            not solved: does not compile\n  02_softmax            solved\n1 of 2 solved\n", said)
        self.assertIn("2_softmax.cu is not graded: there is no task of this name\n", said)
        self.assertEqual(said.count("is not graded"), 1)
        self.assertIn("  02_softmax            solved\n1 of 1 solved\n", self.fa("--grade", "02_softmax"))
        line = json.loads(re.search(r"^\{.*", self.fa("--grade", "01_softmax", "--json", code=1), re.M)[0])
        self.assertEqual((line["failing"], line["attempts"], line["solution_seen"]), ("compile", 0, False))
        self.assertIn("error: ", line["message"])
        for field in line:
            self.assertTrue(field == "task" or f"`{field}`" in COURSE.read_text(), field)
        self.assertIn("holds no file of 03_scores", self.fa("--grade", "03_scores", code=2))
        self.assertIn("  02_softmax            solved\n  03_scores             not solved: no file\n",
                      self.fa("--grade", "03_scores", "02_softmax", code=1))
        self.assertEqual({path: path.read_bytes() for path in self.folder.iterdir()}, before)

    def test_grading_a_class(self):
        task = TASKS["warm_softmax_row"]
        of = {"alice/warm_softmax_row.cu": task.reference(), "bob/try/warm_softmax_row.cu": "int main() { return 1 }",
              "carol/warm_softmax_row.cu": f"// {task.name}: your copy of a\n//   b\n{task.start()}".replace("\n", "\r\n"),
              "dave_warm_softmax_row.cu": "int main() { return 1; }", "erin/notes.txt": "", "frank/warm_softmax_row.cu": task.reference(),
              "frank/progress.json": "{", "a.zip": ""}
        for name, text in of.items():
            self.write(name, text)
        paths = [self.folder / name for name in ("alice", "bob", "carol", "dave_warm_softmax_row.cu", "erin", "frank", "gone", "a.zip")]
        done = self.run_script(ROOT / "scripts/fa", "try", "--grade", "--csv", self.folder / "class.csv", "--folder", *paths, code=2, timeout=280,
                               env={"FA_BUSY_AFTER": "0.001"})
        self.assertEqual([line.split() for line in done.stdout.splitlines()], [line.split() for line in f"""student solved not solved
alice 1 of 1
bob 0 of 1 {task.name}: does not compile
carol 0 of 1 {task.name}: no attempt
dave 0 of 1 {task.name}: wrong
erin 0 of 1 {task.name}: no file
frank 1 of 1
gone 0 of 1 nothing to be read
a.zip 0 of 1 nothing to be read
2 of 8 have solved everything""".splitlines()])
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)
        for said in ("bob, 2 of 8 ...", "frank/progress.json cannot be read", "there is no folder", "a.zip is neither a folder nor a .cu file"):
            self.assertEqual(done.stderr.count(said), 1, done.stderr)
        with open(self.folder / "class.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([(row["student"], row["failing"], row["points"]) for row in rows][:4],
                         [("alice", "", "4"), ("bob", "compile", "0"), ("carol", "no attempt", "0"), ("dave", "ordinary", "0")])
        lines = [json.loads(line) for line in re.findall(r"^\{.*", self.fa("--grade", "--folder", *paths[:2], "--json", code=1), re.M)]
        self.assertEqual([(line["student"], line["solved"]) for line in lines], [("alice", True), ("bob", False)])

    def test_results_for_gradescope(self):
        task = TASKS["warm_softmax_row"]
        self.write("warm_softmax_row.cu", task.reference())
        self.write("progress.json", '{"warm_softmax_row": {"revealed": true}}')
        self.fa("--grade", task.name, "case_01", "--gradescope", self.folder / "results.json", code=1)
        results = json.loads((self.folder / "results.json").read_text())
        self.assertEqual([(test["score"], test["max_score"], test["status"]) for test in results["tests"]], [(3, 4, "passed"), (0, 3, "failed")])
        self.assertIn(": solved.", results["tests"][0]["output"])
        self.assertEqual(results["tests"][1]["output"], "There is no file case_01.cu.")
        self.assertEqual({*results["tests"][0]}, {"name", "number", "score", "max_score", "status", "output"})

    def test_watching_a_file(self):
        task = TASKS["warm_softmax_row"]
        self.fa(task.name)
        path = self.folder / f"{task.name}.cu"

        def said(process, what):
            return next(line for line in process.stderr if what in line)

        for end in ("solved", "stopped"):
            command = [ROOT / "scripts/fa", "try", "--watch", "--folder", self.folder, task.name]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                said(process, "Waiting for")
                path.write_text(task.reference() if end == "solved" else "int main() { return 1; }")
                if end == "stopped":
                    said(process, "Waiting for")
                    process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=280)
            self.assertEqual(process.returncode, 0 if end == "solved" else 1, err)
            self.assertNotIn("Traceback", err)
            self.assertIn(": solved." if end == "solved" else "Not solved yet", out)
            path.write_text(task.start())

    def test_what_it_refuses(self):
        for arguments, sentence in ((["02_softmaxx"], "the nearest are 02_softmax"), (["99"], "there is no task '99'"),
                                    (["--grade"], "holds no file of a task"), (["01", "02"], "name one task"),
                                    (["02_softmax", "--json"], "begins the task"), (["02_softmax", "--csv", "x"], "--csv goes with --grade"),
                                    (["--grade", "--watch"], "looks once"), (["--grade", "--gradescope", "x"], "the tasks that you name"),
                                    (["--grade", "--csv", "nowhere/x"], "cannot write into the folder"),
                                    (["--hnt"], "--help shows what there is")):
            with self.subTest(arguments):
                message = self.fa(*arguments, code=2)
                self.assertRegex(message, r"^error: [^\n]+\n$")
                self.assertIn(sentence, message)
        for text in ("{", "[]", '{"02_softmax": 3}'):
            (self.folder / "progress.json").write_text(text)
            self.assertIn("remove it to begin anew", self.fa("--list", code=2))

    def test_a_file_without_a_kernel_and_one_with_a_main(self):
        self.fa("02_softmax")
        path = self.folder / "02_softmax.cu"
        begun = path.read_text()
        path.write_text("")
        self.assertIn("the file has no kernel", self.fa("02_softmax", code=1))
        path.write_text(begun + "int main() {}\n")
        self.assertIn("multiple definition of `main'", self.fa("02_softmax", code=1))

    def test_the_transcript_of_the_document(self):
        text = DOCUMENT.read_text()
        self.assertGreaterEqual(len(STEP.findall(text)), 5)
        self.assertEqual(replayed(text, self.folder / "checkout"), text,
                         "tests/scripts/test_tasks.py --write brings docs/tasks.md up to date")


@unittest.skipUnless(built(), "the checked build of the emulator is not here")
class WholeCommand(Compiling):
    def test_a_task_from_beginning_to_end(self):
        task = TASKS["02_softmax"]
        self.assertIn("has a hole", self.fa("02_softmax"))
        path = self.folder / "02_softmax.cu"
        self.assertIn("as it was given to you, which is no attempt", self.fa("02_softmax", code=1))
        for number in (1, 2, 3, 3):
            self.assertEqual(len(re.findall(r"^\d\. ", self.fa("02_softmax", "--hint"), re.M)), number)
        fill(path, "this is no code")
        self.assertRegex(self.fa("02_softmax", code=1), r"does not compile:\n\n +02_softmax.cu:\d+:\d+: error: ")
        fill(path, "\n".join(task.answer()[0]).replace("acc_o[row][c] *= rescale", "acc_o[row][c] *= 1"))
        verdict = json.loads(self.fa("02_softmax", "--json", code=1))
        self.assertEqual((verdict["solved"], verdict["failing"], verdict["attempts"]), (False, "ordinary", 2))
        self.assertIn("O is not rescaled", verdict["mistake"])
        self.assertIn("expf(row_max[row] - new_max)", self.fa("02_softmax", "--solution"))
        self.assertIn("wrong", self.fa("02_softmax", "--", "--seq-len", "128", code=1))
        fill(path, "\n".join(task.answer()[0]))
        self.assertRegex(self.fa("02_softmax"), r"\n1.00 shared wavefronts per ideal one, no race, error 1\.\de-03: solved\.\n")
        self.fa("02_softmax", "--solution")  # for the second time, of a task that is solved now
        self.assertRegex(self.fa("--list"), r"02_softmax +The online softmax.* solved, after seeing the solution\n")
        for _ in range(2):  # the second one must not put the fresh file in the place of the first one's
            self.fa("02_softmax", "--reset")
            self.assertTrue(json.loads((self.folder / "progress.json").read_text())["02_softmax"]["revealed"])
            self.assertIn("expf(row_max[row]", (self.folder / "02_softmax.cu.old").read_text())
        self.assertNotIn("expf(row_max[row]", path.read_text())
        self.assertIn("01_coalescing: ", self.fa("1"))

    def test_a_file_that_never_ends_is_ended(self):
        self.fa("02_softmax")
        fill(self.folder / "02_softmax.cu", "while (row_max[0] < 1) __syncwarp();")
        self.assertEqual(json.loads(self.fa("02_softmax", "--json", code=1))["failing"], "stops")

    def test_a_program_that_launches_nothing(self):
        self.fa("WARM_HISTOGRAM")
        (self.folder / "warm_histogram.cu").write_text("int main() {}\n")
        self.assertIn("has not launched histogram_copies", self.fa("warm_histogram", code=1))


if not given("--whole"):
    del WholeCommand


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        with tempfile.TemporaryDirectory() as folder:
            DOCUMENT.write_text(replayed(DOCUMENT.read_text(), Path(folder) / "checkout"))
    else:
        unittest.main()
