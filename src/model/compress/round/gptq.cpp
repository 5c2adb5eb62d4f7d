#include "model/compress/round/gptq.h"

#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "model/calibrate/sound.h"
#include "run/engine/feedback/first_not_finite.h"

namespace lumen::model::compress {
Gptq::~Gptq() = default;

std::vector<float> Gptq::moved(std::span<const float> w, int64_t rows, Moments& moments,
                               std::span<const float> difference) {
  const int64_t columns = moments.columns();
  LUMEN_CHECK(std::ssize(difference) == columns * columns, "{} differences for {} columns", difference.size(), columns);
  if (const auto k = run::first_not_finite(difference))
    throw Error(Exit::numeric, fmt::format("the difference of activations at row {}, column {} is {}", *k / columns,
                                           *k % columns, difference[*k]));
  std::vector<float> x(w.begin(), w.end());
  for (const run::DeviceTensorRef& h :
       {output_errors_.keep(difference, columns), moments.inverse_over_d(engine_), moments.inverse_factor(engine_)})
    x = output_errors_.product(x, rows, columns, h);
  for (size_t k = 0; k < x.size(); ++k) x[k] += w[k];
  return x;
}

GptqResult Gptq::round(const FormatRef& format, std::span<const float> w, int64_t rows, Moments& moments,
                       const GptqOptions& options) {
  const int64_t columns = moments.columns();
  LUMEN_CHECK(std::ssize(w) == rows * columns, "{} weights for {} x {}", w.size(), rows, columns);
  GptqResult out;
  // The rounding target: the weight itself, or the moved weight.
  std::vector<float> moved_to;
  std::span<const float> target = w;
  if (!options.difference.empty()) {
    moved_to = moved(w, rows, moments, options.difference);
    // Dead columns have no activations to move by.
    for (const int64_t c : moments.dead())
      for (int64_t r = 0; r < rows; ++r) moved_to[r * columns + c] = w[r * columns + c];
    target = moved_to;
  }
  // Not copied where the device reads host memory: it outlives all uses here.
  const run::DeviceTensorRef on_device =
      run::DeviceTensor::parameter(engine_.device(), {{graph::Dim(rows), graph::Dim(columns)}, {}}, target.data(),
                                   std::shared_ptr<const void>(std::make_shared<int>(), target.data()));

  const bool weighs = options.weighs && format->weighs();
  const run::FeedbackOptions how{weighs, !moments.order().empty()};
  auto& rounder = rounders_[{format->hash.hex(), rows, columns, how.weighs, how.in_order}];
  if (!rounder) rounder = std::make_unique<run::FeedbackRounder>(engine_, format, rows, columns, how);
  std::vector<float> importance = weighs ? moments.diagonal() : std::vector<float>{};
  calibrate::raise_zeros(importance);
  std::vector<uint8_t> nearest;
  const auto sum = [](const std::vector<double>& x) { return std::accumulate(x.begin(), x.end(), 0.0); };
  const auto errors = [&](std::span<const uint8_t> blob) {
    return output_errors_.of_rounded(on_device, format, blob, moments.on_device(engine_));
  };
  if (options.measures || !options.under.empty()) {
    nearest = options.under.empty() ? engine_.encode(format, on_device, importance)
                                    : std::vector<uint8_t>(options.under.begin(), options.under.end());
    out.before_rows = errors(nearest);
    out.before = sum(out.before_rows);
  }
  run::RoundedMatrix rounded = rounder->run(
      {.w = target, .on_device = on_device, .importance = importance, .order = moments.order(), .rounded = nearest},
      moments.feedback(engine_, rounder->tiling()));
  out.blob = std::move(rounded.blob);
  out.values = std::move(rounded.values);
  if (options.measures) {
    out.after_rows = errors(out.blob);
    out.after = sum(out.after_rows);
    if (out.is_nearest = out.after >= out.before && out.before > 0; out.is_nearest) {
      out.values = engine_.decode(format, nearest.data(), rows, columns);
      out.blob = std::move(nearest);
      out.after_rows = out.before_rows;
      out.after = out.before;
    }
  }
  if (!options.by_rows) {
    out.before_rows.clear();
    out.after_rows.clear();
  }
  if (!options.difference.empty()) out.target = std::move(moved_to);
  return out;
}

}  // namespace lumen::model::compress
