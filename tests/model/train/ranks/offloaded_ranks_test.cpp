// needs: none. Ranks whose parts of the optimizer's states lie in files of their own give the very bytes of ranks that
// hold them: weights and checkpoints, which any number of ranks go on with.
#include "base/error.h"
#include "base/file/file.h"
#include "model/train/ranks/rank_forecast.h"
#include "model/train/trainer/forecast.h"
#include "tests/model/train/offload/offload_case.h"
#include "tests/model/train/ranks/ranked_run.h"

namespace lumen::model {
namespace {

namespace fs = std::filesystem;

struct Case {
  const char* name;
  std::function<void(Recipe&)> change;
};
const Case kCases[] = {
    {"adamw", [](Recipe&) {}},
    {"halves in parts",
     [](Recipe& r) {
       r.param_type = "bf16";
       r.optimizer.moments = "mxfp8_e4m3";
       r.optimizer.ema_decay = 0.9;
       r.accumulate = 2;
     }},
    {"muon", [](Recipe& r) { r.optimizer.name = "muon"; }},
    {"formats",
     [](Recipe& r) {
       r.reduce_type = "q8_0";
       r.gather_type = "q8_0";
     }},
};

// What checkpoints hold after the second step and after the fourth, to which another trainer goes from the second; by
// `later` ranks.
std::map<std::string, std::string> files_of(Recipe recipe, int ranks, int later, const fs::path& out) {
  recipe.run_folder = out.string();
  (void)among_ranks(ranks, recipe, 2, out);
  const auto go_on = [&](std::shared_ptr<run::Communicator> own) {
    run::Engine engine = make_engine(1);
    const Fresh s(recipe);
    Trainer trainer(engine, s.model, recipe, s.batches, nullptr, own);
    (void)trainer.step();
    trainer.restore(out / "checkpoint-2");
    RankedRun run;
    for (int i = 0; i < 2; ++i) run.losses.push_back(trainer.step().loss);
    (void)trainer.save(out);
    return run;
  };
  (void)among_ranks(later, go_on);
  std::map<std::string, std::string> files;
  for (const char* name : {"model.safetensors", "optimizer.safetensors"})
    for (const char* step : {"checkpoint-2", "checkpoint-4"})
      files[std::string(step) + "/" + name] = read_file(out / step / name, 1 << 24);
  for (const auto& entry : fs::directory_iterator(out))
    EXPECT_EQ(entry.path().filename().string().find("offload"), std::string::npos) << entry.path();
  return files;
}

TEST(OffloadedRanks, GiveTheBytesOfRanksThatHoldTheirStates) {
  for (const Case& c : kCases)
    for (const std::string shard : {"states", "gradients", "parameters"}) {
      if (shard != "gradients" && (&c - kCases) % 2 != (shard == "states")) continue;  // each pair of cases has each
      Recipe recipe = small_recipe();
      recipe.shard = shard;
      c.change(recipe);
      const auto held = files_of(recipe, 2, 2, fresh_folder("held"));
      recipe.offload = "moments";
      const auto outside = files_of(recipe, 2, 2, fresh_folder("outside"));
      for (const auto& [name, bytes] : held) EXPECT_TRUE(bytes == outside.at(name)) << c.name << " " << shard << name;
    }
}

TEST(OffloadedRanks, OtherNumbersOfRanksGoOn) {
  Recipe recipe = small_recipe();
  recipe.shard = "gradients";
  recipe.offload = "moments";
  const auto outside = files_of(recipe, 4, 2, fresh_folder("outside"));
  recipe.offload = "";
  const auto held = files_of(recipe, 4, 2, fresh_folder("held"));
  for (const auto& [name, bytes] : held) EXPECT_TRUE(bytes == outside.at(name)) << name;
}

// Seats of three groups in place of a part of the states, and the rest in files.
TEST(OffloadedRanks, HoldLess) {
  run::Engine engine = make_engine(1);
  Recipe recipe = small_recipe();
  recipe.shard = "states";
  const Model model = small_model({{"layers", 12}});
  const auto forecast = [&] {
    return forecast_training(engine, model, recipe_of_rank(recipe, 2), {}, true, nullptr, 2);
  };
  const TrainingForecast held = forecast();
  recipe.offload = "moments";
  const TrainingForecast outside = forecast();
  EXPECT_EQ(held.offloaded, 0);
  EXPECT_TRUE(outside.in_file);
  EXPECT_GE(outside.offloaded, held.moments);
  EXPECT_LT(outside.moments, held.moments / 2);
}

TEST(OffloadedRanks, WhatMakesNoSenseIsRefused) {
  const auto refused = [](const char* shard, const char* offload, int tensor) {
    Recipe recipe = small_recipe();
    recipe.shard = shard;
    recipe.offload = offload;
    recipe.tensor_parallel = tensor;
    try {
      (void)recipe_of_rank(recipe, 4);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::usage);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused("states", "moments", 1), "");
  EXPECT_NE(refused("none", "moments", 1).find("every rank would move all"), std::string::npos);
  EXPECT_NE(refused("states", "moments", 2).find("contradict each other"), std::string::npos);
  EXPECT_NE(refused("states", "layers", 1).find("is for one process"), std::string::npos);
  EXPECT_NE(refused("gradients", "activations", 1).find("is for one process"), std::string::npos);
}

}  // namespace
}  // namespace lumen::model
