// A blob of any size in a moment: a few rows of random numbers rounded by the exact codec, repeated. For benchmarks:
// every number is finite, and every byte costs what a real one does. Proved by tests/number/pattern_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "number/format/format.h"

namespace lumen {

// Numbers around zero of this deviation; a function of (seed, position).
std::vector<float> pattern_values(int64_t count, uint64_t seed, float deviation = 0.02F);

class Pattern {
 public:
  Pattern(const Format& f, int64_t columns);
  void fill(uint8_t* blob, int64_t rows) const;  // blob_layout(f, rows, columns).total bytes, zeroed before

 private:
  const Format& format_;
  int64_t columns_, known_;
  std::vector<uint8_t> rows_;
};

}  // namespace lumen
