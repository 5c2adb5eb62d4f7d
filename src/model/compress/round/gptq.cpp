#include "model/compress/round/gptq.h"

#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/error.h"

namespace lumen::model {
Gptq::~Gptq() = default;

std::vector<double> Gptq::errors(const std::vector<float>& target, std::span<const float> values, int64_t rows,
                                 Moments& moments) {
  std::vector<float> lost(target.size());
  for (size_t k = 0; k < lost.size(); ++k) lost[k] = target[k] - values[k];
  return output_errors_.of(lost, rows, moments.columns(), moments.on_device(engine_));
}

std::vector<float> Gptq::moved(std::span<const float> w, int64_t rows, Moments& moments,
                               std::span<const float> difference) {
  const int64_t columns = moments.columns();
  LUMEN_CHECK(std::ssize(difference) == columns * columns, "{} differences for {} columns", difference.size(), columns);
  for (int64_t k = 0; k < std::ssize(difference); ++k)
    if (!std::isfinite(difference[k]))
      throw Error(Exit::numeric, fmt::format("the difference of activations at row {}, column {} is {}", k / columns,
                                             k % columns, difference[k]));
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
  std::vector<float> target(w.begin(), w.end());
  for (const int64_t c : moments.dead())
    for (int64_t r = 0; r < rows; ++r) target[r * columns + c] = 0;
  if (!options.difference.empty()) target = moved(target, rows, moments, options.difference);
  for (const int64_t c : moments.dead())
    for (int64_t r = 0; r < rows; ++r) target[r * columns + c] = 0;

  const bool weighs = options.weighs && format->weighs();
  const run::FeedbackOptions how{weighs, !moments.order().empty()};
  auto& rounder = rounders_[{format->hash.hex(), rows, columns, how.weighs, how.in_order}];
  if (!rounder) rounder = std::make_unique<run::FeedbackRounder>(engine_, format, rows, columns, how);
  const std::vector<float> importance = weighs ? moments.diagonal() : std::vector<float>{};
  std::vector<uint8_t> nearest;
  std::vector<float> nearest_values;
  const auto sum = [](const std::vector<double>& x) { return std::accumulate(x.begin(), x.end(), 0.0); };
  if (options.measures || !options.under.empty()) {
    nearest = options.under.empty() ? engine_.encode(format, target.data(), rows, columns, importance)
                                    : std::vector<uint8_t>(options.under.begin(), options.under.end());
    nearest_values = engine_.decode(format, nearest.data(), rows, columns);
    out.before_rows = errors(target, nearest_values, rows, moments);
    out.before = sum(out.before_rows);
  }
  run::RoundedMatrix rounded =
      rounder->run({.w = target, .importance = importance, .order = moments.order(), .rounded = nearest},
                   moments.feedback(engine_, rounder->tiling()));
  out.blob = std::move(rounded.blob);
  out.values = std::move(rounded.values);
  if (options.measures) {
    out.after_rows = errors(target, out.values, rows, moments);
    out.after = sum(out.after_rows);
    if (out.is_nearest = out.after >= out.before && out.before > 0; out.is_nearest) {
      out.blob = std::move(nearest);
      out.values = std::move(nearest_values);
      out.after_rows = out.before_rows;
      out.after = out.before;
    }
  }
  if (!options.by_rows) {
    out.before_rows.clear();
    out.after_rows.clear();
  }
  if (!options.difference.empty()) out.target = std::move(target);
  return out;
}

}  // namespace lumen::model
