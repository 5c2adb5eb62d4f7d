// Needs: none. Sums of what products with weights read, over runs; of experts that rows pick, and of two forms.
#include "graph/transform/taps.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/ir/build.h"
#include "graph/ir/eval.h"
#include "graph/ir/verify.h"
#include "graph/pass/pass.h"

namespace lumen::graph {
namespace {

Tensor tensor(const Shape& shape, double step, int salt = 2) {
  Tensor t;
  t.type = {shape, {}};
  for (int64_t i = 0; i < elements(shape).number(); ++i) t.values.push_back(((i * 5 + salt) % 7 - 3) * step);
  return t;
}
std::map<std::string, std::vector<double>> run(const Graph& g, std::map<std::string, Tensor> in) {
  EXPECT_EQ(verify(g), "");
  for (const ValueId v : g.inputs())
    if (g[v].attributes.role == Role::state && !in.contains(g[v].attributes.name)) {
      Tensor zero = tensor(g[v].type.shape, 0);
      in[g[v].attributes.name] = zero;
    }
  EvalOptions o;
  o.wide = true;
  const auto values = eval(g, in, o);
  std::map<std::string, std::vector<double>> out;
  for (size_t i = 0; i < values.size(); ++i) out[g.result_names[i]] = values[i].values;
  return out;
}

Graph two_products() {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{2, 3, 4}, {}}), w = b.input("w", Role::parameter, {{5, 4}, {}}),
                u = b.input("u", Role::parameter, {{6, 4}, {}}), d = b.input("d", Role::parameter, {{4, 5}, {}});
  const ValueId y = b.contract(x, w, "btk", "nk", "btn");
  g.results = {b.contract(x, u, "btk", "nk", "btn"), b.contract(y, d, "btk", "nk", "btn")};
  g.result_names = {"z", "r"};
  return g;
}

TEST(Taps, SharedByWhatReadsTheSame) {
  const Graph g = two_products();
  TapKinds kinds;
  kinds.squares = kinds.magnitudes = kinds.largest = kinds.gram = kinds.rows = kinds.spread = true;
  std::vector<Tap> taps;
  const Graph with = add_taps(g, kinds, &taps);
  ASSERT_EQ(taps.size(), 2u);
  EXPECT_EQ(taps[0].weights, (std::vector<std::string>{"w", "u"}));
  EXPECT_EQ(taps[1].weights, std::vector<std::string>{"d"});
  EXPECT_EQ(taps[1].columns, 5);
  std::map<std::string, Tensor> in{
      {"x", tensor({2, 3, 4}, 0.5)}, {"w", tensor({5, 4}, 1)}, {"u", tensor({6, 4}, 2)}, {"d", tensor({4, 5}, 3)}};
  const auto once = run(with, in);
  EXPECT_EQ(once.at("z"), run(g, in).at("z"));
  const std::vector<double>& x = in.at("x").values;
  std::vector<double> squares(4), magnitudes(4), largest(4), gram(16), rows(6);
  for (int r = 0; r < 6; ++r)
    for (int k = 0; k < 4; ++k) {
      const double a = x[r * 4 + k];
      squares[k] += a * a;
      magnitudes[k] += std::abs(a);
      largest[k] = std::max(largest[k], std::abs(a));
      rows[r] = std::max(rows[r], std::abs(a));
      for (int l = 0; l < 4; ++l) gram[k * 4 + l] += a * x[r * 4 + l];
    }
  EXPECT_EQ(once.at(tap_name(0, kTapSquares)), squares);
  EXPECT_EQ(once.at(tap_name(0, kTapMagnitudes)), magnitudes);
  EXPECT_EQ(once.at(tap_name(0, kTapLargest)), largest);
  EXPECT_EQ(once.at(tap_name(0, kTapGram)), gram);
  EXPECT_EQ(once.at(tap_name(0, kTapRows)), rows);
  std::vector<double> spread;
  for (int64_t k = 0; k < kSpreadEdges; ++k)
    spread.push_back(std::ranges::count_if(x, [&](double a) { return std::abs(a) >= spread_edge(k) * (1 - 1e-9); }));
  EXPECT_EQ(once.at(tap_name(0, kTapSpread)), spread);
  EXPECT_GT(spread.front(), 12) << "but for zeros all are above the lowest edge";
  EXPECT_EQ(spread.back(), 0);
  // A second run adds to the first.
  Tensor state = tensor({4, 4}, 0);
  state.values = gram;
  in[tap_name(0, kTapGram)] = state;
  const auto twice = run(with, in);
  for (size_t i = 0; i < 16; ++i) EXPECT_DOUBLE_EQ(twice.at(tap_name(0, kTapGram))[i], 2 * gram[i]);
}

TEST(Taps, ExpertsHaveTheirOwn) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{3, 4}, {}}), w = b.input("w", Role::parameter, {{4, 5, 4}, {}}),
                index = b.input("index", Role::data, {{3, 2}, {Scalar::i32, nullptr}});
  g.results = {b.contract_gather(x, w, index, "tk", "enk", "tj")};
  g.result_names = {"z"};
  TapKinds kinds;
  kinds.squares = kinds.largest = kinds.gram = true;
  std::vector<Tap> taps;
  const Graph with = add_taps(g, kinds, &taps);
  ASSERT_EQ(taps.size(), 1u);
  EXPECT_EQ(taps[0].matrices, 4);
  Tensor picks;
  picks.type = {{3, 2}, {Scalar::i32, nullptr}};
  picks.values = {0, 2, 2, 3, -1, 2};
  const Tensor xs = tensor({3, 4}, 0.5);
  const auto got = run(with, {{"x", xs}, {"w", tensor({4, 5, 4}, 1)}, {"index", picks}});
  std::vector<double> gram(64), squares(16), largest(16), counts(4);
  for (int t = 0; t < 3; ++t)
    for (int j = 0; j < 2; ++j) {
      const int e = static_cast<int>(picks.values[t * 2 + j]);
      if (e < 0) continue;
      counts[e] += 1;
      for (int k = 0; k < 4; ++k) {
        const double a = xs.values[t * 4 + k];
        squares[e * 4 + k] += a * a;
        largest[e * 4 + k] = std::max(largest[e * 4 + k], std::abs(a));
        for (int l = 0; l < 4; ++l) gram[e * 16 + k * 4 + l] += a * xs.values[t * 4 + l];
      }
    }
  EXPECT_EQ(got.at(tap_name(0, kTapGram)), gram);
  EXPECT_EQ(got.at(tap_name(0, kTapSquares)), squares);
  EXPECT_EQ(got.at(tap_name(0, kTapLargest)), largest);
  EXPECT_EQ(got.at(tap_name(0, kTapCounts)), counts);
}

// What the router weighs outputs with weighs the rows of all layers of the mixture.
TEST(Taps, RowsWeighedByTheRouter) {
  for (const bool weighed : {true, false}) {
    Graph g;
    Builder b(g);
    const ValueId x = b.input("x", Role::data, {{3, 4}, {}}), up = b.input("up", Role::parameter, {{4, 4, 4}, {}}),
                  down = b.input("down", Role::parameter, {{4, 5, 4}, {}}),
                  index = b.input("index", Role::data, {{3, 2}, {Scalar::i32, nullptr}}),
                  gain = b.input("gain", Role::data, {{3, 2}, {}});
    const ValueId h = b.unary(ScalarOp::tanh_, b.contract_gather(x, up, index, "tk", "enk", "tj"));
    const ValueId parts = b.contract_gather(h, down, index, "tjk", "enk", "tj");
    g.results = {weighed ? b.contract(gain, parts, "tj", "tjn", "tn") : b.reduce(parts, Reduction::sum, {1})};
    g.result_names = {"z"};
    TapKinds kinds;
    kinds.weighed = true;
    std::vector<Tap> taps;
    const Graph with = add_taps(g, kinds, &taps);
    ASSERT_EQ(taps.size(), 2u);
    Tensor picks;
    picks.type = {{3, 2}, {Scalar::i32, nullptr}};
    picks.values = {0, 2, 2, 3, -1, 2};
    const Tensor xs = tensor({3, 4}, 0.5), gains = tensor({3, 2}, 0.5);
    const auto got = run(
        with,
        {{"x", xs}, {"up", tensor({4, 4, 4}, 1)}, {"down", tensor({4, 5, 4}, 1)}, {"index", picks}, {"gain", gains}});
    std::vector<double> want(16);
    for (int t = 0; t < 3; ++t)
      for (int j = 0; j < 2; ++j)
        for (int k = 0; k < 4 && picks.values[t * 2 + j] >= 0; ++k)
          want[static_cast<int>(picks.values[t * 2 + j]) * 4 + k] +=
              std::pow(xs.values[t * 4 + k] * (weighed ? gains.values[t * 2 + j] : 1), 2);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got.at(tap_name(0, kTapWeighed))[i], want[i], 1e-6 * (1 + want[i])) << i;
  }
}

TEST(Taps, DifferencesOfTwoForms) {
  const Graph g = two_products();
  std::vector<ValueId> other;
  const Graph both = beside(g, ".true", &other);
  TapKinds kinds;
  kinds.gram = kinds.cross = true;
  std::vector<Tap> taps;
  const Graph with = add_taps(both, kinds, &taps, other);
  ASSERT_EQ(taps.size(), 2u);
  const Tensor x = tensor({2, 3, 4}, 0.5), truth = tensor({2, 3, 4}, 0.25, 4);
  const std::map<std::string, Tensor> in{
      {"x", x}, {"x.true", truth}, {"w", tensor({5, 4}, 1)}, {"u", tensor({6, 4}, 2)}, {"d", tensor({4, 5}, 3)}};
  const auto got = run(with, in);
  std::vector<double> cross(16);
  for (int r = 0; r < 6; ++r)
    for (int k = 0; k < 4; ++k)
      for (int l = 0; l < 4; ++l)
        cross[k * 4 + l] += (truth.values[r * 4 + k] - x.values[r * 4 + k]) * x.values[r * 4 + l];
  EXPECT_EQ(got.at(tap_name(0, kTapCross)), cross);
  std::map<std::string, Tensor> alone = in;
  alone["x"] = truth;
  alone.erase("x.true");
  EXPECT_EQ(got.at("z.true"), run(g, alone).at("z"));
}

}  // namespace
}  // namespace lumen::graph
