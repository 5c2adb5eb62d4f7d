// needs: none. Pictures in files against what Pillow reads of them (tests/model/infer/tower/pictures_reference.py), and
// files that are damaged or too large.
#include "model/image/image.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/folder.h"

namespace lumen::model::image {
namespace {

const std::filesystem::path kShown = std::filesystem::path(LUMEN_SOURCE_DIR) / "tests/model/fixtures/pictures/shown";

std::vector<std::filesystem::path> pictures() {
  std::vector<std::filesystem::path> out = list_folder(kShown);
  std::erase_if(out, [](const auto& path) { return path.extension() == ".rgb"; });
  return out;
}

Image expected(const std::filesystem::path& picture) {
  const std::string bytes = read_file(picture.string() + ".rgb");
  uint32_t sides[2];
  std::memcpy(sides, bytes.data(), sizeof sides);
  Image out{sides[0], sides[1]};
  out.rgb.assign(bytes.begin() + sizeof sides, bytes.end());
  return out;
}

std::string refusal(std::string_view bytes, const Limits& limits = {}) {
  try {
    (void)read_image(bytes, "shown.file", limits);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Pictures, AreThoseOfOtherPrograms) {
  ASSERT_GE(pictures().size(), 20U);
  for (const auto& path : pictures()) {
    const Image got = read_image(read_file(path), path.filename().string()), want = expected(path);
    EXPECT_EQ(got.width, want.width) << path;
    EXPECT_EQ(got.height, want.height) << path;
    EXPECT_TRUE(got.rgb == want.rgb) << path;
  }
}

TEST(Pictures, ThatEndEarlyAreRefused) {
  for (const auto& path : pictures()) {
    const std::string whole = read_file(path);
    // The last chunk of a PNG file has no data.
    for (const size_t size : {size_t{0}, size_t{1}, size_t{9}, whole.size() / 3, whole.size() / 2}) {
      const std::string said = refusal(std::string_view(whole).substr(0, size));
      EXPECT_TRUE(said.starts_with("shown.file: ")) << path << " of " << size << " bytes: " << said;
    }
  }
}

TEST(Pictures, OverTheLimitsAreRefusedByTheirHeads) {
  for (const auto& path : pictures()) {
    const std::string whole = read_file(path);
    EXPECT_NE(refusal(whole, {.pixels = 100}).find("at most 100 are read"), std::string::npos) << path;
    EXPECT_NE(refusal(whole, {.side = 8}), "") << path;
  }
  // A head alone says billions of pixels: nothing of that size is taken.
  std::string huge = read_file(kShown / "wide.bmp");
  for (const size_t at : {18, 22}) std::memcpy(huge.data() + at, "\xff\xff\xff\x7f", 4);
  EXPECT_NE(refusal(huge).find("2147483647 x 2147483647 pixels"), std::string::npos);
}

TEST(Pictures, OfOtherKindsAreRefused) {
  EXPECT_EQ(refusal("GIF89a.."), "shown.file: this is no picture that can be read");
  std::string packed = read_file(kShown / "palette.bmp");
  packed[30] = 1;  // run lengths
  EXPECT_EQ(refusal(packed), "shown.file: this BMP file is compressed, which is not supported");
  std::string colours = read_file(kShown / "palette.bmp");
  std::memcpy(colours.data() + 46, "\2\0\0\0", 4);
  EXPECT_EQ(refusal(colours), "shown.file: the BMP data names a colour that it does not have");
}

TEST(Pictures, OfBitmapsWithMasksAndFromTheTop) {
  // Two rows of one pixel of 16 bits: green of six bits, from the top.
  std::string bytes("BM\0\0\0\0\0\0\0\0\x42\0\0\0\x28\0\0\0\1\0\0\0\xfe\xff\xff\xff\1\0\x10\0\3\0\0\0", 34);
  bytes.resize(54, '\0');
  bytes += std::string("\0\xf8\0\0\xe0\7\0\0\x1f\0\0\0", 12);
  bytes += std::string("\0\xf8\0\0\xe0\7\0\0", 8);
  const Image got = read_image(bytes, "masks");
  EXPECT_EQ(got.height, 2);
  EXPECT_EQ(got.rgb, (std::vector<uint8_t>{255, 0, 0, 0, 255, 0}));
}

}  // namespace
}  // namespace lumen::model::image
