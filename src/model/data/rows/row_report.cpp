#include "model/data/rows/row_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/structured/json.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::data {
namespace {

constexpr size_t kPlaces = 3, kLongestDetail = 160;

}  // namespace

RowReport::Line& RowReport::line(const std::string& reason, bool cut) {
  const auto found =
      std::find_if(lines_.begin(), lines_.end(), [&](const Line& l) { return l.reason == reason && l.cut == cut; });
  if (found != lines_.end()) return *found;
  lines_.push_back({reason, cut, 0, {}});
  return lines_.back();
}

void RowReport::add(const std::string& reason, bool cut, Place place) {
  Line& l = line(reason, cut);
  ++l.count;
  if (l.first.size() == kPlaces) return;
  if (place.detail.size() > kLongestDetail) place.detail = place.detail.substr(0, kLongestDetail) + "...";
  place.detail = text::utf8_repair(place.detail);
  place.file = text::utf8_repair(place.file);
  l.first.push_back(std::move(place));
}

void RowReport::add(const RowReport& other) {
  read_ += other.read_;
  for (const Line& theirs : other.lines_) {
    Line& l = line(theirs.reason, theirs.cut);
    l.count += theirs.count;
    for (const Place& place : theirs.first)
      if (l.first.size() < kPlaces) l.first.push_back(place);
  }
}

void RowReport::name_files(const std::vector<std::string>& names) {
  for (Line& l : lines_)
    for (Place& place : l.first) {
      size_t number = 0;
      const char* const end = place.file.data() + place.file.size();
      const auto [stop, failure] = std::from_chars(place.file.data(), end, number);
      if (failure == std::errc() && stop == end && number < names.size()) place.file = text::utf8_repair(names[number]);
    }
}

uint64_t RowReport::dropped() const {
  uint64_t total = 0;
  for (const Line& l : lines_) total += l.cut ? 0 : l.count;
  return total;
}

std::string RowReport::table() const {
  if (lines_.empty()) return {};
  std::vector<const Line*> sorted;
  for (const Line& l : lines_) sorted.push_back(&l);
  std::stable_sort(sorted.begin(), sorted.end(), [](const Line* a, const Line* b) { return a->count > b->count; });
  std::string out = fmt::format("{} rows kept, {} dropped\n", kept(), dropped());
  for (const Line* l : sorted) {
    out += fmt::format("{:>9} {:<8}{}\n", l->count, l->cut ? "cut" : "dropped", l->reason);
    for (const Place& place : l->first)
      out +=
          fmt::format("{:>18}{}:{}{}\n", "", place.file, place.line, place.detail.empty() ? "" : ": " + place.detail);
  }
  return out;
}

nlohmann::json RowReport::to_json() const {
  nlohmann::json lines = nlohmann::json::array();
  for (const Line& l : lines_) {
    nlohmann::json first = nlohmann::json::array();
    for (const Place& p : l.first) first.push_back({{"file", p.file}, {"line", p.line}, {"detail", p.detail}});
    lines.push_back({{"reason", l.reason}, {"cut", l.cut}, {"count", l.count}, {"first", first}});
  }
  return {{"rows", read_}, {"lines", lines}};
}

RowReport RowReport::from_json(const nlohmann::json& json, const std::string& where) {
  RowReport out;
  out.read_ = json_integer(json, "rows", where);
  for (const nlohmann::json& l : json_member(json, "lines", where)) {
    Line line{json_text(l, "reason", where),
              json_boolean(l, "cut", false, where),
              static_cast<uint64_t>(json_integer(l, "count", where)),
              {}};
    for (const nlohmann::json& p : json_member(l, "first", where))
      line.first.push_back({json_text(p, "file", where), static_cast<uint64_t>(json_integer(p, "line", where)),
                            json_text(p, "detail", where)});
    out.lines_.push_back(std::move(line));
  }
  return out;
}

}  // namespace lumen::model::data
