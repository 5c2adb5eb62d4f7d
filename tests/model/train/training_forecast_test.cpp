// needs: none. What training was said to need is what the engine then takes; what does not fit is refused before any
// weight is made.
#include <cstdlib>

#include "base/error.h"
#include "model/train/trainer/forecast.h"
#include "model/train/trainer/trainer.h"
#include "tests/model/tiny.h"
#include "tests/model/train/training_case.h"

namespace lumen::model::train {
namespace {

arch::Model small_llama(double hidden, double ffn) {
  const arch::FamilyRef family = test_library()->family("llama");
  return outline(family, family->config("", {{"vocab", 4096},
                                             {"hidden", hidden},
                                             {"layers", 2},
                                             {"heads", 4},
                                             {"kv_heads", 2},
                                             {"head_dim", 16},
                                             {"ffn", ffn},
                                             {"context", 32}}));
}

TEST(TrainingForecast, IsWhatIsTaken) {
  const arch::Model plan = small_llama(64, 256);
  recipe::Recipe recipe;
  recipe.batch = 4;
  recipe.schedule.steps = 2;
  recipe.schedule.warmup = 0;
  const auto data = [] {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += fmt::format("{} is a number. ", i * i % 977);
    return std::make_shared<data::Dataset>(data::Dataset::from_text(text, text::Tokenizer::characters(text)));
  }();
  int64_t trained = 0;
  for (const arch::Parameter& p : plan.parameters)
    if (!p.frozen) trained += p.count() * 4;
  for (const int64_t accumulate : {1, 3}) {
    recipe.accumulate = accumulate;
    run::Engine own = make_engine(2);
    const TrainingForecast f = forecast_training(own, plan, recipe);
    EXPECT_EQ(f.weights, plan.weight_count() * 4);
    EXPECT_EQ(f.moments, 2 * trained);
    EXPECT_EQ(f.gradients, accumulate == 1 ? 0 : trained);
    arch::Model model = initialise(plan.family, plan.config, 1);
    Trainer trainer(own, std::move(model), recipe, data);
    (void)trainer.step();
    (void)trainer.evaluate(2);
    const int64_t taken = own.device().memory().peak;
    EXPECT_GE(f.total(), taken * 98 / 100) << accumulate;
    EXPECT_LE(f.total(), taken * 102 / 100) << accumulate;
  }
}

// What is said without planning a step is never more than what planning says, and all of it but values.
TEST(TrainingForecast, WhatIsCertainIsAtMostTheForecast) {
  const arch::Model plan = small_llama(64, 256);
  run::Engine own = make_engine(2);
  for (const char* offload : {"", "moments", "layers", "activations"})
    for (const char* recompute : {"none", "layers"})
      for (const int64_t accumulate : {1, 4}) {
        recipe::Recipe recipe;
        recipe.batch = 4;
        recipe.accumulate = accumulate;
        recipe.offload = offload;
        recipe.recompute = recompute;
        const TrainingForecast certain = certain_training(own, plan, recipe),
                               whole = forecast_training(own, plan, recipe);
        const std::string shown = fmt::format("{} {} {}", offload, recompute, accumulate);
        EXPECT_EQ(certain.weights, whole.weights) << shown;
        EXPECT_EQ(certain.moments, whole.moments) << shown;
        EXPECT_EQ(certain.gradients, whole.gradients) << shown;
        EXPECT_EQ(certain.evaluation, 0) << shown;
        EXPECT_GE(certain.weights, plan.weight_count() * (std::string(offload) == "layers" ? 0 : 4)) << shown;
        EXPECT_LE(certain.total(), whole.total()) << shown;
      }
}

TEST(TrainingForecast, RefusedBeforeAnythingIsMade) {
  ::setenv("LUMEN_MEMORY", "2G", 1);
  const auto refusal = [](const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::hardware) << e.what();
      return std::string(e.what());
    }
    return std::string();
  };
  run::Engine own = make_engine(2);
  recipe::Recipe recipe;
  const arch::Model large = small_llama(1 << 14, 1 << 16);
  const std::string weights = refusal([&] { require_training(own, large, recipe); });
  EXPECT_NE(weights.find("weights"), std::string::npos) << weights;
  EXPECT_NE(weights.find("states of the optimizer"), std::string::npos) << weights;
  EXPECT_NE(refusal([&] { (void)initialise(large.family, large.config, 1); }), "");
  // Few weights, and values without measure.
  for (const int64_t batch : {int64_t{1} << 20, int64_t{1} << 40, INT64_MAX}) {
    recipe.batch = batch;
    EXPECT_NE(refusal([&] { require_training(own, small_llama(64, 256), recipe); }), "") << batch;
  }
  // The same batch in parts is the cheapest way out, and is told.
  recipe.batch = 1 << 15;
  std::string hint;
  try {
    require_training(own, small_llama(64, 256), recipe);
  } catch (const Error& e) {
    hint = e.hint();
  }
  int64_t batch = 0, accumulate = 0;
  ASSERT_EQ(std::sscanf(hint.c_str(), "--batch %ld --accumulate %ld", &batch, &accumulate), 2) << hint;
  EXPECT_EQ(batch * accumulate, recipe.batch);
  recipe.batch = batch;
  recipe.accumulate = accumulate;
  EXPECT_EQ(refusal([&] { require_training(own, small_llama(64, 256), recipe); }), "");
  recipe.accumulate = 1;
  ::unsetenv("LUMEN_MEMORY");
  recipe.batch = 2;
  EXPECT_EQ(refusal([&] { require_training(own, small_llama(64, 256), recipe); }), "");
}

}  // namespace
}  // namespace lumen::model::train
