#include "model/train/offload/layer_plan.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "graph/grad/grad.h"
#include "run/device/require.h"

namespace lumen::model {
namespace {

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void require_plain(const Method& method, const Recipe& recipe, LayersLie lie) {
  const bool outside = lie == LayersLie::outside;
  const char* what = method.is_frozen()                                      ? "an adapter"
                     : method.objective()                                    ? "an objective"
                     : recipe.optimizer.ema_decay > 0 && outside             ? "a mean of the weights"
                     : recipe.eval_kl                                        ? "a divergence from a reference"
                     : !recipe.eval_tasks.empty() || !recipe.samples.empty() ? "tasks and samples on the way"
                                                                             : nullptr;
  if (what)
    throw Error(Exit::usage,
                fmt::format("{}: {} needs all parameters on the device",
                            outside ? "--offload layers" : "--shard parameters", what),
                outside ? "--offload moments works with it" : "--shard gradients works with it");
  if (!outside && !recipe.kept.empty())
    throw Error(Exit::usage, "ranks.shard = \"parameters\" and memory.kept contradict each other",
                "a step by layers keeps what one layer computes alone: leave memory.kept away");
  if (!outside && method.options().products.has_formats())
    throw Error(Exit::usage, "ranks.shard = \"parameters\" and formats of [products] contradict each other",
                "--shard gradients works with them");
}

void fill_records(const Model& model, const Method& method, LayerPlan& plan) {
  std::map<int, std::vector<Visitor>> parameters, gradients;
  const Holding& held = method.held();
  for (const Parameter& p : model.parameters)
    if (const int layer = graph::layer_of(p.name); layer >= 0)
      parameters[layer].push_back({p.name, held.type_of(p), 0});
  for (const Parameter& p : method.trained())
    if (const int layer = graph::layer_of(p.name); layer >= 0)
      gradients[layer].push_back({kGradient + p.name, {p.shape, {Scalar::f32, nullptr}}, 0});
  std::vector<std::vector<Visitor>> all, of_gradients;
  for (auto& [layer, visitors] : parameters) {
    plan.group_of[layer] = all.size();
    all.push_back(std::move(visitors));
    of_gradients.push_back(std::move(gradients[layer]));
  }
  plan.parameters = placed(std::move(all));
  plan.gradients = placed(std::move(of_gradients));
}

std::vector<LayerPlan::Part> parts_of(graph::LayerCut cut) {
  std::vector<LayerPlan::Part> out;
  for (graph::LayerPart& part : cut.parts) {
    LayerPlan::Part one{std::move(part), {}, {}, {}, {}};
    for (const std::string& p : one.part.parameters) one.names[one.part.name_of(p)] = p;
    out.push_back(std::move(one));
  }
  return out;
}

// `first`: of the batches of a step.
graph::Graph backward_of(const Method& method, const Recipe& recipe, const std::vector<LayerPlan::Part>& parts,
                         size_t k, bool first, LayersLie lie) {
  const graph::LayerPart& at = parts[k].part;
  BackwardPart how;
  how.alone = lie == LayersLie::with_ranks;
  how.parts = recipe.accumulate > 1 ? method.parts() : 1;
  how.most_logits = most_logits(method.loss(), method.trained());
  for (const Parameter& p : method.trained()) {
    if (!is_among(at.parameters, p.name)) continue;
    how.trained.push_back(at.name_of(p.name));
    // Parts behind this one have come before it.
    bool again = !first;
    for (size_t other = k + 1; other < parts.size(); ++other)
      again = again || is_among(parts[other].part.parameters, p.name);
    if (again && !how.alone) how.adds.insert(how.trained.back());
  }
  return backward_part(at, held_in(at, method.held()), how);
}

}  // namespace

std::string LayerPlan::kept_name(int number) const {
  return fmt::format("kept {}", number);
}

std::string LayerPlan::gradient_name(int number) const {
  const graph::LayerCut::Carried& c = carried.at(number);
  size_t place = 0;  // among those of its part
  for (int i = 0; i < number; ++i) place += carried[i].from == c.from;
  return fmt::format("{} {} {}", print(c.type), place, c.from % 2);
}

int64_t LayerPlan::between_bytes() const {
  std::set<std::string> known;
  int64_t bytes = 0;
  for (int i = 0; i < std::ssize(carried); ++i)
    for (const std::string& name : {kept_name(i), gradient_name(i)})
      if (known.insert(name).second) bytes = run::saturating_sum(bytes, graph::byte_size(carried[i].type));
  return bytes;
}

LayerPlan plan_layers(const Model& model, const Method& method, const Recipe& recipe, LayersLie lie) {
  require_plain(method, recipe, lie);
  const char* const instead = lie == LayersLie::outside ? "leave 'layers' out of --offload" : "--shard gradients";
  LayerPlan plan;
  plan.sums_elsewhere = lie == LayersLie::with_ranks;
  graph::LayerCut cut = cut_for_training(method.loss(), model.name, instead);
  plan.carried = cut.carried;
  plan.parts = parts_of(std::move(cut));
  for (size_t k = 0; k < plan.parts.size(); ++k) {
    LayerPlan::Part& at = plan.parts[k];
    if (k + 1 < plan.parts.size()) at.forward = forward_part(at.part, held_in(at.part, method.held()));
    at.backward = backward_of(method, recipe, plan.parts, k, true, lie);
    if (recipe.accumulate > 1 && !plan.sums_elsewhere) at.more = backward_of(method, recipe, plan.parts, k, false, lie);
  }
  cut = cut_for_training(method.token_losses(), model.name, instead);
  LUMEN_CHECK(cut.carried.size() == plan.carried.size(), "losses of positions have other layers than their mean");
  for (size_t i = 0; i < cut.carried.size(); ++i) LUMEN_CHECK(cut.carried[i].type == plan.carried[i].type);
  plan.evaluated = parts_of(std::move(cut));
  LUMEN_CHECK(plan.evaluated.size() == plan.parts.size());
  for (size_t k = 0; k < plan.parts.size(); ++k)
    if (lie == LayersLie::with_ranks && plan.evaluated[k].names != plan.parts[k].names)
      throw Error(Exit::user,
                  fmt::format("'{}': losses of positions read other parameters than their mean", model.name), instead);
  for (LayerPlan::Part& at : plan.evaluated) {
    at.forward = forward_part(at.part, held_in(at.part, method.held()));
    if (at.part.out.empty()) graph::compute_by_rows(*at.forward, most_logits(method.loss(), method.trained()));
  }
  fill_records(model, method, plan);
  for (const Parameter& p : method.trained())
    if (std::none_of(plan.parts.begin(), plan.parts.end(),
                     [&](const LayerPlan::Part& part) { return is_among(part.part.parameters, p.name); }))
      throw user_error("parameter '{}' is trained, but the family's loss does not use it", p.name);
  return plan;
}

}  // namespace lumen::model
