#!/usr/bin/env bash
# Compares the emulator's counts with the profiler's on a GPU; scripts/agree.py does the work.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=scripts/lib/backend.sh
. "$ROOT/scripts/lib/backend.sh"

measure=0 program=''
args=()
while (($#)); do
  case $1 in
    --measure) measure=1 ;;
    --program)
      (($# >= 2)) || die "$EXIT_USAGE" "$1 needs a value; scripts/agree.sh --help shows them"
      program=$2
      shift
      ;;
    *) args+=("$1") ;;
  esac
  shift
done
have python3 || die "$EXIT_SETUP" "scripts/agree.sh needs python3"
if ((measure)) && [[ -z $program ]]; then
  detect_gpu || die 3 "no NVIDIA GPU answers through nvidia-smi; without --measure the committed profiles are compared"
  have ncu || die 3 "ncu (Nsight Compute, part of the CUDA toolkit) is not on the PATH"
  # Nothing but the program for this GPU is wanted of run.sh, which finds or fetches the compiler.
  "$ROOT/scripts/run.sh" --backend cuda --compile-only --no-charts >&2
  program=$ROOT/build/cuda/bin/attention
fi
((!measure)) || args+=(--measure "$program")
exec python3 -B "$ROOT/scripts/agree.py" "${args[@]}"
