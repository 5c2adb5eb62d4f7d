#include "apps/classify/corrupt.h"

#include <algorithm>
#include <cmath>

#include "apps/draws/draws.h"
#include "base/check.h"

namespace lumen::classify {
namespace {

constexpr uint64_t kCorruptDraws = 0x636f7272;

// One image with pixels in 0 .. 1.
struct Canvas {
  int64_t height = 0, width = 0, channels = 1;
  std::vector<float> pixels;
  float& at(int64_t y, int64_t x, int64_t c) { return pixels[(y * width + x) * channels + c]; }
};

void add_noise(Canvas& image, int severity, Draws& draws) {
  for (float& x : image.pixels) x += 0.1 * severity * draws.normal();
}

// Rows, then columns; the border is extended by the nearest pixel.
void blur(Canvas& image, int severity) {
  const double sigma = 0.5 * severity;
  std::vector<double> weights;
  double all = 0;
  for (int i = -severity; i <= severity; ++i) all += weights.emplace_back(std::exp(-i * i / (2 * sigma * sigma)));
  for (const bool is_down : {false, true}) {
    Canvas from = image;
    for (int64_t y = 0; y < image.height; ++y)
      for (int64_t x = 0; x < image.width; ++x)
        for (int64_t c = 0; c < image.channels; ++c) {
          double sum = 0;
          for (int i = -severity; i <= severity; ++i) {
            const int64_t v = std::clamp<int64_t>(y + (is_down ? i : 0), 0, image.height - 1);
            const int64_t h = std::clamp<int64_t>(x + (is_down ? 0 : i), 0, image.width - 1);
            sum += weights[i + severity] * from.at(v, h, c);
          }
          image.at(y, x, c) = sum / all;
        }
  }
}

// Every square of pixels is replaced by its mean.
void pixelate(Canvas& image, int severity) {
  const int64_t parts = 6 - severity;  // out of six pixels along each axis
  const int64_t size = std::max<int64_t>(1, 6 / parts);
  for (int64_t top = 0; top < image.height; top += size)
    for (int64_t left = 0; left < image.width; left += size)
      for (int64_t c = 0; c < image.channels; ++c) {
        double sum = 0;
        const int64_t down = std::min(top + size, image.height), right = std::min(left + size, image.width);
        for (int64_t y = top; y < down; ++y)
          for (int64_t x = left; x < right; ++x) sum += image.at(y, x, c);
        for (int64_t y = top; y < down; ++y)
          for (int64_t x = left; x < right; ++x) image.at(y, x, c) = sum / double((down - top) * (right - left));
      }
}

void reduce_levels(Canvas& image, int severity) {
  const float levels = 256 / (1 << severity);
  for (float& x : image.pixels) x = std::floor(std::min(x, 0.99999F) * levels) / (levels - 1);
}

// Shifts each channel separately, with wraparound.
void shift_channels(Canvas& image, int severity, Draws& draws) {
  for (int64_t c = 0; c < image.channels; ++c) {
    const int64_t far = 10 * severity, down = draws.below(2 * far + 1) - far, right = draws.below(2 * far + 1) - far;
    Canvas from = image;
    for (int64_t y = 0; y < image.height; ++y)
      for (int64_t x = 0; x < image.width; ++x)
        image.at(y, x, c) = from.at(((y - down) % image.height + image.height) % image.height,
                                    ((x - right) % image.width + image.width) % image.width, c);
  }
}

void raise_contrast(Canvas& image, int severity) {
  double middle = 0;
  for (const float x : image.pixels) middle += x / double(image.pixels.size());
  for (float& x : image.pixels) x = middle + (x - middle) * (1 + 0.3 * severity);
}

void spoil(Canvas& image, Corruption how, int severity, Draws& draws) {
  switch (how) {
    case Corruption::noise:
      add_noise(image, severity, draws);
      break;
    case Corruption::blur:
      blur(image, severity);
      break;
    case Corruption::pixels:
      pixelate(image, severity);
      break;
    case Corruption::levels:
      reduce_levels(image, severity);
      break;
    case Corruption::shift:
      shift_channels(image, severity, draws);
      break;
    case Corruption::brightness:
      for (float& x : image.pixels) x *= 1 + 0.2F * float(severity);
      break;
    case Corruption::contrast:
      raise_contrast(image, severity);
      break;
    case Corruption::several:
      for (int64_t n = 1 + draws.below(3); n > 0; --n) {
        spoil(image, Corruption(draws.below(int(Corruption::several))), std::max(1, severity - 1), draws);
        for (float& x : image.pixels) x = std::clamp(x, 0.F, 1.F);
      }
      break;
  }
}

}  // namespace

std::string_view corruption_name(Corruption c) {
  constexpr std::string_view kNames[kCorruptions] = {"noise", "blur",       "pixels",   "levels",
                                                     "shift", "brightness", "contrast", "several"};
  return kNames[int(c)];
}

void corrupt(apps::Images& images, int64_t which, Corruption how, int severity, uint64_t seed) {
  LUMEN_CHECK(severity >= 1 && severity <= 5, "severity {}", severity);
  const int64_t count = images.height * images.width * images.channels;
  uint8_t* const own = images.pixels.data() + which * count;
  Canvas image{images.height, images.width, images.channels, {}};
  for (int64_t i = 0; i < count; ++i) image.pixels.push_back(own[i] / 255.F);
  Draws draws(seed ^ kCorruptDraws, which, int(how) * 8 + severity);
  spoil(image, how, severity, draws);
  for (int64_t i = 0; i < count; ++i) own[i] = uint8_t(std::lround(std::clamp(image.pixels[i], 0.F, 1.F) * 255));
}

apps::Images corrupted(apps::Images images, uint64_t seed) {
  for (int64_t i = 0; i < images.count; ++i) {
    Draws draws(seed, i);
    const Corruption how = Corruption(draws.below(kCorruptions));
    corrupt(images, i, how, 3 + int(draws.below(3)), seed);
  }
  return images;
}

}  // namespace lumen::classify
