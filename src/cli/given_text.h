// Texts as commands are given them besides files: words of the command line, standard input.
#pragma once

#include <string>
#include <vector>

namespace lumen::cli {

// All of it; on a terminal with a word on how it ends.
std::string standard_input();

// A word that is also the name of a file stands for itself: says so, since the file may be what was meant.
void mention_files(const std::vector<std::string>& texts);

}  // namespace lumen::cli
