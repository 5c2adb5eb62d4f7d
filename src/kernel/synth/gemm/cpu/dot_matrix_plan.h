// Plans for dots with many rows of activations: a panel of b in the layout of the machine's dot instruction, filled
// once per task and stage of K, and rows of a that an earlier step rounded. Two kinds: integers (the weight's format
// factors, factor.h) and floats (both operands in, or rounded to, the instruction's type). Instructions are dots of
// vectors, with one row of a or with two, or the matrix unit's tiles. A cost model over shape and machine facts. Proved
// by tests/kernel/synth/gemm/dot_matrix_test.cpp.
#pragma once

#include <optional>
#include <vector>

#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/order/factor.h"

namespace lumen::synth {

// stage_k is a multiple of unit.
struct MatrixPlan : TileCut {
  machine::DotRow row;                   // k neighbours along K in every lane: a panel quad is row.k elements
  std::optional<machine::TileRow> tile;  // the matrix unit's instruction; `row` then describes its panel
  // `row` is one of Machine::squares: it takes two rows of a at once, interleaved word by word. A vector of the panel,
  // still a word for each of row.lanes columns, is two of the instruction's.
  bool by_two = false;
  std::optional<IntegerDot> integers;  // absent: operands are floats
  int64_t scale_group = 0;             // of a: elements that share an activation scale (integers)
  int64_t group = 0;                   // elements between two scalings of integer sums
  bool starts = false;                 // integer sums begin at the bias times the sum of activations
  bool offsets = false;                // every group adds offset times the sum of activations
  int64_t unit = 1;                    // elements of K unpacked at once
  bool may_share = false;              // all panels, each written once, fit into scratch
  // The weight is the matrix unit's first factor: its rows lie in the panel as they are unpacked, the columns of the
  // second factor are rows of a, and tiles of sums are transposed once, after all of K is added.
  bool weight_first = false;
  int64_t padded_k = 1;  // K rounded up to whole instructions and scale groups

  // Tasks with the same columns share panels, which an earlier step writes. For matrix units, which multiply faster
  // than each task could fill its own panels.
  bool lays_panels() const { return may_share && m_tasks > 1; }
  // Tiles of a task's own panel: all are filled before any is multiplied, or one at a time, in the first-level cache.
  int64_t filled_tiles() const { return weight_first ? 1 : n_task; }
  int lanes() const { return row.lanes; }
  // The matrix unit computes outer products: a factor is a vector with one word per row or column, not a tile of words.
  bool is_outer() const { return tile && tile->k == row.k; }
  int row_grain() const { return tile ? tile->rows : by_two ? 2 : 1; }  // rows of a that are multiplied together
  int64_t padded_m(int64_t m) const { return (m + row_grain() - 1) / row_grain() * row_grain(); }
  int64_t step() const { return int64_t{row.lanes} * row.k; }  // elements of one instruction
  int64_t element_bytes() const { return scalar_bytes(row.b); }
  int64_t word_bytes() const { return row.k * element_bytes(); }
  int64_t tile_columns() const { return int64_t{vectors} * row.lanes; }
};

// The model's choice first, then other candidates to measure, which give the same sums in the same order. Empty if the
// shape does not suit, the weight's format does not factor and no instruction takes 16-bit floats; `why` is then the
// reason against integers. Operands are rounded only if `exact` is false and b is packed in at most sixteen bits an
// element; 16-bit operands in memory, and f32 that a matrix unit multiplies, are never rounded. Codes in which
// activations are stored (operand/coded_rows.h) are multiplied unchanged by integers.
std::vector<MatrixPlan> choose_matrix(const DotProblem& p, const machine::Machine& m, bool exact, std::string* why);

std::string describe(const MatrixPlan& t);

}  // namespace lumen::synth
