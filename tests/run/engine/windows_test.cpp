// Needs: cpu. Convolutions, poolings and what stands between them, forward and backward, as code: every result against
// the graph evaluator.
#include <gtest/gtest.h>

#include "graph/grad/reverse.h"
#include "graph/pipeline/pipeline.h"
#include "tests/run/functions.h"
#include "tests/run/graphs.h"

namespace lumen::run {
namespace {

// A function's result, and the gradients by all its inputs of its sum with different weights.
graph::Graph with_gradients(const std::string& text) {
  graph::Graph g = function_of(text);
  graph::Builder b(g);
  const std::vector<graph::ValueId> inputs = g.inputs();
  const graph::ValueId y = g.results[0], weights = b.input("weights", graph::Role::data, b.type(y));
  std::vector<int> axes;
  for (size_t d = 0; d < b.type(y).shape.size(); ++d) axes.push_back(static_cast<int>(d));
  const graph::ValueId loss = b.reshape(b.reduce(b.mul(y, weights), graph::Reduction::sum, axes), {});
  g.result_names = {"y"};
  const std::vector<graph::ValueId> gradients = graph::differentiate(g, loss, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    g.results.push_back(gradients[i]);
    g.result_names.push_back("d_" + g[inputs[i]].attributes.name);
  }
  return g;
}

void check(const std::string& text) {
  SCOPED_TRACE(text);
  const graph::Graph g = with_gradients(text);
  const auto inputs = random_inputs(g, 7);
  const std::vector<Tensor> want = graph::eval(g, inputs);
  Engine engine(options());
  const auto program = run_once(engine, g, inputs);
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(g.result_names[i]);
    double range = 1e-3;
    for (const double x : want[i].values) range = std::max(range, std::abs(x));
    const std::vector<float> got = floats_of(program->result(g.result_names[i]));
    ASSERT_EQ(got.size(), want[i].values.size());
    for (size_t k = 0; k < got.size(); ++k) ASSERT_NEAR(got[k], want[i].values[k], 1e-5 * range) << k;
  }
}

TEST(Windows, ConvolutionsOfEveryKind) {
  check("fn f(x: f32[2, 12, 12, 3], w: f32[8, 3, 3, 3]) = conv2d(x, w, padding = 1)");
  check("fn f(x: f32[2, 16, 16, 16], w: f32[32, 3, 3, 16]) = conv2d(x, w, stride = 2, padding = 1)");
  check("fn f(x: f32[3, 9, 10, 8], w: f32[4, 2, 3, 8]) = conv2d(x, w, stride = 3, padding = 2, dilation = 2)");
  check("fn f(x: f32[2, 8, 8, 16], w: f32[16, 3, 3, 4]) = conv2d(x, w, padding = 1, groups = 4)");
  check("fn f(x: f32[2, 8, 8, 24], w: f32[24, 3, 3, 1]) = conv2d(x, w, padding = 1, groups = 24)");
  check("fn f(x: f32[2, 40, 16], w: f32[24, 5, 16]) = conv1d(x, w, stride = 2, padding = 2)");
  check("fn f(x: f32[2, 13, 11, 16], w: f32[16, 3, 3, 1]) = conv2d(x, w, stride = 2, padding = 1, groups = 16)");
  check("fn f(x: f32[2, 13, 12, 16], w: f32[12, 5, 4, 4]) = conv2d(x, w, stride = 3, padding = 1, groups = 4)");
  check("fn f(x: f32[2, 11, 14, 8], w: f32[4, 2, 2, 8]) = conv2d(x, w, stride = 3)");
  check("fn f(x: f32[2, 7, 7, 16], w: f32[16, 4, 4, 8]) = conv_transpose2d(x, w, stride = 2, padding = 1)");
  check("fn f(x: f32[2, 7, 7, 16], w: f32[16, 3, 3, 8]) = conv_transpose2d(x, w, stride = 2, padding = 1, more = 1)");
}

TEST(Windows, ChannelsInFront) {
  check(
      "fn f(x: f32[2, 5, 11, 9], k: f32[6, 5, 3, 3]) -> f32[2, 6, 6, 5]\n"
      "  y[n, o, h, w] = sum(c, i, j) x[n, c, h * 2 + i - 1, w * 2 + j - 1; 0] * k[o, c, i, j]");
}

TEST(Windows, Poolings) {
  check("fn f(x: f32[2, 12, 12, 5]) = max_pool2d(x, 3, 2, 1)");
  check("fn f(x: f32[2, 12, 12, 8]) = max_pool2d(x, 2, 2)");
  check("fn f(x: f32[2, 13, 11, 8]) = max_pool2d(relu(x), 3, 2)");
  check("fn f(x: f32[2, 13, 11, 8]) = avg_pool2d(x, 3, 2, 1)");
  check("fn f(x: f32[2, 22, 8]) = avg_pool1d(x, 4, 3, 1)");
  check("fn f(x: f32[2, 12, 12, 5]) = avg_pool2d(x, 3, 1, 1)");
  check("fn f(x: f32[2, 21, 8]) = max_pool1d(x, 3, 1)");
}

TEST(Windows, ABlockOfAResidualNetwork) {
  check(
      "fn f(x: f32[4, 8, 8, 16], a: f32[32, 3, 3, 16], b: f32[32, 3, 3, 32], s: f32[32, 1, 1, 16], g: f32[32], h: "
      "f32[32], "
      "o: f32[10, 32]) -> f32[4, 10] {\n"
      "  let y = relu(batch_norm(conv2d(x, a, stride = 2, padding = 1), g, h))\n"
      "  let z = relu(group_norm(conv2d(y, b, padding = 1), g, h, 4) + conv2d(x, s, stride = 2))\n"
      "  return linear(reshape(mean(z, 1, 2), [4, 32]), o)\n"
      "}");
}

TEST(Windows, Recurrences) {
  check(
      "fn f(x: f32[3, 6, 10], h: f32[3, 8], w: f32[24, 10], u: f32[24, 8], b: f32[24], c: f32[24]) = gru(x, h, w, u, "
      "b, c)");
}

}  // namespace
}  // namespace lumen::run
