// Stored bits and the numbers they represent: integers of any width and small floats of every published family. One
// rule covers all floats: a magnitude code c (exponent and mantissa together) is a number whose neighbours are c - 1
// and c + 1, so rounding uses the grid of the value's own exponent, and carries propagate into the exponent. Proved by
// tests/number/format/field_type_test.cpp (every code of every type; nearest even against brute force).
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/ordinal.h"
#include "number/format/format.h"

namespace lumen {
namespace {

using Special = FieldType::Special;

int magnitude_bits(const FieldType& t) {
  return t.exponent_bits + t.mantissa_bits;
}
uint64_t ones(int bits) {
  return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
}

uint64_t max_code(const FieldType& t) {
  switch (t.special) {
    case Special::ieee:
      return (ones(t.exponent_bits) << t.mantissa_bits) - 1;
    case Special::fn:
    case Special::scale:
      return ones(magnitude_bits(t)) - 1;
    case Special::fnuz:
    case Special::finite:
      return ones(magnitude_bits(t));
  }
  LUMEN_UNREACHABLE("special {}", ordinal(t.special));
}

double magnitude_of(const FieldType& t, uint64_t code) {
  if (t.special == Special::scale) return std::ldexp(1.0, code - t.bias);
  const int exponent = code >> t.mantissa_bits;
  const double fraction = code & ones(t.mantissa_bits);
  const int step = 1 - t.bias - t.mantissa_bits;  // exponent of the smallest positive value
  if (exponent == 0) return std::ldexp(fraction, step);
  return std::ldexp(fraction + std::ldexp(1.0, t.mantissa_bits), step + exponent - 1);
}

// Nearest code, ties to even, for a finite magnitude.
uint64_t nearest_code(const FieldType& t, double magnitude) {
  if (magnitude == 0) return 0;
  if (magnitude >= t.max_finite()) return max_code(t);
  const int lowest = t.special == Special::scale ? -t.bias : 1 - t.bias;
  const int exponent = std::max(std::ilogb(magnitude), lowest);
  const double steps = std::nearbyint(std::ldexp(magnitude, t.mantissa_bits - exponent));
  const auto code = static_cast<uint64_t>(steps) + (static_cast<uint64_t>(exponent - lowest) << t.mantissa_bits);
  if (t.special == Special::scale)
    return code == 0 ? 0 : std::min(code - 1, max_code(t));  // code 0 is 2^-bias, not zero
  return std::min(code, max_code(t));
}

uint64_t encode_integer(const FieldType& t, double value) {
  if (std::isnan(value)) return 0;
  const double whole = std::nearbyint(value);
  if (t.is_signed) {
    const double top = std::ldexp(1.0, t.bits - 1);
    if (whole >= top) return ones(t.bits - 1);
    if (whole < -top) return uint64_t{1} << (t.bits - 1);
    return static_cast<int64_t>(whole) & ones(t.bits);
  }
  if (whole <= 0) return 0;
  if (whole >= std::ldexp(1.0, t.bits)) return ones(t.bits);
  return static_cast<uint64_t>(whole);
}

}  // namespace

Scalar FieldType::register_type() const {
  if (is_float) return Scalar::f32;
  if (bits > 32) return is_signed ? Scalar::i64 : Scalar::u64;
  return !is_signed && bits == 32 ? Scalar::u32 : Scalar::i32;
}

double FieldType::max_finite() const {
  LUMEN_CHECK(is_float, "an integer type");
  return magnitude_of(*this, max_code(*this));
}

bool FieldType::has_nan() const {
  return is_float && special != Special::finite && !(special == Special::ieee && mantissa_bits == 0);
}

bool FieldType::has_infinity() const {
  return is_float && special == Special::ieee;
}

double field_decode(const FieldType& t, uint64_t bits) {
  bits &= ones(t.bits);
  if (!t.is_float) {
    if (t.is_signed && (bits >> (t.bits - 1))) return static_cast<int64_t>(bits | ~ones(t.bits));
    return bits;
  }
  const uint64_t code = bits & ones(magnitude_bits(t));
  const bool negative = t.has_sign && (bits >> magnitude_bits(t)) != 0;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (t.special == Special::fnuz) {
    if (negative && code == 0) return kNan;
  } else if (code > max_code(t)) {
    const bool infinite = t.special == Special::ieee && (code & ones(t.mantissa_bits)) == 0;
    if (!infinite) return kNan;
    return negative ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  }
  const double magnitude = magnitude_of(t, code);
  return negative ? -magnitude : magnitude;
}

uint64_t field_encode(const FieldType& t, double value) {
  if (!t.is_float) return encode_integer(t, value);
  const uint64_t sign = t.has_sign && std::signbit(value) ? uint64_t{1} << magnitude_bits(t) : 0;
  if (std::isnan(value)) {
    switch (t.special) {
      case Special::ieee:
        if (t.mantissa_bits == 0) return sign | max_code(t);
        return sign | (ones(t.exponent_bits) << t.mantissa_bits) | (uint64_t{1} << (t.mantissa_bits - 1));
      case Special::fn:
      case Special::scale:
        return sign | ones(magnitude_bits(t));
      case Special::fnuz:
        return uint64_t{1} << magnitude_bits(t);
      case Special::finite:
        return 0;
    }
  }
  if (!t.has_sign && value < 0) return 0;
  if (std::isinf(value)) return sign | (t.has_infinity() ? max_code(t) + 1 : max_code(t));
  const uint64_t code = nearest_code(t, std::fabs(value));
  if (t.special == Special::fnuz && code == 0) return 0;
  return sign | code;
}

}  // namespace lumen
