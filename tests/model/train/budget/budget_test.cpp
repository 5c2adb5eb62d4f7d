// needs: none. Under smaller and smaller limits other ways are taken, each of which holds no more than it may, and
// costs no less than the one before.
#include "model/train/budget/budget.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/model/train/offload/offload_case.h"

namespace lumen::model {
namespace {

const graph::Config kConfig = {{"hidden", 128}, {"layers", 12}, {"ffn", 512}, {"head_dim", 32}};
const BudgetRates kRates = {1e11, 1e10, 1e9};

Recipe recipe_of() {
  Recipe recipe = small_recipe();
  recipe.batch = 8;
  recipe.run_folder = fresh_folder("budget").string();
  return recipe;
}

TEST(Budget, TakesTheCheapestThatFits) {
  run::Engine planner = make_engine(2);
  const Model model = small_model(kConfig);
  double cost = -1;
  std::set<std::string> taken;
  const auto at = [&](int64_t limit) {
    return budget_choices(planner, model, recipe_of(), {}, false, nullptr, limit, kRates, "");
  };
  const int64_t most = at(INT64_MAX).front().bytes;
  for (const double share : {1.0, 0.95, 0.8, 0.6, 0.4, 0.3}) {
    const auto choices = at(static_cast<int64_t>(most * share));
    const auto fits = std::find_if(choices.begin(), choices.end(), [](const BudgetChoice& c) { return c.fits; });
    if (fits == choices.end()) continue;
    EXPECT_LE(fits->bytes, most * share);
    EXPECT_GE(fits->seconds, cost) << share;
    for (auto c = choices.begin(); c != fits; ++c) EXPECT_GT(c->bytes, most * share) << c->recompute << c->offload;
    cost = fits->seconds;
    if (!taken.insert(fits->recompute + " " + fits->offload).second) continue;
    // What is taken is what the engine then holds.
    Recipe recipe = recipe_of();
    recipe.recompute = fits->recompute;
    recipe.offload = fits->offload;
    run::Engine engine = make_engine(2);
    Trainer trainer(engine, small_model(kConfig), recipe, small_data());
    (void)trainer.step();
    (void)trainer.evaluate(2);
    const int64_t peak = engine.device().memory().peak;
    EXPECT_LE(peak, fits->bytes * 103 / 100) << fits->recompute << " " << fits->offload;
    EXPECT_GE(peak, fits->bytes * 97 / 100) << fits->recompute << " " << fits->offload;
  }
  EXPECT_GE(taken.size(), 3U);
  EXPECT_TRUE(taken.contains("none layers"));
}

TEST(Budget, KnowsWhatActivationsOutsideSaveAndCost) {
  run::Engine engine = make_engine(2);
  const Model model = small_model(kConfig);
  Recipe recipe = recipe_of();
  recipe.batch = 64;  // so that activations are more than the seats through which they pass
  const auto choices = budget_choices(engine, model, recipe, {}, false, nullptr, 1, kRates, "");
  const auto find = [&](const std::string& recompute, const std::string& offload) {
    const auto at = std::find_if(choices.begin(), choices.end(), [&](const BudgetChoice& c) {
      return c.recompute == recompute && c.offload == offload;
    });
    EXPECT_NE(at, choices.end()) << recompute << " " << offload;
    return at == choices.end() ? BudgetChoice{} : *at;
  };
  const BudgetChoice whole = find("none", ""), kept = find("none", "activations");
  EXPECT_LT(kept.bytes, whole.bytes);
  EXPECT_GE(kept.seconds, whole.seconds);
  // More lies outside, and more is moved.
  const BudgetChoice all = find("none", "layers,activations");
  EXPECT_LT(all.bytes, kept.bytes);
  EXPECT_GT(all.seconds, kept.seconds);
  (void)find("layers", "activations,moments");
}

TEST(Budget, KeepsWhatTheRecipeSays) {
  run::Engine engine = make_engine(2);
  const Model model = small_model(kConfig);
  Recipe recipe = recipe_of();
  recipe.offload = "moments";
  for (const BudgetChoice& c : budget_choices(engine, model, recipe, {}, false, nullptr, 1, kRates, ""))
    EXPECT_EQ(c.offload, "moments");
  recipe.recompute = "maps";
  EXPECT_EQ(budget_choices(engine, model, recipe, {}, false, nullptr, 1, kRates, "").size(), 1U);
}

// Of ranks that share a batch, each of which holds parts of the states: the smaller the limit, the more lies outside.
TEST(Budget, ChoosesForRanks) {
  run::Engine engine = make_engine(2);
  const Model model = small_model(kConfig);
  Recipe recipe = recipe_of();
  recipe.shard = "states";
  const auto at = [&](int64_t limit) {
    return budget_choices(engine, model, recipe, {}, false, nullptr, limit, kRates, "", 2);
  };
  const auto all = at(1);
  std::map<std::string, BudgetChoice> by_name;
  for (const BudgetChoice& c : all) by_name[c.recompute + " " + c.offload] = c;
  EXPECT_EQ(all.size(), by_name.size());
  const BudgetChoice whole = by_name.at("none "), layers = by_name.at("none layers");
  EXPECT_LT(by_name.at("none moments").bytes, whole.bytes);
  EXPECT_LT(layers.bytes, by_name.at("none moments").bytes);
  EXPECT_GT(layers.seconds, whole.seconds);
  EXPECT_EQ(at(whole.bytes).back().bytes, whole.bytes);
  const BudgetChoice taken = at(layers.bytes).back();
  EXPECT_TRUE(taken.fits);
  EXPECT_NE(taken.offload.find("layers"), std::string::npos) << taken.offload;
  recipe.shard = "none";  // moving all states in every rank is no way
  for (const BudgetChoice& c : at(1)) EXPECT_TRUE(c.offload != "moments" && c.offload != "activations,moments");
}

TEST(Budget, RefusesWhatFitsInNoWay) {
  run::Engine engine = make_engine(2);
  const Model model = small_model(kConfig);
  Recipe recipe = recipe_of();
  recipe.memory_limit = "1M";
  try {
    (void)within_limit(engine, model, recipe, {}, false, nullptr, 1e11);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::hardware);
    EXPECT_NE(std::string(e.what()).find("--offload layers"), std::string::npos) << e.what();
  }
  recipe.memory_limit = "10G";
  const MemoryBudget budget = within_limit(engine, model, recipe, {}, false, nullptr, 1e11);
  EXPECT_EQ(budget.recipe.recompute, "none");
  EXPECT_EQ(budget.recipe.offload, "");
  EXPECT_NE(budget.text.find("taken"), std::string::npos);
}

}  // namespace
}  // namespace lumen::model
