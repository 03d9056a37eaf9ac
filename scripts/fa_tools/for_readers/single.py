"""Writes one kernel as one CUDA file that needs nothing of this repository: the kernel as it is, above it those instructions
and layouts of common that it uses, below it a program that makes inputs, checks the result and measures the time, or with
--library one function for programs of your own."""

import re
import sys
import textwrap
from pathlib import Path

from fa_tools.for_readers import sass
from fa_tools.sources import LEADS, calls, included, needs_of, parse, reachable, registered, unmarked, without_comments
from fa_tools.tools import ROOT, Parser, Refused, fail

EXAMPLE = """example:
  scripts/fa single 16 > attention16.cu
  nvcc -O3 -arch=sm_90a attention16.cu -o attention16
  ./attention16 8192 16 2      # seq_len, heads, batch; exit code 1 if the result is wrong

  scripts/fa single 16 --library > attention16.cu
  nvcc -O3 -arch=sm_90a -shared -Xcompiler -fPIC attention16.cu -o libattention16.so

The file's head says which architecture its kernel needs; a library's function, the last of the file, what it takes."""

AROUND = Path(__file__).with_suffix(".cu")  # what stands around every kernel
# In these headers' place, single.cu has what a single file needs.
LEFT_OUT = {"common/ptx/hook.h", "common/ptx/wgmma_96.h", "common/ptx/wgmma_instructions.h"} | {
    f"common/launch/{name}.h" for name in ("device", "known_kernels", "launch", "problem", "registry", "tensor_map")}
# A header's head begins with a sentence that says what it is. These paragraphs are taken, too.
MORE = {
    "common/layout/swizzle.h": ("A row of a tile", "           place"),
    "common/layout/wgmma.h": ("  K-major",),
    "common/ptx/mbarrier.h": ("It counts", "  mbarrier_init", "Who waits"),
    "common/ptx/wgmma.h": ("All 128 threads", "  wgmma_fence"),
}
# Of these nothing, because the declarations say what they are.
WITHOUT_HEAD = {f"common/{name}.h" for name in ("launch/quad", "launch/slabs", "ptx/convert", "ptx/shared_address",
                                                    "ptx/tensor_map")}
ELEMENTS = {"bf16": ("__nv_bfloat16", "bf16"), "fp16": ("__half", "f16")}  # in C++ and in PTX

# ---- declarations that are written anew, because the general ones of the headers are longer ------------------------------

DESCRIPTOR = """// The 64 bits that describe an operand in shared memory. In units of 16 bytes: where it starts
// (bits 0-13), LBO (16-29) and SBO (32-45), two strides. Bits 62-63 are 1: rows of 128 bytes,
// swizzled.
constexpr uint64_t descriptor(uint32_t start, uint32_t leading, uint32_t stride) {
  return (start & 0x3ffff) >> 4 | uint64_t(leading >> 4) << 16 | uint64_t(stride >> 4) << 32 |
         uint64_t(1) << 62;
}"""
# Without recording, which needs a place in the source, one function takes any number of arrays.
FENCE = """// Orders this thread's accesses to registers before the wgmma that follow. Name the arrays that
// they use.
template <typename... Arrays>
__device__ __forceinline__ void wgmma_fence(Arrays&... arrays) {
  (keep_registers(arrays), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}"""
WAIT = """// Waits until at most the kGroups latest groups of the warp are under way. Name the arrays that are
// now done.
template <int kGroups, typename... Arrays>
__device__ __forceinline__ void wgmma_wait(Arrays&... arrays) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
  (keep_registers(arrays), ...);
}"""
# Of a library, whose functions are for both element types, the general one stays.
PACK = """// Rounds two values to nearest, ties to even. The first is the lower half of the 32 bits.
template <typename T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  const auto pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}"""
KEEP = """// Keeps the compiler from moving uses of these registers across this point: it does not know that
// an instruction between commit and wait writes or reads them.
__device__ inline void keep_registers(float& r) { asm volatile("" : "+f"(r)::"memory"); }
__device__ inline void keep_registers(uint32_t& r) { asm volatile("" : "+r"(r)::"memory"); }
template <typename T, int kCount>
__device__ __forceinline__ void keep_registers(T (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i++) keep_registers(registers[i]);
}"""
TRY_WAIT = "// Whether the phase of this parity has ended. Before a no the GPU may let the thread sleep.\n"
INSTEAD = {
    ("ptx", "keep_registers"): lambda text: KEEP,
    ("ptx", "wgmma_fence"): lambda text: FENCE,
    ("ptx", "wgmma_wait"): lambda text: WAIT,
    ("ptx", "pack"): lambda text: PACK,
    ("layout", "descriptor"): lambda text: DESCRIPTOR,
    ("layout", "k_major_descriptor"): lambda text: text.replace(", SwizzleMode::k128Bytes", ""),
    ("layout", "mn_major_descriptor"): lambda text: text.replace(", SwizzleMode::k128Bytes", ""),
    ("layout", "advance"): lambda text: text.replace("(whole_16(bytes) >> 4)", "bytes / 16"),
    ("ptx", "mbarrier_try_wait"): lambda text: TRY_WAIT + without_comments(text).lstrip(),
    ("ptx", "TensorMap"): lambda text: "using TensorMap = CUtensorMap;  // what TMA needs to know of a tensor",
}
# wgmma for all N and element types; wgmma_functions() writes what stands in its place.
OF_WGMMA = {("ptx", name) for name in ("WgmmaElement", "wgmma")}

# nvcc 13's -arch=sm_90a also compiles for GPUs after Hopper.
SM90A = """// For instructions of sm_90a alone. Where nvcc 13 compiles for other GPUs, too, they trap.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define FA_SM90A(...) asm volatile(__VA_ARGS__)
#else
#define FA_SM90A(...) __trap()
#endif

"""
# Inline PTX must name each register by itself, in its text and as an operand.
NAMES = """// Inline PTX names each accumulator, here 32 at a time, and takes each as an operand.
"""
OPERANDS = """#define FA_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define FA_16(i) FA_4(i), FA_4(i + 4), FA_4(i + 8), FA_4(i + 12)
#define FA_32(i) FA_16(i), FA_16(i + 16)
"""


def wgmma_columns(kernel, head_dims):
    """[(N, is A in registers?)] of the kernel's wgmma: of QK^T, whose N is the keys per tile, and of PV, whose A is P."""
    keys = re.search(r"int kBlockN = (?:kWide \? \w+ : )?(\w+);", kernel)[1]
    keys = {keys} if keys.isdigit() else set(re.findall(r"\brun_with<(\d+)>", kernel))
    if not keys:
        raise Refused("how many keys a tile of this kernel has is not found")
    return sorted({(int(n), False) for n in keys} | {(n, True) for n in head_dims})


def register_names(first):
    """A macro with the names of 32 operands."""
    lines = textwrap.wrap(", ".join(f"%{i}" for i in range(first, first + 32)), 90)
    text = "".join(f'\n  "{line}{" " * (line is not lines[-1])}"' for line in lines).replace("\n", " \\\n")
    return f"#define FA_NAMES_{first}{text}\n"


def wgmma_functions(kernel, dtype, head_dims):
    """ptx::wgmma for this kernel's N. The length of the array tells the functions apart."""
    columns = wgmma_columns(kernel, head_dims)
    thirty_twos = range(0, max(n for n, _ in columns) // 2, 32)
    functions = [NAMES, *map(register_names, thirty_twos), OPERANDS]
    for n, in_registers in columns:
        count = n // 2  # accumulators: operands 0 to count - 1. Then A, B, `accumulate` and kMajorB.
        a = [f"%{count + i}" for i in range(4 if in_registers else 1)]
        b, accumulate, major, element = (f"%{count + len(a) + i}" for i in range(4))
        name = "" if dtype else ', "C"(WgmmaElement<T>::kName)'
        element = ELEMENTS[dtype][1] if dtype else element
        names = ' ", " '.join(f"FA_NAMES_{i}" for i in range(0, count, 32))
        others = f"{{{', '.join(a)}}}, {b}, p, 1, 1, {major}" if in_registers else f"{a[0]}, {b}, p, 1, 1, 0, {major}"
        operands = ", ".join(f"FA_32({i})" for i in range(0, count, 32))
        last = "\n             " if name and not in_registers else ""
        a_inputs = '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])' if in_registers else '"l"(a)'
        gap = "\n             " if in_registers else " "
        a_type = f"const uint32_t (&a)[4], uint64_t b,\n{'':38}" if in_registers else "uint64_t a, uint64_t b, "
        functions.append(f"""
// D = A B, plus D if `accumulate`. D: 64 x {n}, A from {"registers" if in_registers else "shared memory"}.
template <typename T, int kN, layout::Major kMajorB>
__device__ __forceinline__ void wgmma(float (&d)[{count}], {a_type}bool accumulate) {{
  FA_SM90A("{{ .reg .pred p; setp.ne.b32 p, {accumulate}, 0;\\n"
           "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{element}.{element} {{" {names}
           "}}, {others}; }}"
           : {operands} : {a_inputs}, "l"(b),{gap}"r"(+accumulate), "n"(int(kMajorB)){name.replace(" ", last or " ", 1)});
}}
""")
    return "".join(functions)


# ---- the parts of the file -----------------------------------------------------------------------------------------------


def banner(title, mark="-"):
    return f"// {mark * 4} {title} ".ljust(100, mark)


def known(code, name, kernel, dtype, rank=None):
    """The function `name` with what is known of its template arguments: the type, if there is one, the rank of tensors (as it is
    called, or `rank`), the bytes of copies."""
    kernel = without_comments(kernel)
    code = re.sub(r"^  static_assert\(kRank.*\n", "", code, flags=re.MULTILINE)
    facts = {"std::is_same_v<T, __half>": dtype == "fp16"} if dtype else {}
    if "kRank" in code:  # a call lists so many coordinates
        ranks = {each.count(",") + 1 for given in calls(name, kernel) for each in given if each.startswith("{")}
        if rank is None and len(ranks) > 1:  # a function for each
            return "\n".join(known(code, name, kernel, dtype, each) for each in sorted(ranks))
        rank = rank or min(ranks)
        facts |= {f"kRank == {i}": i == rank for i in range(1, 5)}
        code = code.replace("template <int kRank>\n", "").replace("kRank]", f"{rank}]")
    if "kBytes" in code:
        size, = set(re.findall(rf"\b{name}<(\d+)>", kernel))
        facts |= {"kBytes == 16": size == "16"}
        code = re.sub(r"static_assert\(kBytes.*;", f"static_assert(kBytes == {size});", code)

    def branch(match):
        taken = match[2] if facts[match[1]] else match[3] or ""
        return re.sub(r"^  ", "", taken, flags=re.MULTILINE)

    body = r"\{\n((?:    .*\n)+)  \}"
    for fact in facts:
        code = re.sub(rf"^  if constexpr \(({re.escape(fact)})\) {body}(?: else {body})?\n", branch, code, flags=re.MULTILINE)
    return code


def compact(code):
    """Inline PTX with as much per line as fits; statements of one text on one line."""

    def filled(match):
        begin, (texts, rest) = match[1], re.fullmatch(r'((?:"(?:[^"\\]|\\.)*"\s*)*)(.*)', match[2], re.DOTALL).groups()
        margin = "\n" + " " * len(begin)
        text = " ".join(re.sub(r"\\n", " ", "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', texts))).split())
        lines = textwrap.wrap(text, 98 - len(begin), drop_whitespace=False, break_long_words=False)
        lines = [begin + margin.join(f'"{line}"' for line in lines)]
        # Operands and clobbers; a colon stays with what follows it.
        for word in re.sub(r"\(\s+", "(", re.sub(r": +(?=\S)", ":\x00", " ".join(rest.split()))).split():
            word = word.replace("\x00", " ")
            if len(lines[-1].split("\n")[-1]) + 1 + len(word) < 98:
                lines[-1] += " " + word
            else:
                lines.append(margin[1:] + word)
        return "\n".join(lines) + ");"

    return re.sub(r"^( +asm(?: volatile)?\()\s*((?:[^()]|\((?:[^()]|\([^()]*\))*\)|\"(?:[^\"\\]|\\.)*\")*)\);", filled, code,
                  flags=re.MULTILINE)


def head_of(header, comment, kernel):
    """The paragraphs of a header's head that a reader of this file needs."""
    if header in WITHOUT_HEAD:
        return ""
    paragraphs = comment.split("\n//\n")
    more = [next(each for each in paragraphs if each.startswith(f"// {begin}")) for begin in MORE.get(header, ())]
    if header == "common/layout/swizzle.h" and "layout::swizzle" not in kernel:
        more = []
    first = re.match(r"(?:.|\n)*?[\w)]\.(?=\s|\Z)", paragraphs[0])[0]
    if header == "common/layout/swizzle.h" and more:  # which say what it is
        return "\n//\n".join(more) + "\n"
    return "\n//\n".join([first, *more]) + "\n"


def sections(path, kernel, dtype, head_dims):
    """What the kernel uses of the headers, a section per header. Without dtype, for both."""
    instead = INSTEAD if dtype else {key: text for key, text in INSTEAD.items() if key != ("ptx", "pack")}
    of_wgmma = OF_WGMMA if dtype else OF_WGMMA - {("ptx", "WgmmaElement")}
    headers = [header for header in included(path, set()) if header not in LEFT_OUT]
    # The order in which they include each other, but a namespace at a time: layout:: needs only addresses of ptx::, and fa:: more.
    headers.sort(key=lambda header: (not header.endswith("shared_address.h"), header.startswith("common/ptx") + 2 * (header == "common/launch/scores.h")))
    heads, blocks = {}, []
    other = next(names[0] for key, names in ELEMENTS.items() if key != dtype) if dtype else "none"
    for header in headers:
        heads[header], of_header = parse(header, instead)
        blocks += [block for block in of_header if not re.search(rf"\b{other}2?\b", block.declared)]
    kept = reachable(blocks, kernel, instead)
    text, namespace = "", None
    for header in headers:
        codes = []
        for block in blocks:
            if block.header != header:
                continue
            if block not in kept or block.key in of_wgmma:
                continue
            code = compact(known(block.text, block.key[1], kernel, dtype))
            # The kernel's own calls pass what a wrapper asserts of its template arguments.
            code = re.sub(r"^ +static_assert\([^;]*;\n", "", code, flags=re.MULTILINE)
            code = re.sub(r"^// ---- .*\n", "", code, flags=re.MULTILINE)  # a section is too short for banners inside
            code = re.sub(r'\basm volatile\((?=\s*"(?:wgmma|setmaxnreg)\.)', "FA_SM90A(", code)
            if block.key[0] == "layout":  # nvcc lets kernels call only such constexpr functions as say so
                code = re.sub(r"^constexpr (?=[\w ]+\()", "__device__ constexpr ", code, flags=re.MULTILINE)
                code = code.replace("static_cast<uint32_t>(", "uint32_t(")
            first = not codes and header in WITHOUT_HEAD  # whose comment, if any, is the section's
            codes.append(("\n" if code.startswith("//") and not first else "") + code + "\n")
        if header == "common/ptx/wgmma.h" and codes:
            codes.append("\n" + wgmma_functions(kernel, dtype, head_dims))
        if codes:
            if namespace != (own := next(block.key[0] for block in kept if block.header == header)):
                text += (f"\n}}  // namespace {namespace}\n\n" if namespace else "") + f"namespace {own} {{\n"
                namespace = own
            head = head_of(header, heads[header], kernel)
            if len(codes) > 1:  # one declaration is no section
                head = banner(header) + "\n" + head
            text += f"\n{head}{''.join(codes).lstrip() if not head else ''.join(codes)}"
    return text + (f"\n}}  // namespace {namespace}\n" if namespace else "")


def around(kernel, values, library):
    """The parts of single.cu, without what belongs to other kernels: what nvcc alone sees, the launch, and the program or the
    library's function."""

    def chosen(match):
        uses = match[2] == "as_library" and library or re.search(rf"\b{match[2]}\b", kernel)
        return mark.sub(chosen, match[3]) if bool(uses) != bool(match[1]) else ""

    mark = re.compile(r" *// \[(!?)(\w+)\]\n((?:.|\n)*?) *// \[/\1\2\]\n")
    text = mark.sub(chosen, AROUND.read_text(encoding="utf-8"))
    for name, value in values.items():
        text = text.replace(name, value)
    _, for_nvcc, launching, *below = re.split(r"// the launch\n|// the kernel\n|// the library\n|// nvcc alone\n", text)
    return for_nvcc, launching, below[library]


def headers_of(text, names):
    """#include lines for those headers of which the text uses something; what every file needs has no expression."""
    return "".join(f"#include <{header}>\n" for header, uses in names.items() if re.search(uses, text))


def single(name, dtype="bf16", head_dim=128, library=False):
    """The file's text. A library is for both types and head sizes."""
    path = f"kernels/{name}.cu"
    head, source = re.fullmatch(r"((?://.*\n)+)(?:#include .*\n|\n)+((?:.|\n)*)", (ROOT / path).read_text(encoding="utf-8")).groups()
    kernel = unmarked(LEADS.sub("", re.sub(r"const Registration<Launcher> [^;]*;\n\n", "", source)))
    if "fp8" in registered(ROOT / path).takes:
        raise Refused(f"{name} computes in FP8, and a single file's program makes no such problem: build it as it is, with its Run line")
    least, exactly = needs_of(name, "bf16")  # of headers it has what is for that
    numbered = name[0].isdigit()
    short = name[:2] if numbered else name.removeprefix("beyond/")
    file, function = (f"attention{short}",) * 2 if numbered else (short, f"attention_{short}")
    values = {"attention00": function, "k00": f"k{short}" if numbered else short, "00_name": name, "kHeadDim = 128": f"kHeadDim = {head_dim}"}
    if not library:
        values["kMapType"] = "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16"
    if short == "split_keys":  # what it is for: one query on many keys
        values["seq_len = 4096"] = "seq_len = 1"
    if dtype == "fp16":
        values |= {"T = __nv_bfloat16": "T = __half", "TYPE_BFLOAT16": "TYPE_FLOAT16", " 4e-3;": " 5e-4;", "2.3e-3": "3e-4"}
    for_nvcc, launching, below = around(kernel, values, library)
    parts = sections(path, kernel, None if library else dtype, [64, 128] if library else [head_dim])
    if dtype == "fp16":
        parts = parts.replace("__floats2bfloat162_rn", "__floats2half2_rn")
    gpus = "an H100 or H200" if exactly else "a GPU of compute capability 8.0 or later" if least >= 80 else "an NVIDIA GPU"
    year = re.search(r"\(c\) (\d+)", (ROOT / "LICENSE").read_text(encoding="utf-8"))[1]
    options = " --library" if library else "".join(
        f" --{option} {value}" for option, value, usual in (("dtype", dtype, "bf16"), ("head-dim", head_dim, 128)) if value != usual)
    newer = "-std=c++20 " if re.search(r"std::countr_zero|[{ ]\.\w+ = ", kernel) else ""
    nvcc = f"nvcc -O3 {newer}-arch=sm_{max(least, 80)}{'a' if exactly else ''}"
    comment = re.sub(r"// Run  (?:.|\n)*", "", head) + (f"""//
// Build with CUDA 12.8 or later, for {gpus}:
//   {nvcc} -shared -Xcompiler -fPIC {file}.cu -o lib{file}.so
//
""" if library else f"""//
// Build and run, with CUDA 12.8 or later, on {gpus}:
//   {nvcc} {file}.cu -o {file} && ./{file}
//
""")
    origin = (f'Written by `scripts/fa single {short}{options}` of the repository "Sixteen steps from naive attention to the '
              'speed of light", whose headers give the sections their names. Licence: MIT (SPDX-License-Identifier: MIT), '
              f"copyright (c) {year} the maintainers of that repository.")
    comment += textwrap.fill(origin, 100, initial_indent="// ", subsequent_indent="// ", break_on_hyphens=False) + "\n"
    if for_nvcc:
        parts += f"\nnamespace fa {{\n{for_nvcc}\n}}  // namespace fa\n"
    whole = parts + launching + kernel + below
    cuda = headers_of(whole, {"cuda.h": "CUtensorMap", "cuda_bf16.h": "__nv_bfloat", "cuda_fp16.h": "__half",
                              "cuda_runtime.h": "", "mma.h": "nvcuda::wmma"})
    standard = headers_of(whole, {"algorithm": r"std::(min|max|clamp)\b", "bit": "std::countr_zero", "cfloat": "FLT_MAX", "cmath": "",
                                  "cstdint": "", "cstdio": "std::f?printf", "cstdlib": "std::(exit|atoi)", "cstring": r"\bmemcpy\b",
                                  "initializer_list": "std::initializer_list", "random": "std::mt19937",
                                  "type_traits": r"\bis_\w+_v|extent_v|integral_constant", "vector": "std::vector"})
    return f"""{comment}
{standard}
{cuda}
{SM90A if "FA_SM90A" in parts else ""}{parts}
namespace fa {{

{banner("launching")}
{launching}
}}  // namespace fa

{banner("the kernel", "=")}

{kernel}
{banner("the function" if library else "the program", "=")}
{below}"""


def main():
    parser = Parser("single", __doc__, EXAMPLE)
    parser.add_argument("kernel", help="its number, name or the beginning of its name")
    parser.add_argument("--dtype", choices=ELEMENTS, help="default bf16")
    parser.add_argument("--head-dim", type=int, choices=[64, 128], help="default 128")
    parser.add_argument("--library", action="store_true", help="a function instead of the program, for every dtype and head_dim")
    args = parser.parse_args()
    if args.library and (args.dtype or args.head_dim):
        fail("a library takes every dtype and head_dim: leave --dtype and --head-dim out")
    sys.stdout.write(single(sass.find_kernel(args.kernel), args.dtype or "bf16", args.head_dim or 128, args.library))
    return 0
