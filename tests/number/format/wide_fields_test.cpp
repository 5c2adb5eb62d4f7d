// Needs none. Integers of more than 32 bits keep all of them, wherever they lie, and proofs about them are sound.
#include "number/codec/codec.h"
#include "tests/number/formats_of_tests.h"

namespace lumen {
namespace {

bool bit_of(const std::vector<uint8_t>& blob, int64_t bit) {
  return (blob[static_cast<size_t>(bit / 8)] >> (bit % 8) & 1) != 0;
}

TEST(WideFields, EveryBitOfAnUnalignedWordIsRead) {
  for (const int bits : {33, 57, 58, 63, 64}) {
    // Element i is bit i of a word that begins 3 bits into the record, times a power of two.
    const FormatRef f =
        format_of(fmt::format("format t : block {0} {{\n  a : u3\n  w : u{0} at byte 0 bit 3\n  decode(i) = "
                              "float(int((w >> i) & 1)) + a\n}}\n",
                              bits));
    const auto blob = random_blob(*f, 1, bits, 7);
    const auto y = decode(*f, blob, 1, bits);
    for (int i = 0; i < bits; ++i)
      ASSERT_EQ(y[static_cast<size_t>(i)], (blob[0] & 7) + (bit_of(blob, 3 + i) ? 1 : 0)) << bits << " " << i;
  }
}

TEST(WideFields, WhatIsAssignedIsClampedAndReadBackAsStored) {
  const FormatRef f = format_of(R"(
format t : block 2 {
  w : u40
  s : i36
  q : f32[2]
  decode(i) = q[i]
  fit(x) {
    w = 1000000000000000
    s = 0 - 1000000000000000
    q[0] = float(int((w >> 8) & 4294967295)) + float(int(w & 255))
    q[1] = float(int(s >> 30))
  }
}
)");
  const auto blob = encode(*f, std::vector<float>{1, 2}, 1, 2);
  for (int k = 0; k < 5; ++k) EXPECT_EQ(blob[static_cast<size_t>(k)], 255) << k;
  EXPECT_EQ(blob[9] >> 3 & 1, 1);  // the sign of s, alone among its bits
  const auto y = decode(*f, blob, 1, 2);
  EXPECT_EQ(y[1], -32);
}

// 2^64 - 1 and one more is 0: an index made of it is not inside.
TEST(WideFields, ProofsKnowThatWordsWrap) {
  const auto indexed = [](const std::string& index) {
    return refusal_of("table t : i32 = [1, 2, 3, 4]\nformat f : block 1 {\n  w : u64\n  decode(i) = t[" + index +
                      "]\n}\n");
  };
  EXPECT_NE(indexed("int(min(w + 1, 4)) - 1"), "");
  EXPECT_EQ(indexed("int(w >> 62)"), "");
  EXPECT_EQ(indexed("int(w & 3)"), "");
  EXPECT_EQ(indexed("int(min(w, 3))"), "");
}

}  // namespace
}  // namespace lumen
