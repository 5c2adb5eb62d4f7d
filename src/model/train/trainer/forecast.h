// Forecast of the memory that training takes, before any weight is made or read: weights, moments and gradients from
// the parameters' shapes, values from planning the same steps that will run. Proved by
// tests/model/train/training_forecast_test.cpp and tests/model/train/adapter/lora_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "model/train/method/method.h"

namespace lumen::model::train {

struct TrainingForecast {
  int64_t teacher = 0;        // of the teacher model
  int64_t weights = 0;        // all parameters: as held for training, or with an adapter as stored in their file
  int64_t adapters = 0;       // and learned fields
  int64_t moments = 0;        // optimizer states
  bool states_visit = false;  // optimizer states are paged in groups
  int64_t offloaded = 0;      // outside the device's memory
  bool in_file = false;       // part of `offloaded` is in a file
  int64_t exchanges = 0;      // communication buffers of several ranks
  std::string partition;      // which matrices ranks hold in parts, printable
  int64_t gradients = 0;      // kept between the batches of a step; otherwise counted in `values`
  int64_t values = 0;         // within a step
  int64_t evaluation = 0;     // within an evaluation
  int64_t residual_base = 0;  // before training, where the base is changed (train/adapter_init)
  int64_t trained = 0;        // trained numbers
  double operations = 0;      // of the products of a step

  // Bytes that are stored off the device and paged in, and whether steps run layer by layer.
  struct Visiting {
    int64_t states = 0, parameters = 0, gradients = 0, kept = 0;
    bool by_layers = false, computes_again = false;
  } visiting;
  int64_t total() const;
  run::MemoryNeeds needs() const;
};

// `model` needs its family, config and parameters; of weights only types and sizes are read. `ranks`: the forecast is
// for one of this many ranks, and the recipe is that of a rank (recipe_of_rank).
TrainingForecast forecast_training(run::Engine& engine, const arch::Model& model, const recipe::Recipe& recipe,
                                   BatchForm form = {}, bool weights_are_there = false,
                                   const arch::Model* teacher = nullptr, int ranks = 1);

// A recipe's planned steps, for callers with several questions about them.
class TrainingOutline {
 public:
  // As forecast_training().
  TrainingOutline(run::Engine& engine, const arch::Model& model, recipe::Recipe recipe, BatchForm form,
                  const arch::Model* teacher, int ranks);
  TrainingOutline(const TrainingOutline&) = delete;
  TrainingOutline& operator=(const TrainingOutline&) = delete;
  ~TrainingOutline();

  const TrainingForecast& certain() const;  // lower bound, without planning a step
  // Stops as soon as `go_on` returns false for the lower bound so far, which only grows.
  TrainingForecast forecast(bool weights_are_there,
                            const std::function<bool(const TrainingForecast&)>& go_on = nullptr) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// A lower bound of forecast_training() that plans no step, so it is fast for any model.
TrainingForecast certain_training(run::Engine& engine, const arch::Model& model, const recipe::Recipe& recipe,
                                  BatchForm form = {}, const arch::Model* teacher = nullptr, int ranks = 1);

// Printable table of the memory needed. `ceiling`: the device's peak operations per second; 0: not known.
std::string plan_text(const TrainingForecast& forecast, double ceiling);

// Error (exit 3) when training does not fit; the hint names a change of the recipe that would help.
// `weights_are_there`: the model's weights are in memory already. Returns the forecast.
TrainingForecast require_training(run::Engine& engine, const arch::Model& model, const recipe::Recipe& recipe,
                                  bool weights_are_there = false, BatchForm form = {},
                                  const arch::Model* teacher = nullptr, int ranks = 1);
// The same for the lower bound that needs no planning.
void require_certain_training(run::Engine& engine, const arch::Model& model, const recipe::Recipe& recipe,
                              bool weights_are_there = false, BatchForm form = {}, const arch::Model* teacher = nullptr,
                              int ranks = 1);

}  // namespace lumen::model::train
