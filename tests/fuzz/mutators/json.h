// JSON and its kin: trees of objects and lists, alone or one a line.
#pragma once

#include "tests/fuzz/mutators/json_changes.h"
#include "tests/fuzz/mutators/mutator.h"

namespace mutators {

// A JSON text stays one: members move, values are exchanged, copied and changed.
inline void change_json(std::string& text, Chance& chance) {
  nlohmann::ordered_json root = nlohmann::ordered_json::parse(text, nullptr, false);
  if (root.is_discarded() || !root.is_structured()) return;
  json_changes::mutate(root, chance);
  text = root.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// Lines of JSON: one of them changes, is copied or goes; or all become a list, over several lines or not.
inline void change_json_lines(std::string& text, Chance& chance) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  if (lines.empty()) return;
  if (lines.size() == 1 || chance() % 8 == 0) return change_json(text, chance);
  std::string& line = lines[below(chance, lines.size())];
  switch (chance() % 8) {
    case 0:
      lines.insert(lines.begin() + below(chance, lines.size()), std::string(line));
      break;
    case 1:
      line.clear();
      break;
    case 2:
      line += any({",", "]", "}", "\r", "[", " ", "\\", "\""}, chance);
      break;
    case 3:
      lines.front().insert(0, "[");
      lines.back() += "]";
      break;
    default:
      change_json(line, chance);
  }
  text.clear();
  const std::string_view between = chance() % 8 == 0 ? any({",\n", "\r\n", "", " "}, chance) : std::string_view("\n");
  for (size_t i = 0; i < lines.size(); ++i) text += (i ? std::string(between) : "") + lines[i];
}

}  // namespace mutators
