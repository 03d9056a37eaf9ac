# Tests of the scripts, of the documentation and of the committed results. They need no program of this build.
find_package(Python3 3.11 COMPONENTS Interpreter QUIET)

# Those of documents and of what is committed, which .ci/run runs before anything is built. The others are of --all.
set(quick broken chapters charts docs format prose)

# Exit code 77 means: the tool that the test is about is not here.
function(fa_add_script_test name)
  add_test(NAME scripts.${name} COMMAND ${ARGN} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set(label all)
  if(name IN_LIST quick)
    set(label quick)
  endif()
  set_tests_properties(scripts.${name} PROPERTIES LABELS "scripts;${label}" SKIP_RETURN_CODE 77 TIMEOUT 900 COST 50)
endfunction()

if(Python3_Interpreter_FOUND)
  fa_add_script_test(adopt.whole ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/scripts/test_measure.py --whole)
  set_tests_properties(scripts.adopt.whole PROPERTIES LABELS "scripts;long" TIMEOUT 3600)
  file(GLOB script_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/scripts/test_*.py)
  list(FILTER script_tests EXCLUDE REGEX "test_site.py$")
  foreach(file IN LISTS script_tests)
    string(REGEX REPLACE ".*/test_([a-z_]+)\\.py$" "\\1" name ${file})
    fa_add_script_test(${name} ${Python3_EXECUTABLE} -B ${file})
  endforeach()
  fa_add_script_test(site ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/scripts/test_site.py --keep ${CMAKE_BINARY_DIR}/site)
  set_tests_properties(scripts.site PROPERTIES FIXTURES_SETUP site COST 200)  # the browser waits for it
  fa_add_script_test(tasks.whole ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/scripts/test_tasks.py --whole)
  set_tests_properties(scripts.tasks.whole PROPERTIES LABELS "scripts;full")
  # What the chapters show of programs is what the programs of this tree print.
  get_filename_component(preset ${CMAKE_BINARY_DIR} NAME)
  if(CMAKE_BINARY_DIR STREQUAL "${CMAKE_SOURCE_DIR}/build/${preset}")
    # Those of the preset emulator are run as the chapters' commands are (test_commands.py), but for nvcc's.
    if(preset STREQUAL "emulator")
      set(which --scripts)
    else()
      set(which --only ${preset})
    endif()
    fa_add_script_test(outputs ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/scripts/fa outputs --check ${which})
    set_tests_properties(scripts.outputs PROPERTIES TIMEOUT 600)  # with nvcc it compiles most of the kernels
    if(preset STREQUAL "emulator")
      fa_add_script_test(timelines ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/scripts/fa timeline --docs --check)
    endif()
  endif()
endif()

find_program(FA_BASH bash)
if(FA_BASH)
  fa_add_script_test(format ${CMAKE_SOURCE_DIR}/scripts/fa format --check)
endif()

find_program(FA_SHELLCHECK shellcheck)
if(FA_SHELLCHECK)
  file(GLOB shell_scripts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/scripts/*.sh ${CMAKE_SOURCE_DIR}/scripts/lib/*.sh
    ${CMAKE_SOURCE_DIR}/scripts/commands/*.sh)
  fa_add_script_test(shellcheck ${FA_SHELLCHECK} --external-sources ${shell_scripts} ${CMAKE_SOURCE_DIR}/.ci/run)
endif()

find_program(FA_RUFF ruff HINTS ${CMAKE_SOURCE_DIR}/.venv-tests/bin)
if(FA_RUFF)  # what it looks for is in pyproject.toml
  fa_add_script_test(ruff ${FA_RUFF} check --no-cache ${CMAKE_SOURCE_DIR})
endif()

find_program(FA_MYPY mypy HINTS ${CMAKE_SOURCE_DIR}/.venv-tests/bin)
if(FA_MYPY)  # how strictly it looks at what is in pyproject.toml, too
  fa_add_script_test(mypy ${FA_MYPY} --config-file ${CMAKE_SOURCE_DIR}/pyproject.toml --cache-dir /dev/null ${CMAKE_SOURCE_DIR}/python/fa
    ${CMAKE_SOURCE_DIR}/tests/user_types.py)
endif()
