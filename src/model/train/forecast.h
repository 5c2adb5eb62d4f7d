// How much memory training will take, before any weight is made or read: weights, moments and gradients by the
// parameters' shapes, values by planning the very steps that will run. Proved by
// tests/model/training_forecast_test.cpp.
#pragma once

#include <string>

#include "model/train/recipe.h"
#include "run/engine/engine.h"

namespace lumen::model {

struct TrainingForecast {
  int64_t weights = 0;    // of all parameters: as they are held, or beside an adapter as their file has them
  int64_t adapters = 0;   // and learned fields
  int64_t moments = 0;    // two for each number that is trained
  int64_t gradients = 0;  // kept between the batches of a step; otherwise they are values
  int64_t values = 0;     // within a step and an evaluation
  int64_t total() const;
  run::MemoryNeeds needs() const;
};

// `model` needs its family, config and parameters; weights are not looked at.
TrainingForecast forecast_training(run::Engine& engine, const Model& model, const Recipe& recipe);

// Refuses (exit 3) what does not fit. `weights_are_there`: the model's weights are in memory already.
void require_training(run::Engine& engine, const Model& model, const Recipe& recipe, bool weights_are_there = false);

}  // namespace lumen::model
