"""scripts/fa adopt: what it finds and writes of a changed kernel. In a copy of the checkout whose programs are not built, because
what they say is theirs to test; with --whole (label long) as after a real change, programs and all.

Usage: test_adopt.py [--whole]"""

import re
import shutil
import subprocess

from support import ROOT, SCRIPTS, ScriptTest, given, main

from fa_tools import sources
from fa_tools.laboratory import adopt
from fa_tools.press import sync
from fa_tools.tools import Refused, read_json, repository_files


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
        for path in (file.relative_to(ROOT) for file in repository_files()):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, root / path)
        for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "before"]):
            subprocess.run(["git", "-C", root, *command], check=True, timeout=60)
        return root


class Adopt(InACopy):
    def test_what_has_changed(self):
        root = self.copy()
        self.assertIn("No kernel has changed", self.run_script(root / "scripts" / "fa", "adopt").stdout)
        changes_of_05_and_15(root)
        done = self.run_script("python3", "-c", "from fa_tools.laboratory import adopt\nfor k in ('05_mma_split_kv', '06_mma_split_q', "
                               "'15_persistent'): print(adopt.has_changed(k))", env={"PYTHONPATH": str(root / "scripts")})
        self.assertEqual(done.stdout.split(), ["True", "False", "True"], done.stderr)

    def test_lines_that_name_what_is_gone(self):
        root = self.copy()
        for kernel, old in (("16_max_free", "kWide"), ("beyond/causal", "kQueryTiles")):
            path = root / "kernels" / f"{kernel}.cu"
            path.write_text(path.read_text(encoding="utf-8").replace(old, "kOther"), encoding="utf-8")
        done = self.run_script("python3", "-c", "from fa_tools.laboratory import adopt\nwork = adopt.Work('/dev/null')\n"
                               "for kernel in ('16_max_free', 'beyond/causal'): adopt.names(kernel, work)\nprint(*work.left, sep='\\n')",
                               env={"PYTHONPATH": str(root / "scripts")})
        self.assertRegex(done.stdout, r"(?m)^docs/16_max_free.md:\d+: names kWide, which kernels/16_max_free.cu no longer has$")
        self.assertRegex(done.stdout, r"(?m)^tests/broken/bugs.toml:\d+: names kWide")
        of_causal = [line for line in done.stdout.splitlines() if "kernels/beyond/causal.cu" in line]
        self.assertIn("tests/broken/bugs.toml", {line.partition(":")[0] for line in of_causal})
        self.assertEqual([line for line in of_causal if ": names kQueryTiles," not in line], [])

    def test_names_that_a_kernel_declares(self):
        code = """
            constexpr float kA01 = 1.0f, kA02 = log2f(2.0f);  // float kRemark = 1;
            template <typename T, int kA03, int kA04>
            __global__ void __launch_bounds__(Config<kA03, 64>::kThreads, 1)
                a05(const T* a06, float a07[4], Shape a08) {
              const int *a09, *a10;
              for (int a11 = 0; a11 < rows; a11++) {
                if (a11 == kOther) continue;
                ptx::used(a11, more, *also);
              }
              const auto a12 = [&](int a13) -> float { return expf(a13); };
              struct A14 { float4 a15[4]; uint32_t a16; };
              else called(logf(a12 * sqrtf(3.0f)), 2.0f);
            }"""
        own = [f"a{i:02}" for i in (*range(5, 14), 15, 16)]
        self.assertEqual(adopt.declared_names(code), {*own, "A14", "kA01", "kA02", "kA03", "kA04"})

    def test_of_what_is_gone_only_what_was_declared_is_looked_for(self):
        root = self.copy()
        path = root / "kernels" / "beyond" / "split_keys.cu"
        path.write_text(path.read_text(encoding="utf-8").replace("kFan", "kOther").replace("log2f", "ptx::log2_approx"), encoding="utf-8")
        done = self.run_script("python3", "-c", "from fa_tools.laboratory import adopt\nwork = adopt.Work('/dev/null')\n"
                               "adopt.names('beyond/split_keys', work)\nprint(*work.left, sep='\\n')", env={"PYTHONPATH": str(root / "scripts")})
        self.assertEqual(set(re.findall(r": names (\w+),", done.stdout)), {"kFan"}, done.stderr)

    def test_options_of_committed_counters(self):
        for file, data in adopt.committed_counts():
            options = adopt.options_of(data["command"])
            self.assertTrue(options == [] or options[0].startswith("--"), file)
            self.assertNotIn("--json", options)

    def test_a_place_that_the_kernel_has_already(self):
        places = [["-a", "+b"], [" c", "-d", "+e"]]
        self.assertEqual(sources.changed("a\nc\nd", places), "b\nc\ne")
        self.assertEqual(sources.changed("b\nc\nd", places), "b\nc\ne")
        for text, sentence in (("b\nc\ne", "has all of it already"), ("x\nc\nd", "begin with 'a' are there 0 times")):
            with self.assertRaisesRegex(Refused, sentence):
                sources.changed(text, places)

    def test_a_line_of_a_diff_that_has_changed(self):
        changed = ["-constexpr float kMaxP = 512.0f;", "+constexpr float kMaxP = 256.0f;", "-int other;"]
        self.assertEqual(sync.nearest("-constexpr float kMaxP = 256.0f;  // most", changed), changed[0])
        self.assertIsNone(sync.nearest("-float rescale;", changed))

    def test_programs_whose_output_chapters_show_are_built(self):
        called = []
        work = adopt.Work(self.folder / "log")
        work.call = lambda command: called.append(command) or subprocess.CompletedProcess(command, 0, "", "")
        adopt.built(["05_mma_split_kv", "beyond/causal"], work)
        self.assertLessEqual({"05_mma_split_kv", "causal", "broken"}, set(called[-1]))

    def test_refused(self):
        self.assert_one_sentence(self.run_script(SCRIPTS / "fa", "adopt", "19"), "there is no kernel 19; they are 01, 02, ", ", 16, causal, ")


class RealChange(InACopy):
    def test_it(self):
        """At most these files differ, and what is left for a person is known."""
        root = self.copy()
        changes_of_05_and_15(root)
        done = subprocess.run([root / "scripts" / "fa", "adopt"], capture_output=True, text=True, timeout=3000, check=False)
        left = done.stdout.partition("Left for you")[2].splitlines()[1:]
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual([line.partition(": ")[2][:35] for line in left], ["the solution 05_no_padding does not"])
        differs = self.run_script("git", "-C", root, "diff", "--name-only").stdout.split()
        expected = ("kernels/05_mma_split_kv.cu", "kernels/15_persistent.cu", "bench/results/emulator_", "bench/results/solutions.jsonl",
                    "docs/")
        self.assertEqual([name for name in differs if not name.startswith(expected)], [])
        counts = read_json(f"{root}/bench/results/emulator_counts.jsonl#d128_n256")
        at = {r["kernel"][:2]: r["counters"] for r in counts["records"]}
        self.assertGreater(at["05"]["shared_wavefronts"], at["05"]["shared_wavefronts_ideal"], "without padding rows collide")


if not given("--whole"):
    del RealChange


if __name__ == "__main__":
    main()
