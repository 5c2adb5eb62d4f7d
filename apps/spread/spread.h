// Mean and standard deviation of measurements. Proved by tests/apps/spread/spread_test.cpp.
//
// May include: nothing.
#pragma once

#include <cstdint>
#include <span>

namespace lumen::apps {

struct Spread {
  double mean = 0;       // 0 without values
  double deviation = 0;  // sample deviation (n - 1); 0 for fewer than two
  int64_t count = 0;
};
Spread spread_of(std::span<const double> values);

}  // namespace lumen::apps
