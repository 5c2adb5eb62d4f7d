// Reads the members of a request's JSON object. Each reader asks for the members it supports; members that were never
// asked for are ignored with a warning in the reply, or refused where the server is strict. Proved by
// tests/model/serve/request_test.cpp.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "model/serve/request.h"

namespace lumen::model::serve {

inline constexpr size_t kLongestName = 64;  // of a key quoted in messages

// A key as quoted in messages.
inline std::string key_in_quotes(const std::string& key) {
  return "'" + (key.size() > kLongestName ? key.substr(0, kLongestName) + ".." : key) + "'";
}

inline Refusal wrong_value(const std::string& param, const std::string& message) {
  return Refusal(400, message, param, "invalid_value");
}

// The members of a request; each must be asked for. `notes` null: all others are refused.
class Fields {
 public:
  explicit Fields(const nlohmann::ordered_json& object, FieldNotes* notes = nullptr) : object_(object), notes_(notes) {}

  // Null if the member is missing or null.
  const nlohmann::ordered_json* find(const std::string& name) {
    known_.insert(name);
    const auto at = object_.find(name);
    return at == object_.end() || at->is_null() ? nullptr : &*at;
  }
  bool boolean(const std::string& name, bool fallback) {
    const nlohmann::ordered_json* value = find(name);
    if (!value) return fallback;
    if (!value->is_boolean()) throw wrong_value(name, key_in_quotes(name) + " must be true or false");
    return value->get<bool>();
  }
  int64_t whole(const std::string& name, int64_t fallback, int64_t least, int64_t most) {
    const nlohmann::ordered_json* value = find(name);
    return value ? whole_of(*value, name, least, most) : fallback;
  }
  double real(const std::string& name, double fallback, double least, double most) {
    const nlohmann::ordered_json* value = find(name);
    return value ? real_of(*value, name, least, most) : fallback;
  }
  static int64_t whole_of(const nlohmann::ordered_json& value, const std::string& name, int64_t least, int64_t most) {
    const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= INT64_MAX : value.is_number_integer();
    if (!fits || value.get<int64_t>() < least || value.get<int64_t>() > most)
      throw wrong_value(name, fmt::format("{} must be a whole number from {} to {}", key_in_quotes(name), least, most));
    return value.get<int64_t>();
  }
  static double real_of(const nlohmann::ordered_json& value, const std::string& name, double least, double most) {
    const double x = value.is_number() ? value.get<double>() : NAN;
    if (!(x >= least && x <= most))
      throw wrong_value(name, fmt::format("{} must be a number from {} to {}", key_in_quotes(name), least, most));
    return x;
  }
  // Accepts members that do not affect results.
  void ignore(std::initializer_list<const char*> names) { known_.insert(names.begin(), names.end()); }
  // An unsupported feature: the member may only have one of these values, which disable it.
  void only(const std::string& name, std::initializer_list<nlohmann::ordered_json> harmless) {
    const nlohmann::ordered_json* value = find(name);
    if (value && std::find(harmless.begin(), harmless.end(), *value) == harmless.end())
      throw Refusal(400, key_in_quotes(name) + " with this value is not supported", name, "unsupported_parameter");
  }
  void refuse_others() const {
    for (const auto& [key, value] : object_.items())
      if (!known_.contains(key) && !value.is_null()) refuse(key);
  }
  // Ignores the members that were not asked for, unless the server is strict.
  void settle_others() const {
    for (const auto& [key, value] : object_.items()) {
      if (known_.contains(key) || value.is_null()) continue;
      if (!notes_ || notes_->is_strict) refuse(key);
      notes_->add("the field " + key_in_quotes(key) + " has no effect here");
    }
  }

 private:
  [[noreturn]] static void refuse(const std::string& key) {
    throw Refusal(400, "unknown field " + key_in_quotes(key), key.substr(0, kLongestName), "unknown_parameter");
  }

  const nlohmann::ordered_json& object_;
  FieldNotes* notes_;
  std::set<std::string> known_;
};

}  // namespace lumen::model::serve
