// An optimizer of a recipe: its source (models/optimizers.lum, or a user's) with the recipe's numbers, instantiated for
// each parameter. Provides a parameter's states, their types, and the update graph; it does not depend on how gradients
// are computed. Proved by tests/model/recipe/optimizer/optimizer_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/ir/graph.h"
#include "model/arch/family/family.h"
#include "model/recipe/optimizer/held.h"

namespace lumen::model::recipe {

// [optimizer] of a recipe. Missing values get the optimizer's defaults.
struct OptimizerSettings {
  std::string name = "adamw";
  std::optional<double> beta1, beta2, epsilon, weight_decay, momentum;
  std::map<std::string, std::string> config;  // other keys of the optimizer, and their values as strings
  double max_norm = 1.0;                      // of the global gradient norm; 0: no clipping
  // Types of states of a parameter's shape between steps, and of those that hold squares (stored as square roots); ""
  // for the latter: the same. Where the block size does not divide a parameter's rows, its states are f32, and so are
  // vectors' states.
  std::string moments = "f32", second_moments;
  // Keeps an upper bound of each matrix's magnitude: each step adds its largest possible move, and every `bound_every`
  // steps the true maximum replaces it. 0: no bound.
  int64_t bound_every = 0;
  // Types of parameters between steps: the rounding residual may be a state, too.
  HeldSettings held;
  double ema_decay = 0;  // of an exponential moving average of the weights; 0: none
};

// Resolves an alias of an optimizer, and fills missing numbers with its defaults. Error as Optimizer's. `said`, when
// given, receives a note about the alias.
OptimizerSettings resolved(const arch::Library& library, OptimizerSettings settings, std::string* said = nullptr);

inline constexpr const char* kLearningRate = "step.lr";  // input of a step; other numbers are "step." and their name

// kRescale: whether bounds of weights are reset to the true maximum. kMostMove: the largest change of a weight's
// element by a step, as optimizers define it (`most_move`).
inline constexpr const char* kRescale = "step.rescale";
inline constexpr const char* kMostMove = "step.most_move";

// Whether an input of a training step is a state of the optimizer.
bool is_optimizer_state(const std::string& input);
// The input that holds state `state` of a parameter.
std::string optimizer_state(const std::string& state, const std::string& parameter);
// The state that holds the rounding residual of a parameter.
inline constexpr const char* kRest = "rest";
// The state that holds the moving average of a parameter, in the parameter's own type.
std::string average_of(const std::string& parameter);
bool is_average(const std::string& input);

class Optimizer {
 public:
  // Error when the library has no such optimizer, or a setting is none of its keys.
  Optimizer(const arch::Library& library, OptimizerSettings settings);

  const OptimizerSettings& settings() const { return settings_; }
  // All keys with their values, e.g. for a record of the run; strings are quoted.
  std::vector<std::pair<std::string, std::string>> values() const;

  struct State {
    std::string name;      // in the optimizer's source
    graph::Type type;      // type between steps
    bool is_root = false;  // stores the square root of the value that the update reads
  };
  std::vector<State> states(const arch::Parameter& p) const;
  int64_t state_bytes(const std::vector<arch::Parameter>& trained,
                      const Holding& held = {}) const;  // averages included

  // The update graph for a parameter: inputs "value", "gradient", the states and numbers by name, all f32; its result
  // is the new value; states are updated as a whole.
  const graph::Graph& update(const arch::Parameter& p) const;

  // Inputs of a training step and their values: the rate, and the numbers that are computed once a step (from 1).
  std::vector<std::pair<std::string, double>> numbers(int64_t step, double rate) const;

  // Types of parameters between steps; and whether a parameter has a residual state.
  const HeldIn& held() const { return held_; }
  bool compensates(const arch::Parameter& p) const { return held_.rest && held_.holds(p); }

  // Whether a bound on the parameter's magnitude is kept, as a state of rank 0 (graph::kLargestState).
  bool bounds(const arch::Parameter& p) const { return settings_.bound_every > 0 && p.shape.size() >= 2; }

  // Mantissa bits of a format of small floats with power-of-two scales, which can be rounded to stochastically.
  static std::optional<int> stochastic_bits(const Format& format);

 private:
  graph::Config config_of(const arch::Parameter& p) const;
  const std::string& function_of(const arch::Parameter& p) const;

  OptimizerSettings settings_;
  const arch::Library& library_;
  const lang::ModelDecl& decl_;
  graph::Config config_;
  HeldIn held_;
  FormatRef moments_, second_moments_;  // null: f32
  std::vector<std::string> roots_, elementwise_, numbers_;
  std::string update_ = "elements", matrix_ = "matrix";
  bool has_matrix_ = false;
  mutable std::map<std::string, std::shared_ptr<const graph::Graph>> updates_;  // by function, shape and numbers
};

}  // namespace lumen::model::recipe
