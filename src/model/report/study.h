// A study: a comparison of methods, as tables, charts and pictures under headings. It becomes the document of a page
// (page.h), from which `lumen report` draws the page again. Proved by tests/model/report/study_test.cpp and, in a
// browser, by tests/cli/pages/report_page_check.py.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/report/chart.h"
#include "model/report/page.h"

namespace lumen::model::report {

// Large figures with a name and a remark each.
struct Tile {
  std::string name, value, remark;
};

struct Picture {
  std::string caption, source;  // source: data:image/png;base64,..
};

struct Section {
  std::string title, text;
  std::vector<Table> tables = {};
  std::vector<Chart> charts = {};
  std::vector<Picture> pictures = {};
};

// All texts are plain.
struct Study {
  std::string title, text;
  std::vector<Tile> tiles;
  std::vector<Section> sections;
};

// The document, with "study"; and back. Error with the place in the document when it is none of a study. Rows of a
// table have as many cells as its head, or as the first row.
nlohmann::ordered_json study_document(const Study& study);
bool is_study(const nlohmann::json& document);
Study study_of(const nlohmann::json& document, const std::string& name);

std::string html_page(const Study& study);
std::string text_page(const Study& study);  // its texts and tables

}  // namespace lumen::model::report
