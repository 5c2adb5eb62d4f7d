#include "model/train/offload/layer_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "graph/grad/grad.h"
#include "graph/ir/text.h"
#include "run/device/require.h"

namespace lumen::model::train {
namespace {

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const char* flag_of(LayersLie lie) {
  return lie == LayersLie::outside      ? "--offload layers"
         : lie == LayersLie::with_ranks ? "--shard parameters"
                                        : "--offload activations";
}

void require_plain(const Method& method, const recipe::Recipe& recipe, LayersLie lie, bool keeps_outside) {
  const bool here = lie == LayersLie::here;
  const bool moves = lie == LayersLie::outside || (!here && recipe::offload_settings(recipe.offload).layers);
  const char* what = method.is_frozen()                        ? "an adapter"
                     : method.objective()                      ? "an objective"
                     : recipe.optimizer.ema_decay > 0 && moves ? "a mean of the weights"
                     : recipe.eval_kl                          ? "a divergence from a reference"
                     : (!recipe.eval_tasks.empty() || !recipe.samples.empty()) && !here ? "tasks and samples on the way"
                                                                                        : nullptr;
  if (what)
    throw Error(Exit::usage,
                fmt::format("{}: {} needs {}", flag_of(lie), what,
                            here ? "a step that does not go by layers" : "all parameters on the device"),
                lie == LayersLie::with_ranks ? "--shard gradients works with it" : "--offload moments works with it");
  if (!recipe.kept.empty() && (!keeps_outside || recipe.recompute == "layers"))
    throw Error(
        Exit::usage, fmt::format("{} and memory.kept contradict each other", flag_of(lie)),
        lie == LayersLie::with_ranks
            ? "a step by layers keeps only the values of one layer: leave out memory.kept"
            : "layers that are computed again keep nothing that could lie in a format: with --offload activations, "
              "and without --recompute layers, they keep the values that gradients need");
  if (keeps_outside && recipe.recompute != "none" && recipe.recompute != "maps" && recipe.recompute != "layers")
    throw Error(Exit::usage,
                fmt::format("--offload activations and --recompute {} contradict each other", recipe.recompute),
                "none, maps or layers go with it; --memory chooses among them");
}

void fill_records(const arch::Model& model, const Method& method, LayerPlan& plan) {
  std::map<int, std::vector<PagedTensor>> parameters, gradients;
  const recipe::Holding& held = method.held();
  for (const arch::Parameter& p : model.parameters)
    if (const int layer = graph::layer_of(p.name); layer >= 0)
      parameters[layer].push_back({p.name, held.type_of(p), 0});
  for (const arch::Parameter& p : method.trained())
    if (const int layer = graph::layer_of(p.name); layer >= 0)
      gradients[layer].push_back({recipe::kGradient + p.name, {p.shape, {Scalar::f32, nullptr}}, 0});
  std::vector<std::vector<PagedTensor>> all, of_gradients;
  for (auto& [layer, tensors] : parameters) {
    plan.group_of[layer] = all.size();
    all.push_back(std::move(tensors));
    of_gradients.push_back(std::move(gradients[layer]));
  }
  plan.parameters = placed(std::move(all));
  plan.gradients = placed(std::move(of_gradients));
}

std::vector<LayerPlan::Part> parts_of(graph::LayerCut cut) {
  std::vector<LayerPlan::Part> out;
  for (graph::LayerPart& part : cut.parts) {
    LayerPlan::Part one{std::move(part), {}, {}, {}, {}, {}};
    for (const std::string& p : one.part.parameters) one.names[one.part.name_of(p)] = p;
    out.push_back(std::move(one));
  }
  return out;
}

// `first`: first batch of a step.
StepPart step_part(const Method& method, const recipe::Recipe& recipe, const std::vector<LayerPlan::Part>& parts,
                   size_t k, bool first, bool alone) {
  const graph::LayerPart& at = parts[k].part;
  StepPart how;
  how.alone = alone;
  how.parts = recipe.accumulate > 1 ? method.parts() : 1;
  how.most_logits = recipe::most_logits(method.loss(), method.trained());
  for (const arch::Parameter& p : method.trained()) {
    if (!is_among(at.parameters, p.name)) continue;
    how.trained.push_back(at.name_of(p.name));
    // Later parts run backward earlier.
    bool again = !first;
    for (size_t other = k + 1; other < parts.size(); ++other)
      again = again || is_among(parts[other].part.parameters, p.name);
    if (again && !how.alone) how.adds.insert(how.trained.back());
  }
  return how;
}

graph::Recompute computed_again(const Method& method, const recipe::Recipe& recipe, bool keeps_outside) {
  using What = graph::Recompute::What;
  if (!keeps_outside || recipe.recompute == "layers") return {What::layers, 0};
  return {recipe.recompute == "maps" ? What::maps : What::none, 0, method.options().recompute.kept};
}

// Scales of activations are initialized by a pass through the whole model.
void require_no_first_pass(const Method& method) {
  for (const graph::LearnedScale& s : method.scales())
    if (s.weight.empty())
      throw Error(Exit::usage,
                  "a step by layers: scales of activations that are learned begin with a pass through the whole model",
                  "activation_scale and attention_scale \"fitted\"; weight_scale may be \"learned\"");
}

// Equal layers share their graphs: passes are made once per set of parts with the same graph, parameters and sums.
class PassesOfParts {
 public:
  PassesOfParts(const graph::ProductType& products, const graph::Recompute& recompute)
      : products_(products), recompute_(recompute) {}

  const graph::Passes& of(const graph::LayerPart& part, const recipe::Holding& held, const StepPart& how) {
    const std::string key =
        fmt::format("{}|{}|{}|{}|{}|{}", graph::print(part.graph), part.in.size(), part.out.size(),
                    fmt::join(held.names, ","), fmt::join(how.trained, ","), fmt::join(how.adds, ","));
    const auto found = made_.find(key);
    if (found != made_.end()) return found->second;
    return made_.emplace(key, passes_of(part, held, how, products_, recompute_)).first->second;
  }

 private:
  const graph::ProductType& products_;
  const graph::Recompute& recompute_;
  std::map<std::string, graph::Passes> made_;
};

void fill_step(const Method& method, const recipe::Recipe& recipe, LayerPlan& plan, int ranks) {
  require_no_first_pass(method);
  const bool has_more = recipe.accumulate > ranks && !plan.sums_elsewhere;  // batches of this rank
  const graph::Recompute recompute = computed_again(method, recipe, plan.keeps_outside);
  const graph::ProductType& products = method.options().products;
  PassesOfParts passes(products, recompute);
  for (size_t k = 0; k < plan.parts.size(); ++k) {
    LayerPlan::Part& at = plan.parts[k];
    const recipe::Holding held = held_in(at.part, method.held());
    const auto how = [&](bool first) { return step_part(method, recipe, plan.parts, k, first, plan.sums_elsewhere); };
    if (at.part.out.empty()) {
      at.backward = last_part(at.part, held, how(true), products);
      if (has_more) at.more = last_part(at.part, held, how(false), products);
      for (size_t i = 0; i < at.part.in.size(); ++i)
        at.kept.push_back({graph::carried_in(i), plan.carried[at.part.in[i]].type});
      continue;
    }
    const graph::Passes& first = passes.of(at.part, held, how(true));
    if (has_more) at.more = passes.of(at.part, held, how(false)).backward;
    at.forward = first.forward;
    at.backward = first.backward;
    at.kept = first.kept;
  }
  std::vector<std::vector<PagedTensor>> groups;
  for (size_t k = 0; plan.keeps_outside && k < plan.parts.size(); ++k) {
    groups.emplace_back();
    for (const auto& [input, type] : plan.parts[k].kept) groups.back().push_back({plan.paged_name(k, input), type, 0});
  }
  plan.kept = placed(std::move(groups));
}

}  // namespace

bool LayerPlan::has_kept(size_t part, const std::string& input) const {
  const std::vector<graph::Passes::Kept>& all = parts[part].kept;
  return keeps_outside && std::any_of(all.begin(), all.end(), [&](const auto& k) { return k.name == input; });
}

std::string LayerPlan::paged_name(size_t part, const std::string& input) const {
  return fmt::format("{} {}", part, input);
}

std::string LayerPlan::kept_name(int number) const {
  return fmt::format("kept {}", number);
}

std::string LayerPlan::gradient_name(int number) const {
  const graph::LayerCut::Carried& c = carried.at(number);
  size_t place = 0;  // index among those of its part
  for (int i = 0; i < number; ++i) place += carried[i].from == c.from;
  return fmt::format("{} {} {}", print(c.type), place, c.from % 2);
}

int64_t LayerPlan::between_bytes() const {
  std::set<std::string> known;
  int64_t bytes = 0;
  for (int i = 0; i < std::ssize(carried); ++i)
    for (const std::string& name : {keeps_outside ? gradient_name(i) : kept_name(i), gradient_name(i)})
      if (known.insert(name).second) bytes = run::saturating_sum(bytes, graph::byte_size(carried[i].type));
  return bytes;
}

LayerPlan plan_layers(const arch::Model& model, const Method& method, const recipe::Recipe& recipe, LayersLie lie,
                      bool keeps_outside, AmongRanks among) {
  require_plain(method, recipe, lie, keeps_outside);
  const char* const instead =
      lie == LayersLie::with_ranks ? "--shard gradients" : "leave 'layers' and 'activations' out of --offload";
  LayerPlan plan;
  plan.keeps_outside = keeps_outside;
  plan.sums_elsewhere = lie == LayersLie::with_ranks || among.sums_elsewhere;
  graph::LayerCut cut = cut_for_training(method.loss(), model.name, instead);
  plan.carried = cut.carried;
  plan.parts = parts_of(std::move(cut));
  fill_step(method, recipe, plan, among.ranks);
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
    if (at.part.out.empty()) graph::compute_by_rows(*at.forward, recipe::most_logits(method.loss(), method.trained()));
  }
  if (lie == LayersLie::outside) fill_records(model, method, plan);
  for (const arch::Parameter& p : method.trained())
    if (std::none_of(plan.parts.begin(), plan.parts.end(),
                     [&](const LayerPlan::Part& part) { return is_among(part.part.parameters, p.name); }))
      throw user_error("parameter '{}' is trained, but the family's loss does not use it", p.name);
  return plan;
}

}  // namespace lumen::model::train
