#!/usr/bin/env bash
# Proves the README: on a bare Debian, its two commands and nothing else must work.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

usage() {
  cat <<'HELP'
Usage: scripts/fresh_machine.sh [options] [-- options of scripts/test.sh]

Makes a bare Debian tree, puts HEAD of this checkout into it, and types there
the two commands that README.md marks with <!-- command:run --> and <!--
command:test -->, then both again without network. Needs root, mmdebstrap, and
the network or a mirror (this machine's own apt and pip configuration is used).
The output also goes to fresh_machine.log.

Examples:
  sudo scripts/fresh_machine.sh
  sudo scripts/fresh_machine.sh --suite trixie --tarball --user sudo --limits
  sudo scripts/fresh_machine.sh --only test --keep -- --quick
      other tests; the tree stays for a look

Options:
  --suite bookworm|trixie|noble  which release of Debian or Ubuntu; bookworm
  --tarball                      the files alone, as a downloaded archive has
                                 them: no .git
  --user root|other|sudo|none    who types: root; root in a checkout that
                                 belongs to another user; a user who may use
                                 sudo; or one who may not, for whom root
                                 installs what the commands ask for
  --only run|test                one of the two commands
  --limits                       fail if a command takes longer than README
                                 promises: 180 s for the first, 600 s for the
                                 tests, 180 s for each without network
  --keep                         do not delete the tree afterwards (its path is
                                 printed)
  --help                         this text

Exit code: 0 all commands succeeded, in time and without a skipped test that
needs neither a GPU nor nvcc; 1 one did not; 2 bad arguments; 4 the tree could
not be made.
HELP
}

keep=0 suite=bookworm tarball=0 user=root only='run test' limits=0
test_options=()
while (($#)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --keep) keep=1 ;;
    --tarball) tarball=1 ;;
    --limits) limits=1 ;;
    --suite | --user | --only)
      (($# >= 2)) || die "$EXIT_USAGE" "$1 needs a value; scripts/fresh_machine.sh --help shows them"
      printf -v "${1#--}" '%s' "$2"
      shift
      ;;
    --)
      shift
      test_options=("$@")
      break
      ;;
    *) die "$EXIT_USAGE" "unknown argument '$1'; scripts/fresh_machine.sh --help shows what there is" ;;
  esac
  shift
done
one_of --suite "$suite" bookworm trixie noble
one_of --user "$user" root other sudo none
[[ $only == 'run test' ]] || one_of --only "$only" run test

# The one fenced line after the marker, so that what is proven is what the README says.
readme_command() {
  awk -v marker="<!-- command:$1 -->" '
    index($0, marker) { found = 1; next }
    found && /^```/ { if (inside) exit; inside = 1; next }
    found && inside && NF { print }
  ' "$ROOT/README.md" 2>/dev/null
}

declare -A commands=()
for which in run test; do
  line=$(readme_command "$which")
  [[ -n $line && $line != *$'\n'* ]] ||
    die "$EXIT_USAGE" "README.md has no single command in a fenced block after <!-- command:$which -->"
  commands[$which]=$line
done
if ((${#test_options[@]})); then commands[test]+=$(printf ' %q' "${test_options[@]}"); fi
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
include=ca-certificates options=()
[[ $user != sudo ]] || include+=,sudo
while IFS= read -r line; do options+=("--aptopt=$line"); done < <(
  # Only what says how to reach a mirror; everything else of this machine's apt is none of the tree's business.
  apt-config dump 2>/dev/null | grep -E '^Acquire::(http|https|Check|AllowInsecure)[A-Za-z:-]* "[^"]+";$' || true
)
step "mmdebstrap" "$ROOT/build/fresh_machine/mmdebstrap.log" \
  mmdebstrap --variant=minbase --include="$include" "${options[@]}" "$suite" "$tree" "${sources[@]}" ||
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

revision=$(git -c safe.directory='*' -C "$ROOT" rev-parse --short HEAD)
git -c safe.directory='*' -C "$ROOT" diff --quiet HEAD || note "what is not committed is left out"
if ((tarball)); then
  say "== Unpacking the files of $revision"
  mkdir "$tree/checkout"
  git -c safe.directory='*' -C "$ROOT" archive HEAD | tar -x -C "$tree/checkout"
else
  say "== Cloning $revision"
  git -c safe.directory='*' clone --quiet --no-hardlinks "$ROOT" "$tree/checkout"
fi
who=root
if [[ $user != root ]]; then
  chroot "$tree" useradd --create-home --shell /bin/bash learner
  chown -R --reference="$tree/home/learner" "$tree/checkout"
fi
if [[ $user == sudo ]]; then
  # sudo forgets the variables that say how to reach the network; a machine that has them lets sudo keep them.
  printf '%s\n' 'learner ALL=(ALL) NOPASSWD: ALL' \
    'Defaults env_keep += "http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY SSL_CERT_FILE"' \
    >"$tree/etc/sudoers.d/learner"
fi
if [[ $user == sudo || $user == none ]]; then
  who=learner environment[0]=HOME=/home/learner
fi

# --- The two commands ------------------------------------------------------------------------------------------

# In a name space of its own, so that no mount outlives it: /proc and /dev are what a booted machine has.
# shellcheck disable=SC2016  # the inner shell expands these
inside='
  set -e
  mount --bind "$1" "$1"
  mount -t proc proc "$1/proc"
  mount --rbind /dev "$1/dev"
  mount -t sysfs -o ro sysfs "$1/sys" 2>/dev/null || true
  ip link set lo up 2>/dev/null || true
  shift_root=$1 who=$2
  shift 2
  exec chroot --userspec="$who" "$shift_root" /usr/bin/env -i "$@"
'
# there WHO COMMAND [UNSHARE'S OPTIONS]
there() {
  unshare --mount --pid --fork --kill-child "${@:3}" bash -c "$inside" inside "$tree" "$1" "${environment[@]}" \
    bash -c "cd /checkout && $2" </dev/null
}

# A user who may not install: each command says in one sentence what to install, and writes nothing. Root follows it.
if [[ $user == none ]]; then
  wanted=()
  touch "$tree/before"
  for which in $only; do
    say "== As a user without sudo: \$ ${commands[$which]}"
    rc=0
    said=$(there learner "${commands[$which]}" 2>&1) || rc=$?
    say "$said"
    ((rc == EXIT_SETUP)) || die 1 "exit code $rc instead of $EXIT_SETUP"
    [[ $said == error:*'as root: apt-get install '* && $said != *$'\n'* ]] || die 1 "this is not the sentence that says what to install"
    written=$(find "$tree/checkout" "$tree/home" "$tree/tmp" -newer "$tree/before" -print -quit)
    [[ -z $written ]] || die 1 "$written was written"
    read -ra names <<<"${said##*apt-get install }"
    wanted+=("${names[@]}")
  done
  say "== Root installs ${wanted[*]}"
  there root "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends ${wanted[*]}" \
    >"$tree/installed.log" 2>&1 || die 1 "these packages could not be installed: $(tail -n 3 "$tree/installed.log")"
fi

failed=0 times=''
# type_command run|test online|offline SECONDS
type_command() {
  local rc=0 start=$SECONDS output=$tree/output skipped
  local -a more=()
  [[ $2 == online ]] || more=(--net)
  say "== $2: \$ ${commands[$1]}"
  there "$who" "${commands[$1]}" "${more[@]}" 2>&1 | tee "$output" || rc=$?
  local took=$((SECONDS - start))
  say "== $2: exit code $rc after $took s"
  times+="; $2 ${commands[$1]} $took s, exit code $rc"
  ((rc == 0)) || failed=1
  if ((limits && took > $3)); then
    say "== that is longer than $3 s"
    failed=1
  fi
  skipped=$(sed -nE 's/^[[:space:]]+[0-9]+ - (\S+) \((Skipped|Not Run|Disabled)\)$/\1/p' "$output")
  if [[ -n $skipped ]]; then
    say "== skipped, and should not be: ${skipped//$'\n'/ }"
    failed=1
  fi
}

for which in $only; do
  if [[ $which == run ]]; then type_command run online 180; else type_command test online 600; fi
  # The rest of a machine on which the first command fails is of no interest.
  ((!failed || limits)) || break
done
if ((!failed || limits)); then
  for which in $only; do type_command "$which" offline 180; done
fi

if [[ $only == *run* ]]; then
  results=("$tree"/checkout/results/*.json)
  say "== Do the results of the runs validate?"
  if [[ ! -f ${results[0]} ]] || ! there "$who" 'scripts/fa validate results/*.json && ls results'; then failed=1; fi
fi
what=$( ((tarball)) && echo 'a tarball without .git' || echo 'a clone')
case $user in
  other) as='root in a checkout of another user' ;;
  sudo) as='a user with sudo' ;;
  none) as='a user without sudo, after root installed what the commands asked for' ;;
  *) as=root ;;
esac
say "== A bare $suite, $what of revision $revision, as $as: ${times:2}"
if ((failed)); then
  say "== FAILED; the log is $(pretty "$log")"
else
  say "== All commands succeeded, the second time without network; the log is $(pretty "$log")"
fi
exit "$failed"
