// needs: none. What several sets of adapters become: stacks with one place for each change of a weight.
#include "model/arch/adapter/adapter_sets.h"

#include "tests/model/tiny.h"

namespace lumen::model::arch {
namespace {

AdapterPart part(const Parameter& p, int64_t rank, float a, float b, double scale) {
  const graph::Dim narrow(rank);
  const auto filled = [](const graph::Shape& shape, float value) {
    return f32_weight(shape, std::vector<float>(graph::elements(shape).number(), value));
  };
  return {filled({narrow, p.shape[1]}, a), filled({p.shape[0], narrow}, b), scale};
}

TEST(AdapterSets, NarrowerChangesAreFilledUp) {
  const Model m = tiny_model();
  const std::string name = "layers.0.wq";
  ASSERT_TRUE(m.find(name)) << m.parameters[4].name;
  const Parameter& p = *m.find(name);
  ScaledAdapter one{{"one", false, {{name, part(p, 1, 2, 3, 0.5)}}, {}, {}}, 2},
      two{{"two", false, {{name, part(p, 3, 4, 5, 1)}}, {}, {}}, 1};
  const std::vector<AdapterSet> sets = {{}, {one}, {two}, {one, two}};
  const auto changes = stacked_changes(engine(), m, sets);
  ASSERT_EQ(changes.size(), 1U);
  const WeightChange& c = changes.at(name);
  EXPECT_EQ(c.slots, (std::vector<int32_t>{-1, 0, 1, 2}));
  EXPECT_EQ(c.rank(), 4);
  EXPECT_EQ(c.a.type.shape, (graph::Shape{3, 4, p.shape[1]}));
  EXPECT_EQ(c.b.type.shape, (graph::Shape{3, p.shape[0], 4}));
  const int64_t columns = p.shape[1].number(), rows = p.shape[0].number();
  EXPECT_EQ(c.a.f32()[0], 2);
  EXPECT_EQ(c.a.f32()[columns], 0);      // behind the only row of the first
  EXPECT_EQ(c.a.f32()[6 * columns], 4);  // the third row of the second
  EXPECT_EQ(c.a.f32()[7 * columns], 0);
  EXPECT_EQ(c.b.f32()[0], 3);  // times 2 and 0.5
  EXPECT_EQ(c.b.f32()[1], 0);
  const auto third = c.b.f32().subspan(2 * rows * 4, 4);
  EXPECT_EQ(std::vector<float>(third.begin(), third.end()), (std::vector<float>{3, 5, 5, 5}));
}

}  // namespace
}  // namespace lumen::model::arch
