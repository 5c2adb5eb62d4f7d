// The contraction that dot kernels compute: a group's (graph/group/dot.h), and what steps before have laid out in
// scratch. Knows nothing of tiles. Proved by tests/kernel/synth/gemm/dot_tile_test.cpp.
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
  int scratch = -1;                        // memory: this scratch instead of the source
  std::optional<machine::FloatCode> code;  // of u8: the numbers that they spell
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

// Scales of an operand that change along K: one for `run` neighbours along it, and for `rows` rows (columns of the
// result), the first of which are number 0. They are the numbers of a load of their own, in place of the operand's.
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
  // Scales of a and b (operand/row_scales.h) that multiply sums over runs of K before those are added in f32. Only
  // blocks of lanes do that.
  std::array<std::optional<RunScales>, 2> run_scales = {};
  // Both operands decode to 16-bit floats and nothing else: rounding them to those loses nothing.
  bool are_short = false;

  // A part of a product (dot_parts.h): where its result goes, and how many there are.
  int result_scratch = -1;
  int64_t parts = 1;
  // Joint indices, slowest first: what m (k) counts over where steps of one stride do not reach all of it, as windows
  // over an image wider than their result. A stride of m (k) itself holds for all of them, or is 0. Only blocks of
  // lanes do that.
  std::vector<DotIndex> joint_m = {}, joint_k = {};

  // A group that encodes (DotIndices::codes): where the fields of its codes are found.
  struct Encoded {
    const graph::Plan* plan = nullptr;
    const graph::Group* group = nullptr;
  };
  Encoded encoded = {};

  // Numbers of K in one step of k: words of a dot instruction (code_words.h). k_numbers of them exist.
  int word = 1;
  int64_t k_numbers = 0;

  bool are_whole() const { return !is_float(sum); }
  bool adds_runs() const { return run_scales[0] || run_scales[1]; }
  bool reads_zeros() const;  // around images that nobody has laid out with them
  int64_t run_k() const;     // of K, under the same scales; 0: all of it
  int64_t rows_of_a() const { return blocks ? blocks->rows : outer_extent() * m.extent; }  // for a step before
  double flops() const;       // multiplications and additions of the contraction
  DotProblem only_a() const;  // for a step that reads a and writes scratch: no b, no result, no epilogue
  // Vectors along a batch index, of products whose operands have no further index on one side: n is an outer index that
  // b has, too, and whose numbers lie beside each other in a. Nothing where there is none.
  std::optional<DotProblem> along_batch() const;
  // The same with rows that lie next to each other in a, where those of m are a page or more apart and others are as
  // many as a register tile has: an image's pixels rather than the images of a batch. Of whole numbers always, so that
  // what a task reads lies together.
  DotProblem with_near_rows() const;
  // The same with the outer indices that b does not have behind the others: so many share what is read of b.
  DotProblem with_sharing_last() const;
  // The same with m counting over all indices of the result that a alone has (with k over all of the sum). Nothing
  // where there are no others.
  std::optional<DotProblem> with_joint_m() const;
  std::optional<DotProblem> with_joint_k() const;
  bool is_along_batch() const { return n.strides[0] != 0; }
  bool is_plain() const;  // no rows that pick, no scales beside sums
  void swap_operands();
};

DotProblem normalise_dot(const graph::Plan& plan, const graph::Group& group);

}  // namespace lumen::synth
