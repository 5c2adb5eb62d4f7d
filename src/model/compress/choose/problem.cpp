#include "model/compress/choose/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace lumen::model::compress {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 52;  // limit for which sums are exact in double

}  // namespace

int64_t ChoiceProblem::weights() const {
  int64_t out = fixed_weights;
  for (const ChoiceBlock& block : blocks)
    for (const ChoiceItem& item : block.items) out += item.weights;
  return out;
}

void ChoiceProblem::require_whole() const {
  LUMEN_CHECK(fixed_bytes >= 0 && fixed_weights >= 0 && fixed_ms >= 0 && std::isfinite(fixed_ms));
  double bytes = fixed_bytes;
  for (const ChoiceBlock& block : blocks) {
    for (const ChoiceItem& item : block.items) {
      if (item.candidates.empty()) throw user_error("'{}' has no candidate", item.name);
      int64_t most = 0;
      for (const ChoiceCandidate& c : item.candidates) {
        if (!std::isfinite(c.score))
          throw Error(Exit::numeric, fmt::format("the score of {} for '{}' is {}", c.name, item.name, c.score));
        LUMEN_CHECK(c.bytes >= 0 && c.ms >= 0 && std::isfinite(c.ms));
        most = std::max(most, c.bytes);
      }
      bytes += most;
    }
    std::set<std::pair<size_t, size_t>> seen;
    for (const PairTerms& pair : block.pairs) {
      LUMEN_CHECK(pair.a < block.items.size() && pair.b < block.items.size() && pair.a != pair.b);
      LUMEN_CHECK(seen.insert(std::minmax(pair.a, pair.b)).second);
      const ChoiceItem &a = block.items[pair.a], &b = block.items[pair.b];
      LUMEN_CHECK(pair.terms.size() == a.candidates.size() * b.candidates.size());
      for (const double term : pair.terms)
        if (!std::isfinite(term))
          throw Error(Exit::numeric, fmt::format("the joint loss of '{}' and '{}' is {}", a.name, b.name, term));
    }
  }
  LUMEN_CHECK(bytes < kMostBytes);
}

Choice figures(const ChoiceProblem& problem, std::vector<std::vector<size_t>> picks) {
  LUMEN_CHECK(picks.size() == problem.blocks.size());
  Choice out;
  out.bytes = problem.fixed_bytes;
  out.ms = problem.fixed_ms;
  for (size_t b = 0; b < picks.size(); ++b) {
    const ChoiceBlock& block = problem.blocks[b];
    LUMEN_CHECK(picks[b].size() == block.items.size());
    for (size_t i = 0; i < block.items.size(); ++i) {
      const ChoiceCandidate& c = block.items[i].candidates.at(picks[b][i]);
      out.bytes += c.bytes;
      out.ms += c.ms;
      out.score += c.score;
    }
    for (const PairTerms& pair : block.pairs)
      out.score += pair.terms[picks[b][pair.a] * block.items[pair.b].candidates.size() + picks[b][pair.b]];
  }
  const int64_t weights = problem.weights();
  if (weights > 0) out.bits = 8.0 * out.bytes / weights;
  out.picks = std::move(picks);
  return out;
}

}  // namespace lumen::model::compress
