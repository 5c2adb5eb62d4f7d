// needs: none. Weights against exp in f64: each one, their sum, and what counts for nothing.
#include "model/infer/sample/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace lumen::model {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

TEST(Weights, AreThoseOfExp) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(-90, 0);
  for (const size_t n : {size_t{1}, size_t{7}, size_t{63}, size_t{64}, size_t{65}, size_t{5000}}) {
    for (const float scale : {0.01F, 1.0F, 30.0F, 1e30F}) {
      std::vector<float> logits(n), weights(n);
      for (float& x : logits) x = 20 + uniform(random);
      logits[n / 2] = 20;
      if (n > 1) logits[0] = kNothing;
      TokenSet hidden;
      for (size_t i = 1; i < n; i += 5)
        if (i != n / 2) hidden.add(i);
      const Weighing how{20, scale, -50};
      const double sum = weights_of(logits, how, hidden, weights);
      double want = 0;
      for (size_t i = 0; i < n; ++i) {
        const double x = (double{logits[i]} - how.best) * how.scale, w = std::exp(x);
        if (hidden.has(i) || logits[i] < how.least || x < -87.01) {
          EXPECT_EQ(weights[i], 0) << logits[i];
        } else if (x > -86.99) {
          EXPECT_NEAR(weights[i] / w, 1, 1e-5) << x;
        }
        want += weights[i];
      }
      EXPECT_EQ(weights[n / 2], 1);
      EXPECT_NEAR(sum, want, 1e-6 * want);
    }
  }
}

// What is hidden may be better than the best that is left, by any amount.
TEST(Weights, HiddenOnesDoNotSpoilTheSum) {
  std::vector<float> logits(128, 1e30F), weights(128);
  TokenSet hidden(128);
  for (size_t i = 0; i < 127; ++i) hidden.add(i);
  logits[127] = -3;
  EXPECT_EQ(weights_of(logits, {-3, 1, -100}, hidden, weights), 1);
  EXPECT_EQ(weights[0], 0);
}

}  // namespace
}  // namespace lumen::model
