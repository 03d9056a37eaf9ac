# What every project of this repository starts with: its options, and how all that is in it is built.
set(FA_BACKEND "emulator" CACHE STRING "emulator: kernels run on the CPU; cuda: on a GPU; auto: that if there is one, or architectures to build for")
set_property(CACHE FA_BACKEND PROPERTY STRINGS emulator cuda auto)
option(FA_CHECKED "Emulator: observe every load and store of the kernels (counters, bounds)" OFF)
option(FA_DEBUG "Emulator: one OS thread, no optimisation, for stepping through a lane" OFF)
option(FA_NATIVE "Emulator: use all of this CPU's instructions (faster, the same bits)" ON)
option(FA_TIMELINE "CUDA: compile every kernel a second time, with recording, for --trace" OFF)
option(FA_STATIC "Portable programs: link what can be linked statically" OFF)
option(FA_TESTS "Build the tests and benchmarks" ${PROJECT_IS_TOP_LEVEL})  # not in another project
# CI services set CI=true. Elsewhere a newer compiler's warning must not stop a reader's build.
string(COMPARE EQUAL "$ENV{CI}" "true" in_ci)
option(FA_WERROR "Warnings stop the build; on by default where CI=true is in the environment" ${in_ci})

if(FA_BACKEND STREQUAL "auto")
  include(CheckLanguage)
  check_language(CUDA)
  execute_process(COMMAND nvidia-smi OUTPUT_QUIET ERROR_QUIET RESULT_VARIABLE no_gpu)
  if(CMAKE_CUDA_COMPILER AND (no_gpu STREQUAL "0" OR CMAKE_CUDA_ARCHITECTURES))
    set(FA_BACKEND cuda)
  else()
    set(FA_BACKEND emulator)
  endif()
  message(STATUS "FA_BACKEND: ${FA_BACKEND}")
endif()
if(NOT FA_BACKEND MATCHES "^(emulator|cuda)$")
  message(FATAL_ERROR "FA_BACKEND must be emulator, cuda or auto, not '${FA_BACKEND}'")
endif()
if(FA_TIMELINE AND NOT FA_BACKEND STREQUAL "cuda")
  message(FATAL_ERROR "FA_TIMELINE belongs to FA_BACKEND=cuda; the emulator writes timelines with FA_CHECKED")
endif()
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)  # C++: common/CMakeLists.txt
set(CMAKE_POSITION_INDEPENDENT_CODE ON)  # programs and the shared library fa are made of the same objects

find_program(FA_CCACHE ccache)
if(FA_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  if(PROJECT_IS_TOP_LEVEL)
    message(STATUS "Compiling through ${FA_CCACHE}")
  endif()
  set(CMAKE_CXX_COMPILER_LAUNCHER ${FA_CCACHE})
endif()

cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH FA_ROOT)
cmake_path(GET FA_ROOT PARENT_PATH FA_ROOT)  # the repository, whichever project is built
list(APPEND CMAKE_MODULE_PATH ${FA_ROOT}/common/cmake ${FA_ROOT}/common/emulator/programs)
