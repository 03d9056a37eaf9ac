# cmake -DNAME=bug -DOUTPUT=file.cu -P make.cmake: writes the source of one broken kernel.
cmake_minimum_required(VERSION 3.25)

function(broken name kernel caught_by missed_by text replacement)
  if(NOT name STREQUAL NAME)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 6 arg "" "NTH;OF" "")
  if(NOT arg_NTH)
    set(arg_NTH 1)
    set(arg_OF 1)
  endif()
  file(READ ${CMAKE_CURRENT_LIST_DIR}/../../kernels/${kernel}.cu source)

  # The text before the n-th occurrence, and the number of occurrences.
  string(LENGTH "${text}" length)
  set(rest "${source}")
  set(before "")
  set(count 0)
  string(FIND "${rest}" "${text}" at)
  while(NOT at EQUAL -1)
    math(EXPR count "${count} + 1")
    math(EXPR end "${at} + ${length}")
    if(count EQUAL arg_NTH)
      string(SUBSTRING "${rest}" 0 ${at} piece)
      set(head "${before}${piece}")
      string(SUBSTRING "${rest}" ${end} -1 tail)
    endif()
    string(SUBSTRING "${rest}" 0 ${end} piece)
    string(APPEND before "${piece}")
    string(SUBSTRING "${rest}" ${end} -1 rest)
    string(FIND "${rest}" "${text}" at)
  endwhile()
  if(NOT count EQUAL arg_OF)
    message(FATAL_ERROR "tests/broken/bugs.cmake: ${name} expects '${text}' ${arg_OF} times in "
                        "kernels/${kernel}.cu, but it is there ${count} times")
  endif()
  set(source "${head}${replacement}${tail}")

  # A namespace and a name of its own; what the test has to expect travels with it.
  string(REGEX REPLACE "namespace fa::k[0-9]+" "namespace fa::broken_${name}" source "${source}")
  string(REPLACE "registration{\"${kernel}\"" "registration{\"${name}\"" changed "${source}")
  if(changed STREQUAL source)
    message(FATAL_ERROR "kernels/${kernel}.cu does not register \"${kernel}\"")
  endif()
  string(REPLACE "}  // namespace fa::broken_${name}"
    "const broken::Bug bug{\"${name}\", \"${kernel}\", \"${caught_by}\", \"${missed_by}\"};\n\n}  // namespace fa::broken_${name}"
    changed "${changed}")
  set(changed "// Made from kernels/${kernel}.cu by tests/broken/bugs.cmake.\n#include \"tests/broken/bug.h\"\n${changed}")
  if(EXISTS ${OUTPUT})
    file(READ ${OUTPUT} present)
  endif()
  if(NOT "${present}" STREQUAL "${changed}")  # else nothing need be compiled again
    file(WRITE ${OUTPUT} "${changed}")
  endif()
endfunction()

include(${CMAKE_CURRENT_LIST_DIR}/bugs.cmake)
