// Prepares H for rounding: reports its defects, and raises the damping where the options allow it.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "base/threads/team.h"
#include "model/compress/round/gptq.h"
#include "run/engine/feedback/first_not_finite.h"

namespace lumen::model::compress {
namespace {

graph::Type square(int64_t n) {
  return {{graph::Dim(n), graph::Dim(n)}, {}};
}

run::DeviceTensorRef upload(run::Engine& engine, std::span<const float> x, int64_t n) {
  auto tensor = std::make_shared<run::DeviceTensor>(engine.device(), square(n));
  tensor->upload(x.data(), tensor->bytes());
  return tensor;
}

void refuse_broken(std::span<const float> h, int64_t n) {
  if (const auto broken = run::first_not_finite(h))
    throw Error(Exit::numeric,
                fmt::format("the second moment of columns {} and {} is {}", *broken / n, *broken % n, h[*broken]));
  double largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (h[i * n + i] < 0)
      throw Error(Exit::numeric, fmt::format("the second moment of column {} is negative: {}", i, h[i * n + i]));
    largest = std::max<double>(largest, h[i * n + i]);
  }
  if (largest == 0)
    throw Error(Exit::numeric, "all second moments are 0: no row reached these weights",
                "calibrate with more text, or round to nearest");
}

}  // namespace

Moments::Moments(run::Engine& engine, std::span<const float> h, int64_t columns, const MomentsOptions& options)
    : columns_(columns), h_(h) {
  LUMEN_CHECK(std::ssize(h) == columns * columns && columns > 0, "{} moments of {} columns", h.size(), columns);
  LUMEN_CHECK(options.damping >= 0 && options.most_damping >= options.damping, "damping {}", options.damping);
  refuse_broken(h, columns);
  double mean = 0;
  for (int64_t c = 0; c < columns; ++c) {
    const float own = h[c * columns + c];
    if (own == 0) dead_.push_back(c);
    mean += (own == 0 ? 1 : own) / (1.0 * columns);
  }
  std::span<const float> ready = h;
  std::vector<float> ordered;
  if (!dead_.empty() || options.act_order) {
    run::require_host_memory("second moments", {{"in the order of columns", columns * columns * 4 * 2}});
    ordered.assign(h.begin(), h.end());
    for (const int64_t c : dead_) ordered[c * columns + c] = 1;
    ready = ordered;
  }
  if (options.act_order) {
    order_.resize(columns);
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::stable_sort(order_, std::ranges::greater(), [&](int32_t c) { return ordered[c * columns + c]; });
    const std::vector<float> before = ordered;
    parallel_for(0, columns, [&](int64_t i) {
      for (int64_t j = 0; j < columns; ++j) ordered[i * columns + j] = before[order_[i] * columns + order_[j]];
    });
  }
  damping_ = options.damping;
  if (options.samples > 0 && options.samples < columns)
    damping_ = std::min(options.most_damping, damping_ * columns / options.samples);
  const double asked = damping_;
  std::optional<Factor> factor;
  for (;;) {
    factor = factorize(engine, ready, columns, damping_ * mean, options.method);
    if (factor) break;
    const double more = std::max(damping_, 1e-4) * 10;
    if (more > options.most_damping * (1 + 1e-9))
      throw Error(Exit::numeric,
                  fmt::format("second moments are not positive definite, even with {} of the mean of "
                              "their diagonal added to it",
                              damping_),
                  "calibrate with more text, or allow more damping");
    damping_ = more;
  }
  factor_ = std::move(*factor);
  if (!dead_.empty())
    remark_ = fmt::format("{} of {} columns are always 0: weights there are rounded to nearest", dead_.size(), columns);
  if (damping_ > asked)
    remark_ += fmt::format("{}damping {} in place of {}: the second moments were not positive definite",
                           remark_.empty() ? "" : "; ", damping_, asked);
}

Moments::~Moments() = default;

std::vector<float> Moments::diagonal() const {
  std::vector<float> out;
  for (int64_t c = 0; c < columns_; ++c) out.push_back(h_[c * columns_ + c]);
  return out;
}

const run::FeedbackMatrix& Moments::feedback(run::Engine& engine, const run::FeedbackTiling& tiling) {
  for (const auto& matrix : feedback_)
    if (matrix->tiling() == tiling) return *matrix;
  return *feedback_.emplace_back(std::make_unique<run::FeedbackMatrix>(engine, factor_.u, tiling));
}

const run::DeviceTensorRef& Moments::on_device(run::Engine& engine) {
  if (!device_) {
    engine.require_memory("second moments", {{"to measure errors by", columns_ * columns_ * 4}});
    device_ = upload(engine, h_, columns_);
  }
  return device_;
}

// With the factor (U + I) D (U + I)^T in permuted order, H^-1 = A B, A = (U + I)^-T D^-1 and B = (U + I)^-1, with lines
// permuted back to the columns' order.
void Moments::make_inverse(run::Engine& engine) {
  const int64_t n = columns_;
  engine.require_memory("answering differences of activations", {{"the inverse of second moments", n * n * 8}});
  const std::vector<float> x = inverse(factor_);
  std::vector<float> a(n * n), b(n * n);
  parallel_for(0, n, [&](int64_t i) {
    for (int64_t j = 0; j < n; ++j) {
      const int64_t column = order_.empty() ? j : order_[j];
      a[column * n + i] = x[i * n + j] / factor_.d[i];
      b[i * n + column] = x[i * n + j];
    }
  });
  inverse_over_d_ = upload(engine, a, n);
  inverse_ = upload(engine, b, n);
}

const run::DeviceTensorRef& Moments::inverse_over_d(run::Engine& engine) {
  if (!inverse_over_d_) make_inverse(engine);
  return inverse_over_d_;
}

const run::DeviceTensorRef& Moments::inverse_factor(run::Engine& engine) {
  if (!inverse_) make_inverse(engine);
  return inverse_;
}

}  // namespace lumen::model::compress
