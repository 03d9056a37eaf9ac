#!/usr/bin/env bash
# Prints what a program says of every kernel on many small problems: one line a verdict. The same lines
# must come from the emulator and from a GPU; those of an H200 are in bench/results/h200_verdicts.txt.
#
#   scripts/verdicts.sh build/emulator/bin/attention > mine.txt
#   scripts/verdicts.sh --quick build/emulator/bin/attention       the smallest shape and one seed only
set -euo pipefail

shapes=("128 1 1" "384 2 3" "640 1 2") seeds=(1 2)
if [[ ${1:-} == --quick ]]; then
  shapes=("128 1 1") seeds=(1)
  shift
fi
if [[ $# -ne 1 || $1 == -h || $1 == --help ]]; then
  echo "Usage: scripts/verdicts.sh [--quick] PROGRAM     (prints dtype, shape, inputs, seed, kernel, status)"
  echo "Example:"
  echo "  scripts/verdicts.sh build/emulator/bin/attention > mine.txt"
  [[ ${1:-} == -h || ${1:-} == --help ]] && exit 0
  exit 2
fi
program=$1
[[ -x $program ]] || { echo "error: $program is not a program that can be run" >&2; exit 2; }

for dtype in fp16 bf16; do
  for head_dim in 64 128; do
    for shape in "${shapes[@]}"; do
      read -r seq_len batch heads <<< "$shape"
      for inputs in normal large dominant_key equal_keys increasing_max tiny one_hot_v; do
        for seed in "${seeds[@]}"; do
          "$program" --dtype "$dtype" --head-dim "$head_dim" --seq-len "$seq_len" --batch "$batch" --heads "$heads" \
            --inputs "$inputs" --seed "$seed" --warmup 0 --iters 1 --workspace-mib 64 2> /dev/null |
            awk -v case="$dtype d$head_dim N$seq_len B$batch H$heads $inputs seed $seed" \
              '/^[0-9][0-9]_/ {print case, $1, $2}' || true
        done
      done
    done
  done
done
