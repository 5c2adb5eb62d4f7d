// Needs: none. A partitioned graph, run by all its ranks, computes what the whole does: blocks of a transformer with
// their gradients and updates, random graphs, and single operators whose exchanges are counted.
#include "graph/partition/partition.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "graph/grad/grad.h"
#include "graph/ir/build.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "graph/partition/linear.h"
#include "tests/graph/partition/partition_case.h"
#include "tests/graph/partition/rank_run.h"
#include "tests/graph/random_graph.h"

namespace lumen::graph {
namespace {

std::map<std::string, Tensor> random_inputs(const Graph& g, uint32_t seed, int largest) {
  std::mt19937 random(seed);
  std::map<std::string, Tensor> in;
  for (const ValueId v : g.inputs()) {
    Tensor t{g[v].type, {}, {}};
    for (int64_t k = elements(t.type.shape).number(); k > 0; --k)
      t.values.push_back(is_float(t.type.element.scalar) ? static_cast<double>(random() % 17) / 8 - 1
                                                         : static_cast<double>(random() % largest));
    in[g[v].attributes.name] = std::move(t);
  }
  return in;
}

void expect_near(const Tensor& got, const std::vector<double>& want, const std::string& what) {
  ASSERT_EQ(got.values.size(), want.size()) << what;
  for (size_t k = 0; k < want.size(); ++k)
    ASSERT_NEAR(got.values[k], want[k], 1e-9 * std::max(1.0, std::fabs(want[k]))) << what << " at " << k;
}

// All results and states of all ranks against the whole.
void expect_same(const Graph& g, const TensorSplit& p, uint32_t seed, int largest = 4) {
  const std::map<std::string, Tensor> in = random_inputs(g, seed, largest);
  EvalOptions wide;
  wide.wide = true;
  std::map<std::string, Tensor> states;
  const std::vector<Tensor> want = eval(g, in, wide, &states);
  const Graph local = partitioned(g, p);
  verify_or_die(local, "partitioned");
  const std::vector<RankResults> got = run_ranks(local, p, in, true);
  for (int r = 0; r < p.ranks; ++r) {
    for (size_t i = 0; i < want.size(); ++i) {
      const auto split = p.inputs.find(g.result_names[i]);
      const Tensor mine = split == p.inputs.end() ? want[i] : part_of(want[i], split->second, p.ranks, r);
      expect_near(got[r].results[i], mine.values, "result " + g.result_names[i]);
    }
    for (const auto& [name, state] : states) {
      const auto split = p.inputs.find(name);
      const Tensor mine = split == p.inputs.end() ? state : part_of(state, split->second, p.ranks, r);
      expect_near(got[r].states.at(name), mine.values, "state " + name);
    }
  }
}

bool any(const std::string&) {
  return true;
}

TEST(Partition, FeedForwardsAndTheirStepsAreTheWhole) {
  for (const bool fused : {false, true})
    for (const int ranks : {2, 4}) {
      const Graph g = feed_forward(fused);
      const TensorSplit p = find_partition(g, ranks, any);
      EXPECT_EQ(p.inputs.size(), fused ? 3u : 4u);
      EXPECT_EQ(p.inputs.at("down"), (Split{1, {8}}));
      if (fused) {
        EXPECT_EQ(p.inputs.at("both"), (Split{0, {8, 8}}));
      }
      EXPECT_FALSE(p.inputs.contains("w"));
      expect_same(g, p, 1);
      expect_same(step_of(g), p, 2);
    }
}

TEST(Partition, AttentionsAndTheirStepsAreTheWhole) {
  for (const bool fused : {false, true}) {
    const Graph g = attention(fused);
    const TensorSplit p = find_partition(g, 2, any);
    EXPECT_EQ(p.inputs.at("wo"), (Split{1, {8}}));
    EXPECT_EQ(p.inputs.at("table"), (Split{0, {12}}));
    if (fused) {
      EXPECT_EQ(p.inputs.at("wqkv"), (Split{0, {8, 4, 4}}));
    }
    expect_same(g, p, 3, 12);
    expect_same(step_of(g), p, 4, 12);
  }
}

TEST(Partition, OnlySumsAreExchanged) {
  Exchanged step, loss;
  const Graph g = attention(false);
  const TensorSplit p = find_partition(g, 2, any);
  (void)partitioned(g, p, {}, &loss);
  EXPECT_EQ(loss.gathers, 0);
  EXPECT_EQ(loss.sums, 5);  // rows of the table, attention, and three numbers for each logit's row
  (void)partitioned(step_of(g), p, {}, &step);
  EXPECT_EQ(step.gathers, 0);
  EXPECT_EQ(step.sums, 9);  // what enters the logits and the attention, how often the largest logit is there, the norm
}

// Sums become chunks of tokens, norms and residuals are computed of those, and products with split weights gather them,
// once forward and once backward; no sum of tokens' numbers is known to all.
// What reads a residual stream in parts takes its part of the sum, not one of every layer's term.
TEST(Partition, ASumOverLayersIsCutOnce) {
  constexpr int kLayers = 5;
  Graph g;
  Builder b(g);
  TensorSplit p;
  p.ranks = 2;
  p.inputs["out"] = {1, {4}};
  ValueId x = b.input("x", Role::data, {{3, 4}, kF32});
  for (int k = 0; k < kLayers; ++k) {
    const std::string n = std::to_string(k);
    p.inputs["up" + n] = {0, {8}};
    p.inputs["down" + n] = {1, {8}};
    const ValueId up = b.contract(x, b.input("up" + n, Role::parameter, {{8, 4}, kF32}), "tk", "nk", "tn");
    const ValueId down = b.input("down" + n, Role::parameter, {{4, 8}, kF32});
    const ValueId y = b.contract(b.unary(ScalarOp::tanh_, up), down, "tk", "nk", "tn");
    x = b.add(x, b.unary(ScalarOp::tanh_, y));  // the sum of ranks is wanted before it is added
  }
  const ValueId out = b.input("out", Role::parameter, {{6, 4}, kF32});
  g.results = {b.contract(x, out, "tk", "nk", "tn")};
  g.result_names = {"y"};
  expect_same(g, p, 3);
  const Graph local = partitioned(g, p);
  EXPECT_EQ(std::count_if(local.nodes.begin(), local.nodes.end(), [](const Node& n) { return n.op == Op::gather_; }), 1)
      << print(local);
}

TEST(Partition, TokensAreDealtBetweenProducts) {
  const Graph g = attention(false);
  TensorSplit p = find_partition(g, 2, any);
  Exchanged plain, loss, step;
  (void)partitioned(g, p, {}, &plain);
  p.sequence = true;
  (void)partitioned(g, p, {}, &loss);
  EXPECT_EQ(loss.scatters, 2);  // rows of the table, attention
  EXPECT_EQ(loss.sums, plain.sums - 2);
  EXPECT_EQ(loss.gathers, 2);  // what enters the attention, and the logits
  (void)partitioned(step_of(g), p, {}, &step);
  EXPECT_EQ(step.scatters, 5);  // without a norm, gradients of three products reach the residual stream by two ways
  for (const bool fused : {false, true}) {
    const Graph whole = attention(fused);
    TensorSplit dealt = find_partition(whole, 2, any);
    dealt.sequence = true;
    expect_same(whole, dealt, 3, 12);
    expect_same(step_of(whole), dealt, 4, 12);
  }
}

TEST(Partition, HeadsThatRanksDoNotDivideAreRefused) {
  try {
    (void)find_partition(attention(false), 4, any);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::usage);
    EXPECT_NE(std::string(e.what()).find("the product of 'wo': it has 2 parts"), std::string::npos) << e.what();
  }
}

TEST(Partition, WithoutPairsThereIsNothingToShare) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{3, 4}, kF32});
  g.results = {b.contract(x, b.input("w", Role::parameter, {{4, 4}, kF32}), "tk", "nk", "tn")};
  g.result_names = {"y"};
  EXPECT_THROW(find_partition(g, 2, any), Error);
}

// Whatever is split, and however little of what follows can be done in parts.
TEST(Partition, RandomGraphsAreTheWhole) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    RandomGraph random(seed);
    const Graph g = random.graph();
    bool draws = false;
    for (const Node& n : g.nodes) draws = draws || n.op == Op::random_;  // parts draw other numbers
    if (draws) continue;
    TensorSplit p{2, {}};
    if (seed % 3 != 0)
      p.inputs["w"] = {static_cast<int>(seed) % 2,
                       seed % 5 == 0 ? std::vector<int64_t>{4, 2} : std::vector<int64_t>{6}};
    if (seed % 3 != 1)
      p.inputs["s"] = {static_cast<int>(seed / 2) % 2,
                       seed / 2 % 2 == 0 ? std::vector<int64_t>{4} : std::vector<int64_t>{2, 4}};
    const std::map<std::string, Tensor> in = random.inputs();
    std::map<std::string, Tensor> states;
    EvalOptions wide;
    wide.wide = true;
    const std::vector<Tensor> want = eval(g, in, wide, &states);
    Graph local;
    try {
      local = partitioned(g, p);
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("updated at some places"), std::string::npos) << e.what();
      continue;
    }
    verify_or_die(local, "partitioned");
    const std::vector<RankResults> all = run_ranks(local, p, in, true);
    for (int r = 0; r < p.ranks; ++r)
      for (size_t i = 0; i < want.size(); ++i) {
        const RankResults& got = all[r];
        const bool is_state = g[g.results[i]].op == Op::update_ && p.inputs.contains("s");
        const std::vector<double> mine =
            is_state ? part_of(want[i], p.inputs.at("s"), p.ranks, r).values : want[i].values;
        ASSERT_EQ(got.results[i].values.size(), mine.size()) << seed << print(g) << print(local);
        for (size_t k = 0; k < mine.size(); ++k) {
          const double w = mine[k], have = got.results[i].values[k];
          if (std::isnan(w) && std::isnan(have)) continue;
          ASSERT_TRUE(w == have || std::fabs(w - have) <= 1e-9 * std::max(1.0, std::fabs(w)))
              << "seed " << seed << ": " << have << " for " << w << "\n"
              << print(g) << print(local);
        }
      }
  }
}

TEST(Partition, Text) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{2, 4}, kF32});
  const ValueId h =
      b.unary(ScalarOp::tanh_, b.contract(x, b.input("up", Role::parameter, {{8, 4}, kF32}), "tk", "nk", "tn"));
  g.results = {b.contract(h, b.input("down", Role::parameter, {{4, 8}, kF32}), "tk", "nk", "tn")};
  g.result_names = {"y"};
  const TensorSplit p = find_partition(g, 2, any);
  EXPECT_EQ(print(partitioned(g, p)),
            "graph main(%x: data tensor<2x4xf32>, %up: parameter tensor<4x4xf32>) {\n"
            "  %2 = contract %x, %up (tk,nk->tn) : tensor<2x4xf32>\n"
            "  %3 = map %2 (%0: f32) { %1 = tanh f32 %0 } -> %1 : tensor<2x4xf32>\n"
            "  %down = input parameter : tensor<4x4xf32>\n"
            "  %5 = contract %3, %down (tk,nk->tn) : tensor<2x4xf32>\n"
            "  %6 = reshape %5 : tensor<8xf32>\n"
            "  %7 = exchange %6 gather ranks=2 : tensor<2x8xf32>\n"
            "  %8 = slice %7 starts=[0, 0] : tensor<1x8xf32>\n"
            "  %9 = slice %7 starts=[1, 0] : tensor<1x8xf32>\n"
            "  %10 = map %8, %9 (%0: f32, %1: f32) { %2 = add f32 %0, %1 } -> %2 : tensor<1x8xf32>\n"
            "  %11 = reshape %10 : tensor<8xf32>\n"
            "  %12 = reshape %11 : tensor<2x4xf32>\n"
            "  return y = %12\n"
            "}\n");
}

TEST(Partition, LinearFormulas) {
  const auto check = [](const char* text, const std::vector<bool>& inputs) {
    size_t at = 0;
    return is_linear(parse_formula(std::make_shared<const Source>(Source{"text", text}), &at), inputs);
  };
  EXPECT_TRUE(check("(%0: f32, %1: f32) { %2 = add f32 %0, %1 } -> %2", {true, true}));
  EXPECT_FALSE(check("(%0: f32, %1: f32) { %2 = add f32 %0, %1 } -> %2", {true, false}));
  EXPECT_TRUE(check("(%0: f32, %1: f32) { %2 = mul f32 %0, %1 } -> %2", {true, false}));
  EXPECT_FALSE(check("(%0: f32, %1: f32) { %2 = mul f32 %0, %1 } -> %2", {true, true}));
  EXPECT_TRUE(check("(%0: f32, %1: f32) { %2 = div f32 %0, %1 } -> %2", {true, false}));
  EXPECT_FALSE(check("(%0: f32, %1: f32) { %2 = div f32 %0, %1 } -> %2", {false, true}));
  EXPECT_FALSE(check("(%0: f32) { %1 = tanh f32 %0 } -> %1", {true}));
}

}  // namespace
}  // namespace lumen::graph
