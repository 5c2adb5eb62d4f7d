// Scalar element types that every target supports, shared by formulas, graphs and loops. Formats are built from them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lumen {

enum class Scalar : uint8_t { boolean, i8, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64 };

int scalar_bits(Scalar s);   // 1 for boolean in registers; memory uses scalar_bytes
int scalar_bytes(Scalar s);  // size in memory; boolean takes one byte
bool is_float(Scalar s);
bool is_signed(Scalar s);                // floats count as signed
std::string_view scalar_name(Scalar s);  // "f32"
std::optional<Scalar> scalar_from_name(std::string_view name);

// IEEE conversions, round to nearest even, NaN kept quiet. The one implementation in the project.
uint16_t f32_to_f16(float x);
float f16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float x);
float bf16_to_f32(uint16_t bits);

}  // namespace lumen
