// Numbers for the inputs of a program that is only to be timed: processors work faster on zeros, and rows that all
// collide slower, than on what programs are for. Proved by tests/run/engine/random_inputs_test.cpp.
#pragma once

#include "run/engine/engine.h"

namespace lumen::run {

// Binds every input. Matrices of parameters are random so that what they make of numbers around 1 is around 1, other
// parameters are 1, data lies around 0, states are zero, single numbers small; integers that pick rows of a table
// lie below its length, other integers are zero. The same ones each time.
void bind_random_inputs(Engine& engine, const graph::Graph& g, const graph::Bindings& symbols, Program& program);

}  // namespace lumen::run
