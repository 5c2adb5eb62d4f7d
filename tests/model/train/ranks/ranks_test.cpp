// needs: none. Trainers of several ranks, here threads of one process: they train what one trainer does but for the
// order of sums, hold equal weights, repeat bit for bit, save what one saves, and fail together.
#include "model/train/ranks/ranks.h"

#include <cmath>

#include "base/error.h"
#include "base/file/file.h"
#include "model/train/trainer/trainer.h"
#include "tests/model/tiny.h"
#include "tests/model/train/training_case.h"
#include "tests/run/ranks/among.h"

namespace lumen::model {
namespace {

struct Fresh {
  Model model;
  std::shared_ptr<const Batches> batches;
  explicit Fresh(const Recipe& recipe) {
    const Tokenizer tokenizer = Tokenizer::characters(training_text());
    const auto data = std::make_shared<Dataset>(Dataset::from_text(training_text(), tokenizer));
    const FamilyRef family = test_library()->family("llama");
    model = initialise(family, family->config("tiny", {{"vocab", 1.0 * tokenizer.size()}}), 3);
    model.tokenizer = tokenizer;
    batches = window_batches(data, recipe.seed, recipe.batch, recipe.length, recipe.accumulate);
  }
};

struct RankedRun {
  std::vector<double> losses, norms;
  double validation = 0;
  std::map<std::string, std::vector<uint8_t>> weights;
};

RankedRun trained(const Recipe& recipe, int steps, std::shared_ptr<run::Communicator> ranks,
                  const std::filesystem::path& out = {}) {
  run::Engine engine = make_engine(1);
  const Fresh s(recipe);
  Trainer trainer(engine, s.model, recipe, s.batches, nullptr, ranks);
  RankedRun run;
  for (int i = 0; i < steps; ++i) {
    const Trainer::Step step = trainer.step();
    run.losses.push_back(step.loss);
    run.norms.push_back(step.norm);
  }
  (void)trainer.prove();
  run.validation = trainer.evaluate();
  if (!out.empty()) (void)trainer.save(out);
  run.weights = weights_of(trainer);
  return run;
}

// By rank; all must have the same weights.
std::vector<RankedRun> among_ranks(int size, const Recipe& recipe, int steps, const std::filesystem::path& out = {}) {
  std::vector<RankedRun> runs(size);
  const auto memory = std::make_shared<run::SharedMemory>(size);
  std::vector<std::string> errors(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      try {
        auto own =
            std::make_shared<run::Communicator>(run::RankPlace{r, size, r, size}, run::join_shared_memory(memory, r));
        try {
          runs[r] = trained(recipe, steps, own, out);
        } catch (const std::exception& error) {
          own->abort(error.what());
          throw;
        }
      } catch (const std::exception& error) {
        errors[r] = error.what();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  for (const RankedRun& run : runs) {
    EXPECT_EQ(run.weights, runs[0].weights);
    EXPECT_EQ(run.losses, runs[0].losses);
    EXPECT_EQ(run.validation, runs[0].validation);
  }
  return runs;
}

void expect_near(const RankedRun& a, const RankedRun& b, double within) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], within * std::abs(a.losses[i])) << i;
    EXPECT_NEAR(a.norms[i], b.norms[i], 10 * within * std::abs(a.norms[i])) << i;
  }
  EXPECT_NEAR(a.validation, b.validation, within * std::abs(a.validation));
}

TEST(TrainingRanks, TrainWhatOneTrains) {
  Recipe recipe = small_recipe();
  const RankedRun one = trained(recipe, 6, nullptr);
  for (const char* shard : {"none", "states", "gradients"}) {
    recipe.shard = shard;
    const RankedRun two = among_ranks(2, recipe, 6)[0], again = among_ranks(2, recipe, 6)[0];
    expect_near(one, two, 1e-5);
    EXPECT_EQ(two.weights, again.weights) << shard;
  }
}

TEST(TrainingRanks, BatchesInPartsAndOtherOptimizers) {
  for (const char* optimizer : {"adamw", "muon", "adafactor"}) {
    Recipe recipe = small_recipe();
    recipe.batch = 6;
    recipe.accumulate = 2;
    recipe.optimizer.name = optimizer;
    recipe.optimizer.ema_decay = 0.9;
    const RankedRun one = trained(recipe, 3, nullptr);
    recipe.shard = "gradients";
    expect_near(one, among_ranks(3, recipe, 3)[0], 1e-4);
  }
}

// The folder of several ranks is that of one: as many bytes, in the same places.
TEST(TrainingRanks, CheckpointsAreThoseOfOneProcess) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "lumen-ranks-checkpoint";
  std::filesystem::remove_all(folder);
  Recipe recipe = small_recipe();
  recipe.optimizer.moments = "q8_0";
  (void)trained(recipe, 2, nullptr, folder / "one");
  recipe.shard = "states";
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
  std::filesystem::remove_all(folder);
}

TEST(TrainingRanks, ExchangesInFormats) {
  Recipe recipe = small_recipe();
  recipe.shard = "gradients";
  const RankedRun plain = among_ranks(2, recipe, 8)[0];
  recipe.reduce_type = "q8_0";
  recipe.gather_type = "q8_0";
  const RankedRun coded = among_ranks(2, recipe, 8)[0];
  EXPECT_NE(coded.weights, plain.weights);
  expect_near(plain, coded, 1e-2);
  EXPECT_EQ(among_ranks(2, recipe, 8)[0].weights, coded.weights);
}

TEST(TrainingRanks, WhatIsWrongIsRefused) {
  const auto refused = [](Recipe recipe, int ranks) {
    try {
      (void)recipe_of_rank(recipe, ranks);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  Recipe recipe = small_recipe();
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
}

// A number that is none in one rank is every rank's error.
TEST(TrainingRanks, FailTogether) {
  const auto errors = run::among_shared(2, [](run::Communicator& own) {
    run::Engine engine = make_engine(1);
    Recipe recipe = small_recipe();
    recipe.schedule.peak = 1e30;
    recipe.schedule.floor = 1e30;
    recipe.schedule.warmup = 0;
    recipe.shard = own.size() == 2 ? "states" : "none";
    const Fresh s(recipe);
    const std::shared_ptr<run::Communicator> shared(&own, [](run::Communicator*) {});
    Trainer trainer(engine, s.model, recipe, s.batches, nullptr, shared);
    for (int i = 0; i < 5; ++i) (void)trainer.step();
  });
  EXPECT_NE(errors[0].find("not finite"), std::string::npos) << errors[0];
  EXPECT_EQ(errors[0], errors[1]);
}

}  // namespace
}  // namespace lumen::model
