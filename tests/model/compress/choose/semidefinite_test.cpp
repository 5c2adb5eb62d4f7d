// needs: none. Matrices become positive semidefinite by as little as possible; scores stay.
#include "model/compress/choose/semidefinite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace lumen::model::compress {
namespace {

double least_eigenvalue(const linear::Matrix& m) {
  const linear::Eigenvectors e = eigenvectors(m);
  return *std::min_element(e.values.begin(), e.values.end());
}

TEST(Semidefinite, EigenvaluesBelowTheFloorAreRaised) {
  std::mt19937 random(1);
  linear::Matrix m(6, 6);
  for (int64_t r = 0; r < 6; ++r)
    for (int64_t c = 0; c <= r; ++c) m.at(r, c) = m.at(c, r) = random() / 4294967296.0 - 0.5;
  EXPECT_LT(least_eigenvalue(m), -0.1);
  const linear::Matrix p = eigenvalue_floor(m);
  EXPECT_GT(least_eigenvalue(p), -1e-12);
  // The difference is what was negative, and is orthogonal to what is left.
  double inner = 0;
  for (int64_t r = 0; r < 6; ++r)
    for (int64_t c = 0; c < 6; ++c) inner += p.at(r, c) * (p.at(r, c) - m.at(r, c));
  EXPECT_NEAR(inner, 0, 1e-12);
  const linear::Matrix again = eigenvalue_floor(p);
  for (int64_t r = 0; r < 6; ++r)
    for (int64_t c = 0; c < 6; ++c) EXPECT_NEAR(again.at(r, c), p.at(r, c), 1e-12);
  EXPECT_NEAR(least_eigenvalue(eigenvalue_floor(m, 0.25)), 0.25, 1e-12);
}

ChoiceBlock block_of(uint32_t seed, double noise) {
  // Terms of a true Gram matrix: two items of three candidates, errors in 5 directions.
  std::mt19937 random(seed);
  const auto real = [&] { return random() / 2147483648.0 - 1; };
  double error[3][2][5];
  for (auto& item : error)
    for (auto& candidate : item)
      for (double& x : candidate) x = real();
  const auto inner = [&](int i, int c, int j, int d) {
    double sum = 0;
    for (int k = 0; k < 5; ++k) sum += error[i][c][k] * error[j][d][k];
    return sum;
  };
  ChoiceBlock block;
  for (int i = 0; i < 3; ++i) {
    ChoiceItem item{"i", 1, {}};
    for (int c = 0; c < 2; ++c) item.candidates.push_back({"c", 1, inner(i, c, i, c) / 2, 0});
    block.items.push_back(item);
  }
  for (size_t a = 0; a < 3; ++a)
    for (size_t b = 0; b < a; ++b) {
      PairTerms pair{a, b, {}};
      for (int c = 0; c < 2; ++c)
        for (int d = 0; d < 2; ++d) pair.terms.push_back(inner(a, c, b, d) + noise * real());
      block.pairs.push_back(pair);
    }
  return block;
}

// Of every choice of a block.
double least_form(const ChoiceBlock& block) {
  double least = 1e300;
  for (int picks = 0; picks < 8; ++picks) {
    const size_t pick[] = {static_cast<size_t>(picks & 1), static_cast<size_t>(picks >> 1 & 1),
                           static_cast<size_t>(picks >> 2 & 1)};
    double sum = 0;
    for (size_t i = 0; i < 3; ++i) sum += std::max(0.0, block.items[i].candidates[pick[i]].score);
    for (const PairTerms& p : block.pairs) sum += p.terms[pick[p.a] * 2 + pick[p.b]];
    least = std::min(least, sum);
  }
  return least;
}

TEST(Semidefinite, BlocksLoseNothingByPairsAlone) {
  int changed = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    ChoiceBlock exact = block_of(seed, 0);
    const ChoiceBlock before = exact;
    const double change = make_semidefinite(exact);
    EXPECT_LT(change, 0.1) << "what is consistent hardly changes: terms are of size 1 to 4";
    ChoiceBlock noisy = block_of(seed, 2);
    const ChoiceBlock measured = noisy;
    if (make_semidefinite(noisy) > 0) ++changed;
    EXPECT_GE(least_form(noisy), -1e-8) << seed;
    for (size_t i = 0; i < 3; ++i)
      for (size_t c = 0; c < 2; ++c)
        EXPECT_EQ(noisy.items[i].candidates[c].score, measured.items[i].candidates[c].score);
  }
  EXPECT_GT(changed, 100);
}

TEST(Semidefinite, ScoresBelowZeroStayAndTheirPairsGo) {
  ChoiceBlock block = block_of(1, 0);
  block.items[0].candidates[0].score = -0.25;
  make_semidefinite(block);
  EXPECT_EQ(block.items[0].candidates[0].score, -0.25);
  for (const PairTerms& p : block.pairs) {
    if (p.b != 0) continue;
    EXPECT_NEAR(p.terms[0], 0, 1e-9);
    EXPECT_NEAR(p.terms[2], 0, 1e-9);
  }
  ChoiceBlock nothing;
  EXPECT_EQ(make_semidefinite(nothing), 0);
}

}  // namespace
}  // namespace lumen::model::compress
