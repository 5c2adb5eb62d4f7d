// Where all floors meet. In order, and each a function below:
//   pipeline    the graph through all passes; every value has bytes                      graph/pass
//   synthesize  every group becomes kernels in loop IR, equal groups once                kernel/synth
//   cache       machine code of every kernel: from memory, from disk, or compiled        emit
//   place       every kernel argument becomes an input, a constant or bytes of the arena
//   list        what execute.cpp walks
// Proved by tests/run/engine/compile_test.cpp: compiled graphs against the graph evaluator.
#include "run/engine/compile/compile.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "base/check.h"
#include "base/hash.h"
#include "kernel/loop/text.h"
#include "run/device/require.h"
#include "run/engine/compile/product_choice.h"
#include "run/engine/compile/repeat.h"

namespace lumen::run {
namespace {

using graph::Graph;
using graph::ValueId;
using synth::Synthesis;

constexpr int64_t kAlignment = 64;
constexpr double kSmallFlops = 2e5,
                 kSmallBytes = 1e5;  // some ten microseconds of one thread: waking others costs as much

// Inputs, constants and arena values of a plan by their ValueId.
class Places {
 public:
  Places(const graph::Pipeline& p, const std::shared_ptr<Device>& device)
      : memory_(p.memory), numbers_(p.memory.slots.size(), -1) {
    const Graph& g = p.plan.graph;
    for (ValueId v = 0; v < static_cast<ValueId>(g.nodes.size()); ++v) {
      const graph::Slot& slot = memory_.slots[static_cast<size_t>(v)];
      if (slot.where != graph::Slot::Where::external || slot.owner != v) continue;
      if (g[v].op == graph::Op::input_) {
        numbers_[static_cast<size_t>(v)] = static_cast<int64_t>(inputs.size());
        inputs.push_back({g[v].attributes.name, g[v].type, false, true});
      } else {
        is_constant_.resize(numbers_.size());
        is_constant_[static_cast<size_t>(v)] = true;
        numbers_[static_cast<size_t>(v)] = static_cast<int64_t>(constants.size());
        constants.push_back(std::make_shared<DeviceTensor>(*device, g[v].type));
        const std::vector<uint8_t> bytes = graph::constant_bytes(g[v]);
        constants.back()->upload(bytes.data(), static_cast<int64_t>(bytes.size()));
      }
    }
    is_constant_.resize(numbers_.size());
    for (ValueId v = 0; v < static_cast<ValueId>(g.nodes.size()); ++v)
      if (g[v].op == graph::Op::update_) inputs[static_cast<size_t>(of(v).at)].written = true;
  }

  Place of(ValueId v) const {
    const graph::Slot& slot = memory_.slots[static_cast<size_t>(v)];
    LUMEN_CHECK(slot.where != graph::Slot::Where::none, "value %{} is not in memory", v);
    if (slot.where == graph::Slot::Where::arena) return {Place::In::arena, slot.offset};
    const auto owner = static_cast<size_t>(slot.owner);
    return {is_constant_[owner] ? Place::In::constant : Place::In::input, numbers_[owner]};
  }

  std::vector<ProgramInput> inputs;
  std::vector<DeviceTensorRef> constants;

 private:
  const graph::MemoryPlan& memory_;
  std::vector<int64_t> numbers_;  // of inputs and of constants, by value
  std::vector<bool> is_constant_;
};

int64_t scratch_bytes(const Synthesis& s) {
  int64_t bytes = 0;
  for (const int64_t b : s.scratch) bytes += aligned(b);
  return bytes;
}

// Machine code of every step, by synthesis.
std::vector<std::vector<void*>> find_functions(const CompileContext& shop, std::span<const Synthesis> parts,
                                               CompileReport* report) {
  std::vector<const loop::Kernel*> kernels;
  for (const Synthesis& s : parts)
    for (const synth::Step& step : s.steps) kernels.push_back(&step.kernel);
  const std::vector<void*> found = shop.cache->get(kernels, shop.threads, report);
  std::vector<std::vector<void*>> functions;
  auto next = found.begin();
  for (const Synthesis& s : parts) {
    functions.emplace_back(next, next + static_cast<std::ptrdiff_t>(s.steps.size()));
    next += static_cast<std::ptrdiff_t>(s.steps.size());
  }
  return functions;
}

// Steps of one group share scratch; groups use the same scratch one after another.
void list_steps(const CompileContext& shop, const Synthesis& s, const std::vector<void*>& functions,
                const std::function<Place(int)>& value, int64_t scratch_at, std::vector<Launch>* out) {
  std::vector<Place> scratch;
  for (const int64_t bytes : s.scratch) {
    scratch.push_back({Place::In::arena, scratch_at});
    scratch_at += aligned(bytes);
  }
  for (size_t i = 0; i < s.steps.size(); ++i) {
    const synth::Step& step = s.steps[i];
    Launch& launch = out->emplace_back();
    launch.kernel = functions[i];
    const bool small = step.flops + step.bytes > 0 && step.flops < kSmallFlops && step.bytes < kSmallBytes;
    launch.launch_config = launch_config_of(step.kernel, shop.device->machine(), small);
    launch.plan = step.plan;
    launch.flops = step.flops;
    launch.bytes = step.bytes;
    launch.cycles = small ? step.cycles * shop.threads : step.cycles;
    for (const synth::Argument& a : step.arguments)
      launch.places.push_back(a.from == synth::Argument::From::value ? value(a.index)
                                                                     : scratch.at(static_cast<size_t>(a.index)));
  }
}

// Two plans of a kernel can take each other's place in a launch list: only the last step differs.
bool interchangeable(const Synthesis& a, const Synthesis& b) {
  if (a.steps.size() != b.steps.size() || a.scratch != b.scratch) return false;
  for (size_t i = 0; i < a.steps.size(); ++i) {
    if (a.steps[i].arguments != b.steps[i].arguments) return false;
    if (i + 1 < a.steps.size() && loop::print(a.steps[i].kernel) != loop::print(b.steps[i].kernel)) return false;
  }
  return true;
}

std::string plan_key(const CompileContext& shop, const DistinctKernels& kernels, size_t i, bool exact) {
  return shop.tuner->key_of((exact ? "exact " : "") + kernels.forms[i].meaning);
}

// Replaces plans by those that were measured to be faster; true by distinct form where a measurement exists.
std::vector<bool> use_remembered_plans(const CompileContext& shop, const graph::Plan& plan,
                                       const CompileOptions& options, DistinctKernels* kernels) {
  std::vector<bool> settled(kernels->distinct.size(), true);
  for (size_t i = 0; i < settled.size() && shop.tuner; ++i) {
    Synthesis& s = kernels->distinct[i];
    if (s.candidates < 2 || options.candidate != 0) continue;
    const std::optional<ChosenPlan> chosen = shop.tuner->remembered(plan_key(shop, *kernels, i, options.exact));
    settled[i] = chosen.has_value();
    if (!chosen || chosen->number == 0) continue;
    settled[i] = false;
    if (chosen->number >= s.candidates) continue;
    Synthesis tuned = synthesize_form(plan, plan.groups[kernels->first[i]], kernels->forms[i], shop.device->machine(),
                                      {options.exact, chosen->number, options.products.scalar});
    if (hash_of(tuned) != chosen->hash || !interchangeable(s, tuned)) continue;  // another version's
    tuned.steps.back().plan += ", tuned";
    s = std::move(tuned);
    settled[i] = true;
  }
  return settled;
}

// The other plans of a distinct form are synthesized and compiled when its last step has run for a while.
std::shared_ptr<Autotuner> make_trial(const CompileContext& shop,
                                      const std::shared_ptr<const graph::Pipeline>& pipeline,
                                      const DistinctKernels& kernels, size_t i, const std::vector<void*>& functions,
                                      const CompileOptions& options) {
  const Synthesis& s = kernels.distinct[i];
  if (s.candidates < 2) return nullptr;
  const std::string key = plan_key(shop, kernels, i, options.exact);
  const synth::Step& last = s.steps.back();
  const std::weak_ptr<Tuner> tuner = shop.tuner;
  const auto place = std::make_shared<std::weak_ptr<Autotuner>>();
  auto job = [place, pipeline, key, exact = options.exact, products = options.products.scalar, first = s,
              cache = shop.cache, device = shop.device, number = kernels.first[i], form = kernels.forms[i]] {
    const graph::Group& group = pipeline->plan.groups[number];
    std::vector<Autotuner::Plan> others;
    for (int candidate = 1; candidate < first.candidates; ++candidate) {
      if (place->expired()) return;
      const Synthesis other =
          synthesize_form(pipeline->plan, group, form, device->machine(), {exact, candidate, products});
      if (!interchangeable(first, other)) continue;
      const loop::Kernel* kernel = &other.steps.back().kernel;
      CompileReport report;
      others.push_back({cache->get({&kernel, 1}, 1, &report)[0],
                        launch_config_of(*kernel, device->machine(), false),
                        other.steps.back().plan + ", tuned",
                        {candidate, hash_of(other)}});
    }
    if (const auto autotuner = place->lock()) autotuner->offer(std::move(others));
  };
  auto autotuner = std::make_shared<Autotuner>(
      Autotuner::Plan{
          functions.back(), launch_config_of(last.kernel, shop.device->machine(), false), last.plan, {0, "model"}},
      [tuner, job = std::move(job)] {
        if (const auto t = tuner.lock()) t->later(job);
      },
      [tuner, key](const Autotuner::Plan& best) {
        if (const auto t = tuner.lock())
          t->later([raw = t.get(), key, chosen = best.chosen] { raw->remember(key, chosen); });
      });
  *place = autotuner;
  return autotuner;
}

// A library's product in place of all steps of a group.
Launch product_launch(const Synthesis& own, const ChosenProduct& chosen, const std::function<Place(int)>& value) {
  Launch launch;
  launch.product = chosen.product;
  launch.plan = chosen.plan;
  launch.bytes = own.steps.back().bytes;
  for (const synth::Step& step : own.steps) launch.flops += step.flops;
  for (const size_t v : chosen.values) launch.places.push_back(value(static_cast<int>(v)));
  return launch;
}

// One kernel after the other uses the same bytes.
int64_t most_scratch(const DistinctKernels& kernels) {
  int64_t most = 0;
  for (const Synthesis& s : kernels.distinct) most = std::max(most, scratch_bytes(s));
  return most;
}

}  // namespace

graph::Pipeline run_pipeline(const Graph& g, const CompileOptions& options, const machine::Machine& machine) {
  constexpr int64_t kMostDecoded = int64_t{512} << 20;  // bytes
  graph::ProductType products = options.products;
  if (machine.kind == machine::Kind::gpu) products.most_decoded = kMostDecoded;
  return graph::run_pipeline(g, options.assignments, options.symbols, products, options.recompute);
}

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::string hash_of(const Synthesis& s) {
  std::string text;
  for (const synth::Step& step : s.steps) text += loop::print(step.kernel);
  return hash_text(text).hex();
}

LaunchList compile(const CompileContext& shop, const Graph& g, const CompileOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const auto shared = std::make_shared<const graph::Pipeline>(run_pipeline(g, options, shop.device->machine()));
  const graph::Pipeline& pipeline = *shared;
  const graph::Plan& plan = pipeline.plan;
  DistinctKernels kernels =
      synthesize_distinct(plan, shop.device->machine(), {options.exact, options.candidate, options.products.scalar});
  const std::vector<bool> settled = use_remembered_plans(shop, plan, options, &kernels);

  const int64_t scratch = most_scratch(kernels);
  const int64_t scratch_at = aligned(pipeline.memory.arena_bytes);
  LaunchList list;
  list.arena_bytes = saturating_sum(scratch_at, scratch);
  // Code is made for what can run only.
  if (!options.lender || !options.lender->lend(list.arena_bytes))
    require_memory(*shop.device, fmt::format("'{}'", g.name), {{"values of its kernels", list.arena_bytes}});
  const auto functions = find_functions(shop, kernels.distinct, &list.report);
  std::vector<std::shared_ptr<Autotuner>> trials(kernels.distinct.size());
  for (size_t i = 0; i < trials.size(); ++i)
    if (!settled[i]) trials[i] = make_trial(shop, shared, kernels, i, functions[i], options);
  const std::vector<ChosenProduct> products = choose_products(shop, plan, options, kernels);
  Places places(pipeline, shop.device);
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const auto& [which, values] = kernels.groups[i];
    const size_t first = list.launches.size();
    const auto value = [&, &mine = values](int v) { return places.of(mine[static_cast<size_t>(v)]); };
    if (products[which].product) {
      list.launches.push_back(product_launch(kernels.distinct[which], products[which], value));
    } else {
      list_steps(shop, kernels.distinct[which], functions[which], value, scratch_at, &list.launches);
      list.launches.back().bids = kernels.distinct[which].bids;
      list.launches.back().autotuner = list.launches.back().launch_config.small ? nullptr : trials[which];
    }
    for (size_t k = first; k < list.launches.size(); ++k) {
      list.launches[k].blamed = graph::subject(plan.graph, plan.groups[i]);
      list.launches[k].label = plan.graph[list.launches[k].blamed].label;
    }
  }
  for (size_t i = 0; i < plan.graph.results.size(); ++i) {
    const ValueId v = plan.graph.results[i];
    list.results.push_back({plan.graph.result_names[i], plan.graph[v].type, places.of(v)});
  }
  list.inputs = std::move(places.inputs);
  for (const ValueId v : g.inputs())
    if (plan.graph.find_input(g[v].attributes.name) < 0)
      list.inputs.push_back({g[v].attributes.name, graph::bind(g[v].type, options.symbols), false, false});
  list.constants = std::move(places.constants);
  list.graph = plan.graph;
  list.report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return list;
}

int64_t arena_bytes(const CompileContext& shop, const Graph& g, const CompileOptions& options) {
  const graph::Pipeline pipeline = run_pipeline(g, options, shop.device->machine());
  DistinctKernels kernels = synthesize_distinct(pipeline.plan, shop.device->machine(),
                                                {options.exact, options.candidate, options.products.scalar});
  use_remembered_plans(shop, pipeline.plan, options, &kernels);
  return saturating_sum(aligned(pipeline.memory.arena_bytes), most_scratch(kernels));
}

std::vector<Launch> compile_steps(const CompileContext& shop, const Synthesis& steps, const std::vector<Place>& values,
                                  int64_t scratch_at, CompileReport* report) {
  std::vector<Launch> launches;
  const auto functions = find_functions(shop, {&steps, 1}, report);
  list_steps(
      shop, steps, functions[0], [&](int v) { return values.at(static_cast<size_t>(v)); }, scratch_at, &launches);
  return launches;
}

}  // namespace lumen::run
