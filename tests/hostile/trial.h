// One start of the whole program on a changed file: in a process of its own, within limits, and what is to be said
// about how it ended.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lumen::hostile {

// What one start may take. A find is whatever takes more.
struct Budget {
  int seconds = 10;  // of processor time; four times that by the clock
  int64_t memory = int64_t{1} << 30;
};

struct Ending {
  int code = 0, signal = 0;
  bool late = false;
  double seconds = 0;  // of processor time
  int64_t memory = 0;  // resident at most, bytes
  std::string out, error;
};

// Runs `lumen ARGUMENTS` in a forked child whose standard output and error are kept below `folder`.
Ending start(const std::vector<std::string>& arguments, const std::filesystem::path& folder, const Budget& budget);

// What is wrong with an ending; empty when nothing is. `names`: one of them has to stand in the message of an error.
// `prints_text`: standard output is a text of the user's, whose control characters stay.
std::string fault(const Ending& ending, const std::vector<std::string>& names, bool prints_text, const Budget& budget);

}  // namespace lumen::hostile
