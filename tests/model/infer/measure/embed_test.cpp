// needs: none. Vectors of texts against the well-known implementation, pooled and normed. The fixtures and the script
// that makes them: embed_reference.py.
#include "model/infer/measure/embed.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file/file.h"
#include "model/arch/checkpoint/read.h"
#include "model/infer/measure/correlation.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::infer {
namespace {

namespace fs = std::filesystem;

struct Case {
  explicit Case(const std::string& name)
      : model(read_hf(test_library(), kFixtures / "families" / name)),
        file(kFixtures / "embed" / (name + ".safetensors"), test_library()->formats()),
        tokens(numbers<int32_t>(file.get("tokens"))),
        hidden(numbers<float>(file.get("hidden"))),
        size(file.get("hidden").shape[1]) {}
  std::vector<float> row(size_t i) const {
    const auto at = hidden.begin() + static_cast<ptrdiff_t>(i) * size;
    return {at, at + size};
  }

  arch::Model model;
  file::SafetensorsFile file;
  std::vector<int32_t> tokens;
  std::vector<float> hidden;
  int64_t size;
};

double off(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0, range = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
    range = std::max(range, std::abs(static_cast<double>(b[i])));
  }
  return std::isfinite(most) ? most / range : INFINITY;
}

std::vector<std::string> cases() {
  return names_in(kFixtures / "embed");
}

class Embed : public testing::TestWithParam<std::string> {};

TEST_P(Embed, AgreesWithTheReference) {
  const Case c(GetParam());
  const LoadedModel loaded(engine(), c.model);
  Embedder embedder(loaded, {.exact = true});
  EXPECT_EQ(embedder.size(), c.size);
  const auto all = embedder.embed(c.tokens, Pooling::none);
  ASSERT_EQ(all.size(), c.tokens.size());
  std::vector<float> mean(static_cast<size_t>(c.size));
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_LT(off(all[i], c.row(i)), 1e-4) << i;
    for (size_t d = 0; d < mean.size(); ++d) mean[d] += c.row(i)[d] / static_cast<float>(all.size());
  }
  EXPECT_LT(off(embedder.embed(c.tokens, Pooling::first).at(0), c.row(0)), 1e-4);
  EXPECT_LT(off(embedder.embed(c.tokens, Pooling::last).at(0), c.row(all.size() - 1)), 1e-4);
  EXPECT_LT(off(embedder.embed(c.tokens, Pooling::mean).at(0), mean), 1e-4);
  // A shorter sequence is what its beginning was: nothing looks ahead.
  EXPECT_LT(off(embedder.embed(std::span(c.tokens).first(3), Pooling::last).at(0), c.row(2)), 1e-4);
}

TEST(Embeddings, NormsAndCosines) {
  const auto normed = [](std::vector<float> v, int p) {
    normalise(v, p);
    return v;
  };
  EXPECT_LT(off(normed({3, -4}, 2), {0.6F, -0.8F}), 1e-6);
  EXPECT_LT(off(normed({3, -5}, 1), {0.375F, -0.625F}), 1e-6);
  EXPECT_LT(off(normed({1, -4}, 0), {8190, -32760}), 1e-6);
  EXPECT_EQ(normed({1, -4}, -1), (std::vector<float>{1, -4}));
  EXPECT_EQ(normed({0, 0}, 2), (std::vector<float>{0, 0}));
  EXPECT_NEAR(std::pow(std::pow(normed({1, 2}, 3)[0], 3) + std::pow(normed({1, 2}, 3)[1], 3), 1.0 / 3), 1, 1e-6);
  const std::vector<float> a = {1, 0}, b = {1, 1}, zero = {0, 0};
  EXPECT_NEAR(cosine(a, b), std::sqrt(0.5), 1e-12);
  EXPECT_EQ(cosine(a, zero), 0);
}

TEST(Embeddings, ManySequencesAreThoseOfEach) {
  const arch::Model m = tiny_model();
  const LoadedModel loaded(engine(), m);
  Embedder together(loaded, {.batch = 64, .exact = true}), alone(loaded, {.exact = true});
  std::vector<std::vector<text::TokenId>> sequences;
  for (size_t n = 1; n <= 16; ++n) {
    sequences.emplace_back();
    for (size_t i = 0; i < 1 + n * 5 % 16; ++i)
      sequences.back().push_back(static_cast<text::TokenId>((i * n + 3) % 11));
  }
  std::vector<size_t> told;
  const auto all = together.embed_all(sequences, Pooling::mean, [&](size_t done) {
    told.push_back(done);
    return true;
  });
  ASSERT_EQ(all.size(), sequences.size());
  EXPECT_EQ(told, (std::vector<size_t>{4, 8, 12, 16}));
  for (size_t i = 0; i < sequences.size(); ++i)
    EXPECT_LT(off(all[i].at(0), alone.embed(sequences[i], Pooling::mean).at(0)), 1e-5) << i;
  EXPECT_TRUE(together.embed_all(sequences, Pooling::mean, [](size_t) { return false; }).empty());
}

TEST(Embeddings, CorrelationsOfNumbersAndRanks) {
  const std::vector<double> a = {1, 2, 3, 4}, line = {3, 5, 7, 9}, curve = {1, 8, 27, 64}, down = {9, 7, 7, 1};
  EXPECT_NEAR(linear_correlation(a, line), 1, 1e-12);
  EXPECT_NEAR(linear_correlation(a, curve), 0.9513699, 1e-6);  // of numpy
  EXPECT_NEAR(rank_correlation(a, curve), 1, 1e-12);
  EXPECT_NEAR(rank_correlation(a, down), -0.9486833, 1e-6);  // of scipy: equal numbers share their rank
  EXPECT_TRUE(std::isnan(linear_correlation(a, std::vector<double>(4, 2))));
}

TEST(Embeddings, SequencesMustFit) {
  const arch::Model m = tiny_model();
  const LoadedModel loaded(engine(), m);
  Embedder embedder(loaded, {.context = 7});
  const std::vector<text::TokenId> seven = {1, 2, 3, 4, 5, 6, 7}, eight = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(embedder.embed(seven, Pooling::last).at(0).size(), 12U);
  EXPECT_THROW((void)embedder.embed(eight, Pooling::last), Error);
  EXPECT_THROW((void)embedder.embed({}, Pooling::mean), Error);
}

TEST(Embeddings, ModelsSayHowTheyPool) {
  arch::Model m = tiny_model();
  const TestFolder folder;
  EXPECT_EQ(pooling_of(m, folder.path()), std::nullopt);
  const auto write = [&](const std::string& text) {
    fs::create_directories(folder / "1_Pooling");
    write_file_atomic(folder / "1_Pooling" / "config.json", text);
  };
  write(R"({"pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true, "word_embedding_dimension": 8})");
  EXPECT_EQ(pooling_of(m, folder.path()), Pooling::last);
  write(R"({"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": true})");
  EXPECT_THROW((void)pooling_of(m, folder.path()), Error);
  write(R"({"pooling_mode_max_tokens": true})");
  EXPECT_EQ(pooling_of(m, folder.path()), Pooling::largest);
  write(R"({"pooling_mode_mean_sqrt_len_tokens": true})");
  EXPECT_EQ(pooling_of(m, folder.path()), Pooling::root);
  write(R"({"embedding_dimension": 8, "pooling_mode": "weightedmean"})");
  EXPECT_EQ(pooling_of(m, folder.path()), Pooling::weighted);
  write(R"({"pooling_mode": ["mean", "max"]})");
  EXPECT_THROW((void)pooling_of(m, folder.path()), Error);
  write(R"({"pooling_mode_of_nobody": true})");
  EXPECT_THROW((void)pooling_of(m, folder.path()), Error);
  write("[]");
  EXPECT_THROW((void)pooling_of(m, folder.path()), Error);
  m.metadata.set("llama.pooling_type", uint32_t{2});
  EXPECT_EQ(pooling_of(m, folder.path()), Pooling::first);
  m.metadata.set("llama.pooling_type", uint32_t{4});
  EXPECT_THROW((void)pooling_of(m, folder.path()), Error);
}

TEST(Embeddings, Pools) {
  const std::vector<float> rows = {1, -2, 3, 5, 2, 6};  // three tokens
  const auto one = [&](Pooling pooling) { return pooled(rows, 2, pooling).at(0); };
  EXPECT_EQ(one(Pooling::mean), (std::vector<float>{2, 3}));
  EXPECT_EQ(one(Pooling::largest), (std::vector<float>{3, 6}));
  EXPECT_EQ(one(Pooling::weighted), (std::vector<float>{13.0F / 6, 26.0F / 6}));
  EXPECT_FLOAT_EQ(one(Pooling::root).at(0), 6 / std::sqrt(3.0F));
}

INSTANTIATE_TEST_SUITE_P(All, Embed, testing::ValuesIn(cases()), [](const auto& i) { return i.param; });

}  // namespace
}  // namespace lumen::model::infer
