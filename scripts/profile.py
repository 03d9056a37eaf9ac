#!/usr/bin/env python3
"""Profiles every kernel of a program with Nsight Compute and writes the figures that the chapters discuss.

Example:
  scripts/profile.py build/cuda/bin/attention -o bench/results/h200_profile.json

Needs a GPU and ncu. The clocks are left as they are: cycles and counts are comparable between machines,
times are not. Each CUDA kernel is profiled once, on the shape given (default: batch 1, 16 heads,
seq_len 2048, head_dim 128, bf16).
"""
import argparse
import csv
import json
import os
import subprocess
import sys

# Name in our files: ncu's metric.
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


def profile(program, kernel, shape):
    """One entry for each CUDA kernel that `kernel` launches, in order."""
    command = ["ncu", "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base",
               "--metrics", ",".join(METRICS.values()), program, kernel, "--warmup", "0", "--iters", "1", *shape]
    run = subprocess.run(command, capture_output=True, text=True)
    rows = list(csv.reader(line for line in run.stdout.splitlines() if line.startswith('"')))
    if run.returncode != 0 or len(rows) < 3:
        sys.exit(f"error: ncu could not profile {kernel}: {(run.stderr or run.stdout).strip()[-300:]}")
    header, launches, entries = rows[0], rows[2:], []
    for launch in launches:  # rows[1] has the units; repeats of the same kernel are left out
        function = launch[header.index("Kernel Name")].split("<")[0].split("(")[0].split()[-1]
        if any(entry["function"] == function for entry in entries):
            continue
        values = {ours: float(launch[header.index(theirs)].replace(",", "")) for ours, theirs in METRICS.items()}
        entries.append({"kernel": kernel, "function": function,
                        "metrics": {name: int(v) if v == int(v) else round(v, 3) for name, v in values.items()}})
    return entries


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="a program built for the GPU present")
    parser.add_argument("-o", "--output", required=True, help="the JSON file to write")
    for name, default in (("batch", 1), ("heads", 16), ("seq-len", 2048), ("head-dim", 128)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    parser.add_argument("--dtype", default="bf16", choices=["fp16", "bf16"])
    arguments = parser.parse_args()
    if not os.access(arguments.program, os.X_OK):
        sys.exit(f"error: {arguments.program} is not a program that can be run")
    shape = {"dtype": arguments.dtype, "batch": arguments.batch, "heads": arguments.heads,
             "seq_len": arguments.seq_len, "head_dim": arguments.head_dim}
    options = [text for name, value in shape.items() for text in ("--" + name.replace("_", "-"), str(value))]
    kernels = subprocess.run([arguments.program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    entries = []
    for kernel in kernels:
        print(f"profiling {kernel} ...", file=sys.stderr)
        entries += profile(arguments.program, kernel, options)
    gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                         capture_output=True, text=True).stdout.strip().splitlines()[0]
    result = {"profile_version": 1, "gpu": gpu.split(", ")[0], "driver": gpu.split(", ")[1], **shape, "launches": entries}
    with open(arguments.output + ".tmp", "w") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    os.replace(arguments.output + ".tmp", arguments.output)


if __name__ == "__main__":
    main()
