# shellcheck shell=bash
# What every script here shares: where the checkout is, how to speak to the reader, how to show progress; what is missing
# (packages.sh), and where the kernels run (backend.sh).
# Sourced, never run. Nothing in this file touches the network.
# shellcheck disable=SC2034  # ROOT and the exit codes are read by the scripts that source this

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# Exit codes follow the programs': 2 is a bad argument or file, 3 a failing back end; 4 is a failed set-up or build.
readonly EXIT_USAGE=2 EXIT_SETUP=4

say() {
  { printf '%s\n' "$*"; } 2>/dev/null || die "$EXIT_USAGE" "cannot write to standard output"
}
note() { printf 'note: %s\n' "$*" >&2; }
die() { # die EXIT_CODE SENTENCE
  local code=$1
  shift
  printf 'error: %s\n' "$*" >&2
  exit "$code"
}

# macOS has another linker, other tools and bash 3.2.
[[ $OSTYPE == linux* ]] ||
  die "$EXIT_SETUP" "this needs Linux, and here is $OSTYPE: .devcontainer has a container for Docker and Codespaces"
# Under set -u, older ones take "${empty[@]}" for a variable that is not set.
((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) || die "$EXIT_SETUP" "this needs bash 4.4 or newer, and here is $BASH_VERSION"

# The path as the reader would type it from where they are.
pretty() {
  local path=$1
  case $path in
    "$PWD"/*) printf '%s' "${path#"$PWD"/}" ;;
    *) printf '%s' "$path" ;;
  esac
}

have() { command -v "$1" >/dev/null 2>&1; }

one_of() { # one_of OPTION VALUE ALLOWED...
  local option=$1 value=$2 allowed list
  shift 2
  for allowed in "$@"; do
    [[ $value == "$allowed" ]] && return 0
  done
  list=$(printf ', %s' "$@")
  die "$EXIT_USAGE" "$option takes one of ${list:2}, not '$value'"
}

# version_at_least 13.0 12.8 → true. Pure bash: it runs on the silent path.
version_at_least() {
  local -a have want
  IFS=. read -ra have <<<"$1"
  IFS=. read -ra want <<<"$2"
  local i a b
  for ((i = 0; i < ${#want[@]}; i++)); do
    a=${have[i]:-0} b=${want[i]}
    a=${a%%[!0-9]*} b=${b%%[!0-9]*}
    ((10#${a:-0} > 10#${b:-0})) && return 0
    ((10#${a:-0} < 10#${b:-0})) && return 1
  done
  return 0
}

# The newest "[12/80]" of a Ninja log, for the progress line.
last_count() { tail -c 4000 "$1" 2>/dev/null | grep -o '^\[[0-9]*/[0-9]*\]' | tail -n 1 || true; }

# Runs in the background of `step`: says nothing for two seconds, then that work is going on.
ticker() {
  local label=$1 log=$2 start=$SECONDS
  sleep 2 >/dev/null 2>&1
  if [[ ! -t 2 ]]; then
    if kill -0 "$$" 2>/dev/null; then printf '%s ...\n' "$label" >&2; fi
    return
  fi
  # A background job does not see Ctrl-C, so it looks whether the script is still there.
  while kill -0 "$$" 2>/dev/null; do
    printf '\r\033[K%s ... %ds %s' "$label" "$((SECONDS - start))" "$(last_count "$log")" >&2
    sleep 1 >/dev/null 2>&1
  done
}

# claim FILE: makes its folder and sees that the file can be written, which it cannot in another user's checkout.
claim() {
  mkdir -p "$(dirname "$1")" 2>/dev/null && { : >>"$1"; } 2>/dev/null && return 0
  die "$EXIT_SETUP" "cannot write $(pretty "$1"): this checkout belongs to $(stat -c %U "$ROOT"), you are $(id -un);" \
    "use a copy of your own"
}

# step LABEL LOG COMMAND... : runs COMMAND with its output in LOG; the reader sees a line only if it takes over
# two seconds, and the end of LOG only if it fails (STEP_TAIL lines; 0: the caller explains). Returns COMMAND's exit
# code.
step() {
  local label=$1 log=$2 rc=0 start=$SECONDS from=0 tick
  shift 2
  claim "$log"
  [[ -f $log ]] && from=$(wc -l <"$log")
  printf '== %s: %s\n' "$label" "$*" >>"$log"
  ticker "$label" "$log" &
  tick=$!
  "$@" >>"$log" 2>&1 </dev/null || rc=$?
  kill "$tick" 2>/dev/null || true
  wait "$tick" 2>/dev/null || true
  [[ -t 2 ]] && printf '\r\033[K' >&2
  if ((rc != 0 && ${STEP_TAIL:-25} > 0)); then
    printf '%s: failed; the end of %s:\n' "$label" "$(pretty "$log")" >&2
    # Only what this step wrote, so that an older failure is never shown for a newer one.
    tail -n +"$((from + 2))" "$log" | tail -n "${STEP_TAIL:-25}" | sed 's/^/  /' >&2
  elif ((rc == 0 && SECONDS - start >= 2)); then
    printf '%s: done in %d s\n' "$label" "$((SECONDS - start))" >&2
  fi
  return "$rc"
}

# shellcheck source=scripts/lib/packages.sh
. "$ROOT/scripts/lib/packages.sh"
# shellcheck source=scripts/lib/backend.sh
. "$ROOT/scripts/lib/backend.sh"
