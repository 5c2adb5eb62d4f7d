// needs: none. Samplers; the one-token step against the whole-text function.
#include <cmath>
#include <map>

#include "base/error.h"
#include "graph/ir/verify.h"
#include "model/infer/sample/sampler.h"
#include "tests/model/tiny.h"

namespace lumen::model::infer {
namespace {

const std::vector<float> kLogits = {1.0F, 3.0F, 2.0F, -1.0F, 2.9F};

std::map<text::TokenId, int> draw(SamplerOptions options, int count = 4000) {
  Sampler s(options);
  std::map<text::TokenId, int> seen;
  for (int i = 0; i < count; ++i) ++seen[s.pick(kLogits)];
  return seen;
}

SamplerOptions open_sampler() {
  SamplerOptions o;
  o.temperature = 1;
  o.top_k = 0;
  o.top_p = 1;
  o.min_p = 0;
  return o;
}

TEST(Sampler, Greedy) {
  SamplerOptions o = open_sampler();
  o.temperature = 0;
  EXPECT_EQ(draw(o, 5), (std::map<text::TokenId, int>{{1, 5}}));
}

TEST(Sampler, FrequenciesAreSoftmax) {
  const auto seen = draw(open_sampler());
  double all = 0;
  for (float x : kLogits) all += std::exp(x);
  for (size_t i = 0; i < kLogits.size(); ++i) {
    const double expected = 4000 * std::exp(kLogits[i]) / all;
    const auto found = seen.find(static_cast<text::TokenId>(i));
    EXPECT_NEAR(found == seen.end() ? 0 : found->second, expected, 5 * std::sqrt(expected) + 1) << i;
  }
}

TEST(Sampler, Filters) {
  SamplerOptions o = open_sampler();
  o.top_k = 2;
  EXPECT_EQ(draw(o).size(), 2);
  o = open_sampler();
  o.top_p = 0.5;
  EXPECT_EQ(draw(o).size(), 2);  // 0.42 and 0.38
  o = open_sampler();
  o.min_p = 0.3;
  EXPECT_EQ(draw(o).size(), 3);  // exp(-1) = 0.37 is in, exp(-2) = 0.14 is out
}

TEST(Sampler, RepeatPenalty) {
  SamplerOptions o = open_sampler();
  o.temperature = 0;
  o.repeat_penalty = 2;
  Sampler s(o);
  s.accept(1);
  EXPECT_EQ(s.pick(kLogits), 4);
}

TEST(Sampler, SeedNamesTheText) {
  SamplerOptions o = open_sampler();
  o.seed = 9;
  Sampler a(o), b(o);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(a.pick(kLogits), b.pick(kLogits));
}

TEST(Sampler, RefusesNonsense) {
  SamplerOptions o;
  o.top_p = 0;
  EXPECT_THROW(Sampler{o}, Error);
  o = {};
  o.temperature = -1;
  EXPECT_THROW(Sampler{o}, Error);
}

// Feeding a text in pieces through the cache gives the logits of the whole text, to rounding.
TEST(Step, AgreesWithForward) {
  const arch::Model m = tiny_model();
  const int64_t length = 7, cache = 9;
  auto inputs = tiny_inputs(m, 1, length);
  graph::EvalOptions options;
  options.wide = true;
  options.symbols = {{"B", 1}, {"T", length}};
  const auto whole = graph::eval(m.family->function("forward", m.config), inputs, options)[0];
  const auto tokens = inputs.at("tokens").values;

  const graph::Graph step = m.family->function("step", m.config);
  ASSERT_EQ(graph::verify(step), "");
  for (graph::ValueId v : step.inputs()) {
    if (step[v].attributes.role != graph::Role::state) continue;
    graph::Tensor zero;
    zero.type = graph::bind(step[v].type, {{"B", 1}, {"S", cache}});
    zero.values.assign(static_cast<size_t>(graph::elements(zero.type.shape).number()), 0);
    inputs[step[v].attributes.name] = zero;
  }
  int64_t position = 0;
  for (const int64_t piece : {3, 1, 1, 2}) {
    inputs["tokens"] = integers({1, piece}, {tokens.begin() + position, tokens.begin() + position + piece});
    inputs["position"] = number(static_cast<double>(position), Scalar::i32);
    inputs["rows"] = integers({1}, {static_cast<double>(piece - 1)});
    graph::EvalOptions step_options;
    step_options.wide = true;
    step_options.symbols = {{"B", 1}, {"T", piece}, {"R", 1}, {"S", cache}};
    std::map<std::string, graph::Tensor> states;
    const auto logits = graph::eval(step, inputs, step_options, &states)[0];
    for (auto& [name, t] : states) inputs[name] = t;
    position += piece;
    for (size_t v = 0; v < 11; ++v) {
      EXPECT_NEAR(logits.values[v], whole.values[static_cast<size_t>(position - 1) * 11 + v], 1e-9)
          << position << " " << v;
    }
  }
}

}  // namespace
}  // namespace lumen::model::infer
