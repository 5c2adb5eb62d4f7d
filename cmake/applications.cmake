# lumen_applications(TARGET [NAME..]): the applications of a program, as an object that it links besides lumen_cli. The
# commands of NAME are the library lumen_NAME_verbs, which defines lumen::cli::add_NAME (src/cli/command.h) and
# NAME_rows, their options (src/cli/settings/rows.h).
function(lumen_applications target)
  set(declared "")
  set(listed "")
  set(rows "")
  foreach(name ${ARGN})
    string(APPEND declared "void add_${name}(CLI::App& app, Command& command);\nstd::span<const Setting> ${name}_rows();\n")
    string(APPEND listed "add_${name}, ")
    string(APPEND rows "${name}_rows(), ")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${target}.cpp @ONLY CONTENT [[// Made by cmake/applications.cmake.
#include "cli/command.h"
#include "cli/settings/rows.h"

namespace lumen::cli {

@declared@
std::span<const AddCommand> application_commands() {
  static const std::vector<AddCommand> list = {@listed@};
  return list;
}
std::vector<std::span<const Setting>> application_rows() {
  return {@rows@};
}

}  // namespace lumen::cli
]])
  add_library(${target} OBJECT ${CMAKE_BINARY_DIR}/${target}.cpp)
  list(TRANSFORM ARGN REPLACE "(.+)" "lumen_\\1_verbs" OUTPUT_VARIABLE libraries)
  target_link_libraries(${target} PUBLIC ${libraries} lumen_cli)
endfunction()
