"""CUDA as people write it, made C++ for the emulator: `__shared__`, `<<<>>>`, `__device__` and `__constant__` variables.

  cuda_source.py INPUT.cu OUTPUT.cpp

The text is read as tokens; what C++ does not know is replaced, everything else stays, on its line. So that a message of
the compiler or the emulator names the reader's file, the output begins with a #line. Headers that the file includes by
quotes and that are beside it are translated, too, into OUTPUT's folder. What the emulator does not have is refused by a
sentence with file and line."""

import operator
import os
import re
import sys
from pathlib import Path

BEGIN = '#define FA_CUDA_PROGRAM\n#include <assert.h>\n#include <cuda_runtime.h>\n#include "common/emulator/programs/runtime.h"\n' \
        '#include "common/emulator/programs/driver.h"\n' \
        '#include "common/emulator/programs/inline_ptx/inline_ptx.h"\n'  # of every output
BYTES = {"encoding": "utf-8", "errors": "surrogateescape"}  # bytes of other encodings, as in comments, stay as they are
TOKEN = re.compile(r"""
    (?P<space>(?:\s|\\\n)+)
  | (?P<comment>//(?:[^\\\n]|\\\n|\\.)*|/\*.*?\*/)
  | (?P<string>(?:u8|[uUL])?R"(?P<d>[^ ()\\\t\n]*)\(.*?\)(?P=d)"|(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"|(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
  | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
  | (?P<name>[A-Za-z_$]\w*)
  | (?P<mark><<<|(?<!operator)(?<!operator\s)<<[ \t]+<(?!<)|::|->|.)
""", re.VERBOSE | re.DOTALL)
OPENING, CLOSING = {"(": ")", "[": "]", "{": "}"}, {")": "(", "]": "[", "}": "{"}

# Names that a function of the emulator takes the place of, where they are called: results that do not depend on the C
# library, exponentials that are counted, what kernels print in the order of the CTAs, memory that is known to be the host's.
CALLS = {name: f"::emu::{name}" for name in """
    exp exp2 expf exp2f exp10f __expf log logf log2 log2f log10 log10f log1p log1pf expm1 expm1f sin sinf cos cosf tan tanf
    asin asinf acos acosf atan atanf atan2f sinh sinhf cosh coshf tanh tanhf erf erff erfc erfcf cbrt cbrtf pow powf __logf
    __log2f __log10f __sinf __cosf __tanf __powf""".split()}
CALLS["printf"] = "(::emu::print)"  # in brackets, since a program may have a macro print()
CALLS.update({name: f"::emu::host_{name}" for name in ("malloc", "calloc", "realloc", "free")})
TIME = ("clock", "clock64")  # of the device; the host has a clock() of its own
# Functions of C++20 that are outside of namespace std, too. nvcc compiles C++17, where a program may have its own.
LATER = ("lerp",)

# Functions that launch a kernel; whether all its CTAs run together.
LAUNCHERS = {"cudaLaunchKernel": "false", "cudaLaunchCooperativeKernel": "true", "cudaLaunchKernelEx": ""}
CAST = {"(", ")", "void", "const", "*"}
COORDINATES = ("threadIdx", "blockIdx", "blockDim", "gridDim")
OPERATORS = ("return", "else", "case", "do", "throw", "sizeof", "and", "or", "not")  # words before an expression
TYPE_WORDS = ("struct", "class", "union", "enum")
AROUND_TYPES = ("const", "static", "constexpr", "mutable", "public", "private", "protected", ":")
TYPES = {"dim3", "unsigned", "long", "short", "size_t", "int32_t", "uint32_t", "int64_t", "uint64_t", "auto",  # of such variables
         *(f"{kind}{size}" for kind in ("int", "uint") for size in ("", 2, 3, 4))}

# What is not there: a name, or the beginning of several, and the sentence's end.
TEXTURE = "the emulator has no textures and surfaces ({}): read the array itself, or through __ldg()"
PTX = "the emulator takes the text of asm() for PTX where it stands in a kernel or device function, and cannot see that here"
ASM = ("asm", "__asm__", "__asm")
OPERAND = re.compile(r'"[=+&]*[hrlfdnC]"')  # a constraint of asm()
MISSING = [
    (r"tex[123]D\w*|texCubemap\w*|surf[123]D\w*|texture|surface|cuda\w*(?:Texture|Surface)\w*|cudaArray\w*|cudaMallocArray"
     r"|cudaMemcpy\w*Array\w*", TEXTURE),
    (r"cuda(?:Graphics|GL)\w*", "the emulator draws nothing, so {} is not there"),
    (r"cudaGraph(?!ics)\w*|cudaStream\w*Capture\w*", "the emulator has no graphs ({}): launch the kernels one by one"),
    (r"cudaIpc\w*", "the emulator's memory is that of one process, so {} is not there"),
    (r"cuModule\w*|cuLaunchKernel|nvrtc\w*", "the emulator has the runtime's functions, not {}: launch by <<<grid, block>>>"),
    (r"__nv_fp4\w*|__nv_fp6\w*", "the emulator has no {}: its small types are __nv_fp8_e4m3 and __nv_fp8_e5m2"),
]
MISSING = [(re.compile(rf"(?:{names})\Z"), sentence) for names, sentence in MISSING]
MISSING_HEADERS = [
    (r"cuda/(std/atomic|semaphore|latch|annotated_ptr|memcpy_async)$", "{} is not in the emulator: atomicAdd() and its "
     "kin, __syncthreads() or cuda::barrier take its place"),
    (r"(?:.*/)?cupti\w*\.h$", "{} belongs to CUDA's profiler, which reads a GPU's counters: leave it out, as scripts/fa emulate counts itself"),
]
# Headers without which a file may do, as many include them for nothing: what a name of theirs is told that the compiler then
# misses, by the header and by the name.
LIBRARY = "{} belongs to a library that runs on GPUs alone: the emulator runs kernels whose source is there"
ABSENT = [
    (r"cub/", r"cub", "CUB ({}) is not in the emulator: write the reduction or scan by hand, as examples/ does"),
    (r"thrust/", r"thrust", "Thrust ({}) is not in the emulator: use cudaMalloc() and a kernel of your own"),
    (r"(?:curand(?!_kernel)|cublas|cufft|cusparse|cusolver|cudnn|nccl)\w*\.h|nvrtc\.h",
     r"(?:curand|cublas|cufft|cusparse|cusolver|cudnn|nccl|CURAND|CUBLAS|CUFFT|CUSPARSE|CUSOLVER|CUDNN|NCCL)\w*", LIBRARY),
    (r"cutlass/|cute/", r"cutlass|cute", LIBRARY),
    (r"cuda_fp[46]\.h", r"__nv_fp[46]\w*", "the emulator has no {}: its small types are __nv_fp8_e4m3 and __nv_fp8_e5m2"),
    (r"helper_\w+\.h", r"checkCudaErrors|getLastCudaError|findCudaDevice|sdk[A-Z]\w+", "{} belongs to NVIDIA's samples: name the folder of "
     "its header by -I"),
]
# Headers of CUDA's all of which the emulator has in one.
FORWARDS = re.compile(r"cuda|cuda_runtime_api|cuda_profiler_api|device_launch_parameters|driver_types|vector_types|vector_functions|"
                      r"builtin_types|host_defines|sm_\d\d_\w+|device_atomic_functions|cudaProfiler|cudaTypedefs")
# Headers of NVIDIA's samples that the emulator has in one.
OF_SAMPLES = re.compile(r"helper_(?:cuda|functions|timer|string|image)|exception")

# Macros of nvcc's, which are not defined here; but in a kernel __CUDA_ARCH__ is.
OF_NVCC = r"\b(?:__CUDACC__|__NVCC__|__CUDACC_\w+|__CUDA_ARCH_(?!FEAT_SM90_ALL\b)[A-Z]\w+)"
ARCH, DEVICE_ARCH = r"\b__CUDA_ARCH_(?:_|FEAT_SM90_ALL)\b", "900"


class Refused(Exception):
    """A sentence with file and line."""


class Token:
    __slots__ = ("kind", "text", "line", "apart", "partner", "mate", "device")

    def __init__(self, kind, text, line, apart):
        self.kind, self.text, self.line, self.apart = kind, text, line, apart  # apart: from the token before it
        self.partner, self.mate = None, None  # of a bracket the other one; the token's index in Source.code
        self.device = False  # in a kernel or device function


def tokens_of(text, line=1):
    """Tokens of a text; a line of the preprocessor is one."""
    found, at, fresh = [], 0, True
    while at < len(text):
        if fresh and text[at] == "#":
            match = re.compile(r"(?:[^\\\n/]|\\\n|\\.|/(?![/*])|/\*.*?\*/)*", re.DOTALL).match(text, at)
            kind = "directive"
        else:
            match = TOKEN.match(text, at)
            kind = match.lastgroup if match.lastgroup != "d" else "string"
        fresh = kind in ("space", "comment") and (fresh or "\n" in match[0])
        apart = bool(found) and found[-1].kind in ("space", "comment", "directive")
        launch = kind == "mark" and match[0].startswith("<<")  # nvcc takes << < for it, too
        found.append(Token(kind, "<<<" if launch else match[0], line, apart))
        line += match[0].count("\n")
        at = match.end()
    return found


def replaced(text, names, value, is_defined):
    """The text with these macros' value."""
    defined = rf"\bdefined\s*(?:\(\s*(?:{names})\s*\)|\s(?:{names}))"
    return re.sub(names, lambda _: value, re.sub(defined, str(int(is_defined)), text))


def holds(condition, arch="0", known=()):
    """Whether what follows #if or #elif holds without nvcc and with the macros `known`, (name, value) of each; None: that depends
    on other macros, which the compiler knows, or it is no expression."""
    text = re.sub(r"//.*|/\*.*?\*/|\\\n", " ", condition, flags=re.DOTALL)
    for name, value in known:
        text = replaced(text, rf"\b{name}\b", value, True)
    text = replaced(replaced(text, ARCH, arch, arch != "0"), OF_NVCC, "0", False)
    words = re.findall(r"\w+|&&|\|\||<<|>>|[<>=!]=|\S", text)[::-1]  # the next one is the last
    try:
        value = operation(words)
    except (IndexError, ValueError, ArithmeticError):
        return None
    return None if words or value is None else bool(value)


# Operators of two values, from the loosest to the tightest.
LEVELS = ({"||": lambda a, b: a or b}, {"&&": lambda a, b: a and b}, {"|": operator.or_}, {"^": operator.xor}, {"&": operator.and_},
          {"==": operator.eq, "!=": operator.ne}, {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge},
          {"<<": operator.lshift, ">>": operator.rshift}, {"+": operator.add, "-": operator.sub},
          {"*": operator.mul, "/": operator.floordiv, "%": operator.mod})
SIGNS = {"!": operator.not_, "-": operator.neg, "+": operator.pos, "~": operator.invert}


def operation(words, level=0):
    """The value of what `words` ends with; None if names decide that nobody knows."""
    if level == len(LEVELS):
        return operand(words)
    left = operation(words, level + 1)
    while words and words[-1] in LEVELS[level]:
        sign = words.pop()
        right = operation(words, level + 1)
        if sign in ("&&", "||") and any(each is not None and bool(each) is (sign == "||") for each in (left, right)):
            left = sign == "||"  # one side is enough
        else:
            left = None if None in (left, right) else LEVELS[level][sign](left, right)
    return left


def operand(words):
    word = words.pop()
    if word in SIGNS:
        value = operand(words)
        return None if value is None else SIGNS[word](value)
    if word == "(":
        value = operation(words)
        if words.pop() != ")":
            raise ValueError
        return value
    if word[0].isdigit():
        return int(word.lower().rstrip("ul"), 0)
    if not word.isidentifier():
        raise ValueError
    if word == "defined" and words[-1] != "(":
        words.pop()
    if words[-1:] == ["("]:  # of defined, or of a macro with arguments
        depth = 0
        while depth := depth + {"(": 1, ")": -1}.get(words.pop(), 0):
            pass
    return None


def directive_of(token):
    """(if, what follows it) of a line of the preprocessor; #ifdef and #ifndef are read as #if."""
    word, rest = re.match(r"#\s*(\w*)(.*)", token.text, re.DOTALL).groups() if token.kind == "directive" else ("", "")
    if word in ("ifdef", "ifndef"):
        name = re.match(r"\s*(\w*)", rest)[1]
        word, rest = "if", f" {'!' * (word == 'ifndef')}defined({name})"
    return word, rest


def opened(scope, device, before, words=("__global__", "__device__")):
    """(kind, whether it is a kernel's or device function's) of the scope that a brace opens behind what is `before`. `words`
    are those that make a function one of the device."""
    kind, marked = "block", any(word in words for word in before)
    if scope in ("namespace", "class"):
        if "namespace" in before or before[:1] == ["extern"] and len(before) == 2:
            kind = "namespace"
        elif "(" in before:
            kind, device = "function", marked
        elif any(word in before for word in ("class", "struct", "union", "enum")):
            kind = "class"
    return kind, device or marked and scope in ("function", "block")  # a lambda of the device


def initialises(before):
    """Whether a brace behind `before` begins a member's value, as in S(int x) : a{x} {}."""
    depth, listed = 0, False
    for i, text in enumerate(before):
        depth += (text in ("(", "[")) - (text in (")", "]"))
        listed = listed or text == ":" and depth == 0 and before[i - 1] in (")", "noexcept")
    return listed and (before[-1] == ">" or before[-1].isidentifier())


def seen_by(tokens, i, arch, known):
    """The tokens that #if, which is tokens[i], leaves with this __CUDA_ARCH__ and the macros `known`; none if others decide."""
    depth, taken, begin = 0, False, None
    for j in range(i, len(tokens)):
        word, rest = directive_of(tokens[j])
        if word in ("elif", "else", "endif") and depth == 1 or j == i:
            if begin is not None:
                return tokens[begin:j]
            taken = word != "endif" and (word == "else" or holds(rest, arch, known))
            if taken is None:
                return []
            begin = j + 1 if taken else None
        depth += (word == "if") - (word == "endif")
        if not depth:
            break
    return []


def reading(tokens, i, known):
    """As what the branches of tokens[i], an #if outside of functions, are read, where nvcc would compile the file twice: by
    __CUDA_ARCH__ of the device, or as the host's if the device sees nothing there and the host what is not the device's."""
    def has(part, kinds=("space", "comment", "directive")):
        return any(token.kind not in kinds or directive_of(token)[0] in ("define", "include", "undef", "pragma") for token in part)

    host = seen_by(tokens, i, "0", known)
    texts = {token.text for token in host}
    theirs = "__global__" in texts or "__device__" in texts and "__host__" not in texts
    return "0" if has(host) and not theirs and not has(seen_by(tokens, i, DEVICE_ARCH, known)) else DEVICE_ARCH


def without_nvcc(tokens, words, known, included=lambda token: None):
    """The tokens, but of those that nvcc alone compiles (#ifdef __CUDACC__) the line ends. In place of inline PTX such a
    file has a branch for other compilers. nvcc compiles a file twice, and __CUDA_ARCH__ is defined for the device alone; here
    one pass does both: __CUDA_ARCH__ is 900 in kernels and device functions, undefined in the host's, and elsewhere as reading()
    says. `words`, see opened(), gets the macros that stand for them, and `known` those of -D, which are in front of the first
    line, with their values, until the program defines them otherwise. `included` is called for each #include, as a header may
    have such macros."""
    branches = []  # of every open #if: [was an earlier branch taken?, is this one left out?, __CUDA_ARCH__, the scopes there]
    scopes, before, values = [("namespace", False)], [], []  # values: what was before those of members
    for i, token in enumerate(tokens):
        word, rest = directive_of(token)
        arch = DEVICE_ARCH if scopes[-1][1] else "0" if any(kind == "function" for kind, _ in scopes) else ""
        outside = any(branch[1] for branch in branches[:-1])
        if word == "if":
            outside = any(branch[1] for branch in branches)
            arch = arch or reading(tokens, i, known.items())
            result = holds(rest, arch, known.items())
            branches.append([result is True, result is False, arch, (scopes[:], before[:])])
        elif word in ("elif", "else") and branches:
            arch = branches[-1][2]
            result = holds(rest, arch, known.items()) if word == "elif" else True
            branches[-1][:2] = [branches[-1][0] or result is True, branches[-1][0] or result is False]
            if not branches[-1][1]:
                scopes, before = branches[-1][3][0][:], branches[-1][3][1][:]
        elif word == "endif" and branches:
            branches.pop()
        else:
            outside = any(branch[1] for branch in branches)
        if outside:
            token.kind, token.text = "space", "\n" * token.text.count("\n")
        elif arch != "0" and "__CUDA_ARCH__" in token.text and (token.kind == "name" or word in ("if", "elif", "define")):
            old = f"#if{rest}" if word == "if" else token.text
            token.text = replaced(old, ARCH, DEVICE_ARCH, True)
        if word == "include" and not outside:
            included(token)
        if word in ("define", "undef") and not outside and (macro := re.match(r"\s*(\w+)(.*)", rest, re.DOTALL)):
            known.pop(macro[1], None)
            if token.line < 1 and not macro[2].startswith("("):
                known[macro[1]] = macro[2].strip()
        if word == "define" and not outside and words & set(re.findall(r"\w+", rest)[1:]):
            words.add(re.search(r"\w+", rest)[0])
        if token.kind in ("space", "comment", "directive"):
            continue
        if token.text == "{":
            if scopes[-1][0] in ("namespace", "class") and initialises(before):
                values.append((len(scopes), before))
            scopes.append(opened(*scopes[-1], before, words))
        elif token.text == "}" and len(scopes) > 1:
            scopes.pop()
        token.device = scopes[-1][1]
        before.append(token.text)
        if token.text in ("{", "}", ";"):
            before = []
        if token.text == "}" and values and values[-1][0] == len(scopes):
            before = [*values.pop()[1], "{}"]
    return tokens


class Source:
    """One file that is translated."""

    def __init__(self, path, shown, folder, state):
        self.path, self.shown, self.folder, self.state = Path(path), shown, folder, state
        self.parameters = set()  # of the macro whose body this is

    def refuse(self, line, sentence):
        raise Refused(f"{self.shown}:{line}: {sentence}")

    def translate(self, text, defines=""):
        """The file's text as C++, behind the lines `defines` of a source."""
        first = Token("directive", f'#line 1 "{self.shown}"\n', 0, True)
        tokens = [*tokens_of(defines, -defines.count("\n")), first, *tokens_of(text)]
        return self.rewrite(without_nvcc(tokens, self.state.device_words, self.state.known, self.include))

    # ---- the whole, in the order of the tokens
    def rewrite(self, tokens, in_macro=False):
        code = [token for token in tokens if token.kind not in ("space", "comment", "directive")]
        self.tokens, self.code = tokens, code
        for i, token in enumerate(code):
            token.mate = i
        self.pair()
        self.kernels = set()  # names of templates' parameters that may be kernels: template <auto kKernel>
        for i in range(len(code) - 1):
            if code[i].text == "template" and code[i + 1].text == "<":
                given = code[i + 1:self.angle(i + 1)]
                self.kernels.update(name.text for auto, name in zip(given, given[1:]) if auto.text == "auto" and name.kind == "name")
        self.state.pointers.update(name.text for before, star, name, behind, after in zip(code, code[1:], code[2:], code[3:], code[4:])
                                   if before.text + star.text + behind.text + after.text == "(*)(")
        self.own_coordinates()
        self.null_arguments()
        self.clusters()
        self.references()
        self.inline_ptx(in_macro)
        self.names()
        if not in_macro:
            self.calls()
        self.statements(in_macro)
        text = "".join(token.text for token in tokens)
        if not in_macro:
            text = self.directives(tokens)
        return text

    def directives(self, tokens):
        """Macros' bodies, which may launch kernels, and includes of headers that are translated."""
        parts = []
        for token in tokens:
            text = token.text
            if token.kind == "directive":
                if re.match(r"#\s*include\b", text):
                    text = self.include(token)
                elif define := re.match(r"(#\s*define\s+\w+(?:\([^)]*\))?)(.*)\Z", text, re.DOTALL):
                    body = re.sub(r"\\\n", lambda _: "\x00", define[2])
                    parameters = set(re.findall(r"\w+", define[1].partition("(")[2]))
                    name = re.search(r"\w+", define[1].split("define")[1])[0]
                    if used := self.state.refused.keys() & set(re.findall(r"\w+", body)):
                        self.state.refuse_macro(name, self.state.refused[min(used)])
                    elif self.state.dynamic & set(re.findall(r"\w+", body)) or re.search(rf"<<<|__shared__|\b(?:printf|asm|{'|'.join(LATER)})\b|__asm|{OPERAND.pattern}\s*\(", body):
                        lines = body.count("\x00")
                        inner = Source(self.path, self.shown, self.folder, self.state)
                        inner.parameters = parameters
                        try:
                            body = inner.rewrite(tokens_of(body.replace("\x00", " "), token.line), in_macro=True)
                            text = define[1] + body.replace("\n", " ") + "\\\n" * lines
                            self.state.allow_macro(name)
                        except Refused as problem:  # the compiler says so where only it knows which definition holds
                            self.state.refuse_macro(name, problem)
                            sentence = str(problem).partition(f":{token.line}: ")[2]
                            text = f'{define[1]} static_assert(false, "{sentence}")' + "\\\n" * lines
                    else:
                        self.state.allow_macro(name)
            parts.append(text)
        for token in self.code:
            if token.kind == "name" and token.text in self.state.refused:
                raise self.state.refused[token.text]
        return "".join(parts)

    def include(self, token):
        """What becomes of an #include; a header of the program's is translated."""
        text, line = token.text, token.line
        if not (parts := re.match(r'#\s*include\s*(["<])([^">]+)[">]', text)):
            return text
        quote, name = parts.groups()
        for pattern, sentence in MISSING_HEADERS:
            if re.match(pattern, name):
                self.refuse(line, sentence.format(name))
        beside = [self.path.parent] * (quote == '"' and (self.path.parent / name).is_file())
        if not beside and FORWARDS.fullmatch(name.removesuffix(".h")):
            return "#include <cuda_runtime.h>"
        if not beside and re.fullmatch(r"cublas(?:_v2|Lt)?\.h", name):
            return "#include <cublas_v2.h>"
        if not beside and re.fullmatch(r"nvToolsExt\w*\.h|nvtx3/(?:nvtx3|nvToolsExt\w+)\.h\w*", name):
            return "#include <nvtx3/nvToolsExt.h>"
        folders = beside + self.state.folders
        found = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if found:
            return f'#include "{self.state.translated(found)}"'
        if OF_SAMPLES.fullmatch(name.removesuffix(".h")):
            return '#include "common/emulator/programs/nvidia_samples.h"'
        return "" if any(re.match(header, name) for header, *_ in ABSENT) else text

    def pair(self):
        """Brackets know their partners."""
        open_ones = []
        for token in self.code:
            if token.kind != "mark":
                continue
            if token.text in OPENING:
                open_ones.append(token)
            elif token.text in CLOSING and open_ones and open_ones[-1].text == CLOSING[token.text]:
                token.partner = open_ones.pop()
                token.partner.partner = token

    def null_arguments(self):
        """NULL where a macro that launches a kernel is used: its type would be a number's before the kernel is known."""
        for token in self.tokens:
            if define := token.kind == "directive" and re.match(r"#\s*define\s+(\w+)\(", token.text):
                if "<<<" in token.text or self.state.launching & set(re.findall(r"\w+", token.text[define.end():])):
                    self.state.launching.add(define[1])
        for i, token in enumerate(self.code[:-1]):
            if token.text in self.state.launching and self.code[i + 1].text == "(" and self.code[i + 1].partner:
                for begin, end in self.parts(i + 1):
                    if end == begin + 1 and self.code[begin].text == "NULL":
                        self.code[begin].text = "::emu::null"

    def own_coordinates(self):
        """Variables of the program that have a name like blockDim, which is a macro here, get another one."""
        code, start, around = self.code, 0, []
        for i, token in enumerate(code):
            before = code[i - 1] if i else token
            if token.text in COORDINATES and before.text in (".", "->"):
                token.text = f"fa_{token.text}"
            elif token.text in COORDINATES and not token.device:
                begin = next((each for each in code[start:i] if each.text not in AROUND_TYPES), token)
                listed = before.text == "," and begin.text in TYPES and not any(
                    each.text in OPENING and each.partner and each.partner.mate > i for each in code[start:i])
                bound = begin.text == "auto" and around and around[-1].text == "["
                if before.text in TYPES or listed or bound or before.text in "&*" and code[i - 2].text in TYPES:
                    self.rename_coordinate(i, around)
            if token.text in ("{", "}", ";"):
                start = i + 1
            if token.text in OPENING and token.partner:
                around.append(token)
            elif around and token.partner is around[-1]:
                around.pop()

    def rename_coordinate(self, i, around):
        """That which code[i] declares, within the brackets `around`, in all that sees it."""
        code, end, name, spans, in_device = self.code, i, self.code[i].text, [], False
        brace = next((each.mate for each in reversed(around) if each.text == "{"), None)
        head = next((j for j in range(brace or 0, 0, -1) if code[j - 1].text in ("{", "}", ";")), 0)
        words = [each.text for each in code[head:brace]] if brace is not None and around[-1].text == "{" else []
        if opened("class", False, words)[0] == "class":  # a member: in all methods
            spans.append((brace, code[brace].partner.mate))
            for j in range(len(code) - 1):
                if code[j].text == words[1] and code[j + 1].text == "::":
                    end = next((k for k in range(j, len(code)) if code[k].text in ("{", ";")), j)
                    spans.append((j, self.skip(end)))
        else:
            while end < len(code) and code[end].text not in (")", "}"):
                end = self.skip(end) if code[end].text != "]" or not around or code[end].partner is not around[-1] else end + 1
            if end + 1 < len(code) and code[end].text == ")":  # a parameter: to the end of the function, or of the loop
                end += 1
                while end < len(code) and code[end].text not in ("{", ";"):
                    end = self.skip(end)
                in_device = end < len(code) and code[end].text == "{" and code[end].device
                end = self.skip(end) if end < len(code) else end
            spans.append((i, end))
        for first, behind in spans:
            for j in range(first, behind):
                if code[j].text == name and (in_device or not code[j].device) and code[j - 1].text not in (".", "->"):
                    code[j].text = f"fa_{name}"

    def inline_ptx(self, in_macro):
        """asm() of the device becomes a call of the emulator's, on its line. A macro may have parts of one, or hand them on."""
        code = self.code
        self.state.asm_macros.update(name for token in self.tokens if token.kind == "directive" for name in re.findall(
            rf"^#\s*define\s+(\w+)\([^)]*\.\.\.\).*\b(?:{'|'.join(ASM)})\b", token.text, re.DOTALL))
        for i, token in enumerate(code[:-2]):
            if token.kind == "string" and (token.device or in_macro) and code[i + 1].text == "(":
                if re.fullmatch(r'"[=+&]*q"', token.text):
                    self.refuse(token.line, 'the emulator has no operands of 128 bits ("q") in asm(): give it two of 64 bits ("l")')
                if [each.text for each in code[i - 1:i]] == ["]"] and OPERAND.fullmatch(token.text):
                    self.refuse(token.line, "operands of inline PTX have no names: the text calls them %0, %1 and so on")
            if token.kind == "string" and OPERAND.fullmatch(token.text) and code[i + 1].text == "(" and code[i + 1].partner:
                if token.device or in_macro:
                    token.text = f"::emu::asm_{'output' if token.text[1] in '=+' else 'input'}({token.text}, "
                    code[i + 1].partner.text = "))"
        for i, token in enumerate(code[:-2]):
            if token.text not in ASM and token.text not in self.state.asm_macros or not (token.device or in_macro):
                continue
            at = i + 1
            while code[at].text in ("volatile", "__volatile__", "inline", "__inline__"):
                at += 1
            if code[at].text != "(" or not code[at].partner:
                continue
            last = code[at].partner.mate
            if any(each.kind == "string" and behind.text == "(" and not each.text.startswith("::emu")
                   for each, behind in zip(code[at:last], code[at + 1:last])):  # constraints of a CPU
                continue
            colons, j = [], at + 1
            while j < last:
                if code[j].text in (":", "::"):
                    colons.append(j)
                j = self.skip(j)
            for j in colons:  # operands and clobbers become one list
                behind = j + 1 < last and j + 1 not in colons
                before = any(k not in colons for k in range(colons[0], j))
                code[j].text = ", {" if j == colons[0] else ", " if before and behind else ""
            code[last].text = "})" if colons else ")"
            if token.text in ASM:
                self.no_constant(i)
                token.text = "do { static ::emu::InlinePtx fa_ptx; fa_ptx.run(::emu::SourceLocation::current(), "
                for each in code[i + 1:at + 1]:
                    each.text = ""
                code[last].text += "; } while (0)"

    def no_constant(self, at):
        """A function with asm(), which is code[at], is called by the emulator's threads alone: it is no constexpr one here."""
        code = self.code
        while at > 0 and code[at].device:
            at -= 1
        first = at
        while first > 0 and code[first - 1].text not in ("{", "}", ";"):
            first -= 1
        head = code[first:at + 1]
        inline = any(each.text in ("inline", "__inline__", "__forceinline__") for each in head)
        for each in head:
            if each.text == "constexpr":
                each.text = "" if inline else "inline"

    def names(self):
        """Single names: those that are refused, and functions that have another name here."""
        code = self.code
        own = self.state.own_calls
        own.update(code[i].text for i in range(1, len(code) - 1)
                   if (code[i].text in CALLS or code[i].text in LATER) and code[i - 1].kind == "name" and
                   (code[i + 1].text == "(" and code[i - 1].text not in ("return", "else", "do", "case", "and", "or", "not") or
                    code[i + 1].text == "=" and code[i - 1].text == "auto"))
        own.update(set(re.findall(r"^#\s*define\s+(\w+)\(", "\n".join(
            token.text for token in self.tokens if token.kind == "directive"), re.MULTILINE)) & CALLS.keys())
        for i, token in enumerate(code):
            if token.kind != "name":
                continue
            before = code[i - 1].text if i else ""
            after = code[i + 1].text if i + 1 < len(code) else ""
            if token.text in LATER and token.text in own and [each.text for each in code[max(i - 2, 0):i]] != ["std", "::"]:
                token.text = f"fa_{token.text}"
            if before in (".", "->"):
                continue
            for pattern, sentence in MISSING:
                if pattern.match(token.text) and (token.text not in ("texture", "surface") or after in ("(", "<")):
                    self.refuse(token.line, sentence.format(token.text + ("()" if after == "(" else "")))
            if token.text in TIME and token.device and after == "(":
                token.text = f"::emu::device_{token.text}"
            elif token.text == "__noinline__":
                token.text = "__attribute__((noinline))"
            elif token.text in CALLS and after == "(" and token.text not in own:
                if before == "::" and i >= 2 and code[i - 2].kind == "name":
                    if code[i - 2].text != "std":
                        continue
                    spaces = 4 if [each.text for each in code[max(i - 4, 0):i - 2]] == ["cuda", "::"] else 2
                    spaces += i > spaces and code[i - spaces - 1].text == "::"  # ::std::exp
                    for each in code[i - spaces:i]:
                        each.text = ""
                elif before == "::":
                    code[i - 1].text = ""
                token.text = CALLS[token.text]

    def calls(self):
        """A kernel that is called like a function, and a launch of a function: of names that this file makes clear."""
        code, scopes, start, functions, kernels, uses = self.code, ["namespace"], 0, set(), set(), []
        for i, token in enumerate(code):
            text, before = token.text, [each.text for each in code[start:i]]
            if scopes[-1] in ("namespace", "class"):
                if text == "(" and start < i and code[i - 1].kind == "name" and "=" not in before:
                    behind = self.angle(start + 1) if before[0] == "template" else start
                    types = {each.text for each in code[start:behind]}
                    known = not any(re.fullmatch(r"[A-Z]\w*", each.text) and each.text not in types
                                    for each in code[behind:i - 1]) and i - behind > 1
                    if "__global__" in before:
                        kernels.add(code[i - 1].text)
                    elif known or self.state.device_words & set(before):
                        functions.add(code[i - 1].text)
            elif token.kind == "name" and i + 1 < len(code) and (i < 1 or code[i - 1].text not in (".", "->", "::", "auto")):
                after = self.angle(i + 1) if code[i + 1].text == "<" else i + 1
                if after < len(code) and (code[after].text == "(" and code[i - 1].kind != "name" or code[after].text == "<<<"):
                    uses.append((token, code[after].text))
            if text == "{":
                scopes.append(opened(scopes[-1], False, before)[0])
            elif text == "}" and len(scopes) > 1:
                scopes.pop()
            if text in ("{", "}", ";"):
                start = i + 1
        others = {each.text for each, after in zip(code, code[1:]) if after.text in ("=", ",", ")") and each.kind == "name"}
        for token, after in uses:
            if after == "<<<" and token.text in functions - kernels - others:
                self.refuse(token.line, f"{token.text}() is a function and no kernel: write __global__ before it, or call it without <<<>>>")
            if after == "(" and token.text in kernels - functions - others:
                self.refuse(token.line, f"{token.text}() is a kernel: launch it, as {token.text}<<<grid, block>>>(...)")

    # ---- statements, with the scopes they are in
    def statements(self, in_macro):
        code = self.code
        scopes = ["function" if in_macro else "namespace"]
        devices, shared = [in_macro], [{}]  # of each scope: whether it is a kernel's or device function's; __shared__ names
        start, i = 0, 0
        while i < len(code):
            token = code[i]
            text = token.text
            if text == "__device__" and code[i - 1 - (code[i - 1].text == "__host__")].text.endswith("]"):
                token.text = text = "FA_DEVICE_LAMBDA"  # common/emulator/units/warp.h
            if text in ("__shared__", "__device__", "__constant__", "__managed__"):
                end = self.variable(start, i, scopes[-1], shared[-1])
                if end is not None:
                    i = start = end + 1
                    continue
            if text == "<<<":
                if devices[-1] and not in_macro:
                    self.refuse(token.line, "kernels cannot launch kernels in the emulator (dynamic parallelism): "
                                "launch both from the host")
                i = self.launch(i)
                continue
            if text in self.state.dynamic and text not in self.parameters and (token.device or in_macro):
                first = i  # of a qualified name
                while first > 0 and code[first - 1].text == "::":
                    first -= 1 + (first > 1 and code[first - 2].kind == "name")
                if self.is_use(first, i):
                    code[first].text = f"::emu::dynamic({code[first].text}"
                    token.text += ")"
            if text == "[" and shared[-1]:
                self.capture(i, shared[-1])
            if text == "{":
                before = [each.text for each in code[start:i]]
                kind, device = opened(scopes[-1], devices[-1], before)
                scopes.append(kind)
                devices.append(device)
                shared.append(dict(shared[-1]))
                start = i + 1
            elif text == "}" and len(scopes) > 1:
                scopes.pop()
                devices.pop()
                shared.pop()
                start = i + 1
            elif text == ";" or (text == ":" and scopes[-1] not in ("namespace", "class")):
                start = i + 1
            i += 1

    def blank(self, first, last, text):
        """The tokens from code[first] to code[last] become `text`, with as many lines as they had."""
        lo, hi = self.tokens.index(self.code[first]), self.tokens.index(self.code[last])
        if directive := next((token for token in self.tokens[lo:hi] if token.kind == "directive"), None):
            word = re.match(r"#\s*\w*", directive.text)[0]
            self.refuse(directive.line, f"the emulator cannot read {word} within a launch or a declaration: put it before")
        lines = sum(token.text.count("\n") for token in self.tokens[lo:hi + 1])
        for token in self.tokens[lo:hi + 1]:
            token.text = ""
        self.tokens[lo].text = text.replace("\n", " ") + "\n" * lines

    @staticmethod
    def text_of(tokens):
        return "".join(" " * token.apart + token.text for token in tokens if token.text).strip()

    def skip(self, i):
        """Behind code[i], or behind its partner if it opens a bracket."""
        partner = self.code[i].partner
        return partner.mate + 1 if partner and self.code[i].text in OPENING else i + 1

    def variable(self, start, at, scope, shared):
        """A declaration of a variable of a memory of the device. None: it is something else, such as a function."""
        code = self.code
        words = {token.text for token in code[start:at]}
        i, end = at, None
        while i < len(code):
            text = code[i].text
            if text in ("__align__", "alignas", "__attribute__", "decltype", "__launch_bounds__", "__cluster_dims__") and \
                    code[i + 1].text == "(":
                i = self.skip(i + 1)
            elif text == "(" and code[at].text != "__shared__":
                return None
            elif text == "<":
                i = self.angle(i)
            elif text in ("=", "{"):
                while i < len(code) and code[i].text != ";":
                    i = self.skip(i)
                end = i
                break
            elif text in (";", "}"):
                end = i
                break
            else:
                words.add(text)
                i = self.skip(i)
        if end is None or end >= len(code) or code[end].text != ";" or words & {"using", "typedef", "friend", "operator"}:
            return None
        definition, body = self.own_type(code[start:end])
        body = [token for token in body
                if token.text not in ("__shared__", "__device__", "__constant__", "__managed__", "static", "extern", "inline")]
        declarators = self.declarators(body)
        names = [name for name, *_ in declarators]
        line = code[at].line
        if not names or not all(names):
            self.refuse(line, "the emulator cannot read this declaration: write type, name and sizes alone")
        if "__shared__" in words or code[at].text == "__shared__":
            text = self.shared(body, names, scope, "extern" in words, line)
            shared.update(dict.fromkeys(names if scope != "namespace" else ()))
        elif scope != "namespace":
            return None
        else:
            text = self.device(body, declarators, words | {code[at].text}, line)
        self.blank(start, end, definition + text)
        return end

    def own_type(self, body):
        """The definition of the struct, union or enum that a declaration has, as text, and the declaration without it. The type
        has a name then, since each variable is declared apart."""
        first = next((i for i, token in enumerate(body) if token.text in TYPE_WORDS), len(body))
        names, insert, i = [], None, first + 1
        while i < len(body) and body[i].text not in ("{", "=", "[", "<"):
            if body[i].text == ":" and insert is None:
                insert = i
            elif body[i].text == "(" and body[i].partner in body:  # of an attribute, whose name is before it
                names.pop()
                i = body.index(body[i].partner)
            elif insert is None and body[i].text not in (*TYPE_WORDS, "final"):
                names.append(body[i].text)
            i += 1
        if i >= len(body) or body[i].text != "{" or len(names) > 1 or body[i].partner not in body[:-1]:
            return "", body
        insert, last = insert or i, body.index(body[i].partner)
        name = names[0] if names else f"fa_type_{self.state.next_number()}"
        body[last + 1].apart = True
        definition = f"{self.text_of(body[first:insert])} {'' if names else name} {self.text_of(body[insert:last + 1])}; "
        return definition, [*body[:first], Token("name", name, body[first].line, True), *body[last + 1:]]

    def is_use(self, first, last):
        """Whether the name from code[first] to code[last] is certainly used there. In x * name[0] it may be declared."""
        code, around, base = self.code, first - 1, first - 1
        before, after = (code[j].text if 0 <= j < len(code) else "" for j in (first - 1, last + 1))
        while around >= 0 and not (code[around].text in OPENING and code[around].partner):
            around = (code[around].partner.mate if code[around].text in CLOSING and code[around].partner else around) - 1
        bracket = code[around].text if around >= 0 else ""
        if before in (".", "->", "#") or before == ">" and code[first].text == "::" or after == "(":
            return False
        if after in (".", "->"):
            return True
        if before == "," and bracket != "(" or bracket == "[" and after in (",", "]"):
            return False
        while base >= 0 and code[base].text in ("*", "&"):
            base -= 1
        if base >= 0 and code[base].text == ")" and code[base].partner:
            return code[code[base].partner.mate - 1].text not in ("decltype", "alignas", "__align__", "__attribute__")
        return base < 0 or code[base].text != ">" and (code[base].kind != "name" or code[base].text in OPERATORS)

    def angle(self, i):
        """Behind the template arguments that code[i] opens, or behind code[i] if it is a smaller-than."""
        depth, j = 0, i
        while j < len(self.code):
            text = self.code[j].text
            if text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return j + 1
            elif text in (";", "{", "}"):
                break
            j = self.skip(j) if text in OPENING else j + 1
        return i + 1

    def declarators(self, body):
        """(name, has sizes, size is missing, is initialised) of each variable that a declaration has."""
        parts, part, i, depth = [], [], 0, 0
        flat = []
        while i < len(body):
            token = body[i]
            flat.append(token.text)
            if token.text in OPENING and token.partner in body:
                last = body.index(token.partner)
                flat[-1] = self.text_of(body[i:last + 1])
                i = last
            i += 1
        seen_assign = False
        for text in flat + [","]:
            if not seen_assign:
                depth += (text == "<") - (text == ">")
            if text == "," and depth <= 0:
                parts.append(part)
                part, seen_assign, depth = [], False, 0
                continue
            seen_assign = seen_assign or text == "=" or text.startswith("{")
            part.append(text)
        found = []
        for part in parts:
            name, sizes, missing, value = None, False, False, False
            for text in part:
                if text == "=" or text.startswith("{"):
                    value = True
                    break
                if text.startswith("["):
                    sizes, missing = True, missing or not text.strip("[] ")
                elif re.fullmatch(r"[A-Za-z_$]\w*", text) and not sizes:
                    name = text
            found.append((name, sizes, missing, value))
        return found

    def shared(self, body, names, scope, extern, line):
        text = self.text_of(body)
        if extern:
            position = max(i for i, token in enumerate(body) if token.text == names[0])
            kind = re.sub(r"(__align__|alignas) *\([^)]*\)", "", self.text_of(body[:position]))
            sizes = self.text_of(body[position + 1:])
            if scope == "namespace":  # allowed by the C++ Programming Guide, "__shared__"
                self.state.dynamic.add(names[0])
            if not sizes and scope == "namespace":
                return f"static ::emu::DynamicObject<{kind}> {names[0]};"
            if not sizes:  # one struct
                return f"[[maybe_unused]] auto& {names[0]} = *::emu::dynamic_shared<{kind}>();"
            sizes = re.sub(r"^\[ *\]", "", sizes)
            if scope == "namespace":
                return f"static ::emu::DynamicShared<{kind}{sizes}> {names[0]};"
            return f"[[maybe_unused]] auto* const {names[0]} = ::emu::dynamic_shared<{kind}{sizes}>();"
        if scope in ("namespace", "class"):
            self.refuse(line, f"the emulator has __shared__ variables inside of kernels and functions alone: move {names[0]} "
                        "into the kernel")
        # Each variable is apart, so that what is written past the end of one does not reach the next.
        commas = [i for i, token in enumerate(body) if token.text == "," and not self.is_inside(body, i)]
        first = max(i for i, token in enumerate(body) if token.text == names[0])
        kind, parts = self.text_of(body[:first]), []
        for begin, end in zip([first] + [i + 1 for i in commas], commas + [len(body)]):
            parts.append(f"{kind} {self.text_of(body[begin:end])}")
        if len(parts) != len(names) or "*" in text:
            parts, names = [text], [", ".join(names)]
        result = []
        for part, name in zip(parts, names):
            number = self.state.next_number()
            result.append(f'struct fa_shared_{number} {{ {part}; static const char* fa_name() {{ return "{name}"; }} }};')
            result += [f"[[maybe_unused]] auto& {each} = ::emu::shared_variable<fa_shared_{number}>().{each};"
                       for each in name.split(", ")]
        return " ".join(result)

    @staticmethod
    def is_inside(body, i):
        """Whether body[i] is within brackets, or within template arguments."""
        depth = 0
        for token in body[:i]:
            depth += (token.text in OPENING or token.text == "<") - (token.text in CLOSING or token.text == ">")
        return depth > 0

    def device(self, body, declarators, words, line):
        text = self.text_of(body)
        name, sizes, missing, _ = declarators[0]
        if "extern" in words:
            self.refuse(line, f"each file has its own variables of the device in the emulator: define {name} here, or in a header")
        if "constexpr" in words or ("const" in words and "__constant__" not in words and not sizes) or "template" in words:
            return f"static {text};" if "template" not in words else f"{text};"
        if len(declarators) > 1:
            first = next(i for i, token in enumerate(body) if token.text == name)
            while body[first - 1].text == "*":
                first -= 1
            commas = [i for i, token in enumerate(body) if token.text == "," and not self.is_inside(body, i)]
            spans = zip([first] + [i + 1 for i in commas], commas + [len(body)])
            return " ".join(self.device(body[:first] + body[begin:end], [each], words, line)
                            for (begin, end), each in zip(spans, declarators))
        number = self.state.next_number()
        kind = next(word for word in ("__constant__", "__managed__", "__device__") if word in words)
        read_only = "true" if kind == "__constant__" else "false"
        if missing:  # int table[] = {...}: a member cannot leave its size open
            return (f'static {text}; static const ::emu::DeviceVariable fa_watch_{number}("{kind} {name}", '
                    f"(void*)&{name}, sizeof {name}, 0, {read_only});")
        return (f"struct fa_device_{number}_t {{ alignas(256) {text}; unsigned char fa_red_zone[256] = {{}}; }}; "
                f"static fa_device_{number}_t fa_device_{number}; "
                f"[[maybe_unused]] static auto& {name} = fa_device_{number}.{name}; "
                f'static const ::emu::DeviceVariable fa_watch_{number}("{kind} {name}", (void*)&fa_device_{number}.{name}, '
                f"sizeof fa_device_{number}.{name}, 256, {read_only});")

    def launch(self, at):
        """code[at] is <<<. Returns the index behind the launch."""
        code, line = self.code, self.code[at].line
        close = at + 1
        while close + 2 < len(code) and not all(code[close + k].text == ">" for k in range(3)):
            close = self.skip(close)
        behind = close + 3
        if behind >= len(code) or code[behind].text != "(" or not code[behind].partner:
            self.refuse(line, "the emulator expects <<<grid, block, shared bytes, stream>>>(arguments)")
        first, computed = self.callee(at)
        last = code[behind].partner.mate
        parts = self.parts(behind)
        for i in self.state.references.get(self.name_before(at), ()):
            if i < len(parts):
                begin, end = parts[i]
                code[begin].text = f"::emu::by_reference({code[begin].text}"
                code[end - 1].text += ")"
        kernel = self.text_of(code[first:at])
        arguments = self.text_of(code[behind + 1:last])
        shown = re.sub(r"(?<!\w) +| +(?!\w)", "", kernel).replace(",", ", ").replace("\\", "").replace('"', "'")
        shown = (f"#{kernel}" if kernel in self.parameters else f"::emu::kernel_name<{kernel}>()" if kernel in self.kernels else
                 f'"{shown}"')
        # A literal is within the call, where it becomes what the kernel takes: a pointer of NULL, a struct of {1, 2}. What else
        # is between braces is an argument of its own, so that it is evaluated once, and by the host.
        given, called = "[[maybe_unused]] auto&... fa_arguments", "fa_arguments..."
        hoisted = []
        literal = ", ".join(self.within(*part, hoisted) for part in parts)
        if any(self.is_literal(*part) for part in parts) and not any(map(self.is_pack, hoisted[:-1])):
            called = literal
            given = ", ".join(f"[[maybe_unused]] auto&{'...' * self.is_pack(text)} fa_{i}" for i, text in enumerate(hoisted))
            arguments = ", ".join(hoisted)
        capture, callee = (f"&, fa_kernel = {kernel}", "fa_kernel") if computed else ("&", kernel)
        cluster = self.state.clusters.get(self.name_before(at), "")
        call = (f'::emu::Launch({shown}, {self.text_of(code[at + 1:close])})'
                f"{cluster and f'.cluster({{{cluster[1:-1]}}})'}"
                f"([{capture}]({given}) {{ {callee}({called}); }}"
                f"{', ' if arguments else ''}{arguments})")
        # On the line of the kernel's name, so that a message names it.
        self.blank(first, last, call)
        return last + 1

    def clusters(self):
        """Takes __cluster_dims__ from kernels, whose launches then say it, and the kernel's name and type into functions that launch."""
        code = self.code
        for i, token in enumerate(code[:-1]):
            after = code[i + 1]
            if after.text != "(" or not after.partner:
                continue
            if token.text == "__cluster_dims__":
                name = next((code[j - 1].text for j in range(after.partner.mate, len(code)) if code[j].text == "(" and
                             code[j - 1].text != "__launch_bounds__"), "")
                self.state.clusters[name] = self.text_of(code[i + 1:after.partner.mate + 1])
                self.blank(i, after.partner.mate, "")
            elif token.text in LAUNCHERS:
                parts = self.parts(i + 1)
                ex = token.text == "cudaLaunchKernelEx"
                if len(parts) < 2:
                    continue
                (first, behind), last = parts[ex], parts[ex][1] - 1
                while code[first].text == "(" and {each.text for each in code[first:code[first].partner.mate + 1]} <= CAST:
                    first = code[first].partner.mate + 1
                if code[first].text == "reinterpret_cast":
                    first, behind = self.angle(first + 1) + 1, behind - 1
                first += code[first].text == "&"
                kernel = self.text_of(code[first:behind])
                shown = kernel.replace('"', "'")
                if ex:
                    config = self.text_of(code[slice(*parts[0])])
                    self.blank(i, last, f'::emu::LaunchWith("{shown}", {config})({kernel}')
                else:
                    self.blank(i, last, f'::emu::launch_kernel("{shown}", {LAUNCHERS[token.text]}, {kernel}')

    def references(self):
        """Kernels, not templates, that take parameters by reference: where these are in the list."""
        for i, token in enumerate(self.code):
            if token.text == "__global__" and self.code[i - 1].text != ">":
                open_ = next((j for j in range(i, len(self.code)) if self.code[j].text in ("(", ";") and
                              self.code[j - 1].text not in ("__launch_bounds__", "__cluster_dims__")), i)
                if self.code[open_].text == "(" and self.code[open_].partner:
                    found = [k for k, part in enumerate(self.parts(open_)) if "&" in [each.text for each in self.code[slice(*part)]]]
                    self.state.references.setdefault(self.code[open_ - 1].text, found)

    def name_before(self, at):
        """The kernel's name before <<<, which is code[at], without the arguments of a template."""
        depth = 0
        for token in reversed(self.code[:at]):
            depth += (token.text == ">") - (token.text == "<")
            if depth == 0 and token.text != "<":
                return token.text
        return ""

    def callee(self, at):
        """The index where the kernel's name begins that <<< follows, which is code[at]; and whether it is the value of an expression,
        such as table[i], and no name."""
        code, first, computed = self.code, at - 1, self.code[at - 1].text in self.state.pointers
        while first > 0:
            if code[first].text == ">":
                depth = 0
                while first >= 0:
                    if code[first].partner and code[first].text in CLOSING:
                        first = code[first].partner.mate
                    depth += (code[first].text == ">") - (code[first].text == "<")
                    if depth == 0:
                        break
                    first -= 1
                first -= 1
            elif code[first].partner and code[first].text in (")", "]"):
                bracket, first = code[first].text, code[first].partner.mate
                before = code[first - 1]
                if bracket == "]" or before.text == ">" or before.kind == "name" and before.text not in ("return", "else", "do"):
                    first, computed = first - 1, True
                    continue
            while first >= 1 and code[first - 1].text in ("::", "template") or \
                    first >= 2 and code[first - 1].text == "::" and code[first - 2].kind == "name":
                first -= 2 if code[first - 1].text == "::" and first >= 2 and code[first - 2].kind == "name" else 1
            if first < 2 or code[first - 1].text not in (".", "->"):
                break
            first, computed = first - 2, True
        return first, computed

    def parts(self, at):
        """(first, behind) of the parts, with commas between them, that the bracket code[at] holds."""
        code, last = self.code, self.code[at].partner.mate
        found, begin, i = [], at + 1, at + 1
        while i <= last:
            if code[i].text == "," or i == last:
                found.append((begin, i))
                begin = i + 1
            i = max(self.angle(i) if code[i].text == "<" and not code[i].apart else self.skip(i), i + 1)
        return found if found != [(last, last)] else []

    def is_literal(self, begin, end):
        first = self.code[begin]
        return end == begin + 1 and first.text in ("NULL", "0") or first.text == "{" and first.partner is self.code[end - 1]

    @staticmethod
    def is_pack(text):
        return text.endswith("...") or "__VA_ARGS__" in text

    def within(self, begin, end, hoisted):
        """An argument as it is written in the call; what is no literal is added to `hoisted`."""
        code = self.code
        if self.is_literal(begin, end) and code[begin].text == "{":
            parts = [self.within(*part, hoisted) for part in self.parts(begin)]
            return "{" + ", ".join(parts) + "}"
        if begin + 2 < end and code[begin].text == "." and code[begin + 2].text == "=":
            return f".{code[begin + 1].text} = {self.within(begin + 3, end, hoisted)}"
        text = self.text_of(code[begin:end])
        words = [token for token in code[begin:end] if token.text not in "-+"]
        if not text or len(words) == 1 and (words[0].kind in ("number", "string") or text in ("NULL", "nullptr", "true", "false")):
            return text
        hoisted.append(text)
        return f"fa_{len(hoisted) - 1}{'...' * self.is_pack(text)}"

    def capture(self, at, shared):
        """A lambda in a kernel sees __shared__ variables without capturing them; here they are references."""
        code = self.code
        before = code[at - 1] if at else None
        if not code[at].partner or code[at + 1].text == "[" or \
                before and (before.kind in ("number", "string") or before.text in (")", "]") or
                            before.kind == "name" and before.text not in ("return", "case", "else")):
            return
        close = code[at].partner.mate
        body = close + 1
        while body < len(code) and code[body].text not in ("{", ";", ","):
            body = self.skip(body) if code[body].text != "{" else body
        if body >= len(code) or code[body].text != "{" or not code[body].partner:
            return
        captures = [token.text for token in code[at + 1:close]]
        if captures[:1] == ["&"] and (len(captures) == 1 or captures[1] == ","):
            return
        used = {token.text for token in code[body:code[body].partner.mate] if token.kind == "name"} & set(shared)
        added = [name for name in sorted(used) if name not in captures]
        if added:
            code[close].text = (", " if captures else "") + ", ".join("&" + name for name in added) + "]"


class State:
    """What the files of one program share."""

    def __init__(self, output, folders=()):
        self.folder, self.stem, self.numbers, self.headers, self.inputs = output.parent, output.stem, 0, {}, []
        self.folders = [Path(folder) for folder in folders]  # of headers, besides that of the including file
        self.device_words = {"__global__", "__device__"}
        self.known = {}  # macros of -D, and their values
        self.refused = {}  # macros that may not be used, and why
        self.allowed = set()  # macros that may be
        self.launching = set()  # macros that launch kernels
        self.dynamic = set()  # names of extern __shared__ variables of file scope
        self.pointers = set()  # names of pointers to functions
        self.clusters = {}  # of kernels' names, the sizes of their clusters
        self.references = {}  # of kernels' names, which parameters are references
        self.asm_macros = set()  # macros that hand their arguments to asm()
        self.own_calls = set()  # names of CALLS that the program gives to functions and macros of its own

    def next_number(self):
        self.numbers += 1
        return self.numbers

    def refuse_macro(self, name, problem):
        if name not in self.allowed:
            self.refused[name] = problem

    def allow_macro(self, name):
        self.allowed.add(name)
        self.refused.pop(name, None)

    def translated(self, header):
        header = header.resolve()
        key = header, *self.known.items()
        if key not in self.headers:
            target = self.folder / f"{self.stem}.{len(self.headers)}.{header.name}"
            self.headers[key] = target
            target.write_text(translate_file(header, self), **BYTES)
        return self.headers[key]


def translate_file(path, state, defines=""):
    path = Path(os.path.abspath(path))
    state.inputs.append(path)
    try:
        text = path.read_text(**BYTES).removeprefix("\ufeff")
    except OSError as problem:
        raise Refused(f"cannot read {path} ({(problem.strerror or str(problem)).lower()})") from None
    if "\0" in text:
        raise Refused(f"cannot read {path} (it is UTF-16 or no text)")
    return Source(path, path, state.folder, state).translate(text.replace("\r\n", "\n"), defines)


def translate(source, output, others=(), folders=(), defines=()):
    """Writes OUTPUT and the headers beside it, some of which may be in `folders`; and what `others`, pairs of a source and an
    output, become. `defines` are macros of every source, as NAME or NAME=VALUE: the emulator's headers, which come before, are
    to know nothing of an N. Returns all files that were read. Raises Refused."""
    output.parent.mkdir(parents=True, exist_ok=True)
    state = State(output, folders)
    parts = (each.partition("=") for each in defines)
    lines = "".join(f"#define {name} {value if equals else 1}\n" for name, equals, value in parts)
    for each, made in [(source, output), *others]:
        made.write_text(BEGIN + translate_file(each, state, lines), **BYTES)
    return state.inputs


def main():
    if len(sys.argv) != 3:
        print(__doc__)
        return 2
    source, output = Path(sys.argv[1]), Path(sys.argv[2])
    try:
        inputs = translate(source, output)
    except Refused as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    output.with_suffix(".d").write_text(f"{output}: {' '.join(map(str, inputs))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
