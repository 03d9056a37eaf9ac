# How tests are added. CTest's labels: none is what scripts/test.sh runs, whose programs the target default_tests builds; `quick` needs no
# program of the build; `all` is the rest of what CI runs, by the target all_tests beside all; `portable` is what of it hosted CI
# also runs with clang++ and on arm64, by portable_tests; `full` is what hosted CI runs besides, by full_tests; `long` takes
# hours. scripts/test.sh has an option for each but `portable`. Beside them `nvcc` needs CUDA's compiler.
include(GoogleTest)

# fa_add_program(NAME [FULL] sources...): a program that only tests labelled `all` need, or with FULL those labelled `full`.
add_custom_target(default_tests)
add_custom_target(portable_tests)
add_custom_target(all_tests)
add_dependencies(all_tests portable_tests)
add_custom_target(full_tests)
add_dependencies(full_tests all_tests)
function(fa_add_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "FULL" "" "")
  add_executable(${name} EXCLUDE_FROM_ALL ${arg_UNPARSED_ARGUMENTS})
  if(arg_FULL)
    add_dependencies(full_tests ${name})
  else()
    add_dependencies(all_tests ${name})
  endif()
endfunction()

# fa_add_gtest(NAME [ALL | FULL] [ONLY filter] sources...): a GoogleTest program; every test is one CTest. Suites whose name has
# "Full" in it get the label `full`, those with "Long" the label `long`. With ALL the program's others are `portable`,
# with FULL it has no others, with ONLY those that the filter names.
function(fa_add_gtest name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "ALL;FULL" "ONLY" "")
  set(label "")
  if(arg_FULL)
    fa_add_program(${name} FULL ${arg_UNPARSED_ARGUMENTS})
  elseif(arg_ALL)
    fa_add_program(${name} ${arg_UNPARSED_ARGUMENTS})
    add_dependencies(portable_tests ${name})
    set(label LABELS portable)
  else()
    add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
    add_dependencies(default_tests ${name})
    add_dependencies(all_tests ${name})
  endif()
  target_link_libraries(${name} PRIVATE fa_harness fa_runs_once GTest::gtest GTest::gtest_main)
  # The program itself lists its tests, before they run: the build stays free of that.
  set(discover NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST)
  gtest_discover_tests(${name} ${discover} TEST_FILTER "${arg_ONLY}-*Long*.*:*Full*.*" PROPERTIES ${label} TIMEOUT 120)
  gtest_discover_tests(${name} ${discover} TEST_FILTER "*Full*.*" PROPERTIES LABELS full TIMEOUT 300)
  gtest_discover_tests(${name} ${discover} TEST_FILTER "*Long*.*" PROPERTIES LABELS long TIMEOUT 3600)
endfunction()

# What a GPU runs in one go, or the checked build, or the emulator's own project, does not wait for scripts/test.sh --all.
set(all ALL)
if(FA_CHECKED OR FA_BACKEND STREQUAL "cuda" OR NOT CMAKE_PROJECT_NAME STREQUAL "fast_attention")
  set(all "")
endif()

# What a program of instrumented kernels links beside them; in a checked build everything does.
set(hooks "")
if(FA_BACKEND STREQUAL "emulator" AND NOT FA_CHECKED)
  set(hooks fa_checked)
endif()

# fa_add_python_test(NAME labels-or-"" script arguments...): exit code 77 means that a tool is missing.
find_package(Python3 3.11 COMPONENTS Interpreter QUIET)
function(fa_add_python_test name label script)
  if(NOT Python3_Interpreter_FOUND)
    return()
  endif()
  add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/${script} ${ARGN})
  # COST: these run longest, so they start first.
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600 COST 100 LABELS "${label}")
endfunction()
