// Needs none. Encoders byte for byte and decoders value for value against vectors of the reference encoders, and the
// error on Gaussian data against the reference's.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "golden_vectors.h"
#include "number/codec/codec.h"
#include "number/library/library.h"

namespace lumen {
namespace {

const FormatLibrary& library() {
  static const FormatLibrary kLibrary = FormatLibrary::builtin();
  return kLibrary;
}

std::string hex(std::span<const uint8_t> bytes) {
  std::string text;
  for (uint8_t b : bytes) text += fmt::format("{:02x}", b);
  return text;
}

std::vector<uint8_t> from_hex(std::string_view text) {
  std::vector<uint8_t> bytes;
  for (size_t k = 0; k + 1 < text.size(); k += 2)
    bytes.push_back(static_cast<uint8_t>(std::stoi(std::string(text.substr(k, 2)), nullptr, 16)));
  return bytes;
}

std::vector<float> reference_input(const Format& f) {
  std::vector<float> x;
  const bool ternary = f.name.starts_with("tq");
  for (int i = 0; i < f.block; ++i) {
    const int plain = ((37 * i + 11) % 101 - 50) * (1 + (i / 16) % 5);
    x.push_back(ternary ? static_cast<float>((i * i + i / 16) % 3 - 1) / 2 : static_cast<float>(plain) / 256);
  }
  return x;
}

class Golden : public testing::TestWithParam<GoldenVector> {};

TEST_P(Golden, EncodesToTheSameBytes) {
  const GoldenVector& g = GetParam();
  const FormatRef f = library().get(g.format);
  const std::vector<float> x = reference_input(*f);
  std::vector<float> importance;
  for (int i = 0; i < f->block; ++i) importance.push_back(static_cast<float>(1 + i % 7));
  const auto blob = g.weighted ? encode_weighted(*f, x, 1, f->block, importance) : encode(*f, x, 1, f->block);
  EXPECT_EQ(hex({blob.data(), static_cast<size_t>(f->block_bytes)}), g.bytes);
}

TEST_P(Golden, DecodesToTheSameSum) {
  const GoldenVector& g = GetParam();
  const FormatRef f = library().get(g.format);
  std::vector<uint8_t> blob = from_hex(g.bytes);
  ASSERT_EQ(static_cast<int64_t>(blob.size()), f->block_bytes);
  blob.resize(static_cast<size_t>(blob_layout(*f, 1, f->block).total));
  double sum = 0;
  for (float y : decode(*f, blob, 1, f->block)) sum += y;
  EXPECT_NEAR(sum, g.sum, 2e-7 + 1e-6 * std::fabs(g.sum));
}

INSTANTIATE_TEST_SUITE_P(Reference, Golden, testing::ValuesIn(kGoldenVectors), [](const auto& i) {
  return std::string(i.param.format) + (i.param.weighted ? "_weighted" : "");
});

TEST(GoldenSum, BlockSumsOfActivationFormats) {
  const FormatRef f = library().get("q8_1");
  const auto blob = encode(*f, reference_input(*f), 1, 32);
  EXPECT_EQ(hex({blob.data(), 4}), "4d1af0b6");
  const auto q8_0 = encode(*library().get("q8_0"), reference_input(*f), 1, 32);
  EXPECT_EQ(hex({blob.data() + 4, 32}), hex({q8_0.data() + 2, 32}));
}

TEST(GoldenSum, WideActivationsDescribeThemselves) {
  const FormatRef f = library().get("q8_k");
  const std::vector<float> x = reference_input(*f);
  const auto blob = encode(*f, x, 1, 256);
  const auto y = decode(*f, blob, 1, 256);
  const Field& sums = f->fields[2];
  const Field& codes = f->fields[1];
  for (int b = 0; b < 16; ++b) {
    double expected = 0;
    for (int j = 0; j < 16; ++j) expected += field_decode(codes.type, codes.layout.read(blob.data(), 16 * b + j));
    EXPECT_EQ(field_decode(sums.type, sums.layout.read(blob.data(), b)), expected);
  }
  for (size_t k = 0; k < x.size(); ++k) EXPECT_NEAR(y[k], x[k], 0.98 / 254 * 1.01);
}

// Relative mean squared error on unit Gaussian data, plain and (where there is one) weighted with equal importance.
TEST(GaussianError, IsThatOfTheReference) {
  struct Row {
    const char* format;
    double plain, weighted;
  };
  const Row rows[] = {{"q4_0", 7.36e-3, 6.64e-3}, {"q4_1", 6.11e-3, 4.88e-3},   {"q5_0", 1.82e-3, 1.63e-3},
                      {"q5_1", 1.43e-3, 1.14e-3}, {"q8_0", 2.86e-5, 0},         {"q2_k", 8.78e-2, 7.17e-2},
                      {"q3_k", 2.28e-2, 2.09e-2}, {"q4_k", 5.08e-3, 5.00e-3},   {"q5_k", 1.30e-3, 1.25e-3},
                      {"q6_k", 3.14e-4, 2.99e-4}, {"iq4_nl", 5.79e-3, 5.61e-3}, {"iq4_xs", 5.88e-3, 5.71e-3}};
  constexpr int64_t kRows = 48, kColumns = 2048;
  std::mt19937_64 random(20260101);
  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * kColumns);
  for (float& v : x) v = normal(random);
  const std::vector<float> flat(kColumns, 1.0F);
  auto relative = [&](const Format& f, const std::vector<uint8_t>& blob) {
    const auto y = decode(f, blob, kRows, kColumns);
    double error = 0, power = 0;
    for (size_t k = 0; k < x.size(); ++k) {
      error += (static_cast<double>(x[k]) - y[k]) * (static_cast<double>(x[k]) - y[k]);
      power += static_cast<double>(x[k]) * x[k];
    }
    return error / power;
  };
  for (const Row& row : rows) {
    const FormatRef f = library().get(row.format);
    EXPECT_NEAR(relative(*f, encode(*f, x, kRows, kColumns)) / row.plain, 1, 0.011) << row.format;
    if (row.weighted > 0) {
      ASSERT_TRUE(f->weighted_fit[0]) << row.format;
      EXPECT_NEAR(relative(*f, encode_weighted(*f, x, kRows, kColumns, flat)) / row.weighted, 1, 0.011)
          << row.format << " weighted";
    }
  }
}

}  // namespace
}  // namespace lumen
