// needs: none. TOML: typed reading, and messages with place and hint.
#include "base/structured/toml.h"

#include <gtest/gtest.h>

namespace lumen {
namespace {

Toml parse(const char* text) {
  return Toml::parse(text, "r.toml");
}

template <typename F>
void refuse(const F& deed, const std::string& place, const std::string& part) {
  try {
    deed();
    FAIL() << "accepted; expected: " << part;
  } catch (const Error& e) {
    const std::string all = std::string(e.what()) + e.hint();
    EXPECT_NE(all.find(place), std::string::npos) << all;
    EXPECT_NE(all.find(part), std::string::npos) << all;
  }
}

TEST(Toml, ReadsEveryKind) {
  const Toml t = parse(
      "a = 'x'\nb = 3\nc = 1.5\nd = true\ne = ['p', 'q']\nf = [1, 2.5]\ng = [4]\n[h]\ni = 1\n[[j]]\nk = 1\n[[j]]\nk = "
      "2\n");
  EXPECT_EQ(t.text("a"), "x");
  EXPECT_EQ(t.integer("b"), 3);
  EXPECT_EQ(t.number("b"), 3.0);
  EXPECT_EQ(t.number("c"), 1.5);
  EXPECT_TRUE(t.boolean("d"));
  EXPECT_EQ(t.texts("e"), (std::vector<std::string>{"p", "q"}));
  EXPECT_EQ(t.numbers("f"), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(t.integers("g"), std::vector<int64_t>{4});
  EXPECT_EQ(t.table("h")->integer("i"), 1);
  EXPECT_EQ(t.tables("j").at(1).integer("k"), 2);
  EXPECT_EQ(t.integer("missing", 7), 7);
  EXPECT_FALSE(t.table("missing"));
  EXPECT_TRUE(t.tables("missing").empty());
  EXPECT_EQ(t.kind("c"), Toml::Kind::number);
  EXPECT_EQ(t.kind("missing"), Toml::Kind::missing);
  EXPECT_EQ(t.keys(), (std::vector<std::string>{"a", "b", "c", "d", "e", "f", "g", "h", "j"}));
  refuse([&] { t.refuse_unknown(); }, "r.toml:11:1", "unknown key 'k'");
  t.tables("j").at(0).integer("k");
  t.refuse_unknown();
}

TEST(Toml, MistakesHavePlaces) {
  refuse([] { parse("a = 1\nb = \n"); }, "r.toml:2", "");
  const Toml t = parse("rate = 1e-3\nsteps = 'many'\n[\"안녕\"]\nlearning_rat = 1\n");
  refuse([&] { t.integer("rate"); }, "r.toml:1:8", "an integer, not a number with a fraction");
  refuse([&] { t.integer("steps", 3); }, "r.toml:2:9", "an integer, not a string");
  refuse([&] { t.text("name"); }, "r.toml:1", "'name' is missing");
  refuse([&] { t.tables("rate"); }, "r.toml:1", "array of tables");
  refuse([&] { t.texts("rate"); }, "r.toml:1", "array of strings");
  const Toml below = *t.table("안녕");
  EXPECT_FALSE(below.has("learning_rate"));
  refuse([&] { t.refuse_unknown(); }, "r.toml:4:1", "did you mean 'learning_rate'?");
}

// What is wrong is said in words of our own, with what to do.
TEST(Toml, MistakesAreOurWords) {
  refuse([] { parse("a = 1\na = 2\n"); }, "r.toml:2:", "a key or section that was there already");
  refuse([] { parse("a = word\n"); }, "r.toml:1:", "strings are written between quotation marks");
  refuse([] { parse("a\n"); }, "r.toml:1:", "a key without '=' and a value");
  refuse([] { parse("a = [1, 2\n"); }, "r.toml:", "");
  refuse([] { parse("a = \"x\ny\"\n"); }, "r.toml:1:", "");
  const std::string whole = "a = 1\n[b]\nc = [1.5, 'x', \"\\u00e9\"]\nd = { e = 1979-05-27 }\n[[f]]\ng.h = 0x1f\n";
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const char c : {'{', ']', '[', '=', ',', '"', '\'', '\\', '\n', '\x01', '\xff', '0', '_', '.'}) {
      std::string text = whole;
      text[at] = c;
      try {
        Toml::parse(text, "r.toml");
      } catch (const Error& e) {
        for (const char* part : {"Error while parsing", "expected", "saw '", "encountered", "prohibited"})
          EXPECT_EQ(std::string(e.what()).find(part), std::string::npos) << e.what();
      }
    }
  }
}

TEST(Toml, CharactersAboveAsciiStandInStringsAndComments) {
  const Toml t = parse(
      "# \u00b5 'x\n\"\u00b5\" = \"a\\\"\u00b5\"\nb = '\u00b5\\'\nc = \"\"\"\n\"\u00b5\"\"\"\"\nd = "
      "\'\'\'\u00b5''\'\'\'\n");
  EXPECT_EQ(t.text("\u00b5"), "a\"\u00b5");
  EXPECT_EQ(t.text("b"), "\u00b5\\");
  EXPECT_EQ(t.text("c"), "\"\u00b5\"");
  EXPECT_EQ(t.text("d"), "\u00b5''");
  refuse([] { parse("a = 1\nb = \u03da3\n"); }, "r.toml:2:5", "");
  refuse([] { parse("a = ''\u03da\n"); }, "r.toml:1:7", "");
  refuse([] { parse("a = 1 \u00e9\n"); }, "r.toml:1:7", "");  // called unreachable by the library's table of spaces
  refuse([] { parse("\u00e9 = 1\n"); }, "r.toml:1:1", "");
}

TEST(Toml, HostileTexts) {
  EXPECT_THROW(Toml::parse(std::string(100, 'a'), "r.toml", 10), Error);
  EXPECT_THROW(parse("a = \"\xff\""), Error);
  EXPECT_THROW(parse("[안녕]"), Error);
  EXPECT_THROW(Toml::parse("a = " + std::string(100000, '['), "r.toml"), Error);
  EXPECT_THROW(Toml::parse(
                   "a" +
                       [] {
                         std::string dots;
                         for (int i = 0; i < 5000; ++i) dots += ".a";
                         return dots;
                       }(),
                   "r.toml"),
               Error);
}

}  // namespace
}  // namespace lumen
