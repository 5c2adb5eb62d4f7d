// Rows of data files, as JSON objects: .jsonl, .json (a list), .csv and .tsv with a header line, each also as .gz.
// Proved by tests/model/eval_rows_test.cpp.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

namespace lumen::model {

// All rows in order. Fields of .csv and .tsv files are texts; .csv fields may be quoted, .tsv fields are taken as they
// stand. Error with file and line for what is no row, and for files larger than 1 GiB once unpacked.
std::vector<nlohmann::ordered_json> read_rows(const std::filesystem::path& file);

}  // namespace lumen::model
