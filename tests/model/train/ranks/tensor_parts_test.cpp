// needs: cpu. Ranks that hold one model together: parts of tensors in every layout, steps that are those of one
// process, and as much memory as was said.
#include "model/train/ranks/tensor_parts.h"

#include "model/train/trainer/forecast.h"
#include "tests/model/train/ranks/ranked_run.h"

namespace lumen::model::train {
namespace {

TEST(TensorParts, GoOutOfTheWholeAndIntoItAgain) {
  const FormatRef blocks = test_library()->formats().get("q8_0");
  const std::vector<std::pair<graph::Type, graph::Split>> cases = {
      {{{8, 6}, {Scalar::f32, nullptr}}, {0, {8}}},    {{{8, 6}, {Scalar::f32, nullptr}}, {1, {6}}},
      {{{12}, {Scalar::bf16, nullptr}}, {0, {4, 8}}},  {{{3, 8, 5}, {Scalar::f32, nullptr}}, {1, {2, 6}}},
      {{{8, 64}, {Scalar::f32, blocks}}, {0, {4, 4}}}, {{{3, 128}, {Scalar::f32, blocks}}, {1, {128}}},
      {{{2, 4, 64}, {Scalar::f32, blocks}}, {1, {4}}},
  };
  for (const auto& [type, split] : cases) {
    std::vector<uint8_t> whole(graph::byte_size(type)), again(whole.size());
    const int64_t used = type.element.format
                             ? graph::elements(type.shape).number() / blocks->block * blocks->block_bytes
                             : std::ssize(whole);
    for (int64_t i = 0; i < used; ++i) whole[i] = static_cast<uint8_t>(i * 7 + i / 256);
    EXPECT_EQ(refusal_to_cut(type, split, 2), "");
    for (int r = 0; r < 2; ++r) {
      const std::vector<uint8_t> part = part_bytes(type, split, 2, r, whole);
      EXPECT_EQ(std::ssize(part), graph::byte_size(part_type(type, split, 2)));
      place_part(type, split, 2, r, part, again);
    }
    EXPECT_EQ(again, whole) << print(type);
  }
  EXPECT_NE(refusal_to_cut({{4, 64}, {Scalar::f32, blocks}}, {1, {64}}, 4), "");  // half a block
}

TEST(TensorParts, RanksOfAGridAreCounted) {
  recipe::Recipe recipe = small_recipe();
  recipe.tensor_parallel = 2;
  EXPECT_EQ(data_ranks(recipe, 6), 3);
  EXPECT_EQ(recipe_of_rank(recipe, 4).batch, 2);
  EXPECT_EQ(recipe_of_rank(recipe, 1).tensor_parallel, 1);
  EXPECT_THROW(data_ranks(recipe, 3), Error);
  recipe.shard = "parameters";
  EXPECT_THROW(data_ranks(recipe, 2), Error);
}

TEST(TensorParts, StepsAreThoseOfOneProcess) {
  recipe::Recipe recipe = small_recipe();
  const RankedRun alone = trained(recipe, 6, nullptr);
  recipe.tensor_parallel = 2;
  expect_near(alone, among_ranks(2, recipe, 6)[0], 1e-5);
  for (const char* shard : {"none", "states", "gradients"}) {
    recipe.shard = shard;
    expect_near(alone, among_ranks(4, recipe, 6)[0], 1e-5);
  }
}

// Between their products, ranks deal windows of a batch, or tokens of each.
TEST(TensorParts, DealTokensBetweenProducts) {
  for (const int64_t batch : {4, 1}) {
    recipe::Recipe recipe = small_recipe();
    recipe.batch = batch;
    const RankedRun alone = trained(recipe, 6, nullptr);
    recipe.tensor_parallel = 2;
    recipe.sequence_parallel = true;
    expect_near(alone, among_ranks(2, recipe, 6)[0], 1e-5);
  }
  recipe::Recipe recipe = small_recipe();
  recipe.sequence_parallel = true;
  EXPECT_THROW(data_ranks(recipe, 2), Error);
}

TEST(TensorParts, TakeWhatWasSaid) {
  const graph::Config config = {{"hidden", 64}, {"layers", 6}, {"ffn", 256}};
  std::vector<int64_t> takes;
  for (const auto& [tensor, deals] : {std::pair(1, false), {2, false}, {2, true}}) {
    recipe::Recipe recipe = small_recipe();
    recipe.tensor_parallel = tensor;
    recipe.sequence_parallel = deals;
    if (deals) recipe.recompute = "layers";
    std::vector<int64_t> taken(2), said(2);
    const auto errors = run::among_shared(2, [&](run::Communicator& own) {
      run::Engine engine = make_engine(1);
      const Fresh s(recipe, config);
      said[own.rank()] = forecast_training(engine, s.model, recipe_of_rank(recipe, 2), {}, false, nullptr, 2).total();
      Trainer trainer(engine, s.model, recipe, s.batches, nullptr, {&own, [](run::Communicator*) {}});
      for (int i = 0; i < 2; ++i) (void)trainer.step();
      (void)trainer.evaluate(2);
      taken[own.rank()] = engine.device().memory().peak;
    });
    EXPECT_EQ(errors, run::kNoErrors2);
    EXPECT_GE(said[0], taken[0] * 98 / 100) << tensor << deals;
    EXPECT_LE(said[0], taken[0] * 102 / 100) << tensor << deals;
    takes.push_back(taken[0]);
  }
  EXPECT_LT(takes[1] * 3, takes[0] * 2);
  EXPECT_LT(takes[2], takes[1]);
}

}  // namespace
}  // namespace lumen::model::train
