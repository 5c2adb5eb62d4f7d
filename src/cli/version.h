// The version people see, and what the binary was made from and by. cmake/version.cmake writes the source.
#pragma once

namespace lumen::cli {

extern const char* const kVersion;  // "0.1.0", or five commits behind that tag "0.1.0+5.g2f462bdb"
extern const char* const kCommit;   // "2f462bdb41d7", with a "+" where sources differ from it; "" outside a repository
extern const char* const kBuild;    // "GNU 12.2.0, Release"

}  // namespace lumen::cli
