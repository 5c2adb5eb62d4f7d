// Numbers to stored codes: the mirror of field_encode (number/format/field_type.cpp) in loop IR, equal bit for bit.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/ordinal.h"
#include "kernel/machine/machine.h"
#include "kernel/synth/unpack/field.h"

namespace lumen::synth {

namespace {

int64_t ones(int bits) {
  return low_mask(std::min(bits, 63));
}

int64_t max_code(const FieldType& t) {
  const int magnitude = t.exponent_bits + t.mantissa_bits;
  switch (t.special) {
    case FieldType::Special::ieee:
      return (ones(t.exponent_bits) << t.mantissa_bits) - 1;
    case FieldType::Special::fn:
    case FieldType::Special::scale:
      return ones(magnitude) - 1;
    case FieldType::Special::fnuz:
    case FieldType::Special::finite:
      return ones(magnitude);
  }
  LUMEN_UNREACHABLE("special {}", ordinal(t.special));
}

Expr encode_integer(Builder& b, const FieldType& t, Expr value) {
  if (is_float(b.type(value).scalar))
    value = cast(rint(value), t.bits == 64 && !t.is_signed ? Scalar::u64 : Scalar::i64);
  else if (b.type(value).scalar == Scalar::boolean)
    value = cast(value, Scalar::i32);
  const VType type = b.type(value);
  const int width = scalar_bits(type.scalar);
  const bool is_source_signed = is_signed(type.scalar);
  const int64_t low = t.is_signed ? -ones(t.bits - 1) - 1 : 0;
  const int64_t high = t.is_signed ? ones(t.bits - 1) : ones(t.bits);
  if (is_source_signed && (!t.is_signed || t.bits < width)) value = max(value, b.integer(low, type));
  const int high_bits = t.is_signed ? t.bits - 1 : t.bits;
  if (high_bits < (is_source_signed ? width - 1 : width)) value = min(value, b.integer(high, type));
  value = cast(value, code_type(t));
  if (t.is_signed && t.bits != 32 && t.bits != 64) value = value & ones(t.bits);
  return value;
}

// Code of the magnitude |v| < max_finite, given as f32 bits `a` and as the number itself.
Expr nearest_code(Builder& b, const FieldType& t, Expr a, Expr magnitude) {
  const int lanes = b.type(a).lanes;
  const VType u32{Scalar::u32, lanes}, i32{Scalar::i32, lanes};
  const auto u = [&](int64_t x) { return b.integer(x, u32); };
  const int m = t.mantissa_bits;
  const int64_t rebias = 127 - t.bias;
  const int drop = 23 - m;
  if (drop == 0 && rebias == 0) return a;
  // Round to nearest even on the f32 bits; with no mantissa left a tie always goes up.
  const Expr tie = m == 0 ? u(int64_t{1} << 22) : u((int64_t{1} << (drop - 1)) - 1) + ((a >> u(drop)) & u(1));
  const Expr rounded = (a + tie) >> u(drop);
  const Expr code = bitcast(rounded - u(rebias << m), Scalar::i32);
  if (t.special == FieldType::Special::scale) {
    Expr low = b.integer(0, i32);
    if (rebias != 0) return max(code, low);
    // Numbers below the smallest normal f32 are around 2^-127, the code 0.
    low = select(u(0x00600000) <= a, b.integer(1, i32), low);
    return select(a < u(0x00800000), low, code);
  }
  if (rebias == 0) return code;
  // Below the smallest normal of the type the grid is uniform: steps of 2^(1 - bias - m).
  const int up = t.bias - 1 + m;
  const Expr scaled = up <= 127 ? magnitude * std::ldexp(1.0, up) : ldexp(magnitude, b.integer(up, i32));
  const Expr small = cast(rint(scaled), Scalar::i32);
  const Expr is_small = magnitude < std::ldexp(1.0, 1 - t.bias);
  return select(is_small, small, code);
}

Expr encode_float(Builder& b, const FieldType& t, Expr value) {
  const int lanes = b.type(value).lanes;
  const VType u32{Scalar::u32, lanes}, f32{Scalar::f32, lanes};
  const auto u = [&](int64_t x) { return b.integer(x, u32); };
  if (b.type(value).scalar != Scalar::f32) value = cast(value, Scalar::f32);
  LUMEN_CHECK(t.mantissa_bits <= 23 && t.exponent_bits <= 8 && t.bias <= 127 + 23, "a float with bias {}", t.bias);
  const Expr bits = bitcast(value, Scalar::u32);
  const Expr a = bits & u(0x7fffffff);
  const Expr magnitude = bitcast(a, Scalar::f32);
  const int magnitude_bits = t.exponent_bits + t.mantissa_bits;
  const bool has_infinity = t.special == FieldType::Special::ieee;
  Expr code;
  if (is_half(t)) {
    const Expr inside = min(magnitude, b.real(65504, f32));
    code = cast(bitcast(cast(inside, Scalar::f16), Scalar::u16), Scalar::u32);
  } else {
    const double largest = std::min(t.max_finite(), static_cast<double>(3.4028234663852886e38));
    const Expr inside = min(magnitude, b.real(largest, f32));
    const Expr inside_bits = bitcast(inside, Scalar::u32);
    code = bitcast(min(bitcast(nearest_code(b, t, inside_bits, inside), Scalar::i32),
                       b.integer(max_code(t), {Scalar::i32, lanes})),
                   Scalar::u32);
  }
  if (has_infinity) code = select(a == u(0x7f800000), u(max_code(t) + 1), code);
  if (t.has_sign) {
    Expr sign = (bits >> u(31)) << u(magnitude_bits);
    if (t.special == FieldType::Special::fnuz) sign = select(code == u(0), u(0), sign);
    code = code | sign;
  } else {
    code = select(value < 0, u(0), code);
  }
  const Expr is_nan = u(0x7f800000) < a;
  const Expr sign_only = t.has_sign ? (bits >> u(31)) << u(magnitude_bits) : u(0);
  Expr nan = u(0);
  switch (t.special) {
    case FieldType::Special::ieee:
      nan = sign_only | u(t.mantissa_bits == 0
                              ? max_code(t)
                              : (ones(t.exponent_bits) << t.mantissa_bits) | (int64_t{1} << (t.mantissa_bits - 1)));
      break;
    case FieldType::Special::fn:
    case FieldType::Special::scale:
      nan = sign_only | u(ones(magnitude_bits));
      break;
    case FieldType::Special::fnuz:
      nan = u(int64_t{1} << magnitude_bits);
      break;
    case FieldType::Special::finite:
      break;
  }
  return select(is_nan, nan, code);
}

}  // namespace

Expr encode_value(Builder& b, const FieldType& t, Expr value) {
  return t.is_float ? encode_float(b, t, value) : encode_integer(b, t, value);
}

Expr encode_bytes(Builder& b, const FieldType& t, Expr value, const machine::Machine& m) {
  LUMEN_CHECK(t.bits == 8, "codes of {} bits", t.bits);
  const auto code = t.is_float ? spelling_of(t) : std::nullopt;
  const int lanes = b.type(value).lanes, pairs = std::max(lanes, 2);
  if (!code || b.type(value).scalar != Scalar::f32 || !m.find_row(machine::rounding_name(*code, pairs)))
    return cast(encode_value(b, t, value), Scalar::u8);
  if (lanes < pairs) return b.extract(encode_bytes(b, t, b.splat(value, pairs), m), 0);
  const VType u32{Scalar::u32, lanes};
  Expr out = b.inst(machine::rounding_name(*code, lanes), {Scalar::u8, lanes}, {value});
  // Machines have one NaN, and no infinity.
  const Expr bits = bitcast(value, Scalar::u32);
  if (t.special == FieldType::Special::ieee) {
    const Expr infinity = b.integer(0x7f800000, u32), magnitude = bits & 0x7fffffff;
    const Expr nan = b.integer(max_code(t) + 1 + (int64_t{1} << (t.mantissa_bits - 1)), u32);
    const Expr special = select(infinity < magnitude, nan, b.integer(max_code(t) + 1, u32));
    out = select(infinity <= magnitude, cast(special, Scalar::u8), out);
  }
  return out | cast((bits >> 24) & 0x80, Scalar::u8);
}

}  // namespace lumen::synth
