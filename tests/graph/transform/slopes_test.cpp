// needs: cpu. Slopes of a part: squares of gradients by rows of weights, those of experts, of rows looked up, and the
// gradient of what the part reads, against differences of its results.
#include "graph/transform/slopes.h"

#include <gtest/gtest.h>

#include <cmath>

#include "graph/ir/build.h"
#include "graph/ir/eval.h"
#include "graph/ir/verify.h"

namespace lumen::graph {
namespace {

Type floats(std::vector<int64_t> shape) {
  Type t;
  for (const int64_t d : shape) t.shape.emplace_back(d);
  return t;
}

Tensor filled(const Type& t, double from) {
  Tensor out;
  out.type = t;
  const int64_t count = elements(t.shape).number();
  for (int64_t i = 0; i < count; ++i) out.values.push_back(std::sin(from + 1.7 * i));
  return out;
}

Tensor of_numbers(const Type& t, std::vector<double> values) {
  Tensor out;
  out.type = t;
  out.values = std::move(values);
  return out;
}
Tensor constant(const Type& t, double x) {
  return of_numbers(t, std::vector<double>(elements(t.shape).number(), x));
}

std::map<std::string, Tensor> results_of(const Graph& g, const std::map<std::string, Tensor>& in) {
  EXPECT_EQ(verify(g), "");
  EvalOptions o;
  o.wide = true;
  const std::vector<Tensor> out = eval(g, in, o);
  std::map<std::string, Tensor> named;
  for (size_t k = 0; k < out.size(); ++k) named[g.result_names[k]] = out[k];
  return named;
}

TEST(Slopes, SquaresOfGradientsByRows) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, floats({2, 3, 4}));
  const ValueId w = b.input("w", Role::parameter, floats({5, 4})), d = b.input("d", Role::parameter, floats({4, 5}));
  const ValueId h = b.contract(x, w, "btk", "nk", "btn");
  const ValueId y = b.contract(b.mul(h, h), d, "btn", "kn", "btk");
  g.results = {b.add(x, y)};
  g.result_names = {"out"};
  std::vector<Slope> slopes;
  const Graph with = add_slopes(g, &slopes);
  ASSERT_EQ(slopes.size(), 2u);
  std::map<std::string, Tensor> in{{"x", filled(floats({2, 3, 4}), 1)},
                                   {"w", filled(floats({5, 4}), 2)},
                                   {"d", filled(floats({4, 5}), 3)},
                                   {seed_name("out"), filled(floats({2, 3, 4}), 4)}};
  std::map<std::string, Tensor> all = in;
  all[slope_name("w")] = constant(floats({5}), 0);
  all[slope_name("d")] = constant(floats({4}), 1);  // sums go on
  const auto got = results_of(with, all);
  const std::vector<double>& seed = in.at(seed_name("out")).values;
  // dL/dy is the seed; dL/dh = 2 h (seed d).
  std::vector<double> by_w(5), by_d(4, 1);
  for (int r = 0; r < 6; ++r) {
    for (int k = 0; k < 4; ++k) by_d[k] += seed[r * 4 + k] * seed[r * 4 + k];
    for (int n = 0; n < 5; ++n) {
      double hn = 0, s = 0;
      for (int k = 0; k < 4; ++k) {
        hn += in.at("x").values[r * 4 + k] * in.at("w").values[n * 4 + k];
        s += seed[r * 4 + k] * in.at("d").values[k * 5 + n];
      }
      by_w[n] += 4 * hn * hn * s * s;
    }
  }
  for (int n = 0; n < 5; ++n) EXPECT_NEAR(got.at(slope_name("w")).values[n], by_w[n], 1e-5 * by_w[n]);
  for (int k = 0; k < 4; ++k) EXPECT_NEAR(got.at(slope_name("d")).values[k], by_d[k], 1e-5 * by_d[k]);
  // The gradient of x by differences.
  const auto loss = [&](const std::map<std::string, Tensor>& at) {
    const std::map<std::string, Tensor> values =
        results_of(g, {{"x", at.at("x")}, {"w", at.at("w")}, {"d", at.at("d")}});
    const Tensor& out = values.at("out");
    double sum = 0;
    for (size_t k = 0; k < out.values.size(); ++k) sum += out.values[k] * seed[k];
    return sum;
  };
  for (const size_t at : {0, 7, 23}) {
    std::map<std::string, Tensor> more = in, less = in;
    more["x"].values[at] += 1e-2;
    less["x"].values[at] -= 1e-2;
    EXPECT_NEAR(got.at(gradient_name("x")).values[at], (loss(more) - loss(less)) / 2e-2, 1e-3);
  }
}

// Two products with one weight: sums by its columns, and its gradient, are over both.
TEST(Slopes, ColumnsAndGradientsOfWeights) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, floats({2, 3, 4})), w = b.input("w", Role::parameter, floats({5, 4}));
  const ValueId y = b.contract(x, w, "btk", "nk", "btn"), z = b.contract(w, x, "nk", "btk", "nbt");
  g.results = {y, z};
  g.result_names = {"y", "z"};
  std::vector<Slope> slopes;
  const Graph with = add_slopes(g, &slopes, {.channels = true, .weights = true});
  ASSERT_EQ(slopes.size(), 1u);
  const std::map<std::string, Tensor> in{{"x", filled(floats({2, 3, 4}), 1)},
                                         {"w", filled(floats({5, 4}), 2)},
                                         {seed_name("y"), filled(floats({2, 3, 5}), 3)},
                                         {seed_name("z"), filled(floats({5, 2, 3}), 4)},
                                         {slope_name("w"), constant(floats({5}), 0)},
                                         {channel_slope_name("w"), constant(floats({4}), 2)}};  // sums go on
  const auto got = results_of(with, in);
  const std::vector<double>&xs = in.at("x").values, &sy = in.at(seed_name("y")).values,
        &sz = in.at(seed_name("z")).values;
  std::vector<double> columns(4, 2), weights(20);
  for (int r = 0; r < 6; ++r)
    for (int n = 0; n < 5; ++n)
      for (int k = 0; k < 4; ++k) {
        const double a = sy[r * 5 + n], c = sz[n * 6 + r], v = xs[r * 4 + k];
        columns[k] += (a * a + c * c) * v * v;
        weights[n * 4 + k] += (a + c) * v;
      }
  for (int k = 0; k < 4; ++k) EXPECT_NEAR(got.at(channel_slope_name("w")).values[k], columns[k], 1e-5);
  for (int k = 0; k < 20; ++k) EXPECT_NEAR(got.at(gradient_name("w")).values[k], weights[k], 1e-5);
}

TEST(Slopes, ExpertsAndRowsLookedUp) {
  Graph g;
  Builder b(g);
  Type whole = floats({3});
  whole.element.scalar = Scalar::i32;
  Type two = floats({3, 2});
  two.element.scalar = Scalar::i32;
  const ValueId tokens = b.input("tokens", Role::data, whole), index = b.input("index", Role::data, two);
  const ValueId table = b.input("e", Role::parameter, floats({6, 4}));
  const ValueId w = b.input("w", Role::parameter, floats({4, 5, 4}));
  const ValueId x = b.gather(table, tokens);
  g.results = {b.contract_gather(x, w, index, "nk", "efk", "nj")};
  g.result_names = {"out"};
  std::vector<Slope> slopes;
  const Graph with = add_slopes(g, &slopes, {.channels = true});
  ASSERT_EQ(slopes.size(), 2u);
  std::map<std::string, Tensor> in{{"tokens", of_numbers(whole, {1, 5, 1})},
                                   {"index", of_numbers(two, {0, 3, -1, 1, 0, 1})},
                                   {"e", filled(floats({6, 4}), 1)},
                                   {"w", filled(floats({4, 5, 4}), 2)},
                                   {seed_name("out"), filled(floats({3, 2, 5}), 3)},
                                   {slope_name("w"), constant(floats({4, 5}), 0)},
                                   {channel_slope_name("w"), constant(floats({4, 4}), 0)},
                                   {slope_name("e"), constant(floats({4}), 0)}};
  const auto got = results_of(with, in);
  const std::vector<double>&seed = in.at(seed_name("out")).values, &picks = in.at("index").values;
  std::vector<double> by_w(20), by_e(4), columns(16);
  for (int n = 0; n < 3; ++n) {
    std::vector<double> dx(4);
    for (int j = 0; j < 2; ++j)
      for (int f = 0; f < 5; ++f) {
        const double s = seed[(n * 2 + j) * 5 + f];
        const int e = static_cast<int>(picks[n * 2 + j]);
        if (e < 0) continue;
        by_w[e * 5 + f] += s * s;
        for (int k = 0; k < 4; ++k) {
          const double v = in.at("e").values[in.at("tokens").values[n] * 4 + k];
          columns[e * 4 + k] += s * s * v * v;
        }
        for (int k = 0; k < 4; ++k) dx[k] += s * in.at("w").values[(e * 5 + f) * 4 + k];
      }
    for (int k = 0; k < 4; ++k) by_e[k] += dx[k] * dx[k];
  }
  for (int k = 0; k < 20; ++k) EXPECT_NEAR(got.at(slope_name("w")).values[k], by_w[k], 1e-5);
  for (int k = 0; k < 16; ++k) EXPECT_NEAR(got.at(channel_slope_name("w")).values[k], columns[k], 1e-5);
  for (int k = 0; k < 4; ++k) EXPECT_NEAR(got.at(slope_name("e")).values[k], by_e[k], 1e-5 * (1 + by_e[k]));
}

TEST(Slopes, WholeGradientsAreSummedUp) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, floats({2, 4})), w = b.input("w", Role::parameter, floats({3, 4}));
  const ValueId h = b.contract(x, w, "tk", "nk", "tn");
  g.results = {b.mul(h, h)};
  g.result_names = {"out"};
  std::vector<std::string> weights;
  const Graph with = add_gradients(g, &weights);
  EXPECT_EQ(weights, std::vector<std::string>{"w"});
  std::map<std::string, Tensor> in{{"x", filled(floats({2, 4}), 1)},
                                   {"w", filled(floats({3, 4}), 2)},
                                   {seed_name("out"), filled(floats({2, 3}), 4)},
                                   {gradient_sum_name("w"), constant(floats({3, 4}), 1)}};
  const auto got = results_of(with, in);
  ASSERT_EQ(got.size(), 2u) << "of x, too";
  const auto value = [&](const char* name, int i) { return in.at(name).values[i]; };
  for (int n = 0; n < 3; ++n)
    for (int k = 0; k < 4; ++k) {
      double sum = 1;  // sums go on
      for (int t = 0; t < 2; ++t) {
        double ht = 0;
        for (int j = 0; j < 4; ++j) ht += value("x", t * 4 + j) * value("w", n * 4 + j);
        sum += 2 * ht * in.at(seed_name("out")).values[t * 3 + n] * value("x", t * 4 + k);
      }
      EXPECT_NEAR(got.at(gradient_sum_name("w")).values[n * 4 + k], sum, 1e-6);
    }
}

}  // namespace
}  // namespace lumen::graph
