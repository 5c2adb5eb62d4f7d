// Needs: none. What gradients read of the forward part lies in a format between the passes: the loss stays, gradients
// are those of decoded values, and memory shrinks.
#include "graph/keep/kept_format.h"

#include <gtest/gtest.h>

#include <cmath>

#include "blocks.h"
#include "graph/grad/reverse.h"
#include "graph/ir/verify.h"
#include "graph/keep/keep.h"
#include "number/codec/codec.h"
#include "number/library/library.h"
#include "plan_run.h"

namespace lumen::graph {
namespace {

constexpr int64_t kRows = 64, kIn = 96, kWide = 192;

const FormatLibrary& library() {
  static const FormatLibrary all = FormatLibrary::builtin();
  return all;
}

// Layers h = tanh(h w), a sum of squares behind them, and updates of the weights by their gradients.
Graph tower(int layers) {
  Graph g;
  Builder b(g);
  ValueId h = b.input("x", Role::data, {{kRows, kIn}, {}});
  std::vector<ValueId> weights;
  for (int i = 0; i < layers; ++i) {
    const int64_t in = i == 0 ? kIn : kWide;
    weights.push_back(b.input("w" + std::to_string(i), Role::parameter, {{kWide, in}, {}}));
    h = b.unary(ScalarOp::tanh_, b.contract(h, weights.back(), "mk", "nk", "mn"));
  }
  g.results = {b.reshape(b.reduce(b.mul(h, h), Reduction::sum, {0, 1}), {})};
  g.result_names = {"loss"};
  const std::vector<ValueId> gradients = differentiate(g, g.results[0], weights);
  for (size_t i = 0; i < weights.size(); ++i) b.update(weights[i], gradients[i]);
  simplify(g);
  return g;
}

using Matrix = std::vector<double>;
// Rows that blocks do not divide are one row together.
Matrix held(const FormatRef& f, const Matrix& a, int64_t columns) {
  const int64_t row = columns % f->block == 0 ? columns : std::ssize(a);
  const std::vector<float> numbers(a.begin(), a.end());
  const std::vector<float> back = decode(*f, encode(*f, numbers, std::ssize(a) / row, row), std::ssize(a) / row, row);
  return {back.begin(), back.end()};
}

TEST(KeptFormat, GradientsReadWhatCodesDecodeTo) {
  constexpr int kLayers = 4;
  const Graph g = tower(kLayers);
  const auto in = random_inputs(g, 5, 4);
  for (const char* name : {"fp8_row", "q8_0", "q6_k", "fp8_tile", "fp8_tensor", "nvfp4_divided", "bf16"}) {
    const FormatRef f = library().get(name);
    const Graph kept = keep_in_format(g, g.results[0], f);
    ASSERT_EQ(verify(kept), "") << name;
    std::map<std::string, Tensor> exact, after;
    EXPECT_EQ(eval(g, in, {}, &exact)[0].values, eval(kept, in, {}, &after)[0].values) << name;
    // By hand. Gradients read what each tanh is of, and its result; that of the last layers is read too soon.
    std::vector<Matrix> h = {in.at("x").values}, before;
    std::vector<int64_t> width = {kIn, kWide, kWide, kWide, kWide};
    for (int i = 0; i < kLayers; ++i) {
      const Matrix& w = in.at("w" + std::to_string(i)).values;
      Matrix y(kRows * kWide), s(kRows * kWide);
      for (int64_t m = 0; m < kRows; ++m)
        for (int64_t n = 0; n < kWide; ++n) {
          double sum = 0;
          for (int64_t k = 0; k < width[i]; ++k) sum += h[i][m * width[i] + k] * w[n * width[i] + k];
          s[m * kWide + n] = sum;
          y[m * kWide + n] = std::tanh(sum);
        }
      h.push_back(y);
      before.push_back(i + 1 < kLayers ? held(f, s, kWide) : s);
    }
    std::vector<Matrix> read = h;
    for (int i = 1; i + 1 < kLayers; ++i) read[i] = held(f, h[i], kWide);
    Matrix d = h[kLayers];
    for (double& x : d) x *= 2;
    for (int i = kLayers; i-- > 0;) {
      for (size_t j = 0; j < d.size(); ++j) d[j] *= 1 - std::pow(std::tanh(before[i][j]), 2);
      const std::vector<double>& got = after.at("w" + std::to_string(i)).values;
      const Matrix& w = in.at("w" + std::to_string(i)).values;
      double most = 0, wrong = 0, moved = 0;
      for (int64_t n = 0; n < kWide; ++n)
        for (int64_t k = 0; k < width[i]; ++k) {
          double sum = 0;
          for (int64_t m = 0; m < kRows; ++m) sum += d[m * kWide + n] * read[i][m * width[i] + k];
          const int64_t at = n * width[i] + k;
          most = std::max(most, std::abs(sum));
          wrong = std::max(wrong, std::abs(sum - got[at]));
          moved = std::max(moved, std::abs(sum - exact.at("w" + std::to_string(i)).values[at]));
        }
      EXPECT_LT(wrong, 2e-4 * most) << name << " " << i;
      EXPECT_TRUE(i + 1 == kLayers || moved > 4 * wrong) << name << " " << i;
      Matrix next(kRows * width[i], 0.0);
      for (int64_t m = 0; m < kRows; ++m)
        for (int64_t n = 0; n < kWide; ++n)
          for (int64_t k = 0; k < width[i]; ++k) next[m * width[i] + k] += d[m * kWide + n] * w[n * width[i] + k];
      d = next;
    }
  }
}

TEST(KeptFormat, TakesLessMemoryInPlansThatAreRight) {
  const Graph g = tower(12);
  const FormatRef f = library().get("fp8_row");
  const int64_t whole = plan_recomputing(g, {}, plan_graph).memory.arena_bytes;
  Recompute keeping;
  keeping.kept = f;
  const Pipeline small = plan_recomputing(g, keeping, plan_graph);
  EXPECT_LT(small.memory.arena_bytes, whole * 2 / 3);
  const auto in = random_inputs(g, 5, 4);
  const PlanRun done = run_plan(small.plan, small.memory, in);
  ASSERT_EQ(done.wrong, "");
  std::map<std::string, Tensor> states;
  const Graph kept = keep_in_format(g, g.results[0], f);
  (void)eval(kept, in, {}, &states);
  for (const auto& [name, t] : states) EXPECT_EQ(t.values, done.states.at(name).values) << name;
  // What is computed again is computed from codes.
  keeping.what = Recompute::What::layers;
  EXPECT_LE(plan_recomputing(g, keeping, plan_graph).memory.arena_bytes, small.memory.arena_bytes);
}

// Numbers that stand for a row stay: a norm's mean square, and what it divides by.
TEST(KeptFormat, LeavesNumbersOfRows) {
  Graph g;
  Builder b(g);
  ValueId x = b.input("x", Role::data, {{kRows, kIn}, {}});
  std::vector<ValueId> weights;
  for (int i = 0; i < 3; ++i) {
    weights.push_back(b.input("w" + std::to_string(i), Role::parameter, {{kIn, kIn}, {}}));
    x = b.contract(x, weights.back(), "mk", "nk", "mn");
    const ValueId size = b.reduce(b.mul(x, x), Reduction::sum, {-1});
    x = b.div(x, b.broadcast(b.unary(ScalarOp::sqrt_, size), {kRows, kIn}));
  }
  g.results = {b.reshape(b.reduce(b.unary(ScalarOp::tanh_, x), Reduction::sum, {0, 1}), {})};
  g.result_names = {"loss"};
  const std::vector<ValueId> gradients = differentiate(g, g.results[0], weights);
  for (size_t i = 0; i < weights.size(); ++i) b.update(weights[i], gradients[i]);
  simplify(g);
  const Graph kept = keep_in_format(g, g.results[0], library().get("fp8_row"));
  ASSERT_EQ(verify(kept), "");
  int codes = 0;
  for (const Node& node : kept.nodes) {
    if (node.op != Op::cast_ || !node.type.element.format) continue;
    codes += 1;
    EXPECT_EQ(node.type.shape.back().number(), kIn);
    EXPECT_EQ(node.type.shape.front().number(), kRows);
  }
  EXPECT_GE(codes, 2);
}

TEST(KeptFormat, IsForSteps) {
  EXPECT_TRUE(is_step(tower(2)));
  Graph g;
  Builder b(g);
  g.results = {b.input("x", Role::data, {{kRows}, {}})};
  g.result_names = {"y"};
  EXPECT_FALSE(is_step(g));
}

}  // namespace
}  // namespace lumen::graph
