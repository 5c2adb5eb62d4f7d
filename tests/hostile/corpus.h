// The good files that get changed, and the commands that read them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lumen::hostile {

// A command's words: {in} is the file or folder, {out} a place for results.
using Words = std::vector<std::string>;

struct Case {
  std::filesystem::path source;  // a file, or a folder
  std::string changed;           // the file of the folder that is changed; "" for a file
  std::vector<Words> commands;
};

// Fixtures of the source tree, and what the program makes of them below `work`: throws std::runtime_error when it
// cannot.
std::vector<Case> corpus(const std::filesystem::path& source_tree, const std::filesystem::path& work,
                         const std::string& cache);

}  // namespace lumen::hostile
