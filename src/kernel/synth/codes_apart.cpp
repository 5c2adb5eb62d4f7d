#include "kernel/synth/codes_apart.h"

#include <map>

#include "base/check.h"
#include "graph/match/codes.h"
#include "graph/pass/pass.h"
#include "graph/pipeline/pipeline.h"
#include "kernel/synth/encode/codes_group.h"
#include "kernel/synth/step/append.h"
#include "kernel/synth/synth.h"

namespace lumen::synth {

using graph::ValueId;

bool finds_fields(const graph::Plan& plan, const graph::Group& group) {
  return group.shape == graph::KernelShape::move && has_map(plan, group) &&
         graph::fitted_square(plan.graph, group.root) > 0;
}

namespace {

// The graph of the group alone: its one input is what the map reads.
graph::Graph graph_of(const graph::Plan& plan, const CodesGroup& codes) {
  const graph::Graph& g = plan.graph;
  const graph::Node& map = g[codes.map];
  graph::Graph own;
  graph::Builder b(own);
  const ValueId x = b.input("x", graph::Role::data, g[map.operands[0]].type);
  const ValueId y = b.map(map.attributes.formula, {x});
  const auto reshaped = [&](graph::Shape shape) {
    return b.type(y).shape == shape ? y : b.reshape(y, std::move(shape));
  };
  if (codes.straight >= 0) {
    const graph::Type& to = g[codes.straight].type;
    own.results.push_back(b.cast(reshaped(to.shape), to.element));
  }
  if (codes.transposed >= 0) {
    const graph::Type& to = g[codes.transposed].type;
    own.results.push_back(b.cast(b.permute(reshaped({to.shape[1], to.shape[0]}), {1, 0}), to.element));
  }
  own.result_names.assign(own.results.size(), "");
  return own;
}

// Computes the value to convert, if maps of the group compute it.
void compute_to_scratch(const graph::Plan& plan, const CodesGroup& codes, ValueId v, int scratch,
                        const machine::Machine& target, Synthesis& out) {
  graph::Group below = codes.inner;
  below.shape = graph::KernelShape::map;
  below.root = -1;
  std::erase(below.nodes, codes.map);
  below.results = {v};
  const auto place = [&](ValueId value) {
    return value == v ? Argument{Argument::From::scratch, scratch} : Argument{Argument::From::value, value};
  };
  append(synthesize(plan, below, target), place, out);
}

}  // namespace

Synthesis synthesize_apart(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target) {
  const CodesGroup codes(plan, group);
  const ValueId load = plan.graph[codes.map].operands[0];
  Synthesis out;
  Argument x{Argument::From::value, load};
  if (!graph::reads_memory(group, load)) {
    const Scalar type = plan.graph[load].type.element.scalar;
    x.from = Argument::From::scratch;
    x.index = out.scratch.size();
    out.scratch.push_back(graph::byte_size(plan.graph[load].type));
    if (graph::is_load(plan, group, load))
      out.steps.push_back(copy_to_scratch(plan, group, load, x.index, target, type));
    else
      compute_to_scratch(plan, codes, load, x.index, target, out);
  }
  graph::Graph own = graph_of(plan, codes);
  graph::separate_fits_of_squares(own);
  const graph::Plan parts = graph::fuse(std::move(own));
  std::map<ValueId, Argument> places;  // of values of the parts
  std::vector<ValueId> written;
  for (const ValueId r : {codes.straight, codes.transposed})
    if (r >= 0) written.push_back(r);
  LUMEN_CHECK(parts.graph.results.size() == written.size());
  places[parts.graph.inputs().at(0)] = x;
  for (size_t k = 0; k < written.size(); ++k) places[parts.graph.results[k]] = {Argument::From::value, written[k]};
  const auto place = [&](ValueId value) {
    const auto [known, is_new] = places.try_emplace(value, Argument{Argument::From::scratch, 0});
    if (is_new) {
      known->second.index = out.scratch.size();
      out.scratch.push_back(graph::byte_size(parts.graph[value].type));
    }
    return known->second;
  };
  for (const graph::Group& part : parts.groups) {
    LUMEN_CHECK(!finds_fields(parts, part), "fields of a part are not supplied");
    append(synthesize(parts, part, target), place, out);
  }
  return out;
}

}  // namespace lumen::synth
