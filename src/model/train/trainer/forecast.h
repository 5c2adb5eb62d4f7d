// How much memory training will take, before any weight is made or read: weights, moments and gradients by the
// parameters' shapes, values by planning the very steps that will run. Proved by
// tests/model/train/training_forecast_test.cpp and tests/model/train/adapter/lora_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "model/train/method/method.h"

namespace lumen::model {

struct TrainingForecast {
  int64_t teacher = 0;        // weights of another model that it learns from
  int64_t weights = 0;        // of all parameters: as they are held, or beside an adapter as their file has them
  int64_t adapters = 0;       // and learned fields
  int64_t moments = 0;        // states of the optimizer
  bool states_visit = false;  // .. pieces of them
  int64_t offloaded = 0;      // outside of the device's memory
  bool in_file = false;       // .. some of it in a file
  int64_t exchanges = 0;      // of several ranks
  std::string partition;      // which matrices ranks hold together, for people
  int64_t gradients = 0;      // kept between the batches of a step; otherwise they are values
  int64_t values = 0;         // within a step
  int64_t evaluation = 0;     // within an evaluation
  int64_t rewriting = 0;      // before any of this, where the base is rewritten (rewrite/rewrite.h)
  int64_t trained = 0;        // numbers
  double operations = 0;      // of the products of a step

  // What lies outside of the device and comes for a while, and whether steps go by layers.
  struct Visiting {
    int64_t states = 0, parameters = 0, gradients = 0, kept = 0;
    bool by_layers = false, computes_again = false;
  } visiting;
  int64_t total() const;
  run::MemoryNeeds needs() const;
};

// `model` needs its family, config and parameters; of weights only types and sizes are looked at. `ranks`: of one of so
// many, the recipe being that of a rank (recipe_of_rank).
TrainingForecast forecast_training(run::Engine& engine, const Model& model, const Recipe& recipe, BatchForm form = {},
                                   bool weights_are_there = false, const Model* teacher = nullptr, int ranks = 1);

// A recipe's steps as they would be planned, for those who ask for several things about them.
class TrainingOutline {
 public:
  // As forecast_training().
  TrainingOutline(run::Engine& engine, const Model& model, Recipe recipe, BatchForm form, const Model* teacher,
                  int ranks);
  TrainingOutline(const TrainingOutline&) = delete;
  TrainingOutline& operator=(const TrainingOutline&) = delete;
  ~TrainingOutline();

  const TrainingForecast& certain() const;  // without planning a step
  // Ends when `go_on` says no to what is known so far, which only grows.
  TrainingForecast forecast(bool weights_are_there,
                            const std::function<bool(const TrainingForecast&)>& go_on = nullptr) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// What is certain of it without planning a step: at most what forecast_training() says, and quick for any model.
TrainingForecast certain_training(run::Engine& engine, const Model& model, const Recipe& recipe, BatchForm form = {},
                                  const Model* teacher = nullptr, int ranks = 1);

// For people: a table of what is needed. `ceiling`: operations a second the device can do at best; 0: not known.
std::string plan_text(const TrainingForecast& forecast, double ceiling);

// Refuses (exit 3) what does not fit, and says which change of the recipe would. `weights_are_there`: the model's
// weights are in memory already. Returns the forecast.
TrainingForecast require_training(run::Engine& engine, const Model& model, const Recipe& recipe,
                                  bool weights_are_there = false, BatchForm form = {}, const Model* teacher = nullptr,
                                  int ranks = 1);
// The same of what is certain without planning a step.
void require_certain_training(run::Engine& engine, const Model& model, const Recipe& recipe,
                              bool weights_are_there = false, BatchForm form = {}, const Model* teacher = nullptr,
                              int ranks = 1);

}  // namespace lumen::model
