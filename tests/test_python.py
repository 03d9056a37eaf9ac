"""The C entry point and Python's package `fa`, on the back end that the library was built for.

Usage: test_python.py LIBFA [LIBFA_WITH_A_BUG] [ARGUMENTS OF unittest]

libfa.so, and one of the checked build that has 02_no_syncwarp too. What else is there is unittest's: some classes or tests
by name (NumPy Transformers.test_generate), or -k with a part of a name.

On a GPU, with a Python that has torch, from the repository's root:

    cmake --preset cuda -DFA_TESTS=OFF && cmake --build build/cuda --target fa
    python3 tests/test_python.py build/cuda/lib/libfa.so

Tests that need torch, a GPU or two of them are skipped where these are missing, and say so. The package is taken from
python/, so that nothing need be installed.
"""

import contextlib
import ctypes
import json
import math
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import types
import unittest
import unittest.mock
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = [each for each in sys.argv[1:] if ".so" in each]
LIBRARY, WITH_BUG = ([Path(each).resolve() for each in LIBRARIES] + [None, None])[:2]


def answers(python, code):
    try:
        return subprocess.run([python, "-c", code], capture_output=True, timeout=120).returncode == 0
    except OSError:
        return False


if not LIBRARY:
    sys.exit(__doc__)
try:
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError:
    torch = None
try:
    import transformers
except ImportError:
    transformers = None
try:
    import numpy
except ImportError:
    numpy = None
if not numpy and not torch:
    others = [str(ROOT / folder / "bin/python") for folder in (".venv-tests", ".venv")]
    other = next((each for each in others if answers(each, "import numpy")), None)
    if not other:
        print("skipped: no Python here has numpy (scripts/test.sh --all installs it)")
        sys.exit(77)
    os.execv(other, [other, "-B", *sys.argv])

os.environ["FA_LIBRARY"] = str(LIBRARY)
sys.path[:0] = str(ROOT / "python"), str(ROOT / "scripts")
import fa  # noqa: E402 - the library must be named first

from fa_tools.sources import registered  # noqa: E402
from fa_tools.tools import code_blocks  # noqa: E402

ON_GPU = fa.backend() == "cuda"
NAMES = [kernel.name for kernel in fa.kernels() if re.match(r"\d\d_[a-z_]+$", kernel.name)][:16]
MOST = {"float16": 6e-4, "bfloat16": 4e-3}  # relative errors: twice what rounding P and O costs on normal inputs
SHAPE = (2, 4, 1024, 128) if ON_GPU else (1, 2, 128, 64)


def reference(q, k, v, causal=False, scale=None, window=(-1, -1), softcap=None, sinks=None, alibi_slopes=None):
    """In float64, of NumPy arrays (..., heads, rows, head_dim)."""
    q, k, v = (each.astype("float64") for each in (q, k, v))
    k, v = (each.repeat(q.shape[-3] // each.shape[-3], -3) for each in (k, v))
    scores = q @ k.swapaxes(-1, -2) * (scale or q.shape[-1] ** -0.5)
    if softcap:
        scores = softcap * numpy.tanh(scores / softcap)
    rows, keys = scores.shape[-2:]
    right = numpy.arange(keys) - numpy.arange(keys - rows, keys)[:, None]  # of the query's place
    if alibi_slopes is not None:
        scores = scores - alibi_slopes[..., None, None] * abs(right)
    visible = (right <= 0) | (not causal)
    for side, most in ((-right, window[0]), (right, window[1])):
        visible = visible & ((side <= most) | (most < 0))
    scores = numpy.where(visible, scores, -1e300)
    sink = -1e300 if sinks is None else sinks[:, None, None].astype("float64")
    highest = numpy.maximum(scores.max(-1, keepdims=True), sink)
    sink = numpy.exp(sink - highest) * (sinks is not None)
    weights = numpy.exp(scores - highest) * visible
    return weights / numpy.maximum(weights.sum(-1, keepdims=True) + sink, 1e-300) @ v


def packed_reference(q, k, v, begins_q, begins_k, causal):
    return numpy.concatenate([reference(q[:, a:b], k[:, c:d], v[:, c:d], causal) for a, b, c, d in
                              zip(begins_q, begins_q[1:], begins_k, begins_k[1:]) if b > a], -2)


OTHERS = [((2, 4, 77, 64), (2, 2, 100, 64)), ((1, 6, 100, 128), (1, 1, 30, 128)), ((1, 2, 1, 64), (1, 2, 129, 64))]  # q's, k's
BEGINS = [0, 40, 40, 57], [0, 9, 30, 60]  # of packed sequences: more queries than keys, keys alone, fewer


LENGTHS = [37, 0, 64]  # keys of the sequences whose k and v are in pages


def in_pages(k, v, size):
    """k and v, (batch, heads, rows, head_dim), with LENGTHS of their rows in pages, which are in reverse order and NaN where
    there are no keys; the block table and the lengths."""
    columns = -(-max(LENGTHS) // size)
    table = numpy.arange(len(LENGTHS) * columns, dtype="int32")[::-1].reshape(len(LENGTHS), columns)
    pools = [numpy.full((table.size, k.shape[1], size, k.shape[3]), numpy.nan, k.dtype) for _ in "kv"]
    for pool, tensor in zip(pools, (k, v)):
        for i, length in enumerate(LENGTHS):
            for key in range(0, length, size):
                pool[table[i, key // size], :, :min(size, length - key)] = tensor[i, :, key:min(key + size, length)]
    return *pools, {"block_table": numpy.ascontiguousarray(table), "seqused_k": numpy.array(LENGTHS, "int32")}


def paged_reference(q, k, v, causal):
    """Of sequences with keys."""
    return [reference(q[i], k[i, :, :length], v[i, :, :length], causal) for i, length in enumerate(LENGTHS) if length]


def arrays(shape=SHAPE, seed=1, kv_shape=None):
    random = numpy.random.default_rng(seed)
    return [random.standard_normal(each).astype("float16") for each in (shape, kv_shape or shape, kv_shape or shape)]


def relative(o, right):
    return numpy.linalg.norm(o.astype("float64") - right) / numpy.linalg.norm(right)


def in_fresh_process(test, code, library=LIBRARY):
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "FA_LIBRARY": str(library), "PYTHONPATH": str(ROOT / "python")})
    test.assertEqual(done.returncode, 0, done.stdout + done.stderr)
    return done.stdout


OTHER = """
#include <string.h>
#include "fa.h"
const char* fa_version(void) { return VERSION; }
const char* fa_backend(void) { return BACKEND; }
const char* fa_architectures(void) { return "none"; }
const char* fa_error(void) { return "no such kernel here"; }
const char* fa_counters(void) { return 0; }
int fa_kernels(fa_kernel* kernels, int capacity) { return 0; }
fa_status fa_plan(const char* kernel, const fa_problem* p, const fa_options* options, int device, const char** plan) {
  *plan = "16_max_free";
  return FA_OK;
}
fa_status fa_plan_backward(const char* kernel, const fa_problem* p, const fa_options* options, int device, const char** plan,
                           size_t* workspace_bytes) {
  return FA_UNSUPPORTED;
}
fa_status fa_attention_backward(const char* kernel, const fa_problem* p, const fa_options* options, const void* q, const void* k,
                                const void* v, const void* o, const void* d_o, void* d_q, void* d_k, void* d_v, void* workspace,
                                size_t workspace_bytes, void* stream) {
  return FA_UNSUPPORTED;
}
fa_status fa_plan_fp8(const char* kernel, const fa_problem* p, const fa_options* options, const fa_fp8* fp8, int device,
                      const char** plan, size_t* workspace_bytes) {
  return FA_UNSUPPORTED;
}
fa_status fa_attention_fp8(const char* kernel, const fa_problem* p, const fa_options* options, const fa_fp8* fp8, const void* q,
                           const void* k, const void* v, void* o, void* workspace, size_t workspace_bytes, void* stream) {
  return FA_UNSUPPORTED;
}
fa_status fa_attention_with(const char* kernel, const fa_problem* p, const fa_options* options, const void* q, const void* k,
                            const void* v, void* o, void* stream) {
  if (!strcmp(kernel, "17")) return FA_BAD_INPUT;
  memset(o, 0x3c, (size_t)p->batch * p->heads * p->seq_len * p->head_dim * 2);
  return FA_OK;
}
"""
TWO = """
import subprocess, sys
import numpy, fa

class OnGpu:
    device = 2, 0
    def __init__(self, data): self.data = data
    def __dlpack__(self, stream=None): return self.data.__dlpack__()
    def __dlpack_device__(self): return self.device
    @property
    def shape(self): return self.data.shape

def empty_like(array): return OnGpu(numpy.empty_like(array.data))

def attention(*given, **options):
    try:
        return fa.attention(*given, **options)
    except fa.BadInput as error:
        print(error)

q, k, v = (numpy.random.default_rng(each).standard_normal((1, 1, 128, 64)).astype("float16") for each in range(3))
print(fa.backend())
right = fa.attention(q, k, v)
print("right" if abs(right).max() > 0.1 and (right != right[0, 0, 0, 0]).any() else right)
print(attention(*map(OnGpu, (q, k, v))).data.max())
print("right" if (fa.attention(q, k, v) == right).all() else "wrong")
print(fa.counters()["kernel"])  # of the last run on the emulator
OnGpu.device = 10, 0
attention(*map(OnGpu, (q, k, v)))
OnGpu.device = 2, 0
mixed = [OnGpu(each) for each in (q, k, v)]
mixed[0].device = 1, 0
attention(*mixed)
attention(*map(OnGpu, (q, k, v)), kernel="17")
said = subprocess.run([sys.executable, "-m", "fa"], capture_output=True, text=True, check=True).stdout
print(said.count(", built for ") + said.count("\\nand for "))
"""


class Sentences(unittest.TestCase):
    def sentence(self, error, pattern, *arguments, **options):
        with self.assertRaisesRegex(error, pattern) as caught:
            fa.attention(*arguments, **options)
        self.assertNotIn("\n", str(caught.exception))
        self.assertIsInstance(caught.exception, fa.Error)

    def check_sentences(self, q, k, v, contiguous):
        self.sentence(fa.BadInput, r"^unknown kernel '17', there are: 01_naive, ", q, k, v, kernel=17)
        self.sentence(fa.BadInput, r"^k has the shape \(1, 1, 128, 64\), but q has ", q, k[:1, :1, :128, :64], v)
        self.sentence(fa.BadInput, r"^q has the shape \(\d+, \d+, \d+\), but fa takes \(batch, heads, seq_len, head_dim\)$",
                      q[0], k[0], v[0])
        self.sentence(fa.Unsupported, r"^08_swizzle takes a multiple of 128 as the number of queries \(seq_len\), not 64; beyond/\w+ takes it$",
                      *(contiguous(each[:, :, :64]) for each in (q, k, v)), kernel=8)
        self.sentence(fa.BadInput, "^head_dim must be 64, 96, 128 or 256, not 32$",
                      *(contiguous(each[..., :32]) for each in (q, k, v)))
        self.sentence(fa.BadInput, r"^v has the strides \(.*\) for the shape \(.*\), but kernel 11 takes contiguous tensors: pass ",
                      q, k, self.turned(v), kernel=11)
        self.sentence(fa.BadInput, "but q has .*: head_dim must be the same$", q, contiguous(k[..., :32]), contiguous(v[..., :32]))
        for kernel in ("08\0x", "\ud800", 8.0, True):
            self.sentence(fa.BadInput, "^kernel is .*, but fa takes a number or a name", q, k, v, kernel=kernel)
        with self.assertRaises(TypeError):  # FlashAttention has dropout_p there
            fa.attention(q, k, v, 8)
        self.sentence(fa.BadInput, "^causal is 'False', but fa takes True or False$", q, k, v, kernel="plain", causal="False")
        self.sentence(fa.BadInput, r"^causal is a mask of the shape \(1, 2, 128, 128\), but fa takes True or False$", q, k, v, kernel="plain", causal=q > k)
        self.sentence(fa.BadInput, "^k is of type list, but q of type ", q, [1], v)

    @staticmethod
    def turned(tensor):
        """The same shape, but with seq_len before heads in memory."""
        if hasattr(tensor, "contiguous"):
            return tensor.transpose(1, 2).contiguous().transpose(1, 2)
        return numpy.ascontiguousarray(tensor.swapaxes(1, 2)).swapaxes(1, 2)


class Anywhere(Sentences):
    def test_kernels_say_what_they_need(self):
        said = subprocess.run([sys.executable, "-B", "-m", "fa"], cwd=ROOT / "python", capture_output=True, text=True, check=True, timeout=60).stdout
        self.assertEqual((ROOT / "common/api/fa.h").read_text(encoding="utf-8").split('FA_VERSION "')[1].split('"')[0], fa.__version__)
        self.assertRegex(said, rf"^fa {fa.__version__}, built for (CUDA|the emulator(-checked)?) on \w[^\n]*\n/\S*libfa\S*\n"
                               r"[\s\S]*\n  16_max_free +a GPU of compute capability 9\.0\n")
        kernels = {each.name: each for each in fa.kernels()}
        self.assertEqual(len(NAMES), 16)
        self.assertEqual(kernels["08_swizzle"].needs, "a GPU of compute capability 8.0 or later")
        self.assertEqual(kernels["16_max_free"].needs, "a GPU of compute capability 9.0")
        self.assertEqual(kernels["03_register_tiling"].needs, "a GPU of compute capability 7.5 or later, with head_dim 128 of 8.0 or later")
        self.assertEqual(kernels["05_mma_split_kv"].needs, "a GPU of compute capability 7.5 or later, with bf16 of 8.0 or later")
        found = [registered(path) for folder in ("", "beyond") for path in (ROOT / "kernels" / folder).glob("*.cu")]
        self.assertEqual({each.name: (f"{each.capability / 10}", each.exactly) for each in found}, {name: each[1:3] for name, each in kernels.items()})
        self.assertEqual({each.name: " or ".join(["bf16"] * (each.for_bf16 > 0) + ["head_dim 128"] * (each.shared_bytes > 64 << 10))
                          for each in found if each.for_bf16 or each.shared_bytes}, fa._library.MORE)

    def test_a_library_that_is_not_there(self):
        code = "try: import fa\nexcept ImportError as error: print(error)"
        for other in (sys.modules["_ctypes"].__file__, __file__):
            self.assertRegex(in_fresh_process(self, code, other), "^/.* is no library of fa, or of an older one: ")
        self.assertRegex(in_fresh_process(self, code, "/nowhere/libfa.so"), "^there is no /nowhere/libfa.so: install")

    def test_example_in_c(self):
        if ON_GPU:
            self.skipTest("the example in C runs on none of the GPUs: its tensors are on the CPU")
        text = code_blocks(ROOT / "docs/use.md", "c")[0]
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "example.c").write_text(text, encoding="utf-8")
            command = [*shlex.split(os.environ.get("CC", "cc")), "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                       "example.c", "-I", ROOT / "common/api", "-o", "example", LIBRARY, f"-Wl,-rpath,{LIBRARY.parent}"]
            if not shutil.which(command[0]):
                self.skipTest("cc is not installed")
            subprocess.run(command, cwd=folder, check=True, timeout=60)
            printed = subprocess.run(["./example"], cwd=folder, check=True, timeout=60, capture_output=True, text=True)
        self.assertEqual(printed.stdout, "O[0] is 0x4000, 2.0 in bf16\n")

    @unittest.skipUnless(torch, "torch is not installed")
    def test_examples_in_python(self):
        for page, count in (("use", 2), ("in_a_model", 4)):
            blocks = "".join(code_blocks(ROOT / f"docs/{page}.md", "python"))
            examples = re.split(r"(?m)^(?=import fa$)", blocks)[1:]  # an example may go on in the block after the next sentences
            self.assertEqual(len(examples), count)
            for text in examples:
                if ON_GPU:
                    text = 'import torch\ntorch.set_default_device("cuda")\n' + re.sub("(?m)^.*fa.counters.*$", "", text)
                printed = in_fresh_process(self, text)
                for difference in re.findall(r"largest difference: (\S+)", printed):
                    self.assertLess(float(difference), 0.02)
                self.assertRegex(printed, "largest difference|the same tokens: True")

    def test_addresses_of_the_package_have_no_secret(self):
        import project_metadata

        for remote, wanted in (("https://github.com/a/b.git", "https://github.com/a/b"), ("git@h.org:a/b.git", "https://h.org/a/b"),
                               ("https://user:secret@h.org:8443/a/b/", "https://h.org:8443/a/b"), ("ssh://git@h.org:22/a/b", "https://h.org/a/b"),
                               ("/folder/b", ""), ("file:///folder/b", ""), ("../b", ""), ("", "")):
            self.assertEqual(project_metadata.public(remote), wanted)

    def test_the_description_has_no_comments_and_whole_links(self):
        import project_metadata

        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        for source in ("https://h.org/a/b", ""):
            text = project_metadata.description(readme, source)
            self.assertNotRegex(text, r"<!--|<picture|\]\((?!https://|#)")
            self.assertEqual("](https://h.org/a/b/blob/main/docs/README.md)" in text, bool(source))
            self.assertEqual("](https://h.org/a/b/raw/main/docs/pictures/map.svg)" in text, bool(source))
            self.assertEqual(text.count("\n## "), readme.count("\n## "))

    def test_two_libraries_and_each_tensor_goes_to_its_own(self):
        """The other of the two is a stand-in: it says what it was built for, and writes one value."""
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "other.c").write_text(OTHER, encoding="utf-8")
            compiler = shlex.split(os.environ.get("CC", "cc"))
            if not shutil.which(compiler[0]):
                self.skipTest("cc is not installed")
            built_for = {"other": "emulator" if ON_GPU else "cuda", "cuda": "cuda", "old": "cuda"}
            made = {}
            for name, backend in built_for.items():
                made[name] = Path(folder, f"lib{name}.so")
                subprocess.run([*compiler, "-shared", "-fPIC", "-I", ROOT / "common/api", f'-DBACKEND="{backend}"',
                                f'-DVERSION={"FA_VERSION" if name != "old" else chr(34) + "0.9.0" + chr(34)}', "other.c", "-o", made[name]],
                               cwd=folder, check=True, timeout=60)
            takes = {LIBRARY: "the emulator and takes tensors of the CPU", made["other"]: "CUDA and takes tensors of a GPU"}
            for first, second in () if ON_GPU else (list(takes), reversed(takes)):
                lines = in_fresh_process(self, TWO, f"{first}:{second}").splitlines()
                self.assertEqual(lines, [
                    fa.backend() if first == LIBRARY else "cuda", "right", "1.059", "right", "beyond/share_tiles",
                    f"q is on DLPack's device type 10, but this fa was built for {takes[first]} or for {takes[second]}",
                    "k has the device cuda:0, but q has cpu", "no such kernel here", "2"])
            code = "try: import fa\nexcept ImportError as error: print(error)"
            said = in_fresh_process(self, code, f"{made['cuda']}:{made['old']}")
            self.assertRegex(said, "^/.*/libold.so was built for cuda as another library is: FA_LIBRARY names one of each kind\n$")
            if not ON_GPU:
                said = in_fresh_process(self, code, f"{LIBRARY}:{made['old']}")
                self.assertRegex(said, r"^/\S* and /\S*/libold.so are of different versions: install the package again\n$")

    def test_header_is_c_plus_plus_too(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "a.cpp").write_text('#include "fa.h"\nint main() { return fa_kernels(nullptr, 0) == 0; }\n')
            compiler = shlex.split(os.environ.get("CXX", "c++"))
            if not shutil.which(compiler[0]):
                self.skipTest("c++ is not installed")
            subprocess.run([*compiler, "-Wall", "-Werror", "-fsyntax-only", "-I", ROOT / "common/api", "a.cpp"], cwd=folder,
                           check=True, timeout=60)

    def test_errors_are_of_the_package(self):
        for error in (fa.Error, fa.BadInput, fa.LaunchError, fa.Unsupported):
            self.assertEqual((error.__module__, getattr(fa, error.__name__)), ("fa", error))

    def test_not_a_tensor(self):
        self.sentence(fa.BadInput, "^q is of type list, but fa takes torch tensors", [1], [1], [1])


@unittest.skipIf(ON_GPU, "needs the emulator, and fa was built for a GPU")
@unittest.skipUnless(numpy, "numpy is not installed")
class NumPy(Sentences):
    def test_every_kernel(self):
        for head_dim, scale in ((64, None), (128, None), (64, 0.3)):
            q, k, v = arrays((1, 2, 128, head_dim))
            right = reference(q, k, v, scale=scale)
            for name in NAMES:
                with self.subTest(kernel=name, head_dim=head_dim, scale=scale):
                    o = fa.attention(q, k, v, kernel=name, scale=scale)
                    self.assertEqual((type(o), o.dtype, o.shape), (numpy.ndarray, q.dtype, q.shape))
                    self.assertLess(relative(o, right), MOST["float16"])

    def test_numbers_are_names(self):
        q, k, v = arrays((2, 3, 256, 64))
        o = fa.attention(q, k, v, kernel=8)
        self.assertEqual(fa.counters()["kernel"], "08_swizzle")
        numpy.testing.assert_array_equal(o, fa.attention(q, k, v, kernel="08_swizzle"))
        self.assertEqual(fa.plan(q, k, v, kernel=8), ("08_swizzle", {}))

    def test_the_fastest_kernel_that_takes_the_problem(self):
        """What it is, what plan() says, and the right result. The emulator runs what an H200 does."""
        plain, grouped, longer = ((1, 4, 128, 64), None), ((1, 8, 128, 64), (1, 2, 128, 64)), ((1, 2, 128, 64), (1, 2, 256, 64))
        for (shape, kv_shape), options, kernel, faster in (
                (plain, {}, "16_max_free", {}),
                (plain, {"causal": True}, "beyond/causal", {"16_max_free": "takes mask none, not causal"}),
                (plain, {"return_lse": True}, "beyond/causal", {"16_max_free": "has one output, without log-sum-exp"}),
                (grouped, {}, "beyond/causal", {"16_max_free": "takes as many heads of keys as of queries (kv_heads 8), not 2"}),
                (longer, {}, "beyond/causal", {"16_max_free": "takes as many keys as queries (kv_len 128), not 256"}),
                (((1, 4, 100, 64), None), {}, "beyond/causal",
                 {"16_max_free": "takes a multiple of 128 as the number of queries (seq_len), not 100"}),
                (((1, 300, 100, 96), None), {}, "beyond/causal",
                 {"16_max_free": "takes head_dim 64 or 128, not 96; a multiple of 128 as the number of queries (seq_len), not 100"}),
                (((2, 8, 1, 64), (2, 2, 77, 64)), {"causal": True}, "beyond/split_keys", {}),
                (((2, 8, 1, 256), (2, 2, 77, 256)), {"causal": True}, "beyond/split_keys", {})):
            q, k, v = arrays(shape, kv_shape=kv_shape)
            plan = fa.plan(q, k, v, **options)
            self.assertEqual(plan, (kernel, faster))
            o = fa.attention(q, k, v, **options)
            self.assertEqual(fa.counters()["kernel"], kernel)
            o = o[0] if "return_lse" in options else o
            self.assertLess(relative(o, reference(q, k, v, "causal" in options)), MOST["float16"], (shape, options))
            turned = [numpy.ascontiguousarray(each.swapaxes(1, 2)) for each in (q, k, v)]
            self.assertEqual(fa.plan(*turned, layout="bnhd", **options), plan)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the copies that it makes
            self.assertEqual(fa.plan(*arrays((1, 128, 2, 64)), layout="bnhd", kernel=3).kernel, "03_register_tiling")
        self.assertEqual(str(fa.plan(*arrays(), causal=True)), "beyond/causal\n  not 16_max_free, which takes mask none, not causal")
        q, k, v = arrays((4, 57, 64), kv_shape=(2, 60, 64))
        packed = dict(zip(("cu_seqlens_q", "cu_seqlens_k"), (numpy.array(each, "int32") for each in BEGINS)))
        self.assertIn(fa.plan(q, k, v, **packed).kernel, ("beyond/causal", "beyond/share_tiles"))  # by an estimate
        q, k, v = arrays((3, 4, 100, 64), kv_shape=(3, 4, 64, 64))  # in pages, though it is not for many queries
        pool_k, pool_v, lists = in_pages(k, v, 16)
        plan = fa.plan(q, pool_k, pool_v, **lists)
        self.assertEqual((plan.kernel, plan.faster["beyond/causal"]), ("beyond/split_keys", "takes K and V in one piece, not in pages (page_size)"))
        with self.assertRaisesRegex(fa.BadInput, "^head_dim must be 64, 96, 128 or 256, not 32$"):
            fa.plan(*arrays((1, 1, 128, 32)))
        with self.assertRaisesRegex(fa.Unsupported, "^08_swizzle takes mask none, not causal; beyond/causal takes it$"):
            fa.plan(*arrays(), kernel=8, causal=True)

    def test_the_result_is_contiguous(self):
        """Also where q is one head for a batch of three, and where its dimensions are exchanged."""
        q, k, v = arrays((3, 1, 128, 64))
        for like in (numpy.broadcast_to(q[:1], q.shape), numpy.asfortranarray(q.transpose(3, 2, 1, 0)).transpose(3, 2, 1, 0), self.turned(q)):
            o = fa.attention(like, k, v)
            self.assertTrue(o.flags.c_contiguous)
            self.assertLess(relative(o, reference(like, k, v)), MOST["float16"])

    def test_masks_heads_of_keys_and_lengths(self):
        for shape, kv_shape in OTHERS:
            for causal in (False, True):
                q, k, v = arrays(shape, kv_shape=kv_shape)
                o = fa.attention(q, k, v, kernel="plain", causal=causal)
                self.assertLess(relative(o, reference(q, k, v, causal)), MOST["float16"], (shape, causal))
        self.assertEqual([fa.counters()[name] for name in ("kernel", "mask", "kv_len")], ["beyond/plain", "causal", 129])
        q, k, v = arrays((4, 57, 64), kv_shape=(2, 60, 64))
        begins = [numpy.array(each, "int32") for each in BEGINS]
        for most in ({}, {"max_seqlen_q": 40, "max_seqlen_k": 128}):
            o = fa.attention(q, k, v, kernel="plain", causal=True, cu_seqlens_q=begins[0], cu_seqlens_k=begins[1], **most)
            self.assertLess(relative(o, packed_reference(q, k, v, *BEGINS, True)), MOST["float16"])
            self.assertFalse(o[:, :31].any(), "40 queries and 9 keys: 31 rows without a key are zeros")
        self.assertEqual(fa.counters()["lengths"], [40, 0, 17])

    def test_what_happens_to_scores(self):
        sinks, per_head, per_sequence = (numpy.array(each, "float32") for each in ([1, 3], [0.5, 0.1], [[0.5, 0.1], [0.02, 0.3]]))
        for options in ({"window": (20, -1)}, {"window": (-1, 0)}, {"window": (5, 9)}, {"softcap": 1.5}, {"sinks": sinks}, {"alibi_slopes": per_head},
                        {"alibi_slopes": per_sequence}, {"window": [30, 0], "softcap": 20, "sinks": sinks, "alibi_slopes": per_sequence}):
            for causal in (False, True):
                q, k, v = arrays((2, 2, 60, 64), kv_shape=(2, 1, 50, 64))
                o, lse = fa.attention(q, k, v, causal=causal, return_lse=True, **options)
                self.assertLess(relative(o, reference(q, k, v, causal, **options)), MOST["float16"], (options, causal))
                to_the_right = 0 if causal else options.get("window", (-1, -1))[1]
                blind = 10 - to_the_right if to_the_right >= 0 else 0  # 60 queries and 50 keys
                self.assertFalse(o[:, :, :blind].any())
                of_none = sinks[:, None] if "sinks" in options else -numpy.inf
                self.assertTrue((lse[:, :, :blind] == of_none).all() and numpy.isfinite(lse[:, :, blind:]).all())
        said = fa.counters()
        self.assertEqual([said[name] for name in ("kernel", "mask", "window", "softcap", "alibi", "sinks")],
                         ["beyond/causal", "causal", [30, 0], 20.0, "sequence", True])
        q, k, v = arrays((2, 57, 64), kv_shape=(1, 60, 64))
        begins = [numpy.array(each, "int32") for each in BEGINS]
        o = fa.attention(q, k, v, cu_seqlens_q=begins[0], cu_seqlens_k=begins[1], causal=True, window=(3, -1), sinks=sinks,
                         alibi_slopes=numpy.array([[0.5, 0.1], [9, 9], [0.02, 0.3]], "float32"))
        self.assertLess(relative(o[:, 40:], reference(q[:, 40:], k[:, 30:], v[:, 30:], True, None, (3, -1), None, sinks, per_sequence[1])),
                        MOST["float16"])
        q, (_, k, v) = arrays((3, 2, 5, 64))[0], arrays((3, 1, 64, 64))
        pool_k, pool_v, lists = in_pages(k, v, 16)
        o = fa.attention(q, pool_k, pool_v, window=(20, 0), softcap=4, sinks=sinks, **lists)
        for i, length in enumerate(LENGTHS):
            right = reference(q[i], k[i, :, :length], v[i, :, :length], False, None, (20, 0), 4, sinks) if length else numpy.zeros((2, 5, 64))
            self.assertLessEqual(numpy.linalg.norm(o[i] - right), MOST["float16"] * numpy.linalg.norm(right))
        self.assertEqual(fa.plan(*arrays(), window=(3, 0), sinks=sinks).kernel, "beyond/causal")
        qkv = arrays((2, 2, 60, 64), kv_shape=(2, 1, 50, 64))
        for causal, window, hides in ((True, (-1, 0), False), (True, (49, 0), False), (False, (49, 59), False), (False, (-1, 0), False),
                                      (True, (48, 0), True), (False, (48, 59), True), (False, (49, 58), True)):
            # share_tiles takes no window. A program in C, too, whose window no Python has looked at.
            call = fa._library.prepare("share_tiles", (2, 2, 60, 64), "float16", (2, 1, 50, 64), causal, scores=fa._library.Scores(window))
            for plan in (lambda: fa.plan(*qkv, kernel="share_tiles", causal=causal, window=window), lambda: fa._library.plan(call)):
                with self.subTest(causal=causal, window=window):
                    if hides:
                        self.assertRaisesRegex(fa.Unsupported, "takes window -1,-1, not", plan)
                    else:
                        self.assertEqual(plan().kernel, "beyond/share_tiles")

    def test_sentences_of_scores(self):
        def refused(words, error=fa.BadInput, **options):
            self.sentence(error, words, *arrays((2, 2, 128, 64)), **options)

        for window in (5, (1, 2, 3), (-2, 0), (0.5, 1), "no", (0, 1 << 31)):
            refused(r"^window is .*, but fa takes \(left, right\), numbers of keys from 0 to 1073741824, or -1 for all$", window=window)
        for cap in (-1, "30", float("nan"), float("inf"), True, 1e-60, 10**400):
            refused("^softcap is .*, but fa takes a number from 1e-30 to 1e30, or None for no cap$", softcap=cap)
        of_two = numpy.zeros(2, "float32")
        refused(r"^sinks has the shape \(3,\), but fa takes \(2,\) here$", sinks=numpy.zeros(3, "float32"))
        refused(r"^sinks is of float64 on cpu, but fa takes float32 on cpu$", sinks=numpy.zeros(2))
        refused(r"^sinks has the strides \(2,\) for the shape \(2,\), but fa takes contiguous", sinks=numpy.zeros(4, "float32")[::2])
        refused(r"^alibi_slopes has the shape \(3, 2\), but fa takes \(2,\) or \(2, 2\) here$", alibi_slopes=numpy.zeros((3, 2), "float32"))
        for kernel, words in ((8, "08_swizzle takes window -1,-1, not 3,0"), ("share_tiles", "beyond/share_tiles takes window -1,-1, not 3,0")):
            refused(f"^{words}; beyond/causal takes it$", fa.Unsupported, kernel=kernel, window=(3, 0))
        refused(r"^beyond/share_tiles takes scores without a softcap \(softcap\); alibi_slopes none, not head; heads without a sink \(sinks\); "
                "beyond/causal takes it$", fa.Unsupported, kernel="share_tiles", softcap=3, alibi_slopes=of_two, sinks=of_two)

    def test_scores_of_minus_infinity(self):
        """Row 128 sees one key of causal's first key tile, whose score is -inf; the keys before are in the next one."""
        q, k, v = arrays((1, 2, 256, 64))
        q = abs(q)
        k[:, :, 128] = -numpy.inf
        for kernel in ("plain", "causal", "split_keys"):
            o = fa.attention(q, k, v, kernel=kernel, causal=True)
            self.assertLess(relative(o[:, :, :129], reference(q, k, v, True)[:, :, :129]), MOST["float16"], kernel)

    def test_pages(self):
        q, k, v = arrays((3, 4, 5, 64), kv_shape=(3, 2, 64, 64))
        for size, kernel, causal in ((16, "split_keys", True), (64, "split_keys", False), (32, "plain", True)):
            pool_k, pool_v, lists = in_pages(k, v, size)
            o, lse = fa.attention(q, pool_k, pool_v, kernel=kernel, causal=causal, return_lse=True, **lists)
            self.assertFalse(o[1].any(), "a sequence without keys")
            self.assertTrue((lse[1] == -numpy.inf).all())
            for mine, right in zip(o[[0, 2]], paged_reference(q, k, v, causal)):
                self.assertLess(relative(mine, right), MOST["float16"], (size, kernel))
        self.assertEqual([fa.counters()[name] for name in ("page_size", "kv_lengths")], [32, LENGTHS])

        def refused(words, error=fa.BadInput, kernel="plain", tensors=(q, pool_k, pool_v), **changes):
            self.sentence(error, words, *tensors, kernel=kernel, **{**lists, **changes})

        refused("^08_swizzle takes K and V in one piece, not in pages \\(page_size\\); .*; beyond/split_keys takes it$", fa.Unsupported, 8)
        refused("^block_table and seqused_k belong together", seqused_k=None)
        refused("^block_table does not go with cu_seqlens_q: ", cu_seqlens_q=LENGTHS, cu_seqlens_k=LENGTHS)
        refused("^seqused_k is of int64, but fa takes int32$", seqused_k=numpy.array(LENGTHS))
        refused(r"^seqused_k has the shape \(2,\), but q has \(3, 4, 5, 64\): batch must be the same$",
                seqused_k=lists["seqused_k"][:2])
        refused(r"^block_table has the shape \(3, 0\), but fa takes \(batch, most pages of a sequence\)$",
                block_table=lists["block_table"][:, :0])
        refused(r"^k has the shape \(6, 2, 32\), but fa takes \(pages, heads, page_size, head_dim\)$",
                tensors=(q, pool_k[..., 0], pool_v))
        refused("^page_size must be 16, 32, 64, 128 or 256, not 24$", tensors=(q, *(each[:, :, :24].copy() for each in (pool_k, pool_v))))
        refused("^kv_lens must be from 0 to 64, the longest, not 65$", seqused_k=lists["seqused_k"] + numpy.int32(1))
        refused("^block_table has page 6 for sequence 0, but pages are 0 to 5$", block_table=lists["block_table"] + numpy.int32(1))

    def test_parts_of_the_keys_are_merged_by_log_sum_exp(self):
        q, k, v = arrays((1, 4, 77, 64), kv_shape=(1, 2, 100, 64))
        for kernel in ("plain", "causal"):
            parts = [fa.attention(q, *(numpy.ascontiguousarray(each[:, :, keys]) for each in (k, v)), kernel=kernel, return_lse=True)
                     for keys in (slice(30), slice(30, 100))]
            for o, lse in parts:
                self.assertEqual((type(lse), lse.dtype, lse.shape), (numpy.ndarray, numpy.dtype("float32"), q.shape[:-1]))
            lse = numpy.logaddexp(*(lse for _, lse in parts))
            o = sum(o * numpy.exp(part - lse)[..., None] for o, part in parts)
            self.assertLess(relative(o, reference(q, k, v)), MOST["float16"])
            whole, of_whole = fa.attention(q, k, v, kernel=kernel, return_lse=True)
            numpy.testing.assert_allclose(of_whole, lse, atol=1e-5)
            numpy.testing.assert_array_equal(whole, fa.attention(q, k, v, kernel=kernel))
            begins = [numpy.array(each, "int32") for each in BEGINS]
            packed = [numpy.ascontiguousarray(each[0, :, :rows]) for each, rows in ((q, 57), (k, 60), (v, 60))]
            o, lse = fa.attention(*packed, kernel=kernel, causal=True, cu_seqlens_q=begins[0], cu_seqlens_k=begins[1], return_lse=True)
            self.assertEqual(lse.shape, (4, 57))
            self.assertTrue((lse[:, :31] == -numpy.inf).all() and numpy.isfinite(lse[:, 31:]).all())
        self.sentence(fa.Unsupported, "^08_swizzle has one output, without log-sum-exp; beyond/causal takes it$", *arrays(), kernel=8, return_lse=True)
        self.sentence(fa.BadInput, "^return_lse is 2, but fa takes True or False$", q, k, v, kernel="plain", return_lse=2)

    def test_scale(self):
        q, k, v = arrays((1, 4, 77, 64), kv_shape=(1, 2, 100, 64))
        for kernel in ("plain", "causal", "split_keys"):
            for scale in (1e-30, numpy.float32(0.5), 1000):
                o, lse = fa.attention(q, k, v, kernel=kernel, causal=True, scale=scale, return_lse=True)
                self.assertLess(relative(o, reference(q, k, v, True, scale)), MOST["float16"], (kernel, scale))
                scores = q[0, 3, -1].astype("float64") @ k[0, 1].astype("float64").T * scale
                right = scores.max() + numpy.log(numpy.exp(scores - scores.max()).sum())
                numpy.testing.assert_allclose(lse[0, 3, -1], right, rtol=1e-6, atol=1e-5)
        self.assertEqual(fa.counters()["scale"], 1000)
        for scale in (0, -1, 1e-31, 1001, numpy.inf, numpy.nan, True, "1"):
            self.sentence(fa.BadInput, "^scale is .*, but fa takes a number from 1e-30 to 1000, or None for 1 / sqrt\\(head_dim\\)$",
                          q, k, v, kernel="plain", scale=scale)

    def test_sentences_of_other_problems(self):
        q, k, v = arrays((1, 4, 128, 64), kv_shape=(1, 2, 128, 64))
        self.sentence(fa.Unsupported, r"^16_max_free takes as many heads of keys as of queries \(kv_heads 4\), not 2; beyond/causal takes it$",
                      q, k, v, kernel=16)
        self.sentence(fa.Unsupported, "^08_swizzle takes mask none, not causal; beyond/causal takes it$", q, q, q, kernel=8, causal=True)
        self.sentence(fa.BadInput, "^kv_heads must divide heads, which are 4, not be 3$", q,
                      *arrays((1, 3, 128, 64))[:2], kernel="plain")
        self.sentence(fa.BadInput, r"^v has the shape \(1, 4, 128, 64\), but k has ", q, k, q, kernel="plain")
        self.sentence(fa.BadInput, r"^the shape \(1, 2, 0, 64\) has a size below 1$", q, k[:, :, :0], v[:, :, :0], kernel="plain")
        q, k, v = arrays((4, 57, 64), kv_shape=(2, 60, 64))
        good = dict(zip(("cu_seqlens_q", "cu_seqlens_k"), (numpy.array(each, "int32") for each in BEGINS)))

        def refused(words, error=fa.BadInput, kernel="plain", **changes):
            self.sentence(error, words, q, k, v, kernel=kernel, **{**good, **changes})

        refused(r"^16_max_free takes sequences of one length \(seq_len\), not cu_seqlens; as many heads", fa.Unsupported, 16)
        refused("^cu_seqlens_q and cu_seqlens_k belong together", cu_seqlens_k=None)
        refused("^cu_seqlens_q is of int64, but fa takes int32$", cu_seqlens_q=numpy.array(BEGINS[0]))
        refused("^cu_seqlens_k has the shape .*, but cu_seqlens_q has ", cu_seqlens_k=good["cu_seqlens_k"][:2])
        for bad in ([0, 40, 39, 57], [1, 40, 40, 57], [0, 40, 40, 58]):
            for most in ({}, {"max_seqlen_q": 58, "max_seqlen_k": 58}):
                refused("^cu_seqlens_q must begin with 0, grow, and end with 57", cu_seqlens_q=numpy.array(bad, "int32"), **most)
        for name in ("max_seqlen_q", "max_seqlen_k"):
            for most in (0, -1, 40.0, "40", numpy.array([40, 40]), 1 << 32 | 40):
                refused(f"^{name} is .*, but fa takes a number from 1 to 2147483647, or None$", **{name: most})
        refused("^cu_seqlens_q has a sequence of 40, but the longest is said to have 39$", max_seqlen_q=39)
        self.sentence(fa.BadInput, r"^q has the shape \(4, 57, 64\), but fa takes \(batch, heads", q, k, v, kernel="plain")
        self.sentence(fa.BadInput, r"^q has the shape .*, but fa takes \(heads, rows, head_dim\) of packed sequences$",
                      *arrays(), kernel="plain", **good)
        rows = {"q": 57, "k": 60}
        turned = [numpy.zeros((rows[name], 4, 64), "float16") for name in "qkk"]
        for most in ({}, {"max_seqlen_q": 40, "max_seqlen_k": 30}):
            self.sentence(fa.BadInput, r"^q has the shape \(57, 4, 64\), but fa takes \(heads, rows, head_dim\), and cu_seqlens_q ends with 57"
                          ": pass q with its first two dimensions exchanged, and contiguous$", *turned, kernel="plain", **good, **most)
        self.sentence(fa.BadInput, "^max_seqlen_q and max_seqlen_k belong to cu_seqlens", *arrays(), max_seqlen_q=3)

    def test_the_order_of_flash_attention(self):
        """Copies in the other order give the same; without `layout` a shape that looks like that order gets a warning."""
        q, k, v = arrays((2, 4, 77, 64), kv_shape=(2, 2, 100, 64))
        o, lse = fa.attention(q, k, v, kernel="plain", causal=True, return_lse=True)
        kinds = [lambda each: each] if ON_GPU or not torch else [lambda each: each, torch.from_numpy]
        for kind in kinds:
            turned = [kind(numpy.ascontiguousarray(each.swapaxes(1, 2))) for each in (q, k, v)]
            o2, lse2 = fa.attention(*turned, kernel="plain", layout="bnhd", causal=True, return_lse=True)
            self.assertEqual(tuple(o2.shape), (2, 77, 4, 64))
            self.assertTrue(type(o2) is type(turned[0]) and (numpy.asarray(o2).swapaxes(1, 2) == o).all())
            self.assertTrue((numpy.asarray(lse2) == lse).all())
        q, k, v = arrays((4, 57, 64), kv_shape=(2, 60, 64))
        of_lengths = dict(zip(("cu_seqlens_q", "cu_seqlens_k"), (numpy.array(each, "int32") for each in BEGINS)))
        turned = [numpy.ascontiguousarray(each.swapaxes(0, 1)) for each in (q, k, v)]
        self.assertTrue((fa.attention(*turned, kernel="plain", layout="bnhd", **of_lengths).swapaxes(0, 1) ==
                         fa.attention(q, k, v, kernel="plain", **of_lengths)).all())
        self.sentence(fa.BadInput, "^layout is 'nbhd', but fa takes 'bhnd' or 'bnhd'$", q, k, v, layout="nbhd")
        self.sentence(fa.BadInput, "^q is of type list, but fa takes torch tensors", [1], [1], [1], layout="bnhd")
        masked = [numpy.ma.masked_array(each, numpy.zeros_like(each, bool)) for each in arrays()]
        self.sentence(fa.BadInput, "^q is a masked array", *masked, layout="bnhd")

        x = arrays((1, 20, 8, 64))
        with self.assertWarnsRegex(UserWarning, r"^q has the shape \(1, 20, 8, 64\): 20 heads of 8 rows\? With tokens before heads, as "
                                   r"FlashAttention has them, pass layout='bnhd', else layout='bhnd'$"):
            fa.attention(*x, kernel="plain")
        bnhd = arrays((1, 128, 2, 64))
        with self.assertWarnsRegex(UserWarning, r"^kernel 8 takes \(batch, heads, seq_len, head_dim\) alone: q, k, v and the result are copied$"):
            fa.attention(*bnhd, kernel=8, layout="bnhd")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fa.attention(*bnhd, layout="bnhd", kernel=12)
            fa.attention(*x, kernel="plain", layout="bhnd")
            fa.attention(*x, kernel="plain", layout="bnhd")
            fa.attention(*arrays((1, 8, 1, 64), kv_shape=(1, 2, 5, 64)), kernel="plain")  # as in decoding

    def test_both_entries_in_c(self):
        """Programs built before fa_options call fa_attention, which is what it was."""
        library, tensors = fa._library._library, [*arrays((1, 1, 128, 64)), numpy.zeros((1, 1, 128, 64), "float16")]
        pointers = [ctypes.c_void_p(each.ctypes.data) for each in tensors]
        problem = ctypes.byref(fa._library._Problem(1, 1, 128, 64, 0))
        self.assertEqual(library.fa_attention(b"8", problem, *pointers, None), 0)
        self.assertLess(relative(tensors[3], reference(*tensors[:3])), MOST["float16"])
        q, k, v, _ = pointers
        own = {"q": q, "k": k, "v": v}
        for of_o, changed, words in ((q, {}, "O overlaps Q: give O memory of its own"),
                                     (ctypes.c_void_p(v.value + 64), {}, "O overlaps V: give O memory of its own"),
                                     (ctypes.c_void_p(k.value - 16), {}, "O overlaps K: give O memory of its own"),
                                     (pointers[3], {"k": None}, "the pointer to K is null"), (None, {}, "the pointer to O is null")):
            self.assertEqual(library.fa_attention(b"8", problem, *{**own, **changed}.values(), of_o, None), 2, words)
            self.assertEqual(library.fa_error().decode(), words)
        both = numpy.zeros((2, 1, 1, 128, 64), "float16")  # O begins where Q ends
        in_one = [ctypes.c_void_p(each.ctypes.data) for each in both]
        self.assertEqual(library.fa_attention(b"8", problem, in_one[0], k, v, in_one[1], None), 0)
        for name, sizes, words in ((None, (1, 1, 128, 64, 0), "the pointer to the kernel's name is null"),
                                   (b"8", None, "the pointer to the problem is null"),
                                   (b"8", (1, 1, 128, 64, 2), "dtype must be FA_FP16 or FA_BF16, not 2"),
                                   (b"8", (0, 1, 128, 64, 0), "batch must be at least 1"), (b"8", (1, 0, 128, 64, 0), "heads must be at least 1")):
            of = sizes and ctypes.byref(fa._library._Problem(*sizes))
            self.assertEqual(library.fa_attention(name, of, *pointers, None), 2, words)
            self.assertEqual(library.fa_error().decode(), words)
        size = ctypes.sizeof(fa._library._Options)
        for kernel, which, strides, status, words in (
                *((b"plain", each, (0, 0, 60), 2, f"{each}_strides.row must be a multiple of 8 from 0 to 2^39 - 8, not 60") for each in "qkvo"),
                (b"plain", "o", (0, 0, 56), 2, "o_strides let rows of O overlap: each must have 64 elements of its own"),
                (b"8", "k", (0, 8, 0), 4, "08_swizzle takes contiguous tensors alone; beyond/share_tiles takes it")):
            options = fa._library._Options(size, **{f"{which}_strides": fa._library._Strides(*strides)})
            self.assertEqual(library.fa_attention_with(kernel, problem, options, *pointers, None), status)
            self.assertEqual(library.fa_error().decode(), words)
        for fields, words in (((size, 2), "mask must be FA_MASK_NONE or FA_MASK_CAUSAL, not 2"),
                              ((size, 0, 0, 0, pointers[0]), "cu_seqlens_q and cu_seqlens_kv belong together: give both or none"),
                              ((size, 0, -1), "kv_len must be from 1 to 4194304, not -1"),
                              ((size, 0, -1, 0, q, k, 7, 7), "packed sequences need seq_len and kv_len, the longest, of at least 1"),
                              ((size, 0, 0, 0, pointers[0], pointers[1], 0, 7),
                               "packed sequences need q_rows and kv_rows, which must be at least 1")):
            self.assertEqual(library.fa_attention_with(b"plain", problem, fa._library._Options(*fields), *pointers, None), 2)
            self.assertEqual(library.fa_error().decode(), words)
        few = ctypes.cast((ctypes.c_int * 2)(0, 128), ctypes.c_void_p)  # lists that end long before as many sequences
        for fields in ({"cu_seqlens_q": few, "cu_seqlens_kv": few, "q_rows": 128, "kv_rows": 128},
                       {"page_size": 16, "pages": 8, "block_table": few, "kv_lens": few}):
            options, many = fa._library._Options(size, **fields), ctypes.byref(fa._library._Problem(10**9, 1, 128, 64, 0))
            self.assertEqual(library.fa_attention_with(b"plain", many, options, *pointers, None), 2)
            self.assertEqual(library.fa_error().decode(), "batch * heads must be at most 65535, not 1000000000")
        for fields in ({"page_size": 16}, {"pages": 3, "page_size": 16, "block_table": pointers[0]}):
            options = fa._library._Options(size, **fields)
            self.assertEqual(library.fa_attention_with(b"plain", problem, options, *pointers, None), 2)
            self.assertEqual(library.fa_error().decode(), "page_size, pages, block_table and kv_lens belong together: give all or none")
        for scale in (-1, 1e-31, 1001, numpy.inf, numpy.nan):
            options = fa._library._Options(size, scale=scale)
            self.assertEqual(library.fa_attention_with(b"plain", problem, options, *pointers, None), 2)
            self.assertEqual(library.fa_error().decode(), "scale must be from 1e-30 to 1000, or 0 for 1/sqrt(head_dim)")
        for lse, words in ((v.value + 128 * 128 - 4, "lse overlaps V: give lse memory of its own"),
                           (pointers[3].value - 4, "lse overlaps O: give lse memory of its own"),
                           (tensors[3].ctypes.data + 2, "the pointer to lse must be a multiple of 4 bytes")):
            options = fa._library._Options(size, lse=lse)
            self.assertEqual(library.fa_attention_with(b"plain", problem, options, *pointers, None), 2)
            self.assertEqual(library.fa_error().decode(), words)

    def test_options_of_other_versions_in_c(self):
        """A program keeps the size of fa_options that it was built with."""
        library, (q, k, v) = fa._library._library, arrays((1, 1, 128, 64))
        o = numpy.zeros_like(q)

        def attention(options):
            options = ctypes.cast(ctypes.create_string_buffer(options), ctypes.POINTER(fa._library._Options))
            return library.fa_attention_with(b"plain", ctypes.byref(fa._library._Problem(1, 1, 128, 64, 0)), options,
                                             *(ctypes.c_void_p(each.ctypes.data) for each in (q, k, v, o)), None)

        # fa.h 1.0.0: 96 bytes, `mask` at 8 and `scale` at 88. Behind `scale` is whatever was in that memory.
        of_1_0_0 = struct.pack("NiiiiPPiiPPiiPPf", 96, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.3) + b"\xff" * 68
        self.assertEqual(attention(of_1_0_0), 0)
        self.assertLess(relative(o, reference(q, k, v, causal=True, scale=0.3)), MOST["float16"])
        size = ctypes.sizeof(fa._library._Options)
        for wrong in (0, 8, 88, 95, 97, size - 1, size + 8, 1 << 40):
            self.assertEqual(attention(struct.pack("N", wrong) + bytes(size)), 2)
            self.assertEqual(library.fa_error().decode(), f"size is {wrong}, but must be sizeof(fa_options), which tells the library the fa.h of its "
                             f"caller: version {fa.__version__} knows 96 and {size}, and a larger one is a later header's, which needs a later library")

    def test_inputs_that_must_not_be_written(self):
        q, k, v = arrays()
        for each in (q, k, v):
            each.flags.writeable = False
        self.assertLess(relative(fa.attention(q, k, v, kernel=8), reference(q, k, v)), MOST["float16"])

    def test_sentences(self):
        q, k, v = arrays((1, 2, 128, 128))
        self.check_sentences(q, k, v, numpy.ascontiguousarray)
        self.sentence(fa.BadInput, r"^k has the strides \(.*, 2\), but the elements of a row must be neighbours, with the stride 1: pass "
                      r"numpy\.ascontiguousarray\(k\)$", q, k.repeat(2, -1)[..., ::2], v, kernel="plain")
        single = [each.astype("float32") for each in (q, k, v)]
        self.sentence(fa.BadInput, "^q is of float32, but fa takes float16 and bfloat16$", *single)
        self.sentence(fa.BadInput, "^v is of float32, but fa takes ", q, k, single[2])
        masked = numpy.ma.masked_array(k, numpy.zeros_like(k, bool))
        self.sentence(fa.BadInput, r"^k is of type MaskedArray, but q of type ndarray$", q, masked, v)
        self.sentence(fa.BadInput, r"^q is a masked array, but fa takes no mask of elements: pass q\.filled\(\.\.\.\)$", masked, masked, masked)
        shifted = numpy.frombuffer(bytearray(q.nbytes + 64), dtype="uint8")
        at = next(i for i in range(16) if (shifted.ctypes.data + i) % 16 == 2)
        odd = shifted[at:at + q.nbytes].view("float16").reshape(q.shape)
        self.sentence(fa.BadInput, "^q begins at an address that is not a multiple of 16 bytes: pass a copy of it$", odd, k, v)

    def test_counters(self):
        code = "import fa\ntry: fa.counters()\nexcept fa.Error as error: print(error)"
        self.assertRegex(in_fresh_process(self, code), "^no kernel has run in this thread")
        q, k, v = arrays((1, 1, 128, 64))
        for _ in range(2):  # the second run starts from zero
            fa.attention(q, k, v, kernel=8)
            found = fa.counters()
            self.assertEqual([found[each] for each in ("kernel", "dtype", "batch", "heads", "seq_len", "head_dim")],
                             ["08_swizzle", "fp16", 1, 1, 128, 64])
            self.assertEqual(found["counters"]["matrix_flops"], 4 * 128 * 128 * 64)
        with self.assertRaises(fa.BadInput):
            fa.attention(q, k, v, kernel=17)

    def test_threads(self):
        q, k, v = arrays((1, 1, 128, 64))

        def work(kernel):
            return [(relative(fa.attention(q, k, v, kernel=kernel), reference(q, k, v)), fa.counters()["kernel"][:2]) for _ in range(3)]

        with ThreadPoolExecutor() as pool:
            found = list(pool.map(work, ("02", "08", "16")))
        self.assertEqual([name for each in found for _, name in each], ["02"] * 3 + ["08"] * 3 + ["16"] * 3)
        self.assertLess(max(error for each in found for error, _ in each), MOST["float16"])

    def test_mapped_files(self):
        q, k, v = arrays()
        with tempfile.NamedTemporaryFile() as file:
            mapped = numpy.memmap(file, q.dtype, "w+", shape=q.shape)
            mapped[:] = q
            o = fa.attention(mapped, k, v)
        self.assertIs(type(o), numpy.ndarray)  # which maps no file
        self.assertLess(relative(o, reference(q, k, v)), MOST["float16"])

    def test_a_signal_ends_the_call(self):
        """Ctrl-C, and any handler that raises; the library is usable afterwards. One that does not raise ends nothing."""
        code = """if True:
            import fa, numpy, os, signal, threading, time
            q = numpy.ones((1, 8, 1024, 64), "float16")
            def after(seconds, number):
                def kill():
                    times.append(time.monotonic())
                    os.kill(os.getpid(), number)
                threading.Timer(seconds, kill).start()
            def raises(*_):
                raise TimeoutError
            signal.signal(signal.SIGALRM, raises)
            def called(*_):
                times.append("called")
                signal.signal(signal.SIGUSR2, signal.SIG_IGN)
                try:
                    fa.attention(small, small, small)
                except fa.LaunchError as error:
                    print(error)
            signal.signal(signal.SIGUSR1, called)
            signal.signal(signal.SIGUSR2, called)
            small = q[:, :1, :128].copy()
            for number in (signal.SIGINT, signal.SIGALRM):
                times = []
                after(0.5, signal.SIGUSR1)
                after(1, number)
                try:
                    fa.attention(q, q, q, kernel="plain")
                    print("not interrupted")
                except (KeyboardInterrupt, TimeoutError) as problem:
                    print(type(problem).__name__, times[1], time.monotonic() - times[-1] < 1)
                print((fa.attention(small, small, small) == 1).all(), signal.getsignal(signal.SIGALRM) is raises)
            print(signal.getsignal(signal.SIGUSR2).name, signal.getsignal(signal.SIGUSR1) is called)
        """
        in_handler = "this thread runs a kernel already: a handler of a signal, and wants_end, cannot run another one\n"
        self.assertEqual(in_fresh_process(self, code), f"{in_handler}KeyboardInterrupt called True\nTrue True\n{in_handler}TimeoutError called True\n"
                         "True True\nSIG_IGN True\n")

    def test_dlpack_of_others(self):
        class Array:  # what has DLPack and nothing else
            def __init__(self, data):
                self.data = data

            def __dlpack__(self):
                return self.data.__dlpack__()

            def __dlpack_device__(self):
                return self.data.__dlpack_device__()

            @property
            def shape(self):
                return self.data.shape

        class OnGpu(Array):
            def __dlpack__(self, stream):
                return super().__dlpack__()

            def __dlpack_device__(self):
                return 2, 0

        q, k, v = arrays()
        self.sentence(fa.BadInput, "^q is on cuda:0, but this fa was built for the emulator and takes tensors of the CPU; "
                      "with libboost-context-dev, FA_BACKEND=cuda pip install . builds both$", *map(OnGpu, (q, k, v)))
        here = sys.modules[__name__]
        here.empty_like = lambda array: Array(numpy.empty_like(array.data))
        try:
            o = fa.attention(*map(Array, (q, k, v)), kernel=8)
            self.sentence(fa.BadInput, "^q is of type Array, which has no swapaxes, but layout='bnhd' needs it for kernel 8: "
                          "pass torch.from_dlpack of each$", *map(Array, (q, k, v)), kernel=8, layout="bnhd")
        finally:
            del here.empty_like
        self.assertLess(relative(o.data, reference(q, k, v)), MOST["float16"])
        self.sentence(fa.BadInput, "^__main__ has no empty_like", *map(Array, (q, k, v)))


RANK = """
import os, sys, torch, torch.distributed as dist
import fa
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD"])
device = f"cuda:{rank}" if fa.backend() == "cuda" else "cpu"
if device != "cpu":
    torch.cuda.set_device(rank)
dist.init_process_group("gloo" if device == "cpu" else "nccl", init_method="file://" + os.environ["STORE"], rank=rank, world_size=world)
torch.manual_seed(0)
for tokens, dtype, kernel in ((40, torch.bfloat16, "causal"), (33, torch.float16, "plain"), (1, torch.bfloat16, "plain")):
    q = torch.randn(2, 4, tokens * world, 64).to(device, dtype)
    k, v = torch.randn(2, 2, 2, tokens * world, 64).to(device, dtype)
    for causal in (False, True):
        o = fa.ring_attention(*(each[:, :, rank::world].contiguous() for each in (q, k, v)), causal=causal, kernel=kernel)
        whole = [each.double().repeat_interleave(4 // each.shape[1], 1) for each in (q, k, v)]
        right = torch.nn.functional.scaled_dot_product_attention(*whole, is_causal=causal)[:, :, rank::world]
        assert (o.dtype, o.shape) == (dtype, right.shape)
        print("error", dtype, (torch.linalg.norm(o.double() - right) / torch.linalg.norm(right)).item())
part = torch.zeros(1, 2, 128, 64, dtype=torch.bfloat16, device=device)
alone = [dist.new_group([each]) for each in range(world)]
for arguments, options in (((part, part, part), {"kernel": "08"}), ((part[:, :, rank == world - 1:],) * 3, {}),
                           ((part,) * 3, {"causal": rank == 1}), ((part, part[:, :1], part), {}),
                           ((part, part[:, :, :64], part[:, :, :64]), {"causal": True}), ((part[0],) * 3, {}),
                           ((part[:, :, :0],) * 3, {}), ((part,) * 3, {"group": alone[rank - 1]})):
    try:
        fa.ring_attention(*(each.contiguous() for each in arguments), **options)
    except fa.Error as error:
        print("sentence", type(error).__name__, error)
dist.destroy_process_group()
"""


RANKS = min(torch.cuda.device_count(), 4) if ON_GPU and torch else 4


@unittest.skipUnless(torch and RANKS > 1, "needs torch, and two GPUs or a library for the CPU")
class Ring(unittest.TestCase):
    def test_several_processes_have_the_attention_of_one(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "FA_LIBRARY": str(LIBRARY), "PYTHONPATH": str(ROOT / "python"), "STORE": f"{folder}/store",
                           "WORLD": str(RANKS)}
            ranks = [subprocess.Popen([sys.executable, "-B", "-c", RANK], env={**environment, "RANK": str(rank)}, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(RANKS)]
            for rank, (out, err) in enumerate([each.communicate(timeout=200) for each in ranks]):
                self.assertEqual(ranks[rank].returncode, 0, err)
                errors = re.findall(r"^error torch.(\w+) (\S+)$", out, re.MULTILINE)
                self.assertEqual(len(errors), 6, out)
                for dtype, error in errors:
                    self.assertLess(float(error), MOST[dtype])
                sentences = re.findall(r"^sentence (.*)$", out, re.MULTILINE)
                for sentence, words in zip(sentences, (
                        "^Unsupported 08_swizzle has one output, without log-sum-exp; beyond/causal takes it$",
                        r"^BadInput q has the shape .* in process \d of the group: all parts must be equally long$",
                        r"^BadInput process \d of the group has called fa.ring_attention with another dtype, mask or kernel$",
                        r"^BadInput q, k and v have the shapes .*, k and v alike$",
                        "^BadInput with a causal mask q and k have equally many tokens, not 128 and 64$",
                        r"^BadInput q, k and v have the shapes .*\(batch, heads, tokens, head_dim\)",
                        r"^BadInput the shape \(1, 2, 0, 64\) has a size below 1$",
                        "^BadInput this process is not in the group that fa.ring_attention is called with$"), strict=True):
                    self.assertRegex(sentence, words)

    def test_example_of_its_page(self):
        text = code_blocks(ROOT / "docs/ring_attention.md", "python")[0]
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "ring.py").write_text(text, encoding="utf-8")
            done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), "ring.py"],
                                  cwd=folder, capture_output=True, text=True, timeout=200,
                                  env={**os.environ, "FA_LIBRARY": str(LIBRARY), "PYTHONPATH": str(ROOT / "python")})
        self.assertEqual(done.returncode, 0, done.stderr)
        differences = re.findall(rf"process \d of {RANKS}: largest difference ([\d.e-]+)", done.stdout)  # their lines may run into each other
        self.assertEqual(len(differences), RANKS, done.stdout)
        self.assertLess(max(map(float, differences)), 0.02)

    def test_sentences(self):
        part = torch.zeros(1, 1, 8, 64, dtype=torch.float16)
        for arguments, words in (((part,) * 3, "^fa.ring_attention needs torch.distributed.init_process_group"),
                                 ((part, part, [1]), "^v is of type list, but fa.ring_attention takes torch tensors$")):
            with self.assertRaisesRegex(fa.BadInput, words):
                fa.ring_attention(*arguments)


@unittest.skipUnless(torch and transformers, "needs torch and transformers, which are not installed")
class Transformers(unittest.TestCase):
    """attn_implementation="fa" of transformers, beside "sdpa"."""

    DEVICE = "cuda" if ON_GPU else "cpu"
    SIZES = {"vocab_size": 1000, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "initializer_range": 0.15, "max_position_embeddings": 512}

    @classmethod
    def setUpClass(cls):
        import fa.transformers  # noqa: F401 - it registers

        torch.manual_seed(1)
        cls.tokens = torch.randint(1, 1000, (2, 70), device=cls.DEVICE)
        cls.padded = torch.ones_like(cls.tokens)
        cls.padded[0, :30] = 0
        cls.llama = cls.made(transformers.LlamaForCausalLM, transformers.LlamaConfig(**cls.SIZES))

    @classmethod
    def made(cls, kind, config, **named):
        torch.manual_seed(1)
        return kind._from_config(config, dtype=torch.float16, **named).to(cls.DEVICE).eval()

    def both(self, model, *arguments, right="sdpa", **named):
        """What the model gives with each implementation."""
        found = []
        for name in (right, "fa"):
            model.set_attn_implementation(name)
            with torch.no_grad():
                found.append(model(*arguments, **named)[0])
        return found

    def near(self, right, found, of=None):
        of = torch.ones(right.shape[:2], device=self.DEVICE) if of is None else of
        self.assertLess((((right - found) * of[..., None]).norm() / right.norm()).item(), 0.01)

    def generated(self, model=None, **named):
        """The tokens and, of the first that differ, how much likelier the one was than the other."""
        runs, model = [], model or self.llama
        for name in ("sdpa", "fa"):
            model.set_attn_implementation(name)
            runs.append(model.generate(self.tokens, max_new_tokens=8, do_sample=False, pad_token_id=0, output_logits=True,
                                       return_dict_in_generate=True, **named))
        right, found = runs
        for row in range(2):
            for step, logits in enumerate(right.logits):
                one, other = right.sequences[row, 70 + step], found.sequences[row, 70 + step]
                if one != other:  # only where both are as likely: the texts part here
                    self.assertLess((logits[row, one] - logits[row, other]).item(), 0.1)
                    break
                self.assertLess((logits[row] - found.logits[step][row]).abs().max().item(), 0.1)

    def test_example_of_its_page(self):
        text = next(block for block in code_blocks(ROOT / "docs/in_a_model.md", "python") if block.startswith("import fa.transformers\n"))
        printed = in_fresh_process(self, text.replace('device = "cpu"', f'device = "{self.DEVICE}"')).splitlines()
        said = dict(line.split(" ", 1) for line in printed)
        self.assertEqual(said["sdpa"], said["fa"])
        self.assertEqual(len(json.loads(said["fa"])[0]), 12)

    def test_generate(self):
        for named in ({}, {"attention_mask": self.padded}, {"cache_implementation": "static"},
                      {"attention_mask": self.padded, "cache_implementation": "static", "disable_compile": True}):
            with self.subTest(named.keys()):
                self.generated(**named)

    def test_padding_on_either_side(self):
        self.near(*self.both(self.llama, self.tokens, attention_mask=self.padded), self.padded)
        right = self.padded.flip(1)
        self.near(*self.both(self.llama, self.tokens, attention_mask=right), right)

    def test_packed_texts_do_not_see_each_other(self):
        places = torch.cat([torch.arange(30), torch.arange(40)])[None].expand(2, 70).to(self.DEVICE)
        self.llama.set_attn_implementation("sdpa")
        with torch.no_grad():
            right = torch.cat([self.llama(part).logits for part in self.tokens.split([30, 40], dim=1)], dim=1)
        begins = torch.tensor([0, 30, 70, 100, 140], device=self.DEVICE)
        packed = {"cu_seq_lens_q": begins, "cu_seq_lens_k": begins, "max_length_q": 40, "max_length_k": 40}
        self.llama.set_attn_implementation("fa")
        for named in ({}, packed):
            with torch.no_grad():
                self.near(right, self.llama(self.tokens, position_ids=places, use_cache=False, **named).logits)

    def test_masks_of_encoders(self):
        bert = self.made(transformers.BertModel, transformers.BertConfig(hidden_size=256, num_hidden_layers=2, num_attention_heads=4))
        self.near(*self.both(bert, self.tokens, attention_mask=self.padded), self.padded)

    def test_an_encoder_and_its_decoder(self):
        """The decoder's queries see all keys of an encoder whose text has another length, and padding."""
        bart = self.made(transformers.BartForConditionalGeneration, transformers.BartConfig(
            vocab_size=1000, d_model=128, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
            encoder_ffn_dim=128, decoder_ffn_dim=128, init_std=0.3))
        for length in (5, 70, 90):
            others = self.tokens.repeat(1, 2)[:, :length]
            for mask in (None, self.padded):
                self.near(*self.both(bart, self.tokens, attention_mask=mask, decoder_input_ids=others))
        runs = []
        for name in ("sdpa", "fa"):
            bart.set_attn_implementation(name)
            runs.append(bart.generate(self.tokens, attention_mask=self.padded, max_new_tokens=5, num_beams=2, output_logits=True,
                                      return_dict_in_generate=True, do_sample=False))
        self.near(runs[0].logits[0][None], runs[1].logits[0][None])

    def test_gradients_of_a_padded_batch(self):
        """Of all weights, as with torch's attention: 16-bit results of two layers differ by less than two percent in norm."""
        found = []
        for name in ("sdpa", "fa"):
            self.llama.set_attn_implementation(name)
            self.llama.zero_grad()
            self.llama(self.tokens, attention_mask=self.padded, labels=self.tokens.masked_fill(self.padded == 0, -100)).loss.backward()
            found.append(torch.cat([each.grad.double().flatten() for each in self.llama.parameters()]))
        self.llama.zero_grad()
        self.assertLess(((found[1] - found[0]).norm() / found[0].norm()).item(), 0.02)

    def test_a_compiled_model(self):
        self.llama.set_attn_implementation("fa")
        with torch.no_grad():
            self.near(self.llama(self.tokens).logits, torch.compile(self.llama, fullgraph=True, backend="eager")(self.tokens).logits)

    def mistral(self, window):
        return self.made(transformers.MistralForCausalLM, transformers.MistralConfig(**self.SIZES, head_dim=64, sliding_window=window))

    def test_a_window(self):
        """Each with and without padding on either side, while it is shorter than the text and while it grows to be so."""
        right = self.padded.flip(1)
        for window in (1, 20, 69, 70, 74):
            model = self.mistral(window)
            self.near(*self.both(model, self.tokens))
            self.near(*self.both(model, self.tokens, attention_mask=self.padded), self.padded)
            self.near(*self.both(model, self.tokens, attention_mask=right), right)
        for window in (20, 74):
            for named in ({}, {"attention_mask": self.padded}, {"cache_implementation": "static", "disable_compile": True},
                          {"attention_mask": self.padded, "cache_implementation": "static", "disable_compile": True}):
                self.generated(self.mistral(window), **named)
        model = self.mistral(20)
        places = torch.cat([torch.arange(30), torch.arange(40)])[None].expand(2, 70).to(self.DEVICE)
        self.near(*self.both(model, self.tokens, position_ids=places, use_cache=False))
        with torch.no_grad():
            once = model(self.tokens, position_ids=places, use_cache=False).logits
            begins = torch.tensor([0, 30, 70, 100, 140], device=self.DEVICE)
            packed = {"cu_seq_lens_q": begins, "cu_seq_lens_k": begins, "max_length_q": 40, "max_length_k": 40}
            self.assertTrue(torch.equal(once, model(self.tokens, position_ids=places, use_cache=False, **packed).logits))
            self.near(model(self.tokens).logits, torch.compile(model, fullgraph=True, backend="eager")(self.tokens).logits)

    def test_a_window_without_a_word(self):
        """Phi-3.5-MoE's attention is not told of its window, which is in its mask alone."""
        config = transformers.PhimoeConfig(**self.SIZES, sliding_window=20, num_local_experts=4)
        model = self.made(transformers.PhimoeForCausalLM, config)
        self.near(*self.both(model, self.tokens, attention_mask=self.padded), self.padded)

    def test_a_window_on_both_sides(self):
        model = self.made(transformers.ModernBertModel, transformers.ModernBertConfig(
            vocab_size=1000, hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4, local_attention=20,
            initializer_range=0.15, pad_token_id=0))
        right = self.padded.flip(1)
        self.near(*self.both(model, self.tokens))
        self.near(*self.both(model, self.tokens, attention_mask=self.padded), self.padded)
        self.near(*self.both(model, self.tokens, attention_mask=right), right)
        for window in (68, 69):  # 69 keys to each side are all that 70 tokens have, and transformers makes no mask then
            sizes = {**self.SIZES, "head_dim": 64, "query_pre_attn_scalar": 64, "sliding_window": window,
                     "layer_types": ["sliding_attention", "full_attention"]}
            model = self.made(transformers.T5GemmaEncoderModel, transformers.T5GemmaConfig(encoder=sizes, decoder=sizes, is_encoder_decoder=False))
            self.near(*self.both(model, self.tokens, right="eager"))
            self.near(*self.both(model, self.tokens, right="eager", attention_mask=self.padded), self.padded)

    def test_a_cap_and_sinks(self):
        sizes = {**self.SIZES, "head_dim": 64, "sliding_window": 20}
        gemma = self.made(transformers.Gemma2ForCausalLM, transformers.Gemma2Config(**sizes, query_pre_attn_scalar=64, attn_logit_softcapping=2.0))
        gpt = self.made(transformers.GptOssForCausalLM, transformers.GptOssConfig(**sizes, num_local_experts=2, num_experts_per_tok=2))
        for layer in gpt.model.layers:
            torch.nn.init.normal_(layer.self_attn.sinks, mean=2.0)
        for model in (gemma, gpt):
            self.near(*self.both(model, self.tokens, right="eager"))
            self.near(*self.both(model, self.tokens, right="eager", attention_mask=self.padded), self.padded)
            with self.assertRaisesRegex(fa.BadInput, "^scores with a window, a softcap, sinks or alibi_slopes have no gradients in fa: "):
                model(self.tokens)

    def test_what_is_refused(self):
        holes = self.padded.flip(1)
        holes[0, -1] = 1
        deepseek = self.made(transformers.DeepseekV4ForCausalLM, transformers.DeepseekV4Config(  # its attention adds keys of its own
            **{**self.SIZES, "num_key_value_heads": 1}, head_dim=64, layer_types=["sliding_attention", "compressed_sparse_attention"],
            n_routed_experts=2, num_experts_per_tok=1, q_lora_rank=64, o_groups=2, o_lora_rank=32, index_n_heads=2, index_head_dim=64))
        for model, words, named in (
                (self.mistral(20), "^attention_mask has padding between the tokens of a text, over which", {"attention_mask": holes}),
                (self.llama, r"^attention_mask has the shape \(2, 1, 70, 70\), but with fa transformers takes \(batch, tokens\)$",
                 {"attention_mask": torch.ones(2, 1, 70, 70, dtype=torch.bool, device=self.DEVICE)}),
                (deepseek, "^this model has a mask of its own, which fa does not have: ", {}),
                (self.llama.float(), "^q is of float32, but fa takes float16 and bfloat16$", {})):
            model.set_attn_implementation("fa")
            with self.assertRaisesRegex(fa.BadInput, words), torch.no_grad():
                model(self.tokens, **named)
        type(self).llama = self.llama.half()
        from fa.transformers import _forward, _mask
        from transformers.masking_utils import (and_masks, blockwise_overlay, causal_mask_function, chunked_causal_mask_function,
                                                 bidirectional_mask_function, or_masks, sliding_window_bidirectional_mask_function,
                                                 sliding_window_causal_mask_function, sliding_window_overlay)

        for end, refused in ((70, False), (71, True)):  # of which the cache has 10
            chunked = chunked_causal_mask_function(70, torch.zeros(2, device=self.DEVICE))
            with self.assertRaisesRegex(fa.BadInput, "^this model's tokens see chunks of 70 keys, and 71 are") if refused else contextlib.nullcontext():
                _mask(2, 1, 10, q_offset=end - 1, kv_offset=end - 10, mask_function=chunked)
        once = _mask(2, 1, 24, q_offset=29, kv_offset=6, attention_mask=self.padded)
        self.assertEqual(once.tolist(), self.padded[:, 6:30].tolist())
        self.assertEqual(_mask(2, 1, 24, q_offset=29, kv_offset=6, attention_mask=once).tolist(), once.tolist())
        of_window = sliding_window_causal_mask_function(20)
        self.assertIsNone(_mask(2, 20, 20, mask_function=of_window))
        self.assertEqual(_mask(2, 21, 21, mask_function=of_window).shape, (2, 20, 0))
        once = _mask(2, 1, 24, q_offset=29, kv_offset=6, attention_mask=self.padded, mask_function=of_window)
        self.assertEqual(once[:, 7].tolist(), self.padded[:, 6:30].tolist())
        again = _mask(2, 1, 24, q_offset=29, kv_offset=6, attention_mask=once, mask_function=of_window)
        self.assertEqual((again.shape, again.tolist()), ((2, 20, 24), once.tolist()))
        module = types.SimpleNamespace()  # without is_causal, as some are: causal
        x = torch.zeros(2, 1, 70, 64, dtype=torch.float16, device=self.DEVICE)
        self.assertEqual(_forward(module, x, x, x, torch.zeros_like(self.padded))[0].shape, (2, 70, 1, 64))
        for named, words in (({"block_indices": x}, "with block_indices, which"), ({"cu_seq_lens_q": x}, "belong together"),
                             ({"sliding_window": 69}, "with a window of 69 keys, which its mask of 70 keys does not have: ")):
            with self.assertRaisesRegex(fa.BadInput, words):
                _forward(module, x, x, x, None, **named)
        both_sides = _mask(2, 70, 70, mask_function=sliding_window_bidirectional_mask_function(20))
        with self.assertRaisesRegex(fa.BadInput, "^this model has a window and no causal mask on 9 queries and 70 keys, but fa takes as many"):
            _forward(module, x[:, :, :9], x, x, both_sides, is_causal=False)

        def window_of_another(sliding_window):
            return lambda _batch, _head, query, key: abs(query - key) < sliding_window

        of_images = or_masks(causal_mask_function, blockwise_overlay(self.padded))
        for function in (of_images, and_masks(causal_mask_function, of_images), lambda *_: True, window_of_another(20),
                         and_masks(sliding_window_overlay(20), bidirectional_mask_function)):
            with self.assertRaisesRegex(fa.BadInput, "^this model has a mask of its own, which fa does not have: "):
                _mask(2, 70, 70, mask_function=function)


@unittest.skipUnless(WITH_BUG and numpy, "needs the checked build with a bug in it")
class Checked(unittest.TestCase):
    def test_counts_memory_and_names_statements(self):
        code = """
import fa, json, numpy
fa.attention(*numpy.random.default_rng(1).standard_normal((3, 1, 1, 128, 128)).astype("float16"), kernel="08")
print(json.dumps(fa.counters()))
"""
        found = json.loads(in_fresh_process(self, code, WITH_BUG))
        self.assertEqual(found["counters"]["shared_wavefronts"], found["counters"]["shared_wavefronts_ideal"])
        self.assertGreater(found["counters"]["global_bytes"], 4 * 128 * 128 * 2 - 1)
        products = [each for each in found["statements"] if each["kind"] == "mma.m16n8k16"]
        self.assertIn("ptx::mma_m16n8k16", products[0]["statement"])

    @unittest.skipIf(fa.backend() != "emulator", "needs the emulator without checks as well")
    def test_check_chooses_the_build(self):
        code = """
import fa, numpy
from concurrent.futures import ThreadPoolExecutor
q, k, v = numpy.random.default_rng(1).standard_normal((3, 1, 1, 128, 64)).astype("float16")
def statements(check, call=lambda *of, check: fa.attention(*of, kernel="16", check=check)):  # all libraries have it
    o = call(q, k, v, check=check)
    return o.tobytes(), bool(fa.counters().get("statements"))
with ThreadPoolExecutor() as pool:  # counters are those of a thread's own last call
    found = list(pool.map(statements, [True, False] * 3))
print([counted for _, counted in found], len({o for o, _ in found}))
print(statements(False, lambda *of, check: fa.flash_attn_func(*(each.swapaxes(1, 2) for each in of), causal=True, check=check))[1])
try: fa.attention(q, k, v, check="no")
except fa.BadInput as error: print(error)
if WITH_TORCH:
    import torch
    q, k, v = map(torch.from_numpy, (q, k, v))
    for function in (fa.attention, torch.compile(fa.attention, fullgraph=True, backend="eager")):
        for check in (True, False):
            function(q, k, v, check=check)
            print(bool(fa.counters().get("statements")))
""".replace("WITH_TORCH", str(bool(torch)))
        for libraries in (f"{WITH_BUG}:{LIBRARY}", f"{LIBRARY}:{WITH_BUG}"):
            lines = in_fresh_process(self, code, libraries).splitlines()
            self.assertEqual(lines, ["[True, False, True, False, True, False] 1", "False", "check is 'no', but fa takes True or False",
                                     *["True", "False"] * (2 * bool(torch))])
        code = "import fa, numpy\ntry: fa.attention(*numpy.zeros((3, 1, 1, 128, 64), 'float16'), check=False)\nexcept fa.Error as error: print(repr(error))"
        self.assertRegex(in_fresh_process(self, code, WITH_BUG), r"^Unsupported\('check=False needs the emulator without checks, which this fa does not")

    def test_a_report_is_an_exception(self):
        for bug, found in (("02_no_syncwarp", r"store at tests/broken/02_no_syncwarp\.cu:\d+ [^!]*Missing: a __syncwarp\(\) between"),
                           ("11_no_fence_before_o", r"ordinary registers at tests/broken/11_no_fence_before_o\.cu:\d+,")):
            code = f"""
import fa, numpy
tensors = numpy.full((4, 1, 1, 128, 128), 0x3f80, "uint16")  # 1 in bf16, for which bugs are compiled
try:
    fa._library.run(fa._library.prepare("{bug}", tensors[0].shape, "bfloat16"), tuple(each.ctypes.data for each in tensors), 0)
except fa.LaunchError as error:
    print(error)
"""
            self.assertRegex(in_fresh_process(self, code, WITH_BUG), found)


GPT = """
import torch
from torch import nn
from flash_attn import flash_attn_func


class Block(nn.Module):
    def __init__(self, heads, kv_heads, head_dim):
        super().__init__()
        width, self.head_dim, self.heads = heads * head_dim, head_dim, [heads, kv_heads, kv_heads]
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, sum(self.heads) * head_dim)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.first(x)).unflatten(-1, (-1, self.head_dim)).split(self.heads, dim=-2)
        x = x + self.out(flash_attn_func(q, k, v, 0.0, softmax_scale=0.5, causal=True).flatten(-2))
        return x + self.mlp(self.second(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, most_tokens, heads, kv_heads, head_dim, blocks):
        super().__init__()
        width = heads * head_dim
        self.of_tokens, self.of_positions = nn.Embedding(vocabulary, width), nn.Embedding(most_tokens, width)
        self.blocks = nn.Sequential(*(Block(heads, kv_heads, head_dim) for _ in range(blocks)))
        self.last, self.logits = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.of_tokens(tokens) + self.of_positions.weight[: tokens.shape[1]]
        return self.logits(self.last(self.blocks(x)))
"""


def by_torch(q, k, v, causal=False, scale=None):
    """In the types of its tensors, (..., heads, rows, head_dim)."""
    k, v = (each.repeat_interleave(q.shape[-3] // each.shape[-3], -3) for each in (k, v))
    mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril(k.shape[-2] - q.shape[-2]) if causal else None
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=scale)
    return o.nan_to_num()  # of no key torch gives NaN in some versions and zeros in others


def packed_by_torch(q, k, v, scale=None):
    """Of the sequences of BEGINS, with a causal mask."""
    parts = zip(BEGINS[0], BEGINS[0][1:], BEGINS[1], BEGINS[1][1:])
    return torch.cat([by_torch(q[:, a:b], k[:, c:d], v[:, c:d], True, scale) for a, b, c, d in parts if b > a], -2)


def flash_by_torch(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False):
    """The same of (batch, seq_len, heads, head_dim), with the parameters of flash_attn_func."""
    return by_torch(*(each.transpose(1, 2) for each in (q, k, v)), causal, softmax_scale).transpose(1, 2)


@unittest.skipUnless(torch, "torch is not installed")
class Torch(Sentences):
    DEVICE = "cuda" if ON_GPU else "cpu"

    def tensors(self, shape=SHAPE, dtype=None, seed=1, device=None):
        generator = torch.Generator().manual_seed(seed)
        return [torch.randn(shape, generator=generator).to(dtype or torch.bfloat16).to(device or self.DEVICE) for _ in range(3)]

    def assert_right(self, o, q, k, v, scale=None):
        self.assertEqual((o.dtype, o.shape, o.device), (q.dtype, q.shape, q.device))
        self.assertTrue(o.is_contiguous())
        self.near(o.cpu(), by_torch(*(each.cpu().double() for each in (q, k, v)), scale=scale))

    def near(self, o, right, most=None):
        error = torch.linalg.norm(o.double() - right) / torch.linalg.norm(right)
        self.assertLess(error.item(), most or MOST[str(o.dtype).removeprefix("torch.")])

    def test_masks_heads_of_keys_and_lengths(self):
        for shape, kv_shape in OTHERS:
            for causal in (False, True):
                q, k, v = self.tensors(shape)[0], *self.tensors(kv_shape)[1:]
                self.near(fa.attention(q, k, v, kernel="plain", causal=causal), by_torch(*(each.double() for each in (q, k, v)), causal))
        q, k, v = self.tensors((1, 4, 77, 64))[0], *self.tensors((1, 2, 100, 64))[1:]
        with_lse = torch.compile(lambda *tensors: fa.attention(*tensors, kernel="plain", return_lse=True), fullgraph=True,
                                 backend="aot_eager")
        outputs, lse = zip(*(with_lse(q, *(each[:, :, keys].contiguous() for each in (k, v))) for keys in (slice(30), slice(30, 100))))
        whole = torch.logaddexp(*lse)
        self.assertEqual((whole.dtype, whole.shape, whole.device), (torch.float32, q.shape[:-1], q.device))
        self.near(sum(o * (part - whole).exp()[..., None] for o, part in zip(outputs, lse)),
                  by_torch(*(each.double() for each in (q, k, v))), MOST["bfloat16"])
        q, k, v = self.tensors((4, 57, 64))[0], *self.tensors((2, 60, 64))[1:]
        begins = [torch.tensor(each, dtype=torch.int32, device=self.DEVICE) for each in BEGINS]
        expected = packed_by_torch(*(each.double() for each in (q, k, v)))
        for most in ({}, {"max_seqlen_q": 40, "max_seqlen_k": 30}):
            of_lengths = {"cu_seqlens_q": begins[0], "cu_seqlens_k": begins[1], **most}
            self.near(fa.attention(q, k, v, kernel="plain", causal=True, **of_lengths), expected)
            compiled = torch.compile(lambda *tensors: fa.attention(*tensors, kernel="plain", causal=True, **of_lengths),  # noqa: B023
                                     fullgraph=True, backend="aot_eager")
            self.near(compiled(q, k, v), expected)
        for return_lse in (False, True):
            torch.library.opcheck(torch.ops.fa.attention.default, (q, k, v, "plain", True, *begins, 40, 30, return_lse))
        self.sentence(fa.BadInput, "^cu_seqlens_q is of int64, but fa takes int32$", q, k, v, kernel="plain",
                      cu_seqlens_q=begins[0].long(), cu_seqlens_k=begins[1])
        self.sentence(fa.BadInput, "^cu_seqlens_k is of type list, but q of type Tensor$", q, k, v, kernel="plain",
                      cu_seqlens_q=begins[0], cu_seqlens_k=BEGINS[1])
        q, k, v = arrays((3, 4, 5, 64), kv_shape=(3, 2, 64, 64))
        pool_k, pool_v, lists = in_pages(k, v, 16)
        pools = [torch.from_numpy(each).to(self.DEVICE) for each in (q, pool_k, pool_v)]
        lists = {name: torch.from_numpy(each).to(self.DEVICE) for name, each in lists.items()}
        compiled = torch.compile(lambda *tensors: fa.attention(*tensors, kernel="split_keys", causal=True, **lists), fullgraph=True,
                                 backend="aot_eager")
        for o in (fa.attention(*pools, kernel="split_keys", causal=True, **lists), compiled(*pools)):
            for mine, expected in zip(o[[0, 2]], paged_reference(q, k, v, True)):
                self.assertLess(relative(mine.cpu().numpy(), expected), MOST["float16"])

    # On a GPU that has no "causal", the same with plain.
    FLASH = {"kernel": "plain"} if ON_GPU and torch and torch.cuda.get_device_capability() != (9, 0) else {}

    def test_flash_attention_functions(self):
        for (batch, heads, rows, head_dim), (_, kv_heads, keys, _) in OTHERS:
            packed = self.tensors((batch, rows, heads + 2, head_dim), seed=3)[0]  # q is a view of it
            q, (_, k, v) = packed[:, :, :heads], self.tensors((batch, keys, kv_heads, head_dim))
            for causal, scale in ((False, None), (True, 0.3)):
                o, lse, p = fa.flash_attn_func(q, k, v, 0.0, scale, causal, (-1, -1), 0.0, None, True, True, **self.FLASH)
                self.assertEqual((o.dtype, o.shape, o.is_contiguous(), p), (q.dtype, q.shape, True, None))
                self.near(o, flash_by_torch(*(each.double() for each in (q, k, v)), 0.0, scale, causal))
                self.assertEqual((lse.dtype, lse.shape), (torch.float32, (batch, heads, rows)))
                last = q[:, -1].double().unflatten(1, (kv_heads, -1)) @ k.double().permute(0, 2, 3, 1) * (scale or head_dim ** -0.5)
                torch.testing.assert_close(lse[:, :, -1].double(), last.logsumexp(-1).flatten(1), rtol=0, atol=1e-5)
                blind = max(rows - keys, 0) if causal else 0  # aligned at the bottom right
                self.assertFalse(o[:, :blind].any())
                self.assertTrue((lse[:, :, :blind] == -torch.inf).all() and lse[:, :, blind:].isfinite().all())
        q, (_, k, v) = self.tensors((57, 4, 64))[0], self.tensors((60, 2, 64))
        begins = [torch.tensor(each, dtype=torch.int32, device=self.DEVICE) for each in BEGINS]
        o, lse, _ = fa.flash_attn_varlen_func(q, k, v, *begins, 40, 30, 0.0, 0.3, True, return_attn_probs=True, **self.FLASH)
        self.near(o, packed_by_torch(*(each.double().transpose(0, 1) for each in (q, k, v)), 0.3).transpose(0, 1))
        self.assertEqual((lse.dtype, lse.shape), (torch.float32, (4, 57)))
        self.assertTrue(torch.equal(fa.flash_attn_varlen_func(q, k, v, *begins, 40, 30, 0.0, 0.3, True, **self.FLASH), o))

        def refused(words, **options):
            for call in (lambda: fa.flash_attn_func(q[None], k[None], v[None], **options),
                         lambda: fa.flash_attn_varlen_func(q, k, v, *begins, 40, 30, **options)):
                with self.assertRaisesRegex(fa.BadInput, words):
                    call()

        refused(r"^dropout_p is 0\.1, but fa has no dropout: pass 0\.0$", dropout_p=0.1)
        refused(r"^window_size is None, but fa takes \(left, right\): pass \(-1, -1\) for all keys$", window_size=None)
        refused(r"^window is \(128,\), but fa takes \(left, right\)", window_size=(128,))
        refused("^scale is nan, but fa takes ", softmax_scale=float("nan"))
        for call, words in ((lambda: fa.flash_attn_func(q, k, v), r"\(57, 4, 64\), but fa takes \(batch, seq_len, heads, head_dim\)$"),
                            (lambda: fa.flash_attn_varlen_func(q[None], k, v, *begins, 40, 30),
                             r"\(1, 57, 4, 64\), but fa takes \(rows, heads, head_dim\) of packed sequences$")):
            with self.assertRaisesRegex(fa.BadInput, "^q has the shape " + words):
                call()
        with self.assertRaisesRegex(fa.BadInput, "^block_table goes with fa.attention"):
            fa.flash_attn_varlen_func(q, k, v, *begins, 40, 30, block_table=begins[0][None])

    def test_what_happens_to_scores(self):
        """FlashAttention's names and ours, tensors of other types, and what torch.compile keeps whole."""
        if self.FLASH.get("kernel") not in (None, "plain"):
            self.skipTest("no kernel but plain takes them")
        q, (_, k, v) = self.tensors((2, 60, 4, 64))[0], self.tensors((2, 70, 2, 64))
        slopes = torch.rand(2, 4, device=self.DEVICE)
        sinks = torch.randn(4, device=self.DEVICE, dtype=torch.bfloat16)
        as_theirs = {"window_size": (30, 0), "softcap": 20.0, "alibi_slopes": slopes}
        as_ours = {"window": (30, 0), "softcap": 20.0, "alibi_slopes": slopes, "layout": "bnhd"}
        heads_first = [each.double().transpose(1, 2).cpu().numpy() for each in (q, k, v)]
        for causal in (False, True):
            right = reference(*heads_first, causal, None, (30, 0), 20.0, None, slopes.double().cpu().numpy())
            o = fa.flash_attn_func(q, k, v, causal=causal, **as_theirs)
            self.near(o, torch.from_numpy(right).to(self.DEVICE).transpose(1, 2))
            self.assertTrue(torch.equal(fa.attention(q, k, v, causal=causal, **as_ours), o))
        right = reference(*heads_first, True, None, (30, 0), 20.0, sinks.double().cpu().numpy(), slopes.double().cpu().numpy())
        o = fa.attention(q, k, v, causal=True, sinks=sinks, **as_ours)
        self.near(o, torch.from_numpy(right).to(self.DEVICE).transpose(1, 2))
        self.assertTrue(torch.equal(fa.attention(q, k, v, causal=True, sinks=sinks.float(), **as_ours), o))
        compiled = torch.compile(lambda q, k, v, sinks: fa.attention(q, k, v, causal=True, sinks=sinks, **as_ours), fullgraph=True)
        self.assertTrue(torch.equal(compiled(q, k, v, sinks), o))
        for name, each in (("q", q.detach().requires_grad_()), ("sinks", sinks.detach().requires_grad_())):
            with self.assertRaisesRegex(fa.BadInput, "^scores with a window, .* have no gradients in fa"):
                fa.attention(**{"q": q, "k": k, "v": v, "sinks": sinks, **as_ours, name: each})
        cache = fa.flash_attn_with_kvcache(q[:, -1:], k, v, cache_seqlens=50, causal=True, window_size=(30, 0), softcap=20.0)
        right = reference(heads_first[0][:, :, -1:], *(each[:, :, :50] for each in heads_first[1:]), True, None, (30, 0), 20.0)
        self.near(cache, torch.from_numpy(right).to(self.DEVICE).transpose(1, 2))

    def test_packed_flash_attention_functions(self):
        qkv = self.tensors((2, 40, 3, 4, 64))[0]
        q, k, v = qkv.unbind(2)
        right = fa.flash_attn_func(q, k, v, causal=True)
        self.assertTrue(torch.equal(fa.flash_attn_qkvpacked_func(qkv, causal=True), right))
        self.assertTrue(torch.equal(fa.flash_attn_kvpacked_func(q, qkv[:, :, 1:], causal=True), right))
        o, lse, _ = fa.flash_attn_qkvpacked_func(qkv, 0.0, 0.3, return_attn_probs=True)
        self.near(o, flash_by_torch(*(each.double() for each in (q, k, v)), 0.0, 0.3))
        self.assertEqual(lse.shape, (2, 4, 40))
        for call, words in ((lambda: fa.flash_attn_qkvpacked_func(q), r"^qkv has the shape \(2, 40, 4, 64\), but fa takes \(batch, seq_len, 3, "),
                            (lambda: fa.flash_attn_kvpacked_func(q, qkv), r"^kv has the shape .*, but fa takes \(batch, kv_len, 2, kv_heads, head_dim\)$")):
            with self.assertRaisesRegex(fa.BadInput, words):
                call()

    def test_a_cache_of_keys(self):
        """Steps of decoding, with the cache as FlashAttention has it: in one piece, by an index, and in pages."""
        batch, heads, kv_heads, most, new, before = 3, 8, 2, 64, 2, (0, 37, 62)
        whole = self.tensors((batch, most, kv_heads, 64), seed=5)
        q, (_, k, v) = self.tensors((batch, new, heads, 64), seed=6), self.tensors((batch, new, kv_heads, 64), seed=7)
        q = q[0]
        lengths = torch.tensor(before, dtype=torch.int32, device=self.DEVICE)
        of_each = []
        for i, length in enumerate(before):
            keys, values = (torch.cat([cache[i:i + 1, :length], each[i:i + 1]], 1) for cache, each in zip(whole[1:], (k, v)))
            of_each.append(flash_by_torch(*(each.double() for each in (q[i:i + 1], keys, values)), 0.0, 0.2, True))
        right = torch.cat(of_each)

        def step(caches, kernel=None, **options):
            return fa.flash_attn_with_kvcache(q, *caches, k, v, softmax_scale=0.2, causal=True, kernel=kernel, **options)

        def check(o, caches, places):
            self.near(o, right)
            for cache, each in zip(caches, (k, v)):
                for i, (row, column) in enumerate(places):
                    self.assertTrue(torch.equal(cache[row, column:column + new], each[i]))

        for index in (None, [4, 0, 2]):
            rows = index or range(batch)
            caches = [torch.zeros(5 if index else batch, most, kv_heads, 64, dtype=q.dtype, device=self.DEVICE) for _ in "kv"]
            for cache, each in zip(caches, whole[1:]):
                cache[list(rows)] = each
            which = None if index is None else torch.tensor(index, dtype=torch.int32, device=self.DEVICE)
            o, lse = step(caches, cache_seqlens=lengths, cache_batch_idx=which, return_softmax_lse=True)
            check(o, caches, list(zip(rows, before)))
            self.assertEqual((lse.dtype, lse.shape), (torch.float32, (batch, heads, new)))
            again = fa.flash_attn_with_kvcache(q, *caches, cache_seqlens=lengths + new, cache_batch_idx=which, softmax_scale=0.2, causal=True)
            self.assertTrue(torch.equal(o, again))
        # In pages of 16, each sequence's in another order; page_of has as many as there are.
        page_of = torch.randperm(batch * most // 16, generator=torch.Generator().manual_seed(1)).view(batch, -1).to(self.DEVICE)
        pools = []
        for each in whole[1:]:
            pools.append(torch.empty(batch * most // 16, 16, kv_heads, 64, dtype=q.dtype, device=self.DEVICE))
            pools[-1][page_of] = each.view(batch, -1, 16, kv_heads, 64)
        o = step(pools, cache_seqlens=lengths, block_table=page_of.int())
        check(o, [], [])
        self.assertTrue(torch.equal(pools[0][page_of[1, 2], 5:7], k[1]) and torch.equal(pools[1][page_of[2, 3], 14:], v[2]))
        # As many keys for all, by a number; a cache whose length is no multiple of 16 is copied, and a warning says so.
        caches = [each[:, :50].contiguous() for each in whole[1:]]
        keys, values = (torch.cat([cache[:, :37], each], 1).double() for cache, each in zip(caches, (k, v)))
        right = flash_by_torch(q.double(), keys, values, 0.0, 0.2, True)
        check(step(caches, cache_seqlens=37), caches, [(i, 37) for i in range(batch)])
        with self.assertWarnsRegex(UserWarning, "^the cache has 50 keys a sequence: fa copies it, "):
            check(step(caches, cache_seqlens=torch.full_like(lengths, 37)), caches, [(i, 37) for i in range(batch)])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            o = fa.flash_attn_with_kvcache(q, *(each[:, :39].contiguous() for each in caches), softmax_scale=0.2, causal=True)
        self.assertTrue(torch.equal(o, step(caches, cache_seqlens=37)))

        for words, options in ((r"^cache_seqlens is 49, but the cache has room for 50 keys, and 2 are new$", {"cache_seqlens": 49}),
                               (r"^cache_seqlens has the shape \(3,\), of int64 on .*, but fa takes 1 dimension of int32 on ",
                                {"cache_seqlens": lengths.long()}),
                               (r"^cache_seqlens has the shape \(2,\), but q has 3 sequences$", {"cache_seqlens": lengths[:2]}),
                               ("^cache_leftpad is given, ", {"cache_leftpad": lengths}), ("^rotary_cos is given, ", {"rotary_cos": k}),
                               ("^cache_batch_idx does not go with block_table", {"cache_batch_idx": lengths, "block_table": page_of.int()}),
                               (r"^window_size is None, but fa takes", {"window_size": None, "cache_seqlens": 37})):
            with self.assertRaisesRegex(fa.BadInput, words):
                step(caches, **options)
        for call, words in ((lambda: fa.flash_attn_with_kvcache(q, *caches, k), "^k and v belong together"),
                            (lambda: fa.flash_attn_with_kvcache(q[:2], *caches), "^k_cache has 3 sequences, but q has 2: pass cache_batch_idx$"),
                            (lambda: fa.flash_attn_with_kvcache(q, *caches, k[:, :, :1], v[:, :, :1]),
                             r"^k has the shape \(3, 2, 1, 64\), but with this q and cache fa takes \(3, 2, 2, 64\)$"),
                            (lambda: fa.flash_attn_with_kvcache(q, caches[0], [1]), "^v_cache is of type list, ")):
            with self.assertRaisesRegex(fa.BadInput, words):
                call()

    def test_autocast(self):
        """fp32 is cast where PyTorch's own attention casts it, and to the same."""
        q, k, v = (each.float() for each in self.tensors())
        self.sentence(fa.BadInput, "^q is of float32, but fa takes float16 and bfloat16$", q, k, v)
        for dtype in (torch.bfloat16, torch.float16):
            def both(q, k, v, dtype=dtype):
                with torch.autocast(self.DEVICE, dtype):
                    return fa.attention(q, k, v), torch.nn.functional.scaled_dot_product_attention(q, k, v)

            o, by_sdpa = both(q, k.to(dtype), v)
            self.assertEqual(o.dtype, by_sdpa.dtype)
            with torch.autocast(self.DEVICE, dtype):
                plan = fa.plan(q, k, v)
            self.assertEqual(plan, fa.plan(*(each.to(dtype) for each in (q, k, v))))
            self.assertTrue(torch.equal(o, fa.attention(*(each.to(dtype) for each in (q, k, v)))))
            compiled = torch.compile(lambda *tensors: both(*tensors)[0], fullgraph=True, backend="aot_eager")  # noqa: B023
            self.assertTrue(torch.equal(compiled(q, k, v), o))
            torch.compiler.reset()
        with torch.autocast(self.DEVICE):
            self.sentence(fa.BadInput, "^q is of float64, but fa takes float16 and bfloat16$", q.double(), k, v)

    def test_rows_lie_anywhere(self):
        """Slices, exchanged and expanded dimensions give the same bits as copies, and nothing is copied."""
        def same(wanted, given, like, **options):
            with unittest.mock.patch.object(torch.Tensor, "contiguous", side_effect=AssertionError("a copy")):
                o = fa.attention(*given, **wanted, **options)
            torch.compiler.reset()
            compiled = torch.compile(lambda *tensors: fa.attention(*tensors, **wanted, **options), fullgraph=True, backend="aot_eager")
            for each in (o, compiled(*given)):
                self.assertTrue(each.is_contiguous() and torch.equal(each, fa.attention(*like, **wanted, **options)))

        for kernel in ("plain", "split_keys", *["causal"] * (not self.FLASH)):
            wanted = {"kernel": kernel, "causal": True}
            qkv = self.tensors((2, 33, 3, 4, 64))[0]
            given = qkv.unbind(2)
            same(wanted, given, [each.contiguous() for each in given], layout="bnhd")
            turned = [each.transpose(1, 2) for each in given]
            same(wanted, turned, [each.contiguous() for each in turned])
            o = fa.attention(*turned, **wanted, layout="bhnd")
            self.assertTrue(torch.equal(o, fa.attention(*given, **wanted, layout="bnhd").transpose(1, 2)))
            # One head of K and V for all, of the whole batch, as expand() has it.
            k, v = (each[:1, :1, 3:].expand(2, 4, -1, -1) for each in self.tensors((1, 2, 43, 64))[1:])
            same(wanted, (turned[0], k, v), [each.contiguous() for each in (turned[0], k, v)])
            for bad, words in ((turned[0].transpose(2, 3).contiguous().transpose(2, 3), "^q has the strides .*, but the elements of a row must be "
                                r"neighbours, with the stride 1: pass q\.contiguous\(\)$"),
                               (torch.nn.functional.pad(turned[0], (0, 4))[..., :64], "^q_strides.head must be a multiple of 8 from 0 to .*, not 2244$")):
                self.sentence(fa.BadInput, words, bad, k, v, **wanted)
        for kernel in () if self.FLASH else NAMES[11:] if ON_GPU else ("12", "16"):
            given = self.tensors((2, 256, 3, 4, 64))[0].unbind(2)
            same({"kernel": kernel}, given, [each.contiguous() for each in given], layout="bnhd")
            turned = [each.transpose(1, 2) for each in given]
            same({"kernel": kernel}, turned, [each.contiguous() for each in turned])
            o = fa.attention(*turned, kernel=kernel)
            self.assertTrue(torch.equal(fa.flash_attn_func(*given, kernel=kernel), o.transpose(1, 2)))
        q, k, v = arrays((3, 4, 5, 64), kv_shape=(3, 2, 64, 64))
        pool_k, pool_v, lists = in_pages(k, v, 16)
        lists = {name: torch.from_numpy(each).to(self.DEVICE) for name, each in lists.items()}
        given = [torch.from_numpy(each).to(self.DEVICE) for each in (q, pool_k, pool_v)]
        right = fa.attention(*given, kernel="split_keys", causal=True, **lists)
        o = fa.attention(*(each.transpose(1, 2).contiguous() for each in given), kernel="split_keys", causal=True, layout="bnhd", **lists)
        self.assertTrue(torch.equal(o.transpose(1, 2)[[0, 2]], right[[0, 2]]))

    def test_a_model_that_calls_flash_attention(self):
        """One import changed, the model computes what it does with torch's attention; on a GPU also out of a graph."""
        if self.FLASH:
            self.skipTest("needs a GPU of compute capability 9.0")
        models = []
        with unittest.mock.patch.dict(sys.modules, flash_attn=types.SimpleNamespace(flash_attn_func=flash_by_torch)):
            for name in ("fa", "flash_attn"):
                exec(GPT.replace("from flash_attn import", f"from {name} import"), names := {})
                torch.manual_seed(1)
                models.append(names["GPT"](100, 64, 4, 2, 64, 2).requires_grad_(False).to(self.DEVICE))
        model, right = models[0].half(), models[1].double()
        tokens, others = torch.randint(100, (2, 2, 50), generator=torch.Generator().manual_seed(2)).to(self.DEVICE)
        self.near(model(tokens), right(tokens), 2e-3)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        self.near(compiled(others), right(others), 2e-3)
        if ON_GPU:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                logits = model(tokens)
            tokens.copy_(others)
            graph.replay()
            self.near(logits, right(others), 2e-3)

    def attention(self, q, k, v, kernel, scale=None):
        """None where this GPU cannot run the kernel."""
        try:
            return fa.attention(q, k, v, kernel=kernel, scale=scale)
        except fa.Unsupported as error:
            self.assertRegex(str(error), rf"^{kernel} needs a GPU of compute capability ")
            return None

    def test_every_kernel(self):
        for dtype in (torch.bfloat16, torch.float16):
            for head_dim, scale in ((64, None), (128, None), (128, 0.3)):
                q, k, v = self.tensors((*SHAPE[:3], head_dim), dtype)
                for name in NAMES if ON_GPU else ("01", "08", "16"):
                    with self.subTest(kernel=name, dtype=dtype, head_dim=head_dim, scale=scale):
                        if (o := self.attention(q, k, v, name, scale)) is not None:
                            self.assert_right(o, q, k, v, scale)

    def test_sentences(self):
        q, k, v = self.tensors((1, 2, 128, 128))
        self.check_sentences(q, k, v, torch.Tensor.contiguous)
        self.sentence(fa.BadInput, "^q is of float32, but fa takes float16 and bfloat16$", q.float(), k, v)
        self.sentence(fa.BadInput, "^k has the dtype float16, but q has bfloat16$", q, k.half(), v)
        self.sentence(fa.BadInput, "^k is on meta and has no data, which fa needs$", q, k.to("meta"), v)
        with self.assertRaisesRegex(fa.BadInput, "^fa has no forward-mode derivatives: pass tensors without tangents$"):
            torch.func.jvp(lambda v: fa.attention(q, k, v, kernel=8), (v,), (v,))
        with torch.no_grad():
            self.assert_right(fa.attention(q.clone().requires_grad_(), k, v, kernel=8), q, k, v)
        if ON_GPU:
            self.sentence(fa.BadInput, "^q is on cpu, but this fa was built for CUDA and takes tensors of a GPU; with libboost-context-dev, FA_BACKEND=cuda pip install . builds both$",
                          q.cpu(), k, v)
            with self.assertRaisesRegex(fa.Unsupported, "^a GPU does not count"):
                fa.counters()
        odd = torch.empty(q.numel() + 1, dtype=q.dtype, device=q.device)[1:].view(q.shape)
        self.sentence(fa.BadInput, "^q begins at an address that is not a multiple of 16 bytes: pass a copy of it$", odd, k, v)

    def test_compile_keeps_it_whole(self):
        q, k, v = self.tensors((1, 2, 128, 64))
        for backend in ("aot_eager", "inductor"):
            with self.subTest(backend=backend):
                torch._dynamo.reset()

                def between(q, k, v):
                    return fa.attention(q * 2, k, v, kernel=8) + 1

                compiled = torch.compile(between, fullgraph=True, backend=backend)
                torch.testing.assert_close(compiled(q, k, v), between(q, k, v))

    def test_operator_keeps_torchs_rules(self):
        q, k, v = self.tensors((1, 2, 128, 64))
        fa.attention(q, k, v, kernel=8)  # registers it
        torch.library.opcheck(torch.ops.fa.attention.default, (q, k, v, "08"))

    def test_whoever_watches_sees_the_operator(self):
        q, k, v = self.tensors((1, 2, 128, 64))

        def call(q):
            return fa.attention(q, k, v, kernel=8)

        class Mode(TorchDispatchMode):
            names = []

            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                self.names.append(str(function))
                return function(*args, **(kwargs or {}))

        with Mode():
            call(q)
        self.assertIn("fa.attention.default", Mode.names)
        self.assertIn("torch.ops.fa.attention.default", make_fx(call)(q).code)
        with warnings.catch_warnings():  # of values that are constants in a trace, and of a transform without a rule of its own
            warnings.simplefilter("ignore")
            self.assertIn("fa::attention", str(torch.jit.trace(call, (q,), check_trace=False).graph))
            for query, o in zip((q, k), torch.vmap(call)(torch.stack([q, k]))):
                self.assert_right(o, query, k, v)
        of_all = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
        for options, run in (({}, lambda work: work.run()), ({"experimental_config": of_all}, lambda work: (work.start(), work.join()))):
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options) as profile:
                run(threading.Thread(target=call, args=(q,)))
            self.assertIn("fa::attention", [each.key for each in profile.key_averages()])
        self.assertTrue(torch.equal(call(torch._neg_view(q)), call(-q)))  # of which torch makes the numbers for an operator
        with unittest.mock.patch("fa._torch._operator", None):
            self.assert_right(call(q), q, k, v)  # and where nobody does, torch is not asked
        for kept in (fa._torch._calls, fa._torch._again):  # as after a long decoding
            with unittest.mock.patch.dict(kept, dict.fromkeys(range(10_000)), clear=True), unittest.mock.patch("fa._torch.run_again"):
                fa._torch.run_again.return_value = None
                call(q)
                self.assertEqual(len(kept), 1)

    def test_a_call_like_one_before(self):
        """It is not judged again. What its options and layouts do not decide is looked at each time."""
        q, k, v = self.tensors((1, 2, 128, 64), dtype=torch.bfloat16)
        options = {"kernel": "plain", "layout": "bhnd", "scale": 1, "softcap": 1, "window": (30, 20), "return_lse": True}
        with unittest.mock.patch("fa._torch._calls", {}), unittest.mock.patch("fa._torch._again", {}):
            first = fa.attention(q, k, v, **options)
            with unittest.mock.patch("fa._attention._checked", None):
                for one, other in zip(first, fa.attention(q.clone(), k.clone(), v.clone(), **options)):
                    self.assertTrue(torch.equal(one, other))
            for name, alike in (("kernel", ["plain"]), ("scale", True), ("softcap", True), ("window", (30.0, 20)), ("causal", [False]), ("check", 2)):
                with self.subTest(name), self.assertRaisesRegex(fa.BadInput, f"^{name} is "):
                    fa.attention(q, k, v, **{**options, name: alike})
            turned, shifted = q.transpose(1, 2).contiguous().transpose(1, 2), torch.empty(q.numel() + 4, dtype=q.dtype, device=q.device)[4:].view_as(q)
            for one, other in zip(first, fa.attention(turned, k, v, **options)):
                self.assertTrue(torch.equal(one, other))
            for one, other in zip(fa.attention(-q, k, v, **options), fa.attention(torch._neg_view(q), k, v, **options)):
                self.assertTrue(torch.equal(one, other))
            with torch.autograd.forward_ad.dual_level():
                for words, tensors in (("^q begins at an address that is not a multiple of 16 bytes", (shifted, k, v)),
                                       ("^k is of type list", (q, [k], v)),
                                       ("^scores with a window, .* have no gradients in fa", (q.clone().requires_grad_(), k, v)),
                                       ("^fa has no forward-mode derivatives", (torch.autograd.forward_ad.make_dual(q, k), k, v))):
                    with self.subTest(words), self.assertRaisesRegex(fa.BadInput, words):
                        fa.attention(*tensors, **options)
            for dtype in (torch.bfloat16, torch.float16):
                with torch.autocast(q.device.type, dtype=dtype):
                    self.assertEqual(fa.attention(q, k, v, **options)[0].dtype, dtype)
            causal, plain = torch.tensor(True), {"kernel": "plain", "layout": "bhnd"}
            for value in (True, False):
                causal.fill_(value)
                self.assertTrue(torch.equal(fa.attention(q, k, v, causal=causal, **plain), fa.attention(q, k, v, causal=value, **plain)))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for _ in range(2):
                    fa.attention(*self.tensors((1, 20, 8, 64)), kernel="plain")
            self.assertEqual([each.filename for each in caught], [__file__] * 2)

    # ---- on a GPU
    def gpu(self, count=1):
        if not ON_GPU or torch.cuda.device_count() < count:
            self.skipTest(f"needs {count} GPU{'s' if count > 1 else ''}")

    def test_more_elements_than_31_bits_count(self):
        """And a head of more rows than 15 bits count. Of some heads and rows, on the way and at the ends."""
        self.gpu()
        for shape in ((1, 65_535, 384, 128), (1, 1, 33_024, 64)):
            if torch.cuda.mem_get_info()[0] < 6 * 2 * math.prod(shape):
                self.skipTest("needs 39 GB of a GPU's memory")
            q, k, v = (torch.randn(shape, dtype=torch.bfloat16, device="cuda") for _ in range(3))
            heads = sorted({0, shape[1] // 2, shape[1] - 1})
            for kernel in [kernel.name for kernel in fa.kernels()]:
                if kernel in ("01_naive", "beyond/plain") and shape[1] > 1:
                    continue  # 01 needs as many scores, and plain takes minutes
                if (o := self.attention(q, k, v, kernel)) is not None:
                    for rows in (slice(64), slice(-300, None)):
                        with self.subTest(kernel, shape=shape):
                            self.assert_right(o[:, heads, rows].contiguous(), q[:, heads, rows], k[:, heads], v[:, heads])
                    del o
            del q, k, v

    def test_current_stream(self):
        self.gpu()
        q, k, v = self.tensors()
        fresh = self.tensors(seed=2)
        stream = torch.cuda.Stream()
        for name in ("01", "08", "16"):
            if self.attention(q, k, v, name) is None:  # loads the kernel, too, which takes its time
                continue
            late = q.clone()
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                torch.cuda._sleep(200_000_000)  # a tenth of a second
                late.copy_(fresh[0])
                o = fa.attention(late, k, v, kernel=name)
            self.assertFalse(stream.query(), "the call has waited for the stream")
            stream.synchronize()
            self.assert_right(o, fresh[0], k, v)

    def test_graph(self):
        self.gpu()
        for name in NAMES:
            with self.subTest(kernel=name):
                q, k, v = self.tensors()
                graph = torch.cuda.CUDAGraph()
                try:
                    with torch.cuda.graph(graph):
                        o = fa.attention(q, k, v, kernel=name)
                except fa.Unsupported:
                    continue
                for seed in (2, 3):
                    for old, new in zip((q, k, v), self.tensors(seed=seed)):
                        old.copy_(new)
                    o.fill_(float("nan"))
                    graph.replay()
                    torch.cuda.synchronize()
                    self.assert_right(o, q, k, v)

    def test_first_launch_of_a_process_is_captured(self):
        self.gpu()
        code = """
import fa, torch
q, k, v = torch.randn(3, 1, 2, 256, 128, device="cuda", dtype=torch.bfloat16)
for kernel in ("16", "15", "08", "01"):
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph): o = fa.attention(q, k, v, kernel=kernel)
    except fa.Unsupported:
        continue
    graph.replay()
    torch.cuda.synchronize()
    right = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float())
    assert torch.linalg.norm(o.float() - right) < 4e-3 * torch.linalg.norm(right), kernel
"""
        in_fresh_process(self, code)

    def test_compiled_into_a_graph(self):
        self.gpu()
        q, k, v = self.tensors()
        compiled = torch.compile(lambda q, k, v: fa.attention(q * 2, k, v, kernel="08"), fullgraph=True,
                                 mode="reduce-overhead")
        for seed in (1, 2, 3, 4):
            q, k, v = self.tensors(seed=seed)
            self.assert_right(compiled(q, k, v).clone(), q * 2, k, v)

    def test_shared_memory_grows_and_shrinks(self):
        self.gpu()
        for shape in ((1, 2, 256, 64), (1, 2, 256, 128), (1, 2, 384, 128), (1, 2, 256, 64)):
            q, k, v = self.tensors(shape)
            for name in (*NAMES[7:], NAMES[15], *reversed(NAMES[7:])):
                if (o := self.attention(q, k, v, name)) is not None:
                    self.assert_right(o, q, k, v)

    def test_two_gpus(self):
        self.gpu(2)
        for device in ("cuda:1", "cuda:0", "cuda:1"):  # the current one is 0 throughout
            q, k, v = self.tensors(device=device)
            for name in NAMES:
                if (o := self.attention(q, k, v, name)) is not None:
                    self.assert_right(o, q, k, v)
            self.assertEqual(torch.cuda.current_device(), 0)
        other = self.tensors(device="cuda:0")
        with torch.cuda.device(1):
            self.assert_right(fa.attention(*other, kernel=2), *other)
            self.assertEqual(torch.cuda.current_device(), 1)
            self.assertEqual(torch.empty(1, device="cuda").device.index, 1)
        self.sentence(fa.BadInput, "^k has the device cuda:0, but q has cuda:1$", q, other[1], v)

    def test_two_threads_with_streams_of_their_own(self):
        self.gpu()
        q, k, v = self.tensors()

        def work(kernel):
            with torch.cuda.stream(torch.cuda.Stream()):
                outputs = [fa.attention(q, k, v, kernel=kernel) for _ in range(50)]
                torch.cuda.current_stream().synchronize()
                return outputs

        with ThreadPoolExecutor() as pool:
            found = list(pool.map(work, ("08", "03", "10", "02")))
        for outputs in found:
            self.assert_right(outputs[0], q, k, v)
            self.assertTrue(all(torch.equal(outputs[0], each) for each in outputs))

    def test_pointers_of_the_cpu_are_refused_by_the_library(self):
        self.gpu()
        q, _, _ = self.tensors((1, 1, 128, 64), torch.float16, device="cpu")
        with self.assertRaisesRegex(fa.BadInput, "^the pointer to Q is not to memory of a GPU"):
            call = fa._library.prepare("08", q.shape, "float16")
            fa._library.run(call, (q.data_ptr(),) * 3 + (torch.empty_like(q).data_ptr(),), 0)


def gradients_by_torch(q, k, v, d_o, causal=False, scale=None):
    """Of tensors (heads, rows, head_dim), k and v with as many or fewer heads: what autograd gives in float64 for q, k and v, and
    how far each element of a right result may be off.

    With S = scale q k^T, P = softmax(S), dP = dO v^T, D the sum of dO O over a row and dS = P (dP - D), dQ is scale dS k, dK is
    scale dS^T q and dV is P^T dO. A kernel rounds dS, P and the result to 16 bits, each by u at most. D it takes from an O whose P
    was rounded, and which was rounded itself. Exponentials and sums in float32 cost far less: 2^-19 of P is more than they do."""
    unit, least = (2**-11, 2**-25) if q.dtype == torch.float16 else (2**-8, 0.0)
    q, k, v, d_o = (each.detach().cpu().double().requires_grad_() for each in (q, k, v, d_o))
    group = q.shape[0] // k.shape[0]
    o = by_torch(q, k, v, causal, scale)
    right = torch.autograd.grad(o, (q, k, v), d_o)
    with torch.no_grad():
        scale, keys, values = scale or q.shape[-1] ** -0.5, k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
        scores = scale * q @ keys.mT
        if causal:
            visible = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(k.shape[-2] - q.shape[-2])
            scores = scores.masked_fill(~visible, -torch.inf)
        p = scores.softmax(-1).nan_to_num()
        d_p, d = d_o @ values.mT, (d_o * o).sum(-1, keepdim=True)
        of_d = unit * ((d_o * o).abs() + d_o.abs() * (p @ values.abs())).sum(-1, keepdim=True)
        of_p = (unit + 2**-19) * p
        of_s = scale * p * (unit * (d_p - d).abs() + of_d + 2**-19 * (d_p.abs() + d.abs()))

        def of_group(each):
            return each.unflatten(0, (-1, group)).sum(1)

        allowed = of_s @ keys.abs(), of_group(of_s.mT @ q.abs()), of_group(of_p.mT @ d_o.abs())
        return right, [each + unit * gradient.abs() + least for each, gradient in zip(allowed, right)]


@unittest.skipUnless(torch, "torch is not installed")
class Gradients(Sentences):
    """What autograd gets from fa.attention, held to autograd in float64."""

    DEVICE = "cuda" if ON_GPU else "cpu"
    # Of "causal" and "split_keys" a GPU may have neither; then "plain" and backward_plain take all.
    FORWARD = (None, "plain") if ON_GPU else (None, "plain", "causal", "split_keys")

    def tensors(self, *shapes, dtype=None, grads=True):
        generator = torch.Generator().manual_seed(1)
        made = [torch.randn(shape, generator=generator).to(dtype or torch.bfloat16).to(self.DEVICE) for shape in shapes]
        return [each.requires_grad_(grads) for each in made]

    def right(self, found, q, k, v, d_o, causal=False, scale=None):
        """Whether the gradients of tensors (..., heads, rows, head_dim) are right: each element, and each gradient in norm. Its
        two roundings to 16 bits, of dS or P and of itself, cost half of MOST, as those of P and O do in a forward pass."""
        batch = list(zip(*(each.reshape(-1, *each.shape[-3:]) for each in (q, k, v, d_o))))
        expected = [gradients_by_torch(*each, causal, scale) for each in batch]
        for at, (name, gradient) in enumerate(zip(("dQ", "dK", "dV"), found)):
            self.assertEqual((gradient.dtype, gradient.device), (q.dtype, q.device))
            gradient = gradient.cpu().double().reshape(-1, *gradient.shape[-3:])
            right, allowed = (torch.stack([each[part][at] for each in expected]) for part in (0, 1))
            worst = ((gradient - right).abs() - allowed).max().item()
            self.assertLessEqual(worst, 0, name)
            self.assertLess(((gradient - right).norm() / right.norm()).item(), MOST[str(q.dtype)[6:]], name)

    def test_masks_heads_and_lengths(self):
        for dtype in (torch.bfloat16, torch.float16):
            for (shape, kv_shape), causal, kernel, scale in zip(
                    [*OTHERS, *OTHERS, ((1, 2, 128, 128), (1, 2, 128, 128))], (False, False, True, True, True, False, True),
                    self.FORWARD * 4, (None, 0.3, None, None, 0.3, None, None)):
                with self.subTest(shape=shape, causal=causal, kernel=kernel, dtype=dtype):
                    q, k, v = self.tensors(shape, kv_shape, kv_shape, dtype=dtype)
                    o = fa.attention(q, k, v, causal=causal, kernel=kernel, scale=scale)
                    if kernel and not ON_GPU:
                        self.assertEqual(fa.counters()["kernel"], f"beyond/{kernel}")
                    d_o = torch.randn(o.shape, generator=torch.Generator().manual_seed(2)).to(dtype).to(self.DEVICE)
                    found = torch.autograd.grad(o, (q, k, v), d_o)
                    self.right(found, q, k, v, d_o, causal, scale)
                    if not ON_GPU:
                        self.assertEqual(fa.counters()["kernel"], "backward")
                    blind = max(shape[2] - kv_shape[2], 0) if causal else 0
                    self.assertFalse(found[0][:, :, :blind].any())  # rows that see no key
                    self.assertTrue(found[0][:, :, blind + causal:].any(-1).all())  # of a single key dS is 0

    def test_an_error_is_seen(self):
        """The bounds are narrow enough: a gradient that lacks one key of 100, a factor of 1 %, or D."""
        q, k, v = self.tensors((1, 2, 77, 64), (1, 1, 100, 64), (1, 1, 100, 64))
        o = fa.attention(q, k, v)
        d_o = torch.randn_like(o)
        right = torch.autograd.grad(o, (q, k, v), d_o)
        self.right(right, q, k, v, d_o)
        fewer = torch.autograd.grad(fa.attention(q, k[:, :, :99], v[:, :, :99]), (q, k, v), d_o)
        without_d = [each.to(q.dtype) for each in torch.autograd.grad(fa.attention(q, k, v), (q, k, v), d_o - o.detach())]
        for at, wrong in ((0, fewer[0]), (1, right[1] * 1.01), (2, right[2] * 1.01), (0, without_d[0]), (1, fewer[1])):
            with self.assertRaises(AssertionError):
                self.right([wrong if i == at else each for i, each in enumerate(right)], q, k, v, d_o)

    def test_tensors_that_lie_anywhere(self):
        """Gradients of views are those of copies, bit for bit but for dQ, whose sums have any order on a GPU."""
        q, k, v = self.tensors((2, 4, 70, 64), (2, 2, 90, 64), (2, 2, 90, 64))
        right = torch.autograd.grad(fa.attention(q, k, v, causal=True).float().sin().sum(), (q, k, v))

        def same(found):
            for name, one, other in zip("qkv", found, right):
                if name == "q" and ON_GPU:
                    torch.testing.assert_close(one, other, rtol=2**-7, atol=1e-3)
                else:
                    self.assertTrue(torch.equal(one, other), name)

        turned = [each.detach().transpose(1, 2).contiguous().requires_grad_() for each in (q, k, v)]
        for layout in ("bnhd", "bhnd"):
            given = turned if layout == "bnhd" else [each.transpose(1, 2) for each in turned]
            o = fa.attention(*given, causal=True, layout=layout)
            same([each.transpose(1, 2) for each in torch.autograd.grad(o.float().sin().sum(), turned)])
        # Slices of one tensor, between whose rows lie those of others, and a head of k and v that is all heads'.
        whole = torch.cat([turned[0], turned[1].repeat(1, 1, 2, 1)[:, :70]], 2).detach().requires_grad_()
        q2, k2 = whole[:, :, :4], whole[:, :, 4:6]
        o = fa.flash_attn_func(q2, k2, k2, causal=True)
        copies = [each.detach().clone().requires_grad_() for each in (q2, k2, k2)]
        of_copies = torch.autograd.grad(fa.flash_attn_func(*copies, causal=True).float().sin().sum(), copies)
        found, = torch.autograd.grad(o.float().sin().sum(), whole)
        torch.testing.assert_close(found[:, :, :4], of_copies[0], rtol=2**-7 * ON_GPU, atol=1e-3 * ON_GPU)
        self.assertTrue(torch.equal(found[:, :, 4:6], of_copies[1] + of_copies[2]))
        one = k.detach()[:, :1].clone().requires_grad_()
        o = fa.attention(q, one.expand(-1, 4, -1, -1), one.expand(-1, 4, -1, -1))
        d_o = torch.randn_like(o)
        found, = torch.autograd.grad(o, one, d_o)
        single = torch.autograd.grad(fa.attention(q, one, one), one, d_o)[0]
        self.assertLess(((found - single).double().norm() / single.double().norm()).item(), 2 * MOST["bfloat16"])  # rounded per head

    def test_gradients_of_the_output_of_any_kind(self):
        """Expanded, as sum() gives it, in another order, at an odd address; and of some inputs alone."""
        q, k, v = self.tensors((2, 4, 40, 64), (2, 4, 40, 64), (2, 4, 40, 64))
        o = fa.attention(q, k, v)
        odd = torch.empty(o.numel() + 1, dtype=o.dtype, device=o.device)[1:].view(o.shape)
        for d_o in (torch.ones_like(o[:1, :1, :1, :1]).expand(o.shape), torch.randn_like(o.transpose(1, 2)).transpose(1, 2), odd.normal_()):
            self.right(torch.autograd.grad(o, (q, k, v), d_o, retain_graph=True), q, k, v, d_o)
        o.sum().backward()
        self.assertEqual([each.grad.shape for each in (q, k, v)], [q.shape] * 3)
        for wanted in ("q", "k", "v", "qv"):
            given = {name: each.detach().requires_grad_(name in wanted) for name, each in zip("qkv", (q, k, v))}
            o = fa.attention(*given.values())
            d_o = torch.randn_like(o)
            o.backward(d_o)
            self.assertEqual([each.grad is not None for each in given.values()], [name in wanted for name in "qkv"])
            whole = [q.detach().clone().requires_grad_(), k, v]
            all_three = torch.autograd.grad(fa.attention(*whole), whole, d_o)
            self.right([given[name].grad if name in wanted else each for name, each in zip("qkv", all_three)], q, k, v, d_o)

    def test_packed_sequences(self):
        q, k, v = self.tensors((57, 4, 64), (60, 2, 64), (60, 2, 64))
        begins = [torch.tensor(each, dtype=torch.int32, device=self.DEVICE) for each in BEGINS]
        for most in ((40, 30), (None, None)):
            o = fa.flash_attn_varlen_func(q, k, v, *begins, *most, causal=True, **({"kernel": "plain"} if Torch.FLASH else {}))
            d_o = torch.randn(o.shape, generator=torch.Generator().manual_seed(2)).to(o.dtype).to(self.DEVICE)
            found = torch.autograd.grad(o, (q, k, v), d_o)
            self.assertEqual([each.shape for each in found], [each.shape for each in (q, k, v)])
            for a, b, c, d in zip(BEGINS[0], BEGINS[0][1:], BEGINS[1], BEGINS[1][1:]):
                of_one = [each[begin:end].transpose(0, 1) for each, begin, end in ((found[0], a, b), (found[1], c, d), (found[2], c, d))]
                if b > a:
                    self.right(of_one, *(each.transpose(0, 1) for each in (q[a:b], k[c:d], v[c:d], d_o[a:b])), causal=True)
                else:
                    self.assertFalse(of_one[1].any() or of_one[2].any())  # keys that no query sees

    def test_compiled(self):
        q, k, v = self.tensors((1, 2, 70, 64), (1, 1, 70, 64), (1, 1, 70, 64))

        def between(q, k, v):
            return fa.attention(q * 2, k, v, causal=True) + 1

        right = torch.autograd.grad(between(q, k, v).float().sin().sum(), (q, k, v))
        for backend in ("aot_eager", "inductor"):
            torch._dynamo.reset()
            found = torch.autograd.grad(torch.compile(between, fullgraph=True, backend=backend)(q, k, v).float().sin().sum(), (q, k, v))
            for one, other in zip(found, right):
                torch.testing.assert_close(one, other, rtol=2**-7 * ON_GPU, atol=1e-3 * ON_GPU)

    def test_operators_keep_torchs_rules(self):
        q, k, v = self.tensors((1, 4, 70, 64), (1, 2, 70, 64), (1, 2, 70, 64))
        packed = self.tensors((4, 57, 64), (2, 60, 64), (2, 60, 64))
        begins = [torch.tensor(each, dtype=torch.int32, device=self.DEVICE) for each in BEGINS]
        o, lse = fa.attention(q.detach(), k.detach(), v.detach(), return_lse=True)  # registers them
        done = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
        for given in ((q, k, v, "best", True, None, None, None, None, True), (*packed, "plain", True, *begins, 40, 30, True)):
            self.assertEqual(torch.library.opcheck(torch.ops.fa.attention.default, given), dict.fromkeys(done, "SUCCESS"))
            self.assertEqual([each.requires_grad for each in torch.ops.fa.attention.default(*given)], [True, False])
        turned = q.detach().transpose(1, 2).contiguous().transpose(1, 2)
        for query in (q.detach(), turned):
            given = (torch.randn_like(o), query, k.detach(), v.detach(), o, lse, False, None, None, None, None, None, False, True, False)
            self.assertEqual(torch.library.opcheck(torch.ops.fa.attention_backward.default, given), dict.fromkeys(done, "SUCCESS"))

    def test_with_and_without_the_operator(self):
        """Where nobody watches torch is not asked, and a call like one before is not judged again, nor is its backward(). A mode sees
        the operators, from which the gradients are the same bits, and the refusals the same sentences."""
        class Mode(TorchDispatchMode):
            def __init__(self, names):
                super().__init__()
                self.names = names

            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                self.names.add(str(function))
                return function(*args, **(kwargs or {}))

        @contextlib.contextmanager
        def unseen(*judges):
            with contextlib.ExitStack() as patches:
                for target, name in ((fa._torch, "_operator"), (torch.ops.fa, "attention_backward"), *judges):
                    patches.enter_context(unittest.mock.patch.object(target, name, None))
                yield

        def found(q, k, v, d_o, wanted="qkv", **options):
            given = [each.detach().requires_grad_(name in wanted) for name, each in zip("qkv", (q, k, v))]
            result = fa.attention(*given, deterministic=True, **options)
            o, *lse = result if options.get("return_lse") else (result,)
            gradients = torch.autograd.grad(o, [each for each in given if each.requires_grad], d_o)
            return [o.detach(), *[each.detach() for each in lse], *gradients]

        def same(*results):
            for one, *others in zip(*results):
                for other in others:
                    self.assertEqual((one.shape, one.stride(), one.dtype), (other.shape, other.stride(), other.dtype))
                    self.assertTrue(torch.equal(one, other))
            self.assertEqual(len({len(each) for each in results}), 1)

        q, k, v = self.tensors((1, 4, 40, 64), (1, 2, 70, 64), (1, 2, 70, 64), grads=False)
        d_o = torch.randn_like(q)
        turned = [each.transpose(1, 2).contiguous().transpose(1, 2) for each in (q, k, v)]
        flash = [each.transpose(1, 2) for each in turned]
        cases = (((q, k, v), d_o, {"layout": "bhnd"}), (turned, d_o, {"causal": True, "scale": 0.3}), (turned, d_o, {"causal": True}),
                 (flash, d_o.transpose(1, 2), {"layout": "bnhd", "causal": True, "kernel": "plain"}), ((q, k, v), d_o, {"wanted": "q"}),
                 ((q, k, v), d_o, {"return_lse": True, "check": False}), ((q, k, v), d_o, {"wanted": "kv", "causal": True}))
        right = []
        for tensors, of_o, options in cases:
            with self.subTest(**options), unittest.mock.patch("fa._torch._calls_backward", {}), unittest.mock.patch("fa._torch._again", {}):
                with unseen():
                    right.append(found(*tensors, of_o, **options))
                with unseen((fa._attention, "_checked"), (fa._torch, "_views")):
                    again = found(*tensors, of_o, **options)
                with Mode(set()) as mode:
                    same(right[-1], again, found(*tensors, of_o, **options))
                self.assertLessEqual({"fa.attention.default", "fa.attention_backward.default"}, mode.names)
        for _ in range(2):  # what is kept of one is not taken for another
            for (tensors, of_o, options), expected in zip(cases, right):
                with self.subTest("among others", **options):
                    same(expected, found(*tensors, of_o, **options))
        # Gradients of the output that are no ordinary tensors are for the operator, which gets ordinary ones.
        given = [each.detach().requires_grad_() for each in (q, k, v)]
        for _ in range(2):
            o = fa.attention(*given, deterministic=True)
            for kind, ordinary in ((torch._neg_view(d_o), -d_o), (torch._efficientzerotensor(d_o.shape, dtype=d_o.dtype, device=d_o.device),
                                                                  torch.zeros_like(d_o))):
                same(*(torch.autograd.grad(o, given, each, retain_graph=True) for each in (kind, ordinary)))
            batched = torch.autograd.grad(o, given, torch.stack([d_o, -d_o]), is_grads_batched=True, retain_graph=True)
            same(batched, [torch.stack(each) for each in zip(*(torch.autograd.grad(o, given, each, retain_graph=True) for each in (d_o, -d_o)))])

        def second():
            torch.autograd.grad(fa.attention(*given).float().square().sum(), given, create_graph=True)[0].sum().backward()

        def of_lse():
            fa.attention(*given, return_lse=True)[1].sum().backward()

        def written():
            query = given[0] * 1
            o = fa.attention(query, *given[1:])
            query.add_(1)
            o.sum().backward()

        def twice():
            o = fa.attention(*given)
            o.sum().backward()
            o.sum().backward()

        def without_lse():
            with torch.no_grad():
                fa.attention(*rows, kernel=8)
            fa.attention(*rows, kernel=8)

        def with_a_cap():
            with torch.no_grad():
                fa.attention(*given, softcap=1)
            fa.attention(*given, softcap=1)

        rows = self.tensors((1, 1, 128, 64), (1, 1, 128, 64), (1, 1, 128, 64))
        for error, words, call in ((fa.BadInput, "^fa has no second derivatives: ", second), (fa.BadInput, "^log-sum-exp has no gradient", of_lse),
                                   (RuntimeError, "modified by an inplace operation", written), (RuntimeError, "a second time", twice),
                                   (fa.BadInput, "^kernel 8 gives no log-sum-exp", without_lse), (fa.BadInput, "^scores with a ", with_a_cap)):
            for watched in (contextlib.nullcontext(), Mode(set())):
                with self.subTest(words, watched=watched), watched, self.assertRaisesRegex(error, words):
                    call()

    def test_the_same_bits_each_time(self):
        q, k, v = self.tensors((1, 2, 70, 64), (1, 2, 150, 64), (1, 2, 150, 64))
        flash = [each.transpose(1, 2) for each in (q, k, v)]

        def gradients(call, *tensors, expected=True, **named):
            result = torch.autograd.grad(call(*tensors, **named).sum(), (q, k, v))
            if not ON_GPU:
                self.assertEqual([fa.counters().get(each) for each in ("kernel", "deterministic")], ["backward", expected])
            return result

        gradients(fa.attention, q, k, v, expected=None)
        gradients(fa.flash_attn_func, *flash, expected=None)
        found = [gradients(fa.attention, q, k, v, deterministic=True), gradients(fa.flash_attn_func, *flash, deterministic=True)]
        torch.use_deterministic_algorithms(True)
        try:
            found.append(gradients(fa.attention, q, k, v))
        finally:
            torch.use_deterministic_algorithms(False)
        for one, *others in zip(*found):
            for other in others:
                self.assertTrue(torch.equal(one, other))
        self.right(found[0], q, k, v, torch.ones_like(q))

    def test_a_checkpoint_and_autocast(self):
        single = [each.detach().float().requires_grad_() for each in self.tensors((1, 2, 40, 64), (1, 2, 40, 64), (1, 2, 40, 64))]
        with torch.autocast(self.DEVICE, torch.bfloat16):
            o = fa.attention(*single)
            again = torch.utils.checkpoint.checkpoint(fa.attention, *single, use_reentrant=False)
        self.assertEqual(o.dtype, torch.bfloat16)
        found, second = (torch.autograd.grad(each.float().sin().sum(), single) for each in (o, again))
        self.right([each.bfloat16() for each in found], *(each.bfloat16() for each in single), o.detach().float().cos().bfloat16())
        for one, other in zip(found, second):
            torch.testing.assert_close(one, other, rtol=2**-7 * ON_GPU, atol=1e-3 * ON_GPU)

    def test_sentences(self):
        q, k, v = self.tensors((1, 2, 128, 64), (1, 2, 128, 64), (1, 2, 128, 64))
        for kernel in fa.kernels():
            if not kernel.name[0].isdigit():
                continue
            self.sentence(fa.BadInput, f"^kernel {kernel.name} gives no log-sum-exp, which gradients need: leave kernel out, or call fa under "
                          r"torch\.no_grad\(\)$", q, k, v, kernel=kernel.name)
            with self.assertRaisesRegex(fa.Unsupported, f"^{kernel.name} has one output, without log-sum-exp"):  # which is why
                fa.plan(q.detach(), k.detach(), v.detach(), kernel=kernel.name, return_lse=True)
        with torch.no_grad():
            fa.attention(q, k, v, kernel=8)
        self.assertEqual(fa.plan(q, k, v), fa.plan(q.detach(), k.detach(), v.detach(), return_lse=True))
        pool_k, pool_v, lists = in_pages(*arrays((3, 4, 64, 64))[:2], 16)
        pools = [torch.from_numpy(each).to(self.DEVICE).requires_grad_() for each in (arrays((3, 4, 5, 64))[0], pool_k, pool_v)]
        self.sentence(fa.BadInput, r"^k and v in pages have no gradients: call fa under torch\.no_grad\(\), or pass k and v in one piece$",
                      *pools, **{name: torch.from_numpy(each).to(self.DEVICE) for name, each in lists.items()})

        def refused(words, call):
            with self.assertRaisesRegex(fa.BadInput, words) as caught:
                call()
            self.assertNotIn("\n", str(caught.exception))

        o, lse = fa.attention(q, k, v, return_lse=True)
        refused(r"^log-sum-exp has no gradient in fa, only the output has: take lse\.detach\(\)$", lambda: (o.sum() + lse.sum()).backward())
        o, lse = fa.attention(q, k, v, return_lse=True)
        (o * lse.detach()[..., None]).sum().backward()
        gradient, = torch.autograd.grad(fa.attention(q, k, v).float().square().sum(), q, create_graph=True)
        refused("^fa has no second derivatives: leave create_graph out, or compute this attention with torch's own$",
                lambda: gradient.sum().backward())
        refused(r"^fa has no gradients for torch\.func: take them with backward\(\) or torch\.autograd\.grad$",
                lambda: torch.func.grad(lambda q: fa.attention(q, k, v).sum())(q.detach()))
        flash = [each.transpose(1, 2) for each in (q, k, v)]
        for named, words in (({"dropout_p": 0.1}, r"^dropout_p is 0\.1, but fa has no dropout: pass 0\.0$"),
                             ({"alibi_slopes": torch.zeros(2)}, "^scores with a window, a softcap, sinks or alibi_slopes have no gradients in fa"),
                             ({"deterministic": "no"}, "^deterministic is 'no', but fa takes True or False$")):
            refused(words, lambda: fa.flash_attn_func(*flash, **named))  # noqa: B023
        wide = self.tensors((1, 2, 128, 96), (1, 2, 128, 96), (1, 2, 128, 96))
        for call in (lambda: fa.attention(*wide), lambda: torch.ops.fa.attention(*wide, "best", False, None, None, None, None, True)):
            refused("^a head_dim of 96 or 256 has no gradients in fa: call it under", call)
        lists = [torch.from_numpy(each).to(self.DEVICE) for each in lists.values()]
        refused(r"^k and v in pages have no gradients: ", lambda: torch.ops.fa.attention(*pools, "best", False, None, None, None, None, True, *lists))
        refused(r"^fa\.flash_attn_with_kvcache has no gradients: call it under torch\.no_grad\(\), or train with fa\.flash_attn_func$",
                lambda: fa.flash_attn_with_kvcache(*flash))
        refused(r"^fa\.ring_attention has no gradients: call it under torch\.no_grad\(\), or train with fa\.attention$",
                lambda: fa.ring_attention(q, k, v))

    def test_a_model_learns_as_with_torchs_attention(self):
        """To say of each token which one stood before it, among 16: the loss falls from 2.8 towards 0, and in each step it is that of
        torch's attention but for half a unit of bf16: results are rounded to 16 bits in other places, and the steps carry that on."""
        tokens = torch.randint(16, (2, 49), generator=torch.Generator().manual_seed(3)).to(self.DEVICE)

        def losses(attention):
            torch.manual_seed(4)
            embedding, places, qkv, out = (torch.nn.Embedding(16, 128), torch.nn.Embedding(48, 128), torch.nn.Linear(128, 3 * 128),
                                           torch.nn.Linear(128, 16))
            model = torch.nn.ModuleList([embedding, places, qkv, out]).to(self.DEVICE)
            optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
            found = []
            for _ in range(25):
                x = embedding(tokens[:, 1:]) + places.weight
                q, k, v = qkv(x).bfloat16().unflatten(-1, (3, 2, 64)).unbind(2)
                logits = out(attention(q, k, v, causal=True).flatten(-2).float())
                loss = torch.nn.functional.cross_entropy(logits[:, 1:].flatten(0, 1), tokens[:, 1:-1].flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                found.append(loss.item())
            return found

        found, right = losses(fa.flash_attn_func), losses(flash_by_torch)
        self.assertLess(found[-1], 0.01 * found[0])
        for one, other in zip(found, right):
            self.assertLess(abs(one - other), 2**-9, (found, right))


E4M3_ROUNDING = 0.028  # what rounding P to e4m3 leaves of normal inputs, relative


@unittest.skipUnless(torch, "needs torch")
@unittest.skipIf(ON_GPU and torch and torch.cuda.get_device_capability() != (9, 0), "needs a GPU of 9.0")
class E4m3(Sentences):
    """Tensors of float8_e4m3fn with their scales, held to float64 on what they stand for."""

    DEVICE = "cuda" if ON_GPU else "cpu"

    def tensor(self, shape, seed, heads, tiles=False):
        """Numbers (batch, heads, rows, head_dim) as e4m3, their scales for so many heads, and what they stand for."""
        x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * (torch.arange(shape[1]) + 1)[:, None, None]
        parts = -(-shape[2] // 128) if tiles else 1
        rows = torch.nn.functional.pad(x, (0, 0, 0, 128 * parts - shape[2])) if tiles else x
        scales = rows.reshape(shape[0], heads, -1, parts, rows.shape[2] // parts, shape[3]).abs().amax((2, 4, 5)) / 448
        each = scales.repeat_interleave(shape[1] // heads, 1).repeat_interleave(rows.shape[2] // parts, 2)[:, :, :shape[2], None]
        e4m3 = (x / each).to(torch.float8_e4m3fn)
        return e4m3.to(self.DEVICE), (scales if tiles else scales[:, :, 0]).to(self.DEVICE), e4m3.double() * each.double()

    def given(self, shape, kv_shape, q_heads=None, tiles=False):
        """q, k and v, their scales by name, and by what float64 computes with."""
        made = [self.tensor(shape, 1, q_heads or kv_shape[1], tiles), self.tensor(kv_shape, 2, kv_shape[1], tiles),
                self.tensor(kv_shape, 3, kv_shape[1])]
        return ([e4m3 for e4m3, _, _ in made], {f"{name}_descale": scales for name, (_, scales, _) in zip("qkv", made)},
                [stands_for for _, _, stands_for in made])

    def near(self, o, right):
        self.assertEqual((o.dtype, o.device.type), (torch.bfloat16, self.DEVICE))
        self.assertTrue(o.is_contiguous())
        self.assertLess(((o.cpu().double() - right).norm() / right.norm()).item(), E4M3_ROUNDING)

    def test_as_flash_attention_3_takes_them(self):
        for (shape, kv_shape), causal, scale in (((2, 4, 77, 64), (2, 2, 300, 64)), True, None), (((1, 2, 200, 128), (1, 2, 129, 128)), False, 0.05), (((1, 2, 70, 256), (1, 1, 130, 256)), True, None):
            tensors, scales, stand_for = self.given(shape, kv_shape)
            right = by_torch(*stand_for, causal, scale)
            flash = [each.transpose(1, 2).contiguous() for each in tensors]
            o = fa.flash_attn_func(*flash, softmax_scale=scale, causal=causal, **scales)
            self.near(o, right.transpose(1, 2))
            if not ON_GPU:
                self.assertEqual([fa.counters()[name] for name in ("kernel", "dtype", "fp8")], ["beyond/fp8", "bf16", "head"])
            # Rows anywhere, scales for each head of q, with strides: the same bits.
            per_head = scales["q_descale"].repeat_interleave(shape[1] // kv_shape[1], 1).t().contiguous().t()
            again = fa.attention(*tensors, causal=causal, scale=scale, kernel="fp8", **{**scales, "q_descale": per_head})
            self.assertTrue(torch.equal(again.transpose(1, 2), o))
            turned = [each.transpose(1, 2) for each in flash]
            self.assertTrue(torch.equal(fa.attention(*turned, causal=causal, scale=scale, **scales), again))

    def test_a_scale_for_each_tile_and_none(self):
        tensors, scales, stand_for = self.given((1, 4, 300, 64), (1, 2, 260, 64), 4, tiles=True)
        self.assertEqual([tuple(each.shape) for each in scales.values()], [(1, 4, 3), (1, 2, 3), (1, 2)])
        self.near(fa.attention(*tensors, causal=True, **scales), by_torch(*stand_for, True))
        q, k, v = (each[:, :2, :70] for each in tensors)
        one = torch.ones((), device=self.DEVICE)
        ones = {name: one.expand(1, 2) for name in scales}
        self.assertTrue(torch.equal(fa.attention(q, k, v, scale=1e-4), fa.attention(q, k, v, scale=1e-4, **ones)))

    def test_packed_tensors_and_a_cache(self):
        (q, k, v), scales, stand_for = self.given((2, 2, 140, 64), (2, 2, 140, 64))
        right = by_torch(*stand_for).transpose(1, 2)
        flash = [each.transpose(1, 2) for each in (q, k, v)]
        self.near(fa.flash_attn_qkvpacked_func(torch.stack(flash, 2), **scales), right)
        self.near(fa.flash_attn_kvpacked_func(flash[0], torch.stack(flash[1:], 2), **scales), right)
        caches = [torch.zeros((2, 150, 2, 64), device=self.DEVICE).to(q.dtype) for _ in "kv"]
        for cache, tensor in zip(caches, flash[1:]):
            cache[:, :130].view(torch.uint8).copy_(tensor[:, :130].view(torch.uint8))
        self.near(fa.flash_attn_with_kvcache(flash[0], *caches, *(each[:, 130:] for each in flash[1:]), cache_seqlens=130, **scales), right)
        with self.assertRaisesRegex(fa.BadInput, "^k_cache is of float8_e4m3fn, for which fa takes neither block_table nor cache_batch_idx, and"):
            fa.flash_attn_with_kvcache(flash[0], *caches, cache_seqlens=torch.tensor([3, 4], dtype=torch.int32, device=self.DEVICE), **scales)

    def test_compiled(self):
        tensors, scales, _ = self.given((1, 2, 70, 64), (1, 1, 133, 64))
        o = fa.attention(*tensors, causal=True, **scales)
        compiled = torch.compile(lambda *tensors: fa.attention(*tensors[:3], causal=True, **dict(zip(scales, tensors[3:]))), fullgraph=True,
                                 backend="aot_eager")
        self.assertTrue(torch.equal(compiled(*tensors, *scales.values()), o))
        done = ["test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]  # test_schema compares e4m3, which torch cannot
        self.assertEqual(torch.library.opcheck(torch.ops.fa.attention_fp8.default, (*tensors, *scales.values(), "best", True), test_utils=done),
                         dict.fromkeys(done, "SUCCESS"))
        with torch.autocast(self.DEVICE, torch.bfloat16):
            self.assertTrue(torch.equal(fa.attention(*tensors, causal=True, **scales), o))
        self.assertEqual(fa.plan(*tensors, **scales).kernel, "beyond/fp8")

    def test_sentences(self):
        (q, k, v), scales, _ = self.given((1, 4, 130, 64), (1, 2, 130, 64))
        more = {"layout": "bhnd"}
        for words, error, tensors, named in (
                (r"^q_descale has the shape \(1, 3\), but fa takes \(1, 2\) or \(1, 4\) or \(1, 2, 2\) or \(1, 4, 2\) here$", fa.BadInput,
                 (q, k, v), {"q_descale": torch.ones(1, 3, device=self.DEVICE)}),
                (r"^v_descale has the shape \(1, 2, 2\), but fa takes \(1, 2\) here$", fa.BadInput, (q, k, v),
                 {"v_descale": torch.ones(1, 2, 2, device=self.DEVICE)}),
                (rf"^k_descale is of float64 on {self.DEVICE}.*, but fa takes float32 on {self.DEVICE}", fa.BadInput, (q, k, v),
                 {"k_descale": scales["k_descale"].double()}),
                ("^k_descale is of type float, but fa takes a tensor of float32, or None for 1$", fa.BadInput, (q, k, v), {"k_descale": 1.0}),
                ("^q is of float8_e4m3fn, for which fa has no window, softcap, sinks or alibi_slopes: pass float16 or bfloat16$", fa.BadInput,
                 (q, k, v), {"window": (64, 0)}),
                ("^q_descale, k_descale and v_descale go with tensors of float8_e4m3fn, but q is of bfloat16$", fa.BadInput,
                 (q.bfloat16(), k.bfloat16(), v.bfloat16()), scales),
                ("^k has the dtype bfloat16, but q has float8_e4m3fn$", fa.BadInput, (q, k.bfloat16(), v), {}),
                ("^q is of float8_e5m2, but fa takes float16, bfloat16 and float8_e4m3fn$", fa.BadInput,
                 [each.float().to(torch.float8_e5m2) for each in (q, k, v)], {}),
                ("^q is of float8_e4m3fn, for which fa gives no log-sum-exp: pass float16 or bfloat16$", fa.BadInput, (q, k, v), {"return_lse": True}),
                (r"^08_swizzle takes Q, K and V of 16 bits, not e4m3; beyond/fp8 takes it$", fa.Unsupported, (q, k, v), {"kernel": 8}),
                (r"^beyond/fp8_rows takes Q, K and V of 16 bits, not e4m3; beyond/fp8 takes it$", fa.Unsupported, (q, k, v), {"kernel": "fp8_rows"}),
                (r"^q_strides\.row must be a multiple of 16 for e4m3, not 72$", fa.BadInput,
                 (torch.zeros(1, 4, 130, 72, device=self.DEVICE).to(q.dtype)[..., :64], k, v), {}),
                (r"^float8_e4m3fn has no gradients: call fa under torch\.no_grad\(\), or pass tensors of bfloat16$", fa.BadInput, (q, k, v),
                 {"v_descale": torch.ones(1, 2, device=self.DEVICE, requires_grad=True)})):
            self.sentence(error, words, *tensors, **{**named, **more})
        begins = torch.tensor([0, 130], dtype=torch.int32, device=self.DEVICE)
        flash = [each[0].transpose(0, 1) for each in (q, k, v)]
        with self.assertRaisesRegex(fa.BadInput, r"^q is of float8_e4m3fn, which fa does not take in packed sequences \(cu_seqlens_q\): "):
            fa.flash_attn_varlen_func(*flash, begins, begins, 130, 130, **scales)
        table, used = torch.zeros(1, 1, dtype=torch.int32, device=self.DEVICE), torch.full((1,), 16, dtype=torch.int32, device=self.DEVICE)
        self.sentence(fa.BadInput, r"^q is of float8_e4m3fn, which fa does not take in pages \(block_table\): pass float16 or bfloat16$",
                      q, k[:, :, :16], v[:, :, :16], block_table=table, seqused_k=used, **scales)
        self.sentence(fa.BadInput, "^q_descale, k_descale and v_descale go with torch tensors of float8_e4m3fn: pass torch.from_dlpack of each$",
                      *arrays(), q_descale=numpy.ones((1, 2), "float32"))


if __name__ == "__main__":
    unittest.main(argv=[each for each in sys.argv if each not in LIBRARIES], verbosity=2)
