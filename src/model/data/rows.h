// Rows of data files, one after another: .jsonl, .json (a list, or objects one behind the other), .csv and .tsv with a
// header line, .parquet (parquet/parquet.h), .txt (one row), .md (document.h); each also as .gz. Files are mapped, not
// read whole. What is no row comes as a row with a fault, so that whoever reads may count it. Proved by
// tests/model/data_rows_test.cpp.
#pragma once

#include <filesystem>
#include <memory>
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

// Error when its name does not say what it holds, or the file cannot be read. Fields of .csv and .tsv files are texts;
// .csv fields may be quoted, .tsv fields are taken as they stand.
std::unique_ptr<RowReader> open_rows(const std::filesystem::path& file);
bool is_row_file(const std::filesystem::path& file);  // by its name

// Reads `text` into `value`, or says what is wrong with it.
void parse_row(DataRow* row);

}  // namespace lumen::model
