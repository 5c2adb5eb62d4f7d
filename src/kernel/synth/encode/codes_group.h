// A parsed group of casts into bytes and the map below them (`codes` in graph/fuse/plan.h). Proved by
// tests/kernel/synth/synth_codes_test.cpp.
#pragma once

#include <vector>

#include "kernel/synth/body/body.h"
#include "kernel/synth/encode/encode.h"

namespace lumen::synth {

struct CodesGroup {
  CodesGroup(const graph::Plan& plan, const graph::Group& group);

  graph::ValueId map = -1, straight = -1, transposed = -1;  // the casts: of the matrix, of the transposed matrix
  graph::ValueId extreme = -1, extreme_of = -1;  // the largest or smallest of a map's numbers, and that map; -1: none
  graph::Group inner;                            // the maps and what they read
  std::vector<int64_t> shape;                    // of the map
  int64_t rows = 1, columns = 1;                 // of the matrix, before it is transposed
  int first_column = -1;                         // the axis of the map where columns begin; -1: they are no axes

  std::vector<bool> barrier() const;  // between rows and columns (collapse)
  // The map's numbers, used only for codes of eight bits and their extreme: as accurate as a map that ends in 16-bit
  // floats computes them.
  // in 16-bit floats computes them.
  Expr value(Body& body, Builder& b, const machine::Machine& target) const;
};

// Concatenates vectors of one type; a power of two of them.
Expr concat_all(Builder& b, std::vector<Expr> parts);

}  // namespace lumen::synth
