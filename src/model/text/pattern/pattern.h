// Regular expressions of tokenizers. The common ones are compiled to a table, a DFA over character classes (no
// backtracking, a few nanoseconds per character); others (look-behind, back references, possessive quantifiers, ...)
// use PCRE2. Both return the match of a backtracking engine: the leftmost one, preferring earlier alternatives. The
// dialect is that of tokenizer.json: \s is White_Space, ^ and $ match at line ends. Proved by
// tests/model/text/pattern_test.cpp (both engines return the same matches).
//
// May include: base, model/text/unicode.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::model::text {

// A description of a PCRE2 compile error.
std::string pattern_mistake(int error);

struct Match {
  size_t begin = 0, end = 0;
};

class Pattern {
 public:
  enum class Engine { best, table, backtracking };  // others than `best` for tests

  // Error when the pattern does not compile (with `Engine::table`: when the DFA cannot express it); `where` names its
  // origin.
  Pattern(const std::string& text, const std::string& where, Engine engine = Engine::best);
  static Pattern literal(std::string text);
  Pattern(Pattern&&) noexcept;
  ~Pattern();

  // The first non-empty match at or after `from` in valid UTF-8; false when there is none. Look-around does not see
  // beyond `text`. Error when a pattern takes too long; `*work` counts the steps for one text.
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

// Whether two patterns have the same matches in every text, however they are written; false when undecided (patterns
// that the DFA cannot express and that are not the same string).
bool same_matches(const std::string& a, const std::string& b);
// Whether a match begins wherever one ends, so that there are no gaps between matches. False when undecided.
bool leaves_no_gaps(const std::string& pattern);

}  // namespace lumen::model::text
