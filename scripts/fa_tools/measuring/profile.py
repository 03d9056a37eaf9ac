"""Profiles a kernel with Nsight Compute and prints the figures that the chapters discuss, each with what it tells.

Builds the kernels for the GPU present first; with --from it shows figures of a file instead, without a GPU. `all`
profiles every kernel into a file. Needs a GPU and ncu. The clocks are left as they are: cycles and counts are
comparable between machines, times are not. Each CUDA kernel is profiled once, on the shape given (default: batch 1,
16 heads, seq_len 2048, head_dim 128, bf16)."""

import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

from fa_tools.cards import BOOK
from fa_tools.for_readers.torch_attention import PEERS
from fa_tools.numbers import amount, grouped, percent
from fa_tools.records import short_name
from fa_tools.sources import kernel_names
from fa_tools.tools import ROOT, Parser, Refused, check_writable, fail, named, read_json, write_json

EXAMPLE = f"""examples:
  scripts/fa profile 10                         one kernel, each figure with what it tells
  scripts/fa profile 08 --seq-len 4096 --dtype fp16 --json swizzle.json
  scripts/fa profile 08 --from bench/results/{BOOK}/profile.json           without a GPU
  scripts/fa profile all --json bench/results/{BOOK}/profile.json
  scripts/fa profile peer/fa3                   a library, called by PyTorch (PYTHON names the Python)

Exit code: 0 done, 2 bad arguments or file, 3 no GPU, or ncu failed, 4 set-up or build failed."""

VERSION = 1
DEFAULTS = {"dtype": "bf16", "batch": 1, "heads": 16, "seq_len": 2048, "head_dim": 128}
SHAPE = tuple(DEFAULTS)

# Name in our files: ncu's metric. Every profile has these.
METRICS = {
    "cycles": "sm__cycles_elapsed.max",
    "instructions": "smsp__inst_executed.sum",
    "fma_instructions": "smsp__inst_executed_pipe_fma.sum",
    "issue_active_percent": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "warps_active_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "global_load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global_store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "global_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l2_sectors": "lts__t_sectors.sum",
    "dram_bytes": "dram__bytes.sum",
    "shared_load_instructions": "smsp__inst_executed_op_shared_ld.sum",
    "shared_store_instructions": "smsp__inst_executed_op_shared_st.sum",
    "shared_load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_store_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "shared_wavefronts_percent": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "stall_long_scoreboard": "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "stall_short_scoreboard": "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio",
    "stall_mio_throttle": "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio",
    "stall_lg_throttle": "smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio",
    "stall_barrier": "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "stall_dispatch": "smsp__average_warps_issue_stalled_dispatch_stall_per_issue_active.ratio",
    "stall_wait": "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",
    "stall_not_selected": "smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio",
}

# Those that older files lack, and that another GPU or ncu may not have: taken where they are.
OPTIONAL = {
    "tensor_active_percent": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "tensor_mma_instructions": "sm__inst_executed_pipe_tensor_op_hmma.sum",  # counts wgmma, too
    "tensor_wgmma_instructions": "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "xu_percent": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "ldmatrix_instructions": "smsp__inst_executed_op_ldsm.sum",
    "cp_async_instructions": "smsp__inst_executed_op_ldgsts.sum",
    # TMA goes past the pipe of loads and stores (LSU): none of the metrics of global loads and stores sees it.
    "tma_load_instructions": "smsp__sass_inst_executed_op_tma_ld.sum",
    "tma_load_bytes": "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum",
    "tma_store_instructions": "smsp__sass_inst_executed_op_tma_st.sum",
    "tma_store_bytes": "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum",
    "shared_load_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "shared_store_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "l1_wavefronts": "l1tex__data_pipe_lsu_wavefronts.sum",
    "l1_bank_reads_percent": "l1tex__data_bank_reads.avg.pct_of_peak_sustained_elapsed",
    "l1_bank_writes_percent": "l1tex__data_bank_writes.avg.pct_of_peak_sustained_elapsed",
    # How busy each part was over the whole launch: scripts/fa agree compares the busiest with the emulator's bounds.
    "issue_percent": "smsp__issue_active.avg.pct_of_peak_sustained_elapsed",
    "tensor_percent": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "hmma_percent": "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "hmma_issue_percent": "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_elapsed",
    "xu_elapsed_percent": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed",
    "fma_percent": "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_elapsed",
    "alu_percent": "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_elapsed",
    "lsu_percent": "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_elapsed",
    "l2_percent": "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "l2_throughput_percent": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_hit_percent": "lts__t_sector_hit_rate.pct",
    "dram_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "warps_possible_percent": "sm__maximum_warps_per_active_cycle_pct",
    "registers": "launch__registers_per_thread",
    "shared_memory_static_bytes": "launch__shared_mem_per_block_static",
    "shared_memory_dynamic_bytes": "launch__shared_mem_per_block_dynamic",
    "stall_math_pipe_throttle": "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio",
    "stall_wgmma": "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio",
    "stall_no_instruction": "smsp__average_warps_issue_stalled_no_instruction_per_issue_active.ratio",
}

# ncu's sections that go into --report beside these metrics: what the chapters discuss, to open in its own window.
SECTIONS = ("SpeedOfLight", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables",
            "SchedulerStats", "WarpStateStats", "InstructionStats", "LaunchStats", "Occupancy", "SourceCounters")

STALLS = {  # what a warp waited for
    "long_scoreboard": "global or local memory, or an mbarrier",
    "short_scoreboard": "shared memory, or an exponential",
    "mio_throttle": "room in the queue to shared memory and XU",
    "lg_throttle": "room in the queue to global memory",
    "barrier": "the other warps, at a barrier",
    "dispatch": "the dispatcher",
    "wait": "the fixed latency of an instruction before",
    "not_selected": "nothing: ready, but another warp was taken",
    "math_pipe_throttle": "a busy pipe: FMA, XU, Tensor Cores",
    "wgmma": "perhaps the warps of its group, at a wgmma",
    "no_instruction": "its next instruction, to be fetched",
}


# --- Files -----------------------------------------------------------------------------------------------------


def is_number(value):
    return not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value) and value >= 0


def read_profile(path):
    """A profile of a version known here, or Refused with one sentence. Optional metrics may be missing, or unknown."""
    data = read_json(path)
    if not isinstance(data, dict) or "profile_version" not in data:
        raise Refused("is not a profile (no profile_version)")
    if data["profile_version"] != VERSION or isinstance(data["profile_version"], bool):
        raise Refused(f"has profile version {json.dumps(data['profile_version'])}, but this checkout reads {VERSION}")
    for field, kind in {"gpu": str, **{f: type(v) for f, v in DEFAULTS.items()}, "launches": list}.items():
        if not isinstance(data.get(field), kind) or isinstance(data[field], bool):
            raise Refused(f"is not a whole profile: '{field}' is missing or of another type")
    for i, launch in enumerate(data["launches"]):
        names = launch if isinstance(launch, dict) else {}
        metrics = names.get("metrics")
        if not isinstance(names.get("kernel"), str) or not isinstance(names.get("function"), str) \
                or not isinstance(metrics, dict):
            raise Refused(f"is not a whole profile: launches[{i}] lacks its kernel, function or metrics")
        for metric in METRICS:
            if metric not in metrics:
                raise Refused(f"is not a whole profile: launches[{i}] lacks {metric}")
        for metric, value in metrics.items():
            if not is_number(value) or metric == "cycles" and value == 0:
                raise Refused(f"is not a profile to be used: launches[{i}] has {json.dumps(value)[:40]} for {metric}")
    return data


# --- ncu -------------------------------------------------------------------------------------------------------


def call(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        fail(f"{command[0]} cannot be run", 3)


def run_ncu(before, after, kernel, optional):
    """Runs ncu, with the metrics between its other arguments; (its output, the optional metrics that it took).
    If it does not know some of them, it runs once more without those: a name may be new, or gone."""
    while True:
        done = call(["ncu", *before, "--metrics", ",".join([*METRICS.values(), *optional.values()]), *after])
        said = done.stdout + done.stderr
        if done.returncode == 0:
            return done.stdout, optional
        unknown = {name for name, metric in optional.items() if re.search(rf"{metric.split('.')[0]}\b", said)}
        if not re.search(r"\bmetrics?\b", said) or not optional:
            reason = next((line for line in said.splitlines() if line.startswith("==ERROR==")), said.strip()[-300:])
            fail(f"ncu could not profile {kernel}: {' '.join(reason.split()) or f'exit code {done.returncode}'}", 3)
        unknown = unknown or set(optional)
        print(f"note: left out, ncu does not know them here: {', '.join(sorted(unknown))}", file=sys.stderr)
        optional = {ours: theirs for ours, theirs in optional.items() if ours not in unknown}


def number(text):
    """What ncu writes for a figure; None for n/a and nan."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) else round(value, 3)


def entries_of(page, kernel, optional):
    """One entry for each CUDA kernel of ncu's raw page, in order; repeats of the same one are left out, and the harness's
    own kernels (common/harness/changes.cu)."""
    rows = list(csv.reader(line for line in page.splitlines() if line.startswith('"')))
    header, launches, entries = rows[0] if rows else [], rows[2:], []  # rows[1] has the units
    missing = [theirs for theirs in ("Kernel Name", *METRICS.values()) if theirs not in header]
    if missing or not launches:
        fail(f"ncu could not profile {kernel}: it gave no {missing[0] if missing else 'launch'}", 3)
    for launch in launches:
        cell = dict(zip(header, launch))
        function = cell["Kernel Name"].split("<")[0].split("(")[0].split()[-1].split("::")[-1]
        if function.startswith("harness_") or any(entry["function"] == function for entry in entries):
            continue
        values = {ours: number(cell.get(theirs, "")) for ours, theirs in {**METRICS, **optional}.items()}
        for ours, theirs in METRICS.items():
            if values[ours] is None:
                fail(f"ncu could not profile {kernel}: it gave '{cell.get(theirs, '')}' for {theirs}", 3)
        entries.append({"kernel": kernel, "function": function,
                        "metrics": {ours: value for ours, value in values.items() if value is not None}})
    return entries or fail(f"ncu could not profile {kernel}: it gave no launch", 3)


def profile(program, kernel, problem, optional, report=None):
    """One entry for each CUDA kernel that `kernel` launches, in order; and the optional metrics that ncu knows."""
    page = ["--csv", "--page", "raw", "--print-units", "base"]
    shape = [text for name, value in problem.items() for text in ("--" + name.replace("_", "-"), str(value))]
    with tempfile.TemporaryDirectory(prefix="profile-") as folder:
        results = Path(folder) / "results.json"
        how, launch = ["--clock-control", "none"], [program, kernel, "--warmup", "0", "--iters", "1", *shape, "--json", str(results)]
        if kernel.startswith("peer/"):
            how += ["--profile-from-start", "off"]
            launch = [program, "-c", "from fa_tools.for_readers import torch_attention\n"
                      f"torch_attention.launch_once({kernel[5:]!r}, {problem!r})"]
        if not report:
            text, optional = run_ncu([*how, *page], launch, kernel, optional)
        else:
            sections = [word for section in SECTIONS for word in ("--section", section)]
            _, optional = run_ncu([*how, "-o", str(report), "-f", *sections], launch, kernel, optional)
            done = call(["ncu", "--import", str(report), *page])
            text = done.stdout if done.returncode == 0 else ""
        # Which source was profiled, the program alone knows.
        records = read_json(results)["records"] if results.exists() else []
    source = {"source": record["source"] for record in records if "source" in record}
    return [{"kernel": kernel, **source, **entry} for entry in entries_of(text, kernel, optional)], optional


def gpu_present():
    """(name, driver)"""
    first = call(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]).stdout.partition("\n")[0]
    name, _, driver = first.rpartition(", ")
    return (name, driver) if name else fail("no NVIDIA GPU answers through nvidia-smi; --from FILE takes a profile made elsewhere", 3)


def built_program():
    """The program with all kernels, for the GPU present; scripts/run.sh finds or fetches the compiler."""
    gpu_present()
    if not shutil.which("ncu"):
        fail("ncu (Nsight Compute, part of the CUDA toolkit) is not on the PATH", 3)
    build = [ROOT / "scripts" / "run.sh", "--backend", "cuda", "--compile-only", "--no-charts"]
    if code := subprocess.run(build, stdout=sys.stderr, check=False).returncode:
        raise SystemExit(code)
    return str(ROOT / "build" / "cuda" / "bin" / "attention")


def measure(program, kernels, shape, report=None):
    """A profile of these kernels on the GPU present."""
    name, driver = gpu_present()
    entries, optional, began = [], OPTIONAL, time.monotonic()
    for i, kernel in enumerate(kernels):
        print(f"profiling {kernel} ({i + 1} of {len(kernels)}, {time.monotonic() - began:.0f} s) ...", file=sys.stderr)
        new, optional = profile(program, kernel, shape, optional, report)
        entries += new
    return {"profile_version": VERSION, "gpu": name, "driver": driver, **shape, "launches": entries}


def kernels_of(program):
    if not os.access(program, os.X_OK) or os.path.isdir(program):
        fail(f"{program} is not a program that can be run; scripts/run.sh --compile-only builds it")
    done = call([program, "--list"])
    if done.returncode != 0 or not done.stdout.split():
        fail(f"{program} is not a program of this repository: it does not list its kernels")
    return done.stdout.split()


def choose(wish, known, where):
    """The kernel that is meant by 10, 10_instruction_tuning; or peer/fa3."""
    name = next((kernel for kernel in known if wish in (kernel, short_name(kernel))), None)
    return name or fail(f"there is no kernel {wish} in {where}; it has {', '.join(dict.fromkeys(known))}")


# --- What the figures tell -------------------------------------------------------------------------------------


def traffic(way):
    def text(m):
        requests, sectors = m[f"global_{way}_requests"], m[f"global_{way}_sectors"]
        return f"{amount(requests)} x {sectors / requests:.1f}" if requests else "none"
    return text


def tma(way):
    def text(m):
        count, moved = m[f"tma_{way}_instructions"], m[f"tma_{way}_bytes"]
        return f"{amount(count)} x {moved / count / 1024:.0f} KiB" if count else "none"
    return text


def conflicts(m):
    extra = m["shared_load_conflicts"] + m["shared_store_conflicts"]
    wavefronts = m["shared_load_wavefronts"] + m["shared_store_wavefronts"]
    return f"{amount(extra)} ({percent(extra, max(wavefronts, extra), '.0f')})" if extra else "none"


def beside(m, metric, text):
    """Text of a metric that not every profile has."""
    return text.format(m[metric]) if metric in m else ""


# (heading, metrics it needs, text of a launch's metrics, what it tells): at most 24, 16 and 54 columns.
FIGURES = [
    ("Cycles", ["cycles"], lambda m: grouped(m["cycles"]),
     "from first to last; what a step has to lower"),
    ("Tensor pipe active", ["tensor_active_percent"], lambda m: percent(m["tensor_active_percent"], 100),
     "of the cycles; at 100 the Tensor Cores never wait"),
    ("  mma / wgmma", ["tensor_mma_instructions", "tensor_wgmma_instructions"],
     lambda m: f"{amount(max(0, m['tensor_mma_instructions'] - m['tensor_wgmma_instructions']))} / "
               f"{amount(m['tensor_wgmma_instructions'])}",
     "of warps; none: the CUDA cores do the products"),
    ("Issue slots used", ["issue_active_percent"], lambda m: percent(m["issue_active_percent"], 100),
     "near 100: too many instructions; low: warps wait"),
    ("Instructions", ["instructions"], lambda m: amount(m["instructions"]),
     "of warps; all but the products are overhead"),
    ("  on the FMA pipe", ["fma_instructions"], lambda m: amount(m["fma_instructions"]),
     "fp32; without Tensor Cores the products, too"),
    ("  XU pipe busy", ["xu_percent"], lambda m: percent(m["xu_percent"], 100),
     "exponentials, conversions; at 100 they are the limit"),
    ("Warps resident", ["warps_active_percent"],
     lambda m: percent(m["warps_active_percent"], 100) + beside(m, "warps_possible_percent", " of {:.0f}"),
     "of 64; beside it what registers and memory allow"),
    ("Registers a thread", ["registers"], lambda m: grouped(m["registers"]),
     "an SM has 65,536: 128 a thread leave room for 16 warps"),
    ("Shared memory a CTA", ["shared_memory_static_bytes", "shared_memory_dynamic_bytes"],
     lambda m: f"{(m['shared_memory_static_bytes'] + m['shared_memory_dynamic_bytes']) / 1024:.1f} KiB",
     "an SM of Hopper has 228 KiB"),
    ("Global loads", ["global_load_requests", "global_load_sectors"], traffic("load"),
     "requests of warps x sectors of 32 bytes for each;"),
    ("Global stores", ["global_store_requests", "global_store_sectors"], traffic("store"),
     "16 are ideal with 16 bytes a lane, 4 with 4 bytes"),
    ("TMA loads", ["tma_load_instructions", "tma_load_bytes"], tma("load"),
     "one thread's instructions x what each brings; apart"),
    ("TMA stores", ["tma_store_instructions", "tma_store_bytes"], tma("store"),
     "from the loads and stores of threads above"),
    ("L2 sectors", ["l2_sectors"], lambda m: amount(m["l2_sectors"]) + beside(m, "l2_hit_percent", ", {:.0f} % hit"),
     "of 32 bytes, asked of L2"),
    ("DRAM traffic", ["dram_bytes"], lambda m: f"{amount(m['dram_bytes'])}B" + beside(m, "dram_percent", ", {:.0f} %"),
     "read and written, in bytes; and how busy DRAM was"),
    ("Shared load wavefronts", ["shared_load_wavefronts"], lambda m: amount(m["shared_load_wavefronts"]),
     "cycles of shared memory for loads; ldmatrix.x4 takes 4"),
    ("Shared store wavefronts", ["shared_store_wavefronts"], lambda m: amount(m["shared_store_wavefronts"]),
     "the same for stores, without those of cp.async"),
    ("  bank conflicts", ["shared_load_conflicts", "shared_store_conflicts"], conflicts,
     "of these wavefronts: what a better layout saves"),
    ("L1/shared pipe busy", ["shared_wavefronts_percent"], lambda m: percent(m["shared_wavefronts_percent"], 100),
     "near 100: L1 and shared memory are the limit"),
]


def describe(launch):
    """Lines of at most 100 columns: the figures of one launch, each with what it tells; then its stalls."""
    metrics = launch["metrics"]
    lines, missing = [], []
    for heading, needs, text, tells in FIGURES:
        if all(metric in metrics for metric in needs):
            lines.append(f"  {heading:<24} {text(metrics):>16}   {tells}")
        else:
            missing.append(heading.strip())
    stalls = sorted(((value, name[6:]) for name, value in metrics.items()
                     if name.startswith("stall_") and name[6:] in STALLS), key=lambda stall: (-stall[0], stall[1]))
    lines.append("  Warps that waited while one issued, on average")
    for value, name in stalls[:5]:
        lines.append(f"    {name.replace('_', ' '):<22} {value:>16.2f}   {STALLS[name]}")
    return lines, missing


def show(data, kernel):
    launches = [launch for launch in data["launches"] if launch["kernel"] == kernel]
    heads = f"{data['heads']} head" + "s" * (data["heads"] != 1)
    print(f"{kernel} on {data['gpu']}: {data['dtype']}, batch {data['batch']}, {heads}, {data['seq_len']} tokens, "
          f"head_dim {data['head_dim']}")
    absent = []
    for launch in launches:
        lines, missing = describe(launch)
        print(f"\n{launch['function']}")
        print("\n".join(lines))
        absent += [name for name in missing if name not in absent]
    if absent:
        print()
        print(textwrap.fill(f"Not in this profile: {', '.join(absent)}; scripts/fa profile {kernel[:2]} measures them.", 100))


# --- Command line ----------------------------------------------------------------------------------------------


def main(argv=None):
    parser = Parser("profile", __doc__, EXAMPLE)
    add = parser.add_argument
    add("kernel", metavar="NN", help="the kernel (08, 08_swizzle), a library (peer/fa3), or all kernels (all)")
    add("--from", dest="source", metavar="FILE", help="the figures of a profile made before; nothing is built or run")
    add("--program", metavar="PATH", help="a program built before, instead of building")
    add("--json", dest="output", metavar="FILE", help="write the figures to a file, too")
    add("--report", metavar="FILE", type=Path, help="write a report of ncu's sections, too, to open with ncu-ui")
    for field in ("batch", "heads", "seq_len"):
        add("--" + field.replace("_", "-"), type=int, metavar="N", help=f"default {DEFAULTS[field]}")
    add("--head-dim", type=int, choices=(64, 128), help="default 128")
    add("--dtype", choices=("fp16", "bf16"), help="default bf16")
    args = parser.parse_args(argv)
    given = {field: getattr(args, field) for field in SHAPE if getattr(args, field) is not None}
    shape = {**DEFAULTS, **given}
    if min(shape["batch"], shape["heads"], shape["seq_len"]) < 1 or shape["seq_len"] % 128:
        fail("--batch and --heads are at least 1, --seq-len is a multiple of 128 (see --help)")
    if args.source and (args.program or args.report or args.kernel == "all"):
        fail("--from takes a kernel, and neither --program nor --report (see --help)")
    if args.source and given:
        fail("--from shows the problem that the file has; it takes no other")
    if args.kernel == "all" and (args.report or not args.output):
        fail("all kernels need a file, --json FILE, and make no --report (see --help)")
    for path in filter(None, (args.output, args.report)):
        check_writable(path)
    if args.report and args.report.suffix != ".ncu-rep":
        args.report = args.report.with_name(args.report.name + ".ncu-rep")  # as ncu does
    if args.source:
        with named(args.source):
            data = read_profile(args.source)
        kernel = choose(args.kernel, [launch["kernel"] for launch in data["launches"]], args.source)
        data["launches"] = [launch for launch in data["launches"] if launch["kernel"] == kernel]
    else:
        if args.kernel.startswith("peer/"):
            program, known = os.environ.get("PYTHON", "python3"), [f"peer/{name}" for name in PEERS]
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT / "scripts"), os.environ.get("PYTHONPATH"))))
        else:
            if args.kernel != "all" and not args.program:
                choose(args.kernel, kernel_names(), "kernels")
            program = args.program or built_program()
            known = kernels_of(program)
        data = measure(program, known if args.kernel == "all" else [choose(args.kernel, known, program)], shape, args.report)
    if args.kernel != "all":
        show(data, data["launches"][0]["kernel"])
    if args.output:
        write_json(args.output, data)
    return 0
