// Losses of a number format beyond rounding: numbers beyond its range are clamped, and blocks whose scale underflows
// its field become zeros. Both are legal, and both are reported. Proved by
// tests/model/compress/saturation_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "number/format/format.h"

namespace lumen::model::compress {

struct Saturation {
  int64_t clamped = 0;  // numbers clamped in blocks whose scale is at the end of its range
  double largest = 0;   // of them, by magnitude
  int64_t lost = 0;     // nonzero numbers of blocks that became zeros
  int64_t blocks = 0;   // such blocks

  bool any() const { return clamped > 0 || lost > 0; }
  Saturation& operator+=(const Saturation& other);
  // "12 numbers lie beyond the range of f16 (the largest is 1.2e+06); 256 numbers in 1 block became 0"
  std::string text(const Format& f) const;
};

// Saturation and squared error, in one pass.
struct Closeness {
  double difference = 0, size = 0;  // squares of x - y, and of x
  Saturation loss;

  double relative() const;  // |x - y| / |x|, Euclidean; 0 where x is all zeros
  Closeness& operator+=(const Closeness& other);
};

// `x` was encoded to `blob`, which decodes to `y`. For a format of single numbers under a row, tile or tensor scale,
// rows count as blocks: small numbers that become 0 there are rounding.
Closeness compare(const Format& f, std::span<const float> x, std::span<const float> y, std::span<const uint8_t> blob,
                  int64_t rows, int64_t columns);
Saturation saturation(const Format& f, std::span<const float> x, std::span<const float> y,
                      std::span<const uint8_t> blob, int64_t rows, int64_t columns);

}  // namespace lumen::model::compress
