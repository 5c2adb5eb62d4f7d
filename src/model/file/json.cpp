#include "model/file/json.h"

#include <vector>

#include "base/error.h"

namespace lumen::model {

using nlohmann::json;

json parse_json(std::string_view text, const std::string& name, int max_depth) {
  std::vector<size_t> keys;  // of the open objects
  const json::parser_callback_t watch = [&](int depth, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
        keys.push_back(0);
        [[fallthrough]];
      case json::parse_event_t::array_start:
        if (depth >= max_depth) throw user_error("{}: JSON nested deeper than {} levels", name, max_depth);
        break;
      case json::parse_event_t::key:
        ++keys.back();
        break;
      case json::parse_event_t::object_end:
        // Equal keys fall together in the parsed object.
        if (parsed.size() != keys.back()) throw user_error("{}: a JSON object has the same key twice", name);
        keys.pop_back();
        break;
      default:
        break;
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), watch);
  } catch (const json::parse_error& error) {
    throw user_error("{}: byte {}: not valid JSON: {}", name, error.byte, error.what());
  } catch (const json::exception& error) {
    throw user_error("{}: not valid JSON: {}", name, error.what());
  }
}

const json& json_member(const json& object, const char* key, const std::string& where) {
  if (!object.is_object()) throw user_error("{}: expected a JSON object", where);
  const auto at = object.find(key);
  if (at == object.end()) throw user_error("{}: \"{}\" is missing", where, key);
  return *at;
}

std::string json_text(const json& object, const char* key, const std::string& where) {
  const json& value = json_member(object, key, where);
  if (!value.is_string()) throw user_error("{}: \"{}\" is no string", where, key);
  return value.get<std::string>();
}

int64_t json_integer(const json& object, const char* key, const std::string& where) {
  const json& value = json_member(object, key, where);
  if (value.is_number_unsigned() ? value.get<uint64_t>() > INT64_MAX : !value.is_number_integer())
    throw user_error("{}: \"{}\" is no whole number", where, key);
  return value.get<int64_t>();
}

bool json_boolean(const json& object, const char* key, bool fallback, const std::string& where) {
  const auto at = object.find(key);
  if (at == object.end() || at->is_null()) return fallback;
  if (!at->is_boolean()) throw user_error("{}: \"{}\" is neither true nor false", where, key);
  return at->get<bool>();
}

std::string json_print(const json& value, const std::string& where, int indent) {
  try {
    return value.dump(indent);
  } catch (const json::exception&) {
    throw user_error("{}: a text in it is not valid UTF-8", where);
  }
}

}  // namespace lumen::model
