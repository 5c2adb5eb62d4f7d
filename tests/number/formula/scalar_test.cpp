// Needs none. IEEE conversions against the compiler's own half type and against exhaustive neighbours.
#include "number/formula/scalar.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace lumen {
namespace {

TEST(Scalar, EveryHalfGoesThereAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float x = f16_to_f32(static_cast<uint16_t>(bits));
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(x))));
      continue;
    }
    EXPECT_EQ(f32_to_f16(x), bits);
  }
}

TEST(Scalar, HalvesRoundToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = f16_to_f32(static_cast<uint16_t>(bits));
    const float high = f16_to_f32(static_cast<uint16_t>(bits + 1));
    const float middle = (low + high) / 2;  // exact in f32
    const uint16_t even = static_cast<uint16_t>(bits + (bits & 1));
    EXPECT_EQ(f32_to_f16(middle), even);
    EXPECT_EQ(f32_to_f16(-middle), even | 0x8000);
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), bits);
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, 1e9f)), bits + 1);
  }
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
}

TEST(Scalar, BrainFloatsRoundToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7f7f; ++bits) {
    const float low = bf16_to_f32(static_cast<uint16_t>(bits));
    const float middle = std::bit_cast<float>(std::bit_cast<uint32_t>(low) + 0x8000u);
    EXPECT_EQ(f32_to_bf16(low), bits);
    EXPECT_EQ(f32_to_bf16(middle), bits + (bits & 1));
  }
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::nanf("")))));
}

TEST(Scalar, NamesAreUnique) {
  for (int i = 0; i < 13; ++i) {
    const auto s = static_cast<Scalar>(i);
    EXPECT_EQ(scalar_from_name(scalar_name(s)), s);
  }
  EXPECT_FALSE(scalar_from_name("f31"));
}

}  // namespace
}  // namespace lumen
