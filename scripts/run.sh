#!/usr/bin/env bash
# Runs the ladder: sets up what is missing, builds, runs the kernels, writes results and draws them.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=scripts/lib/packages.sh
. "$ROOT/scripts/lib/packages.sh"
# shellcheck source=scripts/lib/backend.sh
. "$ROOT/scripts/lib/backend.sh"
# shellcheck source=scripts/lib/build.sh
. "$ROOT/scripts/lib/build.sh"
# shellcheck source=scripts/lib/broken.sh
. "$ROOT/scripts/lib/broken.sh"

usage() {
  cat <<'HELP'
Usage: scripts/run.sh [KERNEL ...] [options]

Builds the kernels for this machine (GPU, or an emulator on the CPU if there is none), checks and measures them,
writes results/<time>.json and draws it. Without a GPU it then says what bounds each kernel on one (scripts/bounds.sh).
What is missing is installed first; when nothing is, no network is used.

Examples:
  scripts/run.sh                                  every kernel, on a problem that fits this machine
  scripts/run.sh 02 03 --seq-len 1024 --head-dim 64 --dtype fp16
                                                  two kernels side by side
  scripts/run.sh 03 --q q.npy --k k.npy --v v.npy --o o.npy
                                                  one kernel on your own tensors
  scripts/run.sh --backend emulator               the emulator even if there is a GPU
  scripts/run.sh --broken 02_no_rescale           meet a kernel with one bug: its diff, and which check finds it

Options:
  --backend auto|cuda|emulator   where the kernels run (auto: a GPU if it can be used, else the emulator)
  --toolkit auto|system|wheels   which nvcc: the machine's, or the one from NVIDIA's Python wheels in .toolkit
  --compile-only                 build, but do not run
  --no-charts                    write results without drawing them
  --broken NAME                  nothing of the above: shows one of the bugs in tests/broken, on the emulator;
                                 --broken list shows their names (docs/bugs.md: all, and what finds them)
  --help                         this text
Everything else goes to the program; `scripts/run.sh --program-help` shows what it understands.

Environment: RESULTS_DIR (where results go; results/ of the checkout), CUDAARCHS (architectures to build for).
Exit code: 0 all kernels passed or were skipped, 1 one was wrong, 2 bad arguments or files, 3 the GPU or emulator
failed, 4 set-up or build failed. With --broken: 0 the checks say what they should, 1 one does not.
HELP
}

one_of() { # one_of OPTION VALUE ALLOWED...
  local option=$1 value=$2 allowed
  shift 2
  for allowed in "$@"; do
    [[ $value == "$allowed" ]] && return 0
  done
  local list
  list=$(printf ', %s' "$@")
  die "$EXIT_USAGE" "$option takes one of ${list:2}, not '$value'"
}

backend=auto toolkit=auto compile_only=0 charts=1 json='' broken=''
program_args=()
while (($#)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --backend | --toolkit)
      (($# >= 2)) || die "$EXIT_USAGE" "$1 needs a value; scripts/run.sh --help shows them"
      printf -v "${1#--}" '%s' "$2"
      shift
      ;;
    --backend=*) backend=${1#*=} ;;
    --toolkit=*) toolkit=${1#*=} ;;
    --compile-only) compile_only=1 ;;
    --no-charts) charts=0 ;;
    --program-help) program_args+=(--help) ;;
    --json)
      (($# >= 2)) || die "$EXIT_USAGE" "--json needs a file name"
      json=$2
      shift
      ;;
    --json=*) json=${1#*=} ;;
    --broken)
      (($# >= 2)) || die "$EXIT_USAGE" "--broken needs the name of a bug, or list for all of them"
      broken=$2
      shift
      ;;
    --broken=*) broken=${1#*=} ;;
    *) program_args+=("$1") ;;
  esac
  shift
done
one_of --backend "$backend" auto cuda emulator
one_of --toolkit "$toolkit" auto system wheels

if [[ -n $broken ]]; then
  ((${#program_args[@]} == 0)) || die "$EXIT_USAGE" "--broken takes the name of a bug and nothing else, not '${program_args[0]}'"
  meet_broken "$broken"
  exit
fi

choose_backend "$backend" "$toolkit" "$compile_only"
ensure_packages run "$BACKEND"
if ((charts)); then ensure_venv || charts=0; fi

if [[ $BACKEND == emulator ]]; then
  # The checked build is the slower one, but it is the one with counters: without a GPU they are the measurement.
  preset=emulator-checked
  configure "$preset" ''
else
  preset=cuda
  configure_cuda
fi
build "$preset" attention

program=$ROOT/build/$preset/bin/attention
if ((compile_only)); then
  say "Built $(pretty "$program") (${BACKEND}${TOOLCHAIN:+, $TOOLCHAIN nvcc}); not run."
  exit 0
fi

if [[ -z $json ]]; then json=$(new_results_file "${RESULTS_DIR:-$ROOT/results}"); fi
rm -f "$json"

if [[ $BACKEND == emulator ]]; then
  say "Back end: emulator ($BACKEND_REASON)" >&2
else
  say "Back end: cuda on $GPU_NAME, nvcc $(nvcc_version "$NVCC")" >&2
fi

rc=0
"$program" "${program_args[@]}" --json "$json" || rc=$?

# Without a file (--list, --help, bad arguments) there is nothing to report.
if [[ -f $json ]]; then
  say "Results: $(pretty "$json")"
  if ((charts)); then
    "$ROOT/scripts/chart.sh" "$json" || note "the charts could not be drawn; the results above are complete"
  fi
  # Without a GPU: what the counts say of the time on one.
  if [[ $BACKEND == emulator ]]; then
    say ""
    "$ROOT/scripts/bounds.sh" "$json" --program "$program" || note "no bounds; the results above are complete"
  fi
fi
exit "$rc"
