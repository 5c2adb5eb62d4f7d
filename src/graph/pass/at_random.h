// Stochastic rounding to the numbers of a format, at the one place where the format's code rounds
// (number/gradient/stochastic.h). Proved by tests/graph/operand_formats_test.cpp and
// tests/model/recipe/optimizer/held_test.cpp.
#pragma once

#include "graph/ir/build.h"
#include "number/gradient/stochastic.h"

namespace lumen::graph {

// Values (f32, rows of the format last) rounded to the format before its scales are stored, by `random`: numbers from 0
// to 1 of the same shape. `scale`: of the whole tensor, rank 0; -1: all scales are fitted. Error when its codes are a
// table.
ValueId round_at_random(Builder& build, ValueId value, const FormatRef& f, ValueId random, ValueId scale = -1);
// The same, encoded: with the exact scales used for the rounding, where each is one field of its record.
ValueId encode_at_random(Builder& build, ValueId value, const FormatRef& f, ValueId random);
// Error as above.
void require_random(const Format& f, const std::string& hint);

}  // namespace lumen::graph
