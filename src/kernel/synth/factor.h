// Products with a packed weight as integer dots: w = a (q) + c with q a small integer, x = a' p with p in -127..127
// gives
//   sum w x = sum over groups of  a a' (sum q' p)  +  (a bias + c) (a' sum p),    q = q' + bias,
// with a, c constant over the weight's groups and a' over the activations'. q' is what the machine's dot takes.
// Everything comes from the format's affine form and the machine's rows. Proved by tests/kernel/dot_integer_test.cpp (Factor).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernel/machine/machine.h"
#include "number/facts.h"

namespace lumen::synth {

constexpr int64_t kActivationGroup = 32;  // elements that share a scale a' = max|x| / 127

struct IntegerDot {
  AffineForm form;
  machine::DotRow row;
  int64_t bias = 0;       // q = q' + bias
  int64_t group = 0;      // elements over which a and c are constant
  int64_t sum_group = 0;  // elements over which a, c and a' are constant: one sum of activations each
  // Codes of at most four bits whose q takes more than an addition (tables, small floats): q' by code, for the machine's look-up.
  int code_field = -1;
  std::vector<int64_t> table;  // sixteen entries; empty: q is computed
  int64_t step() const { return int64_t{row.lanes} * row.k; }  // elements of one instruction
};

// Nothing when the format is not affine in small integers or no row of the machine takes its codes; `why` then says so.
std::optional<IntegerDot> factor_integer(const Format& f, int64_t columns, const machine::Machine& m, std::string* why);

}  // namespace lumen::synth
