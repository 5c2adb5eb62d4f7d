// needs: none. Rows of batches: every token once, every row once an epoch, the same ones after a resume.
#include <gmock/gmock.h>

#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "tests/model/data/data_case.h"

namespace lumen::model::data {
namespace {

std::vector<uint32_t> first_of(uint32_t count) {
  std::vector<uint32_t> out(count);
  std::iota(out.begin(), out.end(), 0U);
  return out;
}

// Examples of many lengths; tokens name their example.
LoadedExamples many(uint32_t count) {
  std::vector<MadeExample> list;
  for (uint32_t i = 0; i < count; ++i) list.push_back({i * 100, 2 + (i * 7) % 13, 1 + i % 2});
  return made_examples(list);
}

TEST(DataPlan, PackingKeepsEveryTokenOnce) {
  const LoadedExamples set = many(500);
  RowReport report;
  const RowPlan plan = plan_rows(*set.store, first_of(500), {.length = 20, .packing = true, .seed = 3}, {"f"}, &report);
  std::set<uint32_t> seen;
  uint64_t positions = 0;
  for (uint64_t row = 0; row < plan.rows(); ++row) {
    int64_t used = 0;
    for (uint64_t i = plan.begins[row]; i < plan.begins[row + 1]; ++i) {
      const PlanItem& item = plan.items[i];
      EXPECT_TRUE(seen.insert(item.example).second);
      EXPECT_EQ(item.length, set.store->examples()[item.example].length);
      EXPECT_EQ(item.learned, set.store->examples()[item.example].learned);
      used += item.length - 1;
    }
    EXPECT_GT(used, 0);
    EXPECT_LE(used, 20);
    positions += static_cast<uint64_t>(used);
  }
  EXPECT_EQ(seen.size(), 500u);
  EXPECT_GT(static_cast<double>(positions) / static_cast<double>(plan.rows() * 20), 0.98);
  EXPECT_TRUE(report.lines().empty());
}

TEST(DataPlan, WhatIsLongerThanAWindowIsCutOrDroppedAndCounted) {
  const LoadedExamples set = made_examples({{0, 8, 2}, {100, 12, 5}, {200, 12, 2}});
  RowReport cut, dropped;
  const RowPlan a = plan_rows(*set.store, first_of(3), {.length = 9}, {"f.jsonl"}, &cut);
  ASSERT_EQ(a.rows(), 2u);  // of the third one nothing learned is left
  EXPECT_EQ(a.items[1].length, 10u);
  EXPECT_EQ(a.items[1].learned, 3u);
  ASSERT_EQ(cut.lines().size(), 2u);
  EXPECT_TRUE(cut.lines()[0].cut);
  EXPECT_EQ(cut.lines()[0].first[0].line, 2u);
  EXPECT_EQ(cut.dropped(), 1u);
  const RowPlan b =
      plan_rows(*set.store, first_of(3), {.length = 9, .overflow = Overflow::drop}, {"f.jsonl"}, &dropped);
  EXPECT_EQ(b.rows(), 1u);
  EXPECT_EQ(dropped.dropped(), 2u);
  EXPECT_THAT(dropped.table(), testing::HasSubstr("f.jsonl:2: 12 tokens"));
}

// Each token of a text is the target of one position, however many windows it needs.
TEST(DataPlan, TextsBecomeSeveralPieces) {
  const LoadedExamples set = made_examples({{0, 50, 50, StoredExample::kText}});
  RowReport report;
  const RowPlan plan = plan_rows(*set.store, {0}, {.length = 8}, {"f"}, &report);
  std::multiset<uint32_t> targets;
  for (const PlanItem& item : plan.items)
    for (uint32_t i = 1; i < item.length; ++i) targets.insert(item.first + i);
  EXPECT_EQ(targets.size(), 49u);
  EXPECT_EQ(std::set<uint32_t>(targets.begin(), targets.end()).size(), 49u);
  EXPECT_TRUE(report.lines().empty());
}

BatchOptions options(int64_t rows, int64_t length) {
  BatchOptions o;
  o.seed = 5;
  o.rows = rows;
  o.length = length;
  o.validation = 0.1;
  return o;
}

// Which examples the rows of a batch hold, by the tokens that are learned.
std::vector<text::TokenId> learned_targets(const Batch& b) {
  std::vector<text::TokenId> out;
  for (size_t i = 0; i < b.weights.size(); ++i)
    if (b.weights[i] > 0) out.push_back(b.targets[i]);
  return out;
}

TEST(DataBatches, AnEpochVisitsEveryRowOnce) {
  const LoadedExamples set = many(200);
  const ExampleBatches batches({set}, {}, options(4, 16));
  ASSERT_EQ(batches.epoch_rows(), 180u);
  ASSERT_EQ(batches.validation_rows(), 20);
  std::multiset<text::TokenId> expected, held;
  for (const StoredExample& e : set.store->examples())
    for (const uint32_t t : set.store->tokens(e).subspan(1))
      if (t >= ExampleStore::kLearned) expected.insert(static_cast<text::TokenId>(t & ~ExampleStore::kLearned));
  for (const text::TokenId t : learned_targets(batches.validation(0, 20))) held.insert(t);
  std::vector<std::multiset<text::TokenId>> epochs;
  std::vector<std::vector<text::TokenId>> orders;
  for (int epoch = 0; epoch < 2; ++epoch) {
    epochs.push_back(held);
    orders.emplace_back();
    for (int64_t step = 0; step < 45; ++step)
      for (const text::TokenId t : learned_targets(batches.training(epoch * 45 + step, 0))) {
        epochs.back().insert(t);
        orders.back().push_back(t);
      }
  }
  EXPECT_EQ(epochs[0], expected);
  EXPECT_EQ(epochs[1], expected);
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_EQ(batches.steps_of(1), 45);
  EXPECT_EQ(batches.steps_of(2.5), 113);
}

TEST(DataBatches, ABatchIsAFunctionOfItsNumber) {
  BatchOptions o = options(3, 24);
  o.packing = true;
  const ExampleBatches one({many(300)}, {}, o), other({many(300)}, {}, o);
  EXPECT_TRUE(one.has_starts());
  EXPECT_EQ(one.token_hash(), other.token_hash());
  // A resumed run asks for later steps first.
  for (const int64_t step : {70, 3, 41}) {
    const Batch a = one.training(step, 0), b = other.training(step, 0);
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.targets, b.targets);
    EXPECT_EQ(a.weights, b.weights);
    EXPECT_EQ(a.starts, b.starts);
  }
}

TEST(DataBatches, WeightsSumToOneOverAStepAndTextsStayApart) {
  BatchOptions o = options(2, 24);
  o.packing = true;
  o.accumulate = 3;
  const ExampleBatches batches({many(300)}, {}, o);
  double sum = 0;
  for (int64_t part = 0; part < 3; ++part) {
    const Batch b = batches.training(4, part);
    sum += std::accumulate(b.weights.begin(), b.weights.end(), 0.0);
    for (int64_t row = 0; row < b.rows; ++row) {
      for (int64_t t = 1; t < b.length; ++t) {
        const auto at = static_cast<size_t>(row * b.length + t);
        const bool same = b.starts[at] == b.starts[at - 1];
        EXPECT_TRUE(same || b.starts[at] == t);
        // Within a text the next input is the target; tokens of another one begin at a multiple of 100.
        if (same && b.targets[at - 1] != 0) {
          EXPECT_EQ(b.tokens[at], b.targets[at - 1]);
          EXPECT_EQ(b.tokens[at] / 100, b.tokens[at - 1] / 100);
        }
      }
    }
  }
  EXPECT_NEAR(sum, 1, 1e-5);
}

TEST(DataBatches, SharesOfSets) {
  std::vector<MadeExample> small, large;
  for (uint32_t i = 0; i < 20; ++i) small.push_back({100 + i * 10, 4, 1});
  for (uint32_t i = 0; i < 400; ++i) large.push_back({10000 + i * 10, 4, 1});
  BatchOptions o = options(10, 4);
  o.mix = {3, 1};
  const ExampleBatches batches({made_examples(small), made_examples(large)}, {}, o);
  std::map<text::TokenId, int> seen;
  int from_small = 0;
  for (int64_t step = 0; step < 100; ++step) {
    for (const text::TokenId t : learned_targets(batches.training(step, 0))) {
      ++seen[t];
      from_small += t < 10000;
    }
  }
  EXPECT_EQ(from_small, 750);  // of 1000
  // No row of a set comes again before all others of it came.
  int least = 1000, most = 0;
  for (const auto& [token, count] : seen) {
    if (token >= 10000) continue;
    least = std::min(least, count);
    most = std::max(most, count);
  }
  EXPECT_LE(most - least, 1);
  o.mix = {1};
  EXPECT_THROW(ExampleBatches({made_examples(small), made_examples(large)}, {}, o), Error);
  o.mix = {1, -1};
  EXPECT_THROW(ExampleBatches({made_examples(small), made_examples(large)}, {}, o), Error);
}

TEST(DataBatches, PairsStandBesideEachOther) {
  std::vector<MadeExample> list;
  for (uint32_t i = 0; i < 40; ++i) list.push_back({1000 + i * 20, 5 + i % 2, 2});
  const ExampleBatches batches({made_examples(list, RowForm::pairs)}, {}, options(4, 8));
  EXPECT_EQ(batches.form(), RowForm::pairs);
  EXPECT_EQ(batches.validation_rows(), 4);
  std::set<text::TokenId> seen;
  for (int64_t step = 0; step < 9; ++step) {
    const Batch b = batches.training(step, 0);
    for (int64_t row = 0; row < 4; row += 2) {
      const text::TokenId chosen = b.tokens[static_cast<size_t>(row * 8)],
                          rejected = b.tokens[static_cast<size_t>(row * 8 + 8)];
      EXPECT_EQ(rejected, chosen + 20);
      EXPECT_EQ((chosen - 1000) % 40, 0);
      seen.insert(chosen);
    }
    for (const float w : b.weights) EXPECT_TRUE(w == 0 || w == 1);
  }
  EXPECT_EQ(seen.size(), 18u);
  EXPECT_EQ(batches.steps_of(1), 9);
  EXPECT_THROW(ExampleBatches({made_examples(list, RowForm::pairs)}, {}, options(3, 8)), Error);
}

TEST(DataBatches, Labels) {
  std::vector<MadeExample> list;
  for (uint32_t i = 0; i < 20; ++i) list.push_back({1000 + i * 20, 5, 2, i % 3 == 0 ? StoredExample::kWanted : 0});
  const ExampleBatches batches({made_examples(list, RowForm::labels)}, {}, options(3, 8));
  const Batch b = batches.training(1, 0);
  ASSERT_EQ(b.labels.size(), 3u);
  for (size_t row = 0; row < 3; ++row) EXPECT_EQ(b.labels[row] == 1, (b.tokens[row * 8] - 1000) / 20 % 3 == 0);
}

TEST(DataBatches, TooLittleIsAnError) {
  EXPECT_THROW(ExampleBatches({made_examples({{1, 4, 1}})}, {}, options(1, 8)).require(1e9), Error);
  BatchOptions drop = options(1, 8);
  drop.overflow = Overflow::drop;
  EXPECT_THROW(ExampleBatches({made_examples({{1, 40, 1}, {100, 40, 1}})}, {}, drop).require(1e9), Error);
  const ExampleBatches fine({many(10)}, {}, options(1, 16));
  EXPECT_NO_THROW(fine.require(1e9));
  EXPECT_THROW(fine.require(500), Error);  // the model has no such token
}

// A chat may give several texts: none of them is for validation while another is trained on.
TEST(DataBatches, TextsOfOneRowStayTogether) {
  ExampleWriter writer(nullptr, {}, {});
  RowReport rows;
  for (uint32_t row = 1; row <= 30; ++row) {
    rows.read();
    for (uint32_t text = 0; text < 3; ++text) {
      const std::vector<uint32_t> tokens = {row, (1000 * (text + 1) + row) | ExampleStore::kLearned};
      writer.add(tokens, {.line = row});
    }
  }
  BatchOptions o;
  o.rows = 1;
  o.length = 2;
  o.validation = 0.2;
  std::vector<LoadedExamples> sets;
  sets.push_back({{{"made.jsonl", 10, {1, 2}}}, writer.finish(RowForm::sequences, rows), false});
  const ExampleBatches batches(std::move(sets), {}, o);
  EXPECT_TRUE(batches.has_chats());
  EXPECT_EQ(batches.validation_rows(), 18);
  EXPECT_EQ(batches.epoch_rows(), 72U);
  std::set<text::TokenId> held;
  for (int64_t i = 0; i < 18; ++i) held.insert(batches.validation(i, 1).tokens[0]);
  EXPECT_EQ(held.size(), 6U);
  for (int64_t step = 0; step < 72; ++step) EXPECT_FALSE(held.contains(batches.training(step, 0).tokens[0])) << step;
}

}  // namespace
}  // namespace lumen::model::data
