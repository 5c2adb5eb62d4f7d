// Half-quadratic splitting (HQQ, Badri and Shaji 2023), for any format whose codes can be chosen under given fields,
// without a text: errors should be sparse, so they are measured by a norm p < 1. A shrinkage, which decreases from step
// to step, sets outliers of the error aside, and fields are fitted again to the rest. The reference moves an integer
// format's zero point to the mean of the rest. Here the format's own fit gives the fields, for weights that are shifted
// and stretched per group by the line that maps decoded values to the rest: in a format with an offset that moves the
// offset, in one without the scale. A group keeps the fields of its least norm.
#include <cmath>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "base/threads/team.h"
#include "model/compress/strategy/each.h"
#include "run/engine/feedback/feedback.h"

namespace lumen::model::compress {
namespace {

constexpr double kBeta = 10, kGrowth = 1.01;  // the reference's

double shrunk(double x, double beta, double p) {
  const double size = std::abs(x);
  if (size == 0) return 0;
  return std::copysign(std::max(size - std::pow(size, p - 1) / beta, 0.0), x);
}

class HalfQuadraticRounder : public Rounder {
 public:
  HalfQuadraticRounder(run::Engine& engine, const StrategyOptions& options) : engine_(engine), options_(options) {}

  Rounding round(const RoundingTask& t) override {
    const int64_t rows = t.all_rows(), columns = t.columns, count = rows * columns;
    const int64_t group = t.format->block > 1 && t.format->row_bytes == 0 ? t.format->block : columns;
    const int64_t groups = count / group;
    begin_shape(t.format, rows, columns);
    std::vector<int32_t> order(columns);
    std::iota(order.begin(), order.end(), 0);
    // Codes of the weights under the fields fitted to weights * stretch + shift.
    std::vector<double> stretch(groups, 1), shift(groups, 0);
    std::vector<float> moved(count);
    const auto rounded = [&](const std::vector<double>& by, const std::vector<double>& plus) {
      parallel_for(0, count, [&](int64_t i) { moved[i] = t.values[i] * by[i / group] + plus[i / group]; });
      const std::vector<uint8_t> fields = engine_.encode(t.format, moved.data(), rows, columns);
      return rounder_->run({.w = t.values, .importance = {}, .order = order, .rounded = fields});
    };
    run::RoundedMatrix best = rounded(stretch, shift);
    std::vector<double> norms = norms_of(t, best.values, group);
    const double before = total(norms);
    // Fields shared by groups (of rows, tiles, the tensor) may change differently than in each group's trial.
    const bool apart = t.format->row_bytes == 0 && t.format->tile_bytes == 0 && t.format->tensor_bytes == 0;
    bool merges = false;  // best.values are of several trials, best.blob is of one
    std::vector<double> by, plus;
    double beta = kBeta;
    for (int k = 0; k < options_.iterations; ++k, beta *= kGrowth) {
      by = stretch;
      plus = shift;
      parallel_for(0, groups, [&](int64_t g) {
        const Line line = line_of(t, best.values, g * group, group, beta, k % 2 == 0);
        by[g] = stretch[g] * line.by;
        plus[g] = shift[g] * line.by + line.plus;
      });
      const run::RoundedMatrix trial = rounded(by, plus);
      const std::vector<double> now = norms_of(t, trial.values, group);
      bool better = false;
      for (int64_t g = 0; g < groups; ++g) {
        if (!(now[g] < norms[g])) continue;
        stretch[g] = by[g];
        shift[g] = plus[g];
        better = true;
        if (!apart) continue;
        norms[g] = now[g];
        std::copy_n(trial.values.begin() + g * group, group, best.values.begin() + g * group);
      }
      merges |= apart && better;
      if (!better || apart) continue;
      run::RoundedMatrix merged = rounded(stretch, shift);
      std::vector<double> merged_norms = norms_of(t, merged.values, group);
      if (total(merged_norms) >= total(norms)) break;
      best = std::move(merged);
      norms = std::move(merged_norms);
    }
    if (merges) best = rounded(stretch, shift);
    Rounding out;
    out.blob = std::move(best.blob);
    out.values = std::move(best.values);
    if (before > 0) out.remark = fmt::format("norm of errors x {:.3f}", total(norms) / before);
    return out;
  }

 private:
  // The rounder of a shape and format is reused by the next weight.
  void begin_shape(const FormatRef& format, int64_t rows, int64_t columns) {
    const auto shape = std::tuple(format->hash.hex(), rows, columns);
    if (rounder_ && shape == shape_) return;
    rounder_ = std::make_unique<run::FeedbackRounder>(engine_, format, rows, columns,
                                                      run::FeedbackOptions{.weighs = false, .in_order = true});
    shape_ = shape;
  }

  static double total(const std::vector<double>& x) { return std::accumulate(x.begin(), x.end(), 0.0); }

  std::vector<double> norms_of(const RoundingTask& t, std::span<const float> values, int64_t group) const {
    std::vector<double> out(std::ssize(values) / group);
    parallel_for(0, std::ssize(out), [&](int64_t g) {
      for (int64_t i = g * group; i < (g + 1) * group; ++i)
        out[g] += std::pow(std::abs(double{values[i]} - t.values[i]), options_.norm);
    });
    return out;
  }

  // decoded * by + plus is the least squares fit of the weights less the error's outliers.
  struct Line {
    double by = 1, plus = 0;
  };
  Line line_of(const RoundingTask& t, std::span<const float> values, int64_t begin, int64_t group, double beta,
               bool shifts) const {
    double size = 0;
    for (int64_t i = begin; i < begin + group; ++i) size += double{t.values[i]} * t.values[i];
    size = std::sqrt(size / group);
    if (size == 0) return {};
    double moved = 0, product = 0, square = 0;
    for (int64_t i = begin; i < begin + group; ++i) {
      const double error = double{t.values[i]} - values[i];
      const double rest = t.values[i] - size * shrunk(error / size, beta, options_.norm);
      moved += rest - values[i];
      product += rest * values[i];
      square += double{values[i]} * values[i];
    }
    if (shifts) return {1, moved / group};
    return {square > 0 && product > 0 ? product / square : 1, 0};
  }

  run::Engine& engine_;
  const StrategyOptions options_;
  std::tuple<std::string, int64_t, int64_t> shape_;
  std::unique_ptr<run::FeedbackRounder> rounder_;
};

class HalfQuadratic : public Strategy {
 public:
  std::string_view name() const override { return "hqq"; }
  std::string_view about() const override { return "fields fitted to sparse errors; needs no text"; }
  std::optional<std::string> refuses(const Format& f, const StrategyOptions&) const override {
    if (!f.encodes()) return "it can only be read";
    if (!run::rounds_in_order(f)) return "its codes cannot be chosen under given fields";
    return std::nullopt;
  }
  std::unique_ptr<Rounder> rounder(run::Engine& engine, const StrategyOptions& options) const override {
    return std::make_unique<HalfQuadraticRounder>(engine, options);
  }
};

}  // namespace

const Strategy& half_quadratic_strategy() {
  static const HalfQuadratic s;
  return s;
}

}  // namespace lumen::model::compress
