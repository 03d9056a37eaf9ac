#!/usr/bin/env bash
# Builds and runs the tests. What was skipped is named at the end; CTest's own summary is the last thing printed.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

usage() {
  cat <<'HELP'
Usage: scripts/test.sh [--quick|--all|--full|--long] [--setup] [CTest options]

Builds the emulator and runs its tests; no GPU is needed. What is missing is
installed first; when nothing is, no network is used. Four to ten minutes on
two cores, most of it the first build. Every test belongs to one of five sets.

Examples:
  scripts/test.sh                    the numbered kernels in both builds, races,
                                     seeded bugs, emulator, harness, probes
  scripts/test.sh -R 02_online       of these the tests whose name contains
                                     02_online
  scripts/test.sh --quick            documents, format, texts of the seeded
                                     bugs: a minute, because nothing is built
  scripts/test.sh --all              the rest: kernels beyond the sixteen, CUDA
                                     that others wrote, scripts, the site and a
                                     browser, nvcc, commands of the chapters
  scripts/test.sh --all -R commands  of these the commands of the chapters
  scripts/test.sh --full             what hosted CI runs besides: all
                                     that each bug shows, pairs of shapes and
                                     inputs, a 17th kernel, missing headers
  scripts/test.sh --long             what takes hours: all shapes and inputs,
                                     solutions of the exercises, clang, arm64

Options:
  --setup  only install what the tests need (with --all: what all tests need)
  --help   this text
Every other argument goes to ctest.

Exit code: 0 all tests passed, 4 set-up or build failed, otherwise CTest's. With
CI=true a test that is skipped for want of a tool that can be installed is a
failure.
HELP
}

kind=test only_setup=0
selected=(-LE '^(quick|portable|all|full|long)$') targets=(default_tests)
# A program that only --all builds has one test, which says that it is not there. CTest takes one -E.
left_out='_NOT_BUILT$'
arguments=()
while (($#)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --version) exec "$ROOT/scripts/fa" --version ;;
    --all) kind=all selected=(-L '^(all|portable)$' -LE '^long$') targets=(all all_tests) ;;
    --quick) kind=quick selected=(-L '^quick$') targets=() ;;
    --full) kind=all selected=(-L '^full$') targets=(all full_tests) ;;
    --long) kind=all selected=(-L '^long$') targets=(all full_tests) ;;
    --setup) only_setup=1 ;;
    -E | --exclude-regex)
      (($# >= 2)) || die "$EXIT_USAGE" "$1 needs a pattern"
      left_out+="|$2"
      shift
      ;;
    *) arguments+=("$1") ;;
  esac
  shift
done

# CTest passes over an option that it does not know, and over a word that is no option's value, and would run everything.
known='' before=''
if have ctest; then known=$(ctest --help); fi
for each in "${arguments[@]}"; do
  if [[ $each != -* ]]; then
    [[ $before == -* && (-z $known || $known =~ [[:space:],]"$before"\ +[^\ =]) ]] ||
      die "$EXIT_USAGE" "'$each' is no option and no option's value; -R '$each' runs the tests whose name contains it"
  elif [[ -n $known && ! $each =~ ^-j[0-9]+$ && ! $known =~ [[:space:],]"${each%%=*}"[[:space:],=] ]]; then
    die "$EXIT_USAGE" "neither scripts/test.sh nor ctest has an option $each; scripts/test.sh --help shows what there is"
  fi
  before=$each
done

claim "$SETUP_LOG"
ensure_packages "$kind" emulator
case $kind in
  quick) ensure_venvs "$VENV" || true ;;
  all)
    ensure_browser
    ensure_venvs "$VENV" "$DOCS_VENV" "$TESTS_VENV" || true
    ;;
esac
((only_setup)) && exit 0
configure emulator ''
((${#targets[@]} == 0)) || build emulator "${targets[@]}"

jobs=$(($(nproc 2>/dev/null || echo 2) + 1)) # some tests wait
run=(python3 -B "$ROOT/scripts/lib/run_ctest.py")
have python3 || run=() # then nothing says what was skipped but CTest itself
exec "${run[@]}" ctest --test-dir "$ROOT/build/emulator" --output-on-failure --no-tests=error -j "$jobs" \
  "${selected[@]}" -E "$left_out" "${arguments[@]}"
