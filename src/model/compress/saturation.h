// What a number format could not hold of a tensor: numbers beyond its range come out smaller, and blocks whose scale is
// too small for its field come out as zeros. Both are legal, and both are worth a word. Proved by
// tests/model/compress/saturation_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "number/format/format.h"

namespace lumen::model {

struct Saturation {
  int64_t clamped = 0;  // numbers of blocks whose scale stands at the end of its range and that came out too small
  double largest = 0;   // of them, by magnitude
  int64_t lost = 0;     // numbers other than 0 of blocks that came out as zeros
  int64_t blocks = 0;   // such blocks

  bool any() const { return clamped > 0 || lost > 0; }
  Saturation& operator+=(const Saturation& other);
  // "12 numbers lie beyond the range of f16 (the largest is 1.2e+06); 256 numbers in 1 block became 0"
  std::string text(const Format& f) const;
};

// The same and how far apart numbers are, in one pass.
struct Closeness {
  double difference = 0, size = 0;  // squares of x - y, and of x
  Saturation loss;

  double relative() const;  // |x - y| / |x|, Euclidean; 0 where x is all zeros
  Closeness& operator+=(const Closeness& other);
};

// `x` was encoded to `blob`, which decodes to `y`. A format of single numbers under a scale of their row, tile or
// tensor is looked at row by row: that small ones become 0 there is rounding.
Closeness compare(const Format& f, std::span<const float> x, std::span<const float> y, std::span<const uint8_t> blob,
                  int64_t rows, int64_t columns);
Saturation saturation(const Format& f, std::span<const float> x, std::span<const float> y,
                      std::span<const uint8_t> blob, int64_t rows, int64_t columns);

}  // namespace lumen::model
