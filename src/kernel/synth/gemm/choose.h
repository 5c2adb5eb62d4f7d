// Which kernel for which contraction: tile sizes, what is packed, how the work is cut into tasks. A cost model over the
// problem's shape and the machine's facts; nothing here depends on how many threads will run. Proved by
// tests/kernel/synth/gemm/dot_tile_test.cpp (DotChoose).
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
  direct,     // where it lies
  copy,       // rows copied (or unpacked) into a panel, in the order they lie
  transpose,  // rows along k transposed into rows along n
  gather,     // element by element
  tiles,      // laid out tile by tile in scratch by a step before (a only)
  span,       // as it lies, widened: all that rows of a task read (a in words only)
};

// How words of codes meet in a dot instruction. Bytes of a may have the other sign than the row's factor: then their
// shift, half of the bytes' values, is added where they become words, and its products with b are taken from the sums.
struct CodesDot : machine::DotRow {
  bool is_b_first = true;  // words of b are the row's first factor
  int shift = 0;           // of a: 128 for signed bytes where the row has none with a sign, -128 for the opposite
  Scalar type_of(size_t load) const { return (load == 1) == is_b_first ? a : b; }
};

// Cycles of entering and leaving the mode in which outer products execute, by what processors are said to take.
constexpr double kOuterRun = 150;

// Register tiles of height rows x vectors, m_task x n_task of which make a task and share panels; K in stages.
struct TileCut {
  int height = 1, vectors = 1;            // register tile
  int last_height = 1, last_vectors = 1;  // of the last tile of a column, of a row
  bool masked = false;                    // the last vector of a row is not full
  int64_t m_tiles = 1, n_tiles = 1;
  int64_t m_task = 1, n_task = 1;  // tiles of a task
  int64_t m_tasks = 1, n_tasks = 1;
  int64_t outer_task = 1;  // outer indices that one task goes over, which share a panel of b
  int64_t stage_k = 1, stages = 1;
  double cycles = 0;  // estimate

  int64_t tasks(const DotProblem& p) const { return p.outer_extent() / outer_task * m_tasks * n_tasks; }
  // What all tiles cost of which one of a height and a number of vectors costs so much.
  double sum(const std::function<double(int height, int vectors)>& tile) const;
};

// With one stage the sums stay in registers over all of K. Others hold `stage_k` of the inner k, or all of it and the
// last `stage_digits` outer ones.
struct TilePlan : TileCut {
  size_t stage_digits = 0;
  int lanes = 16;
  Fetch a = Fetch::direct, b = Fetch::direct;
  bool a_along_k = true;  // copied panel of a: rows along k, else along m
  int unroll = 1;
  std::optional<CodesDot> row = {};  // of whole numbers in words
  bool are_whole = false;

  std::string products() const { return row ? row->row : are_whole ? "i32" : "f32 fma"; }
};

// Rows of w along k beside rows of x along k, folded at the end: for few rows of x.
struct RowsPlan {
  int lanes = 16;
  int height = 1;      // rows of a together
  int width = 1;       // rows of b together
  int chains = 1;      // sums of one product, so that additions need not wait for each other
  int64_t n_task = 1;  // groups of `width` per task
  int64_t n_tasks = 1;
  double cycles = 0;
  std::optional<CodesDot> row = {};  // of whole numbers along k

  // The same tasks, one row of b after the other: a single stream out of memory.
  RowsPlan single() const;
};

// How much longer `cycles` of work take because their tasks do not divide evenly among the threads a machine is thought
// to have.
double balance(const machine::Machine& m, double cycles, double tasks);

// The model's choice first, then others worth a measurement: the same sums in the same order, and the same step before.
// Along a batch both operands lie in memory as f32, where a is read in place.
// Whole numbers in words (code_words.h) go through `row`.
std::vector<TilePlan> choose_tiles(const DotProblem& p, const machine::Machine& m,
                                   const std::optional<CodesDot>& row = {});
RowsPlan choose_rows(const DotProblem& p, const machine::Machine& m, const std::optional<CodesDot>& row = {});
// Whether operands are what is read, rather than sums: a weight's gradient of a convolution.
bool has_long_sums(const DotProblem& p);
// Whether b is so large that a step of a model finds it in memory, not in a cache of one core, and the machine asks
// ahead.
bool is_read_ahead(const DotProblem& p, const machine::Machine& m);
constexpr int64_t kRowsAlongK = 6;  // of a, that go along k beside rows of b
bool rows_possible(const DotProblem& p, int64_t most = kRowsAlongK);

// "dot 768x384x128 ..." : what is computed, for plans and names.
std::string describe_shape(const DotProblem& p);
std::string describe(const TilePlan& t);
std::string describe(const RowsPlan& t);

// A packed operand can be unpacked row by row: one unit-stride index over whole blocks, all others whole rows or
// blocks.
bool unpacks_along(const DotProblem& p, size_t load, const DotIndex& along);

}  // namespace lumen::synth
