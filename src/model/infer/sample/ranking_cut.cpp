// Cuts by shares of the weight: top-p and locally typical sampling.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "model/infer/sample/ranking.h"

namespace lumen::model::infer {
namespace {

// In doubt are at first tokens with so much of the weight on both sides of where the share is reached in the sample: so
// many standard deviations of its error, and at least that.
constexpr double kDeviations = 2, kLeastMargin = 1e-3;

// A comparison of two sums in f32 is certain beyond these factors.
constexpr double kLow = 1 - 2 * kWeightError, kHigh = 1 + 2 * kWeightError;

constexpr double kAll = std::numeric_limits<double>::infinity();
constexpr LogitRange kNone{kMostLogit, kMostLogit};  // has no logit that is finite

}  // namespace

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

void Ranking::keep_share_and_weights(double share, double least) {
  if (!has(0)) return;
  if (!complete_ && !is_small() && !narrowed_) {
    // Where the weights decide, a part of the sum is often enough to know it.
    const Outline sample = outline(std::max(least_, float(ranked_[0].logit - kDepth)));
    const Outline::Curve curve = sample.weights_from_best();
    const bool may_be_weights =
        -std::log(least) < curve.at(std::min(1.0, share + kDeviations * curve.error(share)) * curve.all()).to;
    if (may_be_weights && !is_reached_with(least, share)) return keep_weights(least);
    prove_cut(share, false, sample);
    const float lightest = least_of_weight(least);
    if (cut_ && lightest <= cut_->far.low) return;
    // All that are heavy enough are among those that are kept for sure.
    if (cut_ && lightest > cut_->near.low) cut_.reset();
  } else if (!is_reached_with(least, share)) {
    return keep_weights(least);
  } else {
    keep_share(share);
  }
  settle();
  keep_weights(least);
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
  prove_cut(share, is_typical, outline(std::max(least_, float(ranked_[0].logit - kDepth))));
}

// Finds ranges of logits that are kept and that may be kept, by sums in f32.
void Ranking::prove_cut(double share, bool is_typical, const Outline& outline) {
  const double best = ranked_[0].logit;
  double middle = is_typical ? outline.mean() : best, slack = 0;
  Outline::Curve curve = is_typical ? outline.weights_from(middle) : outline.weights_from_best();
  const auto at = [&](double part) { return curve.at(part * curve.all()); };
  // The last token may be a known one.
  if (!is_typical && at(share).from < best - ranked_.back().logit && ends_among_known(share, sum_beyond(kAll))) return;
  const auto range = [&](double distance) {
    return LogitRange{float(middle - distance), is_typical ? float(middle + distance) : kMostLogit};
  };
  // Tokens that count as 0 do not move the middle by more than that.
  const double lightest = double(logits_.size()) * 2 * kDepth * std::exp(-kDepth);
  double margin = kDeviations * curve.error(share) + kLeastMargin, from = share - margin, to = share + margin;
  for (;; margin *= 4) {
    const bool none = from <= 0, all = to >= 1;
    const double kept_within = none ? -1 : at(from).from, kept_beyond = at(to).to;
    const LogitRange near = kept_within > 0 ? range(kept_within) : kNone, far = all ? LogitRange{} : range(kept_beyond);
    const WeightSums s = sums(1, near, far, is_typical, least_);
    const double wanted = share * s.all;
    const bool is_too_much = near.low <= near.high && !(s.near * kHigh < wanted * kLow);
    const bool is_too_little = !all && !(s.far * kLow > wanted * kHigh);
    double shift = 0;  // of the middle
    if (is_typical) {
      const double exact = best + s.moment / s.all;
      shift = std::fabs(exact - middle);
      middle = exact;
      slack = 3 * kWeightError * (best - middle) + lightest + 1e-6 * (std::fabs(best) + std::fabs(middle));
    }
    if (!is_too_much && !is_too_little) {
      cut_ = {share, is_typical, near, far, near, s.all, s.near, middle, slack};
      if (!is_typical) break;
      // What is nearer to the exact middle than this was kept, and what is farther from it than that was not.
      const double kept = kept_within - shift - 2 * slack;
      cut_->near = near.low <= near.high && kept > 0 ? range(kept) : kNone;
      if (!all) cut_->far = range(kept_beyond + shift + 2 * slack);
      break;
    }
    if (is_typical) curve = outline.weights_from(middle);
    const bool is_surely_too_much = s.near * kLow > wanted * kHigh;
    if (is_surely_too_much) to = from;
    if (is_too_much) from -= 4 * margin;
    if (is_too_little) to += 4 * margin;
  }
  if (!is_typical && ends_among_known(share, cut_->all)) cut_.reset();
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

std::vector<Candidate> Ranking::doubtful() {
  std::vector<Candidate> out;
  const LogitRange far{std::max(cut_->far.low, least_), cut_->far.high};
  tokens_between(logits_, peaks(), hidden_, cut_->near, far, out);
  for (const Candidate& c : extra_)
    if (far.has(c.logit) && !cut_->near.has(c.logit)) out.push_back(c);
  return out;
}

// Decides most of the tokens in doubt by their weights: by steps of logits, and one by one where the share is reached.
void Ranking::refine() {
  constexpr int kSteps = 256;
  Cut& cut = *cut_;
  cut.is_refined = true;
  const double best = ranked_[0].logit, wanted = cut.share * cut.all, error = 3 * kWeightError * cut.all;
  const std::vector<Candidate> doubt = doubtful();
  const auto distance_of = [&](const Candidate& c) {
    return cut.is_typical ? std::fabs(c.logit - cut.middle) : best - c.logit;
  };
  struct Doubtful {
    Candidate token;
    double distance, weight;
  };
  std::vector<Doubtful> tokens;
  tokens.reserve(doubt.size());
  double nearest = kAll, farthest = 0, mass = cut.mass;
  for (const Candidate& c : doubt) {
    tokens.push_back({c, distance_of(c), weight_of(c, 1)});
    nearest = std::min(nearest, tokens.back().distance);
    farthest = std::max(farthest, tokens.back().distance);
    if (cut.summed.has(c.logit)) mass -= tokens.back().weight;
  }
  const double each = kSteps / std::max(farthest - nearest, 1e-300);
  const auto step_of = [&](const Doubtful& d) { return std::min(kSteps - 1, int((d.distance - nearest) * each)); };
  std::vector<double> masses(kSteps, 0);
  for (const Doubtful& d : tokens) masses[step_of(d)] += d.weight;
  int begin = 0;
  for (; begin < kSteps && mass + masses[begin] < wanted - error; ++begin) mass += masses[begin];
  int end = begin;
  for (double reached = mass; end < kSteps && !(reached > wanted + error); ++end) reached += masses[end];
  // Distances are from an inexact middle: tokens so near to each other may be in the other order.
  const double unordered = 2 * cut.slack;
  const auto around = int(std::min<double>(kSteps, std::ceil(unordered * each)));
  for (int i = 0; i < around && begin > 0; ++i) mass -= masses[--begin];
  end = std::min(kSteps, end + around);
  double first_unsure = kAll, last_possible = -1;  // the least distance that may be left out, the most that may be kept
  for (const Doubtful& d : tokens) {
    if (step_of(d) < begin) last_possible = std::max(last_possible, d.distance);
    if (step_of(d) >= end) first_unsure = std::min(first_unsure, d.distance);
  }
  std::erase_if(tokens, [&](const Doubtful& d) { return step_of(d) < begin || step_of(d) >= end; });
  std::sort(tokens.begin(), tokens.end(), [](const Doubtful& a, const Doubtful& b) {
    return a.distance < b.distance || (a.distance == b.distance && is_better(a.token, b.token));
  });
  std::vector<double> before{mass};
  for (const Doubtful& d : tokens) before.push_back(before.back() + d.weight);
  for (size_t i = 0, low = 0, high = 0; i < tokens.size(); ++i) {
    const double distance = tokens[i].distance;
    while (low < i && (unordered == 0 || tokens[low].distance < distance - unordered)) ++low;
    high = std::max(high, i + 1);
    while (high < tokens.size() && tokens[high].distance < distance + unordered) ++high;
    if (!(before[high] - tokens[i].weight < wanted - error)) first_unsure = std::min(first_unsure, distance);
    if (!(before[low] > wanted + error)) last_possible = std::max(last_possible, distance);
  }
  const double rounding = 1e-12 * (std::fabs(best) + std::fabs(cut.middle) + 1);
  if (first_unsure == kAll) {
    cut.near = cut.far;
  } else {
    cut.near.low = std::nextafter(at_most(cut.middle - first_unsure + rounding), kMostLogit);
    cut.near.high =
        cut.is_typical ? std::nextafter(at_least(cut.middle + first_unsure - rounding), -kMostLogit) : kMostLogit;
  }
  const bool has_end = end < kSteps || (!tokens.empty() && last_possible < tokens.back().distance);
  if (has_end && last_possible >= 0) {
    cut.far.low = std::max(cut.far.low, at_most(cut.middle - last_possible - rounding));
    if (cut.is_typical) cut.far.high = std::min(cut.far.high, at_least(cut.middle + last_possible + rounding));
    cut.near = {std::max(cut.near.low, cut.far.low), std::min(cut.near.high, cut.far.high)};
  }
}

// Adds weights up in f64, and puts the tokens in doubt in order.
void Ranking::settle() {
  if (!cut_) return;
  const bool is_list = complete_, is_each = is_list || is_small();
  if (!is_each && !cut_->is_refined) refine();
  const double best = ranked_[0].logit;
  double all = 0, moment = 0, mass = 0;
  std::vector<Candidate> doubt;
  if (is_each) {
    const auto add = [&](const Candidate& c) {
      const double w = weight_of(c, 1);
      all += w;
      moment += w * (c.logit - best);
      doubt.push_back(c);
    };
    if (is_list)
      std::ranges::for_each(ranked_, add);
    else
      each(add);
  } else {
    const ExactSums sums = exact(1, cut_->near);
    all = sums.all;
    moment = sums.moment;
    mass = sums.near;
    doubt = doubtful();
  }
  const Cut cut = *std::exchange(cut_, std::nullopt);
  const double middle = cut.is_typical ? best + moment / all : best;
  const auto is_before = [&](const Candidate& a, const Candidate& b) {
    const double of_a = std::fabs(a.logit - middle), of_b = std::fabs(b.logit - middle);
    return of_a < of_b || (of_a == of_b && is_better(a, b));
  };
  // Equal logits are in order already; sorting them all could take long.
  if (!std::is_sorted(doubt.begin(), doubt.end(), is_before)) std::sort(doubt.begin(), doubt.end(), is_before);
  size_t kept = 0;
  for (; kept < doubt.size() && !(mass > 0 && reaches(mass, cut.share, all)); ++kept) mass += weight_of(doubt[kept], 1);
  TokenSet dropped;
  for (size_t i = kept; i < doubt.size(); ++i) dropped.add(doubt[i].id);
  const auto is_out = [&](const Candidate& c) { return !cut.far.has(c.logit) || dropped.has(c.id); };
  if (is_list) {
    std::erase_if(ranked_, is_out);
    return;
  }
  std::erase_if(extra_, is_out);
  for (size_t i = kept; i < doubt.size(); ++i) hidden_.add(doubt[i].id);
  if (cut.far.high < kMostLogit) {
    std::vector<Candidate> above;
    const LogitRange range{std::nextafter(cut.far.high, kMostLogit), kMostLogit};
    tokens_between(logits_, peaks(), hidden_, kNone, range, above);
    for (const Candidate& c : above) hidden_.add(c.id);
  }
  least_ = std::max(least_, cut.far.low);
  forget_ranks();
}

}  // namespace lumen::model::infer
