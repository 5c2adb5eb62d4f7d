// Zeros around an image that asynchronous copies write where a window leaves it. Elements of the padded value, which is
// never stored, become places in the image; digits along its padded axes decide what exists. An element is the sum of
// two, of a row and of K, whose digits add up without a carry. Proved by
// tests/kernel/synth/gemm/gpu/dot_zeros_test.cpp.
#pragma once

#include <vector>

#include "graph/group/dot.h"
#include "kernel/loop/names.h"

namespace lumen::synth {

class BlockZeros {
 public:
  BlockZeros(Builder& b, const graph::DotZeros& zeros) : b_(b), zeros_(zeros) {}

  // Elements are counted in 32 bits.
  static bool can_count(const graph::DotZeros& zeros);
  // Whether `elements` neighbours of the padded value, the first a multiple of as many, are neighbours in the image.
  static bool keeps_runs(const graph::DotZeros& zeros, int64_t elements);

  // An element, `most` at most, in coordinates of the image: u32, which wrap. first_place() subtracts the image's
  // start.
  struct Place {
    Expr element;
    std::vector<Expr> along;  // axes with zeros
  };
  Place place(Expr element, int64_t most);
  Place first_place(Expr element, int64_t most);
  // Numbers that hold a Place: element, then along.
  int numbers() const;

  Expr element(const Place& first, const Place& second) { return cast(first.element + second.element, Scalar::i64); }
  Expr inside(const Place& first, const Place& second);

 private:
  Expr u32(int64_t x) { return b_.integer(x & 0xffffffff, {Scalar::u32, 1}); }

  Builder& b_;
  const graph::DotZeros& zeros_;
};

}  // namespace lumen::synth
