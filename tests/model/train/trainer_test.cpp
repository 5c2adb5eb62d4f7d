// needs: none. Training on the real engine: the loss falls, runs repeat and resume bit for bit, formats take part.
#include "model/train/trainer/trainer.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "model/infer/measure/perplexity.h"
#include "model/train/loop/loop.h"
#include "tests/model/tiny.h"
#include "tests/model/train/training_case.h"

namespace lumen::model::train {
namespace {

struct Fresh {
  arch::Model model;
  std::shared_ptr<data::Dataset> data;
  explicit Fresh(uint32_t seed = 3) {
    const text::Tokenizer tokenizer = text::Tokenizer::characters(training_text());
    data = std::make_shared<data::Dataset>(data::Dataset::from_text(training_text(), tokenizer));
    const arch::FamilyRef family = test_library()->family("llama");
    model = initialise(family, family->config("tiny", {{"vocab", static_cast<double>(tokenizer.size())}}), seed);
    model.tokenizer = tokenizer;
  }
};

TEST(Trainer, LossFallsAndEvaluationAgrees) {
  run::Engine engine = make_engine(2);
  const Fresh s;
  Trainer trainer(engine, s.model, small_recipe(), s.data);
  const double before = trainer.evaluate();
  EXPECT_NEAR(before, std::log(static_cast<double>(s.model.integer("vocab"))), 0.2);
  const LoopResult r = run_training(trainer, {});
  EXPECT_LT(r.validation_loss, 0.7 * before);
  // The same figure by the road of inference.
  const arch::Model m = trainer.model();
  const infer::LoadedModel loaded(engine, m);
  infer::PerplexityOptions o;
  o.length = 16;
  o.full = true;
  const infer::Perplexity p = perplexity(loaded, s.data->validation(), o);
  EXPECT_NEAR(p.nats, r.validation_loss, 0.1);
}

// Operands rounded to a 16-bit float: other numbers, nearly the same training.
TEST(Trainer, SixteenBitFloatsInTheProducts) {
  run::Engine engine = make_engine(2);
  const Fresh s;
  std::vector<double> losses;
  for (const char* precision : {"f32", "bf16"}) {
    recipe::Recipe recipe = small_recipe();
    recipe.precision = precision;
    Trainer trainer(engine, s.model, recipe, s.data);
    losses.push_back(run_training(trainer, {}).validation_loss);
  }
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_NEAR(losses[1], losses[0], 0.05 * losses[0]);

  recipe::Recipe unknown = small_recipe();
  unknown.precision = "q4_0";
  EXPECT_THROW(Trainer(engine, s.model, unknown, s.data), Error);
}

TEST(Trainer, SameBitsForAnyThreadCount) {
  const Fresh s;
  for (const char* precision : {"f32", "bf16"}) {
    std::map<std::string, std::vector<uint8_t>> first;
    for (const int threads : {1, 2, 3}) {
      run::Engine engine = make_engine(threads);
      recipe::Recipe recipe = small_recipe();
      recipe.precision = precision;
      Trainer trainer(engine, s.model, recipe, s.data);
      for (int i = 0; i < 3; ++i) (void)trainer.step();
      if (first.empty()) {
        first = weights_of(trainer);
      } else {
        EXPECT_EQ(weights_of(trainer), first) << precision << ", " << threads << " threads";
      }
    }
  }
}

class Resume : public testing::TestWithParam<int64_t> {};

TEST_P(Resume, IsBitExact) {
  run::Engine engine = make_engine(2);
  const Fresh s;
  recipe::Recipe recipe = small_recipe();
  recipe.accumulate = GetParam();
  Trainer straight(engine, s.model, recipe, s.data);
  for (int i = 0; i < 6; ++i) (void)straight.step();
  const TestFolder folder;
  Trainer first(engine, s.model, recipe, s.data);
  for (int i = 0; i < 3; ++i) (void)first.step();
  const auto saved = first.save(folder.path());
  const Fresh other(99);  // different weights: all must come from the checkpoint
  Trainer second(engine, other.model, recipe, s.data);
  second.restore(saved);
  EXPECT_EQ(second.done(), 3);
  for (int i = 0; i < 3; ++i) (void)second.step();
  EXPECT_EQ(weights_of(second), weights_of(straight));
}

INSTANTIATE_TEST_SUITE_P(Accumulation, Resume, testing::Values(1, 3));

TEST(Trainer, FormatsInTheLoopBeatRoundingAfterwards) {
  run::Engine engine = make_engine(2);
  const Fresh s;
  Trainer plain(engine, s.model, small_recipe(), s.data);
  (void)run_training(plain, {});
  recipe::Recipe recipe = small_recipe();
  recipe::QuantizeRule rule;
  rule.values = {"*"};
  rule.format = "q4_0";
  recipe.quantize = {rule};
  // Evaluating the trained weights with the rounding in place costs something; training with it wins some back.
  Trainer rounded(engine, plain.model(), recipe, s.data);
  const double before = rounded.evaluate();
  EXPECT_GT(before, plain.evaluate());
  (void)run_training(rounded, {});
  EXPECT_LT(rounded.evaluate(), before);
}

TEST(Trainer, RoundingNeverTouchesTheWeightsThemselves) {
  run::Engine engine = make_engine(2);
  const Fresh s;
  recipe::Recipe recipe = small_recipe();
  recipe.schedule.peak = recipe.schedule.floor = 0;
  recipe.quantize.resize(1);
  recipe.quantize[0].values = {"*"};
  recipe.quantize[0].format = "int2_g32";
  Trainer trainer(engine, s.model, recipe, s.data);
  (void)trainer.step();
  for (const auto& [name, w] : trainer.model().weights) EXPECT_EQ(w.bytes, s.model.weights.at(name).bytes) << name;
}

// Scales as parameters: they begin where rounding fits them, move, beat fitted ones, resume exactly, and land in the
// file.
TEST(Trainer, LearnedScales) {
  run::Engine engine = make_engine(2);
  const Fresh s;
  Trainer plain(engine, s.model, small_recipe(), s.data);
  (void)run_training(plain, {});
  const arch::Model start = plain.model();
  recipe::Recipe recipe = small_recipe();
  recipe.quantize.resize(1);
  recipe.quantize[0].values = {"*"};
  recipe.quantize[0].format = "int3_g32";
  Trainer fitted(engine, start, recipe, s.data);
  recipe.quantize[0].source = FieldSource::learned;
  Trainer learned(engine, start, recipe, s.data);
  const double before = learned.evaluate();
  EXPECT_NEAR(before, fitted.evaluate(), 0.02);
  const TestFolder folder;
  for (int i = 0; i < 2; ++i) (void)learned.step();
  const auto saved = learned.save(folder.path());
  (void)run_training(learned, {});
  const double after = learned.evaluate();
  EXPECT_LT(after, before);
  Trainer resumed(engine, start, recipe, s.data);
  resumed.restore(saved);
  (void)run_training(resumed, {});
  EXPECT_EQ(weights_of(resumed), weights_of(learned));
  EXPECT_EQ(resumed.evaluate(), after);
  // What rounded() encodes is what training saw.
  const arch::Model m = learned.rounded();
  EXPECT_EQ(m.weights.at("layers.0.wq").type.element.format->name, "int3_g32");
  const infer::LoadedModel loaded(engine, m);
  infer::PerplexityOptions o;
  o.length = 16;
  o.full = true;
  o.exact = true;
  const double nats = perplexity(loaded, s.data->validation(), o).nats;
  EXPECT_NEAR(nats, after, 0.1);
}

TEST(Trainer, StopsOnNumbersThatAreNotFinite) {
  run::Engine engine = make_engine(2);
  Fresh s;
  std::vector<float> values(s.model.weights.at("norm").f32().begin(), s.model.weights.at("norm").f32().end());
  values[0] = std::numeric_limits<float>::max();
  s.model.weights.at("norm") = arch::f32_weight(s.model.weights.at("norm").type.shape, values);
  Trainer trainer(engine, s.model, small_recipe(), s.data);
  try {
    (void)trainer.step();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::numeric);
    EXPECT_FALSE(e.hint().empty());
  }
}

TEST(Loop, StopsOnRequestWithACheckpoint) {
  run::Engine engine = make_engine(2);
  const Fresh s;
  Trainer trainer(engine, s.model, small_recipe(), s.data);
  (void)trainer.step();
  const TestFolder folder;
  const std::atomic<bool> stop{true};
  LoopOptions o;
  o.out = folder.path();
  o.stop = &stop;
  const LoopResult r = run_training(trainer, o);
  EXPECT_TRUE(r.interrupted);
  EXPECT_EQ(file::load_checkpoint(r.checkpoint, test_library()->formats()).state.step, 1);
}

}  // namespace
}  // namespace lumen::model::train
