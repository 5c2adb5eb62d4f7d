// Needs none. Formats whose codes pick vectors out of grids: random blocks decode to the bits that the reference decoder
// gives (grid_reference.py), and what they encode keeps the order that their sizes promise.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
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

}  // namespace
}  // namespace lumen
