// Libraries opened at run time: which are found, where, and their versions. For `lumen doctor`.
#pragma once

#include <string>
#include <vector>

namespace lumen::run {

struct LibraryFound {
  std::string name, file, version;  // file "" if not found
  std::string remark;               // what Lumen uses it for
};
std::vector<LibraryFound> look_for_libraries();

}  // namespace lumen::run
