#!/usr/bin/env bash
# Runs the ladder: sets up what is missing, builds, runs the kernels, writes results and draws them.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

usage() {
  cat <<'HELP'
Usage: scripts/run.sh [KERNEL ...] [options]

Builds the kernels for this machine (GPU, or an emulator on the CPU if there is
none), checks and measures them, writes results/<time>.json and draws it.
Without a GPU it then says what bounds each kernel on one (scripts/fa bounds).
What is missing is installed first; when nothing is, no network is used.

Examples:
  scripts/run.sh
      every kernel, on a problem that fits this machine
  scripts/run.sh 02 03 --seq-len 1024 --head-dim 64 --dtype fp16
      two kernels side by side
  scripts/run.sh causal --mask causal --seq-len 300
      a kernel of kernels/beyond
  scripts/run.sh best --mask causal
      the fastest kernel that takes the problem
  scripts/run.sh --backend emulator
      the emulator even if there is a GPU
  scripts/run.sh --broken 02_no_rescale
      meet a kernel with one bug: its diff, and which check finds it

Options:
  --backend auto|cuda|emulator  where the kernels run (auto: a GPU if it can be
                                used, else the emulator)
  --toolkit auto|system|wheels  which nvcc: the machine's, or the one from
                                NVIDIA's Python wheels in .toolkit
  --compile-only                build, but do not run
  --no-charts                   write results without drawing them
  --broken NAME                 nothing of the above: shows one of the bugs in
                                tests/broken, on the emulator; --broken list
                                shows their names (docs/bugs.md: all, and what
                                finds them)
  --help                        this text
Everything else goes to the program; `scripts/run.sh --program-help` shows what
it understands.

Environment: RESULTS_DIR (where results go; results/ of the checkout), CUDAARCHS
(architectures to build for).
Exit code: 0 all kernels passed or were skipped, 1 one was wrong, 2 bad
arguments or files, 3 the GPU or emulator failed, 4 set-up or build failed. With
--broken: 0 the checks say what they should, 1 one does not.
HELP
}

# check_output OPTION FILE: refuses what cannot become a file, before the work that it is to hold.
check_output() {
  [[ -n $2 ]] || die "$EXIT_USAGE" "$1 needs the name of a file"
  [[ ! -d $2 ]] || die "$EXIT_USAGE" "cannot write $2: Is a directory"
  [[ -e $2 || -d $(dirname -- "$2") ]] || die "$EXIT_USAGE" "cannot write $2: No such file or directory"
}

# check_lengths VALUE, of --seq-len
check_lengths() {
  local part
  local -a parts
  [[ ",$1," != *,,* ]] || die "$EXIT_USAGE" "--seq-len takes values with a comma between two, not '$1'"
  IFS=, read -ra parts <<<"$1"
  for part in "${parts[@]}"; do
    # Seven digits hold every length that kernels take, and bash's arithmetic holds seven digits.
    if ! [[ $part =~ ^[0-9]{1,7}$ ]] || ((10#$part == 0 || 10#$part % 128 || 10#$part > 4194304)); then
      die "$EXIT_USAGE" "--seq-len must be a multiple of 128 from 128 to 4194304, not $part"
    fi
  done
}

# check_value OPTION VALUE
check_value() {
  local option=$1 value=$2
  case $option in
    --seq-len) lengths=$value ;;
    --head-dim) [[ $value == 64 || $value == 128 ]] || die "$EXIT_USAGE" "--head-dim must be 64 or 128, not $value" ;;
    --dtype) one_of --dtype "$value" fp16 bf16 ;;
    --batch | --heads | --iters | --rounds | --rotate | --threads)
      [[ $value =~ ^0*[1-9][0-9]*$ ]] || die "$EXIT_USAGE" "$option must be a whole number from 1 on, not $value"
      ;;
    --inputs)
      grep -qF "\"$value\"" "$ROOT/common/harness/inputs.cpp" ||
        die "$EXIT_USAGE" "there are no inputs '$value'; scripts/run.sh --program-help shows them"
      ;;
    --protocol)
      grep -qF "\"$value\"" "$ROOT/bench/protocols.json" ||
        die "$EXIT_USAGE" "unknown protocol '$value'; scripts/run.sh --program-help shows them"
      ;;
    --trace) check_output "$option" "$value" ;;
    --mask) [[ $value == none ]] || general=1 ;;
    --q-len | --kv-len | --kv-heads | --lengths | --page-size) general=1 ;;
  esac
}

# check_arguments ARGUMENT... : refuses at once what the program would refuse after minutes of building, as far as it
# can be judged without. The names of options are those in the program's source.
check_arguments() {
  local source=$ROOT/common/cli/options.cpp option value number
  while (($#)); do
    option=${1%%=*}
    case $1 in
      -h | --help | --list) return 0 ;;
      -*)
        grep -qF "\"$option\"" "$source" ||
          die "$EXIT_USAGE" "there is no option $option; scripts/run.sh --help and --program-help show what there is"
        if grep -qF "add_flag(\"$option\"" "$source"; then
          shift
          continue
        fi
        if [[ $1 == *=* ]]; then
          value=${1#*=}
        else
          (($# >= 2)) || die "$EXIT_USAGE" "$option needs a value; scripts/run.sh --program-help shows them"
          value=$2
          shift
        fi
        check_value "$option" "$value"
        ;;
      *)
        if [[ $1 == best ]]; then
          best=1
          shift
          continue
        fi
        number=$1
        [[ $1 =~ ^[0-9]$ ]] && number=0$1
        if [[ -f $ROOT/kernels/beyond/${1#beyond/}.cu ]]; then
          beyond=$1
          shift
          continue
        fi
        compgen -G "$ROOT/kernels/$number.cu" >/dev/null || compgen -G "$ROOT/kernels/${number}_*.cu" >/dev/null ||
          die "$EXIT_USAGE" "unknown kernel '$1', there are: $(cd "$ROOT/kernels" && printf '%s\n' [0-9]*.cu beyond/*.cu | sed 's/\.cu$//' | tr '\n' ' ')"
        numbered+=("$number")
        ;;
    esac
    shift
  done
  # The fastest kernel is in the program that has those which take the problem.
  [[ -z $best || -z $general ]] || beyond=best
  # Lengths last, because kernels of beyond/ take any.
  [[ -n $beyond || -z $lengths ]] || check_lengths "$lengths"
  [[ -z $beyond ]] || ((${#numbered[@]} == 0)) ||
    die "$EXIT_USAGE" "$beyond and ${numbered[0]} are in different programs: give kernels of beyond/, or numbered ones"
}

# new_results_file FOLDER: makes FOLDER/TIME.json, which nobody else has, and prints its name; makes the folder. The time is
# UTC, sortable, and without colons so that it is a file name everywhere.
new_results_file() {
  local stem i file
  mkdir -p "$1" 2>/dev/null || die "$EXIT_USAGE" "cannot create the results folder $1"
  stem=$1/$(date -u +%Y-%m-%dT%H-%M-%SZ)
  file=$stem.json
  for ((i = 2; ; i++)); do
    (set -o noclobber && : >"$file") 2>/dev/null && break
    [[ -e $file ]] || die "$EXIT_USAGE" "cannot write into the results folder $1"
    file=$stem-run$i.json
  done
  printf '%s' "$file"
}

beyond='' numbered=() lengths='' best='' general='' # what check_arguments finds: kernels, --seq-len, and options for kernels of beyond/
backend=auto toolkit=auto compile_only=0 charts=1 json='' broken=''
program_args=()
while (($#)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --version) exec "$ROOT/scripts/fa" --version ;;
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
      check_output --json "$json"
      shift
      ;;
    --json=*)
      json=${1#*=}
      check_output --json "$json"
      ;;
    --broken)
      broken=${2:-}
      [[ -n $broken ]] || die "$EXIT_USAGE" "--broken needs the name of a bug, or list for all of them"
      shift
      ;;
    --broken=*)
      set -- --broken "${1#*=}" "${@:2}"
      continue
      ;;
    *) program_args+=("$1") ;;
  esac
  shift
done
one_of --backend "$backend" auto cuda emulator
one_of --toolkit "$toolkit" auto system wheels

if [[ -n $broken ]]; then
  ((${#program_args[@]} == 0)) || die "$EXIT_USAGE" "--broken takes the name of a bug and nothing else, not '${program_args[0]}'"
  ensure_packages run emulator
  python3 -c 'import tomllib' 2>/dev/null ||
    die "$EXIT_SETUP" "kernels are broken by Python 3.11 or newer, which is not here; as root: apt-get install python3"
  # Its diff comes before the build, which a bug that does not fit its kernel cannot have; then what each check says.
  python3 -B "$ROOT/tests/broken/make.py" --meet "$broken"
  [[ $broken != list ]] || exit 0
  configure emulator-checked ''
  build emulator-checked "meet_$broken"
  exec "$ROOT/build/emulator-checked/bin/meet_$broken"
fi

check_arguments "${program_args[@]}"
choose_backend "$backend" "$toolkit" "$compile_only"
options_of_gpu "${program_args[@]}"
claim "$SETUP_LOG"
ensure_packages run "$BACKEND"
if ((charts)); then ensure_venvs "$VENV" || charts=0; fi

if [[ $BACKEND == emulator ]]; then
  # The checked build is the slower one, but it is the one with counters: without a GPU they are the measurement.
  preset=emulator-checked
  configure "$preset" ''
else
  preset=cuda
  configure_cuda
fi
# A single kernel has a program of its own, which takes a third of the time to build. (Those of 01 to 03 have no --trace.)
name=attention
[[ -z $beyond ]] || name=beyond
if ((${#numbered[@]} == 1)) && [[ -z $best ]] && [[ " ${program_args[*]}" != *" --trace"* ]]; then
  name=$(cd "$ROOT/kernels" && { compgen -G "${numbered[0]}.cu" || compgen -G "${numbered[0]}_*.cu"; })
  name=${name%.cu}
elif ((${#program_args[@]} == 0 && !compile_only)) && [[ ! -e $ROOT/build/$preset/bin/$name ]]; then
  # The first time, something to look at while the other fifteen are built.
  build "$preset" 01_naive
  "$ROOT/build/$preset/bin/01_naive" "${OPTIONS[@]}" || exit
  say ""
fi
build "$preset" "$name"

program=$ROOT/build/$preset/bin/$name
if ((compile_only)); then
  say "Built $(pretty "$program") (${BACKEND}${TOOLCHAIN:+, $TOOLCHAIN nvcc}); not run."
  exit 0
fi

if [[ -z $json ]]; then
  json=$(new_results_file "${RESULTS_DIR:-$ROOT/results}")
  trap '[[ -s $json ]] || rm -f -- "$json"' EXIT
fi
stamp() { stat -c '%i %y' -- "$json" 2>/dev/null || true; }
before=$(stamp)

if [[ $BACKEND == emulator ]]; then
  say "Back end: emulator ($BACKEND_REASON)" >&2
else
  say "Back end: cuda on $GPU_NAME, nvcc $(nvcc_version "$NVCC")" >&2
fi

rc=0
"$program" "${program_args[@]}" "${OPTIONS[@]}" --json "$json" || rc=$?

# If nothing was written (--list, --help, bad arguments) there is nothing to report.
if [[ $(stamp) != "$before" ]]; then
  say "Results: $(pretty "$json")"
  # One result has nothing to be compared with.
  if ((charts)) && (($(grep -c '^{"kernel":' "$json") > 1)); then
    "$ROOT/scripts/fa" chart "$json" || note "the charts could not be drawn; the results above are complete"
  fi
  # Without a GPU: what the counts say of the time on one. Counts of a causal mask or of other lengths do not scale.
  if [[ $BACKEND == emulator && -z $beyond ]]; then
    say ""
    "$ROOT/scripts/fa" bounds "$json" --program "$program" || note "no bounds; the results above are complete"
  fi
fi
exit "$rc"
