#include "run/device/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "base/error.h"

namespace lumen::run {

SharedLibrary open_shared_library(const char* variable, const std::vector<const char*>& files, int binding,
                                  const std::string& what, const char* advice) {
  std::vector<std::string> names(files.begin(), files.end());
  if (const char* own = std::getenv(variable); own && *own) names = {own};
  std::string wrong;
  for (const std::string& name : names) {
    if (void* handle = ::dlopen(name.c_str(), binding | RTLD_LOCAL)) return {handle, name};
    // Report the first error, which is about the usual name.
    if (const char* said = ::dlerror(); said && wrong.empty()) wrong = said;
  }
  throw Error(Exit::hardware, fmt::format("no {}: {}", what, wrong), advice);
}

std::string file_of(void* address) {
  Dl_info where{};
  return ::dladdr(address, &where) != 0 && where.dli_fname ? where.dli_fname : "";
}

}  // namespace lumen::run
