#!/usr/bin/env bash
# Finds the best tile sizes of kernel 10 for the GPU present; scripts/autotune.py does the work.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

have python3 || die "$EXIT_SETUP" "scripts/autotune.sh needs python3"
exec python3 -B "$ROOT/scripts/autotune.py" "$@"
