#!/usr/bin/env bash
# Measures what a write-up measured, and prints and draws its figures beside ours: scripts/bench.sh measures,
# scripts/reproduce.py compares with bench/published.json.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=scripts/lib/packages.sh
. "$ROOT/scripts/lib/packages.sh"
# shellcheck source=scripts/lib/backend.sh
. "$ROOT/scripts/lib/backend.sh"

usage() {
  cat <<'HELP'
Usage: scripts/reproduce.sh from-scratch|fa3-paper|leetcuda [KERNEL ...] [options]

Builds the kernels, runs the protocol of the write-up beside other libraries (scripts/bench.sh), then prints published
against measured: percent of FlashAttention-2 a kernel, TFLOP/s in both countings of operations, harmonic means, what
corresponds to what, and how the GPUs differ; and draws it.

  from-scratch   Flash Attention from Scratch: its 16 kernels on A100 and RTX 3090
  fa3-paper      the FlashAttention-3 paper: forward fp16 on H100, head_dim 128 and 64, and its ablation
  leetcuda       LeetCUDA's README: B=1 H=8 N=8192 D=64 on RTX 3080 Laptop

Examples:
  scripts/reproduce.sh from-scratch                      every kernel: minutes to an hour, as slow as the slowest
  scripts/reproduce.sh leetcuda 05 06 07 09 10           five kernels
  scripts/reproduce.sh fa3-paper --results mine.json     measured before, or elsewhere: no GPU is needed

Options:
  --results FILE   compare with what was measured before (scripts/bench.sh --protocol NAME --json FILE)
  --output DIR     folder of the charts (default: results, or RESULTS_DIR)
  --no-charts      print only
  --help           this text
Without --results everything else goes to scripts/bench.sh; the results are kept beside the charts.

Exit code: 0 done, 1 wrong results, 2 bad arguments or file, 3 no GPU, or it failed, 4 set-up or build failed.
HELP
}

name='' results='' output=${RESULTS_DIR:-$ROOT/results} charts=1
args=()
while (($#)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --results | --output | -o)
      (($# >= 2)) || die "$EXIT_USAGE" "$1 needs a value; scripts/reproduce.sh --help shows them"
      if [[ $1 == --results ]]; then results=$2; else output=$2; fi
      shift
      ;;
    --no-charts) charts=0 ;;
    --json | --json=* | --protocol | --protocol=*) die "$EXIT_USAGE" "${1%%=*} is for scripts/bench.sh" ;;
    *) if [[ -z $name ]]; then name=$1; else args+=("$1"); fi ;;
  esac
  shift
done
have python3 || die "$EXIT_SETUP" "scripts/reproduce.sh needs python3"
[[ -n $name ]] || die "$EXIT_USAGE" "which publication? from-scratch, fa3-paper or leetcuda"
compare=(python3 -B "$ROOT/scripts/reproduce.py" "$name")
if [[ -n $results ]]; then
  ((${#args[@]} == 0)) || die "$EXIT_USAGE" "with --results nothing is measured: '${args[*]}' has no meaning"
  compare+=(--results "$results")
fi
"${compare[@]}" --check

rc=0
if [[ -z $results ]]; then
  detect_gpu || die 3 "no NVIDIA GPU answers through nvidia-smi; --results FILE takes what was measured elsewhere"
  results=$(new_results_file "$output" "$name")
  "$ROOT/scripts/bench.sh" --protocol "$name" --json "$results" "${args[@]}" || rc=$?
  # Without a file there is nothing to compare, and bench.sh has said why.
  [[ -f $results ]] || exit "$rc"
  say ''
  compare+=(--results "$results")
fi
if ((charts)); then ensure_venv || charts=0; fi
((charts)) || compare+=(--no-charts)
"${compare[@]}" --output "$output"
exit "$rc"
