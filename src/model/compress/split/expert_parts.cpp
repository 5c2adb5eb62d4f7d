#include "model/compress/split/expert_parts.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "graph/equivalence/expert_order.h"
#include "graph/equivalence/scale_sites.h"
#include "model/arch/checkpoint/rows.h"
#include "model/arch/function.h"

namespace lumen::model::compress {
namespace {

// Selects experts in this order, from a weight whose first axis runs along them.
arch::Weight take_experts(const arch::Weight& w, std::span<const int64_t> order) {
  graph::Shape shape = w.type.shape;
  const int64_t all = shape.front().number();
  shape.front() = graph::Dim(std::ssize(order));
  if (shape.size() == 1) {  // a vector has one row
    LUMEN_CHECK(w.is_f32(), "a vector along experts is not held in f32");
    std::vector<float> values;
    for (const int64_t e : order) values.push_back(w.f32()[e]);
    return arch::f32_weight(shape, values);
  }
  const int64_t rows = w.rows() / all;
  std::vector<int64_t> source;
  for (const int64_t e : order)
    for (int64_t r = 0; r < rows; ++r) source.push_back(e * rows + r);
  return take_rows(w, shape, source);
}

}  // namespace

std::vector<size_t> used_classes(const ExpertParts& parts) {
  const std::set<size_t> used(parts.classes.begin(), parts.classes.end());
  return {used.begin(), used.end()};
}

arch::Model with_expert_parts(const arch::Model& model, std::span<const ExpertParts> layers) {
  for (const char* key : {arch::kSplitColumns, arch::kSplitExperts, arch::kOnlineRotations})
    if (model.metadata.has(key))
      throw Error(Exit::user, fmt::format("'{}' has {}: its weights cannot be cut", model.name, key),
                  "start from the model as it was before");
  const graph::Graph g = graph::with_numbers(function_of(model, "forward"));
  arch::Model out = model;
  std::vector<graph::ExpertSplit> splits;
  for (const ExpertParts& layer : layers) {
    const std::vector<size_t> used = used_classes(layer);
    if (used.size() < 2) continue;
    std::vector<int64_t> order(layer.classes.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return layer.classes[a] < layer.classes[b]; });
    std::vector<int64_t> parts;
    for (const size_t k : used) parts.push_back(std::ranges::count(layer.classes, k));
    std::string kept;
    if (!std::ranges::is_sorted(order)) {
      if (const auto along = graph::expert_order(g, layer.weights)) {
        for (const std::string& name : *along) out.weights.at(name) = take_experts(out.weights.at(name), order);
      } else {
        kept = arch::order_parameter(layer.weights.front());
        std::vector<float> places(order.size());
        for (size_t place = 0; place < order.size(); ++place) places[order[place]] = place;
        out.weights[kept] = arch::f32_weight({graph::Dim(std::ssize(order))}, places);
      }
    }
    for (const std::string& name : layer.weights) {
      const arch::Weight whole = out.weights.at(name);
      out.weights.erase(name);
      int64_t begin = 0;
      for (size_t i = 0; i < parts.size(); begin += parts[i++])
        out.weights[graph::expert_part(name, i)] = take_experts(whole, std::span(order).subspan(begin, parts[i]));
      splits.push_back({name, parts, kept});
    }
  }
  set_expert_splits(out, splits);
  out.parameters = own_parameters(out);
  for (const arch::Parameter& p : out.parameters)
    LUMEN_CHECK(out.weights.contains(p.name), "'{}' has no weight", p.name);
  return out;
}

}  // namespace lumen::model::compress
