// A group of tokens in a race (race.h) of which some are in doubt: they may have been removed by a filter. Proved by
// tests/model/infer/sample/ranking_test.cpp and tests/model/infer/narrowing/further_rows_test.cpp.
#pragma once

#include <algorithm>
#include <vector>

#include "model/infer/sample/logit_row.h"
#include "model/infer/sample/race.h"

namespace lumen::model::infer {

struct RaceEntry {
  double low = -1, high = -1;  // of the ratio: without and with the tokens in doubt; -1: there are no tokens
  Candidate token{-1, -1};     // its winner
  bool is_sure = false;        // whether the winner is the same whichever of them are removed
};

// `tokens` are all of the group that may take part, by ascending ids. weigh(c) is a token's weight, is_kept(c) whether
// it takes part for sure.
template <typename Weigh, typename IsKept>
RaceEntry enter_race(const Race& race, int64_t group, const std::vector<Candidate>& tokens, const Weigh& weigh,
                     const IsKept& is_kept) {
  RaceEntry out;
  if (tokens.empty()) return out;
  double low = 0, high = 0, best = -1, best_in_doubt = -1;
  for (const Candidate& c : tokens) {
    const double weight = weigh(c);
    const bool is_in_doubt = !is_kept(c);
    high += weight;
    if (!is_in_doubt) low += weight;
    double& most = is_in_doubt ? best_in_doubt : best;
    if (weight / race.least_of_token(c.id) <= most) continue;
    const double own = weight / race.of_token(c.id);
    if (own <= most) continue;
    most = own;
    if (!is_in_doubt) out.token = c;
  }
  const double number = race.of_group(group);
  out.low = low / number;
  out.high = high / number;
  out.is_sure = best > best_in_doubt;
  return out;
}

}  // namespace lumen::model::infer
