// --memory: which memory-saving methods a run needs to stay within a device memory limit, at the least cost in time.
// Formats of states and weights are the recipe's; chosen are recomputation and offloading. Proved by
// tests/model/train/budget/budget_test.cpp.
//
// May include: base, model/train/offload, model/train/ranks, model/train/trainer, run/device, run/device/outside.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/train/trainer/forecast.h"

namespace lumen::model::train {

// All per second.
struct BudgetRates {
  double operations = 0;  // of products
  double memory = 0;      // bytes of the device's memory
  double outside = 0;     // bytes to and from the offload target
};

// `place`: "host" or a folder, as for --offload. Measured with as many bytes as pass in about a tenth of a second.
double measure_outside(run::Device& device, const std::string& place);

struct BudgetChoice {
  std::string recompute, offload;  // as in recipes
  double seconds = 0;              // additional time of a step
  int64_t bytes = 0;               // on the device; 0: not computed, because a cheaper choice fits
  bool fits = false;
  bool is_least = false;  // `bytes` is a lower bound, which exceeds the limit already
};
// All candidates, the cheapest first. Settings that `recipe` states are kept. The first that fits in `limit` bytes is
// the last that is forecast. `place`: as above. `ranks`: for one of this many; `recipe` is that of all. `quick`: a
// candidate whose lower bound exceeds the limit gets only that bound (is_least); the choice is the same.
std::vector<BudgetChoice> budget_choices(run::Engine& engine, const arch::Model& model, const recipe::Recipe& recipe,
                                         BatchForm form, bool weights_are_there, const arch::Model* teacher,
                                         int64_t limit, const BudgetRates& rates, const std::string& place,
                                         int ranks = 1, bool quick = false);

// The recipe with the choice for recipe.memory_limit, and a printable table. Error (exit 3) with the table when nothing
// fits; nothing is measured when lower bounds show that already. `ceiling`: operations a second.
struct MemoryBudget {
  recipe::Recipe recipe;
  std::string text;
};
MemoryBudget within_limit(run::Engine& engine, const arch::Model& model, const recipe::Recipe& recipe, BatchForm form,
                          bool weights_are_there, const arch::Model* teacher, const std::function<double()>& ceiling,
                          int ranks = 1);

}  // namespace lumen::model::train
