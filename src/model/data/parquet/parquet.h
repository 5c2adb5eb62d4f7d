// Rows of Parquet files: the footer, the levels of nested columns, the format's encodings and codecs, read page by page
// from the mapped file (docs/decisions/0011-parquet-without-arrow.md explains why the reader is our own). Proved by
// tests/model/data/parquet_test.cpp and tests/model/data/parquet_reference.py.
//
// May include: base, model/data/reader, model/text/unicode.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "model/data/reader/reader.h"

namespace lumen::model::data {

struct ParquetLimits {
  uint64_t page = uint64_t{256} << 20;  // bytes of one page, unpacked
  uint64_t held = uint64_t{1} << 30;    // bytes of all columns' pages together
  uint64_t row = uint64_t{256} << 20;   // bytes of one row
};

// `bytes` outlive the reader. A row is an object like a line of .jsonl: lists are lists, structs are objects (maps:
// lists of {"key", "value"}), without null members; bytes that are not valid UTF-8 are binary values where the column
// is not text. Times and dates are the stored numbers, decimals are numbers. DataRow::line is the row number. Error,
// with `name`, for a file that is not Parquet, is damaged, or exceeds a limit.
std::unique_ptr<RowReader> read_parquet(std::string_view bytes, std::string name, const ParquetLimits& limits = {});

}  // namespace lumen::model::data
