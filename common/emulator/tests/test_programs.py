"""The programs of examples/, and what leads a CUDA file of a reader's own to the emulator.

Usage: test_programs.py FOLDER SUFFIX  runs the examples (FOLDER/NAME + SUFFIX) and looks for each number that their
                                       comments name in the counts that they print; tries the translator
       test_programs.py --command      scripts/fa emulate with a file outside of the checkout
       test_programs.py --compile      compiles the examples with nvcc, by the command that their comments name
"""

import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests"))

from tool_test import ROOT, find_nvcc, run

from fa_tools.for_readers import emulate, single
from fa_tools.for_readers.emulate import cuda_source

MODE = sys.argv[1]
SUFFIX = sys.argv[2] if len(sys.argv) > 2 else ""
EXAMPLES = sorted((ROOT / "examples").glob("*.cu"))

# A number of an example's comment: (kernel, kind, column), column 0 being the requests.
COUNTS = {
    "reduction": [("sum_tree", "barrier", 0, 2048), ("sum_shuffle", "barrier", 0, 256)],
    "transpose": [("transpose<32>", "shared load", 1, 16384), ("transpose<33>", "shared load", 1, 512)],
    "softmax_row": [("softmax_three", "exp2", 0, 98304), ("softmax_online", "exp2", 0, 150528)],
    "scan": [("scan_lookback", "global atomic", 0, 95)],
    "tiled_gemm": [("gemm_tile", "shared load", 0, 131072), ("gemm_register", "shared load", 0, 81920)],
    "histogram": [("histogram_shared", "shared atomic", 1, 33735), ("histogram_copies", "shared atomic", 1, 12567)],
    "one_wgmma": [("one_wgmma", "wgmma", 0, 8)],
    "mma_sync": [("product_fma", "shared load", 0, 128), ("product_mma", "ldmatrix", 0, 2)],
    "bulk_copy": [("doubled_by_threads", "global load", 0, 256), ("doubled_by_tma", "tma store", 0, 2)],
}


# What an instruction makes of its operands, by hand: its text, the operands' constraints, their values in C++ (the first is the
# result's), and the result. Floating-point results are compared by their bits.
PTX = [
    ("add.u32 %0, %1, %2;", "rr", "0xffffffffu 2", "1"),
    ("sub.s64 %0, %1, 5;", "l", "3ll", "-2"),
    ("mul.hi.u32 %0, %1, %2;", "rr", "0x80000000u 6", "3"),
    ("mul.lo.s32 %0, %1, %2;", "rr", "-7 6", "0xffffffd6"),
    ("mul.wide.s32 %0, %1, %2;", "l=rr", "-2 0x40000000", "0xffffffff80000000"),
    ("mad.lo.u32 %0, %1, %2, %3;", "rrr", "3 4 5", "17"),
    ("mad.wide.u16 %0, %1, %2, 1;", "r=hh", "(unsigned short)65535 (unsigned short)2", "131071"),
    ("div.s32 %0, %1, %2;", "rr", "-7 2", "0xfffffffd"),
    ("rem.u32 %0, %1, %2;", "rr", "17 5", "2"),
    ("min.s32 %0, %1, %2;", "rr", "-1 1", "0xffffffff"),
    ("max.u32 %0, %1, %2;", "rr", "0xffffffffu 1", "0xffffffff"),
    ("abs.s32 %0, %1; neg.s32 %0, %0;", "r", "-5", "0xfffffffb"),
    ("and.b32 %0, %1, 0xf0; or.b32 %0, %0, 1; xor.b32 %0, %0, 3; not.b32 %0, %0;", "r", "0x33", "0xffffffcd"),
    ("shl.b32 %0, %1, %2;", "rr", "1 32", "0"),
    ("shr.s32 %0, %1, %2;", "rr", "-8 40", "0xffffffff"),
    ("shr.u32 %0, %1, 4;", "r", "0x80000000u", "0x08000000"),
    ("shf.l.wrap.b32 %0, %1, %2, 40;", "rr", "0x12345678 0x9abcdef0", "0xbcdef012"),
    ("shf.r.clamp.b32 %0, %1, %2, 40;", "rr", "1 0x9abcdef0", "0x9abcdef0"),
    ("lop3.b32 %0, %1, %2, %3, 0xea;", "rrr", "0xc 0xa 0x1", "0x9"),
    ("prmt.b32 %0, %1, %2, 0xf421;", "rr", "0x11223344 0x80667788", "0xff882233"),
    ("popc.b32 %0, %1;", "r", "0xf0f0u", "8"),
    ("clz.b64 %0, %1;", "r=l", "1ll", "63"),
    ("brev.b32 %0, %1;", "r", "1", "0x80000000"),
    ("bfe.s32 %0, %1, 4, 4;", "r", "0xf0", "0xffffffff"),
    ("bfe.u32 %0, %1, 4, 8;", "r", "0xabcd", "0xbc"),
    ("bfi.b32 %0, %1, %2, 8, 4;", "rr", "0xf 0x12345678", "0x12345f78"),
    ("dp4a.s32.u32 %0, %1, %2, %3;", "rrr", "0xff01ff01 0x02030405 10", "12"),
    ("{ .reg .pred p, q; setp.eq.u32 p, 1, 1; setp.lt.and.s32 p|q, %1, %2, p; selp.b32 %0, 10, 20, p; @q add.u32 %0, %0, 1; @!q add.u32 %0, %0, 2; }",
     "rr", "-1 1", "12"),
    ("{ .reg .pred p; setp.ltu.f32 p, %1, %2; selp.u32 %0, 1, 0, p; }", "r=ff", "NAN 1.0f", "1"),
    ("set.gt.u32.f32 %0, %1, 0f3F800000;", "r=f", "2.0f", "0xffffffff"),
    ("mov.b64 {%0, _}, %1;", "r=l", "0x1122334455667788ll", "0x55667788"),
    ("mov.b32 %0, {%1, %2};", "r=hh", "(unsigned short)1 (unsigned short)2", "0x20001"),
    ("add.f32 %0, %1, %2;", "ff", "1e8f 1.0f", "1e8f"),
    ("add.rp.f32 %0, %1, %2;", "ff", "1.0f 1e-10f", "0x1.000002p0f"),
    ("add.ftz.f32 %0, %1, %2;", "ff", "1e-40f 0.0f", "0.0f"),
    ("fma.rn.f32 %0, %1, %1, %2;", "ff", "0x1.000002p0f -1.0f", "0x1p-22f"),
    ("mul.sat.f32 %0, %1, %2;", "ff", "3.0f 2.0f", "1.0f"),
    ("max.f32 %0, %1, %2;", "ff", "NAN -1.0f", "-1.0f"),
    ("min.f32 %0, %1, 0.5;", "f", "2.0f", "0.5f"),
    ("div.rn.f64 %0, %1, %2;", "dd", "1.0 3.0", "1.0 / 3.0"),
    ("add.f16x2 %0, %1, %2;", "rr", "0x3c003c00 0x40004400", "0x42004500"),
    ("fma.rn.bf16x2 %0, %1, %2, %1;", "rr", "0x3f803f80 0x40004040", "0x40404080"),
    ("max.bf16x2 %0, %1, %2;", "rr", "0x3f80bf80 0x4000c000", "0x4000bf80"),
    ("ex2.approx.ftz.f32 %0, %1;", "f", "-3.0f", "0.125f"),
    ("ex2.approx.f32 %0, %1;", "f", "-140.0f", "0x1p-140f"),
    ("rcp.approx.ftz.f32 %0, %1;", "f", "4.0f", "0.25f"),
    ("sqrt.rn.f32 %0, %1;", "f", "2.0f", "sqrtf(2.0f)"),
    ("cvt.rn.f16.f32 %0, %1;", "h=f", "65519.0f", "0x7bff"),
    ("cvt.f32.f16 %0, %1;", "f=h", "(unsigned short)0x3c01", "0x1.004p0f"),
    ("cvt.rn.bf16x2.f32 %0, %1, %2;", "r=ff", "1.0f 2.0f", "0x3f804000"),
    ("cvt.rn.relu.f16x2.f32 %0, %1, %2;", "r=ff", "-1.0f 2.0f", "0x00004000"),
    ("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;", "h=ff", "1.0f -500.0f", "0x38fe"),
    ("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;", "h=ff", "1.125f INFINITY", "0x3c7b"),
    ("cvt.rn.satfinite.relu.e4m3x2.f32 %0, %1, %2;", "h=ff", "-1.0f 0.5f", "0x0030"),
    ("cvt.rn.satfinite.e5m2x2.f16x2 %0, %1;", "h=r", "0x3c00c400", "0x3cc4"),
    ("cvt.rn.f16x2.e4m3x2 %0, %1;", "r=h", "(unsigned short)0x7fb8", "0x7fffbc00"),
    ("cvt.rn.f16x2.e5m2x2 %0, %1;", "r=h", "(unsigned short)0xfc01", "0xfc000100"),
    ("cvt.rzi.s32.f32 %0, %1;", "r=f", "-2.9f", "0xfffffffe"),
    ("cvt.rni.u8.f32 %0, %1;", "r=f", "300.0f", "255"),
    ("cvt.rni.s32.f32 %0, %1;", "r=f", "2.5f", "2"),
    ("cvt.rn.ftz.f32.f64 %0, %1;", "f=d", "1e-5", "1e-5f"),
    ("cvt.rzi.s32.f64 %0, %1;", "r=d", "(double)NAN", "0x80000000"),
    ("mov.f32 %0, 0d3FF8000000000000;", "f=r", "0", "1.5f"),
    ("cvt.sat.s8.s32 %0, %1;", "r", "-300", "0xffffff80"),
    ("cvt.u8.u32 %0, %1;", "r", "300", "44"),
    ("{ .reg .b128 w; .reg .b64 h; mov.b128 w, {%1, %2}; mov.b128 {_, h}, w; mov.b64 %0, h; }", "ll", "5ll 6ll", "6"),
    ("cvt.s64.s32 %0, %1;", "l=r", "-1", "-1"),
    ("cvt.rn.f32.u64 %0, %1;", "f=l", "1ull << 40", "0x1p40f"),
    ("cvt.rna.tf32.f32 %0, %1;", "r=f", "0x1.002p0f", "0x3f802000"),
    ("{ .reg .u32 c, n; mov.u32 c, %%clusterid.x; mov.u32 n, %%nclusterid.y; add.u32 %0, c, n; }", "r", "0", "1"),
    ("{ .reg .u32 t<2>; .reg .pred p; mov.u32 t0, 0; mov.u32 t1, %1; MORE: add.u32 t0, t0, t1; sub.u32 t1, t1, 1; setp.ne.u32 p, t1, 0; "
     "@p bra MORE; mov.u32 %0, t0; } // a loop", "r", "4", "10"),
]
KINDS = {"h": "unsigned short", "r": "unsigned", "l": "long long", "f": "float", "d": "double"}


def counts(output, kernel, kind):
    """The numbers in one line of a kernel's table."""
    table = output.split(f"\n{kernel}, by kind of instruction\n")[1].split("\n\n")[0]
    line = next(line for line in table.splitlines() if line.startswith(f"{kind} "))
    return [int(number.replace(",", "")) for number in re.findall(r"(?<![\d.])\d[\d,]*(?![\d.,]| k| M)", line[len(kind):])]


class Examples(unittest.TestCase):
    def output(self, name, *arguments, code=0):
        # Neither the number of threads nor the order of lanes changes what is printed.
        outputs = set()
        for options in ("threads=1", "threads=3"):
            done = subprocess.run([Path(MODE) / f"{name}{SUFFIX}", *arguments], capture_output=True, text=True,
                                  cwd=ROOT, env={**os.environ, "FA_EMULATOR": options}, timeout=120)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            outputs.add(done.stdout + done.stderr)
        self.assertEqual(len(outputs), 1)
        return outputs.pop()

    def test_each_is_right_and_counts_what_its_comment_says(self):
        self.assertEqual([path.stem for path in EXAMPLES], sorted(COUNTS))
        for path in EXAMPLES:
            with self.subTest(path.stem):
                output = self.output(path.stem)
                self.assertIn("right\n", output)
                comment = path.read_text().split("#include")[0]
                for kernel, kind, column, number in COUNTS[path.stem]:
                    self.assertEqual(counts(output, kernel, kind)[column], number)
                    if path.stem != "scan":
                        self.assertIn(f"{number:,}", comment)

    def test_strides_of_one_wgmma(self):
        """S is Q, so each wrong element says which one a descriptor of other strides has read."""
        for words, sources in (
                ("plain 128 256", []), ("swizzled 16 1024", []), ("swizzled 4096 1024", []),  # the last: LBO is not looked at
                ("swizzled 16 128", [f"S[{8 * i}][{d}] is Q[{i}][{d}]" for i in range(8) for d in (0, 8)]),
                ("plain 256 128", ["S[0][0] is Q[0][0]", "S[0][8] is Q[8][0]", "S[8][0] is Q[0][8]", "S[56][8] is Q[32][8]"]),
                # V: LBO leads along the depth, too, but not where there is a swizzle.
                ("mn-plain 128 256", []), ("mn-swizzled 2048 1024", []),
                ("mn-plain 256 128", ["O[0][64] is V[0][32]", "O[8][0] is V[0][8]", "O[8][64] is V[0][40]"]),
                ("mn-swizzled 1024 2048", ["O[0][64] is V[8][0]", "O[8][0] is V[0][64]", "O[8][64] is V[8][64]"]),
                ("mn-swizzled 16 1024", ["O[0][64] is V[0][8]", "O[8][0] is V[8][0]"])):  # LBO is looked at
            with self.subTest(words):
                output = self.output("one_wgmma", *words.split(), code=1 if sources else 0)
                of_v = words.startswith("mn")
                wrong = 0 if not sources else 896 if not of_v else 1920 if "plain" in words else 1024
                self.assertIn(f"{wrong} of {2048 if of_v else 1024} elements are wrong\n", output)
                self.assertEqual(output.count("] is "), (4 if of_v else 16) if sources else 0)
                for source in sources:
                    self.assertIn(source, output)
        self.assertIn("outside the SharedStorage", self.output("one_wgmma", "mn-swizzled", "2048", "4096", code=1))
        for words in ("swizzled", "swizzled 16 1000", "twisted 16 1024", "plain 128 -256", "plain 128 262144"):
            self.assertIn("usage: one_wgmma", self.output("one_wgmma", *words.split(), code=2))

    def test_the_copy_without_a_fence_is_reported(self):
        self.assertIn("Missing: fence.proxy.async in the thread that stores", self.output("bulk_copy", "unfenced", code=1))

    def test_the_scan_by_flags_without_a_fence_is_reported(self):
        output = self.output("scan", "unfenced", code=1)
        self.assertIn("Missing: a __threadfence() between the first and that atomic.", output)
        self.assertIn("examples/scan.cu:", output)


class Translator(unittest.TestCase):
    def test_operands_of_asm_that_are_not_there(self):
        kernel = '__global__ void f(int* x) {\n  asm("mov.b32 %%0, 1;" : %s(x[0]));\n}\n'
        self.assertEqual(self.refusal(kernel % '"=q"'),
                         'my.cu:2: the emulator has no operands of 128 bits ("q") in asm(): give it two of 64 bits ("l")')
        self.assertEqual(self.refusal(kernel % '[d] "=r"'),
                         "my.cu:2: operands of inline PTX have no names: the text calls them %0, %1 and so on")

    def translate(self, text, defines=(), **headers):
        with tempfile.TemporaryDirectory() as folder:
            for name, contents in headers.items():
                (Path(folder) / f"{name}.cuh").write_text(contents, **cuda_source.BYTES)
            source = Path(folder) / "my.cu"
            source.write_text(text, **cuda_source.BYTES)
            cuda_source.translate(source, Path(folder) / "out" / "my.cpp", defines=defines)
            made = sorted((Path(folder) / "out").iterdir())
            return "".join(path.read_text(**cuda_source.BYTES) for path in made)

    def refusal(self, text):
        with self.assertRaises(cuda_source.Refused) as caught:
            self.translate(text)
        return re.sub(r"^.*my\.cu", "my.cu", str(caught.exception))

    def test_lines_stay(self):
        text = "__global__ void f() {\n  __shared__ int\n    a[2],\n    b;\n  here(a, b);\n}\nint main() {\n  f<<<1,\n  2>>>();\n  there();\n}\n"
        lines = self.translate(text).splitlines()
        first = next(i for i, line in enumerate(lines) if line.startswith("#line")) + 1
        self.assertIn("here(a, b);", lines[first + 4])
        self.assertIn("there();", lines[first + 9])

    def test_comments_and_strings_are_left_alone(self):
        text = 'const char* a = "x<<<1, 2>>>(); __shared__ int b;";  // __shared__ int c; f<<<1, 2>>>();\nauto r = R"(asm)";\n'
        self.assertIn(text, self.translate(text))

    def test_bytes_of_other_encodings_stay(self):
        latin = b'// Grazer Universit\xe4t\n#define D "40\xb0"\nconst char* a = "\xfc";\n'.decode(**cuda_source.BYTES)
        made = self.translate('#include "kernel.cuh"\n' + latin, kernel=latin)
        self.assertEqual(made.count(latin), 2)
        self.assertEqual(self.refusal("\0i\0n\0t"), "my.cu (it is UTF-16 or no text)")

    def test_macros_of_the_command_line(self):
        """Branches that they leave out are not read, until the program defines them otherwise; other macros the compiler knows."""
        text = ("#if defined(SMALL) && N == 64\nint yes;\n#else\ncudaGraph_t no;\n#endif\n#include \"a.cuh\"\n#undef N\n#define N 1\n#include \"a.cuh\"\n"
                "#if N == 64\nint open;\n#endif\n#ifdef N2\nint other;\n#endif\nKERNEL void f() { SAY(\"\"); __syncthreads(); }\nvoid g() { LAUNCH(NULL); }\n")
        made = self.translate(text, ["SMALL", "N=64", "KERNEL=__global__", "SAY(x)=printf(x)", "LAUNCH(x)=f<<<1, 2>>>(x)"],
                              a="#if N == 64\nint first;\n#else\nint second;\n#endif\n")
        for part in ("#define SMALL 1\n#define N 64\n", "#define SAY(x) (::emu::print)(x)\n", "#define LAUNCH(x) ::emu::Launch(", "LAUNCH(::emu::null)",
                     "#if N == 64\nint open;", "#ifdef N2\nint other;", "#if N == 64\nint first;\n#else\nint second;", "#if N == 64\nint first;\n#else\n\n"):
            self.assertIn(part, made)
        with self.assertRaisesRegex(cuda_source.Refused, r"my\.cu:4: the emulator has no graphs"):
            self.translate(text, ["SMALL"], a="")

    def test_literals_are_within_the_call(self):
        unused = "[[maybe_unused]] auto&"
        for call, made in (
                ("k<<<1, 2>>>(NULL, f<0, 1>(x), {1, {2}})", f"([&]({unused} fa_0) {{ k(NULL, fa_0, {{1, {{2}}}}); }}, f<0, 1>(x))"),
                ("k<<<1, 2>>>(0)", "([&]() { k(0); })"),
                ("k<<<1, 2>>>({v[0], {.n = next(), .m = -1}, }, x)",
                 f"([&]({unused} fa_0, {unused} fa_1, {unused} fa_2) {{ k({{fa_0, {{.n = fa_1, .m = -1}}, }}, fa_2); }}, v[0], next(), x)"),
                ("k<<<1, 2>>>(a < 3, b > 4, NULL)", f"([&]({unused} fa_0, {unused} fa_1) {{ k(fa_0, fa_1, NULL); }}, a < 3, b > 4)"),
                ("k<<<1, 2>>>(0, rest...)", f"([&]({unused}... fa_0) {{ k(0, fa_0...); }}, rest...)"),
                ("k<<<1, 2>>>(0, ##__VA_ARGS__)", f"([&]({unused}... fa_0) {{ k(0, fa_0...); }}, ##__VA_ARGS__)"),
                ("k<<<1, 2>>>(rest..., a, 0)", f"([&]({unused}... fa_arguments) {{ k(fa_arguments...); }}, rest..., a, 0)")):
            with self.subTest(call):
                self.assertIn(made, self.translate(f"void h() {{ {call}; }}\n"))
                self.assertIn(made, self.translate(f"#define RUN(...) {call}\n"))

    def test_kernels_that_are_values(self):
        for kernel, name in (("table[i]", "table[i]"), ("(*all->at(2).k)", ""), ("p->list[2].k", "p->list[2].k"), ("pick<2>(1)", "pick<2>(1)"),
                             ("a::b<int>", ""), ("return k", ""), ("return (k)", ""), ("x.y(1)[2]", "x.y(1)[2]"), ("own", "own")):
            with self.subTest(kernel):
                made = self.translate(f"struct A {{ void (*own)(int); }};\nvoid h() {{ {kernel}<<<1, 2>>>(); }}\n")
                word, _, plain = kernel.rpartition("return ")
                self.assertIn(f'{{ {word}{_}::emu::Launch("{name or plain}"', made)
                self.assertIn(f"[&, fa_kernel = {name}]" if name else "[&](", made)
                self.assertIn(f"{name and 'fa_kernel' or plain}(fa_arguments...)", made)

    def test_variables_of_the_host_named_like_coordinates(self):
        device = "__global__ void f() { each([&](int i) { x[blockDim.x]; }); }\n"
        for text, renamed in (
                ("int main() { dim3 blockDim(16, 16), gridDim(n / blockDim.x); f<<<gridDim, blockDim>>>(); }", 5),
                ("void h(dim3 blockDim, const dim3& gridDim) { f<<<gridDim, blockDim>>>(); }", 4),
                ("struct Shape { uint3* blockDim; };\nvoid h(Shape s) { f<<<1, *s.blockDim>>>(); }", 2),
                ("__device__ void f() { use(1, blockDim.x); }\nvoid h() { auto threadIdx = 1; g([] __device__ () { threadIdx.x; }); }", 1),
                ("#define KERNEL __global__\nKERNEL void g() { int x = blockDim.x, gridDim; }\nvoid h() { use(dim3(1, blockDim.x)); }", 0),
                ("class A {\n  void g() { f<<<gridDim, blockDim>>>(); }\n  void h();\n private: dim3 gridDim, blockDim;\n};\nvoid A::h() { f<<<gridDim, 1>>>(); }", 5),
                ("void h() { auto [gridDim, blockDim] = shape(1); f<<<gridDim, blockDim>>>(); }", 4),
                ("void h() {\n  for (int blockDim = 0; blockDim < 2; blockDim++) for (int gridDim = 0; gridDim < 2; gridDim++) use(blockDim, gridDim);\n  use();\n}", 8),
                ("__device__ int g(int* x, int gridDim) { return x[gridDim + blockDim.x]; }", 2)):
            with self.subTest(text):
                made = self.translate(device + text + "\n")
                self.assertIn(device, made)
                self.assertEqual(len(re.findall(r"\bfa_(?:block|grid)Dim\b|\bfa_threadIdx\b", made)), renamed)

    def test_operators_in_a_launch_stay_whole(self):
        made = self.translate("void h(int n) { k<int, (2 > 1)><<<(n + 1) >> 1, n == 2 ? 1 : 2, n << 2>>>(n >= 1, p->q); }\n")
        self.assertIn('Launch("k<int, (2>1)>", (n + 1) >> 1, n == 2 ? 1 : 2, n << 2)', made)
        self.assertIn('Launch("k<signed char, 2>", ', self.translate("void h() { k<signed char , 2><<<1, 2>>>(); }\n"))
        self.assertIn("n >= 1, p->q)", made)

    def test_formatters_put_spaces_into_a_launch(self):
        self.assertIn('Launch("k", 1, 2', self.translate("void h() { k << <1, 2 >> > (x); }\n"))
        for text in ("void h() { operator<< <int>(out, x); }\n", "void h() { operator << <int>(out, x); }\n"):
            self.assertIn(text, self.translate(text))

    def test_functions_are_no_variables(self):
        text = "__device__ int f(int x);\ntemplate <int N> __device__ __forceinline__ float g() { return N < 3; }\n"
        self.assertIn(text, self.translate(text))

    def test_headers_beside_the_file_are_translated(self):
        made = self.translate('#include "kernel.cuh"\n', kernel="__global__ void f() { __shared__ int a; }\n")
        self.assertIn("shared_variable", made)
        self.assertNotIn("#pragma once", made)  # a list of X(name) is included several times
        self.assertNotIn("\ufeff", self.translate("\ufeffint a;\n"))  # Windows begins a file with it

    def test_what_a_header_defines_is_known_behind_it(self):
        header = "#define HD __host__ __device__\nHD int pow(int a, V b) { return a; }\n#define log(...) note(__VA_ARGS__)\n"
        text = ("HD int f() {\n#ifdef __CUDA_ARCH__\n  return pow(1, V());\n#else\n  return exp(2);\n#endif\n}\n"
                'int main() { auto tan = [](int) {}; tan(1); log(1); printf("1"); }\n')
        made = self.translate('#include "kernel.cuh"\n' + text, kernel=header)
        self.assertIn("#if 1\n  return pow(1, V());", made)
        self.assertIn('tan(1); log(1); (::emu::print)("1");', made)
        self.translate('#if 0\n#include "kernel.cuh"\n#endif\n', kernel="texture<int> x;")

    def test_macros_that_launch(self):
        made = self.translate("#define RUN(g) \\\n  k<<<g, 32>>>()\n#define ANY(f, ...) f<<<1, 2>>>(__VA_ARGS__)\nvoid h() { RUN(2); }\n")
        self.assertIn('emu::Launch("k", g, 32)', made)
        self.assertIn("emu::Launch(#f, 1, 2)", made)

    def test_kernels_that_are_arguments_of_templates_have_their_names(self):
        made = self.translate("template <int N, auto kKernel> void run(int auto_x) { kKernel<<<1, N>>>(); k<<<1, 2>>>(); }\n")
        self.assertIn("Launch(::emu::kernel_name<kKernel>(), 1, N)", made)
        self.assertIn('Launch("k", 1, 2)', made)

    def test_what_nvcc_alone_compiles_is_left_out(self):
        for condition, other in (("#ifdef __CUDACC__", "#else"), ("#if defined(__CUDACC__) && FAST", "#else"),
                                 ("#if __CUDA_ARCH_LIST__ >= 900", "#elif !defined __CUDA_ARCH_LIST__"),
                                 ("#if 1 && (!defined(__NVCC__) || __CUDACC_VER_MAJOR__ > 11)\nint x;\n#elif FAST", "#else")):
            text = f'{condition}\n#include <cuda.h>\n#if A\nasm("bar.sync 0;");\n#endif\n{other}\nint b;\n#endif\nint c;\n'
            with self.subTest(condition):
                made = self.translate(text)
                self.assertNotIn("asm", made)
                self.assertNotIn("cuda.h", made)
                self.assertEqual("int b;" in made, "int x" not in text)
                lines = made[made.index("#line"):].splitlines()
                self.assertEqual(lines.index("int c;"), text.splitlines().index("int c;") + 1)
        for condition in ("#ifndef __CUDACC__", "#if FAST", "#if FAST || defined(__CUDACC__)", "#if !__CUDA_ARCH__"):
            with self.subTest(condition):
                self.assertIn("my.cu:2: the emulator has no textures", self.refusal(f"{condition}\nsurface<void> s;\n#endif\n"))

    def test_the_architecture_is_defined_in_device_code_alone(self):
        """Of each text the numbers that the compiler sees, which a kernel's or the host's branches hold."""
        both = "#if __CUDA_ARCH__ >= 800\n1;\n#elif defined(__CUDA_ARCH__)\n2;\n#else\n3;\n#endif\n"
        for text, kept in (
                (f"__global__ void f() {{\n{both}}}\n", "1"), (f"void f() {{\n{both}}}\n", "3"),
                (f"void f() {{\n  each([=] __device__ (int i) {{\n{both}}});\n{both}}}\n", "1 3"),
                (f"#define HD __host__ __device__\nHD void f() {{\n{both}}}\nint main() {{\n{both}}}\n", "1 3"),
                (f"struct A {{\n__device__ void f() {{\n{both}}}\nvoid h() {{\n{both}}}\n}};\n", "1 3"),
                ("#ifdef __CUDA_ARCH__\nint a[1];\n#else\nint a[2];\n#endif\n", "1"),
                ("#ifndef __CUDA_ARCH__\nint main() { return 1; }\n#endif\n", "1"),
                ("#if __CUDA_ARCH__ < 600\n__device__ int atomicAdd() { return 1; }\n#endif\nint a[2];\n", "2"),
                ("#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700\n#error 1\n#endif\n", ""),
                ("#if __CUDA_ARCH__ >= 800\nvoid f() { 1;\n#else\nvoid f() { 2;\n#endif\n" + both + "}\n", "1 3")):
            with self.subTest(text):
                made = self.translate(text)
                self.assertEqual(made.count("\n"), self.translate("").count("\n") + text.count("\n"))
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder) / "made.cpp"
                    path.write_text(made[made.index("#line"):].split("\n", 1)[1])
                    seen = subprocess.run(["g++", "-E", "-P", path], capture_output=True, text=True, check=True, timeout=60).stdout
                self.assertEqual(re.findall(r"(?<!\w)\d(?!\w)", seen), kept.split())
        self.assertIn("f() { return 900; }", self.translate("__device__ int f() { return __CUDA_ARCH__; }\n"))
        self.assertIn("#if FAST && 900 > 1", self.translate("__device__ int f() {\n#if FAST && __CUDA_ARCH__ > 1\n#endif\n}\n"))

    def test_calls_and_launches_that_are_right(self):
        kernel = "__global__ void f(int a) { f2(a); }\n"
        for text in (kernel + "void f(float* a) { f<<<1, 2>>>(3); }\nint main() { f(nullptr); }\n",
                     "KERNEL void f() {}\nint main() { f<<<1, 2>>>(); }\n", "template <class T> KERNEL void f(T) {}\nint main() { f<<<1, 2>>>(3); }\n", "void h(void (*k)(int)) { k<<<1, 2>>>(1); }\n",
                     kernel + "int main() { my::f(1); x.f(1); y->f(1); auto g = f; g<<<1, 2>>>(1); run(f, 1); }\n",
                     "#define D __device__\n" + kernel + "struct A { A(int x) : x(x) {} int x; };\nvoid h() { int x; A f(1); }\n"):
            with self.subTest(text):
                self.assertIn("int main()" if "main" in text else "void h(", self.translate(text))

    def test_macros_and_headers_that_are_not_used(self):
        run = "do { static ::emu::InlinePtx fa_ptx; fa_ptx.run(::emu::SourceLocation::current(), "
        for text, made in (
                ('asm volatile("a" : "=r"(x), "+f"(y[0]) : "l"(p), "n"(N) : "memory");', run + '"a" , { ::emu::asm_output("=r", (x)), '
                 '::emu::asm_output("+f", (y[0])) ,  ::emu::asm_input("l", (p)), ::emu::asm_input("n", (N)) ,  "memory"}); } while (0);'),
                ('__asm__ __volatile__("a"\n "b" ::: "memory");', run + '"a"\n "b" , { "memory"}); } while (0);'),
                ('asm("a" : : "r"(x));', run + '"a" , {  ::emu::asm_input("r", (x))}); } while (0);'),
                ('asm("a");', run + '"a"); } while (0);')):
            with self.subTest(text):
                self.assertIn(re.sub(" +", "", made), re.sub(" +", "", self.translate(f"__global__ void f() {{ {text} }}\n")))
                self.assertIn(text, self.translate(f"void f() {{ {text} }}\n"))  # the host's is a CPU's
                self.assertIn(re.sub("[ \n]+", "", made), re.sub("[ \n]+", "", self.translate("#define A(x) " + text.replace("\n", "\\\n") + "\n")))
        made = self.translate('#define A(...) asm volatile(__VA_ARGS__)\n#define B(x) "+f"(x), "+f"(x)\n__device__ void f() { A("b" : B(x) :: "memory"); }\n')
        self.assertIn('A("b" , { B(x) ,  "memory"});', made)
        self.assertIn('B(x) ::emu::asm_output("+f", (x)), ::emu::asm_output("+f", (x))\n', made)
        for text in ('#define A(x) asm volatile("rdtsc" : "=a"(x))\n', '__host__ __device__ void f() {\n#ifndef __CUDA_ARCH__\nasm("rdtsc");\n#endif\n}\n'):
            self.assertNotIn("InlinePtx", self.translate(text))
        text = 'inline int f() { asm volatile("rdtsc"); }\n'
        self.assertIn(text, self.translate(text))
        for header in ("cub/cub.cuh", "thrust/sort.h", "cufft.h", "curand.h", "helper_math.h", "cuda_fp4.h"):
            self.assertNotIn(header, self.translate(f"#include <{header}>\nint a;\n"))
        for header in ("cuda.h", "cuda_runtime_api.h", "device_launch_parameters.h", "cuda_profiler_api.h"):
            self.assertIn("#include <cuda_runtime.h>\nint a;", self.translate(f'#include "{header}"\nint a;\n'))

    def test_names_that_only_begin_like_what_is_not_there(self):
        text = "void f() { clock_gettime(0, &t); clockwise(); asmooth(); meshSurfaces_2D(); clock_t now = clock(); }\n"
        self.assertIn(text, self.translate(text))

    def test_what_is_not_there_says_so_with_its_line(self):
        for text, words in (
                ("cudaGraphicsResource* r;", "the emulator draws nothing, so cudaGraphicsResource is not there"),
                ("cudaIpcMemHandle_t h;", "the emulator's memory is that of one process, so cudaIpcMemHandle_t is not there"),
                ("void f() { cudaCreateTextureObject(&t); }", "no textures and surfaces (cudaCreateTextureObject())"),
                ("__global__ void f() { float x = tex2D<float>(t, 1, 2); }", "no textures"),
                ("__global__ void g();\n__global__ void f() { g<<<1, 1>>>(); }", "my.cu:2: kernels cannot launch kernels"),
                ("__shared__ int x;\n", "move x into the kernel"),
                ("extern __constant__ int x[2];\n", "define x here, or in a header"),
                ("__global__ void f(int);\nint main() {\n  f(1); }", "my.cu:3: f() is a kernel: launch it, as f<<<grid, block>>>(...)"),
                ("template <int N> __global__ void f() {}\nint main() { f<2>(); }", "my.cu:2: f() is a kernel"),
                ("int main() {\nf<<<1, 2>>>(\n#if A\n1\n#endif\n); }", "my.cu:3: the emulator cannot read #if within a launch or a declaration: put it before"),
                ("__host__ __device__ void f() {}\nint main() { f<<<1, 2>>>(); }", "my.cu:2: f() is a function and no kernel"),
                ("template <class T> T f(T x) { return x; }\nint main() { f<int><<<1, 2>>>(3); }", "my.cu:2: f() is a function and no kernel"),
                ("void f() {}\nint main() {\n  f<<<1, 2>>>(); }", "write __global__ before it, or call it without <<<>>>")):
            with self.subTest(text):
                self.assertIn(words, self.refusal(text))


class Command(unittest.TestCase):
    def runs(self, text, runs, codes, before=(), others=()):
        """The output of each run, by its arguments and exit code; the program is compiled for the first one alone. `others`
        are files by their paths."""
        outputs = []
        with tempfile.TemporaryDirectory(prefix="my files ") as folder:
            for path, contents in dict(others).items():
                (Path(folder) / path).parent.mkdir(exist_ok=True)
                (Path(folder) / path).write_text(contents)
            (Path(folder) / "mine.cu").write_text(text)
            for arguments, code in zip(runs, codes, strict=True):
                done = subprocess.run([ROOT / "scripts/fa", "emulate", *before, "mine.cu", *arguments], capture_output=True, text=True,
                                      cwd=folder, timeout=540)
                self.assertEqual(done.returncode, code, done.stdout + done.stderr)
                outputs.append(done.stdout + done.stderr)
        return outputs

    def emulate(self, text, *arguments, before=(), code=0):
        return self.runs(text, [arguments], [code], before)[0]

    def test_a_function_named_like_one_of_a_later_standard(self):
        text = ("#include <cmath>\n#include <cstdio>\n#define HALF(x) lerp(0.0f, x, 0.5f)\n"
                "template <typename T> __device__ T lerp(T from, T to, T weight) { return from + weight * (to - from) + 1; }\n"
                "__global__ void k(float* x) { *x = lerp(1.0f, 3.0f, 0.5f) + HALF(4.0f); }\nint main() {\n  float* x, y;\n"
                "  cudaMalloc(&x, 4);\n  k<<<1, 1>>>(x);\n  cudaMemcpy(&y, x, 4, cudaMemcpyDeviceToHost);\n"
                '  printf("%g and %g\\n", y, std::lerp(1.0f, 3.0f, 0.5f));\n}\n')
        self.assertIn("6 and 2\n", self.emulate(text))
        self.assertIn("6 and 2\n", self.emulate(text.replace("template <typename T> ", "").replace("T ", "float ")))

    def test_the_report_on_the_first_pages(self):
        pages = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("docs/your_own_kernel.md", "README.md")}
        program = re.search(r"(?s)```cpp\n(.*?)```", pages["docs/your_own_kernel.md"])[1]
        output = self.emulate(program, code=1)
        for name, page in pages.items():
            self.assertIn(re.search(r"(?s)```text\n\$ scripts/fa emulate mine\.cu\n(.*?)```", page)[1], output, name)

    def test_it_goes_on_after_a_report(self):
        text = ("#include <cstdio>\n__global__ void add(int* x) {\n  x[0] += threadIdx.x;\n}\n__global__ void copy(int* x, int* y) {\n"
                "  __shared__ int a[64], b[64];\n  a[threadIdx.x] = x[threadIdx.x];\n  y[threadIdx.x] = a[63 - threadIdx.x] + b[0];\n}\n"
                "int main() {\n  int *x, *y, z;\n  cudaMalloc(&x, 256);\n  cudaMalloc(&y, 256);\n  cudaMemset(x, 0, 4);\n"
                '  add<<<4, 1>>>(x);\n  copy<<<2, 64>>>(x, y);\n  cudaMemcpy(&z, x, 4, cudaMemcpyDeviceToHost);\n  printf("x is %d\\n", z);\n}\n')
        output = self.emulate(text, before=["--keep-going"], code=1)
        self.assertIn("x is 0\n", output)
        self.assertIn("data race on byte 0 of the cudaMalloc at mine.cu:12\n  store at mine.cu:3", output)
        self.assertEqual(re.findall(r"^error: (\w+)\b.*?: (data race|read of memory) ", output, re.MULTILINE),
                         [("add", "data race"), ("copy", "data race"), ("copy", "read of memory"), ("copy", "read of memory")])
        self.assertNotIn("x is", self.emulate(text, code=1))

    def test_what_goes_on_after_an_unwritten_read(self):
        text = """#include <cstdio>
__global__ void copy(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void add(float* x) { x[threadIdx.x] += 1; }
__global__ void count(int* x) { atomicAdd(x, 1); }
int main(int, char** words) {
  float *x, *y;
  cudaMalloc(&x, 256);
  cudaMalloc(&y, 256);
  switch (words[1][0]) {
    case 'n': copy<<<1, 32>>>(x, y); break;
    case 'a': count<<<1, 32>>>((int*)x); break;
    case 'o': add<<<1, 32>>>(x); break;
    case 't': cudaMemset(x, 0, 124); copy<<<1, 32>>>(x, y);
  }
  printf("ended %s\\n", words[1]);
}
"""
        nothing, atomic, now, tail = self.runs(text, [["n"], ["a"], ["o"], ["t"]], [1] * 4)
        never = "\n  Nothing has written this buffer: cudaMemset() or cudaMemcpy() to it, or go on with --keep-going.\n"
        for output in (nothing, atomic):
            self.assertIn(never, output)
            self.assertNotIn("a tile's tail", output)
        self.assertIn("\n  Write it first: a tile's tail, a row or a copy is missing.\n  Or: the index of this read is wrong.\n"
                      "  Or: before this launch nothing has written this buffer: cudaMemset() it, or go on with --keep-going.\n", now)
        self.assertIn("\n  Or: the index of this read is wrong.\n  Or: it does no harm: go on with --keep-going.\n", tail)
        gone_on = self.emulate(text, "n", before=["--keep-going"], code=1)
        self.assertIn("ended n\n", gone_on)
        self.assertIn("\n  Nothing has written this buffer: cudaMemset() or cudaMemcpy() to it.\n", gone_on)

    def test_a_loop_of_polls_is_one_wait(self):
        text = """#include <cstdint>
__global__ void k() {
  __shared__ uint64_t all;
  const uint32_t bar = uint32_t(__cvta_generic_to_shared(&all));
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 64;" ::"r"(bar) : "memory");
  __syncthreads();
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
  asm volatile("{.reg .pred p;\\nW: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\\n@!p bra W;}" ::"r"(bar) : "memory");
  for (int over = 0; !over;) {
    asm volatile("{.reg .pred p;\\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], 0;\\nselp.b32 %0, 1, 0, p;}" : "=r"(over) : "r"(bar));
  }
}
int main() {
  k<<<1, 64>>>();
  cudaDeviceSynchronize();
}
"""
        # An arrival and two waits of each warp, of which those of warp 0 or both wait at first.
        self.assertRegex(self.emulate(text), r"\nmbarrier +6 +[12] waited\n")

    def test_where_lanes_stand_is_told_by_relative_paths(self):
        text = """__global__ void part(float* x) {
  if (threadIdx.x < 16) {
    asm volatile("bar.sync 1, 32;" ::: "memory");
  } else {
    asm volatile("bar.sync 1, 32;" ::: "memory");
  }
}
__global__ void hang() {
  if (threadIdx.x < 32) asm volatile("bar.sync 1, 96;" ::: "memory");
  else asm volatile("bar.sync 2, 96;" ::: "memory");
}
int main(int n, char**) {
  if (n > 1) part<<<1, 32>>>(nullptr);
  else hang<<<1, 64>>>();
  cudaDeviceSynchronize();
}
"""
        hang, part = self.runs(text, [[], ["part"]], [1, 1])
        self.assertIn("warp 0 lanes 0-31: waits in bar.sync at mine.cu:9 (", hang)
        self.assertIn("bar.sync at mine.cu:5, but lane 0 of the same warp is in bar.sync at mine.cu:3: all lanes", part)

    def test_inline_ptx_of_fp8(self):
        """wgmma cuts its sums to 14 bits, mma.sync on 9.0 does not: it multiplies fp16."""
        text = """
#include <cstdint>
#include <cstdio>
__device__ uint64_t describe(uint32_t at) { return (at & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62; }
__global__ void f(float* out, float start, int how) {
  __shared__ alignas(1024) uint32_t s[72 * 32];
  for (int i = threadIdx.x; i < 72 * 32; i += 128) s[i] = i < 64 * 32 ? 0x38383838 : 0x3c3c3c3c;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const uint32_t at = __cvta_generic_to_shared(s), b = 0x3c3c3c3c;
  uint32_t a[4] = {0x38383838, 0x38383838, 0x38383838, 0x38383838};
  float d[4] = {start, start, start, start};
  if (how == 2) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %8}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
  } else {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    if (how == 0) {
      asm volatile("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2 {%0, %1, %2, %3}, %4, %5, 1, 1, 1;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(describe(at)), "l"(describe(at + 64 * 128)));
    } else {
      asm volatile("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(describe(at + 64 * 128)));
    }
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  out[threadIdx.x] = d[0] == d[1] && d[0] == d[2] && d[0] == d[3] ? d[0] : -1;
}
int main() {
  float *out, h[128];
  cudaMalloc(&out, 512);
  for (int how = 0; how < 3; how++) {
    for (const float start : {0.0f, 4096.75f, 16384.0f}) {
      f<<<1, 128>>>(out, start, how);
      cudaMemcpy(h, out, 512, cudaMemcpyDeviceToHost);
      int same = 0;
      for (const float x : h) same += x == h[0];
      printf("%d: %g + 32 = %.9g in %d\\n", how, start, h[0], same);
    }
  }
}
"""
        output = self.emulate(text)
        for how in (0, 1):
            self.assertIn(f"{how}: 0 + 32 = 32 in 128\n{how}: 4096.75 + 32 = 4128.5 in 128\n{how}: 16384 + 32 = 16384 in 128\n", output)
        self.assertIn("2: 0 + 32 = 32 in 128\n2: 4096.75 + 32 = 4128.75 in 128\n2: 16384 + 32 = 16416 in 128\n", output)
        self.assertIn("of wgmma the emulator knows m64nNk16 with operands of f16 and bf16, and m64nNk32 with operands of e4m3 and e5m2, ",
                      self.emulate(text.replace("m64n8k32.f32.e4m3.e5m2", "m64n8k32.f32.e4m3.f16"), code=1))
        self.assertIn("and m16n8k32 with operands of e4m3 and e5m2 and sums of f32, alone",
                      self.emulate(text.replace("m16n8k32.row", "m16n8k16.row"), code=1))

    def test_smaller_types_and_the_profiler_are_refused(self):
        text = """__global__ void k() {
  float d[4];
  unsigned a = 0;
  asm volatile("mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e2m1.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, {%4, %4}, {%0, %1, %2, %3};"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a));
}
int main() {
  k<<<1, 128>>>();
  cudaDeviceSynchronize();
}
"""
        self.assertIn("types smaller than FP8 are not in the emulator, and .e2m1 is one: e4m3 and e5m2 are", self.emulate(text, code=1))
        self.assertIn("mine.cu:2: cupti.h belongs to CUDA's profiler, which reads a GPU's counters: leave it out, as scripts/fa emulate counts itself\n",
                      self.emulate("\n#include <cupti.h>\nint main() {}\n", code=2))

    def test_a_function_of_c_that_is_one_of_cpp(self):
        call = 'extern "C" void solve(float* x);\nint main() { solve(nullptr); }\n'
        body = "__global__ void k(float* x) { *x = 1; }\n\nvoid solve(float* x) {\n  k<<<1, 1>>>(x);\n}\n"
        for main, other, expected in (
                (call, body, 'solve is declared extern "C", and other.cu:3 defines it as a function of C++: write extern "C" there, too'),
                (call[11:], 'extern "C" {\n' + body + "}\n", 'defines it as extern "C": declare it so, too'),
                (call[11:], body.replace("void solve", 'extern "C" void solve'), 'solve(float*) is declared as a function of C++, and other.cu:3 defines it'),
                (call, body.replace("void solve", "void resolve"), "solve is declared and not defined in mine.cu other.cu: name the file")):
            self.assertIn(expected, self.runs(main, [["other.cu"]], [2], others={"other.cu": other})[0])

    def test_a_mask_names_lanes_that_go_past(self):
        """No note where lanes have left before, or where a loop of theirs is shorter and nothing lies behind it."""
        text = """#include <cstdio>
__device__ __noinline__ void put(float* y, float v) { y[threadIdx.x] = v; }
__global__ void past(const float* x, float* y) {
  float v = x[threadIdx.x];
  if (threadIdx.x < 16) {
    for (int m = 8; m > 0; m /= 2) v += __shfl_xor_sync(~0u, v, m);
  }
  y[threadIdx.x] = v;
}
__global__ void votes(const float* x, float* y) {
  int all = 0;
  if (threadIdx.x != 5) all = __all_sync(~0u, x[threadIdx.x] > 0);
  y[threadIdx.x] = all;
}
__global__ void reduces(const float* x, float* y) {
  unsigned sum = 0;
  if (threadIdx.x < 24) sum = __reduce_add_sync(~0u, unsigned(x[threadIdx.x]));
  y[threadIdx.x] = sum;
}
__global__ void left(const float* x, float* y) {
  if (threadIdx.x >= 16) {
    y[threadIdx.x] = 0;
    return;
  }
  float v = x[threadIdx.x];
  for (int m = 8; m > 0; m /= 2) v += __shfl_xor_sync(~0u, v, m);
  y[threadIdx.x] = v;
}
__device__ float neighbour(float v) { return __shfl_xor_sync(~0u, v, 1); }
__global__ void behind(const float* x, float* y) {
  if (threadIdx.x >= 16) {
    y[threadIdx.x] = 0;
    return;
  }
  y[threadIdx.x] = neighbour(x[threadIdx.x]);
}
__global__ void returns(const float* x, float* y) {
  if (threadIdx.x >= 40) return;
  float v = x[threadIdx.x];
  if (threadIdx.x < 16) v = neighbour(v);
  y[threadIdx.x] = v;
}
__global__ void called(const float* x, float* y) {
  put(y, 0);
  if (threadIdx.x >= 16) return;
  put(y, __shfl_xor_sync(~0u, x[threadIdx.x], 1));
}
__global__ void loops(const float* x, float* y) {
  for (int i = threadIdx.x; i < 48; i += 32) y[i] = __shfl_xor_sync(~0u, x[i], 1);
}
__global__ void named(const float* x, float* y) {
  float v = x[threadIdx.x];
  if (threadIdx.x < 16) v = __shfl_xor_sync(0xffff, v, 1);
  y[threadIdx.x] = v;
}
int main(int, char** words) {
  float *x, *y, h[64];
  for (float& each : h) each = 1;
  cudaMalloc(&x, 256);
  cudaMalloc(&y, 256);
  cudaMemcpy(x, h, 256, cudaMemcpyHostToDevice);
  if (words[1][0] == 'p') past<<<2, 32>>>(x, y), past<<<1, 32>>>(x, y), votes<<<1, 32>>>(x, y), reduces<<<1, 32>>>(x, y), returns<<<1, 64>>>(x, y);
  if (words[1][0] == 'n') left<<<1, 32>>>(x, y), behind<<<1, 32>>>(x, y), called<<<1, 32>>>(x, y), loops<<<1, 32>>>(x, y), named<<<1, 32>>>(x, y);
  return cudaDeviceSynchronize();
}
""".replace("past<<<2", "past<<<1")
        past, none = self.runs(text, [["p"], ["n"]], [0, 0])
        undefined = "\n  CUDA leaves that undefined. Name in its mask the lanes that come, or have all come.\n"
        self.assertEqual(past.count("note: "), 4, past)
        self.assertIn("note: returns: __shfl_xor_sync() at mine.cu:29 is passed without lanes 16-31, which go past it to mine.cu:41 and end", past)
        self.assertIn("note: past: __shfl_xor_sync() at mine.cu:6 is passed without lanes 16-31, which go past it to mine.cu:8 and end" + undefined, past)
        self.assertIn("note: votes: __all_sync() at mine.cu:12 is passed without lane 5, which goes past it to mine.cu:13 and ends" + undefined, past)
        self.assertIn("note: reduces: __reduce_add_sync() at mine.cu:17 is passed without lanes 24-31", past)
        self.assertNotIn("note: ", none)

    def test_warps_at_different_barriers(self):
        """No note where warps have left before the barrier, or call one function."""
        text = """#include <cstdio>
__device__ void meet() { __syncthreads(); }
__global__ void two(float* x, int uneven) {
  __shared__ float t[64];
  t[threadIdx.x] = threadIdx.x;
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  x[threadIdx.x] = t[63 - threadIdx.x];
}
__global__ void one_more(float* x) {
  __shared__ float t[64];
  t[threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (threadIdx.x < 32) __syncthreads();
  x[threadIdx.x] = t[63 - threadIdx.x];
}
__global__ void lanes(float* x) {
  if (threadIdx.x % 32 < 16) __syncthreads();
  x[threadIdx.x] = 1;
}
__global__ void left(float* x) {
  if (threadIdx.x >= 32) {
    x[threadIdx.x] = 0;
    return;
  }
  __syncthreads();
  x[threadIdx.x] = 1;
}
__global__ void loops(float* x) {
  for (int i = threadIdx.x; i < 96; i += 64) {
    x[i] = i;
    __syncthreads();
    x[i] += 1;
  }
}
__global__ void called(float* x) {
  threadIdx.x < 32 ? meet() : meet();
  x[threadIdx.x] = 1;
}
int main(int, char** words) {
  float* x;
  cudaMalloc(&x, 512);
  if (words[1][0] == 't') two<<<2, 64>>>(x, 0), two<<<1, 64>>>(x, 0), one_more<<<1, 64>>>(x), lanes<<<1, 64>>>(x);
  if (words[1][0] == 'n') left<<<1, 64>>>(x), loops<<<1, 64>>>(x), called<<<1, 64>>>(x);
  return cudaDeviceSynchronize();
}
""".replace("two<<<2", "two<<<1")
        two, none = self.runs(text, [["t"], ["n"]], [0, 0])
        self.assertEqual(two.count("note: "), 3, two)
        self.assertIn("note: two: warp 0 waits in __syncthreads() at mine.cu:7, and warp 1 comes to __syncthreads() at mine.cu:9\n"
                      "  CUDA leaves that undefined. Have all threads of the block come to the same one.\n", two)
        behind = "\n  CUDA leaves that undefined. Have all threads of the block come to it.\n"
        self.assertIn("note: one_more: __syncthreads() at mine.cu:17 is passed without warp 1, which goes past it to mine.cu:18 and ends" + behind, two)
        self.assertIn("note: lanes: __syncthreads() at mine.cu:21 is passed without lanes 16-31, which go past it to mine.cu:22 and end" + behind, two)
        self.assertNotIn("note: ", none)

    def test_memory_of_an_mbarrier_that_holds_data(self):
        text = """#include <cstdint>
#include <cstdio>
#define INIT(at, n) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(n) : "memory")
#define INVAL(at) asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(at) : "memory")
#define WAIT(at) asm volatile("{.reg .pred p;\\nW: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\\n@!p bra W;}" ::"r"(at) : "memory")
__global__ void over(const float* x, float* y, bool load, bool fixed) {
  __shared__ alignas(128) unsigned char bytes[1024 + 16];
  const uint32_t old = uint32_t(__cvta_generic_to_shared(bytes)), bar = old + 1024;
  if (threadIdx.x == 0) {
    INIT(old, 32);
    INIT(bar, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(old) : "memory");
  WAIT(old);
  __syncthreads();
  if (fixed && threadIdx.x == 0) INVAL(old);
  __syncthreads();
  float* data = reinterpret_cast<float*>(bytes);
  if (!load) {
    data[threadIdx.x] = 31 - threadIdx.x;
  } else if (threadIdx.x == 0) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" ::"r"(bar) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];" ::"r"(old), "l"(x), "r"(bar) : "memory");
  }
  if (load) WAIT(bar);
  __syncthreads();
  y[threadIdx.x] = data[31 - threadIdx.x];
}
int main(int, char** words) {
  static float h[256];
  for (int i = 0; i < 256; i++) h[i] = 31 - i;
  float *x, *y;
  cudaMalloc(&x, 1024);
  cudaMalloc(&y, 128);
  cudaMemcpy(x, h, 1024, cudaMemcpyHostToDevice);
  over<<<1, 32>>>(x, y, words[1][0] == 'l', words[2][0] == 'f');
  cudaMemcpy(h, y, 128, cudaMemcpyDeviceToHost);
  printf("%g\\n", h[31]);
}
"""
        store, load, *fixed = self.runs(text, [["s", "-"], ["l", "-"], ["s", "f"], ["l", "f"]], [1, 1, 0, 0])
        used = ("the mbarrier at byte 0 of bytes (shared memory), initialised at mine.cu:10\n  Missing: an mbarrier.inval when nobody waits there any more, "
                "then a barrier, before its memory holds data.\n  Or: the index of this store is wrong.\n")
        self.assertIn("thread 0 (warp 0 lane 0) overwrites " + used, store)
        self.assertIn("store at mine.cu:22 by ", store)
        self.assertIn("cp.async.bulk (load) at mine.cu:26 by thread 0 (warp 0 lane 0) overwrites " + used.replace("store", "copy"), load)
        for output in fixed:
            self.assertTrue(output.startswith("31\n"), output)
    def test_where_the_first_nan_was_made(self):
        text = ("#include <cstdio>\n#include <cstdlib>\n__global__ void f(const float* x, float* y, int which) {\n"
                "  const float inf = x[0], zero = x[1], four = x[2], nan = x[3];\n  float r = 1;\n"
                "  if (blockIdx.x > 0 && threadIdx.x == 5) {\n    switch (which) {\n      case 0: r = inf - inf; break;\n      case 1: r = zero / zero; break;\n"
                "      case 2: r = sqrtf(-four); break;\n      case 3: r = logf(-four); break;\n      case 4: r = inf - inf > four ? 2 : 3; break;\n"
                "      case 5: r = int(four * 1e10f); break;\n      case 6: r = nan; break;\n      case 7: r = powf(-four, 0.5f); break;\n"
                "      case 8: r = __int_as_float(0x7fffffff); break;\n    }\n  }\n  y[blockIdx.x * 32 + threadIdx.x] = r;\n}\n"
                "int main(int, char** argv) {\n  const int which = atoi(argv[1]);\n  float *x, *y, out[128];\n"
                "  const float in[4] = {1.0f / 0, 0, 4, 0.0f / 0};\n"
                "  cudaMalloc(&x, sizeof in);\n  cudaMemcpy(x, in, sizeof in, cudaMemcpyHostToDevice);\n"
                "  if (argc_of(argv) > 2) {\n    cudaMallocManaged(&y, sizeof out);\n    f<<<4, 32>>>(x, y, which);\n    cudaDeviceSynchronize();\n"
                "    return printf(\"%g\\n\", y[37]) < 0;\n  }\n  cudaMalloc(&y, sizeof out);\n  f<<<4, 32>>>(x, y, which);\n"
                "  cudaMemcpy(out, y, sizeof out, cudaMemcpyDeviceToHost);\n  cudaMemcpy(out, y, sizeof out, cudaMemcpyDeviceToHost);\n}\n")
        text = text.replace("int main(int,", "int main(int argc,").replace("argc_of(argv)", "argc")
        made = {0: "8 {}: inf - inf.", 1: "9 {}: 0 / 0.", 2: "10 {}: sqrt(-4).", 3: "11 {}: log(-4).", 7: "15 {}: in pow() of the C library."}
        which = [0, 1, 2, 3, 4, 5, 6, 7, 8]
        for before in ((), ("--fast",), ("--threads", "1"), ("--threads", "4")):
            runs = which if len(before) < 2 else [0]
            outputs = self.runs(text, [[str(i)] for i in runs], [0] * len(runs), before)
            for i, output in zip(runs, outputs, strict=True):
                with self.subTest(before=before, which=i):
                    if i not in made:
                        self.assertNotIn("NaN", output)
                        continue
                    said = ("note: cudaMemcpy at mine.cu:35 copies NaN to the host, the first at byte 148 of the cudaMalloc at mine.cu:33\n"
                            f"  The first NaN was made at mine.cu:{made[i].format('by thread 5 (warp 0 lane 5) of CTA (1,0,0)')}\n")
                    self.assertIn(said, output)
                    self.assertEqual(output.count("NaN was made"), 1)
        managed = self.emulate(text, "1", "managed")
        self.assertIn("note: the kernels so far have left NaN to the host, the first at byte 148 of the cudaMallocManaged at mine.cu:28\n"
                      "  The first NaN was made at mine.cu:9 by thread 5 ", managed)

    def test_json_limits_and_annotations(self):
        text = """#include <cstdio>
#include <cstdlib>
__global__ void every_second(float* x) { x[2 * threadIdx.x] = 1; }
__global__ void all(float* x) { x[threadIdx.x] = 1; __syncthreads(); }
__global__ void far_away(float* x) { x[1ll << 40] = 1; }
__global__ void reads(float* x) { x[0] = x[1] + 1; }
int main(int count, char** words) {
  float* x;
  cudaMalloc(&x, 256);
  if (count == 1) every_second<<<1, 32>>>(x);
  if (count > 1) words[1][0] == 'f' ? far_away<<<1, 1>>>(x) : words[1][0] == 'r' ? reads<<<1, 1>>>(x) : void();
  cudaDeviceSynchronize();
  if (count > 1 && words[1][0] == 'a') abort();
  if (count == 1) all<<<1, 32>>>(x);
  return count > 1 ? 5 : 0;
}
"""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "found, %.json"

            def judged(code, *options, arguments=()):
                output = self.emulate(text, *arguments, before=("--json", str(path), *options), code=code)
                return output, json.loads(path.read_text())

            output, found = judged(1, "--at-most", "sectors=1.1", "--at-most", "barriers=0", "--at-most", "wavefronts=1", "--github")
            self.assertEqual([(kernel["kernel"], kernel["ratios"], kernel["counters"]["barriers"]) for kernel in found["kernels"]],
                             [("every_second", {"sectors": 2.0}, 0), ("all", {"sectors": 1.0}, 1)])
            self.assertIn({"file": "mine.cu", "line": 3, "kind": "global store", "requests": 1, "sectors": 8, "sectors_ideal": 4, "cache_lines": 2,
                           "bytes": 128, "ratios": {"sectors": 2.0}}, found["kernels"][0]["lines"])
            self.assertEqual([(each["kernel"], each["limit"], each["value"], each["most"]) for each in found["exceeded"]],
                             [("every_second", "sectors", 2.0, 1.1), ("all", "barriers", 1, 0)])
            sentence = "every_second has 2.00 sectors per ideal one, most of all at mine.cu:3; the limit is 1.1"
            self.assertIn(f"error: {sentence}\n", output)
            self.assertIn(f"::error file=mine.cu,line=3::{sentence}\n", output)
            self.assertIn("::error::all has 1 barriers; the limit is 0\n", output)
            self.assertEqual((found["file"], found["exit_code"], found["reports"]), ("mine.cu", 1, []))
            output, found = judged(0, "--at-most", "sectors=2", "--at-most", "all:sectors=1", "--at-most", "all:barriers=1")
            self.assertNotIn("error", output)
            self.assertEqual(judged(1, "--at-most", "every_second:sectors=1.9")[1]["exceeded"][0]["kernel"], "every_second")
            self.assertIn("--at-most some: no such kernel has run; there are every_second, all\n", judged(2, "--at-most", "some:sectors=1")[0])
            self.assertIn("--at-most sector: there is no such counter; there are wavefronts, sectors, ", judged(2, "--at-most", "sector=1")[0])
            output, found = judged(1, "--github", arguments=["r"])
            self.assertIn("::error file=mine.cu,line=6::reads: read of memory that nothing has written, byte 4 of the cudaMalloc at mine.cu:9%0A", output)
            self.assertEqual((found["reports"][0]["file"], found["reports"][0]["line"]), ("mine.cu", 6))
            _, found = judged(1, arguments=["f"])  # a fault, after which nothing is counted
            self.assertEqual((len(found["reports"]), found["reports"][0]["line"], found["kernels"]), (1, 5, []))
            self.assertEqual(judged(134, arguments=["a"])[1]["reports"], [{"message": "the program was ended by SIGABRT"}])
            self.assertEqual(judged(5, arguments=["x"])[1]["reports"], [])
            self.assertIn("no kernel has run", self.emulate("int main() {}", before=["--at-most", "sectors=1"], code=1))
            for options, said in ((["--at-most", "sectors"], "no limit such as sectors=1.1"), (["--at-most", "x=nan"], "no limit"),
                                  (["--json", "no/where"], "cannot write into the folder no"), (["--fast", "--github"], "--fast counts nothing")):
                self.assertIn(said, self.emulate(text, before=options, code=2))

    def test_a_load_within_a_call_has_its_line(self):
        output = self.emulate('#include <cstdio>\n__global__ void k(int* n) { atomicAdd(n, 1); if (threadIdx.x == 40) printf("%d\\n", *n); }\n'
                              "int main() { int* x; cudaMalloc(&x, 4); cudaMemset(x, 0, 4); k<<<1, 64>>>(x); }\n", code=1)
        self.assertIn("  load at mine.cu:2 by thread 40 (warp 1 lane 8)\n", output)

    def test_a_kernel_in_a_folder_of_headers_has_its_line(self):
        text = "#include <k.cuh>\nint main() { int* x; cudaMalloc(&x, 4); k<<<1, 64>>>(x); }\n"
        for folder in ("include", "common"):  # the compiler's and the emulator's own are passed over
            output, = self.runs(text, [[]], [1], ("-I", folder), {f"{folder}/k.cuh": "__global__ void k(int* n) {\n  *n = threadIdx.x;\n}\n"})
            self.assertIn(f"  store at {folder}/k.cuh:2 by thread ", output)

    def test_an_assertion(self):
        text = ("__global__ void f(int* x) {\n  struct Leave { ~Leave() {} } leave;\n%s  assert(threadIdx.x < 5);\n  x[64 * blockIdx.x + threadIdx.x] = 1;\n}\n"
                "int main() { int* x; cudaMalloc(&x, 512); f<<<2, 64>>>(x); assert(1 > 2); }\n")
        for options in ((), ("--fast",)):
            output = self.emulate(text % "", before=options, code=1)
            self.assertIn("error: f, CTA (0,0,0), thread 5 (warp 0 lane 5): mine.cu:3: assertion `threadIdx.x < 5` failed\n", output)
        output = self.emulate("#define NDEBUG\n#include <cassert>\n" + text % "  if (threadIdx.x + blockIdx.x) return;\n")
        self.assertIn("f, by kind of instruction", output)
        output = self.emulate(text % "  if (threadIdx.x + blockIdx.x) return;\n", code=-signal.SIGABRT)
        self.assertRegex(output, r"mine.cu:7: int main\(\): Assertion `1 > 2' failed.\n")

    def test_memory_that_a_kernel_must_not_touch(self):
        text = ("#include <cstdlib>\n#include <vector>\nstruct Big { int a[40]; };\n__global__ void f(int* x, Big big) {\n  %s\n}\n"
                "int main() {\n  int *x, *y, sum = 0;\n  Big big = {};\n  cudaMalloc(&x, 64);\n  cudaMemset(x, 0, 64);\n%s}\n")
        cure = ": cudaMalloc() memory for it and cudaMemcpy() it there\n"
        store, launch, at = "x[threadIdx.x] = big.a[3];", "  f<<<1, 1>>>(x, big);\n", "error: f, CTA (0,0,0), thread 0 (warp 0 lane 0)"
        for kernel, host, says in (
                (store, "  x = (int*)malloc(64);\n", f": mine.cu:5: store of 4 bytes in memory of the host{cure}"),
                ("big.a[0] = *x;\n  x[1] = big.a[0];", "  std::vector<int> v(9);\n  x = v.data();\n",
                 f": mine.cu:5: load of 4 bytes in memory of the host{cure}"),
                (store, "  x = &sum;\n", f": mine.cu:5: store of 4 bytes in a variable of the host{cure}"),
                ("atomicAdd(x, 1);", "  x = &sum;\n", f"in a variable of the host{cure}"),
                (store, "  cudaFree(x);\n", ": mine.cu:5: store of 4 bytes in the cudaMalloc at mine.cu:10 (64 bytes), which cudaFree at "
                 "mine.cu:12 has freed\n"),
                (store, "  x = nullptr;\n", ", mine.cu:5: accesses address 0, a null pointer or an index from one\n"),
                ("x[-(1ll << 43)] = 1;", "", "where nothing is: a pointer or an index is wrong\n"),
                ("x[1ll << 60] = 1;", "", "or one that no pointer has\n")):
            with self.subTest(kernel + host):
                output = self.emulate(text % (kernel, host + launch), code=1)
                self.assertIn(at, output)
                self.assertIn(says, output)
        for kernel, host, last in (
                (store, "  free(malloc(9));\n  delete new int;\n", launch), (store, "  y = x;\n  cudaMalloc(&x, 64);\n  cudaFree(y);\n", launch),
                ("*x = 2;", "  x = nullptr;\n", "  if (x) f<<<1, 1>>>(x, big);\n"), (store, "  cudaMallocHost(&x, 64);\n", launch),
                (store, "  auto k = f;\n", launch.replace("f<<<", "k<<<")), ("*x = big.a[39];", "  y = (int*)malloc(64);\n  free(y);\n", launch)):
            with self.subTest(kernel + host):
                self.emulate(text % (kernel, host + last))
        output = self.emulate(text % (store, "  cudaFree(x);\n" + launch), before=("--fast",), code=1)
        self.assertIn("accesses memory in the cudaMalloc at mine.cu:10 (64 bytes), which cudaFree at mine.cu:12 has freed\n", output)

    def test_a_wait_for_what_never_comes_ends(self):
        text = "__global__ void f(%s* x) { while (%s == 0); }\nint main() {\n  int* x; %s(&x, 4);\n  *x = 0;\n  f<<<1, 64>>>(x);\n  *x = 1;\n}\n"
        for kind, question, allocate in (("int", "atomicAdd(x, 0)", "cudaMallocManaged"), ("volatile int", "*x", "cudaMallocHost")):
            with self.subTest(question):
                output = self.emulate(text % (kind, question, allocate), code=1)
                self.assertIn("f, CTA (0,0,0): mine.cu:1: its threads have looked at memory 4194304 times in a row, and none has got anywhere\n"
                              "  It waits for what never comes? The host goes on when the launch has ended, and a later CTA\n"
                              "  begins when those before it have ended.\n", output)

    def test_a_wait_that_reads_once_ends_too(self):
        text = "__global__ void f(int* x) { while (*x == 0); }\nint main() { int* x; cudaMallocManaged(&x, 4); *x = 0; f<<<1, 1>>>(x); }\n"
        self.assertIn("mine.cu:1: has run without a word to the other threads for 0.2 s", self.emulate(text, before=["--patience", "0.2"], code=1))

    def test_another_translator_makes_another_program(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "mine.cu"
            source.write_text("int main() {}\n")
            program = emulate.compile_file(source)
            self.assertEqual(program, emulate.compile_file(source))
            with mock.patch.object(cuda_source, "__file__", str(source)):
                self.assertNotEqual(program, emulate.compile_file(source))
            how = (Path(folder), "", "", "g++ mine.o")
            (made := Path(folder) / "mine.o").write_text("")
            before = emulate.digest_of(how, []).digest()
            os.utime(made, (1, 1))
            self.assertNotEqual(before, emulate.digest_of(how, []).digest())
            (Path(folder) / "common").mkdir()
            (Path(folder) / "common" / "of_ours.h").touch()
            with mock.patch.object(emulate, "ROOT", Path(folder)):
                before = emulate.digest_of(how, []).digest()
                os.utime(Path(folder) / "common" / "of_ours.h", (1, 1))
                self.assertNotEqual(before, emulate.digest_of(how, []).digest())

    def test_the_limit_of_time_is_an_option(self):
        text = "__global__ void f(int* x) { for (int i = 0; x[1] == 0; i++) x[0] = i; }\nint main() { int* x; cudaMalloc(&x, 8); cudaMemset(x, 0, 8); f<<<1, 1>>>(x); }\n"
        self.assertIn("for 0.1 s of processor time (--patience)", self.emulate(text, before=["--patience", "0.1"], code=1))

    def test_arguments_become_what_the_kernel_takes(self):
        text = ("#include <vector>\n#define RUN(kernel, stream, ...) kernel<<<1, 1, 0, stream>>>(__VA_ARGS__)\nstruct Three { int a, b, c; };\n__global__ void f(int* x, float* y, Three t, long n) { if (!y) x[threadIdx.x] = t.c + n; }\n"
                "int main() {\n  dim3 blockDim(2, 1), gridDim(1);\n  int* x;\n  cudaMallocManaged(&x, 8);\n  std::vector v{f};\n  std::vector n{3};\n"
                "  v[0]<<<gridDim, blockDim>>>(x, NULL, {1, 2, n[0]++}, 4);\n  printf(\"%d %d\\n\", x[1], n[0]);\n  RUN(f, NULL, x, NULL, (Three{1, 2, 5}), NULL);\n"
                "  printf(\"%d\\n\", x[0]);\n}\n")
        self.assertTrue(self.emulate(text).startswith("7 4\n5\n"))

    def test_tiles_of_wmma_in_global_memory(self):
        text = """
            #include <mma.h>
            #include <cuda_fp16.h>
            using namespace nvcuda;
            __global__ void f(const half* a, const half* b, float* c) {
              wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
              wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> right;
              wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums;
              wmma::load_matrix_sync(left, a, 32);
              wmma::load_matrix_sync(right, b, 16);
              wmma::fill_fragment(sums, 0.5f);
              wmma::mma_sync(sums, left, right, sums);
              wmma::store_matrix_sync(c, sums, 16, wmma::mem_row_major);
            }
            int main(int, char** words) {
              half a[512], b[256], *x, *y;
              float c[256], *z;
              for (int i = 0; i < 512; i++) a[i] = float(i);
              for (int i = 0; i < 256; i++) b[i] = i / 16 == i % 16 ? 1.0f : 0.0f;
              int n = atoi(words[1]);
              cudaMalloc(&x, 1024), cudaMalloc(&y, 512), cudaMalloc(&z, n == 1 ? 960 : 1024);
              cudaMemcpy(x, a, n == 2 ? 512 : 1024, cudaMemcpyHostToDevice);
              cudaMemcpy(y, b, 512, cudaMemcpyHostToDevice);
              f<<<1, n == 3 ? 64 : 32>>>(x, y, z);
              cudaMemcpy(c, z, 1024, cudaMemcpyDeviceToHost);
              printf("%g %g\\n", c[0], c[16 * 15 + 3]);
            }"""
        right, beyond, unwritten, race = self.runs(text, [[str(n)] for n in range(4)], [0, 1, 1, 1])
        self.assertTrue(right.startswith("0.5 483.5\n"), right)
        # Four requests of 4 or 8 bytes per lane: 8 rows of 16 or 32 bytes each.
        self.assertRegex(right, r"\nwmma load +8 +64 +2\.00 +1024\n")
        self.assertRegex(right, r"\nwmma store +4 +32 +1\.00 +1024\n")
        self.assertIn("wmma::store_matrix_sync at mine.cu:13: a row of the 16 x 16 tile is 0 bytes past the end of the cudaMalloc at mine.cu:21 (960 bytes)", beyond)
        self.assertIn("read of memory that nothing has written, byte 648 of the cudaMalloc at mine.cu:21\n  wmma::load_matrix_sync at mine.cu:9", unwritten)
        self.assertIn("data race on byte 0 of the cudaMalloc at mine.cu:21\n  wmma::store_matrix_sync at mine.cu:13 by thread 0 ", race)

    def test_a_copy_in_the_other_direction(self):
        output = self.emulate("int main() {\n  int h, *x;\n  cudaMalloc(&x, 4);\n  return cudaMemcpy(&h, x, 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue;\n}\n", code=1)
        self.assertIn("error: cudaMemcpy at mine.cu:4: the target is memory of the host: the kind would be cudaMemcpyDeviceToHost, or the two pointers "
                      "are the other way round (cudaErrorInvalidValue)\n", output)

    def test_what_the_host_writes_is_written(self):
        """Also bytes that are like those of memory which nothing has written."""
        text = ("__global__ void f(int* x, int* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x]; }\n"
                "int main(int, char** words) {\n  int *x, *y, *z, h[64], n = atoi(words[1]);\n  for (int& each : h) each = -1;\n"
                "  cudaMalloc(&x, 256);\n  cudaMalloc(&y, 256);\n  cudaMalloc(&z, 256);\n"
                "  if (n == 0) cudaMemset(x, -1, 256);\n  if (n == 1) cudaMemcpy(x, h, 256, cudaMemcpyHostToDevice);\n"
                "  if (n == 2) cudaMemset(z, -1, 256), cudaMemcpy(x, z, 256, cudaMemcpyDeviceToDevice);\n"
                "  if (n == 3) cudaMemcpy(x, z, 256, cudaMemcpyDeviceToDevice);\n"
                "  if (n == 4) cudaMemset(x, -1, 128), cudaMemset(x, 0, 4);\n"
                "  if (n == 5) cudaMemset(x, 0, 4), f<<<1, 1>>>(x, y, 1), cudaMemset(x + 1, -1, 252);\n"
                "  f<<<1, 64>>>(x, y, n == 6 ? 0 : 64);\n"
                "  cudaMemset(x, -1, 128);\n  f<<<1, 64>>>(x, y, 32);\n  cudaMemcpy(h, y, 256, cudaMemcpyDeviceToHost);\n}\n")
        outputs = self.runs(text, [[str(n)] for n in range(7)], [0, 0, 0, 1, 1, 0, 0])
        for n, output in enumerate(outputs):
            with self.subTest(n):
                self.assertEqual("read of memory that nothing has written, byte 0 of the cudaMalloc at mine.cu:5\n" in output, n == 3)
                self.assertEqual("read of memory that nothing has written, byte 128 of the cudaMalloc at mine.cu:5\n" in output, n == 4)
                self.assertEqual("warning: cudaMemcpy at mine.cu:17 copies 128 bytes to the host that nothing has written, the first of them byte "
                                 "128 of the cudaMalloc at mine.cu:6\n" in output, n == 6, output)
                self.assertEqual("warning" in output, n == 6)

    def test_what_is_not_set_is_warned_of(self):
        text = ("__global__ void f(int* x) {\n  int sum;\n  for (int i = 0; i < x[1]; i++) sum += i;\n  *x = sum;\n}\n"
                "int main() { int* x; cudaMalloc(&x, 8); cudaMemset(x, 0, 8); f<<<1, 1>>>(x); }\n")
        for _ in range(2):  # the second time the program is there
            self.assertRegex(self.emulate(text), r"mine\.cu:\d: warning: .*\bsum\b.*uninitialized\]\n")
        self.assertNotIn("warning", self.emulate(text.replace("int sum", "int sum = 0").replace("= i;", "= i + 'abcd';")))

    def test_a_missing_return_ends_the_program(self):
        text = ("__device__ unsigned all(unsigned v, unsigned* s) { s[threadIdx.x] = v; }\n"
                "__global__ void f(unsigned* x) { x[1] = all(1, x); }\n"
                "int half(int n) {\n  if (n > 5) return n / 2;\n}\n"
                "int main(int n, char**) { unsigned* x; cudaMalloc(&x, 8); return n > 1 ? half(n) : (f<<<1, 1>>>(x), cudaDeviceSynchronize()); }\n")
        kernel, host = self.runs(text, [[], ["1"]], [1, 1])
        for output, line in ((kernel, 1), (host, 3)):
            self.assertIn(f"mine.cu:{line}: a function ends without the return of its value\n", output)
            self.assertRegex(output, r"mine\.cu:1: warning: no return statement .*\[-Wreturn-type\]\n")

    def test_device_code_fuses_products_and_sums(self):
        """As nvcc does, also in members, templates, lambdas and across statements, but not on the host, nor what has a function."""
        text = r"""
            #include <cstdio>
            struct Two { float x, y; __device__ float of() const { return x * x + y; } };
            template <typename T> __device__ T three(T x, T y) { const T product = x * x; return y + product; }
            template <typename F> __global__ void apply(F f, float* a) { a[2] = f(a[0]); }
            __global__ void all(float* a) {
              a[2] = Two{a[0], a[1]}.of(); a[3] = three(a[0], a[1]); a[4] = -(a[0] * a[0]) - a[1]; a[5] = __fadd_rn(__fmul_rn(a[0], a[0]), a[1]);
            }
            float host(float x, float y) { return x * x + y; }
            int main() {
              float *a, h[6] = {1.0001f, -1.0002f};
              cudaMallocManaged(&a, sizeof h);
              for (int i = 0; i < 6; i++) a[i] = h[i];
              all<<<1, 1>>>(a);
              cudaDeviceSynchronize();
              printf("%d %d %d %d %d", a[2] != 0, a[3] != 0, a[4] != 0, a[5] != 0, host(h[0], h[1]) != 0);
              const float y = a[1];
              apply<<<1, 1>>>([=] __device__(float x) { return x * x + y; }, a);
              cudaDeviceSynchronize();
              printf(" %d", a[2] != 0);
              apply<<<1, 1>>>([y] __host__ __device__(float x) -> float { return x * x + y; }, a);
              cudaDeviceSynchronize();
              printf(" %d\n", a[2] != 0);
            }"""
        if not emulate.can_fuse():
            self.skipTest("this processor does not fuse")
        # On arm64 the host fuses, too, as nvcc's host compiler does there.
        self.assertRegex(self.emulate(text), "1 1 1 0 0 1 1\n" if platform.machine() == "x86_64" else "1 1 1 0 . 1 1\n")
        self.assertRegex(self.emulate(text, before=["--fmad=false"]), "0 0 0 0 0 0 0\n")

    def test_what_is_missing_within_one_line(self):
        between = "Missing: a %s between the loads and the stores of line %d, or, if it is in a loop, between two iterations"
        cases = (
            ("x[threadIdx.x % 4]++", "1, 64", "Warps run in any order, and both threads change one value. Missing: an atomic in line 1, such as "
             "atomicAdd();\n  a __syncthreads() is enough only if they meet in different iterations of a loop.\n"),
            ("x[0] += 1", "1, 32", "Missing: an atomic in line 2, such as atomicAdd();\n  a __syncwarp() is enough only"),
            ("x[threadIdx.x + 1] = x[threadIdx.x]", "1, 64", f"{between % ('__syncthreads()', 3)}.\n"),
            ("x[threadIdx.x + 1] = x[threadIdx.x]", "2, 32", f"{between % ('__syncwarp()', 4)}; but if CTAs meet there, too, a second launch.\n"),
            ("for (int k = 64; k > 0; k /= 2) if (threadIdx.x < k) x[threadIdx.x] += x[threadIdx.x + k]", "1, 128",
             f"{between % ('__syncthreads()', 5)}.\n"),
            ("*x = threadIdx.x", "1, 64", "Missing: a __syncthreads() between two iterations of line 6, if it is in a loop.\n  Or: both write "
             "the same bytes by mistake.\n"),
            ("x[threadIdx.x]++", "2, 1", "the grid is too large.\n  Or: all add to one value: atomicAdd().\n"))
        text = "".join(f"__global__ void f{i}(int* x) {{ {kernel}; }}\n" for i, (kernel, *_) in enumerate(cases))
        text += "int main(int, char** words) {\n  int *x, n = atoi(words[1]);\n  cudaMalloc(&x, 1024);\n  cudaMemset(x, 0, 1024);\n"
        text += "".join(f"  if (n == {i}) f{i}<<<{launch}>>>(x);\n" for i, (_, launch, _) in enumerate(cases)) + "}\n"
        outputs = self.runs(text, [[str(i)] for i in range(len(cases))], [1] * len(cases))
        for output, (kernel, launch, says) in zip(outputs, cases):
            with self.subTest(kernel + launch):
                self.assertIn(says, output)

    def test_a_kernel_that_was_not_launched_is_an_error_of_the_program(self):
        text = ("__global__ void f() {}\nint main(int n, char**) {\n  atexit([] { puts(\"bye\"); });\n  f<<<1, 2000>>>();\n"
                "  cudaDeviceSynchronize();\n  if (n == 2) puts(cudaGetErrorName(cudaGetLastError()));\n  if (n == 4) puts(cudaGetErrorName(cudaPeekAtLastError()));\n"
                "  return n == 3 ? 3 : 0;\n}\n")
        refusal = "error: f at mine.cu:4: the kernel was not launched: 2000 threads per CTA, but 1 to 1024 are possible "
        for output in self.runs(text, [[], ["asks"], ["does", "not"], ["only", "looks", "on"]], [1, 0, 3, 0]):
            self.assertTrue(refusal in output and "bye\n" in output, output)

    def test_a_group_of_any_kind(self):
        text = """
            #include <cooperative_groups.h>
            using namespace cooperative_groups;
            __device__ int sum(thread_group g, int* x, int value) {
              for (int i = g.size() / 2; i > 0; i /= 2) {
                x[g.thread_rank()] = value;
                g.sync();
                if (g.thread_rank() < i) value += x[g.thread_rank() + i];
                g.sync();
              }
              return value;
            }
            __global__ void f(int* y) {
              __shared__ int x[64];
              const thread_block all = this_thread_block();
              const int whole = sum(all, x, threadIdx.x);
              if (threadIdx.x == 0) y[0] = whole;
              all.barrier_wait(all.barrier_arrive());
              const thread_group part = tiled_partition(all, 16), tile = tiled_partition<8>(all);
              const int sums = sum(part, x + threadIdx.x / 16 * 16, threadIdx.x) + 1000 * (tiled_partition(part, 4).size() + tile.size());
              if (part.thread_rank() == 0) y[1 + threadIdx.x / 16] = sums;
            }
            int main() {
              int* y;
              cudaMallocManaged(&y, 20);
              f<<<1, 64>>>(y);
              printf("%d %d %d %d %d\\n", y[0], y[1], y[2], y[3], y[4]);
            }"""
        self.assertTrue(self.emulate(text).startswith("2016 12120 12376 12632 12888\n"))

    def test_the_standard_library_by_the_name_of_cuda(self):
        text = """
            #include <cuda/atomic>
            #include <cuda/barrier>
            #include <cuda/std/array>
            #include <cuda/std/cmath>
            #include <cuda/std/complex>
            #include <cuda/std/cstddef>
            #include <cuda/std/cstdint>
            #include <cuda/std/limits>
            #include <cuda/std/tuple>
            #include <cuda/std/type_traits>
            #include <cuda/std/utility>
            namespace s = cuda::std;
            template <typename T>
            __device__ cuda::std::enable_if_t<cuda::std::is_integral_v<T>, T> twice(T x) { return 2 * x; }
            __global__ void kernel(float* x, cuda::std::tuple<int, float> pair, s::complex<float> z) {
              cuda::std::array<float, 2> a{1, 2};
              __shared__ s::array<int, 64> b;
              b[threadIdx.x] = threadIdx.x;
              __syncthreads();
              cuda::std::complex<float> y = z * z + s::conj(z);
              s::uint32_t n = cuda::std::get<0>(pair);
              a[0] += cuda::std::exp(0.0f) - ::std::exp(0.0f) + ::cuda::std::sqrt(4.0f) - std::sqrt(4.0f);
              x[threadIdx.x] = a[0] + a[1] + (cuda::std::numeric_limits<int>::max() > 0) + twice(n) + s::get<1>(pair) + y.imag() + y.real() + s::move(b[63 - threadIdx.x]);
            }
            int main() {
              float *x, host = 0;
              cudaMalloc(&x, 256);
              kernel<<<1, 64>>>(x, cuda::std::make_tuple(2, 0.5f), {1, 2});
              cudaMemcpy(&host, x, 4, cudaMemcpyDeviceToHost);
              printf("%g\\n", host);
            }"""
        self.assertTrue(self.emulate(text).startswith("71.5\n"))
        output = self.emulate("#include <cuda/std/array>\n#include <cuda/atomic>\n__global__ void f(cuda::std::atomic<int>* x) {\n  x->store(1);\n}\n"
                              "int main() {}\n", code=2)
        self.assertIn("mine.cu:4: the emulator has no cuda::std::atomic: use cuda::atomic\n", output)

    def test_a_program_for_several_devices_finds_one(self):
        text = """
            __global__ void f(int* x) { *x = 7; }
            int main() {
              int can = 1, host = 0, value, *x, *y;
              cudaMalloc(&x, 4);
              cudaMalloc(&y, 4);
              f<<<1, 1>>>(x);
              printf("%d", cudaMemcpyPeer(y, 0, x, 0, 4));
              cudaMemcpyPeerAsync(x, 0, y, 0, 4, 0);
              cudaMemcpy(&host, x, 4, cudaMemcpyDeviceToHost);
              printf(" %d", host);
              printf(" %d", cudaDeviceCanAccessPeer(&can, 0, 0));
              printf(" %d %d", can, cudaDeviceCanAccessPeer(&can, 0, 1));
              printf(" %d %d", cudaDeviceEnablePeerAccess(1, 1), cudaDeviceEnablePeerAccess(0, 1));
              printf(" %d", cudaDeviceEnablePeerAccess(0, 0));
              printf(" %d %d", cudaDeviceDisablePeerAccess(0), cudaDeviceDisablePeerAccess(1));
              printf(" %d", cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrAccessSupported, 0, 1));
              printf(" %d\\n", cudaMemcpyPeer(y, 1, x, 0, 4));
            }"""
        output = self.emulate(text)
        self.assertRegex(output, r"(?m)^0 7 0 0 101 101 1 217 705 101 101 101$")
        self.assertIn("error: cudaDeviceEnablePeerAccess at mine.cu:14: the emulator is one device, which has no peer", output)

    def test_a_function_for_both_sides_that_only_kernels_may_call(self):
        text = ("__host__ __device__ int rank() {\n#ifdef __CUDA_ARCH__\n  return threadIdx.x;\n#else\n  return -1;\n#endif\n}\n"
                "__global__ void f(int* x) { *x = rank(); }\nint main() {\n  int* x;\n  cudaMalloc(&x, 4);\n  f<<<1, 1>>>(x);\n  return rank();\n}\n")
        self.assertRegex(self.emulate(text, code=-11), r"error: mine\.cu:\d+: the host uses a null pointer, or threadIdx or the like, which only kernels have\n  "
                         r"\(of a function for both sides the emulator compiles the branch for __CUDA_ARCH__ alone\)\n")

    def test_what_is_no_source_is_refused(self):
        done = subprocess.run([ROOT / "scripts/fa", "emulate", "README.md"], capture_output=True, text=True, cwd=ROOT, timeout=60)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (
            2, "", "error: README.md is no CUDA source: name a file that ends in .cu, or one of C++ (.cpp, .cc, .cxx)\n"))

    def test_several_files(self):
        main = ('#include <kernels.h>\n#include "vector_types.h"\nint main(int n, char** words) {\n'
                "  add<<<1, LAST(n)>>>(Device<int>(64).data);\n  puts(words[LAST(n)]);\n}\n")
        kernels = '#include "deeper/device.h"\n__device__ int one = 1;\n__global__ void add(int* x) { __shared__ int a; a = one + threadIdx.x; *x = a; }\n'
        others = {"kernels.cu": kernels, "include/kernels.h": '#pragma once\n#include "device.h"\n__global__ void add(int* x);\n',
                  "include/device.h": "template <class T> struct Device { Device(int n) { cudaMalloc(&data, n * sizeof(T)); } T* data; };\n",
                  "deeper/device.h": "__device__ int two = 2;\n", "vector_types.h": "#define LAST(n) (n - 1)\n",
                  "cuda/cuda_runtime.h": "#error CUDA's\n"}
        fine, race, missing = self.runs(main, [words.split() for words in (
            "kernels.cu -Iinclude -Icuda -- kernels.cu", "kernels.cu -I include 1 2", "-Iinclude -I 8")], [0, 1, 2], others=others)
        self.assertIn("kernels.cu\n", fine)
        self.assertIn("data race on byte 0 of a (shared memory)\n  store at kernels.cu:3", race)
        self.assertRegex(missing, r"^error: mine\.cu:4: add\(int\*\) is declared and not defined in mine\.cu: name the file that has it, too, as "
                         r"in scripts/fa emulate mine.cu OTHER\.cu\n$")
        self.assertIn("there is no main() in", self.emulate("", code=2))

    def test_headers_named_from_the_top(self):
        """nvcc takes this with -I ., and a header that is not translated has no __shared__."""
        main = '#include "deeper/first.cuh"\n__global__ void k(int* x) { *x = turned(); }\nint main() {}\n'
        self.runs(main, [[]], [0], others={"deeper/first.cuh": '#include "deeper/second.cuh"\n', "deeper/second.cuh":
                  '#include <cuda.h>\n__device__ inline int turned() { __shared__ int s; s = threadIdx.x; return s; }\n'})

    def test_dynamic_memory_of_the_whole_file(self):
        """An extern __shared__ variable at file scope is used as nvcc takes it; other things may have its name."""
        text = """#include <cstdio>
            extern __shared__ unsigned char raw[];
            struct Pair { float a; int b; };
            namespace two { extern __shared__ Pair pair; extern __shared__ float rows[][2]; }
            #define AT(i) (((float*)raw)[i])
            struct Own { int* raw; __device__ int first() const { return *raw + raw[0]; } };
            template <class T> __device__ T* second(T* p, int n) { return p + n; }
            template <class T> __device__ T* of(unsigned char* x) { return reinterpret_cast<T*>(x); }
            __device__ int other(int* raw, int n) { int x = n * raw[1]; for (int* raw = &x; *raw > 100; --*raw) {} return x + *raw; }
            __device__ float sum() { using namespace two; return two::rows[0][0] + rows[0][1] * pair.a; }
            template <class T> __global__ void f(T* x) {
              T* s = reinterpret_cast<T*>(raw);
              s[threadIdx.x] = x[threadIdx.x];
              __syncthreads();
              auto* third = (float*)&raw[8];
              auto last = [=](int n) { return (int)*second((T*)raw, n); };
              int numbers[2] = {5, 7};
              Own own{numbers};
              if (threadIdx.x == 0) {
                printf("%g %g %d %g ", AT(1), *third, last(3), *(float*)second(raw, 4));
                printf("%d %d %d\\n", int(sizeof(*raw)), other(numbers, 2), own.first());
              }
              if (threadIdx.x == 1) { const auto& view = two::pair; printf("%g\\n", view.a + sum() + ::two::rows[0][1]); }
              x[threadIdx.x] = of<T>(raw)[63 - threadIdx.x];
            }
            int main() {
              float host[64], *x;
              for (int i = 0; i < 64; i++) host[i] = i + 1;
              cudaMalloc(&x, sizeof host);
              cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
              f<<<1, 64, sizeof host>>>(x);
              cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
              printf("%g\\n", host[0]);
            }"""
        output = self.emulate(text)
        self.assertTrue(output.startswith("2 3 4 2 1 19 10\n6\n64\n"), output)

    def test_variables_with_a_type_of_their_own(self):
        text = """#include <cstdio>
            struct Base { int base; };
            __constant__ struct { float scale; int shift[2]; } c = {2, {1, 3}};
            __device__ union Word { int i; float f; } word, words[2];
            __global__ void f(int* x) {
              __shared__ union { int i[64]; float f[64]; }u;
              __shared__ struct __align__(16) Pair {
                __device__ static int twice(int n) { return 2 * n; }
                int a, b;
              } p, q[2];
              __shared__ volatile struct : Base { short s; } v;
              __shared__ enum Mode { kOff, kOn = 5 } mode;
              if (threadIdx.x == 0) { p.a = 4; q[1].b = Pair::twice(c.shift[1]); v.base = 7; mode = kOn; word.f = c.scale; words[1].i = __LINE__; }
              u.i[threadIdx.x] = threadIdx.x;
              __syncthreads();
              Pair sum = p;
              sum.a += q[1].b + v.base + mode;
              x[threadIdx.x] = u.i[63 - threadIdx.x] + sum.a + (word.i == __float_as_int(2.0f)) * 100 + words[1].i * 1000 + (size_t(&p) % 16);
            }
            int main() {
              int host[64], *x;
              cudaMalloc(&x, sizeof host);
              f<<<1, 64>>>(x);
              cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
              printf("%d\\n", host[0]);
            }"""
        self.assertTrue(self.emulate(text).startswith("13185\n"))

    def test_macros(self):
        text = ('#include <cstdio>\n__global__ void f(int* x) { __shared__ int s[N]; s[threadIdx.x] = threadIdx.x; __syncthreads(); *x = s[N - 1]; }\n'
                'int main(int n, char** words) {\n  int* x;\n  cudaMallocManaged(&x, 4);\n  f<<<1, 1>>>(x);\n  printf("%d %d %s\\n", *x, LAST, words[n - 1]);\n}\n')
        runs = ["-D LAST=2 -- -DX", "-D LAST=3,MORE -- -DX", "-- -DLAST"]
        first, second, third = self.runs(text, map(str.split, runs), [0, 0, 2], before=["-DN=1"])
        self.assertTrue(first.startswith("0 2 -DX\n") and second.startswith("0 3 -DX\n"), first + second)
        self.assertIn("mine.cu:7:36: error:", third)
        self.assertEqual(self.emulate(text, before=["-D", "3"], code=2), "error: -D 3 is no macro: write -D NAME or -D NAME=VALUE\n")

    def test_inline_ptx_computes(self):
        """The program is right on an H200, too; the lines of FP8 have not been there."""
        lines = []
        for number, (text, constraints, values, result) in enumerate(PTX):
            kind, _, inputs = constraints.partition("=") if "=" in constraints else (constraints[0], "", constraints)
            bits = {"f": "unsigned", "d": "long long"}.get(kind, KINDS[kind])
            operands = ", ".join(f'"{each}"({value})' for each, value in zip(inputs, re.findall(r"\([^)]*\)\S+|\S+(?: << \d+)?", values), strict=True))
            lines.append(f'{{ {KINDS[kind]} y = 0, wanted = {result}; asm("{text}" : "={kind}"(y) : {operands}); '
                         f'if (*({bits}*)&y != *({bits}*)&wanted) printf("%d: %llx\\n", {number}, (long long)*({bits}*)&y); }}')
        output = self.emulate("#include <cmath>\n#include <cstdio>\n__global__ void f() {\n" + "\n".join(lines) +
                              "\nprintf(\"all\\n\");\n}\nint main() { f<<<1, 1>>>(); cudaDeviceSynchronize(); }\n")
        self.assertEqual(output.splitlines()[0], "all", [PTX[int(line.split(":")[0])][0] for line in output.splitlines() if re.match(r"\d+: ", line)])

    def test_inline_ptx_of_warps_and_memory(self):
        text = r"""
            #include <cstdint>
            __device__ __forceinline__ uint32_t at(const void* p) { return __cvta_generic_to_shared(p); }
            __global__ void f(uint32_t* x, int* count, int how) {
              __shared__ __align__(16) uint32_t s[64], wide[256];
              uint32_t lane, y, z, w, votes, chosen;
              asm("mov.u32 %0, %%laneid;" : "=r"(lane));
              asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(y), "=r"(z) : "l"(x + 2 * threadIdx.x));
              if (how != 1) asm volatile("st.shared.u32 [%0 + 4], %1;" :: "r"(at(s) + 4 * threadIdx.x - 4), "r"(y + z) : "memory");
              if (how != 2) asm volatile("bar.sync 0;" ::: "memory");
              asm volatile("ld.shared.u32 %0, [%1 + %2];" : "=r"(z) : "r"(at(s)), "n"(252));
              asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; cp.async.cg.shared.global [%0], [%1], 16, p; }" :: "r"(at(wide + 4 * threadIdx.x)), "l"(x + 64 + 4 * (threadIdx.x & 1)), "r"(threadIdx.x & 2));
              asm volatile("cp.async.wait_all;" ::: "memory");
              z = z * 100 + wide[4 * threadIdx.x + 1];
              asm volatile("{ .reg .pred p; ld.shared.u32 %0, [%1];\n  setp.gt.u32 p, %0, 64;\n  @p add.u32 %0, %0, 1000; }"
                           : "=r"(w) : "r"(at(s + (63 - threadIdx.x) + (how == 3))));
              asm volatile("shfl.sync.bfly.b32 %0, %0, 1, 0x1f, 0xffffffff;" : "+r"(w));
              unsigned long long low = w, high = lane;
              asm volatile("{ .reg .b128 q; mov.b128 q, {%0, %1}; st.relaxed.cta.shared.b128 [%2], q; ld.shared.b128 q, [%2]; mov.b128 {%0, %1}, q; }"
                           : "+l"(low), "+l"(high) : "r"(at(wide) + 16 * threadIdx.x) : "memory");
              w = low + (high - lane);
              asm volatile("{ .reg .pred p; setp.lt.u32 p, %1, 5; vote.sync.ballot.b32 %0, p, 0xffffffff; }" : "=r"(votes) : "r"(lane));
              asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(chosen));
              if (chosen) asm volatile("red.global.add.s32 [%0], %1;" :: "l"(count), "r"(votes) : "memory");
              __syncwarp();
              x[threadIdx.x] = threadIdx.x < 60 ? w : z;
            }
            int main(int, char** words) {
              uint32_t h[128], *x; int n = 0, *count;
              for (int i = 0; i < 128; i++) h[i] = i / 2;
              cudaMalloc(&x, sizeof h); cudaMalloc(&count, 4);
              cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice); cudaMemcpy(count, &n, 4, cudaMemcpyHostToDevice);
              f<<<1, 64>>>(x, count, atoi(words[1]));
              cudaMemcpy(h, x, sizeof h, cudaMemcpyDeviceToHost); cudaMemcpy(&n, count, 4, cudaMemcpyDeviceToHost);
              printf("%u %u %u %u %d\n", h[0], h[1], h[61], h[63], n);
            }"""
        right, unset, race, outside = self.runs(text, [["0"], ["1"], ["2"], ["3"]], [0, 1, 1, 1])
        self.assertTrue(right.startswith("1124 1126 12634 12600 62\n"), right)
        self.assertRegex(right, r"\nglobal load  +2 .* 512\n(.|\n)*\nshared load  +8 .* 1792\nshared store  +4 .*\n(.|\n)*\nshuffle  +2\n")
        self.assertIn("nothing has written", unset)
        self.assertIn("data race on byte 128 of s (shared memory)\n  load at mine.cu:15 by thread 31 (warp 0 lane 31)\n  store at mine.cu:9 by thread 32", race)
        self.assertIn("thread 0 (warp 0 lane 0): mine.cu:15: load of 4 bytes 0 bytes past the end of s", outside)

    def test_time_is_a_count_of_questions(self):
        output = self.emulate("""
            __global__ void wait(long long* x, int n) {
              const clock_t start = clock();
              while (clock() - start < n) ;
              const long long before = clock64();
              unsigned now;
              asm volatile("mov.u32 %0, %%clock;" : "=r"(now));
              x[threadIdx.x] = now - before;
            }
            int main() {
              long long h[64], *x;
              cudaMalloc(&x, sizeof h);
              wait<<<1, 64>>>(x, 1000000);
              cudaMemcpy(h, x, sizeof h, cudaMemcpyDeviceToHost);
              printf("%lld %lld %d\\n", h[0], h[63], clock() < 60 * CLOCKS_PER_SEC);
            }""")
        self.assertTrue(output.startswith("1000 1000 1\n"), output)
        self.assertEqual(output.count("note: the emulator measures no time: clock() counts how often it is asked\n"), 1)

    def test_bulk_reductions(self):
        """Of each type and by each operation, of several CTAs; what reads the sums must wait for them."""
        text = """
            #define REDUCE(OP, place) asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group." OP " [%0], [%1], %2;" \\
                :: "l"(place), "r"((unsigned)__cvta_generic_to_shared(x)), "r"(16) : "memory")
            __global__ void f(unsigned* sums, int how) {
              __shared__ alignas(16) unsigned x[4];
              if (threadIdx.x < 4) x[threadIdx.x] = blockIdx.x * 4 + threadIdx.x + 1;
              asm volatile("fence.proxy.async;" ::: "memory");
              __syncwarp();
              if (threadIdx.x == 0) {
                REDUCE("add.u32", sums);
                REDUCE("max.s32", sums + 4);
                REDUCE("xor.b32", sums + 8);
                REDUCE("add.u64", sums + 12);
                REDUCE("add.noftz.f16", sums + 16);
                if (how == 2) REDUCE("min.f32", sums);
                asm volatile("cp.async.bulk.commit_group;");
                if (how != 1) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
                else asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
                sums[20 + blockIdx.x] = ((volatile unsigned*)sums)[0] > 0;
                if (how == 1) sums[24 + blockIdx.x] = sums[8] > 0;
              }
            }
            int main(int, char** words) {
              unsigned h[32] = {}, *sums;
              cudaMalloc(&sums, sizeof h);
              cudaMemcpy(sums, h, sizeof h, cudaMemcpyHostToDevice);
              f<<<3, 32>>>(sums, atoi(words[1]));
              cudaMemcpy(h, sums, sizeof h, cudaMemcpyDeviceToHost);
              for (int i = 0; i < 20; i++) printf("%u ", h[i]);
            }"""
        right, race, unknown = self.runs(text, [["0"], ["1"], ["2"]], [0, 1, 1])
        # In fp16 the words 1 to 12 are subnormal numbers, whose sums are those of their bits.
        self.assertTrue(right.startswith("15 18 21 24 9 10 11 12 13 14 15 0 15 18 21 24 15 18 21 24 "), right)
        self.assertIn("data race", race)
        self.assertIn("cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f32 at mine.cu:15: of floating-point reductions the emulator "
                      "has .add alone", unknown)

    def test_bulk_copies_by_libcuxx(self):
        """A box of four dimensions and its way back, by cuda::barrier and cuda::device; without its fence a store reads too early."""
        text = """
            #include <cuda.h>
            #include <cudaTypedefs.h>
            #include <cuda/barrier>
            #include <utility>
            namespace cde = cuda::device::experimental;
            using barrier = cuda::barrier<cuda::thread_scope_block>;
            template <int N> struct Tile { alignas(128) float x[N]; };
            __global__ void add(const __grid_constant__ CUtensorMap map, float* more, int fences) {
              extern __shared__ Tile<64> tile;
              __shared__ barrier bar;
              if (threadIdx.x == 0) {
                init(&bar, blockDim.x);
                cde::fence_proxy_async_shared_cta();
              }
              __syncthreads();
              barrier::arrival_token token;
              if (threadIdx.x == 0) {
                cde::cp_async_bulk_tensor_4d_global_to_shared(tile.x, &map, 0, 2, blockIdx.x, 0, bar);
                token = cuda::device::barrier_arrive_tx(bar, 1, sizeof tile);
              } else {
                token = bar.arrive();
              }
              bar.wait(std::move(token));
              tile.x[threadIdx.x] += more[threadIdx.x];
              if (fences) cde::fence_proxy_async_shared_cta();
              __syncthreads();
              if (threadIdx.x == 0) {
                cde::cp_async_bulk_tensor_4d_shared_to_global(&map, 0, 2, blockIdx.x, 0, tile.x);
                cde::cp_async_bulk_commit_group();
                cde::cp_async_bulk_wait_group_read<0>();
              }
            }
            int main(int, char** words) {
              float h[8 * 4 * 2 * 4], m[64], *x, *more;
              for (int i = 0; i < 256; i++) h[i] = i;
              for (int i = 0; i < 64; i++) m[i] = 1000 * i;
              cudaMalloc(&x, sizeof h); cudaMalloc(&more, sizeof m);
              cudaMemcpy(x, h, sizeof h, cudaMemcpyHostToDevice); cudaMemcpy(more, m, sizeof m, cudaMemcpyHostToDevice);
              void* encode;
              cudaDriverEntryPointQueryResult found;
              cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &encode, cudaEnableDefault, &found);
              const cuuint64_t sizes[] = {8, 4, 2, 4}, strides[] = {32, 128, 256};
              const cuuint32_t box[] = {8, 2, 1, 4}, every[] = {1, 1, 1, 1};
              CUtensorMap map;
              if (((PFN_cuTensorMapEncodeTiled_v12000)encode)(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, x, sizes, strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
                    CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) return 2;
              add<<<2, 64, sizeof(Tile<64>)>>>(map, more, atoi(words[1]));
              cudaMemcpy(h, x, sizeof h, cudaMemcpyDeviceToHost);
              printf("%g %g %g %g\\n", h[15], h[16], h[17], h[255]);  // rows 2 and 3 of each plane; the last is its box's last
              if (words[1][0] == '1') ((PFN_cuTensorMapEncodeTiled_v12000)encode)(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 6, x, sizes, strides, box, every,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
            }"""
        right, early = self.runs(text, [["1"], ["0"]], [0, 1])
        self.assertTrue(right.startswith("15 16 1017 63255\n"), right)
        self.assertIn("error: cuTensorMapEncodeTiled: a tensor has one to five dimensions\n", right)
        self.assertRegex(right, r"\ntma load  +2 .*\ntma store  +2 ")
        self.assertIn("Missing: fence_proxy_async() in the thread that stores", early)

    def test_reports_of_inline_ptx_name_the_warp_and_the_instruction(self):
        """A product that runs before the copy of its operands; a stage that is released before the wait, and after it."""
        text = """
            #include <cstdint>
            __device__ uint64_t describe(uint32_t a) { return (a & 0x3FFFF) >> 4 | uint64_t(1) << 16 | uint64_t(64) << 32 | uint64_t(1) << 62; }
            __global__ void f(float* out, const unsigned short* in, int how) {
              __shared__ alignas(1024) unsigned short s[72 * 64];
              __shared__ uint64_t bars[2];
              const auto bar = uint32_t(__cvta_generic_to_shared(bars)), at = uint32_t(__cvta_generic_to_shared(s));
              const int t = threadIdx.x;
              for (int i = t; i < 72 * 64; i += 160) s[i] = 0;
              asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
              if (t == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; mbarrier.init.shared::cta.b64 [%0 + 8], 1; fence.mbarrier_init.release.cluster;" :: "r"(bar) : "memory");
              __syncthreads();
              if (t == 128 && how == 0) {
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 9216;" :: "r"(bar) : "memory");
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 9216, [%2];" :: "r"(at), "l"(in), "r"(bar) : "memory");
              }
              if (t < 128) {
                float d[4] = {};
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
                  : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(describe(at)), "l"(describe(at + 64 * 128)));
                if (t == 0 && how == 1) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar + 8) : "memory");
                asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
                if (t == 0 && how == 2) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar + 8) : "memory");
                out[t] = d[0] + d[3];
              } else if (t == 128 && how > 0) {
                asm volatile("{ .reg .pred p; MORE: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra MORE; }" :: "r"(bar + 8) : "memory");
                s[0] = 1;
              }
            }
            int main(int, char** words) {
              float* out; unsigned short* in;
              cudaMalloc(&out, 512); cudaMalloc(&in, 9216); cudaMemset(in, 0, 9216);
              f<<<1, 160>>>(out, in, atoi(words[1]));
            }"""
        early, released, _ = self.runs(text, [["0"], ["1"], ["2"]], [1, 1, 0])
        self.assertIn("The copy may still be under way: it belongs to phase 0 of its mbarrier, and the other side has waited for none. Missing: an "
                      "mbarrier.try_wait for the phase that the copy belongs to, ", early)
        self.assertRegex(released, r"\n  wgmma\.mma_async at mine\.cu:\d+ by thread 0 \(warp 0 lane 0\)\n(.|\n)*Missing: a wgmma\.wait_group in the warp that releases the operands, before its arrival or barrier, ")

    def test_what_inline_ptx_reads_and_reaches(self):
        """What has no meaning is named; what has one works: elect.sync's mask, fma of bf16 rounded once, asm() in constructors and
        constexpr functions."""
        text = """
            #include <cstdio>
            #include <cstdint>
            #include <cuda_bf16.h>
            __device__ constexpr unsigned next(unsigned x) {
              unsigned y = 0;
              asm("add.u32 %0, %1, 1;" : "=r"(y) : "r"(x));
              return y;
            }
            struct Pair {
              unsigned a, b;
              __device__ Pair(unsigned x) : a{x}, b(2) { asm("add.u32 %0, %0, 5;" : "+r"(a)); }
            };
            __device__ unsigned both(float x) { return unsigned(x); }
            __global__ void f(unsigned* x, int how) {
              __shared__ unsigned s[64];
              unsigned y = 0;
              float d[4] = {};
              if (how == 0) {
                unsigned p = 0, lane = 0;
                if (threadIdx.x >= 8) {
                  asm volatile("{ .reg .pred p; elect.sync %0|p, 0xffffff00; selp.u32 %1, 1, 0, p; }" : "=r"(lane), "=r"(p));
                  if (p) x[0] = threadIdx.x * 100 + lane;
                }
                if (threadIdx.x == 0) {
                  unsigned short z;
                  asm("fma.rn.bf16 %0, %1, %2, %3;" : "=h"(z) : "h"((unsigned short)0x3f81), "h"((unsigned short)0x3fc0),
                      "h"((unsigned short)0x8001));
                  x[1] = z;
                  asm("fma.rn.bf16 %0, %1, %2, %3;" : "=h"(z) : "h"((unsigned short)0x3f83), "h"((unsigned short)0x3fc0),
                      "h"((unsigned short)0x0001));
                  x[2] = z;
                  x[3] = Pair(next(1)).a;
                }
                __syncwarp();  // the lanes that elect.sync does not name wait here
              }
              if (how == 1) asm volatile("add.u32 %0, %0, 1;" : "=r"(y));
              if (how == 2) asm volatile("ld.global.u32 %0, [%1];" : "=r"(y) : "l"(s));
              if (how == 3) asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1, 0;"
                : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(both(1)), "r"(both(2)), "r"(both(3)), "r"(both(4)), "l"(0ll));
              if (how == 4) asm volatile("atom.global.add.u32 %0, [%1], 1;" : "=r"(y) : "l"(&y));
            }
            __global__ void __cluster_dims__(2) of_cluster(unsigned* x) {
              __shared__ unsigned s;
              unsigned y;
              asm volatile("{ .reg .pred p, q; .reg .b32 r; .reg .b64 o; mov.u32 r, %%cluster_ctarank; xor.b32 r, r, 1; mapa.u64 o, %1, r;"
                "isspacep.shared::cta p, o; isspacep.shared::cluster q, o; selp.u32 %0, 1, 0, p; @q add.u32 %0, %0, 2; }" : "=r"(y) : "l"(&s));
              x[blockIdx.x] = y;
              asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
            }
            int main(int, char** words) {
              unsigned *x, h[4];
              cudaMalloc(&x, 16);
              cudaMemset(x, 0, 16);
              const int how = atoi(words[1]);
              if (how == 5) {
                of_cluster<<<2, 1>>>(x);
              } else {
                f<<<1, 32>>>(x, how);
              }
              cudaMemcpy(h, x, 16, cudaMemcpyDeviceToHost);
              printf("%u %x %x %u\\n", h[0], h[1], h[2], h[3]);
            }"""
        right, *wrong, cluster = self.runs(text, [[str(how)] for how in range(6)], [0, 1, 1, 1, 1, 0])
        self.assertIn("\n808 3fc1 3fc5 7\n", "\n" + right)
        self.assertIn("\n2 2 0 0\n", "\n" + cluster)
        for output, says in zip(wrong, (
                'asm() at mine.cu:37: reads %0 before it has written it: an output "=r" begins as anything',
                "ld.global.u32 at mine.cu:38: the pointer leads into shared memory, where .global finds nothing",
                "wgmma.mma_async at mine.cu:39: the emulator needs its registers of A as the elements of one array",
                "atom.global.add.u32 at mine.cu:41: the pointer leads into local memory"), strict=True):
            self.assertIn(says, output)

    def test_reports_name_the_line_of_the_kernel(self):
        """A race within helpers, of which one is not inlined; a kernel that is launched through a pointer."""
        text = """
            __noinline__ __device__ void put(float* s, float x) {
              s[threadIdx.x] = x;
            }
            __device__ float get(const float* s) {
              return s[threadIdx.x ^ 32];
            }
            __global__ void f(float* out) {
              __shared__ float s[64];
              put(s, 1);
              out[threadIdx.x] = get(s);
            }
            __global__ void other(float* out) {
              out[threadIdx.x / 2] = threadIdx.x;
            }
            int main(int n, char**) {
              float* out;
              cudaMalloc(&out, 256);
              auto* kernel = n > 1 ? other : f;
              kernel<<<1, 64>>>(out);
            }"""
        helpers, pointer = self.runs(text, [[], ["1"]], [1, 1])
        self.assertIn("\n  load at mine.cu:6 by thread 0 (warp 0 lane 0), called at line 11\n", helpers)
        self.assertRegex(helpers, r"\n  store at mine\.cu:3 by thread 32 \(warp 1 lane 0\), called at line 10\n")
        self.assertIn("Missing: a __syncthreads() between line 10 and line 11.\n", helpers)
        self.assertIn("\n  store at mine.cu:14 by thread 1 (warp 0 lane 1)\n", pointer)

    def test_inline_ptx_that_is_not_there(self):
        text = """
            __global__ void f(float* x, int how) {
              int y = 3, a[2] = {};
              float d[9] = {};
              if (how == 1) asm("mul24.lo.s32 %0, %0, 2;" : "+r"(y));
              if (how == 2) asm("{ .reg .pred p;\\n mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0}, {%1}, {%1}, {%0}; }" : "+r"(y) : "r"(y));
              if (how == 3) asm volatile("mov.u64 %0, %%pm0_64;" : "=l"(x));
              if (how == 4) asm volatile("ld.shared.f32 %0, [%1];" : "=f"(d[0]) : "l"(x));
              if (how == 5) asm("add.u32 %0, %1;" : "=r"(y) : "r"(y));
              if (how == 6) asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %4, 1, 1, 1, 0, 0;"
                : "+f"(d[0]), "+f"(d[2]), "+f"(d[4]), "+f"(d[6]) : "l"(0ll));
              if (how == 7) asm volatile("cp.async.cg.shared.global [%0], [%1], 8;" :: "r"((unsigned)__cvta_generic_to_shared(x)), "l"(x));
              if (how == 8) asm("add.u32 %0, %2, 1;" : "=r"(y) : "r"(y));
              long long z = 5;
              if (how == 9) asm("lop3.b64 %0, %0, %0, %0, 0x96;" : "+l"(z));
              if (how == 10) asm("prmt.b64 %0, %0, %0, 0x3210;" : "+l"(z));
              if (how == 11) asm("shf.l.wrap.b64 %0, %0, %0, 1;" : "+l"(z));
            }
            int main(int, char** words) { f<<<1, 128>>>(0, atoi(words[1])); }"""
        outputs = self.runs(text, [[str(how)] for how in range(1, 12)], [1] * 11)
        for output, says in zip(outputs, (
                "mul24.lo.s32 at mine.cu:5: the emulator does not have this instruction; docs/emulator/what_is_there.md says which there are",
                "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 at mine.cu:6: of mma the emulator knows m16n8k8 and m16n8k16",
                "mov.u64 at mine.cu:7: the emulator has no register %pm0_64",
                "ld.shared.f32 at mine.cu:8: byte -1024 of shared memory is outside", "add.u32 at mine.cu:9: it has 2 operands, and needs 3",
                "wgmma.mma_async at mine.cu:10: the emulator needs its accumulators as the elements of one array",
                "cp.async.cg.shared.global at mine.cu:12: .cg copies 16 bytes", "asm() at mine.cu:13: there is no operand %2",
                *(f"{name} at mine.cu:{line}: the emulator knows it with .b32 alone"
                  for line, name in enumerate(("lop3.b64", "prmt.b64", "shf.l.wrap.b64"), 15))), strict=True):
            self.assertIn(says, output)

    def test_a_kernel_of_the_book_as_one_file(self):
        output = self.emulate(single.single("16_max_free"), "256", "1")
        self.assertRegex(output, r"(?s)16_max_free, seq_len 256, heads 1, batch 1\nrelative error .*: passed\n"
                                 r".*\nattention_kernel<__nv_bfloat16, 128, 128>, by kind of instruction\n.*\nwgmma  ")

    def test_a_launch_that_takes_long_says_how_far_it_is(self):
        text = ("__global__ void slow() {\n  for (int i = 0; i < 500; i++) __syncthreads();\n}\n"
                "int main() {\n  slow<<<400, 128>>>();\n  cudaDeviceSynchronize();\n}\n")
        says = r"(?m)^note: slow: \d+ of 400 CTAs have ended after 0\.1 s%s$"
        with mock.patch.dict(os.environ, FA_BUSY_AFTER="0.1"):
            self.assertRegex(self.emulate(text), says % "; scripts/fa emulate --fast is up to twenty times as fast")
            self.assertRegex(self.emulate(text, before=["--fast"]), says % "")

    def test_headers_of_cuda(self):
        """Beside NVIDIA's own, if they are here, and without them."""
        names = ("cublas_v2.h", "cuda.h", "math_constants.h", "cuComplex.h", "cuda_profiler_api.h", "nvtx3/nvToolsExt.h", "nvToolsExt.h", "nvtx3/nvToolsExtCudaRt.h", "cuda_fp8.h")
        text = "".join(f"#include <{name}>\n" for name in names) + (
            "__global__ void f(cuComplex* z) { *z = cuCmulf(make_cuComplex(3, 4), make_cuComplex(2, CUDART_ZERO_F)); }\n"
            "int main() {\n  cudaProfilerStart();\n  nvtxRangePushA(\"all\");\n  cuComplex* z;\n  cudaMallocManaged(&z, 8);\n  f<<<1, 1>>>(z);\n"
            "  cuDoubleComplex d = cuCdiv(make_cuDoubleComplex(1e200, 3e200), make_cuDoubleComplex(0, 2e200));\n"
            "  printf(\"%g %g %g %g\\n\", cuCabsf(*z), d.x, d.y, CUDART_PI);\n  nvtxRangePop();\n}\n")
        self.assertTrue(self.emulate(text).startswith("10 1.5 -0.5 3.14159\n"))
        handles = """
            #include <cublasLt.h>
            cublasHandle_t handle;
            void check(cublasStatus_t status) { if (status != CUBLAS_STATUS_SUCCESS) printf("%%d\\n", status); }
            int main() {
              check(cublasCreate(&handle));
              check(cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH));
              %s
              printf("made\\n");
            }"""
        self.assertTrue(self.emulate(handles % "").startswith("made\n"))
        self.assertIn("mine.cu:8: cublasSgemm belongs to a library that runs on GPUs alone", self.emulate(
            handles % "check(cublasSgemm(handle, CUBLAS_OP_N));", code=2))
        self.assertIn("mine.cu:2: curandStateMRG32k3a belongs to a library that runs on GPUs alone", self.emulate(
            "#include <curand_kernel.h>\n__global__ void f(curandStateMRG32k3a* state) {}\n", code=2))

    def test_random_numbers_are_those_of_curand(self):
        text = """
            #include <curand_kernel.h>
            #include <cstdio>
            __device__ void mix(unsigned long long& hash, unsigned long long x) { hash = (hash ^ x) * 1099511628211; }
            template <typename State>
            __global__ void integers_and_uniform(unsigned long long* hash) {
              State state;
              for (unsigned long long seed : {0ull, 1234ull, 0x123456789abcdefull})
                for (unsigned long long subsequence : {0ull, 1ull, 77777ull, 0xfedcba9876543210ull})
                  for (unsigned long long offset : {0ull, 3ull, 1000001ull, 0x8000000000000001ull}) {
                    curand_init(seed + threadIdx.x, subsequence, offset, &state);
                    for (int i = 0; i < 6; i++) mix(*hash, curand(&state));
                    mix(*hash, __float_as_uint(curand_uniform(&state)));
                    mix(*hash, __double_as_longlong(curand_uniform_double(&state)));
                    skipahead(5ull, &state);
                    mix(*hash, curand(&state));
                    skipahead_sequence(3ull, &state);
                    mix(*hash, curand(&state));
                  }
            }
            __global__ void fours(unsigned long long* hash) {
              curandStatePhilox4_32_10_t state;
              curand_init(7, 2, 1, &state);
              for (int i = 0; i < 3; i++) {
                const uint4 x = curand4(&state);
                for (unsigned each : {x.x, x.y, x.z, x.w}) mix(*hash, each);
                if (i == 0) mix(*hash, curand(&state));
              }
              const float4 x = curand_uniform4(&state);
              for (float each : {x.x, x.y, x.z, x.w}) mix(*hash, __float_as_uint(each));
              const double2 y = curand_uniform2_double(&state);
              for (double each : {y.x, y.y}) mix(*hash, __double_as_longlong(each));
            }
            template <typename State>
            __global__ void normal(float* x) {
              State state;
              curand_init(1234, 5, 6, &state);
              for (int i = 0; i < 5; i++) *x++ = curand_normal(&state);
              for (int i = 0; i < 3; i++) *x++ = curand_log_normal(&state, 1, 0.5f);
              for (int i = 0; i < 3; i++) *x++ = curand_normal_double(&state);
              const float2 two = curand_normal2(&state);
              *x++ = two.x, *x++ = two.y;
              const double2 more = curand_normal2_double(&state);
              *x++ = more.x, *x++ = more.y, *x++ = curand_uniform(&state);
            }
            int main() {
              unsigned long long* hash;
              float* x;
              cudaMallocManaged(&hash, 8);
              cudaMallocManaged(&x, 64);
              const auto show = [&](bool hashed) {
                cudaDeviceSynchronize();
                if (hashed) printf("%016llx\\n", *hash);
                for (int i = 0; i < 16 && !hashed; i++) printf("%.6f%c", x[i], i < 15 ? ' ' : '\\n');
                *hash = 14695981039346656037ull;
              };
              *hash = 14695981039346656037ull;
              integers_and_uniform<curandState><<<1, 1>>>(hash), show(true);
              integers_and_uniform<curandStatePhilox4_32_10_t><<<1, 1>>>(hash), show(true);
              fours<<<1, 1>>>(hash), show(true);
              normal<curandState><<<1, 1>>>(x), show(false);
              normal<curandStatePhilox4_32_10_t><<<1, 1>>>(x), show(false);
            }"""
        lines = self.emulate(text).splitlines()
        # What it prints on an H100 with CUDA 13.0's header. Its logarithms and sines are approximations.
        self.assertEqual(lines[:3], ["4f68676ef784213d", "da06b5dda2379749", "1b2225d1b217ca4b"])
        for line, of_gpu in zip(lines[3:5], (
                "-0.848761 0.163443 0.331306 0.476314 1.363455 4.087295 4.065273 4.314713 1.013595 -0.345281 1.974924 -0.757435 0.465876 "
                "-1.111546 1.038831 0.186803",
                "0.575402 -1.707829 -1.601748 1.102266 -2.359208 3.923024 2.918949 4.283780 0.804073 -0.563577 -1.800745 -1.000071 "
                "-0.219182 -0.112595 -0.277519 0.130384")):
            for x, y in zip(line.split(), of_gpu.split(), strict=True):
                self.assertAlmostEqual(float(x), float(y), delta=3e-6)

    def test_names_of_the_runtime_that_only_hint(self):
        text = """
            __constant__ int variable;
            __global__ void f(int* x) { *x = variable; }
            int main() {
              int *managed, *device, one = 1, zero = 7, value, priority;
              cudaMallocManaged(&managed, 8);
              const cudaMemLocation there = {cudaMemLocationTypeDevice, 0};
              printf("%d%d", cudaMemPrefetchAsync(managed, 8, there, 0, 0), cudaMemAdvise(managed, 8, cudaMemAdviseSetReadMostly, there));
              cudaMemPool_t pool;
              cudaDeviceGetDefaultMemPool(&pool, 0);
              size_t threshold = ~0ull;
              cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold);
              cudaMallocFromPoolAsync(&device, 4, pool, 0);
              cudaStreamAttrValue hint = {};
              hint.accessPolicyWindow.hitRatio = 1;
              cudaStreamSetAttribute(0, cudaStreamAttributeAccessPolicyWindow, &hint);
              cudaMemcpyToSymbolAsync(variable, &one, 4, 0, cudaMemcpyHostToDevice, 0);
              f<<<1, 1>>>(device);
              cudaMemcpyFromSymbolAsync(&zero, variable, 4, 0, cudaMemcpyDeviceToHost);
              cudaMemcpy(&value, device, 4, cudaMemcpyDeviceToHost);
              printf("%d%d ", value, zero);
              cudaStreamGetPriority(0, &priority);
              for (const void* each : {(void*)managed, (void*)device, (void*)&one}) {
                cudaPointerAttributes all;
                cudaPointerGetAttributes(&all, each);
                printf("%d%d%d", all.type, all.device, all.hostPointer == each);
              }
              cudaDeviceGetAttribute(&value, cudaDevAttrMemoryPoolsSupported, 0);
              printf(" %d %d\\n", value, priority);
              cudaFreeAsync(device, 0);
            }"""
        self.assertTrue(self.emulate(text).startswith("0011 3012000-21 1 0\n"))

    def test_parameters_by_reference_and_with_destructors(self):
        text = """
            struct Shared {
              Shared() { cudaMallocManaged(&data, 4); }
              Shared(const Shared& other) : Shared() { *data = *other.data; }
              ~Shared() { cudaFree(data); }
              int* data;
            };
            struct Pair { int a, b; };
            struct Owner { ~Owner() { cudaFree(data); } int* data; };
            __global__ void owned(Owner own, int* x) { *x = *own.data + 3; }
            __global__ void by_reference(int n, Pair& pair, const Shared& own) { pair.b += n + pair.a + *own.data; }
            template <typename T> __global__ void deduced(T& pair) { pair.b++; }
            __global__ void by_value(Shared own) {}
            template <typename T> T* managed() {
              void* memory;
              cudaMallocManaged(&memory, sizeof(T));
              return new (memory) T;
            }
            int main() {
              Shared& own = *managed<Shared>();
              Pair* pair = managed<Pair>();
              *pair = {2, 3};
              *own.data = 4;
              by_reference<<<1, 1>>>(0, *pair, own);
              Owner& owner = *managed<Owner>();
              cudaMallocManaged(&owner.data, 4);
              *owner.data = 1;
              owned<<<1, 1>>>(owner, &pair->a);
              printf("%d %d\\n", pair->a, pair->b);
              by_value<<<1, 1>>>(own);
            }"""
        output = self.emulate(text, code=1)
        self.assertTrue(output.startswith("4 9\n"), output)
        self.assertRegex(output, r"error: by_value, .*cudaMallocManaged\(\) at mine\.cu:3 is called in a kernel, as the constructor or destructor of a parameter does")
        output = self.emulate("#include <cstdio>\n__global__ void f(int* x) { x[1ll << 43] = 1; }\nint main() { puts(\"before\"); f<<<1, 1>>>(nullptr); }\n", code=1)
        self.assertTrue(output.startswith("before\n"), output)

    def test_threads_of_the_host(self):
        text = """
            #include <thread>
            __global__ void twice(int* x) { x[threadIdx.x] *= 2; }
            void run(int first, int* wrong) {
              for (int i = 0; i < 50; i++) {
                int host[32], *x;
                for (int k = 0; k < 32; k++) host[k] = first + k;
                cudaMalloc(&x, 128);
                cudaMemcpy(x, host, 128, cudaMemcpyHostToDevice);
                twice<<<1, 32, 0, cudaStreamPerThread>>>(x);
                cudaMemcpy(host, x, 128, cudaMemcpyDeviceToHost);
                for (int k = 0; k < 32; k++) *wrong += host[k] != 2 * (first + k);
                cudaFree(x);
              }
            }
            int main() {
              int wrong[4] = {};
              std::thread a(run, 1, wrong), b(run, 20, wrong + 1), c(run, 300, wrong + 2);
              run(4000, wrong + 3);
              a.join(), b.join(), c.join();
              printf("%d wrong\\n", wrong[0] + wrong[1] + wrong[2] + wrong[3]);
            }"""
        output = self.emulate(text)
        self.assertTrue(output.startswith("0 wrong\n"), output)
        self.assertEqual(counts(output, "twice", "global load")[0], 200)

    def test_helpers_of_nvidias_samples(self):
        text = """
            #include <helper_functions.h>
            #include "helper_cuda.h"
            __global__ void f(float* x) { x[threadIdx.x] = threadIdx.x; }
            int main(int n, char** words) {
              const char** options = (const char**)words;
              findCudaDevice(n, options);
              StopWatchInterface* timer = nullptr;
              sdkCreateTimer(&timer);
              sdkStartTimer(&timer);
              float *x, host[4], want[4] = {0, 1, 2, 3}, *read = nullptr;
              char* text = nullptr;
              checkCudaErrors(cudaMalloc((void**)&x, 16));
              f<<<1, 4>>>(x);
              getLastCudaError("f");
              checkCudaErrors(cudaMemcpy(host, x, 16, cudaMemcpyDeviceToHost));
              sdkStopTimer(&timer);
              printf("%d%d", sdkGetTimerValue(&timer) > 0, sdkGetTimerValue(&timer) == sdkGetAverageTimerValue(&timer));
              sdkResetTimer(&timer);
              printf("%d", sdkGetTimerValue(&timer) == 0);
              printf("%d ", sdkDeleteTimer(&timer));
              printf("%d%d %d%d %g ", checkCmdLineFlag(n, options, "quiet"), checkCmdLineFlag(n, options, "n"), getCmdLineArgumentInt(n, options, "n"),
                     getCmdLineArgumentInt(n, options, "none"), getCmdLineArgumentFloat(n, options, "x"));
              printf("%d", getCmdLineArgumentString(n, options, "name", &text));
              printf("%s\\n", text);
              printf("%d%d", sdkCompareL2fe(want, host, 4, 1e-6f), sdkCompareL2fe(want, host + 1, 3, 1e-6f));
              printf("%d%d ", compareData(want, host, 4, 0.1f, 0.0f), compareData(want, host + 1, 3, 0.1f));
              unsigned count = 0;
              printf("%d %d", sdkFindFilePath("numbers.txt", words[0]) != nullptr, sdkFindFilePath("none.txt", words[0]) != nullptr);
              printf(" %d", sdkReadFile(sdkFindFilePath("numbers.txt", words[0]), &read, &count, false));
              printf(" %u %g %d\\n", count, read[1], MAX(ftoi(1.7f), 1));
              checkCudaErrors(cudaMemcpy(x, host, 32, cudaMemcpyHostToDevice));
              return 0;
            }"""
        output, = self.runs(text, [["-quiet", "--n=7", "-x=2.5", "name=none", "-Name=of"]], [1], others={"data/numbers.txt": "3 4.5\n"})
        self.assertTrue(output.startswith('GPU Device 0: "emulator" with compute capability 9.0\n\n1111 11 70 2.5 1of\n1010 1 0 1 2 4.5 2\n'), output)
        self.assertIn('/mine.cu:32 code=1(cudaErrorInvalidValue) "cudaMemcpy(x, host, 32, cudaMemcpyHostToDevice)"\n', output)

    def test_small_names_of_the_runtime(self):
        text = """
            __managed__ int variable;
            __global__ void f(int* x, size_t pitch) { __stcg((int*)((char*)x + threadIdx.x * pitch) + 1, 1.5f * threadIdx.x); }
            int main() {
              int *pitched, *managed, *mapped, *device, host[2][2] = {}, least, greatest, clock;
              cudaSharedMemConfig banks;
              size_t pitch, heap;
              cudaSetDeviceFlags(cudaDeviceMapHost);
              cudaMallocPitch(&pitched, &pitch, 8, 2);
              cudaMemset2D(pitched, pitch, 0, 8, 2);
              f<<<1, 2>>>(pitched, pitch);
              cudaMemcpy2DAsync(host, 8, pitched, pitch, 8, 2, cudaMemcpyDeviceToHost, 0);
              cudaDeviceGetSharedMemConfig(&banks);
              printf("%d%d ", banks, cudaFuncSetAttribute(f, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
              printf("%zu %d%d%d%d\\n", pitch, host[0][0], host[0][1], host[1][0], host[1][1]);
              cudaMallocManaged(&managed, 8, cudaMemAttachSingle);
              printf("%d", cudaMemPrefetchAsync(managed, 8, cudaCpuDeviceId, 0));
              printf(" %d", cudaMemAdvise(managed, 8, cudaMemAdviseSetReadMostly, 0));
              printf(" %s\\n", cudaGetErrorString(cudaMemPrefetchAsync(pitched, 8, 0)));
              cudaHostAlloc(&mapped, 1024, cudaHostAllocMapped);
              cudaHostGetDevicePointer(&device, mapped, 0);
              f<<<1, 1>>>(device, 0);
              printf("%d %s\\n", mapped[1], cudaGetErrorName(cudaHostGetDevicePointer(&device, host, 0)));
              int* own = (int*)malloc(8);
              printf("%d ", cudaHostRegister(own, 8, cudaHostRegisterMapped));
              f<<<1, 1, 0, cudaStreamPerThread>>>(own, 0);
              printf("%d %d", own[1], cudaHostRegister(own, 8, 0));
              printf(" %d", cudaHostUnregister(own));
              printf(" %d\\n", cudaHostUnregister(own));
              cudaStream_t stream;
              cudaDeviceGetStreamPriorityRange(&least, &greatest);
              cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest);
              cudaLaunchHostFunc(stream, [](void* n) { printf("%d ", *(int*)n); }, &greatest);
              cudaDeviceSetLimit(cudaLimitMallocHeapSize, 99);
              cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize);
              enum cudaError advice = cudaMemAdvise(&variable, 4, cudaMemAdviseSetAccessedBy, 0);
              printf("%d ", advice);
              cudaDeviceProp all;
              cudaGetDeviceProperties(&all, 0);
              cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, 0);
              printf("%zu %d %s\\n", heap, all.clockRate - clock + !all.maxTexture2DLayered[2], cudaGetErrorString(cudaErrorInvalidPc));
              const cudaUUID_t& uuid = all.uuid;
              printf("%d %d %d ", uuid.bytes[15], all.luid[7], all.luidDeviceNodeMask);
              printf("%d %d %d ", all.maxSurface1D, all.maxSurface2D[1], all.maxSurface3D[2]);
              printf("%d %d ", all.maxSurface1DLayered[1], all.maxSurface2DLayered[2]);
              printf("%d %d\\n", all.maxSurfaceCubemap, all.maxSurfaceCubemapLayered[1]);
              cudaGetLastError();
              return cudaThreadSynchronize() + cudaThreadExit();
            }"""
        self.assertRegex(self.emulate(text), r"(?s)^10 512 0001\n0 0 invalid argument\n0 cudaErrorInvalidValue\n0 0 712 0 713\n-5 0 99 0 invalid program counter\n"
                         r"0 0 0 32768 65536 16384 2048 2048 32768 2046\n.*"
                         r"error: cudaMemPrefetchAsync at mine\.cu:19: this is not memory of cudaMallocManaged\(\) ")

    def test_what_cannot_be_compiled(self):
        with mock.patch.dict(os.environ, FA_BUSY_AFTER="0"):
            output = self.emulate("__global__ void f() { __nanosleepy(1); }\nint main() {}\n", code=2)
        self.assertRegex(output, r"(?m)^building \w+ and the emulator, .* \.\.\.$\n(.|\n)*^compiling .*mine\.cu \.\.\.$")
        self.assertIn("mine.cu:1: the emulator has no __nanosleepy; docs/emulator/what_is_there.md says what of CUDA is there", output)
        output = self.emulate("__global__ void f(half* x) { *x = 0; }\nint main() {}\n", code=2)
        self.assertIn("mine.cu:1: half is in cuda_fp16.h, which the file does not include\n", output)
        output = self.emulate('#define F(name) name\nF(int f)() { asm("mov.u32 %%laneid;"); return 1; }\nint main() {}\n', code=2)
        self.assertIn("the emulator takes the text of asm() for PTX where it stands in a kernel or device function, and cannot see that here\n", output)
        self.assertNotIn("rror: ", output.replace("error: ", "", 1))
        output = self.emulate("__global__ void f(int* x) {\n  *x = __shfl_down(*x, 1);\n}\nint main() {}\n", code=2)
        self.assertIn("mine.cu:2: CUDA has no __shfl_down() from compute capability 7.0 on: write __shfl_down_sync(), whose first argument is the mask", output)
        output = self.emulate("int main() { return heuristic(1); }\n__global__ void f() {}\n", code=2)
        self.assertNotIn("the emulator has no heuristic", output)  # it is the file's own name, not CUDA's
        output = self.emulate("#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n__global__ void f(cg::memory x) {}\n", code=2)
        self.assertIn("mine.cu:3: the emulator has no cg::memory; docs", output)
        output = self.emulate("__global__ void f(int* x, const int& n) { *x = n; }\nint main(int n, char**) {\n  f<<<1, 1>>>(nullptr, n + 1);\n}\n", code=2)
        self.assertIn("mine.cu:3: a kernel's parameter by reference takes memory that the GPU reaches, and a value that the host computes has none\n", output)
        output = self.emulate("#include <cuda/pipeline>\n__global__ void f() { int role = threadIdx.x ? cuda::pipeline_role::consumer : 1; }\n", code=2)
        self.assertIn("mine.cu:2: the emulator has no cuda::pipeline_role; docs", output)
        output = self.emulate('extern "C" int omp_get_num_procs();\nint main() { return omp_get_num_procs(); }\n', code=2)
        self.assertIn("omp_get_num_procs() is OpenMP's, which is not there: go on with one thread, or with std::thread\n", output)
        output = self.emulate('extern "C" void glClearColor(int);\nint main() { glClearColor(1); }\n', code=2)
        self.assertIn("the emulator draws nothing, so glClearColor() is not there\n", output)
        output = self.emulate("struct Two { double a, b; };\n__global__ void f(Two* x) {\n  *x = __shfl_sync(~0u, *x, 0);\n}\n"
                              "int main() { f<<<1, 32>>>(nullptr); }\n", code=2)
        self.assertIn("mine.cu:3: shuffles take numbers of up to 64 bits", output)
        for kinds, shape, says in ((("half", "int"), 16, "mine.cu:8: wmma has no product of these types\n"),
                                   (("signed char", "int"), 8, "wmma has no such shape for this type, or the emulator lacks it: it has 16 x 16 x 16, ")):
            fragments = "".join(f"wmma::fragment<wmma::{use}, {shape}, 16, 16, {kind}{more}> {name};\n" for name, use, kind, more in (
                ("a", "matrix_a", kinds[0], ", wmma::row_major"), ("b", "matrix_b", kinds[0], ", wmma::row_major"), ("c", "accumulator", kinds[1], "")))
            output = self.emulate(f"#include <mma.h>\nusing namespace nvcuda;\n__global__ void f() {{\n\n{fragments}"
                                  "wmma::mma_sync(c, a, b, c);\n}\nint main() {}\n", code=2)
            self.assertIn(says, output)


def compile_all():
    nvcc, _ = find_nvcc()
    with tempfile.TemporaryDirectory() as folder:
        for example in EXAMPLES:
            (command,) = re.findall(r"^//   nvcc (.+?) && ./a.out", example.read_text(), re.MULTILINE)
            run(nvcc, *command.split(), "-o", f"{folder}/{example.stem}", timeout=540, cwd=ROOT)
            print(f"{example.name} compiles")


if __name__ == "__main__":
    if MODE == "--compile":
        compile_all()
    else:
        chosen = [Command] if MODE == "--command" else [Examples, Translator]
        suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromTestCase(each) for each in chosen)
        sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
