#!/usr/bin/env bash
# Profiles one kernel with Nsight Compute and prints what matters of it; scripts/profiler.py does the work.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

have python3 || die "$EXIT_SETUP" "scripts/profile.sh needs python3"
exec python3 -B "$ROOT/scripts/profiler.py" "$@"
