#include "model/infer/sample/ranking.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"

namespace lumen::model {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr size_t kGrowth = 8;
constexpr size_t kRun = 32;  // logits compared at once

// The largest f32 that is not above the bound: who reaches the bound reaches it.
float at_most(double bound) {
  const auto f = float(bound);
  return f > bound ? std::nextafter(f, -std::numeric_limits<float>::infinity()) : f;
}

}  // namespace

Ranking::Ranking(std::span<const float> logits, const std::vector<bool>& barred,
                 const std::unordered_map<TokenId, double>& changed, size_t first)
    : logits_(logits), hidden_(barred), first_(std::max<size_t>(1, first)) {
  hidden_.resize(logits.size(), false);
  for (const auto& [id, logit] : changed) {
    if (id < 0 || static_cast<size_t>(id) >= logits.size() || hidden_[id]) continue;
    hidden_[id] = true;
    if (logit > kNever) extra_.push_back({id, logit});
  }
}

Ranking::Ranking(const Narrowed& narrowed, const std::vector<bool>& barred, size_t barred_count,
                 const std::unordered_map<TokenId, double>& changed)
    : first_(1), narrowed_(&narrowed), gone_unknown_(barred_count) {
  LUMEN_CHECK(!narrowed.best.empty());
  const Candidate most = narrowed.best.front(), least = narrowed.best.back();
  const auto is_barred = [&](TokenId id) { return std::cmp_less(id, barred.size()) && barred[id]; };
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
    if (logit > kNever) {
      extra_.push_back({id, logit});
    } else {
      --count_;
    }
  }
  // What is changed has its rank where that lies among the known ones.
  for (const Candidate& c : extra_)
    if (!is_better(least, c)) ranked_.push_back(c);
  std::sort(ranked_.begin(), ranked_.end(), is_better);
}

void Ranking::only(const std::vector<bool>& allowed) {
  if (narrowed_) throw Undecided();
  const auto is_allowed = [&](size_t i) { return i < allowed.size() && allowed[i]; };
  for (size_t i = 0; i < hidden_.size(); ++i) {
    if (!is_allowed(i)) hidden_[i] = true;
  }
  std::erase_if(extra_, [&](const Candidate& c) { return !is_allowed(c.id); });
  ranked_.clear();
  complete_ = false;
}

void Ranking::take(std::vector<Candidate> ranked) {
  ranked_ = std::move(ranked);
  complete_ = true;
}

void Ranking::keep(size_t most) {
  LUMEN_CHECK(most > 0);
  if (has(most - 1)) ranked_.resize(most);
  complete_ = true;
}

bool Ranking::find(size_t i) {
  while (!complete_ && i >= ranked_.size()) rank(ranked_.empty() ? std::max(first_, i + 1) : ranked_.size() * kGrowth);
  return i < ranked_.size();
}

const std::vector<Candidate>& Ranking::all() {
  if (!complete_) rank(logits_.size());
  return ranked_;
}

template <typename Visit>
void Ranking::each(Visit visit) const {
  for (const Candidate& c : extra_) visit(c.logit);
  for (size_t i = 0; i < logits_.size(); ++i) {
    if (logits_[i] > kNever && !hidden_[i]) visit(double{logits_[i]});
  }
}

size_t Ranking::count() {
  if (complete_) return ranked_.size();
  if (narrowed_) return count_;
  size_t n = 0;
  each([&](double) { ++n; });
  return n;
}

double Ranking::total(double temperature) {
  double sum = 0;
  if (!has(0)) return sum;
  if (narrowed_ && !complete_) throw Undecided();
  const double best = ranked_[0].logit;
  const auto add = [&](double logit) { sum += std::exp((logit - best) / temperature); };
  if (complete_) {
    for (const Candidate& c : ranked_) add(c.logit);
  } else {
    each(add);
  }
  return sum;
}

Ranking::Bounds Ranking::total_within(double temperature) {
  if (!narrowed_ || complete_) {
    const double sum = total(temperature);
    return {sum, sum};
  }
  if (temperature != narrowed_->temperature || !has(0)) throw Undecided();
  const double most = narrowed_->best.front().logit, least = narrowed_->best.back().logit;
  const auto weight_of = [&](double logit) { return std::exp((logit - most) / temperature); };
  double known = 0, left = 0, fresh = 0, hidden = 0;
  for (const Candidate& c : narrowed_->best) known += weight_of(c.logit);
  for (const Candidate& c : ranked_) left += weight_of(c.logit);
  for (const Candidate& c : extra_) {
    fresh += weight_of(c.logit);
    if (is_better(narrowed_->best.back(), c)) hidden += weight_of(c.logit);
  }
  const double sum = narrowed_->sum, slack = sum * Narrowed::kSumError;
  const double stays = std::max(sum - slack, known) - gone_ - double(gone_unknown_) * weight_of(least) + fresh;
  // There is at least what is known to be.
  const double low = std::max(stays, (left + hidden) * (1 - Narrowed::kSumError)), high = sum + slack - gone_ + fresh;
  const double scale = std::exp((most - ranked_[0].logit) / temperature);
  if (!std::isfinite(scale)) throw Undecided();
  return {low * scale, std::max(low, high) * scale};
}

void Ranking::rank(size_t most) {
  if (narrowed_) throw Undecided();
  std::vector<Candidate>& best = ranked_;
  best = extra_;
  complete_ = true;
  float least = at_most(kNever);  // below it nothing is among the best
  const size_t room = 2 * most + kRun;
  const auto cut = [&] {
    if (best.size() <= most) return;
    std::nth_element(best.begin(), best.begin() + (most - 1), best.end(), is_better);
    best.resize(most);
    least = at_most(best.back().logit);
    complete_ = false;
  };
  const auto look = [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) {
      const float x = logits_[i];
      if (x >= least && x > kNever && !hidden_[i]) best.push_back({TokenId(i), x});
    }
    if (best.size() >= room) cut();
  };
  const float* const x = logits_.data();
  size_t i = 0;
  for (; i + kRun <= logits_.size(); i += kRun) {
    int any = 0;
#pragma omp simd reduction(| : any)
    for (size_t j = 0; j < kRun; ++j) any |= x[i + j] >= least ? 1 : 0;
    if (any != 0) look(i, i + kRun);
  }
  look(i, logits_.size());
  cut();
  std::sort(best.begin(), best.end(), is_better);
}

}  // namespace lumen::model
