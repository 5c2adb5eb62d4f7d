// Numbers to stored codes: the mirror of field_encode (number/format/field_type.cpp) in loop IR, equal bit for bit.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernel/synth/unpack/field.h"

namespace lumen::synth {

using loop::ValueId;
using loop::VType;

namespace {

int64_t ones(int bits) {
  return bits >= 63 ? INT64_MAX : (int64_t{1} << bits) - 1;
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
  LUMEN_UNREACHABLE("special {}", static_cast<int>(t.special));
}

ValueId encode_integer(loop::Builder& b, const FieldType& t, ValueId value) {
  VType type = b.type(value);
  if (is_float(type.scalar)) {
    const Scalar whole = t.bits == 64 && !t.is_signed ? Scalar::u64 : Scalar::i64;
    value = b.convert(ScalarOp::cast_, whole, b.op(ScalarOp::rint_, value));
    type = b.type(value);
  } else if (type.scalar == Scalar::boolean) {
    value = b.convert(ScalarOp::cast_, Scalar::i32, value);
    type = b.type(value);
  }
  const int width = scalar_bits(type.scalar);
  const bool is_source_signed = is_signed(type.scalar);
  const int64_t low = t.is_signed ? -ones(t.bits - 1) - 1 : 0;
  const int64_t high = t.is_signed ? ones(t.bits - 1) : ones(t.bits);
  if (is_source_signed && (!t.is_signed || t.bits < width)) value = b.op(ScalarOp::max_, value, b.integer(low, type));
  const int high_bits = t.is_signed ? t.bits - 1 : t.bits;
  if (high_bits < (is_source_signed ? width - 1 : width)) value = b.op(ScalarOp::min_, value, b.integer(high, type));
  const Scalar wide = t.bits > 32 ? Scalar::u64 : Scalar::u32;
  value = b.convert(ScalarOp::cast_, wide, value);
  if (t.is_signed && t.bits != 32 && t.bits != 64)
    value = b.op(ScalarOp::and_, value, b.integer(ones(t.bits), b.type(value)));
  return value;
}

// Code of the magnitude |v| < max_finite, given as f32 bits `a` and as the number itself.
ValueId nearest_code(loop::Builder& b, const FieldType& t, ValueId a, ValueId magnitude) {
  const int lanes = b.type(a).lanes;
  const VType u32{Scalar::u32, lanes}, i32{Scalar::i32, lanes}, f32{Scalar::f32, lanes};
  const auto u = [&](int64_t x) { return b.integer(x, u32); };
  const int m = t.mantissa_bits;
  const int64_t rebias = 127 - t.bias;
  const int drop = 23 - m;
  if (drop == 0 && rebias == 0) return a;
  // Round to nearest even on the f32 bits; with no mantissa left a tie always goes up.
  const ValueId tie =
      m == 0 ? u(int64_t{1} << 22)
             : b.add(u((int64_t{1} << (drop - 1)) - 1), b.op(ScalarOp::and_, b.op(ScalarOp::shr_, a, u(drop)), u(1)));
  const ValueId rounded = b.op(ScalarOp::shr_, b.add(a, tie), u(drop));
  const ValueId code = b.convert(ScalarOp::bitcast_, Scalar::i32, b.op(ScalarOp::sub_, rounded, u(rebias << m)));
  if (t.special == FieldType::Special::scale) {
    ValueId low = b.integer(0, i32);
    if (rebias != 0) return b.op(ScalarOp::max_, code, low);
    // Numbers below the smallest normal f32 lie around 2^-127, the code 0.
    low = b.op(ScalarOp::select_, b.op(ScalarOp::le_, u(0x00600000), a), b.integer(1, i32), low);
    return b.op(ScalarOp::select_, b.op(ScalarOp::lt_, a, u(0x00800000)), low, code);
  }
  if (rebias == 0) return code;
  // Below the smallest normal of the type the grid is even: steps of 2^(1 - bias - m).
  const int up = t.bias - 1 + m;
  const ValueId scaled = up <= 127 ? b.mul(magnitude, b.real(std::ldexp(1.0, up), f32))
                                   : b.op(ScalarOp::ldexp_, magnitude, b.integer(up, i32));
  const ValueId small = b.convert(ScalarOp::cast_, Scalar::i32, b.op(ScalarOp::rint_, scaled));
  const ValueId is_small = b.op(ScalarOp::lt_, magnitude, b.real(std::ldexp(1.0, 1 - t.bias), f32));
  return b.op(ScalarOp::select_, is_small, small, code);
}

ValueId encode_float(loop::Builder& b, const FieldType& t, ValueId value) {
  const int lanes = b.type(value).lanes;
  const VType u32{Scalar::u32, lanes}, f32{Scalar::f32, lanes};
  const auto u = [&](int64_t x) { return b.integer(x, u32); };
  if (b.type(value).scalar != Scalar::f32) value = b.convert(ScalarOp::cast_, Scalar::f32, value);
  LUMEN_CHECK(t.mantissa_bits <= 23 && t.exponent_bits <= 8 && t.bias <= 127 + 23, "a float with bias {}", t.bias);
  const ValueId bits = b.convert(ScalarOp::bitcast_, Scalar::u32, value);
  const ValueId a = b.op(ScalarOp::and_, bits, u(0x7fffffff));
  const ValueId magnitude = b.convert(ScalarOp::bitcast_, Scalar::f32, a);
  const int magnitude_bits = t.exponent_bits + t.mantissa_bits;
  const bool has_infinity = t.special == FieldType::Special::ieee;
  ValueId code = -1;
  if (is_half(t)) {
    const ValueId inside = b.op(ScalarOp::min_, magnitude, b.real(65504, f32));
    code = b.convert(ScalarOp::cast_, Scalar::u32,
                     b.convert(ScalarOp::bitcast_, Scalar::u16, b.convert(ScalarOp::cast_, Scalar::f16, inside)));
  } else {
    const double largest = std::min(t.max_finite(), static_cast<double>(3.4028234663852886e38));
    const ValueId inside = b.op(ScalarOp::min_, magnitude, b.real(largest, f32));
    const ValueId inside_bits = b.convert(ScalarOp::bitcast_, Scalar::u32, inside);
    code = b.convert(
        ScalarOp::bitcast_, Scalar::u32,
        b.op(ScalarOp::min_, b.convert(ScalarOp::bitcast_, Scalar::i32, nearest_code(b, t, inside_bits, inside)),
             b.integer(max_code(t), {Scalar::i32, lanes})));
  }
  if (has_infinity) code = b.op(ScalarOp::select_, b.op(ScalarOp::eq_, a, u(0x7f800000)), u(max_code(t) + 1), code);
  if (t.has_sign) {
    ValueId sign = b.op(ScalarOp::shl_, b.op(ScalarOp::shr_, bits, u(31)), u(magnitude_bits));
    if (t.special == FieldType::Special::fnuz)
      sign = b.op(ScalarOp::select_, b.op(ScalarOp::eq_, code, u(0)), u(0), sign);
    code = b.op(ScalarOp::or_, code, sign);
  } else {
    code = b.op(ScalarOp::select_, b.op(ScalarOp::lt_, value, b.real(0, f32)), u(0), code);
  }
  const ValueId is_nan = b.op(ScalarOp::lt_, u(0x7f800000), a);
  const ValueId sign_only =
      t.has_sign ? b.op(ScalarOp::shl_, b.op(ScalarOp::shr_, bits, u(31)), u(magnitude_bits)) : u(0);
  ValueId nan = u(0);
  switch (t.special) {
    case FieldType::Special::ieee:
      nan = b.op(
          ScalarOp::or_, sign_only,
          u(t.mantissa_bits == 0 ? max_code(t)
                                 : (ones(t.exponent_bits) << t.mantissa_bits) | (int64_t{1} << (t.mantissa_bits - 1))));
      break;
    case FieldType::Special::fn:
    case FieldType::Special::scale:
      nan = b.op(ScalarOp::or_, sign_only, u(ones(magnitude_bits)));
      break;
    case FieldType::Special::fnuz:
      nan = u(int64_t{1} << magnitude_bits);
      break;
    case FieldType::Special::finite:
      break;
  }
  return b.op(ScalarOp::select_, is_nan, nan, code);
}

}  // namespace

ValueId encode_value(loop::Builder& b, const FieldType& t, ValueId value) {
  return t.is_float ? encode_float(b, t, value) : encode_integer(b, t, value);
}

}  // namespace lumen::synth
