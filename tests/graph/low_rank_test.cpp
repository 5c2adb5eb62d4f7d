// Needs: none. Changes of low rank beside products and look-ups: the numbers, and what cannot be changed.
#include "graph/pass/low_rank.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/ir/build.h"
#include "graph/ir/eval.h"
#include "graph/ir/verify.h"

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
  const Graph with = add_low_rank(g, {{"u", 2, false}});
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
  const Graph with = add_low_rank(g, {{"w", 3, true}});
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

TEST(LowRank, RefusesWhatIsNoMatrixOrNotUsedSo) {
  const Graph g = network();
  EXPECT_THROW(add_low_rank(g, {{"missing", 2, false}}), Error);
  EXPECT_THROW(add_low_rank(g, {{"ids", 2, false}}), Error);
  EXPECT_THROW(add_low_rank(g, {{"u", 0, false}}), Error);
  EXPECT_THROW(add_low_rank(g, {{"u", 2, true}}), Error);  // never looked up
  EXPECT_EQ(add_low_rank(g, {}).nodes.size(), g.nodes.size());
}

}  // namespace
}  // namespace lumen::graph
