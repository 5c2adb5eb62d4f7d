// Needs none. What is derived from decode equals decode.
#include "number/facts/facts.h"

#include <gtest/gtest.h>

#include <cmath>

#include "number/codec/codec.h"
#include "number/facts/straight.h"
#include "tests/number/formats_of_tests.h"

namespace lumen {
namespace {

// Evaluates expressions over i on one row of a blob.
class Row {
 public:
  Row(const Format& f, const std::vector<uint8_t>& blob, int64_t columns)
      : format_(f), blob_(blob), layout_(blob_layout(f, 1, columns)) {}

  double value(const RoutineExpr& e, int64_t column) const {
    auto field = [&](int slot, int64_t index) {
      const Field& x = format_.fields[static_cast<size_t>(slot)];
      int64_t at = layout_.section[static_cast<size_t>(x.level)];
      if (x.level == Level::block) at += column / format_.block * format_.block_bytes;
      if (x.level == Level::tile) at += column / format_.tile_columns * format_.tile_bytes;
      return static_cast<double>(static_cast<float>(field_decode(x.type, x.layout.read(blob_.data() + at, index))));
    };
    const ScalarValue v = evaluate_expression(format_, e, {ScalarValue{0, column % format_.block}}, field);
    return is_float(e.type) ? v.real : static_cast<double>(v.integer);
  }

 private:
  const Format& format_;
  const std::vector<uint8_t>& blob_;
  BlobLayout layout_;
};

// On random bits: scale * q + offset is decode up to the order of roundings, q stays in its range, scale and offset are
// constant over groups.
TEST(Facts, PiecesPutTogetherAreDecode) {
  int affine = 0, scaled = 0;
  for (const FormatRef& f : builtin_formats().all()) {
    const FormatFacts facts = facts_of(*f);
    const int64_t columns = 512;
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const auto blob = random_blob(*f, 1, columns, seed);
      const auto y = decode(*f, blob, 1, columns);
      const Row row(*f, blob, columns);
      double scale_before = 0, offset_before = 0;
      for (int64_t c = 0; c < columns; ++c) {
        const float expected = y[static_cast<size_t>(c)];
        if (!facts.scaled) continue;
        const ScaledForm& s = *facts.scaled;
        const double scale = s.scale ? row.value(*s.scale, c) : 1, offset = s.offset ? row.value(*s.offset, c) : 0;
        const double got = scale * row.value(s.value, c) + offset;
        if (c % s.group != 0 && !std::isnan(scale_before) && !std::isnan(offset_before)) {
          ASSERT_EQ(scale, scale_before) << f->name << " " << c;
          ASSERT_EQ(offset, offset_before) << f->name << " " << c;
        }
        scale_before = scale;
        offset_before = offset;
        if (!std::isfinite(expected) || !std::isfinite(got)) continue;
        const double size = std::fabs(scale * row.value(s.value, c)) + std::fabs(offset);
        ASSERT_NEAR(got, expected, 1e-6 * size + 1e-44) << f->name << " " << c;
        if (!facts.affine) continue;
        const double q = row.value(facts.affine->q, c);
        ASSERT_GE(q, static_cast<double>(facts.affine->q_min)) << f->name;
        ASSERT_LE(q, static_cast<double>(facts.affine->q_max)) << f->name;
        ASSERT_EQ(q, row.value(s.value, c)) << f->name;
      }
    }
    affine += facts.affine.has_value();
    scaled += facts.scaled.has_value();
  }
  EXPECT_EQ(scaled, static_cast<int>(builtin_formats().all().size()));
  EXPECT_GE(affine, 40);
}

struct Expected {
  const char* format;
  const char* scale;
  const char* q;
  const char* offset;
  int64_t group;
  int low, high;
};

TEST(Facts, FormsOfKnownFormats) {
  const Expected rows[] = {
      {"q4_0", "d", "qs[i] - 8", "", 32, -8, 7},
      {"q4_1", "d", "qs[i]", "m", 32, 0, 15},
      {"q4_k", "d * S[i / 32]", "qs[i]", "-(dmin * M[i / 32])", 32, 0, 15},
      {"q2_k", "d * S[i / 16]", "qs[i]", "-(dmin * M[i / 16])", 16, 0, 3},
      {"q6_k", "d * sc[i / 16]", "q[i] - 32", "", 16, -32, 31},
      {"iq4_nl", "d", "iq4_values[qs[i]]", "", 32, -127, 113},
      {"mxfp4", "0.5 * e", "fp4_doubled[qs[i]]", "", 32, -12, 12},
      {"int4_g64_asym", "s", "q[i]", "s * -z", 64, 0, 15},
      {"int8_row", "s", "q", "", kWholeRow, -128, 127},
  };
  for (const Expected& e : rows) {
    const FormatRef f = builtin_formats().get(e.format);
    const FormatFacts facts = facts_of(*f);
    ASSERT_TRUE(facts.affine) << e.format;
    EXPECT_EQ(print_expression(facts.affine->scale, *f, f->decode), e.scale);
    EXPECT_EQ(print_expression(facts.affine->q, *f, f->decode), e.q);
    EXPECT_EQ(facts.affine->offset ? print_expression(*facts.affine->offset, *f, f->decode) : "", e.offset);
    EXPECT_EQ(facts.affine->group, e.group);
    EXPECT_EQ(facts.affine->q_min, e.low);
    EXPECT_EQ(facts.affine->q_max, e.high);
  }
  for (const char* name : {"f32", "fp8_e4m3", "fp8_row", "nf4", "mxfp8_e4m3", "microscale"})
    EXPECT_FALSE(facts_of(*builtin_formats().get(name)).affine) << name;
}

TEST(Facts, PropertiesOfValues) {
  auto facts = [](const char* name) { return facts_of(*builtin_formats().get(name)); };
  EXPECT_TRUE(facts("mxfp4").power_of_two_scale);
  EXPECT_TRUE(facts("mxfp8_e4m3").power_of_two_scale);
  EXPECT_FALSE(facts("q4_0").power_of_two_scale);
  EXPECT_FALSE(facts("nvfp4").power_of_two_scale);
  EXPECT_TRUE(facts("iq4_nl").affine->q_is_table);
  EXPECT_FALSE(facts("q4_0").affine->q_is_table);
  EXPECT_EQ(facts("fp8_e4m3").values->size(), 256u);
  EXPECT_EQ((*facts("fp8_e4m3").values)[0x38], 1.0F);
  EXPECT_FALSE(facts("q4_0").values);
  EXPECT_TRUE(facts("fp8_e4m3").symmetric);
  EXPECT_FALSE(facts("iq4_nl").symmetric);
  EXPECT_FALSE(facts("iq4_nl").has_zero);
  EXPECT_TRUE(facts("nf4").has_zero);
  EXPECT_TRUE(facts("int4_g32_asym").has_zero);
  EXPECT_FALSE(facts("q4_1").has_zero);
  EXPECT_FALSE(facts("q1_0").has_zero);
  EXPECT_EQ(facts("q5_k").code_bits, 5);
  EXPECT_EQ(facts("q8_1").code_bits, 8);
  EXPECT_EQ(facts("tq1_0").code_bits, 0);
}

// Scales that change at places which do not fit the block evenly.
TEST(Facts, GroupsAreTheCommonRuns) {
  const FormatRef f =
      format_of("format t : block 48 {\na : u4[4]\nb : u4[3]\nq : i8[48]\ndecode(i) = a[i / 12] * b[i / 16] * q[i]\n}");
  ASSERT_TRUE(facts_of(*f).affine);
  EXPECT_EQ(facts_of(*f).affine->group, 4);
  const FormatRef g =
      format_of("format t : block 64 {\na : u4[2]\nq : i8[64]\ndecode(i) = a[i / 48] * (1.0 * q[i])\n}");
  EXPECT_EQ(facts_of(*g).affine->group, 16);
}

}  // namespace
}  // namespace lumen
