#include "model/arch/function.h"

#include <algorithm>

#include "base/error.h"
#include "graph/equivalence/equivalence.h"
#include "model/arch/held_formats.h"
#include "model/arch/split_weights.h"

namespace lumen::model {

std::vector<std::string> online_rotations(const Model& model) {
  std::vector<std::string> names;
  if (!model.metadata.has(kOnlineRotations)) return names;
  for (const std::string& gguf : model.metadata.texts(kOnlineRotations)) {
    const auto p = std::find_if(model.parameters.begin(), model.parameters.end(),
                                [&](const Parameter& q) { return q.gguf == gguf; });
    if (p == model.parameters.end())
      throw user_error("'{}': {} names '{}', which is no weight of it", model.name, kOnlineRotations, gguf);
    names.push_back(p->name);
  }
  return names;
}

graph::Graph function_of(const Model& model, const std::string& name) {
  const WeightSplits splits = weight_splits(model);
  graph::Graph g = graph::split_columns(model.family->function(name, model.config), splits.columns);
  g = graph::split_experts(std::move(g), splits.experts);
  g = graph::rotate_inputs(std::move(g), online_rotations(model));
  return graph::encode_inputs(std::move(g), encoded_inputs(model));
}

}  // namespace lumen::model
