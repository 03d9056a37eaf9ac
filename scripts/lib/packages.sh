# shellcheck shell=bash
# Finds out what is missing and installs it: Debian/Ubuntu packages, and Python environments for charts and validation,
# the site and its browser. When nothing is missing it only looks at files, so it costs milliseconds and needs no network.

SETUP_LOG=$ROOT/build/setup.log
VENV=$ROOT/.venv
REQUIREMENTS=$ROOT/scripts/requirements.txt

# One line per package of Debian and Ubuntu: the first list that has it (test has what run has, all has everything), the
# package's name, and the programs and headers for which it is installed. It is all that a machine needs beside Debian's
# essential packages. CI's containers have nothing else, so a test fails there that calls a program of another package.
readonly PACKAGES='
run   g++                    g++
run   binutils               addr2line c++filt readelf strip
run   cmake                  cmake ctest
run   ninja-build            ninja
run   nlohmann-json3-dev     nlohmann/json.hpp
run   libcli11-dev           CLI/CLI.hpp
run   libboost-context-dev   boost/context/fiber.hpp
run   libgtest-dev           gtest/gtest.h
run   libbenchmark-dev       benchmark/benchmark.h
run   python3-venv           python3
test  git                    git
all   clang                  clang++
all   clang-format           clang-format
all   g++-aarch64-linux-gnu  aarch64-linux-gnu-g++ aarch64-linux-gnu-addr2line
all   gdb                    gdb
all   pkgconf                pkg-config
all   qemu-user              qemu-aarch64 qemu-x86_64
all   shellcheck             shellcheck
'

# --- What is here? ---------------------------------------------------------------------------------------------

found_header() {
  local dir
  local -a dirs=(/usr/include /usr/local/include)
  local IFS=:
  # shellcheck disable=SC2206  # splitting at ':' is what is wanted
  dirs+=(${CPATH:-})
  for dir in ${CMAKE_PREFIX_PATH:-}; do dirs+=("$dir/include"); done
  for dir in "${dirs[@]}"; do
    [[ -e $dir/$1 ]] && return 0
  done
  return 1
}

found_gxx() { [[ -n ${CXX:-} ]] || { have g++ && version_at_least "$(g++ -dumpversion)" 12; }; }

found_cmake() {
  have cmake || return 1
  local first _
  IFS= read -r first < <(cmake --version) || return 1
  version_at_least "${first##* }" 3.25
}

found_venv_module() { venv_ready || python3 -c 'import ensurepip, venv' 2>/dev/null; }

# found PACKAGE: is all that it brings here?
found() {
  local list package brings each
  case $1 in
    g++)
      found_gxx
      return
      ;;
    cmake)
      found_cmake
      return
      ;;
    python3-venv)
      found_venv_module
      return
      ;;
  esac
  while read -r list package brings; do
    [[ $package == "$1" ]] || continue
    for each in $brings; do
      if [[ $each == */* ]]; then found_header "$each"; else have "$each"; fi || return 1
    done
    return 0
  done <<<"$PACKAGES"
  die "$EXIT_SETUP" "PACKAGES has no line for $1"
}

# essential LIST PACKAGE: what the build cannot do without, and Python, without which half of the tests would be left
# out. The others are downloaded by CMake (pinned), or what needs them is skipped.
essential() {
  case $2 in
    g++ | cmake | ninja-build | libboost-context-dev) return 0 ;;
    python3-venv) [[ $1 != run ]] && ! have python3 ;;
    *) return 1 ;;
  esac
}

packages_for() { # packages_for run|test|all emulator|cuda
  local list package _
  while read -r list package _; do
    case $1-$list in
      run-run | test-run | test-test | all-?*) [[ $package-$2 == libboost-context-dev-cuda ]] || printf '%s\n' "$package" ;;
    esac
  done <<<"$PACKAGES"
}

# --- Install what is not ---------------------------------------------------------------------------------------

as_root() {
  if ((EUID == 0)); then "$@"; else sudo -n "$@"; fi
}

# A reader at a terminal may be asked for a password, once.
can_install() {
  have apt-get || return 1
  ((EUID == 0)) && return 0
  have sudo || return 1
  sudo -n true 2>/dev/null && return 0
  [[ -t 0 && -t 2 ]] || return 1
  note "installing packages needs root, so sudo may ask for your password"
  sudo -v
}

APT_PATIENCE=100 # seconds for the archive to answer
apt_install() {
  local -a apt=(env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -o DPkg::Lock::Timeout=120 -o Acquire::Retries=1
    -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30)
  local answer
  # A stale list may still be good enough to install from, so a failing update alone is no reason to stop. An archive of
  # which nothing came is one: each package would be waited for.
  answer=$(as_root timeout --kill-after=5 "$APT_PATIENCE" "${apt[@]}" update 2>&1) || true
  printf '%s\n' "$answer"
  if ! grep -Eq '^(Hit|Get):' <<<"$answer"; then
    printf 'E: the package archive does not answer\n'
    return 100
  fi
  as_root "${apt[@]}" install --yes --no-install-recommends "$@"
}

# ensure_packages run|test|all emulator|cuda
ensure_packages() {
  local package why=''
  local -a wanted missing=() vital=()
  mapfile -t wanted < <(packages_for "$1" "$2")
  for package in "${wanted[@]}"; do
    found "$package" || missing+=("$package")
  done
  ((${#missing[@]})) || return 0

  if can_install; then
    if ! STEP_TAIL=0 step "installing ${missing[*]}" "$SETUP_LOG" apt_install "${missing[@]}"; then
      why=$(grep '^E: ' "$SETUP_LOG" | tail -n 1 || true)
      why="apt-get could not install what is missing: ${why#E: } ($(pretty "$SETUP_LOG") has all that it said)"
    fi
    hash -r
  fi
  local -a still=()
  for package in "${missing[@]}"; do
    found "$package" && continue
    still+=("$package")
    if essential "$1" "$package"; then vital+=("$package"); fi
  done
  ((${#still[@]})) || return 0

  local how="as root: apt-get install ${still[*]}"
  have apt-get || how="under these names on Debian: ${still[*]}"
  if ((${#vital[@]})); then
    die "$EXIT_SETUP" "${why:-please install what is missing (g++ must be 12 or newer, CMake 3.25 or newer)}; $how"
  fi
  note "${why:+$why; }going on without ${still[*]} (a library is downloaded by CMake, what needs a tool is skipped);" \
    "to install, $how"
}

# --- Python for charts and validation --------------------------------------------------------------------------

# The environment is complete when it was made from these very requirements by this very Python. Python says itself who
# it is: one that is called through a script of the same name (pyenv's) has a PATH on which it comes first.
venv_stamp() {
  python3 -c 'import sys; print("python", sys.base_prefix, sys.version)'
  cat "$REQUIREMENTS"
}

venv_ready() {
  [[ -x $VENV/bin/python && -f $VENV/complete ]] && have python3 && [[ $(venv_stamp) == "$(<"$VENV/complete")" ]]
}

make_venv() {
  rm -rf "$VENV"
  python3 -m venv "$VENV" &&
    "$VENV/bin/python" -m pip install --disable-pip-version-check --only-binary :all: --retries 1 --timeout 30 \
      --requirement "$REQUIREMENTS"
}

# ensure_venv [LABEL WITHOUT]: makes $VENV from $REQUIREMENTS. Returns 1 (after one sentence) if there is none to be had:
# nothing but charts and validation needs it.
ensure_venv() {
  venv_ready && return 0
  local label=${1:-installing the chart tools into .venv} without=${2:-no charts}
  if [[ -e $VENV && ! -O $VENV ]]; then
    note "$without: ${VENV##*/} belongs to $(stat -c %U "$VENV") and does not work here; it is left as it is"
    return 1
  fi
  if have python3 && STEP_TAIL=0 step "$label" "$SETUP_LOG" make_venv; then
    venv_stamp >"$VENV/complete"
    return 0
  fi
  rm -rf "$VENV"
  note "$without: the Python environment ${VENV##*/} could not be made (it needs python3-venv and, once, the network);" \
    "build/setup.log has the details"
  return 1
}

# The same for the site of the book.
DOCS_VENV=$ROOT/.venv-docs
ensure_docs_venv() {
  local VENV=$DOCS_VENV REQUIREMENTS=$ROOT/scripts/docs-requirements.txt
  ensure_venv 'installing MkDocs into .venv-docs' 'no site'
}

# And for the tests of the site in a browser: Playwright's Python package, and the system's Chromium. Without them those
# tests are skipped. Chromium is installed by itself: not every distribution has a package of that name.
BROWSER_VENV=$ROOT/.venv-browser
found_browser() { have chromium || have chromium-browser || have google-chrome; }
ensure_browser() {
  local VENV=$BROWSER_VENV REQUIREMENTS=$ROOT/tests/browser/requirements.txt
  if ! found_browser && can_install; then
    STEP_TAIL=0 step 'installing chromium' "$SETUP_LOG" apt_install chromium || true
    hash -r
  fi
  if ! found_browser; then
    note 'going on without chromium: the tests in a browser are skipped'
    return 1
  fi
  ensure_venv 'installing Playwright into .venv-browser' 'no tests in a browser'
}

# And what other tests of --all need: clang-tidy, of which releases differ too much for the system's, nvdisasm, NumPy,
# ruff and mypy.
TESTS_VENV=$ROOT/.venv-tests
ensure_tests_venv() {
  local VENV=$TESTS_VENV REQUIREMENTS=$ROOT/tests/requirements.txt
  ensure_venv 'installing clang-tidy, nvdisasm, NumPy, ruff and mypy into .venv-tests' 'no look at the includes'
}
