// Libraries opened at run time by name.
#pragma once

#include <string>
#include <vector>

namespace lumen::run {

struct SharedLibrary {
  void* handle = nullptr;
  std::string file;  // the name passed to the loader
};

// The first of the files that the loader finds, or the one in the environment's `variable`. Error (exit 3) with
// `advice`: "no WHAT: ..", about the usual name. `binding`: RTLD_NOW or RTLD_LAZY.
SharedLibrary open_shared_library(const char* variable, const std::vector<const char*>& files, int binding,
                                  const std::string& what, const char* advice);

// The file that the object at this address was loaded from; empty if unknown.
std::string file_of(void* address);

}  // namespace lumen::run
