"""The search for kernel 10's tile sizes: its rules, its ranking, its file, and the header that it writes."""

import copy
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from support import CUDA, ERROR, ROOT, SCRIPTS, VENV_PYTHON, ScriptTest, main, needs_venv

sys.path.insert(0, str(SCRIPTS))
import autotune  # noqa: E402
from autotune import Choice, Refused  # noqa: E402

TUNE = SCRIPTS / "autotune.py"
FILES = sorted((ROOT / "bench" / "results" / "tuning").glob("*.json"))
BEST = Choice(4, 2, 32, 3, 2, False, False)

# In place of nvcc: what it compiles is the source, what it links is a program that knows a speed for every choice.
NVCC = r"""#!%(python)s
import re, sys
arguments = sys.argv[1:]
if "--version" in arguments:
    print("Cuda compilation tools, release 13.0, V13.0.88")
elif "-c" in arguments:
    text = open(arguments[arguments.index("-c") + 1]).read()
    values = [v.strip() for v in re.search("FA_TUNING (.*)", text)[1].split(",")]
    if values[:5] == ["4", "1", "32", "4", "4"]:
        sys.exit("kernel.cu(7): error: this choice is not liked")
    spills = 300 if values[2] == "128" else 0
    print(f"ptxas info : Compiling entry function 'f' for 'sm_90a'\n 8 bytes stack frame, {spills} bytes spill stores, "
          f"{spills} bytes spill loads\nptxas info : Used 128 registers, used 1 barriers")
    # ctas 1 and 2 give the same machine code: a file of ELF with one section .text.f
    code = repr(values[:4] + [max(2, int(values[4]))] + values[5:]).encode()
    header = bytearray(64)
    header[:4], header[18:20] = b"\x7fELF", (190).to_bytes(2, "little")
    header[40:48] = (64).to_bytes(8, "little")
    header[58:64] = (64).to_bytes(2, "little") + (2).to_bytes(2, "little") + (1).to_bytes(2, "little")
    def section(name, offset, size):
        return (name.to_bytes(4, "little") + bytes(20) + offset.to_bytes(8, "little") + size.to_bytes(8, "little")
                + bytes(24))
    names = b"\0.text.f\0.shstrtab\0"
    body = section(1, 192 + len(names), len(code)) + section(9, 192, len(names))
    open(arguments[arguments.index("-o") + 1], "wb").write(b"host code" + header + body + names + code)
else:
    program = arguments[arguments.index("-o") + 1]
    open(program, "w").write(open("%(program)s").read())
    import os
    os.chmod(program, 0o755)
"""

PROGRAM = r"""#!%(python)s
import json, re, sys
arguments = sys.argv[1:]
value = lambda name: arguments[arguments.index("--" + name) + 1]
names = arguments[: arguments.index("--dtype")]
open("%(log)s", "a").write(" ".join(arguments) + "\n")
records = []
for n in map(int, value("seq-len").split(",")):
    for name in names:
        w, r, bn, s, c = map(int, re.match(r"10_w(\d+)_r(\d+)_n(\d+)_s(\d+)_c(\d+)", name).groups())
        tflops = 300 + 10 * s + 5 * c + r - w + bn / 1000 + (40 if (w, r, bn, s, c) == (4, 2, 32, 3, 2) else 0)
        tflops = json.load(open("%(speeds)s")).get(name, tflops)
        ms = 4 * (16384 // n) * 16 * n**2 * int(value("head-dim")) / tflops * 1e-9
        record = {"kernel": name, "seq_len": n, "status": "passed", "time_ms": {"median": ms}, "tflops": tflops}
        if "_s4_" in name and "--inputs" in arguments and value("inputs") == "increasing_max":
            record = {"kernel": name, "seq_len": n, "status": "wrong", "reason": "head 3 is off"}
        if name == "10_w8_r1_n64_s2_c2" or (len(names) > 1 and "10_w8_r1_n64_s2_c2" in names):
            record = {"kernel": name, "seq_len": n, "status": "error", "reason": "CUDA says: illegal address"}
        records.append(record)
json.dump({"schema_version": 1, "machine": json.loads('''%(machine)s'''), "records": records}, open(value("json"), "w"))
"""


class Search(ScriptTest):
    """From the command to the file, with stand-ins for the compiler and the GPU."""

    def setUp(self):
        super().setUp()
        self.root = self.folder / "checkout"
        for name in ("scripts", "kernels", "common"):
            shutil.copytree(ROOT / name, self.root / name, ignore=shutil.ignore_patterns("__pycache__"))
        parts = self.folder / "harness" / "common"
        for name in ("CMakeFiles/fa_main.dir/harness/main.cpp.o", "libfa_harness.a"):
            self.write(parts / name, "")
        words = {"python": sys.executable, "program": str(self.folder / "program.py"),
                 "log": str(self.folder / "log"), "machine": json.dumps(CUDA),
                 "speeds": str(self.write("speeds", {}))}
        self.write("program.py", PROGRAM % words)
        self.write("bin/nvcc", NVCC % words).chmod(0o755)
        self.program("nvidia-smi", 'echo "NVIDIA H200, 9.0"\n')
        self.file = self.root / "bench" / "results" / "tuning" / "h200_bf16.json"
        self.header = self.root / "kernels" / "10_tuning.h"

    def call(self, *arguments):
        return self.run_script(sys.executable, self.root / "scripts" / "autotune.py", *arguments,
                               env={"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "CUDACXX": "nvcc"})

    def tune(self, *arguments):
        return self.call("--harness", self.folder / "harness", *arguments)

    def test_from_space_to_header(self):
        before = self.header.read_text()
        done = self.tune("--write", "--head-dim", "128")
        self.assertEqual(done.returncode, 1, done.stderr)  # some choices gave wrong results
        for line in done.stdout.splitlines():
            self.assertLessEqual(len(line), 100, line)
        self.assertIn("choice (*): {4, 2, 32, 3, 2, false, false}", done.stdout)
        data = autotune.read_tuning(self.file)
        head = data["head_dims"][0]
        self.assertEqual(Choice(**head["choice"]), BEST)
        by_choice = {autotune.as_choice(v): v for v in head["variants"]}
        kept, dropped = autotune.prune(autotune.space(), 128, autotune.LIMITS[90])
        self.assertEqual((set(by_choice), dropped), (set(kept), head["dropped"]))
        self.assertEqual(by_choice[BEST._replace(ctas=1)]["same_as"], BEST.text())
        for choice, status, reason in (
            (Choice(4, 1, 32, 4, 2, False, False), "wrong", "head 3 is off"),
            (Choice(8, 1, 64, 2, 2, False, False), "error", "illegal address"),
            (Choice(4, 1, 128, 2, 1, False, False), "spills", "spills 600 bytes a thread, more than 256"),
            (Choice(4, 2, 64, 2, 2, False, False), "timed", ""),
        ):
            with self.subTest(choice.text()):
                self.assertEqual(by_choice[choice]["status"], status)
                self.assertIn(reason, by_choice[choice].get("reason", ""))
        # The other lines of the header are as they were, and once more changes nothing.
        line = "  if (architecture == 90 && head_dim == 128) return {4, 2, 32, 3, 2, false, false};\n"
        after = self.header.read_text()
        old = re.search(r"  if \(architecture == 90 && head_dim == 128\).*\n", before)[0]
        self.assertEqual(after, before.replace(old, line))
        done = self.call("--from", self.file)
        self.assertEqual((done.returncode, self.header.read_text()), (0, after), done.stderr)
        self.assertIn("has these choices already", done.stdout)
        self.assertEqual(self.call("--check", "--from", self.file).returncode, 0)
        self.header.write_text(before)
        self.assert_one_sentence(self.call("--check", "--from", self.file), "10_tuning.h is not what", code=1)
        self.assertEqual(self.header.read_text(), before)

    def test_what_is_asked_of_the_program(self):
        self.tune("--head-dim", "64", "--only", "4,2,32,[23],2,0,*", "--seq-len", "512,2048", "--json", self.file)
        calls = (self.folder / "log").read_text().splitlines()
        self.assertEqual(len(calls), 2 + 1 + 3)  # hard inputs, first round, final
        for words in ("--inputs increasing_max", "--seq-len 384", "--dtype bf16", "--head-dim 64"):
            self.assertIn(words, calls[0])
        for words in ("--seq-len 512,2048", "--warmup 8", "--iters 24", "--heads 16"):
            self.assertIn(words, calls[2])
        self.assertIn("--iters 128", calls[3])
        self.assertEqual([call.split()[0] for call in calls[3:]],  # each begins once
                         ["10_w4_r2_n32_s3_c2", "10_w4_r2_n32_s3_c2", "10_w4_r2_n32_s2_c2"])

    def test_objects_are_used_again(self):
        arguments = ("--build-only", "--head-dim", "128", "--only", "4,1,64,*")
        first = self.tune(*arguments)
        self.assertEqual(first.returncode, 0, first.stderr)
        self.write("bin/nvcc", '#!/bin/sh\necho "release 13.0, V13.0.88"\ncase "$*" in *-c*) exit 1;; esac\n').chmod(0o755)
        self.assertEqual(self.tune(*arguments).stdout, first.stdout)
        # Another source, other objects. The table in the header is no part of them.
        text = self.header.read_text()
        self.header.write_text(text.replace("return {4, 2, 32", "return {4, 2, 64"))
        self.assertEqual(self.tune(*arguments).stdout, first.stdout)
        kernel = self.root / "kernels" / "10_instruction_tuning.cu"
        kernel.write_text(kernel.read_text() + "// end\n")
        self.assertIn("not compiled", self.tune(*arguments).stdout)

    def test_a_choice_that_does_not_compile(self):
        done = self.tune("--build-only", "--head-dim", "64", "--only", "4,1,32,4,4,*")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("not compiled: kernel.cu(7): error: this choice is not liked", done.stdout)

    def test_the_time_is_up(self):
        done = self.tune("--max-minutes", "0.00001", "--head-dim", "128")
        self.assert_one_sentence_at_the_end(done, "nothing could be timed: the time was up", code=3)
        self.assertFalse(self.file.exists())

    def assert_one_sentence_at_the_end(self, done, words, code):
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertTrue(done.stderr.splitlines()[-1].startswith("error: "), done.stderr)
        self.assertIn(words, done.stderr.splitlines()[-1])

    whole = None  # the file of a search of both head_dims; the same for every test

    def interrupted(self, *lost):
        """That file, the same as if it had not reached these choices of head_dim 64, and where that is."""
        if not Search.whole:
            self.tune("--json", self.folder / "whole.json")
            Search.whole = autotune.read_tuning(self.folder / "whole.json")
            (self.folder / "log").unlink()
            shutil.rmtree(self.root / "build")
        cut = copy.deepcopy(Search.whole)
        cut["created"] = "2026-11-20T08:00:00Z"
        head = next(head for head in cut["head_dims"] if head["head_dim"] == 64)
        for v in head["variants"]:
            if autotune.as_choice(v) in lost:
                self.assertEqual(v["status"], "timed")
                v.update(status="not reached", reason="the time was up before it was timed")
                v.pop("first")
                v.pop("final", None)
        by_choice = {autotune.as_choice(v): v for v in head["variants"]}
        for choice in autotune.finalists(by_choice):  # others come in for those that are gone
            by_choice[choice].setdefault("final", {n: {**entry, "round_ms": [entry["ms"]]}
                                                   for n, entry in by_choice[choice]["first"].items()})
        head["choice"] = autotune.choose(head["variants"])["choice"]
        return Search.whole, cut, self.write("earlier.json", autotune.dump(cut))

    def objects(self):
        return sorted(path.name for path in (self.root / "build").rglob("10_*.o"))

    SLOW, SLOWER = Choice(8, 1, 32, 2, 2, False, False), Choice(8, 1, 32, 3, 2, False, False)

    def test_resume_without_a_new_final(self):
        whole, cut, earlier = self.interrupted(self.SLOW, self.SLOWER)
        done = self.tune("--resume", earlier)
        self.assertEqual(done.returncode, 1, done.stderr)  # some choices of the earlier file gave wrong results
        data = autotune.read_tuning(self.file)
        self.assertEqual(data["resumed"], ["2026-11-20T08:00:00Z"])
        self.assertNotEqual(data["created"], cut["created"])
        self.assertEqual(data["head_dims"], whole["head_dims"])  # the stand-in's times are always the same
        self.assertEqual(self.objects(), [f"{choice.name()}_bf16_d64.o" for choice in (self.SLOW, self.SLOWER)])
        calls = (self.folder / "log").read_text().splitlines()
        self.assertEqual(len(calls), 3)  # hard inputs, first round, no final
        for call in calls:
            self.assertEqual(call.split(" --dtype")[0], f"{self.SLOW.name()} {self.SLOWER.name()}")
        # Once more: nothing is left.
        done = self.tune("--resume", self.file)
        self.assert_one_sentence(done, "has no choice that was not reached; nothing is left to be timed")

    def test_resume_with_a_new_final(self):
        whole, cut, earlier = self.interrupted(self.SLOW, BEST)
        before = {autotune.as_choice(v): v for v in cut["head_dims"][1]["variants"] if "final" in v}
        self.assertEqual((len(before), BEST in before), (autotune.FINALISTS, False))
        slowest = sorted(before, key=lambda choice: -autotune.speed(before[choice], "first"))[-1]
        faster = {choice.name(): 400.0 + i for i, choice in enumerate(before)}
        self.write("speeds", faster)
        done = self.tune("--resume", earlier, "--head-dim", "64", "--json", self.folder / "new.json")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertFalse(self.file.exists())
        data = autotune.read_tuning(self.folder / "new.json")
        self.assertEqual(data["head_dims"][0], cut["head_dims"][0])
        now = {autotune.as_choice(v): v for v in data["head_dims"][1]["variants"]}
        self.assertEqual({c for c, v in now.items() if "final" in v}, {BEST, *before} - {slowest})
        for choice in set(before) - {slowest}:
            self.assertAlmostEqual(autotune.speed(now[choice], "final"), faster[choice.name()], places=2)
            self.assertEqual(now[choice]["first"], before[choice]["first"])
        self.assertEqual(now[self.SLOW]["status"], "timed")
        same = [v for v in whole["head_dims"][1]["variants"] if v["status"] == "same code"]
        self.assertEqual([now[autotune.as_choice(v)] for v in same], same)
        calls = (self.folder / "log").read_text().splitlines()
        self.assertEqual([len(call.split(" --dtype")[0].split()) for call in calls], [2, 2, 2, 8, 8, 8])
        self.assertEqual(len(self.objects()), 2 + autotune.FINALISTS - 1)

    def test_resume_when_the_time_is_up_again(self):
        lost = [autotune.as_choice(v) for v in self.interrupted()[0]["head_dims"][1]["variants"]
                if v["status"] == "timed"][-autotune.BATCH - 1 :]
        _, cut, earlier = self.interrupted(*lost)
        self.assertEqual(self.tune("--resume", earlier, "--max-minutes", "0.00001").returncode, 3)
        self.assertFalse(self.file.exists())
        # The first call takes longer than is given for everything, so the second batch is not begun.
        program = (self.folder / "program.py").read_text()
        self.write("program.py", program.replace("import json", "import os, time\n"
                                                 f"if not os.path.exists('{self.folder}/log'): time.sleep(8)\n"
                                                 "import json", 1))
        done = self.tune("--resume", earlier, "--max-minutes", "0.13")
        self.assertIn("--resume takes the file up from there", done.stdout)
        left = [v for v in autotune.read_tuning(self.file)["head_dims"][1]["variants"] if v["status"] == "not reached"]
        self.assertEqual([v for v in cut["head_dims"][1]["variants"] if autotune.as_choice(v) == lost[-1]], left)
        self.write("program.py", program)
        self.tune("--resume", self.file)
        data = autotune.read_tuning(self.file)
        self.assertEqual((len(data["resumed"]), data["resumed"][0]), (2, "2026-11-20T08:00:00Z"))
        self.assertNotIn("not reached", [v["status"] for v in data["head_dims"][1]["variants"]])

    def test_resume_refuses_another_search(self):
        _, cut, earlier = self.interrupted(self.SLOW)
        cases = {
            "its kernel differs from this run's: 11_wgmma, not 10_": lambda d: d.update(kernel="11_wgmma"),
            "its dtype differs from this run's: fp16, not bf16": lambda d: d.update(dtype="fp16"),
            "its gpu differs from this run's: NVIDIA H100, not": lambda d: d["machine"].update(gpu="NVIDIA H100"),
            "its compiler differs": lambda d: d["machine"].update(compiler="nvcc 12.9.1"),
            "its space differs": lambda d: d["space"].update(only="4,*"),
            "its rules differ from": lambda d: d["rules"].pop("registers"),
            "its protocol differs": lambda d: d["protocol"]["final"].update(rounds=5),
            "its kernel was another": lambda d: [v.update(registers=90) for head in d["head_dims"]
                                                 for v in head["variants"] if v["status"] == "not reached"],
            "is not a file of scripts/autotune.sh": lambda d: d.update(tuning_version=2),
        }
        for words, change in cases.items():
            with self.subTest(words):
                data = copy.deepcopy(cut)
                change(data)
                done = self.tune("--resume", self.write("changed.json", autotune.dump(data)))
                self.assert_one_sentence_at_the_end(done, words, code=2)
        done = self.tune("--resume", earlier, "--seq-len", "1024")
        self.assert_one_sentence(done, "its times are of --seq-len 1024,4096,16384")
        self.assertFalse((self.folder / "log").exists())
        self.assertFalse(self.file.exists())

    def test_errors(self):
        cases = [
            (("--list", "--resume", "x.json"), "--resume FILE goes with a run or --build-only", 2),
            (("--check",), "--check needs --from", 2),
            (("--arch", "90"), "--arch goes with --list", 2),
            (("--list", "--arch", "75"), "'75' is not one of 80, ", 2),
            (("--write", "--dtype", "fp16"), "the header knows no dtype", 2),
            (("--write", "--only", "4,*"), "the whole space", 2),
            (("--only", "5,*"), "no choice of the space matches '5,*'", 2),
            (("--head-dim", "96"), "'96' is not a list of such numbers", 2),
            (("--seq-len", "100"), "'100' is not a list of such numbers", 2),
            (("--max-minutes", "0"), "'0' is not a positive number", 2),
            (("--harness", self.folder), "has no common/CMakeFiles/fa_main.dir/harness/main.cpp.o", 2),
            (("--from", self.folder / "none.json"), "no such file", 2),
            (("--from", self.write("other.json", {"schema_version": 1})), "is not a file of scripts/autotune.sh", 2),
        ]
        for arguments, words, code in cases:
            with self.subTest(words):
                self.assert_one_sentence(self.call(*arguments), words, code=code)
        self.program("nvidia-smi", "exit 9\n")
        self.assert_one_sentence(self.call(), "no NVIDIA GPU answers through nvidia-smi", "--list", code=3)
        self.write("bin/nvcc", '#!/bin/sh\necho "release 12.1, V12.1.1"\n').chmod(0o755)
        if not any(Path(path).exists() for path in ("/usr/local/cuda/bin/nvcc", "/opt/cuda/bin/nvcc")):
            self.assert_one_sentence(self.call("--build-only"), "nvcc 12.1 is older than 12.8", code=4)

    def test_list(self):
        for capability in (80, 86, 90, 120):
            done = self.call("--list", "--arch", str(capability))
            self.assertEqual(done.returncode, 0, done.stderr)
            for head_dim in (128, 64):
                kept, _ = autotune.prune(autotune.space(), head_dim, autotune.LIMITS[capability])
                self.assertIn(f"head_dim {head_dim}, compute capability {capability / 10:.1f}: {len(kept)} of", done.stdout)
            for line in done.stdout.splitlines():
                self.assertLessEqual(len(line), 100, line)


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

    def test_memory_and_registers(self):
        h200, a10 = autotune.LIMITS[90], autotune.LIMITS[86]
        choice = Choice(4, 2, 64, 2, 2, False, False)  # 96 KB, of 228 KB
        self.assertEqual(choice.shared_bytes(128), 96 * 1024)
        self.assertIsNone(autotune.broken_rule(choice, 128, h200))
        self.assertEqual(autotune.broken_rule(choice._replace(ctas=3), 128, h200), "shared memory")
        self.assertEqual(autotune.broken_rule(choice, 128, a10), "shared memory")
        self.assertIsNone(autotune.broken_rule(choice._replace(ctas=1), 128, a10))
        # O and S of 32 rows: 2 (64 + 32) floats a lane, with Q 64 more. Two CTAs of 128 threads: 255 registers.
        self.assertEqual(autotune.held_registers(choice, 128), 192)
        self.assertEqual(autotune.register_bound(choice), 255)
        self.assertEqual(autotune.broken_rule(choice._replace(q_in_registers=True), 128, h200), "registers")
        self.assertEqual(autotune.register_bound(choice._replace(ctas=3)), 168)
        self.assertEqual(autotune.broken_rule(choice._replace(ctas=3), 64, h200), None)
        self.assertEqual(autotune.broken_rule(choice._replace(ctas=4), 64, h200), "registers")

    def test_the_header_has_choices_that_keep_the_rules(self):
        for architecture, head_dim, values in re.findall(r"architecture == (\d+) && head_dim == (\d+)\) return \{(.*)\};",
                                                         autotune.HEADER.read_text()):
            choice = Choice(*(json.loads(value) for value in values.split(",")))
            self.assertIsNone(autotune.broken_rule(choice, int(head_dim), autotune.LIMITS[int(architecture)]))


def timed(choice, tflops, registers=128, final=True, head_dim=128):
    """A variant with the same speed at two lengths."""
    def entry(seq_len, rounds):
        ms = autotune.flops(seq_len, head_dim) / tflops * 1e-9
        return {"ms": ms, "tflops": tflops, **({"round_ms": [ms, ms * 1.1, ms * 0.9]} if rounds else {})}

    variant = {"choice": choice._asdict(), "status": "timed", "registers": registers, "spill_bytes": 0,
               "shared_memory_bytes": choice.shared_bytes(head_dim), "ctas_per_sm": 2,
               "first": {"1024": entry(1024, False), "4096": entry(4096, False)}}
    if final:
        variant["final"] = {"1024": entry(1024, True), "4096": entry(4096, True)}
    return variant


def tuning():
    a, b = Choice(4, 2, 64, 2, 2, False, False), Choice(4, 1, 32, 2, 2, True, False)
    variants = [timed(a, 600.0, 255), timed(b, 500.0), timed(b._replace(stages=3), 450.0, final=False),
                {"choice": a._replace(ctas=1)._asdict(), "status": "same code", "same_as": a.text(), "registers": 255,
                 "spill_bytes": 0, "shared_memory_bytes": 98304, "ctas_per_sm": 2},
                {"choice": b._replace(stages=4)._asdict(), "status": "wrong", "reason": "head 3 is off", "registers": 99,
                 "spill_bytes": 0, "shared_memory_bytes": 81920, "ctas_per_sm": 2}]
    return {
        "tuning_version": 1, "created": "2026-11-21T10:00:00Z", "kernel": autotune.KERNEL, "dtype": "bf16",
        "machine": dict(CUDA), "space": {name: list(values) for name, values in autotune.SPACE.items()},
        "rules": {name: words for name, (words, _) in autotune.RULES.items()},
        "protocol": {"heads": 16, "rows": 16384, "inputs": "normal", "seed": 1, "spill_limit_bytes": 256,
                     "first": dict(autotune.QUICK), "final": {**autotune.FULL, "rounds": 3, "choices": 8}, "tie": 0.005,
                     "tflops_convention": "4*B*H*N^2*D"},
        "head_dims": [{"head_dim": 128, "dropped": {"block_m": 432}, "choice": variants[0]["choice"], "variants": variants}],
    }


class Compiler(ScriptTest):
    def test_choices_compile(self):
        """With the real nvcc: under another name the machine code is the same, with other tiles it is not."""
        try:
            nvcc, _ = autotune.find_nvcc()
        except autotune.Missing as problem:
            self.skipTest(str(problem))
        choice = Choice(4, 1, 32, 2, 2, False, False)
        text = autotune.source_of(choice, "bf16", 64)
        codes = []
        for name, source in (("one", text), ("other name", text.replace(choice.name(), "10_other")),
                             ("other tiles", autotune.source_of(choice._replace(stages=3), "bf16", 64))):
            file = self.write(f"{name}.cu", source)
            done = self.run_script(*autotune.nvcc_command(nvcc, "90a"), "-c", file, "-o", f"{file}.o", cwd=ROOT)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            resources = autotune.parse_resources(done.stdout + done.stderr)
            self.assertEqual(len(resources), 1, resources)
            codes.append(autotune.code_of(Path(f"{file}.o")))
        self.assertEqual(codes[0], codes[1])
        self.assertNotEqual(codes[0], codes[2])


class Documentation(ScriptTest):
    def test_table(self):
        root = self.checkout()
        shutil.copy(ROOT / "kernels" / "10_tuning.h", root / "kernels")
        (root / "bench" / "results" / "tuning.json").write_text(json.dumps(tuning()))
        document = root / "doc.md"

        def synced(options):
            document.write_text(f"<!-- tuning: bench/results/tuning.json {options} -->\n<!-- /tuning -->\n")
            return self.run_script(sys.executable, root / "scripts" / "sync_docs.py")

        self.assertEqual(synced("head_dim=128").returncode, 0)
        lines = document.read_text().splitlines()
        self.assertEqual(lines[1], "| Q in | Warps | Rows a warp | Keys a tile | Stages | CTAs an SM | Registers | "
                                   "Shared memory, KiB | N = 1024 | N = 4096 | Mean |")
        self.assertEqual(lines[3], "| " + " | ".join(
            f"**{cell}**" for cell in "its own place,4,32,64,2,2,255,96,600,600,600".split(",")) + " |")
        self.assertEqual(lines[4], "| registers | 4 | 16 | 32 | 2 | 2 | 128 | 48 | 500 | 500 | 500 |")
        self.assertEqual(lines[7], "Of 437 choices 432 were dropped by rules before anything was built, 1 became the same "
                                   "code as another, 1 gave wrong results, and 3 were timed.")
        self.assertEqual(synced("head_dim=128 best=1 only=4,1,*").returncode, 0)
        self.assertEqual(len(document.read_text().splitlines()), 1 + 3 + 2 + 1)
        for options, words in (("head_dim=64", "has no head_dim 64"), ("best=1", "takes a file, head_dim="),
                               ("head_dim=128 only=9,*", "no choice of"), ("head_dim=128 best=x", "is not a number")):
            done = synced(options)
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stderr)


class Ranking(ScriptTest):
    def test_the_best_mean(self):
        a, b, c = (Choice(4, 2, n, 2, 2, False, False) for n in (32, 64, 128))
        variants = [timed(a, 500.0), timed(b, 520.0, registers=255), timed(c, 900.0, final=False)]
        self.assertEqual(autotune.as_choice(autotune.choose(variants)), b)  # c was not in the final
        self.assertEqual([autotune.as_choice(v) for v in autotune.ranked(variants)], [b, a, c])
        self.assertIsNone(autotune.choose([timed(c, 900.0, final=False)]))
        self.assertIsNone(autotune.choose([{**timed(a, 500.0), "status": "wrong"}]))

    def test_within_half_a_percent_less_decides(self):
        a, b = Choice(4, 2, 64, 2, 2, False, False), Choice(4, 2, 32, 2, 2, False, False)
        for tflops, registers, best in ((498.0, 200, b), (498.0, 255, b), (497.0, 200, a)):
            with self.subTest(tflops=tflops, registers=registers):
                variants = [timed(a, 500.0, 255), timed(b, tflops, registers)]
                self.assertEqual(autotune.as_choice(autotune.choose(variants)), best)

    def test_the_finalists_do_not_depend_on_the_order(self):
        """Choices arrive in the order in which their compilations ended, and several may be equally fast."""
        choices = autotune.space()[: 3 * autotune.FINALISTS]
        built = {choice: timed(choice, 500.0) for choice in choices}
        backwards = dict(reversed(built.items()))
        self.assertEqual(autotune.finalists(backwards), autotune.finalists(built))
        self.assertEqual(autotune.finalists(backwards), sorted(choices)[: autotune.FINALISTS])

    def test_the_mean_is_geometric(self):
        self.assertAlmostEqual(autotune.mean_of([100.0, 400.0]), 200.0)


HEADER = """constexpr Tuning tuning(int architecture, int head_dim) {
  // [tuned]
  if (architecture == 80 && head_dim == 128) return {4, 2, 32, 2, 1, false, false};
  if (architecture == 90 && head_dim == 128) return {4, 2, 64, 2, 2, false, false};
  if (architecture == 90 && head_dim == 64) return {4, 2, 64, 2, 2, false, false};
  return {4, 2, 32, 2, 2, false, false};
  // [/tuned]
}
"""


class Header(ScriptTest):
    def test_lines_are_replaced_and_added(self):
        new = Choice(4, 1, 32, 3, 2, True, True)
        line = "  if (architecture == {} && head_dim == {}) return {{4, 1, 32, 3, 2, true, true}};\n"
        old = "  if (architecture == 90 && head_dim == 64) return {4, 2, 64, 2, 2, false, false};\n"
        after = autotune.with_choices(HEADER, 90, {64: new})
        self.assertEqual(after, HEADER.replace(old, line.format(90, 64)))
        self.assertEqual(autotune.with_choices(after, 90, {64: new}), after)
        last = "  return {4, 2, 32, 2, 2, false, false};\n"
        after = autotune.with_choices(HEADER, 120, {64: new, 128: new})
        self.assertEqual(after, HEADER.replace(last, line.format(120, 128) + line.format(120, 64) + last))
        with self.assertRaises(Refused):
            autotune.with_choices("no table\n", 90, {64: new})

    def test_the_header_stays_formatted(self):
        tool = next((path for path in map(shutil.which, ("clang-format-14", "clang-format")) if path), None)
        if not tool or "version 14." not in self.run_script(tool, "--version").stdout:
            self.skipTest("no clang-format 14")
        long = Choice(8, 4, 128, 4, 4, False, False)
        text = autotune.with_choices(autotune.HEADER.read_text(), 120, {64: long, 128: long})
        done = subprocess.run([tool, f"--assume-filename={autotune.HEADER}"], input=text, capture_output=True, text=True,
                              check=False, timeout=60)
        self.assertEqual(done.stdout, text)


class File(ScriptTest):
    def refusal(self, change):
        data = copy.deepcopy(tuning())
        change(data, data["head_dims"][0])
        with self.assertRaises(Refused) as refused:
            autotune.read_tuning(self.write("tuning.json", data))
        return str(refused.exception)

    def test_what_no_schema_can_say(self):
        data = tuning()
        self.assertEqual(autotune.read_tuning(self.write("good.json", data)), data)
        self.assertEqual(json.loads(autotune.dump(data))["head_dims"][0]["choice"], data["head_dims"][0]["choice"])
        cases = {
            "not what its times say": lambda d, head: head.update(choice=head["variants"][1]["choice"]),
            "twice": lambda d, head: head["variants"].append(head["variants"][0]),
            "breaks the rule shared memory": lambda d, head: head["variants"][0]["choice"].update(ctas=3),
            "TFLOP/s and time disagree": lambda d, head: head["variants"][1]["first"]["1024"].update(tflops=501.0),
            "not the median": lambda d, head: head["variants"][1]["final"]["1024"].update(round_ms=[1.0, 2.0]),
            "which is not there": lambda d, head: head["variants"][3].update(same_as="4,2,64,2,3,0,0"),
            "KeyError at 'machine'": lambda d, head: d.pop("machine"),
            "is not a file of": lambda d, head: d.update(tuning_version=2),
        }
        for words, change in cases.items():
            with self.subTest(words):
                self.assertIn(words, self.refusal(change))

    def test_only_bf16_goes_into_the_header(self):
        data = tuning()
        data["dtype"] = "fp16"
        done = self.run_script(sys.executable, TUNE, "--check", "--from", self.write("fp16.json", data))
        self.assert_one_sentence(done, "is of fp16; the header knows no dtype")

    def test_names(self):
        self.assertEqual(autotune.file_name("NVIDIA H200", "bf16"), "h200_bf16.json")
        self.assertEqual(autotune.file_name("NVIDIA H100 80GB HBM3", "fp16"), "h100_80gb_hbm3_fp16.json")
        self.assertEqual([autotune.architecture_of(n) for n in (80, 90, 120)], ["80", "90a", "120a"])

    @needs_venv("jsonschema")
    def test_schema(self):
        def errors(data):
            code = ("import json, jsonschema, sys; "
                    "schema, data = (json.load(open(name)) for name in sys.argv[1:]); "
                    "check = jsonschema.Draft202012Validator; check.check_schema(schema); "
                    "print(*(error.message for error in check(schema).iter_errors(data)), sep='; ')")
            done = self.run_script(VENV_PYTHON, "-c", code, autotune.TUNING_SCHEMA, data)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout.strip()

        resumed = {**tuning(), "resumed": ["2026-11-20T08:00:00Z"]}
        for file in [self.write("good.json", tuning()), self.write("resumed.json", resumed), *FILES]:
            self.assertEqual(errors(file), "", file)
        cases = [
            lambda d, head: d.update(host="box"),
            lambda d, head: d["machine"].update(hostname="box"),
            lambda d, head: d["machine"].pop("driver"),
            lambda d, head: d["protocol"]["final"].pop("rounds"),
            lambda d, head: head["variants"][0].update(status="fast"),
            lambda d, head: head["variants"][0].pop("first"),
            lambda d, head: head["variants"][0].update(reason="why"),
            lambda d, head: head["variants"][0]["choice"].pop("ctas"),
            lambda d, head: head["variants"][0]["final"]["1024"].pop("round_ms"),
            lambda d, head: head["variants"][3].pop("same_as"),
            lambda d, head: head["variants"][4].pop("reason"),
            lambda d, head: head["variants"][4].update(final=head["variants"][0]["final"]),
            lambda d, head: head["variants"][4].update(registers=256),
            lambda d, head: d.update(resumed=[]),
            lambda d, head: d.update(resumed=["yesterday"]),
        ]
        for number, change in enumerate(cases):
            data = copy.deepcopy(tuning())
            change(data, data["head_dims"][0])
            self.assertNotEqual(errors(self.write("bad.json", data)), "", f"case {number}")


class Committed(ScriptTest):
    def test_the_header_is_what_the_files_say(self):
        """Of every file of bf16: the header knows no other dtype."""
        files = [path for path in FILES if path.name.endswith("_bf16.json")]
        if not files:
            self.skipTest("no search is committed yet")
        for path in files:
            done = self.run_script(sys.executable, TUNE, "--check", "--from", path)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_files_make_sense(self):
        for path in FILES:
            data = autotune.read_tuning(path)
            self.assertEqual(path.name, autotune.file_name(data["machine"]["gpu"], data["dtype"]))
            self.assertEqual(data["rules"], {name: words for name, (words, _) in autotune.RULES.items()})


if __name__ == "__main__":
    main()
