// Selects the function of a family that a session runs, and its caches: `step`, which caches all positions, or
// `step_near`, whose sliding-window layers cache the latest positions only, if the family has it and it saves memory.
#pragma once

#include "model/infer/session/session.h"

namespace lumen::model::infer {

struct StepPlan {
  graph::Graph graph;
  graph::Bindings symbols;                  // all but T and R
  int64_t window = 0;                       // size of the sliding window; 0: all layers see all positions
  std::vector<std::string> recurrent = {};  // states without an axis of positions (model/infer/recurrent)
  std::optional<Narrowing> narrowing = {};  // appends a second result to the graph
};

// The limits of a session of many sequences.
struct ManyLimits {
  int64_t longest = 0;    // most tokens per sequence; 0: capacity of the cache, or the model's context if that is less
  int64_t sequences = 0;  // decoded at once; 0: kMostSequencesAtOnce
  int64_t kept = 0;       // finished sequences that stay open in addition, as a prefix cache
  int64_t drafted = 0;    // draft tokens that a sequence may add to a step, all of which may be rejected
  int64_t rows = 0;       // rows of such a step, for all sequences together; 0: one per sequence
  // Tokens of every step, where results must not depend on the number of rows (SessionOptions::invariant) and the
  // device's kernels do: one step is compiled, in which each token is a row of its own. 0: steps of several widths.
  int64_t fixed = 0;
};
inline constexpr int64_t kMostSequencesAtOnce = 256;
inline constexpr const char* kNearStates = "near_";  // prefix of the names of sliding-window states

// Defaults filled in.
ManyLimits many_limits(const LoadedModel& loaded, const SessionOptions& options, ManyLimits given);
// The choice for many sequences: `step_many` or `step_many_near`, with all symbols except B, T and R.
StepPlan plan_many(const LoadedModel& loaded, const SessionOptions& options, const ManyLimits& limits);

// The same for the model without adapters, for sequences that have none.
StepPlan plan_many_plain(const LoadedModel& loaded, const SessionOptions& options, const ManyLimits& limits);

StepPlan plan_step(const LoadedModel& loaded, const SessionOptions& options);

// Caches in formats whose blocks do not divide a head's numbers hold whole blocks, the last one filled with zeros. Less
// than half of a row is filling: otherwise a format with shorter blocks takes less memory (step_options refuses it).
void pad_caches(const SessionOptions& options, graph::Graph& step);

// The most tokens of a session's step.
int64_t widest_step(const SessionOptions& options);

// The value of SessionOptions::mixed, or its default.
bool mixes_prompts(const LoadedModel& loaded, const SessionOptions& options);

// Whether positions are scaled by the maximum length of a sequence: results then depend on the requested context.
bool depends_on_length(const LoadedModel& loaded);

}  // namespace lumen::model::infer
