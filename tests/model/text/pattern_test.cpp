// needs: none. Patterns as tables of states find what a backtracking engine finds.
#include "model/text/pattern/pattern.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <ctime>

#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "model/text/pattern/pattern_syntax.h"
#include "model/text/unicode/code_set.h"
#include "model/text/unicode/unicode.h"
#include "tests/model/text/tokenizer_fixtures.h"

namespace lumen::model::text {
namespace {

std::vector<std::pair<size_t, size_t>> all(const Pattern& p, std::string_view text) {
  std::vector<std::pair<size_t, size_t>> out;
  Match m;
  uint64_t work = 0;
  for (size_t at = 0; p.find(text, at, &m, &work); at = m.end) out.emplace_back(m.begin, m.end);
  return out;
}

// Texts that patterns of tokenizers care about: letters of many kinds, digits, marks, spaces, signs.
rc::Gen<std::string> texts() {
  static const std::vector<std::vector<char32_t>> kPools = {
      {'a', 'b', 's', 'S', 't', 'l', 'L', 'r', 'e', 'v', 'm', 'd', 'K', 0x17f, 0x212a},
      {' ', ' ', ' ', '\n', '\r', '\t', 0xa0, 0x3000, 0x85, 0x2028},
      {'0', '1', '9', 0xbd, 0x2460, 0x663, 0xff11},
      {'\'', '.', ',', '!', '(', '|', '/', '$', '+', '_', 0x2019, 0x3001, 0xff01, 0x20ac},
      {0xac00, 0xd55c, 0xad6d, 0x1112, 0x1161, 0x11ab, 0x314b},
      {0x4e00, 0x9fa5, 0x3042, 0x30a2, 0x30fc},
      {0x301, 0x302a, 0x200d, 0xfe0f, 0x1f600, 0x1f469},
      {0xc4, 0xe4, 0x1c5, 0x2b0, 0x3b1, 0x10400, 0xaa, 0x130}};
  return rc::gen::map(rc::gen::container<std::vector<std::pair<int, int>>>(
                          rc::gen::pair(rc::gen::inRange<int>(0, 8), rc::gen::inRange<int>(0, 64))),
                      [](const std::vector<std::pair<int, int>>& picks) {
                        std::string out;
                        for (const auto& [pool, n] : picks) {
                          const auto& p = kPools[static_cast<size_t>(pool)];
                          for (int i = 0; i <= n % 3; ++i) utf8_append(out, p[static_cast<size_t>(n + i) % p.size()]);
                        }
                        return out;
                      });
}

TEST(Pattern, EveryPatternOfTheTableBecomesStates) {
  for (const Pretokenizer& row : pretokenizers().rows) {
    for (const SplitStep& step : row.steps) {
      EXPECT_TRUE(Pattern(step.pattern, row.names[0]).is_table()) << row.names[0] << " " << step.pattern;
    }
  }
}

RC_GTEST_PROP(Pattern, StatesFindWhatBacktrackingFinds, ()) {
  const std::string text = *texts();
  struct Both {
    std::string pattern;
    Pattern table, other;
  };
  static const std::vector<Both> patterns = [] {
    std::vector<Both> out;
    const auto add = [&](const std::string& p) {
      out.push_back({p, Pattern(p, "test", Pattern::Engine::table), Pattern(p, "test", Pattern::Engine::backtracking)});
    };
    for (const Pretokenizer& row : pretokenizers().rows) {
      for (const SplitStep& step : row.steps) add(step.pattern);
    }
    for (const char* p : {"a|ab|abc", "(?:ab|a)(?:bc)?", "a*?b", "a+?", "(a|b)*?s", "(?:a?){2,4}b", "[^\\s]+(?=\\s)",
                          "\\s+(?!\\S)|\\s", "\\d{2,}", "(?i:KS)+", "[a-s&&[^b-r]]+", "x?", "\\P{L}+", "(?:a*)*b",
                          "\\s+$", "[\\p{Lu}\\p{Ll}]{1,3}?\\p{Nd}"}) {
      if (std::string(p).find("&&") == std::string::npos) add(p);
    }
    return out;
  }();
  for (const Both& b : patterns) {
    if (all(b.table, text) != all(b.other, text)) RC_FAIL("'" + b.pattern + "' in '" + text + "'");
  }
}

TEST(Pattern, FirstAlternativeWinsNotTheLongest) {
  using Found = std::vector<std::pair<size_t, size_t>>;
  EXPECT_EQ(all(Pattern("a|ab", "t", Pattern::Engine::table), "ab"), (Found{{0, 1}}));
  EXPECT_EQ(all(Pattern("ab|a", "t", Pattern::Engine::table), "aab"), (Found{{0, 1}, {1, 3}}));
  EXPECT_EQ(all(Pattern("\\s+(?!\\S)|\\s+", "t", Pattern::Engine::table), "a   b  "), (Found{{1, 3}, {3, 4}, {5, 7}}));
  EXPECT_EQ(all(Pattern("[a-z&&[^b]]+", "t", Pattern::Engine::table), "abca"), (Found{{0, 1}, {2, 4}}));
}

TEST(Pattern, WhatNeedsMoreGoesToTheOtherEngine) {
  for (const char* p : {"(?<!a)b", "(a)\\1", "a++b", "^a", "\\bx", "(?>a)b"}) {
    EXPECT_FALSE(Pattern(p, "t").is_table()) << p;
    EXPECT_THROW(Pattern(p, "t", Pattern::Engine::table), Error);
  }
  EXPECT_THROW(Pattern("(", "t"), Error);
  EXPECT_THROW(Pattern("[b-a]", "t"), Error);
}

// What the dialect's classes take (pattern_class_table.py), by both engines, of all characters that are assigned.
TEST(Pattern, ClassesTakeTheCharactersOfTheDialect) {
  const nlohmann::json table = parse_json(
      read_file(std::filesystem::path(LUMEN_SOURCE_DIR) / "tests/model/fixtures/pattern_classes.json"), "classes");
  std::map<std::string, CodeSet> known;
  for (const auto& [pattern, ranges] : table.items()) {
    std::vector<CodeSet::Range> set;
    for (const auto& r : ranges) set.emplace_back(r[0].get<uint32_t>(), r[1].get<uint32_t>());
    known[pattern] = CodeSet(set);
  }
  for (const auto& [others, of] : std::map<std::string, std::string>{{"\\W", "\\w"},
                                                                     {"[^\\w]", "[\\w]"},
                                                                     {"[\\W]", "[\\w]"},
                                                                     {"\\S", "\\s"},
                                                                     {"[\\S]", "\\s"},
                                                                     {"\\H", "\\h"},
                                                                     {"[\\H]", "\\h"},
                                                                     {"~\\B", "~\\b"}})
    known[others] = known.at(of).complement();
  const CodeSet assigned = CodeSet::property("Cn")->unite(*CodeSet::property("Cs")).complement();
  for (const auto& [pattern, want] : known) {
    // The text of all characters, each on a line of its own that the pattern cannot take as a whole.
    const bool behind = pattern.starts_with('~');
    for (const auto engine : {Pattern::Engine::table, Pattern::Engine::backtracking}) {
      if (engine == Pattern::Engine::table && (behind || !parse_pattern(pattern))) continue;
      const Pattern p(pattern, "t", engine);
      int64_t wrong = 0, taken = 0;
      for (const auto& [first, last] : assigned.ranges())
        for (char32_t c = first; c <= last; ++c) {
          std::string text = behind ? "~" : "";
          utf8_append(text, c);
          Match m;
          uint64_t work = 0;
          const bool is = p.find(text, 0, &m, &work) && m.begin == 0;
          if (behind && c == '~') continue;
          taken += is;
          if (is != want.contains(c) && wrong++ < 5)
            ADD_FAILURE() << pattern << (is ? " takes " : " does not take ") << std::hex << static_cast<uint32_t>(c);
        }
      EXPECT_GT(taken, 9) << pattern;
    }
  }
}

// Tokens of single words end where Unicode's words do, joiners among them.
TEST(CodeSet, WordsOfTextsAreNotThoseOfPatterns) {
  EXPECT_TRUE(CodeSet::word().contains(0x200d));
  EXPECT_FALSE(CodeSet::word().contains(0xb2));
  EXPECT_FALSE(CodeSet::pattern_word(false).contains(0x200d));
  EXPECT_TRUE(CodeSet::pattern_word(false).contains(0xb2));
  EXPECT_FALSE(CodeSet::pattern_word(true).contains(0xb2));
}

TEST(Pattern, WorkIsBounded) {
  const Pattern p("\\s+$", "t", Pattern::Engine::table);
  Match m;
  uint64_t work = 0;
  EXPECT_THROW(
      {
        const std::string text = std::string(1 << 20, ' ') + "a";
        p.find(text, 0, &m, &work);
      },
      Error);
}

// A file may hold hundreds of patterns: none of them looks at every character there is.
TEST(Pattern, ATableIsSoonMade) {
  constexpr int kPatterns = 1000;
  const std::clock_t begin = std::clock();
  for (int i = 0; i < kPatterns; ++i) EXPECT_TRUE(Pattern("[a-z]+", "t").is_table());
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 0.5);
  RecordProperty("milliseconds", std::to_string(seconds * 1e3));
}

TEST(CodeSet, Algebra) {
  const CodeSet a{{'a', 'f'}, {'x', 'z'}};
  EXPECT_EQ(a.complement().complement(), a);
  EXPECT_TRUE(a.contains('f') && !a.contains('g') && a.contains('x'));
  EXPECT_EQ(a.intersect({{'e', 'y'}}), (CodeSet{{'e', 'f'}, {'x', 'y'}}));
  EXPECT_EQ((CodeSet{{'a', 'b'}, {'c', 'd'}}), (CodeSet{{'a', 'd'}}));
  EXPECT_TRUE(CodeSet::property("Lo")->contains(0xac00));
  EXPECT_FALSE(CodeSet::property("Nope"));
}

}  // namespace
}  // namespace lumen::model::text
