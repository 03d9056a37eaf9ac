"""What scripts/fa single writes: the kernel as it is but for the marks of excerpts, the PTX of the headers, no more lines than a reader has time for."""

import functools
import re
import subprocess

from support import ROOT, SCRIPTS, ScriptTest, main

from fa_tools import sources
from fa_tools.product import sass, single

# Those of kernels/next are nobody's to take away yet.
KERNELS = [kernel for kernel in sass.kernel_names() if not kernel.endswith(".next") and "fp8" not in kernel]


def wgmma_instructions():
    """common/ptx/wgmma_instructions.h without its macros: each N's functions on a line."""
    text = re.sub("#include.*|#pragma.*", "", (ROOT / "common/ptx/wgmma_instructions.h").read_text(encoding="utf-8"))
    text = subprocess.run(["g++", "-E", "-P", "-x", "c++", "-"], input=text, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
    return re.sub(r"\[([\d +]+)\]", lambda m: f"[{sum(map(int, m[1].split('+')))}]", text)


def statements(text):
    """Inline PTX, each operand in its place: a list of the text and the operands."""
    text = re.sub(r"FA_NAMES_(\d+)", lambda m: '"' + ", ".join(f"%{int(m[1]) + i}" for i in range(32)) + '"', text)
    text = re.sub(r"FA_32\((\d+)\)", lambda m: ", ".join(f'"+f"(d[{int(m[1]) + i}])' for i in range(32)), text)
    found = []
    for match in re.finditer(r"(?:\basm(?: volatile)?|FA_SM90A)\(\s*(?=\")", sources.without_comments(text)):
        depth, end = 1, match.end()
        code = sources.without_comments(text)
        while depth:
            quoted = re.match(r'"(?:[^"\\]|\\.)*"', code[end:])
            end += len(quoted[0]) if quoted else 1
            depth += 0 if quoted else (code[end - 1] == "(") - (code[end - 1] == ")")
        body = code[match.end():end - 1]
        literals = re.match(r'(?:\s*"(?:[^"\\]|\\.)*")+', body)
        template = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals[0])).replace("\\n", " ")
        operands = [re.sub(r"\s", "", each) for each in
                    re.findall(r'"(?:=|\+)?[rlfnhC]"\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)', body[literals.end():])]
        operands = [re.sub(r"^int\((\w+)\)$|^\+(\w+)$", lambda m: m[1] or m[2], each) for each in operands]
        filled = re.sub(r"%(\d+)", lambda m: f"<{operands[int(m[1])]}>", template)
        found.append(re.sub(r"\s|^\{|\}$", "", re.sub(r"\s", "", filled)))
    return found


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

    def test_chapter_11_writes_out_the_wgmma_of_16_columns(self):
        """An excerpt would show macros."""
        shown = re.search(r"```cuda\n(asm volatile\((?:.*\n)+?)```\n", (ROOT / "docs" / "11_wgmma.md").read_text(encoding="utf-8"))[1]
        self.assertLessEqual(len(shown.splitlines()), 8)
        (made, _) = [each for each in statements(wgmma_instructions()) if "m64n16k16" in each]
        self.assertEqual(statements(shown), [made.replace("<Element::kName>", "f16")])

    def test_descriptors_are_those_of_the_header(self):
        text = text_of("16_max_free")
        layout = text[text.index("\nnamespace layout {"):text.index("}  // namespace layout")]
        layout = re.sub(r"__device__\s+(constexpr|__forceinline__)", "constexpr", layout).replace("constexpr float", "inline float")
        code = self.folder / "descriptors.cpp"
        code.write_text(f"""#include "common/layout/wgmma.h"
#include <cuda_runtime.h>
namespace ptx {{ uint32_t shared_address(const void*); }}
namespace single {{ {layout} }} }}
constexpr bool equal() {{
  for (uint32_t at = 0; at < 227 * 1024; at += 1024) {{
    for (int rows : {{64, 128}}) {{
      const uint64_t d = layout::k_major_descriptor(at);
      if (single::layout::k_major_descriptor(at) != d) return false;
      if (single::layout::mn_major_descriptor(at, rows) != layout::mn_major_descriptor(at, rows)) return false;
      for (int i = 0; i < 8; i++) {{
        if (single::layout::advance(d, single::layout::k_major_step(rows, i)) !=
            layout::advance(d, layout::k_major_step(rows, i))) return false;
        if (single::layout::mn_major_step(i) != layout::mn_major_step(i)) return false;
      }}
    }}
  }}
  return true;
}}
static_assert(equal());
""")
        self.run_script("g++", "-std=c++20", "-fsyntax-only", f"-I{ROOT}", "-isystem", ROOT / "common/emulator/include", code, code=0)

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
