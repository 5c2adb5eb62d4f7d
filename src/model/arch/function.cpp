#include "model/arch/function.h"

#include <algorithm>

#include "base/error.h"
#include "graph/equivalence/equivalence.h"
#include "graph/transform/low_rank.h"
#include "model/arch/held_formats.h"
#include "model/arch/low_rank_weights.h"
#include "model/arch/split_weights.h"

namespace lumen::model::arch {
namespace {

// Products with these weights get low-rank branches. A branch reads the same input: rotated, but not quantized.
graph::Graph with_low_rank(graph::Graph g, const Model& model) {
  const std::vector<LowRankBranch> branches = low_rank_branches(model);
  if (branches.empty()) return g;
  graph::inline_calls(g);
  graph::simplify(g);
  const auto places = graph::low_rank_places(g);
  std::vector<graph::LowRank> parts;
  for (const LowRankBranch& b : branches) {
    if (g.find_input(b.weight) < 0) continue;
    const auto place = places.find(b.weight);
    if (place == places.end() || !place->second.products || place->second.rows)
      throw user_error("'{}': {} names '{}', which is not only read by products", model.name, kLowRankWeights,
                       b.weight);
    graph::LowRank part;
    part.weight = b.weight;
    part.rank = b.rank;
    part.a_name = branch_a(b.weight);
    part.b_name = branch_b(b.weight);
    parts.push_back(std::move(part));
  }
  return graph::add_low_rank(std::move(g), parts);
}

}  // namespace

std::vector<std::string> online_rotations(const Model& model) {
  std::vector<std::string> names;
  if (!model.metadata.has(kOnlineRotations)) return names;
  for (const std::string& gguf : model.metadata.texts(kOnlineRotations)) {
    const auto p = std::find_if(model.parameters.begin(), model.parameters.end(),
                                [&](const Parameter& q) { return q.gguf == gguf; });
    if (p == model.parameters.end())
      throw user_error("'{}': {} names '{}', which is not one of its weights", model.name, kOnlineRotations, gguf);
    names.push_back(p->name);
  }
  return names;
}

graph::Graph function_of(const Model& model, const std::string& name) {
  const WeightSplits splits = weight_splits(model);
  graph::Graph g = graph::split_columns(model.family->function(name, model.config), splits.columns);
  g = graph::split_experts(std::move(g), splits.experts);
  g = with_low_rank(graph::rotate_inputs(std::move(g), online_rotations(model)), model);
  g = graph::encode_inputs(std::move(g), encoded_inputs(model));
  return graph::encode_states(std::move(g), encoded_states(model));
}

}  // namespace lumen::model::arch
