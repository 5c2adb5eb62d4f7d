// Rows of Parquet files: the footer, the levels that nested columns are stored by, the encodings and the codecs of the
// format's definition, read page by page from the mapped file (docs/decisions/0011-parquet-without-arrow.md says why
// the reader is ours). Proved by tests/model/data/parquet_test.cpp and tests/model/data/parquet_reference.py.
//
// May include: base, model/data/reader, model/text/unicode.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "model/data/reader/reader.h"

namespace lumen::model {

struct ParquetLimits {
  uint64_t page = uint64_t{256} << 20;  // bytes of one, unpacked
  uint64_t held = uint64_t{1} << 30;    // bytes of all columns' pages at a time
  uint64_t row = uint64_t{256} << 20;   // bytes of one
};

// `bytes` live as long as the reader. A row is an object as a line of .jsonl gives it: lists are lists, structs are
// objects (maps: lists of {"key", "value"}), without those members that are null; bytes that are no UTF-8 are binary
// values where the column is no text. Times and dates are the numbers that are stored, decimals are numbers. A row's
// line is its number. Error, with `name`, for what is no such file, is damaged, or is beyond a limit.
std::unique_ptr<RowReader> read_parquet(std::string_view bytes, std::string name, const ParquetLimits& limits = {});

}  // namespace lumen::model
