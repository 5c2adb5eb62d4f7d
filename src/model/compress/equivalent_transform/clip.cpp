#include "model/compress/equivalent_transform/clip.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/threads/team.h"

namespace lumen::model::compress {

void ClipLimits::clamp(std::span<float> w) const {
  for (int64_t i = 0; i < std::ssize(w); ++i) {
    const float limit = limits[i / group];  // groups are in row-major order
    w[i] = std::clamp(w[i], -limit, limit);
  }
}

namespace {

// For each group of columns its gram over the samples: [columns / group][group, group].
std::vector<double> gram(std::span<const float> x, int64_t columns, int64_t group) {
  std::vector<double> g(columns * group, 0);
  const int64_t samples = std::ssize(x) / columns;
  parallel_for(0, columns, [&](int64_t c) {
    for (int64_t s = 0; s < samples; ++s)
      for (int64_t d = 0; d < group; ++d)
        g[c * group + d] += double{x[s * columns + c]} * x[s * columns + c / group * group + d];
  });
  return g;
}

ClipLimits find(std::span<const float> w, int64_t rows, int64_t columns, int64_t group,
                const std::vector<double>& products, const RoundMatrix& round) {
  ClipLimits found{rows, columns, group, {}, 0, 0};
  const int64_t groups = rows * columns / group;
  std::vector<float> most(groups, 0);
  for (int64_t i = 0; i < std::ssize(w); ++i) {
    float& m = most[i / group];
    m = std::max(m, std::abs(w[i]));
  }
  std::vector<double> least(groups, 0);
  found.limits = most;
  for (int step = 0; step < kClipSteps; ++step) {
    ClipLimits trial = found;
    for (size_t i = 0; i < most.size(); ++i) trial.limits[i] = most[i] * (1 - step / (2.0F * kClipSteps));
    std::vector<float> clamped(w.begin(), w.end());
    trial.clamp(clamped);
    const std::vector<float> rounded = round(clamped, rows, columns);
    LUMEN_CHECK(rounded.size() == w.size());
    parallel_for(0, groups, [&](int64_t i) {
      const size_t start = i * group;
      const double* const g = &products[i * group % columns * group];
      double error = 0;
      for (int64_t a = 0; a < group; ++a) {
        const double da = double{rounded[start + a]} - w[start + a];
        for (int64_t b = 0; b < group; ++b)
          error += da * g[a * group + b] * (double{rounded[start + b]} - w[start + b]);
      }
      if (step > 0 && !(error < least[i])) return;
      least[i] = error;
      found.limits[i] = trial.limits[i];
    });
    if (step == 0)
      for (const double e : least) found.before += e;
  }
  for (const double e : least) found.after += e;
  return found;
}

}  // namespace

ClipLimits find_clip(std::span<const float> w, int64_t rows, int64_t columns, int64_t group, std::span<const float> x,
                     const RoundMatrix& round) {
  LUMEN_CHECK(group > 0 && columns % group == 0 && std::ssize(w) == rows * columns && std::ssize(x) % columns == 0);
  return find(w, rows, columns, group, gram(x, columns, group), round);
}

ClipLimits find_clip_by_gram(std::span<const float> w, int64_t rows, int64_t columns, int64_t group,
                             std::span<const float> gram, const RoundMatrix& round) {
  LUMEN_CHECK(group > 0 && columns % group == 0 && std::ssize(w) == rows * columns &&
              std::ssize(gram) == columns * columns);
  std::vector<double> products(columns * group);
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t d = 0; d < group; ++d) products[c * group + d] = gram[c * columns + c / group * group + d];
  return find(w, rows, columns, group, products, round);
}

}  // namespace lumen::model::compress
