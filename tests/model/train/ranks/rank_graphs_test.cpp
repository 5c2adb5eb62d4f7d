// needs: none. What ranks compute of what they exchange, by the oracle.
#include "model/train/ranks/rank_graphs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "graph/ir/eval.h"
#include "graph/ir/verify.h"
#include "model/recipe/optimizer/optimizer.h"
#include "tests/model/tiny.h"

namespace lumen::model::train {
namespace {

using graph::Tensor;
using Tensors = std::map<std::string, Tensor>;

// A matrix of 4 x 32 cut for two ranks.
Cut matrix() {
  Cut cut;
  cut.whole.name = "w";
  cut.whole.shape = {4, 32};
  cut.rows = 4;
  cut.columns = 32;
  cut.first = {0, 2, 4};
  return cut;
}

Tensor numbers(const graph::Type& type, double from) {
  Tensor out{type, {}, {}};
  for (int64_t i = 0; i < graph::elements(type.shape).number(); ++i)
    out.values.push_back(static_cast<float>(from + std::sin(0.7 * i)));
  return out;
}

const graph::Type kPart{{2, 32}, {Scalar::f32, nullptr}}, kWhole{{4, 32}, {Scalar::f32, nullptr}};

TEST(RankGraphs, SumsInTheOrderOfRanks) {
  const Cut cut = matrix();
  const Tensor own = numbers(kPart, 1), other = numbers(kPart, 2);
  for (const int rank : {0, 1}) {
    const graph::Graph g = sum_graph({&cut}, rank, 2, false, nullptr);
    graph::verify_or_die(g, "test");
    Tensors states;
    (void)graph::eval(g, {{"gradient.w", own}, {part_input(1 - rank, "w"), other}}, {}, &states);
    for (size_t i = 0; i < own.values.size(); ++i)
      EXPECT_EQ(states.at("gradient.w").values[i], static_cast<float>(own.values[i] + other.values[i]));
  }
  const graph::Graph g = sum_graph({&cut}, 0, 2, true, nullptr);
  Tensors states;
  (void)graph::eval(g, {{"gradient.w", own}, {"part0.w", own}, {"part1.w", other}}, {}, &states);
  for (size_t i = 0; i < own.values.size(); ++i)
    EXPECT_EQ(states.at("gradient.w").values[i],
              static_cast<float>(own.values[i] + static_cast<float>(own.values[i] + other.values[i])));
}

// What a format loses of a gradient goes with the next one: over many steps nothing is lost but the last remainder.
TEST(RankGraphs, WhatRoundingLosesIsSentLater) {
  const Cut cut = matrix();
  const FormatRef format = test_library()->formats().get("q4_0");
  const graph::Graph encode = encode_graph({&cut}, format);
  graph::verify_or_die(encode, "test");
  const Tensor gradient = numbers(kWhole, 0.3);
  Tensor lost{kWhole, std::vector<double>(128, 0.0), {}};
  std::vector<double> sent(64, 0.0);
  constexpr int kSteps = 20;
  const graph::Graph sum = sum_graph({&cut}, 0, 1, false, format);
  double most = 0;
  for (int step = 0; step < kSteps; ++step) {
    Tensors states;
    const std::vector<Tensor> coded = graph::eval(encode, {{"gradient.w", gradient}, {"lost.w", lost}}, {}, &states);
    lost = states.at("lost.w");
    Tensor part{{{2, 32}, {Scalar::f32, format}}, {}, {}};
    part.blob.assign(coded[0].blob.begin(), coded[0].blob.begin() + graph::byte_size(part.type));
    Tensors sums;
    (void)graph::eval(sum, {{"gradient.w", numbers(kPart, 0)}, {"part0.w", part}}, {}, &sums);
    for (size_t i = 0; i < sent.size(); ++i) sent[i] += sums.at("gradient.w").values[i];
    if (step == 0)
      for (size_t i = 0; i < sent.size(); ++i) most = std::max(most, std::abs(sent[i] - gradient.values[i]));
  }
  EXPECT_GT(most, 0.01);
  for (size_t i = 0; i < sent.size(); ++i) EXPECT_NEAR(sent[i], kSteps * gradient.values[i], 2 * most + 1e-4);
}

TEST(RankGraphs, WhoFollowsChangesComesNearToTheMaster) {
  const Cut cut = matrix();
  const FormatRef format = test_library()->formats().get("q8_0");
  const graph::Graph change = change_graph({&cut}, 0, format), follow = follow_graph({&cut}, 1, format);
  Cut alone = matrix();
  alone.first = {0, 2};
  const graph::Graph follow_one = follow_graph({&alone}, 1, format);
  graph::verify_or_die(change, "test");
  const Tensor master = numbers(kPart, 5);
  Tensor held = numbers(kPart, 4.5);
  double far = 0;
  for (int turn = 0; turn < 3; ++turn) {
    const std::vector<Tensor> coded = graph::eval(change, {{"master.w", master}, {"held.w", held}});
    Tensors states;
    (void)graph::eval(follow_one, {{"part0.w", coded[0]}, {"held.part0.w", held}}, {}, &states);
    held = states.at("held.part0.w");
    far = 0;
    for (size_t i = 0; i < held.values.size(); ++i) far = std::max(far, std::abs(held.values[i] - master.values[i]));
  }
  EXPECT_LT(far, 1e-5);
}

// Parameters that go in a format: all ranks' rows, as the format holds them.
TEST(RankGraphs, ParametersInAFormat) {
  const Cut cut = matrix();
  const FormatRef format = test_library()->formats().get("q8_0");
  std::map<std::string, Tensor> inputs;
  for (const int rank : {0, 1}) {
    const graph::Graph code = code_graph({&cut}, rank, format);
    graph::verify_or_die(code, "test");
    inputs[part_input(rank, "w")] = graph::eval(code, {{"master.w", numbers(kPart, rank)}}, {}).at(0);
    inputs["held." + part_input(rank, "w")] = numbers(kPart, 7);
  }
  Tensors states;
  (void)graph::eval(decode_graph({&cut}, 2, format), inputs, {}, &states);
  for (const int rank : {0, 1}) {
    const Tensor want = numbers(kPart, rank);
    for (size_t i = 0; i < want.values.size(); ++i)
      EXPECT_NEAR(states.at("held." + part_input(rank, "w")).values[i], want.values[i], 2.0 / 127) << i;
  }
}

TEST(RankGraphs, SquaresAndClearing) {
  const Cut cut = matrix();
  const Tensor gradient = numbers(kPart, 0);
  const std::vector<Tensor> out = graph::eval(squares_graph({&cut}, 1), {{"gradient.w", gradient}});
  double expected = 0;
  for (const double x : gradient.values) expected += x * x;
  EXPECT_NEAR(out[0].values[0], expected, 1e-4);
  EXPECT_EQ(out[0].values, out[1].values);
  Tensors states;
  (void)graph::eval(clear_graph({&cut}), {{"gradient.w", numbers(kWhole, 1)}}, {}, &states);
  for (const double x : states.at("gradient.w").values) EXPECT_EQ(x, 0);
}

TEST(RankGraphs, WhatAFormatCannotHoldGoesAsItIs) {
  Cut cut = matrix();
  const FormatRef format = test_library()->formats().get("q8_0");
  EXPECT_EQ(exchanged_in(cut, format), format);
  EXPECT_EQ(exchanged_in(cut, nullptr), nullptr);
  cut.columns = 24;
  EXPECT_EQ(exchanged_in(cut, format), nullptr);
  cut = matrix();
  cut.in_rows = false;
  EXPECT_EQ(exchanged_in(cut, format), nullptr);
  EXPECT_NO_THROW(check_exchange_format(format, "--reduce-type"));
  EXPECT_NO_THROW(check_exchange_format(nullptr, "--reduce-type"));
}

}  // namespace
}  // namespace lumen::model::train
