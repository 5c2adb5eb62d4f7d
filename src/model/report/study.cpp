#include "model/report/study.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/structured/json.h"

namespace lumen::model::report {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kStudy = "study";
constexpr int kColors = 8;  // of the page's palette

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(Exit::user, fmt::format("{}: {}", where, what),
              "the document of a study is in the page that a study wrote");
}

const json& list_of(const json& object, const char* key, const std::string& where) {
  static const json kNone = json::array();
  if (!object.is_object()) refuse(where, "is no object");
  const auto found = object.find(key);
  if (found == object.end()) return kNone;
  if (!found->is_array()) refuse(where, fmt::format("\"{}\" is no list", key));
  return *found;
}

// The elements of a list by `read(element, its place)`.
template <class Read>
auto each(const json& object, const char* key, const std::string& where, const Read& read) {
  std::vector<decltype(read(object, where))> out;
  const json& list = list_of(object, key, where);
  for (size_t i = 0; i < list.size(); ++i) out.push_back(read(list[i], fmt::format("{}.{}[{}]", where, key, i)));
  return out;
}

std::string text_of(const json& value, const std::string& where) {
  if (!value.is_string()) refuse(where, "is no text");
  return value.get<std::string>();
}

double number_of(const json& value, const std::string& where) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) refuse(where, "is no number");
  return value.get<double>();
}

Table table_of(const json& value, const std::string& where) {
  Table out;
  out.head = each(value, "head", where, text_of);
  out.rows = each(value, "rows", where, [](const json& row, const std::string& place) {
    const json cells = {{"cells", row}};
    return each(cells, "cells", place, text_of);
  });
  const size_t columns = !out.head.empty() || out.rows.empty() ? out.head.size() : out.rows[0].size();
  for (size_t i = 0; i < out.rows.size(); ++i)
    if (out.rows[i].size() != columns)
      refuse(where, fmt::format("row {} has {} cells, not {}", i, out.rows[i].size(), columns));
  const int64_t texts = json_integer(value, "texts", where);
  if (texts < 0) refuse(where, fmt::format("\"texts\" is {}", texts));
  out.texts = texts;
  return out;
}

Series series_of(const json& value, const std::string& where) {
  Series out;
  out.labels = each(value, "labels", where, text_of);
  out.points = each(value, "points", where, [](const json& point, const std::string& place) {
    if (!point.is_array() || point.size() != 2) refuse(place, "is no pair of numbers");
    return Point{number_of(point[0], place), number_of(point[1], place)};
  });
  if (!out.labels.empty() && out.labels.size() != out.points.size())
    refuse(where, fmt::format("has {} labels of {} points", out.labels.size(), out.points.size()));
  out.name = json_text(value, "name", where);
  const int64_t color = json_integer(value, "color", where);
  if (color < 0 || color >= kColors) refuse(where, fmt::format("\"color\" is {}, not 0 to {}", color, kColors - 1));
  out.color = int(color);
  out.faint = json_boolean(value, "faint", out.faint, where);
  out.dots = json_boolean(value, "dots", out.dots, where);
  out.line = json_boolean(value, "line", out.line, where);
  out.large = json_boolean(value, "large", out.large, where);
  return out;
}

Chart chart_of(const json& value, const std::string& where) {
  Chart out;
  out.series = each(value, "series", where, series_of);
  out.title = json_text(value, "title", where);
  out.unit = json_text(value, "unit", where);
  out.across = json_text(value, "across", where);
  out.logarithmic = json_boolean(value, "logarithmic", out.logarithmic, where);
  out.from_zero = json_boolean(value, "zero", out.from_zero, where);
  out.whole = json_boolean(value, "whole", out.whole, where);
  return out;
}

Section section_of(const json& value, const std::string& where) {
  Section out{"", "", each(value, "tables", where, table_of), each(value, "charts", where, chart_of),
              each(value, "pictures", where, [](const json& picture, const std::string& place) {
                return Picture{json_text(picture, "caption", place), json_text(picture, "source", place)};
              })};
  out.title = json_text(value, "title", where);
  out.text = json_text(value, "text", where);
  return out;
}

}  // namespace

ordered_json study_document(const Study& study) {
  ordered_json out = {{"text", study.text}, {"tiles", ordered_json::array()}, {"sections", ordered_json::array()}};
  for (const Tile& t : study.tiles)
    out["tiles"].push_back({{"name", t.name}, {"value", t.value}, {"remark", t.remark}});
  for (const Section& s : study.sections) {
    ordered_json section = {{"title", s.title}, {"text", s.text}};
    for (const Table& t : s.tables)
      section["tables"].push_back({{"head", t.head}, {"rows", t.rows}, {"texts", t.texts}});
    for (const Chart& c : s.charts) section["charts"].push_back(to_json(c));
    for (const Picture& p : s.pictures) section["pictures"].push_back({{"caption", p.caption}, {"source", p.source}});
    out["sections"].push_back(std::move(section));
  }
  return ordered_json{{"lumen_report", 1}, {"title", study.title}, {kStudy, std::move(out)}};
}

bool is_study(const json& document) {
  return document.is_object() && document.contains(kStudy);
}

Study study_of(const json& document, const std::string& name) {
  const json& study = json_member(document, kStudy, name);
  const std::string where = name + ": " + kStudy;
  Study out;
  out.title = json_text(document, "title", name);
  out.tiles = each(study, "tiles", where, [](const json& tile, const std::string& place) {
    return Tile{json_text(tile, "name", place), json_text(tile, "value", place), json_text(tile, "remark", place)};
  });
  out.sections = each(study, "sections", where, section_of);
  out.text = json_text(study, "text", where);
  return out;
}

std::string html_page(const Study& study) {
  return html_page(study_document(study));
}

std::string text_page(const Study& study) {
  std::string out = fmt::format("{}\n\n{}\n", study.title, study.text);
  for (const Tile& t : study.tiles) out += fmt::format("{}: {} {}\n", t.name, t.value, t.remark);
  for (const Section& s : study.sections) {
    out += fmt::format("\n{}\n\n", s.title);
    if (!s.text.empty()) out += s.text + "\n\n";
    for (const Table& t : s.tables) out += text_table(t);
  }
  return out;
}

}  // namespace lumen::model::report
