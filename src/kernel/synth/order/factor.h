// Products with a packed weight as integer dots: w = a (q) + c with q a small integer, x = a' p with p in -127..127
// gives
//   sum w x = sum over groups of  a a' (sum q' p)  +  (a bias + c) (a' sum p),    q = q' + bias,
// with a, c constant over the weight's groups and a' over the activations'. q' is an operand of the machine's dot.
// Everything comes from the format's affine form and the machine's rows. Proved by
// tests/kernel/synth/gemm/dot_integer_test.cpp (Factor).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernel/machine/machine.h"
#include "kernel/synth/order/lane_order.h"
#include "kernel/synth/unpack/unpack.h"
#include "number/facts/facts.h"

namespace lumen::synth {

struct IntegerDot {
  AffineForm form;
  machine::DotRow row;
  int64_t bias = 0;        // q = q' + bias
  bool form_has_q = true;  // false: q is in the table alone
  int64_t group = 0;       // elements over which a and c are constant
  int64_t fine = 0;        // elements over which a, c and a' are constant: one sum of activations each
  // Codes whose q takes more than an addition (tables, small floats): q' by code, for the machine's look-up.
  int code_field = -1;
  std::vector<int64_t> table;                                  // one entry per code; empty: q is computed
  int64_t step() const { return int64_t{row.lanes} * row.k; }  // elements of one instruction
};

// Values by code of an expression of the element's own code alone; nullopt for any other expression.
struct CodeValues {
  int field = -1;              // of the codes, at most eight bits each
  std::vector<double> values;  // 2^bits
  bool costly = false;         // to compute: more than an addition
};
std::optional<CodeValues> values_by_code(const Format& f, const RoutineExpr& e);
// The bits to flip in codes so that they count numbers, one by one from the least; nullopt if there are none.
std::optional<int> counting(const std::vector<double>& values);

// An expression constant over groups of `group` elements of the entered blocks, one lane per group.
Expr lanes_by_group(Builder& b, Unpack& cursor, const RoutineExpr& e, int64_t group, int64_t elements);

// Neither depends on the element nor on fields of its block or tile: constant over a row.
bool is_constant_in_row(const Format& f, const RoutineExpr& e);

// Sets d.group and d.fine; the form's scale and offset are constant over `group` elements.
void find_groups(const Format& f, int64_t columns, int64_t group, IntegerDot& d);

// nullopt if the format is not affine in small integers or no row of the machine takes its codes; `why` gets the
// reason.
std::optional<IntegerDot> factor_integer(const Format& f, int64_t columns, const machine::Machine& m, std::string* why);

// q' of elements of the entered blocks as the row's type. -1: a lane without an element; it gets an arbitrary code,
// because its activation is zero.
Expr integer_codes(Builder& b, Unpack& cursor, const IntegerDot& d, const machine::Machine& m,
                   std::vector<int64_t> elements);

}  // namespace lumen::synth
