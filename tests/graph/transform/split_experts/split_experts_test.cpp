// needs: none. Stacked weights in parts along their experts: sums of products that pick from one part each, forward and
// back, in any order of the experts.
#include "graph/transform/split_experts/split_experts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
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

// The matrices of a weight: part by part those of these places.
void cut(Tensors& in, const std::string& name, const std::vector<int64_t>& experts, std::vector<int64_t> source) {
  const Tensor whole = in.at(name);
  in.erase(name);
  const int64_t each = std::ssize(whole.values) / whole.type.shape[0].number();
  int64_t begin = 0;
  for (size_t i = 0; i < experts.size(); begin += experts[i++]) {
    Tensor part;
    part.type = whole.type;
    part.type.shape[0] = Dim(experts[i]);
    for (int64_t e = begin; e < begin + experts[i]; ++e)
      part.values.insert(part.values.end(), whole.values.begin() + source[e] * each,
                         whole.values.begin() + (source[e] + 1) * each);
    in[expert_part(name, i)] = part;
  }
}

void expect_near(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(want.values.size(), got.values.size());
  for (size_t i = 0; i < want.values.size(); ++i) EXPECT_NEAR(got.values[i], want.values[i], 1e-12) << i;
}

const char* const kMixture =
    "graph main(%x: data tensor<4x6xf32>, %i: data tensor<4x2xi32>, %up: parameter tensor<5x3x6xf32>,\n"
    "           %down: parameter tensor<5x6x3xf32>) {\n"
    "  %4 = contract_gather %x, %up, %i (nk,efk,nj->njf) : tensor<4x2x3xf32>\n"
    "  %5 = map %4 (%0: f32) { %1 = tanh f32 %0 } -> %1 : tensor<4x2x3xf32>\n"
    "  %6 = contract_gather %5, %down, %i (njf,edf,nj->njd) : tensor<4x2x6xf32>\n"
    "  return y = %6\n}\n";

Tensors mixture_inputs() {
  Tensors in{{"x", numbers({4, 6}, 1)}, {"up", numbers({5, 3, 6}, 2)}, {"down", numbers({5, 6, 3}, 3)}, {"i", {}}};
  in["i"].type = {{Dim(4), Dim(2)}, {Scalar::i32, nullptr}};
  in["i"].values = {0, 4, 1, 3, 2, 1, -1, 1};
  return in;
}

TEST(SplitExperts, SumsProductsOfParts) {
  const Graph g = graph_of(kMixture);
  const Tensors in = mixture_inputs();
  for (const std::vector<int64_t>& experts :
       {std::vector<int64_t>{2, 3}, std::vector<int64_t>{1, 1, 3}, std::vector<int64_t>{1, 1, 1, 1, 1}}) {
    Tensors parts = in;
    cut(parts, "up", experts, {0, 1, 2, 3, 4});
    cut(parts, "down", experts, {0, 1, 2, 3, 4});
    const Graph split = split_experts(g, {{"up", experts, ""}, {"down", experts, ""}, {"absent", {1, 1}, ""}});
    EXPECT_EQ(verify(split), "");
    EXPECT_EQ(split.find_input("up"), -1);
    expect_near(eval(split, parts, {.wide = true, .symbols = {}})[0], eval(g, in, {.wide = true, .symbols = {}})[0]);
    // Integers of a part are computed once for all weights.
    EXPECT_EQ(std::ranges::count_if(
                  split.nodes, [](const Node& n) { return n.op == Op::map_ && n.type.element.scalar == Scalar::i32; }),
              std::ssize(experts));
  }
}

TEST(SplitExperts, FollowsAnOrder) {
  const Graph g = graph_of(kMixture);
  Tensors in = mixture_inputs();
  in["i"].values[6] = 0;
  Tensors parts = in;
  const std::vector<int64_t> source{3, 1, 4, 0, 2};
  cut(parts, "up", {2, 3}, source);
  cut(parts, "down", {2, 3}, source);
  parts["o"].type = {{Dim(5)}, {}};
  parts["o"].values.assign(5, 0);
  for (size_t place = 0; place < source.size(); ++place) parts["o"].values[source[place]] = place;
  const Graph split = split_experts(g, {{"up", {2, 3}, "o"}, {"down", {2, 3}, "o"}});
  EXPECT_EQ(verify(split), "");
  expect_near(eval(split, parts, {.wide = true, .symbols = {}})[0], eval(g, in, {.wide = true, .symbols = {}})[0]);
  EXPECT_EQ(std::ranges::count(split.nodes, Op::gather_, &Node::op), 1);
}

// What weights and rows get of a loss is the same, part by part.
TEST(SplitExperts, HasTheSameGradients) {
  const auto with_gradients = [](Graph g, const std::vector<std::string>& wanted) {
    Builder b(g);
    const ValueId y = g.results[0];
    const ValueId loss = b.reshape(b.reduce(b.mul(y, y), Reduction::sum, {0, 1, 2}), {});
    g.results = {loss};
    std::vector<ValueId> inputs;
    for (const std::string& name : wanted) inputs.push_back(g.find_input(name));
    for (const ValueId d : differentiate(g, loss, inputs)) g.results.push_back(d);
    g.result_names.assign(g.results.size(), "");
    EXPECT_EQ(verify(g), "");
    return g;
  };
  const Graph g = graph_of(kMixture);
  const Tensors in = mixture_inputs();
  Tensors parts = in;
  cut(parts, "up", {2, 3}, {0, 1, 2, 3, 4});
  cut(parts, "down", {2, 3}, {0, 1, 2, 3, 4});
  const Graph split = split_experts(g, {{"up", {2, 3}, ""}, {"down", {2, 3}, ""}});
  const auto want = eval(with_gradients(g, {"x", "up", "down"}), in, {.wide = true, .symbols = {}});
  const auto got =
      eval(with_gradients(split, {"x", "up.0", "up.1", "down.0", "down.1"}), parts, {.wide = true, .symbols = {}});
  expect_near(got[1], want[1]);
  for (size_t w = 0; w < 2; ++w) {
    Tensor both = got[2 + 2 * w];
    const Tensor& second = got[3 + 2 * w];
    both.values.insert(both.values.end(), second.values.begin(), second.values.end());
    expect_near(both, want[2 + w]);
  }
}

std::string refusal(const std::string& text, const ExpertSplit& split) {
  try {
    (void)split_experts(graph_of(text), {split});
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(SplitExperts, RefusesPartsThatAreNotTheWhole) {
  EXPECT_NE(refusal(kMixture, {"up", {2, 2}, ""}).find("have 4 experts, but it has 5"), std::string::npos);
  EXPECT_NE(refusal(kMixture, {"up", {5}, ""}).find("1 parts"), std::string::npos);
  EXPECT_NE(refusal(kMixture, {"up", {5, 0}, ""}).find("no part can have 0"), std::string::npos);
  EXPECT_NE(refusal(kMixture, {"up", {INT64_MAX, 6}, ""}).find("no part can have"), std::string::npos);
  EXPECT_NE(refusal(kMixture, {"x", {2, 2}, ""}).find("no stacked weight"), std::string::npos);
}

TEST(SplitExperts, RefusesOtherReaders) {
  const std::string head =
      "graph main(%x: data tensor<4x6xf32>, %i: data tensor<4x2xi32>, %w: parameter tensor<5x6x6xf32>) {\n"
      "  %3 = contract_gather %x, %w, %i (nk,efk,nj->njf) : tensor<4x2x6xf32>\n";
  for (const std::string other :
       {"  %4 = contract %x, %w (nk,efk->nef) : tensor<4x5x6xf32>\n  return y = %3, z = %4\n}\n",
        "  %4 = gather %w, %i : tensor<4x2x6x6xf32>\n  return y = %3, z = %4\n}\n", "  return y = %3, z = %w\n}\n"})
    EXPECT_NE(refusal(head + other, {"w", {2, 3}, ""}).find("read by more than products"), std::string::npos) << other;
}

TEST(SplitExperts, FindsWhatIsPickedTogether) {
  const std::vector<StackedExperts> found = stacked_experts(graph_of(kMixture));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].weights, (std::vector<std::string>{"up", "down"}));
  EXPECT_EQ(found[0].experts, 5);
}

}  // namespace
}  // namespace lumen::graph
