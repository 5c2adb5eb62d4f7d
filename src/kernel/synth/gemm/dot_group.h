// Products whose rows pick matrices by integers (mixture of experts, grouped GEMM): earlier steps sort the rows by the
// matrix they pick and lay them out in that order, so that a matrix is read once for all its rows. The sort is stable.
// The rest is a product like any other, with blocks of rows as its outer index (or, for a scatter, runs of rows as its
// K). Few rows that rarely share a matrix stay unsorted: each is a product of its own. Proved by
// tests/kernel/synth/gemm/dot_group_test.cpp.
#pragma once

#include "kernel/machine/machine.h"
#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

// Adds the sorting steps and their scratch; problems that pick nothing are returned unchanged. Without `in_blocks` rows
// stay unsorted, each a product of its own, however many share a matrix.
DotProblem sort_rows(const graph::Graph& g, DotProblem p, const machine::Machine& m, Synthesis& out,
                     bool in_blocks = true);

}  // namespace lumen::synth
