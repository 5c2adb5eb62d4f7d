// The frame of a report: a page with its style for light and dark, sections, and tables of escaped texts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lumen::model {

// `title` is escaped here, `body` is HTML.
std::string html_page(std::string_view title, std::string_view body);
std::string html_section(std::string_view title, std::string_view body);  // empty when the body is

struct Table {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;  // plain texts
  size_t texts = 1;                            // this many columns from the left are texts, the others numbers
};
std::string html_table(const Table& table);  // empty without rows
std::string text_table(const Table& table);  // columns aligned, a line each

// Large figures with a name and a remark each.
struct Tile {
  std::string name, value, remark;
};
std::string html_tiles(const std::vector<Tile>& tiles);

// "1.25 GiB", "12 bytes".
std::string bytes_text(double bytes);

// Parts of a whole as one bar with a table of names and bytes.
struct Part {
  std::string name;
  double bytes = 0;
};
std::string html_parts(const std::vector<Part>& parts);

}  // namespace lumen::model
