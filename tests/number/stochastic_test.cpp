// Needs none. Stochastic rounding derived from formats: either neighbour, right on average, codes stay.
#include "number/gradient/stochastic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "number/codec/codec.h"
#include "number/facts/straight.h"
#include "number/library/library.h"

namespace lumen {
namespace {

const FormatLibrary& library() {
  static const FormatLibrary all = FormatLibrary::builtin();
  return all;
}

// Numbers of one row in the format, each rounded by its own random number; fields by as_field.
class Row {
 public:
  Row(const std::string& name, std::vector<float> x) : format_(library().get(name)), x_(std::move(x)) {
    rounding_ = stochastic_formula(*format_);
    for (const ElementField& f : rounding_->fields) {
      const FormatRef field = as_field(*format_, f);
      fields_.push_back(decode(*field, encode(*field, x_, 1, columns()), 1, columns()));
    }
  }
  int64_t columns() const { return std::ssize(x_); }
  float rounded(int64_t column, float u) const {
    std::vector<ScalarValue> in = {{x_[column], 0}}, out(1);
    for (size_t k = 0; k < fields_.size(); ++k) {
      const bool is_float = format_->fields[rounding_->fields[k].field].type.is_float;
      const double value = fields_[k][column];
      in.push_back(is_float ? ScalarValue{value, 0} : ScalarValue{0, static_cast<int64_t>(value)});
    }
    if (rounding_->uses_index) in.push_back({0, column % format_->block});
    in.push_back({u, 0});
    eval_formula(rounding_->formula, in, out);
    return static_cast<float>(out[0].real);
  }
  std::vector<float> nearest() const { return decode(*format_, encode(*format_, x_, 1, columns()), 1, columns()); }

 private:
  FormatRef format_;
  std::vector<float> x_;
  std::optional<FakeQuantize> rounding_;
  std::vector<std::vector<float>> fields_;
};

std::vector<float> gaussian(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

const std::vector<std::string> kFormats = {
    "int8",      "int8_row",        "int8_block", "int8_1x128",    "int4_row", "q8_0",
    "fp8_row",   "fp8_tile",        "fp8_e5m2",   "fp8_two_level", "mxfp4_up", "mxfp8_e4m3_up",
    "fp8_1x128", "fp8_e5m2_tensor", "mxint8",     "nvfp4_divided"};

TEST(Stochastic, IsOneOfTwoNeighboursAndRightOnAverage) {
  for (const std::string& name : kFormats) {
    const std::vector<float> x = gaussian(64, 3);
    const Row row(name, x);
    const std::vector<float> nearest = row.nearest();
    for (int64_t c = 0; c < row.columns(); ++c) {
      std::set<float> seen;
      double sum = 0;
      constexpr int kDraws = 1024;
      for (int k = 0; k < kDraws; ++k) {
        const float y = row.rounded(c, (static_cast<float>(k) + 0.5F) / kDraws);
        seen.insert(y);
        sum += y;
      }
      // A scale that is rounded itself may leave a value beyond the last code.
      if (seen.size() == 1 && (name == "nvfp4_divided" || name == "q8_0")) continue;
      ASSERT_LE(seen.size(), 2u) << name << " element " << c;
      ASSERT_TRUE(seen.contains(nearest[c])) << name << " element " << c << ": " << nearest[c];
      ASSERT_NEAR(sum / kDraws, x[c], 2.0 * (*seen.rbegin() - *seen.begin()) / kDraws + 1e-6 * std::fabs(x[c]))
          << name << " element " << c;
    }
  }
}

// What was rounded is encoded as it is: the same scales, the same numbers.
TEST(Stochastic, WhatWasRoundedStaysWhenItIsEncoded) {
  std::mt19937_64 random(4);
  std::uniform_real_distribution<float> uniform(0, 1);
  for (const std::string& name : kFormats) {
    if (name == "q8_0" || name == "nvfp4_divided") continue;  // their scales are rounded themselves
    const Row row(name, gaussian(128, 5));
    std::vector<float> y(128);
    for (int64_t c = 0; c < 128; ++c) y[c] = row.rounded(c, uniform(random));
    const FormatRef f = library().get(name);
    const auto again = decode(*f, encode(*f, y, 1, 128), 1, 128);
    for (int64_t c = 0; c < 128; ++c) EXPECT_NEAR(again[c], y[c], 1e-6 * std::fabs(y[c])) << name << " element " << c;
  }
}

TEST(Stochastic, TablesOfCodesHaveNone) {
  for (const char* name : {"mxfp4", "nf4", "q4_k", "iq2_xs"})
    EXPECT_FALSE(stochastic_formula(*library().get(name))) << name;
}

}  // namespace
}  // namespace lumen
