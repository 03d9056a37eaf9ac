# The CUDA compiler and the architectures it compiles for.

# Which architectures: as asked for; else those of the GPUs present. Never CMake's "native", which
# cannot say 90a: Hopper's own instructions (wgmma, setmaxnreg) exist in sm_90a code only.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE capabilities ERROR_QUIET RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed)
    message(FATAL_ERROR "No GPU answers nvidia-smi: name the architectures, for example "
                        "-DCMAKE_CUDA_ARCHITECTURES='80-real;90a-real', or use the preset cuda-all.")
  endif()
  string(REGEX MATCHALL "[0-9]+\\.[0-9]+" capabilities "${capabilities}")
  foreach(capability ${capabilities})
    string(REPLACE "." "" architecture ${capability})
    if(architecture EQUAL 90 OR architecture GREATER_EQUAL 100)
      string(APPEND architecture "a")
    endif()
    list(APPEND architectures ${architecture}-real)
  endforeach()
  list(REMOVE_DUPLICATES architectures)
  set(CMAKE_CUDA_ARCHITECTURES ${architectures} CACHE STRING "Compiled for these GPUs")
endif()
if(PROJECT_IS_TOP_LEVEL)
  message(STATUS "CUDA architectures: ${CMAKE_CUDA_ARCHITECTURES}")
endif()

# Of the architectures those from `least` on are the target's, whose instructions no other has. If there is none, it is built for
# the least one: programs list such a kernel, and skip it on this GPU.
function(fa_compile_from target least)
  set(architectures ${CMAKE_CUDA_ARCHITECTURES})
  foreach(architecture ${CMAKE_CUDA_ARCHITECTURES})
    string(REGEX MATCH "^[0-9]+" number ${architecture})
    if(number LESS least)
      list(REMOVE_ITEM architectures ${architecture})
    endif()
  endforeach()
  if(NOT architectures)
    set(architectures ${least}-real)
  endif()
  set_property(TARGET ${target} PROPERTY CUDA_ARCHITECTURES ${architectures})
endfunction()

enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
  message(FATAL_ERROR "nvcc 12.8 or later is needed, found ${CMAKE_CUDA_COMPILER_VERSION}; "
                      "scripts/run.sh --toolkit wheels brings its own.")
endif()
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know yet that nvcc can do C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
find_package(CUDAToolkit REQUIRED)
