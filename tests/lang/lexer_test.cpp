// needs: none. Words, numbers, strings, newlines, brackets, and what is refused.
#include "lang/lexer.h"

#include <gtest/gtest.h>

namespace lumen::lang {
namespace {

std::vector<Token> lex(const std::string& text) {
  return tokenize(std::make_shared<Source>(Source{"test.lum", text}));
}

std::string refusal(const std::string& text) {
  try {
    lex(text);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Lexer, Numbers) {
  const auto t = lex("3 0x7f 0b101 1.5 2e-3 1_000 0..32 1e+2");
  EXPECT_EQ(t[0].integer, 3);
  EXPECT_EQ(t[1].integer, 127);
  EXPECT_EQ(t[2].integer, 5);
  EXPECT_EQ(t[3].number, 1.5);
  EXPECT_FALSE(t[3].is_integer);
  EXPECT_EQ(t[4].number, 2e-3);
  EXPECT_EQ(t[5].integer, 1000);
  EXPECT_TRUE(t[6].is_integer);
  EXPECT_EQ(t[7].text, "..");
  EXPECT_EQ(t[8].integer, 32);
  EXPECT_EQ(t[9].number, 100.0);
}

TEST(Lexer, LargestIntegers) {
  EXPECT_EQ(lex("0x7fffffffffffffff")[0].integer, INT64_MAX);
  EXPECT_EQ(lex("9223372036854775807")[0].integer, INT64_MAX);
  EXPECT_NE(refusal("9223372036854775808").find("does not fit"), std::string::npos);
  EXPECT_NE(refusal("0x8000000000000000").find("does not fit"), std::string::npos);
  EXPECT_NE(refusal("1e999").find("too large"), std::string::npos);
  EXPECT_EQ(lex("1e-999")[0].number, 0.0);
}

TEST(Lexer, Strings) {
  EXPECT_EQ(lex(R"("a\"b\\c\n\t")")[0].text, "a\"b\\c\n\t");
  EXPECT_NE(refusal("\"open").find("never closed"), std::string::npos);
  EXPECT_NE(refusal(R"("\q")").find("unknown escape"), std::string::npos);
}

TEST(Lexer, NewlinesVanishInsideRoundAndSquareBracketsOnly) {
  const auto kinds = [](const std::string& text) {
    std::string out;
    for (const Token& t : lex(text)) out += t.kind == TokenKind::newline ? '/' : t.kind == TokenKind::end ? '.' : 'x';
    return out;
  };
  EXPECT_EQ(kinds("a\nb"), "x/x/.");
  EXPECT_EQ(kinds("(a\nb)\n"), "xxxx//.");
  EXPECT_EQ(kinds("[a\n\nb]"), "xxxx/.");
  EXPECT_EQ(kinds("{a\nb}"), "xx/xx/.");
  EXPECT_EQ(kinds("a # comment\n# more\nb"), "x/x/.");
}

TEST(Lexer, BracketsNameWhereTheyWereOpened) {
  EXPECT_NE(refusal("a (\n b").find("test.lum:1:3: error: '(' is never closed"), std::string::npos);
  EXPECT_NE(refusal("f(a\n]").find("'(' was opened at 1:2 and is still open"), std::string::npos);
  EXPECT_NE(refusal("a)").find("closes nothing"), std::string::npos);
}

TEST(Lexer, StrangeCharacters) {
  EXPECT_NE(refusal("a \xc3\xa4 b").find("no meaning"), std::string::npos);
  EXPECT_NE(refusal("a ! b").find("negation is written 'not'"), std::string::npos);
  EXPECT_NE(refusal(std::string("a \0 b", 5)).find("no meaning"), std::string::npos);
}

TEST(Lexer, SizeIsBounded) {
  EXPECT_NE(refusal(std::string(kMaxSourceBytes + 1, ' ')).find("bytes"), std::string::npos);
  EXPECT_NE(refusal(std::string(2 * kMaxTokens, ',')).find("too many"), std::string::npos);
}

}  // namespace
}  // namespace lumen::lang
