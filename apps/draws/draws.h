// Numbers drawn at random on the host. Proved by tests/apps/draws/draws_test.cpp.
//
// May include: nothing.
#pragma once

#include <cstdint>

namespace lumen {

// Pseudorandom numbers that depend only on the seed and the stream number (`first`, `second`): splitmix64.
class Draws {
 public:
  explicit Draws(uint64_t seed, uint64_t first = 0, uint64_t second = 0);
  uint64_t next();
  int64_t below(int64_t bound);  // 0 .. bound - 1, all equally often
  double uniform();              // [0, 1)
  double normal();               // mean 0, deviation 1; two uniform numbers each

 private:
  uint64_t state_;
};

}  // namespace lumen
