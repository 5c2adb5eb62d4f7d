// The reference semantics of every scalar operation. Simple and exact; used by the graph and loop evaluators and by
// constant folding. Must not depend on tensors, loops or formats. Proved by tests/number/formula/formula_test.cpp.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "number/formula/formula.h"

namespace lumen {
namespace {

__extension__ using Int128 = __int128;

// Nearest even to `mantissa` stored bits and smallest normal exponent `emin`; `overflow` and above become Inf.
double round_small(double value, int mantissa, int emin, double overflow) {
  if (!std::isfinite(value) || value == 0) return value;
  if (std::fabs(value) >= overflow) return std::copysign(std::numeric_limits<double>::infinity(), value);
  const int exponent = std::max(std::ilogb(value), emin);
  return std::ldexp(std::nearbyint(std::ldexp(value, mantissa - exponent)), exponent - mantissa);
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == -1) return 0 - a;
  const int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

int64_t floor_remainder(int64_t a, int64_t b) {
  if (b == -1) return 0;
  const int64_t r = a % b;
  return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
}

int64_t float_to_integer(Scalar to, double value) {
  if (std::isnan(value)) return 0;
  const double whole = std::trunc(value);
  const int bits = scalar_bits(to);
  const double top = std::ldexp(1.0, is_signed(to) ? bits - 1 : bits);
  if (is_signed(to)) {
    if (whole >= top) return (uint64_t{1} << (bits - 1)) - 1;
    if (whole < -top) return ~uint64_t{0} << (bits - 1);
    return static_cast<int64_t>(whole);
  }
  if (whole <= 0) return 0;
  if (whole >= top) return bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  return static_cast<uint64_t>(whole);
}

double integer_to_float(Scalar from, Scalar to, int64_t value) {
  if (from == Scalar::u64) {
    const uint64_t plain = value;
    if (to == Scalar::f32) return static_cast<float>(plain);
    return round_to_scalar(to, plain);
  }
  if (to == Scalar::f32) return static_cast<float>(value);
  return round_to_scalar(to, value);
}

uint64_t register_bits(Scalar type, const ScalarValue& v) {
  switch (type) {
    case Scalar::f64:
      return std::bit_cast<uint64_t>(v.real);
    case Scalar::f32:
      return std::bit_cast<uint32_t>(static_cast<float>(v.real));
    case Scalar::f16:
      return f32_to_f16(static_cast<float>(v.real));
    case Scalar::bf16:
      return f32_to_bf16(static_cast<float>(v.real));
    default:
      return v.integer;
  }
}

ScalarValue from_register_bits(Scalar type, uint64_t bits) {
  switch (type) {
    case Scalar::f64:
      return {std::bit_cast<double>(bits), 0};
    case Scalar::f32:
      return {std::bit_cast<float>(static_cast<uint32_t>(bits)), 0};
    case Scalar::f16:
      return {f16_to_f32(bits), 0};
    case Scalar::bf16:
      return {bf16_to_f32(bits), 0};
    default:
      return {0, wrap_to_scalar(type, bits)};
  }
}

ScalarValue convert_value(Scalar from, Scalar to, const ScalarValue& a, bool wide) {
  if (is_float(to)) {
    if (is_float(from)) return {wide ? a.real : round_to_scalar(to, a.real), 0};
    return {integer_to_float(from, wide ? Scalar::f64 : to, a.integer), 0};
  }
  if (to == Scalar::boolean) return {0, is_float(from) ? a.real != 0 : a.integer != 0};
  if (is_float(from)) return {0, float_to_integer(to, a.real)};
  return {0, wrap_to_scalar(to, a.integer)};
}

int exponent_of(Scalar type, double value) {
  if (value == 0) return -1023;
  if (!std::isfinite(value)) return type == Scalar::f64 ? 1024 : 128;
  return std::ilogb(value);
}

double eval_float(ScalarOp op, Scalar type, double a, double b, double c, bool wide) {
  switch (op) {
    case ScalarOp::add_:
      return a + b;
    case ScalarOp::sub_:
      return a - b;
    case ScalarOp::mul_:
      return a * b;
    case ScalarOp::div_:
      return a / b;
    case ScalarOp::neg_:
      return -a;
    case ScalarOp::abs_:
      return std::fabs(a);
    case ScalarOp::min_:
      return a < b ? a : b;
    case ScalarOp::max_:
      return a > b ? a : b;
    case ScalarOp::floor_:
      return std::floor(a);
    case ScalarOp::ceil_:
      return std::ceil(a);
    case ScalarOp::trunc_:
      return std::trunc(a);
    case ScalarOp::rint_:
      return std::nearbyint(a);
    case ScalarOp::round_:
      return std::round(a);
    case ScalarOp::sqrt_:
      return std::sqrt(a);
    case ScalarOp::exp_:
      return std::exp(a);
    case ScalarOp::log_:
      return std::log(a);
    case ScalarOp::sin_:
      return std::sin(a);
    case ScalarOp::cos_:
      return std::cos(a);
    case ScalarOp::tanh_:
      return std::tanh(a);
    case ScalarOp::pow_:
      return std::pow(a, b);
    case ScalarOp::fma_:
      // Double products of two f32 are exact, but their sum with c is not: f32 needs its own fused operation.
      if (type == Scalar::f32 && !wide) {
        return std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c));
      }
      return std::fma(a, b, c);
    default:
      LUMEN_UNREACHABLE("{} of floats", scalar_op_info(op).name);
  }
}

int64_t shift(ScalarOp op, Scalar type, int64_t a, int64_t b) {
  const int bits = scalar_bits(type);
  const bool outside = b < 0 || b >= bits;
  if (op == ScalarOp::shl_) return outside ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << b);
  if (is_signed(type)) return a >> (outside ? bits - 1 : b);
  return outside ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) >> b);
}

int64_t multiply_high(Scalar type, int64_t a, int64_t b) {
  const int bits = scalar_bits(type);
  if (is_signed(type)) return static_cast<int64_t>((static_cast<Int128>(a) * b) >> bits);
  __extension__ using Uint128 = unsigned __int128;
  return static_cast<int64_t>((static_cast<Uint128>(static_cast<uint64_t>(a)) * static_cast<uint64_t>(b)) >> bits);
}

bool integer_less(Scalar type, int64_t a, int64_t b) {
  return is_signed(type) ? a < b : static_cast<uint64_t>(a) < static_cast<uint64_t>(b);
}

int64_t eval_integer(ScalarOp op, Scalar type, int64_t a, int64_t b) {
  const uint64_t x = a;
  const uint64_t y = b;
  switch (op) {
    case ScalarOp::add_:
      return x + y;
    case ScalarOp::sub_:
      return x - y;
    case ScalarOp::mul_:
      return x * y;
    case ScalarOp::div_:
    case ScalarOp::rem_:
      if (b == 0) return 0;  // as in generated code, which must not trap
      if (!is_signed(type)) return op == ScalarOp::div_ ? x / y : x % y;
      return op == ScalarOp::div_ ? floor_divide(a, b) : floor_remainder(a, b);
    case ScalarOp::neg_:
      return 0 - x;
    case ScalarOp::abs_:
      return is_signed(type) && a < 0 ? static_cast<int64_t>(0 - x) : a;
    case ScalarOp::min_:
      return integer_less(type, a, b) ? a : b;
    case ScalarOp::max_:
      return integer_less(type, b, a) ? a : b;
    case ScalarOp::and_:
      return a & b;
    case ScalarOp::or_:
      return a | b;
    case ScalarOp::xor_:
      return a ^ b;
    case ScalarOp::not_:
      return ~a;
    case ScalarOp::shl_:
    case ScalarOp::shr_:
      return shift(op, type, a, b);
    case ScalarOp::mulhi_:
      return multiply_high(type, a, b);
    default:
      LUMEN_UNREACHABLE("{} of integers", scalar_op_info(op).name);
  }
}

}  // namespace

double round_to_scalar(Scalar type, double value) {
  switch (type) {
    case Scalar::f16:
      return round_small(value, 10, -14, 65520.0);
    case Scalar::bf16:
      return round_small(value, 7, -126, 0x1.ffp127);
    case Scalar::f32:
      return static_cast<float>(value);
    default:
      return value;
  }
}

int64_t wrap_to_scalar(Scalar type, int64_t value) {
  const int bits = scalar_bits(type);
  if (bits == 64) return value;
  const auto shifted = static_cast<uint64_t>(value) << (64 - bits);
  return is_signed(type) ? static_cast<int64_t>(shifted) >> (64 - bits) : static_cast<int64_t>(shifted >> (64 - bits));
}

ScalarValue eval_scalar_op(const ScalarNode& node, Scalar operand_type, ScalarValue a, ScalarValue b, ScalarValue c,
                           bool wide) {
  if (operand_type == Scalar::i64) {  // addresses, most of a kernel's arithmetic: no rounding or wrapping
    const auto x = static_cast<uint64_t>(a.integer), y = static_cast<uint64_t>(b.integer);
    if (node.op == ScalarOp::add_) return {0, static_cast<int64_t>(x + y)};
    if (node.op == ScalarOp::mul_) return {0, static_cast<int64_t>(x * y)};
  }
  const bool floating = is_float(operand_type);
  switch (node.op) {
    case ScalarOp::constant:
      return {node.real, node.integer};
    case ScalarOp::select_:
      return a.integer != 0 ? b : c;
    case ScalarOp::eq_:
      return {0, floating ? a.real == b.real : a.integer == b.integer};
    case ScalarOp::ne_:
      return {0, floating ? a.real != b.real : a.integer != b.integer};
    case ScalarOp::lt_:
      return {0, floating ? a.real < b.real : integer_less(operand_type, a.integer, b.integer)};
    case ScalarOp::le_:
      return {0, floating ? a.real <= b.real : !integer_less(operand_type, b.integer, a.integer)};
    case ScalarOp::exponent_:
      return {0, exponent_of(operand_type, a.real)};
    case ScalarOp::ldexp_: {
      const int clamped = std::clamp<int64_t>(b.integer, -5000, 5000);
      const double value = std::ldexp(a.real, clamped);
      // From f32 the double holds the scaled value exactly unless it is far below every f32, so one rounding happens.
      return {wide ? value : round_to_scalar(node.type, value), 0};
    }
    case ScalarOp::cast_:
      return convert_value(operand_type, node.type, a, wide);
    case ScalarOp::bitcast_:
      return from_register_bits(node.type, register_bits(operand_type, a));
    default:
      break;
  }
  if (floating) {
    const double value = eval_float(node.op, operand_type, a.real, b.real, c.real, wide);
    return {wide ? value : round_to_scalar(node.type, value), 0};
  }
  return {0, wrap_to_scalar(node.type, eval_integer(node.op, operand_type, a.integer, b.integer))};
}

void eval_formula(const Formula& f, std::span<const ScalarValue> inputs, std::span<ScalarValue> outputs, bool wide) {
  LUMEN_CHECK(inputs.size() == f.inputs.size() && outputs.size() == f.outputs.size(), "{} inputs, {} outputs",
              inputs.size(), outputs.size());
  thread_local std::vector<ScalarValue> values;
  values.resize(f.nodes.size());
  for (size_t i = 0; i < f.nodes.size(); ++i) {
    const ScalarNode& node = f.nodes[i];
    if (node.op == ScalarOp::input) {
      values[i] = inputs[node.index];
      continue;
    }
    ScalarValue args[3];
    for (int k = 0; k < 3 && node.args[k] >= 0; ++k) args[k] = values[node.args[k]];
    const int typed = node.args[node.op == ScalarOp::select_ ? 1 : 0];
    const Scalar operand = typed >= 0 ? f.type(typed) : node.type;
    values[i] = eval_scalar_op(node, operand, args[0], args[1], args[2], wide);
  }
  for (size_t k = 0; k < f.outputs.size(); ++k) outputs[k] = values[f.outputs[k]];
}

}  // namespace lumen
