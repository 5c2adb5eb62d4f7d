#include "run/engine/compile/groups.h"

#include "base/check.h"
#include "run/engine/compile/judge.h"
#include "run/engine/compile/scan.h"
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

Launch exchange_launch(const Graph& g, const graph::Group& group, const PlanAddresses& places) {
  const graph::Node& node = g[group.root];
  const bool gathers = node.attributes.moves == graph::Moves::gather;
  Launch launch;
  launch.exchange = node.attributes.moves;
  launch.piece_bytes = graph::byte_size(node.type) / node.attributes.ranks;
  launch.plan = fmt::format("{} between {} ranks", gathers ? "gather" : "spread", node.attributes.ranks);
  launch.bytes = graph::byte_size(node.type);
  launch.addresses = {places.of(group.inputs.at(0)), places.of(group.root)};
  return launch;
}

}  // namespace

Kernels synthesize_groups(const CompileContext& shop, const graph::Plan& plan, const CompileOptions& options,
                          const ValueFacts& facts, std::vector<bool>* settled) {
  Kernels made;
  made.kernels = synthesize_distinct(plan, shop.device->machine(),
                                     {options.exact, options.candidate, options.products.scalar}, facts);
  const std::vector<bool> are_settled = use_remembered_plans(shop, plan, options, &made.kernels);
  if (settled) *settled = are_settled;
  replace_refused(shop, plan, options, &made.kernels);
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    if (!is_scan(plan.graph, plan.groups[i])) continue;
    made.scans[i] = synthesize_scan(shop, plan, plan.groups[i], options, facts);
    made.kernels.distinct[made.kernels.groups[i].which].scratch = {made.scans[i]->bytes};
  }
  made.scratch = plan_scratch(plan, made.kernels);
  return made;
}

void find_code(const CompileContext& shop, Kernels* made, CompileReport* report) {
  made->functions = find_functions(shop, made->kernels.distinct, report);
  for (const auto& [group, scan] : made->scans) {
    find_code(shop, &scan->first, report);
    find_code(shop, &scan->body, report);
  }
}

void list_groups(const CompileContext& shop, const graph::Plan& plan, const Kernels& made, const PlanAddresses& places,
                 const std::shared_ptr<const Graph>& of, LaunchList* list) {
  std::vector<bool> prepared(made.scratch.preparations);
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const auto& [which, values] = made.kernels.groups[i];
    const synth::Synthesis& own = made.kernels.distinct[which];
    const size_t first = list->launches.size();
    const auto value = [&, &mine = values](int v) { return places.of(mine[v]); };
    std::vector<BufferAddress> scratch;
    for (const int64_t at : made.scratch.groups[i].at)
      scratch.push_back({BufferAddress::In::arena, places.scratch_at + at});
    if (is_scan(plan.graph, plan.groups[i])) {
      list_scan(shop, *made.scans.at(i), {places.of, scratch.at(0).at, places.loops}, list);
      continue;
    }
    if (is_exchange(plan.graph, plan.groups[i])) {
      list->launches.push_back(exchange_launch(plan.graph, plan.groups[i], places));
    } else if (!made.products.empty() && made.products[which].product) {
      list->launches.push_back(product_launch(own, made.products[which], value));
    } else {
      std::vector<bool> is_done;
      for (const int p : made.scratch.groups[i].preparation) {
        is_done.push_back(p >= 0 && prepared[p]);
        if (p >= 0) prepared[p] = true;
      }
      list_steps(shop, own, made.functions[which], value, scratch, is_done, &list->launches);
      list->launches.back().bids = own.bids;
      if (!made.trials.empty() && !list->launches.back().launch_config.small)
        list->launches.back().autotuner = made.trials[which];
    }
    for (size_t k = first; k < list->launches.size(); ++k) {
      list->launches[k].blamed = graph::subject(plan.graph, plan.groups[i]);
      list->launches[k].label = plan.graph[list->launches[k].blamed].label;
      list->launches[k].of = of;
    }
  }
}

}  // namespace lumen::run
