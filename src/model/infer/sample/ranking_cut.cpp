// Cuts by shares of the weight: top-p and locally typical sampling.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "model/infer/sample/ranking.h"

namespace lumen::model {
namespace {

constexpr int64_t kSampled = 96;  // groups of a sample
constexpr int kSteps = 256;       // of logits in it

// In doubt are at first tokens with so much of the weight on both sides of where the share is reached in the sample, at
// most and as a part of the weight beyond it.
constexpr double kMostMargin = 0.02, kMargin = 0.2;

// A comparison of two sums in f32 is certain beyond these factors.
constexpr double kLow = 1 - 2 * kWeightError, kHigh = 1 + 2 * kWeightError;

constexpr double kAll = std::numeric_limits<double>::infinity();
constexpr LogitRange kNone{kMostLogit, kMostLogit};  // has no logit that is finite

}  // namespace

// What a sample of the groups says about how the weight is distributed over logits; the tokens with the best ranks,
// which have much of it, are known.
class Ranking::Outline {
 public:
  // `middle`: what distances are measured from, at most the best logit.
  Outline(Ranking& ranking, double middle, bool is_typical) {
    const double best = ranking.ranked_[0].logit;
    const auto known = float(ranking.ranked_.back().logit);
    const std::vector<float>& peaks = ranking.peaks();
    const int64_t stride = std::max<int64_t>(1, std::ssize(peaks) / kSampled);
    std::vector<float> sample(size_t(Race::kGroup) * size_t(std::ssize(peaks) / stride + 1));
    size_t count = 0;  // without branches, which could not be predicted
    const float least = std::max(ranking.least_, float(best - kDepth));
    float lowest = known;
    for (int64_t g = stride / 2; g < std::ssize(peaks); g += stride) {
      if (!(peaks[g] >= least)) continue;
      float room[Race::kGroup];
      const float* const x = logits_of_group(ranking.logits_, ranking.hidden_, g, room);
      for (int64_t j = 0; j < Race::kGroup; ++j) {
        sample[count] = x[j];
        const bool is_in = (x[j] >= least) & (x[j] < known);
        lowest = std::min(lowest, is_in ? x[j] : lowest);
        count += is_in ? 1 : 0;
      }
    }
    const double depth = std::max(best - double{lowest}, 1e-6), step = depth / kSteps;
    std::vector<double> masses(kSteps + 1, 0);
    const auto top = float(best), each = float(1 / step);
    const auto step_of = [&](float logit) { return std::min(kSteps, int((top - logit) * each)); };
    for (size_t i = 0; i < count; ++i) masses[step_of(sample[i])] += double(stride);
    for (int i = 0; i <= kSteps; ++i) masses[i] *= std::exp(-(i + 0.5) * step);
    for (const Candidate& c : ranking.ranked_) masses[std::max(0, step_of(float(c.logit)))] += ranking.weight_of(c, 1);
    const double down = (best - middle) / step;
    const auto distance = [&](int i) { return std::fabs(i + 0.5 - down); };
    int upper = is_typical ? std::clamp(int(down), 0, kSteps) : 0, lower = upper + 1;
    for (int i = 0; i <= kSteps; ++i) {
      const bool goes_up = lower > kSteps || (upper >= 0 && distance(upper) < distance(lower));
      const int next = goes_up ? upper-- : lower++;
      all_ += masses[next];
      steps_.emplace_back((distance(next) + 0.5) * step, all_);
    }
    step_ = step;
  }
  // Within the distance `to` there is this share of the sample's weight, and less within `from`.
  struct Place {
    double from, to;
  };
  Place at(double share) const {
    auto step =
        std::partition_point(steps_.begin(), steps_.end(), [&](const auto& s) { return s.second < share * all_; });
    if (step == steps_.end()) --step;
    return {step->first - 1.01 * step_, step->first};
  }

 private:
  std::vector<std::pair<double, double>> steps_;  // distance, weight within it
  double all_ = 0, step_ = 0;                     // all weight, distance of a step
};

bool Ranking::is_reached_with(double least, double share) {
  if (!has(0)) return true;
  if (narrowed_ && !complete_) throw Undecided();
  if (!complete_ && !is_small()) {
    const LogitRange those{least_of_weight(least), kMostLogit};
    // Changed logits are f64 numbers, which may lie between the f32 bound and the exact one.
    const bool is_clear = std::ranges::none_of(
        extra_, [&](const Candidate& c) { return those.has(c.logit) != (weight_of(c, 1) >= least); });
    const double mass = sums(1, those, those, false, std::max(least_, those.low)).all;
    const bool is_less = mass * kHigh < share * sum_beyond(mass * kHigh / (share * kLow)) * kLow;
    if (is_clear && is_less) return false;
    if (is_clear && mass * kLow > share * summed_ * kHigh) return true;
  }
  double all = 0, mass = 0;
  const auto add = [&](const Candidate& c) {
    const double w = weight_of(c, 1);
    all += w;
    if (w >= least) mass += w;
  };
  if (complete_)
    std::ranges::for_each(ranked_, add);
  else
    each(add);
  return reaches(mass, share, all);
}

// The sum of weights at temperature 1 in f32, or a part of it that exceeds `enough`.
double Ranking::sum_beyond(double enough) {
  constexpr size_t kTogether = 64;  // groups
  if (summed_at_ == 1) return summed_;
  double sum = 0;
  for (const Candidate& c : extra_) sum += weight_of(c, 1);
  const double best = ranked_[0].logit, factor = std::exp(double{float(best)} - best);
  const Weighing how{float(best), 1, least_, {}, {}, false};
  for (size_t g = 0; g < peaks().size(); g += kTogether) {
    sum += factor * sum_weights(logits_, peaks(), how, hidden_, g, std::min(peaks_.size(), g + kTogether)).all;
    if (sum > enough) return sum;
  }
  summed_at_ = 1;
  summed_ = sum;
  return sum;
}

void Ranking::keep_share(double share) {
  cut(share, false);
}

void Ranking::keep_typical(double share) {
  cut(share, true);
}

void Ranking::cut(double share, bool is_typical) {
  if (!has(0)) return;
  if (narrowed_ && !complete_) throw Undecided();
  if (complete_ || is_small()) {
    cut_ = {share, is_typical, kNone, {}};
    return settle();
  }
  const double best = ranked_[0].logit;
  double middle = best, slack = 0;
  if (is_typical) {
    const WeightSums s = sums(1, {}, {}, true, least_);
    middle = best + s.moment / s.all;
    slack = 1e-4 + 10 * kWeightError * (best - middle) + 1e-6 * (std::fabs(best) + std::fabs(middle));
  }
  const auto range = [&](double distance) {
    return LogitRange{float(middle - distance), is_typical ? float(middle + distance) : kMostLogit};
  };
  const Outline outline(*this, middle, is_typical);
  // The last token may be a known one.
  if (!is_typical && outline.at(share).from < best - ranked_.back().logit && ends_among_known(share, sum_beyond(kAll)))
    return;
  double margin = std::min(kMostMargin, kMargin * (1 - share)), from = share - margin, to = share + margin;
  LogitRange near, far;
  WeightSums s;
  for (;; margin *= 4) {
    const bool none = from <= 0, all = to >= 1;
    near = none ? kNone : range(outline.at(from).from);
    far = all ? LogitRange{} : range(outline.at(to).to);
    s = sums(1, near, far, false, least_);
    const double wanted = share * s.all;
    const bool is_too_much = !none && !(s.near * kHigh < wanted * kLow);
    const bool is_too_little = !all && !(s.far * kLow > wanted * kHigh);
    if (!is_too_much && !is_too_little) break;
    const bool is_surely_too_much = s.near * kLow > wanted * kHigh;
    if (is_surely_too_much) to = from;
    if (is_too_much) from -= 4 * margin;
    if (is_too_little) to += 4 * margin;
  }
  if (!is_typical && ends_among_known(share, s.all)) return;
  // Distances are from an inexact middle.
  if (is_typical && near.low <= near.high) {
    near = {float(near.low + 2 * slack), float(near.high - 2 * slack)};
  }
  if (is_typical) far = {float(far.low - 2 * slack), float(far.high + 2 * slack)};
  cut_ = {share, is_typical, near, far};
}

// Whether a share of the weight is surely reached among the known ranks; the others are removed then.
bool Ranking::ends_among_known(double share, double all) {
  double mass = 0;
  for (size_t n = 1; n <= ranked_.size(); ++n) {
    mass += weight_of(ranked_[n - 1], 1);
    if (mass * kHigh < share * all) continue;
    if (mass < share * all * kHigh) return false;  // not certain
    ranked_.resize(n);
    complete_ = true;
    return true;
  }
  return false;
}

// Adds weights up in f64, and puts the tokens in doubt in order.
void Ranking::settle() {
  if (!cut_) return;
  const Cut cut = *std::exchange(cut_, std::nullopt);
  const double best = ranked_[0].logit;
  double all = 0, moment = 0, mass = 0;
  bool any = false;
  std::vector<Candidate> doubt;
  const auto add = [&](const Candidate& c) {
    const double w = weight_of(c, 1);
    all += w;
    moment += w * (c.logit - best);
    if (cut.near.has(c.logit)) {
      mass += w;
      any = true;
    } else if (cut.far.has(c.logit)) {
      doubt.push_back(c);
    }
  };
  const bool is_list = complete_;
  if (is_list)
    std::ranges::for_each(ranked_, add);
  else
    each(add);
  const double middle = cut.is_typical ? best + moment / all : best;
  const auto is_before = [&](const Candidate& a, const Candidate& b) {
    const double of_a = std::fabs(a.logit - middle), of_b = std::fabs(b.logit - middle);
    return of_a < of_b || (of_a == of_b && is_better(a, b));
  };
  // Equal logits are in order already; sorting them all could take long.
  if (!std::is_sorted(doubt.begin(), doubt.end(), is_before)) std::sort(doubt.begin(), doubt.end(), is_before);
  size_t kept = 0;
  for (; kept < doubt.size() && !(any && reaches(mass, cut.share, all)); ++kept) {
    mass += weight_of(doubt[kept], 1);
    any = true;
  }
  TokenSet dropped;
  for (size_t i = kept; i < doubt.size(); ++i) dropped.add(doubt[i].id);
  const auto is_out = [&](const Candidate& c) { return !cut.far.has(c.logit) || dropped.has(c.id); };
  if (is_list) {
    std::erase_if(ranked_, is_out);
    return;
  }
  std::erase_if(extra_, is_out);
  for (size_t i = kept; i < doubt.size(); ++i) hidden_.add(doubt[i].id);
  if (cut.is_typical) {
    TokenSet inside(logits_.size());
    each([&](const Candidate& c) {
      if (cut.far.has(c.logit)) inside.add(c.id);
    });
    hide_others(inside);
  } else {
    least_ = std::max(least_, cut.far.low);
    forget_ranks();
  }
}

}  // namespace lumen::model
