// Rounding up or down at random into any format: the number that a format's code rounds to the nearest goes to either
// neighbour, with the probability that its distance to the other one gives, so that sums of many are right on average.
// Proved by tests/number/stochastic_test.cpp.
#pragma once

#include <optional>

#include "number/gradient/gradient.h"

namespace lumen {

// y of FakeQuantize with that rounding: formula and inputs are the same, and one more input is the last: a random
// number from 0 to 1 (f32). A value that lies on a code but for the error of its division by a scale stays there.
// Absent where the way of a value to its code has not one rounding (`rint`, `round`, or that of a small float): tables
// of codes.
std::optional<FakeQuantize> stochastic_formula(const Format& f);

// A format that is encoded as f is, and whose numbers are one of its fields: what decodes is that of f's, as a float.
FormatRef as_field(const Format& f, const ElementField& field);

}  // namespace lumen
