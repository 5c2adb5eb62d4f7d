// A contraction as a dot kernel sees it: batch x M x N x K with one stride per operand, whatever letters and views said
// it. N is the side the kernel's vectors run along (the result is stored along it where it can be); the vector operand
// is `b`, the other, `a`, is broadcast. Knows nothing of tiles or machines. Proved by
// tests/kernel/synth/gemm/dot_tile_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/fuse/plan.h"
#include "kernel/machine/machine.h"

namespace lumen::synth {

// One value a kernel reads, seen through its views.
struct DotLoad {
  enum class Kind : uint8_t { memory, packed, splat, iota } kind = Kind::memory;
  graph::ValueId source = -1;     // memory, packed: the value in memory; else the node
  Scalar scalar = Scalar::f32;    // of the elements (packed: f32, what it decodes to)
  FormatRef format;               // packed
  int64_t rows = 1, columns = 1;  // packed: shape of the blob
  int64_t elements = 1;           // of the source
  int64_t offset = 0;             // in elements
  double splat = 0;
  graph::ValueId value = -1;               // the node the group's maps name
  int scratch = -1;                        // memory: this scratch instead of the source
  std::optional<machine::FloatCode> code;  // of u8: the numbers that they spell
};

// One index of the iteration space; strides in elements, 0 where the operand does not depend on it.
struct DotIndex {
  int64_t extent = 1;
  std::vector<int64_t> strides;  // by load
  int64_t result = 0;
};

// Rows pick matrices by integers, one for each row. What a row is: a batch index of the product, or of a scatter its K.
struct DotPick {
  bool scatters = false;       // sums over the rows that pick a matrix make the result's first axis
  size_t load = 0;             // the integers
  int64_t stride = 0;          // elements of b from one matrix to the next
  int64_t count = 1;           // matrices
  std::vector<DotIndex> rows;  // the indices a row's number counts over, slowest first
  int64_t row_count() const;
};

// Rows sorted by what they pick (dot_group.h), in blocks of m.extent rows of one matrix at most: the first outer index
// counts blocks, and a is in scratch in the order of the rows. What a block has less belongs to the next or is zero.
struct DotBlocks {
  int order = -1;  // scratch, i32[rows]: numbers of rows; -1: none
  int table = -1;  // scratch, i32[blocks, kPickEntry]: matrix, place of the first row, rows
  int64_t blocks = 1;
  int64_t rows = 1;  // places, so many that m.extent rows exist from any block's first
};

// Rows sorted by what they pick are K, those of one matrix a run of it: the first outer index counts matrices.
struct DotRuns {
  int table = -1;  // scratch, i32[matrices, kPickEntry]: matrix, where its run begins, its rows
};
constexpr int64_t kPickEntry = 4;

struct DotProblem {
  std::vector<DotLoad> loads;            // 0 = a, 1 = b, the rest belong to the epilogue
  DotIndex m, n, k;                      // the inner indices, tiled
  std::vector<DotIndex> outer;           // batch letters, and what of M and N did not merge into m and n; slowest first
  std::vector<DotIndex> outer_k;         // what of K did not merge into k; slowest first
  std::vector<graph::ValueId> epilogue;  // maps in order
  graph::ValueId contract = -1, result = -1;
  Scalar result_scalar = Scalar::f32;
  int64_t result_bytes = 0;
  bool swapped = false;  // a is the contract's second operand
  std::optional<DotPick> pick;
  std::optional<DotBlocks> blocks;
  std::optional<DotRuns> runs;

  int64_t outer_extent() const;
  int64_t rows_of_a() const;  // that a step before makes something of
  int64_t k_total() const;
  double flops() const;       // multiplications and additions of the contraction
  DotProblem only_a() const;  // for a step that reads a and writes scratch: no b, no result, no epilogue
};

// LUMEN_CHECKs the group contract of graph/fuse/plan.h for dots.
DotProblem normalise_dot(const graph::Plan& plan, const graph::Group& group);

// The canonical text of everything a kernel depends on: equal problems have equal text.
std::string describe(const DotProblem& p);

}  // namespace lumen::synth
