// The baseline for plans: the sensitivity of a user's loss to each channel, by gradients. Proved by
// tests/apps/recommend/sensitivity.
//
// May include: apps/draws, apps/recommend, base, graph/grad.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "apps/recommend/recommend.h"

namespace lumen::recommend {

struct Sensitivity {
  double loss = 0;
  std::vector<double> of_channels;
};
// |sum_k w_k dL/dw_k| of every channel of a planned recommender's matrices, with their random initial values, in the
// order of plans: the first-order change of the loss of a user's own sequence if the channel were removed. One entry
// per user, who must have two items in training. Positions and negative samples follow from the seed.
std::vector<Sensitivity> channel_sensitivities(Recommender& model, const Split& split, std::span<const int64_t> users,
                                               uint64_t seed);

}  // namespace lumen::recommend
