#include <cmath>
#include <limits>

#include "base/error.h"
#include "model/file/gguf.h"

namespace lumen::model::file {
namespace {

constexpr const char* kTypeNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                      "bool", "string", "array", "u64", "i64", "f64"};

template <typename T>
constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

template <typename T>
std::optional<int64_t> as_integer(const T& x) {
  if constexpr (kIsInteger<T>) {
    if (std::in_range<int64_t>(x)) return static_cast<int64_t>(x);
  }
  return std::nullopt;
}

template <typename T>
std::optional<double> as_number(const T& x) {
  if constexpr (std::is_floating_point_v<T>) return static_cast<double>(x);
  if constexpr (kIsInteger<T>) return static_cast<double>(x);
  return std::nullopt;
}

Error wrong_type(const GgufMetadata& m, std::string_view key, std::string_view wanted, const GgufValue& value) {
  return user_error("{}: key '{}' is {} ({}), not {}", m.source, key, gguf_type_name(value), gguf_print(value), wanted);
}

Error missing(const GgufMetadata& m, std::string_view key) {
  return user_error("{}: the key '{}' is missing", m.source, key);
}

template <typename T>
std::string print_one(const T& x) {
  if constexpr (std::is_same_v<T, std::string>) return fmt::format("\"{}\"", x.substr(0, 60));
  return fmt::format("{}", x);
}

}  // namespace

void GgufMetadata::set(std::string key, GgufValue value) {
  const auto [at, fresh] = by_key_.emplace(key, entries_.size());
  if (fresh) {
    entries_.emplace_back(std::move(key), std::move(value));
  } else {
    entries_[at->second].second = std::move(value);
  }
}

void GgufMetadata::erase(std::string_view key) {
  const auto at = by_key_.find(key);
  if (at == by_key_.end()) return;
  const size_t index = at->second;
  by_key_.erase(at);
  entries_.erase(entries_.begin() + index);
  for (auto& [name, place] : by_key_) {
    if (place > index) --place;
  }
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto at = by_key_.find(key);
  return at == by_key_.end() ? nullptr : &entries_[at->second].second;
}

int64_t GgufMetadata::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) throw missing(*this, key);
  const auto out = std::visit([](const auto& x) { return as_integer(x); }, *value);
  if (!out) throw wrong_type(*this, key, "an integer", *value);
  return *out;
}

int64_t GgufMetadata::integer(std::string_view key, int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}

double GgufMetadata::number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) throw missing(*this, key);
  const auto out = std::visit([](const auto& x) { return as_number(x); }, *value);
  if (!out) throw wrong_type(*this, key, "a number", *value);
  return *out;
}

double GgufMetadata::number(std::string_view key, double fallback) const {
  return has(key) ? number(key) : fallback;
}

bool GgufMetadata::boolean(std::string_view key, bool fallback) const {
  const GgufValue* value = find(key);
  if (!value) return fallback;
  const bool* out = std::get_if<bool>(value);
  if (!out) throw wrong_type(*this, key, "a boolean", *value);
  return *out;
}

const std::string& GgufMetadata::text(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) throw missing(*this, key);
  const std::string* out = std::get_if<std::string>(value);
  if (!out) throw wrong_type(*this, key, "a string", *value);
  return *out;
}

std::string GgufMetadata::text(std::string_view key, std::string fallback) const {
  return has(key) ? text(key) : std::move(fallback);
}

std::vector<int64_t> GgufMetadata::integers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) throw missing(*this, key);
  const GgufArray* array = std::get_if<GgufArray>(value);
  if (!array) return {integer(key)};
  std::vector<int64_t> out;
  std::visit(
      [&](const auto& list) {
        out.reserve(list.size());
        for (const auto& x : list) {
          using T = typename std::decay_t<decltype(list)>::value_type;
          std::optional<int64_t> n;
          if constexpr (std::is_same_v<T, bool>) {
            n = x ? 1 : 0;
          } else {
            n = as_integer(x);
          }
          if (!n) throw wrong_type(*this, key, "an array of integers", *value);
          out.push_back(*n);
        }
      },
      *array);
  return out;
}

std::vector<double> GgufMetadata::numbers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) throw missing(*this, key);
  const GgufArray* array = std::get_if<GgufArray>(value);
  if (!array) return {number(key)};
  std::vector<double> out;
  std::visit(
      [&](const auto& list) {
        out.reserve(list.size());
        for (const auto& x : list) {
          using T = typename std::decay_t<decltype(list)>::value_type;
          const auto n = as_number<T>(x);
          if (!n) throw wrong_type(*this, key, "an array of numbers", *value);
          out.push_back(*n);
        }
      },
      *array);
  return out;
}

const std::vector<std::string>& GgufMetadata::texts(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) throw missing(*this, key);
  const GgufArray* array = std::get_if<GgufArray>(value);
  const auto* list = array ? std::get_if<std::vector<std::string>>(array) : nullptr;
  if (!list) throw wrong_type(*this, key, "an array of strings", *value);
  return *list;
}

std::string gguf_type_name(const GgufValue& value) {
  if (const GgufArray* array = std::get_if<GgufArray>(&value)) {
    const size_t type = array->index() < 9 ? array->index() : array->index() + 1;
    return fmt::format("array of {}", kTypeNames[type]);
  }
  return kTypeNames[value.index()];
}

std::string gguf_print(const GgufValue& value, size_t limit) {
  return std::visit(
      [&](const auto& x) -> std::string {
        using T = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<T, GgufArray>) {
          return std::visit(
              [&](const auto& list) {
                std::string out = "[";
                for (size_t i = 0; i < list.size() && i < limit; ++i) {
                  using E = typename std::decay_t<decltype(list)>::value_type;
                  out += (i ? ", " : "") + print_one<E>(list[i]);
                }
                return out + (list.size() > limit ? fmt::format(", ... {} in all]", list.size()) : "]");
              },
              x);
        } else {
          return print_one(x);
        }
      },
      value);
}

}  // namespace lumen::model::file
