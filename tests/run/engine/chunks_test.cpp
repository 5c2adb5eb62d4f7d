// Needs: cpu. Scans in chunks as code: results and gradients against the evaluator's steps, in double precision.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/ir/rewrite.h"
#include "graph/pipeline/pipeline.h"
#include "tests/run/functions.h"
#include "tests/run/graphs.h"

namespace lumen::run {
namespace {

using graph::Graph;
using graph::ValueId;

// The function's results and the gradients by its inputs of a sum of them with weights that are inputs as well.
Graph with_gradients(Graph g) {
  graph::Builder b(g);
  const std::vector<ValueId> results = g.results, inputs = g.inputs();
  ValueId loss = b.scalar(0);
  for (size_t k = 0; k < results.size(); ++k) {
    const ValueId weights = b.input(fmt::format("weights{}", k), graph::Role::data, b.type(results[k]));
    std::vector<int> axes;
    for (int d = 0; d < std::ssize(b.type(weights).shape); ++d) axes.push_back(d);
    loss = b.add(loss, b.reshape(b.reduce(b.mul(results[k], weights), graph::Reduction::sum, axes), {}));
    g.result_names[k] = fmt::format("y{}", k);
  }
  g.results.insert(g.results.begin(), loss);
  g.result_names.insert(g.result_names.begin(), "loss");
  graph::TrainingStep step;
  step.name = "step";
  step.update = [&](Graph& h, const std::vector<ValueId>& gradients) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      h.results.push_back(gradients[i]);
      h.result_names.push_back(fmt::format("d{}", i));
    }
  };
  std::vector<std::string> names;  // passes change the numbers of values
  for (const ValueId v : inputs) names.push_back(g[v].attributes.name);
  step.parameters = [names](const Graph& h) {
    std::vector<ValueId> out;
    for (const std::string& name : names) out.push_back(h.find_input(name));
    return out;
  };
  step.trained.most_logits = [](const Graph&) { return int64_t{1} << 40; };
  return graph::training_graph(std::move(g), {}, step);
}

void check_chunks(const std::string& text) {
  SCOPED_TRACE(text);
  const Graph looped = function_of(text);
  Graph steps = looped;
  graph::drop_chunks(steps);
  const Graph g = with_gradients(looped), reference = with_gradients(steps);
  const auto inputs = random_inputs(g, 11);
  graph::EvalOptions wide;
  wide.wide = true;
  const std::vector<Tensor> want = graph::eval(reference, inputs, wide);
  Engine engine(options());
  const auto program = run_once(engine, g, inputs);
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(g.result_names[i]);
    const std::vector<float> got = floats_of(program->result(g.result_names[i]));
    double range = 1e-3;
    for (const double x : want[i].values) range = std::max(range, std::abs(x));
    ASSERT_EQ(got.size(), want[i].values.size());
    for (size_t k = 0; k < got.size(); ++k) ASSERT_NEAR(got[k], want[i].values[k], 2e-5 * range) << k;
  }
}

TEST(Chunks, GatedDelta) {
  for (const int steps : {8, 100, 192})
    check_chunks(fmt::format(
        "fn f(q: f32[2, {0}, 2, 16], k: f32[2, {0}, 2, 16], v: f32[2, {0}, 2, 2, 1, 8], g: f32[2, {0}, 2, 2, 1], "
        "beta: f32[2, {0}, 2, 2, 1], memory: f32[2, 2, 2, 1, 16, 8]) {{\n"
        "  let n = k * rsqrt(sum(k * k, -1) + 1e-6)\n"
        "  return gated_delta(0.2 * q, n, v, -exp(2.0 * g), sigmoid(beta), memory)\n}}\n",
        steps));
}

TEST(Chunks, SelectiveScan) {
  for (const int steps : {16, 75})
    check_chunks(fmt::format(
        "fn f(x: f32[2, {0}, 2, 3, 8], b: f32[2, {0}, 2, 16], c: f32[2, {0}, 2, 16], dt: f32[2, {0}, 2, 3], "
        "a: f32[2, 3], memory: f32[2, 2, 3, 8, 16]) = "
        "selective_scan(x, b, c, exp(dt), -exp(a), memory)\n",
        steps));
}

TEST(Chunks, ShortConvolution) {
  for (const int steps : {9, 96})
    check_chunks(
        fmt::format("fn f(x: f32[2, {0}, 24], before: f32[2, 3, 24], w: f32[24, 4]) {{\n"
                    "  let real = i32(iota([2, {0}], 1) < {0} - 3 * iota([2, 1], 0))\n"
                    "  let (after, y) = short_convolution(x, before, real, w)\n"
                    "  return after, y * reshape(f32(real), [2, {0}, 1])\n}}\n",
                    steps));
}

}  // namespace
}  // namespace lumen::run
