#include "model/infer/sample/outline.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/check.h"
#include "model/infer/sample/race.h"

namespace lumen::model::infer {
namespace {

constexpr size_t kSampled = 96;  // groups
constexpr int kSteps = 256;      // of logits in them

}  // namespace

Outline::Outline(std::span<const float> logits, std::span<const float> peaks, const TokenSet& hidden,
                 std::span<const Candidate> known, float least)
    : best_(known.front().logit) {
  const size_t stride = std::max<size_t>(1, peaks.size() / kSampled);
  stride_ = double(stride);
  const auto sample = std::make_unique_for_overwrite<float[]>(size_t(Race::kGroup) * (peaks.size() / stride + 1));
  size_t count = 0;
  for (size_t g = stride / 2; g < peaks.size(); g += stride) {
    if (!(peaks[g] >= least)) continue;
    float room[Race::kGroup];
    const float* const x = logits_of_group(logits, hidden, g, room);
    std::copy_n(x, Race::kGroup, sample.get() + count);
    count += size_t(Race::kGroup);
  }
  const std::span<const float> sampled(sample.get(), count);
  const LogitRange in{least, float(known.back().logit)};
  step_ = std::max(best_ - double{least_above(sampled, in)}, 1e-6) / kSteps;
  std::vector<uint32_t> counts(kSteps + 2, 0);  // the last is of other tokens
  const auto top = float(best_), each = float(1 / step_);
  count_steps(sampled, in, top, each, counts);
  tokens_.resize(kSteps + 1);
  masses_.resize(kSteps + 1);
  variances_.resize(kSteps + 1);
  double weight = stride_ * std::exp(-0.5 * step_);  // of one in the sample
  const double lighter = std::exp(-step_);
  for (int i = 0; i <= kSteps; ++i, weight *= lighter) {
    tokens_[i] = counts[i] * stride_;
    masses_[i] = counts[i] * weight;
    variances_[i] = masses_[i] * weight * (1 - 1 / stride_);
  }
  for (const Candidate& c : known) {
    const int i = std::clamp(int((top - float(c.logit)) * each), 0, kSteps);
    tokens_[i] += 1;
    masses_[i] += std::exp(c.logit - best_);
  }
}

double Outline::mean() const {
  double all = 0, moment = 0;
  for (int i = 0; i <= kSteps; ++i) {
    all += masses_[i];
    moment += masses_[i] * (i + 0.5) * step_;
  }
  return best_ - moment / all;
}

Outline::Curve Outline::weights_from_best() const {
  Curve out;
  out.step_ = step_;
  for (int i = 0; i <= kSteps; ++i) out.add((i + 1) * step_, masses_[i], variances_[i]);
  return out;
}

Outline::Curve Outline::tokens_from_best() const {
  Curve out;
  out.step_ = step_;
  for (int i = 0; i <= kSteps; ++i) out.add((i + 1) * step_, tokens_[i], 0);
  return out;
}

Outline::Curve Outline::weights_from(double middle) const {
  Curve out;
  out.step_ = step_;
  const double down = (best_ - middle) / step_;
  const auto distance = [&](int i) { return std::fabs(i + 0.5 - down); };
  int upper = std::clamp(int(down), 0, kSteps), lower = upper + 1;
  for (int i = 0; i <= kSteps; ++i) {
    const bool goes_up = lower > kSteps || (upper >= 0 && distance(upper) < distance(lower));
    const int next = goes_up ? upper-- : lower++;
    out.add((distance(next) + 0.5) * step_, masses_[next], variances_[next]);
  }
  return out;
}

double Outline::Curve::error(double share) const {
  const auto is_before = [&](const Step& s) { return s.within < share * all_; };
  const auto step = std::partition_point(steps_.begin(), steps_.end(), is_before);
  const double within = step == steps_.end() ? variance_ : step->variance;
  return std::sqrt((1 - share) * (1 - share) * within + share * share * (variance_ - within)) / all_;
}

Outline::Curve::Place Outline::Curve::at(double amount) const {
  const auto is_before = [&](const Step& s) { return s.within < amount; };
  auto step = std::partition_point(steps_.begin(), steps_.end(), is_before);
  if (step == steps_.end()) --step;
  return {step->distance - 1.01 * step_, step->distance};
}

}  // namespace lumen::model::infer
