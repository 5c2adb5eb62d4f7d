// Needs none. What the algebra must be able to say: codebooks with split indices and parity signs, a scale scattered
// over words, base-3 digits, sign-magnitude, odd blocks, nested scales. The codebooks here are small made-up tables in
// the layouts of known formats.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "formats_of_tests.h"
#include "number/codec/codec.h"
#include "number/facts/facts.h"

namespace lumen {
namespace {

uint32_t word(const uint8_t* at, int bytes) {
  uint32_t value = 0;
  for (int k = 0; k < bytes; ++k) value |= static_cast<uint32_t>(at[k]) << (8 * k);
  return value;
}

std::string made_up_grid(const char* name, int rows, int width, std::vector<int> magnitudes) {
  std::string text = fmt::format("table {} : u8 = [", name);
  for (int k = 0; k < rows * width; ++k) {
    text += fmt::format(
        "{}{}", k ? ", " : "",
        magnitudes[static_cast<size_t>((k * 7 + k / width * 3 + k * k) % static_cast<int>(magnitudes.size()))]);
  }
  return text + "]\n";
}

int grid_value(int k, int width, const std::vector<int>& magnitudes) {
  return magnitudes[static_cast<size_t>((k * 7 + k / width * 3 + k * k) % static_cast<int>(magnitudes.size()))];
}

// d; 8 x (4 index bytes, u32 a): scale d (0.5 + (a >> 28)) / 4, signs (a >> 7 l) & 127 with the eighth by parity.
TEST(Codebook, EightWideGridWithParitySigns) {
  const std::vector<int> magnitudes = {8, 25, 43};
  const FormatRef f = format_of(made_up_grid("grid", 256, 8, magnitudes) + R"(
format t : block 256, doc "layout of a 2.06-bit codebook" {
  d     : f16
  index : u8[32] at byte 2 (8:64, 4:8)
  signs : u7[32] at byte 6 (8:64, 4:7)
  scale : u4[8]  at byte 6 bit 28 (8:64)
  decode(i) {
    let n    = signs[i / 8]
    let sign = if i % 8 == 7 then popcount(n) & 1 else (n >> (i % 8)) & 1
    return d * (0.5 + scale[i / 32]) * 0.25 * grid[8 * index[i / 8] + i % 8] * (1 - 2 * sign)
  }
}
)");
  EXPECT_EQ(f->block_bytes, 66);
  EXPECT_FALSE(f->encodes());
  std::vector<uint8_t> blob = random_blob(*f, 1, 256, 1);
  blob[0] = 0x00;
  blob[1] = 0x3c;
  const auto y = decode(*f, blob, 1, 256);
  for (int i = 0; i < 256; ++i) {
    const uint8_t* sub = blob.data() + 2 + 8 * (i / 32);
    const uint32_t a = word(sub + 4, 4);
    const int l = i % 32 / 8;
    const uint32_t n = (a >> (7 * l)) & 127;
    const uint32_t signs = n | static_cast<uint32_t>(std::popcount(n) & 1) << 7;
    const double value =
        (0.5 + (a >> 28)) / 4 * grid_value(8 * sub[l] + i % 8, 8, magnitudes) * ((signs >> (i % 8)) & 1 ? -1 : 1);
    ASSERT_EQ(y[static_cast<size_t>(i)], value) << i;
  }
  const FormatFacts facts = facts_of(*f);
  ASSERT_TRUE(facts.affine);
  EXPECT_EQ(facts.affine->group, 32);
  EXPECT_EQ(facts.affine->q_min, -43);
  EXPECT_EQ(facts.affine->q_max, 43);
}

// d; idx[64]; qh[8]; sign[32]; sc[4]: 9-bit indices split over two fields as one field of two pieces.
TEST(Codebook, NineBitIndicesSplitOverTwoFields) {
  const std::vector<int> magnitudes = {1, 3, 5, 7, 9, 11, 13, 15};
  const FormatRef f = format_of(made_up_grid("grid", 512, 4, magnitudes) + R"(
format t : block 256 {
  d     : f16
  index : u9[64] at bits 0..7 byte 2, bits 8..8 byte 66
  signs : u1[256] at byte 74
  scale : u4[8] at byte 106
  decode(i) = d * (1 + 2 * scale[i / 32]) * grid[4 * index[i / 4] + i % 4] * (1 - 2 * signs[i])
}
)");
  EXPECT_EQ(f->block_bytes, 110);
  std::vector<uint8_t> blob = random_blob(*f, 1, 256, 2);
  blob[0] = 0x00;
  blob[1] = 0x34;  // 0.25
  const auto y = decode(*f, blob, 1, 256);
  for (int i = 0; i < 256; ++i) {
    const int b = i / 32, l = i % 32 / 8, half = i % 8 / 4;
    const int index = blob[static_cast<size_t>(2 + 8 * b + 2 * l + half)] |
                      ((blob[static_cast<size_t>(66 + b)] >> (2 * l + half)) & 1) << 8;
    const int scale = (blob[static_cast<size_t>(106 + b / 2)] >> (4 * (b % 2))) & 15;
    const bool minus = blob[static_cast<size_t>(74 + 4 * b + l)] >> (i % 8) & 1;
    ASSERT_EQ(y[static_cast<size_t>(i)],
              0.25 * (1 + 2 * scale) * grid_value(4 * index + i % 4, 4, magnitudes) * (minus ? -1 : 1))
        << i;
  }
}

// idx[32]; qh[16]; u16 sc[4]: one f16 scattered over the upper nibbles of four words, 3-bit scales below, 11-bit
// indices, a shift.
TEST(Codebook, ScaleScatteredOverFourWords) {
  const std::vector<int> magnitudes = {0, 1, 2};
  const FormatRef f = format_of(made_up_grid("grid", 2048, 8, magnitudes) + R"(
format t : block 256 {
  index : u11[32] at bits 0..7 byte 0, bits 8..10 byte 32 (32:4)
  shift : u1[32] at byte 32 bit 3 (32:4)
  d     : f16 at bits 0..3 byte 49 bit 4, bits 4..7 byte 51 bit 4, bits 8..11 byte 53 bit 4, bits 12..15 byte 55 bit 4
  scale : u3[16] at byte 48 (4:16, 2:6, 2:3)
  decode(i) {
    let delta = if shift[i / 8] == 1 then -0.125 else 0.125
    return d * (2 * scale[i / 16] + 1) * (grid[8 * index[i / 8] + i % 8] - 1 + delta)
  }
}
)");
  EXPECT_EQ(f->block_bytes, 56);
  std::vector<uint8_t> blob = random_blob(*f, 1, 256, 3);
  blob[55] = static_cast<uint8_t>((blob[55] & 15) | 0x30);  // keep the exponent of d moderate
  const auto y = decode(*f, blob, 1, 256);
  uint32_t sc[4];
  for (int k = 0; k < 4; ++k) sc[k] = word(blob.data() + 48 + 2 * k, 2);
  const auto bits =
      static_cast<uint16_t>(sc[0] >> 12 | ((sc[1] >> 8) & 0xf0) | ((sc[2] >> 4) & 0xf00) | (sc[3] & 0xf000));
  const float d = f16_to_f32(bits);
  for (int i = 0; i < 256; ++i) {
    const int b = i / 32, l = i % 32 / 8;
    const int nibble = (blob[static_cast<size_t>(32 + 2 * b + l / 2)] >> (4 * (l % 2))) & 15;
    const int index = blob[static_cast<size_t>(4 * b + l)] | (nibble & 7) << 8;
    const int scale = static_cast<int>(sc[b / 2] >> (6 * (b % 2) + 3 * (l / 2))) & 7;
    const float delta = nibble & 8 ? -0.125F : 0.125F;
    ASSERT_EQ(y[static_cast<size_t>(i)],
              d * static_cast<float>(2 * scale + 1) *
                  (static_cast<float>(grid_value(8 * index + i % 8, 8, magnitudes) - 1) + delta));
  }
}

// Block 48, two nested scales, a table of 16, sign-magnitude digits and base-3 digits in one format.
constexpr const char* kPatchwork = R"(
table levels : i8 = [0, 1, 2, 3, 4, 6, 8, 11, 15, 20, 26, 34, 45, 59, 77, 100]
table thirds : i32 = [1, 3, 9, 27, 81]
fn trit(packed, k) = packed / thirds[k] % 3 - 1
format patchwork : block 48, doc "odd on purpose" {
  row outer : f32
  d         : bf16
  inner     : u5[3]
  magnitude : u4[48] at (3:64, 2:4, 8:8)
  negative  : u1[48]
  rest      : u8[10]

  decode(i) = outer * d * inner[i / 16] * (8 * levels[magnitude[i]] * (1 - 2 * negative[i]) + trit(rest[i / 5], i % 5))
  fit row(x) { outer = max(j) abs(x[j]) }
  fit(x) {
    let unit = recip(outer)
    d = (max(j) abs(x[j])) * unit / (31 * 801)
    for b in 0..3 { inner[b] = ceil((max(j in 0..16) abs(x[16 * b + j])) * unit * recip(d * 801)) }
    for k in 0..10 { rest[k] = 0 }
    var digits[50]
    for j in 0..50 { digits[j] = 1 }
    for j in 0..48 {
      let v = x[j] * unit * recip(d * inner[j / 16])
      magnitude[j] = nearest(levels, abs(v) / 8)
      negative[j] = int(v < 0)
      digits[j] = int(clamp(rint(v - 8 * levels[magnitude[j]] * (1 - 2 * negative[j])), -1, 1)) + 1
    }
    for k in 0..10 { rest[k] = sum(t in 0..5) digits[5 * k + t] * thirds[t] }
  }
}
)";

TEST(Patchwork, GoesThereAndBack) {
  const FormatRef f = format_of(kPatchwork);
  EXPECT_EQ(f->block_bytes, 2 + 2 + 24 + 6 + 10);
  const std::vector<float> x = gaussian(3 * 96, 9);
  const auto blob = encode(*f, x, 3, 96);
  const auto y = decode(*f, blob, 3, 96);
  double error = 0, power = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    error += (x[k] - y[k]) * (x[k] - y[k]);
    power += x[k] * x[k];
  }
  EXPECT_LT(error / power, 0.02);
  const auto again = decode(*f, encode(*f, y, 3, 96), 3, 96);
  for (size_t k = 0; k < x.size(); ++k) EXPECT_NEAR(again[k], y[k], 0.08 * std::fabs(y[k]) + 1e-2);
  const FormatFacts facts = facts_of(*f);
  ASSERT_TRUE(facts.affine);
  EXPECT_EQ(facts.affine->group, 16);
  EXPECT_EQ(facts.affine->q_min, -801);
  EXPECT_EQ(facts.affine->q_max, 801);
}

}  // namespace
}  // namespace lumen
