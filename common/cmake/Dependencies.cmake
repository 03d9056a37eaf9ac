# Libraries: the system's package first, else the release archive with its pinned hash.
include(FetchContent)

# What is needed beside a compiler and is not here, by the names of Debian's packages.
set(missing "")

# fa_find(package imported-target debian-package)
macro(fa_find package target debian)
  find_package(${package} QUIET)
  if(NOT TARGET ${target})
    list(APPEND missing ${debian})
  endif()
endmacro()

# fa_fetch(NAME imported-target archive-url sha256 [cache settings...]): a library that was not found. Tried once:
# FetchContent alone would try six times in 85 seconds, and then not say what to do.
macro(fa_fetch name target url hash)
  if(NOT TARGET ${target})
    foreach(setting ${ARGN})
      string(REPLACE "=" ";" pair ${setting})
      list(GET pair 0 key)
      list(GET pair 1 value)
      set(${key} ${value} CACHE INTERNAL "")
    endforeach()
    set(archive ${url})
    string(TOUPPER ${name} upper)
    if(NOT FETCHCONTENT_FULLY_DISCONNECTED AND NOT FETCHCONTENT_SOURCE_DIR_${upper})
      string(REPLACE ";" " " packages "${missing}")
      message(STATUS "${name} is not installed (Debian, Ubuntu: apt-get install ${packages}): fetching ${url}")
      set(archive ${CMAKE_BINARY_DIR}/_deps/${name}.tar.gz)
      file(DOWNLOAD ${url} ${archive} EXPECTED_HASH SHA256=${hash} STATUS status TIMEOUT 60)
      list(GET status 1 reason)
      if(NOT status MATCHES "^0;")
        file(REMOVE ${archive})
        message(FATAL_ERROR "${name} is neither installed nor to be had from ${url} (${reason}). "
          "Install what is missing (Debian, Ubuntu: apt-get install ${packages}), or build with scripts/run.sh, "
          "which does.")
      endif()
    endif()
    FetchContent_Declare(${name} SYSTEM URL ${archive} URL_HASH SHA256=${hash}
      DOWNLOAD_EXTRACT_TIMESTAMP ON)
    FetchContent_MakeAvailable(${name})
  endif()
endmacro()

fa_find(nlohmann_json nlohmann_json::nlohmann_json nlohmann-json3-dev)
fa_find(CLI11 CLI11::CLI11 libcli11-dev)
if(FA_TESTS)
  fa_find(GTest GTest::gtest libgtest-dev)
endif()
if(FA_TESTS AND PROJECT_NAME STREQUAL "fast_attention")
  fa_find(benchmark benchmark::benchmark libbenchmark-dev)
endif()
if(FA_BACKEND STREQUAL "emulator")
  if(FA_STATIC)
    set(Boost_USE_STATIC_LIBS ON)
  endif()
  find_package(Boost 1.74 QUIET CONFIG COMPONENTS context)
  if(NOT TARGET Boost::context)
    list(APPEND missing libboost-context-dev)
    string(REPLACE ";" " " packages "${missing}")
    message(FATAL_ERROR "The emulator needs Boost.Context, 1.74 or later, which is not here. "
      "Install what is missing (Debian, Ubuntu: apt-get install ${packages}), or build with scripts/run.sh, which does.")
  endif()
endif()

# The versions are those of Debian 13, with CLI11 a patch later, and GoogleTest's is Debian 12's: all of our bare
# machines are tested with packages of about these, and with none that is newer than Debian 13's.
fa_fetch(json nlohmann_json::nlohmann_json
  https://github.com/nlohmann/json/archive/refs/tags/v3.11.3.tar.gz
  0d8ef5af7f9794e3263480193c491549b2ba6cc74bb018906202ada498a79406 JSON_BuildTests=OFF)
fa_fetch(cli11 CLI11::CLI11
  https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.4.2.tar.gz
  f2d893a65c3b1324c50d4e682c0cdc021dd0477ae2c048544f39eed6654b699a
  CLI11_BUILD_TESTS=OFF CLI11_BUILD_EXAMPLES=OFF CLI11_BUILD_DOCS=OFF)
if(FA_TESTS)
  fa_fetch(googletest GTest::gtest
    https://github.com/google/googletest/archive/refs/tags/release-1.12.1.tar.gz
    81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2 INSTALL_GTEST=OFF)
endif()
if(FA_TESTS AND PROJECT_NAME STREQUAL "fast_attention")
  fa_fetch(benchmark benchmark::benchmark
    https://github.com/google/benchmark/archive/refs/tags/v1.9.1.tar.gz
    32131c08ee31eeff2c8968d7e874f3cb648034377dfc32a4c377fa8796d84981
    BENCHMARK_ENABLE_TESTING=OFF BENCHMARK_ENABLE_WERROR=OFF BENCHMARK_ENABLE_INSTALL=OFF)
endif()

find_package(Threads REQUIRED)
