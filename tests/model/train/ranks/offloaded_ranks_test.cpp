// needs: none. Ranks whose states of the optimizer, layers, gradients, or what layers keep, or parts of those, lie in
// files of their own give the very bytes of ranks that hold them: weights and checkpoints, which any number of ranks go
// on with.
#include "base/error.h"
#include "base/file/file.h"
#include "model/train/ranks/rank_forecast.h"
#include "model/train/trainer/forecast.h"
#include "tests/model/train/offload/offload_case.h"
#include "tests/model/train/ranks/ranked_run.h"

namespace lumen::model::train {
namespace {

namespace fs = std::filesystem;

// What checkpoints hold after the second step and after the fourth, to which a trainer goes again that has gone on from
// the second; by `later` ranks.
std::map<std::string, std::string> files_of(recipe::Recipe recipe, int ranks, int later, const fs::path& out,
                                            const graph::Config& config = {}) {
  recipe.run_folder = out.string();
  const auto go = [&](int size, bool begins, bool goes_on) {
    const std::string none;
    for (const std::string& error : run::among_shared(size, [&](run::Communicator& own) {
           run::Engine engine = make_engine(1);
           const Fresh s(recipe, config);
           Trainer trainer(engine, s.model, recipe, s.batches, nullptr, {&own, [](run::Communicator*) {}});
           for (int i = 0; i < 2 && begins; ++i) (void)trainer.step();
           if (begins) (void)trainer.save(out);
           if (!goes_on) return;
           (void)trainer.step();
           trainer.restore(out / "checkpoint-2");
           for (int i = 0; i < 2; ++i) (void)trainer.step();
           (void)trainer.evaluate(2);
           (void)trainer.save(out);
         }))
      EXPECT_EQ(error, none);
  };
  go(ranks, true, ranks == later);
  if (ranks != later) go(later, false, true);
  std::map<std::string, std::string> files;
  for (const char* name : {"model.safetensors", "optimizer.safetensors"})
    for (const char* step : {"checkpoint-2", "checkpoint-4"})
      files[std::string(step) + "/" + name] = read_file(out / step / name, 1 << 24);
  for (const auto& entry : fs::directory_iterator(out))
    EXPECT_EQ(entry.path().filename().string().find("offload"), std::string::npos) << entry.path();
  return files;
}

// Against steps of as many ranks that hold all, and go as a whole but for --shard parameters. `tied`: a weight serves
// several layers, whose gradients whole steps add in another order; then against --shard parameters.
TEST(OffloadedRanks, GiveTheBytesOfRanksThatHoldAll) {
  struct Case {
    const char* shard;
    std::vector<const char*> offloads;
    std::function<void(recipe::Recipe&)> change;
    bool tied = false;
  };
  const auto halves = [](recipe::Recipe& r) {
    r.param_type = "bf16";
    r.optimizer.moments = "mxfp8_e4m3";
    r.accumulate = 2;
  };
  const auto means = [](recipe::Recipe& r) { r.optimizer.ema_decay = 0.9; };
  const auto exchanged_in_formats = [](recipe::Recipe& r) { r.reduce_type = r.gather_type = "q8_0"; };
  const auto muon = [](recipe::Recipe& r) { r.optimizer.name = "muon"; };  // ranks without parts of a layer
  const auto clipped = [](recipe::Recipe& r) {
    r.optimizer.max_norm = 0.1;
    r.accumulate = 2;
  };
  const Case cases[] = {
      {"none", {"layers,activations"}, clipped},
      {"none", {"activations"}, means},
      {"states", {"moments", "layers"}, halves},
      {"gradients", {"moments", "layers"}, muon},
      {"gradients", {"activations,moments"}, exchanged_in_formats},
      {"gradients", {"activations", "layers"}, [](recipe::Recipe& r) { r.recompute = "maps"; }, true},
      {"parameters", {"moments", "layers,activations"}, exchanged_in_formats},
      {"parameters", {"layers"}, halves},
      {"parameters", {"activations"}, means},
  };
  for (const Case& c : cases) {
    recipe::Recipe recipe = small_recipe();
    recipe.optimizer.moments = "f32";
    recipe.shard = c.tied ? "parameters" : c.shard;
    c.change(recipe);
    const graph::Config config = c.tied ? graph::Config{{"tied", 1}} : graph::Config{};
    const auto held = files_of(recipe, 2, 2, fresh_folder("held"), config);
    recipe.shard = c.shard;
    for (const char* offload : c.offloads) {
      recipe.offload = offload;
      if (c.tied && recipe.offload == "layers") recipe.recompute = "none";
      const auto outside = files_of(recipe, 2, 2, fresh_folder("outside"), config);
      for (const auto& [name, bytes] : held)
        EXPECT_TRUE(bytes == outside.at(name)) << c.shard << " " << offload << " " << name;
    }
  }
}

TEST(OffloadedRanks, OtherNumbersOfRanksGoOn) {
  recipe::Recipe recipe = small_recipe();
  recipe.shard = "gradients";
  recipe.offload = "moments";
  const auto outside = files_of(recipe, 4, 2, fresh_folder("outside"));
  recipe.offload = "";
  const auto held = files_of(recipe, 4, 2, fresh_folder("held"));
  for (const auto& [name, bytes] : held) EXPECT_TRUE(bytes == outside.at(name)) << name;
}

// A number that is none is every rank's error at once, with nothing left behind.
TEST(OffloadedRanks, DivergeTogether) {
  for (const char* shard : {"none", "gradients"}) {
    recipe::Recipe recipe = small_recipe();
    recipe.schedule.peak = recipe.schedule.floor = 1e30;
    recipe.schedule.warmup = 0;
    recipe.shard = shard;
    recipe.offload = "layers";
    recipe.run_folder = fresh_folder(shard).string();
    const auto errors = run::among_shared(2, [&](run::Communicator& own) {
      run::Engine engine = make_engine(1);
      const Fresh s(recipe);
      Trainer trainer(engine, s.model, recipe, s.batches, nullptr, {&own, [](run::Communicator*) {}});
      for (int i = 0; i < 5; ++i) (void)trainer.step();
    });
    EXPECT_NE(errors[0].find("not finite"), std::string::npos) << errors[0];
    EXPECT_EQ(errors[0], errors[1]);
  }
}

// Slots of three groups in place of a part of the states, and the rest in files.
TEST(OffloadedRanks, HoldLess) {
  run::Engine engine = make_engine(1);
  recipe::Recipe recipe = small_recipe();
  recipe.shard = "states";
  const arch::Model model = small_model({{"layers", 12}});
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
  const auto refused = [](const char* shard, const char* offload, int tensor, const char* in = "f32") {
    recipe::Recipe recipe = small_recipe();
    recipe.reduce_type = in;
    if (*shard != 'n') recipe.gather_type = in;
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
  EXPECT_EQ(refused("none", "layers", 1), "");
  EXPECT_NE(refused("none", "activations,moments", 1).find("every rank would move all"), std::string::npos);
  EXPECT_NE(refused("none", "layers", 2).find("contradict each other"), std::string::npos);
  EXPECT_NE(refused("none", "activations", 1, "q8_0").find("gradients grow where they lie"), std::string::npos);
  EXPECT_NE(refused("gradients", "layers", 1, "q8_0").find("would stay on its device"), std::string::npos);
  EXPECT_EQ(refused("gradients", "activations", 1, "q8_0"), "");
  EXPECT_EQ(refused("parameters", "layers", 1, "q8_0"), "");
}

}  // namespace
}  // namespace lumen::model::train
