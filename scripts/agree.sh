#!/usr/bin/env bash
# Compares the emulator's counts with the profiler's on a GPU; scripts/agree.py does the work.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

have python3 || die "$EXIT_SETUP" "scripts/agree.sh needs python3"
exec python3 -B "$ROOT/scripts/agree.py" "$@"
