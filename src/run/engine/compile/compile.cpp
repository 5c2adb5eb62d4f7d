// Where all floors meet. In order, and each a function:
//   pipeline    the graph through all passes; every value has bytes                      graph/pipeline
//   synthesize  every group becomes kernels in loop IR, equal groups once                repeat.h, kernel/synth
//   tune        plans that were measured to be faster take the place of others           tuned.h
//   cache       machine code of every kernel: from memory, from disk, or compiled        steps.h, emit
//   scratch     what several groups would prepare alike is prepared once                 scratch.h
//   place       every kernel argument becomes an input, a constant or bytes of the arena (buffer_addresses.h)
//   list        what execute.cpp walks                                                   steps.h
// Proved by tests/run/engine/compile_test.cpp: compiled graphs against the graph evaluator.
#include "run/engine/compile/compile.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "graph/pipeline/pipeline.h"
#include "run/device/require.h"
#include "run/engine/compile/buffer_addresses.h"
#include "run/engine/compile/product_choice.h"
#include "run/engine/compile/repeat.h"
#include "run/engine/compile/scratch.h"
#include "run/engine/compile/steps.h"
#include "run/engine/compile/tuned.h"

namespace lumen::run {

using graph::Graph;
using graph::ValueId;

namespace {

// A library's product in place of all steps of a group.
Launch product_launch(const synth::Synthesis& own, const ChosenProduct& chosen,
                      const std::function<BufferAddress(int)>& value) {
  Launch launch;
  launch.product = chosen.product;
  launch.plan = chosen.plan;
  launch.bytes = own.steps.back().bytes;
  for (const synth::Step& step : own.steps) launch.flops += step.flops;
  for (const size_t v : chosen.values) launch.addresses.push_back(value(v));
  return launch;
}

Launch exchange_launch(const Graph& g, const graph::Group& group, const BufferAddresses& addresses) {
  const graph::Node& node = g[group.root];
  const bool gathers = node.attributes.moves == graph::Moves::gather;
  Launch launch;
  launch.exchange = node.attributes.moves;
  launch.piece_bytes = graph::byte_size(node.type) / node.attributes.ranks;
  launch.plan = fmt::format("{} between {} ranks", gathers ? "gather" : "spread", node.attributes.ranks);
  launch.bytes = graph::byte_size(node.type);
  launch.addresses = {addresses.of(group.inputs.at(0)), addresses.of(group.root)};
  return launch;
}

// What each group of a plan becomes.
struct Kernels {
  DistinctKernels kernels;
  std::vector<std::vector<void*>> functions;  // of each distinct form, by step
  std::vector<ChosenProduct> products;        // by distinct form
  std::vector<std::shared_ptr<Autotuner>> trials;
  ScratchPlan scratch;
};

void list_groups(const CompileContext& shop, const graph::Plan& plan, const Kernels& made,
                 const BufferAddresses& addresses, int64_t scratch_at, LaunchList* list) {
  std::vector<bool> prepared(made.scratch.preparations);
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const auto& [which, values] = made.kernels.groups[i];
    const synth::Synthesis& own = made.kernels.distinct[which];
    const size_t first = list->launches.size();
    const auto value = [&, &mine = values](int v) { return addresses.of(mine[v]); };
    if (is_exchange(plan.graph, plan.groups[i])) {
      list->launches.push_back(exchange_launch(plan.graph, plan.groups[i], addresses));
    } else if (made.products[which].product) {
      list->launches.push_back(product_launch(own, made.products[which], value));
    } else {
      std::vector<BufferAddress> scratch;
      for (const int64_t at : made.scratch.groups[i].at) scratch.push_back({BufferAddress::In::arena, scratch_at + at});
      std::vector<bool> is_done;
      for (const int p : made.scratch.groups[i].preparation) {
        is_done.push_back(p >= 0 && prepared[p]);
        if (p >= 0) prepared[p] = true;
      }
      list_steps(shop, own, made.functions[which], value, scratch, is_done, &list->launches);
      list->launches.back().bids = made.kernels.distinct[which].bids;
      list->launches.back().autotuner = list->launches.back().launch_config.small ? nullptr : made.trials[which];
    }
    for (size_t k = first; k < list->launches.size(); ++k) {
      list->launches[k].blamed = graph::subject(plan.graph, plan.groups[i]);
      list->launches[k].label = plan.graph[list->launches[k].blamed].label;
    }
  }
}

// What the program is given and gives; inputs that passes found unused included.
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
  list->constants = std::move(addresses.constants);
}

}  // namespace

graph::Pipeline run_pipeline(const Graph& g, const CompileOptions& options, const machine::Machine& machine) {
  constexpr int64_t kMostDecoded = int64_t{512} << 20;  // bytes
  graph::ProductType products = options.products;
  if (machine.kind == machine::Kind::gpu) products.most_decoded = kMostDecoded;
  if (options.is_rounded) products = {};
  return graph::run_pipeline(g, options.assignments, options.symbols, products, options.recompute);
}

LaunchList compile(const CompileContext& shop, const Graph& g, const CompileOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const auto shared = std::make_shared<const graph::Pipeline>(run_pipeline(g, options, shop.device->machine()));
  const graph::Plan& plan = shared->plan;
  Kernels made;
  made.kernels =
      synthesize_distinct(plan, shop.device->machine(), {options.exact, options.candidate, options.products.scalar});
  const std::vector<bool> settled = use_remembered_plans(shop, plan, options, &made.kernels);

  const int64_t scratch_at = aligned(shared->memory.arena_bytes);
  LaunchList list;
  if (std::any_of(plan.groups.begin(), plan.groups.end(),
                  [&](const graph::Group& group) { return is_exchange(plan.graph, group); })) {
    LUMEN_CHECK(options.exchange, "'{}' exchanges values with ranks that are not there", g.name);
    list.exchange = options.exchange;
    list.exchange_is_enqueued = options.exchange_is_enqueued;
  }
  made.scratch = plan_scratch(plan, made.kernels);
  list.arena_bytes = saturating_sum(scratch_at, made.scratch.bytes);
  // Code is made for what can run only.
  if (!options.lender || !options.lender->lend(list.arena_bytes))
    require_memory(*shop.device, fmt::format("'{}'", g.name), {{"values of its kernels", list.arena_bytes}});
  made.functions = find_functions(shop, made.kernels.distinct, &list.report);
  made.trials.resize(settled.size());
  for (size_t i = 0; i < settled.size(); ++i)
    if (!settled[i]) made.trials[i] = make_trial(shop, shared, made.kernels, i, made.functions[i], options);
  made.products = choose_products(shop, plan, options, made.kernels);
  BufferAddresses addresses(*shared, shop.device);
  list_groups(shop, plan, made, addresses, scratch_at, &list);
  list_ends(g, options, plan, std::move(addresses), &list);
  list.graph = plan.graph;
  list.report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return list;
}

int64_t arena_bytes(const CompileContext& shop, const Graph& g, const CompileOptions& options) {
  const graph::Pipeline pipeline = run_pipeline(g, options, shop.device->machine());
  DistinctKernels kernels = synthesize_distinct(pipeline.plan, shop.device->machine(),
                                                {options.exact, options.candidate, options.products.scalar});
  use_remembered_plans(shop, pipeline.plan, options, &kernels);
  return saturating_sum(aligned(pipeline.memory.arena_bytes), plan_scratch(pipeline.plan, kernels).bytes);
}

}  // namespace lumen::run
