// needs: none. Texts that share a row are computed as if each were alone, and what cannot be kept apart is refused.
#include "graph/transform/segments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "base/file/file.h"
#include "graph/elaborate/elaborate.h"
#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "graph/ir/eval.h"
#include "graph/ir/verify.h"
#include "graph/pipeline/pipeline.h"
#include "lang/parser.h"
#include "tests/graph/plan_run.h"

namespace lumen::graph {
namespace {

lang::File parse_text(const std::string& text) {
  return lang::parse_file(std::make_shared<Source>(Source{"test.lum", text}));
}

Graph graph_of(const std::string& text) {
  static const lang::File library = [] {
    const std::filesystem::path path = std::filesystem::path(LUMEN_SOURCE_DIR) / "models" / "functions.lum";
    return parse_text(read_file(path));
  }();
  const lang::File file = parse_text(text);
  Scope scope;
  scope.files = {&library, &file};
  check_file(scope, file);
  return elaborate_function(scope, file.functions.back());
}

std::string refusal(const std::string& text) {
  Graph g = graph_of(text);
  try {
    g = changed(std::move(g), {.texts_apart = true});
  } catch (const Error& e) {
    EXPECT_NE(e.hint().find("--no-packing"), std::string::npos);
    return e.what();
  }
  return "accepted";
}

constexpr int64_t kVocabulary = 13, kWidth = 8, kPlaces = 40;

// Learned positions, a rotation, attention in a window; with one, queries also grow with their positions.
std::string model_text(int window) {
  return fmt::format(R"(
fn f(tokens: i32[B, T], embed: f32[13, 8], places: f32[40, 8], wq: f32[8, 8], wk: f32[4, 8],
     wv: f32[4, 8]) -> f32[B, T, 8] {{
  let x = embed[tokens] + 0.5 * places[min(iota([T], 0), 39)]
  let at = iota([T], 0)
  let q = rope(reshape(linear(x, wq), [B, T, 2, 4]), at, each(i, 2, rope_frequency(i, 4, 100)))
  let k = rope(reshape(linear(x, wk), [B, T, 1, 4]), at, each(i, 2, rope_frequency(i, 4, 100)))
  let a = attention(reshape(q{}, [B, T, 1, 2, 4]), k, reshape(linear(x, wv), [B, T, 1, 4]), 0, {})
  return x + reshape(a, [B, T, 8])
}}
)",
                     window > 0 ? " * reshape(1 + 0.3 * log(1 + f32(at / 3)), [T, 1, 1])" : "", window);
}

Tensor random_tensor(const Type& type, unsigned seed) {
  Tensor t;
  t.type = type;
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  t.values.resize(static_cast<size_t>(elements(type.shape).number()));
  for (double& v : t.values) v = uniform(random);
  return t;
}

Tensor integers(int64_t rows, int64_t length, std::vector<double> values) {
  Tensor t;
  t.type = {{rows, length}, {Scalar::i32, nullptr}};
  t.values = std::move(values);
  return t;
}

using Inputs = std::map<std::string, Tensor>;

// Results of a graph: what f gives, and the gradients of the sum of its squares by everything but the tokens.
Graph with_gradients(Graph g) {
  Builder b(g);
  const ValueId y = g.results[0];
  const ValueId loss = b.reshape(b.reduce(b.mul(y, y), Reduction::sum, {0, 1, 2}), {});
  std::vector<ValueId> by;
  for (const char* name : {"embed", "places", "wq", "wk", "wv"}) by.push_back(g.find_input(name));
  for (const ValueId d : differentiate(g, loss, by)) g.results.push_back(d);
  g.result_names.assign(g.results.size(), "");
  return g;
}

class Packed : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    alone_ = graph_of(model_text(GetParam()));
    packed_ = alone_;
    packed_ = changed(std::move(packed_), {.texts_apart = true});
    ASSERT_EQ(verify(packed_), "");
    alone_ = with_gradients(alone_);
    packed_ = with_gradients(packed_);
    unsigned seed = 1;
    for (const ValueId v : alone_.inputs())
      if (alone_[v].attributes.name != "tokens")
        weights_[alone_[v].attributes.name] = random_tensor(alone_[v].type, seed++);
  }
  // Two rows of three texts each, of other lengths.
  static constexpr int64_t kLength = 24;
  const std::vector<std::vector<int64_t>> lengths_ = {{5, 12, 7}, {1, 9, 14}};
  Graph alone_, packed_;
  Inputs weights_;

  Inputs packed_inputs() const {
    std::vector<double> tokens, starts;
    for (const auto& row : lengths_) {
      int64_t begin = 0;
      for (const int64_t length : row) {
        for (int64_t t = 0; t < length; ++t) {
          tokens.push_back(static_cast<double>((tokens.size() * 7 + 3) % kVocabulary));
          starts.push_back(static_cast<double>(begin));
        }
        begin += length;
      }
    }
    Inputs in = weights_;
    in["tokens"] = integers(2, kLength, tokens);
    in[kStarts] = integers(2, kLength, starts);
    return in;
  }

  // What the texts give one by one: values in order, gradients added up.
  std::vector<std::vector<double>> one_by_one() const {
    const std::vector<double> all = packed_inputs().at("tokens").values;
    std::vector<std::vector<double>> sum(6);
    size_t at = 0;
    for (const auto& row : lengths_) {
      for (const int64_t length : row) {
        Inputs in = weights_;
        in["tokens"] = integers(
            1, length, {all.begin() + static_cast<int64_t>(at), all.begin() + static_cast<int64_t>(at) + length});
        at += static_cast<size_t>(length);
        EvalOptions wide;
        wide.wide = true;
        const std::vector<Tensor> got = eval(alone_, in, wide);
        sum[0].insert(sum[0].end(), got[0].values.begin(), got[0].values.end());
        for (size_t r = 1; r < got.size(); ++r) {
          sum[r].resize(got[r].values.size(), 0.0);
          for (size_t i = 0; i < got[r].values.size(); ++i) sum[r][i] += got[r].values[i];
        }
      }
    }
    return sum;
  }

  static void expect_near(const std::vector<Tensor>& got, const std::vector<std::vector<double>>& want, double bound) {
    for (size_t r = 0; r < want.size(); ++r) {
      ASSERT_EQ(got[r].values.size(), want[r].size());
      for (size_t i = 0; i < want[r].size(); ++i) ASSERT_NEAR(got[r].values[i], want[r][i], bound) << r << " " << i;
    }
  }
};

TEST_P(Packed, ValuesAndGradientsAreThoseOfTheTextsAlone) {
  EvalOptions wide;
  wide.wide = true;
  expect_near(eval(packed_, packed_inputs(), wide), one_by_one(), 1e-10);
}

TEST_P(Packed, AttentionStaysOneKernelForwardAndBackward) {
  const Pipeline p = run_pipeline(packed_, {}, {{"B", 2}, {"T", kLength}});
  int forward = 0, backward = 0;
  for (const Group& group : p.plan.groups) {
    forward += group.shape == KernelShape::attend;
    backward += group.shape == KernelShape::attend_gradient;
  }
  EXPECT_EQ(forward, 1);
  EXPECT_EQ(backward, 1);
  const PlanRun run = run_plan(p.plan, p.memory, packed_inputs());
  ASSERT_EQ(run.wrong, "");
  expect_near(run.results, one_by_one(), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Windows, Packed, testing::Values(0, 4));

TEST(Segments, WhatPositionsDoOutsideOfAttentionIsRefused) {
  EXPECT_NE(refusal("fn f(tokens: i32[B, T], e: f32[13, 8]) -> f32[B, 8] = reshape(sum(e[tokens], axis = 1), [B, 8])")
                .find("positions meet outside of attention"),
            std::string::npos);
  EXPECT_NE(refusal("fn f(tokens: i32[B, T], e: f32[13, 8], w: f32[T, T]) -> f32[B, T, 8] {\n"
                    "  let x = e[tokens]\n"
                    "  y[b, t, d] = sum(s) w[t, s] * x[b, s, d]\n"
                    "  return y\n}\n")
                .find("positions meet"),
            std::string::npos);
  EXPECT_NE(refusal("fn f(tokens: i32[B, T], e: f32[13, 8]) -> f32[B, T, 8] {\n"
                    "  let x = e[tokens]\n"
                    "  return x * reshape(f32(iota([T], 0)), [1, T, 1])\n}\n"),
            "accepted");
}

TEST(Segments, RotatedNumbersMayOnlyBecomeScores) {
  const std::string begin =
      "fn f(tokens: i32[B, T], e: f32[13, 4], w: f32[4, 4]) -> f32[B, T, 4] {\n"
      "  let x = reshape(linear(e[tokens], w), [B, T, 1, 4])\n"
      "  let k = rope(x, iota([T], 0), each(i, 2, rope_frequency(i, 4, 100)))\n";
  EXPECT_NE(refusal(begin + "  return reshape(causal_attention(k, k, k), [B, T, 4])\n}\n").find("rotated"),
            std::string::npos);
  EXPECT_NE(refusal(begin + "  return reshape(k, [B, T, 4])\n}\n").find("rotated"), std::string::npos);
  EXPECT_EQ(refusal(begin + "  return reshape(causal_attention(k, k, x), [B, T, 4])\n}\n"), "accepted");
}

TEST(Segments, AttentionMustBeMaskedAndCausal) {
  const std::string begin =
      "fn f(tokens: i32[B, T], e: f32[13, 8]) -> f32[B, T, 8] {\n"
      "  let x = e[tokens]\n"
      "  scores[b, t, s] = sum(d) x[b, t, d] * x[b, s, d]\n";
  const std::string end =
      "  let p = softmax(masked, -1)\n  y[b, t, d] = sum(s) p[b, t, s] * x[b, s, d]\n  return y\n}\n";
  EXPECT_NE(refusal(begin + "  let masked = scores * 0.5\n" + end).find("no mask"), std::string::npos);
  EXPECT_NE(
      refusal(begin + "  masked[b, t, s] = select(s <= t + 1, scores[b, t, s], -1e30)\n" + end).find("after the query"),
      std::string::npos);
  EXPECT_NE(refusal(begin + "  masked[b, t, s] = select(s <= t, scores[b, t, s] + f32(s - t), -1e30)\n" + end)
                .find("numbers of positions"),
            std::string::npos);
  EXPECT_NE(refusal(begin + "  masked[b, t, s] = select(s <= t and s / 3 == t / 3, scores[b, t, s], -1e30)\n" + end)
                .find("divides positions"),
            std::string::npos);
  EXPECT_EQ(refusal(begin + "  masked[b, t, s] = select(s <= t, scores[b, t, s], -1e30)\n" + end), "accepted");
}

}  // namespace
}  // namespace lumen::graph
