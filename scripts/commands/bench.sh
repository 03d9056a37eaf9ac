#!/usr/bin/env bash
# Measures the kernels beside other libraries on the GPU present: builds, then runs fa_tools/product/bench.py.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"
# shellcheck source=scripts/lib/packages.sh
. "$ROOT/scripts/lib/packages.sh"
# shellcheck source=scripts/lib/backend.sh
. "$ROOT/scripts/lib/backend.sh"
# shellcheck source=scripts/lib/build.sh
. "$ROOT/scripts/lib/build.sh"

usage() {
  cat <<'HELP'
Usage: scripts/fa bench [--protocol quick|from-scratch|fa3-paper|leetcuda]
                        [KERNEL ...] [options]

Builds the kernels for the GPU present, then measures them in rounds beside
PyTorch's FlashAttention-2 and cuDNN, FlashAttention-3 and -4, cuDNN from C++,
and the ceilings of a matrix product and a copy: whichever are here. Writes
results/<time>-bench.json and prints a table.

Examples:
  scripts/fa bench
      every kernel, protocol quick
  scripts/fa bench --protocol from-scratch 08 10
      two kernels by the protocol of a write-up
  scripts/fa bench --protocol fa3-paper --repeat 2
      everything twice, and how far the ratios spread
  scripts/fa bench --peers none --seq-len 1024,2048
      a problem of your own, without other libraries
  scripts/fa bench --resume results/mine.json
      the problems that an interrupted run has not measured

Options:
  --toolkit auto|system|wheels  which nvcc: the machine's, or the one from
                                NVIDIA's Python wheels in .toolkit
  --json FILE                   where the results go
  --library FILE                a library fa_bench that was built before:
                                nothing is built
  --help                        this text
Everything else chooses what is measured, and is listed below.

Environment: PYTHON (the one with PyTorch; python3), RESULTS_DIR (where results
go; results/ of the checkout), CUDAARCHS (architectures to build for).
Exit code: 0 all passed or were skipped, 1 wrong results, 2 bad arguments, 3 the
GPU or a library failed, 4 set-up or build failed, 130 interrupted.
HELP
}

toolkit=auto json=''
typed=() all=("$@")
while (($#)); do
  case $1 in
    -h | --help)
      usage
      say ''
      python_part "${PYTHON:-python3}" product.bench --help
      exit 0
      ;;
    --toolkit)
      (($# >= 2)) || die "$EXIT_USAGE" "--toolkit needs a value; scripts/fa bench --help shows them"
      toolkit=$2
      shift
      ;;
    --toolkit=*) toolkit=${1#*=} ;;
    --json)
      (($# >= 2)) || die "$EXIT_USAGE" "--json needs a file name"
      json=$2
      typed+=("$1" "$2")
      shift
      ;;
    --json=*)
      json=${1#*=}
      typed+=("$1")
      ;;
    --resume | --resume=*) # has a file
      json=resumed
      typed+=("$1")
      ;;
    --library | --library=*) # built before
      become_python_part "${PYTHON:-python3}" product.bench "${all[@]}"
      ;;
    *) typed+=("$1") ;;
  esac
  shift
done
case $toolkit in
  auto | system | wheels) ;;
  *) die "$EXIT_USAGE" "--toolkit takes one of auto, system, wheels, not '$toolkit'" ;;
esac
python=${PYTHON:-python3}
have "$python" || die "$EXIT_SETUP" "there is no $python; PYTHON names the one to use"

# Before minutes of building: is there a GPU, and are the arguments good?
python_part "$python" product.bench --check --library none --typed "${typed[@]}"
detect_gpu || die 3 "no NVIDIA GPU answers through nvidia-smi, and nothing else is worth measuring;" \
  "scripts/run.sh runs the kernels on the emulator"

choose_backend cuda "$toolkit" 0
ensure_packages run "$BACKEND"
configure_cuda
build cuda fa_bench

added=()
if [[ -z $json ]]; then
  json=$(new_results_file "${RESULTS_DIR:-$ROOT/results}" bench)
  added=(--json "$json")
fi
become_python_part "$python" product.bench --library "$ROOT/build/cuda/lib/libfa_bench.so" "${added[@]}" --typed "${typed[@]}"
