#!/usr/bin/env bash
# Proves the README: on a bare Debian 12, its two commands and nothing else must work.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

usage() {
  cat <<'HELP'
Usage: scripts/fresh_machine.sh [--keep] [--suite bookworm|trixie|noble]

Makes a bare Debian 12 tree, clones HEAD of this checkout into it, and types there the two commands that README.md
marks with <!-- command:run --> and <!-- command:test -->. Needs root, mmdebstrap, and the network or a mirror (this
machine's own apt and pip configuration is used). The output also goes to fresh_machine.log.

Examples:
  sudo scripts/fresh_machine.sh
  sudo scripts/fresh_machine.sh --keep     leave the tree for a look (its path is printed)

Options:
  --keep          do not delete the tree afterwards
  --suite NAME    another release of Debian or Ubuntu
  --help          this text
HELP
}

keep=0 suite=bookworm
while (($#)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --keep) keep=1 ;;
    --suite)
      (($# >= 2)) || die "$EXIT_USAGE" "--suite needs a name"
      suite=$2
      shift
      ;;
    *) die "$EXIT_USAGE" "unknown argument '$1'; scripts/fresh_machine.sh --help shows what there is" ;;
  esac
  shift
done

# The one fenced line after the marker, so that what is proven is what the README says.
readme_command() {
  awk -v marker="<!-- command:$1 -->" '
    index($0, marker) { found = 1; next }
    found && /^```/ { if (inside) exit; inside = 1; next }
    found && inside && NF { print }
  ' "$ROOT/README.md" 2>/dev/null
}

commands=()
for which in run test; do
  line=$(readme_command "$which")
  [[ -n $line && $line != *$'\n'* ]] ||
    die "$EXIT_USAGE" "README.md has no single command in a fenced block after <!-- command:$which -->"
  commands+=("$line")
done
((EUID == 0)) || die "$EXIT_SETUP" "making a Debian tree needs root: sudo scripts/fresh_machine.sh"
for tool in mmdebstrap unshare git; do
  have "$tool" || die "$EXIT_SETUP" "$tool is missing; as root: apt-get install mmdebstrap util-linux git"
done

log=$ROOT/fresh_machine.log
exec > >(tee "$log") 2>&1
tee_pid=$!

tree=$(mktemp -d "${TMPDIR:-/tmp}/fresh-machine.XXXXXX")
# shellcheck disable=SC2317  # the trap calls it
clean_up() {
  local rc=$?
  # Mounts live in a name space of their own and are gone by now; --one-file-system is for the case they are not.
  if ((keep)); then say "The tree is kept in $tree"; else rm -rf --one-file-system "$tree"; fi
  exec >&- 2>&-
  wait "$tee_pid" 2>/dev/null || true
  exit "$rc"
}
trap clean_up EXIT

# --- A bare machine --------------------------------------------------------------------------------------------

say "== Making a bare $suite tree"
sources=()
here=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
debian=' bookworm trixie forky '
if [[ $here == "$suite" || ($debian == *" $here "* && $debian == *" $suite "*) ]]; then
  # This machine's own sources (behind a mirror they may be the only ones), for the release asked for.
  mkdir -p "$ROOT/build/fresh_machine"
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    if grep -Eqs "^(deb |Types:)" "$file" && grep -q "$here" "$file"; then
      copy=$ROOT/build/fresh_machine/${file##*/}
      sed "s/$here/$suite/g" "$file" >"$copy"
      sources+=("$copy")
    fi
  done
fi
options=()
while IFS= read -r line; do options+=("--aptopt=$line"); done < <(
  # Only what says how to reach a mirror; everything else of this machine's apt is none of the tree's business.
  apt-config dump 2>/dev/null | grep -E '^Acquire::(http|https|Check|AllowInsecure)[A-Za-z:-]* "[^"]+";$' || true
)
step "mmdebstrap" "$ROOT/build/fresh_machine/mmdebstrap.log" \
  mmdebstrap --variant=minbase --include=ca-certificates "${options[@]}" "$suite" "$tree" "${sources[@]}" ||
  die "$EXIT_SETUP" "mmdebstrap could not make the tree"
tools=$(chroot "$tree" sh -c 'command -v g++ cmake python3' || true)
say "$(chroot "$tree" dpkg-query --show | wc -l) packages; g++, cmake, python3: ${tools:-none of them}"

# How to reach the network is a property of this machine, so the tree inherits it.
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf; do
  if [[ -f $file ]]; then cp --dereference "$file" "$tree$file"; fi
done
environment=(HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 TERM=dumb)
for name in {http,https,no,all}_proxy {HTTP,HTTPS,NO,ALL}_PROXY PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST; do
  if [[ -n ${!name:-} ]]; then environment+=("$name=${!name}"); fi
done
# A mirror may have a certificate of its own authority, which only this machine's bundle knows.
bundle=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
if [[ -f $bundle ]]; then
  cp "$bundle" "$tree/etc/ssl/this-machine.crt"
  environment+=(PIP_CERT=/etc/ssl/this-machine.crt SSL_CERT_FILE=/etc/ssl/this-machine.crt)
fi

say "== Cloning $(git -C "$ROOT" rev-parse --short HEAD)"
git -c safe.directory='*' clone --quiet --no-hardlinks "$ROOT" "$tree/checkout"

# --- The two commands ------------------------------------------------------------------------------------------

# In a name space of its own, so that no mount outlives it: /proc and /dev are what a booted machine has.
# shellcheck disable=SC2016  # the inner shell expands these
inside='
  set -e
  mount --bind "$1" "$1"
  mount -t proc proc "$1/proc"
  mount --rbind /dev "$1/dev"
  mount -t sysfs -o ro sysfs "$1/sys" 2>/dev/null || true
  shift_root=$1
  shift
  exec chroot "$shift_root" /usr/bin/env -i "$@"
'
rc=0
for command in "${commands[@]}"; do
  say "== $ $command"
  start=$SECONDS
  unshare --mount --pid --fork --kill-child bash -c "$inside" inside "$tree" "${environment[@]}" \
    bash -c "cd /checkout && $command" </dev/null || rc=$?
  say "== exit code $rc after $((SECONDS - start)) s"
  ((rc == 0)) || exit "$rc"
done

results=("$tree"/checkout/results/*.json)
[[ -f ${results[0]} ]] || die 1 "the run wrote no results"
say "== Does the run's JSON validate?"
unshare --mount --pid --fork bash -c "$inside" inside "$tree" "${environment[@]}" \
  bash -c 'cd /checkout && scripts/validate_results.py results/*.json && ls results' </dev/null || rc=$?
say "== Both commands succeeded on a bare $suite; the log is $(pretty "$log")"
exit "$rc"
