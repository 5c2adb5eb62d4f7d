// Needs none. Blocks of rows that stand at the edges of what f32 and f16 hold, byte for byte those of the reference
// encoders (encoder_reference.py).
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "number/codec/codec.h"
#include "number/library/library.h"

namespace lumen {
namespace {

std::vector<uint8_t> from_hex(const std::string& text) {
  const auto digit = [](char c) { return static_cast<uint8_t>(c <= '9' ? c - '0' : c - 'a' + 10); };
  std::vector<uint8_t> bytes;
  for (size_t k = 0; k + 1 < text.size(); k += 2)
    bytes.push_back(static_cast<uint8_t>(digit(text[k]) << 4 | digit(text[k + 1])));
  return bytes;
}

TEST(Encoders, MakeTheBytesOfTheReferenceAtTheEdges) {
  const FormatLibrary library = FormatLibrary::builtin();
  std::ifstream file(std::string(LUMEN_SOURCE_DIR) + "/tests/number/fixtures/encoders.txt");
  ASSERT_TRUE(file);
  std::string row;
  std::vector<float> x;
  std::map<std::string, int> checked;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string kind, bytes;
    words >> kind;
    if (kind == "row") {
      words >> row >> bytes;
      const auto raw = from_hex(bytes);
      x.resize(raw.size() / sizeof(float));
      std::memcpy(x.data(), raw.data(), raw.size());
      continue;
    }
    words >> bytes;
    const FormatRef f = library.get(kind);
    const auto expected = from_hex(bytes);
    auto blob = encode(*f, x, 1, static_cast<int64_t>(x.size()));
    blob.resize(expected.size());
    EXPECT_EQ(blob, expected) << kind << " of the row " << row;
    ++checked[kind];
  }
  EXPECT_EQ(checked.size(), 16U);
  for (const auto& [kind, count] : checked) EXPECT_GE(count, 20) << kind;
}

// A fit's search leaves codes that count where the scale is 0; with fields given from outside there was no search.
TEST(Encoders, TakeSuppliedScalesWithoutASearch) {
  const FormatLibrary library = FormatLibrary::builtin();
  for (const char* name : {"q2_k", "q3_k", "q4_k", "q5_k", "q6_k"}) {
    const FormatRef f = library.get(name);
    std::vector<SuppliedField> zeros;
    for (size_t k = 0; k < f->fields.size(); ++k) {
      if (static_cast<int>(k) == f->code_field) continue;
      zeros.push_back({static_cast<int>(k), std::vector<double>(static_cast<size_t>(f->fields[k].count), 0)});
    }
    const std::vector<float> x(static_cast<size_t>(f->block), 0.5F);
    for (const float y : decode(*f, encode(*f, x, 1, f->block, zeros), 1, f->block)) EXPECT_EQ(y, 0) << name;
  }
}

}  // namespace
}  // namespace lumen
