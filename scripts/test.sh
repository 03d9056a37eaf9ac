#!/usr/bin/env bash
# Builds and runs the tests. CTest's own summary is the last thing printed.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=scripts/lib/packages.sh
. "$ROOT/scripts/lib/packages.sh"
# shellcheck source=scripts/lib/build.sh
. "$ROOT/scripts/lib/build.sh"

usage() {
  cat <<'HELP'
Usage: scripts/test.sh [CTest options]

Builds the emulator preset and runs its tests; no GPU is needed. What is missing is installed first; when nothing
is, no network is used.

Examples:
  scripts/test.sh                 the default tests (all but those labelled `long`)
  scripts/test.sh -L long         the long ones
  scripts/test.sh -R 02_online    the tests whose name contains 02_online

Options: every argument goes to ctest. If one of them selects labels (-L, -LE), the long tests are no longer
left out by default.
HELP
}

left_out=(-LE '^long$')
for arg in "$@"; do
  case $arg in
    -h | --help)
      usage
      exit 0
      ;;
    -L* | --label-*) left_out=() ;;
  esac
done

ensure_packages test emulator
ensure_venv || true
ensure_docs_venv || true
ensure_browser || true
configure emulator ''
build emulator

jobs=$(nproc 2>/dev/null || echo 2)
exec ctest --test-dir "$ROOT/build/emulator" --output-on-failure --no-tests=error -j "$jobs" "${left_out[@]}" "$@"
