// Reading formats from text in tests.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "lang/parser.h"
#include "number/library/library.h"

namespace lumen {

inline const FormatLibrary& builtin_formats() {
  static const FormatLibrary kLibrary = FormatLibrary::builtin();
  return kLibrary;
}

inline FormatLibrary library_of(const std::string& text, const std::string& name = "test.lum") {
  FormatLibrary library;
  library.add(lang::parse_file(std::make_shared<Source>(Source{name, text})));
  return library;
}

// The only format of a text.
inline FormatRef format_of(const std::string& text) {
  const auto all = library_of(text).all();
  EXPECT_EQ(all.size(), 1u);
  return all.at(0);
}

// What a text is refused with, and the hint behind it; empty when it is not refused.
inline std::string refusal_of(const std::string& text) {
  try {
    library_of(text);
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

inline std::vector<float> gaussian(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (float& v : x) v = normal(random);
  return x;
}

// A blob of random bits.
inline std::vector<uint8_t> random_blob(const Format& f, int64_t rows, int64_t columns, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> blob(static_cast<size_t>(blob_layout(f, rows, columns).total));
  for (uint8_t& b : blob) b = static_cast<uint8_t>(random());
  return blob;
}

}  // namespace lumen
