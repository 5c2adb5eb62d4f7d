#include "cli/given_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <iterator>

#include "base/log.h"
#include "model/data/examples/dataset.h"

namespace lumen::cli {

std::string standard_input() {
  if (isatty(0) != 0) note("type the input; Ctrl-D at the beginning of a line ends it");
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

namespace {

std::string documents(const std::string& file) {
  std::string all;
  for (const std::string& document : model::data::read_documents(file)) all += document;
  return all;
}

// The offset of the last tenth.
size_t cut() {
  const size_t all = model::data::embedded_text().size();
  return all - all / 10;
}

}  // namespace

std::string held_out_text(const std::string& file, const std::string& doing) {
  if (!file.empty()) return documents(file);
  if (!doing.empty()) note(fmt::format("no -f: {} the last tenth of the built-in text", doing));
  return std::string(model::data::embedded_text().substr(cut()));
}

std::string held_out_texts(const std::vector<std::string>& files) {
  if (files.empty()) return held_out_text("");
  std::string all;
  for (const std::string& file : files) all += documents(file);
  return all;
}

std::string learned_text(const std::string& file, const std::string& doing) {
  if (!file.empty()) return documents(file);
  note(fmt::format("no -f: {} the built-in text without its last tenth", doing));
  return std::string(model::data::embedded_text().substr(0, cut()));
}

void mention_files(const std::vector<std::string>& inputs) {
  for (const std::string& text : inputs) {
    std::error_code failure;
    if (text.size() < 4096 && std::filesystem::is_regular_file(text, failure))
      note(fmt::format("'{}' is used as text, not as the file of this name (see --file)", text));
  }
}

}  // namespace lumen::cli
