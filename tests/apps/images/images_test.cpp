// Needs: none. Images as IDX files: read back as written, refused where they are not what they say; pictures of them.
#include "apps/images/images.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <set>

#include "apps/images/picture.h"
#include "base/error.h"
#include "base/file/file.h"
#include "tests/model/tiny.h"

namespace lumen::apps {
namespace {

TEST(Images, AreFramedInTheMiddleAndComeOnceInEachPass) {
  Images one = made_up_images(7, 3, 1);
  for (int i = 0; i < 7; ++i) one.pixels[i * 9] = 10 * i;  // known by the first pixel
  for (int64_t step = 0; step < 4; ++step) {
    const std::vector<int64_t> which = batch_of_passes(7, 5, step, 7);
    EXPECT_EQ(std::set<int64_t>(which.begin(), which.end()).size(), 7U);
    const std::vector<float> x = framed(one, which, 5);
    for (int i = 0; i < 7; ++i) {
      EXPECT_EQ(x[i * 25], -1);
      EXPECT_NEAR(x[i * 25 + 6], which[i] * 10 / 127.5 - 1, 1e-6);
    }
  }
  EXPECT_NE(batch_of_passes(7, 5, 0, 7), batch_of_passes(7, 5, 1, 7)) << "each pass has its own order";
}

TEST(Images, AreReadAsTheyWereWritten) {
  const Images made = made_up_images(20, 12, 3);
  EXPECT_EQ(made.pixels, made_up_images(20, 12, 3).pixels);
  EXPECT_NE(made.pixels, made_up_images(20, 12, 4).pixels);
  EXPECT_EQ(made.classes(), 4);
  const auto [images, labels] = idx_bytes(made);
  const model::TestFolder folder;
  write_file_atomic(folder / "train-images-idx3-ubyte", images);
  std::string packed(compressBound(labels.size()) + 64, 0);
  z_stream stream{};
  ASSERT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);  // 16: gzip
  std::string given = labels;
  stream.next_in = reinterpret_cast<Bytef*>(given.data());
  stream.avail_in = given.size();
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = packed.size();
  ASSERT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  write_file_atomic(folder / "train-labels-idx1-ubyte.gz", packed);
  const Images read = read_images(folder.path(), "train");
  EXPECT_EQ(read.pixels, made.pixels);
  EXPECT_EQ(read.labels, made.labels);
  EXPECT_EQ(read.count, 20);
  EXPECT_THROW(read_images(folder.path(), "t10k"), Error);
}

TEST(Images, ColorsHaveAnAxisOfTheirOwn) {
  Images made{2, 3, 4, 3, {}, {0, 1}};
  for (int i = 0; i < 2 * 3 * 4 * 3; ++i) made.pixels.push_back(i);
  const auto [images, labels] = idx_bytes(made);
  const Images read = parse_idx(images, labels, "colors");
  EXPECT_EQ(read.channels, 3);
  EXPECT_EQ(read.pixels, made.pixels);
}

TEST(Images, GetColorsThatSayNothingOfWhatTheyShow) {
  const Images gray = made_up_images(200, 12, 3), colored = with_colors(gray, 5);
  EXPECT_EQ(colored.channels, 3);
  EXPECT_EQ(colored.labels, gray.labels);
  EXPECT_EQ(std::ssize(colored.pixels), 200 * 12 * 12 * 3);
  EXPECT_EQ(with_colors(gray, 5).pixels, colored.pixels);
  EXPECT_NE(with_colors(gray, 6).pixels, colored.pixels);
  const auto [images, labels] = idx_bytes(colored);
  EXPECT_EQ(parse_idx(images, labels, "colors").pixels, colored.pixels);
  // What is bright stands out from what is behind it, by more than noise.
  double apart = 0;
  for (int64_t i = 0; i < 200; ++i) {
    const auto mean_of = [&](bool bright, int c) {
      double sum = 0, count = 1e-9;
      for (int64_t p = 0; p < 144; ++p)
        if ((gray.pixels[i * 144 + p] > 100) == bright) {
          sum += colored.pixels[(i * 144 + p) * 3 + c];
          ++count;
        }
      return sum / count;
    };
    for (int c = 0; c < 3; ++c) apart += std::abs(mean_of(true, c) - mean_of(false, c));
  }
  EXPECT_GT(apart / (200 * 3), 40);
}

TEST(Images, FilesThatAreNotWhatTheySayAreRefused) {
  const auto [images, labels] = idx_bytes(made_up_images(3, 8, 1));
  const auto refused = [&](std::string a, std::string b) { EXPECT_THROW(parse_idx(a, b, "bad"), Error) << a.size(); };
  for (size_t cut = 0; cut < images.size(); cut += 7) refused(images.substr(0, cut), labels);
  refused(images + "x", labels);
  refused(images, labels.substr(0, labels.size() - 1));
  refused(images, labels + '\x01');
  refused(labels, images);
  std::string many = images;
  for (int i = 4; i < 16; ++i) many[i] = '\xff';  // extents whose product no number holds
  refused(many, labels);
  std::string floats = images;
  floats[2] = 0x0d;
  refused(floats, labels);
}

TEST(Pictures, ArePngFilesOfTheRightPixels) {
  const std::vector<float> images = {-1, 0, 1, 2, 1, 1, -1, -3};  // two of 2 x 2; beyond the ends are the ends
  const std::string png = picture_of(images, 2, 1, 2);
  ASSERT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  const auto word = [&](size_t at) {
    uint32_t out = 0;
    for (int i = 0; i < 4; ++i) out = out << 8 | uint8_t(png[at + i]);
    return out;
  };
  EXPECT_EQ(word(16), 6U);  // two images and a line of two
  EXPECT_EQ(word(20), 2U);
  const size_t length = word(33);
  ASSERT_EQ(png.substr(37, 4), "IDAT");
  std::vector<uint8_t> pixels(14);
  uLongf count = pixels.size();
  ASSERT_EQ(uncompress(pixels.data(), &count, reinterpret_cast<const Bytef*>(&png[41]), length), Z_OK);
  EXPECT_EQ(pixels, (std::vector<uint8_t>{0, 0, 128, 96, 96, 255, 255, 0, 255, 255, 96, 96, 0, 0}));
  EXPECT_EQ(word(41 + length), crc32(0, reinterpret_cast<const Bytef*>(&png[37]), length + 4));
}

}  // namespace
}  // namespace lumen::apps
