"""The search for kernel 10's tile sizes: its rules, the search itself with a stand-in for the GPU, its file, the header."""

import json
import re
import shutil
import statistics
import sys

from support import CUDA, ROOT, SCRIPTS, ScriptTest, main

from fa_tools import tune as autotune
from fa_tools import tuning
from fa_tools.tune import Choice, Refused

FILES = sorted((ROOT / "bench" / "results" / "tuning").glob("*.json"))
BEST = Choice(4, 2, 32, 3, 2, False, False)
SMALL = {"warps": (4,), "row_tiles": (1, 2), "ctas": (1, 2), "q_in_registers": (False,), "q_in_v": (False,)}

# In place of nvcc: the program that it makes knows a speed for every choice.
NVCC = """#!%(python)s
import os, re, sys
arguments = sys.argv[1:]
if "--version" in arguments:
    sys.exit(print("Cuda compilation tools, release 13.0, V13.0.88"))
out = arguments[arguments.index("-o") + 1]
choice = [v.strip() for v in re.search("FA_TUNING (.*)", open(out + ".cu").read())[1].split(",")]
if choice[:5] == ["4", "2", "64", "2", "1"]:
    sys.exit("kernel.cu(7): error: this choice is not liked")
spills = 300 if choice[2] == "128" else 0
print(f"ptxas info : Compiling entry function 'f' for 'sm_90a'\\n 8 bytes stack frame, {spills} bytes spill stores, "
      f"{spills} bytes spill loads\\nptxas info : Used 128 registers, used 1 barriers")
open(out, "w").write(f"#!%(python)s\\nchoice = {choice}\\n" + open("%(program)s").read())
os.chmod(out, 0o755)
"""

PROGRAM = """
import json, os, signal, sys
arguments = sys.argv[1:]
value = lambda name: arguments[arguments.index("--" + name) + 1]
open("%(log)s", "a").write(" ".join([",".join(choice), *arguments]) + "\\n")
if os.path.exists("%(stop)s") and value("warmup") == "8":
    os.kill(os.getppid(), signal.SIGINT)
records = []
for n in map(int, value("seq-len").split(",")):
    rows, block_n, stages, ctas = (int(v) for v in choice[1:5])
    tflops = 300 + 10 * stages + 5 * ctas + rows + (60 if choice[:5] == ["4", "2", "32", "3", "2"] else 0)
    ms = 4 * (16384 // n) * 16 * n**2 * int(value("head-dim")) / tflops * 1e-9
    record = {"kernel": "10_x", "seq_len": n, "status": "passed", "time_ms": {"median": ms}, "tflops": tflops}
    if choice[3] == "4" and "increasing_max" in arguments:
        record.update(status="wrong", reason="head 3 is off")
    records.append(record)
if choice[:4] == ["4", "2", "32", "2"]:
    sys.exit("error: CUDA says: illegal address")
json.dump({"schema_version": 1, "machine": json.loads('''%(machine)s'''), "records": records}, open(value("json"), "w"))
"""


class Search(ScriptTest):
    """From the command to the file, with stand-ins for cmake, nvcc and the GPU."""

    def setUp(self):
        super().setUp()
        self.root = self.folder / "checkout"
        for name in ("scripts", "kernels"):
            shutil.copytree(ROOT / name, self.root / name, ignore=shutil.ignore_patterns("__pycache__"))
        (self.root / "common").mkdir()
        shutil.copy(ROOT / "common" / "CMakeLists.txt", self.root / "common")
        words = {"python": sys.executable, "program": str(self.folder / "program.py"), "log": str(self.folder / "log"),
                 "stop": str(self.folder / "stop"), "machine": json.dumps(CUDA)}
        self.write("program.py", PROGRAM % words)
        self.write("bin/nvcc", NVCC % words).chmod(0o755)
        self.program("cmake", "")
        self.program("nvidia-smi", 'echo "NVIDIA H200, 9.0"\n')
        self.header = self.root / "kernels" / "10_tuning.h"
        script = self.root / "scripts" / "fa_tools" / "tune.py"
        text = script.read_text()
        for name, values in SMALL.items():
            text = re.sub(rf'"{name}": \(.*?\)', f'"{name}": {values}', text, count=1)
        script.write_text(text)

    def tune(self, *arguments):
        return self.run_script(sys.executable, self.root / "scripts" / "fa", "tune", *arguments,
                               env={"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "CUDACXX": "nvcc"})

    def test_from_space_to_header(self):
        before = self.header.read_text()
        done = self.tune("--write")
        self.assertEqual(done.returncode, 1, done.stderr)  # some choices gave wrong results
        for line in done.stdout.splitlines():
            self.assertLessEqual(len(line), 100, line)
        file = self.root / "bench" / "results" / "tuning" / "h200_bf16.json"
        data = autotune.read_tuning(file)
        self.assertEqual(data["machine"], CUDA)
        for head in data["head_dims"]:
            small = [c for c in autotune.space() if all(getattr(c, name) in values for name, values in SMALL.items())]
            kept, dropped = autotune.prune(small, head["head_dim"], autotune.LIMITS[90])
            by_choice = {autotune.as_choice(v): v for v in head["variants"]}
            self.assertEqual((list(by_choice), head["dropped"]), (kept, dropped))
            self.assertEqual(Choice(**head["choice"]), BEST)
            for v in head["variants"]:
                for entry in [*v.get("first", {}).values(), *v.get("final", {}).values()]:
                    self.assertEqual(set(entry) - {"round_ms"}, {"ms", "tflops"})
            self.assertEqual([len(e["round_ms"]) for e in by_choice[BEST]["final"].values()], [3, 3, 3])
            self.assertAlmostEqual(by_choice[BEST]["final"]["1024"]["tflops"], 402.0)
            for choice, status, reason in (
                (BEST._replace(stages=4), "wrong", "head 3 is off"),
                (BEST._replace(stages=2), "error", "CUDA says: illegal address"),
                (Choice(4, 1, 128, 2, 1, False, False), "spills", "spills 600 bytes a thread, more than 256"),
                (BEST._replace(block_n=64, stages=2, ctas=1), "not compiled", "kernel.cu(7): error: this choice"),
            ):
                self.assertEqual(by_choice[choice]["status"], status)
                self.assertIn(reason, by_choice[choice]["reason"])
        old = re.search(r"(  if \(architecture == 90[^;]*;\n){2}", before)[0]
        new = "".join(f"  if (architecture == 90 && head_dim == {d})\n"
                      "    return {.warps = 4, .row_tiles = 2, .block_n = 32, .stages = 3, .ctas = 2};\n" for d in (128, 64))
        self.assertEqual(self.header.read_text(), before.replace(old, new))
        self.header.write_text(before)
        self.assertEqual(self.tune("--from", file).returncode, 0)
        self.assertEqual(self.header.read_text(), before.replace(old, new))

    def test_interrupted(self):
        self.write("stop", "")
        done = self.tune("--head-dim", "128", "--write")
        self.assertEqual(done.returncode, 130, done.stderr)
        self.assertIn("interrupted", done.stderr)
        head = autotune.read_tuning(self.root / "build" / "autotune" / "h200_bf16.json")["head_dims"][0]
        self.assertIn("not reached", {v["status"] for v in head["variants"]})
        self.assertEqual(self.header.read_text(), autotune.HEADER.read_text())
        done = self.tune("--only", "4,2,32,2,*")
        self.assertEqual((done.returncode, done.stderr.splitlines()[-1]), (3, "error: nothing was timed: CUDA says: illegal address"))

    def test_errors(self):
        cases = [(("--arch", "90"), "--arch goes with --list", 2), (("--head-dim", "96"), "96", 2),
                 (("--write", "--only", "4,*"), "--write takes the whole space", 2),
                 (("--only", "5,*"), "no choice of the space that keeps the rules matches '5,*'", 2),
                 (("--from", self.folder / "none.json"), "no such file", 2),
                 (("--from", self.write("other.json", {"schema_version": 1})), "is not a file of scripts/fa tune", 2)]
        for arguments, words, code in cases:
            with self.subTest(words):
                self.assert_one_sentence(self.tune(*arguments), words, code=code)
        self.program("cmake", "exit 1\n")
        self.assert_one_sentence(self.tune(), "the harness could not be built; build/autotune/harness.log says why", code=4)
        self.program("nvidia-smi", "exit 9\n")
        self.assert_one_sentence(self.tune(), "no NVIDIA GPU answers through nvidia-smi", "--list", code=3)

    def test_list(self):
        for capability in (80, 120):
            done = self.run_script(sys.executable, SCRIPTS / "fa", "tune", "--list", "--arch", str(capability))
            self.assertEqual(done.returncode, 0, done.stderr)
            for head_dim in (128, 64):
                kept, _ = autotune.prune(autotune.space(), head_dim, autotune.LIMITS[capability])
                self.assertIn(f"head_dim {head_dim}, compute capability {capability / 10:.1f}: {len(kept)} of", done.stdout)


class Rules(ScriptTest):
    def test_the_first_rules_are_the_kernels_static_asserts(self):
        """Config of the kernel, compiled by g++ with samples of what each rule drops and of what is kept."""
        if not shutil.which("g++"):
            self.skipTest("no g++")
        kernel = (ROOT / "kernels" / "10_instruction_tuning.cu").read_text()
        config = re.search(r"^template <int kHeadDim>\nstruct Config \{.*?^\};$", kernel, re.DOTALL | re.MULTILINE)[0]
        own = list(autotune.RULES)[: autotune.STATIC_ASSERTS]
        more = [Choice(*values) for values in ((4, 2, 96, 2, 1, False, False), (1, 1, 32, 2, 1, False, False),
                                               (16, 1, 32, 2, 1, False, False), (2, 2, 64, 2, 1, False, False))]
        samples = {}  # (head_dim, rule or None): choices
        for head_dim in (64, 128):
            for choice in more + autotune.space()[::7]:
                rule = autotune.broken_rule(choice, head_dim, autotune.LIMITS[90])
                samples.setdefault((head_dim, rule if rule in own else None), []).append(choice)
        self.assertEqual({rule for _, rule in samples}, {None, *own}, "a rule without a sample")
        for (head_dim, rule), choices in samples.items():
            for choice in choices[:2]:
                with self.subTest(head_dim=head_dim, rule=rule, choice=choice.text()):
                    source = self.write("rule.cpp", f"""#define FA_TUNING {choice.cpp()}
#define FA_ARCHITECTURE 90
#include "kernels/10_tuning.h"
namespace fa::k10 {{
{config}
static_assert(Config<{head_dim}>::kTuning.shared_bytes({head_dim}) == {choice.shared_bytes(head_dim)}, "bytes");
static_assert(Config<{head_dim}>::kBlockM == {choice.block_m()} && Config<{head_dim}>::kThreads == {choice.threads()});
template struct Config<{head_dim}>;
}}
""")
                    done = self.run_script("g++", "-std=c++20", "-fsyntax-only", f"-I{ROOT}", source)
                    self.assertEqual(done.returncode == 0, rule is None, done.stderr)
                    if rule:
                        # Not the lines of the source that newer compilers quote below the message.
                        failed = re.findall(r"static assertion failed(.*)", done.stderr)
                        self.assertTrue(failed, done.stderr)
                        self.assertNotIn(": bytes", failed)

    def test_the_header_has_choices_that_keep_the_rules(self):
        for architecture in (80, 86, 90):
            for head_dim in (64, 128):
                choice = tuning.choice_of(architecture, head_dim)
                loose = choice if architecture == 90 else choice._replace(ctas=1)  # the last row is for every GPU
                self.assertIsNone(autotune.broken_rule(loose, head_dim, autotune.LIMITS[architecture]))

    def test_a_choice_compiles(self):
        """With the real nvcc: one kernel function, and its program would have the others refuse."""
        try:
            nvcc, _ = autotune.find_nvcc()
        except autotune.Missing as problem:
            self.skipTest(str(problem))
        file = self.write("one.cu", autotune.source_of(Choice(4, 1, 32, 2, 2, False, False), 64))
        done = self.run_script(*autotune.nvcc_command(nvcc, 90), "-c", file, "-o", f"{file}.o", cwd=ROOT)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(len(autotune.parse_resources(done.stdout + done.stderr)), 1)


class Committed(ScriptTest):
    def test_the_header_is_what_the_files_say(self):
        for path in FILES:
            data, text = autotune.read_tuning(path), autotune.HEADER.read_text()
            choices = {head["head_dim"]: autotune.as_choice(head) for head in data["head_dims"]}
            self.assertEqual(autotune.with_choices(text, 90, choices), text)
            self.assertEqual(path.name, autotune.file_name(data["machine"]["gpu"]))
            self.assertEqual(data["rules"], {name: words for name, (words, _) in autotune.RULES.items()})

    def test_variants_keep_the_rules_and_times_agree(self):
        self.assertTrue(FILES)
        for head in (head for path in FILES for head in autotune.read_tuning(path)["head_dims"]):
            head_dim, choices = head["head_dim"], [autotune.as_choice(v) for v in head["variants"]]
            kept, dropped = autotune.prune(autotune.space(), head_dim, autotune.LIMITS[90])
            self.assertEqual((choices, dropped), (kept, head["dropped"]))
            for v in head["variants"]:
                for n, entry in [*v.get("first", {}).items(), *v.get("final", {}).items()]:
                    tflops = autotune.flops(int(n), head_dim) / entry["ms"] * 1e-9
                    self.assertAlmostEqual(entry["tflops"] / tflops, 1, places=3)
                    self.assertAlmostEqual(entry["ms"], statistics.median(entry.get("round_ms", [entry["ms"]])), places=4)

    def test_what_is_refused(self):
        data = json.loads(FILES[0].read_text())
        head = data["head_dims"][0]
        for words, change in (("not what its times say", {"choice": {**head["choice"], "ctas": 1}}), ("KeyError", {"variants": [{}]})):
            file = self.write("bad.json", {**data, "head_dims": [{**head, **change}]})
            with self.assertRaisesRegex(Refused, words):
                autotune.read_tuning(file)

    def test_table_of_the_documentation(self):
        root = self.checkout()
        shutil.copy(FILES[0], root / "bench" / "results" / "tuning.json")
        shutil.copy(autotune.HEADER, root / "kernels")
        document = root / "doc.md"

        def synced(options):
            document.write_text(f"<!-- tuning: bench/results/tuning.json {options} -->\n<!-- /tuning -->\n")
            return self.run_script(sys.executable, root / "scripts" / "fa", "sync")

        self.assertEqual(synced("head_dim=128 best=2 only=4,2,*").returncode, 0)
        lines = document.read_text().splitlines()
        self.assertEqual((len(lines), lines[3][:8], lines[4][:8]), (8, "| **its ", "| its ow"))
        self.assertRegex(lines[6], r"^772 of 864 choices were dropped by rules before anything was built, .* timed\.$")
        for options, words in (("head_dim=96", "has no head_dim 96"), ("best=1", "takes a file, head_dim="),
                               ("head_dim=128 only=9,*", "no choice of"), ("head_dim=128 best=x", "is not a number")):
            done = synced(options)
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    main()
