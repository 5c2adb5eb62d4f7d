// needs: cpu. Fields fitted to sparse errors: the norm falls in formats with an offset and without, fields that rows or
// the tensor share included; formats whose codes nobody can choose are refused.
#include <gtest/gtest.h>

#include <cmath>

#include "model/compress/strategy/strategy.h"
#include "number/codec/codec.h"
#include "number/library/library.h"
#include "tests/run/kept_kernels.h"

namespace lumen::model::compress {
namespace {

double norm(std::span<const float> a, std::span<const float> b, double p) {
  double sum = 0;
  for (size_t k = 0; k < a.size(); ++k) sum += std::pow(std::abs(double{a[k]} - b[k]), p);
  return sum;
}

TEST(HalfQuadratic, NormsOfErrorsFall) {
  static const FormatLibrary kLibrary = FormatLibrary::builtin();
  run::Engine engine(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 1, .machine = nullptr});
  std::vector<float> w(24 * 256);
  uint32_t state = 5;
  for (float& x : w) {
    double sum = -2;
    for (int k = 0; k < 4; ++k) sum += ((state = state * 1664525 + 1013904223) >> 8) / 16777216.0;
    x = 0.05 * sum * (state % 50 == 0 ? 6 : 1);  // few that stand out
  }
  const Strategy &plain = find_strategy("rtn"), &split = find_strategy("hqq");
  const StrategyOptions options;
  for (const char* name :
       {"int4_g64_affine", "int3_g64_affine", "int2_g64_affine", "int4_g32", "nvfp4", "int8_row", "nvfp4_tensor"}) {
    RoundingTask t;
    t.name = "w";
    t.rows = 24;
    t.columns = 256;
    t.format = kLibrary.get(name);
    t.values = w;
    ASSERT_FALSE(split.refuses(*t.format, options)) << name;
    const Rounding a = plain.rounder(engine, options)->round(t), b = split.rounder(engine, options)->round(t);
    EXPECT_EQ(decode(*t.format, b.blob, 24, 256), b.values) << name;
    const bool has_offset = std::string(name).ends_with("affine");
    EXPECT_LT(norm(w, b.values, 0.7), (has_offset ? 0.99 : 1.0001) * norm(w, a.values, 0.7)) << name;
  }
  EXPECT_TRUE(split.refuses(*kLibrary.get("tq1_0"), options));
}

}  // namespace
}  // namespace lumen::model::compress
