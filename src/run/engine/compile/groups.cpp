#include "run/engine/compile/groups.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "base/check.h"
#include "run/device/require.h"
#include "run/engine/compile/judge.h"
#include "run/engine/compile/steps.h"
#include "run/engine/compile/tuned.h"

namespace lumen::run {

using graph::Graph;
using graph::ValueId;

namespace {

// A library's product that replaces all steps of a group.
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

// Tickets of exchanges in flight, and the groups that wait for them.
class Tickets {
 public:
  explicit Tickets(size_t groups) : awaited_(groups + 1) {}
  size_t take(size_t until) {
    size_t ticket = std::ranges::find(is_taken_, false) - is_taken_.begin();
    is_taken_.resize(std::max(is_taken_.size(), ticket + 1));
    is_taken_[ticket] = true;
    awaited_.at(until).push_back(ticket);
    return ticket;
  }
  std::vector<size_t> give_back(size_t group) {
    for (const size_t ticket : awaited_.at(group)) is_taken_[ticket] = false;
    return awaited_[group];
  }

 private:
  std::vector<std::vector<size_t>> awaited_;  // by group; the last entry: after all groups
  std::vector<bool> is_taken_;
};

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

// Number of groups, from this one on, that one launch runs.
size_t groups_at_once(const Kernels& made, size_t group) {
  return size_t(made.kernels.instances[made.kernels.groups[group].which]);
}

// Whether one launch runs a step of all these groups: steps shared as preparations with other groups run separately.
bool runs_at_once(const Kernels& made, size_t group, size_t step) {
  const size_t count = groups_at_once(made, group);
  for (size_t i = group; i < group + count; ++i)
    if (made.scratch.groups[i].preparation[step] >= 0) return false;
  return count > 1;
}

std::shared_ptr<ScanKernels> synthesize_scan(const CompileContext& context, const graph::Plan& plan,
                                             const graph::Group& group, const CompileOptions& options,
                                             const ValueFacts& facts) {
  auto scan = std::make_shared<ScanKernels>();
  ScanPlan& p = scan->plan;
  p = plan_scan(plan, group, context.device->machine());
  if (!p.carry_at.empty())
    scan->first = synthesize_groups(context, p.first_pipeline.plan, options, facts_of_first(p, facts));
  scan->body = synthesize_groups(context, p.body_pipeline.plan, options, facts_of_body(p, facts));
  scan->bytes = std::max(saturating_sum(p.first_scratch_at, scan->first.scratch.bytes),
                         saturating_sum(p.body_scratch_at, scan->body.scratch.bytes));
  return scan;
}

// `places`: for the plan that contains the scan, and for the scan's own memory.
void list_scan(const CompileContext& context, const ScanKernels& scan, const PlanAddresses& places, LaunchList* list) {
  const ScanPlan& p = scan.plan;
  const BodyAddresses of(p, places, [&](const graph::Node& node) {
    const BufferAddress at = {BufferAddress::In::constant, std::ssize(list->constants)};
    list->constants.push_back(std::make_shared<DeviceTensor>(*context.device, node.type));
    const std::vector<uint8_t> bytes = graph::constant_bytes(node);
    list->constants.back()->upload(bytes.data(), bytes.size());
    return at;
  });
  if (!p.carry_at.empty())
    list_groups(context, p.first_pipeline.plan, scan.first,
                {[&](ValueId v) { return of.of_first(v); }, places.scratch_at + p.first_scratch_at, places.loops},
                std::make_shared<const Graph>(p.first_pipeline.plan.graph), list);
  Loop loop{list->launches.size(), 0, p.steps, p.reverse, {}};
  std::vector<Loop> before = std::exchange(list->loops, {});
  list_groups(context, p.body_pipeline.plan, scan.body,
              {[&](ValueId v) { return of.of_body(v); }, places.scratch_at + p.body_scratch_at, places.loops + 1},
              std::make_shared<const Graph>(p.body_pipeline.plan.graph), list);
  loop.end = list->launches.size();
  loop.inside = std::exchange(list->loops, std::move(before));
  for (size_t i = loop.begin; i < loop.end; ++i) {
    Launch& launch = list->launches[i];
    launch.times *= p.steps;
    for (double* sum : {&launch.flops, &launch.bytes, &launch.cycles}) *sum *= double(p.steps);
  }
  list->loops.push_back(std::move(loop));
}

}  // namespace

Kernels synthesize_groups(const CompileContext& context, const graph::Plan& plan, const CompileOptions& options,
                          const ValueFacts& facts, std::vector<bool>* settled) {
  Kernels made;
  // The judge tries kernels of one group only.
  const bool at_once = !context.judge;
  made.kernels = synthesize_distinct(plan, context.device->machine(),
                                     {options.exact, options.candidate, options.products.scalar, options.invariant},
                                     facts, context.threads, at_once);
  const std::vector<bool> are_settled = use_remembered_plans(context, plan, options, &made.kernels);
  if (settled) *settled = are_settled;
  replace_refused(context, plan, options, &made.kernels);
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    if (!is_scan(plan.graph, plan.groups[i])) continue;
    made.scans[i] = synthesize_scan(context, plan, plan.groups[i], options, facts);
    made.kernels.distinct[made.kernels.groups[i].which].scratch = {made.scans[i]->bytes};
  }
  made.scratch = plan_scratch(plan, made.kernels);
  return made;
}

void find_code(const CompileContext& context, Kernels* made, CompileReport* report) {
  const std::vector<Synthesized>& distinct = made->kernels.distinct;
  std::vector<std::vector<bool>> alone(distinct.size()), at_once(distinct.size());
  for (size_t i = 0; i < distinct.size(); ++i)
    alone[i].resize(distinct[i].steps.size()), at_once[i].resize(distinct[i].steps.size());
  for (size_t g = 0; g < made->kernels.groups.size();) {
    const size_t which = made->kernels.groups[g].which, count = groups_at_once(*made, g);
    for (size_t step = 0; step < distinct[which].steps.size(); ++step)
      (runs_at_once(*made, g, step) ? at_once : alone)[which][step] = true;
    g += count;
  }
  std::deque<loop::Kernel> changed;
  std::vector<const loop::Kernel*> kernels;
  std::vector<std::string> texts;
  made->code.assign(distinct.size(), {});
  std::vector<void**> places;
  for (size_t i = 0; i < distinct.size(); ++i) {
    made->code[i].resize(distinct[i].steps.size());
    for (size_t step = 0; step < distinct[i].steps.size(); ++step) {
      const loop::Kernel& kernel = distinct[i].steps[step].kernel;
      const auto add = [&](const loop::Kernel& one, const std::string& text, void** place) {
        kernels.push_back(&one), texts.push_back(text), places.push_back(place);
      };
      if (alone[i][step]) add(kernel, distinct[i].texts[step], &made->code[i][step].alone);
      if (!at_once[i][step]) continue;
      add(changed.emplace_back(with_instances(kernel, made->kernels.instances[i])), "", &made->code[i][step].at_once);
    }
  }
  const std::vector<void*> found = context.cache->get(kernels, context.threads, report, texts);
  for (size_t i = 0; i < found.size(); ++i) *places[i] = found[i];
  for (const auto& [group, scan] : made->scans) {
    find_code(context, &scan->first, report);
    find_code(context, &scan->body, report);
  }
}

void list_groups(const CompileContext& context, const graph::Plan& plan, const Kernels& made,
                 const PlanAddresses& places, const std::shared_ptr<const Graph>& of, LaunchList* list) {
  std::vector<bool> prepared(made.scratch.preparations);
  Tickets tickets(plan.groups.size());
  std::vector<size_t> awaited;  // by the next launch
  const auto await_from = [&](size_t first) {
    if (first == list->launches.size()) return;
    std::vector<size_t>& all = list->launches[first].awaited;
    all.insert(all.end(), awaited.begin(), awaited.end());
    awaited.clear();
  };
  // A group's data for listing its steps.
  const auto listed = [&](size_t i) {
    ListedGroup group{[&places, &use = made.kernels.groups[i]](int v) {
                        BufferAddress at = places.of(use.values[v]);
                        (at.in == BufferAddress::In::arena ? at.at : at.offset) += use.offsets[v];
                        return at;
                      },
                      {},
                      {},
                      graph::subject(plan.graph, plan.groups[i])};
    for (const int64_t at : made.scratch.groups[i].at)
      group.scratch.push_back({BufferAddress::In::arena, places.scratch_at + at});
    return group;
  };
  const auto prepare = [&](size_t i, ListedGroup* group) {
    for (const int p : made.scratch.groups[i].preparation) {
      group->is_done.push_back(p >= 0 && prepared[p]);
      if (p >= 0) prepared[p] = true;
    }
  };
  for (size_t i = 0; i < plan.groups.size();) {
    for (const size_t ticket : tickets.give_back(i)) awaited.push_back(ticket);
    const size_t which = made.kernels.groups[i].which, first = list->launches.size();
    const Synthesized& own = made.kernels.distinct[which];
    const bool is_library = !made.products.empty() && made.products[which].product;
    const size_t count = is_library ? 1 : groups_at_once(made, i);
    std::vector<ListedGroup> groups;
    for (size_t k = i; k < i + count; ++k) groups.push_back(listed(k));
    if (is_scan(plan.graph, plan.groups[i])) {
      list_scan(context, *made.scans.at(i), {places.of, groups[0].scratch.at(0).at, places.loops}, list);
      await_from(first);
      ++i;
      continue;
    }
    if (is_exchange(plan.graph, plan.groups[i])) {
      list->launches.push_back(exchange_launch(plan.graph, plan.groups[i], places));
      list->launches.back().ticket = tickets.take(graph::end_of_exchange(plan, i));
    } else if (is_library) {
      list->launches.push_back(product_launch(own, made.products[which], groups[0].value));
    } else {
      std::vector<StepCode> code = made.code[which];
      for (size_t step = 0; step < code.size(); ++step)
        if (!runs_at_once(made, i, step)) code[step].at_once = nullptr;
      for (size_t k = 0; k < count; ++k) prepare(i + k, &groups[k]);
      list_steps(context, own, code, groups, &list->launches);
      list->launches.back().bids = own.bids;
      if (!made.trials.empty() && !list->launches.back().launch_config.small)
        list->launches.back().autotuner = made.trials[which];
    }
    for (size_t k = first; k < list->launches.size(); ++k) {
      Launch& launch = list->launches[k];
      if (launch.blamed.empty()) launch.blamed = {groups[0].subject};
      launch.label = plan.graph[launch.blamed.front()].label;
      launch.of = of;
    }
    await_from(first);
    i += count;
  }
  for (const size_t ticket : tickets.give_back(plan.groups.size())) awaited.push_back(ticket);
  list->awaited.insert(list->awaited.end(), awaited.begin(), awaited.end());
}

}  // namespace lumen::run
