// Libraries that are opened at run time or may be: which are here, where, and of which version. For `lumen doctor`.
#pragma once

#include <string>
#include <vector>

namespace lumen::run {

struct LibraryFound {
  std::string name, file, version;  // file "" when it is not here
  std::string remark;               // what Lumen does with it
};
std::vector<LibraryFound> look_for_libraries();

}  // namespace lumen::run
