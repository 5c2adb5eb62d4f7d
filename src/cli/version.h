// The program's version, and the commit and compiler it was built from. cmake/version.cmake generates the source.
#pragma once

namespace lumen::cli {

extern const char* const kVersion;  // "0.1.0", or "0.1.0+5.g2f462bdb" five commits after that tag
extern const char* const kCommit;   // "2f462bdb41d7", with a "+" for modified sources; "" outside a repository
extern const char* const kBuild;    // "GNU 12.2.0, Release"

}  // namespace lumen::cli
