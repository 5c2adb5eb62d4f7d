#include "model/infer/step_plan.h"

#include <algorithm>

#include "base/check.h"
#include "graph/ir/rewrite.h"
#include "model/infer/near_places.h"

namespace lumen::model {
namespace {

constexpr int64_t kNarrowest = 8;               // as in session.cpp
constexpr const char* kWindow = "window_size";  // a family's config key: what its layers with a window see

// How often each state is written: once for each of its layers.
int64_t layers_of(const graph::Graph& g, const std::string& state) {
  std::vector<bool> is_state(g.nodes.size());
  int64_t count = 0;
  for (graph::ValueId v = 0; v < static_cast<graph::ValueId>(g.nodes.size()); ++v) {
    const graph::Node& n = g[v];
    if (n.op == graph::Op::input_) is_state[static_cast<size_t>(v)] = n.attributes.name == state;
    if (n.op != graph::Op::update_ || !is_state[static_cast<size_t>(n.operands[0])]) continue;
    is_state[static_cast<size_t>(v)] = true;
    ++count;
  }
  return count;
}

// Caches of layers that are not there are no inputs.
graph::Graph without_unused_states(const graph::Graph& g) {
  std::vector<bool> used(g.nodes.size());
  for (const graph::Node& n : g.nodes)
    for (const graph::ValueId o : n.operands) used[static_cast<size_t>(o)] = true;
  graph::Rewriter r(g);
  for (graph::ValueId v = 0; v < static_cast<graph::ValueId>(g.nodes.size()); ++v) {
    const graph::Node& n = g[v];
    const bool idle =
        n.op == graph::Op::input_ && n.attributes.role == graph::Role::state && !used[static_cast<size_t>(v)];
    if (!idle) r.keep(v);
  }
  return r.finish();
}

}  // namespace

int64_t widest_step(const SessionOptions& options) {
  return std::max(options.chunk, kNarrowest);
}

StepPlan plan_step(const LoadedModel& loaded, const SessionOptions& options) {
  const Model& model = loaded.model();
  StepPlan plan;
  plan.symbols = {{"B", 1}, {"S", options.context}};
  const auto window = model.config.find(kWindow);
  if (window != model.config.end() && window->second > 0 && model.family->has_function("step_near")) {
    plan.window = static_cast<int64_t>(window->second);
    const int64_t places = NearPlaces(plan.window, widest_step(options)).size();
    if (places < options.context) {
      graph::Graph g = loaded.function("step_near");
      graph::inline_calls(g);
      const int64_t near = layers_of(g, "near_keys"), far = layers_of(g, "keys");
      if (near > 0) {
        plan.graph = without_unused_states(g);
        plan.symbols["W"] = places;
        plan.symbols["N"] = near;
        plan.symbols["F"] = far;
        return plan;
      }
    }
  }
  plan.window = 0;
  plan.graph = loaded.function("step");
  return plan;
}

}  // namespace lumen::model
