// Activations that a program holds in a format: they are rounded already, and not rounded again. If the format is
// integers times scales of groups, integer dots take its codes as they are stored; everything else multiplies the
// decoded numbers in f32. Proved by tests/run/engine/encoded_inputs_test.cpp.
#pragma once

#include <optional>

#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/step/step.h"
#include "number/facts/facts.h"

namespace lumen::synth {

// Whether the program computes a and holds it in a format, and b is a weight that the program does not change, or puts
// into a format itself.
bool is_held_in_format(const graph::Graph& g, const DotProblem& p);

// Whether b is a weight that a training step has put into a format. The other operand is taken as it is.
bool is_weight_made_here(const graph::Graph& g, const DotProblem& p);
// Whether both operands are codes without scales: instructions multiply them as they are.
bool are_codes(const DotProblem& p);

// a's numbers as q * scale, with q of at most eight bits and scales of groups.
struct CodedRows {
  AffineForm form;
  int64_t most() const;  // of |q|
};
// nullopt if the format is different, blocks do not divide an activation group, or rows do not lie along K.
std::optional<CodedRows> coded_rows(const DotProblem& p);

// The problem as if a were f32 in memory, for questions about shapes.
DotProblem with_plain_rows(DotProblem p);

// The problem with a decoded into scratch by an earlier step, and that step; nullopt if a is not a packed operand whose
// rows can be unpacked.
std::optional<DotProblem> decode_rows(const graph::Graph& g, const DotProblem& p, const machine::Machine& m,
                                      Synthesis& out);

}  // namespace lumen::synth
