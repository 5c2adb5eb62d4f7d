// Needs none. Fake quantization against the codec bit for bit; straight-through gradients against the published rules.
#include "number/gradient/gradient.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "number/facts/straight.h"
#include "number/library/library.h"

namespace lumen {
namespace {

const FormatLibrary& library() {
  static const FormatLibrary kLibrary = FormatLibrary::builtin();
  return kLibrary;
}

std::vector<float> random_values(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (float& v : x) v = normal(random);
  return x;
}

// All inputs of one element's formula, fields as stored in the blob (one row).
std::vector<ScalarValue> inputs_of(const Format& f, const FakeQuantize& fake, const std::vector<uint8_t>& blob,
                                   int64_t columns, int64_t column, float x) {
  const BlobLayout layout = blob_layout(f, 1, columns);
  const std::vector<ScalarValue> i = {{0, column % f.block}};
  std::vector<ScalarValue> inputs = {{x, 0}};
  for (const ElementField& e : fake.fields) {
    const Field& field = f.fields[static_cast<size_t>(e.field)];
    const int64_t index = evaluate_expression(f, e.index, i, nullptr).integer;
    int64_t at = layout.section[static_cast<size_t>(field.level)];
    if (field.level == Level::block) at += column / f.block * f.block_bytes;
    if (field.level == Level::tile) at += column / f.tile_columns * f.tile_bytes;
    const double value = field_decode(field.type, field.layout.read(blob.data() + at, index));
    inputs.push_back(field.type.is_float ? ScalarValue{value, 0} : ScalarValue{0, static_cast<int64_t>(value)});
  }
  if (fake.uses_index) inputs.push_back(i[0]);
  return inputs;
}

// With the fields supplied as stored, decode(encode(x)) is the formula, for every format that has one.
TEST(FakeQuantize, EqualsTheCodec) {
  int with_formula = 0;
  for (const FormatRef& f : library().all()) {
    const auto fake = fake_quantize_formula(*f);
    if (!fake) continue;
    ++with_formula;
    verify_formula(fake->formula);
    const int64_t columns = 256;
    const std::vector<float> x = random_values(static_cast<size_t>(columns), 7);
    const auto fitted = encode(*f, x, 1, columns);
    // Supply every field but the codes with its stored values, so that codes are made from those.
    const BlobLayout layout = blob_layout(*f, 1, columns);
    std::vector<SuppliedField> supplied;
    for (size_t k = 0; k < f->fields.size(); ++k) {
      const Field& field = f->fields[k];
      if (static_cast<int>(k) == f->code_field) continue;
      const int64_t bytes[kLevels] = {f->block_bytes, f->row_bytes, f->tile_bytes, f->tensor_bytes};
      const auto level = static_cast<size_t>(field.level);
      const int64_t records = field.level == Level::block  ? columns / f->block
                              : field.level == Level::tile ? columns / f->tile_columns
                                                           : 1;
      SuppliedField s{static_cast<int>(k), {}};
      for (int64_t r = 0; r < records; ++r) {
        for (int64_t j = 0; j < field.count; ++j) {
          s.values.push_back(
              field_decode(field.type, field.layout.read(fitted.data() + layout.section[level] + r * bytes[level], j)));
        }
      }
      supplied.push_back(std::move(s));
    }
    const auto blob = encode(*f, x, 1, columns, supplied);
    const auto y = decode(*f, blob, 1, columns);
    std::vector<ScalarValue> out(1);
    for (int64_t c = 0; c < columns; ++c) {
      eval_formula(fake->formula, inputs_of(*f, *fake, blob, columns, c, x[static_cast<size_t>(c)]), out);
      ASSERT_EQ(static_cast<float>(out[0].real), y[static_cast<size_t>(c)]) << f->name << " element " << c;
    }
  }
  EXPECT_GE(with_formula, 55);
}

// Inside the range dy/dx is 1; for the scale it is LSQ's rule, code - x / s inside and the bound outside.
TEST(FakeQuantize, HasTheStraightThroughDerivative) {
  for (const char* name : {"int8_row", "int4_g32", "q4_0", "q8_0", "fp8_row", "nf4", "mxfp8_e4m3", "mxfp4", "q2_k",
                           "q3_k", "q4_k", "q5_k", "q6_k"}) {
    const FormatRef f = library().get(name);
    const auto fake = fake_quantize_formula(*f);
    ASSERT_TRUE(fake) << name;
    const int64_t columns = 256;
    const std::vector<float> x = random_values(static_cast<size_t>(columns), 11);
    const auto blob = encode(*f, x, 1, columns);
    const auto mask = straight_through_mask(*f, x, blob, 1, columns);
    const Formula slope = straight_through_derivative(fake->formula, 0, 0);
    std::vector<ScalarValue> out(1);
    int passed = 0;
    for (int64_t c = 0; c < columns; ++c) {
      if (mask[static_cast<size_t>(c)] == 0) continue;
      eval_formula(slope, inputs_of(*f, *fake, blob, columns, c, x[static_cast<size_t>(c)]), out, true);
      // At the very ends a value beyond the last code by less than half a step may count as clipped.
      if (out[0].real == 0) continue;
      ++passed;
      EXPECT_NEAR(out[0].real, 1, 2e-3) << name << " element " << c;
    }
    EXPECT_GE(passed, 200) << name;
  }
}

TEST(FieldGradient, OfAScaleIsTheRuleOfLearnedSteps) {
  const FormatRef f = library().get("int8_row");
  const int field = 0;
  const float s = 0.01F;
  const std::vector<float> x = {0.123F, -0.777F, 5.0F, -9.0F};
  const SuppliedField supplied[] = {{field, {s}}};
  const auto blob = encode(*f, x, 1, 4, supplied);
  const std::vector<float> dy = {1, 10, 100, 1000};
  const double inside0 = 12 - 0.123 / 0.01, inside1 = -78 + 0.777 / 0.01;
  const auto gradient = field_gradient(*f, field, x, blob, dy, 1, 4);
  ASSERT_EQ(gradient.size(), 1u);
  EXPECT_NEAR(gradient[0], inside0 + 10 * inside1 + 100 * 127 - 1000 * 127, 0.05);
}

TEST(Mask, PassesWhatFitsAndStopsWhatWasClipped) {
  for (const FormatRef& f : library().all()) {
    if (!f->encodes()) continue;
    const int64_t columns = 512;
    std::vector<float> x = random_values(static_cast<size_t>(2 * columns), 3);
    const auto blob = encode(*f, x, 2, columns);
    const auto mask = straight_through_mask(*f, x, blob, 2, columns);
    int passed = 0;
    for (float m : mask) passed += m == 1;
    // Fitted scales hold nearly everything (one bit keeps only a sign; grids of few bits gain by leaving out the
    // largest).
    const int least = f->name == "q1_0" ? 500 : f->name == "e8m0" ? 400 : f->bits_per_weight() < 2 ? 850 : 930;
    EXPECT_GE(passed, least) << f->name;
    for (float& v : x) v *= 1000;
    const auto clipped = straight_through_mask(*f, x, blob, 2, columns);
    int kept = 0;
    for (float m : clipped) kept += m == 1;
    const bool bounded = f->block > 1 || f->row_bytes + f->tile_bytes + f->tensor_bytes > 0;
    if (bounded) {
      EXPECT_LE(kept, 60) << f->name;
    }
  }
}

}  // namespace
}  // namespace lumen
