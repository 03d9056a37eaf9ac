# Libraries: the system's package first, else the release archive with its pinned hash.
include(FetchContent)

# fa_dependency(NAME package imported-target archive-url sha256 [cache settings...])
macro(fa_dependency name package target url hash)
  find_package(${package} QUIET)
  if(NOT TARGET ${target})
    message(STATUS "${package} is not installed: fetching ${url}")
    foreach(setting ${ARGN})
      string(REPLACE "=" ";" pair ${setting})
      list(GET pair 0 key)
      list(GET pair 1 value)
      set(${key} ${value} CACHE INTERNAL "")
    endforeach()
    FetchContent_Declare(${name} SYSTEM URL ${url} URL_HASH SHA256=${hash}
      DOWNLOAD_EXTRACT_TIMESTAMP ON)
    FetchContent_MakeAvailable(${name})
  endif()
endmacro()

fa_dependency(json nlohmann_json nlohmann_json::nlohmann_json
  https://github.com/nlohmann/json/archive/refs/tags/v3.11.3.tar.gz
  0d8ef5af7f9794e3263480193c491549b2ba6cc74bb018906202ada498a79406 JSON_BuildTests=OFF)
fa_dependency(cli11 CLI11 CLI11::CLI11
  https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.4.2.tar.gz
  f2d893a65c3b1324c50d4e682c0cdc021dd0477ae2c048544f39eed6654b699a
  CLI11_BUILD_TESTS=OFF CLI11_BUILD_EXAMPLES=OFF CLI11_BUILD_DOCS=OFF)

if(FA_BACKEND STREQUAL "emulator")
  if(FA_STATIC)
    set(Boost_USE_STATIC_LIBS ON)
  endif()
  set(Boost_NO_WARN_NEW_VERSIONS ON)
  find_package(Boost QUIET COMPONENTS context)
  if(NOT TARGET Boost::context)
    message(FATAL_ERROR "The emulator needs Boost.Context: install libboost-context-dev (Debian, Ubuntu) "
                        "or Boost 1.74 or later with its context library.")
  endif()
endif()

if(FA_TESTS)
  fa_dependency(googletest GTest GTest::gtest
    https://github.com/google/googletest/archive/refs/tags/release-1.12.1.tar.gz
    81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2 INSTALL_GTEST=OFF)
  fa_dependency(benchmark benchmark benchmark::benchmark
    https://github.com/google/benchmark/archive/refs/tags/v1.9.1.tar.gz
    32131c08ee31eeff2c8968d7e874f3cb648034377dfc32a4c377fa8796d84981
    BENCHMARK_ENABLE_TESTING=OFF BENCHMARK_ENABLE_WERROR=OFF BENCHMARK_ENABLE_INSTALL=OFF)
endif()

find_package(Threads REQUIRED)
