// needs: none. The largest keys and values by layer, held against products computed here.
#include "model/calibrate/cache_ranges.h"

#include <cmath>

#include "base/error.h"
#include "tests/model/tiny.h"

namespace lumen::model::calibrate {
namespace {

const std::vector<text::TokenId> kText = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};

// The largest |w h| of tokens, h what the first layer's attention reads of them. Turning a key's pairs moves size from
// one number to the other, so that keys are exact at the first place alone.
double largest_product(const arch::Model& m, const std::string& weight, std::span<const text::TokenId> tokens) {
  const int64_t hidden = m.integer("hidden");
  const auto numbers = [&](const std::string& name) { return m.weights.at(name).f32(); };
  const auto embed = numbers("embed"), gain = numbers("layers.0.attn_norm"), w = numbers(weight);
  double largest = 0;
  for (const text::TokenId t : tokens) {
    const auto x = embed.subspan(t * hidden, hidden);
    double squares = 0;
    for (const float v : x) squares += double(v) * v;
    const double norm = 1 / std::sqrt(squares / hidden + m.config.at("eps"));
    for (size_t row = 0; row < w.size() / hidden; ++row) {
      double sum = 0;
      for (int64_t i = 0; i < hidden; ++i) sum += double(w[row * hidden + i]) * x[i] * norm * gain[i];
      largest = std::max(largest, std::abs(sum));
    }
  }
  return largest;
}

TEST(CacheRanges, AreThoseOfEveryTokenInEveryWindow) {
  const arch::Model m = tiny_model();
  const infer::LoadedModel loaded(engine(), m);
  const CacheRanges alone = cache_ranges(loaded, kText, 1);
  ASSERT_EQ(alone.keys.size(), 2U);
  ASSERT_EQ(alone.values.size(), 2U);
  EXPECT_NEAR(alone.keys[0], largest_product(m, "layers.0.wk", kText), 1e-4);
  EXPECT_NEAR(alone.values[0], largest_product(m, "layers.0.wv", kText), 1e-4);
  // Windows of five: the eleventh token is in none of them, and those of the first window are seen, too.
  const auto read = std::span(kText).first(10);
  std::vector<int64_t> told;
  const CacheRanges ranges = cache_ranges(loaded, kText, 5, [&](int64_t done, int64_t all) {
    EXPECT_EQ(all, 2);
    told.push_back(done);
  });
  EXPECT_EQ(told, (std::vector<int64_t>{1, 2}));
  EXPECT_NEAR(ranges.values[0], largest_product(m, "layers.0.wv", read), 1e-4);
  EXPECT_LE(ranges.keys[0], largest_product(m, "layers.0.wk", read) * std::sqrt(2) + 1e-4);
  EXPECT_GT(ranges.keys[1], 0);
  for (size_t first = 0; first < 10; first += 5) {
    const CacheRanges window = cache_ranges(loaded, read.subspan(first, 5), 5);
    for (size_t layer = 0; layer < 2; ++layer) {
      EXPECT_LE(window.keys[layer], ranges.keys[layer]);
      EXPECT_LE(window.values[layer], ranges.values[layer]);
    }
  }
}

TEST(CacheRanges, ErrorsForWhatHasNone) {
  const arch::Model m = tiny_model();
  const infer::LoadedModel loaded(engine(), m);
  EXPECT_THROW((void)cache_ranges(loaded, std::span(kText).first(4), 5), Error) << "no window";
  const std::vector<text::TokenId> strange = {0, 11};
  EXPECT_THROW((void)cache_ranges(loaded, strange, 2), Error) << "a token that the model does not have";
}

}  // namespace
}  // namespace lumen::model::calibrate
