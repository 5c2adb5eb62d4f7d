// Objectives: the losses that training minimizes, as source files of the language (recipes/objectives, or a user's
// file). A file has the function `loss` and may have metrics: its other functions whose result is written f32[]. Their
// parameters declare the inputs they need; parameters with a default are settings. Known parameters:
// token_loss, weights : f32[B, T]      nats of each position, and its weight
// logits, teacher     : f32[B, T, V]   logits of the model, and of its teacher
// logp, lengths       : f32[R] or f32[P, 2]   of each row: log probability and token count of the answer
// reference           : the same as logp, of the initial model of the training
// labels              : f32[R]         1: a desired answer, 0: an undesired one
// divergence          : f32[]          KL estimate between policy and reference on answers of other prompts
// Rows are pairs where a parameter is f32[P, 2]: rows 2i and 2i + 1 are a chosen and a rejected answer.
// Depends on graphs and source text, not on devices. Proved by tests/model/recipe/objective/objective_test.cpp.
//
// May include: base, base/file, base/messages, graph/elaborate, graph/ir, graph/pass, graph/pipeline, lang, model/arch,
// model/arch/family, model/data/examples.
// Offers: objective_rows.h, teacher.h.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/ir/graph.h"
#include "model/arch/family/family.h"

namespace lumen::model::recipe {

// [objective] of a recipe.
struct ObjectiveSettings {
  std::string
      name;  // of the library or, with a text, its name; "": the sum of weighted token losses, or the family's loss
  std::string text;  // source of a user's objective
  std::map<std::string, double> settings;
  std::string teacher = {};  // a model's file or folder; "": the model without its adapter
};

std::vector<std::string> objective_names();  // the built-in ones

// If the name is the path of a source file, reads it into `text` and shortens the name, so that the settings are
// self-contained. Error when it cannot be read.
void take_text(ObjectiveSettings& settings);

// Inputs that objectives add to the model's function.
inline constexpr const char* kReference = "reference";    // f32[B]
inline constexpr const char* kLabels = "labels";          // f32[B]
inline constexpr const char* kDivergence = "divergence";  // f32[]

class Objective {
 public:
  // Error when the library has no such objective, the text is wrong, or a setting is none of its parameters.
  Objective(const arch::Library& library, const ObjectiveSettings& settings);

  const std::string& name() const { return name_; }
  bool reads(const std::string& parameter) const;
  bool is_of_pairs() const { return pairs_; }
  // The model's function that it needs: logits where the objective reads them, else token losses.
  const char* function() const { return reads("logits") ? "forward" : "token_loss"; }
  const std::vector<std::string>& metrics() const { return metrics_; }
  // All settings with their values, defaults included.
  std::map<std::string, double> settings() const;

  // `policy` is the model's function, all extents numbers; `teacher` its logits with other weights, whose inputs have
  // other names or the same types. The output's results are "loss", computed after everything else, and the metrics by
  // name. `weighted`: positions have weights; otherwise all count equally.
  graph::Graph over(graph::Graph policy, bool weighted, const graph::Graph* teacher = nullptr) const;

 private:
  graph::Graph elaborate(const lang::Function& fn) const;

  const arch::Library& library_;
  std::string name_;
  std::shared_ptr<const lang::File> file_;
  std::vector<lang::Function> functions_;  // of the text, with the settings as defaults
  const lang::Function* loss_ = nullptr;
  std::vector<std::string> metrics_;
  bool pairs_ = false;
};

}  // namespace lumen::model::recipe
