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

}  // namespace
}  // namespace lumen
