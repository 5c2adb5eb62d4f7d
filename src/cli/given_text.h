// Text inputs of commands: files, words of the command line, standard input, or the built-in text.
#pragma once

#include <string>
#include <vector>

namespace lumen::cli {

// Reads standard input to its end; on a terminal it first prints how to end the input.
std::string standard_input();

// All documents of a file or folder. Without a file: of the built-in text its last tenth (held_out_text), which no
// command learns from, or the other nine tenths (learned_text), with a note on its use: "no -f: DOING the last tenth of
// ..". An empty `doing` prints no note.
std::string held_out_text(const std::string& file, const std::string& doing = {});
// The documents of all files; without files that end of the built-in text.
std::string held_out_texts(const std::vector<std::string>& files);
std::string learned_text(const std::string& file, const std::string& doing);

// Prints a note for each input that is also the name of a file: the input is used as text, but the file may have been
// meant.
void mention_files(const std::vector<std::string>& inputs);

}  // namespace lumen::cli
