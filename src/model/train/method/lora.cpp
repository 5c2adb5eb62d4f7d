#include "model/train/method/lora.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "model/arch/low_rank_weights.h"
#include "model/arch/split_weights.h"
#include "model/recipe/recipe.h"

namespace lumen::model::train {
namespace {

// "model.layers.0.mlp.up_proj" of "model.layers.0.mlp.up_proj.weight".
std::string module_of(std::string name) {
  constexpr std::string_view kWeight = ".weight";
  if (name.ends_with(kWeight)) name.resize(name.size() - kWeight.size());
  return name;
}

bool is_named(const std::string& target, const std::string& name) {
  if (name.empty()) return false;
  return recipe::matches(target, name) || name.ends_with("." + target);
}

bool is_meant(const std::string& target, const arch::Parameter& p) {
  if (target == p.role || is_named(target, p.name)) return true;
  const auto is_module = [&](const std::string& name) {
    return is_named(target, name) || is_named(target, module_of(name));
  };
  return is_module(p.gguf) || is_module(p.hf) || is_module(p.hf_fused) || is_module(p.hf_rows) ||
         std::any_of(p.hf_also.begin(), p.hf_also.end(), is_module);
}

bool is_linear(const arch::Parameter& p, const graph::LowRankPlaces& places) {
  return places.products && !is_looked_up(p) && p.role != "output" && p.role != "router";
}

}  // namespace

std::vector<graph::LowRank> adapter_changes(const arch::Model& model,
                                            const std::map<std::string, graph::LowRankPlaces>& places,
                                            const recipe::AdapterSettings& settings) {
  const std::vector<arch::Parameter> all = all_own_parameters(model);
  for (const std::string& target : settings.targets) {
    if (target == recipe::kAllLinear) continue;
    const auto meant = [&](const arch::Parameter& p) { return is_meant(target, p); };
    if (std::any_of(model.parameters.begin(), model.parameters.end(), meant)) continue;
    if (std::any_of(all.begin(), all.end(), meant))
      throw Error(Exit::user, fmt::format("adapter target '{}': this model has no such weight", target),
                  "it uses its embedding there; leave out the target");
    throw Error(
        Exit::user, fmt::format("adapter target '{}' matches no weight of '{}'", target, model.name),
        "name roles (attention_q), ends of names (wq, q_proj, attn_q), patterns, or all-linear; `lumen inspect` "
        "lists the weights");
  }
  std::vector<graph::LowRank> changes;
  for (const arch::Parameter& p : model.parameters) {
    if (p.role == arch::kBranchRole) continue;  // merged into the weight next to it
    const auto found = places.find(p.name);
    const graph::LowRankPlaces place = found == places.end() ? graph::LowRankPlaces{} : found->second;
    bool chosen = false;
    for (const std::string& target : settings.targets) {
      if (target == recipe::kAllLinear) {
        chosen = chosen || is_linear(p, place);
        continue;
      }
      // A pattern may match vectors as well as matrices and skips them; a plain name must fit.
      if (!is_meant(target, p)) continue;
      const bool fits = is_looked_up(p) ? place.rows : place.products;
      if (!fits && target.find_first_of("*?") == std::string::npos)
        throw Error(Exit::user,
                    fmt::format("adapter target '{}': '{}' is not used in a way that a change of low rank could be "
                                "added to",
                                target, p.name),
                    "adapters change matrices that are multiplied with, one or many, and embeddings");
      chosen = chosen || fits;
    }
    if (!chosen) continue;
    graph::LowRank change;
    change.weight = p.name;
    change.rank = settings.rank;
    change.rows = is_looked_up(p);
    change.scale = settings.scale();
    change.dropout = settings.dropout;
    change.salt = changes.size() + 1;
    change.magnitudes = settings.has_magnitudes();
    const int64_t narrowest = std::min(p.shape.back().number(), p.shape[p.shape.size() - 2].number());
    if (change.rank > narrowest)
      throw Error(
          Exit::usage,
          fmt::format("adapter.rank {} is more than '{}' has rows or columns ({})", change.rank, p.name, narrowest),
          "choose a smaller rank, or leave this weight out of the targets");
    changes.push_back(std::move(change));
  }
  if (changes.empty())
    throw Error(Exit::user, fmt::format("the adapter's targets match no matrix of '{}'", model.name),
                "all-linear means every matrix that is multiplied with");
  return changes;
}

std::vector<graph::LowRank> without_dropout(std::vector<graph::LowRank> changes) {
  for (graph::LowRank& c : changes) c.dropout = 0;
  return changes;
}

std::vector<arch::Parameter> adapter_parameters(const arch::Model& model, const std::vector<graph::LowRank>& changes,
                                                const recipe::AdapterSettings& settings) {
  std::vector<arch::Parameter> out;
  const auto put = [&](const std::string& name, graph::Shape shape, const char* role) -> arch::Parameter& {
    arch::Parameter p;
    p.name = name;
    p.shape = std::move(shape);
    p.role = role;
    return out.emplace_back(std::move(p));
  };
  for (const graph::LowRank& c : changes) {
    const graph::Shape& shape = model.find(c.weight)->shape;
    graph::Shape a = shape, b = shape;
    a[c.rows ? 1 : shape.size() - 2] = graph::Dim(c.rank);
    b.back() = graph::Dim(c.rank);
    if (c.rows) b[0] = shape[1];
    arch::Parameter& narrow = put(graph::low_rank_a(c.weight), a, kRoleA);
    narrow.init = c.rows ? "zeros" : "uniform";
    narrow.init_scale = 1 / std::sqrt(a.back().number());
    arch::Parameter& wide = put(graph::low_rank_b(c.weight), b, kRoleB);
    wide.init = c.rows ? "normal" : "zeros";
    wide.init_scale = 1;
    wide.rate = settings.b_rate;
    if (c.magnitudes)
      put(graph::low_rank_magnitude(c.weight), graph::low_rank_rows(shape, c.rows), kRoleMagnitude).decays = false;
  }
  return out;
}

}  // namespace lumen::model::train
