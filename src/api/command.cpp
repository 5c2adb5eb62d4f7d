// The program's commands inside another program.
#include <string>
#include <vector>

#include "api/boundary.h"
#include "base/error.h"
#include "cli/run_app.h"

using namespace lumen;  // NOLINT: this file is the C interface and is included by no other

extern "C" {

int lumen_main(int count, const char* const* arguments) {
  int code = LUMEN_OK;
  const int status = api::guarded([&] {
    if (count > 0) api::require(arguments, "arguments");
    code = cli::run_app(count, arguments);
  });
  return status != LUMEN_OK ? status : code;
}

int lumen_command(int count, const char* const* arguments, char** output, size_t* size) {
  return api::guarded([&] {
    if (count <= 0) throw usage_error("no command");
    api::require(arguments, "arguments");
    if (output) api::require(size, "size");
    std::string text;
    for (int i = 0; i < count; ++i) api::require(arguments[i], "an argument");
    const int code = cli::run_command({arguments, arguments + count}, &text);
    if (code != LUMEN_OK)
      throw Error(Exit(code), code == LUMEN_INTERRUPTED ? "stopped" : fmt::format("{} failed", arguments[0]), text);
    if (!output) return;
    *size = text.size();
    *output = api::handed_over(std::string_view(text));
  });
}

}  // extern "C"
