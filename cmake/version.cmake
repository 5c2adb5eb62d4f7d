# Says in OUT, a source file, which version and commit this is; run at every build, and written only where that changes, so
# that a commit recompiles this one file. VERSION: the project's, unless a tag (v0.1.0) says it. BUILD: compiler and kind.
set(tag "")
set(commit "")
find_package(Git QUIET)
if(GIT_FOUND)
  # Of this folder's repository alone: sources that were unpacked inside another one are none of its commits.
  cmake_path(GET SOURCE PARENT_PATH above)
  set(git ${CMAKE_COMMAND} -E env GIT_CEILING_DIRECTORIES=${above} ${GIT_EXECUTABLE} -C ${SOURCE})
  execute_process(COMMAND ${git} describe --tags --match "v[0-9]*" OUTPUT_VARIABLE tag OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND ${git} describe --always --dirty=+ --abbrev=12 --exclude=* OUTPUT_VARIABLE commit
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(tag MATCHES "^v([0-9][^-]*)$")
  set(VERSION ${CMAKE_MATCH_1})
elseif(tag MATCHES "^v([0-9].*)-([0-9]+)-(g[0-9a-f]+)$")  # so many commits behind the tag
  set(VERSION "${CMAKE_MATCH_1}+${CMAKE_MATCH_2}.${CMAKE_MATCH_3}")
endif()
file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT [[// Made by cmake/version.cmake.
#include "cli/version.h"

namespace lumen::cli {

const char* const kVersion = "@VERSION@";
const char* const kCommit = "@commit@";
const char* const kBuild = "@BUILD@";

}  // namespace lumen::cli
]])
