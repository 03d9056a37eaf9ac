# shellcheck shell=bash
# Chooses where the kernels run: on the GPU with the machine's nvcc, on the GPU with nvcc from Python wheels, or on
# the emulator. Configures and builds a CMake preset, quietly. Needs common.sh.
# shellcheck disable=SC2034  # what is set here is read by the scripts that source this

readonly MIN_NVCC=12.8          # the first with sm_100a and sm_120
readonly WHEELS_MIN_DRIVER=580  # what CUDA 13.0's runtime asks for
TOOLKIT=$ROOT/.toolkit

# What the choice depends on and what it gives.
GPU_NAME='' GPU_DRIVER='' GPU_CAPABILITY='' NVCC='' NVCC_VERSION=''
BACKEND='' TOOLCHAIN='' BACKEND_REASON='' OPTIONS=()

detect_gpu() { # the first GPU; empty answers if there is none
  local smi line
  for smi in nvidia-smi /usr/lib/wsl/lib/nvidia-smi; do
    have "$smi" || continue
    line=$(timeout 20 "$smi" --query-gpu=name,driver_version,compute_cap --format=csv,noheader 2>/dev/null) || continue
    line=${line%%$'\n'*}
    [[ $line == *,*,* ]] || continue
    IFS=, read -r GPU_NAME GPU_DRIVER GPU_CAPABILITY <<<"$line"
    GPU_DRIVER=${GPU_DRIVER// /} GPU_CAPABILITY=${GPU_CAPABILITY// /}
    return 0
  done
  return 1
}

nvcc_version() {
  local text
  text=$("$1" --version 2>/dev/null) || return 1
  [[ $text =~ release\ ([0-9]+\.[0-9]+) ]] && printf '%s' "${BASH_REMATCH[1]}"
}

detect_nvcc() { # the machine's own nvcc, never the wheels'
  local candidate version
  for candidate in "${CUDACXX:-}" nvcc "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" {/usr/local,/opt}/cuda/bin/nvcc; do
    if [[ -z $candidate ]] || ! have "$candidate"; then continue; fi
    version=$(nvcc_version "$candidate") || continue
    NVCC=$(command -v "$candidate") NVCC_VERSION=$version
    return 0
  done
  return 1
}

nvcc_new_enough() { [[ -n $NVCC ]] && version_at_least "$NVCC_VERSION" "$MIN_NVCC"; }

# A runtime needs a driver of its own major version: 13.x wants 580, 12.x wants 525.
driver_runs_nvcc() {
  local least=525
  version_at_least "$NVCC_VERSION" 13.0 && least=580
  version_at_least "$GPU_DRIVER" "$least"
}

use_emulator() { BACKEND=emulator TOOLCHAIN='' BACKEND_REASON=$1; }
use_cuda() { BACKEND=cuda TOOLCHAIN=$1 BACKEND_REASON=$2; }

# choose_backend auto|cuda|emulator auto|system|wheels COMPILE_ONLY(0|1)
# An explicit wish that cannot be met is an error; with `auto` anything unusable ends in one sentence and the emulator.
choose_backend() {
  local wish=$1 toolkit=$2 compile_only=$3
  if [[ $wish == emulator ]]; then
    use_emulator 'asked for'
    return
  fi
  local gpu=0
  detect_gpu && gpu=1
  detect_nvcc || true

  if [[ $wish == auto ]] && ((!gpu)); then
    use_emulator 'no NVIDIA GPU found'
    return
  fi
  if ((!gpu && !compile_only)); then
    die 3 "no NVIDIA GPU answers through nvidia-smi; use --backend emulator, or --compile-only to build without running"
  fi

  local why=''
  if [[ $toolkit != wheels ]]; then
    if [[ -z $NVCC ]]; then
      why="there is no nvcc"
    elif ! nvcc_new_enough; then
      why="nvcc $NVCC_VERSION is older than $MIN_NVCC"
    elif ((gpu)) && ! driver_runs_nvcc; then
      why="driver $GPU_DRIVER is too old for CUDA $NVCC_VERSION"
    else
      use_cuda system "nvcc $NVCC_VERSION"
      return
    fi
    if [[ $toolkit == system ]]; then
      [[ $wish == cuda ]] && die 3 "$why; use --toolkit wheels or install CUDA $MIN_NVCC or newer"
      note "$why, so the emulator is used; --toolkit wheels would fetch a compiler"
      use_emulator "$why"
      return
    fi
  fi
  if ((!gpu)) || version_at_least "$GPU_DRIVER" "$WHEELS_MIN_DRIVER"; then
    NVCC=$TOOLKIT/bin/nvcc
    use_cuda wheels "${why:-asked for}"
    return
  fi
  why="${why:+$why and }driver $GPU_DRIVER is older than the $WHEELS_MIN_DRIVER that the wheels' CUDA needs"
  [[ $wish == cuda ]] && die 3 "$why"
  note "$why, so the emulator is used"
  use_emulator "$why"
}

# options_of_gpu ARGUMENT... : OPTIONS of the program for what these leave open. Before 8.0 Tensor Cores have no bf16, and
# the tiles of 03 and 04 fit in a CTA's shared memory with a head_dim of 64 alone.
options_of_gpu() {
  OPTIONS=()
  if [[ $BACKEND != cuda || -z $GPU_CAPABILITY || " $*" == *' --protocol'* ]] || version_at_least "$GPU_CAPABILITY" 8.0; then
    return 0
  fi
  [[ " $*" == *' --dtype'* ]] || OPTIONS+=(--dtype fp16)
  [[ " $*" == *' --head-dim'* ]] || OPTIONS+=(--head-dim 64)
}

# configure PRESET STAMP CMAKE_ARGUMENTS... : STAMP names what the configuration depends on beside the arguments
# (the GPU's architecture); when nothing changed, Ninja itself re-runs CMake if a CMake file did.
configure() {
  local preset=$1 stamp=$2 dir=$ROOT/build/$1
  shift 2
  local want="$stamp|$*" had=''
  local -a fresh=()
  [[ -f $dir/.configured ]] && had=$(<"$dir/.configured")
  [[ -f $dir/build.ninja && $had == "$want" ]] && return 0
  # A compiler cannot be exchanged inside a build tree.
  [[ -n $had && $had != "$want" ]] && fresh=(--fresh)
  claim "$dir/configure.log"
  rm -f "$dir/.configured"
  step "configuring $preset" "$dir/configure.log" \
    cmake -S "$ROOT" --preset "$preset" "${fresh[@]}" "$@" ||
    die "$EXIT_SETUP" "CMake could not configure the preset $preset"
  printf '%s' "$want" >"$dir/.configured"
}

# build PRESET TARGET... : without targets, everything.
build() {
  local preset=$1 dir=$ROOT/build/$1
  shift
  local -a targets=()
  (($#)) && targets=(--target "$@")
  claim "$dir/build.log"
  : >"$dir/build.log"
  NINJA_STATUS='[%f/%t] ' step "building $preset" "$dir/build.log" \
    cmake --build "$dir" "${targets[@]}" || die "$EXIT_SETUP" "the build of $preset failed"
}

# configure_cuda: the preset cuda with the compiler that choose_backend found. CUDAARCHS names architectures to build
# for; otherwise CMake asks the GPU, and without one it is Hopper.
configure_cuda() {
  if [[ $TOOLCHAIN == wheels ]]; then "$ROOT/scripts/fa" toolkit; fi
  local -a arguments=("-DCMAKE_CUDA_COMPILER=$NVCC")
  if [[ -n ${CUDAARCHS:-} ]]; then
    arguments+=("-DCMAKE_CUDA_ARCHITECTURES=$CUDAARCHS")
  elif [[ -z $GPU_NAME ]]; then
    arguments+=("-DCMAKE_CUDA_ARCHITECTURES=90a")
  fi
  configure cuda "capability ${GPU_CAPABILITY:-none}, nvcc $(nvcc_version "$NVCC")" "${arguments[@]}"
}
