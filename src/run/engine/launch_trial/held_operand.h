// Random operands held in a number format. Proved by tests/run/engine/launch_trial/sampled_test.cpp.
#pragma once

#include "run/engine/launch_trial/operands.h"

namespace lumen::run {

// Numbers are encoded by the codec: some blocks, which lie everywhere, where blocks are all there is; else some rows.
std::unique_ptr<Operand> held_operand(const graph::Type& type, bool positive, uint64_t seed);

}  // namespace lumen::run
