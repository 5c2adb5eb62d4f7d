// A contraction group as kernels see it: batch x M x N x K with one stride per operand, independent of letters and
// views. Kernels vectorize along N (the contiguous side of the result where possible); the vector operand is `b`, the
// other, `a`, is broadcast. Proved by tests/kernel/synth/gemm/dot_tile_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/fuse/plan.h"

namespace lumen::graph {

// Zero padding of an image: the padded value is never written to memory; its elements map to the image. Axes of the
// padded value, slowest first, those without zeros merged; an element's digits along them are its place / stride.
struct PaddedAxis {
  int64_t extent = 1, stride = 1;       // of the padded value, in elements
  int64_t image_stride = 1;             // of the image in memory
  int64_t start = 0, image_extent = 1;  // of the image along it: zeros are before and after
  bool has_zeros() const { return extent != image_extent; }
};
struct DotZeros {
  ValueId pad = -1, image = -1;  // the node; the value in memory
  int64_t offset = 0;            // of the image's first element
  int64_t elements = 1;          // of the value in memory
  std::vector<PaddedAxis> axes;
};

// One value a kernel reads, accessed through its views.
struct DotSource {
  enum class Kind : uint8_t { memory, packed, splat, iota } kind = Kind::memory;
  ValueId source = -1;            // memory, packed: the value in memory; else the node
  Scalar scalar = Scalar::f32;    // of the elements (packed: f32, the decoded type)
  FormatRef format;               // packed
  int64_t rows = 1, columns = 1;  // packed: shape of the blob
  int64_t elements = 1;           // of the source
  int64_t offset = 0;             // in elements
  double splat = 0;
  ValueId value = -1;                  // the node the group's maps name
  std::optional<DotZeros> zeros = {};  // memory: source is a pad of the group, whose elements strides and offset count
};

// One index of the iteration space; strides in elements, 0 where the operand does not depend on it.
struct DotIndex {
  int64_t extent = 1;
  std::vector<int64_t> strides;  // by source
  int64_t result = 0;
};

// The product of the extents of several indices.
int64_t count_of(const std::vector<DotIndex>& indices);

// Rows select matrices by integers, one for each row. A row is a batch index of the product, or for a scatter its K.
struct DotPick {
  bool scatters = false;       // the result's first axis is the matrix; rows that select the same matrix are summed
  size_t load = 0;             // the source of the integers
  int64_t stride = 0;          // elements of b from one matrix to the next
  int64_t count = 1;           // matrices
  bool some = false;           // rows may select no matrix, by a negative integer
  std::vector<DotIndex> rows;  // the indices that make up a row's number, slowest first
  int64_t row_count() const { return count_of(rows); }
};

// Codes of one byte that a group makes of one of its maps: in row-major order and transposed; -1: none.
struct DotCodes {
  ValueId map = -1, straight = -1, transposed = -1;
};
// The largest or smallest of all numbers of a map of the group.
struct DotExtreme {
  ValueId reduction = -1, of = -1;
};

// The contraction of a group, in the order of its sources: 0 = a, 1 = b, the rest belong to the epilogue.
struct DotIndices {
  DotIndex m, n, k;             // the inner indices, tiled
  std::vector<DotIndex> outer;  // batch letters, and indices of M and N that did not merge into m and n; slowest first
  std::vector<DotIndex> outer_k;  // indices of K that did not merge into k; slowest first
  std::vector<ValueId> epilogue;  // maps in order
  ValueId contract = -1, result = -1;
  Scalar sum = Scalar::f32;  // accumulator type: i32 for integers
  Scalar result_scalar = Scalar::f32;
  int64_t result_bytes = 0;
  bool swapped = false;  // a is the contract's second operand
  std::optional<DotPick> pick;
  // Outputs of groups that encode (plan.h): then `result` is the group's other result, or -1.
  std::vector<DotCodes> codes;
  std::vector<DotExtreme> extremes;

  int64_t outer_extent() const { return count_of(outer); }
  int64_t k_total() const { return k.extent * count_of(outer_k); }
};
struct DotGroup : DotIndices {
  std::vector<DotSource> sources;
};

// LUMEN_CHECKs the group contract of graph/fuse/plan.h for dots.
DotGroup read_dot(const Plan& plan, const Group& group);

}  // namespace lumen::graph
