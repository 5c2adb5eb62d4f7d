// Needs none. Every code of the small floats, and rounding against a search over all codes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "tests/number/formats_of_tests.h"

namespace lumen {
namespace {

FieldType type_of(const char* format) {
  return builtin_formats().get(format)->fields[0].type;
}

TEST(FieldType, PublishedCodesOfEightBitFloats) {
  const FieldType e4m3 = type_of("fp8_e4m3"), e5m2 = type_of("fp8_e5m2"), fnuz4 = type_of("fp8_e4m3fnuz"),
                  fnuz5 = type_of("fp8_e5m2fnuz");
  EXPECT_EQ(field_decode(e4m3, 0x7e), 448);
  EXPECT_EQ(field_decode(e4m3, 0x01), 0x1p-9);
  EXPECT_EQ(field_decode(e4m3, 0x38), 1);
  EXPECT_TRUE(std::isnan(field_decode(e4m3, 0x7f)) && std::isnan(field_decode(e4m3, 0xff)));
  EXPECT_EQ(field_decode(e5m2, 0x7b), 57344);
  EXPECT_EQ(field_decode(e5m2, 0x7c), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(field_decode(e5m2, 0x7d)));
  EXPECT_EQ(field_decode(fnuz4, 0x7f), 240);
  EXPECT_EQ(field_decode(fnuz4, 0x40), 1);
  EXPECT_TRUE(std::isnan(field_decode(fnuz4, 0x80)));
  EXPECT_EQ(field_decode(fnuz5, 0x7f), 57344);
  EXPECT_EQ(field_decode(fnuz5, 0x01), 0x1p-17);
  EXPECT_EQ(field_encode(fnuz4, -1e-9), 0u);  // no negative zero
  EXPECT_EQ(field_encode(e4m3, -0.0), 0x80u);
  EXPECT_EQ(field_encode(e4m3, 1e9), 0x7eu);
  EXPECT_EQ(field_encode(e5m2, 1e9), 0x7bu);
  EXPECT_EQ(field_encode(e5m2, std::numeric_limits<double>::infinity()), 0x7cu);
  EXPECT_TRUE(std::isnan(field_decode(fnuz5, field_encode(fnuz5, std::nan("")))));
  // A byte means half as much in the FNUZ reading.
  for (uint64_t code = 1; code < 0x7e; ++code) EXPECT_EQ(field_decode(e4m3, code), 2 * field_decode(fnuz4, code));
}

TEST(FieldType, PowersOfTwo) {
  const FieldType t = type_of("e8m0");
  EXPECT_EQ(field_decode(t, 127), 1);
  EXPECT_EQ(field_decode(t, 0), 0x1p-127);
  EXPECT_TRUE(std::isnan(field_decode(t, 255)));
  EXPECT_EQ(field_encode(t, 0), 0u);
  EXPECT_EQ(field_encode(t, 1.49), 127u);
  EXPECT_EQ(field_encode(t, 1.5), 128u);
  EXPECT_EQ(field_encode(t, 1e300), 254u);
}

// For every type and value: no code lies nearer; among two equally near, the even one; codes come back.
TEST(FieldType, RoundsToTheNearestEven) {
  for (const char* name :
       {"fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz", "fp4_e2m1", "fp6_e2m3", "fp6_e3m2"}) {
    const FieldType t = type_of(name);
    std::map<double, uint64_t> codes;
    for (uint64_t code = 0; code < (uint64_t{1} << t.bits); ++code) {
      const double value = field_decode(t, code);
      if (!std::isfinite(value)) continue;
      EXPECT_EQ(field_decode(t, field_encode(t, value)), value);
      codes.emplace(value, code);
    }
    std::vector<double> points;
    for (auto at = codes.begin(); std::next(at) != codes.end(); ++at) {
      const double middle = (at->first + std::next(at)->first) / 2;
      points.insert(points.end(), {middle, std::nextafter(middle, 1e9), std::nextafter(middle, -1e9)});
    }
    std::mt19937_64 random(5);
    std::normal_distribution<double> normal(0, 3);
    for (int k = 0; k < 3000; ++k) points.push_back(normal(random));
    for (double v : points) {
      const double got = field_decode(t, field_encode(t, v));
      const auto above = codes.lower_bound(v);
      double best = above == codes.end() ? codes.rbegin()->first : above->first;
      if (above != codes.begin()) {
        const auto below = std::prev(above);
        const double down = v - below->first, up = above == codes.end() ? 1e300 : above->first - v;
        const bool tie_down = down == up && (below->second & 1) == 0;
        if (down < up || tie_down) best = below->first;
      }
      ASSERT_EQ(got, best) << name << " of " << v;
    }
  }
}

TEST(FieldType, HalvesAgreeWithTheConversions) {
  const FieldType half = type_of("f16"), brain = type_of("bf16");
  for (float v : gaussian(2000, 1)) {
    for (float scale : {1.0F, 1e-6F, 1e-8F, 1e4F}) {
      EXPECT_EQ(field_encode(half, v * scale), f32_to_f16(v * scale));
      EXPECT_EQ(field_encode(brain, v * scale), f32_to_bf16(v * scale));
    }
  }
}

TEST(FieldType, IntegersAreClamped) {
  FieldType t;
  t.is_signed = true;
  t.bits = 4;
  EXPECT_EQ(field_encode(t, -100), 8u);
  EXPECT_EQ(field_encode(t, 100), 7u);
  EXPECT_EQ(field_decode(t, 0xf), -1);
  EXPECT_EQ(field_decode(t, field_encode(t, -3)), -3);
  t.is_signed = false;
  EXPECT_EQ(field_encode(t, -1), 0u);
  EXPECT_EQ(field_encode(t, 99), 15u);
}

}  // namespace
}  // namespace lumen
