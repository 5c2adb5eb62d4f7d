// needs: none. UTF-8, normal form C, the byte-level alphabet.
#include "model/text/unicode/unicode.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace lumen::model::text {
namespace {

TEST(Unicode, ValidAndInvalidRuns) {
  const std::string text = "a\xed\x95\x9c\xff\xc0\x80z";
  EXPECT_EQ(utf8_valid_run(text, 0), 4u);
  EXPECT_EQ(utf8_invalid_run(text, 4), 3u);
  EXPECT_EQ(utf8_valid_run(text, 7), 1u);
  char32_t c;
  for (const char* bad :
       {"\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xe2\x82"})
    EXPECT_EQ(utf8_char(bad, 0, &c), 0u) << bad;
  EXPECT_EQ(utf8_char("\xf4\x8f\xbf\xbf", 0, &c), 4u);
  EXPECT_EQ(c, U'\U0010FFFF');
}

TEST(Unicode, RepairMarksEachBrokenCharacterOnce) {
  const std::string mark = "\xef\xbf\xbd";
  EXPECT_EQ(utf8_repair("a\xe2\x82z"), "a" + mark + "z");
  EXPECT_EQ(utf8_repair("\xf0\x9f\x98"), mark);
  EXPECT_EQ(utf8_repair("\xe0\x80\x80"), mark + mark + mark);
  EXPECT_EQ(utf8_repair("\xff\xfe"), mark + mark);
  EXPECT_EQ(utf8_repair("\xed\xa0\x80"), mark + mark + mark);
  EXPECT_EQ(utf8_repair("안녕"), "안녕");
}

TEST(Unicode, UnfinishedTails) {
  EXPECT_EQ(utf8_unfinished_tail("a\xed\x95"), 2u);
  EXPECT_EQ(utf8_unfinished_tail("\xed"), 1u);
  EXPECT_EQ(utf8_unfinished_tail("\xf0\x9f\x98"), 3u);
  EXPECT_EQ(utf8_unfinished_tail("\xed\x95\x9c"), 0u);
  EXPECT_EQ(utf8_unfinished_tail("\xff"), 0u);
  EXPECT_EQ(utf8_unfinished_tail("\xe0\x80"), 0u);
  EXPECT_EQ(utf8_unfinished_tail(""), 0u);
}

TEST(Unicode, NormalFormC) {
  EXPECT_EQ(normalize_nfc("\u1112\u1161\u11ab"), "한");
  EXPECT_EQ(normalize_nfc("\u212b\u2126"), "\u00c5\u03a9");
  EXPECT_EQ(normalize_nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(normalize_nfc("ㅋㅋ㎏"), "ㅋㅋ㎏");
  EXPECT_EQ(normalize_nfc(std::string("e\u0301\xff\0x", 6)), std::string("\u00e9\xff\0x", 5));
}

TEST(Unicode, Alphabet) {
  EXPECT_EQ(to_alphabet(" \n\t"), "\u0120\u010a\u0109");
  EXPECT_EQ(to_alphabet("안"), "ìķĪ");
  EXPECT_EQ(byte_to_alphabet(0xad), U'\u0143');
  EXPECT_FALSE(from_alphabet("한"));
  EXPECT_FALSE(from_alphabet("a b"));
  EXPECT_FALSE(from_alphabet("\xff"));
}

RC_GTEST_PROP(Unicode, AlphabetIsABijection, (const std::string& bytes)) {
  RC_ASSERT(from_alphabet(to_alphabet(bytes)) == bytes);
}

RC_GTEST_PROP(Unicode, RepairedTextIsValid, (const std::string& bytes)) {
  const std::string repaired = utf8_repair(bytes);
  RC_ASSERT(utf8_valid_run(repaired, 0) == repaired.size());
  RC_ASSERT(utf8_repair(repaired) == repaired);
}

TEST(Unicode, Classes) {
  EXPECT_TRUE(is_white_space(U'\u3000') && is_white_space(U'\u0085') && is_white_space(U' '));
  EXPECT_FALSE(is_white_space(U'\u200b') || is_white_space(U'\ufeff'));
  EXPECT_TRUE(is_word_char(U'한') && is_word_char(U'_') && !is_word_char(U'½'));
  EXPECT_FALSE(is_word_char(U'-') || is_word_char(U' '));
}

}  // namespace
}  // namespace lumen::model::text
