#!/usr/bin/env bash
# Installs a CUDA compiler into .toolkit from NVIDIA's Python wheels.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

usage() {
  cat <<'HELP'
Usage: scripts/fa toolkit [--remove]

Installs CUDA 13.0's compiler (nvcc, ptxas, runtime, CCCL, cuobjdump, nvdisasm;
about 280 MB) into .toolkit of this checkout, from the pinned Python wheels in
scripts/toolkit-requirements.txt. scripts/run.sh calls it when a GPU's driver is
new enough (580) but no recent nvcc is here. Nothing outside .toolkit changes.

Examples:
  scripts/fa toolkit
  CUDACXX=.toolkit/bin/nvcc cmake --preset cuda

Options:
  --remove  delete .toolkit
  --help    this text

Exit code: 0 done, 2 bad arguments, 4 the compiler could not be fetched.
HELP
}

toolkit=$ROOT/.toolkit
requirements=$ROOT/scripts/toolkit-requirements.txt

case ${1:-} in
  '') ;;
  -h | --help)
    usage
    exit 0
    ;;
  --remove)
    rm -rf "$toolkit"
    exit 0
    ;;
  *) die "$EXIT_USAGE" "unknown argument '$1'; scripts/fa toolkit --help shows what there is" ;;
esac

# Complete is what was made from these very pins.
if [[ -x $toolkit/bin/nvcc ]] && cmp -s "$requirements" "$toolkit/complete"; then exit 0; fi

ensure_venvs "$VENV" || die "$EXIT_SETUP" "the CUDA compiler cannot be fetched without Python's venv and the network"
say "Fetching NVIDIA's CUDA compiler into .toolkit. It is under NVIDIA's licence, not this project's:" \
  "see .toolkit/licenses or docs.nvidia.com/cuda/eula."

staging=$toolkit.partial
rm -rf "$staging"
trap 'rm -rf "$staging"' EXIT
STEP_TAIL=3 step "downloading the CUDA compiler" "$SETUP_LOG" \
  "$VENV/bin/python" -m pip install --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
  --retries 1 --timeout 60 --target "$staging" --requirement "$requirements" ||
  die "$EXIT_SETUP" "the CUDA compiler could not be fetched from the Python package index"

# The wheels share one folder, nvidia/cu13, which is nearly a toolkit. nvcc and CMake want two more names: lib64, and
# libcudart.so without a version (a wheel cannot hold links).
root=$staging/nvidia/cu13
[[ -x $root/bin/nvcc ]] || die "$EXIT_SETUP" "the wheels did not bring bin/nvcc; their layout must have changed"
ln -s lib "$root/lib64"
for library in "$root"/lib/*.so.*; do
  name=${library##*/}
  ln -s "$name" "$root/lib/${name%%.so.*}.so"
done
mkdir "$root/licenses"
for licence in "$staging"/*.dist-info/licenses/*; do
  package=${licence%.dist-info/*}
  cp "$licence" "$root/licenses/${package##*/}.txt"
done
cp "$requirements" "$root/complete"
rm -rf "$toolkit"
mv "$root" "$toolkit"
