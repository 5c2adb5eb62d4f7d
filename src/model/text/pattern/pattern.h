// Regular expressions of tokenizers: the common ones become a table of states over classes of characters (no
// backtracking, a few nanoseconds for each character); what needs more (look-behind, back references, possessive
// quantifiers, ...) goes to PCRE2. Both give the match a backtracking engine gives: the leftmost, and of those the
// first alternative's. The dialect is that of tokenizer.json: \s is White_Space, ^ and $ are ends of lines. Proved by
// tests/model/text/pattern_test.cpp (both ways give the same matches).
//
// May include: base, model/text/unicode.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::model {

// What is wrong with an expression that PCRE2 refuses with this error.
std::string pattern_mistake(int error);

struct Match {
  size_t begin = 0, end = 0;
};

class Pattern {
 public:
  enum class Engine { best, table, backtracking };  // how to match; for tests

  // Error when the pattern does not compile (with `Engine::table`: when it needs more than the table); `where` names
  // its origin.
  Pattern(const std::string& text, const std::string& where, Engine engine = Engine::best);
  static Pattern literal(std::string text);
  Pattern(Pattern&&) noexcept;
  ~Pattern();

  // The first non-empty match at or behind `from` in valid UTF-8; false when there is none. What stands outside `text`
  // does not count. Error when a pattern runs away; `*work` counts the steps taken in one text.
  bool find(std::string_view text, size_t from, Match* out, uint64_t* work) const;
  bool is_table() const;

 private:
  struct Table;
  struct Backtracking;
  Pattern() = default;

  std::string text_;
  std::string literal_;
  std::unique_ptr<const Table> table_;
  std::unique_ptr<const Backtracking> backtracking_;
};

// Whether two patterns find the same in every text, however they are written; false where that cannot be told (patterns
// that need more than the table and are not the same text).
bool same_matches(const std::string& a, const std::string& b);
// Whether a match begins wherever one ends: nothing is between matches. False where that cannot be told.
bool leaves_no_gaps(const std::string& pattern);

}  // namespace lumen::model
