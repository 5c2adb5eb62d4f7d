// Needs: none. Each row gets the change of its text's set, and no other.
#include "graph/transform/by_text/by_text.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/ir/build.h"
#include "graph/ir/eval.h"
#include "graph/ir/verify.h"
#include "graph/pipeline/pipeline.h"

namespace lumen::graph {
namespace {

const Element kInteger{Scalar::i32, nullptr};

Tensor filled(const Shape& shape, double step, int64_t from = 0) {
  Tensor t;
  t.type = {shape, {}};
  const int64_t count = elements(shape).number();
  for (int64_t i = 0; i < count; ++i) t.values.push_back(static_cast<double>(((i + from) * 5 + 2) % 7 - 3) * step);
  return t;
}

Tensor integers(const Shape& shape, std::vector<double> values) {
  Tensor t;
  t.type = {shape, kInteger};
  t.values = std::move(values);
  return t;
}

// One of `count` parts along the first axis.
Tensor part_of(const Tensor& t, int64_t part, int64_t count) {
  Tensor out = t;
  const auto size = std::ssize(t.values) / count;
  out.values.assign(t.values.begin() + part * size, t.values.begin() + (part + 1) * size);
  out.type.shape[0] = Dim(t.type.shape[0].number() / count);
  return out;
}

// A gathered matrix, a product, matrices that rows pick, and a product with the rows that are asked for.
Graph network(int64_t texts, int64_t each) {
  Graph g;
  Builder b(g);
  const ValueId tokens = b.input("tokens", Role::data, {{texts, each}, kInteger});
  const ValueId rows = b.input("rows", Role::data, {{3}, kInteger});
  const ValueId picked = b.input("picked", Role::data, {{texts * each, 2}, kInteger});
  const ValueId e = b.input("e", Role::parameter, {{6, 5}, {}}), u = b.input("u", Role::parameter, {{4, 5}, {}});
  const ValueId w = b.input("w", Role::parameter, {{3, 5, 4}, {}}), o = b.input("o", Role::parameter, {{6, 5}, {}});
  const ValueId x = b.gather(e, b.reshape(tokens, {1, texts * each}));
  const ValueId h = b.contract(x, u, "btk", "nk", "btn");
  const ValueId y = b.contract_gather(b.reshape(h, {texts * each, 4}), w, picked, "nk", "efk", "nj");
  const ValueId sum = b.reshape(b.reduce(y, Reduction::sum, {1}), {texts * each, 5});
  g.results = {b.contract(b.gather(sum, rows), o, "mk", "nk", "mn")};
  g.result_names = {"z"};
  return g;
}

std::map<std::string, Tensor> weights() {
  return {{"e", filled({6, 5}, 0.5)},
          {"u", filled({4, 5}, 0.25)},
          {"w", filled({3, 5, 4}, 0.5, 3)},
          {"o", filled({6, 5}, 0.5, 1)}};
}

std::vector<double> run(const Graph& g, const std::map<std::string, Tensor>& in) {
  EvalOptions o;
  o.wide = true;
  return eval(g, in, o)[0].values;
}

// Set 0 changes nothing, set 1 most of the weights, set 2 some of them. Narrow changes are multiplied with all rows,
// wide ones with those that picked them.
class ByText : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ByText, testing::Values(3, 65));

TEST_P(ByText, EachTextHasItsOwnChanges) {
  const int64_t texts = 3, each = 2, rank = GetParam();
  std::vector<TextLowRank> parts = {{.weight = "e", .rank = 2, .rows = true, .slots = {-1, 0, -1}},
                                    {.weight = "u", .rank = rank, .gain = true, .slots = {-1, 1, 0}},
                                    {.weight = "w", .rank = 2, .gain = true, .slots = {-1, 0, 1}},
                                    {.weight = "o", .rank = 1, .slots = {-1, -1, 0}}};
  const Graph with = add_low_rank_by_text(network(texts, each), parts);
  ASSERT_EQ(verify(with), "");
  auto in = weights();
  in["tokens"] = integers({texts, each}, {5, 0, 3, 3, 1, 2});
  in["rows"] = integers({3}, {1, 3, 4});
  in["picked"] = integers({texts * each, 2}, {0, 1, 2, 1, 0, -1, 2, 2, 1, 0, 0, 2});
  in[kTextSets] = integers({texts}, {2, 0, 1});
  const std::map<std::string, Tensor> changes = {
      {low_rank_a("e"), filled({6, 2}, 0.5)},       {low_rank_b("e"), filled({1, 5, 2}, 1)},
      {low_rank_a("u"), filled({2, rank, 5}, 0.5)}, {low_rank_b("u"), filled({2, 4, rank}, 1)},
      {low_rank_gain("u"), filled({2, 4}, 0.5)},    {low_rank_a("w"), filled({6, 2, 4}, 0.5)},
      {low_rank_b("w"), filled({6, 5, 2}, 1)},      {low_rank_gain("w"), filled({6, 5}, 0.25)},
      {low_rank_a("o"), filled({1, 1, 5}, 0.5)},    {low_rank_b("o"), filled({1, 6, 1}, 1)}};
  auto stacked = in;
  stacked.insert(changes.begin(), changes.end());
  const std::vector<double> together = run(with, stacked);
  for (int64_t row = 0; row < 3; ++row) {
    const int64_t text = row, set = std::vector<int64_t>{2, 0, 1}[static_cast<size_t>(text)];
    // The same network with the changes of that set beside it alone.
    std::vector<LowRank> alone;
    auto own = in;
    for (const TextLowRank& p : parts) {
      const int32_t slot = p.slots[static_cast<size_t>(set)];
      if (slot < 0) continue;
      alone.push_back({.weight = p.weight, .rank = p.rank, .rows = p.rows, .gain = p.gain});
      const bool picked = p.weight == "w";
      for (const auto& [name, tensor] : changes) {
        if (!name.starts_with(p.weight + ".")) continue;
        Tensor one = part_of(tensor, slot, p.count());
        const bool keeps = picked || (p.rows && name == low_rank_a(p.weight));
        if (!keeps) one.type.shape.erase(one.type.shape.begin());
        own[name] = one;
      }
    }
    own.erase(kTextSets);
    const std::vector<double> wanted = run(changed(network(texts, each), {.low_rank = alone}), own);
    for (size_t n = 0; n < 6; ++n)
      EXPECT_EQ(together[static_cast<size_t>(row) * 6 + n], wanted[static_cast<size_t>(row) * 6 + n])
          << "text " << text << ", column " << n;
  }
}

TEST(ByTextRefusals, WhatHasNoTextsIsRefused) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{4, 5}, {}}), u = b.input("u", Role::parameter, {{4, 5}, {}});
  g.results = {b.contract(x, u, "mk", "nk", "mn")};
  g.result_names = {"z"};
  EXPECT_THROW(add_low_rank_by_text(g, {{.weight = "u", .rank = 1, .slots = {0}}}), Error);
  const Graph n = network(3, 2);
  EXPECT_THROW(add_low_rank_by_text(n, {{.weight = "rows", .rank = 1, .slots = {0}}}), Error);
  EXPECT_THROW(add_low_rank_by_text(n, {{.weight = "u", .rank = 1, .rows = true, .slots = {0}}}), Error);
}

}  // namespace
}  // namespace lumen::graph
