#!/usr/bin/env bash
# Draws results files; makes sure first that the chart tools are there. fa_tools/press/chart.py does the work.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"
# shellcheck source=scripts/lib/packages.sh
. "$ROOT/scripts/lib/packages.sh"

for arg in "$@"; do
  # Help needs no tools.
  case $arg in -h | --help)
    python_part "python3" press.chart --help
    exit 0
    ;;
  esac
done
(($#)) || die "$EXIT_USAGE" "which results? e.g. scripts/fa chart results/2026-11-21T10-00-00Z.json"
[[ -e $VENV/complete ]] || python_part python3 press.chart --only-read "$@"
ensure_venv || exit "$EXIT_SETUP"
python_part "$VENV/bin/python" press.chart "$@"
