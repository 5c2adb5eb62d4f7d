// needs: none. Trainers of several ranks, here threads of one process: they train what one trainer does but for the
// order of sums, hold equal weights, repeat bit for bit, save what one saves, and fail together.
#include "model/train/ranks/ranks.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/file/file.h"
#include "tests/model/train/ranks/ranked_run.h"

namespace lumen::model::train {
namespace {

TEST(TrainingRanks, TrainWhatOneTrains) {
  recipe::Recipe recipe = small_recipe();
  const RankedRun one = trained(recipe, 6, nullptr);
  for (const char* shard : {"none", "states", "gradients", "parameters"}) {
    recipe.shard = shard;
    const RankedRun two = among_ranks(2, recipe, 6)[0], again = among_ranks(2, recipe, 6)[0];
    expect_near(one, two, 1e-5);
    EXPECT_EQ(two.weights, again.weights) << shard;
  }
}

TEST(TrainingRanks, BatchesInPartsAndOtherOptimizers) {
  for (const char* optimizer : {"adamw", "muon", "adafactor"}) {
    recipe::Recipe recipe = small_recipe();
    recipe.batch = 6;
    recipe.accumulate = 2;
    recipe.optimizer.name = optimizer;
    recipe.optimizer.ema_decay = 0.9;
    const RankedRun one = trained(recipe, 3, nullptr);
    for (const char* shard : {"gradients", "parameters"}) {
      recipe.shard = shard;
      expect_near(one, among_ranks(3, recipe, 3)[0], 1e-4);
    }
  }
}

// The folder of several ranks is that of one: as many bytes, in the same places.
TEST(TrainingRanks, CheckpointsAreThoseOfOneProcess) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "lumen-ranks-checkpoint";
  std::filesystem::remove_all(folder);
  recipe::Recipe recipe = small_recipe();
  recipe.optimizer.moments = "q8_0";
  (void)trained(recipe, 2, nullptr, folder / "one");
  for (const char* shard : {"states", "parameters"}) {
    recipe.shard = shard;
    std::filesystem::remove_all(folder / "two");
    const RankedRun two = among_ranks(2, recipe, 2, folder / "two")[0];
    for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
      const std::string a = read_file(folder / "one" / "checkpoint-2" / name, 1 << 24);
      const std::string b = read_file(folder / "two" / "checkpoint-2" / name, 1 << 24);
      ASSERT_EQ(a.size(), b.size());
      uint64_t header = 0;
      std::memcpy(&header, a.data(), sizeof header);
      EXPECT_EQ(a.substr(0, header + 8), b.substr(0, header + 8)) << name;
    }
    // One process goes on from it.
    run::Engine engine = make_engine(1);
    const Fresh s(recipe);
    Trainer trainer(engine, s.model, recipe, s.batches);
    trainer.restore(folder / "two" / "checkpoint-2");
    EXPECT_EQ(weights_of(trainer), two.weights);
    (void)trainer.step();
  }
  std::filesystem::remove_all(folder);
}

TEST(TrainingRanks, ExchangesInFormats) {
  for (const char* shard : {"gradients", "parameters"}) {
    recipe::Recipe recipe = small_recipe();
    recipe.shard = shard;
    const RankedRun plain = among_ranks(2, recipe, 8)[0];
    recipe.reduce_type = "q8_0";
    recipe.gather_type = "q8_0";
    const RankedRun coded = among_ranks(2, recipe, 8)[0];
    EXPECT_NE(coded.weights, plain.weights);
    expect_near(plain, coded, 1e-2);
    EXPECT_EQ(among_ranks(2, recipe, 8)[0].weights, coded.weights);
  }
}

// Histories and bounds by which a step's scales are chosen, as a checkpoint has them.
std::map<std::string, std::vector<float>> known_scales(const std::filesystem::path& folder) {
  const file::Checkpoint checkpoint = file::load_checkpoint(folder, test_library()->formats());
  std::map<std::string, std::vector<float>> out;
  for (const file::StoredTensor& t : checkpoint.optimizer->tensors()) {
    if (!t.name.starts_with(graph::kHistoryState) && !t.name.starts_with(graph::kLargestState)) continue;
    const std::vector<uint8_t> bytes = t.blob();
    std::vector<float>& to = out[t.name];
    to.resize(bytes.size() / sizeof(float));
    std::memcpy(to.data(), bytes.data(), bytes.size());
  }
  return out;
}

// What was largest in a batch is known to all, and is what one process sees; so are bounds of weights in parts.
TEST(TrainingRanks, ScalesAreThoseOfWholeBatchesAndWeights) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "lumen-ranks-scales";
  for (const char* name : {"fp8-delayed", "moss"})
    for (const char* shard : {"none", "states", "gradients"}) {
      SCOPED_TRACE(fmt::format("{} {}", name, shard));
      std::filesystem::remove_all(folder);
      recipe::Recipe recipe = small_recipe();
      recipe.accumulate = 2;
      recipe = parse_recipe(test_library()->recipe(name)->text, name, recipe);
      recipe.products.history = 8;
      (void)trained(recipe, 2, nullptr, folder / "one");
      recipe.shard = shard;
      (void)among_ranks(2, recipe, 2, folder / "two");
      const auto one = known_scales(folder / "one" / "checkpoint-2"),
                 two = known_scales(folder / "two" / "checkpoint-2");
      ASSERT_GT(one.size(), 2U);
      ASSERT_EQ(one.size(), two.size());
      for (const auto& [state, numbers] : one)
        for (size_t i = 0; i < numbers.size(); ++i)
          EXPECT_NEAR(two.at(state)[i], numbers[i], 0.25 * std::abs(numbers[i])) << state << " " << i;
    }
  std::filesystem::remove_all(folder);
}

// Scales that are learned begin with what all ranks' shares of the first batch show, and go on as parameters do.
TEST(TrainingRanks, LearnScalesOfOperands) {
  recipe::Recipe recipe = parse_recipe(test_library()->recipe("int8-learned")->text, "int8-learned", small_recipe());
  recipe.precision = "f32";
  const RankedRun one = trained(recipe, 4, nullptr);
  for (const char* shard : {"none", "states", "gradients"}) {
    recipe.shard = shard;
    const RankedRun two = among_ranks(2, recipe, 4)[0];
    expect_near(one, two, 1e-3);
    EXPECT_EQ(among_ranks(2, recipe, 4)[0].weights, two.weights) << shard;
  }
  recipe.tensor_parallel = 2;
  recipe.shard = "none";
  EXPECT_THROW((void)recipe_of_rank(recipe, 2), Error);
}

TEST(TrainingRanks, WhatIsWrongIsRefused) {
  const auto refused = [](recipe::Recipe recipe, int ranks) {
    try {
      (void)recipe_of_rank(recipe, ranks);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  recipe::Recipe recipe = small_recipe();
  EXPECT_NE(refused(recipe, 3).find("not divided by 3 ranks"), std::string::npos);
  EXPECT_EQ(refused(recipe, 4), "");
  EXPECT_EQ(recipe_of_rank(recipe, 4).batch, 1);
  EXPECT_EQ(recipe_of_rank(recipe, 4).accumulate, 4);
  recipe.gather_type = "q8_0";
  EXPECT_NE(refused(recipe, 2).find("no parameters are gathered"), std::string::npos);
  recipe.shard = "states";
  EXPECT_EQ(refused(recipe, 2), "");
  recipe.param_type = "bf16";
  EXPECT_NE(refused(recipe, 2).find("contradict"), std::string::npos);
  recipe.param_type = "f32";
  recipe.products.weight_scale = "predicted";
  EXPECT_NE(refused(recipe, 2).find("predicted"), std::string::npos);
}

// A number that is none in one rank is every rank's error.
TEST(TrainingRanks, FailTogether) {
  for (const char* shard : {"states", "parameters"}) {
    const auto errors = run::among_shared(2, [&](run::Communicator& own) {
      run::Engine engine = make_engine(1);
      recipe::Recipe recipe = small_recipe();
      recipe.schedule.peak = 1e30;
      recipe.schedule.floor = 1e30;
      recipe.schedule.warmup = 0;
      recipe.shard = shard;
      const Fresh s(recipe);
      const std::shared_ptr<run::Communicator> shared(&own, [](run::Communicator*) {});
      Trainer trainer(engine, s.model, recipe, s.batches, nullptr, shared);
      for (int i = 0; i < 5; ++i) (void)trainer.step();
    });
    EXPECT_NE(errors[0].find("not finite"), std::string::npos) << errors[0];
    EXPECT_EQ(errors[0], errors[1]);
  }
}

}  // namespace
}  // namespace lumen::model::train
