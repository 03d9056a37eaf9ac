# shellcheck shell=bash
# Configures and builds a CMake preset, quietly. Needs common.sh.

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
# for; otherwise CMake asks the GPU, and without one it is Hopper. Needs backend.sh.
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
