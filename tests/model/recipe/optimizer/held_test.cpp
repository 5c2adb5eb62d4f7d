// needs: none. Parameters held in bf16: rounded stochastically, by a counter, on average without loss.
#include "model/recipe/optimizer/held.h"

#include <cmath>

#include "base/error.h"
#include "graph/ir/verify.h"
#include "model/train/loop/loop.h"
#include "number/formula/scalar.h"
#include "tests/model/tiny.h"
#include "tests/model/train/training_case.h"

namespace lumen::model::recipe {
namespace {

// y = round_stochastically(x), many at once.
std::vector<double> rounded(const std::vector<double>& x, uint32_t seed, uint32_t salt) {
  graph::Graph g;
  graph::Builder build(g);
  const auto count = static_cast<int64_t>(x.size());
  const graph::ValueId value = build.input("x", graph::Role::data, {{graph::Dim(count)}, {Scalar::f32, nullptr}});
  const graph::ValueId s = build.input("seed", graph::Role::data, {{}, {Scalar::u32, nullptr}});
  g.results = {round_stochastically(build, value, s, salt)};
  g.result_names = {"y"};
  EXPECT_EQ(graph::verify(g), "");
  graph::Tensor t;
  t.type = g[value].type;
  t.values = x;
  return graph::eval(g, {{"x", t}, {"seed", number(seed, Scalar::u32)}}, {})[0].values;
}

TEST(Held, RoundsToNeighboursAndRightOnAverage) {
  for (const double x : {1.001, -1.001, 3.14159, 1e-30, -2.5e20, 0.0}) {
    const std::vector<double> y = rounded(std::vector<double>(20000, static_cast<double>(static_cast<float>(x))), 7, 3);
    const double ulp = std::ldexp(1, std::ilogb(x == 0 ? 1 : x) - 7);
    double mean = 0;
    for (const double v : y) {
      EXPECT_EQ(v, static_cast<double>(bf16_to_f32(f32_to_bf16(static_cast<float>(v))))) << x;
      ASSERT_LT(std::abs(v - x), ulp) << x;
      mean += v / static_cast<double>(y.size());
    }
    EXPECT_NEAR(mean, x, 0.02 * ulp) << x;
  }
  // What bf16 holds stays; what is not finite stays so.
  for (const double x : {1.5, -0.25, 0.0, std::numeric_limits<double>::infinity()})
    for (const double v : rounded(std::vector<double>(100, x), 7, 3)) EXPECT_EQ(v, x);
  EXPECT_TRUE(std::isnan(rounded({std::nan("")}, 7, 3)[0]) || std::isinf(rounded({std::nan("")}, 7, 3)[0]));
  EXPECT_NE(rounded(std::vector<double>(64, 1.001), 7, 3), rounded(std::vector<double>(64, 1.001), 8, 3));
  EXPECT_NE(rounded(std::vector<double>(64, 1.001), 7, 3), rounded(std::vector<double>(64, 1.001), 7, 4));
}

TEST(Held, SeedsOfStepsDiffer) {
  std::set<uint32_t> seeds;
  for (uint32_t run = 0; run < 10; ++run)
    for (int64_t step = 0; step < 100; ++step) seeds.insert(rounding_seed(run, step));
  EXPECT_EQ(seeds.size(), 1000U);
}

struct Start {
  arch::Model model;
  std::shared_ptr<data::Dataset> data;
  Start() {
    const text::Tokenizer tokenizer = text::Tokenizer::characters(train::training_text());
    data = std::make_shared<data::Dataset>(data::Dataset::from_text(train::training_text(), tokenizer));
    const arch::FamilyRef family = test_library()->family("llama");
    model = initialise(family, family->config("tiny", {{"vocab", static_cast<double>(tokenizer.size())}}), 3);
    model.tokenizer = tokenizer;
  }
};

TEST(Held, TrainsNearlyAsWellAndRepeats) {
  const Start s;
  std::vector<double> losses;
  std::map<std::string, std::vector<uint8_t>> first;
  for (const char* type : {"f32", "bf16", "bf16"}) {
    run::Engine own = train::make_engine(first.empty() ? 2 : 1);
    Recipe recipe = train::small_recipe();
    recipe.param_type = type;
    train::Trainer trainer(own, s.model, recipe, s.data);
    losses.push_back(run_training(trainer, {}).validation_loss);
    if (recipe.param_type != "bf16") continue;
    if (first.empty())
      first = weights_of(trainer);
    else
      EXPECT_EQ(weights_of(trainer), first) << "other bits on another number of threads";
    for (const auto& [name, w] : trainer.model().weights) {
      if (w.type.shape.size() < 2) continue;
      for (const float x : w.f32()) ASSERT_EQ(x, bf16_to_f32(f32_to_bf16(x))) << name;
    }
  }
  EXPECT_NEAR(losses[1], losses[0], 0.05 * losses[0]);
  Recipe wrong = train::small_recipe();
  wrong.param_type = "i99";
  EXPECT_THROW(train::Trainer(engine(), s.model, wrong, s.data), Error);
}

// Moves far below a step of bf16: rounded to nearest they would all be lost.
TEST(Held, SmallMovesAreNotLost) {
  const Start s;
  Recipe recipe = train::small_recipe();
  recipe.param_type = "bf16";
  recipe.optimizer.weight_decay = 0;
  recipe.schedule = {.shape = Schedule::Shape::constant, .peak = 1e-6, .floor = 0, .warmup = 0, .steps = 3};
  train::Trainer trainer(engine(), s.model, recipe, s.data);
  const arch::Model before = trainer.model();
  for (int i = 0; i < 3; ++i) (void)trainer.step();
  const arch::Model after = trainer.model();
  int64_t moved = 0;
  for (const auto& [name, w] : after.weights) {
    if (w.type.shape.size() < 2) continue;
    for (size_t i = 0; i < w.f32().size(); ++i) moved += w.f32()[i] != before.weights.at(name).f32()[i];
  }
  EXPECT_GT(moved, 0);
}

class HeldResume : public testing::TestWithParam<int64_t> {};

TEST_P(HeldResume, IsBitExact) {
  const Start s;
  Recipe recipe = train::small_recipe();
  recipe.param_type = "bf16";
  recipe.accumulate = GetParam();
  QuantizeRule rule;
  rule.values = {"layers.0.*"};
  rule.format = "q4_0";
  recipe.quantize = {rule};
  train::Trainer straight(engine(), s.model, recipe, s.data);
  for (int i = 0; i < 4; ++i) (void)straight.step();
  const TestFolder folder;
  train::Trainer first(engine(), s.model, recipe, s.data);
  for (int i = 0; i < 2; ++i) (void)first.step();
  const auto saved = first.save(folder.path());
  const file::Checkpoint c = file::load_checkpoint(saved, test_library()->formats());
  EXPECT_EQ(c.weights->get("layers.0.wq").element.scalar, Scalar::bf16);
  EXPECT_EQ(c.weights->get("norm").element.scalar, Scalar::f32);
  train::Trainer second(engine(), s.model, recipe, s.data);
  second.restore(c);
  for (int i = 0; i < 2; ++i) (void)second.step();
  EXPECT_EQ(weights_of(second), weights_of(straight));
  EXPECT_TRUE(std::isfinite(second.evaluate()));
}

INSTANTIATE_TEST_SUITE_P(Accumulation, HeldResume, testing::Values(1, 2));

}  // namespace
}  // namespace lumen::model::recipe
