// Which rows and columns of a matrix the lanes and elements of a fragment (loop/fragment.h) hold, as digits. Used by
// all code that makes operands of matrix instructions. Proved by tests/kernel/synth/block_product_test.cpp.
#pragma once

#include <vector>

#include "kernel/loop/fragment.h"
#include "kernel/loop/names.h"

namespace lumen::synth {

struct FragmentDigits {
  // A digit of a row or column number: which elements and lanes hold it.
  struct Digit {
    int extent = 1;
    int64_t weight = 1;
    int lanes = 0, elements = 0;  // one of them is 0
  };
  using Digits = std::vector<Digit>;
  struct Part {  // an element of a lane, and its offset in the number
    int element = 0;
    int64_t offset = 0;
  };
  Digits rows, columns;
  std::vector<Part> row_parts, column_parts;  // of a lane

  static FragmentDigits of(const loop::Fragment& f);
  static std::vector<Part> parts(const Digits& digits);
  // The operand number `step` of those that a lane's runs of neighbouring columns feed, a run for each row part.
  Expr operand(Builder& b, VType type, const std::vector<Expr>& runs, int64_t step) const;
  static int64_t lanes_extent(const Digits& digits);                // number of values that lanes encode
  static Expr number(Builder& b, const Digits& digits, Expr lane);  // the part of it that lanes encode
  static Expr group(Builder& b, const Digits& digits, Expr lane);   // index of that value
};

}  // namespace lumen::synth
