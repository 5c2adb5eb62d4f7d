#include "model/infer/sample/ranking.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "base/check.h"

namespace lumen::model::infer {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr size_t kGrowth = 8;
constexpr size_t kRun = 32;      // logits compared at once
constexpr size_t kSmall = 4096;  // vocabularies up to this size are sorted as a whole

// The largest of numbers i, i + stride, .. for each i < stride; all numbers if there are fewer.
std::vector<float> largest_of_strides(std::span<const float> numbers, size_t stride) {
  std::vector<float> out(numbers.begin(), numbers.begin() + std::ptrdiff_t(std::min(stride, numbers.size())));
  for (size_t first = stride; first < numbers.size(); first += stride) {
    const size_t count = std::min(stride, numbers.size() - first);
    for (size_t i = 0; i < count; ++i) out[i] = std::max(out[i], numbers[first + i]);
  }
  return out;
}

}  // namespace

Ranking::Ranking(std::span<const float> logits, const TokenSet& barred,
                 const std::unordered_map<text::TokenId, double>& changed, size_t first)
    : logits_(logits), hidden_(barred), least_(at_most(kNever)), first_(std::max<size_t>(1, first)) {
  hidden_.resize(logits.size());
  for (const auto& [id, logit] : changed) {
    if (id < 0 || static_cast<size_t>(id) >= logits.size() || hidden_.has(id)) continue;
    hidden_.add(id);
    if (logit > kNever) extra_.push_back({id, logit});
  }
}

Ranking::Ranking(const Narrowed& narrowed, const TokenSet& barred, size_t barred_count,
                 const std::unordered_map<text::TokenId, double>& changed)
    : hidden_(barred), least_(at_most(kNever)), first_(1), narrowed_(&narrowed), gone_unknown_(barred_count) {
  LUMEN_CHECK(!narrowed.best.empty());
  hidden_.resize(narrowed.vocabulary);
  const Candidate most = narrowed.best.front(), least = narrowed.best.back();
  const auto is_barred = [&](text::TokenId id) { return barred.has(id); };
  const auto lose = [&](double logit) { gone_ += std::exp((logit - most.logit) / narrowed.temperature); };
  count_ = narrowed.vocabulary - barred_count;
  for (const Candidate& c : narrowed.best) {
    if (is_barred(c.id)) {
      lose(c.logit);
      --gone_unknown_;
    } else if (!changed.contains(c.id)) {
      ranked_.push_back(c);
    }
  }
  for (const auto& [id, logit] : changed) {
    if (id < 0 || id >= narrowed.vocabulary || is_barred(id)) continue;
    lose(narrowed.at(id));
    hidden_.add(id);
    if (logit > kNever) {
      extra_.push_back({id, logit});
    } else {
      --count_;
    }
  }
  // A token with a changed logit is ranked if it is better than the worst known one.
  for (const Candidate& c : extra_)
    if (!is_better(least, c)) ranked_.push_back(c);
  std::sort(ranked_.begin(), ranked_.end(), is_better);
}

bool Ranking::is_small() const {
  return logits_.size() <= kSmall;
}

void Ranking::forget_ranks() {
  ranked_.clear();
  complete_ = false;
  summed_at_ = 0;
  peaks_.clear();
}

const std::vector<float>& Ranking::peaks() {
  if (!peaks_.empty()) return peaks_;
  peaks_.resize(groups_of(logits_.size()));
  peaks_of(logits_, hidden_, peaks_);
  for (const Candidate& c : extra_) {
    float& peak = peaks_[c.id / Race::kGroup];
    peak = std::max(peak, at_least(c.logit));
  }
  peaks_are_met_ = true;
  return peaks_;
}

// Only tokens with changed logits can be outside of the set.
void Ranking::only_of_masked(const TokenSet& allowed) {
  const auto is_outside = [&](const Candidate& c) { return !allowed.has(c.id); };
  hidden_.add_all_outside(allowed);
  std::erase_if(extra_, is_outside);
  std::erase_if(ranked_, is_outside);
  count_ = hidden_.size() - hidden_.count() + extra_.size();
  if (!narrowed_->is_complete) return;
  for (const Candidate& c : extra_)
    if (is_better(narrowed_->best.back(), c)) ranked_.push_back(c);
  std::sort(ranked_.begin(), ranked_.end(), is_better);
  complete_ = true;
}

void Ranking::only(const TokenSet& allowed) {
  if (is_masked()) return only_of_masked(allowed);
  if (narrowed_) throw Undecided();
  settle();
  hide_others(allowed);
}

void Ranking::hide_others(const TokenSet& kept) {
  hidden_.add_all_outside(kept);
  std::erase_if(extra_, [&](const Candidate& c) { return !kept.has(c.id); });
  forget_ranks();
}

void Ranking::take(std::vector<Candidate> ranked) {
  cut_.reset();
  ranked_ = std::move(ranked);
  complete_ = true;
}

void Ranking::keep(size_t most) {
  LUMEN_CHECK(most > 0);
  settle();
  if (most <= kFewRanks || complete_ || narrowed_ || is_small()) {
    if (has(most - 1)) ranked_.resize(most);
    complete_ = true;
    return;
  }
  if (!has(0)) return;
  if (complete_ || ranked_.size() >= most) {
    ranked_.resize(std::min(most, ranked_.size()));
    complete_ = true;
    return;
  }
  keep_many(most);
}

// A sample says about where the last one is. The tokens that surely are better are counted, and those around it are
// gathered.
void Ranking::keep_many(size_t most) {
  constexpr int kMostZooms = 20;
  constexpr double kFewSteps = 8, kDeviations = 2.5;
  const double best = ranked_[0].logit;
  float least = std::max(least_, std::numeric_limits<float>::lowest());
  Outline sample = outline(least);
  for (int zooms = 0; zooms < kMostZooms; ++zooms) {  // a few very low logits may be far below all others
    const double to = sample.tokens_from_best().at(2 * double(most)).to;
    const auto closer = float(best - to);
    if (to > kFewSteps * sample.step() || !(closer > least)) break;
    sample = outline(least = closer);
  }
  const Outline::Curve curve = sample.tokens_from_best();
  std::vector<Candidate> doubt;
  for (double margin = kDeviations * std::sqrt(double(most) * sample.tokens_for_each());; margin *= 4) {
    const bool none = double(most) <= margin, all = double(most) + margin >= curve.all();
    const LogitRange inner{none ? kMostLogit : float(best - curve.at(double(most) - margin).from), kMostLogit};
    const LogitRange outer{all ? least_ : float(best - curve.at(double(most) + margin).to), kMostLogit};
    doubt.clear();
    size_t better = tokens_between(logits_, peaks(), hidden_, inner, outer, doubt);
    for (const Candidate& c : extra_) {
      if (inner.has(c.logit))
        ++better;
      else if (outer.has(c.logit))
        doubt.push_back(c);
    }
    if (better < most && better + doubt.size() >= most) {
      const auto last = doubt.begin() + std::ptrdiff_t(most - better - 1);
      std::nth_element(doubt.begin(), last, doubt.end(),
                       [](const Candidate& a, const Candidate& b) { return is_better(a, b); });  // becomes inline
      return drop_worse(*last, doubt);
    }
    if (better < most && all) return;
  }
}

// Whether the last token that is kept is among the known ranks; the others are removed then.
template <typename Keeps>
bool Ranking::keep_known(const Keeps& keeps) {
  const auto end = std::partition_point(ranked_.begin() + 1, ranked_.end(), keeps);
  if (!complete_ && end == ranked_.end()) return false;
  ranked_.erase(end, ranked_.end());
  complete_ = true;
  return true;
}

void Ranking::keep_down_to(const Candidate& last) {
  if (!has(0) || keep_known([&](const Candidate& c) { return !is_better(last, c); })) return;
  // A narrowed row does not have the tokens that are as good as the last one.
  if (narrowed_ && last.id != kNoToken) throw Undecided();
  std::vector<Candidate> equal;
  const auto logit = float(last.logit);
  if (last.id != kNoToken) tokens_between(logits_, peaks(), hidden_, {kMostLogit, kMostLogit}, {logit, logit}, equal);
  drop_worse(last, equal);
}

// `equal`: among others, all tokens of the row with the logit of `last`.
void Ranking::drop_worse(const Candidate& last, std::span<const Candidate> equal) {
  raise_least(at_least(last.logit));
  drop_changed([&](const Candidate& c) { return is_better(last, c); });
  for (const Candidate& c : equal) {
    if (c.logit != last.logit || c.id <= last.id) continue;
    hidden_.add(c.id);
    peaks_are_met_ = false;
    summed_at_ = 0;
  }
}

void Ranking::raise_least(float least) {
  if (!(least > least_)) return;
  least_ = least;
  const bool is_same = summed_at_ > 0 && least <= least_that_counts(float(ranked_[0].logit), scale_of(summed_at_));
  if (!is_same) summed_at_ = 0;
}

template <typename IsDropped>
void Ranking::drop_changed(const IsDropped& is_dropped) {
  if (std::erase_if(extra_, is_dropped) > 0) summed_at_ = 0;
}

// The smallest f32 whose weight at temperature 1 is at least `least`, by halving the numbers in between.
float Ranking::least_of_weight(double least) const {
  const auto order = [](float x) {
    const auto bits = std::bit_cast<int32_t>(x);
    return int64_t{bits < 0 ? std::numeric_limits<int32_t>::min() - bits : bits};
  };
  const auto number = [](int64_t n) {
    return std::bit_cast<float>(int32_t(n < 0 ? std::numeric_limits<int32_t>::min() - n : n));
  };
  const double bound = ranked_[0].logit + std::log(least);
  int64_t below = order(at_most(bound - 1)), from = order(at_least(ranked_[0].logit));
  while (from - below > 1) {
    const int64_t middle = below + (from - below) / 2;
    (weight_of({0, number(middle)}, 1) >= least ? from : below) = middle;
  }
  return number(from);
}

void Ranking::keep_weights(double least) {
  const auto weighs = [&](const Candidate& c) { return weight_of(c, 1) >= least; };
  if (!has(0) || keep_known(weighs)) return;
  raise_least(least_of_weight(least));
  drop_changed([&](const Candidate& c) { return !weighs(c); });
}

void Ranking::leave_out(size_t count) {
  settle();
  LUMEN_CHECK(count < ranked_.size());
  for (size_t i = 0; i < count; ++i) hidden_.add(ranked_[i].id);
  std::erase_if(extra_, [&](const Candidate& c) { return hidden_.has(c.id) && is_better(c, ranked_[count]); });
  ranked_.erase(ranked_.begin(), ranked_.begin() + std::ptrdiff_t(count));
  summed_at_ = 0;
  peaks_are_met_ = false;
}

double Ranking::standard_deviation() {
  settle();
  if (narrowed_ && !complete_) throw Undecided();
  const double best = has(0) ? ranked_[0].logit : 0;
  LogitMoments m;
  const auto add = [&](const Candidate& c) {
    const double x = c.logit - best;
    m.count += 1;
    m.sum += x;
    m.squares += x * x;
  };
  if (!complete_ && !is_small()) m = moments_of(logits_, hidden_, least_, best);
  for (const Candidate& c : complete_ ? ranked_ : is_small() ? left() : extra_) add(c);
  const double mean = m.sum / std::max(m.count, 1.0);
  return std::sqrt(std::max(0.0, m.squares / std::max(m.count, 1.0) - mean * mean));
}

bool Ranking::find(size_t i) {
  settle();
  while (!complete_ && i >= ranked_.size()) rank(ranked_.empty() ? std::max(first_, i + 1) : ranked_.size() * kGrowth);
  return i < ranked_.size();
}

const std::vector<Candidate>& Ranking::all() {
  settle();
  if (!complete_) rank(logits_.size());
  return ranked_;
}

std::vector<Candidate> Ranking::left() {
  settle();
  if (complete_) return ranked_;
  std::vector<Candidate> out;
  each([&](const Candidate& c) { out.push_back(c); });
  return out;
}

size_t Ranking::count() {
  settle();
  if (complete_) return ranked_.size();
  if (narrowed_) return count_;
  return size_t(moments_of(logits_, hidden_, least_, 0).count) + extra_.size();
}

double Ranking::weight_of(const Candidate& c, double temperature) const {
  return std::exp((c.logit - ranked_[0].logit) / temperature);
}

double Ranking::total(double temperature) {
  double sum = 0;
  if (!has(0)) return sum;
  if (narrowed_ && !complete_) throw Undecided();
  const auto add = [&](const Candidate& c) { sum += weight_of(c, temperature); };
  if (complete_)
    std::ranges::for_each(ranked_, add);
  else if (is_small())
    each(add);
  else
    sum = exact(temperature, {}).all;
  return sum;
}

ExactSums Ranking::exact(double temperature, LogitRange near) {
  const double best = ranked_[0].logit;
  ExactSums out = exact_sums(logits_, peaks(), hidden_, {best, 1 / temperature, least_, near});
  for (const Candidate& c : extra_) {
    const double w = weight_of(c, temperature);
    out.all += w;
    out.near += near.has(c.logit) ? w : 0;
    out.moment += w * (c.logit - best);
  }
  return out;
}

Outline Ranking::outline(float least) {
  return Outline(logits_, peaks(), hidden_, ranked_, least);
}

WeightSums Ranking::sums(double temperature, LogitRange near, LogitRange far, bool moments, float least) {
  const double best = ranked_[0].logit, scale = scale_of(temperature);
  const Weighing how{float(best), float(scale), least, near, far, moments};
  WeightSums out = sum_weights(logits_, peaks(), how, hidden_, 0, peaks().size());
  // A changed logit is a f64 number, and may be the best one.
  const double down = double{how.best} - best, factor = std::exp(down * scale);
  out = {out.all * factor, out.near * factor, out.far * factor, (out.moment + down * out.all) * factor};
  for (const Candidate& c : extra_) {
    const double w = c.logit >= least ? weight_of(c, temperature) : 0;
    out.all += w;
    out.near += near.has(c.logit) ? w : 0;
    out.far += far.has(c.logit) ? w : 0;
    out.moment += w * (c.logit - best);
  }
  if (!moments) out.moment = 0;
  if (least == least_) {
    summed_at_ = temperature;
    summed_ = out.all;
  }
  return out;
}

Ranking::Bounds Ranking::total_within(double temperature) {
  settle();
  if (!narrowed_ || complete_) {
    if (complete_ || is_small() || !has(0)) {
      const double sum = total(temperature);
      return {sum, sum};
    }
    if (summed_at_ != temperature) (void)sums(temperature, {}, {}, false, least_);
    return {summed_ * (1 - kWeightError), summed_ * (1 + kWeightError)};
  }
  if (temperature != narrowed_->temperature || least_ > kNever || !has(0)) throw Undecided();
  const double most = narrowed_->best.front().logit, least = narrowed_->best.back().logit;
  const auto of_most = [&](double logit) { return std::exp((logit - most) / temperature); };
  double known = 0, left = 0, fresh = 0, hidden = 0;
  for (const Candidate& c : narrowed_->best) known += of_most(c.logit);
  for (const Candidate& c : ranked_) left += of_most(c.logit);
  for (const Candidate& c : extra_) {
    fresh += of_most(c.logit);
    if (is_better(narrowed_->best.back(), c)) hidden += of_most(c.logit);
  }
  const double sum = narrowed_->sum, slack = sum * Narrowed::kSumError;
  const double stays = std::max(sum - slack, known) - gone_ - double(gone_unknown_) * of_most(least) + fresh;
  // A lower bound by the tokens that are known.
  const double low = std::max(stays, (left + hidden) * (1 - Narrowed::kSumError)), high = sum + slack - gone_ + fresh;
  const double scale = std::exp((most - ranked_[0].logit) / temperature);
  if (!std::isfinite(scale)) throw Undecided();
  return {low * scale, std::max(low, high) * scale};
}

// A lower bound of the k-th best logit. The k-th largest peak is one, and nearly as good is the k-th largest of some
// peaks that are each the largest of a few, which is found sooner; of more tokens than there are groups, a sample
// says about where it is, and a count whether this is right.
float Ranking::bound_of_best(size_t most) {
  constexpr size_t kSampled = 64;  // groups
  constexpr size_t kForEach = 4;   // numbers that are looked at, for each of the best
  std::vector<float> some;
  const bool is_of_peaks = most < peaks().size();
  if (is_of_peaks) {
    some = largest_of_strides(peaks_, kForEach * most);
  } else {
    const size_t stride = std::max<size_t>(1, peaks_.size() / kSampled);
    for (size_t g = stride / 2; g < peaks_.size(); g += stride) {
      float room[Race::kGroup];
      const float* const x = logits_of_group(logits_, hidden_, g, room);
      some.insert(some.end(), x, x + Race::kGroup);
    }
  }
  const double share = 1.2 * double(most) / double(logits_.size());
  const auto at = is_of_peaks ? most : size_t(std::ceil(share * double(some.size())));
  if (at == 0 || at > some.size()) return least_;
  std::nth_element(some.begin(), some.begin() + std::ptrdiff_t(at - 1), some.end(), std::greater<>());
  const float bound = std::max(least_, some[at - 1]);
  const bool is_enough = is_of_peaks || moments_of(logits_, hidden_, bound, 0).count >= double(most);
  return is_enough ? bound : least_;
}

// The best tokens, in any order. The groups with the largest peaks come first, so that what is the best so far soon
// excludes the others.
std::vector<Candidate> Ranking::best_of(size_t most, bool* is_all) {
  if (narrowed_) throw Undecided();
  if (!peaks_are_met_) peaks_.clear();
  const float bound = bound_of_best(most);
  std::vector<std::pair<float, int64_t>> groups;
  *is_all = true;
  for (int64_t g = 0; g < std::ssize(peaks_); ++g) {
    if (!(peaks_[g] >= least_ && peaks_[g] > kNever)) continue;
    if (peaks_[g] >= bound)
      groups.emplace_back(-peaks_[g], g);
    else
      *is_all = false;
  }
  if (most <= kFewRanks) std::sort(groups.begin(), groups.end());
  std::vector<Candidate> best = extra_;
  Candidate last{kNoToken, bound};  // nothing worse can be among the best
  const size_t room = 2 * most + Race::kGroup;
  const auto cut = [&] {
    if (best.size() <= most) return;
    std::nth_element(best.begin(), best.begin() + std::ptrdiff_t(most - 1), best.end(), is_better);
    best.resize(most);
    last = best.back();
    *is_all = false;
  };
  for (const auto& [peak, g] : groups) {
    if (-peak < last.logit) {
      *is_all = false;
      continue;
    }
    const size_t first = g * Race::kGroup, count = std::min<size_t>(Race::kGroup, logits_.size() - first);
    const float* const x = logits_.data() + first;
    const float least = at_most(last.logit);
    for (size_t i = 0; i < count; i += kRun) {
      const size_t end = std::min(i + kRun, count);
      int any = 0;
#pragma omp simd reduction(| : any)
      for (size_t j = i; j < end; ++j) any |= x[j] >= least ? 1 : 0;
      if (any == 0) continue;
      for (size_t j = i; j < end; ++j) {
        const Candidate c{text::TokenId(first + j), x[j]};
        if (x[j] < least || x[j] == -kMostLogit || hidden_.has(first + j)) continue;
        if (!is_better(last, c)) best.push_back(c);
      }
      if (least > least_) *is_all = false;
    }
    if (best.size() >= room) cut();
  }
  cut();
  return best;
}

void Ranking::rank(size_t most) {
  ranked_ = best_of(most, &complete_);
  std::sort(ranked_.begin(), ranked_.end(), is_better);
}

}  // namespace lumen::model::infer
