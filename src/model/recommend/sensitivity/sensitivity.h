// What plans are compared with: how much a user's loss depends on each channel, by its gradient. Proved by
// tests/model/recommend/sensitivity.
//
// May include: base, graph/grad, model/recommend.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/recommend/recommend.h"

namespace lumen::model {

struct Sensitivity {
  double loss = 0;
  std::vector<double> of_channels;
};
// |sum_k w_k dL/dw_k| of every channel of a planned recommender's matrices, as they were drawn, in the order of plans:
// by how much the loss of a user's own sequence would change to first order if the channel went. One row for each user,
// who must have two items in training. Which places count and what targets are compared with follows from the seed.
std::vector<Sensitivity> channel_sensitivities(Recommender& model, const Split& split, std::span<const int64_t> users,
                                               uint64_t seed);

}  // namespace lumen::model
