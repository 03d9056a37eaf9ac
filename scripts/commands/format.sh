#!/usr/bin/env bash
# Formats the C++ and CUDA sources with clang-format.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

# Versions of clang-format disagree in details; this one, Debian 12's, decides.
readonly VERSION=14

usage() {
  cat <<HELP
Usage: scripts/fa format [--check]

Formats kernels, common, tests, bench and examples as .clang-format says, with
clang-format $VERSION.

Examples:
  scripts/fa format          rewrite what is not formatted
  scripts/fa format --check  only name it; exit code 1 if there is any, 77
                             without clang-format $VERSION
HELP
}

check=0
case ${1:-} in
  '') ;;
  --check) check=1 ;;
  -h | --help)
    usage
    exit 0
    ;;
  *) die "$EXIT_USAGE" "unknown argument '$1'; scripts/fa format --help shows what there is" ;;
esac

cd "$ROOT"
folders=()
for folder in kernels common tests bench examples; do
  if [[ -d $folder ]]; then folders+=("$folder"); fi
done
mapfile -t files < <(
  find "${folders[@]}" -type f \( -name '*.cu' -o -name '*.cuh' -o -name '*.h' -o -name '*.cpp' \) | LC_ALL=C sort
)
((${#files[@]})) || exit 0

# Comments and strings, which clang-format does not break.
if ((check)) && LC_ALL=C.UTF-8 grep -nE '^.{101,}' "${files[@]}" >&2; then
  printf 'these lines are longer than 100 columns\n' >&2
  exit 1
fi

tool=''
for candidate in "clang-format-$VERSION" clang-format; do
  have "$candidate" || continue
  if [[ $("$candidate" --version) =~ version\ $VERSION\. ]]; then
    tool=$candidate
    break
  fi
done
if [[ -z $tool ]]; then
  printf 'skipped: clang-format %s is not here, and other versions format differently\n' "$VERSION" >&2
  exit 77
fi

if ((!check)); then
  "$tool" -i "${files[@]}"
  exit 0
fi
if ! found=$("$tool" --dry-run --Werror "${files[@]}" 2>&1); then
  named=$(sed -nE 's/^([^ :]+):[0-9]+:[0-9]+: error:.*/\1 is not formatted; scripts\/fa format does it/p' <<<"$found" | uniq)
  printf '%s\n' "${named:-$found}" >&2
  exit 1
fi
