#!/usr/bin/env bash
# Prints what a program says of every kernel on many small problems: each verdict that is not "passed", then one line
# for each dtype, head_dim and kernel with the number of problems passed. The same lines must come from the emulator and
# from a GPU; those of an H200 are in bench/results/h200_verdicts.txt.
#
#   scripts/fa verdicts build/emulator/bin/attention | diff bench/results/h200_verdicts.txt -
#   scripts/fa verdicts --quick build/emulator/bin/attention       the smallest shape and one seed only
set -euo pipefail

shapes=("128 1 1" "384 2 3" "640 1 2") seeds=(1 2)
inputs_of_all=(normal large dominant_key equal_keys increasing_max tiny one_hot_v
  hot_first_block hotter_blocks hot_row hot_tiles dominant_first dominant_last huge_scores)
if [[ ${1:-} == --quick ]]; then
  shapes=("128 1 1") seeds=(1)
  shift
fi
if [[ $# -ne 1 || $1 == -h || $1 == --help ]]; then
  echo "Usage: scripts/fa verdicts [--quick] PROGRAM"
  echo "Prints dtype, shape, inputs, seed, kernel, status of each verdict but 'passed'; then dtype, head_dim, kernel, passed."
  echo "Example:"
  echo "  scripts/fa verdicts build/emulator/bin/attention | diff bench/results/h200_verdicts.txt -"
  echo "Exit code: 0 every problem has its verdicts, 2 bad arguments, 3 the program crashed or gave none for a problem."
  [[ ${1:-} == -h || ${1:-} == --help ]] && exit 0
  exit 2
fi
program=$1
[[ -x $program ]] || { echo "error: $program is not a program that can be run" >&2; exit 2; }

cases=() # NUMBER DTYPE HEAD_DIM SEQ_LEN BATCH HEADS INPUTS SEED; the numbers sort as the lines are to stand
for dtype in fp16 bf16; do
  for head_dim in 64 128; do
    for shape in "${shapes[@]}"; do
      for inputs in "${inputs_of_all[@]}"; do
        for seed in "${seeds[@]}"; do
          cases+=("$((${#cases[@]} + 1000)) $dtype $head_dim $shape $inputs $seed")
        done
      done
    done
  done
done

# Verdicts of one problem in the file NUMBER; in NUMBER.failed the reason if they are not all there. The programs end
# with 0 to 3 on their own (0 passed, 1 wrong, 2 arguments, 3 back end).
one_case() {
  local rc=0 number=$1 case="$2 d$3 N$4 B$5 H$6 $7 seed $8"
  { "$program" --dtype "$2" --head-dim "$3" --seq-len "$4" --batch "$5" --heads "$6" --inputs "$7" --seed "$8" \
    --warmup 0 --iters 1 --workspace-mib 64 > "$folder/$number.out" || rc=$?; } 2> /dev/null
  # The checked build prints a second table, of what is beyond the ideal: only the first has verdicts.
  awk -v case="$case" '/^for each ideal one/ {exit} /^[0-9][0-9]_/ {print case, $1, $2}' \
    "$folder/$number.out" > "$folder/$number"
  if ((rc > 3)); then
    echo "ended with $rc on $case" > "$folder/$number.failed"
  elif [[ ! -s $folder/$number ]]; then
    echo "gave no verdict on $case" > "$folder/$number.failed"
  fi
  echo
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export program folder
export -f one_case

# At most 8 at a time: on a GPU each has a context of its own, some hundred MB of its memory.
jobs=$(nproc 2> /dev/null || echo 2)
count=0
# shellcheck disable=SC2016  # $@ is of the inner bash
printf '%s\n' "${cases[@]}" | xargs -P "$((jobs < 8 ? jobs : 8))" -L 1 bash -c 'one_case "$@"' one_case |
  while read -r _; do
    count=$((count + 1))
    if [[ -t 2 ]] && ((SECONDS >= 2)); then
      printf '\r\033[K%d of %d problems, %d s' "$count" "${#cases[@]}" "$SECONDS" >&2
    fi
  done
if [[ -t 2 ]] && ((SECONDS >= 2)); then printf '\r\033[K' >&2; fi

cat "$folder"/[0-9][0-9][0-9][0-9] | awk -v problems="$((${#cases[@]} / 4))" '
  { group = $1 " " $2 " " $9 }
  !(group in passed) { passed[group] = 0; groups[++count] = group }
  $10 == "passed" { ++passed[group]; next }
  { print }
  END { for (i = 1; i <= count; ++i) print groups[i], passed[groups[i]], "of", problems, "passed" }'
failed=("$folder"/*.failed)
if [[ -e ${failed[0]} ]]; then
  echo "error: $program $(< "${failed[0]}") (${#failed[@]} of ${#cases[@]} problems have no or not all verdicts)" >&2
  exit 3
fi
