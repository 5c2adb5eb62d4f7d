// Rows of data files, one after another: .jsonl, .json (a list, or objects one behind the other), .csv and .tsv with a
// header line, .parquet (parquet/parquet.h), .txt (one row), .md and .dlm (document.h); each also as gzip data and in
// UTF-16 (file_text.h). What a file holds decides where that is not what its name says (form.h), and a note tells so.
// Files are mapped, not read whole. What is no row comes as a row with a fault, so that whoever reads may count it.
// Proved by tests/model/data/data_rows_test.cpp.
//
// May include: base, base/file, base/structured, model/data/parquet, model/data/reader, model/template,
// model/text/unicode, run/device.
// Offers: document.h, file_text.h, row_report.h, shapes.h.
#pragma once

#include <filesystem>
#include <memory>

#include "model/data/reader/reader.h"

namespace lumen::model {

// Error when its name does not say what it holds, or the file cannot be read. Fields of .csv and .tsv files are
// strings; .csv fields may be quoted, .tsv fields are taken as they stand.
std::unique_ptr<RowReader> open_rows(const std::filesystem::path& file);
bool is_row_file(const std::filesystem::path& file);  // by its name

// Reads `text` into `value`, or says what is wrong with it.
void parse_row(DataRow* row);

}  // namespace lumen::model
