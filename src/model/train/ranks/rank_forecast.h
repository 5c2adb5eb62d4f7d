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
  int64_t outside = 0;                   // of it elsewhere
  bool in_file = false;                  // there
  int64_t sums = 0;                      // of gradients
  int64_t parameters = 0, in_parts = 0;  // its parts of parameters, and how many bytes the whole of those are
  int64_t exchanges = 0;                 // what others have sent, and what goes with formats
  std::vector<Parameter> updated;        // as it updates them
  std::vector<graph::Graph> updates;     // group by group, where states lie elsewhere; each text once
  // In a step by layers: whole parameters and gradients that are there at once, and what layers hand to each other.
  int64_t whole_parameters = 0, whole_gradients = 0, between = 0;
  std::vector<graph::Graph> step, evaluation;
};
RankForecast forecast_rank(const run::Device& device, const Model& model, const Method& method, const Recipe& recipe,
                           int ranks);

}  // namespace lumen::model
