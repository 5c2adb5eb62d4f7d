// The document that a page holds.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lumen::model::report {

inline nlohmann::ordered_json document_of(const std::string& page) {
  const std::string open = "<script id=\"report\" type=\"application/json\">";
  const size_t begin = page.find(open) + open.size(), end = page.find("</script>", begin);
  return nlohmann::ordered_json::parse(page.substr(begin, end - begin));
}

inline size_t count(const std::string& text, const std::string& part) {
  size_t out = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++out;
  return out;
}

}  // namespace lumen::model::report
