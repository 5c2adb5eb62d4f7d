// Needs none. Formats whose codes pick vectors out of grids: random blocks decode to the bits that the reference
// decoder gives (grid_reference.py), and what they encode keeps the order that their sizes promise.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "number/codec/codec.h"
#include "number/library/library.h"

namespace lumen {
namespace {

std::vector<uint8_t> from_hex(const std::string& text) {
  std::vector<uint8_t> bytes;
  for (size_t k = 0; k + 1 < text.size(); k += 2)
    bytes.push_back(static_cast<uint8_t>(std::stoi(text.substr(k, 2), nullptr, 16)));
  return bytes;
}

TEST(Grids, RandomBlocksDecodeToTheBitsOfTheReference) {
  const FormatLibrary library = FormatLibrary::builtin();
  std::ifstream file(std::string(LUMEN_SOURCE_DIR) + "/tests/number/fixtures/grids.txt");
  ASSERT_TRUE(file);
  int checked = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string name, bytes, numbers;
    words >> name >> bytes >> numbers;
    const FormatRef f = library.get(name);
    auto blob = from_hex(bytes);
    const auto raw = from_hex(numbers);
    std::vector<float> want(raw.size() / sizeof(float));
    std::memcpy(want.data(), raw.data(), raw.size());
    ASSERT_EQ(blob.size() * static_cast<size_t>(f->block), want.size() * static_cast<size_t>(f->block_bytes)) << name;
    const auto columns = static_cast<int64_t>(want.size());
    blob.resize(static_cast<size_t>(blob_layout(*f, 1, columns).total));
    const std::vector<float> got = decode(*f, blob, 1, columns);
    EXPECT_EQ(std::memcmp(got.data(), want.data(), raw.size()), 0) << name;
    ++checked;
  }
  EXPECT_EQ(checked, 7);
}

// Squared errors of normal values relative to their squares, weighted alike: at most a little above what was measured
// on eight million values, where the reference encoders have 0.236, 0.204, 0.118, 0.0897, 0.0619, 0.0329 and 0.0187.
TEST(Grids, ErrorsAreThoseOfAFullSearch) {
  const FormatLibrary library = FormatLibrary::builtin();
  const std::vector<std::pair<const char*, double>> limits = {
      {"iq1_s", 0.2022}, {"iq1_m", 0.1746},   {"iq2_xxs", 0.1091}, {"iq2_xs", 0.0832},
      {"iq2_s", 0.0581}, {"iq3_xxs", 0.0324}, {"iq3_s", 0.0173}};
  constexpr int64_t kColumns = 24 * 256;
  std::mt19937 random(31);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> x(kColumns), alike(kColumns, 1);
  for (float& v : x) v = normal(random);
  for (const auto& [name, measured] : limits) {
    const FormatRef f = library.get(name);
    for (const bool weighted : {false, true}) {
      const auto blob = weighted ? encode_weighted(*f, x, 1, kColumns, alike) : encode(*f, x, 1, kColumns);
      const std::vector<float> y = decode(*f, blob, 1, kColumns);
      double error = 0, size = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        error += (x[i] - y[i]) * (x[i] - y[i]);
        size += x[i] * x[i];
      }
      EXPECT_LT(error / size, 1.05 * measured) << name << (weighted ? " weighted" : "");
      EXPECT_GT(error / size, 0.9 * measured) << name << (weighted ? " weighted" : "");
    }
  }
}

// An odd number of signs has to be made even: the value that counts least pays, by importance.
TEST(Grids, TheSignThatCountsLeastPays) {
  const FormatLibrary library = FormatLibrary::builtin();
  for (const char* name : {"iq2_xxs", "iq2_xs", "iq3_xxs"}) {
    const FormatRef f = library.get(name);
    std::vector<float> x(256, 1), w(256, 1);
    for (size_t o = 0; o < 32; ++o) {
      x[8 * o + 3] = -1;              // the only sign of its octet
      w[8 * o + 6] = 1.0f / 1024.0F;  // whose sign is to be wrong
    }
    const std::vector<float> y = decode(*f, encode_weighted(*f, x, 1, 256, w), 1, 256);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i] * x[i] > 0, i % 8 != 6) << name << " " << i;
  }
}

TEST(Grids, ZerosAndTinyValuesStayZero) {
  const FormatLibrary library = FormatLibrary::builtin();
  for (const char* name : {"iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"}) {
    const FormatRef f = library.get(name);
    for (const float size : {0.0f, 1e-42f, 1e-20f})
      for (const float y : decode(*f, encode(*f, std::vector<float>(256, size), 1, 256), 1, 256))
        EXPECT_EQ(y, 0) << name;
  }
}

double relative_error(const Format& f, const std::vector<float>& x) {
  const auto columns = static_cast<int64_t>(x.size());
  const std::vector<float> y = decode(f, encode(f, x, 1, columns), 1, columns);
  double error = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (x[i] - y[i]) * (x[i] - y[i]);
    size += x[i] * x[i];
  }
  return error / size;
}

// Paths through a trellis: two bits with less error than any scalar code of two bits can have (0.1175), and than grids.
TEST(Trellis, PathsBeatScalarCodesAndGrids) {
  const FormatLibrary library = FormatLibrary::builtin();
  std::mt19937 random(32);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> x(24 * 256);
  for (float& v : x) v = normal(random);
  const double trellis = relative_error(*library.get("trellis2"), x);
  EXPECT_LT(trellis, 0.080);
  EXPECT_GT(trellis, 0.070);
  EXPECT_LT(trellis, 0.75 * relative_error(*library.get("iq2_xxs"), x));
}

// In blocks of 64, for weights with and without outliers: below what any scalar code of as many bits can have on normal
// values (Lloyd and Max: 0.1175, 0.0345, 0.0095), not below what is possible at all (4^-bits), and hardly more for
// heavy tails.
TEST(Trellis, ShortBlocksBeatScalarCodesAndTakeOutliers) {
  const FormatLibrary library = FormatLibrary::builtin();
  std::mt19937 random(34);
  std::normal_distribution<float> normal(0, 0.02f);
  std::student_t_distribution<float> heavy(4);
  std::vector<float> x(48 * 64), outliers(48 * 64);
  for (float& v : x) v = normal(random);
  for (float& v : outliers) v = heavy(random);
  struct Case {
    const char* name;
    double scalar, least;
  };
  for (const Case& c : {Case{"trellis2_g64", 0.1175, 1.0 / 16}, Case{"trellis3_g64", 0.0345, 1.0 / 64},
                        Case{"trellis4_g64", 0.0095, 1.0 / 256}}) {
    const double error = relative_error(*library.get(c.name), x);
    EXPECT_LT(error, 0.75 * c.scalar) << c.name;
    EXPECT_GT(error, c.least) << c.name;
    EXPECT_LT(relative_error(*library.get(c.name), outliers), 1.7 * error) << c.name;
  }
}

// Four tables, of which each 32 values take one: the error that was measured for the table of Student's t with
// five degrees of freedom, on such values.
TEST(Tables, FourTablesTakeWhatTheyWereTrainedFor) {
  const FormatLibrary library = FormatLibrary::builtin();
  std::mt19937 random(33);
  std::student_t_distribution<float> heavy(5);
  std::vector<float> x(256 * 256);
  for (float& v : x) v = heavy(random);
  EXPECT_NEAR(relative_error(*library.get("lx4"), x), 5.50e-3, 0.03 * 5.50e-3);
}

}  // namespace
}  // namespace lumen
