// Rows of data files, in order: .jsonl, .json (a list, or consecutive objects), .csv and .tsv with a header line,
// .parquet (parquet/parquet.h), .txt (one row), .md and .dlm (document.h); each also as gzip data and in UTF-16
// (file_text.h). Where a file's content differs from its name, the content decides (form.h), and a note is printed.
// Files are mapped, not read whole. An invalid row is returned with a fault, so that readers may count it. Proved by
// tests/model/data/data_rows_test.cpp.
//
// May include: base, base/file, base/structured, model/data/parquet, model/data/reader, model/templates,
// model/text/unicode, run/device.
// Offers: document.h, file_text.h, row_report.h, shapes.h.
#pragma once

#include <filesystem>
#include <memory>

#include "model/data/reader/reader.h"

namespace lumen::model::data {

// Error when the file's name gives no known form, or the file cannot be read. Fields of .csv and .tsv files are
// strings; .csv fields may be quoted, .tsv fields are literal.
std::unique_ptr<RowReader> open_rows(const std::filesystem::path& file);
bool is_row_file(const std::filesystem::path& file);  // by its name

// Parses `text` into `value`, or sets `fault`.
void parse_row(DataRow* row);

}  // namespace lumen::model::data
