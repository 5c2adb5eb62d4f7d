#include "model/compress/relative_error.h"

#include <cmath>

namespace lumen::model {

double relative_error(std::span<const float> x, std::span<const float> y) {
  double distance = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = static_cast<double>(x[i]) - y[i];
    distance += d * d;
  }
  for (const float v : y) size += static_cast<double>(v) * v;
  return size > 0 ? std::sqrt(distance) / std::sqrt(size) : 0;
}

}  // namespace lumen::model
