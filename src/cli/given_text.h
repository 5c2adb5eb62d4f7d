// Text as commands are given it: files, words of the command line, standard input, or what the program brings.
#pragma once

#include <string>
#include <vector>

namespace lumen::cli {

// All of it; on a terminal with a word on how it ends.
std::string standard_input();

// All documents of a file or folder. Without one, of the text that comes with the program its last tenth, which is held
// out of everything, or all but that, and a line with what it is for: "no -f: DOING the last tenth of ..". `doing`
// empty: nothing is said.
std::string held_out_text(const std::string& file, const std::string& doing = {});
std::string learned_text(const std::string& file, const std::string& doing);

// A word that is also the name of a file stands for itself: says so, since the file may be what was meant.
void mention_files(const std::vector<std::string>& inputs);

}  // namespace lumen::cli
