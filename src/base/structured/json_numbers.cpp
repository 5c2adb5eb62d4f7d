#include "base/structured/json_numbers.h"

#include <charconv>

#include "base/error.h"
#include "base/structured/json.h"

namespace lumen {

double json_real(const nlohmann::json& object, const char* key, const std::string& where) {
  const nlohmann::json& value = json_member(object, key, where);
  if (!value.is_number()) throw user_error("{}: \"{}\" is no number", where, key);
  return value.get<double>();
}

int64_t json_within(const nlohmann::json& object, const char* key, int64_t least, int64_t most,
                    const std::string& where) {
  const int64_t value = json_integer(object, key, where);
  if (value < least || value > most) throw user_error("{}: \"{}\" is {}, not {} to {}", where, key, value, least, most);
  return value;
}

uint64_t json_number(const nlohmann::json& object, const char* key, const std::string& where) {
  const std::string text = json_text(object, key, where);
  uint64_t out = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, out);
  if (error != std::errc() || at != end) throw user_error("{}: \"{}\" is no number", where, key);
  return out;
}

std::vector<double> json_reals(const nlohmann::json& object, const char* key, const std::string& where) {
  const nlohmann::json& values = json_member(object, key, where);
  if (!values.is_array()) throw user_error("{}: \"{}\" is no list", where, key);
  std::vector<double> out;
  for (const nlohmann::json& x : values) {
    if (!x.is_number()) throw user_error("{}: \"{}\" has an entry that is not a number", where, key);
    out.push_back(x.get<double>());
  }
  return out;
}

}  // namespace lumen
