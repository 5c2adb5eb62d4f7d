#include "model/train/ranks/rank_forecast.h"

#include <set>
#include <utility>

#include "graph/ir/text.h"
#include "model/train/offload/offload.h"
#include "model/train/ranks/rank_graphs.h"
#include "model/train/ranks/rank_layers.h"
#include "model/train/ranks/replicated_parameters.h"
#include "run/device/require.h"

namespace lumen::model::train {
namespace {

int64_t part_bytes(const Cut& cut, const graph::Type& type, int rank) {
  return cut.rows_of(rank) == 0 ? 0 : graph::byte_size(cut.part_of(type, rank));
}

graph::Type f32_of(const Cut& cut, const FormatRef& format = nullptr) {
  return {cut.whole.shape, {Scalar::f32, format}};
}

// Exact copies of parts, and changes of all ranks, where changes are sent in a format.
int64_t changed_bytes(const std::vector<Cut>& cuts, const Exchanges& in, int rank, int ranks) {
  int64_t bytes = 0;
  for (const Cut& cut : cuts) {
    if (!in.gathered_in) continue;
    bytes += part_bytes(cut, f32_of(cut), rank);
    if (const FormatRef coded = exchanged_in(cut, in.gathered_in))
      for (int r = 0; r < ranks; ++r) bytes += part_bytes(cut, f32_of(cut, coded), r) * (r == rank ? 2 : 1);
  }
  return bytes;
}

// changed_bytes, plus the rounding errors of gradients and the codes that are sent.
int64_t coded_bytes(const std::vector<Cut>& cuts, const Exchanges& in, int rank, int ranks) {
  int64_t bytes = changed_bytes(cuts, in, rank, ranks);
  for (const Cut& cut : cuts)
    if (const FormatRef coded = exchanged_in(cut, in.reduced_in))
      bytes += graph::byte_size(f32_of(cut)) + graph::byte_size(f32_of(cut, coded));
  return bytes;
}

// Paged tensors have slots on the device.
void move_out(int64_t& held, int64_t& outside, const std::vector<PageGroup>& groups, size_t slots) {
  held += bytes_of_slots(groups, slots) - bytes_held(groups);
  outside = all_bytes(groups);
}

void forecast_layers(RankForecast& out, const LayerPlan& plan, const ExchangedParameters& exchanged, int rank,
                     int ranks) {
  out.between = plan.between_bytes();
  out.kept_slots = bytes_of_slots(plan.kept, kKeptSlots);
  out.outside.kept = all_bytes(plan.kept);
  out.computes_again = !plan.keeps_outside;
  if (!exchanged.gathers) out.parameters = out.in_parts = bytes_held(plan.parameters);
  move_out(out.parameters, out.outside.parameters, plan.parameters, kParameterSlots);
  move_out(out.sums, out.outside.gradients, plan.gradients, kGradientSlots);
  if (!plan.sums_elsewhere) {
    out.exchanges += summed_scratch(exchanged, rank, ranks);
    return;
  }
  const ParameterMemory needs = parameter_memory(exchanged, rank, ranks);
  out.whole_parameters = needs.parameters;
  out.whole_gradients = needs.gradients;
  out.exchanges += needs.exchanges;
}

// Updates group by group, and the optimizer states that are paged for them.
void forecast_updates(RankForecast& out, const run::Device& device, const Method& method, const recipe::Recipe& recipe,
                      const std::vector<arch::Parameter>& updated) {
  const std::vector<UpdateGroup> groups = update_groups(updated, method.optimizer());
  const std::vector<PageGroup> states = paged_states(updated, groups, method.optimizer());
  const bool is_paged = offloads_states(device, recipe, states), alone = out.sharding == Sharding::none;
  if (is_paged) {
    out.outside.states_held = bytes_held(states);
    move_out(out.states, out.outside.states, states, kUpdateSlots);
  }
  if (!is_paged && !alone && !offloads_layers(device, recipe)) return;
  const bool clears = out.sharding != Sharding::states || !goes_by_layers(device, recipe);
  out.updates = different_updates(method, updated, groups, !alone && clears);
}

// Adds each distinct graph once.
void add_graphs(RankForecast& out, const LayerPlan& plan) {
  std::set<std::string> known, evaluated;
  const auto add = [](const std::optional<graph::Graph>& g, std::set<std::string>& seen,
                      std::vector<graph::Graph>& to) {
    if (g && seen.insert(graph::print(*g)).second) to.push_back(*g);
  };
  for (const LayerPlan::Part& at : plan.parts) {
    add(at.forward, known, out.step);
    add(at.backward, known, out.step);
    add(at.more, known, out.step);
  }
  for (const LayerPlan::Part& at : plan.evaluated) add(at.forward, evaluated, out.evaluation);
}

}  // namespace

RankForecast forecast_rank(const run::Device& device, const arch::Model& model, const Method& method,
                           const recipe::Recipe& recipe, int ranks) {
  const Sharding sharding = sharding_of(recipe);
  const std::vector<Cut> cuts = cut_parameters(method.trained_here(), method.optimizer(), ranks);
  const Exchanges in = exchanges_of(recipe, method.formats());
  const bool has_means = recipe.optimizer.ema_decay > 0;
  std::optional<LayerPlan> plan;
  if (ranks_go_by_layers(device, recipe)) plan = plan_rank_layers(device, model, method, recipe, cuts, 0, ranks);
  const bool on_host = device.reads_host_memory();
  const recipe::OffloadSettings settings = recipe::offload_settings(recipe.offload);
  RankForecast most;
  int64_t most_bytes = -1;
  for (int rank = 0; rank < ranks; ++rank) {
    RankForecast one;
    one.sharding = sharding;
    if (sharding == Sharding::none) one.states = method.optimizer().state_bytes(method.trained_here(), method.held());
    for (const Cut& cut : cuts) {
      const graph::Type held = method.held().type_of(cut.whole);
      if (sharding != Sharding::none && cut.rows_of(rank) > 0) {
        one.updated.push_back(cut.part(rank));
        for (const recipe::Optimizer::State& s : method.optimizer().states(cut.whole))
          one.states += part_bytes(cut, s.type, rank);
        if (has_means) one.states += part_bytes(cut, held, rank);
      }
      const bool sums_parts = sharding == Sharding::gradients || sharding == Sharding::parameters;
      one.sums += sums_parts ? part_bytes(cut, f32_of(cut), rank) : graph::byte_size(f32_of(cut));
      if (sharding != Sharding::parameters) continue;
      one.parameters += part_bytes(cut, held, rank);
      one.in_parts += graph::byte_size(held);
    }
    if (plan) {
      take_records(*plan, device, method, recipe, cuts, rank);
      const bool overlaps = recipe.overlap && (on_host || !offloads_layers(device, recipe));
      forecast_layers(
          one, *plan,
          exchanged_parameters(*plan, cuts, method.held(),
                               {{}, in.reduced_in, in.gathered_in, overlaps, sharding == Sharding::parameters}),
          rank, ranks);
      if (sharding != Sharding::parameters && in.gathered_in) one.exchanges += changed_bytes(cuts, in, rank, ranks);
      one.computes_again = one.computes_again || recipe.recompute == "layers";
    } else {
      one.exchanges = exchange_scratch(cuts, rank, ranks) + coded_bytes(cuts, in, rank, ranks);
    }
    if (sharding != Sharding::none || plan)
      forecast_updates(one, device, method, recipe, sharding == Sharding::none ? method.trained_here() : one.updated);
    for (const auto& [place, outside] : {std::pair(&settings.moments, one.outside.states),
                                         {&settings.layers, one.outside.parameters + one.outside.gradients},
                                         {&settings.activations, one.outside.kept}})
      one.outside.in_file = one.outside.in_file || (outside > 0 && *place && !(*place)->host);
    const int64_t bytes = one.states + one.sums + one.parameters + one.exchanges;
    if (bytes <= most_bytes) continue;
    most_bytes = bytes;
    most = std::move(one);
  }
  if (plan) add_graphs(most, *plan);
  return most;
}

}  // namespace lumen::model::train
