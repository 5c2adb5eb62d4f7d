#include "apps/diffuse/quality.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "apps/diffuse/diffuse.h"
#include "base/check.h"
#include "base/error.h"
#include "model/file/checkpoint.h"
#include "model/linear/matrix.h"

namespace lumen::diffuse {
namespace {

constexpr int64_t kSsimWindow = 11;
constexpr double kSsimSigma = 1.5, kC1 = 0.01 * 0.01, kC2 = 0.03 * 0.03;

std::vector<double> window_weights() {
  std::vector<double> out;
  double sum = 0;
  for (int64_t i = 0; i < kSsimWindow * kSsimWindow; ++i) {
    const double y = i / kSsimWindow - kSsimWindow / 2, x = i % kSsimWindow - kSsimWindow / 2;
    out.push_back(std::exp(-(x * x + y * y) / (2 * kSsimSigma * kSsimSigma)));
    sum += out.back();
  }
  for (double& w : out) w /= sum;
  return out;
}

// The similarity of one window at a and b, with row stride `side`.
double window_similarity(const float* a, const float* b, int64_t side, const std::vector<double>& weights) {
  double ma = 0, mb = 0, aa = 0, bb = 0, ab = 0;
  for (int64_t i = 0; i < kSsimWindow * kSsimWindow; ++i) {
    const int64_t at = i / kSsimWindow * side + i % kSsimWindow;
    const double x = (a[at] + 1.0) / 2, y = (b[at] + 1.0) / 2, w = weights[i];
    ma += w * x;
    mb += w * y;
    aa += w * x * x;
    bb += w * y * y;
    ab += w * x * y;
  }
  const double va = aa - ma * ma, vb = bb - mb * mb, c = ab - ma * mb;
  return (2 * ma * mb + kC1) * (2 * c + kC2) / ((ma * ma + mb * mb + kC1) * (va + vb + kC2));
}

struct Gaussian {
  std::vector<double> mean;
  model::linear::Matrix covariance;
};

Gaussian gaussian_of(std::span<const float> x, int64_t width) {
  const int64_t n = std::ssize(x) / width;
  if (n < 2) throw user_error("{} images are too few for a covariance", n);
  Gaussian out{std::vector<double>(width, 0), model::linear::Matrix(width, width)};
  for (int64_t i = 0; i < n * width; ++i) out.mean[i % width] += x[i] / double(n);
  for (int64_t r = 0; r < n; ++r)
    for (int64_t i = 0; i < width; ++i) {
      const double d = x[r * width + i] - out.mean[i];
      for (int64_t j = 0; j < width; ++j)
        out.covariance.at(j, i) += d * (x[r * width + j] - out.mean[j]) / double(n - 1);
    }
  return out;
}

model::linear::Eigenvectors lifted_values(const model::linear::Matrix& m) {
  // Values far below rounding count as 0: their squares would underflow.
  double most = 0;
  for (int64_t i = 0; i < m.rows(); ++i) most = std::max(most, m.at(i, i));
  model::linear::Matrix lifted = m;
  for (int64_t i = 0; i < m.rows(); ++i) lifted.at(i, i) += most * 1e-15 + 1e-100;
  return model::linear::eigenvectors(std::move(lifted));
}

// The symmetric square root; negative eigenvalues, due to rounding, count as 0.
model::linear::Matrix symmetric_root(const model::linear::Matrix& m) {
  const model::linear::Eigenvectors e = lifted_values(m);
  model::linear::Matrix scaled = e.vectors, turned(m.rows(), m.rows());
  for (int64_t c = 0; c < m.rows(); ++c)
    for (int64_t r = 0; r < m.rows(); ++r) {
      scaled.at(r, c) *= std::sqrt(std::max(0.0, e.values[c]));
      turned.at(c, r) = e.vectors.at(r, c);
    }
  return model::linear::product(scaled, turned);
}

}  // namespace

double peak_signal_to_noise(std::span<const float> reference, std::span<const float> images, int64_t each) {
  LUMEN_CHECK(reference.size() == images.size() && each > 0, "pairs of images");
  const int64_t count = std::ssize(images) / each;
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto a = reference.subspan(i * each, each), b = images.subspan(i * each, each);
    const auto [low, high] = std::ranges::minmax(a);
    double error = 0;
    for (int64_t k = 0; k < each; ++k) error += (double{a[k]} - b[k]) * (double{a[k]} - b[k]) / double(each);
    const double range = double{high} - low;
    sum += error == 0 ? kMostDecibels : std::min(kMostDecibels, 10 * std::log10(range * range / error));
  }
  return count > 0 ? sum / double(count) : 0;
}

double structural_similarity(std::span<const float> reference, std::span<const float> images, int64_t side) {
  LUMEN_CHECK(reference.size() == images.size(), "pairs of images");
  if (side < kSsimWindow) throw user_error("images of {} pixels are smaller than a window of {}", side, kSsimWindow);
  const std::vector<double> weights = window_weights();
  const int64_t count = std::ssize(images) / (side * side), places = side - kSsimWindow + 1;
  double sum = 0;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t y = 0; y < places; ++y)
      for (int64_t x = 0; x < places; ++x) {
        const int64_t at = (i * side + y) * side + x;
        sum += window_similarity(reference.data() + at, images.data() + at, side, weights);
      }
  return count > 0 ? sum / double(count * places * places) : 0;
}

double frechet_distance(std::span<const float> a, std::span<const float> b, int64_t width) {
  const Gaussian p = gaussian_of(a, width), q = gaussian_of(b, width);
  const model::linear::Matrix root = symmetric_root(p.covariance);
  const model::linear::Eigenvectors cross =
      lifted_values(model::linear::product(model::linear::product(root, q.covariance), root));
  double out = 0;
  for (int64_t i = 0; i < width; ++i) {
    out += (p.mean[i] - q.mean[i]) * (p.mean[i] - q.mean[i]) + p.covariance.at(i, i) + q.covariance.at(i, i);
    out -= 2 * std::sqrt(std::max(0.0, cross.values[i]));
  }
  return std::max(0.0, out);
}

double cosine_distance(std::span<const float> reference, std::span<const float> features, int64_t width) {
  LUMEN_CHECK(reference.size() == features.size(), "pairs of features");
  const int64_t count = std::ssize(features) / width;
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    double aa = 0, bb = 0, ab = 0;
    for (int64_t k = i * width; k < (i + 1) * width; ++k) {
      aa += double{reference[k]} * reference[k];
      bb += double{features[k]} * features[k];
      ab += double{reference[k]} * features[k];
    }
    sum += aa > 0 && bb > 0 ? 1 - ab / std::sqrt(aa * bb) : (aa == bb ? 0 : 1);
  }
  return count > 0 ? sum / double(count) : 0;
}

double Classified::accuracy(std::span<const int32_t> labels) const {
  LUMEN_CHECK(labels.size() == classes.size(), "a label for each image");
  int64_t right = 0;
  for (size_t i = 0; i < labels.size(); ++i) right += labels[i] == classes[i];
  return classes.empty() ? 0 : double(right) / double(classes.size());
}

Classified classified(apps::Network& classifier, std::span<const float> images, int64_t batch) {
  const int64_t size = classifier.config("size"), each = size * size * classifier.config("channels"),
                count = std::ssize(images) / each, many = classifier.config("classes");
  Classified out;
  apps::NetworkInputs in;
  in.symbols = {{"B", batch}};
  for (int64_t first = 0; first < count; first += batch) {
    const int64_t some = std::min(batch, count - first);
    std::vector<float>& x = in.numbers["images"];
    x.assign(images.begin() + first * each, images.begin() + (first + some) * each);
    x.resize(batch * each, 0);
    const std::vector<float> features = classifier.run("features", in), logits = classifier.run("logits", in);
    out.width = std::ssize(features) / batch;
    out.features.insert(out.features.end(), features.begin(), features.begin() + some * out.width);
    for (int64_t i = 0; i < some; ++i) {
      const auto row = logits.begin() + i * many;
      out.classes.push_back(std::int32_t(std::max_element(row, row + many) - row));
    }
  }
  return out;
}

std::unique_ptr<apps::Network> image_classifier(run::Engine& engine, const model::arch::Library& library,
                                                const apps::NetworkSettings& settings, const apps::Images& images,
                                                const std::filesystem::path& folder, int64_t steps,
                                                const std::function<void(int64_t, double)>& told,
                                                const std::atomic<bool>* stop) {
  constexpr int64_t kBatch = 64, kWarmup = 100;
  constexpr double kRate = 2e-3;
  if (model::file::latest_checkpoint(folder)) return apps::Network::load(engine, library, folder);
  auto out = std::make_unique<apps::Network>(engine, library, settings);
  while (out->steps() < steps && !(stop && *stop)) {
    const double done = double(out->steps()) / double(steps),
                 rate = kRate * std::min(1.0, (double(out->steps()) + 1) / kWarmup) * (1 - 0.9 * done);
    const double loss = out->step("loss", diffusion_batch(images, *out, out->steps(), kBatch), rate);
    if (told) told(out->steps(), loss);
  }
  if (!(stop && *stop)) out->save(folder, 1);
  return out;
}

}  // namespace lumen::diffuse
