// The mean of some measurements and how far they are from it. Proved by tests/model/report/spread_test.cpp.
#pragma once

#include <cstdint>
#include <span>

namespace lumen::model {

struct Spread {
  double mean = 0;       // 0 of none
  double deviation = 0;  // of a sample: by n - 1; 0 of fewer than two
  int64_t count = 0;
};
Spread spread_of(std::span<const double> values);

}  // namespace lumen::model
