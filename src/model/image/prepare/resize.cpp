#include "model/image/prepare/resize.h"

#include <algorithm>
#include <cmath>

#include "base/threads/team.h"

namespace lumen::model::image {
namespace {

double weight_at(Filter filter, double x) {
  x = std::abs(x);
  if (filter == Filter::bilinear) return x < 1 ? 1 - x : 0;
  constexpr double kA = -0.5;
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * kA : 0;
}

// Each number of the result is a sum of `size[i]` numbers from first[i] on, times weights in units of 2^-bits.
struct Taps {
  std::vector<int64_t> first = {}, size = {};
  std::vector<int32_t> weights = {};
  int64_t most = 0;  // weights of each number
  int bits = 0;
};

Taps taps(int64_t from, int64_t to, Filter filter) {
  const double scale = double(from) / double(to);
  const double reach = (filter == Filter::bicubic ? 2.0 : 1.0) * std::max(scale, 1.0);
  const double narrowed = scale >= 1 ? 1 / scale : 1;
  Taps out;
  out.most = int64_t(std::ceil(reach)) * 2 + 1;
  std::vector<double> exact(to * out.most);
  double largest = 0;
  for (int64_t i = 0; i < to; ++i) {
    const double center = scale * (double(i) + 0.5);
    const int64_t first = std::max(int64_t(center - reach + 0.5), int64_t{0});
    const int64_t size = std::clamp(std::min(int64_t(center + reach + 0.5), from) - first, int64_t{0}, out.most);
    double total = 0;
    for (int64_t j = 0; j < size; ++j)
      total += exact[i * out.most + j] = weight_at(filter, (double(j + first) - center + 0.5) * narrowed);
    for (int64_t j = 0; j < size; ++j) {
      double& w = exact[i * out.most + j];
      if (total != 0) w /= total;
      largest = std::max(largest, w);
    }
    out.first.push_back(first);
    out.size.push_back(size);
  }
  // As many bits as the largest weight leaves in 16, its sign included.
  while (out.bits < 22 && int64_t(0.5 + largest * (int64_t{1} << (out.bits + 1))) < 1 << 15) ++out.bits;
  for (const double w : exact) {
    const double scaled = w * (int64_t{1} << out.bits);
    out.weights.push_back(int32_t(w < 0 ? scaled - 0.5 : scaled + 0.5));
  }
  return out;
}

// Sums of numbers that lie `step` bytes apart, from `in` on.
uint8_t sum_at(const Taps& t, int64_t i, const uint8_t* in, int64_t step) {
  int32_t sum = t.bits > 0 ? 1 << (t.bits - 1) : 0;
  const uint8_t* from = in + t.first[i] * step;
  for (int64_t j = 0; j < t.size[i]; ++j, from += step) sum += t.weights[i * t.most + j] * *from;
  return uint8_t(std::clamp(sum >> t.bits, 0, 255));
}

Image along_rows(const Image& image, int64_t width, Filter filter) {
  const Taps t = taps(image.width, width, filter);
  Image out{width, image.height};
  out.rgb.resize(width * image.height * 3);
  parallel_for(0, image.height, {.is_worth = std::ssize(out.rgb) > 65536}, [&](int64_t y) {
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < 3; ++c)
        out.rgb[(y * width + x) * 3 + c] = sum_at(t, x, image.rgb.data() + y * image.width * 3 + c, 3);
  });
  return out;
}

Image along_columns(const Image& image, int64_t height, Filter filter) {
  const Taps t = taps(image.height, height, filter);
  Image out{image.width, height};
  const int64_t row = image.width * 3;
  out.rgb.resize(height * row);
  parallel_for(0, height, {.is_worth = std::ssize(out.rgb) > 65536}, [&](int64_t y) {
    for (int64_t at = 0; at < row; ++at) out.rgb[y * row + at] = sum_at(t, y, image.rgb.data() + at, row);
  });
  return out;
}

}  // namespace

Image resized(const Image& image, int64_t width, int64_t height, Filter filter) {
  Image out = width == image.width ? image : along_rows(image, width, filter);
  return height == image.height ? out : along_columns(out, height, filter);
}

}  // namespace lumen::model::image
