// Integer products through a processor's matrix unit, including convolutions: rows of a tile are places of all images,
// whatever strides lead to them, and windows are copied tile by tile into a panel of the task. An earlier step lays b
// out for the unit. Sums of 32 bits stay in the unit over all of K and go through the epilogue once, so that nothing
// but the result is written. Proved by tests/kernel/synth/gemm/cpu/dot_codes_test.cpp.
//
// May include: base, kernel/machine, kernel/synth/gemm, kernel/synth/gemm/cpu, kernel/synth/order, kernel/synth/step.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernel/machine/machine.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

// Height is in rows, a multiple of the unit's; vectors are the unit's columns. K is one stage.
struct UnitPlan : TileCut {
  machine::TileRow row;
  int line = 64;  // bytes of a row (column) in a step: all of an instruction's, or several words of outer products
  int64_t run_steps = 1;  // over the inner k; the last one is padded with zeros
  int64_t steps = 1;      // over all of K

  int64_t step_k() const { return line / scalar_bytes(row.a); }
  int64_t instructions() const { return step_k() / row.k; }  // of a step; their factors follow each other
  bool is_outer() const { return row.k * scalar_bytes(row.a) == 4; }
  int64_t tile_bytes() const { return int64_t{row.rows} * row.columns * 4; }  // of sums
  int64_t factor_bytes() const { return int64_t{row.rows} * line; }           // of rows, or columns, of a step
  int64_t panel_bytes() const { return steps * factor_bytes(); }              // .. of one tile
};

// The instruction that multiplies both operands as they are; nullopt if they are not integers along K in memory, or the
// machine has no such unit.
std::optional<machine::TileRow> unit_of_codes(const DotProblem& p, const machine::Machine& m);
// The model's choice first, then other candidates to measure, which give the same bits. Empty if panels of a tile
// exceed the second-level cache.
std::vector<UnitPlan> choose_units(const DotProblem& p, const machine::Machine& m, const machine::TileRow& row);
std::string describe(const UnitPlan& t);

// Adds the step that lays b out, its scratch, and the step that multiplies.
void write_unit_kernels(const graph::Graph& g, const DotProblem& p, const UnitPlan& t, Synthesis& out);

}  // namespace lumen::synth
