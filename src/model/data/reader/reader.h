// Reads a data file row by row, for any kind of file.
//
// May include: base, run/device.
// Offers: unpack.h.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lumen::model::data {

struct DataRow {
  uint64_t line = 0;
  std::string_view text = {};           // JSON for parse_row(); lives as long as the reader
  nlohmann::ordered_json value = {};    // an object
  std::string fault = {}, detail = {};  // why it is invalid: a short reason shared by rows, and details
};

class RowReader {
 public:
  RowReader() = default;
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;
  virtual ~RowReader() = default;
  // False at the end. Error, with the line, where the rest of the file cannot be split into rows.
  virtual bool next(DataRow* row) = 0;
};

}  // namespace lumen::model::data
