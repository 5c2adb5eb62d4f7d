// What a model's tower reads of a picture: the picture in another size, its numbers normalized, cut into patches. Sizes
// and numbers follow a model's preprocessor_config.json. Equal, number for number, to what transformers computes with
// torchvision on x86. Proved by tests/model/image/prepare_test.cpp.
//
// May include: base, base/structured, base/threads, model/image.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "model/image/image.h"
#include "model/image/prepare/resize.h"

namespace lumen::model::image {

// How the size of a picture is chosen. Both sides become multiples of a square of merge x merge patches.
enum class Sizing : uint8_t {
  by_area,     // keeps the ratio of the sides, between the least and the most pixels
  square,      // `height` x `width`; the ratio of the sides may change
  by_longest,  // not enlarged; keeps the ratio of the sides, the longer of which has at most `longest` pixels
};

struct Preparation {
  int64_t patch = 14, merge = 2;  // pixels of a patch's side; patches of a square's side
  Sizing sizing = Sizing::by_area;
  int64_t least_pixels = 0, most_pixels = 0, height = 0, width = 0, longest = 0;  // as far as `sizing` uses them
  Filter filter = Filter::bicubic;
  bool resizes = true, rescales = true, normalizes = true;
  double factor = 1.0 / 255;
  std::array<double, 3> mean = {0.48145466, 0.4578275, 0.40821073}, deviation = {0.26862954, 0.26130258, 0.27577711};
};

// `defaults` with what a preprocessor_config.json says, or a processor_config.json with a member "image_processor".
// Error, which names `where`, for values that cannot be used.
Preparation read_preparation(Preparation defaults, const std::string& text, const std::string& where);

struct Patches {
  int64_t lines = 0, columns = 0;  // of patches
  // For each patch its channels, each with rows of pixels. Patches follow each other square by square, and row by row
  // in a square.
  std::vector<float> values = {};
  int64_t count() const { return lines * columns; }
};

// The height and width in pixels with which a picture of this size is cut. Error for sides whose ratio is over 200.
std::array<int64_t, 2> prepared_size(const Preparation& how, int64_t height, int64_t width, const std::string& name);
Patches prepare(const Preparation& how, const Image& image, const std::string& name);

}  // namespace lumen::model::image
