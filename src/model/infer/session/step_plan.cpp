#include "model/infer/session/step_plan.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/rewrite.h"
#include "graph/pass/pass.h"
#include "model/arch/function.h"
#include "model/infer/recurrent/recurrent.h"
#include "model/infer/session/near_places.h"

namespace lumen::model::infer {
namespace {

constexpr int64_t kNarrowest = 8;               // as in session.cpp
constexpr const char* kWindow = "window_size";  // a family's config key: the size of the sliding window

// How often a state is written: once per layer that uses it.
int64_t layers_of(const graph::Graph& g, const std::string& state) {
  std::vector<bool> is_state(g.nodes.size());
  int64_t count = 0;
  for (graph::ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    const graph::Node& n = g[v];
    if (n.op == graph::Op::input_) is_state[v] = n.attributes.name == state;
    if (n.op != graph::Op::update_ || !is_state[n.operands[0]]) continue;
    is_state[v] = true;
    ++count;
  }
  return count;
}

// Caches without any layer are removed from the inputs, with what is read from them.
graph::Graph without_unused_states(const graph::Graph& g) {
  std::vector<bool> used(g.nodes.size());
  for (const graph::ValueId v : g.results) used[v] = true;
  for (size_t v = g.nodes.size(); v-- > 0;) {
    if (g.nodes[v].op == graph::Op::update_) used[v] = true;
    if (!used[v]) continue;
    for (const graph::ValueId o : g.nodes[v].operands) used[o] = true;
  }
  graph::Rewriter r(g);
  for (graph::ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    const graph::Node& n = g[v];
    const bool stays = n.op == graph::Op::input_ && n.attributes.role != graph::Role::state;
    if (used[v] || stays) r.keep(v);
  }
  return r.finish();
}

// The symbol that is the first axis of a state, which is of layers; "" for other extents.
std::string layers_axis(const graph::Node& n) {
  if (n.attributes.role != graph::Role::state || n.type.shape.empty()) return "";
  const graph::Dim& layers = n.type.shape[0];
  return layers.coefficient == 1 && layers.symbols.size() == 1 ? layers.symbols[0] : "";
}

// Completes the steps of families with layers of several kinds: a first axis that is a symbol of its own gets the
// number of layers that write the state, and states that no layer writes are removed.
StepPlan with_counted_layers(const LoadedModel& loaded, StepPlan plan, bool many, bool stepwise) {
  const auto states = plan.graph.inputs();
  const bool counts = std::ranges::any_of(states, [&](graph::ValueId v) {
    const std::string axis = layers_axis(plan.graph[v]);
    return !axis.empty() && !plan.symbols.contains(axis);
  });
  if (!counts && recurrent_states(plan.graph).empty()) return plan;
  graph::inline_calls(plan.graph);
  plan.graph = without_unused_states(plan.graph);
  if (stepwise) graph::drop_chunks(plan.graph);
  plan.recurrent = recurrent_states(plan.graph);
  if (!plan.recurrent.empty()) require_counts(loaded.model().family->name(), plan.graph, plan.recurrent, many);
  for (const graph::ValueId v : plan.graph.inputs()) {
    const graph::Node& n = plan.graph[v];
    const std::string axis = layers_axis(n);
    if (axis.empty()) continue;
    const int64_t count = layers_of(plan.graph, n.attributes.name);
    const auto [at, is_new] = plan.symbols.emplace(axis, count);
    if (at->second != count)
      throw user_error("the family '{}': {} layers write the state '{}', whose first axis '{}' has an extent of {}",
                       loaded.model().family->name(), count, n.attributes.name, axis, at->second);
  }
  return plan;
}

// The sliding window's size, or 0 if the family has none.
int64_t window_of(const arch::Model& model) {
  const auto window = model.config.find(kWindow);
  return window == model.config.end() ? 0 : std::max<int64_t>(0, static_cast<int64_t>(window->second));
}

using Functions = std::function<graph::Graph(const std::string&)>;  // of a model, by name

// Uses `function`, whose sliding-window layers have caches of their own; false if it has no such layers.
bool use_near(const LoadedModel& loaded, const Functions& functions, const std::string& function, int64_t window,
              StepPlan& plan) {
  if (!loaded.model().family->has_function(function)) return false;
  graph::Graph g = functions(function);
  graph::inline_calls(g);
  const int64_t near = layers_of(g, "near_keys"), far = layers_of(g, "keys");
  if (near == 0) return false;
  plan.graph = without_unused_states(g);
  plan.symbols["N"] = near;
  plan.symbols["F"] = far;
  plan.window = window;
  return true;
}

// Fewer rows would read prompts more slowly, and hardly make single sequences faster.
constexpr int64_t kLeastFixed = 32;

// Smaller vocabularies are copied to the host as fast as they are reduced.
constexpr int64_t kWorthNarrowing = 4096;

// Completes the plan of a step.
StepPlan narrowed(const LoadedModel& loaded, const SessionOptions& options, Narrowing::Rows rows, StepPlan plan) {
  pad_caches(options, plan.graph);
  const int64_t vocabulary = loaded.model().integer("vocab");
  const bool apart = !loaded.engine().device().reads_host_memory() && vocabulary >= kWorthNarrowing;
  const bool can = vocabulary >= Narrowing::kLeast && plan.graph.results.size() == 1;
  if (!can || options.narrow == Narrow::never || (options.narrow == Narrow::apart && !apart)) return plan;
  plan.narrowing.emplace(vocabulary, rows);
  plan.narrowing->append(loaded.model().family->library(), plan.graph);
  return plan;
}

StepPlan plan_of_step(const LoadedModel& loaded, const SessionOptions& options) {
  const Functions functions = [&](const std::string& name) { return loaded.function(name); };
  StepPlan plan;
  plan.symbols = {{"B", 1}, {"S", options.context}};
  const int64_t window = window_of(loaded.model());
  if (window > 0 && !loaded.reads_pictures()) {
    const int64_t places = NearPlaces(window, widest_step(options)).size();
    if (places < options.context && use_near(loaded, functions, "step_near", window, plan)) {
      plan.symbols["W"] = places;
      return with_counted_layers(loaded, std::move(plan), false, options.stepwise);
    }
  }
  plan.graph = loaded.function(loaded.reads_pictures() ? "step_seeing" : "step");
  return with_counted_layers(loaded, std::move(plan), false, options.stepwise);
}

StepPlan plan_of_many(const LoadedModel& loaded, const Functions& functions, const SessionOptions& options,
                      const ManyLimits& limits) {
  const arch::Model& model = loaded.model();
  if (!model.family->has_function("step_many"))
    throw user_error("the family '{}' cannot compute several sequences at once", model.family->name());
  const auto pages_of = [&](int64_t tokens) { return (tokens + options.page - 1) / options.page; };
  StepPlan plan;
  plan.symbols = {{"C", pages_of(options.context)}, {"P", options.page}, {kSlotAxis, limits.sequences}};
  // A power of two, so that few lengths need kernels of their own.
  plan.symbols["K"] = std::bit_ceil(static_cast<uint64_t>(pages_of(limits.longest)));
  const int64_t window = window_of(model);
  if (window > 0 && !loaded.reads_pictures()) {
    // Pages of the window of each sequence, partly filled pages at its ends, and the pages of a prompt's chunk.
    const int64_t pages = (limits.sequences + limits.kept) * (pages_of(window - 1 + limits.drafted) + 2) +
                          pages_of(std::max(widest_step(options), limits.fixed)) + 1;
    if (pages < plan.symbols["C"] && use_near(loaded, functions, "step_many_near", window, plan)) {
      plan.symbols["W"] = pages;
      return with_counted_layers(loaded, std::move(plan), true, options.stepwise);
    }
  }
  plan.graph = functions(loaded.reads_pictures() ? "step_many_seeing" : "step_many");
  return with_counted_layers(loaded, std::move(plan), true, options.stepwise);
}

// Kernels of processors keep the order of a row's sums for any number of rows; those of GPUs do not, and only sessions
// of many sequences have steps of one width (ManyLimits::fixed).
void require_invariance(const LoadedModel& loaded, const SessionOptions& options) {
  const machine::Machine& machine = loaded.engine().device().machine();
  if (options.invariant && machine.kind != machine::Kind::cpu)
    throw Error(Exit::usage, fmt::format("on a GPU ({}) --batch-invariant holds in `lumen serve` only", machine.name),
                "use --device cpu, or leave the flag out");
}

}  // namespace

void pad_caches(const SessionOptions& options, graph::Graph& step) {
  std::map<std::string, int64_t> widths;
  const std::vector<std::string> recurrent = recurrent_states(step);
  for (const graph::ValueId v : step.inputs()) {
    const graph::Node& n = step[v];
    if (n.attributes.role != graph::Role::state || n.type.shape.empty()) continue;
    if (std::ranges::count(recurrent, n.attributes.name) > 0) continue;
    const FormatRef format = cache_format_of(n.attributes.name, options);
    if (!format || !n.type.shape.back().is_number()) continue;
    const int64_t width = n.type.shape.back().number(),
                  whole = (width + format->block - 1) / format->block * format->block;
    if (whole != width && whole < 2 * width) widths[n.attributes.name] = whole;
  }
  graph::pad_states(step, widths);
}

int64_t widest_step(const SessionOptions& options) {
  return std::max(options.chunk, kNarrowest);
}

StepPlan plan_step(const LoadedModel& loaded, const SessionOptions& options) {
  require_invariance(loaded, options);
  return narrowed(loaded, options, Narrowing::Rows::one, plan_of_step(loaded, options));
}

ManyLimits many_limits(const LoadedModel& loaded, const SessionOptions& options, ManyLimits given) {
  if (given.longest == 0) given.longest = std::min(options.context, loaded.model().integer("context"));
  if (given.sequences == 0) given.sequences = kMostSequencesAtOnce;
  if (given.sequences < 1 || given.sequences > kMostSequencesAtOnce)
    throw usage_error("from 1 to {} sequences can be generated at once", kMostSequencesAtOnce);
  given.rows = std::max(given.rows, given.sequences);
  const bool is_fixed = options.invariant && loaded.engine().device().machine().kind != machine::Kind::cpu;
  if (is_fixed || given.fixed > 0)
    given.fixed = std::max({kLeastFixed, given.fixed, int64_t(std::bit_ceil(uint64_t(given.rows)))});
  if (options.page < 1) throw usage_error("a page holds at least one token");
  return given;
}

StepPlan plan_many(const LoadedModel& loaded, const SessionOptions& options, const ManyLimits& limits) {
  const Functions functions = [&](const std::string& name) { return loaded.function(name); };
  return narrowed(loaded, options, Narrowing::Rows::many, plan_of_many(loaded, functions, options, limits));
}

StepPlan plan_many_plain(const LoadedModel& loaded, const SessionOptions& options, const ManyLimits& limits) {
  const Functions functions = [&](const std::string& name) { return function_of(loaded.model(), name); };
  return narrowed(loaded, options, Narrowing::Rows::many, plan_of_many(loaded, functions, options, limits));
}

bool mixes_prompts(const LoadedModel& loaded, const SessionOptions& options) {
  return options.mixed.value_or(!loaded.engine().device().reads_host_memory());
}

bool depends_on_length(const LoadedModel& loaded) {
  if (!loaded.model().family->has_function("step_many")) return false;
  graph::Graph g = loaded.function("step_many");
  graph::inline_calls(g);
  const graph::ValueId length = g.find_input("length");
  if (length < 0) return false;
  // The values that results depend on; constant conditions leave unused values in the graph.
  std::vector<bool> asked(g.nodes.size());
  for (const graph::ValueId v : g.results) asked[v] = true;
  for (size_t v = g.nodes.size(); v-- > 0;)
    if (asked[v])
      for (const graph::ValueId o : g.nodes[v].operands) asked[o] = true;
  return asked[length];
}

}  // namespace lumen::model::infer
