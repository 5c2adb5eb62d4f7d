// Gradients through a format for training. y = decode(encode(x)) has the straight-through gradient: dy/dx = 1 where x
// is inside the representable range of its block, 0 where it was clipped. Learned fields get the derivative of decode
// with the codes held constant plus, through code(), the straight-through term (LSQ).
//
// May include: base, number/codec, number/facts, number/formula.
// Offers: stochastic.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "number/codec/codec.h"
#include "number/formula/formula.h"

namespace lumen {

// mask[i] = 1 where the gradient passes. R x C.
std::vector<float> straight_through_mask(const Format& f, std::span<const float> x, std::span<const uint8_t> blob,
                                         int64_t rows, int64_t columns);

// dL/dfield for a learned field: per record and entry, given dL/dy (R x C).
std::vector<double> field_gradient(const Format& f, int field, std::span<const float> x, std::span<const uint8_t> blob,
                                   std::span<const float> dy, int64_t rows, int64_t columns);

// A field value that an element's formula reads: entry `index` (an expression over i, parameter 0) of the element's
// record. Fields of one entry have the constant index 0.
struct ElementField {
  int field = 0;
  RoutineExpr index;
};

// y = decode(code(x)) of ONE element as a straight-line formula. Input 0 is x (f32); inputs 1.. are the field values in
// `fields`, in that order, as f32 or as the field's register type; and, when `uses_index`, the last input is i (i32),
// the element's position in its block. A local kept from `fit` that was directly assigned to a field (`d = s`) is
// replaced by that field. Absent when decode or code has loops or arrays, or code reads other locals of the fit.
struct FakeQuantize {
  Formula formula;
  std::vector<ElementField> fields;
  bool uses_index = false;
};
std::optional<FakeQuantize> fake_quantize_formula(const Format& f);

// Like derivative(), but floor, ceil, trunc, rint, round and conversions have the derivative of the identity, also
// through integers, and min and max pass the gradient of a value equal to its bound.
Formula straight_through_derivative(const Formula& f, int k, int slot);

}  // namespace lumen
