// Needs none. Budgets of definitions, and tables in place of functions of few bits.
#include "number/facts/limits.h"

#include <cmath>

#include "number/codec/codec.h"
#include "tests/number/formats_of_tests.h"

namespace lumen {
namespace {

std::string looping(int trips) {
  return fmt::format(
      "format slow : block 2 {{\n  q : u8[2]\n  decode(i) {{\n    var s = 0.0\n    for k in 0..{} {{ s = s + exp(s) "
      "}}\n    return s + q[i]\n  }}\n}}\n",
      trips);
}

TEST(Limits, DecodeHasABudget) {
  EXPECT_EQ(refusal_of(looping(1000)), "");
  const std::string refused = refusal_of(looping(100000));
  EXPECT_NE(refused.find("operations for each element; 65536 are allowed"), std::string::npos) << refused;
  EXPECT_GT(operations_of(format_of(looping(100))->decode), 2000);
  EXPECT_LT(operations_of(format_of(looping(100))->decode), 6000);
}

TEST(Limits, ShippedFormatsAreFarBelowThem) {
  for (const FormatRef& f : builtin_formats().all()) {
    EXPECT_LT(operations_of(f->decode), kMostDecodeInFile / 4) << f->name;
    EXPECT_TRUE(unrolls(*f)) << f->name;
  }
  EXPECT_FALSE(unrolls(*format_of("format b : block 4096 {\n  q : u4[4096]\n  decode(i) = q[i]\n}\n")));
}

TEST(Tabulate, FunctionsOfFewBitsAreLookedUp) {
  const FormatRef f = format_of(R"(
format exps : block 8 {
  d : f32
  q : i5[8]
  decode(i) = d * exp(q[i] * 0.25) - d
}
)");
  ASSERT_EQ(f->tables.size(), 1u);
  ASSERT_EQ(f->tables[0].values.size(), 32u);
  EXPECT_EQ(f->tables[0].values[16], 1);
  EXPECT_EQ(f->tables[0].values[15], static_cast<float>(std::exp(-0.25)));
  EXPECT_LT(operations_of(f->decode), 20);
  const std::vector<uint8_t> blob = random_blob(*f, 1, 8, 1);
  float d = 0;
  std::memcpy(&d, blob.data(), 4);
  const auto y = decode(*f, blob, 1, 8);
  for (int i = 0; i < 8; ++i) {
    int q = static_cast<int>((blob[static_cast<size_t>(4 + 5 * i / 8)] |
                              blob[std::min<size_t>(8, static_cast<size_t>(5 + 5 * i / 8))] << 8) >>
                             (5 * i % 8)) &
            31;
    if (q > 15) q -= 32;
    const float e = static_cast<float>(std::exp(static_cast<double>(static_cast<float>(q) * 0.25F)));
    const float want = d * e - d;
    EXPECT_TRUE(y[static_cast<size_t>(i)] == want || (std::isnan(want) && std::isnan(y[static_cast<size_t>(i)]))) << i;
  }
}

TEST(Tabulate, WhatDependsOnMoreStays) {
  const FormatRef wide = format_of("format w : block 2 {\n  q : u16[2]\n  decode(i) = exp(q[i] * -0.001)\n}\n");
  EXPECT_TRUE(wide->tables.empty());
  const FormatRef part =
      format_of("format p : block 2 {\n  q : u16[2]\n  decode(i) = exp((q[i] & 15) * 0.1) * (q[i] >> 4)\n}\n");
  ASSERT_EQ(part->tables.size(), 1u);
  EXPECT_EQ(part->tables[0].values.size(), 16u);
  const FormatRef two = format_of(
      "format t : block 2 {\n  a : u4[2]\n  b : u4[2]\n  decode(i) = exp(a[i] * 0.1) + exp((a[i] + b[i]) * 0.1)\n}\n");
  EXPECT_EQ(two->tables.size(), 1u);
  const FormatRef none = format_of("format n : block 2 {\n  a : u4[2]\n  decode(i) = (a[i] - 8) / 3.0\n}\n");
  EXPECT_TRUE(none->tables.empty());
}

}  // namespace
}  // namespace lumen
