// Images with what they show: read from files of the IDX kind, as MNIST's are, or made up. Files are hostile: extents
// are checked against what is there before anything is read. Proved by tests/model/diffuse/images_test.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen::model {

struct Images {
  int64_t count = 0, height = 0, width = 0, channels = 1;
  std::vector<uint8_t> pixels;  // [count, height, width, channels]
  std::vector<int32_t> labels;  // [count]
  int64_t classes() const;      // the largest label and one more
};

// Two IDX files: images (three axes, or four with channels) and labels (one axis), of bytes. `name` is what errors say.
Images parse_idx(std::string_view images, std::string_view labels, const std::string& name);
// PART-images-idx3-ubyte (or idx4) and PART-labels-idx1-ubyte in a folder, each perhaps packed (.gz); "train", "t10k".
Images read_images(const std::filesystem::path& folder, const std::string& part);
// The two files' bytes.
std::pair<std::string, std::string> idx_bytes(const Images& images);

// Gray shapes of four kinds (disc, square, cross, ring) of random size, place and shade: the same for the same seed.
Images made_up_images(int64_t count, int64_t size, uint64_t seed);

}  // namespace lumen::model
