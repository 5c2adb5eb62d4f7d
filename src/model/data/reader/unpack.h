// Packed data files. Proved by tests/model/eval/eval_rows_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lumen::model {

// The bytes of one or several gzip members. Error that names the file when they are damaged, end too early, or are more
// than `limit` once unpacked.
std::string gunzip(std::string_view packed, const std::string& name, uint64_t limit);

}  // namespace lumen::model
