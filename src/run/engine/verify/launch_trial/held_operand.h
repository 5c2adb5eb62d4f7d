// Random operands stored in a number format. Proved by tests/run/engine/verify/launch_trial/sampled_test.cpp.
#pragma once

#include <span>

#include "number/format/format.h"
#include "run/engine/verify/launch_trial/operands.h"

namespace lumen::run {

// Numbers are encoded by the codec: a pool of blocks that is reused everywhere, if the format has only block fields;
// otherwise some rows.
std::unique_ptr<Operand> held_operand(const graph::Type& type, bool positive, uint64_t seed);

// The bytes of `rows` rows, where row r is row r % some of `part`, with row and tile fields. `some`: a multiple of the
// tile's rows, or fewer than one tile has.
std::vector<uint8_t> repeated_rows(const Format& f, std::span<const uint8_t> part, int64_t some, int64_t rows,
                                   int64_t columns);

}  // namespace lumen::run
