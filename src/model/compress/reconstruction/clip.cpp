#include "model/compress/reconstruction/clip.h"

#include <algorithm>

#include "base/threads/team.h"

namespace lumen::model::compress {

ClippedFit::ClippedFit(run::Engine& engine, FormatRef f, int64_t rows, int64_t columns, std::span<const float> w,
                       std::span<const float> importance)
    : engine_(engine),
      format_(std::move(f)),
      rows_(rows),
      columns_(columns),
      w_(w),
      importance_(importance),
      grid_(engine, format_, rows, columns) {
  below.assign(grid_.groups(), 1);
  above.assign(grid_.groups(), 1);
}

std::vector<uint8_t> ClippedFit::fit() const {
  std::vector<float> scaled(w_.size());
  parallel_for(0, rows_, [&](int64_t r) {
    for (int64_t c = 0; c < columns_; ++c) {
      const int64_t i = r * columns_ + c, g = grid_.group_of(r, c);
      scaled[i] = w_[i] * (w_[i] < 0 ? below[g] : above[g]);
    }
  });
  return engine_.encode(format_, scaled.data(), rows_, columns_, importance_);
}

void ClippedFit::refit() {
  grid_.read(fit());
}

void ClippedFit::slopes(std::span<const float> w, std::span<const float> rounded, std::span<const float> gradient,
                        Slopes* out) const {
  out->below.assign(grid_.groups(), 0);
  out->above.assign(grid_.groups(), 0);
  // Groups lie within a row: each is summed by one thread, in order.
  parallel_for(0, rows_, [&](int64_t r) {
    for (int64_t c = 0; c < columns_; ++c) {
      const int64_t i = r * columns_ + c, g = grid_.group_of(r, c);
      const float least = grid_.least(g), most = grid_.largest(g), range = most - least;
      if (!(range > 0)) continue;
      if (w[i] > most) {
        out->above[g] += gradient[i] * most;
      } else if (w[i] < least) {
        out->below[g] += gradient[i] * least;
      } else {
        const float moved = gradient[i] * (rounded[i] - w[i]) / range;
        out->above[g] += moved * most;
        out->below[g] -= moved * least;
      }
    }
  });
}

}  // namespace lumen::model::compress
