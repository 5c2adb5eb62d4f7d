// Rows of a weight that stream through the shared memory of a block: vectors of them copied as they lie in memory,
// stage by stage of K, asynchronously. Proved by tests/kernel/synth/gemm/skinny_dot_test.cpp.
#pragma once

#include <numeric>

#include "base/round_up.h"
#include "kernel/synth/gemm/dot_write.h"

namespace lumen::synth {

class WeightCopies {
 public:
  // A stage is `chunk` bytes of each of `rows` rows, `pitch` bytes apart in shared memory.
  struct Shape {
    int64_t rows = 1, chunk = 0, pitch = 0, vector = 16;
    int64_t row_bytes = 0, stage_bytes = 0;  // of a whole row; from stage to stage in shared memory
    int64_t lanes = 128;
    // Adjacent lanes copy one row, then the same places of the next rows: one address for all of a lane's vectors.
    // Otherwise there is one row, whose vectors are dealt one by one.
    bool by_rows = false;
    size_t load = 1;  // the weight's: b, or a if the problem is transposed
    // By rows, chunks need not be whole vectors: a stage is shifted from its place by as much as it is from the start
    // of the vector it begins in.
    int64_t step() const { return std::gcd(chunk, vector); }
    int64_t copied() const { return round_up(chunk + vector - step(), vector); }  // of a row
  };
  // In the code of a block, whose rows begin at n0: allocates `bytes` of shared memory for stages.
  WeightCopies(DotWriter& w, const DotProblem& p, const Shape& shape, int64_t bytes, Expr n0);

  BufferId buffer() const { return buffer_; }
  // Selects other rows, and their place in a stage.
  void enter(Expr n0, Expr byte) {
    n0_ = n0;
    byte_ = byte;
  }
  // A row's number in the weight; the last one for rows past it.
  Expr clamped(Expr row);
  Expr shift(Expr stage);  // bytes by which a stage is shifted from its place
  // In a lane loop: begins copying this lane's vectors of a stage, to stage `number` of the buffer.
  void begin(Expr lane, Expr stage, Expr number);

  // The longest vector, at most sixteen bytes, to which all data in memory, including chunks, is aligned.
  static int64_t vector_of(const DotProblem& p, int64_t chunk, int64_t row_bytes, size_t load = 1);
  static int64_t bytes_of(const DotProblem& p, int64_t elements, size_t load = 1);  // of the weight, whole blocks

 private:
  const DotIndex& rows() const { return shape_.load == 1 ? p_.n : p_.m; }
  Expr memory_byte(Expr row);
  void copy(Expr row, Expr byte, Expr stage, Expr number);
  void begin_rows(Expr lane, Expr stage, Expr number);

  DotWriter& w_;
  Builder& b_;
  const DotProblem& p_;
  Shape shape_;
  Expr n0_, byte_;
  BufferId buffer_;
};

}  // namespace lumen::synth
