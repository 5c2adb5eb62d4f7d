// needs: none. What a rank was said to take is what it takes, whatever is held in parts or lies outside of its device,
// and less the more that is.
#include "model/train/ranks/rank_forecast.h"

#include "model/train/trainer/forecast.h"
#include "tests/model/train/ranks/ranked_run.h"

namespace lumen::model::train {
namespace {

// What the rank takes that takes the most.
int64_t taken_by(const recipe::Recipe& recipe) {
  const graph::Config config = {{"hidden", 64}, {"layers", 4}, {"ffn", 256}};
  std::vector<int64_t> taken(2), said(2);
  const auto errors = run::among_shared(2, [&](run::Communicator& own) {
    run::Engine engine = make_engine(1);
    const Fresh s(recipe, config);
    const recipe::Recipe mine = recipe_of_rank(recipe, 2);
    said[own.rank()] = forecast_training(engine, s.model, mine, {}, false, nullptr, 2).total();
    Trainer trainer(engine, s.model, recipe, s.batches, nullptr, {&own, [](run::Communicator*) {}});
    for (int i = 0; i < 2; ++i) (void)trainer.step();
    (void)trainer.evaluate(2);
    taken[own.rank()] = engine.device().memory().peak;
  });
  EXPECT_EQ(errors, run::kNoErrors2);
  const int64_t most = std::max(taken[0], taken[1]);
  const std::string what = fmt::format("{} {}", recipe.shard, recipe.offload);
  fmt::print("{}: said {} KiB, taken {} KiB\n", what, said[0] / 1024, most / 1024);
  EXPECT_GE(said[0], most * 98 / 100) << what;
  EXPECT_LE(said[0], most * 102 / 100) << what;
  return most;
}

TEST(RankForecast, IsWhatARankTakes) {
  std::map<std::string, int64_t> takes;
  for (const char* shard : {"none", "states", "gradients", "parameters"}) {
    recipe::Recipe recipe = small_recipe();
    recipe.shard = shard;
    recipe.optimizer.moments = "f32";
    takes[shard] = taken_by(recipe);
    std::vector<const char*> offloads = {recipe.shard == "states" ? "layers,activations" : "layers"};
    if (recipe.shard == "none") offloads.push_back("activations");
    for (const char* offload : offloads) {
      recipe.offload = offload;
      takes[recipe.shard + " " + offload] = taken_by(recipe);
    }
  }
  for (const char* shard : {"none", "gradients", "parameters"})
    EXPECT_LT(takes[std::string(shard) + " layers"], takes[shard]);
  EXPECT_LT(takes["states"], takes["none"]);
  EXPECT_LT(takes["gradients"], takes["none"]);
  EXPECT_LT(takes["parameters"] * 4, takes["states"] * 3);
}

}  // namespace
}  // namespace lumen::model::train
