"""Reads sources: the declarations of headers, and what a kernel is. That is a hash of its
statements, which every record of a measurement has. Another hash than today's means that the kernel has changed since: the
record is stale.

Comments, line breaks and the order of declarations do not count, nor does what only the emulator sees. Of a header those
declarations count that the kernel uses, directly or not, so that a new instruction in common/ptx makes no record stale. What
registers and starts kernels does not count (HOST), because it is not in their machine code, and neither do the hooks of a
recorder of timelines, which measured programs do not have.

CMake runs this as a program, which writes the table of common/harness/sources.cpp: a program says what it was built from,
wherever it runs."""

import hashlib
import re
import sys
from collections import namedtuple
from functools import lru_cache
from pathlib import Path

from fa_tools.patches import changed, solutions
from fa_tools.tools import ROOT, Refused, read_json, read_toml, relative, write_whole

HOST = {f"common/launch/{name}.h" for name in ("device", "known_kernels", "launch", "problem", "registry")} | {"common/ptx/hook.h"}
# What nvcc would know. Everything else in a condition is not defined: no recording.
DEFINED = {"__CUDACC__", "FA_WITH_CUDA"}
# What `build/emulator/bin/layouts facts` prints; scripts/fa adopt writes it, and the test `facts` compares.
CONSTANTS = Path(__file__).with_name("facts.json")
NAMESPACES = ("ptx", "layout", "fa")

# ---- reading C++, as far as the headers of common go ---------------------------------------------------------------------


def without_comments(code):
    return re.sub(r"//[^\n]*", "", code)


def names_in(code, namespace):
    """(namespace, name) of all that code without comments names; without a qualifier, `namespace`."""
    names = set()
    for qualifier, name in re.findall(r"(?:\b(\w+)::)?\b([A-Za-z_]\w*)", re.sub(r'"(?:[^"\\]|\\.)*"', "", code)):
        names |= {(qualifier, name)} if qualifier in NAMESPACES else {(namespace, name), (namespace, qualifier)}
    return names


def arguments(code, at):
    """The arguments of the call, or the parameters of the declaration, whose parenthesis opens before `at`."""
    depth, begin, given = 0, at, []
    for i in range(at, len(code)):
        if depth == 0 and code[i] in ",)":
            given.append(code[begin:i].strip())
            begin = i + 1
            if code[i] == ")":
                break
        depth += (code[i] in "([{") - (code[i] in ")]}")
    return [each for each in given if each]


def calls(name, code):
    """The arguments of each call of a function, which may have template arguments."""
    # Without \b, after which the search for a plain text would be slow.
    found = re.finditer(rf"{name}\s*(?:<[^()]*?>)?\s*\(", code)
    return [arguments(code, call.end()) for call in found if not re.match(r"\w", code[call.start() - 1:call.start()])]


class Block:
    """A declaration of a header, with the comment above it."""

    def __init__(self, header, namespace, text, instead):
        self.header = header
        code = without_comments(text).strip()
        self.declared = re.sub(r"^template <(?:[^<>]|<[^<>]*>)*>\s*", "", code).split("{")[0]
        name = re.search(r"^(?:struct(?: alignas\(\w+\))?|enum class|namespace|using) (\w+)|(\w+) =|(\w+)(?:<\w+>)?\(",
                         self.declared)
        self.key = (namespace, name[name.lastindex])
        self.parameters = arguments(self.declared, name.end()) if name[3] else None
        self.text = instead.get(self.key, str)(text)
        self.names = names_in(without_comments(self.text), namespace)

    def takes(self, count):
        return sum("=" not in each for each in self.parameters) <= count <= len(self.parameters)


def is_true(condition):
    """Of what follows #if: defined(...) and !defined(...), joined by && and ||. Any other term compares a macro that is not defined,
    such as __CUDA_ARCH__, with a number that is larger than 0."""
    def term(text):
        negated, name = re.fullmatch(r"\s*(!?)defined\((\w+)\)\s*|.*", text).groups()
        return name is not None and (name in DEFINED) != bool(negated)

    return any(all(map(term, part.split("&&"))) for part in condition.split("//")[0].split("||"))


def preprocessed(path):
    """The text of a header that nvcc would compile, without the preprocessor's own lines."""
    lines, branches = [], []  # branches: of every open #if, is this one compiled?
    for line in (ROOT / path).read_text(encoding="utf-8").splitlines():
        word, _, rest = line.partition(" ")
        if word == "#if":
            branches.append(is_true(rest))
        elif word in ("#ifdef", "#ifndef"):
            branches.append((rest.split()[0] in DEFINED) == (word == "#ifdef"))
        elif word == "#else":
            branches[-1] = not branches[-1]
        elif word == "#endif":
            branches.pop()
        elif all(branches) and not line.startswith(("#include", "#pragma once", "#error")):
            if line.startswith("#") and not line.startswith("#pragma"):
                raise Refused(f"{path}: {line}")
            lines.append(line)
    return "\n".join(lines)


def unrecorded(text):
    """Without what the wrappers do for a recorder of timelines (common/ptx/hook.h)."""
    text = re.sub(r"^ *(?:record(?:_products?)?|const Recorded recorded)\([^;]*\);\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"(?:,\s*)?\bWhere where = Where::current\(\)", "", text)
    return re.sub(r"(?:, |(?<=\())where\)", ")", text)


def unmarked(text):
    """Without the lines that name excerpts for the book's pages."""
    return re.sub(r"^ *// \[/?[\w-]+\]\n", "", text, flags=re.MULTILINE)


def parse(header, instead={}):
    """(comment at the head, blocks) of a header; `instead`: declarations that are written anew."""
    text = unmarked(unrecorded(preprocessed(header)))
    lines = text.split("\n")
    end = next(i for i, line in enumerate(lines) if not line.startswith("//"))
    blocks, current, namespace, depth = [], [], None, 0
    for line in lines[end:]:
        if depth == 0 and (opens := re.fullmatch(r"namespace (\w+) \{", line)):
            namespace = opens[1]
        elif depth == 0 and (not line or line.startswith("}")):
            current = []  # a comment above an empty line belongs to no declaration
        else:
            current.append(line)
            code = re.sub(r'"(?:[^"\\]|\\.)*"|//.*', "", line)
            depth += sum(map(code.count, "{(")) - sum(map(code.count, "})"))
            if depth == 0 and code.rstrip().endswith((";", "}")):
                if not without_comments("\n".join(current)).lstrip().startswith("static_assert"):
                    block = Block(header, namespace, "\n".join(current), instead)
                    # What is written anew stands for all overloads.
                    if block.key not in instead or block.key not in (each.key for each in blocks):
                        blocks.append(block)
                current = []
    return "\n".join(lines[:end]), blocks


def includes(path, marks='"'):
    """What a file includes of this repository, or, with both marks, at all."""
    named = (line.split()[1] for line in Path(path).read_text(encoding="utf-8").splitlines() if line.startswith("#include "))
    return [name[1:-1] for name in named if name[0] in marks]


def included(path, seen):
    """The headers of this repository that a file includes, those that others need first."""
    for header in includes(ROOT / path):
        if header not in seen and not header.startswith(("common/emulator/", "common/trace/")):
            seen.add(header)
            yield from included(header, seen)
            yield header


def reachable(blocks, kernel, instead={}):
    """Those blocks that the kernel needs, directly or not. Of functions that share a name: those that take as many arguments
    as some call has."""
    kernel = without_comments(kernel)
    kept = []
    while True:
        names = names_in(kernel, "fa").union(*(block.names for block in kept))
        code = "\n".join([kernel, *(without_comments(block.text) for block in kept)])
        more = []
        for block in blocks:
            if block not in kept and block.key in names:
                counts = [len(each) for each in calls(block.key[1], code)]
                alone = block.key in instead or sum(each.key == block.key for each in blocks) == 1
                if alone or block.parameters is None or not counts or any(map(block.takes, counts)):
                    more.append(block)
        if not more:
            return [block for block in blocks if block in kept]
        kept += more


# A launcher's leads(), with its comment: where a program that may choose takes the kernel.
LEADS = re.compile(r"(?ms)^(?:  //[^\n]*\n)*  static (?:bool|int) leads\(.*?^  \}\n\n?")


# ---- what a kernel is ------------------------------------------------------------------------------------------------------


def normalised(code):
    """Code without comments, and with a space only where two words would become one."""
    return re.sub(r"(?<!\w) | (?!\w)", "", " ".join(without_comments(code).split()))


@lru_cache(maxsize=None)
def solution(name):
    """The places that a solution of an exercise changes in its kernel, or None."""
    return solutions().get(name)


@lru_cache(maxsize=None)
def declarations(path):
    """Of a header, or all its text, if that is none that parse() can cut into declarations, such as macros."""
    try:
        return parse(path, {})[1], []
    except Exception:  # whatever it is that stops a reader of well-formed headers
        return [], [(ROOT / path).read_text(encoding="utf-8")]


@lru_cache(maxsize=None)
def source_of(kernel):
    """12 digits, of a kernel or of a solution of an exercise. None if there is neither of this name."""
    name, is_next, _ = kernel.partition(".next")
    path = ROOT / "kernels" / f"{'next/' * bool(is_next)}{name}.cu"
    places = None if path.exists() else solution(name)
    if places:
        path = next(path.parent.glob(f"{name[:2]}_*.cu"), path)
    if not path.exists():
        return None
    code = path.read_text(encoding="utf-8")
    try:
        code = changed(code, places) if places else code
    except Refused:
        return "misfit"  # the kernel is another one than when the solution was measured
    # Traits, leads() and the shared memory that a GPU must have are for those who choose a kernel, and do not change it; nor does it
    # that fp16 needs less than bf16. A solution in one program with its kernel has other names than these (scripts/fa solutions --library).
    code = re.sub(r"Needs\{75, false, \d+, (\d+)\}", r"Needs{\1}", code)
    code = re.sub(r'(?m)^#include .*|\bnamespace fa::\w+|(?<=registration\{)"\w+"|(, \{\})?, Traits::\w+|, Needs\{75, false, \d+\}', "", code)
    code = LEADS.sub("", code)
    blocks, whole = [], []
    for header in included(path.relative_to(ROOT), set()):
        if header not in HOST:
            more, text = declarations(header)
            blocks += more
            whole += text
    used = reachable(blocks, "\n".join([code, *whole]), {})
    text = "\n".join([normalised(code), *sorted(normalised(text) for text in [*whole, *(block.text for block in used)])])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@lru_cache(maxsize=None)
def constants():
    return read_json(CONSTANTS)


def constant(kernel, name):
    """A constant of a kernel with head_dim 128, in bf16."""
    if name not in constants().get(kernel, {}):
        raise Refused(f"{relative(CONSTANTS)} has no {name} of kernel {kernel}: kernels/facts/constants.cpp names those that it has")
    return constants()[kernel][name]


@lru_cache(maxsize=None)
def ladder():
    return read_toml(ROOT / "bench" / "ladder.toml")


def fact(kernel, key):
    """What bench/ladder.toml says of a kernel, or None."""
    name = kernel[:2] if kernel[0].isdigit() else kernel
    defaults = (values for first, values in sorted(ladder()["from"].items(), reverse=True) if first <= name)
    return next((values[key] for values in (ladder()["kernels"].get(name, {}), *defaults) if key in values), None)


# The name in a kernel's last lines, and what may stand behind it: Needs{...}, a trait and Takes{...} (common/launch/registry.h).
REGISTRATION = re.compile(r'registration\{\s*"([\w/]+)"(?:,\s*(?:Needs)?\{(\d*)(?:, (\w+))?(?:, (\d+))?(?:, (\d+))?[^{}]*\})?'
                          r'(?:,\s*Traits::k(\w+))?([^;]*);')
Registered = namedtuple("Registered", "name capability exactly shared_bytes for_bf16 trait takes", defaults=(None, 75, False, 0, 0, None, ()))


def registered(path):
    """What a kernel's file says of the kernel. Its program knows that, too, but not before it is built."""
    match = REGISTRATION.search(path.read_text(encoding="utf-8"))
    if not match:
        return Registered()
    name, least, exactly, shared_bytes, for_bf16, trait, rest = match.groups()
    return Registered(name, int(least or 75), exactly == "true", int(shared_bytes or 0), int(for_bf16 or 0), trait,
                      [taken.split(" ")[0] for taken in rest.split(".")[1:]])


def needs_of(kernel, dtype="fp16"):
    """(compute capability, only that one?) of a kernel."""
    found = registered(ROOT / "kernels" / f"{kernel}.cu")
    return max(found.capability, found.for_bf16 * (dtype == "bf16")), found.exactly


def kernel_names():
    """As programs call them: 16_max_free, beyond/causal, and 16_max_free.next of kernels/next."""
    files = sorted(path.relative_to(ROOT / "kernels").with_suffix("").as_posix() for path in (ROOT / "kernels").rglob("*.cu")
                   if path.parent.name != "backward")
    return [f"{name.removeprefix('next/')}.next" if name.startswith("next/") else name for name in files]


def gradient_names():
    """Those of gradients, as results files call them: backward/backward_mma. They are in fa_bench alone."""
    return sorted(f"backward/{path.stem}" for path in (ROOT / "kernels/backward").glob("*.cu"))


def main():
    write_whole(Path(sys.argv[1]), "".join(f'{{"{name}", "{source_of(name)}"}},\n' for name in [*kernel_names(), *gradient_names()]))


if __name__ == "__main__":
    main()
