// Needs: cpu. A network of a family's text: trained on named inputs, saved and gone on with to the same bits, run by
// its weights or by their mean over the steps.
#include "apps/network/network.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "graph/ir/build.h"
#include "tests/model/tiny.h"

namespace lumen::apps {

using model::engine;

namespace {

constexpr const char* kSums = R"(
model sums(cfg) {
  config { inner : i32 = 16 }
  size wide { inner = 32 }
  param up : f32[cfg.inner, 2], init normal 0.7
  param level : f32[cfg.inner], init zeros
  param down : f32[1, cfg.inner], init normal 0.25
  fn value(x: f32[B, 2]) -> f32[B] = reshape(linear(relu(linear(x, up) + level), down), [B])
  fn loss(x: f32[B, 2], y: f32[B], seed: u32) -> f32[] {
    let off = value(x + 0.01 * random([B, 2], seed, 1)) - y
    return mean(off * off)
  }
}
)";

model::arch::LibraryRef sums_library() {
  auto own = model::arch::Library::builtin();
  own->add_model_text(std::make_shared<const Source>(Source{"sums.lum", kSums}));
  return own;
}

NetworkSettings sums_settings() {
  NetworkSettings s;
  s.family = "sums";
  s.optimizer.weight_decay = 0;
  s.optimizer.ema_decay = 0.9;
  return s;
}

// Of |a| + b.
NetworkInputs sums_inputs(int step) {
  NetworkInputs out;
  out.symbols = {{"B", 32}};
  for (int i = 0; i < 32; ++i) {
    const float a = (step * 37 + i * 11) % 21 / 10.F - 1, b = (step * 13 + i * 7) % 19 / 9.F - 1;
    out.numbers["x"].insert(out.numbers["x"].end(), {a, b});
    out.numbers["y"].push_back(std::fabs(a) + b);
  }
  out.numbers["of no use"] = {1, 2, 3};
  return out;
}

TEST(Network, LearnsAndGoesOnWithTheSameBits) {
  const model::arch::LibraryRef texts = sums_library();
  Network whole(engine(), *texts, sums_settings());
  const double before = whole.step("loss", sums_inputs(0), 0.01);
  const model::TestFolder folder;
  double last = 0;
  for (int i = 1; i < 400; ++i) {
    if (i == 200) whole.save(folder.path());
    last = whole.step("loss", sums_inputs(i), 0.01);
  }
  EXPECT_LT(last, 0.02 * before);
  const auto again = Network::load(engine(), *texts, folder.path());
  EXPECT_EQ(again->steps(), 200);
  for (int i = 200; i < 400; ++i) (void)again->step("loss", sums_inputs(i), 0.01);
  for (const bool averaged : {false, true})
    EXPECT_EQ(whole.run("value", sums_inputs(1), averaged), again->run("value", sums_inputs(1), averaged)) << averaged;
  EXPECT_NE(whole.run("value", sums_inputs(1), false), whole.run("value", sums_inputs(1), true))
      << "the mean is another";
}

// What a change adds: the result times a number that is kept, and the sum of what there was.
graph::Graph times_kept(graph::Graph g) {
  graph::Builder b(g);
  const graph::ValueId before = g.results[0];
  const graph::ValueId factor = b.input("factor", graph::Role::data, graph::Type{{}, {}});
  const graph::ValueId scaled = b.mul(before, b.broadcast(factor, b.type(before).shape));
  const graph::ValueId total = b.reduce(before, graph::Reduction::sum, {0});
  g.results = {scaled, total};
  g.result_names = {model::arch::kResult, "total"};
  return g;
}

TEST(Network, RunsAFunctionWithAChange) {
  const model::arch::LibraryRef texts = sums_library();
  Network network(engine(), *texts, sums_settings());
  const std::vector<float> plain = network.run("value", sums_inputs(3));
  network.define("scaled", times_kept);
  const float three = 3;
  network.keep("factor", graph::Type{{}, {}}, std::as_bytes(std::span(&three, 1)));
  const auto results = network.results("value", sums_inputs(3), false, "scaled");
  double total = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(results.at(model::arch::kResult)[i], 3 * plain[i]);
    total += plain[i];
  }
  EXPECT_NEAR(results.at("total")[0], total, 1e-4);
  EXPECT_EQ(network.run("value", sums_inputs(3)), plain);
}

TEST(Network, WeightsAreReadAndWritten) {
  const model::arch::LibraryRef texts = sums_library();
  Network network(engine(), *texts, sums_settings());
  std::vector<float> up = network.read("up");
  ASSERT_EQ(up.size(), 32U);
  for (float& x : up) x = 0;
  network.write("up", up);
  EXPECT_EQ(network.read("up"), up);
  for (const float x : network.run("value", sums_inputs(3))) EXPECT_EQ(x, 0);
  EXPECT_THROW(network.write("up", std::span(up).first(3)), Error);
  EXPECT_THROW((void)network.read("sideways"), Error);
}

TEST(Network, WhatIsNotThereIsNamed) {
  const model::arch::LibraryRef texts = sums_library();
  NetworkSettings s = sums_settings();
  s.size = "wide";
  Network network(engine(), *texts, s);
  EXPECT_EQ(network.config("inner"), 32);
  EXPECT_THROW((void)network.config("outer"), Error);
  EXPECT_THROW((void)network.run("gradient", sums_inputs(0)), Error);
  s.size = "wider";
  EXPECT_THROW(Network(engine(), *texts, s), Error);
  const model::TestFolder empty;
  EXPECT_THROW((void)Network::load(engine(), *texts, empty.path()), Error);
}

TEST(Network, LossesThatAreNoNumbersStop) {
  const model::arch::LibraryRef texts = sums_library();
  Network network(engine(), *texts, sums_settings());
  NetworkInputs bad = sums_inputs(0);
  bad.numbers["y"][3] = std::numeric_limits<float>::infinity();
  try {
    (void)network.step("loss", bad, 0.01);
    FAIL() << "nothing stopped";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::numeric);
  }
}

}  // namespace
}  // namespace lumen::apps
