// needs: none. Weights in parts along what products sum over: sums of products of slices, in any order of the columns.
#include "graph/transform/split_columns.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "graph/ir/eval.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"

namespace lumen::graph {
namespace {

Graph graph_of(const std::string& text) {
  return *parse(std::make_shared<Source>(Source{"test", text}), nullptr).back();
}

using Tensors = std::map<std::string, Tensor>;

Tensor numbers(std::vector<int64_t> shape, uint32_t salt) {
  Tensor t;
  for (const int64_t n : shape) t.type.shape.push_back(Dim(n));
  for (int64_t i = 0; i < elements(t.type.shape).number(); ++i)
    t.values.push_back(uniform_random(7, salt, static_cast<uint64_t>(i)) - 0.5);
  return t;
}

// The weight's columns in an order, cut into parts.
void cut(Tensors& in, const std::string& name, const std::vector<int64_t>& columns, const std::vector<int64_t>& order) {
  const Tensor whole = in.at(name);
  in.erase(name);
  const int64_t all = whole.type.shape.back().number(), rows = std::ssize(whole.values) / all;
  int64_t begin = 0;
  for (size_t i = 0; i < columns.size(); ++i) {
    Tensor part;
    part.type = whole.type;
    part.type.shape.back() = Dim(columns[i]);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = begin; c < begin + columns[i]; ++c)
        part.values.push_back(whole.values[r * all + (order.empty() ? c : order[c])]);
    begin += columns[i];
    in[column_part(name, i)] = part;
  }
}

void expect_same(const Graph& g, const Graph& split, const Tensors& in, const Tensors& in_parts) {
  EXPECT_EQ(verify(split), "");
  const auto want = eval(g, in, {.wide = true, .symbols = {}})[0];
  const auto got = eval(split, in_parts, {.wide = true, .symbols = {}})[0];
  ASSERT_EQ(want.values.size(), got.values.size());
  for (size_t i = 0; i < want.values.size(); ++i) EXPECT_NEAR(got.values[i], want.values[i], 1e-12) << i;
}

const char* const kProducts =
    "graph main(%x: data tensor<Bx3x6xf32>, %w: parameter tensor<2x6xf32>, %u: parameter tensor<5x6xf32>) {\n"
    "  %3 = contract %x, %w (btk,nk->btn) : tensor<Bx3x2xf32>\n"
    "  %4 = contract %u, %x (nk,btk->nbt) : tensor<5xBx3xf32>\n"
    "  %5 = permute %4 axes=[1, 2, 0] : tensor<Bx3x5xf32>\n"
    "  %6 = concat %3, %5 axis=2 : tensor<Bx3x7xf32>\n"
    "  return y = %6\n}\n";

TEST(SplitColumns, SumsProductsOfSlices) {
  const Graph g = graph_of(kProducts);
  Tensors in{{"x", numbers({2, 3, 6}, 1)}, {"w", numbers({2, 6}, 2)}, {"u", numbers({5, 6}, 3)}};
  Tensors parts = in;
  cut(parts, "w", {2, 4}, {});
  cut(parts, "u", {1, 2, 3}, {});
  const Graph split = split_columns(g, {{"w", {2, 4}, ""}, {"u", {1, 2, 3}, ""}, {"absent", {1, 1}, ""}});
  EXPECT_EQ(split.find_input("w"), -1);
  expect_same(g, split, in, parts);
}

TEST(SplitColumns, GathersWhatIsMultipliedInTheOrderOfTheColumns) {
  const Graph g = graph_of(kProducts);
  const std::vector<int64_t> order{4, 0, 5, 2, 1, 3};
  Tensors in{{"x", numbers({2, 3, 6}, 1)}, {"w", numbers({2, 6}, 2)}, {"u", numbers({5, 6}, 3)}};
  Tensors parts = in;
  cut(parts, "w", {2, 4}, order);
  cut(parts, "u", {3, 3}, order);
  parts["o"].type = {{Dim(6)}, {}};
  for (const int64_t c : order) parts["o"].values.push_back(c);
  const Graph split = split_columns(g, {{"w", {2, 4}, "o"}, {"u", {3, 3}, "o"}});
  expect_same(g, split, in, parts);
  // Both read the same x, which is gathered once.
  const auto gathers = std::ranges::count(split.nodes, Op::gather_, &Node::op);
  EXPECT_EQ(gathers, 1);
}

const char* const kPicked =
    "graph main(%x: data tensor<4x6xf32>, %i: data tensor<4x2xi32>, %w: parameter tensor<3x5x6xf32>) {\n"
    "  %3 = contract_gather %x, %w, %i (nk,efk,nj->njf) : tensor<4x2x5xf32>\n"
    "  return y = %3\n}\n";

TEST(SplitColumns, SplitsMatricesThatRowsPick) {
  const Graph g = graph_of(kPicked);
  const std::vector<int64_t> order{4, 0, 5, 2, 1, 3};
  Tensors in{{"x", numbers({4, 6}, 1)}, {"w", numbers({3, 5, 6}, 2)}, {"i", {}}};
  in["i"].type = {{Dim(4), Dim(2)}, {Scalar::i32, nullptr}};
  in["i"].values = {0, 2, 1, 0, 2, 1, 0, 1};
  Tensors parts = in;
  cut(parts, "w", {4, 2}, order);
  parts["o"].type = {{Dim(6)}, {}};
  for (const int64_t c : order) parts["o"].values.push_back(c);
  expect_same(g, split_columns(g, {{"w", {4, 2}, "o"}}), in, parts);
}

std::string refusal(const std::string& text, const ColumnSplit& split) {
  try {
    (void)split_columns(graph_of(text), {split});
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(SplitColumns, RefusesPartsThatAreNotTheWhole) {
  EXPECT_NE(refusal(kProducts, {"w", {2, 3}, ""}).find("have 5 columns, but it has 6"), std::string::npos);
  EXPECT_NE(refusal(kProducts, {"w", {6}, ""}).find("1 parts"), std::string::npos);
  EXPECT_NE(refusal(kProducts, {"w", {6, 0}, ""}).find("no part can have 0"), std::string::npos);
  EXPECT_NE(refusal(kProducts, {"w", {INT64_MAX, 7}, ""}).find("no part can have"), std::string::npos);
  EXPECT_NE(refusal(kProducts, {"x", {2, 4}, ""}).find("no matrix"), std::string::npos);
}

TEST(SplitColumns, RefusesOtherReaders) {
  // Rows that are looked up, rows that are summed over, and the weight handed back.
  const std::string head =
      "graph main(%x: data tensor<6x6xf32>, %i: data tensor<2xi32>, %w: parameter tensor<6x6xf32>) {\n";
  const std::string product = "  %3 = contract %x, %w (bk,nk->bn) : tensor<6x6xf32>\n";
  for (const std::string other : {"  %4 = gather %w, %i : tensor<2x6xf32>\n  return y = %3, z = %4\n}\n",
                                  "  %4 = contract %x, %w (bn,nk->bk) : tensor<6x6xf32>\n  return y = %3, z = %4\n}\n",
                                  "  %4 = contract %w, %w (bk,nk->bn) : tensor<6x6xf32>\n  return y = %3, z = %4\n}\n",
                                  "  return y = %3, z = %w\n}\n"})
    EXPECT_NE(refusal(head + product + other, {"w", {2, 4}, ""}).find("read by more than products"), std::string::npos)
        << other;
  EXPECT_EQ(refusal(head + product + "  return y = %3\n}\n", {"w", {2, 4}, ""}), "accepted");
}

TEST(SplitColumns, FindsWhatReadsTheSameValue) {
  const char* const text =
      "graph main(%x: data tensor<4x6xf32>, %i: data tensor<2xi32>, %a: parameter tensor<6x6xf32>,\n"
      "           %b: parameter tensor<5x6xf32>, %c: parameter tensor<2x5xf32>, %e: parameter tensor<7x6xf32>) {\n"
      "  %6 = contract %x, %a (bk,nk->bn) : tensor<4x6xf32>\n"
      "  %7 = contract %x, %b (bk,nk->bn) : tensor<4x5xf32>\n"
      "  %8 = contract %7, %c (bk,nk->bn) : tensor<4x2xf32>\n"
      "  %9 = contract %x, %e (bk,nk->bn) : tensor<4x7xf32>\n"
      "  %10 = gather %e, %i : tensor<2x6xf32>\n"
      "  return p = %6, q = %8, r = %9, s = %10\n}\n";
  const std::vector<SharedColumns> found = splittable_weights(graph_of(text));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].weights, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(found[0].columns, 6);
  EXPECT_EQ(found[1].weights, std::vector<std::string>{"c"});
}

}  // namespace
}  // namespace lumen::graph
