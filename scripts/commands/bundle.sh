#!/usr/bin/env bash
# Packs portable programs for a GPU machine that has neither a compiler nor the network.
set -euo pipefail
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"

usage() {
  cat <<'HELP'
Usage: scripts/fa bundle [options]

Builds every kernel for the GPU with everything but the C library linked in, and
packs the programs, the results schema and a run script into bundle/*.tar.gz. No
GPU is needed here; on the machine with one, unpack and ./run.sh.

Examples:
  scripts/fa bundle
  scripts/fa bundle --arch "90a" --toolkit wheels

Options:
  --arch LIST                   CUDA architectures (default "80;90a;120")
  --toolkit auto|system|wheels  which nvcc: the machine's, or the one from
                                NVIDIA's Python wheels in .toolkit
  --help                        this text

Exit code: 0 packed, 1 a program would need more than the C library, 2 bad
arguments, 3 no nvcc is new enough or the GPU's driver is too old, 4 set-up or
build failed.
HELP
}

arch='80;90a;120' toolkit=auto
while (($#)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --arch | --toolkit)
      (($# >= 2)) || die "$EXIT_USAGE" "$1 needs a value; scripts/fa bundle --help shows them"
      printf -v "${1#--}" '%s' "$2"
      shift
      ;;
    --arch=*) arch=${1#*=} ;;
    --toolkit=*) toolkit=${1#*=} ;;
    *) die "$EXIT_USAGE" "unknown argument '$1'; scripts/fa bundle --help shows what there is" ;;
  esac
  shift
done
one_of --toolkit "$toolkit" auto system wheels
each='(7[5-9]|[89][0-9]|1[0-9][0-9])[af]?(-real|-virtual)?'
[[ $arch =~ ^$each(\;$each)*$ ]] || die "$EXIT_USAGE" "--arch takes architectures from 75 on, such as '80;90a', not '$arch'"

choose_backend cuda "$toolkit" 1
ensure_packages run cuda
have readelf || die "$EXIT_SETUP" "readelf is needed to check the programs; as root: apt-get install binutils"
if [[ $TOOLCHAIN == wheels ]]; then "$ROOT/scripts/fa" toolkit; fi

build=$ROOT/build/bundle
step "configuring the bundle" "$build/configure.log" \
  cmake -S "$ROOT" --preset cuda -B "$build" -DFA_STATIC=ON -DCMAKE_CUDA_COMPILER="$NVCC" \
  -DCMAKE_CUDA_ARCHITECTURES="$arch" || die "$EXIT_SETUP" "CMake could not configure the bundle"
# Kernels are found, never listed: the same glob as in CMake.
targets=(attention peers)
for kernel in "$ROOT"/kernels/[0-9][0-9]_*.cu; do
  kernel=${kernel##*/}
  targets+=("${kernel%.cu}")
done
: >"$build/build.log"
NINJA_STATUS='[%f/%t] ' step "building the bundle" "$build/build.log" \
  cmake --build "$build" --target "${targets[@]}" || die "$EXIT_SETUP" "the build of the bundle failed"

# Whatever a program still loads must be part of every Linux with a GPU driver: the C library and nothing else.
allowed='^(libc\.so\.6|libm\.so\.6|libpthread\.so\.0|libdl\.so\.2|librt\.so\.1|ld-linux[^ ]*)$'
glibc=''
for target in "${targets[@]}"; do
  program=$build/bin/$target
  dynamic=$(readelf --dynamic --wide "$program")
  foreign=$(sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' <<<"$dynamic" | grep -Ev "$allowed" || true)
  [[ -z $foreign ]] || die 1 "$target would need ${foreign//$'\n'/ } on the other machine; FA_STATIC=ON must link it in"
  if grep -Eq '\((RPATH|RUNPATH)\)' <<<"$dynamic"; then
    die 1 "$target looks for libraries in a folder of this machine (RPATH)"
  fi
  newest=$(readelf --version-info --wide "$program" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
  glibc=$(printf '%s\n%s\n' "$glibc" "${newest#GLIBC_}" | sort -V | tail -n 1)
done

revision=$(git -c safe.directory="$ROOT" -C "$ROOT" describe --always --dirty 2>/dev/null || echo unknown)
name=attention-ladder-$revision-$(uname -m)
staging=$ROOT/bundle/$name
rm -rf "$staging"
mkdir -p "$staging/bin"
for target in "${targets[@]}"; do
  cp "$build/bin/$target" "$staging/bin/"
  strip --strip-unneeded "$staging/bin/$target"
done
cp "$ROOT/bench/schema.json" "$ROOT/LICENSE" "$ROOT/THIRD_PARTY.md" "$staging/"
cat >"$staging/run.sh" <<'RUN'
#!/usr/bin/env bash
# Runs every kernel (or those named: ./run.sh 02 03 --seq-len 1024) and writes results-<UTC time>-<process>.json here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
json=results-$(date -u +%Y-%m-%dT%H-%M-%SZ)-$$.json
rc=0
bin/attention "$@" --json "$json" || rc=$?
if [[ -f $json ]]; then echo "Results: $json (draw them in a checkout: scripts/fa chart $json)"; fi
exit "$rc"
RUN
chmod +x "$staging/run.sh"
cat >"$staging/README.txt" <<README
Attention kernels, step by step: programs of revision $revision.

./run.sh            runs, checks and times every kernel
bin/NN_name --help  one kernel alone
bin/peers           cuDNN beside them, and what a matrix product and a copy reach; missing libraries are named

Architectures: $arch. Built with nvcc $(nvcc_version "$NVCC").
Needs: an NVIDIA driver for that CUDA version, and glibc $glibc or newer. Nothing else.
README

archive=$ROOT/bundle/$name.tar.gz
# Sorted, without owners and times, so that the same programs give the same archive.
tar --directory "$ROOT/bundle" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --create "$name" |
  gzip -9n >"$archive"
rm -rf "$staging"
say "Packed $(pretty "$archive") ($(du -h "$archive" | cut -f1), ${#targets[@]} programs, glibc $glibc or newer)."
