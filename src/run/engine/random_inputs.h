// Inputs for a program that is only timed: processors are faster on zeros, and slower on rows that all collide, than on
// real data. Proved by tests/run/engine/random_inputs_test.cpp.
#pragma once

#include "run/engine/engine.h"

namespace lumen::run {

// Binds every input. Parameter matrices are random with a scale that preserves magnitudes around 1, other parameters
// are 1, data are around 0, states are zero, single numbers small; integers that index rows of a table are in range,
// other integers are zero. The same values every time.
void bind_random_inputs(Engine& engine, const graph::Graph& g, const graph::Bindings& symbols, Program& program);

}  // namespace lumen::run
