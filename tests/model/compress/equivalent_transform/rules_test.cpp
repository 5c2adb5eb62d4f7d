// needs: none. Rotations as matrices, rules of scales and the clip search, against plain computations in double.
#include "base/error.h"
#include "tests/model/compress/equivalent_transform/transform_case.h"

namespace lumen::model::compress {
namespace {

TEST(Rotations, AreOrthogonalAndFollowTheirSeed) {
  for (const Rotation& r : {Rotation::hadamard(24, 1), Rotation::random(10, 1), Rotation::plain_hadamard(20)}) {
    const auto n = static_cast<size_t>(r.width());
    const std::vector<double> m = r.matrix();
    for (size_t a = 0; a < n; ++a)
      for (size_t b = 0; b < n; ++b) {
        double dot = 0;
        for (size_t k = 0; k < n; ++k) dot += m[a * n + k] * m[b * n + k];
        EXPECT_NEAR(dot, a == b ? 1 : 0, 1e-12);
      }
    std::vector<double> row(n, 0);
    row[1] = 3;
    r.apply(row);
    for (size_t k = 0; k < n; ++k) EXPECT_NEAR(row[k], 3 * m[n + k], 1e-12);
    r.undo(row);
    EXPECT_NEAR(row[1], 3, 1e-12);
    EXPECT_NEAR(row[0], 0, 1e-12);
    EXPECT_EQ(Rotation::given(r.width(), m).matrix(), m);
  }
  EXPECT_EQ(Rotation::hadamard(8, 5).matrix(), Rotation::hadamard(8, 5).matrix());
  EXPECT_NE(Rotation::hadamard(8, 5).matrix(), Rotation::hadamard(8, 6).matrix());
  EXPECT_THROW((void)Rotation::given(2, {1, 0, 0.1, 1}), Error);
  EXPECT_THROW((void)Rotation::hadamard(6, 1), Error);
}

TEST(ScaleRules, SmoothScalesAreThoseOfTheFormula) {
  const std::vector<double> x = {4, 100, 0, 1e-30}, w = {1, 0.25, 2, 1};
  const auto s = smooth_scales(x, w, 0.75);
  EXPECT_NEAR(s[0], std::pow(4, 0.75), 1e-12);
  EXPECT_NEAR(s[1], std::pow(100, 0.75) / std::pow(0.25, 0.25), 1e-12);
  EXPECT_EQ(s[2], 1);
  EXPECT_EQ(s[3], 1e-5);
}

TEST(ScaleRules, CandidatesAreNormalisedAndTheBestIsFound) {
  const std::vector<double> x = {4, 1, 9};
  const auto s = awq_scales(x, 10);
  EXPECT_NEAR(s[0], 2 / std::sqrt(3), 1e-12);
  EXPECT_NEAR(s[1] * s[2], 1, 1e-12);  // the smallest and the largest
  EXPECT_EQ(awq_scales(x, 0), (std::vector<double>{1, 1, 1}));
  int calls = 0;
  const AwqChoice best = choose_awq(x, [&](std::span<const double> by) {
    ++calls;
    return std::abs(by[0] - 2 / std::sqrt(3));
  });
  EXPECT_EQ(calls, kAwqSteps);
  EXPECT_EQ(best.step, 10);
  EXPECT_EQ(best.losses.size(), static_cast<size_t>(kAwqSteps));
}

TEST(ScaleRules, SharedChannelsCountTogether) {
  const arch::Model m = uneven_model("llama");
  for (const graph::ScaleSite& site : graph::scale_sites(transform_graph(m))) {
    std::vector<double> columns(site.powers.size(), 0);
    for (const std::string& name : site.readers) {
      const arch::Weight& w = m.weights.at(name);
      for (int64_t i = 0; i < std::ssize(w.f32()); ++i) {
        double& most = columns[static_cast<size_t>(i % w.columns())];
        most = std::max(most, std::abs(static_cast<double>(w.f32()[static_cast<size_t>(i)])));
      }
    }
    EXPECT_EQ(weight_maxima(m, site), largest_of_channels(site, columns)) << site.value;
    if (site.is_whole()) {
      EXPECT_EQ(mean_of_channels(site, columns), columns);
    }
  }
}

TEST(InjectedOutliers, MakeChannelsLargerAndKeepTheModel) {
  const arch::Model before = uneven_model("llama");
  const auto sites = graph::scale_sites(transform_graph(before));
  arch::Model m = before;
  const std::vector<int64_t> channels = {3, 7};
  inject_outliers(m, sites[0], channels, 64);
  EXPECT_LT(off(logits_of(m), logits_of(before)), kSame);
  for (const graph::ScaledParameter& c : sites[0].changes) {
    if (c.along != graph::Along::elements) continue;
    for (size_t i = 0; i < c.powers.size(); ++i)
      EXPECT_FLOAT_EQ(m.weights.at(c.parameter).f32()[i],
                      before.weights.at(c.parameter).f32()[i] * (i == 3 || i == 7 ? 64 : 1));
  }
}

TEST(Clip, FindsWhatChangesTheProductLeast) {
  constexpr int64_t kRows = 3, kColumns = 16, kGroup = 8, kSamples = 20;
  std::vector<float> w, x;
  for (int64_t i = 0; i < kRows * kColumns; ++i)
    w.push_back(static_cast<float>(drawn(1, static_cast<uint64_t>(i)) - 0.5));
  w[5] = 4;  // one number makes the steps of its group wide
  for (int64_t i = 0; i < kSamples * kColumns; ++i)
    x.push_back(i % kColumns == 5 ? 0.01F : static_cast<float>(drawn(2, static_cast<uint64_t>(i)) - 0.5));
  const RoundMatrix round = [](std::span<const float> v, int64_t, int64_t) {
    std::vector<float> out(v.begin(), v.end());
    for (size_t start = 0; start < out.size(); start += kGroup) {
      float most = 0;
      for (size_t i = start; i < start + kGroup; ++i) most = std::max(most, std::abs(out[i]));
      for (size_t i = start; i < start + kGroup; ++i) out[i] = std::round(out[i] / most * 3) * most / 3;
    }
    return out;
  };
  const ClipLimits found = find_clip(w, kRows, kColumns, kGroup, x, round);
  EXPECT_LT(found.after, found.before);
  EXPECT_LT(found.limits[0], 4);
  // Sample by sample, for every step.
  for (int64_t group = 0; group < kRows * kColumns / kGroup; ++group) {
    float most = 0;
    for (int64_t i = 0; i < kGroup; ++i) most = std::max(most, std::abs(w[static_cast<size_t>(group * kGroup + i)]));
    double least = INFINITY;
    float limit = 0;
    for (int step = 0; step < kClipSteps; ++step) {
      const float at = most * (1 - static_cast<float>(step) / 20);
      std::vector<float> clamped(w.begin(), w.end());
      for (float& v : clamped) v = std::clamp(v, -at, at);
      const std::vector<float> rounded = round(clamped, kRows, kColumns);
      double error = 0;
      for (int64_t s = 0; s < kSamples; ++s) {
        double part = 0;
        for (int64_t i = 0; i < kGroup; ++i) {
          const auto e = static_cast<size_t>(group * kGroup + i);
          part += (static_cast<double>(rounded[e]) - w[e]) * x[static_cast<size_t>(s * kColumns) + e % kColumns];
        }
        error += part * part;
      }
      if (error < least * (1 - 1e-9)) {
        least = error;
        limit = at;
      }
    }
    EXPECT_FLOAT_EQ(found.limits[static_cast<size_t>(group)], limit) << group;
  }
}

}  // namespace
}  // namespace lumen::model::compress
