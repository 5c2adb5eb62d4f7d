// Rows of data files; each must be a JSON object. Proved by tests/model/eval/eval_rows_test.cpp.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

namespace lumen::model::eval {

// All rows in order, as read by model/data/rows/rows.h. Error with file and line for rows that are not objects.
std::vector<nlohmann::ordered_json> read_rows(const std::filesystem::path& file);

}  // namespace lumen::model::eval
