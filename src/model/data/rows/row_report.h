// Report on the rows of data files: how many were kept, and which were dropped or cut, why and where. Proved by
// tests/model/data/data_load_test.cpp.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lumen::model::data {

class RowReport {
 public:
  struct Place {
    std::string file;
    uint64_t line = 0;
    std::string detail;
  };
  struct Line {
    std::string reason;
    bool cut = false;  // shortened, and kept
    uint64_t count = 0;
    std::vector<Place> first;  // a few
  };

  void read(uint64_t count = 1) { read_ += count; }  // rows, kept or not
  void drop(const std::string& reason, Place place) { add(reason, false, std::move(place)); }
  void cut(const std::string& reason, Place place) { add(reason, true, std::move(place)); }
  void add(const RowReport& other);

  uint64_t kept() const { return read_ - dropped(); }
  uint64_t dropped() const;
  const std::vector<Line>& lines() const { return lines_; }

  // One line per reason; empty when every row was kept unchanged.
  std::string table() const;

  // Replaces file numbers, by which rows may be counted, with names.
  void name_files(const std::vector<std::string>& names);

  nlohmann::json to_json() const;
  static RowReport from_json(const nlohmann::json& json, const std::string& where);

 private:
  Line& line(const std::string& reason, bool cut);
  void add(const std::string& reason, bool cut, Place place);

  uint64_t read_ = 0;
  std::vector<Line> lines_;
};

}  // namespace lumen::model::data
