// needs: none. Layers with a window remember the latest keys only: logits are those of caches that hold everything,
// through long texts, rewinds and shifts, and the caches are as small as the windows.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/arch/checkpoint/read.h"
#include "model/infer/generate/generate.h"
#include "model/infer/session/session.h"
#include "tests/model/tiny.h"

namespace lumen::model::infer {
namespace {

constexpr int64_t kContext = 256;
const SessionOptions kOptions = {.context = kContext, .chunk = 16, .exact = true};

// The model of a fixture, for longer texts, with or without the function that remembers the latest only.
arch::Model fixture(const std::string& name, int64_t window) {
  arch::Model m = read_hf(test_library(),
                          std::filesystem::path(LUMEN_SOURCE_DIR) / "tests" / "model" / "fixtures" / "families" / name);
  m.config["context"] = kContext;
  m.config["window_size"] = static_cast<double>(window);
  return m;
}

// As long as the text, so that nothing is saved and nothing forgotten.
Session everything(const LoadedModel& loaded) {
  SessionOptions options = kOptions;
  options.chunk = 128;
  return Session(loaded, options);
}

std::vector<text::TokenId> text(int64_t count, int64_t salt = 0) {
  std::vector<text::TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<text::TokenId>((i * i * 7 + i * 13 + salt) % 61));
  return tokens;
}

double off(std::span<const float> a, std::span<const float> b) {
  const auto [low, high] = std::minmax_element(b.begin(), b.end());
  double most = 0;
  for (size_t i = 0; i < b.size(); ++i) most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
  return std::isfinite(most) ? most / (static_cast<double>(*high) - *low) : INFINITY;
}

class NearCache : public testing::TestWithParam<const char*> {};

TEST_P(NearCache, LogitsAreThoseOfTheWholeCache) {
  const arch::Model m = fixture(GetParam(), 7);
  const LoadedModel loaded(engine(), m);
  Session near(loaded, kOptions), whole = everything(loaded);
  EXPECT_LT(near.cache_bytes(), whole.cache_bytes());
  const auto tokens = text(200);
  size_t done = 0;
  for (const size_t count : {3U, 40U, 1U, 1U, 1U, 17U, 5U, 90U, 1U, 30U}) {
    const auto part = std::span(tokens).subspan(done, count);
    EXPECT_LT(off(near.feed(part), whole.feed(part)), 1e-5) << "behind " << done;
    done += count;
  }
  const auto more = std::span(tokens).subspan(done, 6);
  const auto a = near.feed_all(more);
  const std::vector<float> rows(a.begin(), a.end());
  EXPECT_LT(off(rows, whole.feed_all(more)), 1e-5);
}

TEST_P(NearCache, RewindsReadAgainWhatIsGone) {
  const arch::Model m = fixture(GetParam(), 7);
  const LoadedModel loaded(engine(), m);
  Session near(loaded, kOptions), whole = everything(loaded);
  const auto tokens = text(180), other = text(20, 5);
  (void)near.feed(tokens);
  (void)whole.feed(tokens);
  for (const int64_t to : {178, 120, 119, 30, 3, 0}) {  // a little, far back, and to the beginning
    near.rewind(to);
    whole.rewind(to);
    EXPECT_EQ(near.position(), to);
    EXPECT_LT(off(near.feed(other), whole.feed(other)), 1e-5) << to;
    EXPECT_EQ(near.tokens(), whole.tokens());
  }
  std::vector<text::TokenId> changed = tokens;
  changed[100] = (changed[100] + 1) % 61;
  EXPECT_LT(off(near.become(tokens), whole.become(tokens)), 1e-5);
  EXPECT_LT(off(near.become(changed), whole.become(changed)), 1e-5);
  near.shift(2, 60);
  whole.shift(2, 60);
  EXPECT_LT(off(near.feed(other), whole.feed(other)), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(All, NearCache, testing::Values("mistral", "gemma2", "gemma3", "exaone4", "qwen2_window"),
                         [](const auto& i) { return i.param; });

TEST(NearCaches, AreAsLargeAsTheWindows) {
  const arch::Model mistral = fixture("mistral", 7), gemma = fixture("gemma3", 7);
  const LoadedModel a(engine(), mistral), b(engine(), gemma);
  const auto layer = [](const arch::Model& m, int64_t places) {
    return 2 * m.integer("kv_heads") * m.integer("head_dim") * places * 4;
  };
  const int64_t places = 64;  // 7 + 2 * 16, rounded up
  EXPECT_EQ(Session(a, kOptions).cache_bytes(), 2 * layer(mistral, places));
  EXPECT_EQ(Session(b, kOptions).cache_bytes(), 2 * layer(gemma, places) + layer(gemma, kContext));
  // Nothing to save: one cache as before.
  const arch::Model wide = fixture("mistral", 250);
  const LoadedModel c(engine(), wide);
  EXPECT_EQ(Session(c, kOptions).cache_bytes(), 2 * layer(wide, kContext));
}

TEST(NearCaches, HeldInAFormat) {
  const arch::Model m = fixture("mistral", 7);
  const LoadedModel loaded(engine(), m);
  SessionOptions options = kOptions;
  options.keys = options.values = test_library()->formats().get("f16");
  Session near(loaded, options), whole = everything(loaded);
  const auto tokens = text(150);
  EXPECT_LT(off(near.feed(tokens), whole.feed(tokens)), 1e-2);
  EXPECT_EQ(near.cache_bytes() * 2, Session(loaded, kOptions).cache_bytes());
}

TEST(NearPlaces, NeverOverwriteWhatMayBeSeen) {
  uint32_t random = 1;
  const auto next = [&](int64_t below) {
    random = random * 1664525 + 1013904223;
    return static_cast<int64_t>(random >> 8) % below;
  };
  for (const int64_t window : {1, 2, 9, 70}) {
    NearPlaces places(window, 16);
    int64_t length = 0;
    for (int step = 0; step < 4000; ++step) {
      if (next(5) == 0 && length > 0) {
        const int64_t back = std::min(length, next(next(4) == 0 ? 100 : 12));
        length -= back;
        if (!places.rewind(length)) length = 0;  // put() checks itself
      } else {
        const int64_t width = 1 + next(16), count = 1 + next(width);
        const int64_t first = places.put(length, count, width);
        EXPECT_EQ(places.positions()[static_cast<size_t>(first)], length);
        length += count;
      }
      // All that the next token may see is there once.
      for (int64_t p = std::max<int64_t>(0, length - window + 1); p < length; ++p)
        ASSERT_EQ(std::count(places.positions().begin(), places.positions().end(), p), 1) << p << " of " << length;
    }
  }
}

}  // namespace
}  // namespace lumen::model::infer
