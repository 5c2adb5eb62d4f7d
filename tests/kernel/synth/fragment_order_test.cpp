// needs: none. The elements that lanes share: all of a unit once, as many of each group for every lane, and every
// lane's codes where the first one's are, moved by whole bytes.
#include "kernel/synth/order/fragment_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "number/library/library.h"

namespace lumen {
namespace {

using synth::FragmentOrder;

int field_of_codes(const Format& f) {
  for (size_t i = 0; i < f.fields.size(); ++i)
    if (f.fields[i].level == Level::block && f.fields[i].count == f.block && f.block > 1) return static_cast<int>(i);
  return -1;
}

// Where the bits of an element's code are: position in the unit, bits, place in the code.
std::set<std::tuple<int64_t, int, int>> bits_of(const Format& f, int field, int64_t element) {
  std::set<std::tuple<int64_t, int, int>> out;
  for (const LayoutPiece& piece : f.fields[static_cast<size_t>(field)].layout.pieces) {
    const int64_t inside = element % f.block;
    if (inside >= piece.first && inside < piece.first + piece.count)
      out.insert({element / f.block * f.block_bytes * 8 + piece.bit_of(inside), piece.bits, piece.value_bit});
  }
  return out;
}

void expect_shared(const Format& f, int field, const FragmentOrder& order, int64_t lanes) {
  SCOPED_TRACE(f.name);
  std::set<int64_t> all;
  const int64_t own = order.of_group();
  for (size_t i = 0; i < order.elements.size(); ++i)
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const int64_t first = order.elements[i], e = first + lane * order.lane_elements;
      EXPECT_TRUE(all.insert(e).second) << e;
      EXPECT_EQ(e / order.group, static_cast<int64_t>(i) / own);
      auto moved = bits_of(f, field, first);
      std::set<std::tuple<int64_t, int, int>> there;
      for (const auto& [bit, bits, value] : moved) there.insert({bit + lane * order.lane_bytes * 8, bits, value});
      EXPECT_EQ(there, bits_of(f, field, e)) << first << " " << lane;
    }
  EXPECT_EQ(static_cast<int64_t>(all.size()), order.unit);
  std::vector<int64_t> groups = order.sequence;
  std::sort(groups.begin(), groups.end());
  for (size_t g = 0; g < groups.size(); ++g) EXPECT_EQ(groups[g], static_cast<int64_t>(g));
  EXPECT_EQ(static_cast<int64_t>(groups.size()), order.unit / order.group);
}

TEST(FragmentOrder, LanesShareEveryGroup) {
  const FormatLibrary library = FormatLibrary::builtin();
  int found = 0;
  for (const FormatRef& f : library.all()) {
    const int field = field_of_codes(*f);
    if (field < 0) continue;
    for (const int64_t lanes : {1, 2, 4})
      for (const int64_t group : {int64_t{16}, int64_t{32}, f->block})
        for (const bool planes : {true, false}) {
          if (f->block % group != 0) continue;
          const auto order = synth::order_of_codes(*f, field, f->block, group, lanes, 4, planes);
          if (!order) continue;
          ++found;
          expect_shared(*f, field, *order, lanes);
        }
  }
  EXPECT_GE(found, 100);
}

TEST(FragmentOrder, CodesOfOnePlaneFollowEachOther) {
  const FormatRef f = FormatLibrary::builtin().find("q4_0");
  const auto order = synth::order_of_codes(*f, field_of_codes(*f), 32, 32, 4, 4, true);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->elements, (std::vector<int64_t>{0, 1, 2, 3, 16, 17, 18, 19}));
  EXPECT_EQ(order->lane_elements, 4);
  EXPECT_EQ(order->lane_bytes, 4);
  const auto pairs = synth::order_of_codes(*f, field_of_codes(*f), 32, 32, 4, 4, false);
  ASSERT_TRUE(pairs);
  EXPECT_EQ(pairs->elements, (std::vector<int64_t>{0, 16, 1, 17, 2, 18, 3, 19}));
}

// Bits that lie apart from the others of their codes, closer together, cannot move with them.
TEST(FragmentOrder, BitsApart) {
  const FormatRef f = FormatLibrary::builtin().find("q5_0");
  int high = -1;
  for (size_t i = 0; i < f->fields.size(); ++i)
    if (f->fields[i].count == 32) high = static_cast<int>(i);
  EXPECT_FALSE(synth::order_of_codes(*f, high, 32, 32, 4, 4, true));
  const FragmentOrder blocks = synth::order_of_blocks(*f, 32, 4);
  EXPECT_EQ(blocks.unit, 128);
  EXPECT_EQ(blocks.of_group(), 32);
  EXPECT_EQ(blocks.lane_bytes, f->block_bytes);
}

// Codes that run over bytes come in pairs at the same places of their bytes.
TEST(FragmentOrder, CodesOverBytesInPairs) {
  const FormatLibrary library = FormatLibrary::builtin();
  const FormatRef f = library.find("int3_g128");
  const int field = field_of_codes(*f);
  const auto order = synth::order_of_codes(*f, field, 256, 128, 4, 4, true, true);
  ASSERT_TRUE(order);
  expect_shared(*f, field, *order, 4);
  for (size_t i = 0; i < order->elements.size(); i += 2) {
    const auto first = std::get<0>(*bits_of(*f, field, order->elements[i]).begin());
    const auto second = std::get<0>(*bits_of(*f, field, order->elements[i + 1]).begin());
    EXPECT_EQ((second - first) % 8, 0);
    EXPECT_GE(second - first, 16);
  }
}

}  // namespace
}  // namespace lumen
