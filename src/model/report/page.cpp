#include "model/report/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/embedded.h"
#include "base/structured/page_policy.h"

// Made by the build from page.html.
namespace lumen::embedded {
std::vector<File> report_page();
}

namespace lumen::model::report {
namespace {

using nlohmann::ordered_json;

void put_at(std::string& page, std::string_view mark, std::string_view text) {
  const size_t at = page.find(mark);
  LUMEN_CHECK(at != std::string::npos, "the page has no {}", mark);
  page.replace(at, mark.size(), text);
}

// Code points, as terminal columns; wide characters are not considered.
size_t characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

}  // namespace

std::string html_page(const ordered_json& report) {
  std::string page(embedded::report_page().at(0).text);
  const std::string policy = fmt::format(
      "default-src 'none'; img-src data:; style-src {}; script-src {}; base-uri 'none'; form-action 'none'; "
      "require-trusted-types-for 'script'",
      policy_digest(page, "style"), policy_digest(page, "script"));
  const std::string document = report.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  std::string data;
  for (const char c : document) {
    // Nothing in the document may end the element that holds it.
    if (c == '<')
      data += "\\u003c";
    else
      data += c;
  }
  put_at(page, "DATA", data);
  put_at(page, "POLICY", policy);  // its place comes before the document, which may hold the same word
  return page;
}

std::string text_table(const Table& table) {
  std::vector<std::vector<std::string>> rows = table.rows;
  if (!table.head.empty()) rows.insert(rows.begin(), table.head);
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], characters(row[c]));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string room(widths[c] - characters(row[c]), ' ');
      line += (c == 0 ? "" : "  ") + (c < table.texts ? row[c] + room : room + row[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace lumen::model::report
