// needs: none. Fields that multiply what is decoded are found in formats of all kinds; codes stay bit for bit.
#include "model/compress/recovery_training/scale_fields.h"

#include <gtest/gtest.h>

#include <cmath>

#include "number/codec/codec.h"
#include "tests/model/tiny.h"

namespace lumen::model::compress {
namespace {

FormatRef fields_format(const std::string& name) {
  return test_library()->formats().get(name);
}

std::vector<std::string> fields_names(const Format& f, const ScaleFields& s) {
  std::vector<std::string> out;
  for (const int k : s.fields) out.push_back(f.fields[k].name);
  return out;
}

std::vector<float> fields_drawn(int64_t count) {
  std::vector<float> out;
  uint32_t state = 9;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    out.push_back((state >> 8) / 8388608.0F - 1);
  }
  return out;
}

TEST(ScaleFields, AreFoundByWhatDecodingGives) {
  for (const auto& [name, count] : std::map<std::string, size_t>{{"q4_0", 1},
                                                                 {"q4_1", 2},
                                                                 {"q8_0", 1},
                                                                 {"q4_k", 2},
                                                                 {"q6_k", 1},
                                                                 {"q2_k", 2},
                                                                 {"iq4_xs", 1},
                                                                 {"int3_g64", 1}}) {
    SCOPED_TRACE(name);
    const FormatRef f = fields_format(name);
    std::string why;
    const auto scales = find_scale_fields(*f, &why);
    ASSERT_TRUE(scales) << why;
    EXPECT_EQ(scales->level, Level::block);
    EXPECT_EQ(scales->fields.size(), count);
    for (const std::string& field : fields_names(*f, *scales)) EXPECT_LT(field.size(), 20u);
  }
  std::string why;
  EXPECT_FALSE(find_scale_fields(*fields_format("bf16"), &why)) << "no field but the numbers themselves";
  EXPECT_FALSE(find_scale_fields(*fields_format("mxfp4"), &why)) << "powers of two";
  EXPECT_FALSE(why.empty());
}

// Every format of the library that has such fields: numbers are multiplied, and nothing but those fields changes.
TEST(ScaleFields, CodesStayAsTheyAre) {
  int found = 0, several = 0;
  for (const FormatRef& f : test_library()->formats().all()) {
    std::string why;
    const auto scales = f->encodes() ? find_scale_fields(*f, &why) : std::nullopt;
    if (!scales) continue;
    SCOPED_TRACE(f->name);
    ++found;
    several += scales->count > 1;
    const int64_t rows = 3, columns = 2 * f->block;
    const std::vector<float> x = fields_drawn(rows * columns);
    const std::vector<uint8_t> blob = encode(*f, x, rows, columns);
    const std::vector<float> before = decode(*f, blob, rows, columns);
    const ScaledBlob scaled(f, *scales, rows, columns, blob);
    EXPECT_EQ(scaled.times(std::vector<float>(scaled.groups(), 1)), blob);
    std::vector<float> factors(scaled.groups());
    for (size_t g = 0; g < factors.size(); ++g) factors[g] = g % 2 == 0 ? 2 : 0.5F;
    const std::vector<uint8_t> after = scaled.times(factors);
    const std::vector<float> now = decode(*f, after, rows, columns);
    std::vector<float> ones(now.size(), 1), counts = scaled.sums(ones, ones);
    double all = 0;
    for (const float c : counts) all += c;
    EXPECT_EQ(all, rows * columns) << "every element has a group";
    for (size_t i = 0; i < now.size(); ++i)
      EXPECT_TRUE(now[i] == 2 * before[i] || now[i] == before[i] / 2 || before[i] == 0) << i;
    // Back again.
    for (float& by : factors) by = 1 / by;
    EXPECT_EQ(ScaledBlob(f, *scales, rows, columns, after).times(factors), blob);
    // Other fields have the bits they had.
    const BlobLayout layout = blob_layout(*f, rows, columns);
    for (int k = 0; k < std::ssize(f->fields); ++k) {
      const Field& field = f->fields[k];
      if (field.level != Level::block || (scales->level == Level::block && std::ranges::count(scales->fields, k) > 0))
        continue;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t b = 0; b < 2; ++b)
          for (int64_t i = 0; i < field.count; ++i) {
            const int64_t at = layout.section[0] + r * layout.row_stride + b * f->block_bytes;
            ASSERT_EQ(field.layout.read(blob.data() + at, i), field.layout.read(after.data() + at, i));
          }
    }
  }
  EXPECT_GT(found, 20);
  EXPECT_GT(several, 0);
}

TEST(ScaleFields, SumsAreThoseOfGroups) {
  const FormatRef f = fields_format("q4_0");
  std::string why;
  const std::vector<float> x = fields_drawn(2 * 96), y = fields_drawn(2 * 96);
  const std::vector<uint8_t> blob = encode(*f, x, 2, 96);
  const ScaledBlob scaled(f, *find_scale_fields(*f, &why), 2, 96, blob);
  const std::vector<float> sums = scaled.sums(x, y);
  ASSERT_EQ(sums.size(), 6u);
  for (size_t g = 0; g < 6; ++g) {
    double sum = 0;
    for (size_t i = g * 32; i < g * 32 + 32; ++i) sum += double{x[i]} * y[i];
    EXPECT_NEAR(sums[g], sum, 1e-6);
  }
}

}  // namespace
}  // namespace lumen::model::compress
