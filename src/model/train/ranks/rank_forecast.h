// Forecast of one rank's memory, with its exchanges, before anything is allocated: of the rank that needs the most.
// Proved by tests/model/train/ranks/rank_forecast_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/ir/graph.h"
#include "model/train/ranks/ranks.h"

namespace lumen::model::train {

struct RankForecast {
  Sharding sharding = Sharding::none;
  int64_t states = 0;                    // of the optimizer, with averaged weights, on the device
  int64_t sums = 0;                      // of gradients, on the device
  int64_t parameters = 0, in_parts = 0;  // on the device, and the bytes of those wholes that are sharded
  // Outside of the device; states_held: as held without offloading.
  struct Outside {
    int64_t states = 0, states_held = 0, parameters = 0, gradients = 0, kept = 0;
    bool in_file = false;
    int64_t all() const { return states + parameters + gradients + kept; }
  } outside;
  int64_t exchanges = 0;                 // receive buffers, and buffers for exchange formats
  std::vector<arch::Parameter> updated;  // as this rank updates them
  std::vector<graph::Graph> updates;     // distinct graphs, where updates run group by group
  // In a step by layers: whole parameters and gradients in memory at once, and activations between layers.
  int64_t whole_parameters = 0, whole_gradients = 0, between = 0, kept_slots = 0;
  bool computes_again = false;  // recomputes every layer wholly
  std::vector<graph::Graph> step, evaluation;
  bool by_layers() const { return !step.empty(); }
};
RankForecast forecast_rank(const run::Device& device, const arch::Model& model, const Method& method,
                           const recipe::Recipe& recipe, int ranks);

}  // namespace lumen::model::train
