#include "model/compress/equivalent_transform/scale_rules.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"

namespace lumen::model::compress {

namespace {
constexpr double kLeastSmooth = 1e-5, kLeastAwq = 1e-4;
}

std::vector<double> smooth_scales(std::span<const double> activation_maxima, std::span<const double> weight_maxima,
                                  double alpha) {
  LUMEN_CHECK(activation_maxima.size() == weight_maxima.size());
  std::vector<double> s;
  for (size_t j = 0; j < activation_maxima.size(); ++j) {
    const double x = activation_maxima[j], w = weight_maxima[j];
    s.push_back(x > 0 && w > 0 ? std::max(std::pow(x, alpha) / std::pow(w, 1 - alpha), kLeastSmooth) : 1);
  }
  return s;
}

std::vector<double> awq_scales(std::span<const double> activation_means, int k) {
  std::vector<double> s;
  for (const double x : activation_means) s.push_back(std::max(std::pow(x, 1.0 * k / kAwqSteps), kLeastAwq));
  const auto [least, most] = std::minmax_element(s.begin(), s.end());
  if (least == s.end()) return s;
  const double middle = std::sqrt(*least * *most);
  for (double& x : s) x /= middle;
  return s;
}

AwqChoice choose_awq(std::span<const double> activation_means,
                     const std::function<double(std::span<const double>)>& loss) {
  AwqChoice best;
  for (int k = 0; k < kAwqSteps; ++k) {
    std::vector<double> s = awq_scales(activation_means, k);
    best.losses.push_back(loss(s));
    if (k > 0 && !(best.losses.back() < best.loss)) continue;
    best.loss = best.losses.back();
    best.step = k;
    best.scales = std::move(s);
  }
  return best;
}

std::vector<double> largest_of_channels(const graph::ScaleSite& site, std::span<const double> by_channel) {
  LUMEN_CHECK(by_channel.size() == site.powers.size());
  std::vector<double> out(site.free, 0);
  for (size_t c = 0; c < by_channel.size(); ++c)
    if (site.powers[c] != 0) {
      double& most = out[std::abs(site.powers[c]) - 1];
      most = std::max(most, by_channel[c]);
    }
  return out;
}

std::vector<double> mean_of_channels(const graph::ScaleSite& site, std::span<const double> by_channel) {
  LUMEN_CHECK(by_channel.size() == site.powers.size());
  std::vector<double> sum(site.free, 0), count(sum.size(), 0);
  for (size_t c = 0; c < by_channel.size(); ++c)
    if (site.powers[c] != 0) {
      const size_t i = std::abs(site.powers[c]) - 1;
      sum[i] += by_channel[c];
      ++count[i];
    }
  for (size_t i = 0; i < sum.size(); ++i) sum[i] /= std::max(count[i], 1.0);
  return sum;
}

std::vector<double> weight_maxima(const arch::Model& model, const graph::ScaleSite& site) {
  std::vector<double> out(site.free, 0);
  for (const graph::ScaledParameter& change : site.changes) {
    if (std::find(site.readers.begin(), site.readers.end(), change.parameter) == site.readers.end() ||
        change.along != graph::Along::columns)
      continue;
    const arch::Weight& w = model.weights.at(change.parameter);
    if (!w.is_f32())
      throw user_error("'{}' is no f32 weight: its largest numbers are looked for in f32", change.parameter);
    const int64_t columns = w.columns(), matrix = columns * w.type.shape[w.type.shape.size() - 2].number();
    for (int64_t i = 0; i < std::ssize(w.f32()); ++i) {
      const graph::Power power = change.powers[i / matrix * columns + i % columns];
      if (power == 0) continue;
      double& most = out[std::abs(power) - 1];
      most = std::max(most, std::abs(double{w.f32()[i]}));
    }
  }
  return out;
}

}  // namespace lumen::model::compress
