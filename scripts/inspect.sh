#!/usr/bin/env bash
# Shows what the compiler makes of a kernel; scripts/inspect_kernel.py does the work.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

have python3 || die "$EXIT_SETUP" "scripts/inspect.sh needs python3"
exec python3 -B "$ROOT/scripts/inspect_kernel.py" "$@"
