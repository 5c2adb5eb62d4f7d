// Needs: none. Parts of a function, one layer in each, compute what the whole does.
#include "graph/transform/layers.h"

#include <gtest/gtest.h>

#include "graph/ir/build.h"
#include "graph/ir/eval.h"
#include "graph/ir/verify.h"

namespace lumen::graph {
namespace {

Tensor filled(const Shape& shape, double step) {
  Tensor t;
  t.type = {shape, {}};
  for (int64_t i = 0; i < elements(shape).number(); ++i) t.values.push_back(((i * 5 + 2) % 7 - 3) * step);
  return t;
}

// Three layers around a stream x, with something that skips a layer, a gain that depends on no layer, and an end.
Graph stack() {
  Graph g;
  Builder b(g);
  const ValueId in = b.input("x", Role::data, {{3, 4}, {}}), table = b.input("table", Role::parameter, {{4}, {}});
  const ValueId gain = b.unary(ScalarOp::exp_, table);
  ValueId x = b.mul(in, gain), skipped = -1;
  for (int l = 0; l < 3; ++l) {
    const ValueId w = b.input("layers." + std::to_string(l) + ".w", Role::parameter, {{4, 4}, {}});
    const ValueId y = b.contract(b.mul(x, gain), w, "tk", "nk", "tn");
    if (l == 0) skipped = y;
    x = b.add(x, l == 2 ? b.add(y, skipped) : y);
  }
  const ValueId norm = b.input("norm", Role::parameter, {{4}, {}});
  g.results = {b.mul(x, norm)};
  g.result_names = {"y"};
  return g;
}

TEST(Layers, NamesSayWhichLayer) {
  EXPECT_EQ(layer_of("layers.12.wq"), 12);
  EXPECT_EQ(layer_of("layers.x.wq"), -1);
  EXPECT_EQ(layer_of("layers."), -1);
  EXPECT_EQ(layer_of("layers.12"), -1);
  EXPECT_EQ(layer_of("embed"), -1);
}

TEST(Layers, PartsComputeTheWhole) {
  const Graph g = stack();
  std::map<std::string, Tensor> in{{"x", filled({3, 4}, 0.5)}, {"table", filled({4}, 0.1)}, {"norm", filled({4}, 1)}};
  for (int l = 0; l < 3; ++l) in["layers." + std::to_string(l) + ".w"] = filled({4, 4}, 0.25 + l);
  const std::vector<double> want = eval(g, in)[0].values;
  const LayerCut cut = cut_layers(g);
  ASSERT_EQ(cut.parts.size(), 4u);
  ASSERT_EQ(cut.carried.size(), 4u);  // x behind each layer, and what skips; not x times the gain, which follows
  EXPECT_EQ(cut.parts[3].layer, -1);
  EXPECT_EQ(cut.parts[1].parameters, (std::vector<std::string>{"table", "layers.1.w"}));
  EXPECT_EQ(cut.parts[1].name_of("layers.1.w"), "layer.w");
  EXPECT_EQ(cut.parts[1].in.size(), 1u);
  EXPECT_EQ(cut.parts[2].in.size(), 2u);
  std::map<int, Tensor> carried;
  std::vector<double> got;
  for (size_t k = 0; k < cut.parts.size(); ++k) {
    const LayerPart& part = cut.parts[k];
    ASSERT_EQ(verify(part.graph), "") << k;
    std::map<std::string, Tensor> given;
    for (const auto& [name, t] : in) given[part.name_of(name)] = t;
    for (size_t i = 0; i < part.in.size(); ++i) {
      EXPECT_GE(cut.carried[part.in[i]].to, static_cast<int>(k));
      given[carried_in(i)] = carried.at(part.in[i]);
    }
    std::map<std::string, Tensor> used;
    for (const ValueId v : part.graph.inputs())
      used[part.graph[v].attributes.name] = given.at(part.graph[v].attributes.name);
    const std::vector<Tensor> results = eval(part.graph, used);
    for (size_t i = 0; i < results.size(); ++i) {
      for (size_t o = 0; o < part.out.size(); ++o)
        if (part.graph.result_names[i] == carried_out(o)) carried[part.out[o]] = results[i];
      if (part.graph.result_names[i] == "y") got = results[i].values;
    }
  }
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace lumen::graph
