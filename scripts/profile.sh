#!/usr/bin/env bash
# Profiles one kernel with Nsight Compute and prints what matters of it; scripts/profile.py does the work.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=scripts/lib/backend.sh
. "$ROOT/scripts/lib/backend.sh"

usage() {
  cat <<'HELP'
Usage: scripts/profile.sh NN [options]

Builds the kernels for the GPU present, runs kernel NN under ncu and prints the figures that the chapters discuss,
each with what it tells: Tensor Cores, issue slots, registers, occupancy, traffic, bank conflicts, stalls.

Examples:
  scripts/profile.sh 10                                          batch 1, 16 heads, seq_len 2048, head_dim 128, bf16
  scripts/profile.sh 08 --seq-len 4096 --head-dim 64 --dtype fp16
  scripts/profile.sh 08 --from bench/results/h200_profile.json   figures of a committed profile, without a GPU

Options:
  --from FILE      show a profile made before; nothing is built or run
  --json FILE      write the figures to a file, too (the form of bench/results/h200_profile.json)
  --report FILE    write a report with ncu's sections, too, to open with ncu-ui
  --program PATH   a program built before, instead of building
  --batch N  --heads N  --seq-len N  --head-dim 64|128  --dtype fp16|bf16     the problem
  --help           this text

Exit code: 0 done, 2 bad arguments or file, 3 no GPU, or ncu failed, 4 set-up or build failed.
HELP
}

kernel='' program='' from=0
args=()
while (($#)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --program | --from | --json | --report | --batch | --heads | --seq-len | --head-dim | --dtype)
      (($# >= 2)) || die "$EXIT_USAGE" "$1 needs a value; scripts/profile.sh --help shows them"
      case $1 in
        --program) program=$2 ;;
        --from) from=1 args+=("$1" "$2") ;;
        *) args+=("$1" "$2") ;;
      esac
      shift
      ;;
    -*) die "$EXIT_USAGE" "there is no option $1; scripts/profile.sh --help shows them" ;;
    *)
      [[ -z $kernel ]] || die "$EXIT_USAGE" "one kernel at a time, not $kernel and $1"
      kernel=$1
      ;;
  esac
  shift
done
have python3 || die "$EXIT_SETUP" "scripts/profile.sh needs python3"
[[ -n $kernel ]] || die "$EXIT_USAGE" "which kernel? e.g. scripts/profile.sh 10"

if ((!from)) && [[ -z $program ]]; then
  detect_gpu || die 3 "no NVIDIA GPU answers through nvidia-smi; --from FILE shows figures of a profile made elsewhere"
  have ncu || die 3 "ncu (Nsight Compute, part of the CUDA toolkit) is not on the PATH"
  # Nothing but the program for this GPU is wanted of run.sh, which finds or fetches the compiler.
  "$ROOT/scripts/run.sh" --backend cuda --compile-only --no-charts >&2
  program=$ROOT/build/cuda/bin/attention
fi
exec python3 -B "$ROOT/scripts/profile.py" ${program:+"$program"} --kernel "$kernel" "${args[@]}"
