// The contraction that dot kernels compute: that of a group (graph/group/dot.h), plus what earlier steps have laid out
// in scratch. Independent of tiles. Proved by tests/kernel/synth/gemm/dot_tile_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "graph/group/dot.h"
#include "kernel/machine/machine.h"

namespace lumen::synth {

using graph::DotIndex;
using graph::DotPick;

struct DotLoad : graph::DotSource {
  int scratch = -1;                        // kind memory: read from this scratch instead of the source
  std::optional<machine::FloatCode> code;  // of u8: the float format of the codes
};

// Rows sorted by the matrix they pick (dot_group.h), in blocks of at most m.extent rows of one matrix: the first outer
// index counts blocks, and a is in scratch in sorted order. Places past a block's rows belong to the next block or are
// zero.
struct DotBlocks {
  int order = -1;  // scratch, i32[rows]: original row numbers; -1: none
  int table = -1;  // scratch, i32[blocks, kPickEntry]: matrix, place of the first row, rows
  int64_t blocks = 1;
  int64_t rows = 1;  // places; enough that m.extent rows exist from any block's first row on
};

// Rows sorted by the matrix they pick form K, each matrix having a run of it: the first outer index counts matrices.
struct DotRuns {
  int table = -1;  // scratch, i32[matrices, kPickEntry]: matrix, start of its run, its rows
};
constexpr int64_t kPickEntry = 4;

// Scales of an operand that change along K: one for `run` neighbours along it and `rows` rows (columns of the result),
// counted from row 0. `load` is a copy of the operand's load that decodes to the scales.
struct RunScales {
  size_t load = 0;
  int64_t run = 1, rows = 1;
};

struct DotProblem : graph::DotIndices {
  std::vector<DotLoad> loads;
  std::optional<DotBlocks> blocks;
  std::optional<DotRuns> runs;
  // Loads whose numbers multiply finished sums before the epilogue: scales of rows of a or b (operand/row_scales.h).
  std::vector<size_t> row_scales = {};
  // Scales of a and b (operand/row_scales.h) that multiply sums over runs of K before those are added in f32. Only the
  // kernels of thread blocks (gemm/gpu) support this.
  std::array<std::optional<RunScales>, 2> run_scales = {};
  // Both operands decode exactly to 16-bit floats, so rounding to these loses nothing.
  bool are_short = false;

  int64_t slices = 1;  // extent of the last outer index if in_slices() made it

  // A part of a product (dot_parts.h): where its result goes, and how many there are.
  int result_scratch = -1;
  int64_t parts = 1;
  // Joint indices, slowest first: the indices that m (k) runs over if no single stride covers them, as for windows over
  // an image wider than their result. A stride of m (k) itself holds for all of them, or is 0. Only the kernels of
  // thread blocks (gemm/gpu) support this.
  std::vector<DotIndex> joint_m = {}, joint_k = {};

  // A group that encodes (DotIndices::codes): the source of the fields of its codes.
  struct Encoded {
    const graph::Plan* plan = nullptr;
    const graph::Group* group = nullptr;
  };
  Encoded encoded = {};

  // Numbers of K per step of k: those of a word of a dot instruction (code_words.h). k_numbers exist in all.
  int word = 1;
  int64_t k_numbers = 0;

  bool are_whole() const { return !is_float(sum); }
  bool adds_runs() const { return run_scales[0] || run_scales[1]; }
  bool reads_zeros() const;  // zeros around images: padding that no step has written
  int64_t run_k() const;     // length of a run of K under the same scales; 0: all of K
  int64_t rows_of_a() const { return blocks ? blocks->rows : outer_extent() * m.extent; }  // for an earlier step
  double flops() const;       // multiplications and additions of the contraction
  DotProblem only_a() const;  // for a step that reads a and writes scratch: no b, no result, no epilogue
  // Vectors along a batch index, for products whose operands have no further index on one side: n becomes an outer
  // index that b has, too, and along which a is contiguous. nullopt if there is none.
  std::optional<DotProblem> along_batch() const;
  // The same with m along adjacent rows of a, if those of m are a page or more apart and another index has enough rows
  // for a register tile: pixels of an image rather than images of a batch. Integers always prefer adjacent rows, so
  // that a task's reads are close together.
  DotProblem with_near_rows() const;
  // The same with the outer indices that b does not have moved last: adjacent ones then share what is read of b.
  DotProblem with_sharing_last() const;
  // The same with m counting over all indices of the result that only a has (with k over all of the sum). nullopt if
  // there are no others.
  std::optional<DotProblem> with_joint_m() const;
  std::optional<DotProblem> with_joint_k() const;
  // The same with m in slices of few rows, counted by a further outer index, the last: kernels for few rows then
  // compute any number of them, each in the order in which they compute one alone.
  DotProblem in_slices() const;
  bool is_along_batch() const { return n.strides[0] != 0; }
  bool is_plain() const;  // no picks, no scales on sums
  void swap_operands();
};

DotProblem normalise_dot(const graph::Plan& plan, const graph::Group& group);

}  // namespace lumen::synth
