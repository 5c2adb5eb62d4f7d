// An operand of a dot laid out once by an earlier step: in scratch, in the type that block kernels multiply, in memory
// order, or transposed if an instruction takes it in one order only. Worth it if many tiles read the same rows. Proved
// by tests/kernel/synth/gemm/dot_block_test.cpp.
#pragma once

#include <optional>

#include "kernel/machine/machine.h"
#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

// The problem with operand `load` (0 or 1) read from scratch `number`; nullopt if it has no contiguous runs, is too
// large, or is laid out already.
struct Prepared {
  DotProblem problem;
  int64_t bytes = 0;        // of scratch
  int64_t read_bytes = 0;   // of the operand
  bool along_k = true;      // neighbours lie along k, else along the rows
  bool transposed = false;  // neighbours were along the rows before
};
std::optional<Prepared> prepare_operand(const DotProblem& p, size_t load, Scalar to, int number);

// The step that lays it out.
Step write_prepare(const graph::Graph& g, const DotProblem& p, size_t load, const Prepared& to,
                   const machine::Machine& m);

// For GPUs: the kernel of a group that only decodes a blob, rounded to the scalar of its result, in the blob's order;
// nullopt for other groups, and if the format's blocks do not allow it.
std::optional<Synthesis> synthesize_decode(const graph::Plan& plan, const graph::Group& group,
                                           const machine::Machine& m);

// Turns packed operands of formats that are a plain scalar into memory operands; also (not `exact`: hardware keeps
// fewer digits of such sums) the first two if they are codes of one 8-bit float that the machine multiplies.
DotProblem with_plain_formats(DotProblem p, const machine::Machine& m, bool exact);

}  // namespace lumen::synth
