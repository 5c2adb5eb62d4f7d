#include "model/infer/session/forecast.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "base/printable.h"
#include "base/round_up.h"
#include "model/infer/session/session_many.h"
#include "model/infer/session/step_plan.h"

namespace lumen::model::infer {
namespace {

constexpr int64_t kAlignment = 512;  // of allocations, at most

// Bytes of the inputs that are uploaded for each run of a step; those that are `there` already are not counted.
int64_t input_bytes(const graph::Graph& step, const graph::Bindings& symbols,
                    const std::set<std::string, std::less<>>& there = {}) {
  int64_t bytes = 0;
  for (const graph::ValueId v : step.inputs())
    if (step[v].attributes.role == graph::Role::data && !there.contains(step[v].attributes.name))
      bytes += round_up(graph::byte_size(graph::bind(step[v].type, symbols)), kAlignment);
  return bytes;
}

// A step, compiled once per set of symbols.
MemoryForecast of_steps(const LoadedModel& loaded, const SessionOptions& options, const graph::Graph& step,
                        const std::vector<graph::Bindings>& steps) {
  MemoryForecast out;
  out.weights = loaded.weight_bytes();
  run::CompileOptions compile = step_options(loaded, step, options);
  for (const graph::Bindings& symbols : steps) {
    compile.symbols = symbols;
    out.cache = state_bytes(step, compile);
    out.work += loaded.engine().arena_bytes(step, compile) + input_bytes(step, symbols);
  }
  return out;
}

}  // namespace

std::string MemoryForecast::text() const {
  return fmt::format("{} of weights, {} of cache, {} of values: {}", size_text(weights), size_text(cache),
                     size_text(work), size_text(total()));
}

MemoryForecast& MemoryForecast::operator+=(const MemoryForecast& other) {
  weights += other.weights;
  cache += other.cache;
  work += other.work;
  return *this;
}

int64_t further_bytes(const LoadedModel& loaded, const Narrowing& narrowing, int64_t rows) {
  const arch::Library& library = loaded.model().family->library();
  run::CompileOptions compile;
  compile.symbols = {{"R", rows}};
  const graph::Graph look = FurtherRows::looking(library, narrowing), count = FurtherRows::counting(library, narrowing);
  return loaded.engine().arena_bytes(look, compile) + input_bytes(look, compile.symbols, {Narrowing::kLogits}) +
         loaded.engine().arena_bytes(count, compile) +
         input_bytes(count, compile.symbols, {Narrowing::kLogits, Narrowing::kMasks});
}

int64_t state_bytes(const graph::Graph& step, const run::CompileOptions& options) {
  int64_t bytes = 0;
  for (const graph::ValueId v : step.inputs()) {
    const graph::Node& n = step[v];
    if (n.attributes.role != graph::Role::state) continue;
    graph::Type type = graph::bind(n.type, options.symbols);
    for (const graph::FormatAssignment& a : options.assignments)
      if (a.value == n.attributes.name) type.element = {Scalar::f32, a.format};
    bytes = run::saturating_sum(bytes, graph::byte_size(type));
  }
  return bytes;
}

MemoryForecast forecast(const LoadedModel& loaded, const SessionOptions& given, int64_t draft) {
  const SessionOptions options = session_options(loaded.model(), given);
  const StepPlan plan = plan_step(loaded, options);
  std::vector<graph::Bindings> steps;
  for (const int64_t tokens : session_widths(options)) {
    steps.push_back(plan.symbols);
    steps.back()["T"] = tokens;
    steps.back()["R"] = 1;
  }
  for (const int64_t tokens : draft > 0 ? wide_widths(options, draft + 1) : std::vector<int64_t>()) {
    steps.push_back(plan.symbols);
    steps.back()["T"] = steps.back()["R"] = tokens;
  }
  MemoryForecast out = of_steps(loaded, options, plan.graph, steps);
  if (plan.narrowing) out.work += further_bytes(loaded, *plan.narrowing, 1);
  return out;
}

MemoryForecast forecast_many(const LoadedModel& loaded, const SessionOptions& given, ManyLimits limits) {
  const SessionOptions options = session_options(loaded.model(), given);
  limits = many_limits(loaded, options, limits);
  const StepPlan plan = plan_many(loaded, options, limits);
  std::vector<graph::Bindings> steps;
  std::set<int64_t> rows;  // that may be looked at again
  for (const ManySession::Shape& shape : ManySession::shapes(options, limits, mixes_prompts(loaded, options))) {
    steps.push_back(plan.symbols);
    steps.back()["B"] = shape.sequences;
    steps.back()["T"] = shape.tokens;
    steps.back()["R"] = shape.rows();
    if (!shape.all) rows.insert(shape.rows());
  }
  MemoryForecast out = of_steps(loaded, options, plan.graph, steps);
  for (const int64_t r : plan.narrowing ? rows : std::set<int64_t>())
    out.work += further_bytes(loaded, *plan.narrowing, r);
  return out;
}

void require_session(const LoadedModel& loaded, int64_t cache, int64_t work, const SessionOptions& options,
                     bool cache_is_there) {
  // Memory-mapped weights count as host memory; on other devices they have been uploaded already.
  const bool host = loaded.engine().device().reads_host_memory();
  run::MemoryNeeds needs = {{"KV cache", cache, cache_is_there}, {"intermediate values", work, true}};
  if (host) needs.insert(needs.begin(), {"weights", loaded.weight_bytes(), true});
  loaded.engine().require_memory(
      fmt::format("'{}' with a context of {} tokens", loaded.model().name, options.context), needs,
      "choose a smaller --ctx-size or --parallel, a smaller type of the caches (-ctk, -ctv), or a smaller model");
}

}  // namespace lumen::model::infer
