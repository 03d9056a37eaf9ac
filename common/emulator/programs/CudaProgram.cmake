# fa_add_cuda_program(NAME FILE.cu): a program of plain CUDA, with its own main(). For a GPU nvcc compiles it as it is. For
# the emulator common/emulator/programs/cuda_source.py first rewrites what C++ does not know
# (docs/your_own_kernel.md), and NAME_checked is the same program with every load and store watched: counts after its
# end, races, memory.

# fa_translate_cuda(NAME FILE.cu VARIABLE): the C++ that FILE becomes for the emulator; the target NAME_source makes it.
function(fa_translate_cuda name file variable)
  find_package(Python3 3.11 COMPONENTS Interpreter QUIET)
  get_filename_component(source ${file} ABSOLUTE)
  set(translate ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/cuda_source.py)
  set(translated ${CMAKE_CURRENT_BINARY_DIR}/cuda/${name}.cpp)
  add_custom_command(OUTPUT ${translated} VERBATIM COMMENT "Translating ${name}"
    COMMAND ${Python3_EXECUTABLE} -B ${translate} ${source} ${translated}
    DEPENDS ${source} ${translate} DEPFILE ${CMAKE_CURRENT_BINARY_DIR}/cuda/${name}.d)
  add_custom_target(${name}_source DEPENDS ${translated})
  set(${variable} ${translated} PARENT_SCOPE)
endfunction()

function(fa_add_cuda_program name file)
  if(FA_BACKEND STREQUAL "cuda")
    add_executable(${name} ${file})
    set_source_files_properties(${file} PROPERTIES LANGUAGE CUDA)
    return()
  endif()
  find_package(Python3 3.11 COMPONENTS Interpreter QUIET)
  if(NOT Python3_Interpreter_FOUND)
    message(STATUS "${name} is left out: Python 3.11, which translates CUDA for the emulator, is not here")
    return()
  endif()
  fa_translate_cuda(${name} ${file} translated)
  set(programs ${name})
  if(NOT FA_CHECKED)
    list(APPEND programs ${name}_checked)
  endif()
  foreach(program ${programs})
    add_executable(${program} ${translated})
    set_target_properties(${program} PROPERTIES FA_CALLS ON)
    add_dependencies(${program} ${name}_source)
    target_link_libraries(${program} PRIVATE fa_cuda_program fa_harness fa_kernel_options)
    target_compile_features(${program} PRIVATE cxx_std_20)
    # The reader's own warnings are nvcc's to give, and assert() checks, as with nvcc.
    target_compile_options(${program} PRIVATE -w -UNDEBUG)
    if(program MATCHES "_checked$")
      target_link_libraries(${program} PRIVATE fa_instrumented fa_checked)
    endif()
  endforeach()
endfunction()
