# shellcheck shell=bash
# Finds out what is missing and installs it: Debian/Ubuntu packages, and Python environments. When nothing is missing it
# only looks at files, so it costs milliseconds and needs no network.

SETUP_LOG=$ROOT/build/setup.log
# shellcheck disable=SC2034  # the scripts that source this have the others
VENV=$ROOT/.venv DOCS_VENV=$ROOT/.venv-docs TESTS_VENV=$ROOT/.venv-tests

# One line per package of Debian and Ubuntu: the first list that has it (test has what run has, quick what test has, all
# everything), the package's name, and the programs and headers for which it is installed. It is all that a machine needs
# beside Debian's essential packages. CI's containers have nothing else, so a test fails there that calls a program of
# another package.
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
quick clang-format           clang-format
all   clang                  clang++
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

found_venv_module() { venv_ready "$VENV" || python3 -c 'import ensurepip, venv' 2>/dev/null; }

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

packages_for() { # packages_for run|test|quick|all emulator|cuda
  local list package _
  while read -r list package _; do
    case $1-$list in
      run-run | test-run | test-test | quick-run | quick-test | quick-quick | all-?*) [[ $package-$2 == libboost-context-dev-cuda ]] || printf '%s\n' "$package" ;;
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

# ensure_packages run|test|quick|all emulator|cuda
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

# --- Python's environments -------------------------------------------------------------------------------------

# One line per environment: its folder, what is installed into it, and what is done without if there is none: charts and
# validation; the site of the book; and what the tests of --all need beside them.
readonly VENVS='
.venv        scripts/requirements.txt       no charts
.venv-docs   scripts/docs-requirements.txt  no site
.venv-tests  tests/requirements.txt         no tests in a browser, no look at the includes
'
venv_line() { # venv_line FOLDER: sets requirements and without
  local folder
  while read -r folder requirements without; do
    [[ $folder != "${1##*/}" ]] || return 0
  done <<<"$VENVS"
  die "$EXIT_SETUP" "VENVS has no line for $1"
}

# An environment is complete when it was made from these very requirements by this very Python. Python says itself who
# it is: one that is called through a script of the same name (pyenv's) has a PATH on which it comes first.
venv_stamp() { # venv_stamp FOLDER
  local requirements without
  venv_line "$1"
  python3 -c 'import sys; print("python", sys.base_prefix, sys.version)'
  cat "$ROOT/$requirements"
}

venv_ready() { # venv_ready FOLDER
  [[ -x $1/bin/python && -f $1/complete ]] && have python3 && [[ $(venv_stamp "$1") == "$(<"$1/complete")" ]]
}

make_venv() { # make_venv FOLDER
  local requirements without
  venv_line "$1"
  rm -rf "$1"
  python3 -m venv "$1" &&
    "$1/bin/python" -m pip install --disable-pip-version-check --only-binary :all: --retries 1 --timeout 30 \
      --requirement "$ROOT/$requirements" &&
    venv_stamp "$1" >"$1/complete"
}

# Beside each other, because each waits for the network; what one prints stays together. Without the trap Ctrl-C would not
# reach what runs in the background.
make_venvs() { # make_venvs FOLDER...
  local each
  for each in "$@"; do
    (
      trap - INT
      said=$(make_venv "$each" 2>&1) || true
      printf '%s\n' "$said"
    ) &
  done
  wait
}

# ensure_venvs FOLDER...: makes those that are not there. Returns 1 (after one sentence for each) if one of them is not to
# be had.
ensure_venvs() {
  local each requirements without rc=0
  local -a missing=()
  for each in "$@"; do
    venv_ready "$each" && continue
    if [[ -e $each && ! -O $each ]]; then
      venv_line "$each"
      note "$without: ${each##*/} belongs to $(stat -c %U "$each") and does not work here; it is left as it is"
      rc=1
    else
      missing+=("$each")
    fi
  done
  ((${#missing[@]})) || return "$rc"
  have python3 && STEP_TAIL=0 step "installing Python packages into ${missing[*]##*/}" "$SETUP_LOG" make_venvs "${missing[@]}"
  for each in "${missing[@]}"; do
    venv_ready "$each" && continue
    rm -rf "$each"
    venv_line "$each"
    note "$without: the Python environment ${each##*/} could not be made (it needs python3-venv and, once, the network);" \
      "build/setup.log has the details"
    rc=1
  done
  return "$rc"
}

# The system's Chromium, for the tests of the site in a browser. It is installed by itself: not every distribution has a
# package of that name.
found_browser() { have chromium || have chromium-browser || have google-chrome; }
ensure_browser() {
  found_browser && return 0
  if can_install; then
    STEP_TAIL=0 step 'installing chromium' "$SETUP_LOG" apt_install chromium || true
    hash -r
  fi
  found_browser || note 'going on without chromium: the tests in a browser are skipped'
}
