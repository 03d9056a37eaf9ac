#!/usr/bin/env bash
# The site of the book: builds it, serves it, checks what was built.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

usage() {
  cat <<'HELP'
Usage: scripts/fa docs [build|serve|--check|interactive] [MkDocs options]

Makes a site of README.md and docs/ in build/site. The emulator is built first,
since programs of it write what the interactive pages show; MkDocs and its theme
come into .venv-docs, if they are not there.

Examples:
  scripts/fa docs              build it; open build/site/index.html, no server
                               is needed
  scripts/fa docs serve        http://127.0.0.1:8000, built anew when a file
                               changes
  scripts/fa docs serve --dev-addr 0.0.0.0:8000
  scripts/fa docs interactive  only the interactive pages:
                               build/emulator/interactive/*.html
  scripts/fa docs --check      build it and check links, anchors, maths, sizes,
                               and that nothing comes from elsewhere

Exit code: 0 built, 1 a warning or a failed check, 2 a bad argument, 4 the
emulator could not be built or MkDocs not be installed.
HELP
}

command=${1:-build}
(($#)) && shift
case $command in
  -h | --help)
    usage
    exit 0
    ;;
  build | serve | --check | interactive) ;;
  *) die "$EXIT_USAGE" "unknown argument '$command'; scripts/fa docs --help shows what there is" ;;
esac

ensure_packages run emulator
configure emulator ''
build emulator interactive_pages
if [[ $command == interactive ]]; then
  say "Pages:   $(pretty "$ROOT/build/emulator/interactive")/*.html"
  exit 0
fi
ensure_venvs "$DOCS_VENV" || exit "$EXIT_SETUP"
cd "$ROOT"
export NO_MKDOCS_2_WARNING=1 # mkdocs.yml says what we think of it
LOG=$ROOT/build/docs.log
mkdir -p "${LOG%/*}"
mkdocs=("$DOCS_VENV/bin/python" -B -m mkdocs)
if [[ $command == serve ]]; then exec "${mkdocs[@]}" serve --livereload --no-strict "$@"; fi
: >"$LOG"
step 'building the site' "$LOG" "${mkdocs[@]}" build --strict "$@" || exit 1
if [[ $command == --check ]]; then exec "$DOCS_VENV/bin/python" -B docs/site/check.py build/site; fi
say "Site:    $(pretty "$ROOT/build/site/index.html")"
