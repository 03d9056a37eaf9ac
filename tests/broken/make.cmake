# Reads bugs.cmake.
#
#   cmake -DNAME=bug -DOUTPUT=file.cu -P make.cmake               writes the source of one broken kernel
#   cmake -DNAME=bug -DOUTPUT=file.cu -DPLAIN=ON -P make.cmake    the kernel with nothing but the bug, for a diff
#   cmake -DLIST=ON -P make.cmake                                 prints all, a line each, parts divided by tabs:
#                             name, kernel, sentence, RIGHT, RIGHT_EARLY, STOPS, FOUND (its words) and COUNTED
cmake_minimum_required(VERSION 3.25)

set(inputs normal large dominant_key equal_keys increasing_max tiny one_hot_v)
set(hot_inputs hot_first_block hotter_blocks hot_row hot_tiles dominant_first dominant_last huge_scores)

macro(rename from to)  # in ${changed}
  string(FIND "${changed}" "${from}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "kernels/${kernel}.cu has no '${from}'")
  endif()
  string(REPLACE "${from}" "${to}" changed "${changed}")
endmacro()

function(broken name kernel what text replacement)
  cmake_parse_arguments(PARSE_ARGV 5 arg "RIGHT_EARLY;WRONG_EARLY;FP16" "NTH;OF;STOPS;COUNTED" "RIGHT;FOUND")
  foreach(wrong IN LISTS arg_UNPARSED_ARGUMENTS arg_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "tests/broken/bugs.cmake: ${name} has '${wrong}', which says nothing")
  endforeach()
  if(kernel MATCHES "^16")
    list(APPEND inputs ${hot_inputs})
  endif()
  if(arg_RIGHT STREQUAL "all")
    set(arg_RIGHT ${inputs})
  endif()
  foreach(each IN LISTS arg_RIGHT)
    if(NOT each IN_LIST inputs)
      message(FATAL_ERROR "tests/broken/bugs.cmake: ${name} is right on '${each}', which are no inputs")
    endif()
  endforeach()
  if(LIST)
    list(JOIN arg_RIGHT "," right)
    set(found "")
    if(arg_FOUND)
      list(GET arg_FOUND 0 found)
    endif()
    string(APPEND table "${name}\t${kernel}\t${what}\t${right}\t${arg_RIGHT_EARLY}\t${arg_STOPS}\t${found}\t${arg_COUNTED}\n")
    set(table "${table}" PARENT_SCOPE)
    return()
  endif()
  if(NOT name STREQUAL NAME)
    return()
  endif()
  if(NOT arg_NTH)
    set(arg_NTH 1)
    set(arg_OF 1)
  endif()
  file(READ ${CMAKE_CURRENT_LIST_DIR}/../../kernels/${kernel}.cu source)

  string(REGEX MATCHALL "\n" lines "${text}")
  string(REGEX MATCHALL "\n" new_lines "${replacement}")
  if(NOT lines STREQUAL new_lines)
    message(FATAL_ERROR "tests/broken/bugs.cmake: ${name} replaces a text by one with another number of lines")
  endif()

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
  set(changed "${head}${replacement}${tail}")

  if(PLAIN)
    string(REGEX REPLACE "\n +\n" "\n" changed "${changed}")  # a line of which nothing is left
  else()
    # A namespace and a name of its own; what the tests have to expect travels with it. Lines stay where they are.
    set(found "")
    foreach(text IN LISTS arg_FOUND)
      string(APPEND found "R\"(${text})\", ")
    endforeach()
    list(TRANSFORM arg_RIGHT REPLACE "(.+)" "\"\\1\"")
    list(JOIN arg_RIGHT ", " right)
    string(TOLOWER "${arg_RIGHT_EARLY}, ${arg_WRONG_EARLY}" early)
    string(TOLOWER "${arg_FP16}" fp16)
    string(CONCAT declaration
      "const broken::Declaration bug{{\n"
      "    \"${name}\", \"${kernel}\", R\"(${what})\",\n"
      "    {${right}}, ${early}, R\"(${arg_STOPS})\",\n"
      "    {${found}}, \"${arg_COUNTED}\", ${fp16}}};\n")
    rename("common/harness/registry.h" "tests/broken/bug.h")
    rename("Registration<Launcher> registration{\"${kernel}\"" "Registration<broken::HeadDim128<Launcher>::Of> registration{\"${name}\"")
    string(REGEX REPLACE "namespace fa::k[0-9]+" "namespace fa::broken_${name}" changed "${changed}")
    string(REPLACE "}  // namespace fa::broken_${name}" "${declaration}\n}  // namespace fa::broken_${name}" changed
      "${changed}")
  endif()
  if(EXISTS ${OUTPUT})
    file(READ ${OUTPUT} present)
  endif()
  if(NOT "${present}" STREQUAL "${changed}")  # else nothing need be compiled again
    file(WRITE ${OUTPUT} "${changed}")
  endif()
endfunction()

set(table "")
include(${CMAKE_CURRENT_LIST_DIR}/bugs.cmake)
if(LIST)
  execute_process(COMMAND ${CMAKE_COMMAND} -E echo_append "${table}")
endif()
