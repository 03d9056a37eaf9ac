# shellcheck shell=bash
# Finds out what is missing and installs it: Debian/Ubuntu packages, and a Python environment for charts and
# validation. When nothing is missing it only looks at files, so it costs milliseconds and needs no network.

SETUP_LOG=$ROOT/build/setup.log
VENV=$ROOT/.venv
REQUIREMENTS=$ROOT/scripts/requirements.txt

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

# One line a package: is it (or what it brings) here?
found() {
  case $1 in
    g++) found_gxx ;;
    cmake) found_cmake ;;
    ninja-build) have ninja ;;
    nlohmann-json3-dev) found_header nlohmann/json.hpp ;;
    libcli11-dev) found_header CLI/CLI.hpp ;;
    libboost-context-dev) found_header boost/context/fiber.hpp ;;
    libgtest-dev) found_header gtest/gtest.h ;;
    libbenchmark-dev) found_header benchmark/benchmark.h ;;
    python3-venv) found_venv_module ;;
    gdb | clang-format) have "$1" ;;
    binutils) have readelf && have objdump ;;
    *) die "$EXIT_SETUP" "found() does not know the package $1" ;;
  esac
}

# What the build cannot do without. The others are downloaded by CMake (pinned), or a feature is skipped.
essential() {
  case $1 in
    g++ | cmake | ninja-build | libboost-context-dev) return 0 ;;
    *) return 1 ;;
  esac
}

packages_for() { # packages_for run|test emulator|cuda
  local -a list=(g++ cmake ninja-build nlohmann-json3-dev libcli11-dev libgtest-dev libbenchmark-dev python3-venv)
  [[ $2 == emulator ]] && list+=(libboost-context-dev)
  [[ $1 == test ]] && list+=(gdb clang-format binutils)
  printf '%s\n' "${list[@]}"
}

# --- Install what is not ---------------------------------------------------------------------------------------

as_root() {
  if ((EUID == 0)); then "$@"; else sudo -n "$@"; fi
}

can_install() {
  have apt-get || return 1
  ((EUID == 0)) || { have sudo && sudo -n true 2>/dev/null; }
}

apt_install() {
  local -a apt=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120)
  # A stale list may still be good enough to install from, so a failing update alone is no reason to stop.
  as_root "${apt[@]}" update || true
  as_root "${apt[@]}" install --yes --no-install-recommends "$@"
}

# ensure_packages run|test emulator|cuda
ensure_packages() {
  local package
  local -a wanted missing=() vital=()
  mapfile -t wanted < <(packages_for "$1" "$2")
  for package in "${wanted[@]}"; do
    found "$package" || missing+=("$package")
  done
  ((${#missing[@]})) || return 0

  if can_install; then
    step "installing ${missing[*]}" "$SETUP_LOG" apt_install "${missing[@]}" || true
    hash -r
  fi
  local -a still=()
  for package in "${missing[@]}"; do
    found "$package" && continue
    still+=("$package")
    essential "$package" && vital+=("$package")
  done
  ((${#still[@]})) || return 0

  local how="as root: apt-get install ${still[*]}"
  have apt-get || how="under these names on Debian: ${still[*]}"
  if ((${#vital[@]})); then
    die "$EXIT_SETUP" "please install what is missing (g++ must be 12 or newer, CMake 3.25 or newer); $how"
  fi
  note "going on without ${still[*]} (a library is downloaded by CMake, what needs a tool is skipped); to install, $how"
}

# --- Python for charts and validation --------------------------------------------------------------------------

# The environment is complete when it was made from these very requirements by this very Python.
venv_stamp() {
  printf 'python %s\n' "$(readlink -f "$(command -v python3)")"
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

# And clang-tidy, which looks at the includes (tests/test_includes.py): releases differ too much for the system's.
TIDY_VENV=$ROOT/.venv-tidy
ensure_tidy() {
  local VENV=$TIDY_VENV REQUIREMENTS=$ROOT/tests/tidy-requirements.txt
  ensure_venv 'installing clang-tidy into .venv-tidy' 'no look at the includes'
}
