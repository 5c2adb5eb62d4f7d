#include "model/compress/criteria/weight_shape.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace lumen::model::compress {

ShapeErrors shape_errors(std::span<const float> w, std::span<const float> y, std::span<const float> columns_count) {
  double squares = 0;
  for (const float x : w) squares += double{x} * x;
  const double limit = kTailDeviations * std::sqrt(squares / std::max<size_t>(w.size(), 1));
  double lost = 0, all = 0, lost_tail = 0, tail = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    const double counts = columns_count.empty() ? 1 : double{columns_count[i % columns_count.size()]};
    const double off = double{w[i]} - y[i], square = double{w[i]} * w[i];
    lost += counts * off * off;
    all += counts * square;
    if (std::abs(w[i]) <= limit) continue;
    lost_tail += off * off;
    tail += square;
  }
  return {all > 0 ? lost / all : 0, tail > 0 ? lost_tail / tail : 0};
}

double median_asymmetry(std::span<const float> w, int64_t group) {
  std::vector<double> of_groups;
  for (int64_t at = 0; at + group <= std::ssize(w); at += group) {
    const auto [least, most] = std::ranges::minmax(w.subspan(at, group));
    if (most > least) of_groups.push_back(std::abs(double{most} + least) / (double{most} - least));
  }
  if (of_groups.empty()) return 0;
  const auto middle = of_groups.begin() + std::ssize(of_groups) / 2;
  std::ranges::nth_element(of_groups, middle);
  return *middle;
}

}  // namespace lumen::model::compress
