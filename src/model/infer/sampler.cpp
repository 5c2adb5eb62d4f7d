#include "model/infer/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/eval.h"

namespace lumen::model {

Sampler::Sampler(SamplerOptions options) : options_(options) {
  const auto require = [](bool ok, const char* text) {
    if (!ok) throw usage_error("{}", text);
  };
  require(options.temperature >= 0 && std::isfinite(options.temperature), "--temp must be 0 or more");
  require(options.top_k >= 0, "--top-k must be 0 or more");
  require(options.top_p > 0 && options.top_p <= 1, "--top-p must lie in (0, 1]");
  require(options.min_p >= 0 && options.min_p < 1, "--min-p must lie in [0, 1)");
  require(options.repeat_penalty > 0 && std::isfinite(options.repeat_penalty), "--repeat-penalty must be above 0");
  require(options.repeat_last >= 0, "--repeat-last-n must be 0 or more");
}

void Sampler::accept(TokenId token) {
  recent_.push_back(token);
  while (static_cast<int64_t>(recent_.size()) > options_.repeat_last) recent_.pop_front();
}

TokenId Sampler::pick(std::span<const float> logits) {
  LUMEN_CHECK(!logits.empty());
  struct Candidate {
    TokenId id;
    double logit;
  };
  std::vector<Candidate> candidates(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) candidates[i] = {static_cast<TokenId>(i), logits[i]};
  if (options_.repeat_penalty != 1) {
    std::vector<TokenId> seen(recent_.begin(), recent_.end());
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    for (TokenId id : seen) {
      double& logit = candidates[static_cast<size_t>(id)].logit;
      logit = logit > 0 ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
    }
  }
  // Ties go to the lower id, so that the order is the same everywhere.
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  };
  if (options_.temperature == 0) return std::min_element(candidates.begin(), candidates.end(), better)->id;

  size_t kept = candidates.size();
  if (options_.top_k > 0) kept = std::min(kept, static_cast<size_t>(options_.top_k));
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<int64_t>(kept), candidates.end(), better);
  candidates.resize(kept);
  const double best = candidates[0].logit;
  const auto weights = [&](double temperature) {
    std::vector<double> w(candidates.size());
    for (size_t i = 0; i < w.size(); ++i) w[i] = std::exp((candidates[i].logit - best) / temperature);
    return w;
  };
  if (options_.top_p < 1) {
    const std::vector<double> w = weights(1);
    double all = 0, sum = 0;
    for (double x : w) all += x;
    size_t n = 0;
    while (n < w.size() && (n == 0 || sum < options_.top_p * all)) sum += w[n++];
    candidates.resize(n);
  }
  if (options_.min_p > 0) {
    size_t n = 1;
    while (n < candidates.size() && std::exp(candidates[n].logit - best) >= options_.min_p) ++n;
    candidates.resize(n);
  }
  const std::vector<double> w = weights(options_.temperature);
  double all = 0;
  for (double x : w) all += x;
  double left = graph::uniform_random(options_.seed, 0x5a3b1e, drawn_++) * all;
  for (size_t i = 0; i < w.size(); ++i) {
    left -= w[i];
    if (left < 0) return candidates[i].id;
  }
  return candidates.back().id;
}

}  // namespace lumen::model
