// An optimizer of a recipe: its text (models/optimizers.lum, or a user's) with the recipe's numbers, asked for each
// parameter. Knows which states a parameter has, in what they are held, and the graph that makes new values; not how
// gradients come about. Proved by tests/model/recipe/optimizer/optimizer_test.cpp.
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

namespace lumen::model {

// [optimizer] of a recipe. What is not given is the optimizer's own default.
struct OptimizerSettings {
  std::string name = "adamw";
  std::optional<double> beta1, beta2, epsilon, weight_decay, momentum;
  std::map<std::string, std::string> config;  // other keys of the optimizer, and their values as strings
  double max_norm = 1.0;                      // of all gradients together; 0: no clipping
  // What states of a parameter's own shape are held in between steps, and those that hold squares (their roots are
  // held); "" for the latter: the same. A format whose blocks do not divide a parameter's rows leaves its states in
  // f32, and vectors' states are f32.
  std::string moments = "f32", second_moments;
  // A bound on each matrix's magnitude is kept: what a step can move it is added, and every so many steps the true
  // largest magnitude takes its place. 0: none is kept.
  int64_t bound_every = 0;
  // What parameters are held in: what rounding them loses may be a state, too.
  HeldSettings held;
  double ema_decay = 0;  // of a mean of the weights over the steps; 0: none is kept
};

// The settings of the optimizer that `name` is another name of, and with the defaults of those numbers that are not
// given; others as they are. Error as Optimizer's. `said`, when given, receives what another name was taken for.
OptimizerSettings resolved(const Library& library, OptimizerSettings settings, std::string* said = nullptr);

inline constexpr const char* kLearningRate = "step.lr";  // input of a step; others are "step." and the number's name

// Whether bounds of weights become what is largest of them; "step." and the number by which a step moves an element of
// a weight at most, which optimizers' texts say (`most_move`).
inline constexpr const char* kRescale = "step.rescale";
inline constexpr const char* kMostMove = "step.most_move";

// Whether an input of a training step is a state of the optimizer.
bool is_optimizer_state(const std::string& input);
// The input that holds state `state` of a parameter.
std::string optimizer_state(const std::string& state, const std::string& parameter);
// The state that holds what rounding loses of a held parameter.
inline constexpr const char* kRest = "rest";
// The one that holds the mean of a parameter over the steps, in the parameter's own type.
std::string average_of(const std::string& parameter);
bool is_average(const std::string& input);

class Optimizer {
 public:
  // Error when the library has no such optimizer, or it has no key that a setting names.
  Optimizer(const Library& library, OptimizerSettings settings);

  const OptimizerSettings& settings() const { return settings_; }
  // All keys with their values, e.g. for a record of the run; strings are quoted.
  std::vector<std::pair<std::string, std::string>> values() const;

  struct State {
    std::string name;      // of the optimizer's text
    graph::Type type;      // what it is between steps
    bool is_root = false;  // the square root of what the text sees
  };
  std::vector<State> states(const Parameter& p) const;
  int64_t state_bytes(const std::vector<Parameter>& trained, const Holding& held = {}) const;  // with means

  // The text's function for a parameter: inputs "value", "gradient", the states and numbers by name, all f32; its
  // result is the new value; states are updated as a whole.
  const graph::Graph& update(const Parameter& p) const;

  // Inputs of a training step and their values: the rate, and what the text computes once for each step (from 1).
  std::vector<std::pair<std::string, double>> numbers(int64_t step, double rate) const;

  // What parameters are held in between steps; and whether what rounding loses of one is a state.
  const HeldIn& held() const { return held_; }
  bool compensates(const Parameter& p) const { return held_.rest && held_.holds(p); }

  // Whether a bound on the parameter's magnitude is kept, as a state of rank 0 (graph::kLargestState).
  bool bounds(const Parameter& p) const { return settings_.bound_every > 0 && p.shape.size() >= 2; }

  // Mantissa bits of a format of small floats under powers of two, to which numbers can be rounded stochastically.
  static std::optional<int> stochastic_bits(const Format& format);

 private:
  graph::Config config_of(const Parameter& p) const;
  const std::string& function_of(const Parameter& p) const;

  OptimizerSettings settings_;
  const Library& library_;
  const lang::ModelDecl& decl_;
  graph::Config config_;
  HeldIn held_;
  FormatRef moments_, second_moments_;  // null: f32
  std::vector<std::string> roots_, elementwise_, numbers_;
  std::string update_ = "elements", matrix_ = "matrix";
  bool has_matrix_ = false;
  mutable std::map<std::string, std::shared_ptr<const graph::Graph>> updates_;  // by function, shape and numbers
};

}  // namespace lumen::model
