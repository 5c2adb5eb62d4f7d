#include "model/infer/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/eval.h"

namespace lumen::model {
namespace {

constexpr size_t kLongestMemory = size_t{1} << 20;
constexpr double kNever = -std::numeric_limits<double>::infinity();

constexpr size_t kMostAsked = 256;  // tokens a filter is asked about one by one, beside four for each one wanted

// Ties go to the lower id, so that the order is the same everywhere.
template <typename Candidate>
bool is_better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// Weights to draw by, relative to the best; candidates are in order.
template <typename Candidates>
std::vector<double> weights(const Candidates& candidates, double temperature) {
  std::vector<double> w(candidates.size());
  for (size_t i = 0; i < w.size(); ++i) w[i] = std::exp((candidates[i].logit - candidates[0].logit) / temperature);
  return w;
}

double sum(const std::vector<double>& values) {
  double out = 0;
  for (const double v : values) out += v;
  return out;
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
}

void Sampler::accept(TokenId token) {
  recent_.push_back(token);
  while (recent_.size() > memory_) recent_.pop_front();
}

void Sampler::penalise(std::vector<Candidate>& candidates) const {
  const SamplerOptions& o = options_;
  if (o.repeat_penalty == 1 && o.presence_penalty == 0 && o.frequency_penalty == 0) return;
  const size_t last = o.repeat_last < 0 ? recent_.size() : std::min<size_t>(recent_.size(), o.repeat_last);
  std::unordered_map<TokenId, int64_t> seen;
  for (size_t i = recent_.size() - last; i < recent_.size(); ++i) ++seen[recent_[i]];
  for (const auto& [id, count] : seen) {
    if (id < 0 || static_cast<size_t>(id) >= candidates.size()) continue;
    double& logit = candidates[id].logit;
    logit = logit > 0 ? logit / o.repeat_penalty : logit * o.repeat_penalty;
    logit -= count * o.frequency_penalty + o.presence_penalty;
  }
}

// For each token that would go on with a text as it went on before: the longer the repetition, the worse. Lengths of
// repetitions are found for all places at once (the Z algorithm on the reversed text).
void Sampler::penalise_repetitions(std::vector<Candidate>& candidates) const {
  const SamplerOptions& o = options_;
  const size_t last = o.dry_last < 0 ? recent_.size() : std::min<size_t>(recent_.size(), o.dry_last);
  if (o.dry_multiplier == 0 || last < 2) return;
  std::vector<TokenId> back(recent_.rbegin(), recent_.rbegin() + last);  // the latest first
  const auto breaks = [&](TokenId id) {
    return std::find(o.dry_breakers.begin(), o.dry_breakers.end(), id) != o.dry_breakers.end();
  };
  const size_t stop = std::find_if(back.begin(), back.end(), breaks) - back.begin();
  if (stop == 0) return;
  std::vector<size_t> same(last, 0);  // how much of the latest text stands at this distance back, too
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
  std::unordered_map<TokenId, size_t> longest;
  for (size_t i = 1; i < last; ++i) {
    size_t& n = longest[back[i - 1]];
    n = std::max(n, std::min(same[i], stop));
  }
  for (const auto& [id, n] : longest) {
    if (static_cast<int64_t>(n) < std::max<int64_t>(1, o.dry_allowed_length)) continue;
    if (id < 0 || static_cast<size_t>(id) >= candidates.size() || breaks(id)) continue;
    const double exponent = static_cast<int64_t>(n) - o.dry_allowed_length;
    candidates[id].logit -= std::min(o.dry_multiplier * std::pow(o.dry_base, exponent), 1e6);
  }
}

TokenId Sampler::draw(const std::vector<Candidate>& candidates, double temperature, double* probability) {
  const std::vector<double> w = weights(candidates, temperature);
  const double all = sum(w);
  double left = graph::uniform_random(options_.seed, 0x5a3b1e, drawn_++) * all;
  for (size_t i = 0; i < w.size(); ++i) {
    left -= w[i];
    if (left < 0 || i + 1 == w.size()) {
      *probability = w[i] / all;
      return candidates[i].id;
    }
  }
  return candidates.back().id;
}

// Keeps the surprise of what is drawn near a wanted one (Basu et al. 2021): the first kind estimates how many tokens
// that takes, the second cuts off what would surprise more.
TokenId Sampler::mirostat(std::vector<Candidate>& candidates) {
  const std::vector<double> w = weights(candidates, options_.temperature);
  const double all = sum(w);
  size_t keep = 1;
  if (options_.mirostat == 1) {
    double products = 0, squares = 0;
    for (size_t i = 0; i + 1 < std::min<size_t>(100, w.size()) && w[i + 1] > 0; ++i) {
      const double t = std::log((i + 2) / static_cast<double>(i + 1));
      products += t * std::log(w[i] / w[i + 1]);
      squares += t * t;
    }
    const double s = squares > 0 ? products / squares : 1, e = s - 1;
    const double n = w.size();
    const double k = std::pow(e * std::pow(2.0, surprise_) / (1 - std::pow(n, -e)), 1 / s);
    keep = std::isfinite(k) ? static_cast<size_t>(std::clamp(k, 1.0, n)) : w.size();
  } else {
    while (keep < w.size() && -std::log2(w[keep] / all) <= surprise_) ++keep;
  }
  candidates.resize(keep);
  double probability = 1;
  const TokenId id = draw(candidates, options_.temperature, &probability);
  surprise_ -= options_.mirostat_rate * (-std::log2(probability) - options_.mirostat_entropy);
  return id;
}

// The best `wanted` that the filter allows, best first, found by asking about the likeliest alone; false when too few
// of those are allowed. What is found is what asking about all would find.
bool Sampler::best_allowed(std::vector<Candidate>& candidates, TokenFilter& filter, size_t wanted) const {
  const auto worse = [](const Candidate& a, const Candidate& b) { return is_better(b, a); };
  std::make_heap(candidates.begin(), candidates.end(), worse);
  std::vector<Candidate> found;
  auto end = candidates.end();
  for (size_t asked = 0; asked < kMostAsked + 4 * wanted && end != candidates.begin(); ++asked) {
    if (candidates.front().logit == kNever) break;
    if (filter.allows(candidates.front().id)) found.push_back(candidates.front());
    if (found.size() == wanted) {
      candidates = std::move(found);
      return true;
    }
    std::pop_heap(candidates.begin(), end--, worse);
  }
  return false;
}

TokenId Sampler::pick(std::span<const float> logits, const std::vector<bool>* allowed) {
  if (!allowed) return pick(logits);
  class Mask : public TokenFilter {
   public:
    explicit Mask(const std::vector<bool>& mask) : mask_(mask) {}
    bool allows(TokenId id) override { return static_cast<size_t>(id) < mask_.size() && mask_[id]; }
    const std::vector<bool>& all() override { return mask_; }

   private:
    const std::vector<bool>& mask_;
  } filter(*allowed);
  return pick(logits, &filter);
}

TokenId Sampler::pick(std::span<const float> logits, TokenFilter* filter) {
  LUMEN_CHECK(!logits.empty());
  const SamplerOptions& o = options_;
  std::vector<Candidate> candidates(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) candidates[i] = {static_cast<TokenId>(i), logits[i]};
  for (const auto& [id, by] : o.bias) {
    if (id >= 0 && static_cast<size_t>(id) < candidates.size()) candidates[id].logit += by;
  }
  for (const TokenId id : o.forbidden) {
    if (id >= 0 && static_cast<size_t>(id) < candidates.size()) candidates[id].logit = kNever;
  }
  penalise(candidates);
  penalise_repetitions(candidates);
  const size_t wanted = o.temperature == 0 ? 1 : o.mirostat == 0 ? static_cast<size_t>(o.top_k) : 0;
  const auto better = [](const Candidate& a, const Candidate& b) { return is_better(a, b); };
  if (!filter || wanted == 0 || !best_allowed(candidates, *filter, wanted)) {
    const std::vector<bool>* allowed = filter ? &filter->all() : nullptr;
    std::erase_if(candidates, [&](const Candidate& c) {
      const size_t i = c.id;
      return c.logit == kNever || (allowed && (i >= allowed->size() || !(*allowed)[i]));
    });
  }
  if (candidates.empty()) return -1;
  if (o.temperature == 0) return std::min_element(candidates.begin(), candidates.end(), better)->id;
  if (o.mirostat != 0) {
    std::sort(candidates.begin(), candidates.end(), better);
    return mirostat(candidates);
  }

  size_t kept = candidates.size();
  if (o.top_k > 0) kept = std::min<size_t>(kept, o.top_k);
  std::partial_sort(candidates.begin(), candidates.begin() + kept, candidates.end(), better);
  candidates.resize(kept);
  if (o.typical_p < 1) {
    // Those whose surprise is nearest to the expected one (Meister et al. 2022).
    std::vector<double> p = weights(candidates, 1);
    const double all = sum(p);
    double entropy = 0;
    for (double& x : p) {
      x /= all;
      if (x > 0) entropy -= x * std::log(x);
    }
    std::vector<size_t> order(p.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto distance = [&](size_t i) { return std::fabs(-std::log(p[i]) - entropy); };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return distance(a) < distance(b); });
    double mass = 0;
    size_t n = 0;
    while (n < order.size() && (n == 0 || mass < o.typical_p)) mass += p[order[n++]];
    order.resize(n);
    std::sort(order.begin(), order.end());
    std::vector<Candidate> typical;
    for (const size_t i : order) typical.push_back(candidates[i]);
    candidates = std::move(typical);
  }
  if (o.top_p < 1) {
    const std::vector<double> w = weights(candidates, 1);
    const double all = sum(w);
    double mass = 0;
    size_t n = 0;
    while (n < w.size() && (n == 0 || mass < o.top_p * all)) mass += w[n++];
    candidates.resize(n);
  }
  if (o.min_p > 0) {
    size_t n = 1;
    while (n < candidates.size() && std::exp(candidates[n].logit - candidates[0].logit) >= o.min_p) ++n;
    candidates.resize(n);
  }
  double probability = 1;
  return draw(candidates, o.temperature, &probability);
}

std::vector<TokenId> tokens_with(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  std::vector<TokenId> out;
  for (TokenId id = 0; id < tokenizer.size(); ++id) {
    const std::string bytes = tokenizer.bytes(id);
    if (std::any_of(texts.begin(), texts.end(),
                    [&](const std::string& t) { return bytes.find(t) != std::string::npos; }))
      out.push_back(id);
  }
  return out;
}

}  // namespace lumen::model
