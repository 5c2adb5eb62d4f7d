// Objectives: what training makes small, as texts of the language (recipes/objectives, or a user's file). A text has
// the function `loss` and may have metrics: its other functions whose result is written f32[]. Their parameters say
// what they need; those with a default are settings. Known parameters:
// token_loss, weights : f32[B, T]      nats of each position, and what it counts
// logits, teacher     : f32[B, T, V]   of the model, and of the one it learns from
// logp, lengths       : f32[R] or f32[P, 2]   of each row: the answer's log probability, and how many tokens it has
// reference           : the same as logp, of the model that training began with
// labels              : f32[R]         1: the answer was wanted, 0: it was not
// divergence          : f32[]          how far the policy has gone from the reference on answers of other prompts
// Rows are pairs where a parameter is f32[P, 2]: rows 2i and 2i + 1 are an answer that was chosen and one rejected.
// Knows graphs and texts, no device. Proved by tests/model/recipe/objective/objective_test.cpp.
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

namespace lumen::model {

// [objective] of a recipe.
struct ObjectiveSettings {
  std::string
      name;  // of the library or, with a text, of that; "": the sum of weighted token losses, or the family's loss
  std::string text;  // a user's
  std::map<std::string, double> settings;
  std::string teacher = {};  // a model's file or folder; "": the model without its adapter
};

std::vector<std::string> objective_names();  // those that come with the program

// A name that is the path of a text becomes the text and its name, so that the settings say all. Error when it cannot
// be read.
void take_text(ObjectiveSettings& settings);

// Inputs of the graphs that objectives make beside those of the model's function.
inline constexpr const char* kReference = "reference";    // f32[B]
inline constexpr const char* kLabels = "labels";          // f32[B]
inline constexpr const char* kDivergence = "divergence";  // f32[]

class Objective {
 public:
  // Error when the library has no such objective, the text is wrong, or a setting is none of its parameters.
  Objective(const Library& library, const ObjectiveSettings& settings);

  const std::string& name() const { return name_; }
  bool reads(const std::string& parameter) const;
  bool is_of_pairs() const { return pairs_; }
  // What the model's function must be: its logits where the objective reads those, else losses of tokens.
  const char* function() const { return reads("logits") ? "forward" : "token_loss"; }
  const std::vector<std::string>& metrics() const { return metrics_; }
  // Settings with their values, defaults included.
  std::map<std::string, double> settings() const;

  // `policy` is the model's function, all extents numbers; `teacher` its logits by other weights, whose inputs are
  // called otherwise or held alike. The result's results are "loss", behind everything else, and the metrics by name.
  // `weighted`: positions have weights; otherwise all count alike.
  graph::Graph over(graph::Graph policy, bool weighted, const graph::Graph* teacher = nullptr) const;

 private:
  graph::Graph elaborate(const lang::Function& fn) const;

  const Library& library_;
  std::string name_;
  std::shared_ptr<const lang::File> file_;
  std::vector<lang::Function> functions_;  // those of the text, with the settings as defaults
  const lang::Function* loss_ = nullptr;
  std::vector<std::string> metrics_;
  bool pairs_ = false;
};

}  // namespace lumen::model
