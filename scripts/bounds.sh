#!/usr/bin/env bash
# The least time that each resource of a GPU needs for what the emulator counted; scripts/bounds.py does the work.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
have python3 || die "$EXIT_SETUP" "scripts/bounds.sh needs python3"
exec python3 -B "$ROOT/scripts/bounds.py" "$@"
