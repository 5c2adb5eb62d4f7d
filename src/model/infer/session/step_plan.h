// Which function of a family a session runs, and with what caches: `step`, which remembers everything, or `step_near`,
// whose layers with a window remember the latest only, where the family has it and that saves memory.
#pragma once

#include "model/infer/session/session.h"

namespace lumen::model {

struct StepPlan {
  graph::Graph graph;
  graph::Bindings symbols;                  // all but T and R
  int64_t window = 0;                       // of the layers that remember the latest only; 0: none do
  std::optional<Narrowing> narrowing = {};  // with which the graph has another result
};

// The limits of a session of many sequences.
struct ManyLimits {
  int64_t longest = 0;  // tokens of a sequence at most; 0: what the cache holds, or the model's context if that is less
  int64_t sequences = 0;  // generated at once; 0: kMostSequencesAtOnce
  int64_t kept = 0;       // ended ones that stay open beside them, for their prefixes
  int64_t drafted = 0;    // draft tokens that a sequence may bring into a step beside its next one, and have rejected
  int64_t rows = 0;       // of such a step, of all sequences together; 0: one for each sequence at once
};
inline constexpr int64_t kMostSequencesAtOnce = 256;
inline constexpr const char* kNearStates = "near_";  // states of layers with a window are called so

// Defaults filled in.
ManyLimits many_limits(const Model& model, const SessionOptions& options, ManyLimits given);
// The same choice for many sequences: `step_many` or `step_many_near`, and all symbols but B, T and R.
StepPlan plan_many(const LoadedModel& loaded, const SessionOptions& options, const ManyLimits& limits);

// The same of the model without its adapters, for sequences that have none.
StepPlan plan_many_plain(const LoadedModel& loaded, const SessionOptions& options, const ManyLimits& limits);

StepPlan plan_step(const LoadedModel& loaded, const SessionOptions& options);

// The widest step of a session.
int64_t widest_step(const SessionOptions& options);

// SessionOptions::mixed, decided.
bool mixes_prompts(const LoadedModel& loaded, const SessionOptions& options);

// Whether positions are scaled by the length that a sequence may reach: results then depend on the requested context.
bool depends_on_length(const LoadedModel& loaded);

}  // namespace lumen::model
