// Rows of data files, as JSON objects, where each of them must be one.
// Proved by tests/model/eval/eval_rows_test.cpp.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

namespace lumen::model {

// All rows in order, as model/data/rows/rows.h reads them. Error with file and line for what is no row.
std::vector<nlohmann::ordered_json> read_rows(const std::filesystem::path& file);

}  // namespace lumen::model
