#include "model/calibrate/sound.h"

#include <algorithm>

#include "run/engine/feedback/first_not_finite.h"

namespace lumen::model::calibrate {
namespace {

constexpr double kLittle = 1e-6;  // of the mean of the others

std::span<float> of_matrix(std::vector<float>& sums, int64_t m, int64_t matrices) {
  const int64_t size = std::ssize(sums) / matrices;
  return std::span<float>(sums).subspan(m * size, size);
}

}  // namespace

std::vector<std::string> drop_unsound(std::span<TapSums> taps) {
  std::vector<std::string> out;
  for (TapSums& t : taps) {
    const int64_t matrices = std::max<int64_t>(t.tap.matrices, 1);
    int64_t broken = 0, zero = 0;
    for (int64_t m = 0; m < matrices; ++m) {
      if (t.rows_of(m) == 0) continue;
      bool finite = true, nothing = true, known = false;
      std::vector<float>* const all[] = {&t.squares, &t.magnitudes, &t.largest, &t.gram, &t.cross};
      for (std::vector<float>* sums : all) {
        const std::span<const float> mine = of_matrix(*sums, m, matrices);
        known = known || !mine.empty();
        finite = finite && !run::first_not_finite(mine);
        // Cross sums do not count: the unrounded input may be nonzero where the rounded one is zero.
        if (sums != &t.cross) nothing = nothing && std::ranges::all_of(mine, [](float x) { return x == 0; });
      }
      if (!known || (finite && !nothing)) continue;
      (finite ? zero : broken) += 1;
      for (std::vector<float>* sums : all) std::ranges::fill(of_matrix(*sums, m, matrices), 0.0F);
      if (t.tap.matrices > 0)
        t.counts[m] = 0;
      else
        t.rows = 0;
    }
    std::string& why = out.emplace_back();
    if (broken > 0 && matrices > 1)
      why = fmt::format("the inputs of {} of {} matrices on the text are not finite", broken, matrices);
    else if (broken > 0)
      why = "its inputs on the text are not finite";
    else if (zero > 0 && matrices == 1)
      why = "its inputs on the text are all zero";
  }
  return out;
}

void raise_zeros(std::span<float> importance) {
  double sum = 0;
  int64_t above = 0;
  for (const float x : importance) {
    if (!(x > 0)) continue;
    sum += x;
    ++above;
  }
  if (above == std::ssize(importance)) return;
  const float little = above > 0 ? float(kLittle * sum / above) : 1.0F;
  for (float& x : importance)
    if (!(x > 0)) x = little;
}

}  // namespace lumen::model::calibrate
