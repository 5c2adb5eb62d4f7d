// Samples from rows whose logits stay on the device, by the rules of sampler.cpp.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "model/infer/sample/sampler.h"

namespace lumen::model {

std::optional<TokenId> Sampler::decide(DistantRow& row, TokenFilter* filter) {
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

TokenId Sampler::attempt(DistantRow& row, TokenFilter* filter) {
  const SamplerOptions& o = options_;
  const std::vector<TokenId> ids = asked(row.vocabulary()).ids;
  const Changes c = changes(row.vocabulary(), [&](TokenId id) { return row.logit(id, ids); });
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
  const TokenId drawn = row.winner(o.seed, drawn_, o.temperature).id;
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

TokenId Sampler::mirostat(DistantRow& row) {
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

}  // namespace lumen::model
