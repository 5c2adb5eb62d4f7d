#include "apps/spread/spread.h"

#include <cmath>

namespace lumen::apps {

Spread spread_of(std::span<const double> values) {
  Spread out;
  out.count = std::ssize(values);
  const double n = double(out.count);
  for (const double x : values) out.mean += x / n;
  for (const double x : values) out.deviation += (x - out.mean) * (x - out.mean);
  out.deviation = out.count > 1 ? std::sqrt(out.deviation / (n - 1)) : 0;
  return out;
}

}  // namespace lumen::apps
