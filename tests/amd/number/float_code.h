// Small floats by their codes: a sign, exponent and mantissa bits, a bias. Rounding is to nearest, ties to even.
#pragma once

#include <cstdint>

namespace lumen::amd {

// How codes that are no ordinary numbers are read and written.
struct FloatCode {
  int exponent = 5, mantissa = 10, bias = 15;
  // ieee: the highest exponent is infinity and NaN. fn: only all ones is NaN, no infinity. fnuz: only the code of
  // negative zero is NaN. finite: every code is a number.
  enum class Kind : uint8_t { ieee, fn, fnuz, finite } kind = Kind::ieee;
};
constexpr FloatCode kHalf{}, kBf16{8, 7, 127};
constexpr FloatCode kFp8{4, 3, 7, FloatCode::Kind::fn}, kBf8{5, 2, 15};
constexpr FloatCode kFp8Fnuz{4, 3, 8, FloatCode::Kind::fnuz}, kBf8Fnuz{5, 2, 16, FloatCode::Kind::fnuz};
constexpr FloatCode kFp6{2, 3, 1, FloatCode::Kind::finite}, kBf6{3, 2, 3, FloatCode::Kind::finite};
constexpr FloatCode kFp4{2, 1, 1, FloatCode::Kind::finite};

double decode_float(const FloatCode& f, uint32_t code);

// `saturate`: what is too large becomes the largest number instead of infinity or NaN. `random`: stochastic rounding,
// the bits are added below the last place (32 of them); null: to nearest.
uint32_t encode_float(const FloatCode& f, double x, bool saturate = false, const uint32_t* random = nullptr);

uint16_t half_bits(double x);
float half_value(uint16_t bits);

}  // namespace lumen::amd
