// needs: none. Prepared pictures against those of transformers' processors (tests/model/infer/tower/
// pictures_reference.py), number for number, and their sizes and settings.
#include "model/image/prepare/prepare.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/file/file.h"
#include "model/file/safetensors.h"
#include "number/library/library.h"

namespace lumen::model::image {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(LUMEN_SOURCE_DIR) / "tests/model/fixtures/pictures";

Preparation small() {
  Preparation how;
  how.patch = 4;
  how.least_pixels = 256;
  how.most_pixels = 2048;
  return how;
}

// What a processor made: it repeats the numbers of a still picture for each frame of a patch.
std::vector<float> first_frames(const file::StoredTensor& tensor, int64_t frame) {
  const std::vector<uint8_t> bytes = tensor.blob();
  const std::span numbers(reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float));
  std::vector<float> out;
  for (size_t at = 0; at < numbers.size(); at += 2 * frame)
    out.insert(out.end(), numbers.begin() + at, numbers.begin() + at + frame);
  return out;
}

TEST(Prepare, NumbersAreThoseOfTransformers) {
  const FormatLibrary formats = FormatLibrary::builtin();
  for (const char* name : {"qwen2_vl", "qwen2_5_vl"}) {
    const std::string json = (kFolder / name / "preprocessor_config.json").string();
    Preparation defaults;
    defaults.patch = 4;
    const Preparation how = read_preparation(defaults, read_file(json), json);
    const file::SafetensorsFile expected(kFolder / name / "expected.safetensors", formats);
    for (const auto& [tensor, picture] : {std::pair{"patches.0", "wide.png"}, std::pair{"patches.1", "tall.webp"}}) {
      const Patches got = prepare(how, read_image(read_file(kFolder / "shown" / picture), picture), picture);
      EXPECT_TRUE(got.values == first_frames(expected.get(tensor), 16)) << name << " " << picture;
    }
  }
}

TEST(Prepare, SizesKeepRatiosAndBounds) {
  using Size = std::array<int64_t, 2>;
  EXPECT_EQ(prepared_size(small(), 33, 50, ""), (Size{32, 48}));
  EXPECT_EQ(prepared_size(small(), 12, 20, ""), (Size{16, 16}));    // halves go to the even side: 1.5, 2.5
  EXPECT_EQ(prepared_size(small(), 500, 100, ""), (Size{96, 16}));  // over the most
  EXPECT_EQ(prepared_size(small(), 4, 8, ""), (Size{16, 24}));      // under the least
  EXPECT_EQ(prepared_size(small(), 1, 199, ""), (Size{8, 232}));
  EXPECT_THROW(prepared_size(small(), 1, 201, ""), Error);
  Preparation square = small();
  square.sizing = Sizing::square;
  square.height = square.width = 24;
  EXPECT_EQ(prepared_size(square, 3, 90, ""), (Size{24, 24}));
  square.width = 23;
  EXPECT_THROW(prepared_size(square, 3, 90, ""), Error);
  Preparation longest = small();
  longest.sizing = Sizing::by_longest;
  longest.longest = 40;
  EXPECT_EQ(prepared_size(longest, 100, 50, ""), (Size{40, 24}));
  EXPECT_EQ(prepared_size(longest, 9, 17, ""), (Size{16, 24}));
}

TEST(Prepare, SettingsAreRead) {
  const Preparation how = read_preparation(
      small(),
      R"({"image_processor": {"size": {"shortest_edge": 64, "longest_edge": 9e18}, "resample": 2, "do_resize": false,
                   "do_normalize": null, "image_mean": [0, 0.5, 1], "rescale_factor": 0.5}})",
      "f");
  EXPECT_EQ(how.least_pixels, 64);
  EXPECT_EQ(how.most_pixels, 1 << 26);
  EXPECT_EQ(how.filter, Filter::bilinear);
  EXPECT_FALSE(how.resizes);
  EXPECT_TRUE(how.normalizes);
  EXPECT_EQ(how.mean[1], 0.5);
  EXPECT_EQ(how.factor, 0.5);
  for (const char* wrong :
       {"[]", R"({"size": "large"})", R"({"resample": 1})", R"({"image_std": [1, 0, 1]})", R"({"image_mean": [1]})",
        R"({"size": {"shortest_edge": -1}})", R"({"rescale_factor": 0})", R"({"do_resize": 1})", "{"})
    EXPECT_THROW(read_preparation(small(), wrong, "f"), Error) << wrong;
}

TEST(Prepare, PatchesFollowSquareBySquare) {
  Preparation how = small();
  how.patch = 1;
  how.resizes = how.normalizes = false;
  how.factor = 1;
  Image image{4, 2};
  for (int i = 0; i < 8; ++i) image.rgb.insert(image.rgb.end(), 3, uint8_t(i));
  const Patches got = prepare(how, image, "");
  std::vector<float> order;
  for (size_t at = 0; at < got.values.size(); at += 3) order.push_back(got.values[at]);
  EXPECT_EQ(order, (std::vector<float>{0, 1, 4, 5, 2, 3, 6, 7}));
}

}  // namespace
}  // namespace lumen::model::image
