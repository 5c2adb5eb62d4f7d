// Numbers in JSON from users or other processes. Each function throws an Error naming `where` and the key. Proved by
// tests/base/structured/json_numbers_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lumen {

double json_real(const nlohmann::json& object, const char* key, const std::string& where);
int64_t json_within(const nlohmann::json& object, const char* key, int64_t least, int64_t most,
                    const std::string& where);
uint64_t json_number(const nlohmann::json& object, const char* key, const std::string& where);  // from a string
std::vector<double> json_reals(const nlohmann::json& object, const char* key, const std::string& where);

}  // namespace lumen
