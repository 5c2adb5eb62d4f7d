// needs: cpu. Recommenders on made-up data: what they reach, that a run goes on with the same bits, that plans are
// within their budgets, matter to whom they are for, and are applied as they are measured.
#include "apps/recommend/recommend.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "tests/model/tiny.h"

namespace lumen::recommend {

using model::engine;
using model::test_library;

namespace {

const Split& split() {
  static const Split made(made_up(600, 200, 20, 1));
  return made;
}

RecommenderSettings settings(bool plans) {
  RecommenderSettings s;
  s.family = plans ? "sasrec_planned" : "sasrec";
  s.config = {{"items", 200}, {"hidden", 32}, {"length", 20}};
  s.by_candidates = true;
  s.is_frozen = plans;
  s.rate = 3e-3;
  s.tau_steps = 150;
  return s;
}

std::vector<std::vector<ItemId>> histories() {
  std::vector<std::vector<ItemId>> out;
  for (const int64_t user : tested_users(split(), {})) out.push_back(split().seen(user, true));
  return out;
}

TEST(Ranks, CountTiesByHalves) {
  Quality q;
  for (const double rank : {0.0, 4.0, 4.5, 9.5, 10.0, 100.0}) add_rank(q, rank);
  EXPECT_EQ(q.hit5, 3);
  EXPECT_EQ(q.hit10, 4);
  EXPECT_DOUBLE_EQ(q.ndcg5, 1 + 1 / std::log2(6.0) + 1 / std::log2(6.5));
  // Who knows nothing has no hits: 60 items, each used three times, of which nobody had more than a few.
  Interactions even;
  even.item_names.resize(61);
  for (int64_t user = 0; user < 60; ++user) {
    std::vector<ItemId>& own = even.users.emplace_back();
    for (int64_t i = 0; i < 5; ++i) own.push_back(1 + (user + i) % 60);
  }
  const Evaluation e = evaluate_popularity(Split(even), {});
  EXPECT_EQ(e.full.hit10, 0);
  EXPECT_EQ(e.sampled.hit10, 0);
  EXPECT_EQ(e.full.users, 60);
}

TEST(Recommenders, LearnWhatComesNext) {
  Recommender model(engine(), *test_library(), settings(false));
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(model.train_epoch(split()));
  const Evaluation e = evaluate(model, split(), {}), popular = evaluate_popularity(split(), {});
  EXPECT_GT(e.full.ndcg10, 0.6);
  EXPECT_GT(e.full.hit10, 0.75);
  EXPECT_LT(popular.full.hit10, 0.15);
  // Eight bits cost nothing, two cost something.
  model.use(bit_table("8,8,8,8"));
  EXPECT_NEAR(evaluate(model, split(), {}).full.ndcg10, e.full.ndcg10, 0.02);
  model.use(bit_table("2,2,2,2"));
  EXPECT_LT(evaluate(model, split(), {}).full.ndcg10, e.full.ndcg10);
  model.use_masters();
  EXPECT_EQ(evaluate(model, split(), {}).full.ndcg10, e.full.ndcg10);
}

TEST(Recommenders, PairsAreLearnedToo) {
  RecommenderSettings s = settings(false);
  s.by_candidates = false;
  Recommender model(engine(), *test_library(), s);
  const double first = *model.train_epoch(split());
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(model.train_epoch(split()));
  EXPECT_LT(*model.train_epoch(split()), 0.6 * first);
}

TEST(Recommenders, FiltersOverWindowsLearnAndArePlanned) {
  RecommenderSettings s = settings(false);
  s.family = "caser";
  s.config = {{"items", 200}, {"hidden", 32}, {"dropout", 0.2}};
  Recommender model(engine(), *test_library(), s);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(model.train_epoch(split()));
  EXPECT_GT(evaluate(model, split(), {}).full.ndcg10, 0.45);
  // A device's own steps.
  const double first = model.fine_tune(split(), 3);
  for (int i = 0; i < 10; ++i) (void)model.fine_tune(split(), 3);
  EXPECT_LT(model.fine_tune(split(), 3), first);
  // A user whose other interactions are held out has none to learn from.
  Split few = split();
  few.all.users[3].resize(3);
  EXPECT_THROW((void)model.fine_tune(few, 3), Error);
  s.family = "caser_planned";
  s.is_frozen = true;
  Recommender planned(engine(), *test_library(), s);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(planned.train_epoch(split()));
  const auto users = histories();
  const std::vector<Plan> plans = planned.plans(users);
  // Channels of other lengths count by their weights.
  EXPECT_LE(average_bits(plans[0], planned.matrices(), bit_table("normal")), 2.9);
  EXPECT_GT(average_bits(plans[0], planned.matrices(), bit_table("normal")), 2.8);
  planned.use(bit_table("normal"));
  EvaluationOptions options;
  options.plans = plans;
  EXPECT_GT(evaluate(planned, split(), options).full.ndcg10, 0.2);
  const Plan* const one = &plans[3];
  const std::vector<float> measured = planned.scores({&users[3], 1}, {&one, 1});
  const model::TestFolder folder;
  planned.save(folder.path());
  const auto device = Recommender::load(engine(), *test_library(), folder.path());
  device->apply(*one, bit_table("normal"));
  const std::vector<float> applied = device->scores({&users[3], 1});
  for (size_t i = 0; i < applied.size(); ++i) ASSERT_NEAR(applied[i], measured[i], 1e-3) << i;
}

TEST(Recommenders, ReadFewBitsAtLittleCost) {
  // Eight bits of what products read are nearly all of them; three are not; a device computes what was measured.
  double reached[2];
  for (const int bits : {8, 2}) {
    RecommenderSettings s = settings(false);
    s.config["read_bits"] = bits;
    Recommender model(engine(), *test_library(), s);
    for (int i = 0; i < 16; ++i) ASSERT_TRUE(model.train_epoch(split()));
    reached[bits == 2] = evaluate(model, split(), {}).full.ndcg10;
  }
  EXPECT_GT(reached[0], 0.5);
  EXPECT_LT(reached[1], reached[0]);
  RecommenderSettings s = settings(true);
  s.config["read_bits"] = 8;
  Recommender planned(engine(), *test_library(), s);
  ASSERT_TRUE(planned.train_epoch(split()));
  const auto users = histories();
  const std::vector<Plan> plans = planned.plans(users);
  planned.use(bit_table("normal"));
  const Plan* const one = &plans[3];
  const std::vector<float> measured = planned.scores({&users[3], 1}, {&one, 1});
  const model::TestFolder folder;
  planned.save(folder.path());
  const auto device = Recommender::load(engine(), *test_library(), folder.path());
  device->apply(*one, bit_table("normal"));
  const std::vector<float> applied = device->scores({&users[3], 1});
  double far = 0;
  for (size_t i = 0; i < applied.size(); ++i) far = std::max<double>(far, std::fabs(applied[i] - measured[i]));
  EXPECT_LT(far, 0.05);
}

TEST(Recommenders, GoOnWithTheSameBits) {
  for (const bool plans : {false, true}) {
    const model::TestFolder folder;
    Recommender whole(engine(), *test_library(), settings(plans)), part(engine(), *test_library(), settings(plans));
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(whole.train_epoch(split()));
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(part.train_epoch(split()));
    part.save(folder.path());
    const auto again = Recommender::load(engine(), *test_library(), folder.path());
    ASSERT_TRUE(again->train_epoch(split()));
    EXPECT_EQ(again->steps(), whole.steps());
    const Recommender::State a = whole.state(), b = again->state();
    for (const auto& [name, numbers] : a) {
      if (name.ends_with("_bank")) continue;
      EXPECT_EQ(std::memcmp(numbers.data(), b.at(name).data(), numbers.size() * sizeof(float)), 0) << name;
    }
    EXPECT_EQ(whole.backbone() == again->backbone(), plans) << "only a frozen backbone is the same after an epoch more";
  }
}

TEST(Recommenders, RefuseOtherFamiliesAndFolders) {
  RecommenderSettings s = settings(false);
  s.family = "llama";
  EXPECT_THROW(Recommender(engine(), *test_library(), s), Error);
  const model::TestFolder folder;
  EXPECT_THROW(Recommender::load(engine(), *test_library(), folder.path()), Error);
}

TEST(Plans, AreWithinTheirBudgetPersonalAndAppliedAsMeasured) {
  Recommender model(engine(), *test_library(), settings(true));
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(model.train_epoch(split()));
  const auto users = histories();
  const std::vector<Plan> plans = model.plans(users);
  const Plan usual = model.mean_plan(users);
  for (const Plan& plan : plans) {
    EXPECT_LE(average_bits(plan, model.matrices(), bit_table("tight")), 2.1);
    EXPECT_LE(average_bits(plan, model.matrices(), bit_table("normal")), 2.9);
    EXPECT_GT(average_bits(plan, model.matrices(), bit_table("normal")), 2.85);
    EXPECT_LE(average_bits(plan, model.matrices(), bit_table("roomy")), 4.4);
    // A query's channel and its key's are of one class.
    for (size_t layer = 0; layer < plan.layers.size(); layer += 6)
      for (size_t c = 0; c < 32; ++c) ASSERT_EQ(plan.classes[layer * 32 + c], plan.classes[(layer + 1) * 32 + c]);
  }
  // One user's plan is the same alone as among others.
  EXPECT_EQ(model.plans({&users[5], 1}).front(), plans[5]);
  std::vector<Plan> others = plans;
  std::rotate(others.begin(), others.begin() + 300, others.end());
  const auto quality = [&](std::span<const Plan> which, const char* table) {
    model.use(bit_table(table));
    EvaluationOptions options;
    options.plans = which;
    return evaluate(model, split(), options).full.ndcg10;
  };
  const double own = quality(plans, "normal");
  EXPECT_GT(own, 0.55);
  EXPECT_GT(own, quality(others, "normal"));
  EXPECT_GT(own, quality({&usual, 1}, "normal"));
  EXPECT_GT(quality(plans, "roomy"), own - 0.03);
  EXPECT_GT(quality(plans, "tight"), own * 0.6) << "fewer bits cost, gracefully";

  model.use(bit_table("normal"));
  const std::vector<float> measured = model.scores(users, std::vector<const Plan*>(users.size(), &plans[7]));
  const model::TestFolder folder;
  model.save(folder.path());
  const auto device = Recommender::load(engine(), *test_library(), folder.path());
  EXPECT_EQ(device->backbone(), model.backbone());
  device->apply(plans[7], bit_table("normal"));
  const std::vector<float> applied = device->scores(users);
  ASSERT_EQ(applied.size(), measured.size());
  for (size_t i = 0; i < applied.size(); ++i) ASSERT_NEAR(applied[i], measured[i], 1e-3) << i;
  EXPECT_THROW(device->apply(Plan{{1}, {0}}, bit_table("normal")), Error);
}

}  // namespace
}  // namespace lumen::recommend
