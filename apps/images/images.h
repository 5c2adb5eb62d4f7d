// Images with what they show: read from files of the IDX kind, as MNIST's are, or made up. Files are hostile: extents
// are checked against what is there before anything is read. Proved by tests/apps/images/images_test.cpp.
//
// May include: apps/draws, base, base/file, base/structured, model/data/reader.
// Offers: picture.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen::apps {

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
// Four bytes, the highest first, as numbers stand in files of images.
void append_word(std::string& out, uint32_t value);
// The two files' bytes.
std::pair<std::string, std::string> idx_bytes(const Images& images);

// Gray shapes of four kinds (disc, square, cross, ring) of random size, place and shade: the same for the same seed.
Images made_up_images(int64_t count, int64_t size, uint64_t seed);
// Gray images in three channels: what is bright has one drawn color and what is dark fades between two others, under
// noise. Colors are of the image alone, whatever it shows.
Images with_colors(const Images& gray, uint64_t seed);

// Those images as networks read them: [which, side, side, C] in -1 .. 1, in the middle, black around. Images larger
// than that are the caller's mistake.
std::vector<float> framed(const Images& images, std::span<const int64_t> which, int64_t side);
// The numbers that step `step` reads when each step reads `batch` of `count`: every number once in each pass, in an
// order that the seed and the pass decide.
std::vector<int64_t> batch_of_passes(int64_t count, uint64_t seed, int64_t step, int64_t batch);

}  // namespace lumen::apps
