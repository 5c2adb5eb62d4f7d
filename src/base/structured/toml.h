// TOML documents with typed getters; every error has file:line:column and a hint, and unknown keys are refused. A thin
// wrapper that hides toml++. Proved by tests/base/structured/toml_test.cpp and tests/fuzz/toml_fuzz.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/place.h"

namespace lumen {

// One table of a document. Copies share the document and the record of which keys were read.
class Toml {
 public:
  // Parses a text; `name` is used in messages. At most `limit` bytes.
  static Toml parse(std::string text, std::string name, size_t limit = size_t{1} << 24);

  bool has(std::string_view key) const;
  std::vector<std::string> keys() const;  // in text order if known, otherwise by name

  // Without a fallback a missing key is an Error. A number with a fraction is not an integer; an integer is a number.
  std::string text(std::string_view key) const;
  std::string text(std::string_view key, std::string_view fallback) const;
  int64_t integer(std::string_view key) const;
  int64_t integer(std::string_view key, int64_t fallback) const;
  double number(std::string_view key) const;
  double number(std::string_view key, double fallback) const;
  bool boolean(std::string_view key) const;
  bool boolean(std::string_view key, bool fallback) const;
  std::vector<std::string> texts(std::string_view key) const;  // an array of strings; empty when missing
  std::vector<double> numbers(std::string_view key) const;     // an array of numbers; empty when missing
  std::vector<int64_t> integers(std::string_view key) const;   // an array of integers; empty when missing
  std::optional<Toml> table(std::string_view key) const;       // [key]; nullopt when missing
  std::vector<Toml> tables(std::string_view key) const;        // [[key]]; empty when missing

  // The type of a key's value, for callers that accept several.
  enum class Kind { missing, text, integer, number, boolean, table, array, other };
  Kind kind(std::string_view key) const;

  // Position of a key's value (of the table itself for ""), for the caller's own errors: throw error_at(t.place("lr"),
  // ...).
  Place place(std::string_view key = {}) const;

  // Error at the first key of this table, or of any table below it, that was never read; the hint names the nearest
  // known key.
  void refuse_unknown() const;

 private:
  struct Document;
  struct Node;
  struct Unknown;
  Error wrong(std::string_view key, std::string_view wanted) const;
  Toml below(const void* table) const;
  void find_unknown(const Node& node, Unknown& first) const;

  std::shared_ptr<Document> document_;
  Node* node_ = nullptr;
};

}  // namespace lumen
