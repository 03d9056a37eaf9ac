# shellcheck shell=bash
# scripts/run.sh --broken: meeting a bug of tests/broken. Needs common.sh, packages.sh and build.sh.

readonly BROKEN=$ROOT/tests/broken

list_broken() { # name, kernel and sentence of every bug, divided by tabs
  python3 -B "$BROKEN/make.py" --list
}

# The three names nearest to NAME.
nearest_broken() {
  python3 -c 'import difflib, sys
words = sys.stdin.read().split()
near = difflib.get_close_matches(sys.argv[1], words, 3, 0.4)
near += [word for word in words if sys.argv[1] in word and word not in near]
print(", ".join(near[:3]))' "$1"
}

show_broken_list() { # in lines of at most 100 characters
  list_broken | awk -F '\t' '{
    line = sprintf("%-26s ", $1)
    count = split($3, words, " ")
    for (i = 1; i <= count; i++) {
      if (length(line) + 1 + length(words[i]) > 100) { print line; line = sprintf("%-26s ", "") }
      line = line " " words[i]
    }
    print line
  }'
}

# show_diff NAME KERNEL: what the bug changes in the kernel.
show_diff() {
  local folder=$ROOT/build/emulator-checked/broken colour=never
  [[ -t 1 && -z ${NO_COLOR:-} ]] && colour=always
  mkdir -p "$folder"
  python3 -B "$BROKEN/make.py" --plain "$folder/$1.cu" "$1" ||
    die "$EXIT_SETUP" "the source of $1 could not be made"
  # diff exits with 1 where files differ.
  diff -u --color="$colour" --label "kernels/$2.cu" --label "$1" "$ROOT/kernels/$2.cu" "$folder/$1.cu" || true
}

# meet_broken NAME: its diff, then what each check says. Returns 0 if that is what tests/broken says.
meet_broken() {
  local wanted=$1 name kernel what near _
  ensure_packages run emulator
  python3 -c 'import tomllib' 2>/dev/null ||
    die "$EXIT_SETUP" "kernels are broken by Python 3.11 or newer, which is not here; as root: apt-get install python3"
  if [[ $wanted == list ]]; then
    show_broken_list
    return
  fi
  while IFS=$'\t' read -r name kernel what _; do
    [[ $name == "$wanted" ]] && break
    name=''
  done < <(list_broken)
  if [[ -z $name ]]; then
    near=$(list_broken | cut -f 1 | nearest_broken "$wanted")
    die "$EXIT_USAGE" "there is no bug '$wanted'${near:+; the nearest names: $near}; scripts/run.sh --broken list shows all"
  fi
  say "$name: $kernel with one bug. $what"
  say
  show_diff "$name" "$kernel" # before the build, which a bug that does not fit its kernel cannot have
  say
  configure emulator-checked ''
  build emulator-checked "meet_$name"
  "$ROOT/build/emulator-checked/bin/meet_$name"
}
