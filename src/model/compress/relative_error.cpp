#include "model/compress/relative_error.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/threads/team.h"

namespace lumen::model::compress {

double relative_error(std::span<const float> x, std::span<const float> y) {
  // Partial sums are added in a fixed order: same bits at any thread count.
  constexpr int64_t kBlock = 1 << 16;
  const int64_t count = std::ssize(x), blocks = (count + kBlock - 1) / kBlock;
  std::vector<double> distances(blocks), sizes(blocks);
  parallel_for(0, blocks, {.is_worth = blocks > 4}, [&](int64_t b) {
    double distance = 0, size = 0;
    for (int64_t i = b * kBlock; i < std::min(count, (b + 1) * kBlock); ++i) {
      const double d = double{x[i]} - y[i];
      distance += d * d;
      size += double{y[i]} * y[i];
    }
    distances[b] = distance;
    sizes[b] = size;
  });
  double distance = 0, size = 0;
  for (int64_t b = 0; b < blocks; ++b) {
    distance += distances[b];
    size += sizes[b];
  }
  return size > 0 ? std::sqrt(distance) / std::sqrt(size) : 0;
}

}  // namespace lumen::model::compress
