// Stochastic rounding into any format: a number goes to one of its two neighbouring codes, with probabilities that make
// the expected value equal to the number, so sums of many are unbiased. Proved by tests/number/stochastic_test.cpp.
#pragma once

#include <optional>

#include "number/gradient/gradient.h"

namespace lumen {

// y of FakeQuantize with stochastic rounding: same formula and inputs, plus one last input, a random number from 0 to 1
// (f32). A value that lies on a code up to the error of its division by a scale stays there. nullopt unless exactly one
// rounding (`rint`, `round`, or that of a small float) lies between a value and its code: tables of codes.
std::optional<FakeQuantize> stochastic_formula(const Format& f);

// A format that is encoded as f is but decodes to one of f's fields, as a float.
FormatRef as_field(const Format& f, const ElementField& field);

}  // namespace lumen
