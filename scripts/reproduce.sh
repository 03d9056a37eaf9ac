#!/usr/bin/env bash
# Prints a write-up's figures beside ours, measured now or before; scripts/reproduce.py does the work.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

have python3 || die "$EXIT_SETUP" "scripts/reproduce.sh needs python3"
exec python3 -B "$ROOT/scripts/reproduce.py" "$@"
