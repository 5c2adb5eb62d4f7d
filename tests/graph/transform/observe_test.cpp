// Needs: none. What products with weights read, squared and summed: plain products, tied ones, and experts that rows
// pick.
#include "graph/transform/observe.h"

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
Tensor whole(const Shape& shape, std::vector<double> values) {
  Tensor t;
  t.type = {shape, {Scalar::i32, nullptr}};
  t.values = std::move(values);
  return t;
}

std::map<std::string, std::vector<double>> run(const Graph& g, const std::map<std::string, Tensor>& in) {
  EXPECT_EQ(verify(g), "");
  EvalOptions o;
  o.wide = true;
  const auto values = eval(g, in, o);
  std::map<std::string, std::vector<double>> out;
  for (size_t i = 0; i < values.size(); ++i) out[g.result_names[i]] = values[i].values;
  return out;
}

TEST(Observe, SquaresOfColumnsOverAllRows) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{2, 3, 4}, {}}), w = b.input("w", Role::parameter, {{5, 4}, {}}),
                u = b.input("u", Role::parameter, {{5, 4}, {}});
  const ValueId y = b.contract(x, w, "btk", "nk", "btn");
  g.results = {b.contract(y, u, "btn", "nk", "btk")};  // u the other way round: its rows are summed
  g.result_names = {"z"};
  std::vector<Observed> observed;
  const Graph with = observe(g, &observed);
  ASSERT_EQ(observed.size(), 1u);
  EXPECT_EQ(observed[0].weight, "w");
  EXPECT_EQ(observed[0].columns, 4);
  EXPECT_EQ(observed[0].matrices, 0);
  const std::map<std::string, Tensor> in{
      {"x", filled({2, 3, 4}, 0.5)}, {"w", filled({5, 4}, 1)}, {"u", filled({5, 4}, 2)}};
  const auto got = run(with, in);
  EXPECT_EQ(got.at("z"), run(g, in).at("z"));
  std::vector<double> want(4, 0);
  for (size_t i = 0; i < in.at("x").values.size(); ++i) want[i % 4] += in.at("x").values[i] * in.at("x").values[i];
  EXPECT_EQ(got.at(observed_squares("w")), want);
}

TEST(Observe, UsesOfAWeightAreSummed) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{3, 4}, {}}), w = b.input("w", Role::parameter, {{4, 4}, {}});
  const ValueId y = b.contract(x, w, "tk", "nk", "tn");
  g.results = {b.contract(w, y, "nk", "tk", "tn")};  // the weight on the left
  g.result_names = {"z"};
  std::vector<Observed> observed;
  const Graph with = observe(g, &observed);
  const std::map<std::string, Tensor> in{{"x", filled({3, 4}, 0.5)}, {"w", filled({4, 4}, 0.25)}};
  Graph inner = g;
  inner.results = {y};
  const auto first = run(inner, in).at("z");
  std::vector<double> want(4, 0);
  for (size_t i = 0; i < 12; ++i) want[i % 4] += in.at("x").values[i] * in.at("x").values[i] + first[i] * first[i];
  const auto got = run(with, in).at(observed_squares("w"));
  for (size_t i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(got[i], want[i]);
}

// Each of two places of a token picks an expert; the first layer reads the token, the second what its place has.
TEST(Observe, ExpertsHaveTheirOwn) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{3, 4}, {}}),
                at = b.input("at", Role::data, {{3, 2}, {Scalar::i32, nullptr}});
  const ValueId up = b.input("up", Role::parameter, {{3, 5, 4}, {}}),
                down = b.input("down", Role::parameter, {{3, 4, 5}, {}});
  const ValueId h = b.contract_gather(x, up, at, "nk", "efk", "nj");
  g.results = {b.contract_gather(h, down, at, "njf", "ekf", "nj")};
  g.result_names = {"z"};
  std::vector<Observed> observed;
  const Graph with = observe(g, &observed);
  ASSERT_EQ(observed.size(), 2u);
  const std::vector<double> picks{0, 2, -1, 0, 0, 2};
  const std::map<std::string, Tensor> in{{"x", filled({3, 4}, 0.5)},
                                         {"at", whole({3, 2}, picks)},
                                         {"up", filled({3, 5, 4}, 0.5)},
                                         {"down", filled({3, 4, 5}, 1)}};
  Graph inner = g;
  inner.results = {h};
  const auto hidden = run(inner, in).at("z");
  const auto got = run(with, in);
  EXPECT_EQ(got.at(observed_counts("up")), (std::vector<double>{3, 0, 2}));
  EXPECT_EQ(got.at(observed_counts("down")), (std::vector<double>{3, 0, 2}));
  std::vector<double> of_up(12, 0), of_down(15, 0);
  for (size_t place = 0; place < 6; ++place) {
    if (picks[place] < 0) continue;
    const auto e = static_cast<size_t>(picks[place]);
    for (size_t k = 0; k < 4; ++k) of_up[e * 4 + k] += std::pow(in.at("x").values[place / 2 * 4 + k], 2);
    for (size_t f = 0; f < 5; ++f) of_down[e * 5 + f] += std::pow(hidden[place * 5 + f], 2);
  }
  EXPECT_EQ(got.at(observed_squares("up")), of_up);
  const auto down_got = got.at(observed_squares("down"));
  for (size_t i = 0; i < 15; ++i) EXPECT_DOUBLE_EQ(down_got[i], of_down[i]);
}

}  // namespace
}  // namespace lumen::graph
