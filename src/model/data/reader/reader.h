// One row of a data file after another, whatever kind of file it is.
//
// May include: base, run/device.
// Offers: unpack.h.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lumen::model {

struct DataRow {
  uint64_t line = 0;
  std::string_view text = {};           // JSON that parse_row() is still to read; lives as long as the reader
  nlohmann::ordered_json value = {};    // an object
  std::string fault = {}, detail = {};  // why it is none: in few words that rows share, and what exactly
};

class RowReader {
 public:
  RowReader() = default;
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;
  virtual ~RowReader() = default;
  // False at the end. Error, with the line, where the rest of the file cannot be told apart into rows.
  virtual bool next(DataRow* row) = 0;
};

}  // namespace lumen::model
