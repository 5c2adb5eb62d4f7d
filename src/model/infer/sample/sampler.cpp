#include "model/infer/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/eval.h"

namespace lumen::model::infer {
namespace {

constexpr size_t kLongestMemory = size_t{1} << 20;

constexpr size_t kFirst = 64;       // tokens ranked at first if the number needed is not known
constexpr size_t kWalked = kFirst;  // ranks visited one by one; beyond them, cutoffs are found by sums of weights
constexpr size_t kMostAsked = 256;  // tokens tested one by one by a filter, plus four for each token wanted

double weight(const Candidate& c, const Candidate& best, double temperature) {
  return std::exp((c.logit - best.logit) / temperature);
}

}  // namespace

Sampler::Sampler(SamplerOptions options) : options_(std::move(options)), surprise_(2 * options_.mirostat_entropy) {
  const auto require = [](bool ok, const char* text) {
    if (!ok) throw usage_error("{}", text);
  };
  const SamplerOptions& o = options_;
  require(o.temperature >= 0 && std::isfinite(o.temperature), "--temp must be 0 or more");
  require(o.top_k >= 0, "--top-k must be 0 or more");
  require(o.top_p > 0 && o.top_p <= 1, "--top-p must lie in (0, 1]");
  require(o.min_p >= 0 && o.min_p < 1, "--min-p must lie in [0, 1)");
  require(o.typical_p > 0 && o.typical_p <= 1, "--typical must lie in (0, 1]");
  require(o.top_n_sigma >= 0 && std::isfinite(o.top_n_sigma), "--top-n-sigma must be 0 or more");
  require(o.xtc_probability >= 0 && o.xtc_probability <= 1, "--xtc-probability must lie in [0, 1]");
  require(o.xtc_threshold > 0 && o.xtc_threshold <= 1, "--xtc-threshold must lie in (0, 1]");
  require(o.repeat_penalty > 0 && std::isfinite(o.repeat_penalty), "--repeat-penalty must be above 0");
  require(std::isfinite(o.presence_penalty), "--presence-penalty must be a number");
  require(std::isfinite(o.frequency_penalty), "--frequency-penalty must be a number");
  require(o.repeat_last >= -1, "--repeat-last-n must be -1 or more");
  require(o.dry_multiplier >= 0 && std::isfinite(o.dry_multiplier), "--dry-multiplier must be 0 or more");
  require(o.dry_base >= 1 && std::isfinite(o.dry_base), "--dry-base must be 1 or more");
  require(o.dry_allowed_length >= 0, "--dry-allowed-length must be 0 or more");
  require(o.dry_last >= -1, "--dry-penalty-last-n must be -1 or more");
  require(o.mirostat >= 0 && o.mirostat <= 2, "--mirostat must be 0, 1 or 2");
  require(o.mirostat_rate > 0 && std::isfinite(o.mirostat_rate), "--mirostat-lr must be above 0");
  require(o.mirostat_entropy > 0 && std::isfinite(o.mirostat_entropy), "--mirostat-ent must be above 0");
  const auto look_back = [](int64_t n) { return n < 0 ? kLongestMemory : static_cast<size_t>(n); };
  memory_ = look_back(o.repeat_last);
  if (o.dry_multiplier > 0) memory_ = std::max(memory_, look_back(o.dry_last));
  memory_ = std::min(memory_, kLongestMemory);
  (void)bar(o.forbidden);
  for (const text::TokenId id : o.dry_breakers)
    if (id >= 0) breakers_.add(id);
}

std::vector<text::TokenId> Sampler::bar(std::span<const text::TokenId> ids) {
  std::vector<text::TokenId> fresh;
  for (const text::TokenId id : ids) {
    if (id < 0 || barred_.has(id)) continue;
    barred_.add(id);
    fresh.push_back(id);
  }
  barred_ids_.insert(barred_ids_.end(), fresh.begin(), fresh.end());
  std::sort(barred_ids_.begin(), barred_ids_.end());
  return fresh;
}

void Sampler::permit(std::span<const text::TokenId> ids) {
  for (const text::TokenId id : ids) barred_.remove(id);
  std::erase_if(barred_ids_, [&](text::TokenId id) { return !barred_.has(id); });
}

void Sampler::accept(text::TokenId token) {
  recent_.push_back(token);
  while (recent_.size() > memory_) recent_.pop_front();
}

// The entry for a token's changed logit; null if the id is not in the vocabulary.
double* Sampler::Changes::of(text::TokenId id) {
  if (id < 0 || id >= vocabulary) return nullptr;
  const auto [at, is_new] = to.try_emplace(id, 0);
  if (is_new) at->second = logit(id);
  return &at->second;
}

void Sampler::penalise(Changes& changes) const {
  const SamplerOptions& o = options_;
  if (o.repeat_penalty == 1 && o.presence_penalty == 0 && o.frequency_penalty == 0) return;
  const size_t last = o.repeat_last < 0 ? recent_.size() : std::min<size_t>(recent_.size(), o.repeat_last);
  std::unordered_map<text::TokenId, int64_t> seen;
  for (size_t i = recent_.size() - last; i < recent_.size(); ++i) ++seen[recent_[i]];
  for (const auto& [id, count] : seen) {
    double* const logit = changes.of(id);
    if (!logit) continue;
    *logit = *logit > 0 ? *logit / o.repeat_penalty : *logit * o.repeat_penalty;
    *logit -= count * o.frequency_penalty + o.presence_penalty;
  }
}

// DRY: penalizes each token that would extend a repetition, by the length of the repetition. The lengths are computed
// for all positions at once (the Z algorithm on the reversed sequence).
void Sampler::penalise_repetitions(Changes& changes) const {
  const SamplerOptions& o = options_;
  const size_t last = o.dry_last < 0 ? recent_.size() : std::min<size_t>(recent_.size(), o.dry_last);
  if (o.dry_multiplier == 0 || last < 2) return;
  std::vector<text::TokenId> back(recent_.rbegin(), recent_.rbegin() + last);  // the latest token first
  const auto breaks = [&](text::TokenId id) { return id >= 0 && breakers_.has(id); };
  const size_t stop = std::find_if(back.begin(), back.end(), breaks) - back.begin();
  if (stop == 0) return;
  std::vector<size_t> same(last, 0);  // length of the repetition at this distance back
  size_t left = 0, right = 0;
  for (size_t i = 1; i < last; ++i) {
    size_t n = i < right ? std::min(right - i, same[i - left]) : 0;
    while (i + n < last && back[n] == back[i + n]) ++n;
    same[i] = n;
    if (i + n > right) {
      left = i;
      right = i + n;
    }
  }
  std::unordered_map<text::TokenId, size_t> longest;
  for (size_t i = 1; i < last; ++i) {
    size_t& n = longest[back[i - 1]];
    n = std::max(n, std::min(same[i], stop));
  }
  for (const auto& [id, n] : longest) {
    if (static_cast<int64_t>(n) < std::max<int64_t>(1, o.dry_allowed_length)) continue;
    double* const logit = breaks(id) ? nullptr : changes.of(id);
    if (!logit) continue;
    const double exponent = static_cast<int64_t>(n) - o.dry_allowed_length;
    *logit -= std::min(o.dry_multiplier * std::pow(o.dry_base, exponent), 1e6);
  }
}

Candidate Sampler::draw(Ranking& ranking) {
  return ranking.winner(Race(options_.seed, drawn_++), options_.temperature);
}

// Keeps the surprisal of drawn tokens near a target (Basu et al. 2021): version 1 estimates the number of tokens to
// keep, version 2 removes tokens with a higher surprisal.
text::TokenId Sampler::mirostat(Ranking& ranking) {
  const double temperature = options_.temperature;
  const auto w = [&](size_t i) { return weight(ranking[i], ranking[0], temperature); };
  size_t keep = 1;
  if (options_.mirostat == 1) {
    std::vector<double> weights;
    for (size_t i = 0; i < kEstimated && ranking.has(i); ++i) weights.push_back(w(i));
    keep = size_t(estimate_kept(weights, double(ranking.count())));
  } else {
    auto [low, high] = ranking.total_within(temperature);
    const auto is_expected = [&](double all) { return -std::log2(w(keep) / all) <= surprise_; };
    while (keep < kWalked || ranking.is_near(keep)) {
      if (!ranking.has(keep)) break;
      if (is_expected(low) != is_expected(high)) low = high = ranking.total(temperature);
      if (!is_expected(high)) break;
      ++keep;
    }
    if (keep >= kWalked && !ranking.is_near(keep)) {
      if (ranking.is_reduced()) throw Undecided();
      const double least = ranking[0].logit + temperature * (std::log((low + high) / 2) - surprise_ * std::log(2.0));
      ranking.keep_down_to({Ranking::kNoToken, least});
      keep = 0;
    }
  }
  if (keep > 0) ranking.keep(keep);
  const auto [least, most] = ranking.total_within(temperature);
  const Candidate drawn = draw(ranking);
  const double own = weight(drawn, ranking[0], temperature);
  const bool is_certain = surprisal(own / least) == surprisal(own / most);
  learn_surprise(own / (is_certain ? most : ranking.total(temperature)));
  return drawn.id;
}

int64_t Sampler::estimate_kept(std::span<const double> weights, double count) const {
  double products = 0, squares = 0;
  for (size_t i = 0; i + 1 < weights.size() && weights[i + 1] > 0; ++i) {
    const double t = std::log(double(i + 2) / double(i + 1));
    products += t * std::log(weights[i] / weights[i + 1]);
    squares += t * t;
  }
  const double s = squares > 0 ? products / squares : 1, e = s - 1;
  const double k = std::pow(e * std::pow(2.0, surprise_) / (1 - std::pow(count, -e)), 1 / s);
  return static_cast<int64_t>(std::isfinite(k) ? std::clamp(k, 1.0, count) : count);
}

// Keeps the best `wanted` tokens that the filter allows, by testing only the most likely tokens; false if too few of
// those are allowed. The result equals that of testing all tokens.
bool Sampler::best_allowed(Ranking& ranking, TokenFilter& filter, size_t wanted) const {
  std::vector<Candidate> found;
  for (size_t i = 0; i < kMostAsked + 4 * wanted && ranking.has(i); ++i) {
    if (filter.allows(ranking[i].id)) found.push_back(ranking[i]);
    if (found.size() == wanted) {
      ranking.take(std::move(found));
      return true;
    }
  }
  return false;
}

text::TokenId Sampler::pick(std::span<const float> logits, const TokenSet* allowed) {
  if (!allowed) return pick(logits);
  class Mask : public TokenFilter {
   public:
    explicit Mask(const TokenSet& mask) : mask_(mask) {}
    bool allows(text::TokenId id) override { return mask_.has(id); }
    const TokenSet& all() override { return mask_; }

   private:
    const TokenSet& mask_;
  } filter(*allowed);
  return pick(logits, &filter);
}

Sampler::Changes Sampler::changes(int64_t vocabulary, std::function<double(text::TokenId)> logit) const {
  Changes changes{vocabulary, std::move(logit)};
  for (const auto& [id, by] : options_.bias) {
    if (double* const l = changes.of(id)) *l += by;
  }
  penalise(changes);
  penalise_repetitions(changes);
  return changes;
}

TokenSet Sampler::allowed(TokenFilter& filter) const {
  TokenSet out = filter.all();
  out.remove_all(barred_);
  return out;
}

Asked Sampler::asked(int64_t vocabulary) const {
  Asked out;
  for (const auto& [id, logit] : changes(vocabulary, [](text::TokenId) { return 0.0; }).to) out.ids.push_back(id);
  std::sort(out.ids.begin(), out.ids.end());
  // Truncation uses weights at temperature 1, and keeps only known tokens; without it, the draw is over all tokens.
  const bool cuts = options_.mirostat == 0 && options_.top_p < 1;
  if (!cuts && options_.temperature > 0) out.temperature = options_.temperature;
  out.seed = options_.seed;
  out.number = drawn_;
  return out;
}

// The most tokens of the ranking that are used; 0: not known in advance.
size_t Sampler::wanted() const {
  return options_.temperature == 0 ? 1 : options_.mirostat == 0 ? static_cast<size_t>(options_.top_k) : 0;
}

text::TokenId Sampler::pick(std::span<const float> logits, TokenFilter* filter) {
  LUMEN_CHECK(!logits.empty());
  const Changes c = changes(std::ssize(logits), [&](text::TokenId id) { return double{logits[id]}; });
  const bool is_few = !filter && wanted() > 0 && wanted() <= Ranking::kFewRanks;
  Ranking ranking(logits, barred_, c.to, is_few ? wanted() : kFirst);
  return pick(ranking, filter);
}

text::TokenId Sampler::pick(const LogitRow& row, TokenFilter* filter) {
  const std::optional<text::TokenId> picked = pick_if_decided(row, filter);
  return picked ? *picked : pick(row.whole(), filter);
}

std::optional<text::TokenId> Sampler::pick_if_decided(const LogitRow& row, TokenFilter* filter) {
  if (row.is_whole()) return pick(row.whole(), filter);
  if (const Narrowed* const narrowed = row.narrowed()) {
    const uint64_t drawn = drawn_;
    try {
      const Changes c = changes(narrowed->vocabulary, [&](text::TokenId id) { return narrowed->at(id); });
      const auto end = std::lower_bound(barred_ids_.begin(), barred_ids_.end(), narrowed->vocabulary);
      Ranking ranking(*narrowed, barred_, narrowed->is_masked ? 0 : end - barred_ids_.begin(), c.to);
      return pick(ranking, filter);
    } catch (const Undecided&) {
      drawn_ = drawn;
    }
  }
  return std::nullopt;
}

text::TokenId Sampler::pick(Ranking& ranking, TokenFilter* filter) {
  const SamplerOptions& o = options_;
  // Top-n-sigma comes before top-k, and looks at all that is allowed.
  const bool takes_few = wanted() > 0 && (o.top_n_sigma == 0 || o.temperature == 0);
  if (filter && (ranking.is_masked() || !takes_few || !best_allowed(ranking, *filter, wanted())))
    ranking.only(filter->all());
  if (!ranking.has(0)) return -1;
  if (o.temperature == 0) return ranking[0].id;
  if (o.mirostat != 0) return mirostat(ranking);
  if (o.top_n_sigma > 0)
    ranking.keep_down_to({Ranking::kNoToken, ranking[0].logit - o.top_n_sigma * ranking.standard_deviation()});
  if (o.top_k > 0) ranking.keep(wanted());
  if (o.typical_p < 1) ranking.keep_typical(o.typical_p);
  if (o.top_p < 1 || o.min_p > 0) cut(ranking);
  if (o.xtc_probability > 0) leave_out_top(ranking);
  return draw(ranking).id;
}

// Top-p and min-p: both keep a prefix of the ranking; the shorter one stays. Short ones are found by walking along the
// ranks, others by sums of weights.
void Sampler::cut(Ranking& ranking) const {
  if (!ranking.has(0)) return;
  const SamplerOptions& o = options_;
  constexpr double kAll = std::numeric_limits<double>::infinity();
  const auto weight_at = [&](size_t i) { return weight(ranking[i], ranking[0], 1); };
  if (!ranking.is_reduced() && ranking.is_near(kWalked - 1) && !ranking.is_near(kWalked)) {
    const bool is_long = o.min_p > 0 && weight_at(kWalked - 1) >= o.min_p;
    if (is_long && o.top_p == 1) return ranking.keep_weights(o.min_p);
    if (is_long) return ranking.keep_share_and_weights(o.top_p, o.min_p);
    if (o.min_p == 0) return ranking.keep_share(o.top_p);
  }
  auto [low, high] = o.top_p < 1 ? ranking.total_within(1) : Ranking::Bounds{kAll, kAll};
  double mass = 0;
  size_t n = 0;
  for (;; ++n) {
    const bool may_end = n > 0 && Ranking::reaches(mass, o.top_p, low);
    if (may_end && !Ranking::reaches(mass, o.top_p, high)) low = high = ranking.total(1);
    if (may_end && Ranking::reaches(mass, o.top_p, high)) break;
    if (n >= kWalked && !ranking.is_near(n))
      return o.top_p == 1 ? ranking.keep_weights(o.min_p) : ranking.keep_share(o.top_p);
    if (!ranking.has(n)) break;
    const double w = weight_at(n);
    if (n > 0 && w < o.min_p) break;
    mass += w;
  }
  ranking.keep(n);
}

// XTC, "exclude top choices": of the tokens with at least the threshold's share only the least likely stays, so that
// likely phrases make room, and an unlikely token never follows from it.
void Sampler::leave_out_top(Ranking& ranking) const {
  if (Race(options_.seed, drawn_).of_filter() >= options_.xtc_probability || options_.xtc_threshold > 0.5) return;
  const auto [low, high] = ranking.total_within(1);
  const auto is_likely = [&](size_t i, double all) {
    return ranking.has(i) && weight(ranking[i], ranking[0], 1) >= options_.xtc_threshold * all;
  };
  size_t n = 0;
  while (is_likely(n, high)) ++n;
  if (is_likely(n, low)) {
    const double all = ranking.total(1);
    while (is_likely(n, all)) ++n;
  }
  if (n > 1) ranking.leave_out(n - 1);
}

// --- From rows whose logits stay on the device, by the same rules

std::optional<text::TokenId> Sampler::decide(DistantRow& row, TokenFilter* filter) {
  for (;;) {
    try {
      return attempt(row, filter);
    } catch (const DistantRow::Missing&) {
      return std::nullopt;
    } catch (const DistantRow::Again&) {
      continue;
    }
  }
}

text::TokenId Sampler::attempt(DistantRow& row, TokenFilter* filter) {
  const SamplerOptions& o = options_;
  const std::vector<text::TokenId> ids = asked(row.vocabulary()).ids;
  const Changes c = changes(row.vocabulary(), [&](text::TokenId id) { return row.logit(id, ids); });
  TokenSet tokens(row.vocabulary());
  if (filter) {
    tokens = allowed(*filter);
    tokens.resize(row.vocabulary());
  } else {
    tokens.add_all_outside(barred_);
  }
  const bool weighs = o.mirostat == 0 && (o.top_p < 1 || o.typical_p < 1 || o.xtc_probability > 0);
  const bool cuts_again = weighs && (o.top_k > 0 || (o.typical_p < 1 && (o.top_p < 1 || o.min_p > 0)));
  row.begin(std::move(tokens), c.to, weighs || o.temperature == 0 ? 1 : o.temperature, cuts_again);
  if (row.top().empty()) return -1;
  const Candidate best = row.top().front();
  if (o.temperature == 0) return best.id;
  if (o.mirostat != 0) return mirostat(row);
  if (o.top_n_sigma > 0) {
    const auto [low, high] = row.standard_deviation();
    row.keep_down_to(best.logit - o.top_n_sigma * high, best.logit - o.top_n_sigma * low);
  }
  if (o.top_k > 0) row.keep(o.top_k);
  if (o.typical_p < 1) row.keep_typical(o.typical_p);
  if (o.top_p < 1 || o.min_p > 0) row.keep_share(o.top_p, o.min_p);
  if (o.xtc_probability > 0) leave_out_top(row);
  const text::TokenId drawn = row.winner(o.seed, drawn_, o.temperature).id;
  ++drawn_;
  return drawn;
}

void Sampler::leave_out_top(DistantRow& row) const {
  if (Race(options_.seed, drawn_).of_filter() >= options_.xtc_probability || options_.xtc_threshold > 0.5) return;
  const auto [low, high] = row.total();
  const std::vector<Candidate>& top = row.top();
  size_t n = 0;
  for (;; ++n) {
    row.require_top(n + 1);
    if (n == top.size() || !row.may_keep(top[n])) break;
    const double weight = std::exp(top[n].logit - top[0].logit);
    if (weight < options_.xtc_threshold * low) break;
    if (weight < options_.xtc_threshold * high || !row.surely_keeps(top[n])) throw Undecided();
  }
  if (n > 1) row.leave_out(n - 1);
}

text::TokenId Sampler::mirostat(DistantRow& row) {
  const double temperature = options_.temperature;
  const Candidate best = row.top().front();
  if (options_.mirostat == 1) {
    std::vector<double> weights;
    row.require_top(kEstimated);
    for (size_t i = 0; i < std::min(kEstimated, row.top().size()); ++i)
      weights.push_back(std::exp((row.top()[i].logit - best.logit) / temperature));
    row.keep(estimate_kept(weights, double(row.count())));
  } else {
    // A sum of the same weights on the host is within kWeightError, too.
    const auto [low, high] = row.total();
    const auto least = [&](double all) {
      return best.logit + temperature * (std::log(all) - surprise_ * std::log(2.0));
    };
    row.keep_down_to(std::min(best.logit, least(low * (1 - kWeightError))),
                     std::min(best.logit, least(high * (1 + kWeightError))));
  }
  const auto [least, most] = row.total();
  const Candidate drawn = row.winner(options_.seed, drawn_, temperature);
  const double weight = std::exp((drawn.logit - best.logit) / temperature);
  if (surprisal(weight / least) != surprisal(weight / most)) throw Undecided();
  learn_surprise(weight / most);
  ++drawn_;
  return drawn.id;
}

std::vector<text::TokenId> tokens_with(const text::Tokenizer& tokenizer, const std::vector<std::string>& strings) {
  std::vector<text::TokenId> out;
  for (text::TokenId id = 0; id < tokenizer.size(); ++id) {
    const std::string bytes = tokenizer.bytes(id);
    if (std::any_of(strings.begin(), strings.end(),
                    [&](const std::string& t) { return bytes.find(t) != std::string::npos; }))
      out.push_back(id);
  }
  return out;
}

}  // namespace lumen::model::infer
