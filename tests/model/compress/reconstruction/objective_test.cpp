// needs: cpu. The objective of a layer: its gradients against finite differences in double, its scale, and windows in
// any order.
#include "model/compress/reconstruction/objective.h"

#include <gtest/gtest.h>

#include "graph/grad/grad.h"
#include "graph/ir/verify.h"
#include "tests/model/compress/reconstruction/reconstruction_case.h"

namespace lumen::model::compress {
namespace {

graph::Tensor drawn(const graph::Type& type, double size, int salt) {
  graph::Tensor t;
  t.type = type;
  for (int64_t i = 0; i < graph::elements(type.shape).number(); ++i)
    t.values.push_back(size * std::sin(1.0 + salt + 0.7 * static_cast<double>(i)));
  return t;
}

TEST(BlockObjective, GradientsAreFiniteDifferences) {
  const arch::Model m = tiny_model();
  const std::vector<text::TokenId> text(16, 3);
  const calibrate::LayerRun run(reconstruction_engine(), m, text, {.length = 4, .batch = 2});
  for (size_t k = 0; k < run.parts(); ++k) {
    const graph::LayerPart& part = run.part(k);
    if (!hands_on(part)) continue;
    std::vector<std::string> learned;
    for (const std::string& name : part.parameters)
      if (graph::layer_of(name) >= 0 && m.weights.at(name).type.shape.size() == 2)
        learned.push_back(part.name_of(name));
    ASSERT_EQ(learned.size(), 7u);
    const graph::Graph g = objective_graph(part, run.bindings(2), learned, true);
    ASSERT_EQ(graph::verify(g), "");
    const graph::Graph loss = objective_graph(part, run.bindings(2), learned, false);
    std::map<std::string, graph::Tensor> in;
    int salt = 0;
    for (const graph::ValueId v : g.inputs()) {
      const graph::Node& node = g[v];
      const std::string& name = node.attributes.name;
      if (is_float(node.type.element.scalar)) {
        in[name] = drawn(node.type, 0.6, ++salt);
      } else {
        graph::Tensor& ids = in[name];
        ids.type = node.type;
        for (int64_t i = 0; i < graph::elements(node.type.shape).number(); ++i) ids.values.push_back((i * 7 + 3) % 11);
      }
    }
    in["scale.0"].values = {2.5};
    graph::EvalOptions wide;
    wide.wide = true;
    const std::vector<graph::Tensor> found = graph::eval(g, in, wide);
    for (size_t w = 0; w < learned.size(); ++w) {
      std::vector<double>& x = in[learned[w]].values;
      double size = 0;
      for (const double d : found[w + 1].values) size = std::max(size, std::abs(d));
      EXPECT_GT(size, 0) << learned[w];
      for (size_t i = 0; i < x.size(); i += std::max<size_t>(x.size() / 7, 1)) {
        const double keep = x[i], h = 1e-5;
        const auto at = [&](double value) {
          x[i] = value;
          const double l = graph::eval(loss, in, wide)[0].values[0];
          x[i] = keep;
          return l;
        };
        const double slope = (8 * (at(keep + h) - at(keep - h)) - (at(keep + 2 * h) - at(keep - 2 * h))) / (12 * h);
        EXPECT_NEAR(found[w + 1].values[i], slope, 1e-6 * std::max(size, 1e-3)) << learned[w] << "[" << i << "]";
      }
    }
  }
}

TEST(BlockObjective, IsZeroForTheLayerAsItIs) {
  const arch::Model m = tiny_model();
  std::vector<text::TokenId> text;
  for (int i = 0; i < 5 * 8; ++i) text.push_back((i * i + 3) % 11);
  FirstLayer layer(reconstruction_engine(), m, text);
  BlockObjective o = layer.objective(reconstruction_engine());
  EXPECT_EQ(o.loss_of_all(2), 0);
  // All that is handed on but the residual is lost: the objective is what it was, relative.
  std::vector<std::vector<float>> gradients;
  for (size_t i = 0; i < layer.learned.size(); ++i) o.set(i, std::vector<float>(layer.values[i].size(), 0));
  const double lost = o.loss_of_all(2);
  EXPECT_GT(lost, 0.01);
  const std::vector<int64_t> forth = {0, 3, 4}, back = {4, 0, 3};
  EXPECT_NEAR(o.loss(forth), o.loss(back), 1e-6 * lost);
  EXPECT_NEAR(o.gradients(forth, &gradients), o.loss(forth), 1e-6 * lost);
  EXPECT_EQ(gradients.size(), layer.learned.size());
}

}  // namespace
}  // namespace lumen::model::compress
