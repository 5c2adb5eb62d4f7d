// needs: none. Under smaller and smaller limits other ways are taken, each of which holds no more than it may, and
// costs no less than the one before.
#include "model/train/budget/budget.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/model/train/offload/offload_case.h"

namespace lumen::model::train {
namespace {

const graph::Config kConfig = {{"hidden", 128}, {"layers", 12}, {"ffn", 512}, {"head_dim", 32}};
const BudgetRates kRates = {1e11, 1e10, 1e9};

recipe::Recipe recipe_of() {
  recipe::Recipe recipe = small_recipe();
  recipe.batch = 8;
  recipe.run_folder = fresh_folder("budget").string();
  return recipe;
}

TEST(Budget, TakesTheCheapestThatFits) {
  run::Engine planner = make_engine(2);
  const arch::Model model = small_model(kConfig);
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
    recipe::Recipe recipe = recipe_of();
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

// What is too much without the values of a step is not planned, and what is taken is the same.
TEST(Budget, TakesTheSameQuickly) {
  run::Engine planner = make_engine(2);
  const arch::Model model = small_model(kConfig);
  const auto at = [&](int64_t limit, bool quick) {
    return budget_choices(planner, model, recipe_of(), {}, false, nullptr, limit, kRates, "", 1, quick);
  };
  const int64_t most = at(INT64_MAX, false).front().bytes;
  int skipped = 0;
  for (const double share : {1.0, 0.8, 0.4, 0.1, 0.0}) {
    const auto limit = static_cast<int64_t>(most * share);
    const auto exact = at(limit, false), quick = at(limit, true);
    ASSERT_EQ(exact.size(), quick.size());
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_EQ(exact[i].recompute + exact[i].offload, quick[i].recompute + quick[i].offload);
      EXPECT_EQ(exact[i].fits, quick[i].fits) << share << " " << i;
      if (quick[i].is_least)
        EXPECT_LE(quick[i].bytes, exact[i].bytes) << share << " " << i;
      else
        EXPECT_EQ(quick[i].bytes, exact[i].bytes) << share << " " << i;
      skipped += quick[i].is_least;
    }
  }
  EXPECT_GT(skipped, 5);
}

TEST(Budget, KnowsWhatActivationsOutsideSaveAndCost) {
  run::Engine engine = make_engine(2);
  const arch::Model model = small_model(kConfig);
  recipe::Recipe recipe = recipe_of();
  recipe.batch = 64;  // so that activations are more than the slots through which they pass
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
  const arch::Model model = small_model(kConfig);
  recipe::Recipe recipe = recipe_of();
  recipe.offload = "moments";
  for (const BudgetChoice& c : budget_choices(engine, model, recipe, {}, false, nullptr, 1, kRates, ""))
    EXPECT_EQ(c.offload, "moments");
  recipe.recompute = "maps";
  EXPECT_EQ(budget_choices(engine, model, recipe, {}, false, nullptr, 1, kRates, "").size(), 1U);
}

// Of ranks that share a batch, each of which holds parts of the states: the smaller the limit, the more lies outside.
TEST(Budget, ChoosesForRanks) {
  run::Engine engine = make_engine(2);
  const arch::Model model = small_model({{"hidden", 128}, {"layers", 5}, {"ffn", 512}, {"head_dim", 32}});
  recipe::Recipe recipe = recipe_of();
  recipe.recompute = "layers";
  const auto ways = [&](const char* shard, int64_t limit) {
    recipe.shard = shard;
    std::map<std::string, BudgetChoice> out;
    for (const BudgetChoice& c : budget_choices(engine, model, recipe, {}, false, nullptr, limit, kRates, "", 2))
      out[c.offload] = c;
    return out;
  };
  auto all = ways("states", 1);
  EXPECT_EQ(all.size(), 6U);
  EXPECT_LT(all.at("moments").bytes, all.at("").bytes);
  EXPECT_LT(all.at("layers").bytes, all.at("moments").bytes);
  EXPECT_GT(all.at("layers").seconds, all.at("").seconds);
  const auto taken = ways("states", all.at("layers").bytes);
  EXPECT_FALSE(taken.at("").fits || taken.at("moments").fits);
  EXPECT_TRUE(taken.at("layers").fits || taken.at("layers,activations").fits);
  all = ways("none", INT64_MAX);  // moving all states in every rank is no way, unless all of a layer moves
  EXPECT_EQ(all.size(), 4U);
  EXPECT_FALSE(all.contains("moments") || all.contains("activations,moments"));
}

TEST(Budget, RefusesWhatFitsInNoWay) {
  run::Engine engine = make_engine(2);
  const arch::Model model = small_model(kConfig);
  recipe::Recipe recipe = recipe_of();
  int measured = 0;
  const auto ceiling = [&] { return ++measured, 1e11; };
  int64_t least = INT64_MAX;  // that something needs
  for (const BudgetChoice& c : budget_choices(engine, model, recipe, {}, false, nullptr, 0, kRates, ""))
    least = std::min(least, c.bytes);
  // Certain without a step's values, and by little.
  for (const std::string& limit : {std::string("16K"), fmt::format("{}", least - 1)}) {
    recipe.memory_limit = limit;
    try {
      (void)within_limit(engine, model, recipe, {}, false, nullptr, ceiling);
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Exit::hardware);
      EXPECT_NE(std::string(e.what()).find("--offload layers"), std::string::npos) << e.what();
      EXPECT_EQ(measured, 0);
    }
  }
  recipe.memory_limit = fmt::format("{}", least);
  EXPECT_NE(within_limit(engine, model, recipe, {}, false, nullptr, ceiling).text.find("taken"), std::string::npos);
  EXPECT_EQ(measured, 1);
  recipe.memory_limit = "10G";
  const MemoryBudget budget = within_limit(engine, model, recipe, {}, false, nullptr, ceiling);
  EXPECT_EQ(budget.recipe.recompute, "none");
  EXPECT_EQ(budget.recipe.offload, "");
  EXPECT_NE(budget.text.find("taken"), std::string::npos);
}

}  // namespace
}  // namespace lumen::model::train
