// What one of several ranks holds, and what exchanges take of its memory, before anything is taken: of the rank that
// holds the most. Proved by tests/model/train/ranks/rank_forecast_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/ir/graph.h"
#include "model/train/ranks/ranks.h"

namespace lumen::model {

struct RankForecast {
  Sharding sharding = Sharding::none;
  int64_t states = 0;                    // of the optimizer, with means of weights, on the device
  int64_t sums = 0;                      // of gradients, on the device
  int64_t parameters = 0, in_parts = 0;  // parameters, and how many bytes the whole of those are
  // Outside of the device; states as they would be held.
  struct Outside {
    int64_t states = 0, states_held = 0, parameters = 0, gradients = 0, kept = 0;
    bool in_file = false;
    int64_t all() const { return states + parameters + gradients + kept; }
  } outside;
  int64_t exchanges = 0;              // what others have sent, and what goes with formats
  std::vector<Parameter> updated;     // as it updates them
  std::vector<graph::Graph> updates;  // group by group, where those are made so; each text once
  // In a step by layers: whole parameters and gradients that are there at once, and what layers hand to each other.
  int64_t whole_parameters = 0, whole_gradients = 0, between = 0, kept_slots = 0;
  bool computes_again = false;  // all of each layer
  std::vector<graph::Graph> step, evaluation;
  bool by_layers() const { return !step.empty(); }
};
RankForecast forecast_rank(const run::Device& device, const Model& model, const Method& method, const Recipe& recipe,
                           int ranks);

}  // namespace lumen::model
