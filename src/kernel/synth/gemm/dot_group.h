// Products whose rows pick matrices by integers, as in mixtures: steps before the product sort the rows by what they
// pick, so that a matrix is read once for all its rows, and lay them out in that order. Rows of one matrix keep their
// order. What follows is a product like any other, with blocks of rows as its outer index (or, for a scatter, runs of
// rows as its K). Few rows that hardly share a matrix are left as they are: each is a product of its own. Proved by
// tests/kernel/synth/gemm/dot_group_test.cpp.
#pragma once

#include "kernel/machine/machine.h"
#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

// Adds the steps and their scratch; problems that pick nothing come back as they were.
DotProblem sort_rows(const graph::Graph& g, DotProblem p, const machine::Machine& m, Synthesis& out);

}  // namespace lumen::synth
