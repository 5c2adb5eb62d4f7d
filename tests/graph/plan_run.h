// Executes a plan the way an engine does: group after group, values in the bytes the memory plan gave them. Every group
// is one tiny graph for the oracle. Checks the group contract on the way; returns what went wrong, or nothing.
#pragma once

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "graph/ir/eval.h"
#include "graph/match/access.h"
#include "graph/pipeline/pipeline.h"

namespace lumen::graph {

// What graph/fuse/plan.h promises about one group; empty when kept.
std::string check_group(const Graph& g, const Group& group);

struct PlanRun {
  std::string wrong;
  std::vector<Tensor> results;
  std::map<std::string, Tensor> states;
};
PlanRun run_plan(const Plan& plan, const MemoryPlan& memory, const std::map<std::string, Tensor>& inputs);

}  // namespace lumen::graph
