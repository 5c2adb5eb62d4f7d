// A report is one JSON document. Its page is a static file (page.html, embedded by the build) that carries the document
// and draws it by a script of its own: it fetches nothing, and the document's text only ever becomes text, never
// markup. Proved by tests/model/report/page_test.cpp and, in a browser, by tests/cli/pages/report_page_check.py.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lumen::model::report {

// The document: "title", "subtitle", and at least one of "runs" (with "differences"), "compression" and "study".
// Invalid UTF-8 in it is replaced.
std::string html_page(const nlohmann::ordered_json& report);

struct Table {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;  // as many cells in each
  size_t texts = 1;                            // this many columns from the left are texts, the others numbers
};
std::string text_table(const Table& table);  // columns aligned, a line each; an empty head has none

}  // namespace lumen::model::report
