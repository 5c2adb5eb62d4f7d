// Chooses the kernel plan of a contraction: tile sizes, which operands are packed, how the work is cut into tasks. A
// cost model over the problem's shape and the machine's facts; the number of threads that will run plays no part.
// Proved by tests/kernel/synth/gemm/dot_tile_test.cpp (DotChoose).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernel/machine/machine.h"
#include "kernel/synth/gemm/dot_problem.h"

namespace lumen::synth {

// How a tile reads an operand.
enum class Fetch : uint8_t {
  direct,     // in place
  copy,       // rows copied (or unpacked) into a panel, in memory order
  transpose,  // rows along k transposed into rows along n
  gather,     // element by element
  tiles,      // packed tile by tile into scratch by an earlier step (a only)
  span,       // in memory order, widened: the range that all rows of a task read (a in words only)
};

// How a dot instruction multiplies words of codes. Bytes of a may have the other signedness than the row's factor: then
// a shift by half the range of a byte is added when they become words, and its products with b are subtracted from the
// sums.
struct CodesDot : machine::DotRow {
  bool is_b_first = true;  // words of b are the row's first factor
  int shift = 0;           // of a: 128 for signed bytes if the row only takes unsigned ones, -128 for the opposite
  Scalar type_of(size_t load) const { return (load == 1) == is_b_first ? a : b; }
};

// Estimated cycles to enter and leave the mode in which outer products execute, as reported for processors.
constexpr double kOuterRun = 150;

// Register tiles of height rows x vectors; m_task x n_task of them make a task and share panels. K is cut into stages.
struct TileCut {
  int height = 1, vectors = 1;            // register tile
  int last_height = 1, last_vectors = 1;  // of the last tile of a column, of a row
  bool masked = false;                    // the last vector of a row is not full
  int64_t m_tiles = 1, n_tiles = 1;
  int64_t m_task = 1, n_task = 1;  // tiles of a task
  int64_t m_tasks = 1, n_tasks = 1;
  int64_t outer_task = 1;  // outer indices that one task covers; they share a panel of b
  int64_t stage_k = 1, stages = 1;
  double cycles = 0;  // estimate

  int64_t tasks(const DotProblem& p) const { return p.outer_extent() / outer_task * m_tasks * n_tasks; }
  // Total cost of all tiles, from the cost of one tile of a height and a number of vectors.
  double sum(const std::function<double(int height, int vectors)>& tile) const;
};

// With one stage the sums stay in registers over all of K. Otherwise a stage covers `stage_k` of the inner k, or all of
// the inner k and the last `stage_digits` outer indices of K.
struct TilePlan : TileCut {
  size_t stage_digits = 0;
  int lanes = 16;
  Fetch a = Fetch::direct, b = Fetch::direct;
  bool a_along_k = true;  // copied panel of a: rows along k, else along m
  int unroll = 1;
  std::optional<CodesDot> row = {};  // the dot instruction, for integers in words
  bool are_whole = false;

  std::string products() const { return row ? row->row : are_whole ? "i32" : "f32 fma"; }
};

// Rows of a and rows of b, both along k; vectors of sums are reduced at the end. For few rows of a.
struct RowsPlan {
  int lanes = 16;
  int height = 1;      // rows of a at once
  int width = 1;       // rows of b at once
  int chains = 1;      // independent sums per product, to hide the latency of additions
  int64_t n_task = 1;  // groups of `width` per task
  int64_t n_tasks = 1;
  // Slices of rows (DotProblem::in_slices) that a task multiplies one after the other; from two on, it unpacks a group
  // of b's rows once for all of them, into a panel that keeps their order.
  int64_t slices = 1;
  double cycles = 0;
  std::optional<CodesDot> row = {};  // the dot instruction, for integers along k

  bool fills_panel() const { return slices > 1; }
  // The same tasks with one row of b at a time: a single stream from memory. Panels keep their width.
  RowsPlan single() const;
};

// Factor by which `cycles` of work grow because the tasks do not divide evenly among the threads that a machine is
// assumed to have.
double balance(const machine::Machine& m, double cycles, double tasks);

// The model's choice first, then other candidates to measure: they add the same sums in the same order after the same
// earlier step. Along a batch both operands are f32 in memory, and a is read in place. Integers in words (code_words.h)
// use `row`.
std::vector<TilePlan> choose_tiles(const DotProblem& p, const machine::Machine& m,
                                   const std::optional<CodesDot>& row = {});
// `invariant`: as many chains for any number of rows. `bytes`: of a number of a, as an earlier step lays it out.
RowsPlan choose_rows(const DotProblem& p, const machine::Machine& m, bool invariant = false,
                     const std::optional<CodesDot>& row = {}, int64_t bytes = 4);
// Whether K is so long that memory traffic is operands rather than sums: the weight gradient of a convolution.
bool has_long_sums(const DotProblem& p);
// Whether b is so large that each step of a model reads it from memory, not from the cache of a core, and the machine
// uses software prefetch.
bool is_read_ahead(const DotProblem& p, const machine::Machine& m);
constexpr int64_t kRowsAlongK = 6;  // most rows of a that kernels along k take
bool rows_possible(const DotProblem& p, int64_t most = kRowsAlongK);

// "dot 768x384x128 ..." : what is computed, for plans and names.
std::string describe_shape(const DotProblem& p);
std::string describe(const TilePlan& t);
std::string describe(const RowsPlan& t);

// Whether a packed operand can be unpacked row by row: `along` has unit stride over whole blocks, all other strides are
// whole rows or blocks.
bool unpacks_along(const DotProblem& p, size_t load, const DotIndex& along);

}  // namespace lumen::synth
