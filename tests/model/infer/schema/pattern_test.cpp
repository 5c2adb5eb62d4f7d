// needs: none. Patterns, formats and ranges of numbers as automata: which texts they accept, and that sizes are
// bounded.
#include "model/infer/schema/automata/pattern.h"

#include <gtest/gtest.h>

#include "model/infer/schema/automata/automaton.h"
#include "model/infer/schema/automata/formats.h"
#include "model/infer/schema/automata/numbers.h"

namespace lumen::model::infer {
namespace {

struct Case {
  const char* pattern;
  std::vector<const char*> good, bad;
};

// The automaton and the direct search must agree.
void expect(const std::string& pattern, const std::string& text, bool matches) {
  const auto parsed = EcmaPattern::parse(pattern);
  ASSERT_TRUE(parsed) << pattern;
  EXPECT_EQ(parsed->matches(text), matches) << pattern << " on " << text;
  const auto automaton = Automaton::of(*parsed);
  ASSERT_TRUE(automaton) << pattern;
  EXPECT_EQ(automaton->accepts_text(text), matches) << pattern << " on " << text;
}

TEST(SchemaPattern, MatchesAsEcmaDoes) {
  const Case cases[] = {
      {"b", {"b", "abc"}, {"", "ac"}},
      {"^b", {"b", "bc"}, {"ab"}},
      {"b$", {"b", "ab"}, {"bc"}},
      {"^$", {""}, {"a"}},
      {"", {"", "a"}, {}},
      {"^(a|bc)+?$", {"a", "bca"}, {"", "b"}},
      {"^a{2,3}$", {"aa", "aaa"}, {"a", "aaaa"}},
      {"^a{2,}$", {"aa", "aaaaa"}, {"a"}},
      {"^a{,2}$", {"a{,2}"}, {"aa"}},
      {"^[^a-c]$", {"d", "한"}, {"a", "", "dd"}},
      {"^[\\d_-]+$", {"1-_"}, {"a"}},
      {"^\\w\\W\\s\\S\\D$", {"a! xx"}, {"aa xx"}},
      {"^.$", {"한", "\xf0\x9f\x98\x80"}, {"\n", "ab"}},
      {"^\\x41\\u00e9\\cJ\\t$", {"A\xc3\xa9\n\t"}, {"A"}},
      {"^\\u{1F600}$", {"\xf0\x9f\x98\x80"}, {"a"}},
      {"^\\ud83d\\ude00$", {"\xf0\x9f\x98\x80"}, {"a"}},
      {"^\\p{L}+$", {"aé한"}, {"1"}},
      {"^(?:a)(?<name>b)$", {"ab"}, {"a"}},
      {"^(?=.*[A-Z])(?=.*\\d).{4,}$", {"abC1", "1Abcd"}, {"abc1", "ABCD", "A1"}},
      {"^(?!admin)[a-z]+$", {"user", "adm"}, {"admin", "administrator"}},
      {"^[a-z]|[0-9]$", {"a!", "!9"}, {"!"}},
      {"a.?b$|^c", {"xab", "cxx"}, {"xc"}},
      {"^\\$\\.\\/$", {"$./"}, {"a"}},
      {"^[]$", {}, {"", "a"}},
      {"^[^]$", {"a", "\n"}, {""}},
  };
  for (const Case& c : cases) {
    for (const char* text : c.good) expect(c.pattern, text, true);
    for (const char* text : c.bad) expect(c.pattern, text, false);
  }
}

TEST(SchemaPattern, WhatIsNotRegularIsLeftOut) {
  for (const char* pattern : {"(a)\\1", "(?<=a)b", "(?<!a)b", "\\bword", "a(?=b)", "(?=a)b", "(", ")", "[", "a**", "\\",
                              "*", "a{3,2}", "[b-a]", "\\u12", "\\p{Nothing}", "(?<n>a)\\k<n>", "^(?=a)b|c"})
    EXPECT_FALSE(EcmaPattern::parse(pattern)) << pattern;
  EXPECT_FALSE(EcmaPattern::parse(std::string(9000, 'a')));
  EXPECT_FALSE(EcmaPattern::parse(std::string(5000, '(')));
  EXPECT_FALSE(EcmaPattern::parse("((a{100}){100}){100}"));
  EXPECT_FALSE(EcmaPattern::parse("(((((){9999}){9999}){9999}){9999}){9999}"));
}

TEST(SchemaPattern, AutomataAreBounded) {
  // 2^19 states.
  const auto large = EcmaPattern::parse("(a|b)*a(a|b){18}$");
  ASSERT_TRUE(large);
  EXPECT_FALSE(Automaton::of(*large));
  EXPECT_TRUE(large->matches("a" + std::string(18, 'b')));
  size_t budget = 10;
  EXPECT_FALSE(Automaton::of(*EcmaPattern::parse("^abcdef$"), &budget));
  EXPECT_FALSE(Automaton::of_length(0, 1'000'000));
  const auto name = Automaton::of(*EcmaPattern::parse("^[a-z]{1,64}$"));
  ASSERT_TRUE(name);
  EXPECT_EQ(name->states(), 65);
}

TEST(SchemaPattern, AutomataAreCombined) {
  const auto words = Automaton::of(*EcmaPattern::parse("^[a-z]+$"));
  const auto few = words->intersect(*Automaton::of_length(2, 3));
  for (const char* text : {"ab", "abc"}) EXPECT_TRUE(few->accepts_text(text));
  for (const char* text : {"a", "abcd", "a1"}) EXPECT_FALSE(few->accepts_text(text));
  const auto others = few->intersect(*Automaton::of_strings({"ab", "한"})->complement());
  EXPECT_FALSE(others->accepts_text("ab"));
  EXPECT_TRUE(others->accepts_text("ac"));
  EXPECT_TRUE(words->intersect(*words->complement())->empty());
  EXPECT_TRUE(Automaton().complement()->accepts_text("anything"));
}

TEST(SchemaFormats, AcceptWhatTheyName) {
  const std::pair<const char*, Case> cases[] = {
      {"date",
       {"",
        {"2024-02-29", "2000-02-29", "2023-04-30", "1999-12-31"},
        {"2023-02-29", "1900-02-29", "2023-04-31", "2023-13-01", "2023-1-01", "2023-00-10"}}},
      {"time", {"", {"00:00:00Z", "23:59:59.123+09:00", "23:59:60Z"}, {"24:00:00Z", "12:00:00", "12:60:00Z"}}},
      {"date-time",
       {"", {"2024-02-29T12:00:00Z", "2023-12-31T23:59:59.5-08:00"}, {"2023-02-29T12:00:00Z", "2023-12-31 23:59:59Z"}}},
      {"duration", {"", {"P3Y6M4DT12H30M5S", "PT0S", "P4W"}, {"P", "PT", "P1YT", "4D", "P1Y2W"}}},
      {"email", {"", {"a@b.co", "te~st+x@example.com"}, {"a", "@b.co", "a@", ".a@b.co", "a..b@c.de", "a b@c.de"}}},
      {"hostname", {"", {"example.com", "a-b.c"}, {"-a.com", "a_b", "a..b", ""}}},
      {"ipv4", {"", {"127.0.0.1", "255.255.255.255"}, {"256.0.0.1", "1.2.3", "01.2.3.4"}}},
      {"ipv6",
       {"",
        {"::", "::1", "2001:db8::8a2e:370:7334", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4", "1::2:1.2.3.4",
         "1:2:3:4:5:6:7::"},
        {"1:2:3:4:5:6:7", "::1::2", "12345::", "1:2:3:4:5:6:7:8:9", ":1", "1::2:3:4:5:6:7:8"}}},
      {"uuid", {"", {"2eb8aa08-aa98-11ea-b4aa-73b441d16380"}, {"2eb8aa08-aa98-11ea-b4aa-73b441d1638", "2eb8aa08aa98"}}},
      {"uri", {"", {"https://a.b/c?d#e", "urn:x:y", "mailto:a@b.co", "ftp://[::1]/"}, {"//a", "a b:c", "/x", "\\\\x"}}},
      {"uri-reference", {"", {"/a/b", "?x", "a", "#f", ""}, {"a b", "\\"}}},
      {"json-pointer", {"", {"", "/a/0", "/~0~1"}, {"a", "/~2", "/~"}}},
  };
  for (const auto& [name, c] : cases) {
    const std::string* pattern = format_pattern(name);
    ASSERT_TRUE(pattern) << name;
    for (const char* text : c.good) expect(*pattern, text, true);
    for (const char* text : c.bad) expect(*pattern, text, false);
  }
  EXPECT_FALSE(format_pattern("int64"));  // an annotation
}

TEST(SchemaNumbers, RangesHoldTheirNumbers) {
  const auto decimal = [](const char* text) { return *Decimal::parse(text); };
  const std::vector<std::pair<const char*, const char*>> bounds = {{"0", "9"},     {"1", "100"},     {"-5", "5"},
                                                                   {"-120", "-7"}, {"0.5", "2.75"},  {"-0.25", "0"},
                                                                   {"99", "1001"}, {"-3.5", "-3.25"}};
  const std::vector<const char*> numbers = {"0",    "1",      "2",    "2.7",  "2.75", "2.76", "5",   "-5",
                                            "-5.1", "9",      "9.5",  "10",   "99",   "100",  "101", "1000",
                                            "1001", "1001.5", "-7",   "-6",   "-120", "-121", "0.5", "0.49",
                                            "0.51", "-0.25",  "-0.2", "-0.3", "-3.3", "-3.5"};
  for (const auto& [low, high] : bounds) {
    for (const bool excludes : {false, true}) {
      for (const bool is_whole : {false, true}) {
        NumberRange range;
        range.is_whole = is_whole;
        range.raise(decimal(low), excludes);
        range.lower(decimal(high), excludes);
        const auto automaton = range.automaton();
        ASSERT_TRUE(automaton);
        for (const char* text : numbers) {
          const Decimal n = decimal(text);
          const int from = compare(n, decimal(low)), to = compare(n, decimal(high));
          const bool is_in = excludes ? from > 0 && to < 0 : from >= 0 && to <= 0;
          EXPECT_EQ(automaton->accepts_text(text), is_in && (!is_whole || n.fraction.empty()))
              << text << " in " << low << " to " << high << (excludes ? " excluded" : "");
        }
        for (const char* text : {"", "-", "01", "1.", ".5", "1e3", "--1", "+1"})
          EXPECT_FALSE(automaton->accepts_text(text));
        EXPECT_LT(automaton->states(), 300);
      }
    }
  }
}

TEST(SchemaNumbers, MultiplesAreExact) {
  const auto of = [](const char* text) { return multiples_automaton(*Decimal::parse(text)); };
  const auto seven = of("7"), cents = of("0.01"), quarter = of("0.25");
  for (int i = -100; i <= 100; ++i) EXPECT_EQ(seven->accepts_text(std::to_string(i)), i % 7 == 0) << i;
  for (const char* text : {"1", "1.5", "-0.25", "12.34"}) EXPECT_TRUE(cents->accepts_text(text)) << text;
  EXPECT_FALSE(cents->accepts_text("1.234"));
  for (const char* text : {"0.25", "1.5", "3", "-7.75"}) EXPECT_TRUE(quarter->accepts_text(text)) << text;
  for (const char* text : {"0.2", "1.55", "3.1"}) EXPECT_FALSE(quarter->accepts_text(text)) << text;
  EXPECT_FALSE(of("123457"));  // too many remainders
  EXPECT_FALSE(of("0"));
  EXPECT_EQ(is_multiple(*Decimal::parse("0.0075"), *Decimal::parse("0.0001")), true);
  EXPECT_EQ(is_multiple(*Decimal::parse("0.00751"), *Decimal::parse("0.0001")), false);
  EXPECT_EQ(compare(*Decimal::parse("1e3"), *Decimal::parse("1000.0")), 0);
  EXPECT_FALSE(Decimal::parse("1e300"));
}

}  // namespace
}  // namespace lumen::model::infer
