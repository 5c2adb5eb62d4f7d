// The specification of with_ranges once more, as loops over whole numbers and floats: a convolution of images with
// channels last (a linear layer is one of 1 x 1), by any source of ranges.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "apps/classify/ranges/ranges.h"
#include "graph/ir/eval.h"

namespace lumen::graph {

struct PlainCase {
  int64_t samples = 1, height = 1, width = 1, channels = 8, outputs = 4, kernel = 1;
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
  int64_t out_side(int64_t n) const { return (n + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1; }
  int64_t positions() const { return out_side(height) * out_side(width); }
  int64_t columns() const { return kernel * kernel * channels / groups; }
};

struct PlainWeights {
  std::vector<int> codes;  // [outputs, columns], columns as (row, column, channel of the group)
  std::vector<float> scale, shift, mean, deviation, below, above, low, high;
  float middle = 0;
};

inline PlainWeights quantized_weights(const std::vector<float>& w, const std::vector<float>& shift, const PlainCase& c,
                                      bool by_channel) {
  PlainWeights out;
  const int64_t k = c.columns();
  const bool own = by_channel || (c.groups > 1 && c.groups == c.outputs);
  double all = 0, squares = 0, middle = 0;
  for (int64_t o = 0; o < c.outputs; ++o) {
    float most = 0;
    for (int64_t i = 0; i < k; ++i) most = std::max(most, std::fabs(w[o * k + i]));
    const float scale = most > 0 ? most / 127 : 1;
    double sum = 0, square = 0;
    for (int64_t i = 0; i < k; ++i) {
      const int code = std::lrint(w[o * k + i] / scale);
      out.codes.push_back(code);
      sum += code;
      square += double(code) * code;
      all += double(code) * scale;
      squares += double(code) * scale * code * scale;
    }
    out.scale.push_back(scale);
    if (own) {
      out.mean.push_back(sum / k);
      out.deviation.push_back(std::sqrt(std::max(0.0, square / k - sum / k * sum / k)));
    }
    middle += shift[o];
  }
  if (!own) {
    const double count = double(c.outputs * k);
    out.mean = {float(all / count)};
    out.deviation = {float(std::sqrt(std::max(0.0, squares / count - all / count * all / count)))};
  }
  out.shift = shift;
  out.middle = middle / c.outputs;
  out.below.assign(by_channel ? c.outputs : 1, 3);
  out.above.assign(by_channel ? c.outputs : 1, 4);
  out.low.assign(by_channel ? c.outputs : 1, -1.5F);
  out.high.assign(by_channel ? c.outputs : 1, 2.5F);
  return out;
}

struct PlainPair {
  float scale = 1;
  int zero = 0;
};

inline PlainPair plain_pair(float low, float high) {
  low = std::min(low, 0.F);
  high = std::max(high, 0.F);
  PlainPair p;
  p.scale = high > low ? std::max((high - low) / 255.F, 1e-20F) : 1;
  p.zero = int(std::clamp(std::nearbyint(-128.F - low / p.scale), -128.F, 127.F));
  return p;
}

// One sample.
class PlainProduct {
 public:
  PlainProduct(const PlainCase& c, const PlainWeights& w, const float* x, PlainPair input) : c_(c), w_(w), in_(input) {
    for (int64_t i = 0; i < c.height * c.width * c.channels; ++i)
      x_.push_back(int(std::clamp(std::nearbyint(x[i] / in_.scale) + float(in_.zero), -128.F, 127.F)) - in_.zero);
    for (int64_t o = 0; o < c.outputs; ++o)
      bias_.push_back(int32_t(std::clamp(std::nearbyint(w.shift[o] / (in_.scale * w.scale[o])), -0x1p30F, 0x1p30F)));
    for (int64_t p = 0; p < c.positions(); ++p)
      for (int64_t o = 0; o < c.outputs; ++o) {
        int64_t sum = bias_[o];
        for (int64_t i = 0; i < c.columns(); ++i) sum += int64_t{w.codes[o * c.columns() + i]} * at(p, o, i);
        sums_.push_back(sum);
      }
  }

  std::vector<float> run(RangeSource source, bool by_channel, int64_t gamma) const {
    std::vector<float> out(sums_.size());
    const float none = 0;
    PlainPair all;
    if (!by_channel) all = pair(source, -1, gamma);
    for (int64_t o = 0; o < c_.outputs; ++o) {
      const PlainPair p = by_channel ? pair(source, o, gamma) : all;
      const float by = by_channel ? 1.F / p.scale : w_.scale[o] / p.scale;
      const float real = by_channel ? p.scale * (in_.scale * w_.scale[o]) : p.scale * in_.scale;
      for (int64_t q = 0; q < c_.positions(); ++q) {
        const float y = std::nearbyint(float(sums_[q * c_.outputs + o]) * by) + float(p.zero);
        out[q * c_.outputs + o] = float(int(std::clamp(y, -128.F, 127.F)) - p.zero) * real + none;
      }
    }
    return out;
  }

 private:
  int at(int64_t position, int64_t output, int64_t column) const {
    const int64_t each = c_.channels / c_.groups, group = output / (c_.outputs / c_.groups);
    const int64_t channel = column % each, j = column / each % c_.kernel, i = column / each / c_.kernel;
    const int64_t wide = c_.out_side(c_.width), v = position / wide, h = position % wide;
    const int64_t y = v * c_.stride + i * c_.dilation - c_.padding, x = h * c_.stride + j * c_.dilation - c_.padding;
    if (y < 0 || x < 0 || y >= c_.height || x >= c_.width) return 0;
    return x_[(y * c_.width + x) * c_.channels + group * each + channel];
  }

  struct Sums {
    float first = 0, second = 0, spread = 0;
  };
  Sums moments(int64_t group, int64_t gamma) const {
    int64_t first = 0, second = 0, square = 0, count = 0;
    const int64_t wide = c_.out_side(c_.width), output = group * (c_.outputs / c_.groups);
    for (int64_t v = 0; v < c_.out_side(c_.height); v += gamma)
      for (int64_t h = 0; h < wide; h += gamma) {
        int64_t s1 = 0, s2 = 0;
        for (int64_t i = 0; i < c_.columns(); ++i) {
          const int64_t x = at(v * wide + h, output, i);
          s1 += x;
          s2 += x * x;
        }
        first += s1;
        second += s2;
        square += s1 * s1;
        ++count;
      }
    Sums out{float(first) / float(count), float(second) / float(count), 0};
    out.spread = std::max(float(square) / float(count) - out.first * out.first, 0.F);
    return out;
  }

  std::pair<float, float> predicted(int64_t output, int64_t gamma) const {
    const Sums m = moments(output / (c_.outputs / c_.groups), gamma);
    const float mean = w_.mean[output] * m.first + float(bias_[output]);
    const float within = w_.deviation[output] * w_.deviation[output] * m.second;
    const float between = w_.mean[output] * w_.mean[output] * m.spread;
    return {mean, std::sqrt(within + between)};
  }

  PlainPair pair(RangeSource source, int64_t output, int64_t gamma) const {
    if (source == RangeSource::fixed) {
      if (output < 0) return plain_pair(w_.low[0] / in_.scale, w_.high[0] / in_.scale);
      const float unit = in_.scale * w_.scale[output];
      return plain_pair(w_.low[output] / unit, w_.high[output] / unit);
    }
    if (source == RangeSource::dynamic) {
      float low = INFINITY, high = -INFINITY;
      for (size_t i = 0; i < sums_.size(); ++i) {
        const int64_t o = int64_t(i) % c_.outputs;
        if (output >= 0 && o != output) continue;
        const float y = output >= 0 ? float(sums_[i]) : float(sums_[i]) * w_.scale[o];
        low = std::min(low, y);
        high = std::max(high, y);
      }
      return plain_pair(low, high);
    }
    if (output >= 0) {
      const auto [mean, deviation] = predicted(output, gamma);
      return plain_pair(mean - w_.below[output] * deviation, mean + w_.above[output] * deviation);
    }
    const Sums m = moments(0, gamma);  // one group
    const float mean = w_.mean[0] * m.first + w_.middle / in_.scale;
    const float within = w_.deviation[0] * w_.deviation[0] * m.second, between = w_.mean[0] * w_.mean[0] * m.spread;
    const float deviation = std::sqrt(within + between);
    return plain_pair(mean - w_.below[0] * deviation, mean + w_.above[0] * deviation);
  }

  PlainCase c_;
  PlainWeights w_;
  PlainPair in_;
  std::vector<int> x_;
  std::vector<int32_t> bias_;
  std::vector<int64_t> sums_;
};

// All samples, with the true range of each as its input's.
inline std::vector<float> plain_result(const PlainCase& c, const PlainWeights& w, const std::vector<float>& x,
                                       RangeSource source, bool by_channel, int64_t gamma) {
  std::vector<float> out;
  const int64_t each = c.height * c.width * c.channels;
  for (int64_t n = 0; n < c.samples; ++n) {
    const auto [low, high] = std::minmax_element(x.begin() + n * each, x.begin() + (n + 1) * each);
    const PlainPair input = source == RangeSource::fixed ? plain_pair(-3, 4) : plain_pair(*low, *high);
    const std::vector<float> one = PlainProduct(c, w, x.data() + n * each, input).run(source, by_channel, gamma);
    out.insert(out.end(), one.begin(), one.end());
  }
  return out;
}

inline Tensor plain_tensor(const std::vector<float>& numbers, const Shape& shape, Scalar scalar = Scalar::f32) {
  return {{shape, {scalar, nullptr}}, {numbers.begin(), numbers.end()}, {}};
}

// What with_ranges reads for a product of this name.
inline std::map<std::string, Tensor> plain_inputs(const std::string& name, const PlainCase& c, const PlainWeights& w) {
  std::map<std::string, Tensor> in;
  in[name + ".codes"] = {
      {{Dim(c.outputs), Dim(c.columns())}, {Scalar::i8, nullptr}}, {w.codes.begin(), w.codes.end()}, {}};
  const auto put = [&](const char* what, const std::vector<float>& v) {
    in[name + "." + what] = plain_tensor(v, {Dim(std::ssize(v))});
  };
  const auto put_pair = [&](const std::string& what, const std::vector<float>& v, size_t own) {
    put((v.size() == own ? what : what + "_all").c_str(), v);
  };
  const size_t channels = c.outputs;
  std::vector<double> totals(c.outputs);
  for (size_t i = 0; i < w.codes.size(); ++i) totals[i / c.columns()] += w.codes[i];
  in[name + ".total"] = {{{Dim(c.outputs)}, {Scalar::i32, nullptr}}, totals, {}};
  put("scale", w.scale);
  put("shift", w.shift);
  put_pair("mean", w.mean, channels);
  put_pair("deviation", w.deviation, channels);
  put_pair("below", w.below, channels);
  put_pair("above", w.above, channels);
  put_pair("low", w.low, channels);
  put_pair("high", w.high, channels);
  put("shift_all", {w.middle});
  return in;
}

}  // namespace lumen::graph
