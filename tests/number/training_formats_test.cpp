// Needs none. Quantisers of published recipes, bit for bit against models of their specifications in double precision:
// powers of two that hold a tile (InfiR2, section 2.1), two levels (MOSS, section 3.1), tiles that are cut off at the
// edge.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "base/error.h"
#include "number/codec/codec.h"
#include "number/library/library.h"

namespace lumen {
namespace {

const FormatLibrary& library() {
  static const FormatLibrary all = FormatLibrary::builtin();
  return all;
}

// The nearest e4m3 number, of two equally near ones the even, saturating.
double e4m3(double x) {
  const double a = std::fabs(x);
  if (a == 0) return 0;
  const int exponent = std::max(std::ilogb(a), -6);
  const double step = std::ldexp(1.0, exponent - 3);
  return std::copysign(std::min(std::nearbyint(a / step) * step, 448.0), x);
}

double power_above(double x) {
  if (x == 0) return std::ldexp(1.0, -127);
  const int e = std::ilogb(x);
  return std::ldexp(1.0, std::max(-127, std::ldexp(1.0, e) < x ? e + 1 : e));
}

// Rows of every kind that training meets: normal values, one large number, zeros, one number alone, tiny ones,
// powers of two and their neighbours.
std::vector<float> numbers(int64_t rows, int64_t columns, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(rows * columns);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      float& v = x[r * columns + c];
      v = normal(random);
      if (r % 8 == 1) v *= std::exp2(static_cast<float>(static_cast<int>(random() % 40) - 20));
      if (r % 8 == 2) v = 0;
      if (r % 8 == 3) v = c == 5 ? v : 0;
      if (r % 8 == 4) v *= 1e-30F;
      if (r % 8 == 5) v = std::exp2(static_cast<float>(static_cast<int>(random() % 9) - 4));
      if (r % 8 == 6) v = std::nextafter(448.0F * std::exp2(static_cast<float>(c % 5) - 2), c % 2 ? 0.0F : 1e9F);
      if (r % 8 == 7 && c % 33 == 0) v *= 1000;
    }
  }
  return x;
}

TEST(TrainingFormats, PowersOfTwoHoldEachTile) {
  for (const auto& [name, tile_rows] : {std::pair{"fp8_1x128_p2", 1}, {"fp8_128x128_p2", 128}}) {
    for (const int64_t columns : {128, 384, 200, 75}) {
      const int64_t rows = 150;
      const std::vector<float> x = numbers(rows, columns, 7);
      const FormatRef f = library().get(name);
      const std::vector<float> got = decode(*f, encode(*f, x, rows, columns), rows, columns);
      for (int64_t r0 = 0; r0 < rows; r0 += tile_rows)
        for (int64_t c0 = 0; c0 < columns; c0 += 128) {
          double most = 0;
          const int64_t r1 = std::min<int64_t>(rows, r0 + tile_rows), c1 = std::min<int64_t>(columns, c0 + 128);
          for (int64_t r = r0; r < r1; ++r)
            for (int64_t c = c0; c < c1; ++c) most = std::max(most, std::fabs(double{x[r * columns + c]}));
          const double s = power_above(most / 448);
          for (int64_t r = r0; r < r1; ++r)
            for (int64_t c = c0; c < c1; ++c)
              ASSERT_EQ(got[r * columns + c], static_cast<float>(s * e4m3(x[r * columns + c] / s)))
                  << name << " " << columns << " at " << r << ", " << c;
        }
    }
  }
}

TEST(TrainingFormats, TwoLevelsAreThoseOfMoss) {
  const int64_t rows = 64, columns = 256;
  const std::vector<float> x = numbers(rows, columns, 8);
  const FormatRef f = library().get("fp8_two_level");
  const std::vector<uint8_t> blob = encode(*f, x, rows, columns);
  const std::vector<float> got = decode(*f, blob, rows, columns);
  const BlobLayout layout = blob_layout(*f, rows, columns);
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<float> scales;  // s_i, in f32
    for (int64_t b = 0; b < columns; b += 32) {
      float most = 0;
      for (int64_t c = b; c < b + 32; ++c) most = std::max(most, std::fabs(x[r * columns + c]));
      scales.push_back(most / 448.0F);
    }
    const float s = *std::max_element(scales.begin(), scales.end());
    float stored = 0;
    std::memcpy(&stored, blob.data() + layout.section[static_cast<size_t>(Level::row)] + r * f->row_bytes, 4);
    ASSERT_EQ(stored, s) << "row " << r;
    for (int64_t c = 0; c < columns; ++c) {
      const double e = s == 0 ? 1 : power_above(double{scales[c / 32]} / s);
      ASSERT_LE(e, 1) << "row " << r;
      const double scale = static_cast<float>(s * e);
      const double want =
          scale == 0 || x[r * columns + c] == 0 ? 0 : scale * e4m3(static_cast<float>(x[r * columns + c] / scale));
      ASSERT_EQ(got[r * columns + c], static_cast<float>(want)) << "row " << r << ", column " << c;
    }
  }
}

// The largest number of all is rounded as others are.
TEST(TrainingFormats, NothingIsClipped) {
  for (const char* name :
       {"fp8_two_level", "fp8_1x128_p2", "fp8_128x128_p2", "fp8_row_p2", "mxfp8_e4m3_up", "mxfp4_up"}) {
    const FormatRef f = library().get(name);
    const std::vector<float> x = numbers(64, 256, 9);
    const auto y = decode(*f, encode(*f, x, 64, 256), 64, 256);
    double most_x = 0, most_y = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      most_x = std::max(most_x, std::fabs(double{x[i]}));
      most_y = std::max(most_y, std::fabs(double{y[i]}));
    }
    EXPECT_NEAR(most_y, most_x, (std::string(name) == "mxfp4_up" ? 0.26 : 0.0625) * most_x) << name;
  }
}

// Whose scales are f32, or powers of two: every level, 8-bit floats of both families, integers, four bits.
constexpr const char* kOfTraining[] = {"fp8_tensor",
                                       "fp8_row",
                                       "fp8_tile",
                                       "fp8_1x128",
                                       "fp8_1x128_p2",
                                       "fp8_128x128_p2",
                                       "fp8_row_p2",
                                       "fp8_two_level",
                                       "fp8_e5m2_tensor",
                                       "fp8_e5m2_row",
                                       "fp8_e4m3fnuz_tensor",
                                       "fp8_e4m3fnuz_row",
                                       "fp8_e5m2fnuz_tensor",
                                       "fp8_e5m2fnuz_row",
                                       "int8",
                                       "int8_row",
                                       "int8_block",
                                       "int8_1x128",
                                       "int4_row",
                                       "microscale",
                                       "nvfp4_tensor",
                                       "nvfp4_divided",
                                       "mxfp8_e4m3_up",
                                       "mxfp4_up",
                                       "nf4"};

TEST(TrainingFormats, NumbersThatAreNotFiniteAreRefused) {
  for (const char* name : kOfTraining)
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> x(256, 1.0F);
      x[77] = bad;
      EXPECT_THROW((void)encode(*library().get(name), x, 1, 256), Error) << name;
    }
}

// Gradients behind saturated attentions are as small as f32 has them, subnormal numbers and zeros: a scale without a
// finite inverse gives zeros, not infinities and what no number is.
TEST(TrainingFormats, TinyNumbersStayNumbers) {
  for (const char* name : kOfTraining)
    for (const float most : {1e-30F, 1e-33F, 8.01e-36F, 7.9e-36F, 1e-36F, 3e-37F, 1e-38F, 1e-42F, 1e-45F, 0.0F}) {
      std::vector<float> x(2 * 256, 0.0F);
      for (size_t i = 0; i < x.size(); i += 3) x[i] = i % 2 ? most : -most / 3;
      for (size_t i = 300; i < 332; ++i) x[i] *= 0x1p-12F;  // a block far below its row
      const Format& f = *library().get(name);
      const std::vector<float> back = decode(f, encode(f, x, 2, 256), 2, 256);
      const float least = f.name.starts_with("mx") ? 0x1p-126F : 0;  // powers of two have no zero
      for (size_t i = 0; i < x.size(); ++i)
        ASSERT_LE(std::fabs(back[i] - x[i]), std::max(most, least))
            << name << " " << most << " " << i << ": " << back[i];
    }
}

// Numbers that are small and no smaller are what they were: each scale has a reciprocal.
TEST(TrainingFormats, ScalesWithReciprocalsStay) {
  for (const char* name : kOfTraining) {
    const Format& f = *library().get(name);
    std::vector<float> x(2 * 256, 0.0F);
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::ldexp(static_cast<float>(i % 7) - 3, -100);
    const std::vector<float> back = decode(f, encode(f, x, 2, 256), 2, 256);
    const float off = f.name.starts_with("nf4") || f.name.find("fp4") != std::string::npos ? 0.34F : 0.15F;
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_LE(std::fabs(back[i] - x[i]), off * std::ldexp(3.0F, -100)) << name << " " << i << ": " << back[i];
  }
}

}  // namespace
}  // namespace lumen
