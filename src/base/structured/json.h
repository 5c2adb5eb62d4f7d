// JSON from files and the network: parsed with bounded depth, duplicate keys refused, errors with the name of the text,
// line and column ("column 7: ..." for an empty name). Proved by tests/base/structured/json_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lumen {

nlohmann::json parse_json(std::string_view text, const std::string& name, int max_depth = 32);
// Members stay in the order of the text; an object has at most 1024.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& name, int max_depth = 32);

// Members of an object with a type; Error naming `where` and the key when missing or of another type.
const nlohmann::json& json_member(const nlohmann::json& object, const char* key, const std::string& where);
std::string json_text(const nlohmann::json& object, const char* key, const std::string& where);
int64_t json_integer(const nlohmann::json& object, const char* key,
                     const std::string& where);  // a whole number in range
bool json_boolean(const nlohmann::json& object, const char* key, bool fallback,
                  const std::string& where);  // null = fallback

// Prints a value; invalid UTF-8 in it is an Error. indent < 0: one line.
std::string json_print(const nlohmann::json& value, const std::string& where, int indent = -1);

}  // namespace lumen
