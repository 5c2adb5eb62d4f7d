// Looks up the numbers of codes of four bits two at a time, those of a byte, in a table in the shared memory of a
// block. Each of `copies` lanes has its own copy, so that there are no bank conflicts. Proved by
// tests/kernel/synth/gemm/skinny_dot_test.cpp.
#pragma once

#include <vector>

#include "kernel/loop/names.h"
#include "kernel/machine/machine.h"
#include "kernel/synth/unpack/unpack.h"

namespace lumen::synth {

class PairTable {
 public:
  struct Shape {
    std::vector<uint16_t> values;  // the sixteen: bits of 16-bit floats, or bytes
    bool bytes = false;
    int field = -1;  // of the codes
    int copies = 1;
    int64_t size() const { return values.empty() ? 0 : kPairs * copies * kPairBytes; }
  };
  static constexpr int64_t kPairs = 256, kPairBytes = 4;
  static int copies_for(const machine::Machine& m);

  // In the code of a block; allocates its shared memory.
  PairTable(Builder& b, const machine::Machine& m, const Shape& shape);

  // In a lane loop: writes this lane's part of `lanes`; visible after a barrier.
  void fill(Expr lane, int64_t lanes);
  // The table's entries for bytes whose low and high codes are these elements. With bytes, an entry has its two in both
  // halves.
  std::vector<Expr> look_up(Unpack& cursor, const std::vector<int64_t>& low, const std::vector<int64_t>& high,
                            VType type);

 private:
  Builder& b_;
  const machine::Machine& m_;
  Shape shape_;
  BufferId buffer_;
};

}  // namespace lumen::synth
