// Needs: cpu. Groups that read or write one layer of a state see a state of one layer; those that do not are left as
// they are.
#include "graph/fuse/layer_view.h"

#include <gtest/gtest.h>

#include "graph/ir/build.h"
#include "graph/pipeline/pipeline.h"

namespace lumen::graph {
namespace {

constexpr int64_t kRows = 4, kColumns = 32, kLayer = kRows * kColumns * 4;  // bytes

Type numbers(std::vector<int64_t> dims, Scalar scalar = Scalar::f32) {
  Type t;
  for (const int64_t d : dims) t.shape.emplace_back(d);
  t.element.scalar = scalar;
  return t;
}

// A row written into one layer of a state of three: the views of the one group that updates.
LayerView of_update(int64_t layer, int64_t row, int64_t layers_written = 1, bool computed = false) {
  Graph g;
  Builder b(g);
  const ValueId state = b.input("state", Role::state, numbers({3, kRows, kColumns}));
  const ValueId x = b.input("x", Role::data, numbers({layers_written, 1, kColumns}));
  const ValueId first =
      computed ? b.input("layer", Role::data, numbers({}, Scalar::i32)) : b.scalar(double(layer), Scalar::i32);
  const ValueId second = !computed && row == layer ? first : b.scalar(double(row), Scalar::i32);
  g.results = {b.update(state, x, {first, second, b.scalar(0, Scalar::i32)})};
  g.result_names = {"state"};
  const Pipeline p = run_pipeline(g, {}, {});
  for (const Group& group : p.plan.groups)
    if (group.root >= 0 && p.plan.graph[group.root].op == Op::update_) {
      LayerView view = layer_view(p.plan.graph, group);
      for (const auto& [v, offset] : view.offsets) {
        EXPECT_TRUE(view.nodes.contains(v));
        EXPECT_EQ(view.nodes.at(v).type, numbers({1, kRows, kColumns}));
      }
      return view;
    }
  ADD_FAILURE() << "no group updates";
  return {};
}

TEST(LayerView, AnUpdateOfOneLayerBeginsWhereTheLayerDoes) {
  for (const int64_t layer : {0, 1, 2}) {
    const LayerView view = of_update(layer, 3);
    EXPECT_EQ(view.offsets.size(), 2U) << "the state, and as it is afterwards";
    for (const auto& [v, offset] : view.offsets) EXPECT_EQ(offset, layer * kLayer);
  }
}

TEST(LayerView, WhatIsNoSingleKnownLayerIsLeft) {
  EXPECT_TRUE(of_update(0, 0, 2).offsets.empty()) << "two layers";
  EXPECT_TRUE(of_update(0, 0, 1, true).offsets.empty()) << "a layer that is computed";
  EXPECT_TRUE(of_update(3, 0).offsets.empty()) << "a layer that is not there: its guard has to say so";
  EXPECT_TRUE(of_update(1, 1).offsets.empty()) << "the number of the layer is the number of a row as well";
}

}  // namespace
}  // namespace lumen::graph
