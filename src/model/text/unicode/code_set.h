// Sets of Unicode code points as sorted ranges, and the general categories and properties used in patterns. Proved by
// tests/model/text/pattern_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen::model::text {

class CodeSet {
 public:
  using Range = std::pair<char32_t, char32_t>;  // first and last, inclusive

  CodeSet() = default;
  CodeSet(std::initializer_list<Range> ranges);
  explicit CodeSet(std::vector<Range> ranges);  // any order, overlaps allowed

  const std::vector<Range>& ranges() const { return ranges_; }
  bool contains(char32_t c) const;
  CodeSet complement() const;
  CodeSet unite(const CodeSet& other) const;
  CodeSet intersect(const CodeSet& other) const;
  bool empty() const { return ranges_.empty(); }
  friend bool operator==(const CodeSet&, const CodeSet&) = default;

  // By a general category of one or two letters ("L", "Lu", "Nd"), "Any", or the script "Han", "Hangul", "Hiragana",
  // "Katakana"; nullopt for other names.
  static std::optional<CodeSet> property(std::string_view name);
  static const CodeSet& white_space();  // White_Space
  // Alphabetic, marks, decimal digits, connectors, and the two joiners (Unicode's word characters).
  static const CodeSet& word();
  // \w in tokenizers' patterns: without the joiners, and outside brackets with superscripts and fractions of Latin-1.
  static const CodeSet& pattern_word(bool in_brackets);
  static const CodeSet& punctuation();  // ASCII punctuation and categories P

 private:
  std::vector<Range> ranges_;  // ascending, with gaps between them
};

constexpr char32_t kLastCode = 0x10ffff;

}  // namespace lumen::model::text
