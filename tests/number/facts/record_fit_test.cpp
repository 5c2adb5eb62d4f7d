// Needs none. Fits that are formulas of largest magnitudes: those of the library's scaled formats equal the codec's
// bit for bit, others are refused.
#include "number/facts/record_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "number/codec/codec.h"
#include "tests/number/formats_of_tests.h"

namespace lumen {
namespace {

float value_of(const RecordFit& fit, const Formula& field, const std::vector<float>& x) {
  std::vector<ScalarValue> extremes;
  for (const Extreme& e : fit.extremes) {
    ScalarValue most{e.op == ScalarOp::max_ ? -INFINITY : INFINITY, 0};
    for (const float v : x) {
      const ScalarValue in{v, 0};
      ScalarValue out;
      eval_formula(e.of, {&in, 1}, {&out, 1});
      most.real = e.op == ScalarOp::max_ ? std::max(most.real, out.real) : std::min(most.real, out.real);
    }
    extremes.push_back(most);
  }
  ScalarValue out;
  eval_formula(field, extremes, {&out, 1});
  return static_cast<float>(out.real);
}

TEST(RecordFit, EqualsTheCodecs) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 1);
  for (const char* name : {"fp8_row", "fp8_row_p2", "fp8_tensor", "fp8_1x128_p2", "fp8_tile", "int8_row", "int8",
                           "fp8_two_level", "fp8_e5m2_row", "int8_1x128"}) {
    const FormatRef f = builtin_formats().get(name);
    for (const Level level : {Level::row, Level::tile, Level::tensor}) {
      int field = -1;
      for (int k = 0; k < std::ssize(f->fields); ++k)
        if (f->fields[k].level == level) field = k;
      const auto fit = record_fit(*f, level);
      ASSERT_EQ(fit.has_value(), field >= 0) << name;
      if (field < 0) continue;
      ASSERT_EQ(fit->fields.size(), 1U);
      for (const float size : {1.0F, 0.0F, 1e-38F, 1e30F}) {
        std::vector<float> x(128);
        for (float& v : x) v = size * normal(random);
        const std::vector<uint8_t> blob = encode(*f, x, 1, 128);
        const SuppliedField supplied{field, {value_of(*fit, fit->fields[0].second, x)}};
        EXPECT_EQ(encode(*f, x, 1, 128, {&supplied, 1}), blob) << name << " " << size;
      }
    }
  }
}

TEST(RecordFit, OtherFitsAreRefused) {
  for (const char* name : {"q4_0", "q4_k", "nf4", "mxfp8_e4m3"})
    for (const Level level : {Level::block, Level::row, Level::tile, Level::tensor})
      EXPECT_FALSE(record_fit(*builtin_formats().get(name), level)) << name;
}

TEST(RecordFit, CodesOfOneByte) {
  for (const char* name : {"fp8_e4m3", "fp8_row", "fp8_row_p2", "fp8_tensor", "fp8_tile", "fp8_1x128", "int8_row"})
    EXPECT_TRUE(byte_code(*builtin_formats().get(name))) << name;
  for (const char* name : {"bf16", "int4_row", "mxfp8_e4m3", "q8_0", "fp8_two_level", "nf4"})
    EXPECT_FALSE(byte_code(*builtin_formats().get(name))) << name;
}

}  // namespace
}  // namespace lumen
