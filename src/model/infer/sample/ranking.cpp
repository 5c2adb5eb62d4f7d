#include "model/infer/sample/ranking.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "model/infer/sample/weights.h"

namespace lumen::model {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr size_t kGrowth = 8;
constexpr size_t kRun = 32;       // logits compared per loop iteration
constexpr size_t kSmall = 4096;   // vocabularies up to this size are sorted as a whole
constexpr size_t kSorted = 4096;  // most ranks sorted for larger ones
constexpr int32_t kBuckets = 2048;
constexpr double kMostKey = 87;  // tokens whose scaled logits are lower than the best by this have no weight

// The largest f32 not above the bound; every number >= bound is also >= it.
float at_most(double bound) {
  const auto f = float(bound);
  return f > bound ? std::nextafter(f, -std::numeric_limits<float>::infinity()) : f;
}

// The smallest f32 not below the bound.
float at_least(double bound) {
  return -at_most(-bound);
}

// Rankings reuse the memory of weights, so that half a megabyte is not allocated for each token.
thread_local std::vector<float> spare_weights;

constexpr size_t kGroupWords = size_t{Race::kGroup} / TokenSet::kWord;  // words of a TokenSet in a group of tokens
static_assert(Race::kGroup % TokenSet::kWord == 0);

int64_t group_of(const Candidate& c) {
  return c.id / Race::kGroup;
}

}  // namespace

// The leading group of a race, and the leading token in it.
struct Ranking::Lead {
  double ratio = -1;
  Candidate token{-1, kNever};
};

Ranking::Ranking(std::span<const float> logits, const TokenSet& barred,
                 const std::unordered_map<TokenId, double>& changed, size_t first)
    : logits_(logits), hidden_(barred), least_(at_most(kNever)), first_(std::max<size_t>(1, first)) {
  hidden_.resize(logits.size());
  for (const auto& [id, logit] : changed) {
    if (id < 0 || static_cast<size_t>(id) >= logits.size() || hidden_.has(id)) continue;
    hidden_.add(id);
    if (logit > kNever) extra_.push_back({id, logit});
  }
}

Ranking::Ranking(const Narrowed& narrowed, const TokenSet& barred, size_t barred_count,
                 const std::unordered_map<TokenId, double>& changed)
    : hidden_(barred), least_(at_most(kNever)), first_(1), narrowed_(&narrowed), gone_unknown_(barred_count) {
  LUMEN_CHECK(!narrowed.best.empty());
  hidden_.resize(narrowed.vocabulary);
  const Candidate most = narrowed.best.front(), least = narrowed.best.back();
  const auto is_barred = [&](TokenId id) { return barred.has(id); };
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

Ranking::~Ranking() {
  if (weights_.size() > spare_weights.size()) spare_weights = std::move(weights_);
}

bool Ranking::is_small() const {
  return logits_.size() <= kSmall;
}

void Ranking::forget_ranks() {
  ranked_.clear();
  complete_ = false;
  weighed_at_ = 0;
}

void Ranking::only(const TokenSet& allowed) {
  if (narrowed_) throw Undecided();
  hidden_.add_all_outside(allowed);
  std::erase_if(extra_, [&](const Candidate& c) { return !allowed.has(c.id); });
  forget_ranks();
}

void Ranking::take(std::vector<Candidate> ranked) {
  ranked_ = std::move(ranked);
  complete_ = true;
}

void Ranking::keep(size_t most) {
  LUMEN_CHECK(most > 0);
  if (most <= kSorted || complete_ || narrowed_ || is_small()) {
    if (has(most - 1)) ranked_.resize(most);
    complete_ = true;
    return;
  }
  if (!has(0)) return;
  std::vector<Candidate> some = left();
  if (some.size() <= most) return;
  std::nth_element(some.begin(), some.begin() + (most - 1), some.end(), is_better);
  keep_down_to(some[most - 1]);
}

void Ranking::keep_down_to(const Candidate& last) {
  if (!has(0)) return;
  const auto first_worse =
      std::partition_point(ranked_.begin() + 1, ranked_.end(), [&](const Candidate& c) { return !is_better(last, c); });
  if (complete_ || first_worse != ranked_.end()) {
    ranked_.erase(first_worse, ranked_.end());
    complete_ = true;
    return;
  }
  // A narrowed row does not have the tokens that are as good as the last one.
  if (narrowed_ && last.id != kNoToken) throw Undecided();
  least_ = std::max(least_, at_least(last.logit));
  std::erase_if(extra_, [&](const Candidate& c) { return is_better(last, c); });
  for (size_t i = std::max<int64_t>(0, int64_t{last.id} + 1); i < logits_.size(); ++i)
    if (logits_[i] == last.logit) hidden_.add(i);
  weighed_at_ = 0;
  if (!narrowed_) gather();
}

void Ranking::gather() {
  std::vector<Candidate> all = extra_;
  const float* const x = logits_.data();
  const float least = least_;
  for (size_t i = 0; i < logits_.size(); i += kRun) {
    const size_t count = std::min(kRun, logits_.size() - i);
    int any = 0;
#pragma omp simd reduction(| : any)
    for (size_t j = 0; j < count; ++j) any |= x[i + j] >= least ? 1 : 0;
    if (any == 0) continue;
    for (size_t j = i; j < i + count; ++j)
      if (x[j] >= least && x[j] > kNever && !hidden_.has(j)) all.push_back({TokenId(j), x[j]});
    if (all.size() > kSorted) return;
  }
  std::sort(all.begin(), all.end(), is_better);
  ranked_ = std::move(all);
  complete_ = true;
}

void Ranking::leave_out(size_t count) {
  LUMEN_CHECK(count < ranked_.size());
  for (size_t i = 0; i < count; ++i) hidden_.add(ranked_[i].id);
  std::erase_if(extra_, [&](const Candidate& c) { return hidden_.has(c.id) && is_better(c, ranked_[count]); });
  ranked_.erase(ranked_.begin(), ranked_.begin() + std::ptrdiff_t(count));
  weighed_at_ = 0;
}

double Ranking::standard_deviation() {
  if (narrowed_ && !complete_) throw Undecided();
  double count = 0, sum = 0, squares = 0;
  const double best = has(0) ? ranked_[0].logit : 0;
  const auto add = [&](const Candidate& c) {
    const double x = c.logit - best;
    count += 1;
    sum += x;
    squares += x * x;
  };
  if (complete_)
    for (const Candidate& c : ranked_) add(c);
  else
    each(add);
  const double mean = sum / std::max(count, 1.0);
  return std::sqrt(std::max(0.0, squares / std::max(count, 1.0) - mean * mean));
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
  for (const Candidate& c : extra_) visit(c);
  for (size_t i = 0; i < logits_.size(); ++i) {
    if (logits_[i] >= least_ && logits_[i] > kNever && !hidden_.has(i)) visit(Candidate{TokenId(i), logits_[i]});
  }
}

std::vector<Candidate> Ranking::left() const {
  std::vector<Candidate> out;
  each([&](const Candidate& c) { out.push_back(c); });
  return out;
}

size_t Ranking::count() {
  if (complete_) return ranked_.size();
  if (narrowed_) return count_;
  size_t n = 0;
  each([&](const Candidate&) { ++n; });
  return n;
}

double Ranking::weight_of(const Candidate& c, double temperature) const {
  return std::exp((c.logit - ranked_[0].logit) / temperature);
}

void Ranking::weigh(double temperature) {
  if (weighed_at_ == temperature) return;
  if (weights_.empty()) weights_.swap(spare_weights);
  weights_.resize(logits_.size());
  sums_.resize((logits_.size() + TokenSet::kWord - 1) / TokenSet::kWord);
  const Weighing how{float(ranked_[0].logit), float(std::min(1 / temperature, 1e30)), least_};
  weighed_ = weights_of(logits_, how, hidden_, weights_, sums_);
  weighed_at_ = temperature;
}

double Ranking::total(double temperature) {
  double sum = 0;
  if (!has(0)) return sum;
  if (narrowed_ && !complete_) throw Undecided();
  const auto add = [&](const Candidate& c) { sum += weight_of(c, temperature); };
  if (complete_) {
    for (const Candidate& c : ranked_) add(c);
  } else if (is_small()) {
    each(add);
  } else {
    weigh(temperature);
    sum = weighed_;
    for (const Candidate& c : extra_) add(c);
  }
  return sum;
}

double Ranking::total_down_to(double logit, double temperature) {
  double sum = 0;
  if (!has(0)) return sum;
  const auto add = [&](const Candidate& c) {
    if (c.logit >= logit) sum += weight_of(c, temperature);
  };
  if (complete_) {
    for (const Candidate& c : ranked_) add(c);
    return sum;
  }
  if (narrowed_) throw Undecided();
  if (is_small()) {
    each(add);
    return sum;
  }
  weigh(temperature);
  const float* const x = logits_.data();
  const float* const w = weights_.data();
  const float least = at_least(logit);
  for (size_t i = 0; i < logits_.size(); i += kRun) {
    const size_t count = std::min(kRun, logits_.size() - i);
    float part = 0;
#pragma omp simd reduction(+ : part)
    for (size_t j = 0; j < count; ++j) part += x[i + j] >= least ? w[i + j] : 0;
    sum += part;
  }
  for (const Candidate& c : extra_) add(c);
  return sum;
}

// Two passes: the first adds up weights in buckets, the second collects the tokens of the bucket in which the sum
// reaches the mass. `key` (branch-free) maps a logit to its place in the order, from 0 to `largest`; larger keys share
// the last bucket.
template <typename Key>
std::vector<Candidate> Ranking::reached(double mass, double temperature, const Key& key, float largest) {
  constexpr size_t kTogether = 64;
  constexpr float kLast = kBuckets - 1;
  const float scale = largest > 0 ? kLast / largest : 0;
  // Excluded logits may be better than the best; they have zero weight and count in the first bucket.
  const auto bucket_of = [&](float logit) {
    const float at = key(logit) * scale, from_first = at > 0 ? at : 0;
    return static_cast<int32_t>(from_first < kLast ? from_first : kLast);
  };
  const auto each_run = [&](const auto& visit) {
    int32_t buckets[kTogether];
    for (size_t i = 0; i < logits_.size(); i += kTogether) {
      const size_t count = std::min(kTogether, logits_.size() - i);
#pragma omp simd
      for (size_t j = 0; j < count; ++j) buckets[j] = bucket_of(logits_[i + j]);
      visit(i, count, buckets);
    }
  };
  weigh(temperature);
  std::vector<double> sums(kBuckets, 0);
  each_run([&](size_t i, size_t count, const int32_t* buckets) {
    for (size_t j = 0; j < count; ++j) sums[buckets[j]] += weights_[i + j];
  });
  for (const Candidate& c : extra_) sums[bucket_of(float(c.logit))] += weight_of(c, temperature);
  int32_t crossing = 0;
  double before = 0, all = 0;
  for (int32_t b = 0; b < kBuckets && (b == 0 || all < mass); ++b) {
    if (sums[b] == 0) continue;
    crossing = b;
    before = all;
    all += sums[b];
  }
  std::vector<std::pair<float, Candidate>> bucket;
  each_run([&](size_t i, size_t count, const int32_t* buckets) {
    int any = 0;
#pragma omp simd reduction(| : any)
    for (size_t j = 0; j < count; ++j) any |= buckets[j] == crossing ? 1 : 0;
    if (any == 0) return;
    for (size_t j = 0; j < count; ++j)
      if (buckets[j] == crossing && weights_[i + j] > 0)
        bucket.emplace_back(key(logits_[i + j]), Candidate{TokenId(i + j), logits_[i + j]});
  });
  const size_t whole = bucket.size();
  for (const Candidate& c : extra_)
    if (bucket_of(float(c.logit)) == crossing) bucket.emplace_back(key(float(c.logit)), c);
  const auto is_before = [](const auto& a, const auto& b) {
    return a.first < b.first || (a.first == b.first && is_better(a.second, b.second));
  };
  // Equal logits are in order already; sorting them all could take long.
  if (whole != bucket.size() || !std::is_sorted(bucket.begin(), bucket.end(), is_before))
    std::sort(bucket.begin(), bucket.end(), is_before);
  std::vector<Candidate> out;
  for (const auto& [at, c] : bucket) {
    out.push_back(c);
    before += weight_of(c, temperature);
    if (before >= mass) break;
  }
  return out;
}

Candidate Ranking::reaching(double mass, double temperature) {
  LUMEN_CHECK(has(0));
  if (complete_ || is_small()) {
    double sum = 0;
    for (size_t i = 0;; ++i) {
      sum += weight_of(ranked_[i], temperature);
      if (sum >= mass || !has(i + 1)) return ranked_[i];
    }
  }
  if (narrowed_) throw Undecided();
  const auto best = float(ranked_[0].logit);
  return reached(mass, temperature, [best](float logit) { return best - logit; }, spread(temperature)).back();
}

// All tokens of a group come together.
void Ranking::enter(std::vector<Candidate> tokens, const Race& race, double temperature, Lead& lead) const {
  std::sort(tokens.begin(), tokens.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  for (size_t first = 0, end = 0; first < tokens.size(); first = end) {
    const int64_t group = group_of(tokens[first]);
    double sum = 0;
    for (end = first; end < tokens.size() && group_of(tokens[end]) == group; ++end)
      sum += weight_of(tokens[end], temperature);
    const double ratio = sum / race.of_group(group);
    if (ratio <= lead.ratio) continue;
    lead.ratio = ratio;
    double best = -1;
    for (size_t i = first; i < end; ++i) {
      const double own = weight_of(tokens[i], temperature) / race.of_token(tokens[i].id);
      if (own <= best) continue;
      best = own;
      lead.token = tokens[i];
    }
  }
}

Candidate Ranking::winner(const Race& race, double temperature) {
  LUMEN_CHECK(has(0));
  if (!complete_ && narrowed_) return winner_of_narrowed(race, temperature);
  if (!complete_ && !is_small()) return winner_of_whole(race, temperature);
  Lead lead;
  enter(complete_ ? ranked_ : left(), race, temperature, lead);
  return lead.token;
}

std::vector<Candidate> Ranking::left_in_group(int64_t group, std::span<const float> logits) const {
  std::vector<Candidate> out;
  const int64_t first = group * Race::kGroup;
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] >= least_ && logits[i] > kNever && !hidden_.has(first + i))
      out.push_back({TokenId(first + i), logits[i]});
  for (const Candidate& c : extra_)
    if (group_of(c) == group) out.push_back(c);
  return out;
}

// Sums in f32 find the groups that may win; they are added up again in f64, as everywhere.
Candidate Ranking::winner_of_whole(const Race& race, double temperature) {
  constexpr double kSumError = 1e-3;  // relative; ten times what sums of weights in f32 have
  weigh(temperature);
  std::vector<double> ratios((sums_.size() + kGroupWords - 1) / kGroupWords, 0);
  for (size_t w = 0; w < sums_.size(); ++w) ratios[w / kGroupWords] += sums_[w];
  for (const Candidate& c : extra_) ratios[group_of(c)] += weight_of(c, temperature);
  double most = 0;
  for (size_t g = 0; g < ratios.size(); ++g) {
    // A logarithm is only taken where the ratio may be among the largest.
    const double bound = ratios[g] / race.least_of_group(int64_t(g));
    ratios[g] = bound <= most * (1 - kSumError) ? 0 : ratios[g] / race.of_group(int64_t(g));
    most = std::max(most, ratios[g]);
  }
  Lead lead;
  for (size_t g = 0; g < ratios.size(); ++g) {
    if (ratios[g] == 0 || ratios[g] < most * (1 - kSumError)) continue;
    const size_t first = g * Race::kGroup, count = std::min<size_t>(Race::kGroup, logits_.size() - first);
    enter(left_in_group(int64_t(g), logits_.subspan(first, count)), race, temperature, lead);
  }
  return lead.token;
}

Candidate Ranking::winner_of_narrowed(const Race& race, double temperature) const {
  const Narrowed& n = *narrowed_;
  if (n.front.empty() || n.race_key != race.key() || n.temperature != temperature) throw Undecided();
  Lead lead;
  double bound = std::numeric_limits<double>::infinity();  // of the ratios of other groups with all their tokens
  for (const Narrowed::Group& group : n.front) {
    double sum = 0;
    for (size_t i = 0; i < group.logits.size(); ++i) sum += weight_of({0, group.logits[i]}, temperature);
    bound = std::min(bound, sum / race.of_group(group.number));
    enter(left_in_group(group.number, group.logits), race, temperature, lead);
  }
  if (!n.has_others) return lead.token;
  bound *= 1 + Narrowed::kSumError;
  const auto is_in_front = [&](int64_t number) {
    return std::any_of(n.front.begin(), n.front.end(), [&](const Narrowed::Group& g) { return g.number == number; });
  };
  // Tokens with changed logits add to their group's ratio at most their own.
  double changed = 0;
  for (const Candidate& c : extra_)
    if (!is_in_front(group_of(c))) changed += weight_of(c, temperature) / race.of_group(group_of(c));
  if (!(bound + changed < lead.ratio)) throw Undecided();
  return lead.token;
}

float Ranking::spread(double temperature) const {
  const auto best = float(ranked_[0].logit), bound = std::max(least_, float(best - kMostKey * temperature));
  const float* const x = logits_.data();
  const size_t n = logits_.size();
  float lowest = best;
#pragma omp simd reduction(min : lowest)
  for (size_t i = 0; i < n; ++i) lowest = x[i] >= bound && x[i] < lowest ? x[i] : lowest;
  return best - lowest;
}

// With p = w / sum, the surprisal -log p of a token is log(sum) - x with x = logit - best; the entropy is log(sum)
// minus the mean of x. So the tokens nearest to the entropy are those whose x is nearest to that mean.
void Ranking::keep_typical(double share) {
  if (!has(0)) return;
  if (narrowed_ && !complete_) throw Undecided();
  if (complete_ || is_small()) return keep_typical_of_all(share);
  const double all = total(1);
  const auto best = float(ranked_[0].logit);
  double sum = 0;
  for (size_t i = 0; i < logits_.size(); ++i)
    if (weights_[i] > 0) sum += double{weights_[i]} * (logits_[i] - best);
  for (const Candidate& c : extra_) sum += weight_of(c, 1) * (c.logit - best);
  const auto middle = float(best + sum / all);
  const auto key = [middle](float logit) { return std::fabs(logit - middle); };
  const std::vector<Candidate> last = reached(share * all, 1, key, spread(1));
  TokenSet kept(logits_.size());
  const float edge = key(float(last.back().logit));
  each([&](const Candidate& c) {
    if (key(float(c.logit)) < edge) kept.add(c.id);
  });
  for (const Candidate& c : last) kept.add(c.id);
  std::erase_if(extra_, [&](const Candidate& c) { return !kept.has(c.id); });
  hidden_.add_all_outside(kept);
  forget_ranks();
}

void Ranking::keep_typical_of_all(double share) {
  const std::vector<Candidate>& candidates = all();
  const double sum = total(1);
  std::vector<double> p;
  double entropy = 0;
  for (const Candidate& c : candidates) {
    p.push_back(weight_of(c, 1) / sum);
    if (p.back() > 0) entropy -= p.back() * std::log(p.back());
  }
  std::vector<std::pair<double, size_t>> order;  // by distance, then by rank
  for (size_t i = 0; i < p.size(); ++i) order.emplace_back(std::fabs(-std::log(p[i]) - entropy), i);
  std::sort(order.begin(), order.end());
  double mass = 0;
  size_t n = 0;
  while (n < order.size() && (n == 0 || mass < share)) mass += p[order[n++].second];
  std::vector<size_t> kept;
  for (size_t i = 0; i < n; ++i) kept.push_back(order[i].second);
  std::sort(kept.begin(), kept.end());
  std::vector<Candidate> typical;
  for (const size_t i : kept) typical.push_back(candidates[i]);
  take(std::move(typical));
}

Ranking::Bounds Ranking::total_within(double temperature) {
  if (!narrowed_ || complete_) {
    const double sum = total(temperature);
    return {sum, sum};
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

void Ranking::rank(size_t most) {
  if (narrowed_) throw Undecided();
  std::vector<Candidate>& best = ranked_;
  best = extra_;
  complete_ = true;
  float least = least_;  // no lower logit can be among the best
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
      if (x >= least && x > kNever && !hidden_.has(i)) best.push_back({TokenId(i), x});
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
