// needs: none. Orders of elements: each element in one lane, sums inside their groups, planes where the layout has
// them.
#include "kernel/synth/order/lane_order.h"

#include <gtest/gtest.h>

#include <set>

#include "number/library/library.h"

namespace lumen {
namespace {

TEST(LaneOrder, EveryElementHasOneLaneInItsGroup) {
  for (const FormatRef& f : FormatLibrary::builtin().all())
    for (const int lanes : {16, 32, 64})
      for (const int64_t k : {f->block, 3 * f->block, 2048 + f->block}) {
        const synth::RowOrder order = synth::choose_order(*f, k, lanes, 4, 16, 16);
        EXPECT_EQ(order.units * order.unit.elements + order.rest.elements, k);
        EXPECT_EQ(order.unit.elements % synth::kActivationGroup, 0);
        for (const synth::LaneOrder* part : {&order.unit, &order.rest}) {
          std::set<int64_t> seen;
          for (const auto& vector : part->vectors) {
            ASSERT_EQ(vector.size(), static_cast<size_t>(lanes));
            for (size_t l = 0; l < vector.size(); ++l) {
              if (vector[l] < 0) continue;
              EXPECT_TRUE(seen.insert(vector[l]).second) << f->name;
              EXPECT_EQ(vector[l] / 16, vector[l / 4 * 4] / 16) << f->name;
            }
          }
          EXPECT_EQ(static_cast<int64_t>(seen.size()), part->elements) << f->name;
        }
      }
}

TEST(LaneOrder, NibblesAreTakenPlaneByPlane) {
  const FormatRef f = FormatLibrary::builtin().find("q4_k");
  ASSERT_TRUE(f);
  const synth::RowOrder order = synth::choose_order(*f, 512, 64, 4, 32, 16);
  ASSERT_EQ(order.unit.elements, 512);
  EXPECT_EQ(order.unit.vectors[0][31], 31);  // low halves of the first 64 bytes
  EXPECT_EQ(order.unit.vectors[0][32], 64);
  EXPECT_EQ(order.unit.vectors[1][0], 32);  // their high halves
  EXPECT_EQ(order.rest.elements, 0);
}

// Vectors that trade words keep every element, and end with the words of one group each wherever there are enough.
TEST(LaneOrder, TradesWordsUntilGroupsAreApart) {
  constexpr int kLanes = 16, kWord = 4;
  for (const char* name : {"q4_0", "q4_k", "q8_0"}) {
    const FormatRef f = FormatLibrary::builtin().find(name);
    ASSERT_TRUE(f);
    const synth::LaneOrder unit = synth::choose_order(*f, 1024, kLanes * kWord, kWord, 32, kLanes).unit;
    ASSERT_EQ(unit.elements, 512) << name;
    const synth::TradedOrder traded = synth::with_groups_apart(unit, kWord, 32);
    std::vector<std::vector<int64_t>> vectors = unit.vectors;
    for (const synth::Trade& t : traded.trades) {
      std::vector<int64_t> both = vectors[t.first];
      both.insert(both.end(), vectors[t.second].begin(), vectors[t.second].end());
      for (const bool second : {false, true}) {
        std::vector<int64_t>& to = vectors[second ? t.second : t.first];
        to.clear();
        for (const int word : synth::lanes_after(t, kLanes, second))
          to.insert(to.end(), both.begin() + word * kWord, both.begin() + (word + 1) * kWord);
      }
    }
    std::set<int64_t> seen;
    ASSERT_EQ(traded.order.vectors.size(), vectors.size());
    for (size_t v = 0; v < vectors.size(); ++v) {
      EXPECT_EQ(traded.order.vectors[v], vectors[traded.from[v]]) << name << " " << v;
      std::set<int64_t> groups;
      for (int lane = 0; lane < kLanes; ++lane) {
        const int64_t group = traded.order.vectors[v][lane * kWord] / 32;
        groups.insert(group);
        EXPECT_EQ(group, traded.order.vectors[0][lane * kWord] / 32) << name;  // all vectors alike
      }
      EXPECT_EQ(groups.size(), 16U) << name;
      seen.insert(vectors[v].begin(), vectors[v].end());
    }
    EXPECT_EQ(seen.size(), 512U) << name;
  }
}

}  // namespace
}  // namespace lumen
