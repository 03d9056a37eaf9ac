"""What scripts/fa single writes, compiled.

Usage: test_single.py nvcc KERNEL          by the command in the file's head, without a GPU; no warning, no spilled register;
                          [--library]      or as a library that Python loads
       test_single.py torch                the extension of PyTorch in docs/use.md, on a GPU: right on each, and what it refuses
       test_single.py run PROGRAM KERNEL   made for the emulator: right for two shapes, and by inline PTX as many instructions,
                                           wavefronts and sectors as the kernel has by the functions of common/ptx
       test_single.py beyond PROGRAM KERNEL  made for the emulator, a kernel of beyond/: right for the lengths that it takes
       test_single.py library FILE KERNEL  a library made for the emulator: right for both types and head sizes; what it refuses;
                                           the lines of a race in it
       test_single.py refuse PROGRAM WRONG bad arguments, and the exit code of a program whose kernel is wrong
"""

import collections
import ctypes
import math
import operator
import os
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

from tool_test import COMPILING, ROOT, check_asynchronous, expect, fail, find_nvcc, run, skip

from fa_tools import records
from fa_tools.for_readers import sass
from fa_tools.sources import registered
from fa_tools.tools import code_blocks


def compile_by_nvcc(kernel, *library):
    nvcc, version = find_nvcc()
    text = run(sys.executable, "-B", ROOT / "scripts/fa", "single", kernel, *library)
    end = "" if library else r" && \./\3"
    command = re.search(rf"^//   nvcc (.*) (\w+\.cu) -o (\S+){end}$", text, re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / command[2]).write_text(text)
        log = run(nvcc, *command[1].split(), "-Xcompiler=-Wall", "-Werror=all-warnings", "-Xptxas=-v", command[2], "-o", command[3],
                  cwd=folder, timeout=COMPILING)
        if library:
            name = re.search(r'^extern "C".* (\w+)\($', text, re.MULTILINE)[1]
            if (code := ctypes.CDLL(f"{folder}/{command[3]}")[name](*[None] * 24)) != 1:  # without a GPU, too
                fail(f"null pointers end with {code} instead of cudaErrorInvalidValue")
    check_asynchronous(log, kernel)
    functions = sass.parse_resources(log)
    expect(functions, f"ptxas reports no kernel function:\n{log}")
    for function, said in functions.items():
        expect(said["spill_store_bytes"] + said["spill_load_bytes"] == 0, f"{function} spills: {said}")
    print(f"{kernel}: {len(text.splitlines())} lines, {len(functions)} kernel functions (nvcc {version})")


def ends(program, arguments, code, said):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != code or not re.search(said, done.stdout + done.stderr):
        fail(f"{Path(program).name} {' '.join(arguments)} ended with {done.returncode} instead of {code}:\n{done.stdout}{done.stderr}")
    return done


def column(output, name):
    """The sums of this column of the tables, by kind of instruction."""
    sums = collections.Counter()
    for head, lines in re.findall(r"^(kind .*)\n((?:\w.*\d.*\n)+)", output, re.MULTILINE):
        end = head.index(name) + len(name)
        for line in lines.splitlines():
            if len(line) >= end and line[end - 1].isdigit():
                sums[line[:17].strip()] += int(line[17:end].split()[-1].replace(",", ""))
    return sums


def compare_counts(output, kernel):
    """With those of the kernel's own program, which are recorded."""
    requests = column(output, "requests")
    found = {"shared_wavefronts": column(output, "wavefronts").total(), "global_sectors": column(output, "sectors").total(),
             "ldmatrix": requests["ldmatrix"], "stmatrix": requests["stmatrix"],
             "matrix_products": requests["mma.m16n8k16"] + requests["mma.m16n8k8"] + requests["wgmma"] + 2 * requests["wmma.m16n16k16"]}
    record = next(each for each in records.load(f"{records.RESULTS}/emulator/counts.jsonl#d128_n256")["records"] if each["kernel"] == kernel)
    if wrong := {name: (count, record["counters"][name]) for name, count in found.items() if count != record["counters"][name]}:
        fail(f"as one file, and as a kernel of the book: {wrong}")


def wide(bits, dtype):
    """The numbers of 16-bit patterns."""
    if dtype == "fp16":
        return struct.unpack(f"{len(bits)}e", struct.pack(f"{len(bits)}H", *bits))
    return struct.unpack(f"{len(bits)}f", b"".join(struct.pack("2H", 0, each) for each in bits))


class Tensor:
    """16-bit numbers from -1 to 1, or NaN, at a multiple of 16 bytes."""

    def __init__(self, rows, head_dim, dtype, random=None):
        count = rows * head_dim
        self.memory = ctypes.create_string_buffer(2 * count + 16)
        self.address = (ctypes.addressof(self.memory) + 15) // 16 * 16
        self.bits = (ctypes.c_uint16 * count).from_address(self.address)
        self.head_dim, self.dtype = head_dim, dtype
        for i in range(count):
            value = random.uniform(-1, 1) if random else float("nan")
            self.bits[i] = (struct.unpack("H", struct.pack("e", value))[0] if dtype == "fp16" else
                            struct.unpack("2H", struct.pack("f", value))[1])

    def row(self, i):
        return wide(self.bits[i * self.head_dim:(i + 1) * self.head_dim], self.dtype)


def use_library(path, kernel):
    """By Python's ctypes, as docs/use.md does it on a GPU. Beyond the ladder causal, with two heads per head of keys: split_keys
    with keys in pages, plain on two packed sequences. plain and 16 with rows before heads."""
    library = ctypes.CDLL(path)
    function = library["attention16" if kernel == "16" else f"attention_{kernel}"]
    random, keep = Random(1), []
    heads, kv_heads, q_rows, kv_rows = (2, 2, 128, 128) if kernel == "16" else (4, 2, 3, 70)
    # First row and length, of queries and of keys.
    sequences = [((0, 1), (0, 30)), ((1, 2), (30, 40))] if kernel == "plain" else [((0, q_rows), (0, kv_rows))]
    strided = kernel in ("16", "plain")
    table = [4, 2, 0, 1, 3] if kernel == "split_keys" else []  # the page of every 16 keys

    def integers(*numbers):
        keep.append((ctypes.c_int * len(numbers))(*numbers))
        return ctypes.c_void_p(ctypes.addressof(keep[-1]))

    def key_row(head, key):
        if strided:
            return key * kv_heads + head
        return (table[key // 16] * kv_heads + head) * 16 + key % 16 if table else head * kv_rows + key

    def strides(head_dim, step=None):
        of_q, of_k = (0, q_rows * head_dim, head_dim), (0, head_dim, kv_heads * head_dim)
        return (ctypes.c_longlong * 12)(*of_q, *of_k, *of_k, *of_q[:2], step or head_dim)

    def call(tensors, head_dim, dtype, **others):
        """With `others` in place of right arguments."""
        q_len, kv_len = (max(length for _, length in of_each) for of_each in zip(*sequences))
        beyond, packed = kernel != "16", kernel == "plain"
        given = {name: ctypes.c_void_p(tensor.address) for name, tensor in zip("qkvo", tensors)}
        given |= {"lse": None} if beyond else {}
        given |= {"batch": len(sequences), "heads": heads} | ({"kv_heads": kv_heads} if beyond else {})
        given |= {"seq_len": q_len} | ({"kv_len": kv_len} if beyond else {})
        given |= {"head_dim": head_dim, "dtype": dtype, "scale": ctypes.c_float(0.125)} | ({"causal": 1} if beyond else {})
        if packed:
            given |= {"cu_seqlens_q": integers(0, 1, 3), "cu_seqlens_kv": integers(0, 30, 70), "q_rows": 3, "kv_rows": 70}
        if beyond:
            given |= {"block_table": integers(*table) if table else None, "kv_lens": integers(kv_len) if table else None}
            given |= {"page_size": 16 if table else 0}
        given |= {"strides": strides(head_dim) if strided else None}
        expect(set(others) <= set(given), f"{kernel} has no {others}")
        return function(*(given | others).values(), None)

    for dtype, name, most in ((0, "fp16", 1e-3), (1, "bf16", 8e-3)):
        for head_dim in (64, 128):
            q, o = (Tensor(heads * q_rows, head_dim, name, each) for each in (random, None))
            k, v = (Tensor(kv_heads * max(kv_rows, 16 * len(table)), head_dim, name, random) for _ in range(2))
            lse = (ctypes.c_float * (heads * q_rows))()
            # Once without the causal mask.
            with_lse = {} if kernel == "16" else {"lse": ctypes.c_void_p(ctypes.addressof(lse)), "causal": dtype}
            if code := call((q, k, v, o), head_dim, dtype, **with_lse):
                fail(f"{name}, head_dim {head_dim}: error {code}")
            for row in range(0, heads * q_rows, 17 if kernel == "16" else 1):
                head, query = divmod(row, q_rows)
                (first, queries), (key, keys) = [each for each in sequences if each[0][0] <= query][-1]
                keys -= first + queries - 1 - query if with_lse and dtype else 0
                rows = [key_row(head * kv_heads // heads, i) for i in range(key, key + keys)]
                p = [math.exp(0.125 * sum(map(operator.mul, q.row(row), k.row(i)))) for i in rows]
                right = [sum(map(operator.mul, p, column)) / sum(p) for column in zip(*map(v.row, rows))]
                error = math.dist(o.row(row), right) / math.hypot(*right)
                if not error < most:  # NaN is not
                    fail(f"{name}, head_dim {head_dim}, row {row}: the relative error is {error:.2g}")
                if kernel != "16" and abs(lse[row] - math.log(sum(p))) > 1e-3:
                    fail(f"{name}, head_dim {head_dim}, row {row}: lse is {lse[row]} instead of {math.log(sum(p))}")
    library.leave_error()  # which the program has handled, without asking for it
    if (code := call((q, k, v, o), 128, 1)) != 0:
        fail(f"an error of the program's own has ended a call with {code}")
    before = bytes(o.memory)
    some, odd = integers(0, 0, 0), ctypes.c_void_p(o.address + 2)
    wrong = [{"q": None}, {"k": None}, {"o": odd}, {"v": ctypes.c_void_p(k.address + 8)}, {"head_dim": 96}, {"dtype": 2},
             {"scale": ctypes.c_float(0)}, {"scale": ctypes.c_float(float("nan"))}, {"batch": 0}, {"batch": 32768, "heads": 2},
             {"seq_len": 0}, {"seq_len": -128}, {"seq_len": 100 if kernel == "16" else 1 << 23}, {"strides": strides(128, 4)},
             {"strides": strides(128, -8)}]
    if kernel != "16":
        wrong += [{"kv_heads": 0}, {"kv_heads": 3}, {"kv_len": 0}, {"causal": 2}, {"lse": odd},
                  {"block_table": some, "kv_lens": None, "page_size": 16}, {"block_table": None, "kv_lens": some, "page_size": 16}]
    if kernel == "plain":
        wrong += [{"cu_seqlens_q": None}, {"cu_seqlens_kv": None}, {"cu_seqlens_q": odd}, {"q_rows": 0}, {"q_rows": -1}, {"kv_rows": 0},
                  {"block_table": some, "kv_lens": some, "page_size": 16}]
    if kernel == "split_keys":
        wrong += [{"page_size": 0}, {"page_size": 8}, {"page_size": 24}, {"block_table": odd}, {"kv_lens": odd}]
    for change in wrong:
        if (code := call((q, k, v, o), **({"head_dim": 128, "dtype": 1} | change))) != 1 or bytes(o.memory) != before:
            fail(f"{change} ended with {code} instead of cudaErrorInvalidValue")
    # A library is linked at no fixed place, and a report names its lines as a program's.
    report = run(sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1]).race()", path, check=False)
    if not re.search(r"\n  load at (tests/single/library_\w+\.cu:)(\d+) by thread 0 .*\n"
                     r"  store at \1\d+ by thread 32 .*, called at line (\d+)\n.*Missing: a __syncthreads\(\) between line \3 and line \2\.\n",
                     report):
        fail(f"a race in the library is told by this:\n{report}")


def use_extension():
    try:
        import torch
        from torch.utils import cpp_extension  # noqa: F401 - without a compiler of CUDA it may be missing
    except ImportError:
        skip("this Python has no torch")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        skip("torch sees no GPU of compute capability 9.0")
    page, found = ROOT / "docs/use.md", {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["TORCH_EXTENSIONS_DIR"] = folder
        Path("attention16.cu").write_text(run(sys.executable, "-B", ROOT / "scripts/fa", "single", "16", "--library"))
        Path("binding.cpp").write_text(code_blocks(page, "cpp")[0])
        exec(next(block for block in code_blocks(page, "python") if block.startswith("from torch.utils.cpp_extension ")), found)
    attention = found["attention"]
    for number in range(torch.cuda.device_count()):  # the current GPU is the first one
        for dtype in (torch.float16, torch.bfloat16):
            q, k, v = torch.randn(3, 2, 3, 128, 128, dtype=dtype, device=f"cuda:{number}")
            k = k.transpose(1, 2).contiguous().transpose(1, 2)  # rows before heads
            right = torch.nn.functional.scaled_dot_product_attention(*(each.double() for each in (q, k, v)))
            if (error := (torch.linalg.norm(attention(q, k, v) - right) / torch.linalg.norm(right)).item()) > 8e-3:
                fail(f"{dtype} on GPU {number}: the relative error is {error:.2g}")
    wrong = [((q, k, v.float()), "fp16 or bf16"), ((q.float(), k.float(), v.float()), "fp16 or bf16"), ((q, k.half(), v), "fp16 or bf16"),
             ((q, k[:, :2].contiguous(), v), "one shape"), ((q[0], k[0], v[0]), "one shape"), ((q, k.mT, v), "neighbours"),
             ((q[..., :96].contiguous(),) * 3, "invalid argument"), ((q, k, v.cpu()), "one GPU"), ((q.cpu(), k, v), "one GPU")]
    if torch.cuda.device_count() > 1:
        wrong.append(((q, k.to("cuda:0"), v), "one GPU"))
    for tensors, words in wrong:
        try:
            attention(*tensors)
        except RuntimeError as error:
            expect(words in str(error), f"refused without the words {words!r}: {error}")
        else:
            fail(f"taken, although it should not be {words!r}: {[(each.shape, each.stride(), each.dtype, each.device) for each in tensors]}")


what, *arguments = sys.argv[1:]
if what == "nvcc":
    compile_by_nvcc(*arguments)
elif what == "torch":
    use_extension()
elif what == "library":
    use_library(*arguments)
elif what == "beyond":
    program, kernel = arguments
    shapes, wrong = [["384", "1", "2"]], [["129"], ["128"] * 4]
    if "any_length" in registered(ROOT / f"kernels/beyond/{kernel}.cu").takes:
        shapes = [["1", "4", "2", "129", "2"], ["130", "2", "1", "7", "1"]]  # few keys: queries that see none
        wrong = [["1", "3", "1", "8", "2"], ["1"] * 6]
    for shape in [[], *shapes]:
        ends(program, shape, 0, r"relative error \S+ \(at most \S+\): passed\n")
    for bad in [["0"], *wrong]:
        ends(program, bad, 2, r"\Aerror: [^\n]*\n\Z")
elif what == "run":
    for shape in ([], ["384", "1", "2"]):
        done = ends(arguments[0], shape, 0, r"relative error \S+ \(at most \S+\): passed\n")
        if not re.search(r"^\w+_kernel<__nv_bfloat16, 128.*>, by kind of instruction\nkind ", done.stdout, re.MULTILINE):
            fail(f"the counts of the kernel are missing:\n{done.stdout}")
        print(done.stdout)
    compare_counts(ends(arguments[0], ["256", "2", "1"], 0, "passed").stdout, arguments[1])
else:
    program, wrong = arguments
    for bad in (["100"], ["0"], ["-128"], ["x"], [""], ["128", "0"], ["128", "65536"], ["128", "2", "32768"], ["128"] * 4):
        if ends(program, bad, 2, r"\Aerror: [^\n]*\n\Z").stdout:
            fail("bad arguments, and something on standard output")
    ends(wrong, [], 1, r"relative error \S+ \(at most \S+\): WRONG\n")
