"""Looks at the machine code of a kernel that test_nvcc.py compiled, with scripts/fa inspect's module: the main loop has
the instructions that the kernel's chapter teaches, and never touches local memory.

Usage: test_sass.py KERNEL FOLDER
"""

import re
import sys
import tempfile
from pathlib import Path

from tool_test import COMPILING, ROOT, expect, fail, find_nvcc, run, skip, statements

from fa_tools.for_readers import inspect_kernel, limits, sass

ARCHITECTURE = "90a"
# Kind of instruction, or PTX instruction: the first and the last kernel whose main loop (whose PTX) must have it.
# From 11 on, other instructions do the work of some.
SASS = {"HMMA": (4, 99), "LDSM/STSM": (5, 10), "LDGSTS": (7, 11), "TMA": (12, 12)}
PTX = {"mma.sync": (5, 10), "ldmatrix": (5, 10), "cp.async": (7, 99), "wgmma.mma_async": (11, 99)}
# Hopper's kernels: the most instructions of a main loop at head_dim 128, and its turns of 128 keys (15 on: or of 64). (From
# 14 on with what is for tiles that raise the maximum, in 15 and 16 also with the way out of O. fp16's loop of 16 is the longer
# one, because it may take exponentials again.)
MOST = {11: 530, 12: 580, 13: 490, 14: 1450, 15: 1600, 16: 1850}
TURNS = {11: 1, 12: 1, 13: 1, 14: 2, 15: 2, 16: 2}

kernel = sys.argv[1]
number = int(kernel[:2])
least, exactly = sass.needs_of(kernel)
if least != 90 if exactly else least > 90:
    skip(f"{kernel} does not run on sm_{ARCHITECTURE}")
try:
    sass.find_nvdisasm(find_nvcc()[0])
    sass.find_compiler()
except sass.Missing as problem:
    skip(str(problem))
try:
    build = sass.compile_kernel(kernel, ARCHITECTURE, compiled=sys.argv[2])
except sass.Missing as problem:
    fail(str(problem))


def count(opcodes, *kinds):
    return [sum(x.startswith(kind) for x in opcodes) for kind in kinds]


def check_votes(title, opcodes, head_dim, keys):
    """Kernel 16's loop, from a wait for S on. P of the turn is computed without a maximum (fp16 has a branch for them), and the
    vote comes behind it: in fp16 at once, in bf16 anywhere before the next PV. So no branch holds the wait for O, and a part
    of the exponentials comes behind it."""
    waits = [i for i, x in enumerate(opcodes) if x.startswith("WARPGROUP.DEPBAR")]
    for turn, (begin, end) in enumerate(((0, waits[2]), (waits[2], len(opcodes)))):
        part = opcodes[begin:end]
        products = [i for i, x in enumerate(part) if x.startswith("HGMMA")]
        qk, pv = products[0], products[head_dim // 16]
        exponentials = max(i for i, x in enumerate(part[:qk]) if x.startswith("MUFU.EX2"))
        votes = [i for i, x in enumerate(part[:pv]) if x == "VOTE.ALL"]
        if "half" in title:
            expect(votes and votes[0] < qk and count(part[:votes[0]], "MUFU.EX2")[0] >= keys // 2,
                   f"{title}: turn {turn} does not vote between its exponentials and the next product")
            continue
        expect(votes and votes[0] > exponentials, f"{title}: turn {turn} does not vote between its exponentials and the next PV")
        counts = count(part[:qk], "MUFU.EX2", "F2FP", "VHMNMX", "FMNMX")
        if counts != [keys // 2, keys // 4, 0, 0]:
            fail(f"{title}: turn {turn} has {counts} MUFU.EX2, F2FP, VHMNMX and FMNMX before the next QK^T")


def check_turns(title, function, head_dim, keys):
    """A turn: S of 128 or 64 keys and O of as many before, in steps of 16; a fence each; S and O awaited together, from 14
    on one after the other. In 14 and 15, P as the last maximum gives it is computed and packed between the two, before the
    vote whether that will do: what stands behind the branch does not move up, nor does the wait for O."""
    loop = sass.main_loop(function).instructions
    opcodes = [x.opcode for x in loop]
    waits = [i for i, x in enumerate(opcodes) if x.startswith("WARPGROUP.DEPBAR")]
    turns, waits_each = TURNS[number], 1 if number < 14 else 2
    found = (sum(x.startswith("HGMMA") for x in opcodes), opcodes.count("WARPGROUP.ARRIVE"), len(waits))
    if found != (turns * (head_dim // 16 + keys // 16), turns * 2, turns * waits_each):
        fail(f"{title}: HGMMA, WARPGROUP.ARRIVE and WARPGROUP.DEPBAR in {turns} turns are {found}")
    for turn in range(turns if number in (14, 15) else 0):
        under = opcodes[waits[waits_each * turn]:waits[waits_each * turn + 1]]
        expect("VOTE.ANY" in under, f"{title}: turn {turn} does not vote between its two waits")
        counts = count(under[:under.index("VOTE.ANY")], "MUFU.EX2", "F2FP", "VHMNMX")
        if any(a < b for a, b in zip(counts, (keys // 2, keys // 4, keys * 3 // 32))):
            fail(f"{title}: turn {turn} has only {counts} MUFU.EX2, F2FP and VHMNMX between the wait for S and the vote")
    if number == 16:
        check_votes(title, opcodes[waits[0]:] + opcodes[:waits[0]], head_dim, keys)
    expect(not any(x.startswith(("LDL", "STL")) for x in opcodes), f"{title}: the main loop touches local memory")
    expect(len(loop) <= MOST[number], f"{title}: the main loop has {len(loop)} instructions, more than {MOST[number]}")


# All that is compiled, launched or not by the problem that scripts/fa inspect looks at.
for symbol, name in build.names.items() if number in MOST else ():
    match = re.search(r"attention_kernel<(\w+), (\d+)(?:, (\d+))?>", name)
    expect(match, f"{kernel}: {name} is no attention_kernel<type, head_dim, keys of a tile>")
    check_turns(match[0], build.sass[symbol], int(match[2]), int(match[3] or 128))
    resources = build.resources[symbol]
    if resources["spill_store_bytes"] or resources["spill_load_bytes"] or resources["stack_bytes"]:
        fail(f"{match[0]} spills registers: {resources}")
    print(f"{match[0]}: {resources['registers']} registers")

for dtype in ("fp16", "bf16"):
    for head_dim in (64, 128):
        reports = inspect_kernel.describe(build, dtype, head_dim)
        title = f"{kernel}, {dtype}, head_dim {head_dim}"
        expect(reports, f"{title}: launches nothing")
        with_loop = [report for report in reports if report["main_loop"]]
        expect(with_loop, f"{title}: no main loop found")
        mixes = [report["main_loop"]["mix"] for report in with_loop]
        for kind, (first, last) in SASS.items():
            counts = [mix[kind]["count"] for mix in mixes if kind in mix]
            if first <= number <= last and not counts:
                fail(f"{title}: there is no {kind} in the main loop")
            if counts:
                print(f"{title}: {max(counts)} {kind}")
        for opcode, (first, last) in PTX.items():
            if first <= number <= last and not any(opcode in report["ptx"]["families"] for report in reports):
                fail(f"{title}: there is no {opcode} in the PTX")
        for report, mix in zip(with_loop, mixes):
            if mix["LDL/STL"]["count"]:
                fail(f"{title}: {report['function']}'s main loop touches local memory: {mix['LDL/STL']['opcodes']}")
        for report in reports:
            text = f"{inspect_kernel.show(report)}\n{inspect_kernel.show_loop(build, report)}"
            if wide := [line for line in text.split("\n") if len(line) > 100]:
                fail(f"{title}: wider than 100 columns: {wide[0]}")
            if report["main_loop"] and sum(e["count"] for e in report["main_loop"]["mix"].values()) != \
                    report["main_loop"]["instructions"]:
                fail(f"{title}: the kinds do not add up to the main loop")
            expect(report["occupancy"]["ctas"] >= 1, f"{title}: {report['function']} does not fit on an SM")

# bench/agreement.json says which loads nvcc 13.0 merges: their lines have no other ones. Lines together, since a load may
# be listed under its neighbour's.
for dtype, mangled in (("fp16", "__half"), ("bf16", "__nv_bfloat16")) if build.nvcc.startswith("13.0") else ():
    merges = limits.merges_of(kernel, dtype)
    texts = statements(f"kernels/{kernel}.cu")
    lines = {i for i, text in enumerate(texts, 1) if any(text == statement for statement, _ in merges)}
    loads = {instruction.opcode for function in build.sass.values() if mangled in function.name
             for instruction in function.instructions
             if instruction.base == "LDS" and any(at in lines and file.endswith(f"{kernel}.cu")
                                                  for file, at in instruction.places)}
    wanted = {merge["compiled"] for merge in merges.values()}
    if loads != wanted:
        fail(f"{kernel}, {dtype}, lines {', '.join(map(str, sorted(lines)))} are loaded by "
             f"{', '.join(sorted(loads)) or 'nothing'}, not by {', '.join(sorted(wanted))} (bench/agreement.json)")
    for (statement, _), merge in merges.items():
        print(f"{statement} {dtype}: {merge['compiled']}")

# The same file says what else the profiler counts: constants by HFMA2.MMA in kernels without a matrix instruction, loads
# and copies whose predicate is false.
if build.nvcc.startswith("13.0"):
    bf16 = {dim: [x for function in build.sass.values() if f"__nv_bfloat16Li{dim}E" in function.name
                  for x in function.instructions] for dim in (64, 128)}
    if number <= 3 and ({x.base for x in bf16[128]} & {"HMMA", "HGMMA"} or
                        not any(x.opcode == "HFMA2.MMA" for x in bf16[128])):
        fail(f"{kernel} has matrix instructions, or no HFMA2.MMA (bench/agreement.json)")
    if 7 <= number <= 11 and not any(x.base == "LDS" and x.guard == "@!PT" for x in bf16[128]):
        fail(f"{kernel} has no load that never happens (bench/agreement.json)")
    if number == 10 and not any(x.base == "LDGSTS" and x.guard for x in bf16[64]):
        fail(f"{kernel} has no copy with a predicate (bench/agreement.json)")

if number == 8:  # once, as a reader runs it
    script = ROOT / "scripts" / "fa", "inspect"
    with tempfile.TemporaryDirectory() as folder:
        shown = run(script, "08", "--sass", f"{folder}/sass", "--ptx", f"{folder}/ptx", timeout=COMPILING)
        for listing, wanted in (("sass", "HMMA.16816.F32.BF16"), ("ptx", "mma.sync.aligned.m16n8k16")):
            text = (Path(folder) / listing).read_text()
            if wanted not in text or str(ROOT) in text:
                fail(f"scripts/fa inspect 08 --{listing}: no {wanted}, or a path of this machine")
    reports = inspect_kernel.describe(build, "bf16", 128)
    if not all(inspect_kernel.show(report) in shown for report in reports):
        fail("scripts/fa inspect 08 says something else than what was just compiled")
    # What the source says: 64 rows of Q and two stages of 64 rows of K and V, 128 columns of 2 bytes.
    loop = reports[0]["main_loop"]
    found = (reports[0]["threads"], reports[0]["dynamic_shared_bytes"], loop["keys"], loop["query_rows"], loop["hmma"])
    if found != (128, (64 + 4 * 64) * 128 * 2, 64, 64, 128):
        fail(f"scripts/fa inspect 08: threads, shared memory, keys, rows and HMMA are {found}")
