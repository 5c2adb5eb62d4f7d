// Names, sizes and IEEE conversions of the scalar types. Must not depend on formats or formulas. Proved by
// tests/number/formula/scalar_test.cpp (every half, every tie).
#include "number/formula/scalar.h"

#include <array>
#include <bit>

#include "base/check.h"

namespace lumen {
namespace {

struct ScalarRow {
  Scalar type;
  std::string_view name;
  int bits;
  bool floating, has_sign;
};

constexpr std::array<ScalarRow, 13> kRows = {{
    {Scalar::boolean, "bool", 1, false, false},
    {Scalar::i8, "i8", 8, false, true},
    {Scalar::u8, "u8", 8, false, false},
    {Scalar::i16, "i16", 16, false, true},
    {Scalar::u16, "u16", 16, false, false},
    {Scalar::i32, "i32", 32, false, true},
    {Scalar::u32, "u32", 32, false, false},
    {Scalar::i64, "i64", 64, false, true},
    {Scalar::u64, "u64", 64, false, false},
    {Scalar::f16, "f16", 16, true, true},
    {Scalar::bf16, "bf16", 16, true, true},
    {Scalar::f32, "f32", 32, true, true},
    {Scalar::f64, "f64", 64, true, true},
}};

const ScalarRow& row_of(Scalar s) {
  const auto number = static_cast<size_t>(s);
  LUMEN_CHECK(number < kRows.size(), "scalar type {}", number);
  return kRows[number];
}

}  // namespace

int scalar_bits(Scalar s) {
  return row_of(s).bits;
}
int scalar_bytes(Scalar s) {
  return (row_of(s).bits + 7) / 8;
}
bool is_float(Scalar s) {
  return row_of(s).floating;
}
bool is_signed(Scalar s) {
  return row_of(s).has_sign;
}
std::string_view scalar_name(Scalar s) {
  return row_of(s).name;
}

std::optional<Scalar> scalar_from_name(std::string_view name) {
  for (const ScalarRow& row : kRows) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

uint16_t f32_to_f16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint16_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN: keep the upper payload bits, make it quiet
    return sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu);
  }
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and above round to Inf
  if (magnitude < 0x38800000u) {                        // below 2^-14: subnormal
    if (magnitude < 0x33000000u) return sign;           // below 2^-25
    const int exponent = magnitude >> 23;
    const uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u;
    const int shift = 126 - exponent;  // 14 .. 24
    const uint32_t kept = fraction >> shift;
    const uint32_t rest = fraction & ((1u << shift) - 1);
    const uint32_t half = 1u << (shift - 1);
    return sign | (kept + ((rest > half || (rest == half && (kept & 1))) ? 1u : 0u));
  }
  const uint32_t rebased = magnitude - 0x38000000u;  // exponent bias 127 -> 15
  const uint32_t rounded = rebased + 0xfffu + ((rebased >> 13) & 1u);
  return sign | (rounded >> 13);
}

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 31) {
    return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13) | (fraction ? 0x400000u : 0u));
  }
  if (exponent == 0) {
    const float magnitude = fraction * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

uint16_t f32_to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

float bf16_to_f32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace lumen
