// needs: none. What a format cannot hold is counted, and rounding is not.
#include "model/compress/saturation.h"

#include "model/compress/quantize.h"
#include "number/codec/codec.h"
#include "tests/model/tiny.h"

namespace lumen::model::compress {
namespace {

Saturation of(const std::string& format, const std::vector<float>& x, int64_t rows = 1) {
  const FormatRef f = test_library()->formats().get(format);
  const auto columns = static_cast<int64_t>(x.size()) / rows;
  const auto blob = encode(*f, x, rows, columns);
  return saturation(*f, x, decode(*f, blob, rows, columns), blob, rows, columns);
}

std::vector<float> ordinary(size_t count, float size = 0.02F) {
  std::vector<float> x(count);
  for (size_t i = 0; i < count; ++i) x[i] = size * static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 50;
  return x;
}

TEST(Saturation, RoundingIsNone) {
  for (const FormatRef& f : test_library()->formats().all()) {
    if (!f->encodes() || f->block == 1 || 512 % f->block != 0) continue;
    EXPECT_FALSE(of(f->name, ordinary(512)).any()) << f->name;
    EXPECT_FALSE(of(f->name, std::vector<float>(512, 0.0F)).any()) << f->name;
  }
}

TEST(Saturation, NumbersBeyondAFloatsRange) {
  std::vector<float> x = ordinary(64);
  x[3] = 1e6F;
  x[9] = -7e4F;
  x[10] = 1e-12F;
  const Saturation s = of("f16", x);
  EXPECT_EQ(s.clamped, 2);
  EXPECT_EQ(s.largest, 1e6F);
  EXPECT_EQ(s.lost, 1);
  EXPECT_EQ(s.text(*test_library()->formats().get("f16")),
            "2 numbers beyond the range of f16 (the largest is 1e+06) are smaller; 1 number too small for it became 0");
  EXPECT_FALSE(of("bf16", x).clamped > 0);
}

TEST(Saturation, ScalesBeyondTheirField) {
  for (const char* format : {"q8_0", "q4_0", "q4_k", "q6_k", "q2_k", "iq4_nl", "nvfp4"}) {
    std::vector<float> x = ordinary(256);
    x[40] = 1e12F;
    const Saturation s = of(format, x);
    EXPECT_EQ(s.clamped, 1) << format;
    EXPECT_EQ(s.largest, 1e12F) << format;
  }
}

TEST(Saturation, ScalesBelowTheirField) {
  const std::vector<float> x = ordinary(256, 1e-12F);
  const auto given = std::count_if(x.begin(), x.end(), [](float v) { return v != 0; });
  for (const char* format : {"q8_0", "q4_0", "q4_k", "q6_k", "iq4_xs"}) {
    const Saturation s = of(format, x);
    EXPECT_EQ(s.lost, given) << format;
    EXPECT_EQ(s.blocks, 256 / test_library()->formats().get(format)->block) << format;
  }
}

TEST(Saturation, TheReportNamesTensorsAndCounts) {
  arch::Model m = tiny_model();
  std::vector<float> values(m.weights.at("layers.0.up").f32().begin(), m.weights.at("layers.0.up").f32().end());
  values[7] = -3e9F;
  m.weights.at("layers.0.up") = arch::f32_weight(m.weights.at("layers.0.up").type.shape, values);
  QuantizeOptions options;
  options.target = "f16";
  QuantizeReport report;
  (void)quantize(engine(), m, options, &report);
  ASSERT_EQ(report.warnings().size(), 1U);
  EXPECT_NE(report.warnings()[0].find("'blk.0.ffn_up.weight': 1 number beyond the range of f16 (the largest is 3e+09)"),
            std::string::npos)
      << report.warnings()[0];
  QuantizeReport exported;
  (void)with_floats(engine(), m, test_library()->formats().get("f16"), &exported);
  EXPECT_EQ(exported.warnings(), report.warnings());
}

}  // namespace
}  // namespace lumen::model::compress
