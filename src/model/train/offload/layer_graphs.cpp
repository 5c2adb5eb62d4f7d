#include "model/train/offload/layer_graphs.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "graph/grad/grad.h"
#include "graph/ir/build.h"
#include "graph/ir/verify.h"
#include "graph/pipeline/pipeline.h"

namespace lumen::model::train {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Role;
using graph::ValueId;

bool is_carried(const std::string& result) {
  return result.starts_with("carried.out.");
}

bool is_real(const graph::Type& type) {
  return !type.element.format && is_float(type.element.scalar);
}

// Removes the results carried_out(i) and returns their values.
std::vector<ValueId> take_carried(Graph& g, size_t count) {
  std::vector<ValueId> out(count, -1), results;
  std::vector<std::string> names;
  for (size_t i = 0; i < g.results.size(); ++i) {
    if (!is_carried(g.result_names[i])) {
      results.push_back(g.results[i]);
      names.push_back(g.result_names[i]);
      continue;
    }
    for (size_t k = 0; k < count; ++k)
      if (g.result_names[i] == graph::carried_out(k)) out[k] = g.results[i];
  }
  g.results = std::move(results);
  g.result_names = std::move(names);
  return out;
}

ValueId sum_of(Builder& build, ValueId v) {
  std::vector<int> axes;
  for (size_t i = 0; i < build.type(v).shape.size(); ++i) axes.push_back(i);
  return axes.empty() ? v : build.reshape(build.reduce(v, graph::Reduction::sum, axes), {});
}

}  // namespace

std::string arriving(size_t out) {
  return fmt::format("{}{}", graph::kArriving, out);
}
std::string kept(size_t out) {
  return fmt::format("kept.{}", out);
}
std::string leaving(size_t in) {
  return fmt::format("leaving.{}", in);
}

namespace {

bool is_simple(const graph::LayerCut& cut) {
  bool simple = cut.parts.size() > 1;
  for (const graph::LayerCut::Carried& c : cut.carried)
    simple = simple && c.to == c.from + 1 && is_real(c.type) && !c.type.shape.empty();
  for (size_t i = 0; i + 1 < cut.parts.size(); ++i)
    for (const std::string& result : cut.parts[i].graph.result_names) simple = simple && is_carried(result);
  return simple;
}

}  // namespace

graph::LayerCut cut_for_training(const Graph& function, const std::string& who, const std::string& instead) {
  Graph g = function;
  graph::inline_calls(g);
  if (graph::LayerCut cut = graph::cut_layers_as_written(g); is_simple(cut)) return cut;
  // Then equal values under two names are passed on once.
  if (graph::LayerCut cut = graph::cut_layers(g); is_simple(cut)) return cut;
  throw Error(
      Exit::user,
      fmt::format("'{}' cannot be trained layer by layer: its layers hand on more than the next one reads", who),
      instead);
}

recipe::Holding held_in(const graph::LayerPart& part, const recipe::Holding& all) {
  recipe::Holding out{all.type, {}};
  for (const std::string& p : part.parameters)
    if (std::find(all.names.begin(), all.names.end(), p) != all.names.end()) out.names.push_back(part.name_of(p));
  return out;
}

Graph forward_part(const graph::LayerPart& part, const recipe::Holding& held) {
  Graph g = hold(part.graph, held);
  g.name = "forward";
  const std::vector<ValueId> carried = take_carried(g, part.out.size());
  Builder build(g);
  for (size_t i = 0; i < carried.size(); ++i)
    build.update(build.input(kept(i), Role::state, g[carried[i]].type), carried[i]);
  graph::verify_or_die(g, "forward_part");
  return g;
}

namespace {

// The part, its carried values, and its gradients.
Graph with_gradients(const graph::LayerPart& part, const recipe::Holding& held, const StepPart& how) {
  Graph g = hold(part.graph, held);
  const std::vector<ValueId> carried = take_carried(g, part.out.size());
  Builder build(g);
  for (size_t i = 0; i < carried.size(); ++i)
    build.update(build.input(kept(i), Role::state, g[carried[i]].type), carried[i]);
  std::vector<ValueId> wanted, inputs;
  for (const std::string& name : how.trained) wanted.push_back(held_value(g, g.find_input(name), held));
  for (size_t i = 0; i < part.in.size(); ++i) wanted.push_back(g.find_input(graph::carried_in(i)));
  const bool has_loss = !g.results.empty();
  LUMEN_CHECK(has_loss == carried.empty(), "a part hands on values or gives a loss");
  std::vector<ValueId> gradients;
  if (has_loss) {
    gradients = graph::gradients_of_loss(g, wanted, how.most_logits);
  } else {
    // The sum of products with the arriving gradients is a loss whose gradient continues the backward pass.
    ValueId loss = -1;
    for (size_t i = 0; i < carried.size(); ++i) {
      const ValueId seed = build.input(arriving(i), Role::data, g[carried[i]].type);
      const ValueId sum = sum_of(build, build.mul(carried[i], seed));
      loss = loss < 0 ? sum : build.add(loss, sum);
    }
    gradients = graph::differentiate(g, loss, wanted);
  }
  for (size_t i = 0; i < part.in.size(); ++i)
    build.update(build.input(leaving(i), Role::state, g[wanted[how.trained.size() + i]].type),
                 gradients[how.trained.size() + i]);
  for (size_t i = 0; i < how.trained.size(); ++i) {
    const std::string& name = how.trained[i];
    const ValueId sum =
        build.input(recipe::kGradient + name, Role::state, {g[wanted[i]].type.shape, {Scalar::f32, nullptr}});
    ValueId total = gradients[i];
    if (how.parts > 1) total = build.mul(total, build.scalar(1.0 / how.parts));
    if (how.adds.contains(name)) total = build.add(sum, total);
    build.update(sum, total);
    if (how.alone) continue;
    g.results.push_back(sum_of(build, build.mul(total, total)));
    g.result_names.push_back(recipe::kSquares + name);
  }
  graph::verify_or_die(g, "with_gradients");
  return g;
}

}  // namespace

graph::Passes passes_of(const graph::LayerPart& part, const recipe::Holding& held, const StepPart& how,
                        const graph::ProductType& products, const graph::Recompute& recompute) {
  return graph::split_passes(graph::with_rounded_products(with_gradients(part, held, how), {}, {}, products),
                             recompute);
}

Graph last_part(const graph::LayerPart& part, const recipe::Holding& held, const StepPart& how,
                const graph::ProductType& products) {
  Graph g = graph::with_rounded_products(with_gradients(part, held, how), {}, {}, products);
  g.name = "backward";
  return g;
}

run::CompileOptions part_options(const Method& method) {
  run::CompileOptions options = method.options();
  options.is_rounded = true;
  options.recompute = {};
  return options;
}

}  // namespace lumen::model::train
