// --memory: which of what saves memory a run needs, so that the device holds no more than it may, at the least cost in
// time. Formats of states and weights are the recipe's; what is chosen is what is computed again and what lies outside
// of the device. Proved by tests/model/train/budget/budget_test.cpp.
//
// May include: base, model/train/offload, model/train/ranks, model/train/trainer, run/device, run/device/outside.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/train/trainer/forecast.h"

namespace lumen::model {

// A second.
struct BudgetRates {
  double operations = 0;  // of products
  double memory = 0;      // bytes of the device's memory
  double outside = 0;     // bytes to and from where things lie outside
};

// `place`: "host", or a folder: what --offload takes. Measured with as many bytes as pass in about a tenth of a second.
double measure_outside(run::Device& device, const std::string& place);

struct BudgetChoice {
  std::string recompute, offload;  // as recipes say it
  double seconds = 0;              // that a step takes longer
  int64_t bytes = 0;               // that the device holds then; 0: not looked at, for a cheaper one was enough
  bool fits = false;
  bool is_least = false;  // .. at least so many, which is too much already
};
// Every way there is, the cheapest first. Those of `recipe` that say something already are kept. The first that fits in
// `limit` bytes is the last that is looked at. `place`: as above. `ranks`: for one of so many; `recipe` is that of all.
// `quick`: of what is too much without the values of a step only that is said (is_least); what is taken is the same.
std::vector<BudgetChoice> budget_choices(run::Engine& engine, const Model& model, const Recipe& recipe, BatchForm form,
                                         bool weights_are_there, const Model* teacher, int64_t limit,
                                         const BudgetRates& rates, const std::string& place, int ranks = 1,
                                         bool quick = false);

// The recipe with what recipe.memory_limit takes, and a table for people. Error (exit 3) with the table when nothing
// fits; nothing is measured when that is certain without planning a step. `ceiling`: operations a second.
struct MemoryBudget {
  Recipe recipe;
  std::string text;
};
MemoryBudget within_limit(run::Engine& engine, const Model& model, const Recipe& recipe, BatchForm form,
                          bool weights_are_there, const Model* teacher, const std::function<double()>& ceiling,
                          int ranks = 1);

}  // namespace lumen::model
