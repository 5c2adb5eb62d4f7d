// Generates a blob of any size quickly: a few rows of random numbers rounded by the exact codec, repeated. For
// benchmarks: every number is finite, and decoding costs the same as for real data. Proved by
// tests/number/pattern_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "number/format/format.h"

namespace lumen {

// Random numbers with mean zero and this deviation; a function of (seed, position).
std::vector<float> pattern_values(int64_t count, uint64_t seed, float deviation = 0.02F);

class Pattern {
 public:
  Pattern(const Format& f, int64_t columns);
  void fill(uint8_t* blob, int64_t rows) const;  // blob_layout(f, rows, columns).total bytes, zeroed by the caller

 private:
  const Format& format_;
  int64_t columns_, known_;
  std::vector<uint8_t> rows_;
};

}  // namespace lumen
