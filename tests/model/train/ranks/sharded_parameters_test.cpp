// needs: none. Parameters in parts of several ranks: what comes is the whole, of a format what it holds; what goes is
// summed; steps by layers have the same bits whether exchanges go on beside them or not, and those of one process but
// for the order of sums, with tied weights, in bf16, with rounded weights; a rank that fails within a step ends all.
#include "model/train/ranks/sharded_parameters.h"

#include "base/error.h"
#include "tests/model/train/ranks/ranked_run.h"

namespace lumen::model::train {
namespace {

arch::Parameter parameter(const std::string& name, graph::Shape shape) {
  arch::Parameter p;
  p.name = name;
  p.shape = std::move(shape);
  return p;
}

float told_number(size_t i) {
  return 0.01F * (i % 37) - 0.1F;
}

// Numbers of a matrix of 5 rows of 32 that 2 ranks have, as each is told them, and sums of what they hand in.
struct Told {
  std::vector<float> whole, sum;
};

Told told(run::Communicator& ranks, const FormatRef& format, bool overlaps) {
  run::Engine engine = make_engine(1);
  const std::vector<arch::Parameter> all = {parameter("w", {5, 32}), parameter("other", {64})};
  recipe::Recipe recipe = small_recipe();
  const recipe::Optimizer optimizer(*test_library(), recipe.optimizer);
  const std::vector<Cut> cuts = cut_parameters(all, optimizer, ranks.size());
  std::map<std::string, run::DeviceTensorRef> tensors;
  const auto tensor = [&](const std::string& name, const graph::Type& type) {
    run::DeviceTensorRef& t = tensors[name];
    if (!t) t = std::make_shared<run::DeviceTensor>(engine.device(), type);
    return t;
  };
  const auto f32 = [](const Cut& cut) { return graph::Type{cut.whole.shape, {Scalar::f32, nullptr}}; };
  ExchangedParameters exchanged{{}, format, format, overlaps};
  for (const Cut& cut : cuts) exchanged.parts.push_back({{&cut, f32(cut)}});
  ShardedParameters store(engine, ranks, exchanged, tensor);
  std::vector<float> numbers(5 * 32);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = told_number(i);
  const Cut& cut = cuts[0];
  if (cut.rows_of(ranks.rank()) > 0)
    tensor("w", cut.part_of(f32(cut), ranks.rank()))
        ->upload(numbers.data() + cut.first[ranks.rank()] * 32, cut.rows_of(ranks.rank()) * 32 * sizeof(float));
  Told out{std::vector<float>(numbers.size()), std::vector<float>(cut.rows_of(ranks.rank()) * 32)};
  for (int batch = 0; batch < 2; ++batch) {
    store.prefetch(0);
    store.prefetch(1);
    store.acquire(0);
    store.tensor(0, "w")->download(out.whole.data(), out.whole.size() * sizeof(float));
    store.release(0);
    store.open_gradients(0, batch == 0);
    const std::vector<float> mine(numbers.size(), ranks.rank() + 1.0F);
    store.tensor(0, "gradient.w")->upload(mine.data(), mine.size() * sizeof(float));
    store.close_gradients(0);
    store.acquire(1);
    store.release(1);
    store.end_pass();
  }
  if (!out.sum.empty()) tensors.at("gradient.w")->download(out.sum.data(), out.sum.size() * sizeof(float));
  return out;
}

TEST(ShardedParameters, GathersPartsAndSumsGradients) {
  for (const bool overlaps : {false, true})
    for (const char* format : {"", "q8_0"}) {
      const FormatRef coded = *format ? test_library()->formats().get(format) : nullptr;
      std::vector<Told> of(3);
      const auto errors =
          run::among_shared(3, [&](run::Communicator& own) { of[own.rank()] = told(own, coded, overlaps); });
      EXPECT_EQ(errors, run::kNoErrors3);
      size_t rows = 0;
      for (const Told& one : of) {
        EXPECT_EQ(one.whole, of[0].whole);
        for (size_t i = 0; i < one.whole.size(); ++i)
          EXPECT_NEAR(one.whole[i], told_number(i), coded ? 0.26 / 127 : 0) << i;
        for (const float sum : one.sum) EXPECT_NEAR(sum, 2 * 6, coded ? 0.1 : 0);
        rows += one.sum.size() / 32;
      }
      EXPECT_EQ(rows, 5U);
    }
}

TEST(ShardedParameters, StepsHaveTheSameBitsBesideExchanges) {
  struct Case {
    const char* name;
    std::function<void(recipe::Recipe&)> change;
    graph::Config config = {};
    double within = 1e-5;
  };
  const Case cases[] = {
      {"tied", [](recipe::Recipe&) {}, {{"tied", 1}}},
      {"two batches", [](recipe::Recipe& r) { r.accumulate = 2; }},
      {"bf16", [](recipe::Recipe& r) { r.param_type = "bf16"; }, {}, 1e-2},
      {"rounded weights",
       [](recipe::Recipe& r) { r.quantize.push_back({.values = {}, .roles = {"ffn_up"}, .format = "q8_0"}); }},
      {"a mean", [](recipe::Recipe& r) { r.optimizer.ema_decay = 0.9; }},
  };
  for (const Case& c : cases) {
    recipe::Recipe recipe = small_recipe();
    c.change(recipe);
    const RankedRun one = trained(recipe, 4, nullptr, {}, c.config);
    recipe.shard = "parameters";
    const RankedRun beside = among_ranks(2, recipe, 4, {}, c.config)[0];
    SCOPED_TRACE(c.name);
    expect_near(one, beside, c.within);
    recipe.overlap = false;
    EXPECT_EQ(among_ranks(2, recipe, 4, {}, c.config)[0].weights, beside.weights);
  }
}

TEST(ShardedParameters, TheMeanOfTheWeightsIsHeldInPartsAsWell) {
  recipe::Recipe recipe = small_recipe();
  recipe.optimizer.ema_decay = 0.5;
  const auto means = [&](std::shared_ptr<run::Communicator> ranks) {
    run::Engine engine = make_engine(1);
    const Fresh s(recipe);
    Trainer trainer(engine, s.model, recipe, s.batches, nullptr, std::move(ranks));
    for (int i = 0; i < 3; ++i) (void)trainer.step();
    std::vector<double> out = {trainer.evaluate_average(4), trainer.evaluate(4)};
    trainer.finish();
    if (trainer.writes()) {
      const auto weights = weights_of(trainer);
      trainer.exchange_average();
      EXPECT_NE(weights_of(trainer), weights);
    }
    return out;
  };
  const std::vector<double> alone = means(nullptr);
  recipe.shard = "parameters";
  const auto errors = run::among_shared(2, [&](run::Communicator& own) {
    const std::vector<double> of = means({&own, [](run::Communicator*) {}});
    for (size_t i = 0; i < of.size(); ++i) EXPECT_NEAR(of[i], alone[i], 1e-5 * alone[i]);
  });
  EXPECT_EQ(errors, run::kNoErrors2);
  EXPECT_NE(alone[0], alone[1]);
}

// A number that is none stops one rank's encoder in the middle of a step, and all others with it.
TEST(ShardedParameters, ARankThatFailsWithinAStepEndsAll) {
  const auto errors = run::among_shared(2, [](run::Communicator& own) {
    run::Engine engine = make_engine(1);
    recipe::Recipe recipe = small_recipe();
    recipe.schedule.peak = recipe.schedule.floor = 1e30;
    recipe.schedule.warmup = 0;
    recipe.shard = "parameters";
    recipe.reduce_type = "q8_0";
    const Fresh s(recipe);
    Trainer trainer(engine, s.model, recipe, s.batches, nullptr, {&own, [](run::Communicator*) {}});
    for (int i = 0; i < 5; ++i) (void)trainer.step();
  });
  EXPECT_NE(errors[0], "");
  EXPECT_EQ(errors[0], errors[1]);
}

TEST(ShardedParameters, WhatNeedsAllParametersIsRefused) {
  recipe::Recipe recipe = small_recipe();
  recipe.shard = "parameters";
  recipe.adapter.method = "lora";
  const auto errors = run::among_shared(2, [&](run::Communicator& own) {
    run::Engine engine = make_engine(1);
    const Fresh s(recipe);
    const Trainer trainer(engine, s.model, recipe, s.batches, nullptr, {&own, [](run::Communicator*) {}});
  });
  EXPECT_NE(errors[0].find("--shard parameters: an adapter"), std::string::npos) << errors[0];
}

}  // namespace
}  // namespace lumen::model::train
