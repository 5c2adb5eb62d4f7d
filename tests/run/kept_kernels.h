// Where tests keep compiled kernels: one folder for all programs of a run, so that none compiles what another has.
#pragma once

#include <filesystem>
#include <string>

namespace lumen {

inline std::string kept_kernels() {
  return (std::filesystem::temp_directory_path() / "lumen-test-cache").string();
}

}  // namespace lumen
