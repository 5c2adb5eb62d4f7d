// Needs none. The layout algebra: places, covering, reading and writing.
#include "number/format/layout.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

namespace lumen {
namespace {

TEST(Layout, DenseEntriesFollowEachOther) {
  const Layout l = Layout::dense(10, 3, 5);
  EXPECT_EQ(l.pieces[0].bit_of(0), 5);
  EXPECT_EQ(l.pieces[0].bit_of(9), 32);
  EXPECT_EQ(l.end_bit(), 35);
  EXPECT_TRUE(covers(l, 10, 3));
  EXPECT_FALSE(covers(l, 11, 3));
  EXPECT_FALSE(covers(l, 10, 4));
}

TEST(Layout, HalvesKeepLowNibblesFirst) {
  const Layout l{{LayoutPiece{0, 32, 0, 4, 16, {{2, 4}, {16, 8}}}}};
  EXPECT_TRUE(covers(l, 32, 4));
  uint8_t record[18] = {};
  for (int i = 0; i < 32; ++i) l.write(record, i, static_cast<uint64_t>(i % 16));
  EXPECT_EQ(record[2 + 5], 5 | 5 << 4);
  l.write(record, 21, 9);
  EXPECT_EQ(record[2 + 5], 5 | 9 << 4);
}

TEST(Layout, RefusesGapsOverlapsAndWrongModes) {
  const LayoutPiece low{0, 8, 0, 4, 0, {{8, 4}}}, high{0, 8, 4, 2, 32, {{8, 2}}};
  EXPECT_TRUE(covers(Layout{{low, high}}, 8, 6));
  EXPECT_FALSE(covers(Layout{{low}}, 8, 6));
  EXPECT_FALSE(covers(Layout{{low, high, high}}, 8, 6));
  LayoutPiece wrong = low;
  wrong.modes = {{3, 4}};
  EXPECT_FALSE(covers(Layout{{wrong, high}}, 8, 6));
  wrong = low;
  wrong.first = 1;
  EXPECT_FALSE(covers(Layout{{wrong, high}}, 8, 6));
}

// A value split in two pieces over shuffled modes comes back, whatever was written around it.
RC_GTEST_PROP(Layout, ReadsWhatWasWritten, ()) {
  const int bits = *rc::gen::inRange(2, 33), cut = *rc::gen::inRange(1, bits);
  const int64_t outer = *rc::gen::inRange<int64_t>(1, 6), inner = *rc::gen::inRange<int64_t>(1, 6),
                count = outer * inner;
  const int64_t second = outer * inner * cut + 3;
  const Layout l{{LayoutPiece{0, count, 0, cut, 0, {{outer, cut}, {inner, cut * outer}}},
                  LayoutPiece{0, count, cut, bits - cut, second, {{count, bits - cut}}}}};
  RC_ASSERT(covers(l, count, bits));
  std::vector<uint8_t> record(static_cast<size_t>((l.end_bit() + 7) / 8), 0xa5);
  std::vector<uint64_t> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(*rc::gen::arbitrary<uint64_t>() & ((uint64_t{1} << bits) - 1));
    l.write(record.data(), i, values.back());
  }
  for (int64_t i = 0; i < count; ++i) RC_ASSERT(l.read(record.data(), i) == values[static_cast<size_t>(i)]);
}

}  // namespace
}  // namespace lumen
