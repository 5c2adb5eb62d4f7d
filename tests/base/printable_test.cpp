// needs: none. Foreign text never reaches a terminal as commands for it.
#include "base/printable.h"

#include <gtest/gtest.h>

namespace lumen {
namespace {

TEST(Printable, PlainTextStays) {
  for (const char* text : {"", "blk.0.attn_q.weight", "서울 wörld 🙂", "a\\b"}) {
    EXPECT_EQ(printable(text), text);
    EXPECT_EQ(harmless(text), text);
  }
}

TEST(Printable, ControlsAreShown) {
  EXPECT_EQ(printable("a\x1b[31mb"), "a\\x1b[31mb");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\x7f\a\b"), "\\x7f\\x07\\x08");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");  // the one-character form of ESC [
  EXPECT_EQ(printable("\x9b"
                      "31m"),
            "\\x9b31m");  // and as a byte of Latin-1
  EXPECT_EQ(printable("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(printable("a\nb\tc\rd", Lines::kept), "a\nb\tc\\rd");
  EXPECT_EQ(printable("x\u202ey\u2066z\u2028"), "x\\u202ey\\u2066z\\u2028");
}

TEST(Printable, BrokenCharactersAreShownByteByByte) {
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82");
  EXPECT_EQ(printable("\xc0\x80"), "\\xc0\\x80");           // too long a form
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // half a surrogate pair
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(printable("\xff"), "\\xff");
}

// No byte sequence leaves anything that a terminal obeys.
TEST(Printable, NothingIsLeftOfAnyPairOfBytes) {
  for (int a = 0; a < 256; ++a)
    for (int b = 0; b < 256; ++b) {
      const std::string out = printable(std::string{static_cast<char>(a), static_cast<char>(b)});
      for (size_t i = 0; i < out.size(); ++i) {
        const auto c = static_cast<unsigned char>(out[i]);
        ASSERT_TRUE(c >= 0x20 && c != 0x7f) << a << " " << b;
        ASSERT_TRUE(c != 0xc2 || static_cast<unsigned char>(out[i + 1]) >= 0xa0) << a << " " << b;
      }
    }
}

TEST(Printable, WhatAModelWroteKeepsItsLooks) {
  EXPECT_EQ(harmless("a\nb\tc\r\nd"), "a\nb\tc\r\nd");
  EXPECT_EQ(harmless("a\rb"), "a\\rb");
  EXPECT_EQ(harmless("\x1b]0;title\a"), "\\x1b]0;title\\x07");
  EXPECT_EQ(harmless("x\u202ey"), "x\u202ey");
}

}  // namespace
}  // namespace lumen
