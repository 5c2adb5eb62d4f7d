// Compilation of a graph. The stages, each a function:
//   pipeline    the graph through all passes; every value gets bytes                    graph/pipeline
//   synthesize  every group becomes kernels in loop IR, equal groups once                repeat.h, kernel/synth
//   tune        plans that were measured to be faster replace others                     tuned.h
//   cache       machine code of every kernel: from memory, from disk, or compiled        steps.h, emit
//   judge       untested kernels are tried, wrong ones replaced                          judge.h
//   scratch     preparations shared by several groups are done once                      scratch.h
//   place       every kernel argument becomes an input, a constant or bytes of the arena (buffer_addresses.h)
//   list        the launch list that execute.cpp runs; scans are loops in it             groups.h, scan.h, steps.h
// Proved by tests/run/engine/compile_test.cpp: compiled graphs against the graph evaluator.
#include "run/engine/compile/compile.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "graph/pipeline/pipeline.h"
#include "run/device/require.h"
#include "run/engine/compile/buffer_addresses.h"
#include "run/engine/compile/groups.h"
#include "run/engine/compile/judge.h"
#include "run/engine/compile/product_choice.h"
#include "run/engine/compile/repeat.h"
#include "run/engine/compile/scratch.h"
#include "run/engine/compile/steps.h"
#include "run/engine/compile/tuned.h"

namespace lumen::run {

using graph::Graph;
using graph::ValueId;

namespace {

// Inputs and results of the program, including inputs that passes found unused.
void list_ends(const Graph& author, const CompileOptions& options, const graph::Plan& plan, BufferAddresses addresses,
               LaunchList* list) {
  for (size_t i = 0; i < plan.graph.results.size(); ++i) {
    const ValueId v = plan.graph.results[i];
    list->results.push_back({plan.graph.result_names[i], plan.graph[v].type, addresses.of(v)});
  }
  list->inputs = std::move(addresses.inputs);
  for (const ValueId v : author.inputs())
    if (plan.graph.find_input(author[v].attributes.name) < 0)
      list->inputs.push_back({author[v].attributes.name, graph::bind(author[v].type, options.symbols), false, false});
}

}  // namespace

graph::Pipeline run_pipeline(const Graph& g, const CompileOptions& options, const machine::Machine& machine) {
  constexpr int64_t kMostDecoded = int64_t{512} << 20;  // bytes
  graph::ProductType products = options.products;
  if (machine.kind == machine::Kind::gpu) products.most_decoded = kMostDecoded;
  if (options.is_rounded) products = {};
  return graph::run_pipeline(g, options.assignments, options.symbols, products, options.recompute);
}

LaunchList compile(const CompileContext& context, const Graph& g, const CompileOptions& options) {
  const Stopwatch watch;
  const auto shared = std::make_shared<const graph::Pipeline>(run_pipeline(g, options, context.device->machine()));
  const graph::Plan& plan = shared->plan;
  std::vector<bool> settled;
  const int64_t scratch_at = aligned(shared->memory.arena_bytes);
  LaunchList list;
  if (std::any_of(plan.groups.begin(), plan.groups.end(),
                  [&](const graph::Group& group) { return is_exchange(plan.graph, group); })) {
    LUMEN_CHECK(options.exchange, "'{}' exchanges values with ranks that are not there", g.name);
    list.exchange = options.exchange;
  }
  Kernels made;
  do {  // repeated if kernels were refused
    if (context.judge) context.judge->forget_replaced();
    made = synthesize_groups(context, plan, options, values_of(plan.graph), &settled);
    list.arena_bytes = saturating_sum(scratch_at, made.scratch.bytes);
    // Check the memory before compiling.
    if (!options.lender || !options.lender->lend(list.arena_bytes))
      require_memory(*context.device, fmt::format("'{}'", g.name), {{"values of its kernels", list.arena_bytes}});
    find_code(context, &made, &list.report);
  } while (context.judge && !are_trusted(context, plan, options, made));
  if (context.judge) {
    context.judge->say_replaced();
    settled.assign(settled.size(), true);  // untested plans must not be added by the tuner later
  }
  made.trials.resize(settled.size());
  for (size_t i = 0; i < settled.size(); ++i)
    if (!settled[i]) made.trials[i] = make_trial(context, shared, made.kernels, i, made.code[i], options);
  made.products = choose_products(context, plan, options, made.kernels);
  BufferAddresses addresses(*shared, context.device);
  list.constants = addresses.constants;
  list_groups(context, plan, made, {[&](ValueId v) { return addresses.of(v); }, scratch_at}, nullptr, &list);
  list_ends(g, options, plan, std::move(addresses), &list);
  list.graph = plan.graph;
  list.report.seconds = watch.seconds();
  verbose(fmt::format("'{}' is compiled, all in all in {:.2f} s", g.name, list.report.seconds));
  return list;
}

int64_t arena_bytes(const CompileContext& context, const Graph& g, const CompileOptions& options) {
  const graph::Pipeline pipeline = run_pipeline(g, options, context.device->machine());
  const Kernels made = synthesize_groups(context, pipeline.plan, options, values_of(pipeline.plan.graph));
  return saturating_sum(aligned(pipeline.memory.arena_bytes), made.scratch.bytes);
}

}  // namespace lumen::run
