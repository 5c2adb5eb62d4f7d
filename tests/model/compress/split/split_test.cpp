// needs: cpu. Columns by their impact, models with weights in parts, and what shares of columns would cost.
#include "model/compress/split/split.h"

#include <numeric>

#include "base/error.h"
#include "model/arch/split_weights.h"
#include "tests/model/compress/equivalent_transform/transform_case.h"
#include "tests/run/kept_kernels.h"

namespace lumen::model::compress {
namespace {

run::Engine& split_engine() {
  static run::Engine e(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 1, .machine = nullptr});
  return e;
}

std::vector<text::TokenId> tokens_of(const arch::Model& m, int64_t count) {
  std::vector<text::TokenId> out;
  for (int64_t i = 0; i < count; ++i) out.push_back((i * i * 7 + i * 3 + 5) % m.integer("vocab"));
  return out;
}

std::vector<std::string> matrices_of(const arch::Model& m) {
  std::vector<std::string> names;
  for (const arch::Parameter& p : m.parameters)
    if (!p.is_vector() && !p.frozen) names.push_back(p.name);
  return names;
}

// Any order, other for each group.
void shuffle(std::vector<ColumnGroup>& groups) {
  uint32_t salt = 3;
  for (ColumnGroup& g : groups) {
    g.order.resize(g.columns);
    std::iota(g.order.begin(), g.order.end(), 0);
    ++salt;
    std::ranges::stable_sort(g.order, [&](int64_t a, int64_t b) { return drawn(salt, a) < drawn(salt, b); });
  }
}

class SplitFamilies : public testing::TestWithParam<std::string> {};

// Every weight that may be, in any order: the same logits.
TEST_P(SplitFamilies, ComputeTheSame) {
  const arch::Model before = uneven_model(GetParam());
  std::vector<ColumnGroup> groups = column_groups(before, matrices_of(before));
  ASSERT_FALSE(groups.empty());
  shuffle(groups);
  std::vector<WeightParts> parts;
  for (const ColumnGroup& g : groups)
    for (const std::string& name : g.weights) {
      const auto some = static_cast<int64_t>(1 + parts.size() % (g.columns - 1));
      if (parts.size() % 3 != 2) parts.push_back({name, {some, g.columns - some}});
    }
  const arch::Model split = with_parts_of(before, groups, parts);
  EXPECT_LT(off(logits_of(split), logits_of(before)), 1e-6);
}
INSTANTIATE_TEST_SUITE_P(All, SplitFamilies, testing::ValuesIn(names_in(kFamilies)),
                         [](const auto& family) { return family.param; });

TEST(Split, OrdersAreAbsorbedWhereTheyAreFree) {
  const arch::Model m = tiny_model();
  const std::vector<ColumnGroup> groups = column_groups(m, matrices_of(m));
  std::vector<std::string> free, gathered;
  for (const ColumnGroup& g : groups)
    (g.before ? free : gathered).push_back(fmt::format("{}", fmt::join(g.weights, " ")));
  EXPECT_EQ(free, (std::vector<std::string>{"layers.0.down", "layers.1.down"}));
  EXPECT_EQ(gathered[0], "layers.0.wq layers.0.wk layers.0.wv");
  EXPECT_EQ(groups.size(), 8U);
}

// Columns that nothing depends on come last; batches do not matter. The sums themselves: slopes_test.cpp.
TEST(Split, ColumnsAreRankedByWhatDependsOnThem) {
  arch::Model m = tiny_model();
  // Channels 3 and 8 of what down reads in the second layer are zeros.
  std::vector<float> gate(m.weights.at("layers.1.gate").f32().begin(), m.weights.at("layers.1.gate").f32().end());
  for (const int64_t row : {3, 8}) std::fill_n(gate.begin() + row * 12, 12, 0.0F);
  m.weights.at("layers.1.gate") = arch::f32_weight(m.weights.at("layers.1.gate").type.shape, gate);
  const std::vector<text::TokenId> text = tokens_of(m, 48);
  std::vector<ColumnGroup> groups = column_groups(m, matrices_of(m)), again = groups;
  calibrate::LayerRunOptions options;
  options.length = 8;
  options.batch = 4;
  rank_columns(split_engine(), m, text, options, {}, groups);
  options.batch = 1;
  rank_columns(split_engine(), m, text, options, {}, again);
  for (size_t g = 0; g < groups.size(); ++g) {
    EXPECT_TRUE(
        std::ranges::is_sorted(groups[g].order, std::greater(), [&](int64_t c) { return groups[g].impacts[c]; }));
    for (int64_t c = 0; c < groups[g].columns; ++c)
      EXPECT_NEAR(groups[g].impacts[c], again[g].impacts[c], 1e-5 * groups[g].impacts[0]);
  }
  const ColumnGroup& last = groups.back();
  ASSERT_EQ(last.weights, std::vector<std::string>{"layers.1.down"});
  EXPECT_EQ((std::vector<int64_t>{last.order.end() - 2, last.order.end()}), (std::vector<int64_t>{3, 8}));
  EXPECT_GT(last.impacts[last.order[17]], 0);
}

TEST(Split, SharesAreWholeBlocks) {
  const FormatLibrary& formats = test_library()->formats();
  const Format &wide = *formats.get("int3_g32"), &block = *formats.get("int2_g64"), &plain = *formats.get("bf16");
  EXPECT_EQ(high_columns(0.05, 1024, wide, block), 64);
  EXPECT_EQ(high_columns(0.05, 1024, plain, plain), 52);
  EXPECT_EQ(high_columns(0.05, 1024, plain, wide), 64);
  EXPECT_EQ(high_columns(0, 1024, wide, block), 0);
  EXPECT_EQ(high_columns(0.05, 64, wide, block), 0);
  EXPECT_EQ(high_columns(0.999, 1024, wide, block), 960);
  EXPECT_EQ(high_columns(0.5, 96, wide, block), 0);
}

arch::Model scoring_model() {
  const arch::FamilyRef family = test_library()->family("llama");
  arch::Model m = initialise(family,
                             family->config("", {{"vocab", 13},
                                                 {"hidden", 64},
                                                 {"layers", 2},
                                                 {"heads", 2},
                                                 {"kv_heads", 2},
                                                 {"head_dim", 32},
                                                 {"ffn", 96},
                                                 {"context", 32}}),
                             5);
  for (auto& [name, w] : m.weights) {
    std::vector<float> values(w.f32().begin(), w.f32().end());
    for (float& v : values) v *= m.find(name)->init == "ones" ? 1 : 4;
    w = arch::f32_weight(w.type.shape, values);
  }
  return m;
}

// More columns cost bytes and lose less, terms of pairs are those of a semidefinite form, and the same text gives the
// same bits whatever the number of threads.
TEST(Split, ScoresOfShares) {
  const arch::Model m = scoring_model();
  const FormatLibrary& formats = test_library()->formats();
  const std::vector<text::TokenId> text = tokens_of(m, 32 * 12);
  std::vector<ColumnGroup> groups = column_groups(m, matrices_of(m));
  RatioOptions o;
  o.run.length = 32;
  o.high = {formats.get("int4_g32")};
  o.low = {formats.get("int2_g32")};
  o.ratios = {0.02, 0.1, 0.6};
  o.strategy = &find_strategy("gptq");
  rank_columns(split_engine(), m, text, o.run, {}, groups);
  std::vector<std::string> names = matrices_of(m);
  const RatioScores scores = score_ratios(split_engine(), m, names, groups, text, o);
  size_t cut = 0;
  for (const RatioScore& w : scores.weights) {
    EXPECT_EQ(w.candidates[0].high_columns, 0);
    for (size_t c = 1; c < w.candidates.size(); ++c, ++cut) {
      EXPECT_GT(w.candidates[c].bytes, w.candidates[c - 1].bytes) << w.name;
      EXPECT_LT(w.candidates[c].score, w.candidates[c - 1].score) << w.name << " " << c;
      EXPECT_GT(w.candidates[c].score, 0) << w.name;
    }
  }
  EXPECT_EQ(cut, 2U * (6 + 2));  // 64 columns have one such part, 96 two
  EXPECT_EQ(scores.pairs.size(), 2U * 21);
  std::vector<std::vector<size_t>> where;
  const ChoiceProblem problem = ratio_problem(scores, 1, &where);
  EXPECT_EQ(problem.blocks.size(), 2U + 2);
  problem.require_whole();
  run::Engine many(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 3, .machine = nullptr});
  const RatioScores again = score_ratios(many, m, names, groups, text, o);
  EXPECT_EQ(again.pairs, scores.pairs);
  for (size_t i = 0; i < names.size(); ++i)
    for (size_t c = 0; c < scores.weights[i].candidates.size(); ++c)
      EXPECT_EQ(again.weights[i].candidates[c].score, scores.weights[i].candidates[c].score);
}

TEST(Split, RefusesWhatCannotBeCut) {
  arch::Model m = tiny_model();
  std::vector<ColumnGroup> groups = column_groups(m, matrices_of(m));
  shuffle(groups);
  const std::vector<WeightParts> parts{{"layers.0.wq", {4, 8}}};
  const arch::Model once = with_parts_of(m, groups, parts);
  EXPECT_THROW((void)with_parts_of(once, groups, parts), Error);
  arch::Model turned = m;
  turned.metadata.set(arch::kOnlineRotations, file::GgufArray(std::vector<std::string>{"blk.0.attn_q.weight"}));
  EXPECT_THROW((void)with_parts_of(turned, groups, parts), Error);
  arch::Weight& w = m.weights.at("layers.0.wq");
  const FormatRef rounded = test_library()->formats().get("q1_0");
  w.type = {{graph::Dim(16), graph::Dim(12)}, {Scalar::f32, rounded}};
  EXPECT_THROW((void)with_parts_of(m, groups, parts), Error);
}

}  // namespace
}  // namespace lumen::model::compress
