#include <algorithm>
#include <set>

#include "base/log.h"
#include "base/printable.h"
#include "graph/ir/random.h"
#include "graph/ir/text.h"
#include "graph/transform/layers.h"
#include "model/train/method/recomputation.h"
#include "model/train/offload/layer_plan.h"
#include "model/train/offload/offload.h"
#include "run/device/available.h"
#include "run/device/require.h"

namespace lumen::model::train {
namespace {

// A group has this share of all states: small slots, but large enough for fast transfers.
constexpr int64_t kShare = 24, kMostBytes = int64_t{64} << 20;

int64_t state_bytes(const arch::Parameter& p, const recipe::Optimizer& optimizer) {
  int64_t bytes = 0;
  for (const recipe::Optimizer::State& s : optimizer.states(p))
    bytes = run::saturating_sum(bytes, graph::byte_size(s.type));
  return bytes;
}

// Parameters renamed by position, so that equal groups have the same graph.
struct Renamed {
  std::vector<arch::Parameter> parameters;
  recipe::Holding held;

  Renamed(const std::vector<arch::Parameter>& trained, const recipe::Holding& all, const UpdateGroup& group)
      : held{all.type, {}} {
    for (const size_t i : group.members) {
      arch::Parameter p = trained[i];
      p.name = fmt::format("p{}", parameters.size());
      if (std::find(all.names.begin(), all.names.end(), trained[i].name) != all.names.end())
        held.names.push_back(p.name);
      parameters.push_back(std::move(p));
    }
  }
};

graph::Graph update_of(const Method& method, const std::vector<arch::Parameter>& trained, const UpdateGroup& group,
                       bool clears) {
  const Renamed renamed(trained, method.held(), group);
  return group_step(renamed.parameters, method.optimizer(), clears, renamed.held);
}

size_t count_draws(const graph::Graph& g) {
  size_t draws = 0;
  while (g.find_input(recipe::seed_of_draw(draws)) >= 0) ++draws;
  return draws;
}

}  // namespace

bool updates_clear(const run::Device& device, const recipe::Recipe& recipe) {
  return recipe.accumulate > 1 && !goes_by_layers(device, recipe);
}

std::vector<graph::Graph> different_updates(const Method& method, const std::vector<arch::Parameter>& trained,
                                            const std::vector<UpdateGroup>& groups, bool clears) {
  std::vector<graph::Graph> out;
  std::set<std::string> known;
  for (const UpdateGroup& g : groups)
    if (graph::Graph update = update_of(method, trained, g, clears); known.insert(graph::print(update)).second)
      out.push_back(std::move(update));
  return out;
}

std::vector<UpdateGroup> update_groups(const std::vector<arch::Parameter>& trained,
                                       const recipe::Optimizer& optimizer) {
  std::vector<UpdateGroup> out;
  int64_t all = 0, bytes = 0;
  for (const arch::Parameter& p : trained) all = run::saturating_sum(all, state_bytes(p, optimizer));
  const int64_t most = std::min(all / kShare, kMostBytes);
  for (size_t i = 0; i < trained.size(); ++i) {
    const int64_t own = state_bytes(trained[i], optimizer);
    const bool neighbours =
        i > 0 && graph::layer_of(trained[i].name) == graph::layer_of(trained[out.back().members.back()].name);
    if (!neighbours || run::saturating_sum(bytes, own) > most) {
      out.emplace_back();
      bytes = 0;
    }
    out.back().members.push_back(i);
    bytes = run::saturating_sum(bytes, own);
  }
  return out;
}

std::vector<PageGroup> paged_states(const std::vector<arch::Parameter>& trained, const std::vector<UpdateGroup>& groups,
                                    const recipe::Optimizer& optimizer) {
  std::vector<std::vector<PagedTensor>> out;
  for (const UpdateGroup& g : groups) {
    out.emplace_back();
    for (const size_t i : g.members)
      for (const recipe::Optimizer::State& s : optimizer.states(trained[i]))
        out.back().push_back({recipe::optimizer_state(s.name, trained[i].name), s.type, 0});
  }
  return placed(std::move(out));
}

std::filesystem::path run_folder(const recipe::Recipe& recipe) {
  return recipe.run_folder.empty() ? std::filesystem::temp_directory_path() : std::filesystem::path(recipe.run_folder);
}

bool offloads_layers(const run::Device& device, const recipe::Recipe& recipe) {
  const recipe::OffloadSettings settings = recipe::offload_settings(recipe.offload);
  return settings.layers && !(settings.layers->host && device.reads_host_memory());
}

bool offloads_activations(const run::Device& device, const recipe::Recipe& recipe) {
  const recipe::OffloadSettings settings = recipe::offload_settings(recipe.offload);
  return settings.activations && !(settings.activations->host && device.reads_host_memory());
}

bool offloads_states(const run::Device& device, const recipe::Recipe& recipe, const std::vector<PageGroup>& states) {
  const recipe::OffloadSettings settings = recipe::offload_settings(recipe.offload);
  return settings.moments && all_bytes(states) > 0 && !(settings.moments->host && device.reads_host_memory());
}

std::unique_ptr<TensorPager> open_kept(run::Engine& engine, const recipe::Recipe& recipe, std::vector<PageGroup> kept) {
  if (!offloads_activations(engine.device(), recipe)) return nullptr;
  const int64_t bytes = all_bytes(kept);
  std::unique_ptr<TensorPager> pager = TensorPager::open(engine, *recipe::offload_settings(recipe.offload).activations,
                                                         run_folder(recipe), std::move(kept), kKeptSlots);
  note(fmt::format("{} of the values that layers keep for their gradients are in {}", size_text(bytes),
                   pager->describe()));
  return pager;
}

std::unique_ptr<TensorPager> open_states(run::Engine& engine, const recipe::Recipe& recipe,
                                         std::vector<PageGroup> states) {
  const int64_t bytes = all_bytes(states);
  if (!offloads_states(engine.device(), recipe, states)) {
    note(bytes == 0 ? "the optimizer has no states that could be offloaded"
                    : "states of the optimizer stay where they are: this device's memory is the host's");
    return nullptr;
  }
  const std::filesystem::path own =
      recipe.run_folder.empty() ? std::filesystem::temp_directory_path() : std::filesystem::path(recipe.run_folder);
  std::unique_ptr<TensorPager> pager = TensorPager::open(engine, *recipe::offload_settings(recipe.offload).moments, own,
                                                         std::move(states), kUpdateSlots);
  note(fmt::format("{} of optimizer states are in {}", size_text(bytes), pager->describe()));
  return pager;
}

int64_t bytes_of_slots(const std::vector<PageGroup>& groups, size_t slots) {
  return run::saturating_product(largest_bytes(groups), std::min(slots, groups.size()));
}

int64_t bytes_held(const std::vector<PageGroup>& groups) {
  int64_t bytes = 0;
  for (const PageGroup& g : groups)
    for (const PagedTensor& v : g.tensors) bytes = run::saturating_sum(bytes, graph::byte_size(v.type));
  return bytes;
}

namespace {

OffloadForecast::Layers forecast_layers(const run::Device& device, const arch::Model& model, const Method& method,
                                        const recipe::Recipe& recipe) {
  const bool outside = offloads_layers(device, recipe), keeps_outside = offloads_activations(device, recipe);
  LayerPlan plan = plan_layers(model, method, recipe, outside ? LayersLie::outside : LayersLie::here, keeps_outside);
  OffloadForecast::Layers out;
  out.parameters = bytes_held(plan.parameters);
  out.gradients = bytes_held(plan.gradients);
  out.parameter_slots = bytes_of_slots(plan.parameters, kParameterSlots);
  out.gradient_slots = bytes_of_slots(plan.gradients, kGradientSlots);
  out.kept = all_bytes(plan.kept);
  out.kept_slots = bytes_of_slots(plan.kept, kKeptSlots);
  out.computes_again = !keeps_outside || recipe.recompute == "layers";
  out.outside =
      run::saturating_sum(run::saturating_sum(all_bytes(plan.parameters), all_bytes(plan.gradients)), out.kept);
  out.between = plan.between_bytes();
  std::set<std::string> known;
  const auto add = [&](std::optional<graph::Graph>& g, std::vector<graph::Graph>& to) {
    if (g && known.insert(graph::print(*g)).second) to.push_back(std::move(*g));
  };
  for (LayerPlan::Part& part : plan.parts)
    for (auto* g : {&part.forward, &part.backward, &part.more}) add(*g, out.step);
  known.clear();
  for (LayerPlan::Part& part : plan.evaluated) add(part.forward, out.evaluation);
  return out;
}

}  // namespace

OffloadForecast forecast_offload(const run::Device& device, const arch::Model& model, const Method& method,
                                 const recipe::Recipe& recipe) {
  OffloadForecast out;
  if (goes_by_layers(device, recipe)) out.layers = forecast_layers(device, model, method, recipe);
  const std::vector<UpdateGroup> groups = update_groups(method.trained(), method.optimizer());
  const std::vector<PageGroup> states = paged_states(method.trained(), groups, method.optimizer());
  if (offloads_states(device, recipe, states)) {
    out.outside = all_bytes(states);
    out.slots = bytes_of_slots(states, kUpdateSlots);
    out.states = bytes_held(states);
  }
  if (!out.any()) return out;
  const recipe::OffloadSettings settings = recipe::offload_settings(recipe.offload);
  for (const auto* place : {&settings.moments, &settings.layers, &settings.activations})
    out.in_file = out.in_file || (*place && !(*place)->host);
  out.updates = different_updates(method, method.trained(), groups, updates_clear(device, recipe));
  return out;
}

int64_t beside_offloaded(run::Engine& engine, const arch::Model& model, const Method& method,
                         const recipe::Recipe& recipe) {
  int64_t bytes = beside_values(engine, method, recipe);
  const OffloadForecast offload = forecast_offload(engine.device(), model, method, recipe);
  if (!offload.any()) return bytes;
  bytes = run::saturating_sum(bytes - offload.states, offload.slots);
  if (recipe.accumulate == 1)
    for (const arch::Parameter& p : method.trained())
      bytes = run::saturating_sum(bytes, run::saturating_product(p.count(), int64_t{sizeof(float)}));
  return bytes;
}

GroupedUpdates::GroupedUpdates(run::Engine& engine, const Method& method, std::vector<arch::Parameter> trained,
                               bool clears, std::unique_ptr<TensorPager> states, std::shared_ptr<run::Program> lender,
                               TensorOf tensor)
    : engine_(engine),
      method_(method),
      trained_(std::move(trained)),
      states_(std::move(states)),
      lender_(std::move(lender)),
      tensor_(std::move(tensor)),
      groups_(update_groups(trained_, method.optimizer())) {
  size_t draws = 0;
  for (size_t i = 0; i < groups_.size(); ++i) {
    groups_[i].first_draw = draws;
    work_.push_back(work_of(groups_[i], update_of(method_, trained_, groups_[i], clears), i));
    draws += groups_[i].draws = work_.back().seeds.size();
  }
  lender_ = nullptr;
}

GroupedUpdates::Work GroupedUpdates::work_of(const UpdateGroup& group, const graph::Graph& g, size_t number) {
  const Renamed renamed(trained_, method_.held(), group);
  Work work{program_of(g), {}, {}, {}};
  for (size_t i = 0; i < count_draws(g); ++i)
    work.seeds.push_back(
        std::make_shared<run::DeviceTensor>(engine_.device(), graph::Type{{}, {Scalar::u32, nullptr}}));
  std::map<std::string, std::string> names;  // of inputs: the trainer's names
  std::map<std::string, size_t> tensors;
  const std::vector<PagedTensor> visiting = states_ ? states_->groups()[number].tensors : std::vector<PagedTensor>();
  for (size_t i = 0; i < group.members.size(); ++i) {
    const arch::Parameter &own = renamed.parameters[i], &p = trained_[group.members[i]];
    names[own.name] = p.name;
    names[recipe::kGradient + own.name] = recipe::kGradient + p.name;
    names[recipe::average_of(own.name)] = recipe::average_of(p.name);
    names[graph::kLargestState + own.name] = graph::kLargestState + p.name;
    for (const recipe::Optimizer::State& s : method_.optimizer().states(p)) {
      names[recipe::optimizer_state(s.name, own.name)] = recipe::optimizer_state(s.name, p.name);
      for (size_t v = 0; v < visiting.size(); ++v)
        if (visiting[v].name == recipe::optimizer_state(s.name, p.name))
          tensors[recipe::optimizer_state(s.name, own.name)] = v;
    }
  }
  for (const std::string& input : work.program->input_names()) {
    if (const auto v = tensors.find(input); v != tensors.end()) {
      work.tensors.emplace_back(input, v->second);
    } else if (!input.starts_with(std::string(recipe::kRoundingSeed) + ".")) {
      const auto name = names.find(input);
      work.inputs.emplace_back(input, name == names.end() ? input : name->second);
      if (const std::string& own = work.inputs.back().second; recipe::is_optimizer_state(own))
        (void)tensor_(own, work.program->input_type(input));  // creates states that stay on the device
    }
  }
  return work;
}

std::shared_ptr<run::Program> GroupedUpdates::program_of(const graph::Graph& graph) {
  std::shared_ptr<run::Program>& program = programs_[graph::print(graph)];
  if (program) return program;
  run::CompileOptions options;
  options.lender = lender_;
  return program = engine_.compile(graph, options);
}

void GroupedUpdates::run(uint32_t seed, const std::function<void(int, int)>& turn) {
  int layer = -1;
  const auto go_to = [&](int next) {
    if (turn && next != layer) turn(layer, next);
    layer = next;
  };
  for (size_t i = 0; i < work_.size(); ++i) {
    go_to(graph::layer_of(trained_[groups_[i].members[0]].name));
    if (states_) {
      states_->prefetch(i);
      if (i + 1 < work_.size()) states_->prefetch(i + 1);
      states_->acquire(i);
    }
    const Work& work = work_[i];
    for (const auto& [input, name] : work.inputs)
      work.program->bind(input, tensor_(name, work.program->input_type(input)));
    for (const auto& [input, index] : work.tensors) work.program->bind(input, states_->tensor(i, index));
    for (size_t k = 0; k < work.seeds.size(); ++k) {
      const uint32_t drawn = graph::seed_as(seed, recipe::kFirstSalt + groups_[i].first_draw + k, recipe::kFirstSalt);
      work.seeds[k]->upload(&drawn, sizeof drawn);
      work.program->bind(recipe::seed_of_draw(k), work.seeds[k]);
    }
    work.program->run();
    if (states_) states_->release(i, true);
  }
  go_to(-1);
}

int64_t GroupedUpdates::own_bytes() const {
  int64_t bytes = 0;
  for (const auto& [unused, program] : programs_) bytes += program->own_bytes();
  return bytes;
}

std::string GroupedUpdates::explain() const {
  std::string out;
  for (const auto& [unused, program] : programs_) out += program->explain();
  return out;
}

}  // namespace lumen::model::train
