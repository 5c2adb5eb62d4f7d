#include "tests/amd/number/float_code.h"

#include <bit>
#include <cmath>
#include <limits>

namespace lumen::amd {
namespace {

uint32_t nan_code(const FloatCode& f, bool negative) {
  const int bits = f.exponent + f.mantissa;
  switch (f.kind) {
    case FloatCode::Kind::ieee: {
      const uint32_t infinity = ((1U << f.exponent) - 1) << f.mantissa;
      return static_cast<uint32_t>(negative) << bits | infinity | 1U << (f.mantissa - 1);
    }
    case FloatCode::Kind::fn:
      return static_cast<uint32_t>(negative) << bits | ((1U << bits) - 1);
    case FloatCode::Kind::fnuz:
      return 1U << bits;
    case FloatCode::Kind::finite:
      break;
  }
  return (1U << bits) - 1;
}

uint32_t largest(const FloatCode& f) {
  const uint32_t all = (1U << (f.exponent + f.mantissa)) - 1;
  if (f.kind == FloatCode::Kind::ieee) return (((1U << f.exponent) - 1) << f.mantissa) - 1;
  return f.kind == FloatCode::Kind::fn ? all - 1 : all;
}

}  // namespace

double decode_float(const FloatCode& f, uint32_t code) {
  const int bits = f.exponent + f.mantissa;
  const bool negative = code >> bits & 1;
  const uint32_t mantissa = code & ((1U << f.mantissa) - 1), exponent = code >> f.mantissa & ((1U << f.exponent) - 1);
  const bool top = exponent == (1U << f.exponent) - 1;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (f.kind == FloatCode::Kind::ieee && top)
    return mantissa != 0 ? nan
           : negative    ? -std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::infinity();
  if (f.kind == FloatCode::Kind::fn && top && mantissa == (1U << f.mantissa) - 1) return nan;
  if (f.kind == FloatCode::Kind::fnuz && code == 1U << bits) return nan;
  const double x = exponent == 0
                       ? std::ldexp(mantissa, 1 - f.bias - f.mantissa)
                       : std::ldexp((1U << f.mantissa) + mantissa, static_cast<int>(exponent) - f.bias - f.mantissa);
  return negative ? -x : x;
}

uint32_t encode_float(const FloatCode& f, double x, bool saturate, const uint32_t* random) {
  const bool negative = std::signbit(x);
  if (std::isnan(x)) return nan_code(f, negative);
  const int bits = f.exponent + f.mantissa;
  const uint32_t sign = static_cast<uint32_t>(negative) << bits;
  const double size = std::fabs(x);
  const uint32_t infinity =
      f.kind == FloatCode::Kind::ieee ? sign | ((1U << f.exponent) - 1) << f.mantissa : nan_code(f, negative);
  const bool saturates = saturate || f.kind == FloatCode::Kind::finite;
  if (std::isinf(x)) return saturates && f.kind != FloatCode::Kind::ieee ? sign | largest(f) : infinity;
  int exponent = 0;
  std::frexp(size, &exponent);
  const int place = std::max(exponent - 1, 1 - f.bias) - f.mantissa;  // of the last bit
  const double scaled = std::ldexp(size, -place);
  double whole = random ? std::floor(scaled + std::ldexp(static_cast<double>(*random), -32)) : std::nearbyint(scaled);
  // Codes of neighbours are neighbours, over the powers of two as well.
  const auto steps = static_cast<uint64_t>(whole);
  uint64_t code = 0;
  if (steps != 0) {
    const int lowest = 1 - f.bias - f.mantissa;
    code = steps + (static_cast<uint64_t>(place - lowest) << f.mantissa);
  }
  if (code > largest(f)) return saturates ? sign | largest(f) : infinity;
  if (code == 0 && f.kind == FloatCode::Kind::fnuz) return 0;
  return sign | static_cast<uint32_t>(code);
}

uint16_t half_bits(double x) {
  return static_cast<uint16_t>(encode_float(kHalf, x));
}

// The mantissa's bits at their place, scaled by a power of two: exact, and quick.
float half_value(uint16_t bits) {
  const uint32_t shifted = static_cast<uint32_t>(bits & 0x7fff) << 13;
  uint32_t word = 0;
  if ((bits & 0x7c00) == 0x7c00) {
    word = shifted | 0x7f800000;
  } else {
    word = std::bit_cast<uint32_t>(std::bit_cast<float>(shifted) * 0x1p112F);
  }
  return std::bit_cast<float>(word | static_cast<uint32_t>(bits & 0x8000) << 16);
}

}  // namespace lumen::amd
