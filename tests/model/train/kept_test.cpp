// needs: none. What a step keeps between its passes: computed again or kept as codes it takes less memory, in every
// precision; training with codes goes as without, resumed bit for bit on any number of threads.
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/train/loop/loop.h"
#include "model/train/trainer/forecast.h"
#include "tests/model/train/offload/offload_case.h"

namespace lumen::model::train {
namespace {

const graph::Config kDeep = {{"hidden", 128}, {"layers", 12}, {"ffn", 384}, {"head_dim", 32}};

recipe::Recipe recipe_of(const std::string& precision) {
  recipe::Recipe small = small_recipe();
  const auto text = test_library()->recipe(precision);
  recipe::Recipe r = text ? parse_recipe(text->text, precision, small) : small;
  if (!text) r.precision = precision;
  r.length = 32;
  return r;
}

// Bytes of a step's values beside the gradients of what is trained, which are there in every case.
int64_t kept_bytes(const recipe::Recipe& recipe) {
  run::Engine engine = make_engine(2);
  const arch::Model model = small_model(kDeep);
  return forecast_training(engine, model, recipe, {}, false, nullptr).values - model.weight_count() * 4;
}

TEST(Kept, ComputingAgainAndCodesTakeLess) {
  int64_t plain = 0;
  for (const char* precision : {"bf16", "moss", "fp8-delayed"}) {
    recipe::Recipe r = recipe_of(precision);
    r.batch = 32;
    const int64_t whole = kept_bytes(r);
    if (plain == 0) plain = whole;
    r.recompute = "layers";
    EXPECT_LT(kept_bytes(r), whole * 0.4) << precision;
    r.recompute = "maps";
    EXPECT_LE(kept_bytes(r), whole) << precision;
    r.recompute = "none";
    r.kept = "fp8_row";
    const int64_t kept = kept_bytes(r);
    EXPECT_LT(kept, whole * 0.75) << precision;
    r.products.attention = "fp8_row";
    EXPECT_LT(kept_bytes(r), kept) << precision;
    // MOSS, table 5: a peak of activations 1.8 times smaller than with 16 bits.
    EXPECT_LT(kept_bytes(r), plain * (r.products.weight_scale == "predicted" ? 0.55 : 1.2)) << precision;
  }
}

TEST(Kept, TrainsAsWithout) {
  run::Engine engine = make_engine(2), single = make_engine(1);
  for (const char* precision : {"bf16", "moss"}) {
    const recipe::Recipe plain = recipe_of(precision);
    Trainer reference(engine, small_model(), plain, small_data());
    const double want = run_training(reference, {}).validation_loss;
    recipe::Recipe r = plain;
    r.kept = "fp8_row";
    r.products.attention = "fp8_row";
    r.products.attention_gradient = "fp8_e5m2_row";
    Trainer trainer(engine, small_model(), r, small_data());
    const double loss = run_training(trainer, {}).validation_loss;
    EXPECT_NE(loss, want) << precision;
    // No worse: how far apart they end depends on the order in which a processor adds.
    EXPECT_LE(loss, 1.15 * want) << precision;
    // In one step no order shows: the forward pass is what it is without, gradients are of decoded codes.
    recipe::Recipe alone = plain;
    alone.kept = "fp8_row";
    Trainer one(engine, small_model(), plain, small_data()), kept(engine, small_model(), alone, small_data());
    const Trainer::Step as_it_is = one.step(), coded = kept.step();
    EXPECT_NEAR(coded.loss, as_it_is.loss, 1e-5 * as_it_is.loss) << precision;
    EXPECT_NE(coded.norm, as_it_is.norm) << precision;
    EXPECT_NEAR(coded.norm, as_it_is.norm, 0.05 * as_it_is.norm) << precision;

    Trainer straight(engine, small_model(), r, small_data()), first(single, small_model(), r, small_data());
    for (int i = 0; i < 5; ++i) (void)straight.step();
    for (int i = 0; i < 3; ++i) (void)first.step();
    const TestFolder folder;
    const auto saved = first.save(folder.path());
    Trainer second(engine, small_model(), r, small_data());
    second.restore(saved);
    for (int i = 0; i < 2; ++i) (void)second.step();
    EXPECT_EQ(weights_of(straight), weights_of(second)) << precision;
  }
}

TEST(Kept, WhatCannotBeIsSaid) {
  run::Engine engine = make_engine(1);
  recipe::Recipe r = recipe_of("bf16");
  r.kept = "no_such_format";
  EXPECT_THROW(Trainer(engine, small_model(), r, small_data()), Error);
  r.kept = "fp8_row";
  r.offload = "layers";
  EXPECT_THROW(Trainer(engine, small_model(), r, small_data()), Error);
}

}  // namespace
}  // namespace lumen::model::train
