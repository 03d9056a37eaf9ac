"""What bounds a kernel: the least time that each resource of a GPU needs for what the emulator counted.

A bound supposes that nothing waits: that the work is spread evenly over all SMs, that everything overlaps, and that the
clock is the highest one. Only what certainly happens is counted:

  tensor  FLOPs of mma.sync, wmma and wgmma, each at its own rate
  mufu    the exponentials
  fp32    multiply-adds of the products that the Tensor Cores did not do; two operations a score for the softmax
  l1      passes through the data path that shared memory and L1 have in common, 128 bytes wide: wavefronts of shared
          memory with their conflicts, a pass for every line of 128 bytes that a plain load or store touches, one for
          a shuffle; what wgmma reads, each element once. Not what cp.async and TMA write into shared memory: the
          profiler finds next to nothing of it there
  l2      every byte stored; loads: each tensor once, or what goes past L1 (cp.async, TMA), shared by the CTAs of an SM
  hbm     each tensor once, and the workspace written and read; less what L2 can keep from one launch to the next

Counts of a head grow with a seq_len^2 + b seq_len: a CTA owns a fixed number of queries and goes over the keys tile
by tile. a and b come from two lengths that the emulator ran; a third one shows whether the kernel is of that form. Rows
of query tiles beyond seq_len are left out, and what is stored has none. Of kernels with other tiles where seq_len is an odd
multiple of 128 (15 and 16), the lengths are multiples of 256."""

import math
from collections import namedtuple
from fractions import Fraction

from fa_tools.cards import card_of
from fa_tools.records import flops_of, is_plain, is_stale, kind, passed, shape_of
from fa_tools.tools import ROOT, Refused, read_json

MACHINES = ROOT / "bench" / "machines.json"
DIFFERENCES = ROOT / "bench" / "agreement.json"  # what nvcc does otherwise than the source says

# Resource: how it is called in a table.
RESOURCES = {"tensor": "tensor", "mufu": "MUFU", "fp32": "FP32", "l1": "L1/shared", "l2": "L2", "hbm": "HBM"}
ELEMENT = 2  # bytes: fp16 and bf16
SHARED = ("shared load", "shared store", "ldmatrix", "stmatrix", "wmma load", "wmma store")
GLOBAL = ("global load", "global store")
PAST_L1 = ("cp.async", "tma load")
SOFTMAX_OPERATIONS = 2  # of FP32 a score: it is scaled and the maximum subtracted in one, and added to the sum
WAVEFRONT = 128  # bytes of shared memory at most
RESERVED = 1024  # bytes of shared memory that CUDA itself takes of each CTA
MOST_CTAS = 32  # on an SM

# Of a head; Fractions. mma, wgmma: FLOPs. operations: exponentials. wavefronts: passes through L1's data path.
# stored, past_l1: bytes. workspace: bytes.
Work = namedtuple("Work", "mma wgmma exp2 wavefronts stored past_l1 workspace")
Bound = namedtuple("Bound", "kernel shape seconds shared_bytes")  # seconds: {resource: s}


def attention_flops(batch, heads, seq_len, head_dim):
    """Both matrix products of the forward pass; the softmax is not counted."""
    return flops_of({"batch": batch, "heads": heads, "seq_len": seq_len, "head_dim": head_dim})


def machine_named(wish):
    """(name, limits) of bench/machines.json for H100, NVIDIA H100 80GB HBM3 or h100; Refused if it is not one of them."""
    known = read_json(MACHINES)["machines"]
    found = [wish] if wish in known else [name for name in known if card_of(wish) == card_of(name)]
    if len(found) != 1:
        raise Refused(f"there is no machine {wish} in bench/machines.json; it has {', '.join(known)}")
    return found[0], known[found[0]]


def machine_of(gpu):
    """The limits of the GPU of this name, or of the same card with more or less memory; None if they are not known."""
    return next((limits for name, limits in read_json(MACHINES)["machines"].items() if card_of(name) == card_of(gpu)), None)


# --- From a record to its work ---------------------------------------------------------------------------------


def merges_of(kernel, dtype):
    """{(statement, kind): entry} of the loads that nvcc merges."""
    return {(entry["statement"], entry["kind"]): entry for entry in read_json(DIFFERENCES)["merged"]
            if entry["kernel"] == kernel and dtype in entry["dtypes"]}


def compiled_statements(record, dtype):
    """The record's counts by statement, with the requests and wavefronts that nvcc leaves of them."""
    merges = merges_of(record["kernel"], dtype)
    for counts in record["statements"]:
        merge = merges.get((counts.get("statement"), counts["kind"]))
        if merge:
            counts = {**counts, **{count: Fraction(counts[count], merge[count]) for count in ("requests", "wavefronts")}}
        yield counts


def work_of(record, dtype=None):
    """The work of a head, of a record of the emulator's checked build."""
    total = dict.fromkeys(Work._fields, Fraction(0))
    for counts in compiled_statements(record, dtype or record["dtype"]):
        kind = counts["kind"]
        if "flops" in counts:
            total["wgmma" if kind == "wgmma" else "mma"] += counts["flops"]
        if kind == "exp2":
            total["exp2"] += counts["operations"]
        elif kind == "wgmma":
            total["wavefronts"] += Fraction(counts.get("bytes", 0), WAVEFRONT)
        elif kind in SHARED:
            total["wavefronts"] += counts.get("wavefronts", 0)
        elif kind in GLOBAL:
            total["wavefronts"] += counts["cache_lines"]
        elif kind == "shuffle":
            total["wavefronts"] += counts["requests"]
        if kind in ("global store", "tma store"):
            total["stored"] += counts["bytes"]
        elif kind in PAST_L1:
            total["past_l1"] += counts["bytes"]
    total["workspace"] += record.get("workspace_bytes", 0)
    return Work(*(value / (record["batch"] * record["heads"]) for value in total.values()))


class Kernel:
    """What the emulator counted of a kernel with one head_dim, at one length or several."""

    def __init__(self, name, head_dim):
        self.name, self.head_dim, self.records = name, head_dim, {}

    def add(self, record):
        self.records.setdefault(record["seq_len"], record)

    @property
    def shared_bytes(self):
        return max(record.get("shared_memory_bytes", 0) for record in self.records.values())

    def work(self, seq_len, dtype):
        """The work of a head of this length: as counted, or scaled. None if one length alone is known, another one."""
        if seq_len in self.records:
            return work_of(self.records[seq_len], dtype)
        if len(self.records) < 2:
            return None
        first, second = sorted(self.records)[-2:]
        return scaled(self.work_of_rows(first, dtype), first, self.work_of_rows(second, dtype), second, seq_len)

    def work_of_rows(self, seq_len, dtype):
        """Of a length that was counted: the share of seq_len in the query rows that CTAs have, which are more if their
        tiles do not divide it. The products tell how many."""
        work = work_of(self.records[seq_len], dtype)
        rows = (work.mma + work.wgmma) / (4 * seq_len * self.head_dim)
        if rows <= seq_len:
            return work
        alike = "stored", "workspace"
        return work._replace(**{field: value * seq_len / rows for field, value in work._asdict().items() if field not in alike})

    def misfits(self, dtype):
        """Counts that do not grow with a seq_len^2 + b seq_len, where three lengths or more are known."""
        lengths = sorted(self.records)
        if len(lengths) < 3:
            return []
        first, second = (self.work_of_rows(length, dtype) for length in lengths[-2:])
        return [field for length in lengths[:-2]
                for field, expected, counted in zip(
                    Work._fields, scaled(first, lengths[-2], second, lengths[-1], length),
                    self.work_of_rows(length, dtype)) if expected != counted]


def scaled(first, n1, second, n2, n):
    """Work at length n from the work at two others."""
    return Work(*(scale(y1, n1, y2, n2, n) for y1, y2 in zip(first, second)))


def scale(y1, n1, y2, n2, n):
    """y(n) of y(n) = a n^2 + b n, from y(n1) and y(n2)."""
    a = (Fraction(y2) / n2 - Fraction(y1) / n1) / (n2 - n1)
    return a * n * n + (Fraction(y1) / n1 - a * n1) * n


def kernels_of(files, head_dim=None, stale=False):
    """{(name, head_dim): Kernel} of the records in results files of the emulator's checked build (data, as loaded); those of
    kernels that have changed since are left out, or are all."""
    found = {}
    for data in files:
        for record in data["records"]:
            if passed(record) and is_plain(record) and "statements" in record and is_stale(record) == stale and \
                    head_dim in (None, record["head_dim"]):
                key = record["kernel"], record["head_dim"]
                found.setdefault(key, Kernel(*key)).add(record)
    return found


# --- From work to time -----------------------------------------------------------------------------------------


def resident_ctas(sm, shared_bytes):
    """On an SM at the same time, as far as shared memory allows."""
    return max(1, min(MOST_CTAS, sm["shared_kib"] * 1024 // (shared_bytes + RESERVED)))


def seconds_of(work, shape, machine, shared_bytes, workspace_bytes=None):
    """{resource: the least seconds}. `workspace_bytes`: what the launch had, if it is known."""
    sm, heads, l2 = machine["sm"], shape.batch * shape.heads, machine["l2_mib"] * 2**20
    cycles = sm["count"] * sm["clock_mhz"] * 1e6  # of all SMs, a second
    scores = heads * shape.seq_len**2
    products = attention_flops(*shape[1:5]) - heads * (work.mma + work.wgmma)
    tensor_bytes = ELEMENT * heads * shape.seq_len * shape.head_dim  # Q, K, V or O
    scratch = heads * work.workspace
    loaded = max(3 * tensor_bytes + scratch, heads * work.past_l1 / resident_ctas(sm, shared_bytes))
    moved = max(0, 4 * tensor_bytes - l2)
    if scratch:  # in pieces: the workspace is used again and again
        piece = workspace_bytes or work.workspace
        moved += 2 * max(0, piece - l2) * scratch / piece
    tensor_cycles = work.mma / Fraction(sm["mma_flops"]) + work.wgmma / Fraction(sm.get("wgmma_flops", 1))
    seconds = {
        "tensor": heads * tensor_cycles / cycles,
        "mufu": heads * work.exp2 / (sm["exp2"] * cycles),
        "fp32": (max(0, products) / 2 + SOFTMAX_OPERATIONS * scores) / (sm["fma"] * cycles),
        "l1": heads * work.wavefronts * WAVEFRONT / (sm["l1_bytes"] * cycles),
        "l2": (heads * work.stored + loaded) / (machine["tb_per_s"].get("l2", math.inf) * 1e12),
        "hbm": moved / (machine["tb_per_s"]["hbm"] * 1e12),
    }
    if "l2" not in machine["tb_per_s"]:  # it is not published of every GPU
        del seconds["l2"]
    return {resource: float(value) for resource, value in seconds.items()}


def runs_on(kernel, machine):
    return "wgmma_flops" in machine["sm"] or not any(counts["kind"] == "wgmma" for record in kernel.records.values()
                                                     for counts in record["statements"])


def bound_of(kernel, shape, machine, workspace_bytes=None):
    """The Bound of a Kernel, which runs on the machine, on a problem; None if its counts for that length are not known."""
    work = kernel.work(shape.seq_len, shape.dtype)
    if work is None:
        return None
    return Bound(kernel.name, shape, seconds_of(work, shape, machine, kernel.shared_bytes, workspace_bytes),
                 kernel.shared_bytes)


def first_limiter(seconds):
    return max(seconds, key=seconds.get)


def tflops_of(shape, seconds):
    return attention_flops(*shape[1:5]) / seconds * 1e-12


# --- Measured ---------------------------------------------------------------------------------------------------


def measured(files, gpu, stale=False):
    """{(kernel, shape): record of the first file that has one} of this GPU in results files (data, as loaded); those of
    kernels that have changed since are left out, or are all."""
    found = {}
    for data in files:
        if data["machine"].get("gpu") != gpu:
            continue
        for record in data["records"]:
            if passed(record) and is_plain(record) and kind(record["kernel"]) == "kernel" and is_stale(record) == stale:
                found.setdefault((record["kernel"], shape_of(record)), record)
    return found
