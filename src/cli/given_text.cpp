#include "cli/given_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <iterator>

#include "base/log.h"

namespace lumen::cli {

std::string standard_input() {
  if (isatty(0) != 0) note("type a text; Ctrl-D at the beginning of a line ends it");
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

void mention_files(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    std::error_code failure;
    if (text.size() < 4096 && std::filesystem::is_regular_file(text, failure))
      note(fmt::format("'{}' is taken as a text, not as the file of this name (see --file)", text));
  }
}

}  // namespace lumen::cli
