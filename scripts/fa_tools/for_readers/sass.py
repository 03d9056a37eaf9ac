"""What the compiler makes of a kernel: its machine code (SASS), the main loop in it, the instructions by kind, its PTX,
registers, shared memory and occupancy. Needs nvcc, nvdisasm and g++, but no GPU. scripts/fa inspect shows it."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from fa_tools.sources import kernel_names, needs_of
from fa_tools.tools import ROOT, Refused, busy

SETUP = 4  # exit code of programs: a tool is missing or a build failed
OLDEST_NVCC = (12, 8)

# --- GPUs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limits:
    """Of an SM. CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""

    warps: int
    ctas: int
    shared_bytes: int
    cta_shared_bytes: int  # the most that one CTA may ask for
    reserved_bytes: int = 1024  # of shared memory, taken by the system for each CTA (8.0 and later)
    shared_unit: int = 128  # shared memory is given out in units of so many bytes


KB = 1024
LIMITS = {
    75: Limits(32, 16, 64 * KB, 64 * KB, 0, 256),
    80: Limits(64, 32, 164 * KB, 163 * KB),
    86: Limits(48, 16, 100 * KB, 99 * KB),
    89: Limits(48, 24, 100 * KB, 99 * KB),
    90: Limits(64, 32, 228 * KB, 227 * KB),
    100: Limits(64, 32, 228 * KB, 227 * KB),
    120: Limits(48, 24, 100 * KB, 99 * KB),
}
# The same on all of them. The units are those of cuda_occupancy.h, which comes with CUDA.
PARTITIONS = 4  # of an SM; a warp stays in one
PARTITION_REGISTERS = 16384
REGISTER_UNIT = 256  # registers are given out to a warp in units of so many


def round_up(value, unit):
    return -(-value // unit) * unit


def occupancy(capability, registers, shared_bytes, threads):
    """How many CTAs fit on an SM, by each resource, and which of them is the least."""
    limits = LIMITS[capability]
    warps = -(-threads // 32)
    of_a_warp = round_up(max(registers, 1) * 32, REGISTER_UNIT)
    of_a_cta = round_up(shared_bytes + limits.reserved_bytes, limits.shared_unit)
    fit = {
        "registers": PARTITION_REGISTERS // of_a_warp * PARTITIONS // warps,
        "shared memory": limits.shared_bytes // of_a_cta if of_a_cta else limits.ctas,
        "warps": limits.warps // warps,
        "CTAs": limits.ctas,
    }
    if shared_bytes > limits.cta_shared_bytes:
        fit["shared memory"] = 0
    if of_a_warp * round_up(warps, PARTITIONS) > PARTITION_REGISTERS * PARTITIONS:
        fit["registers"] = 0
    ctas = min(fit.values())
    return {
        "ctas": ctas,
        "warps": ctas * warps,
        "most_warps": limits.warps,
        "limited_by": [name for name, count in fit.items() if count == ctas],
        "ctas_by_resource": fit,
    }


# --- SASS ------------------------------------------------------------------------------------------------------


@dataclass
class Instruction:
    address: int
    guard: str  # the predicate in front, "@!P0"; "" if there is none
    opcode: str  # with its modifiers: "LDSM.16.M88.4"
    operands: str
    places: tuple = ()  # (file, line) of the source, from the innermost inlined function to the kernel
    encoding: tuple = ()  # the two 64-bit words, the lower one first, if the listing has them (nvdisasm -hex)

    @property
    def base(self):
        return self.opcode.split(".")[0]

    @property
    def text(self):
        return " ".join(part for part in (self.guard, self.opcode, self.operands) if part)

    @property
    def control(self):
        """What the compiler says to the scheduler: bits 105 to 121 of the 128. NVIDIA documents none of this; it was found
        by others (Z. Jia and others, "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018)."""
        bits = self.encoding[1] >> 41
        return Control(stall=bits & 15, yields=not bits >> 4 & 1, written=bits >> 5 & 7, read=bits >> 8 & 7,
                       waits=tuple(i for i in range(6) if bits >> 11 + i & 1))


@dataclass(frozen=True)
class Control:
    stall: int  # cycles until the warp's next instruction at the earliest
    yields: bool  # another warp goes first, if one can
    written: int  # the scoreboard that is freed when the result is there; 7: none
    read: int  # the one that is freed when the operands have been read; 7: none
    waits: tuple  # scoreboards that must be free before


@dataclass
class Function:
    name: str  # mangled
    instructions: list = field(default_factory=list)
    labels: dict = field(default_factory=dict)  # label: address
    listing: list = field(default_factory=list)  # the disassembler's lines

    def trimmed(self):
        """Without the NOPs that fill up the end of the code."""
        end = len(self.instructions)
        while end and self.instructions[end - 1].opcode == "NOP":
            end -= 1
        return self.instructions[:end]


ENCODING = re.compile(r"/\* 0x([0-9a-f]{16}) \*/\s*$")
INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
PLACE = re.compile(r'//## File "([^"]+)", line (\d+)')


def parse_sass(text):
    """The functions of a listing of nvdisasm (`-c`, with `-gi` also their source lines), by mangled name."""
    functions, current, places, fresh = {}, None, [], True
    waiting = []  # labels whose instruction is still to come
    for line in text.splitlines():
        if start := re.match(r"^\.text\.(\S+):$", line):
            current = functions[start[1]] = Function(start[1])
            places, waiting = [], []
            continue
        if current is None:
            continue
        if line.startswith("//-----"):  # the next section's heading
            current = None
            continue
        current.listing.append(line)
        if place := PLACE.search(line):
            if fresh:
                places, fresh = [], False
            places.append((place[1], int(place[2])))
        elif label := re.match(r"^([.$][\w.$]+):$", line):
            waiting.append(label[1])
        elif match := INSTRUCTION.match(line):
            address = int(match[1], 16)
            current.labels.update({name: address for name in waiting})
            current.instructions.append(Instruction(address, match[2] or "", match[3], match[4], tuple(places)))
            waiting, fresh = [], True
        if current.instructions and (word := ENCODING.search(line)):
            current.instructions[-1].encoding += (int(word[1], 16),)
    return functions


# Kind of instruction: what it is for, and the opcodes (without modifiers) that belong to it.
KINDS = {
    "HMMA": ("Tensor Core product", "HMMA IMMA DMMA QMMA OMMA HGMMA IGMMA QGMMA UTCHMMA UTCQMMA UTCOMMA"),
    "LDSM/STSM": ("matrices, shared memory", "LDSM STSM"),
    "MOVM": ("transposes a matrix", "MOVM"),
    "LDGSTS": ("global to shared, async", "LDGSTS"),
    "TMA": ("tiles to and from shared", "UBLKCP UBLKRED UTMALDG UTMASTG UTMAREDG UTMACMDFLUSH UTMACCTL UTMAPF"),
    "LDS/STS": ("shared memory", "LDS STS ATOMS LDT LDTM STT STTM"),
    "LDG/STG": ("global memory", "LDG STG ATOMG RED REDG CCTL"),
    "LD/ST": ("memory of any kind", "LD ST ATOM"),
    "LDL/STL": ("local memory: spills", "LDL STL"),
    "MUFU": ("2^x, 1/x ...", "MUFU"),
    "FFMA/FMUL/FADD": ("fp32 arithmetic", "FFMA FMUL FADD FFMA2 FMUL2 FADD2 FFMA32I FMUL32I FADD32I"),
    "FMNMX": ("maximum, comparison", "FMNMX FMNMX3 HMNMX2 VHMNMX FSETP FSEL FSET FCHK"),
    "F2FP": ("conversion", "F2FP F2F F2I F2IP I2F I2FP I2I F2FP2 FRND"),
    "SHFL": ("between lanes", "SHFL VOTE VOTEU MATCH REDUX CREDUX"),
    "integer": ("addresses, counters", "IADD IADD3 IADD32I IMAD IMNMX VIADD VIADDMNMX VIMNMX VIMNMX3 LEA LOP LOP3 "
                "LOP32I SHF SHL SHR ISETP ISCADD IABS PRMT SGXT BMSK BREV FLO POPC IDP PLOP3 P2R R2P I2IP"),
    "MOV": ("moves, constants", "MOV MOV32I SEL CS2R S2R S2UR R2UR LDC LDCU ULDC UR2UP MOV2"),
    "BAR/WARPSYNC": ("waiting", "BAR WARPSYNC DEPBAR LDGDEPBAR MEMBAR SYNCS FENCE ERRBAR ARRIVES WARPGROUP "
                     "WARPGROUPSET UCGABAR_ARV UCGABAR_WAIT UTCBAR NANOSLEEP ACQBULK"),
    "branches": ("", "BRA BRX BRXU JMP JMX JMXU CALL RET EXIT BREAK BSSY BSYNC BMOV KILL YIELD"),
    "other": ("", ""),
}
KIND_OF = {opcode: kind for kind, (_, opcodes) in KINDS.items() for opcode in opcodes.split()}


def kind_of(instruction):
    base, opcode = instruction.base, instruction.opcode
    if instruction.guard in ("@!PT", "@!UPT"):  # never true: it takes an issue slot and does nothing
        return "other"
    if opcode.startswith("IMAD.MOV"):
        return "MOV"
    if base == "HFMA2" and ", -RZ, RZ," in instruction.operands:  # -0 * 0 + constant
        return "MOV"
    if opcode.startswith("HADD2.F32"):  # an fp16 value, as fp32
        return "F2FP"
    if base in KIND_OF:
        return KIND_OF[base]
    # A uniform register's instruction is called like the others, with a U in front.
    return KIND_OF.get(base[1:], "other") if base.startswith("U") else "other"


def product_flops(opcode):
    """FLOPs that a warp does with one HMMA: 2 * M * N * K. Hopper's HGMMA is shared by four warps."""
    if match := re.match(r"HMMA\.(16816|1688)\b", opcode):
        return 2 * 16 * 8 * {"16816": 16, "1688": 8}[match[1]]
    if match := re.match(r"HGMMA\.(\d+)x(\d+)x(\d+)", opcode):
        return 2 * int(match[1]) * int(match[2]) * int(match[3]) // 4
    return 0


# --- Loops -----------------------------------------------------------------------------------------------------


def targets(function, instruction):
    """Addresses that a branch names, as labels or as numbers."""
    names = re.findall(r"[.$][\w.$]+", instruction.operands)
    labels = [function.labels[name] for name in names if name in function.labels]
    return labels or [int(number, 16) for number in re.findall(r"\b0x[0-9a-f]+$", instruction.operands)]


def successors(function):
    """For each instruction, by its index, those that may come next."""
    code = function.instructions
    index = {instruction.address: i for i, instruction in enumerate(code)}
    joins, result = {}, []  # joins: barrier register: where its waiting warps go on
    for i, instruction in enumerate(code):
        following = [i + 1] if i + 1 < len(code) else []
        always = instruction.guard in ("", "@PT", "@UPT")
        base = instruction.base
        if instruction.guard in ("@!PT", "@!UPT"):
            result.append(following)
            continue
        if base == "BSSY":
            joins[instruction.operands.split(",")[0]] = targets(function, instruction)
        if base in ("BRA", "JMP", "BRX", "JMX") and not instruction.opcode.startswith("BRA.DIV"):
            # BRA.DIV leads to a copy of what follows for warps whose lanes have parted; they do not here.
            there = [index[a] for a in targets(function, instruction) if a in index]
            sure = always and not re.match(r"!?U?P\d", instruction.operands)  # else: BRA.U UP0, ...
            result.append(there if sure else there + following)
        elif base == "BSYNC" and always:
            there = [index[a] for a in joins.get(instruction.operands, []) if a in index]
            result.append(there or following)
        elif base == "CALL" and (parts := re.search(r"\.L[\w.$]+", instruction.operands)):
            # To a label, not to a function: a far jump. It is how ptxas writes some loops' exits for sm_80.
            there = [index[function.labels[parts[0]]]] if parts[0] in function.labels else []
            result.append(there if always else there + following)
        elif base in ("EXIT", "RET", "KILL"):
            result.append([] if always else following)
        else:
            result.append(following)
    return result


def reachable(edges, start, without=None):
    """The blocks to which a way leads that does not pass one."""
    found, todo = set(), [start]
    while todo:
        block = todo.pop()
        if block != without and block not in found:
            found.add(block)
            todo += edges[block]
    return found


def find_loops(function):
    """Sets of instructions (indices), one a loop: those that can be repeated from the loop's first one, which every
    way into the loop passes. Smallest first. Two branches back to the same instruction are one loop."""
    if not function.instructions:
        return []
    after = successors(function)
    # Blocks of instructions that come one after the other.
    starts = {0} | {t for i, ts in enumerate(after) for t in ts if ts != [i + 1]}
    starts |= {i + 1 for i, ts in enumerate(after) if ts != [i + 1] and i + 1 < len(after)}
    starts = sorted(starts)
    blocks = {s: range(s, e) for s, e in zip(starts, [*starts[1:], len(after)])}
    edges = {s: after[block[-1]] for s, block in blocks.items()}
    reached = reachable(edges, 0)
    before = {block: [other for other in reached if block in edges[other]] for block in reached}
    loops = {}
    for head in reached:
        inside = reached - reachable(edges, 0, head)  # every way there passes the head
        ends = [block for block in before[head] if block in inside]
        if ends:
            loops[head] = {head}.union(*(reachable(before, block, head) for block in ends))
    found = [{i for block in members for i in blocks[block]} for members in loops.values()]
    return sorted(found, key=lambda loop: (len(loop), min(loop)))


@dataclass
class Loop:
    instructions: list
    why: str
    inner_loops: int


def main_loop(function):
    """The loop that does the work, or None: see `why` of what is returned."""
    code, loops = function.instructions, find_loops(function)

    def count(loop, test):
        return sum(test(code[i]) for i in loop)

    def matrix(instruction):
        return kind_of(instruction) == "HMMA"

    def most(chosen, test):  # the smallest of those with the most
        return max(chosen, key=lambda loop: (count(loop, test), -len(loop)))

    with_matrix = [loop for loop in loops if count(loop, matrix)]
    whole = [loop for loop in with_matrix if count(loop, lambda x: x.opcode.startswith("MUFU.EX2"))]
    fp32 = [loop for loop in loops if count(loop, lambda x: x.base == "FFMA")]
    if whole:
        # Not around another one: a loop over tiles of queries, say.
        innermost = [loop for loop in whole if not any(other < loop for other in whole)]
        chosen = most(innermost, matrix)
        why = "the innermost loop with HMMA and MUFU.EX2 (both products and the softmax)"
    elif with_matrix:
        chosen, why = most(with_matrix, matrix), "the loop with the most HMMA"
    elif fp32:
        chosen = most(fp32, lambda x: x.base == "FFMA")
        why = "the loop with the most FFMA, as there is no HMMA"
    else:
        return None
    return Loop([code[i] for i in sorted(chosen)], why, sum(other < chosen for other in loops))


def mix(instructions):
    """Instructions by kind, in the order of KINDS: {kind: Counter of opcodes}. LDL/STL is always there."""
    result = {kind: Counter() for kind in KINDS}
    for instruction in instructions:
        result[kind_of(instruction)][instruction.opcode] += 1
    return {kind: opcodes for kind, opcodes in result.items() if opcodes or kind == "LDL/STL"}


# --- PTX -------------------------------------------------------------------------------------------------------


def parse_ptx(text):
    """The text of each kernel of a PTX file, by mangled name."""
    entries = re.split(r"^(?=(?:\.visible |\.weak )?\.entry )", text, flags=re.MULTILINE)[1:]
    return {re.search(r"\.entry\s+([\w$]+)", entry)[1]: entry[: entry.rindex("\n}") + 2] for entry in entries}


def ptx_opcodes(entry):
    """How often each instruction appears in a kernel's PTX, by its whole opcode."""
    opcodes = Counter()
    body = re.sub(r"//[^\n]*", "", entry[entry.index("\n{") + 2 :])
    for statement in re.split(r"[;{}\n]", body):
        statement = re.sub(r"^\s*(?:[\w$]+:)?\s*(?:@!?%?\w+\s+)?", "", statement)
        if match := re.match(r"[a-z][\w.:]*(?=\s|$)", statement):
            opcodes[match[0]] += 1
    return opcodes


# The instructions that the chapters are about, each with all its forms.
PTX_OF_INTEREST = ("mma.sync", "wmma.mma", "wgmma.mma_async", "ldmatrix", "stmatrix", "cp.async", "ex2.approx")


def ptx_family(opcode):
    """The opcode up to what says which operation it is: ld.shared.v4.u32 is ld.shared."""
    for name in PTX_OF_INTEREST:
        if opcode == name or opcode.startswith(name + "."):
            return name
    parts = opcode.split(".")
    if parts[0] in ("ld", "st", "atom", "red"):
        return ".".join(parts[: 3 if parts[1:2] == ["volatile"] else 2])
    if parts[0] in ("bar", "barrier", "shfl", "wmma", "mbarrier", "fence"):
        return ".".join(parts[:2])
    return parts[0]


# --- Compiling -------------------------------------------------------------------------------------------------


def find_kernel(wish):
    """The name of the kernel with this number, name or beginning of a name; "causal" is beyond/causal."""
    names = [name for name in kernel_names() if not name.endswith(".next")]
    for whole in (wish, f"beyond/{wish}"):
        if whole in names:
            return whole
    number = f"{int(wish):02}_" if wish.isascii() and wish.isdigit() else None
    fits = [name for name in names if (name if "/" in wish else name.removeprefix("beyond/")).startswith(number or wish)] if wish else []
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise Refused(f"'{wish}' could be {', '.join(fits)}")
    raise Refused(f"there is no kernel '{wish}'; there are {', '.join(names)}")


def check_architecture(text):
    """'90a' or 'sm_90a' as ('90a', 90)."""
    match = re.fullmatch(r"(?:sm_)?(\d+)([af]?)", text)
    number = int(match[1]) if match else 0
    if number not in LIMITS or (match[2] == "a" and number < 90) or (match[2] == "f" and number < 100):
        known = ", ".join(f"{n}a" if n in (90, 100) else str(n) for n in LIMITS)
        raise Refused(f"--arch takes one of {known}, not '{text}'")
    return f"{number}{match[2]}", number


def check_needs(kernel, architecture, number, dtype="fp16"):
    least, exactly = needs_of(kernel, dtype)
    if number != least if exactly else number < least:
        wanted = f"{least // 10}.{least % 10}{'' if exactly else ' or later'}"
        of_bf16 = " for bf16" if least != needs_of(kernel)[0] else ""
        raise Refused(f"{kernel} needs compute capability {wanted}{of_bf16}, which sm_{architecture} is not")


class Missing(Refused):
    """One sentence: a tool is not here, or a build failed."""

    code = SETUP


def find_nvcc():
    """(path, version): the machine's own, else the one that scripts/fa toolkit brings."""
    home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    places = [os.environ.get("CUDACXX"), "nvcc", f"{home}/bin/nvcc", "/usr/local/cuda/bin/nvcc", "/opt/cuda/bin/nvcc",
              str(ROOT / ".toolkit/bin/nvcc")]
    too_old = ""
    for place in places:
        path = place and shutil.which(place)
        if not path:
            continue
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        match = re.search(r"release (\d+)\.(\d+), V([\d.]+)", done.stdout)
        if match and (int(match[1]), int(match[2])) >= OLDEST_NVCC:
            return path, match[3]
        if match:
            too_old = too_old or f"{match[1]}.{match[2]}"
    if too_old:
        raise Missing(f"nvcc {too_old} is older than 12.8; scripts/fa toolkit brings a newer one")
    raise Missing("there is no nvcc here; scripts/fa toolkit brings one")


def find_nvdisasm(nvcc):
    of_tests = ROOT.glob(".venv-tests/lib/python*/site-packages/nvidia/cu*/bin/nvdisasm")
    for place in (Path(nvcc).resolve().parent / "nvdisasm", "nvdisasm", ROOT / ".toolkit/bin/nvdisasm", *of_tests):
        if path := shutil.which(place):
            return path
    raise Missing("there is no nvdisasm here; scripts/fa toolkit brings one")


def find_compiler():
    for tool in (os.environ.get("CXX"), "g++", "c++"):
        if path := tool and shutil.which(tool):
            return path
    raise Missing("there is no g++ here, which is asked for the sizes of a launch")


def compile_command(nvcc, architecture, source, cubin):
    return [nvcc, "-std=c++20", "-O3", *build_flags(), f"-arch=sm_{architecture}", "-Xptxas", "-v", "-DFA_WITH_CUDA", f"-I{ROOT}", "-cubin",
            source, "-o", cubin]


def start(*command):
    try:
        return subprocess.Popen([str(part) for part in command], cwd=ROOT, text=True, errors="replace", stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise Missing(f"there is no {command[0]} here") from None


def build_flags():
    """nvcc's flags in the build, from common/CMakeLists.txt."""
    text = (ROOT / "common" / "CMakeLists.txt").read_text(encoding="utf-8")
    return re.search(r"set\(FA_CUDA_FLAGS ([^)]*)\)", text)[1].split()


@dataclass
class Build:
    """Everything about one kernel file on one architecture."""

    kernel: str
    architecture: str
    capability: int
    nvcc: str  # version
    sass: dict  # mangled name: Function
    ptx: dict  # mangled name: text
    resources: dict  # mangled name: registers, stack and spills, as ptxas says
    launches: list  # of dicts: dtype, head_dim, seq_len, grid, threads, shared_bytes, function
    names: dict  # mangled name: "attention_kernel<__half, 64>", with its namespace


def finish(process, what):
    output = process.communicate()[0]
    if process.returncode:
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        ended = f"it ended with {signal.Signals(-process.returncode).name}" if process.returncode < 0 else "it said nothing"
        first = next((line for line in lines if "error" in line), lines[-1] if lines else ended)
        raise Missing(f"{what} failed: {first.replace(f'{ROOT}/', '')}")
    return output


def readable(mangled):
    """{mangled name: attention_kernel<__half, 64>, with its namespace}"""
    names = finish(start("c++filt", *mangled), "c++filt").splitlines() if mangled else []
    return {each: name.removeprefix("void ").split("(")[0] for each, name in zip(mangled, names)}


FUNCTION = re.compile(r"Compiling entry function '([^']+)' for 'sm_(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
                      r"(\d+) bytes spill loads.*?Used (\d+) registers(?:[^\n]* (\d+) bytes smem)?", re.DOTALL)


def parse_resources(log, architecture=None):
    """What `ptxas -v` says of each kernel; of several architectures, for one."""
    return {name: {"registers": int(registers), "stack_bytes": int(stack), "spill_store_bytes": int(stores), "spill_load_bytes": int(loads),
                   "static_shared_bytes": int(static or 0)}
            for name, of, stack, stores, loads, registers, static in FUNCTION.findall(log) if architecture in (None, of)}


def parse_launches(text):
    launches = []
    for line in text.splitlines():
        dtype, head_dim, seq_len, grid, threads, shared_bytes, name = line.split("\t")
        # g++: [with auto kFunction = fa::k08::kernel<__half, 64>], clang++: [kFunction = &fa::k08::...]
        name = re.search(r"kFunction = &?(?:\((.*?)\)|(.*))\]", name)
        launch = {
            "dtype": dtype, "head_dim": int(head_dim), "seq_len": int(seq_len),
            "grid": [int(size) for size in grid.split()], "threads": int(threads), "shared_bytes": int(shared_bytes),
            "function": name[1] or name[2],
        }
        if launch not in launches:
            launches.append(launch)
    return launches


def compile_kernel(kernel, architecture, encodings=False, compiled=None):
    """Compiles one kernel file and takes it apart. `architecture`: as check_architecture() gives it. `compiled`: a folder
    that already has nvcc's log, PTX and cubin."""
    architecture, capability = check_architecture(architecture)
    check_needs(kernel, architecture, capability)
    nvcc, version = find_nvcc()
    nvdisasm, compiler = find_nvdisasm(nvcc), find_compiler()
    source = f"kernels/{kernel}.cu"

    with tempfile.TemporaryDirectory(prefix="inspect-") as folder, busy(f"compiling {source} and taking it apart"):
        made, program = Path(compiled or folder), f"{folder}/launches"
        cubin = made / f"{architecture}.cubin"
        device = start("cat", made / "log") if compiled else start(
            *compile_command(nvcc, architecture, source, cubin), "--keep", "--keep-dir", folder)
        # The kernels themselves are never called, so that the emulator need not be linked.
        host = start(compiler, "-std=c++20", "-w", "-fno-strict-aliasing", "-no-pie",
                     "-Wl,--unresolved-symbols=ignore-all", "-I.", "-Icommon/emulator/include",
                     f'-DKERNEL_FILE="{source}"', f"-DFA_ARCHITECTURE={capability}", "scripts/lib/launches.cpp",
                     "-o", program)
        try:
            log = finish(device, f"nvcc {version} on {source}")
            finish(host, f"{Path(compiler).name} on {source}")
        finally:
            for process in (device, host):
                if process.poll() is None:
                    process.kill()
                    process.wait()
                process.stdout.close()
        launches = parse_launches(finish(start(program), f"asking {kernel} for the sizes of its launches"))
        sass = parse_sass(finish(start(nvdisasm, "-c", "-gi", *(["-hex"] if encodings else []), cubin), "nvdisasm"))
        ptx = {}
        for path in made.glob(f"{architecture}.ptx" if compiled else "*.ptx"):
            ptx.update(parse_ptx(path.read_text(encoding="utf-8")))
    return Build(kernel, architecture, capability, version, sass, ptx, parse_resources(log, architecture), launches, readable(sass))
