"""What scripts/fa single writes: the kernel as it is but for the marks of excerpts, the PTX of the headers, no more lines than a reader has time for."""

import functools
import re
import subprocess

from support import ROOT, SCRIPTS, ScriptTest, main

from fa_tools import sources
from fa_tools.for_readers import sass, single

# Those of kernels/next are nobody's to take away yet.
KERNELS = [kernel for kernel in sass.kernel_names() if not kernel.endswith(".next") and "fp8" not in kernel]


def wgmma_instructions():
    """common/ptx/wgmma_instructions.h without its macros: each N's functions on a line."""
    text = re.sub("#include.*|#pragma.*", "", (ROOT / "common/ptx/wgmma_instructions.h").read_text(encoding="utf-8"))
    text = subprocess.run(["g++", "-E", "-P", "-x", "c++", "-"], input=text, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
    return re.sub(r"\[([\d +]+)\]", lambda m: f"[{sum(map(int, m[1].split('+')))}]", text)


def kernel_text(kernel):
    """A kernel's source below its includes, without its registration."""
    source = (ROOT / f"kernels/{kernel}.cu").read_text(encoding="utf-8")
    own = source[source.index("namespace fa::"):]
    before, after = re.split(r"const Registration[^;]*;\n\n", own)
    return sources.unmarked(sources.LEADS.sub("", before + after))


@functools.cache
def text_of(kernel, *choices):
    return single.single(kernel, *choices)


def library_of(kernel):
    return text_of(kernel, "bf16", 128, True)


class Single(ScriptTest):
    def test_the_command(self):
        done = self.run_script(SCRIPTS / "fa", "single", "8", "--dtype", "fp16")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, text_of("08_swizzle", "fp16"), ""))

    def test_fp8_is_refused(self):
        for kernel in ("fp8_plain", "fp8", "fp8_rows"):  # names that begin like others
            done = self.run_script(SCRIPTS / "fa", "single", kernel)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(f"beyond/{kernel} computes in FP8", done.stderr)

    def test_the_kernel_is_as_it_is(self):
        for kernel in KERNELS:
            with self.subTest(kernel):
                self.assertIn(kernel_text(kernel), text_of(kernel))
                self.assertIn(kernel_text(kernel), library_of(kernel))

    def test_lines(self):
        for kernel in KERNELS:
            for text in (text_of(kernel), library_of(kernel)):
                with self.subTest(kernel):
                    lines = text.splitlines()
                    own = len((ROOT / f"kernels/{kernel}.cu").read_text(encoding="utf-8").splitlines())
                    self.assertLessEqual(len(lines) - own, sources.fact(kernel, "beside"))
                    self.assertLessEqual(max(map(len, lines)), 100)
                    self.assertNotIn(["", ""], [lines[i:i + 2] for i in range(len(lines))])

    def test_nothing_of_the_repository_is_left(self):
        for kernel in KERNELS:
            for text in (text_of(kernel), library_of(kernel)):
                with self.subTest(kernel):
                    code = sources.without_comments(text)
                    self.assertEqual(re.findall(r"#include \"|\bemu::|FA_WITH_CUDA|FA_RECORDING|Where|record|kRank", code), [])
                    self.assertEqual(re.findall(r"// \[|k00|00_name|attention00|kMapType,.*BFLOAT|cmake", text.replace(kernel_text(kernel), "")), [])

    def test_every_declaration_is_used(self):
        for kernel, text in ((name, each) for name in KERNELS for each in (text_of(name), library_of(name))):
            code = sources.without_comments(text)
            for name in re.findall(r"^(?:__device__.*? |[\w ]*constexpr [\w ]+ )(\w+)(?:<\w+>)?\(", code, re.MULTILINE):
                with self.subTest(kernel, name=name):
                    self.assertGreater(len(re.findall(rf"\b{name}\b", code)), 1)

    def test_each_wgmma_names_every_operand_once(self):
        texts = re.findall(r"asm volatile\((.*?)\); \}", wgmma_instructions())
        found = []
        for text in texts:
            code, outputs, inputs = re.split(r"\s:\s", text)
            code = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', code))
            found.append(int(re.search(r"m64n(\d+)k16", code)[1]))
            self.assertEqual(outputs.split(", "), [f'"+f"(d[{i}])' for i in range(found[-1] // 2)])
            operands = found[-1] // 2 + len(re.findall(r'"\w"\(', inputs))
            self.assertEqual({int(n) for n in re.findall(r"%(\d+)", code)}, set(range(operands)))
        self.assertEqual(found, [n for n in (16, 64, 80, 128, 256) for _ in range(2)])
        # Chapter 11 writes out the first one, as an excerpt would show macros.
        shown = re.search(r"```cuda\nasm volatile\(((?:.*\n){1,8}?)```\n", (ROOT / "docs" / "11_wgmma.md").read_text(encoding="utf-8"))[1]
        shown, made = (re.sub(r"\s|\\n", "", each).replace('""', "") for each in (shown, texts[0] + ");"))
        self.assertEqual(shown, made.replace("%13", "f16").replace(',"C"(Element::kName)', ""))

    def test_type_and_head_size(self):
        text = text_of("16_max_free", "fp16", 64)
        for part in ("using T = __half;", "kHeadDim = 64;", "m64n64k16.f32.f16.f16", "DATA_TYPE_FLOAT16", "--dtype fp16 --head-dim 64"):
            self.assertIn(part, text)
        self.assertNotRegex(sources.without_comments(text.split("// ==== the kernel")[0]), r"bfloat|bf16")  # comments compare the types
        self.assertNotIn("A from registers", text.split("D: 64 x 128")[-1])

    def test_a_library_ends_with_its_function(self):
        done = self.run_script(SCRIPTS / "fa", "single", "causal", "--library")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, library_of("beyond/causal"), ""))
        for kernel in KERNELS:
            text = library_of(kernel)
            comment, function = re.search(r"\n\n((?://.*\n)+)(extern \"C\"(?:.|\n)*)\Z", text).groups()
            with self.subTest(kernel):
                self.assertEqual(re.findall(r"\bmain\(|\bexit\(|printf|<cstdio>|<vector>", text), [])
                parameters = re.findall(r"(\w+)[,)]", re.search(r"\(\n(.*?) \{\n", function, re.DOTALL)[1])
                for name in parameters:
                    self.assertRegex(comment, rf"\n//   (\w+, )*{name}\b")
                self.assertEqual(parameters[:4] + parameters[-1:], ["q", "k", "v", "o", "stream"])

    def test_bad_arguments(self):
        self.assert_one_sentence(self.run_script(SCRIPTS / "fa", "single", "99"), "there is no kernel '99'")
        self.assert_one_sentence(self.run_script(SCRIPTS / "fa", "single"), "scripts/fa single --help")
        self.assert_one_sentence(self.run_script(SCRIPTS / "fa", "single", "16", "--dtype", "fp8"), "fp8")
        self.assert_one_sentence(self.run_script(SCRIPTS / "fa", "single", "16", "--library", "--head-dim", "64"), "leave --dtype and --head-dim out")


if __name__ == "__main__":
    main()
