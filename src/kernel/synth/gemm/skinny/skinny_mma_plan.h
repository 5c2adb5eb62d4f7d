// Plans for a few rows of a times a weight on machines with matrix instructions: vectors of the weight's rows stream
// through shared memory as they lie in memory, and each wave unpacks them once, straight into the registers of an
// instruction's factor: rows of the weight are its rows, rows of a its columns. Proved by
// tests/kernel/synth/gemm/skinny_mma_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/gemm/skinny/weight_copies.h"
#include "kernel/synth/order/fragment_order.h"
#include "kernel/synth/order/stream_factor.h"

namespace lumen::synth {

// A block owns waves_n * tiles * row->m rows of the weight. waves_k waves share them, each with its own units of K:
// `deep` in a stage. Sums of those waves are added at the end, in order.
struct SkinnyMmaPlan {
  static constexpr int64_t kVector = 8, kLine = 16;  // contiguous activations: elements, bytes

  const machine::MatrixRow* row = nullptr;
  int wave = 32;
  int tiles = 2, waves_n = 4, waves_k = 2, deep = 1, buffers = 2;
  FragmentOrder order;  // of a unit
  FactorForm factor;
  std::vector<int> places;            // of the order's elements (code_places); empty: codes count as they are
  int64_t lanes_k = 1;                // of a wave, that share a row
  int64_t unit_bytes = 0, units = 0;  // of b, of a row
  int64_t vector = 16, row_bytes = 0, pitch = 0;
  int64_t columns = 16;        // of all instructions: rows of a, and padding
  int64_t rows = 16;           // of rounded activations (activation_round.h): `columns` for each outer index
  bool rows_anywhere = false;  // .. or all there are, and a block's first may be any of them
  int64_t shared_bytes = 0;

  int64_t lanes() const { return int64_t{wave} * waves_n * waves_k; }
  int64_t block_rows() const { return int64_t{waves_n} * tiles * row->m; }
  int64_t groups() const { return order.unit / order.group; }  // of a unit
  int64_t stage_units() const { return int64_t{waves_k} * deep; }
  int64_t chunk() const { return stage_units() * unit_bytes; }
  int64_t stage_bytes() const { return block_rows() * pitch; }
  WeightCopies::Shape copies() const {
    return {block_rows(), chunk(), pitch, vector, row_bytes, stage_bytes(), lanes(), true};
  }
  int64_t stages() const { return (units + stage_units() - 1) / stage_units(); }
  // Rows of a are scaled by powers of two, so that their greatest number is near the largest of f16.
  bool scales_rows() const { return factor.to == Scalar::f16; }
  // Sums of activations over groups are stored with them, times sum_factor().
  bool sums_activations() const { return factor.zero_point() != 0 || (factor.scales_sums() && factor.scaled.offset); }
  double sum_factor() const { return factor.zero_point() != 0 && !factor.scaled.offset ? factor.zero_point() : 1; }
  int64_t sums_beside() const;  // adjacent columns whose sums a lane holds
  int64_t panel_bytes() const { return stage_units() * order.unit * columns * 2; }
  int64_t panel_sum_bytes() const { return sums_activations() ? stage_units() * groups() * columns * 4 : 0; }
  int64_t vectors() const { return std::ssize(order.elements) / kVector; }  // of a unit and lane
  int64_t line_bytes() const { return units * order.unit * rows * 2; }      // of rounded activations
  int64_t sum_bytes() const { return units * groups() * rows * 4; }
  int64_t sums_pitch() const { return block_rows() + 4; }
  int64_t sums_bytes() const { return waves_k * columns * sums_pitch() * 4; }
  int64_t stream_bytes() const { return std::max(buffers * stage_bytes() + 16, sums_bytes()); }
};

// The model's choice first, then other candidates to measure. Plain formats are memory (with_plain_formats); empty if
// the operands are not laid out as required, or the machine has no instruction for it.
std::vector<SkinnyMmaPlan> choose_skinny_mmas(const DotProblem& p, const machine::Machine& m, bool exact);

// How the lanes of t.row share K of a packed row of p.loads[1], and how its codes become factors: sets the plan's
// order, factor, places and unit. False if there is no way.
bool find_stream_unit(const DotProblem& p, const machine::Machine& m, SkinnyMmaPlan& t);

std::string describe(const SkinnyMmaPlan& t, const DotProblem& p);

}  // namespace lumen::synth
