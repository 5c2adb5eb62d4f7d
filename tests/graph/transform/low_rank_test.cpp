// Needs: none. Changes of low rank beside products and look-ups: the numbers, and what cannot be changed.
#include "graph/transform/low_rank.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "graph/ir/eval.h"
#include "graph/ir/verify.h"
#include "graph/pipeline/pipeline.h"

namespace lumen::graph {
namespace {

const Element kFloat{};

Tensor filled(const Shape& shape, double step) {
  Tensor t;
  t.type = {shape, kFloat};
  const int64_t count = elements(shape).number();
  for (int64_t i = 0; i < count; ++i) t.values.push_back(static_cast<double>((i * 5 + 2) % 7 - 3) * step);
  return t;
}

// One matrix looked up and multiplied with, as a tied embedding is: y = rows(w) u^T, z = y w^T.
Graph network() {
  Graph g;
  Builder b(g);
  const ValueId ids = b.input("ids", Role::data, {{4}, {Scalar::i32, nullptr}});
  const ValueId w = b.input("w", Role::parameter, {{6, 5}, kFloat}),
                u = b.input("u", Role::parameter, {{5, 5}, kFloat});
  const ValueId y = b.contract(b.gather(w, ids), u, "mk", "nk", "mn");
  g.results = {b.contract(y, w, "mk", "nk", "mn")};
  g.result_names = {"z"};
  return g;
}

std::map<std::string, Tensor> inputs() {
  std::map<std::string, Tensor> in;
  in["ids"].type = {{4}, {Scalar::i32, nullptr}};
  in["ids"].values = {5, 0, 3, 3};
  in["w"] = filled({6, 5}, 0.5);
  in["u"] = filled({5, 5}, 0.25);
  return in;
}

std::vector<double> run(const Graph& g, const std::map<std::string, Tensor>& in) {
  EvalOptions o;
  o.wide = true;
  return eval(g, in, o)[0].values;
}

// w + b a, both [rows, rank] x [rank, columns].
Tensor sum(Tensor w, const Tensor& b, const Tensor& a) {
  const int64_t rows = w.type.shape[0].number(), columns = w.type.shape[1].number(), rank = b.type.shape[1].number();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t k = 0; k < rank; ++k)
        w.values[static_cast<size_t>(r * columns + c)] +=
            b.values[static_cast<size_t>(r * rank + k)] * a.values[static_cast<size_t>(k * columns + c)];
  return w;
}

Tensor turned(const Tensor& a) {
  Tensor t = a;
  const int64_t rows = a.type.shape[0].number(), columns = a.type.shape[1].number();
  t.type.shape = {columns, rows};
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      t.values[static_cast<size_t>(c * rows + r)] = a.values[static_cast<size_t>(r * columns + c)];
  return t;
}

TEST(LowRank, ProductsAreThoseOfTheSum) {
  const Graph g = network();
  const Graph with = changed(g, {.low_rank = {{"u", 2, false}}});
  ASSERT_EQ(verify(with), "");
  auto in = inputs();
  in[low_rank_a("u")] = filled({2, 5}, 0.5);
  in[low_rank_b("u")] = filled({5, 2}, 1);
  auto merged = inputs();
  merged["u"] = sum(in["u"], in[low_rank_b("u")], in[low_rank_a("u")]);
  EXPECT_NE(run(g, merged), run(g, inputs()));
  EXPECT_EQ(run(with, in), run(g, merged));  // small multiples of powers of two: exact
}

TEST(LowRank, LookingUpIsApartFromMultiplying) {
  const Graph g = network();
  const Graph with = changed(g, {.low_rank = {{"w", 3, true}}});
  ASSERT_EQ(verify(with), "");
  auto in = inputs();
  in[low_rank_a("w")] = filled({6, 3}, 0.5);
  in[low_rank_b("w")] = filled({5, 3}, 1);
  // The same with two matrices, of which the one that is looked up is changed.
  Graph two;
  Builder b(two);
  const ValueId ids = b.input("ids", Role::data, {{4}, {Scalar::i32, nullptr}});
  const ValueId e = b.input("e", Role::parameter, {{6, 5}, kFloat}),
                w = b.input("w", Role::parameter, {{6, 5}, kFloat}),
                u = b.input("u", Role::parameter, {{5, 5}, kFloat});
  two.results = {b.contract(b.contract(b.gather(e, ids), u, "mk", "nk", "mn"), w, "mk", "nk", "mn")};
  two.result_names = {"z"};
  auto apart = inputs();
  apart["e"] = sum(in["w"], in[low_rank_a("w")], turned(in[low_rank_b("w")]));
  EXPECT_EQ(run(with, in), run(two, apart));
}

TEST(LowRank, ScaleCounts) {
  const Graph g = network();
  auto in = inputs();
  in[low_rank_a("u")] = filled({2, 5}, 0.5);
  in[low_rank_b("u")] = filled({5, 2}, 1);
  const std::vector<double> quarter = run(changed(g, {.low_rank = {{"u", 2, false, 0.25}}}), in);
  in[low_rank_b("u")] = filled({5, 2}, 0.25);
  EXPECT_EQ(quarter, run(changed(g, {.low_rank = {{"u", 2}}}), in));
}

// y[n, j] = w[picks[n, j]] x[n]: each row times the matrices it picks.
Graph picking() {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{4, 5}, kFloat}),
                picks = b.input("picks", Role::data, {{4, 2}, {Scalar::i32, nullptr}}),
                w = b.input("w", Role::parameter, {{3, 6, 5}, kFloat});
  g.results = {b.contract_gather(x, w, picks, "nk", "efk", "nj")};
  g.result_names = {"y"};
  return g;
}

std::map<std::string, Tensor> picked_inputs() {
  std::map<std::string, Tensor> in;
  in["picks"].type = {{4, 2}, {Scalar::i32, nullptr}};
  in["picks"].values = {2, 0, 1, 2, -1, 1, 1, 0};
  in["x"] = filled({4, 5}, 0.5);
  in["w"] = filled({3, 6, 5}, 0.25);
  in[low_rank_a("w")] = filled({3, 2, 5}, 0.5);
  in[low_rank_b("w")] = filled({3, 6, 2}, 1);
  return in;
}

// w + scale b a, matrix by matrix.
Tensor sums(Tensor w, const Tensor& b, const Tensor& a, double scale) {
  const int64_t rank = b.type.shape[2].number(), rows = w.type.shape[1].number(), columns = w.type.shape[2].number();
  for (size_t i = 0; i < w.values.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const int64_t e = at / (rows * columns), n = at / columns % rows, k = at % columns;
    for (int64_t r = 0; r < rank; ++r)
      w.values[i] += scale * b.values[static_cast<size_t>((e * rows + n) * rank + r)] *
                     a.values[static_cast<size_t>((e * rank + r) * columns + k)];
  }
  return w;
}

TEST(LowRank, PickedMatricesChangeEachByItsOwn) {
  const Graph with = changed(picking(), {.low_rank = {{"w", 2, false, 0.5}}});
  ASSERT_EQ(verify(with), "");
  const auto in = picked_inputs();
  auto merged = in;
  merged["w"] = sums(in.at("w"), in.at(low_rank_b("w")), in.at(low_rank_a("w")), 0.5);
  EXPECT_EQ(run(with, in), run(picking(), merged));
}

// Each row scaled to a length of its own.
Tensor stretched(Tensor w, const Tensor& magnitudes) {
  const auto columns = static_cast<size_t>(w.type.shape.back().number());
  for (size_t row = 0; row * columns < w.values.size(); ++row) {
    double square = 0;
    for (size_t k = 0; k < columns; ++k) square += w.values[row * columns + k] * w.values[row * columns + k];
    for (size_t k = 0; k < columns; ++k) w.values[row * columns + k] *= magnitudes.values[row] / std::sqrt(square);
  }
  return w;
}

Tensor squares(const Tensor& w) {
  const auto columns = static_cast<size_t>(w.type.shape.back().number());
  Tensor t;
  t.type = {Shape(w.type.shape.begin(), w.type.shape.end() - 1), kFloat};
  t.values.resize(w.values.size() / columns);
  for (size_t i = 0; i < w.values.size(); ++i) t.values[i / columns] += w.values[i] * w.values[i];
  return t;
}

Tensor magnitudes(const Shape& shape) {
  Tensor t;
  t.type = {shape, kFloat};
  for (int64_t i = 0; i < elements(shape).number(); ++i) t.values.push_back(1.5 + 0.25 * static_cast<double>(i % 5));
  return t;
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double within) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], within) << i;
}

LowRank with_magnitudes(const std::string& weight, int64_t rank, bool rows = false) {
  LowRank p{weight, rank, rows, 0.5};
  p.magnitudes = true;
  return p;
}

TEST(LowRank, MagnitudesAreTheLengthsOfRows) {
  const std::vector<LowRank> parts = {with_magnitudes("u", 2)};
  const Graph with = fill_norms(changed(network(), {.low_rank = parts}), parts);
  ASSERT_EQ(verify(with), "");
  auto in = inputs();
  in[low_rank_a("u")] = filled({2, 5}, 0.5);
  in[low_rank_b("u")] = filled({5, 2}, 0.5);
  in[low_rank_magnitude("u")] = magnitudes({5});
  in[low_rank_squares("u")] = squares(in["u"]);
  auto merged = inputs();
  Tensor half = in[low_rank_b("u")];
  for (double& v : half.values) v *= 0.5;
  merged["u"] = stretched(sum(in["u"], half, in[low_rank_a("u")]), in[low_rank_magnitude("u")]);
  expect_near(run(with, in), run(network(), merged), 1e-9);
}

TEST(LowRank, MagnitudesOfPickedMatrices) {
  const std::vector<LowRank> parts = {with_magnitudes("w", 2)};
  const Graph with = fill_norms(changed(picking(), {.low_rank = parts}), parts);
  ASSERT_EQ(verify(with), "");
  auto in = picked_inputs();
  in[low_rank_magnitude("w")] = magnitudes({3, 6});
  in[low_rank_squares("w")] = squares(in["w"]);
  auto merged = in;
  merged["w"] = stretched(sums(in["w"], in[low_rank_b("w")], in[low_rank_a("w")], 0.5), in[low_rank_magnitude("w")]);
  expect_near(run(with, in), run(picking(), merged), 1e-9);
}

TEST(LowRank, MagnitudesOfLookedUpRowsAreThoseOfColumns) {
  const std::vector<LowRank> parts = {with_magnitudes("w", 3, true)};
  const Graph with = fill_norms(changed(network(), {.low_rank = parts}), parts);
  ASSERT_EQ(verify(with), "");
  auto in = inputs();
  in[low_rank_a("w")] = filled({6, 3}, 0.5);
  in[low_rank_b("w")] = filled({5, 3}, 1);
  in[low_rank_magnitude("w")] = magnitudes({5});
  in[low_rank_squares("w")] = squares(turned(in["w"]));
  // Another matrix for the product, which stays as it was.
  Graph two;
  Builder b(two);
  const ValueId ids = b.input("ids", Role::data, {{4}, {Scalar::i32, nullptr}});
  const ValueId e = b.input("e", Role::parameter, {{6, 5}, kFloat}),
                w = b.input("w", Role::parameter, {{6, 5}, kFloat}),
                u = b.input("u", Role::parameter, {{5, 5}, kFloat});
  two.results = {b.contract(b.contract(b.gather(e, ids), u, "mk", "nk", "mn"), w, "mk", "nk", "mn")};
  two.result_names = {"z"};
  auto apart = inputs();
  Tensor half = in[low_rank_a("w")];
  for (double& v : half.values) v *= 0.5;
  apart["e"] = turned(stretched(turned(sum(in["w"], half, turned(in[low_rank_b("w")]))), in[low_rank_magnitude("w")]));
  expect_near(run(with, in), run(two, apart), 1e-9);
}

// Norms are held constant: gradients are those of a graph whose norms are numbers.
TEST(LowRank, GradientsDoNotGoThroughNorms) {
  const std::vector<LowRank> parts = {with_magnitudes("u", 2)};
  Graph g = changed(network(), {.low_rank = parts});
  Builder b(g);
  const ValueId square = b.mul(g.results[0], g.results[0]);
  const ValueId loss = b.reshape(b.reduce(square, Reduction::sum, {0, 1}), {});
  std::vector<ValueId> with;
  const std::vector<std::string> names = {low_rank_a("u"), low_rank_b("u"), low_rank_magnitude("u")};
  for (const std::string& name : names) with.push_back(g.find_input(name));
  Graph held = g;
  held.results = {loss};
  held.result_names = {"loss"};
  g.results = differentiate(g, loss, with);
  g.result_names = {"a", "b", "m"};
  const Graph filled_in = fill_norms(std::move(g), parts);
  ASSERT_EQ(verify(filled_in), "");
  auto in = inputs();
  in[low_rank_a("u")] = filled({2, 5}, 0.5);
  in[low_rank_b("u")] = filled({5, 2}, 0.5);
  in[low_rank_magnitude("u")] = magnitudes({5});
  in[low_rank_squares("u")] = squares(in["u"]);
  EvalOptions wide;
  wide.wide = true;
  const std::vector<Tensor> gradients = eval(filled_in, in, wide);
  Tensor half = in[low_rank_b("u")];
  for (double& v : half.values) v *= 0.5;
  Tensor norms = squares(sum(in["u"], half, in[low_rank_a("u")]));
  for (double& v : norms.values) v = std::sqrt(v);
  for (const ValueId v : held.inputs())
    if (held[v].attributes.role == Role::data && !in.contains(held[v].attributes.name))
      in[held[v].attributes.name] = norms;
  const auto loss_of = [&] { return eval(held, in, wide)[0].values[0]; };
  for (size_t k = 0; k < names.size(); ++k) {
    std::vector<double>& values = in[names[k]].values;
    for (size_t i = 0; i < values.size(); ++i) {
      const double x = values[i], h = 1e-4;
      values[i] = x + h;
      const double above = loss_of();
      values[i] = x - h;
      const double below = loss_of();
      values[i] = x;
      EXPECT_NEAR(gradients[k].values[i], (above - below) / (2 * h), 1e-4 * (1 + std::abs(gradients[k].values[i])));
    }
  }
}

// What is left out is drawn anew for each seed, and what stays grows, so that the mean stays.
TEST(LowRank, DropoutLeavesOutAShareOfTheInputs) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{64, 128}, kFloat}),
                w = b.input("w", Role::parameter, {{1, 128}, kFloat});
  g.results = {b.contract(x, w, "mk", "nk", "mn")};
  g.result_names = {"y"};
  LowRank part{"w", 1};
  part.dropout = 0.25;
  part.salt = 7;
  const Graph with = changed(g, {.low_rank = {part}});
  ASSERT_EQ(verify(with), "");
  std::map<std::string, Tensor> in;
  const auto all = [](const Shape& shape, double value) {
    Tensor t;
    t.type = {shape, kFloat};
    t.values.assign(static_cast<size_t>(elements(shape).number()), value);
    return t;
  };
  in["x"] = all({64, 128}, 1);
  in["w"] = all({1, 128}, 0);
  in[low_rank_a("w")] = all({1, 128}, 1);
  in[low_rank_b("w")] = all({1, 1}, 1);
  in[kDropoutSeed].type = {{}, {Scalar::u32, nullptr}};
  std::vector<std::vector<double>> drawn;
  for (const double seed : {1.0, 1.0, 2.0}) {
    in[kDropoutSeed].values = {seed};
    drawn.push_back(run(with, in));
    double mean = 0;
    for (const double y : drawn.back()) mean += y / 64;
    EXPECT_NEAR(mean, 128, 2);
    EXPECT_NEAR(drawn.back()[0] * 0.75, std::round(drawn.back()[0] * 0.75), 1e-5);
  }
  EXPECT_EQ(drawn[0], drawn[1]);
  EXPECT_NE(drawn[0], drawn[2]);
}

// What magnitudes add to the weight's own part reads the input that is left, as peft has it: y = W x + (gain - 1) W
// d(x)
// + gain B A d(x). Here every number is 1, and the gain 3; and the same for a matrix that rows pick.
TEST(LowRank, MagnitudesReadWhatADropoutLeaves) {
  for (const bool picked : {false, true}) {
    Graph g;
    Builder b(g);
    const Shape wide = picked ? Shape{1, 1, 128} : Shape{1, 128}, rows = picked ? Shape{1, 1} : Shape{1},
                narrow = picked ? Shape{1, 1, 1} : Shape{1, 1};
    const ValueId x = b.input("x", Role::data, {{16, 128}, kFloat}), w = b.input("w", Role::parameter, {wide, kFloat});
    if (picked)
      g.results = {
          b.contract_gather(x, w, b.input("ids", Role::data, {{16}, {Scalar::i32, nullptr}}), "mk", "enk", "m")};
    else
      g.results = {b.contract(x, w, "mk", "nk", "mn")};
    g.result_names = {"y"};
    LowRank part{"w", 1};
    part.dropout = 0.25;
    part.salt = 7;
    const Graph plain = changed(g, {.low_rank = {part}});
    part.magnitudes = true;
    const Graph with = fill_norms(changed(g, {.low_rank = {part}}), {part});
    ASSERT_EQ(verify(with), "");
    std::map<std::string, Tensor> in;
    const auto put = [&](const std::string& name, const Shape& shape, double value) {
      in[name].type = {shape, kFloat};
      in[name].values.assign(static_cast<size_t>(elements(shape).number()), value);
    };
    put("x", {16, 128}, 1);
    put("w", wide, 1);
    put(low_rank_a("w"), wide, 1);
    put(low_rank_b("w"), narrow, 1);
    put(low_rank_squares("w"), rows, 128);
    put(low_rank_magnitude("w"), rows, 3 * std::sqrt(4 * 128.0));
    in[kDropoutSeed].type = {{}, {Scalar::u32, nullptr}};
    in[kDropoutSeed].values = {5};
    in["ids"].type = {{16}, {Scalar::i32, nullptr}};
    in["ids"].values.assign(16, 0);
    const std::vector<double> got = run(with, in), beside = run(plain, in);
    for (size_t i = 0; i < got.size(); ++i) {
      const double left = beside[i] - 128;  // B A d(x), which W d(x) is as well
      EXPECT_NEAR(got[i], 128 + 2 * left + 3 * left, 1e-9) << i;
      EXPECT_GT(std::abs(left - 128), 1) << i;
    }
  }
}

TEST(LowRank, FindsWhatCanBeChanged) {
  const auto places = low_rank_places(network());
  EXPECT_TRUE(places.at("w").products && places.at("w").rows);
  EXPECT_TRUE(places.at("u").products && !places.at("u").rows);
  EXPECT_TRUE(low_rank_places(picking()).at("w").products);
}

TEST(LowRank, RefusesWhatIsNoMatrixOrNotUsedSo) {
  const Graph g = network();
  EXPECT_THROW(changed(g, {.low_rank = {{"missing", 2, false}}}), Error);
  EXPECT_THROW(changed(g, {.low_rank = {{"ids", 2, false}}}), Error);
  EXPECT_THROW(changed(g, {.low_rank = {{"u", 0, false}}}), Error);
  EXPECT_THROW(changed(g, {.low_rank = {{"u", 2, true}}}), Error);  // never looked up
  EXPECT_EQ(changed(g, {.low_rank = {}}).nodes.size(), g.nodes.size());
}

}  // namespace
}  // namespace lumen::graph
