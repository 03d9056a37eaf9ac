#!/usr/bin/env bash
# Two results files side by side: two machines, or two commits. scripts/compare.py does the work.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

have python3 || die "$EXIT_SETUP" "scripts/compare.sh needs python3"
exec python3 -B "$ROOT/scripts/compare.py" "$@"
